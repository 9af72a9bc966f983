"""Signatures of all kinds of operations, by family."""

from __future__ import annotations

from devices.signatures import (
    broadcasting,
    elementwise,
    matrices,
    normalisation,
    parts,
    recurrent,
    training,
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
    **training.KINDS,
}
