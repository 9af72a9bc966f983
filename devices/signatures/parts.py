"""Parts of a convolution or a linear layer: some of its output channels or features at a time.

A part's attributes are those of the whole operation, its first output channel (``first``) and its
number of ``channels``. All parts together, in the order of their channels, compute the bits of the
whole operation, wherever it is cut. Parts that write one tensor form a chain: the first part begins
the tensor, and every other part reads it unfinished and continues it, in place where the step
allows it. Channels that no part has written yet are undefined.

The input gradient of a convolution sums over all output channels before it adds up overlapping
windows. Parts of it therefore sum in ``columns``, which has an element for each input channel, tap
and output position, and ``conv2d_part.fold`` adds up the windows afterwards. Both may be limited to
a range of ``inputs`` input channels from ``first_input`` on, for which ``columns`` is smaller.
Where :func:`is_pointwise` holds, windows do not overlap, and ``conv2d_part.input_gradient`` does
without columns.
"""

from __future__ import annotations

from collections.abc import Mapping

from devices.signatures import matrices, windows
from devices.signatures.base import Attributes, Operand, OperationError, Signature, define

KINDS: dict[str, Signature] = {}

PART = ("first", "channels")
"""Attributes of a part, after those of the whole operation."""

INPUT_RANGE = ("first_input", "inputs")
"""Attributes of a range of input channels, after all others."""

_WHOLE_KINDS: Mapping[str, str] = {
    f"{family}_part.{entry}": f"{family}.{entry}"
    for family in ("conv2d", "linear")
    for entry in ("forward", "input_gradient", "parameter_gradient")
}
_COLUMNS = "conv2d_part.columns_gradient"
_SIZES = {"conv2d": "out_channels", "linear": "out_features"}
_PARAMETERS = frozenset({"weight", "bias", "weight_gradient", "bias_gradient"})


def whole_kind(kind: str) -> str | None:
    """Kind of the operation whose products a kind computes in parts, or None."""
    return "conv2d.input_gradient" if kind == _COLUMNS else _WHOLE_KINDS.get(kind)


def is_pointwise(a: Attributes) -> bool:
    """Whether a convolution's windows are single elements, and each element is in one window."""
    sizes = ("kernel_height", "kernel_width", "stride_height", "stride_width")
    pads = ("pad_top", "pad_bottom", "pad_left", "pad_right")
    return all(a[size] == 1 for size in sizes) and not any(a[pad] for pad in pads)


def _require_part(family: str, a: Attributes) -> None:
    size = _SIZES[family]
    _require_range(family, a, ("first", "channels", size))
    _require_ungrouped(family, a)


def _require_ungrouped(family: str, a: Attributes) -> None:
    if a.get("groups", 1) != 1:
        raise OperationError(f"{family}_part: groups={a['groups']}; only groups=1 can be cut")


def _require_range(family: str, a: Attributes, names: tuple[str, str, str]) -> None:
    first, count, size = names
    if a[first] + a[count] > a[size]:
        raise OperationError(
            f"{family}_part: {first}={a[first]} and {count}={a[count]} exceed {size}={a[size]}"
        )


def _before(written: Operand) -> Operand:
    """A written operand as the parts before have left it."""
    return Operand(f"{written.role}_before", written.shape)


def _define_part(kind: str, whole_kind: str) -> None:
    family, _, entry = whole_kind.partition(".")
    whole = {**windows.KINDS, **matrices.KINDS}[whole_kind]
    continues = entry != "parameter_gradient"

    def cut(a: Attributes, operands: tuple[Operand, ...]) -> tuple[Operand, ...]:
        """Parameters have a row for each output channel; a part has its own rows."""
        return tuple(
            Operand(o.role, (a["channels"], *o.shape[1:])) if o.role in _PARAMETERS else o
            for o in operands
        )

    def reads(a: Attributes) -> tuple[Operand, ...]:
        _require_part(family, a)
        if kind == "conv2d_part.input_gradient" and not is_pointwise(a):
            raise OperationError(
                f"{kind}: windows overlap or skip elements; use conv2d_part.columns_gradient"
                " and conv2d_part.fold"
            )
        before = tuple(map(_before, whole.writes(a))) if continues and a["first"] else ()
        return (*cut(a, whole.reads(a)), *before)

    written = "output" if entry == "forward" else "input_gradient"
    define(
        KINDS,
        kind,
        (*whole.attributes, *PART),
        reads,
        lambda a: cut(a, whole.writes(a)),
        lambda a: whole.work_flop(a) * a["channels"] // a[_SIZES[family]],
        in_place={written: f"{written}_before"} if continues else None,
        continues=continues,
    )


for _kind, _whole_kind in _WHOLE_KINDS.items():
    _define_part(_kind, _whole_kind)


_WHOLE = windows.KINDS["conv2d.input_gradient"]


def _columns(a: Attributes, role: str) -> Operand:
    _require_range("conv2d", a, ("first_input", "inputs", "in_channels"))
    positions = _WHOLE.reads(a)[0].elements // a["out_channels"]
    return Operand(role, (a["inputs"] * a["kernel_height"] * a["kernel_width"], positions))


def _columns_reads(a: Attributes) -> tuple[Operand, ...]:
    _require_part("conv2d", a)
    gradient, weight = _WHOLE.reads(a)
    rows = Operand(weight.role, (a["channels"], *weight.shape[1:]))
    return (gradient, rows, *((_columns(a, "columns_before"),) if a["first"] else ()))


def _fold_reads(a: Attributes) -> tuple[Operand, ...]:
    _require_ungrouped("conv2d", a)
    before = tuple(map(_before, _WHOLE.writes(a))) if a["first_input"] else ()
    return (_columns(a, "columns"), *before)


define(
    KINDS,
    _COLUMNS,
    (*_WHOLE.attributes, *PART, *INPUT_RANGE),
    _columns_reads,
    lambda a: (_columns(a, "columns"),),
    lambda a: (
        _WHOLE.work_flop(a)
        * (a["channels"] * a["inputs"])
        // (a["out_channels"] * a["in_channels"])
    ),
    in_place={"columns": "columns_before"},
    continues=True,
)
define(
    KINDS,
    "conv2d_part.fold",
    (*_WHOLE.attributes, *INPUT_RANGE),
    _fold_reads,
    _WHOLE.writes,
    lambda a: _columns(a, "columns").elements,
    in_place={"input_gradient": "input_gradient_before"},
    continues=True,
)


def representative(kind: str, a: Attributes) -> Attributes:
    """Attributes of the operation that is measured for all that do the same work elsewhere.

    A part that continues a result is represented by the second one of its size, every other by the
    first.
    """
    if kind not in KINDS:
        return a
    found = dict(a)
    operands = {operand.role for operand in KINDS[kind].reads(a)}
    continued = any(role.endswith("_before") for role in operands)
    for first, count in (PART, INPUT_RANGE):
        if first in a:
            found[first] = 0
            if continued and a[first] and (first == PART[0] or PART[0] not in a):
                found[first] = a[count]
    return found


def smaller_layer(kind: str, a: Attributes) -> tuple[str, Attributes] | None:
    """Kind and attributes of a layer's operation with as many channels as a part has.

    None for what is no part, and for a fold, which no operation of a layer is.
    """
    whole = whole_kind(kind)
    if whole is None:
        return None
    found = {name: value for name, value in a.items() if name not in (*PART, *INPUT_RANGE)}
    found[_SIZES[whole.partition(".")[0]]] = a["channels"]
    if "inputs" in a:
        found["in_channels"] = a["inputs"]
    return whole, found
