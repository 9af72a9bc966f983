"""Signatures of all kinds of operations, by family."""

from __future__ import annotations

from devices.signatures import (
    blocks,
    broadcasting,
    elementwise,
    matrices,
    norm_blocks,
    normalisation,
    parts,
    recurrent,
    training,
    whole_numbers,
    windows,
)
from devices.signatures.base import Signature

SIGNATURES: dict[str, Signature] = {
    **windows.KINDS,
    **matrices.KINDS,
    **normalisation.KINDS,
    **elementwise.KINDS,
    **broadcasting.KINDS,
    **recurrent.KINDS,
    **parts.KINDS,
    **blocks.KINDS,
    **norm_blocks.KINDS,
    **whole_numbers.KINDS,
    **training.KINDS,
}
