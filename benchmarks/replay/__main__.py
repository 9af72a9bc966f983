"""Schedules run on a board.

    python -m benchmarks.replay accuracy [--write docs/benchmarks/predictions.md]
    python -m benchmarks.replay choices [--write docs/benchmarks/choices.md]
    python -m benchmarks.replay alignment [--write docs/benchmarks/alignment.md]
    python -m benchmarks.replay methods [--write docs/benchmarks/methods.md]
    python -m benchmarks.replay overhead [--write docs/benchmarks/overhead.md]
    python -m benchmarks.replay costs --record RESULTS [--write docs/benchmarks/costs.md]
    python -m benchmarks.replay floor --profiles FILE ... --again FILE ...
        [--write docs/benchmarks/floor.md]
    python -m benchmarks.replay demos [--write docs/benchmarks/demos.md]

``accuracy`` compares predicted and measured steps of several networks, batches and budgets,
``choices`` schedules that were chosen with different costs, ``alignment`` a schedule with addresses
on and off the beginnings of cache lines, and ``methods`` schedules of several methods. All profile
immediately before they solve and run. ``overhead`` measures the time that the executor itself
takes. ``costs`` compares methods of costing on directories of results that ``profile``, ``solve``
and ``run`` have filled. ``floor`` compares profiles with later ones of the same networks, to show
what noise forbids. ``demos`` runs ``make demo`` many times on this computer. Each has ``--help``.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.machine import package_version, program_version, solver_versions
from benchmarks.pages import Page
from benchmarks.publish import command_line, publish, report_progress
from benchmarks.replay.accuracy import Question, accuracy_page
from benchmarks.replay.alignment import alignment_page
from benchmarks.replay.cases import Network
from benchmarks.replay.choices import choices_page
from benchmarks.replay.costs import costs_page
from benchmarks.replay.demos import demos_page
from benchmarks.replay.floor import floor_page
from benchmarks.replay.methods import Question as MethodsQuestion
from benchmarks.replay.methods import methods_page
from benchmarks.replay.overhead import overhead_page
from benchmarks.replay.turns import Question as TurnsQuestion
from devices.description import DeviceDescription, load_description
from devices.quantities import Slices
from profiler.run.options import ProfileOptions
from solver.problem.quantities import parse_slices

_NETWORKS = (
    *("resnet8:1", "resnet8:8", "dscnn:1", "dscnn:8", "digits:8", "digits:32", "mobilenet:1"),
    *("mobilenet:8", "resnet18_cifar:1", "resnet18_cifar:8", "autoencoder:1", "autoencoder:8"),
    "transformer:1",
)

_IN_TURNS = ("resnet8:1", "resnet8:8", "dscnn:8", "digits:32", "mobilenet:1", "autoencoder:8")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    kinds = parser.add_subparsers(
        required=True, metavar="accuracy|choices|alignment|methods|overhead|costs|floor|demos"
    )
    parent = command_line()
    parent.add_argument("--device", default="local", help="a board of the catalogue, or a file")
    parent.add_argument("--steps", type=int, default=20, help="steps of each run")
    accuracy = kinds.add_parser("accuracy", parents=[parent], allow_abbrev=False)
    accuracy.add_argument(
        "--network", nargs="+", default=_NETWORKS, metavar="MODEL:BATCH", help="(%(default)s)"
    )
    accuracy.add_argument("--slices", type=parse_slices, help="layers in parts (64KiB:64KiB)")
    accuracy.add_argument(
        "--again", type=float, metavar="MINUTES", help="run every schedule again so much later"
    )
    accuracy.add_argument("--share", nargs="+", type=float, default=[0.5, 0.3])
    accuracy.set_defaults(measure=_accuracy)
    choices = kinds.add_parser("choices", parents=[parent], allow_abbrev=False)
    choices.set_defaults(measure=_choices)
    alignment = kinds.add_parser("alignment", parents=[parent], allow_abbrev=False)
    alignment.set_defaults(measure=_alignment)
    for in_turns in (choices, alignment):
        in_turns.add_argument("--network", nargs="+", default=_IN_TURNS, metavar="MODEL:BATCH")
        in_turns.add_argument("--share", nargs="+", type=float, default=[0.5, 0.3])
        in_turns.add_argument("--rounds", type=int, default=9, help="rounds of all schedules (9)")
    methods = kinds.add_parser("methods", parents=[parent], allow_abbrev=False)
    methods.add_argument("--model", default="resnet8")
    methods.add_argument("--batch", type=int, default=8)
    methods.add_argument("--share", type=float, default=0.4)
    methods.set_defaults(measure=_methods)
    for solving in (accuracy, choices, alignment, methods):
        solving.add_argument("--blocks", type=int, default=5, help="blocks of a profile")
        solving.add_argument(
            "--storage-budget-mib",
            type=int,
            default=ProfileOptions.storage_budget_bytes >> 20,
            metavar="MIB",
            help="most MiB that a profile writes to storage (%(default)s)",
        )
        solving.add_argument("--time-limit", type=float, default=20.0, metavar="SECONDS")
    costs = kinds.add_parser("costs", parents=[command_line()], allow_abbrev=False)
    costs.add_argument("--record", nargs="+", type=Path, required=True, metavar="RESULTS")
    costs.set_defaults(measure=_costs)
    floor = kinds.add_parser("floor", parents=[command_line()], allow_abbrev=False)
    for name in ("profiles", "again"):
        floor.add_argument(f"--{name}", nargs="+", type=Path, required=True, metavar="FILE")
    floor.set_defaults(measure=_floor)
    overhead = kinds.add_parser("overhead", parents=[parent], allow_abbrev=False)
    overhead.set_defaults(measure=_overhead)
    demos = kinds.add_parser("demos", parents=[command_line()], allow_abbrev=False)
    demos.add_argument("--count", type=int, default=20, help="runs of the demo (20)")
    demos.set_defaults(measure=_demos)
    publish("benchmarks.replay", parser, lambda arguments: arguments.measure(arguments))


def _accuracy(arguments: argparse.Namespace) -> Page:
    description = load_description(arguments.device)
    if arguments.slices is not None:  # a BLAS promises parts no bits of whole layers
        description = description.with_matmul("in-tree")
    question = Question(
        description,
        [_network(word, arguments.slices) for word in arguments.network],
        arguments.share,
        arguments.steps,
        _profiling(arguments),
        arguments.time_limit,
        None if arguments.again is None else 60 * arguments.again,
    )
    return accuracy_page(question, _versions(description), _report)


def _choices(arguments: argparse.Namespace) -> Page:
    question = _in_turns(arguments)
    return choices_page(question, _versions(question.description), _report)


def _alignment(arguments: argparse.Namespace) -> Page:
    question = _in_turns(arguments)
    return alignment_page(question, _versions(question.description), _report)


def _in_turns(arguments: argparse.Namespace) -> TurnsQuestion:
    return TurnsQuestion(
        load_description(arguments.device),
        [_network(word, None) for word in arguments.network],
        arguments.share,
        arguments.steps,
        _profiling(arguments),
        arguments.time_limit,
        arguments.rounds,
    )


def _profiling(arguments: argparse.Namespace) -> ProfileOptions:
    return ProfileOptions(
        blocks=arguments.blocks, storage_budget_bytes=arguments.storage_budget_mib << 20
    )


def _network(word: str, slices: Slices | None) -> Network:
    model, _, batch = word.partition(":")
    return Network(model, int(batch or 1), slices)


def _methods(arguments: argparse.Namespace) -> Page:
    description = load_description(arguments.device)
    question = MethodsQuestion(
        description,
        Network(arguments.model, arguments.batch),
        arguments.share,
        arguments.steps,
        _profiling(arguments),
        arguments.time_limit,
    )
    return methods_page(question, _versions(description), _report)


def _costs(arguments: argparse.Namespace) -> Page:
    return costs_page(arguments.record, solver_versions())


def _floor(arguments: argparse.Namespace) -> Page:
    return floor_page(arguments.profiles, arguments.again, [package_version("numpy", "numpy")])


def _demos(arguments: argparse.Namespace) -> Page:
    return demos_page(arguments.count, _versions(load_description("local")), _report)


def _overhead(arguments: argparse.Namespace) -> Page:
    description = load_description(arguments.device)
    return overhead_page(description, arguments.steps, _versions(description), _report)


def _versions(description: DeviceDescription) -> list[str]:
    """Versions of the software on this computer. A board's own compiler is in its profile."""
    versions = [*solver_versions(), package_version("scipy-openblas32", "OpenBLAS (wheel)")]
    if description.transport.kind == "local":
        compiler = description.toolchain.compiler
        versions.append(program_version(compiler, "gcc" if compiler == "cc" else compiler))
    return versions


def _report(line: str) -> None:
    if not line.startswith("compiling"):
        report_progress(line)


if __name__ == "__main__":
    main()
