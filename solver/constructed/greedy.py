"""Greedy schedules: compute in order, and free the tensor that is cheapest to restore.

The rule is that of swapping and recomputing memory managers such as Capuchin (Peng et al., ASPLOS
2020), with the next uses known. Whenever RAM runs out, the tensor is freed that costs least to
restore per byte and per distance to its next use. It is restored right before it is read, by paging
in or by recomputing its producer (and, recursively, what that reads), whichever was cheaper when it
was freed. The rule has a few parameters and one weight per tensor. The result is the best of many
runs with other parameters and random weights.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from solver.problem.graph import PageCost
from solver.problem.liveness import with_frees
from solver.problem.problem import Problem
from solver.problem.schedule import Action, Compute, PageIn, PageOut
from solver.referee.referee import RefereeError, verify
from solver.time_limit import OutOfTime, check_time

# Work is counted in evaluated costs of recomputation and in actions, so that the result does not
# depend on the speed of the computer. A million takes about a second. Chains grow with the graph.
_MOST_WORK_PER_RUN, _MOST_WORK_PER_RUN_AND_OP = 200_000, 1_000
# Work of all runs together, and of the first few, in runs of the longest kind.
_RUNS, _FIRST_RUNS = 5, 2
_MOST_PERTURBED_RUNS = 300
# Longer chains of recomputation are not considered.
_LONGEST_CHAIN = 100

# Most recomputations, each for the next. Evictions may join several such chains; Python's calls
# nest 1000 times, three for each recomputation.
_DEEPEST = 2 * _LONGEST_CHAIN


class _Stuck(Exception):
    """No room can be made, or a tensor cannot be restored."""


@dataclass(frozen=True)
class _Rule:
    """Parameters of the rule.

    ``seconds_worth_j`` is the cost of a second in joules if a deadline exists. ``reluctance`` is a
    factor for each tensor on its cost to restore.
    """

    paging: bool
    rematerialization: bool
    distance_exponent: float
    seconds_worth_j: float
    reluctance: tuple[float, ...]


def greedy_schedule(problem: Problem, *, thorough: bool = True) -> tuple[Action, ...] | None:
    """Find the best greedy schedule within the budget; None if no run finds one.

    Unless ``thorough``, only the first few runs that find any are tried. After the enforced time
    limit no run is begun or finished.
    """
    best: tuple[float, tuple[Action, ...], _Rule] | None = None
    op_count = len(problem.graph.ops)
    most_per_run = max(_MOST_WORK_PER_RUN, _MOST_WORK_PER_RUN_AND_OP * op_count)
    work_left = (_RUNS if thorough else _FIRST_RUNS) * most_per_run

    def attempt(rule: _Rule) -> None:
        nonlocal best, work_left
        run = _Run(problem, rule, min(work_left, most_per_run))
        try:
            without_frees = _pages_out_early(problem, _needed(problem, run.actions()))
            actions = with_frees(problem.graph, without_frees)
            energy_j = verify(problem.graph, actions, problem.budget).energy_j
        except (_Stuck, RefereeError):
            return
        finally:
            work_left -= run.work_done
        if best is None or energy_j < best[0]:
            best = (energy_j, actions, rule)

    def attempt_all() -> None:
        for paging, rematerialization in _freedoms(problem):
            for rule in _rules(problem, paging, rematerialization):
                attempt(rule)
            if best is not None and not thorough:
                return
        if best is None:
            return
        chance = random.Random(0)  # noqa: S311
        for _ in range(_MOST_PERTURBED_RUNS):
            if work_left <= 0:
                return
            attempt(_perturbed(best[2], chance))

    with suppress(OutOfTime):
        attempt_all()
    return None if best is None else best[1]


def _freedoms(problem: Problem) -> Iterator[tuple[bool, bool]]:
    """Whether to page by choice and whether to recompute: all that is allowed first, then less."""
    for paging in sorted({problem.budget.paging, False}, reverse=True):
        for rematerialization in sorted({problem.budget.rematerialization, False}, reverse=True):
            yield paging, rematerialization


def _rules(problem: Problem, paging: bool, rematerialization: bool) -> Iterator[_Rule]:
    worths = [0.0]
    if problem.budget.deadline_s is not None and problem.least_time_s > 0:
        mean_power_w = problem.least_energy_j / problem.least_time_s
        worths += [mean_power_w, 10 * mean_power_w]
    neutral = (1.0,) * len(problem.graph.tensors)
    for worth in worths:
        for exponent in (1.0, 0.5, 0.0):
            yield _Rule(paging, rematerialization, exponent, worth, neutral)


def _perturbed(rule: _Rule, chance: random.Random) -> _Rule:
    """Change a random share of the weights by factors of about e."""
    share = chance.choice((0.02, 0.1, 0.5))
    weights = [
        weight * math.exp(chance.gauss(0, 1)) if chance.random() < share else weight
        for weight in rule.reluctance
    ]
    return replace(rule, reluctance=tuple(weights))


class _Run:
    """One run of one rule; tensors and ops are indices."""

    def __init__(self, problem: Problem, rule: _Rule, most_work: int) -> None:
        self.work_done = 0
        self._most_work = most_work
        self._problem = problem
        self._rule = rule
        self._size = problem.size
        self._tensors = problem.graph.tensors
        self._ops = problem.graph.ops
        end = len(self._ops)
        self._uses = [
            (*readers, end) if tensor.persist == "ram" else readers
            for readers, tensor in zip(problem.readers, self._tensors, strict=True)
        ]
        self._consumed_at = [end + 1] * len(self._tensors)
        for k, consumed in enumerate(problem.consumes):
            for i in consumed:
                self._consumed_at[i] = k
        self._op_cost = [self._cost(op.energy_j, op.time_s) for op in self._ops]
        self._page_in_cost = [
            self._page_cost(tensor.page_in, due_s) if possible else math.inf
            for tensor, due_s, possible in zip(
                self._tensors, problem.page_in_due_s, problem.can_page_in, strict=True
            )
        ]
        self._page_out_cost = [
            self._page_cost(tensor.page_out, due_s) if possible and rule.paging else math.inf
            for tensor, due_s, possible in zip(
                self._tensors, problem.page_out_due_s, problem.can_page_out, strict=True
            )
        ]
        self._resident = {i for i, starts in enumerate(problem.starts_in_ram) if starts}
        self._stored = {i for i, starts in enumerate(problem.starts_in_storage) if starts}
        self._used_bytes = sum(self._size[i] for i in self._resident)
        self._pinned: list[int] = []
        self._nested = 0
        self._now = 0
        self._done: list[Action] = []

    def actions(self) -> list[Action]:
        """Build the actions. Raises :class:`_Stuck`."""
        problem = self._problem
        self._save(sorted(self._resident))
        for k in range(len(self._ops)):
            self._now = k
            self._compute(k)
            self._save(problem.writes[k])
        self._now = len(self._ops)
        self._gather([i for i, t in enumerate(self._tensors) if t.persist == "ram"])
        return self._done

    # --- actions ------------------------------------------------------------------------------

    def _save(self, tensors: Sequence[int]) -> None:
        for i in tensors:
            if self._tensors[i].persist == "storage" and i not in self._stored:
                self._page_out(i)

    def _page_out(self, i: int) -> None:
        self._done.append(PageOut(tensor=self._tensors[i].name))
        self._stored.add(i)

    def _compute(self, k: int) -> None:
        problem, op = self._problem, self._ops[k]
        mark = len(self._pinned)
        if self._nested > _DEEPEST:
            raise _Stuck
        self._nested += 1
        self._work()
        self._gather(problem.reads[k])
        made = [i for i in problem.writes[k] if i not in self._resident]
        self._pinned += problem.writes[k]
        # In place, only the bytes of the new tensor beyond those of the old one are new.
        self._make_room(sum(self._size[i] for i in made) + problem.extra_bytes[k])
        self._done.append(Compute(op=op.name))
        for i in made:
            self._hold(i)
        for i in problem.consumes[k]:
            self._drop(i)
        del self._pinned[mark:]
        self._nested -= 1

    def _gather(self, tensors: Sequence[int]) -> None:
        """Bring all ``tensors`` into RAM together, pinned.

        Those to recompute come first, since they temporarily take the most room.
        """
        missing = [i for i in tensors if i not in self._resident]
        self._pinned += [i for i in tensors if i in self._resident]
        for i in sorted(missing, key=lambda i: i in self._stored):
            if i not in self._resident:
                self._restore(i)
            self._pinned.append(i)

    def _restore(self, i: int) -> None:
        producer = self._problem.producer[i]
        if i in self._stored:
            self._make_room(self._size[i])
            self._done.append(PageIn(tensor=self._tensors[i].name))
            self._hold(i)
        elif producer >= 0 and self._problem.recomputable[producer]:
            self._compute(producer)
        else:
            raise _Stuck

    def _make_room(self, extra_bytes: int) -> None:
        while self._used_bytes + extra_bytes > self._problem.budget.ram_bytes:
            i = self._cheapest_to_give_up()
            if self._next_use(i) is not None and i not in self._stored:
                paging = self._page_out_cost[i] + self._page_in_cost[i]
                use = self._next_use(i)
                assert use is not None
                if paging <= self._recomputing(i, use, {}, 0):
                    self._page_out(i)
            self._drop(i)

    def _hold(self, i: int) -> None:
        self._resident.add(i)
        self._used_bytes += self._size[i]

    def _drop(self, i: int) -> None:
        self._resident.discard(i)
        self._used_bytes -= self._size[i]

    def _work(self) -> None:
        check_time()
        self.work_done += 1
        if self.work_done > self._most_work:
            raise _Stuck

    # --- decisions ----------------------------------------------------------------------------

    def _cheapest_to_give_up(self) -> int:
        check_time()
        best, best_score = -1, math.inf
        pinned = set(self._pinned)
        memo: dict[int, dict[int, float]] = {}
        for i in sorted(self._resident):
            if not self._size[i] or i in pinned:
                continue
            use = self._next_use(i)
            if use is None:
                return i
            if i in self._stored:
                cost = self._page_in_cost[i]
            else:
                paging = self._page_out_cost[i] + self._page_in_cost[i]
                cost = min(paging, self._recomputing(i, use, memo.setdefault(use, {}), 0))
            distance = (use - self._now + 1) ** self._rule.distance_exponent
            score = cost * self._rule.reluctance[i] / (self._size[i] * distance)
            if score < best_score:
                best, best_score = i, score
        if best < 0:
            raise _Stuck
        return best

    def _next_use(self, i: int) -> int | None:
        uses = self._uses[i]
        position = bisect_left(uses, self._now)
        return uses[position] if position < len(uses) else None

    def _recomputing(self, i: int, use: int, memo: dict[int, float], depth: int) -> float:
        """Cost of recomputing ``i`` right before op ``use``, in the current state."""
        if i in memo:
            return memo[i]
        memo[i] = math.inf
        self._work()
        k = self._problem.producer[i]
        if (
            k < 0
            or depth > _LONGEST_CHAIN
            or not (self._rule.rematerialization and self._problem.recomputable[k])
        ):
            return math.inf
        cost = self._op_cost[k]
        for read in self._problem.reads[k]:
            if self._will_be_there(read, use):
                continue
            if read in self._stored:
                cost += self._page_in_cost[read]
            else:
                cost += self._recomputing(read, use, memo, depth + 1)
            if cost == math.inf:
                break
        memo[i] = cost
        return cost

    def _will_be_there(self, i: int, use: int) -> bool:
        if i not in self._resident or self._consumed_at[i] < use:
            return False
        return not self._size[i] or bool(self._uses[i] and self._uses[i][-1] >= use)

    def _cost(self, energy_j: float, time_s: float) -> float:
        return energy_j + self._rule.seconds_worth_j * time_s

    def _page_cost(self, cost: PageCost | None, due_s: float) -> float:
        return math.inf if cost is None else self._cost(cost.energy_j, due_s)


def _needed(problem: Problem, actions: Sequence[Action]) -> list[Action]:
    """Remove actions whose result no later action needs, except first executions."""
    graph = problem.graph
    ops = {op.name: op for op in graph.ops}
    seen: set[str] = set()
    first = []
    for action in actions:
        first.append(isinstance(action, Compute) and action.op not in seen)
        if isinstance(action, Compute):
            seen.add(action.op)
    in_ram = {t.name for t in graph.tensors if t.persist == "ram"}
    in_storage = {t.name for t in graph.tensors if t.persist == "storage"}
    kept: list[Action] = []
    for action, is_first in zip(reversed(actions), reversed(first), strict=True):
        match action:
            case Compute():
                op = ops[action.op]
                if not is_first and in_ram.isdisjoint(op.writes):
                    continue
                in_ram.difference_update(op.writes)
                in_ram.update(op.reads)
            case PageIn():
                if action.tensor not in in_ram:
                    continue
                in_ram.discard(action.tensor)
                in_storage.add(action.tensor)
            case PageOut():
                if action.tensor not in in_storage:
                    continue
                in_storage.discard(action.tensor)
                in_ram.add(action.tensor)
        kept.append(action)
    return kept[::-1]


def _pages_out_early(problem: Problem, actions: Sequence[Action]) -> list[Action]:
    """Move each page-out to right after the tensor is first written, so it can be freed earlier."""
    graph = problem.graph
    ops = {op.name: op for op in graph.ops}
    paged_out = {action.tensor: action for action in actions if isinstance(action, PageOut)}
    result: list[Action] = []

    def page_out(names: Iterable[str]) -> None:
        result.extend(paged_out.pop(name) for name in names if name in paged_out)

    page_out([name for name in paged_out if name not in graph.producer])
    for action in actions:
        if not isinstance(action, PageOut):
            result.append(action)
        if isinstance(action, Compute):
            page_out(ops[action.op].writes)
    return result
