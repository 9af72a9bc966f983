"""What ops of a step find in the caches, against reuse distances that are counted one by one."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from networks.models import build_model
from networks.training import TrainingStep
from solver.costing.situation import share_lost, situations
from solver.costing.terms import sort

_build = cache(build_model)


def by_distance(step: TrainingStep, cache_bytes: int) -> list[tuple[float, float]]:
    """Shares of its operands' bytes, and of its kernel's instructions, that each op has lost.

    A distance is the sum of the bytes of all memories that other ops have used since.
    """
    memory: dict[str, str] = {}
    for op in step.ops:
        memory |= {new: memory.get(old, old) for new, old in op.in_place.items()}
    used = [{memory.get(name, name) for name in (*op.reads, *op.writes)} for op in step.ops] * 2
    kernels = [sort(op.spec) for op in step.ops] * 2

    def bytes_of(names: Iterable[str]) -> int:
        return sum(step.tensor[name].bytes for name in names)

    found = []
    for own in range(len(step.ops), len(used)):
        lost_bytes = 0.0
        for name in used[own]:
            last = max(op for op in range(own) if name in used[op])
            distance_bytes = bytes_of({name}.union(*used[last + 1 : own]))
            lost_bytes += bytes_of({name}) * share_lost(distance_bytes, cache_bytes)
        last = max(op for op in range(own) if kernels[op] == kernels[own])
        code_lost = share_lost(bytes_of(set().union(*used[last + 1 : own])), cache_bytes)
        found.append((lost_bytes / bytes_of(used[own]), code_lost))
    return found


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(["digits", "linear", "dscnn", "autoencoder"]),
    st.integers(1, 8),
    st.integers(10, 26).flatmap(lambda power: st.integers(2**power, 2 ** (power + 1))),
)
def test_what_is_lost_follows_from_what_other_ops_have_used_since(
    model: str, batch: int, cache_bytes: int
) -> None:
    step = _build(model, batch)
    found = [(each.lost, each.code_lost) for each in situations(step, cache_bytes)]
    for own, expected in zip(found, by_distance(step, cache_bytes), strict=True):
        assert own == pytest.approx(expected, abs=0.0051)


@pytest.mark.parametrize("cache_bytes", [None, 0, 1 << 60])
def test_nothing_is_lost_without_a_cache_or_in_a_large_one(cache_bytes: int | None) -> None:
    step = _build("resnet8", 1)
    found = situations(step, cache_bytes)
    assert max(each.lost for each in found) < 0.1
    assert max(each.code_lost for each in found) < 0.1
    assert {each.overwrites for each in found} == {False, True}


def test_everything_is_lost_whose_distance_is_the_size_of_the_cache() -> None:
    step = _build("resnet8", 1)
    assert {each.lost for each in situations(step, 2)} == {1.0}


@given(st.floats(0, 1e12), st.floats(0, 1e12), st.integers(1, 1 << 40))
def test_more_is_lost_the_longer_ago_it_was_used(
    one_bytes: float, other_bytes: float, cache_bytes: int
) -> None:
    near, far = sorted((one_bytes, other_bytes))
    assert 0.0 <= share_lost(near, cache_bytes) <= share_lost(far, cache_bytes) <= 1.0
    assert share_lost(cache_bytes, cache_bytes) == 1.0
