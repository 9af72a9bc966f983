"""Time of all parts or blocks of an operation relative to the whole operation, by kind and size.

python -m benchmarks.slices [--rounds N] [--write docs/benchmarks/slices.md]
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.machine import program_version
from benchmarks.pages import Page, Table
from benchmarks.publish import command_line, publish, report_progress
from benchmarks.slices.calls import Caller
from benchmarks.slices.layers import ENTRIES, LAYERS, Entry, Layer, Operands
from devices.signatures.blocks import block_shape
from tests.support.onboard.kernels import KernelLibraries, KernelLibrary, PreparedCall

_KIB = 1024
_PART_KIB = (16, 64, 256, 1024)
_BLOCK_KIB = (16, 64, 256)

_TEXT = """
The kernels that compute a convolution or a linear layer in parts, beside the kernels that compute
it whole. The results have the same bits. A ratio is the processor time of all parts, one after
the other in place, over that of the whole operation: the median over {rounds} rounds. In a round,
all alternate, and each is repeated for at least 5 ms, in a loop of C.

*Parts* are some output channels of the whole operation. A part is as small as its size of weights
allows; in brackets are its output channels. It reads and lays out the whole input again, and the
parts of an input gradient read and write the whole sum again. Both cost the same for one channel
as for hundreds, so that what a part adds depends on its output channels, not on its bytes: 16 KiB
are one channel of a wide layer. Workspaces are those of the whole operation and of its parts of
64 KiB.

*Blocks* go from a part of the input to a part of the output, each a tensor of its own. In
brackets are their output and input channels, which `block_shape` chooses for at most so many
bytes of weights. A block lays out its own part of the input, for all its output channels.
"""

_BUILDS = {
    "in-tree": (
        "This computer",
        "The in-tree matrix product with this computer's instructions.",
    ),
    "small-tiles": (
        "Small memory",
        "The build for microcontrollers, compiled for this computer.",
    ),
}


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    publish("benchmarks.slices", parser, _measure)


def _measure(arguments: argparse.Namespace) -> Page:
    with tempfile.TemporaryDirectory() as directory:
        libraries = KernelLibraries(lambda name: _made(Path(directory) / name))
        caller = Caller(Path(directory))
        tables = [
            _table(libraries[build], caller, build, entry, what, arguments.rounds)
            for what in ("parts", "blocks")
            for build in _BUILDS
            for entry in ENTRIES
        ]
    text = _TEXT.format(rounds=arguments.rounds)
    return Page("Operations in parts", text, tables, [program_version("cc", "gcc")])


def _made(directory: Path) -> Path:
    directory.mkdir()
    return directory


def _table(
    library: KernelLibrary, caller: Caller, build: str, entry: Entry, what: str, rounds: int
) -> Table:
    title, text = _BUILDS[build]
    rows = []
    for layer in LAYERS:
        report_progress(f"{title}: {what} of {entry} of {layer.name}")
        row = _of_parts if what == "parts" else _of_blocks
        rows.append(row(library, caller, layer, entry, rounds))
    is_parts = what == "parts"
    sizes = (f"{size} KiB" for size in (_PART_KIB if is_parts else _BLOCK_KIB))
    workspace = ("workspace, KiB",) if is_parts else ()
    return Table(
        ("layer", "weights", "whole", *workspace, *sizes),
        rows,
        f"{title}, {what}: {entry.replace('_', ' ')}",
        text,
    )


def _of_parts(
    library: KernelLibrary, caller: Caller, layer: Layer, entry: Entry, rounds: int
) -> Sequence[str]:
    operands = Operands(library, layer)
    channels = [layer.channels(size * _KIB) for size in _PART_KIB]
    parts = [operands.parts(entry, count) for count in channels]
    workspaces = operands.whole_workspace(entry), operands.workspace(entry, channels[1])
    shown = [None if count == layer.weight.shape[0] else f"{count}" for count in channels]
    name, weights, whole, *ratios = _row(operands, caller, layer, entry, parts, shown, rounds)
    return (name, weights, whole, " → ".join(f"{s / _KIB:.0f}" for s in workspaces), *ratios)


def _of_blocks(
    library: KernelLibrary, caller: Caller, layer: Layer, entry: Entry, rounds: int
) -> Sequence[str]:
    operands = Operands(library, layer)
    shapes = [block_shape(layer.weight.shape, size * _KIB) for size in _BLOCK_KIB]
    blocks = [operands.blocks(entry, shape) for shape in shapes]
    whole = layer.weight.shape[:2]
    shown = [None if shape == whole else f"{shape[0]} × {shape[1]}" for shape in shapes]
    return _row(operands, caller, layer, entry, blocks, shown, rounds)


def _row(
    operands: Operands,
    caller: Caller,
    layer: Layer,
    entry: Entry,
    contestants: Sequence[Sequence[PreparedCall]],
    shown: Sequence[str | None],
    rounds: int,
) -> Sequence[str]:
    """A layer's ratios; ``shown`` describes its parts, None if there is but one."""
    whole_s, *parts_s = caller.seconds([operands.whole(entry), *contestants], rounds)
    ratios = (np.median(np.divide(each, whole_s)) for each in parts_s)
    return (
        layer.name,
        f"{layer.weight.bytes / _KIB:.0f} KiB",
        f"{np.median(whole_s) * 1e3:.3f} ms",
        *(
            "–" if parts is None else f"{ratio:.2f} ({parts})"
            for ratio, parts in zip(ratios, shown, strict=True)
        ),
    )


if __name__ == "__main__":
    main()
