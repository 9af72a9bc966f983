"""What ops of a step find in the caches, against reuse distances that are counted one by one."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from networks.models import build_model
from networks.training import TrainingStep
from solver.costing.situation import SHARE_OF_CACHE, situations

_build = cache(build_model)


def shares_by_distance(step: TrainingStep, capacity_bytes: int) -> list[float]:
    """Shares of bytes whose reuse distance, with the operand itself, is above the capacity.

    The distance is the sum of the bytes of all memories that were used since.
    """
    memory: dict[str, str] = {}
    for op in step.ops:
        memory |= {new: memory.get(old, old) for new, old in op.in_place.items()}
    uses = [(n, memory.get(t, t)) for n, op in enumerate(step.ops) for t in (*op.reads, *op.writes)]
    uses = list(dict.fromkeys(uses))
    twice = [name for _, name in uses] * 2
    lost, total = [0] * len(step.ops), [0] * len(step.ops)
    for position, (op, name) in enumerate(uses, start=len(uses)):
        before = max(i for i in range(position) if twice[i] == name)
        between = {*twice[before + 1 : position]} - {name}
        distance = sum(step.tensor[other].bytes for other in between)
        total[op] += step.tensor[name].bytes
        if distance + step.tensor[name].bytes > capacity_bytes:
            lost[op] += step.tensor[name].bytes
    return [part / whole for part, whole in zip(lost, total, strict=True)]


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(["digits", "linear", "dscnn", "autoencoder"]),
    st.integers(1, 8),
    st.integers(10, 22).flatmap(lambda power: st.integers(2**power, 2 ** (power + 1))),
)
def test_what_is_lost_is_what_was_last_used_longer_ago_than_the_cache_holds(
    model: str, batch: int, cache_bytes: int
) -> None:
    step = _build(model, batch)
    found = [each.lost for each in situations(step, cache_bytes)]
    expected = shares_by_distance(step, int(SHARE_OF_CACHE * cache_bytes))
    assert found == pytest.approx(expected, abs=0.0051)


@pytest.mark.parametrize(
    ("cache_bytes", "share"), [(None, 0.0), (0, 0.0), (1 << 40, 0.0), (2, 1.0)]
)
def test_nothing_is_lost_without_a_cache_or_in_a_large_one(
    cache_bytes: int | None, share: float
) -> None:
    step = _build("resnet8", 1)
    assert {each.lost for each in situations(step, cache_bytes)} == {share}
