"""Error of a network's file that cannot be used."""

from __future__ import annotations

from devices.documents.readable import printable
from devices.errors import InputError

_LONGEST_LINE = 600


class ExportError(InputError):
    """A network's file cannot be read, or has operations that cannot be trained here.

    The message quotes the file's own names and source lines; control characters are escaped, and
    long lines cut.
    """

    def __init__(self, message: str) -> None:
        lines = (printable(line) for line in message.split("\n"))
        super().__init__(
            "\n".join(
                line if len(line) <= _LONGEST_LINE else f"{line[: _LONGEST_LINE - 3]}..."
                for line in lines
            )
        )
