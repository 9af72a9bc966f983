"""Options of ``sweep``."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from dataclasses import dataclass
from pathlib import Path

from commands.arguments import (
    DEFAULT_MODEL,
    add_coverage,
    add_gap,
    add_home,
    add_json,
    add_network,
    add_results,
    count,
    positive,
    require_home_of_model,
)
from devices.results import Results
from networks.kinds import Optimizer, Place
from solver.options import Coverage, SolverOptions


@dataclass(frozen=True)
class ProfiledModels:
    """Every network with every profile (name or path)."""

    profiles: tuple[str, ...]
    models: tuple[str, ...]
    batch: int
    optimizer: Optimizer
    parameters_in: Place


@dataclass(frozen=True)
class SweepOptions:
    """``graphs`` is where the costs come from; ``ram_budgets`` and ``deadlines`` are as they are
    written, ``solver`` is how each point is solved. ``scheduler`` is the address of a Dask cluster
    that solves, in place of ``jobs`` processes."""

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
        """Raises :class:`~devices.errors.InputError` for options that exclude each other."""
        require_home_of_model(namespace)
        return cls(
            graphs=tuple(namespace.graph)
            if namespace.graph is not None
            else ProfiledModels(
                profiles=tuple(namespace.profile),
                models=tuple(namespace.model),
                batch=namespace.batch,
                optimizer=namespace.optimizer,
                parameters_in=namespace.parameters_in,
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


def _threads(namespace: Namespace) -> int:
    """Threads of each point: all cores for a single job."""
    alone = namespace.scheduler is None and namespace.jobs == 1
    return (os.cpu_count() or 1) if alone else 1


def add_options(parser: ArgumentParser) -> None:
    """Add what ``sweep`` understands."""
    add_json(parser)
    add_results(parser)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--profile", nargs="+", help="measured (name or path), or published")
    source.add_argument(
        "--graph", nargs="+", type=Path, metavar="FILE", help="costed graphs instead"
    )
    parser.add_argument(
        "--model", nargs="+", default=[DEFAULT_MODEL], metavar="NAME", help=f"({DEFAULT_MODEL})"
    )
    add_network(parser)
    add_home(parser)
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
    add_coverage(parser)
    add_gap(parser)
    parser.add_argument(
        "--time-limit", type=positive, metavar="SECONDS", help="of each point, each baseline"
    )
    cores = os.cpu_count() or 1
    parser.add_argument(
        "--jobs", type=count, default=cores, help=f"points solved at once ({cores})"
    )
    parser.add_argument("--scheduler", metavar="ADDRESS", help="of a Dask cluster that is to solve")
    parser.add_argument("--no-baselines", action="store_true", help="run none for comparison")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIRECTORY",
        help="(results/sweep); what it has is not solved again",
    )
