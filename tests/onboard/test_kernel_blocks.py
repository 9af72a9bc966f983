"""Blocks between parts of activations: chains of them have the bits of the whole operation."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from devices.operation import OperationError, OpSpec
from devices.signatures.blocks import block_shape
from devices.signatures.parts import needs_columns
from tests.support.onboard.kernels import Array, KernelLibraries, KernelLibrary, fill
from tests.support.onboard.layers import (
    assert_same_bits,
    convolution,
    convolutions,
    drawn_cuts,
    linear,
    linears,
    values_of,
)

Range: TypeAlias = tuple[int, int]


@pytest.fixture(
    params=[
        "in-tree",
        *(pytest.param(build, marks=pytest.mark.slow) for build in ("small-tiles", "cblas")),
    ]
)
def library(request: pytest.FixtureRequest, libraries: KernelLibraries) -> KernelLibrary:
    return libraries[request.param]


some = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

_SIZES = {"conv2d": ("in_channels", "out_channels"), "linear": ("in_features", "out_features")}


class Blocks:
    """The blocks of a layer between parts of its input and of its output."""

    def __init__(
        self, library: KernelLibrary, forward: OpSpec, inputs: Sequence[int], outputs: Sequence[int]
    ) -> None:
        self.library, self.forward, self.roles = library, forward, values_of(forward)
        self.inputs, self.outputs = list(pairwise(inputs)), list(pairwise(outputs))
        self.in_place = False

    def whole(self, entry: str) -> list[Array]:
        spec = OpSpec.of(f"{self.forward.family}.{entry}", **self.forward.attributes)
        return self.library.run(spec, [self.roles[operand.role] for operand in spec.reads])

    def output(self) -> Array:
        parts = (
            self._chain("forward", [(channels, out) for channels in self.inputs])
            for out in self.outputs
        )
        return np.concatenate(list(parts), axis=1)

    def input_gradient(self) -> Array:
        is_folded = self.forward.family == "conv2d" and needs_columns(self.forward.attributes)
        entry = "columns_gradient" if is_folded else "input_gradient"
        parts = []
        for channels in self.inputs:
            part = self._chain(entry, [(channels, out) for out in self.outputs])
            if is_folded:
                count = channels[1] - channels[0]
                attributes = {**self.forward.attributes, "in_channels": count}
                fold = OpSpec.of("conv2d_part.fold", **attributes, first_input=0, inputs=count)
                (part,) = self.library.run(fold, [part], in_place=self.in_place)
            parts.append(part)
        return np.concatenate(parts, axis=1)

    def parameter_gradient(self) -> list[Array]:
        """The gradients of the weight and the bias, by ordinary operations."""
        rows, biases = [], []
        for out in self.outputs:
            blocks = []
            for channels in self.inputs:
                bias = self.forward.attributes["bias"] and channels[0] == 0
                spec = self._spec(
                    f"{self.forward.family}.parameter_gradient", channels, out, bias=bias
                )
                weight, *of_bias = self.library.run(spec, self._reads(spec, channels, out))
                blocks.append(weight)
                biases.extend(of_bias)
            rows.append(np.concatenate(blocks, axis=1))
        return [np.concatenate(rows), *([np.concatenate(biases)] if biases else [])]

    def _chain(self, entry: str, blocks: Iterable[tuple[Range, Range]]) -> Array:
        before: list[Array] = []
        for number, (channels, out) in enumerate(blocks):
            is_first = number == 0
            bias = self.forward.attributes["bias"] and (is_first or entry != "forward")
            spec = self._spec(
                f"{self.forward.family}_block.{entry}", channels, out, bias=bias,
                continued=not is_first,
            )  # fmt: skip
            reads = [*self._reads(spec, channels, out), *before]
            before = self.library.run(spec, reads, in_place=self.in_place)
        return before[0]

    def _spec(self, kind: str, channels: Range, out: Range, **more: int) -> OpSpec:
        sizes = dict(zip(_SIZES[self.forward.family], map(_count, (channels, out)), strict=True))
        changed = {name: int(value) for name, value in more.items()}
        return OpSpec.of(kind, **{**self.forward.attributes, **sizes, **changed})

    def _reads(self, spec: OpSpec, channels: Range, out: Range) -> list[Array]:
        """The parts that a block reads of what the whole operation reads."""
        ins, outs = slice(*channels), slice(*out)
        parts = {
            "input": self.roles["input"][:, ins],
            "output_gradient": self.roles["output_gradient"][:, outs],
            "weight": self.roles["weight"][outs, ins],
            **({"bias": self.roles["bias"][outs]} if "bias" in self.roles else {}),
        }
        return [parts[operand.role] for operand in spec.reads if operand.role in parts]


def _count(channels: Range) -> int:
    return channels[1] - channels[0]


def assert_blocks_are_the_whole(blocks: Blocks) -> None:
    spec, library = blocks.forward, blocks.library
    assert_same_bits(library, blocks.output(), blocks.whole("forward")[0], spec.key)
    gradient = blocks.whole("input_gradient")[0]
    assert_same_bits(library, blocks.input_gradient(), gradient, spec.key)
    for found, whole in zip(
        blocks.parameter_gradient(), blocks.whole("parameter_gradient"), strict=True
    ):
        assert_same_bits(library, found, whole, spec.key)


@given(spec=st.one_of(convolutions(), linears()), in_place=st.booleans(), data=st.data())
@some
def test_chains_of_blocks_are_the_whole(
    spec: OpSpec, in_place: bool, data: st.DataObject, library: KernelLibrary
) -> None:
    out, channels, *_ = spec.reads[1].shape
    blocks = Blocks(library, spec, drawn_cuts(data, channels), drawn_cuts(data, out))
    blocks.in_place = in_place
    assert_blocks_are_the_whole(blocks)


@pytest.mark.parametrize(
    "spec",
    [
        convolution(in_channels=300, in_height=4, in_width=4, out_channels=70),  # many tiles
        convolution(in_channels=40, in_height=40, in_width=40, out_channels=9),
        convolution(batch=5, in_channels=70, in_height=3, in_width=5, out_channels=70),
        convolution(batch=5, in_channels=70, in_height=6, in_width=9, stride_width=3),
        linear(3, 700, 300),
    ],
    ids=str,
)
def test_layers_of_many_tiles_can_be_cut_into_blocks(spec: OpSpec, library: KernelLibrary) -> None:
    out, channels, *_ = spec.reads[1].shape
    assert_blocks_are_the_whole(Blocks(library, spec, [0, 3, 4, 36, channels], [0, 1, 5, out]))


@pytest.mark.parametrize("entry", ["forward", "input_gradient", "columns_gradient"])
@pytest.mark.parametrize(("channels", "size", "kernel"), [(64, 32, 3), (512, 4, 3), (256, 6, 1)])
def test_blocks_of_a_convolution_need_little_workspace(
    entry: str, channels: int, size: int, kernel: int, library: KernelLibrary
) -> None:
    pads = ("pad_top", "pad_bottom", "pad_left", "pad_right")
    stride = 2 if entry == "columns_gradient" else 1
    sizes = convolution(
        in_channels=channels, in_height=size, in_width=size, out_channels=512, bias=0,
        kernel_height=kernel, kernel_width=kernel, stride_height=stride,
        **dict.fromkeys(pads, kernel // 2),
    ).attributes  # fmt: skip
    spec = OpSpec.of(f"conv2d_block.{entry}", **sizes, continued=1)
    assert library.workspace_bytes(spec) <= 192 * 1024


@pytest.mark.parametrize(
    ("kind", "changed", "said"),
    [
        ("conv2d_block.forward", {"bias": 1}, "bias=1 and continued=1; the first block has the"),
        ("conv2d_block.forward", {"in_channels": 4, "out_channels": 8, "groups": 2}, "only groups"),
        ("conv2d_block.input_gradient", {"stride_height": 2}, "use conv2d_block.columns_gradient"),
        ("conv2d_block.columns_gradient", {}, "use conv2d_block.input_gradient"),
    ],
)
def test_what_is_no_block_is_refused(kind: str, changed: dict[str, int], said: str) -> None:
    with pytest.raises(OperationError, match=said):
        OpSpec.of(kind, **{**convolution(bias=0).attributes, "continued": 1, **changed})


@given(
    weight=st.tuples(*[st.integers(1, 600)] * 2, *[st.integers(1, 5)] * 2),
    most_bytes=st.integers(1, 1 << 20),
)
@settings(max_examples=300)
def test_blocks_are_within_their_size_and_few(weight: tuple[int, ...], most_bytes: int) -> None:
    outputs, inputs, *window = weight
    rows, columns = block_shape(weight, most_bytes)
    pair_bytes = 4 * math.prod(window)
    assert 1 <= rows <= outputs
    assert 1 <= columns <= inputs
    assert rows * columns * pair_bytes <= max(most_bytes, pair_bytes)
    fewest = -(-outputs * inputs * pair_bytes // max(most_bytes, pair_bytes))
    assert -(-outputs // rows) * -(-inputs // columns) <= 2.5 * (fewest + 1)


def test_blocks_are_about_square_and_of_few_sizes() -> None:
    assert block_shape((512, 512, 3, 3), 16 << 10) == (24, 16)
    assert block_shape((256, 256, 3, 3), 1 << 20) == (128, 128)
    assert block_shape((64, 3, 7, 7), 16 << 10) == (24, 3)
    assert block_shape((512, 512, 3, 3), 64 << 10, most_inputs=8) == (176, 8)


# --- cross entropy over parts of the classes ------------------------------------------------------


@st.composite
def logits(draw: st.DrawFn) -> Array:
    rows, classes = draw(st.integers(1, 5)), draw(st.integers(1, 300))
    largest = draw(st.sampled_from([1.0, 30.0, 3e4]))
    values = fill(OpSpec.of("softmax.forward", rows=rows, columns=classes).reads[0], rows)
    for value in draw(st.lists(st.sampled_from([-np.inf, np.nan, -0.0, 0.0]), max_size=2)):
        values.reshape(-1)[draw(st.integers(0, values.size - 1))] = value
    return values * np.float32(largest)


def of_loss(kind: str, logits: Array, cut: Range | None = None) -> OpSpec:
    rows, classes = logits.shape
    more = {} if cut is None else {"first": cut[0], "channels": _count(cut)}
    return OpSpec.of(kind, rows=rows, classes=classes, **more)


@given(logits=logits(), share=st.sampled_from([1.0, 0.25]), in_place=st.booleans(), data=st.data())
@example(logits=fill(OpSpec.of("softmax.forward", rows=3, columns=5000).reads[0], 1), share=1.0,
         in_place=True, data=None)  # fmt: skip
@some
def test_cross_entropy_over_parts_of_the_classes_is_the_whole(
    logits: Array, share: float, in_place: bool, data: st.DataObject | None, library: KernelLibrary
) -> None:
    rows, classes = logits.shape
    cuts = [0, 1000, 1001, 4000, 5000] if data is None else drawn_cuts(data, classes)
    parts = list(pairwise(cuts))
    labels = fill(of_loss("softmax_cross_entropy.forward", logits).reads[1], classes)

    def run(kind: str, cut: Range, *reads: Array, scalars: Sequence[float] = ()) -> list[Array]:
        spec = of_loss(f"cross_entropy_block.{kind}", logits, cut)
        part = logits[:, slice(*cut)]
        return library.run(spec, [part, *reads], scalars, in_place=in_place)

    extremes: list[Array] = []
    for cut in parts:
        extremes = run("maximum", cut, labels, *extremes)
    sums: list[Array] = []
    for cut in parts:
        sums = run("sum", cut, extremes[0], *sums)
    loss = library.run(
        OpSpec.of("cross_entropy_block.loss", rows=rows), [*extremes, *sums], [share]
    )
    gradients = [
        run("input_gradient", cut, labels, extremes[0], *sums, scalars=[share])[0] for cut in parts
    ]
    for entry, found in (("forward", loss[0]), ("input_gradient", np.concatenate(gradients, 1))):
        spec = of_loss(f"softmax_cross_entropy.{entry}", logits)
        (whole,) = library.run(spec, [logits, labels], [share])
        np.testing.assert_array_equal(found, whole)
        if not np.isnan(whole).any():
            assert found.tobytes() == whole.tobytes()


@given(
    logits=logits(),
    by_weight=st.integers(0, 1),
    ignored=st.integers(-100, 3),
    in_place=st.booleans(),
    data=st.data(),
)
@some
def test_weighted_cross_entropy_over_parts_of_the_classes_is_the_whole(
    logits: Array,
    by_weight: int,
    ignored: int,
    in_place: bool,
    data: st.DataObject,
    library: KernelLibrary,
) -> None:
    rows, classes = logits.shape
    sizes = {"rows": rows, "classes": classes}
    parts = list(pairwise(drawn_cuts(data, classes)))
    whole = OpSpec.of("weighted_cross_entropy.forward", **sizes, by_weight=by_weight)
    labels, weights = (fill(operand, classes) for operand in whole.reads[1:])
    labels[:1] = data.draw(st.sampled_from([-1, classes, 0]))

    def run(kind: str, cut: Range, *reads: Array, **more: Sequence[float] | int) -> list[Array]:
        scalars = more.pop("scalars", ())
        spec = OpSpec.of(kind, **sizes, first=cut[0], channels=_count(cut), **more)
        return library.run(spec, [logits[:, slice(*cut)], *reads], scalars, in_place=in_place)

    extremes: list[Array] = []
    sums: list[Array] = []
    for cut in parts:
        extremes = run("cross_entropy_block.maximum", cut, labels, *extremes)
    for cut in parts:
        sums = run("cross_entropy_block.sum", cut, extremes[0], *sums)
    of_all = OpSpec.of("weighted_cross_entropy_block.loss", **sizes, by_weight=by_weight)
    loss = library.run(of_all, [*extremes, *sums, labels, weights], [0.5, ignored])
    gradients = [
        run(
            "weighted_cross_entropy_block.input_gradient",
            cut,
            *(labels, extremes[0], *sums, weights),
            scalars=[0.5, ignored],
            by_weight=by_weight,
        )[0]
        for cut in parts
    ]
    for entry, found in (("forward", loss[0]), ("input_gradient", np.concatenate(gradients, 1))):
        spec = OpSpec.of(f"weighted_cross_entropy.{entry}", **whole.attributes)
        (expected,) = library.run(spec, [logits, labels, weights], [0.5, 0.0, ignored])
        np.testing.assert_array_equal(found, expected)
        if not np.isnan(expected).any():
            assert found.tobytes() == expected.tobytes()


# --- norms over parts of the features -------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("family", ["layer_norm", "rms_norm"])
@given(
    rows=st.integers(1, 5),
    features=st.integers(1, 200),
    are_zero=st.booleans(),
    in_place=st.booleans(),
    data=st.data(),
)
@example(rows=1, features=4, are_zero=True, in_place=False, data=None)  # a short sum of -0 alone
@some
def test_a_norm_over_parts_of_the_features_is_the_whole(
    family: str,
    rows: int,
    features: int,
    are_zero: bool,
    in_place: bool,
    data: st.DataObject | None,
    library: KernelLibrary,
) -> None:
    """``are_zero``: all elements of the input are -0."""
    sizes, scalars = {"rows": rows, "features": features}, [1e-3]
    parts = list(pairwise([0, 2, features] if data is None else drawn_cuts(data, features)))
    forward, gradient, of_parameters = (
        OpSpec.of(f"{family}.{entry}", **sizes)
        for entry in ("forward", "input_gradient", "parameter_gradient")
    )
    values = {each.role: fill(each, features) for each in (*gradient.reads, *forward.reads)}
    if are_zero:
        values["input"].fill(-0.0)

    def reads(spec: OpSpec, cut: Range) -> list[Array]:
        """Operands of a part: its columns of matrices, its elements of parameters."""
        roles = [operand.role for operand in spec.reads if operand.role in values]
        statistics = {"mean", "variance", "mean_square"}
        return [
            values[role] if role in statistics else values[role][..., slice(*cut)] for role in roles
        ]

    def each(entry: str, *more: Array, scalars: Sequence[float] = ()) -> list[Array]:
        found = []
        for cut in parts:
            spec = OpSpec.of(f"{family}_block.{entry}", **sizes, first=cut[0], channels=_count(cut))
            found += library.run(spec, [*reads(spec, cut), *more], scalars, in_place=in_place)
        return found

    def chain(entry: str, *more: Array) -> list[Array]:
        before: list[Array] = []
        for cut in parts:
            spec = OpSpec.of(f"{family}_block.{entry}", **sizes, first=cut[0], channels=_count(cut))
            operands = [*reads(spec, cut), *more, *before]
            before = library.run(spec, operands, in_place=in_place)
        return before

    sums = chain("sum") if family == "layer_norm" else []
    squares = chain("squares", *sums)
    statistics = library.run(OpSpec.of(f"{family}_block.statistics", **sizes), [*sums, *squares])
    output, *expected = library.run(forward, [values[o.role] for o in forward.reads], scalars)
    for found, whole in zip(statistics, expected, strict=True):
        assert found.tobytes() == whole.tobytes()
    names = [operand.role for operand in forward.writes[1:]]
    values.update(zip(names, statistics, strict=True))
    assert np.concatenate(each("forward", scalars=scalars), 1).tobytes() == output.tobytes()

    (whole,) = library.run(gradient, [values[o.role] for o in gradient.reads], scalars)
    totals = chain("gradient_sums")
    found = each("input_gradient", *totals, scalars=scalars)
    assert np.concatenate(found, 1).tobytes() == whole.tobytes()

    wholes = library.run(of_parameters, [values[o.role] for o in of_parameters.reads], scalars)
    for cut in parts:
        spec = OpSpec.of(of_parameters.kind, rows=rows, features=_count(cut))
        for part, whole in zip(library.run(spec, reads(spec, cut), scalars), wholes, strict=True):
            assert part.tobytes() == whole[slice(*cut)].tobytes()
