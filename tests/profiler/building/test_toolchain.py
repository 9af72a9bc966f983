"""Toolchains: from sources to a program on the board, with a record of what it was built from."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from devices.description import CrossToolchain, NativeToolchain
from devices.errors import BuildFailed, BuildInterrupted, JoulewrightError, SessionGone
from profiler.building.firmware_objects import FirmwareObjects
from profiler.building.toolchain import BuiltHarness, HarnessBuilder, build
from profiler.transports.base import Transport
from profiler.transports.local import LocalTransport
from profiler.transports.ssh import SshTransport
from tests.support.boards.sshd import Sshd

PLAIN = NativeToolchain(kind="native", flags=("-O0",), matmul="in-tree")

KERNEL = """
#include "kernel.h"
#ifdef JW_CBLAS
void JW_CBLAS_SGEMM(int, int, int, int, int, int, float, const float *, int, const float *, int,
                    float, float *, int);
const char *matmul_name = "cblas";
float product(float a, float b)
{
    float c = 0.0f;
    JW_CBLAS_SGEMM(101, 111, 111, 1, 1, 1, 1.0f, &a, 1, &b, 1, 0.0f, &c, 1);
    return c;
}
#else
const char *matmul_name = "in-tree";
float product(float a, float b) { return a * b; }
#endif
"""
HEADER = "float product(float a, float b);\nextern const char *matmul_name;\n"
NO_PLANS = 'const char plan_name[] = "";\n'
MAIN = """
#include <stdio.h>
#include "kernel.h"
extern const char plan_name[];
int main(void) { printf("%s%s %g\\n", plan_name, matmul_name, product(2.0f, 3.0f)); return 0; }
"""

# A stand-in for a system's OpenBLAS.
OPENBLAS = """
char *openblas_get_config(void) { return "OpenBLAS of this test"; }
void cblas_sgemm(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a,
                 int lda, const float *b, int ldb, float beta, float *c, int ldc)
{
    c[0] = a[0] * b[0];
}
"""


@dataclass(frozen=True)
class Tree:
    """A kernel library, an executor and a harness that compile fast.

    Each has one source file; the executor's is the one without plans.
    """

    kernels: Path
    executor: Path
    harness: Path

    def builder(
        self, transport: Transport, toolchain: NativeToolchain | CrossToolchain
    ) -> HarnessBuilder:
        return HarnessBuilder(
            transport,
            toolchain,
            kernels=self.kernels,
            executor=self.executor,
            harness=self.harness,
        )

    def build(
        self,
        transport: Transport,
        toolchain: NativeToolchain | CrossToolchain,
        timeout_s: float = 60,
        progress: Callable[[str], None] | None = None,
    ) -> BuiltHarness:
        with closing(self.builder(transport, toolchain)) as builder:
            return builder.build(timeout_s=timeout_s, progress=progress)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    tree = Tree(*(tmp_path / name for name in ("kernels", "executor", "harness")))
    for directory in (tree.kernels, tree.executor, tree.harness):
        directory.mkdir()
    (tree.kernels / "kernel.c").write_text(KERNEL)
    (tree.kernels / "kernel.h").write_text(HEADER)
    (tree.executor / "plans_none.c").write_text(NO_PLANS)
    (tree.harness / "main.c").write_text(MAIN)
    return tree


@pytest.fixture(autouse=True)
def _own_client(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)


@pytest.fixture
def local() -> Iterator[Transport]:
    with LocalTransport() as transport:
        yield transport


@pytest.fixture
def remote(sshd: Sshd) -> Iterator[Transport]:
    with SshTransport(sshd.description()) as transport:
        yield transport


@pytest.fixture(params=["local", "remote"])
def board(request: pytest.FixtureRequest) -> Transport:
    transport: Transport = request.getfixturevalue(request.param)
    return transport


def output(board: Transport, built: BuiltHarness) -> str:
    return board.run([built.path], timeout_s=10, environment=built.environment).stdout


def test_a_board_compiles_for_itself(board: Transport, tree: Tree) -> None:
    built = tree.build(board, PLAIN)
    assert output(board, built) == "in-tree 6\n"
    assert built.path.startswith(board.directory)


def test_a_cross_compiler_runs_locally_and_only_the_program_is_copied(
    board: Transport, tree: Tree
) -> None:
    built = tree.build(board, CrossToolchain(kind="cross", compiler="cc", flags=("-static",)))
    assert output(board, built) == "in-tree 6\n"
    names = board.run(["ls"], timeout_s=10).stdout.split()
    assert names == [Path(built.path).name]


def test_the_build_record_names_compiler_and_flags(local: Transport, tree: Tree) -> None:
    record = tree.build(local, PLAIN).record
    version = subprocess.run(["cc", "--version"], capture_output=True, text=True, check=True)
    assert record.compiler == version.stdout.splitlines()[0]
    assert record.flags[-1] == "-O0"
    assert "-std=c99" in record.flags
    assert (record.matmul, record.blas, record.threads) == ("in-tree", None, 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    "toolchain", [PLAIN, CrossToolchain(kind="cross", compiler="cc", flags=("-static",))]
)
def test_plans_are_linked_to_objects_compiled_before(
    board: Transport, tree: Tree, toolchain: NativeToolchain | CrossToolchain
) -> None:
    told: list[str] = []
    with closing(tree.builder(board, toolchain)) as builder:
        first = builder.build(timeout_s=60)
        assert output(board, first) == "in-tree 6\n"
        second = builder.build(
            'const char plan_name[] = "a plan, ";', timeout_s=60, progress=told.append
        )
        assert output(board, second) == "a plan, in-tree 6\n"
    assert second.record == first.record
    assert not any("kernels" in what or "harness/" in what for what in told)


@pytest.mark.slow
def test_the_kernel_hash_covers_kernel_sources_and_flags_only(local: Transport, tree: Tree) -> None:
    def built(toolchain: NativeToolchain = PLAIN) -> str:
        return tree.build(local, toolchain).record.kernels_sha256

    first = built()
    (tree.harness / "main.c").write_text(MAIN.replace("%g", "%f"))
    (tree.kernels / "notes.md").write_text("No object code comes from here.")
    assert built() == first
    assert built(PLAIN.model_copy(update={"flags": ("-O1",)})) != first
    (tree.kernels / "kernel.h").write_text(HEADER + "/* another */\n")
    second = built()
    assert second != first
    (tree.kernels / "kernel.c").rename(tree.kernels / "renamed.c")
    assert built() not in {first, second}


def test_on_this_computer_cblas_comes_from_the_wheel_and_uses_one_thread(
    local: Transport, tree: Tree
) -> None:
    ask = "int scipy_openblas_get_num_threads(void);"
    main = MAIN.replace("int main", f"{ask}\nint main").replace(
        "return 0", 'printf("%d threads\\n", scipy_openblas_get_num_threads()); return 0'
    )
    (tree.harness / "main.c").write_text(main)
    built = tree.build(local, NativeToolchain(kind="native", flags=("-O0",), matmul="cblas"))
    assert output(local, built) == "cblas 6\n1 threads\n"
    assert built.record.matmul == "cblas"
    assert str(built.record.blas).startswith("OpenBLAS")


def test_on_a_board_cblas_is_the_systems_openblas(
    remote: Transport, sshd: Sshd, tree: Tree
) -> None:
    (sshd.directory / "blas.c").write_text(OPENBLAS)
    library = sshd.directory / "libopenblas.so"
    source = sshd.directory / "blas.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    flags = ("-O0", f"-L{sshd.directory}", f"-Wl,-rpath,{sshd.directory}")
    built = tree.build(remote, NativeToolchain(kind="native", flags=flags, matmul="cblas"))
    assert output(remote, built) == "cblas 6\n"
    assert built.record.blas == "OpenBLAS of this test"


def test_without_openblas_auto_means_in_tree_and_cblas_is_an_error(
    remote: Transport, sshd: Sshd, tree: Tree
) -> None:
    compiler = sshd.directory / "cc-without-openblas"
    compiler.write_text(
        '#!/bin/sh\ncase "$*" in *openblas*) echo "error: no -lopenblas" >&2; exit 1;; esac\n'
        'exec cc "$@"\n'
    )
    compiler.chmod(0o755)
    toolchain = NativeToolchain(kind="native", compiler=str(compiler), flags=("-O0",))
    built = tree.build(remote, toolchain)
    assert output(remote, built) == "in-tree 6\n"
    assert built.matmul_comparison is None
    with pytest.raises(BuildFailed, match=r"no -lopenblas.*apt install libopenblas-dev"):
        tree.build(remote, toolchain.model_copy(update={"matmul": "cblas"}))


@pytest.mark.parametrize(
    ("toolchain", "package"),
    [
        (NativeToolchain(kind="native", compiler="tcc-9"), "tcc-9"),
        (CrossToolchain(kind="cross", compiler="riscv64-none-gcc -O"), "gcc-riscv64-none"),
    ],
)
def test_a_missing_compiler_is_named_with_its_package(
    local: Transport, tree: Tree, toolchain: NativeToolchain | CrossToolchain, package: str
) -> None:
    with pytest.raises(BuildFailed, match=f"is not installed; .*: sudo apt install {package}$"):
        tree.build(local, toolchain)


@pytest.mark.parametrize("compiler", ["gcc;touch", "$(reboot)", "-o", "`id`", "Gcc", "'a b'"])
def test_advice_to_install_a_compiler_can_be_pasted(
    local: Transport, tree: Tree, compiler: str
) -> None:
    toolchain = NativeToolchain(kind="native", compiler=f"{compiler} X")
    with pytest.raises(BuildFailed) as refused:
        tree.build(local, toolchain)
    assert "; correct the description: no package can be named " in str(refused.value)
    assert "apt install" not in str(refused.value)


def test_a_compile_error_is_quoted_with_file_and_line(local: Transport, tree: Tree) -> None:
    (tree.kernels / "wrong.c").write_text("int fine;\nint oops(void) { return missing; }\n")
    with pytest.raises(
        BuildFailed, match=r"cannot compile kernels/wrong\.c: .*wrong\.c:2:.*missing"
    ):
        tree.build(local, PLAIN)


@pytest.mark.parametrize(
    "end",
    ["kill -KILL $$", "echo 'cc: fatal error: Killed signal terminated program cc1' >&2; exit 1"],
)
def test_a_killed_compiler_is_told_from_an_error_in_a_source(
    local: Transport, tree: Tree, tmp_path: Path, end: str
) -> None:
    compiler = tmp_path / "cc"
    compiler.write_text(f'#!/bin/sh\ncase "$*" in *" -c "*) {end} ;; esac\nexec cc "$@"\n')
    compiler.chmod(0o755)
    with pytest.raises(BuildInterrupted, match=r"cannot compile kernels/kernel\.c"):
        tree.build(local, PLAIN.model_copy(update={"compiler": str(compiler)}))
    (tree.kernels / "kernel.c").write_text("int oops(void) { return missing; }\n")
    with pytest.raises(BuildFailed) as failed:
        tree.build(local, PLAIN)
    assert not isinstance(failed.value, BuildInterrupted)


@pytest.mark.parametrize(
    ("event", "error"),
    [
        ("kill -KILL 0", BuildInterrupted),  # all of its process group
        ('rm -rf "$PWD"', SessionGone),  # as a restart of the board does
    ],
)
def test_what_happens_to_a_board_is_told_from_an_error_in_a_source(
    local: Transport, tree: Tree, tmp_path: Path, event: str, error: type[JoulewrightError]
) -> None:
    compiler = tmp_path / "cc"
    compiler.write_text(f'#!/bin/sh\ncase "$*" in *" -c "*) {event} ;; esac\nexec cc "$@"\n')
    compiler.chmod(0o755)
    with pytest.raises(error):
        tree.build(local, PLAIN.model_copy(update={"compiler": str(compiler)}))


def test_what_a_killed_compiler_leaves_goes_with_the_session(
    tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    monkeypatch.setenv("TMPDIR", str(shared))
    compiler = tmp_path / "cc"
    compiler.write_text('#!/bin/sh\n: >"${TMPDIR:-/tmp}/cc-left.s"\nexec cc "$@"\n')
    compiler.chmod(0o755)
    with LocalTransport() as transport:
        tree.build(transport, PLAIN.model_copy(update={"compiler": str(compiler)}))
        assert (Path(transport.directory) / "cc-left.s").exists()
    assert list(shared.glob("cc*")) == []


def test_a_build_ends_at_its_time_limit(local: Transport, tree: Tree) -> None:
    with pytest.raises(BuildInterrupted, match="did not finish within"):
        tree.build(local, PLAIN, timeout_s=1e-3)


def test_progress_names_every_source(local: Transport, tree: Tree) -> None:
    told: list[str] = []
    tree.build(local, PLAIN, progress=told.append)
    assert told == [
        "compiling kernels/kernel.c (1 of 1)",
        "compiling executor/plans_none.c (1 of 1)",
        "compiling harness/main.c (1 of 1)",
        "linking",
    ]


# --- objects that are kept ------------------------------------------------------------------------


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "joulewright" / "objects"


def compiled(transport: Transport, tree: Tree, toolchain: NativeToolchain = PLAIN) -> int:
    """Build in a session of its own, and run; the number of sources that were compiled."""
    told: list[str] = []
    with type(transport)() as session:
        built = tree.build(session, toolchain, progress=told.append)
        assert session.run([built.path], timeout_s=30).stdout == "in-tree 6\n"
    return sum(step.startswith("compiling") for step in told)


def test_the_same_sources_are_compiled_once(local: Transport, tree: Tree, kept: Path) -> None:
    assert [compiled(local, tree) for _ in range(3)] == [3, 0, 0]
    assert len(list(kept.glob("*.tar"))) == 1


@pytest.mark.slow
def test_other_sources_headers_flags_or_compilers_are_compiled(
    local: Transport, tree: Tree, tmp_path: Path
) -> None:
    assert compiled(local, tree) == 3
    (tree.kernels / "kernel.h").write_text(HEADER + "\n")
    assert compiled(local, tree) == 3
    assert compiled(local, tree, PLAIN.model_copy(update={"flags": ("-O1",)})) == 3
    other = tmp_path / "other-cc"
    other.write_text('#!/bin/sh\n[ "$1" = --version ] && echo other 1.0 || exec cc "$@"\n')
    other.chmod(0o755)
    assert compiled(local, tree, PLAIN.model_copy(update={"compiler": str(other)})) == 3
    assert compiled(local, tree, PLAIN.model_copy(update={"flags": ("-O1",)})) == 0


@pytest.mark.slow
@pytest.mark.parametrize("damage", [b"", b"\0" * 5000])
def test_a_damaged_archive_of_objects_is_not_used(
    local: Transport, tree: Tree, kept: Path, damage: bytes
) -> None:
    assert compiled(local, tree) == 3
    (archive,) = kept.glob("*.tar")
    archive.write_bytes(damage)
    assert [compiled(local, tree) for _ in range(2)] == [3, 0]


def test_objects_that_cannot_be_kept_are_compiled_each_time(
    local: Transport, tree: Tree, kept: Path
) -> None:
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text("a file where the directory would be")
    assert [compiled(local, tree) for _ in range(2)] == [3, 3]


@pytest.mark.slow
def test_the_newest_builds_are_kept(
    local: Transport, tree: Tree, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("profiler.building.objects._KEPT_BUILDS", 3)
    for number in range(5):
        (tree.kernels / "kernel.h").write_text(f"{HEADER}/* {number} */\n")
        assert compiled(local, tree) == 3
    assert len(list(kept.iterdir())) == 2 * 3
    assert compiled(local, tree) == 0


def test_objects_for_firmware_are_kept_apart(local: Transport, tree: Tree, tmp_path: Path) -> None:
    made = tmp_path / "made.o"
    made.write_bytes(b"an object")
    others = FirmwareObjects(("cc",), {})
    keys = [others.key(f"{number}.c", b"", ()) for number in range(20)]
    for key in keys:
        others.keep(key, made)
    assert compiled(local, tree) == 3
    assert all(others.take(key, made) for key in keys)


@pytest.mark.slow
def test_the_harness_itself_builds_and_runs(local: Transport) -> None:
    built = build(local, PLAIN, timeout_s=900)
    local.run([built.path, "describe"], timeout_s=30, environment=built.environment)
