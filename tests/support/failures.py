"""Error messages as a user reads them."""

from __future__ import annotations

from collections.abc import Callable

import pytest


def sentence_of(error: type[Exception], attempt: Callable[[], object]) -> str:
    """Message of the ``error`` that ``attempt`` raises; it must be a single line."""
    with pytest.raises(error) as caught:
        attempt()
    message = str(caught.value)
    assert "\n" not in message
    return message
