"""Tensors that are the same in every step: computed here with numpy, while the file is read.

A network states much that does not depend on its inputs or trained parameters: positions, masks,
the angles of a rotary embedding. The functions below are those of ATen with these names.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
Arguments: TypeAlias = Mapping[str, Any]
"""Arguments by ATen's names; tensors are arrays."""

MOST_ELEMENTS = 2**24
"""Elements of the largest constant."""


SHAPE_ONLY = frozenset(
    f"{name}.default"
    for name in ("zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full")
)
"""Operations that read only the shape of their tensor."""


def is_foldable(operation: str) -> bool:
    """Whether :func:`computed` knows this operation."""
    return operation in _FUNCTIONS


def computed(
    operation: str, arguments: Arguments, shape: tuple[int, ...], dtype: Any
) -> Array | None:
    """Compute the result of an operation on constants.

    Args:
        operation: ATen's name, such as ``add.Tensor``.
        arguments: Its arguments.
        shape: Shape of the result in the program.
        dtype: Element type of the result in the program.

    Returns:
        The result, which may share memory with the arguments; None if the function is not known,
        its operands or its result are too large, or the result has another shape or no numbers.
    """
    function = _FUNCTIONS.get(operation)
    sizes = [value.size for value in arguments.values() if isinstance(value, np.ndarray)]
    if function is None or math.prod(shape) > MOST_ELEMENTS or sum(sizes) > 4 * MOST_ELEMENTS:
        return None
    try:
        with np.errstate(all="ignore"):
            found = np.asarray(function(arguments, shape))
    except (AttributeError, KeyError, TypeError, ValueError, IndexError, OverflowError):
        return None  # an argument that is missing, not known here, or not valid
    if found.shape != shape or found.dtype.kind not in "biuf":
        return None
    with np.errstate(all="ignore"):  # what is infinite has no whole number
        return found if found.dtype == dtype else found.astype(dtype)


_Function: TypeAlias = Callable[[Arguments, tuple[int, ...]], Any]


def _unary(function: Callable[[Array], Any]) -> _Function:
    return lambda a, _: function(a["self"])


def _binary(function: Callable[[Any, Any], Any]) -> _Function:
    return lambda a, _: function(_weak(a["self"]), _weak(a.get("other", a.get("exponent"))))


def _weak(value: Any) -> Any:
    """A tensor without axes as a number, which decides no element type, as in ATen."""
    return value.item() if isinstance(value, np.ndarray) and value.ndim == 0 else value


def _scaled(sign: int) -> _Function:
    return lambda a, _: _weak(a["self"]) + sign * a.get("alpha", 1) * _weak(a["other"])


def _divided(a: Arguments, _: object) -> Any:
    quotient = np.true_divide(a["self"], a["other"])
    mode = a.get("rounding_mode")
    return quotient if mode is None else {"floor": np.floor, "trunc": np.trunc}[mode](quotient)


def _filled(value: float) -> _Function:
    return lambda _, shape: np.full(shape, value)


def _full(a: Arguments, shape: tuple[int, ...]) -> Any:
    return np.full(shape, a["fill_value"])


def _range(a: Arguments, shape: tuple[int, ...]) -> Any:
    return a.get("start", 0) + np.arange(shape[0]) * a.get("step", 1)


def _reshaped(a: Arguments, shape: tuple[int, ...]) -> Any:
    return a["self"].reshape(shape)


def _contiguous(a: Arguments, _: object) -> Any:
    """The tensor itself, or a copy that may be changed if it may be."""
    x = a["self"]
    return np.asarray(x, order="C") if x.flags.writeable else x


def _broadcast(a: Arguments, shape: tuple[int, ...]) -> Any:
    return np.broadcast_to(a["self"], shape)


def _sliced(a: Arguments, _: object) -> Any:
    where = [slice(None)] * a["self"].ndim
    where[a.get("dim", 0)] = slice(a.get("start"), a.get("end"), a.get("step", 1))
    return a["self"][tuple(where)]


def _selected(a: Arguments, _: object) -> Any:
    """A view, as what is set in it is set in the whole."""
    first = a["dim"] % a["self"].ndim
    return a["self"][(*(slice(None),) * first, a["index"], ...)]


def _indexed(a: Arguments, _: object) -> Any:
    indices = tuple(slice(None) if each is None else each for each in a["indices"])
    return a["self"][indices]


def _difference(a: Arguments, _: object) -> Any:
    return np.diff(
        a["self"],
        a.get("n", 1),
        a.get("dim", -1),
        **{key: a[key] for key in ("prepend", "append") if a.get(key) is not None},
    )


def _chosen(a: Arguments, _: object) -> Any:
    return np.where(a["condition"], a["self"], a["other"])


def _masked(a: Arguments, _: object) -> Any:
    return np.where(a["mask"], a["value"], a["self"])


def _clamped(a: Arguments, _: object) -> Any:
    return np.clip(a["self"], a.get("min"), a.get("max"))


def _reduced(function: Callable[..., Any]) -> _Function:
    def reduced(a: Arguments, _: object) -> Any:
        axes = None if a.get("dim") in (None, ()) else a["dim"]
        return function(a["self"], axis=axes, keepdims=bool(a.get("keepdim", False)))

    return reduced


def _product(a: Arguments, shape: tuple[int, ...]) -> Any:
    left, right = a["self"], a.get("mat2", a.get("other"))
    if math.prod(shape) * left.shape[-1] > 8 * MOST_ELEMENTS:
        raise ValueError
    return np.matmul(left, right)


_NUMBERED: Mapping[str, Callable[[Any, Any], Any]] = {
    **{"mul": np.multiply, "pow": np.power, "floor_divide": np.floor_divide},
    **{"remainder": np.mod, "eq": np.equal, "ne": np.not_equal, "lt": np.less},
    **{"le": np.less_equal, "gt": np.greater, "ge": np.greater_equal},
    **{"__and__": np.bitwise_and, "__or__": np.bitwise_or, "bitwise_and": np.bitwise_and},
    **{"bitwise_or": np.bitwise_or},
}
_OF_ONE: Mapping[str, Callable[[Any], Any]] = {
    **{"sin": np.sin, "cos": np.cos, "exp": np.exp, "log": np.log, "sqrt": np.sqrt},
    **{"rsqrt": lambda x: 1 / np.sqrt(x), "reciprocal": lambda x: 1 / x, "abs": np.abs},
    **{"neg": np.negative, "floor": np.floor, "ceil": np.ceil, "round": np.round},
    **{"tanh": np.tanh, "square": np.square, "logical_not": np.logical_not},
    **{"bitwise_not": np.invert, "t": np.transpose, "numpy_T": np.transpose, "sign": np.sign},
}
_SAME = (
    *("alias.default", "detach.default", "to.dtype", "to.dtype_layout"),
    *("to.device", "type_as.default", "to.other"),
)
_COPIES = ("clone.default", "lift_fresh_copy.default", "_to_copy.default")
_FUNCTIONS: Mapping[str, _Function] = {
    **{f"{name}.default": _unary(function) for name, function in _OF_ONE.items()},
    **{
        f"{name}.{overload}": _binary(function)
        for name, function in _NUMBERED.items()
        for overload in ("Tensor", "Scalar", "Tensor_Scalar", "Tensor_Tensor")
    },
    "pow.Scalar": _binary(np.power),
    **dict.fromkeys(("maximum.default", "max.other"), _binary(np.maximum)),
    **dict.fromkeys(("minimum.default", "min.other"), _binary(np.minimum)),
    "logical_and.default": _binary(np.logical_and),
    "logical_or.default": _binary(np.logical_or),
    **dict.fromkeys(("add.Tensor", "add.Scalar"), _scaled(1)),
    **dict.fromkeys(("sub.Tensor", "sub.Scalar"), _scaled(-1)),
    "rsub.Scalar": lambda a, _: a["other"] - a.get("alpha", 1) * a["self"],
    **dict.fromkeys(("div.Tensor", "div.Tensor_mode", "div.Scalar"), _divided),
    **dict.fromkeys(("zeros.default", "zeros_like.default", "new_zeros.default"), _filled(0)),
    **dict.fromkeys(("ones.default", "ones_like.default", "new_ones.default"), _filled(1)),
    **dict.fromkeys(("full.default", "full_like.default", "new_full.default"), _full),
    "scalar_tensor.default": lambda a, _: a["s"],
    **dict.fromkeys(("arange.default", "arange.start", "arange.start_step"), _range),
    **dict.fromkeys(("eye.default", "eye.m"), lambda _, shape: np.eye(shape[0], shape[1])),
    "linspace.default": lambda a, _: np.linspace(a["start"], a["end"], a["steps"]),
    **dict.fromkeys(_SAME, _unary(lambda x: x)),
    "contiguous.default": _contiguous,
    **dict.fromkeys(_COPIES, _unary(np.copy)),
    **dict.fromkeys(
        ("fill.Tensor", "fill.Scalar"), lambda a, _: np.full_like(a["self"], a["value"])
    ),
    "zero.default": lambda a, _: np.zeros_like(a["self"]),
    "copy.default": lambda a, shape: np.broadcast_to(a["src"], shape),
    **dict.fromkeys(
        (
            *("view.default", "reshape.default", "unsqueeze.default", "flatten.using_ints"),
            *("squeeze.default", "squeeze.dim", "squeeze.dims", "unflatten.int"),
            "_unsafe_view.default",
        ),
        _reshaped,
    ),
    "expand.default": _broadcast,
    "transpose.int": lambda a, _: np.swapaxes(a["self"], a["dim0"], a["dim1"]),
    "permute.default": lambda a, _: np.transpose(a["self"], a["dims"]),
    "slice.Tensor": _sliced,
    "select.int": _selected,
    "index.Tensor": _indexed,
    "gather.default": lambda a, _: np.take_along_axis(a["self"], a["index"], a["dim"]),
    "cat.default": lambda a, _: np.concatenate(a["tensors"], a.get("dim", 0)),
    "stack.default": lambda a, _: np.stack(a["tensors"], a.get("dim", 0)),
    "repeat.default": lambda a, _: np.tile(a["self"], a["repeats"]),
    "tril.default": lambda a, _: np.tril(a["self"], a.get("diagonal", 0)),
    "triu.default": lambda a, _: np.triu(a["self"], a.get("diagonal", 0)),
    "flip.default": lambda a, _: np.flip(a["self"], a["dims"]).copy(),
    "roll.default": lambda a, _: np.roll(a["self"], a["shifts"], a.get("dims") or None),
    "cumsum.default": lambda a, _: np.cumsum(a["self"], a["dim"]),
    "diff.default": _difference,
    **dict.fromkeys(("where.self", "where.ScalarOther", "where.ScalarSelf"), _chosen),
    **dict.fromkeys(("masked_fill.Scalar", "masked_fill.Tensor"), _masked),
    **dict.fromkeys(("clamp.default", "clamp_min.default", "clamp_max.default"), _clamped),
    **dict.fromkeys(("sum.default", "sum.dim_IntList"), _reduced(np.sum)),
    **dict.fromkeys(("mean.default", "mean.dim"), _reduced(np.mean)),
    **dict.fromkeys(("any.default", "any.dim", "any.dims"), _reduced(np.any)),
    **dict.fromkeys(("all.default", "all.dim", "all.dims"), _reduced(np.all)),
    **dict.fromkeys(("matmul.default", "bmm.default", "mm.default"), _product),
    "outer.default": lambda a, _: np.multiply.outer(a["self"], a["vec2"]),
}
