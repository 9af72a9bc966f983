"""Command ``diff``: costs in which two profiles differ, by how much, and what could be seen."""

from __future__ import annotations

import dataclasses
import math
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from commands.arguments import add_json, add_results
from commands.command import Command
from commands.console import Console
from devices.documents.readable import si
from devices.errors import ExitCode
from devices.results import Results

if TYPE_CHECKING:
    from devices.comparison import Difference, ProfileComparison, VisibleChange
    from devices.profile import DeviceProfile, Interval

_SHOWN = 20
_NAMED = 5

# Per cent from which a change is written as a factor.
_MUCH = 1000.0


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
    from devices.comparison import FALSE_DISCOVERY_RATE, POWER, compare
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
            "unknown": comparison.unknown,
            "false_discovery_rate": FALSE_DISCOVERY_RATE,
            "visible": {
                "power": POWER,
                "one_figure": _visible(comparison.visible(1)),
                "all_figures": _visible(comparison.visible(len(comparison.figures))),
            },
            "differences": [
                _document(difference, comparison.least_ratio(difference))
                for difference in comparison.differences
            ],
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


def _visible(change: VisibleChange | None) -> dict[str, float] | None:
    return None if change is None else dataclasses.asdict(change)


def _document(difference: Difference, least_ratio: float) -> dict[str, object]:
    return {
        "what": difference.what,
        "quantity": difference.quantity,
        "first": difference.first.model_dump(),
        "second": difference.second.model_dump(),
        "ratio": _finite(difference.ratio),
        "least_ratio": _finite(least_ratio),
        "p_value": difference.p_value,
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
        f" {len(differences)} differ"
    )
    if differences:
        rows = [["", *named, "B over A", "at least"]]
        rows += [
            _row(difference, comparison.least_ratio(difference))
            for difference in differences[:_SHOWN]
        ]
        console.table(rows, right=(1, 2, 3, 4))
        if len(differences) > _SHOWN:
            console.result(f"… and {len(differences) - _SHOWN} more (--json prints all)")
    for sentence in _sentences(comparison):
        console.result(sentence)
    for name, lone in (
        (options.first, comparison.only_first),
        (options.second, comparison.only_second),
    ):
        if lone:
            more = f" and {len(lone) - _NAMED} more" if len(lone) > _NAMED else ""
            console.result(f"only in {name}: {'; '.join(lone[:_NAMED])}{more}")
    for what, one, other in comparison.circumstances:
        console.result(f"{what}: {one} | {other}")


def _sentences(comparison: ProfileComparison) -> Iterator[str]:
    from devices.comparison import FALSE_DISCOVERY_RATE, POWER

    if comparison.unknown:
        yield (
            f"{comparison.unknown} figures have no interval in either profile, as after one block:"
            " whether they differ is not known. Measure more blocks"
        )
    if comparison.differences:
        yield f"At most {FALSE_DISCOVERY_RATE:.0%} of the differences are expected to be false."
    one, every = comparison.visible(1), comparison.visible(len(comparison.figures))
    if one is not None and every is not None:
        yield (
            f"Smallest change that would have been found, with a probability of {POWER:.0%}:"
            f" of one figure {_change(one)}, of all figures alike {_change(every)}."
        )


def _change(visible: VisibleChange) -> str:
    return (
        f"{_percent(visible.median)} (median over the figures;"
        f" {_percent(visible.smallest)} to {_percent(visible.largest)})"
    )


def _row(difference: Difference, least_ratio: float) -> list[str]:
    unit = "s" if difference.quantity == "time_s" else "J"
    return [
        difference.what,
        _interval(difference.first, unit),
        _interval(difference.second, unit),
        _percent(difference.ratio),
        _percent(least_ratio),
    ]


def _interval(interval: Interval, unit: str) -> str:
    half = (interval.high - interval.low) / 2
    share = f" ±{100 * half / interval.median:.2g} %" if interval.median and half else ""
    return f"{si(interval.median, unit)}{share}"


def _percent(ratio: float) -> str:
    change = 100 * (ratio - 1)
    return f"{change:+.2f} %" if change < _MUCH else f"× {ratio:.3g}"


DIFF = Command(_add_options, DiffOptions.of, diff)
