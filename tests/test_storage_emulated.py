"""The firmware's storage drivers on emulated boards, through the lines of a plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from devices.description import DeviceDescription, SerialTransport, load_description
from devices.firmware import EmulatedCard
from profiler.errors import BoardCommandFailed
from profiler.lab import start
from profiler.transports.serial.exchange import Silence
from profiler.transports.serial.line import Line
from profiler.transports.serial.session import SerialSession

MIB = 1 << 20
CARD, BIG_CARD = 64 * MIB, 4 << 30  # addressed by bytes; by blocks
ARENA_BYTES = 8192


class StorageBoard:
    """A board whose storage is asked for by lines."""

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
        """Of a stretch that holds just this; what the arena has afterwards. It has noise, of this
        seed, before."""
        self.line(f"scratch bytes={size_bytes} offset={offset}")
        self.line(f"arena bytes={size_bytes}")
        self.line(
            f"transfer id={seed} method={method} bytes={size_bytes} most=1 min_ns=0 tail_ns=0"
        )
        return self.session.read(0, size_bytes)


Opened = Callable[..., StorageBoard]


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    """Started once for all tests of this module."""
    boards: dict[str, StorageBoard] = {}
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))

        def open_board(name: str, **emulator: object) -> StorageBoard:
            key = f"{name} {emulator}"
            if key not in boards:
                description = load_description(name)
                assert description.emulator is not None
                changed = description.emulator.model_copy(update=emulator)
                description = description.model_copy(update={"emulator": changed})
                running = stack.enter_context(start(description, lambda _what: None))
                transport = running.description.transport
                assert isinstance(transport, SerialTransport)
                assert transport.port is not None
                session = SerialSession(Line(transport.port, transport.baud), name, 20.0)
                session.open()
                stack.callback(session.close)
                session.hello()
                boards[key] = StorageBoard(session, description)
            return boards[key]

        yield open_board


@pytest.fixture(
    params=[
        ("emulated-m3-sd", {"card": EmulatedCard(size_bytes=CARD)}),
        ("emulated-m3-sd", {"card": EmulatedCard(size_bytes=BIG_CARD)}),
        ("emulated-m0-flash", {}),
    ],
    ids=["sdsc", "sdhc", "nrf51"],
)
def board(request: pytest.FixtureRequest, opened: Opened) -> StorageBoard:
    name, emulator = request.param
    return opened(name, **emulator)


def test_storage_says_what_it_is(opened: Opened) -> None:
    for size_bytes in (CARD, BIG_CARD):
        board = opened("emulated-m3-sd", card=EmulatedCard(size_bytes=size_bytes))
        assert board.facts() == {
            "card": "sd-aa-XY-QEMU!-0.1-deadbeef-2006-02",
            "capacity_bytes": str(size_bytes),
            "page_bytes": "512",
            "erase_block_bytes": "0",
        }
    facts = opened("emulated-m0-flash").facts()
    assert facts.pop("card").startswith("nrf-flash-")
    assert facts == {
        "capacity_bytes": str(256 << 10),
        "page_bytes": "4",
        "erase_block_bytes": "1024",
    }


@pytest.mark.parametrize("size_bytes", [1024, 4096])
def test_what_was_written_is_read_and_its_neighbours_are_as_before(
    board: StorageBoard, size_bytes: int
) -> None:
    begin = board.scratch_offset + 64 * 1024
    places = [begin + index * size_bytes for index in range(3)]
    before = [board.transfer("read", place, size_bytes) for place in places]
    written = board.transfer("write", places[1], size_bytes, seed=size_bytes)
    after = [board.transfer("read", place, size_bytes) for place in places]
    assert after == [before[0], written, before[2]]
    assert written != before[1]


def test_blocks_are_written_one_by_one_too(opened: Opened) -> None:
    board = opened("emulated-m3-sd", card=EmulatedCard(size_bytes=BIG_CARD))
    begin = BIG_CARD - 4 * 512  # also the last block
    written = [board.transfer("write", begin + n * 512, 512, seed=n) for n in range(4)]
    assert board.transfer("read", begin, 2048) == b"".join(written)


def test_erased_flash_has_all_bits_set(opened: Opened) -> None:
    board = opened("emulated-m0-flash")
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
        ("bytes=512 offset=131072", "a multiple of 1024 bytes"),
    ],
)
def test_scratch_that_the_flash_has_not_free_is_refused(
    opened: Opened, scratch: str, sentence: str
) -> None:
    with pytest.raises(BoardCommandFailed, match=sentence):
        opened("emulated-m0-flash").line(f"scratch {scratch}")


def test_a_card_that_is_too_small_or_not_there_is_said(opened: Opened) -> None:
    small = opened("emulated-m3-sd", card=EmulatedCard(size_bytes=CARD))
    with pytest.raises(BoardCommandFailed, match="beyond the medium, which has 65536 KiB"):
        small.line(f"scratch bytes={CARD} offset={small.scratch_offset}")
    none = opened("emulated-m3-sd", card=None)
    with pytest.raises(BoardCommandFailed, match=r"no card answers on SPI .*is one inserted"):
        none.line("storage")
    with pytest.raises(BoardCommandFailed, match="no card answers on SPI"):
        none.line("scratch bytes=4096 offset=0")
