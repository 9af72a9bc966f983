"""Parameters, buffers and constants of an exported program, read when they are needed."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from devices.documents.explain import explain
from networks.exported.archive import Archive, Folder
from networks.exported.errors import ExportError
from networks.exported.program import BOOL, FLOAT32, INT32, INT64, TensorMeta, meta_of
from networks.exported.schema import WeightsDocument

NUMPY: Mapping[int, np.dtype[Any]] = {
    FLOAT32: np.dtype("<f4"),
    INT64: np.dtype("<i8"),
    INT32: np.dtype("<i4"),
    BOOL: np.dtype("?"),
}
"""Element types that can be read."""


@dataclass(frozen=True)
class _Stored:
    file: str
    meta: TensorMeta


class Arrays(Mapping[str, NDArray[Any]]):
    """Arrays of a network's file by its own names.

    Names of one array (tied weights) have the same :meth:`first_name`.
    """

    @abstractmethod
    def first_name(self, name: str) -> str:
        """The first name of the same array. Raises :class:`ExportError` if there is none."""

    @abstractmethod
    def meta(self, name: str) -> TensorMeta:
        """Layout of an array, and whether it is trained."""


class Weights(Arrays):
    """Arrays of an exported program, each read anew on every access."""

    def __init__(self, archive: Archive, folder: Folder = "weights") -> None:
        """Read the table of weights, or of constants.

        Raises:
            ExportError: The table is invalid, or names a file outside its folder.
        """
        self._archive = archive
        self._folder = folder
        path = archive.path
        document = archive.document(f"data/{folder}", f"_{folder}_config.json")
        try:
            config = WeightsDocument.model_validate(document).config
        except ValidationError as error:
            raise ExportError(explain(error, WeightsDocument, str(path))) from None
        self._stored: dict[str, _Stored] = {}
        for name, each in config.items():
            if "/" in each.path_name or each.path_name in {"", ".", ".."}:
                raise ExportError(
                    f"{path}: {name} lies at {each.path_name!r}, not beside the table"
                )
            if each.use_pickle:
                raise ExportError(
                    f"{path}: {name} is pickled, which is not read; make it a plain tensor"
                )
            self._stored[name] = _Stored(each.path_name, meta_of(path, name, each.tensor_meta))

        self._first: dict[_Stored, str] = {}
        for name, stored in self._stored.items():
            self._first.setdefault(stored, name)

    def __getitem__(self, name: str) -> NDArray[Any]:
        stored = self._stored[name]
        meta = stored.meta
        dtype = NUMPY.get(meta.dtype)
        if dtype is None:
            raise ExportError(
                f"{self._archive.path}: {name} is {meta.dtype_name}; float32 is needed: call"
                " .float() on the module before exporting it"
            )
        count = _extent(meta)
        if self._folder == "weights" and math.prod(meta.shape) > count:
            raise ExportError(f"{self._archive.path}: the elements of {name} share their places")
        content = np.frombuffer(
            self._archive.numbers(self._folder, stored.file, count * dtype.itemsize), dtype
        )
        array = _strided(content, meta)
        if self._folder == "constants":
            return array
        # A mask may be -infinity; it is not trained.
        masked = not meta.requires_grad and np.isneginf(array)
        if dtype.kind == "f" and not (np.isfinite(array) | masked).all():
            raise ExportError(f"{self._archive.path}: {name} has a number that is not finite")
        return array.copy()

    def first_name(self, name: str) -> str:
        if name not in self._stored:
            raise ExportError(f"{self._archive.path}: the table of {self._folder} lacks {name}")
        stored = self._stored[name]
        return self._first[stored]

    def meta(self, name: str) -> TensorMeta:
        return self._stored[name].meta

    def require_separate(self, parameters: Collection[str]) -> None:
        """Refuse parameters that share memory with other arrays, but for those of equal layout.

        PyTorch updates each of them in the same memory. All arrays must have been read before.

        Raises:
            ExportError: A parameter shares memory with another array in another layout.
        """
        trained = {self.first_name(name) for name in parameters}
        files: dict[str, list[str]] = {}
        # Parameters first: buffers may share memory with each other.
        for name in sorted(self._first.values(), key=lambda name: name not in trained):
            files.setdefault(self._stored[name].file, []).append(name)
        for names in files.values():
            if len(names) == 1:
                continue
            extent = max(_extent(self._stored[name].meta) for name in names)
            owners = np.zeros(extent, np.int32)
            for number, name in enumerate(names, start=1):
                places = _strided(owners, self._stored[name].meta)
                if (owner := int(places.max(initial=0))) > 0:
                    raise ExportError(
                        f"{self._archive.path}: {names[owner - 1]} and {name} share memory and"
                        " differ in layout or in requires_grad, which cannot be trained here: use"
                        f" {names[owner - 1]} itself in both places of the forward pass, or give"
                        f" {name} memory of its own (.clone())"
                    )
                if name in trained:
                    places[...] = number

    def __iter__(self) -> Iterator[str]:
        return iter(self._stored)

    def __len__(self) -> int:
        return len(self._stored)


def _extent(meta: TensorMeta) -> int:
    """Elements of a file up to the last one of an array.

    Strides may leave gaps or go through the file in another order, never out of it.
    """
    reach = sum((n - 1) * s for n, s in zip(meta.shape, meta.strides, strict=True))
    return meta.offset + reach + 1 if math.prod(meta.shape) else 0


def _strided(content: NDArray[Any], meta: TensorMeta) -> NDArray[Any]:
    """The elements of a file that belong to an array, as a view."""
    return np.lib.stride_tricks.as_strided(
        content[meta.offset :],
        meta.shape,
        [
            stride * content.itemsize if size > 1 else 0
            for size, stride in zip(meta.shape, meta.strides, strict=True)
        ],
    )
