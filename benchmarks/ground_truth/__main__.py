"""The profiler held against the instructions that emulated boards executed, as the emulator counted
them.

    python -m benchmarks.ground_truth [--board NAME ...] [--model NAME] [--blocks N] [--out FILE.md]

Every distinct operation of a model at batch 1 that fits into the board, profiled twice. The counted
time of an operation is that of its instructions. Deviations are those of the measured medians from
it, and of the second run's from the first one's.
"""

from __future__ import annotations

import argparse
import datetime
import statistics
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.machine import machine_line
from devices.documents.document import write_atomically
from devices.operation import OpSpec
from networks.models import build_model
from profiler.run.options import ProfileOptions
from profiler.script.writer import operand_bytes
from tests.support.boards.ground_truth import CountedBoard, Profiled, counted_board

_BOARDS = ("emulated-m4f", "emulated-m3-sd", "emulated-a72")

# Of the memory for training; the rest is for workspaces.
_OPERANDS_SHARE = 0.75


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--board", nargs="+", default=_BOARDS, choices=_BOARDS)
    parser.add_argument("--model", default="dscnn")
    parser.add_argument("--blocks", type=int, default=3)
    parser.add_argument("--out", type=Path, help="where to write the Markdown as well")
    arguments = parser.parse_args()
    lines: list[str] = []
    for line in _report(arguments.board, arguments.model, arguments.blocks):
        print(line, flush=True)
        lines.append(line)
        if arguments.out is not None:
            write_atomically(arguments.out, "\n".join(lines) + "\n")


def _report(boards: Sequence[str], model: str, blocks: int) -> Iterator[str]:
    yield f"{datetime.date.today()}, {machine_line()}"
    yield f"{_emulator_version()}; {model}, batch 1; two runs of {blocks} blocks"
    options = ProfileOptions(blocks=blocks, storage=False)
    for name in boards:
        with (
            tempfile.TemporaryDirectory() as directory,
            counted_board(name, Path(directory)) as board,
        ):
            every = build_model(model, batch=1).distinct_specs
            specs = [spec for spec in every if _fits(spec, board)]
            runs = board.profile(specs, options), board.profile(specs, options)
        yield ""
        yield f"{name}: {len(specs)} of {len(every)} operations fit"
        yield ""
        yield from _table(specs, *runs)


def _fits(spec: OpSpec, board: CountedBoard) -> bool:
    memory = board.running.description.memory
    return memory is None or operand_bytes(spec) <= _OPERANDS_SHARE * memory.usable_bytes


def _table(specs: Sequence[OpSpec], first: Profiled, second: Profiled) -> Iterator[str]:
    yield "| operation | instructions | counted | measured | deviation | second run |"
    yield "|---|---:|---:|---:|---:|---:|"
    deviations, repetitions = [], []
    for spec in specs:
        counted_s, measured_s = first.counted_s(spec), first.measured_s(spec)
        deviations.append(first.deviation(spec))
        repetitions.append(second.measured_s(spec) / measured_s - 1.0)
        instructions = counted_s / (first.ns_per_instruction * 1e-9)
        yield (
            f"| {spec.key} | {instructions:,.0f} | {counted_s * 1e3:.4f} ms |"
            f" {measured_s * 1e3:.4f} ms | {deviations[-1]:+.4%} | {repetitions[-1]:+.4%} |"
        )
    yield f"| median | | | | {_median(deviations)} | {_median(repetitions)} |"
    yield f"| worst | | | | {_worst(deviations)} | {_worst(repetitions)} |"


def _median(values: Sequence[float]) -> str:
    """Of their sizes."""
    return f"{statistics.median(map(abs, values)):.4%}"


def _worst(values: Sequence[float]) -> str:
    return f"{max(map(abs, values)):.4%}"


def _emulator_version() -> str:
    command = ["qemu-system-arm", "--version"]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return said.splitlines()[0]


if __name__ == "__main__":
    main()
