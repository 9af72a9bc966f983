"""Gradients of a run's last step, as its updates read them, in a file of safetensors."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from networks.training import TrainingStep
from networks.training.slicing import joined
from replay.lowering.values import step_tables


def gradients_file(
    step: TrainingStep,
    gradients: Mapping[str, NDArray[np.float32]],
    batch: Mapping[str, NDArray[Any]],
) -> bytes:
    """Contents of the file: a gradient for each trained parameter, under the parameter's name.

    Parts of a parameter are put together. Tied weights are one parameter, under the first of its
    names. Of a table in storage, the board has gradients of the batch's rows only; those of all
    other rows are zero.

    Args:
        step: the training step.
        gradients: flat gradients by parameter, as the board returned them.
        batch: the inputs of the step.
    """
    gradients, step = joined(step, gradients), step.whole or step
    shapes = _shapes(step, gradients)
    rows = _rows_of_tables(step, batch)
    arrays = {}
    for name, gradient in gradients.items():
        shape = shapes[name]
        if name in rows:
            gradient = _whole(gradient, rows[name], shape)
        arrays[name] = np.ascontiguousarray(gradient.reshape(shape), np.float32)
    if step.file is not None and step.file.restored is not None:
        arrays = step.file.restored(arrays)
    return save(arrays)


def _shapes(step: TrainingStep, names: Collection[str]) -> dict[str, tuple[int, ...]]:
    """Shapes of parameters: those of the network's file, else those at their first reader."""
    shapes: dict[str, tuple[int, ...]] = {}
    for op in step.ops:
        for operand, name in zip(op.spec.reads, op.reads, strict=True):
            tensor = step.tensor[name]
            if name in names and name not in shapes:
                rows, *rest = operand.shape
                shapes[name] = (rows // tensor.stretches * tensor.home_stretches, *rest)
    if step.file is not None:
        own = (name for name in step.file.values if name in shapes)
        shapes.update({name: step.file.values[name].shape for name in own})
    return shapes


def _rows_of_tables(
    step: TrainingStep, batch: Mapping[str, NDArray[Any]]
) -> dict[str, NDArray[Any]]:
    """The row that a batch names at each position, by table."""
    tables = step_tables(step)
    return {
        name: batch[tables.indices[tables.tables[number].selection]].reshape(-1)
        for name, number in tables.number.items()
    }


def _whole(
    gradient: NDArray[np.float32], rows: NDArray[Any], shape: tuple[int, ...]
) -> NDArray[np.float32]:
    """Gradient of a whole table; a row's lies at the position at which it is named first."""
    whole = np.zeros((shape[0], gradient.size // rows.size), np.float32)
    named, first = np.unique(rows, return_index=True)
    whole[named] = gradient.reshape(rows.size, -1)[first]
    return whole
