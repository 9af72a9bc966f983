"""Losses."""

from __future__ import annotations

from collections.abc import Mapping

from devices.operation import OpSpec
from networks.exported.construction import Construction, Operation, Unsupported
from networks.exported.program import Node, Reference
from networks.exported.views import View
from networks.training.network import WHOLE_LOSS, Value

_NLL_LOSS = "aten.nll_loss_nd.default"
_REDUCTION_MEAN = 1  # ATen's number of the reduction "mean"
_IGNORED_LABEL = -100


def _cross_entropy(c: Construction, node: Node) -> None:
    c.require(node, reduction=_REDUCTION_MEAN, ignore_index=_IGNORED_LABEL, label_smoothing=0.0)
    if c.has(node, "weight"):
        raise Unsupported("it weights the classes")
    labels, view = c.value(node, "target"), c.view(node, "self")
    if len(view.shape) > 2:  # classes are the second axis
        view = view.permuted((0, *range(2, len(view.shape)), 1))
    stored = c.stored(node, view)
    logits = Value(stored.name, (stored.elements // view.shape[-1], view.shape[-1]), stored.kind)
    if labels.shape == view.shape[:-1]:
        labels = Value(labels.name, (labels.elements,), labels.kind)
    if len(logits.shape) != 2 or len(labels.shape) != 1 or labels.kind != "input":
        raise Unsupported(
            f"its operands have shapes {logits.shape} and {labels.shape}",
            "logits of shape (rows, classes), and an input of class numbers of shape (rows,)",
        )
    rows, classes = logits.shape
    spec = OpSpec.of("softmax_cross_entropy.forward", rows=rows, classes=classes)
    _loss(c, node, spec, (logits, labels))


def _log_softmax(c: Construction, node: Node) -> None:
    """The first half of a cross-entropy. Its result stands for the logits until the second."""
    view = c.view(node, "self")
    readers = [each for each in c.program.nodes if node.outputs[0] in each.reads]
    if (
        c.axes(node, "dim", len(view.shape), (-1,)) != (len(view.shape) - 1,)
        or any(each.target != _NLL_LOSS for each in readers)
        or node.outputs[0] in c.program.outputs
    ):
        raise Unsupported("it is not over the last axis and before nll_loss", "cross_entropy")
    c.log_softmaxes.add(node.outputs[0])
    c.bind_copy(node, view)


def _negative_log_likelihood(c: Construction, node: Node) -> None:
    read = node.arguments.get("self")
    if not isinstance(read, Reference) or read.name not in c.log_softmaxes:
        raise Unsupported("it does not follow log_softmax", "cross_entropy")
    _cross_entropy(c, node)


def _mean_squared_error(c: Construction, node: Node) -> None:
    c.require(node, reduction=_REDUCTION_MEAN)
    prediction, target = c.value(node, "self"), c.value(node, "target")
    if prediction.shape != target.shape or target.kind != "input":
        raise Unsupported(
            f"its operands have shapes {prediction.shape} and {target.shape}",
            "a target of the prediction's shape that is an input of the program",
        )
    spec = OpSpec.of("mean_squared_error.forward", elements=prediction.elements)
    _loss(c, node, spec, (prediction, target))


def _binary_cross_entropy(c: Construction, node: Node) -> None:
    c.require(node, reduction=_REDUCTION_MEAN)
    if c.has(node, "weight") or c.has(node, "pos_weight"):
        raise Unsupported("it weights the elements")
    logits, target = c.value(node, "self"), c.value(node, "target")
    if logits.shape != target.shape or target.kind != "input":
        raise Unsupported(
            f"its operands have shapes {logits.shape} and {target.shape}",
            "a target of the logits' shape that is an input of the program",
        )
    spec = OpSpec.of("binary_cross_entropy.forward", elements=logits.elements)
    _loss(c, node, spec, (logits, target))


def _loss(c: Construction, node: Node, spec: OpSpec, reads: tuple[Value, ...]) -> None:
    loss = c.layer(node, spec, reads, scalars=WHOLE_LOSS)
    c.bind(node, View(loss, (), ()))


LOSSES: Mapping[str, Operation] = {
    "cross_entropy_loss.default": _cross_entropy,
    "log_softmax.int": _log_softmax,
    "nll_loss_nd.default": _negative_log_likelihood,
    "mse_loss.default": _mean_squared_error,
    "binary_cross_entropy_with_logits.default": _binary_cross_entropy,
}
