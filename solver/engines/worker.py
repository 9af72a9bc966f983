"""The process of an engine: ``python -m solver.engines.worker ENGINE FD``.

Engines are C libraries that cannot be interrupted reliably and may take any amount of memory. In a
separate process an engine can be killed at any moment, and its results so far have been sent.
"""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import mip

from solver.engines.messages import (
    Bound,
    EngineMessage,
    Finished,
    Forget,
    Growth,
    Incumbent,
    Ready,
    Run,
)
from solver.engines.parent import Parent
from solver.engines.program import Program, Row

_BOUND_INTERVAL_S = 0.25
# Programs of at most this many columns are solved a second time, without presolve, before anything
# is claimed. HiGHS 1.15.1 with presolve has called one in a thousand small programs infeasible that
# has a solution, or a suboptimal solution optimal.
_SMALL_COLUMNS = 400
# An optimum that took longer than this is not proven again, and bounds are reported meanwhile. That
# there is no solution is always proven again: it ends the search.
_LONGEST_PROVEN_TWICE_S = 2.0
# The second proof may take so many times as long as the first, and this long at least.
_SECOND_PROOF_RATIO, _LEAST_SECOND_PROOF_S = 5.0, 10.0
# Difference of two optima, relative, that tolerances explain.
_TOLERANCE = 1e-5
# The tolerance of engines for a row is absolute, 1e-6: rows of smaller coefficients are magnified.
_SMALL_COEFFICIENT = 2.0**-7


_INFEASIBLE = Finished("infeasible")


class _Reporter:
    """Sends new incumbents and bounds; callbacks may come from any thread."""

    def __init__(self, send: Callable[[EngineMessage], None], quiet_s: float) -> None:
        """``quiet_s`` is the time for which no bound is reported but the final one."""
        self._send = send
        self._quiet_until = time.monotonic() + quiet_s
        self._bound = float("-inf")
        self._objective = float("inf")
        self._next_bound_at = 0.0
        self._lock = threading.Lock()

    def bound(self, objective: float) -> None:
        if time.monotonic() < self._quiet_until:
            return
        with self._lock:
            if (
                self._bound < objective < sys.float_info.max
                and time.monotonic() >= self._next_bound_at
            ):
                self._bound = objective
                self._next_bound_at = time.monotonic() + _BOUND_INTERVAL_S
                self._send(Bound(objective))

    def final_bound(self, objective: float) -> None:
        self._quiet_until = self._next_bound_at = 0.0
        self.bound(objective)

    def finished(self, message: Finished) -> None:
        with self._lock:
            self._send(message)

    def incumbent(self, objective: float, values: list[float]) -> None:
        with self._lock:
            if objective < self._objective:
                self._objective = objective
                self._send(Incumbent(objective, values))


@dataclass(frozen=True)
class _Optimum:
    """An optimal solution, and the bound that was proven with it."""

    objective: float
    bound: float
    values: list[float]


class _Engine:
    """One python-mip model that grows from run to run."""

    def __init__(self, solver_name: str) -> None:
        self.model = mip.Model(solver_name=solver_name)
        self.model.verbose = 0
        self.columns: list[Any] = []
        self._created = time.monotonic()
        self._program = Program()

    def grow(self, growth: Growth) -> None:
        for lower, upper, cost, integer in zip(
            growth.lower, growth.upper, growth.cost, growth.integer, strict=True
        ):
            kind = mip.BINARY if integer else mip.CONTINUOUS
            self.columns.append(self.model.add_var(lb=lower, ub=upper, obj=cost, var_type=kind))
        program = self._program
        program.lower += growth.lower
        program.upper += growth.upper
        program.integer += growth.integer
        program.rows += growth.rows
        for row in map(_magnified, growth.rows):
            variables = [self.columns[c] for c in row.columns]
            self.model.add_constr(
                mip.LinExpr(variables, list(row.coefficients), -row.right_side, row.sense)
            )

    def minimise(self, run: Run, report: _Reporter) -> Finished:
        model = self.model
        model.max_mip_gap_abs = run.absolute_gap
        model.max_mip_gap = 0.0
        model.threads = run.threads
        if run.start is not None:
            model.start = list(zip(self.columns, run.start, strict=False))
        began = time.monotonic()
        with nullcontext() if run.presolve else self.without_presolve():
            proof = self._proof(model.optimize(relax=True) if run.relax else self.optimize(report))
        took_s, fault = time.monotonic() - began, ""
        is_repeated = took_s < _LONGEST_PROVEN_TWICE_S or proof == _INFEASIBLE
        if run.presolve and self.is_small and is_repeated:
            with self.without_presolve():
                # HiGHS counts the time of all its runs.
                limit_s = time.monotonic() - self._created
                limit_s += max(_SECOND_PROOF_RATIO * took_s, _LEAST_SECOND_PROOF_S)
                again = self._proof(model.optimize(relax=run.relax, max_seconds=limit_s))
                model.max_seconds = mip.INF
            proof, fault = self._agreed(proof, again, run)
        if isinstance(proof, Finished):
            return Finished(proof.outcome, proof.reason or fault)
        report.incumbent(proof.objective, proof.values)
        report.final_bound(proof.bound)
        return Finished("optimal", fault)

    @property
    def is_small(self) -> bool:
        """Whether results are proven twice."""
        return len(self.columns) <= _SMALL_COLUMNS

    @contextmanager
    def without_presolve(self) -> Iterator[None]:
        """Switch presolve off for the next run, which forgets what earlier ones found."""
        self.model.preprocess = 0
        try:
            yield
        finally:
            self.model.preprocess = -1

    def _proof(self, status: mip.OptimizationStatus) -> _Optimum | Finished:
        """What a run has proven."""
        model = self.model
        if status == mip.OptimizationStatus.OPTIMAL:
            return _Optimum(
                model.objective_value,
                min(model.objective_bound, model.objective_value),
                [column.x for column in self.columns],
            )
        infeasible = (
            mip.OptimizationStatus.INFEASIBLE,
            mip.OptimizationStatus.INT_INFEASIBLE,
        )
        if status in infeasible:
            return _INFEASIBLE
        return Finished("failed", f"the engine ended with status {status.name}")

    def _agreed(
        self, one: _Optimum | Finished, other: _Optimum | Finished, run: Run
    ) -> tuple[_Optimum | Finished, str]:
        """What is left of two proofs, and which of them is false.

        A solution that satisfies every row refutes a claim that none exists, and any bound above
        its objective, whoever made the claim. If neither run has one, what claims less is left, and
        nothing of a claim that none exists which the other run does not confirm.
        """
        solutions = [
            proof
            for proof in (one, other)
            if isinstance(proof, _Optimum)
            and self._program.satisfied_by(proof.values, relaxed=run.relax)
        ]
        if not solutions:
            if one == _INFEASIBLE and isinstance(other, Finished) and other != _INFEASIBLE:
                fault = (
                    "called a program infeasible with presolve and did not prove it again without"
                )
                return Finished("stopped"), fault
            optima = [proof for proof in (one, other) if isinstance(proof, _Optimum)]
            return min(optima, key=lambda optimum: optimum.bound, default=one), ""
        best = min(solutions, key=lambda solution: solution.objective)
        slack = run.absolute_gap + _TOLERANCE * (1.0 + abs(best.objective))
        faults = []
        bounds = [best.bound]
        for proof, how in ((one, "with presolve"), (other, "without presolve")):
            if isinstance(proof, Finished):
                if proof.outcome == "infeasible":
                    faults.append(f"called a program infeasible {how} that has a solution")
            elif proof.bound > best.objective + slack:
                faults.append(f"proved a bound {how} that a solution refutes")
            else:
                bounds.append(proof.bound)
        return replace(best, bound=min(bounds)), "; ".join(faults)

    def optimize(self, report: _Reporter) -> mip.OptimizationStatus:  # noqa: ARG002
        """Run to the end, and report incumbents and bounds as far as the engine provides them."""
        return self.model.optimize()

    def version(self) -> str:
        raise NotImplementedError


def _magnified(row: Row) -> Row:
    """The row, multiplied by a power of two if its coefficients are small."""
    largest = max(map(abs, row.coefficients), default=1.0)
    if largest >= _SMALL_COEFFICIENT:
        return row
    power = -math.frexp(largest)[1]
    coefficients = tuple(math.ldexp(value, power) for value in row.coefficients)
    return replace(row, coefficients=coefficients, right_side=math.ldexp(row.right_side, power))


class _Highs(_Engine):
    """HiGHS, with callbacks through its C interface, which python-mip lacks.

    Callback data are read by name, since their layout differs between versions.
    """

    _MIP_IMPROVING_SOLUTION, _MIP_LOGGING, _MIP_INTERRUPT = 4, 5, 6

    def __init__(self) -> None:
        super().__init__(mip.HIGHS)
        import cffi
        from mip import highs

        self._ffi = cffi.FFI()
        self._ffi.cdef(
            """
            typedef void (*callback)(int, const char *, const void *, void *, void *);
            int Highs_setCallback(void *, callback, void *);
            int Highs_startCallback(void *, int);
            const void *Highs_getCallbackDataOutItem(const void *, const char *);
            const char *Highs_version(void);
            int Highs_setStringOptionValue(void *, const char *, const char *);
            int Highs_clearSolver(void *);
            void Highs_resetGlobalScheduler(int);
            """
        )
        self._library: Any = self._ffi.dlopen(highs.libfile)
        self._handle = self._ffi.cast(
            "void *", int(highs.ffi.cast("uintptr_t", self.model.solver._model))
        )
        self._callback: Any = None
        # The threads of an earlier program; this one may ask for another number.
        self._library.Highs_resetGlobalScheduler(1)

    @contextmanager
    def without_presolve(self) -> Iterator[None]:
        self._library.Highs_setStringOptionValue(self._handle, b"presolve", b"off")
        self._library.Highs_clearSolver(self._handle)
        try:
            yield
        finally:
            self._library.Highs_setStringOptionValue(self._handle, b"presolve", b"choose")

    def optimize(self, report: _Reporter) -> mip.OptimizationStatus:
        def item(data: Any, name: bytes) -> Any:
            return self._ffi.cast(
                "const double *", self._library.Highs_getCallbackDataOutItem(data, name)
            )

        def on_event(kind: int, _message: Any, data: Any, _in: Any, _user: Any) -> None:
            if kind == self._MIP_IMPROVING_SOLUTION:
                solution = item(data, b"mip_solution")
                if solution != self._ffi.NULL:
                    values = self._ffi.unpack(solution, len(self.columns))
                    report.incumbent(item(data, b"objective_function_value")[0], values)
            else:
                report.bound(item(data, b"mip_dual_bound")[0])

        self._callback = self._ffi.callback("callback", on_event)
        self._library.Highs_setCallback(self._handle, self._callback, self._ffi.NULL)
        for kind in (self._MIP_IMPROVING_SOLUTION, self._MIP_LOGGING, self._MIP_INTERRUPT):
            self._library.Highs_startCallback(self._handle, kind)
        return super().optimize(report)

    def version(self) -> str:
        return f"HiGHS {self._ffi.string(self._library.Highs_version()).decode()}"


class _Cbc(_Engine):
    """CBC, in runs of doubling length.

    Its callbacks see the presolved program or crash. Incumbents and bounds are therefore known only
    at the end of each run, and each run starts from the best solution so far.
    """

    _FIRST_SLICE_S = 15.0

    def __init__(self) -> None:
        super().__init__(mip.CBC)
        from mip import cbc

        self._set = partial(cbc.cbc_set_parameter, self.model.solver)
        # CBC crashes when it strengthens cliques in a program with empty rows only.
        self._set("clqstr", "off")

    @contextmanager
    def without_presolve(self) -> Iterator[None]:
        """Switch off presolve of the integer program and of its relaxation."""
        self._set("presolve", "off")
        try:
            with super().without_presolve():
                yield
        finally:
            self._set("presolve", "on")

    def optimize(self, report: _Reporter) -> mip.OptimizationStatus:
        slice_s = self._FIRST_SLICE_S
        while True:
            status = self.model.optimize(max_seconds=slice_s)
            undecided = (
                mip.OptimizationStatus.FEASIBLE,
                mip.OptimizationStatus.NO_SOLUTION_FOUND,
            )
            if status not in undecided:
                return status
            report.bound(self.model.objective_bound)
            if status == mip.OptimizationStatus.FEASIBLE:
                values = [column.x for column in self.columns]
                report.incumbent(self.model.objective_value, values)
                self.model.start = list(zip(self.columns, values, strict=True))
            slice_s *= 2

    def version(self) -> str:
        from importlib.metadata import version

        return f"CBC (cbcbox {version('cbcbox')})"


class _Gurobi(_Engine):
    """Gurobi, if it is installed. Incumbents and bounds are known only at the end of a run."""

    def __init__(self) -> None:
        try:
            super().__init__(mip.GUROBI)
        except FileNotFoundError:
            sys.exit("Gurobi was not found: install it, or set GUROBI_HOME to its directory")

    def version(self) -> str:
        return "Gurobi"


_ENGINES: dict[str, Callable[[], _Engine]] = {"highs": _Highs, "cbc": _Cbc, "gurobi": _Gurobi}


def main() -> None:
    """Solve the runs that the parent orders, until it is gone."""
    parent: Parent[Run | Forget] = Parent(int(sys.argv[2]))
    while True:
        engine = _ENGINES[sys.argv[1]]()
        parent.send(Ready(engine.version()))
        _solve(engine, parent)


def _solve(engine: _Engine, parent: Parent[Run | Forget]) -> None:
    """Solve runs of one program until the parent has another one."""
    while not isinstance(run := parent.receive(), Forget):
        engine.grow(run.growth)
        report = _Reporter(parent.send, _LONGEST_PROVEN_TWICE_S if engine.is_small else 0.0)
        report.finished(engine.minimise(run, report))


if __name__ == "__main__":
    main()
