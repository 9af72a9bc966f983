"""A card of known speed: QEMU limits its requests, of 512 bytes each, per second.

It runs without icount, under which the limit has no effect. QEMU lets late requests pass at once,
up to a tenth of a second's. On a busy computer a window therefore begins and ends up to that much
early or late, which is little of its length, as long as the emulator can serve several times the
requests of the limit. The limit is low, so that it can with a small share of a processor. A longer
stall of the emulator only adds time, so that the shortest of several windows of a size counts. The
kernel writes nothing else to the card meanwhile.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import pytest

from devices.description import load_description
from devices.firmware import EmulatedCard, Throttle
from devices.profile import AffinePageCost, Interval, SweepPoint
from profiler.lab import start
from profiler.run.storage_fit import fit_page_cost
from profiler.script.records import parse_results
from profiler.script.transfers import TransferMethod, TransferWindow
from profiler.script.writer import Memory, Settings, write_plan
from profiler.transports import open_transport
from tests.support.boards.ground_truth import Harness

pytestmark = pytest.mark.emulated

CARD = "/mnt/sd"
PAGE = 4096
REQUESTS_PER_PAGE = PAGE // 512
READ_IOPS, WRITE_IOPS = 50, 40
LIMIT_S = 300.0

# Neither the journal of the file system nor its tables, which are written every few seconds.
NOTHING_ELSE = f"""
mount -o remount,commit=1000 {CARD} && echo 0 > /proc/sys/vm/dirty_writeback_centisecs
"""
MIN_WINDOW_S = 4.0
MOST_RUNS = 5
ERROR = 0.07  # a tenth of a second at both ends of a window is 5 %
# The first transfer is not throttled: a tenth of a second's requests are free after a pause.
WARM_UP, SIZES = 32, (1, 4, 16)
LIMITS_IOPS: dict[TransferMethod, int] = {"read": READ_IOPS, "write": WRITE_IOPS}
WINDOWS = [
    TransferWindow(method, pages * PAGE, 1 if pages == WARM_UP else 1000)
    for method in LIMITS_IOPS
    for pages in (WARM_UP, *SIZES)
]


def costs(shortest_s: Mapping[TransferWindow, float]) -> dict[TransferMethod, AffinePageCost]:
    """Fitted costs of each method, from the shortest time of a transfer of each size."""
    points: dict[TransferMethod, list[SweepPoint]] = {method: [] for method in LIMITS_IOPS}
    for window, time_s in shortest_s.items():
        point = SweepPoint(bytes=window.bytes, time_s=Interval.exact(time_s))
        points[window.method].append(point)
    return {method: fit_page_cost(points[method], PAGE) for method in LIMITS_IOPS}


def deviation(cost: AffinePageCost, limit_iops: int) -> float:
    """Largest relative deviation of the cost from that of the limit."""
    page_s = REQUESTS_PER_PAGE / limit_iops
    return max(
        abs(fitted_s / page_s - 1.0)
        for fitted_s in (cost.per_page_s, cost.fixed_s + cost.per_page_s)
    )


def test_the_fit_recovers_the_throttled_speed_of_the_card(
    own_boards: None, linux_harness: Harness, tmp_path: Path
) -> None:
    description = load_description("emulated-a72")
    assert description.emulator is not None
    card = EmulatedCard(throttle=Throttle(read_iops=READ_IOPS, write_iops=WRITE_IOPS))
    changes = {"icount_shift": None, "nand": None, "sensor": None, "card": card}
    emulated = description.model_copy(
        update={"emulator": description.emulator.model_copy(update=changes)}
    )
    settings = Settings(
        min_window_s=MIN_WINDOW_S,
        idle_s=0.0,
        tail_s=0.0,
        first_executions={},
        sampler=None,
        storage_place=f"directory={CARD}",
        scratch_bytes=WARM_UP * PAGE,
    )
    plan = write_plan(WINDOWS, None, Memory(1 << 20, 0, {}), settings)
    (tmp_path / "plan").write_text(plan.text)
    shortest_s: dict[TransferWindow, float] = {}
    deviations: dict[TransferMethod, float] = {}
    with (
        start(emulated, lambda _text: None) as running,
        open_transport(running.description) as transport,
    ):
        transport.run(["sh", "-c", NOTHING_ELSE], timeout_s=LIMIT_S)
        harness = linux_harness.put_on(transport).path
        transport.put(tmp_path / "plan", "plan", timeout_s=LIMIT_S)
        for _ in range(MOST_RUNS):
            transport.run([harness, "run", "plan", "results", "samples"], timeout_s=LIMIT_S)
            transport.get("results", tmp_path / "results", timeout_s=LIMIT_S)
            results = parse_results((tmp_path / "results").read_text())
            assert results.is_direct
            for record, window in zip(results.windows, WINDOWS, strict=True):
                if window.bytes != WARM_UP * PAGE:
                    time_s = (record.end_ns - record.start_ns) / record.executions * 1e-9
                    shortest_s[window] = min(time_s, shortest_s.get(window, math.inf))
            fitted = costs(shortest_s)
            deviations = {
                method: deviation(fitted[method], iops) for method, iops in LIMITS_IOPS.items()
            }
            if max(deviations.values()) <= ERROR:
                break
    assert deviations == pytest.approx(dict.fromkeys(LIMITS_IOPS, 0.0), abs=ERROR), shortest_s
