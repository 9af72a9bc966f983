"""All trials of a run by window and block: what is there, what is missing, what is void."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from profiler.run.trials import Sitting, Trial
from profiler.script.transfers import Wear
from profiler.script.windows import IdleWindow, Window

_IDLE_LABELS = (IdleWindow("before").label, IdleWindow("after").label)


@dataclass
class TrialTable:
    """Of each window the first valid trial of every block counts; nothing is averaged away."""

    sittings: list[Sitting] = field(default_factory=list)
    _valid: dict[str, dict[int, Trial]] = field(default_factory=dict)
    _void: dict[str, list[Trial]] = field(default_factory=dict)

    @classmethod
    def of(cls, sittings: Iterable[Sitting]) -> TrialTable:
        table = cls()
        for sitting in sittings:
            table.add(sitting)
        return table

    def add(self, sitting: Sitting) -> None:
        self.sittings.append(sitting)
        for trial in sitting.trials:
            if trial.void is None:
                self._valid.setdefault(trial.window, {}).setdefault(sitting.header.block, trial)
            else:
                self._void.setdefault(trial.window, []).append(trial)

    def valid(self, label: str) -> dict[int, Trial]:
        """By block."""
        return self._valid.get(label, {})

    def void(self, label: str) -> list[Trial]:
        return self._void.get(label, [])

    def missing(self, block: int, windows: Sequence[Window]) -> tuple[Window, ...]:
        """Those without a valid trial in this block, in the given order."""
        return tuple(window for window in windows if block not in self.valid(window.label))

    def void_reasons(self) -> Counter[str]:
        return Counter(
            trial.void for trials in self._void.values() for trial in trials if trial.void
        )

    def next_sitting(self, block: int) -> int:
        return sum(sitting.header.block == block for sitting in self.sittings)

    def wear(self) -> Wear:
        """What the sittings can have done to storage so far."""
        headers = [sitting.header for sitting in self.sittings]
        return Wear(
            written_bytes=sum(header.written_bytes for header in headers),
            cycles=sum(header.erase_cycles for header in headers),
        )

    def seconds_per_window(self) -> float | None:
        """Measured so far, all that comes with a window included."""
        whole = [sitting for sitting in self.sittings if not sitting.header.interrupted]
        count = sum(len(sitting.trials) for sitting in whole)
        duration_s = sum(sitting.header.duration_s for sitting in whole)
        return duration_s / count if count else None

    def idle_power_w(self) -> dict[int, float]:
        """By block, the mean of its idle slots; empty if nothing tells the energy."""
        powers: dict[int, list[float]] = {}
        for label in _IDLE_LABELS:
            for block, trial in self.valid(label).items():
                if trial.energy_j is not None:
                    powers.setdefault(block, []).append(trial.energy_j / trial.length_s)
        return {block: sum(values) / len(values) for block, values in powers.items()}

    def values(self, label: str, figure: Callable[[Trial], float | None]) -> list[float]:
        """A figure of every block that has it."""
        found = [figure(trial) for _, trial in sorted(self.valid(label).items())]
        return [value for value in found if value is not None]
