"""A board on a serial line with noise, lost frames, pulled cables and resets.

The board is a stand-in; tests of emulated boards are in ``test_serial_emulated.py``.
"""

from __future__ import annotations

import errno
import os
import random
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import serial

from devices.description import DeviceDescription, load_description
from devices.documents.document import dump_yaml
from devices.errors import (
    BoardCommandFailed,
    BoardUnreachable,
    FirmwareMismatch,
    MeasurementInvalid,
)
from devices.operation import OpSpec
from devices.program import COMMAND
from profiler.boards.base import RebootError
from profiler.boards.serial import SerialBoard
from profiler.building.firmware_image import FirmwareIdentity
from profiler.script.records import parse_results
from profiler.transports.serial import pace
from profiler.transports.serial.exchange import Silence, StrangerError
from profiler.transports.serial.frames import Decoder, Frame, Kind, encode
from profiler.transports.serial.line import Line, LineDownError
from profiler.transports.serial.session import SerialSession
from tests.support.boards.measuring import unopened_ppk2
from tests.support.boards.serial import (
    FIRMWARE_SHA256,
    KERNELS_SHA256,
    Cable,
    Noise,
    StandInBoard,
    undisturbed,
)

LONG_LINE = "op id=4 " + "attributes=1,2,3,4 " * 20
PLAN = "\n".join(
    [
        "joulewright-plan 1",
        "arena bytes=65536",
        "tries count=2",
        "scratch bytes=8192 offset=512",
        "idle id=0 duration_ns=2000000",
        "op id=1 copies=1 first=0 min_ns=1000000 max_ns=4000000 kind=relu.forward attributes=432",
        "step id=2 first=0 min_ns=1000000 max_ns=4000000 buffers=1 calls=2",
        "buffer bytes=1728 fill=signed:3f800000",
        "call kind=relu.forward attributes=432 scalars=- reads=0 writes=0",
        "call kind=relu.forward attributes=432 scalars=- reads=0 writes=0",
        "transfer id=3 method=read bytes=512 most=4 min_ns=1000000 tail_ns=0",
        "end",
        "",
    ]
)
WINDOWS = [0, 1, 2, 3]


class Bench:
    """A stand-in board on a cable, and the sessions with it."""

    def __init__(self, stack: ExitStack, directory: Path) -> None:
        self._stack = stack
        self._directory = directory

    def connect(self, *, tcp: bool = False, **options: object) -> None:
        self.board = StandInBoard(**options)  # type: ignore[arg-type]
        self._stack.callback(self.board.close)
        self.cable = Cable(self.board.far_end, None if tcp else self._directory)
        self._stack.callback(self.cable.close)

    def session(self, deadline_s: float = 10.0) -> SerialSession:
        session = SerialSession(Line(self.cable.port, 115_200), "board", deadline_s)
        session.open()
        self._stack.callback(session.close)
        return session

    def description(self, deadline_s: float = 10.0) -> DeviceDescription:
        described = load_description("emulated-m4f")
        reached = {"port": self.cable.port, "deadline_s": deadline_s}
        return described.model_copy(
            update={"transport": described.transport.model_copy(update=reached)}
        )

    def serial_board(self, deadline_s: float = 10.0) -> SerialBoard:
        expected = FirmwareIdentity("mps2-an386", FIRMWARE_SHA256, KERNELS_SHA256)
        board = SerialBoard(self.description(deadline_s), expected)
        return self._stack.enter_context(board)

    def prepared(self, deadline_s: float = 10.0) -> SerialBoard:
        board = self.serial_board(deadline_s)
        board.prepare(lambda _what: None)
        return board


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with ExitStack() as stack:
        yield Bench(stack, tmp_path)


class Lossy:
    """A disturbance that drops the frames that ``loses`` chooses, and passes on the others."""

    def __init__(self, loses: Callable[[Frame], bool]) -> None:
        self._loses = loses
        self._decoder = Decoder()

    def __call__(self, data: bytes) -> bytes:
        passing = [frame for frame in self._decoder.feed(data) if not self._loses(frame)]
        return b"".join(map(encode, passing))


class Once:
    """Choose one frame of this kind, the first unless ``number`` says otherwise."""

    def __init__(self, kind: Kind, number: int = 1) -> None:
        self._kind = kind
        self._number = number
        self._seen = 0

    @property
    def has_chosen(self) -> bool:
        return self._seen >= self._number

    def __call__(self, frame: Frame) -> bool:
        self._seen += frame.kind is self._kind
        return frame.kind is self._kind and self._seen == self._number


def at_random(share: float, seed: int) -> Callable[[Frame], bool]:
    drawn = random.Random(seed)
    return lambda _frame: drawn.random() < share


def run(board: SerialBoard, wait: Callable[[float], None] = lambda _s: None) -> list[int]:
    """Run the plan and return the ids of its windows."""
    outcome = board.run_plan(PLAN, expected_s=0.1, wait=wait)
    if outcome.cut is not None:
        raise outcome.cut
    results = parse_results(outcome.results)
    assert results.end is not None
    return [window.id for window in results.windows]


# --- an undisturbed line -------------------------------------------------------------------------
@pytest.mark.parametrize("tcp", [False, True])
def test_a_board_reports_its_identity(bench: Bench, tcp: bool) -> None:
    bench.connect(tcp=tcp)
    board = bench.prepared()
    facts = board.facts
    assert facts.identity.cpu == "Cortex-M4 r0p1"
    assert facts.identity.kernel == f"firmware {FIRMWARE_SHA256[:8]}"
    assert facts.identity.serial == "0123abcd"
    assert facts.identity.cpu_frequency_hz == 25e6
    assert facts.available_bytes == 131_072
    assert board.build.kernels_sha256 == KERNELS_SHA256
    assert board.build.compiler == "GCC 12.2.1"
    assert board.throttled() is None
    assert board.temperature_c() is None


def test_a_plan_leaves_the_records_of_its_windows(bench: Bench) -> None:
    bench.connect()
    board = bench.prepared()
    outcome = board.run_plan(PLAN, expected_s=0.1, wait=lambda _s: None)
    results = parse_results(outcome.results)
    assert [window.id for window in results.windows] == WINDOWS
    assert results.windows[1].executions == 7
    assert results.is_direct
    assert results.start is not None
    assert results.end is not None
    assert results.start.boot_id == results.end.boot_id == board.facts.boot_id
    assert (outcome.samples, outcome.cut) == ("", None)
    assert bench.board.executed[1:-1] == PLAN.splitlines()[1:-1]


def test_a_board_reports_workspace_sizes_and_its_clock(bench: Bench) -> None:
    bench.connect()
    board = bench.prepared()
    specs = [OpSpec.parse("relu.forward elements=432"), OpSpec.parse("relu.forward elements=7")]
    needed = board.workspace_bytes(specs)
    lines = ["kernel kind=relu.forward attributes=432", "kernel kind=relu.forward attributes=7"]
    assert needed == dict(zip(specs, map(len, lines), strict=True))
    assert bench.board.executed == lines
    reading = board.clock()
    assert reading.board_ns == 1_000_000
    assert reading.asked_s < reading.answered_s


def test_the_arena_is_written_and_read_at_any_place(bench: Bench) -> None:
    bench.connect()
    session = bench.session()
    session.hello()
    data = random.Random(1).randbytes(70_000)
    session.write(123, data)
    assert bench.board.arena[123 : 123 + len(data)] == data
    assert session.read(123, len(data)) == data
    with pytest.raises(BoardCommandFailed, match="outside the arena"):
        session.read(131_072, 1)


def test_most_bytes_of_an_upload_are_data(bench: Bench) -> None:
    bench.connect()
    session = bench.session()
    session.hello()
    sent: list[int] = []

    def count(data: bytes) -> bytes:
        sent.append(len(data))
        return data

    bench.cable.disturb(count, undisturbed)
    session.write(0, random.Random(1).randbytes(65_536))
    assert 65_536 / sum(sent) > 0.8


def test_nothing_is_sent_while_a_window_is_open(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Unlike a board, the stand-in may be late to say that a window opens, and is asked again then.
    monkeypatch.setattr(pace, "_SHORTEST_S", 2.0)
    bench.connect(window_s=0.3)
    session = bench.session()
    session.hello()
    for number in range(3):
        assert f"id={number} " in session.line(f"idle id={number}", Silence(5.0, 10.0))
    assert bench.board.heard_in_windows == 0


def test_a_window_may_last_longer_than_expected(bench: Bench) -> None:
    bench.connect(window_s=0.5)
    session = bench.session()
    session.hello()
    assert "id=0 " in session.line("idle id=0", Silence(0.05, 10.0))
    assert "id=1 " in session.line("idle id=1", Silence(0.05, 10.0))
    assert bench.board.executed == ["idle id=0", "idle id=1"]


def test_a_caller_is_called_back_about_twice_a_second_while_waiting(bench: Bench) -> None:
    bench.connect(window_s=0.4)
    waited_s: list[float] = []
    assert run(bench.prepared(), waited_s.append) == WINDOWS
    assert waited_s == sorted(waited_s)
    assert waited_s[0] >= 0.5
    assert len(waited_s) >= 2


# --- noise and lost frames -----------------------------------------------------------------------
@pytest.mark.slow
@pytest.mark.parametrize(("tcp", "seed"), [(False, 1), (True, 2)])
def test_a_plan_survives_one_percent_of_bytes_flipped_dropped_or_doubled(
    bench: Bench, tcp: bool, seed: int
) -> None:
    bench.connect(tcp=tcp)
    bench.cable.disturb(Noise(0.01, seed), Noise(0.01, seed + 100))
    board = bench.prepared()
    assert run(board) == WINDOWS
    assert bench.board.executed == ["health", *PLAN.splitlines()[1:-1], "health"]


def test_data_survives_noise_in_both_directions(bench: Bench) -> None:
    bench.connect()
    bench.cable.disturb(Noise(0.01, 1), Noise(0.01, 101))
    session = bench.session()
    session.hello()
    data = random.Random(1).randbytes(1000)
    session.write(64, data)
    assert bench.board.arena[64 : 64 + len(data)] == data
    assert session.read(64, len(data)) == data


@pytest.mark.parametrize(
    "kind", [k for k in Kind if k not in (Kind.REFUSED, Kind.RESTART, Kind.STRANGER)]
)
def test_any_frame_may_be_lost_without_a_line_being_executed_twice(
    bench: Bench, kind: Kind
) -> None:
    bench.connect()
    lost = Once(kind)
    # The board says what it expects after a piece was lost.
    piece = Once(Kind.WRITE, 2) if kind is Kind.EXPECTED else lost
    bench.cable.disturb(Lossy(piece), Lossy(lost))
    board = bench.prepared()
    assert run(board) == WINDOWS
    assert bench.board.executed == ["health", *PLAN.splitlines()[1:-1], "health"]
    data = random.Random(1).randbytes(5000)
    board._session.write(64, data)
    assert bench.board.arena[64 : 64 + len(data)] == data
    assert board._session.read(64, len(data)) == data
    assert lost.has_chosen


def test_a_restart_is_noticed_though_the_report_of_it_is_lost(bench: Bench) -> None:
    bench.connect()
    board = bench.prepared()
    lost = Once(Kind.STRANGER)
    bench.cable.disturb(undisturbed, Lossy(lost))
    bench.board.reset()
    with pytest.raises(RebootError, match="restarted"):
        run(board)
    assert lost.has_chosen
    assert bench.board.executed == []


def test_pieces_whose_answer_was_lost_are_repeated_at_the_same_size(bench: Bench) -> None:
    bench.connect()
    session = bench.session()
    session.hello()
    pieces: list[Frame] = []

    def second_piece(frame: Frame) -> bool:
        pieces.append(frame)
        return len(pieces) == 2

    bench.cable.disturb(Lossy(second_piece), Lossy(Once(Kind.OK)))
    session.line(LONG_LINE, Silence(0.05, 10.0))
    assert bench.board.executed == [LONG_LINE]


@pytest.mark.parametrize("seed", range(2))
def test_a_third_of_all_frames_may_be_lost(bench: Bench, seed: int) -> None:
    bench.connect()
    bench.cable.disturb(Lossy(at_random(0.33, seed)), Lossy(at_random(0.33, seed + 100)))
    session = bench.session(deadline_s=120.0)
    session.hello()
    answers = [session.line(f"{LONG_LINE}{n}", Silence(0.05, 120.0)) for n in range(2)]
    assert bench.board.executed == [f"{LONG_LINE}{n}" for n in range(2)]
    assert all(text.startswith("window id=4 ") and text.endswith("tries=1") for text in answers)
    data = random.Random(seed).randbytes(1000)
    session.write(0, data)
    assert bench.board.arena[: len(data)] == data


def test_frames_of_an_earlier_session_are_ignored(bench: Bench) -> None:
    bench.connect()
    first = bench.session()
    first.hello()
    first.line("arena bytes=64")
    first.close()
    bench.board._line.sendall(encode(Frame(Kind.OK, first.number, 7, 0, b"\0\0")) * 5)
    second = bench.session()
    second.hello()
    assert second.line("health").startswith("clock_ns=")


# --- resets, faults and refusals -----------------------------------------------------------------
def test_a_reset_in_a_plan_is_an_error_and_the_board_can_be_prepared_again(bench: Bench) -> None:
    bench.connect()
    board = bench.prepared()
    boot_id = board.facts.boot_id
    bench.board.before_window = lambda line: bench.board.reset() if "id=1 " in line else None
    with pytest.raises(RebootError, match=r"restarted.*check its power supply"):
        run(board)
    bench.board.before_window = lambda _line: None
    board.prepare(lambda _what: None)
    assert board.facts.boot_id != boot_id
    assert run(board) == WINDOWS


def test_windows_before_a_reset_are_kept(bench: Bench) -> None:
    """Else a board that always resets in the same window would never get past those before it."""
    bench.connect()
    board = bench.prepared()
    bench.board.before_window = lambda line: bench.board.reset() if "id=1 " in line else None
    outcome = board.run_plan(PLAN, expected_s=0.1, wait=lambda _s: None)
    assert isinstance(outcome.cut, RebootError)
    assert [window.id for window in parse_results(outcome.results).windows] == [0]


def test_the_error_after_a_fault_quotes_the_firmware(bench: Bench) -> None:
    bench.connect()
    board = bench.prepared()
    bench.board.hello["fault"] = "hard fault at pc 0x1234"
    bench.board.reset()
    with pytest.raises(RebootError, match="its firmware reports: hard fault at pc 0x1234"):
        run(board)


def test_a_refused_line_ends_the_plan_and_keeps_its_records(bench: Bench) -> None:
    bench.connect()
    board = bench.prepared()
    outcome = board.run_plan(
        PLAN.replace("step id", "stoop id"), expected_s=0.1, wait=lambda _s: None
    )
    assert isinstance(outcome.cut, BoardCommandFailed)
    assert "refuses 'stoop id=2" in str(outcome.cut)
    assert "stoop is not a known line" in str(outcome.cut)
    assert [window.id for window in parse_results(outcome.results).windows] == [0, 1]


def test_a_line_too_long_for_the_firmware_is_not_sent(bench: Bench) -> None:
    bench.connect()
    session = bench.session()
    session.hello()
    with pytest.raises(BoardCommandFailed, match="has 600 bytes; the firmware takes 512"):
        session.line("x" * 600)
    assert bench.board.executed == []


@pytest.mark.parametrize(
    ("key", "found", "said"),
    [
        ("firmware", "ab" * 32, "firmware is abababab instead of f1f1f1f1"),
        ("kernels", "ab" * 32, "kernels is abababab instead of cececece"),
        ("board", "microbit", "board is microbit instead of mps2-an386"),
        ("clock_hz", "16000000", "clock_hz is 16000000 instead of 25000000"),
        ("ram_bytes", "65536", "ram_bytes is 65536 instead of 4194304"),
        ("flash_bytes", "262144", "flash_bytes is 262144 instead of 4194304"),
        ("protocol", "2", "protocol is 2 instead of 1"),
    ],
)
def test_firmware_that_differs_from_the_description_is_refused_with_the_remedy(
    bench: Bench, key: str, found: str, said: str
) -> None:
    bench.connect(hello={key: found})
    with pytest.raises(FirmwareMismatch) as refusal:
        bench.prepared()
    assert said in str(refusal.value)
    assert f"with: {COMMAND} flash --device emulated-m4f" in str(refusal.value)


def test_the_command_that_flashes_names_the_file_that_describes_the_board(
    bench: Bench, tmp_path: Path
) -> None:
    bench.connect(hello={"board": "microbit"})
    path = tmp_path / "my board.yaml"
    path.write_text(dump_yaml(bench.description()))
    board = SerialBoard(load_description(str(path)))
    with board, pytest.raises(FirmwareMismatch) as refusal:
        board.prepare(lambda _what: None)
    assert f"with: {COMMAND} flash --device '{path}'" in str(refusal.value)


def test_a_board_whose_counter_stands_still_is_refused(bench: Bench) -> None:
    bench.connect(hello={"counter": "none"})
    with pytest.raises(MeasurementInvalid, match="no counter of the board advances"):
        bench.prepared()


def test_ctrl_c_in_a_window_keeps_finished_windows_and_restarts_the_board(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("profiler.boards.serial._RESTART_LIMIT_S", 60.0)
    bench.connect()
    board = bench.prepared()
    reached, over = threading.Event(), threading.Event()

    def hold(line: str) -> None:
        if "id=1 " in line:
            reached.set()
            over.wait(600)

    def interrupt(_passed_s: float) -> None:
        if reached.is_set() and board._session.in_window:
            raise KeyboardInterrupt

    bench.board.in_window = hold
    outcome = board.run_plan(PLAN, expected_s=0.1, wait=interrupt)
    assert isinstance(outcome.cut, KeyboardInterrupt)
    results = parse_results(outcome.results)
    assert [window.id for window in results.windows] == [0]
    assert results.end is None
    threading.Timer(0.5, over.set).start()  # the board hears nothing before that
    board.close()
    assert bench.board.restarts == 1


# --- pulled cables, silence and ports ------------------------------------------------------------
@pytest.mark.parametrize("tcp", [False, True])
@pytest.mark.parametrize("in_window", [False, True])
def test_a_cable_pulled_and_plugged_in_again_costs_only_time(
    bench: Bench, tcp: bool, in_window: bool
) -> None:
    bench.connect(tcp=tcp)
    board = bench.prepared()

    def pull(line: str) -> None:
        if "id=2 " in line or "id=3 " in line:
            bench.cable.pull()
            threading.Timer(0.6, bench.cable.plug).start()
            if not in_window:
                bench.board.window_s = 0.0

    bench.board.before_window = pull
    bench.board.window_s = 0.2
    assert run(board) == WINDOWS
    assert bench.board.executed == ["health", *PLAN.splitlines()[1:-1], "health"]


def test_the_port_of_a_board_that_its_meter_feeds_is_awaited(bench: Bench) -> None:
    bench.connect()
    bench.cable.pull()
    expected = FirmwareIdentity("mps2-an386", FIRMWARE_SHA256, KERNELS_SHA256)
    missing = pytest.raises(BoardUnreachable, match="the port does not exist")
    fed = {"meter": unopened_ppk2()}
    with missing, SerialBoard(bench.description(), expected):
        pass
    with missing, SerialBoard(bench.description(0.3).model_copy(update=fed), expected):
        pass
    threading.Timer(0.5, bench.cable.plug).start()
    with SerialBoard(bench.description(60.0).model_copy(update=fed), expected) as board:
        board.prepare(lambda _what: None)


def shorten(session: SerialSession, usual_s: float, deadline_s: float) -> None:
    """Change the deadline once there is a fault: a busy computer may need longer before that."""
    wire, exchange = session._wire, session._exchange
    assert session._deadline_s == wire._deadline_s == exchange.deadline_s == usual_s
    session._deadline_s = wire._deadline_s = exchange.deadline_s = deadline_s


@pytest.mark.parametrize("tcp", [False, True])
def test_a_cable_that_stays_pulled_ends_the_plan_at_the_deadline(bench: Bench, tcp: bool) -> None:
    bench.connect(tcp=tcp)
    board = bench.prepared(deadline_s=60.0)

    def pull(line: str) -> None:
        if "id=3 " in line:
            shorten(board._session, 60.0, 0.8)
            bench.cable.pull()

    bench.board.before_window = pull
    outcome = board.run_plan(PLAN, expected_s=0.1, wait=lambda _s: None)
    assert isinstance(outcome.cut, BoardUnreachable)
    assert "the connection was lost and did not come back within 0." in str(outcome.cut)
    assert bench.cable.port in str(outcome.cut)
    assert [window.id for window in parse_results(outcome.results).windows] == [0, 1, 2]


def nothing(_data: bytes) -> bytes:
    return b""


@pytest.mark.slow
def test_a_board_that_stops_answering_is_an_error_at_the_deadline(bench: Bench) -> None:
    bench.connect()
    session = bench.session(deadline_s=60.0)
    session.hello()
    bench.cable.disturb(nothing, nothing)
    shorten(session, 60.0, 0.6)
    with pytest.raises(BoardUnreachable, match=r"has not answered for 0.6 s. Check that"):
        session.line("health")


def test_a_board_that_stops_answering_in_a_window_is_an_error(bench: Bench) -> None:
    bench.connect()
    session = bench.session(deadline_s=60.0)
    session.hello()
    silence: Any = SimpleNamespace(quiet_s=0.1, limit_s=60.0)

    def loses(frame: Frame) -> bool:
        if frame.kind is Kind.STARTED:  # only from now on, since the window may open late
            silence.limit_s = 0.8
        return frame.kind is Kind.DONE

    bench.cable.disturb(undisturbed, Lossy(loses))
    with pytest.raises(BoardUnreachable, match=r"did not answer within 0.8 s"):
        session.line("idle id=0", silence)


@pytest.mark.slow
def test_errors_distinguish_a_silent_device_from_one_with_another_protocol(
    bench: Bench,
) -> None:
    bench.connect()
    session = bench.session(deadline_s=0.6)
    bench.cable.disturb(nothing, lambda _data: b"")
    with pytest.raises(BoardUnreachable) as silent:
        session.hello()
    assert "did not answer within 0.6 s. Check that it is powered" in str(silent.value)
    bench.cable.disturb(undisturbed, lambda data: b"login: \x00" * 3)
    said = ""
    for deadline_s in (0.6, 6.0, 60.0):  # the data of a busy computer may come later
        with pytest.raises(BoardUnreachable) as other:
            session.hello(deadline_s)
        said = str(other.value)
        if "sends" in said:
            break
    assert "it sends data that are not the protocol's" in said


@pytest.mark.parametrize("key", ["frame_bytes", "window", "line_bytes"])
@pytest.mark.parametrize("value", ["0", "-1", "65536", "9" * 5000, "x", "", "١"])
def test_implausible_limits_of_a_firmware_are_refused(bench: Bench, key: str, value: str) -> None:
    bench.connect(hello={key: value})
    with pytest.raises(BoardCommandFailed, match=f"the firmware's hello has {key} '.*'; allowed"):
        bench.session().hello()


@pytest.mark.parametrize(
    ("kind", "payload"),
    [(kind, bytes(length)) for kind in (Kind.OK, Kind.DONE, Kind.REFUSED) for length in (0, 1)]
    + [(Kind.EXPECTED, bytes(length)) for length in (0, 1, 3)],
)
def test_answers_without_their_numbers_are_ignored(
    bench: Bench, kind: Kind, payload: bytes
) -> None:
    bench.connect()
    session = bench.session()
    session.hello()

    def preceded(data: bytes) -> bytes:
        return b"".join(
            encode(Frame(kind, frame.session, frame.sequence, 0, payload)) + encode(frame)
            for frame in Decoder().feed(data)
        )

    bench.cable.disturb(undisturbed, preceded)
    assert session.line("kernel conv2d.forward") == str(len("kernel conv2d.forward"))


def test_control_characters_of_a_firmware_do_not_reach_messages(bench: Bench) -> None:
    bench.connect(hello={"board": "a\x1b[31mb"})
    assert bench.session().hello()["board"] == "a\N{REPLACEMENT CHARACTER}[31mb"


@pytest.mark.parametrize("tcp", [False, True])
def test_a_port_in_use_by_another_profiler_is_refused(bench: Bench, tcp: bool) -> None:
    bench.connect(tcp=tcp)
    first = bench.session()
    with pytest.raises(BoardUnreachable, match="another program uses this port"):
        bench.session()
    first.hello()
    first.close()
    bench.session().hello()


def test_a_missing_port_is_an_error_that_lists_the_existing_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from serial.tools.list_ports_common import ListPortInfo

    ports = [ListPortInfo("/dev/ttyUSB7"), ListPortInfo("/dev/ttyACM3")]
    monkeypatch.setattr("serial.tools.list_ports.comports", lambda: ports)
    with pytest.raises(BoardUnreachable, match="existing ports: /dev/ttyACM3, /dev/ttyUSB7"):
        Line("/dev/ttyNOT", 115_200).open()
    monkeypatch.setattr("serial.tools.list_ports.comports", list)
    with pytest.raises(BoardUnreachable, match=r"/dev/ttyNOT: .* this computer has no ports"):
        Line("/dev/ttyNOT", 115_200).open()


def test_without_permission_for_a_port_the_error_names_the_group(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(*_arguments: object, **_options: object) -> None:
        raise serial.SerialException(errno.EACCES, "could not open port: Permission denied")

    monkeypatch.setattr("serial.serial_for_url", refuse)
    with pytest.raises(BoardUnreachable, match="sudo usermod -aG dialout "):
        Line(str(tmp_path / "gone"), 115_200).open()
    port = tmp_path / "port"
    port.touch()
    os.chown(port, -1, os.getgid())
    import grp

    with pytest.raises(BoardUnreachable, match=f"-aG {grp.getgrgid(os.getgid()).gr_name} "):
        Line(str(port), 115_200).open()


@pytest.mark.parametrize(
    ("port", "said"),
    [
        ("socket://127.0.0.1:1", "cannot connect .*refused"),
        ("nothing://x", "cannot be opened|cannot connect"),
        ("/dev/null", "the port cannot be opened"),
    ],
)
def test_an_invalid_port_is_an_error_of_one_sentence(
    port: str, said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(BoardUnreachable, match=said):
        Line(port, 115_200).open()


def test_a_restarted_board_does_not_know_the_session(bench: Bench) -> None:
    bench.connect()
    session = bench.session()
    session.hello()
    session.restart()
    with pytest.raises(StrangerError):
        session.line("health")
    assert bench.board.restarts == 1


def test_a_socket_without_a_server_can_be_tried_again_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as server:
        number = server.getsockname()[1]
    line = Line(f"socket://127.0.0.1:{number}", 115_200)
    with pytest.raises(BoardUnreachable, match="cannot connect"):
        line.open()
    with socket.create_server(("127.0.0.1", number)):
        other = Line(line.port, 115_200)
        other.open()
        other.close()


@pytest.mark.parametrize("fails_at", ["send", "receive"])
def test_a_port_that_fails_at_once_is_retried_with_pauses_until_the_deadline(
    fails_at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    def fail(*_: object) -> None:
        raise LineDownError("[Errno 5] Input/output error")

    monkeypatch.setattr(Line, "open", lambda line: opened.append(line.port))
    monkeypatch.setattr(Line, "send", lambda *_: None)
    monkeypatch.setattr(Line, fails_at, fail)
    session = SerialSession(Line("/dev/ttyUSB0", 115_200), "board", deadline_s=1.0)
    session.open()
    with pytest.raises(BoardUnreachable, match="board: "):
        session.hello()
    assert 2 < len(opened) < 10
