"""Views of a stored tensor: the same elements as NumPy's, in any order and shape."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from networks.exported.views import Merged, View
from networks.training.network import Value
from tests.support.onboard.kernels import Array

SIZES = st.lists(st.sampled_from([1, 2, 3, 4]), max_size=4)


def numbers(view: View) -> Array:
    """The elements of a view of 0, 1, 2 ..."""
    stored = np.arange(view.value.elements, dtype=np.int64)
    strides = [8 * stride for stride in view.strides]
    return np.lib.stride_tricks.as_strided(stored[view.offset :], view.shape, strides)


@st.composite
def permuted_views(draw: st.DrawFn) -> View:
    """A whole tensor with its axes in some order."""
    shape = tuple(draw(SIZES))
    view = View.whole(Value("x", shape, "activation"))
    return view.permuted(tuple(draw(st.permutations(range(len(shape))))))


@given(view=permuted_views(), data=st.data())
def test_the_stored_order_can_be_undone(view: View, data: st.DataObject) -> None:
    last = data.draw(st.integers(0, len(view.shape)))
    stored, back = view.in_stored_order(last)
    assert np.array_equal(numbers(stored.permuted(back)), numbers(view))
    count = len(view.shape) - last
    assert stored.shape[count:] == view.shape[count:]
    assert last > 0 or stored.is_row_major


@given(view=permuted_views(), data=st.data())
def test_axes_that_were_merged_are_taken_apart(view: View, data: st.DataObject) -> None:
    """Whatever order the merged axes are brought into, the elements are those of a copy."""
    ends = data.draw(st.sets(st.integers(0, len(view.shape))))
    parts = np.split(np.array(view.shape, int), sorted(ends))
    shape = tuple(math.prod(map(int, part)) for part in parts)
    merged = Merged.of(view, shape)
    assert merged is not None
    order = tuple(data.draw(st.permutations(range(len(shape)))))
    expected = numbers(view).reshape(shape).transpose(order)
    found = merged.permuted(order)
    assert sum(found.counts) == len(found.view.shape)
    assert np.array_equal(numbers(found.view).reshape(expected.shape), expected)


def test_an_axis_of_the_one_shape_may_be_several_of_the_other() -> None:
    """As where samples and heads are merged: (6, 3, 16) becomes (6, 6, 8)."""
    view = View.whole(Value("x", (3, 6, 16), "activation")).permuted((1, 0, 2))
    merged = Merged.of(view, (6, 6, 8))
    assert merged is not None
    assert (merged.view.shape, merged.counts) == ((6, 3, 2, 8), (1, 2, 1))


def test_axes_with_a_remainder_are_not_merged() -> None:
    view = View.whole(Value("x", (4, 9), "activation")).permuted((1, 0))
    assert Merged.of(view, (6, 6)) is None
