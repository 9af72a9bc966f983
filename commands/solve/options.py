"""Options of ``solve``."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from commands.arguments import (
    add_coverage,
    add_gap,
    add_home,
    add_json,
    add_network_of_profile,
    add_results,
    count,
    positive,
    require_home_of_model,
)
from devices.errors import InputError
from devices.results import Results
from networks.kinds import Optimizer, Place
from solver.options import Coverage, EngineName, FormulationName, Order, SolverOptions


@dataclass(frozen=True)
class ProfiledModel:
    """A network, and the profile (name or path) that says what it costs. ``model``, ``batch`` and
    ``optimizer`` are None where the command line names none. ``strict``: predict nothing that was
    not measured."""

    profile: str
    model: str | None
    batch: int | None
    optimizer: Optimizer | None
    parameters_in: Place
    strict: bool


@dataclass(frozen=True)
class BudgetWords:
    """A budget as it is written; the graph says what shares and multiples in it are of. Without
    ``ram`` it is what the board of the profile has to give."""

    ram: str | None
    deadline: str | None
    covers: Coverage
    instantaneous_paging: bool
    paging: bool
    rematerialization: bool


@dataclass(frozen=True)
class SolveOptions:
    """``graph`` is where the costs come from. Without a ``budget`` it is only exported. ``robust``:
    the schedule that is best on average over the ``draws``."""

    graph: Path | ProfiledModel
    budget: BudgetWords | None
    solver: SolverOptions
    draws: int | None
    robust: bool
    baselines: bool
    export_graph: Path | None
    out: Path | None
    pictures: Path | None
    results: Results
    verbose: bool

    @classmethod
    def of(cls, namespace: Namespace) -> SolveOptions:
        """Raises :class:`InputError` for options that exclude each other."""
        require_home_of_model(namespace)
        if namespace.graph and namespace.ram_budget is None and namespace.export_graph is None:
            raise InputError("solve needs --ram-budget, such as 512KiB, 1.2MB or 50%")
        if namespace.order == "free" and namespace.formulation != "auto":
            raise InputError(
                f"--formulation {namespace.formulation} keeps the given order; --order free is for"
                " auto"
            )
        if namespace.robust and namespace.draws is None:
            raise InputError("--robust needs --draws, the number of draws, such as --draws 100")
        return cls(
            graph=namespace.graph
            or ProfiledModel(
                profile=namespace.profile,
                model=namespace.model,
                batch=namespace.batch,
                optimizer=namespace.optimizer,
                parameters_in=namespace.parameters_in,
                strict=namespace.strict,
            ),
            budget=_budget_words(namespace),
            solver=SolverOptions(
                formulation=namespace.formulation,
                order=namespace.order,
                engine=namespace.engine,
                gap=namespace.gap,
                threads=namespace.threads,
                time_limit_s=namespace.time_limit,
                addresses=not namespace.no_addresses,
            ),
            draws=namespace.draws,
            robust=namespace.robust,
            baselines=namespace.baselines,
            export_graph=namespace.export_graph,
            out=namespace.out,
            pictures=namespace.pictures,
            results=namespace.results,
            verbose=namespace.verbose,
        )


def _budget_words(namespace: Namespace) -> BudgetWords | None:
    if namespace.ram_budget is None and namespace.export_graph is not None:
        return None
    return BudgetWords(
        ram=namespace.ram_budget,
        deadline=namespace.deadline,
        covers=namespace.budget_covers,
        instantaneous_paging=namespace.instantaneous_paging,
        paging=not namespace.no_paging,
        rematerialization=not namespace.no_remat,
    )


def add_options(parser: ArgumentParser) -> None:
    """Add what ``solve`` understands."""
    add_json(parser)
    add_results(parser)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--profile", help="measured (name or path), or published (m0, m4, a72, …)")
    source.add_argument("--graph", type=Path, help="a costed graph instead of profile and model")
    add_network_of_profile(parser)
    add_home(parser)
    parser.add_argument(
        "--ram-budget",
        help="512KiB, 1.2MB, bytes, or 40%% of the unconstrained peak (what the board has to give)",
    )
    add_coverage(parser)
    parser.add_argument(
        "--deadline", help="seconds, or 1.5x one step with nothing recomputed or paged"
    )
    add_gap(parser)
    parser.add_argument("--time-limit", type=positive, metavar="SECONDS")
    parser.add_argument("--threads", type=count, default=os.cpu_count() or 1)
    parser.add_argument(
        "--formulation", choices=get_args(FormulationName), default=SolverOptions.formulation
    )
    parser.add_argument(
        "--order",
        choices=get_args(Order),
        default=SolverOptions.order,
        help="whether ops may change places: where that pays (auto), never, or always searched",
    )
    parser.add_argument("--engine", choices=get_args(EngineName), default=SolverOptions.engine)
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
        "--verbose", action="store_true", help="list every operation whose cost is predicted"
    )
    parser.add_argument(
        "--draws",
        type=count,
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
