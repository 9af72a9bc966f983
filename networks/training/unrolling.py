"""Unrolling: a recurrent layer as several, each of which does some of the steps of its sequences.

The operations of a recurrent layer have the gates of all steps in RAM, and its gradient has several
tensors of that length. Unrolled, the layer is a chain of layers with the same weights. Each of them
reads some steps of the input, computes their gates, and begins with the state in which the layer
before it ended. The gradients of the weights are sums over the chain, added one after the other as
those of any weight that is read several times. What reads the whole output reads the outputs of the
chain, joined; what reads nothing but steps of one of them, such as the last state, reads these.

A sum over all steps is made in another order than in one layer, so that values differ by rounding.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from devices.operation import ELEMENT_BYTES, OpSpec
from networks.training.network import GATES, Layer, Network, NetworkError, Value

_RECURRENT = frozenset(f"{cell}.forward" for cell in GATES)
_COPY = "strided_copy.forward"
_AXES = range(6)

_MOST_PARTS = 800
"""Most layers that recurrent ones become; the search for schedules takes too long with more, as
each has about twelve operations in a step."""


def unrolled(network: Network, part_bytes: int) -> Network:
    """Unroll the recurrent layers of a network whose gates are large.

    Args:
        network: Forward pass.
        part_bytes: Most bytes of the gates of a layer, which does at least one step. Layers on
            sequences of one length do equally many steps.

    Returns:
        The forward pass with more layers, of the same parameters and inputs; the network itself if
        no gates are larger.

    Raises:
        NetworkError: There would be too many layers.
    """
    most_steps: dict[int, int] = {}
    for layer in network.layers:
        if _is_recurrent(layer):
            steps = layer.spec.attributes["steps"]
            step_bytes = layer.reads[0].elements * ELEMENT_BYTES // steps
            most = max(1, part_bytes // step_bytes)
            most_steps[steps] = min(most, most_steps.get(steps, most))
    if all(most >= steps for steps, most in most_steps.items()):
        return network
    long = [layer.spec.attributes["steps"] for layer in network.layers if _is_recurrent(layer)]
    parts = sum(math.ceil(steps / most_steps[steps]) for steps in long)
    if parts > _MOST_PARTS:
        raise NetworkError(
            f"{network.name}: gates of at most {part_bytes} bytes make {parts} layers of"
            f" {len(long)} recurrent ones, and at most {_MOST_PARTS} can be solved",
            remedy="choose larger slices",
        )
    found = Network(network.name, network.batch)
    found.inputs, found.loss, found.one = network.inputs, network.loss, network.one
    found.truths = network.truths
    found.layers = _Unrolling(network, most_steps).layers()
    return found


def _is_recurrent(layer: Layer) -> bool:
    return layer.spec.kind in _RECURRENT


@dataclass(frozen=True)
class _Range:
    """Some steps of a sequence."""

    first: int
    steps: int

    def __str__(self) -> str:
        return f"[{self.first}:{self.first + self.steps}]"


@dataclass(frozen=True)
class _Layout:
    """Order of sequences: [batch, steps, …] with ``batch_first``, else [steps, batch, …]."""

    batch: int
    steps: int
    batch_first: bool

    @classmethod
    def of_sequence(cls, layer: Layer) -> _Layout:
        """That of a recurrent layer's input and output."""
        a = layer.spec.attributes
        return cls(a["batch"], a["steps"], bool(a["batch_first"]))

    def shape(self, width: int) -> tuple[int, int, int]:
        """Shape of a sequence with ``width`` numbers in each step of a sample."""
        leading = (self.batch, self.steps) if self.batch_first else (self.steps, self.batch)
        return (*leading, width)

    def strides(self, width: int) -> tuple[int, int]:
        """Distances of two samples, and of two steps, in numbers."""
        return (self.steps * width, width) if self.batch_first else (width, self.batch * width)

    def of(self, part: _Range) -> _Layout:
        return replace(self, steps=part.steps)

    def width(self, x: Value) -> int:
        return x.elements // (self.batch * self.steps)

    def copy(self, part: _Range, width: int) -> OpSpec:
        """A copy of some steps of all samples."""
        sample, step = self.strides(width)
        shape = (1, 1, 1, *self.of(part).shape(width))
        strides = (0, 0, 0, *((sample, step) if self.batch_first else (step, sample)), 1)
        return OpSpec.of(
            _COPY,
            source=self.batch * self.steps * width,
            offset=part.first * step,
            **{f"size{axis}": shape[axis] for axis in _AXES},
            **{f"stride{axis}": strides[axis] for axis in _AXES},
        )

    def within(self, copy: OpSpec, part: _Range) -> OpSpec | None:
        """A copy from a sequence as one from some steps of it; None if it has elements of others.

        It is known to have none only if samples are one axis of the copy, or there is one sample.
        """
        a = copy.attributes
        sample, step = self.strides(a["source"] // (self.batch * self.steps))
        strides = {axis: a[f"stride{axis}"] for axis in _AXES if a[f"size{axis}"] > 1}
        offset, moved = a["offset"], {}
        begin, end = part.first * step, (part.first + part.steps) * step
        if self.batch_first:
            of_samples = [axis for axis, stride in strides.items() if stride == sample][:1]
            first, offset = divmod(offset, sample)
            sample_in_part = part.steps * step
            moved = {f"stride{axis}": sample_in_part for axis in of_samples}
            strides = {axis: each for axis, each in strides.items() if axis not in of_samples}
        else:
            first, sample_in_part = 0, 0
        last = offset + sum((a[f"size{axis}"] - 1) * each for axis, each in strides.items())
        if offset < begin or last >= end:
            return None
        source = a["source"] // self.steps * part.steps
        offset = first * sample_in_part + offset - begin
        return OpSpec.of(copy.kind, **{**a, **moved, "source": source, "offset": offset})


@dataclass(frozen=True)
class _InParts:
    """The output of a layer that was unrolled; parts may be read ``apart`` from the others."""

    whole: Value
    layer: str
    layout: _Layout
    parts: Mapping[_Range, Value]
    apart: bool


class _Unrolling:
    """The layers of a network, with recurrent ones unrolled."""

    def __init__(self, network: Network, most_steps: Mapping[int, int]) -> None:
        self._network = network
        self._most_steps = most_steps
        self._readers: dict[str, list[Layer]] = {}
        for layer in network.layers:
            for value in layer.reads:
                self._readers.setdefault(value.name, []).append(layer)
        self._makes_gates = {
            layer.writes[0].name: layer
            for layer in network.layers
            if self._has_rows_of_steps(layer)
        }
        self._read: dict[str, list[_Range]] = {}
        for layer in reversed(network.layers):
            if len(self._ranges(layer)) > 1:
                self._read[layer.name] = self._until_last_read(layer)
        self._in_parts: dict[str, _InParts] = {}
        self._joined: set[str] = set()
        self._layers: list[Layer] = []

    def layers(self) -> list[Layer]:
        for layer in self._network.layers:
            if len(self._ranges(layer)) > 1:
                self._unroll(layer)
            elif layer.writes[0].name not in self._makes_gates:
                self._layers.append(self._reading_a_part(layer) or self._reading_wholes(layer))
        return self._layers

    def _ranges(self, layer: Layer) -> list[_Range]:
        """The steps of each layer that stands for a recurrent one, in the order of time."""
        if not _is_recurrent(layer):
            return []
        a = layer.spec.attributes
        steps, most = a["steps"], self._most_steps[a["steps"]]
        each = math.ceil(steps / math.ceil(steps / most))
        found = [_Range(first, min(each, steps - first)) for first in range(0, steps, each)]
        return found[::-1] if a["reverse"] else found

    def _has_rows_of_steps(self, layer: Layer) -> bool:
        """Whether a linear layer makes nothing but the gates of a layer that is unrolled."""
        output = layer.writes[0].name
        readers = self._readers.get(output, [])
        if layer.spec.kind != "linear.forward" or len(readers) != 1:
            return False
        (reader,) = readers
        return len(self._ranges(reader)) > 1 and reader.reads[0].name == output

    def _until_last_read(self, layer: Layer) -> list[_Range]:
        """The steps of each layer until the last one of which anything reads the output.

        Those after it would have no gradient.
        """
        ranges, read = self._ranges(layer), self._parts_read(layer)
        if not read or layer.spec.attributes.get("final_cell"):
            return ranges
        last = max(number for number, part in enumerate(ranges) if part in read)
        return ranges[: last + 1]

    def _parts_read(self, layer: Layer) -> set[_Range]:
        """The steps of the layers of which anything reads the output."""
        ranges, layout = self._ranges(layer), _Layout.of_sequence(layer)
        readers = self._readers.get(layer.writes[0].name, [])
        return {part for reader in readers for part in self._steps_read(reader, layout, ranges)}

    def _steps_read(
        self, reader: Layer, layout: _Layout, ranges: Sequence[_Range]
    ) -> Sequence[_Range]:
        if reader.spec.kind == _COPY:
            found = [part for part in ranges if layout.within(reader.spec, part) is not None]
            return found or ranges
        if reader.writes[0].name in self._makes_gates:
            (then,) = self._readers[reader.writes[0].name]
            if _Layout.of_sequence(then) == layout:
                return self._read[then.name]
        return ranges

    # --- recurrent layers -------------------------------------------------------------------------

    def _unroll(self, layer: Layer) -> None:
        layout = _Layout.of_sequence(layer)
        for value in layer.reads[1:]:  # an initial state may be the output of another such layer
            self._join(value)
        outputs: dict[_Range, Value] = {}
        state: dict[str, Value] = {}
        *earlier, last = self._read[layer.name]
        for part in earlier:
            done = self._some_steps(layer, layout, part, state, is_last=False)
            outputs[part] = done["output"]
            state = {
                "initial_hidden": self._last_hidden(layer, layout.of(part), part, outputs[part])
            }
            if "final_cell" in done:
                state["initial_cell"] = done["final_cell"]
        outputs[last] = self._some_steps(layer, layout, last, state, is_last=True)["output"]
        whole = layer.writes[0]
        in_order = dict(sorted(outputs.items(), key=lambda item: item[0].first))
        # The gradient of a layer that hands on a final cell needs one of its output, too: that of
        # the last layer comes from the whole output if nothing reads its own part of it.
        apart = not layer.spec.attributes.get("final_cell") or last in self._parts_read(layer)
        self._in_parts[whole.name] = _InParts(whole, layer.name, layout, in_order, apart)

    def _some_steps(
        self,
        layer: Layer,
        layout: _Layout,
        part: _Range,
        state: Mapping[str, Value],
        *,
        is_last: bool,
    ) -> dict[str, Value]:
        """Append the layer for some steps, from a state on; returns its results by role.

        Layers of an LSTM hand their final cell on; the last one has that of the whole layer, if
        that is read.
        """
        attributes = {**layer.spec.attributes, **dict.fromkeys(state, 1), "steps": part.steps}
        if "final_cell" in attributes and not is_last:
            attributes["final_cell"] = 1
        spec = OpSpec.of(layer.spec.kind, **attributes)
        read = {
            operand.role: value
            for operand, value in zip(layer.spec.reads, layer.reads, strict=True)
        }
        read |= {**state, "input_gates": self._gates(layer, layout, part)}
        written = {
            operand.role: Value(f"{layer.name}{part}.{operand.role}", operand.shape, "activation")
            for operand in spec.writes
        }
        if is_last:
            roles = [operand.role for operand in layer.spec.writes]
            kept = dict(zip(roles, layer.writes, strict=True))
            written |= {role: kept[role] for role in ("final_cell",) if role in written}
        reads = tuple(read[operand.role] for operand in spec.reads)
        self._append(f"{layer.name}{part}", layer, spec, reads, tuple(written.values()))
        return written

    def _gates(self, layer: Layer, layout: _Layout, part: _Range) -> Value:
        """The input's part of the gates of some steps."""
        linear = self._makes_gates.get(layer.reads[0].name)
        if linear is None:
            return self._steps_of(layer.reads[0], layout, part, layer.name)
        x, *parameters = linear.reads
        a = linear.spec.attributes
        reads = (self._steps_of(x, layout, part, linear.name), *parameters)
        spec = OpSpec.of(linear.spec.kind, **{**a, "rows": layout.batch * part.steps})
        shape = layout.of(part).shape(a["out_features"])
        output = Value(f"{linear.name}{part}.output", shape, "activation")
        self._append(f"{linear.name}{part}", linear, spec, reads, (output,))
        return output

    def _steps_of(self, x: Value, layout: _Layout, part: _Range, reader: str) -> Value:
        """Some steps of a sequence: the output of a layer for just these, or a copy."""
        known = self._in_parts.get(x.name)
        if known is not None and known.apart and known.layout == layout and part in known.parts:
            return known.parts[part]
        self._join(x)
        width = layout.width(x)
        shape = layout.of(part).shape(width)
        return self._copy(x, layout.copy(part, width), shape, f"{reader}{part}.steps")

    def _last_hidden(self, layer: Layer, layout: _Layout, part: _Range, output: Value) -> Value:
        """The hidden state [batch, hidden] after some steps, of which ``output`` is the output."""
        hidden = layer.spec.attributes["hidden"]
        shape = (layout.batch, hidden)
        if part.steps == 1:
            return replace(output, shape=shape)
        last = _Range(0 if layer.spec.attributes["reverse"] else part.steps - 1, 1)
        return self._copy(output, layout.copy(last, hidden), shape, f"{layer.name}{part}.state")

    # --- readers of their outputs -----------------------------------------------------------------

    def _reading_a_part(self, layer: Layer) -> Layer | None:
        """A copy of steps of a sequence as one from a part that has them all."""
        known = self._in_parts.get(layer.reads[0].name)
        if known is None or not known.apart or layer.spec.kind != _COPY:
            return None
        for part, value in known.parts.items():
            spec = known.layout.within(layer.spec, part)
            if spec is not None:
                return replace(layer, spec=spec, reads=(value,))
        return None

    def _reading_wholes(self, layer: Layer) -> Layer:
        for value in layer.reads:
            self._join(value)
        return layer

    def _join(self, x: Value) -> None:
        """Append the concatenations that make one tensor of its parts, if nothing has done so."""
        known = self._in_parts.get(x.name)
        if known is None or x.name in self._joined:
            return
        self._joined.add(x.name)
        parts = list(known.parts.items())
        while len(parts) > 1:  # neighbours first: each number is copied once for each doubling
            pairs = [parts[at : at + 2] for at in range(0, len(parts), 2)]
            parts = [pair[0] if len(pair) == 1 else self._two(known, *pair) for pair in pairs]

    def _two(
        self, of: _InParts, left: tuple[_Range, Value], right: tuple[_Range, Value]
    ) -> tuple[_Range, Value]:
        """Append the concatenation of two neighbours."""
        outer = of.layout.batch if of.layout.batch_first else 1
        spec = OpSpec.of(
            "concat.forward",
            outer=outer,
            left_inner=left[1].elements // outer,
            right_inner=right[1].elements // outer,
        )
        part = _Range(left[0].first, left[0].steps + right[0].steps)
        name = of.layer if part.steps == of.layout.steps else f"{of.layer}{part}.joined"
        shape = of.layout.of(part).shape(of.layout.width(of.whole))
        output = of.whole if name == of.layer else Value(f"{name}.output", shape, "activation")
        self._layers.append(Layer(name, spec, (left[1], right[1]), (output,), {}))
        return part, output

    # --- appending --------------------------------------------------------------------------------

    def _copy(self, x: Value, spec: OpSpec, shape: tuple[int, ...], name: str) -> Value:
        output = Value(f"{name}.output", shape, "activation")
        self._layers.append(Layer(name, spec, (x,), (output,), {}))
        return output

    def _append(
        self,
        name: str,
        like: Layer,
        spec: OpSpec,
        reads: tuple[Value, ...],
        writes: tuple[Value, ...],
    ) -> None:
        self._layers.append(replace(like, name=name, spec=spec, reads=reads, writes=writes))
