"""Ways to watch a network's training step: as it is, and as schedules with less RAM.

A microcontroller whose RAM the step exceeds runs schedules only. Schedules recompute, and put other
ops before each op. A Linux board also runs some that page, for what a transfer costs within a step.
No transfer runs beside an op there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from devices.description import DeviceDescription
    from devices.operation import OpSpec
    from devices.plan import ExecutionPlan
    from devices.profile import DeviceProfile, ProfiledNetwork
    from networks.kinds import Place
    from networks.training.step import TrainingStep
    from replay.costs.sittings import KeptWay
    from solver.problem.graph import CostedGraph
    from solver.problem.schedule import Schedule

_SHARES = (0.7, 0.4)
"""RAM of the schedules that are watched beside the whole step, as shares of its peak."""

_SHARES_OF_BOARD = (0.95, 0.8)
"""RAM of the schedules that are watched in its place, as shares of the board's. What a firmware
records of them is taken from it."""

_SHARES_THAT_PAGE = (0.5, 0.7, 0.9, 0.97, 0.99)
"""RAM of one more schedule on a Linux board, which pages and recomputes nothing: the smallest of
these shares of the peak whose transfers the write budget allows."""

_SHARE_THAT_PACKS = 1.02
"""RAM of the step that keeps everything but has its parameters in storage, as a share of its peak,
so that addresses are found at once."""

_GAP, _GAP_OF_PAGING = 0.01, 0.1
"""How far above the least energy a schedule may be that is watched, and one whose ops do not
count or that only pages."""

_SOLVE_S = 5.0
_SOLVE_BESIDE_RECORDS_S = 20.0
"""Seconds for a schedule on a board whose firmware keeps its records in the same RAM: several
searches, the first of which finds out how large these are."""


@dataclass(frozen=True)
class Way:
    """One way to run the step: a schedule, or the step as it is (None).

    With ``only_transfers``, it is watched for the costs of transfers, and not for those of ops.
    """

    step: TrainingStep
    graph: CostedGraph
    schedule: Schedule | None
    only_transfers: bool = False

    def plan(self, workspace_bytes: Mapping[OpSpec, int]) -> ExecutionPlan:
        """The plan for a board whose operations take this workspace."""
        from replay.lowering.lowering import lower, unscheduled

        if self.schedule is None:
            return unscheduled(self.step, workspace_bytes)
        return lower(self.step, self.graph, self.schedule, workspace_bytes)

    @property
    def kept(self) -> KeptWay:
        """The way as a file keeps it."""
        from replay.costs.sittings import KeptWay

        return KeptWay(
            parameters_in=self.step.parameters_in,
            schedule=self.schedule,
            only_transfers=self.only_transfers,
        )

    @property
    def can_run(self) -> bool:
        """Whether a board can run it: its arena may have no room for the moves after a step."""
        from replay.lowering.checks import ArenaTooTight

        try:
            self.plan(self._workspace_bytes)
        except ArenaTooTight:
            return False
        return True

    def ram_bytes(self, profile: DeviceProfile) -> int:
        """RAM that it takes of the profiled board; raises :class:`LoweringError` where it cannot
        run."""
        from profiler.building.plan_memory import profiled_ram_bytes

        plan = self.plan(self._workspace_bytes)
        return plan.arena_bytes + profiled_ram_bytes(plan, profile)

    def written_bytes_a_step(self, description: DeviceDescription) -> int:
        """Bytes that a step writes to the board's storage, with copies after it."""
        from replay.runs import written_bytes_a_step

        if self.written_bytes == 0:
            return 0
        return written_bytes_a_step(self.plan(self._workspace_bytes), description)

    @property
    def _workspace_bytes(self) -> dict[OpSpec, int]:
        """Workspaces that the operations took when they were profiled."""
        pairs = zip(self.step.ops, self.graph.ops, strict=True)
        return {op.spec: cost.workspace_bytes for op, cost in pairs}

    @property
    def words(self) -> str:
        """The way in words, for a report and for the name of a file; no two ways have the same."""
        if self.schedule is None:
            return "unscheduled"
        budget = self.schedule.budget
        # What was asked for, since what records leave of it depends on the luck of a search.
        ram_bytes = self.schedule.asked_ram_bytes or budget.ram_bytes
        paging = ", paging" if self.written_bytes else ""
        only = "" if budget.rematerialization else " only"
        home = ", parameters in storage" if self.step.parameters_in == "storage" else ""
        return f"{ram_bytes} bytes of RAM{paging}{only}{home}"

    @property
    def written_bytes(self) -> int:
        """Bytes that a step writes to storage, without copies after it."""
        return 0 if self.schedule is None else self.schedule.bytes_written_to_storage or 0

    @property
    def time_s(self) -> float:
        """Predicted seconds of a step."""
        if self.schedule is None or self.schedule.time_s is None:
            return sum(op.time_s for op in self.graph.ops)
        return self.schedule.time_s


def kept_ways(
    network: ProfiledNetwork, profile: DeviceProfile, kept: Sequence[KeptWay]
) -> list[Way]:
    """Ways that were chosen and kept, with the costs that are known by now.

    None are left if one of them no longer fits the board's RAM.
    """
    from networks.models import step_of
    from replay.lowering.checks import LoweringError

    steps = {home: step_of(network, home) for home in {each.parameters_in for each in kept}}
    graphs = {home: _costed(step, profile) for home, step in steps.items()}
    ways = [
        Way(
            steps[each.parameters_in],
            graphs[each.parameters_in],
            each.schedule,
            only_transfers=each.only_transfers,
        )
        for each in kept
    ]
    try:
        most_bytes = max(way.ram_bytes(profile) for way in ways)
    except LoweringError:  # operations have other workspaces now
        return []
    return ways if most_bytes <= profile.board.usable_bytes else []


def can_page(description: DeviceDescription, profile: DeviceProfile) -> bool:
    """Whether the profile has costs of transfers, and replays can page to the board's storage."""
    storage = description.storage
    return profile.storage is not None and storage is not None and storage.mtd_partition is None


def may_page_besides(description: DeviceDescription) -> bool:
    """Whether to watch schedules that page, too, where others fit without paging.

    It may not on flash that is erased, which wears, nor on a microcontroller, which would have to
    be flashed once more.
    """
    storage = description.storage
    return description.firmware is None and (storage is None or storage.erase_block_bytes is None)


def ways_that_page(
    network: ProfiledNetwork,
    profile: DeviceProfile,
    ways: Sequence[Way],
    most_bytes: int,
    progress: Callable[[str], None],
) -> Iterator[Way]:
    """Schedules that page, for what a transfer costs within a step, beside the first ``ways``.

    The first one has its parameters in storage, if it computes the same operations as the other
    ways. It pages each trained parameter in and out, which makes many transfers of different
    sizes. Its ops do not count: after so many waits they take 20 to 50 % longer than those of a
    step in RAM. The second one is for a network that has no other way that pages activations.
    Each writes at most ``most_bytes`` a step.
    """
    with_parameters = _with_parameters_in_storage(network, profile, ways[0], progress)
    if with_parameters is not None and _may_run(with_parameters, most_bytes):
        yield with_parameters
    if not any(0 < way.written_bytes <= most_bytes for way in ways):
        yield from _one_that_pages(ways[0], most_bytes, progress)


def _with_parameters_in_storage(
    network: ProfiledNetwork,
    profile: DeviceProfile,
    known: Way,
    progress: Callable[[str], None],
) -> Way | None:
    from networks.models import step_of

    if known.step.parameters_in == "storage":
        return None
    step = step_of(network, "storage")
    if step.cost_keys != known.step.cost_keys:  # of tables in storage, other operations read rows
        return None
    graph = _costed(step, profile)
    ram_bytes = int(min(_SHARE_THAT_PACKS * _peak_bytes(graph), profile.board.usable_bytes))
    return Way(step, graph, _paging_only(graph, ram_bytes, progress), only_transfers=True)


def _one_that_pages(known: Way, most_bytes: int, progress: Callable[[str], None]) -> Iterator[Way]:
    step, graph = known.step, known.graph
    peak_bytes = _peak_bytes(graph)
    for share in _SHARES_THAT_PAGE:
        way = Way(step, graph, _paging_only(graph, int(share * peak_bytes), progress))
        if _may_run(way, most_bytes):
            yield way
            return


def _may_run(way: Way, most_bytes: int) -> bool:
    """Whether a way pages, writes at most ``most_bytes`` a step, and can run."""
    return 0 < way.written_bytes <= most_bytes and way.can_run


def _costed(step: TrainingStep, profile: DeviceProfile) -> CostedGraph:
    """The costed graph of a step whose transfers run alone.

    Beside an op, a transfer would take the processor from it, and wait for it: the spans of both
    would have time of the other.
    """
    from solver.costing.costing import cost_graph

    graph = cost_graph(step, profile).graph
    alone = {"asynchronous_transfers": False, "processor_share": None, "handover_s": None}
    return graph.model_copy(update=alone)


def _peak_bytes(graph: CostedGraph) -> int:
    """RAM of the step that recomputes and pages nothing."""
    from solver.constructed import keep_everything
    from solver.referee.referee import replay

    return replay(graph, keep_everything(graph)).peak_bytes


def _paging_only(graph: CostedGraph, ram_bytes: int, progress: Callable[[str], None]) -> Schedule:
    from solver.options import SolverOptions
    from solver.problem.schedule import Budget
    from solver.solving.solving import require_uninterrupted, solve_graph

    progress(f"solving for {ram_bytes} bytes of RAM with paging")
    schedule = solve_graph(
        graph,
        Budget(ram_bytes=ram_bytes, rematerialization=False),
        SolverOptions(time_limit_s=_SOLVE_S, gap=_GAP_OF_PAGING),
        with_advice=False,
    )
    require_uninterrupted(schedule)
    return schedule


def ways_to_run(
    network: ProfiledNetwork,
    profile: DeviceProfile,
    pages: bool,
    progress: Callable[[str], None],
) -> list[Way]:
    """Ways to run the step in the board's RAM, with parameters in storage only if they must be.

    ``pages`` says whether schedules may page.
    """
    from networks.models import step_of

    homes: tuple[Place, ...] = ("ram", "storage") if pages else ("ram",)
    for home in homes:
        if ways := _ways_of(step_of(network, home), profile, pages, progress):
            return ways
    return []


def _ways_of(
    step: TrainingStep, profile: DeviceProfile, pages: bool, progress: Callable[[str], None]
) -> list[Way]:
    graph = _costed(step, profile)
    peak_bytes = _peak_bytes(graph)
    usable_bytes = profile.board.usable_bytes
    ways = []
    whole = Way(step, graph, None)
    if step.parameters_in == "ram" and whole.ram_bytes(profile) <= usable_bytes:
        ways.append(whole)
        budgets = [int(share * peak_bytes) for share in _SHARES]
    else:
        budgets = [int(share * min(usable_bytes, peak_bytes)) for share in _SHARES_OF_BOARD]
    for budget_bytes in budgets:
        progress(f"solving for {budget_bytes} bytes of RAM")
        # Transfers only where nothing else fits: they wear the storage.
        for paging in (False, True) if pages else (False,):
            schedule = _solved(step, graph, profile, budget_bytes, paging)
            way = Way(step, graph, schedule)
            if schedule.actions and way.can_run:
                ways.append(way)
                break
    return ways


def _solved(
    step: TrainingStep, graph: CostedGraph, profile: DeviceProfile, ram_bytes: int, paging: bool
) -> Schedule:
    from replay.board_ram import BoardRam
    from solver.options import SolverOptions
    from solver.problem.schedule import Budget
    from solver.solving.shared_ram import solve_in_shared_ram
    from solver.solving.solving import require_uninterrupted, solve_graph

    def find(budget: Budget, time_limit_s: float | None) -> Schedule:
        options = SolverOptions(time_limit_s=time_limit_s, gap=_GAP)
        found = solve_graph(graph, budget, options, with_advice=False)
        require_uninterrupted(found)
        return found

    budget = Budget(ram_bytes=ram_bytes, paging=paging)
    ram = BoardRam(step, graph, profile) if profile.board.shares_ram else None
    is_roomy = ram is None or ram.has_room(budget)
    limit_s = _SOLVE_S if is_roomy else _SOLVE_BESIDE_RECORDS_S
    *_, schedule = solve_in_shared_ram(find, budget, limit_s, ram)
    return schedule
