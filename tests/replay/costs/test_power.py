"""Powers of operations within a step: they add up to what the meter shows."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from devices.operation import OpSpec
from devices.plan import Action, ArenaRange, Compute, ExecutionPlan, PageIn, PageOut
from devices.profile import Cost, DeviceProfile, Interval, OperationCost
from devices.replay import MeasuredStep, Span
from replay.costs.power import MeteredSteps, power_in_context
from tests.support.graphs.profiles import made_up_profile

SPECS = tuple(OpSpec.of("relu.forward", elements=64 << number) for number in range(4))
UNKNOWN = OpSpec.of("add.forward", elements=64)

POWERS = st.floats(0.1, 10.0)
TIMES = st.floats(1e-6, 1.0)


def profile_of(powers_w: list[float]) -> DeviceProfile:
    """A profile whose operations have these powers by themselves."""
    operations = [
        OperationCost(op=spec.key, workspace_bytes=0, warm=cost, cold=cost)
        for spec, power_w in zip(SPECS, powers_w, strict=True)
        for cost in [cost_of(1e-3, power_w)]
    ]
    return made_up_profile([UNKNOWN], "measured").changed(operations=operations)


def cost_of(time_s: float, power_w: float) -> Cost:
    return Cost(time_s=Interval.exact(time_s), energy_j=Interval.exact(time_s * power_w), trials=5)


def plan_of(*actions: Compute | PageIn | PageOut) -> ExecutionPlan:
    return ExecutionPlan("step", 1 << 20, {}, (), tuple(map(Action, actions)))


def compute(spec: OpSpec) -> Compute:
    return Compute("op", spec, (0,) * len(spec.reads), (0,), None, {})


def step_of(times_s: list[float], energy_j: float, other_s: float = 0.0) -> MeasuredStep:
    starts_s = [math.fsum(times_s[:number]) for number in range(len(times_s))]
    spans = tuple(map(Span, starts_s, times_s))
    return MeasuredStep(math.fsum(times_s) + other_s, energy_j, spans)


@settings(derandomize=True)
@given(
    st.lists(POWERS, min_size=4, max_size=4),
    st.lists(st.tuples(st.integers(0, 3), TIMES), min_size=1, max_size=12),
    st.floats(0.5, 2.0),
)
def test_powers_that_all_change_alike_are_found(
    powers_w: list[float], executed: list[tuple[int, float]], factor: float
) -> None:
    joules = math.fsum(factor * powers_w[number] * time_s for number, time_s in executed)
    profile, plan = profile_of(powers_w), plan_of(*(compute(SPECS[n]) for n, _ in executed))
    (found,) = MeteredSteps.of(plan, [step_of([s for _, s in executed], joules)]).power_factors(
        profile
    )
    assert found == pytest.approx(factor)
    for number, operation in enumerate(profile.operations):
        source, power_w = power_in_context(profile, operation.cold, Interval.exact(found))
        assert source == "scaled to the steps"
        assert power_w is not None
        assert power_w.median == pytest.approx(factor * powers_w[number])


@settings(derandomize=True)
@given(TIMES, TIMES, TIMES)
def test_what_is_unknown_draws_as_much_as_the_rest(
    known_s: float, unknown_s: float, other_s: float
) -> None:
    profile, plan = profile_of([3.0] * 4), plan_of(compute(SPECS[0]), compute(UNKNOWN))
    all_s = known_s + unknown_s + other_s
    (found,) = MeteredSteps.of(
        plan, [step_of([known_s, unknown_s], 6.0 * all_s, other_s)]
    ).power_factors(profile)
    assert found == pytest.approx(2.0)


def test_transfers_have_powers_of_their_own() -> None:
    profile = profile_of([4.0] * 4)
    assert profile.storage is not None
    block = ArenaRange(0, 8192)
    plan = plan_of(compute(SPECS[0]), PageOut("a", block, slot=0), PageIn("a", block, slot=0))
    (write_s, write_j), (read_s, read_j) = (
        profile.storage.write_cost(8192),
        profile.storage.read_cost(8192),
    )
    assert write_j is not None
    assert read_j is not None
    step = step_of([1e-3, 2 * write_s, read_s], 1.5 * (4e-3 + 2 * write_j + read_j))
    assert MeteredSteps.of(plan, [step]).power_factors(profile) == pytest.approx((1.5,))


def test_copies_after_the_step_are_no_part_of_it() -> None:
    """A step has a span for each of them, and no energy."""
    profile, page_out = profile_of([4.0] * 4), PageOut("a", ArenaRange(0, 8192), slot=0)
    plan = replace(plan_of(compute(SPECS[0])), afterwards=(Action(page_out),))
    within = step_of([1e-3], 6e-3)
    step = replace(within, spans=(*within.spans, Span(1e-3, 5e-3)))
    assert MeteredSteps.of(plan, [step]).power_factors(profile) == pytest.approx((1.5,))


def test_a_transfer_beside_an_operation_adds_to_its_energy() -> None:
    profile = profile_of([4.0] * 4)
    assert profile.storage is not None
    read_s, read_j = profile.storage.read_cost(8192)
    assert read_j is not None
    plan = plan_of(PageIn("a", ArenaRange(0, 8192), slot=0, asynchronous=True), compute(SPECS[0]))
    step = MeasuredStep(read_s, read_j + 4.0 * read_s, (Span(0.0, read_s), Span(0.0, read_s)))
    assert MeteredSteps.of(plan, [step]).power_factors(profile) == pytest.approx((1.0,))


def test_steps_without_an_energy_have_no_factor() -> None:
    plan, profile = plan_of(compute(SPECS[0])), profile_of([3.0] * 4)
    without = MeasuredStep(1e-3, None, (Span(0.0, 1e-3),))
    assert MeteredSteps.of(plan, [without, step_of([1e-3], 3e-3)]).power_factors(
        profile
    ) == pytest.approx((1.0,))
    assert (
        MeteredSteps.of(plan_of(compute(UNKNOWN)), [step_of([1e-3], 3e-3)]).power_factors(profile)
        == ()
    )


@settings(derandomize=True)
@given(st.floats(0.0, 0.5), st.floats(0.0, 0.5))
def test_the_interval_of_a_power_is_what_time_leaves_of_the_energys(
    of_time: float, of_power: float
) -> None:
    both = math.hypot(of_time, of_power)
    cost = Cost(
        time_s=Interval(median=1.0, low=1 - of_time, high=1 + of_time),
        energy_j=Interval(median=3.0, low=3 * (1 - both), high=3 * (1 + both)),
        trials=5,
    )
    source, power_w = power_in_context(made_up_profile([UNKNOWN], "measured"), cost, None)
    assert source == "in isolation"
    assert power_w is not None
    assert power_w.median == pytest.approx(3.0)
    assert power_w.low == pytest.approx(3 * (1 - of_power), abs=1e-6)
    assert power_w.high == pytest.approx(3 * (1 + of_power), abs=1e-6)
