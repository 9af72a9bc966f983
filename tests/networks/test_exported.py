"""Networks that PyTorch exported: equal gradients, and refusals that say what to do."""

from __future__ import annotations

import json
import os
import sys
import zipfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from networks.data import DataError, generated_batches, load_batches
from networks.data.inputs import as_addend, sample_inputs
from networks.exported import exported
from networks.exported.errors import ExportError
from networks.models import ModelError, build_model
from networks.training import NetworkError, TrainingStep
from networks.training.initial import initial_values
from tests.support.failures import sentence_of
from tests.support.graphs.graph_strategies import examples
from tests.support.networks.training import execute, gradients
from tests.support.onboard.kernels import Array, KernelLibrary, compile_library
from tests.support.paths import REFERENCES

EXPORTED = REFERENCES / "exported"
TRAINABLE = [
    "convolutional",
    "sequences",
    "waves",
    "beyond_norm",
    "activations",
    "norms",
    "views",
    "in_place",
    "arithmetic",
    "pooled",
    "composed_loss",
    "composed_functions",
    "composed_losses",
    "positions",
    "segmentation",
    "attending",
    "trained_mask",
    "decoder",
    "products",
    "classifier",
    "keywords",
    "recurrent",
    "temporal",
    "encoder",
    "stopped",
    "weighted",
    "computed_indices",
    "norm_twice",
    "filled_constants",
    "compared",
    "compositions",
    "each_row",
    "irregular",
    "resized",
    "weight_norms",
    "infinite",
    "kinks",
    "partly_stopped",
    "padded",
    "filled",
    "buffers",
    "ignored_labels",
    "changed_copy",
    "same_in_place",
    "set_parts",
    "changed_constants",
    "set_infinite",
    "negative_places",
    "changed_heads",
    "read_without_gradient",
    "compared_mask",
    "selected_loss",
    "constant_place",
    "selected",
    "beside",
]


def network(name: str) -> TrainingStep:
    return build_model(str(EXPORTED / f"{name}.pt2"))


def recorded(name: str, what: str) -> dict[str, Array]:
    """Arrays that PyTorch made of one step: ``input``, ``gradient`` or ``buffer``, by name."""
    with np.load(EXPORTED / f"{name}.npz") as arrays:
        return {key.removeprefix(f"{what}."): arrays[key] for key in arrays if key.startswith(what)}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> KernelLibrary:
    return KernelLibrary(compile_library(tmp_path_factory.mktemp("kernels"), "in-tree", ["-O1"]))


def as_the_step_takes_it(values: Array) -> Array:
    if values.dtype.kind == "b":
        return as_addend(values)
    return values.astype(np.int32 if values.dtype.kind == "i" else np.float32)


def one_step(name: str, library: KernelLibrary) -> tuple[TrainingStep, dict[str, Array]]:
    """Execute one step on the recorded inputs, from the file's weights."""
    step = network(name)
    inputs = {key: as_the_step_takes_it(values) for key, values in recorded(name, "input").items()}
    return step, execute(step, library, {**initial_values(step, 0), **inputs})


# --- what is trained --------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", TRAINABLE)
def test_loss_gradients_and_statistics_agree_with_pytorch(
    name: str, library: KernelLibrary
) -> None:
    step, made = one_step(name, library)
    (loss,) = (
        made[each.name] for each in step.tensors if each.kind == "activation" and each.persist
    )
    assert loss.item() == pytest.approx(float(recorded(name, "loss")["loss"]), rel=1e-6)
    found, expected = gradients(step, made), recorded(name, "gradient")
    assert found.keys() == expected.keys()
    for key, gradient in found.items():
        wanted = expected[key].reshape(gradient.shape)
        np.testing.assert_allclose(gradient, wanted, rtol=2e-5, atol=1e-6, err_msg=key)
    buffers, last = recorded(name, "buffer"), {}
    for op in step.ops:
        if op.spec.kind == "batch_norm.statistics_update":
            for written, kept in op.in_place.items():
                last[step.buffer[kept]] = made[written]
    for kept, found_last in last.items():
        np.testing.assert_allclose(found_last, buffers[kept], rtol=1e-5, atol=1e-7)


def test_frozen_parameters_have_neither_gradient_nor_update() -> None:
    step = network("waves")
    updated = {op.reads[0] for op in step.ops if op.name.endswith(".update")}
    assert updated == {"norm.bias", "second.weight", "output.weight", "output.bias"}
    assert not [op.name for op in step.ops if op.layer == "frozen" and op.phase == "backward"]


def test_gradients_pass_through_a_norm_whose_parameters_are_frozen() -> None:
    updated = [op.reads[0] for op in network("beyond_norm").ops if op.name.endswith(".update")]
    assert sorted(updated) == ["first.bias", "first.weight"]


def test_an_input_has_the_shape_of_the_file_however_the_network_reads_it() -> None:
    assert network("positions").tensor["labels"].shape == (2, 7)  # the loss reads 14 of them


def test_tied_weights_are_one_tensor_with_one_update() -> None:
    step = network("sequences")
    assert step.file is not None
    assert step.file.tensor_of["head.weight"] == step.file.tensor_of["table.weight"]
    names = [op.reads[0] for op in step.ops if op.name.endswith(".update")]
    assert len(names) == len(set(names))
    assert not {"head.weight", "table.weight"} <= {tensor.name for tensor in step.tensors}


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [
        ("tied_transposed", "encoder.weight", "decoder.weight"),
        ("frozen_view", "first.weight", "second.weight"),
    ],
)
def test_parameters_that_share_memory_in_other_layouts_are_refused(
    name: str, first: str, second: str
) -> None:
    """PyTorch changes both when it updates one; here, they would be trained apart."""
    with pytest.raises(
        ExportError, match=f"{first} and {second} share memory and differ in layout"
    ):
        network(name)


def test_a_growing_concatenation_copies_each_part_once() -> None:
    step = network("convolutional")
    joins = [op for op in step.ops if op.spec.kind == "concat.forward"]
    assert len(joins) == 2  # of three and of two tensors, which begin alike


def test_views_need_no_operation() -> None:
    kinds = {op.spec.family for name in TRAINABLE for op in network(name).ops}
    assert "flatten" not in kinds


def test_a_rotary_embedding_and_an_rms_norm_are_one_operation_each() -> None:
    forward = [op.spec.family for op in network("positions").ops if op.phase == "forward"]
    assert (forward.count("rotary"), forward.count("rms_norm")) == (1, 1)
    assert not {"concat", "square", "reduce", "multiply_number"} & set(forward)


def test_constants_are_not_among_the_modules_tensors() -> None:
    step = network("positions")
    assert step.file is not None
    constants = {tensor.name for tensor in step.tensors if tensor.name.startswith("constants.")}
    assert constants == set(step.file.constants)
    assert len(constants) == 2  # cosine and sine
    assert not [name for name in step.file.values if "frequencies" in name]


def test_what_only_a_stopped_gradient_reaches_stays_as_it_is() -> None:
    """A tensor that is detached is the same one, and needs no operation."""
    step = network("stopped")
    updated = {op.reads[0] for op in step.ops if op.phase == "update"}
    assert updated == {
        f"{layer}.{part}" for layer in ("second", "third") for part in ("weight", "bias")
    }
    assert not [op.name for op in step.ops if op.spec.family == "flatten"]


def test_a_stopped_gradient_stays_so_where_other_parameters_are_chosen() -> None:
    with pytest.raises(NetworkError, match="no gradient of the loss reaches"):
        build_model(str(EXPORTED / "stopped.pt2"), train=["first.*"])


def test_sequences_are_read_in_the_order_in_which_they_are_stored() -> None:
    """Whether batch or time comes first, and without initial states of zeros."""
    for name in ("classifier", "keywords"):
        copies = [op.name for op in network(name).ops if op.spec.kind == "strided_copy.forward"]
        assert copies == ["head.copy.forward"]  # of the last hidden state
    layers = {op.layer: op.spec.attributes for op in network("recurrent").ops}
    assert layers["both.l0"]["batch_first"] == 1  # a transposed input of a time-first module
    assert layers["both.l1_reverse"] == {**layers["both.l1"], "reverse": 1, "final_cell": 1}
    assert layers["both.l0"]["initial_hidden"] == layers["both.l0"]["initial_cell"] == 0
    assert layers["gru"]["initial_hidden"] == 1
    assert layers["lstm_cell.lstm_cell"]["initial_cell"] == 0
    assert layers["lstm_cell.lstm_cell_1"]["initial_cell"] == 1


def test_zeros_before_a_convolution_become_its_padding() -> None:
    ops = {op.name: op for op in network("temporal").ops}
    for level in range(3):
        attributes = ops[f"causal.{level}.forward"].spec.attributes
        assert (attributes["pad_left"], attributes["pad_right"]) == (2**level, 0)
        assert attributes.get("dilation_width", 1) == 2**level
    assert {name for name in ops if "pad" in name} == {
        *(f"pad_3.{entry}" for entry in ("forward", "input_gradient")),
        *(f"pad_4.{entry}" for entry in ("forward", "input_gradient")),
        *(f"pad_4.copy.{entry}" for entry in ("forward", "input_gradient")),
    }


def test_operations_are_named_after_modules() -> None:
    layers = {op.layer for op in network("convolutional").ops}
    assert {"stem", "norm", "grown.0", "grown.1", "classifier"} <= layers


def test_samples_have_the_shapes_that_were_exported(tmp_path: Path) -> None:
    given = recorded("sequences", "input")
    tokens, following = given["tokens"], given["following"].reshape(2, 5)
    np.savez(tmp_path / "samples.npz", tokens=tokens, following=following)
    batch = load_batches(tmp_path / "samples.npz", network("sequences")).batch(0)
    assert batch["tokens"].tolist() == tokens.tolist()
    assert batch["following"].tolist() == following.tolist()


def test_attention_is_one_operation_that_keeps_no_weights() -> None:
    step = network("decoder")
    kinds = [op.spec.kind for op in step.ops if op.spec.family in {"attention", "strided_copy"}]
    assert kinds == ["attention.forward", "attention.input_gradient"]


def test_query_key_and_value_of_one_layer_are_not_copied() -> None:
    found = next(op for op in network("views").ops if op.spec.kind == "attention.forward")
    assert found.reads == ("all.output",)


def test_pytorchs_encoder_copies_nothing() -> None:
    """Neither the order of its axes nor that it merges samples and heads needs a copy."""
    copies = [op.name for op in network("encoder").ops if op.spec.family == "strided_copy"]
    assert not [name for name in copies if name.startswith("layer")]


def test_each_attention_with_dropout_has_its_own_seed() -> None:
    forward = [op for op in network("dropped").ops if op.spec.kind == "attention.forward"]
    assert [op.spec.attributes["dropout"] for op in forward] == [1, 1]
    assert [op.scalars["probability"] for op in forward] == [0.25, 0.25]
    assert len({op.scalars["seed"] for op in forward}) == 2


def test_random_paths_draw_once_for_each_sample_or_channel(library: KernelLibrary) -> None:
    """As torchvision, timm and transformers write it; what is kept is divided in the same way."""
    step = network("random_paths")
    batch = generated_batches(step, 4, 0).batch(0)
    made = execute(step, library, {**initial_values(step, 0), **batch}, in_place=False)
    forward = [op for op in step.ops if op.spec.kind == "dropout_rows.forward"]
    factors = [4 / 3, 1.0, 4 / 3, 4 / 3, 4 / 3]
    assert [op.spec.attributes["rows"] for op in forward] == [4, 4, 4, 1, 16]
    assert [op.scalars["factor"] for op in forward] == pytest.approx(factors)
    assert [op.scalars["probability"] for op in forward] == pytest.approx([0.25] * 5)
    assert len({op.scalars["seed"] for op in forward}) == 5
    for op in forward:
        x, y = (
            made[name].reshape(op.spec.attributes["rows"], -1) for name in (*op.reads, *op.writes)
        )
        kept = y.any(axis=1)
        np.testing.assert_array_equal(y, x * np.float32(op.scalars["factor"]) * kept[:, None])
    assert not [op.name for op in step.ops if op.spec.family == "multiply_number"]


def test_repeated_elements_are_dropped_one_by_one(library: KernelLibrary) -> None:
    """As PyTorch does: each sample has draws of its own."""
    step = network("dropped_repeated")
    batch = generated_batches(step, 4, 0).batch(0)
    made = execute(step, library, {**initial_values(step, 0), **batch}, in_place=False)
    (drop,) = (op for op in step.ops if op.spec.kind == "dropout.forward")
    found = made[drop.writes[0]].reshape(4, 8)
    assert set(found.flat) == {0.0, 2.0}  # of ones, with a probability of 0.5
    assert len({tuple(row) for row in found}) == 4


def test_labels_that_are_ignored_are_read_from_samples(tmp_path: Path) -> None:
    step = network("weighted")
    samples = recorded("weighted", "input")
    np.savez(tmp_path / "samples.npz", **samples)
    assert load_batches(tmp_path / "samples.npz", step).batch(0)["some"].tolist() == [-1, 1, 4, -1]
    np.savez(tmp_path / "samples.npz", **{**samples, "some": samples["some"] - 1})
    with pytest.raises(DataError, match="some contains -2; numbers must be from 0 to 4, or -1"):
        load_batches(tmp_path / "samples.npz", step)


def test_labels_that_are_computed_from_an_input_bound_its_numbers() -> None:
    tokens, shown = sample_inputs(network("computed_indices"))
    assert (tokens.use, tokens.bound, shown.use) == ("tokens", 11, "numbers")


def test_a_mask_has_one_row_where_all_queries_or_heads_share_it() -> None:
    masks = [
        tuple(op.spec.attributes[f"mask_{axis}"] for axis in ("batch", "heads", "queries"))
        for op in network("attending").ops
        if op.spec.kind == "attention.forward"
    ]
    none = (0, 0, 0)
    assert masks == [none, (1, 1, 6), (1, 2, 1), (2, 1, 1), (2, 1, 1), none, (2, 1, 1)]


def test_a_mask_that_is_true_or_false_is_no_trained_one() -> None:
    """Attention with it is one operation, whatever it was compared from."""
    forward = [op.spec for op in network("compared_mask").ops if op.phase == "forward"]
    assert [op.family for op in forward].count("attention") == 2
    assert "softmax" not in {op.family for op in forward}


def test_everything_that_has_a_gradient_can_be_selected() -> None:
    step = build_model(str(EXPORTED / "attending.pt2"), train=["*"])
    assert updated(step) == updated(network("attending"))


def test_masks_are_read_from_samples(tmp_path: Path) -> None:
    """True is attended to."""
    samples = {name: values.copy() for name, values in recorded("attending", "input").items()}
    np.savez(tmp_path / "samples.npz", **samples)
    batch = load_batches(tmp_path / "samples.npz", network("attending")).batch(0)
    assert batch["padding"].tolist() == samples["padding"].tolist()
    shown = samples["shown"]
    assert np.array_equal(batch["shown"] == 0, shown)
    assert np.array_equal(np.isneginf(batch["shown"]), ~shown)


def loss_of_samples(
    name: str, samples: dict[str, Array], path: Path, library: KernelLibrary
) -> float:
    """The loss of one step on samples from a file, from the weights of the network's file."""
    step = network(name)
    np.savez(path, **samples)
    batch = load_batches(path, step).batch(0)
    made = execute(step, library, {**initial_values(step, 0), **batch})
    loss = next(each.name for each in step.tensors if each.kind == "activation" and each.persist)
    return float(made[loss].item())


@pytest.mark.slow
@pytest.mark.parametrize("kind", [np.bool_, np.float32, np.int64])
@pytest.mark.parametrize("name", ["attending", "compared", "filled_constants"])
def test_samples_of_true_and_false_mean_what_they_mean_to_pytorch(
    name: str, kind: type[np.generic], tmp_path: Path, library: KernelLibrary
) -> None:
    samples = {
        key: values.astype(kind) if values.dtype.kind == "b" else values
        for key, values in recorded(name, "input").items()
    }
    loss = loss_of_samples(name, samples, tmp_path / "samples.npz", library)
    assert loss == pytest.approx(float(recorded(name, "loss")["loss"]), rel=1e-6)


@pytest.mark.slow
def test_places_of_rows_are_read_from_samples(tmp_path: Path, library: KernelLibrary) -> None:
    samples = recorded("selected", "input")
    loss = loss_of_samples("selected", samples, tmp_path / "samples.npz", library)
    assert loss == pytest.approx(float(recorded("selected", "loss")["loss"]), rel=1e-6)
    (_, places, _) = sample_inputs(network("selected"))
    assert (places.name, places.shape, places.bound) == ("places", (), 5)


def test_what_is_neither_true_nor_false_is_refused(tmp_path: Path) -> None:
    samples = recorded("compared", "input")
    np.savez(tmp_path / "samples.npz", **{**samples, "seen": samples["seen"] * 2.0})
    with pytest.raises(DataError, match="seen must be true or false, or 1 or 0"):
        load_batches(tmp_path / "samples.npz", network("compared"))


def test_generated_samples_of_true_and_false_have_both() -> None:
    """A mask of attention shows everything, as all keys of a query must not be hidden."""
    seen = generated_batches(network("compared"), 6, 0).samples["seen"]
    assert seen.shape == (6, 5)
    assert set(np.unique(seen)) == {-np.inf, 0}
    assert all(len(set(row)) == 2 for row in seen.tolist())
    assert not generated_batches(network("attending"), 4, 0).samples["shown"].any()


def test_heads_need_no_copy_before_a_product() -> None:
    product = next(op for op in network("products").ops if op.spec.family == "matmul")
    assert product.reads == ("query.output", "key.output")


def test_a_matrix_that_all_samples_share_is_multiplied_by_once() -> None:
    products = [op for op in network("products").ops if "weight" in op.reads[:2]]
    assert products
    assert all(
        op.spec.attributes.get("batch", 1) == op.spec.attributes.get("heads", 1) == 1
        for op in products
        if op.phase == "forward" and op.spec.family == "matmul"
    )


def test_what_is_not_one_product_of_matrices_is_refused() -> None:
    with pytest.raises(ExportError) as raised:
        network("not_products")
    lines = str(raised.value).splitlines()[1:]
    assert [line.partition("): ")[2] for line in lines] == [
        "'btd->bd' is not a product of two tensors with named axes",
        "'bij,bjk->bi' is not one product of matrices",
        "'bii,bij->bj' is not one product of matrices",
        "'...td,...te->...de' is not a product of two tensors with named axes",
    ]


# --- loss and selection -----------------------------------------------------------------------


def predictions(**choices: Any) -> TrainingStep:
    return build_model(str(EXPORTED / "predictions.pt2"), **choices)


@pytest.mark.parametrize(
    ("loss", "family", "added", "shape"),
    [
        ("cross-entropy", "softmax_cross_entropy", "labels", (4,)),
        ("mse", "mean_squared_error", "target", (4, 3)),
    ],
)
def test_a_loss_can_be_added_to_predictions(
    loss: Any, family: str, added: str, shape: tuple[int, ...]
) -> None:
    step = predictions(loss=loss)
    assert [op.spec.family for op in step.ops if op.layer == "loss"] == [family, family]
    assert step.tensor[added].shape == shape


def test_predictions_of_one_sample_have_one_label() -> None:
    step = build_model(str(EXPORTED / "one_prediction.pt2"), loss="cross-entropy")
    labels = generated_batches(step, 1, 0).batch(0)["labels"]
    assert labels.shape == step.tensor["labels"].shape == (1,)


def test_predictions_without_a_loss_are_refused() -> None:
    assert "add a loss to predictions with --loss" in refusal(EXPORTED / "predictions.pt2")


def test_a_second_loss_is_refused() -> None:
    with pytest.raises(ExportError, match="returns its loss already; leave out --loss mse"):
        build_model(str(EXPORTED / "waves.pt2"), loss="mse")
    with pytest.raises(ModelError, match="linear: has a loss already"):
        build_model("linear", loss="mse")


def updated(step: TrainingStep) -> set[str]:
    return {op.reads[0] for op in step.ops if op.name.endswith(".update")}


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["head"], {"head.weight", "head.bias"}),
        (["norm"], {"body.2.weight", "body.2.bias"}),
        (["bias"], {"body.0.bias", "body.2.bias", "head.bias"}),
        (["body.0.*"], {"body.0.weight", "body.0.bias"}),
        (["head", "*.0.bias"], {"head.weight", "head.bias", "body.0.bias"}),
    ],
)
def test_only_selected_parameters_are_trained(words: list[str], names: set[str]) -> None:
    assert updated(predictions(loss="cross-entropy", train=words)) == names


def test_a_selection_overrides_what_the_file_froze() -> None:
    step = build_model(str(EXPORTED / "waves.pt2"), train=["frozen.weight"])
    assert updated(step) == {"frozen.weight"}


@pytest.mark.parametrize(
    ("word", "modules"),
    [("*", {"conv", "mix", "head"}), ("bias", {"conv", "mix", "head"}), ("head", {"head"})],
)
def test_neither_buffers_nor_constants_are_selected(word: str, modules: set[str]) -> None:
    names = updated(build_model(str(EXPORTED / "buffers.pt2"), train=[word]))
    parts = {"bias"} if word == "bias" else {"weight", "bias"}
    assert names == {f"{module}.{part}" for module in modules for part in parts}


def test_a_norm_without_parameters_cannot_be_trained() -> None:
    with pytest.raises(NetworkError, match="no parameter is selected by 'norm'"):
        build_model(str(EXPORTED / "buffers.pt2"), train=["norm"])


def test_a_frozen_table_that_is_selected_keeps_its_padding() -> None:
    step = build_model(str(EXPORTED / "padded.pt2"), train=["table.weight"])
    (gradient,) = (op for op in step.ops if op.spec.kind.endswith("parameter_gradient"))
    assert gradient.spec.family == "embedding_padded"
    assert gradient.spec.attributes["padding_index"] == 2


def test_only_the_head_of_a_built_in_network_is_trained() -> None:
    step = build_model("resnet8", train=["head"])
    assert updated(step) == {"classifier.weight", "classifier.bias"}
    backward = {op.layer for op in step.ops if op.phase == "backward"}
    assert backward == {"loss", "classifier"}


def test_a_selection_of_nothing_is_refused() -> None:
    with pytest.raises(NetworkError, match=r"selected by 'head.weigh'; did you mean head.weight"):
        predictions(loss="mse", train=["head.weigh"])


def test_frozen_parameters_stay_in_ram() -> None:
    step = network("waves")
    for name in ("frozen.weight", "second.bias"):
        assert (step.tensor[name].home, step.tensor[name].persist) == ("ram", "ram")


# --- what cannot be trained -------------------------------------------------------------------


def refusal(path: Path | str, batch: int | None = None) -> str:
    return sentence_of((ExportError, ModelError), lambda: build_model(str(path), batch))


def test_every_unsupported_operation_is_named_with_its_places() -> None:
    with pytest.raises(ExportError) as raised:
        network("unsupported")
    first, *lines = str(raised.value).splitlines()
    assert first.endswith("unsupported.pt2: 3 operations cannot be trained here:")
    pool, products = lines
    assert "aten.max_pool2d.default at record_exported_networks.py:" in pool
    assert "(x = self.dilated(image).flatten(1)): dilation is (2, 2)" in pool
    assert products.count("(x = x.cumprod(1))") == 2


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("merged_in_place", "changes a tensor in place, and another that may be a copy is read"),
        ("filled_reshaped", "changes a tensor in place, and another that may be a copy is read"),
    ],
)
def test_a_program_whose_meaning_would_change_is_refused(name: str, why: str) -> None:
    with pytest.raises(ExportError, match=why):
        network(name)


def test_an_input_without_axes_is_refused() -> None:
    assert "the input temperature has no axes" in refusal(EXPORTED / "scalar_input.pt2")


def test_whole_numbers_that_would_not_be_exact_are_refused() -> None:
    with pytest.raises(ExportError) as raised:
        network("inexact")
    first, places, bits = str(raised.value).splitlines()
    assert first.endswith("2 operations cannot be trained here:")
    assert "its indices are computed and reach 33554431; such numbers are exact up to" in places
    assert "(~labels).float()).sum()): it computes with the bits of numbers" in bits


@pytest.mark.parametrize(
    ("name", "count", "why"),
    [
        ("shared_in_place", 6, "another that may be a copy is read later"),
        ("kept_in_place", 4, "a buffer or a constant in place, and the change would be lost"),
    ],
)
def test_every_change_that_would_be_lost_is_refused(name: str, count: int, why: str) -> None:
    with pytest.raises(ExportError, match=why) as raised:
        network(name)
    first = str(raised.value).splitlines()[0]
    assert first.endswith(f"{count} operations cannot be trained here:")


def test_a_count_of_steps_that_is_read_is_refused(tmp_path: Path) -> None:
    """The executor counts, not the network: the step would compute with the file's number."""

    def read(document: Any) -> None:
        nodes = document["graph_module"]["graph"]["nodes"]
        count = next(node for node in nodes if node["target"].endswith("add_.Tensor"))
        tanh = next(node for node in nodes if "tanh" in node["target"])
        tanh["target"] = "torch.ops.aten.mul.Tensor"
        tanh["inputs"].append({"name": "other", "arg": count["outputs"][0], "kind": 1})

    sentence = "it counts the steps, and the count norm.num_batches_tracked is read"
    with pytest.raises(ExportError, match=sentence):
        build_model(str(changed(tmp_path, graph=read)))


def test_another_batch_size_is_refused() -> None:
    assert "exported with 4 samples in a step, not 8" in refusal(EXPORTED / "waves.pt2", 8)


# --- bad files --------------------------------------------------------------------------------


def changed(
    tmp_path: Path,
    *,
    graph: Callable[[Any], None] | None = None,
    weights: Callable[[Any], None] | None = None,
    members: Callable[[dict[str, bytes]], None] | None = None,
    name: str = "waves",
) -> Path:
    """A copy of an exported network in which something was changed."""
    with zipfile.ZipFile(EXPORTED / f"{name}.pt2") as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    for ending, change in (("models/model.json", graph), ("model_weights_config.json", weights)):
        if change is not None:
            name = next(name for name in content if name.endswith(ending))
            document = json.loads(content[name])
            change(document)
            content[name] = json.dumps(document).encode()
    if members is not None:
        members(content)
    path = tmp_path / "changed.pt2"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, each in content.items():
            archive.writestr(name, each)
    return path


def test_the_copy_itself_is_read(tmp_path: Path) -> None:
    assert build_model(str(changed(tmp_path))).ops == network("waves").ops


def _other_schema(graph: Any) -> None:
    graph["schema_version"]["major"] = 9


def _dynamic(graph: Any) -> None:
    values = graph["graph_module"]["graph"]["tensor_values"]
    values["wave"]["sizes"][0] = {"as_expr": {"expr_str": "s0"}}


def _undefined(graph: Any) -> None:
    graph["graph_module"]["graph"]["nodes"][0]["inputs"][0]["arg"]["as_tensor"]["name"] = "x"


def _made_twice(graph: Any) -> None:
    graph["graph_module"]["graph"]["nodes"][1]["outputs"][0]["as_tensor"]["name"] = "conv1d"


def _returns_prediction(graph: Any) -> None:
    output = graph["graph_module"]["signature"]["output_specs"][0]["user_output"]["arg"]
    output["as_tensor"]["name"] = "linear"


def _no_graph(graph: Any) -> None:
    del graph["graph_module"]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (_other_schema, "schema version 9 of PyTorch .* is not known; export again with"),
        (_dynamic, "wave has a size that is not fixed; export without dynamic shapes"),
        (_undefined, "conv1d reads 'x', which nothing has made"),
        (_made_twice, "makes 'conv1d', which exists already"),
        (
            _returns_prediction,
            r"returns linear of shape \(4, 3\); it must return one scalar; add a loss",
        ),
        (_no_graph, "not an exported program: .*graph_module"),
    ],
)
def test_a_graph_that_cannot_be_used_is_refused(
    change: Callable[[Any], None], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(ExportError, match=sentence):
        build_model(str(changed(tmp_path, graph=change)))


def test_a_norm_over_no_features_is_refused(tmp_path: Path) -> None:
    def empty(graph: Any) -> None:
        nodes = graph["graph_module"]["graph"]["nodes"]
        norm = next(node for node in nodes if "layer_norm" in node["target"])
        norm["inputs"][1]["arg"]["as_ints"] = [0]

    with pytest.raises(ExportError, match=r"over \(0,\), which are not the last axes of"):
        build_model(str(changed(tmp_path, graph=empty, name="views")))


def _fewer_parameters(node: Any) -> None:
    del node["inputs"][2]["arg"]["as_tensors"][-1]


def _packed(node: Any) -> None:
    node["target"] = "torch.ops.aten.gru.data"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (_fewer_parameters, "gru.input at .*: it has 7 parameters; use proj_size=0"),
        (_packed, "gru.data at .*: it reads packed sequences; use sequences of one length"),
    ],
)
def test_a_recurrent_layer_of_another_kind_is_refused(
    change: Callable[[Any], None], sentence: str, tmp_path: Path
) -> None:
    def other(graph: Any) -> None:
        nodes = graph["graph_module"]["graph"]["nodes"]
        change(next(node for node in nodes if "gru" in node["target"]))

    with pytest.raises(ExportError, match=sentence):
        build_model(str(changed(tmp_path, graph=other, name="keywords")))


def _other_type(graph: Any) -> None:
    node = next(node for node in graph["nodes"] if ".to." in node["target"])
    graph["tensor_values"][node["outputs"][0]["as_tensor"]["name"]]["dtype"] = 8


def _smaller_result(graph: Any) -> None:
    node = next(node for node in graph["nodes"] if "mean" in node["target"])
    graph["tensor_values"][node["outputs"][0]["as_tensor"]["name"]]["sizes"][1] = {"as_int": 4}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (_other_type, "it makes float64 of float32"),
        (_smaller_result, r"its result has shape \(2, 5\), in the graph \(2, 4\)"),
    ],
)
def test_an_operation_around_a_recurrent_layer_is_refused_if_it_changes_numbers(
    change: Callable[[Any], None], sentence: str, tmp_path: Path
) -> None:
    def other(document: Any) -> None:
        change(document["graph_module"]["graph"])

    with pytest.raises(ExportError, match=sentence):
        build_model(str(changed(tmp_path, graph=other, name="recurrent")))


def test_doubling_by_another_factor_is_refused(tmp_path: Path) -> None:
    """PyTorch's result is that of the factor for some sizes, its gradient never."""

    def other(document: Any) -> None:
        nodes = document["graph_module"]["graph"]["nodes"]
        resized = next(node for node in nodes if "nearest2d" in node["target"])
        factors = next(each for each in resized["inputs"] if each["name"] == "scale_factors")
        sizes = document["graph_module"]["graph"]["tensor_values"]
        before = resized["inputs"][0]["arg"]["as_tensor"]["name"]
        after = resized["outputs"][0]["as_tensor"]["name"]
        sizes[after]["sizes"][2:] = [
            {"as_int": 2 * each["as_int"]} for each in sizes[before]["sizes"][2:]
        ]
        factors["arg"]["as_floats"] = [2.0, 2.1]

    sentence = r"by \(2, 2.1\); use a whole factor, or sizes"
    with pytest.raises(ExportError, match=sentence):
        build_model(str(changed(tmp_path, graph=other, name="resized")))


def test_an_operand_that_is_no_tensor_is_no_constant(tmp_path: Path) -> None:
    def spoiled(document: Any) -> None:
        nodes = document["graph_module"]["graph"]["nodes"]
        expand = next(node for node in nodes if node["target"].endswith("expand.default"))
        expand["inputs"][0]["arg"]["as_tensor"] = "x"

    with pytest.raises(ExportError, match="expand"):
        build_model(str(changed(tmp_path, graph=spoiled, name="views")))


def test_operations_whose_results_nothing_needs_are_left_out(tmp_path: Path) -> None:
    """PyTorch reads all states of a layer for a sequence without a batch, wanted or not."""

    def unneeded(document: Any) -> None:
        graph = document["graph_module"]["graph"]
        state = {"as_tensor": {"name": "getitem_2"}}
        graph["nodes"].append(
            {
                "name": "unneeded",
                "target": "torch.ops.aten.cumsum.default",
                "inputs": [{"name": "self", "arg": state, "kind": 1}],
                "outputs": [{"as_tensor": {"name": "unneeded"}}],
                "metadata": {},
            }
        )
        graph["tensor_values"]["unneeded"] = graph["tensor_values"]["getitem_2"]

    step = build_model(str(changed(tmp_path, graph=unneeded, name="classifier")))
    assert step.ops == network("classifier").ops


def test_dropout_lies_between_the_layers_of_a_recurrent_module(tmp_path: Path) -> None:
    def dropped(document: Any) -> None:
        nodes = document["graph_module"]["graph"]["nodes"]
        lstm = next(node for node in nodes if "lstm" in node["target"])
        probability = next(each for each in lstm["inputs"] if each["name"] == "dropout")
        probability["arg"]["as_float"] = 0.25

    ops = {
        op.name: op
        for op in build_model(str(changed(tmp_path, graph=dropped, name="classifier"))).ops
    }
    forward = ops["lstm.l0.dropout.forward"]
    assert (forward.reads, forward.scalars["probability"]) == (("lstm.l0.output",), 0.25)
    assert ops["lstm.l1.input.forward"].reads[0] == "lstm.l0.dropout.output"
    assert ops["lstm.l0.dropout.input_gradient"].scalars == forward.scalars


def test_the_distance_along_an_axis_of_size_one_does_not_matter(tmp_path: Path) -> None:
    def far(weights: Any) -> None:
        weights["config"]["token"]["tensor_meta"]["strides"][0] = {"as_int": 2**70}

    step = build_model(str(changed(tmp_path, weights=far, name="views")))
    before = initial_values(network("views"), 0)["token"]
    assert initial_values(step, 0)["token"].tobytes() == before.tobytes()


def _climbing(weights: Any) -> None:
    weights["config"]["output.bias"]["path_name"] = "../../models/model.json"


def _pickled(weights: Any) -> None:
    weights["config"]["output.bias"]["use_pickle"] = True


def _half(weights: Any) -> None:
    weights["config"]["output.bias"]["tensor_meta"]["dtype"] = 6


def _missing(weights: Any) -> None:
    del weights["config"]["output.bias"]


def _huge(weights: Any) -> None:
    weights["config"]["output.bias"]["tensor_meta"]["sizes"] = [{"as_int": 2**60}]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (_climbing, "output.bias lies at '../../models/model.json', not beside the table"),
        (_pickled, "output.bias is pickled, which is not read"),
        (_half, r"output.bias is float16; float32 is needed: call .float\(\)"),
        (_missing, "the table of weights lacks output.bias"),
        (_huge, "output.bias has shape .* among the weights and"),
    ],
)
def test_weights_that_cannot_be_used_are_refused(
    change: Callable[[Any], None], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(ExportError, match=sentence):
        build_model(str(changed(tmp_path, weights=change)))


def test_weights_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    def spoil(members: dict[str, bytes]) -> None:
        name = next(name for name in members if name.endswith("/weight_0"))
        members[name] = np.full(len(members[name]) // 4, np.nan, "<f4").tobytes()

    assert "has a number that is not finite" in refusal(changed(tmp_path, members=spoil))


def test_a_missing_array_is_named(tmp_path: Path) -> None:
    def drop(members: dict[str, bytes]) -> None:
        del members[next(name for name in members if name.endswith("/weight_0"))]

    assert "weight_0 is missing" in refusal(changed(tmp_path, members=drop))


def test_another_byte_order_is_refused(tmp_path: Path) -> None:
    def swap(members: dict[str, bytes]) -> None:
        members[next(name for name in members if name.endswith("byteorder"))] = b"big"

    assert "its byte order is 'big'" in refusal(changed(tmp_path, members=swap))


def test_a_graph_that_would_fill_the_memory_is_refused_unread(tmp_path: Path) -> None:
    def inflate(members: dict[str, bytes]) -> None:
        name = next(name for name in members if name.endswith("models/model.json"))
        members[name] = b" " * (100 << 20)

    assert "has 104857600 bytes; at most" in refusal(changed(tmp_path, members=inflate))


def test_a_deeply_nested_graph_is_refused(tmp_path: Path) -> None:
    def nest(members: dict[str, bytes]) -> None:
        name = next(name for name in members if name.endswith("models/model.json"))
        members[name] = b"[" * 10_000 + b"]" * 10_000

    assert "nested too deeply" in refusal(changed(tmp_path, members=nest))


@pytest.mark.parametrize("content", [b"", b"PK", b"a text"])
def test_a_file_that_is_no_archive_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "net.pt2").write_bytes(content)
    assert "not a file that torch.export.save wrote" in refusal(tmp_path / "net.pt2")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    assert refusal(tmp_path / "net.pt2").endswith(
        "net.pt2: cannot be read: No such file or directory"
    )


def is_read_or_refused(path: Path) -> None:
    """Read a network; if it is refused, then with a sentence, or with a few of a document."""
    message = ""
    try:
        build_model(str(path))
    except ExportError as error:
        message = str(error)
    lines = message.split("\n")
    assert len(lines) <= 6
    assert all(line.isprintable() for line in lines)


@given(data=st.data())
@examples(150)
def test_damage_anywhere_ends_in_a_sentence(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    content = bytearray((EXPORTED / "waves.pt2").read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    length = data.draw(st.integers(0, len(content)) | st.just(len(content)))
    path = tmp_path_factory.mktemp("damaged") / "net.pt2"
    path.write_bytes(content[:length])
    is_read_or_refused(path)


@pytest.mark.slow
@given(data=st.data())
@examples(150)
def test_damage_that_no_checksum_shows_ends_in_a_sentence(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    def damage(members: dict[str, bytes]) -> None:
        name = data.draw(st.sampled_from(sorted(name for name in members if members[name])))
        content = bytearray(members[name])
        for _ in range(data.draw(st.integers(1, 4))):
            content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
        length = data.draw(st.just(len(content)) | st.integers(0, len(content)))
        members[name] = bytes(content[:length])

    is_read_or_refused(changed(tmp_path_factory.mktemp("damaged"), members=damage))


@pytest.mark.slow
@given(data=st.data())
@examples(150)
def test_any_change_of_the_graph_ends_in_a_sentence(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """One value anywhere in the document is replaced, removed or doubled."""

    def change(document: Any) -> None:
        where = document
        while True:
            keys = list(where) if isinstance(where, dict) else list(range(len(where)))
            if not keys:
                return
            key = data.draw(st.sampled_from(keys))
            deeper = isinstance(where[key], dict | list) and where[key]
            if deeper and data.draw(st.integers(0, 9)):
                where = where[key]
                continue
            other = st.none() | st.integers(-(2**70), 2**70) | st.text(max_size=3)
            where[key] = data.draw(other | st.just({}) | st.just([]) | st.floats(allow_nan=False))
            return

    is_read_or_refused(changed(tmp_path_factory.mktemp("changed"), graph=change))


# --- from source ------------------------------------------------------------------------------


def test_words_that_are_no_source_stay_as_they_are(tmp_path: Path) -> None:
    assert exported("resnet8", tmp_path) == "resnet8"
    assert exported("folder/net.pt2", tmp_path) == "folder/net.pt2"


def from_source(tmp_path: Path, source: str) -> str:
    (tmp_path / "net.py").write_text(source)
    return exported(f"{tmp_path / 'net.py'}:build", tmp_path / "networks")


def test_a_missing_source_is_named(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"net.py: there is no such file; .* FILE.py:FUNCTION"):
        exported(f"{tmp_path / 'net.py'}:build", tmp_path)


def test_a_missing_pytorch_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interpreter in isolated mode, without the packages of any environment."""
    bare = tmp_path / "bin" / "python3"
    bare.parent.mkdir()
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    bare.chmod(0o755)
    monkeypatch.setattr("networks.exported.source.find_spec", lambda _: None)
    monkeypatch.setenv("PATH", f"{bare.parent}:{os.environ['PATH']}")
    with pytest.raises(ExportError, match="bin/python3 has no PyTorch, which exports the network"):
        from_source(tmp_path, "")


STAND_IN = """
import random
from types import SimpleNamespace
_drawn = random.Random()
manual_seed, rand = _drawn.seed, _drawn.random
class Tensor: ...
class export:
    def export(module, inputs, strict):
        without_nodes = SimpleNamespace(modules=tuple)
        return SimpleNamespace(weights=module.weights, graph_module=without_nodes)
    def save(program, target):
        with open(target, "w") as file:
            file.write(program.weights)
"""
"""The little of PyTorch that an export calls. It writes the weights of a module as text."""

DRAWN = """
import random
import numpy, torch
AT_IMPORT = torch.rand()
class Drawn:
    def __init__(self):
        own = [torch.rand(), random.random(), numpy.random.rand(), *{"the", "order", "of", "words"}]
        self.weights = " ".join(map(str, [AT_IMPORT, *own]))
    def train(self):
        return self
def build():
    return Drawn(), ()
"""
"""A source whose weights are drawn at random."""


@pytest.fixture
def _stand_in_for_pytorch(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path_factory.mktemp("stand-in")
    (folder / "torch.py").write_text(STAND_IN)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    monkeypatch.setattr("networks.exported.source.find_spec", lambda _: True)


@pytest.mark.usefixtures("_stand_in_for_pytorch")
def test_a_source_is_exported_to_the_same_bytes_again_and_its_file_stays(tmp_path: Path) -> None:
    first = Path(from_source(tmp_path, DRAWN))
    content, before = first.read_bytes(), first.stat()
    (tmp_path / "elsewhere").mkdir()
    assert Path(from_source(tmp_path / "elsewhere", DRAWN)).read_bytes() == content
    assert from_source(tmp_path, DRAWN) == str(first)
    assert (first.stat().st_ino, first.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    from_source(tmp_path, DRAWN.replace("words", "another word"))
    assert first.read_bytes() != content


needs_pytorch = pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")


@needs_pytorch
@pytest.mark.slow
def test_a_network_is_exported_from_its_source(tmp_path: Path) -> None:
    (tmp_path / "parts.py").write_text("FEATURES = 3\n")
    path = from_source(
        tmp_path,
        "import torch\nfrom parts import FEATURES\n"
        "def build():\n    return torch.nn.Linear(FEATURES, 2), torch.zeros(4, FEATURES)\n",
    )
    step = build_model(path, loss="mse")
    assert (step.batch, updated(step)) == (4, {"weight", "bias"})


@needs_pytorch
@pytest.mark.slow
def test_pytorch_exports_a_source_to_the_same_bytes_wherever_it_lies(tmp_path: Path) -> None:
    source = (
        "import torch\nfrom torch import nn\n"
        "class Net(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.layers = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2), nn.Dropout())\n"
        "    def forward(self, x):\n"
        "        with torch.no_grad():\n"
        "            y = x * torch.rand(())\n"
        "        return self.layers(y).square().mean()\n"
        "def build():\n    return Net(), torch.rand(4, 3)\n"
    )
    contents = set()
    for folder in ("here", "there", "here"):
        (tmp_path / folder).mkdir(exist_ok=True)
        contents.add(Path(from_source(tmp_path / folder, source)).read_bytes())
    assert len(contents) == 1


@needs_pytorch
@pytest.mark.slow
def test_sources_of_one_name_are_exported_to_two_files(tmp_path: Path) -> None:
    paths = []
    for features in (3, 5):
        source = tmp_path / str(features) / "net.py"
        source.parent.mkdir()
        source.write_text(
            f"import torch\nFEATURES = {features}\ndef build():\n"
            "    return torch.nn.Linear(FEATURES, 2), torch.zeros(4, FEATURES)\n"
        )
        paths.append(exported(f"{source}:build", tmp_path / "networks"))
    first, second = (build_model(path, loss="mse") for path in paths)
    assert [Path(path).name for path in paths] == ["net.build.pt2"] * 2
    assert first.ops != second.ops


@needs_pytorch
@pytest.mark.slow
def test_a_source_that_fails_is_quoted_with_its_place(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"failed: ValueError: no data \(at net.py:2\)"):
        from_source(tmp_path, "def build():\n    raise ValueError('no data')\n")
    assert not any(path.is_file() for path in (tmp_path / "networks").rglob("*"))
