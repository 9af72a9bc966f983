"""Evaluation: what ``module.eval()`` of PyTorch computes."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from devices.operation import OpSpec
from networks.data.batches import Batches
from networks.models import build_model, model_names
from networks.training import training_step
from networks.training.evaluation import evaluation_of
from networks.training.initial import initial_values
from networks.training.step import StepTensor
from replay.evaluation import HeldOutSamples
from tests.support.networks.training import (
    execute,
    small_convolutional,
    small_lookups,
    small_mixture,
)
from tests.support.onboard.kernels import KernelLibrary, compile_library, uniform
from tests.support.paths import REFERENCES

EXPORTED = REFERENCES / "exported"
BATCH = 4


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> KernelLibrary:
    return KernelLibrary(compile_library(tmp_path_factory.mktemp("kernels"), "in-tree", ["-O1"]))


def test_loss_and_predictions_are_those_of_pytorch_in_eval_mode(library: KernelLibrary) -> None:
    step = build_model(str(EXPORTED / "dropping.pt2"))
    evaluation = evaluation_of(step)
    assert evaluation.logits is not None
    losses, right = [], []
    with np.load(EXPORTED / "dropping.npz") as recorded:
        for begin in (0, BATCH):
            batch = {
                "wave": recorded["input.wave"][begin : begin + BATCH],
                "labels": recorded["input.labels"][begin : begin + BATCH].astype(np.int32),
            }
            made = execute(evaluation.step, library, {**initial_values(step, 0), **batch})
            losses.append(float(made[evaluation.loss][0]))
            right += list(made[evaluation.logits].argmax(axis=1) == batch["labels"])
        assert np.mean(losses) == pytest.approx(float(recorded["loss"]), rel=1e-6)
        assert np.mean(right) == pytest.approx(float(recorded["accuracy"]))


def test_evaluation_has_neither_dropout_nor_statistics_of_the_batch() -> None:
    step = evaluation_of(build_model(str(EXPORTED / "dropping.pt2"))).step
    families = [op.spec.family for op in step.ops]
    assert "dropout" not in families
    assert families.count("batch_norm_frozen") == 2
    assert {op.phase for op in step.ops} == {"forward"}


def test_a_norm_that_is_called_twice_is_evaluated_with_its_statistics() -> None:
    step = evaluation_of(build_model(str(EXPORTED / "norm_twice.pt2"))).step
    norms = [op for op in step.ops if op.spec.family == "batch_norm_frozen"]
    assert [op.reads[3:] for op in norms] == [("norm.running_mean", "norm.running_var")] * 2


def test_evaluation_drops_no_paths() -> None:
    step = evaluation_of(build_model(str(EXPORTED / "random_paths.pt2"))).step
    assert not [op.name for op in step.ops if op.spec.family == "dropout_rows"]


@pytest.mark.parametrize("name", model_names())
def test_every_network_can_be_evaluated(name: str) -> None:
    step = build_model(name)
    evaluation = evaluation_of(step)
    made = {written for op in evaluation.step.ops for written in op.writes}
    given = {tensor.name for tensor in evaluation.step.tensors if tensor.home is not None}
    assert evaluation.loss in made
    for op in evaluation.step.ops:
        assert set(op.reads) <= made | given


def test_a_regression_has_no_accuracy() -> None:
    assert evaluation_of(training_step(small_mixture())).labels is None
    assert evaluation_of(training_step(small_lookups())).labels == "labels"


def test_the_loss_of_all_batches_is_that_of_one_large_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Batches whose labels are ignored in part count for less."""
    step = build_model("linear", BATCH)
    (loss,) = (op for op in step.ops if op.spec.kind == "softmax_cross_entropy.forward")
    attributes = {**loss.spec.attributes, "by_weight": 1}
    weighted = replace(
        loss,
        spec=OpSpec.of("weighted_cross_entropy.forward", **attributes),
        reads=(*loss.reads, "weights"),
        scalars={"share": 1.0, "smoothing": 0.0, "ignored": -1.0},
    )
    ops = tuple(weighted if op is loss else op for op in step.ops)
    classes = loss.spec.attributes["classes"]
    tensor = StepTensor("weights", 4 * classes, "parameter", home="ram")
    evaluation = evaluation_of(replace(step, ops=ops, tensors=(*step.tensors, tensor)))
    labels = np.array([0, 1, 2, 3, 1, -1, -1, -1], dtype=np.int32)
    weights = np.ones(classes, dtype=np.float32)
    weights[0] = 3.0
    rows = np.zeros((BATCH, classes), dtype=np.float32)
    record = SimpleNamespace(losses=(1.0, 8.0), predictions=(rows, rows))
    session = SimpleNamespace(
        plans=[SimpleNamespace(arena_bytes=0)],
        facts=SimpleNamespace(available_bytes=1),
        run=lambda *_, **__: record,
    )
    monkeypatch.setattr("replay.running.opening.open_replay", lambda *_, **__: nullcontext(session))
    batches = Batches(BATCH, {"labels": labels}, {})
    samples = HeldOutSamples(Path("samples.npz"), evaluation, batches, left_out=0)
    score = samples.score({"weights": weights}, lambda _: None)
    assert score.loss == pytest.approx((6 * 1.0 + 1 * 8.0) / 7)


def test_a_batch_norm_without_running_statistics_uses_those_of_the_batch() -> None:
    """As PyTorch's with ``track_running_stats=False`` does in eval mode too."""
    network = small_convolutional()
    network.layers[:] = [
        layer for layer in network.layers if layer.spec.kind != "batch_norm.statistics_update"
    ]
    kinds = [op.spec.kind for op in evaluation_of(training_step(network)).step.ops]
    assert kinds.count("batch_norm.forward") == 2


def test_fused_attention_drops_no_weights(library: KernelLibrary) -> None:
    step = build_model(str(EXPORTED / "dropped.pt2"))
    attention = [op for op in evaluation_of(step).step.ops if op.spec.family == "attention"]
    assert attention
    assert all(op.spec.attributes["dropout"] == 0 for op in attention)
    assert all(op.scalars["probability"] == 0 for op in attention)
    assert any(op.spec.attributes.get("dropout") for op in step.ops)
    # The kernel without dropout computes what the one with a probability of zero does.
    (first, *_) = attention
    operands = [uniform((each.elements,), number) for number, each in enumerate(first.spec.reads)]
    dropping = OpSpec.of("attention.forward", **{**first.spec.attributes, "dropout": 1})
    scalars = [first.scalars[name] for name in ("scale", "probability")] + [0.0]
    found, expected = (library.run(spec, operands, scalars) for spec in (first.spec, dropping))
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-5, atol=1e-6)
