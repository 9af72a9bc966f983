"""ATen operations that can be trained, and the layers that they become."""

from __future__ import annotations

from collections.abc import Mapping

from networks.exported.construction import Operation
from networks.exported.operations.arithmetic import ARITHMETIC
from networks.exported.operations.attention import ATTENTION
from networks.exported.operations.comparisons import COMPARISONS
from networks.exported.operations.draws import DRAWS
from networks.exported.operations.elementwise import ELEMENTWISE
from networks.exported.operations.filling import FILLING
from networks.exported.operations.joining import JOINING
from networks.exported.operations.losses import LOSSES
from networks.exported.operations.parameters import PARAMETERS
from networks.exported.operations.products import PRODUCTS
from networks.exported.operations.recurrent import RECURRENT
from networks.exported.operations.views import VIEWS
from networks.exported.operations.whole_numbers import WHOLE_NUMBERS
from networks.exported.operations.windows import WINDOWS

__all__ = ["OPERATIONS"]

OPERATIONS: Mapping[str, Operation] = {
    **VIEWS,
    **ELEMENTWISE,
    **ARITHMETIC,
    **COMPARISONS,
    **WINDOWS,
    **PARAMETERS,
    **JOINING,
    **ATTENTION,
    **PRODUCTS,
    **RECURRENT,
    **DRAWS,
    **FILLING,
    **WHOLE_NUMBERS,
    **LOSSES,
}
"""By ATen's name without ``aten.`` and without the underscore of operations in place."""
