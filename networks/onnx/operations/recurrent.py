"""Recurrent layers, as PyTorch, Keras and tf2onnx write them.

ONNX packs the directions of a layer into one array; the gates are in its own order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from networks.exported.construction import Unsupported
from networks.exported.program import Argument, Reference
from networks.onnx.operation import OnnxOperation, Translation

_WAYS = ("forward", "reverse", "bidirectional")
_GATES: Mapping[str, tuple[int, ...]] = {"LSTM": (0, 2, 3, 1), "GRU": (1, 0, 2), "RNN": (0,)}
"""Places in ONNX of the gates in PyTorch's order: i, f, g, o of an LSTM; r, z, n of a GRU."""
_FUNCTIONS: Mapping[str, Sequence[str]] = {
    "LSTM": ("sigmoid", "tanh", "tanh"),
    "GRU": ("sigmoid", "tanh"),
}
_UNTRAINED = "a weight that no other operation reads"


def _recurrent(op: OnnxOperation) -> None:
    layer = _Layer(op)
    target = "lstm.input" if op.kind == "LSTM" else "gru.input"
    if op.kind == "RNN":
        target = f"rnn_{layer.functions()[0]}.input"
    elif layer.functions() != _FUNCTIONS[op.kind]:
        wanted = ", ".join(_FUNCTIONS[op.kind])
        raise Unsupported(f"its activations are {', '.join(layer.functions())}; only {wanted}")
    if op.kind == "GRU" and not op.integer("linear_before_reset", 0):
        raise Unsupported(
            "it resets the state before the product (linear_before_reset=0)",
            "reset_after=True in Keras, or linear_before_reset=1",
        )
    layer.require_plain()
    states = [layer.state(5, "initial_h")]
    if op.kind == "LSTM":
        states.append(layer.state(6, "initial_c"))
    layer.append(target, states)


class _Layer:
    """A node with the sizes of its layer."""

    def __init__(self, op: OnnxOperation) -> None:
        self._op = op
        way = op.text("direction", "forward")
        if way not in _WAYS:
            raise Unsupported(f"its direction is {way}")
        self._is_reverse = way == "reverse"
        self._ways = 2 if way == "bidirectional" else 1
        self._batch_first = bool(op.integer("layout", 0))
        first, second, self._features = op.shape()
        self._batch, self._steps = (first, second) if self._batch_first else (second, first)
        self._hidden = op.shape(2)[-1]
        rows = len(_GATES[op.kind]) * self._hidden
        wanted = (self._ways, rows, self._features), (self._ways, rows, self._hidden)
        if (op.shape(1), op.shape(2)) != wanted or (
            op.has(3) and op.shape(3) != (self._ways, 2 * rows)
        ):
            raise Unsupported(f"its weights have shapes {op.shape(1)} and {op.shape(2)}")

    def functions(self) -> Sequence[str]:
        """Activations, which must be those of both directions."""
        usual = _FUNCTIONS.get(self._op.kind, ("tanh",))
        stated = self._op.attributes.get("activations")
        if not isinstance(stated, tuple | list) or not stated:
            return usual
        words = [_word(each) for each in stated]
        one, other = words[: len(usual)], words[len(usual) :]
        if (other and one != other) or not set(one) <= {"sigmoid", "tanh", "relu"}:
            raise Unsupported(f"its activations are {', '.join(words)}")
        return tuple(one)

    def require_plain(self) -> None:
        """Refuse what the recurrent operations do not have."""
        op = self._op
        op.require(input_forget=0)
        for name in ("clip", "activation_alpha", "activation_beta"):
            if name in op.attributes:
                raise Unsupported(f"it states {name}")
        if op.has(4) and not (op.known(4) == self._steps).all():
            raise Unsupported("its sequences have several lengths", "sequences of one length")
        if op.kind == "LSTM" and op.has(7) and op.known(7).any():
            raise Unsupported("it has peepholes", "an LSTM without them")

    def state(self, position: int, name: str) -> Reference:
        """States [directions, batch, hidden] before the first step; zeros if they are not given."""
        op, shape = self._op, (self._ways, self._batch, self._hidden)
        if not op.has(position):
            return op.program.state(f"{op.name}.{name}", np.zeros(shape, np.float32))
        if not self._batch_first:
            return op.tensor(position)
        return op.step(name, "permute.default", shape, self=op.tensor(position), dims=(1, 0, 2))

    def append(self, target: str, states: Sequence[Reference]) -> None:
        """Append the layer, and what brings its results into ONNX's order."""
        op, width = self._op, self._ways * self._hidden
        outputs = [*op.outputs, "", "", ""][: 1 + len(states)]
        last = (self._ways, self._batch, self._hidden)
        named = [f"{op.outputs[0] or op.name}.{part}" for part in ("all", "hidden", "cell")]
        turned = (self._batch, self._ways, self._hidden) if self._batch_first else last
        finals = [
            named[number] if self._batch_first or not name else name
            for number, name in enumerate(outputs[1:], 1)
        ]
        together: Argument = tuple(states) if len(states) > 1 else states[0]
        leading = (self._batch, self._steps) if self._batch_first else (self._steps, self._batch)
        arguments: dict[str, Argument] = {
            "input": op.tensor(),
            "hx": together,
            "params": tuple(self._parameters()),
            "has_biases": op.has(3),
            "num_layers": 1,
            "bidirectional": self._ways == 2,
            "batch_first": self._batch_first,
            "reverse": self._is_reverse,
        }
        shapes = {named[0]: (*leading, width), **dict.fromkeys(finals, last)}
        made = op.program.append(op, target, arguments, shapes)
        if outputs[0]:
            apart = (*leading, self._ways, self._hidden)
            view = op.step("apart", "view.default", apart, self=made, size=apart)
            order = (0, 1, 2, 3) if self._batch_first else (0, 2, 1, 3)
            whole = {outputs[0]: tuple(apart[axis] for axis in order)}
            op.program.append(op, "permute.default", {"self": view, "dims": order}, whole)
        for name, final in zip(outputs[1:], finals, strict=True):
            if name and self._batch_first:
                exchange: dict[str, Argument] = {"self": Reference(final), "dims": (1, 0, 2)}
                op.program.append(op, "permute.default", exchange, {name: turned})

    def _parameters(self) -> list[Reference]:
        """Weights and biases of each direction, in PyTorch's order."""
        found = []
        for way in range(self._ways):
            part = "" if self._ways == 1 else _WAYS[way]
            found += [self._gates(1, way, part), self._gates(2, way, part)]
            if self._op.has(3):
                found += [
                    self._gates(3, way, f"{part}.{name}".strip("."), half)
                    for half, name in enumerate(("input", "hidden"))
                ]
        return found

    def _gates(self, position: int, way: int, part: str, half: int = 0) -> Reference:
        rows = len(_GATES[self._op.kind]) * self._hidden
        blocks = partial(_blocks, way, _GATES[self._op.kind], self._hidden, half * rows)
        found = self._op.program.laid_out(self._op.input(position), part, blocks)
        if found is None:
            name = self._op.input(position)
            raise Unsupported(f"{name} is computed, or read elsewhere", _UNTRAINED)
        return found


def _blocks(
    way: int, gates: tuple[int, ...], hidden: int, first: int, array: NDArray[Any]
) -> list[NDArray[Any]]:
    starts = [first + gate * hidden for gate in gates]
    return [array[way, start : start + hidden] for start in starts]


def _word(stated: object) -> str:
    return (stated.decode(errors="replace") if isinstance(stated, bytes) else str(stated)).lower()


RECURRENT: Mapping[str, Translation] = dict.fromkeys(_GATES, _recurrent)
