"""How something fails, as its user reads it."""

from __future__ import annotations

from collections.abc import Callable

import pytest


def sentence_of(error: type[Exception], attempt: Callable[[], object]) -> str:
    """The one sentence with which ``attempt`` fails."""
    with pytest.raises(error) as caught:
        attempt()
    message = str(caught.value)
    assert "\n" not in message
    return message
