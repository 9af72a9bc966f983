"""Entry point of ``campaign``."""

from __future__ import annotations

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
    from campaigns.keeping.results import read_campaign
    from campaigns.keeping.tables import write_tables
    from campaigns.running.campaign import Workers, run_campaign
    from campaigns.running.tally import Event
    from commands.campaign.summary import announce, say_nothing_left, summarise
    from devices.claims.claim import sole_user

    opened = open_campaign(options.file, options.results)
    directory = CampaignDirectory(options.results.campaigns / opened.file.name)
    if options.dry_run:
        announce(console, opened, directory, options.results)
        return ExitCode.DONE
    with sole_user(directory.path, patience_s=_PATIENCE_S):
        is_new = directory.begin(opened.text, opened.design)
        with console.progress("starting", len(opened.design.cells)) as progress:

            def show(event: Event) -> None:
                progress.show(event.text, event.done, things=event.things)

            workers = Workers(options.jobs, options.scheduler)
            done = run_campaign(
                directory, opened.file, opened.design, options.results, workers, show
            )
        if not (is_new or done.finished or done.shortfalls) and directory.tables.is_dir():
            say_nothing_left(console, opened, directory)
            return ExitCode.DONE
        results = read_campaign(directory.path)
        write_tables(results)
        summarise(console, results, done.shortfalls)
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
