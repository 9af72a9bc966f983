"""Entry point of ``profile``: measure a board."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from commands.command import Command
from commands.console import Console, Progress
from commands.profile.options import MeasureOptions, RefineOptions, add_options, options_of
from devices.errors import ExitCode

if TYPE_CHECKING:
    from devices.profile import DeviceProfile
    from profiler.run.run import OnProgress, ProgressEvent
    from replay.costs.general import Sweep
    from replay.costs.measuring import Watching


def profile(options: MeasureOptions | RefineOptions, console: Console) -> int:
    """Measure every operation by itself, or measure some again within a schedule."""
    if isinstance(options, MeasureOptions):
        return _measure(options, console)
    from commands.profile.refine import refine

    return refine(options, console)


def _measure(options: MeasureOptions, console: Console) -> int:
    from commands.profile.subjects import steps_to_measure
    from commands.profile.summary import announce, announce_sweep, announce_watching, summarise
    from commands.wording import say_remarks
    from devices.claims.claim import sole_writer
    from devices.description import load_description
    from devices.documents.document import dump_yaml, write_atomically
    from networks.models import profiled_network
    from profiler.opening.boards import alone_with
    from profiler.run.frame import trials_frame
    from profiler.run.preview import plan_profile
    from profiler.run.run import choose_run_directory, profile_device
    from profiler.run.trials import RunDirectory
    from replay.costs.general import Sweep
    from replay.costs.measuring import Watching, measure_and_watch, specs_to_measure
    from replay.lowering.lowering import unscheduled

    description = load_description(options.device)
    if any(options.slices):
        # Parts have the values of whole layers with the kernels' own products only.
        description = description.with_matmul("in-tree")
    subjects = list(steps_to_measure(options, description, console))
    steps = [step for _, step in subjects]
    for step in steps:
        say_remarks(console, step)
    plan = unscheduled(steps[0]) if options.additivity else None
    measuring = options.measuring
    specs = specs_to_measure(steps, description, measuring)
    preview = plan_profile(description, specs, plan, measuring)
    announce(console, description.name, preview)
    if options.additivity:
        announce_watching(console, options.models, preview)
    if options.general_s is not None:
        announce_sweep(console, options.general_s)
    if options.dry_run:
        console.document({"device": description.name, "plan": asdict(preview)})
        return ExitCode.DONE
    out = options.out or options.results.profiles / f"{description.name}.yaml"
    networks = [profiled_network(name, step) for name, step in subjects]
    with sole_writer(out), alone_with(description):
        # Runs were kept under campaigns once; one that was interrupted there goes on.
        places = (options.results.runs, options.results.campaigns)
        sweep: Sweep | None = None
        if options.general_s is None:
            trials = choose_run_directory(places, description, specs, plan, measuring)
        else:
            sweep = Sweep.chosen(places, description, specs, plan, measuring, options.general_s)
            trials = sweep.networks
        watching: Watching | None = None
        if options.additivity:
            kept = RunDirectory(trials).begin_watching()
            watching = Watching(description, networks, measuring.storage_budget_bytes, kept)
        with console.progress("connecting") as progress:
            show = _shown_by(progress)
            finished = None if sweep is None else RunDirectory(trials).profile()
            if finished is not None:
                result = finished
            elif watching is not None and sweep is None:
                result = measure_and_watch(watching, specs, plan, measuring, trials, show)
            else:
                result = profile_device(description, specs, plan, measuring, trials, show, networks)
        # A part of a profile is better than none, and does not replace a whole one.
        is_first = not out.exists()
        if is_first:
            write_atomically(out, dump_yaml(result))
        try:
            if sweep is not None:
                result = _swept(sweep, watching, result, console)
            if watching is not None:
                result = _watched(watching, result, console)
        except BaseException:
            console.say(
                f"{out}: kept, with the costs of operations by themselves only"
                if is_first
                else f"{out}: unchanged; what was measured is kept in {trials}"
            )
            raise
        write_atomically(out, dump_yaml(result))
        if options.additivity:
            if sweep is None:
                RunDirectory(trials).finish(result)
            RunDirectory(trials).end_watching()
        if sweep is not None:
            sweep.finish(result)
    write_atomically(trials / "trials.csv", trials_frame(trials).to_csv(index=False))
    console.document(result.model_dump(mode="json", by_alias=True, exclude_none=True))
    summarise(console, result)
    console.result(f"\nprofile  {out}\ntrials   {trials / 'trials.csv'}")
    return ExitCode.DONE


def _swept(
    sweep: Sweep, watching: Watching | None, profile: DeviceProfile, console: Console
) -> DeviceProfile:
    """Measure shapes, with sittings of the networks' steps before them and after each round.

    Sittings then differ as the board does while shapes are measured.
    """
    from replay.costs.general import ROUNDS

    def watch(done: float) -> None:
        if watching is not None and watching.can_run_ahead:
            share = (1 + done * (ROUNDS - 1)) / (ROUNDS + 1)
            watching.ahead(profile, share, lambda what: progress.show(what, done))

    with console.progress("measuring shapes of every kind") as progress:
        watch(0.0)
        return sweep.measure(profile, _shown_by(progress), watch)


def _shown_by(progress: Progress) -> OnProgress:
    def show(event: ProgressEvent) -> None:
        left = "" if event.left_s is None else f"{event.left_s:.0f} s left"
        progress.show(event.activity, event.fraction, left)

    return show


def _watched(watching: Watching, profile: DeviceProfile, console: Console) -> DeviceProfile:
    """Watch the training step of every network, as far as that was not done before."""
    from commands.wording import COMPILING

    with console.status() as status:
        return watching.finished(
            profile, lambda what: status.show(what, passing=what.startswith(COMPILING))
        )


PROFILE = Command(
    add_options,
    options_of,
    profile,
    resumes=lambda options: isinstance(options, MeasureOptions),
)
