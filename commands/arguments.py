"""Options shared by several commands, and the types of their values."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar, get_args

from devices.errors import InputError
from devices.operation import Loss
from devices.results import Results
from networks.kinds import (
    ADAM_LEARNING_RATE,
    LEARNING_RATE,
    MOMENTUM,
    WEIGHT_DECAY,
    Optimizer,
    Place,
)
from networks.rates import RateSchedule
from profiler.run.options import ProfileOptions
from solver.options import Coverage, SolverOptions
from solver.requests.request import DEFAULT_MODEL, DEFAULT_OPTIMIZER, CodecWord, ProfiledModel

if TYPE_CHECKING:
    from devices.quantities import Slices  # imports pydantic, which takes time

_MOST_WHOLE = 2**31 - 1
Number = TypeVar("Number", int, float)

DEFAULT_BATCH = 1


def add_json(parser: ArgumentParser) -> None:
    """Add ``--json``, which every command has."""
    parser.add_argument(
        "--json",
        action="store_true",
        help="print one JSON document on standard output and nothing else there",
    )


def add_results(parser: ArgumentParser) -> None:
    """Add ``--results``, for commands that read or write results."""
    parser.add_argument(
        "--results",
        type=_results,
        default=Results(),
        metavar="DIR",
        help="directory of results, also searched for profiles named without a path (./results)",
    )


def add_updates(parser: ArgumentParser, *, prefix: str = "") -> None:
    """Add the options for updates of parameters; ``prefix`` is put before their help."""
    parser.add_argument(
        "--learning-rate",
        type=positive,
        metavar="RATE",
        help=f"{prefix}learning rate of every step ({LEARNING_RATE}; of Adam {ADAM_LEARNING_RATE})",
    )
    parser.add_argument(
        "--rate-schedule",
        type=_rate_schedule,
        metavar="COURSE",
        help=f"{prefix}course of the learning rate: constant, cosine (falls to zero over all"
        " steps), warm-up:N (rises over N steps), warm-up-cosine:N (the first, then the second)"
        " (constant)",
    )
    parser.add_argument(
        "--momentum",
        type=fraction,
        metavar="X",
        help=f"{prefix}momentum of the optimizers momentum and nesterov ({MOMENTUM})",
    )
    parser.add_argument(
        "--weight-decay",
        type=fraction,
        metavar="X",
        help=f"{prefix}decay of all trained parameters, as PyTorch's optimizers of the same names"
        f" have it (0; of AdamW {WEIGHT_DECAY})",
    )


def add_device(parser: ArgumentParser) -> None:
    """Add ``--device``, one board."""
    parser.add_argument(
        "--device",
        required=True,
        help="a board of the catalogue by name, or the path of a device description",
    )


def add_storage_budget(parser: ArgumentParser, by: str) -> None:
    """Add ``--storage-budget-mib``, the limit of what ``by`` writes to storage."""
    default = ProfileOptions.storage_budget_bytes >> 20
    parser.add_argument(
        "--storage-budget-mib",
        type=count,
        default=default,
        metavar="MIB",
        help=f"most MiB written to storage by {by}, besides the values that these begin with"
        f" ({default})",
    )


def add_network(parser: ArgumentParser) -> None:
    """Add the options that state how a network is trained."""
    parser.add_argument(
        "--batch",
        type=count,
        help=f"samples in a step ({DEFAULT_BATCH}, or that of the file)",
    )
    parser.add_argument(
        "--optimizer",
        choices=get_args(Optimizer),
        default=DEFAULT_OPTIMIZER,
        help=f"how parameters are updated ({DEFAULT_OPTIMIZER})",
    )
    _add_choices_of_file(parser)


def _add_choices_of_file(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--loss",
        choices=get_args(Loss),
        help="loss to add to a file's network that returns predictions (none)",
    )
    parser.add_argument(
        "--train",
        action="append",
        metavar="WHAT",
        help="parameters to train, the others are frozen: head (the last layer that has any), bias,"
        " norm, or a pattern of names such as 'layer4.*'; may be repeated (all, or what requires a"
        " gradient in the file)",
    )
    parser.add_argument(
        "--lora",
        metavar="RANK[:GLOB]",
        help="train low-rank adapters of the linear layers whose weight's name fits the pattern"
        " (all), and freeze everything that --train does not name",
    )


def profiled_model(namespace: Namespace, *, strict: bool, codecs: CodecWord) -> ProfiledModel:
    """The network that the options of :func:`add_network_of_profile` and ``--slices`` ask for.

    Its profile is empty if ``--profile`` may be left out and is. ``strict`` and ``codecs`` as for
    :class:`~solver.requests.request.ProfiledModel`.
    """
    return ProfiledModel(
        profile=namespace.profile or "",
        model=namespace.model,
        batch=namespace.batch,
        optimizer=namespace.optimizer,
        parameters_in=namespace.parameters_in,
        loss=namespace.loss,
        train=selection(namespace),
        accumulate=namespace.accumulate,
        slices=namespace.slices or "auto",
        codecs=codecs,
        lora=namespace.lora,
        strict=strict,
    )


def add_network_of_profile(parser: ArgumentParser) -> None:
    """Add the options that replace the profile's network; each is None unless given."""
    parser.add_argument(
        "--model",
        metavar="NAME|FILE",
        help="network to train: built in, a file *.pt2 or *.onnx, or net.py:FUNCTION (the first one"
        f" in the profile, or {DEFAULT_MODEL})",
    )
    parser.add_argument(
        "--batch",
        type=count,
        help=f"samples in a step (with --model: {DEFAULT_BATCH}, or that of the file; else as in"
        " the profile)",
    )
    parser.add_argument(
        "--optimizer",
        choices=get_args(Optimizer),
        help="how parameters are updated"
        f" (with --model: {DEFAULT_OPTIMIZER}; else as in the profile)",
    )
    _add_choices_of_file(parser)
    parser.add_argument(
        "--accumulate",
        type=_parts,
        metavar="N|auto",
        help="take the batch in N equal parts, one after the other, and add their gradients up;"
        " auto: solve for every divisor of the batch, and take the cheapest that fits (with"
        " --model: 1; else as in the profile)",
    )


def slices(text: str) -> Slices:
    """Parse slices, such as 64KiB or 64KiB:16KiB."""
    from solver.problem.quantities import QuantityError, parse_slices

    try:
        return parse_slices(text)
    except QuantityError as error:
        raise ArgumentTypeError(str(error)) from None


def selection(namespace: Namespace) -> tuple[str, ...] | None:
    """Words of ``--train``; None if it is not given."""
    return None if namespace.train is None else tuple(namespace.train)


def add_home(parser: ArgumentParser) -> None:
    """Add ``--parameters-in``, the home of parameters between steps."""
    parser.add_argument(
        "--parameters-in",
        choices=get_args(Place),
        default="ram",
        help="home of parameters and optimizer state between steps; from storage they are paged in"
        " before they are read, and those that a step changes are paged out again (ram)",
    )


_STATED_BY_GRAPH: Mapping[str, str] = {
    "model": "is that of one network",
    "batch": "is that of one batch",
    "optimizer": "states how parameters are updated",
    "loss": "has the loss in it",
    "train": "states which parameters are trained",
    "lora": "has the adapters in it",
    "accumulate": "is that of one way to take the batch",
    "slices": "states the parts of its weights",
    "codecs": "states what the backward pass reads",
    "parameters_in": "states the home of its tensors",
    "strict": "states the cost of every operation",
}
"""Options that state how a step is taken, and why a costed graph excludes them."""


def require_no_options_of_model(namespace: Namespace, **defaults: object) -> None:
    """Reject options that state how a step is taken together with ``--graph``.

    Args:
        namespace: The parsed options.
        defaults: Values that options have unless they are given, where these are not None.

    Raises:
        InputError: One of them and ``--graph`` are given.
    """
    if namespace.graph is None:
        return
    unless_given = {"parameters_in": "ram", "strict": False, **defaults}
    for name, reason in _STATED_BY_GRAPH.items():
        if getattr(namespace, name, None) not in (None, unless_given.get(name)):
            option = f"--{name.replace('_', '-')}"
            raise InputError(
                f"{option} cannot be used with --graph: the costed graph {reason}; leave {option}"
                " out"
            )


def add_coverage(parser: ArgumentParser) -> None:
    """Add ``--budget-covers``, the tensors that count against a RAM budget."""
    parser.add_argument(
        "--budget-covers",
        choices=get_args(Coverage),
        default="all",
        help="what the RAM budget must hold. all: parameters, gradients and optimizer state too;"
        " activations: only activations and their gradients, as POET counts (all)",
    )


def add_gap(parser: ArgumentParser) -> None:
    """Add ``--gap``, the gap at which a search may end."""
    parser.add_argument(
        "--gap",
        type=fraction,
        default=SolverOptions.gap,
        help="stop once it is proven that no schedule saves more than this fraction of the energy"
        f" ({SolverOptions.gap})",
    )


def add_graph_beside(parser: ArgumentParser) -> None:
    """Add ``--graph``, the costed graph of a schedule."""
    parser.add_argument(
        "--graph",
        type=Path,
        help="costed graph of the schedule (the file that solve writes beside the schedule)",
    )


def count(text: str) -> int:
    """Parse a whole number above 0."""
    allowed = f"a whole number from 1 to {_MOST_WHOLE}"
    return _parsed(text, int, lambda value: 1 <= value <= _MOST_WHOLE, allowed)


def seed(text: str) -> int:
    """Parse a seed of random numbers: a whole number that is not negative."""
    allowed = f"a whole number from 0 to {_MOST_WHOLE}"
    return _parsed(text, int, lambda value: 0 <= value <= _MOST_WHOLE, allowed)


def positive(text: str) -> float:
    """Parse a number above 0."""
    from devices.quantities import LEAST, MOST  # imports pydantic, which takes time

    allowed = f"a number from {LEAST:g} to {MOST:g}"
    return _parsed(text, float, lambda value: LEAST <= value <= MOST, allowed)


def fraction(text: str) -> float:
    """Parse a number from 0 to below 1."""
    allowed = "a fraction from zero to below one, such as 0.01"
    return _parsed(text, float, lambda value: 0 <= value < 1, allowed)


def _parsed(
    text: str, parse: Callable[[str], Number], is_allowed: Callable[[Number], bool], allowed: str
) -> Number:
    try:
        value = parse(text)
    except ValueError:
        value = None
    if value is None or not is_allowed(value):
        raise ArgumentTypeError(f"{text!r} is not {allowed}")
    return value


def _parts(text: str) -> int | Literal["auto"]:
    return "auto" if text == "auto" else count(text)


def _rate_schedule(text: str) -> RateSchedule:
    try:
        return RateSchedule.parse(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None


def _results(text: str) -> Results:
    return Results(Path(text))
