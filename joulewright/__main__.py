"""Entry point of ``python -m joulewright``: the command line."""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> int:
    """Run one command and return its exit code."""
    # With -m, Python searches the working directory first, in which a user may have a solver.py.
    if not sys.flags.safe_path and Path(sys.path[0]) != Path(__file__).parents[1]:
        del sys.path[0]
    from cli import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())
