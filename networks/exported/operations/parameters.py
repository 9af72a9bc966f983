"""Linear layers, norms and embeddings."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from devices.operation import OpSpec
from networks.exported.constants import MOST_ELEMENTS
from networks.exported.construction import Construction, Operation, Unsupported
from networks.exported.program import Node, Reference
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
    batch, channels, *plane = x.shape
    sizes = {"batch": batch, "channels": channels, "plane": math.prod(plane)}
    scale, shift = _scale_and_shift(c, node, channels)
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
        c.layer(
            node,
            OpSpec.of("batch_norm.statistics_update", **sizes),
            (mean, variance, *(c.updated.get(each.name, each) for each in kept)),
            scalars={"momentum": c.plain(node, "momentum", 0.1)},
            part="statistics",
        )
        names = (each.name for each in kept)
        c.updated.update(zip(names, c.network.layers[-1].writes, strict=True))
    c.bind(node, View.whole(output))


def _scale_and_shift(c: Construction, node: Node, size: int) -> tuple[Value, Value]:
    """Those of a norm, which are 1 and 0 where it has none."""
    found = []
    for name, number in (("weight", 1.0), ("bias", 0.0)):
        if c.has(node, name):
            found.append(c.value(node, name))
        else:
            found.append(c.new_constant(node, name, np.full(size, number)).value)
    return found[0], found[1]


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
    features = _normalised_features(c, node, x)
    spec = OpSpec.of("layer_norm.forward", rows=math.prod(x.shape) // features, features=features)
    output = c.layer(
        node,
        spec,
        (x, *_scale_and_shift(c, node, features)),
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
    batch, channels, *plane = x.shape
    spec = OpSpec.of(
        "group_norm.forward",
        batch=batch,
        channels=channels,
        plane=math.prod(plane),
        groups=c.plain(node, "num_groups", 1),
    )
    reads = (x, *_scale_and_shift(c, node, channels))
    epsilon = {"epsilon": c.plain(node, "eps", 1e-5)}
    c.bind(node, View.whole(c.layer(node, spec, reads, shape=x.shape, scalars=epsilon)))


def _embedding(c: Construction, node: Node) -> None:
    c.require(node, scale_grad_by_freq=False, sparse=False)
    table = c.parameter(node, "weight")
    if len(table.shape) != 2:
        raise Unsupported(f"its table has shape {table.shape}")
    padding = c.plain(node, "padding_idx", _NO_PADDING_INDEX)
    known = c.constant_of(node, "indices")
    is_padded = padding != _NO_PADDING_INDEX
    if known is not None and not (is_padded and np.isin(padding, known)):
        rows = _evenly_spaced_rows(table, known)
        if rows is not None:
            c.bind(node, rows)
            return
    indices = c.value(node, "indices") if known is None else _indices(c, node, table, known)
    vocabulary, features = table.shape
    sizes = {"rows": indices.elements, "vocabulary": vocabulary, "features": features}
    if is_padded:
        spec = OpSpec.of("embedding_padded.forward", **sizes, padding_index=padding)
    else:
        spec = OpSpec.of("embedding.forward", **sizes)
    output = c.layer(node, spec, (indices, table), shape=(*indices.shape, features))
    c.bind(node, View.whole(output))


def _indices(c: Construction, node: Node, table: Value, known: NDArray[Any]) -> Value:
    """Constant indices of a table's rows; negative ones count from the last."""
    rows = table.shape[0]
    if (
        known.dtype.kind not in "iu"
        or not known.size
        or not -rows <= known.min() <= known.max() < rows
    ):
        raise Unsupported(f"its constant indices are not from 0 to {rows - 1}")
    return c.known_indices(f"{node.name}", known % rows)


def _index(c: Construction, node: Node) -> None:
    """Entries along one axis, at constant places."""
    indices = node.arguments.get("indices")
    given = {
        axis: each.name
        for axis, each in enumerate(indices if isinstance(indices, tuple) else ())
        if isinstance(each, Reference)
    }
    view, first = c.view(node, "self"), min(given, default=0)
    known = [c.constant(name) for name in given.values()]
    if len(given) == 1:
        c.bind(node, _take(c, node, view, first, known[0]))
    elif list(given) != list(range(first, first + len(given))) or not given:
        raise Unsupported("it takes entries along axes that are not side by side")
    else:
        sizes = view.shape[first : first + len(given)]
        flat = None if any(each is None for each in known) else _flat(sizes, known)
        shape = (*view.shape[:first], math.prod(sizes), *view.shape[first + len(given) :])
        joined = view.reshaped(shape) or View.whole(c.stored(node, view)).reshaped(shape)
        assert joined is not None, "a stored tensor can be reshaped"
        c.bind(node, _take(c, node, joined, first, flat))


def _flat(sizes: tuple[int, ...], indices: Sequence[NDArray[Any] | None]) -> NDArray[Any]:
    """Indices of the elements of several axes as those of one; negative ones count from the end."""
    stride, total = math.prod(sizes), np.zeros((), np.int64)
    for size, each in zip(sizes, indices, strict=True):
        stride //= size
        if each is None or each.dtype.kind not in "iu" or not each.size:
            raise Unsupported("its indices are not whole numbers")
        if not -size <= each.min() <= each.max() < size:
            raise Unsupported(f"its constant indices are not from 0 to {size - 1}")
        total = total + each % size * stride
    return np.asarray(total)


def _index_select(c: Construction, node: Node) -> None:
    view, known = c.view(node, "self"), c.constant_of(node, "index")
    axis = c.axis(node, view)
    if known is not None:
        c.bind(node, _take(c, node, view, axis, known.reshape(-1)))
        return
    order = (axis, *(each for each in range(len(view.shape)) if each != axis))
    stored, indices = c.stored(node, view.permuted(order)), c.value(node, "index")
    count, *rest = stored.shape
    features = math.prod(rest)
    table = Value(stored.name, (count, features), stored.kind, stored.trained)
    spec = OpSpec.of(
        "embedding.forward", rows=indices.elements, vocabulary=count, features=features
    )
    rows = View.whole(c.layer(node, spec, (indices, table), shape=(indices.elements, *rest)))
    c.bind(node, rows.permuted((*range(1, axis + 1), 0, *range(axis + 1, len(view.shape)))))


def _gather(c: Construction, node: Node) -> None:
    """An element of each row: of the row of all at computed places, or of any at constant ones."""
    view, known = c.view(node, "self"), c.constant_of(node, "index")
    axis, shape = c.axis(node, view), c.meta(node).shape
    numbers = c.constant_of(node, "self")
    if numbers is not None and numbers.size and (numbers == numbers.flat[0]).all():
        c.bind(node, c.new_constant(node, "same", numbers.reshape(-1)[0]).expanded(shape))
        return
    row = view.without_repetitions(len(view.shape))
    if known is None:
        if row.value.elements != view.shape[axis] or not row.has_all:
            raise Unsupported("it takes other elements of each row", "constant indices")
        indices = c.value(node, "index")
        table = Value(row.value.name, (row.value.elements, 1), row.value.kind, row.value.trained)
        spec = OpSpec.of(
            "embedding.forward", rows=indices.elements, vocabulary=table.shape[0], features=1
        )
        c.bind(node, View.whole(c.layer(node, spec, (indices, table), shape=shape)))
        return
    if max(math.prod(shape), math.prod(view.shape)) > MOST_ELEMENTS:
        raise Unsupported(f"it takes {math.prod(shape)} elements of {math.prod(view.shape)}")
    places = [*np.indices(shape, sparse=True)]
    places[axis] = known
    stored = View.whole(c.stored(node, view)).reshaped((math.prod(view.shape),))
    assert stored is not None, "a stored tensor can be reshaped"
    c.bind(node, _take(c, node, stored, 0, _flat(view.shape, places)))


def _take(c: Construction, node: Node, view: View, axis: int, known: NDArray[Any] | None) -> View:
    """Rows of a table at constant places: an embedding, or a view if they are evenly spaced."""
    if known is None:
        raise Unsupported("its indices are computed", "constant indices, or an embedding")
    if known.dtype.kind == "b":
        if known.ndim != 1:
            raise Unsupported("its mask has several axes")
        known = np.flatnonzero(known)
    order = (axis, *(each for each in range(len(view.shape)) if each != axis))
    stored = c.stored(node, view.permuted(order))
    count, *rest = stored.shape
    features = math.prod(rest)
    table = Value(stored.name, (count, features), stored.kind, stored.trained)
    if known.dtype.kind in "iu" and known.size and 0 <= known.min() <= known.max() < count:
        rows = _evenly_spaced_rows(table, known)
    else:
        rows = None
    if rows is None:
        indices = _indices(c, node, table, known)
        sizes = {"rows": indices.elements, "vocabulary": count, "features": features}
        spec = OpSpec.of("embedding.forward", **sizes)
        output = c.layer(node, spec, (indices, table), shape=(*known.shape, features))
        rows = View.whole(output)
    apart = rows.reshaped((*known.shape, *rest))
    if apart is None:
        apart = View.whole(c.stored(node, rows)).reshaped((*known.shape, *rest))
    assert apart is not None, "a stored tensor can be reshaped"
    first = known.ndim
    back = (*range(first, first + axis), *range(first), *range(first + axis, first + len(rest)))
    return apart.permuted(back)


def _evenly_spaced_rows(table: Value, indices: NDArray[np.int64]) -> View | None:
    """Rows of a table at evenly spaced indices, such as positions; None at other ones."""
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
    if (
        indices.size == 0
        or not np.array_equal(np.broadcast_to(even, shape), indices)
        or min(steps, default=0) < 0
    ):
        return None
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
    "index.Tensor": _index,
    "index_select.default": _index_select,
    "gather.default": _gather,
}
