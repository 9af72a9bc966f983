"""Files that a campaign's file names: below its own directory, wherever links lead."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from devices.documents.readable import printable, with_short_words
from devices.errors import InputError


def file_below(directory: Path, word: str, key: str) -> Path:
    """The absolute path of a file that a campaign names; it need not exist.

    Links are followed: whoever packs a campaign gives away what its paths lead to.

    Args:
        directory: Directory of the campaign's file.
        word: The path as the campaign has it, relative to the directory.
        key: Where the campaign names it.

    Raises:
        InputError: It is outside of the directory, or no file can have such a name.
    """
    top, shown = directory.resolve(), with_short_words(printable(word))
    path = top / word
    try:
        path.lstat()
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise InputError(f"{key}: {shown}: {error.strerror}") from None
    target = Path(os.path.realpath(path))  # unlike Path.resolve, it takes links in a circle
    if not target.is_relative_to(top):
        raise InputError(
            f"{key}: {shown} resolves to {printable(str(target))}, outside of the directory of the"
            f" campaign's file, {top}",
            remedy="copy the file into this directory",
        )
    return path
