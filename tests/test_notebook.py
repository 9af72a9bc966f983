"""The notebook for newcomers runs from top to bottom, and its stored outputs are of that kind."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from tests.support.paths import ROOT

NOTEBOOK = ROOT / "docs" / "first-schedule.ipynb"


def structure(cell: Any) -> list[str]:
    """Outputs of a cell without what differs between runs: figures, and how far a proof came."""
    found = []
    for output in cell.get("outputs", ()):
        if output.output_type == "stream":
            text = re.sub(r"\d+(\.\d+)?", "N", output.text)
            found.append(re.sub(r" +", " ", re.sub("optimal|feasible", "STATUS", text)))
        else:
            found.append(f"{output.output_type} {sorted(output.get('data', ()))}")
    return found


@pytest.fixture
def installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Path, str], list[list[str]]]:
    """Run the notebook's first code in a directory where Joulewright is not installed.

    Returns the commands of pip, which are not run.
    """
    code = next(
        cell.source for cell in nbformat.read(NOTEBOOK, as_version=4).cells if "pip" in cell.source
    )
    run, commands = subprocess.run, list[list[str]]()

    def run_but_pip(words: list[str], **options: Any) -> object:
        if "pip" not in words:
            return run(words, capture_output=True, **options)
        commands.append([str(word) for word in words])
        return None

    def install(directory: Path, repository: str) -> list[list[str]]:
        commands.clear()
        monkeypatch.chdir(directory)
        filled_in = code.replace('REPOSITORY = ""', f'REPOSITORY = "{repository}"')
        assert (filled_in == code) == (not repository)
        exec(filled_in, {})
        return list(commands)

    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    monkeypatch.setattr("subprocess.run", run_but_pip)
    return install


def test_the_notebook_installs_from_its_clone_or_from_the_repository_that_is_filled_in(
    tmp_path: Path, installed: Callable[[Path, str], list[list[str]]]
) -> None:
    assert [words[-1] for words in installed(ROOT / "docs", "")] == [str(ROOT)]

    repository, hosted = tmp_path / "repository", tmp_path / "hosted"
    (repository / "joulewright").mkdir(parents=True)
    (repository / "joulewright" / "__init__.py").touch()
    hosted.mkdir()
    with pytest.raises(RuntimeError, match="fill in REPOSITORY above, and run this cell again"):
        installed(hosted, "")
    author = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    for words in (["init", "-q"], ["add", "-A"], [*author, "commit", "-q", "-m", "First"]):
        subprocess.run(["git", *words], cwd=repository, check=True)
    for _ in range(2):  # the second time, the clone exists
        (words,) = installed(hosted, repository.as_uri())
        assert words[1:] == ["-m", "pip", "install", "--quiet", str(hosted / "joulewright-source")]
        assert (hosted / "joulewright-source" / "joulewright" / "__init__.py").is_file()


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_the_notebook_runs_and_its_outputs_are_those_that_are_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = nbformat.read(NOTEBOOK, as_version=4)
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "jupyter"))
    work = tmp_path / "work"
    work.mkdir()
    resources = {"metadata": {"path": str(work)}}
    NotebookClient(notebook, timeout=900, kernel_name="python3", resources=resources).execute()
    assert [path.name for path in work.iterdir()] == ["first-schedule"]
    for ran, kept in zip(notebook.cells, stored.cells, strict=True):
        assert structure(ran) == structure(kept), ran.source
    printed = "".join(line for cell in notebook.cells for line in structure(cell))
    assert "values identical to those of the unscheduled step: True" in printed
