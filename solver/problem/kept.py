"""Results of functions of immutable objects, found again for the very same objects."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import ParamSpec, TypeVar

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


def kept(most: int) -> Callable[[Callable[_Parameters, _Result]], Callable[_Parameters, _Result]]:
    """Keep the last ``most`` results of a function of immutable objects.

    A call with the very same objects gets the kept result. Equal ones do not: comparing thousands
    of ops or actions would take as long as many of these functions.
    """

    def decorated(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
        @lru_cache(most)
        def found(*args: _Itself) -> _Result:
            return function(*(arg.it for arg in args))  # type: ignore[arg-type, call-arg]

        @wraps(function)
        def wrapper(*args: _Parameters.args, **named: _Parameters.kwargs) -> _Result:
            return found(*map(_Itself, args)) if not named else function(*args, **named)

        return wrapper

    return decorated


class _Itself:
    """An immutable object, equal only to itself."""

    def __init__(self, it: object) -> None:
        self.it = it

    def __hash__(self) -> int:
        return id(self.it)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Itself) and other.it is self.it
