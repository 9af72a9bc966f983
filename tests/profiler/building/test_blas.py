"""The choice between the kernels' own matrix product and a BLAS, by measurement on the board."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from devices.description import NativeToolchain
from devices.profile import Matmul
from profiler.building.blas import (
    CBLAS_SOURCE,
    IN_TREE_SOURCE,
    Blas,
    known_blas,
    read_comparison,
    renamed,
)
from profiler.building.sources import EXECUTOR, KERNELS
from profiler.building.toolchain import BuiltHarness, build
from profiler.transports.local import LocalTransport

NAMES_ITS_PRODUCT = """
#include <stdio.h>
#include "joulewright.h"
int main(void) { puts(jw_matmul_name); return 0; }
"""

# A BLAS library of known speed: it loops as often as asked for.
CBLAS = """
char *openblas_get_config(void) {{ return "OpenBLAS of this test"; }}
void cblas_sgemm(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a,
                 int lda, const float *b, int ldb, float beta, float *c, int ldc)
{{
    for (volatile int i = 0; i < {loops} && m > 1; i++)
        ;
    c[0] = a[0] * b[0];
}}
"""
AT_ONCE, SLOWLY = 0, 10_000_000


@pytest.fixture
def openblas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory for the system's OpenBLAS; the wheel seems not to be installed."""
    monkeypatch.setitem(sys.modules, "scipy_openblas32", None)
    directory = tmp_path / "lib"
    directory.mkdir()
    return directory


@pytest.fixture
def harness(tmp_path: Path) -> Path:
    directory = tmp_path / "harness"
    directory.mkdir()
    (directory / "main.c").write_text(NAMES_ITS_PRODUCT)
    return directory


@pytest.fixture
def kernels(tmp_path: Path) -> Path:
    """A kernel library of matrix products only, which compiles fast."""
    directory = tmp_path / "kernels"
    directory.mkdir()
    for name in ("matmul.c", "matmul_cblas.c", "internal.h", "joulewright.h"):
        shutil.copy(KERNELS / name, directory)
    return directory


def install(directory: Path, loops: int) -> None:
    source = directory / "blas.c"
    source.write_text(CBLAS.format(loops=loops))
    library = directory / "libopenblas.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)


def built_with(
    matmul: Matmul | None, openblas: Path, kernels: Path, harness: Path, told: list[str]
) -> tuple[BuiltHarness, str]:
    """Build, and return the build and the matrix product that its program names."""
    toolchain = NativeToolchain(
        kind="native",
        flags=("-O1", f"-L{openblas}", f"-Wl,-rpath,{openblas}"),
        matmul=matmul or "auto",
    )
    executor = kernels.parent / "executor"
    executor.mkdir()
    shutil.copy(EXECUTOR / "plans_none.c", executor)
    shutil.copy(EXECUTOR / "execution_plan.h", executor)
    with LocalTransport() as board:
        built = build(
            board,
            toolchain,
            timeout_s=120,
            progress=told.append,
            kernels=kernels,
            executor=executor,
            harness=harness,
        )
        result = board.run([built.path], timeout_s=10, environment=built.environment)
    return built, result.stdout.strip()


@pytest.mark.slow
@pytest.mark.parametrize(("loops", "faster"), [(AT_ONCE, "cblas"), (SLOWLY, "in-tree")])
def test_the_faster_matrix_product_is_taken(
    openblas: Path, kernels: Path, harness: Path, loops: int, faster: Matmul
) -> None:
    install(openblas, loops)
    told: list[str] = []
    built, program = built_with(None, openblas, kernels, harness, told)
    assert program == built.record.matmul == faster
    assert built.record.blas == ("OpenBLAS of this test" if faster == "cblas" else None)
    assert ("-DJW_CBLAS" in built.record.flags) == (faster == "cblas")
    comparison = built.matmul_comparison
    assert comparison is not None
    assert comparison.faster == faster
    assert comparison.is_certain
    assert comparison.library == "OpenBLAS of this test"
    assert comparison.rounds >= 9
    in_tree_s, cblas_s = comparison.in_tree_s.median, comparison.cblas_s.median
    assert (cblas_s < in_tree_s) == (faster == "cblas")
    assert told.count("comparing matrix products: in-tree and OpenBLAS of this test") == 1


@pytest.mark.slow
@pytest.mark.parametrize("matmul", ["cblas", "in-tree"])
def test_a_requested_matrix_product_is_not_compared(
    openblas: Path, kernels: Path, harness: Path, matmul: Matmul
) -> None:
    install(openblas, AT_ONCE)
    told: list[str] = []
    built, program = built_with(matmul, openblas, kernels, harness, told)
    assert program == built.record.matmul == matmul
    assert built.matmul_comparison is None
    assert not any("comparing" in what for what in told)


def test_the_wheel_is_looked_for_on_this_computer_only_and_may_be_absent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert [blas.prefix for blas in known_blas(is_this_computer=True)] == ["scipy_", ""]
    assert [blas.prefix for blas in known_blas(is_this_computer=False)] == [""]
    monkeypatch.setitem(sys.modules, "scipy_openblas32", None)
    assert [blas.prefix for blas in known_blas(is_this_computer=True)] == [""]


@pytest.mark.parametrize(
    ("cblas_ns", "faster", "is_certain"),
    [
        ([800, 810, 790, 805, 795, 5000, 799, 801, 803], "cblas", True),
        ([1300, 1310, 1290, 1305, 1295, 900, 1299, 1301, 1303], "in-tree", True),
        ([900, 1100, 950, 1060, 990, 1010, 980, 1030, 1000], "in-tree", False),
    ],
)
def test_a_difference_is_certain_only_beyond_the_spread_of_rounds(
    cblas_ns: list[int], faster: Matmul, is_certain: bool
) -> None:
    printed = "".join(f"1000 {ns}\n" for ns in cblas_ns)
    comparison = read_comparison(printed, "a BLAS")
    assert (comparison.faster, comparison.is_certain) == (faster, is_certain)
    assert comparison.rounds == 9
    assert comparison.in_tree_s.median == pytest.approx(1e-6)


def test_both_matrix_products_fit_into_one_program(tmp_path: Path) -> None:
    objects = []
    for source, suffix, defines in (
        (IN_TREE_SOURCE, "in_tree", ()),
        (CBLAS_SOURCE, "cblas", Blas("", ()).defines),
    ):
        objects.append(str(tmp_path / f"{suffix}.o"))
        flags = ("-std=c99", "-O0", "-fPIC", *defines, *renamed(suffix))
        command = ["cc", *flags, "-c", str(KERNELS / source), "-o", objects[-1]]
        subprocess.run(command, check=True)
    # A shared library needs no BLAS to be linked, and defines no name twice.
    subprocess.run(["cc", "-shared", *objects, "-o", str(tmp_path / "both.so")], check=True)
