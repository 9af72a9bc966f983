"""Terms of which an operation's cost is a sum, each with a non-negative coefficient of its kind.

A kernel is a nest of loops, so that its cost is a sum over its loops: each has the product of some
of the operation's sizes as its number of executions. :func:`terms` lists the products that occur
in the kernels of a kind. Matrix products are computed in tiles, so that their sizes are also
rounded up to those of tiles. Kinds with the same terms still have coefficients of their own.

:func:`common_terms` and :func:`few_terms` are those that operations of all kinds have. They predict
operations of kinds that were measured a few times or never.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations

from devices.operation import Operand, OpSpec
from devices.signatures.base import Attributes
from devices.signatures.matrices import attended_pairs

Terms = dict[str, float]

# Rows and columns of a tile, as in ``matmul.c`` on boards with and without vectors.
_TILE_ROWS = 4
_TILE_COLUMNS = (4, 8, 24)

# Positions in a tile of a convolution, and its depth, as in ``conv2d.c`` on boards with little and
# with much memory.
_CONVOLUTION_TILES = {32: 64, 256: 256}

# Partial sums of a long sum.
_LANES = 16


def common_terms(spec: OpSpec) -> Terms:
    """Terms of any operation: a call, work, bytes, and contiguous rows of the longest operand."""
    operands = (*spec.reads, *spec.writes)
    return {
        "call": 1.0,
        "work": float(spec.work_flop),
        "read": float(sum(operand.bytes for operand in spec.reads)),
        "written": float(sum(operand.bytes for operand in spec.writes)),
        "rows": max(operand.elements / operand.shape[-1] for operand in operands),
    }


def few_terms(spec: OpSpec) -> Terms:
    """Terms of any operation that a few measurements determine: a call, work and bytes."""
    return {"call": 1.0, "work": float(spec.work_flop), "moved": float(spec.moved_bytes)}


def terms(spec: OpSpec) -> Terms:
    """Terms of an operation of its kind."""
    found = _FAMILIES.get(spec.family, _of_operands)(spec)
    return {"call": 1.0, "work": float(spec.work_flop), **found}


def sort(spec: OpSpec) -> str:
    """The operation's kind, and the one of its kernels that computes it if there are several."""
    kernel = _kernel(spec)
    return f"{spec.kind} ({kernel})" if kernel else spec.kind


def _kernel(spec: OpSpec) -> str:
    a = spec.attributes
    if "groups" in a and "kernel_height" in a:
        if a["groups"] > 1 and a["groups"] == a["in_channels"]:
            return "depthwise"
        taps = a["kernel_height"] * a["kernel_width"]
        if taps == a["stride_height"] * a["stride_width"] == 1:
            return "pointwise"
    return ""


def _of_operands(spec: OpSpec) -> Terms:
    """Elements and contiguous rows of every operand."""
    found: Terms = {}
    for operand in (*spec.reads, *spec.writes):
        shape = operand.shape
        for axes in range(1, len(shape) + 1):
            found[f"{operand.role} {axes}"] = float(math.prod(shape[:axes]))
    return found


def _products(sizes: Mapping[str, float]) -> Terms:
    """Products of all subsets of the sizes."""
    return {
        "*".join(names): math.prod(sizes[name] for name in names)
        for count in range(1, len(sizes) + 1)
        for names in combinations(sizes, count)
    }


def _sizes(*names: str) -> Callable[[OpSpec], Terms]:
    return lambda spec: _products({name: float(spec.attributes[name]) for name in names})


def _tiled(count: float, rows: int, columns: int, depth: int) -> Terms:
    """Terms of ``count`` matrix products."""
    high = rows if rows < 3 else _up(rows, _TILE_ROWS)
    found = {
        "products": count,
        "left": count * rows * depth,
        "right": count * depth * columns,
        "result": count * rows * columns,
        "result rows": count * rows * max(1, columns // _TILE_COLUMNS[-1]),
        "right rows": count * depth,
        "tiled rows": count * high * depth * columns,
    }
    for width in _TILE_COLUMNS:
        wide = _up(columns, width)
        found[f"tiled {width}"] = count * high * depth * wide
        found[f"tiles {width}"] = count * high * wide / width
    return found


def _up(size: int, step: int) -> int:
    return -(-size // step) * step


def _conv2d(spec: OpSpec) -> Terms:
    a, entry = spec.attributes, spec.kind.partition(".")[2]
    if _kernel(spec) == "depthwise" and spec.family != "conv_transpose2d":
        return _depthwise(spec, entry)
    image = _operand(spec, "input", "input_gradient") or _shape_of_input(a)
    result = _operand(spec, "output", "output_gradient") or image
    groups, taps = a["groups"], a["kernel_height"] * a["kernel_width"]
    ins, outs = a.get("inputs", a["in_channels"] // groups), a["out_channels"] // groups
    outs = a.get("channels", outs)
    batch, inside, outside = a["batch"], math.prod(image[2:]), math.prod(result[2:])
    if spec.family == "conv_transpose2d":
        inside, outside, ins, outs = outside, inside, outs, ins
    images = float(batch * groups)
    found = {
        "images": images,
        "input": images * ins * inside,
        "output": images * outs * outside,
        "input planes": images * ins,
        "output planes": images * outs,
        "weight": float(groups * outs * ins * taps),
        "columns": images * ins * taps * outside,
        "columns' rows": images * ins * taps * result[2],
    }
    for limit in _CONVOLUTION_TILES:
        found |= _convolved(limit, spec, float(groups), outs, ins, taps, batch, outside)
    return found


def _convolved(
    limit: int,
    spec: OpSpec,
    groups: float,
    outs: int,
    ins: int,
    taps: int,
    batch: int,
    positions: int,
) -> Terms:
    """Terms of the products of a convolution in tiles of at most ``limit`` positions.

    A tile has whole images where they are smaller; the products of a pointwise convolution need
    no tiles of their own.
    """
    if _kernel(spec) == "pointwise" and (batch == 1 or 8 * positions >= limit):
        columns, tiles, depth, slices = positions, batch, ins, 1
    else:
        tiles = -(-batch * positions // limit) if positions < limit else 0
        tiles = tiles or batch * -(-positions // limit)
        columns = -(-batch * positions // tiles)
        slices = -(-ins * taps // _CONVOLUTION_TILES[limit])
        depth = -(-ins * taps // slices)
    count = groups * tiles * slices
    match spec.kind.partition(".")[2]:
        case "forward":
            found = _tiled(count, outs, columns, depth)
        case "parameter_gradient":
            found = _tiled(count, outs, depth, columns)
        case _:
            found = _tiled(count, depth, columns, outs)
    return {f"{name} of {limit}": value for name, value in found.items()}


def _depthwise(spec: OpSpec, entry: str) -> Terms:
    """Terms of a kernel that adds up shifted copies of padded planes, as one long row each."""
    a = spec.attributes
    image = _operand(spec, "input", "input_gradient") or _shape_of_input(a)
    result = _operand(spec, "output", "output_gradient") or image
    high, wide = (
        (a[f"kernel_{side}"] - 1) * a.get(f"dilation_{side}", 1) + 1 for side in ("height", "width")
    )
    stride, taps = a["stride_height"], a["kernel_height"] * a["kernel_width"]
    planes = float(a["batch"] * a["out_channels"])
    if entry == "input_gradient":
        width, rows, out = image[3] + wide - 1, image[2], math.prod(image[2:])
        summed = _up((rows - 1) * width + image[3], _LANES)
    else:
        width, rows, out = (result[3] - 1) * stride + wide, result[2], math.prod(result[2:])
        if entry == "forward" and stride > 1:
            summed = rows * _up((result[3] - 1) * stride + 1, _LANES)
        else:
            summed = _up((rows - 1) * stride * width + result[3] * stride, _LANES)
    quick = entry != "parameter_gradient" and (a["kernel_height"], a["kernel_width"]) == (3, 3)
    return {
        "planes": planes,
        "planes' taps": planes * taps,
        "channels' taps": float(a["out_channels"] * taps),
        "input": float(math.prod(image)),
        "output": float(math.prod(result)),
        "padded": planes * ((rows - 1) * stride + high) * width,
        "rows": planes * rows,
        "written": planes * out,
        "summed at once": quick * planes * summed,
        "summed": (1 - quick) * planes * summed * (taps + 1),
        "summed each": (1 - quick) * planes * summed,
    }


def _shape_of_input(a: Attributes) -> tuple[int, ...]:
    return (a["batch"], a["in_channels"], a["in_height"], a["in_width"])


def _operand(spec: OpSpec, *roles: str) -> tuple[int, ...] | None:
    found: Sequence[Operand] = (*spec.reads, *spec.writes)
    return next((operand.shape for operand in found if operand.role in roles), None)


def _linear(spec: OpSpec) -> Terms:
    a = spec.attributes
    rows, ins = a["rows"], a.get("inputs", a["in_features"])
    outs = a.get("channels", a["out_features"])
    match spec.kind.partition(".")[2]:
        case "forward":
            return {**_tiled(1, rows, outs, ins), "bias": float(a["bias"] * rows * outs)}
        case "input_gradient":
            return _tiled(1, rows, ins, outs)
        case _:
            return {**_tiled(1, outs, ins, rows), "bias": float(a["bias"] * rows * outs)}


def _matmul(spec: OpSpec) -> Terms:
    a = spec.attributes
    count = float(a["batch"] * a["heads"])
    match spec.kind.partition(".")[2]:
        case "forward":
            found = _tiled(count, a["rows"], a["columns"], a["depth"])
        case "left_gradient":
            found = _tiled(count, a["rows"], a["depth"], a["columns"])
        case _:
            found = _tiled(count, a["depth"], a["columns"], a["rows"])
    turned = {
        f"{side} transposed": a[f"{side}_transposed"] * found[side] for side in ("left", "right")
    }
    return {**found, **turned}


def _attention(spec: OpSpec) -> Terms:
    a = spec.attributes
    queries, features = a.get("queries", a.get("sequence", 1)), a["head_features"]
    keys = a.get("keys", queries)
    heads = float(a["batch"] * a["heads"])
    pairs = float(attended_pairs(a)) if spec.family == "attention" else heads * queries * keys
    return {
        "heads": heads,
        "queries": heads * queries,
        "keys": heads * keys,
        "query": heads * queries * features,
        "key": heads * keys * features,
        "pairs": pairs,
        "dropped": a.get("dropout", 0) * pairs,
        "masked": float(a.get("mask_batch", 0) > 0) * pairs,
        **{f"pairs {width}": pairs * _up(features, width) for width in (4, 16)},
    }


def _strided(spec: OpSpec) -> Terms:
    a = spec.attributes
    elements = math.prod(a[f"size{axis}"] for axis in range(6))
    apart = float(a["stride5"] != 1)
    return {
        "source": float(a["source"]),
        "elements": float(elements),
        "elements apart": apart * elements,
        "rows": elements / a["size5"],
    }


def _broadcast(spec: OpSpec) -> Terms:
    """Terms of rows in which the small operand is a row, or a number if ``inner`` is 1."""
    a = spec.attributes
    parts, small = float(a["outer"] * a["middle"]), float(a["middle"] * a["inner"])
    alone = a["inner"] == 1
    rows = parts if alone else parts * a["between"]
    length = a["between"] if alone else a["inner"]
    which = "number" if alone else "row"
    return {
        "parts": parts,
        "middle": float(a["middle"]),
        "small": small,
        f"rows of a {which}": rows,
        f"elements of a {which}": rows * length,
        f"lanes of a {which}": rows * _up(length, _LANES),
    }


def _concat(spec: OpSpec) -> Terms:
    a = spec.attributes
    return {
        "rows": float(a["outer"]),
        "elements": float(a["outer"] * (a["left_inner"] + a["right_inner"])),
    }


def _embedding(spec: OpSpec) -> Terms:
    a = spec.attributes
    table = a["vocabulary"] * a["features"] * spec.kind.endswith("gradient")
    rows = a["rows"]
    return {"rows": float(rows), "elements": float(rows * a["features"]), "table": float(table)}


def _pooling(spec: OpSpec) -> Terms:
    a = spec.attributes
    planes = float(a["batch"] * a["channels"])
    outside = next(
        (
            math.prod(operand.shape[2:])
            for operand in (*spec.reads, *spec.writes)
            if operand.role in ("output", "output_gradient")
        ),
        1,
    )
    taps = a.get("kernel_height", 1) * a.get("kernel_width", 1)
    return {
        "planes": planes,
        "input": planes * a["in_height"] * a["in_width"],
        "output": planes * outside,
        "taps": planes * outside * taps,
        "window rows": planes * outside * a.get("kernel_height", 1),
    }


def _recurrent(spec: OpSpec) -> Terms:
    a = spec.attributes
    found = _sizes("steps", "batch", "hidden")(spec)
    steps, batch, hidden = a["steps"], a["batch"], a["hidden"]
    gates = {"lstm": 4, "gru": 3}.get(spec.family, 1) * hidden
    if spec.kind.endswith("parameter_gradient"):
        return {**found, **_tiled(1, gates, hidden, steps * batch)}
    inner, outer = (hidden, gates) if spec.kind.endswith("forward") else (gates, hidden)
    return {**found, **_tiled(steps, batch, outer, inner)}


_FAMILIES: Mapping[str, Callable[[OpSpec], Terms]] = {
    **dict.fromkeys(("conv2d", "dilated_conv2d", "conv_transpose2d", "conv2d_part"), _conv2d),
    **dict.fromkeys(("linear", "linear_part"), _linear),
    "matmul": _matmul,
    **dict.fromkeys(("attention", "attention_scores", "attention_context"), _attention),
    **dict.fromkeys(("strided_copy", "pad"), _strided),
    **dict.fromkeys(("max_pool2d", "max_pool2d_places", "average_pool2d"), _pooling),
    **dict.fromkeys(("upsample_nearest2d", "upsample_bilinear2d"), _pooling),
    **dict.fromkeys(("lstm", "gru", "rnn_tanh", "rnn_relu"), _recurrent),
    **dict.fromkeys(
        ("broadcast_add", "broadcast_multiply", "broadcast_select", "reduce", "rotary"),
        _broadcast,
    ),
    "softmax": _sizes("rows", "columns"),
    **dict.fromkeys(("softmax_cross_entropy", "weighted_cross_entropy"), _sizes("rows", "classes")),
    "dropout_rows": _sizes("rows", "inner"),
    "cumulative_sum": _sizes("outer", "size", "inner"),
    **dict.fromkeys(("layer_norm", "rms_norm"), _sizes("rows", "features")),
    **dict.fromkeys(
        ("batch_norm", "batch_norm_frozen", "global_average_pool"),
        _sizes("batch", "channels", "plane"),
    ),
    "group_norm": _sizes("batch", "channels", "plane", "groups"),
    "concat": _concat,
    **dict.fromkeys(("embedding", "embedding_padded"), _embedding),
}
