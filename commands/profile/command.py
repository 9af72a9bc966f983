"""Entry point of ``profile``: measure a board."""

from __future__ import annotations

from dataclasses import asdict

from commands.command import Command
from commands.console import Console
from commands.profile.options import MeasureOptions, RefineOptions, add_options, options_of
from devices.errors import ExitCode


def profile(options: MeasureOptions | RefineOptions, console: Console) -> int:
    """Measure every operation by itself, or measure some again within a schedule."""
    if isinstance(options, MeasureOptions):
        return _measure(options, console)
    from commands.profile.refine import refine

    return refine(options, console)


def _measure(options: MeasureOptions, console: Console) -> int:
    from commands.profile.summary import announce, summarise
    from commands.wording import say_remark
    from devices.claims.claim import sole_writer
    from devices.description import load_description
    from devices.documents.document import dump_yaml, write_atomically
    from devices.profile import ProfiledNetwork
    from networks.exported import exported
    from networks.models import build_model
    from profiler.run.frame import trials_frame
    from profiler.run.preview import plan_profile
    from profiler.run.run import ProgressEvent, choose_run_directory, profile_device
    from replay.lowering.lowering import unscheduled

    description = load_description(options.device)
    models = [exported(word, options.results.networks) for word in options.models]
    steps = [
        build_model(
            name,
            options.batch,
            options.optimizer,
            loss=options.loss,
            train=options.train,
            accumulate=options.accumulate,
            lora=options.lora,
        )
        for name in models
    ]
    for step in steps:
        say_remark(console, step)
    specs = [spec for step in steps for spec in step.distinct_specs]
    plan = unscheduled(steps[0]) if options.additivity else None
    measuring = options.measuring
    preview = plan_profile(description, specs, plan, measuring)
    announce(console, description.name, preview)
    if options.dry_run:
        console.document({"device": description.name, "plan": asdict(preview)})
        return ExitCode.DONE
    out = options.out or options.results.profiles / f"{description.name}.yaml"
    networks = [
        ProfiledNetwork(
            model=name,
            batch=step.batch,
            optimizer=options.optimizer,
            loss=options.loss,
            train=options.train,
            accumulate=options.accumulate if options.accumulate > 1 else None,
            lora=options.lora,
        )
        for name, step in zip(models, steps, strict=True)
    ]
    with sole_writer(out):
        # Runs were kept under campaigns once; one that was interrupted there goes on.
        places = (options.results.runs, options.results.campaigns)
        trials = choose_run_directory(places, description, specs, plan, measuring)
        with console.progress("connecting") as progress:

            def show(event: ProgressEvent) -> None:
                left = "" if event.left_s is None else f"{event.left_s:.0f} s left"
                progress.show(event.activity, event.fraction, left)

            result = profile_device(description, specs, plan, measuring, trials, show, networks)
        write_atomically(out, dump_yaml(result))
    write_atomically(trials / "trials.csv", trials_frame(trials).to_csv(index=False))
    console.document(result.model_dump(mode="json", by_alias=True, exclude_none=True))
    summarise(console, result)
    console.result(f"\nprofile  {out}\ntrials   {trials / 'trials.csv'}")
    return ExitCode.DONE


PROFILE = Command(
    add_options,
    options_of,
    profile,
    resumes=lambda options: isinstance(options, MeasureOptions),
)
