"""The benchmark at half of the peak: rows in which slices lose the schedule, or a command fails."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.solver import half
from benchmarks.solver.command import CommandRun

SLICED = {"slices": 65536}


def run(energy_j: float | None, *ways: dict[str, Any]) -> CommandRun:
    """An answer with a schedule of so much energy, or with none, and with what was offered."""
    found: dict[str, Any] = {} if energy_j is None else {"energy_j": energy_j}
    return CommandRun({"any_order_bound_j": 1.0, "slicings": list(ways), **found}, 1.0, 1, "")


def note_and_rows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *runs: CommandRun
) -> tuple[str, list[list[str]]]:
    """The note and the cells of a page of one network, from what its four commands answer."""
    waiting = iter(runs)
    monkeypatch.setattr(half, "run_solve", lambda _words: next(waiting))
    monkeypatch.setattr(half, "model_names", lambda: ["digits"])
    monkeypatch.setattr("sys.argv", ["half"])
    half.main()
    lines = capsys.readouterr().out.splitlines()
    (note,) = (line for line in lines if line.startswith("Slices are offered"))
    cells = [[cell.strip() for cell in line.split("|")] for line in lines if "| digits" in line]
    return note, cells


def test_a_schedule_that_is_lost_with_slices_is_worse(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = (run(2.0), run(1.0, SLICED), run(1.0), run(None, SLICED))
    note, (_, lost) = note_and_rows(monkeypatch, capsys, *runs)
    assert "offered in 2 of 2 rows; in 2 of these" in note
    assert "worse by more than 0.1 % in 1" in note
    assert lost[5:8] == ["1 J", "–", "inf"]


def test_a_command_that_fails_is_shown_and_counted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = CommandRun(None, 1.0, 1, "error: the engine failed")
    runs = (run(2.0), run(1.0, SLICED), run(1.0), broken)
    note, (_, failed) = note_and_rows(monkeypatch, capsys, *runs)
    assert note.endswith("A command failed in 1 of 2 rows.")
    assert failed[5:8] == ["1 J", "failed: error: the engine failed", "–"]


def test_a_gap_is_narrower_where_a_cheaper_schedule_has_a_lower_bound(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cheaper = run(1.25, {**SLICED, "energy_j": 1.25})
    runs = (run(2.0), cheaper, run(2.0), run(4.0, SLICED))
    note, (narrower, wider) = note_and_rows(monkeypatch, capsys, *runs)
    assert narrower[11:13] == ["50.0 %", "20.0 %"]
    assert wider[11:13] == ["50.0 %", "75.0 %"]
    assert "the gap wider by more than 0.1 % of the energy in 1," in note
