"""The firmware's storage drivers on emulated boards, driven by lines of a plan."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from devices.description import DeviceDescription, SerialTransport, load_description
from devices.errors import BoardCommandFailed
from devices.firmware import EmulatedCard
from profiler.lab import start
from profiler.transports.serial.exchange import Silence
from profiler.transports.serial.line import Line
from profiler.transports.serial.session import SerialSession

pytestmark = [pytest.mark.emulated, pytest.mark.usefixtures("own_boards")]

MIB = 1 << 20
CARD, BIG_CARD = 64 * MIB, 4 << 30  # addressed by bytes, and by blocks
ARENA_BYTES = 8192


class StorageBoard:
    """A board whose storage is accessed by lines of a plan."""

    def __init__(self, session: SerialSession, description: DeviceDescription) -> None:
        assert description.storage is not None
        self.session = session
        self.page_bytes = description.storage.page_bytes
        self.scratch_offset = description.storage.scratch_offset_bytes

    def line(self, text: str) -> str:
        return self.session.line(text, Silence(quiet_s=0.3, limit_s=30.0))

    def facts(self) -> dict[str, str]:
        return dict(pair.split("=") for pair in self.line("storage").split())

    def transfer(self, method: str, offset: int, size_bytes: int, seed: int = 1) -> bytes:
        """Transfer a stretch of scratch of this size, and return the arena's contents after it.

        The seed decides the noise in the arena before the transfer.
        """
        self.line(f"scratch bytes={size_bytes} offset={offset}")
        self.line(f"arena bytes={size_bytes}")
        self.line(
            f"transfer id={seed} method={method} bytes={size_bytes} most=1 min_ns=0 tail_ns=0"
        )
        return self.session.read(0, size_bytes)


@contextmanager
def opened(name: str, **emulator: object) -> Iterator[StorageBoard]:
    """Start and open a board, with changes to its emulator."""
    description = load_description(name)
    assert description.emulator is not None
    changed = description.emulator.model_copy(update=emulator)
    description = description.model_copy(update={"emulator": changed})
    with start(description, lambda _what: None) as running:
        transport = running.description.transport
        assert isinstance(transport, SerialTransport)
        assert transport.port is not None
        session = SerialSession(Line(transport.port, transport.baud), name, 20.0)
        session.open()
        try:
            session.hello()
            yield StorageBoard(session, description)
        finally:
            session.close()


def card_board(size_bytes: int) -> AbstractContextManager[StorageBoard]:
    return opened("emulated-m3-sd", card=EmulatedCard(size_bytes=size_bytes))


def wired_card_board() -> AbstractContextManager[StorageBoard]:
    return opened("emulated-m4f-sd")


def flash_board() -> AbstractContextManager[StorageBoard]:
    return opened("emulated-m0-flash")


@pytest.fixture(
    scope="module",
    params=[lambda: card_board(CARD), lambda: card_board(BIG_CARD), wired_card_board, flash_board],
    ids=["sdsc", "sdhc", "sdsc on a board without a slot", "nrf51"],
)
def board(request: pytest.FixtureRequest, own_boards: None) -> Iterator[StorageBoard]:
    with request.param() as board:
        yield board


@pytest.mark.parametrize("size_bytes", [CARD, BIG_CARD])
def test_a_card_reports_its_identity(size_bytes: int) -> None:
    with card_board(size_bytes) as board:
        assert board.facts() == {
            "card": "sd-aa-XY-QEMU!-0.1-deadbeef-2006-02",
            "capacity_bytes": str(size_bytes),
            "page_bytes": "512",
            "erase_block_bytes": "0",
        }


def test_flash_reports_its_identity() -> None:
    with flash_board() as board:
        facts = board.facts()
    assert facts.pop("card").startswith("nrf-flash-")
    assert facts == {
        "capacity_bytes": str(256 << 10),
        "page_bytes": "4",
        "erase_block_bytes": "1024",
    }


@pytest.mark.parametrize("size_bytes", [1024, 4096])
def test_written_data_is_read_back_and_its_neighbours_are_unchanged(
    board: StorageBoard, size_bytes: int
) -> None:
    begin = board.scratch_offset + 64 * 1024
    places = [begin + index * size_bytes for index in range(3)]
    before = [board.transfer("read", place, size_bytes) for place in places]
    written = board.transfer("write", places[1], size_bytes, seed=size_bytes)
    after = [board.transfer("read", place, size_bytes) for place in places]
    assert after == [before[0], written, before[2]]
    assert written != before[1]


def test_blocks_can_be_written_one_by_one() -> None:
    begin = BIG_CARD - 4 * 512  # also the last block
    with card_board(BIG_CARD) as board:
        written = [board.transfer("write", begin + n * 512, 512, seed=n) for n in range(4)]
        assert board.transfer("read", begin, 2048) == b"".join(written)


def test_erased_flash_has_all_bits_set() -> None:
    with flash_board() as board:
        board.transfer("write", board.scratch_offset, 2048)
        board.line(f"scratch bytes=1024 offset={board.scratch_offset + 1024}")
        board.line("transfer id=1 method=erase bytes=1024 most=1 min_ns=0 tail_ns=0")
        content = board.transfer("read", board.scratch_offset, 2048)
    assert content[1024:] == b"\xff" * 1024
    assert content[:1024] != b"\xff" * 1024


@pytest.mark.parametrize(
    ("scratch", "sentence"),
    [
        ("bytes=1024 offset=0", "scratch at 0x00 would overwrite the program, which ends at 0x"),
        ("bytes=1024 offset=262144", "beyond the medium, which has 256 KiB"),
        ("bytes=512 offset=172032", "multiples of 1024 bytes"),
    ],
)
def test_scratch_over_the_program_or_beyond_the_flash_is_refused(
    scratch: str, sentence: str
) -> None:
    with flash_board() as board, pytest.raises(BoardCommandFailed, match=sentence):
        board.line(f"scratch {scratch}")


def test_a_card_too_small_for_the_scratch_is_an_error() -> None:
    with card_board(CARD) as board:
        scratch = f"scratch bytes={CARD} offset={board.scratch_offset}"
        with pytest.raises(BoardCommandFailed, match="beyond the medium, which has 65536 KiB"):
            board.line(scratch)


def test_a_missing_card_is_an_error() -> None:
    with opened("emulated-m3-sd", card=None) as board:
        with pytest.raises(BoardCommandFailed, match=r"no card answers on SPI .*is one inserted"):
            board.line("storage")
        with pytest.raises(BoardCommandFailed, match="no card answers on SPI"):
            board.line("scratch bytes=4096 offset=0")
