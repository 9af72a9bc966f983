"""Storage costs of a run: reading, writing and erasing, each fitted from its transfers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from devices.description import Storage
from devices.profile import AffinePageCost, StorageCosts, SweepPoint
from profiler.run.storage_fit import fit_page_cost
from profiler.run.table import TrialTable
from profiler.script.transfers import TransferMethod
from profiler.script.windows import BlockContent
from profiler.statistics import later_intervals

_FEWEST_POINTS = 2


def storage_costs(
    storage: Storage | None,
    place: str | None,
    content: BlockContent,
    table: TrialTable,
    handover_s: float | None = None,
) -> StorageCosts | None:
    """Fit the storage costs. ``place`` is the board's name for the overwritten stretch;
    ``handover_s`` is what it reports. None where storage was not measured, or too few transfers are
    valid for a fit."""
    reads, writes, erases = (
        _sweep(content, table, method) for method in ("read", "write", "erase")
    )
    needed = [reads, writes, erases] if "erase" in _methods(content) else [reads, writes]
    if storage is None or any(len(sweep) < _FEWEST_POINTS for sweep in needed):
        return None
    block_bytes = storage.erase_block_bytes if erases else None
    return StorageCosts(
        medium=storage.medium,
        path=None if storage.path is None or place is None else place.removeprefix("directory="),
        dma=storage.dma,
        page_bytes=storage.page_bytes,
        erase_block_bytes=block_bytes,
        capacity_bytes=storage.capacity_bytes,
        scratch_bytes=storage.scratch_bytes,
        endurance_cycles=storage.endurance_cycles,
        method=_method(storage, table),
        read=fit_page_cost(reads, storage.page_bytes),
        write=fit_page_cost(writes, storage.page_bytes),
        erase=None if block_bytes is None else fit_page_cost(erases, block_bytes),
        handover_s=handover_s if storage.dma else None,
    )


def energy_notes(costs: StorageCosts, content: BlockContent, table: TrialTable) -> Iterator[str]:
    """A sentence for each cost whose transfers have too few energies for a fit of joules."""
    fits: dict[TransferMethod, AffinePageCost | None] = {
        "read": costs.read,
        "write": costs.write,
        "erase": costs.erase,
    }
    for method, fit in fits.items():
        if fit is None or fit.per_page_j is not None:
            continue
        reasons = Counter(
            trial.energy_void
            for window in content.transfers
            if window.method == method
            for trial in table.valid(window.label).values()
            if trial.energy_void is not None
        )
        most = reasons.most_common(1)
        why = most[0][0] if most else "fewer than two sizes have an energy above idle"
        yield f"No joules of {method} transfers: {why}."


def _methods(content: BlockContent) -> set[TransferMethod]:
    return {window.method for window in content.transfers}


def _method(storage: Storage, table: TrialTable) -> str:
    """Measuring method, for the profile."""
    if storage.mtd_partition is not None:
        return (
            f"raw flash partition {storage.mtd_partition}: reads of programmed pages, writes into"
            " erased blocks, erasing measured separately"
        )
    if storage.path is None:
        erasing = " into erased blocks, erasing measured separately"
        return (
            f"firmware driver {storage.driver}: reads at random places,"
            f" writes{erasing if storage.erase_block_bytes else ' at random places'}"
        )
    if all(harness_run.header.is_direct is not False for harness_run in table.harness_runs):
        return (
            "as replays transfer, with checksums: O_DIRECT reads; synced O_DIRECT writes over an"
            " existing file"
        )
    return (
        "as replays transfer, with checksums, through the page cache (the file system refuses"
        " O_DIRECT); synced writes"
    )


def _sweep(content: BlockContent, table: TrialTable, method: TransferMethod) -> list[SweepPoint]:
    idle_w = table.idle_power_w()
    sizes: list[int] = []
    times: list[list[float]] = []
    joules: list[list[float]] = []
    for window in content.transfers:
        valid = table.valid(window.label)
        if window.method != method or not valid:
            continue
        energies = [
            trial.execution_energy_j(idle_w.get(block, 0.0))
            for block, trial in sorted(valid.items())
            if block in idle_w or trial.tail_s == 0.0
        ]
        sizes.append(window.bytes)
        times.append(table.values(window.label, lambda trial: trial.time_s))
        joules.append([energy for energy in energies if energy is not None])
    known = iter(later_intervals([energies for energies in joules if energies]))
    return [
        SweepPoint(bytes=size, time_s=time_s, energy_j=next(known) if energies else None)
        for size, time_s, energies in zip(sizes, later_intervals(times), joules, strict=True)
    ]
