"""Training data of a replay: initial values, generated samples and samples of a user."""

from __future__ import annotations

import hashlib
import math
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from devices.operation import ELEMENT_BYTES, OpSpec
from devices.quantities import Slices
from networks.data import Batches, DataError, generated_batches, load_batches
from networks.data.inputs import sample_inputs
from networks.kinds import Place
from networks.models import build_model, model_names
from networks.training import Network, TrainingStep, training_step
from networks.training.draws import below, permutation, uniform
from networks.training.initial import initial_values
from networks.training.network import Value
from networks.training.slicing import sliced
from tests.support.networks.references import SAMPLES
from tests.support.networks.training import small_transformer, sum_of_losses
from tests.support.onboard.kernels import Array

BATCH = 2
SAMPLES_DIGEST = "50ec937457a843ae"
INITIAL_DIGEST = "ec23b4f4c7d30bda"
PLACES: tuple[Place, ...] = ("ram", "storage")


def digest(arrays: dict[str, Array]) -> str:
    found = hashlib.sha256()
    for name in sorted(arrays):
        found.update(name.encode() + np.ascontiguousarray(arrays[name]).tobytes())
    return found.hexdigest()[:16]


# --- random numbers -----------------------------------------------------------------------------


def test_random_numbers_are_the_same_for_ever() -> None:
    assert uniform((3,), "a", 1).tolist() == [
        0.722531795501709,
        0.48181939125061035,
        0.38189375400543213,
    ]
    assert below(1000, 4, "a", 1).tolist() == [632, 228, 525, 375]
    assert permutation(5, "a", 1).tolist() == [3, 4, 2, 1, 0]


def test_a_long_stream_begins_like_a_short_one() -> None:
    long = uniform((1_500_000,), "stream")
    np.testing.assert_array_equal(uniform((1000,), "stream"), long[:1000])
    assert len(np.unique(long[: 1 << 20])) > 900_000
    assert not np.array_equal(long[:1000], long[1 << 20 :][:1000])


def test_similar_keys_have_different_random_streams() -> None:
    keys: tuple[tuple[str | int, ...], ...] = (("a", 1), ("a", "1"), ("a1",), ("a", 1, ""))
    assert len({uniform((4,), *key).tobytes() for key in keys}) == len(keys)


# --- initial values -----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("model", model_names())
def test_every_tensor_kept_between_steps_has_an_initial_value(model: str) -> None:
    step = build_model(model, 1, "momentum")
    values = initial_values(step, 0)
    kept = {t.name: t.bytes for t in step.tensors if t.home is not None and t.kind != "input"}
    assert {name: value.nbytes for name, value in values.items()} == kept
    assert all(value.dtype == np.float32 for value in values.values())


def test_initial_values_depend_on_seed_name_and_shape_alone() -> None:
    values = initial_values(build_model("resnet8", 1), 0)
    others = initial_values(build_model("resnet8", 4, "momentum", "storage"), 0)
    for name, value in values.items():
        np.testing.assert_array_equal(value, others[name])
    seeded = initial_values(build_model("resnet8", 1), 1)
    for first in ("stage1.1.conv.weight", "classifier.weight"):
        assert not np.array_equal(values[first], seeded[first])
    alike = values["stage1.1.conv.weight"], values["stage1.2.conv.weight"]
    assert alike[0].shape == alike[1].shape
    assert abs(np.corrcoef(alike[0].ravel(), alike[1].ravel())[0, 1]) < 0.1


def test_only_weights_are_random_and_have_the_variance_of_he() -> None:
    values = initial_values(build_model("resnet18_cifar", 1, "momentum"), 0)
    for name, value in values.items():
        kind = name.rpartition(".")[2]
        if kind == "weight":
            fan_in = math.prod(value.shape[1:])
            assert value.var() == pytest.approx(2 / fan_in, rel=0.1), name
            assert np.abs(value).max() <= math.sqrt(6 / fan_in) * (1 + 1e-6)
        else:
            assert set(value.ravel()) == {1.0 if kind in ("scale", "running_variance") else 0.0}


def test_embeddings_begin_small() -> None:
    table = initial_values(training_step(small_transformer()), 0)["embed.table"]
    assert table.shape == (11, 4)
    assert 0.01 < table.std() < 0.03


def test_signals_neither_vanish_nor_explode_in_a_deep_network() -> None:
    """He's variance keeps the size of signals through a stack of layers with ReLUs."""
    x = uniform((32, 256), "x").astype(np.float64) * math.sqrt(3)
    net = Network("deep", 32)
    value = net.input("x", 32, 256)
    for number in range(20):
        value = net.relu(f"relu{number}", net.linear(f"linear{number}", value, 256))
    net.softmax_cross_entropy("loss", value, net.input("labels", 32))
    values = initial_values(training_step(net), 3)
    for number in range(20):
        x = np.maximum(x @ values[f"linear{number}.weight"].T.astype(np.float64), 0.0)
    assert 0.1 < math.sqrt(np.mean(x**2)) < 10.0


# --- generated samples --------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("model", model_names())
def test_every_model_gets_valid_batches(model: str, place: Place) -> None:
    step = build_model(model, BATCH, parameters_in=place)
    batch = generated_batches(step, 3, 0).batch(1)
    assert_fits(step, batch)


def assert_fits(step: TrainingStep, batch: dict[str, Array]) -> None:
    inputs = {t.name: t.bytes // ELEMENT_BYTES for t in step.tensors if t.kind == "input"}
    assert {name: value.size for name, value in batch.items()} == inputs
    # Indices of a table in storage refer to all its rows, which the board numbers anew.
    rows = {
        op.reads[0]: step.tensor[op.reads[1]].home_stretches
        for op in step.ops
        if op.spec.kind == "embedding.forward" and step.tensor[op.reads[1]].is_table
    }
    for op in step.ops:
        for operand, name in zip(op.spec.reads, op.reads, strict=True):
            if name not in inputs:
                continue
            value = batch[name]
            assert value.flags.c_contiguous
            if operand.fill == "index":
                assert value.dtype == np.int32
                assert value.min() >= 0
                assert value.max() < rows.get(name, operand.index_bound)
            else:
                assert value.dtype == np.float32
                assert np.isfinite(value).all()


def test_samples_are_those_that_the_recorded_curve_was_trained_on() -> None:
    step = build_model("resnet8", 8)
    batches = generated_batches(step, SAMPLES, 0)
    assert digest({**batches.samples}) == SAMPLES_DIGEST
    assert digest({**initial_values(step, 0)}) == INITIAL_DIGEST
    assert digest({**generated_batches(step, SAMPLES, 1).samples}) != SAMPLES_DIGEST


@pytest.mark.parametrize("model", ["resnet8", "dscnn", "autoencoder", "linear"])
def test_real_numbers_have_mean_zero_and_variance_one(model: str) -> None:
    batches = generated_batches(build_model(model, BATCH), 40, 0)
    for name, values in batches.samples.items():
        if values.dtype == np.float32:
            assert values.mean() == pytest.approx(0.0, abs=1e-5), name
            assert values.std() == pytest.approx(1.0, abs=1e-5), name


def test_classes_are_equally_frequent_in_every_part_of_the_samples() -> None:
    labels = generated_batches(build_model("resnet8", BATCH), 45, 0).samples["labels"]
    for start in range(0, 40, 10):
        assert sorted(labels[start : start + 10]) == list(range(10))
    assert len(set(labels[40:])) == 5
    assert not np.array_equal(labels[:10], labels[10:20])


@pytest.mark.parametrize("model", ["resnet8", "dscnn", "digits", "mobilenet", "bert"])
def test_classes_can_be_learned_from_samples(model: str) -> None:
    """Class means of one half of the samples identify the classes of the other half."""
    step = build_model(model, BATCH)
    samples = generated_batches(step, 240, 0).samples
    labels = samples["labels"]
    seen = next(each for each in sample_inputs(step) if each.use in ("features", "tokens"))
    values = samples[seen.name].reshape(240, -1)
    if seen.bound is not None:
        bins = seen.bound // 64 + 1
        values = np.array([np.bincount(each // 64, minlength=bins) for each in values])
    means = np.array(
        [values[:120][labels[:120] == each].mean(axis=0) for each in range(labels.max() + 1)]
    )
    distances = np.linalg.norm(values[120:, None] - means, axis=2)
    assert np.mean(distances.argmin(axis=1) == labels[120:]) > 0.95


def test_samples_of_a_class_differ() -> None:
    samples = generated_batches(build_model("resnet8", BATCH), 30, 0).samples
    of_class = samples["image"][samples["labels"] == 0].reshape(3, -1)
    correlations = np.corrcoef(of_class)
    assert 0.3 < correlations[0, 1] < 0.95
    assert 0.3 < correlations[0, 2] < 0.95


def test_without_classes_samples_lie_on_a_surface_of_few_dimensions() -> None:
    frames = generated_batches(build_model("autoencoder", BATCH), 200, 0).samples["frames"]
    squares = np.linalg.svd(frames, compute_uv=False) ** 2
    assert squares[:8].sum() / squares.sum() > 0.7
    assert squares[200 // 2 :].sum() > 0  # noise in all dimensions


@pytest.mark.slow
def test_targets_are_a_linear_function_of_inputs() -> None:
    """The target is linear in the input, apart from noise: both mix the same shares."""
    batches = generated_batches(build_model("transformer", BATCH), 12, 0)
    hidden = batches.samples["hidden"].reshape(12, -1).astype(np.float64)
    target = batches.samples["target"].reshape(12, -1).astype(np.float64)
    squares = np.linalg.svd(target, compute_uv=False) ** 2
    assert squares[5:].sum() / squares.sum() < 1e-9
    agreement = np.corrcoef(np.corrcoef(hidden).ravel(), np.corrcoef(target).ravel())[0, 1]
    assert agreement > 0.8


def test_bert_classifies_the_first_token_of_every_sample() -> None:
    batch = generated_batches(build_model("bert", 3), 4, 0).batch(0)
    assert batch["first_rows"].tolist() == [0, 512, 1024]
    np.testing.assert_array_equal(batch["positions"], np.tile(np.arange(512), (3, 1)))


def test_batches_have_labels_for_every_position() -> None:
    step = training_step(small_transformer(batch=3))
    batch = generated_batches(step, 7, 0).batch(0)
    assert batch["labels"].shape == (3, 6)
    assert_fits(step, batch)


@pytest.mark.parametrize(("first", "second"), [(10, 3), (3, 10)])
def test_every_input_of_labels_has_labels_below_its_own_number_of_classes(
    first: int, second: int
) -> None:
    step = training_step(sum_of_losses(first, second))
    batches = generated_batches(step, 12, 0)
    for number in range(batches.count):
        assert_fits(step, batches.batch(number))
    labels = batches.samples["second.labels"]
    np.testing.assert_array_equal(labels, batches.samples["first.labels"] % second)
    assert set(labels.ravel()) == set(range(min(first, second)))


def test_targets_of_a_binary_cross_entropy_are_probabilities() -> None:
    net = Network("binary", BATCH)
    logits = net.linear("out", net.input("x", BATCH, 4), 3)
    spec = OpSpec.of("binary_cross_entropy.forward", elements=logits.elements)
    net.loss = net.append("loss", spec, (logits, net.input("y", BATCH, 3)), scalars={"share": 1.0})
    samples = generated_batches(training_step(net), 40, 0).samples
    assert (samples["y"].min(), samples["y"].max()) == (0.0, 1.0)
    assert 0.1 < samples["y"].std() < 0.4
    assert samples["x"].mean() == pytest.approx(0.0, abs=1e-5)


def reading_its_labels(how: str) -> Network:
    """A loss that ignores labels of -1, on labels that something else may read, too."""
    net = Network(how, BATCH)
    x, labels = net.input("x", BATCH, 4), net.input("labels", BATCH)
    if how == "lookup":
        x = net.add("sum", x, net.embedding("embed", labels, 3, 4))
    spec = OpSpec.of("weighted_cross_entropy.forward", rows=BATCH, classes=3, by_weight=1)
    loss = net.append(
        "weighted",
        spec,
        (net.linear("out", x, 3), labels, Value("weights", (3,), "parameter")),
        scalars={"share": 1.0, "smoothing": 0.0, "ignored": -1.0},
    )
    if how == "plain":
        plain = net.softmax_cross_entropy("plain", net.linear("other", x, 3), labels)
        net.one = Value("one", (1,), "parameter")
        loss = net.add("loss", loss, plain)
    net.loss = loss
    return net


def test_labels_are_ignored_only_where_all_layers_that_read_them_ignore_them() -> None:
    alone = training_step(reading_its_labels("alone"))
    in_slices = sliced(training_step(reading_its_labels("alone")), Slices(8, 8))
    assert any("block" in op.spec.family for op in in_slices.ops)
    for step in (alone, in_slices):
        assert [each.ignored for each in sample_inputs(step)] == [None, -1]
    for how in ("plain", "lookup"):
        inputs = sample_inputs(training_step(reading_its_labels(how)))
        assert [each.ignored for each in inputs] == [None, None]


def test_labels_that_are_looked_up_are_tokens() -> None:
    step = training_step(reading_its_labels("lookup"))
    assert {each.name: each.use for each in sample_inputs(step)}["labels"] == "tokens"
    labels = generated_batches(step, 20, 0).samples["labels"]
    assert set(labels.ravel()) == {0, 1, 2}


def test_input_whose_size_is_no_multiple_of_the_batch_is_an_error() -> None:
    net = Network("odd", 2)
    x = net.linear("linear", net.input("x", 3, 4), 3)
    net.softmax_cross_entropy("loss", x, net.input("labels", 3))
    with pytest.raises(DataError, match=r"odd, batch 2: the input x has 3 rows, .* 2 samples"):
        generated_batches(training_step(net), 4, 0)


@given(size=st.integers(1, 9), count=st.integers(1, 9), steps=st.integers(1, 9))
def test_samples_come_in_order_and_repeat(size: int, count: int, steps: int) -> None:
    constant = np.arange(3, dtype=np.int32)
    batches = Batches(size, {"x": np.arange(count) * 10}, {"rows": constant})
    seen = np.concatenate([batches.batch(index)["x"] for index in range(steps)])
    assert seen.tolist() == [number % count * 10 for number in range(steps * size)]
    assert batches.batch(steps)["rows"] is constant
    assert batches.sample_count == count


@given(size=st.integers(1, 9), count=st.integers(1, 9))
def test_batches_repeat_after_all_different_ones(size: int, count: int) -> None:
    batches = Batches(size, {"x": np.arange(count)}, {})
    first = batches.batch(0)["x"].tolist()
    again = [n for n in range(1, 99) if batches.batch(n)["x"].tolist() == first]
    assert again[0] == batches.count


# --- a user's samples ---------------------------------------------------------------------------


def written(directory: Path, **arrays: Any) -> Path:
    path = directory / "mine.npz"
    np.savez(path, **arrays)
    return path


def digits_arrays(count: int = 5) -> dict[str, Array]:
    return {
        "image": uniform((count, 1, 8, 8), "image"),
        "labels": np.arange(count, dtype=np.int64) % 10,
    }


@pytest.mark.parametrize(
    "step",
    [training_step(small_transformer()), build_model("bert", 2), build_model("autoencoder", 2)],
    ids=lambda step: step.name,
)
def test_generated_samples_that_are_written_are_read_as_they_were(
    step: TrainingStep, tmp_path: Path
) -> None:
    made = generated_batches(step, 5, 0)
    read = load_batches(written(tmp_path, **made.samples), step)
    for index in (0, 4):
        expected, found = made.batch(index), read.batch(index)
        assert expected.keys() == found.keys()
        for name, value in expected.items():
            assert value.dtype == found[name].dtype
            np.testing.assert_array_equal(value, found[name])


def test_other_sizes_of_numbers_are_converted(tmp_path: Path) -> None:
    step = build_model("digits", 2)
    arrays = digits_arrays()
    wide = {"image": arrays["image"].astype(np.float64), "labels": arrays["labels"].astype("u1")}
    batch = load_batches(written(tmp_path, **wide), step).batch(0)
    assert_fits(step, batch)
    np.testing.assert_array_equal(batch["image"], arrays["image"][:2])


def changed(**arrays: Any) -> dict[str, Any]:
    merged = {**digits_arrays(), **arrays}
    return {name: value for name, value in merged.items() if value is not None}


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (changed(labels=None), "contains image; digits needs one array for each of image, labels"),
        (changed(more=np.zeros(5)), "contains image, labels, more; digits needs one array for "),
        (
            changed(image=np.zeros((5, 8, 8, 1), np.float32)),
            r"image has shape \(5, 8, 8, 1\); it must be \(samples, 1, 8, 8\), samples first",
        ),
        (changed(image=np.float32(1)), r"image has shape \(\); it must be \(samples, 1, 8, 8\)"),
        (changed(labels=np.zeros((5, 1), int)), r"labels has shape \(5, 1\); .* \(samples\)"),
        (changed(labels=np.arange(4)), "different numbers of samples: 5 of image, 4 of labels"),
        (digits_arrays(0), "image has no samples; at least one is needed"),
        (changed(image=np.zeros((5, 1, 8, 8), "u1")), "image is uint8; it must be real numbers"),
        (changed(labels=np.zeros(5)), "labels is float64; it must be whole numbers"),
        (
            changed(labels=np.array([0, 1, 10, 3, 4])),
            "labels contains 10; numbers must be from 0 to 9",
        ),
        (
            changed(labels=np.array([0, -1, 1, 3, 4])),
            "labels contains -1; numbers must be from 0 to 9",
        ),
        (
            changed(labels=np.array([0, -100, 1, 3, 4])),
            "contains -100; .* to 9; to ignore rows, export cross_entropy with ignore_index",
        ),
        (
            changed(image=np.full((5, 1, 8, 8), np.nan)),
            "image contains a number that is not finite",
        ),
        (changed(image=np.full((5, 1, 8, 8), 1e39)), "image contains a number that is not finite"),
        (changed(labels=np.array([None] * 5)), "not a readable .npz archive of plain arrays"),
    ],
)
def test_unfit_samples_are_refused_with_the_expected_form(
    arrays: dict[str, Any], message: str, tmp_path: Path
) -> None:
    path = written(tmp_path, **arrays)
    with pytest.raises(DataError, match=message) as raised:
        load_batches(path, build_model("digits", 2))
    assert str(raised.value).startswith(f"{path}: ")


def not_an_archive(path: Path) -> None:
    path.write_text("image,label\n1,2\n")


def cut_short(path: Path) -> None:
    np.savez(path, **digits_arrays())
    path.write_bytes(path.read_bytes()[:-100])


def damaged(path: Path) -> None:
    np.savez_compressed(path, **digits_arrays(500))
    content = bytearray(path.read_bytes())
    content[2000:2100] = bytes(100)
    path.write_bytes(content)


def misplaced(path: Path) -> None:
    """The archive's directory has a wrong offset, so that the first array lies before the file."""
    np.savez(path, **digits_arrays())
    content = bytearray(path.read_bytes())
    field = content.rindex(b"PK\x05\x06") + 16
    begin = int.from_bytes(content[field : field + 4], "little")
    content[field : field + 4] = (begin + 1).to_bytes(4, "little")
    path.write_bytes(content)


def a_single_array(path: Path) -> None:
    with path.open("wb") as file:
        np.save(file, np.zeros(3))


def an_archive_of_text(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("image", "1 2 3")
        archive.writestr("labels", "1 2 3")


@pytest.mark.parametrize(
    "write",
    [not_an_archive, cut_short, damaged, misplaced, a_single_array, an_archive_of_text, Path.touch],
)
def test_file_that_is_no_archive_of_arrays_is_refused(
    write: Callable[[Path], None], tmp_path: Path
) -> None:
    path = tmp_path / "mine.npz"
    write(path)
    with pytest.raises(DataError) as raised:
        load_batches(path, build_model("digits", 2))
    assert str(raised.value).startswith(f"{path}: ")


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<f4', 'fortran_order': False, 'shape': (3,",
        "{'descr': '''<f4, ",
        f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({1 << 60},), }}",
        f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({1 << 70},), }}",
        "{'descr': ('<f4',), 'fortran_order': False, 'shape': (1,), }",
        "{'descr': '<f4', 'fortran_order': False, 3: (1,), }",
    ],
)
def test_archive_with_a_damaged_header_is_refused(header: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    line = header.encode() + b"\n"
    with zipfile.ZipFile(path, "w") as archive:
        content = b"\x93NUMPY\x01\x00" + len(line).to_bytes(2, "little") + line + bytes(8)
        archive.writestr("image.npy", content)
    with pytest.raises(DataError, match=r"mine.npz: not a readable .npz archive of plain arrays"):
        load_batches(path, build_model("digits", 2))


def test_missing_sample_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as raised:
        load_batches(tmp_path / "none.npz", build_model("digits", 2))
    assert raised.value.filename == str(tmp_path / "none.npz")
