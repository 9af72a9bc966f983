"""A network, and the values that it starts from, read from an exported program.

The program is what ``torch.export.export(module.train(), inputs, strict=False)`` makes of a module
whose forward pass returns the loss, or the predictions of which ``loss`` makes one. Its forward
pass becomes a :class:`~networks.training.network.Network`; the backward pass is derived here, as
for every other network.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from devices.operation import ELEMENT_BYTES, Loss, OperationError
from networks.exported.archive import Archive
from networks.exported.construction import Construction, Unsupported
from networks.exported.decompositions import decomposed
from networks.exported.errors import ExportError
from networks.exported.operations import OPERATIONS
from networks.exported.program import Node, Program, read_program
from networks.exported.refusals import Refusal, listed
from networks.exported.views import View
from networks.exported.weights import Arrays, Weights
from networks.training.derive import is_loss
from networks.training.network import Network, NetworkError, Value
from networks.training.step import NetworkFile

MOST_NODES = 100_000
"""Nodes of the largest graph."""

_SLICE = "aten.slice.Tensor"  # one without elements may be joined with others


def read_network(path: Path, loss: Loss | None = None) -> tuple[Network, NetworkFile]:
    """Read a network that returns its loss, or predictions that ``loss`` turns into one.

    Args:
        path: File that ``torch.export.save`` wrote.
        loss: Loss to add. Its other operand becomes the input ``labels`` (one class for each row
            of the predictions) or ``target`` (of the predictions' shape).

    Returns:
        The network, and the file as the source of its initial values.

    Raises:
        ExportError: The file cannot be used; the message names every operation that cannot be
            trained here, with its place in the user's source.
    """
    archive = Archive.open(path)
    program = read_program(archive)
    constants = Weights(archive, "constants") if program.constants else None
    weights = Weights(archive)
    found = network_of(path, archive.sha256, program, weights, constants, loss)
    weights.require_separate(set(program.parameters.values()))
    return found


def network_of(
    path: Path,
    sha256: str,
    program: Program,
    weights: Arrays,
    constants: Arrays | None,
    loss: Loss | None,
    refusals: Sequence[Refusal] = (),
) -> tuple[Network, NetworkFile]:
    """Make a network of a file's program; ``refusals`` are operations that it lacks for them.

    Raises:
        ExportError: The program cannot be trained here.
    """
    if len(program.nodes) > MOST_NODES:
        raise ExportError(
            f"{path}: the graph has {len(program.nodes)} operations; at most {MOST_NODES} are"
            " allowed"
        )
    program = decomposed(program)
    network = Network(path.name, _batch(program))
    construction = Construction(network, program, weights, constants)
    found = [refusal for node in program.nodes if (refusal := _map(construction, node))]
    if refusals or found:
        raise ExportError(f"{path}: {listed([*refusals, *found])}")
    _find_loss(path, construction, loss)
    for name in weights:
        weights[name]  # refuses a missing, damaged or infinite array before anything is measured
    tensor_of = {name: weights.first_name(name) for name in weights}
    network.trainable = {tensor_of[name] for name in program.parameters.values()}
    counters = tuple(construction.counters)
    _leave_out_unread(network)
    read = {value.name for layer in network.layers for value in layer.reads}
    read.update(() if network.one is None else (network.one.name,))
    kept = {name: each for name, each in construction.kept_constants.items() if name in read}
    return network, NetworkFile(path, sha256, weights, tensor_of, counters, kept)


def _leave_out_unread(network: Network) -> None:
    """Leave out the layers that neither the loss nor a kept statistic depends on."""
    assert network.loss is not None, "the loss has been found before"
    read = {network.loss.name}
    layers = []
    for layer in reversed(network.layers):
        if layer.spec.signature.mutates or any(value.name in read for value in layer.writes):
            read.update(value.name for value in layer.reads)
            layers.append(layer)
    network.layers[:] = reversed(layers)


def _find_loss(path: Path, construction: Construction, loss: Loss | None) -> None:
    """Set the network's loss: the only scalar that the program returns, or one to add."""
    network, program = construction.network, construction.program
    scalars = [name for name in program.outputs if not program.tensors[name].shape]
    if loss is not None and not scalars and len(program.outputs) == 1:
        _add_loss(path, construction, program.outputs[0], loss)
        return
    if loss is not None and scalars:
        raise ExportError(f"{path}: the program returns its loss already; leave out --loss {loss}")
    if len(scalars) != 1:
        what = "must return one scalar" if loss is None else "must return the predictions alone"
        hint = "; add a loss to predictions with --loss" if loss is None else ""
        raise ExportError(f"{path}: the program returns {_returned(program)}; it {what}{hint}")
    found, node = construction.named(scalars[0]), construction.maker.get(scalars[0])
    if node is not None and found.value.elements > 1:  # one of several numbers
        found = View.whole(construction.stored(node, found))
    made = (each for each in network.layers if each.writes[0].name == found.value.name)
    maker = next(made, None)
    if maker is None or not construction.has_gradient(found):
        raise ExportError(
            f"{path}: the loss that the program returns depends on nothing that is trained"
        )
    network.loss = maker.writes[0]
    if not is_loss(maker):
        network.one = Value("constants.one", (1,), "parameter")
        construction.kept_constants[network.one.name] = np.ones(1, np.float32)


def _add_loss(path: Path, construction: Construction, output: str, loss: Loss) -> None:
    network, view = construction.network, construction.named(output)
    maker = construction.maker.get(output)
    if maker is None:
        raise ExportError(f"{path}: the program returns {output}, which depends on nothing trained")
    try:
        stored = construction.stored(maker, view)
        prediction = Value(stored.name, view.shape, stored.kind)
        if loss == "mse":
            network.mean_squared_error("loss", prediction, network.input("target", *view.shape))
        else:
            labels = network.input("labels", *(view.shape[:-1] or (1,)))
            network.softmax_cross_entropy("loss", prediction, labels)
    except (NetworkError, Unsupported) as error:
        raise ExportError(f"{path}: {loss} cannot be added: {error}") from None


def _batch(program: Program) -> int:
    """Samples in a step: the common first size of all inputs, else 1."""
    sizes = [shape[0] for name in program.inputs if (shape := program.tensors[name].shape)]
    return sizes[0] if all(sizes) and sizes and not any(size % sizes[0] for size in sizes) else 1


def _map(construction: Construction, node: Node) -> Refusal | None:
    """Append the layers of a node; None if it could be mapped."""
    follows = construction.reads_unknown(node)
    operation = OPERATIONS.get(_operation(node))
    if construction.fold(node, _operation(node)):
        return None
    try:
        for name in node.outputs:
            _require_size(construction.program, name, may_be_empty=node.target == _SLICE)
        if operation is not None:
            construction.begin_to_compute(node)
        (operation or _unknown)(construction, node)
    except (Unsupported, OperationError, NetworkError) as error:
        construction.set_unknown(node)
        if operation is not None and follows:  # perhaps only because of what it reads
            return None
        instead = error.instead if isinstance(error, Unsupported) else ""
        return Refusal(node.stated or node.target, str(error), instead, node.place)
    return None


def _unknown(_construction: Construction, _node: Node) -> None:
    raise Unsupported("not among the operations that can be trained here")


def _operation(node: Node) -> str:
    """ATen's name without ``aten.`` and without the underscore of operations in place."""
    name, _, overload = node.target.removeprefix("aten.").partition(".")
    return f"{name.removesuffix('_') if node.is_in_place else name}.{overload}"


def _require_size(program: Program, name: str, *, may_be_empty: bool) -> None:
    shape = program.tensors[name].shape
    is_empty = math.prod(shape) == 0 and not may_be_empty
    if is_empty or math.prod(shape) * ELEMENT_BYTES > np.iinfo(np.int64).max:
        raise Unsupported(f"its result has shape {shape}")


def _returned(program: Program) -> str:
    shapes = [f"{name} of shape {program.tensors[name].shape}" for name in program.outputs]
    return " and ".join(shapes) or "nothing"
