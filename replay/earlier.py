"""Values that an earlier run has trained, with which another run goes on."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from devices.errors import InputError
from devices.operation import ELEMENT_BYTES
from networks.data.archive import read_arrays
from networks.training.step import TrainingStep
from replay.lowering.values import kept_values
from replay.running.failure import Trained

_STEPS = "joulewright.steps"
"""Name of the number of steps among the values of a file; no tensor has it."""

_MOST_STEPS = 2**32 - 1  # The board counts steps in 32 bits.


def values_file(trained: Trained) -> bytes:
    """Contents of a ``.npz`` file: values by whole tensor, and the number of steps."""
    buffer = io.BytesIO()
    arrays: dict[str, Any] = {**trained.values, _STEPS: np.int64(trained.step)}
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def read_earlier(path: Path, step: TrainingStep) -> Trained:
    """Read what an earlier run has trained, by whole tensor.

    Args:
        path: ``parameters.npz`` or ``recovered.npz``.
        step: The training step that goes on. Slices, codecs and homes of its tensors may be others
            than those of the earlier run.

    Raises:
        DataError: The file is not an archive of plain arrays.
        InputError: The file states no number of steps, or its values are not those that ``step``
            trains.
        OSError: The file cannot be opened.
    """
    arrays = dict(read_arrays(path))
    steps, sizes = _steps(path, arrays.pop(_STEPS, None)), _sizes(step)
    remedy = "go on with the network and the optimizer of the earlier run"
    for name in sorted(sizes.keys() ^ arrays.keys()):
        lacks = f"has no {name}, which {step.name} trains"
        has = f"has values of {name}, which {step.name} does not train"
        raise InputError(f"{path}: {lacks if name in sizes else has}", remedy=remedy)
    for name, values in arrays.items():
        if values.dtype != np.float32 or values.size != sizes[name]:
            raise InputError(
                f"{path}: {name} is {values.dtype} with {values.size} elements; {step.name} trains"
                f" float32 with {sizes[name]}",
                remedy=remedy,
            )
    return Trained(steps, {name: values.ravel() for name, values in arrays.items()})


def _steps(path: Path, stated: NDArray[Any] | None) -> int:
    if stated is None:
        raise InputError(
            f"{path}: does not state how many steps were trained, as files of a run do",
            remedy="give parameters.npz or recovered.npz of an earlier run",
        )
    is_number = stated.dtype.kind in "iu" and stated.ndim == 0
    if not is_number or not 0 <= int(stated) <= _MOST_STEPS:
        raise InputError(f"{path}: {_STEPS} is not a number from 0 to {_MOST_STEPS}")
    return int(stated)


def _sizes(step: TrainingStep) -> dict[str, int]:
    """Number of elements of each whole tensor that a step trains."""
    sizes: dict[str, int] = {}
    for value in kept_values(step):
        tensor = step.tensor[value.tensor]
        elements, part = tensor.bytes // ELEMENT_BYTES, tensor.part
        if part is None:
            sizes[tensor.name] = elements // tensor.stretches * tensor.home_stretches
        else:
            share, whole = part.share
            sizes[part.whole] = elements // share * whole
    return sizes
