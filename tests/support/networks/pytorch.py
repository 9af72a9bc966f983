"""Networks of ``tests.support.networks.training`` and of the registry, written for PyTorch."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TypeAlias

import torch
import torch.nn.functional as f
from torch import Tensor

from tests.support.onboard.kernels import Array

Tensors: TypeAlias = Mapping[str, Tensor]


def loss_and_gradients(
    loss: Callable[[Tensors], Tensor], start: Mapping[str, Array], parameters: set[str]
) -> tuple[float, dict[str, Array]]:
    """Loss and gradients in float64.

    ``start`` holds inputs, parameters and dropout masks by name, in the shapes that the kernels
    take.
    """
    tensors = {}
    for name, value in start.items():
        tensor = torch.from_numpy(value)
        tensors[name] = tensor.long() if value.dtype.kind == "i" else tensor.double()
    for name in parameters:
        tensors[name].requires_grad_()
    result = loss(tensors)
    result.backward()
    return float(result.detach()), {name: tensors[name].grad.numpy() for name in parameters}


def convolutional(t: Tensors) -> Tensor:
    x = f.conv2d(t["image"], t["stem.weight"], padding=1)
    x = f.relu(_batch_norm(t, "stem.norm", x))
    y = f.conv2d(x, t["branch.weight"], t["branch.bias"], padding=1)
    x = f.relu(x + _batch_norm(t, "branch.norm", y))
    x = f.max_pool2d(x, 2).flatten(1)
    return f.cross_entropy(_linear(t, "classifier", x), t["labels"])


def transformer(t: Tensors) -> Tensor:
    x = _layer_norm(t, "embed.norm", f.embedding(t["tokens"].reshape(2, 6), t["embed.table"]))
    batch, sequence, features = x.shape
    query, key, value = (
        _linear(t, name, x).reshape(batch, sequence, 2, features // 2).transpose(1, 2)
        for name in ("query", "key", "value")
    )
    weights = f.softmax(query @ key.transpose(2, 3) / math.sqrt(features // 2), dim=-1)
    weights = weights * t["attention.dropout"].reshape(weights.shape)
    y = (weights @ value).transpose(1, 2).reshape(x.shape)
    y = _linear(t, "projection", y) * t["dropout"].reshape(x.shape)
    x = _layer_norm(t, "norm1", x + y)
    x = _layer_norm(t, "norm2", x + _linear(t, "narrow", f.gelu(_linear(t, "wide", x))))
    logits = _linear(t, "classifier", x)
    return f.cross_entropy(logits.flatten(0, 1), t["labels"])


def mixture(t: Tensors) -> Tensor:
    # 7 rows in steps of 2 under a window of 3: one row of padding on either side; 5 columns under
    # a window of 2: one column at the right.
    x = f.conv2d(f.pad(t["image"], (0, 1, 1, 1)), t["stem.weight"], t["stem.bias"], stride=2)
    x = torch.sigmoid(x)
    left = f.conv2d(x, t["left.weight"], padding=1, groups=4)
    right = f.avg_pool2d(x, 3, stride=1, padding=1)
    x = torch.tanh(torch.cat((left, right), dim=1).mean(dim=(2, 3)))
    x = _linear(t, "linear", x[t["rows"]])
    return f.mse_loss(x, t["target"].reshape(x.shape))


def gated(t: Tensors) -> Tensor:
    x = f.conv2d(t["image"], t["stem.weight"], padding=1)
    mean, variance = t["stem.norm.mean"], t["stem.norm.variance"]
    scale, shift = t["stem.norm.scale"], t["stem.norm.shift"]
    x = f.hardtanh(f.batch_norm(x, mean, variance, scale, shift, eps=1e-3), -0.8, 1.5)
    y = f.silu(_linear(t, "squeeze", x.mean(dim=(2, 3))))
    x = x * f.hardsigmoid(_linear(t, "excite", y))[:, :, None, None]
    x = f.hardswish(f.conv2d(x, t["wide.weight"])).mean(dim=(2, 3))
    left = f.leaky_relu(f.linear(x, t["left.weight"]), 0.2)
    return f.cross_entropy(left * torch.sigmoid(_linear(t, "right", x)), t["labels"])


def hourglass(t: Tensors) -> Tensor:
    x = f.conv2d(t["image"], t["down.weight"], padding=1)
    y = f.max_pool2d(x, 2, ceil_mode=True)
    y = f.silu(f.conv2d(y, t["middle.weight"]))
    weight, bias = t["up.weight"], t["up.bias"]
    y = f.conv_transpose2d(y, weight, bias, stride=2, padding=1, output_padding=(0, 1))
    x = torch.cat((x, y), dim=1)
    x = f.group_norm(x, 3, t["norm.scale"], t["norm.shift"])
    x = f.conv2d(x, t["join.weight"], padding=1)
    x = f.rms_norm(x, x.shape[-1:], t["join.norm.scale"], 1e-3)
    x = f.conv2d(f.interpolate(x, scale_factor=(2.0, 3.0), mode="nearest"), t["out.weight"])
    return f.mse_loss(x, t["target"].reshape(x.shape))


def recurrent(t: Tensors) -> Tensor:
    x = _recurrent(t, "lstm", torch.lstm, t["frames"].reshape(3, 5, 3), 4)
    y = _recurrent(t, "gru", torch.gru, f.relu(x).flip(1), 4).flip(1)
    y = _recurrent(t, "relu_cell", torch.rnn_relu, y, 3)
    x = _recurrent(t, "tanh_cell", torch.rnn_tanh, x, 3)
    return f.cross_entropy(_linear(t, "classifier", x + y).flatten(0, 1), t["labels"])


def _recurrent(
    t: Tensors, name: str, layer: Callable[..., tuple[Tensor, ...]], x: Tensor, hidden: int
) -> Tensor:
    """One layer in one direction over a sequence [batch, steps, features]."""
    parameters = [t[f"{name}.{role}"] for role in ("input.weight", "hidden_weight", "input.bias")]
    state = x.new_zeros(1, x.shape[0], hidden)
    states = [state, state] if layer is torch.lstm else state
    parameters.append(t[f"{name}.hidden_bias"])
    return layer(x, states, parameters, True, 1, 0.0, True, False, True)[0]


def _linear(t: Tensors, name: str, x: Tensor) -> Tensor:
    return f.linear(x, t[f"{name}.weight"], t[f"{name}.bias"])


def _batch_norm(t: Tensors, name: str, x: Tensor) -> Tensor:
    scale, shift = t[f"{name}.scale"], t[f"{name}.shift"]
    return f.batch_norm(x, None, None, scale, shift, training=True)


def _layer_norm(t: Tensors, name: str, x: Tensor) -> Tensor:
    return f.layer_norm(x, x.shape[-1:], t[f"{name}.scale"], t[f"{name}.shift"])


# --- networks of the registry -------------------------------------------------------------------


def resnet8(t: Tensors) -> Tensor:
    x = f.relu(_batch_norm(t, "stem.norm", _same_conv2d(t, "stem.conv", t["image"])))
    for stage, stride in (("stage1", 1), ("stage2", 2), ("stage3", 2)):
        y = _same_conv2d(t, f"{stage}.1.conv", x, stride)
        y = f.relu(_batch_norm(t, f"{stage}.1.norm", y))
        y = _batch_norm(t, f"{stage}.2.norm", _same_conv2d(t, f"{stage}.2.conv", y))
        if stride > 1:
            x = _same_conv2d(t, f"{stage}.shortcut", x, stride)
        x = f.relu(x + y)
    return _classified(t, x)


def dscnn(t: Tensors) -> Tensor:
    x = f.relu(_batch_norm(t, "stem.norm", _same_conv2d(t, "stem.conv", t["frames"], 2)))
    x = x * t["stem.dropout"].reshape(x.shape)
    for block in range(1, 5):
        for half in ("depthwise", "pointwise"):
            name = f"block{block}.{half}"
            groups = x.shape[1] if half == "depthwise" else 1
            y = _same_conv2d(t, f"{name}.conv", x, groups=groups)
            x = f.relu(_batch_norm(t, f"{name}.norm", y))
    return _classified(t, x * t["dropout"].reshape(x.shape))


def resnet18_cifar(t: Tensors) -> Tensor:
    x = f.relu(_conv_norm(t, "stem", t["image"], 1))
    for stage in range(1, 5):
        for block in (1, 2):
            name = f"stage{stage}.block{block}"
            stride = 2 if stage > 1 and block == 1 else 1
            y = f.relu(_conv_norm(t, f"{name}.1", x, stride))
            y = _conv_norm(t, f"{name}.2", y, 1)
            if stride > 1:
                x = _conv_norm(t, f"{name}.shortcut", x, stride)
            x = f.relu(y + x)
    return _classified(t, x)


def _same_conv2d(t: Tensors, name: str, x: Tensor, stride: int = 1, groups: int = 1) -> Tensor:
    """Convolution with TensorFlow's padding: ⌈size / stride⌉ results, odd zeros at the end."""
    weight = t[f"{name}.weight"]
    paddings: list[int] = []
    for size, kernel in zip(reversed(x.shape[2:]), reversed(weight.shape[2:]), strict=True):
        total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
        paddings += (total // 2, total - total // 2)
    return f.conv2d(f.pad(x, paddings), weight, t[f"{name}.bias"], stride, groups=groups)


def _conv_norm(t: Tensors, name: str, x: Tensor, stride: int) -> Tensor:
    weight = t[f"{name}.conv.weight"]
    y = f.conv2d(x, weight, stride=stride, padding=weight.shape[-1] // 2)
    return _batch_norm(t, f"{name}.norm", y)


def _classified(t: Tensors, x: Tensor) -> Tensor:
    return f.cross_entropy(_linear(t, "classifier", x.mean((2, 3))), t["labels"])
