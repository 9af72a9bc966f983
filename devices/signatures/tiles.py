"""Tiles in which the kernels work, and the workspace that each takes.

Sizes are counted in floats, as in the kernels of ``onboard/``, whose functions those below follow
name by name.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from devices.signatures.base import Attributes

Role: TypeAlias = Literal[
    "forward", "input_gradient", "parameter_gradient", "columns", "fold", "gather"
]

_LINE_FLOATS = 16
"""Floats of a cache line."""

_LANES = 32
_CORRELATED_LANES, _CORRELATED_TAPS = 16, 3
_CORRELATED_CHANNELS, _CORRELATED_POSITIONS = 32, 256
_TENSORS_PER_TILE, _LEAST_COLUMNS = 8, 128
_POSITIONS_PER_COLUMN, _LEAST_POSITIONS = 8, 64
_PART_BLOCK = 64


@dataclass(frozen=True)
class KernelBuild:
    """Constants of a build of the kernels on which workspaces depend.

    Attributes:
        panel_columns: Columns of a panel of the kernels' own matrix product, which fill the vector
            registers; 0 if a BLAS computes matrix products.
        is_small: Whether tiles are those for small memories (``JW_SMALL_MEMORY``).
    """

    panel_columns: int
    is_small: bool

    @property
    def has_blas(self) -> bool:
        return self.panel_columns == 0

    def matmul(self, columns: int, depth: int) -> int:
        """Workspace of a matrix product, in floats."""
        if self.has_blas:
            return 0
        whole, half = self.panel_columns, self.panel_columns // 2
        leading = half if columns <= half else whole
        return padded(leading * min(depth, 72 if self.is_small else 256) + whole - leading)

    def flipped(self, rows: int, columns: int, depth: int) -> int:
        """Workspace of a product with filters that are read backwards, in floats."""
        if self.has_blas:
            return padded(rows * depth)
        return self.matmul(columns, depth) + padded(depth)

    def prepared(self, columns: int, depth: int, *, transposed: bool) -> int:
        """Workspace of a right matrix that many products share, in floats."""
        if self.has_blas:
            return padded(columns * depth) if transposed else 0
        if self.is_small:
            return 0
        return padded(-(-columns // self.panel_columns) * self.panel_columns * depth)


def padded(floats: int) -> int:
    return -(-floats // _LINE_FLOATS) * _LINE_FLOATS


# --- convolutions ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Axis:
    size: int
    out: int
    kernel: int
    stride: int
    dilation: int

    @property
    def extent(self) -> int:
        return (self.kernel - 1) * self.dilation + 1

    @property
    def reversed(self) -> _Axis:
        return replace(self, size=self.out, out=self.size)

    @property
    def padded_width(self) -> int:
        """Positions of the padded input that windows read."""
        return (self.out - 1) * self.stride + self.extent


@dataclass(frozen=True)
class Conv:
    """``jw_conv``: channels are of all groups, ``group_in`` and ``group_out`` of one."""

    batch: int
    in_channels: int
    out_channels: int
    groups: int
    y: _Axis
    x: _Axis
    group_in: int
    group_out: int
    is_part: bool = False

    @property
    def taps(self) -> int:
        return self.y.kernel * self.x.kernel

    @property
    def in_plane(self) -> int:
        return self.y.size * self.x.size

    @property
    def out_plane(self) -> int:
        return self.y.out * self.x.out

    @property
    def is_depthwise(self) -> bool:
        return self.groups > 1 and self.group_in == 1

    @property
    def gathers(self) -> bool:
        strides = self.y.stride, self.x.stride
        return strides == (1, 1) and self.in_plane <= self.out_plane and not self.is_depthwise

    @property
    def reversed(self) -> Conv:
        """The convolution of the output gradient that is the input gradient."""
        return replace(
            self,
            in_channels=self.out_channels,
            out_channels=self.in_channels,
            group_in=self.group_out,
            group_out=self.group_in,
            y=self.y.reversed,
            x=self.x.reversed,
        )


def axis_of(a: Attributes, side: str, padding: int) -> _Axis:
    kernel, stride = a[f"kernel_{side}"], a[f"stride_{side}"]
    dilation = a.get(f"dilation_{side}", 1)
    size = a[f"in_{side}"]
    out = (size + padding - (kernel - 1) * dilation - 1) // stride + 1
    return _Axis(size, out, kernel, stride, dilation)


def conv_of(a: Attributes) -> Conv:
    return Conv(
        a["batch"],
        a["in_channels"],
        a["out_channels"],
        a["groups"],
        axis_of(a, "height", a["pad_top"] + a["pad_bottom"]),
        axis_of(a, "width", a["pad_left"] + a["pad_right"]),
        a["in_channels"] // a["groups"],
        a["out_channels"] // a["groups"],
    )


def part_of(a: Attributes) -> Conv:
    """The convolution of a part: with fewer channels in its one group than its images have."""
    conv = conv_of(a)
    return replace(
        conv,
        group_in=a.get("inputs", conv.group_in),
        group_out=a.get("channels", conv.group_out),
        is_part=True,
    )


def exchanged(a: Attributes) -> Conv:
    """The convolution whose transpose a transposed convolution is."""
    return conv_of(
        {
            **a,
            "in_channels": a["out_channels"],
            "out_channels": a["in_channels"],
            **{f"in_{side}": a[f"out_{side}"] for side in ("height", "width")},
            "pad_bottom": _padding_after(a, "height", a["pad_top"]),
            "pad_right": _padding_after(a, "width", a["pad_left"]),
        }
    )


def _padding_after(a: Attributes, side: str, before: int) -> int:
    reach = (a[f"in_{side}"] - 1) * a[f"stride_{side}"] + a[f"kernel_{side}"]
    return max(0, reach - a[f"out_{side}"] - before)


def _evenly(whole: int, part: int) -> int:
    """Size of equal parts when ``whole`` is cut into the fewest parts of at most ``part``."""
    parts = -(-whole // max(min(part, whole), 1))
    return -(-whole // parts)


@dataclass
class _Tile:
    """The tile of a convolution.

    ``block``: output channels of one product; ``is_staged``: whether its output side is staged.
    """

    images: int
    rows: int
    channels: int
    block: int
    is_staged: bool


@dataclass(frozen=True)
class _Plan:
    """How a convolution is cut into tiles (``plan_of`` of ``conv2d.c``)."""

    conv: Conv
    role: Role
    build: KernelBuild

    @property
    def _most_depth(self) -> int:
        return 72 if self.build.is_small else 256

    @property
    def _most_columns(self) -> int:
        return 32 if self.build.is_small else 256

    @property
    def _part_floats(self) -> int:
        return self._most_depth * self._most_columns if self.build.is_small else 16384

    @property
    def _sums_rows(self) -> bool:
        return self.role in {"forward", "gather"}

    @property
    def _is_direct(self) -> bool:
        conv = self.conv
        strides = conv.y.stride, conv.x.stride
        is_pointwise = conv.taps == 1 and strides == (1, 1) and conv.in_plane == conv.out_plane
        return is_pointwise and (conv.batch == 1 or 8 * conv.out_plane >= self._most_columns)

    def _columns_limit(self) -> int:
        conv = self.conv
        columns, least = conv.batch * conv.out_plane // _POSITIONS_PER_COLUMN, _LEAST_POSITIONS
        if self._sums_rows:
            tensors = conv.batch * (
                conv.in_channels * conv.in_plane + conv.out_channels * conv.out_plane
            )
            depth = conv.in_channels // conv.groups * conv.taps
            columns = tensors // _TENSORS_PER_TILE // min(depth, self._most_depth)
            least = _LEAST_COLUMNS
        return min(max(columns, least), self._most_columns)

    def _tile(self) -> _Tile:
        conv, direct, most = self.conv, self._is_direct, self._columns_limit()
        tile_floats = self._most_depth * self._most_columns
        images = 1 if direct else _evenly(conv.batch, most // conv.out_plane)
        is_staged = images > 1
        is_whole = direct or is_staged
        rows = conv.y.out if is_whole else _evenly(conv.y.out, most // conv.x.out)
        positions = images * rows * conv.x.out
        depth = min(tile_floats // positions, self._most_depth if self._sums_rows else tile_floats)
        channels = conv.group_in if direct else _evenly(conv.group_in, depth // conv.taps)
        block = conv.group_out
        if is_staged:
            block = min(max(tile_floats // positions, 1), block)
        tile = _Tile(images, rows, channels, block, is_staged)
        if conv.is_part:
            self._shrink(tile)
        return tile

    def _shrink(self, tile: _Tile) -> None:
        conv = self.conv
        positions = min(tile.images * tile.rows * conv.x.out, self._most_depth)
        columns = self._part_floats // min(tile.channels * conv.taps, self._most_depth)
        if tile.is_staged or self.role in {"columns", "gather"}:
            tile.block = min(tile.block, _PART_BLOCK)
        if self._sums_rows and tile.is_staged:
            tile.images = _evenly(conv.batch, min(tile.images, columns // conv.out_plane))
        elif self._sums_rows:
            tile.rows = _evenly(conv.y.out, min(tile.rows, columns // conv.x.out))
        elif self.role == "columns":
            tile.channels = conv.group_in
        elif self.role == "fold":
            tile.channels = 1
        else:
            most = self._part_floats // positions // conv.taps
            tile.channels = _evenly(conv.group_in, min(tile.channels, most))

    def _frame(self, rows: int) -> int:
        """The part of a plane that a tile reads, with the padding around it; 0 if it is large, or
        read but once."""
        floats = self._frame_height(rows) * self.conv.x.padded_width
        most = 112 if self.build.is_small else 4096
        return floats if self.conv.taps > 1 and floats <= most else 0

    def _frame_height(self, rows: int) -> int:
        return (rows - 1) * self.conv.y.stride + self.conv.y.extent

    def _correlates(self, tile: _Tile) -> bool:
        """Whether a weight gradient is computed without unfolding the input (``correlation.c``)."""
        conv, build = self.conv, self.build
        positions = tile.images * tile.rows * conv.x.out
        is_built = self.role == "parameter_gradient" and not (build.is_small or build.has_blas)
        has_lanes = conv.x.dilation == 1 and conv.group_in % _CORRELATED_LANES == 0
        is_narrow = conv.group_out <= _CORRELATED_CHANNELS and positions <= _CORRELATED_POSITIONS
        return is_built and conv.taps > 1 and has_lanes and is_narrow

    def floats(self) -> int:
        """Workspace: a tile, the staged output side, a frame and the matrix product's own."""
        conv, tile = self.conv, self._tile()
        has_stage = tile.is_staged and self.role != "fold"
        columns, depth = tile.images * tile.rows * conv.x.out, tile.channels * conv.taps
        floats = padded(tile.block * columns) if has_stage else 0
        if self._correlates(tile):
            return floats + self._correlation(tile)
        if not self._is_direct and self.role != "columns":
            floats += padded(depth * columns) + padded(self._frame(tile.rows))
        return floats + self._matmul(tile.block, columns, depth)

    def _correlation(self, tile: _Tile) -> int:
        """Frames of all images of a tile, in lanes of channels."""
        positions = tile.images * self._frame_height(tile.rows) * self.conv.x.padded_width
        return padded((positions + _CORRELATED_TAPS) * _CORRELATED_LANES)

    def _matmul(self, block: int, columns: int, depth: int) -> int:
        build = self.build
        match self.role:
            case "gather" if self.conv.taps > 1:
                return build.flipped(block, columns, depth)
            case "forward" | "gather":
                return build.matmul(columns, depth)
            case "parameter_gradient":
                return build.matmul(depth, columns)
            case "fold":
                return 0
            case _:
                return build.matmul(columns, block)


def convolution_floats(conv: Conv, role: Role, build: KernelBuild) -> int:
    if conv.is_depthwise:
        return depthwise_floats(conv, role, build)
    if role == "gather" or (role == "input_gradient" and conv.gathers):
        return _Plan(conv.reversed, "gather", build).floats()
    return _Plan(conv, role, build).floats()


def depthwise_floats(conv: Conv, role: Role, build: KernelBuild) -> int:
    most = 512 if build.is_small else 4096

    def band(rows: int, width: int) -> int:
        return padded(rows * width + _LANES)

    width = conv.x.padded_width
    rows = min(max(most // (conv.y.stride * width), 1), conv.y.out)
    padded_input = band((rows - 1) * conv.y.stride + conv.y.extent, width)
    if role == "forward":
        return padded_input + band(rows, width)
    if role == "parameter_gradient":
        return padded_input + band((rows - 1) * conv.y.stride + 1, width) + conv.taps * _LANES
    width = conv.x.size + conv.x.extent - 1
    rows = min(max(most // width, 1), conv.y.size)
    return band(rows + conv.y.extent - 1, width) + band(rows, width) + padded(conv.taps)


# --- attention ------------------------------------------------------------------------------------


def _attention_tile(a: Attributes, build: KernelBuild) -> tuple[int, int, int, int]:
    """Most queries and keys of a tile, and those of the operation's."""
    most_queries, most_keys = (16, 16) if build.is_small else (128, 64)
    return most_queries, most_keys, min(a["queries"], most_queries), min(a["keys"], most_keys)


def attention_floats(a: Attributes, build: KernelBuild) -> int:
    most_queries, most_keys, queries, keys = _attention_tile(a, build)
    features = a["head_features"]
    products = max(build.matmul(keys, features), build.matmul(features, keys))
    return queries * most_keys + 2 * most_queries + products


def attention_gradient_floats(a: Attributes, build: KernelBuild) -> int:
    most_queries, most_keys, queries, keys = _attention_tile(a, build)
    features = a["head_features"]
    products = max(build.matmul(keys, features), build.matmul(features, max(queries, keys)))
    return queries * (2 * most_keys + features) + most_queries + products
