"""Accuracy of the profiler against the instructions that emulated boards execute.

    python -m benchmarks.ground_truth [--board NAME ...] [--model NAME] [--blocks N]
        [--write docs/benchmarks/ground-truth.md]

Profiles every distinct operation of a model at batch 1 that fits into the board, twice, and
compares the times with those of the instructions that the emulator counted.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.ground_truth.results import BoardResult, OperationResult, board_table, summary_table
from benchmarks.machine import program_version
from benchmarks.pages import Page
from benchmarks.publish import command_line, publish, report_progress
from devices.operation import OpSpec
from networks.models import build_model
from profiler.run.options import ProfileOptions
from profiler.script.writer import operand_bytes
from tests.support.boards.ground_truth import CountedBoard, counted_board

# Each board with the model that is profiled on it: dscnn's larger operations exceed the Cortex-M3.
_BOARDS = {"emulated-m4f": "dscnn", "emulated-m3-sd": "digits", "emulated-a72": "dscnn"}

# Share of the memory for training that operands may take. The rest is for workspaces.
_OPERANDS_SHARE = 0.75

_TEXT = """
On an emulated board every instruction takes the same time, so the number of instructions of an
operation gives its true duration. A plug-in of the emulator counts them; the profiler knows nothing
of it and measures as on any other board. Each operation is profiled in two runs of {blocks} blocks
at batch 1.

- *Deviation* is the distance of the measured median from the counted time.
- *Second run* is the distance of the second run's median from that of the first one.

The figures show that the profiler counts right. They say nothing about the speed of real boards.
"""


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument(
        "--board", nargs="+", default=list(_BOARDS), choices=list(_BOARDS), help="default: all"
    )
    parser.add_argument("--model", help="default: a model for each board that mostly fits")
    parser.add_argument("--blocks", type=int, default=3)
    publish("benchmarks.ground_truth", parser, _measure)


def _measure(arguments: argparse.Namespace) -> Page:
    results: list[BoardResult] = []
    compilers: list[str] = []
    for name in arguments.board:
        with (
            tempfile.TemporaryDirectory() as directory,
            counted_board(name, Path(directory)) as board,
        ):
            compilers.append(board.running.description.toolchain.compiler)
            model = arguments.model or _BOARDS[name]
            results.append(_profile(board, name, model, arguments.blocks))
        report_progress(results[-1].sentence)
    programs = ["qemu-system-arm", *dict.fromkeys(compilers)]
    return Page(
        "How right the measurements are",
        _TEXT.format(blocks=arguments.blocks),
        [summary_table(results), *map(board_table, results)],
        [program_version(program) for program in programs],
    )


def _profile(board: CountedBoard, name: str, model: str, blocks: int) -> BoardResult:
    every = build_model(model, batch=1).distinct_specs
    specs = [spec for spec in every if _fits(spec, board)]
    return BoardResult(name, model, len(every), _results(board, specs, blocks))


def _results(
    board: CountedBoard, specs: Sequence[OpSpec], blocks: int
) -> tuple[OperationResult, ...]:
    options = ProfileOptions(blocks=blocks, storage=False)
    first, second = board.profile(specs, options), board.profile(specs, options)
    return tuple(
        OperationResult(
            spec.key,
            first.counted_s(spec) / (first.ns_per_instruction * 1e-9),
            first.counted_s(spec),
            first.measured_s(spec),
            second.measured_s(spec),
        )
        for spec in specs
    )


def _fits(spec: OpSpec, board: CountedBoard) -> bool:
    memory = board.running.description.memory
    return memory is None or operand_bytes(spec) <= _OPERANDS_SHARE * memory.usable_bytes


if __name__ == "__main__":
    main()
