"""Scheduled training of networks that are too large for a microcontroller's RAM.

An emulated Cortex-M3 pages to its SD card, and a Cortex-M0 to its flash. Every value is compared
with that of this computer, which replays the same plan with the same arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from devices.description import DeviceDescription, load_description
from devices.operation import OpSpec
from devices.plan import ExecutionPlan
from devices.profile import (
    AffinePageCost,
    BoardIdentity,
    Cost,
    DeviceProfile,
    Interval,
    OperationCost,
    StorageCosts,
)
from networks.data import generated_batches
from networks.models import build_model
from networks.training import (
    Network,
    TrainingStep,
    training_step,
)
from networks.training.initial import initial_values
from profiler import lab
from profiler.boards.serial import SerialBoard
from profiler.building.store_layout import store_layout
from profiler.lab.running import RunningBoard
from profiler.transports.serial.exchange import Exchange
from replay.lowering.lowering import lower, unscheduled
from replay.running.failure import ReplayFailed
from replay.running.measured import ReplayRecord
from replay.running.opening import open_replay
from replay.running.session import ReplaySession
from replay.running.twin import host_twin
from solver.costing.costing import cost_graph
from solver.options import SolverOptions
from solver.problem.schedule import Budget, Schedule
from solver.solving.solving import solve_graph
from tests.support.progress import ignore

pytestmark = [pytest.mark.emulated, pytest.mark.usefixtures("own_boards")]

STEPS = 3
SEED = 7
EXPECTED_STEP_S = 10.0
RATES = (0.005, 0.02)
"""Learning rates of the first two steps; the second one holds for all later ones."""


def narrow_classifier() -> Network:
    """A network for a board of 16 KiB: many layers of a kilobyte each."""
    net = Network("narrow classifier", 1)
    x = net.conv2d("stem", net.input("image", 1, 1, 8, 8), 4, 3, padding=1)
    for number in range(1, 6):
        x = net.relu(f"relu{number}", net.batch_norm(f"norm{number}", x))
        x = net.conv2d(f"conv{number}", x, 4, 1)
    x = net.linear("classifier", net.global_average_pool("pool", x), 5)
    net.softmax_cross_entropy("loss", x, net.input("labels", 1))
    return net


@dataclass(frozen=True)
class Problem:
    """A step that needs more RAM than a board has, and a budget that the board has."""

    device: str
    step: TrainingStep
    budget_bytes: int


CARD = Problem("emulated-m3-sd", build_model("digits", 8), 40 << 10)
FLASH = Problem("emulated-m0-flash", training_step(narrow_classifier()), 4864)
PROBLEMS = (CARD, FLASH)


def profile_of(
    description: DeviceDescription, step: TrainingStep, workspace_bytes: Mapping[OpSpec, int]
) -> DeviceProfile:
    """A made-up profile: one megaflop a second, and paging about as expensive as recomputing."""

    def cost(spec: OpSpec) -> Cost:
        time_s = 2e-4 + spec.work_flop / 1e6 + spec.moved_bytes / 4e6
        return Cost(time_s=Interval.exact(time_s), energy_j=Interval.exact(0.05 * time_s), trials=5)

    assert description.storage is not None
    page_bytes = description.storage.page_bytes
    page_s = page_bytes * 2e-6
    return DeviceProfile(
        name=description.name,
        energy_source="estimated",
        board=BoardIdentity(model=description.model, memory_bytes=1 << 16),
        operations=tuple(
            OperationCost(
                op=spec.key, workspace_bytes=workspace_bytes[spec], warm=cost(spec), cold=cost(spec)
            )
            for spec in step.distinct_specs
        ),
        storage=StorageCosts(
            medium=description.storage.medium,
            page_bytes=page_bytes,
            method="direct",
            read=AffinePageCost(
                fixed_s=1e-3, per_page_s=page_s / 2, fixed_j=5e-5, per_page_j=page_s * 0.025
            ),
            write=AffinePageCost(
                fixed_s=2e-3, per_page_s=page_s, fixed_j=1e-4, per_page_j=page_s * 0.05
            ),
        ),
    )


@dataclass(frozen=True)
class Planned:
    problem: Problem
    schedule: Schedule
    plan: ExecutionPlan
    unscheduled_bytes: int


def planned(problem: Problem, workspace_bytes: Mapping[OpSpec, int]) -> Planned:
    step = problem.step
    description = load_description(problem.device)
    graph = cost_graph(step, profile_of(description, step, workspace_bytes)).graph
    options = SolverOptions(gap=0.2, time_limit_s=60.0, threads=1)
    schedule = solve_graph(graph, Budget(ram_bytes=problem.budget_bytes), options)
    plan = lower(step, graph, schedule, workspace_bytes)
    return Planned(problem, schedule, plan, unscheduled(step, workspace_bytes).arena_bytes)


class Twin:
    """This computer with the arithmetic of both boards, which is the same, and their plans.

    It pages to a directory of its own, which no other test uses meanwhile.
    """

    def __init__(self, stack: ExitStack, directory: Path) -> None:
        here = [host_twin(load_description(problem.device)) for problem in PROBLEMS]
        assert here[0].toolchain == here[1].toolchain
        assert here[0].storage is not None
        storage = here[0].storage.model_copy(update={"path": str(directory)})
        twin = here[0].model_copy(update={"storage": storage})
        specs = [spec for problem in PROBLEMS for spec in problem.step.distinct_specs]
        self.session = stack.enter_context(open_replay(twin, specs, self._plans, ignore))

    def _plans(self, workspace_bytes: Mapping[OpSpec, int]) -> Sequence[ExecutionPlan]:
        self.planned = [planned(problem, workspace_bytes) for problem in PROBLEMS]
        return [each.plan for each in self.planned]


@dataclass
class Training:
    """A board and this computer, both with the plan of a problem."""

    planned: Planned
    running: RunningBoard
    session: ReplaySession
    twin: ReplaySession

    @property
    def step(self) -> TrainingStep:
        return self.planned.problem.step

    def on_board(self) -> ReplayRecord:
        return self._run(self.session, 0, STEPS)

    def here(self, steps: int = STEPS) -> ReplayRecord:
        return self._run(self.twin, PROBLEMS.index(self.planned.problem), steps)

    def _run(self, session: ReplaySession, plan: int, steps: int) -> ReplayRecord:
        data = generated_batches(self.step, samples=STEPS * self.step.batch, seed=SEED)
        return session.run(
            plan,
            initial_values(self.step, SEED),
            [data.batch(index) for index in range(STEPS)],
            steps=steps,
            watched=True,
            expected_step_s=EXPECTED_STEP_S,
            rates=RATES,
        )


@pytest.fixture(scope="module")
def twin(own_boards: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twin]:
    with ExitStack() as stack:
        yield Twin(stack, tmp_path_factory.mktemp("twin"))


@pytest.fixture(scope="module", params=range(len(PROBLEMS)), ids=["card", "flash"])
def training(request: pytest.FixtureRequest, twin: Twin) -> Iterator[Training]:
    chosen = twin.planned[request.param]
    boards: list[RunningBoard] = []
    start = lab.start

    def watched(*arguments: Any) -> RunningBoard:
        boards.append(start(*arguments))
        return boards[-1]

    description = load_description(chosen.problem.device)
    specs = chosen.problem.step.distinct_specs
    with ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(lab, "start", watched)
            session = stack.enter_context(
                open_replay(description, specs, lambda _: [chosen.plan], ignore)
            )
        yield Training(chosen, boards[0], session, twin.session)


@pytest.fixture(scope="module")
def record(training: Training) -> ReplayRecord:
    return training.on_board()


def same_bits(found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> bool:
    return {name: value.tobytes() for name, value in found.items()} == {
        name: value.tobytes() for name, value in expected.items()
    }


def test_a_step_too_large_for_the_board_gives_the_values_of_this_computer(
    training: Training, record: ReplayRecord
) -> None:
    chosen, plan = training.planned, training.planned.plan
    memory = training.session.description.memory
    assert memory is not None
    assert chosen.unscheduled_bytes > memory.ram_bytes
    assert plan.arena_bytes <= training.planned.problem.budget_bytes
    computed = sum(action.do == "compute" for action in chosen.schedule.actions or ())
    assert computed > len(training.step.ops), "nothing is recomputed"
    assert any(action.do == "page_in" for action in chosen.schedule.actions or ()), (
        "nothing is paged"
    )

    expected = training.here()
    assert len(record.steps) == len(expected.steps) == STEPS
    for found, wanted in zip(record.steps, expected.steps, strict=True):
        assert len(found.checksums) == len(plan.probes)
        assert found.checksums == wanted.checksums
    assert record.losses == expected.losses
    assert same_bits(record.values, expected.values)


def test_a_board_counts_the_bytes_that_it_moves(training: Training, record: ReplayRecord) -> None:
    plan, storage = training.planned.plan, training.session.description.storage
    layout = store_layout(plan, storage)
    counters = record.counters
    assert counters is not None
    assert counters.steps == STEPS
    assert counters.bytes_out == STEPS * layout.written_bytes
    assert counters.bytes_in > 0
    assert counters.touched_bytes <= plan.arena_bytes
    assert storage is not None
    if storage.erase_block_bytes is None:
        assert counters.erased_blocks == 0
    else:
        assert counters.erased_blocks == STEPS * layout.step_bytes // storage.erase_block_bytes


def test_the_actions_account_for_the_time_of_a_step(
    training: Training, record: ReplayRecord
) -> None:
    plan = training.planned.plan
    for step in record.steps:
        assert len(step.spans) == len(plan.actions) + len(plan.afterwards)
        within = step.spans[: len(plan.actions)]
        assert 0.9 * step.time_s < sum(span.time_s for span in within) <= step.time_s


def test_a_reset_in_a_step_leaves_the_last_complete_step_intact(training: Training) -> None:
    reset_in_step(training, number=1)
    with pytest.raises(ReplayFailed, match="restarted while it was measuring") as failed:
        training.on_board()
    recovered = failed.value.recovered
    assert recovered is not None
    assert recovered.step in {1, 2}  # 2 if this computer was too slow for the step
    assert f"after step {recovered.step} are intact" in str(failed.value)
    assert same_bits(recovered.values, training.here(steps=recovered.step).values)


def reset_in_step(training: Training, number: int) -> None:
    """Reset the board as soon as its report of the begin of the step with this number is read."""
    board = training.session.board
    assert isinstance(board, SerialBoard)
    session, send = board._session, board._session.line
    exchange = session._exchange

    class ResetsOnceBegun(Exchange):
        @property
        def in_window(self) -> bool:
            return False

        @in_window.setter
        def in_window(self, is_open: bool) -> None:
            if is_open:
                self.__class__ = Exchange  # type: ignore[assignment]
                self.in_window = True
                training.running.reset()

    def line(text: str, *arguments: object) -> str:
        if text.startswith(f"train id={number} "):
            session.line = send  # type: ignore[method-assign]
            exchange.__class__ = ResetsOnceBegun
        return send(text, *arguments)  # type: ignore[arg-type]

    session.line = line  # type: ignore[method-assign]


def test_a_replay_does_not_disturb_a_board_that_is_kept_running(twin: Twin) -> None:
    chosen = twin.planned[PROBLEMS.index(FLASH)]
    kept = lab.bring_up(load_description(FLASH.device), ignore)
    try:
        with lab.start(kept.description, ignore, [chosen.plan]) as replaying:
            assert replaying.pid != kept.pid
        assert kept.is_alive
    finally:
        lab.take_down([FLASH.device])
