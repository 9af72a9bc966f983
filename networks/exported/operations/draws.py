"""Random draws for samples or channels: stochastic depth, and dropout of channels."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from devices.operation import OpSpec
from networks.exported.construction import Construction, Draws, Operation, Unsupported
from networks.exported.program import Node, Reference
from networks.exported.views import View
from networks.training.network import Value


def _empty(c: Construction, node: Node) -> None:
    """A tensor of which nothing is known but that something is drawn for it."""
    _bind_draws(c, node, Draws(c.meta(node).shape))


def _bind_draws(c: Construction, node: Node, draws: Draws) -> None:
    name, shape = node.outputs[0], c.meta(node).shape
    c.draws[name] = draws
    c.views[name] = View.whole(Value(name, shape, "activation"))


def _bernoulli(c: Construction, node: Node) -> None:
    """Draw 1 with a probability, or else 0, for an empty tensor."""
    draws, probability = draws_of(c, node, "self"), c.plain(node, "p", 0.5)
    if draws is None:
        raise Unsupported("it draws for a tensor that is not empty", "torch.empty or new_empty")
    if not 0 <= probability <= 1:
        raise Unsupported(f"its probability is {probability}")
    c.dropouts += 1
    draws.seed, draws.probability, draws.value = c.dropouts, probability, 1.0
    _bind_draws(c, node, draws)


def _evenly_drawn(c: Construction, node: Node) -> None:
    _bind_draws(c, node, Draws(c.meta(node).shape, least=0.0))


def raise_draws(c: Construction, node: Node, addend: float) -> bool:
    """Bind evenly drawn numbers plus a number; False if the first operand is another tensor."""
    draws = draws_of(c, node, "self")
    if draws is None or draws.least is None:
        return False
    if not node.is_in_place:
        draws = replace(draws)
    draws.least = (draws.least or 0.0) + addend
    _bind_draws(c, node, draws)
    return True


def _floor(c: Construction, node: Node) -> None:
    """Round evenly drawn numbers down: the result is 1 with a probability, or else 0."""
    draws = draws_of(c, node, "self")
    if draws is None or draws.least is None or not 0 <= draws.least <= 1:
        raise Unsupported("it rounds numbers that are not drawn from p to 1 + p")
    probability = draws.least
    if not node.is_in_place:
        draws = replace(draws)
    c.dropouts += 1
    draws.seed, draws.probability, draws.least = c.dropouts, probability, None
    _bind_draws(c, node, draws)


def draws_of(c: Construction, node: Node, name: str) -> Draws | None:
    """The random draws that an argument names; None of another tensor."""
    found = node.arguments.get(name)
    return c.draws.get(found.name) if isinstance(found, Reference) else None


def scale_draws(c: Construction, node: Node, factor: float) -> bool:
    """Bind random draws times a number; False if the first operand is another tensor."""
    draws = draws_of(c, node, "self")
    if draws is None:
        return False
    if not node.is_in_place:
        draws = replace(draws)
    draws.value *= factor
    _bind_draws(c, node, draws)
    return True


def times_draws(c: Construction, node: Node) -> View | None:
    """A tensor times random draws for its first axes; None of another product."""
    for name, other in (("self", "other"), ("other", "self")):
        draws = draws_of(c, node, other)
        found = node.arguments.get(name)
        if draws is not None and isinstance(found, Reference):
            source = _divided(c, found.name, draws.probability)
            if source is None:
                return _dropped(c, node, c.view(node, name), draws)
            return _dropped(c, node, c.named(source), draws, 1 / draws.probability)
    return None


def _divided(c: Construction, name: str, probability: float) -> str | None:
    """The tensor that was divided by the probability to keep it, for the draws' sake."""
    maker = c.maker.get(name)
    if maker is None or maker.is_in_place or not maker.target.startswith("aten.div."):
        return None
    source = maker.arguments.get("self")
    if not isinstance(source, Reference) or {name, source.name} & c.overwritten:
        return None
    return source.name if c.number(maker, "other") == probability > 0 else None


def _dropped(c: Construction, node: Node, view: View, draws: Draws, factor: float = 1.0) -> View:
    """The tensor times a number, with its first axes dropped at random."""
    if draws.seed is None:
        raise Unsupported("it computes with an empty tensor")
    shape = c.meta(node).shape
    if view.shape != shape or len(draws.shape) > len(shape):
        raise Unsupported(f"it multiplies shape {view.shape} by draws of shape {draws.shape}")
    drawn = (*(1 for _ in shape[len(draws.shape) :]), *draws.shape)
    first = len(shape)
    while first and drawn[first - 1] == 1:
        first -= 1
    if drawn[:first] != shape[:first]:
        raise Unsupported(
            f"it draws for shape {draws.shape} of {shape}", "draws for the first axes"
        )
    order = [axis for axis in range(first) if shape[axis] > 1]
    if not view.has_all or view.stored_axes[: len(order)] != order:
        view = View.whole(c.stored(node, view))
    rows = math.prod(shape[:first])
    spec = OpSpec.of("dropout_rows.forward", rows=rows, inner=view.value.elements // rows)
    scalars = {
        "probability": 1.0 - draws.probability,
        "factor": draws.value * factor,
        "seed": float(draws.seed),
    }
    return view.of(c.layer(node, spec, (view.value,), shape=view.value.shape, scalars=scalars))


def _drop_channels(c: Construction, node: Node) -> None:
    """Dropout of whole channels, with a draw for each sample and channel."""
    view, probability = c.view(node, "input"), c.plain(node, "p", 0.5)
    if not c.plain(node, "train", False) or probability == 0:
        c.bind(node, view)
        return
    if len(view.shape) < 2:
        raise Unsupported(f"it drops channels of shape {view.shape}")
    c.dropouts += 1
    kept = 1 - probability
    draws = Draws(
        (*view.shape[:2], *(1 for _ in view.shape[2:])),
        c.dropouts,
        kept,
        1 / kept if kept > 0 else 1.0,
    )
    c.bind(node, _dropped(c, node, view, draws))


DRAWS: Mapping[str, Operation] = {
    **dict.fromkeys(("empty.memory_format", "new_empty.default", "empty_like.default"), _empty),
    "bernoulli.float": _bernoulli,
    "rand.default": _evenly_drawn,
    "floor.default": _floor,
    "feature_dropout.default": _drop_channels,
}
