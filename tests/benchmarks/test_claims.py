"""The benchmark of claims resumes from its record, also with a later release."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.claims import __main__ as claims


def test_the_record_resumes_and_names_every_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    record = tmp_path / "claims.json"
    for release, problems in (("one", 2), ("one", 3), ("two", 5), ("two", 5)):
        monkeypatch.setattr(claims, "release", lambda name=release: name)
        words = ["claims", "--problems", str(problems), "--record", str(record)]
        monkeypatch.setattr("sys.argv", words)
        claims.main()
    page = capsys.readouterr().out.rpartition("# Claims against exhaustive search")[2]
    stretches = [
        line.split() for line in page.splitlines() if line.startswith(("| 0 to", "| 3 to"))
    ]
    assert stretches == [
        ["|", "0", "to", "2", "|", "one", "|"],
        ["|", "3", "to", "4", "|", "two", "|"],
    ]
    assert "| none " in page
