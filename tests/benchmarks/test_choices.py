"""The page that compares schedules chosen with different costs: its ratios."""

from __future__ import annotations

from benchmarks.replay.cases import Network
from benchmarks.replay.choices import Row


def row(in_place: list[float], refined: list[float], again: list[float]) -> Row:
    """A case whose schedules with costs warm and cold are worse than the others."""
    by_costs = {"in place": in_place, "warm": [9.0] * 3, "cold": [8.0] * 3, "refined": refined}
    return Row(Network("resnet8", 1), 0.5, by_costs, again, "s", 1.25)


def test_the_chosen_schedule_is_compared_with_the_best_round_by_round() -> None:
    """The second round was disturbed for both, which their ratio does not show."""
    found = row([2.0, 4.0, 2.2], [1.0, 2.0, 1.1], [2.0, 4.2, 2.2])
    assert found.over_best == [2.0, 2.0, 2.0]
    assert found.noise == [1.0, 1.05, 1.0]
    assert found.cells[-3:-1] == ("2.000 (2.000 to 2.000)", "1.000 (1.000 to 1.050)")


def test_a_schedule_that_is_the_best_itself_is_as_good_as_the_best() -> None:
    found = row([2.0, 2.1, 2.2], [2.0, 2.1, 2.2], [2.0, 2.1, 2.2])
    assert found.cells == (
        *("resnet8, batch 1", "50%", "2.1 s", "9 s", "8 s", "2.1 s"),
        *("1", "1", "1.250"),
    )
