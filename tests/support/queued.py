"""Count the time in which work was ready to run while other programs had the processors."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PERIOD_S = 0.02


class Queued:
    """Time in which work that this thread does, or waits for, was kept from the processors.

    It is the time in which this thread was ready without a processor (Linux: sched-stats.rst),
    and of the time in which it slept as much as that of the helper that was ready for longest. The
    thread may have waited for this helper: another thread of this process, or a descendant.
    """

    def __init__(self) -> None:
        self._own = _this_thread()
        self._before_s = _ready_s()
        self._ready_s = dict(self._before_s)
        self._began_s, self._worked_s = time.monotonic(), time.thread_time()
        self._asleep_s = 0.0

    def look(self) -> None:
        """Note what was counted by now: a task that has ended is not counted any more."""
        self._ready_s |= _ready_s()

    def end(self, sampler: Path) -> None:
        """Note how long this thread slept. The thread ``sampler`` is no helper."""
        self.look()
        self._ready_s.pop(sampler, None)
        awake_s = time.thread_time() - self._worked_s + self._waited_s(self._own)
        self._asleep_s = max(0.0, time.monotonic() - self._began_s - awake_s)

    @property
    def seconds(self) -> float:
        """The time, after the end of the work."""
        helpers = self._ready_s.keys() - {self._own}
        longest_s = max((self._waited_s(task) for task in helpers), default=0.0)
        return self._waited_s(self._own) + min(self._asleep_s, longest_s)

    def _waited_s(self, task: Path) -> float:
        return self._ready_s[task] - self._before_s.get(task, 0.0)


@contextmanager
def counting_queued() -> Iterator[Queued]:
    """Count while the context is open, also of helpers that end meanwhile."""
    queued = Queued()
    ended = threading.Event()
    sampling: list[Path] = []

    def sample() -> None:
        sampling.append(_this_thread())
        while not ended.wait(_PERIOD_S):
            queued.look()

    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        yield queued
    finally:
        ended.set()
        sampler.join()
        queued.end(sampling[0])


def _this_thread() -> Path:
    return Path("/proc/thread-self").resolve()


def _ready_s() -> dict[Path, float]:
    """Seconds that each thread of this process and of its descendants was ready without a
    processor, by its directory."""
    found = {}
    processes = [os.getpid()]
    while processes:
        threads = Path(f"/proc/{processes.pop()}/task")
        with suppress(OSError):  # it has ended
            for thread in list(threads.iterdir()):
                with suppress(OSError):
                    found[thread] = int((thread / "schedstat").read_text().split()[1]) * 1e-9
                    processes += map(int, (thread / "children").read_text().split())
    return found
