"""Fit the cost of a page from a sweep over sizes: ``fixed + per_page × pages``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from devices.profile import AffinePageCost, SweepPoint


@dataclass(frozen=True)
class AffineFit:
    """Coefficients of a fit. ``error`` is the root mean square of the relative residuals."""

    fixed: float
    per_page: float
    error: float


def fit_affine(pages: Sequence[int], costs: Sequence[float]) -> AffineFit:
    """Fit by least squares on relative residuals; both parts are non-negative (Lawson and Hanson
    1974).

    Small transfers count as much as large ones. Costs must be positive.
    """
    x = np.asarray(pages, dtype=np.float64)
    y = np.asarray(costs, dtype=np.float64)
    if len(x) < 2 or (y <= 0).any():
        raise ValueError("a fit needs two or more sizes with a positive cost")
    from scipy.optimize import nnls

    rows = np.column_stack([1.0 / y, x / y])
    # nnls compares gradients across columns, so that their norms are made equal.
    scale = np.linalg.norm(rows, axis=0)
    solution, _ = nnls(rows / scale, np.ones_like(y))
    fixed, per_page = solution / scale
    residuals = (fixed + per_page * x) / y - 1.0
    return AffineFit(float(fixed), float(per_page), float(np.sqrt(np.mean(residuals**2))))


def fit_page_cost(sweep: Sequence[SweepPoint], page_bytes: int) -> AffinePageCost:
    """Fit time and energy of a page. Raises :class:`ValueError` with fewer than two points."""
    pages = [-(-point.bytes // page_bytes) for point in sweep]
    time = fit_affine(pages, [point.time_s.median for point in sweep])
    with_energy = [
        (count, point.energy_j.median)
        for count, point in zip(pages, sweep, strict=True)
        if point.energy_j is not None and point.energy_j.median > 0
    ]
    energy = fit_affine(*zip(*with_energy, strict=True)) if len(with_energy) > 1 else None
    return AffinePageCost(
        fixed_s=time.fixed,
        per_page_s=time.per_page,
        fixed_j=None if energy is None else energy.fixed,
        per_page_j=None if energy is None else energy.per_page,
        fit_error=time.error,
        sweep=tuple(sweep),
    )
