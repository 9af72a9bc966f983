"""The script of a replay."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from devices.errors import RequestRefused
from devices.plan import ExecutionPlan
from profiler.building.sources import ONBOARD
from replay.running import script
from replay.running.script import ReplayTarget, training_script
from tests.profiler.run.test_measuring import SETTINGS

TARGET = ReplayTarget(0, ExecutionPlan("empty", 4, {}, (), ()), None, SETTINGS, is_firmware=False)


def text_of(target: ReplayTarget, steps: int) -> str:
    return training_script(target, {}, [{}], steps=steps, watched=False).text


def test_more_steps_than_a_board_reads_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    enough = len(text_of(TARGET, 50))
    monkeypatch.setattr(script, "MOST_SCRIPT_BYTES", enough + 1)
    assert text_of(TARGET, 50)
    with pytest.raises(RequestRefused, match="a board reads less than") as refused:
        text_of(TARGET, 51)
    assert refused.value.remedy == "run fewer steps at a time"
    # Firmware gets its script line by line.
    assert text_of(replace(TARGET, is_firmware=True), 51)


def test_the_limit_is_that_of_the_harness() -> None:
    source = (ONBOARD / "harness" / "linux" / "linux_main.c").read_text()
    (mebibytes,) = re.findall(r"#define MOST_PLAN_BYTES \((\d+)u << 20\)", source)
    assert int(mebibytes) << 20 == script.MOST_SCRIPT_BYTES
