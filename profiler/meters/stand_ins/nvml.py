"""Stand-in for NVML with one GPU. Constants, structures and errors are those of the real
package."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

pynvml: Final[Any] = importlib.import_module("pynvml")

UUID = "GPU-5f0e7e0c-0000-0000-0000-000000000000"


@dataclass
class GpuStandIn:
    """A GPU with constant power. The counter moves every ``step_s``. ``offers`` lists its sources:
    energy, instant, power. ``fails`` is an NVML error code that every reading raises."""

    model: str = "Stand-in GPU"
    power_w: float = 200.0
    step_s: float = 0.02
    offers: tuple[str, ...] = ("energy", "instant", "power")
    architecture: int = 9  # Hopper
    fails: int | None = None
    initialised: int = 0

    def energy_mj(self, _handle: object) -> int:
        self._check("energy")
        steps = int(time.monotonic() / self.step_s) if self.step_s else 0
        return round(steps * self.step_s * self.power_w * 1e3)

    def power_mw(self, _handle: object) -> int:
        self._check("power")
        return round(self.power_w * 1e3)

    def fields(self, _handle: object, wanted: list[int]) -> list[Any]:
        assert wanted == [pynvml.NVML_FI_DEV_POWER_INSTANT]
        value = pynvml.c_nvmlFieldValue_t()
        value.nvmlReturn = (
            pynvml.NVML_SUCCESS if "instant" in self.offers else pynvml.NVML_ERROR_NOT_SUPPORTED
        )
        value.value.uiVal = round(self.power_w * 1e3)
        return [value]

    def handle(self, gpu: int | str) -> object:
        if gpu not in (0, UUID):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return self

    def start(self) -> None:
        self.initialised += 1

    def shut_down(self) -> None:
        self.initialised -= 1

    def functions(self) -> dict[str, Callable[..., Any]]:
        """The functions, by their names in the package."""
        return {
            "nvmlInit": self.start,
            "nvmlShutdown": self.shut_down,
            "nvmlSystemGetDriverVersion": lambda: "999.9",
            "nvmlDeviceGetCount": lambda: 1,
            "nvmlDeviceGetHandleByIndex": self.handle,
            "nvmlDeviceGetHandleByUUID": self.handle,
            "nvmlDeviceGetName": lambda _handle: self.model,
            "nvmlDeviceGetUUID": lambda _handle: UUID,
            "nvmlDeviceGetArchitecture": lambda _handle: self.architecture,
            "nvmlDeviceGetTotalEnergyConsumption": self.energy_mj,
            "nvmlDeviceGetPowerUsage": self.power_mw,
            "nvmlDeviceGetFieldValues": self.fields,
        }

    def _check(self, what: str) -> None:
        if self.fails is not None:
            raise pynvml.NVMLError(self.fails)
        if what not in self.offers:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
