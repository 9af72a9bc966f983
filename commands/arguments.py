"""Options that several commands have, and the types of their values."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from pathlib import Path
from typing import get_args

from devices.errors import InputError
from devices.results import Results
from networks.kinds import Optimizer, Place
from solver.options import Coverage, SolverOptions

DEFAULT_BATCH = 1
DEFAULT_MODEL = "resnet18_cifar"
DEFAULT_OPTIMIZER: Optimizer = "sgd"


def add_json(parser: ArgumentParser) -> None:
    """``--json``, which every command has."""
    parser.add_argument(
        "--json", action="store_true", help="one JSON document on standard output, nothing else"
    )


def add_results(parser: ArgumentParser) -> None:
    """``--results``, of commands that read or write any."""
    parser.add_argument(
        "--results",
        type=_results,
        default=Results(),
        metavar="DIR",
        help="where results are read and written, profiles by name too (./results)",
    )


def add_device(parser: ArgumentParser) -> None:
    """``--device``, the one board."""
    parser.add_argument(
        "--device", required=True, help="a board of the catalogue, or a description's path"
    )


def add_network(parser: ArgumentParser) -> None:
    """Add the options that say how a network is trained."""
    parser.add_argument(
        "--batch", type=count, default=DEFAULT_BATCH, help=f"samples in a step ({DEFAULT_BATCH})"
    )
    parser.add_argument("--optimizer", choices=get_args(Optimizer), default=DEFAULT_OPTIMIZER)


def add_network_of_profile(parser: ArgumentParser) -> None:
    """Add the options that choose another network than that of the profile; each None without a
    choice."""
    parser.add_argument(
        "--model", metavar="NAME", help=f"(the one that the profile names, or {DEFAULT_MODEL})"
    )
    parser.add_argument(
        "--batch",
        type=count,
        help=f"samples in a step (with --model {DEFAULT_BATCH}, without it those of the profile)",
    )
    parser.add_argument(
        "--optimizer",
        choices=get_args(Optimizer),
        help=f"(with --model {DEFAULT_OPTIMIZER}, without it the profile's)",
    )


def add_home(parser: ArgumentParser) -> None:
    """Add the place of parameters between steps."""
    parser.add_argument(
        "--parameters-in",
        choices=get_args(Place),
        default="ram",
        help="where parameters and optimizer state are between steps; from storage they are paged"
        " in where they are read, and what a step changes is written back (ram)",
    )


def require_home_of_model(namespace: Namespace) -> None:
    """Raises :class:`~devices.errors.InputError` for ``--parameters-in`` beside a graph."""
    if namespace.graph is not None and namespace.parameters_in != "ram":
        raise InputError(
            "--parameters-in is for --model; a costed graph says itself where its tensors live"
        )


def add_coverage(parser: ArgumentParser) -> None:
    """Add the choice of tensors that count against a RAM budget."""
    parser.add_argument(
        "--budget-covers",
        choices=get_args(Coverage),
        default="all",
        help="all: parameters, gradients, optimizer state too; activations: as POET counts",
    )


def add_gap(parser: ArgumentParser) -> None:
    """Add the gap at which a search may end."""
    parser.add_argument(
        "--gap",
        type=_fraction,
        default=SolverOptions.gap,
        help=f"relative, to be proven ({SolverOptions.gap})",
    )


def add_graph_beside(parser: ArgumentParser) -> None:
    """The graph of a schedule."""
    parser.add_argument("--graph", type=Path, help="its costed graph, if it does not lie beside it")


def count(text: str) -> int:
    """A whole number above 0."""
    value = int(text)
    if value < 1:
        raise ArgumentTypeError(f"{text} is not a whole number above 0")
    return value


def positive(text: str) -> float:
    """A number above 0."""
    value = float(text)
    if not 0 < value < float("inf"):
        raise ArgumentTypeError(f"{text} is not a number above 0")
    return value


def _fraction(text: str) -> float:
    value = float(text)
    if not 0 <= value < 1:
        raise ArgumentTypeError(f"{text} is not a fraction from 0 to below 1")
    return value


def _results(text: str) -> Results:
    return Results(Path(text))
