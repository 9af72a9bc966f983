"""Phrases that several commands print."""

from __future__ import annotations


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
