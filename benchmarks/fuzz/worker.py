"""A process that takes inputs: ``python -m benchmarks.fuzz.worker FORMAT FIRST LAST``.

It prints a line for each input: its seed, and ``accepted``, ``refused`` or what is wrong. An input
that takes too long or breaks the interpreter ends the process; the next line is then missing.
"""

from __future__ import annotations

import resource
import signal
import sys
import tempfile
import traceback
from pathlib import Path

from benchmarks.fuzz.formats import FORMATS
from devices.errors import ExitCode, JoulewrightError

LIMIT_S = 20
"""Most wall time of one input."""

LIMIT_BYTES = 3 << 30
"""Most address space of the process."""

_LONGEST_LINE = 1300


def main() -> None:
    name, first, last = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    form = FORMATS[name]
    form.examples()  # made without the limits
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT_BYTES, LIMIT_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / form.file
        for seed in range(first, last):
            path.write_bytes(form.input(name, seed))
            signal.alarm(LIMIT_S)  # without a handler, it ends the process
            print(seed, outcome(name, path), flush=True)
            signal.alarm(0)


def outcome(name: str, path: Path) -> str:
    """``accepted``, ``refused`` or what is wrong with how the file at ``path`` is taken."""
    try:
        FORMATS[name].take(path)
    except JoulewrightError as error:
        if error.exit_code is ExitCode.INTERNAL_ERROR:
            return _described(error)
        wrong = _wrong_with(str(error), FORMATS[name].most_lines)
        return f"{wrong}: {str(error)[:200]!r}" if wrong else "refused"
    except Exception as error:
        return _described(error)
    return "accepted"


def _described(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    place = next((f for f in reversed(frames) if ".venv" not in f.filename), frames[-1])
    said = " ".join(str(error).split())[:200]
    return f"{type(error).__name__} in {Path(place.filename).name}:{place.lineno}: {said}"


def _wrong_with(message: str, most_lines: int) -> str:
    lines = message.split("\n")
    if not message.strip():
        return "an empty message"
    if len(lines) > most_lines or max(map(len, lines)) > _LONGEST_LINE:
        return "a message that is too long"
    if not all(map(str.isprintable, lines)):
        return "a message with control characters"
    return ""


if __name__ == "__main__":
    main()
