"""Options of ``sweep``."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from commands.arguments import (
    add_coverage,
    add_gap,
    add_home,
    add_json,
    add_network,
    add_results,
    count,
    positive,
    require_no_options_of_model,
    selection,
    slices,
)
from devices.operation import Loss
from devices.results import Results
from networks.kinds import Optimizer, Place
from solver.options import Coverage, SolverOptions
from solver.requests.request import DEFAULT_MODEL, DEFAULT_OPTIMIZER

if TYPE_CHECKING:
    from devices.quantities import Slices


@dataclass(frozen=True)
class ProfiledModels:
    """Every network with every profile (name or path), parts of its batch, slices and codecs."""

    profiles: tuple[str, ...]
    models: tuple[str, ...]
    batch: int | None
    optimizer: Optimizer
    parameters_in: Place
    loss: Loss | None
    train: tuple[str, ...] | None
    accumulate: tuple[int, ...]
    slices: tuple[Slices | None, ...]
    codecs: bool
    lora: str | None


@dataclass(frozen=True)
class SweepOptions:
    """Graphs, grid and search.

    ``ram_budgets`` and ``deadlines`` are as the user wrote them; ``solver`` applies to each point.
    ``scheduler`` is the address of a Dask cluster that solves in place of ``jobs`` processes.
    """

    graphs: tuple[Path, ...] | ProfiledModels
    ram_budgets: str
    deadlines: str
    covers: Coverage
    solver: SolverOptions
    jobs: int
    scheduler: str | None
    baselines: bool
    out: Path | None
    results: Results

    @classmethod
    def of(cls, namespace: Namespace) -> SweepOptions:
        """Read the options.

        Raises:
            InputError: Options exclude each other.
        """
        require_no_options_of_model(namespace, **_DEFAULTS)
        return cls(
            graphs=tuple(namespace.graph)
            if namespace.graph is not None
            else ProfiledModels(
                profiles=tuple(namespace.profile),
                models=tuple(namespace.model),
                batch=namespace.batch,
                optimizer=namespace.optimizer,
                parameters_in=namespace.parameters_in,
                loss=namespace.loss,
                train=selection(namespace),
                accumulate=tuple(namespace.accumulate),
                slices=tuple(namespace.slices or (None,)),
                codecs=bool(namespace.codecs),
                lora=namespace.lora,
            ),
            ram_budgets=namespace.ram_budgets,
            deadlines=namespace.deadlines,
            covers=namespace.budget_covers,
            solver=SolverOptions(
                gap=namespace.gap,
                time_limit_s=namespace.time_limit,
                threads=_threads(namespace),
            ),
            jobs=namespace.jobs,
            scheduler=namespace.scheduler,
            baselines=not namespace.no_baselines,
            out=namespace.out,
            results=namespace.results,
        )


# Defaults of options that a costed graph excludes.
_DEFAULTS: Mapping[str, object] = {
    "model": [DEFAULT_MODEL],
    "optimizer": DEFAULT_OPTIMIZER,
    "accumulate": [1],
}


def _threads(namespace: Namespace) -> int:
    """Threads for each point: all cores for a single job, else one."""
    alone = namespace.scheduler is None and namespace.jobs == 1
    return (os.cpu_count() or 1) if alone else 1


def add_options(parser: ArgumentParser) -> None:
    """Add the options of ``sweep``."""
    add_json(parser)
    add_results(parser)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--profile", nargs="+", help="measured profiles (name or path), or published ones"
    )
    source.add_argument(
        "--graph",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="costed graphs, in place of profiles and models",
    )
    parser.add_argument(
        "--model",
        nargs="+",
        default=_DEFAULTS["model"],
        metavar="NAME|FILE",
        help="networks to train: built in, files *.pt2 or *.onnx, or net.py:FUNCTION"
        f" ({DEFAULT_MODEL})",
    )
    add_network(parser)
    parser.add_argument(
        "--accumulate",
        nargs="+",
        type=count,
        default=_DEFAULTS["accumulate"],
        metavar="N",
        help="take the batch in N equal parts, one after the other, and add their gradients up;"
        " with several numbers, every network is solved with each of them (1)",
    )
    parser.add_argument(
        "--slices",
        nargs="+",
        type=slices,
        metavar="BYTES[:BYTES]",
        help="do layers with larger weights in parts of at most so many bytes, such as 64KiB, and"
        " those with larger activations too (64KiB:16KiB); with several sizes, every network is"
        " solved with each of them (no parts)",
    )
    parser.add_argument(
        "--codecs",
        action="store_true",
        default=None,
        help="solve every network with codecs: the backward pass reads bits of activations and"
        " places of maxima where it needs no more",
    )
    add_home(parser)
    parser.add_argument(
        "--ram-budgets",
        required=True,
        metavar="B,B,...",
        help="RAM budgets as in solve, separated by commas, such as 512KiB,1.2MB,40%%; or evenly"
        " spaced ones of a range, such as 20%%..100%%/9 for nine, at most 1000",
    )
    parser.add_argument(
        "--deadlines",
        default="none",
        metavar="D,D,...",
        help="deadlines as in solve, separated by commas, or none (none)",
    )
    add_coverage(parser)
    add_gap(parser)
    parser.add_argument(
        "--time-limit",
        type=positive,
        metavar="SECONDS",
        help="limit for each point and each baseline (none)",
    )
    cores = os.cpu_count() or 1
    parser.add_argument(
        "--jobs", type=count, default=cores, help=f"points solved at once ({cores})"
    )
    parser.add_argument(
        "--scheduler",
        metavar="ADDRESS",
        help="address of a Dask scheduler whose cluster solves the points (none)",
    )
    parser.add_argument(
        "--no-baselines", action="store_true", help="do not run the baselines for comparison"
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIRECTORY",
        help="directory of the sweep; points already in it are not solved again (results/sweep)",
    )
