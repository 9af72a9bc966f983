"""Construction of a network from the nodes of an exported program."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from devices.errors import InputError
from devices.operation import Operand, OpSpec
from devices.signatures.whole_numbers import MOST
from networks.exported.constants import SHAPE_ONLY, computed
from networks.exported.errors import ExportError
from networks.exported.program import (
    BOOL,
    FLOAT32,
    INT64,
    Argument,
    Node,
    Program,
    Reference,
    TensorMeta,
    Unreadable,
)
from networks.exported.sharing import Sharing
from networks.exported.views import Merged, View
from networks.exported.weights import NUMPY, Arrays
from networks.training.network import Network, Value

_COPIED_AXES = 6
_ZEROS = {"aten.zeros.default", "aten.new_zeros.default", "aten.zeros_like.default"}
_T = TypeVar("_T", bound=int | float | str)


class Unsupported(InputError):
    """An operation cannot be trained here: why, and what would do instead."""

    def __init__(self, why: str, instead: str = "") -> None:
        super().__init__(why)
        self.instead = instead


@dataclass
class Draws:
    """Random numbers for the first axes of a tensor: ``value`` with a probability, or else 0.

    ``seed`` is None of an empty tensor, and of numbers that are drawn evenly from ``least`` to
    ``least`` + 1.
    """

    shape: tuple[int, ...]
    seed: int | None = None
    probability: float = 1.0
    value: float = 1.0
    least: float | None = None


class Construction:
    """A network under construction, and the view that each tensor of the program has become.

    Parameters and buffers get the module's own names. A tensor that shares another's numbers (tied
    weights) gets the first one's name.
    """

    def __init__(
        self, network: Network, program: Program, weights: Arrays, constants: Arrays | None
    ) -> None:
        self.network = network
        self.program = program
        self.views: dict[str, View] = {}
        self.maker: dict[str, Node] = {}
        """The node that made each tensor, if it has one result."""
        self.sharing = Sharing(self.maker, program.tensors)
        self.overwritten: set[str] = set()
        """Tensors that an operation in place has changed."""
        self.kept_constants: dict[str, NDArray[np.float32]] = {}
        """Constants that a layer reads, by the name of their value."""
        self._constants = {name: _unchanged(each) for name, each in program.numbers.items()}
        self._same_constants: dict[tuple[tuple[int, ...], bytes], str] = {}
        self._learning: set[str] = set()
        self._weights = weights
        self.counters: list[str] = []
        """Names of whole-number buffers that count the steps."""
        self.log_softmaxes: set[str] = set()
        """The program's names of logits that only a negative log-likelihood reads."""
        self.joined: dict[tuple[int, tuple[str, ...]], Value] = {}
        """Concatenations by axis and names of their parts."""
        self.parts: dict[str, Mapping[int, View]] = {}
        """Parts along the first axis, by number, of tensors that no layer has joined yet."""
        self.padded: dict[str, tuple[View, tuple[int, ...], tuple[int, ...]]] = {}
        """Padding that convolutions have taken over: the tensor without it, and the zeros before
        and after it along the last axes."""
        self.dropouts = 0
        """Number of operations that draw, each with a seed of its own."""
        self.draws: dict[str, Draws] = {}
        """Tensors of random draws, which no layer makes."""
        self.updated: dict[str, Value] = {}
        """Statistics that an operation updates, as the last one leaves them."""
        self.booleans: set[str] = set()
        """Inputs and buffers that are true or false."""
        self._truths: dict[str, Value] = {}
        self._changeable: set[str] = set()
        self._layers: set[str] = set()
        self._indices: set[str] = set()
        self._converted: dict[tuple[str, bool], Value] = {}
        self._unknown: set[str] = set()
        self._copies: dict[View, Value] = {}
        self._merged: dict[str, Merged] = {}
        self._position = {node.name: number for number, node in enumerate(program.nodes)}
        self._per_module: dict[str, int] = {}
        self._readers: dict[str, list[Node]] = {}
        for node in program.nodes:
            for name in dict.fromkeys(node.reads):
                self._readers.setdefault(name, []).append(node)
            # A batch norm also counts its steps, and an LSTM makes zeros, which become no layers.
            if node.target not in _ZEROS and any(
                program.tensors[name].dtype != INT64 for name in node.outputs
            ):
                self._per_module[node.module] = self._per_module.get(node.module, 0) + 1
        for name, own in program.parameters.items():
            trained = program.tensors[name].requires_grad
            self._add_kept(name, own, weights, trained)
        for name, own in program.buffers.items():
            self._add_kept(name, own, weights, trained=False)
        for name, own in program.constants.items():
            if constants is not None:
                self._add_constant(name, own, constants)
        for name in program.inputs:
            meta = program.tensors[name]
            if meta.dtype not in {FLOAT32, INT64, BOOL}:
                raise ExportError(
                    f"{network.name}: the input {name} is {meta.dtype_name}; float32, int64 and"
                    " bool are allowed"
                )
            if not meta.shape and self.readers(name):
                raise ExportError(
                    f"{network.name}: the input {name} has no axes, and samples are the first axis"
                    " of every input; let the module hold it as a number or a buffer"
                )
            self.views[name] = View.whole(network.input(name, *meta.shape))
            if meta.dtype == BOOL:
                self.booleans.add(name)
                network.truths.add(name)

    def _add_kept(self, name: str, own: str, weights: Arrays, trained: bool) -> None:
        shape, first = self.program.tensors[name].shape, weights.first_name(own)
        if weights.meta(own).shape != shape:
            raise ExportError(
                f"{self.network.name}: {own} has shape {weights.meta(own).shape} among the weights"
                f" and {shape} in the graph"
            )
        self.views[name] = View.whole(Value(first, shape, "parameter", trained))

    def _add_constant(self, name: str, own: str, constants: Arrays) -> None:
        constants.first_name(own)  # refuses a name that is missing
        if constants.meta(own).shape != self.program.tensors[name].shape:
            raise ExportError(f"{self.network.name}: the constant {own} has another shape")
        self._constants[name] = _unchanged(constants[own])

    # --- constants ----------------------------------------------------------------------------

    def constant(self, name: str) -> NDArray[Any] | None:
        """The numbers of a tensor that is the same in every step; None of another tensor."""
        if name in self.program.buffers and name not in self._constants:
            if self.views[name].value.name in self.updated:
                return None
            self._constants[name] = _unchanged(self._weights[self.program.buffers[name]])
        return self._constants.get(name)

    def fold(self, node: Node, operation: str) -> bool:
        """Compute the results of a node that reads constants alone; False if it does not."""
        reads = () if operation in SHAPE_ONLY else node.reads
        if len(node.outputs) != 1 or any(self.constant(name) is None for name in reads):
            return False
        meta = self.meta(node)
        dtype = NUMPY.get(meta.dtype)
        if dtype is None:
            return False
        arguments = {key: self._known(value) for key, value in node.arguments.items()}
        found = computed(operation, arguments, meta.shape, dtype)
        if found is None:
            return False
        if node.is_in_place:
            # All views of the same numbers change; those of the file do not.
            changed = self.constant(node.reads[0]) if node.reads else None
            if changed is None or not changed.flags.writeable or changed.shape != found.shape:
                return False
            if not self._forget(node, changed):
                return False
            changed[...] = found
            found = changed
        self._constants[node.outputs[0]] = found
        return True

    def _forget(self, node: Node, changed: NDArray[Any]) -> bool:
        """Forget what constants that are about to change have become.

        False if a tensor that is not one of them is a view of one, and read later.
        """
        same = {
            name
            for name, numbers in self._constants.items()
            if np.may_share_memory(numbers, changed)
        }
        others = (self.read_after(node) & self.views.keys()) - same
        if any(self.sharing.origin(name) in same for name in others):
            return False
        for name in same:
            self.views.pop(name, None)
        return True

    def _known(self, argument: Argument) -> Any:
        if isinstance(argument, Reference):
            return self.constant(argument.name)
        if isinstance(argument, tuple):
            return tuple(self._known(part) for part in argument)
        return argument

    def begin_to_compute(self, node: Node) -> None:
        """Let the constant that a node changes in place be a tensor, and all its views.

        Numbers of the file stay constants, which nothing may change.
        """
        name = next(iter(node.reads), "")
        base = self.constant(name)
        if not node.is_in_place or base is None or not base.flags.writeable:
            return
        while isinstance(base.base, np.ndarray):
            base = base.base
        key, kept = f"constants.{node.name}.changed", np.array(base, np.float32, order="C")
        self.kept_constants[key] = kept
        self._changeable.add(key)
        value = Value(key, kept.shape, "parameter")
        makers = {output: each for each in self.program.nodes for output in each.outputs}
        start = base.__array_interface__["data"][0]
        for other, numbers in list(self._constants.items()):
            if not np.shares_memory(numbers, base):
                continue
            place = numbers.__array_interface__["data"][0] - start
            strides = tuple(stride // base.itemsize for stride in numbers.strides)
            self.views[other] = View(value, numbers.shape, strides, place // base.itemsize)
            self.maker[other] = makers[other]
            del self._constants[other]

    def constant_of(self, node: Node, name: str) -> NDArray[Any] | None:
        """The numbers of an argument that is a constant."""
        found = node.arguments.get(name)
        return self.constant(found.name) if isinstance(found, Reference) else None

    def new_constant(self, node: Node, part: str, numbers: NDArray[Any]) -> View:
        """A constant that the program does not state, as a tensor."""
        return self._view_of_constant(f"{node.name}.{part}", numbers.astype(np.float32))

    def known_indices(self, name: str, indices: NDArray[Any]) -> Value:
        """Constant indices as a tensor that layers can read: whole numbers of 32 bits."""
        kept = np.ascontiguousarray(indices, np.int32)
        same = (kept.shape, hashlib.sha256(b"indices" + kept.tobytes()).digest())
        key = self._same_constants.setdefault(same, f"constants.{name}.indices")
        self.kept_constants[key] = kept.view(np.float32)
        self._indices.add(key)
        return Value(key, kept.shape, "parameter")

    def _view_of_constant(self, name: str, numbers: NDArray[Any]) -> View:
        """A constant as a tensor that layers can read, without its repetitions."""
        if numbers.dtype.kind in "iub" and (not numbers.size or abs(numbers).max() < MOST):
            numbers = numbers.astype(np.float32)
        if numbers.dtype != np.float32:
            raise Unsupported(f"it computes with the constant {name}, which is not float32")
        once = numbers[tuple(slice(None) if s else slice(1) for s in numbers.strides)]
        kept = np.array(once, order="C")
        same = (kept.shape, hashlib.sha256(kept.tobytes()).digest())
        key, number = self._same_constants.get(same, f"constants.{name}"), 2
        while key in self.kept_constants and same not in self._same_constants:
            key, number = f"constants.{name}.{number}", number + 1  # it was read before a change
        self._same_constants[same] = key
        self.kept_constants[key] = kept
        return View.whole(Value(key, kept.shape, "parameter")).expanded(numbers.shape)

    # --- arguments of a node ------------------------------------------------------------------

    def named(self, name: str) -> View:
        """What a tensor of the program has become."""
        if name not in self.views:
            numbers = self.constant(name)
            assert numbers is not None, f"nothing has become of {name}"
            if numbers.size and (numbers == numbers.flat[0]).all():
                numbers = np.broadcast_to(numbers.flat[0], numbers.shape)
            self.views[name] = self._view_of_constant(name, numbers)
        return self.views[name]

    def number(self, node: Node, name: str) -> float | None:
        """A number, or the only element of a constant; None for another tensor."""
        found = node.arguments.get(name)
        if isinstance(found, Reference):
            constant = self.constant(found.name)
            return None if constant is None or constant.size != 1 else float(constant.item())
        return float(found) if isinstance(found, bool | int | float) else None

    def meta(self, node: Node) -> TensorMeta:
        """Layout of the node's first output in the program."""
        if not node.outputs:
            raise Unsupported("it has no result")
        return self.program.tensors[node.outputs[0]]

    def view(self, node: Node, name: str) -> View:
        """The tensor that an argument names."""
        found = node.arguments.get(name)
        if not isinstance(found, Reference):
            raise Unsupported(f"{name} is not a tensor")
        return self.named(found.name)

    def subject(self, node: Node) -> View:
        """The tensor that the first argument names."""
        return self.view(node, next(iter(node.arguments), "its first argument"))

    def views_of(self, node: Node, name: str) -> list[View]:
        """The tensors of a list argument."""
        found = node.arguments.get(name)
        parts = found if isinstance(found, tuple) else ()
        return [self.named(part.name) for part in parts if isinstance(part, Reference)]

    def expanded(self, view: View, shape: tuple[int, ...]) -> View:
        """The same elements, repeated along new axes and axes of size 1."""
        pairs = zip(reversed(view.shape), reversed(shape), strict=False)
        if len(view.shape) > len(shape) or any(size not in {1, wanted} for size, wanted in pairs):
            raise Unsupported(f"an operand of shape {view.shape} does not fit {shape}")
        return view.expanded(shape)

    def value(self, node: Node, name: str) -> Value:
        """The tensor that an argument names, stored in row-major order."""
        return self.stored(node, self.view(node, name))

    def stored(self, node: Node, view: View) -> Value:
        """A tensor stored in row-major order: that of the view, or a copy."""
        if view.is_row_major:
            return Value(view.value.name, view.shape, view.value.kind, view.value.trained)
        copy = self._copies.get(view)
        if copy is None:
            copy = self._copies[view] = self._copied(node, view)
        return copy

    def _copied(self, node: Node, view: View) -> Value:
        spec = OpSpec.of("strided_copy.forward", **copied_elements(view))
        # Nodes outside torch.no_grad may read the copy, too; what reads it inside stops gradients.
        node = replace(node, without_gradient=False)
        return self.layer(node, spec, (view.value,), shape=view.shape, part="copy")

    def parameter(self, node: Node, name: str) -> Value:
        """The parameter or buffer that an argument names."""
        value = self.value(node, name)
        if value.kind != "parameter":
            raise Unsupported(f"{name} is computed; only a parameter can stand there")
        return value

    def optional_parameter(self, node: Node, name: str) -> tuple[Value, ...]:
        """The parameter that an argument names; empty if it is not given."""
        return (self.parameter(node, name),) if self.has(node, name) else ()

    def has(self, node: Node, name: str) -> bool:
        """Whether an optional tensor is given."""
        return isinstance(node.arguments.get(name), Reference)

    def plain(self, node: Node, name: str, default: _T) -> _T:
        """A number, flag or word; None counts as the default."""
        found: Argument | Any = node.arguments.get(name)
        if found is None:
            return default
        if isinstance(found, bool) != isinstance(default, bool) or not isinstance(
            found, (int, float) if isinstance(default, float) else type(default)
        ):
            raise Unsupported(f"{name} is {_described(found)}")
        return cast(_T, found)

    def integers(self, node: Node, name: str, default: tuple[int, ...]) -> tuple[int, ...]:
        """Whole numbers; a single one counts for every axis, an empty list as the default."""
        found = node.arguments.get(name)
        if found is None or found == ():
            return default
        if isinstance(found, int) and not isinstance(found, bool):
            return (found,) * len(default)
        if isinstance(found, tuple) and all(isinstance(each, int) for each in found):
            numbers = tuple(int(each) for each in found if isinstance(each, int))
            return numbers * len(default) if len(numbers) == 1 < len(default) else numbers
        raise Unsupported(f"{name} is {_described(found)}")

    def axes(self, node: Node, name: str, count: int, default: tuple[int, ...]) -> tuple[int, ...]:
        """Axes of a tensor that has ``count``; a negative one counts from the last."""
        single = node.arguments.get(name)
        found = (single,) if type(single) is int else self.integers(node, name, ()) or default
        if any(not -count <= axis < count for axis in found) or len(set(found)) < len(found):
            raise Unsupported(f"{name} is {found} of a tensor with {count} axes")
        return tuple(axis % count for axis in found)

    def axis(self, node: Node, view: View, name: str = "dim") -> int:
        """One axis of a tensor, 0 by default."""
        return self.axes(node, name, len(view.shape), (0,))[0]

    def require(self, node: Node, **wanted: object) -> None:
        """Refuse arguments that differ from these values, which are their defaults."""
        for name, value in wanted.items():
            found = node.arguments.get(name, value)
            found = value if found is None or found == () else found
            if isinstance(found, tuple) and not isinstance(value, tuple):
                found = value if all(each == value for each in found) else found
            if found != value:
                raise Unsupported(f"{name} is {_described(found)}; only {value} is supported")

    def readers(self, name: str) -> list[Node]:
        """Nodes that read a tensor."""
        return self._readers.get(name, [])

    def is_read(self, name: str) -> bool:
        """Whether a node reads a tensor, or the program returns it."""
        return bool(self.readers(name)) or name in self.program.outputs

    def is_zero(self, view: View) -> bool:
        """Whether all numbers of a view are zero in every step."""
        known = self.kept_constants.get(view.value.name)
        return known is not None and not known.any()

    def reads_unknown(self, node: Node) -> bool:
        """Whether the node reads the result of an unsupported one."""
        return any(name in self._unknown for name in node.reads)

    # --- layers -------------------------------------------------------------------------------

    def layer(
        self,
        node: Node,
        spec: OpSpec,
        reads: tuple[Value, ...],
        *,
        shape: tuple[int, ...] | None = None,
        scalars: Mapping[str, float] | None = None,
        part: str = "",
    ) -> Value:
        """Append an operation and return its first output. ``part`` names one of several.

        Whole numbers of an input become real ones where they are computed with, and these become
        indices where an operation takes such. What is true of an input becomes 1, and what is false
        0, but in a mask of scores.
        """
        reads = tuple(
            self._as_taken(node, spec, operand, self._as_number(node, operand, value))
            for operand, value in zip(spec.reads, reads, strict=True)
        )
        return self._append(node, spec, reads, shape=shape, scalars=scalars, part=part)

    def _append(
        self,
        node: Node,
        spec: OpSpec,
        reads: tuple[Value, ...],
        *,
        shape: tuple[int, ...] | None,
        scalars: Mapping[str, float] | None,
        part: str,
    ) -> Value:
        learns = any(each.trained or each.name in self._learning for each in reads)
        for value in reads:
            if value.name in self.draws:
                raise Unsupported(
                    f"it computes with {value.name}, which is drawn at random or empty",
                    "a product of a tensor with it, drawn for its first axes",
                )
        name = self._layer_name(node, part)
        output = self.network.append(name, spec, reads, shape=shape, scalars=scalars)
        if node.without_gradient:
            self.stop_gradient()
        elif learns:
            self._learning.update(value.name for value in self.network.layers[-1].writes)
        return output

    def _as_number(self, node: Node, operand: Operand, value: Value) -> Value:
        """An operand that is true or false as 1 or 0: the input is 0 where true, else -inf."""
        if value.name not in self.booleans or operand.role == "mask":
            return value
        made = self._truths.get(value.name)
        if made is None:
            spec = OpSpec.of("equal_number.forward", elements=value.elements)
            zero, shape = {"number": 0.0}, value.shape
            made = self._append(node, spec, (value,), shape=shape, scalars=zero, part="truth")
            self._truths[value.name] = made
        return Value(made.name, value.shape, made.kind)

    def _as_taken(self, node: Node, spec: OpSpec, operand: Operand, value: Value) -> Value:
        """The operand as real numbers or as indices, whichever the operation takes."""
        takes_indices = operand.fill == "index"
        if spec.family == "from_integers" or takes_indices == self.has_integers(value):
            return value
        made = self._converted.get((value.name, takes_indices))
        if made is None:
            if takes_indices:
                # A loss knows by itself which labels do not count.
                bound = 0 if spec.family == "weighted_cross_entropy" else operand.index_bound
                if bound > MOST:
                    raise Unsupported(
                        f"its indices are computed and reach {bound - 1}; such numbers are exact"
                        f" up to {MOST}",
                        "indices along a shorter axis, or along one axis after another",
                    )
                kind = OpSpec.of("to_indices.forward", elements=value.elements, bound=bound)
            else:
                kind = OpSpec.of("from_integers.forward", elements=value.elements)
            part = "indices" if takes_indices else "numbers"
            made = self.layer(node, kind, (value,), shape=value.shape, part=part)
            if takes_indices:
                self.stop_gradient()
                self._indices.add(made.name)
            self._converted[value.name, takes_indices] = made
        return Value(made.name, value.shape, made.kind)

    def has_integers(self, value: Value) -> bool:
        """Whether a tensor holds whole numbers of 32 bits."""
        known = self.program.tensors.get(value.name) if value.kind == "input" else None
        is_input = known is not None and known.dtype == INT64
        return is_input or value.name in self._indices

    def has_gradient(self, view: View) -> bool:
        """Whether a tensor depends on something that is trained."""
        return view.value.trained or view.value.name in self._learning

    def stop_gradient(self) -> None:
        """Let no gradient flow through the last layer."""
        self.network.stop_gradient()
        self._learning.difference_update(each.name for each in self.network.layers[-1].writes)

    def detached(self, node: Node, view: View) -> View:
        """The tensor without a gradient, also if what is trained is chosen later.

        An operation in place changes both.
        """
        if view.value.kind == "input" or view.value.name in self.kept_constants:
            return view
        same = self.network.detach(self._layer_name(node, "detached"), view.value)
        return view.of(same)

    def _layer_name(self, node: Node, part: str) -> str:
        alone = node.is_leaf and self._per_module.get(node.module) == 1
        name = node.module if alone else ".".join(filter(None, (node.module, node.name)))
        name = ".".join(filter(None, (name, part)))
        distinct, number = name, 2
        while distinct in self._layers:
            distinct, number = f"{name}{number}", number + 1
        self._layers.add(distinct)
        return distinct

    # --- results ------------------------------------------------------------------------------

    def merged(self, node: Node, name: str = "") -> Merged | None:
        """The tensor that an argument names, by default the first, if its axes are merged ones."""
        found = node.arguments.get(name or next(iter(node.arguments), ""))
        return self._merged.get(found.name) if isinstance(found, Reference) else None

    def bind_merged(self, node: Node, merged: Merged | None) -> None:
        """State of which axes those of the node's output, which is bound already, are merged."""
        if merged is not None:
            self._merged[node.outputs[0]] = merged

    def reshaped_copy(self, node: Node, view: View, shape: tuple[int, ...]) -> View:
        """A copy in another shape."""
        if math.prod(shape) != math.prod(view.shape):
            raise Unsupported(f"it makes shape {shape} of {view.shape}")
        copy = self.stored(node, view)
        return View.whole(Value(copy.name, shape, copy.kind))

    def bind(self, node: Node, *views: View) -> None:
        """State what the node's outputs have become.

        An operation in place changes every view of the tensor that it overwrites.
        """
        if len(views) != len(node.outputs):
            raise Unsupported(f"it has {len(node.outputs)} results in place of {len(views)}")
        for name, view in zip(node.outputs, views, strict=True):
            if view.shape != self.program.tensors[name].shape:
                raise Unsupported(
                    f"its result has shape {view.shape}, in the graph"
                    f" {self.program.tensors[name].shape}"
                )
        if node.without_gradient:
            if node.is_in_place and self.has_gradient(self.subject(node)):
                raise Unsupported("it changes a tensor in place without a gradient (torch.no_grad)")
            views = tuple(self.detached(node, view) for view in views)
        if node.is_in_place:
            self._overwrite(node, views[0])
        self.views.update(zip(node.outputs, views, strict=True))
        self.maker.update(dict.fromkeys(node.outputs, node))

    def _overwrite(self, node: Node, result: View) -> None:
        overwritten = self.subject(node)
        changed = overwritten.value.name
        if changed == result.value.name:
            return
        if overwritten.value.kind != "activation" and changed not in self._changeable:
            raise Unsupported(f"it changes the {overwritten.value.kind} {changed}")
        if not overwritten.has_all or result.strides != overwritten.strides:
            raise Unsupported("it changes a part of a tensor in place", "its form not in place")
        self.change(node, changed, result.value)

    def change(self, node: Node, stored: str, changed: Value) -> None:
        """Let what shares the memory that a node changes in PyTorch be views of a changed tensor.

        Copies that are views of the same stored tensor here stay as they are.

        Raises:
            Unsupported: Something that shares it, or may, is stored elsewhere, and read later.
        """
        sharing, read = self.sharing, node.reads[0]
        root, origin = sharing.root(read), sharing.origin(read)
        same = {name for name in self.views_of_stored(stored) if sharing.root(name) == root}
        others = (self.read_after(node) & self.views.keys()) - same
        if any(sharing.origin(name) == origin for name in others):
            raise Unsupported(
                "it changes a tensor in place, and another that may be a copy is read later",
                "its form not in place",
            )
        self.overwritten |= same
        for name in same:
            self.views[name] = self.views[name].of(changed)
            self._merged.pop(name, None)

    def views_of_stored(self, stored: str) -> set[str]:
        """Tensors of the program that are views of a stored one."""
        return {name for name, view in self.views.items() if view.value.name == stored}

    def read_after(self, node: Node) -> set[str]:
        """Tensors that nodes after this one read."""
        later = self.program.nodes[self._position[node.name] + 1 :]
        return {name for each in later for name in each.reads}.union(self.program.outputs)

    def set_unknown(self, node: Node) -> None:
        """Let nodes after an unsupported one be looked at too."""
        self._unknown.update(node.outputs)
        for name in node.outputs:
            shape = tuple(max(1, size) for size in self.program.tensors[name].shape)
            self.views[name] = View.whole(Value(name, shape, "activation"))


def _unchanged(numbers: NDArray[Any]) -> NDArray[Any]:
    """The same numbers, which no operation in place may change."""
    view = numbers.view()
    view.flags.writeable = False
    return view


def copied_elements(view: View) -> dict[str, int]:
    """Attributes of an operation that copies a view's elements from or to its stored tensor."""
    axes = [axis for axis in zip(view.shape, view.strides, strict=True) if axis[0] > 1]
    if len(axes) > _COPIED_AXES:
        raise Unsupported(f"it copies {len(axes)} axes; {_COPIED_AXES} are possible")
    axes = [(1, 1)] * (_COPIED_AXES - len(axes)) + axes
    return {
        "source": view.value.elements,
        "offset": view.offset,
        **{f"size{axis}": size for axis, (size, _) in enumerate(axes)},
        **{f"stride{axis}": stride for axis, (_, stride) in enumerate(axes)},
    }


Operation: TypeAlias = Callable[[Construction, Node], None]
"""Appends the layers of a node, or raises :class:`Unsupported`."""


def _described(found: object) -> str:
    return f"a {found.kind}" if isinstance(found, Unreadable) else str(found)
