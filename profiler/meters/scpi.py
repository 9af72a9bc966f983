"""Supplies and multimeters with SCPI, over any interface of PyVISA.

Conventions of SCPI-1999 (IVI Foundation, volume 1): a reading beyond the range is ±9.9E37, one that
is not a number 9.91E37; ``SYSTem:ERRor?`` answers ``code,"text"``, with code 0 for no error.
"""

from __future__ import annotations

import contextlib
import math
import re
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from devices.errors import BoardUnreachable, MeasurementInvalid
from devices.meters import ScpiMeter
from devices.program import installing
from profiler.meters.capture import Capture, Flaw
from profiler.meters.polled import Poller, Reading, polled_capture

if TYPE_CHECKING:
    from pyvisa import ResourceManager
    from pyvisa.resources import MessageBasedResource

_OPEN_TIMEOUT_MS = 5_000
_TIMEOUT_MS = 2_000
_TRIAL_READINGS = 3
_MOST_TIMEOUTS = 3
_MOST_ERRORS = 32
_MOST_LATE = 32  # late answers
_OVERLOAD = 9.8e37
# A reading above this share of the full scale counts as saturated.
_SATURATED_SHARE = 0.998
_NUMBER = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:E[+-]?\d+)?|[+-]?INF|NAN)\s*[AVW]?\s*", re.I)


class _NoAnswerError(Exception):
    """An answer did not arrive in time, or is not a number."""


class _Session:
    """Communication with one resource. ``identity`` is its answer to ``*IDN?``."""

    def __init__(self, meter: ScpiMeter) -> None:
        self.meter: Final = meter
        self.identity = ""
        self._identities_due = 0
        self._manager: ResourceManager | None = None
        self._resource: MessageBasedResource | None = None

    def open(self) -> None:
        try:
            import pyvisa
        except ImportError as error:
            raise MeasurementInvalid(
                f"{self}: PyVISA is not installed",
                remedy=f"install it with: {installing('pyvisa', 'pyvisa-py', 'pyserial')}",
            ) from error
        meter = self.meter
        try:
            self._manager = pyvisa.ResourceManager(meter.library)
        except (pyvisa.errors.Error, ImportError, OSError, ValueError) as error:
            raise MeasurementInvalid(
                f"{self}: PyVISA cannot load its library {meter.library!r} ({error})",
                remedy="install it, or leave meter.library out of the description and install"
                " pyvisa-py",
            ) from error
        try:
            resource = self._manager.open_resource(
                meter.resource,
                open_timeout=_OPEN_TIMEOUT_MS,
                resource_pyclass=pyvisa.resources.MessageBasedResource,
            )
            assert isinstance(resource, pyvisa.resources.MessageBasedResource)
            self._resource = resource
            resource.timeout = _TIMEOUT_MS
            resource.read_termination = resource.write_termination = "\n"
            if meter.baud is not None:
                resource.set_visa_attribute(
                    pyvisa.constants.ResourceAttribute.asrl_baud_rate, meter.baud
                )
        except Exception as error:  # the back-ends raise their own, and bare Exception
            raise self.gone("open", error) from error

    def identify(self) -> None:
        try:
            self.identity = self.ask("*IDN?").strip()
        except _NoAnswerError as error:
            raise BoardUnreachable(
                f"{self}: no answer to *IDN? within {_TIMEOUT_MS / 1000:g} s",
                remedy="check the address, the line speed (meter.baud), and that no other program"
                " is talking to it",
            ) from error

    def set_up(self) -> None:
        """Send each command of the description and check for errors."""
        if not self.meter.setup:
            return
        self.tell("*CLS")
        for command in self.meter.setup:
            self.tell(command)
            errors = list(self._errors(command))
            if errors:
                raise MeasurementInvalid(
                    f"{self}: it refused {command!r}: {'; '.join(errors)}",
                    remedy="correct meter.setup in the description",
                )

    def _errors(self, command: str) -> Iterator[str]:
        for _ in range(_MOST_ERRORS):
            try:
                answer = self.ask("SYST:ERR?").strip()
            except _NoAnswerError as error:
                raise MeasurementInvalid(
                    f"{self}: no answer to SYST:ERR? after {command!r}",
                    remedy="correct meter.setup in the description",
                ) from error
            if re.match(r"[+-]?0+(\D|$)", answer):
                return
            yield answer

    def tell(self, command: str) -> None:
        with self._alive(command):
            self._open_resource().write(command)

    def ask(self, query: str) -> str:
        """Send a query and return its answer. Raises :class:`_NoAnswerError`, and
        :class:`BoardUnreachable` when the instrument is gone."""
        with self._alive(query):
            return self._open_resource().query(query)

    def number(self, query: str) -> float:
        """Like :meth:`ask`; no query is sent while answers to earlier ones may still come."""
        if self._identities_due:
            raise _NoAnswerError(f"no answers to the queries before {query}")
        answer = self.ask(query)
        number = _NUMBER.fullmatch(answer)
        if number is None:
            raise _NoAnswerError(f"{query} was answered with {answer!r}")
        return float(number.group(1))

    def resynchronise(self) -> None:
        """Read late answers and drop them, since they would be taken for those of later queries.

        Answers come in order, so that only further identities can follow the first one.
        """
        has_come = False
        with contextlib.suppress(_NoAnswerError):
            self.tell("*IDN?")
            self._identities_due += 1
            for _ in range(_MOST_LATE):
                with self._alive("*IDN?"):
                    answer = self._open_resource().read().strip()
                if answer == self.identity:
                    has_come = True
                    self._identities_due -= 1
                if not self._identities_due:
                    return
            raise self.gone("*IDN?", "it sends answers without queries")
        if has_come:  # the others were lost
            self._identities_due = 0

    def close(self) -> None:
        for opened in (self._resource, self._manager):
            if opened is not None:
                with contextlib.suppress(Exception):  # the instrument or its back-end may be gone
                    opened.close()
        self._resource = self._manager = None

    def _open_resource(self) -> MessageBasedResource:
        assert self._resource is not None, "the session is closed"
        return self._resource

    @contextlib.contextmanager
    def _alive(self, message: str) -> Iterator[None]:
        from pyvisa import constants, errors

        try:
            yield
        except errors.VisaIOError as error:
            if error.error_code == constants.StatusCode.error_timeout:
                raise _NoAnswerError(f"no answer to {message}") from error
            raise self.gone(message, error) from error
        except UnicodeDecodeError as error:
            raise _NoAnswerError(f"the answer to {message} is not text") from error
        except (OSError, errors.InvalidSession) as error:
            raise self.gone(message, error) from error

    def gone(self, message: str, reason: object) -> BoardUnreachable:
        if not self.identity:
            return BoardUnreachable(
                f"{self}: cannot be opened ({reason})",
                remedy="check meter.resource in the description, that it is switched on and"
                " connected, and that this user may use it (a USB resource needs: python -m pip"
                " install pyusb)",
            )
        return BoardUnreachable(
            f"{self}: the connection was lost at {message!r} ({reason})",
            remedy="check power and cable, then start again: finished trials are kept",
        )

    def __str__(self) -> str:
        return f"instrument {self.meter.resource}"


class ScpiInstrument:
    """Queries power, or voltage and current, at the description's rate. Its output and settings
    stay as ``setup`` and the user left them."""

    kind = "scpi"

    def __init__(self, session: _Session) -> None:
        meter = session.meter
        self.rate_hz: Final = meter.rate_hz
        voltage = meter.voltage_query or f"{meter.voltage_v} V"
        what = meter.power_query or f"{voltage} × {meter.current_query}"
        self.detail: Final = f"{session.identity}; {what}"
        self._session = session
        self._timeouts = 0
        self._poller = Poller(self._read, 1.0 / meter.rate_hz)

    def check(self) -> None:
        """Check that readings are numbers and arrive as fast as described."""
        took_s = []
        for _ in range(_TRIAL_READINGS):
            try:
                reading = self._measure()
            except _NoAnswerError as error:
                raise MeasurementInvalid(
                    f"{self._session}: {error}",
                    remedy="correct the queries or meter.setup in the description",
                ) from error
            took_s.append(2 * reading.time_error_s)
        if min(took_s) * self.rate_hz > 1.0:
            raise MeasurementInvalid(
                f"{self._session}: a reading takes {min(took_s) * 1e3:.0f} ms, too long for"
                f" {self.rate_hz:g} readings a second",
                remedy="lower meter.rate_hz in the description, or shorten the integration time in"
                " meter.setup",
            )

    def start(self) -> None:
        self._timeouts = 0
        self._poller.start()

    def stop(self) -> Capture:
        return polled_capture(self._poller.stop(), self._poller.period_s)

    def close(self) -> None:
        self._poller.close()
        self._session.close()

    def _read(self) -> Reading:
        begin_s = time.monotonic()
        try:
            reading = self._measure()
        except _NoAnswerError as error:
            self._timeouts += 1
            if self._timeouts == _MOST_TIMEOUTS:
                raise self._session.gone(str(error), f"{_MOST_TIMEOUTS} times in a row") from error
            middle_s, half_s = _bracket(begin_s)
            self._session.resynchronise()
            return Reading(middle_s, half_s, math.nan, Flaw.LOST)
        self._timeouts = 0
        return reading

    def _measure(self) -> Reading:
        meter = self._session.meter
        begin_s = time.monotonic()
        if meter.power_query is not None:
            factor = 1.0
            last = self._session.number(meter.power_query)
        else:
            assert meter.current_query is not None
            factor = (
                self._session.number(meter.voltage_query)
                if meter.voltage_query is not None
                else meter.voltage_v or 0.0
            )
            last = self._session.number(meter.current_query)
        middle_s, half_s = _bracket(begin_s)
        if not (abs(factor) < _OVERLOAD and abs(last) < _OVERLOAD):  # also true for NaN
            return Reading(middle_s, half_s, math.nan, Flaw.SATURATED)
        is_full = meter.full_scale is not None and abs(last) >= _SATURATED_SHARE * meter.full_scale
        return Reading(middle_s, half_s, factor * last, Flaw.SATURATED if is_full else 0)


def _bracket(begin_s: float) -> tuple[float, float]:
    """Middle of the time since ``begin_s``, and half of that time."""
    half_s = (time.monotonic() - begin_s) / 2
    return begin_s + half_s, half_s


def open_scpi(meter: ScpiMeter) -> ScpiInstrument:
    """Open and check the described instrument. Raises :class:`~devices.errors.BoardUnreachable`
    when it does not answer, and :class:`~devices.errors.MeasurementInvalid` for a refused set-up or
    an unusable reading."""
    session = _Session(meter)
    try:
        session.open()
        session.identify()
        session.set_up()
        instrument = ScpiInstrument(session)
        instrument.check()
    except BaseException:
        session.close()
        raise
    return instrument
