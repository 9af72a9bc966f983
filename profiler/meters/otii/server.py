"""Otii's TCP server: connect, log in and read a channel, with errors in sentences.

JSON, one object a line (qoitech.com/help/tcpserver); the package otii-tcp-client implements it.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from devices.errors import BoardUnreachable, JoulewrightError, MeasurementInvalid
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
        self._is_cut_off = False  # a request: its answer may still be under way

    def open(self) -> None:
        try:
            from otii_tcp_client.otii_connection import OtiiConnection
        except ImportError as error:
            raise MeasurementInvalid(
                f"meter otii needs Qoitech's package: {installing('otii-tcp-client')}"
            ) from error
        with self.answering("connect"):
            self._connect(OtiiConnection(*self._address))
        with self.answering("accept the login"):
            self._unlock()

    def _connect(self, connection: OtiiConnection) -> None:
        connection.sock = socket.create_connection(self._address, _ANSWER_TIMEOUT_S)
        try:
            connection.receive_response(_ANSWER_TIMEOUT_S, "")  # the server's greeting
        except BaseException:
            connection.close_connection()
            raise
        self._connection = connection

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

    def tidy(self, *commands: Callable[[], object]) -> None:
        """Carry out commands before closing, each whatever became of the others.

        The server may be gone, or refuse some. The library would take the rest of an answer that
        was cut off for that of the next command: a new connection is made first.
        """
        for command in commands:
            with contextlib.suppress(Exception), self.answering("tidy up"):
                if self._is_cut_off:
                    self._renew()
                if self._connection is not None:
                    command()

    def _renew(self) -> None:
        """Connect anew; objects that hold the connection stay valid. After a failure there is no
        connection, and no second attempt."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close_connection()
            connection.recv_msg = ""
            self._connect(connection)
            self._is_cut_off = False

    def close(self) -> None:
        if self._connection is None:
            return
        returning = [partial(self.otii.return_license, licence) for licence in self._licences]
        self.tidy(*returning, *([self.otii.logout] if self._has_logged_in else []))
        if self._connection is not None:
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
        except JoulewrightError:
            raise
        except (OSError, DisconnectedException, ValueError, KeyError) as error:
            self._is_cut_off = True
            reason = str(error) or type(error).__name__
            raise BoardUnreachable(
                f"{self}: no answer when asked to {what} ({reason})",
                remedy="start the Otii application and its TCP server, and check meter.host and"
                " meter.port in the description",
            ) from error
        except BaseException:  # such as Ctrl-C
            self._is_cut_off = True
            raise

    def __str__(self) -> str:
        return self._name
