"""Progress that nobody watches."""


def ignore(_what: str) -> None:
    pass
