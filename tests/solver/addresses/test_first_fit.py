"""First fit in given orders, and the search over orders, against their definitions."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devices.errors import BuildFailed
from solver.addresses import search
from solver.addresses.first_fit import FirstFit
from solver.addresses.packing import Packing
from solver.addresses.residencies import Span

Shape = tuple[Span, ...]
MOMENTS = 24


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    """A block; one in some changes its bytes."""
    changes = draw(st.integers(1, 3)) if draw(st.booleans()) else 1
    length = draw(st.integers(changes, draw(st.sampled_from((4, MOMENTS)))))
    start = draw(st.integers(0, MOMENTS - length))
    inner = draw(
        st.lists(
            st.integers(start + 1, start + length - 1) if length > 1 else st.nothing(),
            min_size=changes - 1,
            max_size=changes - 1,
            unique=True,
        )
    )
    edges = [start, *sorted(inner), start + length]
    return tuple(Span(s, e, draw(st.integers(1, 30))) for s, e in pairwise(edges))


def bytes_beside(shape: Shape, other: Shape) -> int:
    """Most bytes of ``shape`` while ``other`` is there; 0 if they never meet."""
    first, end = other[0].start, other[-1].end
    return max((s.bytes for s in shape if s.start < end and first < s.end), default=0)


def holds(blocks: list[Shape], offsets: dict[int, int], new: int, offset: int) -> bool:
    """Whether block ``new`` can be at ``offset`` beside those that have offsets."""
    for other, low in offsets.items():
        height, other_height = (
            bytes_beside(blocks[new], blocks[other]),
            bytes_beside(blocks[other], blocks[new]),
        )
        if height and offset < low + other_height and low < offset + height:
            return False
    return True


def placed_low(blocks: list[Shape], order: list[int]) -> list[int]:
    """Each block in turn at the lowest offset that holds: 0, or the end of another one."""
    offsets: dict[int, int] = {}
    for new in order:
        ends = (low + bytes_beside(blocks[i], blocks[new]) for i, low in offsets.items())
        possible = sorted({0, *ends})
        offsets[new] = next(low for low in possible if holds(blocks, offsets, new, low))
    return [offsets[i] for i in range(len(blocks))]


@given(st.data())
def test_blocks_lie_as_low_as_they_fit_in_this_order(data: st.DataObject) -> None:
    """With many blocks, some have few beside them, which the library looks up in a list."""
    blocks = data.draw(st.lists(shapes(), min_size=1, max_size=40))
    order = data.draw(st.permutations(range(len(blocks))))
    packing = Packing(blocks)
    orders = FirstFit(packing, 0)
    orders.place(order)
    arena_bytes, offsets = orders.best
    assert offsets == placed_low(blocks, order)
    assert arena_bytes == packing.arena(offsets)


@given(st.lists(shapes(), min_size=1, max_size=30), st.integers(1, 400))
def test_what_is_searched_holds_and_is_no_larger(blocks: list[Shape], placements: int) -> None:
    packing = Packing(blocks)
    target = packing.bound
    found = []
    for _ in range(2):
        orders = FirstFit(packing, target)
        orders.place(range(len(blocks)))
        first, _ = orders.best
        left = orders.search(placements, 60.0)
        found.append(orders.best)
        arena_bytes, offsets = orders.best
        assert target <= arena_bytes <= first
        assert arena_bytes == target or left <= 0
        assert arena_bytes == packing.arena(offsets)
        known: dict[int, int] = {}
        for i, offset in enumerate(offsets):
            assert holds(blocks, known, i, offset)
            known[i] = offset
    assert found[0] == found[1]  # the same blocks have the same addresses


def test_a_search_finds_what_no_order_by_size_or_time_gives() -> None:
    """Nine blocks fill 12 bytes exactly; they were cut out of a full arena."""
    cut = [
        (0, 4, 0, 5),
        (0, 2, 5, 7),
        (2, 6, 5, 4),
        (2, 4, 9, 3),
        (4, 9, 0, 5),
        (4, 7, 9, 3),
        (6, 9, 5, 4),
        (7, 9, 9, 3),
        (9, 10, 0, 12),
    ]
    packing = Packing([(Span(start, end, size),) for start, end, _, size in cut])
    assert packing.bound == 12
    found = search.OrderSearch(packing, 12)
    found.run(10_000_000, float("inf"))
    assert found.arena_bytes == 12


def test_without_a_compiler_there_are_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> FirstFit:
        raise BuildFailed("no C compiler was found")

    monkeypatch.setattr(search, "FirstFit", failing)
    packing = Packing([(Span(0, 2, 3),), (Span(1, 3, 5),), (Span(2, 4, 4),)])
    found = search.OrderSearch(packing, 0)
    found.run(1000, float("inf"))
    assert packing.bound <= found.arena_bytes == packing.arena(found.offsets) <= 12
