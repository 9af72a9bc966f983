"""Entry point of ``sweep``: solve a grid of budgets and draw energy against RAM and time."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, product
from pathlib import Path
from typing import TYPE_CHECKING

from commands.command import Command
from commands.console import Console
from commands.sweep.options import ProfiledModels, SweepOptions, add_options
from devices.errors import ExitCode
from devices.program import COMMAND

if TYPE_CHECKING:
    from solver.sweep.directory import SweepSubject
    from solver.sweep.sweep import Event


def sweep(options: SweepOptions, console: Console) -> int:
    """Solve all points; the exit code states whether any has a schedule."""
    from devices.claims.claim import sole_user

    out = options.out or options.results.sweep
    with sole_user(out):
        return _sweep(options, out, console)


def _sweep(options: SweepOptions, out: Path, console: Console) -> int:
    from commands.sweep.summary import event_line, summarise
    from plots.tradeoff import can_draw, tradeoff
    from solver.pools import open_pool, waiting_for
    from solver.sweep.directory import SweepDirectory, require_distinct_stems
    from solver.sweep.grid import baseline_grid, budget_grid
    from solver.sweep.record import SOLVED
    from solver.sweep.sweep import sweep as solve_studies

    directory = SweepDirectory(out, options.solver)
    subjects = list(_subjects(options, console))
    require_distinct_stems(subjects)
    ram, deadlines = options.ram_budgets, options.deadlines
    grids = [(each, budget_grid(each.graph, ram, deadlines, each.covers)) for each in subjects]
    studies = []
    for subject, grid in grids:
        baselines = baseline_grid(subject.graph, grid) if options.baselines else []
        studies.append(directory.study(subject, grid, baselines))
    things = sum(study.things for study in studies)
    if options.scheduler is not None:
        console.say(waiting_for(options.scheduler))
    with (
        open_pool(options.jobs, options.scheduler) as pool,
        console.progress("solving", things) as progress,
    ):
        counter = count(1)

        def keep(event: Event) -> None:
            directory.keep(event)
            progress.show(event_line(event), next(counter))

        solve_studies(studies, options.solver, pool, keep)
    directory.write_tables()
    pictures = []
    statuses: set[str] = set()
    for subject, grid in grids:
        rows = directory.points(subject)
        solved = [row for row in rows if row.method == SOLVED and row.budget in grid]
        statuses.update(row.status for row in solved)
        summarise(console, subject, solved, [row for row in rows if row.method != SOLVED])
        if can_draw(rows):
            pictures.append(out / f"{subject.stem}.png")
            tradeoff(rows, pictures[-1])
    record = directory.record
    console.document(record.model_dump(mode="json", by_alias=True, exclude_none=True))
    console.result(f"table      {out / 'sweep.csv'}, {out / 'sweep.parquet'}")
    console.result(f"schedules  {out / 'schedules'}")
    for picture in pictures:
        console.result(f"picture    {picture}")
    if statuses & {"optimal", "feasible"}:
        return ExitCode.DONE
    if "no_solution" in statuses:
        return ExitCode.NO_SOLUTION
    return ExitCode.EXHAUSTED if "exhausted" in statuses else ExitCode.INFEASIBLE


def _subjects(options: SweepOptions, console: Console) -> Iterator[SweepSubject]:
    from commands.wording import say_remarks
    from devices.documents.document import read_json
    from devices.library import resolve_profile
    from networks.exported import exported
    from networks.models import build_model
    from replay.board_ram import BoardRam
    from solver.costing.costing import cost_graph
    from solver.costing.model import CostModel
    from solver.problem.graph import CostedGraph
    from solver.requests.subjects import SolveSubject
    from solver.sweep.directory import SweepSubject

    source = options.graphs
    if not isinstance(source, ProfiledModels):
        for path in source:
            yield SweepSubject(read_json(path, CostedGraph), options.covers)
        return
    models = [exported(word, options.results.networks) for word in source.models]
    for name in source.profiles:
        profile = resolve_profile(name, options.results.profiles)
        cost_model = CostModel(profile)
        for model, parts, slices in product(models, source.accumulate, source.slices):
            step = build_model(
                model,
                source.batch,
                source.optimizer,
                source.parameters_in,
                loss=source.loss,
                train=source.train,
                accumulate=parts,
                lora=source.lora,
                slices=slices,
                codecs=source.codecs,
            )
            say_remarks(console, step)
            costed = cost_graph(step, profile, model=cost_model)
            if costed.predicted:
                console.say(
                    f"{costed.graph.name}: {len(costed.predicted)} operations were not measured;"
                    f" their costs are predicted ({COMMAND} solve lists them)"
                )
            ram = BoardRam.of(SolveSubject(costed.graph, profile, step=step))
            yield SweepSubject(costed.graph, options.covers, profile.name, model, ram)


SWEEP = Command(
    add_options,
    SweepOptions.of,
    sweep,
    resumes=lambda _options: True,
)
