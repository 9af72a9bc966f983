"""Time of a training step's operations in slices relative to whole ones, kind by kind.

python -m benchmarks.slices.kinds [--write docs/benchmarks/slice-kinds.md]
"""

from __future__ import annotations

import argparse
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.machine import program_version
from benchmarks.pages import Page, Table
from benchmarks.publish import command_line, publish, report_progress
from benchmarks.slices.clocks import BOARD, EmulatedBoard
from devices.documents.readable import si
from devices.operation import OpSpec
from devices.quantities import Slices
from networks.models import build_model
from networks.training import Network
from networks.training.derive import training_step
from networks.training.slicing import sliced
from networks.training.step import TrainingStep

_KIB = 1024
_SIZES = tuple(Slices(size * _KIB, size * _KIB) for size in (16, 32, 64))

_TEXT = """
A training step in [slices](../slices.md), beside the same step in whole layers, operation by
operation: the kernels that compute all parts of an operation, and the one that computes it whole.
The results have the same bits. A ratio is the time of all parts over that of the whole operations,
summed over all operations of a kind that are cut; in brackets is the number of their parts.

Slices of 16 KiB have at most 16 KiB of a weight and at most 16 KiB of an activation in a part.
Norms and losses run through their parts several times, so that their forward operation is a chain
of more operations; the page counts all of them.

The language model has one block: {tokens} tokens, {features} features, {heads} heads, an embedding
and an output layer of {vocabulary} words, layer norm, RMS norm, GELU, dropout, batch 1.

The *{board}* is emulated: each of its instructions takes 64 ns, and its memories are equally fast,
so that ratios are those of instructions.
"""

_TOKENS, _FEATURES, _HEADS, _VOCABULARY = 64, 128, 4, 2048

# Parts of these entries belong to an input gradient.
_OF_INPUT_GRADIENT = ("columns_gradient", "fold", "gradient_sums")


@dataclass(frozen=True)
class _Kind:
    """Operations of one kind: time whole, and for each size the ratio and the number of parts;
    None for a size that cuts none of them."""

    name: str
    whole_s: float
    sliced: tuple[tuple[float, int] | None, ...]

    @property
    def cells(self) -> tuple[str, ...]:
        shown = ("–" if each is None else f"{each[0]:.2f} ({each[1]})" for each in self.sliced)
        return (self.name, si(self.whole_s, "s"), *shown)


def main() -> None:
    publish("benchmarks.slices.kinds", command_line(__doc__), _measure)


def _measure(_arguments: argparse.Namespace) -> Page:
    steps = {
        "language model": training_step(_language_model()),
        "resnet8": build_model("resnet8", 1),
        "mobilenet": build_model("mobilenet", 1),
    }
    with tempfile.TemporaryDirectory() as name:
        board = EmulatedBoard(Path(name))
        tables = [_table(network, step, board) for network, step in steps.items()]
    text = _TEXT.format(
        tokens=_TOKENS, features=_FEATURES, heads=_HEADS, vocabulary=_VOCABULARY, board=BOARD
    )
    versions = [program_version(each) for each in ("qemu-system-arm", "arm-none-eabi-gcc")]
    return Page("Slices by kind of operation", text, tables, versions)


def _language_model() -> Network:
    net = Network("language model", 1)
    tokens = net.input("tokens", 1, _TOKENS)
    x = net.layer_norm("norm0", net.embedding("embed", tokens, _VOCABULARY, _FEATURES))
    query, key, value = (net.linear(name, x, _FEATURES) for name in ("query", "key", "value"))
    y = net.attention("attention", query, key, value, heads=_HEADS, dropout=0.1)
    y = net.dropout("dropout", net.linear("projection", y, _FEATURES), 0.1)
    x = net.rms_norm("norm1", net.add("add1", x, y))
    y = net.linear("narrow", net.gelu("gelu", net.linear("wide", x, 4 * _FEATURES)), _FEATURES)
    x = net.linear("output", net.rms_norm("norm2", net.add("add2", x, y)), _VOCABULARY)
    net.softmax_cross_entropy("loss", x, net.input("labels", 1, _TOKENS))
    return net


def _table(network: str, step: TrainingStep, board: EmulatedBoard) -> Table:
    forms = [sliced(step, size) for size in _SIZES]
    specs = dict.fromkeys(op.spec.costed_as for form in (step, *forms) for op in form.ops)
    report_progress(f"{network}: {len(specs)} operations")
    taken_s = board.seconds(list(specs), network)
    rows = [kind.cells for kind in _kinds(step, forms, taken_s)]
    totals = [sum(taken_s[op.spec.costed_as] for op in form.ops) for form in (step, *forms)]
    ratios = (
        f"{total / totals[0]:.2f} ({len(form.ops)})"
        for form, total in zip(forms, totals[1:], strict=True)
    )
    rows.append(("whole step", si(totals[0], "s"), *ratios))
    return Table(("kind", "whole", *map(str, _SIZES)), rows, network)


def _kinds(
    step: TrainingStep, forms: Sequence[TrainingStep], taken_s: Mapping[OpSpec, float]
) -> Iterator[_Kind]:
    parts = [_parts(step, form, taken_s) for form in forms]
    names: dict[str, list[str]] = defaultdict(list)
    for op in step.ops:
        names[op.spec.kind].append(op.name)
    whole_s = {op.name: taken_s[op.spec.costed_as] for op in step.ops}
    for kind, ops in names.items():
        found = []
        for form in parts:
            cut = [name for name in ops if len(form[name]) > 1]
            times_s = [each for name in cut for each in form[name]]
            before_s = sum(whole_s[name] for name in cut)
            found.append((sum(times_s) / before_s, len(times_s)) if cut else None)
        if any(found):
            yield _Kind(kind, sum(whole_s[name] for name in ops), tuple(found))


def _parts(
    step: TrainingStep, form: TrainingStep, taken_s: Mapping[OpSpec, float]
) -> Mapping[str, Sequence[float]]:
    """Times of the parts of each whole operation, by its name."""
    known = {op.name for op in step.ops}
    found: dict[str, list[float]] = defaultdict(list)
    for op in form.ops:
        name = op.name.partition("[")[0]
        if name not in known:
            layer, _, entry = name.rpartition(".")
            of_gradient = entry in _OF_INPUT_GRADIENT
            name = f"{layer}.{'input_gradient' if of_gradient else 'forward'}"
        if name not in known:
            raise ValueError(f"{op.name} is part of no operation of the step")
        found[name].append(taken_s[op.spec.costed_as])
    return found


if __name__ == "__main__":
    main()
