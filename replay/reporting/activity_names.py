"""Names of the activities of a step whose energies were told apart, and what was predicted."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from devices.replay import ReplayReport

_OTHER: Mapping[str, str] = {
    "move": "moves in RAM",
    "probe": "checksums",
    "rows": "selection of rows",
    "wait": "waits for transfers",
    "between": "the executor's own work",
    "copies": "safety copies after the step",
    "outside": "time between steps",
}


@dataclass(frozen=True)
class ActivityNames:
    """What a report calls its activities.

    Attributes:
        labels: labels of the actions with a cost key.
        expected_j: predicted energy in a step of the actions with a cost key.
    """

    labels: Mapping[str, Sequence[str]]
    expected_j: Mapping[str, float]

    @classmethod
    def of(cls, report: ReplayReport) -> ActivityNames:
        labels: dict[str, list[str]] = {}
        joules: dict[str, list[float]] = {}
        for action in report.actions:
            labels.setdefault(action.cost_key, []).append(action.label)
            joules.setdefault(action.cost_key, []).append(action.expected_energy_j.median)
        return cls(
            {key: tuple(dict.fromkeys(own)) for key, own in labels.items()},
            {key: math.fsum(own) for key, own in joules.items()},
        )

    def words(self, activities: Sequence[str]) -> str:
        """Name of the first action or activity, and how many more there are."""
        names = [self.labels.get(each, (_OTHER.get(each, each),)) for each in activities]
        first, *others = (name for own in names for name in own)
        return f"{first} + {len(others)} more" if others else first

    def predicted_j(self, activities: Sequence[str]) -> float | None:
        """Predicted energy in a step; None if a prediction knows nothing of an activity."""
        if any(activity not in self.expected_j for activity in activities):
            return None
        return math.fsum(self.expected_j[activity] for activity in activities)
