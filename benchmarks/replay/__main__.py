"""Schedules run on a board.

    python -m benchmarks.replay accuracy [--device D] [--model M ...] [--batch N ...]
    python -m benchmarks.replay methods [--device D] [--model M] [--batch N] [--share S]
    python -m benchmarks.replay overhead [--device D]

`accuracy`: for each network, batch and budget, the step's time as predicted and as measured, its
RAM, its values against those of the unscheduled step, and the executor's share. `methods`: what
methods come to side by side, run in turns. Both profile right before they solve and run.
`overhead`: what the executor takes of its own.
"""

from __future__ import annotations

import argparse
import datetime
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.machine import machine_line
from benchmarks.replay.accuracy import Question, accuracy
from benchmarks.replay.cases import Network
from benchmarks.replay.methods import Question as MethodsQuestion
from benchmarks.replay.methods import methods
from benchmarks.replay.overhead import overhead
from devices.description import load_description
from devices.documents.document import write_atomically


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("accuracy", "methods", "overhead"))
    parser.add_argument("--device", default="local")
    parser.add_argument("--model", nargs="+", default=["resnet8", "dscnn", "resnet18_cifar"])
    parser.add_argument("--batch", nargs="+", type=int, default=[1, 8])
    parser.add_argument("--share", nargs="+", type=float, default=[0.5, 0.3])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--blocks", type=int, default=5)
    parser.add_argument("--time-limit", type=float, default=20.0)
    parser.add_argument("--out", type=Path, help="where to write the Markdown as well")
    arguments = parser.parse_args()
    lines: list[str] = []
    for line in _report(arguments):
        print(line, flush=True)
        lines.append(line)
        if arguments.out is not None:
            write_atomically(arguments.out, "\n".join(lines) + "\n")


def _report(arguments: argparse.Namespace) -> Iterator[str]:
    description = load_description(arguments.device)
    yield f"{datetime.date.today()}, {machine_line()}"
    yield (
        f"{description.name}: {arguments.steps} steps each, {arguments.blocks} blocks,"
        f" {arguments.time_limit:g} s for the solver"
    )
    yield ""
    if arguments.what == "accuracy":
        yield from accuracy(
            Question(
                description,
                [Network(model, batch) for model in arguments.model for batch in arguments.batch],
                arguments.share,
                arguments.steps,
                arguments.blocks,
                arguments.time_limit,
            ),
            _say,
        )
        return
    if arguments.what == "overhead":
        yield from overhead(description, arguments.steps, _say)
        return
    yield from methods(
        MethodsQuestion(
            description,
            Network(arguments.model[0], arguments.batch[-1]),
            arguments.share[0],
            arguments.steps,
            arguments.blocks,
            arguments.time_limit,
        ),
        _say,
    )


def _say(what: str) -> None:
    if not what.startswith("compiling"):
        print(what, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
