"""Costs of operations measured in context: within a schedule, not in a loop of their own.

In a loop of its own an operation finds either all or none of its operands in the caches; in a
schedule that depends on the operations before it. The cost of a step is a sum over executions, so
the cost of an operation has to be such that its executions in one step add up to their total time.
A trial is therefore a step: the mean over the operation's executions in that step. These executions
differ systematically, so that a multiple of their median would not be their sum. Over steps, the
median is taken. Medians of each execution over steps, added up, would leave out delays that hit now
one execution, now another, although every step contains some.

All steps are of one sitting. The interval of the median, by the bootstrap, decides how many are
run; the cost's interval is that of a later sitting, with the spread between sittings of the
operation in its places, or by itself (:func:`~profiler.statistics.interval_after_one_sitting`).

Joules are seconds × the power of the operation within the steps (:mod:`replay.costs.power`). The
factor of the power, too, is that of a later sitting, if several sittings of a step have one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

from devices.documents.document import DocumentError
from devices.errors import MeasurementInvalid, RequestRefused
from devices.operation import OpSpec
from devices.profile import (
    BoardIdentity,
    Build,
    ContextCost,
    Cost,
    DeviceProfile,
    EnergySource,
    Interval,
    OperationCost,
    PlaceCost,
    PowerInContext,
    StepCosts,
)
from devices.replay import ExpectedAction, MeasuredStep
from profiler.run.assembly import FEWEST_TRIALS
from profiler.statistics import interval_after_one_sitting, median_interval
from replay.costs.context import power_factor
from replay.costs.power import MeteredSteps, power_in_context, product
from replay.costs.sittings import times_of
from replay.reporting.timing import ScheduledActions
from solver.costing.situation import BY_ITSELF, Situation

FEWEST_STEPS = 10
MOST_STEPS = 100
"""A limit, since steps of schedules that page wear the storage."""

LIMIT_S = 60.0
"""Seconds after which no further steps are started."""

NARROW = 0.02
"""Half width of an interval over its median, below which no further steps are run."""

_SAME = 1e-6
_SHOWN_HASH = 12
_NOTE = "In context: "

RunSteps = Callable[[int], Sequence[MeasuredStep]]


@dataclass(frozen=True)
class Executions:
    """Executions of the measured operations: indices of the schedule's actions by cost key."""

    actions: ScheduledActions
    of_key: Mapping[str, tuple[int, ...]]

    @classmethod
    def of(
        cls, actions: ScheduledActions, expected: Sequence[ExpectedAction], keys: Iterable[str]
    ) -> Executions:
        """Find the executions of ``keys``. Raises :class:`ValueError` for one never executed."""
        found = {
            key: tuple(action.schedule_index for action in expected if action.cost_key == key)
            for key in keys
        }
        for key, own in found.items():
            if not own:
                raise ValueError(f"the schedule never executes {key}")
        return cls(actions, found)

    def times_s(self, key: str, steps: Sequence[MeasuredStep]) -> list[float]:
        """Mean seconds of an execution of ``key``, for each of the watched steps."""
        watched = [self.actions.watched(step).spans for step in steps]
        own = self.of_key[key]
        return [math.fsum(spans[index].time_s for index in own) / len(own) for spans in watched]

    def time_s(self, key: str, steps: Sequence[MeasuredStep]) -> Interval:
        """Seconds of one execution of ``key``: median over the steps, with its interval."""
        return median_interval(self.times_s(key, steps))


def measure_in_context(
    run_steps: RunSteps,
    executions: Executions,
    on_progress: Callable[[str], None] = lambda _what: None,
) -> tuple[MeasuredStep, ...]:
    """Run watched steps until the interval of every operation is narrow, ``FEWEST_STEPS`` at once.

    Ends at the latest after ``MOST_STEPS`` steps, or with the round that exceeds ``LIMIT_S``.

    Args:
        run_steps: runs the given number of watched steps, returns the undisturbed ones; its
            exceptions are passed on.
        executions: the operations to measure.
        on_progress: called with one line for each round of steps.

    Raises:
        MeasurementInvalid: fewer than ``FEWEST_TRIALS`` steps were undisturbed.
    """
    steps: list[MeasuredStep] = []
    done = 0
    began_s = time.monotonic()
    while done < MOST_STEPS and not _is_known(executions, steps):
        if done and time.monotonic() - began_s >= LIMIT_S:
            break
        wanted = min(FEWEST_STEPS, MOST_STEPS - done)
        on_progress(f"running steps {done + 1} to {done + wanted} of at most {MOST_STEPS}")
        steps += run_steps(wanted)
        done += wanted
    if len(steps) < FEWEST_TRIALS:
        raise MeasurementInvalid(
            f"{executions.actions.plan.name}: {len(steps)} of {done} steps were undisturbed,"
            f" {FEWEST_TRIALS} are needed. Remove the cause (pin the frequency, cool the board,"
            " check its power supply, end other programs) and start the same command again"
        )
    return tuple(steps)


def _is_known(executions: Executions, steps: Sequence[MeasuredStep]) -> bool:
    if len(steps) < FEWEST_TRIALS:
        return False
    intervals = (executions.time_s(key, steps) for key in executions.of_key)
    return all(i.high - i.low <= 2 * NARROW * i.median for i in intervals)


@dataclass(frozen=True)
class Provenance:
    """Where and when costs in context were measured, as a profile states it."""

    schedule: str
    run: str
    measured: str


@dataclass(frozen=True)
class Refinement:
    """Cost of an operation before (the cost that was used until now) and after refinement."""

    op: str
    before: Cost
    now: ContextCost

    @property
    def ratio(self) -> float:
        """New time over the time before; infinite where the time before was zero."""
        before_s = self.before.time_s.median
        return self.now.time_s.median / before_s if before_s else math.inf


def refinable(
    profile: DeviceProfile, costs_s: Mapping[str, float], keys: Sequence[str], source: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Split operations into those that a profile has measured, and those that were predicted.

    Args:
        profile: the profile to refine.
        costs_s: seconds of each operation, by cost key, that the run's schedule was solved with.
        keys: the cost keys that the run's report names.
        source: name of the run, for messages.

    Returns:
        The measured keys, and those that are not in the profile.

    Raises:
        DocumentError: the profile has another cost than ``costs_s``: it is another profile, or was
            measured or refined since.
    """
    measured = {operation.op for operation in profile.operations}
    known = [key for key in keys if key in measured]
    # One that is carried over into a step depends on its situation there.
    carried = [
        _costs_in_use(profile, known, Situation(lost, overwrites, code_lost))
        for lost in (0.0, 1.0)
        for code_lost in (0.0, 1.0)
        for overwrites in (False, True)
    ]
    used = carried[0]
    for key, cost in used.items():
        now_s = cost.time_s.median
        in_places_s = [place.time_s.median for place in profile.place.values() if place.key == key]
        ends_s = [own[key].time_s.median for own in carried]
        nearest_s = min(max(min(ends_s), costs_s[key]), max(ends_s))
        known_s = (nearest_s, *in_places_s)
        if not any(math.isclose(each_s, costs_s[key], rel_tol=_SAME) for each_s in known_s):
            raise DocumentError(
                f"{source}: {key} takes {costs_s[key]:.6g} s in the run's graph, but {now_s:.6g} s"
                f" in profile {profile.name!r}: the profile was measured or refined after that"
                " run, or is another one. Solve and run again, and refine that run"
            )
    return tuple(used), tuple(key for key in keys if key not in measured)


def measured_build(profile: DeviceProfile) -> Build:
    """Build record of the profiled kernels.

    Raises:
        RequestRefused: the profile has none.
    """
    if profile.build is None:
        raise RequestRefused(
            f"profile {profile.name!r} does not say which kernels were measured, so that no new"
            " costs can be added to it: profile the board"
        )
    return profile.build


def require_same_kernels(profile: DeviceProfile, build: Build) -> None:
    """Check that a profile was measured with these kernels.

    Raises:
        RequestRefused: the profile was measured with other kernels.
    """
    profiled = measured_build(profile).kernels_sha256
    if profiled != build.kernels_sha256:
        raise RequestRefused(
            f"profile {profile.name!r} is of kernels {profiled[:_SHOWN_HASH]}, the board's are"
            f" {build.kernels_sha256[:_SHOWN_HASH]} now: sources or flags have changed, so that the"
            " costs are unknown",
            remedy="profile the board again",
        )


def require_same_board(
    profile: DeviceProfile, board: BoardIdentity, energy_source: EnergySource | None
) -> None:
    """Check that a profile was measured on this board, with this kind of meter.

    Args:
        profile: the profile to refine.
        board: the connected board's identity.
        energy_source: the connected meter's energy source; None without a meter.

    Raises:
        RequestRefused: the profile is of another board, or its energy was measured and the board
            has no meter now.
    """
    for what in ("model", "serial", "cpu"):
        then, now = getattr(profile.board, what), getattr(board, what)
        if then != now:
            raise RequestRefused(
                f"profile {profile.name!r} is of a board whose {what} is {then!r}, this board's is"
                f" {now!r}: a profile holds costs of one board only. Profile this board"
            )
    if profile.energy_source == "measured" and energy_source != "measured":
        raise RequestRefused(
            f"the energies of profile {profile.name!r} are measured, and the board has no meter"
            " now: describe the meter again, or profile the board without it"
        )


def require_same_board_and_kernels(
    profile: DeviceProfile, board: BoardIdentity, build: Build, energy_source: EnergySource | None
) -> None:
    """Check that a profile was measured on this board, with this kind of meter and these kernels.

    Raises:
        RequestRefused: as :func:`require_same_board` and :func:`require_same_kernels`.
    """
    require_same_board(profile, board, energy_source)
    require_same_kernels(profile, build)


def refine_profile(
    profile: DeviceProfile,
    steps: Sequence[MeasuredStep],
    executions: Executions,
    provenance: Provenance,
) -> tuple[DeviceProfile, tuple[Refinement, ...]]:
    """Add costs in context to a profile; all other costs stay, also those in isolation.

    Costs of these operations in places of watched steps are of other contexts, and are left out.

    Args:
        profile: the profile.
        steps: undisturbed watched steps.
        executions: the measured operations.
        provenance: schedule, run and date, as the profile states them.

    Returns:
        The refined profile, and the cost before and after for each operation.
    """
    keys = [each.op for each in profile.operations if each.op in executions.of_key]
    used = _costs_in_use(profile, keys)
    found: list[Refinement] = []
    operations: list[OperationCost] = []
    for operation in profile.operations:
        if operation.op in used:
            context = _context_cost(profile, operation, steps, executions, provenance)
            found.append(Refinement(operation.op, used[operation.op], context))
            operation = operation.model_copy(update={"in_context": context})
        operations.append(operation)
    step_costs = [_without(step, executions.of_key) for step in profile.step_costs]
    refined = profile.changed(operations=operations, step_costs=step_costs)
    notes = [note for note in profile.notes if not note.startswith(_NOTE)]
    return refined.changed(notes=(*notes, _note(refined))), tuple(found)


def _without(step: StepCosts, keys: Container[str]) -> StepCosts:
    places = tuple(place for place in step.places if place.key not in keys)
    return step.model_copy(update={"places": places})


def _costs_in_use(
    profile: DeviceProfile, keys: Iterable[str], situation: Situation = BY_ITSELF
) -> dict[str, Cost]:
    """Costs that a graph takes of measured operations, by key; of several places, a middle one's.

    That of an operation which was not watched may be carried over into a step, in a situation
    there; its trials are those of the operation by itself.
    """
    from solver.costing.costing import cost_in_step
    from solver.costing.model import CostModel

    model = CostModel(profile)
    found = {}
    for key in keys:
        spec = OpSpec.parse(key)
        alone = profile.by_spec[spec].cost(profile.cost_basis)
        cost = cost_in_step(profile, model, spec, situation) or alone
        if not isinstance(cost, Cost):
            trials = len(cost.sittings_s) if isinstance(cost, PlaceCost) else alone.trials
            cost = Cost(time_s=cost.time_s, energy_j=cost.energy_j, trials=trials)
        found[key] = cost
    return found


def _context_cost(
    profile: DeviceProfile,
    operation: OperationCost,
    steps: Sequence[MeasuredStep],
    executions: Executions,
    provenance: Provenance,
) -> ContextCost:
    within_s = executions.time_s(operation.op, steps)
    time_s = interval_after_one_sitting(within_s, _between_sittings(profile, operation))
    factors = MeteredSteps.of(executions.actions.plan, steps).power_factors(profile)
    in_steps = None
    if factors:
        within = median_interval(factors)
        in_steps = interval_after_one_sitting(within, _factors_of_sittings(profile))
    power, power_w = power_in_context(profile, operation.isolated(profile.cost_basis), in_steps)
    return ContextCost(
        time_s=time_s,
        energy_j=None if power_w is None else product(time_s, power_w),
        trials=len(steps),
        executions=len(executions.of_key[operation.op]),
        power=power,
        schedule=provenance.schedule,
        run=provenance.run,
        measured=provenance.measured,
    )


def _between_sittings(
    profile: DeviceProfile, operation: OperationCost
) -> list[tuple[Interval, Sequence[int]]]:
    """Intervals of an operation's costs in sittings, with their times: in its places if known.

    A cost in context took the place of those in places. Its interval has their spread if it states
    degrees of freedom; else it is that of one sitting, as in earlier releases.
    """
    in_places: list[tuple[Interval, Sequence[int]]] = []
    for step in profile.step_costs:
        times = times_of(step.sittings_of_ops)
        in_places += [
            (place.time_s, times[len(times) - len(place.sittings_s) :])
            for place in step.places
            if place.key == operation.op
        ]
    if in_places:
        return in_places
    if operation.in_context is not None and operation.in_context.time_s.freedom is not None:
        return [(operation.in_context.time_s, range(1))]
    isolated = operation.isolated(profile.cost_basis)
    return [(isolated.time_s, range(isolated.trials))]


def _factors_of_sittings(profile: DeviceProfile) -> list[tuple[Interval, Sequence[int]]]:
    """Intervals of the power factor of each watched step, with the times of its sittings."""
    found: list[tuple[Interval, Sequence[int]]] = []
    for step in profile.step_costs:
        if (factor := power_factor(step.sittings)) is not None:
            metered = [each for each in step.sittings if each.power_factor is not None]
            found.append((factor, times_of(metered)))
    return found


_POWER_WORDS: Mapping[PowerInContext, str] = {
    "scaled to the steps": "their power in isolation, scaled to that of the steps",
    "mean of the steps": "the mean power of the steps, taken to be constant within a step",
    "in isolation": "their power in isolation",
    "nominal": "nominal power",
}


def _note(profile: DeviceProfile) -> str:
    costs = [operation.in_context for operation in profile.refined if operation.in_context]
    counted = f"{len(costs)} of {len(profile.operations)} operations"
    used = [power for power in _POWER_WORDS if any(cost.power == power for cost in costs)]
    words = " or ".join(_POWER_WORDS[power] for power in used)
    joules = f"; their joules are seconds × {words}" if words else ""
    return f"{_NOTE}costs of {counted} were measured within a schedule{joules}."
