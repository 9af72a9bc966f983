"""Samples of a user, in one ``.npz`` file with an array for each input."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from networks.data.archive import read_arrays
from networks.data.batches import Batches
from networks.data.inputs import (
    DataError,
    SampleInput,
    as_addend,
    constant_inputs,
    sample_inputs,
)
from networks.training import TrainingStep

_PYTORCH_IGNORES = -100  # by default; then every row counts here


def load_batches(path: Path, step: TrainingStep) -> Batches:
    """Read samples from a ``.npz`` file.

    Args:
        path: File with an array for each of ``sample_inputs(step)``, samples along the first axis.
        step: Training step to train with the samples.

    Returns:
        The samples, in batches of ``step.batch``.

    Raises:
        DataError: The file's arrays are not the samples that the step requires.
        OSError: The file cannot be opened.
    """
    inputs = sample_inputs(step)
    arrays = read_arrays(path)
    names = [each.name for each in inputs]
    if set(arrays) != set(names):
        raise DataError(
            f"{path}: contains {_listed(arrays)}; {step.name} needs one array for each of"
            f" {_listed(names)}"
        )
    samples = {each.name: _checked(path, each, arrays[each.name]) for each in inputs}
    counts = {name: len(values) for name, values in samples.items()}
    if len(set(counts.values())) > 1:
        found = ", ".join(f"{count} of {name}" for name, count in counts.items())
        raise DataError(f"{path}: the arrays have different numbers of samples: {found}")
    return Batches(step.batch, samples, constant_inputs(step), step.accumulate)


def _checked(path: Path, expected: SampleInput, found: NDArray[Any]) -> NDArray[Any]:
    where = f"{path}: {expected.name}"
    if found.shape[1:] != expected.shape or not found.shape:
        wanted = ("samples", *map(str, expected.shape))
        raise DataError(
            f"{where} has shape {_shape(found.shape)}; it must be {_shape(wanted)}, samples first"
        )
    if not len(found):
        raise DataError(f"{where} has no samples; at least one is needed")
    if expected.use in {"shown", "truth"}:
        return as_addend(_truth(where, found))
    if expected.use == "mask":
        return _mask(where, found)
    if expected.bound is None:
        return _real(where, found)
    if found.dtype.kind not in "iu":
        raise DataError(f"{where} is {found.dtype}; it must be whole numbers, such as int32")
    outside = found[((found < 0) | (found >= expected.bound)) & (found != expected.ignored)]
    if outside.size:
        also = "" if expected.ignored is None else f", or {expected.ignored}"
        hint = ""
        if expected.use == "labels" and outside[0] == _PYTORCH_IGNORES:
            hint = "; to ignore rows, export cross_entropy with ignore_index, such as -1"
        raise DataError(
            f"{where} contains {outside[0]}; numbers must be from 0 to {expected.bound - 1}{also}"
            f"{hint}"
        )
    return found.astype(np.int32)


def _truth(where: str, found: NDArray[Any]) -> NDArray[np.bool_]:
    if found.dtype.kind != "b" and not np.isin(found, (0, 1)).all():
        raise DataError(f"{where} must be true or false, or 1 or 0")
    return found.astype(np.bool_)


def _mask(where: str, found: NDArray[Any]) -> NDArray[np.float32]:
    """What is added to scores; in a mask of true and false, true is attended to."""
    if found.dtype.kind == "b":
        return as_addend(found)
    hidden = np.isneginf(found) if found.dtype.kind == "f" else False
    return np.where(hidden, np.float32(-np.inf), _real(where, np.where(hidden, 0, found)))


def _real(where: str, found: NDArray[Any]) -> NDArray[np.float32]:
    if found.dtype.kind != "f":
        raise DataError(f"{where} is {found.dtype}; it must be real numbers, such as float32")
    with np.errstate(over="ignore"):
        values = found.astype(np.float32)
    if not np.isfinite(values).all():
        raise DataError(f"{where} contains a number that is not finite in float32")
    return values


def _listed(names: Mapping[str, object] | list[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"


def _shape(sizes: tuple[object, ...]) -> str:
    return f"({', '.join(map(str, sizes))})"
