"""Count the time in which work was ready to run while other programs had the processors.

Run as a program, it watches the process whose number it is given until its standard input ends, and
prints for each thread of that process and of its descendants how long it was ready meanwhile.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

_PERIOD_S = 0.02


@dataclass
class Queued:
    """Time in which work that a thread does, or waits for, was kept from the processors.

    ``seconds`` is this time, out of ``taken_s``, the time for which the context was open: what the
    watcher takes to start and end does not count.

    It is the time in which this thread was ready without a processor (Linux: sched-stats.rst),
    and of the time in which it slept as much as that of the helper that was ready for longest. The
    thread may have waited for this helper: another thread of its process, or a descendant.
    """

    seconds: float = 0.0
    taken_s: float = 0.0


@contextmanager
def counting_queued() -> Iterator[Queued]:
    """Count for this thread while the context is open; the result is there after its end.

    Helpers that end meanwhile count. Another process watches: a thread would take turns with this
    one at the interpreter's lock, and on a busy computer each turn may wait for a processor.
    """
    queued = Queued()
    command = [sys.executable, __file__, str(os.getpid())]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as watcher:
        assert watcher.stdin is not None
        assert watcher.stdout is not None
        watcher.stdout.readline()
        began_s, worked_s = time.monotonic(), time.thread_time()
        try:
            yield queued
        finally:
            taken_s, worked_s = time.monotonic() - began_s, time.thread_time() - worked_s
            watcher.stdin.close()
            ready_s: dict[str, float] = json.loads(watcher.stdout.read())
            own_s = ready_s.pop(f"/proc/{os.getpid()}/task/{threading.get_native_id()}")
            asleep_s = max(0.0, taken_s - worked_s - own_s)
            queued.seconds = own_s + min(asleep_s, max(ready_s.values(), default=0.0))
            queued.taken_s = taken_s


def _watch(process: int) -> None:
    before_s = _ready_s(process)
    ready_s = dict(before_s)
    print(flush=True)
    while not select.select([sys.stdin], [], [], _PERIOD_S)[0]:
        ready_s |= _ready_s(process)  # a thread that has ended is not among them any more
    ready_s |= _ready_s(process)
    print(json.dumps({task: s - before_s.get(task, 0.0) for task, s in ready_s.items()}))


def _ready_s(process: int) -> dict[str, float]:
    """Seconds that each thread of a process and of its descendants was ready without a processor.

    This process is no descendant.
    """
    found = {}
    processes = [process]
    while processes:
        each = processes.pop()
        with suppress(OSError):  # it has ended
            for thread in list(Path(f"/proc/{each}/task").iterdir()):
                with suppress(OSError):
                    found[str(thread)] = int(_numbers(thread / "schedstat")[1]) * 1e-9
                    processes += map(int, _numbers(thread / "children"))
        processes = [each for each in processes if each != os.getpid()]
    return found


def _numbers(path: Path) -> list[str]:
    return path.read_text(encoding="ascii").split()


if __name__ == "__main__":
    _watch(int(sys.argv[1]))
