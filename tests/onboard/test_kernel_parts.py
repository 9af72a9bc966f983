"""Parts of convolutions, linear layers and embeddings: together, they have the whole one's bits."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, product

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
    """The parts of a layer, on operands that they share with the whole operation.

    ``cuts`` go through the output's channels or a table's rows, ``input_cuts`` through the input's
    channels.
    """

    def __init__(
        self,
        library: KernelLibrary,
        forward: OpSpec,
        cuts: Sequence[int],
        input_cuts: Sequence[int] = (),
    ) -> None:
        self.library, self.forward, self.cuts = library, forward, cuts
        self.input_cuts = input_cuts or [0, *forward.reads[1].shape[1:2]]
        self.roles = values_of(forward)

    def whole(self, entry: str) -> list[Array]:
        spec = OpSpec.of(f"{self.forward.family}.{entry}", **self.forward.attributes)
        return self.library.run(spec, [self.roles[operand.role] for operand in spec.reads])

    def chained(self, entry: str, *, in_place: bool) -> tuple[OpSpec, Array]:
        """The last part of a chain over both ranges, and its result."""
        places = product(pairwise(self.cuts), pairwise(self.input_cuts))
        if entry == "input_gradient":
            places = ((out, of) for of, out in product(*map(pairwise, self._by_input)))
        before: list[Array] = []
        for outputs, inputs in places:
            spec, before = self._run(entry, outputs, inputs, before, in_place=in_place)
        return spec, before[0]

    def columns(self, inputs: tuple[int, int], *, in_place: bool) -> Array:
        """The columns of some input channels, summed over all output channels."""
        before: list[Array] = []
        for outputs in pairwise(self.cuts):
            _, before = self._run("columns_gradient", outputs, inputs, before, in_place=in_place)
        return before[0]

    def parameter_gradients(self) -> list[Array]:
        """The gradients of all parts, put together."""
        found = []
        for inputs in pairwise(self.input_cuts):
            rows = [
                self._run("parameter_gradient", outputs, inputs, [])[1]
                for outputs in pairwise(self.cuts)
            ]
            found.append([np.concatenate(each) for each in zip(*rows, strict=True)])
        weights = np.concatenate([each[0] for each in found], axis=1)
        return [weights, *found[0][1:]]

    @property
    def _by_input(self) -> tuple[Sequence[int], Sequence[int]]:
        return self.input_cuts, self.cuts

    def _run(
        self,
        entry: str,
        outputs: tuple[int, int],
        inputs: tuple[int, int],
        before: list[Array],
        *,
        in_place: bool = False,
    ) -> tuple[OpSpec, list[Array]]:
        (first, end), (first_input, end_input) = outputs, inputs
        family, attributes = self.forward.family, self.forward.attributes
        part = {"first": first, "channels": end - first}
        if not family.startswith("embedding"):
            part |= {"first_input": first_input, "inputs": end_input - first_input}
            part["bias"] = attributes["bias"] if first_input == 0 else 0
        spec = OpSpec.of(f"{family}_part.{entry}", **{**attributes, **part})
        reads = []
        for operand in spec.reads:
            value = self.roles.get(operand.role, before[0] if before else np.empty(0))
            if operand.role in {"weight", "bias", "table"}:
                value = value[first:end]
            if operand.role == "weight":
                value = np.ascontiguousarray(value[:, first_input:end_input])
            reads.append(value)
        return spec, self.library.run(spec, reads, in_place=in_place)


def drawn_parts(data: st.DataObject, library: KernelLibrary, spec: OpSpec) -> Parts:
    """Parts of random numbers of output and input channels."""
    outputs, inputs, *_ = spec.reads[1].shape
    return Parts(library, spec, drawn_cuts(data, outputs), drawn_cuts(data, inputs))


some = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

RESNET = convolution(batch=1, in_channels=64, in_height=4, in_width=4, out_channels=300)
"""Deep enough for several blocks of a matrix product, and for several tiles of channels."""

SMALLEST = convolution(batch=1, in_channels=19, in_height=2, in_width=2, out_channels=41)
"""Planes that microcontrollers unfold in a way of their own, in several tiles of channels."""

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
    parts = drawn_parts(data, library, spec)
    last, found = parts.chained("forward", in_place=in_place)
    assert_same_bits(library, found, parts.whole("forward")[0], last.key)


@given(spec=st.one_of(convolutions(), linears()), data=st.data())
@some
def test_parts_of_a_parameter_gradient_are_the_whole(
    spec: OpSpec, data: st.DataObject, library: KernelLibrary
) -> None:
    parts = drawn_parts(data, library, spec)
    found, expected = parts.parameter_gradients(), parts.whole("parameter_gradient")
    for pieces, whole in zip(found, expected, strict=True):
        assert_same_bits(library, pieces, whole, spec.key)


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
    gradient = parts.parameter_gradients()[0]
    assert gradient.tobytes() == parts.whole("parameter_gradient")[0].tobytes()


@given(spec=linears(), in_place=st.booleans(), data=st.data())
@some
def test_parts_of_a_linear_input_gradient_are_the_whole(
    spec: OpSpec, in_place: bool, data: st.DataObject, library: KernelLibrary
) -> None:
    parts = drawn_parts(data, library, spec)
    last, found = parts.chained("input_gradient", in_place=in_place)
    assert_same_bits(library, found, parts.whole("input_gradient")[0], last.key)


@pytest.mark.slow
@given(
    spec=convolutions([(1, 1)]).filter(lambda spec: not needs_columns(spec.attributes)),
    in_place=st.booleans(),
    data=st.data(),
)
@some
def test_an_input_gradient_is_gathered_where_the_image_keeps_its_size(
    spec: OpSpec, in_place: bool, data: st.DataObject, library: KernelLibrary
) -> None:
    parts = drawn_parts(data, library, spec)
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
    assert_columns_fold_into_the_whole(drawn_parts(data, library, spec), in_place=in_place)


def assert_columns_fold_into_the_whole(parts: Parts, *, in_place: bool) -> None:
    before: list[Array] = []
    for first, end in pairwise(parts.input_cuts):
        columns = parts.columns((first, end), in_place=in_place)
        inputs = {"first_input": first, "inputs": end - first}
        fold = OpSpec.of("conv2d_part.fold", **parts.forward.attributes, **inputs)
        reads = [columns, *before] if first else [columns]
        before = parts.library.run(fold, reads, in_place=in_place)
    assert_same_bits(parts.library, before[0], parts.whole("input_gradient")[0], parts.forward.key)


@pytest.mark.parametrize("spec", [RESNET, SMALLEST, WIDE, BATCH, POINTWISE], ids=str)
@pytest.mark.parametrize("cuts", [[0, 1], [0, 3, 4, 8]], ids=str)
@pytest.mark.parametrize("input_cuts", [[0], [0, 2, 5]], ids=str)
def test_convolutions_of_many_tiles_can_be_cut(
    spec: OpSpec, cuts: list[int], input_cuts: list[int], library: KernelLibrary
) -> None:
    outputs, inputs, *_ = spec.reads[1].shape
    parts = Parts(library, spec, [*cuts, outputs], [*input_cuts, inputs])
    _, output = parts.chained("forward", in_place=True)
    assert_same_bits(library, output, parts.whole("forward")[0], spec.key)
    gradient = parts.parameter_gradients()[0]
    assert_same_bits(library, gradient, parts.whole("parameter_gradient")[0], spec.key)
    _, gathered = parts.chained("input_gradient", in_place=True)
    assert_same_bits(library, gathered, parts.whole("input_gradient")[0], spec.key)
    strided = convolution(**{**spec.attributes, "stride_height": 2})
    assert_columns_fold_into_the_whole(
        Parts(library, strided, parts.cuts, parts.input_cuts), in_place=True
    )


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
        OpSpec.of(f"conv2d_part.{entry}", **layer.attributes, first=8, channels=8, **inputs)
        for layer, entry in (
            (whole, "forward"),
            (whole, "parameter_gradient"),
            (whole, "input_gradient"),
            (strided, "columns_gradient"),
        )
    ]
    specs.append(OpSpec.of("conv2d_part.fold", **strided.attributes, **inputs))
    for spec in specs:
        assert library.workspace_bytes(spec) <= 192 * 1024, spec.key


def test_a_part_leaves_the_channels_of_the_parts_before_as_they_are(
    library: KernelLibrary,
) -> None:
    spec = convolution(batch=2)
    _, one = Parts(library, spec, [0, 3]).chained("forward", in_place=False)
    _, two = Parts(library, spec, [0, 3, 7]).chained("forward", in_place=False)
    assert_same_bits(library, two[:, :3], one[:, :3], "channels of the first part")


@pytest.mark.parametrize(
    ("kind", "changed", "said"),
    [
        ("conv2d_part.forward", {"first": 5, "channels": 3}, r"first=5 and channels=3 exceed out_"),
        ("conv2d_part.forward", {"channels": 0}, "channels is 0"),
        (
            "conv2d_part.forward",
            {"first_input": 3, "inputs": 3, "bias": 0},
            r"first_input=3 and inputs=3 exceed in_channels=5",
        ),
        (
            "conv2d_part.parameter_gradient",
            {"first_input": 3, "inputs": 2},
            "bias=1 and first_input=3; the parts with the first inputs have the bias",
        ),
        (
            "conv2d_part.parameter_gradient",
            {"in_channels": 4, "inputs": 4, "out_channels": 8, "groups": 2},
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
    usual = {**convolution().attributes, "first_input": 0, "inputs": 5}
    if kind != "conv2d_part.fold":
        usual |= {"first": 0, "channels": 2}
    with pytest.raises(OperationError, match=said):
        OpSpec.of(kind, **{**usual, **changed})


def test_the_first_part_reads_nothing_that_it_continues() -> None:
    attributes = {**linear(3, 4, 8).attributes, "channels": 2, "inputs": 2}
    first, second, beside = (
        OpSpec.of("linear_part.input_gradient", **attributes, first=first, first_input=inputs)
        for first, inputs in ((0, 0), (2, 0), (0, 2))
    )
    assert [operand.role for operand in first.reads] == ["output_gradient", "weight"]
    assert first.in_place == {}
    for part in (second, beside):
        assert part.in_place == {"input_gradient": "input_gradient_before"}


def test_parts_that_do_the_same_work_elsewhere_have_one_cost() -> None:
    """Sums that go on have a cost of their own; channels beside those of others have not."""
    a = {**linear(3, 12, 20).attributes, "channels": 4, "inputs": 3}

    def costs(entry: str) -> set[tuple[int, int]]:
        specs = [
            OpSpec.of(
                f"linear_part.{entry}",
                **{**a, "bias": int(first_input == 0), "first": first, "first_input": first_input},
            ).costed_as
            for first in range(0, 20, 4)
            for first_input in range(0, 12, 3)
        ]
        return {(each.attributes["first"], each.attributes["first_input"]) for each in specs}

    assert costs("forward") == {(0, 0), (0, 3)}
    assert costs("input_gradient") == {(0, 0), (4, 0)}
    assert costs("parameter_gradient") == {(0, 0)}


def test_a_key_from_before_there_were_ranges_of_inputs_means_all_inputs() -> None:
    spec = OpSpec.of(
        "linear_part.forward",
        **linear(3, 4, 8).attributes,
        **{"first": 2, "channels": 2, "first_input": 0, "inputs": 4},
    )
    old = spec.key.replace(" first_input=0 inputs=4", "")
    assert old != spec.key
    assert OpSpec.parse(old) == spec
