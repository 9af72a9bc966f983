"""Profile a board: build, measure block by block, keep every trial, assemble the profile."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from devices.description import DeviceDescription
from devices.operation import OpSpec
from devices.plan import ExecutionPlan
from devices.profile import DeviceProfile
from profiler.assembly import RunResult, assemble
from profiler.board import BoardSession, Outcome, RebootError
from profiler.errors import BoardCommandFailed, MeasurementInvalid
from profiler.evaluate import evaluate
from profiler.meters import open_meter
from profiler.meters.base import Meter, PowerTrace
from profiler.options import ProfileOptions
from profiler.plan_file import Memory, PlanFile, Settings, write_plan
from profiler.preview import block_content, guess_s, idle_s, tail_s, window_s
from profiler.records import Results, parse_results, parse_samples
from profiler.table import TrialTable
from profiler.transports import open_transport
from profiler.trials import (
    RunDirectory,
    RunMetadata,
    Sitting,
    SittingHeader,
    next_run_directory,
)
from profiler.windows import TransferWindow, Window, written_bytes

ARENA_SHARE = 0.5
"""Of the board's free memory that measuring may take."""

_SITTINGS_PER_BLOCK = 3
_MOST_REBOOTS = 2
_MARGIN = 1.1


@dataclass(frozen=True)
class ProgressEvent:
    """``fraction`` of the measuring is done, ``left_s`` is what it probably still takes; None
    before measuring has begun."""

    activity: str
    fraction: float
    left_s: float | None


OnProgress = Callable[[ProgressEvent], None]


def choose_run_directory(
    campaigns: Path,
    description: DeviceDescription,
    specs: Sequence[OpSpec],
    step: ExecutionPlan | None,
    options: ProfileOptions,
) -> Path:
    """A directory for :func:`profile_device` with the same arguments: of the run that was
    interrupted with them, or a new one."""
    content = block_content(description, specs, step, options)
    question = [
        description.model_dump_json(),
        *(spec.key for spec in content.specs),
        "" if step is None else step.name,
        f"{bool(content.transfers)} {options.min_window_s} {options.seed}",
    ]
    return next_run_directory(campaigns, description.name, "\n".join(question))


def profile_device(
    description: DeviceDescription,
    specs: Sequence[OpSpec],
    step: ExecutionPlan | None,
    options: ProfileOptions,
    run_directory: Path,
    on_progress: OnProgress = lambda _event: None,
) -> DeviceProfile:
    """What every distinct operation of ``specs`` and ``step`` costs on a board, and what moving
    pages to and from its storage costs.

    Trials go to ``run_directory`` as they are finished. When this is interrupted, calling it again
    with the same arguments goes on where it ended.

    Raises :class:`~profiler.errors.ProfilerError` (board unreachable, build failed, measurement
    invalid, trials that were measured under other circumstances) and
    :class:`~devices.document.DocumentError` for a damaged file of trials.
    """
    directory = RunDirectory(run_directory)
    with open_transport(description) as transport:
        session = BoardSession(description, transport, options.poll_interval_s)

        def building(what: str) -> None:
            on_progress(ProgressEvent(what, 0.0, None))

        session.prepare(building)
        content = block_content(description, specs, step, options)
        directory.claim(
            RunMetadata(
                description=description.model_dump(mode="json", by_alias=True, exclude_none=True),
                board=session.facts.board.model_copy(update={"cpu_frequency_hz": None}),
                build=session.build,
                operations=tuple(spec.key for spec in content.specs),
                step=None if step is None else step.name,
                storage=bool(content.transfers),
                min_window_s=options.min_window_s,
                seed=options.seed,
            )
        )
        memory = Memory(
            arena_limit_bytes=int(session.facts.available_bytes * ARENA_SHARE),
            last_level_cache_bytes=session.facts.last_level_cache_bytes,
            workspace_bytes=session.workspace_bytes(content.specs),
        )
        table = TrialTable.of(directory.sittings())
        meter = open_meter(description, transport)
        try:
            _Run(
                description=description,
                options=options,
                step=step,
                memory=memory,
                session=session,
                meter=meter,
                directory=directory,
                table=table,
                on_progress=on_progress,
                blocks=[content.ordered(options.seed, block) for block in range(options.blocks)],
            ).measure()
        finally:
            if meter is not None:
                meter.close()
    profile = assemble(
        RunResult(
            description=description,
            facts=session.facts,
            build=session.build,
            content=content,
            step=step,
            memory=memory,
            table=table,
            blocks=options.blocks,
            seed=options.seed,
            energy_source=None if meter is None else meter.energy_source,
            meter=None if meter is None else meter.record,
            storage_directory=session.storage_directory,
        )
    )
    directory.finish(profile)
    return profile


@dataclass
class _Run:
    """The measuring itself: sittings until no window is missing, or until what is missing stays
    void."""

    description: DeviceDescription
    options: ProfileOptions
    step: ExecutionPlan | None
    memory: Memory
    session: BoardSession
    meter: Meter | None
    directory: RunDirectory
    table: TrialTable
    on_progress: OnProgress
    blocks: Sequence[Sequence[Window]]
    reboots: int = 0
    fraction: float = 0.0

    def measure(self) -> None:
        for block, windows in enumerate(self.blocks):
            for _ in range(_SITTINGS_PER_BLOCK):
                missing = self._within_budget(self.table.missing(block, windows))
                if not missing:
                    break
                self._sit(block, missing)
        self.on_progress(ProgressEvent("measured", 1.0, 0.0))

    def _within_budget(self, windows: Sequence[Window]) -> tuple[Window, ...]:
        """Without transfers once they could write more than the budget allows."""
        planned = written_bytes(windows)
        if self.table.written_bytes() + planned <= self.options.storage_budget_bytes:
            return tuple(windows)
        return tuple(window for window in windows if not isinstance(window, TransferWindow))

    def _sit(self, block: int, windows: tuple[Window, ...]) -> None:
        """One run of the harness. What it finished is on disk before anything else happens, also
        when it was cut short."""
        plan = write_plan(windows, self.step, self.memory, self._settings())
        started, clock_s = datetime.now(UTC), time.monotonic()
        throttled_before = self.session.throttled()
        if self.meter is not None:
            self.meter.begin()
        outcome = self._run_plan(block, plan)
        results = parse_results(outcome.results)
        throttled_after = None if outcome.cut else self.session.throttled()
        throttled = (
            None
            if throttled_before is None or throttled_after is None
            else (throttled_before, throttled_after)
        )
        trace = None if self.meter is None else self._trace(self.meter, outcome)
        trials = evaluate(
            results.windows,
            windows,
            trace,
            is_measured=self.meter is not None and self.meter.energy_source == "measured",
            throttled=throttled,
        )
        header = SittingHeader(
            block=block,
            sitting=self.table.next_sitting(block),
            started=started.isoformat(timespec="seconds"),
            duration_s=time.monotonic() - clock_s,
            boot_id=self.session.facts.boot_id,
            steal_share=_steal_share(results),
            throttled=throttled,
            is_direct=results.is_direct,
            written_bytes=written_bytes(windows),
            interrupted=results.end is None,
        )
        sitting = Sitting(header=header, trials=trials)
        self.directory.add(sitting, outcome.samples)
        self.table.add(sitting)
        if isinstance(outcome.cut, BoardCommandFailed) and len(trials) < len(windows):
            unfinished = windows[len(trials)].label
            raise BoardCommandFailed(f"{outcome.cut} (while measuring: {unfinished})")
        if outcome.cut is not None:
            raise outcome.cut
        if results.end is None:
            raise MeasurementInvalid(f"{self.session.name}: the harness left incomplete records")

    def _run_plan(self, block: int, plan: PlanFile) -> Outcome:
        expected_s = self._expected_s(plan.windows)
        while True:
            try:
                return self.session.run_plan(
                    plan.text,
                    expected_s=expected_s,
                    wait=lambda elapsed_s: self._report(block, plan, elapsed_s / expected_s),
                )
            except RebootError:
                self.reboots += 1
                if self.reboots > _MOST_REBOOTS:
                    raise
                self.session.prepare(lambda what: self._report(block, plan, 0.0, what))

    def _trace(self, meter: Meter, outcome: Outcome) -> PowerTrace:
        files = 0 if meter.sampler is None else len(meter.sampler.files)
        return meter.finish(parse_samples(outcome.samples, files))

    def _settings(self) -> Settings:
        return Settings(
            min_window_s=window_s(self.description, self.options),
            idle_s=idle_s(self.description, self.options),
            tail_s=tail_s(self.description, self.options),
            first_executions=self._first_executions(),
            sampler=None if self.meter is None else self.meter.sampler,
            storage_directory=self.session.storage_directory,
        )

    def _first_executions(self) -> Mapping[str, int]:
        """From the last block that measured a window."""
        least_s = window_s(self.description, self.options)
        return {
            trial.window: int(_MARGIN * least_s / trial.time_s) + 1
            for sitting in self.table.sittings
            for trial in sitting.trials
            if trial.void is None
        }

    def _expected_s(self, windows: Sequence[Window]) -> float:
        measured_s = self.table.seconds_per_window()
        if measured_s is not None:
            return measured_s * len(windows)
        return sum(guess_s(window, self.step, self.description, self.options) for window in windows)

    def _report(self, block: int, plan: PlanFile, share: float, what: str | None = None) -> None:
        done = sum(
            len(windows) - len(self.table.missing(number, windows))
            for number, windows in enumerate(self.blocks)
        )
        total = sum(map(len, self.blocks))
        under_way = min(share, 1.0) * len(plan.windows)
        left = max(0.0, total - done - under_way)
        left_s = self._expected_s(plan.windows) / len(plan.windows) * left
        activity = what or f"measuring block {block + 1} of {len(self.blocks)}"
        self.fraction = max(self.fraction, (done + under_way) / total)
        self.on_progress(ProgressEvent(activity, self.fraction, left_s))


def _steal_share(results: Results) -> float:
    if results.start is None or results.end is None:
        return 0.0
    passed_ms = (results.end.clock_ns - results.start.clock_ns) / 1e6
    return max(0.0, (results.end.steal_ms - results.start.steal_ms) / passed_ms)
