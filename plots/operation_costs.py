"""Picture of the costs of all operations of a profile, with confidence intervals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter

from devices.operation import OpSpec
from devices.profile import CacheState, Cost, DeviceProfile, Interval, OperationCost
from plots.layout import SMALLEST_POINTS, page, save, shortened
from plots.style import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
    energy_words,
    engineering,
    styled,
)

# Groups of kinds, each with its colour.
_GROUPS: dict[str, tuple[str, frozenset[str]]] = {
    "convolution": (
        BLUE,
        frozenset(
            {
                *("conv2d", "conv2d_part", "conv2d_block", "depthwise_part"),
                *("dilated_conv2d", "conv_transpose2d"),
            }
        ),
    ),
    "linear, attention, recurrent": (
        VERMILION,
        frozenset(
            {
                *("linear", "linear_part", "linear_block", "matmul"),
                *("attention_scores", "attention_context", "attention"),
                *("lstm", "gru", "rnn_tanh", "rnn_relu"),
            }
        ),
    ),
    "normalisation": (
        GREEN,
        frozenset(
            {
                *("batch_norm", "batch_norm_frozen", "group_norm"),
                *("layer_norm", "layer_norm_block", "rms_norm", "rms_norm_block"),
            }
        ),
    ),
    "activation, dropout": (
        ORANGE,
        frozenset(
            {
                *("relu", "leaky_relu", "clamp", "gelu", "tanh", "sigmoid", "silu"),
                *("relu_bits", "leaky_relu_bits", "clamp_bits"),
                *("hard_sigmoid", "hard_swish", "gelu_tanh", "elu", "softplus", "dropout"),
                *("dropout_part", "dropout_rows"),
            }
        ),
    ),
    "pooling, upsampling": (
        SKY,
        frozenset(
            {
                *("max_pool2d", "max_pool2d_places", "average_pool2d", "global_average_pool"),
                *("upsample_nearest2d", "upsample_bilinear2d"),
            }
        ),
    ),
    "softmax, loss": (
        PURPLE,
        frozenset(
            {
                *("softmax", "softmax_cross_entropy", "binary_cross_entropy"),
                *("weighted_cross_entropy", "weighted_cross_entropy_block"),
                *("cross_entropy_block", "mean_squared_error"),
            }
        ),
    ),
    "update": (BLACK, frozenset({"sgd", "sgd_momentum", "sgd_nesterov", "adam"})),
    "arithmetic, copies": (
        GREY,
        frozenset(
            {
                *("add", "gradient", "multiply", "add_number", "multiply_number"),
                *("broadcast_add", "broadcast_multiply", "broadcast_select"),
                *("reduce", "rotary"),
                *("absolute", "exponential", "logarithm", "reciprocal", "reciprocal_root"),
                *("square", "square_root", "pad", "cumulative_sum", "equal_number"),
                *("from_integers", "to_indices"),
                *("flatten", "concat", "strided_copy", "packing"),
                *("embedding", "embedding_padded", "embedding_part", "embedding_padded_part"),
            }
        ),
    ),
}
_GROUP_OF = {family: name for name, (_, families) in _GROUPS.items() for family in families}

# Inches.
_ROW, _BELOW, _ENERGY_AXIS, _MOST_NAME = 0.155, 0.5, 0.45, 3.2
_MOST_ROWS = 300

# Powers that differ by less do so because the profile's figures are rounded.
_ROUNDED = 1e-3

_Where: TypeAlias = CacheState | Literal["in context"]


@dataclass(frozen=True)
class _Mark:
    """Marker of a measurement of an operation; ``offset`` is from the middle of its row."""

    shape: str
    size: float
    is_filled: bool
    offset: float
    words: str


_MARKS: dict[_Where, _Mark] = {
    "cold": _Mark("o", 3.2, True, 0.14, "cold: not in cache"),
    "warm": _Mark("o", 3.2, False, -0.14, "warm: in cache"),
    "in context": _Mark("D", 3.6, True, 0.0, "in context: within a schedule"),
}


@dataclass(frozen=True)
class _Quantity:
    """Quantity of a panel: its axis label, its unit, and the interval of a cost in it."""

    label: str
    unit: str
    of: Callable[[Cost], Interval | None]


_TIME = _Quantity("time", "s", lambda cost: cost.time_s)
_ENERGY = _Quantity("energy", "J", lambda cost: cost.energy_j)


def operation_costs(profile: DeviceProfile, path: Path) -> None:
    """Draw time and energy of operations, most expensive first, on logarithmic axes.

    Operations after the 300 most expensive ones are only counted, so that the picture has an end.
    Each row shows warm, cold and in-context costs with 95 % intervals, and as numbers the costs in
    use. Estimated joules are proportional to the seconds, and therefore shown as a second axis
    instead of a panel.

    Args:
        profile: Profile with costs of operations.
        path: Picture to write.

    Raises:
        ValueError: The profile has no costs of operations (a published one has rates).
    """
    if not profile.operations:
        raise ValueError(f"profile {profile.name} has rates, but no costs of single operations")
    by_time = sorted(profile.operations, key=lambda o: o.cold.time_s.median, reverse=True)
    operations, left_out = by_time[:_MOST_ROWS], len(by_time[_MOST_ROWS:])
    cheaper = f" ({left_out:,} cheaper ones are left out)" if left_out else ""
    power_w = _nominal_power_w(profile)
    has_energy = any(operation.cold.energy_j is not None for operation in operations)
    quantities = [_TIME, _ENERGY] if has_energy and power_w is None else [_TIME]
    names = [shortened(_row_name(o), _MOST_NAME, SMALLEST_POINTS) for o in operations]
    body = _ROW * len(operations) + _BELOW + (_ENERGY_AXIS if power_w is not None else 0.0)
    with styled():
        figure = page(
            f"Operation costs of {profile.board.model}",
            [
                f"{len(operations)} distinct operations, most expensive first{cheaper}; medians"
                f" with 95 % intervals (numbers: {profile.operation_words})",
                _energy_line(profile, has_energy, power_w),
            ],
            body,
            _legend(operations),
        )
        panels = figure.subplots(1, len(quantities), squeeze=False)[0]
        for axes, quantity in zip(panels, quantities, strict=True):
            _panel(axes, operations, quantity, profile.cost_basis, power_w)
            axes.xaxis.set_major_locator(LogLocator(numticks=6 // len(quantities)))
            axes.set_yticks([])
        panels[0].set_yticks(range(len(names)), names, fontsize=SMALLEST_POINTS)
        save(figure, path)


def _energy_line(profile: DeviceProfile, has_energy: bool, power_w: float | None) -> str:
    if profile.energy_source == "emulated":
        return energy_words(profile.energy_source)
    if not has_energy:
        return "no energy: the board's description has neither a meter nor a nominal power"
    if power_w is not None:
        return f"energy ESTIMATED: {engineering(power_w, 'W')} nominal × time, not measured"
    return energy_words(profile.energy_source)


def _costs(operation: OperationCost) -> dict[_Where, Cost]:
    costs: dict[_Where, Cost] = {"cold": operation.cold, "warm": operation.warm}
    if operation.in_context is not None:
        costs["in context"] = operation.in_context
    return costs


def _nominal_power_w(profile: DeviceProfile) -> float | None:
    """The power by which all estimated joules follow from the seconds; None if there is none."""
    if profile.energy_source != "estimated":
        return None
    powers = [
        cost.energy_j.median / cost.time_s.median
        for operation in profile.operations
        for cost in _costs(operation).values()
        if cost.energy_j is not None and cost.time_s.median > 0
    ]
    same = bool(powers) and max(powers) - min(powers) <= _ROUNDED * max(powers)
    return powers[0] if same else None


def _limits(operations: Sequence[OperationCost], quantity: _Quantity) -> tuple[float, float]:
    intervals = [quantity.of(cost) for o in operations for cost in _costs(o).values()]
    ends = [end for i in intervals if i is not None for end in (i.low, i.high) if end > 0]
    return (min(ends) / 1.3, max(ends) * 1.3) if ends else (1e-6, 1.0)


def _panel(
    axes: Axes,
    operations: Sequence[OperationCost],
    quantity: _Quantity,
    basis: CacheState,
    power_w: float | None,
) -> None:
    limits = _limits(operations, quantity)
    for where in _MARKS:
        for color, rows in _rows_by_color(operations).items():
            _draw_intervals(axes, operations, rows, quantity, where, color)
    for row, operation in enumerate(operations):
        interval = quantity.of(operation.cost(basis))
        if interval is not None:
            axes.annotate(
                _figures(interval, quantity.unit),
                (1, row),
                (6, 0),
                xycoords=("axes fraction", "data"),
                textcoords="offset points",
                va="center",
                fontsize=SMALLEST_POINTS,
                color=INK,
            )
    axes.set_xscale("log")
    axes.set_xlim(*limits)
    axes.set_ylim(len(operations) - 0.4, -0.6)
    axes.xaxis.set_major_formatter(EngFormatter(unit=quantity.unit))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=True, axis="x", color=GREY, alpha=0.3, linewidth=0.6)
    axes.hlines(range(len(operations)), *limits, color=GREY, alpha=0.18, linewidth=0.5, zorder=0)
    axes.set_xlabel(f"{quantity.label} ({quantity.unit})")
    if power_w is not None:
        _add_estimated_energy(axes, power_w)


def _rows_by_color(operations: Sequence[OperationCost]) -> dict[str, list[int]]:
    rows: dict[str, list[int]] = {}
    for row, operation in enumerate(operations):
        rows.setdefault(_GROUPS[_group(operation)][0], []).append(row)
    return rows


def _draw_intervals(
    axes: Axes,
    operations: Sequence[OperationCost],
    rows: Sequence[int],
    quantity: _Quantity,
    where: _Where,
    color: str,
) -> None:
    costs = [(row, _costs(operations[row]).get(where)) for row in rows]
    known = [(row, quantity.of(cost)) for row, cost in costs if cost is not None]
    drawn = [(row, interval) for row, interval in known if interval is not None]
    mark = _MARKS[where]
    axes.errorbar(
        [interval.median for _, interval in drawn],
        [row + mark.offset for row, _ in drawn],
        xerr=[
            [interval.median - interval.low for _, interval in drawn],
            [interval.high - interval.median for _, interval in drawn],
        ],
        fmt=mark.shape,
        color=color,
        markersize=mark.size,
        markerfacecolor=color if mark.is_filled else "white",
        markeredgewidth=0.8,
        elinewidth=0.8,
        capsize=1.6,
        capthick=0.8,
    )


def _add_estimated_energy(axes: Axes, power_w: float) -> None:
    def joules(time_s: npt.ArrayLike) -> npt.ArrayLike:
        return np.asarray(time_s) * power_w

    def seconds(energy_j: npt.ArrayLike) -> npt.ArrayLike:
        return np.asarray(energy_j) / power_w

    energy = axes.secondary_xaxis("top", functions=(joules, seconds))
    energy.xaxis.set_major_formatter(EngFormatter(unit="J"))
    energy.xaxis.set_minor_formatter(NullFormatter())
    energy.set_xlabel("energy, estimated (J)")


def _legend(operations: Sequence[OperationCost]) -> list[Line2D]:
    present = {_group(operation) for operation in operations}
    handles = [
        Line2D([], [], marker="s", linestyle="", color=color, markersize=6, label=name)
        for name, (color, _) in _GROUPS.items()
        if name in present
    ]
    measured = {where for operation in operations for where in _costs(operation)}
    for where, mark in _MARKS.items():
        if where in measured:
            handle = Line2D([], [], marker=mark.shape, linestyle="", color=GREY, label=mark.words)
            handle.set_markerfacecolor(GREY if mark.is_filled else "white")
            handles.append(handle)
    return handles


def group_of(kind: str) -> str:
    """Name in the legend for a kind of operation, such as ``conv2d.forward``."""
    return _GROUP_OF[kind.partition(".")[0]]


def _group(operation: OperationCost) -> str:
    return group_of(OpSpec.parse(operation.op).kind)


def _figures(interval: Interval, unit: str) -> str:
    """Format a median with its interval, such as ``12.3 ms  -1.2 +3.4 %``."""
    if interval.median <= 0:
        return engineering(interval.median, unit)
    below = 100 * (1 - interval.low / interval.median)
    above = 100 * (interval.high / interval.median - 1)
    digits = 1 if max(below, above) < 10 else 0
    return f"{engineering(interval.median, unit)}  −{below:.{digits}f} +{above:.{digits}f} %"


def _row_name(operation: OperationCost) -> str:
    """Format ``conv2d.forward 16×32×32 → 32×16×16, 3×3``, without a batch of one."""
    spec = OpSpec.parse(operation.op)
    a = spec.attributes
    has_window = "kernel_height" in a and not spec.kind.endswith(".parameter_gradient")
    window = f", {a['kernel_height']}×{a['kernel_width']}" if has_window else ""
    source, target = _shape(spec.reads[0].shape), _shape(spec.writes[0].shape)
    shapes = source if source == target else f"{source} → {target}"
    return f"{spec.kind}  {shapes}{window}"


def _shape(shape: tuple[int, ...]) -> str:
    sizes = shape[1:] if len(shape) > 1 and shape[0] == 1 else shape
    return "×".join(map(str, sizes))
