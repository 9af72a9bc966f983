"""Stand-in for Otii's TCP server with one or more devices.

It is a real TCP server with those parts of the JSON protocol of qoitech.com/help/tcpserver that the
meter needs. It measures nothing: recordings are given beforehand.
"""

from __future__ import annotations

import json
import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

DEVICE_ID = "Arc000000000000000000000000000000001"


class _Refused(Exception):
    """Answered as an error: its code and its data."""


@dataclass
class OtiiStandIn:
    """State and answers of the server. ``channels``: analog ones as (rate_hz, values), digital ones
    as [(seconds, level)]. ``fails`` maps a command to its error code; ``falls_silent_at`` is a
    command that ends the connection."""

    names: tuple[str, ...] = ("Arc",)
    kind: str = "Arc"
    channels: dict[str, Any] = field(default_factory=dict)
    levels: dict[int, bool] = field(default_factory=lambda: {1: False, 2: False})
    output: dict[str, Any] = field(
        default_factory=lambda: {"main": False, "main_voltage": 1.0, "max_current": 0.5}
    )
    logic_v: float = 5.0
    enabled: set[str] = field(default_factory=set)
    rates: dict[str, int] = field(default_factory=dict)
    licences: list[dict[str, Any]] = field(
        default_factory=lambda: [
            {"id": 7, "type": "Automation", "available": True, "reserved_to": "me", "hostname": ""}
        ]
    )
    is_logged_in: bool = True
    has_project: bool = True
    recordings: list[int] = field(default_factory=list)
    is_recording: bool = False
    fails: dict[str, str] = field(default_factory=dict)
    falls_silent_at: str | None = None
    greeting: bytes | None = None
    received: list[str] = field(default_factory=list)
    connections: int = 0

    def respond(self, command: str, data: dict[str, Any]) -> dict[str, Any]:
        self.received.append(command)
        if command in self.fails:
            raise _Refused(self.fails[command])
        return getattr(self, command)(data) or {}

    # --- the application

    def otii_is_logged_in(self, _data: Any) -> Any:
        return {"logged_in": self.is_logged_in}

    def otii_login(self, _data: Any) -> None:
        self.is_logged_in = True

    def otii_logout(self, _data: Any) -> None:
        self.is_logged_in = False

    def otii_get_licenses(self, _data: Any) -> Any:
        return {"licenses": self.licences}

    def otii_reserve_license(self, data: Any) -> None:
        self._licence(data)["reserved_to"] = "me"

    def otii_return_license(self, data: Any) -> None:
        self._licence(data)["reserved_to"] = ""

    def _licence(self, data: Any) -> dict[str, Any]:
        return next(one for one in self.licences if one["id"] == data["license_id"])

    def otii_get_devices(self, _data: Any) -> Any:
        return {
            "devices": [
                {"device_id": DEVICE_ID[:-1] + str(n + 1), "name": name, "type": self.kind}
                for n, name in enumerate(self.names)
            ]
        }

    def otii_get_active_project(self, _data: Any) -> Any:
        return {"project_id": 1 if self.has_project else -1}

    def otii_create_project(self, _data: Any) -> Any:
        self.has_project = True
        return {"project_id": 1}

    # --- recordings

    def project_start_recording(self, _data: Any) -> None:
        assert not self.is_recording
        self.is_recording = True
        self.recordings.append(len(self.recordings) + 1)

    def project_stop_recording(self, _data: Any) -> None:
        self.is_recording = False

    def project_get_last_recording(self, _data: Any) -> Any:
        return {"recording_id": self.recordings[-1] if self.recordings else -1, "name": "R"}

    def recording_delete(self, data: Any) -> None:
        if data["recording_id"] not in self.recordings:
            raise _Refused("Command failure")
        self.recordings.remove(data["recording_id"])

    def recording_get_channel_data_count(self, data: Any) -> Any:
        held = self.channels[data["channel"]]
        return {"count": len(held[1] if isinstance(held, tuple) else held)}

    def recording_get_channel_data(self, data: Any) -> Any:
        held = self.channels[data["channel"]]
        part = slice(data["index"], data["index"] + data["count"])
        if part.stop > self.recording_get_channel_data_count(data)["count"]:
            raise _Refused("Command failure")
        if isinstance(held, tuple):
            rate_hz, values = held
            return {
                "data_type": "analog",
                "timestamp": data["index"] / rate_hz,
                "interval": 1 / rate_hz,
                "values": values[part],
            }
        changes = [{"timestamp": at_s, "value": level} for at_s, level in held[part]]
        return {"data_type": "digital", "values": changes}

    # --- the device

    def arc_add_to_project(self, _data: Any) -> None:
        pass

    def arc_get_version(self, _data: Any) -> Any:
        return {"hw_version": "1.1.3", "fw_version": "3.0.0"}

    def arc_get_main(self, _data: Any) -> Any:
        return {"value": self.output["main"]}

    def arc_set_main(self, data: Any) -> None:
        self.output["main"] = data["enable"]

    def arc_get_main_voltage(self, _data: Any) -> Any:
        return {"value": self.output["main_voltage"]}

    def arc_set_main_voltage(self, data: Any) -> None:
        self.output["main_voltage"] = data["value"]

    def arc_get_max_current(self, _data: Any) -> Any:
        return {"value": self.output["max_current"]}

    def arc_set_max_current(self, data: Any) -> None:
        self.output["max_current"] = data["value"]

    def arc_get_exp_voltage(self, _data: Any) -> Any:
        return {"value": self.logic_v}

    def arc_set_exp_voltage(self, data: Any) -> None:
        self.logic_v = data["value"]

    def arc_enable_exp_port(self, _data: Any) -> None:
        self.enabled.add("expansion port")

    def arc_enable_channel(self, data: Any) -> None:
        self.enabled.add(data["channel"])

    def arc_set_channel_samplerate(self, data: Any) -> None:
        self.rates[data["channel"]] = data["value"]

    def arc_get_gpi(self, data: Any) -> Any:
        return {"value": self.levels[data["pin"]]}


def _converse(
    stand_in: OtiiStandIn, connection: socket.socket, wait: Callable[[Any], bool]
) -> None:
    hello = {
        "type": "information",
        "info": "connected",
        "data": {"otii_version": "3.5.5", "protocol_version": "0.1", "server": "otii-server"},
    }
    connection.sendall(stand_in.greeting or json.dumps(hello).encode() + b"\r\n")
    pending = b""
    while wait(connection):
        came = connection.recv(65536)
        if not came:
            return
        *lines, pending = (pending + came).split(b"\r\n")
        for line in lines:
            request = json.loads(line)
            command = request["cmd"]
            if command == stand_in.falls_silent_at:
                return
            answer = {"cmd": command, "trans_id": request["trans_id"]}
            try:
                data = stand_in.respond(command, request.get("data", {}))
                answer |= {"type": "response", "data": data}
            except _Refused as refused:
                answer |= {"type": "error", "errorcode": str(refused), "data": {"message": "no"}}
            connection.sendall(json.dumps(answer).encode() + b"\r\n")


@contextmanager
def served(stand_in: OtiiStandIn) -> Iterator[int]:
    """Serve the stand-in and yield its port. On leaving, existing connections are closed."""
    wake, woken = socket.socketpair()
    server = socket.create_server(("127.0.0.1", 0))

    def wait(for_what: socket.socket) -> bool:
        ready, _, _ = select.select([for_what, wake], [], [])
        return wake not in ready

    def serve() -> None:
        while wait(server):
            connection, _ = server.accept()
            with connection, suppress(OSError):
                stand_in.connections += 1
                _converse(stand_in, connection, wait)
            stand_in.connections -= 1

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield server.getsockname()[1]
    finally:
        woken.close()
        thread.join()
        server.close()
        wake.close()
