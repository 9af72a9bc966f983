"""Time of all parts or blocks of an operation relative to the whole operation, by kind and size.

python -m benchmarks.slices [--rounds N] [--write docs/benchmarks/slices.md]
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.machine import program_version
from benchmarks.pages import Page, Table
from benchmarks.publish import command_line, publish, report_progress
from benchmarks.slices.calls import Caller
from benchmarks.slices.clocks import BOARD, Clock, EmulatedBoard, ThisComputer
from benchmarks.slices.layers import ENTRIES, LAYERS, Entry, Layer, Piece, blocks, parts, whole
from benchmarks.slices.operands import Operands
from devices.signatures.blocks import block_shape
from tests.support.onboard.kernels import KernelLibraries, KernelLibrary

_KIB = 1024
_PART_KIB = (16, 64, 256, 1024)
_BLOCK_KIB = (16, 64, 256)

_TEXT = """
The kernels that compute a convolution or a linear layer in parts, beside the kernels that compute
it whole. The results have the same bits. A ratio is the time of all parts, one after the other in
place, over that of the whole operation.

*Parts* have some output and some input channels of the weight, between whole activations. In
brackets are these numbers, which `block_shape` chooses for at most so many bytes of weights. A part
lays out its own input channels for its own output channels. Workspaces are those of the whole
operation and of its parts of 64 KiB, on this computer.

*Blocks* are parts between parts of the input and of the output, each a tensor of its own.

The *{board}* is emulated: each of its instructions takes 64 ns, and its memories are equally fast,
so that its ratios are those of instructions. On *this computer*, times are processor times, the
median over {rounds} rounds. In a round, all take turns in the same order, and each is repeated
for at least 5 ms, in a loop of C.
"""

_ON_BOARD = "A Cortex-M4F whose instructions are counted."
_BUILDS = {
    "small-tiles": ("Small memory", "The build for microcontrollers, compiled for this computer."),
    "in-tree": ("This computer", "The in-tree matrix product with this computer's instructions."),
}


@dataclass(frozen=True)
class _Place:
    """Where the pieces run; ``library`` computes their workspaces, on this computer."""

    title: str
    text: str
    clock: Clock
    library: KernelLibrary | None = None


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    publish("benchmarks.slices", parser, _measure)


def _measure(arguments: argparse.Namespace) -> Page:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        libraries = KernelLibraries(lambda build: _made(directory / build))
        caller = Caller(directory)
        places = [_Place(BOARD, _ON_BOARD, EmulatedBoard(directory / "trials"))]
        for build, (title, said) in _BUILDS.items():
            library = libraries[build]
            clock = ThisComputer(library, caller, arguments.rounds)
            places.append(_Place(title, said, clock, library))
        tables = [*_part_tables(places), *_block_tables(places)]
    text = _TEXT.format(rounds=arguments.rounds, board=BOARD)
    versions = ("qemu-system-arm", "arm-none-eabi-gcc", "cc")
    return Page("Operations in parts", text, tables, [program_version(each) for each in versions])


def _made(directory: Path) -> Path:
    directory.mkdir()
    return directory


def _part_tables(places: Sequence[_Place]) -> Iterator[Table]:
    for place in places:
        for entry in ENTRIES:
            rows = [_parts_row(place, layer, entry) for layer in LAYERS]
            more = () if place.library is None else ("workspace, KiB",)
            yield _table(place, "parts", entry, (*more, *_sizes(_PART_KIB)), rows)


def _parts_row(place: _Place, layer: Layer, entry: Entry) -> Sequence[str]:
    shapes, shown = _shapes(layer, _PART_KIB)
    pieces = [list(parts(layer, entry, shape)) for shape in shapes]
    name, weights, whole_s, *ratios = _row(place, layer, entry, pieces, shown)
    if place.library is not None:
        operands = Operands(place.library, layer)
        workspaces = [operands.workspace(each) for each in ([whole(layer, entry)], pieces[1])]
        ratios.insert(0, " → ".join(f"{each / _KIB:.0f}" for each in workspaces))
    return (name, weights, whole_s, *ratios)


def _block_tables(places: Sequence[_Place]) -> Iterator[Table]:
    for place in places:
        for entry in ENTRIES:
            rows = [_blocks_row(place, layer, entry) for layer in LAYERS]
            yield _table(place, "blocks", entry, _sizes(_BLOCK_KIB), rows)


def _blocks_row(place: _Place, layer: Layer, entry: Entry) -> Sequence[str]:
    shapes, shown = _shapes(layer, _BLOCK_KIB)
    pieces = [list(blocks(layer, entry, shape)) for shape in shapes]
    return _row(place, layer, entry, pieces, shown)


def _shapes(
    layer: Layer, sizes_kib: Sequence[int]
) -> tuple[list[tuple[int, int]], list[str | None]]:
    """Channels of parts of at most so many bytes, and how the page shows them."""
    shapes = [block_shape(layer.weight.shape, size * _KIB) for size in sizes_kib]
    all_channels = layer.weight.shape[:2]
    return shapes, [None if each == all_channels else f"{each[0]} × {each[1]}" for each in shapes]


def _row(
    place: _Place,
    layer: Layer,
    entry: Entry,
    contestants: Sequence[Sequence[Piece]],
    shown: Sequence[str | None],
) -> Sequence[str]:
    """A layer's ratios; ``shown`` describes its parts, None if there is but one."""
    report_progress(f"{place.title}: {entry} of {layer.name}")
    whole_s, ratios = place.clock.times(layer, [[whole(layer, entry)], *contestants])
    return (
        layer.name,
        f"{layer.weight.bytes / _KIB:.0f} KiB",
        f"{whole_s * 1e3:.3f} ms",
        *(
            "–" if pieces is None else f"{ratio:.2f} ({pieces})"
            for ratio, pieces in zip(ratios, shown, strict=True)
        ),
    )


def _sizes(kib: Sequence[int]) -> tuple[str, ...]:
    return tuple(f"{size} KiB" for size in kib)


def _table(
    place: _Place,
    what: str,
    entry: Entry,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
) -> Table:
    return Table(
        ("layer", "weights", "whole", *columns),
        rows,
        f"{place.title}, {what}: {entry.replace('_', ' ')}",
        place.text,
    )


if __name__ == "__main__":
    main()
