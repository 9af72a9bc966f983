"""Command ``check``: measure a profile's operations again, and count the intervals that hold."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import dataclass
from typing import TYPE_CHECKING

from commands.arguments import (
    add_device,
    add_json,
    add_results,
    add_storage_budget,
    count,
    positive,
)
from commands.command import Command
from commands.console import Console, Status
from devices.documents.readable import time_words
from devices.errors import ExitCode, InputError, JoulewrightError
from devices.results import Results

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from devices.description import DeviceDescription
    from devices.operation import OpSpec
    from devices.profile import DeviceProfile, StepCosts
    from profiler.run.options import ProfileOptions
    from profiler.run.trials import RunDirectory
    from replay.costs.check import CheckReport
    from replay.costs.coverage import CheckedGroup, Coverage

_BLOCKS = 3
_SHOWN = 8

# Seed of the order of operations and of the data of watched steps: not one of ``profile``.
_SEED = 1001


@dataclass(frozen=True)
class CheckOptions:
    """What to check: a board's profile, in ``blocks`` sittings, within ``time_limit_s`` if any.

    Watched steps may write ``storage_budget_bytes`` to storage, all together.
    """

    device: str
    profile: str | None
    blocks: int
    time_limit_s: float | None
    storage_budget_bytes: int
    dry_run: bool
    results: Results

    @classmethod
    def of(cls, namespace: Namespace) -> CheckOptions:
        """Options as read from the command line."""
        return cls(
            device=namespace.device,
            profile=namespace.profile,
            blocks=namespace.blocks,
            time_limit_s=namespace.time_limit,
            storage_budget_bytes=namespace.storage_budget_mib << 20,
            dry_run=namespace.dry_run,
            results=namespace.results,
        )


def _add_options(parser: ArgumentParser) -> None:
    add_json(parser)
    add_results(parser)
    add_device(parser)
    parser.add_argument("--profile", help="the profile, by name or path (the device's)")
    parser.add_argument(
        "--blocks",
        type=count,
        default=_BLOCKS,
        help=f"sittings; each measures every operation once, in a process of its own ({_BLOCKS})",
    )
    parser.add_argument(
        "--time-limit",
        type=positive,
        metavar="SECONDS",
        help="measure only as many operations as this allows, some of every kind, and watch no"
        " training step (all operations, and every step that the profile watched)",
    )
    add_storage_budget(parser, "watched steps")
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="print what would be measured, without touching the board",
    )


def check(options: CheckOptions, console: Console) -> int:
    """Check a profile; the exit code is 4 if clearly less than 95 % of its intervals hold."""
    from datetime import UTC, datetime

    from devices.claims.claim import sole_user
    from devices.description import load_description
    from devices.documents.document import dump_json, dump_yaml, write_atomically
    from devices.library import NoProfile, not_measured, resolve_profile
    from profiler.opening.boards import alone_with
    from profiler.run.options import ProfileOptions
    from profiler.run.run import choose_run_directory
    from profiler.run.trials import RunDirectory
    from replay.costs.check import check_report
    from replay.costs.refine import measured_build

    description = load_description(options.device)
    try:
        profile = resolve_profile(options.profile or description.name, options.results.profiles)
    except NoProfile:
        if options.profile is not None:
            raise
        raise not_measured(description.name, description.reference) from None
    watched = profile.step_costs if options.time_limit_s is None else ()
    specs = _chosen(options, description, profile)
    if not (specs or watched):
        raise InputError(
            f"{profile.name}: the costs of its operations have no intervals that could be checked,"
            " since they were measured in one block",
            remedy="profile again with more --blocks",
        )
    build = measured_build(profile)
    _announce(options, description, profile, specs, watched, console)
    if options.dry_run:
        return ExitCode.DONE
    with alone_with(description):
        again = description.with_matmul(build.matmul)
        measuring = ProfileOptions(blocks=options.blocks, seed=_SEED, storage=False)
        # Interrupted, the same check of the same profile goes on.
        about = f"check of {dump_yaml(profile)}"
        path = choose_run_directory((options.results.runs,), again, specs, None, measuring, about)
        trials = RunDirectory(path)
        if watched:
            trials.begin_watching()
        groups = []
        if specs:
            groups.append(_operations(again, profile, specs, measuring, trials, console))
        if watched:
            share_bytes = options.storage_budget_bytes // len(watched)
            groups += _places(
                description,
                profile,
                share_bytes,
                trials.watching,
                console,
                has_others=bool(groups),
            )
            trials.end_watching()
    now = datetime.now(UTC)
    unchecked = len(profile.operations) - len(specs)
    report = check_report(
        profile, description.name, now.isoformat(timespec="seconds"), groups, unchecked
    )
    out = options.results.checks / f"{description.name}.{now:%Y%m%dT%H%M%S}.json"
    try:
        with sole_user(out.parent):
            write_atomically(out, dump_json(report))
    finally:  # also where it cannot be written
        console.document(report.model_dump(mode="json", by_alias=True, exclude_none=True))
        _summarise(console, report)
    console.result(f"\ncheck    {out}")
    if not report.overall.is_clearly_below_the_claim:
        return ExitCode.DONE
    console.say(
        f"error: {description.name}: the intervals hold {_percent(report.overall)} of what was"
        " measured again, clearly less than 95 %: the board is in another state than when it was"
        " profiled, or varies more between hours than within the profile. Profile it again, with"
        " more --blocks"
    )
    return ExitCode.MEASUREMENT_INVALID


def _announce(
    options: CheckOptions,
    description: DeviceDescription,
    profile: DeviceProfile,
    specs: Sequence[OpSpec],
    watched: Sequence[StepCosts],
    console: Console,
) -> None:
    """Print what will be measured again, and what that may write to storage."""
    from commands.wording import written_to_storage
    from replay.costs.ways import can_page

    pages = watched and can_page(description, profile)
    written_bytes = options.storage_budget_bytes if pages else 0
    networks = [costs.network.model for costs in watched]
    unknown = sum(cost.warm.time_s.is_exact for cost in profile.operations)
    if unknown:
        console.say(
            f"{unknown} operations were measured in one block: their costs have no intervals that"
            " could be checked"
        )
    steps = f", and the step of {' and of '.join(networks)} is watched again" if networks else ""
    console.say(
        f"{description.name}: {len(specs)} of {len(profile.operations)} operations are measured"
        f" again in {options.blocks} blocks{steps}; {written_to_storage(written_bytes)}"
    )
    if options.dry_run:
        console.document(
            {
                "device": description.name,
                "operations": [spec.key for spec in specs],
                "blocks": options.blocks,
                "watched": networks,
                "most_bytes_written_by_steps": written_bytes,
            }
        )


def _chosen(
    options: CheckOptions, description: DeviceDescription, profile: DeviceProfile
) -> list[OpSpec]:
    from profiler.run.options import ProfileOptions
    from profiler.run.preview import operation_s
    from replay.costs.check import stratified

    if not profile.operations:
        raise InputError(
            f"{profile.name}: states rates, and no operation that could be measured again",
            remedy="profile the board",
        )
    specs = [
        spec
        for spec, operation in profile.by_spec.items()
        if not (operation.warm.time_s.is_exact and operation.cold.time_s.is_exact)
    ]
    if options.time_limit_s is None or not specs:
        return specs
    measuring = ProfileOptions(blocks=options.blocks)
    return stratified(
        profile,
        specs,
        lambda spec: operation_s(spec, description, measuring),
        options.time_limit_s,
    )


def _operations(
    description: DeviceDescription,
    profile: DeviceProfile,
    specs: Sequence[OpSpec],
    measuring: ProfileOptions,
    trials: RunDirectory,
    console: Console,
) -> CheckedGroup:
    """Measure operations by themselves again, as ``profile`` does."""
    from functools import partial

    from profiler.run.run import ProgressEvent, profile_device
    from profiler.run.table import TrialTable
    from replay.costs.check import operation_figures
    from replay.costs.refine import require_same_board_and_kernels

    with console.progress("connecting") as progress:

        def show(event: ProgressEvent) -> None:
            left = "" if event.left_s is None else f"{event.left_s:.0f} s left"
            progress.show(event.activity, event.fraction, left)

        require_board = partial(require_same_board_and_kernels, profile)
        profile_device(
            description,
            specs,
            None,
            measuring,
            trials.path,
            show,
            require_board=require_board,
        )
    return operation_figures(profile, specs, TrialTable.of(trials.harness_runs()))


def _places(
    description: DeviceDescription,
    profile: DeviceProfile,
    share_bytes: int,
    directory: Path,
    console: Console,
    *,
    has_others: bool,
) -> list[CheckedGroup]:
    """Watch again the training steps that the profile watched, with other data.

    Each may write ``share_bytes`` to storage. One that cannot be watched is left out, if there is
    another one, or ``has_others`` says that other figures were measured again.
    """
    from commands.wording import COMPILING
    from replay.costs.check import place_figures
    from replay.costs.measuring import NOT_WATCHED
    from replay.costs.watch import watch_step

    found: list[CheckedGroup] = []
    failed: JoulewrightError | None = None
    for costs in profile.step_costs:
        network = costs.network
        with console.status() as status:

            def progress(what: str, status: Status = status) -> None:
                status.show(what, passing=what.startswith(COMPILING))

            try:
                again = watch_step(
                    description,
                    network,
                    profile,
                    progress,
                    storage_budget_bytes=share_bytes,
                    first_seed=_SEED,
                    directory=directory,
                    counts_zeros=False,
                )
            except NOT_WATCHED as error:
                failed = error
                console.say(f"the step of {network.model} was not watched again: {error}")
                continue
        group = place_figures(costs, again)
        if group.figures:
            found.append(group)
            continue
        failed = InputError(
            f"{profile.name}: no op of {network.model} has an operation that was watched in the"
            " profile: the network has changed since",
            remedy="profile it again",
        )
        console.say(str(failed))
    if failed is not None and not (found or has_others):
        raise failed
    return found


def _summarise(console: Console, report: CheckReport) -> None:
    rows = [["", "trials", "held by their intervals", "95 % interval"]]
    rows += [_row("all", report.overall), _row("all, by time", report.by_time)]
    worst = sorted(report.kinds.items(), key=lambda item: (item[1].share, item[0]))
    rows += [_row(kind, each) for kind, each in worst[:_SHOWN]]
    console.table(rows, right=(1, 2, 3))
    if len(worst) > _SHOWN:
        console.result(f"… and {len(worst) - _SHOWN} kinds with more (--json prints all)")
    console.result(
        f"differences from the profile's medians: {100 * report.difference:.2g} % in the median of"
        f" {time_words(report.energy_source, f'{len(report.figures)} times')}; joules are not"
        " measured again"
    )
    if report.unchecked:
        console.result(f"{report.unchecked} operations were not measured again")


def _row(name: str, coverage: Coverage) -> list[str]:
    ends = f"{100 * coverage.low:.1f} to {100 * coverage.high:.1f} %"
    return [name, str(coverage.trials), f"{100 * coverage.share:.1f} %", ends]


def _percent(coverage: Coverage) -> str:
    return f"{100 * coverage.share:.1f} %"


CHECK = Command(_add_options, CheckOptions.of, check, resumes=lambda _options: True)
