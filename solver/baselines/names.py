"""Names of the baselines.

This module imports nothing of the project, so that campaigns and sweeps can list the names quickly.
"""

BASELINE_NAMES = (
    "keep-everything",
    "page-everything",
    "chen-sqrt-n",
    "griewank",
    "remat-only",
    "paging-only",
    "checkmate-lp-rounding",
    "capuchin-like",
    "dtr",
    "coop",
)
"""Names of the baselines, in the order of tables."""

PAGING_BASELINES = frozenset({"page-everything", "paging-only", "capuchin-like"})
"""Those that page; the others keep or recompute."""
