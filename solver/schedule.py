"""Schedule (``schedule/1``): what the board does in one training step, and what is known of it."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from devices.document import StrictModel
from devices.profile import EnergySource

NonNegative: TypeAlias = Annotated[float, Field(ge=0)]
Size: TypeAlias = Annotated[int, Field(ge=0)]
Status: TypeAlias = Literal["optimal", "feasible", "infeasible", "no_solution"]
Coverage: TypeAlias = Literal["all", "activations"]


class Compute(StrictModel):
    do: Literal["compute"] = "compute"
    op: str


class PageOut(StrictModel):
    do: Literal["page_out"] = "page_out"
    tensor: str


class PageIn(StrictModel):
    do: Literal["page_in"] = "page_in"
    tensor: str


class Free(StrictModel):
    do: Literal["free"] = "free"
    tensor: str


Step: TypeAlias = Annotated[Compute | PageOut | PageIn | Free, Field(discriminator="do")]


class Budget(StrictModel):
    """What the schedule had to keep to. ``deadline_s`` is absent where time did not matter."""

    ram_bytes: Size
    covers: Coverage = "all"
    deadline_s: NonNegative | None = None
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


class Schedule(StrictModel):
    """``status`` says how the search ended: ``optimal`` is proven within the asked gap.

    ``energy_bound_j`` is proven for every schedule that ``bound_covers`` describes; what it leaves
    out stands in ``restrictions``. An infeasible problem has no steps and names in
    ``smallest_ram_bytes`` or ``smallest_deadline_s`` what would do, and the op that sets it.
    """

    schema_: Annotated[Literal["schedule/1"], Field(alias="schema")] = "schedule/1"
    graph: str
    energy_source: EnergySource | None = None
    status: Status
    energy_j: NonNegative | None = None
    energy_bound_j: NonNegative | None = None
    gap: NonNegative | None = None
    time_s: NonNegative | None = None
    peak_bytes: Size | None = None
    arena_bytes: Size | None = None
    bytes_written_to_storage: Size | None = None
    solver: SolverRecord
    budget: Budget
    bound_covers: str
    restrictions: tuple[str, ...] = ()
    smallest_ram_bytes: Size | None = None
    smallest_deadline_s: NonNegative | None = None
    limiting_op: str | None = None
    notes: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()
