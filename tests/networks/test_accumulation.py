"""Gradient accumulation: the gradients of the whole batch, from parts of it in turn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from devices.operation import OpSpec
from networks.data import generated_batches
from networks.exported import read_network
from networks.models.registry import build_model
from networks.training import Network, NetworkError, TrainingStep, training_step
from networks.training.accumulation import part_of, split
from networks.training.initial import initial_values
from networks.training.network import Value
from tests.support.networks.training import (
    Values,
    execute,
    gradients,
    small_convolutional,
    small_gated,
    small_hourglass,
    small_lookups,
    small_mixture,
    small_transformer,
    start_values,
)
from tests.support.onboard.kernels import KernelLibrary, compile_library
from tests.support.paths import REFERENCES

EXPORTED = REFERENCES / "exported"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> KernelLibrary:
    return KernelLibrary(compile_library(tmp_path_factory.mktemp("kernels"), "in-tree", ["-O1"]))


def without_dropout(build: Callable[[int], Network]) -> Callable[[int], Network]:
    """The same network with dropouts that drop nothing: otherwise parts draw other numbers."""

    def built(batch: int) -> Network:
        network = build(batch)
        network.layers[:] = [
            replace(layer, scalars={**layer.scalars, "probability": 0.0})
            if layer.spec.family == "dropout"
            else layer
            for layer in network.layers
        ]
        return network

    return built


def exported(name: str) -> Callable[[int], Network]:
    """The network of a file, which has a batch of its own."""
    return lambda _batch: read_network(EXPORTED / f"{name}.pt2")[0]


def in_parts(values: Values, step: TrainingStep, parts: int) -> Values:
    """The values, with the inputs split among the parts."""
    inputs = {tensor.name for tensor in step.tensors if tensor.kind == "input"}
    found = {name: value for name, value in values.items() if name not in inputs}
    for name in inputs:
        for number, part in enumerate(np.split(values[name].reshape(-1), parts), start=1):
            found[part_of(name, number, parts)] = part
    return found


def small_rooted(batch: int) -> Network:
    """The root of a mean over the samples."""
    net = Network("rooted", batch)
    x = net.linear("fc", net.input("x", batch, 3), 2)
    error = net.mean_squared_error("error", x, net.input("target", batch, 2))
    net.loss = net.append("root", OpSpec.of("square_root.forward", elements=1), (error,))
    net.one = Value("constants.one", (1,), "parameter")
    return net


SEPARATE = {
    "gated": small_gated,
    "hourglass": small_hourglass,
    "lookups": small_lookups,
    "transformer": without_dropout(small_transformer),
    "sequences": exported("sequences"),
    "views": exported("views"),
    "in_place": exported("in_place"),
    "activations": exported("activations"),
    "attending": exported("attending"),
    "composed_loss": exported("composed_loss"),
    "decoder": exported("decoder"),
    "keywords": exported("keywords"),
    "positions": exported("positions"),
    "products": exported("products"),
    "temporal": exported("temporal"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SEPARATE)
def test_loss_and_gradients_are_those_of_the_whole_batch(name: str, library: KernelLibrary) -> None:
    network = SEPARATE[name](4)
    parts = 3 if network.batch % 3 == 0 else 2
    whole, step = training_step(network), training_step(network, accumulate=parts)
    start = start_values(whole)
    expected = execute(whole, library, start)
    made = execute(step, library, in_parts(start, whole, parts))
    assert network.loss is not None
    loss = network.loss.name
    assert float(made[loss][0]) == pytest.approx(float(expected[loss][0]), rel=1e-5)
    found, wanted = gradients(step, made), gradients(whole, expected)
    assert found.keys() == wanted.keys()
    for key, gradient in wanted.items():
        largest = float(np.abs(gradient).max())
        np.testing.assert_allclose(
            found[key].reshape(-1),
            gradient.reshape(-1),
            rtol=1e-4,
            atol=1e-5 * max(largest, 1e-2),
            err_msg=key,
        )


@pytest.mark.parametrize("parts", [2, 3, 6])
def test_any_divisor_of_the_batch_is_a_number_of_parts(parts: int, library: KernelLibrary) -> None:
    network = small_hourglass(6)
    whole, step = training_step(network), training_step(network, accumulate=parts)
    start = start_values(whole)
    wanted = gradients(whole, execute(whole, library, start))
    found = gradients(step, execute(step, library, in_parts(start, whole, parts)))
    for key, gradient in wanted.items():
        found_flat, flat = found[key].reshape(-1), gradient.reshape(-1)
        np.testing.assert_allclose(found_flat, flat, rtol=1e-4, atol=1e-6, err_msg=key)


@pytest.mark.parametrize("build", [small_gated, small_hourglass, small_lookups, small_transformer])
def test_a_part_is_the_network_on_fewer_samples(build: Callable[[int], Network]) -> None:
    part, smaller = split(build(6), 3)[0], build(2)
    assert [layer.spec for layer in part.layers] == [layer.spec for layer in smaller.layers]
    for layer, other in zip(part.layers, smaller.layers, strict=True):
        for values, others in ((layer.reads, other.reads), (layer.writes, other.writes)):
            assert [value.shape for value in values] == [value.shape for value in others]


def test_one_part_is_the_step_itself() -> None:
    network = small_gated(4)
    assert training_step(network, accumulate=1) == training_step(network)


def test_every_parameter_has_one_update_and_every_part_its_own_dropout() -> None:
    step = training_step(small_transformer(4), accumulate=2)
    updated = [op.reads[0] for op in step.ops if op.name.endswith(".update")]
    assert len(updated) == len(set(updated))
    seeds = [op.scalars["seed"] for op in step.ops if op.spec.kind == "dropout.forward"]
    assert len(seeds) == len(set(seeds)) == 4


def test_every_part_draws_for_its_own_samples() -> None:
    step = training_step(exported("random_paths")(4), accumulate=2)
    draws = [op for op in step.ops if op.spec.kind == "dropout_rows.forward"]
    assert {op.spec.attributes["rows"] for op in draws} == {1, 2, 8}
    assert len({op.scalars["seed"] for op in draws}) == len(draws)


def test_activations_of_one_part_are_made_after_the_backward_pass_of_the_part_before() -> None:
    step = training_step(small_hourglass(4), accumulate=2)
    names = [op.name for op in step.ops]
    assert names.index("down@2.forward") > names.index("down@1.parameter_gradient")


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (
            exported("weighted"),
            r"cross_entropy.*: its mean is divided by the weights of the labels",
        ),
        (small_convolutional, r"stem\.norm \(batch_norm\.forward\): it normalises with the stat"),
        (small_mixture, r"input rows has shape \(2,\); its first axis must"),
        (
            small_rooted,
            r"root \(square_root\.forward\): it is not linear, and takes a sum over samp",
        ),
        (
            exported("arithmetic"),
            r"broadcast_add\.forward\): it reads shift, which holds no samples",
        ),
        (exported("recurrent"), r"concat\.forward\): its outer are not those of whole samples"),
        (exported("segmentation"), r"strided_copy\.forward\): its result does not hold the samp"),
    ],
)
def test_a_network_that_mixes_samples_is_refused(
    build: Callable[[int], Network], said: str
) -> None:
    with pytest.raises(NetworkError, match=said):
        training_step(build(4), accumulate=2)


def test_bert_gathers_from_all_samples_and_is_refused() -> None:
    with pytest.raises(NetworkError, match=r"pooler\.first .*: it reads table of all samples"):
        build_model("bert", 2, accumulate=2)


def copied(sizes: tuple[int, ...], strides: tuple[int, ...], offset: int = 0) -> Network:
    """A network with a copy of an activation [4, 3, 2]."""
    net = Network("copied", 4)
    x = net.relu("relu", net.linear("linear", net.input("x", 4, 3, 2), 2))
    axes = (*((1, 1) for _ in range(6 - len(sizes))), *zip(sizes, strides, strict=True))
    attributes = {
        key: number
        for axis, (size, stride) in enumerate(axes)
        for key, number in ((f"size{axis}", size), (f"stride{axis}", stride))
    }
    spec = OpSpec.of("strided_copy.forward", source=24, offset=offset, **attributes)
    y = net.append("copy", spec, (x,), shape=(4, spec.writes[0].elements // 4))
    net.mean_squared_error("loss", y, net.input("target", *y.shape))
    return net


@pytest.mark.parametrize(
    "network",
    [
        copied((4, 2, 3), (6, 1, 2)),  # a transpose within each sample
        copied((4, 2), (6, 1), offset=2),  # a part of each sample
        copied((12, 2), (2, 1)),  # samples and rows as one axis
    ],
)
def test_a_copy_within_each_sample_is_split(network: Network, library: KernelLibrary) -> None:
    whole, step = training_step(network), training_step(network, accumulate=2)
    start = start_values(whole)
    wanted = gradients(whole, execute(whole, library, start))
    found = gradients(step, execute(step, library, in_parts(start, whole, 2)))
    for key, gradient in wanted.items():
        flat = found[key].reshape(gradient.shape)
        np.testing.assert_allclose(flat, gradient, rtol=1e-5, atol=1e-6, err_msg=key)


@pytest.mark.parametrize(
    "network",
    [
        copied((3, 4, 2), (2, 6, 1)),  # samples as the second axis
        copied((4, 6), (0, 1)),  # one sample, repeated
        copied((8, 2), (2, 1)),  # rows that are not those of whole samples
        copied((4, 3), (3, 1)),  # rows at another distance
    ],
)
def test_a_copy_that_mixes_samples_is_refused(network: Network) -> None:
    with pytest.raises(NetworkError, match=r"copy \(strided_copy\.forward\): its result does not"):
        training_step(network, accumulate=2)


def test_generated_samples_are_the_same_in_parts_and_as_a_whole() -> None:
    whole, step = build_model("linear", 4), build_model("linear", 4, accumulate=2)
    expected = generated_batches(whole, 8, 1).batch(1)
    found = generated_batches(step, 8, 1).batch(1)
    for name, values in expected.items():
        parts = [found[part_of(name, number, 2)] for number in (1, 2)]
        np.testing.assert_array_equal(np.concatenate(parts), values)
    assert initial_values(step, 1).keys() == initial_values(whole, 1).keys()
