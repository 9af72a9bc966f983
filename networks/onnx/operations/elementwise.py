"""Functions of one tensor, arithmetic and reductions."""

from __future__ import annotations

from collections.abc import Mapping
from math import isclose, prod

from networks.exported.construction import Unsupported
from networks.onnx.operation import OnnxOperation, Translation, checked_axes


def _function(target: str) -> Translation:
    def translated(op: OnnxOperation) -> None:
        op.become(target, self=op.tensor())

    return translated


def _scaled(target: str, **defaults: tuple[str, float]) -> Translation:
    """A function with numbers: ATen's name of each, ONNX's, and ONNX's default."""

    def translated(op: OnnxOperation) -> None:
        numbers = {name: op.number(*stated) for name, stated in defaults.items()}
        op.become(target, self=op.tensor(), **numbers)

    return translated


def _hard_sigmoid(op: OnnxOperation) -> None:
    slope, shift = op.number("alpha", 0.2), op.number("beta", 0.5)
    if isclose(slope, 1 / 6, rel_tol=1e-6) and shift == 0.5:
        op.become("hardsigmoid.default", self=op.tensor())
        return
    scaled = op.step("scaled", "mul.Tensor", op.result, self=op.tensor(), other=slope)
    shifted = op.step("shifted", "add.Tensor", op.result, self=scaled, other=shift)
    op.become("clamp.default", self=shifted, min=0.0, max=1.0)


def _gelu(op: OnnxOperation) -> None:
    op.become("gelu.default", self=op.tensor(), approximate=op.text("approximate", "none"))


def _clip(op: OnnxOperation) -> None:
    bounds = {}
    for position, name in enumerate(("min", "max"), start=1):
        found = op.setting(name, position)
        if found is not None and len(found) != 1:
            raise Unsupported(f"{name} has {len(found)} numbers")
        if found is not None:
            bounds[name] = float(found[0])
    if bounds:
        op.become("clamp.default", self=op.tensor(), **bounds)
    else:
        op.become("alias.default", self=op.tensor())


def _pairwise(target: str) -> Translation:
    def translated(op: OnnxOperation) -> None:
        op.become(target, self=op.tensor(0), other=op.tensor(1))

    return translated


def _quotient(quotient: Translation) -> Translation:
    """A quotient, which ONNX rounds if it is one of whole numbers."""

    def translated(op: OnnxOperation) -> None:
        if op.program.is_whole(op.outputs[0]):
            raise Unsupported("it divides whole numbers, and its quotient is rounded")
        quotient(op)

    return translated


def _add(op: OnnxOperation) -> None:
    """A sum, or the bias of a linear layer that is stated as a product and a sum."""
    for product, bias in ((0, 1), (1, 0)):
        if op.program.with_bias(op.input(product), op.input(bias), op.outputs[0]):
            return
    op.become("add.Tensor", self=op.tensor(0), other=op.tensor(1))


def _sum(op: OnnxOperation) -> None:
    if len(op.inputs) == 1:
        op.become("alias.default", self=op.tensor())
    elif len(op.inputs) == 2:
        op.become("add.Tensor", self=op.tensor(0), other=op.tensor(1))
    else:
        raise Unsupported(f"it adds {len(op.inputs)} tensors", "two at a time")


def _power(op: OnnxOperation) -> None:
    exponent = op.known(1)
    if exponent.size != 1:
        raise Unsupported("its exponent is not one number")
    op.become("pow.Tensor_Scalar", self=op.tensor(), exponent=float(exponent.item()))


def _prelu(op: OnnxOperation) -> None:
    shape, slopes = op.shape(), op.shape(1)
    aligned = (*(1,) * (len(shape) - len(slopes)), *slopes)
    if prod(slopes) > 1 and aligned != (1, *shape[1:2], *(1,) * (len(shape) - 2)):
        why = f"its slopes have shape {slopes}, its input {shape}"
        raise Unsupported(why, "one slope, or one for each channel")
    op.become("prelu.default", self=op.tensor(0), weight=op.tensor(1))


def _where(op: OnnxOperation) -> None:
    op.known(0)
    op.become("where.self", condition=op.tensor(0), self=op.tensor(1), other=op.tensor(2))


def _reduced(target: str) -> Translation:
    def translated(op: OnnxOperation) -> None:
        stated = op.setting("axes", 1)
        if not stated and op.integer("noop_with_empty_axes", 0):
            op.become("alias.default", self=op.tensor())
            return
        count = len(op.shape())
        axes = checked_axes(tuple(stated or range(count)), count)
        keepdim = bool(op.integer("keepdims", 1))
        op.become(target, self=op.tensor(), dim=axes, keepdim=keepdim)

    return translated


def default_softmax_axis(version: int) -> int:
    """Axis of a softmax that states none, in a set of operations."""
    return -1 if version >= 13 else 1


def _softmax(op: OnnxOperation) -> None:
    count = len(op.shape())
    first = op.axis(count, default_softmax_axis(op.version))
    if op.version < 13 and any(size != 1 for size in op.shape()[first + 1 :]):
        raise Unsupported(f"it is over all axes from {first} on", "set 13 or newer")
    op.become("softmax.int", self=op.tensor(), dim=first)


_FUNCTIONS = {
    **{"Relu": "relu", "Sigmoid": "sigmoid", "Tanh": "tanh", "Exp": "exp", "Log": "log"},
    **{"Sqrt": "sqrt", "Abs": "abs", "Neg": "neg", "Reciprocal": "reciprocal", "Mish": "mish"},
    **{"HardSwish": "hardswish", "Softplus": "softplus", "Identity": "alias"},
    "Dropout": "alias",  # the network is one of inference
}
_PAIRS = {"Sub": "sub.Tensor", "Mul": "mul.Tensor"}

ELEMENTWISE: Mapping[str, Translation] = {
    **{name: _function(f"{target}.default") for name, target in _FUNCTIONS.items()},
    **{name: _pairwise(target) for name, target in _PAIRS.items()},
    "Div": _quotient(_pairwise("div.Tensor")),
    "Add": _add,
    "Cast": _function("to.dtype"),
    "LeakyRelu": _scaled("leaky_relu.default", negative_slope=("alpha", 0.01)),
    "PRelu": _prelu,
    "Elu": _scaled("elu.default", alpha=("alpha", 1.0)),
    "HardSigmoid": _hard_sigmoid,
    "Gelu": _gelu,
    "Clip": _clip,
    "Sum": _sum,
    "Pow": _power,
    "Where": _where,
    "ReduceMean": _quotient(_reduced("mean.dim")),
    "ReduceSum": _reduced("sum.dim_IntList"),
    "Softmax": _softmax,
}
