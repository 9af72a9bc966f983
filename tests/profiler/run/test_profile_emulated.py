"""Profiles of emulated boards: complete ones, and ones that a reset, a kill or Ctrl-C cuts off."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from devices.description import DeviceDescription, load_description
from devices.errors import BoardUnreachable
from devices.operation import OpSpec
from devices.profile import DeviceProfile
from profiler import lab
from profiler.lab.running import RunningBoard
from profiler.run.options import ProfileOptions
from profiler.run.run import OnProgress, ProgressEvent, profile_device
from profiler.run.table import TrialTable
from profiler.run.trials import RunDirectory
from profiler.script.windows import OpWindow
from profiler.transports.deadline import Deadline
from profiler.transports.serial import wire

pytestmark = [pytest.mark.emulated, pytest.mark.usefixtures("own_boards")]

SPECS = (
    OpSpec.of("relu.forward", elements=432),
    OpSpec.of("sgd.update", elements=432),
    OpSpec.of("relu.forward", elements=864),
)
QUICK = ProfileOptions(blocks=3, min_window_s=0.002, storage=False, idle_s=0.005)
# A block takes this computer two seconds, which leaves time to disturb the board in one.
SLOW = ProfileOptions(blocks=2, min_window_s=10.0, storage=False, idle_s=0.005)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[RunningBoard]]:
    """Boards that profiles start; all of them must have ended at the end of the test."""
    boards: list[RunningBoard] = []
    start = lab.start

    def watched(
        description: DeviceDescription, progress: Callable[[str], None], *plans: Any
    ) -> RunningBoard:
        boards.append(start(description, progress, *plans))
        return boards[-1]

    monkeypatch.setattr(lab, "start", watched)
    yield boards
    assert not any(board.is_alive for board in boards)
    assert not any(Path(f"/proc/{board.pid}").exists() for board in boards)


def profile(
    directory: Path,
    board: str = "emulated-m4f",
    options: ProfileOptions = QUICK,
    on_progress: OnProgress = lambda _event: None,
    **changes: Any,
) -> DeviceProfile:
    described = load_description(board).model_copy(update=changes)
    return profile_device(described, SPECS, None, options, directory, on_progress)


def once_in_block(number: int, act: Callable[[], None]) -> OnProgress:
    """Listener that calls ``act`` once, while a block is being measured."""
    done: list[ProgressEvent] = []

    def listen(event: ProgressEvent) -> None:
        if event.activity.startswith(f"measuring block {number} ") and not done:
            done.append(event)
            act()
        if event.activity == "measured":
            assert done

    return listen


def windows(directory: Path) -> list[tuple[int, str]]:
    """Block and label of every trial, in the order in which they were measured."""
    return [
        (harness_run.header.block, trial.window)
        for harness_run in RunDirectory(directory).harness_runs()
        for trial in harness_run.trials
    ]


def test_the_profile_of_an_emulated_microcontroller_is_marked_as_emulated(
    started: list[RunningBoard], tmp_path: Path
) -> None:
    found = profile(tmp_path)
    assert found.energy_source == "emulated"
    assert found.meter is not None
    assert found.meter.kind == "nominal"
    assert found.board.memory_bytes == 4 << 20
    assert found.board.kernel is not None
    assert found.board.kernel.startswith("firmware ")
    assert set(found.by_spec) == set(SPECS)
    short, _, long = (found.by_spec[spec].warm for spec in SPECS)
    assert long.time_s.median == pytest.approx(2 * short.time_s.median, rel=0.05)
    for cost in (short, long):
        # Two blocks: the half width is 15.6 times their spread (t of one degree of freedom, 12.7,
        # times √1.5).
        assert cost.time_s.high == pytest.approx(cost.time_s.low, rel=1e-2)
        assert cost.energy_j is not None
    table = TrialTable.of(RunDirectory(tmp_path).harness_runs())
    for spec in SPECS:
        times_s = table.values(OpWindow(spec, "warm").label, lambda trial: trial.time_s)
        assert len(times_s) == QUICK.blocks
        assert max(times_s) == pytest.approx(min(times_s), rel=1e-3)
    assert any("no data cache" in note for note in found.notes)


def test_erasing_has_a_cost_of_its_own(started: list[RunningBoard], tmp_path: Path) -> None:
    options = ProfileOptions(
        blocks=1, min_window_s=0.002, idle_s=0.005, storage_budget_bytes=2 << 20
    )
    found = profile(tmp_path, "emulated-m0-flash", options, nominal_power_w=None)
    assert found.energy_source == "emulated"  # its times are emulated; it has no energies
    storage = found.storage
    assert storage is not None
    assert storage.erase is not None
    assert storage.erase_block_bytes == 1024
    written_s, _ = storage.write_cost(1024)
    pages = 1024 // storage.page_bytes
    assert written_s > storage.write.fixed_s + storage.write.per_page_s * pages
    assert storage.read.per_page_s < storage.write.per_page_s


def test_after_a_reset_in_a_block_the_block_is_measured_again(
    started: list[RunningBoard], tmp_path: Path
) -> None:
    found = profile(
        tmp_path, options=SLOW, on_progress=once_in_block(2, lambda: started[0].reset())
    )
    assert len(started) == 1
    assert (
        len({harness_run.header.boot_id for harness_run in RunDirectory(tmp_path).harness_runs()})
        == 2
    )
    assert all(cost.warm.trials == SLOW.blocks for cost in found.operations)


def test_after_a_board_is_killed_the_next_run_continues_with_finished_blocks(
    started: list[RunningBoard], tmp_path: Path
) -> None:
    def kill() -> None:
        started[0].kill()
        # It does not come back, so that a long wait for the line is of no use.
        patch.setattr(wire, "Deadline", lambda limit_s: Deadline(min(limit_s, 3.0)))

    with (
        pytest.MonkeyPatch.context() as patch,
        pytest.raises(BoardUnreachable, match="emulated-m4f"),
    ):
        profile(tmp_path, options=SLOW, on_progress=once_in_block(2, kill))
    kept = windows(tmp_path)
    assert {block for block, _ in kept} >= {0}
    found = profile(tmp_path, options=SLOW)
    assert windows(tmp_path)[: len(kept)] == kept
    assert all(cost.warm.trials == SLOW.blocks for cost in found.operations)
    first_block = [label for block, label in windows(tmp_path) if block == 0]
    assert len(first_block) == len(set(first_block))


def test_an_interrupted_profile_leaves_no_emulator(
    started: list[RunningBoard], tmp_path: Path
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        profile(tmp_path, options=SLOW, on_progress=once_in_block(2, interrupt))
    assert {block for block, _ in windows(tmp_path)} >= {0}
    with pytest.raises(ProcessLookupError):
        os.kill(started[0].pid, 0)
