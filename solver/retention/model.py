"""The *retention* formulation: recomputation and paging as a constraint program.

Its number of integer variables grows only linearly with the graph. Moccasin (Bartan et al., ICML
2023) gives each tensor at most ``C`` retention intervals. An interval begins at an event at which
the tensor's op is computed, and ends when the tensor is no longer needed. The first interval always
exists and begins with the op's first execution. Computing an op requires a retention interval,
around that event, of each tensor that it reads. One cumulative resource limits all intervals to the
memory. Events are those of :mod:`solver.retention.timeline`.

Additions to the paper: an interval may begin with a page-in, which requires one page-out right
after the tensor is first written (later has no advantage); an op may write several tensors, need a
workspace, write over what it reads, or be excluded from recomputation; tensors may have their home
in storage, or must persist; a deadline is possible. The paper's restriction of the lengths of
intervals is omitted, since it loses solutions.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from ortools.sat.python import cp_model

from solver.problem.problem import DEADLINE_ROUNDING, Problem
from solver.retention.timeline import BEGIN, Timeline

Minimise: TypeAlias = Literal["energy", "time"]

# Costs are rounded to multiples of this share of the largest, or of all ops together; their sum
# stays below the second number, within the solver's integers.
_FINEST, _MOST = 2.0**-50, 2.0**60
# Half of the lateness, relative to the deadline, that the referee tolerates.
_ROUNDING = DEADLINE_ROUNDING / 2


@dataclass(frozen=True)
class Execution:
    """An op computed at ``event`` if ``present``.

    ``served_by[i]`` are literals, one for each retention of tensor ``i``, which the op reads.
    """

    present: cp_model.IntVar
    stage: cp_model.IntVar
    event: cp_model.LinearExpr
    served_by: dict[int, list[cp_model.IntVar]] = field(default_factory=dict)


@dataclass(frozen=True)
class Retention:
    """A tensor in RAM from event ``start`` up to, but not including, ``end`` if ``present``.

    ``made_by`` are literals, by the number of the execution that it begins with; the literal
    ``paged_in`` says that it begins with a page-in.
    """

    present: cp_model.IntVar
    start: cp_model.LinearExpr
    end: cp_model.IntVar
    length: cp_model.IntVar
    made_by: dict[int, cp_model.IntVar]
    paged_in: cp_model.IntVar | None = None


class RetentionModel:
    """The constraint program of one problem; ``intervals`` is ``C``.

    Its objective is in multiples of ``unit`` (joules or seconds) above ``constant``. Costs are
    rounded down, so that a bound on the objective is a bound on the problem. A cost of which one is
    more than a schedule of value ``known`` can have is lowered, which makes no schedule better than
    that one: the unit can then be finer.
    """

    def __init__(
        self, problem: Problem, minimise: Minimise, intervals: int, known: float = math.inf
    ) -> None:
        self.problem = problem
        self.timeline = Timeline(problem)
        self.program = cp_model.CpModel()
        self._intervals = intervals
        self._always = self.program.new_constant(1)
        self._tasks: list[tuple[cp_model.IntervalVar, int]] = []
        # Literals with their costs in joules and in seconds.
        self._costs: list[tuple[cp_model.IntVar, float, float]] = []
        self.page_out: dict[int, cp_model.IntVar] = {}
        # Tensors that an execution recomputes although nothing needs them, by tensor and execution.
        self.unneeded: dict[tuple[int, int], cp_model.IntVar] = {}
        self.executions = [self._executions_of(k) for k in range(self.timeline.end_op + 1)]
        self.retentions = [
            [] if stays else self._retentions_of(i) for i, stays in enumerate(self.timeline.stays)
        ]
        for i in range(len(self.retentions)):
            self._add_page_out(i)
            self._add_beginnings(i)
        for k, executions in enumerate(self.executions):
            for execution in executions:
                self._add_reads(k, execution)
                self._add_footprint(k, execution)
        self._add_services()
        self._add_budget()
        self._add_deadline()
        self._add_objective(minimise, known)

    # --- variables ----------------------------------------------------------------------------

    def _literal(self) -> cp_model.IntVar:
        return self.program.new_bool_var("")

    def _executions_of(self, k: int) -> list[Execution]:
        timeline = self.timeline
        executions: list[Execution] = []
        again = range(k + 1, timeline.last[k] + 1)
        for number in range(min(self._intervals, 1 + len(again))):
            if number == 0:
                present, stage = self._always, self.program.new_constant(k)
            else:
                present, stage = self._literal(), self.program.new_int_var(again[0], again[-1], "")
                op = self.problem.graph.ops[k]
                self._costs.append((present, op.energy_j, op.time_s))
            if number > 1:
                before = executions[-1]
                self.program.add_implication(present, before.present)
                self.program.add(stage > before.stage).only_enforce_if(present)
            event = timeline.stage_length * stage + timeline.event(k, 0)
            executions.append(Execution(present, stage, event))
        return executions

    def _retentions_of(self, i: int) -> list[Retention]:
        problem, timeline = self.problem, self.timeline
        made, readers = problem.producer[i], timeline.readers[i]
        executions = self.executions[made] if made >= 0 else []
        last_read = max((timeline.event(j, timeline.last[j]) for j in readers), default=-1)
        retentions: list[Retention] = []
        first = timeline.event(made, made) if made >= 0 else BEGIN

        def end_after(event: int) -> cp_model.IntVar:
            return self.program.new_int_var(event, max(event, last_read + 1), "")

        if made >= 0 or problem.starts_in_ram[i]:
            begin = executions[0].event if executions else self.program.new_constant(BEGIN)
            retentions.append(
                self._retention(i, self._always, begin, end_after(first + 1), {0: self._always})
            )
        if not readers:
            return retentions
        if not problem.can_page_in[i] and made >= 0 and len(problem.writes[made]) == 1:
            # The retention is present exactly if the execution is.
            retentions += [
                self._retention(
                    i, again.present, again.event, end_after(first + 2), {number: again.present}
                )
                for number, again in enumerate(executions[1:], start=1)
            ]
        elif executions[1:] or problem.can_page_in[i]:
            while len(retentions) < self._intervals:
                start = self.program.new_int_var(first + 1, last_read, "")
                retentions.append(self._free_retention(i, executions, start, end_after(first + 1)))
        for before, after in itertools.pairwise(retentions):
            self.program.add_implication(after.present, before.present)
            self.program.add(after.start >= before.end).only_enforce_if(after.present)
        return retentions

    def _free_retention(
        self,
        i: int,
        executions: Sequence[Execution],
        start: cp_model.IntVar,
        end: cp_model.IntVar,
    ) -> Retention:
        """A retention that may begin with any execution except the first, or with a page-in."""
        present = self._literal()
        made_by = {}
        for number, execution in enumerate(executions[1:], start=1):
            made_by[number] = self._literal()
            self.program.add_implication(made_by[number], execution.present)
            self.program.add(start == execution.event).only_enforce_if(made_by[number])
        paged_in = None
        problem = self.problem
        page_in = problem.graph.tensors[i].page_in
        if problem.can_page_in[i]:
            assert page_in is not None
            paged_in = self._literal()
            self._costs.append((paged_in, page_in.energy_j, problem.page_in_due_s[i]))
        begins = [*made_by.values(), *([] if paged_in is None else [paged_in])]
        self.program.add_exactly_one([*begins, present.negated()])
        return self._retention(i, present, start, end, made_by, paged_in)

    def _retention(
        self,
        i: int,
        present: cp_model.IntVar,
        start: cp_model.LinearExpr,
        end: cp_model.IntVar,
        made_by: dict[int, cp_model.IntVar],
        paged_in: cp_model.IntVar | None = None,
    ) -> Retention:
        length = self.program.new_int_var(0, self.timeline.after_end, "")
        task = self.program.new_optional_interval_var(start, length, end, present, "")
        self._occupy(task, self.problem.size[i])
        return Retention(present, start, end, length, made_by, paged_in)

    # --- constraints --------------------------------------------------------------------------

    def _occupy(self, task: cp_model.IntervalVar, size: int) -> None:
        if size:
            self._tasks.append((task, size))

    def _at(self, execution: Execution, present: cp_model.IntVar, size: int) -> None:
        """Add ``size`` bytes to RAM during ``execution`` if ``present``."""
        if size:
            task = self.program.new_optional_fixed_size_interval_var(
                execution.event, 1, present, ""
            )
            self._occupy(task, size)

    def _add_page_out(self, i: int) -> None:
        tensor = self.problem.graph.tensors[i]
        if self.problem.starts_in_storage[i]:
            return
        paged_in = [r.paged_in for r in self.retentions[i] if r.paged_in is not None]
        must = tensor.persist == "storage"
        if must or paged_in:
            assert tensor.page_out is not None
            self.page_out[i] = self._always if must else self._literal()
            due_s = self.problem.page_out_due_s[i]
            self._costs.append((self.page_out[i], tensor.page_out.energy_j, due_s))
            for literal in paged_in:
                self.program.add_implication(literal, self.page_out[i])

    def _add_beginnings(self, i: int) -> None:
        """Link recomputations of tensor ``i`` to its retentions.

        Each recomputation of its op begins a retention, or the tensor is not needed and takes its
        bytes for that event only. Useless recomputations are excluded.
        """
        made = self.problem.producer[i]
        if made < 0 or self.timeline.stays[i]:
            return
        for number, execution in enumerate(self.executions[made][1:], start=1):
            begun = [r.made_by[number] for r in self.retentions[i] if number in r.made_by]
            if begun == [execution.present]:
                continue
            if len(self.problem.writes[made]) > 1:
                self.unneeded[i, number] = self._literal()
                begun.append(self.unneeded[i, number])
                self._at(execution, self.unneeded[i, number], self.problem.size[i])
            self.program.add_exactly_one([*begun, execution.present.negated()])

    def _add_reads(self, k: int, execution: Execution) -> None:
        for i in self.timeline.reads[k]:
            if self.timeline.stays[i]:
                continue
            retentions = self.retentions[i]
            if len(retentions) == 1:
                serving: list[cp_model.IntVar] = [execution.present]
            else:
                serving = [self._literal() for _ in retentions]
                self.program.add_exactly_one([*serving, execution.present.negated()])
            execution.served_by[i] = serving
            for literal, retention in zip(serving, retentions, strict=True):
                self.program.add_implication(literal, retention.present)
                self.program.add(retention.start <= execution.event).only_enforce_if(literal)
                if i in self.timeline.consumes[k]:
                    until = retention.end == execution.event
                else:
                    until = retention.end > execution.event
                self.program.add(until).only_enforce_if(literal)

    def _add_services(self) -> None:
        """Require that every retention other than the first serves a reader."""
        served: dict[tuple[int, int], list[cp_model.IntVar]] = {}
        for execution in itertools.chain.from_iterable(self.executions):
            for i, serving in execution.served_by.items():
                for number, literal in enumerate(serving):
                    served.setdefault((i, number), []).append(literal)
        for i, retentions in enumerate(self.retentions):
            for number, retention in enumerate(retentions):
                if 0 not in retention.made_by:
                    readers = served[i, number]
                    self.program.add_bool_or([*readers, retention.present.negated()])

    def _add_footprint(self, k: int, execution: Execution) -> None:
        """Add the bytes that an op needs beyond the tensors that it reads and writes.

        The bytes of a tensor that it writes over count with the tensor written, up to its size.
        """
        if k == self.timeline.end_op:
            return
        op, index, size = self.problem.graph.ops[k], self.problem.tensor_index, self.problem.size
        pairs = op.in_place.items()
        surplus = sum(max(0, size[index[read]] - size[index[written]]) for written, read in pairs)
        self._at(execution, execution.present, op.workspace_bytes + surplus)

    def _add_budget(self) -> None:
        sizes = [size for _, size in self._tasks]
        grain = math.gcd(*sizes) or 1
        self.program.add_cumulative(
            [task for task, _ in self._tasks],
            [size // grain for size in sizes],
            self.problem.budget.ram_bytes // grain,
        )

    # --- costs --------------------------------------------------------------------------------

    def _add_deadline(self) -> None:
        """Limit the time of the step to the deadline.

        Times are rounded down, which excludes no schedule. Half of the lateness that the referee
        tolerates is for sums of doubles in another order. The unit is so small that rounding times
        down makes no more than the other half of it.
        """
        deadline_s = self.problem.budget.deadline_s
        if deadline_s is None:
            return
        unit_s = deadline_s * _ROUNDING / (len(self._costs) + 2) or 1.0
        spare_s = deadline_s * (1 + _ROUNDING) - self.problem.least_time_s
        spare = math.floor(spare_s / unit_s) + 1
        times = [math.floor(min(time_s, 2 * deadline_s) / unit_s) for _, _, time_s in self._costs]
        literals = [literal for literal, _, _ in self._costs]
        self.program.add(cp_model.LinearExpr.weighted_sum(literals, times) <= spare)

    def _add_objective(self, minimise: Minimise, known: float) -> None:
        problem = self.problem
        energy = minimise == "energy"
        self.constant = problem.least_energy_j if energy else problem.least_time_s
        literals = [literal for literal, _, _ in self._costs]
        most = 2 * max(0.0, known - self.constant)
        costs = [min(most, energy_j if energy else time_s) for _, energy_j, time_s in self._costs]
        self.unit = _unit_of(costs, self.constant)
        whole = [math.floor(cost / self.unit) for cost in costs]
        self.program.minimize(cp_model.LinearExpr.weighted_sum(literals, whole))


def _unit_of(costs: Sequence[float], least: float) -> float:
    """Unit to whose multiples costs are rounded down; integers remain exact."""
    total = sum(costs)
    if total < _MOST and all(cost.is_integer() for cost in costs):
        return float(math.gcd(*map(int, costs)) or 1)
    return max(least * _FINEST, max(costs) * _FINEST, total / _MOST)
