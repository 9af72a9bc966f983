"""Operations of a user's network that cannot be trained here, as one message."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_MOST_PLACES = 3
_MOST_LINES = 100


@dataclass(frozen=True)
class Refusal:
    """Operation that cannot be trained here: why, what would do instead, and where it is."""

    target: str
    why: str
    instead: str
    place: str


def listed(refusals: Sequence[Refusal]) -> str:
    """One line for each kind of refusal, with its first places."""
    places: dict[tuple[str, str, str], list[str]] = {}
    for each in refusals:
        places.setdefault((each.target, each.why, each.instead), []).append(each.place)
    lines = []
    for (target, why, instead), found in places.items():
        named = list(dict.fromkeys(filter(None, found)))
        more = f" and {len(named) - _MOST_PLACES} more" if len(named) > _MOST_PLACES else ""
        at = f" at {', '.join(named[:_MOST_PLACES])}{more}" if named else ""
        use = f"; use {instead}" if instead else ""
        lines.append(f"{target}{at}: {why}{use}")
    if len(lines) > _MOST_LINES:
        lines[_MOST_LINES:] = [f"and {len(lines) - _MOST_LINES} other kinds"]
    count = len(refusals)
    what = "1 operation" if count == 1 else f"{count} operations"
    return f"{what} cannot be trained here:\n  " + "\n  ".join(lines)
