"""Time of all parts or blocks of an operation relative to the whole operation, by kind and size.

python -m benchmarks.slices [--rounds N] [--write docs/benchmarks/slices.md]
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.machine import program_version
from benchmarks.pages import Page, Table
from benchmarks.publish import command_line, publish, report_progress
from benchmarks.slices.calls import Caller
from benchmarks.slices.clocks import BOARD, Clock, EmulatedBoard, ThisComputer
from benchmarks.slices.layers import ENTRIES, LAYERS, Entry, Layer, Piece, blocks, parts, whole
from benchmarks.slices.operands import Operands
from devices.signatures.blocks import block_shape
from tests.support.onboard.kernels import KernelLibraries

_KIB = 1024
_PART_KIB = (16, 64, 256, 1024)
_BLOCK_KIB = (16, 64, 256)

_TEXT = """
The kernels that compute a convolution or a linear layer in parts, beside the kernels that compute
it whole. The results have the same bits. A ratio is the time of all parts, one after the other in
place, over that of the whole operation.

*Parts* are some output channels of the whole operation. A part is as small as its size of weights
allows; in brackets are its output channels. It reads and lays out the whole input again, and the
parts of an input gradient read and write the whole sum again. Both cost the same for one channel
as for hundreds, so that what a part adds depends on its output channels, not on its bytes: 16 KiB
are one channel of a wide layer. Workspaces are those of the whole operation and of its parts of
64 KiB, on this computer.

*Blocks* go from a part of the input to a part of the output, each a tensor of its own. In
brackets are their output and input channels, which `block_shape` chooses for at most so many
bytes of weights. A block lays out its own part of the input, for all its output channels.

The *{board}* is emulated: each of its instructions takes 64 ns, and its memories are equally fast,
so that its ratios are those of instructions. On *this computer*, times are processor times, the
median over {rounds} rounds. In a round, all alternate, and each is repeated for at least 5 ms, in a
loop of C.
"""

# Build of the kernels, then the title and the text of its tables.
_ON_BOARD = (BOARD, "A Cortex-M4F whose instructions are counted.")
_BUILDS = {
    "small-tiles": (
        "Small memory",
        "The build for microcontrollers, compiled for this computer.",
    ),
    "in-tree": (
        "This computer",
        "The in-tree matrix product with this computer's instructions.",
    ),
}


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    publish("benchmarks.slices", parser, _measure)


def _measure(arguments: argparse.Namespace) -> Page:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        libraries = KernelLibraries(lambda build: _made(directory / build))
        caller = Caller(directory)
        clocks: dict[tuple[str, str], Clock] = {_ON_BOARD: EmulatedBoard(directory / "trials")}
        for build, said in _BUILDS.items():
            clocks[said] = ThisComputer(libraries[build], caller, arguments.rounds)
        tables = [*_part_tables(clocks, libraries), *_block_tables(clocks)]
    text = _TEXT.format(rounds=arguments.rounds, board=BOARD)
    versions = ("qemu-system-arm", "arm-none-eabi-gcc", "cc")
    return Page("Operations in parts", text, tables, [program_version(each) for each in versions])


def _made(directory: Path) -> Path:
    directory.mkdir()
    return directory


def _part_tables(
    clocks: Mapping[tuple[str, str], Clock], libraries: KernelLibraries
) -> Iterator[Table]:
    builds = {said: build for build, said in _BUILDS.items()}
    for said, clock in clocks.items():
        for entry in ENTRIES:
            rows = []
            for layer in LAYERS:
                counts = [layer.channels(size * _KIB) for size in _PART_KIB]
                pieces = [list(parts(layer, entry, count)) for count in counts]
                shown = [None if count == layer.weight.shape[0] else f"{count}" for count in counts]
                name, weights, whole_s, *ratios = _row(said[0], clock, layer, entry, pieces, shown)
                if said in builds:
                    operands = Operands(libraries[builds[said]], layer)
                    bytes_ = [
                        operands.workspace(each) for each in ([whole(layer, entry)], pieces[1])
                    ]
                    ratios.insert(0, " → ".join(f"{each / _KIB:.0f}" for each in bytes_))
                rows.append((name, weights, whole_s, *ratios))
            more = ("workspace, KiB",) if said in builds else ()
            yield _table(said, "parts", entry, (*more, *_sizes(_PART_KIB)), rows)


def _block_tables(clocks: Mapping[tuple[str, str], Clock]) -> Iterator[Table]:
    for said, clock in clocks.items():
        for entry in ENTRIES:
            rows = []
            for layer in LAYERS:
                shapes = [block_shape(layer.weight.shape, size * _KIB) for size in _BLOCK_KIB]
                pieces = [list(blocks(layer, entry, shape)) for shape in shapes]
                all_channels = layer.weight.shape[:2]
                shown = [None if s == all_channels else f"{s[0]} × {s[1]}" for s in shapes]
                rows.append(_row(said[0], clock, layer, entry, pieces, shown))
            yield _table(said, "blocks", entry, _sizes(_BLOCK_KIB), rows)


def _row(
    title: str,
    clock: Clock,
    layer: Layer,
    entry: Entry,
    contestants: Sequence[Sequence[Piece]],
    shown: Sequence[str | None],
) -> Sequence[str]:
    """A layer's ratios; ``shown`` describes its parts, None if there is but one."""
    report_progress(f"{title}: {entry} of {layer.name}")
    whole_s, ratios = clock.times(layer, [[whole(layer, entry)], *contestants])
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
    said: tuple[str, str],
    what: str,
    entry: Entry,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
) -> Table:
    title, text = said
    return Table(
        ("layer", "weights", "whole", *columns),
        rows,
        f"{title}, {what}: {entry.replace('_', ' ')}",
        text,
    )


if __name__ == "__main__":
    main()
