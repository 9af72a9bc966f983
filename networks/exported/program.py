"""The graph of an exported program, read from its JSON document.

Only what a training step needs is read. The schema is PyTorch's ``torch/_export/serde/schema.py``,
major version 8, which PyTorch 2.13 writes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any, TypeAlias, TypeVar

from numpy.typing import NDArray
from pydantic import BaseModel, ValidationError

from devices.documents.explain import explain
from networks.exported.archive import Archive
from networks.exported.errors import ExportError
from networks.exported.inlining import WITHOUT_GRADIENT, inlined
from networks.exported.schema import Document, MetaDocument, NodeDocument, Versioned

SCHEMA_MAJOR = 8
FLOAT32, INT64, INT32, BOOL = 7, 5, 4, 12
_DTYPES = {
    **{1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 6: "float16", 7: "float32"},
    **{8: "float64", 9: "complex32", 10: "complex64", 11: "complex128", 12: "bool", 13: "bfloat16"},
}


@dataclass(frozen=True)
class Reference:
    """An argument that is a tensor of the graph."""

    name: str


@dataclass(frozen=True)
class Unreadable:
    """An argument of a kind that no supported operation has, such as a subgraph."""

    kind: str


Argument: TypeAlias = (
    Reference | Unreadable | bool | int | float | str | tuple["Argument", ...] | None
)


@dataclass(frozen=True)
class TensorMeta:
    """Element type and layout of a tensor; ``strides`` and ``offset`` count elements."""

    dtype: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    requires_grad: bool

    @property
    def dtype_name(self) -> str:
        return _DTYPES.get(self.dtype, f"type {self.dtype}")


@dataclass(frozen=True)
class Node:
    """One operation of the graph.

    Attributes:
        name: Name, distinct in the graph.
        target: Operation, such as ``aten.conv2d.default``.
        arguments: Arguments that differ from their defaults, by name.
        outputs: Names of the tensors that it makes; empty for an output that is not a tensor.
        place: Place in the user's source, such as ``net.py:12 (x = self.conv(x))``.
        module: Path of the module, such as ``layer1.0.conv1``.
        is_leaf: Whether that module is one of PyTorch's own.
        without_gradient: Whether it is part of a ``torch.no_grad`` block.
        stated: The file's own name of the operation; empty if it is the target.
    """

    name: str
    target: str
    arguments: Mapping[str, Argument]
    outputs: tuple[str, ...]
    place: str
    module: str
    is_leaf: bool
    without_gradient: bool
    stated: str = ""

    @property
    def reads(self) -> tuple[str, ...]:
        """Tensors that the arguments name, those in lists too."""
        return tuple(_references(tuple(self.arguments.values())))

    @property
    def is_in_place(self) -> bool:
        """Whether ATen's name of the operation ends with an underscore, but not with two."""
        name = self.target.removeprefix("aten.").partition(".")[0]
        return name.endswith("_") and not name.endswith("__")

    @property
    def has_effects(self) -> bool:
        """Whether it changes a tensor that exists before it."""
        return self.is_in_place or self.target.startswith("aten.batch_norm.")


@dataclass(frozen=True)
class Program:
    """A graph with its inputs. Nodes whose results nothing needs are left out.

    ``parameters``, ``buffers`` and ``constants`` map tensors to the module's names. The module's
    state has no constants: tensors of its source, and buffers that are not persistent. ``numbers``
    are constants that the file does not have.
    """

    nodes: tuple[Node, ...]
    tensors: Mapping[str, TensorMeta]
    parameters: Mapping[str, str]
    buffers: Mapping[str, str]
    constants: Mapping[str, str]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    numbers: Mapping[str, NDArray[Any]] = field(default_factory=dict)


def read_program(archive: Archive) -> Program:
    """Read the graph of an archive.

    Raises:
        ExportError: Its schema is not known, or it has inputs that are no tensors, or tensors whose
            shape is not fixed.
    """
    document = archive.document("models", ".json")
    path = archive.path
    version = _validated(Versioned, document, path)
    if version.schema_version.major != SCHEMA_MAJOR:
        raise ExportError(
            f"{path}: schema version {version.schema_version.major} of PyTorch"
            f" {version.torch_version or 'of unknown version'} is not known; export again with"
            " PyTorch 2.13, whose schema version is 8"
        )
    module = _validated(Document, document, path).graph_module
    graph, signature = inlined(module.graph, path), module.signature
    tensors = {name: meta_of(path, name, each) for name, each in graph.tensor_values.items()}
    parameters: dict[str, str] = {}
    buffers: dict[str, str] = {}
    constants: dict[str, str] = {}
    inputs: list[str] = []
    for spec in signature.input_specs:
        if spec.parameter is not None:
            parameters[spec.parameter.arg.name] = spec.parameter.parameter_name
        elif spec.buffer is not None:
            kept = buffers if spec.buffer.persistent else constants
            kept[spec.buffer.arg.name] = spec.buffer.buffer_name
        elif spec.tensor_constant is not None:
            constants[spec.tensor_constant.arg.name] = spec.tensor_constant.tensor_constant_name
        elif spec.user_input is not None and spec.user_input.arg.as_tensor is not None:
            inputs.append(spec.user_input.arg.as_tensor.name)
        elif spec.user_input is None:
            raise ExportError(
                f"{path}: the program has an input that is neither parameter, buffer nor tensor"
                " (such as a custom object); make it a registered buffer"
            )
    outputs = tuple(
        spec.user_output.arg.as_tensor.name
        for spec in signature.output_specs
        if spec.user_output is not None and spec.user_output.arg.as_tensor is not None
    )
    known = {*parameters, *buffers, *constants, *inputs}
    nodes = []
    for each in graph.nodes:
        node = _node(each)
        _require_order(path, node, known)
        known.update(node.outputs)
        nodes.append(node)
    for name in (*known, *outputs):
        if name not in tensors or name not in known:
            raise ExportError(f"{path}: the graph does not describe its tensor {name!r}")
    return Program(
        _needed(nodes, outputs), tensors, parameters, buffers, constants, tuple(inputs), outputs
    )


def _needed(nodes: Sequence[Node], outputs: tuple[str, ...]) -> tuple[Node, ...]:
    """Nodes on which the program's outputs depend, and those that change a tensor."""
    wanted, found = set(outputs), []
    for node in reversed(nodes):
        if node.has_effects or not wanted.isdisjoint(node.outputs):
            wanted.update(node.reads)
            found.append(node)
    return tuple(reversed(found))


_Model = TypeVar("_Model", bound=BaseModel)


def _validated(model: type[_Model], document: object, path: Path) -> _Model:
    try:
        return model.model_validate(document)
    except ValidationError as error:
        raise ExportError(f"not an exported program: {explain(error, model, str(path))}") from None


def meta_of(path: Path, name: str, meta: MetaDocument) -> TensorMeta:
    """Read the layout of a tensor. Raises :class:`ExportError` if its sizes are not fixed."""

    def fixed(sizes: Sequence[Mapping[str, object]]) -> tuple[int, ...]:
        found = []
        for size in sizes:
            value = size.get("as_int")
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise ExportError(
                    f"{path}: {name} has a size that is not fixed; export without dynamic shapes"
                )
            found.append(value)
        return tuple(found)

    shape, strides = fixed(meta.sizes), fixed(meta.strides)
    if len(shape) != len(strides):
        raise ExportError(f"{path}: {name} has {len(shape)} sizes and {len(strides)} strides")
    return TensorMeta(
        meta.dtype, shape, strides, fixed([meta.storage_offset])[0], meta.requires_grad
    )


# What a node's argument may be, by the key under which it stands.
_PLAIN = frozenset({"as_int", "as_bool", "as_string", "as_float"})
_PLAIN_LISTS = frozenset({"as_ints", "as_bools", "as_strings", "as_floats"})


def _argument(argument: Mapping[str, object]) -> Argument:
    match list(argument.items()):
        case [("as_none", _)]:
            return None
        case [("as_tensor", {"name": str(name)})]:
            return Reference(name)
        case [("as_float", ("Infinity" | "-Infinity" | "NaN") as text)]:
            return float(text)
        case [(key, (bool() | int() | float() | str()) as value)] if key in _PLAIN:
            return value
        case [(key, list(values))] if key in _PLAIN_LISTS:
            return tuple(value for value in values if isinstance(value, bool | int | float | str))
        case [("as_tensors", list(values))]:
            return tuple(_argument({"as_tensor": value}) for value in values)
        case [("as_optional_tensors", list(values))]:
            return tuple(_argument(value) for value in values if isinstance(value, dict))
        case [("as_optional_tensor", dict(value))]:
            return _argument(value)
        case _:
            return Unreadable(", ".join(map(str, argument)))


def _node(document: NodeDocument) -> Node:
    outputs: list[str] = []
    for each in document.outputs:
        value = _argument(each)
        parts = value if isinstance(value, tuple) else (value,)
        outputs.extend(part.name for part in parts if isinstance(part, Reference))
    module, kind = _module(document.metadata.get("nn_module_stack", ""))
    return Node(
        name=document.name or (outputs[0] if outputs else document.target),
        target=document.target.removeprefix("torch.ops."),
        arguments={each.name: _argument(each.arg) for each in document.inputs},
        outputs=tuple(outputs),
        place=_place(document.metadata.get("stack_trace", "")),
        module=module,
        is_leaf=kind.startswith("torch.nn.modules."),
        without_gradient=WITHOUT_GRADIENT in document.metadata,
    )


def _module(stack: str) -> tuple[str, str]:
    """Path and type of the innermost module of ``KEY,PATH,TYPE;KEY,PATH,TYPE``."""
    _, _, innermost = stack.rpartition(";")
    parts = innermost.split(",")
    return (parts[1], parts[2]) if len(parts) == 3 else ("", "")


_FRAME = re.compile(r'File "(?P<file>[^"]*)", line (?P<line>\d+), in [^\n]*\n(?P<code>[^\n]*)')
_LIBRARIES = (("/site-packages/", "/dist-packages/"), ("/torch/",))


def _place(trace: str) -> str:
    """The innermost line of the trace in the user's own source, or else outside PyTorch."""
    frames = list(_FRAME.finditer(trace))
    for libraries in _LIBRARIES:
        for frame in reversed(frames):
            file = frame["file"]
            if not any(library in file for library in libraries):
                return f"{PurePath(file).name}:{frame['line']} ({frame['code'].strip()})"
    return ""


def _references(value: Argument) -> Iterator[str]:
    if isinstance(value, Reference):
        yield value.name
    elif isinstance(value, tuple):
        for part in value:
            yield from _references(part)


def _require_order(path: Path, node: Node, known: set[str]) -> None:
    for name in node.reads:
        if name not in known:
            raise ExportError(f"{path}: {node.name} reads {name!r}, which nothing has made")
    for name in node.outputs:
        if name in known:
            raise ExportError(f"{path}: {node.name} makes {name!r}, which exists already")
