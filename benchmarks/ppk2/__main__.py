"""The PPK2 client at the instrument's full rate, against its stand-in (an emulated instrument: a
process that writes 100,000 samples a second to a pseudo-terminal).

    python -m benchmarks.ppk2 [--seconds SECONDS]

Shows samples received and lost, the client's share of one core while it records, and what decoding
takes afterwards.
"""

from __future__ import annotations

import argparse
import datetime
import resource
import time

import numpy as np

from benchmarks.machine import machine_line
from devices.meters import Ppk2Meter
from profiler.meters.capture import Flaw
from profiler.meters.ppk2.ppk2 import open_ppk2
from profiler.meters.stand_ins.ppk2 import Ppk2StandIn, Scenario, Step

STEPS = (Step(0.05, 0.003), Step(0.03, 0.020, inputs=1), Step(0.02, 0.11))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0)
    seconds = parser.parse_args().seconds
    print(f"{datetime.date.today()}, {machine_line()}")
    with Ppk2StandIn(Scenario(STEPS)) as stand_in:
        described = Ppk2Meter.model_validate(
            {
                "kind": "ppk2",
                "port": stand_in.port,
                "mode": "source",
                "voltage_v": 3.3,
                "sync": {"kind": "gpio", "input": 0},
            }
        )
        instrument = open_ppk2(described)
        try:
            instrument.start()
            began_s, cpu_s = time.monotonic(), time.process_time()
            time.sleep(seconds)
            share = (time.process_time() - cpu_s) / (time.monotonic() - began_s)
            cpu_s = time.process_time()
            capture = instrument.stop()
            decoding_s = time.process_time() - cpu_s
            status = stand_in.status()
        finally:
            instrument.close()
    lost = int(np.count_nonzero(capture.flawed(Flaw.LOST, slice(None))))
    drawn_w = 3.3 * sum(s.length_s * s.current_a for s in STEPS) / sum(s.length_s for s in STEPS)
    period = round(sum(step.length_s for step in STEPS) / capture.period_s)
    mean_w = float(capture.power_w[: len(capture) // period * period].mean())
    most_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(f"samples sent {status.samples}, in the capture {len(capture)}, lost {lost}")
    print(f"thrown away by the stand-in, because nobody read: {status.overflowed}")
    print(f"mean power {mean_w * 1e3:.3f} mW, drawn {drawn_w * 1e3:.3f} mW")
    print(f"client while recording: {share:.1%} of one core")
    print(f"decoding afterwards: {decoding_s:.2f} s; most memory {most_bytes / 2**20:.0f} MiB")


if __name__ == "__main__":
    main()
