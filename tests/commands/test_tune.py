"""What ``tune`` announces and prints; rounds are made up."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import cli
from devices.operation import OpSpec
from replay.costs.tune import Round, Tuned
from replay.directory import StoredRun
from replay.expectation import expected_step
from tests.support.graphs.profiles import made_up_profile
from tests.support.onboard.replays import measured_step, paged_chain, report_of

GRAPH, SCHEDULE = paged_chain()
PROFILE = made_up_profile([OpSpec.of("relu.forward", elements=64)])
WORDS = ("tune", "--device", "local", "--profile", "m4", "--model", "linear")


def a_round(number: int, power_w: float | None, source: str) -> Round:
    step = measured_step(expected_step(GRAPH, SCHEDULE), power_w=power_w)
    report = report_of(GRAPH, SCHEDULE, [step])
    report = report.model_copy(update={"measured_energy_source": source})
    return Round(number, StoredRun(Path(f"round-{number}"), report, SCHEDULE, GRAPH), PROFILE)


@pytest.fixture
def tune(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run the command with these rounds."""

    def run(rounds: Sequence[Round], *words: str) -> int:
        found = Tuned(tuple(rounds), converged=True)
        monkeypatch.setattr("replay.costs.tune.tune", lambda *_: found)
        return cli.main([*WORDS, "--results", str(tmp_path), *words])

    return run


def test_joules_of_rounds_state_their_source(tune: Any, capsys: pytest.CaptureFixture[str]) -> None:
    rounds = (
        a_round(1, 3.0, "estimated"),
        a_round(2, 4.0, "measured"),
        a_round(3, None, "measured"),
    )
    assert tune(rounds) == 0
    printed = capsys.readouterr()
    first, second, third = printed.out.splitlines()[1:4]
    assert first.endswith("J (estimated)")
    assert second.startswith("2 (best)")
    assert second.endswith("J (measured)")
    assert third.endswith("–")
    assert "least energy (measured); rounds that have no such joules" in printed.err
    assert "compared: 1, 3" in printed.err
    assert tune(rounds, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    sources = [each["measured_energy_source"] for each in document["rounds"]]
    assert sources == ["estimated", "measured", "measured"]
