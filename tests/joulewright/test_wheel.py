"""The wheel, installed into an empty environment and used from a user's directory."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.paths import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400)]

ROOMS = (
    "campaigns",
    "commands",
    "devices",
    "joulewright",
    "networks",
    "onboard",
    "plots",
    "profiler",
    "replay",
    "server",
    "solver",
)
HIDING = ("cli", "solver", "mip", "joblib", "loky", "queue", "plots/__init__")
"""Names of modules in the user's directory that must not replace modules of the command."""


@dataclass(frozen=True)
class Installation:
    """An environment with the wheel, and access to the test environment's third-party packages."""

    wheel: Path
    environment: Path
    cache: Path

    @property
    def packages(self) -> Path:
        (path,) = self.environment.glob("lib/python*/site-packages")
        return path

    def run(self, *words: str, directory: Path) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment, such as ``joulewright``; it must exit with 0."""
        outside = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        done = subprocess.run(
            [str(self.environment / "bin" / words[0]), *words[1:]],
            cwd=directory,
            env=outside | {"XDG_CACHE_HOME": str(self.cache)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    directory = tmp_path_factory.mktemp("installation")
    # A copy, because a build leaves files in the source directory.
    source, environment = directory / "source", directory / "environment"
    passed_over = shutil.ignore_patterns(".*", "__pycache__", "results", "build", "*.egg-info")
    shutil.copytree(ROOT, source, symlinks=True, ignore=passed_over)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    offline = ["--no-index", "--no-deps"]
    building = ["wheel", *offline, "--no-build-isolation", "--wheel-dir", str(directory)]
    subprocess.run([*pip, *building, str(source)], check=True)
    (wheel,) = directory.glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    into = ["--python", str(environment / "bin" / "python")]
    subprocess.run([*pip, *into, "install", *offline, str(wheel)], check=True)
    installation = Installation(wheel, environment, directory / "cache")
    third_party = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (installation.packages / "third-party.pth").write_text("\n".join(third_party) + "\n")
    return installation


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A working directory with files of the user's that have the same names as modules."""
    for name in HIDING:
        path = tmp_path / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"raise SystemExit('hidden by {name}')\n")
    return tmp_path


def _files(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}


def test_wheel_contains_exactly_the_rooms(installation: Installation) -> None:
    with zipfile.ZipFile(installation.wheel) as wheel:
        names = set(wheel.namelist())
        licence = wheel.read("onboard/LICENSE")
    assert licence == (ROOT / "LICENSE").read_bytes()
    held = {name for name in names if not name.split("/")[0].endswith(".dist-info")}
    wanted = {
        f"{room}/{name}"
        for room in ROOMS
        for name in _files(ROOT / room)
        if "__pycache__" not in name
    }
    assert held == wanted | {"cli.py"}
    sources = {
        "solver/addresses/eviction.c",
        "solver/annealing/search.c",
        "solver/annealing/sequence.h",
    }
    assert {"devices/catalog/pi4.yaml", *sources} <= held
    assert {"onboard/firmware/firmware.ld.in", "onboard/project/Makefile"} <= held


def test_a_solve_writes_below_the_working_directory(
    installation: Installation, directory: Path
) -> None:
    before = _files(installation.packages)
    problem = ("--profile", "m4", "--model", "linear", "--ram-budget", "90%")
    done = installation.run("joulewright", "solve", *problem, directory=directory)
    assert "results/schedules/linear-batch-1-on-m4.json" in done.stdout
    assert len(list(directory.glob("results/schedules/*.json"))) == 2
    assert _files(installation.packages) == before
    assert list(installation.cache.glob("joulewright/sequence-*.so"))


def test_workers_of_a_sweep_ignore_the_files_of_the_working_directory(
    installation: Installation, directory: Path
) -> None:
    grid = ("--ram-budgets", "90%,100%", "--jobs", "2", "--no-baselines", "--results", "elsewhere")
    sweep = ("sweep", "--profile", "m4", "--model", "linear", *grid)
    done = installation.run("joulewright", *sweep, directory=directory)
    assert "hidden" not in done.stderr
    assert (directory / "elsewhere" / "sweep" / "sweep.csv").is_file()


def test_a_board_is_profiled_solved_for_run_and_exported_in_a_directory_of_results(
    installation: Installation, directory: Path
) -> None:
    before = _files(installation.packages)

    def run(*words: str) -> str:
        there = ("--results", "kept/here")
        return installation.run("joulewright", *words, *there, directory=directory).stdout

    quick = ("--blocks", "2", "--no-storage", "--no-additivity")
    run("profile", "--device", "local", "--model", "linear", *quick)
    run("solve", "--profile", "local", "--model", "linear", "--ram-budget", "100%")
    schedule = "kept/here/schedules/linear-batch-1-on-local.json"
    run("run", "--schedule", schedule, "--device", "local", "--steps", "2")
    run("export", "--schedule", schedule, "--format", "c")
    results = directory / "kept" / "here"
    assert {path.name for path in results.iterdir()} == {
        *("export", "profiles", "replays", "runs", "schedules")
    }
    project = results / "export" / "linear-batch-1-on-local"
    assert (project / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    assert {"Makefile", "main.c", "executor", "kernels"} <= {
        path.name for path in project.iterdir()
    }
    assert not (directory / "results").exists()
    assert _files(installation.packages) == before


def test_python_m_joulewright_equals_the_command(
    installation: Installation, directory: Path
) -> None:
    as_module = installation.run("python", "-m", "joulewright", "--help", directory=directory)
    command = installation.run("joulewright", "--help", directory=directory)
    assert as_module.stdout == command.stdout
    assert command.stdout.startswith("usage: joulewright ")


def test_a_script_imports_the_library(
    installation: Installation, directory: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    script = tmp_path_factory.mktemp("script") / "script.py"
    script.write_text(
        "from joulewright import solve\n"
        "schedule = solve(model='linear', platform='m4', ram_budget=40_000, runtime_budget=1.5)\n"
        "print(schedule.status)\n"
    )
    done = installation.run("python", str(script), directory=directory)
    assert done.stdout == "optimal\n"
