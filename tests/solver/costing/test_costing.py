"""Costed graphs from a training step and a profile."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Iterable

import pytest

from devices.operation import OpSpec
from devices.profile import (
    AffinePageCost,
    BoardIdentity,
    ComputeRates,
    Cost,
    DeviceProfile,
    Interval,
    OperationCost,
    PlaceCost,
    ProfiledNetwork,
    Sitting,
    StepCosts,
    StorageCosts,
)
from devices.published import load_published, published_flop, published_names
from devices.quantities import Slices
from devices.signatures.tiles import KernelBuild
from devices.signatures.workspaces import KERNEL_BUILDS
from networks.models import build_model
from networks.training import TrainingStep
from networks.training.step import StepOp
from solver.constructed import keep_everything
from solver.costing.costing import CostingError, cost_graph
from solver.referee.referee import replay
from tests.support.graphs.profiles import in_context

POWER_W = 2.5


def law_s(spec: OpSpec) -> float:
    """Time on a board with 50 µs per call, 2 GFLOP/s and 1 GB/s."""
    return 50e-6 + spec.work_flop / 2e9 + spec.moved_bytes / 1e9


def profile(
    specs: Iterable[OpSpec],
    time_s: Callable[[OpSpec], float] = law_s,
    *,
    power_w: float | None = POWER_W,
    storage: StorageCosts | None = None,
    workspace_bytes: Callable[[OpSpec], int] = lambda spec: 0,
) -> DeviceProfile:
    """A profile in which a warm operation takes half the time of a cold one."""

    def cost(seconds: float) -> Cost:
        energy = None if power_w is None else Interval.exact(seconds * power_w)
        return Cost(time_s=Interval.exact(seconds), energy_j=energy, trials=5)

    return DeviceProfile(
        name="bench",
        energy_source="estimated",
        board=BoardIdentity(model="test board", memory_bytes=2**30),
        operations=tuple(
            OperationCost(
                op=spec.key,
                workspace_bytes=workspace_bytes(spec),
                warm=cost(time_s(spec) / 2),
                cold=cost(time_s(spec)),
            )
            for spec in specs
        ),
        storage=storage,
    )


SD_CARD = StorageCosts(
    medium="sd",
    page_bytes=4096,
    method="direct",
    read=AffinePageCost(fixed_s=1e-4, per_page_s=1e-5, fixed_j=1e-4, per_page_j=2e-5),
    write=AffinePageCost(fixed_s=1e-3, per_page_s=1e-4, fixed_j=1e-3, per_page_j=2e-4),
)


@pytest.fixture(scope="module")
def step() -> TrainingStep:
    return build_model("resnet8")


@pytest.fixture(scope="module")
def sliced() -> TrainingStep:
    return build_model("resnet8", slices=Slices(56 << 10))


def test_measured_operations_cost_their_medians(step: TrainingStep) -> None:
    measured = profile(step.distinct_specs, workspace_bytes=lambda spec: 640)
    result = cost_graph(step, measured, strict=True)
    assert result.predicted == ()
    assert result.graph.energy_source == "estimated"
    for op, step_op in zip(result.graph.ops, step.ops, strict=True):
        assert op.time_s == law_s(step_op.spec)
        assert op.energy_j == law_s(step_op.spec) * POWER_W
        assert op.workspace_bytes == 640


def test_profile_decides_between_warm_and_cold_costs(step: TrainingStep) -> None:
    cold = profile(step.distinct_specs)
    warm = cold.model_copy(update={"cost_basis": "warm"})
    assert cost_graph(step, warm).graph.ops[0].time_s == law_s(step.ops[0].spec) / 2
    assert any("warm" in note for note in cost_graph(step, warm).graph.notes)


def test_cost_in_context_precedes_warm_and_cold_costs(step: TrainingStep) -> None:
    (first, *_) = step.distinct_specs
    isolated = profile(step.distinct_specs)
    refined = in_context(isolated, first.key, 3.0)
    result = cost_graph(step, refined)
    assert result.in_context == (first,)
    assert cost_graph(step, isolated).in_context == ()
    for op, step_op in zip(result.graph.ops, step.ops, strict=True):
        factor = 3.0 if step_op.spec == first else 1.0
        assert op.time_s == factor * law_s(step_op.spec)
        assert op.energy_j == pytest.approx(factor * law_s(step_op.spec) * POWER_W)
    count = len(step.distinct_specs)
    assert any(f"1 of {count} distinct operations" in note for note in result.graph.notes)


def watched(profile: DeviceProfile, *places: PlaceCost) -> DeviceProfile:
    """The profile with costs in places of a watched step, whose errors correlate by half."""
    costs = StepCosts(
        network=ProfiledNetwork(model="resnet8", batch=1, optimizer="sgd"),
        sittings=(Sitting(schedule="unscheduled", steps=10, measured="2026-01-31T12:00:00+00:00"),),
        power="nominal",
        correlation=0.5,
        places=places,
    )
    return profile.changed(step_costs=(costs,))


def place(op: StepOp, time_s: float) -> PlaceCost:
    interval = Interval(median=time_s, low=0.9 * time_s, high=1.2 * time_s)
    return PlaceCost(
        op=op.name,
        key=op.spec.key,
        time_s=interval,
        energy_j=interval.scaled(POWER_W),
        sittings_s=(time_s,),
    )


def test_an_op_costs_what_was_measured_in_its_place(step: TrainingStep) -> None:
    first, second, *_ = (op for op in step.ops if op.spec.kind == "relu.forward")
    same = [op for op in step.ops if op.spec == first.spec]
    assert len(same) > 1
    board = watched(profile(step.distinct_specs), place(first, 1.0), place(second, 3.0))
    result = cost_graph(step, board)
    by_name = {op.name: op for op in result.graph.ops}
    assert by_name[first.name].time_s == 1.0
    assert by_name[first.name].energy_j == POWER_W
    assert by_name[first.name].time_s_interval == (0.9, 1.2)
    assert by_name[first.name].cost_key == first.spec.key
    assert result.graph.error_correlation == 0.5
    assert first.spec in result.in_context


@pytest.mark.parametrize("of_energies", [None, 0.5, 0.9, 0.2])
def test_a_graph_states_the_correlation_of_joules_that_a_watched_step_has(
    step: TrainingStep, of_energies: float | None
) -> None:
    board = watched(profile(step.distinct_specs), place(step.ops[0], 1.0))
    costs = board.step_costs[0].model_copy(update={"energy_correlation": of_energies})
    found = cost_graph(step, board.changed(step_costs=(costs,))).graph
    assert found.error_correlation == 0.5
    assert found.energy_error_correlation == (None if of_energies == 0.5 else of_energies)


def test_an_op_in_another_place_costs_what_any_place_did(step: TrainingStep) -> None:
    alike = ([op for op in step.ops if op.spec == spec] for spec in step.distinct_specs)
    first, second, third, *_ = next(ops for ops in alike if len(ops) >= 3)
    board = watched(profile(step.distinct_specs), place(first, 1.0), place(second, 3.0))
    other = {op.name: op for op in cost_graph(step, board).graph.ops}[third.name]
    assert other.time_s == 1.0
    assert other.time_s_interval == pytest.approx((0.9, 3.6))


def test_a_step_of_unwatched_operations_states_no_correlation(step: TrainingStep) -> None:
    assert cost_graph(step, profile(step.distinct_specs)).graph.error_correlation is None


def test_unmeasured_operations_are_predicted_and_listed(step: TrainingStep) -> None:
    missing = tuple(s for s in step.distinct_specs if s.kind == "conv2d.forward")[:3]
    measured = profile(s for s in step.distinct_specs if s not in missing)
    result = cost_graph(step, measured)
    assert tuple(p.spec for p in result.predicted) == missing
    for prediction in result.predicted:
        assert prediction.basis == "5 measured conv2d.forward"
        assert prediction.time_s.median == pytest.approx(law_s(prediction.spec), rel=1e-6)
        assert prediction.energy_j.median == pytest.approx(
            law_s(prediction.spec) * POWER_W, rel=1e-6
        )
        (op, *_) = (
            op
            for op, step_op in zip(result.graph.ops, step.ops, strict=True)
            if step_op.spec == prediction.spec
        )
        assert op.time_s == prediction.time_s.median
    assert any(note.startswith("3 of 66 distinct operations") for note in result.graph.notes)


def test_places_that_lose_more_cost_more(step: TrainingStep) -> None:
    """An operation that was not watched has a cost in each place; the list has their mean."""
    spec = OpSpec.of("relu.input_gradient", elements=4096)
    others = [OpSpec.of("relu.forward", elements=100 * n) for n in range(1, 10)]
    places = tuple(
        PlaceCost(
            op=str(n),
            key=other.key,
            time_s=Interval.exact(law_s(other) / 2),
            sittings_s=(1.0,),
            code_lost=0.0,
        )
        for n, other in enumerate(others)
    )
    watched = StepCosts(
        network=ProfiledNetwork(model="elsewhere", batch=1, optimizer="sgd"),
        sittings=(Sitting(schedule="unscheduled", steps=9, measured="2026-01-31T12:00:00+00:00"),),
        correlation=0.0,
        places=places,
    )
    known = profile([*step.distinct_specs, *others])
    known = known.changed(
        board=known.board.model_copy(update={"last_level_cache_bytes": 64 << 10}),
        step_costs=(watched,),
    )
    kept = tuple(operation for operation in known.operations if operation.op != spec.key)
    for board, predictions in ((known, 0), (known.changed(operations=kept), 1)):
        result = cost_graph(step, board)
        own_s = [
            op.time_s
            for op, step_op in zip(result.graph.ops, step.ops, strict=True)
            if step_op.spec == spec
        ]
        assert len(set(own_s)) == 2
        assert len(result.predicted) == predictions
        for predicted in result.predicted:
            assert predicted.occurrences == len(own_s)
            assert predicted.step_time_s.median == pytest.approx(math.fsum(own_s))


def test_parts_of_one_size_share_a_measurement(sliced: TrainingStep) -> None:
    result = cost_graph(sliced, profile(sliced.costed_specs), strict=True)
    assert len(sliced.costed_specs) < len(sliced.distinct_specs)
    keys: dict[str, set[str | None]] = {}
    for op, step_op in zip(result.graph.ops, sliced.ops, strict=True):
        if step_op.spec.family == "conv2d_part" and step_op.layer == "stage3.2.conv":
            keys.setdefault(step_op.spec.kind, set()).add(op.cost_key)
    # The first part of a sum begins it, and the first range of inputs has the bias.
    assert {kind.partition(".")[2]: len(found) for kind, found in keys.items()} == {
        "forward": 2,
        "input_gradient": 2,
        "parameter_gradient": 2,
    }


def test_unmeasured_parts_cost_what_layers_of_fewer_channels_do(
    step: TrainingStep, sliced: TrainingStep
) -> None:
    result = cost_graph(sliced, profile(step.distinct_specs))
    of_parts = [each for each in result.predicted if each.spec.family == "conv2d_part"]
    assert len(of_parts) > 3
    for prediction in of_parts:
        layer = prediction.spec.as_layer
        assert layer is not None
        assert prediction.basis.endswith(f"measured {layer.kind}")
        assert prediction.time_s.median == pytest.approx(law_s(layer), rel=1e-6)


def test_published_rates_cost_parts_like_the_whole(step: TrainingStep) -> None:
    """But for a fold, which the published count of an input gradient contains."""
    whole = cost_graph(step, load_published("m4")).graph
    parts = cost_graph(build_model("resnet8", slices=Slices(32 << 10)), load_published("m4")).graph
    of_folds = sum(op.energy_j for op in parts.ops if op.kind.endswith("fold"))
    energy_j = sum(op.energy_j for op in whole.ops)
    assert sum(op.energy_j for op in parts.ops) - of_folds == pytest.approx(energy_j, rel=1e-3)


def test_strict_names_the_unmeasured_operations(step: TrainingStep) -> None:
    missing = step.distinct_specs[0]
    with pytest.raises(CostingError, match="bench: 1 of the 66 operations of resnet8") as caught:
        cost_graph(step, profile(step.distinct_specs[1:]), strict=True)
    assert missing.key in str(caught.value)


def test_a_kind_that_was_hardly_measured_is_predicted_from_others(step: TrainingStep) -> None:
    kept = [s for s in step.distinct_specs if s.kind != "conv2d.input_gradient"]
    result = cost_graph(step, profile(kept))
    several = {"16 measured conv2d", f"{len(kept)} measured operations of all kinds"}
    assert {p.basis for p in result.predicted} <= several
    for prediction in result.predicted:
        assert prediction.time_s.low <= law_s(prediction.spec) <= prediction.time_s.high


def test_the_time_of_a_step_is_as_sure_as_its_predictions(step: TrainingStep) -> None:
    """Ops of one operation share its error, and those of others have a part of it in common."""
    measured = cost_graph(step, profile(step.distinct_specs)).step_time_s
    assert measured.low == measured.median == measured.high
    result = cost_graph(step, profile(s for s in step.distinct_specs if s.family != "conv2d"))
    assert result.graph.error_correlation == pytest.approx(0.1)
    assert result.step_time_s.median == pytest.approx(sum(op.time_s for op in result.graph.ops))
    widths = [p.step_time_s.high - p.step_time_s.median for p in result.predicted]
    width = result.step_time_s.high - result.step_time_s.median
    assert max(widths) < math.hypot(*widths) < width < sum(widths)


def test_a_family_that_was_not_measured_is_predicted_from_everything(step: TrainingStep) -> None:
    kept = [s for s in step.distinct_specs if s.family != "conv2d"]
    result = cost_graph(step, profile(kept))
    assert {p.basis for p in result.predicted} == {f"{len(kept)} measured operations of all kinds"}


def test_too_few_measurements_are_an_error(step: TrainingStep) -> None:
    with pytest.raises(CostingError, match="is not measured, and the 3 measured operations"):
        cost_graph(step, profile(step.distinct_specs[:3]))


@pytest.mark.slow
def test_prediction_intervals_contain_the_stated_share_of_true_costs() -> None:
    """95 % of the intervals must contain the true cost, and be about as wide as the scatter.

    Boards have operations that scatter by 20 % around a law; a third of the convolutions is left
    out.
    """
    step = build_model("mobilenet")
    convolutions = [s for s in step.distinct_specs if s.family == "conv2d"]
    covered, factors = [], []
    for seed in range(10):
        noise = random.Random(seed)
        time_s = {s: law_s(s) * math.exp(noise.gauss(0, 0.2)) for s in step.distinct_specs}
        left_out = set(noise.sample(convolutions, len(convolutions) // 3))
        measured = profile(
            (s for s in step.distinct_specs if s not in left_out), time_s.__getitem__
        )
        for prediction in cost_graph(step, measured).predicted:
            interval = prediction.time_s
            covered.append(interval.low <= time_s[prediction.spec] <= interval.high)
            factors.append(interval.high / interval.median)
    assert 1.2 < statistics.median(factors) < 3
    assert 0.9 <= sum(covered) / len(covered) < 1


def test_costing_is_deterministic(step: TrainingStep) -> None:
    measured = profile(step.distinct_specs[::2], storage=SD_CARD)
    assert cost_graph(step, measured) == cost_graph(step, measured)


@pytest.mark.slow
@pytest.mark.parametrize("build", KERNEL_BUILDS, ids=str)
def test_unmeasured_workspace_is_that_of_the_profiled_kernels(
    step: TrainingStep, build: KernelBuild
) -> None:
    measured = profile(
        step.distinct_specs[::2], workspace_bytes=lambda spec: spec.workspace_bytes(build)
    )
    predicted = cost_graph(step, measured).predicted
    assert predicted
    for each in predicted:
        assert each.workspace_bytes == each.spec.workspace_bytes(build), each.spec.key


def test_workspace_suffices_for_every_build_that_a_profile_does_not_exclude(
    step: TrainingStep,
) -> None:
    measured = profile(step.distinct_specs[::2], workspace_bytes=lambda _: 4)  # of older kernels
    for each in cost_graph(step, measured).predicted:
        needed = [each.spec.workspace_bytes(build) for build in KERNEL_BUILDS]
        assert each.workspace_bytes == max(needed)


def test_page_costs_follow_from_size_and_storage(step: TrainingStep) -> None:
    graph = cost_graph(step, profile(step.distinct_specs, storage=SD_CARD)).graph
    image = graph.tensor["image"]
    assert image.bytes == 12288
    assert image.page_in is not None
    assert image.page_out is not None
    assert image.page_in.time_s == pytest.approx(1e-4 + 3 * 1e-5)
    assert image.page_out.energy_j == pytest.approx(1e-3 + 3 * 2e-4)


def test_without_storage_nothing_can_be_paged(step: TrainingStep) -> None:
    graph = cost_graph(step, profile(step.distinct_specs)).graph
    assert all(tensor.page_in is None and tensor.page_out is None for tensor in graph.tensors)
    assert "the profile has no storage: nothing can be paged" in graph.notes


def test_profile_without_energies_is_refused_with_a_remedy(step: TrainingStep) -> None:
    with pytest.raises(CostingError, match=r"has a time but no energy; .*nominal_power_w"):
        cost_graph(step, profile(step.distinct_specs, power_w=None))


def without_energy(operation: OperationCost) -> OperationCost:
    states = {"warm": operation.warm, "cold": operation.cold}
    timed = {name: cost.model_copy(update={"energy_j": None}) for name, cost in states.items()}
    return operation.model_copy(update=timed)


def test_energies_are_not_predicted_from_times_alone(step: TrainingStep) -> None:
    other = build_model("digits")
    board = profile([spec for spec in step.distinct_specs if spec not in other.distinct_specs])
    assert cost_graph(other, board).predicted
    timed = board.changed(operations=tuple(map(without_energy, board.operations)))
    with pytest.raises(CostingError, match=r"too few .* have energies .*; .*nominal_power_w"):
        cost_graph(other, timed)


def test_an_operation_that_the_step_does_not_use_needs_no_energy(step: TrainingStep) -> None:
    other, *_ = (s for s in build_model("transformer").distinct_specs if s.family == "softmax")
    assert other not in step.distinct_specs
    *measured, last = profile([*step.distinct_specs, other]).operations
    board = profile(step.distinct_specs).changed(operations=(*measured, without_energy(last)))
    assert cost_graph(step, board) == cost_graph(step, profile(step.distinct_specs))


def test_a_watched_place_without_energy_hides_none_that_is_known(step: TrainingStep) -> None:
    first, *_ = (op for op in step.ops if op.spec.kind == "relu.forward")
    timed = place(first, 1.0).model_copy(update={"energy_j": None})
    graph = cost_graph(step, watched(profile(step.distinct_specs), timed)).graph
    costed = {op.name: op for op in graph.ops}[first.name]
    assert costed.energy_j == law_s(first.spec) * POWER_W


def test_absurd_scatter_of_page_costs_is_refused_with_a_sentence(step: TrainingStep) -> None:
    read = SD_CARD.read.model_copy(update={"fit_error": 1e25, "sweep": ()})
    scattered = profile(step.distinct_specs, storage=SD_CARD.model_copy(update={"read": read}))
    with pytest.raises(CostingError, match="has implausible costs or sizes: high: found "):
        cost_graph(step, scattered)


def test_published_rates_cost_the_published_flop(step: TrainingStep) -> None:
    m4 = load_published("m4")
    result = cost_graph(step, m4, strict=True)
    assert result.predicted == ()
    assert result.graph.energy_source == "published"
    assert m4.rates is not None
    first = step.ops[0].spec
    assert result.graph.ops[0].time_s == published_flop(first) / m4.rates.flop_per_s
    assert result.graph.ops[0].energy_j == published_flop(first) / m4.rates.flop_per_j
    page = result.graph.tensor["image"].page_in
    assert page is not None
    assert page.time_s == pytest.approx(1.09e-4 + 12288 / 4.61651e6)


def test_measurements_precede_published_rates(step: TrainingStep) -> None:
    both = profile(step.distinct_specs[:1]).model_copy(
        update={"rates": ComputeRates(flop_per_s=1e6, flop_per_j=1e7)}
    )
    graph = cost_graph(step, both, strict=True).graph
    assert graph.ops[0].time_s == law_s(step.ops[0].spec)
    assert graph.ops[1].time_s == published_flop(step.ops[1].spec) / 1e6


@pytest.mark.parametrize("name", published_names())
def test_every_published_profile_costs_every_kind_of_network(name: str) -> None:
    for model in ("linear", "resnet8", "transformer"):
        graph = cost_graph(build_model(model), load_published(name)).graph
        assert sum(op.energy_j for op in graph.ops) > 0


def test_gradients_of_parameters_in_parts_of_a_batch_are_no_activations() -> None:
    """They are forty times as large as the activations here, which halve with the batch."""
    board = load_published("m4")

    def peak_bytes(parts: int) -> int:
        step = build_model("vgg16_cifar", 4, accumulate=parts)
        graph = cost_graph(step, board).graph
        return replay(graph, keep_everything(graph), "activations").peak_bytes

    assert peak_bytes(2) < 0.6 * peak_bytes(1)


def test_an_operation_that_takes_forever_at_the_rates_of_a_profile_is_named() -> None:
    published = load_published("m4")
    rates = ComputeRates(flop_per_s=1e-12, flop_per_j=1.0)
    with pytest.raises(CostingError, match=r"m4: linear\.forward .* s and .* J at the profile's"):
        cost_graph(build_model("linear", 1), published.changed(rates=rates))
