"""Open the meter of a description, on this computer or on the board."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, nullcontext
from typing import TYPE_CHECKING

from devices import meters as described
from devices.errors import MeasurementInvalid

if TYPE_CHECKING:
    from devices.description import DeviceDescription
    from devices.profile import EnergySource
    from profiler.boards.base import Board
    from profiler.meters.base import Meter
    from profiler.meters.capture import Instrument
    from profiler.meters.readings import Response
    from profiler.meters.sync.base import Synchroniser
    from profiler.transports.base import Transport


@contextmanager
def described_meter(
    description: DeviceDescription,
) -> Iterator[Callable[[Board], Meter | None]]:
    """Open the meter of a description in two steps, and close it in the end.

    An instrument on this computer is opened at once, since it may feed the board.

    Args:
        description: The board with its meter.

    Yields:
        A function from the connected board to the meter: the instrument, the sensor on the board,
            or nominal power; None where the description has none of them.

    Raises:
        BoardUnreachable: The instrument does not answer.
        MeasurementInvalid: The meter is missing or does not support the described settings.
    """
    with ExitStack() as stack:

        def closed_in_the_end(meter: Meter | None) -> Meter | None:
            return None if meter is None else stack.enter_context(closing(meter))

        on_host = closed_in_the_end(open_host_meter(description))
        yield lambda board: on_host or closed_in_the_end(open_board_meter(description, board))


@contextmanager
def powered(description: DeviceDescription) -> Iterator[None]:
    """Switch on the instrument that feeds the board, if one does, for as long as it is needed.

    Args:
        description: The board with its meter.

    Raises:
        BoardUnreachable: The instrument does not answer.
        MeasurementInvalid: It does not support the described settings.
    """
    meter = open_host_meter(description) if described.feeds_board(description.meter) else None
    with nullcontext() if meter is None else closing(meter):
        yield


def open_host_meter(description: DeviceDescription) -> Meter | None:
    """Open a described meter on this computer; None for any other.

    It may feed the board, which can then be reached only while the meter is open. Raises
    :class:`~devices.errors.BoardUnreachable` when it does not answer, and
    :class:`~devices.errors.MeasurementInvalid` for unsupported settings.
    """
    match description.meter:
        case described.NvmlMeter() as meter:
            from profiler.meters.nvml import open_nvml

            return open_nvml(meter, description.transport)
        case (
            described.Ppk2Meter()
            | described.ScpiMeter()
            | described.JoulescopeMeter()
            | described.OtiiMeter()
        ) as meter:
            from profiler.meters.on_host import HostMeter

            source, response = _source(description), _response(meter)
            return HostMeter(
                _open_instrument(meter), open_synchroniser(meter.sync), source, response
            )
    return None


def open_board_meter(description: DeviceDescription, board: Board) -> Meter | None:
    """Open the meter on the board, or nominal power if none is described; None without either.

    Raises :class:`~devices.errors.MeasurementInvalid` when a described meter does not exist.
    """
    meter = description.meter
    if meter is None:
        if description.nominal_power_w is None:
            return None
        from profiler.meters.nominal import NominalMeter

        emulated = description.emulator is not None
        return NominalMeter(description.nominal_power_w, "emulated" if emulated else "estimated")
    source = _source(description)
    match meter:
        case described.HwmonMeter():
            from profiler.meters.on_board.hwmon import open_hwmon

            return open_hwmon(meter, _transport(board, meter.kind), source)
        case described.RaplMeter():
            from profiler.meters.on_board.rapl import open_rapl

            return open_rapl(meter, _transport(board, meter.kind), source)
        case described.InaMeter():
            from profiler.meters.on_board.ina import open_ina

            _transport(board, meter.kind)
            return open_ina(meter, board.name, source)
        case described.PmicMeter():
            from profiler.meters.on_board.pmic import open_pmic

            _transport(board, meter.kind)
            return open_pmic(meter, source)
    raise ValueError(f"a meter of kind {meter.kind} is not on the board")


def _source(description: DeviceDescription) -> EnergySource:
    """Origin of the energies: "emulated" for an emulated board, whatever the meter."""
    return "measured" if description.emulator is None else "emulated"


def _response(
    meter: described.Ppk2Meter
    | described.ScpiMeter
    | described.JoulescopeMeter
    | described.OtiiMeter,
) -> Response | None:
    """What a sample of an instrument is a mean of, as far as it is described."""
    from profiler.meters.readings import Response

    if meter.integration_s is not None:
        return Response.centred(meter.integration_s)
    bandwidth_hz = getattr(meter, "bandwidth_hz", None)
    return None if bandwidth_hz is None else Response.low_pass(bandwidth_hz)


def _open_instrument(
    meter: described.Ppk2Meter
    | described.ScpiMeter
    | described.JoulescopeMeter
    | described.OtiiMeter,
) -> Instrument:
    match meter:
        case described.Ppk2Meter():
            from profiler.meters.ppk2.ppk2 import open_ppk2

            return open_ppk2(meter)
        case described.ScpiMeter():
            from profiler.meters.scpi import open_scpi

            return open_scpi(meter)
        case described.JoulescopeMeter():
            from profiler.meters.joulescope.joulescope import open_joulescope

            return open_joulescope(meter)
        case described.OtiiMeter():
            from profiler.meters.otii.otii import open_otii

            return open_otii(meter)


def _transport(board: Board, kind: str) -> Transport:
    from profiler.boards.posix import PosixBoard

    if not isinstance(board, PosixBoard):
        raise MeasurementInvalid(
            f"{board.name}: a meter of kind {kind} is a sensor of a Linux board; a microcontroller"
            " needs one on this computer (ppk2, scpi, joulescope, otii)"
        )
    return board.transport


def open_synchroniser(
    sync: described.GpioSync | described.MarkerSync | described.SteadySync,
) -> Synchroniser:
    """Make the synchroniser that a device description names."""
    match sync:
        case described.GpioSync():
            from profiler.meters.sync.gpio import GpioSynchroniser

            return GpioSynchroniser(sync.input)
        case described.MarkerSync():
            from profiler.meters.sync.marker import MarkerSynchroniser

            return MarkerSynchroniser(sync.bit_s)
        case described.SteadySync():
            from profiler.meters.sync.steady import SteadySynchroniser

            return SteadySynchroniser(sync.guard_s)
