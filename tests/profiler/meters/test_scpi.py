"""SCPI instruments: a stand-in over a TCP socket and a pseudo-terminal."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any, TypeAlias

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyvisa.resources import MessageBasedResource

from devices.errors import BoardUnreachable, JoulewrightError, MeasurementInvalid
from devices.meters import ScpiMeter
from profiler.meters.capture import Capture, Flaw
from profiler.meters.polled import Poller, Reading
from profiler.meters.scpi import ScpiInstrument, open_scpi
from profiler.meters.stand_ins.scpi import IDENTITY, ScpiStandIn, over_serial, over_tcp
from tests.support.boards.processes import wait_until
from tests.support.failures import sentence_of

MEASURED = {"MEAS:VOLT?": "+5.00000E+00", "MEAS:CURR?": "+2.50000E-01"}

_PATIENCE_S = 60.0


class Conversation:
    """Queries of a client and answers of a stand-in, counted.

    The client waits half a second for an answer that does not come. For one that comes it waits as
    long as the threads of a busy computer may need.
    """

    def __init__(self, stand_in: ScpiStandIn) -> None:
        self._changed = threading.Condition()
        self._asked = self._decided = self._given = self._received = self._withheld_for = 0
        self._answer = stand_in.answer

    def answer(self, line: str) -> str | None:
        """The stand-in's answer to a query."""
        answer = self._answer(line)
        with self._changed:
            self._decided += 1
            self._given += answer is not None
            self._changed.notify_all()
        return answer

    def withhold(self, queries: int) -> None:
        """Wait, in the stand-in, until the client has sent so many queries more."""
        with self._changed:
            self._withheld_for = queries
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: not self._withheld_for, _PATIENCE_S)

    def send(self) -> None:
        """Count a query that the client sends."""
        with self._changed:
            self._asked += 1
            self._withheld_for = max(0, self._withheld_for - 1)
            self._changed.notify_all()

    def receive(self) -> None:
        """Count an answer that the client has received."""
        with self._changed:
            self._received += 1

    def wait_ms(self) -> int:
        """Wait until it is known whether the next answer comes, and say how long to wait for it."""
        with self._changed:
            assert self._changed.wait_for(
                lambda: self._decided == self._asked or self._withheld_for > 0, _PATIENCE_S
            )
            return round(_PATIENCE_S * 1e3) if self._given > self._received else 500


Converse: TypeAlias = Callable[[ScpiStandIn], Conversation]


@pytest.fixture
def converse(monkeypatch: pytest.MonkeyPatch) -> Converse:
    """Count the queries and answers of a stand-in, so that no late answer counts as a lost one."""
    write, read = MessageBasedResource.write, MessageBasedResource.read

    def converse(stand_in: ScpiStandIn) -> Conversation:
        counted = Conversation(stand_in)

        def counted_write(resource: MessageBasedResource, message: str) -> int:
            counted.send()
            return write(resource, message)

        def counted_read(resource: MessageBasedResource) -> str:
            resource.timeout = counted.wait_ms()
            answer = read(resource)
            counted.receive()
            return answer

        monkeypatch.setattr(stand_in, "answer", counted.answer)
        monkeypatch.setattr(MessageBasedResource, "write", counted_write)
        monkeypatch.setattr(MessageBasedResource, "read", counted_read)
        return counted

    return converse


def is_polling() -> bool:
    return any(thread.name == "meter poller" for thread in threading.enumerate())


@pytest.fixture(autouse=True)
def _no_thread_left() -> Iterator[None]:
    yield
    assert not is_polling()


def described(resource: str, **keys: Any) -> ScpiMeter:
    queries = {"voltage_query": "MEAS:VOLT?", "current_query": "MEAS:CURR?"}
    if "power_query" in keys:
        queries = {}
    return ScpiMeter(kind="scpi", resource=resource, **({"rate_hz": 25.0} | queries | keys))


@contextmanager
def opened(stand_in: ScpiStandIn, **keys: Any) -> Iterator[ScpiInstrument]:
    with (
        over_tcp(stand_in) as resource,
        closing(open_scpi(described(resource, **keys))) as instrument,
    ):
        yield instrument


def recorded(instrument: ScpiInstrument, stand_in: ScpiStandIn, queries: int = 6) -> Capture:
    heard = len(stand_in.heard)
    instrument.start()
    wait_until(lambda: len(stand_in.heard) >= heard + queries)
    return instrument.stop()


def refusal(stand_in: ScpiStandIn, error: type[JoulewrightError], **keys: Any) -> str:
    return sentence_of(error, opened(stand_in, **keys).__enter__)


# --- recording --------------------------------------------------------------------------------


@pytest.mark.parametrize("channel", [over_tcp, over_serial])
def test_power_is_voltage_times_current_over_either_channel(channel: Any) -> None:
    stand_in = ScpiStandIn(dict(MEASURED))
    with channel(stand_in) as resource:
        instrument = open_scpi(described(resource))
        try:
            capture = recorded(instrument, stand_in)
        finally:
            instrument.close()
    assert set(capture.power_w) == {1.25}
    assert not capture.flaws.any()
    assert instrument.kind == "scpi"
    assert instrument.detail == f"{IDENTITY}; MEAS:VOLT? × MEAS:CURR?"


def test_power_is_queried_directly_if_described() -> None:
    stand_in = ScpiStandIn({"MEAS:POW?": "3.5 W"})
    with opened(stand_in, power_query="MEAS:POW?") as instrument:
        assert set(recorded(instrument, stand_in).power_w) == {3.5}


def test_a_described_voltage_is_not_queried() -> None:
    stand_in = ScpiStandIn({"READ?": "0.5"})
    keys = {"current_query": "READ?", "voltage_query": None, "voltage_v": 3.3}
    with opened(stand_in, **keys) as instrument:
        assert set(recorded(instrument, stand_in).power_w) == {1.65}
        assert "3.3 V × READ?" in instrument.detail


def test_a_capture_reaches_from_start_to_stop() -> None:
    stand_in = ScpiStandIn(dict(MEASURED))
    with opened(stand_in) as instrument:
        begun_s = time.monotonic()
        instrument.start()
        started_s = time.monotonic()
        stopping_s = time.monotonic()
        capture = instrument.stop()
        stopped_s = time.monotonic()
    assert capture.times_s is not None
    assert capture.times_s[0] <= started_s
    assert capture.end_s >= stopping_s
    assert (np.diff(capture.times_s) > 0).all()
    assert 0 < capture.time_error_s <= (stopped_s - begun_s) / 2


def test_every_start_begins_a_new_capture() -> None:
    stand_in = ScpiStandIn(dict(MEASURED))
    with opened(stand_in) as instrument:
        first = recorded(instrument, stand_in)
        second = recorded(instrument, stand_in)
    assert second.start_s >= first.end_s


def test_setup_commands_are_sent_in_order_before_measuring() -> None:
    setup = ("CURR:RANG 3", "SENS:NPLC 0.1")
    stand_in = ScpiStandIn(dict(MEASURED), known=("*CLS", *setup))
    with opened(stand_in, setup=setup):
        pass
    sent = [line for line in stand_in.heard if line != "SYST:ERR?"]
    assert sent[:4] == ["*IDN?", "*CLS", *setup]


def test_without_setup_only_queries_are_sent() -> None:
    stand_in = ScpiStandIn(dict(MEASURED))
    with opened(stand_in) as instrument:
        recorded(instrument, stand_in)
    assert all(line.endswith("?") for line in stand_in.heard)


# --- saturated and lost samples ---------------------------------------------------------------


@pytest.mark.parametrize("overload", ["+9.90000000E+37", "-9.9E37", "9.91E37", "NAN", "INF"])
def test_overload_is_saturation(overload: str) -> None:
    stand_in = ScpiStandIn(MEASURED | {"MEAS:CURR?": overload})
    with opened(stand_in) as instrument:
        capture = recorded(instrument, stand_in)
    assert (capture.flaws == Flaw.SATURATED).all()


@given(share=st.floats(0, 2), is_negative=st.booleans())
def test_saturation_begins_at_the_described_full_scale(share: float, is_negative: bool) -> None:
    class Fixed:
        meter = described("x", power_query="P?", full_scale=3.0)
        identity = IDENTITY

        def number(self, query: str) -> float:
            return -3.0 * share if is_negative else 3.0 * share

    reading = ScpiInstrument(Fixed())._measure()  # type: ignore[arg-type]
    assert (reading.flaws == Flaw.SATURATED) == (share >= 0.998)


def test_a_missing_answer_is_one_lost_sample(converse: Converse) -> None:
    answers: list[str | None] = ["0.25"] * 5
    stand_in = ScpiStandIn({"MEAS:VOLT?": "5", "MEAS:CURR?": [*answers, None, "0.5"]})
    converse(stand_in)
    with opened(stand_in) as instrument:
        instrument.start()
        wait_until(lambda: stand_in.answers["MEAS:CURR?"] == ["0.5"])
        heard = len(stand_in.heard)
        wait_until(lambda: len(stand_in.heard) >= heard + 6)
        capture = instrument.stop()
    lost = capture.flaws == Flaw.LOST
    assert lost.sum() == 1
    assert np.isnan(capture.power_w[lost]).all()
    assert set(capture.power_w[~lost]) == {1.25, 2.5}


def test_measuring_goes_on_after_the_answers_to_two_queries_are_lost(converse: Converse) -> None:
    silent = ScpiStandIn({"MEAS:POW?": [*["1"] * 5, None, "2"]})
    in_time, missing = silent.answer, [1]

    def answer(line: str) -> str | None:
        answered = in_time(line)
        if line == "*IDN?" and "MEAS:POW?" in silent.heard and missing:
            return missing.clear()
        return answered

    silent.answer = answer  # type: ignore[method-assign]
    converse(silent)
    with opened(silent, power_query="MEAS:POW?") as instrument:
        instrument.start()
        wait_until(lambda: silent.answers["MEAS:POW?"] == ["2"])
        heard = len(silent.heard)
        wait_until(lambda: len(silent.heard) >= heard + 6)
        capture = instrument.stop()
    assert set(capture.power_w[capture.flaws == 0]) == {1.0, 2.0}
    assert (capture.flaws == Flaw.LOST).sum() == 2


@pytest.mark.parametrize("lost", [1, 2])
def test_a_late_answer_is_not_taken_for_that_of_the_next_query(
    lost: int, converse: Converse
) -> None:
    """The answer comes once the first query that finds out what is late was sent, or the second."""
    late = ScpiStandIn({"MEAS:POW?": [*["1"] * 5, "99", "1"]})
    in_time = late.answer

    def answer(line: str) -> str | None:
        answered = in_time(line)
        if answered == "99":
            conversation.withhold(lost)
        return answered

    late.answer = answer  # type: ignore[method-assign]
    conversation = converse(late)
    with opened(late, power_query="MEAS:POW?") as instrument:
        instrument.start()
        wait_until(lambda: late.answers["MEAS:POW?"] == ["1"])
        heard = len(late.heard)
        wait_until(lambda: len(late.heard) >= heard + 5)
        capture = instrument.stop()
    assert set(capture.power_w[capture.flaws == 0]) == {1.0}
    assert (capture.flaws == Flaw.LOST).sum() == lost


# --- failures ---------------------------------------------------------------------------------


def test_a_refused_setup_is_an_error_that_quotes_the_instrument() -> None:
    told = refusal(ScpiStandIn(dict(MEASURED)), MeasurementInvalid, setup=("CURR:RNAG 3",))
    assert "'CURR:RNAG 3'" in told
    assert "Undefined header" in told
    assert "meter.setup" in told


def test_a_query_without_an_answer_is_an_error_when_opening(converse: Converse) -> None:
    stand_in = ScpiStandIn({"MEAS:VOLT?": "5"})
    converse(stand_in)
    told = refusal(stand_in, MeasurementInvalid)
    assert "MEAS:CURR?" in told
    assert "correct the queries" in told


def test_an_answer_that_is_no_number_is_an_error_when_opening() -> None:
    told = refusal(ScpiStandIn(MEASURED | {"MEAS:CURR?": "OUTPUT OFF"}), MeasurementInvalid)
    assert "'OUTPUT OFF" in told


def test_a_rate_that_is_too_high_is_an_error_when_opening() -> None:
    told = refusal(ScpiStandIn(dict(MEASURED)), MeasurementInvalid, rate_hz=1e7)
    assert "lower meter.rate_hz" in told


def test_an_address_without_an_instrument_is_an_error() -> None:
    with over_tcp(ScpiStandIn()) as resource:
        pass
    with pytest.raises(BoardUnreachable, match="switched on"):
        open_scpi(described(resource))


def test_an_invalid_address_is_an_error() -> None:
    with pytest.raises(BoardUnreachable, match=r"meter\.resource"):
        open_scpi(described("TCPIP:nonsense"))


def test_a_missing_visa_library_is_an_error() -> None:
    with pytest.raises(MeasurementInvalid, match=r"meter\.library"):
        open_scpi(described("ASRL1::INSTR", library="/nowhere/libvisa.so"))


@pytest.mark.slow
def test_an_instrument_that_disconnects_is_an_error_at_stop() -> None:
    stand_in = ScpiStandIn(dict(MEASURED))
    with over_tcp(stand_in) as resource:
        instrument = open_scpi(described(resource))
        instrument.start()
    try:
        wait_until(lambda: not is_polling())
        with pytest.raises(BoardUnreachable, match="check power and cable"):
            instrument.stop()
    finally:
        instrument.close()


def test_an_instrument_that_stops_answering_is_an_error(converse: Converse) -> None:
    answers: list[str | None] = ["0.25"] * 4
    stand_in = ScpiStandIn({"MEAS:VOLT?": "5", "MEAS:CURR?": [*answers, None]})
    converse(stand_in)
    with opened(stand_in) as instrument:
        instrument.start()
        wait_until(lambda: not is_polling())
        with pytest.raises(BoardUnreachable, match="3 times in a row"):
            instrument.stop()


def test_closing_during_a_recording_ends_the_connection() -> None:
    stand_in = ScpiStandIn(dict(MEASURED))
    with over_tcp(stand_in) as resource:
        instrument = open_scpi(described(resource))
        instrument.start()
        instrument.close()
        wait_until(lambda: not stand_in.is_open)
        instrument.close()


def test_a_refused_opening_ends_the_connection(converse: Converse) -> None:
    stand_in = ScpiStandIn()
    converse(stand_in)
    with over_tcp(stand_in) as resource:
        with pytest.raises(MeasurementInvalid):
            open_scpi(described(resource))
        wait_until(lambda: "*IDN?" in stand_in.heard and not stand_in.is_open)


# --- polling ----------------------------------------------------------------------------------


def test_polls_missed_during_a_slow_reading_are_skipped() -> None:
    asked_s: list[float] = []
    enough = threading.Event()

    def read() -> Reading:
        asked_s.append(time.monotonic())
        if len(asked_s) == 3:
            time.sleep(0.1)
        if len(asked_s) == 7:
            enough.set()
        return Reading(asked_s[-1], 0.0, 1.0)

    poller = Poller(read, 0.02)
    poller.start()
    assert enough.wait(10)
    poller.stop()
    paced_s = np.array(asked_s[1:7])
    # However late the thread is, a due time lies between any reading and the next but one.
    assert (paced_s[2:] - paced_s[:-2] >= 0.02).all()
