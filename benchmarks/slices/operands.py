"""Buffers of a layer's operands, and calls of kernels on them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from benchmarks.slices.layers import Layer, Piece
from devices.signatures.base import Operand
from tests.support.onboard.kernels import Array, KernelLibrary, PreparedCall, aligned, fill


class Operands:
    """The whole operation and its parts share their buffers; each block has its own."""

    def __init__(self, library: KernelLibrary, layer: Layer) -> None:
        self._library, self._layer = library, layer
        self._buffers: dict[str, Array] = {}

    def calls(self, pieces: Iterable[Piece]) -> list[PreparedCall]:
        """Calls of the pieces in their order, in place."""
        return [self._call(piece) for piece in pieces]

    def workspace(self, pieces: Iterable[Piece]) -> int:
        """Largest workspace of the pieces."""
        return max(self._library.workspace_bytes(piece.spec) for piece in pieces)

    def _call(self, piece: Piece) -> PreparedCall:
        spec = piece.spec
        workspace = self._buffer("workspace", self._library.workspace_bytes(spec))
        operand = self._of_part if piece.inputs is None else self._of_block
        reads = [operand(each, piece) for each in spec.reads]
        writes = [operand(each, piece) for each in spec.writes]
        return self._library.prepare(spec, reads, writes, workspace)

    def _of_part(self, operand: Operand, piece: Piece) -> Array:
        """The operand's buffer; a part's rows of a parameter lie in the whole parameter's."""
        role = operand.role.removesuffix("_before")
        if role.removesuffix("_gradient") not in {"weight", "bias"}:
            return self._buffer(role, operand.bytes)
        row_bytes = operand.bytes // operand.shape[0]
        whole = self._buffer(role, row_bytes * self._layer.weight.shape[0])
        first = 0 if piece.outputs is None else piece.outputs[0]
        return whole[first * row_bytes :][: operand.bytes]

    def _of_block(self, operand: Operand, piece: Piece) -> Array:
        """The buffer of a block, of a part of the input, or of a part of the output."""
        role = operand.role.removesuffix("_before")
        if role in {"weight", "weight_gradient"}:
            role = f"{role}{piece.outputs}{piece.inputs}"
        elif role in {"input", "input_gradient"}:
            role = f"{role}{piece.inputs}"
        elif role != "columns":
            role = f"{role}{piece.outputs}"
        return self._buffer(role, operand.bytes)

    def _buffer(self, role: str, size: int) -> Array:
        known = self._buffers.get(role)
        if known is None or known.nbytes < size:
            known = aligned(size)
            values = fill(Operand(role, (size // 4,)), len(self._buffers))
            known[: values.nbytes] = values.view(np.uint8)
            self._buffers[role] = known
        return known
