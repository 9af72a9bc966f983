"""The referee of addresses on an arena laid out by hand, to the byte."""

from __future__ import annotations

import pytest

from solver.problem.schedule import Compute, Free, PageIn, PageOut
from solver.referee.addresses import verify_addresses
from solver.referee.referee import RefereeError
from tests.support.graphs.graph_examples import graph, op, tensor, two_layers

RESIDENT = {"x": 0, "w": 10}
ARENA_BYTES = 25
# Ends: x at 10, w at 14, a at 20, workspace of conv at 25. Later y begins at 0, the workspace of
# grad at 8, and g at 20.
CONV = Compute(op="conv", address={"a": 14}, workspace_address=20)
RELU = Compute(op="relu", address={"r": 14})
LINEAR = Compute(op="linear", address={"y": 0})
GRAD = Compute(op="grad", address={"g": 20}, workspace_address=8)
UPDATE = Compute(op="update", address={"w1": 10})
OUT, IN = PageOut(tensor="r"), PageIn(tensor="r", address=14)
X, Y, R, G = (Free(tensor=name) for name in "xyrg")

KEPT = (CONV, X, RELU, LINEAR, GRAD, Y, R, UPDATE, G)
PAGED = (CONV, X, RELU, OUT, LINEAR, R, IN, GRAD, Y, R, UPDATE, G)


def changed(entry: Compute | PageIn, **changes: object) -> tuple[object, ...]:
    """``PAGED`` with one entry replaced by a changed copy."""
    return tuple(each.model_copy(update=changes) if each is entry else each for each in PAGED)


def verify(entries: tuple[object, ...], **changes: object) -> None:
    fields = {"resident_address": RESIDENT, "arena_bytes": ARENA_BYTES} | changes
    verify_addresses(two_layers(), entries, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("entries", [KEPT, PAGED], ids=["kept", "paged"])
def test_blocks_may_touch_each_other_and_the_end_of_the_arena(entries: tuple[object, ...]) -> None:
    verify(entries)


def test_arena_one_byte_too_small_is_refused() -> None:
    with pytest.raises(RefereeError, match=r"workspace of op conv.* 20 to 25 leaves the arena"):
        verify(KEPT, arena_bytes=24)


def test_address_before_the_arena_is_refused() -> None:
    with pytest.raises(RefereeError, match="'x' at -1 to 9 leaves the arena"):
        verify(KEPT, resident_address={"x": -1, "w": 10})


@pytest.mark.parametrize("entries", [KEPT[:-2], (*KEPT[:-2], G), (*KEPT[:1], *KEPT[2:])])
def test_invalid_schedule_with_valid_addresses_is_refused(
    entries: tuple[object, ...],
) -> None:
    with pytest.raises(RefereeError, match=r"never computed|late|still in RAM"):
        verify(entries)


def test_blocks_that_share_one_byte_overlap() -> None:
    place = PAGED.index(LINEAR)
    with pytest.raises(RefereeError, match=f"{place}: 'y' at 3 to 11 overlaps 'w' at 10 to 14"):
        verify(changed(LINEAR, address={"y": 3}))
    with pytest.raises(RefereeError, match="'r' at 13 to 19 overlaps 'w' at 10 to 14"):
        verify(changed(IN, address=13))
    verify(changed(IN, address=14))


def test_bytes_of_freed_or_paged_out_tensors_may_be_reused() -> None:
    """``r`` is paged in at another address, and ``g`` lies where ``r`` was."""
    elsewhere = PageIn(tensor="r", address=19)
    grad = Compute(op="grad", address={"g": 14}, workspace_address=8)
    verify((CONV, X, RELU, OUT, LINEAR, R, elsewhere, grad, Y, R, UPDATE, G))


def test_workspace_overlaps_nothing_while_its_op_runs() -> None:
    with pytest.raises(RefereeError, match=r"workspace of op grad.* at 7 to 9 overlaps 'y'"):
        verify(changed(GRAD, workspace_address=7))
    with pytest.raises(RefereeError, match=r"workspace of op grad.* at 9 to 11 overlaps 'w'"):
        verify(changed(GRAD, workspace_address=9))
    with pytest.raises(RefereeError, match=r"workspace of op grad.* at 22 to 24 overlaps 'g'"):
        verify(changed(GRAD, workspace_address=22))


def test_smaller_result_in_place_frees_the_remaining_bytes() -> None:
    """``s`` takes the first 2 of the 6 bytes of ``a``; then other tensors may use the rest."""
    costed = graph(
        [
            op("f", "x", "a"),
            op("shrink", "a", "s", in_place={"s": "a"}),
            op("next", "s", "b"),
            op("last", "s b", "c"),
        ],
        [
            tensor("x", 1, home="ram"),
            tensor("a", 6),
            tensor("s", 2),
            tensor("b", 4),
            tensor("c", 1, persist="ram"),
        ],
    )
    entries = (
        Compute(op="f", address={"a": 0}),
        Free(tensor="x"),
        Compute(op="shrink", address={"s": 0}),
        Compute(op="next", address={"b": 2}),
        Compute(op="last", address={"c": 6}),
        Free(tensor="s"),
        Free(tensor="b"),
    )
    verify_addresses(costed, entries, {"x": 6}, 7)
    wrong = (*entries[:3], Compute(op="next", address={"b": 1}), *entries[4:])
    with pytest.raises(RefereeError, match="'b' at 1 to 5 overlaps 's' at 0 to 2"):
        verify_addresses(costed, wrong, {"x": 6}, 7)
