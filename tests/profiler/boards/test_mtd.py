"""Raw flash of the emulated Linux board: the kernel's nandsim under its MTD layer.

Its delays are known, and it can simulate worn and bad blocks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from devices.description import Storage, load_description
from devices.errors import BoardCommandFailed, RequestRefused
from devices.profile import StorageCosts
from profiler.boards.mtd import _read_places
from profiler.boards.raw_flash import find_partition
from profiler.run.evaluate import evaluate
from profiler.run.storage_costs import storage_costs
from profiler.run.table import TrialTable
from profiler.run.trials import HarnessRun, HarnessRunHeader
from profiler.script.records import Results, parse_results
from profiler.script.transfers import Scratch, TransferWindow
from profiler.script.windows import BlockContent
from profiler.script.writer import Memory, Settings, write_plan
from profiler.transports import open_transport
from profiler.transports.base import CommandResult, Transport
from profiler.transports.local import LocalTransport
from tests.support.boards.emulated import SharedBoards
from tests.support.boards.ground_truth import Harness
from tests.support.boards.measuring import write_tree

PAGE, BLOCK = 2048, 131072
LOOKED_AT = 12
FIRST_BLOCK = 128  # number of the partition's first block on the chip
LIMIT_S = 120.0
RUNS = 5

STORAGE = Storage(
    medium="nand",
    mtd_partition="scratch",
    page_bytes=PAGE,
    erase_block_bytes=BLOCK,
    scratch_offset_bytes=2 * BLOCK,
    scratch_bytes=8 * BLOCK,
)

PLACE = f"offset={2 * BLOCK} page_bytes={PAGE} erase_block_bytes={BLOCK} mtd=/dev/mtd1 name=scratch"

WINDOWS = (
    *(TransferWindow("read", pages * PAGE, 16) for pages in (1, 4, 16)),
    *(TransferWindow("write", pages * PAGE, 16) for pages in (1, 4, 16)),
    *(TransferWindow("erase", blocks * BLOCK, 1) for blocks in (1, 2, 4)),
)


@dataclass(frozen=True)
class MtdBoard:
    transport: Transport
    harness: str

    def shell(self, script: str) -> str:
        return self.transport.run(["sh", "-c", script], timeout_s=LIMIT_S).stdout

    def load_chip(self, *words: str) -> None:
        """Replace the chip by a new, empty one."""
        chip = "id_bytes=0x20,0xf1,0x00,0x15 bch=4"
        self.shell(f"rmmod nandsim && modprobe nandsim {chip} {' '.join(words)}")

    def load_slow_chip(self, read_us: int, program_us: int, erase_ms: int) -> None:
        self.load_chip(
            "do_delays=1",
            f"access_delay={read_us}",
            f"programm_delay={program_us}",
            f"erase_delay={erase_ms}",
        )

    def place(self, storage: Storage = STORAGE) -> str:
        """The scratch partition as a profile finds it."""
        return find_partition(self.transport, storage, timeout_s=LIMIT_S)

    def execute(self, plan: str, directory: Path) -> tuple[CommandResult, Results]:
        (directory / "plan").write_text(plan)
        self.transport.put(directory / "plan", "plan", timeout_s=LIMIT_S)
        done = self.transport.run(
            [self.harness, "run", "plan", "results", "samples"], timeout_s=LIMIT_S, check=False
        )
        self.transport.get("results", directory / "results", timeout_s=LIMIT_S)
        return done, parse_results((directory / "results").read_text())

    def measure(
        self, directory: Path, windows: Sequence[TransferWindow] = WINDOWS
    ) -> tuple[CommandResult, Results]:
        return self.execute(plan(PLACE, windows), directory)

    def costs(self, directory: Path) -> StorageCosts:
        """Costs from the medians of several runs: work of the system can fall into one window."""
        content = BlockContent((), 0, WINDOWS, scratch=Scratch.of(STORAGE, 1 << 30))
        table = TrialTable.of([self.harness_run(block, directory) for block in range(RUNS)])
        found = storage_costs(STORAGE, PLACE, content, table)
        assert found is not None
        return found

    def harness_run(self, block: int, directory: Path) -> HarnessRun:
        done, results = self.measure(directory)
        assert (done.exit_code, done.stderr) == (0, "")
        trials = evaluate(
            results.windows,
            WINDOWS,
            None,
            is_measured=False,
            start=results.start,
            throttled=None,
        )
        header = HarnessRunHeader(block=block, sitting=0, started="", duration_s=1.0, boot_id="")
        return HarnessRun(header=header, trials=trials)

    def checksums(self) -> list[str]:
        """Checksums of the partition's first blocks, including some that must not be written."""
        return self.shell(
            f"for block in $(seq 0 {LOOKED_AT - 1}); do"
            f" dd if=/dev/mtd1 bs={BLOCK} skip=$block count=1 2>/dev/null | md5sum; done"
        ).splitlines()


def plan(place: str, windows: Sequence[TransferWindow] = WINDOWS) -> str:
    settings = Settings(
        min_window_s=0.0,
        idle_s=0.0,
        tail_s=0.0,
        first_executions={},
        sampler=None,
        storage_place=place,
        scratch_bytes=STORAGE.scratch_bytes or 0,
    )
    return write_plan(windows, None, Memory(1 << 20, 0, {}), settings).text


@pytest.fixture(scope="module")
def board(shared_boards: SharedBoards, linux_harness: Harness) -> Iterator[MtdBoard]:
    """The emulated board, with the program that feeds its sensor halted: nothing else runs."""
    description = load_description("emulated-a72")
    assert description.emulator is not None
    described = description.emulator.nand
    assert described is not None
    with (
        shared_boards.lent(description) as running,
        open_transport(running.description) as transport,
    ):
        board = MtdBoard(transport, linux_harness.put_on(transport).path)
        board.shell("killall -STOP board-sensor")
        yield board
        board.load_slow_chip(
            described.read_delay_us, described.program_delay_us, described.erase_delay_ms
        )
        board.shell("killall -CONT board-sensor")


@pytest.mark.emulated
def test_costs_of_pages_and_blocks_are_the_delays_of_the_chip(
    board: MtdBoard, tmp_path: Path
) -> None:
    """Costs of a slow and a fast chip differ by their delays.

    The kernel's own work is the same for both; for erasing it is negligible.
    """
    board.load_slow_chip(25, 200, 1)
    fast = board.costs(tmp_path)
    board.load_slow_chip(75, 400, 2)
    slow = board.costs(tmp_path)
    assert fast.erase is not None
    assert slow.erase is not None
    assert slow.read.per_page_s - fast.read.per_page_s == pytest.approx(50e-6, rel=0.03)
    assert slow.write.per_page_s - fast.write.per_page_s == pytest.approx(200e-6, rel=0.03)
    assert fast.erase.per_page_s == pytest.approx(1e-3, rel=0.03)
    assert slow.erase.per_page_s == pytest.approx(2e-3, rel=0.03)
    for costs in (fast, slow):
        for cost in (costs.read, costs.write, costs.erase):
            assert cost is not None
            assert cost.fixed_s < cost.per_page_s
            assert cost.fit_error < 0.03


@pytest.mark.emulated
def test_nothing_outside_the_stretch_is_written(board: MtdBoard, tmp_path: Path) -> None:
    board.load_chip()
    board.shell(f"dd if=/dev/urandom of=/dev/mtd1 bs={BLOCK} count={LOOKED_AT} 2>/dev/null")
    before = board.checksums()
    done, _ = board.measure(tmp_path)
    assert (done.exit_code, done.stderr) == (0, "")
    after = board.checksums()
    changed = {block for block in range(LOOKED_AT) if before[block] != after[block]}
    assert changed == set(range(6, 10))  # the first half is read, and holds data already


@pytest.mark.emulated
def test_erased_blocks_are_programmed_before_they_are_read(board: MtdBoard, tmp_path: Path) -> None:
    board.load_chip()
    (erased,) = set(board.checksums())
    done, _ = board.measure(tmp_path, WINDOWS[:1])
    assert done.exit_code == 0
    programmed = [block for block, found in enumerate(board.checksums()) if found != erased]
    assert programmed == list(range(2, 6))


@pytest.mark.emulated
def test_bad_blocks_are_skipped(board: MtdBoard, tmp_path: Path) -> None:
    board.load_chip(f"badblocks={FIRST_BLOCK + 3}")
    done, _ = board.measure(tmp_path, WINDOWS[:-1])
    assert (done.exit_code, done.stderr) == (0, "")


@pytest.mark.emulated
def test_a_stretch_with_many_bad_blocks_is_refused(board: MtdBoard, tmp_path: Path) -> None:
    bad = ",".join(str(FIRST_BLOCK + block) for block in (3, 9))
    board.load_chip(f"badblocks={bad}")
    done, _ = board.measure(tmp_path)
    assert done.exit_code == 5
    assert "2 of 8 blocks of /dev/mtd1 (scratch) from offset 262144 on are bad" in done.stderr


@pytest.mark.emulated
@pytest.mark.parametrize(
    ("worn", "sentence"),
    [
        (f"weakblocks={FIRST_BLOCK + 8}:1", "worn block 8 of /dev/mtd1 (scratch)"),
        (f"weakpages={(FIRST_BLOCK + 7) * 64 + 5}:1", "worn block 7 of /dev/mtd1 (scratch)"),
    ],
)
def test_the_error_names_a_worn_block_and_finished_windows_are_kept(
    worn: str, sentence: str, board: MtdBoard, tmp_path: Path
) -> None:
    board.load_chip(worn)
    writes = [TransferWindow("write", BLOCK, 1)] * 20
    done, results = board.measure(tmp_path, writes)
    assert done.exit_code == 5
    assert sentence in done.stderr
    assert ("erased" if "weakblocks" in worn else "programmed") in done.stderr
    assert 1 <= len(results.windows) < 20
    assert results.end is None


@pytest.mark.emulated
@pytest.mark.parametrize(
    ("right", "wrong", "sentence"),
    [
        ("name=scratch", "name=other", "is partition scratch, not other; nothing was written"),
        ("mtd=/dev/mtd1", "mtd=/dev/mtd0", "/dev/mtd0 is partition system, not scratch"),
        ("mtd=/dev/mtd1 name=scratch", "mtd=/dev/mtd0 name=system", "mtd0 (system): "),
        ("mtd=/dev/mtd1", "mtd=/dev/null", "is not the device with this name in sysfs"),
        ("mtd=/dev/mtd1", "mtd=/init", "is not a character device"),
        ("page_bytes=2048", "page_bytes=512", "pages of 2048 bytes and erase blocks of 131072"),
        ("erase_block_bytes=131072", "erase_block_bytes=65536", "the plan says 2048 and 65536"),
        (
            "offset=262144",
            "offset=117309440",
            "the range is not of whole blocks within the partition",
        ),
        ("offset=262144", "offset=2048", "the range is not of whole blocks within the partition"),
    ],
)
def test_a_partition_that_differs_from_the_plan_is_refused(
    right: str, wrong: str, sentence: str, board: MtdBoard, tmp_path: Path
) -> None:
    assert right in PLACE
    done, results = board.execute(plan(PLACE.replace(right, wrong)), tmp_path)
    assert done.exit_code == 5
    assert sentence in done.stderr
    assert results.windows == ()


@pytest.mark.emulated
def test_a_partition_is_found_by_its_name_alone(board: MtdBoard) -> None:
    assert board.place() == PLACE
    missing = STORAGE.model_copy(update={"mtd_partition": "data"})
    with pytest.raises(RequestRefused, match=r"0 raw flash partitions.*'system', 'scratch'"):
        board.place(missing)
    other = STORAGE.model_copy(update={"erase_block_bytes": 65536})
    with pytest.raises(RequestRefused, match="has erase blocks of 131072 bytes"):
        board.place(other)
    large = STORAGE.model_copy(update={"scratch_bytes": 1 << 30})
    with pytest.raises(RequestRefused, match=r"has 117440512 bytes; .* scratch ends at"):
        board.place(large)


@pytest.mark.emulated
def test_a_board_tells_where_its_partitions_lie(board: MtdBoard) -> None:
    places = _read_places(board.transport, LIMIT_S)
    system, scratch = places[0], places[1]
    assert system.chip == scratch.chip
    assert (system.begin, system.end) == (0, FIRST_BLOCK * BLOCK)
    assert (scratch.begin, scratch.end) == (system.end, 1024 * BLOCK)
    assert not system.shares_bytes(scratch)


# --- boards without raw flash, or with flash in use ---------------------------------------------


def mounted(*mounts: str) -> str:
    """A table of mounts, from "DEVICE PLACE TYPE SOURCE" of each."""
    return "".join(
        f"{23 + n} 1 {device} / {place} rw,noatime shared:{n} - {kind} {source} rw\n"
        for n, (device, place, kind, source) in enumerate(each.split(" ") for each in mounts)
    )


CARD_ROOT = "179:2 / ext4 /dev/root"
SWAPS = "Filename\t\t\tType\t\tSize\tUsed\tPriority\n"


@dataclass(frozen=True)
class Answering:
    """Stand-in for a transport with the contents of a board's files.

    ``places`` lists MTD devices as the script that looks for them prints them.
    """

    mtd: str = 'dev:    size   erasesize  name\nmtd3: 00800000 00020000 "scratch"\n'
    mounts: str = mounted(CARD_ROOT)
    ubi: str = ""
    swaps: str = ""
    places: str = ""
    name: str = "a board"

    def run(self, argv: Sequence[str], *, timeout_s: float) -> CommandResult:
        files = {"/proc/mtd": self.mtd, "/proc/self/mountinfo": self.mounts}
        scripts = {"/sys/class/ubi": self.ubi, "/proc/swaps": self.swaps, '"$1"': self.places}
        if argv[0] == "cat":
            answer = files[argv[1]]
            if not answer:
                raise BoardCommandFailed(f"{argv[1]}: No such file or directory")
        else:
            (answer,) = (text for part, text in scripts.items() if part in argv[2])
        return CommandResult(" ".join(argv), 0, answer, "")


def refusal(answers: Answering, storage: Storage = STORAGE) -> str:
    with pytest.raises(RequestRefused) as refused:
        find_partition(answers, storage, timeout_s=1.0)  # type: ignore[arg-type]
    return str(refused.value)


@pytest.mark.parametrize(
    ("answers", "sentence"),
    [
        (Answering(mtd=""), "the board reports no raw flash: /proc/mtd: No such file"),
        (
            Answering(mounts=mounted("31:3 /mnt jffs2 /dev/mtdblock3")),
            "(/dev/mtd3) is mounted",
        ),
        (Answering(mounts=mounted("31:3 /mnt jffs2 mtd:scratch")), "(/dev/mtd3) is mounted"),
        (Answering(mounts=mounted("0:40 /mnt other mtd:scratch")), "(/dev/mtd3) is mounted"),
        (Answering(mounts=mounted("31:3 / squashfs /dev/root")), "(/dev/mtd3) is mounted"),
        (
            Answering(swaps=f"{SWAPS}/dev/mtdblock3      partition\t8188\t0\t-2\n"),
            "(/dev/mtd3) is used for swap",
        ),
        (Answering(ubi="0\n3\n"), "(/dev/mtd3) belongs to UBI; nothing was written"),
        (
            Answering(mtd='mtd0: 00800000 00020000 "scratch"\nmtd1: 00800000 00020000 "scratch"\n'),
            "2 raw flash partitions are named 'scratch', one is needed",
        ),
    ],
)
def test_missing_flash_and_flash_in_use_are_refused(answers: Answering, sentence: str) -> None:
    assert sentence in refusal(answers)


def test_a_free_partition_next_to_one_in_use_is_accepted() -> None:
    answers = Answering(
        mounts=mounted("31:30 /mnt jffs2 /dev/mtdblock30", "0:20 / ubifs ubi0"),
        ubi="0\n",
        swaps=f"{SWAPS}/dev/mtdblock33      partition\t8188\t0\t-2\n",
    )
    found = find_partition(answers, STORAGE, timeout_s=1.0)  # type: ignore[arg-type]
    assert found == PLACE.replace("mtd1", "mtd3")


# A router's flash of 16 MiB: `rootfs` lies within `firmware`, and `rootfs_data` within `rootfs`.
ROUTER = """\
dev:    size   erasesize  name
mtd0: 00040000 00020000 "u-boot"
mtd1: 00f00000 00020000 "firmware"
mtd2: 00200000 00020000 "kernel"
mtd3: 00d00000 00020000 "rootfs"
mtd4: 00400000 00020000 "rootfs_data"
mtd5: 000c0000 00020000 "spare"
"""
CHIP = "/sys/devices/platform/spi0.0/mtd"
FLAT = f"""\
262144 0 {CHIP}/mtd0
15728640 262144 {CHIP}/mtd1
2097152 262144 {CHIP}/mtd2
13631488 2359296 {CHIP}/mtd3
4194304 11796480 {CHIP}/mtd4
786432 15990784 {CHIP}/mtd5
"""
NESTED = f"""\
262144 0 {CHIP}/mtd0
15728640 262144 {CHIP}/mtd1
2097152 0 {CHIP}/mtd1/mtd2
13631488 2097152 {CHIP}/mtd1/mtd3
4194304 9437184 {CHIP}/mtd1/mtd3/mtd4
786432 15990784 {CHIP}/mtd5
"""
BELOW_THE_CHIP = f"16777216 whole {CHIP}/mtd9\n" + NESTED.replace("/mtd/", "/mtd/mtd9/")
WITHOUT_OFFSETS = re.sub(r"(?m)^(\d+) \d+", r"\1 whole", NESTED)
TREES = [FLAT, NESTED, BELOW_THE_CHIP, WITHOUT_OFFSETS]
ROOT_ON_FLASH = mounted("31:3 / squashfs /dev/root", "31:4 /overlay jffs2 /dev/mtdblock4")


@pytest.mark.parametrize("places", TREES)
@pytest.mark.parametrize(
    ("name", "answers", "sentence"),
    [
        (
            "firmware",
            Answering(mtd=ROUTER, mounts=ROOT_ON_FLASH),
            "'firmware' (/dev/mtd1) shares bytes with 'rootfs' (/dev/mtd3), which is mounted;",
        ),
        (
            "rootfs_data",
            Answering(mtd=ROUTER, mounts=mounted("31:3 / squashfs /dev/root")),
            "'rootfs_data' (/dev/mtd4) shares bytes with 'rootfs' (/dev/mtd3), which is mounted;",
        ),
        (
            "rootfs",
            Answering(mtd=ROUTER, ubi="4\n"),
            "shares bytes with 'rootfs_data' (/dev/mtd4), which belongs to UBI; nothing was",
        ),
    ],
)
def test_a_partition_that_shares_bytes_with_one_in_use_is_refused(
    name: str, answers: Answering, sentence: str, places: str
) -> None:
    storage = STORAGE.model_copy(update={"mtd_partition": name})
    assert sentence in refusal(replace(answers, places=places), storage)


@pytest.mark.parametrize("places", [*TREES, ""])
@pytest.mark.parametrize("name", ["kernel", "spare"])
def test_a_free_partition_of_a_chip_with_the_root_is_accepted(name: str, places: str) -> None:
    answers = Answering(mtd=ROUTER, mounts=ROOT_ON_FLASH, places=places)
    changes = {"mtd_partition": name, "scratch_offset_bytes": 0, "scratch_bytes": 4 * BLOCK}
    storage = STORAGE.model_copy(update=changes)
    assert f"name={name}" in find_partition(answers, storage, timeout_s=1.0)  # type: ignore[arg-type]


def test_places_of_partitions_are_read_from_sysfs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    devices = write_tree(
        tmp_path / "devices/mtd",
        {
            "mtd0/size": 4 * BLOCK,
            "mtd0/mtd1/size": 2 * BLOCK,
            "mtd0/mtd1/offset": BLOCK,
            "mtd0ro/size": 4 * BLOCK,
        },
    )
    entries = tmp_path / "class"
    entries.mkdir()
    for path in ("mtd0", "mtd0/mtd1", "mtd0ro"):
        (entries / Path(path).name).symlink_to(devices / path)
    monkeypatch.setattr("profiler.boards.mtd._CLASS", str(entries))
    with LocalTransport() as transport:
        places = _read_places(transport, 10.0)
        monkeypatch.setattr("profiler.boards.mtd._CLASS", str(tmp_path / "none"))
        assert _read_places(transport, 10.0) == {}
    assert {number: (place.begin, place.end) for number, place in places.items()} == {
        0: (0, 4 * BLOCK),
        1: (BLOCK, 3 * BLOCK),
    }
    assert places[1].chip == places[0].path == str(devices / "mtd0")
