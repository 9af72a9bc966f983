"""Profiles from published rates, and the FLOP counts behind them.

The figures are those of POET (Patil et al., "POET: Training Neural Networks on Tiny Devices with
Integrated Rematerialization and Paging", ICML 2022) and of the repository that goes with it. They
are FLOP per second and per joule, so they mean something only together with the way in which that
work counts FLOP, which is what :func:`published_flop` reproduces.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

from devices.documents.document import DocumentError, read_yaml
from devices.documents.explain import choices
from devices.operation import SIGNATURES, OpSpec
from devices.profile import DeviceProfile

PUBLISHED = Path(__file__).parent / "published"

_Count: TypeAlias = Callable[[OpSpec], int]


def published_names() -> list[str]:
    """The profiles that come with the project."""
    return sorted(path.stem for path in PUBLISHED.glob("*.yaml"))


def load_published(name: str) -> DeviceProfile:
    """Raises :class:`~devices.documents.document.DocumentError`, with the near name for a typo."""
    known = published_names()
    if name not in known:
        raise DocumentError(f"no published profile {name!r}; {choices(name, known)}")
    return read_yaml(PUBLISHED / f"{name}.yaml", DeviceProfile)


def published_flop(spec: OpSpec) -> int:
    """FLOP of one execution as the published work counts them.

    A backward operation counts twice its forward operation. Where the gradient is split into two
    entries here (input and parameters, query and key), each counts once. Updates and accumulations,
    which the published work leaves out, count one for each element written. A kind that it does not
    know at all counts by the textbook (:attr:`~devices.operation.OpSpec.work_flop`).
    """
    if spec.signature.mutates or spec.kind == "gradient.accumulate":
        return sum(operand.elements for operand in spec.writes)
    if spec.family not in _FORWARD_FLOP:
        return spec.work_flop
    forward = _FORWARD_FLOP[spec.family](spec)
    return forward if spec.kind.endswith(".forward") else forward * 2 // _gradients(spec.family)


def _gradients(family: str) -> int:
    """Into how many entries the backward pass of a family is split."""
    return sum(kind.startswith(f"{family}.") and kind.endswith("_gradient") for kind in SIGNATURES)


def _conv2d(spec: OpSpec) -> int:
    """Counts a product for every position of the input, whatever the stride, and one addition for
    each output."""
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
    "linear": _linear,
    "batch_norm": _per_element(2, "batch", "channels", "plane"),
    "relu": _per_element(1, "elements"),
    "sigmoid": _per_element(4, "elements"),
    "tanh": _per_element(100, "elements"),
    "add": _per_element(1, "elements"),
    "flatten": _per_element(1, "elements"),
    "dropout": _per_element(1, "elements"),
    "max_pool2d": _pool,
    "average_pool2d": _pool,
    "global_average_pool": _per_element(2, "batch", "channels", "plane"),
    "softmax_cross_entropy": _per_element(1, "rows", "classes", "classes"),
}
