"""The command ``solve``: find the schedule."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from commands.command import Command
from commands.console import Console
from commands.solve.options import BudgetWords, ProfiledModel, SolveOptions, add_options
from devices.errors import ExitCode
from devices.results import Results

if TYPE_CHECKING:
    from solver.problem.graph import CostedGraph
    from solver.problem.schedule import Budget, Schedule
    from solver.referee.referee import Replay


def solve(options: SolveOptions, console: Console) -> int:
    """The exit code says whether there is a schedule."""
    from commands.solve.baselines import show_baselines
    from commands.solve.robustness import assess, summarise_robustness
    from commands.solve.summary import summarise, told
    from devices.documents.document import dump_json, write_atomically
    from solver.constructed import keep_everything
    from solver.problem.files import file_stem, graph_path, write_solved
    from solver.referee.referee import replay
    from solver.robustness.draws import draw_costs
    from solver.robustness.robustness import DRAWS_SEED
    from solver.solving.solving import solve_graph

    graph = _graph(options.graph, options.results, console)
    if options.export_graph is not None:
        write_atomically(options.export_graph, dump_json(graph))
        console.say(f"costed graph: {options.export_graph}")
    if options.budget is None:
        console.document(graph.model_dump(mode="json", by_alias=True, exclude_none=True))
        return ExitCode.DONE
    kept = replay(graph, keep_everything(graph), options.budget.covers)
    budget = _budget(options.budget, kept)
    draws = None if options.draws is None else draw_costs(graph, options.draws, DRAWS_SEED)
    with console.status("building the program", lines_every_s=2.0) as status:
        schedule = solve_graph(graph, budget, options.solver, lambda p: status.show(told(p)))
    if draws is not None and schedule.actions:
        schedule = assess(console, schedule, draws, options.solver, options.robust)
    out = options.out or options.results.schedules / f"{file_stem(graph.name)}.json"
    written = bool(schedule.actions) or options.out is not None
    if written:
        write_solved(out, graph, schedule)
    document = schedule.model_dump(mode="json", by_alias=True, exclude_none=True)
    summarise(console, schedule, kept, graph)
    summarise_robustness(console, schedule)
    if options.baselines:
        limit_s = options.solver.time_limit_s
        document["baselines"] = show_baselines(console, graph, schedule, limit_s)
    console.document(document)
    if written:
        console.result(f"\nschedule  {out}\ngraph     {graph_path(out)}")
    if options.pictures is not None and schedule.actions:
        for picture in _pictures(options, options.pictures, graph, schedule, out.stem):
            console.result(f"picture   {picture}")
    return {"infeasible": ExitCode.INFEASIBLE, "no_solution": ExitCode.NO_SOLUTION}.get(
        schedule.status, ExitCode.DONE
    )


def _graph(source: Path | ProfiledModel, results: Results, console: Console) -> CostedGraph:
    from commands.solve.summary import tell_costs
    from devices.documents.document import read_json
    from devices.library import resolve_profile
    from networks.models import build_model
    from solver.costing.costing import cost_graph
    from solver.problem.graph import CostedGraph

    if isinstance(source, Path):
        return read_json(source, CostedGraph)
    step = build_model(source.model, source.batch, source.optimizer, source.parameters_in)
    profile = resolve_profile(source.profile, results.profiles)
    costing = cost_graph(step, profile, strict=source.strict)
    tell_costs(console, costing, len(step.distinct_specs))
    return costing.graph


def _budget(words: BudgetWords, kept: Replay) -> Budget:
    """``kept`` is the step with nothing recomputed or paged."""
    from solver.problem.quantities import parse_deadline_s, parse_ram_bytes
    from solver.problem.schedule import Budget

    return Budget(
        ram_bytes=parse_ram_bytes(words.ram, kept.peak_bytes),
        covers=words.covers,
        deadline_s=None
        if words.deadline is None
        else parse_deadline_s(words.deadline, kept.time_s),
        instantaneous_paging=words.instantaneous_paging,
        paging=words.paging,
        rematerialization=words.rematerialization,
    )


def _pictures(
    options: SolveOptions, directory: Path, graph: CostedGraph, schedule: Schedule, stem: str
) -> list[Path]:
    from devices.library import resolve_profile
    from plots.pictures import draw_profile, draw_schedule

    pictures = draw_schedule(graph, schedule, directory, stem)
    if isinstance(options.graph, ProfiledModel):
        profile = resolve_profile(options.graph.profile, options.results.profiles)
        pictures += draw_profile(profile, directory)
    return pictures


SOLVE = Command(add_options, SolveOptions.of, solve)
