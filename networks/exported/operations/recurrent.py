"""Recurrent layers and cells: a linear layer makes the gates of the inputs of all steps at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from devices.operation import OpSpec
from networks.exported.construction import Construction, Operation, Unsupported
from networks.exported.operations.joining import join
from networks.exported.program import Node
from networks.exported.views import View
from networks.training.network import GATES, Cell, Value


@dataclass(frozen=True)
class _Direction:
    """One direction of a layer: its parameters, and its states before the first step.

    A state of zeros is None. ``keeps_cell``: the cell after the last step is read.
    """

    part: str
    weight: Value
    hidden_weight: Value
    biases: tuple[Value, ...]
    initial_hidden: Value | None
    initial_cell: Value | None
    reverse: bool = False
    keeps_cell: bool = False


def _run(
    c: Construction, node: Node, cell: Cell, x: Value, batch_first: bool, direction: _Direction
) -> tuple[Value, Value | None]:
    """Append one direction of a layer; returns its output and the cell after the last step."""
    batch, steps = x.shape[:2] if batch_first else x.shape[1::-1]
    rows, hidden = direction.hidden_weight.shape
    bias = len(direction.biases) // 2
    spec = OpSpec.of(
        "linear.forward", rows=batch * steps, in_features=x.shape[2], out_features=rows, bias=bias
    )
    gates = c.layer(
        node,
        spec,
        (x, direction.weight, *direction.biases[:bias]),
        shape=(*x.shape[:2], rows),
        part=".".join(filter(None, (direction.part, "input"))),
    )
    states = [direction.initial_hidden]
    flags = {"initial_hidden": int(direction.initial_hidden is not None)}
    if cell == "lstm":
        states.append(direction.initial_cell)
        flags["initial_cell"] = int(direction.initial_cell is not None)
        flags["final_cell"] = int(direction.keeps_cell)
    spec = OpSpec.of(
        f"{cell}.forward",
        steps=steps,
        batch=batch,
        hidden=hidden,
        bias=bias,
        batch_first=int(batch_first),
        reverse=int(direction.reverse),
        **flags,
    )
    given = tuple(state for state in states if state is not None)
    reads = (gates, direction.hidden_weight, *direction.biases[bias:], *given)
    output = c.layer(node, spec, reads, part=direction.part)
    return output, c.network.layers[-1].writes[-1] if direction.keeps_cell else None


def _state(c: Construction, node: Node, view: View) -> Value | None:
    return None if c.is_zero(view) else c.stored(node, view)


# --- layers -----------------------------------------------------------------------------------


def _layers(cell: Cell) -> Operation:
    """Layers in one or both directions, one after another."""

    def mapped(c: Construction, node: Node) -> None:
        view = c.view(node, "input")
        if len(view.shape) != 3:
            raise Unsupported(f"its input has shape {view.shape}; a batch of sequences has 3 axes")
        of_node = c.plain(node, "batch_first", False)
        x, batch_first = _sequence(c, node, view, of_node)
        directions = _directions(c, node, cell)
        probability = c.plain(node, "dropout", 0.0) if c.plain(node, "train", False) else 0.0
        hidden: list[View] = []
        cells: list[View | None] = []
        for number, layer in enumerate(directions):
            outputs = []
            for direction in layer:
                output, last = _run(c, node, cell, x, batch_first, direction)
                outputs.append(output)
                hidden.append(_last_state(output, batch_first, direction.reverse))
                cells.append(None if last is None else View.whole(last))
            x = join(c, node, outputs, axis=2, part=f"l{number}.joined")
            if probability and number + 1 < len(directions):
                x = _dropped(c, node, x, probability, f"l{number}.dropout")
        result = View.whole(x) if batch_first == of_node else View.whole(x).permuted((1, 0, 2))
        states = [_stacked(c, node, node.outputs[1], [*hidden], "final_hidden")]
        if cell == "lstm":
            states.append(_stacked(c, node, node.outputs[2], cells, "final_cell"))
        c.bind(node, result, *states)

    return mapped


def _sequence(c: Construction, node: Node, view: View, batch_first: bool) -> tuple[Value, bool]:
    """The input as it is stored, and whether its first axis is the batch.

    It is copied only if it is stored in neither order.
    """
    turned = view.permuted((1, 0, 2))
    if not view.is_row_major and turned.is_row_major:
        return c.stored(node, turned), not batch_first
    return c.stored(node, view), batch_first


def _directions(c: Construction, node: Node, cell: Cell) -> list[list[_Direction]]:
    """The layers of a node, each with its one or two directions.

    ``reverse`` is not PyTorch's: other formats have layers with the other direction alone.
    """
    layers = c.plain(node, "num_layers", 1)
    ways = 2 if c.plain(node, "bidirectional", False) else 1
    biases = 2 if c.plain(node, "has_biases", True) else 0
    values = [c.stored(node, view) for view in c.views_of(node, "params")]
    if any(value.kind != "parameter" for value in values):
        raise Unsupported("its weights are computed; only parameters can stand there")
    if layers < 1 or len(values) != layers * ways * (2 + biases):
        raise Unsupported(f"it has {len(values)} parameters", "proj_size=0")
    states = c.views_of(node, "hx") if cell == "lstm" else [c.view(node, "hx")]
    if len(states) != (2 if cell == "lstm" else 1) or len(node.outputs) != len(states) + 1:
        raise Unsupported(f"it has {len(states)} initial states and {len(node.outputs)} results")
    read = _parts_read(c, node.outputs[2], layers * ways) if cell == "lstm" else set()
    found = []
    for number in range(layers * ways):
        weight, hidden_weight, *others = values[number * (2 + biases) :][: 2 + biases]
        _require_matrices(weight, hidden_weight, GATES[cell])
        initial = [_state(c, node, state.part(0, number, 1).without(0)) for state in states]
        suffix = "_reverse" if number % ways else ""
        found.append(
            _Direction(
                part="" if layers * ways == 1 else f"l{number // ways}{suffix}",
                weight=weight,
                hidden_weight=hidden_weight,
                biases=tuple(others),
                initial_hidden=initial[0],
                initial_cell=initial[1] if cell == "lstm" else None,
                reverse=bool(number % ways) or c.plain(node, "reverse", False),
                keeps_cell=number in read,
            )
        )
    return [found[first : first + ways] for first in range(0, len(found), ways)]


def _require_matrices(weight: Value, hidden_weight: Value, gates: int) -> None:
    for value in (weight, hidden_weight):
        if len(value.shape) != 2 or value.shape[0] != gates * hidden_weight.shape[-1]:
            raise Unsupported(f"{value.name} has shape {value.shape}")


def _last_state(output: Value, batch_first: bool, reverse: bool) -> View:
    """The hidden state [batch, hidden] after the last step."""
    time = 1 if batch_first else 0
    last = 0 if reverse else output.shape[time] - 1
    return View.whole(output).part(time, last, 1).without(time)


def _dropped(c: Construction, node: Node, x: Value, probability: float, part: str) -> Value:
    c.dropouts += 1
    spec = OpSpec.of("dropout.forward", elements=x.elements)
    scalars = {"probability": probability, "seed": float(c.dropouts)}
    return c.layer(node, spec, (x,), shape=x.shape, scalars=scalars, part=part)


def _parts_read(c: Construction, name: str, count: int) -> set[int]:
    """Which of a result's parts along the first axis are read."""
    chosen = [_selected(node, count) for node in c.readers(name)]
    if name in c.program.outputs or None in chosen:
        return set(range(count))
    return {part for part in chosen if part is not None}


def _selected(node: Node, count: int) -> int | None:
    """The part along the first axis that a node selects; None if it does anything else."""
    index = node.arguments.get("index")
    selects = node.target == "aten.select.int" and node.arguments.get("dim") == 0
    return index % count if selects and isinstance(index, int) else None


def _stacked(c: Construction, node: Node, name: str, parts: list[View | None], part: str) -> View:
    """States [layers, batch, hidden], of which those that nothing reads are None.

    They are joined only if a node reads them together.
    """
    known = {number: each for number, each in enumerate(parts) if each is not None}
    if len(parts) == len(known) == 1:
        return known[0].within(0)
    together = any(_selected(each, len(parts)) is None for each in c.readers(name))
    if together or name in c.program.outputs:
        rows = [c.stored(node, each.within(0)) for each in known.values()]
        return View.whole(join(c, node, rows, axis=0, part=part))
    c.parts[name] = known
    return View.whole(Value(name, c.program.tensors[name].shape, "activation"))


# --- cells ------------------------------------------------------------------------------------


def _cell(cell: Cell) -> Operation:
    """One step."""

    def mapped(c: Construction, node: Node) -> None:
        x = c.value(node, "input")
        weight, hidden_weight = c.parameter(node, "w_ih"), c.parameter(node, "w_hh")
        _require_matrices(weight, hidden_weight, GATES[cell])
        if len(x.shape) != 2:
            raise Unsupported(f"its input has shape {x.shape}; a batch of rows has 2 axes")
        if c.has(node, "b_ih") != c.has(node, "b_hh"):
            raise Unsupported("it has one of two biases")
        states = c.views_of(node, "hx") if cell == "lstm" else [c.view(node, "hx")]
        if len(states) != (2 if cell == "lstm" else 1):
            raise Unsupported(f"it has {len(states)} initial states")
        direction = _Direction(
            part="",
            weight=weight,
            hidden_weight=hidden_weight,
            biases=(*c.optional_parameter(node, "b_ih"), *c.optional_parameter(node, "b_hh")),
            initial_hidden=_state(c, node, states[0]),
            initial_cell=_state(c, node, states[1]) if cell == "lstm" else None,
            keeps_cell=cell == "lstm" and c.is_read(node.outputs[-1]),
        )
        sequence = Value(x.name, (1, *x.shape), x.kind, x.trained)
        output, last = _run(c, node, cell, sequence, batch_first=False, direction=direction)
        shape = (x.shape[0], hidden_weight.shape[1])
        results = [View.whole(Value(output.name, shape, output.kind))]
        if cell == "lstm":
            unread = Value(node.outputs[-1], shape, "activation")
            results.append(View.whole(unread if last is None else last))
        c.bind(node, *results)

    return mapped


def _packed(_c: Construction, _node: Node) -> None:
    raise Unsupported("it reads packed sequences", "sequences of one length")


_CELLS: tuple[Cell, ...] = ("lstm", "gru", "rnn_tanh", "rnn_relu")
RECURRENT: Mapping[str, Operation] = {
    **{f"{cell}.input": _layers(cell) for cell in _CELLS},
    **{f"{cell}_cell.default": _cell(cell) for cell in _CELLS},
    **{f"{cell}.data": _packed for cell in _CELLS},
}
