"""Parts of convolutions, linear layers and embeddings: together, they have the whole one's bits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from devices.operation import OperationError, OpSpec
from devices.signatures.parts import needs_columns
from tests.support.onboard.kernels import (
    Array,
    KernelLibraries,
    KernelLibrary,
)
from tests.support.onboard.layers import (
    assert_same_bits,
    convolution,
    convolutions,
    drawn_cuts,
    linear,
    linears,
    pointwise_sizes,
    values_of,
)


@pytest.fixture(
    params=[
        "in-tree",
        *(pytest.param(build, marks=pytest.mark.slow) for build in ("small-tiles", "cblas")),
    ]
)
def library(request: pytest.FixtureRequest, libraries: KernelLibraries) -> KernelLibrary:
    return libraries[request.param]


class Parts:
    """The parts of a layer, on operands that they share with the whole operation."""

    def __init__(self, library: KernelLibrary, forward: OpSpec, cuts: Sequence[int]) -> None:
        self.library, self.forward, self.cuts = library, forward, cuts
        self.roles = values_of(forward)

    def whole(self, entry: str) -> list[Array]:
        spec = OpSpec.of(f"{self.forward.family}.{entry}", **self.forward.attributes)
        return self.library.run(spec, [self.roles[operand.role] for operand in spec.reads])

    def chained(
        self, entry: str, *, in_place: bool, **more: int
    ) -> tuple[OpSpec, Array]:  # the last part and its result
        for spec, written in self.each(entry, in_place=in_place, **more):
            last = spec, written[0]
        return last

    def each(
        self, entry: str, *, in_place: bool = False, **more: int
    ) -> Iterator[tuple[OpSpec, list[Array]]]:
        """Every part with what it writes; the next one reads that."""
        before: list[Array] = []
        for first, end in pairwise(self.cuts):
            spec = OpSpec.of(
                f"{self.forward.family}_part.{entry}",
                **{**self.forward.attributes, "first": first, "channels": end - first, **more},
            )
            reads = [
                self.roles[operand.role][first:end]
                if operand.role in {"weight", "bias", "table"}
                else self.roles.get(operand.role, before[0] if before else np.empty(0))
                for operand in spec.reads
            ]
            before = self.library.run(spec, reads, in_place=in_place)
            yield spec, before


some = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

RESNET = convolution(batch=1, in_channels=64, in_height=4, in_width=4, out_channels=300)
"""Deep enough for several blocks of a matrix product, and for several tiles of channels."""

WIDE = convolution(batch=1, in_channels=40, in_height=40, in_width=40, out_channels=9)
"""Several tiles of rows."""

BATCH = convolution(batch=5, in_channels=12, in_height=3, in_width=5, out_channels=70)
"""Tiles of several images."""

POINTWISE = convolution(
    **pointwise_sizes(), batch=5, in_channels=9, in_height=2, in_width=3, out_channels=70
)
"""Windows of one element in tiles of several images."""


@given(spec=st.one_of(convolutions(), linears()), in_place=st.booleans(), data=st.data())
@some
def test_parts_of_a_forward_pass_are_the_whole(
    spec: OpSpec, in_place: bool, data: st.DataObject, library: KernelLibrary
) -> None:
    size = spec.reads[1].shape[0]
    parts = Parts(library, spec, drawn_cuts(data, size))
    last, found = parts.chained("forward", in_place=in_place)
    assert_same_bits(library, found, parts.whole("forward")[0], last.key)


@given(spec=st.one_of(convolutions(), linears()), data=st.data())
@some
def test_parts_of_a_parameter_gradient_are_the_whole(
    spec: OpSpec, data: st.DataObject, library: KernelLibrary
) -> None:
    parts = Parts(library, spec, drawn_cuts(data, spec.reads[1].shape[0]))
    found = [written for _, written in parts.each("parameter_gradient")]
    for pieces, whole in zip(
        zip(*found, strict=True), parts.whole("parameter_gradient"), strict=True
    ):
        assert_same_bits(library, np.concatenate(pieces), whole, spec.key)


@st.composite
def lookups(draw: st.DrawFn) -> OpSpec:
    names = ("rows", "vocabulary", "features")
    sizes = {
        name: draw(st.integers(1, high)) for name, high in zip(names, (20, 60, 40), strict=True)
    }
    if draw(st.booleans()):
        return OpSpec.of("embedding.forward", **sizes)
    padding = draw(st.integers(0, sizes["vocabulary"] - 1))
    return OpSpec.of("embedding_padded.forward", **sizes, padding_index=padding)


@given(spec=lookups(), in_place=st.booleans(), data=st.data())
@some
def test_parts_of_a_table_are_the_whole(
    spec: OpSpec, in_place: bool, data: st.DataObject, library: KernelLibrary
) -> None:
    parts = Parts(library, spec, drawn_cuts(data, spec.attributes["vocabulary"]))
    _, found = parts.chained("forward", in_place=in_place)
    assert found.tobytes() == parts.whole("forward")[0].tobytes()
    gradients = [written for _, (written,) in parts.each("parameter_gradient")]
    assert np.concatenate(gradients).tobytes() == parts.whole("parameter_gradient")[0].tobytes()


@given(spec=linears(), in_place=st.booleans(), data=st.data())
@some
def test_parts_of_a_linear_input_gradient_are_the_whole(
    spec: OpSpec, in_place: bool, data: st.DataObject, library: KernelLibrary
) -> None:
    parts = Parts(library, spec, drawn_cuts(data, spec.attributes["out_features"]))
    last, found = parts.chained("input_gradient", in_place=in_place)
    assert_same_bits(library, found, parts.whole("input_gradient")[0], last.key)


@given(
    spec=convolutions([(1, 1)]).filter(lambda spec: not needs_columns(spec.attributes)),
    in_place=st.booleans(),
    data=st.data(),
)
@some
def test_an_input_gradient_is_gathered_where_the_image_keeps_its_size(
    spec: OpSpec, in_place: bool, data: st.DataObject, library: KernelLibrary
) -> None:
    parts = Parts(library, spec, drawn_cuts(data, spec.attributes["out_channels"]))
    last, found = parts.chained("input_gradient", in_place=in_place)
    assert_same_bits(library, found, parts.whole("input_gradient")[0], last.key)


@given(
    spec=convolutions().filter(lambda spec: needs_columns(spec.attributes)),
    in_place=st.booleans(),
    data=st.data(),
)
@some
def test_folded_columns_of_all_parts_and_ranges_are_the_whole_input_gradient(
    spec: OpSpec, in_place: bool, data: st.DataObject, library: KernelLibrary
) -> None:
    parts = Parts(library, spec, drawn_cuts(data, spec.attributes["out_channels"]))
    ranges = drawn_cuts(data, spec.attributes["in_channels"])
    assert_columns_fold_into_the_whole(parts, ranges, in_place=in_place)


def assert_columns_fold_into_the_whole(
    parts: Parts, ranges: Sequence[int], *, in_place: bool
) -> None:
    before: list[Array] = []
    for first, end in pairwise(ranges):
        inputs = {"first_input": first, "inputs": end - first}
        _, columns = parts.chained("columns_gradient", in_place=in_place, **inputs)
        fold = OpSpec.of("conv2d_part.fold", **parts.forward.attributes, **inputs)
        reads = [columns, *before] if first else [columns]
        before = parts.library.run(fold, reads, in_place=in_place)
    assert_same_bits(parts.library, before[0], parts.whole("input_gradient")[0], parts.forward.key)


@pytest.mark.parametrize("spec", [RESNET, WIDE, BATCH, POINTWISE], ids=str)
@pytest.mark.parametrize("cuts", [[0, 1], [0, 3, 4, 8]], ids=str)
def test_convolutions_of_many_tiles_can_be_cut(
    spec: OpSpec, cuts: list[int], library: KernelLibrary
) -> None:
    parts = Parts(library, spec, [*cuts, spec.attributes["out_channels"]])
    _, output = parts.chained("forward", in_place=True)
    assert_same_bits(library, output, parts.whole("forward")[0], spec.key)
    pieces = [written[0] for _, written in parts.each("parameter_gradient")]
    assert_same_bits(
        library, np.concatenate(pieces), parts.whole("parameter_gradient")[0], spec.key
    )
    _, gathered = parts.chained("input_gradient", in_place=True)
    assert_same_bits(library, gathered, parts.whole("input_gradient")[0], spec.key)
    strided = Parts(library, convolution(**{**spec.attributes, "stride_height": 2}), parts.cuts)
    ranges = [0, 2, spec.attributes["in_channels"]]
    assert_columns_fold_into_the_whole(strided, ranges, in_place=True)


@pytest.mark.parametrize(
    ("batch", "channels", "size", "kernel"),
    [(1, 64, 32, 3), (1, 512, 4, 3), (8, 512, 4, 3), (8, 256, 6, 1), (1, 3, 48, 7)],
)
def test_parts_of_a_convolution_need_little_workspace(
    batch: int, channels: int, size: int, kernel: int, library: KernelLibrary
) -> None:
    pads = ("pad_top", "pad_bottom", "pad_left", "pad_right")
    whole = convolution(
        batch=batch, in_channels=channels, in_height=size, in_width=size, out_channels=512,
        kernel_height=kernel, kernel_width=kernel, **dict.fromkeys(pads, kernel // 2),
    )  # fmt: skip
    strided = convolution(**{**whole.attributes, "stride_height": 2, "stride_width": 2})
    inputs = {"first_input": 0, "inputs": channels}
    specs = [
        OpSpec.of(f"conv2d_part.{entry}", **layer.attributes, first=8, channels=8, **more)
        for layer, entry, more in (
            (whole, "forward", {}),
            (whole, "parameter_gradient", {}),
            (whole, "input_gradient", {}),
            (strided, "columns_gradient", inputs),
        )
    ]
    specs.append(OpSpec.of("conv2d_part.fold", **strided.attributes, **inputs))
    for spec in specs:
        assert library.workspace_bytes(spec) <= 192 * 1024, spec.key


def test_a_part_leaves_the_channels_of_the_parts_before_as_they_are(
    library: KernelLibrary,
) -> None:
    parts = Parts(library, convolution(batch=2), [0, 3, 7])
    (_, one), (_, two) = parts.each("forward")
    assert_same_bits(library, two[0][:, :3], one[0][:, :3], "channels of the first part")


@pytest.mark.parametrize(
    ("kind", "changed", "said"),
    [
        ("conv2d_part.forward", {"first": 5, "channels": 3}, r"first=5 and channels=3 exceed out_"),
        ("conv2d_part.forward", {"channels": 0}, "channels is 0"),
        (
            "conv2d_part.parameter_gradient",
            {"in_channels": 4, "out_channels": 8, "groups": 2},
            "conv2d_part: groups=2; only groups=1 can be cut",
        ),
        (
            "conv2d_part.fold",
            {"stride_width": 2, "first_input": 4, "inputs": 2},
            r"inputs=2 exceed in_channels=5",
        ),
        (
            "conv2d_part.input_gradient",
            {"pad_left": 0},
            "fewer positions than the image; use conv2d_part.columns_gradient and conv2d_part.fold",
        ),
        ("conv2d_part.fold", {}, "as many positions as the image; use conv2d_part.input_gradient"),
    ],
)
def test_what_is_no_part_is_refused(kind: str, changed: dict[str, int], said: str) -> None:
    usual = {**convolution().attributes, "first": 0, "channels": 2}
    if kind == "conv2d_part.fold":
        usual = {**convolution().attributes, "first_input": 0, "inputs": 5}
    with pytest.raises(OperationError, match=said):
        OpSpec.of(kind, **{**usual, **changed})


def test_the_first_part_reads_nothing_that_it_continues() -> None:
    attributes = {**linear(3, 4, 8).attributes, "channels": 2}
    first, second = (
        OpSpec.of("linear_part.input_gradient", **attributes, first=first) for first in (0, 2)
    )
    assert [operand.role for operand in first.reads] == ["output_gradient", "weight"]
    assert first.in_place == {}
    assert second.in_place == {"input_gradient": "input_gradient_before"}
