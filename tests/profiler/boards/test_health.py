"""Throttling and temperature of a board while it is measured, window by window."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from devices.description import Conditions, Cooldown
from profiler.building.toolchain import BuiltHarness
from profiler.run.evaluate import evaluate
from profiler.run.options import ProfileOptions
from profiler.run.run import ProgressEvent, profile_device
from profiler.run.trials import RunDirectory
from profiler.script.records import Health, WindowRecord, parse_results
from profiler.script.windows import IdleWindow
from tests.support.boards.measuring import SMALL, Mishaps, describe, run_harness, write_tree

IDLE = "idle id=0 duration_ns=1000000\nidle id=1 duration_ns=1000000\n"
QUICK = ProfileOptions(
    blocks=1, min_window_s=0.001, storage=False, idle_s=0.005, poll_interval_s=0.02
)


def record(id_: int, throttled: int, cooling: int = -1) -> WindowRecord:
    return WindowRecord(
        id=id_,
        executions=1,
        start_ns=10 * id_,
        end_ns=10 * id_ + 5,
        tail_end_ns=10 * id_ + 5,
        running_ns=5,
        frequency_before_khz=0,
        frequency_after_khz=0,
        temperature_mc=0,
        tries=1,
        throttled=throttled,
        cooling=cooling,
    )


def voids(*records: WindowRecord, start: Health | None = None) -> list[str | None]:
    windows = [IdleWindow("before")] * len(records)
    trials = evaluate(
        records, windows, None, is_measured=False, start=start, throttled=(0, 0x10001)
    )
    return [trial.void for trial in trials]


def test_only_the_window_in_which_the_voltage_fell_is_void() -> None:
    start = Health("b", 0, 0, throttled=0)
    found = voids(record(0, 0), record(1, 0x10000), record(2, 0x10000), start=start)
    assert found == [None, "the board reports under-voltage", None]


def test_throttling_before_the_block_voids_nothing() -> None:
    start = Health("b", 0, 0, throttled=0x50000)
    assert voids(record(0, 0x50000), record(1, 0x50000), start=start) == [None, None]


def test_a_processor_that_is_being_cooled_voids_the_windows_around() -> None:
    start = Health("b", 0, 0, throttled=0, cooling=0)
    found = voids(record(0, 0, 0), record(1, 0, 2), record(2, 0, 0), record(3, 0, 0), start=start)
    reason = "the processor was slowed down to cool it"
    assert found == [None, reason, reason, None]


def test_without_throttling_in_the_records_the_block_is_judged_by_its_ends() -> None:
    (found,) = voids(record(0, -1))
    assert found == "the board reports under-voltage"


@pytest.mark.slow
def test_the_harness_records_throttling_temperature_and_cooling(
    compiled: tuple[Path, BuiltHarness], tmp_path: Path
) -> None:
    write_tree(
        tmp_path / "sys",
        {
            "devices/platform/soc/soc:firmware/get_throttled": "50005",
            "class/thermal/thermal_zone0/type": "cpu-thermal",
            "class/thermal/thermal_zone0/temp": 41000,
            "class/thermal/thermal_zone1/type": "gpu-thermal",  # it is switched off
            "class/thermal/thermal_zone2/type": "soc-thermal",
            "class/thermal/thermal_zone2/temp": 67500,
            "class/thermal/cooling_device0/type": "cpufreq-cpu0",
            "class/thermal/cooling_device0/cur_state": 3,
            "class/thermal/cooling_device1/type": "pwm-fan",
            "class/thermal/cooling_device1/cur_state": 4,
        },
    )
    plan = f"joulewright-plan 1\narena bytes=64\n{IDLE}end\n"
    code, text, errors = run_harness(compiled[0], tmp_path, plan, "--sysfs", "sys")
    assert (code, errors) == (0, "")
    results = parse_results(text)
    assert results.start is not None
    for each in (*results.windows, results.start):
        assert (each.throttled, each.temperature_mc, each.cooling) == (0x50005, 67500, 3)


@pytest.mark.slow
@pytest.mark.usefixtures("prebuilt")
def test_a_hot_board_cools_down_before_every_block(
    monkeypatch: pytest.MonkeyPatch, mishaps: Mishaps, tmp_path: Path
) -> None:
    temperatures = itertools.chain([80.0, 70.0], itertools.repeat(50.0))
    monkeypatch.setattr(
        "profiler.boards.posix.PosixBoard.temperature_c", lambda _board: next(temperatures)
    )
    monkeypatch.setattr("profiler.boards.observed_run._COOLING_POLL_S", 0.01)
    board = describe(conditions={"cooldown": {"below_c": 60.0, "limit_s": 30.0}})
    said: list[str] = []

    def listen(event: ProgressEvent) -> None:
        said.append(event.activity)

    profile_device(board, [SMALL], None, QUICK, tmp_path, listen)
    assert "cooling down: 80 °C, until 60 °C" in said
    (harness_run,) = RunDirectory(tmp_path).harness_runs()
    assert harness_run.header.cooled_s > 0


def test_a_cooldown_needs_a_temperature() -> None:
    with pytest.raises(ValueError, match="below_c"):
        Conditions(cooldown=Cooldown(below_c=0.0))
