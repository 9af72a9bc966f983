"""Readings of a board's clock, and this computer's clocks around them."""

from __future__ import annotations

import time

import pytest

from profiler.boards.clock import read_clock


def test_a_reading_lies_between_its_request_and_its_answer() -> None:
    before_s = time.monotonic()
    reading = read_clock(lambda: 7)
    assert reading.board_ns == 7
    assert before_s <= reading.asked_s <= reading.answered_s <= time.monotonic()


def test_a_reading_tells_how_long_this_computer_has_slept(monkeypatch: pytest.MonkeyPatch) -> None:
    slept_s = 100.0

    def clock_gettime(clock: int) -> float:
        return 5.0 + slept_s if clock == time.CLOCK_BOOTTIME else 5.0

    def asked_and_slept() -> int:
        nonlocal slept_s
        slept_s = 130.0
        return 7

    monkeypatch.setattr(time, "clock_gettime", clock_gettime)
    assert read_clock(asked_and_slept).asleep_s == (100.0, 130.0)


def test_a_computer_that_does_not_sleep_meanwhile_is_awake() -> None:
    before_s, after_s = read_clock(lambda: 7).asleep_s
    assert after_s == pytest.approx(before_s, abs=0.05)
