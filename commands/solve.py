"""``solve``: the schedule of least energy that fits the board."""

from __future__ import annotations

import re
import time
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from commands.console import Console, si, size, time_words
from devices.errors import ExitCode, InputError

if TYPE_CHECKING:
    from solver.costing.costing import Predicted
    from solver.problem.graph import CostedGraph
    from solver.problem.schedule import Schedule
    from solver.referee.referee import Replay
    from solver.search.search import Progress

# Said of a search that was ended from outside; of the others the bound says enough.
_STOPPED = {"time_limit": "; stopped by the time limit", "interrupted": "; interrupted"}


def solve(arguments: Namespace, console: Console) -> int:
    from commands.baselines import compare_with_baselines
    from commands.robustness import assess_robustness, draws_asked_for, summarise_robustness
    from devices.documents.document import write_atomically
    from solver.constructed import keep_everything
    from solver.options import SolverOptions
    from solver.problem.quantities import parse_deadline_s, parse_ram_bytes
    from solver.problem.schedule import Budget
    from solver.referee.referee import replay
    from solver.solving.solving import solve_graph

    graph = _graph(arguments, console)
    if arguments.export_graph is not None:
        write_atomically(arguments.export_graph, _json(graph))
        console.say(f"costed graph: {arguments.export_graph}")
        if arguments.ram_budget is None:
            console.document(graph.model_dump(mode="json", by_alias=True, exclude_none=True))
            return ExitCode.DONE
    if arguments.ram_budget is None:
        raise InputError("solve needs --ram-budget, such as 512KiB, 1.2MB or 50%")
    if arguments.order == "free" and arguments.formulation != "auto":
        raise InputError(
            f"--formulation {arguments.formulation} keeps the given order; --order free is for auto"
        )
    kept = replay(graph, keep_everything(graph), arguments.budget_covers)
    deadline = arguments.deadline
    budget = Budget(
        ram_bytes=parse_ram_bytes(arguments.ram_budget, kept.peak_bytes),
        covers=arguments.budget_covers,
        deadline_s=None if deadline is None else parse_deadline_s(deadline, kept.time_s),
        instantaneous_paging=arguments.instantaneous_paging,
        paging=not arguments.no_paging,
        rematerialization=not arguments.no_remat,
    )
    options = SolverOptions(
        formulation=arguments.formulation,
        order=arguments.order,
        engine=arguments.engine,
        gap=arguments.gap,
        threads=arguments.threads,
        time_limit_s=arguments.time_limit,
        addresses=not arguments.no_addresses,
    )
    draws = draws_asked_for(arguments, graph)
    with _Status(console) as status:
        schedule = solve_graph(graph, budget, options, status)
    if draws is not None and schedule.actions:
        schedule = assess_robustness(arguments, console, schedule, draws, options)
    out = arguments.out or arguments.results.schedules / f"{_file_name(graph.name)}.json"
    written = schedule.actions or arguments.out is not None
    if written:
        write_atomically(graph_path(out), _json(graph))
        write_atomically(out, _json(schedule))
    document = schedule.model_dump(mode="json", by_alias=True, exclude_none=True)
    _summarise(console, schedule, kept, graph)
    summarise_robustness(console, schedule)
    if arguments.baselines:
        document["baselines"] = compare_with_baselines(arguments, console, graph, schedule)
    console.document(document)
    if written:
        console.result(f"\nschedule  {out}\ngraph     {graph_path(out)}")
    if arguments.pictures is not None and schedule.actions:
        for picture in _pictures(arguments, out):
            console.result(f"picture   {picture}")
    return {"infeasible": ExitCode.INFEASIBLE, "no_solution": ExitCode.NO_SOLUTION}.get(
        schedule.status, ExitCode.DONE
    )


def graph_path(schedule: Path) -> Path:
    """Where the costed graph of a schedule lies: beside it."""
    return schedule.with_name(f"{schedule.stem}.graph.json")


def _file_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._]+", "-", name)


def _pictures(arguments: Namespace, schedule: Path) -> list[Path]:
    from commands.plot import plot_profile, plot_schedule
    from devices.library import resolve_profile

    pictures = plot_schedule(schedule, graph_path(schedule), arguments.pictures)
    if arguments.profile is not None:
        profile = resolve_profile(arguments.profile, arguments.results.profiles)
        pictures += plot_profile(profile, arguments.pictures)
    return pictures


def _json(document: CostedGraph | Schedule) -> str:
    return document.model_dump_json(by_alias=True, exclude_none=True, indent=1) + "\n"


def _graph(arguments: Namespace, console: Console) -> CostedGraph:
    from devices.documents.document import read_json
    from devices.library import resolve_profile
    from networks.models import build_model
    from solver.costing.costing import cost_graph
    from solver.problem.graph import CostedGraph

    if arguments.graph is not None:
        if arguments.parameters_in != "ram":
            raise InputError(
                "--parameters-in is for --model; a costed graph says itself where its tensors live"
            )
        return read_json(arguments.graph, CostedGraph)
    step = build_model(
        arguments.model, arguments.batch, arguments.optimizer, arguments.parameters_in
    )
    profile = resolve_profile(arguments.profile, arguments.results.profiles)
    result = cost_graph(step, profile, strict=arguments.strict)
    if result.predicted:
        _list_predicted(console, result.predicted)
    if result.in_context:
        console.say(
            f"{len(result.in_context)} of {len(step.distinct_specs)} distinct operations cost what"
            " they took in the context of a schedule (profile --refine)"
        )
    return result.graph


def _list_predicted(console: Console, predicted: tuple[Predicted, ...]) -> None:
    console.say(f"{len(predicted)} operations were not measured; their costs are predicted:")
    for prediction in predicted:
        time_s = prediction.time_s
        console.say(
            f"  {si(time_s.median, 's')} ({si(time_s.low, 's')} to {si(time_s.high, 's')})"
            f"  {prediction.spec.key}  [{prediction.basis}]"
        )


def _summarise(console: Console, schedule: Schedule, kept: Replay, graph: CostedGraph) -> None:
    budget = schedule.budget
    covers = "everything" if budget.covers == "all" else "activations and their gradients"
    console.result(
        f"{schedule.graph}: {schedule.status} under {size(budget.ram_bytes)}"
        f" ({budget.ram_bytes} bytes) of RAM for {covers}"
        + ("" if budget.deadline_s is None else f", within {si(budget.deadline_s, 's')}")
        + (", transfers not counted" if budget.deadline_s and budget.instantaneous_paging else "")
    )
    if schedule.status == "infeasible":
        _explain_infeasible(console, schedule)
    if schedule.actions:
        _compare(console, schedule, kept, graph)
    solver = schedule.solver
    console.result(
        f"{solver.formulation}, {solver.version}: {solver.seconds:.1f} s, of which"
        f" {solver.build_seconds:.2f} s to build the program; {solver.rounds} rounds"
        + _STOPPED.get(schedule.ended_by or "", "")
    )
    for choice in schedule.chosen:
        console.result(f"chosen: {choice}")
    for note in schedule.notes:
        console.result(f"note: {note}")


def _compare(console: Console, schedule: Schedule, kept: Replay, graph: CostedGraph) -> None:
    """The schedule beside the step with nothing recomputed or paged."""
    from solver.problem.schedule import PageIn, PageOut
    from solver.referee.referee import replay

    chosen = replay(graph, schedule.actions, schedule.budget.covers)

    def column(played: Replay) -> list[str]:
        moments = played.moments
        return [
            size(played.peak_bytes),
            si(played.energy_j, "J"),
            si(played.time_s, "s"),
            str(sum(moment.recomputation for moment in moments)),
            str(sum(isinstance(moment.action, PageOut) for moment in moments)),
            str(sum(isinstance(moment.action, PageIn) for moment in moments)),
            size(played.bytes_written_to_storage),
            si(played.hidden_s, "s"),
        ]

    source = schedule.energy_source or "source not stated"
    names = [
        "peak of RAM",
        f"energy a step ({source})",
        time_words(source, "time a step"),
        "ops recomputed",
        "tensors paged out",
        "tensors paged in",
        "written to storage",
        "hidden transfer time",
    ]
    rows = [["", "unconstrained", "this schedule"]]
    rows += [list(row) for row in zip(names, column(kept), column(chosen), strict=True)]
    if not any(isinstance(s, PageIn | PageOut) and s.asynchronous for s in schedule.actions):
        rows.pop()  # nothing runs beside ops
    console.table(rows, right=(1, 2))
    _tell_arena(console, schedule)
    bound = schedule.energy_bound_j or 0.0
    console.result(
        f"proven: no schedule needs less than {si(bound, 'J')}, so this one is within"
        f" {100 * (schedule.gap or 0.0):.3f} % of the least"
        + (
            f", among schedules in which {'; '.join(schedule.restrictions)}"
            if schedule.restrictions
            else ", in whatever order"
        )
    )
    if schedule.restrictions and schedule.any_order_bound_j is not None:
        console.result(f"proven for whatever order: {si(schedule.any_order_bound_j, 'J')} at least")


def _tell_arena(console: Console, schedule: Schedule) -> None:
    arena, least = schedule.arena_bytes, schedule.arena_bound_bytes
    if arena is not None and least is not None:
        console.result(
            f"addresses: an arena of {size(arena)} ({arena} bytes); this schedule needs"
            f" {least} bytes at least, so fragmentation is"
            f" {100 * (1 - least / arena) if arena else 0.0:.3f} %"
        )


def _explain_infeasible(console: Console, schedule: Schedule) -> None:
    if schedule.smallest_ram_bytes is not None:
        console.result(
            f"no schedule fits; the smallest RAM budget that would do is"
            f" {schedule.smallest_ram_bytes} bytes ({size(schedule.smallest_ram_bytes)}),"
            f" set by {schedule.limiting_op}"
        )
    else:
        console.result("no schedule fits, whatever the RAM budget")
    if schedule.smallest_deadline_s is not None:
        console.result(
            f"with this RAM budget the shortest deadline that would do is"
            f" {schedule.smallest_deadline_s:.9g} s"
        )


class _Status:
    """The best schedule and the bound, while the search runs."""

    def __init__(self, console: Console) -> None:
        from rich.console import Console as RichConsole
        from rich.status import Status

        self._rich = RichConsole(stderr=True)
        self._status = Status("building the program", console=self._rich)
        self._console = console
        self._last = (float("inf"), 0.0)
        self._next_line_at = 0.0

    def __enter__(self) -> _Status:
        self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._status.stop()

    def __call__(self, progress: Progress) -> None:
        best = "none yet" if progress.value is None else si(progress.value, "J", 6)
        bound = "none yet" if progress.bound is None else si(progress.bound, "J", 6)
        text = f"{progress.seconds:5.1f} s  best {best}  bound {bound}"
        if progress.value and progress.bound is not None:
            text += f"  gap {100 * (progress.value - progress.bound) / progress.value:.3f} %"
        self._status.update(text)
        if not self._rich.is_terminal and time.monotonic() >= self._next_line_at:
            self._next_line_at = time.monotonic() + 2.0
            self._console.say(text)
