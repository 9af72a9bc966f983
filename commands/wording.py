"""Phrases that several commands print."""

from __future__ import annotations

from typing import TYPE_CHECKING

from devices.documents.readable import size

if TYPE_CHECKING:
    from commands.console import Console
    from devices.wear import Wear
    from networks.training.step import TrainingStep


COMPILING = "compiling "
"""Beginning of dozens of activities, of which only the last is worth a line."""


def short_key(key: str) -> str:
    """Shorten an operation's key to its kind and attribute values, in the signature's order."""
    kind, *attributes = key.split()
    return f"{kind} {'·'.join(attribute.partition('=')[2] for attribute in attributes)}"


def lifetime(wear: Wear) -> str:
    """How long storage lasts, as the end of a sentence that says what a step writes."""
    lasts = ""
    if wear.years is not None:
        bound = "at most " if wear.at_most else ""
        lasts = f"; at {wear.steps_per_day:g} steps a day it lasts {bound}{wear.years:.3g} years"
    return lasts + (f" ({wear.reason})" if wear.reason else "")


def written_to_storage(most_bytes: int) -> str:
    """The end of a sentence that says how much watched steps write to storage."""
    if not most_bytes:
        return "nothing is written to storage"
    return (
        f"its steps write at most {size(most_bytes)} to storage, besides the values that they begin"
        " with"
    )


def say_remarks(console: Console, step: TrainingStep) -> None:
    """Say how a network is trained, if that is not plain."""
    for remark in step.remarks:
        console.say(remark)
