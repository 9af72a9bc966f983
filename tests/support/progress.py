"""A progress callback that does nothing."""


def ignore(_what: str) -> None:
    pass
