"""Key of a plan's frozen values, by which a board recognises that its storage holds them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from devices.plan import ExecutionPlan

_KEY_BYTES = 8


def frozen_key(plan: ExecutionPlan, values: Mapping[str, NDArray[Any]]) -> int:
    """Hash of the values that a plan keeps frozen in storage, 64 bits.

    Args:
        plan: the plan.
        values: values of at least the frozen tensors, by name; of a table, with all its rows.
    """
    sha256 = hashlib.sha256()
    names = [each.tensor for each in plan.frozen]
    for name in (*names, *(table.tensor for table in plan.frozen_tables)):
        value = values[name]
        sha256.update(np.ascontiguousarray(value, value.dtype.newbyteorder("<")).data)
    return int.from_bytes(sha256.digest()[:_KEY_BYTES], "little")
