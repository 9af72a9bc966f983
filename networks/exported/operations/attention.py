"""Attention and softmax."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from devices.operation import OpSpec
from networks.exported.construction import Construction, Operation, Unsupported
from networks.exported.operations.elementwise import applied
from networks.exported.program import BOOL, Node, Reference
from networks.exported.views import View
from networks.training.network import Value

_FAR = 1e30
"""By what a score that is hidden is lower, so that its weight is zero."""
_MERGES = frozenset({"aten.reshape.default", "aten.view.default", "aten._unsafe_view.default"})


def _attention(c: Construction, node: Node) -> None:
    query, key, value = map(
        _with_heads_in_rows, (c.view(node, "query"), *_without_repeated_heads(c, node))
    )
    batch, queries, heads, features = query.shape
    _, keys, key_heads, _ = key.shape
    if (
        key.shape != (batch, keys, key_heads, features)
        or value.shape != key.shape
        or 0 in (*query.shape, *key.shape)
        or heads % key_heads
    ):
        raise Unsupported(
            f"query, key and value have shapes {query.shape}, {key.shape}, {value.shape}"
            " (batch, length, heads, features)"
        )
    packed = _packed(query, key, value)
    inputs = [c.stored(node, view) for view in (query, key, value)] if packed is None else [packed]
    causal = c.plain(node, "is_causal", False) or _is_causal(c, node)
    has_mask = c.has(node, "attn_mask") and not (causal or _shows_all(c, node))
    mask = (_mask(c, node, (batch, heads, queries, keys)),) if has_mask else ()
    sizes = mask[0].shape[:3] if mask else (0, 0, 0)
    probability = c.plain(node, "dropout_p", 0.0)
    c.dropouts += probability > 0
    spec = OpSpec.of(
        "attention.forward",
        batch=batch,
        queries=queries,
        keys=keys,
        heads=heads,
        key_heads=key_heads,
        head_features=features,
        causal=int(causal),
        dropout=int(probability > 0),
        packed=int(packed is not None),
        **dict(zip(("mask_batch", "mask_heads", "mask_queries"), sizes, strict=True)),
    )
    scalars = {
        "scale": c.plain(node, "scale", 1 / math.sqrt(features)),
        "probability": probability,
        "seed": float(c.dropouts if probability > 0 else 0),
    }
    output = c.layer(node, spec, (*inputs, *mask), shape=query.shape, scalars=scalars)
    in_heads = View.whole(output).permuted((0, 2, 1, 3))
    shape = c.meta(node).shape
    c.bind(node, in_heads if len(shape) == 4 else in_heads.without(1))


def _without_repeated_heads(c: Construction, node: Node) -> tuple[View, View]:
    """Key and value; where the program repeats each head for a group of queries, one of each."""
    views = c.view(node, "key"), c.view(node, "value")
    before = [_before_repetition(c, node, name) for name in ("key", "value")]
    key, value = before
    return views if key is None or value is None else (key, value)


def _before_repetition(c: Construction, node: Node, name: str) -> View | None:
    """The heads [batch, heads, length, features] of which each was repeated one after another."""
    argument = node.arguments.get(name)
    maker = c.maker.get(argument.name) if isinstance(argument, Reference) else None
    if maker is None or maker.target not in _MERGES:
        return None
    if not c.overwritten.isdisjoint((*maker.reads, *maker.outputs)):
        return None
    repeated = c.view(maker, "self")
    if len(repeated.shape) != 5 or repeated.strides[2] or repeated.shape[2] == 1:
        return None
    batch, heads, times, *rest = repeated.shape
    if c.view(node, name).shape != (batch, heads * times, *rest):
        return None
    return repeated.part(2, 0, 1).without(2)


def _with_heads_in_rows(view: View) -> View:
    """The tensor [batch, heads, length, features] with the heads of a row side by side."""
    if len(view.shape) not in {3, 4}:
        raise Unsupported(f"an operand has shape {view.shape}; 3 or 4 axes are needed")
    return view.with_axes(1, 4).permuted((0, 2, 1, 3))


def _packed(query: View, key: View, value: View) -> Value | None:
    """The tensor in whose rows query, key and value are side by side, if they are."""
    batch, length, heads, features = query.shape
    row = (heads + 2 * key.shape[2]) * features
    if key.shape[1] != length or query.value.elements != batch * length * row:
        return None
    offset = 0
    for view in (query, key, value):
        axes = zip(view.shape, view.strides, (length * row, row, features, 1), strict=True)
        in_rows = all(size == 1 or stride == wanted for size, stride, wanted in axes)
        if view.value.name != query.value.name or view.offset != offset or not in_rows:
            return None
        offset += view.shape[2] * features
    return query.value


def _is_causal(c: Construction, node: Node) -> bool:
    """Whether the mask is a constant that hides what comes later, and nothing else."""
    mask = _shown(c, node)
    if mask is None:
        return False
    queries, keys = mask.shape[-2:]
    shown = np.tri(queries, keys, dtype=np.bool_)
    return queries > 1 and np.array_equal(mask, np.broadcast_to(shown, mask.shape))


def _shows_all(c: Construction, node: Node) -> bool:
    mask = _shown(c, node)
    return mask is not None and bool(mask.all())


def _shown(c: Construction, node: Node) -> NDArray[Any] | None:
    """Which scores a constant mask shows; None of a mask that is computed, or adds numbers."""
    mask = c.constant_of(node, "attn_mask")
    if mask is None or mask.ndim < 2 or mask.dtype == np.bool_:
        return mask if mask is not None and mask.ndim >= 2 else None
    hidden = mask <= np.finfo(np.float32).min / 2
    return None if mask[~hidden].any() else ~hidden


def _as_addend(c: Construction, node: Node, view: View) -> View:
    """What is added to the scores, for a mask that is computed and true or false."""
    mask = node.arguments.get("attn_mask")
    is_truth = isinstance(mask, Reference) and c.program.tensors[mask.name].dtype == BOOL
    if not is_truth or view.value.kind != "activation":
        return view
    less = {"addend": -1.0}
    hidden = applied(c, node, "add_number.forward", view, scalars=less, part="hidden")
    return applied(c, node, "multiply_number.forward", hidden, scalars={"factor": _FAR}, part="far")


def _mask(c: Construction, node: Node, whole: tuple[int, int, int, int]) -> Value:
    """What is added to the scores: one row of keys where all of an axis have the same."""
    known = c.constant_of(node, "attn_mask")
    if known is not None and known.dtype == np.bool_:
        view = c.new_constant(node, "mask", np.where(known, 0.0, -np.inf))
    else:
        view = _as_addend(c, node, c.view(node, "attn_mask"))
    has_heads = len(c.meta(node).shape) == 4
    scores = whole if has_heads else (whole[0], *whole[2:])
    pairs = zip(view.shape[::-1], scores[::-1], strict=False)
    if len(view.shape) > len(scores) or any(size not in {1, wanted} for size, wanted in pairs):
        raise Unsupported(f"its mask has shape {view.shape}, its scores {scores}")
    view = view.with_axes(1 if len(view.shape) == 3 and not has_heads else 0, 4)
    view = view.expanded((*view.shape[:3], whole[3])).without_repetitions(3)
    if c.has_gradient(view):
        raise Unsupported("its mask is trained", "a mask without a gradient")
    if view.value.name not in c.booleans:
        return c.stored(node, view)
    if not view.is_row_major:
        raise Unsupported(f"it reads the input {view.value.name} in another order or in part")
    return Value(view.value.name, view.shape, view.value.kind)


def _softmax(c: Construction, node: Node) -> None:
    view = c.view(node, "self")
    (axis,) = c.axes(node, "dim", len(view.shape), (-1,))
    others = [each for each in range(len(view.shape)) if each != axis]
    x = c.stored(node, view.permuted((*others, axis)))
    *rows, columns = x.shape
    spec = OpSpec.of("softmax.forward", rows=math.prod(rows), columns=columns)
    output = View.whole(c.layer(node, spec, (x,), shape=x.shape))
    back = (*range(axis), len(others), *range(axis, len(others)))
    c.bind(node, output.permuted(back))


ATTENTION: Mapping[str, Operation] = {
    "scaled_dot_product_attention.default": _attention,
    "softmax.int": _softmax,
}
