"""Predictions of a board's cost model, on boards whose true costs are known."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from devices.documents.document import dump_yaml
from devices.operation import SIGNATURES, OperationError, OpSpec
from devices.profile import (
    BoardIdentity,
    Cost,
    DeviceProfile,
    Interval,
    OperationCost,
    PlaceCost,
    ProfiledNetwork,
    Sitting,
    StepCosts,
)
from devices.quantities import Slices
from devices.results import Results
from devices.signatures.ranges import draw_attributes
from networks.training.slicing import sliced
from solver.costing.law import Law, fit_law
from solver.costing.model import CostModel
from solver.costing.situation import Situation
from solver.costing.terms import terms
from solver.requests.request import ProfiledModel
from solver.requests.subjects import read_subjects

KINDS = ("conv2d.forward", "linear.parameter_gradient", "batch_norm.forward", "relu.forward")


def drawn(kind: str, count: int, seed: int) -> list[OpSpec]:
    """Operations of a kind whose operands are not larger than a megabyte."""
    random_, found = random.Random(f"{kind} {seed}"), dict[OpSpec, None]()
    while len(found) < count:
        try:
            spec = OpSpec.of(kind, **draw_attributes(kind, random_))
        except OperationError:
            continue
        if spec.moved_bytes < 1 << 20 and spec.work_flop < 1e8:
            found[spec] = None
    return list(found)


def true_s(spec: OpSpec) -> float:
    """Time on a board with a rate for each kind, and vectors of eight columns."""
    rate = 1e8 * (1 + len(spec.kind) % 5)
    columns = spec.writes[0].shape[-1]
    padded = -(-columns // 8) * 8 / columns
    return 2e-6 + spec.work_flop * min(padded, 2.0) / rate + spec.moved_bytes / 5e8


def scattered(spec: OpSpec, scatter: float = 0.1) -> float:
    """The time with a deviation that an operation always has."""
    return true_s(spec) * math.exp(random.Random(spec.key).gauss(0, scatter))


def board(
    specs: Sequence[OpSpec],
    warm_s: Callable[[OpSpec], float] = scattered,
    cold_s: Callable[[OpSpec], float] | None = None,
    watts: Callable[[OpSpec], float] = lambda _: 2.0,
    steps: tuple[StepCosts, ...] = (),
) -> DeviceProfile:
    def cost(spec: OpSpec, time_s: float) -> Cost:
        energy_j = Interval.exact(time_s * watts(spec))
        return Cost(time_s=Interval.exact(time_s), energy_j=energy_j, trials=3)

    return DeviceProfile(
        name="bench",
        energy_source="emulated",
        board=BoardIdentity(model="test board", memory_bytes=2**30),
        cost_basis="warm",
        operations=tuple(
            OperationCost(
                op=spec.key,
                workspace_bytes=64,
                warm=cost(spec, warm_s(spec)),
                cold=cost(spec, (cold_s or warm_s)(spec)),
            )
            for spec in specs
        ),
        step_costs=steps,
    )


@cache
def measured() -> tuple[OpSpec, ...]:
    return tuple(spec for kind in KINDS for spec in drawn(kind, 40, seed=0))


@cache
def model() -> CostModel:
    return CostModel(board(measured()))


@cache
def smooth() -> CostModel:
    return CostModel(board([spec for spec in measured() if spec.family == "relu"], true_s))


def test_intervals_hold_the_costs_of_held_out_operations() -> None:
    held, errors = [], []
    for seed in range(1, 4):
        for kind in KINDS:
            for spec in drawn(kind, 25, seed):
                found = model().predict(spec).time_s
                held.append(found.low <= scattered(spec) <= found.high)
                errors.append(abs(math.log(found.median / scattered(spec))))
    assert np.mean(held) >= 0.9
    assert np.median(errors) < math.log(1.15)


@given(st.sampled_from(sorted(SIGNATURES)), st.integers(0, 10**6))
@settings(max_examples=100, deadline=None, derandomize=True)
def test_any_operation_has_a_prediction_within_its_interval(kind: str, seed: int) -> None:
    (spec,) = drawn(kind, 1, seed)
    found = model().predict(spec)
    assert 0 < found.time_s.low < found.time_s.median < found.time_s.high
    assert found.time_s.high < 100 * found.time_s.median
    assert found.energy_j.median == pytest.approx(2.0 * found.time_s.median)
    assert found.workspace_bytes % 4 == 0


@pytest.mark.parametrize(
    ("queries", "keys", "causal", "pairs"),
    [(5, 5, 0, 25), (5, 5, 1, 15), (2, 7, 1, 3), (7, 2, 1, 13)],
)
def test_attention_and_its_gradient_have_the_same_pairs(
    queries: int, keys: int, causal: int, pairs: int
) -> None:
    """The gradient does more for each pair, and not for more pairs."""
    shape = {"batch": 3, "queries": queries, "keys": keys, "heads": 4, "key_heads": 2}
    others = {"head_features": 6, "causal": causal, "dropout": 1, "packed": 0}
    mask = {"mask_batch": 1, "mask_heads": 1, "mask_queries": 1}
    forward, gradient = (
        terms(OpSpec.of(f"attention.{entry}", **shape, **others, **mask))
        for entry in ("forward", "input_gradient")
    )
    assert gradient.pop("work") > forward.pop("work")
    assert forward == gradient
    for term in ("pairs", "dropped", "masked"):
        assert forward[term] == 3 * 4 * pairs


@given(st.integers(1, 1 << 18), st.integers(2, 16))
@settings(max_examples=50, deadline=None, derandomize=True)
def test_more_elements_cost_more(elements: int, factor: int) -> None:
    few, many = (
        smooth().predict(OpSpec.of("relu.forward", elements=count)).time_s.median
        for count in (elements, elements * factor)
    )
    assert many > few * (1 - 1e-9)


def test_energies_have_a_law_of_their_own_where_each_was_measured() -> None:
    """The board draws more power the larger an operation is."""

    def watts(spec: OpSpec) -> float:
        return 1.0 + spec.work_flop / (spec.work_flop + 1e4)

    metered = CostModel(board(measured(), true_s, watts=watts))
    for elements in (100, 200_000):
        spec = OpSpec.of("relu.forward", elements=elements)
        found = metered.predict(spec)
        ratio = found.energy_j.median / found.time_s.median
        assert ratio == pytest.approx(watts(spec), rel=0.3)


def test_unlike_kinds_have_wide_but_finite_intervals() -> None:
    attention = drawn("attention.forward", 1, seed=5)[0]
    found = model().predict(attention)
    assert found.basis.endswith("measured operations of all kinds")
    assert 3 < found.time_s.high / found.time_s.median < 100


def test_a_kind_that_differs_from_others_is_predicted_from_its_own_operations() -> None:
    """Batch norms of this board scatter widely, and take ten times as long as others would."""

    def slow_s(spec: OpSpec) -> float:
        is_slow = spec.family == "batch_norm"
        return 10.0 * scattered(spec, 0.9) if is_slow else scattered(spec)

    model = CostModel(board(measured(), slow_s))
    held = []
    for spec in drawn("batch_norm.forward", 25, seed=1):
        found = model.predict(spec)
        assert found.basis == "40 measured batch_norm.forward"
        held.append(found.time_s.low <= slow_s(spec) <= found.time_s.high)
    assert np.mean(held) >= 0.85


def test_costs_in_steps_lie_between_warm_and_cold_as_the_watched_ones_of_their_kind() -> None:
    """Batch norms of this board find their operands in the caches, other operations do not."""

    def cold_s(spec: OpSpec) -> float:
        return 4.0 * true_s(spec)

    def in_step_s(spec: OpSpec) -> float:
        return true_s(spec) if spec.family == "batch_norm" else cold_s(spec)

    watched = list(measured()[::2])
    places = tuple(
        PlaceCost(
            op=f"op {number}",
            key=spec.key,
            time_s=Interval.exact(in_step_s(spec)),
            energy_j=Interval.exact(2.0 * in_step_s(spec)),
            sittings_s=(in_step_s(spec),),
        )
        for number, spec in enumerate(watched)
    )
    steps = StepCosts(
        network=ProfiledNetwork(model="resnet8", batch=1, optimizer="sgd"),
        sittings=(Sitting(schedule="unscheduled", steps=9, measured="2026-01-31T12:00:00+00:00"),),
        correlation=0.0,
        places=places,
    )
    profile = board(measured(), true_s, cold_s, steps=(steps,))
    unwatched = CostModel(board(measured(), true_s, cold_s))
    for kind in ("batch_norm.forward", "relu.forward"):
        spec = drawn(kind, 1, seed=9)[0]
        found = CostModel(profile).predict(spec).time_s
        assert found.median == pytest.approx(in_step_s(spec), rel=0.25)
        assert unwatched.predict(spec).time_s.median == pytest.approx(true_s(spec), rel=0.1)
        not_watched = next(s for s in measured() if s.kind == kind and s not in watched)
        carried = CostModel(profile).carried_over(not_watched)
        assert carried is not None
        assert carried.time_s.median == pytest.approx(in_step_s(not_watched), rel=0.25)


def watched(
    specs: Sequence[OpSpec],
    in_step_s: Callable[[OpSpec], float],
    situation: Callable[[OpSpec], Situation] = lambda _: Situation(),
) -> StepCosts:
    """Costs in a step of ops in their situations."""
    places = (
        PlaceCost(
            op=f"op {number}",
            key=spec.key,
            time_s=Interval.exact(in_step_s(spec)),
            sittings_s=(in_step_s(spec),),
            **situation(spec)._asdict(),
        )
        for number, spec in enumerate(specs)
    )
    return StepCosts(
        network=ProfiledNetwork(model="resnet8", batch=1, optimizer="sgd"),
        sittings=(Sitting(schedule="unscheduled", steps=9, measured="2026-01-31T12:00:00+00:00"),),
        correlation=0.0,
        places=tuple(places),
    )


def cold_s(spec: OpSpec) -> float:
    return 4.0 * true_s(spec)


@pytest.mark.parametrize("call_s", [0.0, 5e-6])
def test_what_the_caches_have_lost_is_in_the_cost(call_s: float) -> None:
    """Also where every op of the watched step found its operands in the caches."""

    def in_step_s(spec: OpSpec, lost: float = 0.0, code_lost: float = 0.0) -> float:
        called_s = call_s * (1.0 + 5.0 * code_lost)
        return called_s + true_s(spec) + 0.75 * lost * (cold_s(spec) - true_s(spec))

    steps = watched(measured()[::2], in_step_s)
    model = CostModel(board(measured(), true_s, cold_s, steps=(steps,)))
    shares = ((0.0, 0.0), (0.5, 0.0), (0.0, 0.5), (1.0, 1.0))
    for spec in (s for kind in KINDS for s in drawn(kind, 5, seed=9)):
        for lost, code_lost in shares:
            found = model.predict(spec, Situation(lost, code_lost=code_lost)).time_s
            true = in_step_s(spec, lost, code_lost)
            assert found.median == pytest.approx(true, rel=0.35)
            assert found.low < true < found.high
    for spec in measured()[1::2]:
        for lost, code_lost in shares:
            carried = model.carried_over(spec, Situation(lost, code_lost=code_lost))
            assert carried is not None
            true = in_step_s(spec, lost, code_lost)
            assert carried.time_s.median == pytest.approx(true, rel=0.1)


def test_a_call_is_found_of_ops_whose_instructions_the_caches_have_lost() -> None:
    """Short operations, of which a call is most; every other place had lost all instructions."""

    def in_step_s(spec: OpSpec, code_lost: float) -> float:
        return 5e-6 * (1.0 + 5.0 * code_lost) + true_s(spec)

    specs = measured()[::2]
    own = {spec: Situation(code_lost=float(n % 2)) for n, spec in enumerate(specs)}
    steps = watched(specs, lambda spec: in_step_s(spec, own[spec].code_lost), own.__getitem__)
    model = CostModel(board(measured(), true_s, cold_s, steps=(steps,)))
    for spec in measured()[1::2]:
        for code_lost in (0.0, 1.0):
            carried = model.carried_over(spec, Situation(code_lost=code_lost))
            assert carried is not None
            true = in_step_s(spec, code_lost)
            assert carried.time_s.median == pytest.approx(true, rel=0.15)


def test_what_is_lost_does_not_count_where_a_profile_says_nothing_of_it() -> None:
    """As in earlier releases, whose lines say of all ops alike what they have lost."""
    steps = watched(measured()[::2], lambda spec: 5e-6 + true_s(spec))
    earlier = tuple(place.model_copy(update={"code_lost": None}) for place in steps.places)
    steps = steps.model_copy(update={"places": earlier})
    model = CostModel(board(measured(), true_s, cold_s, steps=(steps,)))
    for spec in measured()[1::2]:
        kept = model.carried_over(spec)
        assert model.carried_over(spec, Situation(1.0, code_lost=1.0)) == kept


def test_watched_places_tell_apart_what_the_caches_lose_and_what_kinds_do() -> None:
    """Every other place had lost all; operations with zeros take half as long."""

    def in_step_s(spec: OpSpec, lost: float) -> float:
        zeros = 0.5 if spec.family == "relu" else 1.0
        return zeros * (true_s(spec) + 0.75 * lost * (cold_s(spec) - true_s(spec)))

    specs = measured()[::2]
    own = {spec: Situation(float(number % 2)) for number, spec in enumerate(specs)}
    steps = watched(specs, lambda spec: in_step_s(spec, own[spec].lost), own.__getitem__)
    model = CostModel(board(measured(), true_s, cold_s, steps=(steps,)))
    for spec in (s for kind in KINDS for s in drawn(kind, 5, seed=9)):
        for share in (0.0, 1.0):
            found = model.predict(spec, Situation(share)).time_s.median
            assert found == pytest.approx(in_step_s(spec, share), rel=0.35)
    for spec in measured()[1::2]:
        for share in (0.0, 1.0):
            carried = model.carried_over(spec, Situation(share))
            assert carried is not None
            assert carried.time_s.median == pytest.approx(in_step_s(spec, share), rel=0.1)


def test_ops_that_overwrite_an_operand_take_less_also_of_kinds_that_were_not_watched() -> None:
    def in_step_s(spec: OpSpec, overwrites: bool) -> float:
        return (0.5 if overwrites else 1.0) * true_s(spec)

    specs = [spec for spec in measured()[::2] if spec.family != "relu"]
    own = {spec: Situation(overwrites=bool(number % 2)) for number, spec in enumerate(specs)}
    steps = watched(specs, lambda spec: in_step_s(spec, own[spec].overwrites), own.__getitem__)
    model = CostModel(board(measured(), true_s, steps=(steps,)))
    for spec in measured()[1::2]:
        for overwrites in (False, True):
            carried = model.carried_over(spec, Situation(overwrites=overwrites))
            assert carried is not None
            assert carried.time_s.median == pytest.approx(in_step_s(spec, overwrites), rel=0.15)


def test_joules_in_a_step_follow_its_seconds() -> None:
    """A call draws the power of its operation; each operation of this board has its own."""

    def watts(spec: OpSpec) -> float:
        return 1.0 + spec.work_flop / (spec.work_flop + 1e4)

    steps = watched(measured()[::2], lambda spec: 4e-6 + true_s(spec))
    model = CostModel(board(measured(), true_s, cold_s, watts, (steps,)))
    for spec in measured()[1::2]:
        for lost in (0.0, 1.0):
            carried = model.carried_over(spec, Situation(lost))
            assert carried is not None
            power_w = carried.energy_j.median / carried.time_s.median
            assert power_w == pytest.approx(watts(spec), rel=1e-6)


@pytest.mark.slow
def test_all_ways_to_take_a_step_share_the_laws(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted: list[tuple[OpSpec | float, ...]] = []

    def counted(specs: Sequence[OpSpec], costs: Sequence[float], shapes: Any) -> Law:
        if specs:
            fitted.append((*specs, *costs))
        return fit_law(specs, costs, shapes)

    monkeypatch.setattr("solver.costing.model.fit_law", counted)
    path = tmp_path / "bench.yaml"
    path.write_text(dump_yaml(board(measured())))
    source = ProfiledModel(
        profile=str(path),
        model="linear",
        batch=4,
        optimizer=None,
        parameters_in="ram",
        loss=None,
        train=None,
        accumulate="auto",
        slices="auto",
        codecs="auto",
        lora=None,
        strict=False,
    )
    subjects = read_subjects(source, Results(tmp_path), False, print)
    assert [each.parts for each in subjects] == [1, 2, 4]
    assert subjects[0].step is not None
    in_slices = subjects[0].with_step(sliced(subjects[0].step, Slices(1 << 16)))
    assert in_slices.predicted
    assert all(each.predicted for each in subjects)
    assert fitted
    assert len(set(fitted)) == len(fitted)
