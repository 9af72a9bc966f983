"""Watch a network's training step on its board, in several sittings, for the costs in its places.

The step runs as it is, where it fits into RAM, and as schedules with less RAM: those recompute, and
put other ops before each op. A microcontroller whose RAM the step exceeds runs schedules only. A
Linux board also runs one that pages, for what a transfer costs within a step.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from devices.documents.document import dump_json, read_json, write_atomically
from devices.errors import BuildFailed, MeasurementInvalid, RequestRefused
from devices.profile import DeviceProfile, PackedTensor, ProfiledNetwork, StepCosts
from profiler.run.options import ProfileOptions
from replay.costs.context import FEWEST_SITTINGS, WatchedSitting, counting_steps, step_costs
from replay.costs.refine import measured_build
from replay.costs.zeros import RUNS, STEPS_A_RUN, packed_tensors

if TYPE_CHECKING:
    from pathlib import Path

    from devices.description import DeviceDescription
    from devices.operation import OpSpec
    from devices.plan import ExecutionPlan
    from networks.kinds import Place
    from networks.training.step import TrainingStep
    from replay.running.measured import ReplayRecord
    from replay.running.session import ReplaySession
    from solver.problem.graph import CostedGraph
    from solver.problem.schedule import Schedule

Progress = Callable[[str], None]

SITTINGS, STEPS = 9, 10
"""Sittings, and watched steps of each, of a step that is short enough."""

FEWEST_STEPS = 3
"""Steps of a sitting of a long step: the fewest whose median leaves out a disturbed one."""

LIMIT_S = 120.0
"""Predicted seconds of all watched steps, beyond which there are fewer steps, then sittings."""

_SHARES = (0.7, 0.4)
"""RAM of the schedules that are watched beside the whole step, as shares of its peak."""

_SHARES_OF_BOARD = (0.95, 0.8)
"""RAM of the schedules that are watched in its place, as shares of the board's.

A plan in the firmware of a microcontroller leaves a little less than the profiler's firmware does.
"""

_SHARES_THAT_PAGE = (0.5, 0.7, 0.9, 0.97, 0.99)
"""RAM of one more schedule on a Linux board, which pages and recomputes nothing: the smallest of
these shares of the peak whose transfers the write budget allows."""

_SOLVE_S = 5.0

# Hexadecimal digits of the key of kept sittings.
_DIGITS = 8


@dataclass(frozen=True)
class _Way:
    """One way to run the step: a schedule, or the step as it is (None)."""

    step: TrainingStep
    graph: CostedGraph
    schedule: Schedule | None

    def plan(self, workspace_bytes: Mapping[OpSpec, int]) -> ExecutionPlan:
        from replay.lowering.lowering import lower, unscheduled

        if self.schedule is None:
            return unscheduled(self.step, workspace_bytes)
        return lower(self.step, self.graph, self.schedule, workspace_bytes)

    @property
    def words(self) -> str:
        if self.schedule is None:
            return "unscheduled"
        paging = ", paging" if self.written_bytes else ""
        return f"{self.schedule.budget.ram_bytes} bytes of RAM{paging}"

    @property
    def written_bytes(self) -> int:
        """Bytes that a step writes to storage, without copies after it."""
        return 0 if self.schedule is None else self.schedule.bytes_written_to_storage or 0

    @property
    def time_s(self) -> float:
        if self.schedule is None or self.schedule.time_s is None:
            return sum(op.time_s for op in self.graph.ops)
        return self.schedule.time_s


@dataclass(frozen=True)
class _Extent:
    """Sittings of each way, steps of each sitting, and bytes that a way may write to storage."""

    sittings: int
    steps: int
    written_bytes: int

    def steps_of(self, written_bytes_a_step: int) -> int:
        """Steps of a sitting of a way that writes so much: fewer than of others, or none."""
        if written_bytes_a_step == 0:
            return self.steps
        allowed = self.written_bytes // (self.sittings * written_bytes_a_step)
        return 0 if allowed < FEWEST_STEPS else min(self.steps, allowed)


@dataclass(frozen=True)
class _KeptSittings:
    """Sittings of one network that are kept in a directory.

    Each is a file of its own, written as a whole when the sitting is over.

    Attributes:
        directory: the directory, which exists.
        key: digits that stand for the network, the profiled costs, and the steps of a sitting.
    """

    directory: Path
    key: str

    @classmethod
    def of(
        cls, directory: Path, network: ProfiledNetwork, profile: DeviceProfile, asked: str
    ) -> _KeptSittings:
        """The sittings of a network in a directory.

        Args:
            directory: the directory.
            network: the network whose step is watched.
            profile: costs of its operations by themselves; sittings beside others do not count.
            asked: what else distinguishes one watch from another.
        """
        costs = (cost.model_dump_json() for cost in profile.operations)
        question = "\n".join([network.model_dump_json(), str(profile.build), asked, *costs])
        return cls(directory, hashlib.sha256(question.encode()).hexdigest()[:_DIGITS])

    def find(self, way: str, number: int) -> WatchedSitting | None:
        """A finished sitting; None if there is none.

        Raises:
            DocumentError: its file is damaged.
        """
        file = self._file(way, number)
        return read_json(file, WatchedSitting) if file.exists() else None

    def keep(self, way: str, number: int, sitting: WatchedSitting) -> None:
        """Write a finished sitting."""
        write_atomically(self._file(way, number), dump_json(sitting))

    def _file(self, way: str, number: int) -> Path:
        words = re.sub(r"\W+", "-", way)
        return self.directory / f"{self.key}.{words}.{number}.json"


def watch_step(
    description: DeviceDescription,
    network: ProfiledNetwork,
    profile: DeviceProfile,
    progress: Progress,
    *,
    storage_budget_bytes: int = ProfileOptions.storage_budget_bytes,
    first_seed: int = 1,
    directory: Path | None = None,
    counts_zeros: bool = True,
) -> StepCosts:
    """Watch a network's training step.

    Args:
        description: the board.
        network: the network, as a profile states it.
        profile: costs of the operations by themselves.
        progress: called with one line for each phase.
        storage_budget_bytes: most bytes that may be written to storage. A schedule whose sittings
            would write more than its share is not run.
        first_seed: seed of the data and initial values of the first sitting; each sitting has its
            own.
        directory: where finished sittings are kept; those that an interrupted watch has left there
            are not repeated. None keeps nothing.
        counts_zeros: whether zeros are counted too, where tensors may be packed.

    Returns:
        Costs of the ops in their places of the step.

    Raises:
        RequestRefused: the board has other kernels now, or pages in a way that replays do not.
        CostingError: the profile has no energies, so that no schedule can be found.
        MeasurementInvalid: no schedule fits, or too few sittings were undisturbed.
        ReplayFailed: a step failed on the board.
        JoulewrightError: opening the board or the meter failed.
    """
    can_page = _can_page(description, profile)
    ways = _ways(network, profile, can_page, progress)
    if not ways:
        raise MeasurementInvalid(
            f"{description.name}: no schedule of {network.model} was found within"
            f" {profile.board.usable_bytes} bytes of RAM"
        )
    if can_page and _may_page_besides(description):
        count = len(ways) + 1
        steps = FEWEST_STEPS * -(-SITTINGS // count)
        # Half: what a step writes is copied after it, in part.
        most_bytes = storage_budget_bytes // count // steps // 2
        if not any(0 < way.written_bytes <= most_bytes for way in ways):
            ways += _that_pages(ways[0], most_bytes, progress)
    sittings: list[WatchedSitting] = []
    # A microcontroller has room for one plan.
    groups = [[way] for way in ways] if description.firmware is not None else [ways]
    step_s = max(way.time_s for way in ways)
    count = max(FEWEST_SITTINGS, min(SITTINGS, int(LIMIT_S / (FEWEST_STEPS * step_s))))
    steps = max(FEWEST_STEPS, min(STEPS, int(LIMIT_S / (count * step_s))))
    # As many for each schedule, so that none counts more.
    rounds = -(-count // len(ways))
    # Where counting zeros writes to storage, too, it has a share of its own.
    counting_pages = counts_zeros and ways[0].written_bytes > 0
    share_bytes = storage_budget_bytes // (len(ways) + counting_pages)
    kept = None
    if directory is not None:
        asked = f"{steps} {rounds} {first_seed}"
        kept = _KeptSittings.of(directory, network, profile, asked)
    refused: RequestRefused | None = None
    for group in groups:
        seed = first_seed
        first_seed += rounds * len(group)
        try:
            sittings += _sittings(
                description,
                group,
                _Extent(rounds, steps, share_bytes),
                profile,
                seed,
                kept,
                progress,
            )
        except RequestRefused as refusal:
            refused = refusal  # a plan is too large; others may be smaller
    if len(sittings) < FEWEST_SITTINGS:
        raise refused or MeasurementInvalid(
            f"{description.name}: {len(sittings)} sittings of {network.model} were undisturbed,"
            f" {FEWEST_SITTINGS} are needed"
        )
    keys = {op.name: op.spec.key for op in ways[0].step.ops}
    packed: tuple[PackedTensor, ...] = ()
    if counts_zeros:
        packed = _packed(description, ways[0], share_bytes, profile, first_seed, progress)
    return step_costs(profile, network, keys, sittings, packed=packed)


def _sittings(
    description: DeviceDescription,
    ways: Sequence[_Way],
    extent: _Extent,
    profile: DeviceProfile,
    first_seed: int,
    kept: _KeptSittings | None,
    progress: Progress,
) -> list[WatchedSitting]:
    from replay.running.opening import open_replay
    from replay.runs import written_bytes_a_step

    found: list[WatchedSitting] = []
    missing: list[tuple[int, int]] = []
    for number, index in itertools.product(range(extent.sittings), range(len(ways))):
        before = None if kept is None else kept.find(ways[index].words, number)
        if before is None:
            missing.append((number, index))
        else:
            found.append(before)
    if not missing:
        return found
    build = measured_build(profile)
    opened = open_replay(
        description,
        ways[0].step.distinct_specs,
        lambda workspace_bytes: [way.plan(workspace_bytes) for way in ways],
        progress,
        kernels_sha256=build.kernels_sha256,
        matmul=build.matmul,
    )
    with opened as session:
        for number, index in missing:
            way, plan = ways[index], session.plans[index]
            steps = extent.steps_of(written_bytes_a_step(plan, description))
            if steps == 0:
                continue
            progress(f"watching {steps} steps, {way.words}")
            # Also where an interrupted watch goes on, each sitting has a seed of its own.
            seed = first_seed + number * len(ways) + index
            steps_run = counting_steps(_watched(session, index, way, steps, seed))
            if not steps_run:
                continue
            sitting = WatchedSitting.of(plan, steps_run, way.graph, profile, way.words)
            if kept is not None:
                kept.keep(way.words, number, sitting)
            found.append(sitting)
    return found


def _packed(
    description: DeviceDescription,
    way: _Way,
    most_bytes: int,
    profile: DeviceProfile,
    first_seed: int,
    progress: Progress,
) -> tuple[PackedTensor, ...]:
    """Count zeros of the tensors that replays can pack.

    None are counted if that would write more than ``most_bytes`` to storage. If counting fails,
    what was watched is worth keeping: the reason is reported.
    """
    from networks.training.packing import packable
    from replay.lowering.zeros import counting
    from replay.running.opening import open_replay
    from replay.runs import written_bytes_a_step

    tensors, storage = tuple(packable(way.step)), description.storage
    if not tensors or storage is None or not (description.packs and profile.storage):
        return ()
    progress(f"counting zeros of {len(tensors)} tensors in {RUNS} runs")
    build = measured_build(profile)
    opened = open_replay(
        description,
        way.step.distinct_specs,
        lambda workspace_bytes: [
            counting(way.plan(workspace_bytes), way.step, tensors, storage.page_bytes)
        ],
        progress,
        kernels_sha256=build.kernels_sha256,
        matmul=build.matmul,
    )
    try:
        with opened as session:
            plan = session.plans[0]
            if RUNS * STEPS_A_RUN * written_bytes_a_step(plan, description) > most_bytes:
                progress("zeros were not counted: steps would write too much to the storage")
                return ()
            # Zeros do not depend on what else the board did: every step counts.
            runs = [
                _watched(session, 0, way, STEPS_A_RUN, first_seed + k).steps for k in range(RUNS)
            ]
            return tuple(packed_tensors(plan, runs))
    except (BuildFailed, MeasurementInvalid, RequestRefused) as refusal:
        progress(f"zeros were not counted: {refusal}")
        return ()


def _watched(session: ReplaySession, index: int, way: _Way, steps: int, seed: int) -> ReplayRecord:
    """Run watched steps in a process of their own."""
    from networks.data import generated_batches
    from networks.training.initial import initial_values

    batches = generated_batches(way.step, steps * way.step.batch, seed)
    return session.run(
        index,
        initial_values(way.step, seed),
        [batches.batch(number) for number in range(steps)],
        steps=steps,
        watched=True,
        expected_step_s=way.time_s,
    )


def _can_page(description: DeviceDescription, profile: DeviceProfile) -> bool:
    """Whether transfers have costs, and replays page to the board's storage."""
    storage = description.storage
    return profile.storage is not None and storage is not None and storage.mtd_partition is None


def _may_page_besides(description: DeviceDescription) -> bool:
    """Whether a schedule that pages may be watched although others fit without paging.

    It may not on flash that is erased, which wears, nor on a microcontroller, which would have to
    be flashed once more.
    """
    storage = description.storage
    return description.firmware is None and (storage is None or storage.erase_block_bytes is None)


def _that_pages(known: _Way, most_bytes: int, progress: Progress) -> Iterator[_Way]:
    """A schedule that pages, for what a transfer costs within a step. It writes at most
    ``most_bytes`` a step."""
    from solver.constructed import keep_everything
    from solver.options import SolverOptions
    from solver.problem.schedule import Budget
    from solver.referee.referee import replay
    from solver.solving.solving import solve_graph

    step, graph = known.step, known.graph
    peak_bytes = replay(graph, keep_everything(graph)).peak_bytes
    for share in _SHARES_THAT_PAGE:
        progress(f"solving for {int(share * peak_bytes)} bytes of RAM with paging")
        schedule = solve_graph(
            graph,
            Budget(ram_bytes=int(share * peak_bytes), rematerialization=False),
            SolverOptions(time_limit_s=_SOLVE_S, gap=0.1),
            with_advice=False,
        )
        way = _Way(step, graph, schedule)
        if 0 < way.written_bytes <= most_bytes:
            yield way
            return


def _ways(
    network: ProfiledNetwork, profile: DeviceProfile, can_page: bool, progress: Progress
) -> list[_Way]:
    """Ways to run the step in the board's RAM, with parameters in storage only if they must be."""
    from networks.models import step_of

    homes: tuple[Place, ...] = ("ram", "storage") if can_page else ("ram",)
    for home in homes:
        if ways := _ways_of(step_of(network, home), profile, can_page, progress):
            return ways
    return []


def _ways_of(
    step: TrainingStep, profile: DeviceProfile, can_page: bool, progress: Progress
) -> list[_Way]:
    from replay.lowering.lowering import unscheduled
    from solver.constructed import keep_everything
    from solver.costing.costing import cost_graph
    from solver.options import SolverOptions
    from solver.problem.schedule import Budget
    from solver.referee.referee import replay
    from solver.solving.solving import solve_graph

    graph = cost_graph(step, profile).graph
    peak_bytes = replay(graph, keep_everything(graph)).peak_bytes
    workspace = {
        op.spec: cost.workspace_bytes for op, cost in zip(step.ops, graph.ops, strict=True)
    }
    usable_bytes = profile.board.usable_bytes
    ways = []
    if unscheduled(step, workspace).arena_bytes <= usable_bytes and step.parameters_in == "ram":
        ways.append(_Way(step, graph, None))
        budgets = [int(share * peak_bytes) for share in _SHARES]
    else:
        budgets = [int(share * min(usable_bytes, peak_bytes)) for share in _SHARES_OF_BOARD]
    for budget_bytes in budgets:
        progress(f"solving for {budget_bytes} bytes of RAM")
        # Transfers only where nothing else fits: they wear the storage.
        for paging in (False, True) if can_page else (False,):
            schedule = solve_graph(
                graph,
                Budget(ram_bytes=budget_bytes, paging=paging),
                SolverOptions(time_limit_s=_SOLVE_S, gap=0.01),
                with_advice=False,
            )
            if schedule.actions:
                ways.append(_Way(step, graph, schedule))
                break
    return ways
