"""Learning rates that differ between steps."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

_FORM = re.compile(r"constant|cosine|(warm-up|warm-up-cosine):(\d{1,9})")


@dataclass(frozen=True)
class RateSchedule:
    """Course of the learning rate over a run, as a factor of the highest rate.

    Attributes:
        warm_up: number of steps at the beginning in which the rate rises in equal amounts, up to
            the highest rate in the last of them (PyTorch's ``LinearLR`` with a ``start_factor`` of
            1 / ``warm_up`` and ``warm_up`` - 1 ``total_iters``).
        cosine: whether the rate then falls along half a wave of a cosine towards zero, which it
            would reach one step after the last one (``CosineAnnealingLR`` with all steps after the
            warm-up as ``T_max``); else it is constant.
    """

    warm_up: int = 0
    cosine: bool = False

    @classmethod
    def parse(cls, text: str) -> RateSchedule:
        """Parse ``constant``, ``cosine``, ``warm-up:N`` or ``warm-up-cosine:N``.

        Raises:
            ValueError: The text is none of these, or N is zero.
        """
        found = _FORM.fullmatch(text)
        if found is None or (found[2] is not None and int(found[2]) < 1):
            raise ValueError(
                f"{text!r} is not a course of the learning rate: constant, cosine, warm-up:N or"
                " warm-up-cosine:N, with N from 1 on"
            )
        return cls(int(found[2] or 0), text.partition(":")[0].endswith("cosine"))

    def rates(self, highest: float, steps: int) -> tuple[float, ...]:
        """Learning rate of each of ``steps`` steps."""
        return tuple(highest * self._factor(index, steps) for index in range(steps))

    def _factor(self, index: int, steps: int) -> float:
        if index < self.warm_up:
            return (index + 1) / self.warm_up
        if not self.cosine:
            return 1.0
        return (1 + math.cos(math.pi * (index - self.warm_up) / (steps - self.warm_up))) / 2
