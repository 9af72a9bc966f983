"""A progress callback that does nothing."""


def ignore(_what: str) -> None:
    """Ignore a progress message."""
