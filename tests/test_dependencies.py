"""Dependencies: declared, public, described, and imported where they are used."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from devices.program import DEPENDENCIES
from tests.support.paths import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SHIPPED = PROJECT["tool"]["setuptools"]["packages"]["find"]["include"]
OWN = {pattern.rstrip("*") for pattern in SHIPPED}
AROUND = {"benchmarks", "tests", "tools"}

# Declared but imported nowhere: other packages load them.
LOADED_BY_OTHERS = {"pyarrow", "pyvisa-py", "highspy"}

# Only for recording references and for one benchmark; see docs/dependencies.md.
NOT_DECLARED = {"timm", "torch", "torchvision", "transformers"}

# Slow to import, and not needed by most commands.
HEAVY = {"pandas", "pyarrow", "matplotlib", "scipy", "ortools", "loky", "mip"}


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def names(requirements: list[str]) -> set[str]:
    return {canonical(re.split(r"[^\w.-]", line)[0]) for line in requirements}


DIRECT = names(PROJECT["project"]["dependencies"])
EXTRAS = {
    extra: names(lines) for extra, lines in PROJECT["project"]["optional-dependencies"].items()
}
DEVELOPMENT = names(PROJECT["dependency-groups"]["dev"])
RUNTIME = DIRECT.union(*EXTRAS.values())


@cache
def distributions_by_import() -> Mapping[str, list[str]]:
    """Names of the installed packages that provide each top-level module."""
    return packages_distributions()


def imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and full name of every absolute import; ``from a import b`` is a.b."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call):
            match (node.func, node.args):
                case (
                    ast.Name(id="import_module") | ast.Attribute(attr="import_module"),
                    [ast.Constant(value=str(name)), *_],
                ):
                    yield node.lineno, name


@cache
def imports_of(path: Path) -> tuple[tuple[int, str], ...]:
    """Imports of a module's file."""
    return tuple(imports(ast.parse(path.read_text(encoding="utf-8"))))


def import_errors(imported: Iterable[tuple[int, str]], declared: set[str]) -> list[str]:
    """Errors of a module's imports, given the names of the ``declared`` packages."""
    distributions = distributions_by_import()
    found = []
    for line, name in imported:
        top, *rest = name.split(".")
        if top in sys.stdlib_module_names or top in OWN | AROUND | {"cli", "__future__"}:
            continue
        packages = {canonical(package) for package in distributions.get(top, [top])}
        if not packages & declared:
            found.append(f"line {line}: {name} is of {'/'.join(sorted(packages))}, not declared")
        if any(part.startswith("_") or part == "externals" for part in rest):
            found.append(f"line {line}: {name} is private")
    return found


def modules(top: set[str]) -> list[Path]:
    return [path for name in sorted(top) for path in sorted((ROOT / name).rglob("*.py"))]


@pytest.mark.slow
def test_every_import_is_declared_and_public() -> None:
    found = {
        str(path): errors
        for path in [*modules(OWN), ROOT / "cli.py"]
        if (errors := import_errors(imports_of(path), RUNTIME))
    }
    assert found == {}


@pytest.mark.slow
def test_tests_and_benchmarks_import_only_declared_packages() -> None:
    declared = RUNTIME | DEVELOPMENT | NOT_DECLARED
    found = {
        str(path): errors
        for path in modules(AROUND)
        if (errors := import_errors(imports_of(path), declared))
    }
    assert found == {}


@pytest.mark.parametrize(
    ("source", "errors"),
    [
        ("import numpy\nfrom mip import highs\nfrom solver import solve\nimport json", []),
        ("import pygments", ["line 1: pygments is of pygments, not declared"]),
        ("def f():\n    import pluggy", ["line 2: pluggy is of pluggy, not declared"]),
        ("import_module('pluggy')", ["line 1: pluggy is of pluggy, not declared"]),
        ("import unheard_of.part", ["line 1: unheard_of.part is of unheard-of, not declared"]),
        ("from numpy._core import multiarray", ["line 1: numpy._core.multiarray is private"]),
        ("from mip.externals import anything", ["line 1: mip.externals.anything is private"]),
        ("from rich import _spinners", ["line 1: rich._spinners is private"]),
    ],
)
def test_an_undeclared_or_private_import_is_found(source: str, errors: list[str]) -> None:
    assert import_errors(imports(ast.parse(source)), RUNTIME) == errors


def test_the_program_knows_the_modules_of_its_dependencies() -> None:
    distributions = distributions_by_import()
    owners = {name: {canonical(each) for each in distributions[name]} for name in DEPENDENCIES}
    assert set().union(*owners.values()) == DIRECT
    used = {name.split(".")[0] for path in modules(OWN) for _, name in imports_of(path)}
    needed = {name for name in used if DIRECT & set(map(canonical, distributions.get(name, ())))}
    assert needed <= DEPENDENCIES


def test_every_declared_package_is_imported() -> None:
    distributions = distributions_by_import()
    used = {
        canonical(package)
        for path in [*modules(OWN), ROOT / "cli.py"]
        for _, name in imports_of(path)
        for package in distributions.get(name.split(".")[0], [])
    }
    assert RUNTIME - used == LOADED_BY_OTHERS


def test_development_dependencies_include_all_extras() -> None:
    assert set().union(*EXTRAS.values()) <= DEVELOPMENT


def listed(page: str, title: str) -> list[tuple[str, ...]]:
    """Rows of the table under the heading ``title``, cell by cell."""
    section = re.split(r"^## ", page, flags=re.MULTILINE)
    table = next(part for part in section if part.startswith(f"{title}\n"))
    rows = [line for line in table.splitlines() if line.startswith("|")][2:]
    return [tuple(cell.strip().strip("`") for cell in row.strip("|").split(" | ")) for row in rows]


def test_dependency_page_lists_exactly_the_declared_packages() -> None:
    page = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    extras = {(extra, package) for extra, packages in EXTRAS.items() for package in packages}
    assert {canonical(row[0]) for row in listed(page, "Always")} == DIRECT
    assert {(row[0], canonical(row[1])) for row in listed(page, "Extras")} == extras
    checks = {canonical(row[0]) for row in listed(page, "Tests and checks")}
    assert checks == DEVELOPMENT - RUNTIME


def test_locks_name_no_index_and_pin_declared_packages() -> None:
    for name, declared in (
        ("requirements.lock", DIRECT),
        ("requirements-dev.lock", DIRECT | DEVELOPMENT),
    ):
        lock = (ROOT / name).read_text(encoding="utf-8")
        assert "://" not in lock
        assert not re.search(r"^--(extra-)?index-url|^--find-links", lock, re.MULTILINE)
        assert declared <= set(re.findall(r"^([\w.-]+)==", lock, re.MULTILINE))


@pytest.mark.slow
@pytest.mark.parametrize(
    "imported",
    [
        "import cli, commands.command_line",
        "import commands.profile.command, commands.solve.command, commands.run.command",
        "import commands.sweep.command, commands.plot, commands.export, commands.diff",
        "import commands.profile.refine, solver.requests.summary, commands.run.summary",
        "import commands.solve.baselines, commands.solve.robustness, commands.sweep.summary",
        "from solver import solve",
        "import solver.sweep.sweep, solver.robustness.robustness",
        "import profiler.run.run, profiler.run.frame",
        "import replay.runs, replay.running.opening, replay.export.export",
        "import replay.directory, replay.costs.measure_again, replay.run_report",
        "import replay.export.project",
    ],
)
def test_heavy_libraries_are_not_imported_at_start_up(imported: str) -> None:
    program = f"import sys; {imported}; print(*sorted({HEAVY!r} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []
