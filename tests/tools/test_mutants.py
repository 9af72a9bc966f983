"""The tool that tries mutants: its changes, its exceptions, and its verdicts."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tools.mutants import Copy, Target, mutants_of, shuffled, table, try_target
from tools.mutators import c_edits, edits_of

TOY = '''"""The larger of two: a - b."""


def larger(a: int, b: int = 0 + 0) -> int:
    """Never None, and True."""
    return a if a > b else b
'''
TARGET = Target("toy", ("*.py",), ("tests/test_toy.py",))


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    """A checkout with one module and its tests."""
    root = tmp_path / "toy"
    (root / "tests").mkdir(parents=True)
    (root / "toy.py").write_text(TOY.replace(" = 0 + 0", ""), encoding="utf-8")
    (root / "pytest.ini").write_text("[pytest]\npythonpath = .\n", encoding="utf-8")
    (root / "tests" / "test_toy.py").write_text(
        "from toy import larger\n\n\ndef test_larger():\n"
        "    assert larger(1, 2) == larger(2, 1) == 2\n",
        encoding="utf-8",
    )
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    return root


def contents(root: Path) -> dict[Path, tuple[bytes, int]]:
    files = (path for path in root.rglob("*") if path.is_file() and ".git" not in path.parts)
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def mutated(source: str, suffix: str) -> set[str]:
    return {edit.applied_to(source) for edit in edits_of(source, suffix)}


@pytest.mark.slow
def test_mutants_are_killed_or_survive_and_the_tree_is_unchanged(toy: Path, tmp_path: Path) -> None:
    before = contents(toy)
    out = tmp_path / "verdicts.jsonl"
    try_target(toy, TARGET, out, count=2, seed=0)
    assert len(out.read_text(encoding="utf-8").splitlines()) == 2
    try_target(toy, TARGET, out, count=10, seed=0)
    lines = table([TARGET], out).splitlines()
    assert lines[1].split() == ["toy", "4", "3", "0", "1"]
    assert lines[3:] == [
        "survived  toy.py:6: return a if a > b else b  →  return a if a >= b else b"
    ]
    assert contents(toy) == before


@pytest.mark.slow
def test_only_surviving_mutants_are_tried_again_and_only_on_request(
    toy: Path, tmp_path: Path
) -> None:
    out = tmp_path / "verdicts.jsonl"
    (toy / "tests" / "test_toy.py").write_text("def test_nothing(): pass\n", encoding="utf-8")
    try_target(toy, TARGET, out, count=1, seed=0)
    try_target(toy, TARGET, out, count=1, seed=0)
    assert out.read_text(encoding="utf-8").count("survived") == 1
    (toy / "tests" / "test_toy.py").write_text(
        "import toy, inspect\n\n\ndef test_text():\n"
        "    assert 'return a if a > b else b' in inspect.getsource(toy)\n",
        encoding="utf-8",
    )
    try_target(toy, TARGET, out, count=1, seed=0, survivors=True)
    assert table([TARGET], out).splitlines()[1].split() == ["toy", "1", "1", "0", "0"]


def test_tests_that_fail_without_a_mutant_give_no_verdict(toy: Path, tmp_path: Path) -> None:
    (toy / "tests" / "test_toy.py").write_text("def test_it(): assert False\n", encoding="utf-8")
    with pytest.raises(RuntimeError, match="toy: tests fail without a mutant"):
        try_target(toy, TARGET, tmp_path / "verdicts.jsonl", count=1, seed=0)


@pytest.mark.slow
def test_endless_loop_is_ended(toy: Path, tmp_path: Path) -> None:
    (toy / "tests" / "test_toy.py").write_text("def test_it():\n    while True: pass\n")
    (tmp_path / "copy").mkdir()
    assert Copy(toy, tmp_path / "copy").test(TARGET.tests, timeout_s=5.0) is None


def test_a_sample_is_the_same_for_a_seed_and_spread_over_lines(toy: Path) -> None:
    (toy / "toy.py").write_text("a = 1 + 2 + 3\nb = 4\nc = 5\n", encoding="utf-8")
    mutants = mutants_of(toy, TARGET)
    assert shuffled(mutants, 3) == shuffled(mutants, 3) != shuffled(mutants, 4)
    assert {mutant.line for mutant in shuffled(mutants, 3)[:3]} == {1, 2, 3}
    assert len(shuffled(mutants, 3)) == len(mutants)


def test_docstrings_annotations_and_decorators_are_not_mutated() -> None:
    source = '''"""Docstring: 1 < 2."""
from __future__ import annotations

__all__ = ["name"]


@decorated(flag=True)
def name(x: Literal["one", 2] | None) -> dict[str, 3]:
    """Docstring: 1 < 2."""
    y: Final[4]
    assert x == 5, "why"
'''
    assert not mutated(source, ".py")


def test_raise_is_removed_whole_and_its_message_is_not_mutated() -> None:
    source = "if bad:\n    raise ValueError(f'{1 + 2}', 3)\n"
    assert mutated(source, ".py") == {
        source.replace("bad", "not (bad)"),
        source.replace("bad", "False"),
        "if bad:\n    pass\n",
    }


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = a <= b", {"x = a < b", "x = a > b"}),
        ("x = a is not b", {"x = a is b"}),
        ("x = (a) in (b)", {"x = (a) not in (b)"}),
        ("x = a and b and c", {"x = a or b and c", "x = a and b or c"}),
        ("x = a // b", {"x = a * b"}),
        ("x += 1", {"x -= 1", "x += 2", "x += 0", "pass"}),
        ("x.y = z", {"pass"}),
        ("f(a, b, c)", {"f(b, a, c)", "pass"}),
        ("x = max(y, z)", {"x = min(y, z)"}),
        ("x = not é", {"x = (é)"}),
        ("x = 'word'", {"x = 'word_'"}),
        ("x = [y for y in z if y]", {"x = [y for y in z if True]"}),
        ("x = a if b else c", {"x = (c) if b else (a)"}),
    ],
)
def test_python_is_changed_in_small_steps(source: str, expected: set[str]) -> None:
    assert mutated(source, ".py") == expected


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("int x = a <= b;", {"int x = a < b;", "int x = a > b;"}),
        ("type *x = a * b;", {"type *x = a / b;"}),
        ("x->y = 0;", {"x->y = 1;", ";"}),
        ("return x;", {"return 0;"}),
        ("return NULL;", set()),
        ("if (a) { }", {"if (!(a)) { }"}),
        ("f(a[1u], b);", {";", "f(b, a[1u]);", "f(a[2u], b);", "f(a[0u], b);"}),
        ("x = a || !b;", {";", "x = a && !b;", "x = a || b;"}),
        ("break;", {";"}),
        ('char *x = "1 < 2"; /* 3 + 4 */', set()),
    ],
)
def test_c_is_changed_in_small_steps(statement: str, expected: set[str]) -> None:
    source = f"#define N 1 + 2\nstatic const int n = 3;\nvoid f(void) {{ {statement} }}\n"
    found = {edit.applied_to(source) for edit in c_edits(source)}
    assert found == {source.replace(statement, each) for each in expected}


@pytest.mark.slow
def test_c_mutants_with_compiler_warnings_are_rejected(toy: Path, tmp_path: Path) -> None:
    source = 'int f(const char *a, int b);\nint g(void);\nint g(void) { return f("", 1); }\n'
    (toy / "toy.c").write_text(source, encoding="utf-8")
    (tmp_path / "copy").mkdir()
    copy = Copy(toy, tmp_path / "copy")
    verdicts = {
        m.edit.operator: copy.compiles(m) for m in mutants_of(toy, Target("c", ("*.c",), ()))
    }
    assert verdicts["arguments swapped"] is False
    assert verdicts["constant"] is True
