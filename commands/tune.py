"""Command ``tune``: solve, run and correct the costs in rounds, and keep the best schedule."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from commands.arguments import (
    add_device,
    add_home,
    add_json,
    add_network_of_profile,
    add_results,
    add_storage_budget,
    count,
    positive,
    profiled_model,
    slices,
)
from commands.command import Command
from commands.console import Console
from devices.documents.readable import NO_SOURCE, si
from devices.errors import ExitCode, InputError
from devices.results import Results
from solver.requests.request import ProfiledModel, RequestedBudget

if TYPE_CHECKING:
    from devices.profile import DeviceProfile
    from devices.replay import ReplayReport
    from replay.costs.request import Request
    from replay.costs.tune import Round, Tuned

_ROUNDS, _STEPS, _TIME_LIMIT_S = 4, 10, 60.0


@dataclass(frozen=True)
class TuneOptions:
    """What to tune, on which board, and for how long.

    Watching the step before the rounds may write ``storage_budget_bytes`` to storage.
    """

    device: str
    source: ProfiledModel
    budget: RequestedBudget
    rounds: int
    steps: int
    time_limit_s: float
    storage_budget_bytes: int
    dry_run: bool
    out: Path | None
    results: Results

    @classmethod
    def of(cls, namespace: Namespace) -> TuneOptions:
        """Read the options.

        Raises:
            InputError: ``--accumulate auto`` is given, which is a question for ``solve``.
        """
        if namespace.accumulate == "auto":
            raise InputError(
                "--accumulate auto cannot be used with tune, which tunes one way to take the batch;"
                " ask solve which is best, and give that number"
            )
        return cls(
            device=namespace.device,
            source=profiled_model(
                namespace, strict=False, codecs="all" if namespace.codecs else "none"
            ),
            budget=RequestedBudget(
                ram=namespace.ram_budget,
                deadline=namespace.deadline,
                covers="all",
                instantaneous_paging=False,
                paging=not namespace.no_paging,
                rematerialization=True,
            ),
            rounds=namespace.rounds,
            steps=namespace.steps,
            time_limit_s=namespace.time_limit,
            storage_budget_bytes=namespace.storage_budget_mib << 20,
            dry_run=namespace.dry_run,
            out=namespace.out,
            results=namespace.results,
        )


def _add_options(parser: ArgumentParser) -> None:
    add_json(parser)
    add_results(parser)
    add_device(parser)
    parser.add_argument("--profile", help="its profile, by name or path (the device's)")
    add_network_of_profile(parser)
    add_home(parser)
    parser.add_argument(
        "--slices",
        type=slices,
        metavar="BYTES[:BYTES]",
        help="do layers with larger weights in parts of at most so many bytes, such as 64KiB, and"
        " those with larger activations too, 64KiB:16KiB (with the profile's network: as in the"
        " profile; else none)",
    )
    parser.add_argument(
        "--codecs",
        action="store_true",
        help="tune the step with codecs: the backward pass reads bits of activations and places of"
        " maxima where it needs no more",
    )
    parser.add_argument(
        "--ram-budget",
        help="a size such as 512KiB or 1.2MB, a number of bytes, or a share such as 40%% of the"
        " peak with nothing recomputed or paged (the RAM available on the profile's board)",
    )
    parser.add_argument(
        "--deadline",
        help="longest time of a step: seconds, or a multiple such as 1.5x of the step with nothing"
        " recomputed or paged (none)",
    )
    parser.add_argument("--no-paging", action="store_true", help="recompute only; page nothing")
    parser.add_argument("--rounds", type=count, default=_ROUNDS, help=f"most rounds ({_ROUNDS})")
    parser.add_argument("--steps", type=count, default=_STEPS, help=f"steps of each run ({_STEPS})")
    parser.add_argument(
        "--time-limit",
        type=positive,
        default=_TIME_LIMIT_S,
        metavar="SECONDS",
        help=f"limit of each search ({_TIME_LIMIT_S:g})",
    )
    add_storage_budget(parser, "watched steps before the first round")
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="print what would be done, without touching the board",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIRECTORY",
        help="directory of the rounds; finished ones are not repeated"
        " (results/tuned/DEVICE-GRAPH-RAM)",
    )


def tune(options: TuneOptions, console: Console) -> int:
    """Tune a schedule; the exit code is 0 also if the last round still changed something.

    If a search after a round finds no schedule, it is that of the search.
    """
    from dataclasses import replace

    from commands.wording import COMPILING
    from devices.claims.claim import sole_user
    from devices.description import load_description
    from devices.library import NoProfile, not_measured
    from devices.profile import ProfiledNetwork
    from profiler.opening.boards import alone_with
    from replay.costs.refine import measured_build
    from replay.costs.request import Request
    from replay.costs.tune import best_file
    from replay.costs.tune import tune as tuned_in_rounds
    from replay.runs import training_step_of
    from solver.constructed import keep_everything
    from solver.files.solved import file_stem
    from solver.options import SolverOptions
    from solver.referee.referee import replay
    from solver.requests.subjects import read_budget, read_subjects

    description = load_description(options.device)
    source = replace(options.source, profile=options.source.profile or description.name)
    try:
        (subject,) = read_subjects(source, options.results, verbose=False, say=console.say)
    except NoProfile:
        if options.source.profile:
            raise
        raise not_measured(description.name, description.reference) from None
    graph, profile = subject.graph, subject.profile
    assert profile is not None, "a named network has its costs from a profile"
    assert graph.origin is not None, "and an origin"
    measured_build(profile)  # a published profile has none, and no run can correct its costs
    origin = graph.origin
    budget = read_budget(
        options.budget, profile, replay(graph, keep_everything(graph)), console.say
    )
    request = Request(
        description=description,
        network=ProfiledNetwork(
            model=origin.model,
            batch=origin.batch,
            optimizer=origin.optimizer,
            loss=origin.loss,
            train=origin.train,
            accumulate=origin.accumulate,
            slices=origin.slices,
            codecs=origin.codecs,
            lora=origin.lora,
        ),
        step=training_step_of(graph),
        budget=budget,
        solver=SolverOptions(time_limit_s=options.time_limit_s, threads=os.cpu_count() or 1),
        rounds=options.rounds,
        steps=options.steps,
        storage_budget_bytes=options.storage_budget_bytes,
    )
    stem = f"{description.name}-{file_stem(graph.name)}-{budget.ram_bytes}"
    directory = options.out or options.results.tuned / stem
    _announce(options, request, profile, directory, console)
    if options.dry_run:
        return ExitCode.DONE
    with sole_user(directory), alone_with(description), console.status() as status:

        def progress(what: str) -> None:
            status.show(what, passing=COMPILING in what)

        def show(done: Round) -> None:
            console.say(_sentence(done))

        found = tuned_in_rounds(request, profile, directory, progress, show)
    console.document(_document(found, directory))
    _summarise(console, found)
    console.result(
        f"\nschedule  {best_file(directory)}\nprofile   {found.rounds[-1].corrected_file}"
    )
    return ExitCode.DONE if found.unsolved is None else found.unsolved.exit_code


def _announce(
    options: TuneOptions,
    request: Request,
    profile: DeviceProfile,
    directory: Path,
    console: Console,
) -> None:
    """Print what will be done, and what that may write to storage."""
    from commands.wording import written_to_storage
    from replay.costs.tune import watches_first
    from replay.costs.ways import can_page

    pages = can_page(request.description, profile)
    watches = watches_first(request, profile, directory)
    written_bytes = options.storage_budget_bytes if watches and pages else 0
    before = "the step is watched first, " if watches else ""
    rounds_page = pages and request.budget.paging
    console.say(
        f"{request.description.name}: {before}{written_to_storage(written_bytes)}; then every"
        f" round, at most up to round {request.rounds}, runs its schedule for about"
        f" {2 * request.steps} steps" + (", which write what it pages out" if rounds_page else "")
    )
    if options.dry_run:
        console.document(
            {
                "device": request.description.name,
                "watches": watches,
                "most_bytes_written_by_watched_steps": written_bytes,
                "rounds": request.rounds,
                "steps_of_a_round": request.steps,
                "directory": str(directory),
            }
        )


def _sentence(done: Round) -> str:
    report = done.report
    return (
        f"round {done.number}: predicted {si(report.time_s.predicted.median, 's')} a step,"
        f" {report.board_word} {si(report.time_s.measured.median, 's')};"
        f" {_share(report)} of the actions' time within its intervals"
    )


def _share(report: ReplayReport) -> str:
    return f"{100 * report.held_time:.0f} %"


def _summarise(console: Console, found: Tuned) -> None:
    word = found.rounds[0].report.board_word
    rows = [["round", "predicted", word, "difference", "actions within their intervals", "energy"]]
    for done in found.rounds:
        report = done.report
        time_s = report.time_s
        energy = "–"
        if done.measured_j is not None:
            energy = f"{si(done.measured_j, 'J')} ({done.energy_source or NO_SOURCE})"
        rows.append(
            [
                f"{done.number}{' (best)' if done is found.best else ''}",
                si(time_s.predicted.median, "s"),
                si(done.measured_s, "s"),
                "–" if time_s.difference is None else f"{100 * time_s.difference:+.1f} %",
                f"{report.held_actions} of {len(report.actions)} ({_share(report)} of their time)",
                energy,
            ]
        )
    console.table(rows, right=(1, 2, 3, 5))
    best, deadline_s = found.best, found.rounds[0].run.schedule.budget.deadline_s
    if deadline_s is not None and not best.kept_deadline:
        console.say(
            f"no round kept the deadline of {si(deadline_s, 's')}; the best took"
            f" {si(best.measured_s, 's')}"
        )
    if left_out := [str(done.number) for done in found.rounds if not _competes(found, done)]:
        source = best.energy_source or NO_SOURCE
        console.say(
            f"the best is the one with the least energy ({source}); rounds that have no such"
            f" joules or missed the deadline were not compared: {', '.join(left_out)}"
        )
    if found.converged:
        console.result(
            "settled: the last round was predicted within its interval, and no schedule is better"
            " than its own beyond the noise"
        )
    elif found.unsolved is not None:
        console.say(
            f"not settled: the search after round {len(found.rounds)} found no schedule:"
            f" {found.unsolved}"
        )
    else:
        console.result(
            f"not settled after round {len(found.rounds)}; the same command with more --rounds goes"
            " on"
        )


def _competes(found: Tuned, done: Round) -> bool:
    """Whether a round was compared with the best one, by joules or, where none has any, by time."""
    return not found.compared_j or done.number in found.compared_j


def _document(found: Tuned, directory: Path) -> dict[str, object]:
    from replay.costs.tune import best_file

    return {
        "schedule": str(best_file(directory)),
        "profile": str(found.rounds[-1].corrected_file),
        "settled": found.converged,
        "unsolved": None if found.unsolved is None else str(found.unsolved),
        "best": found.best.number,
        "rounds": [
            {
                "run": str(done.run.directory),
                "predicted_energy_source": done.report.predicted_energy_source,
                "measured_energy_source": done.report.measured_energy_source,
                "time_s": done.report.time_s.model_dump(mode="json", exclude_none=True),
                "energy_j": done.report.energy_j
                and done.report.energy_j.model_dump(mode="json", exclude_none=True),
                "actions": len(done.report.actions),
                "held_actions": done.report.held_actions,
                "held_time": done.report.held_time,
            }
            for done in found.rounds
        ],
    }


TUNE = Command(_add_options, TuneOptions.of, tune, resumes=lambda _options: True)
