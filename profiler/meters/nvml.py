"""NVIDIA GPUs of this computer, through NVML (NVML API reference; package nvidia-ml-py).

Sources of a GPU, the best first:

- ``nvmlDeviceGetTotalEnergyConsumption`` (Volta and newer): millijoules since the driver was
  loaded. The counter moves in steps, tens of milliseconds apart, so it is read when it moves.
- the field ``NVML_FI_DEV_POWER_INSTANT``: instantaneous power.
- ``nvmlDeviceGetPowerUsage``: instantaneous power before Ampere and on GA100, the average of the
  last second on all others.

Some boards measure only a quarter of the time (Yang, Adamek and Armour, "Part-time power
measurements", 2023), so that the energy of periodic work can be wrong in a way that no check here
detects.
"""

from __future__ import annotations

import contextlib
import importlib
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import numpy as np

from devices.description import Transport
from devices.errors import BoardUnreachable, MeasurementInvalid
from devices.meters import NvmlMeter
from devices.profile import EnergySource, MeterRecord
from devices.program import installing
from profiler.meters import base
from profiler.meters.base import BlockRecord, PowerTrace, Void
from profiler.meters.polled import Poller, Reading
from profiler.meters.readings import Response
from profiler.meters.trace import EnergyCounter, SampledPower

_T = TypeVar("_T")

_COUNTER_RANGE_J = 2.0**64 * 1e-3
_STANDSTILL_S = 2.0
AVERAGE_S = NvmlMeter.average_s
"""Time over which ``nvmlDeviceGetPowerUsage`` averages, where it does."""
# Products with GA100, an Ampere GPU that does not average.
_GA100 = re.compile(r"\bA(30|100|800)\b")


@dataclass(frozen=True)
class AveragedPower:
    """Power that is averaged over the second before each sample.

    Its readings are too long means for pictures and for the energies of single operations.
    """

    power: SampledPower

    @property
    def response(self) -> Response | None:
        return self.power.response

    def steady_energy_j(self, start_ns: int, end_ns: int) -> base.Reading:
        if end_ns - start_ns < 2 * AVERAGE_S * 1e9:
            return Void(
                f"this GPU reports only power averaged over {AVERAGE_S:g} s:"
                f" windows of {2 * AVERAGE_S:g} s are needed"
            )
        return self.power.steady_energy_j(start_ns, end_ns)

    def energy_j(self, start_ns: int, end_ns: int) -> base.Reading:
        return self.power.energy_j(start_ns, end_ns)

    def readings(self) -> Void:
        return Void(f"this GPU reports only power averaged over {AVERAGE_S:g} s")


class _Gpu:
    """One GPU through NVML's functions. Errors name the GPU and the remedy."""

    def __init__(self, nvml: Any, gpu: int | str) -> None:
        self.nvml: Final = nvml
        self.name = f"GPU {gpu}"
        try:
            self._handle = self._find(gpu)
            self._model = nvml.nvmlDeviceGetName(self._handle)
            uuid = nvml.nvmlDeviceGetUUID(self._handle)
            self.detail = f"{self._model} ({uuid}), driver {nvml.nvmlSystemGetDriverVersion()}"
        except nvml.NVMLError as error:
            raise MeasurementInvalid(
                f"{self.name} of this computer cannot be queried for its name ({error})",
                remedy="check whether nvidia-smi can query it",
            ) from error

    def _find(self, gpu: int | str) -> Any:
        nvml = self.nvml
        try:
            if isinstance(gpu, int):
                return nvml.nvmlDeviceGetHandleByIndex(gpu)
            return nvml.nvmlDeviceGetHandleByUUID(gpu)
        except nvml.NVMLError as error:
            handles = map(nvml.nvmlDeviceGetHandleByIndex, range(nvml.nvmlDeviceGetCount()))
            found = (
                f"{index}: {nvml.nvmlDeviceGetName(handle)} ({nvml.nvmlDeviceGetUUID(handle)})"
                for index, handle in enumerate(handles)
            )
            raise MeasurementInvalid(
                f"{self.name} is not in this computer ({error}); found:"
                f" {', '.join(found) or 'none'}. Correct meter.gpu in the description"
            ) from error

    def energy_j(self) -> float:
        return float(self._ask(self.nvml.nvmlDeviceGetTotalEnergyConsumption)) * 1e-3

    def power_w(self) -> float:
        return float(self._ask(self.nvml.nvmlDeviceGetPowerUsage)) * 1e-3

    def instant_power_w(self) -> float:
        nvml = self.nvml
        field = nvml.nvmlDeviceGetFieldValues(self._handle, [nvml.NVML_FI_DEV_POWER_INSTANT])[0]
        if field.nvmlReturn != nvml.NVML_SUCCESS:
            raise nvml.NVMLError(field.nvmlReturn)
        return float(field.value.uiVal) * 1e-3

    def is_averaged(self) -> bool:
        """Whether ``power_w`` is an average."""
        architecture = self._ask(self.nvml.nvmlDeviceGetArchitecture)
        is_young = architecture >= self.nvml.NVML_DEVICE_ARCH_AMPERE
        return is_young and _GA100.search(self._model) is None

    def offers(self, quantity: Callable[[], float]) -> bool:
        try:
            quantity()
        except (
            self.nvml.NVMLError_NotSupported,
            self.nvml.NVMLError_InvalidArgument,
            self.nvml.NVMLError_FunctionNotFound,
        ):
            return False
        return True

    def _ask(self, function: Callable[[Any], Any]) -> Any:
        return function(self._handle)


class NvmlGpu:
    """A GPU as a meter. Its readings carry this computer's monotonic clock, which the harness uses
    too, so no synchronisation is needed."""

    energy_source: EnergySource = "measured"
    sampler = None
    marker = None

    def __init__(self, gpu: _Gpu, rate_hz: float) -> None:
        self._gpu = gpu
        self._rate_hz = rate_hz
        self._time_error_s: float | None = None
        self._seen_s, self._seen_j = 0.0, 0.0
        self._is_averaged = False
        if gpu.offers(gpu.energy_j):
            self._quantity, what, read = gpu.energy_j, "energy counter", self._next_step
        elif gpu.offers(gpu.instant_power_w):
            self._quantity, what, read = gpu.instant_power_w, "power", self._power
        elif gpu.offers(gpu.power_w):
            self._quantity, what, read = gpu.power_w, "power", self._power
            self._is_averaged = gpu.is_averaged()
            if self._is_averaged:
                what = f"power averaged over {AVERAGE_S:g} s"
        else:
            raise MeasurementInvalid(
                f"{gpu.name} ({gpu.detail}) reports neither energy nor power",
                remedy="leave the meter out of the description",
            )
        self._detail = f"{gpu.detail}; {what}; the GPU's board only, not the computer around it"
        self._is_counter = read == self._next_step
        self._read = self._guarded(read)
        self._poller = Poller(self._read, 1.0 / rate_hz)

    @property
    def record(self) -> MeterRecord:
        return MeterRecord(
            kind="nvml",
            detail=self._detail,
            rate_hz=self._rate_hz,
            sync="read on the computer that is measured, by its own clock",
            sync_uncertainty_s=self._time_error_s,
            remembered_s=AVERAGE_S if self._is_averaged else None,
        )

    def begin(self) -> None:
        self._guarded(self._look)()
        self._poller.start()

    def finish(self, _block: BlockRecord, /) -> PowerTrace:
        # The counter's last step may have been before the block's end; the next step is certainly
        # after it.
        readings = [*self._poller.stop(), self._read()]
        self._time_error_s = float(np.quantile([r.time_error_s for r in readings], 0.95))
        times_ns = np.array([round(r.time_s * 1e9) for r in readings], dtype=np.int64)
        values = np.array([r.value for r in readings], dtype=np.float64)
        if self._is_counter:
            period_s = max(self._poller.period_s, float(np.median(np.diff(times_ns))) * 1e-9)
            return EnergyCounter(times_ns, values, _COUNTER_RANGE_J, period_s)
        never = np.zeros(len(values), dtype=np.bool_)
        response = Response(AVERAGE_S) if self._is_averaged else None
        power = SampledPower(times_ns, values, never, self._poller.period_s, response)
        return AveragedPower(power) if self._is_averaged else power

    def close(self) -> None:
        self._poller.close()
        _shut_down(self._gpu.nvml)

    def _power(self) -> Reading:
        asked_s = time.monotonic()
        power_w = self._quantity()
        half_s = (time.monotonic() - asked_s) / 2
        return Reading(asked_s + half_s, half_s, power_w)

    def _look(self) -> Reading | None:
        """Read the counter. Returns its step since the last reading, None if it did not move."""
        energy_j, now_s = self._quantity(), time.monotonic()
        has_moved, half_s = energy_j != self._seen_j, (now_s - self._seen_s) / 2
        self._seen_s, self._seen_j = now_s, energy_j
        return Reading(now_s - half_s, half_s, energy_j) if has_moved else None

    def _next_step(self) -> Reading:
        give_up_s = time.monotonic() + _STANDSTILL_S
        while (step := self._look()) is None:
            if self._seen_s > give_up_s:
                raise MeasurementInvalid(
                    f"{self._gpu.name}: its energy counter has not moved for {_STANDSTILL_S:g} s",
                    remedy="check whether nvidia-smi shows a power",
                )
            time.sleep(self._poller.period_s)
        return step

    def _guarded(self, read: Callable[[], _T]) -> Callable[[], _T]:
        def guarded() -> _T:
            try:
                return read()
            except self._gpu.nvml.NVMLError as error:
                raise BoardUnreachable(
                    f"{self._gpu.name}: it no longer reports its power ({error})",
                    remedy="check the output of nvidia-smi, then start again: finished trials are"
                    " kept",
                ) from error

        return guarded


def open_nvml(meter: NvmlMeter, transport: Transport) -> NvmlGpu:
    """Open the described GPU. Raises :class:`~devices.errors.MeasurementInvalid` without GPU,
    driver or package, and where the board is not this computer."""
    if transport.kind != "local":
        raise MeasurementInvalid(
            "meter nvml measures a GPU of this computer, but the board is reached by"
            f" {transport.kind}: run the profiler on the computer with the GPU, with transport"
            " local"
        )
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError as error:
        raise MeasurementInvalid(
            f"meter nvml needs NVIDIA's package: {installing('nvidia-ml-py')}"
        ) from error
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        raise MeasurementInvalid(
            f"no NVIDIA driver answers on this computer ({error})",
            remedy="install it, or leave the meter out of the description",
        ) from error
    with contextlib.ExitStack() as after_failure:
        after_failure.callback(_shut_down, nvml)
        try:
            opened = NvmlGpu(_Gpu(nvml, meter.gpu), meter.rate_hz)
        except nvml.NVMLError as error:
            raise MeasurementInvalid(
                f"GPU {meter.gpu} does not say what it measures ({error})",
                remedy="check the output of nvidia-smi",
            ) from error
        after_failure.pop_all()
    return opened


def _shut_down(nvml: Any) -> None:
    with contextlib.suppress(nvml.NVMLError):
        nvml.nvmlShutdown()
