"""Joulescopes, with a stand-in for the driver; the real driver's interface is checked too."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pyjoulescope_driver
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from devices.errors import BoardUnreachable, JoulewrightError, MeasurementInvalid
from devices.meters import JoulescopeMeter
from profiler.meters.capture import Capture, Flaw
from profiler.meters.joulescope import joulescope
from profiler.meters.joulescope.joulescope import JoulescopeInstrument, open_joulescope
from profiler.meters.joulescope.streams import (
    Stream,
    all_values,
    filter_lag_s,
    level_changes,
    limited_to,
    to_capture,
)
from profiler.meters.stand_ins.joulescope import IDS_PER_S, MESSAGE_SAMPLES, DriverStandIn, constant
from tests.support.failures import sentence_of

GPIO = {"kind": "gpio", "input": 0}
STEADY = {"kind": "steady"}
PATHS = ["u/js110/001234", "u/js220/000415", "u/js320/8p00001"]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Callable[[DriverStandIn], None]:
    def install(driver: DriverStandIn) -> None:
        monkeypatch.setattr(pyjoulescope_driver, "Driver", lambda: driver)

    return install


@pytest.fixture(autouse=True)
def _no_thread_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    # A thread of an earlier test may have ended in the meantime.
    assert set(threading.enumerate()) <= before


def described(**keys: Any) -> JoulescopeMeter:
    given_keys = {"rate_hz": 10_000, "sync": STEADY} | keys
    return JoulescopeMeter.model_validate({"kind": "joulescope"} | given_keys)


@contextmanager
def opened(**keys: Any) -> Iterator[JoulescopeInstrument]:
    instrument = open_joulescope(described(**keys))
    try:
        yield instrument
    finally:
        instrument.close()


def recorded(
    instrument: JoulescopeInstrument, driver: DriverStandIn, lose: dict[str, int] | None = None
) -> Capture:
    """Capture between start and stop, without the samples before and after.

    What is lost lies well inside: samples are timed by the message that came with the least delay,
    and on a busy computer all may come late.
    """
    instrument.start()
    started_s = time.monotonic()
    time.sleep(0.1)
    driver.to_lose |= lose or {}
    while any(driver.to_lose.values()):
        time.sleep(0.01)
    time.sleep(0.1)
    stop_s = time.monotonic()
    capture = instrument.stop()
    part = capture.around(started_s, stop_s)
    assert len(capture.power_w[part]) >= 4 * MESSAGE_SAMPLES
    return replace(
        capture,
        start_s=float(capture.time_s(part.start)),
        power_w=capture.power_w[part],
        flaws=capture.flaws[part],
        inputs=None if capture.inputs is None else capture.inputs[part],
    )


def refusal(error: type[JoulewrightError], **keys: Any) -> str:
    return sentence_of(error, opened(**keys).__enter__)


# --- recording --------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PATHS)
def test_power_comes_at_the_requested_rate(path: str, install: Any) -> None:
    driver = DriverStandIn([path], {"s/p": constant(1.5)})
    install(driver)
    with opened() as instrument:
        before_s = time.monotonic()
        instrument.start()
        started_s = time.monotonic()
        stopping_s = time.monotonic()
        capture = instrument.stop()
        after_s = time.monotonic()
        assert instrument.detail.startswith(path.split("/")[1].upper())
    assert capture.period_s == pytest.approx(1e-4)
    assert set(capture.power_w) == {np.float32(1.5)}
    assert not capture.flaws.any()
    assert capture.inputs is None
    assert before_s - 0.01 <= capture.start_s <= started_s
    assert stopping_s - 0.01 <= capture.end_s <= after_s
    assert capture.time_error_s > 0


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("number", [0, 1])
def test_a_logic_input_is_recorded_with_the_power(path: str, number: int, install: Any) -> None:
    half_period = IDS_PER_S[path.split("/")[1]] // 100
    is_filtered = "js220" in path
    lag = round(filter_lag_s(1e6, 10_000) * IDS_PER_S["js220"]) if is_filtered else 0

    def line(ids: NDArray[np.int64]) -> NDArray[Any]:
        return (ids // half_period) % 2

    driver = DriverStandIn(
        [path], {f"s/gpi/{number}": line, "s/p": lambda ids: 1.0 + line(ids - lag)}
    )
    install(driver)
    with opened(sync=GPIO | {"input": number}) as instrument:
        capture = recorded(instrument, driver)
    assert capture.inputs is not None
    assert not capture.flaws.any()
    assert set(capture.inputs) == {0, 1 << number}
    assert (capture.power_w == 1.0 + (capture.inputs >> number)).all()


def test_a_lost_message_leaves_a_gap_of_its_length(install: Any) -> None:
    driver = DriverStandIn(signals={"s/p": constant(2.0)})
    install(driver)
    with opened() as instrument:
        capture = recorded(instrument, driver, lose={"s/p": 2})
    lost = np.flatnonzero(capture.flaws == Flaw.LOST)
    assert len(lost) == 2 * MESSAGE_SAMPLES
    assert (np.diff(lost) == 1).all()
    assert np.isnan(capture.power_w[lost]).all()
    assert capture.end_s - capture.start_s == pytest.approx(1e-4 * (len(capture) - 1))


def test_samples_that_the_device_missed_are_marked_as_lost(install: Any) -> None:
    def seldom_missing(ids: NDArray[np.int64]) -> NDArray[Any]:
        return np.where(np.arange(len(ids)) == 7, np.nan, 1.0)

    driver = DriverStandIn(signals={"s/p": seldom_missing})
    install(driver)
    with opened() as instrument:
        capture = recorded(instrument, driver)
    lost = np.flatnonzero(capture.flaws == Flaw.LOST)
    assert len(lost) > 2
    assert (np.diff(lost) == MESSAGE_SAMPLES).all()
    assert ((capture.flaws == Flaw.LOST) == np.isnan(capture.power_w)).all()


@pytest.mark.parametrize(("stream", "beyond"), [("s/i", 10.0), ("s/i", -10.0), ("s/v", 15.0)])
def test_the_end_of_either_range_is_saturation(stream: str, beyond: float, install: Any) -> None:
    def sometimes(ids: NDArray[np.int64]) -> NDArray[Any]:
        return np.where((ids // 20_000) % 2, beyond, 0.1)

    def power(ids: NDArray[np.int64]) -> NDArray[Any]:
        return np.where((ids // 20_000) % 2, 7.0, 1.0)

    driver = DriverStandIn(signals={stream: sometimes, "s/p": power})
    install(driver)
    with opened() as instrument:
        capture = recorded(instrument, driver)
    saturated = capture.flaws == Flaw.SATURATED
    assert saturated.any()
    assert (saturated == (capture.power_w == 7.0)).all()


@pytest.mark.parametrize("stream", ["s/i", "s/v"])
def test_samples_whose_saturation_is_unknown_are_marked_as_lost(stream: str, install: Any) -> None:
    driver = DriverStandIn(signals={"s/p": constant(1.0)})
    install(driver)
    with opened() as instrument:
        capture = recorded(instrument, driver, lose={stream: 1})
    assert (capture.flaws == Flaw.LOST).sum() == MESSAGE_SAMPLES


def test_a_capture_ends_where_its_shortest_stream_ends() -> None:
    power, current = Stream(all_values), Stream(limited_to(9.0))
    for stream, samples in ((power, 8), (current, 5)):
        message = {"sample_id": 0, "decimate_factor": 1, "sample_rate": 10}
        stream.on_message("", message | {"data": np.full(samples, 9.5, dtype=np.float32)})
    capture = to_capture(power, [current], {}, lag_s=0.0)
    assert len(capture.power_w) == 5
    assert (capture.flaws == Flaw.SATURATED).all()


def test_samples_with_a_lost_input_level_are_marked_as_lost(install: Any) -> None:
    driver = DriverStandIn(signals={"s/p": constant(1.0), "s/gpi/0": constant(1.0)})
    install(driver)
    with opened(sync=GPIO) as instrument:
        capture = recorded(instrument, driver, lose={"s/gpi/0": 1})
    lost = capture.flaws == Flaw.LOST
    assert lost.sum() == MESSAGE_SAMPLES
    assert capture.inputs is not None
    assert (capture.inputs[~lost] == 1).all()


def test_every_start_begins_a_new_capture(install: Any) -> None:
    driver = DriverStandIn(signals={"s/p": constant(1.0)})
    install(driver)
    with opened() as instrument:
        first = recorded(instrument, driver)
        instrument.start()
        second = instrument.stop()
    assert second.start_s > first.start_s + 4 * MESSAGE_SAMPLES * 1e-4


def test_the_lag_of_power_is_subtracted_from_its_times() -> None:
    power = Stream(all_values)
    message = {"sample_id": 800, "sample_rate": 1000, "decimate_factor": 1}
    power.on_message("", message | {"data": np.ones(8, np.float32)})
    prompt, late = to_capture(power, [], {}, 0.0), to_capture(power, [], {}, 0.25)
    assert prompt.start_s - late.start_s == pytest.approx(0.25)


@given(
    levels=st.lists(st.lists(st.booleans(), min_size=8, max_size=8), min_size=1, max_size=6),
    steps=st.sampled_from([1, 4]),
)
def test_an_inputs_levels_survive_being_kept_as_changes(
    levels: list[list[bool]], steps: int
) -> None:
    power, line = Stream(all_values), Stream(level_changes)
    for number, chunk in enumerate(levels):
        at = {"sample_id": 800 + 8 * steps * number, "sample_rate": 1000, "decimate_factor": steps}
        power.on_message("", at | {"data": np.ones(8, np.float32)})
        line.on_message("", at | {"data": np.packbits(chunk, bitorder="little")})
    capture = to_capture(power, [], {0: line}, 0.0)
    assert capture.inputs is not None
    assert capture.inputs.astype(bool).tolist() == [level for chunk in levels for level in chunk]
    assert not capture.flaws.any()


def test_the_lag_of_the_drivers_filters_adds_up_over_its_stages() -> None:
    assert filter_lag_s(1e6, 1e6) == 0
    assert filter_lag_s(1e6, 500e3) == pytest.approx(19e-6)
    assert filter_lag_s(1e6, 100e3) == pytest.approx(19e-6 + 44 * 2e-6)
    assert filter_lag_s(1e6, 20e3) == pytest.approx(19e-6 + 44 * 2e-6 + 44 * 10e-6)


# --- opening and closing ----------------------------------------------------------------------


@pytest.mark.parametrize("path", PATHS)
def test_the_current_path_is_never_opened(path: str, install: Any) -> None:
    driver = DriverStandIn([path], {"s/p": constant(1.0)})
    install(driver)
    with opened() as instrument:
        assert driver.opened == {path: "restore"}
        recorded(instrument, driver)
    ranges = {topic: value for topic, value in driver.published.items() if "/range/" in topic}
    if "js110" in path:
        assert ranges == {"s/i/range/select": "auto", "s/v/range/select": "15 V"}
    else:
        assert ranges == {"s/i/range/mode": "auto", "s/v/range/mode": "auto"}


def test_closing_during_a_recording_ends_it_and_releases_the_device(install: Any) -> None:
    driver = DriverStandIn(signals={"s/p": constant(1.0)})
    install(driver)
    with opened() as instrument:
        instrument.start()
        instrument.close()
        assert driver.is_finalized
        assert not driver.opened
        assert not driver.subscribers
        assert driver.published["s/p/ctrl"] == 0


# --- failures ---------------------------------------------------------------------------------


def test_with_several_devices_the_error_lists_them_and_a_name_selects_one(install: Any) -> None:
    driver = DriverStandIn(PATHS, {"s/p": constant(1.0)})
    install(driver)
    told = refusal(BoardUnreachable)
    assert "several" in told
    assert "js110 001234, js220 000415, js320 8p00001" in told
    assert driver.is_finalized
    with opened(serial="415") as instrument:
        assert "JS220 000415" in instrument.detail
    assert "serial number 999" in refusal(BoardUnreachable, serial="999")


def test_the_error_says_that_no_device_is_connected(install: Any) -> None:
    install(DriverStandIn([]))
    assert "no Joulescope is on USB; found: none" in refusal(BoardUnreachable)


def test_a_device_in_use_is_an_error(install: Any) -> None:
    driver = DriverStandIn(opens=False)
    install(driver)
    assert "IN_USE" in refusal(BoardUnreachable)
    assert driver.is_finalized


@pytest.mark.parametrize(("path", "rate_hz"), [(PATHS[1], 2_000_000), (PATHS[0], 44_100)])
def test_an_unsupported_rate_is_refused_with_a_list_of_rates(
    path: str, rate_hz: float, install: Any
) -> None:
    install(DriverStandIn([path]))
    told = refusal(MeasurementInvalid, rate_hz=rate_hz)
    assert "1000000, 500000, 200000, 100000" in told


def test_a_missing_logic_input_is_refused_with_a_list_of_inputs(install: Any) -> None:
    install(DriverStandIn([PATHS[0]]))
    told = refusal(MeasurementInvalid, sync=GPIO | {"input": 2})
    assert "allowed for meter.sync.input: 0, 1" in told


def test_an_unplugged_device_is_an_error_and_can_be_closed(
    install: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = DriverStandIn(signals={"s/p": constant(1.0)})
    install(driver)
    with opened() as instrument:
        instrument.start()
        # Only from now on: on a busy computer the first samples are late.
        monkeypatch.setattr(joulescope, "_WAIT_S", 0.1)
        driver.unplugged.set()
        with pytest.raises(BoardUnreachable, match=r"stopped sending.*check the USB cable"):
            instrument.stop()
    assert driver.is_finalized


def test_a_sample_count_that_goes_back_is_an_error(install: Any) -> None:
    driver = DriverStandIn(signals={"s/p": constant(1.0)})
    install(driver)
    with opened() as instrument:
        instrument.start()
        topic = "u/js220/000415/s/p/!data"
        message = {"sample_id": 0, "sample_rate": 2_000_000, "decimate_factor": 200}
        driver.subscribers[topic](topic, message | {"data": np.ones(8, np.float32)})
        with pytest.raises(MeasurementInvalid, match="went back"):
            instrument.stop()


def test_the_error_for_a_missing_package_gives_the_install_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pyjoulescope_driver", None)
    with pytest.raises(MeasurementInvalid, match=" -m pip install pyjoulescope_driver"):
        open_joulescope(described())


def test_the_real_driver_has_the_methods_of_the_stand_in() -> None:
    for method in ("device_paths", "open", "close", "publish", "subscribe", "unsubscribe"):
        assert callable(getattr(pyjoulescope_driver.Driver, method))
    assert callable(pyjoulescope_driver.Driver.finalize)


def test_the_real_driver_finds_no_device_that_is_not_connected() -> None:
    with pytest.raises(BoardUnreachable, match="Joulescope"):
        open_joulescope(described(serial="there is no such number"))
