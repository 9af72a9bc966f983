"""Process of one job, ``python -m server.worker RESULTS THREADS SECONDS BYTES``.

It runs in the job's directory, in which ``job.json`` holds the request. What it has to say are
lines of JSON on standard output, which :mod:`server.jobs` reads. It exits when its standard input
ends, which is when the server is gone. SIGINT ends the search with the best schedule found so far.

A process of its own, because a search cannot be ended safely in a thread, and because the limit on
memory is one of a process: a file that takes too much ends this job and no other.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from devices.documents.readable import file_failure, size
from devices.errors import Defect, ExitCode, InputError, JoulewrightError
from server.form import GRAPH, PROFILE, SCHEDULE, JobForm

if TYPE_CHECKING:
    from solver.requests.subjects import SolveSubject
    from solver.search.search import Progress

_EVERY_S = 0.25

_stopped = threading.Event()


class Channel:
    """Lines of JSON to the server. What others print on standard output is dropped."""

    def __init__(self) -> None:
        self._lines: IO[str] = os.fdopen(os.dup(1), "w", encoding="utf-8")
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.close(nowhere)
        self._next_at, self._phase = 0.0, ""

    def send(self, **message: Any) -> None:
        """Send one message."""
        with suppress(BrokenPipeError):  # the server is gone, and so is this process soon
            self._lines.write(json.dumps(message) + "\n")
            self._lines.flush()

    def say(self, sentence: str) -> None:
        """Send a remark."""
        self.send(said=sentence)

    def progress(self, progress: Progress) -> None:
        """Send the state of the search: each new phase, and otherwise not too often."""
        if time.monotonic() < self._next_at and progress.phase == self._phase:
            return
        self._next_at, self._phase = time.monotonic() + _EVERY_S, progress.phase
        self.send(
            progress={
                "seconds": progress.seconds,
                "phase": progress.phase,
                "value": progress.value,
                "bound": progress.bound,
            }
        )

    def fail(self, sentence: str, code: ExitCode) -> None:
        """Send why there is no answer."""
        self.send(error=sentence, exit_code=int(code))


def main() -> int:
    """Do the job, and return 0 if it has an answer."""
    results, threads, seconds, size_bytes = sys.argv[1:]
    channel = Channel()
    threading.Thread(target=_exit_with_server, daemon=True).start()
    signal.signal(signal.SIGINT, _stop)
    limit_bytes = int(size_bytes)
    resource.setrlimit(resource.RLIMIT_DATA, (limit_bytes, limit_bytes))
    channel.send(begun=True)
    try:
        form = JobForm.model_validate_json(Path("job.json").read_bytes())
        _solve(form, Path(results), int(threads), float(seconds), channel)
    except KeyboardInterrupt:
        channel.fail("stopped before a schedule was found", ExitCode.INTERRUPTED)
    except MemoryError:
        allowed = size(limit_bytes)
        channel.fail(f"the job needs more than {allowed} of memory", ExitCode.NO_SOLUTION)
    except Defect:
        raise
    except JoulewrightError as error:
        channel.fail(str(error), error.exit_code)
    except OSError as error:
        channel.fail(file_failure(error), ExitCode.USAGE)
    else:
        return 0
    return 1


def _exit_with_server() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


def _stop(_number: int, _frame: object) -> None:
    if not _stopped.is_set():
        _stopped.set()
        raise KeyboardInterrupt


def _solve(form: JobForm, results: Path, threads: int, most_s: float, channel: Channel) -> None:
    from devices.results import Results
    from replay.board_ram import BoardRam
    from solver.constructed import keep_everything
    from solver.files.solved import write_solved
    from solver.options import SolverOptions
    from solver.referee.referee import replay
    from solver.requests.choice import cheapest
    from solver.requests.codecs import with_offered_codecs
    from solver.requests.slicing import with_slices
    from solver.requests.subjects import SHARE_FOR_WAYS, read_budget, read_subjects
    from solver.requests.summary import summary
    from solver.time_limit import TimeLimit

    limit = TimeLimit.after(min(most_s, form.time_limit or most_s))
    source = form.source
    if source is not None and source.model is None and form.has_profile:
        _require_built_in(Path(PROFILE))
    preparing = limit.part(SHARE_FOR_WAYS)
    subjects = read_subjects(source or Path(GRAPH), Results(results), False, channel.say, preparing)
    graph = subjects[0].graph
    channel.send(energy_source=graph.energy_source)
    kept = replay(graph, keep_everything(graph), form.budget_covers)
    budget = read_budget(form.budget, subjects[0].profile, kept, channel.say)
    if source is not None and source.codecs == "auto":
        subjects = with_offered_codecs(subjects, budget, channel.say, preparing)
    if source is not None and source.slices == "auto":
        subjects = with_slices(subjects, budget, channel.say, preparing)
    options = SolverOptions(
        order=form.order, gap=form.gap, threads=threads, time_limit_s=limit.seconds
    )
    subject, schedule, _ = cheapest(
        subjects,
        budget,
        options,
        channel.progress,
        ram_of=BoardRam.of,
        certified=form.certify,
        stopped=_stopped.is_set,
    )
    if subject.graph is not graph:
        kept = replay(subject.graph, keep_everything(subject.graph), form.budget_covers)
    write_solved(Path(SCHEDULE), subject.graph, schedule)
    channel.send(answer=list(summary(schedule, kept, subject.graph)), status=schedule.status)
    if schedule.actions:
        _draw(subject, channel)


def _require_built_in(path: Path) -> None:
    """Refuse the file of a network that an uploaded profile names: it would be one of the server.

    Raises:
        InputError: The first network of the profile is a file.
        DocumentError: The profile cannot be used.
    """
    from devices.library import resolve_profile
    from networks.models import model_names

    profile = resolve_profile(str(path))
    if profile.networks and profile.networks[0].model not in model_names():
        raise InputError(
            f"{path}: the network of the profile is a file, {profile.networks[0].model};"
            " upload it as network_file, or name a built-in network"
        )


def _draw(subject: SolveSubject, channel: Channel) -> None:
    from plots.pictures import draw_profile, draw_schedule
    from solver.files.solved import read_solved

    graph, schedule = read_solved(Path(SCHEDULE))
    for path in draw_schedule(graph, schedule, Path(), "schedule"):
        channel.send(picture=path.name)
    if subject.profile is not None:
        for path in draw_profile(subject.profile, Path()):
            channel.send(picture=path.name)


if __name__ == "__main__":
    sys.exit(main())
