"""The notebook for newcomers runs from top to bottom, and its stored outputs are of that kind."""

from __future__ import annotations

import re
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


@pytest.mark.slow
@pytest.mark.timeout(1200)
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
