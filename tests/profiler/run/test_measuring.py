"""From records to costs: void windows, raw trials, intervals of medians, and planned windows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from devices.documents.document import DocumentError
from devices.errors import MeasurementInvalid, RequestRefused
from devices.operation import SIGNATURES, OpSpec
from devices.profile import BoardIdentity, Build, Interval, MeterRecord, SweepPoint
from profiler.meters.base import Void
from profiler.run.options import ProfileOptions
from profiler.run.preview import options_with, plan_profile
from profiler.run.storage_fit import fit_affine, fit_page_cost
from profiler.run.table import TrialTable
from profiler.run.trials import HarnessRun, HarnessRunHeader, RunDirectory, RunMetadata
from profiler.script.records import boot_of, parse_results, parse_samples
from profiler.script.transfers import TransferWindow
from profiler.script.windows import BlockContent, IdleWindow, OpWindow, StepWindow, Window
from profiler.script.writer import Memory, Settings, cold_copies, write_plan
from profiler.statistics import median_interval
from tests.support.boards.measuring import LARGE, SMALL, UPDATE, describe, tiny_step
from tests.support.boards.windows import SteadyMeter, trial

MIB = 1 << 20

# --- confidence -------------------------------------------------------------------------------


def test_more_blocks_give_a_narrower_interval() -> None:
    random = np.random.default_rng(1)
    values = list(random.lognormal(0.0, 0.2, size=60))
    few, many = median_interval(values[:6]), median_interval(values)
    assert many.high - many.low < few.high - few.low


@given(st.lists(st.floats(1e-9, 1e3), min_size=1, max_size=9))
@settings(max_examples=25, derandomize=True)
@example([1.0, 640.0119542127753])
def test_an_interval_is_within_the_range_of_values_and_does_not_depend_on_their_order(
    values: list[float],
) -> None:
    interval = median_interval(values)
    assert min(values) <= interval.low <= interval.median <= interval.high <= max(values)
    assert interval == median_interval(values[::-1])


def test_one_block_gives_a_figure_without_an_interval() -> None:
    assert median_interval([3.0]) == Interval.exact(3.0)


# --- storage ----------------------------------------------------------------------------------


def sweep(fixed_s: float, per_page_s: float, noise: float = 0.0) -> list[SweepPoint]:
    random = np.random.default_rng(3)
    return [
        SweepPoint(
            bytes=4096 << k,
            time_s=Interval.exact(
                (fixed_s + per_page_s * (1 << k)) * (1 + noise * random.uniform(-1, 1))
            ),
        )
        for k in range(11)
    ]


@settings(derandomize=True)
@given(fixed_s=st.floats(1e-5, 1e-1), ratio=st.floats(1e-3, 10.0))
def test_a_fit_recovers_the_cost_of_a_page(fixed_s: float, ratio: float) -> None:
    fit = fit_page_cost(sweep(fixed_s, ratio * fixed_s), 4096)
    assert fit.fixed_s == pytest.approx(fixed_s, rel=1e-6)
    assert fit.per_page_s == pytest.approx(ratio * fixed_s, rel=1e-6)
    assert fit.fit_error < 1e-6


def test_a_fit_of_noisy_transfers_states_its_error() -> None:
    fit = fit_page_cost(sweep(1e-3, 1e-4, noise=0.05), 4096)
    assert fit.fixed_s == pytest.approx(1e-3, rel=0.1)
    assert fit.per_page_s == pytest.approx(1e-4, rel=0.1)
    assert 0.005 < fit.fit_error < 0.05


def test_no_part_of_a_fitted_cost_is_negative() -> None:
    fit = fit_affine([1, 2, 4, 8], [1.0, 2.2, 5.0, 12.0])
    assert fit.fixed == 0.0
    assert fit.per_page > 0.0


def test_the_energy_of_a_page_is_fitted_from_the_sizes_that_have_one() -> None:
    points = [
        point.model_copy(update={"energy_j": point.time_s.scaled(2.5) if index > 3 else None})
        for index, point in enumerate(sweep(1e-3, 1e-4))
    ]
    fit = fit_page_cost(points, 4096)
    assert fit.fixed_j == pytest.approx(2.5e-3)
    assert fit.per_page_j == pytest.approx(2.5e-4)
    assert fit_page_cost(sweep(1e-3, 1e-4), 4096).fixed_j is None


# --- void windows -----------------------------------------------------------------------------


def test_an_undisturbed_window_is_valid() -> None:
    found = trial(frequency_before_khz=1_500_000, frequency_after_khz=1_480_000)
    assert found.void is None
    assert found.time_s == pytest.approx(1e-4)


def test_a_change_of_frequency_beyond_two_percent_voids_a_window() -> None:
    found = trial(frequency_before_khz=1_500_000, frequency_after_khz=1_400_000)
    assert found.void == "the frequency went from 1500000 to 1400000 kHz"


@pytest.mark.parametrize(
    ("bits", "reason"),
    [
        ((0x0, 0x0), None),
        ((0x50000, 0x50000), None),  # occurred before the block
        ((0x1, 0x10000), "the board reports under-voltage"),
        ((0x0, 0x40004), "the board reports throttled"),
        ((0x10000, 0x30000), "the board reports frequency capped"),
    ],
)
def test_throttling_during_a_block_voids_its_windows(
    bits: tuple[int, int], reason: str | None
) -> None:
    assert trial(throttled=bits).void == reason


def test_a_window_with_a_void_energy_is_void_unless_it_is_a_transfer() -> None:
    lost = SteadyMeter(Void("samples were lost"))
    assert trial(meter=lost).void == "samples were lost"
    transfer = trial(TransferWindow("write", 4096, 1), meter=lost)
    assert (transfer.void, transfer.energy_j) == (None, None)


def test_preemption_does_not_count_as_time_and_voids_metered_windows() -> None:
    assert trial(running_ns=500_000, is_measured=False).time_s == pytest.approx(5e-5)
    assert trial(running_ns=500_000, is_measured=False).void is None
    metered = trial(meter=SteadyMeter(1.0), running_ns=500_000)
    assert metered.void == "other programs had the processor for 50% of the window"
    assert trial(IdleWindow("before"), meter=SteadyMeter(1.0), running_ns=500_000).void is None


def test_a_transfer_is_charged_with_the_tail_energy_above_idle() -> None:
    window = TransferWindow("write", 4096, 10)
    settled = trial(window, meter=SteadyMeter(0.03), tail_end_ns=12_000_000)
    assert settled.execution_energy_j(idle_power_w=2.0) == pytest.approx(0.001)


@pytest.mark.parametrize(
    ("window", "tail_end_ns", "is_steady"),
    [
        (OpWindow(SMALL, "warm"), 2_000_000, True),
        (IdleWindow("before"), 2_000_000, True),
        (TransferWindow("read", 4096, 1), 2_000_000, True),
        (TransferWindow("write", 4096, 1), 5_000_000, False),
        (StepWindow(0), 2_000_000, False),
    ],
)
def test_only_a_window_that_repeats_one_thing_has_a_steady_power(
    window: Window, tail_end_ns: int, is_steady: bool
) -> None:
    class Steady(SteadyMeter):
        def steady_energy_j(self, start_ns: int, end_ns: int) -> float:
            return 4.0

    found = trial(window, meter=Steady(1.0), tail_end_ns=tail_end_ns)
    assert found.energy_j == (4.0 if is_steady else 1.0)


@pytest.mark.parametrize(("remembered_s", "window_s"), [(None, 0.165), (0.07, 0.27), (0.0, 0.13)])
def test_windows_are_as_long_as_the_open_meter_needs(
    remembered_s: float | None, window_s: float
) -> None:
    meter = {"kind": "hwmon", "driver": "ina226", "channel": 1, "integration_s": 8.75e-3}
    description = describe(meter=meter)
    record = MeterRecord(kind="hwmon", detail="", sync="", remembered_s=remembered_s)
    found = options_with(record, description, ProfileOptions())
    assert found.min_window_s == found.settle_s == pytest.approx(window_s)


# --- records and raw trials -------------------------------------------------------------------

RECORDS = (
    "joulewright-results 1\n"
    "start boot_id=b clock_ns=5 steal_ms=0\n"
    "scratch direct=0\n"
    "window id=3 executions=7 start_ns=10 end_ns=30 tail_end_ns=40 running_ns=19"
    " frequency_before_khz=1 frequency_after_khz=2 temperature_mc=-3 tries=2\n"
    "end boot_id=b clock_ns=50 steal_ms=4\n"
)


def test_truncated_records_are_read_up_to_the_last_complete_line() -> None:
    whole = parse_results(RECORDS)
    assert whole.windows[0].executions == 7
    assert (whole.is_direct, whole.end is not None) == (False, True)
    for length in range(len(RECORDS)):
        part = parse_results(RECORDS[:length])
        assert part.windows == (whole.windows if length > RECORDS.index("end boot") - 1 else ())
        assert part.end is None


def test_the_boot_of_a_run_is_known_once_its_line_is_written() -> None:
    records = RECORDS.replace("boot_id=b ", "boot_id=a-boot ")
    known = {boot_of(records[:length]) for length in range(len(records) + 1)}
    assert known == {None, "a-boot"}
    assert boot_of(RECORDS.replace("boot_id=b ", "boot_id=- ")) is None


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("results 1", "results 9"),
        ("executions=7", "executions=x"),
        (" tries=2", ""),
        ("window", "widow"),
    ],
)
def test_malformed_records_are_refused(before: str, after: str) -> None:
    with pytest.raises(MeasurementInvalid):
        parse_results(RECORDS.replace(before, after, 1))


def test_truncated_samples_are_read_up_to_the_last_complete_line() -> None:
    found = parse_samples("100 1 2\n200 3 4\n30", files=2)
    assert found.times_ns.tolist() == [100, 200]
    assert found.values.tolist() == [[1, 2], [3, 4]]
    assert len(parse_samples("", files=2).times_ns) == 0
    with pytest.raises(MeasurementInvalid):
        parse_samples("100 1\n200\n", files=1)


def harness_run(block: int, number: int = 0) -> HarnessRun:
    return HarnessRun(
        header=HarnessRunHeader(
            block=block, sitting=number, started="2024-01-01", duration_s=1.0, boot_id="b"
        ),
        trials=(trial(), trial(IdleWindow("after"), meter=SteadyMeter(0.5))),
    )


def test_trials_are_read_back_unchanged_in_the_order_of_blocks(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    order = [(0, 0), (2, 0), (2, 1), (11, 0)]
    for block, number in reversed(order):
        directory.add(harness_run(block, number), samples="1 2\n")
    assert directory.harness_runs() == [harness_run(block, number) for block, number in order]
    assert (tmp_path / "block-11.sitting-0.samples").read_text() == "1 2\n"


@pytest.mark.parametrize("kept", [0, 0.3, 0.7, 0.99])
def test_a_truncated_file_of_trials_is_named_with_the_remedy(kept: float, tmp_path: Path) -> None:
    RunDirectory(tmp_path).add(harness_run(0), samples="")
    file = tmp_path / "block-00.sitting-0.jsonl"
    text = file.read_text()
    file.write_text(text[: int(kept * len(text))])
    with pytest.raises(DocumentError, match=r"block-00\.sitting-0\.jsonl.*damaged.*Remove it"):
        RunDirectory(tmp_path).harness_runs()


def test_a_file_of_trials_with_a_line_missing_or_a_wrong_value_is_named(tmp_path: Path) -> None:
    RunDirectory(tmp_path).add(harness_run(0), samples="")
    file = tmp_path / "block-00.sitting-0.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join([lines[0], *lines[2:]]))
    with pytest.raises(DocumentError, match="it holds 1 of 2 trials"):
        RunDirectory(tmp_path).harness_runs()
    file.write_text("".join([lines[0], lines[1].replace(":10,", ":-10,"), *lines[2:]]))
    with pytest.raises(DocumentError, match=r"line 2: executions: found -10"):
        RunDirectory(tmp_path).harness_runs()


METADATA: dict[str, Any] = {
    "description": {"name": "bench", "toolchain": {"flags": ["-O1"]}},
    "board": BoardIdentity(model="a board", memory_bytes=1, serial="1"),
    "build": Build(kernels_sha256="0", compiler="cc", flags=(), matmul="in-tree", threads=1),
    "operations": (SMALL.key,),
    "step": None,
    "storage": False,
    "min_window_s": 0.02,
    "seed": 0,
}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {"description": {"name": "bench", "toolchain": {"flags": ["-O3"]}}},
            "another device description (toolchain: flags: ",
        ),
        (
            {"board": BoardIdentity(model="a board", memory_bytes=1, serial="2")},
            "on another board, or on this one with another kernel or governor (serial: 1 before, 2",
        ),
        (
            {"build": METADATA["build"].model_copy(update={"kernels_sha256": "1"})},
            "another kernel library or compiler (kernels_sha256: 0 before, 1 now)",
        ),
        ({"operations": (SMALL.key, LARGE.key)}, "another list of operations (1 of them differ)"),
        (
            {"transfers": "as replays"},
            "measured in another way, by another release (None before, as replays now)",
        ),
        ({"step": "tiny"}, "another training step (None before, tiny now)"),
    ],
)
def test_a_run_with_other_settings_is_not_continued(
    change: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    RunDirectory(tmp_path).claim(RunMetadata(**METADATA))
    RunDirectory(tmp_path).claim(RunMetadata(**METADATA))
    with pytest.raises(MeasurementInvalid) as refused:
        RunDirectory(tmp_path).claim(RunMetadata(**METADATA | change))
    assert sentence in str(refused.value)
    assert "Remove that directory, or name another one" in str(refused.value)


# --- planned windows --------------------------------------------------------------------------


STRIDES = {"stride_height": 2, "stride_width": 2}  # without, no columns are needed


def test_every_kind_of_operation_can_be_measured() -> None:
    specs = [
        OpSpec.of(
            kind,
            **{
                name: int(not name.startswith(("pad_", "offset", "first", "continued")))
                for name in each.attributes
            }
            | ({"inner": 2} if kind.startswith("rotary.") else {})
            | (STRIDES if kind.endswith(("columns_gradient", "fold")) else {}),
        )
        for kind, each in SIGNATURES.items()
    ]
    windows = [OpWindow(spec, "warm") for spec in specs]
    enough = replace(memory(1 * MIB), workspace_bytes=dict.fromkeys(specs, 0))
    lines = write_plan(windows, None, enough, SETTINGS).text.splitlines()
    assert sum(line.startswith("op ") for line in lines) == len(SIGNATURES)


def test_a_sensor_settles_before_an_idle_slot() -> None:
    metered = replace(SETTINGS, tail_s=0.05)
    lines = write_plan([IdleWindow("after")], None, memory(1 * MIB), metered).text.splitlines()
    settling, measured = (line for line in lines if line.startswith("idle "))
    assert settling.endswith(" duration_ns=50000000")
    assert measured.startswith("idle id=0 ")


def test_every_block_has_each_window_once_in_its_own_order() -> None:
    content = BlockContent((SMALL, LARGE, UPDATE), 2, (TransferWindow("read", 4096, 1),))
    blocks = [content.ordered(seed=1, block=block) for block in range(4)]
    expected = {
        *(OpWindow(spec, state).label for spec in content.specs for state in ("warm", "cold")),
        *(StepWindow(index).label for index in range(2)),
        *("read 4096", "idle before", "idle after"),
    }
    for windows in blocks:
        labels = [window.label for window in windows]
        assert set(labels) == expected
        assert len(labels) == len(expected)
        assert (labels[0], labels[-1]) == ("idle before", "idle after")
    assert len(set(blocks)) == 4
    assert content.ordered(seed=1, block=2) == blocks[2]
    assert content.ordered(seed=2, block=2) != blocks[2]


SETTINGS = Settings(
    min_window_s=0.02,
    idle_s=0.1,
    tail_s=0.0,
    first_executions={},
    sampler=None,
    storage_place=None,
)


def memory(limit: int, cache: int = 1 * MIB) -> Memory:
    specs = [SMALL, LARGE, UPDATE, *(op.spec for op in tiny_step().computes)]
    return Memory(limit, cache, dict.fromkeys(specs, 0))


def test_cold_copies_exceed_twice_the_cache_or_fill_the_memory() -> None:
    assert cold_copies(SMALL, memory(64 * MIB)) == 2 * MIB // 512
    assert cold_copies(LARGE, memory(64 * MIB)) == 1
    assert cold_copies(SMALL, memory(5120)) == 10


def test_the_error_names_an_operation_or_step_too_large_for_the_board() -> None:
    with pytest.raises(MeasurementInvalid, match=r"relu.forward elements=262144 needs 2097152"):
        write_plan([OpWindow(LARGE, "cold")], None, memory(1 * MIB), SETTINGS)
    with pytest.raises(MeasurementInvalid, match="a whole step of tiny, batch 8"):
        write_plan([StepWindow(0)], tiny_step(), memory(4096), SETTINGS)


def test_a_dry_run_lists_measurements_and_bytes_to_write() -> None:
    board = describe(storage={"medium": "sd", "path": "/data"})
    plan = plan_profile(board, [SMALL, LARGE, SMALL], tiny_step(), ProfileOptions(blocks=3))
    assert (plan.operations, plan.blocks) == (6, 3)
    assert plan.storage is not None
    assert plan.storage.place == "a scratch file in /data"
    assert 0 < plan.storage.written_bytes <= plan.storage.budget_bytes
    assert plan.estimated_s > 3 * plan.windows_per_block * 0.02
    untouched = plan_profile(board, [SMALL], None, ProfileOptions(storage=False))
    assert untouched.storage is None
    with pytest.raises(RequestRefused, match="is too small for 5 blocks"):
        plan_profile(board, [SMALL], None, ProfileOptions(storage_budget_bytes=MIB))


@pytest.mark.parametrize("text", ["1000 x\n", "1000\n", f"1000 {2**63}\n", f"{'9' * 400} 1\n"])
def test_samples_that_are_no_numbers_of_64_bits_are_refused(text: str) -> None:
    with pytest.raises(MeasurementInvalid, match="the meter's samples cannot be read"):
        parse_samples(text, files=1)


def test_a_harness_run_never_takes_the_number_of_another() -> None:
    """A damaged file, of sitting 0, was removed."""

    def of(block: int, sitting: int) -> HarnessRun:
        header = HarnessRunHeader(
            block=block, sitting=sitting, started="", duration_s=1.0, boot_id="b"
        )
        return HarnessRun(header=header, trials=())

    table = TrialTable.of([of(0, 1), of(1, 0)])
    assert [table.next_harness_run(block) for block in range(3)] == [2, 1, 0]
