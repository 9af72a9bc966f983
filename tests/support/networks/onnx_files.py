"""Small ONNX files, and what the reference implementation makes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

Arrays = Mapping[str, NDArray[Any]]
SET = 17


def node(
    kind: str, inputs: str, outputs: str = "y", name: str = "", **attributes: Any
) -> NodeProto:
    """A node; names of tensors are separated by spaces, ``-`` is one that is not given."""
    words = ["" if each == "-" else each for each in inputs.split()]
    return helper.make_node(kind, words, outputs.split(), name=name or None, **attributes)


def tensor(name: str, *shape: int | str, kind: int = TensorProto.FLOAT) -> ValueInfoProto:
    """An input or output; a word is a size that the file leaves open."""
    return helper.make_tensor_value_info(name, kind, shape)


def model(
    nodes: Sequence[NodeProto],
    inputs: Sequence[ValueInfoProto],
    initializers: Arrays,
    outputs: Sequence[ValueInfoProto],
    version: int = SET,
) -> ModelProto:
    """A model of ONNX's own operations."""
    arrays = [numpy_helper.from_array(array, name) for name, array in initializers.items()]
    graph = helper.make_graph(list(nodes), "graph", list(inputs), list(outputs), arrays)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=8)


def saved(path: Path, content: ModelProto) -> Path:
    """Write a model."""
    path.write_bytes(content.SerializeToString())
    return path


def saved_apart(path: Path, content: ModelProto) -> Path:
    """Write a model, and its first initializer to ``weights.bin`` beside it."""
    weight = content.graph.initializer[0]
    (path.parent / "weights.bin").write_bytes(weight.raw_data)
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="weights.bin")
    return saved(path, content)


def classifier_apart(path: Path) -> Path:
    """Write a classifier of three features and four classes, whose weight lies in another file."""
    arrays = {"w": np.ones((3, 4), np.float32), "b": np.ones(4, np.float32)}
    nodes = [node("MatMul", "x w", "z"), node("Add", "z b", "y")]
    return saved_apart(path, model(nodes, [tensor("x", "N", 3)], arrays, [tensor("y", "N", 4)]))


def initializers_of(content: ModelProto) -> dict[str, NDArray[Any]]:
    """Arrays of a model by name."""
    return {each.name: numpy_helper.to_array(each) for each in content.graph.initializer}


def evaluated(content: ModelProto, values: Arrays) -> NDArray[Any]:
    """The first output, with ``values`` for inputs and for initializers.

    The reference computes in the type of what it is given, so that 64 bits are more exact.
    """
    changed = ModelProto()
    changed.CopyFrom(content)
    left = [each for each in changed.graph.initializer if each.name not in values]
    given = [each for each in changed.graph.initializer if each.name in values]
    del changed.graph.initializer[:]
    changed.graph.initializer.extend(left)
    changed.graph.input.extend(
        helper.make_tensor_value_info(each.name, each.data_type, each.dims) for each in given
    )
    (found, *_) = ReferenceEvaluator(changed).run(None, dict(values))
    return np.asarray(found)
