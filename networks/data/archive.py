"""NumPy's archives of named arrays (``.npz``) that may come from anywhere."""

from __future__ import annotations

import lzma
import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from devices.documents.regular import require_regular
from networks.data.inputs import DataError

# Raised by NumPy for a file that is not an archive, or is cut off, encrypted, contains objects, or
# has invalid offsets; and for headers that are no headers, or state impossible types and shapes.
_UNREADABLE = (
    *(ValueError, EOFError, RuntimeError, OSError, zipfile.BadZipFile, zlib.error, lzma.LZMAError),
    *(TypeError, LookupError, OverflowError, MemoryError, SyntaxError, tokenize.TokenError),
)


def read_arrays(path: Path) -> Mapping[str, NDArray[Any]]:
    """Read all arrays of a ``.npz`` file.

    Raises:
        DataError: The file is not an archive of plain arrays.
        OSError: The file cannot be opened.
    """
    require_regular(path)
    with path.open("rb") as file:
        try:
            archive = np.load(file, allow_pickle=False)
            if isinstance(archive, np.lib.npyio.NpzFile):
                return {name: np.asarray(archive[name]) for name in archive.files}
        except _UNREADABLE as error:
            why = f"{path}: not a readable .npz archive of plain arrays: {error}"
            raise DataError(why) from None
    raise DataError(f"{path}: contains one array without a name; save named ones by numpy.savez")
