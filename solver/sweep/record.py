"""SweepRecord (``sweep/1``): the points of a trade-off curve, as a document and as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from devices.documents.document import StrictModel
from devices.profile import EnergySource
from devices.quantities import NonNegative, Size
from solver.baselines.baseline import baseline_limit_s
from solver.options import Coverage
from solver.problem.schedule import Budget, Status

if TYPE_CHECKING:
    import pandas as pd


# Name of this project's solver as a method; every other method is a baseline.
SOLVED = "joulewright"


class SweepRow(StrictModel):
    """Result of one method under one budget.

    ``status`` of a baseline is ``feasible``, or ``no_solution`` if it has no schedule that fits.
    ``graph_sha256`` is the hash of the costed graph, which distinguishes graphs of the same name.
    ``asked_gap`` and ``time_limit_s`` are the options of the search; a baseline is given no gap,
    and always a limit, although older files may not state it. ``unconstrained_*`` belong to the
    schedule that keeps everything. ``schedule`` is a path relative to the sweep's directory.
    ``arena_bytes`` is that of the schedule's addresses. A baseline counts RAM as a sum of bytes, so
    that its arena may exceed its budget. ``fragmentation`` is that of the arena in which a method
    itself chose addresses, if it does.
    """

    graph: str
    graph_sha256: str
    profile: str | None = None
    model: str | None = None
    energy_source: EnergySource | None = None
    method: str
    ram_bytes: Size
    covers: Coverage
    deadline_s: NonNegative | None = None
    status: Status
    energy_j: NonNegative | None = None
    energy_bound_j: NonNegative | None = None
    any_order_bound_j: NonNegative | None = None
    gap: NonNegative | None = None
    time_s: NonNegative | None = None
    peak_bytes: Size | None = None
    arena_bytes: Size | None = None
    fragmentation: NonNegative | None = None
    bytes_written_to_storage: Size | None = None
    recomputations: Size | None = None
    page_outs: Size | None = None
    page_ins: Size | None = None
    smallest_ram_bytes: Size | None = None
    smallest_ram_bound_bytes: Size | None = None
    limiting_op: str | None = None
    unconstrained_peak_bytes: Size
    unconstrained_energy_j: NonNegative
    unconstrained_time_s: NonNegative
    asked_gap: NonNegative
    time_limit_s: NonNegative | None = None
    seconds: NonNegative | None = None
    solver: str | None = None
    schedule: str | None = None
    note: str | None = None

    @property
    def budget(self) -> Budget:
        return Budget(ram_bytes=self.ram_bytes, covers=self.covers, deadline_s=self.deadline_s)

    @property
    def any_order_gap(self) -> float | None:
        """Distance from the bound for any order, relative to the energy; None if not stated."""
        if self.energy_j is None or self.any_order_bound_j is None:
            return None
        return (self.energy_j - self.any_order_bound_j) / self.energy_j if self.energy_j else 0.0

    def answers(self, gap: float, time_limit_s: float | None) -> bool:
        """Whether solving this point again with that gap and limit would be useless."""
        if self.method != SOLVED:
            return baseline_limit_s(time_limit_s) <= baseline_limit_s(self.time_limit_s)
        if self.status == "infeasible" or (self.gap is not None and self.gap <= gap):
            return True
        as_long = self.time_limit_s is None or (
            time_limit_s is not None and time_limit_s <= self.time_limit_s
        )
        return as_long and self.asked_gap <= gap


class SweepRecord(StrictModel):
    """All rows of a sweep: one for each graph, method and budget."""

    schema_: Annotated[Literal["sweep/1"], Field(alias="schema")] = "sweep/1"
    points: tuple[SweepRow, ...] = ()

    def table(self) -> pd.DataFrame:
        """Table with a column for each field; column types do not depend on missing values."""
        import pandas as pd

        properties = SweepRow.model_json_schema()["properties"]
        types = {name: _column_type(schema) for name, schema in properties.items()}
        rows = [row.model_dump() for row in self.points]
        return pd.DataFrame(rows, columns=list(types), dtype=object).astype(types)


def _column_type(schema: dict[str, Any]) -> str:
    """The pandas type, with missing values, for the JSON schema of a field."""
    kinds = {kind.get("type") for kind in schema.get("anyOf", [schema])}
    if "integer" in kinds:
        return "Int64"
    return "Float64" if "number" in kinds else "string"
