"""Data of a plan in parts."""

from __future__ import annotations

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from profiler.boards.plan_data import PlanData


@given(
    parts=st.lists(st.binary(max_size=9), max_size=5),
    at=st.integers(0, 50),
    size=st.integers(0, 50),
)
def test_parts_read_as_one_piece(parts: list[bytes], at: int, size: int) -> None:
    whole, data = b"".join(parts), PlanData(tuple(map(memoryview, parts)))
    assert data.size_bytes == len(whole)
    assert data.sha256 == hashlib.sha256(whole).hexdigest()
    assert data.read(at, size) == whole[at : at + size]
