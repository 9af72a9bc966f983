"""The firmware on emulated boards, over its UART: measuring, damaged or lost frames, faults."""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from devices.operation import SIGNATURES, OpSpec
from profiler.building.firmware_image import build_firmware, firmware_identity
from profiler.transports.serial.frames import Kind
from tests.support.boards.firmware import (
    BOARDS,
    FIRST_SEQUENCE,
    NS,
    Peer,
    addresses_of,
    description_of,
    emulated,
    encoded,
    text_of,
    traced,
    without_icount,
)
from tests.support.onboard.kernels import BUILDS, KernelLibrary, compile_library, required_sizes

pytestmark = [pytest.mark.emulated, pytest.mark.usefixtures("own_boards")]


@pytest.fixture(scope="module", params=BOARDS)
def board(
    request: pytest.FixtureRequest, own_boards: None, libraries: dict[str, KernelLibrary]
) -> Iterator[Peer]:
    """Each of the boards in turn.

    There are never two at once, and none while libraries are compiled, since one that waits under
    icount keeps a whole processor busy.
    """
    yield from emulated(description_of(request.param))


@pytest.fixture
def m4f(board: Peer) -> Peer:
    """The board that :data:`on_m4f` names."""
    return board


on_m4f = pytest.mark.parametrize("board", [BOARDS[0]], indirect=True)


def icount_shift(peer: Peer) -> int:
    emulator = peer.description.emulator
    assert emulator is not None
    assert emulator.icount_shift is not None
    return emulator.icount_shift


# --- hello --------------------------------------------------------------------------------------


def test_hello_reports_the_board_and_the_build(board: Peer) -> None:
    description = board.description
    hello = board.hello()
    expected = firmware_identity(description)
    assert hello["protocol"] == "1"
    assert hello["board"] == expected.board
    assert hello["firmware"] == expected.firmware_sha256
    assert hello["kernels"] == expected.kernels_sha256
    assert hello["compiler"] == build_firmware(description).record.compiler
    assert hello["counter"] != "none"
    assert hello["fault"] == "none"
    assert hello["matmul"] == "in-tree"
    assert int(hello["kernel_count"]) == len(SIGNATURES)
    assert description.processor is not None
    assert int(hello["clock_hz"]) == description.processor.clock_hz


def test_hello_reports_how_memory_is_divided(board: Peer) -> None:
    memory, firmware = board.description.memory, board.description.firmware
    assert memory is not None
    assert firmware is not None
    hello = {key: int(value) for key, value in board.hello().items() if value.isdigit()}
    assert hello["ram_bytes"] == memory.ram_bytes
    assert hello["flash_bytes"] == memory.flash_bytes
    assert hello["stack_bytes"] == firmware.stack_bytes
    assert memory.usable_bytes <= hello["arena_bytes"] < memory.ram_bytes - firmware.stack_bytes
    image = build_firmware(board.description)
    assert hello["program_bytes"] == image.bin.stat().st_size


# --- the clock ----------------------------------------------------------------------------------


def length_ns(window: Mapping[str, int]) -> int:
    return window["end_ns"] - window["start_ns"]


@pytest.mark.parametrize("duration_ns", [NS // 1000, NS // 10, 3 * NS, 700 * NS])
def test_an_idle_window_ends_on_time_however_often_the_counter_wraps(
    board: Peer, duration_ns: int
) -> None:
    """700 s is longer than the range of any board's counter."""
    window = board.window(f"idle id=1 duration_ns={duration_ns}")
    assert duration_ns <= length_ns(window) <= duration_ns + 2000 * (1 << icount_shift(board))


SGD = (
    "kind=sgd.update attributes=432 scalars=3d4ccccd,00000000"
    " reads=1728:signed:3f800000,1728:signed:3f800000 writes=@0"
)


def test_windows_have_the_requested_length(board: Peer) -> None:
    window = board.window(f"op id=5 copies=1 first=0 min_ns=20000000 max_ns={NS} {SGD}")
    assert window["id"] == 5
    assert window["running_ns"] >= 20_000_000
    assert length_ns(window) <= window["running_ns"]
    again = board.window(
        f"op id=6 copies=1 first={window['executions']} min_ns=1 max_ns={NS} {SGD}"
    )
    assert again["executions"] == window["executions"]
    assert length_ns(again) == pytest.approx(length_ns(window), rel=5e-3)  # other values


@pytest.mark.parametrize(
    ("name", "executions"),
    [("mps2-an386", 30), ("lm3s6965evb", 2), ("microbit", 1), ("netduinoplus2", 30)],
)
def test_the_length_of_a_window_is_the_time_of_its_instructions(
    name: str, executions: int, tmp_path: Path
) -> None:
    """Each instruction takes 2**icount_shift ns.

    Those that the emulator logs between the begin of the executions and the next reading of the
    clock add up to the time that the firmware measures.
    """
    description = description_of(name)
    with traced(description, tmp_path / "log") as board:
        window = board.peer.window(
            f"op id=1 copies=1 first={executions} min_ns=1 max_ns={NS} {SGD}"
        )
        addresses = board.instructions()
    places = addresses_of(build_firmware(description).elf)
    begin = len(addresses) - 1 - addresses[::-1].index(places["jw_op_execute"])
    end = addresses.index(places["jw_clock_ns"], begin)
    expected_ns = (end - begin) << icount_shift(board.peer)
    assert end - begin > 30_000
    assert length_ns(window) == pytest.approx(expected_ns, rel=0.005)


# --- kernels ------------------------------------------------------------------------------------

SIZES = {
    **{"batch": 2, "in_channels": 4, "in_height": 5, "in_width": 6, "out_channels": 6},
    **{"kernel_height": 3, "kernel_width": 2, "stride_height": 2, "stride_width": 1},
    **{"pad_top": 1, "pad_bottom": 0, "pad_left": 1, "pad_right": 1, "groups": 2, "bias": 1},
    **{"rows": 7, "in_features": 13, "out_features": 11, "channels": 6, "plane": 19},
    **{"features": 35, "elements": 203, "outer": 3, "left_inner": 19, "right_inner": 40},
    **{"sequence": 9, "heads": 2, "head_features": 5, "columns": 37},
    **{"vocabulary": 13, "classes": 17, "out_height": 10, "out_width": 5},
    **{"factor_height": 2, "factor_width": 2},
    **{"source": 90, "offset": 1, "size0": 1, "size1": 1, "size2": 2, "size3": 2, "size4": 3},
    **{"size5": 5, "stride0": 1, "stride1": 1, "stride2": 41, "stride3": 0, "stride4": 2},
    **{"stride5": 7, "middle": 3, "between": 4, "inner": 6, "align_corners": 0, "padding_index": 1},
    **{"queries": 9, "keys": 18, "key_heads": 1, "causal": 1, "dropout": 1},
    "packed": 0,
    **{"first": 1, "first_input": 1, "inputs": 2, "distance": 10},
    **{"mask_batch": 2, "mask_heads": 1, "mask_queries": 1, "depth": 5},
    **{"left_transposed": 1, "left_interleaved": 0},
    **{"right_transposed": 1, "right_interleaved": 1},
    **{"dilation_height": 2, "dilation_width": 3},
    **{"steps": 3, "hidden": 6, "batch_first": 1, "reverse": 1},
    **dict.fromkeys(("initial_hidden", "initial_cell", "final_cell"), 1),
    **{"bound": 5, "size": 6, "by_weight": 1},
}
SCALARS = {
    **{"epsilon": 1e-5, "momentum": 0.1, "probability": 0.3, "seed": 1.5, "learning_rate": 0.05},
    **{"lowest": -0.4, "highest": 0.3, "slope": 0.1},
    **{"factor": -1.25, "addend": 0.5, "alpha": 1.5, "row_distance": 0.5},
    **{"column_distance": 0.4, "scale": 0.5, "gradient_decay": 0.125, "share": 1.0},
    **{"first_rate": 0.125, "second_rate": 0.0078125, "weight_decay": 0.25},
    **{"smoothing": 0.1, "ignored": 3.0, "number": 0.5},
}


def small_spec(kind: str) -> OpSpec:
    """An operation of this kind that fits into 10 KiB with everything it needs."""
    sizes = dict(SIZES)
    if kind.startswith("conv2d_part."):
        sizes |= {"channels": 3}
    if kind.startswith("conv2d_block."):
        sizes |= {"batch": 1, "out_channels": 3}
    sizes |= required_sizes(kind)
    return OpSpec.of(kind, **{name: sizes[name] for name in SIGNATURES[kind].attributes})


def scalars_of(spec: OpSpec) -> list[float]:
    return [SCALARS[name] for name in spec.signature.scalars]


def op_line(spec: OpSpec) -> str:
    fills = {"signed": "signed:3f800000", "positive": "positive"}
    reads = ",".join(
        f"{read.bytes}:{fills.get(read.fill, f'index:{read.index_bound}')}" for read in spec.reads
    )
    bits = ",".join(struct.pack(">f", value).hex() for value in scalars_of(spec))
    return (
        f"op id=1 copies=1 first=1 min_ns=1 max_ns={NS} kind={spec.kind}"
        f" attributes={','.join(map(str, spec.values))} scalars={bits or '-'} reads={reads}"
        f" writes={','.join(str(write.bytes) for write in spec.writes)}"
    )


def in_lines(size: int) -> int:
    return -(-size // 64) * 64


@dataclass(frozen=True)
class Computed:
    """Operands that a board read and wrote."""

    reads: list[np.ndarray]
    writes: list[bytes]


def compute(peer: Peer, spec: OpSpec) -> Computed:
    """Execute an operation on the board and read its operands.

    They follow the workspace, each at the begin of a line of 64 bytes.
    """
    attributes = ",".join(map(str, spec.values))
    place = in_lines(int(peer.done(f"kernel kind={spec.kind} attributes={attributes}")))
    peer.done(op_line(spec))
    contents = []
    for operand in (*spec.reads, *spec.writes):
        contents.append(peer.read(place, operand.bytes))
        place += in_lines(operand.bytes)
    reads = [
        np.frombuffer(data, np.int32 if read.fill == "index" else np.float32).reshape(read.shape)
        for data, read in zip(contents, spec.reads, strict=False)
    ]
    return Computed(reads, contents[len(reads) :])


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, KernelLibrary]:
    """The kernels on this computer, tiled as for a microcontroller's memory.

    One build multiplies and adds separately, the other one fuses both.
    """
    matmul, small = BUILDS["small-tiles"]
    kinds = {"plain": small}
    if " fma " in Path("/proc/cpuinfo").read_text():
        kinds["fused"] = (*small, "-O0", "-mfma")
    return {
        name: KernelLibrary(compile_library(tmp_path_factory.mktemp(name), matmul, optimisation))
        for name, optimisation in kinds.items()
    }


def test_kernels_compute_the_same_bits_as_on_this_computer(
    board: Peer, libraries: dict[str, KernelLibrary]
) -> None:
    """Covers every kind; none needs more stack than the board has."""
    board.hello()
    flags = board.description.toolchain.flags
    library = libraries.get("fused" if "-mfloat-abi=hard" in flags else "plain")
    if library is None:
        pytest.skip("this computer has no fused multiply-add to compare with")
    for kind in SIGNATURES:
        spec = small_spec(kind)
        computed = compute(board, spec)
        expected = library.run(spec, computed.reads, scalars_of(spec))
        for found, array in zip(computed.writes, expected, strict=True):
            assert found == array.tobytes(), kind
    health = dict(pair.split("=") for pair in board.done("health").split())
    assert int(health["stack_unused_bytes"]) > 0


@on_m4f
def test_a_step_runs_after_its_last_call_has_arrived(m4f: Peer) -> None:
    m4f.hello()
    m4f.done(f"step id=9 first=0 min_ns=1000000 max_ns={NS} buffers=2 calls=2")
    m4f.done("buffer bytes=1728 fill=signed:3f800000")
    m4f.done("buffer bytes=1728 fill=zero")
    call = "call kind=relu.forward attributes=432 scalars=- reads=0 writes=1"
    assert m4f.done(call) == ""
    assert m4f.window(call)["id"] == 9


# --- lost, doubled and changed frames -----------------------------------------------------------


@on_m4f
def test_a_request_that_is_repeated_is_answered_again_and_not_carried_out(m4f: Peer) -> None:
    m4f.hello()
    line = f"op id=1 copies=1 first=0 min_ns=1000000 max_ns={NS} {SGD}"
    answer = m4f.say(line)
    for most in (2048, 64):
        m4f.send(Kind.LINE, b"\1", ahead=-1, most=most)
        again = m4f.receive()
        assert (again.kind, again.sequence) == (Kind.DONE, answer.sequence)
        assert again.payload == answer.payload[:most]


@on_m4f
def test_a_request_out_of_order_is_answered_with_the_expected_number(m4f: Peer) -> None:
    m4f.hello()
    m4f.write(0, bytes(8))
    for ahead in (1, 5, -2, 0x4000):
        m4f.send(Kind.WRITE, struct.pack("<I", 0) + b"12345678", ahead=ahead)
        answer = m4f.receive()
        assert answer.kind is Kind.EXPECTED
        assert struct.unpack("<H", answer.payload) == (m4f.sequence,)
    assert m4f.read(0, 8) == bytes(8)


@on_m4f
def test_corrupted_frames_are_ignored(m4f: Peer) -> None:
    m4f.hello()
    m4f.write(0, bytes(4))
    whole = encoded(
        Kind.WRITE, m4f.session, m4f.sequence, 64, struct.pack("<I", 0) + b"\x11\x22\x33\x44"
    )
    for place in range(1, len(whole) - 1):
        changed = bytearray(whole)
        changed[place] ^= 0x81
        m4f.raw(bytes(changed))
    m4f.raw(b"\0\0\1\0\xff\0" + b"\xfe" * 5000 + b"\0" + whole[: len(whole) // 2] + b"\0")
    assert m4f.read(0, 4) == bytes(4)


def test_several_writes_may_be_under_way(board: Peer) -> None:
    hello = board.hello()
    size = int(hello["frame_bytes"]) - 4
    data = np.random.default_rng(1).integers(0, 2, int(hello["window"]) * size, np.uint8).tobytes()
    for i in range(int(hello["window"])):
        board.send(
            Kind.WRITE, struct.pack("<I", i * size) + data[i * size : (i + 1) * size], ahead=i
        )
    for _ in range(int(hello["window"])):
        answer = board.receive()
        assert (answer.kind, answer.sequence) == (Kind.OK, board.sequence)
        board.sequence = (board.sequence + 1) % 65536
    assert board.read(0, len(data)) == data


@on_m4f
def test_long_answers_come_in_pieces(m4f: Peer) -> None:
    hello = m4f.hello()
    m4f.session, m4f.sequence = 8, FIRST_SEQUENCE
    m4f.send(Kind.HELLO, most=50)
    first = m4f.receive()
    m4f.sequence = (m4f.sequence + 1) % 65536
    (length,) = struct.unpack_from("<H", first.payload)
    text = first.payload[2:].decode()
    assert len(first.payload) == 50
    while len(text) < length:
        rest = m4f.ask(Kind.REST, struct.pack("<H", len(text)), most=50)
        assert struct.unpack_from("<H", rest.payload) == (length,)
        text += rest.payload[2:].decode()
    assert text == "\n".join(f"{key}={value}" for key, value in hello.items())


@on_m4f
def test_invalid_requests_are_refused_with_a_sentence(m4f: Peer) -> None:
    arena_bytes = int(m4f.hello()["arena_bytes"])
    for kind, payload, said in (
        (Kind.READ, struct.pack("<IH", arena_bytes, 1), "outside the arena"),
        (Kind.READ, struct.pack("<IH", 0xFFFFFFFF, 9), "outside the arena"),
        (Kind.WRITE, struct.pack("<I", arena_bytes - 1) + b"ab", "outside the arena"),
        (Kind.WRITE, b"ab", "shorter"),
        (Kind.REST, struct.pack("<H", 5000), "not that long"),
        (Kind.LINE, b"\1arena bytes=1", "bytes is not a whole number"),
        (Kind.LINE, b"\1dance", "dance is not a known line"),
        (Kind.LINE, b"\1storage", "without storage"),
        (Kind.LINE, b"\1scratch bytes=4096 offset=0", "without storage"),
        (0x3F, b"", "no such request"),
    ):
        m4f.send(kind, payload)
        answer = m4f.receive()
        m4f.sequence = (m4f.sequence + 1) % 65536
        assert answer.kind is Kind.REFUSED
        assert said in text_of(answer)


@on_m4f
@pytest.mark.parametrize(
    ("size", "said"),
    [
        (1 << 26, "do not fit into the arena"),
        ((1 << 31) - 4, "do not fit into the arena"),  # the sum of two overflows 32 bits
        (1 << 31, "reads has a size"),
    ],
)
def test_operands_larger_than_the_arena_are_refused(size: int, said: str, m4f: Peer) -> None:
    m4f.hello()
    operation = f"kind=relu.forward attributes={size // 4} scalars=-"
    limits = f"copies=1 first=0 min_ns=1 max_ns={NS}"
    answer = m4f.say(f"op id=1 {limits} {operation} reads={size}:zero writes={size}")
    assert answer.kind is Kind.REFUSED
    assert said in text_of(answer)


def test_all_pieces_of_a_line_that_is_too_long_are_refused(board: Peer) -> None:
    line_bytes = int(board.hello()["line_bytes"])
    pieces = board.line_pieces("x" * (line_bytes + 1))
    answers = [board.ask(Kind.LINE, piece) for piece in (*pieces[:-1], b"\0health", b"\1health")]
    assert {answer.kind for answer in answers[-2:]} == {Kind.REFUSED}
    assert "clock_ns" in board.done("health")


# --- sessions -----------------------------------------------------------------------------------


@on_m4f
def test_after_a_restart_the_board_knows_no_session(m4f: Peer) -> None:
    m4f.hello()
    assert m4f.ask(Kind.RESTART).kind is Kind.OK
    assert m4f.insist(Kind.LINE, b"\1health").kind is Kind.STRANGER
    m4f.hello()
    assert m4f.running is not None
    m4f.running.reset()
    assert m4f.insist(Kind.LINE, b"\1health").kind is Kind.STRANGER
    assert m4f.hello()["fault"] == "none"


@on_m4f
def test_another_session_is_refused_before_its_hello(m4f: Peer) -> None:
    m4f.hello()
    m4f.done("arena bytes=4096")
    m4f.send(Kind.LINE, b"\1health", session=9)
    assert m4f.receive().kind is Kind.STRANGER
    assert m4f.done("health")


@on_m4f
def test_a_hello_discards_what_an_earlier_session_had_begun(m4f: Peer) -> None:
    m4f.hello()
    m4f.done(f"step id=1 first=0 min_ns=1 max_ns={NS} buffers=1 calls=1")
    assert m4f.say("tries count=2").kind is Kind.REFUSED
    m4f.done(f"step id=1 first=0 min_ns=1 max_ns={NS} buffers=1 calls=1")
    m4f.ask(Kind.LINE, b"\0half a line")
    m4f.hello()
    m4f.done("tries count=2")


# --- silence ------------------------------------------------------------------------------------


def test_the_board_neither_sends_nor_receives_while_a_window_is_open() -> None:
    for peer in emulated(without_icount(description_of("netduinoplus2"))):
        peer.send(Kind.LINE, b"\1idle id=1 duration_ns=3000000000")
        assert peer.receive().kind is Kind.STARTED
        peer.sequence = (peer.sequence + 1) % 65536
        unheard = encoded(Kind.LINE, peer.session, peer.sequence, 64, b"\1health")
        peer.raw(unheard[1:])  # the receiver holds its first byte until the window is over
        assert peer.receive().kind is Kind.DONE
        peer.raw(b"\0")
        peer.send(Kind.REST, struct.pack("<H", 0))
        answer = peer.receive()
        assert (answer.kind, answer.sequence) == (Kind.OK, peer.sequence)
        assert text_of(answer).startswith("window id=1 ")


@on_m4f
def test_bytes_that_arrive_during_a_window_do_not_lengthen_it(m4f: Peer) -> None:
    """Bytes cause no interrupts."""
    m4f.hello()
    line = f"op id=1 copies=1 first=5000 min_ns=1 max_ns={NS} {SGD}"
    quiet = m4f.window(line)
    assert m4f.ask(Kind.LINE, b"\1" + line.encode()).kind is Kind.STARTED
    m4f.raw(b"U" * 3000)
    answer = m4f.receive()
    m4f.raw(b"\0")
    assert answer.kind is Kind.DONE
    disturbed = dict(pair.split("=") for pair in text_of(answer).split()[1:])
    length = int(disturbed["end_ns"]) - int(disturbed["start_ns"])
    assert length == pytest.approx(length_ns(quiet), rel=1e-5)
    m4f.hello()


# --- faults -------------------------------------------------------------------------------------


@pytest.mark.parametrize("board", ["mps2-an386", "microbit"], indirect=True)
def test_a_kernel_that_faults_is_named_after_the_restart(board: Peer) -> None:
    """The kernel reads far outside the table; QEMU's other boards let such reads pass."""
    board.hello()
    line = (
        f"op id=1 copies=1 first=1 min_ns=1 max_ns={NS} kind=embedding.forward"
        " attributes=1,1000000000,1 scalars=- reads=4:index:1000000000,4:zero writes=4"
    )
    for piece in board.line_pieces(line):
        answer = board.ask(Kind.LINE, piece)
    assert answer.kind is Kind.STARTED
    hello = board.hello()
    assert hello["fault"].startswith("hard fault at pc 0x")
    place = int(hello["fault"].split()[4], 16)
    assert "memcpy" in function_at(board, place)
    assert board.hello()["fault"] == hello["fault"]
    board.ask(Kind.RESTART)
    assert board.hello()["fault"] == "none"


def function_at(peer: Peer, place: int) -> str:
    elf = build_firmware(peer.description).elf
    listed = subprocess.run(
        ["arm-none-eabi-addr2line", "-f", "-e", str(elf), hex(place)],
        capture_output=True,
        text=True,
        check=True,
    )
    return listed.stdout.splitlines()[0]
