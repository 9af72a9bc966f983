"""Entry point of ``solve``: find the schedule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from commands.command import Command
from commands.console import Console
from commands.solve.options import SolveOptions, add_options
from commands.stopping import stop_requested
from devices.errors import ExitCode
from solver.requests.request import ProfiledModel

if TYPE_CHECKING:
    from solver.problem.schedule import Schedule
    from solver.requests.subjects import SolveSubject
    from solver.search.search import Progress


_EXIT_CODES: Mapping[str, ExitCode] = {
    "infeasible": ExitCode.INFEASIBLE,
    "exhausted": ExitCode.EXHAUSTED,
    "no_solution": ExitCode.NO_SOLUTION,
}


def solve(options: SolveOptions, console: Console) -> int:
    """Solve and print; the exit code states whether a schedule was found."""
    from commands.solve.baselines import show_baselines
    from commands.solve.comparison import show_comparison
    from commands.solve.less_ram import show_less_ram
    from commands.solve.robustness import assess, summarise_robustness
    from commands.solve.storage import show_storage
    from devices.documents.document import dump_json, write_atomically
    from devices.program import done_in_any_case
    from replay.board_ram import BoardRam
    from solver.constructed import keep_everything
    from solver.files.solved import file_stem, graph_path, write_solved
    from solver.referee.referee import replay
    from solver.requests.choice import cheapest, chosen
    from solver.requests.codecs import with_offered_codecs
    from solver.requests.costs import predicted_document
    from solver.requests.slicing import with_slices
    from solver.requests.subjects import SHARE_FOR_WAYS, read_budget, read_subjects
    from solver.requests.summary import progress_line, summary
    from solver.robustness.draws import draw_costs
    from solver.robustness.robustness import DRAWS_SEED
    from solver.solving.reserve import checks_s
    from solver.sweep.less_ram import keeps_everything
    from solver.time_limit import TimeLimit

    limit = TimeLimit.after(options.solver.time_limit_s)
    _require_writable(options)
    source = options.graph if isinstance(options.graph, Path) else options.graph.profile
    preparing = limit.part(SHARE_FOR_WAYS)
    with console.status(f"reading {source}"):
        subjects = read_subjects(
            options.graph, options.results, options.verbose, console.say, preparing
        )
    subject = subjects[0]
    graph = subject.graph
    if options.export_graph is not None:
        write_atomically(options.export_graph, dump_json(graph))
        console.say(f"costed graph: {options.export_graph}")
    if options.budget is None:
        console.say("only the graph was exported; add --ram-budget, such as 50%, to solve too")
        console.document(graph.model_dump(mode="json", by_alias=True, exclude_none=True))
        return ExitCode.DONE
    kept = replay(graph, keep_everything(graph), options.budget.covers)
    budget = read_budget(options.budget, subject.profile, kept, console.say)
    if isinstance(options.graph, ProfiledModel) and options.graph.codecs == "auto":
        subjects = with_offered_codecs(subjects, budget, console.say, preparing)
    if isinstance(options.graph, ProfiledModel) and options.graph.slices == "auto":
        subjects = with_slices(subjects, budget, console.say, preparing)
    # Refuse draws that are not possible before the search.
    drawn = [
        None if options.draws is None else draw_costs(each.graph, options.draws, DRAWS_SEED)
        for each in subjects
    ]
    if options.draws is not None:
        import_module("scipy.stats")  # for shares of draws; a second, before the time is divided
        # The schedule is checked once more, and written once more.
        limit = limit.reserving(min(2 * checks_s(graph, budget.covers), limit.left_s / 4))
    # Each phase has an equal share of the time that is left when it begins.
    phases = 1 + (options.draws is not None) + options.baselines
    solver = replace(options.solver, time_limit_s=limit.part(1 / phases).seconds)
    found: list[Schedule] = []
    try:
        with console.status("starting", lines_every_s=2.0) as status:

            def show(progress: Progress) -> None:
                status.show(progress_line(progress), phase=progress.phase)

            cheapest(
                subjects,
                budget,
                solver,
                show,
                ram_of=BoardRam.of,
                certified=options.certify,
                stopped=stop_requested,
                found=found,
            )
    except KeyboardInterrupt:  # another one, after the search
        if not found:
            raise

    def keep() -> tuple[SolveSubject, Schedule, Path, bool]:
        subject, schedule = chosen(subjects, found)
        out = options.out or options.results.schedules / f"{file_stem(subject.graph.name)}.json"
        is_kept = bool(schedule.actions) or options.out is not None
        if is_kept:
            write_solved(out, subject.graph, schedule)
        return subject, schedule, out, is_kept

    subject, schedule, out, written = done_in_any_case(keep)
    is_other, graph = subject.graph is not graph, subject.graph
    draws = next(own for each, own in zip(subjects, drawn, strict=True) if each is subject)
    if is_other:
        kept = replay(graph, keep_everything(graph), options.budget.covers)
    if draws is not None and schedule.actions and not stop_requested():
        share = limit.part(1 / (1 + options.baselines))
        solver = replace(options.solver, time_limit_s=share.seconds)
        schedule = assess(console, schedule, draws, solver, options.robust, BoardRam.of(subject))
        write_solved(out, graph, schedule)
    document = schedule.model_dump(mode="json", by_alias=True, exclude_none=True)
    if subject.predicted:
        document["predicted_operations"] = predicted_document(subject.predicted)
    if len(subjects) > 1:
        document |= show_comparison(console, subjects, found, budget)
    for part in summary(schedule, kept, graph):
        if isinstance(part, str):
            console.result(part)
        else:
            console.table(part, right=(1, 2))
    if schedule.actions:
        document |= show_storage(console, subject, schedule)
    summarise_robustness(console, schedule)
    if options.baselines and not stop_requested():
        document["baselines"] = show_baselines(console, graph, schedule, limit, options.solver)
    if options.budget.ram is None and keeps_everything(schedule, kept) and not stop_requested():
        solver = replace(options.solver, time_limit_s=limit.seconds)
        document["less_ram"] = show_less_ram(
            console, graph, schedule, kept, solver, BoardRam.of(subject)
        )
    console.document(document)
    if written:
        console.result(f"\nschedule  {out}\ngraph     {graph_path(out)}")
    if options.pictures is not None and schedule.actions and not stop_requested():
        for picture in _pictures(subject, schedule, options.pictures, out.stem):
            console.result(f"picture   {picture}")
    return _EXIT_CODES.get(schedule.status, ExitCode.DONE)


def _require_writable(options: SolveOptions) -> None:
    """Fail before the search if what it finds cannot be written. Raises :class:`OSError`."""
    from devices.documents.document import require_writable
    from solver.files.solved import graph_path

    out = options.out or options.results.schedules / "schedule.json"
    for path in (out, graph_path(out), options.export_graph):
        if path is not None:
            require_writable(path)
    if options.pictures is not None:
        require_writable(options.pictures / "picture.png")


def _pictures(subject: SolveSubject, schedule: Schedule, directory: Path, stem: str) -> list[Path]:
    from plots.pictures import draw_profile, draw_schedule

    pictures = draw_schedule(subject.graph, schedule, directory, stem)
    if subject.profile is not None:
        pictures += draw_profile(subject.profile, directory)
    return pictures


SOLVE = Command(add_options, SolveOptions.of, solve)
