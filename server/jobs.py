"""Jobs: their queue, their processes, and what is kept of them."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
import signal
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel

from devices.documents.readable import size
from devices.errors import ExitCode
from devices.program import module_process
from server.form import SCHEDULE, JobForm
from server.limits import AROUND_S, Limits
from solver.files.solved import graph_path
from solver.problem.schedule import Status

State: TypeAlias = Literal["waiting", "running", "done", "failed"]

_ID_BYTES = 24
"""Random bytes of a job's name, which nobody can guess: 192 bits."""
_LONGEST_LINE = 4 << 20
_MOST_SAID = 200
_CLEANING_S = 1.0
_POLL_S = 0.5
_REQUEST = "job.json"


class Progress(BaseModel):
    """State of a search: seconds since it began, what it does, energy of the best schedule, bound.

    In joules, except in phases that search for the smallest budget, whose unit is bytes or seconds.
    """

    seconds: float
    phase: str
    value: float | None = None
    bound: float | None = None


class JobState(BaseModel):
    """State of a job.

    Attributes:
        state: ``failed`` means that there is no answer; an answer may be that nothing fits.
        said: Remarks, such as which costs were predicted.
        progress: The last state of the search.
        status: Status of the schedule, as in its file.
        energy_source: Where the joules of progress and answer come from; absent before the costs
            are read, and if they do not state it.
        answer: The answer in words: lines, and tables as lists of rows.
        pictures: Names of the pictures that have been drawn by now.
        error: Why the job failed, in one sentence.
        exit_code: What the command ``solve`` would exit with; absent until the job has ended.
        kept_s: Seconds for which the job is kept after it has ended.
    """

    state: State
    said: list[str] = []
    progress: Progress | None = None
    status: Status | None = None
    energy_source: str | None = None
    answer: list[str | list[list[str]]] | None = None
    pictures: list[str] = []
    error: str | None = None
    exit_code: int | None = None
    kept_s: float


class Full(Exception):
    """As many jobs wait as may."""


_EXIT_CODES: dict[str, ExitCode] = {
    "infeasible": ExitCode.INFEASIBLE,
    "exhausted": ExitCode.EXHAUSTED,
    "no_solution": ExitCode.NO_SOLUTION,
}


@dataclass(eq=False)
class Job:
    """One job. ``changed`` is set, and replaced, whenever its state changes."""

    id: str
    directory: Path
    seen: JobState
    most_s: float
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    process: asyncio.subprocess.Process | None = None
    has_begun: bool = False
    is_removed: bool = False
    asked_to_stop: bool = False
    ended_at: float | None = None

    @property
    def has_ended(self) -> bool:
        """Whether nothing more will happen."""
        return self.ended_at is not None or self.is_removed

    def change(self, **values: Any) -> None:
        """Change the state, and wake those who watch."""
        self.seen = self.seen.model_copy(update=values)
        self.wake()

    def wake(self) -> None:
        """Wake those who watch."""
        self.changed.set()
        self.changed = asyncio.Event()

    def file(self, name: str) -> Path | None:
        """A file of the answer; None if there is no such file yet."""
        answers = {SCHEDULE, graph_path(Path(SCHEDULE)).name} if self.seen.answer else set()
        if name not in answers | set(self.seen.pictures):
            return None
        return self.directory / name

    def stop(self) -> None:
        """Ask the search to end with the best schedule that it has found so far."""
        self.asked_to_stop = True
        if self.process is not None and self.has_begun:
            with suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGINT)

    def kill(self) -> None:
        """End the process of the job at once; its own children end with it."""
        if self.process is not None and self.process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)


class Jobs:
    """All jobs of a server. Used in one event loop."""

    def __init__(self, directory: Path, results: Path, limits: Limits) -> None:
        self._directory = directory
        self._results = results.absolute()
        self._limits = limits
        self._jobs: dict[str, Job] = {}
        self._waiting: deque[Job] = deque()
        self._running: dict[Job, asyncio.Task[None]] = {}
        self._arriving = 0

    def find(self, name: str) -> Job | None:
        """The job of that name; None if there is none, or it was removed."""
        return self._jobs.get(name)

    @contextmanager
    def place(self) -> Iterator[Path]:
        """Hold a place in the queue while a request arrives, with a directory for its files.

        The directory is removed on leaving, unless a job was submitted with it.

        Raises:
            Full: There is none.
        """
        # A job that can run at once takes no place of those that wait.
        ahead = self._arriving + len(self._waiting) + len(self._running)
        if ahead >= self._limits.waiting + self._limits.running:
            raise Full
        self._arriving += 1
        directory = self._directory / secrets.token_urlsafe(_ID_BYTES)
        try:
            directory.mkdir(mode=0o700)
            yield directory
        finally:
            self._arriving -= 1
            if directory.name not in self._jobs:
                shutil.rmtree(directory, ignore_errors=True)

    def submit(self, form: JobForm, directory: Path) -> Job:
        """Queue the job whose files lie in a directory that :meth:`place` gave."""
        (directory / _REQUEST).write_text(form.model_dump_json(), encoding="utf-8")
        most_s = min(self._limits.solve_s, form.time_limit or self._limits.solve_s)
        state = JobState(state="waiting", kept_s=self._limits.keep_s)
        job = Job(directory.name, directory, state, most_s)
        self._jobs[job.id] = job
        self._waiting.append(job)
        self._begin()
        return job

    def stop(self, job: Job) -> None:
        """End the search of a job with what it has found; a job that waits fails."""
        if job in self._waiting:
            self._waiting.remove(job)
            self._end(job, "stopped before it began", ExitCode.INTERRUPTED)
        elif not job.has_ended:
            job.stop()

    def remove(self, job: Job) -> None:
        """End a job, whatever it does, and forget it with all its files."""
        self._jobs.pop(job.id, None)
        if job in self._waiting:
            self._waiting.remove(job)
        job.is_removed = True
        job.kill()
        job.wake()
        if job not in self._running:
            shutil.rmtree(job.directory, ignore_errors=True)

    async def clean(self) -> None:
        """Forget jobs that ended long ago, over and over."""
        while True:
            await asyncio.sleep(_CLEANING_S)
            ended = [job for job in self._jobs.values() if job.ended_at is not None]
            ended.sort(key=lambda job: job.ended_at or 0.0)
            old = time.monotonic() - self._limits.keep_s
            too_many = len(ended) - self._limits.kept
            for number, job in enumerate(ended):
                if number < too_many or (job.ended_at or 0.0) < old:
                    self.remove(job)

    async def watch(
        self, job: Job, is_closing: Callable[[], bool] = lambda: False
    ) -> AsyncIterator[JobState]:
        """The state of a job, now and after each change, until it has ended or the server ends."""
        while not job.is_removed:
            changed = job.changed
            yield job.seen
            while not changed.is_set():
                if job.has_ended or is_closing():
                    return
                with suppress(TimeoutError):
                    await asyncio.wait_for(changed.wait(), _POLL_S)

    async def close(self) -> None:
        """End all jobs and wait for their processes."""
        for job in list(self._jobs.values()):
            self.remove(job)
        await asyncio.gather(*self._running.values(), return_exceptions=True)

    def kill(self) -> None:
        """End the processes of all jobs at once, without an event loop."""
        for job in self._running:
            job.kill()

    def _begin(self) -> None:
        while self._waiting and len(self._running) < self._limits.running:
            job = self._waiting.popleft()
            self._running[job] = asyncio.create_task(self._run(job))

    async def _run(self, job: Job) -> None:
        """Run the process of a job and follow what it says."""
        try:
            async with asyncio.timeout(job.most_s + AROUND_S):
                await self._follow(job)
        except TimeoutError:
            self._end(
                job,
                f"the job was ended: it took more than {AROUND_S:g} s beside its search",
                ExitCode.NO_SOLUTION,
            )
        finally:
            job.kill()
            if job.process is not None:
                await job.process.wait()
            del self._running[job]
            if job.is_removed:
                shutil.rmtree(job.directory, ignore_errors=True)
            else:
                allowed = size(self._limits.memory_bytes)
                sentence = f"its process ended without an answer; it may use no more than {allowed}"
                self._end(job, f"{sentence} of memory", ExitCode.INTERNAL_ERROR)
                with suppress(OSError):  # such as a directory that was removed
                    _remove_uploads(job)
            self._begin()

    async def _follow(self, job: Job) -> None:
        limits = self._limits
        threads = max(1, (os.cpu_count() or 1) // limits.running)
        command, environment = module_process(
            "server.worker",
            str(self._results),
            str(threads),
            str(job.most_s),
            str(limits.memory_bytes),
        )
        job.process = await asyncio.create_subprocess_exec(
            *command,
            cwd=job.directory,
            env=environment,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
            limit=_LONGEST_LINE,
        )
        if job.is_removed:
            return
        job.change(state="running")
        assert job.process.stdout is not None
        with suppress(ValueError):  # a line that is too long, or not JSON
            async for line in job.process.stdout:
                self._hear(job, json.loads(line))
                if job.is_removed:
                    return

    def _hear(self, job: Job, message: dict[str, Any]) -> None:
        match message:
            case {"begun": True}:
                job.has_begun = True
                if job.asked_to_stop:
                    job.stop()
            case {"said": sentence} if len(job.seen.said) < _MOST_SAID:
                job.change(said=[*job.seen.said, sentence])
            case {"energy_source": source}:
                job.change(energy_source=source)
            case {"progress": progress}:
                job.change(progress=Progress(**progress))
            case {"answer": answer, "status": status}:
                job.change(answer=answer, status=status)
            case {"picture": name}:
                job.change(pictures=[*job.seen.pictures, name])
            case {"error": sentence, "exit_code": code}:
                self._end(job, sentence, ExitCode(code))

    def _end(self, job: Job, sentence: str, code: ExitCode) -> None:
        """Note that a job has ended. Without an answer it has failed, for the reason given."""
        if job.ended_at is not None:
            return
        job.ended_at = time.monotonic()
        if job.seen.answer is not None:
            status = job.seen.status or ""
            job.change(state="done", exit_code=int(_EXIT_CODES.get(status, ExitCode.DONE)))
        else:
            job.change(state="failed", error=sentence, exit_code=int(code))


def _remove_uploads(job: Job) -> None:
    """Remove what only the search needed, so that many answers can be kept."""
    kept = {SCHEDULE, graph_path(Path(SCHEDULE)).name, *job.seen.pictures}
    for path in job.directory.iterdir():
        if path.name not in kept:
            path.unlink(missing_ok=True)
