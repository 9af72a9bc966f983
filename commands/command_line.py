"""What can be said on the command line: commands, options and what they may be."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from devices.program import COMMAND
from devices.results import Results

_EXIT_CODES = """exit codes: 0 done; 1 internal error; 2 usage or bad input file;
3 board unreachable; 4 measurement invalid; 5 infeasible;
6 limit reached without a solution; 130 interrupted"""


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """``command`` names the command. Ends the program with exit code 2, and a sentence, for what is
    none."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    if arguments.command == "profile":
        if arguments.refine is not None and (unused := _changed(arguments, _MEASURING)):
            parser.error(
                f"profile --refine measures the operations that RUN names, in its schedule:"
                f" {', '.join(unused)} cannot be chosen beside it"
            )
        arguments.model = arguments.model or ["resnet18_cifar"]
    if arguments.command == "plot" and not (arguments.profile or arguments.schedule):
        parser.error("plot needs --profile or --schedule")
    return arguments


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=COMMAND,
        description="Measure what training costs on a board; schedule recomputation and paging so"
        " that it fits, at the least energy, provably.",
        epilog=_EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--json", action="store_true", help="one JSON document on standard output, nothing else"
    )
    stored = argparse.ArgumentParser(add_help=False, parents=[common])
    stored.add_argument(
        "--results",
        type=_results,
        default=Results(),
        metavar="DIR",
        help="where results are read and written, profiles by name too (./results)",
    )
    _add_profile(commands.add_parser("profile", parents=[stored], help="measure a board"))
    _add_solve(commands.add_parser("solve", parents=[stored], help="find the schedule"))
    _add_run(
        commands.add_parser("run", parents=[stored], help="run a schedule on its board, measured")
    )
    _add_sweep(
        commands.add_parser("sweep", parents=[stored], help="draw energy against RAM and time")
    )
    _add_plot(commands.add_parser("plot", parents=[stored], help="draw profiles and schedules"))
    _add_export(
        commands.add_parser("export", parents=[stored], help="a schedule as C, or as a trace")
    )
    difference = commands.add_parser(
        "diff", parents=[stored], help="which costs of two profiles differ, and by how much"
    )
    difference.add_argument("first", metavar="A", help="a profile, by name or path")
    difference.add_argument("second", metavar="B", help="the other one")
    commands.add_parser("devices", parents=[common], help="list the boards of the catalogue")
    _add_flash(
        commands.add_parser("flash", parents=[common], help="put firmware on a microcontroller")
    )
    _add_lab(commands.add_parser("lab", help="keep emulated boards running"), common)
    models = commands.add_parser("models", parents=[common], help="list the networks")
    models.add_argument("--batch", type=_count, default=1)
    return parser


# Options of measuring every operation by itself, and what they are where nobody chooses.
_MEASURING: dict[str, object] = {
    "model": None,
    "batch": 1,
    "optimizer": "sgd",
    "blocks": 5,
    "seed": 0,
    "no_storage": False,
    "storage_budget_mib": 256,
    "overwrite_raw_flash": False,
    "no_additivity": False,
}


def _changed(arguments: argparse.Namespace, defaults: Mapping[str, object]) -> list[str]:
    """Options with another value than that."""
    values = vars(arguments)
    changed = [name for name, default in defaults.items() if values[name] != default]
    return [f"--{name.replace('_', '-')}" for name in changed]


def _add_profile(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--device", required=True, help="a board of the catalogue, or a description's path"
    )
    _add_network(parser)
    parser.add_argument(
        "--model",
        action="append",
        metavar="NAME",
        help="measure the operations of this network; may be repeated; the first one's training"
        " step is run whole as the additivity check (default: resnet18_cifar)",
    )
    parser.add_argument(
        "--refine",
        type=Path,
        metavar="RUN",
        help="measure again only the operations that a run holds responsible for being off, among"
        " the others of its schedule, and put that into the profile",
    )
    parser.add_argument("--blocks", type=_count, help="repetitions of everything (5)")
    parser.add_argument("--seed", type=int, help="of the random order (0)")
    parser.add_argument("--no-storage", action="store_true", help="write nothing to storage")
    parser.add_argument(
        "--storage-budget-mib", type=_count, help="most MiB written to storage (256)"
    )
    parser.add_argument(
        "--overwrite-raw-flash",
        action="store_true",
        help="measure on the raw flash partition that the description names, losing what it holds",
    )
    parser.add_argument("--no-additivity", action="store_true", help="run no whole training step")
    parser.add_argument(
        "--dry-run", action="store_true", help="say what would be done; touch nothing"
    )
    parser.add_argument("--out", type=Path, help="default: results/profiles/DEVICE.yaml")
    parser.set_defaults(**_MEASURING)


def _add_solve(parser: argparse.ArgumentParser) -> None:
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--profile", help="measured (name or path), or published (m0, m4, a72, …)")
    source.add_argument("--graph", type=Path, help="a costed graph instead of profile and model")
    _add_network(parser)
    parser.add_argument(
        "--model", default="resnet18_cifar", metavar="NAME", help="(resnet18_cifar)"
    )
    _add_home(parser)
    parser.add_argument(
        "--ram-budget", help="512KiB, 1.2MB, bytes, or 40%% of the unconstrained peak"
    )
    _add_coverage(parser)
    parser.add_argument(
        "--deadline", help="seconds, or 1.5x one step with nothing recomputed or paged"
    )
    _add_gap(parser)
    parser.add_argument("--time-limit", type=_positive, metavar="SECONDS")
    parser.add_argument("--threads", type=_count, default=os.cpu_count() or 1)
    parser.add_argument(
        "--formulation", choices=("auto", "compact", "poet", "retention"), default="auto"
    )
    parser.add_argument(
        "--order",
        choices=("auto", "given", "free"),
        default="auto",
        help="whether ops may change places: where that pays (auto), never, or always searched",
    )
    parser.add_argument("--engine", choices=("highs", "cbc", "gurobi"), default="highs")
    parser.add_argument(
        "--instantaneous-paging",
        action="store_true",
        help="transfers count no time against the deadline, as POET counts",
    )
    parser.add_argument(
        "--no-addresses",
        action="store_true",
        help="count RAM as a sum of bytes, as published methods do: the schedule may not pack",
    )
    parser.add_argument("--no-paging", action="store_true", help="recompute only")
    parser.add_argument("--no-remat", action="store_true", help="page only")
    parser.add_argument(
        "--strict", action="store_true", help="an operation that was not measured is an error"
    )
    parser.add_argument(
        "--draws",
        type=_count,
        metavar="N",
        help="draw all costs N times from the profile's intervals: how often is the schedule within"
        " 1 %% of the best, and which is best on average",
    )
    parser.add_argument(
        "--robust", action="store_true", help="with --draws: write the one best on average"
    )
    parser.add_argument(
        "--baselines",
        action="store_true",
        help="run the published methods too and print them beside the schedule",
    )
    parser.add_argument("--export-graph", type=Path, metavar="FILE", help="write the costed graph")
    parser.add_argument("--out", type=Path, help="default: results/schedules/GRAPH.json")
    parser.add_argument("--pictures", type=Path, metavar="DIRECTORY", help="draw the result there")


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--schedule", required=True, type=Path, help="as solve has written it")
    parser.add_argument(
        "--device", required=True, help="a board of the catalogue, or a description's path"
    )
    _add_graph_beside(parser)
    parser.add_argument("--steps", type=_count, default=10, help="training steps (10)")
    parser.add_argument(
        "--batches",
        type=Path,
        metavar="FILE",
        help="samples to train on: .npz with an array for each input (default: generated ones)",
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="of initial values and generated samples (0)"
    )
    parser.add_argument(
        "--steps-per-day",
        type=_positive,
        default=1000.0,
        metavar="N",
        help="for the years that the storage lasts (1000)",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="say what would be done; touch no board"
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIRECTORY", help="default: results/replays/DEVICE-SCHEDULE"
    )


def _add_graph_beside(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--graph", type=Path, help="its costed graph, if it does not lie beside it")


def _add_sweep(parser: argparse.ArgumentParser) -> None:
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--profile", nargs="+", help="measured (name or path), or published")
    source.add_argument(
        "--graph", nargs="+", type=Path, metavar="FILE", help="costed graphs instead"
    )
    parser.add_argument(
        "--model", nargs="+", default=["resnet18_cifar"], metavar="NAME", help="(resnet18_cifar)"
    )
    _add_network(parser)
    _add_home(parser)
    parser.add_argument(
        "--ram-budgets",
        required=True,
        metavar="B,B,...",
        help="as solve has them, with commas: 512KiB,1.2MB,40%%; or so many of a range:"
        " 20%%..100%%/9",
    )
    parser.add_argument(
        "--deadlines", default="none", metavar="D,D,...", help="as solve has them, or none (none)"
    )
    _add_coverage(parser)
    _add_gap(parser)
    parser.add_argument(
        "--time-limit", type=_positive, metavar="SECONDS", help="of each point, each baseline"
    )
    cores = os.cpu_count() or 1
    parser.add_argument(
        "--jobs", type=_count, default=cores, help=f"points solved at once ({cores})"
    )
    parser.add_argument("--scheduler", metavar="ADDRESS", help="of a Dask cluster that is to solve")
    parser.add_argument("--no-baselines", action="store_true", help="run none for comparison")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIRECTORY",
        help="(results/sweep); what it has is not solved again",
    )


def _add_coverage(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--budget-covers",
        choices=("all", "activations"),
        default="all",
        help="all: parameters, gradients, optimizer state too; activations: as POET counts",
    )


def _add_gap(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--gap", type=_fraction, default=0.001, help="relative, to be proven (0.001)"
    )


def _add_plot(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--profile", help="op costs and paging costs of a profile")
    parser.add_argument("--schedule", type=Path, help="memory and stages of a schedule")
    _add_graph_beside(parser)
    parser.add_argument("--directory", type=Path, help="for the pictures (results)")


def _add_export(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--schedule", type=Path, required=True)
    parser.add_argument("--graph", type=Path, help="its costed graph, if it does not lie beside it")
    parser.add_argument(
        "--format",
        choices=("c", "perfetto"),
        required=True,
        help="c: a project with executor, kernels and plan, and an example that trains; perfetto: a"
        " trace of ops, transfers and memory",
    )
    parser.add_argument(
        "--device",
        help="c: the board whose storage and compiler it is for (any: pages of 512 bytes)",
    )
    parser.add_argument(
        "--run", type=Path, metavar="DIRECTORY", help="perfetto: what this run measured, too"
    )
    parser.add_argument("--out", type=Path, metavar="DIRECTORY", help="c: results/export/SCHEDULE")
    parser.add_argument(
        "--seed", type=int, default=0, help="c: of initial values and generated samples (0)"
    )


def _add_flash(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--device", required=True, help="a board of the catalogue, or a description's path"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="build, and say what would be done; touch no board"
    )


def _add_lab(parser: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="up|status|down")
    up = actions.add_parser("up", parents=[common], help="start boards that keep running")
    up.add_argument(
        "--device",
        nargs="+",
        metavar="NAME",
        help="of the catalogue, or a description's path (all emulated boards of the catalogue)",
    )
    actions.add_parser("status", parents=[common], help="which are running, since when")
    down = actions.add_parser("down", parents=[common], help="stop them")
    down.add_argument("name", nargs="*", metavar="NAME", help="only these")


def _add_network(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--batch", type=_count, default=1, help="samples in a step (1)")
    parser.add_argument("--optimizer", choices=("sgd", "momentum"), default="sgd")


def _add_home(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--parameters-in",
        choices=("ram", "storage"),
        default="ram",
        help="where parameters and optimizer state are between steps; from storage they are paged"
        " in where they are read, and what a step changes is written back (ram)",
    )


def _results(text: str) -> Results:
    return Results(Path(text))


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number above 0")
    return value


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a number above 0")
    return value


def _fraction(text: str) -> float:
    value = float(text)
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a fraction from 0 to below 1")
    return value
