"""Cross entropy over parts of the classes: chains that run through the parts of the logits.

The largest logit of each row comes first, then the sums of exponentials, then the loss. The
gradient of a part of the logits needs that part and these states.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from devices.operation import SIGNATURES, OpSpec
from networks.training.channels.partition import Layout, operands, until
from networks.training.step import StepOp

_CHAINS = "cross_entropy_block"
_FAMILIES = {
    "softmax_cross_entropy": _CHAINS,
    "weighted_cross_entropy": "weighted_cross_entropy_block",
}
_LOGITS = "logits"


def loss_in_parts(op: StepOp, layouts: Mapping[str, Layout]) -> Iterator[StepOp]:
    """The chains of a loss."""
    names = dict(operands(op))
    logits = layouts[names[_LOGITS]]
    last = len(logits.rows)
    for entry, states in (("maximum", ("maximum", "label_logit")), ("sum", ("sums",))):
        for row in range(last):
            found = {**names, **_states(op), _LOGITS: logits.part(row)}
            for state in states:
                found[f"{state}_before"] = until(found[state], row, last)
                found[state] = until(found[state], row + 1, last)
            kind, sizes = f"{_CHAINS}.{entry}", _classes(op, logits, row)
            yield _operation(op, kind, sizes, found, logits.suffix(row))
    of_rows = {**names, **_states(op)}
    yield _operation(op, f"{_FAMILIES[op.spec.family]}.loss", op.spec.attributes, of_rows, "")


def gradient_in_parts(op: StepOp, layouts: Mapping[str, Layout]) -> Iterator[StepOp]:
    """The gradient of each part of the logits."""
    names = dict(operands(op))
    logits, gradient = layouts[names[_LOGITS]], layouts[names["logits_gradient"]]
    for row in range(len(logits.rows)):
        found = {**names, **_states(op), _LOGITS: logits.part(row)}
        found["logits_gradient"] = gradient.part(row)
        kind, sizes = f"{_FAMILIES[op.spec.family]}.input_gradient", _classes(op, logits, row)
        made = _operation(op, kind, sizes, found, logits.suffix(row))
        yield made if op.in_place else replace(made, in_place={})


def _states(op: StepOp) -> dict[str, str]:
    """Tensors of the states of a loss, by role."""
    return {role: f"{op.layer}.{role}" for role in ("maximum", "label_logit", "sums")}


def _classes(op: StepOp, logits: Layout, row: int) -> dict[str, int]:
    first, channels = logits.rows[row]
    return {**op.spec.attributes, "first": first, "channels": channels}


def _operation(
    op: StepOp, kind: str, sizes: Mapping[str, int], names: Mapping[str, str], suffix: str
) -> StepOp:
    """An operation of a kind with those of the attributes that it has."""
    spec = OpSpec.of(kind, **{name: sizes[name] for name in SIGNATURES[kind].attributes})
    return op.as_part(f"{op.layer}.{kind.partition('.')[2]}{suffix}", spec, names)
