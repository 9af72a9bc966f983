"""ONNX files: their graph as JSON, and their bytes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
from onnx import ModelProto
from onnx.serialization import registry

from devices.errors import InputError
from networks.models import build_model
from networks.training.initial import initial_values
from tests.support.networks.onnx_files import model, node, tensor


@cache
def _network() -> ModelProto:
    """An image's convolution, a shape that is computed, and a linear layer."""
    nodes = [
        node("Conv", "image w", "x", auto_pad="SAME_UPPER"),
        node("BatchNormalization", "x scale shift shift scale", "n"),
        node("Clip", "n low", "c"),
        node("MaxPool", "c", "p", kernel_shape=[2, 2], strides=[2, 2]),
        node("Slice", "p start end", "s"),
        node("Shape", "s", "shape", end=1),
        node("Concat", "shape rest", "to", axis=0),
        node("Reshape", "s to", "r"),
        node("Gemm", "r m b", "y", alpha=0.5),
    ]
    random = np.random.default_rng(0)
    arrays = {
        **{"w": random.random((2, 2, 3, 3), np.float32), "m": random.random((12, 2), np.float32)},
        **{name: random.random(2, np.float32) for name in ("b", "scale", "shift")},
        **{"low": np.float32(0), "rest": np.asarray([-1])},
        **{"start": np.asarray([0, 0]), "end": np.asarray([9, 2])},
    }
    return model(nodes, [tensor("image", "N", 2, 4, 6)], arrays, [tensor("y", "N", 2)])


def graphs() -> Sequence[str]:
    """The network as JSON."""
    return [registry.get("json").serialize_proto(_network()).decode()]


def files() -> Sequence[str]:
    """The network's file, a character for each byte."""
    return [_network().SerializeToString().decode("latin-1")]


def take_graph(path: Path) -> None:
    """Read a network from JSON. What is no protobuf is nothing that a user's file could hold."""
    try:
        found = registry.get("json").deserialize_proto(path.read_bytes(), ModelProto())
        content = found.SerializeToString()
    except Exception as error:
        raise InputError(type(error).__name__) from error
    _take(path.with_suffix(".onnx"), content)


def take_bytes(path: Path) -> None:
    """Read a network from an input that has a character for each byte."""
    text = path.read_bytes().decode("utf-8", errors="replace")
    _take(path, text.encode("latin-1", errors="replace"))


def _take(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    initial_values(build_model(str(path), 2, loss="mse"), seed=0)
