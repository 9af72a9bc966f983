"""Energies of activities that readings mix, against made-up boards whose powers are known.

A made-up board draws a known power in each activity. A made-up meter integrates it, with a response
and a clock of its own. ``python -m benchmarks.activity_energies`` prints how often the intervals
hold the true energies, and how wide they are.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from profiler.meters.readings import Readings, Response
from replay.energy.activities import Tile, stacked
from replay.energy.regression import Separated, separate

OUTSIDE_S, OUTSIDE_W = 2e-3, 1.0
NOISE_W = 0.05


@dataclass(frozen=True)
class Board:
    """Steps of ``actions``, each an activity and its seconds."""

    actions: tuple[tuple[str, float], ...]
    powers_w: dict[str, float]
    steps: int
    wander: float = 0.03
    """Spread of durations and powers, from one execution to another, as a share of them."""

    def energy_j(self, activity: str) -> float:
        if activity == "outside":
            return OUTSIDE_S * OUTSIDE_W
        return self.powers_w[activity] * sum(s for name, s in self.actions if name == activity)

    def run(
        self, random: np.random.Generator
    ) -> tuple[list[list[Tile]], Callable[[NDArray[np.float64]], NDArray[np.float64]]]:
        """Spans of the steps, and the joules until some instants."""
        now_s, steps = 1.0, []
        edges_s, joules = [now_s], [0.0]

        def spend(power_w: float, time_s: float) -> None:
            edges_s.append(edges_s[-1] + time_s)
            joules.append(joules[-1] + power_w * time_s)

        for _ in range(self.steps):
            tiles = []
            for name, typical_s in self.actions:
                time_s, power_w = (1 + self.wander * random.uniform(-1, 1, 2)) * (
                    typical_s,
                    self.powers_w[name],
                )
                tiles.append(Tile(name, edges_s[-1], edges_s[-1] + time_s))
                spend(power_w, time_s)
            steps.append(tiles)
            spend(OUTSIDE_W, OUTSIDE_S * random.uniform(0.5, 1.5))
        return steps, lambda instants_s: np.interp(instants_s, edges_s, joules)


def held(
    spent_j: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    begin_s: float,
    end_s: float,
    random: np.random.Generator,
) -> Readings:
    """A register that holds means over 8.8 ms, read about a hundred times a second."""
    length_s, period_s = 8.8e-3, 0.01 * random.uniform(0.9, 1.1)
    times_s = np.arange(begin_s, end_s, period_s)
    phase_s = random.uniform(0, length_s)
    replaced_s = np.floor((times_s - phase_s) / length_s) * length_s + phase_s
    power_w = (spent_j(replaced_s) - spent_j(replaced_s - length_s)) / length_s
    return readings(times_s, power_w, Response.held(length_s), random)


def streamed(
    spent_j: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    begin_s: float,
    end_s: float,
    random: np.random.Generator,
) -> Readings:
    """An instrument with a sample every millisecond, and a clock that is known to 1 ms."""
    length_s = 1e-3
    times_s = np.arange(begin_s, end_s, length_s)
    power_w = (spent_j(times_s + length_s / 2) - spent_j(times_s - length_s / 2)) / length_s
    error_s = 1e-3
    late = readings(
        times_s + random.normal(0, error_s / 1.96), power_w, Response.centred(length_s), random
    )
    return replace(late, clock_error_s=error_s)


def filtered(
    spent_j: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    begin_s: float,
    end_s: float,
    random: np.random.Generator,
) -> Readings:
    """An instrument that passes 100 Hz, with a sample every 2 ms."""
    from scipy.signal import lfilter

    fine_s, response = 1e-4, Response.low_pass(100.0)
    times_s = np.arange(begin_s, end_s, fine_s)
    kept = np.exp(-fine_s / response.decay_s)
    power_w = lfilter([1 - kept], [1, -kept], np.diff(spent_j(times_s)) / fine_s)
    return readings(times_s[1::20], power_w[::20], response, random)


def readings(
    times_s: NDArray[np.float64],
    power_w: NDArray[np.float64],
    response: Response,
    random: np.random.Generator,
) -> Readings:
    noisy_w = power_w + NOISE_W * random.normal(size=len(times_s))
    return Readings(0, times_s, noisy_w, np.ones(len(times_s), dtype=bool), response)


METERS = {"held": held, "streamed": streamed, "filtered": filtered}


def separated(board: Board, meter: str, random: np.random.Generator) -> Separated:
    steps, spent_j = board.run(random)
    found = METERS[meter](spent_j, steps[0][0].start_s, steps[-1][-1].end_s, random)
    assert found.response is not None
    spans = stacked(steps, range(board.steps), found.response)
    return separate(found, found.response, spans)


def drawn(random: np.random.Generator) -> Board:
    """A board whose steps have up to a dozen actions of some milliseconds."""
    names = [f"op{number}" for number in range(random.integers(2, 6))]
    again = list(random.choice(names, size=random.integers(0, 7)))
    order = random.permutation([*names, *again])
    times_s = dict(zip(names, random.uniform(2e-3, 15e-3, len(names)), strict=True))
    return Board(
        tuple((str(name), times_s[name]) for name in order),
        dict(zip(names, random.uniform(0.5, 5.0, len(names)), strict=True)),
        steps=int(random.integers(80, 120)),
    )


@dataclass(frozen=True)
class Outcome:
    """One energy: whether its interval holds the true one, and its half width as a share of it."""

    is_held: bool
    half: float


def outcomes(meter: str, cases: int, seed: int) -> list[Outcome]:
    """Energies of drawn boards under one meter."""
    random = np.random.default_rng(seed)
    found = []
    for _ in range(cases):
        board = drawn(random)
        for group in separated(board, meter, random).groups:
            true_j = sum(map(board.energy_j, group.activities))
            is_held = abs(group.energy_j - true_j) <= group.half_j
            found.append(Outcome(is_held, group.half_j / true_j))
    return found


_WORDS = {
    "held": "register, means over 8.8 ms, 100 readings a second",
    "streamed": "means over 1 ms, 1,000 a second, clock known to 1 ms",
    "filtered": "first-order low pass of 100 Hz, 500 a second",
}


def main() -> None:
    """Print the table of docs/accuracy.md."""
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    print("| meter | energies | in their intervals | half width (median, 90 % of them below) |")
    print("|---|--:|--:|--:|")
    for meter, words in _WORDS.items():
        found = outcomes(meter, cases=300, seed=1)
        held_share = np.mean([each.is_held for each in found])
        half, most = np.quantile([each.half for each in found], [0.5, 0.9])
        print(f"| {words} | {len(found)} | {held_share:.1%} | {half:.1%}, {most:.0%} |")


if __name__ == "__main__":
    main()
