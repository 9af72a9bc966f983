"""The benchmark of claims: its record, and problems that are too large in part."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.claims import __main__ as claims
from benchmarks.claims.oracle import TooLarge
from devices.documents.document import read_json
from solver.pools import Pool
from tests.support.boards.processes import eventually, marked, started_as_by_a_shell


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


@contextmanager
def threads(count: int) -> Iterator[Pool]:
    """A pool whose tasks run in this process."""
    with ThreadPoolExecutor(count) as executor:
        yield Pool(executor, lambda: count)


def test_what_is_refuted_before_a_claim_is_too_large_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oracle for another budget or order may be too large where that of the problem is not."""

    def refutations(*_: object) -> Iterator[str]:
        yield "optimal at 9 J, the least is 5 J"
        raise TooLarge

    monkeypatch.setattr(claims, "refutations", refutations)
    monkeypatch.setattr("sys.argv", ["claims", "--problems", "1", "--record", str(tmp_path / "c")])
    # A process of the pool would have refutations of its own.
    monkeypatch.setattr(claims, "local_pool", threads)
    claims.main()
    record = read_json(tmp_path / "c", claims.ClaimsRecord)
    assert [each.what for each in record.refuted] == ["optimal at 9 J, the least is 5 J"]
    tallies = record.kinds.values()
    assert sum(tally.in_part for tally in tallies) == 1
    assert sum(tally.too_large for tally in tallies) == 0
    assert sum(tally.with_schedule for tally in tallies) == 1


@pytest.mark.slow
def test_a_benchmark_that_is_ended_leaves_no_process(tmp_path: Path) -> None:
    record = tmp_path / "claims.json"
    words = ["--problems", "2000", "--processes", "2", "--record", str(record)]
    with started_as_by_a_shell("-m", "benchmarks.claims", *words) as (process, mark):
        assert eventually(lambda: len(marked(mark)) > 2)
        process.terminate()
        process.wait()
        assert eventually(lambda: not marked(mark))
