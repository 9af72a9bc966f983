"""Small networks that together cover every kind of layer, and execution of their steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from devices.operation import Operand, OpSpec
from networks.training import Network, StepOp, TrainingStep
from networks.training.network import Value
from tests.support.onboard.kernels import Array, KernelLibrary, aligned, fill

Values: TypeAlias = Mapping[str, Array]


def small_convolutional(batch: int = 2) -> Network:
    """conv → norm → relu → fork (conv → norm | identity) → add → relu → pool → linear → loss."""
    net = Network("small convolutional", batch)
    x = net.conv2d("stem", net.input("image", batch, 2, 6, 6), 4, 3, padding=1)
    x = net.relu("stem.relu", net.batch_norm("stem.norm", x))
    y = net.batch_norm("branch.norm", net.conv2d("branch", x, 4, 3, padding=1, bias=True))
    x = net.relu("join.relu", net.add("join", x, y))
    x = net.max_pool2d("pool", x, 2, stride=2)
    x = net.linear("classifier", net.flatten("flatten", x), 3)
    net.softmax_cross_entropy("loss", x, net.input("labels", batch))
    return net


def small_transformer(batch: int = 2) -> Network:
    """One encoder block between an embedding and a classifier of each position."""
    net = Network("small transformer", batch)
    x = net.embedding("embed", net.input("tokens", batch, 6), vocabulary=11, features=4)
    x = net.layer_norm("embed.norm", x)
    query, key, value = (net.linear(name, x, 4) for name in ("query", "key", "value"))
    y = net.attention("attention", query, key, value, heads=2, dropout=0.1)
    y = net.dropout("dropout", net.linear("projection", y, 4), 0.1)
    x = net.layer_norm("norm1", net.add("add1", x, y))
    y = net.linear("narrow", net.gelu("gelu", net.linear("wide", x, 8)), 4)
    x = net.layer_norm("norm2", net.add("add2", x, y))
    x = net.linear("classifier", x, 3)
    net.softmax_cross_entropy("loss", x, net.input("labels", batch, 6))
    return net


def small_lookups(batch: int = 2) -> Network:
    """Lookups of five of 40 rows, some more than once, and layers that are trained too."""
    net = Network("lookups", batch)
    x = net.embedding("embed", net.input("tokens", batch, 5), vocabulary=40, features=3)
    y = net.embedding("place", net.input("places", batch, 5), vocabulary=4, features=3)
    x = net.linear("linear", net.relu("relu", net.add("add", x, y)), 2)
    net.softmax_cross_entropy("loss", x, net.input("labels", batch, 5))
    return net


def small_mixture(batch: int = 3) -> Network:
    """A network of the layers that the others lack.

    Strides, ``same`` padding and groups, concatenation, average and global pooling, gathered rows,
    a mean squared error.
    """
    net = Network("small mixture", batch)
    image = net.input("image", batch, 3, 7, 5)
    x = net.conv2d("stem", image, 4, (3, 2), stride=2, padding="same", bias=True)
    x = net.sigmoid("stem.sigmoid", x)
    left = net.conv2d("left", x, 4, 3, padding=1, groups=4)
    right = net.average_pool2d("right", x, 3, stride=1, padding=1)
    x = net.global_average_pool("pool", net.concat("concat", left, right))
    x = net.gather("gather", net.input("rows", 2), net.tanh("tanh", x))
    x = net.linear("linear", x, 3)
    net.mean_squared_error("loss", x, net.input("target", 2, 3))
    return net


def small_positions() -> Network:
    """A table of positions is added to tokens; in parts of activations, its features are cut."""
    net = Network("small positions", 1)
    x = net.embedding("embed", net.input("tokens", 1, 12), vocabulary=50, features=32)
    positions = Value("positions", (1, 12, 32), "parameter", trained=True)
    x = net.append("add", OpSpec.of("add.forward", elements=384), (x, positions), shape=x.shape)
    x = net.linear("last", net.relu("relu", net.linear("first", x, 128)), 50)
    net.softmax_cross_entropy("loss", replace(x, shape=(12, 50)), net.input("labels", 12))
    return net


def small_gated(batch: int = 2) -> Network:
    """Squeeze-and-excitation, gating, a frozen batch norm, and the activations of the two."""
    net = Network("small gated", batch)
    x = net.conv2d("stem", net.input("image", batch, 2, 5, 4), 4, 3, padding=1)
    x = net.clamp("stem.clamp", net.batch_norm_frozen("stem.norm", x, epsilon=1e-3), -0.8, 1.5)
    y = net.linear("squeeze", net.global_average_pool("pool", x), 2)
    y = net.hard_sigmoid("gate", net.linear("excite", net.silu("squeeze.silu", y), 4))
    spec = OpSpec.of("broadcast_multiply.forward", outer=1, middle=4 * batch, between=20, inner=1)
    x = net.append("excited", spec, (x, y), shape=x.shape)
    x = net.global_average_pool("pooled", net.hard_swish("swish", net.conv2d("wide", x, 5, 1)))
    left = net.leaky_relu("left.relu", net.linear("left", x, 3, bias=False), 0.2)
    right = net.sigmoid("right.sigmoid", net.linear("right", x, 3))
    x = net.multiply("product", left, right)
    net.softmax_cross_entropy("loss", x, net.input("labels", batch))
    return net


def small_hourglass(batch: int = 2) -> Network:
    """Down to half the size and up again, with a shortcut."""
    net = Network("small hourglass", batch)
    x = net.conv2d("down", net.input("image", batch, 2, 7, 6), 3, 3, padding=1)
    y = net.max_pool2d("pool", x, 2, stride=2, ceil_mode=True)
    y = net.silu("middle.silu", net.conv2d("middle", y, 4, 1))
    y = net.conv_transpose2d("up", y, 3, 3, stride=2, padding=1, output_padding=(0, 1), bias=True)
    x = net.group_norm("norm", net.concat("shortcut", x, y), 3)
    x = net.rms_norm("join.norm", net.conv2d("join", x, 2, 3, padding=1), epsilon=1e-3)
    x = net.conv2d("out", net.upsample_nearest2d("upsample", x, (2, 3)), 1, 3)
    net.mean_squared_error("loss", x, net.input("target", *x.shape))
    return net


def small_recurrent(batch: int = 3) -> Network:
    """Every recurrent cell, one of them from the end of the sequence to its start."""
    net = Network("small recurrent", batch)
    x = net.recurrent("lstm", "lstm", net.input("frames", batch, 5, 3), 4)
    y = net.recurrent("gru", "gru", net.relu("relu", x), 4, reverse=True)
    y = net.recurrent("relu_cell", "rnn_relu", y, 3)
    x = net.recurrent("tanh_cell", "rnn_tanh", x, 3)
    x = net.linear("classifier", net.add("join", x, y), 4)
    net.softmax_cross_entropy("loss", x, net.input("labels", batch, 5))
    return net


def sum_of_losses(first: int, second: int, batch: int = 2) -> Network:
    """One layer with two outputs of so many classes, whose losses have labels of their own."""
    net = Network("sum of losses", batch)
    x = net.linear("body", net.input("x", batch, 4), 8)
    losses = [
        net.softmax_cross_entropy(
            name, net.linear(f"{name}.out", x, classes), net.input(f"{name}.labels", batch)
        )
        for name, classes in (("first", first), ("second", second))
    ]
    net.one = Value("one", (1,), "parameter")
    net.loss = net.add("loss", *losses)
    return net


def op(step: TrainingStep, name: str) -> StepOp:
    """The operation of this name."""
    return next(op for op in step.ops if op.name == name)


def start_values(step: TrainingStep, seed: int = 0) -> dict[str, Array]:
    """Values of all tensors that no operation writes."""
    operands: dict[str, Operand] = {}
    for each in step.ops:
        for operand, name in zip(each.spec.reads, each.reads, strict=True):
            operands.setdefault(name, operand)
    return {
        tensor.name: fill(operands[tensor.name], seed + number)
        for number, tensor in enumerate(step.tensors)
        if tensor.home is not None
    }


def execute(
    step: TrainingStep, library: KernelLibrary, start: Values, *, in_place: bool = True
) -> dict[str, Array]:
    """Execute one step with the C kernels; returns the value of each tensor when it was written.

    Buffers are those of the step's plan or, not ``in_place``, one per tensor.
    """
    memory = {t.name: _nans(t.bytes) for t in step.tensors}
    at = {t.name: memory[step.buffer[t.name] if in_place else t.name] for t in step.tensors}
    for name, value in start.items():
        at[name][:] = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
    made: dict[str, Array] = {}
    for each in step.ops:
        call = library.prepare(
            each.spec,
            [at[name] for name in each.reads],
            [at[name] for name in each.writes],
            _nans(library.workspace_bytes(each.spec)),
            [_encoded(scalar, value) for scalar, value in each.scalars.items()],
        )
        call()
        for operand, name in zip(each.spec.writes, each.writes, strict=True):
            made[name] = at[name].view(np.float32).reshape(operand.shape).copy()
    return made


def gradients(step: TrainingStep, made: Values) -> dict[str, Array]:
    """Gradient of each parameter, as its update read it."""
    return {
        update.reads[0]: made[update.reads[1]]
        for update in step.ops
        if update.name.endswith(".update")
    }


def dropout_mask(step: TrainingStep, library: KernelLibrary, layer: str) -> Array:
    """Factors by which a dropout layer multiplies its input."""
    each = op(step, f"{layer}.forward")
    ones = np.ones(each.spec.attributes["elements"], np.float32)
    scalars = [_encoded(name, value) for name, value in each.scalars.items()]
    (mask,) = library.run(each.spec, [ones], scalars)
    return mask


def _encoded(scalar: str, value: float) -> float:
    """The scalar as the kernels take it: a seed is passed as the bits of a float."""
    if scalar == "seed":
        return float(np.array(int(value), np.uint32).view(np.float32))
    return value


def _nans(size_bytes: int) -> Array:
    """An aligned buffer filled with NaN (as float32)."""
    found = aligned(size_bytes)
    found[:] = 0xFF
    return found
