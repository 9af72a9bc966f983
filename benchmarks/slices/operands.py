"""Buffers of a layer's operands, and calls of kernels on them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from benchmarks.slices.layers import Layer, Piece
from devices.signatures.base import Operand
from tests.support.onboard.kernels import Array, KernelLibrary, PreparedCall, aligned, fill

_INPUTS = frozenset({"input", "input_gradient"})
_OUTPUTS = frozenset({"output", "output_gradient"})


class Operands:
    """Pieces share the buffers of what they have in common, such as whole images."""

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
        reads = [self._operand(each, piece) for each in spec.reads]
        writes = [self._operand(each, piece) for each in spec.writes]
        return self._library.prepare(spec, reads, writes, workspace)

    def _operand(self, operand: Operand, piece: Piece) -> Array:
        """The buffer of a part of a parameter, of an image or of some of its channels."""
        role = operand.role.removesuffix("_before")
        if role in {"weight", "weight_gradient"}:
            role = f"{role}{piece.outputs}{piece.inputs}"
        elif role in {"bias", "bias_gradient"} or (piece.has_own_images and role in _OUTPUTS):
            role = f"{role}{piece.outputs}"
        elif piece.has_own_images and role in _INPUTS:
            role = f"{role}{piece.inputs}"
        return self._buffer(role, operand.bytes)

    def _buffer(self, role: str, size: int) -> Array:
        known = self._buffers.get(role)
        if known is None or known.nbytes < size:
            known = aligned(size)
            values = fill(Operand(role, (size // 4,)), len(self._buffers))
            known[: values.nbytes] = values.view(np.uint8)
            self._buffers[role] = known
        return known
