"""First fit in given orders, and the search over orders, against their definitions."""

from __future__ import annotations

import random
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
    """Whether block ``new``, if it lies at ``offset``, overlaps no block in ``offsets``."""
    for other, low in offsets.items():
        height = bytes_beside(blocks[new], blocks[other])
        other_height = bytes_beside(blocks[other], blocks[new])
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


def cut(chance: random.Random, whole: Span, pieces: int) -> list[Shape]:
    """A power of two of pieces, which fill the whole, cut across moments or bytes."""
    if pieces == 1:
        return [(whole,)]
    if chance.random() < 0.5:
        middle = chance.randint(whole.start + 1, whole.end - 1)
        parts = (
            Span(whole.start, middle, whole.bytes),
            Span(middle, whole.end, whole.bytes),
        )
    else:
        lower = chance.randint(1, whole.bytes - 1)
        parts = (
            Span(whole.start, whole.end, lower),
            Span(whole.start, whole.end, whole.bytes - lower),
        )
    return [piece for part in parts for piece in cut(chance, part, pieces // 2)]


def test_a_search_finds_what_no_order_by_size_or_time_gives() -> None:
    """The blocks were cut out of a full arena."""
    packing = Packing(cut(random.Random(5), Span(0, 600, 4000), 32))
    assert packing.bound == 4000
    found = search.OrderSearch(packing, 4000)
    assert found.arena_bytes > 4000
    found.run(50_000_000, float("inf"))
    assert found.arena_bytes == 4000


def test_without_a_compiler_there_are_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> FirstFit:
        raise BuildFailed("no C compiler was found")

    monkeypatch.setattr(search, "FirstFit", failing)
    packing = Packing([(Span(0, 2, 3),), (Span(1, 3, 5),), (Span(2, 4, 4),)])
    found = search.OrderSearch(packing, 0)
    found.run(1000, float("inf"))
    assert packing.bound <= found.arena_bytes == packing.arena(found.offsets) <= 12
