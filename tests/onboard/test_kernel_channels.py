"""Operations on some channels, heads or elements: they have the bits of the operation on all."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from devices.operation import SIGNATURES, Operand, OpSpec
from tests.support.onboard.kernels import Array, KernelLibraries, KernelLibrary, fill, kinds_of

Sizes = Mapping[str, int]
Draw = Callable[[int, int], int]


@pytest.fixture(params=["in-tree", pytest.param("small-tiles", marks=pytest.mark.slow)])
def library(request: pytest.FixtureRequest, libraries: KernelLibraries) -> KernelLibrary:
    return libraries[request.param]


_NUMBERED = {"dropout", "relu_bits", "leaky_relu_bits", "clamp_bits"}  # number their elements
_SUMMED = {"mean_squared_error", "binary_cross_entropy"}
_WHOLE = {"packing"}  # of a whole tensor on its way: how short it becomes depends on all of it
_ELEMENTS = tuple(
    kind
    for kind, signature in SIGNATURES.items()
    if signature.attributes == ("elements",)
    and kind.partition(".")[0] not in _NUMBERED | _SUMMED | _WHOLE
)
_POOLS = [*kinds_of("max_pool2d"), *kinds_of("average_pool2d")]
_SIDES = ("height", "width")
_PADS = ("pad_top", "pad_bottom", "pad_left", "pad_right")


def _windows(integer: Draw) -> Sizes:
    return {
        **{f"in_{side}": integer(5, 20) for side in _SIDES},
        **{f"kernel_{side}": integer(1, 4) for side in _SIDES},
        **{f"stride_{side}": integer(1, 3) for side in _SIDES},
        **{pad: integer(0, 1) for pad in _PADS},
    }


def _upsampling(integer: Draw) -> Sizes:
    heights = {f"in_{side}": integer(1, 9) for side in _SIDES}
    return {**heights, **{f"factor_{side}": integer(1, 3) for side in _SIDES}}


def _bilinear(integer: Draw) -> Sizes:
    sizes = {f"{what}_{side}": integer(1, 9) for what in ("in", "out") for side in _SIDES}
    return {**sizes, "align_corners": integer(0, 1)}


def _attention(integer: Draw) -> Sizes:
    plain = dict.fromkeys(("dropout", "packed", "mask_batch", "mask_heads", "mask_queries"), 0)
    sizes = {name: integer(1, 70) for name in ("queries", "keys", "head_features")}
    return {**plain, **sizes, "causal": integer(0, 1)}


def _matmul(integer: Draw) -> Sizes:
    names = [f"{side}_{how}" for side in ("left", "right") for how in ("transposed", "interleaved")]
    sizes = {name: integer(1, 40) for name in ("rows", "depth", "columns")}
    return {**sizes, **{name: integer(0, 1) for name in names}}


# Kinds, the sizes that count channels, and all others; `batch` is drawn for all.
_CASES: tuple[tuple[tuple[str, ...], tuple[str, ...], Callable[[Draw], Sizes]], ...] = (
    (_ELEMENTS, ("elements",), lambda _: {}),
    (
        (*kinds_of("batch_norm"), *kinds_of("batch_norm_frozen"), *kinds_of("global_average_pool")),
        ("channels",),
        lambda integer: {"plane": integer(1, 80)},
    ),
    (tuple(_POOLS), ("channels",), _windows),
    (tuple(kinds_of("upsample_nearest2d")), ("channels",), _upsampling),
    (tuple(kinds_of("upsample_bilinear2d")), ("channels",), _bilinear),
    (  # depthwise
        tuple(kinds_of("conv2d")),
        ("in_channels", "out_channels", "groups"),
        lambda integer: {**_windows(integer), "bias": integer(0, 1)},
    ),
    (
        tuple(kinds_of("group_norm")),
        ("channels", "groups"),
        lambda integer: {"plane": integer(1, 50)},
    ),
    (
        (*kinds_of("attention_scores"), *kinds_of("attention_context")),
        ("heads",),
        lambda integer: {"sequence": integer(1, 40), "head_features": integer(1, 40)},
    ),
    (tuple(kinds_of("attention")), ("heads", "key_heads"), _attention),
    (tuple(kinds_of("matmul")), ("heads",), _matmul),
    (
        tuple(kinds_of("softmax")),
        ("rows",),
        lambda integer: {"columns": integer(1, 80)},
    ),
    *(
        (
            (*kinds_of("broadcast_add"), *kinds_of("broadcast_multiply"), *kinds_of("reduce")),
            (axis,),
            lambda integer, other=other: {
                other: integer(1, 5),
                "outer": integer(1, 40),
                "between": integer(1, 40),
            },
        )
        for axis, other in (("middle", "inner"), ("inner", "middle"))
    ),
)


@st.composite
def cuts(draw: st.DrawFn) -> tuple[OpSpec, OpSpec, int, int]:
    """An operation, that on a part of its channels, the first of these, and the number of all."""
    kinds, names, others = draw(st.sampled_from(_CASES))
    kind = draw(st.sampled_from(kinds))
    integer: Draw = lambda low, high: draw(st.integers(low, high))  # noqa: E731
    # A single group is an ordinary convolution, and a single feature is summed as a vector is.
    least = 2 if kind.startswith("conv2d.") or names == ("inner",) else 1
    whole = integer(least, 1000 if names == ("elements",) else 40)
    first = integer(0, whole - least)
    count = integer(least, whole - first)
    sizes = {**others(integer), "batch": integer(1, 3)}
    attributes = {name: sizes[name] for name in SIGNATURES[kind].attributes if name not in names}
    return (
        OpSpec.of(kind, **attributes, **dict.fromkeys(names, whole)),
        OpSpec.of(kind, **attributes, **dict.fromkeys(names, count)),
        first,
        whole,
    )


def part_of(value: Array, whole: Operand, part: Operand, first: int, channels: int) -> Array:
    """What a part reads or writes of an operand: a range of the axis along which they differ."""
    found = value.reshape(whole.shape)
    for axis, (size, fewer) in enumerate(zip(whole.shape, part.shape, strict=True)):
        if size != fewer:
            begin = first * (size // channels)
            return found.take(range(begin, begin + fewer), axis)
    return found


@pytest.mark.slow
@given(cut=cuts())
@settings(
    max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_an_operation_on_some_channels_is_a_part_of_the_whole(
    cut: tuple[OpSpec, OpSpec, int, int], library: KernelLibrary
) -> None:
    whole, part, first, channels = cut
    values = [fill(operand, seed) for seed, operand in enumerate(whole.reads)]
    scalars = [0.125 * (1 + number) for number, _ in enumerate(whole.signature.scalars)]
    reads = [
        part_of(value, of_whole, of_part, first, channels)
        for value, of_whole, of_part in zip(values, whole.reads, part.reads, strict=True)
    ]
    expected = library.run(whole, values, scalars)
    for found, value, of_whole, of_part in zip(
        library.run(part, reads, scalars), expected, whole.writes, part.writes, strict=True
    ):
        same = part_of(value, of_whole, of_part, first, channels)
        assert found.tobytes() == same.tobytes(), f"{of_part.role} from {first} on of {whole.key}"
