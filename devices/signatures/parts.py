"""Parts of a layer: a part of its weight between whole activations, or some rows of a table.

A part of a convolution or of a linear layer has the attributes of the whole operation, a range of
its output channels or features (``channels`` from ``first`` on) and one of its input channels or
features (``inputs`` from ``first_input`` on). All parts together have the bits of the whole
operation, wherever it is cut. Parts that write one tensor form a chain: the first part begins the
tensor, and every other part reads it unfinished and continues it, in place where the step allows
it. Channels that no part has written yet are undefined. The order of a chain:

- ``forward``: for each range of the output, all ranges of the input, in their order. Every element
  is one sum, which begins with the bias and has a term for each input channel and, within a
  channel, each tap. Only the parts with the first input channels have a bias.
- ``input_gradient``: for each range of the input, all ranges of the output, in their order. Every
  element is one sum over output channels and, within a channel, taps.
- ``parameter_gradient``: in any order, since every part writes tensors of its own.

A part of an embedding has the rows of a table from ``first`` on. It writes the rows of the output
whose indices are among them.

The input gradient of a convolution that keeps the size of its image is gathered: it is a sum as
above. For all others (:func:`needs_columns`), all output channels are summed before overlapping
windows are added up. Parts then sum in ``columns``, which has an element for each of their input
channels, tap and output position, and ``conv2d_part.fold`` adds up the windows of these channels
afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping

from devices.signatures import matrices, windows
from devices.signatures.base import Attributes, Operand, OperationError, Signature, define

KINDS: dict[str, Signature] = {}

PART = ("first", "channels")
"""Attributes of a range of output channels, after those of the whole operation."""

INPUT_RANGE = ("first_input", "inputs")
"""Attributes of a range of input channels, after all others."""

INPUT_SIZES: Mapping[str, str] = {"conv2d": "in_channels", "linear": "in_features"}
"""Attribute with the number of input channels of the layers that have parts of both."""

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
    if family in INPUT_SIZES:
        require_range(f"{family}_part", a, (*INPUT_RANGE, INPUT_SIZES[family]))
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


def _follows(a: Attributes) -> bool:
    """Whether this part goes on from what an earlier part wrote."""
    return bool(a["first"] or a.get("first_input"))


def _of_part(a: Attributes, operand: Operand) -> Operand:
    """An operand of the whole operation as a part has it: a parameter with its channels alone."""
    if operand.role not in _PARAMETERS:
        return operand
    rows, *others = (a["channels"], *operand.shape[1:])
    if "inputs" in a and others:
        others[0] = a["inputs"]
    return Operand(operand.role, (rows, *others))


def _share(a: Attributes, family: str) -> tuple[int, int]:
    """Pairs of output and input channels of a part, and of the whole operation."""
    part, whole = a["channels"], a[_SIZES[family]]
    if family in INPUT_SIZES:
        part, whole = part * a["inputs"], whole * a[INPUT_SIZES[family]]
    return part, whole


def _define_part(kind: str, whole_kind: str) -> None:
    family, _, entry = whole_kind.partition(".")
    whole = _WHOLES[whole_kind]
    continues = entry != "parameter_gradient"
    has_bias = entry != "input_gradient"

    def reads(a: Attributes) -> tuple[Operand, ...]:
        _require_part(family, a)
        require_gathered(kind, a)
        if has_bias and a.get("bias") and a.get("first_input"):
            raise OperationError(
                f"{kind}: bias=1 and first_input={a['first_input']}; the parts with the first"
                " inputs have the bias"
            )
        chained = tuple(map(before, whole.writes(a))) if continues and _follows(a) else ()
        return (*(_of_part(a, operand) for operand in whole.reads(a)), *chained)

    def work_flop(a: Attributes) -> int:
        part, of_all = _share(a, family)
        products = whole.work_flop({**a, "bias": 0} if has_bias else a)
        bias = whole.work_flop(a) - products
        return products * part // of_all + bias * a["channels"] // a[_SIZES[family]]

    written = "output" if entry == "forward" else "input_gradient"
    define(
        KINDS,
        kind,
        (*whole.attributes, *PART, *(INPUT_RANGE if family in INPUT_SIZES else ())),
        reads,
        lambda a: tuple(_of_part(a, operand) for operand in whole.writes(a)),
        work_flop,
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
    require_range("conv2d_part", a, (*INPUT_RANGE, INPUT_SIZES["conv2d"]))
    return columns(a, role, a["inputs"])


def _columns_reads(a: Attributes) -> tuple[Operand, ...]:
    _require_part("conv2d", a)
    require_gathered(_COLUMNS, a)
    gradient, weight = _WHOLE.reads(a)
    chained = (_columns(a, "columns_before"),) if a["first"] else ()
    return (gradient, _of_part(a, weight), *chained)


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
    lambda a: _WHOLE.work_flop(a) * _share(a, "conv2d")[0] // _share(a, "conv2d")[1],
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


def representative(kind: str, a: Attributes, *, continued: bool) -> Attributes:
    """Attributes of the operation that is measured for all that do the same work elsewhere.

    A part may read what earlier parts have written (``continued``). If sums go on in it, it is
    represented by the second range of its size along the axis of these sums: the inputs of a
    forward operation, the outputs of a gradient; for a part of a table or a fold, along its only
    axis. Every other part is represented by the first one: it begins its sums, and what lies beside
    them in the same tensor costs nothing in place.
    """
    found = dict(a)
    ranges = [each for each in (PART, INPUT_RANGE) if each[0] in a]
    summed = ranges[-1 if kind.endswith(".forward") else 0] if ranges else None
    for first, count in ranges:
        is_second = continued and (first, count) == summed and a[first] > 0
        found[first] = a[count] if is_second else 0
    return found


def with_all_inputs(kind: str, a: Attributes) -> Attributes:
    """Attributes of a key; a part from before parts had ranges of inputs has all inputs."""
    size = INPUT_SIZES.get(kind.partition("_part.")[0], "")
    if "_part." not in kind or size not in a or not {*INPUT_RANGE}.isdisjoint(a):
        return a
    return {**a, **dict(zip(INPUT_RANGE, (0, a[size]), strict=True))}


def smaller_layer(kind: str, a: Attributes) -> tuple[str, Attributes] | None:
    """Kind and attributes of a layer's operation with as many channels as a part or block has.

    None for what is neither, and for a fold, which no operation of a layer is.
    """
    whole = _WHOLE_KINDS.get(kind) or whole_kind(kind)
    if whole is None:
        return None
    found = {name: a[name] for name in _WHOLES[whole].attributes}
    family = whole.partition(".")[0]
    if "channels" in a:
        found[_SIZES[family]] = a["channels"]
    if "inputs" in a:
        found[INPUT_SIZES[family]] = a["inputs"]
    return whole, found
