"""Evaluation: the forward pass of a training step as PyTorch's ``module.eval()`` computes it.

Dropout is left out, and batch norm normalises with its running statistics, which it does not
change. A batch norm that keeps no running statistics uses those of the batch here too, as PyTorch's
does. Frozen batch norms, and all other operations, are the same in training and evaluation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from devices.operation import OpSpec
from networks.training.network import NetworkError
from networks.training.step import StepOp, TrainingStep

_DROPOUT = frozenset({"dropout.forward", "dropout_rows.forward"})
_CLASSIFYING = frozenset({"softmax_cross_entropy.forward", "weighted_cross_entropy.forward"})


@dataclass(frozen=True)
class Evaluation:
    """Operations of an evaluation, and the tensors that it is about.

    Attributes:
        step: the forward pass, without updates. ``loss`` and ``logits`` remain when it ends.
        loss: the loss.
        logits: a number for each row and class; None if the loss is not that of a classifier.
        labels: the input with each row's class; None if the loss is not that of a classifier.
        ignored: label of rows that do not count; None if all count.
        weights: tensor with the weights of classes, if a batch's loss is the sum over its rows,
            divided by the weights of their labels; None if it is divided by a number that all
            batches share, or if the weights are computed in the step.
    """

    step: TrainingStep
    loss: str
    logits: str | None
    labels: str | None
    ignored: int | None = None
    weights: str | None = None


def evaluation_of(step: TrainingStep) -> Evaluation:
    """Derive the evaluation of a training step with parameters in RAM.

    Raises:
        NetworkError: The network has no loss.
    """
    statistics = {
        op.reads[0]: tuple(step.buffer[name] for name in op.reads[2:])
        for op in step.ops
        if op.spec.kind == "batch_norm.statistics_update"
    }
    same: dict[str, str] = {}
    ops = []
    for op in step.ops:
        if op.phase != "forward":
            continue
        reads = tuple(same.get(name, name) for name in op.reads)
        if op.spec.kind in _DROPOUT:
            same[op.writes[0]] = reads[0]
        else:
            ops.append(_evaluated(replace(op, reads=reads, in_place={}), statistics))
    kept = {tensor.name for tensor in step.tensors if tensor.persist is not None}
    last = next((op for op in reversed(ops) if kept.intersection(op.writes)), None)
    if last is None:
        raise NetworkError(f"{step.name}: the network has no loss to evaluate")
    logits, labels = last.reads[:2] if _classifies(step, last) else (None, None)
    ignored = int(last.scalars["ignored"]) if "ignored" in last.scalars else None
    by_weight = (
        labels is not None
        and last.spec.attributes.get("by_weight")
        and step.tensor[last.reads[2]].kind == "parameter"
    )
    used = {name for op in ops for name in (*op.reads, *op.writes)}
    tensors = tuple(
        replace(tensor, persist="ram") if tensor.name == logits else tensor
        for tensor in step.tensors
        if tensor.name in used
    )
    return Evaluation(
        step=replace(step, ops=tuple(ops), tensors=tensors),
        loss=last.writes[0],
        logits=logits,
        labels=labels,
        ignored=ignored,
        weights=last.reads[2] if by_weight else None,
    )


def _classifies(step: TrainingStep, loss: StepOp) -> bool:
    """Whether the loss compares logits with an input of class numbers."""
    return loss.spec.kind in _CLASSIFYING and step.tensor[loss.reads[1]].kind == "input"


def _evaluated(op: StepOp, statistics: Mapping[str, tuple[str, ...]]) -> StepOp:
    """The operation without dropout, and with running statistics in place of a batch's."""
    if op.spec.attributes.get("dropout"):
        spec = OpSpec.of(op.spec.kind, **{**op.spec.attributes, "dropout": 0})
        return replace(op, spec=spec, scalars={**op.scalars, "probability": 0.0})
    if op.spec.kind != "batch_norm.forward" or op.writes[1] not in statistics:
        return op
    return replace(
        op,
        spec=OpSpec.of("batch_norm_frozen.forward", **op.spec.attributes),
        reads=(*op.reads, *statistics[op.writes[1]]),
        writes=op.writes[:1],
    )
