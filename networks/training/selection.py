"""Selection of the parameters that are trained; the others stay as they are."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from networks.training.network import Layer, Network, NetworkError, Value

_ROLES = {"bias": {"bias", "hidden_bias", "shift"}, "norm": {"scale", "shift"}}
_HEAD = "head"


def select_trained(network: Network, words: Sequence[str]) -> None:
    """Train the parameters that any of ``words`` selects, and no others.

    Args:
        network: Network to change.
        words: ``head`` (the last layer with parameters), ``bias`` (biases and shifts), ``norm``
            (scales and shifts of norms), or patterns of names with ``*``, ``?`` and ``[…]``.

    Raises:
        NetworkError: A word selects nothing.
    """
    roles = {name: role for layer in network.layers for name, role in _parameters(network, layer)}
    chosen = {name for word in words for name in _selected(network, word, roles)}

    def marked(value: Value) -> Value:
        return replace(value, trained=value.name in chosen) if value.name in roles else value

    network.layers[:] = [
        replace(layer, reads=tuple(map(marked, layer.reads))) for layer in network.layers
    ]


def _parameters(network: Network, layer: Layer) -> Iterator[tuple[str, str]]:
    """Names and roles of what a layer reads and could be trained: no running statistics."""
    if not layer.spec.signature.mutates:
        for operand, value in zip(layer.spec.reads, layer.reads, strict=True):
            if network.can_train(value) and operand.role in layer.spec.differentiated:
                yield value.name, operand.role


def _selected(network: Network, word: str, roles: dict[str, str]) -> set[str]:
    if word == _HEAD:
        each = (dict(_parameters(network, layer)) for layer in reversed(network.layers))
        found = set(next(filter(None, each), ()))
    elif word in _ROLES:
        found = {name for name, role in roles.items() if role in _ROLES[word]}
    else:
        found = {name for name in roles if fnmatchcase(name, word)}
    if not found:
        near = difflib.get_close_matches(word, roles, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise NetworkError(f"{network.name}: no parameter is selected by {word!r}{hint}")
    return found
