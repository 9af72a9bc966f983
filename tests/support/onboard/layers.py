"""Convolutions and linear layers of random sizes, and random cuts through them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st

from devices.operation import OpSpec
from tests.support.onboard.kernels import Array, KernelLibrary, fill


def convolution(**sizes: int) -> OpSpec:
    """A convolution of 3 x 3 windows with padding, unless stated otherwise."""
    sides = ("pad_top", "pad_bottom", "pad_left", "pad_right")
    usual = {
        **{"batch": 1, "in_channels": 5, "in_height": 8, "in_width": 8, "out_channels": 7},
        **{"kernel_height": 3, "kernel_width": 3, "stride_height": 1, "stride_width": 1},
        **{**dict.fromkeys(sides, 1), "groups": 1, "bias": 1},
    }
    return OpSpec.of("conv2d.forward", **{**usual, **sizes})


def linear(rows: int, in_features: int, out_features: int, bias: int = 1) -> OpSpec:
    sizes = {"rows": rows, "in_features": in_features, "out_features": out_features, "bias": bias}
    return OpSpec.of("linear.forward", **sizes)


def pointwise_sizes() -> dict[str, int]:
    """Attributes of windows of one element, with stride 1 and without padding."""
    sides = ("height", "width")
    pads = ("pad_top", "pad_bottom", "pad_left", "pad_right")
    ones = (f"{what}_{side}" for what in ("kernel", "stride") for side in sides)
    return {**dict.fromkeys(ones, 1), **dict.fromkeys(pads, 0)}


@st.composite
def convolutions(
    draw: st.DrawFn, strides: Sequence[tuple[int, int]] = ((1, 1), (1, 2), (2, 1), (3, 2))
) -> OpSpec:
    def integer(low: int, high: int) -> int:
        return draw(st.integers(low, high))

    stride = draw(st.sampled_from(strides))
    if stride == (1, 1) and draw(st.booleans()):
        window = pointwise_sizes()
    else:
        window = {f"kernel_{side}": integer(1, 4) for side in ("height", "width")}
        window |= {"stride_height": stride[0], "stride_width": stride[1]}
        window |= {f"pad_{side}": integer(0, 3) for side in ("top", "bottom", "left", "right")}
    return convolution(
        **window,
        batch=integer(1, 5),
        # Weight gradients of multiples of 16 channels have a way of their own.
        in_channels=draw(st.one_of(st.integers(1, 20), st.sampled_from((16, 32)))),
        in_height=integer(window["kernel_height"], 12),
        in_width=integer(window["kernel_width"], 40),
        out_channels=integer(1, 90),
        bias=integer(0, 1),
    )


@st.composite
def linears(draw: st.DrawFn) -> OpSpec:
    sizes = (draw(st.integers(1, high)) for high in (20, 300, 600))
    return linear(*sizes, bias=draw(st.integers(0, 1)))


def drawn_cuts(data: st.DataObject, whole: int) -> list[int]:
    """0, some numbers between, and the whole."""
    inner = data.draw(st.sets(st.integers(1, whole - 1), max_size=4)) if whole > 1 else set()
    return [0, *sorted(inner), whole]


def values_of(forward: OpSpec) -> dict[str, Array]:
    """Operands of a layer's operations by role, but for gradients that they write."""
    roles = {operand.role: fill(operand, seed) for seed, operand in enumerate(forward.reads)}
    roles["output_gradient"] = fill(forward.writes[0], 10)
    # Zeros of both signs, and products that underflow to them.
    roles["output_gradient"].reshape(-1)[::7] = -0.0
    roles["output_gradient"].reshape(-1)[1::7] = -1e-38
    return roles


def assert_same_bits(library: KernelLibrary, found: Array, expected: Array, what: str) -> None:
    """Assert the same bits, or with a BLAS, which promises no order of its sums, close values."""
    if library.matmul == "in-tree":
        assert found.tobytes() == expected.tobytes(), what
    else:
        largest = float(np.max(np.abs(expected), initial=0.1))
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 * largest, err_msg=what)
