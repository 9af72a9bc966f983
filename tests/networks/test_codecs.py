"""Codecs: bits of activations and places of maxima in place of what the backward pass needs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from devices.quantities import Slices
from networks.models import build_model
from networks.training import Network, Optimizer, training_step, with_parameters_in_storage
from networks.training.codecs import kept_bytes, specs_in_all_forms, with_codecs
from networks.training.network import NetworkError
from networks.training.selection import select_trained
from networks.training.slicing import sliced
from solver.constructed import keep_everything
from solver.costing.uncosted import uncosted_graph
from solver.referee.referee import replay
from tests.networks.test_slicing import assert_same_bits
from tests.support.networks.training import (
    op,
    small_convolutional,
    small_gated,
    small_hourglass,
    small_mixture,
)
from tests.support.onboard.kernels import KernelLibrary, compile_library


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> KernelLibrary:
    return KernelLibrary(compile_library(tmp_path_factory.mktemp("kernels"), "in-tree", ["-O1"]))


def pooled(batch: int = 2) -> Network:
    """Every layer with a code, most of them before one that does not read its input again."""
    net = Network("pooled", batch)
    x = net.conv2d("stem", net.input("image", batch, 3, 7, 9), 6, 3, padding=1)
    x = net.relu("relu", net.batch_norm_frozen("norm", x))
    x = net.max_pool2d("pool", x, 3, stride=2, padding=1)
    x = net.conv2d("narrow", x, 5, 1, bias=True)
    x = net.average_pool2d("average", net.leaky_relu("leaky", x, 0.2), 2, stride=1)
    x = net.conv2d("wide", x, 7, 1)
    x = net.clamp("clamp", x, -0.5, 0.8)
    left, right = (
        net.max_pool2d(f"{side}.pool", x, kernel, stride=1)
        for side, kernel in (("left", (1, 2)), ("right", (2, 1)))
    )
    x = net.concat("join", net.flatten("left", left), net.flatten("right", right))
    x = net.dropout("dropout", net.relu("hidden.relu", net.linear("hidden", x, 11)), 0.4)
    net.softmax_cross_entropy("loss", net.linear("classifier", x, 4), net.input("labels", batch))
    return net


def frozen(batch: int = 2) -> Network:
    """Few parameters are trained, so that the gradients of weights read no activation."""
    net = pooled(batch)
    select_trained(net, ("norm.*", "*.bias"))
    return net


@pytest.mark.slow
@settings(deadline=None, max_examples=40)
@given(
    build=st.sampled_from(
        [pooled, frozen, small_convolutional, small_gated, small_hourglass, small_mixture]
    ),
    optimizer=st.sampled_from(["sgd", "adam"]),
    slices=st.none() | st.builds(Slices, st.integers(1, 1500), st.none() | st.integers(20, 1500)),
    accumulated=st.booleans(),
    in_storage=st.booleans(),
    in_place=st.booleans(),
    seed=st.integers(0, 2**16),
)
def test_a_step_with_codecs_has_the_bits_of_the_step_without(
    build: Callable[[int], Network],
    optimizer: Optimizer,
    slices: Slices | None,
    accumulated: bool,
    in_storage: bool,
    in_place: bool,
    seed: int,
    library: KernelLibrary,
) -> None:
    split = accumulated and build not in (small_convolutional, small_mixture)
    whole = training_step(build(2), optimizer, accumulate=2 if split else 1)
    if in_storage:
        whole = with_parameters_in_storage(whole)
    try:
        plain = whole if slices is None else sliced(whole, slices)
    except NetworkError as error:
        assume("make more than" not in str(error))  # slices of a few bytes make too many ops
        raise
    step = with_codecs(plain)
    assert kept_bytes(step) <= kept_bytes(plain)
    assert_same_bits(whole, step, library, seed, in_place=in_place)


def test_the_backward_pass_reads_codes_where_it_needs_no_more() -> None:
    plain = training_step(pooled(2))
    step = with_codecs(plain)
    assert step.codecs
    assert step.whole is plain
    assert step.title == "pooled, batch 2, with codecs"
    kinds = {each.spec.kind for each in step.ops}
    assert not kinds & {f"{f}.input_gradient" for f in ("relu", "leaky_relu", "clamp")}
    assert "max_pool2d.input_gradient" not in kinds
    assert op(step, "relu.forward").writes == ("relu.output", "relu.output.bits")
    assert op(step, "left.pool.input_gradient").reads[0] == "left.pool.output.places"
    backward = [each for each in step.ops if each.phase == "backward"]
    read = {name for each in backward for name in each.reads}
    assert not read & {"relu.output", "leaky.output", "clamp.output", "hidden.relu.output"}
    # Nothing reads this ReLU's output again, so that the dropout after it can overwrite it.
    assert op(step, "dropout.forward").in_place == {"dropout.output": "hidden.relu.output"}
    assert not op(plain, "dropout.forward").in_place


def test_an_activation_that_another_gradient_reads_stays_as_it_is() -> None:
    net = Network("convolutions", 1)
    x = net.relu("relu", net.conv2d("first", net.input("image", 1, 2, 5, 5), 3, 3))
    x = net.global_average_pool("pool", net.tanh("tanh", net.conv2d("second", x, 3, 1)))
    net.softmax_cross_entropy("loss", net.linear("classifier", x, 3), net.input("labels", 1))
    step = training_step(net)
    assert with_codecs(step) is step
    select_trained(net, ("first.weight",))  # the weight after this ReLU needs no gradient now
    assert with_codecs(training_step(net)).codecs


def test_windows_with_more_places_than_a_byte_numbers_stay_as_they_are() -> None:
    net = Network("large windows", 1)
    x = net.conv2d("stem", net.input("image", 1, 1, 20, 20), 2, 3)
    x = net.flatten("flatten", net.max_pool2d("pool", net.relu("relu", x), 17, stride=1))
    net.softmax_cross_entropy("loss", net.linear("classifier", x, 3), net.input("labels", 1))
    step = training_step(net)
    assert with_codecs(step) is step


@pytest.mark.parametrize(
    ("model", "less"), [("vgg16_cifar", 0.36), ("resnet18", 0.14), ("dscnn", 0.09)]
)
def test_activations_of_known_networks_need_less_ram(model: str, less: float) -> None:
    plain, coded = build_model(model), build_model(model, codecs=True)
    peaks = [
        replay(graph, keep_everything(graph), "activations").peak_bytes
        for graph in map(uncosted_graph, (plain, coded))
    ]
    assert peaks[1] < (1 - less) * peaks[0]
    assert coded.whole == plain


def test_a_profile_measures_a_step_without_and_with_codecs() -> None:
    step = build_model("dscnn")
    specs = specs_in_all_forms(step)
    assert specs[: len(step.costed_specs)] == step.costed_specs
    assert {"relu.forward", "relu_bits.forward"} <= {spec.kind for spec in specs}
    assert len(set(specs)) == len(specs)
