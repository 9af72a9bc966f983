"""Short searches for the schedules in which a profile watches a step.

Most tests need any schedule that the board can run, and not a good one. A command in a process of
its own has short searches as ``python -m tests.support.short_searches profile ...``.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from unittest.mock import patch

import cli


def with_short_searches() -> AbstractContextManager[object]:
    """Short searches in this process, until the context ends.

    They end with the first schedules they find, and have time for these on a busy computer.
    """
    return patch.multiple("replay.costs.ways", _GAP=0.9, _GAP_OF_PAGING=0.9, _SOLVE_S=3.0)


if __name__ == "__main__":
    with with_short_searches():
        sys.exit(cli.main())
