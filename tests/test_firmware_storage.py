"""The firmware's storage drivers, in front of stand-ins for hardware and on emulated boards."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sd_card_stand_in import BLOCK, Faults, Kind, SdCard
from tests.storage_support import Driver, Refused, build_driver

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
def test_a_card_says_what_it_is(sd_library: Path, kind: Kind) -> None:
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
def test_what_was_written_is_read_and_nothing_else_changes(
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


WORN, BAD = 70, 73


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


def test_after_a_failure_the_card_goes_on(opened: Callable[[SdCard], Driver]) -> None:
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


def test_a_card_that_is_pulled_is_missed(opened: Callable[[SdCard], Driver]) -> None:
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


def test_what_is_no_sd_card_is_refused(sd_library: Path) -> None:
    with pytest.raises(Refused, match="refuses CMD41"):
        Driver(sd_library, SdCard("mmc", 2048)).init()
    with pytest.raises(Refused, match="not ready 1000 ms after it was started"):
        Driver(sd_library, sdhc(never_ready=True)).init()


@pytest.mark.parametrize(
    ("offset", "size", "sentence"),
    [
        (MIB - BLOCK, 2 * BLOCK, "beyond the medium, which has 1024 KiB"),
        (1 << 40, BLOCK, "beyond the medium"),
        (100, BLOCK, "multiple of 512 bytes"),
        (0, 100, "multiple of 512 bytes"),
        (0, 0, "multiple of 512 bytes"),
    ],
)
def test_scratch_that_the_card_has_not_is_refused(
    opened: Callable[[SdCard], Driver], offset: int, size: int, sentence: str
) -> None:
    with pytest.raises(Refused, match=sentence):
        opened(sdhc()).open(offset, size)
