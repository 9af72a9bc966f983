"""NVIDIA GPUs: the real NVML package without a driver, and with a stand-in for its functions."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pynvml
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from devices.description import LocalTransport, SerialTransport
from devices.errors import BoardUnreachable, MeasurementInvalid
from devices.meters import NvmlMeter
from profiler.meters import nvml
from profiler.meters.base import BlockRecord, BoardSamples, PowerTrace, Void
from profiler.meters.nvml import AVERAGE_S, AveragedPower, NvmlGpu, open_nvml
from profiler.meters.readings import Response
from profiler.meters.stand_ins.nvml import UUID, GpuStandIn
from profiler.meters.trace import EnergyCounter, SampledPower

LOCAL = LocalTransport(kind="local")
NO_SAMPLES = BoardSamples(np.zeros(0, np.int64), np.zeros((0, 0), np.int64))


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[GpuStandIn]:
    stand_in = GpuStandIn()
    for name, function in stand_in.functions().items():
        monkeypatch.setattr(pynvml, name, function)
    yield stand_in
    assert stand_in.initialised == 0
    assert not [thread for thread in threading.enumerate() if thread.name == "meter poller"]


def described(**keys: Any) -> NvmlMeter:
    return NvmlMeter(kind="nvml", **({"rate_hz": 200.0} | keys))


def recorded(meter: NvmlGpu, duration_s: float = 0.2) -> tuple[PowerTrace, int, int]:
    """A power trace, and begin and end of a window in it, in ns."""
    try:
        meter.begin()
        start_ns = time.monotonic_ns()
        time.sleep(duration_s)
        end_ns = time.monotonic_ns()
        return meter.finish(BlockRecord(((start_ns, end_ns),), (), NO_SAMPLES)), start_ns, end_ns
    finally:
        meter.close()


@pytest.mark.parametrize("rate_hz", [200.0, 10.0])
def test_the_energy_counter_is_used_if_the_gpu_has_one(gpu: GpuStandIn, rate_hz: float) -> None:
    meter = open_nvml(described(rate_hz=rate_hz), LOCAL)
    # The stated error is that of 19 readings in 20. One of nine is more than a tenth, so that there
    # are at least twenty.
    trace, start_ns, end_ns = recorded(meter, max(1.0, 20 / rate_hz))
    assert isinstance(trace, EnergyCounter)
    assert trace.times_ns[0] <= start_ns
    assert trace.times_ns[-1] >= end_ns
    assert "energy counter" in meter.record.detail
    # Even on a slow machine, each step of the counter is in the interval that its reading states.
    stepped_s = trace.counter_j / gpu.power_w
    error_s = meter.record.sync_uncertainty_s
    assert error_s is not None
    assert np.mean(np.abs(trace.times_ns / 1e9 - stepped_s) <= error_s + 1e-6) >= 0.9


@pytest.mark.parametrize("offers", [("instant", "power"), ("power",)])
def test_power_is_used_if_the_gpu_has_no_energy_counter(gpu: GpuStandIn, offers: Any) -> None:
    gpu.offers, gpu.architecture = offers, pynvml.NVML_DEVICE_ARCH_VOLTA
    meter = open_nvml(described(), LOCAL)
    trace, start_ns, end_ns = recorded(meter)
    assert isinstance(trace, SampledPower)
    assert set(trace.power_w) == {gpu.power_w}
    assert trace.times_ns[0] <= start_ns
    assert trace.times_ns[-1] >= end_ns
    assert "averaged" not in meter.record.detail


def test_the_energy_of_steady_power_is_power_times_time(gpu: GpuStandIn) -> None:
    times_ns = np.arange(0, 2_000_000_000, 20_000_000)
    trace = EnergyCounter(times_ns, times_ns * 200e-9, nvml._COUNTER_RANGE_J, 0.02)
    assert trace.energy_j(300_000_000, 800_000_000) == pytest.approx(100.0)


def test_a_reloaded_driver_voids_the_window(gpu: GpuStandIn) -> None:
    times_ns = np.arange(0, 2_000_000_000, 20_000_000)
    counter_j = np.where(times_ns < 500_000_000, 1e6, 0.0) + times_ns * 200e-9
    trace = EnergyCounter(times_ns, counter_j, nvml._COUNTER_RANGE_J, 0.02)
    assert isinstance(trace.energy_j(300_000_000, 800_000_000), Void)


def test_a_gpu_is_recorded_as_measured_on_its_own_clock(gpu: GpuStandIn) -> None:
    meter = open_nvml(described(), LOCAL)
    meter.close()
    assert meter.record.kind == "nvml"
    assert "own clock" in meter.record.sync
    assert meter.energy_source == "measured"
    assert meter.sampler is None
    assert meter.marker is None


@pytest.mark.parametrize("which", [0, UUID])
def test_a_gpu_is_named_by_index_or_uuid(gpu: GpuStandIn, which: int | str) -> None:
    meter = open_nvml(described(gpu=which), LOCAL)
    meter.close()
    assert meter.record.detail.startswith(f"Stand-in GPU ({UUID}), driver 999.9")


@pytest.mark.parametrize("which", [3, "GPU-none"])
def test_a_missing_gpu_is_an_error_that_lists_the_existing_ones(
    gpu: GpuStandIn, which: int | str
) -> None:
    with pytest.raises(MeasurementInvalid, match=rf"GPU {which} .*found: 0: Stand-in GPU"):
        open_nvml(described(gpu=which), LOCAL)


def test_a_gpu_without_power_is_refused(gpu: GpuStandIn) -> None:
    gpu.offers = ()
    with pytest.raises(MeasurementInvalid, match="neither energy nor power"):
        open_nvml(described(), LOCAL)


@pytest.mark.parametrize(
    ("model", "architecture", "is_averaged"),
    [
        ("NVIDIA RTX A3000", pynvml.NVML_DEVICE_ARCH_AMPERE, True),
        ("NVIDIA GeForce RTX 4090", pynvml.NVML_DEVICE_ARCH_ADA, True),
        ("NVIDIA A100-SXM4-80GB", pynvml.NVML_DEVICE_ARCH_AMPERE, False),
        ("NVIDIA T4", pynvml.NVML_DEVICE_ARCH_TURING, False),
    ],
)
def test_gpus_that_average_their_power_are_recognised(
    gpu: GpuStandIn, model: str, architecture: int, is_averaged: bool
) -> None:
    gpu.model, gpu.architecture, gpu.offers = model, architecture, ("power",)
    meter = open_nvml(described(), LOCAL)
    meter.close()
    assert ("averaged over 1 s" in meter.record.detail) == is_averaged


def steps_of_power(*levels_w: float, seconds_each: float) -> tuple[SampledPower, list[int]]:
    """Averages over the last second, every 10 ms, and the bounds of the levels in ns."""
    each = round(seconds_each * 100)
    true_w = np.repeat(np.array([levels_w[0], *levels_w]), [100] + [each] * len(levels_w))
    averaged_w = np.convolve(true_w, np.full(100, 0.01), mode="valid")
    times_ns = np.arange(len(averaged_w), dtype=np.int64) * 10_000_000
    never = np.zeros(len(times_ns), np.bool_)
    power = SampledPower(times_ns, averaged_w, never, 0.01, Response(AVERAGE_S))
    return power, [round(n * seconds_each * 1e9) for n in range(len(levels_w) + 1)]


@settings(derandomize=True)
@given(levels_w=st.lists(st.floats(10, 500), min_size=3, max_size=3), seconds=st.floats(2.1, 4))
def test_energy_of_long_steady_windows_follows_from_averaged_power(
    levels_w: list[float], seconds: float
) -> None:
    seconds = round(seconds, 2)
    power, edges_ns = steps_of_power(*levels_w, seconds_each=seconds)
    middle_j = AveragedPower(power).steady_energy_j(edges_ns[1], edges_ns[2])
    assert middle_j == pytest.approx(levels_w[1] * seconds, rel=0.03, abs=0.03 * max(levels_w))


def test_averaged_power_voids_short_windows() -> None:
    power, edges_ns = steps_of_power(10.0, 100.0, seconds_each=1.5 * AVERAGE_S)
    void = AveragedPower(power).steady_energy_j(edges_ns[0], edges_ns[1])
    assert isinstance(void, Void)
    assert "averaged" in void.reason


# --- failures ---------------------------------------------------------------------------------


def test_a_lost_gpu_is_an_error_at_the_end_of_the_block(gpu: GpuStandIn) -> None:
    meter = open_nvml(described(), LOCAL)
    try:
        meter.begin()
        gpu.fails = pynvml.NVML_ERROR_GPU_IS_LOST
        with pytest.raises(BoardUnreachable, match=r"GPU 0.*GPU is lost.*nvidia-smi"):
            meter.finish(BlockRecord((), (), NO_SAMPLES))
    finally:
        meter.close()


@pytest.mark.parametrize("offers", [("energy",), ("power",)])
def test_a_gpu_that_is_lost_before_it_is_opened_is_an_error(gpu: GpuStandIn, offers: Any) -> None:
    gpu.offers, gpu.fails = offers, pynvml.NVML_ERROR_GPU_IS_LOST
    with pytest.raises(MeasurementInvalid, match=r"GPU 0 does not say.*GPU is lost.*nvidia-smi"):
        open_nvml(described(), LOCAL)


def test_a_counter_that_stands_still_is_an_error(
    gpu: GpuStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvml, "_STANDSTILL_S", 0.05)
    gpu.step_s = 0.0
    meter = open_nvml(described(), LOCAL)
    try:
        with pytest.raises(MeasurementInvalid, match="has not moved"):
            meter.begin()
    finally:
        meter.close()


def test_a_board_other_than_this_computer_is_refused() -> None:
    serial = SerialTransport(kind="serial", port="/dev/ttyACM0")
    with pytest.raises(
        MeasurementInvalid, match=r"reached by serial: run the profiler on the computer"
    ):
        open_nvml(described(), serial)


def test_a_missing_nvidia_driver_is_an_error() -> None:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        pass
    else:
        pynvml.nvmlShutdown()
        pytest.skip("this computer has an NVIDIA driver")
    with pytest.raises(MeasurementInvalid, match=r"NVIDIA driver.*install it"):
        open_nvml(described(), LOCAL)


def test_the_error_for_a_missing_package_gives_the_install_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(MeasurementInvalid, match=" -m pip install nvidia-ml-py"):
        open_nvml(described(), LOCAL)
