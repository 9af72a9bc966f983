"""Sizes of packed tensors from runs that counted zeros."""

from __future__ import annotations

import numpy as np
import pytest

from devices.plan import Action, ArenaRange, ExecutionPlan, Probe
from devices.replay import MeasuredStep
from replay.costs.zeros import RUNS, packed_tensors

WORDS = 100_000


def counting(count: int) -> ExecutionPlan:
    block = ArenaRange(0, 4 * WORDS)
    probes = [Probe("loss", "loss", ArenaRange(0, 4))]
    probes += [Probe(f"t{number}", "zeros", block) for number in range(count)]
    actions = tuple(map(Action, probes))
    return ExecutionPlan("counting", 4 * WORDS, {}, (), actions)


def step(*words: int) -> MeasuredStep:
    return MeasuredStep(1.0, checksums=(0xFFFFFFFF, *words))


def test_a_size_is_the_median_over_runs_of_the_means_over_steps() -> None:
    runs = [[step(10, WORDS), step(20, 50)], [step(40, 60)], [step(30, 70), step(50, 70)]]
    found = list(packed_tensors(counting(2), runs))
    (tensor,) = [each for each in found if each.tensor == "t0"]
    assert tensor.runs_bytes == (60, 160, 160)
    assert tensor.packed_bytes.median == 160
    assert tensor.bytes == 4 * WORDS


def test_tensors_that_stay_whole_in_a_run_are_left_out() -> None:
    runs = [[step(10, WORDS)], [step(10, 50)]]
    assert [each.tensor for each in packed_tensors(counting(2), runs)] == ["t0"]


@pytest.mark.slow
@pytest.mark.parametrize("spread", [0.02, 0.2])
def test_intervals_hold_a_later_run_in_95_percent_of_cases(spread: float) -> None:
    """Tensors of one network, whose sizes scatter alike from run to run."""
    random = np.random.default_rng(5)
    held = total = 0
    for _ in range(150):
        middle = random.uniform(0.1, 0.3, 20) * WORDS
        sizes = (middle * np.exp(random.normal(0, spread, (RUNS + 1, 20)))).astype(int)
        runs = [[step(*map(int, own))] for own in sizes[:RUNS]]
        for each, later in zip(packed_tensors(counting(20), runs), sizes[RUNS], strict=True):
            held += each.packed_bytes.low <= 4 * later <= each.packed_bytes.high
            total += 1
    assert held / total > 0.94
