"""Power of operations within a training step.

A meter resolves steps, but not single operations. What operations draw by themselves is known from
loops of each, which are long enough for the meter. In a step they are taken to draw powers in the
same ratios, all multiplied by one factor, with which the energies of the step's actions add up to
what the meter shows. The factor stands for what a step changes for all of them: clock, temperature,
supply and caches.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from devices.documents.document import StrictModel
from devices.plan import Compute, ExecutionPlan, PageIn, PageOut
from devices.profile import Cost, DeviceProfile, Interval, PowerInContext
from devices.quantities import NonNegative, Size
from devices.replay import MeasuredStep


class Work(StrictModel):
    """Work of an action whose power a profile may state: an operation, a read, or a write.

    All attributes are None for an action that does something else, such as a move in RAM.

    Attributes:
        operation: key of the operation that it computes.
        read_bytes: bytes that it reads from storage.
        written_bytes: bytes that it writes to storage.
    """

    operation: str | None = None
    read_bytes: Size | None = None
    written_bytes: Size | None = None


class MeteredStep(StrictModel):
    """Seconds and joules of a watched step, and start and seconds of each of its actions."""

    time_s: NonNegative
    energy_j: NonNegative
    spans: tuple[tuple[float, NonNegative], ...]


class MeteredSteps(StrictModel):
    """Watched steps of a plan that a meter measured.

    Attributes:
        work: what each action of the plan does.
        steps: the steps, with a span for each action.
    """

    work: tuple[Work, ...] = ()
    steps: tuple[MeteredStep, ...] = ()

    @classmethod
    def of(cls, plan: ExecutionPlan, steps: Sequence[MeasuredStep]) -> MeteredSteps:
        """Those of the watched ``steps`` that have an energy.

        What a plan does after a step is no part of the step's energy, and is left out.
        """
        metered = tuple(
            MeteredStep(
                time_s=step.time_s,
                energy_j=step.energy_j,
                spans=tuple((s.start_s, s.time_s) for s in step.spans[: len(plan.actions)]),
            )
            for step in steps
            if step.energy_j is not None
        )
        if not metered:
            return cls()
        return cls(work=tuple(_work(action.does) for action in plan.actions), steps=metered)

    def power_factors(self, profile: DeviceProfile) -> tuple[float, ...]:
        """The energy of each step over what its actions would take with their powers by themselves.

        Actions without a known power, and the time of a step outside of its actions, are taken to
        draw as much as the others. No factor is known of a step without actions of known power.

        Args:
            profile: costs of operations and transfers by themselves.
        """
        powers_w = _powers_by_themselves(self.work, profile)
        factors = []
        for step in self.steps:
            known = [
                (span, power_w)
                for span, power_w in zip(step.spans, powers_w, strict=True)
                if power_w is not None
            ]
            expected_j = math.fsum(time_s * power_w for (_, time_s), power_w in known)
            if expected_j > 0:
                covered = _covered_s([span for span, _ in known]) / step.time_s
                factors.append(covered * step.energy_j / expected_j)
        return tuple(factors)


def _work(does: object) -> Work:
    match does:
        case Compute(spec=spec):
            return Work(operation=spec.costed_as.key)
        case PageIn(block=block):
            return Work(read_bytes=block.bytes)
        case PageOut(block=block):
            return Work(written_bytes=block.bytes)
    return Work()


def power_in_context(
    profile: DeviceProfile, isolated: Cost, factor: Interval | None
) -> tuple[PowerInContext | None, Interval | None]:
    """Source of an operation's power within a step, and the power in watts.

    Args:
        profile: the profile.
        isolated: cost of the operation by itself.
        factor: that of :meth:`MeteredSteps.power_factors`; None where no step was long enough for
            the meter. The power is the operation's by itself then.
    """
    if isolated.energy_j is None or isolated.time_s.median == 0:
        return None, None
    if profile.energy_source == "estimated":
        nominal_w = isolated.energy_j.median / isolated.time_s.median
        return "nominal", Interval.exact(nominal_w)
    own_w = _by_itself(isolated.energy_j, isolated.time_s)
    if factor is None:
        return "in isolation", own_w
    return "scaled to the steps", product(own_w, factor)


def product(one: Interval, other: Interval) -> Interval:
    """Product of independent quantities, such as the energy from time and power.

    Relative half widths add in quadrature (GUM, JCGM 100:2008, 5.1.6).
    """
    median = one.median * other.median
    if median == 0:
        return Interval.exact(0.0)
    below = math.hypot(*(1 - factor.low / factor.median for factor in (one, other)))
    above = math.hypot(*(factor.high / factor.median - 1 for factor in (one, other)))
    return Interval(median=median, low=max(0.0, median * (1 - below)), high=median * (1 + above))


def _by_itself(energy_j: Interval, time_s: Interval) -> Interval:
    """Power of an operation by itself, with what its time leaves of the energy's half widths."""
    power_w = energy_j.median / time_s.median
    if power_w == 0:
        return Interval.exact(0.0)
    below = _rest(1 - energy_j.low / energy_j.median, 1 - time_s.low / time_s.median)
    above = _rest(energy_j.high / energy_j.median - 1, time_s.high / time_s.median - 1)
    return Interval(median=power_w, low=power_w * (1 - below), high=power_w * (1 + above))


def _rest(whole: float, part: float) -> float:
    """The half width that makes up a whole with a part, in quadrature."""
    return math.sqrt(max(0.0, whole * whole - part * part))


def _powers_by_themselves(work: Sequence[Work], profile: DeviceProfile) -> list[float | None]:
    """Watts of each; None where the profile does not know them."""
    operations = {operation.op: operation for operation in profile.operations}
    storage = profile.storage
    powers_w = []
    for each in work:
        cost: tuple[float, float | None] = (0.0, None)
        if each.operation in operations:
            isolated = operations[each.operation].isolated(profile.cost_basis)
            energy_j = isolated.energy_j
            cost = isolated.time_s.median, None if energy_j is None else energy_j.median
        elif storage is not None and each.read_bytes is not None:
            cost = storage.read_cost(each.read_bytes)
        elif storage is not None and each.written_bytes is not None:
            cost = storage.write_cost(each.written_bytes)
        time_s, joules = cost
        powers_w.append(None if joules is None or time_s == 0 else joules / time_s)
    return powers_w


def _covered_s(spans: Sequence[tuple[float, float]]) -> float:
    """Seconds in which at least one of the spans runs; each has its start and its seconds."""
    covered_s = end_s = 0.0
    for start_s, time_s in sorted(spans):
        begins_s = max(start_s, end_s)
        end_s = max(end_s, start_s + time_s)
        covered_s += max(0.0, end_s - begins_s)
    return covered_s
