"""Schedule (``schedule/2``): the actions of one training step, their cost and proven bounds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from devices.documents.document import StrictModel
from devices.profile import EnergySource
from devices.quantities import Count, Label, NonNegative, Seed, Size
from solver.options import Coverage

Fraction: TypeAlias = Annotated[float, Field(ge=0, le=1)]
Status: TypeAlias = Literal["optimal", "feasible", "infeasible", "exhausted", "no_solution"]
EndedBy: TypeAlias = Literal["proven", "gap", "time_limit", "interrupted"]


class Compute(StrictModel):
    """Run an op, for the first time or again.

    ``address`` is the arena offset in bytes of each written tensor that counts against the budget,
    ``workspace_address`` that of the op's workspace. Both are absent until addresses are planned,
    and if no such bytes exist.
    """

    do: Literal["compute"] = "compute"
    op: Label
    address: Mapping[Label, Size] | None = None
    workspace_address: Size | None = None


class PageOut(StrictModel):
    """Copy a tensor from RAM to storage.

    An asynchronous transfer begins when this action is reached and earlier transfers have ended,
    and runs beside the actions that follow. They begin once the processor has spent on it the
    graph's ``handover_s`` and ``processor_share`` of its time, or all of its time, if that is less.
    The copy in storage is valid when the transfer ends. An action that frees the tensor or writes
    over its bytes waits for that end. To avoid this wait, the tensor may be freed later than right
    after the last action that needs it.
    """

    do: Literal["page_out"] = "page_out"
    tensor: Label
    asynchronous: bool = False


class PageIn(StrictModel):
    """Copy a tensor from storage to RAM.

    An asynchronous transfer begins as that of a page-out does. The tensor takes its bytes from this
    action on, and the first action that reads it, pages it out or frees it waits for the end of the
    transfer. ``address`` is the tensor's arena offset in bytes.
    """

    do: Literal["page_in"] = "page_in"
    tensor: Label
    asynchronous: bool = False
    address: Size | None = None


class Free(StrictModel):
    """Release the bytes of a tensor in RAM."""

    do: Literal["free"] = "free"
    tensor: Label


Action: TypeAlias = Annotated[Compute | PageOut | PageIn | Free, Field(discriminator="do")]


class Budget(StrictModel):
    """Limits that a schedule must satisfy.

    Attributes:
        ram_bytes: RAM for the tensors that ``covers`` names.
        covers: ``"all"`` tensors, or ``"activations"`` and their gradients only.
        deadline_s: Longest time of one step; None for no deadline.
        instantaneous_paging: Whether transfers count as taking no time, as in POET.
        paging: Whether tensors may be paged by choice.
        rematerialization: Whether ops may be recomputed.
    """

    ram_bytes: Size
    covers: Coverage = "all"
    deadline_s: NonNegative | None = None
    instantaneous_paging: bool = False
    paging: bool = True
    rematerialization: bool = True


class SolverRecord(StrictModel):
    """Program and effort of the search.

    ``seconds`` is wall time in the solver; ``build_seconds`` is the part of it spent on building
    programs. ``rounds`` counts the runs of the engine.
    """

    engine: str
    formulation: str
    version: str
    seconds: NonNegative
    build_seconds: NonNegative
    rounds: Size
    threads: Size


class Certificate(StrictModel):
    """Second proof of what a schedule claims: its bounds, or that no schedule exists.

    Attributes:
        outcome: ``confirmed``: another engine proved the claims again, without presolve, up to the
            tolerances of engines (1e-5 of a program's objective). ``refuted``: it found a solution
            that contradicts the first engine, whose proofs this schedule therefore does not state.
            ``undecided``: neither. ``no_engine``: the claims rest on no engine, but on sums of
            costs or on a search of all schedules.
        engine: Name and version of the second engine; absent if none ran.
        seconds: Wall time of the second proof.
    """

    outcome: Literal["confirmed", "refuted", "undecided", "no_engine"]
    engine: Label | None = None
    seconds: NonNegative = 0.0


class Share(StrictModel):
    """Fraction of the draws, with its 95 % interval (Wilson 1927) as an estimate from a sample."""

    value: Fraction
    low: Fraction
    high: Fraction


class DrawStatistics(StrictModel):
    """Statistics of one schedule over draws of the costs.

    ``energy_j`` is at the stated costs, ``mean_energy_j`` the mean over the draws. ``within`` is
    the share of draws in which it is in time and within the tolerance of the best schedule known,
    ``provably_within`` the share in which it is within the tolerance of the proven least energy.
    ``regrets`` is, for each draw, the relative excess over the energy of the best schedule known,
    None if the schedule is late; ``mean_regret`` and ``regret_95`` (95th percentile) summarize the
    others, and are absent if it is late in all draws.
    """

    energy_j: NonNegative
    mean_energy_j: NonNegative
    within: Share
    provably_within: Share
    mean_regret: NonNegative | None = None
    regret_95: NonNegative | None = None
    in_time: Share | None = None
    regrets: tuple[NonNegative | None, ...]


class Robustness(StrictModel):
    """Robustness of a schedule when costs are drawn from their intervals.

    ``least_energy`` is the schedule of least energy at the stated costs. ``best_on_average`` is the
    one of least mean energy over the draws among those that are in time in 95 % of them, absent if
    none is. ``schedule`` says which of the two this document holds. ``mean_bound_j`` is a proven
    lower bound on the mean energy of every schedule that ``bound_covers`` describes.
    ``solved_draws`` is the number of draws that were searched again; they gave ``schedules``
    different schedules to choose from.
    """

    draws: Count
    seed: Seed
    tolerance: Fraction
    schedule: Literal["least_energy", "best_on_average"] = "least_energy"
    least_energy: DrawStatistics
    best_on_average: DrawStatistics | None = None
    mean_bound_j: NonNegative
    solved_draws: Size
    schedules: Size
    seconds: NonNegative


class Schedule(StrictModel):
    """The actions of one training step, with their cost and the bounds proven.

    Attributes:
        graph: Name of the costed graph.
        graph_sha256: Hash of the costed graph; absent in files from before it was written.
        energy_source: Source of the energies, as the profile states it.
        status: ``optimal`` (proven within the requested gap), ``feasible``, ``infeasible`` (no
            schedule satisfies the budget), ``exhausted`` (no schedule of the class that
            ``restrictions`` describe does; others may) or ``no_solution`` (none was found).
        ended_by: How the search under this budget ended: ``proven`` (nothing is better, apart from
            rounding, or nothing fits), ``gap`` (within the requested gap), ``time_limit``, or
            ``interrupted`` (Ctrl-C). Later changes, such as addresses that cost energy, affect the
            status only. It is absent if nothing was searched (greedy schedules, points of a sweep
            that follow from others), if the methods had nothing left to try without a proof, and in
            files of ``schedule/1``.
        energy_j: Energy of the step.
        energy_bound_j: Lower bound, proven for every schedule that ``bound_covers`` and
            ``restrictions`` describe.
        asked_gap: Gap at which the search was to end; absent in files from before it was written.
        gap: Distance of ``energy_j`` from ``energy_bound_j``, relative to ``energy_j``.
        time_s: Time of the step.
        peak_bytes: Peak of RAM, as a sum of the bytes of counted tensors and workspaces.
        arena_bytes: Size of the arena that the addresses need; absent without addresses.
        arena_bound_bytes: Lower bound on the arena for these actions.
        any_order_bound_j: Lower bound on the energy, proven for every schedule.
        bytes_written_to_storage: Bytes of the tensors of all page-outs. The medium gets more: whole
            pages, the changed rows of tables twice, and safety copies after the step.
        solver: Program and effort of the search.
        budget: Limits that the schedule satisfies.
        asked_ram_bytes: RAM budget that was asked for, where what a board's firmware keeps about a
            schedule leaves less: ``budget`` is what it leaves. Absent where nothing was taken off.
        bound_covers: Schedules that ``energy_bound_j`` holds for.
        restrictions: Restrictions of these schedules.
        smallest_ram_bytes: Without a schedule, the smallest RAM budget for which one was found.
        smallest_ram_bound_bytes: No schedule needs less RAM, in whatever order; proven.
        smallest_deadline_s: Without a schedule, the shortest deadline for which one was found.
        smallest_deadline_bound_s: No schedule is faster, in whatever order; proven.
        limiting_op: The op that sets ``smallest_ram_bytes``.
        chosen: Methods used, and why.
        notes: Remarks on the result.
        certificate: Second proof of ``energy_bound_j`` and ``any_order_bound_j``, or of status
            ``infeasible`` or ``exhausted``; absent unless it was asked for.
        resident_address: Arena offset in bytes of each counted tensor in RAM when the step begins.
        robustness: Statistics over draws of the costs, if assessed.
        actions: The actions in order; empty without a solution.
    """

    schema_: Annotated[Literal["schedule/2"], Field(alias="schema")] = "schedule/2"
    graph: Label
    graph_sha256: str | None = None
    energy_source: EnergySource | None = None
    status: Status
    ended_by: EndedBy | None = None
    energy_j: NonNegative | None = None
    energy_bound_j: NonNegative | None = None
    asked_gap: NonNegative | None = None
    gap: NonNegative | None = None
    time_s: NonNegative | None = None
    peak_bytes: Size | None = None
    arena_bytes: Size | None = None
    arena_bound_bytes: Size | None = None
    any_order_bound_j: NonNegative | None = None
    bytes_written_to_storage: Size | None = None
    solver: SolverRecord
    budget: Budget
    asked_ram_bytes: Size | None = None
    bound_covers: str
    restrictions: tuple[str, ...] = ()
    smallest_ram_bytes: Size | None = None
    smallest_ram_bound_bytes: Size | None = None
    smallest_deadline_s: NonNegative | None = None
    smallest_deadline_bound_s: NonNegative | None = None
    limiting_op: Label | None = None
    chosen: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    certificate: Certificate | None = None
    resident_address: Mapping[Label, Size] | None = None
    robustness: Robustness | None = None
    actions: tuple[Action, ...] = ()

    @classmethod
    def converted(cls, data: object) -> object:
        """Convert ``schedule/1``, in which actions are called ``steps``, to ``schedule/2``."""
        if not isinstance(data, dict) or data.get("schema") != "schedule/1":
            return data
        current = {**data, "schema": "schedule/2"}
        if "steps" in current and "actions" not in current:
            current["actions"] = current.pop("steps")
        return current


def first_executions(actions: Iterable[Action]) -> tuple[str, ...]:
    """Names of the ops in the order in which the actions first compute them."""
    return tuple(dict.fromkeys(action.op for action in actions if isinstance(action, Compute)))
