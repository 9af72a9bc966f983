"""Sensors read by the harness without a kernel driver: I²C registers, the Raspberry Pi's PMIC.

I²C transfers are tested on the emulated board (``test_linux_harness_emulated.py``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from devices.errors import MeasurementInvalid
from devices.meters import InaMeter
from profiler.boards.posix import PosixBoard
from profiler.building.toolchain import BuiltHarness
from profiler.meters.base import BlockRecord, BoardSamples, Void
from profiler.meters.on_board.ina import open_ina
from profiler.opening.meters import open_board_meter
from profiler.script.records import parse_results, parse_samples
from profiler.transports.local import LocalTransport
from tests.support.boards.measuring import describe, run_harness

MS = 1_000_000

# As printed by a Raspberry Pi 5: 3 rails with both figures, and voltages without a current.
PMIC = """\
#!/bin/sh
[ "$1" = pmic_read_adc ] || exit 1
cat <<END
   3V7_WL_SW_A current(0)=0.10000000A
   VDD_CORE_A current(7)=1.50000000A
   0V8_SW_A current(6)=0.25000000A
   3V7_WL_SW_V volt(8)=3.70000000V
   VDD_CORE_V volt(15)=0.80000000V
   0V8_SW_V volt(14)=0.80000000V
   BATT_V volt(25)=0.00000000V
   EXT5V_V volt(24)=5.10000000V
END
"""
PMIC_W = 0.1 * 3.7 + 1.5 * 0.8 + 0.25 * 0.8


def described(chip: str, **more: Any) -> InaMeter:
    fields = {"kind": "ina", "chip": chip, "bus": 1, "address": 0x40, "shunt_ohm": 0.01}
    return InaMeter.model_validate(fields | {"max_current_a": 2.0} | more)


def registers(chip: str, bus_v: float, shunt_v: float) -> tuple[int, int]:
    """Contents of the chip's bus and shunt registers as signed numbers, by its data sheet."""
    match chip:
        case "ina219":
            bus = (round(bus_v / 4e-3) << 3) | 2  # conversion ready
            return bus - (bus & 0x8000) * 2, round(shunt_v / 10e-6)
        case "ina226":
            return round(bus_v / 1.25e-3), round(shunt_v / 2.5e-6)
        case _:
            return round(bus_v / 8e-3) << 3, round(shunt_v / 40e-6) << 3


def block(bus: int, shunt: int) -> BlockRecord:
    samples = BoardSamples(
        times_ns=np.arange(40, dtype=np.int64) * 10 * MS,
        values=np.tile(np.array([bus, shunt], dtype=np.int64), (40, 1)),
    )
    return BlockRecord(windows_ns=(), markers_ns=(), samples=samples)


@settings(derandomize=True)
@given(
    st.sampled_from(["ina219", "ina226", "ina3221"]),
    st.floats(1.0, 25.0),
    st.floats(0.1, 1.9),
)
def test_registers_are_converted_to_volts_and_amperes(
    chip: str, bus_v: float, current_a: float
) -> None:
    meter = open_ina(described(chip), "board", "measured")
    energy_j = meter.finish(block(*registers(chip, bus_v, current_a * 0.01))).energy_j(
        100 * MS, 300 * MS
    )
    assert not isinstance(energy_j, Void)
    resolution = {"ina219": 10e-6, "ina226": 2.5e-6, "ina3221": 40e-6}[chip]
    assert energy_j == pytest.approx(
        bus_v * current_a * 0.2, rel=0.006 / bus_v + resolution / (current_a * 0.01)
    )


@pytest.mark.parametrize(
    ("chip", "more", "value"),
    [
        # Reset values of the data sheets, with as much averaging as the rate allows.
        ("ina226", {"rate_hz": 300.0}, 0x4127),
        ("ina226", {"rate_hz": 100.0}, 0x4127 | 1 << 9),
        ("ina219", {"rate_hz": 1000.0, "max_current_a": 32.0}, 0x3C47),
        ("ina219", {"rate_hz": 1000.0, "max_current_a": 2.0}, 0x2447),
        ("ina3221", {"rate_hz": 300.0, "channel": 1}, 0x4127),
        ("ina3221", {"rate_hz": 300.0, "channel": 3}, 0x1127),
    ],
)
def test_the_configuration_register_follows_the_data_sheet(
    chip: str, more: dict[str, Any], value: int
) -> None:
    meter = open_ina(described(chip, **more), "board", "measured")
    assert meter.sampler.setup == (f"i2c=/dev/i2c-1 address=64 register=0 value={value}",)


@pytest.mark.parametrize(("chip", "full_scale_v"), [("ina219", 0.04), ("ina226", 0.08192)])
def test_a_reading_at_the_end_of_the_range_voids_the_window(chip: str, full_scale_v: float) -> None:
    meter = open_ina(described(chip), "board", "measured")
    reading = meter.finish(block(*registers(chip, 5.0, full_scale_v - 2.5e-6))).energy_j(
        100 * MS, 300 * MS
    )
    assert isinstance(reading, Void)
    assert "range" in reading.reason


def test_a_shunt_that_is_too_large_for_the_current_is_refused() -> None:
    with pytest.raises(
        MeasurementInvalid, match=r"measures up to 8.19 A, not .* 10; use a smaller"
    ):
        open_ina(described("ina226", max_current_a=10.0), "board", "measured")


@pytest.mark.slow
def test_the_power_of_a_pi_5_is_the_sum_of_its_rails(
    compiled: tuple[Path, BuiltHarness], tmp_path: Path
) -> None:
    command = tmp_path / "vcgencmd"
    command.write_text(PMIC)
    command.chmod(0o755)
    description = describe(meter={"kind": "pmic", "command": str(command), "rate_hz": 50.0})
    found = open_board_meter(description, PosixBoard(description, LocalTransport(), 0.1))
    assert found is not None
    assert found.sampler is not None
    plan = (
        "joulewright-plan 1\narena bytes=64\nsampler period_ns=20000000\n"
        f"sample {found.sampler.sources[0]}\nidle id=0 duration_ns=600000000\nend\n"
    )
    code, text, errors = run_harness(compiled[0], tmp_path, plan)
    assert (code, errors) == (0, "")
    samples = parse_samples((tmp_path / "samples").read_text(), 1)
    assert set(samples.values[:, 0]) == {round(PMIC_W * 1e6)}
    (window,) = parse_results(text).windows
    trace = found.finish(BlockRecord(windows_ns=(), markers_ns=(), samples=samples))
    energy_j = trace.energy_j(window.start_ns, window.end_ns)
    if not isinstance(energy_j, Void):  # samples may come late on a busy machine
        assert energy_j == pytest.approx(PMIC_W * (window.end_ns - window.start_ns) / 1e9)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("pmic=false", "it needs a Raspberry Pi 5"),
        ("pmic=vcgencmd;reboot", "is not the name of a command"),
        ("i2c=/dev/i2c-99 address=64 register=1", "/dev/i2c-99: No such file"),
        ("i2c=/dev/null address=64 register=1", "address 0x40"),
    ],
)
def test_the_error_names_a_source_that_cannot_be_read(
    source: str, sentence: str, compiled: tuple[Path, BuiltHarness], tmp_path: Path
) -> None:
    plan = f"joulewright-plan 1\narena bytes=64\nsampler period_ns=20000000\nsample {source}\nend\n"
    code, _, errors = run_harness(compiled[0], tmp_path, plan)
    assert code in {2, 4}
    assert sentence in errors
