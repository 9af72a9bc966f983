"""Encoding frames, decoding them from noisy lines, and adapting piece size and time limit."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from profiler.transports.serial.frames import Decoder, Frame, Kind, encode
from profiler.transports.serial.pace import SMALLEST_PIECE_BYTES, PieceSize, RoundTrip

shorts = st.integers(0, 0xFFFF)
frames = st.builds(Frame, st.sampled_from(Kind), shorts, shorts, shorts, st.binary(max_size=600))
noise = st.binary(max_size=300)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """Cut the data into pieces, at places taken modulo its length."""
    borders = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[a:b] for a, b in pairwise(borders)]


def decode(stream: bytes, places: list[int]) -> list[Frame]:
    decoder = Decoder()
    return [frame for piece in cut(stream, places) for frame in decoder.feed(piece)]


@given(st.lists(frames, max_size=6), st.lists(shorts, max_size=8))
def test_encoded_frames_are_decoded_from_any_pieces(sent: list[Frame], places: list[int]) -> None:
    assert decode(b"".join(map(encode, sent)), places) == sent


@given(frames)
def test_a_frame_contains_zeros_only_at_its_ends(frame: Frame) -> None:
    encoded = encode(frame)
    assert (encoded[0], encoded[-1]) == (0, 0)
    assert 0 not in encoded[1:-1]


@given(st.lists(st.tuples(noise, frames), max_size=5), noise, st.lists(shorts, max_size=8))
def test_frames_survive_any_noise_between_them(
    parts: list[tuple[bytes, Frame]], end: bytes, places: list[int]
) -> None:
    stream = b"".join(dirt + encode(frame) for dirt, frame in parts) + end
    assert decode(stream, places) == [frame for _, frame in parts]


@given(frames, st.integers(0), st.integers(1, 255))
@example(Frame(Kind.OK, 1, 1), 0, 1)
def test_a_frame_with_a_changed_byte_is_never_taken_for_another(
    frame: Frame, place: int, change: int
) -> None:
    encoded = bytearray(encode(frame))
    encoded[place % len(encoded)] ^= change
    assert decode(bytes(encoded), []) in ([], [frame])  # a lost border leaves the frame whole


@given(frames, frames, st.integers(0), st.booleans())
def test_after_a_lost_or_doubled_byte_the_next_frame_is_found(
    hurt: Frame, next_frame: Frame, place: int, doubled: bool
) -> None:
    encoded = encode(hurt)
    at = place % len(encoded)
    encoded = encoded[:at] + encoded[at : at + 1] * (2 * doubled) + encoded[at + 1 :]
    assert decode(encoded + encode(next_frame), [])[-1] == next_frame


def test_a_frame_of_an_unknown_kind_is_ignored() -> None:
    strange = encode(Frame(0x70, 1, 2))  # type: ignore[arg-type]
    assert decode(strange, []) == []


def test_noise_without_a_frame_end_does_not_accumulate() -> None:
    decoder = Decoder()
    for _ in range(100):
        decoder.feed(b"\x55" * 10_000)
    assert decoder.noise_bytes >= 900_000
    assert decoder.feed(encode(Frame(Kind.OK, 1, 2))) == [Frame(Kind.OK, 1, 2)]


@given(st.integers(1, 2000), st.lists(st.booleans(), max_size=80))
def test_the_piece_size_stays_within_its_bounds(most: int, arrived: list[bool]) -> None:
    size = PieceSize(most)
    for good in arrived:
        before = size.bytes
        if good:
            size.grow(before)
            assert size.bytes > before or size.bytes == most
        else:
            size.shrink()
            assert size.bytes < before or size.bytes == min(SMALLEST_PIECE_BYTES, most)
        assert min(SMALLEST_PIECE_BYTES, most) <= size.bytes <= most


def test_small_pieces_that_arrive_do_not_enlarge_the_piece_size() -> None:
    size = PieceSize(256)
    size.shrink()
    size.grow(16)
    assert size.bytes == 128


@given(st.floats(0.001, 2.0), st.integers(20, 2000))
def test_the_time_limit_approaches_the_round_trip_time_from_above(
    over_s: float, on_line_bytes: int
) -> None:
    round_trip = RoundTrip(baud=115_200)
    passed_s = over_s + on_line_bytes * 10 / 115_200
    for _ in range(60):
        round_trip.learn(on_line_bytes, passed_s)
    assert passed_s <= round_trip.limit_s(on_line_bytes) * (1 + 1e-9)
    assert round_trip.limit_s(on_line_bytes) <= 0.02 + 1.1 * passed_s


def test_the_time_limit_adapts_to_a_line_faster_than_its_baud_rate() -> None:
    round_trip = RoundTrip(baud=9600)
    assert round_trip.limit_s(1000) > 1
    round_trip.learn(1000, 0.010)
    assert round_trip.limit_s(1000) == pytest.approx(0.015)
