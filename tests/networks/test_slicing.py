"""Slices: layers in parts of their weights have the values of whole layers, in less memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from devices.operation import OpSpec
from devices.quantities import Slices
from networks.models import build_model
from networks.training import (
    Network,
    NetworkError,
    Optimizer,
    TrainingStep,
    training_step,
    with_parameters_in_storage,
)
from networks.training.initial import initial_values
from networks.training.lora import Lora, add_adapters
from networks.training.network import Value
from networks.training.selection import select_trained
from networks.training.slicing import joined, parted, sliced
from networks.training.step import NetworkFile
from solver.costing.uncosted import uncosted_graph
from solver.problem.footprint import least_ram_bytes
from tests.support.networks.training import (
    Values,
    execute,
    small_convolutional,
    small_gated,
    small_lookups,
    small_mixture,
    small_positions,
    small_transformer,
    start_values,
)
from tests.support.onboard.kernels import KernelLibrary, compile_library


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> KernelLibrary:
    return KernelLibrary(compile_library(tmp_path_factory.mktemp("kernels"), "in-tree", ["-O1"]))


def wide_convolutional(batch: int = 2) -> Network:
    """Convolutions with more weights than activations: overlapping, strided and pointwise."""
    net = Network("wide convolutional", batch)
    x = net.relu("stem.relu", net.conv2d("stem", net.input("image", batch, 2, 4, 5), 9, 3))
    x = net.conv2d("strided", x, 21, 3, stride=2, padding=1, bias=True)
    x = net.relu("relu", net.batch_norm("norm", net.conv2d("pointwise", x, 19, 1)))
    x = net.linear("classifier", net.global_average_pool("pool", x), 7)
    net.softmax_cross_entropy("loss", x, net.input("labels", batch))
    return net


def wide_perceptron(batch: int = 3) -> Network:
    """Linear layers with more weights than activations, one of them used twice."""
    net = Network("wide perceptron", batch)
    x = net.relu("relu1", net.linear("first", net.input("samples", batch, 10), 21))
    x = net.relu("relu2", net.linear("second", x, 21, bias=False))
    spec, weight = net.layers[-2].spec, net.layers[-2].reads[1]
    x = net.append("again", spec, (x, weight), shape=x.shape)
    net.mean_squared_error("loss", net.linear("last", x, 11), net.input("target", batch, 11))
    return net


def tied(batch: int = 2) -> Network:
    """The table of an embedding is the weight of the last layer too."""
    net = Network("tied", batch)
    x = net.embedding("embed", net.input("tokens", batch), vocabulary=40, features=9)
    table = net.layers[-1].reads[1]
    x = net.linear("wide", x, 9)
    spec = OpSpec.of("linear.forward", rows=batch, in_features=9, out_features=40, bias=0)
    x = net.append("logits", spec, (x, table), shape=(batch, 40))
    net.softmax_cross_entropy("loss", x, net.input("labels", batch))
    return net


def looking_up(batch: int = 2) -> Network:
    """Tables that are looked up: tied to the last layer, with a padding index, of given places.

    The loss ignores a label.
    """
    net = Network("looking up", batch)
    tokens = net.input("tokens", batch, 5)
    x = net.embedding("embed", tokens, vocabulary=20, features=12)
    table = net.layers[-1].reads[1]
    y = net.embedding("padded", tokens, vocabulary=20, features=12)
    sizes = net.layers[-1].spec.attributes
    padded = OpSpec.of("embedding_padded.forward", **sizes, padding_index=3)
    net.layers[-1] = replace(net.layers[-1], spec=padded)
    x = net.gelu("gelu", net.add("sum", x, y))
    places = net.embedding("positions", net.input("places", batch, 5), vocabulary=7, features=12)
    x = net.linear("wide", net.add("placed", x, places), 12)
    spec = OpSpec.of("linear.forward", rows=batch * 5, in_features=12, out_features=20, bias=0)
    x = net.append("logits", spec, (x, table), shape=(batch * 5, 20))
    spec = OpSpec.of("weighted_cross_entropy.forward", rows=batch * 5, classes=20, by_weight=1)
    operands = (x, net.input("labels", batch * 5), net.input("weights", 20))
    scalars = {"share": 1.0, "smoothing": 0.0, "ignored": 7.0}
    net.loss = net.append("loss", spec, operands, scalars=scalars)
    return net


def attending(batch: int = 2) -> Network:
    """Attention in one operation, with a mask and heads that share keys, then a group norm."""
    net = Network("attending", batch)
    x = net.conv2d("stem", net.input("image", batch, 3, 4, 3), 12, 1)
    x = net.relu("relu", net.conv2d("conv", net.group_norm("norm", x, 4), 12, 1))
    x = net.linear("samples", net.global_average_pool("pool", x), 60)
    x = replace(x, shape=(batch, 6, 10))
    query, key, value = (
        net.linear(name, x, features)
        for name, features in (("query", 24), ("key", 12), ("value", 12))
    )
    sizes = {"batch": batch, "queries": 6, "keys": 6, "heads": 4, "key_heads": 2}
    mask = {"mask_batch": 1, "mask_heads": 1, "mask_queries": 6}
    spec = OpSpec.of(
        "attention.forward", **sizes, head_features=6, causal=0, dropout=0, packed=0, **mask
    )
    scalars = {"scale": 0.4, "probability": 0.0, "seed": 0.0}
    operands = (query, key, value, net.input("mask", 6, 6))
    x = net.append("attention", spec, operands, shape=(batch, 6, 24), scalars=scalars)
    x = net.linear("last", net.gelu("gelu", x), 18)
    net.mean_squared_error("loss", x, net.input("target", *x.shape))
    return net


def speaking(batch: int = 1, *, dropout: bool = False, mask_heads: int = 1) -> Network:
    """A language model: a table that is the last weight too, a norm, attention and a loss."""
    net = Network("speaking", batch)
    x = net.embedding("embed", net.input("tokens", batch, 5), vocabulary=20, features=16)
    table = net.layers[-1].reads[1]
    x = net.layer_norm("norm", x)
    query, key, value = (net.linear(name, x, 16) for name in ("query", "key", "value"))
    sizes = {"batch": batch, "queries": 5, "keys": 5, "heads": 4, "key_heads": 4}
    mask = {"mask_batch": 1, "mask_heads": mask_heads, "mask_queries": 5}
    spec = OpSpec.of(
        "attention.forward",
        **{**sizes, **mask, "head_features": 4, "causal": 1, "dropout": int(dropout), "packed": 0},
    )
    scalars = {"scale": 0.5, "probability": 0.3 * dropout, "seed": 7.0}
    operands = (query, key, value, net.input("mask", mask_heads, 5, 5))
    y = net.append("attention", spec, operands, shape=x.shape, scalars=scalars)
    x = net.rms_norm("last norm", net.add("sum", x, y))
    spec = OpSpec.of("linear.forward", rows=5 * batch, in_features=16, out_features=20, bias=0)
    x = net.append("logits", spec, (x, table), shape=(5 * batch, 20))
    net.softmax_cross_entropy("loss", x, net.input("labels", 5 * batch))
    return net


def normalising(batch: int = 2) -> Network:
    """Norms over features, of which there are more than partial sums."""
    net = Network("normalising", batch)
    x = net.linear("first", net.input("samples", batch, 3, 5), 37)
    y = net.gelu("gelu", net.layer_norm("layer norm", x))
    x = net.linear("second", net.rms_norm("rms norm", net.add("sum", x, y)), 35)
    x = net.linear("last", net.layer_norm("last norm", x), 5)
    net.mean_squared_error("loss", x, net.input("target", *x.shape))
    return net


def with_adapters(batch: int = 2) -> Network:
    """Frozen linear layers with low-rank adapters."""
    net = wide_perceptron(batch)
    select_trained(net, ())
    add_adapters(net, Lora(rank=12, pattern=None))
    return net


def separable(batch: int = 2) -> Network:
    """Every operation that is done for channels or heads by themselves."""
    net = Network("separable", batch)
    x = net.conv2d("stem", net.input("image", batch, 3, 6, 5), 12, 3, padding=1, bias=True)
    x = net.batch_norm("norm", net.conv2d("depthwise", x, 12, 3, padding=1, groups=12, bias=True))
    x = net.average_pool2d("average", net.dropout("dropout", x, 0.3), 2, stride=1)
    y = net.clamp("clamp", net.batch_norm_frozen("frozen", net.conv2d("other", x, 12, 1)), -1, 1)
    x = net.upsample_nearest2d("upsample", net.add("shortcut", x, y), (1, 2))
    x = net.hard_swish("swish", net.conv2d("strided", x, 10, 3, stride=2, padding=1))
    x = net.max_pool2d("maximum", x, 2, stride=1)
    x = net.tanh("tanh", net.linear("flat", net.flatten("flatten", x), 6))
    net.softmax_cross_entropy("loss", x, net.input("labels", batch))
    return net


WIDE = [wide_convolutional, wide_perceptron, with_adapters]
SMALL = [
    separable,
    attending,
    speaking,
    looking_up,
    normalising,
    small_convolutional,
    small_transformer,
    small_mixture,
    small_gated,
    small_lookups,
    tied,
]
OPTIMIZERS: tuple[Optimizer, ...] = ("sgd", "momentum", "nesterov", "adam")


def in_slices(values: Values, step: TrainingStep) -> Values:
    """Values of whole tensors as those of the tensors of a step in slices."""
    found = {}
    for tensor in step.tensors:
        if tensor.home is not None:
            part = tensor.part
            whole = values[tensor.name if part is None else part.whole]
            found[tensor.name] = whole if part is None else part.of(whole)
    return found


def parts_of(step: TrainingStep) -> dict[str, list[tuple[int, int]]]:
    """Ranges of rows by whole tensor."""
    found: dict[str, list[tuple[int, int]]] = {}
    for tensor in step.tensors:
        if tensor.part is not None:
            part = tensor.part
            found.setdefault(part.whole, []).append((part.first, part.first + part.rows))
    return found


def assert_same_bits(
    whole: TrainingStep,
    step: TrainingStep,
    library: KernelLibrary,
    seed: int = 0,
    *,
    in_place: bool = True,
) -> None:
    """All tensors that ``whole`` writes have the same bits in ``step``, the same in slices."""
    start = start_values(whole, seed)
    expected = execute(whole, library, start)
    found = joined(step, execute(step, library, in_slices(start, step), in_place=in_place))
    for tensor in whole.tensors:
        if tensor.home is None:
            bits = [values[tensor.name].reshape(-1).view(np.uint32) for values in (found, expected)]
            np.testing.assert_array_equal(*bits, err_msg=tensor.name)


@pytest.mark.slow
@settings(deadline=None, max_examples=40)
@given(
    build=st.sampled_from([*WIDE, *SMALL]),
    optimizer=st.sampled_from(OPTIMIZERS),
    slices=st.builds(Slices, st.integers(1, 1500), st.none() | st.integers(1, 1500)),
    in_storage=st.booleans(),
    in_place=st.booleans(),
    batch=st.integers(1, 3),
    seed=st.integers(0, 2**16),
)
def test_a_step_in_slices_has_the_bits_of_the_whole_step(
    build: Callable[[int], Network],
    optimizer: Optimizer,
    slices: Slices,
    in_storage: bool,
    in_place: bool,
    batch: int,
    seed: int,
    library: KernelLibrary,
) -> None:
    whole = training_step(build(batch), optimizer)
    if in_storage:
        whole = with_parameters_in_storage(whole)
    assert_same_bits(whole, sliced(whole, slices), library, seed, in_place=in_place)


def test_a_language_model_in_parts_of_activations_has_the_bits_of_the_whole(
    library: KernelLibrary,
) -> None:
    whole = training_step(speaking(), "adam")
    step = sliced(whole, Slices(300, 100))
    cut = {op.spec.family for op in step.ops if "[" in op.name}
    assert cut >= {
        *("embedding_part", "linear_block", "layer_norm_block", "rms_norm_block", "attention"),
        *("add", "cross_entropy_block", "adam"),
    }
    assert_same_bits(whole, step, library)


def making_weights(how: str, batch: int = 8, features: int = 64) -> Network:
    """A linear layer whose weight is computed: dropped out, normalised or made by another layer."""
    net = Network("making weights", batch)
    x = net.relu("relu1", net.linear("first", net.input("samples", batch, 16), features))
    weight = Value("weight", (features, features), "parameter", trained=True)
    if how == "dropout":
        weight = net.dropout("made", weight, 0.5)
    elif how == "softmax":
        spec = OpSpec.of("softmax.forward", rows=features, columns=features)
        weight = net.append("made", spec, (weight,), shape=weight.shape)
    else:
        made = net.linear("made", net.input("context", 1, 4), features**2)
        weight = replace(made, shape=(features, features))
    sizes = {"rows": batch, "in_features": features, "out_features": features, "bias": 0}
    x = net.append("second", OpSpec.of("linear.forward", **sizes), (x, weight), shape=x.shape)
    x = net.linear("last", net.relu("relu2", x), 10)
    net.softmax_cross_entropy("loss", x, net.input("labels", batch))
    return net


@pytest.mark.parametrize("how", ["dropout", "softmax", "linear"])
@pytest.mark.parametrize("slices", [Slices(1 << 20, 1024), Slices(4096, 1024), Slices(4096)])
def test_weights_that_are_computed_have_the_bits_of_the_whole(
    how: str, slices: Slices, library: KernelLibrary
) -> None:
    whole = training_step(making_weights(how))
    assert_same_bits(whole, sliced(whole, slices), library)


@pytest.mark.parametrize(
    ("dropout", "mask_heads"), [(True, 1), (False, 4)], ids=["dropout", "masks of heads"]
)
def test_attention_whose_heads_differ_has_the_bits_of_the_whole(
    dropout: bool, mask_heads: int, library: KernelLibrary
) -> None:
    """Which weights are dropped, and which mask is read, depends on the number of a head."""
    whole = training_step(speaking(dropout=dropout, mask_heads=mask_heads))
    step = sliced(whole, Slices(300, 100))
    found = parts_of(step)
    assert "logits.output" in found
    assert "attention.output" not in found
    assert_same_bits(whole, step, library)


def test_rows_of_an_activation_are_looked_up_whole(library: KernelLibrary) -> None:
    """The rows are features of one linear layer, of which parts could be made otherwise."""
    net = Network("gathering", 1)
    x = net.gelu("gelu", net.linear("first", net.input("samples", 1, 10), 96))
    x = net.gather("gather", net.input("rows", 9), replace(x, shape=(6, 16)))
    x = net.tanh("tanh", net.linear("last", net.relu("relu", x), 24))
    net.mean_squared_error("loss", net.linear("target", x, 2), net.input("labels", 9, 2))
    whole = training_step(net)
    step = sliced(whole, Slices(100, 100))
    found = parts_of(step)
    assert "tanh.output" in found
    assert found.keys().isdisjoint({"gelu.output", "gather.output", "gather.table_gradient"})
    assert_same_bits(whole, step, library)


def test_a_table_of_which_a_step_brings_rows_stays_whole(library: KernelLibrary) -> None:
    whole = with_parameters_in_storage(training_step(looking_up(1)))
    step = sliced(whole, Slices(100, 100))
    assert whole.tensor["positions.table"].is_table
    found = parts_of(step)
    assert "embed.table" in found
    assert "positions.table" not in found
    assert_same_bits(whole, step, library)


@pytest.mark.slow
@pytest.mark.parametrize(
    "build", [separable, attending, looking_up, normalising, *WIDE, small_transformer]
)
@settings(deadline=None, max_examples=4)
@given(
    slices=st.builds(Slices, st.integers(1, 2000), st.integers(20, 2000)), batch=st.integers(1, 2)
)
def test_parts_of_activations_cover_every_element_once(
    build: Callable[[int], Network], slices: Slices, batch: int
) -> None:
    whole = training_step(build(batch), "adam")
    assert_covered_once(whole, sliced(whole, slices))


@settings(deadline=None, max_examples=10)
@given(channels=st.integers(9, 40), share=st.floats(0.05, 0.9))
@example(channels=18, share=0.5)
def test_no_part_of_an_activation_is_larger_than_its_limit(channels: int, share: float) -> None:
    net = Network("channels", 1)
    x = net.relu("relu1", net.conv2d("conv1", net.input("x", 1, 2, 4, 4), channels, 3, padding=1))
    x = net.relu("relu2", net.conv2d("conv2", x, channels, 3, padding=1))
    x = net.linear("out", net.global_average_pool("pool", x), 3)
    net.softmax_cross_entropy("loss", x, net.input("labels", 1))
    channel_bytes = 4 * 4 * 4
    limit = max(channel_bytes, int(share * channels * channel_bytes))
    step = sliced(training_step(net), Slices(1 << 20, limit))
    sizes = [
        tensor.bytes
        for tensor in step.tensors
        if tensor.part is not None and tensor.part.whole.endswith((".output", ".input_gradient"))
    ]
    assert sizes
    assert max(sizes) <= limit


def assert_covered_once(whole: TrainingStep, step: TrainingStep) -> None:
    times: dict[str, NDArray[np.float32]] = {}
    for tensor in step.tensors:
        if tensor.part is not None and not tensor.part.whole.endswith("corrections"):
            name = tensor.part.whole
            counts = times.setdefault(name, np.zeros(whole.tensor[name].bytes // 4, np.float32))
            of_part = tensor.part.of(counts)
            of_part += 1
            assert of_part.size * 4 == tensor.bytes, tensor.name
    assert all((counts == 1).all() for counts in times.values())
    written = {name for op in step.ops for name in op.writes}
    assert written | {t.name for t in step.tensors if t.home} == {t.name for t in step.tensors}


@pytest.mark.parametrize("slices", [Slices(300), Slices(300, 60)], ids=str)
@pytest.mark.parametrize("build", [wide_perceptron, with_adapters])
def test_gradients_of_several_passes_are_summed_by_part(
    build: Callable[[int], Network], slices: Slices, library: KernelLibrary
) -> None:
    whole = training_step(build(4), "momentum", accumulate=2)
    step = sliced(whole, slices)
    start = start_values(whole)
    expected = execute(whole, library, start)
    found = joined(step, execute(step, library, in_slices(start, step)))
    assert any(op.spec.kind == "gradient.accumulate" and "[" in op.name for op in step.ops)
    for name in (tensor.name for tensor in whole.tensors if tensor.persist):
        if name in expected:
            assert found[name].tobytes() == expected[name].tobytes(), name


@pytest.mark.slow
@pytest.mark.parametrize("build", [*WIDE, tied])
@settings(max_examples=15)
@given(slice_bytes=st.integers(1, 2000))
def test_parts_of_weights_cover_every_element_once(
    build: Callable[[int], Network], slice_bytes: int
) -> None:
    whole = training_step(build(1), "adam")
    step = sliced(whole, Slices(slice_bytes))
    assert_covered_once(whole, step)
    for tensor in step.tensors:
        if tensor.part is not None and tensor.part.whole.endswith(".weight"):
            pair_bytes = tensor.bytes // (tensor.part.rows * tensor.part.columns)
            assert tensor.bytes <= max(slice_bytes, pair_bytes)


@pytest.mark.parametrize("build", WIDE)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_the_largest_operation_is_smaller_in_slices(
    build: Callable[[int], Network], optimizer: Optimizer
) -> None:
    whole = with_parameters_in_storage(training_step(build(1), optimizer))
    step = sliced(whole, Slices(400))
    before, _ = least_ram_bytes(uncosted_graph(whole))
    after, _ = least_ram_bytes(uncosted_graph(step))
    assert parts_of(step)
    assert after < before


def test_a_part_is_updated_before_the_next_one_has_a_gradient() -> None:
    step = sliced(training_step(wide_perceptron(1)), Slices(160))
    names = [op.name for op in step.ops if op.layer in ("first", "first.weight", "first.bias")]
    after_forward = [name for name in names if "forward" not in name]
    expected = []
    for columns in ("0:5", "5:10"):
        for rows in ("0:7", "7:14", "14:21"):
            part = f"[{rows},{columns}]"
            expected += [f"first.parameter_gradient{part}", f"first.weight.update{part}"]
            expected += [f"first.bias.update[{rows}]"] * (columns == "0:5")
    assert after_forward == expected


def test_what_parts_cannot_do_stays_whole() -> None:
    """A convolution in groups, and logits of a loss with smoothed labels."""
    net = Network("groups", 1)
    x = net.conv2d("grouped", net.input("image", 1, 8, 3, 3), 32, 3, groups=2)
    net.mean_squared_error("loss", x, net.input("target", *x.shape))
    assert not parts_of(sliced(training_step(net), Slices(100)))
    net = looking_up()
    logits = net.layers[-1].reads[0].name
    assert logits in parts_of(sliced(training_step(net), Slices(100, 100)))
    scalars = {**net.layers[-1].scalars, "smoothing": 0.1}
    net.layers[-1] = replace(net.layers[-1], scalars=scalars)
    assert logits not in parts_of(sliced(training_step(net), Slices(100, 100)))


def test_layers_that_are_not_the_largest_stay_whole() -> None:
    """Their weight is larger than a slice, but activations elsewhere are larger than all of it."""
    net = Network("large image", 1)
    x = net.relu("relu", net.conv2d("stem", net.input("image", 1, 3, 40, 40), 8, 3, padding=1))
    x = net.linear("classifier", net.global_average_pool("pool", x), 30)
    net.softmax_cross_entropy("loss", x, net.input("labels", 1))
    step = training_step(net)
    assert replace(sliced(step, Slices(64)), slices=None, whole=None) == step


def test_initial_values_of_parts_are_those_of_the_whole() -> None:
    whole = build_model("resnet8", optimizer="adam", parameters_in="storage")
    step = build_model(
        "resnet8", optimizer="adam", parameters_in="storage", slices=Slices(32 << 10)
    )
    assert parts_of(step)
    expected = initial_values(whole, seed=3)
    found = joined(step, initial_values(step, seed=3))
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name].reshape(-1), values.reshape(-1))


def test_parts_of_joined_values_are_the_values_of_the_parts() -> None:
    step = sliced(training_step(wide_convolutional()), Slices(256))
    values = initial_values(step, 0)
    assert any(t.part and t.part.whole == "pointwise.weight" for t in step.tensors)
    found = parted(step, joined(step, values))
    assert found.keys() == values.keys()
    for name, expected in values.items():
        np.testing.assert_array_equal(found[name], expected.reshape(-1))
    assert not parted(step, {"another": np.zeros(1, np.float32)})


def test_values_of_a_file_are_found_by_parts_along_inner_axes() -> None:
    network = small_positions()
    draw = np.random.default_rng(0)
    values = {
        value.name: draw.random(value.shape, np.float32)
        for layer in network.layers
        for value in layer.reads
        if value.kind == "parameter"
    }
    whole = replace(
        training_step(network), file=NetworkFile(Path("net.pt2"), "", values, {}, (), {})
    )
    step = sliced(whole, Slices(1 << 20, 768))
    assert any(t.part and t.part.outer > 1 for t in step.tensors if t.kind == "parameter")
    found = joined(step, initial_values(step, 0))
    for name, expected in values.items():
        np.testing.assert_array_equal(found[name].reshape(-1), expected.reshape(-1))


@pytest.mark.parametrize(
    ("model", "slices", "most_bytes"),
    [
        ("resnet18_cifar", Slices(128 << 10), 800 << 10),
        ("vgg16_cifar", Slices(256 << 10), 700 << 10),
        ("resnet8", Slices(16 << 10, 16 << 10), 56 << 10),
        ("mobilenet", Slices(16 << 10, 16 << 10), 120 << 10),
        ("resnet18_cifar", Slices(128 << 10, 64 << 10), 256 << 10),
        pytest.param("bert", Slices(1 << 20, 2 << 20), 5 << 20, marks=pytest.mark.slow),
    ],
)
def test_neither_weights_nor_activations_are_the_floor_of_large_networks(
    model: str, slices: Slices, most_bytes: int
) -> None:
    step = build_model(model, parameters_in="storage", slices=slices)
    assert least_ram_bytes(uncosted_graph(step))[0] < most_bytes


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "slices"),
    [
        ("resnet18_cifar", Slices(4 << 10, 4 << 10)),
        ("vgg16_cifar", Slices(32 << 10)),  # of weights alone
    ],
)
def test_too_many_parts_are_refused(model: str, slices: Slices) -> None:
    with pytest.raises(NetworkError, match=r"slices of .* more than 10000 operations, .* larger"):
        build_model(model, slices=slices)


@pytest.mark.parametrize("build", [normalising, looking_up, wide_convolutional])
@pytest.mark.parametrize("slices", [Slices(200), Slices(100, 100)], ids=str)
def test_as_many_operations_as_are_made_are_counted(
    build: Callable[[int], Network], slices: Slices, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A norm and a loss make several operations of each part, and so do gradients of columns."""
    whole = training_step(build(1))
    made = len(sliced(whole, slices).ops)
    monkeypatch.setattr("networks.training.order.MOST_OPS", made)
    sliced(whole, slices)
    monkeypatch.setattr("networks.training.order.MOST_OPS", made - 1)
    with pytest.raises(NetworkError, match="choose larger slices"):
        sliced(whole, slices)


def test_the_title_states_the_slices() -> None:
    step = build_model("resnet8", slices=Slices(32 << 10))
    assert step.title == "resnet8, batch 1, slices of 32.00 KiB"
    assert step.whole == build_model("resnet8")
    step = build_model("resnet8", slices=Slices(32 << 10, 16 << 10))
    assert step.title == "resnet8, batch 1, slices of 32.00 KiB:16.00 KiB"
