"""Linear layers, norms and embeddings."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from devices.operation import OpSpec
from networks.exported.construction import Construction, Operation, Unsupported
from networks.exported.program import Node
from networks.exported.views import Merged, View
from networks.training.network import Value

_NO_PADDING_INDEX = -1


def _linear(c: Construction, node: Node) -> None:
    merged = _merged_rows(c, node)
    view, back = (c.view(node, "input") if merged is None else merged.view).in_stored_order(1)
    x, weight = c.stored(node, view), c.value(node, "weight")
    *leading, in_features = x.shape
    bias = (c.value(node, "bias"),) if c.has(node, "bias") else ()
    spec = OpSpec.of(
        "linear.forward",
        rows=math.prod(leading),
        in_features=in_features,
        out_features=weight.shape[0],
        bias=len(bias),
    )
    output = c.layer(node, spec, (x, weight, *bias), shape=(*leading, weight.shape[0]))
    result, shape = View.whole(output).permuted(back), c.meta(node).shape
    if merged is None:
        c.bind(node, result)
        return
    c.bind(node, result.reshaped(shape) or c.reshaped_copy(node, result, shape))
    c.bind_merged(node, Merged(result, merged.counts))


def _merged_rows(c: Construction, node: Node) -> Merged | None:
    """The input, if its rows are stored in another order than that of its merged axes.

    Its features are then one axis.
    """
    merged = c.merged(node, "input")
    if merged is None:
        return None
    features = c.view(node, "input").shape[-1]
    rows = merged.view.shape[: sum(merged.counts[:-1])]
    view = merged.view.reshaped((*rows, features))
    if view is None or not view.in_stored_order(1)[0].is_row_major:
        return None
    return Merged(view, (*merged.counts[:-1], 1))


def _batch_norm(c: Construction, node: Node) -> None:
    x = c.value(node, "input")
    if not (c.has(node, "weight") and c.has(node, "bias")):
        raise Unsupported("it has no scale and shift", "affine=True")
    batch, channels, *plane = x.shape
    sizes = {"batch": batch, "channels": channels, "plane": math.prod(plane)}
    scale, shift = c.parameter(node, "weight"), c.parameter(node, "bias")
    epsilon = {"epsilon": c.plain(node, "eps", 1e-5)}
    if not c.plain(node, "training", False):
        kept = (c.parameter(node, "running_mean"), c.parameter(node, "running_var"))
        spec = OpSpec.of("batch_norm_frozen.forward", **sizes)
        reads = (x, scale, shift, *kept)
        c.bind(node, View.whole(c.layer(node, spec, reads, shape=x.shape, scalars=epsilon)))
        return
    spec = OpSpec.of("batch_norm.forward", **sizes)
    output = c.layer(node, spec, (x, scale, shift), shape=x.shape, scalars=epsilon)
    _, mean, variance = c.network.layers[-1].writes
    if c.has(node, "running_mean"):
        if node.arguments.get("momentum") is None:
            raise Unsupported("its statistics average all steps", "give it a momentum")
        kept = (c.parameter(node, "running_mean"), c.parameter(node, "running_var"))
        if kept[0].name in c.updated:
            raise Unsupported("its statistics change twice a step", "a module for each call")
        c.updated.add(kept[0].name)
        c.layer(
            node,
            OpSpec.of("batch_norm.statistics_update", **sizes),
            (mean, variance, *kept),
            scalars={"momentum": c.plain(node, "momentum", 0.1)},
            part="statistics",
        )
    c.bind(node, View.whole(output))


def _normalised_features(c: Construction, node: Node, x: Value) -> int:
    shape = c.integers(node, "normalized_shape", ())
    if not shape or x.shape[-len(shape) :] != shape:
        raise Unsupported(f"it normalises over {shape}, which are not the last axes of {x.shape}")
    return math.prod(shape)


def _in_rows(c: Construction, node: Node) -> tuple[Value, tuple[int, ...]]:
    """The input of a norm, whose rows may be stored in another order, and the order back."""
    view, back = c.view(node, "input").in_stored_order(
        len(c.integers(node, "normalized_shape", ()))
    )
    return c.stored(node, view), back


def _layer_norm(c: Construction, node: Node) -> None:
    x, back = _in_rows(c, node)
    if not (c.has(node, "weight") and c.has(node, "bias")):
        raise Unsupported("it has no scale and shift", "elementwise_affine=True, bias=True")
    features = _normalised_features(c, node, x)
    spec = OpSpec.of("layer_norm.forward", rows=math.prod(x.shape) // features, features=features)
    output = c.layer(
        node,
        spec,
        (x, c.parameter(node, "weight"), c.parameter(node, "bias")),
        shape=x.shape,
        scalars={"epsilon": c.plain(node, "eps", 1e-5)},
    )
    c.bind(node, View.whole(output).permuted(back))


def _rms_norm(c: Construction, node: Node) -> None:
    x, back = _in_rows(c, node)
    if not c.has(node, "weight"):
        raise Unsupported("it has no scale", "elementwise_affine=True")
    features = _normalised_features(c, node, x)
    spec = OpSpec.of("rms_norm.forward", rows=x.elements // features, features=features)
    epsilon = c.plain(node, "eps", float(np.finfo(np.float32).eps))
    reads = (x, c.parameter(node, "weight"))
    output = c.layer(node, spec, reads, shape=x.shape, scalars={"epsilon": epsilon})
    c.bind(node, View.whole(output).permuted(back))


def _group_norm(c: Construction, node: Node) -> None:
    x = c.value(node, "input")
    if not (c.has(node, "weight") and c.has(node, "bias")):
        raise Unsupported("it has no scale and shift", "affine=True")
    batch, channels, *plane = x.shape
    spec = OpSpec.of(
        "group_norm.forward",
        batch=batch,
        channels=channels,
        plane=math.prod(plane),
        groups=c.plain(node, "num_groups", 1),
    )
    reads = (x, c.parameter(node, "weight"), c.parameter(node, "bias"))
    epsilon = {"epsilon": c.plain(node, "eps", 1e-5)}
    c.bind(node, View.whole(c.layer(node, spec, reads, shape=x.shape, scalars=epsilon)))


def _embedding(c: Construction, node: Node) -> None:
    c.require(node, scale_grad_by_freq=False, sparse=False)
    table = c.parameter(node, "weight")
    if len(table.shape) != 2:
        raise Unsupported(f"its table has shape {table.shape}")
    known = c.constant_of(node, "indices")
    if known is not None:
        c.bind(node, _known_rows(table, known))
        return
    indices = c.value(node, "indices")
    if indices.kind != "input":
        raise Unsupported("its indices are not an input of the program", "pass them as an input")
    vocabulary, features = table.shape
    sizes = {"rows": indices.elements, "vocabulary": vocabulary, "features": features}
    padding = c.plain(node, "padding_idx", _NO_PADDING_INDEX)
    if table.trained and padding != _NO_PADDING_INDEX:
        spec = OpSpec.of("embedding_padded.forward", **sizes, padding_index=padding)
    else:
        spec = OpSpec.of("embedding.forward", **sizes)
    output = c.layer(node, spec, (indices, table), shape=(*indices.shape, features))
    c.bind(node, View.whole(output))


def _known_rows(table: Value, indices: NDArray[np.int64]) -> View:
    """Rows of a table at evenly spaced indices, such as positions."""
    first, shape = int(indices.flat[0]), indices.shape
    steps = tuple(
        int(indices.take(1, axis).flat[0]) - first if size > 1 else 0
        for axis, size in enumerate(shape)
    )
    even = first + sum(
        step * np.arange(size).reshape([-1 if axis == own else 1 for axis in range(len(shape))])
        for own, (step, size) in enumerate(zip(steps, shape, strict=True))
    )
    rows, features = table.shape
    if not np.array_equal(np.broadcast_to(even, shape), indices) or min(*steps, 0) < 0:
        raise Unsupported("its indices are constant, and not evenly spaced", "an input of indices")
    if not 0 <= first <= int(indices.max()) < rows:
        raise Unsupported(f"its constant indices are not from 0 to {rows - 1}")
    strides = (*(step * features for step in steps), 1)
    return View(table, (*shape, features), strides, first * features)


PARAMETERS: Mapping[str, Operation] = {
    "linear.default": _linear,
    "batch_norm.default": _batch_norm,
    "layer_norm.default": _layer_norm,
    "rms_norm.default": _rms_norm,
    "group_norm.default": _group_norm,
    "embedding.default": _embedding,
}
