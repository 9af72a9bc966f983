"""Otii: the real client library over TCP, with a stand-in for the server and its device."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from otii_tcp_client.otii_connection import OtiiConnection
from otii_tcp_client.recording import Recording

from devices.errors import BoardUnreachable, JoulewrightError, MeasurementInvalid
from devices.meters import OtiiMeter
from profiler.meters.capture import Flaw
from profiler.meters.otii import otii
from profiler.meters.otii import server as otii_server
from profiler.meters.otii.otii import OtiiInstrument, open_otii
from profiler.meters.stand_ins.otii import DEVICE_ID, OtiiStandIn, served
from tests.support.failures import sentence_of

GPIO = {"kind": "gpio", "input": 0}
STEADY = {"kind": "steady"}


def stand_in(seconds: float = 0.1, **keys: Any) -> OtiiStandIn:
    """A stand-in that records 0.2 A at 5 V, with GPI1 high in the middle."""
    channels = {
        "mc": (4000, [0.2] * round(4000 * seconds)),
        "mv": (1000, [5.0] * round(1000 * seconds)),
        "i1": [(seconds / 4, True), (seconds / 2, False)],
        "i2": [],
    }
    return OtiiStandIn(**({"channels": channels} | keys))


def described(port: int, **keys: Any) -> OtiiMeter:
    given_keys = {"voltage_v": 5.0, "max_current_a": 1.0, "sync": GPIO} | keys
    return OtiiMeter.model_validate({"kind": "otii", "port": port} | given_keys)


@contextmanager
def opened(otii_server: OtiiStandIn, **keys: Any) -> Iterator[OtiiInstrument]:
    with served(otii_server) as port, closing(open_otii(described(port, **keys))) as instrument:
        yield instrument


def refusal(server: OtiiStandIn, error: type[JoulewrightError], **keys: Any) -> str:
    return sentence_of(error, opened(server, **keys).__enter__)


# --- recording --------------------------------------------------------------------------------


def test_power_is_current_times_voltage_on_one_time_base() -> None:
    with opened(stand_in()) as instrument:
        before_s = time.monotonic()
        instrument.start()
        started_s = time.monotonic()
        capture = instrument.stop()
    assert len(capture) == 400
    assert capture.period_s == pytest.approx(1 / 4000)
    assert capture.power_w == pytest.approx(np.full(400, 1.0))
    assert before_s <= capture.start_s <= started_s
    assert capture.time_error_s > 0
    assert not capture.flaws.any()


def test_voltage_is_interpolated_between_its_slower_samples() -> None:
    server = stand_in()
    server.channels["mv"] = (1000, [float(n) for n in range(100)])
    with opened(server) as instrument:
        instrument.start()
        capture = instrument.stop()
    assert capture.power_w[:9] == pytest.approx(0.2 * np.arange(9) / 4)


def test_each_logic_input_has_its_own_bit() -> None:
    server = stand_in(levels={1: False, 2: True})
    with opened(server) as instrument:
        instrument.start()
        capture = instrument.stop()
    assert capture.inputs is not None
    high = (np.arange(400) >= 100) & (np.arange(400) < 200)
    assert (capture.inputs & 1 == high).all()
    assert (capture.inputs >> 1 == 1).all()


@given(
    gaps=st.lists(st.floats(1e-3, 0.1), max_size=20),
    before=st.booleans(),
    at=st.lists(st.floats(0, 2.5), min_size=1, max_size=20),
)
def test_an_input_has_the_level_of_its_last_change(
    gaps: list[float], before: bool, at: list[float]
) -> None:
    changes, now_s, level = [], 0.0, before
    for gap in gaps:
        now_s, level = now_s + gap, not level
        changes.append({"timestamp": now_s, "value": level})
    found = otii._levels([{"values": changes}], np.array(at), before)
    expected = [
        [before, *(c["value"] for c in changes if c["timestamp"] <= instant)][-1] for instant in at
    ]
    assert found.tolist() == expected


def test_without_a_gpio_sync_the_inputs_are_not_configured() -> None:
    server = stand_in()
    with opened(server, sync=STEADY) as instrument:
        instrument.start()
        assert instrument.stop().inputs is None
    assert server.enabled == {"mc", "mv"}
    assert server.logic_v == 5.0


def test_long_recordings_are_fetched_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otii_server, "_CHUNK", 150)
    server = stand_in()
    server.channels["mc"] = (4000, [n * 1e-3 for n in range(400)])
    with opened(server, sync=STEADY) as instrument:
        instrument.start()
        capture = instrument.stop()
    assert capture.power_w == pytest.approx(np.arange(400) * 5e-3)
    assert server.received.count("recording_get_channel_data") == 3 + 1


def test_saturation_and_loss_are_marked() -> None:
    server = stand_in()
    server.channels["mc"] = (4000, [0.2, None, 0.999, -1.0, 0.2])
    with opened(server, sync=STEADY) as instrument:
        instrument.start()
        capture = instrument.stop()
    assert capture.flaws.tolist() == [0, Flaw.LOST, Flaw.SATURATED, Flaw.SATURATED, 0]
    assert np.isnan(capture.power_w[1])


def test_recordings_are_deleted_from_the_project() -> None:
    server = stand_in()
    with opened(server) as instrument:
        instrument.start()
        instrument.start()
        instrument.stop()
        assert server.recordings == []
        instrument.start()
    assert server.recordings == []
    assert not server.is_recording


def test_the_rate_of_an_ace_is_set() -> None:
    server = stand_in(kind="Ace")
    server.channels["mc"] = (50_000, [0.2] * 100)
    with opened(server, sync=STEADY, rate_hz=50_000) as instrument:
        instrument.start()
        assert instrument.stop().period_s == pytest.approx(2e-5)
        assert instrument.detail.startswith("Ace Arc (")
    assert server.rates == {"mc": 50_000, "mv": 50_000}


def test_a_rate_that_the_device_does_not_keep_is_an_error() -> None:
    with opened(stand_in(), rate_hz=1000) as instrument:
        instrument.start()
        with pytest.raises(MeasurementInvalid, match=r"4000 samples a second, not 1000.*rate_hz"):
            instrument.stop()


# --- the output -------------------------------------------------------------------------------


def test_an_output_that_was_off_is_restored_on_closing() -> None:
    server = stand_in()
    found = dict(server.output)
    with opened(server):
        assert server.output == {"main": True, "main_voltage": 5.0, "max_current": 1.0}
        assert server.logic_v == 3.3
    assert server.output == found
    assert server.logic_v == 5.0


def test_the_supply_of_a_running_board_is_not_switched() -> None:
    server = stand_in(output={"main": True, "main_voltage": 5.001, "max_current": 0.5})
    with opened(server):
        pass
    assert server.output == {"main": True, "main_voltage": 5.001, "max_current": 0.5}
    assert "arc_set_main" not in server.received
    assert "arc_set_main_voltage" not in server.received


def test_the_voltage_of_a_running_board_is_never_changed() -> None:
    server = stand_in(output={"main": True, "main_voltage": 3.3, "max_current": 0.5})
    told = refusal(server, MeasurementInvalid)
    assert "on at 3.3 V, the description states 5 V" in told
    assert server.output == {"main": True, "main_voltage": 3.3, "max_current": 0.5}


def test_an_output_that_switched_itself_off_is_an_error() -> None:
    server = stand_in()
    with opened(server) as instrument:
        instrument.start()
        server.output["main"] = False
        with pytest.raises(MeasurementInvalid, match=r"switched itself off.*1 A"):
            instrument.stop()


# --- licences and login -----------------------------------------------------------------------


def free_licence() -> dict[str, Any]:
    return {"id": 9, "type": "All", "available": True, "reserved_to": "", "hostname": ""}


def test_a_licence_is_reserved_and_released() -> None:
    server = stand_in(licences=[free_licence()])
    with opened(server):
        assert server.licences[0]["reserved_to"] == "me"
    assert server.licences[0]["reserved_to"] == ""


def test_a_licence_reserved_before_stays_reserved() -> None:
    server = stand_in()
    with opened(server):
        pass
    assert server.licences[0]["reserved_to"] == "me"


def test_credentials_from_the_environment_log_in_and_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTII_USERNAME", "somebody")
    monkeypatch.setenv("OTII_PASSWORD", "secret")
    server = stand_in(is_logged_in=False)
    with opened(server):
        assert server.is_logged_in
    assert not server.is_logged_in


def test_missing_credentials_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTII_USERNAME", raising=False)
    told = refusal(stand_in(is_logged_in=False), MeasurementInvalid)
    assert "OTII_USERNAME" in told


def test_a_missing_licence_is_an_error() -> None:
    assert "licence" in refusal(stand_in(licences=[]), MeasurementInvalid)


def test_a_project_is_created_if_none_is_open() -> None:
    server = stand_in(has_project=False)
    with opened(server):
        assert server.has_project


# --- failures ---------------------------------------------------------------------------------


def test_with_several_devices_the_error_lists_them_and_a_name_selects_one() -> None:
    server = stand_in(names=("left", "right"))
    told = refusal(server, MeasurementInvalid)
    assert "2 devices are connected; found: left (Arc" in told
    with opened(server, device="right") as instrument:
        assert "right" in instrument.detail
    with opened(server, device=DEVICE_ID) as instrument:
        assert "left" in instrument.detail
    assert "'middle'" in refusal(server, MeasurementInvalid, device="middle")


def test_the_error_says_that_no_device_is_connected() -> None:
    assert "found: none" in refusal(stand_in(names=()), MeasurementInvalid)


def test_a_missing_logic_input_is_refused_with_a_list_of_inputs() -> None:
    with pytest.raises(MeasurementInvalid, match="inputs 0"):
        open_otii(described(1, sync={"kind": "gpio", "input": 2}))


def test_a_server_that_does_not_run_is_an_error() -> None:
    with served(stand_in()) as port:
        pass
    with pytest.raises(BoardUnreachable, match="start the Otii application"):
        open_otii(described(port))


def test_an_answer_that_is_not_otiis_is_an_error() -> None:
    told = refusal(stand_in(greeting=b"220 mail.example ESMTP\r\n"), BoardUnreachable)
    assert "meter.port" in told


@pytest.mark.parametrize(
    "command", ["otii_get_licenses", "otii_get_devices", "arc_get_main", "arc_set_main"]
)
def test_a_refused_command_is_an_error_and_closes_the_connection(command: str) -> None:
    server = stand_in(fails={command: "Command failure"}, licences=[free_licence()])
    with served(server) as port:
        with pytest.raises(MeasurementInvalid, match="it refused to"):
            open_otii(described(port))
        deadline_s = time.monotonic() + 10
        while server.connections:
            assert time.monotonic() < deadline_s
            time.sleep(0.005)
    assert server.licences[0]["reserved_to"] == ""


@pytest.mark.parametrize("command", ["project_stop_recording", "recording_get_channel_data"])
def test_a_lost_connection_is_an_error_and_can_be_closed(command: str) -> None:
    server = stand_in()
    with opened(server) as instrument:
        instrument.start()
        server.falls_silent_at = command
        with pytest.raises(BoardUnreachable, match="no answer when asked to return its recording"):
            instrument.stop()
        instrument.close()
        instrument.close()


def test_ctrl_c_in_a_transfer_leaves_the_instrument_as_it_was_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    receive = OtiiConnection.receive_response

    def cut_off(connection: OtiiConnection, timeout_s: float | None, number: str) -> dict[str, Any]:
        """Leave the answer with a channel's data in the socket."""
        if timeout_s == otii_server._DATA_TIMEOUT_S:
            raise KeyboardInterrupt
        return receive(connection, timeout_s, number)

    monkeypatch.setattr(OtiiConnection, "receive_response", cut_off)
    monkeypatch.setenv("OTII_USERNAME", "somebody")
    monkeypatch.setenv("OTII_PASSWORD", "secret")
    server = stand_in(is_logged_in=False, licences=[free_licence()])
    found = dict(server.output)
    with opened(server) as instrument:
        instrument.start()
        with pytest.raises(KeyboardInterrupt):
            instrument.stop()
    assert server.recordings == []
    assert server.output == found
    assert server.logic_v == 5.0
    assert server.licences[0]["reserved_to"] == ""
    assert not server.is_logged_in


def test_ctrl_c_after_a_recording_was_deleted_deletes_no_other_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    delete = Recording.delete

    def cut_off(recording: Recording) -> None:
        delete(recording)
        raise KeyboardInterrupt

    monkeypatch.setattr(Recording, "delete", cut_off)
    server = stand_in(recordings=[1])
    with opened(server) as instrument:
        instrument.start()
        with pytest.raises(KeyboardInterrupt):
            instrument.stop()
        monkeypatch.undo()
    assert server.recordings == [1]


@pytest.mark.parametrize(
    "refused", ["project_stop_recording", "arc_set_main", "arc_set_max_current"]
)
def test_what_is_refused_on_closing_keeps_nothing_else_from_being_tidied(refused: str) -> None:
    server = stand_in(licences=[free_licence()])
    found = dict(server.output)
    with opened(server) as instrument:
        instrument.start()
        server.fails[refused] = "Command failure"
    assert server.recordings == []
    assert server.licences[0]["reserved_to"] == ""
    assert server.logic_v == 5.0
    if refused == "arc_set_main":  # the voltage of a board that is on is never changed
        assert server.output == found | {"main": True, "main_voltage": 5.0}
    elif refused == "arc_set_max_current":
        assert server.output == found | {"max_current": 1.0}
    else:
        assert server.output == found


def test_the_error_for_a_missing_package_gives_the_install_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "otii_tcp_client.otii_connection", None)
    with pytest.raises(MeasurementInvalid, match=" -m pip install otii-tcp-client"):
        open_otii(described(1))
