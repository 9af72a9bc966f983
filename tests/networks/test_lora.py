"""Low-rank adapters: which layers get them, what they compute and where they start."""

from __future__ import annotations

import numpy as np
import pytest

from devices.operation import OpSpec
from networks.models import build_model
from networks.training import Network, TrainingStep, training_step, with_parameters_in_storage
from networks.training.initial import initial_values
from networks.training.lora import Lora, add_adapters
from networks.training.network import NetworkError
from networks.training.selection import select_trained
from tests.support.failures import sentence_of
from tests.support.networks.training import execute, op, small_transformer, start_values
from tests.support.onboard.kernels import KernelLibrary, compile_library
from tests.support.paths import REFERENCES

RANK = 3
WAVES = str(REFERENCES / "exported" / "waves.pt2")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> KernelLibrary:
    return KernelLibrary(compile_library(tmp_path_factory.mktemp("kernels"), "in-tree", ["-O1"]))


def adapted(network: Network, lora: str, *trained: str) -> TrainingStep:
    select_trained(network, trained)
    adapters = add_adapters(network, Lora.parse(lora))
    step = training_step(network)
    return TrainingStep(**{**vars(step), "lora": lora, "adapters": adapters})


def updated(step: TrainingStep) -> set[str]:
    return {each.reads[0] for each in step.ops if each.name.endswith(".update")}


def matrices(weights: set[str]) -> set[str]:
    """Names of the matrices of these weights' adapters."""
    return {f"{name.removesuffix('weight')}lora_{part}.weight" for name in weights for part in "AB"}


def test_every_linear_layer_gets_two_trained_matrices_and_all_else_is_frozen() -> None:
    step = adapted(small_transformer(), "3")
    plain = training_step(small_transformer())
    linear = {each.reads[1] for each in plain.ops if each.spec.kind == "linear.forward"}
    names = {adapter.name for adapter in step.adapters}
    assert updated(step) == names == matrices(linear)
    for adapter in step.adapters:
        assert step.tensor[adapter.name].bytes == 4 * adapter.shape[0] * adapter.shape[1]
    assert op(step, "wide.lora_A.forward").spec.values[:3] == (12, 4, RANK)
    assert op(step, "wide.lora_B.forward").spec.values[:3] == (12, RANK, 8)


@pytest.mark.parametrize(
    ("lora", "layers"),
    [
        ("2:query.weight", {"query"}),
        ("2:*e*y.weight", {"query", "key"}),
        ("2:[nw]*", {"narrow", "wide"}),
    ],
)
def test_a_pattern_selects_layers_by_the_names_of_their_weights(
    lora: str, layers: set[str]
) -> None:
    step = adapted(small_transformer(), lora)
    assert {name.split(".")[0] for name in updated(step)} == layers


def test_what_train_names_is_trained_too() -> None:
    step = adapted(small_transformer(), "2:query.weight", "head")
    assert updated(step) == {
        *("query.lora_A.weight", "query.lora_B.weight"),
        *("classifier.weight", "classifier.bias"),
    }


@pytest.mark.parametrize(
    ("lora", "sentence"),
    [
        ("0", "must be a rank from 1 to"),
        ("3:", "must be a rank from 1 to"),
        ("all", "must be a rank from 1 to"),
        ("2:quary.weight", "weight named 'quary.weight' for LoRA; did you mean query.weight?"),
    ],
)
def test_what_selects_nothing_is_refused(lora: str, sentence: str) -> None:
    said = sentence_of(NetworkError, lambda: adapted(small_transformer(), lora))
    assert sentence in said


def test_a_network_without_linear_layers_is_refused() -> None:
    net = Network("bare", 1)
    x = net.global_average_pool("pool", net.conv2d("conv", net.input("image", 1, 1, 4, 4), 2, 3))
    net.softmax_cross_entropy("loss", x, net.input("labels", 1))
    with pytest.raises(NetworkError, match="bare: has no linear layer for LoRA"):
        adapted(net, "2")


def test_adapters_begin_as_in_peft_and_depend_only_on_the_seed() -> None:
    """Kaiming uniform with a = √5 is uniform in ±1 / √fan-in."""
    step = adapted(small_transformer(), "3")
    values, again, other = (initial_values(step, seed) for seed in (1, 1, 2))
    for adapter in step.adapters:
        value = values[adapter.name]
        assert value.shape == adapter.shape
        if ".lora_B." in adapter.name:
            assert not value.any()
        else:
            bound = 1 / np.sqrt(adapter.shape[1])
            assert np.abs(value).max() <= bound
            assert np.abs(value).max() > 0.7 * bound
            assert value.tobytes() != other[adapter.name].tobytes()
        assert value.tobytes() == again[adapter.name].tobytes()
    stored = initial_values(with_parameters_in_storage(step), 1)
    assert {name: value.tobytes() for name, value in stored.items()} == {
        name: value.tobytes() for name, value in values.items()
    }


def test_an_adapted_layer_computes_its_result_and_the_correction(library: KernelLibrary) -> None:
    step = adapted(small_transformer(), "3:wide.weight")
    start = start_values(step)
    made = execute(step, library, start)
    x = made["norm1.output"].reshape(12, 4)
    a, b = start["wide.lora_A.weight"], start["wide.lora_B.weight"]
    weight, bias = start["wide.weight"], start["wide.bias"]
    expected = x @ weight.T + bias + x @ a.T @ b.T
    result = made["wide.lora.output"].reshape(12, 8)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)
    gradient = made["wide.lora_B.input_gradient"].reshape(12, 3)
    np.testing.assert_allclose(
        made["wide.lora_A.weight_gradient"], gradient.T @ x, rtol=1e-4, atol=1e-5
    )


def test_before_the_first_step_adapters_change_nothing(library: KernelLibrary) -> None:
    plain, step = training_step(small_transformer()), adapted(small_transformer(), "3")
    values = {**start_values(step), **initial_values(step, 0)}
    before = {name: values[name] for name in start_values(plain)}
    adapted_loss, loss = (
        execute(each, library, start)["loss.loss"]
        for each, start in ((step, values), (plain, before))
    )
    assert adapted_loss == loss


def tied() -> Network:
    """A layer that is called twice, and an output layer that shares the embedding's table."""
    net = Network("tied", 1)
    x = net.embedding("embed", net.input("tokens", 1, 3), vocabulary=5, features=4)
    x = net.linear("mix", x, 4)
    layer = net.layers[-1]
    y = net.append("mix again", layer.spec, (x, *layer.reads[1:]), shape=x.shape)
    table = net.layers[0].reads[1]
    spec = OpSpec.of("linear.forward", rows=3, in_features=4, out_features=5, bias=0)
    logits = net.append("out", spec, (y, table), shape=(1, 3, 5))
    net.softmax_cross_entropy("loss", logits, net.input("labels", 1, 3))
    return net


def test_a_weight_that_two_layers_read_has_one_adapter() -> None:
    step = adapted(tied(), "2")
    assert updated(step) == {"mix.lora_A.weight", "mix.lora_B.weight"}
    readers = [each for each in step.ops if "mix.lora_A.weight" in each.reads]
    assert sum(each.phase == "forward" for each in readers) == 2


def test_an_output_layer_tied_to_an_embedding_has_an_adapter_only_if_it_is_named() -> None:
    assert updated(adapted(tied(), "2:embed.table")) == {
        "embed.table.lora_A.weight",
        "embed.table.lora_B.weight",
    }


def test_a_networks_file_gets_adapters_under_its_own_names() -> None:
    step = build_model(WAVES, lora="2")
    plain = build_model(WAVES)
    linear = {each.reads[1] for each in plain.ops if each.spec.kind == "linear.forward"}
    assert {adapter.name for adapter in step.adapters} == matrices(linear)
    assert ", LoRA 2" in step.title


def test_a_product_with_a_buffer_or_a_constant_has_no_adapter() -> None:
    step = build_model(str(REFERENCES / "exported" / "buffers.pt2"), lora="2")
    assert updated(step) == matrices({"mix.weight", "head.weight"})


def test_a_layer_that_no_gradient_reaches_has_no_adapter() -> None:
    """It is called in a ``torch.no_grad`` block only."""
    step = build_model(str(REFERENCES / "exported" / "stopped.pt2"), lora="2")
    trained = matrices({"second.weight", "third.weight"})
    assert {adapter.name for adapter in step.adapters} == updated(step) == trained


def test_an_adapter_lets_no_gradient_through_where_it_is_stopped() -> None:
    """Two layers read the weight, one without a gradient; both results are corrected."""
    net = Network("stopped once", 1)
    x = net.input("vector", 1, 3)
    left = net.linear("mix", x, 2)
    layer = net.layers[-1]
    right = net.append("mix again", layer.spec, (x, *layer.reads[1:]), shape=left.shape)
    net.stop_gradient()
    net.softmax_cross_entropy("loss", net.add("add", left, right), net.input("labels", 1))
    step = adapted(net, "2")
    forward, backward = (
        {each.layer for each in step.ops if each.phase == phase and ".lora" in each.layer}
        for phase in ("forward", "backward")
    )
    assert forward == {
        f"mix.lora{part}{again}" for part in ("_A", "_B", "") for again in ("", ".2")
    }
    assert backward == {"mix.lora_A", "mix.lora_B"}


@pytest.mark.parametrize(
    ("lora", "what"),
    [("2:first.weight", "weights named 'first.weight'"), ("2", "linear layers")],
)
def test_adapters_that_no_gradient_reaches_are_refused(lora: str, what: str) -> None:
    net = Network("stopped", 1)
    x = net.linear("first", net.input("vector", 1, 3), 2)
    net.stop_gradient()
    net.softmax_cross_entropy("loss", x, net.input("labels", 1))
    said = sentence_of(NetworkError, lambda: adapted(net, lora))
    assert f"stopped: no gradient of the loss reaches {what}, which LoRA would train" in said
