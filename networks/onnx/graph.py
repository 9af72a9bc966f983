"""The graph of an ONNX file as a program."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from networks.exported.constants import MOST_ELEMENTS
from networks.exported.construction import Unsupported
from networks.exported.errors import ExportError
from networks.exported.program import INT64, Argument, Node, Program, Reference, TensorMeta
from networks.exported.refusals import Refusal
from networks.onnx.folding import FOLDED, folded
from networks.onnx.layouts import Blocks, Layout
from networks.onnx.numbers import Numbers, meta_of
from networks.onnx.operation import OnnxOperation
from networks.onnx.operations import TRANSLATIONS
from networks.onnx.roles import Roles

if TYPE_CHECKING:
    from onnx import NodeProto, OperatorSetIdProto, TypeProto

_OWN_SETS = {"", "ai.onnx"}
_SAME_NUMBERS = {
    f"aten.{name}"
    for name in (
        *("alias.default", "to.dtype", "reshape.default", "permute.default", "expand.default"),
        *("slice.Tensor", "select.int"),
    )
}
_MOST_STATED = 4096
"""Elements of the largest constant that decides shapes."""


@dataclass(frozen=True)
class Translated:
    """A program with its arrays, and the nodes that could not be translated.

    ``layouts``: those of parameters that are parts of an initializer, or in another order.
    ``read_twice``: initializers that nodes of one kind read both so and as they are.
    """

    program: Program
    weights: Numbers
    constants: Numbers
    refusals: Sequence[Refusal]
    layouts: Mapping[str, Layout]
    read_twice: Collection[str]


class OnnxGraph:
    """A graph, translated node by node: shapes are inferred, and constants computed."""

    def __init__(
        self,
        path: Path,
        sets: Sequence[OperatorSetIdProto],
        roles: Roles,
        inputs: Mapping[str, TypeProto],
        readers: Mapping[str, Collection[str]],
    ) -> None:
        """Begin with the inputs and initializers.

        Args:
            path: The file, for messages.
            sets: Versions of the sets of operations.
            roles: Initializers, by what they are for.
            inputs: Types of the inputs.
            readers: Kind and operand of each node that reads a tensor, and the words that stand
                for outputs of the graph.
        """
        from onnx import numpy_helper

        self._path, self._roles, self._inputs, self._readers = path, roles, inputs, readers
        self._sets = list(sets)
        self._version = version_of(sets)
        self._constants: dict[str, NDArray[Any]] = {}
        self._types: dict[str, TypeProto] = {}
        self._unknown: set[str] = set()
        self._layouts: dict[str, Layout] = {}
        self._laid_out: dict[str, NDArray[Any]] = {}
        self._nodes: list[Node] = []
        self._made_at: dict[str, int] = {}
        self._tensors: dict[str, TensorMeta] = {}
        self._refusals: list[Refusal] = []
        self._tensor = numpy_helper.from_array
        for name, type_of in inputs.items():
            self._define(name, type_of)
        for name, numbers in {**roles.trained, **roles.kept}.items():
            self._define_array(name, numbers)
            self._tensors[name] = meta_of(numbers.dtype, numbers.shape, name in roles.trained)
        for name, numbers in roles.constants.items():
            self._define_constant(name, numbers)

    def translated(self, nodes: Sequence[NodeProto], outputs: tuple[str, ...]) -> Translated:
        """Translate the nodes.

        Raises:
            ExportError: A node reads what nothing before it makes, or two make the same.
        """
        for node in nodes:
            self._add(node)
        for name in outputs:
            if name not in self._unknown and name not in self._types:
                raise ExportError(f"{self._path}: nothing makes the output {name!r}")
        used = {name for node in self._nodes for name in node.reads}.union(outputs)
        trained = {name: name for name in self._roles.trained if name in used}
        laid_out = {_laid(name): name for name in self._laid_out if _laid(name) in used}
        kept = {name: name for name in self._roles.kept if name in used}
        constants = {name: name for name in self._constants if name in used}
        arrays = {**self._roles.trained, **self._roles.kept, **self._laid_out}
        parameters = {**trained, **laid_out}
        inputs = tuple(self._inputs)
        return Translated(
            Program(
                tuple(self._nodes), self._tensors, parameters, kept, constants, inputs, outputs
            ),
            Numbers(
                {name: arrays[name] for name in (*parameters.values(), *kept)},
                parameters.values(),
            ),
            Numbers({name: self._constants[name] for name in constants}),
            self._refusals,
            {name: self._layouts[name] for name in laid_out.values()},
            {self._layouts[name].initializer for name in laid_out.values()} & trained.keys(),
        )

    # --- what translations ask for ------------------------------------------------------------

    def constant(self, name: str) -> NDArray[Any] | None:
        """The numbers of a tensor that is the same in every step and not trained."""
        return self._constants.get(name)

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a tensor."""
        return self._tensors[name].shape

    def is_whole(self, name: str) -> bool:
        """Whether the elements of a tensor are integers."""
        return self._tensors[name].dtype == INT64

    def is_given(self, name: str) -> bool:
        """Whether a tensor is an input, perhaps in another shape."""
        while name in self._made_at:
            node = self._nodes[self._made_at[name]]
            if node.target not in _SAME_NUMBERS:
                return False
            name = node.reads[0]
        return name in self._inputs

    def is_read(self, name: str) -> bool:
        """Whether a node reads a tensor, or the graph returns it."""
        return name in self._readers

    def laid_out(self, name: str, part: str, blocks: Blocks) -> Reference | None:
        """Blocks of an initializer as a parameter; None if other operations read it too."""
        own = f"{name}.{part}" if part else name
        if (known := self._constants.get(name)) is not None:
            self._define_constant(_laid(own), np.concatenate(blocks(known)))
            return Reference(_laid(own))
        array = self._roles.trained.get(name)
        if array is None or len(set(self._readers[name])) > 1:
            return None
        if own not in self._laid_out:
            if own != name and own in self._types:
                raise Unsupported(f"another tensor has the name of its part {own}")
            self._layouts[own] = Layout(name, array.shape, blocks)
            numbers = self._laid_out[own] = self._layouts[own].read(array)
            self._tensors[_laid(own)] = meta_of(numbers.dtype, numbers.shape, requires_grad=True)
        return Reference(_laid(own))

    def state(self, name: str, numbers: NDArray[Any]) -> Reference:
        """A constant that the file does not have."""
        self._define_constant(name, numbers)
        return Reference(name)

    def with_bias(self, product: str, bias: str, total: str) -> bool:
        """Add a bias to the linear layer without one that made ``product``, if it can have one."""
        made = self._made_at.get(product)
        if made is None or bias not in self._roles.trained or len(self._readers[product]) > 1:
            return False
        node, shape = self._nodes[made], self.shape(total)
        if node.target != "aten.linear.default" or "bias" in node.arguments:
            return False
        if self.shape(product) != shape or self.shape(bias) != shape[-1:]:
            return False
        arguments = {**node.arguments, "bias": Reference(bias)}
        self._nodes[made] = replace(node, arguments=arguments, outputs=(total,))
        return True

    def append(
        self,
        operation: OnnxOperation,
        target: str,
        arguments: Mapping[str, Argument],
        shapes: Mapping[str, tuple[int, ...]],
    ) -> Reference:
        """Append a node that makes tensors of these names and shapes; return the first."""
        first, *_ = shapes
        for name, shape in shapes.items():
            if name not in self._tensors:
                self._tensors[name] = meta_of(np.float32, shape)
        node = Node(
            name=operation.name.strip("/").replace("/", ".") or operation.kind,
            target=f"aten.{target}",
            arguments=arguments,
            outputs=tuple(shapes),
            place=_place(operation.name),
            module="",
            is_leaf=False,
            without_gradient=False,
            stated=operation.kind,
        )
        self._made_at.update(dict.fromkeys(node.outputs, len(self._nodes)))
        self._nodes.append(node)
        return Reference(first)

    # --- nodes --------------------------------------------------------------------------------

    def _add(self, node: NodeProto) -> None:
        reads = [name for name in node.input if name]
        for name in reads:
            if name not in self._types and name not in self._unknown:
                raise ExportError(
                    f"{self._path}: {node.name or node.op_type} reads {name!r}, which nothing"
                    " before it makes"
                )
        for name in node.output:
            if name in self._types or name in self._unknown:
                raise ExportError(f"{self._path}: two nodes or inputs make {name!r}")
        count, refused = len(self._nodes), ""
        try:
            _require_known(node)
            if self._unknown.isdisjoint(reads):
                self._translate(node)
                return
        except Unsupported as error:
            del self._nodes[count:]
            name, refused = node.name or next(iter(node.output), ""), str(error)
            stated = node.op_type if node.domain in _OWN_SETS else f"{node.domain}.{node.op_type}"
            self._refusals.append(Refusal(stated, refused, error.instead, _place(name)))
        for name in filter(None, node.output):
            self._types.pop(name, None)
            self._unknown.add(name)

    def _translate(self, node: NodeProto) -> None:
        for name, type_of in self._output_types(node).items():
            self._define(name, type_of)
        operands = {name: self._constants[name] for name in node.input if name in self._constants}
        if node.op_type == "Shape":
            shape = np.asarray(self.shape(node.input[0]), np.int64)
            ends = {each.name: each.i for each in node.attribute}
            found: Sequence[NDArray[Any]] | None = [shape[ends.get("start", 0) : ends.get("end")]]
        elif node.op_type in FOLDED and all(not name or name in operands for name in node.input):
            found = self._computed(node, operands)
        else:
            found = None
        if found is not None:
            for name, numbers in zip(node.output, found, strict=False):
                self._define_constant(name, numbers)
            return
        translation = TRANSLATIONS.get(node.op_type)
        if translation is None:
            raise Unsupported("its operands are computed, or too large; it may read constants only")
        translation(OnnxOperation.of(node, self._version, self))

    def _output_types(self, node: NodeProto) -> dict[str, TypeProto]:
        from onnx.checker import ValidationError
        from onnx.defs import SchemaError, get_schema
        from onnx.shape_inference import InferenceError, infer_node_outputs

        if node.op_type == "Gelu" and self._version < 20 and len(node.input) == 1:
            # This set lacks it; it was composed.
            return {node.output[0]: self._types[node.input[0]]}
        types = {name: self._types[name] for name in node.input if name}
        stated = {
            name: self._tensor(self._constants[name], name)
            for name in types
            if name in self._constants and self._constants[name].size <= _MOST_STATED
        }
        try:
            schema = get_schema(node.op_type, self._version, "")
            found = infer_node_outputs(schema, node, types, stated, opset_imports=self._sets)
        except SchemaError:
            raise Unsupported("not among the operations that can be trained here") from None
        except ValidationError as error:
            raise Unsupported(f"it is not valid: {_first_line(error)}") from None
        except (InferenceError, RuntimeError, ValueError, TypeError, KeyError) as error:
            raise Unsupported(f"its shapes do not fit: {_first_line(error)}") from None
        for name in filter(None, node.output):
            if name not in found or _fixed_shape(found[name]) is None:
                raise Unsupported(f"the shape of its result {name} is not fixed")
        return {name: found[name] for name in filter(None, node.output)}

    def _computed(
        self, node: NodeProto, operands: Mapping[str, NDArray[Any]]
    ) -> Sequence[NDArray[Any]] | None:
        """The results of a node; None if they are too large or cannot be computed."""
        shapes = [self.shape(name) for name in node.output if name]
        if any(math.prod(shape) > MOST_ELEMENTS for shape in shapes):
            return None
        found = folded(node, self._version, operands)
        return found if found and [each.shape for each in found] == shapes else None

    def _define(self, name: str, type_of: TypeProto) -> None:
        from onnx.helper import tensor_dtype_to_np_dtype

        shape = _fixed_shape(type_of)
        assert shape is not None, "only tensors of a fixed shape are defined"
        try:
            dtype = tensor_dtype_to_np_dtype(type_of.tensor_type.elem_type)
        except KeyError:
            raise Unsupported(f"{name} has no known element type") from None
        self._types[name] = type_of
        self._tensors[name] = meta_of(dtype, shape)

    def _define_array(self, name: str, numbers: NDArray[Any]) -> None:
        from onnx.helper import make_tensor_type_proto, np_dtype_to_tensor_dtype

        number = np_dtype_to_tensor_dtype(numbers.dtype)
        self._types[name] = make_tensor_type_proto(number, numbers.shape)
        self._tensors[name] = meta_of(numbers.dtype, numbers.shape)

    def _define_constant(self, name: str, numbers: NDArray[Any]) -> None:
        self._define_array(name, numbers)
        self._constants[name] = numbers


def version_of(sets: Iterable[OperatorSetIdProto]) -> int:
    """Version of ONNX's own set of operations."""
    return next((each.version for each in sets if each.domain in _OWN_SETS), 1)


def _require_known(node: NodeProto) -> None:
    known = node.op_type in TRANSLATIONS or node.op_type in FOLDED
    if node.domain not in _OWN_SETS or not known:
        raise Unsupported("not among the operations that can be trained here")
    if not any(node.output):
        raise Unsupported("it makes nothing")


def _fixed_shape(type_of: TypeProto) -> tuple[int, ...] | None:
    """Shape of a tensor; None if it is not fixed."""
    if not type_of.HasField("tensor_type") or not type_of.tensor_type.HasField("shape"):
        return None
    dims = type_of.tensor_type.shape.dim
    if not all(dim.HasField("dim_value") and dim.dim_value >= 0 for dim in dims):
        return None
    return tuple(dim.dim_value for dim in dims)


def _laid(name: str) -> str:
    """Tensor of a parameter that is laid out for the program."""
    return f"{name} (laid out)"


def _place(name: str) -> str:
    return f"node {name}"


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
