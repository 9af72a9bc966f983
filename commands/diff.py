"""``diff``: which costs of two profiles differ beyond their intervals, and by how much."""

from __future__ import annotations

import math
from argparse import Namespace
from typing import TYPE_CHECKING

from commands.console import Console, si
from devices.errors import ExitCode

if TYPE_CHECKING:
    from devices.comparison import Difference, ProfileComparison
    from devices.profile import DeviceProfile, Interval

_SHOWN = 20
_NAMED = 5


def diff(arguments: Namespace, console: Console) -> int:
    from devices.comparison import compare
    from devices.library import resolve_profile

    measured = arguments.results.profiles
    first, second = (
        resolve_profile(name, measured) for name in (arguments.first, arguments.second)
    )
    comparison = compare(first, second)
    console.document(
        {
            "first": arguments.first,
            "second": arguments.second,
            "energy_sources": [first.energy_source, second.energy_source],
            "compared": len(comparison.figures),
            "differences": [_document(difference) for difference in comparison.differences],
            "only_first": comparison.only_first,
            "only_second": comparison.only_second,
            "circumstances": [
                {"what": what, "first": one, "second": other}
                for what, one, other in comparison.circumstances
            ],
        }
    )
    _show(console, arguments, comparison, (first, second))
    return ExitCode.DONE


def _document(difference: Difference) -> dict[str, object]:
    return {
        "what": difference.what,
        "quantity": difference.quantity,
        "first": difference.first.model_dump(),
        "second": difference.second.model_dump(),
        "ratio": _finite(difference.ratio),
        "least_ratio": _finite(difference.least_ratio),
    }


def _finite(ratio: float) -> float | None:
    """JSON has no infinity."""
    return ratio if math.isfinite(ratio) else None


def _show(
    console: Console,
    arguments: Namespace,
    comparison: ProfileComparison,
    profiles: tuple[DeviceProfile, DeviceProfile],
) -> None:
    differences = comparison.differences
    sources = (profile.energy_source for profile in profiles)
    named = [f"{name} ({source})" for name, source in zip(("A", "B"), sources, strict=True)]
    console.result(
        f"{len(comparison.figures)} figures are in both profiles, {' and '.join(named)};"
        f" {len(differences)} differ beyond their intervals"
    )
    if differences:
        rows = [["", *named, "B over A", "at least"]]
        rows += [_row(difference) for difference in differences[:_SHOWN]]
        console.table(rows, right=(1, 2, 3, 4))
        if len(differences) > _SHOWN:
            console.result(f"… and {len(differences) - _SHOWN} more (--json has them all)")
    for name, lone in (
        (arguments.first, comparison.only_first),
        (arguments.second, comparison.only_second),
    ):
        if lone:
            more = f" and {len(lone) - _NAMED} more" if len(lone) > _NAMED else ""
            console.result(f"only in {name}: {'; '.join(lone[:_NAMED])}{more}")
    for what, one, other in comparison.circumstances:
        console.result(f"{what}: {one} | {other}")


def _row(difference: Difference) -> list[str]:
    unit = "s" if difference.quantity == "time_s" else "J"
    return [
        difference.what,
        _interval(difference.first, unit),
        _interval(difference.second, unit),
        _percent(difference.ratio),
        _percent(difference.least_ratio),
    ]


def _interval(interval: Interval, unit: str) -> str:
    half = (interval.high - interval.low) / 2
    share = f" ±{100 * half / interval.median:.2g} %" if interval.median and half else ""
    return f"{si(interval.median, unit)}{share}"


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.2f} %"
