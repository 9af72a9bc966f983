"""Otii's TCP server: connect, log in and read a channel, with errors in sentences.

JSON, one object a line (qoitech.com/help/tcpserver); the package otii-tcp-client implements it.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from devices.errors import BoardUnreachable, MeasurementInvalid
from devices.meters import OtiiMeter
from devices.program import installing

if TYPE_CHECKING:
    from otii_tcp_client.arc import Arc
    from otii_tcp_client.otii import Otii
    from otii_tcp_client.otii_connection import OtiiConnection
    from otii_tcp_client.recording import Recording

_ANSWER_TIMEOUT_S = 5.0
_DATA_TIMEOUT_S = 60.0
_CHUNK = 40_000
_LICENCE = "Automation"


class OtiiServer:
    """Connection to Otii's server, with the licences and login that it took. The library's errors
    become sentences."""

    def __init__(self, meter: OtiiMeter) -> None:
        self._name = f"Otii at {meter.host}:{meter.port}"
        self._address = meter.host, meter.port
        self._connection: OtiiConnection | None = None
        self._licences: list[int] = []
        self._has_logged_in = False

    def open(self) -> None:
        try:
            from otii_tcp_client.otii_connection import OtiiConnection
        except ImportError as error:
            raise MeasurementInvalid(
                f"meter otii needs Qoitech's package: {installing('otii-tcp-client')}"
            ) from error
        connection = OtiiConnection(*self._address)
        with self.answering("connect"):
            connection.sock = socket.create_connection(self._address, _ANSWER_TIMEOUT_S)
            self._connection = connection
            connection.receive_response(_ANSWER_TIMEOUT_S, "")  # the server's greeting
        with self.answering("accept the login"):
            self._unlock()

    @property
    def otii(self) -> Otii:
        """The client library's object. Its methods raise the library's own errors; see
        :meth:`answering`."""
        from otii_tcp_client.otii import Otii

        assert self._connection is not None, "the connection is closed"
        return Otii(self._connection)

    def _unlock(self) -> None:
        from otii_tcp_client.otii_client import LICENSE_MAP, OTII_PASSWORD, OTII_USERNAME

        otii = self.otii
        if not otii.is_logged_in():
            user, password = os.environ.get(OTII_USERNAME), os.environ.get(OTII_PASSWORD)
            if user is None or password is None:
                raise MeasurementInvalid(
                    f"{self}: no user is logged in",
                    remedy=f"log in in the Otii application, or set {OTII_USERNAME} and"
                    f" {OTII_PASSWORD} in the environment",
                )
            otii.login(user, password)
            self._has_logged_in = True
        fitting = [
            licence
            for licence in otii.get_licenses()
            if licence["available"] and _LICENCE in LICENSE_MAP.get(licence["type"], [])
        ]
        if any(licence["reserved_to"] for licence in fitting):
            return
        if not fitting:
            raise MeasurementInvalid(
                f"{self}: no {_LICENCE} licence is free",
                remedy="give one back in the Otii application",
            )
        otii.reserve_license(fitting[0]["id"])
        self._licences.append(fitting[0]["id"])

    def data(self, recording: Recording, device: Arc, channel: str) -> list[dict[str, Any]]:
        """The answers that together hold a whole channel. Requested here, since the library waits
        for them without a time limit."""
        assert self._connection is not None
        answers = []
        count = recording.get_channel_data_count(device.id, channel)
        for index in range(0, count, _CHUNK):
            request = {
                "type": "request",
                "cmd": "recording_get_channel_data",
                "data": {
                    "recording_id": recording.id,
                    "device_id": device.id,
                    "channel": channel,
                    "index": index,
                    "count": min(_CHUNK, count - index),
                },
            }
            answer = self._connection.send_and_receive(request, _DATA_TIMEOUT_S)
            if answer["type"] == "error":
                from otii_tcp_client.otii_exception import Otii_Exception

                raise Otii_Exception(answer)
            answers.append(answer["data"])
        return answers

    def close(self) -> None:
        if self._connection is None:
            return
        with contextlib.suppress(Exception):  # it may be gone
            for licence in self._licences:
                self.otii.return_license(licence)
            if self._has_logged_in:
                self.otii.logout()
        self._connection.close_connection()
        self._connection = None

    @contextlib.contextmanager
    def answering(self, what: str) -> Iterator[None]:
        from otii_tcp_client.otii_connection import DisconnectedException
        from otii_tcp_client.otii_exception import Otii_Exception

        try:
            yield
        except Otii_Exception as error:
            raise MeasurementInvalid(
                f"{self}: it refused to {what} ({error.message})",
                remedy="check the message in the Otii application",
            ) from error
        except (OSError, DisconnectedException, ValueError, KeyError) as error:
            reason = str(error) or type(error).__name__
            raise BoardUnreachable(
                f"{self}: no answer when asked to {what} ({reason})",
                remedy="start the Otii application and its TCP server, and check meter.host and"
                " meter.port in the description",
            ) from error

    def __str__(self) -> str:
        return self._name
