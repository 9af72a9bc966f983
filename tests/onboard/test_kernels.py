"""The C kernels, checked by recorded PyTorch gradients, finite differences and their contract."""

from __future__ import annotations

import ctypes
import importlib.util
import itertools
import math
import os
import random
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from devices.operation import SIGNATURES, OperationError, OpSpec
from devices.signatures.ranges import draw_attributes
from tests.references.kernel_cases import larger_cases
from tests.support.compiling import compile_once
from tests.support.onboard.kernels import (
    DERIVED_KINDS,
    FLAGS,
    KERNELS,
    WARNINGS,
    Array,
    FamilyCase,
    KernelLibraries,
    KernelLibrary,
    compile_library,
    fill,
    kinds_of,
    load_cases,
    required_sizes,
    sources,
    uniform,
)
from tests.support.paths import NATIVE

CASES = load_cases()
CASE_KINDS = [(case, spec) for case in CASES for spec in case.specs]
IDS = [f"{case}-{spec.kind.partition('.')[2]}" for case, spec in CASE_KINDS]
SEED_BITS = 0x9ABCDEF1


_OTHER_BUILDS = ("cblas", "small-tiles")


@pytest.fixture(
    params=["in-tree", *(pytest.param(build, marks=pytest.mark.slow) for build in _OTHER_BUILDS)]
)
def library(request: pytest.FixtureRequest, libraries: KernelLibraries) -> KernelLibrary:
    return libraries[request.param]


FEW_ROUNDINGS = 4e-7
"""Rounding error of a float32 sum relative to the sum of absolute terms: a handful of half units in
the last place; n additions may have n of them in the worst case (Higham 2002, section 4.2)."""


def assert_close(
    found: Array, expected: Array, what: str, relative: float = 1e-5, summed: float = 0.0
) -> None:
    """Assert a relative error of each element, or of the largest one where terms cancel.

    A few roundings of ``summed``, the largest sum of absolute terms, are allowed in any case.
    """
    largest = float(np.max(np.abs(expected), initial=0.0, where=np.isfinite(expected)))
    np.testing.assert_allclose(
        found.reshape(-1),
        expected.reshape(-1),
        rtol=relative,
        atol=max(relative * max(largest, 0.1), FEW_ROUNDINGS * summed),
        err_msg=what,
    )


def scalars_for(spec: OpSpec) -> list[float]:
    values = {
        "epsilon": 1e-5,
        "momentum": 0.1,
        "probability": 0.3,
        "seed": seed_scalar(SEED_BITS),
        "learning_rate": 0.05,
        "first_rate": 0.125,
        "second_rate": 0.0078125,
        "weight_decay": 0.25,
        "share": 0.25,
        "gradient_decay": 0.125,
        "lowest": -0.4,
        "highest": 0.3,
        "slope": 0.1,
        **{"factor": -1.25, "addend": 0.5, "alpha": 1.5, "row_distance": 0.5},
        "column_distance": 0.4,
        **{"scale": 0.3, "smoothing": 0.1, "ignored": 3.0, "number": 0.5},
    }
    return [values[name] for name in spec.signature.scalars]


def seed_scalar(bits: int) -> float:
    """The float with these bits."""
    return float(np.array([bits], np.uint32).view(np.float32)[0])


def small_spec(kind: str) -> OpSpec:
    """An operation of this kind with sizes that fill no vector evenly."""
    sizes = {
        **{"batch": 3, "in_channels": 6, "in_height": 9, "in_width": 11, "out_channels": 12},
        **{"kernel_height": 3, "kernel_width": 2, "stride_height": 2, "stride_width": 1},
        **{"pad_top": 1, "pad_bottom": 0, "pad_left": 1, "pad_right": 1, "groups": 2, "bias": 1},
        **{"rows": 7, "in_features": 37, "out_features": 41, "channels": 6, "plane": 99},
        **{"features": 67, "elements": 1003, "outer": 3, "left_inner": 19, "right_inner": 40},
        **{"sequence": 35, "heads": 3, "head_features": 17, "columns": 75},
        **{"vocabulary": 13, "classes": 35, "out_height": 18, "out_width": 10},
        **{"factor_height": 3, "factor_width": 2},
        **{"source": 1400, "offset": 1, "size0": 1, "size1": 2, "size2": 3, "size3": 2, "size4": 7},
        **{"size5": 11, "stride0": 1, "stride1": 693, "stride2": 231, "stride3": 0, "stride4": 1},
        **{"stride5": 21, "middle": 5, "between": 7, "inner": 22},
        **{"align_corners": 0, "padding_index": 1},
        **{"queries": 35, "keys": 67, "key_heads": 1, "causal": 1, "dropout": 1},
        "packed": 0,
        **{"first": 4, "first_input": 2, "inputs": 3, "distance": 40},
        **{"mask_batch": 3, "mask_heads": 1, "mask_queries": 35, "depth": 37},
        **{"left_transposed": 0, "left_interleaved": 1},
        **{"right_transposed": 1, "right_interleaved": 0},
        **{"dilation_height": 2, "dilation_width": 3},
        **{"steps": 5, "hidden": 29, "batch_first": 1, "reverse": 1},
        **dict.fromkeys(("initial_hidden", "initial_cell", "final_cell"), 1),
        **{"by_weight": 1, "bound": 5, "size": 6},
    }
    sizes |= required_sizes(kind)
    return OpSpec.of(kind, **{name: sizes[name] for name in SIGNATURES[kind].attributes})


# --- the table ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_kernels_are_exactly_those_of_the_kinds_with_matching_signatures(
    library: KernelLibrary,
) -> None:
    table = {e.kind.decode(): (e.attribute_count, e.scalar_count) for e in library.table}
    assert table == {
        kind: (len(signature.attributes), len(signature.scalars))
        for kind, signature in SIGNATURES.items()
    }


def test_kernels_are_sorted_and_found_by_kind(library: KernelLibrary) -> None:
    kinds = [entry.kind.decode() for entry in library.table]
    assert kinds == sorted(kinds)
    assert all(library.finds(kind) for kind in kinds)
    assert not library.finds("conv2d")
    assert not library.finds("")


@pytest.mark.slow
def test_a_build_names_its_matrix_product(libraries: KernelLibraries) -> None:
    assert libraries["in-tree"].matmul == "in-tree"
    assert libraries["cblas"].matmul == "cblas"


# --- values -------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("case", "spec"), CASE_KINDS, ids=IDS)
def test_a_kernel_agrees_with_pytorch(
    case: FamilyCase, spec: OpSpec, library: KernelLibrary
) -> None:
    found = library.run(spec, case.reads(spec), case.scalar_values(spec))
    for array, expected, operand in zip(found, case.writes(spec), spec.writes, strict=True):
        if expected.dtype.kind == "i":
            assert array.view(np.int32).tolist() == expected.tolist(), f"{spec.key}: {operand.role}"
        else:
            assert_close(array, expected, f"{spec.key}: {operand.role}")


def test_every_kind_but_dropout_and_derived_ones_has_a_recorded_reference() -> None:
    others = (*kinds_of("dropout"), *DERIVED_KINDS)
    assert {spec.kind for _, spec in CASE_KINDS} == set(SIGNATURES) - set(others)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")
@pytest.mark.parametrize("case", larger_cases(), ids=lambda case: "-".join(map(str, case[:1])))
def test_a_kernel_agrees_with_the_installed_pytorch_on_shapes_of_real_networks(
    case: tuple[str, dict[str, int]], library: KernelLibrary
) -> None:
    from tests.references.record_kernel_references import compute_case

    computed = compute_case(*case, seed=77)
    for spec in computed.specs:
        found = library.run(spec, computed.reads(spec), computed.scalar_values(spec))
        for array, expected, operand in zip(found, computed.writes(spec), spec.writes, strict=True):
            assert_close(array, expected, f"{spec.key}: {operand.role}", 2e-5)


STEP = 2.0**-6
GRADIENT_KINDS = [
    (case, spec)
    for case, spec in CASE_KINDS
    # The row of padding has no gradient, though the output depends on it.
    if spec.kind.endswith("_gradient") and spec.family != "embedding_padded"
]


def without_kinks(case: FamilyCase) -> dict[str, Array]:
    """The case's operands, with inputs farther from every kink than a difference's step."""
    roles = dict(case.roles)
    kinks = {
        "relu": (0.0,),
        "leaky_relu": (0.0,),
        "elu": (0.0,),
        "absolute": (0.0,),
        "clamp": tuple(case.scalars.values()),
        "hard_sigmoid": (-3.0, 3.0),
        "hard_swish": (-3.0, 3.0),
    }
    for kink in kinks.get(case.family, ()):
        away = np.sign(case.roles["input"] - np.float32(kink)) * np.float32(0.1)
        roles["input"] = roles["input"] + away
    if case.family == "rnn_relu":  # no state is near enough to change another's sign
        roles["input_gates"] = roles["input_gates"] + 2 * np.sign(roles["input_gates"])
        roles["hidden_weight"] = roles["hidden_weight"] / 64
    if case.family == "max_pool2d":
        order = np.argsort(uniform(roles["input"].shape, 5).reshape(-1))
        ranks = np.argsort(order).astype(np.float32) * np.float32(4 * STEP)
        roles["input"] = ranks.reshape(roles["input"].shape)
    return roles


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "spec"),
    GRADIENT_KINDS,
    ids=[f"{c}-{s.kind.partition('.')[2]}" for c, s in GRADIENT_KINDS],
)
def test_a_gradient_agrees_with_finite_differences_of_the_forward_kernel(
    case: FamilyCase, spec: OpSpec, libraries: KernelLibraries
) -> None:
    """Central differences of the forward kernel along coordinates and along one random direction.

    float32 results of size y limit a difference to about 1e-7 y / step; the step's own error is of
    the order of its square. Both are far below the tolerance of 0.5 % of the largest derivative.
    """
    library = libraries["in-tree"]
    forward = OpSpec.of(f"{spec.family}.forward", **spec.attributes)
    roles = without_kinks(case)

    backward = [other for other in case.specs if other.kind.endswith("_gradient")]
    made = {operand.role for other in backward for operand in other.writes}
    weights = {
        operand.role: roles[f"{operand.role}_gradient"].astype(np.float64)
        for operand in forward.writes
        if f"{operand.role}_gradient" in roles.keys() - made
    } or {forward.writes[0].role: np.ones(1)}

    def evaluate(operands: dict[str, Array]) -> tuple[float, list[Array]]:
        """The weighted sum of the results that have a gradient; a loss counts as it is."""
        written = library.run(
            forward, [operands[o.role] for o in forward.reads], case.scalar_values(forward)
        )
        result = {o.role: array for o, array in zip(forward.writes, written, strict=True)}
        return sum(
            float(np.vdot(result[role].astype(np.float64), weight))
            for role, weight in weights.items()
        ), written

    def gradients_of(kind: OpSpec) -> list[Array]:
        return library.run(kind, [roles[o.role] for o in kind.reads], case.scalar_values(kind))

    _, written = evaluate(roles)
    roles |= {o.role: array for o, array in zip(forward.writes, written, strict=True)}
    for other in backward:
        if {o.role for o in other.writes} & {o.role for o in spec.reads}:
            found = gradients_of(other)
            roles |= {o.role: array for o, array in zip(other.writes, found, strict=True)}
    gradients = gradients_of(spec)
    for operand, gradient in zip(spec.writes, gradients, strict=True):
        role = operand.role.removesuffix("_gradient")
        if role not in {read.role for read in forward.reads}:
            continue  # an intermediate result, which another gradient reads
        coordinates = np.linspace(0, operand.elements - 1, min(operand.elements, 8)).astype(int)
        directions = [np.eye(1, operand.elements, i)[0] for i in coordinates]
        directions.append(np.sign(uniform((operand.elements,), 9)) / operand.elements**0.5)
        for direction in directions:
            moved = [
                roles[role]
                + (sign * STEP * direction).astype(np.float32).reshape(roles[role].shape)
                for sign in (1, -1)
            ]
            upper, lower = (evaluate(roles | {role: value})[0] for value in moved)
            slope = (upper - lower) / (2 * STEP)
            expected = float(np.sum(gradient.reshape(-1).astype(np.float64) * direction))
            allowed = 5e-3 * max(float(np.max(np.abs(gradient))), 0.05)
            assert slope == pytest.approx(expected, abs=allowed), f"{spec.key}: {operand.role}"


# --- convolution in general ---------------------------------------------------------------------


@st.composite
def convolutions(draw: st.DrawFn) -> OpSpec:
    def integer(low: int, high: int) -> int:
        return draw(st.integers(low, high))

    groups = draw(st.sampled_from((1, 1, 2, 3)))
    kernel_height, kernel_width = integer(1, 4), integer(1, 4)
    pads = {side: integer(0, 3) for side in ("pad_top", "pad_bottom", "pad_left", "pad_right")}
    dilation = {f"dilation_{side}": integer(1, 4) for side in ("height", "width")}
    is_dilated = integer(0, 1)
    extent_height, extent_width = (
        (kernel - 1) * (step if is_dilated else 1) + 1
        for kernel, step in zip((kernel_height, kernel_width), dilation.values(), strict=True)
    )
    return OpSpec.of(
        "dilated_conv2d.forward" if is_dilated else "conv2d.forward",
        batch=integer(1, 5),
        # Weight gradients of multiples of 16 channels have a way of their own.
        in_channels=groups * draw(st.sampled_from((1, 2, 3, 16, 32))),
        in_height=max(integer(1, 9), extent_height - pads["pad_top"] - pads["pad_bottom"]),
        in_width=max(integer(1, 40), extent_width - pads["pad_left"] - pads["pad_right"]),
        out_channels=groups * integer(1, 4),
        kernel_height=kernel_height,
        kernel_width=kernel_width,
        stride_height=integer(1, 3),
        stride_width=integer(1, 3),
        **pads,
        groups=groups,
        bias=integer(0, 1),
        **(dilation if is_dilated else {}),
    )


def naive_convolution(spec: OpSpec, reads: list[Array]) -> tuple[Array, Array]:
    """The output, and the input unfolded to [batch, channels, taps, out_height, out_width]."""
    a = spec.attributes
    x, weight = (array.astype(np.float64) for array in reads[:2])
    height, width = spec.writes[0].shape[2:]
    padded = np.pad(
        x, ((0, 0), (0, 0), (a["pad_top"], a["pad_bottom"]), (a["pad_left"], a["pad_right"]))
    )
    down, right = a.get("dilation_height", 1), a.get("dilation_width", 1)
    taps = [
        padded[
            :,
            :,
            ky : ky + (height - 1) * a["stride_height"] + 1 : a["stride_height"],
            kx : kx + (width - 1) * a["stride_width"] + 1 : a["stride_width"],
        ]
        for ky, kx in itertools.product(
            range(0, a["kernel_height"] * down, down), range(0, a["kernel_width"] * right, right)
        )
    ]
    unfolded = np.stack(taps, 2)
    grouped = unfolded.reshape(a["batch"], a["groups"], -1, len(taps), height, width)
    filters = weight.reshape(a["groups"], a["out_channels"] // a["groups"], -1, len(taps))
    output = np.einsum("ngcthw,goct->ngohw", grouped, filters).reshape(spec.writes[0].shape)
    if a["bias"]:
        output = output + reads[2].astype(np.float64)[:, None, None]
    return output, grouped


CANCELLING = OpSpec.parse(
    "conv2d.forward batch=2 in_channels=1 in_height=7 in_width=15 out_channels=1 kernel_height=1"
    " kernel_width=3 stride_height=2 stride_width=1 pad_top=1 pad_bottom=3 pad_left=0 pad_right=0"
    " groups=1 bias=1"
)
"""A convolution whose bias gradient is a thousandth of the sum of its absolute terms."""


SMALLEST_PLANES = OpSpec.parse(
    "conv2d.forward batch=1 in_channels=11 in_height=2 in_width=2 out_channels=3 kernel_height=3"
    " kernel_width=3 stride_height=1 stride_width=1 pad_top=1 pad_bottom=1 pad_left=1 pad_right=1"
    " groups=1 bias=0"
)
"""A convolution that microcontrollers unfold in a way of its own."""


@given(spec=convolutions())
@example(spec=CANCELLING)
@example(spec=SMALLEST_PLANES)
@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize=True,
)
def test_any_convolution_equals_its_definition(spec: OpSpec, library: KernelLibrary) -> None:
    reads = [fill(operand, seed) for seed, operand in enumerate(spec.reads)]
    output, unfolded = naive_convolution(spec, reads)
    summed = float(naive_convolution(spec, [np.abs(read) for read in reads])[0].max())
    assert_close(library.run(spec, reads)[0], output, spec.key, summed=summed)

    a = spec.attributes
    dy = fill(spec.writes[0], 10)
    grouped_dy = dy.astype(np.float64).reshape(
        a["batch"], a["groups"], -1, *spec.writes[0].shape[2:]
    )
    parameter = OpSpec.of(f"{spec.family}.parameter_gradient", **a)
    found = library.run(parameter, [reads[0], dy])
    products = "ngcthw,ngohw->goct"
    summed = float(np.einsum(products, np.abs(unfolded), np.abs(grouped_dy)).max())
    expected = np.einsum(products, unfolded, grouped_dy)
    assert_close(found[0], expected, parameter.key, summed=summed)
    if a["bias"]:
        summed = float(np.abs(dy).sum((0, 2, 3)).max())
        assert_close(found[1], dy.astype(np.float64).sum((0, 2, 3)), parameter.key, summed=summed)

    # The input gradient is the adjoint of the (linear) convolution: <dy, A x> = <A^T dy, x>.
    adjoint = OpSpec.of(f"{spec.family}.input_gradient", **a)
    dx = library.run(adjoint, [dy, reads[1]])[0].astype(np.float64)
    image = np.zeros_like(reads[0])
    for index in np.linspace(0, image.size - 1, 5).astype(int):
        image.reshape(-1)[:] = 0
        image.reshape(-1)[index] = 1
        linear, _ = naive_convolution(OpSpec.of(spec.kind, **{**a, "bias": 0}), [image, reads[1]])
        summed = float(np.sum(np.abs(linear * dy)))
        found_dx, expected_dx = dx.reshape(-1)[index : index + 1], np.sum(linear * dy).reshape(1)
        assert_close(found_dx, expected_dx, adjoint.key, summed=summed)


def test_no_convolution_of_the_known_networks_needs_more_than_a_mebibyte_of_workspace(
    library: KernelLibrary,
) -> None:
    for batch, channels, size, kernel in itertools.product(
        (1, 8, 64), (3, 64, 512), (4, 32, 224), (1, 3, 7)
    ):
        attributes = {
            **{"batch": batch, "in_channels": channels, "in_height": size, "in_width": size},
            **{"out_channels": 512, "kernel_height": kernel, "kernel_width": kernel},
            **{"stride_height": 1, "stride_width": 1, "groups": 1, "bias": 0},
            **dict.fromkeys(("pad_top", "pad_bottom", "pad_left", "pad_right"), kernel // 2),
        }
        for kind in kinds_of("conv2d"):
            assert library.workspace_bytes(OpSpec.of(kind, **attributes)) <= 2**20


def test_a_tiny_convolution_needs_little_workspace(library: KernelLibrary) -> None:
    assert library.workspace_bytes(small_spec("conv2d.forward")) <= 64 * 1024


@pytest.mark.parametrize("kind", kinds_of("conv2d"))
def test_the_workspace_of_a_small_convolution_is_small_beside_its_operands(
    library: KernelLibrary, kind: str
) -> None:
    sizes = {"batch": 2, "in_channels": 3, "in_height": 32, "in_width": 32, "out_channels": 16}
    window = {"kernel_height": 2, "kernel_width": 2, "stride_height": 2, "stride_width": 2}
    pads = dict.fromkeys(("pad_top", "pad_bottom", "pad_left", "pad_right"), 0)
    spec = OpSpec.of(kind, **sizes, **window, **pads, groups=1, bias=0)
    operands = sum(operand.bytes for operand in (*spec.reads, *spec.writes))
    assert library.workspace_bytes(spec) < operands / 2


@pytest.mark.parametrize("out_height", [1, 10, 11])
def test_a_transposed_convolution_is_the_adjoint_of_a_convolution(
    out_height: int, library: KernelLibrary
) -> None:
    """<y, T x> = <C y, x> for outputs that are cut, or larger than what the windows cover."""
    sizes = {
        **{"batch": 2, "kernel_height": 3, "kernel_width": 2, "stride_height": 2},
        **{"stride_width": 3, "pad_top": 1, "pad_left": 0, "groups": 1, "bias": 0},
    }
    transposed = OpSpec.of(
        "conv_transpose2d.forward",
        **{**sizes, "in_channels": 3, "in_height": 5, "in_width": 4},
        **{"out_channels": 2, "out_height": out_height, "out_width": 13},
    )
    x, weight = (fill(operand, seed) for seed, operand in enumerate(transposed.reads))
    y = fill(transposed.writes[0], 7)
    convolution = OpSpec.of(
        "conv2d.forward",
        **{**sizes, "in_channels": 2, "in_height": out_height, "in_width": 13, "out_channels": 3},
        **{"pad_bottom": max(0, 10 - out_height), "pad_right": 0},
    )
    assert convolution.writes[0].shape == x.shape
    (forward,) = library.run(transposed, [x, weight])
    expected, _ = naive_convolution(convolution, [y, weight])
    found = np.sum(forward.astype(np.float64) * y)
    assert found == pytest.approx(float(np.sum(expected * x)), rel=1e-5, abs=1e-5)


def test_a_transposed_convolution_has_a_largest_output() -> None:
    spec = small_spec("conv_transpose2d.forward")
    with pytest.raises(OperationError, match="out_height is 20; in_height=9 gives at most 19"):
        OpSpec.of(spec.kind, **{**spec.attributes, "out_height": 20})


# --- attention in general -----------------------------------------------------------------------


@st.composite
def attentions(draw: st.DrawFn) -> OpSpec:
    def integer(low: int, high: int) -> int:
        return draw(st.integers(low, high))

    key_heads, batch, queries = integer(1, 2), integer(1, 2), integer(1, 140)
    heads = key_heads * integer(1, 3)
    is_masked, is_packed = draw(st.booleans()), draw(st.booleans())
    return OpSpec.of(
        "attention.forward",
        batch=batch,
        queries=queries,
        keys=queries if is_packed else integer(1, 140),
        heads=heads,
        key_heads=key_heads,
        head_features=integer(1, 40),
        causal=integer(0, 1),
        dropout=integer(0, 1),
        packed=int(is_packed),
        mask_batch=draw(st.sampled_from((1, batch))) if is_masked else 0,
        mask_heads=draw(st.sampled_from((1, heads))) if is_masked else 0,
        mask_queries=draw(st.sampled_from((1, queries))) if is_masked else 0,
    )


def attention_by_definition(
    spec: OpSpec, roles: Mapping[str, Array], factors: Array, scale: float
) -> dict[str, Array]:
    """Output, log-sum-exp and gradients in float64. ``factors`` multiply the weights.

    ``terms``: the largest sum of absolute terms in a gradient.
    """
    a = spec.attributes

    def heads_of(role: str) -> Array:
        x = roles[role].astype(np.float64)
        x = x.reshape(*x.shape[:2], -1, a["head_features"]).swapaxes(1, 2)
        return x.repeat(a["heads"] // x.shape[1], 1)

    def rows_of(x: Array, heads: int) -> Array:
        grouped = x.reshape(a["batch"], heads, -1, *x.shape[2:]).sum(2)
        return grouped.swapaxes(1, 2).reshape(a["batch"], x.shape[2], -1)

    query, key, value = (heads_of(role) for role in ("query", "key", "value"))
    scores = scale * query @ key.swapaxes(2, 3)
    if "mask" in roles:
        scores = scores + roles["mask"].astype(np.float64)
    if a["causal"]:
        scores = np.where(np.tri(*scores.shape[2:]) > 0, scores, -np.inf)
    highest = scores.max(-1, keepdims=True)
    raised = np.exp(scores - np.where(np.isneginf(highest), 0, highest))
    sums = raised.sum(-1, keepdims=True)
    weights = raised / np.where(sums > 0, sums, 1)
    with np.errstate(divide="ignore"):
        log_sum_exp = np.where(sums > 0, highest + np.log(sums), np.inf)[..., 0]
    dropped = weights * factors
    dy = heads_of("output_gradient")
    weights_gradient = dy @ value.swapaxes(2, 3) * factors
    projection = (weights * weights_gradient).sum(-1, keepdims=True)
    scores_gradient = scale * weights * (weights_gradient - projection)
    size = abs(dy) @ abs(value).swapaxes(2, 3) * factors
    size = scale * weights * (size + (weights * size).sum(-1, keepdims=True))
    terms = max(np.max(size @ abs(key)), np.max(size.swapaxes(2, 3) @ abs(query)))
    return {
        "terms": terms,
        "output": rows_of(dropped @ value, a["heads"]),
        "log_sum_exp": log_sum_exp,
        "query_gradient": rows_of(scores_gradient @ key, a["heads"]),
        "key_gradient": rows_of(scores_gradient.swapaxes(2, 3) @ query, a["key_heads"]),
        "value_gradient": rows_of(dropped.swapaxes(2, 3) @ dy, a["key_heads"]),
    }


@given(spec=attentions(), scale=st.sampled_from((0.1, 1.0)))
@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize=True,
)
def test_any_attention_equals_its_definition(
    spec: OpSpec, scale: float, library: KernelLibrary
) -> None:
    """Rows of which all is masked give zeros. Dropped weights are those that dropout drops."""
    a = spec.attributes
    backward = OpSpec.of("attention.input_gradient", **a)
    roles = {
        operand.role: fill(operand, seed) for seed, operand in enumerate(spec.reads + spec.writes)
    }
    roles["output_gradient"] = fill(spec.writes[0], 10)
    ends = np.cumsum([a["heads"], a["key_heads"]]) * a["head_features"]
    if a["packed"]:
        parts = np.split(roles["packed"], ends, 2)
        roles |= dict(zip(("query", "key", "value"), parts, strict=True))
    if "mask" in roles:
        mask = roles["mask"]
        mask[mask > 0.3] = -np.inf
        mask[0, 0, -1] = -np.inf
    square = (a["batch"], a["heads"], a["queries"], a["keys"])
    scalars = [scale, 0.25, seed_scalar(SEED_BITS)]
    factors = np.ones(square, np.float32)
    if a["dropout"]:
        dropout = OpSpec.of("dropout.forward", elements=factors.size)
        factors = library.run(dropout, [factors], scalars[1:])[0].reshape(square)
    expected = attention_by_definition(spec, roles, factors, scale)
    for each in (spec, backward):
        found = library.run(each, [roles[operand.role] for operand in each.reads], scalars)
        roles |= {operand.role: array for operand, array in zip(each.writes, found, strict=True)}
    if a["packed"]:
        parts = np.split(roles["packed_gradient"], ends, 2)
        roles |= dict(zip(("query_gradient", "key_gradient", "value_gradient"), parts, strict=True))
    terms = float(expected.pop("terms"))
    for role, wanted in expected.items():
        assert_close(roles[role], wanted, f"{spec.key}: {role}", 2e-5, summed=terms)


def test_attention_needs_no_workspace_that_grows_with_the_sequence(library: KernelLibrary) -> None:
    sizes = {**small_spec("attention.forward").attributes, "head_features": 64}
    for kind in kinds_of("attention"):
        short, long = (
            library.workspace_bytes(
                OpSpec.of(kind, **{**sizes, "queries": length, "keys": length, "mask_queries": 1})
            )
            for length in (256, 65536)
        )
        assert short == long <= 256 * 1024


def test_attention_refuses_heads_and_masks_that_do_not_fit() -> None:
    spec = small_spec("attention.forward")
    with pytest.raises(OperationError, match="packed, but queries=35 and keys=67 differ"):
        OpSpec.of(spec.kind, **{**spec.attributes, "packed": 1})
    with pytest.raises(OperationError, match="heads=3 is not a multiple of key_heads=2"):
        OpSpec.of(spec.kind, **{**spec.attributes, "key_heads": 2})
    with pytest.raises(
        OperationError, match=r"a mask of \(2, 1, 35\) rows does not fit \(3, 3, 35\)"
    ):
        OpSpec.of(spec.kind, **{**spec.attributes, "mask_batch": 2})


# --- recurrent layers in general ----------------------------------------------------------------

CELLS = ("lstm", "gru", "rnn_tanh", "rnn_relu")


def recurrence(cell: str, **attributes: int) -> OpSpec:
    """The forward kind of a layer; attributes that are not given are 0."""
    names = SIGNATURES[f"{cell}.forward"].attributes
    return OpSpec.of(f"{cell}.forward", **{name: attributes.get(name, 0) for name in names})


@st.composite
def recurrences(draw: st.DrawFn) -> OpSpec:
    return recurrence(
        draw(st.sampled_from(CELLS)),
        steps=draw(st.integers(2, 6)),
        batch=draw(st.integers(1, 14)),
        hidden=draw(st.integers(1, 40)),
        bias=draw(st.integers(0, 1)),
    )


def operands(spec: OpSpec) -> dict[str, Array]:
    """Operands by role; the hidden weight is small, so that states neither grow nor saturate."""
    values = {operand.role: fill(operand, seed) for seed, operand in enumerate(spec.reads)}
    values["hidden_weight"] = values["hidden_weight"] / np.float32(spec.attributes["hidden"] ** 0.5)
    return values


def forward_and_back(
    spec: OpSpec, given: Mapping[str, Array], library: KernelLibrary
) -> dict[str, Array]:
    """All results of a layer and of its gradients, by role, and the operands."""
    made = dict(given)
    for kind in ("forward", "input_gradient", "parameter_gradient"):
        each = OpSpec.of(f"{spec.family}.{kind}", **spec.attributes)
        found = library.run(each, [made[operand.role] for operand in each.reads])
        made |= {o.role: array for o, array in zip(each.writes, found, strict=True)}
    return made


some_recurrences = settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@given(spec=recurrences(), batch_first=st.integers(0, 1), reverse=st.integers(0, 1))
@some_recurrences
def test_a_recurrence_in_another_layout_computes_the_same_numbers(
    spec: OpSpec, batch_first: int, reverse: int, library: KernelLibrary
) -> None:
    def moved(role: str, array: Array) -> Array:
        if array.ndim != 3:  # no sequence
            return array
        array = array[::-1] if reverse else array
        return np.ascontiguousarray(array.swapaxes(0, 1) if batch_first else array)

    other = recurrence(
        spec.family, **{**spec.attributes, "batch_first": batch_first, "reverse": reverse}
    )
    given = {**operands(spec), "output_gradient": fill(spec.writes[0], 77)}
    plain = forward_and_back(spec, given, library)
    found = forward_and_back(other, {r: moved(r, array) for r, array in given.items()}, library)
    for role, array in plain.items():
        summed = float(np.abs(array).max()) * spec.attributes["steps"]
        assert_close(found[role], moved(role, array), f"{other.key}: {role}", summed=summed)


@given(spec=recurrences(), data=st.data())
@some_recurrences
def test_a_sequence_in_two_parts_is_the_whole_sequence(
    spec: OpSpec, data: st.DataObject, library: KernelLibrary
) -> None:
    """The second part begins with the states in which the first one ended, and gradients return."""
    a, cut = spec.attributes, data.draw(st.integers(1, spec.attributes["steps"] - 1))
    given = {**operands(spec), "output_gradient": fill(spec.writes[0], 77)}
    whole = forward_and_back(spec, given, library)
    states = ("initial_hidden", "initial_cell") if spec.family == "lstm" else ("initial_hidden",)
    first = recurrence(spec.family, **{**a, "steps": cut, "final_cell": 1})
    second = recurrence(spec.family, **{**a, "steps": a["steps"] - cut, **dict.fromkeys(states, 1)})

    def part(where: slice) -> dict[str, Array]:
        return {role: x[where] if x.ndim == 3 else x for role, x in given.items()}

    begin = part(slice(cut))
    results = library.run(first, [begin[operand.role] for operand in first.reads])
    ended = {o.role: array for o, array in zip(first.writes, results, strict=True)}
    later = part(slice(cut, None)) | {"initial_hidden": ended["output"][-1]}
    later |= {"initial_cell": ended["final_cell"]} if spec.family == "lstm" else {}
    later = forward_and_back(second, later, library)
    begin["output_gradient"] = begin["output_gradient"].copy()
    begin["output_gradient"][-1] += later["initial_hidden_gradient"]
    if spec.family == "lstm":
        begin["final_cell_gradient"] = later["initial_cell_gradient"]
    begin = forward_and_back(first, begin, library)
    for role in ("output", "input_gates_gradient"):
        joined = np.concatenate([begin[role], later[role]])
        assert joined.tobytes() == whole[role].tobytes(), role
    for role in ("hidden_weight_gradient", *(["hidden_bias_gradient"] if a["bias"] else [])):
        summed = float(np.abs(whole["input_gates_gradient"]).sum())
        assert_close(begin[role] + later[role], whole[role], f"{spec.key}: {role}", summed=summed)


# --- the contract on buffers --------------------------------------------------------------------


@pytest.mark.parametrize("kind", sorted(SIGNATURES))
def test_values_depend_on_the_operands_alone(kind: str, library: KernelLibrary) -> None:
    """They depend neither on addresses nor on earlier contents of outputs and workspace.

    Nothing is written beyond the outputs and the requested workspace, and operands that are only
    read do not change.
    """
    spec = small_spec(kind)
    reads = [fill(operand, seed) for seed, operand in enumerate(spec.reads)]
    results = [
        library.run(spec, reads, scalars_for(spec), offset_bytes=offset) for offset in (0, 4, 36)
    ]
    for result in results:
        for array, first, operand in zip(result, results[0], spec.writes, strict=True):
            assert operand.fill == "index" or np.all(np.isfinite(array))
            assert array.tobytes() == first.tobytes()


@pytest.mark.parametrize("kind", sorted(k for k, s in SIGNATURES.items() if s.in_place))
@pytest.mark.parametrize("offset", [0, 4])
def test_in_place_results_are_identical(kind: str, offset: int, library: KernelLibrary) -> None:
    spec = small_spec(kind)
    reads = [fill(operand, seed) for seed, operand in enumerate(spec.reads)]
    apart = library.run(spec, reads, scalars_for(spec))
    in_place = library.run(spec, reads, scalars_for(spec), in_place=True, offset_bytes=offset)
    for first, second in zip(apart, in_place, strict=True):
        assert first.tobytes() == second.tobytes()


def test_recomputing_batch_norm_leaves_the_running_statistics_unchanged(
    library: KernelLibrary,
) -> None:
    forward = small_spec("batch_norm.forward")
    update = small_spec("batch_norm.statistics_update")
    reads = [fill(operand, seed) for seed, operand in enumerate(forward.reads)]
    running = [fill(operand, 20 + seed) for seed, operand in enumerate(update.reads[2:])]
    first = library.run(forward, reads, [1e-5])
    once = library.run(update, [*first[1:], *running], [0.1])
    again = library.run(forward, reads, [1e-5])  # run checks that its operands do not change
    twice = library.run(update, [*again[1:], *running], [0.1])
    for one, two in zip((*first, *once), (*again, *twice), strict=True):
        assert one.tobytes() == two.tobytes()


# --- values at the edges ------------------------------------------------------------------------


ACTIVATIONS: dict[str, list[float]] = {
    **{"relu": [], "tanh": [], "sigmoid": [], "gelu": [], "silu": []},
    **{"hard_sigmoid": [], "hard_swish": [], "clamp": [-2.0, 90.0], "leaky_relu": [0.25]},
    **{"absolute": [], "square": [], "softplus": [], "exponential": [], "elu": [1.0]},
    **{"reciprocal": [], "gelu_tanh": []},
}
"""Activations with the values of their scalars."""


@pytest.mark.parametrize("function", ACTIVATIONS)
def test_an_activation_keeps_nan_and_stays_in_its_range(
    function: str, library: KernelLibrary
) -> None:
    values = [np.nan, np.inf, -np.inf, 0.0, 1e-30, -1e-30, 88.0, -88.0, 1e4, -1e4, 3e38]
    x = np.array(values * 3, np.float32)
    spec = OpSpec.of(f"{function}.forward", elements=x.size)
    (y,) = library.run(spec, [x], ACTIVATIONS[function])
    expected = {
        "relu": [np.inf, 0.0, 0.0, 1e-30, 0.0, 88.0, 0.0, 1e4, 0.0, 3e38],
        "leaky_relu": [np.inf, -np.inf, 0.0, 1e-30, -2.5e-31, 88.0, -22.0, 1e4, -2500.0, 3e38],
        "clamp": [90.0, -2.0, 0.0, 1e-30, -1e-30, 88.0, -2.0, 90.0, -2.0, 90.0],
        "hard_sigmoid": [1.0, 0.0, 0.5, 0.5, 0.5, 1.0, 0.0, 1.0, 0.0, 1.0],
        "tanh": [1.0, -1.0, 0.0, 1e-30, -1e-30, 1.0, -1.0, 1.0, -1.0, 1.0],
        "sigmoid": [1.0, 0.0, 0.5, 0.5, 0.5, 1.0, 0.0, 1.0, 0.0, 1.0],
        "absolute": [np.inf, np.inf, 0.0, 1e-30, 1e-30, 88.0, 88.0, 1e4, 1e4, 3e38],
        "square": [np.inf, np.inf, 0.0, 0.0, 0.0, 7744.0, 7744.0, 1e8, 1e8, np.inf],
        "softplus": [
            *(np.inf, 0.0, math.log(2), math.log(2), math.log(2)),
            *(88.0, 0.0, 1e4, 0.0, 3e38),
        ],
        "exponential": [np.inf, 0.0, 1.0, 1.0, 1.0, math.exp(88), 0.0, np.inf, 0.0, np.inf],
        "elu": [np.inf, -1.0, 0.0, 1e-30, -1e-30, 88.0, -1.0, 1e4, -1.0, 3e38],
        "reciprocal": [0.0, 0.0, np.inf, 1e30, -1e30, 1 / 88, -1 / 88, 1e-4, -1e-4, 0.0],
        # as in PyTorch: -inf * 0 is NaN
        "gelu": [np.inf, np.nan, 0.0, 5e-31, -5e-31, 88.0, 0.0, 1e4, 0.0, 3e38],
        "gelu_tanh": [np.inf, np.nan, 0.0, 5e-31, -5e-31, 88.0, 0.0, 1e4, 0.0, 3e38],
        "silu": [np.inf, np.nan, 0.0, 5e-31, -5e-31, 88.0, -88 * math.exp(-88), 1e4, 0.0, 3e38],
        "hard_swish": [np.inf, np.nan, 0.0, 5e-31, -5e-31, 88.0, 0.0, 1e4, 0.0, 3e38],
    }[function]
    np.testing.assert_allclose(y, [np.nan, *expected] * 3, rtol=1e-6, atol=1e-37)


EXACT: dict[str, Callable[[float], float]] = {
    "tanh": math.tanh,
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
    "gelu": lambda x: x * math.erfc(-x / math.sqrt(2)) / 2,
    "silu": lambda x: x / (1 + math.exp(-x)),
    "softplus": lambda x: max(x, 0) + math.log1p(math.exp(-abs(x))),
}


@pytest.mark.parametrize("function", EXACT)
def test_an_activation_is_accurate_to_a_few_units_in_the_last_place(
    function: str, library: KernelLibrary
) -> None:
    """Small values are held to the same relative error as large ones.

    A unit is at most 1.2e-7; the error of gelu's left tail grows with the square of its argument,
    whose rounding the exponential magnifies.
    """
    x = np.linspace(-6, 6, 4001, dtype=np.float32)
    (y,) = library.run(OpSpec.of(f"{function}.forward", elements=x.size), [x])
    exact = np.array([EXACT[function](value) for value in x.astype(np.float64)])
    allowed = 5e-7 + (1e-7 * np.minimum(x, 0) ** 2 if function == "gelu" else 0)
    assert np.all(np.abs(y - exact) <= allowed * np.abs(exact) + 1e-37)


@pytest.mark.slow
@pytest.mark.parametrize(
    "flags", [("-march=native",), ("-ffp-contract=off",)], ids=["fused", "apart"]
)
def test_the_logarithm_is_accurate_to_a_unit_in_the_last_place(
    flags: tuple[str, ...], tmp_path: Path
) -> None:
    """All normal numbers are sampled, most densely around 1, where the result is small."""
    source, target = tmp_path / "log.c", tmp_path / "log.so"
    source.write_text(
        '#include "logarithm.h"\n'
        "void logs(const float *x, float *y, long count) "
        "{ for (long i = 0; i < count; i++) y[i] = jw_log(x[i]); }\n"
    )
    command = ["cc", *FLAGS, *WARNINGS, "-O2", *flags, "-fPIC", "-shared", f"-I{KERNELS}"]
    subprocess.run([*command, str(source), "-o", str(target), "-lm"], check=True)
    bits = np.concatenate(
        [np.arange(0x00800000, 0x7F800000, 4099), np.arange(0x3F000000, 0x40800000, 7)]
    )
    x = np.concatenate([bits.astype(np.uint32).view(np.float32), [1.0, np.inf, np.nan]])
    x = x.astype(np.float32)
    y = np.empty_like(x)
    ctypes.CDLL(str(target)).logs(
        x.ctypes.data_as(ctypes.c_void_p), y.ctypes.data_as(ctypes.c_void_p), ctypes.c_long(x.size)
    )
    exact = np.log(x[:-3].astype(np.float64))
    units = np.spacing(np.abs(exact).astype(np.float32))
    assert np.max(np.abs(y[:-3] - exact) / units) < 1.0
    np.testing.assert_array_equal(y[-3:], [0.0, np.inf, np.nan])


@pytest.mark.parametrize("family", ["relu", "leaky_relu", "clamp"])
@given(elements=st.integers(1, 3000), in_place=st.booleans(), seed=st.integers(0, 99))
@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_gradient_from_bits_has_the_bits_of_that_from_outputs(
    family: str, elements: int, in_place: bool, seed: int, library: KernelLibrary
) -> None:
    whole, packed = (
        {entry: OpSpec.of(f"{name}.{entry}", elements=elements) for entry in _ENTRIES}
        for name in (family, f"{family}_bits")
    )
    x, output_gradient = (fill(operand, seed + i) for i, operand in enumerate(whole[_BACK].reads))
    for place, value in enumerate((0.0, -0.0, np.nan, np.inf, 1e-45, -0.4, np.float32(0.3))):
        x[place::11] = value
    output_gradient[::7] = -0.0
    output_gradient[::13] = np.inf
    (output,) = library.run(whole["forward"], [x], scalars_for(whole["forward"]))
    found, bits = library.run(
        packed["forward"], [x], scalars_for(packed["forward"]), in_place=in_place
    )
    assert found.tobytes() == output.tobytes()
    assert bits.nbytes == -(-elements // 32) * 4
    assert int(bits.view(np.uint32)[-1]) < 1 << (elements - 1) % 32 + 1
    (expected,) = library.run(whole[_BACK], [output, output_gradient], scalars_for(whole[_BACK]))
    (gradient,) = library.run(
        packed[_BACK], [bits, output_gradient], scalars_for(packed[_BACK]), in_place=in_place
    )
    assert gradient.tobytes() == expected.tobytes()


_ENTRIES = _FORWARD, _BACK = "forward", "input_gradient"


@given(elements=st.integers(1, 3000), in_place=st.booleans(), seed=st.integers(0, 99))
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_what_is_packed_and_unpacked_to_be_measured_is_half_zeros(
    elements: int, in_place: bool, seed: int, library: KernelLibrary
) -> None:
    out, back = (OpSpec.of(f"packing.page_{way}", elements=elements) for way in ("out", "in"))
    x = fill(out.reads[0], seed)
    x[:: 1 + seed % 40] = np.nan
    (y,) = library.run(out, [x], [], in_place=in_place)
    assert y.tobytes() == np.where(np.signbit(x), np.float32(0), x).tobytes()
    (y,) = library.run(back, [x], [], in_place=in_place)
    expected = x.copy()
    if elements >= 32:
        expected[:] = 0
        for first in range(0, elements, 32):
            places = expected[first : first + 32][::2]
            places[:] = x[first : first + len(places)]
    assert y.tobytes() == expected.tobytes()


@given(
    sides=st.lists(
        st.tuples(st.integers(1, 12), st.integers(1, 5), st.integers(1, 4), st.integers(0, 5)),
        min_size=2,
        max_size=2,
    ),
    planes=st.integers(1, 3),
    values=st.sampled_from([2, 50]),
    seed=st.integers(0, 99),
)
@example(sides=[(2, 1, 1, 3), (3, 2, 2, 0)], planes=1, values=2, seed=0)
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_gradient_from_places_has_the_bits_of_that_from_the_image(
    sides: list[tuple[int, int, int, int]],
    planes: int,
    values: int,
    seed: int,
    library: KernelLibrary,
) -> None:
    """Windows overlap, and those of padding alone have no maximum; equal maxima and NaNs occur."""
    sizes = {"batch": 1, "channels": planes}
    for side, pads, (size, kernel, stride, pad) in zip(
        ("height", "width"), (("top", "bottom"), ("left", "right")), sides, strict=True
    ):
        sizes |= {f"in_{side}": size, f"kernel_{side}": kernel, f"stride_{side}": stride}
        sizes |= {f"pad_{each}": pad for each in pads}
    try:
        whole, packed = (
            {entry: OpSpec.of(f"{name}.{entry}", **sizes) for entry in _ENTRIES}
            for name in ("max_pool2d", "max_pool2d_places")
        )
    except OperationError:
        return  # no window fits
    random = np.random.default_rng(seed)
    drawn = random.integers(0, values, whole[_BACK].reads[0].shape)
    choices = np.array([-np.inf, np.nan, 0.0, -0.0, *range(values)], np.float32)
    image = np.where(drawn < values - 1, choices[drawn + 4 - values % 3], choices[drawn % 4])
    image = image.astype(np.float32)
    output_gradient = fill(whole[_BACK].reads[1], seed)
    (output,) = library.run(whole[_FORWARD], [image])
    found, places = library.run(packed[_FORWARD], [image])
    assert found.tobytes() == output.tobytes()
    assert places.nbytes == -(-output.size // 4) * 4
    (expected,) = library.run(whole[_BACK], [image, output_gradient])
    (gradient,) = library.run(packed[_BACK], [places, output_gradient])
    assert gradient.tobytes() == expected.tobytes()


@given(seed=st.integers(0, 99), pad=st.integers(0, 4))
@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_no_places_make_a_gradient_leave_its_buffer(
    seed: int, pad: int, library: KernelLibrary
) -> None:
    """An operation that is measured by itself reads whatever numbers are there."""
    sizes = {"batch": 2, "channels": 3, "in_height": 5, "in_width": 7}
    sizes |= {f"{what}_{side}": 3 for what in ("kernel", "stride") for side in ("height", "width")}
    sizes |= {f"pad_{side}": pad for side in ("top", "bottom", "left", "right")}
    spec = OpSpec.of("max_pool2d_places.input_gradient", **sizes)
    words = np.random.default_rng(seed).integers(0, 2**32, spec.reads[0].shape, np.uint32)
    library.run(spec, [words.view(np.float32), fill(spec.reads[1], seed)])  # checks its guards


def test_windows_of_more_places_than_a_byte_has_are_refused() -> None:
    sizes = {"batch": 1, "channels": 1, "in_height": 16, "in_width": 16}
    sizes |= {"kernel_height": 16, "kernel_width": 16, "stride_height": 1, "stride_width": 1}
    sizes |= dict.fromkeys(("pad_top", "pad_bottom", "pad_left", "pad_right"), 0)
    with pytest.raises(OperationError, match="256 places; at most 255"):
        OpSpec.of("max_pool2d_places.forward", **sizes)


def test_softmax_survives_large_logits_and_masked_ones(library: KernelLibrary) -> None:
    x = np.array([[1e30, 1e30, -1e30, -np.inf], [-1e4, -1e4, -1e4, -1e4]], np.float32)
    (y,) = library.run(OpSpec.of("softmax.forward", rows=2, columns=4), [x])
    assert_close(y, np.array([0.5, 0.5, 0, 0, 0.25, 0.25, 0.25, 0.25]), "softmax")


def test_a_nan_is_the_maximum_of_its_window(library: KernelLibrary) -> None:
    window = dict(
        zip(
            SIGNATURES["max_pool2d.forward"].attributes,
            [1, 1, 1, 4, 1, 2, 1, 2, 0, 0, 0, 0],
            strict=True,
        )
    )
    x = np.array([1.0, np.nan, 2.0, 3.0], np.float32)
    (y,) = library.run(OpSpec.of("max_pool2d.forward", **window), [x])
    np.testing.assert_array_equal(y.reshape(-1), [np.nan, 3.0])
    (dx,) = library.run(
        OpSpec.of("max_pool2d.input_gradient", **window), [x, np.ones(2, np.float32)]
    )
    np.testing.assert_array_equal(dx.reshape(-1), [0, 1, 0, 1])


# --- dropout ------------------------------------------------------------------------------------

COUNT = 200_000


def kept(
    library: KernelLibrary, probability: float, seed: int, count: int = COUNT
) -> npt.NDArray[np.bool_]:
    spec = OpSpec.of("dropout.forward", elements=count)
    (y,) = library.run(spec, [np.ones(count, np.float32)], [probability, seed_scalar(seed)])
    assert set(np.unique(y)) <= {np.float32(0), np.float32(1 / (1 - np.float32(probability)))}
    survived: npt.NDArray[np.bool_] = y != 0
    return survived


@pytest.mark.parametrize("probability", [0.0, 0.1, 0.5, 0.9])
def test_dropout_keeps_the_expected_share_of_elements(
    probability: float, libraries: KernelLibraries
) -> None:
    deviation = np.sqrt(probability * (1 - probability) / COUNT)
    for seed in (0, 1, 2, 0xFFFFFFFF):
        share = kept(libraries["in-tree"], probability, seed).mean()
        assert share == pytest.approx(1 - probability, abs=4.5 * deviation)


def test_dropout_with_probability_one_leaves_zeros(libraries: KernelLibraries) -> None:
    spec = OpSpec.of("dropout.forward", elements=100)
    (y,) = libraries["in-tree"].run(spec, [np.ones(100, np.float32)], [1.0, seed_scalar(3)])
    assert not y.any()


@given(
    shape=st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(1, 40)),
    cut=st.data(),
    seed=st.integers(0, 2**32 - 1),
)
def test_dropout_of_parts_drops_what_dropout_of_the_whole_drops(
    shape: tuple[int, int, int], cut: st.DataObject, seed: int, libraries: KernelLibraries
) -> None:
    outer, channels, inner = shape
    first = cut.draw(st.integers(0, channels - 1))
    end = cut.draw(st.integers(first + 1, channels))
    x = np.random.default_rng(seed).normal(size=shape).astype(np.float32)
    scalars = [0.4, seed_scalar(seed)]
    whole = OpSpec.of("dropout.forward", elements=x.size)
    (expected,) = libraries["in-tree"].run(whole, [x], scalars)
    part = OpSpec.of(
        "dropout_part.forward",
        **{"outer": outer, "inner": (end - first) * inner},
        **{"distance": channels * inner, "first": first * inner},
    )
    (found,) = libraries["in-tree"].run(part, [x[:, first:end].reshape(outer, -1)], scalars)
    of_part = expected.reshape(shape)[:, first:end]
    assert found.tobytes() == np.ascontiguousarray(of_part).tobytes()


def test_dropout_masks_of_neighbouring_elements_and_seeds_are_independent(
    libraries: KernelLibraries,
) -> None:
    """Correlations of 200,000 fair coins have a standard deviation of 0.0022."""
    masks = {seed: kept(libraries["in-tree"], 0.5, seed) - 0.5 for seed in (0, 1, 2, 256, 1 << 31)}
    for mask in masks.values():
        for lag in (1, 2, 3, 4, 8, 16, 64, 256, 1024, 65536):
            assert abs(4 * np.mean(mask[lag:] * mask[:-lag])) < 0.012
    for one, two in itertools.combinations(masks.values(), 2):
        for lag in (0, 1, 2):
            assert abs(4 * np.mean(one[lag:] * two[: COUNT - lag])) < 0.012


@given(rows=st.integers(1, 60), inner=st.integers(1, 40), seed=st.integers(0, 2**32 - 1))
def test_dropout_of_rows_drops_each_row_as_dropout_does_an_element(
    rows: int, inner: int, seed: int, libraries: KernelLibraries
) -> None:
    draws = OpSpec.of("dropout.forward", elements=rows)
    drawn, scalars = [0.4, seed_scalar(seed)], [0.4, 1.25, seed_scalar(seed)]
    (kept_rows,) = libraries["in-tree"].run(draws, [np.ones(rows, np.float32)], drawn)
    x = uniform((rows, inner), 3)
    x[kept_rows == 0] = np.inf
    expected = np.where(kept_rows[:, None] == 0, np.float32(0), x * np.float32(1.25))
    for kind in kinds_of("dropout_rows"):
        spec = OpSpec.of(kind, rows=rows, inner=inner)
        for in_place in (False, True):
            (y,) = libraries["in-tree"].run(spec, [x], scalars, in_place=in_place)
            assert y.tobytes() == expected.tobytes()


def test_the_gradient_of_dropout_replays_its_mask(library: KernelLibrary) -> None:
    ones, scalars = np.ones(5001, np.float32), [0.4, seed_scalar(SEED_BITS)]
    (y,) = library.run(OpSpec.of("dropout.forward", elements=5001), [ones], scalars)
    (dx,) = library.run(OpSpec.of("dropout.input_gradient", elements=5001), [ones], scalars)
    assert y.tobytes() == dx.tobytes()


# --- building the kernels -----------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("tiles", ["-DJW_SMALL_MEMORY=0", "-DJW_SMALL_MEMORY=1"])
def test_the_sanitizers_find_nothing(tmp_path: Path, tiles: str) -> None:
    """Run every kind, apart and in place, on buffers of exactly the needed size.

    The address and the undefined-behaviour sanitizer watch.
    """
    program = tmp_path / "driver"
    command = ["cc", *FLAGS, *WARNINGS, "-D_POSIX_C_SOURCE=200809L", f"-I{KERNELS}"]
    command += ["-O1", "-g", tiles, "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    command += [str(NATIVE / "kernel_driver.c"), *map(str, sources())]
    compile_once(command, program, ["-lm"])
    specs = [small_spec(kind) for kind in sorted(SIGNATURES)] + [spec for _, spec in CASE_KINDS]
    specs += drawn_specs()
    lines = [
        driver_line(spec, in_place)
        for spec in specs
        for in_place in ((0, 1) if spec.signature.in_place else (0,))
    ]
    done = subprocess.run(
        [str(program)],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "ASAN_OPTIONS": "detect_leaks=0"},
    )
    assert (done.returncode, done.stderr) == (0, "")


SHORT_PLANES = OpSpec.parse(
    "conv2d_part.forward batch=2 in_channels=12 in_height=11 in_width=15 out_channels=19"
    " kernel_height=3 kernel_width=4 stride_height=3 stride_width=2 pad_top=1 pad_bottom=3"
    " pad_left=0 pad_right=0 groups=1 bias=0 first=0 channels=19"
)
"""With small tiles, a tile of its rows is smaller than the plane of which it has a table."""


def drawn_specs() -> Iterator[OpSpec]:
    """Some operations of every kind, of sizes that networks have, and none that takes long."""
    yield SHORT_PLANES
    chance = random.Random(0)
    for kind in SIGNATURES:
        for _ in range(6):
            try:
                spec = OpSpec.of(kind, **draw_attributes(kind, chance))
            except OperationError:  # such as a window that is larger than its image
                continue
            if spec.moved_bytes < 200_000 and spec.work_flop < 2_000_000:
                yield spec


def driver_line(spec: OpSpec, in_place: int) -> str:
    written = [operand.role for operand in spec.writes]
    taken_by = {read: each for each, read in spec.in_place.items()}
    bits = np.array(scalars_for(spec), np.float32).view(np.uint32)
    words: list[object] = [spec.kind, in_place, len(spec.values), *spec.values, bits.size, *bits]
    words.append(len(spec.reads))
    for operand in spec.reads:
        shared = written.index(taken_by[operand.role]) if operand.role in taken_by else -1
        words += [operand.elements, operand.index_bound, shared]
    words += [len(spec.writes), *(operand.elements for operand in spec.writes)]
    return " ".join(map(str, words))


@pytest.mark.slow
def test_the_library_neither_allocates_nor_prints(tmp_path: Path) -> None:
    library = compile_library(tmp_path, "in-tree", ("-O1",))
    command = ["nm", "--undefined-only", "--dynamic", str(library)]
    listing = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    needed = {word.partition("@")[0] for word in listing.split()}
    assert needed.isdisjoint({"malloc", "calloc", "realloc", "free", "printf", "fopen", "write"})
