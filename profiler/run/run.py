"""Profile a board: build, measure block by block, keep every trial, assemble the profile."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from devices.claims.claim import sole_user
from devices.description import DeviceDescription
from devices.errors import BoardCommandFailed, MeasurementInvalid
from devices.operation import OpSpec
from devices.plan import ExecutionPlan
from devices.profile import BoardIdentity, Build, DeviceProfile, EnergySource, ProfiledNetwork
from profiler.boards.base import Board, Outcome, RebootError
from profiler.boards.observed_run import ObservedRun, cool_down, sync_line
from profiler.meters.base import Meter
from profiler.meters.nominal import is_instrument
from profiler.opening.boards import alone_with, open_board
from profiler.opening.meters import described_meter
from profiler.run.assembly import RunResult, assemble
from profiler.run.evaluate import evaluate
from profiler.run.options import ProfileOptions
from profiler.run.preview import (
    block_content,
    guess_s,
    idle_s,
    options_with,
    tail_s,
    window_s,
)
from profiler.run.table import TrialTable
from profiler.run.trials import (
    HarnessRun,
    HarnessRunHeader,
    RunDirectory,
    RunMetadata,
    next_run_directory,
)
from profiler.script.records import Results, parse_results
from profiler.script.transfers import TransferWindow, Wear
from profiler.script.windows import BlockContent, Window
from profiler.script.writer import (
    Memory,
    PlanFile,
    Settings,
    fits,
    step_bytes,
    write_plan,
)

_HARNESS_RUNS_PER_BLOCK = 3
_MOST_REBOOTS = 2
_MARGIN = 1.1


@dataclass(frozen=True)
class ProgressEvent:
    """Progress of a profiling run. ``fraction`` of the measuring is done; ``left_s`` is the
    estimated remaining time, None before measuring begins."""

    activity: str
    fraction: float
    left_s: float | None


OnProgress = Callable[[ProgressEvent], None]

RequireBoard = Callable[[BoardIdentity, Build, EnergySource | None], None]
"""Called with the prepared board, its build and its meter's energy source, None without a meter.
Raises if they are not to be measured."""


def choose_run_directory(
    places: Sequence[Path],
    description: DeviceDescription,
    specs: Sequence[OpSpec],
    step: ExecutionPlan | None,
    options: ProfileOptions,
    about: str = "",
) -> Path:
    """Choose the directory in which :func:`profile_device` measures.

    Args:
        places: Directories that hold runs; a new one is made in the first.
        description: The board, as for :func:`profile_device`.
        specs: Operations to measure.
        step: Whole training step to measure; None for none.
        options: How to measure.
        about: What else the run is for.

    Returns:
        The directory of the interrupted run with the same arguments, or a new one.
    """
    content = block_content(description, specs, step, options)
    question = [
        description.model_dump_json(),
        *(spec.key for spec in content.specs),
        "" if step is None else step.name,
        f"{bool(content.transfers)} {options.min_window_s} {options.seed}",
        *([about] if about else []),
    ]
    return next_run_directory(places, description.name, "\n".join(question))


def profile_device(
    description: DeviceDescription,
    specs: Sequence[OpSpec],
    step: ExecutionPlan | None,
    options: ProfileOptions,
    run_directory: Path,
    on_progress: OnProgress = lambda _event: None,
    networks: Sequence[ProfiledNetwork] = (),
    blocks: range | None = None,
    require_board: RequireBoard = lambda _board, _build, _energy_source: None,
) -> DeviceProfile:
    """Measure what the operations of a training step cost on a board, and what its storage costs.

    Every finished trial is written to ``run_directory``. After an interruption, a call with the
    same arguments continues where the last one stopped.

    Args:
        description: The board.
        specs: Operations to measure, in addition to those of ``step``.
        step: Training step that is also measured as a whole; None for none.
        options: How to measure.
        run_directory: Directory of the raw trials, new or from an interrupted run.
        on_progress: Called with every progress event.
        networks: Networks that the operations come from, as recorded in the profile.
        blocks: Blocks to measure in this call; None for all. The profile is made from these and the
            earlier ones. It is kept in ``run_directory`` if no later ones are left to another call.
        require_board: Called before anything is measured or written; its exceptions are passed on.

    Returns:
        Time and energy of every distinct operation, and of paging to and from storage if that was
            measured.

    Raises:
        TooFewTrials: Too few trials of an operation are valid.
        JoulewrightError: The board is unreachable, its build fails, another process uses
            ``run_directory``, or the trials in it were measured under other circumstances.
        DocumentError: A file of trials is damaged.
    """
    with sole_user(run_directory):
        return _profile(
            description,
            specs,
            step,
            options,
            RunDirectory(run_directory),
            on_progress,
            networks,
            blocks or range(options.blocks),
            require_board,
        )


def _profile(
    description: DeviceDescription,
    specs: Sequence[OpSpec],
    step: ExecutionPlan | None,
    options: ProfileOptions,
    directory: RunDirectory,
    on_progress: OnProgress,
    networks: Sequence[ProfiledNetwork],
    blocks: range,
    require_board: RequireBoard,
) -> DeviceProfile:
    def building(what: str) -> None:
        on_progress(ProgressEvent(what, 0.0, None))

    begun = directory.metadata()
    decided = description.with_matmul(None if begun is None else begun.build.matmul)
    with (
        alone_with(description),
        described_meter(description) as meter_for,
        open_board(decided, options.poll_interval_s, building) as board,
    ):
        board.prepare(building)
        meter = meter_for(board)
        require_board(
            board.facts.identity, board.build, None if meter is None else meter.energy_source
        )
        content = block_content(
            description, specs, step, options, arena_bytes=board.facts.available_bytes
        )
        memory = Memory(
            arena_limit_bytes=board.facts.available_bytes,
            last_level_cache_bytes=board.facts.last_level_cache_bytes,
            workspace_bytes=board.workspace_bytes(_operations(content, step)),
        )
        if step is not None and step_bytes(step, memory) > memory.arena_limit_bytes:
            # Common on small boards. The profile notes that additivity was not checked.
            content = replace(content, step_windows=0)
        if options.leave_out:
            chosen = tuple(spec for spec in content.specs if fits(spec, memory))
            if begun is not None:  # the board may have had more memory then, or less
                chosen = tuple(spec for spec in content.specs if spec.key in begun.operations)
            content = replace(content, specs=chosen)
        storage_place = board.storage_place if content.transfers else None
        metadata = directory.claim(
            RunMetadata(
                description=description.model_dump(mode="json", by_alias=True, exclude_none=True),
                board=board.facts.identity.lasting,
                build=board.build,
                operations=tuple(spec.key for spec in content.specs),
                step=None if step is None else step.name,
                storage=bool(content.transfers),
                transfers="as replays" if content.transfers else None,
                min_window_s=options.min_window_s,
                seed=options.seed,
                matmul_comparison=board.facts.matmul_comparison,
            )
        )
        table = TrialTable.of(directory.harness_runs())
        record = None if meter is None else meter.record
        run = _Run(
            description=description,
            options=options_with(record, description, options),
            step=step,
            memory=memory,
            content=content,
            storage_place=storage_place,
            board=board,
            meter=meter,
            meter_for=meter_for,
            directory=directory,
            table=table,
            on_progress=on_progress,
            blocks=[content.ordered(options.seed, block) for block in range(options.blocks)],
        )
        run.measure(blocks)
        source = None if run.meter is None else run.meter.energy_source
        record = None if run.meter is None else run.meter.record
    profile = assemble(
        RunResult(
            description=description,
            facts=board.facts,
            build=board.build,
            matmul_comparison=metadata.matmul_comparison,
            content=content,
            step=step,
            memory=memory,
            table=table,
            blocks=blocks.stop,
            energy_source=source,
            meter=record,
            storage_place=storage_place,
            networks=tuple(networks),
            leaves_out_void=options.leave_out_void,
        )
    )
    if blocks.stop == options.blocks:
        directory.finish(profile)
    return profile


@dataclass
class _Run:
    """Repeats runs of the harness until no window is missing, at most a few times per block."""

    description: DeviceDescription
    options: ProfileOptions
    step: ExecutionPlan | None
    memory: Memory
    content: BlockContent
    storage_place: str | None
    board: Board
    meter: Meter | None
    meter_for: Callable[[Board], Meter | None]
    directory: RunDirectory
    table: TrialTable
    on_progress: OnProgress
    blocks: Sequence[Sequence[Window]]
    reboots: int = 0
    fraction: float = 0.0

    def measure(self, blocks: range) -> None:
        """Measure what is missing of these blocks."""
        for block in blocks:
            windows = self.blocks[block]
            harness_runs = 0
            while harness_runs < _HARNESS_RUNS_PER_BLOCK:
                missing = self._within_budget(self.table.missing(block, windows))
                if not missing:
                    break
                try:
                    self._run_harness(block, missing)
                    harness_runs += 1
                except RebootError:
                    self.reboots += 1
                    if self.reboots > _MOST_REBOOTS:
                        raise
                    self.board.prepare(self._reporter(block, missing))
                    # A sensor on the board may have another number after a boot.
                    self.meter = self.meter_for(self.board)
        if blocks.stop == len(self.blocks):
            self.on_progress(ProgressEvent("measured", 1.0, 0.0))

    def _reporter(self, block: int, windows: Sequence[Window]) -> Callable[[str], None]:
        return lambda what: self._report(block, windows, 0.0, what)

    def _within_budget(self, windows: Sequence[Window]) -> tuple[Window, ...]:
        """Leave out transfers once they could wear the medium more than allowed."""
        scratch = self.content.scratch
        if scratch is None or scratch.allows(self.table.wear() + scratch.wear(windows)):
            return tuple(windows)
        return tuple(window for window in windows if not isinstance(window, TransferWindow))

    def _run_harness(self, block: int, windows: tuple[Window, ...]) -> None:
        """Run the harness once and save what it measured.

        Finished trials are saved first, even if the run was cut short. The possible wear of storage
        is saved in every case.
        """
        plan = write_plan(windows, self.step, self.memory, self._settings())
        cooled_s = cool_down(self.description, self.board, self._reporter(block, plan.windows))
        began_s = time.monotonic()
        scratch = self.content.scratch
        wear = Wear() if scratch is None else scratch.wear(windows)
        header = HarnessRunHeader(
            block=block,
            sitting=self.table.next_harness_run(block),
            started=datetime.now(UTC).isoformat(timespec="seconds"),
            duration_s=0.0,
            boot_id=self.board.facts.boot_id,
            cooled_s=cooled_s,
            written_bytes=wear.written_bytes,
            erase_cycles=wear.cycles,
            energy_source=None if self.meter is None else self.meter.energy_source,
            interrupted=True,
        )
        observed = ObservedRun(self.board, self.meter, self.description)
        try:
            outcome = self._run_plan(observed, block, plan)
            results = parse_results(outcome.results)
            trace = observed.trace(results, outcome)
            trials = evaluate(
                [record for record in results.windows if record.id < len(windows)],
                windows,
                trace,
                is_measured=self.meter is not None and is_instrument(self.meter.record),
                start=results.start,
                throttled=observed.throttled,
                hindrance=outcome.hindrance,
            )
        except BaseException:
            self._keep(HarnessRun(header=header, trials=()), "")
            raise
        update = {
            "duration_s": time.monotonic() - began_s,
            "steal_share": _steal_share(results),
            "throttled": observed.throttled,
            "temperature_mc": _temperatures(results),
            "is_direct": results.is_direct,
            "interrupted": results.end is None,
        }
        self._keep(
            HarnessRun(header=header.model_copy(update=update), trials=trials), outcome.samples
        )
        if isinstance(outcome.cut, BoardCommandFailed) and len(trials) < len(windows):
            unfinished = windows[len(trials)].label
            raise BoardCommandFailed(f"{outcome.cut} (while measuring: {unfinished})")
        if outcome.cut is not None:
            raise outcome.cut
        if results.end is None:
            raise MeasurementInvalid(f"{self.board.name}: the harness left incomplete records")

    def _keep(self, harness_run: HarnessRun, samples: str) -> None:
        self.directory.add(harness_run, samples)
        self.table.add(harness_run)

    def _run_plan(self, observed: ObservedRun, block: int, plan: PlanFile) -> Outcome:
        expected_s = self._expected_s(plan.windows)
        return observed.run(
            plan.text,
            expected_s=expected_s,
            wait=lambda elapsed_s: self._report(block, plan.windows, elapsed_s / expected_s),
        )

    def _settings(self) -> Settings:
        return Settings(
            min_window_s=window_s(self.description, self.options),
            idle_s=idle_s(self.description, self.options),
            tail_s=tail_s(self.description, self.options),
            first_executions=self._first_executions(),
            sampler=None if self.meter is None else self.meter.sampler,
            marker=None if self.meter is None else self.meter.marker,
            sync_line=sync_line(self.description),
            storage_place=self.storage_place,
            scratch_bytes=0 if self.content.scratch is None else self.content.scratch.bytes,
        )

    def _first_executions(self) -> Mapping[str, int]:
        """First number of executions of each window, from the last block that measured it."""
        least_s = window_s(self.description, self.options)
        return {
            trial.window: int(_MARGIN * least_s / trial.time_s) + 1
            for harness_run in self.table.harness_runs
            for trial in harness_run.trials
            if trial.void is None
        }

    def _expected_s(self, windows: Sequence[Window]) -> float:
        measured_s = self.table.seconds_per_window()
        if measured_s is not None:
            return measured_s * len(windows)
        return sum(guess_s(window, self.step, self.description, self.options) for window in windows)

    def _report(
        self, block: int, under_way: Sequence[Window], share: float, what: str | None = None
    ) -> None:
        """Report progress. ``share`` is the finished part of the windows under way."""
        done = sum(
            len(windows) - len(self.table.missing(number, windows))
            for number, windows in enumerate(self.blocks)
        )
        total = sum(map(len, self.blocks))
        done_now = done + min(share, 1.0) * len(under_way)
        left = max(0.0, total - done_now)
        left_s = self._expected_s(under_way) / len(under_way) * left
        activity = what or f"measuring block {block + 1} of {len(self.blocks)}"
        self.fraction = max(self.fraction, done_now / total)
        self.on_progress(ProgressEvent(activity, self.fraction, left_s))


def _operations(content: BlockContent, step: ExecutionPlan | None) -> tuple[OpSpec, ...]:
    """Distinct operations that the board executes."""
    of_step = () if step is None else (op.spec for op in step.computes)
    return tuple(dict.fromkeys((*content.specs, *of_step)))


def _temperatures(results: Results) -> tuple[int, int] | None:
    if results.start is None or results.end is None or not results.start.temperature_mc:
        return None
    return results.start.temperature_mc, results.end.temperature_mc


def _steal_share(results: Results) -> float:
    if results.start is None or results.end is None:
        return 0.0
    passed_ms = (results.end.clock_ns - results.start.clock_ns) / 1e6
    return max(0.0, (results.end.steal_ms - results.start.steal_ms) / passed_ms)
