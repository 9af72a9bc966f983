"""PPK2 client at the instrument's full rate, against its stand-in.

    python -m benchmarks.ppk2 [--seconds SECONDS] [--write docs/benchmarks/ppk2.md]

The stand-in is a process that writes 100,000 samples a second to a pseudo-terminal.
"""

from __future__ import annotations

import argparse
import resource
import time
from dataclasses import dataclass

import numpy as np

from benchmarks.machine import package_version
from benchmarks.pages import Page, Table
from benchmarks.publish import command_line, publish
from devices.meters import Ppk2Meter
from profiler.meters.capture import Capture, Flaw
from profiler.meters.ppk2.ppk2 import open_ppk2
from profiler.meters.stand_ins.ppk2 import Ppk2StandIn, Scenario, Status, Step

_STEPS = (Step(0.05, 0.003), Step(0.03, 0.020, inputs=1), Step(0.02, 0.11))
_VOLTAGE_V = 3.3

_TEXT = """
A stand-in for a Nordic PPK2 (a separate process, no hardware) writes 100,000 samples a second to a
pseudo-terminal for {seconds:g} s. The client records them and decodes them afterwards.
"""


@dataclass(frozen=True)
class Recording:
    """One recording. ``cpu_share`` is the client's share of a core while it records."""

    capture: Capture
    status: Status
    cpu_share: float
    decoding_s: float

    def table(self) -> Table:
        drawn_w = _VOLTAGE_V * sum(s.length_s * s.current_a for s in _STEPS)
        drawn_w /= sum(step.length_s for step in _STEPS)
        lost = int(np.count_nonzero(self.capture.flawed(Flaw.LOST, slice(None))))
        peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        rows = (
            ("samples sent", f"{self.status.samples:,}"),
            ("samples recorded", f"{len(self.capture):,}"),
            ("samples lost", f"{lost:,}"),
            (
                "samples dropped by the stand-in, because the client did not read in time",
                f"{self.status.overflowed:,}",
            ),
            ("mean power drawn", f"{drawn_w * 1e3:.3f} mW"),
            ("mean power recorded", f"{self._mean_w() * 1e3:.3f} mW"),
            ("client while recording, share of a core", f"{self.cpu_share:.1%}"),
            ("decoding afterwards", f"{self.decoding_s:.2f} s"),
            ("peak memory of the client", f"{peak_bytes / 2**20:.0f} MiB"),
        )
        return Table(("quantity", "value"), rows)

    def _mean_w(self) -> float:
        """Over whole periods of the scenario."""
        period = round(sum(step.length_s for step in _STEPS) / self.capture.period_s)
        whole = len(self.capture) // period * period
        return float(self.capture.power_w[:whole].mean())


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--seconds", type=float, default=20.0)
    publish("benchmarks.ppk2", parser, _measure)


def _measure(arguments: argparse.Namespace) -> Page:
    versions = [package_version("pyserial"), package_version("numpy", "NumPy")]
    text = _TEXT.format(seconds=arguments.seconds)
    return Page("PPK2 at full rate", text, [_record(arguments.seconds).table()], versions)


def _record(seconds: float) -> Recording:
    with Ppk2StandIn(Scenario(_STEPS)) as stand_in:
        description = Ppk2Meter.model_validate(
            {
                "kind": "ppk2",
                "port": stand_in.port,
                "mode": "source",
                "voltage_v": _VOLTAGE_V,
                "sync": {"kind": "gpio", "input": 0},
            }
        )
        instrument = open_ppk2(description)
        try:
            instrument.start()
            began_s, cpu_s = time.monotonic(), time.process_time()
            time.sleep(seconds)
            share = (time.process_time() - cpu_s) / (time.monotonic() - began_s)
            cpu_s = time.process_time()
            capture = instrument.stop()
            decoding_s = time.process_time() - cpu_s
            return Recording(capture, stand_in.status(), share, decoding_s)
        finally:
            instrument.close()


if __name__ == "__main__":
    main()
