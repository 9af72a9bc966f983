"""This program: how a user calls it, and how it starts a process of its own."""

from __future__ import annotations

import os
import sys
from pathlib import Path

_ROOT = Path(__file__).parents[1]

COMMAND = "cli.py" if (_ROOT / "pyproject.toml").is_file() else "joulewright"
"""What a user types before a sub-command: ``cli.py`` in a checkout, ``joulewright`` where it is
installed."""


def module_process(module: str, *arguments: str) -> tuple[list[str], dict[str, str]]:
    """Command and environment of a process that runs ``python -m MODULE ARGUMENTS...``.

    It finds modules where this process finds them. Python alone would look into the working
    directory first, where a user may have a ``solver.py``.
    """
    path = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
    command = [sys.executable, "-P", "-m", module, *arguments]
    return command, {**os.environ, "PYTHONPATH": path}
