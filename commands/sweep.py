"""``sweep``: trade-off curves of energy against RAM and time."""

from __future__ import annotations

import os
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from commands.console import WITHOUT_ADDRESSES, Console, si, size, time_words
from devices.errors import ExitCode, InputError
from devices.program import COMMAND

if TYPE_CHECKING:
    from solver.pools import Pool
    from solver.problem.schedule import Budget
    from solver.sweep.directory import SweepSubject
    from solver.sweep.record import SweepRow
    from solver.sweep.sweep import BaselineRun, PointSolved, Study


def sweep(arguments: Namespace, console: Console) -> int:
    from plots.tradeoff import tradeoff
    from solver.options import SolverOptions
    from solver.sweep.directory import SweepDirectory
    from solver.sweep.grid import budget_grid
    from solver.sweep.record import SOLVED
    from solver.sweep.sweep import sweep as run_sweep

    alone = arguments.scheduler is None and arguments.jobs == 1
    options = SolverOptions(
        gap=arguments.gap,
        time_limit_s=arguments.time_limit,
        threads=(os.cpu_count() or 1) if alone else 1,
    )
    out: Path = arguments.out or arguments.results.sweep
    directory = SweepDirectory(out, options)
    grids = [
        (
            subject,
            budget_grid(subject.graph, arguments.ram_budgets, arguments.deadlines, subject.covers),
        )
        for subject in _subjects(arguments, console)
    ]
    studies = [
        directory.study(subject, grid, () if arguments.no_baselines else _baselines(subject, grid))
        for subject, grid in grids
    ]
    with _pool(arguments) as pool, _ProgressBar(console, studies) as bar:
        for event in run_sweep(studies, options, pool):
            directory.keep(event)
            bar.show(event)
    directory.write_tables()
    pictures = []
    statuses: set[str] = set()
    for subject, grid in grids:
        rows = directory.points(subject)
        solved = [row for row in rows if row.method == SOLVED and row.budget in grid]
        statuses.update(row.status for row in solved)
        _summarise(console, subject, solved, [row for row in rows if row.method != SOLVED])
        if any(row.energy_j is not None for row in rows):
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
    return ExitCode.NO_SOLUTION if "no_solution" in statuses else ExitCode.INFEASIBLE


def _subjects(arguments: Namespace, console: Console) -> Iterator[SweepSubject]:
    from devices.documents.document import read_json
    from devices.library import resolve_profile
    from networks.models import build_model
    from solver.costing.costing import cost_graph
    from solver.problem.graph import CostedGraph
    from solver.sweep.directory import SweepSubject

    if arguments.graph is not None and arguments.parameters_in != "ram":
        raise InputError(
            "--parameters-in is for --model; a costed graph says itself where its tensors live"
        )
    covers = arguments.budget_covers
    subjects = [
        SweepSubject(read_json(path, CostedGraph), covers) for path in arguments.graph or ()
    ]
    for profile_name in arguments.profile or ():
        profile = resolve_profile(profile_name, arguments.results.profiles)
        for model in arguments.model:
            step = build_model(model, arguments.batch, arguments.optimizer, arguments.parameters_in)
            costed = cost_graph(step, profile)
            if costed.predicted:
                console.say(
                    f"{costed.graph.name}: {len(costed.predicted)} operations were not measured;"
                    f" their costs are predicted ({COMMAND} solve lists them)"
                )
            subjects.append(SweepSubject(costed.graph, covers, profile.name, model))
    for stem, count in Counter(subject.stem for subject in subjects).items():
        if count > 1:
            raise InputError(
                f"{count} of the graphs would be filed as {stem!r}", remedy="rename them"
            )
    return iter(subjects)


def _baselines(subject: SweepSubject, grid: Sequence[Budget]) -> list[tuple[str, Budget]]:
    """Every baseline under every RAM budget and under what keeping everything takes, with the most
    patient deadline: most of them know of none."""
    from solver.baselines.registry import BASELINES
    from solver.constructed import keep_everything
    from solver.referee.referee import replay

    patient = grid[-1]
    peak_bytes = replay(subject.graph, keep_everything(subject.graph), subject.covers).peak_bytes
    sizes = sorted({peak_bytes, *(budget.ram_bytes for budget in grid)})
    budgets = [patient.model_copy(update={"ram_bytes": ram_bytes}) for ram_bytes in sizes]
    return [(name, budget) for name in BASELINES for budget in budgets]


def _pool(arguments: Namespace) -> AbstractContextManager[Pool]:
    from solver.pools import cluster_pool, local_pool

    if arguments.scheduler is not None:
        return cluster_pool(arguments.scheduler)
    return local_pool(arguments.jobs)


def _summarise(
    console: Console,
    subject: SweepSubject,
    solved: Sequence[SweepRow],
    baselines: Sequence[SweepRow],
) -> None:
    source = subject.graph.energy_source or "source not stated"
    kept = solved[0]
    console.result(
        f"{subject.graph.name}: unconstrained {size(kept.unconstrained_peak_bytes)},"
        f" {si(kept.unconstrained_energy_j, 'J')}, {si(kept.unconstrained_time_s, 's')}"
    )
    head = ["RAM", "of it", "deadline", "", f"energy ({source})", "more", "proven gap"]
    rows = [[*head, time_words(source), "best baseline"]]
    rows += [
        [
            size(row.ram_bytes),
            _percent(row.ram_bytes / row.unconstrained_peak_bytes, 0),
            "none" if row.deadline_s is None else si(row.deadline_s, "s"),
            row.status.replace("_", " "),
            "–" if row.energy_j is None else si(row.energy_j, "J"),
            _more(row),
            "–" if row.gap is None else _percent(row.gap, 3),
            "–" if row.time_s is None else si(row.time_s, "s"),
            _best_baseline(row, baselines),
        ]
        for row in solved
    ]
    console.table(rows, right=(0, 1, 2, 4, 5, 6, 7))
    if baselines:
        console.result(WITHOUT_ADDRESSES)
    for row in {row.deadline_s: row for row in solved if row.smallest_ram_bytes}.values():
        assert row.smallest_ram_bytes is not None
        console.result(
            f"{_within(row)} the smallest RAM budget that would do is {row.smallest_ram_bytes}"
            f" bytes ({size(row.smallest_ram_bytes)}), set by {row.limiting_op}"
            + (f"; {row.note}" if row.note else "")
        )
    console.result("")


def _within(row: SweepRow) -> str:
    return "without a deadline" if row.deadline_s is None else f"within {si(row.deadline_s, 's')}"


def _best_baseline(point: SweepRow, baselines: Sequence[SweepRow]) -> str:
    """The cheapest schedule of a baseline that fits, whichever budget it was made for."""
    deadline_s = float("inf") if point.deadline_s is None else point.deadline_s
    fitting = [
        (row.energy_j, row.method, row)
        for row in baselines
        if row.energy_j is not None
        and row.time_s is not None
        and row.time_s <= deadline_s
        and max(row.peak_bytes or 0, row.arena_bytes or 0) <= point.ram_bytes
    ]
    if not fitting:
        return "–"
    _, name, best = min(fitting, key=lambda candidate: candidate[:2])
    return f"{_more(best)} {name}"


def _more(row: SweepRow) -> str:
    """What a schedule costs above keeping everything."""
    if row.energy_j is None or not row.unconstrained_energy_j:
        return "–"
    return f"{100 * (row.energy_j / row.unconstrained_energy_j - 1):+.3f} %"


def _percent(share: float, digits: int) -> str:
    return f"{100 * share:.{digits}f} %"


class _ProgressBar:
    """How many points and baselines are done, and the last one."""

    def __init__(self, console: Console, studies: Sequence[Study]) -> None:
        from rich.console import Console as RichConsole
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
        from rich.progress import TimeElapsedColumn as Elapsed

        self._progress = Progress(
            MofNCompleteColumn(),
            BarColumn(),
            Elapsed(),
            TextColumn("{task.description}"),
            console=RichConsole(stderr=True),
            transient=True,
        )
        self._total = sum(len(study.budgets) + len(study.baselines) for study in studies)
        self._done = 0
        self._task = self._progress.add_task("solving", total=self._total)
        self._console = console

    def __enter__(self) -> _ProgressBar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def show(self, event: PointSolved | BaselineRun) -> None:
        text = _told(event)
        self._done += 1
        self._progress.update(self._task, advance=1, description=text)
        if not self._progress.console.is_terminal:
            self._console.say(f"{self._done} of {self._total}  {text}")


def _told(event: PointSolved | BaselineRun) -> str:
    from solver.sweep.sweep import PointSolved

    if not isinstance(event, PointSolved):
        nothing = "" if event.result.actions else ", no schedule"
        return f"{event.study.name}, {size(event.budget.ram_bytes)}: {event.name}{nothing}"
    schedule = event.schedules[0]
    deadline_s = schedule.budget.deadline_s
    deadline = "" if deadline_s is None else f", {si(deadline_s, 's')}"
    energy = "" if schedule.energy_j is None else f" {si(schedule.energy_j, 'J')}"
    gap = "" if schedule.gap is None else f", gap {_percent(schedule.gap, 3)}"
    where = f"{event.study.name}, {size(schedule.budget.ram_bytes)}{deadline}"
    return f"{where}: {schedule.status.replace('_', ' ')}{energy}{gap}"
