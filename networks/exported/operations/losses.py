"""Losses."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from devices.operation import OpSpec
from devices.signatures.whole_numbers import MOST
from networks.exported.construction import Construction, Operation, Unsupported
from networks.exported.decompositions.losses import BY_ROWS
from networks.exported.program import Node, Reference
from networks.exported.views import View
from networks.training.network import WHOLE_LOSS, Value

_REDUCTION_MEAN = 1  # ATen's number of the reduction "mean"
_IGNORED_LABEL = -100


def _cross_entropy(c: Construction, node: Node) -> None:
    """A mean over rows, or with ``by_rows`` a weighted sum that is divided by their number."""
    ignored = c.plain(node, "ignore_index", _IGNORED_LABEL)
    smoothing = c.plain(node, "label_smoothing", 0.0)
    is_weighted = (
        c.has(node, "weight") or ignored != _IGNORED_LABEL or smoothing != 0 or _may_ignore(c, node)
    )
    if abs(ignored) >= MOST:
        raise Unsupported(f"ignore_index is {ignored}", "a number nearer to zero, such as -1")
    c.require(node, reduction=_REDUCTION_MEAN)
    known = c.constant_of(node, "target")
    labels = c.value(node, "target") if known is None else c.known_indices(node.name, known)
    view = c.view(node, "self")
    if len(view.shape) > 2:  # classes are the second axis
        view = view.permuted((0, *range(2, len(view.shape)), 1))
    stored = c.stored(node, view)
    logits = Value(stored.name, (stored.elements // view.shape[-1], view.shape[-1]), stored.kind)
    if labels.shape == view.shape[:-1]:
        labels = Value(labels.name, (labels.elements,), labels.kind)
    if len(logits.shape) != 2 or len(labels.shape) != 1:
        raise Unsupported(
            f"its operands have shapes {logits.shape} and {labels.shape}",
            "logits of shape (rows, classes), and an input of class numbers of shape (rows,)",
        )
    rows, classes = logits.shape
    if not is_weighted:
        spec = OpSpec.of("softmax_cross_entropy.forward", rows=rows, classes=classes)
        _loss(c, node, spec, (logits, labels))
        return
    weights = (
        c.value(node, "weight")
        if c.has(node, "weight")
        else c.new_constant(node, "weights", np.ones(classes)).value
    )
    by_weight = int(not c.plain(node, BY_ROWS, False))
    spec = OpSpec.of(
        "weighted_cross_entropy.forward", rows=rows, classes=classes, by_weight=by_weight
    )
    scalars = {
        "smoothing": smoothing,
        "ignored": float(ignored),
    }
    _loss(c, node, spec, (logits, labels, weights), scalars)


def _may_ignore(c: Construction, node: Node) -> bool:
    """Whether labels are computed, for example shifted, and some may not count."""
    target = node.arguments.get("target")
    if not isinstance(target, Reference):
        return False
    known = c.constant(target.name)
    if known is not None:
        return bool((known == _IGNORED_LABEL).any())
    return c.named(target.name).value.kind == "activation" or not c.named(target.name).is_row_major


def _log_softmax(c: Construction, node: Node) -> None:
    """The first half of a cross-entropy. Its result stands for the logits until the second.

    Any other one has been decomposed.
    """
    view = c.view(node, "self")
    c.log_softmaxes.add(node.outputs[0])
    c.bind(node, view)


def _negative_log_likelihood(c: Construction, node: Node) -> None:
    read = node.arguments.get("self")
    if not isinstance(read, Reference) or read.name not in c.log_softmaxes:
        raise Unsupported("it does not follow log_softmax", "cross_entropy")
    _cross_entropy(c, node)


def _mean_squared_error(c: Construction, node: Node) -> None:
    c.require(node, reduction=_REDUCTION_MEAN)
    prediction, target = c.value(node, "self"), c.value(node, "target")
    if prediction.shape != target.shape:
        raise Unsupported(
            f"its operands have shapes {prediction.shape} and {target.shape}",
            "a target of the prediction's shape",
        )
    spec = OpSpec.of("mean_squared_error.forward", elements=prediction.elements)
    _loss(c, node, spec, (prediction, target))


def _binary_cross_entropy(c: Construction, node: Node) -> None:
    c.require(node, reduction=_REDUCTION_MEAN)
    if c.has(node, "weight") or c.has(node, "pos_weight"):
        raise Unsupported("it weights the elements")
    logits, target = c.value(node, "self"), c.value(node, "target")
    if logits.shape != target.shape:
        raise Unsupported(
            f"its operands have shapes {logits.shape} and {target.shape}",
            "a target of the logits' shape",
        )
    spec = OpSpec.of("binary_cross_entropy.forward", elements=logits.elements)
    _loss(c, node, spec, (logits, target))


def _loss(
    c: Construction,
    node: Node,
    spec: OpSpec,
    reads: tuple[Value, ...],
    scalars: Mapping[str, float] | None = None,
) -> None:
    loss = c.layer(node, spec, reads, scalars={**WHOLE_LOSS, **(scalars or {})})
    c.bind(node, View(loss, (), ()))


LOSSES: Mapping[str, Operation] = {
    "cross_entropy_loss.default": _cross_entropy,
    "log_softmax.int": _log_softmax,
    "nll_loss_nd.default": _negative_log_likelihood,
    "mse_loss.default": _mean_squared_error,
    "binary_cross_entropy_with_logits.default": _binary_cross_entropy,
}
