"""Axes along which a smaller tensor is repeated, as sizes of the kinds that broadcast."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

Forms: TypeAlias = Mapping[tuple[bool, ...], tuple[str, ...]]
"""Names of groups of axes, by which of them the smaller tensor lacks."""

BROADCAST: Forms = {
    (): (),
    (True,): ("between",),
    (False,): ("inner",),
    (True, False): ("outer", "inner"),
    (False, True): ("middle", "between"),
    (True, False, True): ("outer", "middle", "between"),
    (False, True, False): ("middle", "between", "inner"),
    (True, False, True, False): ("outer", "middle", "between", "inner"),
}
BEFORE_FEATURES: Forms = {
    (): (),
    (True,): ("outer",),
    (False,): ("middle",),
    (True, False): ("outer", "middle"),
    (False, True): ("middle", "between"),
    (True, False, True): ("outer", "middle", "between"),
}
"""The same where the last axis, ``inner``, stands for itself."""


def sizes_of(forms: Forms, sizes: Sequence[int], repeated: Sequence[bool]) -> dict[str, int] | None:
    """Find the sizes of a broadcast or reduction.

    Args:
        forms: Which groups of axes are allowed.
        sizes: Sizes of the larger tensor's axes, as they are stored.
        repeated: Whether the smaller tensor lacks each axis.

    Returns:
        ``outer``, ``middle``, ``between`` and ``inner``; None if no form fits.
    """
    groups: list[tuple[bool, int]] = []
    for size, again in zip(sizes, repeated, strict=True):
        if groups and groups[-1][0] == again:
            groups[-1] = (again, groups[-1][1] * size)
        else:
            groups.append((again, size))
    form = forms.get(tuple(again for again, _ in groups))
    if form is None:
        return None
    found = dict.fromkeys(("outer", "middle", "between", "inner"), 1)
    return found | {name: size for name, (_, size) in zip(form, groups, strict=True)}
