"""Recurrent layers. The input's part of their gates is made by ``linear``, for all steps at once.

A sequence is [steps, batch, width], or [batch, steps, width] with ``batch_first``. With
``reverse``, the last element of a sequence is the first step. Initial states are read only where
their attribute says so, and are zero otherwise. LSTM's ``final_cell`` is the cell after the last
step; the hidden state after it is a part of the output.
"""

from __future__ import annotations

from devices.signatures.base import Attributes, Operand, Signature, define

KINDS: dict[str, Signature] = {}

_ATTRIBUTES = ("steps", "batch", "hidden", "bias", "batch_first", "reverse", "initial_hidden")
_LSTM = (*_ATTRIBUTES, "initial_cell", "final_cell")


def _sequence(a: Attributes, role: str, gates: int = 1) -> Operand:
    axes = (a["batch"], a["steps"]) if a["batch_first"] else (a["steps"], a["batch"])
    return Operand(role, (*axes, gates * a["hidden"]))


def _state(a: Attributes, name: str, suffix: str = "") -> tuple[Operand, ...]:
    """The state of all samples before or after the sequence, if the attribute ``name`` is set."""
    return (Operand(name + suffix, (a["batch"], a["hidden"])),) if a[name] else ()


def _parameters(a: Attributes, gates: int, suffix: str = "") -> tuple[Operand, ...]:
    rows = gates * a["hidden"]
    weight = Operand(f"hidden_weight{suffix}", (rows, a["hidden"]))
    return (weight, Operand(f"hidden_bias{suffix}", (rows,))) if a["bias"] else (weight,)


def _weight(a: Attributes, gates: int) -> Operand:
    return _parameters(a, gates)[0]


def _flop(a: Attributes, gates: int, per_state: int) -> int:
    """Matrix products of all steps, and ``per_state`` for each number of the output."""
    states = _sequence(a, "output").elements
    return states * (2 * gates * a["hidden"] + per_state)


define(
    KINDS,
    "lstm.forward",
    _LSTM,
    lambda a: (
        _sequence(a, "input_gates", 4),
        *_parameters(a, 4),
        *_state(a, "initial_hidden"),
        *_state(a, "initial_cell"),
    ),
    lambda a: (
        _sequence(a, "output"),
        _sequence(a, "cells"),
        _sequence(a, "gates", 4),
        *_state(a, "final_cell"),
    ),
    lambda a: _flop(a, 4, 54 + 4 * a["bias"]),
    in_place={"gates": "input_gates"},
)
define(
    KINDS,
    "lstm.input_gradient",
    _LSTM,
    lambda a: (
        _sequence(a, "gates", 4),
        _sequence(a, "cells"),
        _weight(a, 4),
        _sequence(a, "output_gradient"),
        *_state(a, "initial_cell"),
        *_state(a, "final_cell", "_gradient"),
    ),
    lambda a: (
        _sequence(a, "input_gates_gradient", 4),
        *_state(a, "initial_hidden", "_gradient"),
        *_state(a, "initial_cell", "_gradient"),
    ),
    lambda a: _flop(a, 4, 34),
    in_place={"input_gates_gradient": "gates"},
)

define(  # the candidate is the hidden state's part of the third gate
    KINDS,
    "gru.forward",
    _ATTRIBUTES,
    lambda a: (_sequence(a, "input_gates", 3), *_parameters(a, 3), *_state(a, "initial_hidden")),
    lambda a: (_sequence(a, "output"), _sequence(a, "gates", 3), _sequence(a, "candidate")),
    lambda a: _flop(a, 3, 35 + 3 * a["bias"]),
    in_place={"gates": "input_gates"},
)
define(
    KINDS,
    "gru.input_gradient",
    _ATTRIBUTES,
    lambda a: (
        _sequence(a, "gates", 3),
        _sequence(a, "candidate"),
        _sequence(a, "output"),
        _weight(a, 3),
        _sequence(a, "output_gradient"),
        *_state(a, "initial_hidden"),
    ),
    lambda a: (
        _sequence(a, "input_gates_gradient", 3),
        _sequence(a, "candidate_gradient"),
        *_state(a, "initial_hidden", "_gradient"),
    ),
    lambda a: _flop(a, 3, 20),
    in_place={"input_gates_gradient": "gates", "candidate_gradient": "candidate"},
)


def _define_rnn(family: str, activation_flop: int) -> None:
    define(
        KINDS,
        f"{family}.forward",
        _ATTRIBUTES,
        lambda a: (_sequence(a, "input_gates"), *_parameters(a, 1), *_state(a, "initial_hidden")),
        lambda a: (_sequence(a, "output"),),
        lambda a: _flop(a, 1, activation_flop + a["bias"]),
        in_place={"output": "input_gates"},
    )
    define(
        KINDS,
        f"{family}.input_gradient",
        _ATTRIBUTES,
        lambda a: (_sequence(a, "output"), _weight(a, 1), _sequence(a, "output_gradient")),
        lambda a: (
            _sequence(a, "input_gates_gradient"),
            *_state(a, "initial_hidden", "_gradient"),
        ),
        lambda a: _flop(a, 1, 4),
        in_place={"input_gates_gradient": "output_gradient"},
    )


def _define_parameter_gradient(family: str, attributes: tuple[str, ...], gates: int) -> None:
    """Define the gradient of a hidden weight: one matrix product over all steps.

    The candidate's gradient takes the place of the third gate's, whose product it is.
    """
    candidate = ("candidate_gradient",) if family == "gru" else ()
    define(
        KINDS,
        f"{family}.parameter_gradient",
        attributes,
        lambda a: (
            _sequence(a, "output"),
            _sequence(a, "input_gates_gradient", gates),
            *(_sequence(a, role) for role in candidate),
            *_state(a, "initial_hidden"),
        ),
        lambda a: _parameters(a, gates, "_gradient"),
        lambda a: _flop(a, gates, gates * a["bias"]),
    )


_define_rnn("rnn_tanh", 10)
_define_rnn("rnn_relu", 1)
_define_parameter_gradient("lstm", _LSTM, 4)
_define_parameter_gradient("gru", _ATTRIBUTES, 3)
_define_parameter_gradient("rnn_tanh", _ATTRIBUTES, 1)
_define_parameter_gradient("rnn_relu", _ATTRIBUTES, 1)
