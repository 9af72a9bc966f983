"""Choice of the matrix product on a board: the kernels' own code or a BLAS, whichever is faster.

``matmul.c`` and ``matmul_cblas.c`` are linked into one program, which times the same products with
both in turns (``onboard/comparison/``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from devices.profile import MatmulComparison
from profiler.statistics import median_interval

COMPARISON = Path(__file__).parents[2] / "onboard" / "comparison" / "matrix_products.c"

IN_TREE_SOURCE, CBLAS_SOURCE = "matmul.c", "matmul_cblas.c"
"""Alternative sources of the kernels' matrix product."""

_KERNELS = Path(__file__).parents[2] / "onboard" / "kernels"
_DEFINED = re.compile(r"^[a-z][\w *]*\b(jw_\w+)(?:\(| =|\[)", re.MULTILINE)
"""A function or constant that a C file gives to others: its definition begins a line."""
_NS_PER_S = 1e9

PROBE = """
#include <stdio.h>
#include <string.h>
void JW_CBLAS_SGEMM(int, int, int, int, int, int, float, const float *, int, const float *, int,
                    float, float *, int);
char *JW_BLAS_CONFIG(void);
int main(void) {
    const float a = 2.0f, b = 3.0f;
    float c = 0.0f;
    JW_CBLAS_SGEMM(101, 111, 111, 1, 1, 1, 1.0f, &a, 1, &b, 1, 0.0f, &c, 1);
    puts(JW_BLAS_CONFIG());
    return c == 6.0f ? 0 : 1;
}
"""
"""Prints the BLAS's configuration and exits with 0 if its product is right."""


@dataclass(frozen=True)
class Blas:
    """A BLAS that may exist. ``prefix`` is what its build put before every symbol."""

    prefix: str
    link: tuple[str, ...]

    @property
    def defines(self) -> tuple[str, ...]:
        return ("-DJW_CBLAS", f"-DJW_CBLAS_SGEMM={self.prefix}cblas_sgemm")

    @property
    def probe_defines(self) -> tuple[str, ...]:
        return (*self.defines, f"-DJW_BLAS_CONFIG={self.prefix}openblas_get_config")


def known_blas(*, is_this_computer: bool) -> Iterator[Blas]:
    """The OpenBLAS wheel of this Python environment, then the system's OpenBLAS."""
    if is_this_computer:
        try:
            import scipy_openblas32 as wheel
        except ImportError:
            pass  # an optional dependency
        else:
            directory = wheel.get_lib_dir()
            link = (f"-L{directory}", f"-l{wheel.get_library()}", f"-Wl,-rpath,{directory}")
            yield Blas("scipy_", link)
    yield Blas("", ("-lopenblas",))


def renamed(suffix: str) -> tuple[str, ...]:
    """Compiler options that allow both matrix products in one program.

    Both define the same names, of which the shorter source has no others.
    """
    source = (_KERNELS / CBLAS_SOURCE).read_text(encoding="utf-8")
    return tuple(f"-D{name}={name}_{suffix}" for name in dict.fromkeys(_DEFINED.findall(source)))


def read_comparison(printed: str, library: str) -> MatmulComparison:
    """Read what the program of :data:`COMPARISON` printed: a line for each round."""
    rounds = [tuple(map(int, line.split())) for line in printed.splitlines()]
    # A coarse processor clock may show no time passed.
    in_tree_s, cblas_s = (
        [max(ns, 1) / _NS_PER_S for ns in side] for side in zip(*rounds, strict=True)
    )
    ratios = [theirs / ours for ours, theirs in zip(in_tree_s, cblas_s, strict=True)]
    return MatmulComparison(
        library=library,
        rounds=len(rounds),
        in_tree_s=median_interval(in_tree_s),
        cblas_s=median_interval(cblas_s),
        ratio=median_interval(ratios),
    )
