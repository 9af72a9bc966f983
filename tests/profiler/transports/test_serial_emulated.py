"""The serial board with the real firmware, on an emulated Cortex-M4F."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from urllib.parse import urlsplit

import pytest

from devices.description import DeviceDescription, SerialTransport, load_description
from devices.errors import BoardUnreachable, FirmwareMismatch
from devices.operation import OpSpec
from profiler import lab
from profiler.boards.base import RebootError
from profiler.boards.serial import SerialBoard
from profiler.script.records import WindowRecord, parse_results
from profiler.script.windows import IdleWindow, OpWindow, Window
from profiler.script.writer import Memory, PlanFile, Settings, write_plan
from profiler.transports.serial.line import Line
from profiler.transports.serial.session import SerialSession
from tests.support.boards.serial import Cable, Noise

pytestmark = [pytest.mark.emulated, pytest.mark.usefixtures("own_boards")]

SPECS = (
    OpSpec.parse("relu.forward elements=432"),
    OpSpec.parse("sgd.update elements=432"),
    OpSpec.parse("relu.forward elements=4320"),
)
WINDOWS: tuple[Window, ...] = (
    IdleWindow("before"),
    *(OpWindow(spec, "warm") for spec in SPECS),
    IdleWindow("after"),
)


class Lab:
    """A running board, reached directly or over a cable that can be disturbed."""

    def __init__(self, stack: ExitStack) -> None:
        self.running = stack.enter_context(
            lab.start(load_description("emulated-m4f"), lambda _what: None)
        )

    @property
    def transport(self) -> SerialTransport:
        transport = self.running.description.transport
        assert isinstance(transport, SerialTransport)
        return transport

    def cable(self, stack: ExitStack) -> Cable:
        address = urlsplit(self.transport.port)
        far_end = socket.create_connection((address.hostname or "", address.port or 0))
        stack.callback(far_end.close)
        cable = Cable(far_end)
        stack.callback(cable.close)
        return cable

    def description(
        self, cable: Cable | None = None, deadline_s: float = 20.0
    ) -> DeviceDescription:
        port = self.transport.port if cable is None else cable.port
        reached = self.transport.model_copy(update={"port": port, "deadline_s": deadline_s})
        return self.running.description.model_copy(update={"transport": reached})


@pytest.fixture(scope="module")
def board_lab(own_boards: None) -> Iterator[Lab]:
    with ExitStack() as stack:
        yield Lab(stack)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def prepared(stack: ExitStack, description: DeviceDescription) -> SerialBoard:
    board = stack.enter_context(SerialBoard(description))
    board.prepare(lambda _what: None)
    return board


def plan_for(board: SerialBoard, min_window_s: float = 0.02) -> PlanFile:
    memory = Memory(board.facts.available_bytes, 0, board.workspace_bytes(SPECS))
    settings = Settings(
        min_window_s=min_window_s,
        idle_s=0.05,
        tail_s=0.0,
        first_executions={},
        sampler=None,
        storage_place=None,
    )
    return write_plan(WINDOWS, None, memory, settings)


def run(board: SerialBoard) -> tuple[WindowRecord, ...]:
    outcome = board.run_plan(plan_for(board).text, expected_s=0.2, wait=lambda _s: None)
    if outcome.cut is not None:
        raise outcome.cut
    results = parse_results(outcome.results)
    assert results.end is not None
    assert [window.id for window in results.windows] == list(range(len(WINDOWS)))
    return results.windows


def execution_ns(records: tuple[WindowRecord, ...]) -> list[float]:
    return [record.running_ns / record.executions for record in records[1:-1]]


def test_a_killed_emulator_ends_the_plan_at_the_deadline(stack: ExitStack) -> None:
    """The first test, since the board of the others, once started, keeps a processor busy."""
    own = Lab(stack)
    board = prepared(stack, own.description(deadline_s=5.0))
    before_line(board, lambda line: own.running.kill() if line.startswith("op id=2 ") else None)
    outcome = board.run_plan(plan_for(board).text, expected_s=0.2, wait=lambda _s: None)
    assert isinstance(outcome.cut, BoardUnreachable)
    assert "the connection was lost and did not come back" in str(outcome.cut)
    assert [window.id for window in parse_results(outcome.results).windows] == [0, 1]


def test_the_firmware_reports_its_identity_and_measures(board_lab: Lab, stack: ExitStack) -> None:
    board = prepared(stack, board_lab.description())
    assert (board.facts.identity.cpu or "").startswith("Cortex-M4")
    assert board.facts.identity.cpu_frequency_hz == 25e6
    assert board.facts.available_bytes > 4_000_000
    first = run(board)
    assert first[0].running_ns == pytest.approx(50e6, rel=0.01)
    assert execution_ns(run(board)) == pytest.approx(execution_ns(first), rel=1e-3)
    before, after = board.clock(), board.clock()
    assert before.board_ns < after.board_ns


def test_unexpected_firmware_is_refused(board_lab: Lab, stack: ExitStack) -> None:
    described = board_lab.description()
    changed = described.model_copy(
        update={"toolchain": described.toolchain.model_copy(update={"flags": ("-Os",)})}
    )
    with pytest.raises(FirmwareMismatch, match=r"cli\.py flash --device emulated-m4f"):
        prepared(stack, changed)


def test_uploaded_data_is_read_back_from_the_arena(board_lab: Lab, stack: ExitStack) -> None:
    session = SerialSession(Line(board_lab.transport.port or "", 115_200), "emulated", 20.0)
    session.open()
    stack.callback(session.close)
    session.hello()
    data = random.Random(1).randbytes(20_000)
    session.write(1001, data)
    assert session.read(1001, len(data)) == data


def test_one_percent_noise_in_both_directions_does_not_change_measurements(
    board_lab: Lab, stack: ExitStack
) -> None:
    cable = board_lab.cable(stack)
    board = prepared(stack, board_lab.description(cable))
    clean = execution_ns(run(board))
    cable.disturb(Noise(0.01, 1), Noise(0.01, 2))
    board.prepare(lambda _what: None)
    assert execution_ns(run(board)) == pytest.approx(clean, rel=1e-3)


def test_a_cable_pulled_for_five_seconds_costs_five_seconds(
    board_lab: Lab, stack: ExitStack
) -> None:
    cable = board_lab.cable(stack)
    board = prepared(stack, board_lab.description(cable))
    pulled: list[str] = []

    def pull_once(line: str) -> None:
        if line.startswith("op id=2 ") and not pulled:
            pulled.append(line)
            cable.pull()
            plug = threading.Timer(5.0, cable.plug)
            plug.start()
            stack.callback(plug.join)

    before_line(board, pull_once)
    run(board)
    assert pulled


def test_a_reset_is_an_error_and_measuring_can_continue(board_lab: Lab, stack: ExitStack) -> None:
    board = prepared(stack, board_lab.description())
    boot_id = board.facts.boot_id
    resets: list[str] = []

    def reset_once(line: str) -> None:
        if line.startswith("op id=2 ") and not resets:
            resets.append(line)
            board_lab.running.reset()

    before_line(board, reset_once)
    with pytest.raises(RebootError, match="restarted while it was measuring"):
        run(board)
    board.prepare(lambda _what: None)
    assert board.facts.boot_id != boot_id
    run(board)


def before_line(board: SerialBoard, call: Callable[[str], None]) -> None:
    """Call ``call`` with every line of the plan just before the line is sent."""
    session = board._session
    send = session.line

    def line(text: str, *arguments: object) -> str:
        call(text)
        return send(text, *arguments)  # type: ignore[arg-type]

    session.line = line  # type: ignore[method-assign]
