"""Parts of a layer: some output channels or features, or some rows of a table, at a time.

A part's attributes are those of the whole operation, its first output channel (``first``) and its
number of ``channels``. All parts together, in the order of their channels, compute the bits of the
whole operation, wherever it is cut. Parts that write one tensor form a chain: the first part begins
the tensor, and every other part reads it unfinished and continues it, in place where the step
allows it. Channels that no part has written yet are undefined.

A part of an embedding has the rows of a table from ``first`` on. It writes the rows of the output
whose indices are among them.

The input gradient of a convolution that keeps the size of its image is gathered: every element is
one sum over the output channels and, within a channel, the taps. For all others
(:func:`needs_columns`), all output channels are summed before overlapping windows are added up.
Parts then sum in ``columns``, which has an element for each input channel, tap and output position,
and ``conv2d_part.fold`` adds up the windows afterwards. Both may be limited to a range of
``inputs`` input channels from ``first_input`` on, for which ``columns`` is smaller.
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

_EMBEDDINGS = ("embedding", "embedding_padded")

LOOKUPS = frozenset(
    f"{family}.forward" for name in _EMBEDDINGS for family in (name, f"{name}_part")
)
"""Kinds that select rows of a table, or of a part of it."""

_WHOLE_KINDS: Mapping[str, str] = {
    f"{family}_part.{entry}": f"{family}.{entry}"
    for family in ("conv2d", "linear")
    for entry in ("forward", "input_gradient", "parameter_gradient")
} | {
    f"{family}_part.{entry}": f"{family}.{entry}"
    for family in _EMBEDDINGS
    for entry in ("forward", "parameter_gradient")
}
_WHOLES = {**windows.KINDS, **matrices.KINDS}
_COLUMNS = "conv2d_part.columns_gradient"
_PRODUCTS = frozenset({"conv2d", "linear"})
_SIZES = {
    **{"conv2d": "out_channels", "linear": "out_features"},
    **dict.fromkeys(_EMBEDDINGS, "vocabulary"),
}
_PARAMETERS = frozenset(
    {"weight", "bias", "weight_gradient", "bias_gradient", "table", "table_gradient"}
)


def whole_kind(kind: str) -> str | None:
    """Kind of the operation whose products a kind computes in parts or blocks, or None."""
    family, _, entry = kind.partition(".")
    whole, _, cut = family.rpartition("_")
    if whole not in _PRODUCTS or cut not in {"part", "block"} or entry == "fold":
        return None
    return f"{whole}.{'input_gradient' if entry == 'columns_gradient' else entry}"


def needs_columns(a: Attributes) -> bool:
    """Whether the input gradient of a convolution is summed in columns and folded.

    With a stride of 1 and enough padding it is gathered from the output gradient instead, which
    takes a product for every position of the input, and not of the output.
    """
    strides = a["stride_height"], a["stride_width"]
    image, result = (operand.elements for operand in (_WHOLE.writes(a)[0], _WHOLE.reads(a)[0]))
    return strides != (1, 1) or image * a["out_channels"] > result * a["in_channels"]


def require_gathered(kind: str, a: Attributes) -> None:
    """Raise :class:`OperationError` unless a kind is the one for a convolution's windows."""
    family, _, entry = kind.partition(".")
    if family.startswith("conv2d") and entry == "input_gradient" and needs_columns(a):
        raise OperationError(
            f"{kind}: the result has fewer positions than the image; use"
            f" {family}.columns_gradient and conv2d_part.fold"
        )
    if entry in {"columns_gradient", "fold"} and not needs_columns(a):
        raise OperationError(
            f"{kind}: the result has as many positions as the image; use {family}.input_gradient"
        )


def _require_part(family: str, a: Attributes) -> None:
    require_range(f"{family}_part", a, (*PART, _SIZES[family]))
    require_ungrouped(f"{family}_part", a)


def require_ungrouped(family: str, a: Attributes) -> None:
    if a.get("groups", 1) != 1:
        raise OperationError(f"{family}: groups={a['groups']}; only groups=1 can be cut")


def require_range(family: str, a: Attributes, names: tuple[str, str, str]) -> None:
    first, count, size = names
    if a[first] + a[count] > a[size]:
        raise OperationError(
            f"{family}: {first}={a[first]} and {count}={a[count]} exceed {size}={a[size]}"
        )


def before(written: Operand) -> Operand:
    """A written operand as the parts before have left it."""
    return Operand(f"{written.role}_before", written.shape)


def _define_part(kind: str, whole_kind: str) -> None:
    family, _, entry = whole_kind.partition(".")
    whole = _WHOLES[whole_kind]
    continues = entry != "parameter_gradient"

    def cut(a: Attributes, operands: tuple[Operand, ...]) -> tuple[Operand, ...]:
        """Parameters have a row for each output channel or index; a part has its own rows."""
        return tuple(
            Operand(o.role, (a["channels"], *o.shape[1:])) if o.role in _PARAMETERS else o
            for o in operands
        )

    def reads(a: Attributes) -> tuple[Operand, ...]:
        _require_part(family, a)
        require_gathered(kind, a)
        chained = tuple(map(before, whole.writes(a))) if continues and a["first"] else ()
        return (*cut(a, whole.reads(a)), *chained)

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


def columns(a: Attributes, role: str, inputs: int) -> Operand:
    """Unfolded gradient of so many input channels; empty if the window exceeds the image."""
    batch, _, height, width = _WHOLE.reads(a)[0].shape
    positions = batch * max(height, 0) * max(width, 0)
    return Operand(role, (inputs * a["kernel_height"] * a["kernel_width"], positions))


def _columns(a: Attributes, role: str) -> Operand:
    require_range("conv2d_part", a, ("first_input", "inputs", "in_channels"))
    return columns(a, role, a["inputs"])


def _columns_reads(a: Attributes) -> tuple[Operand, ...]:
    _require_part("conv2d", a)
    require_gathered(_COLUMNS, a)
    gradient, weight = _WHOLE.reads(a)
    rows = Operand(weight.role, (a["channels"], *weight.shape[1:]))
    return (gradient, rows, *((_columns(a, "columns_before"),) if a["first"] else ()))


def _fold_reads(a: Attributes) -> tuple[Operand, ...]:
    require_ungrouped("conv2d_part", a)
    require_gathered("conv2d_part.fold", a)
    chained = tuple(map(before, _WHOLE.writes(a))) if a["first_input"] else ()
    return (_columns(a, "columns"), *chained)


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


def representative(a: Attributes, *, continued: bool) -> Attributes:
    """Attributes of the operation that is measured for all that do the same work elsewhere.

    A part that continues a result (``continued``) is represented by the second one of its size,
    every other by the first.
    """
    found = dict(a)
    for first, count in (PART, INPUT_RANGE):
        if first in a:
            found[first] = 0
            if continued and a[first] and (first == PART[0] or PART[0] not in a):
                found[first] = a[count]
    return found


def smaller_layer(kind: str, a: Attributes) -> tuple[str, Attributes] | None:
    """Kind and attributes of a layer's operation with as many channels as a part or block has.

    None for what is neither, and for a fold, which no operation of a layer is.
    """
    whole = _WHOLE_KINDS.get(kind) or whole_kind(kind)
    if whole is None:
        return None
    found = {name: a[name] for name in _WHOLES[whole].attributes}
    if "channels" in a:
        found[_SIZES[whole.partition(".")[0]]] = a["channels"]
    if "inputs" in a:
        found["in_channels"] = a["inputs"]
    return whole, found
