"""Results of functions of immutable objects, found again for the very same objects."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Generic, TypeVar, TypeVarTuple

_Arguments = TypeVarTuple("_Arguments")
_Result = TypeVar("_Result")


def kept(
    most: int,
) -> Callable[[Callable[[*_Arguments], _Result]], Callable[[*_Arguments], _Result]]:
    """Keep the last ``most`` results of a function of immutable objects.

    A call with the very same objects gets the kept result. Equal ones do not: comparing thousands
    of ops or actions would take as long as many of these functions.
    """

    def decorated(
        function: Callable[[*_Arguments], _Result],
    ) -> Callable[[*_Arguments], _Result]:
        @lru_cache(most)
        def found(same: _Same[*_Arguments]) -> _Result:
            return function(*same.objects)

        @wraps(function)
        def wrapper(*objects: *_Arguments) -> _Result:
            return found(_Same(*objects))

        return wrapper

    return decorated


class _Same(Generic[*_Arguments]):
    """Immutable objects; equal only to the very same ones."""

    def __init__(self, *objects: *_Arguments) -> None:
        self.objects = objects

    def __hash__(self) -> int:
        return hash(tuple(map(id, self.objects)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and [*map(id, self.objects)] == [*map(id, other.objects)]
