"""Transfers that a block measures, and the storage costs that follow from them.

Transfers stay within memory, scratch, byte budget and endurance of any medium.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cli
from devices.description import Storage, load_description
from devices.documents.document import dump_yaml
from devices.errors import RequestRefused
from devices.profile import AffinePageCost, StorageCosts
from devices.wear import wear
from profiler.meters.base import Void
from profiler.run.options import ProfileOptions
from profiler.run.preview import plan_profile
from profiler.run.storage_costs import energy_notes, storage_costs
from profiler.run.table import TrialTable
from profiler.run.trials import HarnessRun, HarnessRunHeader, Trial
from profiler.script.transfers import (
    ENDURANCE_SHARE,
    Scratch,
    TransferWindow,
    Wear,
    plan_transfers,
)
from profiler.script.windows import BlockContent
from profiler.script.writer import Memory, Settings, write_plan
from tests.support.boards.measuring import SMALL, describe
from tests.support.boards.windows import SteadyMeter
from tests.support.boards.windows import trial as made_trial

MIB = 1 << 20


def nand(**changes: Any) -> Storage:
    return Storage.model_validate(
        {
            "medium": "nand",
            "mtd_partition": "scratch",
            "page_bytes": 2048,
            "erase_block_bytes": 131072,
            "scratch_bytes": 8 * MIB,
            "endurance_cycles": 100_000,
        }
        | changes
    )


def on_chip(**changes: Any) -> Storage:
    return Storage.model_validate(
        {
            "medium": "nor-flash",
            "driver": "nvmc",
            "page_bytes": 256,
            "erase_block_bytes": 1024,
            "scratch_bytes": 32768,
            "endurance_cycles": 20_000,
        }
        | changes
    )


CARD = Storage(medium="sd", driver="sd-spi", page_bytes=512, scratch_bytes=MIB)
FILE = Storage(medium="sd", path="/x", page_bytes=4096)

# --- planning ---------------------------------------------------------------------------------


@st.composite
def media(draw: st.DrawFn) -> Storage:
    """Storage of any kind.

    Files, cards of a microcontroller, flash with and without known endurance, raw flash.
    """
    page = draw(st.sampled_from([4, 256, 512, 2048, 4096]))
    kind = draw(st.sampled_from(["file", "card", "flash", "raw"]))
    if kind == "file":
        return Storage(medium="sd", path="/x", page_bytes=512 * page)
    if kind == "card":
        pages = draw(st.integers(1, 4096))
        return Storage(medium="sd", driver="sd-spi", page_bytes=page, scratch_bytes=pages * page)
    block = page * draw(st.sampled_from([1, 4, 24, 64, 1024]))
    return Storage(
        medium="nand",
        driver="flash" if kind == "flash" else None,
        mtd_partition="scratch" if kind == "raw" else None,
        page_bytes=page,
        erase_block_bytes=block,
        scratch_bytes=block * draw(st.integers(1, 200)),
        scratch_offset_bytes=block * draw(st.integers(0, 3)),
        endurance_cycles=draw(st.none() | st.integers(100, 100_000)),
    )


def erase_counts(
    scratch: Scratch, windows: Sequence[TransferWindow], seed: int
) -> tuple[Counter[int], int]:
    """Number of erases of each block, and bytes programmed, in a run of the harness (transfer.c).

    Every window is measured to its last transfer, in random order.
    """
    block = scratch.erase_block_bytes
    erased: Counter[int] = Counter()
    written = next_block = 0
    for index in np.random.default_rng(seed).permutation(len(windows)):
        window = windows[index]
        if window.method == "read":
            continue
        stretches = [window.bytes] * window.most
        if window.method == "write" and block is not None:
            stretches = [window.bytes * window.most]
        for stretch in stretches:
            assert stretch <= scratch.free_bytes or block is None
            written += 0 if window.method == "erase" else stretch
            if block is None:
                continue
            count = -(-stretch // block)
            if (next_block + count) * block > scratch.free_bytes:
                next_block = 0
            erased.update(range(next_block, next_block + count))
            next_block += count
    return erased, written


@given(
    storage=media(),
    memory=st.integers(64, 8 * MIB),
    budget=st.integers(MIB, 4096 * MIB),
    blocks=st.integers(1, 12),
    seed=st.integers(0, 3),
)
@settings(max_examples=150, deadline=None)
def test_a_sweep_has_three_sizes_within_all_limits_or_is_refused_with_a_reason(
    storage: Storage, memory: int, budget: int, blocks: int, seed: int
) -> None:
    scratch = Scratch.of(storage, budget)
    windows: tuple[TransferWindow, ...] = ()
    sentence = ""
    try:
        windows = plan_transfers(scratch, blocks=blocks, memory_bytes=memory)
    except RequestRefused as refused:
        sentence = str(refused)
    if not windows:
        assert "leave storage out" in sentence
        return
    sizes = {
        method: {window.bytes for window in windows if window.method == method}
        for method in scratch.methods
    }
    assert all(len(found) >= 3 for found in sizes.values())
    for window in windows:
        unit = storage.erase_block_bytes if window.method == "erase" else storage.page_bytes
        assert unit is not None
        assert window.bytes % unit == 0
        assert 0 < window.bytes <= scratch.free_bytes <= scratch.bytes
        assert window.method == "erase" or window.bytes <= memory

    wear = scratch.wear(windows)
    assert scratch.allows(wear.times(blocks))
    assert wear.times(blocks).written_bytes <= budget
    if storage.endurance_cycles is not None:
        assert blocks * wear.cycles <= ENDURANCE_SHARE * storage.endurance_cycles

    erased, written = erase_counts(scratch, windows, seed)
    assert written + scratch.filled_bytes <= wear.written_bytes
    if storage.erase_block_bytes is not None:
        assert max(erased) * storage.erase_block_bytes < scratch.free_bytes
        assert max(erased.values()) <= wear.cycles


@given(
    budget=st.integers(64 * MIB, 4096 * MIB),
    blocks=st.integers(1, 12),
    storage=st.sampled_from([FILE, CARD, nand(), on_chip()]),
)
def test_the_byte_budget_that_a_refusal_suggests_is_enough(
    budget: int, blocks: int, storage: Storage
) -> None:
    def plan(budget_bytes: int) -> None:
        plan_transfers(Scratch.of(storage, budget_bytes), blocks=blocks, memory_bytes=MIB)

    try:
        plan(budget // 1000)
    except RequestRefused as refused:
        plan(int(str(refused).split("at least ")[1].split()[0]))


def test_flash_that_wears_out_soon_is_refused_with_the_remedy() -> None:
    scratch = Scratch.of(on_chip(endurance_cycles=100), 64 * MIB)
    with pytest.raises(RequestRefused, match=r"more than 1% of the 100 cycles.*scratch_bytes"):
        plan_transfers(scratch, blocks=5, memory_bytes=8192)


def test_a_scratch_or_memory_for_too_few_sizes_is_refused_with_the_remedy() -> None:
    for storage, memory in ((on_chip(scratch_bytes=2048), 8192), (on_chip(), 512)):
        with pytest.raises(RequestRefused, match=r"at least 3 sizes.*scratch_bytes"):
            plan_transfers(Scratch.of(storage, MIB), blocks=1, memory_bytes=memory)


def test_pages_of_a_file_must_be_whole_sectors() -> None:
    with pytest.raises(RequestRefused, match="page_bytes 256 must be a multiple of 512"):
        Scratch.of(Storage(medium="sd", path="/x", page_bytes=256), MIB)


@pytest.mark.parametrize("wrong", [{"scratch_bytes": 1500}, {"scratch_offset_bytes": 256}])
def test_scratch_that_is_not_whole_erase_blocks_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(RequestRefused, match="must be multiples of 1024 bytes"):
        Scratch.of(on_chip(**wrong), MIB)


def test_windows_of_writes_fill_the_blocks_that_are_erased_for_them() -> None:
    windows = plan_transfers(Scratch.of(nand(), 64 * MIB), blocks=1, memory_bytes=MIB)
    smallest = next(window for window in windows if window.method == "write")
    assert smallest.bytes * smallest.most >= 131072
    assert smallest.bytes * smallest.most % 131072 == 0


def test_repeated_windows_stop_at_the_allowed_share_of_endurance() -> None:
    scratch = Scratch.of(nand(), 4096 * MIB)
    assert scratch.allows(Wear(cycles=1000))
    assert not scratch.allows(Wear(cycles=1001))
    assert not scratch.allows(Wear(written_bytes=4097 * MIB))


# --- the plan that the harness gets -----------------------------------------------------------


def test_reading_has_no_tail_and_erasing_takes_no_memory() -> None:
    settings_ = Settings(
        min_window_s=0.02,
        idle_s=0.1,
        tail_s=0.05,
        first_executions={},
        sampler=None,
        storage_place="offset=4096",
        scratch_bytes=32768,
    )
    windows = [
        TransferWindow("read", 512, 9),
        TransferWindow("write", 512, 2),
        TransferWindow("erase", 16384, 1),
    ]
    text = write_plan(windows, None, Memory(1024, 0, {}), settings_).text
    assert "arena bytes=512\n" in text
    assert "scratch bytes=32768 offset=4096\n" in text
    assert "transfer id=0 method=read bytes=512 most=9 min_ns=20000000 tail_ns=0\n" in text
    assert "transfer id=1 method=write bytes=512 most=2 min_ns=20000000 tail_ns=50000000\n" in text
    assert "transfer id=2 method=erase bytes=16384 most=1" in text


# --- dry runs ---------------------------------------------------------------------------------


def test_raw_flash_is_overwritten_only_with_the_users_consent() -> None:
    board = describe(storage=nand(scratch_offset_bytes=131072).model_dump(exclude_none=True))
    with pytest.raises(RequestRefused) as refused:
        plan_profile(board, [SMALL], None, ProfileOptions())
    assert "bytes 131072 to 8519679 of the raw flash partition 'scratch'" in str(refused.value)
    assert "--overwrite-raw-flash" in str(refused.value)
    assert "--no-storage" in str(refused.value)
    assert plan_profile(board, [SMALL], None, ProfileOptions(storage=False)).storage is None
    allowed = plan_profile(board, [SMALL], None, ProfileOptions(overwrite_raw_flash=True)).storage
    assert allowed is not None
    assert "raw flash partition 'scratch'" in allowed.place


def test_a_dry_run_states_bytes_erases_and_cycles_with_the_endurance() -> None:
    board = load_description("emulated-m0-flash").model_copy(update={"storage": on_chip()})
    options = ProfileOptions(blocks=2)
    plan = plan_profile(board, [SMALL], None, options).storage
    assert plan is not None
    assert plan.erased_blocks * 1024 == plan.written_bytes
    assert 1 <= plan.cycles <= ENDURANCE_SHARE * 20_000
    assert plan.endurance_cycles == 20_000
    assert plan.place == "bytes 0 to 32767 of the nor-flash (driver nvmc)"


def test_a_small_board_gets_transfers_that_fit_into_its_memory() -> None:
    board = load_description("emulated-m0-flash").model_copy(
        update={"storage": on_chip(page_bytes=1024)}
    )
    plan = plan_profile(board, [SMALL], None, ProfileOptions(blocks=1)).storage
    assert plan is not None


def test_the_command_requires_the_flag_and_reports_the_wear(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "board.yaml"
    file.write_text(dump_yaml(describe(storage=nand().model_dump(exclude_none=True))))
    command = ["profile", "--device", str(file), "--model", "dscnn", "--dry-run"]
    assert cli.main(command) == 2
    assert "Pass --overwrite-raw-flash to allow it" in capsys.readouterr().err
    assert cli.main([*command, "--overwrite-raw-flash"]) == 0
    said = capsys.readouterr().err
    assert "bytes 0 to 8388607 of the raw flash partition 'scratch'" in said
    assert re.search(r"up to \d+ erase blocks are erased, each at most \d+ times", said)
    assert "(endurance: 100000 cycles)" in said


# --- fitted costs -----------------------------------------------------------------------------

READ, WRITE, ERASE = (20e-6, 100e-6), (30e-6, 300e-6), (10e-6, 2e-3)


def trial(storage: Storage, window: TransferWindow, power_w: float | None) -> Trial:
    """Undisturbed trial of a medium with the costs above."""
    fixed_s, each_s = {"read": READ, "write": WRITE, "erase": ERASE}[window.method]
    unit = storage.erase_block_bytes if window.method == "erase" else storage.page_bytes
    assert unit is not None
    length_ns = round((fixed_s + each_s * (window.bytes // unit)) * window.most * 1e9)
    return Trial(
        window=window.label,
        executions=window.most,
        start_ns=1000,
        end_ns=1000 + length_ns,
        tail_end_ns=1000 + length_ns,
        running_ns=length_ns,
        energy_j=None if power_w is None else power_w * length_ns * 1e-9,
    )


def costs(storage: Storage, power_w: float | None = 2.0, without: str = "") -> StorageCosts | None:
    scratch = Scratch.of(storage, 256 * MIB)
    windows = plan_transfers(scratch, blocks=3, memory_bytes=MIB)
    table = TrialTable.of(
        HarnessRun(
            header=HarnessRunHeader(block=block, sitting=0, started="", duration_s=1.0, boot_id=""),
            trials=tuple(
                trial(storage, window, power_w)
                for window in windows
                if window.method != (without or None)
            ),
        )
        for block in range(3)
    )
    content = BlockContent((), 0, windows, scratch=scratch)
    return storage_costs(storage, "offset=0", content, table, handover_s=1e-5)


@pytest.mark.parametrize("dma", [True, False])
def test_handing_over_costs_something_only_where_transfers_run_beside_ops(dma: bool) -> None:
    found = costs(CARD.model_copy(update={"dma": dma}))
    assert found is not None
    assert found.handover_s == (1e-5 if dma else None)
    assert found.processor_time_s(1.0) == (1e-5 if dma else 0.0)
    assert found.processor_time_s(1e-6) == (1e-6 if dma else 0.0)


@pytest.mark.parametrize("storage", [nand(), on_chip(), CARD])
def test_the_fit_separates_the_costs_of_reading_writing_and_erasing(storage: Storage) -> None:
    found = costs(storage)
    assert found is not None
    assert (found.read.fixed_s, found.read.per_page_s) == pytest.approx(READ, rel=1e-4)
    assert (found.write.fixed_s, found.write.per_page_s) == pytest.approx(WRITE, rel=1e-4)
    assert found.write.per_page_j == pytest.approx(2.0 * WRITE[1], rel=1e-4)
    assert found.path is None
    if storage.erase_block_bytes is None:
        assert (found.erase, found.erase_block_bytes) == (None, None)
        return
    assert found.erase is not None
    assert (found.erase.fixed_s, found.erase.per_page_s) == pytest.approx(ERASE, rel=1e-4)
    assert found.erase.per_page_j == pytest.approx(2.0 * ERASE[1], rel=1e-4)
    assert found.erase_block_bytes == storage.erase_block_bytes


@pytest.mark.parametrize("storage", [nand(), CARD.model_copy(update={"capacity_bytes": 10**9})])
def test_the_life_of_storage_follows_from_its_costs_as_from_its_description(
    storage: Storage,
) -> None:
    found = costs(storage)
    assert found is not None
    figures = {"part_bytes": 1 << 18, "steps_per_day": 1000}
    assert wear(found, 10**6, 2, **figures) == wear(storage, 10**6, 2, **figures)


def test_flash_without_valid_erases_has_no_costs() -> None:
    assert costs(nand(), without="erase") is None
    assert costs(nand(), power_w=None) is not None


@pytest.mark.parametrize("storage", [CARD, FILE])
@pytest.mark.parametrize("metered", [0, 1, 2])
def test_why_transfers_have_no_energies_is_noted(storage: Storage, metered: int) -> None:
    """A meter covers some of the sizes; the times of all are valid."""
    windows = plan_transfers(Scratch.of(storage, 256 * MIB), blocks=3, memory_bytes=MIB)
    writes = [window for window in windows if window.method == "write"]
    trials = []
    for window in windows:
        covers = window.method == "read" or window in writes[:metered]
        reading = 1.0 if covers else Void("the instrument's range was exceeded")
        trials.append(made_trial(window, SteadyMeter(reading), executions=1))
    assert all(trial.void is None for trial in trials)
    header = HarnessRunHeader(block=0, sitting=0, started="", duration_s=1.0, boot_id="")
    table = TrialTable.of([HarnessRun(header=header, trials=tuple(trials))])
    content = BlockContent((), 0, windows)
    found = storage_costs(storage, "offset=0", content, table)
    assert found is not None
    assert (found.write.per_page_j is None) == (metered < 2)
    notes = ["No joules of write transfers: the instrument's range was exceeded."]
    assert list(energy_notes(found, content, table)) == (notes if metered < 2 else [])


# --- costs for the solver ---------------------------------------------------------------------


def flash_costs(erase_j: float | None = 4e-3) -> StorageCosts:
    fixed_j = None if erase_j is None else 0.0
    return StorageCosts(
        medium="nand",
        page_bytes=2048,
        erase_block_bytes=131072,
        method="test",
        read=AffinePageCost(fixed_s=1e-5, per_page_s=1e-4, fixed_j=1e-5, per_page_j=1e-4),
        write=AffinePageCost(fixed_s=0.0, per_page_s=3e-4, fixed_j=0.0, per_page_j=6e-4),
        erase=AffinePageCost(fixed_s=0.0, per_page_s=2e-3, fixed_j=fixed_j, per_page_j=erase_j),
    )


def test_the_cost_of_a_page_includes_its_share_of_erasing_the_block() -> None:
    time_s, energy_j = flash_costs().write_cost(2048)
    assert time_s == pytest.approx(3e-4 + 2e-3 / 64)
    assert energy_j == pytest.approx(6e-4 + 4e-3 / 64)
    whole_s, whole_j = flash_costs().write_cost(131072)
    assert (whole_s, whole_j) == pytest.approx((64 * time_s, 64 * energy_j))
    assert flash_costs().read_cost(2048)[0] == pytest.approx(1.1e-4)


def test_without_an_energy_of_erasing_writing_has_none() -> None:
    assert flash_costs(erase_j=None).write_cost(2048)[1] is None


@settings(derandomize=True)
@given(first=st.integers(1, 200), second=st.integers(1, 200))
def test_erase_costs_of_consecutive_tensors_add_up(first: int, second: int) -> None:
    costs_ = flash_costs()
    apart = costs_.erased_blocks(first * 2048) + costs_.erased_blocks(second * 2048)
    assert apart == pytest.approx(costs_.erased_blocks((first + second) * 2048))
