"""The firmware's storage drivers, with stand-ins for the hardware."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.boards.flash_stand_ins import Flash, Nrf51, Qspi, Stm32f4
from tests.support.boards.sd_card_stand_in import BLOCK, Faults, Kind, SdCard
from tests.support.boards.storage import Driver, Refused, build_driver

MIB = 1 << 20
SCRATCH = 64 * BLOCK
SCRATCH_BLOCKS = 16


@pytest.fixture(scope="module")
def sd_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_driver("sd-spi", tmp_path_factory.mktemp("sd"))


@pytest.fixture
def opened(sd_library: Path) -> Callable[[SdCard], Driver]:
    def open_card(card: SdCard) -> Driver:
        driver = Driver(sd_library, card)
        driver.init()
        driver.open(SCRATCH, SCRATCH_BLOCKS * BLOCK)
        return driver

    return open_card


def sdhc(**faults: object) -> SdCard:
    return SdCard("sdhc", 2048, Faults(**faults))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["sdhc", "sdsc", "version-1"])
def test_a_card_reports_its_identity(sd_library: Path, kind: Kind) -> None:
    facts = Driver(sd_library, SdCard(kind, 2048)).init()
    assert facts.card == "sd-03-SD-SU08G-8.0-1a2b3c4d-2019-08"
    assert facts.capacity_bytes == MIB
    assert (facts.page_bytes, facts.erase_block_bytes) == (BLOCK, 0)


@settings(max_examples=25, deadline=None)
@given(
    kind=st.sampled_from(["sdhc", "sdsc", "version-1"]),
    first=st.integers(0, SCRATCH_BLOCKS - 1),
    seed=st.randoms(use_true_random=False),
    data=st.data(),
)
def test_written_data_is_read_back_and_nothing_else_changes(
    sd_library: Path, kind: Kind, first: int, seed: object, data: st.DataObject
) -> None:
    count = data.draw(st.integers(1, min(4, SCRATCH_BLOCKS - first)))
    content = seed.randbytes(count * BLOCK)  # type: ignore[attr-defined]
    card = SdCard(kind, 2048)
    before = bytes(card.blocks)
    driver = Driver(sd_library, card)
    driver.init()
    assert card.checks_crc
    driver.open(SCRATCH, SCRATCH_BLOCKS * BLOCK)
    driver.write(first * BLOCK, content)
    assert driver.read(first * BLOCK, len(content)) == content
    begin = SCRATCH + first * BLOCK
    assert card.blocks == before[:begin] + content + before[begin + len(content) :]


@pytest.mark.parametrize("blocks", [1, 8])
@pytest.mark.parametrize(
    ("faults", "sentence"),
    [
        ({"data_response": {70: 0x0D}}, "did not accept block 70: write error, data response 0x0d"),
        ({"data_response": {70: 0x0B}}, "did not accept block 70: CRC error, data response 0x0b"),
        ({"busy_for_good": {70}}, "still busy with block 70 after 500 ms"),
        ({"status": 0x04}, "failed to write from block 70 on: the block may be worn, status 0x04"),
        ({"status": 0x20}, "from block 70 on: it is write-protected there, status 0x20"),
    ],
)
def test_a_block_that_cannot_be_written_is_named(
    opened: Callable[[SdCard], Driver], blocks: int, faults: dict[str, object], sentence: str
) -> None:
    driver = opened(sdhc(**faults))
    with pytest.raises(Refused, match=sentence):
        driver.write(6 * BLOCK, bytes(blocks * BLOCK))


@pytest.mark.parametrize(
    ("faults", "sentence"),
    [
        ({"data_error_token": {73: 0x04}}, "cannot read block 73: data error token 0x04"),
        ({"damaged": {73}}, "block 73 arrived damaged: CRC 0x"),
        ({"silent": {73}}, "did not send block 73 within 200 ms"),
    ],
)
@pytest.mark.parametrize("first", [6, 9])
def test_a_block_that_cannot_be_read_is_named(
    opened: Callable[[SdCard], Driver], first: int, faults: dict[str, object], sentence: str
) -> None:
    driver = opened(sdhc(**faults))
    with pytest.raises(Refused, match=sentence):
        driver.read(first * BLOCK, (10 - first) * BLOCK)


def test_the_card_works_again_after_a_failure(opened: Callable[[SdCard], Driver]) -> None:
    card = sdhc(data_response={70: 0x0D}, data_error_token={71: 0x04})
    driver = opened(card)
    for transfer in (
        lambda: driver.write(4 * BLOCK, bytes(4 * BLOCK)),
        lambda: driver.read(0, 8192),
    ):
        with pytest.raises(Refused):
            transfer()
        driver.write(0, b"\xa5" * BLOCK)
        assert driver.read(0, BLOCK) == b"\xa5" * BLOCK


def test_a_removed_card_is_reported(opened: Callable[[SdCard], Driver]) -> None:
    card = sdhc()
    driver = opened(card)
    card.faults.pulled = True
    with pytest.raises(Refused, match="does not answer CMD17; is it still inserted"):
        driver.read(0, BLOCK)
    with pytest.raises(Refused, match="does not answer CMD25; is it still inserted"):
        driver.write(0, bytes(2 * BLOCK))
    with pytest.raises(Refused, match="no card answers on SPI"):
        driver.init()


def test_a_write_protected_card_is_read_only(opened: Callable[[SdCard], Driver]) -> None:
    driver = opened(sdhc(write_protected=True))
    assert driver.read(0, BLOCK) == bytes(BLOCK)
    with pytest.raises(Refused, match="the card is write-protected"):
        driver.write(0, bytes(BLOCK))


def test_a_card_of_another_kind_or_one_that_never_gets_ready_is_refused(sd_library: Path) -> None:
    with pytest.raises(Refused, match="refuses CMD41"):
        Driver(sd_library, SdCard("mmc", 2048)).init()
    with pytest.raises(Refused, match="not ready 1000 ms after it was started"):
        Driver(sd_library, sdhc(never_ready=True)).init()


@pytest.mark.parametrize(
    ("offset", "size", "sentence"),
    [
        (MIB - BLOCK, 2 * BLOCK, "beyond the medium, which has 1024 KiB"),
        (1 << 40, BLOCK, "beyond the medium"),
        (100, BLOCK, "multiples of 512 bytes"),
        (0, 100, "multiples of 512 bytes"),
        (0, 0, "multiples of 512 bytes"),
    ],
)
def test_scratch_beyond_the_card_or_of_part_of_a_block_is_refused(
    opened: Callable[[SdCard], Driver], offset: int, size: int, sentence: str
) -> None:
    with pytest.raises(Refused, match=sentence):
        opened(sdhc()).open(offset, size)


# --- flash ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Chip:
    """A flash chip and its scratch stretch.

    ``begin`` is the offset of the stretch in the medium, ``address`` its address on the chip.
    """

    driver: str
    flash: type[Flash]
    card: str
    capacity: int
    page: int
    erase: int
    begin: int
    address: int


PROGRAM_END = {"nrf51-flash": 0x12345, "stm32f4-flash": 0x08045678, "mx25r6435f": 0x12345}
CHIPS = [
    Chip("nrf51-flash", Nrf51, "nrf-flash-0123456789abcdef", 256 << 10, 4, 1024, 0x20000, 0x20000),
    Chip(
        *("stm32f4-flash", Stm32f4, "stm32f4-flash-1fff7a101fff7a141fff7a18"),
        *(MIB, 4, 128 << 10, 512 << 10, 0x08080000),
    ),
    Chip("mx25r6435f", Qspi, "mx25r6435f", 8 * MIB, 256, 4096, 0x5000, 0x5000),
]


@pytest.fixture(scope="module", params=CHIPS, ids=lambda chip: chip.driver)
def chip(request: pytest.FixtureRequest) -> Chip:
    chosen: Chip = request.param
    return chosen


@pytest.fixture(scope="module")
def flash_library(chip: Chip, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp(chip.driver)
    return build_driver(chip.driver, directory, PROGRAM_END[chip.driver])


@pytest.fixture
def flash(chip: Chip) -> Flash:
    return chip.flash()


@pytest.fixture
def ready(flash_library: Path, chip: Chip, flash: Flash) -> Driver:
    """Initialised driver with four blocks that may be overwritten."""
    driver = Driver(flash_library, flash)
    driver.init()
    driver.open(chip.begin, 4 * chip.erase)
    return driver


def noise(size_bytes: int) -> bytes:
    return random.Random(1).randbytes(size_bytes)


@pytest.mark.slow
def test_flash_reports_its_identity(flash_library: Path, chip: Chip, flash: Flash) -> None:
    facts = Driver(flash_library, flash).init()
    assert facts.card == chip.card
    assert facts.capacity_bytes == chip.capacity
    assert (facts.page_bytes, facts.erase_block_bytes) == (chip.page, chip.erase)


def test_flash_is_erased_then_written_and_nothing_else_changes(
    ready: Driver, chip: Chip, flash: Flash
) -> None:
    flash.flash[:] = bytes(byte % 251 for byte in range(len(flash.flash)))
    before = bytes(flash.flash)
    content = noise(chip.page * 3)
    ready.erase(chip.erase, chip.erase * 2)
    ready.write(chip.erase * 2, content)
    assert ready.read(chip.erase * 2, len(content)) == content
    begin = chip.begin + chip.erase
    written = (b"\xff" * chip.erase) + content + b"\xff" * (chip.erase - len(content))
    assert flash.flash == before[:begin] + written + before[begin + len(written) :]


def test_a_worn_block_is_named(ready: Driver, chip: Chip, flash: Flash) -> None:
    flash.worn = {chip.address + chip.erase + chip.page}
    ready.erase(0, 4 * chip.erase)
    ready.write(0, bytes(2 * chip.page))
    place = f"{chip.address + chip.erase + chip.page:x}"
    with pytest.raises(Refused, match=f"block at 0x{place} fails to program: "):
        ready.write(chip.erase, bytes(2 * chip.page))


def test_a_block_that_does_not_erase_is_named(ready: Driver, chip: Chip, flash: Flash) -> None:
    flash.stuck = {chip.address + chip.erase}
    with pytest.raises(Refused, match=f"0x{chip.address + chip.erase:x} fails to erase: "):
        ready.erase(0, 2 * chip.erase)


def test_scratch_has_to_be_of_whole_blocks_of_the_flash(ready: Driver, chip: Chip) -> None:
    for offset, size in ((chip.begin + chip.page, chip.erase), (chip.begin, chip.page), (0, 0)):
        with pytest.raises(Refused, match=f"must be multiples of {chip.erase} bytes"):
            ready.open(offset, size)
    with pytest.raises(Refused, match=f"beyond the medium, which has {chip.capacity >> 10} KiB"):
        ready.open(chip.capacity - chip.erase, 2 * chip.erase)


def test_scratch_in_the_program_is_refused(ready: Driver, chip: Chip) -> None:
    if chip.driver == "mx25r6435f":
        ready.open(0, chip.erase)  # the program is elsewhere
        return
    end = PROGRAM_END[chip.driver] - (chip.address - chip.begin)
    overlapping, following = end // chip.erase * chip.erase, -(-end // chip.erase) * chip.erase
    with pytest.raises(Refused, match=f"the program, which ends at 0x{PROGRAM_END[chip.driver]:x}"):
        ready.open(overlapping, chip.erase)
    ready.open(following, chip.erase)


@pytest.mark.parametrize("chip", CHIPS[:1], indirect=True, ids=["nrf51-flash"])
def test_the_nrf51s_flash_is_left_read_only(ready: Driver, flash: Nrf51) -> None:
    flash.worn = {0x20000}
    ready.erase(0, 1024)
    with pytest.raises(Refused):
        ready.write(0, bytes(1024))
    assert flash.config == Nrf51.READ


@pytest.mark.parametrize("chip", CHIPS[1:2], indirect=True, ids=["stm32f4-flash"])
def test_the_stm32s_flash_is_left_locked_and_its_cache_empty(
    ready: Driver, chip: Chip, flash: Stm32f4
) -> None:
    access = flash.access
    ready.erase(0, chip.erase)
    assert (flash.is_locked, flash.cache_resets, flash.access) == (True, 1, access)
    flash.protected = {8}
    with pytest.raises(Refused, match="0x8080000 fails to program: it is write-protected"):
        ready.write(0, bytes(64))
    assert flash.is_locked
    flash.protected = set()
    ready.write(0, bytes(64))  # the earlier error is cleared
    with pytest.raises(Refused, match="after the small sectors, which are the first 131072 bytes"):
        ready.open(0, chip.erase)


@pytest.mark.parametrize("chip", CHIPS[2:], indirect=True, ids=["mx25r6435f"])
def test_a_flash_of_another_kind_is_refused(flash_library: Path, flash: Qspi) -> None:
    flash.identity = bytes.fromhex("c22815")
    with pytest.raises(Refused, match="no MX25R6435F answers on QSPI: its identity reads 0x1528c2"):
        Driver(flash_library, flash).init()
