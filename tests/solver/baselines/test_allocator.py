"""The simulated memory pool: addresses of blocks, and holes."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from solver.baselines.allocator import Arena, Fit

_CAPACITY = 40


def _layout(arena: Arena) -> list[tuple[int, int, int | None]]:
    return [(block.address, block.size_bytes, block.owner) for block in arena.blocks()]


def _filled(*sizes: int, capacity: int, fit: Fit = "best") -> Arena:
    arena = Arena(capacity, fit)
    for owner, size in enumerate(sizes):
        arena.allocate(owner, size)
    return arena


@given(
    fit=st.sampled_from(["first", "best"]),
    calls=st.lists(
        st.tuples(
            st.sampled_from(["allocate", "allocate", "from top", "release", "hand over"]),
            st.integers(1, 15),
            st.integers(0, 50),
        ),
        max_size=40,
    ),
)
@settings(max_examples=200, deadline=None, derandomize=True)
def test_blocks_cover_the_arena_exactly_after_any_calls(
    fit: Fit, calls: list[tuple[str, int, int]]
) -> None:
    arena = Arena(_CAPACITY, fit)
    live: dict[int, tuple[int, int]] = {}
    for owner, (call, size, choice) in enumerate(calls):
        if call in ("allocate", "from top"):
            holes = [b.size_bytes for b in arena.blocks() if b.owner is None]
            address = arena.allocate(owner, size, from_top=call == "from top")
            assert (address is None) == all(hole < size for hole in holes)
            if address is not None:
                live[owner] = (address, size)
        elif live:
            chosen = sorted(live)[choice % len(live)]
            address, bytes_held = live.pop(chosen)
            if call == "release":
                arena.release(chosen)
            else:
                taken = min(size, bytes_held)
                arena.hand_over(chosen, owner, taken)
                live[owner] = (address, taken)
        blocks = list(arena.blocks())
        assert blocks[0].address == 0
        assert blocks[-1].end == _CAPACITY
        assert all(low.end == high.address for low, high in pairwise(blocks))
        assert all(block.size_bytes > 0 for block in blocks)
        assert not any(low.owner is None and high.owner is None for low, high in pairwise(blocks))
        held = {b.owner: (b.address, b.size_bytes) for b in blocks if b.owner is not None}
        assert held == live
        assert arena.free_bytes == _CAPACITY - sum(size for _, size in live.values())


def test_best_fit_takes_the_smallest_sufficient_hole() -> None:
    addresses: dict[Fit, int | None] = {}
    for fit in ("first", "best"):
        arena = _filled(8, 1, 4, 1, capacity=30, fit=fit)
        arena.release(0)
        arena.release(2)
        addresses[fit] = arena.allocate(9, 3)
    assert addresses == {"first": 0, "best": 9}


def test_allocation_from_the_top_takes_the_end_of_the_highest_hole() -> None:
    arena = _filled(8, 1, capacity=20, fit="first")
    arena.release(0)
    assert arena.allocate(7, 5, from_top=True) == 15
    assert arena.allocate(8, 6, from_top=True) == 9
    assert arena.allocate(9, 6, from_top=True) == 2
    assert arena.arena_bytes == 20


def test_new_owner_takes_over_the_bytes_and_frees_the_rest() -> None:
    arena = _filled(6, 4, capacity=10)
    arena.hand_over(0, 5, 2)
    assert _layout(arena) == [(0, 2, 5), (2, 4, None), (6, 4, 1)]
    assert arena.free_bytes == 4


def test_fragmentation_is_the_share_of_unusable_free_bytes() -> None:
    arena = _filled(5, 5, 5, 5, capacity=20)
    assert arena.allocate(4, 6) is None  # too few free bytes in all
    assert arena.fragmentation == 0
    arena.release(0)
    arena.release(2)
    assert arena.allocate(4, 6) is None
    assert arena.unusable_bytes == 10
    assert arena.fragmentation == 0.5
    assert arena.largest_hole_bytes == 5
    arena.release(1)
    assert arena.allocate(4, 6) == 0
    assert arena.fragmentation == 0.5


def test_arena_size_is_the_highest_address_ever_used() -> None:
    arena = _filled(5, 5, capacity=100)
    arena.release(0)
    arena.allocate(2, 3)
    assert arena.arena_bytes == 10
    assert Arena(100).arena_bytes == 0
