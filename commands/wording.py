"""Phrases that several commands print."""

from __future__ import annotations

from typing import TYPE_CHECKING

from devices.documents.readable import size

if TYPE_CHECKING:
    from commands.console import Console
    from networks.training.step import TrainingStep


COMPILING = "compiling "
"""Beginning of dozens of activities, of which only the last is worth a line."""


def time_words(source: str | None, what: str = "time") -> str:
    """Head a column of seconds with ``what``, and with the source where they are not measured.

    Seconds are measured even where joules are estimated, except on an emulated board and in
    published profiles.
    """
    return f"{what} ({source})" if source in {"emulated", "published"} else what


WITHOUT_ADDRESSES = (
    "baselines count RAM as a sum of bytes, as published (DTR and Coop choose addresses); every"
    " schedule of this solver has addresses in one arena"
)


def short_key(key: str) -> str:
    """Shorten an operation's key to its kind and attribute values, in the signature's order."""
    kind, *attributes = key.split()
    return f"{kind} {'·'.join(attribute.partition('=')[2] for attribute in attributes)}"


def smallest_ram_words(enough_bytes: int, bound_bytes: int | None) -> str:
    """The smallest RAM budget: exactly, or between what was found and what is proven."""
    found = f"{enough_bytes} bytes ({size(enough_bytes)})"
    if enough_bytes == bound_bytes:
        return found
    at_most = f"at most {found}, for which a schedule was found"
    return at_most if bound_bytes is None else f"{at_most}; at least {bound_bytes} bytes are needed"


def say_remark(console: Console, step: TrainingStep) -> None:
    """Say how a network from a file is trained, if that is not plain."""
    if step.file is not None and step.file.remark:
        console.say(step.file.remark)
