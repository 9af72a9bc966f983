"""Initial values of all tensors that are kept from one training step to the next."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from devices.operation import Operand
from networks.training.draws import uniform
from networks.training.step import StepTensor, TrainingStep

# The standard deviation of BERT's initial embeddings (Devlin et al. 2019).
_EMBEDDING_DEVIATION = 0.02

_CONSTANTS: Mapping[str, float] = {
    "bias": 0.0,
    "hidden_bias": 0.0,
    "scale": 1.0,
    "shift": 0.0,
    "mean": 0.0,
    "variance": 1.0,
    "running_mean": 0.0,
    "running_variance": 1.0,
    "velocity": 0.0,
    "first_moment": 0.0,
    "second_moment": 0.0,
    "corrections": 0.0,
}


def initial_values(step: TrainingStep, seed: int) -> dict[str, NDArray[np.float32]]:
    """Find initial values of parameters, optimizer state and running statistics.

    A network's file has its parameters and statistics; matrices of adapters are drawn from their
    own bounds, or are zero. All others are drawn: weights are uniform
    with variance 2 / fan-in (He et al. 2015, Delving Deep into Rectifiers),
    embeddings uniform with BERT's variance. Uniform numbers need no function that computers round
    differently. A drawn tensor depends only on the seed, its name and its shape.

    Args:
        step: Training step whose kept tensors get values.
        seed: Seed of all random numbers.

    Returns:
        For each tensor's name, an array in the shape of the operand at its first reader; of a
        table, with all its rows. A part has its rows of the whole tensor's values.
    """
    values: dict[str, NDArray[np.float32]] = {}
    wholes: dict[str, NDArray[np.float32]] = {}
    for adapter in step.adapters:
        drawn = uniform(adapter.shape, "initial", seed, adapter.name)
        wholes[adapter.name] = np.float32(adapter.bound) * drawn
    for op in step.ops:
        for operand, name in zip(op.spec.reads, op.reads, strict=True):
            tensor = step.tensor[name]
            if tensor.home is not None and tensor.kind != "input" and name not in values:
                part = tensor.part
                whole = (tensor.copy_of or name) if part is None else part.whole
                if whole not in wholes:
                    wholes[whole] = _whole(step, operand, tensor, whole, seed)
                values[name] = wholes[whole]
                if part is not None:
                    values[name] = part.of(wholes[whole]).reshape(operand.shape)
    return values


def _whole(
    step: TrainingStep, operand: Operand, tensor: StepTensor, name: str, seed: int
) -> NDArray[np.float32]:
    """Initial values of the tensor ``name``, which is ``tensor``, or of which that is a part."""
    part, (rows, *rest) = tensor.part, operand.shape
    kept = None if step.file is None else step.file.initial(name)
    if kept is not None and part is not None:
        return kept  # in whatever shape: a part finds its elements
    if part is None:
        rows = rows // tensor.stretches * tensor.home_stretches
    else:
        rows = rows // part.rows * part.whole_rows
        columns = rest[0] if rest else rows
        columns = columns // part.columns * part.whole_columns
        rows, rest = (rows, [columns, *rest[1:]]) if rest else (columns, rest)
    shape = (rows, *rest)
    return _initial(operand.role, shape, name, seed) if kept is None else kept.reshape(shape)


def _initial(role: str, shape: tuple[int, ...], name: str, seed: int) -> NDArray[np.float32]:
    if role in _CONSTANTS:
        return np.full(shape, _CONSTANTS[role], np.float32)
    amplitude = np.float32(math.sqrt(3.0) * _deviation(role, shape))
    return amplitude * uniform(shape, "initial", seed, name)


def _deviation(role: str, shape: tuple[int, ...]) -> float:
    match role:
        case "weight" | "hidden_weight":
            fan_in = math.prod(shape[1:])
            return math.sqrt(2.0 / fan_in)
        case "table":
            return _EMBEDDING_DEVIATION
        case _:
            raise NotImplementedError(f"no initial value is known for a {role}")
