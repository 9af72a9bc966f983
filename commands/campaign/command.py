"""Entry point of ``campaign``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from commands.campaign.options import (
    CampaignOptions,
    CompareOptions,
    RunOptions,
    StatusOptions,
    add_options,
    options_of,
)
from commands.campaign.sharing import share
from commands.command import Command
from commands.console import Console
from devices.errors import ExitCode

if TYPE_CHECKING:
    from campaigns.design.opening import OpenedCampaign
    from campaigns.keeping.directory import CampaignDirectory

_PATIENCE_S = 1.0  # `campaign status` looks at the lock for a moment


def campaign(options: CampaignOptions, console: Console) -> int:
    """Run, show, compare or share campaigns."""
    if isinstance(options, StatusOptions):
        return _status(options, console)
    if isinstance(options, CompareOptions):
        return _compare(options, console)
    if isinstance(options, RunOptions):
        return _run(options, console)
    return share(options, console)


def _compare(options: CompareOptions, console: Console) -> int:
    from campaigns.comparing.comparison import compare_campaigns
    from campaigns.comparing.sides import read_side
    from commands.campaign.comparison import show_comparison

    first = read_side(options.first, options.results)
    second = read_side(options.second, options.results)
    comparison = compare_campaigns(first, second, options.margin)
    show_comparison(console, comparison)
    return ExitCode.WORSE if comparison.is_worse else ExitCode.DONE


def _run(options: RunOptions, console: Console) -> int:
    from campaigns.design.opening import open_campaign
    from campaigns.keeping.directory import CampaignDirectory
    from campaigns.running.remaining import is_finished
    from devices.claims.claim import sole_user

    opened = open_campaign(options.file, options.results)
    directory = CampaignDirectory(options.results.campaigns / opened.file.name)
    if options.dry_run:
        from commands.campaign.summary import announce

        announce(console, opened, directory, options.results)
        return ExitCode.DONE
    with sole_user(directory.path, patience_s=_PATIENCE_S):
        begun = directory.begin(opened.text, opened.design)
        is_known = not begun.is_new and is_finished(
            directory, opened.design, opened.file.seed, begun.files
        )
        if is_known and directory.has_new_tables():
            return _say_nothing_left(console, opened, directory)
        return _do_what_is_left(options, opened, directory, console)


def _say_nothing_left(
    console: Console, opened: OpenedCampaign, directory: CampaignDirectory
) -> int:
    from campaigns.running.remaining import with_other_values
    from commands.campaign.values import show_other_values

    differing = with_other_values(directory, opened.design)
    console.document(
        {
            "campaign": opened.file.name,
            "directory": str(directory.path),
            "values_differ": differing,
        }
    )
    console.result(
        f"{opened.file.name}: nothing is left to do for its {len(opened.design.cells)} cells"
    )
    show_other_values(console, differing)
    console.result(f"\ntables     {directory.tables}\ncampaign   {directory.path}")
    return ExitCode.INTERNAL_ERROR if differing else ExitCode.DONE


def _do_what_is_left(
    options: RunOptions, opened: OpenedCampaign, directory: CampaignDirectory, console: Console
) -> int:
    from campaigns.keeping.results import read_campaign
    from campaigns.keeping.tables import write_tables
    from campaigns.running.campaign import Workers, run_campaign
    from campaigns.running.remaining import with_other_values
    from campaigns.running.tally import Event
    from commands.campaign.summary import summarise
    from solver.pools import waiting_for

    if options.scheduler is not None:
        console.say(waiting_for(options.scheduler))
    with console.progress("starting", len(opened.design.cells)) as progress:

        def show(event: Event) -> None:
            progress.show(event.text, event.done, things=event.things)

        workers = Workers(options.jobs, options.scheduler)
        done = run_campaign(directory, opened.file, opened.design, options.results, workers, show)
    results = read_campaign(directory.path)
    write_tables(results)
    differing = with_other_values(directory, opened.design)
    summarise(console, results, done.shortfalls, differing)
    if differing:
        return ExitCode.INTERNAL_ERROR  # as run, where a schedule changes values
    return done.shortfalls[0].exit_code if done.shortfalls else ExitCode.DONE


def _status(options: StatusOptions, console: Console) -> int:
    from campaigns.keeping.directory import campaign_directory
    from campaigns.keeping.status import read_status
    from commands.campaign.summary import show_status

    show_status(console, read_status(campaign_directory(options.name, options.results)))
    return ExitCode.DONE


CAMPAIGN = Command(
    add_options,
    options_of,
    campaign,
    resumes=lambda options: isinstance(options, RunOptions) and not options.dry_run,
)
