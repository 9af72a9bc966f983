"""Attention and softmax."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from devices.operation import OpSpec
from networks.exported.construction import Construction, Operation, Unsupported
from networks.exported.program import Node
from networks.exported.views import View
from networks.training.network import Value


def _attention(c: Construction, node: Node) -> None:
    query, key, value = (_heads_in_rows(c, node, name) for name in ("query", "key", "value"))
    batch, queries, heads, features = query.shape
    _, keys, key_heads, _ = key.shape
    grouped = c.plain(node, "enable_gqa", False)
    if (
        key.shape != (batch, keys, key_heads, features)
        or value.shape != key.shape
        or (heads % key_heads if grouped else heads != key_heads)
    ):
        raise Unsupported(
            f"query, key and value have shapes {query.shape}, {key.shape}, {value.shape}"
            " (batch, length, heads, features)"
        )
    mask = (_mask(c, node, (batch, heads, queries, keys)),) if c.has(node, "attn_mask") else ()
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
        causal=int(c.plain(node, "is_causal", False)),
        dropout=int(probability > 0),
        **dict(zip(("mask_batch", "mask_heads", "mask_queries"), sizes, strict=True)),
    )
    scalars = {
        "scale": c.plain(node, "scale", 1 / math.sqrt(features)),
        "probability": probability,
        "seed": float(c.dropouts if probability > 0 else 0),
    }
    output = c.layer(node, spec, (query, key, value, *mask), shape=query.shape, scalars=scalars)
    in_heads = View.whole(output).permuted((0, 2, 1, 3))
    shape = c.meta(node).shape
    c.bind_copy(node, in_heads if len(shape) == 4 else in_heads.without(1))


def _heads_in_rows(c: Construction, node: Node, name: str) -> Value:
    """The tensor [batch, heads, length, features] as rows of all heads, side by side."""
    view = c.view(node, name)
    if len(view.shape) not in {3, 4}:
        raise Unsupported(f"{name} has shape {view.shape}; 3 or 4 axes are needed")
    return c.stored(node, view.with_axes(1, 4).permuted((0, 2, 1, 3)))


def _mask(c: Construction, node: Node, whole: tuple[int, int, int, int]) -> Value:
    """What is added to the scores: one row of keys where all of an axis have the same."""
    view = c.view(node, "attn_mask")
    has_heads = len(c.meta(node).shape) == 4
    scores = whole if has_heads else (whole[0], *whole[2:])
    pairs = zip(view.shape[::-1], scores[::-1], strict=False)
    if len(view.shape) > len(scores) or any(size not in {1, wanted} for size, wanted in pairs):
        raise Unsupported(f"its mask has shape {view.shape}, its scores {scores}")
    view = view.with_axes(1 if len(view.shape) == 3 and not has_heads else 0, 4)
    view = view.expanded((*view.shape[:3], whole[3])).without_repetitions(3)
    if view.value.name in c.network.needing_gradients() or view.value.trained:
        raise Unsupported("its mask is trained", "a mask without a gradient")
    if view.value.name not in c.booleans:
        return c.stored(node, view)
    if view.value.kind == "parameter":
        seen = view.elements_of(c.weights[view.value.name])
        return c.constant(node.name, np.where(seen, np.float32(0), np.float32(-np.inf)))
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
