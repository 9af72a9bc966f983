"""SweepRecord (``sweep/1``): the points of a trade-off curve, as a document and as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from devices.documents.document import StrictModel
from devices.profile import EnergySource
from devices.quantities import NonNegative, Size
from solver.options import Coverage
from solver.problem.schedule import Budget, Status

if TYPE_CHECKING:
    import pandas as pd


# The method of a point that was solved; every other one is a baseline.
SOLVED = "joulewright"


class SweepRow(StrictModel):
    """What one method does under one budget. ``status`` of a baseline is ``feasible``, or
    ``no_solution`` where it has no schedule that fits. ``graph_sha256`` is of the costed graph, so
    that figures of another one are not mistaken for its; ``asked_gap`` and ``time_limit_s`` are
    what the search was given. ``unconstrained_*`` are of keeping everything. ``schedule`` and
    ``graph_file`` are relative to the sweep's directory."""

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

    def answers(self, gap: float, time_limit_s: float | None) -> bool:
        """Nothing more would come of solving this point again with that gap and limit."""
        if self.status == "infeasible" or (self.gap is not None and self.gap <= gap):
            return True
        as_long = self.time_limit_s is None or (
            time_limit_s is not None and time_limit_s <= self.time_limit_s
        )
        return as_long and self.asked_gap <= gap


class SweepRecord(StrictModel):
    """One row for each graph, method and budget."""

    schema_: Annotated[Literal["sweep/1"], Field(alias="schema")] = "sweep/1"
    points: tuple[SweepRow, ...] = ()

    def table(self) -> pd.DataFrame:
        """The points with a column for each field; the same column types whatever is missing."""
        import pandas as pd

        properties = SweepRow.model_json_schema()["properties"]
        types = {name: _column_type(schema) for name, schema in properties.items()}
        rows = [row.model_dump() for row in self.points]
        return pd.DataFrame(rows, columns=list(types), dtype=object).astype(types)


def _column_type(schema: dict[str, Any]) -> str:
    """Of pandas, for a field's JSON schema; each has a place for what is missing."""
    kinds = {kind.get("type") for kind in schema.get("anyOf", [schema])}
    if "integer" in kinds:
        return "Int64"
    return "Float64" if "number" in kinds else "string"
