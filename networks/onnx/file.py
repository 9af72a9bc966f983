"""The ONNX file: its protobuf, its initializers, and a copy with other ones."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from devices.documents.regular import require_regular
from devices.program import installing_extra
from networks.exported.errors import ExportError

if TYPE_CHECKING:
    from onnx import ModelProto, TensorProto

_MOST_BYTES = 2**31 - 1
"""Bytes of a model with its initializers: a protobuf holds no more."""


@dataclass(frozen=True)
class OnnxFile:
    """A model with all its initializers in memory.

    Attributes:
        path: The file.
        model: Its protobuf. Initializers that lay in other files are within it.
        sha256: Hash of the file, and of those other files after it.
        initializers: Arrays by name.
    """

    path: Path
    model: ModelProto
    sha256: str
    initializers: Mapping[str, NDArray[Any]]

    @classmethod
    def open(cls, path: Path) -> OnnxFile:
        """Read a file.

        Raises:
            ExportError: The package ``onnx`` is not installed, or the file is no model, or an
                initializer is missing, too large or not finite.
        """
        try:
            content, model = _read(path)
        except OSError as error:
            raise ExportError(f"{path}: cannot be read: {error.strerror or error}") from None
        if not model.graph.node or not model.opset_import:
            raise ExportError(f"{path}: not an ONNX file, or it has no graph")
        if model.graph.sparse_initializer:
            raise ExportError(f"{path}: has sparse initializers, which cannot be read")
        digest = hashlib.sha256(content)
        for tensor, data in _external_data(path, model, _MOST_BYTES - len(content)):
            digest.update(data)
            tensor.raw_data = data
            tensor.ClearField("external_data")
            tensor.ClearField("data_location")
        arrays: dict[str, NDArray[Any]] = {}
        for tensor in model.graph.initializer:
            if tensor.name in arrays:
                raise ExportError(f"{path}: two initializers are named {tensor.name!r}")
            arrays[tensor.name] = array_of(path, tensor)
        return cls(path, model, digest.hexdigest(), arrays)

    def save(self, values: Mapping[str, NDArray[Any]], path: Path) -> None:
        """Write the model with other initializers. Raises :class:`OSError`."""
        from onnx import ModelProto

        changed = ModelProto()
        changed.CopyFrom(self.model)
        for tensor in changed.graph.initializer:
            found = values.get(tensor.name)
            if found is not None:
                tensor.ClearField("float_data")
                tensor.raw_data = np.ascontiguousarray(found, "<f4").tobytes()
        path.write_bytes(changed.SerializeToString())


def onnx_sha256(path: Path) -> str:
    """Hash of a file, and of the data of its initializers that lie in other files after it.

    It is that of :class:`OnnxFile`, of a file that need not have a network that can be trained.

    Raises:
        OSError: The file cannot be read.
        ExportError: The package ``onnx`` is not installed, or the file is no model, or data of an
            initializer are missing.
    """
    content, model = _read(path)
    digest = hashlib.sha256(content)
    for _, data in _external_data(path, model, _MOST_BYTES - len(content)):
        digest.update(data)
    return digest.hexdigest()


def array_of(path: Path, tensor: TensorProto) -> NDArray[Any]:
    """The numbers of a tensor. Raises :class:`ExportError` if it lacks some or is not readable."""
    from onnx import TensorProto, numpy_helper

    shape = tuple(tensor.dims)
    if any(size < 0 for size in shape) or math.prod(shape) > _MOST_BYTES:
        raise ExportError(f"{path}: {tensor.name} has shape {shape}")
    if tensor.HasField("segment") or tensor.data_location == TensorProto.EXTERNAL:
        raise ExportError(f"{path}: {tensor.name} has its numbers in a place that is not read")
    try:
        array = np.asarray(numpy_helper.to_array(tensor))
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise ExportError(f"{path}: {tensor.name} cannot be read: {error}") from None
    if array.shape != shape:
        raise ExportError(f"{path}: {tensor.name} has {array.size} numbers; its shape is {shape}")
    # A mask may be -infinity; it is not trained.
    if array.dtype.kind == "f" and not (np.isfinite(array) | np.isneginf(array)).all():
        raise ExportError(f"{path}: {tensor.name} has a number that is not finite")
    return array


def _read(path: Path) -> tuple[bytes, ModelProto]:
    """The bytes of a file, and the model that they are.

    Raises:
        OSError: The file cannot be read.
        ExportError: The package ``onnx`` is not installed, or the file is no model.
    """
    try:
        from onnx import ModelProto
    except ImportError:
        raise ExportError(
            f"{path}: ONNX files need the package onnx: {installing_extra('onnx')}"
        ) from None
    require_regular(path)
    if path.stat().st_size > _MOST_BYTES:
        raise ExportError(f"{path}: is larger than {_MOST_BYTES} bytes")
    content, model = path.read_bytes(), ModelProto()
    try:
        model.ParseFromString(content)
    except Exception:  # protobuf's own error is not among what onnx exports
        raise ExportError(f"{path}: not an ONNX file, or cut off") from None
    return content, model


def _external_data(
    path: Path, model: ModelProto, most_bytes: int
) -> Iterator[tuple[TensorProto, bytes]]:
    """The initializers that lie in other files, each with its data: at most so many bytes in all.

    Raises:
        ExportError: Data are missing, or too large.
    """
    from onnx import TensorProto

    left = most_bytes
    for tensor in model.graph.initializer:
        if tensor.data_location == TensorProto.EXTERNAL:
            data = _external(path, tensor, left)
            left -= len(data)
            yield tensor, data


def _external(path: Path, tensor: TensorProto, most_bytes: int) -> bytes:
    """The bytes of an initializer that lies in another file of the model's folder."""
    keys = {each.key: each.value for each in tensor.external_data}
    location, what = keys.get("location", ""), f"{path}: the data of {tensor.name}"
    parts = PurePosixPath(location).parts
    if not parts or ".." in parts or location.startswith(("/", "\\")) or "\0" in location:
        raise ExportError(f"{what} lies at {location!r}, not in the folder of the model")
    file, folder = path.parent.joinpath(*parts), path.parent.resolve()
    try:
        offset, length = int(keys.get("offset", "0")), int(keys.get("length", "-1"))
    except ValueError:
        raise ExportError(f"{what} has an offset or a length that is no number") from None
    try:
        if not file.resolve().is_relative_to(folder) or not file.is_file():
            raise ExportError(f"{what} lies at {location!r}, which is no file of its folder")
        size_bytes = file.stat().st_size
        length = length if "length" in keys else size_bytes - offset
        if offset < 0 or length < 0 or offset + length > size_bytes or length > most_bytes:
            raise ExportError(
                f"{what} is {length} bytes from {offset} on; {location} has {size_bytes}"
            )
        with file.open("rb") as stream:
            stream.seek(offset)
            return stream.read(length)
    except OSError as error:
        raise ExportError(f"{what} in {location}: {error.strerror or error}") from None
