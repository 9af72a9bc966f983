"""Record reference results of PyTorch, so that the kernel tests need no PyTorch.

Run ``python -m tests.references.record_kernel_references`` in the project's root, with PyTorch.
Everything is computed in float64 from float32 inputs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as functional
from torch import Tensor

from tests.references.kernel_cases import Attributes, recorded_cases
from tests.support.onboard.kernels import REFERENCES, Array, FamilyCase, random_bits, uniform

Values = dict[str, Tensor]
Scalars = Mapping[str, float]


class _Draw:
    """Inputs, each from its own random stream."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def _next(self) -> int:
        self._seed += 1
        return self._seed

    def values(self, *shape: int) -> Tensor:
        return torch.from_numpy(uniform(shape, self._next()).astype(np.float64))

    def coarse(self, *shape: int) -> Tensor:
        """Values of which many are equal."""
        return torch.round(self.values(*shape) * 4) / 4

    def wide(self, *shape: int) -> Tensor:
        """Values in [-12, 12), most of them near 0."""
        return (self.values(*shape) ** 3 * 12).float().double()

    def indices(self, count: int, bound: int) -> Tensor:
        raw = random_bits(count, self._next()) % np.uint64(bound)
        return torch.from_numpy(raw.astype(np.int64))


def _differentiate(output: Tensor, output_gradient: Tensor, **inputs: Tensor) -> Values:
    gradients = torch.autograd.grad(
        output, list(inputs.values()), output_gradient, retain_graph=True
    )
    return {f"{role}_gradient": g for role, g in zip(inputs, gradients, strict=True)}


def _conv2d(a: Attributes, draw: _Draw, _: Scalars) -> Values:
    x = draw.values(a["batch"], a["in_channels"], a["in_height"], a["in_width"])
    weight = draw.values(
        a["out_channels"], a["in_channels"] // a["groups"], a["kernel_height"], a["kernel_width"]
    )
    inputs = {"input": x.requires_grad_(), "weight": weight.requires_grad_()}
    if a["bias"]:
        inputs["bias"] = draw.values(a["out_channels"]).requires_grad_()
    output = functional.conv2d(
        functional.pad(x, (a["pad_left"], a["pad_right"], a["pad_top"], a["pad_bottom"])),
        weight,
        inputs.get("bias"),
        (a["stride_height"], a["stride_width"]),
        dilation=(a.get("dilation_height", 1), a.get("dilation_width", 1)),
        groups=a["groups"],
    )
    gradient = draw.values(*output.shape)
    return {
        **inputs,
        "output": output,
        "output_gradient": gradient,
        **_differentiate(output, gradient, **inputs),
    }


def _conv_transpose2d(a: Attributes, draw: _Draw, _: Scalars) -> Values:
    x = draw.values(a["batch"], a["in_channels"], a["in_height"], a["in_width"])
    weight = draw.values(
        a["in_channels"], a["out_channels"] // a["groups"], a["kernel_height"], a["kernel_width"]
    )
    inputs = {"input": x.requires_grad_(), "weight": weight.requires_grad_()}
    if a["bias"]:
        inputs["bias"] = draw.values(a["out_channels"]).requires_grad_()
    # Without padding, then cut to size; what lies beyond the last window is the bias alone.
    whole = functional.conv_transpose2d(
        x, weight, None, (a["stride_height"], a["stride_width"]), groups=a["groups"]
    )
    below = max(0, a["pad_top"] + a["out_height"] - whole.shape[2])
    beside = max(0, a["pad_left"] + a["out_width"] - whole.shape[3])
    whole = functional.pad(whole, (0, beside, 0, below))
    top, left = a["pad_top"], a["pad_left"]
    output = whole[:, :, top : top + a["out_height"], left : left + a["out_width"]]
    if a["bias"]:
        output = output + inputs["bias"][:, None, None]
    gradient = draw.values(*output.shape)
    return {
        **inputs,
        "output": output,
        "output_gradient": gradient,
        **_differentiate(output, gradient, **inputs),
    }


def _upsample_bilinear2d(a: Attributes, draw: _Draw, scalars: Scalars) -> Values:
    x = draw.values(a["batch"], a["channels"], a["in_height"], a["in_width"]).requires_grad_()
    size = (a["out_height"], a["out_width"])
    distances = [scalars["row_distance"], scalars["column_distance"]]
    if a["align_corners"]:
        output = functional.interpolate(x, size=size, mode="bilinear", align_corners=True)
    else:
        factors = [1 / each for each in distances]
        output = functional.interpolate(x, scale_factor=factors, mode="bilinear")
    assert output.shape[2:] == size
    gradient = draw.values(*output.shape)
    return {
        "input": x,
        "output": output,
        "output_gradient": gradient,
        **_differentiate(output, gradient, input=x),
    }


def _upsample_nearest2d(a: Attributes, draw: _Draw, _: Scalars) -> Values:
    x = draw.values(a["batch"], a["channels"], a["in_height"], a["in_width"]).requires_grad_()
    factors = (float(a["factor_height"]), float(a["factor_width"]))
    output = functional.interpolate(x, scale_factor=factors, mode="nearest")
    gradient = draw.values(*output.shape)
    return {
        "input": x,
        "output": output,
        "output_gradient": gradient,
        **_differentiate(output, gradient, input=x),
    }


def _linear(a: Attributes, draw: _Draw, _: Scalars) -> Values:
    inputs = {
        "input": draw.values(a["rows"], a["in_features"]).requires_grad_(),
        "weight": draw.values(a["out_features"], a["in_features"]).requires_grad_(),
    }
    if a["bias"]:
        inputs["bias"] = draw.values(a["out_features"]).requires_grad_()
    output = functional.linear(inputs["input"], inputs["weight"], inputs.get("bias"))
    gradient = draw.values(*output.shape)
    return {
        **inputs,
        "output": output,
        "output_gradient": gradient,
        **_differentiate(output, gradient, **inputs),
    }


def _batch_norm(a: Attributes, draw: _Draw, scalars: Scalars) -> Values:
    x = (draw.values(a["batch"], a["channels"], a["plane"]) + 3).float().double().requires_grad_()
    scale = draw.values(a["channels"]).requires_grad_()
    shift = draw.values(a["channels"]).requires_grad_()
    running_mean = draw.values(a["channels"])
    running_variance = draw.values(a["channels"]).abs() + 0.1
    running_variance = running_variance.float().double()
    next_mean, next_variance = running_mean.clone(), running_variance.clone()
    output = functional.batch_norm(
        x,
        next_mean,
        next_variance,
        scale,
        shift,
        training=True,
        momentum=scalars["momentum"],
        eps=scalars["epsilon"],
    )
    gradient = draw.values(*output.shape)
    return {
        "input": x,
        "scale": scale,
        "shift": shift,
        "output": output,
        "mean": x.mean((0, 2)),
        "variance": x.var((0, 2), unbiased=False),
        "output_gradient": gradient,
        **_differentiate(output, gradient, input=x, scale=scale, shift=shift),
        "running_mean": running_mean,
        "running_variance": running_variance,
        "next_running_mean": next_mean,
        "next_running_variance": next_variance,
    }


def _batch_norm_frozen(a: Attributes, draw: _Draw, scalars: Scalars) -> Values:
    x = draw.values(a["batch"], a["channels"], a["plane"]).requires_grad_()
    scale = draw.values(a["channels"]).requires_grad_()
    shift = draw.values(a["channels"]).requires_grad_()
    mean = draw.values(a["channels"])
    variance = (draw.values(a["channels"]).abs() + 0.1).float().double()
    output = functional.batch_norm(x, mean, variance, scale, shift, eps=scalars["epsilon"])
    gradient = draw.values(*output.shape)
    return {
        "input": x,
        "scale": scale,
        "shift": shift,
        "mean": mean,
        "variance": variance,
        "output": output,
        "output_gradient": gradient,
        **_differentiate(output, gradient, input=x, scale=scale, shift=shift),
    }


def _layer_norm(a: Attributes, draw: _Draw, scalars: Scalars) -> Values:
    x = (draw.values(a["rows"], a["features"]) - 2).float().double().requires_grad_()
    scale = draw.values(a["features"]).requires_grad_()
    shift = draw.values(a["features"]).requires_grad_()
    output = functional.layer_norm(x, (a["features"],), scale, shift, scalars["epsilon"])
    gradient = draw.values(*output.shape)
    return {
        "input": x,
        "scale": scale,
        "shift": shift,
        "output": output,
        "mean": x.mean(1),
        "variance": x.var(1, unbiased=False),
        "output_gradient": gradient,
        **_differentiate(output, gradient, input=x, scale=scale, shift=shift),
    }


def _rms_norm(a: Attributes, draw: _Draw, scalars: Scalars) -> Values:
    x = draw.values(a["rows"], a["features"]).requires_grad_()
    scale = draw.values(a["features"]).requires_grad_()
    output = functional.rms_norm(x, (a["features"],), scale, scalars["epsilon"])
    gradient = draw.values(*output.shape)
    return {
        "input": x,
        "scale": scale,
        "output": output,
        "mean_square": (x**2).mean(1),
        "output_gradient": gradient,
        **_differentiate(output, gradient, input=x, scale=scale),
    }


def _group_norm(a: Attributes, draw: _Draw, scalars: Scalars) -> Values:
    x = (draw.values(a["batch"], a["channels"], a["plane"]) - 2).float().double().requires_grad_()
    scale = draw.values(a["channels"]).requires_grad_()
    shift = draw.values(a["channels"]).requires_grad_()
    output = functional.group_norm(x, a["groups"], scale, shift, scalars["epsilon"])
    gradient = draw.values(*output.shape)
    grouped = x.reshape(a["batch"], a["groups"], -1)
    return {
        "input": x,
        "scale": scale,
        "shift": shift,
        "output": output,
        "mean": grouped.mean(2),
        "variance": grouped.var(2, unbiased=False),
        "output_gradient": gradient,
        **_differentiate(output, gradient, input=x, scale=scale, shift=shift),
    }


def _unary(function: Callable[..., Tensor]) -> Callable[[Attributes, _Draw, Scalars], Values]:
    """Build the operands of ``function``, which takes the scalars after its input."""

    def build(a: Attributes, draw: _Draw, scalars: Scalars) -> Values:
        x = draw.wide(a["elements"]).requires_grad_()
        output = function(x, *scalars.values())
        gradient = draw.values(*output.shape)
        return {
            "input": x,
            "output": output,
            "output_gradient": gradient,
            **_differentiate(output, gradient, input=x),
        }

    return build


def _add(a: Attributes, draw: _Draw, _: Scalars) -> Values:
    left, right = draw.values(a["elements"]), draw.values(a["elements"])
    return {"left": left, "right": right, "output": left + right}


def _multiply(a: Attributes, draw: _Draw, _: Scalars) -> Values:
    left = draw.values(a["elements"]).requires_grad_()
    right = draw.values(a["elements"]).requires_grad_()
    output = left * right
    gradient = draw.values(*output.shape)
    return {
        "left": left,
        "right": right,
        "output": output,
        "output_gradient": gradient,
        **_differentiate(output, gradient, left=left, right=right),
    }


def _positive(function: Callable[..., Tensor]) -> Callable[[Attributes, _Draw, Scalars], Values]:
    """Build the operands of a function of positive numbers."""

    def build(a: Attributes, draw: _Draw, _: Scalars) -> Values:
        x = (draw.wide(a["elements"]).abs() + 0.25).requires_grad_()
        output = function(x)
        gradient = draw.values(*output.shape)
        return {
            "input": x,
            "output": output,
            "output_gradient": gradient,
            **_differentiate(output, gradient, input=x),
        }

    return build


def _large(a: Attributes, draw: _Draw) -> Tensor:
    return draw.values(a["outer"], a["middle"], a["between"], a["inner"])


def _small(a: Attributes, draw: _Draw) -> Tensor:
    return draw.values(a["middle"], a["inner"])


def _broadcast(
    role: str, function: Callable[[Tensor, Tensor], Tensor]
) -> Callable[[Attributes, _Draw, Scalars], Values]:
    """Build the operands of a function of a large tensor and a small one."""

    def build(a: Attributes, draw: _Draw, _: Scalars) -> Values:
        x, small = _large(a, draw).requires_grad_(), _small(a, draw).requires_grad_()
        output = function(x, small[:, None, :])
        gradient = draw.values(*output.shape)
        return {
            "input": x,
            role: small,
            "output": output,
            "output_gradient": gradient,
            **_differentiate(output, gradient, input=x, **{role: small}),
        }

    return build


def _select(a: Attributes, draw: _Draw, _: Scalars) -> Values:
    x, shown = _large(a, draw).requires_grad_(), (_small(a, draw) > 0).double()
    output = torch.where(shown[:, None, :] > 0, x, 0)
    gradient = draw.values(*output.shape)
    return {
        "input": x,
        "shown": shown,
        "output": output,
        "output_gradient": gradient,
        **_differentiate(output, gradient, input=x),
    }


def _reduce(a: Attributes, draw: _Draw, scalars: Scalars) -> Values:
    x = _large(a, draw).requires_grad_()
    output = x.sum(dim=(0, 2)) * scalars["factor"]
    gradient = draw.values(*output.shape)
    return {
        "input": x,
        "output": output,
        "output_gradient": gradient,
        **_differentiate(output, gradient, input=x),
    }


def _rotary(a: Attributes, draw: _Draw, _: Scalars) -> Values:
    x = _large(a, draw).requires_grad_()
    cosine, sine = _small(a, draw), _small(a, draw)
    first, second = x.chunk(2, dim=-1)
    output = x * cosine[:, None, :] + torch.cat((-second, first), dim=-1) * sine[:, None, :]
    gradient = draw.values(*output.shape)
    return {
        "input": x,
        "cosine": cosine,
        "sine": sine,
        "output": output,
        "output_gradient": gradient,
        **_differentiate(output, gradient, input=x),
    }


def _accumulate(a: Attributes, draw: _Draw, _: Scalars) -> Values:
    total, addend = draw.values(a["elements"]), draw.values(a["elements"])
    return {"sum": total, "addend": addend, "next_sum": total + addend}


def _pool(
    padding: float, function: Callable[[Tensor, Attributes], Tensor]
) -> Callable[[Attributes, _Draw, Scalars], Values]:
    def build(a: Attributes, draw: _Draw, _: Scalars) -> Values:
        x = draw.coarse(a["batch"], a["channels"], a["in_height"], a["in_width"]).requires_grad_()
        sides = (a["pad_left"], a["pad_right"], a["pad_top"], a["pad_bottom"])
        output = function(functional.pad(x, sides, value=padding), a)
        gradient = draw.values(*output.shape)
        return {
            "input": x,
            "output": output,
            "output_gradient": gradient,
            **_differentiate(output, gradient, input=x),
        }

    return build


def _window(a: Attributes) -> tuple[tuple[int, int], tuple[int, int]]:
    return (a["kernel_height"], a["kernel_width"]), (a["stride_height"], a["stride_width"])


def _global_average_pool(a: Attributes, draw: _Draw, _: Scalars) -> Values:
    x = draw.values(a["batch"], a["channels"], a["plane"]).requires_grad_()
    output = x.mean(2)
    gradient = draw.values(*output.shape)
    return {
        "input": x,
        "output": output,
        "output_gradient": gradient,
        **_differentiate(output, gradient, input=x),
    }


def _concat(a: Attributes, draw: _Draw, _: Scalars) -> Values:
    left = draw.values(a["outer"], a["left_inner"]).requires_grad_()
    right = draw.values(a["outer"], a["right_inner"]).requires_grad_()
    output = torch.cat((left, right), 1)
    gradient = draw.values(*output.shape)
    return {
        "left": left,
        "right": right,
        "output": output,
        "output_gradient": gradient,
        **_differentiate(output, gradient, left=left, right=right),
    }


def _split_heads(x: Tensor, a: Attributes) -> Tensor:
    return x.view(a["batch"], a["sequence"], a["heads"], a["head_features"]).transpose(1, 2)


def _attention_scores(a: Attributes, draw: _Draw, _: Scalars) -> Values:
    shape = (a["batch"], a["sequence"], a["heads"] * a["head_features"])
    query, key = draw.values(*shape).requires_grad_(), draw.values(*shape).requires_grad_()
    products = _split_heads(query, a) @ _split_heads(key, a).transpose(2, 3)
    scores = products / a["head_features"] ** 0.5
    gradient = draw.values(*scores.shape)
    return {
        "query": query,
        "key": key,
        "scores": scores,
        "scores_gradient": gradient,
        **_differentiate(scores, gradient, query=query, key=key),
    }


def _attention_context(a: Attributes, draw: _Draw, _: Scalars) -> Values:
    shape = (a["batch"], a["sequence"], a["heads"] * a["head_features"])
    square = (a["batch"], a["heads"], a["sequence"], a["sequence"])
    weights, value = draw.values(*square).requires_grad_(), draw.values(*shape).requires_grad_()
    context = (weights @ _split_heads(value, a)).transpose(1, 2).reshape(shape)
    gradient = draw.values(*shape)
    return {
        "weights": weights,
        "value": value,
        "context": context,
        "context_gradient": gradient,
        **_differentiate(context, gradient, weights=weights, value=value),
    }


def _attention(a: Attributes, draw: _Draw, scalars: Scalars) -> Values:
    """Attention without dropout. A mask excludes many keys, all of them for one row."""

    def heads_of(x: Tensor, heads: str) -> Tensor:
        return x.unflatten(2, (a[heads], -1)).transpose(1, 2)

    query = draw.values(a["batch"], a["queries"], a["heads"] * a["head_features"])
    key = draw.values(a["batch"], a["keys"], a["key_heads"] * a["head_features"])
    value = draw.values(*key.shape)
    inputs = {
        name: each.requires_grad_()
        for name, each in zip(("query", "key", "value"), (query, key, value), strict=True)
    }
    added: dict[str, Tensor] = {}
    unseen = torch.zeros(a["queries"], a["keys"], dtype=torch.float64)
    if a["causal"]:
        seen = torch.ones(a["queries"], a["keys"], dtype=torch.bool).tril()
        unseen = unseen.masked_fill(~seen, -torch.inf)
    if a["mask_batch"]:
        mask = draw.values(a["mask_batch"], a["mask_heads"], a["mask_queries"], a["keys"])
        mask = mask.masked_fill(mask > 0.5, -torch.inf)
        if a["mask_queries"] > 1:
            mask[0, -1, 1] = -torch.inf
        added["mask"] = mask
        unseen = unseen + mask
    with_heads = (
        heads_of(query, "heads"),
        heads_of(key, "key_heads"),
        heads_of(value, "key_heads"),
    )
    output = functional.scaled_dot_product_attention(
        *with_heads,
        None if a["causal"] and not added else unseen,
        is_causal=bool(a["causal"] and not added),
        scale=scalars["scale"],
        enable_gqa=a["heads"] > a["key_heads"],
    )
    output = output.transpose(1, 2).flatten(2)
    keys = with_heads[1].repeat_interleave(a["heads"] // a["key_heads"], 1)
    scores = scalars["scale"] * with_heads[0] @ keys.transpose(2, 3) + unseen
    log_sum_exp = scores.logsumexp(-1)
    gradient = draw.values(*output.shape)
    return {
        **_side_by_side(a, inputs),
        **added,
        "output": output,
        "log_sum_exp": log_sum_exp.masked_fill(log_sum_exp == -torch.inf, torch.inf),
        "output_gradient": gradient,
        **_side_by_side(a, _differentiate(output, gradient, **inputs)),
    }


def _side_by_side(a: Attributes, each: Values) -> Values:
    """Query, key and value, or their gradients, in one operand if they are packed."""
    if not a["packed"]:
        return each
    suffix = next(iter(each)).removeprefix("query")
    return {f"packed{suffix}": torch.cat(tuple(each.values()), 2)}


def _matmul(a: Attributes, draw: _Draw, _: Scalars) -> Values:
    def operand(side: str, rows: int, columns: int) -> tuple[Tensor, Tensor]:
        """As it is stored, and as matrices."""
        shape = [rows, columns][:: -1 if a[f"{side}_transposed"] else 1]
        heads = 2 if a[f"{side}_interleaved"] else 1
        shape.insert(heads - 1, a["heads"])
        stored = draw.values(a["batch"], *shape).requires_grad_()
        matrices = stored.movedim(heads, 1)
        return stored, matrices.mT if a[f"{side}_transposed"] else matrices

    left, left_matrices = operand("left", a["rows"], a["depth"])
    right, right_matrices = operand("right", a["depth"], a["columns"])
    output = left_matrices @ right_matrices
    gradient = draw.values(*output.shape)
    return {
        "left": left,
        "right": right,
        "output": output,
        "output_gradient": gradient,
        **_differentiate(output, gradient, left=left, right=right),
    }


def _softmax(a: Attributes, draw: _Draw, _: Scalars) -> Values:
    x = draw.wide(a["rows"], a["columns"]).requires_grad_()
    output = functional.softmax(x, 1)
    gradient = draw.values(*output.shape)
    return {
        "input": x,
        "output": output,
        "output_gradient": gradient,
        **_differentiate(output, gradient, input=x),
    }


def _embedding(a: Attributes, draw: _Draw, _: Scalars) -> Values:
    indices = draw.indices(a["rows"], a["vocabulary"])
    table = draw.values(a["vocabulary"], a["features"]).requires_grad_()
    output = functional.embedding(indices, table, a.get("padding_index"))
    gradient = draw.values(*output.shape)
    return {
        "indices": indices,
        "table": table,
        "output": output,
        "output_gradient": gradient,
        **_differentiate(output, gradient, table=table),
    }


def _cross_entropy(a: Attributes, draw: _Draw, _: Scalars) -> Values:
    logits = (draw.wide(a["rows"], a["classes"]) + 200).float().double().requires_grad_()
    labels = draw.indices(a["rows"], a["classes"])
    loss = functional.cross_entropy(logits, labels)
    return {
        "logits": logits,
        "labels": labels,
        "loss": loss.reshape(1),
        **_differentiate(loss, torch.ones_like(loss), logits=logits),
    }


def _weighted_cross_entropy(a: Attributes, draw: _Draw, scalars: Scalars) -> Values:
    """Every third label is ignored, by any number that is no class."""
    ignored = int(scalars["ignored"])
    logits = (draw.wide(a["rows"], a["classes"]) + 200).float().double().requires_grad_()
    labels = draw.indices(a["rows"], a["classes"])
    labels[::3] = ignored
    weights = draw.values(a["classes"]).abs() + 0.1
    loss = functional.cross_entropy(
        logits,
        labels,
        weights,
        ignore_index=ignored,
        reduction="mean" if a["by_weight"] else "sum",
        label_smoothing=scalars["smoothing"],
    ) / (1 if a["by_weight"] else a["rows"])
    return {
        "logits": logits,
        "labels": labels,
        "class_weights": weights,
        "loss": loss.reshape(1),
        **_differentiate(loss, torch.ones_like(loss), logits=logits),
    }


def _from_integers(a: Attributes, draw: _Draw, _: Scalars) -> Values:
    integers = draw.indices(a["elements"], 2**24)
    return {"integers": integers, "output": integers.double()}


def _to_indices(a: Attributes, draw: _Draw, _: Scalars) -> Values:
    """Some are outside, and become the nearest index."""
    x = torch.round(draw.values(a["elements"]) * 40)
    return {"input": x, "indices": x.long().clamp(0, a["bound"] - 1) if a["bound"] else x.long()}


def _equal_number(a: Attributes, draw: _Draw, scalars: Scalars) -> Values:
    x = draw.coarse(a["elements"])
    return {"input": x, "output": (x == scalars["number"]).double()}


def _cumulative_sum(a: Attributes, draw: _Draw, _: Scalars) -> Values:
    x = draw.values(a["outer"], a["size"], a["inner"]).requires_grad_()
    output = x.cumsum(1)
    gradient = draw.values(*output.shape)
    return {
        "input": x,
        "output": output,
        "output_gradient": gradient,
        **_differentiate(output, gradient, input=x),
    }


def _binary_cross_entropy(a: Attributes, draw: _Draw, _: Scalars) -> Values:
    logits = draw.wide(a["elements"]).requires_grad_()
    target = (draw.values(a["elements"]) + 1) / 2
    loss = functional.binary_cross_entropy_with_logits(logits, target)
    return {
        "logits": logits,
        "target": target,
        "loss": loss.reshape(1),
        **_differentiate(loss, torch.ones_like(loss), logits=logits),
    }


def _mean_squared_error(a: Attributes, draw: _Draw, _: Scalars) -> Values:
    prediction = draw.values(a["elements"]).requires_grad_()
    target = draw.values(a["elements"])
    loss = functional.mse_loss(prediction, target)
    return {
        "prediction": prediction,
        "target": target,
        "loss": loss.reshape(1),
        **_differentiate(loss, torch.ones_like(loss), prediction=prediction),
    }


def _pad(a: Attributes, draw: _Draw, _: Scalars) -> Values:
    sizes, strides = ([a[f"{word}{axis}"] for axis in range(6)] for word in ("size", "stride"))
    x = draw.values(*sizes).requires_grad_()
    places = torch.arange(a["source"]).as_strided(sizes, strides, a["offset"])
    output = torch.zeros(a["source"], dtype=torch.float64).index_put((places,), x)
    gradient = draw.values(*output.shape)
    return {
        "input": x,
        "output": output,
        "output_gradient": gradient,
        **_differentiate(output, gradient, input=x),
    }


def _strided(a: Attributes, draw: _Draw, _: Scalars) -> Values:
    x = draw.values(a["source"]).requires_grad_()
    sizes, strides = ([a[f"{word}{axis}"] for axis in range(6)] for word in ("size", "stride"))
    y = torch.as_strided(x, sizes, strides, a["offset"])
    gradient = draw.values(*y.shape)
    return {
        "input": x,
        "output": y,
        "output_gradient": gradient,
        **_differentiate(y, gradient, input=x),
    }


_Step = Callable[[Tensor, Tensor, Tensor, Tensor], Values]
"""A cell's step: gates of the input, products of the hidden state, hidden state and cell before it;
returns everything that the kind writes for this step."""


def _lstm_step(gates: Tensor, products: Tensor, _: Tensor, cell: Tensor) -> Values:
    i, f, g, o = (gates + products).chunk(4, 1)
    activated = (torch.sigmoid(i), torch.sigmoid(f), torch.tanh(g), torch.sigmoid(o))
    cell = activated[1] * cell + activated[0] * activated[2]
    output = activated[3] * torch.tanh(cell)
    return {"output": output, "cells": cell, "gates": torch.cat(activated, 1)}


def _gru_step(gates: Tensor, products: Tensor, hidden: Tensor, _: Tensor) -> Values:
    (r, z, n), (from_r, from_z, candidate) = gates.chunk(3, 1), products.chunk(3, 1)
    r, z = torch.sigmoid(r + from_r), torch.sigmoid(z + from_z)
    n = torch.tanh(n + r * candidate)
    output = (1 - z) * n + z * hidden
    return {"output": output, "gates": torch.cat((r, z, n), 1), "candidate": candidate}


def _rnn_step(function: Callable[[Tensor], Tensor]) -> _Step:
    return lambda gates, products, _hidden, _cell: {"output": function(gates + products)}


def _recurrent(
    step: _Step, gates: int, layer: Callable[..., tuple[Tensor, ...]]
) -> Callable[[Attributes, _Draw, Scalars], Values]:
    """Build the operands of a recurrent layer, whose output must be that of PyTorch's ``layer``."""

    def build(a: Attributes, draw: _Draw, _: Scalars) -> Values:
        steps, batch, hidden, width = a["steps"], a["batch"], a["hidden"], gates * a["hidden"]
        axes = (batch, steps) if a["batch_first"] else (steps, batch)

        def in_time(x: Tensor) -> Tensor:
            """[steps, batch, …] in the order of the steps, from or to the operands' layout."""
            x = x.transpose(0, 1) if a["batch_first"] else x
            return x.flip(0) if a["reverse"] else x

        def in_memory(parts: list[Tensor]) -> Tensor:
            x = torch.stack(parts[::-1] if a["reverse"] else parts)
            return x.transpose(0, 1) if a["batch_first"] else x

        inputs = {"input_gates": draw.values(*axes, width)}
        inputs["hidden_weight"] = (draw.values(width, hidden) / hidden**0.5).float().double()
        if a["bias"]:
            inputs["hidden_bias"] = draw.values(width)
        for state in ("initial_hidden", "initial_cell"):
            if a.get(state):
                inputs[state] = draw.values(batch, hidden)
        for each in inputs.values():
            each.requires_grad_()
        zeros = torch.zeros(batch, hidden, dtype=torch.float64)
        bias = inputs.get("hidden_bias", torch.zeros(width, dtype=torch.float64))
        h, c = inputs.get("initial_hidden", zeros), inputs.get("initial_cell", zeros)
        h0, c0, made = h, c, []
        for x in in_time(inputs["input_gates"]):
            made.append(step(x, functional.linear(h, inputs["hidden_weight"], bias), h, c))
            h, c = made[-1]["output"], made[-1].get("cells", zeros)
        results = {role: in_memory([each[role] for each in made]) for role in made[0]}

        # With an identity in the place of the input's weight, the layer is PyTorch's.
        eye, none = torch.eye(width, dtype=torch.float64), torch.zeros_like(bias)
        parameters = [eye, inputs["hidden_weight"], none, bias]
        states = [h0[None], c0[None]] if "cells" in results else h0[None]
        x = in_time(inputs["input_gates"])
        expected, *final = layer(x, states, parameters, True, 1, 0.0, True, False, False)
        torch.testing.assert_close(in_time(results["output"]), expected)
        if a.get("final_cell"):
            results["final_cell"] = c
            torch.testing.assert_close(c, final[1][0])

        gradients = {"output_gradient": draw.values(*axes, hidden)}
        total = (results["output"] * gradients["output_gradient"]).sum()
        if a.get("final_cell"):
            gradients["final_cell_gradient"] = draw.values(batch, hidden)
            total = total + (c * gradients["final_cell_gradient"]).sum()
        differentiated = _differentiate(total, torch.ones_like(total), **inputs)
        if "candidate" in results:
            parts = torch.autograd.grad(total, [each["candidate"] for each in made])
            differentiated["candidate_gradient"] = in_memory(list(parts))
        return {**inputs, **results, **gradients, **differentiated}

    return build


def _sgd(a: Attributes, draw: _Draw, scalars: Scalars) -> Values:
    parameter = draw.values(a["elements"])
    gradient = draw.values(a["elements"])
    trained = torch.nn.Parameter(parameter.clone())
    trained.grad = gradient
    decay = scalars["weight_decay"]
    torch.optim.SGD([trained], lr=scalars["learning_rate"], weight_decay=decay).step()
    return {"parameter": parameter, "gradient": gradient, "next_parameter": trained}


def _sgd_momentum(
    a: Attributes, draw: _Draw, scalars: Scalars, *, nesterov: bool = False
) -> Values:
    parameter, velocity = draw.values(a["elements"]), draw.values(a["elements"])
    gradient = draw.values(a["elements"])
    trained = torch.nn.Parameter(parameter.clone())
    trained.grad = gradient
    optimizer = torch.optim.SGD(
        [trained],
        lr=scalars["learning_rate"],
        momentum=scalars["momentum"],
        weight_decay=scalars["weight_decay"],
        nesterov=nesterov,
    )
    optimizer.state[trained]["momentum_buffer"] = velocity.clone()
    optimizer.step()
    return {
        "parameter": parameter,
        "gradient": gradient,
        "velocity": velocity,
        "next_parameter": trained,
        "next_velocity": optimizer.state[trained]["momentum_buffer"],
    }


def _adam(a: Attributes, draw: _Draw, scalars: Scalars) -> Values:
    """AdamW's fourth step, with the state of three steps before it."""
    parameter, gradient = draw.values(a["elements"]), draw.values(a["elements"])
    first, second = draw.values(a["elements"]), draw.values(a["elements"]) ** 2
    betas = (1 - scalars["first_rate"], 1 - scalars["second_rate"])
    trained = torch.nn.Parameter(parameter.clone())
    trained.grad = gradient
    optimizer = torch.optim.AdamW(
        [trained],
        lr=scalars["learning_rate"],
        betas=betas,
        eps=scalars["epsilon"],
        weight_decay=scalars["weight_decay"],
    )
    state = optimizer.state[trained]
    state.update(step=torch.tensor(3.0), exp_avg=first.clone(), exp_avg_sq=second.clone())
    optimizer.step()
    before, after = (torch.tensor([1 - beta**steps for beta in betas]) for steps in (3, 4))
    return {
        "parameter": parameter,
        "gradient": gradient,
        "first_moment": first,
        "second_moment": second,
        "corrections": before,
        "next_parameter": trained,
        "next_first_moment": state["exp_avg"],
        "next_second_moment": state["exp_avg_sq"],
        "next_corrections": after,
    }


_BUILDERS: dict[str, Callable[[Attributes, _Draw, Scalars], Values]] = {
    "conv2d": _conv2d,
    "dilated_conv2d": _conv2d,
    "conv_transpose2d": _conv_transpose2d,
    "upsample_nearest2d": _upsample_nearest2d,
    "linear": _linear,
    "batch_norm": _batch_norm,
    "batch_norm_frozen": _batch_norm_frozen,
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "group_norm": _group_norm,
    "relu": _unary(functional.relu),
    "tanh": _unary(torch.tanh),
    "sigmoid": _unary(torch.sigmoid),
    "gelu": _unary(functional.gelu),
    "gelu_tanh": _unary(lambda x: functional.gelu(x, approximate="tanh")),
    "silu": _unary(functional.silu),
    "hard_sigmoid": _unary(functional.hardsigmoid),
    "hard_swish": _unary(functional.hardswish),
    "clamp": _unary(functional.hardtanh),
    "leaky_relu": _unary(functional.leaky_relu),
    "flatten": _unary(lambda x: x * 1),
    "add": _add,
    "gradient": _accumulate,
    "multiply": _multiply,
    "add_number": _unary(torch.add),
    "multiply_number": _unary(torch.mul),
    "elu": _unary(functional.elu),
    "softplus": _unary(functional.softplus),
    "absolute": _unary(torch.abs),
    "exponential": _unary(torch.exp),
    "square": _unary(torch.square),
    "logarithm": _positive(torch.log),
    "reciprocal": _positive(torch.reciprocal),
    "square_root": _positive(torch.sqrt),
    "reciprocal_root": _positive(torch.rsqrt),
    "broadcast_add": _broadcast("addend", torch.add),
    "broadcast_multiply": _broadcast("factor", torch.mul),
    "broadcast_select": _select,
    "reduce": _reduce,
    "rotary": _rotary,
    "binary_cross_entropy": _binary_cross_entropy,
    "upsample_bilinear2d": _upsample_bilinear2d,
    "max_pool2d": _pool(float("-inf"), lambda x, a: functional.max_pool2d(x, *_window(a))),
    "average_pool2d": _pool(0.0, lambda x, a: functional.avg_pool2d(x, *_window(a))),
    "global_average_pool": _global_average_pool,
    "concat": _concat,
    "attention": _attention,
    "matmul": _matmul,
    "attention_scores": _attention_scores,
    "attention_context": _attention_context,
    "softmax": _softmax,
    "embedding": _embedding,
    "embedding_padded": _embedding,
    "softmax_cross_entropy": _cross_entropy,
    "mean_squared_error": _mean_squared_error,
    "weighted_cross_entropy": _weighted_cross_entropy,
    "from_integers": _from_integers,
    "to_indices": _to_indices,
    "equal_number": _equal_number,
    "cumulative_sum": _cumulative_sum,
    "strided_copy": _strided,
    "pad": _pad,
    "lstm": _recurrent(_lstm_step, 4, torch.lstm),
    "gru": _recurrent(_gru_step, 3, torch.gru),
    "rnn_tanh": _recurrent(_rnn_step(torch.tanh), 1, torch.rnn_tanh),
    "rnn_relu": _recurrent(_rnn_step(torch.relu), 1, torch.rnn_relu),
    "sgd": _sgd,
    "sgd_momentum": _sgd_momentum,
    "sgd_nesterov": partial(_sgd_momentum, nesterov=True),
    "adam": _adam,
}

_SCALARS: dict[str, Scalars] = {
    "batch_norm": {"epsilon": 1e-5, "momentum": 0.1},
    "batch_norm_frozen": {"epsilon": 1e-3},
    "layer_norm": {"epsilon": 1e-5},
    "rms_norm": {"epsilon": 1e-3},
    "group_norm": {"epsilon": 1e-5},
    "clamp": {"lowest": -1.5, "highest": 6.0},
    "leaky_relu": {"slope": 0.125},
    "add_number": {"addend": -0.75},
    "multiply_number": {"factor": -1.25},
    "elu": {"alpha": 1.5},
    "reduce": {"factor": 0.125},
    "upsample_bilinear2d": {"row_distance": 0.5, "column_distance": 0.4},
    "attention": {"scale": 0.75, "probability": 0.0, "seed": 0.0},
    "softmax_cross_entropy": {"share": 1.0},
    "weighted_cross_entropy": {"share": 1.0, "smoothing": 0.1, "ignored": -100.0},
    "equal_number": {"number": 0.25},
    "binary_cross_entropy": {"share": 1.0},
    "mean_squared_error": {"share": 1.0},
    "sgd": {"learning_rate": 0.05, "weight_decay": 0.125},
    "sgd_momentum": {"learning_rate": 0.05, "momentum": 0.9, "weight_decay": 0.125},
    "sgd_nesterov": {"learning_rate": 0.05, "momentum": 0.9, "weight_decay": 0.125},
    "adam": {
        "learning_rate": 0.05,
        "first_rate": 0.125,
        "second_rate": 0.0078125,
        "epsilon": 1e-6,
        "weight_decay": 0.25,
        "gradient_decay": 0.0,
    },
}


def compute_case(family: str, attributes: Attributes, seed: int) -> FamilyCase:
    """Values of every operand of the family's kinds; ``seed`` determines the inputs."""
    scalars = _SCALARS.get(family, {})
    values = _BUILDERS[family](attributes, _Draw(1000 * seed), scalars)
    return FamilyCase(
        family, attributes, scalars, {role: _stored(value) for role, value in values.items()}
    )


def _stored(value: Tensor) -> Array:
    array: Array = value.detach().numpy()
    return array.astype(np.float32 if value.is_floating_point() else np.int32)


def main() -> None:
    cases = [compute_case(*case, seed) for seed, case in enumerate(recorded_cases())]
    index = [
        {
            "family": case.family,
            "attributes": dict(case.attributes),
            "scalars": dict(case.scalars),
            "roles": sorted(case.roles),
        }
        for case in cases
    ]
    arrays: dict[str, Any] = {
        f"{i}/{role}": v for i, case in enumerate(cases) for role, v in case.roles.items()
    }
    np.savez_compressed(REFERENCES, index=np.array(json.dumps(index)), **arrays)


if __name__ == "__main__":
    main()
