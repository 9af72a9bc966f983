"""A network for fine-tuning, and the values that it starts from, read from an ONNX file.

The file holds a network of inference. Its graph becomes the program that
:mod:`networks.exported` reads from PyTorch's files; norms keep the file's statistics.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from devices.operation import Loss
from networks.exported.errors import ExportError
from networks.exported.network import MOST_NODES, network_of
from networks.onnx.file import OnnxFile, array_of
from networks.onnx.gelu import with_gelus
from networks.onnx.graph import OnnxGraph, version_of
from networks.onnx.layouts import Restoring
from networks.onnx.operations.elementwise import default_softmax_axis
from networks.onnx.roles import Roles
from networks.training.network import Network
from networks.training.step import NetworkFile

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, TypeProto

_REMARK = "fine-tuning: batch norms keep the file's statistics, and nothing is dropped out"
_SOFTMAXES = {"Softmax", "LogSoftmax"}


def read_onnx(path: Path, batch: int | None, loss: Loss | None) -> tuple[Network, NetworkFile]:
    """Read a network that returns predictions, which ``loss`` turns into a loss.

    Args:
        path: The ONNX file.
        batch: Samples in a step where the file leaves their number open; 1 if None.
        loss: Loss to add. Its other operand becomes the input ``labels`` or ``target``.

    Returns:
        The network, and the file as the source of its initial values.

    Raises:
        ExportError: The file cannot be used; the message names every node that cannot be trained
            here.
    """
    file = OnnxFile.open(path)
    graph = file.model.graph
    if len(graph.node) > MOST_NODES:
        raise ExportError(
            f"{path}: the graph has {len(graph.node)} operations; at most {MOST_NODES} are allowed"
        )
    constants = _stated(path, graph.node)

    def number(name: str) -> float | None:
        found = file.initializers.get(name, constants.get(name))
        return float(found.item()) if found is not None and found.size == 1 else None

    outputs = tuple(each.name for each in graph.output)
    nodes = with_gelus(graph.node, number, outputs)
    remark = f"{path}: {_REMARK}"
    if loss == "cross-entropy" and len(outputs) == 1:
        logits = _before_softmax(path, file.model, outputs[0])
        if logits != outputs[0]:
            outputs = (logits,)
            remark += "; the loss takes what the file's last softmax reads"
    nodes = _needed(nodes, outputs)
    roles = Roles.of(nodes, file.initializers, constants)
    inputs = _inputs(path, graph, batch or 1, file.initializers)
    readers, sets = _readers(nodes, outputs), file.model.opset_import
    nodes = [node for node in nodes if constants.keys().isdisjoint(node.output)]
    found = OnnxGraph(path, sets, roles, inputs, readers).translated(nodes, outputs)
    if found.read_twice:  # such an array stays as it is for all of them
        for name in found.read_twice:
            readers[name].append("another way")
        found = OnnxGraph(path, sets, roles, inputs, readers).translated(nodes, outputs)
    network, source = network_of(
        path, file.sha256, found.program, found.weights, found.constants, loss, found.refusals
    )
    restored = Restoring(found.layouts) if found.layouts else None
    return network, replace(source, remark=remark, save=file.save, restored=restored)


def _readers(nodes: Sequence[NodeProto], outputs: tuple[str, ...]) -> dict[str, list[str]]:
    """Kind and operand of each node that reads a tensor; outputs are read too."""
    found: dict[str, list[str]] = {name: ["output"] for name in outputs}
    for node in nodes:
        for position, name in enumerate(node.input):
            found.setdefault(name, []).append(f"{node.op_type} {position}")
    return found


def _needed(nodes: Sequence[NodeProto], outputs: tuple[str, ...]) -> list[NodeProto]:
    """Nodes on which the outputs depend."""
    wanted, found = set(outputs), []
    for node in reversed(nodes):
        if not wanted.isdisjoint(node.output):
            wanted.update(name for name in node.input if name)
            found.append(node)
    return found[::-1]


def _stated(path: Path, nodes: Sequence[NodeProto]) -> dict[str, NDArray[Any]]:
    """Results of the nodes ``Constant`` that state a tensor or numbers."""
    import numpy as np

    found: dict[str, NDArray[Any]] = {}
    for node in nodes:
        if node.op_type != "Constant" or len(node.output) != 1 or len(node.attribute) != 1:
            continue
        (stated,) = node.attribute
        match stated.name:
            case "value":
                numbers = array_of(path, stated.t)
            case "value_float":
                numbers = np.float32(stated.f) * np.ones((), np.float32)
            case "value_floats":
                numbers = np.asarray(stated.floats, np.float32)
            case "value_int":
                numbers = np.asarray(stated.i, np.int64)
            case "value_ints":
                numbers = np.asarray(stated.ints, np.int64)
            case _:
                continue
        found[node.output[0]] = np.asarray(numbers)
    return found


def _before_softmax(path: Path, model: ModelProto, output: str) -> str:
    """The logits of which a softmax over the last axis makes the predictions, else these."""
    graph = model.graph
    makers = {name: node for node in graph.node for name in node.output if name}
    seen: set[str] = set()
    name = output
    while name in makers and makers[name].op_type == "Identity" and name not in seen:
        seen.add(name)
        name = next(iter(makers[name].input), "")
    node = makers.get(name)
    if node is None or node.op_type not in _SOFTMAXES or len(node.input) != 1:
        return output
    axes = len(graph.output[0].type.tensor_type.shape.dim)
    stated = [each.i for each in node.attribute if each.name == "axis"]
    axis = stated[0] if stated else default_softmax_axis(version_of(model.opset_import))
    if axis not in {-1, axes - 1}:
        raise ExportError(
            f"{path}: its predictions are a softmax along axis {axis} of {axes}; cross-entropy"
            " needs classes along the last"
        )
    return str(node.input[0])


def _inputs(
    path: Path, graph: GraphProto, batch: int, initializers: Mapping[str, NDArray[Any]]
) -> dict[str, TypeProto]:
    """Types of the graph's inputs, with ``batch`` for a first size that is left open.

    Raises:
        ExportError: Another size is left open, or an input is no tensor.
    """
    from onnx import TypeProto

    found: dict[str, TypeProto] = {}
    given = [each for each in graph.input if each.name not in initializers]
    firsts = [dim for each in given for dim in each.type.tensor_type.shape.dim[:1]]
    samples = {dim.dim_param for dim in firsts if dim.dim_param}
    for each in given:
        type_of = TypeProto()
        type_of.CopyFrom(each.type)
        if not type_of.HasField("tensor_type") or not type_of.tensor_type.HasField("shape"):
            raise ExportError(f"{path}: the input {each.name} is no tensor of a known shape")
        for axis, dim in enumerate(type_of.tensor_type.shape.dim):
            if dim.HasField("dim_value"):
                if dim.dim_value < 1:
                    raise ExportError(f"{path}: axis {axis} of the input {each.name} is empty")
            elif axis == 0 or dim.dim_param in samples:
                dim.dim_value = batch
            else:
                raise ExportError(
                    f"{path}: axis {axis} of the input {each.name} has no fixed size; only the"
                    " first axis, that of the samples, may have none: export with fixed sizes"
                )
        if each.name in found:
            raise ExportError(f"{path}: two inputs are named {each.name!r}")
        found[each.name] = type_of
    return found
