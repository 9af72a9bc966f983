"""Printout of ``campaign compare``."""

from __future__ import annotations

from collections.abc import Iterable

from campaigns.comparing.comparison import CampaignComparison, Quantity
from campaigns.comparing.shifts import Shift, Verdict
from commands.console import Console
from devices.documents.readable import NO_SOURCE, time_words

_MOST_SHOWN = 20
_CLOSE_S = 3600.0  # replays that began within this time share most of what is slow to change
_WORDS: dict[Quantity, dict[Verdict, str]] = {
    "time": {"more": "slower", "less": "faster"},
    "energy": {"more": "more energy", "less": "less energy"},
    "predicted energy": {"more": "more energy", "less": "less energy"},
}


def show_comparison(console: Console, comparison: CampaignComparison) -> None:
    """Print the shift of every cell and over all, and in what the sides differ."""
    console.document(comparison.model_dump(mode="json", by_alias=True, exclude_none=True))
    console.result(f"{comparison.second} against {comparison.first}")
    _show_differences(console, comparison)
    rows = [_head(comparison)]
    rows += [
        _row(
            str(each.second),
            _named(each.quantity, each.energy_source),
            each.quantity,
            each.shift,
            comparison.margin,
        )
        for each in comparison.cells
    ]
    rows += [
        _row(
            f"all {each.cells} cells",
            _named(each.quantity, each.energy_source),
            each.quantity,
            each.shift,
            comparison.margin,
        )
        for each in comparison.overall
    ]
    console.table(rows, right=(2, 3, 4, 5))
    if comparison.controls:
        _show_controls(console, comparison)
    _list(console, "not compared", comparison.left_out)


def _show_controls(console: Console, comparison: CampaignComparison) -> None:
    are_several = len({each.campaign for each in comparison.controls}) > 1
    named = [
        f"{each.campaign}: {each.cell}" if are_several else str(each.cell)
        for each in comparison.controls
    ]
    console.result("\ncontrols: the same schedule twice in a repetition, which must not differ")
    rows = [_head(comparison)]
    rows += [
        _row(
            name,
            _named(each.quantity, each.energy_source),
            each.quantity,
            each.shift,
            comparison.margin,
        )
        for name, each in zip(named, comparison.controls, strict=True)
    ]
    console.table(rows, right=(2, 3, 4, 5))
    for name, each in zip(named, comparison.controls, strict=True):
        if each.quantity == "time" and each.furthest_apart_s > _CLOSE_S:
            console.result(
                f"{name}: a replay and its control ran up to {each.furthest_apart_s / 3600:.1f} h"
                " apart: what changed on the board in between counts as a change"
            )


def _show_differences(console: Console, comparison: CampaignComparison) -> None:
    found = comparison.differences
    if not found:
        console.result("they differ in nothing that is recorded")
    elif len(found) > 1:
        console.result(
            f"they differ in {len(found)} things, and a change may come from any of them:"
        )
    _list(console, "differ in", found)
    if comparison.began is not None:
        before, after = comparison.began
        console.result(
            f"they are two campaigns, begun at {before} and at {after}: what changed on a board in"
            " between counts as a change; levels of one campaign run close together"
        )
    if comparison.furthest_apart_s is not None and comparison.furthest_apart_s > _CLOSE_S:
        console.result(
            f"replays of a repetition ran up to {comparison.furthest_apart_s / 3600:.1f} h apart:"
            " what changed on a board in between counts as a change"
        )


def _head(comparison: CampaignComparison) -> list[str]:
    interval = f"{comparison.confidence:.0%} interval of all"
    return ["cell", "of", "change", interval, "repetitions", "visible", "verdict"]


def _named(quantity: Quantity, source: str | None) -> str:
    if quantity == "time":
        return time_words(source)
    return f"{quantity} ({source or NO_SOURCE})"


def _row(what: str, of: str, quantity: Quantity, shift: Shift, margin: float) -> list[str]:
    interval = "–"
    if shift.low is not None and shift.high is not None and shift.pairs:
        interval = f"{shift.low:+.2%} to {shift.high:+.2%}"
    return [
        what,
        of,
        f"{shift.shift:+.2%}",
        interval,
        str(shift.pairs) if shift.pairs else "–",
        "–" if shift.visible is None or not shift.pairs else f"{shift.visible:.2%}",
        _verdict(quantity, shift.verdict, margin),
    ]


def _verdict(quantity: Quantity, verdict: Verdict, margin: float) -> str:
    if verdict == "same":
        return f"same within {margin:.2g}" if margin == 0 else f"same within {100 * margin:g} %"
    return _WORDS[quantity].get(verdict, verdict)


def _list(console: Console, what: str, sentences: Iterable[str]) -> None:
    found = list(sentences)
    for sentence in found[:_MOST_SHOWN]:
        console.result(f"{what}: {sentence}")
    if len(found) > _MOST_SHOWN:
        console.result(f"{what}: {len(found) - _MOST_SHOWN} more (--json lists all)")
