"""The process of CP-SAT on the retention model: ``python -m solver.retention.worker FD``.

:mod:`solver.engines.worker` explains why engines run in separate processes.
"""

from __future__ import annotations

import sys
from importlib.metadata import version

from solver.engines.messages import Ready
from solver.engines.parent import Parent
from solver.retention.messages import Task
from solver.retention.search import search


def main() -> None:
    """Solve the tasks that the parent sends, until it is gone."""
    parent: Parent[Task] = Parent(int(sys.argv[1]))
    parent.send(Ready(f"OR-tools CP-SAT {version('ortools')}"))
    while True:
        task = parent.receive()
        parent.send(search(task, parent.send))


if __name__ == "__main__":
    main()
