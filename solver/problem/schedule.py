"""Schedule (``schedule/2``): what the board does in one training step, and what is known of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from devices.documents.document import StrictModel
from devices.profile import EnergySource
from devices.quantities import Count, NonNegative, Size
from solver.options import Coverage

Fraction: TypeAlias = Annotated[float, Field(ge=0, le=1)]
Status: TypeAlias = Literal["optimal", "feasible", "infeasible", "no_solution"]
EndedBy: TypeAlias = Literal["proven", "gap", "time_limit", "interrupted"]


class Compute(StrictModel):
    """``address`` gives the offset in the arena of each written tensor that counts against the
    budget, ``workspace_address`` that of the op's workspace; both absent until addresses are
    planned, and where there are no such bytes."""

    do: Literal["compute"] = "compute"
    op: str
    address: Mapping[str, Size] | None = None
    workspace_address: Size | None = None


class PageOut(StrictModel):
    """Asynchronous: the transfer begins when this action is reached and those before it on the
    channel have ended, and goes on beside what follows. The copy in storage is valid from its end;
    an action that frees the tensor or writes over its bytes waits for that, and so that nobody has
    to, the free may stand later than right after the last action that needs the tensor."""

    do: Literal["page_out"] = "page_out"
    tensor: str
    asynchronous: bool = False


class PageIn(StrictModel):
    """Asynchronous: as a page-out; the tensor takes its bytes from this action on, and the first
    action that needs it (reads it, pages it out, frees it) waits for the transfer's end."""

    do: Literal["page_in"] = "page_in"
    tensor: str
    asynchronous: bool = False
    address: Size | None = None


class Free(StrictModel):
    do: Literal["free"] = "free"
    tensor: str


Action: TypeAlias = Annotated[Compute | PageOut | PageIn | Free, Field(discriminator="do")]


class Budget(StrictModel):
    """What the schedule had to keep to. ``deadline_s`` is absent where time did not matter; with
    ``instantaneous_paging`` transfers count no time against it, which is POET's accounting."""

    ram_bytes: Size
    covers: Coverage = "all"
    deadline_s: NonNegative | None = None
    instantaneous_paging: bool = False
    paging: bool = True
    rematerialization: bool = True


class SolverRecord(StrictModel):
    """``seconds`` is wall time in the solver, building the program included in it and given apart
    as ``build_seconds``."""

    engine: str
    formulation: str
    version: str
    seconds: NonNegative
    build_seconds: NonNegative
    rounds: Size
    threads: Size


class Share(StrictModel):
    """A part of all draws, with its 95 % interval (Wilson 1927): draws are a sample."""

    value: Fraction
    low: Fraction
    high: Fraction


class DrawStatistics(StrictModel):
    """One schedule while costs are drawn. ``energy_j`` is at the stated costs, ``mean_energy_j``
    over the draws. ``within`` is how often it is in time and within the tolerance of the best
    schedule known for a draw, ``provably_within`` how often of what is proven to be the least.
    ``regrets`` has for each draw the energy over that of the best known, relative, and None where
    the schedule is late; of these are ``mean_regret`` and ``regret_95``, its 95th percentile."""

    energy_j: NonNegative
    mean_energy_j: NonNegative
    within: Share
    provably_within: Share
    mean_regret: NonNegative | None = None
    regret_95: NonNegative | None = None
    in_time: Share | None = None
    regrets: tuple[NonNegative | None, ...]


class Robustness(StrictModel):
    """What becomes of the schedule when costs are drawn from their intervals. ``least_energy`` is
    the schedule known that needs the least at the stated costs, ``best_on_average`` the one that
    needs the least on average over the draws, of those that are in time in 95 % of them; it is
    absent where there is none. ``schedule`` says which of the two this document holds.
    ``mean_bound_j`` is proven: no schedule needs less on average, of those that ``bound_covers``
    describes, as with all that is proven here. Searched again were ``solved_draws``, which gave
    ``schedules`` different ones to choose from."""

    draws: Count
    seed: int
    tolerance: Fraction
    schedule: Literal["least_energy", "best_on_average"] = "least_energy"
    least_energy: DrawStatistics
    best_on_average: DrawStatistics | None = None
    mean_bound_j: NonNegative
    solved_draws: Size
    schedules: Size
    seconds: NonNegative


class Schedule(StrictModel):
    """``status`` says what is known of the schedule: ``optimal`` is proven within the asked gap.

    ``ended_by`` says how the search under this budget ended: with a proof that nothing is better,
    rounding apart, or that nothing fits (``proven``); within the asked ``gap``; at the
    ``time_limit``; ``interrupted`` by Ctrl-C. It is about the search: what comes after it, such as
    addresses that cost energy, changes the status alone. It is absent where nothing was searched
    (schedules by rule, points of a sweep that follow from others), where the methods had nothing
    left to try and had proven nothing, and in files of ``schedule/1``.

    ``energy_bound_j`` is proven for every schedule that ``bound_covers`` describes; what it leaves
    out stands in ``restrictions``; ``any_order_bound_j`` is proven for every schedule whatever.
    ``chosen`` says which methods were used and why. ``resident_address`` gives the offset in the
    arena of each counted tensor that is in RAM when the step begins; ``arena_bound_bytes`` is what
    no arena for these actions can be smaller than. An infeasible problem has no actions and names
    in ``smallest_ram_bytes`` or ``smallest_deadline_s`` what would do, and the op that sets it.
    """

    schema_: Annotated[Literal["schedule/2"], Field(alias="schema")] = "schedule/2"
    graph: str
    energy_source: EnergySource | None = None
    status: Status
    ended_by: EndedBy | None = None
    energy_j: NonNegative | None = None
    energy_bound_j: NonNegative | None = None
    gap: NonNegative | None = None
    time_s: NonNegative | None = None
    peak_bytes: Size | None = None
    arena_bytes: Size | None = None
    arena_bound_bytes: Size | None = None
    any_order_bound_j: NonNegative | None = None
    bytes_written_to_storage: Size | None = None
    solver: SolverRecord
    budget: Budget
    bound_covers: str
    restrictions: tuple[str, ...] = ()
    smallest_ram_bytes: Size | None = None
    smallest_deadline_s: NonNegative | None = None
    limiting_op: str | None = None
    chosen: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    resident_address: Mapping[str, Size] | None = None
    robustness: Robustness | None = None
    actions: tuple[Action, ...] = ()

    @classmethod
    def converted(cls, data: object) -> object:
        """``schedule/1`` called the actions ``steps``, and did not say how the search ended."""
        if not isinstance(data, dict) or data.get("schema") != "schedule/1":
            return data
        current = {**data, "schema": "schedule/2"}
        if "steps" in current and "actions" not in current:
            current["actions"] = current.pop("steps")
        return current


def first_executions(actions: Iterable[Action]) -> tuple[str, ...]:
    """The ops by when a schedule first computes them."""
    return tuple(dict.fromkeys(action.op for action in actions if isinstance(action, Compute)))
