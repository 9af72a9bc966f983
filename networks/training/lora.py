"""Low-rank adapters: a trained correction of frozen linear layers.

Hu et al. 2021 (LoRA: Low-Rank Adaptation of Large Language Models, arXiv:2106.09685): a linear
layer y = W x + b becomes y = W x + b + (alpha / rank) B (A x), with trained A [rank, in] and
B [out, rank]. W and b are frozen. Here alpha is the rank, so that the factor is 1. As in the paper,
A is drawn and B is zero at first; A's distribution is that of Hugging Face's peft (Kaiming uniform
with a = √5).

The names are those of peft without its prefix: the layer ``encoder.query`` gets
``encoder.query.lora_A.weight`` and ``encoder.query.lora_B.weight``.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from devices.operation import OpSpec
from networks.training.network import Layer, Network, NetworkError, Value
from networks.training.step import Adapter

_MOST_RANK = 2**15
_TEXT = re.compile(r"(\d{1,9})(?::(.+))?", re.ASCII | re.DOTALL)


@dataclass(frozen=True)
class Lora:
    """Which linear layers get adapters, and their rank.

    ``pattern`` is one of weights' names; None selects all linear layers, except for those whose
    weight is an embedding's table too.
    """

    rank: int
    pattern: str | None

    @classmethod
    def parse(cls, text: str) -> Lora:
        """Parse ``RANK`` or ``RANK:GLOB``.

        Raises:
            NetworkError: The text is neither.
        """
        found = _TEXT.fullmatch(text)
        if found is None or not 1 <= int(found[1]) <= _MOST_RANK:
            raise NetworkError(
                f"LoRA of {text!r}: it must be a rank from 1 to {_MOST_RANK}, such as 8, or a rank"
                " and a pattern of weights' names, such as 8:*query*"
            )
        return cls(int(found[1]), found[2])


def add_adapters(network: Network, lora: Lora) -> tuple[Adapter, ...]:
    """Give linear layers adapters; what reads their results reads the corrected ones then.

    A weight that several layers read has one adapter. A layer that no gradient of the loss
    reaches has none, as its adapter would never change. Where a gradient is stopped at some of the
    layers that read a weight, it is stopped at their corrections too.

    Args:
        network: Network to change.
        lora: Rank, and which layers.

    Returns:
        The adapters' matrices.

    Raises:
        NetworkError: No linear layer is selected, or no gradient reaches any that is.
    """
    names = {layer.reads[1].name for layer in network.layers if _is_linear(network, layer)}
    chosen = names - _tables(network)
    if lora.pattern is not None:
        chosen = {name for name in names if fnmatchcase(name, lora.pattern)}
    if not chosen:
        near = difflib.get_close_matches(lora.pattern or "", names, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        what = "" if lora.pattern is None else f" with a weight named {lora.pattern!r}"
        raise NetworkError(f"{network.name}: has no linear layer{what} for LoRA{hint}")
    chosen &= {layer.reads[1].name for layer in _learning(network)}
    if not chosen:
        what = "linear layers" if lora.pattern is None else f"weights named {lora.pattern!r}"
        raise NetworkError(
            f"{network.name}: no gradient of the loss reaches {what}, which LoRA would train"
        )
    builder = _Builder(network, lora.rank)
    layers, network.layers[:] = list(network.layers), []
    for layer in layers:
        is_chosen = _is_linear(network, layer) and layer.reads[1].name in chosen
        builder.add(layer, is_chosen=is_chosen)
    return tuple(builder.adapters)


def _is_linear(network: Network, layer: Layer) -> bool:
    return layer.spec.kind == "linear.forward" and network.can_train(layer.reads[1])


def _learning(network: Network) -> Iterator[Layer]:
    """Linear layers whose adapters would have a gradient."""
    reached = network.reached_by_gradients()
    for layer in network.layers:
        is_reached = not layer.stops_gradient and layer.writes[0].name in reached
        if is_reached and _is_linear(network, layer):
            yield layer


def _tables(network: Network) -> set[str]:
    return {layer.reads[1].name for layer in network.layers if layer.spec.family == "embedding"}


class _Builder:
    """Appends the layers again, with adapters; ``_corrected`` has the results that replace others.

    ``_matrices`` holds A and B by the name of their weight, ``_uses`` how many layers read it.
    """

    def __init__(self, network: Network, rank: int) -> None:
        self.adapters: list[Adapter] = []
        self._network = network
        self._rank = rank
        self._corrected: dict[str, Value] = {}
        self._matrices: dict[str, tuple[Value, Value]] = {}
        self._uses: dict[str, int] = {}

    def add(self, layer: Layer, *, is_chosen: bool) -> None:
        reads = tuple(self._corrected.get(value.name, value) for value in layer.reads)
        self._network.layers.append(replace(layer, reads=reads))
        if is_chosen:
            self._correct(replace(layer, reads=reads))

    def _correct(self, layer: Layer) -> None:
        x, weight, *_ = layer.reads
        (output,) = layer.writes
        rows, in_features, out_features, _ = layer.spec.values
        stem = weight.name.removesuffix(".weight")
        self._uses[stem] = self._uses.get(stem, 0) + 1
        again = "" if self._uses[stem] == 1 else f".{self._uses[stem]}"
        down, up = self._matrices_of(stem, in_features, out_features)
        network = self._network
        before = len(network.layers)
        narrow = _linear(rows, in_features, self._rank)
        wide = _linear(rows, self._rank, out_features)
        low = network.append(f"{stem}.lora_A{again}", narrow, (x, down))
        correction = network.append(f"{stem}.lora_B{again}", wide, (low, up), shape=output.shape)
        add = OpSpec.of("add.forward", elements=output.elements)
        self._corrected[output.name] = network.append(
            f"{stem}.lora{again}", add, (output, correction), shape=output.shape
        )
        network.layers[before:] = [
            replace(each, stops_gradient=layer.stops_gradient) for each in network.layers[before:]
        ]

    def _matrices_of(self, stem: str, in_features: int, out_features: int) -> tuple[Value, Value]:
        if stem not in self._matrices:
            a = Adapter(
                f"{stem}.lora_A.weight", (self._rank, in_features), 1 / math.sqrt(in_features)
            )
            b = Adapter(f"{stem}.lora_B.weight", (out_features, self._rank), 0.0)
            self.adapters += [a, b]
            down, up = (Value(each.name, each.shape, "parameter", trained=True) for each in (a, b))
            self._matrices[stem] = down, up
        return self._matrices[stem]


def _linear(rows: int, in_features: int, out_features: int) -> OpSpec:
    return OpSpec.of(
        "linear.forward",
        rows=rows,
        in_features=in_features,
        out_features=out_features,
        bias=0,
    )
