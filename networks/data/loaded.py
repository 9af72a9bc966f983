"""A user's samples: one array for each input, in one ``.npz`` file."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from networks.data.batches import Batches
from networks.data.inputs import DataError, SampleInput, constant_inputs, sample_inputs
from networks.training import TrainingStep

# What NumPy raises for a file that is no archive, cut short or encrypted, full of objects, or with
# arrays at places before its begin.
_UNREADABLE = (ValueError, EOFError, RuntimeError, OSError, zipfile.BadZipFile, zlib.error)


def load_batches(path: Path, step: TrainingStep) -> Batches:
    """The samples in ``path``: an array for each of ``sample_inputs(step)``, samples along its
    first axis. Raises :class:`DataError`, and :class:`OSError` for a file that cannot be opened."""
    inputs = sample_inputs(step)
    arrays = _arrays(path)
    names = [each.name for each in inputs]
    if set(arrays) != set(names):
        raise DataError(
            f"{path}: holds {_listed(arrays)}; {step.name} takes {_listed(names)}, one array each"
        )
    samples = {each.name: _checked(path, each, arrays[each.name]) for each in inputs}
    counts = {name: len(values) for name, values in samples.items()}
    if len(set(counts.values())) > 1:
        found = ", ".join(f"{count} of {name}" for name, count in counts.items())
        raise DataError(f"{path}: the arrays hold different numbers of samples: {found}")
    return Batches(step.batch, samples, constant_inputs(step))


def _arrays(path: Path) -> Mapping[str, NDArray[Any]]:
    with path.open("rb") as file:
        try:
            archive = np.load(file, allow_pickle=False)
            if isinstance(archive, np.lib.npyio.NpzFile):
                return {name: np.asarray(archive[name]) for name in archive.files}
        except _UNREADABLE as error:
            why = f"{path}: not a readable .npz archive of plain arrays: {error}"
            raise DataError(why) from None
    raise DataError(f"{path}: holds one array without a name; an .npz archive is what is read")


def _checked(path: Path, expected: SampleInput, found: NDArray[Any]) -> NDArray[Any]:
    where = f"{path}: {expected.name}"
    if found.shape[1:] != expected.shape or not found.shape:
        wanted = ("samples", *map(str, expected.shape))
        raise DataError(
            f"{where} has shape {_shape(found.shape)}, it must be {_shape(wanted)}, samples first"
        )
    if not len(found):
        raise DataError(f"{where} holds no sample, at least one is needed")
    if expected.bound is None:
        return _real(where, found)
    if found.dtype.kind not in "iu":
        raise DataError(f"{where} is {found.dtype}, it must be whole numbers (int32, for example)")
    outside = found[(found < 0) | (found >= expected.bound)]
    if outside.size:
        raise DataError(f"{where} holds {outside[0]}, it must be from 0 to {expected.bound - 1}")
    return found.astype(np.int32)


def _real(where: str, found: NDArray[Any]) -> NDArray[np.float32]:
    if found.dtype.kind != "f":
        raise DataError(f"{where} is {found.dtype}, it must be real numbers (float32, for example)")
    with np.errstate(over="ignore"):
        values = found.astype(np.float32)
    if not np.isfinite(values).all():
        raise DataError(f"{where} holds what is no finite float32; all numbers must be")
    return values


def _listed(names: Mapping[str, object] | list[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"


def _shape(sizes: tuple[object, ...]) -> str:
    return f"({', '.join(map(str, sizes))})"
