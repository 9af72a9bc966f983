"""Profiles made from published rates, and the FLOP counts that the rates refer to.

The figures are those of POET (Patil et al., "POET: Training Neural Networks on Tiny Devices with
Integrated Rematerialization and Paging", ICML 2022) and of its repository. They are FLOP per second
and per joule, and are only meaningful with that work's way of counting FLOP, which
:func:`published_flop` reproduces.

There is one exception. POET counts the square of the classes for each row of a cross entropy. Of
the 10 classes of its networks that is less than a textbook counts, of 32,000 it is 2,700 times as
much, and would be most of a language model's step. Over more classes than the textbook counts FLOP
for each, a cross entropy counts as in textbooks, as its parts do
(:mod:`networks.training.channels.losses`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

from devices.documents.document import DocumentError, read_yaml
from devices.documents.explain import choices
from devices.operation import SIGNATURES, OpSpec
from devices.profile import DeviceProfile
from devices.signatures.parts import whole_kind

PUBLISHED = Path(__file__).parent / "published"

_MOST_CLASSES = 12
"""A textbook counts so many FLOP for each class of a cross entropy."""

_Count: TypeAlias = Callable[[OpSpec], int]


def published_names() -> list[str]:
    """Names of the published profiles that come with the project, sorted."""
    return sorted(path.stem for path in PUBLISHED.glob("*.yaml"))


def load_published(name: str) -> DeviceProfile:
    """Load a published profile by name.

    Args:
        name: One of :func:`published_names`.

    Returns:
        The validated profile.

    Raises:
        DocumentError: There is no such profile; the message has the nearest name.
    """
    known = published_names()
    if name not in known:
        raise DocumentError(f"no published profile {name!r}; {choices(name, known)}")
    return read_yaml(PUBLISHED / f"{name}.yaml", DeviceProfile)


def published_flop(spec: OpSpec) -> int:
    """Count the FLOP of one execution as POET does (Patil et al., ICML 2022).

    A backward operation counts twice its forward operation. If the gradient is split into two
    entries here (input and parameters, query and key), each counts once. Updates and accumulations,
    which the published work leaves out, count one for each element written. A kind that it does not
    contain counts as in textbooks (:attr:`~devices.operation.OpSpec.work_flop`), and so does a
    cross entropy over more than 12 classes. A part of a layer counts as a layer of so many
    channels.

    Args:
        spec: Operation with its shapes.

    Returns:
        Floating-point operations of one execution.
    """
    if spec.signature.mutates or spec.kind == "gradient.accumulate":
        return sum(operand.elements for operand in spec.writes)
    layer = spec.as_layer
    if layer is not None and whole_kind(spec.kind) is not None:
        return published_flop(layer)
    many_classes = spec.attributes.get("classes", 0) > _MOST_CLASSES
    if spec.family not in _FORWARD_FLOP or many_classes:
        return spec.work_flop
    forward = _FORWARD_FLOP[spec.family](spec)
    return forward if spec.kind.endswith(".forward") else forward * 2 // _gradients(spec.family)


def _gradients(family: str) -> int:
    """Number of entries into which the backward pass of a family is split."""
    return sum(kind.startswith(f"{family}.") and kind.endswith("_gradient") for kind in SIGNATURES)


def _conv2d(spec: OpSpec) -> int:
    """Count products at all positions of the input, for any stride, and one addition per output."""
    a = spec.attributes
    positions = a["batch"] * a["in_height"] * a["in_width"]
    window = a["kernel_height"] * a["kernel_width"] * a["in_channels"] // a["groups"]
    outputs = OpSpec("conv2d.forward", spec.values).writes[0].elements
    return 2 * window * positions * a["out_channels"] + outputs


def _linear(spec: OpSpec) -> int:
    a = spec.attributes
    parameters = (a["in_features"] + a["bias"]) * a["out_features"]
    return a["rows"] * (2 * parameters + a["out_features"])


def _pool(spec: OpSpec) -> int:
    a = spec.attributes
    outputs = OpSpec("max_pool2d.forward", spec.values).writes[0].elements
    return 2 * a["kernel_height"] * a["kernel_width"] * outputs


def _per_element(flop: int, *sizes: str) -> _Count:
    def count(spec: OpSpec) -> int:
        elements = flop
        for size in sizes:
            elements *= spec.attributes[size]
        return elements

    return count


_FORWARD_FLOP: Mapping[str, _Count] = {
    "conv2d": _conv2d,
    "depthwise_part": _conv2d,
    "linear": _linear,
    "batch_norm": _per_element(2, "batch", "channels", "plane"),
    "relu": _per_element(1, "elements"),
    "sigmoid": _per_element(4, "elements"),
    "tanh": _per_element(100, "elements"),
    "add": _per_element(1, "elements"),
    "flatten": _per_element(1, "elements"),
    "dropout": _per_element(1, "elements"),
    "dropout_part": _per_element(1, "outer", "inner"),
    "max_pool2d": _pool,
    "average_pool2d": _pool,
    "global_average_pool": _per_element(2, "batch", "channels", "plane"),
    "softmax_cross_entropy": _per_element(1, "rows", "classes", "classes"),
}
