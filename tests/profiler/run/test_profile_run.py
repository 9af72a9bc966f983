"""Profiles of this computer: their content, and that finished windows are kept and not repeated."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from devices.description import DeviceDescription
from devices.documents.document import DocumentError, dump_yaml, read_yaml
from devices.errors import (
    BoardCommandFailed,
    BoardUnreachable,
    MeasurementInvalid,
    SetupMissing,
)
from devices.operation import OpSpec
from devices.plan import ExecutionPlan
from devices.profile import DeviceProfile, Interval, MatmulComparison, MeterRecord
from profiler.boards.base import BoardFacts, RebootError
from profiler.boards.posix import PosixBoard
from profiler.building.toolchain import BuiltHarness, HarnessBuilder
from profiler.meters.base import Reading, Void
from profiler.opening.meters import open_board_meter
from profiler.run.evaluate import PREEMPTION_LIMIT
from profiler.run.options import ProfileOptions
from profiler.run.run import ProgressEvent, choose_run_directory, profile_device
from profiler.run.table import TrialTable
from profiler.run.trials import HarnessRun, RunDirectory, Trial
from tests.support.boards.measuring import (
    LARGE,
    SMALL,
    UPDATE,
    Mishaps,
    Signal,
    StandInMeter,
    describe,
    ina226_tree,
    tiny_step,
)

pytestmark = pytest.mark.slow  # every profile takes seconds

SPECS = (SMALL, LARGE, UPDATE)
QUICK = ProfileOptions(
    blocks=3, min_window_s=0.002, storage=False, step_windows=1, idle_s=0.005, poll_interval_s=0.05
)

COMPARISON = MatmulComparison(
    library="a BLAS",
    rounds=9,
    in_tree_s=Interval.exact(1e-3),
    cblas_s=Interval.exact(2e-3),
    ratio=Interval.exact(2.0),
)


def profile(
    directory: Path,
    description: DeviceDescription | None = None,
    options: ProfileOptions = QUICK,
    specs: tuple[OpSpec, ...] = SPECS,
    step: ExecutionPlan | None = None,
    **rest: Any,
) -> DeviceProfile:
    return profile_device(description or describe(), specs, step, options, directory, **rest)


def harness_runs(directory: Path) -> list[HarnessRun]:
    return RunDirectory(directory).harness_runs()


def finished_windows(directory: Path) -> Counter[tuple[int, str]]:
    """Number of valid trials by block and window."""
    return Counter(
        (harness_run.header.block, trial.window)
        for harness_run in harness_runs(directory)
        for trial in harness_run.trials
        if trial.void is None
    )


# --- content of a profile ---------------------------------------------------------------------


@pytest.mark.usefixtures("prebuilt")
def test_every_distinct_operation_is_measured_warm_and_cold(tmp_path: Path) -> None:
    found = profile(tmp_path, specs=(*SPECS, SMALL), step=tiny_step())
    expected = {*SPECS, *(op.spec for op in tiny_step().computes)}
    assert set(found.by_spec) == expected
    assert len(found.operations) == len(expected)
    for operation in found.operations:
        for cost in (operation.warm, operation.cold):
            assert cost.trials == 3
            assert 0 < cost.time_s.low <= cost.time_s.median <= cost.time_s.high
            assert cost.energy_j is None
    large, small = found.by_spec[LARGE], found.by_spec[SMALL]
    assert large.warm.time_s.median > 10 * small.warm.time_s.median
    assert large.cold.time_s.median > 10 * small.cold.time_s.median


@pytest.mark.usefixtures("prebuilt")
def test_the_profile_records_board_build_and_notes(prebuilt: BuiltHarness, tmp_path: Path) -> None:
    found = profile(tmp_path / "run")
    assert found.build == prebuilt.record
    assert found.name == "bench"
    assert found.board.memory_bytes > 0
    assert found.board.kernel is not None
    assert any("No energy" in note for note in found.notes)
    (unvaried,) = (note for note in found.notes if note.startswith("Intervals cover"))
    assert "between 3 blocks" in unvaried
    assert "Not varied: the boot, the hour" in unvaried
    path = tmp_path / "profile.yaml"
    path.write_text(dump_yaml(found))
    assert read_yaml(path, DeviceProfile) == found


@pytest.mark.usefixtures("prebuilt")
def test_a_whole_step_is_compared_with_the_sum_of_its_operations(tmp_path: Path) -> None:
    step = tiny_step()
    found = profile(tmp_path, specs=(), step=step)
    assert found.additivity is not None
    assert found.additivity.model == step.name
    warm = sum(found.by_spec[op.spec].warm.time_s.median for op in step.computes)
    assert found.additivity.sum_warm_s == pytest.approx(warm)
    assert found.additivity.step_s.median > 0
    warm_off = abs(math.log(found.additivity.ratio("warm")))
    cold_off = abs(math.log(found.additivity.ratio("cold")))
    assert found.cost_basis == ("warm" if warm_off < cold_off else "cold")


@pytest.mark.usefixtures("prebuilt")
def test_without_a_step_cold_costs_are_the_basis(tmp_path: Path) -> None:
    found = profile(tmp_path)
    assert (found.additivity, found.cost_basis) == (None, "cold")


@pytest.mark.usefixtures("prebuilt")
def test_nominal_power_gives_estimated_energies(tmp_path: Path) -> None:
    found = profile(tmp_path, describe(nominal_power_w=4.0))
    assert found.energy_source == "estimated"
    assert found.idle_power_w is None
    for operation in found.operations:
        for cost in (operation.warm, operation.cold):
            assert cost.energy_j is not None
            # Times exclude what other programs had of a window, and energies do not.
            power_w = cost.energy_j.median / cost.time_s.median
            assert 0.99 * 4.0 <= power_w <= 1.01 * 4.0 / (1 - PREEMPTION_LIMIT)


@pytest.mark.usefixtures("prebuilt")
def test_a_sensor_gives_measured_energies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # The machine may be busy, and samples late: a constant power needs only two of them.
    monkeypatch.setattr("profiler.run.evaluate.PREEMPTION_LIMIT", 0.8)
    monkeypatch.setattr("profiler.meters.trace.MAX_GAP_PERIODS", math.inf)
    monkeypatch.setattr("profiler.meters.trace.MIN_SAMPLES", 2)
    root = ina226_tree(tmp_path / "hwmon")
    meter = {"kind": "hwmon", "driver": "ina226", "channel": 1, "rate_hz": 100, "root": str(root)}
    with Signal(root / "hwmon3" / "power1_input", ["3000000"], hold_s=1.0):
        found = profile(tmp_path / "run", describe(meter=meter), specs=(SMALL,))
    assert found.energy_source == "measured"
    assert found.meter is not None
    assert found.meter.rate_hz == 100
    assert found.idle_power_w is not None
    assert found.idle_power_w.median == pytest.approx(3.0, rel=0.01)
    cost = found.by_spec[SMALL].warm
    assert cost.energy_j is not None
    assert 0.99 * 3.0 <= cost.energy_j.median / cost.time_s.median <= 1.01 * 3.0 / (1 - 0.8)
    assert list((tmp_path / "run").glob("*.samples"))


@pytest.mark.usefixtures("prebuilt")
def test_storage_costs_are_measured_within_the_byte_budget(tmp_path: Path) -> None:
    storage = tmp_path / "storage"
    options = ProfileOptions(
        blocks=2,
        min_window_s=0.002,
        step_windows=0,
        idle_s=0.005,
        poll_interval_s=0.05,
        storage_budget_bytes=96 << 20,
    )
    board = describe(storage={"medium": "disk", "path": str(storage)}, nominal_power_w=2.0)
    found = profile(tmp_path / "run", board, options, specs=(SMALL,))
    assert found.storage is not None
    assert (found.storage.medium, found.storage.path) == ("disk", str(storage))
    assert "O_D" in found.storage.method
    for cost in (found.storage.read, found.storage.write):
        assert cost.fixed_s + cost.per_page_s > 0
        assert cost.per_page_j == pytest.approx(2.0 * cost.per_page_s, rel=0.05, abs=1e-9)
        assert [point.bytes for point in cost.sweep] == sorted(
            {point.bytes for point in cost.sweep}
        )
        assert len(cost.sweep) >= 3
    written = sum(
        harness_run.header.written_bytes for harness_run in harness_runs(tmp_path / "run")
    )
    assert 0 < written <= options.storage_budget_bytes
    assert list(storage.iterdir()) == []
    assert any(
        trial.window.startswith("write-buffered")
        for harness_run in harness_runs(tmp_path / "run")
        for trial in harness_run.trials
    )


@pytest.mark.usefixtures("prebuilt")
def test_the_error_names_a_storage_path_that_cannot_be_used(tmp_path: Path) -> None:
    board = describe(storage={"medium": "disk", "path": "/proc/nowhere"})
    with pytest.raises(SetupMissing, match=r"storage\.path /proc/nowhere of bench"):
        profile(tmp_path, board, ProfileOptions())


@pytest.mark.usefixtures("prebuilt")
def test_progress_rises_to_one_and_estimates_the_time_left(tmp_path: Path) -> None:
    events: list[ProgressEvent] = []
    profile(tmp_path, on_progress=events.append)
    fractions = [event.fraction for event in events]
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1.0
    assert any(event.activity == "measuring block 2 of 3" for event in events)
    assert all(event.left_s is not None and event.left_s >= 0 for event in events if event.fraction)


def test_a_profile_compiles_the_harness_for_the_board(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))  # without objects
    events: list[ProgressEvent] = []
    found = profile(
        tmp_path,
        options=ProfileOptions(blocks=1, min_window_s=0.001, storage=False, poll_interval_s=0.05),
        specs=(SMALL,),
        on_progress=events.append,
    )
    assert found.build is not None
    assert found.build.matmul == "in-tree"
    assert any("compil" in event.activity for event in events)


# --- resuming ---------------------------------------------------------------------------------


@pytest.mark.usefixtures("prebuilt")
def test_a_finished_run_is_not_measured_again(mishaps: Mishaps, tmp_path: Path) -> None:
    first = profile(tmp_path)
    started = mishaps.started
    again = profile(tmp_path)
    assert mishaps.started == started == 3
    assert again.operations == first.operations


@pytest.mark.usefixtures("prebuilt")
def test_the_next_run_resumes_an_interrupted_one_or_else_starts_a_new_directory(
    tmp_path: Path,
) -> None:
    def interrupt(event: ProgressEvent) -> None:
        if event.activity.startswith("measuring block 2"):
            raise KeyboardInterrupt

    def directory(step: ExecutionPlan | None = None) -> Path:
        places = (tmp_path / "runs", tmp_path / "campaigns")
        return choose_run_directory(places, describe(), SPECS, step, QUICK)

    first = directory()
    with pytest.raises(KeyboardInterrupt):
        profile(first, on_progress=interrupt)
    assert directory() == first
    assert directory(tiny_step()) != first
    earlier = tmp_path / "campaigns" / first.name  # where runs were kept once
    earlier.parent.mkdir()
    first.rename(earlier)
    assert directory() == earlier
    found = profile(earlier)
    assert read_yaml(earlier / "profile.yaml", DeviceProfile) == found
    assert directory().parent == tmp_path / "runs"


def test_the_matrix_product_is_chosen_once_in_a_run(
    prebuilt: BuiltHarness, monkeypatch: pytest.MonkeyPatch, mishaps: Mishaps, tmp_path: Path
) -> None:
    """A resumed run and a rebooted board do not compare the matrix products again."""
    asked: list[str] = []
    put = HarnessBuilder.build

    def choose(builder: HarnessBuilder, *arguments: Any, **rest: Any) -> BuiltHarness:
        asked.append(builder._toolchain.matmul)
        built = put(builder, *arguments, **rest)
        return replace(built, matmul_comparison=COMPARISON) if asked[-1] == "auto" else built

    def cut(event: ProgressEvent) -> None:
        if event.activity.startswith("measuring block 2"):
            raise KeyboardInterrupt

    def reboot(_plan: int) -> None:
        if mishaps.boot_id is None:
            mishaps.boot_id = "another"
            raise BoardCommandFailed("connection closed")

    monkeypatch.setattr(HarnessBuilder, "build", choose)
    toolchain = describe().toolchain.model_copy(update={"matmul": "auto"})
    board = describe().model_copy(update={"toolchain": toolchain})
    with pytest.raises(KeyboardInterrupt):
        profile(tmp_path, board, on_progress=cut)
    mishaps.poll = reboot
    found = profile(tmp_path, board)
    assert asked == ["auto", "in-tree", "in-tree"]
    assert found.matmul_comparison == COMPARISON
    assert found.build == prebuilt.record


@pytest.mark.usefixtures("prebuilt")
def test_asking_for_more_blocks_adds_to_the_measured_ones(mishaps: Mishaps, tmp_path: Path) -> None:
    profile(tmp_path)
    more = profile(tmp_path, options=ProfileOptions(**{**vars(QUICK), "blocks": 4}))
    assert mishaps.started == 4
    assert more.by_spec[SMALL].warm.trials == 4


@pytest.mark.usefixtures("prebuilt")
def test_parts_of_the_blocks_are_measured_in_calls_of_their_own(
    mishaps: Mishaps, tmp_path: Path
) -> None:
    first = profile(tmp_path, blocks=range(1))
    assert mishaps.started == 1
    assert first.by_spec[SMALL].warm.trials == 1
    assert RunDirectory(tmp_path).profile() is None
    whole = profile(tmp_path, blocks=range(1, 3))
    assert mishaps.started == 3
    assert whole.by_spec[SMALL].warm.trials == 3
    assert RunDirectory(tmp_path).profile() == whole


@pytest.mark.usefixtures("prebuilt")
def test_a_run_goes_on_with_the_operations_that_it_has_begun_with(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also if the board has more memory later, or less."""
    options = replace(QUICK, leave_out=True)
    with monkeypatch.context() as patch:
        patch.setattr("profiler.run.run.fits", lambda spec, _: spec != LARGE)
        profile(tmp_path, options=options, blocks=range(1))
    found = profile(tmp_path, options=options)
    assert set(found.by_spec) == {SMALL, UPDATE}
    assert found.by_spec[SMALL].warm.trials == 3


@pytest.mark.usefixtures("prebuilt")
def test_ctrl_c_between_blocks_keeps_all_finished_windows(tmp_path: Path) -> None:
    def interrupt(event: ProgressEvent) -> None:
        if event.activity.startswith("measuring block 2"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        profile(tmp_path, on_progress=interrupt)
    before = finished_windows(tmp_path)
    kept = {path: path.read_bytes() for path in tmp_path.glob("block-00.*")}
    assert kept
    found = profile(tmp_path)
    after = finished_windows(tmp_path)
    assert all(path.read_bytes() == content for path, content in kept.items())
    assert before.keys() <= after.keys()
    assert set(after.values()) == {1}
    assert found.by_spec[LARGE].cold.trials == 3


@pytest.mark.usefixtures("prebuilt")
def test_ctrl_c_within_a_block_keeps_the_finished_windows(tmp_path: Path) -> None:
    long = ProfileOptions(**{**vars(QUICK), "blocks": 1, "min_window_s": 0.3})

    def interrupt(event: ProgressEvent) -> None:
        if event.activity.startswith("measuring") and event.fraction > 0.45:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        profile(tmp_path, options=long, on_progress=interrupt)
    before = finished_windows(tmp_path)
    (cut,) = harness_runs(tmp_path)
    assert cut.header.interrupted
    found = profile(tmp_path, options=long)
    assert before.keys() < finished_windows(tmp_path).keys()
    assert set(finished_windows(tmp_path).values()) == {1}
    assert found.by_spec[SMALL].warm.trials == 1


@pytest.mark.usefixtures("prebuilt")
def test_a_connection_that_stays_lost_keeps_the_finished_blocks(
    mishaps: Mishaps, tmp_path: Path
) -> None:
    def unreachable(plan: int) -> None:
        if plan == 1:
            raise BoardUnreachable("bench: the connection was lost and did not come back")

    mishaps.poll = unreachable
    with pytest.raises(BoardUnreachable):
        profile(tmp_path)
    mishaps.poll = lambda _plan: None
    profile(tmp_path)
    assert set(finished_windows(tmp_path).values()) == {1}
    assert mishaps.started == 4


def reboot_in(mishaps: Mishaps, number: int) -> Callable[[int], None]:
    """A poll that finds the board rebooted while the plan of this number runs."""

    def poll(plan: int) -> None:
        if plan == number:
            mishaps.boot_id = "another boot"
            raise BoardCommandFailed("bench: ended without an exit code")

    return poll


@pytest.mark.usefixtures("prebuilt")
def test_after_a_reboot_the_block_is_measured_again(mishaps: Mishaps, tmp_path: Path) -> None:
    mishaps.poll = reboot_in(mishaps, 1)
    found = profile(tmp_path)
    assert mishaps.started == 4
    assert found.by_spec[SMALL].cold.trials == 3


@pytest.mark.usefixtures("prebuilt")
def test_after_a_reboot_between_two_runs_the_block_is_measured_again(
    monkeypatch: pytest.MonkeyPatch, mishaps: Mishaps, tmp_path: Path
) -> None:
    """Linux numbers sensors at each boot: the old path may lead to another rail."""
    record = MeterRecord(kind="stand-in", detail="a sensor of the board", sync="none")
    meters: list[StandInMeter] = []

    def found(*_: object) -> StandInMeter:
        meters.append(StandInMeter(record, [Trace(0)]))
        return meters[-1]

    def asked(board: PosixBoard) -> BoardFacts:
        facts = ask(board)
        return replace(facts, boot_id=earlier.pop()) if earlier else facts

    ask, earlier = PosixBoard._ask, ["an earlier boot"]
    monkeypatch.setattr(PosixBoard, "_ask", asked)
    monkeypatch.setattr("profiler.opening.meters.open_board_meter", found)
    monkeypatch.setattr("profiler.run.evaluate.PREEMPTION_LIMIT", 2.0)  # the machine may be busy
    profile(tmp_path, options=replace(QUICK, blocks=1))
    aborted, whole = harness_runs(tmp_path)
    assert (aborted.header.boot_id, aborted.trials) == ("an earlier boot", ())
    assert whole.trials
    assert [meter.begun for meter in meters] == [1, 1]
    assert mishaps.started == 2


@pytest.mark.usefixtures("prebuilt")
def test_a_board_that_keeps_rebooting_is_an_error(mishaps: Mishaps, tmp_path: Path) -> None:
    def reboot(plan: int) -> None:
        mishaps.boot_id = f"boot {plan}"
        raise BoardCommandFailed("bench: ended without an exit code")

    mishaps.poll = reboot
    with pytest.raises(RebootError, match="rebooted while it was measuring; check its power"):
        profile(tmp_path)


@pytest.mark.usefixtures("prebuilt")
def test_a_failure_on_the_board_is_reported_with_its_message_and_window(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    root = ina226_tree(tmp_path / "hwmon")
    sensor = root / "hwmon3" / "power1_input"
    meter = {"kind": "hwmon", "driver": "ina226", "channel": 1, "root": str(root)}

    board = describe(meter=meter)

    def open_and_vanish(*arguments: Any) -> Any:
        found = open_board_meter(*arguments)
        sensor.unlink()
        return found

    monkeypatch.setattr("profiler.opening.meters.open_board_meter", open_and_vanish)
    with pytest.raises(
        BoardCommandFailed, match=r"code 4: .*power1_input: No such .*\(while measuring: idle"
    ):
        profile(tmp_path / "run", board)


# --- void windows -----------------------------------------------------------------------------


class Trace:
    """A power trace that is void for the first ``faults`` windows."""

    def __init__(self, faults: int) -> None:
        self.faults = faults
        self.response = None

    def steady_energy_j(self, start_ns: int, end_ns: int) -> Reading:
        return self.energy_j(start_ns, end_ns)

    def energy_j(self, start_ns: int, end_ns: int) -> Reading:
        self.faults -= 1
        return Void("samples were lost") if self.faults >= 0 else 3.0 * (end_ns - start_ns) / 1e9


def metered(monkeypatch: pytest.MonkeyPatch, *faults: int) -> StandInMeter:
    record = MeterRecord(kind="stand-in", detail="a meter on this computer", sync="none")
    meter = StandInMeter(record, [Trace(count) for count in faults])
    monkeypatch.setattr("profiler.opening.meters.open_board_meter", lambda *_: meter)
    monkeypatch.setattr("profiler.run.evaluate.PREEMPTION_LIMIT", 2.0)  # the machine may be busy
    return meter


@pytest.mark.usefixtures("prebuilt")
def test_void_windows_are_measured_again_and_counted(
    monkeypatch: pytest.MonkeyPatch, mishaps: Mishaps, tmp_path: Path
) -> None:
    meter = metered(monkeypatch, 3, 0)
    found = profile(tmp_path)
    again = harness_runs(tmp_path)[1]
    assert again.header.block == 0
    assert len(again.trials) == 3
    costs = [cost for op in found.operations for cost in (op.warm, op.cold)]
    assert {cost.trials for cost in costs} == {3}
    assert sum(cost.void_trials for cost in costs) >= 2
    assert any("3 void trials: samples were lost" in note for note in found.notes)
    assert any("How long a reading of the meter averages is not known" in n for n in found.notes)
    assert meter.begun == mishaps.started == 4
    assert meter.closed


@pytest.mark.usefixtures("prebuilt")
def test_the_meter_restarts_after_the_board_has_rebooted(
    monkeypatch: pytest.MonkeyPatch, mishaps: Mishaps, tmp_path: Path
) -> None:
    meter = metered(monkeypatch, 0)
    mishaps.poll = reboot_in(mishaps, 1)
    profile(tmp_path)
    assert meter.begun == mishaps.started == 4


@pytest.mark.usefixtures("prebuilt")
def test_a_sensor_of_a_board_that_has_rebooted_is_found_again(
    monkeypatch: pytest.MonkeyPatch, mishaps: Mishaps, tmp_path: Path
) -> None:
    """Linux numbers sensors at each boot: the old path may lead to another rail."""

    record = MeterRecord(kind="stand-in", detail="a sensor of the board", sync="none")
    meters: list[StandInMeter] = []

    def found(*_: object) -> StandInMeter:
        meters.append(StandInMeter(record, [Trace(0)]))
        return meters[-1]

    monkeypatch.setattr("profiler.opening.meters.open_board_meter", found)
    monkeypatch.setattr("profiler.run.evaluate.PREEMPTION_LIMIT", 2.0)  # the machine may be busy
    mishaps.poll = reboot_in(mishaps, 1)
    profile(tmp_path)
    assert [meter.begun for meter in meters] == [2, 2]
    assert all(meter.closed for meter in meters)


STORED = ProfileOptions(
    blocks=1, min_window_s=0.002, step_windows=0, idle_s=0.005, poll_interval_s=0.05
)


@pytest.mark.usefixtures("prebuilt")
def test_bytes_written_by_a_failed_block_count(mishaps: Mishaps, tmp_path: Path) -> None:
    mishaps.poll = reboot_in(mishaps, 0)
    board = describe(storage={"medium": "disk", "path": str(tmp_path / "storage")})
    profile(tmp_path / "run", board, STORED, specs=(SMALL,))
    aborted, whole = harness_runs(tmp_path / "run")
    assert (aborted.trials, aborted.header.interrupted) == ((), True)
    assert aborted.header.written_bytes == whole.header.written_bytes > 0


@pytest.mark.usefixtures("prebuilt")
def test_bytes_written_by_a_block_whose_meter_was_lost_count(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def lost(*_: object) -> Trace:
        raise BoardUnreachable("the instrument is gone")

    meter = metered(monkeypatch, 0)
    monkeypatch.setattr(meter, "finish", lost)
    board = describe(storage={"medium": "disk", "path": str(tmp_path / "storage")})
    with pytest.raises(BoardUnreachable, match="instrument is gone"):
        profile(tmp_path / "run", board, STORED, specs=(SMALL,))
    (kept,) = harness_runs(tmp_path / "run")
    assert kept.trials == ()
    assert kept.header.written_bytes > 0
    assert meter.closed


@pytest.mark.usefixtures("prebuilt")
def test_a_block_is_kept_when_the_board_is_lost_right_after_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[str] = []

    def throttled(board: PosixBoard) -> None:
        asked.append(board.name)
        if len(asked) == 2:
            raise BoardUnreachable("bench: the connection was lost and did not come back")

    monkeypatch.setattr(PosixBoard, "throttled", throttled)
    with pytest.raises(BoardUnreachable):
        profile(tmp_path)
    assert len(finished_windows(tmp_path)) == 2 + 2 * len(SPECS)


@pytest.mark.usefixtures("prebuilt")
def test_windows_that_stay_void_end_the_profile_and_name_the_operation(
    monkeypatch: pytest.MonkeyPatch, mishaps: Mishaps, tmp_path: Path
) -> None:
    metered(monkeypatch, 10_000)
    with pytest.raises(MeasurementInvalid) as invalid:
        profile(tmp_path, specs=(SMALL,))
    assert f"bench: warm {SMALL.key}: 0 valid trials of 3" in str(invalid.value)
    assert "samples were lost" in str(invalid.value)
    assert mishaps.started == 9

    metered(monkeypatch, 0)
    found = profile(tmp_path, specs=(SMALL,))
    assert found.by_spec[SMALL].warm.void_trials == 9


@pytest.mark.usefixtures("prebuilt", "mishaps")
def test_what_stays_void_is_left_out_where_a_profile_can_do_without(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As in a sweep of shapes, of which one exceeds a sensor's range."""
    valid = TrialTable.valid

    def beyond_the_range(table: TrialTable, label: str) -> dict[int, Trial]:
        return {} if LARGE.key in label else valid(table, label)

    monkeypatch.setattr(TrialTable, "valid", beyond_the_range)
    options = replace(QUICK, blocks=1, leave_out_void=True)
    found = profile(tmp_path, options=options)
    assert set(found.by_spec) == {SMALL, UPDATE}
    assert f"Left out, since too few trials were valid: {LARGE.key}." in found.notes
    with pytest.raises(MeasurementInvalid, match="0 valid trials of 1"):
        profile(tmp_path / "alone", specs=(LARGE,), options=options)


# --- runs that are refused --------------------------------------------------------------------


@pytest.mark.usefixtures("prebuilt")
def test_trials_of_another_description_are_not_continued(tmp_path: Path) -> None:
    profile(tmp_path)
    with pytest.raises(MeasurementInvalid, match="with another device description"):
        profile(tmp_path, describe(nominal_power_w=4.0))


@pytest.mark.usefixtures("prebuilt")
def test_a_damaged_file_of_trials_is_named_and_once_removed_measured_again(tmp_path: Path) -> None:
    profile(tmp_path)
    file = tmp_path / "block-01.sitting-0.jsonl"
    file.write_text(file.read_text()[:-30])
    with pytest.raises(DocumentError, match=r"block-01\.sitting-0\.jsonl"):
        profile(tmp_path)
    file.unlink()
    assert profile(tmp_path).by_spec[SMALL].warm.trials == 3


@pytest.mark.usefixtures("prebuilt")
def test_the_error_names_an_operation_too_large_for_the_board(tmp_path: Path) -> None:
    board = describe(memory={"ram_bytes": 1 << 20})
    with pytest.raises(MeasurementInvalid, match=r"relu.forward elements=262144 needs"):
        profile(tmp_path, board)
