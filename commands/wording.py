"""Words that several commands use."""

from __future__ import annotations


def time_words(source: str | None, what: str = "time") -> str:
    """A heading for seconds. They are measured even where joules are estimated, but not on an
    emulated board, nor where a paper's rates are all that there is."""
    return f"{what} ({source})" if source in {"emulated", "published"} else what


WITHOUT_ADDRESSES = (
    "baselines count RAM as a sum of bytes, as they are published (DTR and Coop choose addresses);"
    " every schedule of this solver has addresses in one arena"
)


def short_key(key: str) -> str:
    """The kind and the values of the attributes, in the signature's order."""
    kind, *attributes = key.split()
    return f"{kind} {'·'.join(attribute.partition('=')[2] for attribute in attributes)}"
