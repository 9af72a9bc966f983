"""Options of ``solve``."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast, get_args

from commands.arguments import (
    add_coverage,
    add_gap,
    add_home,
    add_json,
    add_network_of_profile,
    add_results,
    count,
    positive,
    profiled_model,
    require_no_options_of_model,
    slices,
)
from devices.errors import InputError
from devices.results import Results
from solver.options import EngineName, FormulationName, Order, SolverOptions
from solver.requests.request import CodecWord, ProfiledModel, RequestedBudget, SliceWord

if TYPE_CHECKING:
    from devices.quantities import Slices


@dataclass(frozen=True)
class SolveOptions:
    """Graph, budget and search.

    ``graph`` is a file, or a network and its profile. If ``budget`` is None, the graph is only
    exported. ``certify``: prove the result again with another engine. ``robust``: choose the
    schedule that is best on average over the ``draws``.
    """

    graph: Path | ProfiledModel
    budget: RequestedBudget | None
    solver: SolverOptions
    certify: bool
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
        """Read the options.

        Raises:
            InputError: Options exclude each other.
        """
        require_no_options_of_model(namespace)
        if namespace.graph and namespace.ram_budget is None and namespace.export_graph is None:
            raise InputError("solve needs --ram-budget, such as 512KiB, 1.2MB or 50%")
        if namespace.ram_budget is None and namespace.export_graph is not None:
            _require_no_options_of_search(namespace)
        if namespace.order == "free" and namespace.formulation != "auto":
            raise InputError(
                f"--order free cannot be used with --formulation {namespace.formulation}, which"
                " keeps the given order; use --formulation auto"
            )
        if namespace.certify and namespace.formulation == "retention":
            raise InputError(
                "--certify cannot be used with --formulation retention: no second engine solves its"
                " constraint program; use --formulation auto, compact or poet"
            )
        if namespace.robust and namespace.draws is None:
            raise InputError("--robust needs --draws, such as --draws 100")
        return cls(
            graph=namespace.graph
            or profiled_model(
                namespace, strict=namespace.strict, codecs=namespace.codecs or "auto"
            ),
            budget=_requested_budget(namespace),
            solver=SolverOptions(
                formulation=namespace.formulation,
                order=namespace.order,
                engine=namespace.engine,
                gap=namespace.gap,
                threads=namespace.threads,
                time_limit_s=namespace.time_limit,
                addresses=not namespace.no_addresses,
            ),
            certify=namespace.certify,
            draws=namespace.draws,
            robust=namespace.robust,
            baselines=namespace.baselines,
            export_graph=namespace.export_graph,
            out=namespace.out,
            pictures=namespace.pictures,
            results=namespace.results,
            verbose=namespace.verbose,
        )


# Values of the options of the search unless they are given.
_OF_SEARCH: Mapping[str, object] = {
    "budget_covers": "all",
    "deadline": None,
    "gap": SolverOptions.gap,
    "time_limit": None,
    "threads": os.cpu_count() or 1,
    "formulation": SolverOptions.formulation,
    "order": SolverOptions.order,
    "engine": SolverOptions.engine,
    "certify": False,
    "instantaneous_paging": False,
    "no_addresses": False,
    "no_paging": False,
    "no_remat": False,
    "draws": None,
    "robust": False,
    "baselines": False,
    "out": None,
    "pictures": None,
}


def _require_no_options_of_search(namespace: Namespace) -> None:
    """Reject options of the search where only the graph is exported.

    Raises:
        InputError: One of them is given.
    """
    values = vars(namespace)
    given = [name for name, default in _OF_SEARCH.items() if values[name] != default]
    if given:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise InputError(
            f"--export-graph without --ram-budget only exports the graph, which leaves nothing for"
            f" {names} to do; add --ram-budget, such as --ram-budget 50%, to solve too"
        )


def _slices(text: str) -> Slices | SliceWord:
    if text in get_args(SliceWord):
        return cast(SliceWord, text)
    return slices(text)


def _requested_budget(namespace: Namespace) -> RequestedBudget | None:
    if namespace.ram_budget is None and namespace.export_graph is not None:
        return None
    return RequestedBudget(
        ram=namespace.ram_budget,
        deadline=namespace.deadline,
        covers=namespace.budget_covers,
        instantaneous_paging=namespace.instantaneous_paging,
        paging=not namespace.no_paging,
        rematerialization=not namespace.no_remat,
    )


def add_options(parser: ArgumentParser) -> None:
    """Add the options of ``solve``."""
    add_json(parser)
    add_results(parser)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--profile",
        help="a measured profile (name or path), or a published one (m0, m4, a72, …)",
    )
    source.add_argument(
        "--graph", type=Path, help="a costed graph (file), in place of profile and model"
    )
    add_network_of_profile(parser)
    add_home(parser)
    parser.add_argument(
        "--slices",
        type=_slices,
        metavar="BYTES[:BYTES]|auto|none",
        help="do layers with larger weights in parts of at most so many bytes, such as 64KiB, and"
        " those with larger activations too (64KiB:16KiB); auto: only if an operation is larger"
        " than a third of the RAM budget (auto; with the profile's network: as in the profile)",
    )
    parser.add_argument(
        "--codecs",
        choices=get_args(CodecWord),
        help="whether the backward pass reads bits of activations and places of maxima where it"
        " needs no more; auto: where that is cheaper (auto)",
    )
    parser.add_argument(
        "--ram-budget",
        help="a size such as 512KiB or 1.2MB, a number of bytes, or a share such as 40%% of the"
        " peak with nothing recomputed or paged (the RAM available on the profile's board)",
    )
    add_coverage(parser)
    parser.add_argument(
        "--deadline",
        help="longest time of a step: seconds, or a multiple such as 1.5x of the step with nothing"
        " recomputed or paged (none)",
    )
    add_gap(parser)
    parser.add_argument(
        "--time-limit",
        type=positive,
        metavar="SECONDS",
        help="limit of everything together: search, addresses, draws, baselines, less RAM (none)",
    )
    cores = os.cpu_count() or 1
    parser.add_argument(
        "--threads", type=count, default=cores, help=f"threads of the search ({cores})"
    )
    parser.add_argument(
        "--formulation",
        choices=get_args(FormulationName),
        default=SolverOptions.formulation,
        help=f"program that is solved ({SolverOptions.formulation})",
    )
    parser.add_argument(
        "--order",
        choices=get_args(Order),
        default=SolverOptions.order,
        help="order of ops. auto: search other orders where that pays; given: keep the graph's;"
        f" free: always search other orders ({SolverOptions.order})",
    )
    parser.add_argument(
        "--engine",
        choices=get_args(EngineName),
        default=SolverOptions.engine,
        help=f"mixed-integer solver ({SolverOptions.engine})",
    )
    parser.add_argument(
        "--certify",
        action="store_true",
        help="prove the result again with another engine, without presolve (cbc; highs after"
        " another --engine)",
    )
    parser.add_argument(
        "--instantaneous-paging",
        action="store_true",
        help="count no time of transfers against the deadline, as POET does",
    )
    parser.add_argument(
        "--no-addresses",
        action="store_true",
        help="count RAM as a sum of bytes, as published methods do; the schedule may then have no"
        " addresses that fit, and cannot be run",
    )
    parser.add_argument("--no-paging", action="store_true", help="recompute only; page nothing")
    parser.add_argument("--no-remat", action="store_true", help="page only; recompute nothing")
    parser.add_argument(
        "--strict",
        action="store_true",
        help="fail if an operation was not measured, instead of predicting its cost",
    )
    parser.add_argument(
        "--verbose", action="store_true", help="list every operation whose cost is predicted"
    )
    parser.add_argument(
        "--draws",
        type=count,
        metavar="N",
        help="draw all costs N times from the profile's intervals, and report how often the"
        " schedule is within 1 %% of the best, and which schedule is best on average",
    )
    parser.add_argument(
        "--robust",
        action="store_true",
        help="with --draws: write the schedule that is best on average",
    )
    parser.add_argument(
        "--baselines",
        action="store_true",
        help="run the published methods too, and print them beside the schedule",
    )
    parser.add_argument(
        "--export-graph", type=Path, metavar="FILE", help="write the costed graph to this file"
    )
    parser.add_argument("--out", type=Path, help="schedule to write (results/schedules/GRAPH.json)")
    parser.add_argument(
        "--pictures", type=Path, metavar="DIRECTORY", help="draw the result into this directory"
    )
