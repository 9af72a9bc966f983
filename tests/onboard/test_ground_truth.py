"""Profiles of emulated boards compared with known costs.

Known are the instructions that the emulator counts, loops counted by hand, and the power that the
emulator sets at its sensor. Each board is booted once, and a microcontroller once more with the
loop in its firmware.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from devices.comparison import compare
from devices.description import SshTransport, load_description
from devices.operation import OpSpec
from profiler.building.sources import KERNELS
from profiler.lab.image import SENSOR_LOG
from profiler.run.options import ProfileOptions
from profiler.run.run import profile_device
from profiler.transports.ssh import SshTransport as Ssh
from tests.support.boards.ground_truth import (
    LINUX,
    CountedBoard,
    Profiled,
    build_harness,
    counted_board,
    ns_per_instruction,
)

pytestmark = [pytest.mark.emulated, pytest.mark.usefixtures("own_boards")]

MICROCONTROLLERS = ("emulated-m4f", "emulated-m3-sd")


def convolution(in_channels: int, out_channels: int, groups: int) -> OpSpec:
    return OpSpec.of(
        "conv2d.forward",
        **{"batch": 1, "in_channels": in_channels, "in_height": 8, "in_width": 6},
        **{"out_channels": out_channels, "kernel_height": 3, "kernel_width": 3},
        **{"stride_height": 1, "stride_width": 1, "groups": groups, "bias": 1},
        **{"pad_top": 1, "pad_bottom": 1, "pad_left": 1, "pad_right": 1},
    )


LINEAR = {"rows": 4, "in_features": 40, "out_features": 12, "bias": 1}
NORM = {"batch": 2, "channels": 4, "plane": 48}

CONVOLUTION = convolution(4, 8, 1)
SOFTMAX = OpSpec.of("softmax.forward", rows=16, columns=12)
UPDATE = OpSpec.of("sgd.update", elements=500)

OPERATIONS = {
    **dict.fromkeys(
        MICROCONTROLLERS,
        (
            CONVOLUTION,
            convolution(6, 6, 6),
            OpSpec.of("linear.forward", **LINEAR),
            OpSpec.of("linear.parameter_gradient", **LINEAR),
            OpSpec.of("batch_norm.forward", **NORM),
            OpSpec.of("batch_norm.input_gradient", **NORM),
            OpSpec.of("relu.forward", elements=500),
            SOFTMAX,
            UPDATE,
        ),
    ),
    LINUX: (CONVOLUTION, SOFTMAX, UPDATE),
}
BOARDS = tuple(OPERATIONS)


def options(name: str) -> ProfileOptions:
    """Options of the profile: one block on Linux, two on a microcontroller.

    The sensor of the Linux board calls for long windows, which take seconds to emulate.
    """
    return ProfileOptions(blocks=1 if name == LINUX else 2, storage=False)


@dataclass(frozen=True)
class Measured:
    """Two profiles of a board, one after the other."""

    name: str
    board: CountedBoard
    runs: tuple[Profiled, Profiled]

    @property
    def limit(self) -> float:
        """Largest relative deviation from the counted time.

        It is larger on Linux, which handles interrupts in the program's running time.
        """
        return 0.01 if self.name == LINUX else 0.001


@pytest.fixture(scope="module", params=BOARDS)
def measured(
    request: pytest.FixtureRequest, own_boards: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Measured]:
    name = request.param
    wanted = OPERATIONS[name], options(name)
    harness = request.getfixturevalue("linux_harness") if name == LINUX else None
    with counted_board(name, tmp_path_factory.mktemp(name), harness) as board:
        yield Measured(name, board, (board.profile(*wanted), board.profile(*wanted)))


# --- a loop counted by hand -----------------------------------------------------------------------

ROUNDS_PER_ELEMENT = 64
INSTRUCTIONS_PER_ROUND = 2
LOOP = OpSpec.of("relu.forward", elements=4096)

# The text of both instructions of a round is the same for all of Arm's processors.
LOOP_SOURCE = f"""
#include "joulewright.h"
#include <string.h>
static void run(const jw_call *call) {{
    uint32_t rounds = (uint32_t)call->attributes[0] * {ROUNDS_PER_ELEMENT}u;
#ifdef __aarch64__
    __asm__ volatile("1: subs %w0, %w0, #1\\n bne 1b" : "+r"(rounds) : : "cc");
#else
    __asm__ volatile("1: subs %0, %0, #1\\n bne 1b" : "+r"(rounds) : : "cc");
#endif
}}
const jw_kernel jw_kernels[] = {{{{"relu.forward", 1, 0, run, NULL}}}};
const size_t jw_kernel_count = 1;
const jw_kernel *jw_find_kernel(const char *kind) {{
    return strcmp(kind, jw_kernels[0].kind) ? NULL : jw_kernels;
}}
const char *const jw_matmul_name = "in-tree";
"""


def loop_kernels(directory: Path) -> Path:
    """A kernel library whose only kernel is the loop, in place of a ReLU."""
    for header in ("joulewright.h", "packing.h"):  # the executor includes both
        shutil.copy(KERNELS / header, directory)
    (directory / "loop.c").write_text(LOOP_SOURCE)
    return directory


def loop_s(name: str) -> float:
    rounds = ROUNDS_PER_ELEMENT * LOOP.attributes["elements"]
    return rounds * INSTRUCTIONS_PER_ROUND * ns_per_instruction(load_description(name)) * 1e-9


@pytest.mark.parametrize("name", MICROCONTROLLERS)
def test_a_loop_on_a_microcontroller_takes_the_time_counted_by_hand(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels, run = tmp_path / "kernels", tmp_path / "run"
    kernels.mkdir()
    monkeypatch.setattr("profiler.building.firmware_sources.KERNELS", loop_kernels(kernels))
    profile = profile_device(load_description(name), [LOOP], None, options(name), run)
    time_s = profile.by_spec[LOOP].warm.time_s.median
    assert time_s == pytest.approx(loop_s(name), rel=0.001)


@pytest.mark.parametrize("measured", [LINUX], indirect=True)
def test_a_loop_on_linux_takes_the_time_counted_by_hand(measured: Measured, tmp_path: Path) -> None:
    harness = build_harness(tmp_path, loop_kernels(tmp_path))
    time_s = measured.board.profile([LOOP], options(LINUX), harness).measured_s(LOOP)
    assert time_s == pytest.approx(loop_s(LINUX), rel=0.01)


# --- time -----------------------------------------------------------------------------------------


def test_an_operation_takes_the_time_of_its_instructions(measured: Measured) -> None:
    for run in measured.runs:
        deviations = {spec.key: run.deviation(spec) for spec in OPERATIONS[measured.name]}
        assert deviations == pytest.approx(dict.fromkeys(deviations, 0.0), abs=measured.limit)


def test_the_length_of_a_window_is_the_time_of_all_instructions_in_it(measured: Measured) -> None:
    """The clock is right even if other programs have run in part of the window."""
    windows = [window for run in measured.runs for window in run.windows]
    assert windows
    for window in windows:
        counted_s = [count * measured.board.ns_per_instruction * 1e-9 for count in window.all]
        nearest_s = min(counted_s, key=lambda own_s: abs(own_s - window.trial.length_s))
        assert window.trial.length_s == pytest.approx(nearest_s, rel=0.001), window.trial


def test_two_runs_of_a_profile_agree(measured: Measured) -> None:
    """Their instructions are the same; the interrupts of Linux are not, which only add time."""
    first, second = (run.profile for run in measured.runs)
    times = [figure for figure in compare(first, second).figures if figure.quantity == "time_s"]
    assert len(times) == len(OPERATIONS[measured.name])
    for figure in times:
        assert figure.ratio == pytest.approx(1.0, abs=measured.limit), figure.what


# --- energy ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SensorLog:
    """Power values set at the sensor, each with the time from which it holds."""

    times_ns: NDArray[np.int64]
    power_w: NDArray[np.float64]

    def energy_j(self, start_ns: int, end_ns: int) -> float:
        inside = (self.times_ns > start_ns) & (self.times_ns < end_ns)
        knots_ns = np.concatenate([[start_ns], self.times_ns[inside], [end_ns]])
        held = np.searchsorted(self.times_ns, knots_ns[:-1], side="right") - 1
        return float(np.sum(np.diff(knots_ns) * 1e-9 * self.power_w[held]))


def sensor_log(board: CountedBoard) -> SensorLog:
    transport = board.running.description.transport
    assert isinstance(transport, SshTransport)
    with Ssh(transport) as connected:
        text = connected.run(["cat", SENSOR_LOG], timeout_s=60.0).stdout
    table = np.array([list(map(int, line.split())) for line in text.splitlines()])
    return SensorLog(table[:, 0], table[:, 1] * 1e-6)


def with_idle_energy(measured: Measured, run: Profiled) -> Profiled:
    """This run, or one more like it in which an idle window has an energy.

    An idle board's time is the host's, and samples that are late there void a window.
    """
    for _ in range(5):
        looped = {window.trial.window for window in run.windows}
        if any(trial.energy_j is not None and trial.window not in looped for trial in run.trials):
            break
        run = measured.board.profile(OPERATIONS[measured.name], options(measured.name))
    return run


@pytest.mark.parametrize("measured", [LINUX], indirect=True)
def test_energy_is_the_integral_of_the_power_that_was_set_at_the_sensor(measured: Measured) -> None:
    """Compare each window of an operation, and the sum of all windows.

    In a single short idle window, a step of the power between two samples would weigh too much.
    """
    runs = [with_idle_energy(measured, run) for run in measured.runs]
    truth = sensor_log(measured.board)
    for run in runs:
        used = [trial for trial in run.trials if trial.energy_j is not None]
        true_j = [truth.energy_j(trial.start_ns, trial.tail_end_ns) for trial in used]
        looped = {window.trial.window for window in run.windows}
        assert {trial.window for trial in used} > looped
        for trial, expected_j in zip(used, true_j, strict=True):
            if trial.window in looped:
                assert trial.energy_j == pytest.approx(expected_j, rel=0.02), trial
        assert sum(trial.energy_j or 0.0 for trial in used) == pytest.approx(sum(true_j), rel=0.02)
