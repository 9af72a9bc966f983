"""Governor and frequency are held while a board is measured, and restored in any case."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from devices.description import Conditions
from devices.errors import MeasurementInvalid
from profiler.boards import pinning
from profiler.boards.pinning import NOT_HELD, Pinning
from profiler.boards.posix import PosixBoard
from profiler.transports.local import LocalTransport
from tests.support.boards.measuring import describe, write_tree
from tests.support.boards.processes import wait_until


@pytest.fixture
def cpufreq(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two clusters with the kernel's files, which accept any value."""
    files: dict[str, str | int] = {}
    for policy, most in (("policy0", 1800000), ("policy4", 2400000)):
        files |= {
            f"{policy}/scaling_governor": "ondemand",
            f"{policy}/scaling_available_governors": "ondemand performance",
            f"{policy}/scaling_min_freq": 600000,
            f"{policy}/scaling_max_freq": most,
            f"{policy}/cpuinfo_min_freq": 300000,
            f"{policy}/cpuinfo_max_freq": most,
        }
    root = write_tree(tmp_path / "cpufreq", files)
    monkeypatch.setattr(pinning, "_CPUFREQ", str(root))
    return root


def state(root: Path) -> dict[str, str]:
    return {
        str(file.relative_to(root)): file.read_text() for file in root.rglob("*") if file.is_file()
    }


def test_governor_and_frequency_are_held_until_the_session_closes(cpufreq: Path) -> None:
    before = state(cpufreq)
    with LocalTransport() as transport:
        Pinning(transport, Conditions(governor="performance", frequency_hz=1.5e9)).hold()
        held = state(cpufreq)
        for policy in ("policy0", "policy4"):
            assert held[f"{policy}/scaling_governor"].strip() == "performance"
            assert held[f"{policy}/scaling_min_freq"].strip() == "1500000"
            assert held[f"{policy}/scaling_max_freq"].strip() == "1500000"
    wait_until(lambda: state(cpufreq) == before)


@pytest.mark.slow
def test_a_session_whose_marker_file_vanishes_counts_as_ended(cpufreq: Path) -> None:
    before = state(cpufreq)
    transport = LocalTransport()
    transport.connect()
    try:
        Pinning(transport, Conditions(governor="performance")).hold()
        assert state(cpufreq) != before
        (Path(transport.directory) / ".joulewright" / "seen").unlink()
        wait_until(lambda: state(cpufreq) == before)
    finally:
        transport.close()


@pytest.mark.slow
@pytest.mark.usefixtures("prebuilt")
def test_what_was_measured_while_nothing_was_held_does_not_count(cpufreq: Path) -> None:
    before = state(cpufreq)
    plan = "joulewright-plan 1\narena bytes=4096\nidle id=0 duration_ns=1000000\nend\n"
    conditions = {"governor": "performance", "frequency_hz": 1.5e9}
    with PosixBoard(describe(conditions=conditions), LocalTransport(), 0.05) as board:
        board.prepare(lambda _what: None)
        held = state(cpufreq)

        def silent_for_long(_seconds: float) -> None:
            if state(cpufreq) == held:
                seen = Path(board.transport.directory) / ".joulewright" / "seen"
                os.utime(seen, (time.time() - 660, time.time() - 660))
                wait_until(lambda: state(cpufreq) == before)

        outcome = board.run_plan(plan, expected_s=0.1, wait=silent_for_long)
        assert (outcome.cut, outcome.hindrance) == (None, NOT_HELD)
        assert "window id=0" in outcome.results  # of a training, the values count
        again = board.run_plan(plan, expected_s=0.1, wait=lambda _seconds: None)
        assert (state(cpufreq), again.cut, again.hindrance) == (held, None, None)
    wait_until(lambda: state(cpufreq) == before)


def test_only_described_settings_are_changed(cpufreq: Path) -> None:
    before = state(cpufreq)
    with LocalTransport() as transport:
        Pinning(transport, Conditions()).hold()
        assert state(cpufreq) == before
        Pinning(transport, Conditions(governor="performance")).hold()
        assert state(cpufreq)["policy0/scaling_max_freq"] == before["policy0/scaling_max_freq"]


def test_after_a_setting_fails_all_are_restored(cpufreq: Path) -> None:
    (cpufreq / "policy4" / "scaling_governor").unlink()
    (cpufreq / "policy4" / "scaling_governor").symlink_to("/proc/sys/kernel/ostype")  # read-only
    before = state(cpufreq)
    with (
        LocalTransport() as transport,
        pytest.raises(MeasurementInvalid, match=r"policy4: the governor stays Linux .*ondemand"),
    ):
        Pinning(transport, Conditions(governor="performance")).hold()
    assert state(cpufreq) == before


def test_a_kernel_without_frequency_scaling_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pinning, "_CPUFREQ", str(tmp_path / "none"))
    with (
        LocalTransport() as transport,
        pytest.raises(MeasurementInvalid, match="no frequency scaling below"),
    ):
        Pinning(transport, Conditions(governor="performance")).hold()
