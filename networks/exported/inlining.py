"""Graphs without subgraphs: what a ``with`` block of PyTorch holds becomes part of its graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from devices.documents.explain import explain
from networks.exported.errors import ExportError
from networks.exported.schema import Graph, MetaDocument, NamedArgument, NodeDocument

_HIGHER = "torch.ops.higher_order."
_GRADIENTS, _PRECISION = f"{_HIGHER}wrap_with_set_grad_enabled", f"{_HIGHER}wrap_with_autocast"
WITHOUT_GRADIENT = "without_gradient"
"""Key of a node's metadata that marks it as part of a ``torch.no_grad`` block."""

_MOST_LEVELS = 16


def inlined(graph: Graph, path: Path, level: int = 0) -> Graph:
    """Put the blocks of ``no_grad``, ``enable_grad`` and disabled ``autocast`` into their graph.

    Their tensors get the block's name as a prefix. Other nodes with subgraphs stay as they are.

    Raises:
        ExportError: A block is invalid, nested too deeply, or changes the precision.
    """
    if level > _MOST_LEVELS:
        raise ExportError(f"{path}: its blocks are nested more than {_MOST_LEVELS} deep")
    nodes: list[NodeDocument] = []
    tensors: dict[str, MetaDocument] = dict(graph.tensor_values)
    for number, node in enumerate(graph.nodes):
        if node.target not in {_GRADIENTS, _PRECISION}:
            nodes.append(node)
            continue
        block, outer = _block(node, path)
        enabled = _is_enabled(node)
        if node.target == _PRECISION and enabled:
            raise ExportError(
                f"{path}: the program changes the precision (torch.autocast); only float32 can be"
                " trained here: export without it"
            )
        inner = inlined(block, path, level + 1)
        names = dict(zip(_names(inner.inputs), outer, strict=False))
        made: list[NodeDocument] = []
        for result, name in zip(_names(inner.outputs), _names(node.outputs), strict=False):
            if result in names:
                made.append(_alias(names[result], name))
            names[result] = names.get(result, name)
        prefix = f"{node.name or 'block'}{number}/"
        blocks = node.target == _GRADIENTS and not enabled
        marks = {WITHOUT_GRADIENT: "1"} if blocks else {}
        nodes += [_renamed(each, names, prefix, marks) for each in inner.nodes] + made
        for name, meta in inner.tensor_values.items():
            tensors.setdefault(names.get(name, prefix + name), meta)
    return graph.model_copy(update={"nodes": tuple(nodes), "tensor_values": tensors})


def _block(node: NodeDocument, path: Path) -> tuple[Graph, list[str]]:
    """The subgraph of a node, and the names of the tensors that it is given."""
    for number, argument in enumerate(node.inputs):
        found = argument.arg.get("as_graph")
        if isinstance(found, dict):
            try:
                graph = Graph.model_validate(found.get("graph"))
            except ValidationError as error:
                raise ExportError(
                    f"not an exported program: {explain(error, Graph, str(path))}"
                ) from None
            given = [each.arg for each in node.inputs[number + 1 :]]
            return graph, _names(given)
    raise ExportError(f"{path}: {node.target} has no subgraph")


def _is_enabled(node: NodeDocument) -> bool:
    """The first flag of the node, which states whether it has an effect."""
    return next((bool(each.arg["as_bool"]) for each in node.inputs if "as_bool" in each.arg), True)


def _names(arguments: Iterable[Mapping[str, Any]]) -> list[str]:
    """Names of tensors; those of a list one after another."""
    found: list[str] = []
    for argument in arguments:
        tensors = argument.get("as_tensors", (argument.get("as_tensor"),))
        found += [
            str(each["name"]) for each in tensors if isinstance(each, dict) and "name" in each
        ]
    return found


def _alias(source: str, name: str) -> NodeDocument:
    return NodeDocument(
        name=name,
        target="torch.ops.aten.alias.default",
        inputs=(NamedArgument(name="self", arg={"as_tensor": {"name": source}}),),
        outputs=({"as_tensor": {"name": name}},),
    )


def _renamed(
    node: NodeDocument, names: Mapping[str, str], prefix: str, marks: Mapping[str, str]
) -> NodeDocument:
    def of(name: str) -> str:
        return names.get(name, prefix + name)

    return node.model_copy(
        update={
            "name": None if node.name is None else of(node.name),
            "inputs": tuple(
                each.model_copy(update={"arg": _renamed_argument(each.arg, of)})
                for each in node.inputs
            ),
            "outputs": tuple(_renamed_argument(each, of) for each in node.outputs),
            "metadata": {**node.metadata, **marks},
        }
    )


def _renamed_argument(argument: dict[str, Any], of: Callable[[str], str]) -> dict[str, Any]:
    match argument:
        case {"as_tensor": {"name": str(name)}}:
            return {"as_tensor": {"name": of(name)}}
        case {"as_optional_tensor": dict(value)}:
            return {"as_optional_tensor": _renamed_argument(value, of)}
        case {"as_tensors": list(values)}:
            return {
                "as_tensors": [
                    {"name": of(each["name"])}
                    if isinstance(each, dict) and "name" in each
                    else each
                    for each in values
                ]
            }
        case {"as_optional_tensors": list(values)}:
            return {
                "as_optional_tensors": [
                    _renamed_argument(each, of) if isinstance(each, dict) else each
                    for each in values
                ]
            }
        case _:
            return argument
