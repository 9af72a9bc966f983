"""Command ``diff``: costs of two profiles that differ beyond their intervals, and by how much."""

from __future__ import annotations

import math
from argparse import ArgumentParser, Namespace
from dataclasses import dataclass
from typing import TYPE_CHECKING

from commands.arguments import add_json, add_results
from commands.command import Command
from commands.console import Console
from devices.documents.readable import si
from devices.errors import ExitCode
from devices.results import Results

if TYPE_CHECKING:
    from devices.comparison import Difference, ProfileComparison
    from devices.profile import DeviceProfile, Interval

_SHOWN = 20
_NAMED = 5


@dataclass(frozen=True)
class DiffOptions:
    """Two profiles, by name or path."""

    first: str
    second: str
    results: Results

    @classmethod
    def of(cls, namespace: Namespace) -> DiffOptions:
        """Options as read from the command line."""
        return cls(namespace.first, namespace.second, namespace.results)


def _add_options(parser: ArgumentParser) -> None:
    add_json(parser)
    add_results(parser)
    parser.add_argument("first", metavar="A", help="a profile, by name or path")
    parser.add_argument("second", metavar="B", help="another profile, by name or path")


def diff(options: DiffOptions, console: Console) -> int:
    """Compare two profiles and print the largest differences."""
    from devices.comparison import compare
    from devices.library import resolve_profile

    measured = options.results.profiles
    first, second = (resolve_profile(name, measured) for name in (options.first, options.second))
    comparison = compare(first, second)
    console.document(
        {
            "first": options.first,
            "second": options.second,
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
    _show(console, options, comparison, (first, second))
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
    """Replace infinity, which JSON lacks, by None."""
    return ratio if math.isfinite(ratio) else None


def _show(
    console: Console,
    options: DiffOptions,
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
            console.result(f"… and {len(differences) - _SHOWN} more (--json prints all)")
    for name, lone in (
        (options.first, comparison.only_first),
        (options.second, comparison.only_second),
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


DIFF = Command(_add_options, DiffOptions.of, diff)
