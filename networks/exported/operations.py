"""ATen operations that can be trained, and the layers that they become."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TypeAlias

from devices.operation import OpSpec
from networks.exported.construction import Construction, Unsupported
from networks.exported.program import INT64, Node
from networks.exported.views import View
from networks.training.network import Value

Operation: TypeAlias = Callable[[Construction, Node], None]

_REDUCTION_MEAN = 1  # ATen's number of the reduction "mean"
_NO_PADDING_INDEX = -1
_IGNORED_LABEL = -100


# --- views ----------------------------------------------------------------------------------------


def _reshape(c: Construction, node: Node) -> None:
    view = c.view(node, next(iter(node.arguments))).reshaped(c.meta(node).shape)
    if view is None:
        raise Unsupported(
            "it needs a transposing copy, which is not among the kernels",
            "flatten before transposing",
        )
    c.set(node, view)


def _transpose(c: Construction, node: Node) -> None:
    view = c.view(node, "self")
    axes = list(range(len(view.shape)))
    first, second = c.plain(node, "dim0", 0), c.plain(node, "dim1", 0)
    axes[first], axes[second] = axes[second], axes[first]
    c.set(node, view.permuted(tuple(axes)))


def _permute(c: Construction, node: Node) -> None:
    view = c.view(node, "self")
    c.set(
        node, view.permuted(tuple(axis % len(view.shape) for axis in c.integers(node, "dims", ())))
    )


def _same(c: Construction, node: Node) -> None:
    """A copy that only matters to PyTorch: layouts here are those of the operations."""
    c.set(node, c.view(node, next(iter(node.arguments))))


def _same_shapes(c: Construction, node: Node) -> None:
    """Broadcasting, of tensors that have one shape already."""
    views = c.views_of(node, "tensors")
    if len({view.shape for view in views}) != 1:
        raise Unsupported(f"it broadcasts shapes {', '.join(str(view.shape) for view in views)}")
    c.set(node, *views)


# --- element by element ---------------------------------------------------------------------------


def _activation(family: str) -> Operation:
    def mapped(c: Construction, node: Node) -> None:
        c.require(node, approximate="none")
        view = c.view(node, "self")
        _elementwise(c, node, f"{family}.forward", view, view.value)

    return mapped


def _clamp(lowest: float, highest: float) -> Operation:
    """Hardtanh; the bounds are those of its default arguments."""

    def mapped(c: Construction, node: Node) -> None:
        view = c.view(node, "self")
        bounds = {
            "lowest": c.plain(node, "min_val", lowest),
            "highest": c.plain(node, "max_val", highest),
        }
        _elementwise(c, node, "clamp.forward", view, view.value, scalars=bounds)

    return mapped


def _leaky_relu(c: Construction, node: Node) -> None:
    view = c.view(node, "self")
    slope = c.plain(node, "negative_slope", 0.01)
    if slope < 0:
        raise Unsupported(f"its slope is {slope}; it must not be negative")
    _elementwise(c, node, "leaky_relu.forward", view, view.value, scalars={"slope": slope})


def _elementwise(
    c: Construction,
    node: Node,
    kind: str,
    view: View,
    *reads: Value,
    scalars: Mapping[str, float] | None = None,
) -> None:
    """Append an operation on the elements in the order in which they are stored."""
    stored = view.value.shape
    elements = math.prod(stored)
    spec = OpSpec.of(kind, elements=elements)
    output = c.layer(node, spec, reads, shape=stored, scalars=scalars)
    c.set(node, view.of(output))


def _add(c: Construction, node: Node) -> None:
    c.require(node, alpha=1)
    if _counts_steps(c, node):
        return
    left, right = c.view(node, "self"), c.view(node, "other")
    if (left.shape, left.strides) != (right.shape, right.strides):
        raise Unsupported(
            f"it adds shapes {left.shape} and {right.shape}; both must be the same, and stored in"
            " the same order"
        )
    _elementwise(c, node, "add.forward", left, left.value, right.value)


def _counts_steps(c: Construction, node: Node) -> bool:
    """Take a batch norm's counter of steps out of the network: nothing reads it."""
    if c.meta(node).dtype != INT64:
        return False
    counter = c.view(node, "self").value
    if counter.kind != "parameter" or counter.shape != () or node.arguments.get("other") != 1:
        raise Unsupported("arithmetic on whole numbers")
    c.counters.append(counter.name)
    c.views[node.outputs[0]] = c.view(node, "self")
    return True


def _dropout(c: Construction, node: Node) -> None:
    view = c.view(node, next(iter(node.arguments)))
    probability = c.plain(node, "p", 0.5)
    if not c.plain(node, "train", False) or probability == 0:
        c.set(node, view)
        return
    c.dropouts += 1
    scalars = {"probability": probability, "seed": float(c.dropouts)}
    _elementwise(c, node, "dropout.forward", view, view.value, scalars=scalars)


# --- windows --------------------------------------------------------------------------------------


def _conv(c: Construction, node: Node) -> None:
    x, weight = c.value(node, "input"), c.parameter(node, "weight")
    axes = len(x.shape) - 2
    if axes not in {1, 2}:
        raise Unsupported(f"its input has shape {x.shape}; a batch of 1-D or 2-D images is needed")
    c.require(node, dilation=1)
    ones = (1,) * axes
    kernel, stride = weight.shape[2:], c.integers(node, "stride", ones)
    padding = node.arguments.get("padding")
    if padding == "same":
        before = tuple((size - 1) // 2 for size in kernel)
        after = tuple(size - 1 - b for size, b in zip(kernel, before, strict=True))
    else:
        before = (0,) * axes if padding == "valid" else c.integers(node, "padding", (0,) * axes)
        after = before
    has_bias = c.has(node, "bias")
    bias = (c.parameter(node, "bias"),) if has_bias else ()
    spec = OpSpec.of(
        "conv2d.forward",
        batch=x.shape[0],
        in_channels=x.shape[1],
        out_channels=weight.shape[0],
        groups=c.plain(node, "groups", 1),
        bias=int(has_bias),
        **_window(x.shape[2:], kernel, stride, before, after),
    )
    output = c.layer(node, spec, (x, weight, *bias), shape=c.meta(node).shape)
    c.set(node, View.whole(output))


def _max_pool(c: Construction, node: Node) -> None:
    c.require(node, dilation=1)
    _pool(c, node, "max_pool2d", may_round_up=True)


def _average_pool(c: Construction, node: Node) -> None:
    if any(c.integers(node, "padding", (0,))):
        c.require(node, count_include_pad=True)
    if node.arguments.get("divisor_override") is not None:
        raise Unsupported("divisor_override is given")
    _pool(c, node, "average_pool2d", may_round_up=False)


def _pool(c: Construction, node: Node, family: str, *, may_round_up: bool) -> None:
    x = _image(c, node)
    kernel = c.integers(node, "kernel_size", (1, 1))
    stride, before = c.integers(node, "stride", kernel), c.integers(node, "padding", (0, 0))
    after = before
    if c.plain(node, "ceil_mode", False):
        out = c.meta(node).shape[2:]
        needed = tuple(
            (positions - 1) * step + size - length - pad
            for positions, step, size, length, pad in zip(
                out, stride, kernel, x.shape[2:], before, strict=True
            )
        )
        after = tuple(max(pad, need) for pad, need in zip(before, needed, strict=True))
        if after != before and not may_round_up:
            raise Unsupported("ceil_mode makes windows reach beyond the image")
    _append_pool(c, node, family, x, kernel, stride, before, after)


def _append_pool(
    c: Construction,
    node: Node,
    family: str,
    x: Value,
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    before: tuple[int, ...],
    after: tuple[int, ...],
) -> None:
    spec = OpSpec.of(
        f"{family}.forward",
        batch=x.shape[0],
        channels=x.shape[1],
        **_window(x.shape[2:], kernel, stride, before, after),
    )
    output = c.layer(node, spec, (x,), shape=c.meta(node).shape)
    c.set(node, View.whole(output))


def _adaptive_average_pool(c: Construction, node: Node) -> None:
    x, out = _image(c, node), c.meta(node).shape[2:]
    if out == (1, 1):
        _global_average_pool(c, node, x)
    elif out == x.shape[2:]:
        c.set(node, View.whole(x))
    elif any(size % positions for size, positions in zip(x.shape[2:], out, strict=True)):
        raise Unsupported(f"its windows are unequal: {x.shape[2:]} to {out}")
    else:
        kernel = tuple(size // positions for size, positions in zip(x.shape[2:], out, strict=True))
        _append_pool(c, node, "average_pool2d", x, kernel, kernel, (0, 0), (0, 0))


def _mean(c: Construction, node: Node) -> None:
    x = c.value(node, "self")
    axes = {axis % len(x.shape) for axis in c.integers(node, "dim", ())}
    if len(x.shape) < 3 or axes != set(range(2, len(x.shape))):
        raise Unsupported(f"it averages axes {sorted(axes)} of {x.shape}; all after the second can")
    _global_average_pool(c, node, x)


def _global_average_pool(c: Construction, node: Node, x: Value) -> None:
    batch, channels, *plane = x.shape
    spec = OpSpec.of(
        "global_average_pool.forward", batch=batch, channels=channels, plane=math.prod(plane)
    )
    output = c.layer(node, spec, (x,), shape=c.meta(node).shape)
    c.set(node, View.whole(output))


def _image(c: Construction, node: Node) -> Value:
    x = c.value(node, "self")
    if len(x.shape) != 4:
        raise Unsupported(f"its input has shape {x.shape}; a batch of images has 4 axes")
    return x


def _window(
    size: tuple[int, ...],
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    before: tuple[int, ...],
    after: tuple[int, ...],
) -> dict[str, int]:
    """Attributes of a sliding window; with one axis, images of height 1."""
    if len(size) == 1:
        size, kernel, stride = (1, *size), (1, *kernel), (1, *stride)
        before, after = (0, *before), (0, *after)
    return {
        "in_height": size[0],
        "in_width": size[1],
        "kernel_height": kernel[0],
        "kernel_width": kernel[1],
        "stride_height": stride[0],
        "stride_width": stride[1],
        "pad_top": before[0],
        "pad_bottom": after[0],
        "pad_left": before[1],
        "pad_right": after[1],
    }


# --- parameters by row or channel -----------------------------------------------------------------


def _linear(c: Construction, node: Node) -> None:
    x, weight = c.value(node, "input"), c.parameter(node, "weight")
    *leading, in_features = x.shape
    has_bias = c.has(node, "bias")
    bias = (c.parameter(node, "bias"),) if has_bias else ()
    spec = OpSpec.of(
        "linear.forward",
        rows=math.prod(leading),
        in_features=in_features,
        out_features=weight.shape[0],
        bias=int(has_bias),
    )
    output = c.layer(node, spec, (x, weight, *bias), shape=(*leading, weight.shape[0]))
    c.set(node, View.whole(output))


def _batch_norm(c: Construction, node: Node) -> None:
    x = c.value(node, "input")
    if not (c.has(node, "weight") and c.has(node, "bias")):
        raise Unsupported("it has no scale and shift", "affine=True")
    if not c.plain(node, "training", False):
        raise Unsupported("its statistics are frozen", "call .train() before exporting")
    batch, channels, *plane = x.shape
    sizes = {"batch": batch, "channels": channels, "plane": math.prod(plane)}
    scale, shift = c.parameter(node, "weight"), c.parameter(node, "bias")
    output = c.layer(
        node,
        OpSpec.of("batch_norm.forward", **sizes),
        (x, scale, shift),
        shape=x.shape,
        scalars={"epsilon": c.plain(node, "eps", 1e-5)},
    )
    _, mean, variance = c.network.layers[-1].writes
    if c.has(node, "running_mean"):
        if node.arguments.get("momentum") is None:
            raise Unsupported("its statistics average all steps", "give it a momentum")
        kept = (c.parameter(node, "running_mean"), c.parameter(node, "running_var"))
        c.layer(
            node,
            OpSpec.of("batch_norm.statistics_update", **sizes),
            (mean, variance, *kept),
            scalars={"momentum": c.plain(node, "momentum", 0.1)},
            part="statistics",
        )
    c.set(node, View.whole(output))


def _layer_norm(c: Construction, node: Node) -> None:
    x = c.value(node, "input")
    if not (c.has(node, "weight") and c.has(node, "bias")):
        raise Unsupported("it has no scale and shift", "elementwise_affine=True, bias=True")
    features = math.prod(c.integers(node, "normalized_shape", ()))
    spec = OpSpec.of("layer_norm.forward", rows=math.prod(x.shape) // features, features=features)
    output = c.layer(
        node,
        spec,
        (x, c.parameter(node, "weight"), c.parameter(node, "bias")),
        shape=x.shape,
        scalars={"epsilon": c.plain(node, "eps", 1e-5)},
    )
    c.set(node, View.whole(output))


def _embedding(c: Construction, node: Node) -> None:
    c.require(node, padding_idx=_NO_PADDING_INDEX, scale_grad_by_freq=False, sparse=False)
    table, indices = c.parameter(node, "weight"), c.value(node, "indices")
    if indices.kind != "input":
        raise Unsupported("its indices are not an input of the program", "pass them as an input")
    vocabulary, features = table.shape
    spec = OpSpec.of(
        "embedding.forward",
        rows=math.prod(indices.shape),
        vocabulary=vocabulary,
        features=features,
    )
    output = c.layer(node, spec, (indices, table), shape=(*indices.shape, features))
    c.set(node, View.whole(output))


# --- several tensors ------------------------------------------------------------------------------


def _concat(c: Construction, node: Node) -> None:
    parts = [_row_major(view) for view in c.views_of(node, "tensors")]
    axis = c.plain(node, "dim", 0) % len(parts[0].shape)
    joined = parts[0]
    names: tuple[str, ...] = (joined.name,)
    for number, part in enumerate(parts[1:], start=1):
        names = (*names, part.name)
        # A network that joins ever more tensors (DenseNet) has joined the first ones before.
        before = c.joined.get((axis, names))
        if before is None:
            before = _joined(c, node, joined, part, axis, "" if len(parts) == 2 else str(number))
            c.joined[axis, names] = before
        joined = before
    c.set(node, View.whole(joined))


def _joined(c: Construction, node: Node, left: Value, right: Value, axis: int, name: str) -> Value:
    shape = (*left.shape[:axis], left.shape[axis] + right.shape[axis], *left.shape[axis + 1 :])
    spec = OpSpec.of(
        "concat.forward",
        outer=math.prod(left.shape[:axis]),
        left_inner=math.prod(left.shape[axis:]),
        right_inner=math.prod(right.shape[axis:]),
    )
    return c.layer(node, spec, (left, right), shape=shape, part=name)


def _row_major(view: View) -> Value:
    if not view.is_row_major:
        raise Unsupported("an operand is transposed, and a transposing copy is not supported")
    return Value(view.value.name, view.shape, view.value.kind, view.value.trained)


def _attention(c: Construction, node: Node) -> None:
    c.require(node, is_causal=False, enable_gqa=False)
    if c.has(node, "attn_mask"):
        raise Unsupported("it has a mask", "sequences of full length without a mask")
    query, key, value = (_heads_in_rows(c.view(node, name)) for name in ("query", "key", "value"))
    batch, sequence, heads, features = query.shape
    if key.shape != query.shape or value.shape != query.shape:
        raise Unsupported(
            f"query, key and value have shapes {query.shape}, {key.shape}, {value.shape}"
        )
    scale = c.plain(node, "scale", 1 / math.sqrt(features))
    if not math.isclose(scale, 1 / math.sqrt(features), rel_tol=1e-6):
        raise Unsupported(f"scale is {scale}; only 1 / sqrt(features) is supported")
    sizes = {"batch": batch, "sequence": sequence, "heads": heads, "head_features": features}
    square = (batch, heads, sequence, sequence)
    spec = OpSpec.of("attention_scores.forward", **sizes)
    scores = c.layer(node, spec, (query, key), part="scores")
    spec = OpSpec.of("softmax.forward", rows=batch * heads * sequence, columns=sequence)
    weights = c.layer(node, spec, (scores,), shape=square, part="softmax")
    probability = c.plain(node, "dropout_p", 0.0)
    if probability:
        c.dropouts += 1
        spec = OpSpec.of("dropout.forward", elements=math.prod(square))
        scalars = {"probability": probability, "seed": float(c.dropouts)}
        weights = c.layer(node, spec, (weights,), shape=square, scalars=scalars, part="dropout")
    spec = OpSpec.of("attention_context.forward", **sizes)
    context = c.layer(node, spec, (weights, value), shape=query.shape, part="context")
    c.set(node, View.whole(context).permuted((0, 2, 1, 3)))


def _heads_in_rows(view: View) -> Value:
    """A tensor [batch, heads, sequence, features] that is stored as rows of all heads."""
    rows = view.permuted((0, 2, 1, 3)) if len(view.shape) == 4 else view
    if rows is view or not rows.is_row_major:
        raise Unsupported(
            "its heads are not side by side in rows",
            "x.view(batch, sequence, heads, -1).transpose(1, 2)",
        )
    return Value(rows.value.name, rows.shape, rows.value.kind, rows.value.trained)


def _softmax(c: Construction, node: Node) -> None:
    x = c.value(node, "self")
    if c.plain(node, "dim", 0) % len(x.shape) != len(x.shape) - 1:
        raise Unsupported("it is not over the last axis")
    *rows, columns = x.shape
    spec = OpSpec.of("softmax.forward", rows=math.prod(rows), columns=columns)
    output = c.layer(node, spec, (x,), shape=x.shape)
    c.set(node, View.whole(output))


# --- losses ---------------------------------------------------------------------------------------


def _cross_entropy(c: Construction, node: Node) -> None:
    c.require(node, reduction=_REDUCTION_MEAN, ignore_index=_IGNORED_LABEL, label_smoothing=0.0)
    if c.has(node, "weight"):
        raise Unsupported("it weights the classes")
    logits, labels = c.value(node, "self"), c.value(node, "target")
    if len(logits.shape) != 2 or len(labels.shape) != 1 or labels.kind != "input":
        raise Unsupported(
            f"its operands have shapes {logits.shape} and {labels.shape}",
            "logits of shape (rows, classes), and an input of class numbers of shape (rows,)",
        )
    rows, classes = logits.shape
    spec = OpSpec.of("softmax_cross_entropy.forward", rows=rows, classes=classes)
    _loss(c, node, spec, (logits, labels))


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


def _loss(c: Construction, node: Node, spec: OpSpec, reads: tuple[Value, ...]) -> None:
    loss = c.layer(node, spec, reads)
    c.losses[node.outputs[0]] = loss
    c.set(node, View(loss, (), ()))


OPERATIONS: Mapping[str, Operation] = {
    **dict.fromkeys(
        ("view.default", "reshape.default", "flatten.using_ints", "unflatten.int"), _reshape
    ),
    **dict.fromkeys(
        ("unsqueeze.default", "squeeze.default", "squeeze.dim", "squeeze.dims"), _reshape
    ),
    "transpose.int": _transpose,
    "permute.default": _permute,
    **dict.fromkeys(("contiguous.default", "clone.default", "alias.default"), _same),
    "broadcast_tensors.default": _same_shapes,
    "relu.default": _activation("relu"),
    "gelu.default": _activation("gelu"),
    "tanh.default": _activation("tanh"),
    "sigmoid.default": _activation("sigmoid"),
    "silu.default": _activation("silu"),
    "hardsigmoid.default": _activation("hard_sigmoid"),
    "hardswish.default": _activation("hard_swish"),
    "hardtanh.default": _clamp(-1.0, 1.0),
    "relu6.default": _clamp(0.0, 6.0),
    "leaky_relu.default": _leaky_relu,
    "add.Tensor": _add,
    "dropout.default": _dropout,
    **dict.fromkeys(
        ("conv1d.default", "conv1d.padding", "conv2d.default", "conv2d.padding"), _conv
    ),
    "max_pool2d.default": _max_pool,
    "avg_pool2d.default": _average_pool,
    "adaptive_avg_pool2d.default": _adaptive_average_pool,
    "mean.dim": _mean,
    "linear.default": _linear,
    "batch_norm.default": _batch_norm,
    "layer_norm.default": _layer_norm,
    "embedding.default": _embedding,
    "cat.default": _concat,
    "scaled_dot_product_attention.default": _attention,
    "softmax.int": _softmax,
    "cross_entropy_loss.default": _cross_entropy,
    "mse_loss.default": _mean_squared_error,
}
"""By ATen's name without ``aten.`` and without the underscore of operations in place."""
