"""Offsets by constraint programming: OR-tools CP-SAT with rectangles that do not overlap."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Literal

from solver.addresses.packing import Packing

if TYPE_CHECKING:
    from ortools.sat.python.cp_model import CpModel, CpSolver, CpSolverStatus

# Search time varies randomly by orders of magnitude, so more strategies than cores are faster.
_WORKERS = 8


def pack_exactly(
    packing: Packing, arena_bytes: int, deadline: float, seed: int
) -> list[int] | Literal["impossible", "unknown"]:
    """Find offsets within ``arena_bytes``.

    Returns ``impossible`` if none are proven to exist, and ``unknown`` if ``deadline`` (on
    ``time.monotonic``) passes first. Ctrl-C ends the search at once.
    """
    from ortools.sat.python import cp_model

    seconds = deadline - time.monotonic()
    if seconds <= 0:
        return "unknown"
    unit = packing.unit
    height = arena_bytes // unit
    if height < max(packing.size) // unit:
        return "impossible"
    model = cp_model.CpModel()
    offsets = [model.new_int_var(0, height - size // unit, "") for size in packing.size]
    times, addresses = [], []
    for offset, shape in zip(offsets, packing.shapes, strict=True):
        for span in shape:
            times.append(model.new_fixed_size_interval_var(span.start, span.end - span.start, ""))
            addresses.append(model.new_fixed_size_interval_var(offset, span.bytes // unit, ""))
    model.add_no_overlap_2d(times, addresses)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = seconds
    solver.parameters.num_workers = _WORKERS
    solver.parameters.random_seed = seed
    # Its handler would leave behind the system's, with which Ctrl-C ends the process.
    solver.parameters.catch_sigint_signal = False
    status = _solved(solver, model)
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return [solver.value(offset) * unit for offset in offsets]
    return "impossible" if status == cp_model.INFEASIBLE else "unknown"


def _solved(solver: CpSolver, model: CpModel) -> CpSolverStatus:
    """Solve in another thread, so that Ctrl-C reaches this one."""
    with ThreadPoolExecutor(max_workers=1) as thread:
        solving = thread.submit(solver.solve, model)
        try:
            return solving.result()
        except KeyboardInterrupt:
            solver.stop_search()
            raise
