"""Execution plans on a Linux board: identical values with any schedule, and clean failures.

A failure is reported, leaves no process running, and loses no complete step.
"""

from __future__ import annotations

import os
import re
import signal
import struct
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from devices.description import DeviceDescription, Storage, load_description
from devices.errors import (
    BoardCommandFailed,
    BoardUnreachable,
    MeasurementInvalid,
    RequestRefused,
)
from devices.operation import SIGNATURES, OpSpec
from devices.plan import (
    Action,
    ArenaRange,
    Check,
    Compute,
    ExecutionPlan,
    Kept,
    Move,
    Operation,
    PageIn,
    PageOut,
    Probe,
)
from devices.profile import EnergySource, MeterRecord
from networks.data import generated_batches
from networks.training import Network, training_step
from networks.training.initial import initial_values
from profiler.boards.base import Board, Outcome, RebootError
from profiler.boards.posix import PosixBoard
from profiler.building.plan_source import kernel_entry, plans_source
from profiler.building.sources import EXECUTOR, KERNELS
from profiler.building.store_layout import record_bytes, store_layout
from profiler.building.toolchain import BuiltHarness, HarnessBuilder
from profiler.meters.base import BlockRecord, PowerTrace
from profiler.meters.readings import Response
from profiler.meters.trace import SampledPower
from replay.lowering.lowering import lower, unscheduled
from replay.running.failure import ReplayFailed, Trained
from replay.running.measured import ReplayRecord
from replay.running.opening import open_replay
from replay.running.records import parse_replay
from replay.running.session import ReplaySession
from solver.addresses.plan import plan_addresses, with_addresses
from solver.problem.graph import CostedGraph
from solver.problem.liveness import with_frees
from solver.problem.schedule import Compute as ScheduledCompute
from tests.support.boards import processes
from tests.support.boards.measuring import StandInMeter, describe
from tests.support.boards.sshd import Network as SshNetwork
from tests.support.graphs.schedules import addressed_schedule, by_rule, costed
from tests.support.networks.training import small_convolutional

STEP = training_step(small_convolutional(2), "momentum")
SEED = 3
STEPS = 4
SHARE = 1.05
"""Budget as a multiple of the least RAM: at it, the greedy schedule pages, recomputes and moves."""

UNSCHEDULED, SCHEDULED, GUARDED, PLANTED, NOISY_UNSCHEDULED, NOISY_AGAIN = range(6)
OVERLAPPING = "stem.relu.forward"
PAGE_BYTES = 512


def partly_pageable(workspace_bytes: Mapping[OpSpec, int]) -> CostedGraph:
    """The graph with half of the activations not pageable, so that they are recomputed."""
    graph = costed(STEP, workspace_bytes)
    tensors = []
    for number, tensor in enumerate(graph.tensors):
        is_fixed = tensor.kind == "activation" and number % 2 == 0
        update: dict[str, object] = {"page_out": None, "page_in": None} if is_fixed else {}
        tensors.append(tensor.model_copy(update=update))
    return graph.model_copy(update={"tensors": tuple(tensors)})


def plans_for(workspace_bytes: Mapping[OpSpec, int]) -> list[ExecutionPlan]:
    graph = partly_pageable(workspace_bytes)
    schedule = by_rule(graph, SHARE)
    guarded = lower(STEP, graph, schedule, workspace_bytes, guarded=True)
    return [
        unscheduled(STEP, workspace_bytes),
        lower(STEP, graph, schedule, workspace_bytes),
        guarded,
        with_planted_overlap(guarded),
    ]


def noisy() -> Network:
    net = Network("noisy", 2)
    x = net.batch_norm("norm", net.conv2d("stem", net.input("image", 2, 2, 6, 6), 8, 3, padding=1))
    x = net.batch_norm_frozen("frozen", x)
    x = net.dropout("dropout", net.global_average_pool("pool", x), 0.5)
    x = net.linear("classifier", x, 3)
    net.softmax_cross_entropy("loss", x, net.input("labels", 2))
    return net


NOISY = training_step(noisy())
AGAIN = ("stem.forward", "norm.forward", "frozen.forward", "pool.forward", "dropout.forward")


def noisy_plans(workspace_bytes: Mapping[OpSpec, int]) -> list[ExecutionPlan]:
    """The unscheduled plan, and one that recomputes all operations up to the dropout's output."""
    graph = costed(NOISY, workspace_bytes)
    backward = next(i for i, op in enumerate(graph.ops) if op.phase == "backward")
    names = [op.name for op in graph.ops]
    order = (*names[:backward], *AGAIN, *names[backward:])
    steps = with_frees(graph, [ScheduledCompute(op=name) for name in order])
    places = plan_addresses(graph, steps, "all", 0, time.monotonic())
    addressed = with_addresses(steps, places)
    schedule = addressed_schedule(graph, addressed, places.resident_address, places.arena_bytes)
    return [unscheduled(NOISY, workspace_bytes), lower(NOISY, graph, schedule, workspace_bytes)]


def all_plans(workspace_bytes: Mapping[OpSpec, int]) -> list[ExecutionPlan]:
    return [*plans_for(workspace_bytes), *noisy_plans(workspace_bytes)]


def with_planted_overlap(guarded: ExecutionPlan) -> ExecutionPlan:
    """The plan with an operation that writes past its output, over the canary after it."""
    actions = list(guarded.actions)
    number = next(
        i
        for i, action in enumerate(actions)
        if isinstance(action.does, Compute) and action.does.op == OVERLAPPING
    )
    op = actions[number].does
    assert isinstance(op, Compute)
    written = op.spec.writes[0].bytes
    moved = replace(op, writes=(op.writes[0] + written // 2, *op.writes[1:]))
    actions[number] = replace(actions[number], does=moved)
    return replace(guarded, name="planted", actions=tuple(actions))


def board(directory: Path | str, **changes: Any) -> DeviceDescription:
    storage = {"medium": "disk", "path": str(directory), "page_bytes": PAGE_BYTES}
    return describe(storage=storage, **changes)


INITIAL = initial_values(STEP, SEED)
BATCHES = generated_batches(STEP, 2 * 2, SEED)


@dataclass(frozen=True)
class Bench:
    session: ReplaySession
    storage: Path

    def run(self, plan: int, steps: int = STEPS, watched: bool = True, **rest: Any) -> ReplayRecord:
        batches = [BATCHES.batch(0), BATCHES.batch(1)]
        return self.session.run(
            plan,
            INITIAL,
            batches,
            steps=steps,
            watched=watched,
            expected_step_s=0.01,
            **rest,
        )

    @property
    def files(self) -> list[str]:
        return [path.name for path in self.storage.iterdir()]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    storage = tmp_path_factory.mktemp("storage")
    specs = (*STEP.distinct_specs, *NOISY.distinct_specs)
    with open_replay(
        board(storage), specs, all_plans, lambda _what: None, poll_interval_s=0.02
    ) as session:
        yield Bench(session, storage)


@pytest.fixture
def compiled_already(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Give other boards the program of the bench, including its plans."""
    board = bench.session.board
    assert isinstance(board, PosixBoard)
    harness = board._harness
    assert harness is not None

    def put(builder: HarnessBuilder, *_: object, **__: object) -> BuiltHarness:
        builder.transport.put(Path(harness.path), "harness", timeout_s=60, executable=True)
        return replace(harness, path=f"{builder.transport.directory}/harness")

    monkeypatch.setattr(HarnessBuilder, "build", put)
    return monkeypatch


Observed = list[dict[tuple[str, str], int]]


def observed(record: ReplayRecord) -> Observed:
    """Checksums of each step, by tensor and kind of value."""
    names = [(probe.tensor, probe.what) for probe in record.plan.probes]
    return [dict(zip(names, step.checksums, strict=True)) for step in record.steps]


@pytest.fixture(scope="module")
def reference(bench: Bench) -> Observed:
    return observed(bench.run(UNSCHEDULED))


# --- on this computer -----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("plan", [SCHEDULED, GUARDED])
def test_a_schedule_gives_the_same_bits_as_the_unscheduled_step(
    bench: Bench, reference: Observed, plan: int
) -> None:
    scheduled = bench.session.plans[plan]
    ops = [op.op for op in scheduled.computes]
    assert len(set(ops)) < len(ops)
    assert any(isinstance(action.does, PageIn) for action in scheduled.actions)
    record = bench.run(plan)
    assert observed(record) == reference
    assert (
        len({tuple(step.values()) for step in reference}) == STEPS
    )  # each step changes the values
    assert bench.files == []


@pytest.mark.slow
def test_a_recomputed_dropout_keeps_its_mask_and_statistics_change_once_a_step(
    bench: Bench,
) -> None:
    batches = generated_batches(NOISY, 4, SEED)
    plain, again = (
        bench.session.run(
            plan,
            initial_values(NOISY, SEED),
            [batches.batch(0), batches.batch(1)],
            steps=STEPS,
            watched=True,
            expected_step_s=0.01,
        )
        for plan in (NOISY_UNSCHEDULED, NOISY_AGAIN)
    )
    times = Counter(op.op for op in again.plan.computes)
    assert {name for name, count in times.items() if count == 2} == set(AGAIN)
    assert times["norm.statistics_update"] == 1
    assert observed(again) == observed(plain)
    assert any(probe.what == "statistic" for probe in again.plan.probes)


@pytest.mark.slow
def test_kept_values_are_the_same_with_and_without_a_schedule(bench: Bench) -> None:
    plain, scheduled = (bench.run(plan, watched=False) for plan in (UNSCHEDULED, SCHEDULED))
    assert set(plain.values) == set(scheduled.values) == set(INITIAL)
    for name, values in plain.values.items():
        assert values.tobytes() == scheduled.values[name].tobytes()
    assert plain.values["stem.weight"].tobytes() != INITIAL["stem.weight"].tobytes()
    assert plain.losses == scheduled.losses
    assert len(plain.losses) == STEPS
    assert not any(step.spans or step.checksums for step in plain.steps)


@pytest.mark.slow
def test_a_replay_reports_the_bytes_stored_and_the_memory_used(bench: Bench) -> None:
    record = bench.run(SCHEDULED)
    plan = record.plan
    assert record.counters is not None
    assert record.memory is not None
    layout = store_layout(plan, bench.session.description.storage)
    paged_in = [action.does for action in plan.actions if isinstance(action.does, PageIn)]
    pages_in = sum(-(-operation.block.bytes // PAGE_BYTES) for operation in paged_in)
    assert record.counters.steps == STEPS
    assert record.counters.bytes_out == STEPS * layout.written_bytes
    assert record.counters.bytes_in == STEPS * pages_in * PAGE_BYTES
    assert record.counters.touched_bytes == plan.arena_bytes
    assert record.memory.limit_bytes == record.memory.overhead_bytes + plan.arena_bytes
    assert 0 < record.memory.peak_resident_bytes <= record.memory.limit_bytes
    unscheduled_record = bench.run(UNSCHEDULED)
    assert unscheduled_record.counters is not None
    assert unscheduled_record.counters.bytes_out == 0


def test_a_watched_step_reports_when_each_action_ran(bench: Bench) -> None:
    record = bench.run(UNSCHEDULED)
    for step, elapsed_s in zip(record.steps, record.elapsed_s, strict=True):
        assert len(step.spans) == len(record.plan.actions)
        starts = [span.start_s for span in step.spans]
        assert starts == sorted(starts)
        assert all(span.start_s + span.time_s <= elapsed_s * (1 + 1e-6) for span in step.spans)


def test_a_guarded_plan_finds_an_operation_that_writes_too_far(bench: Bench) -> None:
    with pytest.raises(ReplayFailed) as failure:
        bench.run(PLANTED)
    said = str(failure.value)
    assert f"after operation {OVERLAPPING}: a canary was overwritten" in said
    assert "planted: step 1: guard after" in said
    assert failure.value.record.steps == ()
    assert failure.value.recovered is not None
    assert failure.value.recovered.step == 0
    for name, values in failure.value.recovered.values.items():
        assert values.tobytes() == INITIAL[name].tobytes()


def in_the_second_step(bench: Bench, act: Callable[[], None]) -> Callable[[float], None]:
    """A function that the run calls again and again; it acts once the first step is complete.

    Nothing is stored before, so that what an earlier run has left is not taken for this one's.
    """
    bench.session.tidy()
    assert bench.files == []
    layout = store_layout(bench.session.plans[SCHEDULED], bench.session.description.storage)

    def parts() -> list[bytes]:
        """The parts of the storage; the initial values and each step write the next one. New
        storage is filled with noise from its beginning to its end before."""
        stored = b"".join(file.read_bytes() for file in sorted(bench.storage.iterdir()))
        return [
            stored[begin : begin + layout.step_bytes]
            for begin in range(0, len(stored), layout.step_bytes)
        ]

    before: list[bytes] = []

    def look(_elapsed_s: float) -> None:
        now = parts()
        if not before:
            # Read again: a part that was read before the end may have been read before its noise.
            is_filled = bool(now) and any(now[-1][-PAGE_BYTES:])
            before.extend(parts() if is_filled else [])
            return
        # When the second step has begun to write, the first one is complete.
        if sum(old != new for old, new in zip(before, now, strict=True)) > 2:
            act()

    return look


def require_values_after(bench: Bench, step: int, values: Mapping[str, Any]) -> None:
    """Check that the values are those of so many steps."""
    assert step > 0
    again = bench.run(UNSCHEDULED, steps=step, watched=False)
    assert {name: v.tobytes() for name, v in again.values.items()} == {
        name: v.tobytes() for name, v in values.items()
    }


def test_ctrl_c_leaves_nothing_running_and_the_last_step_intact(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = processes.new_mark()
    monkeypatch.setenv(processes.VARIABLE, mark)
    seen: list[set[int]] = []

    def interrupt() -> None:
        seen.append(processes.marked(mark))
        raise KeyboardInterrupt

    wait, kept = in_the_second_step(bench, interrupt), []
    with pytest.raises(KeyboardInterrupt):
        bench.run(SCHEDULED, steps=20_000, watched=False, wait=wait, keep=kept.append)
    assert seen[0]
    processes.wait_until(lambda: not processes.marked(mark))
    (left,) = kept
    require_values_after(bench, left.step, left.values)
    assert bench.files != []
    bench.session.tidy()
    assert bench.files == []


@pytest.mark.parametrize("error", [BoardUnreachable("the meter is gone"), KeyboardInterrupt()])
@pytest.mark.parametrize("is_cut", [True, False])
def test_values_of_finished_training_are_kept_if_the_readings_after_it_fail(
    is_cut: bool, error: BaseException, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Either those of the board, or the meter's."""
    calls: list[object] = []

    def fail_after(number: int) -> Callable[..., None]:
        def call(*arguments: object) -> None:
            calls.append(arguments)
            if len(calls) > number:
                raise error

        return call

    if is_cut:  # the first of two readings is before the run
        monkeypatch.setattr(bench.session.board, "throttled", fail_after(1))
    else:
        trace = "profiler.boards.observed_run.ObservedRun.trace"
        monkeypatch.setattr(trace, fail_after(0))
    kept: list[Trained] = []
    with pytest.raises(type(error)):
        bench.run(SCHEDULED, watched=False, keep=kept.append)
    monkeypatch.undo()
    (trained,) = kept
    assert trained.step == STEPS
    require_values_after(bench, trained.step, trained.values)


def test_values_of_finished_training_are_kept_if_the_board_restarts_then(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = bench.session.board
    run_plan = board.run_plan

    def restarted(*plan: Any, **options: Any) -> Outcome:
        return replace(run_plan(*plan, **options), cut=RebootError("bench: the board restarted"))

    monkeypatch.setattr(board, "run_plan", restarted)
    monkeypatch.setattr(board, "prepare", lambda _progress: None)
    kept: list[Trained] = []
    with pytest.raises(ReplayFailed, match=r"board restarted.*last step were received"):
        bench.run(SCHEDULED, watched=False, keep=kept.append)
    monkeypatch.undo()
    (trained,) = kept
    assert trained.step == STEPS
    require_values_after(bench, trained.step, trained.values)


def test_a_training_after_a_reboot_keeps_its_values_and_not_its_times(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = bench.session.board
    facts = board.facts
    monkeypatch.setattr(board, "facts", replace(facts, boot_id="an earlier boot"))
    monkeypatch.setattr(board, "prepare", lambda _progress: setattr(board, "facts", facts))
    kept: list[Trained] = []
    with pytest.raises(ReplayFailed, match=r"between two runs.*last step were received") as raised:
        bench.run(SCHEDULED, watched=False, keep=kept.append)
    monkeypatch.undo()
    assert raised.value.record.steps == ()
    (trained,) = kept
    require_values_after(bench, STEPS, trained.values)


@pytest.mark.parametrize("cut", [KeyboardInterrupt(), RebootError("the board restarted")])
def test_a_step_of_an_earlier_run_is_not_taken_for_one_of_this(
    cut: BaseException, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A microcontroller's storage holds it until the initial values are written."""
    board = SimpleNamespace(
        name="m3",
        storage_place="",
        throttled=lambda: None,
        prepare=lambda _progress: None,
        run_plan=lambda _plan, **_: Outcome("joulewright-results 1\n", "", cut),
    )
    session = ReplaySession(
        load_description("emulated-m3-sd"),
        cast(Board, board),
        None,
        bench.session.plans,
        lambda _what: None,
    )
    monkeypatch.setattr(ReplaySession, "last_complete_step", lambda *_: (100, INITIAL))
    kept: list[Trained] = []
    with pytest.raises((KeyboardInterrupt, ReplayFailed)) as raised:
        Bench(session, bench.storage).run(SCHEDULED, watched=False, keep=kept.append)
    assert kept == []
    if isinstance(raised.value, ReplayFailed):
        assert raised.value.recovered is None
        assert "The storage holds no step of this run" in str(raised.value)


def test_ctrl_c_leaves_the_last_step_intact_though_the_meter_fails_too(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_meter: object, _block: BlockRecord) -> PowerTrace:
        raise BoardUnreachable("the meter is gone")

    def interrupt() -> None:
        raise KeyboardInterrupt

    record = MeterRecord(kind="stand-in", detail="a meter on this computer", sync="none")
    monkeypatch.setattr(StandInMeter, "finish", fail)
    monkeypatch.setattr(bench.session, "meter", StandInMeter(record, []))
    wait, kept = in_the_second_step(bench, interrupt), []
    with pytest.raises(KeyboardInterrupt):
        bench.run(SCHEDULED, steps=20_000, watched=False, wait=wait, keep=kept.append)
    monkeypatch.undo()
    (left,) = kept
    require_values_after(bench, left.step, left.values)


@pytest.mark.slow
@pytest.mark.parametrize("answers", [True, False])
def test_a_program_that_is_killed_leaves_the_last_step_intact(
    answers: bool, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the kernel does on a board without memory, which may be too busy to answer then."""
    mark = processes.new_mark()
    monkeypatch.setenv(processes.VARIABLE, mark)

    board = bench.session.board
    assert isinstance(board, PosixBoard)
    transport, run = board.transport, board.transport.run

    def late(argv: Sequence[str], **options: Any) -> object:
        if argv[0] == "cat":
            raise BoardCommandFailed("cat did not finish within 30 s")
        return run(argv, **options)

    def kill() -> None:
        if not answers:
            monkeypatch.setattr(transport, "run", late)
        for process in processes.marked(mark):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

    wait = in_the_second_step(bench, kill)
    with pytest.raises(ReplayFailed, match="are intact and were read from the storage") as failure:
        bench.run(SCHEDULED, steps=20_000, watched=False, wait=wait)
    monkeypatch.undo()
    assert failure.value.recovered is not None
    require_values_after(bench, failure.value.recovered.step, failure.value.recovered.values)


@pytest.mark.slow
def test_data_that_cannot_be_read_any_more_leave_the_last_step_intact(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The harness reads each step's batch just before the step, as from a card that fails."""
    mark = processes.new_mark()
    monkeypatch.setenv(processes.VARIABLE, mark)

    def cut_off() -> None:
        for process in processes.marked(mark):
            for link in Path(f"/proc/{process}/fd").iterdir():
                with suppress(OSError):  # another one that has just ended
                    target = link.readlink()
                    if target.name == "data":
                        os.truncate(target, 0)

    wait = in_the_second_step(bench, cut_off)
    with pytest.raises(ReplayFailed, match="are intact and were read from the storage") as failure:
        bench.run(SCHEDULED, steps=20_000, watched=False, wait=wait)
    assert failure.value.recovered is not None
    require_values_after(bench, failure.value.recovered.step, failure.value.recovered.values)


@contextmanager
def spoiling(storage: Path, step_bytes: int, offset: int) -> Iterator[None]:
    """Overwrite one place in every step's part of the storage, over and over, from a thread."""
    over = threading.Event()

    def spoil() -> None:
        while not over.is_set():
            for file in storage.iterdir():
                with file.open("r+b", buffering=0) as store:
                    for part in range(os.fstat(store.fileno()).st_size // step_bytes):
                        os.pwrite(store.fileno(), b"spoilt! ", part * step_bytes + offset)

    thread = threading.Thread(target=spoil)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.slow
def test_a_changed_page_stops_the_step_and_leaves_the_one_before_intact(
    bench: Bench,
) -> None:
    plan = bench.session.plans[SCHEDULED]
    layout = store_layout(plan, bench.session.description.storage)
    kept = {k.slot for k in plan.kept}
    page_in = next(
        action.does
        for action in plan.actions
        if isinstance(action.does, PageIn) and action.does.slot not in kept
    )
    offset = layout.offsets[page_in.slot]
    with (
        spoiling(bench.storage, layout.step_bytes, offset),
        pytest.raises(ReplayFailed) as failure,
    ):
        bench.run(SCHEDULED, steps=3000, watched=False)
    error = failure.value
    finished = len(error.record.steps)
    assert re.search(
        rf"step {finished + 1}: page-in of {re.escape(page_in.tensor)}: .*"
        rf"holds other data than was written.* after step {finished} are intact",
        str(error),
    )
    assert error.recovered is not None
    assert error.recovered.step == finished
    assert len(error.record.losses) == finished
    again = bench.run(UNSCHEDULED, steps=finished, watched=False) if finished else None
    for name, values in error.recovered.values.items():
        expected = INITIAL[name] if again is None else again.values[name]
        assert values.tobytes() == expected.tobytes()


def test_a_disk_that_is_too_small_is_refused_before_training(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = bench.session.board
    assert isinstance(machine, PosixBoard)
    harness = machine._harness
    assert harness is not None
    limited = tmp_path / "limited"
    limited.write_text(f"#!/bin/sh\ntrap '' XFSZ\nulimit -f 64\nexec {harness.path} \"$@\"\n")
    limited.chmod(0o700)
    monkeypatch.setattr(machine, "_harness", replace(harness, path=str(limited)))
    with pytest.raises(BoardCommandFailed, match=r"has no room for a store of \d+ bytes"):
        bench.run(SCHEDULED)


def test_values_that_are_missing_or_of_another_size_are_named(bench: Bench) -> None:
    def run(initial: Mapping[str, Any], batch: Mapping[str, Any]) -> None:
        bench.session.run(SCHEDULED, initial, [batch], steps=1, watched=False, expected_step_s=1.0)

    without = {name: values for name, values in INITIAL.items() if name != "stem.weight"}
    with pytest.raises(ValueError, match=r"stem\.weight is missing among the initial values"):
        run(without, BATCHES.batch(0))
    doubled = {**BATCHES.batch(0), "labels": np.zeros(2, dtype=np.int64)}
    with pytest.raises(ValueError, match=r"labels of the batch 0 has shape .* int64"):
        run(INITIAL, doubled)


# --- with a meter ---------------------------------------------------------------------------------


@dataclass
class MadeUpMeter:
    """A meter with constant power and ``rate_hz`` samples a second, of means over
    ``integration_s``."""

    rate_hz: float
    integration_s: float = 0.0
    power_w: float = 2.0
    energy_source: EnergySource = "measured"
    sampler: None = None
    marker: None = None
    closed: bool = False

    @property
    def record(self) -> MeterRecord:
        return MeterRecord(kind="made up", detail="for this test", sync="none")

    def begin(self) -> None:
        pass

    def finish(self, block: BlockRecord, /) -> PowerTrace:
        start_ns, end_ns = block.windows_ns[0][0], block.windows_ns[-1][1]
        period_ns = int(1e9 / self.rate_hz)
        end_ns += round(self.integration_s * 1e9)
        times_ns = np.arange(start_ns, end_ns + period_ns, period_ns)
        return SampledPower(
            times_ns=times_ns,
            power_w=np.full(len(times_ns), self.power_w),
            saturated=np.zeros(len(times_ns), dtype=bool),
            period_s=1 / self.rate_hz,
            response=Response(self.integration_s) if self.integration_s else None,
        )

    def close(self) -> None:
        self.closed = True


def metered(bench: Bench, rate_hz: float) -> Bench:
    return replace(bench, session=replace(bench.session, meter=MadeUpMeter(rate_hz)))


@pytest.mark.slow
def test_a_step_has_no_energy_where_readings_mix_it_with_others(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a busy computer, every step may have lost its energy to other programs already.
    monkeypatch.setattr("profiler.run.evaluate.PREEMPTION_LIMIT", 1.0)
    meter = MadeUpMeter(100_000, integration_s=10.0)  # enough readings in the shortest step
    record = replace(bench, session=replace(bench.session, meter=meter)).run(SCHEDULED)
    assert all(step.energy_j is None for step in record.steps)
    assert set(record.unmetered) == set(range(STEPS))
    reasons = record.unmetered.values()
    assert all("a reading of the meter remembers 1e+04 ms, too long" in each for each in reasons)


@pytest.mark.slow
def test_every_step_has_an_energy_or_a_reason_for_its_absence(bench: Bench) -> None:
    with_meter = metered(bench, rate_hz=100_000)
    record = with_meter.run(SCHEDULED)
    for number, (step, elapsed_s) in enumerate(zip(record.steps, record.elapsed_s, strict=True)):
        if step.energy_j is None:  # other programs used the processor
            assert number in record.unmetered
        else:
            assert step.energy_j == pytest.approx(2.0 * step.time_s, rel=1e-3)
            assert step.time_s <= 1.01 * elapsed_s
    report = with_meter.session.measured(record)
    assert report.energy_source == "measured"
    assert report.power is not None
    assert set(report.power.power_w) == {2.0}


def test_steps_too_short_for_the_meter_keep_their_times(bench: Bench) -> None:
    slow = metered(bench, rate_hz=1e-3)
    record = slow.run(UNSCHEDULED)
    assert set(record.unmetered) == set(range(STEPS))
    assert all("samples" in reason for reason in record.unmetered.values())
    report = slow.session.measured(record)
    assert [step.energy_j for step in report.steps] == [None] * STEPS


def test_steps_of_a_throttled_board_are_not_reported(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PosixBoard, "throttled", lambda _board: 0b1)
    record = bench.run(UNSCHEDULED)
    assert set(record.disturbed) == set(range(STEPS))
    with pytest.raises(MeasurementInvalid, match="under-voltage"):
        bench.session.measured(record)


# --- over SSH -------------------------------------------------------------------------------------


def test_a_lost_and_restored_connection_does_not_change_the_bits(
    bench: Bench,
    reference: Observed,
    network: SshNetwork,
    compiled_already: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch = compiled_already
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    cuts: list[float] = []

    def cut_once(elapsed_s: float) -> None:
        if not cuts:
            cuts.append(elapsed_s)
            network.cut()
            threading.Timer(0.5, network.restore).start()

    reached = network.description().model_dump(mode="json")
    far = board("~/joulewright-storage", transport=reached)
    with open_replay(
        far, STEP.distinct_specs, plans_for, lambda _what: None, poll_interval_s=0.1
    ) as session:
        record = replace(bench, session=session).run(SCHEDULED, wait=cut_once)
    assert cuts
    assert observed(record) == reference


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.usefixtures("compiled_already")
def test_kernels_that_differ_from_those_of_the_profile_are_refused() -> None:
    with (
        pytest.raises(RequestRefused, match=r"its kernels are .*those of the profile were 01234"),
        open_replay(
            describe(), (), lambda _: [], lambda _what: None, kernels_sha256="0123456789abcdef"
        ),
    ):
        pass


def test_a_board_free_to_choose_takes_the_matrix_product_of_the_profile(
    compiled_already: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    put = HarnessBuilder.build

    def record(builder: HarnessBuilder, *arguments: Any, **rest: Any) -> BuiltHarness:
        asked.append(builder._toolchain.matmul)
        return put(builder, *arguments, **rest)

    compiled_already.setattr(HarnessBuilder, "build", record)
    open_one = describe(toolchain={"kind": "native", "compiler": "cc"})
    for description in (open_one, describe()):  # the second one asks for in-tree
        with open_replay(description, (), lambda _: [], lambda _what: None, matmul="cblas"):
            pass
    assert set(asked[:2]) == {"cblas"}
    assert set(asked[2:]) == {"in-tree"}


@pytest.mark.parametrize(
    ("storage", "said"),
    [
        (None, "pages, and the description has no storage"),
        (
            {
                "medium": "nand",
                "mtd_partition": "scratch",
                "erase_block_bytes": 131072,
                "scratch_bytes": 131072,
            },
            "not to the raw flash partition 'scratch'",
        ),
    ],
)
@pytest.mark.usefixtures("compiled_already")
def test_a_plan_that_pages_is_refused_on_a_board_without_usable_storage(
    storage: Mapping[str, Any] | None, said: str
) -> None:
    with (
        pytest.raises(RequestRefused, match=said),
        open_replay(describe(storage=storage), STEP.distinct_specs, plans_for, lambda _what: None),
    ):
        pass


# --- the plan as C --------------------------------------------------------------------------------


def test_every_kind_has_the_entry_point_of_the_kernel_library() -> None:
    registry = (KERNELS / "registry.c").read_text()
    entries = dict(re.findall(r'\{"([\w.]+)", \d+, \d+,\s+(\w+),', registry))
    assert {kind: kernel_entry(kind) for kind in SIGNATURES} == entries


def test_a_seed_is_the_last_scalar_of_its_kind() -> None:
    seeded = [signature.scalars for signature in SIGNATURES.values() if "seed" in signature.scalars]
    assert seeded
    assert all(scalars.index("seed") == len(scalars) - 1 for scalars in seeded)


def awkward_plan() -> ExecutionPlan:
    """A plan that is hard to write as C.

    It has names that are special in C, a seed whose bits are a NaN, and actions of every kind.
    """
    relu = OpSpec.of("relu.forward", elements=100)
    dropout = OpSpec.of("dropout.forward", elements=100)
    a, b = ArenaRange(0, 400), ArenaRange(400, 400)
    scalars = {"probability": 0.1, "seed": float(0xFF800001)}
    operations: list[Operation] = [
        Compute('*/ "quoted" \\', relu, (0,), (400,), None, {}),
        Compute("two\nlines ??/", dropout, (400,), (800,), ArenaRange(1200, 64), scalars),
        PageOut("ä", a, 0, asynchronous=True),
        PageIn("ä", a, 0, of="last step"),
        Move("m", a, 800),
        Probe("w", "parameter", a),
        Check("w", b),
    ]
    return ExecutionPlan(
        name='a "plan" ??/ \\',
        arena_bytes=1264,
        inputs={},
        kept=(Kept("w", "w'", 400, None, 0),),
        actions=tuple(Action(operation) for operation in operations),
        slot_bytes=(400,),
    )


CARD = Storage(medium="sd", path="/somewhere")


@pytest.mark.parametrize("compiler", ["gcc", "arm-none-eabi-gcc"])
def test_plans_are_c_that_compiles_without_a_warning(compiler: str, tmp_path: Path) -> None:
    workspace_bytes = dict.fromkeys(STEP.distinct_specs, 0)
    empty = ExecutionPlan("empty", 0, {}, (), ())
    source = plans_source([*plans_for(workspace_bytes), awkward_plan(), empty], CARD)
    (tmp_path / "plans.c").write_text(source, encoding="ascii")
    strict = ("-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-trigraphs")
    include = (f"-I{EXECUTOR}", f"-I{KERNELS}")
    subprocess.run([compiler, *strict, *include, "-c", "plans.c"], cwd=tmp_path, check=True)


def test_the_same_plans_give_the_same_text() -> None:
    workspace_bytes = dict.fromkeys(STEP.distinct_specs, 0)
    first, second = (plans_source(plans_for(workspace_bytes), CARD) for _ in range(2))
    assert first == second


def test_scalars_keep_their_bits() -> None:
    source = plans_source([awkward_plan()], CARD)
    assert "0xff800001" in source
    (tenth,) = struct.unpack("<I", struct.pack("<f", 0.1))
    assert f"{{0x{tenth:08x}, 0xff800001}}" in source
    update = OpSpec.of("sgd.update", elements=4)
    scalars = {"learning_rate": 0.1, "weight_decay": 0.0}
    compute = Compute("u", update, (0, 16), (0,), None, scalars)
    plan = ExecutionPlan("p", 32, {}, (), (Action(compute),))
    found = re.search(r"= \{(0x1\.\w+p-\d)f, 0x0", plans_source([plan], None))
    assert found is not None
    assert float.fromhex(found[1]) == struct.unpack("<f", struct.pack("<f", 0.1))[0]


def test_a_plan_that_does_not_fit_into_the_table_is_refused() -> None:
    with pytest.raises(RequestRefused, match="its arena has 4294967296 bytes"):
        plans_source([ExecutionPlan("huge", 1 << 32, {}, (), ())], None)


# --- layout of steps on a medium ------------------------------------------------------------------


@given(
    st.lists(st.integers(1, 5000), min_size=1, max_size=20),
    st.integers(0, 50),
    st.sampled_from([256, 512, 4096]),
    st.sampled_from([None, 1, 16]),
)
def test_slots_and_record_lie_apart_in_whole_pages_of_whole_erase_blocks(
    slot_bytes: list[int], kept_count: int, page_bytes: int, pages_per_block: int | None
) -> None:
    block = None if pages_per_block is None else pages_per_block * page_bytes
    kept = tuple(Kept(f"k{i}", f"k{i}'", 4, None, None) for i in range(kept_count))
    plan = ExecutionPlan("p", 4, {}, kept, (), slot_bytes=tuple(slot_bytes))
    storage = Storage(medium="sd", path="/x", page_bytes=page_bytes, erase_block_bytes=block)
    layout = store_layout(plan, storage)
    begins = [*layout.offsets, layout.record_offset]
    ends = [
        *(offset + size for offset, size in zip(layout.offsets, slot_bytes, strict=True)),
        layout.record_offset + record_bytes(kept_count),
    ]
    assert all(begin % page_bytes == 0 for begin in begins)
    assert all(end <= begin for end, begin in zip(ends, begins[1:], strict=False))
    assert ends[-1] <= layout.written_bytes <= layout.step_bytes
    assert layout.step_bytes % (block or page_bytes) == 0
    assert layout.step_bytes - layout.written_bytes < (block or page_bytes)
    assert layout.file_bytes >= layout.least_scratch_bytes == 2 * layout.step_bytes


# --- records --------------------------------------------------------------------------------------

WINDOW = (
    "window id={} executions=1 start_ns=10 end_ns=20 tail_end_ns=20 running_ns=9"
    " frequency_before_khz=0 frequency_after_khz=0 temperature_mc=0 tries=1\n"
)


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=30), st.integers(1, 8), st.data())
def test_pieces_of_an_answer_are_joined(values: list[int], piece: int, data: st.DataObject) -> None:
    text = "joulewright-results 1\n" + WINDOW.format(5)
    first = 0
    while first < len(values):
        some = values[first : first + piece]
        text += f"probes first={first} values={','.join(f'{v:08x}' for v in some)}\n"
        first += data.draw(st.integers(1, len(some)))
    assert parse_replay(text).probes == {5: tuple(values)}


@pytest.mark.parametrize(
    "line",
    [
        "probes first=1 values=00000000",
        "probes first=0 values=x",
        "spans first=0 values=1",
        "counters steps=1",
    ],
)
def test_the_error_quotes_an_invalid_record(line: str) -> None:
    with pytest.raises(MeasurementInvalid, match=re.escape(line)):
        parse_replay(f"joulewright-results 1\n{WINDOW.format(0)}{line}\n")
