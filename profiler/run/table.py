"""All trials of a run by window and block: valid, missing and void ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from profiler.run.trials import HarnessRun, Trial
from profiler.script.transfers import Wear
from profiler.script.windows import IdleWindow, Window

_IDLE_LABELS = (IdleWindow("before").label, IdleWindow("after").label)


@dataclass
class TrialTable:
    """Trials by window and block. The first valid trial of a window in each block counts; nothing
    is averaged."""

    harness_runs: list[HarnessRun] = field(default_factory=list)
    _valid: dict[str, dict[int, Trial]] = field(default_factory=dict)
    _void: dict[str, list[Trial]] = field(default_factory=dict)

    @classmethod
    def of(cls, harness_runs: Iterable[HarnessRun]) -> TrialTable:
        table = cls()
        for harness_run in harness_runs:
            table.add(harness_run)
        return table

    def add(self, harness_run: HarnessRun) -> None:
        self.harness_runs.append(harness_run)
        for trial in harness_run.trials:
            if trial.void is None:
                self._valid.setdefault(trial.window, {}).setdefault(harness_run.header.block, trial)
            else:
                self._void.setdefault(trial.window, []).append(trial)

    def valid(self, label: str) -> dict[int, Trial]:
        """First valid trial of a window, by block."""
        return self._valid.get(label, {})

    def void(self, label: str) -> list[Trial]:
        return self._void.get(label, [])

    def missing(self, block: int, windows: Sequence[Window]) -> tuple[Window, ...]:
        """Windows without a valid trial in this block, in the given order."""
        return tuple(window for window in windows if block not in self.valid(window.label))

    def void_reasons(self) -> Counter[str]:
        return Counter(
            trial.void for trials in self._void.values() for trial in trials if trial.void
        )

    def next_harness_run(self, block: int) -> int:
        """A number above those of all harness runs of a block, of which one may be missing."""
        headers = [harness_run.header for harness_run in self.harness_runs]
        return 1 + max((each.sitting for each in headers if each.block == block), default=-1)

    def wear(self) -> Wear:
        """Most wear that the harness can have caused to storage so far."""
        headers = [harness_run.header for harness_run in self.harness_runs]
        return Wear(
            written_bytes=sum(header.written_bytes for header in headers),
            cycles=sum(header.erase_cycles for header in headers),
        )

    def seconds_per_window(self) -> float | None:
        """Mean time per window so far, including its overhead; None before the first whole harness
        run."""
        whole = [
            harness_run for harness_run in self.harness_runs if not harness_run.header.interrupted
        ]
        count = sum(len(harness_run.trials) for harness_run in whole)
        duration_s = sum(harness_run.header.duration_s for harness_run in whole)
        return duration_s / count if count else None

    def idle_power_w(self) -> dict[int, float]:
        """Mean power of the idle windows, by block; empty without energies.

        It is at least 0: an offset of the meter may exceed what a sleeping board draws.
        """
        powers: dict[int, list[float]] = {}
        for label in _IDLE_LABELS:
            for block, trial in self.valid(label).items():
                if trial.energy_j is not None:
                    powers.setdefault(block, []).append(trial.energy_j / trial.length_s)
        return {block: max(0.0, fmean(values)) for block, values in powers.items()}

    def values(self, label: str, figure: Callable[[Trial], float | None]) -> list[float]:
        """A figure of the valid trial of every block that has it, in the order of blocks."""
        found = [figure(trial) for _, trial in sorted(self.valid(label).items())]
        return [value for value in found if value is not None]
