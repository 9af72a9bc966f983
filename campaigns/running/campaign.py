"""``run_campaign``: profiles, schedules and replays of all cells that are not done.

Boards work side by side, each in a process of its own that lives as long as the campaign: a crash
takes one attempt with it and nothing else, and no cell pays for importing the program. Schedules
are found in a pool of processes or on a Dask cluster. This computer, where it is a board, is
measured while nothing else computes on it.
"""

from __future__ import annotations

import os
import signal
import time
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Future, wait
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from campaigns.design.cells import Cell, Design
from campaigns.design.file import CampaignFile
from campaigns.design.settings import Setting
from campaigns.keeping.directory import (
    CampaignDirectory,
    FilesOfCells,
    count_replays,
    is_solved,
)
from campaigns.keeping.progress import CampaignProgress, ProgressFile
from campaigns.keeping.records import Beginning, Phase, ReplayPlace
from campaigns.running.attempts import Attempts, Shortfall
from campaigns.running.lanes import BoardLane, settings_by_board, uses_of
from campaigns.running.outcome import DIED, Busy, Failed, Interrupted, Outcome, Succeeded, attempted
from campaigns.running.places import release_places
from campaigns.running.profiling import ProfileJob, make_profile
from campaigns.running.remaining import replays_of
from campaigns.running.replaying import ReplayJob, run_replay
from campaigns.running.solving import (
    CostedNetwork,
    Found,
    SolveJob,
    costed_network,
    record_of,
    solve,
)
from campaigns.running.tally import Event, Tally
from devices.documents.document import read_yaml
from devices.errors import ExitCode, JoulewrightError
from devices.profile import DeviceProfile
from devices.program import stops_put_off
from devices.results import Results
from solver.pools import LastingPool, Pool, cluster_pool, lasting_pools

_POLL_S = 1.0
_STOPPING_S = 20.0
_BUSY_PAUSE_S = 5.0
_MOST_COSTED = 8


@dataclass(frozen=True)
class RunResult:
    """What a call did: how many schedules and replays it finished, and what failed for good, in the
    order in which it did."""

    finished: int
    shortfalls: tuple[Shortfall, ...]


@dataclass(frozen=True)
class Workers:
    """Where schedules are found: ``jobs`` processes here, or the Dask cluster of ``scheduler``."""

    jobs: int
    scheduler: str | None = None


def run_campaign(
    directory: CampaignDirectory,
    file: CampaignFile,
    design: Design,
    results: Results,
    workers: Workers,
    on_event: Callable[[Event], None] = lambda _event: None,
) -> RunResult:
    """Do what is left of a campaign.

    Everything that finishes is kept at once. Ctrl-C ends what runs, and the next call goes on.

    Args:
        directory: The campaign's directory, which no other process may use meanwhile.
        file: The campaign.
        design: Its cells, as the directory states them.
        results: Where runs of the profiler and known schedules are.
        workers: Where schedules are found.
        on_event: Called with everything that ends.

    Returns:
        What was done.

    Raises:
        PoolError: The cluster cannot be used.
        DocumentError: A file of the campaign is damaged.
        OSError: A file cannot be written.
    """
    with ExitStack() as stack:
        open_pool = stack.enter_context(lasting_pools())
        solves: LastingPool | Pool = open_pool(workers.jobs)
        if workers.scheduler is not None:
            solves = stack.enter_context(cluster_pool(workers.scheduler))
        return _Run(
            directory=directory,
            file=file,
            design=design,
            results=results,
            solver=solves,
            solves_here=workers.scheduler is None,
            open_pool=open_pool,
            tally=Tally(
                on_event, solves.width if isinstance(solves, Pool) else lambda: workers.jobs
            ),
            attempts=Attempts(directory, file.attempts),
        ).run()


@dataclass(frozen=True)
class _Profiling:
    lane: BoardLane
    job: ProfileJob
    key: Hashable


@dataclass(frozen=True)
class _Replaying:
    lane: BoardLane
    job: ReplayJob
    key: Hashable


@dataclass(frozen=True)
class _Solving:
    job: SolveJob
    key: Hashable


_Task: TypeAlias = _Profiling | _Replaying | _Solving


@dataclass
class _Run:
    directory: CampaignDirectory
    file: CampaignFile
    design: Design
    results: Results
    solver: LastingPool | Pool
    solves_here: bool
    open_pool: Callable[[int], LastingPool]
    tally: Tally
    attempts: Attempts
    lanes: dict[str, BoardLane] = field(default_factory=dict)
    unsolved: deque[Cell] = field(default_factory=deque)
    in_flight: dict[Future[Any], tuple[_Task, Beginning]] = field(default_factory=dict)
    profiles: dict[str, tuple[str | None, DeviceProfile]] = field(default_factory=dict)
    costed: dict[Hashable, CostedNetwork] = field(default_factory=dict)
    files: FilesOfCells = field(default_factory=dict)

    def run(self) -> RunResult:
        self.files = self.directory.files()
        self._find_work()
        progress = ProgressFile(self.directory.path)
        try:
            while True:
                self._begin_tasks()
                if progress.is_due:
                    progress.write(self._progress())
                if not self.in_flight and not self._is_waiting():
                    break
                finished, _ = wait(self.in_flight, timeout=_POLL_S, return_when=FIRST_COMPLETED)
                if not self.in_flight:
                    time.sleep(_POLL_S)
                for future in finished:
                    with stops_put_off():
                        self._finish(future)
            progress.write(self._progress())
        except BaseException:
            self._interrupt()
            raise
        return RunResult(self.tally.finished, tuple(self.attempts.shortfalls))

    # --- what is left ---------------------------------------------------------------------------

    def _find_work(self) -> None:
        by_setting: dict[str, list[Cell]] = {}
        for cell in self.design.cells:
            by_setting.setdefault(self.design.setting_of(cell).name, []).append(cell)
        for board, settings in settings_by_board(self.design.settings).items():
            cells = tuple(cell for each in settings for cell in by_setting.get(each.name, ()))
            left = {setting.name: self._unsolved(by_setting, setting) for setting in settings}
            self.lanes[board] = BoardLane(
                board=board,
                place=settings[0].place,
                uses=uses_of(each.description for each in settings if each.description),
                cells=cells,
                pool=self.open_pool(1),
                profiles=deque(
                    ProfileJob.of(setting, self.design, self.file)
                    for setting in settings
                    if left[setting.name]
                ),
                unsolved={cell.hash for each in left.values() for cell in each},
                replay_count=self.design.repetitions * (len(cells) + 1),
                finished=count_replays([*map(self._files, cells)], self.design.repetitions),
            )
            self.tally.things += self.lanes[board].replay_count
            self.tally.done += self.lanes[board].finished
        for setting in self.design.settings:
            if setting.profile is not None:
                self.profiles[setting.name] = None, setting.profile
                self.unsolved.extend(self._unsolved(by_setting, setting))
        cells = self.design.cells
        self.tally.count_cells(cells, (cell for cell in cells if is_solved(self._files(cell))))

    def _unsolved(self, by_setting: dict[str, list[Cell]], setting: Setting) -> list[Cell]:
        cells = by_setting.get(setting.name, ())
        return [cell for cell in cells if not is_solved(self._files(cell))]

    def _files(self, cell: Cell) -> frozenset[str]:
        return self.files.get(cell.hash, frozenset())

    def _plan_replays(self) -> None:
        for lane in self.lanes.values():
            if lane.replays is not None or not lane.is_solved:
                continue
            repetitions, seed = self.design.repetitions, self.file.seed
            replays = replays_of(self.directory, lane.cells, repetitions, seed, self.files)
            finished = replays.count - len(replays.missing)
            self.tally.done += finished - lane.finished
            self.tally.things += replays.count - lane.replay_count
            lane.replay_count, lane.finished = replays.count, finished
            lane.replays = deque(self._replay_job(cell, place) for cell, place in replays.missing)

    def _replay_job(self, cell: Cell, place: ReplayPlace) -> ReplayJob:
        setting = self.design.setting_of(cell)
        assert setting.description is not None, "replays are planned for boards only"
        network, steps = self.design.network_by_name[cell.network], self.design.steps
        return ReplayJob(cell, place, setting.description, network, steps, setting.place)

    def _is_waiting(self) -> bool:
        """Whether a board will begin something after a pause."""
        return any(lane.has_work for lane in self.lanes.values())

    # --- begin ----------------------------------------------------------------------------------

    def _begin_tasks(self) -> None:
        while self.unsolved and self._can_solve():
            self._begin_solve(self.unsolved.popleft())
        self._plan_replays()  # a board's last searches may have failed before they began
        for lane in self.lanes.values():
            if lane.has_work and lane.is_idle and self._can_use(lane):
                self._begin_on_board(lane)

    def _can_solve(self) -> bool:
        solving = sum(isinstance(task, _Solving) for task, _ in self.in_flight.values())
        return solving < max(1, self.tally.width()) and not (
            self.solves_here and self._measures_here()
        )

    def _can_use(self, lane: BoardLane) -> bool:
        if lane.uses == "not":
            return True
        if lane.uses == "beside":
            return not self._measures_here()
        return not any(self._computes_here(task) for task, _ in self.in_flight.values())

    def _measures_here(self) -> bool:
        return any(lane.uses == "alone" and lane.activity for lane in self.lanes.values())

    def _computes_here(self, task: _Task) -> bool:
        if isinstance(task, _Solving):
            return self.solves_here
        return task.lane.uses != "not"

    def _begin_solve(self, cell: Cell) -> None:
        began = Beginning()
        try:
            job = SolveJob.of(cell, self.design, self._costed(cell))
        except JoulewrightError as error:
            self._fail_solve(cell, Failed(str(error), error.exit_code, may_pass=False), began)
            return
        self._submit(self.solver, _Solving(job, ("solve", cell.hash)), solve, job.search)

    def _costed(self, cell: Cell) -> CostedNetwork:
        """The graph of a cell's network on its board; the last few are kept."""
        setting = self.design.setting_of(cell)
        method = self.design.method_by_name[cell.method]
        key = setting.name, cell.network, cell.batch, method.slices, method.codecs == "all"
        if key not in self.costed:
            if len(self.costed) >= _MOST_COSTED:
                self.costed.clear()
            file, profile = self.profiles[setting.name]
            level, covers = self.design.network_by_name[cell.network], self.design.budget_covers
            self.costed[key] = costed_network(
                level, cell.batch, profile, file, covers, method, self.results.schedules
            )
        return self.costed[key]

    def _begin_on_board(self, lane: BoardLane) -> None:
        lane.pid = lane.pool.submit(os.getpid)
        if lane.profiles:
            job = lane.profiles.popleft()
            lane.begin(f"profiling {job.setting.name}")
            profiling = _Profiling(lane, job, ("profile", job.setting.name))
            self._submit(lane.pool, profiling, make_profile, job, self.directory, self.results)
            return
        assert lane.replays, "it has work"
        replay = lane.replays.popleft()
        lane.begin(f"{replay.place.stem} of {replay.cell}")
        key = ("run", replay.cell.hash, replay.place.stem)
        task, attempt = _Replaying(lane, replay, key), self.attempts.number(key)
        self._submit(lane.pool, task, run_replay, replay, self.directory, attempt)

    def _submit(
        self,
        pool: LastingPool | Pool,
        task: _Task,
        function: Callable[..., Any],
        *arguments: object,
    ) -> None:
        self.in_flight[pool.submit(attempted, function, *arguments)] = task, Beginning()

    # --- finish ---------------------------------------------------------------------------------

    def _finish(self, future: Future[Any]) -> None:
        task, began = self.in_flight.pop(future)
        outcome = _outcome(future)
        if isinstance(outcome, Busy) and not isinstance(task, _Solving):
            self._wait_for_board(task, outcome)
            return
        if isinstance(outcome, Busy | Interrupted):
            outcome = Failed("its process was asked to end", ExitCode.INTERRUPTED, may_pass=True)
        match task:
            case _Profiling(lane, job, _):
                lane.end()
                if isinstance(outcome, Succeeded):
                    self._keep_profile(job, outcome.value)
                else:
                    self._fail_profile(task, outcome, began)
                self._release_if_done(lane)
            case _Replaying(lane, replay, _):
                lane.end(outcome.value if isinstance(outcome, Succeeded) else None)
                if isinstance(outcome, Succeeded):
                    lane.finished += 1
                    self.tally.finish_replay(f"{replay.place.stem} of {replay.cell}")
                else:
                    self._fail_replay(task, outcome, began)
                self._release_if_done(lane)
            case _Solving(solving, _):
                if isinstance(outcome, Succeeded):
                    self._keep_schedule(solving, outcome.value)
                else:
                    self._fail_solve(solving.cell, outcome, began)

    def _release_if_done(self, lane: BoardLane) -> None:
        """Release the place of a board that has no work."""
        if not lane.has_work and lane.place is not None:
            with suppress(BrokenExecutor):  # its end releases them, too
                lane.pool.submit(release_places)

    def _wait_for_board(self, task: _Profiling | _Replaying, busy: Busy) -> None:
        lane = task.lane
        lane.end()
        lane.wait_for_board(busy.reason, _BUSY_PAUSE_S)
        if isinstance(task, _Profiling):
            lane.profiles.appendleft(task.job)
        else:
            assert lane.replays is not None, "the replay was taken from them"
            lane.replays.appendleft(task.job)

    def _keep_profile(self, job: ProfileJob, file: str) -> None:
        self.directory.mend_profile(job.setting.name)
        self.profiles[job.setting.name] = (
            file,
            read_yaml(self.directory.path / file, DeviceProfile),
        )
        lane = self.lanes[job.setting.board]
        self.unsolved.extend(
            cell
            for cell in lane.cells
            if cell.hash in lane.unsolved and self.design.setting_of(cell) is job.setting
        )
        self.tally.note(f"profile of {job.setting.name}")

    def _keep_schedule(self, job: SolveJob, found: Found) -> None:
        record = record_of(job, found)
        self.directory.keep_solved(job.graph(found), found.schedule, record)
        self._end_solve(job.cell)
        self.tally.finish_solve(job.cell, found.circumstances.seconds, record.status)

    def _end_solve(self, cell: Cell) -> None:
        if cell.board in self.lanes:
            self.lanes[cell.board].unsolved.discard(cell.hash)

    def _fail_profile(self, task: _Profiling, failed: Failed, began: Beginning) -> None:
        lane, setting = task.lane, task.job.setting
        if self._fails(task.key, setting.name, "profile", failed, began):
            lane.profiles.appendleft(task.job)
            lane.pause(self.attempts.pause_s(task.key))
            return
        lost = {cell.hash for cell in lane.cells if self.design.setting_of(cell) is setting}
        lane.unsolved -= lost
        lane.failed += 1
        self._give_up_if_unreachable(lane, failed)

    def _fail_replay(self, task: _Replaying, failed: Failed, began: Beginning) -> None:
        lane, job = task.lane, task.job
        if self._fails(task.key, job.cell, "run", failed, began, job.place):
            lane.try_later(job)
            lane.pause(self.attempts.pause_s(task.key))
            return
        lane.failed += 1
        if not failed.may_pass:
            lane.leave_out(job.cell)
        self._give_up_if_unreachable(lane, failed)

    def _fail_solve(self, cell: Cell, failed: Failed, began: Beginning) -> None:
        if self._fails(("solve", cell.hash), cell, "solve", failed, began):
            self.unsolved.append(cell)
            return
        self._end_solve(cell)
        if cell.board in self.lanes:
            self.lanes[cell.board].failed += 1

    def _fails(
        self,
        key: Hashable,
        of: Cell | str,
        phase: Phase,
        failed: Failed,
        began: Beginning,
        place: ReplayPlace | None = None,
    ) -> bool:
        """Keep and tell a failed attempt. Returns whether there is another one."""
        again = self.attempts.fail(key, of, phase, failed, began, place)
        what = f"{phase} of {of} failed{', and is tried again' if again else ''}"
        self.tally.note(f"{what}: {failed.reason}")
        return again

    def _give_up_if_unreachable(self, lane: BoardLane, failed: Failed) -> None:
        """Leave a board alone that was not reached: its other cells would fail in the same way."""
        if failed.exit_code == ExitCode.BOARD_UNREACHABLE:
            lane.give_up(failed.reason)

    # --- the end --------------------------------------------------------------------------------

    def _interrupt(self) -> None:
        """Ask the boards' processes to end what they do, and wait a while for them.

        Schedules that were found while this process did something else are kept.
        """
        on_boards = [
            future for future, (task, _) in self.in_flight.items() if not isinstance(task, _Solving)
        ]
        for lane in self.lanes.values():
            if lane.activity is not None and lane.pid is not None and lane.pid.done():
                with suppress(ProcessLookupError, BrokenExecutor, CancelledError):
                    os.kill(lane.pid.result(), signal.SIGTERM)
        with suppress(KeyboardInterrupt):
            wait(on_boards, timeout=_STOPPING_S)
        for future, (task, _) in self.in_flight.items():
            if isinstance(task, _Solving) and future.done():
                outcome = _outcome(future)
                if isinstance(outcome, Succeeded):
                    with stops_put_off():
                        self._keep_schedule(task.job, outcome.value)

    def _progress(self) -> CampaignProgress:
        solving = [
            task.job.cell for task, _ in self.in_flight.values() if isinstance(task, _Solving)
        ]
        return self.tally.progress(self.lanes, solving)


def _outcome(future: Future[Any]) -> Outcome[Any]:
    try:
        outcome: Outcome[Any] = future.result()
    except (BrokenExecutor, CancelledError):
        return DIED
    except Exception as error:  # such as what a cluster raises, or a result that cannot be sent
        return Failed(f"{type(error).__name__}: {error}", ExitCode.INTERNAL_ERROR, may_pass=True)
    return outcome
