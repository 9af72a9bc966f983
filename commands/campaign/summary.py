"""Printouts of ``campaign``: what a run takes, how far it is, and what came of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from datetime import timedelta

from campaigns.design.opening import OpenedCampaign
from campaigns.keeping.directory import CampaignDirectory
from campaigns.keeping.results import CampaignResults
from campaigns.keeping.status import BoardStatus, CampaignStatus
from campaigns.running.attempts import Shortfall
from campaigns.running.preview import BoardPreview, preview_campaign
from commands.campaign.values import show_other_values
from commands.console import Console
from commands.wording import lifetime
from devices.documents.readable import si, size
from devices.results import Results

_MOST_SHOWN = 20
_UNKNOWN = "unknown"
_YEAR_S = 365.25 * 86_400
_LONGEST_S = 1000 * _YEAR_S
_PREVIEW_HEAD = (
    *("board", "cells", "to solve, at most", "profile"),
    *("replays", "they take", "energy", "writes, at most"),
)


def announce(
    console: Console, opened: OpenedCampaign, directory: CampaignDirectory, results: Results
) -> None:
    """Print what is left to do and what it takes, without touching a board."""
    previews = preview_campaign(opened, directory, results)
    console.document(
        {
            "campaign": opened.file.name,
            "cells": [cell.model_dump(mode="json") for cell in opened.design.cells],
            "boards": [
                {
                    **asdict(preview),
                    "wear": preview.wear and preview.wear.model_dump(mode="json"),
                    "most_wear": preview.most_wear and preview.most_wear.model_dump(mode="json"),
                }
                for preview in previews
            ],
        }
    )
    console.result(f"{opened.file.name}: {len(opened.design.cells)} cells in {directory.path}")
    for cell in opened.design.cells[:_MOST_SHOWN]:
        console.result(f"  {cell}")
    more = len(opened.design.cells) - _MOST_SHOWN
    if more > 0:
        console.result(f"  and {more} more (--json lists all)")
    console.table([_PREVIEW_HEAD, *map(_preview_row, previews)], right=range(1, 8))
    replayed = [preview for preview in previews if preview.replays]
    for basis, boards in _grouped((each.basis, each.setting) for each in replayed):
        console.result(
            f"{boards}: until a schedule is known, its time and energy are estimated as those of a"
            f" step with nothing recomputed or paged, from {basis}"
        )
    for reason, boards in _grouped((each.reason, each.setting) for each in replayed):
        console.result(f"{boards}: energy is {_UNKNOWN}: {reason}")
    watched = [
        preview.setting
        for preview in previews
        if preview.profile_written_bytes and opened.file.watch_steps
    ]
    if watched:
        console.result(
            f"{', '.join(watched)}: what a profile writes before its watched steps, such as the"
            " values that they begin with, is not counted"
        )
    for preview in previews:
        if preview.wear is not None:
            written = size(preview.wear.written_bytes_per_step)
            console.result(
                f"storage of {preview.setting}: at most {written} written a step"
                f"{lifetime(preview.wear)}"
            )
        if preview.most_wear is not None:
            written = size(preview.most_wear.written_bytes_per_step)
            console.result(
                f"storage of {preview.setting}: schedules that are not known write at most"
                f" {written} a step, every tensor once{lifetime(preview.most_wear)}"
            )


def _grouped(sentences: Iterable[tuple[str | None, str]]) -> Iterator[tuple[str, str]]:
    """Each sentence once, with all boards of which it is said."""
    boards: dict[str, list[str]] = {}
    for sentence, board in sentences:
        if sentence is not None:
            boards.setdefault(sentence, []).append(board)
    for sentence, named in boards.items():
        yield sentence, ", ".join(named)


def _preview_row(preview: BoardPreview) -> list[str]:
    unsolved, search_s = preview.unsolved, preview.search_s
    written = (preview.most_written_bytes or 0) + (preview.profile_written_bytes or 0)
    energy_j = preview.energy_j
    if energy_j is not None:
        energy_j += preview.profile_j or 0.0
    return [
        preview.setting,
        str(preview.cells),
        f"{unsolved} in {_duration(search_s)}" if unsolved else "none",
        "known" if preview.profile_s is None else f"about {_duration(preview.profile_s)}",
        str(preview.replays),
        _of_replays(preview, None if preview.replay_s is None else _duration(preview.replay_s)),
        _of_replays(
            preview,
            None if energy_j is None else f"{si(energy_j, 'J')} ({preview.energy_source})",
        ),
        size(written),
    ]


def _of_replays(preview: BoardPreview, known: str | None) -> str:
    return known or _UNKNOWN if preview.replays else "–"


def show_status(console: Console, status: CampaignStatus) -> None:
    """Print how far a campaign is."""
    console.document(
        {
            "campaign": status.name,
            "runner": None if status.runner is None else str(status.runner),
            "boards": [
                {
                    "board": board.board,
                    "cells": board.cells,
                    "solved": board.solved,
                    "replays": board.replays,
                    "finished": board.finished,
                    "progress": board.progress and board.progress.model_dump(mode="json"),
                }
                for board in status.boards
            ],
            "solving": list(status.solving),
            "failures": [
                {"what": what, "reason": failure.reason} for what, failure in status.failures
            ],
        }
    )
    runner = "not running" if status.runner is None else f"run by {status.runner}"
    console.result(f"{status.name}: {runner}")
    rows = [["board", "solved", "replays", "time left", "now"]]
    rows += [_status_row(board) for board in status.boards]
    console.table(rows, right=(1, 2, 3))
    for cell in status.solving:
        console.result(f"solving: {cell}")
    for what, failure in status.failures[:_MOST_SHOWN]:
        console.result(f"failed: {what}: {failure.reason}")
    _count_more(console, len(status.failures))


def _status_row(board: BoardStatus) -> list[str]:
    progress, now, left = board.progress, "", "–"
    if progress is not None:
        if progress.left_s is not None:
            left = _duration(progress.left_s)
        elif board.finished < board.replays or board.solved < board.cells:
            left = _UNKNOWN
        if progress.waits_for is not None:
            now = progress.waits_for
        elif progress.given_up is not None:
            now = f"given up: {progress.given_up}"
        elif progress.activity is not None:
            now = f"{progress.activity}, since {_duration(progress.since_s or 0.0)}"
    solved = f"{board.solved} of {board.cells}"
    replays = f"{board.finished} of {board.replays}" if board.replays else "–"
    return [board.board, solved, replays, left, now]


def summarise(
    console: Console,
    results: CampaignResults,
    shortfalls: Sequence[Shortfall],
    differing: Sequence[str],
) -> None:
    """Print what came of a run: states of the cells by board, failures, and where the files are."""
    directory = results.directory
    states = Counter(result.state for result in results.cells)
    console.document(
        {
            "campaign": results.name,
            "directory": str(directory.path),
            "states": dict(states),
            "values_differ": list(differing),
            "failures": [asdict(shortfall) for shortfall in shortfalls],
        }
    )
    words = ", ".join(f"{count} {state}" for state, count in states.items())
    console.result(f"{results.name}: {len(results.cells)} cells: {words}")
    show_other_values(console, differing)
    for shortfall in shortfalls[:_MOST_SHOWN]:
        console.result(f"failed: {shortfall.what}: {shortfall.reason}")
    _count_more(console, len(shortfalls))
    console.result(f"\ntables     {directory.tables}\ncampaign   {directory.path}")


def _count_more(console: Console, count: int) -> None:
    if count > _MOST_SHOWN:
        console.result(f"and {count - _MOST_SHOWN} more failures (--json lists all)")


def _duration(seconds: float) -> str:
    if seconds < 1:
        return si(seconds, "s", 2)
    if seconds > _LONGEST_S:
        return f"more than {_LONGEST_S / _YEAR_S:.0f} years"
    return str(timedelta(seconds=round(seconds)))
