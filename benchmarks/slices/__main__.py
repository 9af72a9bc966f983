"""Time of all parts of an operation relative to the whole operation, by kind and size of the parts.

python -m benchmarks.slices [--rounds N] [--write docs/benchmarks/slices.md]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from benchmarks.machine import program_version
from benchmarks.pages import Page, Table
from benchmarks.publish import command_line, publish, report_progress
from benchmarks.slices.layers import ENTRIES, LAYERS, Entry, Layer, Operands
from tests.support.onboard.kernels import KernelLibraries, KernelLibrary, PreparedCall

_KIB = 1024
_PART_KIB = (16, 64, 256, 1024)
_SAMPLE_S = 5e-3

_TEXT = """
The kernels that compute a convolution or a linear layer in parts, some output channels at a time,
beside the kernels that compute it whole. The results have the same bits. A ratio is the processor
time of all parts, one after the other in place, over that of the whole operation: the median over
{rounds} rounds. In a round, all alternate, and each is repeated for at least
{sample_ms:.0f} ms. A part is as small as its size of weights allows; in brackets are its output
channels. The parts of an input gradient include the fold of the unfolded gradient.

A part reads and lays out the whole input again, and the parts of an input gradient read and write
the whole sum again. Both cost the same for one channel as for hundreds, so that what a part adds
depends on its output channels, not on its bytes: 16 KiB are one channel of a wide layer. Workspaces
are those of the whole operation and of its parts of 64 KiB.
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
        tables = [
            _table(libraries[build], build, entry, arguments.rounds)
            for build in _BUILDS
            for entry in ENTRIES
        ]
    text = _TEXT.format(rounds=arguments.rounds, sample_ms=_SAMPLE_S * 1e3)
    return Page("Operations in parts", text, tables, [program_version("cc", "gcc")])


def _made(directory: Path) -> Path:
    directory.mkdir()
    return directory


def _table(library: KernelLibrary, build: str, entry: Entry, rounds: int) -> Table:
    title, text = _BUILDS[build]
    rows = []
    for layer in LAYERS:
        report_progress(f"{title}: {entry} of {layer.name}")
        rows.append(_row(library, layer, entry, rounds))
    sizes = (f"{size} KiB" for size in _PART_KIB)
    return Table(
        ("layer", "weights", "whole", "workspace, KiB", *sizes),
        rows,
        f"{title}: {entry.replace('_', ' ')}",
        text,
    )


def _row(library: KernelLibrary, layer: Layer, entry: Entry, rounds: int) -> Sequence[str]:
    operands = Operands(library, layer)
    channels = [layer.channels(size * _KIB) for size in _PART_KIB]
    parts = [operands.parts(entry, count) for count in channels]
    whole_s, *parts_s = _seconds([operands.whole(entry), *parts], rounds)
    ratios = (np.median(np.divide(each, whole_s)) for each in parts_s)
    return (
        layer.name,
        f"{layer.weight.bytes / _KIB:.0f} KiB",
        f"{np.median(whole_s) * 1e3:.3f} ms",
        " → ".join(
            f"{size / _KIB:.0f}"
            for size in (operands.whole_workspace(entry), operands.workspace(entry, channels[1]))
        ),
        *(
            f"{ratio:.2f} ({count})" if count < layer.weight.shape[0] else "–"
            for ratio, count in zip(ratios, channels, strict=True)
        ),
    )


def _seconds(contestants: Sequence[Sequence[PreparedCall]], rounds: int) -> list[list[float]]:
    """Processor time of one run of each contestant's calls, round by round."""
    repetitions = [int(_SAMPLE_S / _run_s(calls, 1)) + 1 for calls in contestants]
    taken = list(zip(*_rounds(contestants, repetitions, rounds), strict=True))
    return [list(each) for each in taken]


def _rounds(
    contestants: Sequence[Sequence[PreparedCall]], repetitions: Sequence[int], rounds: int
) -> Iterator[list[float]]:
    for _ in range(rounds):
        yield [_run_s(calls, count) for calls, count in zip(contestants, repetitions, strict=True)]


def _run_s(calls: Sequence[PreparedCall], repetitions: int) -> float:
    start = time.process_time()
    for _ in range(repetitions):
        for call in calls:
            call()
    return (time.process_time() - start) / repetitions


if __name__ == "__main__":
    main()
