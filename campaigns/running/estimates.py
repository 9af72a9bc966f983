"""Estimates of a training step on a board whose schedule, or even profile, is not known yet."""

from __future__ import annotations

import math
from dataclasses import dataclass

from campaigns.design.cells import Cell, Design
from campaigns.design.file import SOLVED, MethodChoice
from campaigns.design.settings import Setting
from campaigns.running.profiling import step_of
from campaigns.running.solving import costed_network
from devices.description import DeviceDescription, Storage
from devices.plan import ROW_CHECKSUM_BYTES
from devices.profile import DeviceProfile
from devices.wear import Wear, wear
from networks.kinds import Place
from networks.training.codecs import with_codecs
from networks.training.step import StepTensor, TrainingStep
from profiler.building.store_layout import StoreLayout, record_bytes, rounded_up
from profiler.run.preview import guessed_execution_s, guessed_rate
from replay.lowering.values import frozen_tensors
from solver.baselines.names import PAGING_BASELINES


@dataclass(frozen=True)
class StepEstimate:
    """A training step.

    ``energy_j`` is None where neither a profile nor the description tells the power. ``layout`` is
    the layout of what it writes to storage, or a larger one; None if it writes nothing.
    """

    time_s: float
    energy_j: float | None
    layout: StoreLayout | None


def estimate_step(
    design: Design, cell: Cell, setting: Setting, profile: DeviceProfile | None
) -> StepEstimate:
    """Estimate the step of a cell on its board: from a profile, or from the description alone.

    Nothing is recomputed or paged, but the layout is that of a step that pages each tensor out
    once; more is of no use, since a copy stays valid until its tensor is written again.

    Raises:
        InputError: The network cannot be built, or the profile does not cover it.
    """
    level, method = design.network_by_name[cell.network], design.method_by_name[cell.method]
    description = setting.description
    assert description is not None, "a profile in place of a board runs no step"
    if profile is not None:
        costed = costed_network(level, cell.batch, profile, None, design.budget_covers, method)
        step, time_s = costed.subject.step, costed.kept.time_s
        assert step is not None, "the graph was made from a step"
        energy_j: float | None = costed.kept.energy_j
    else:
        home = level.choice.parameters_in
        step = step_of(level, cell.batch, home, method.slices, codecs=method.codecs == "all")
        time_s = math.fsum(guessed_execution_s(op.spec, description) for op in step.ops)
        energy_j = nominal_energy_j(description, time_s)
    storage = description.storage
    # Codes are tensors besides those of the plain step, in which form a schedule may be, too.
    largest = with_codecs(step) if method.codecs == "auto" else step
    layout = None if storage is None else _largest_layout(largest, storage)
    return StepEstimate(time_s, energy_j, layout)


def nominal_energy_j(description: DeviceDescription, time_s: float) -> float | None:
    """Nominal power × time; None if the description states no nominal power."""
    power_w = description.nominal_power_w
    return None if power_w is None else power_w * time_s


def basis_of(description: DeviceDescription, profile: DeviceProfile | None) -> str:
    """State in words what the estimates of a board's steps come from."""
    if profile is not None:
        return f"its profile ({profile.energy_source})"
    power_w = description.nominal_power_w
    power = "" if power_w is None else f" and its nominal_power_w of {power_w:g} W"
    return f"a guess of {guessed_rate(description)}{power}"


def may_page(method: MethodChoice, parameters_in: Place) -> bool:
    """Whether schedules of a method may write to storage: all do if it is the parameters' home."""
    pages = method.paging if method.method == SOLVED else method.method in PAGING_BASELINES
    return pages or parameters_in == "storage"


def wear_at_most(storage: Storage, written_bytes: int, steps_per_day: float) -> Wear:
    """Wear by a step that writes so many bytes, in whole erase blocks if there are any."""
    block = storage.erase_block_bytes
    blocks = 0 if block is None else -(-written_bytes // block)
    part = written_bytes if block is None else blocks * block
    return wear(storage, written_bytes, blocks, part, steps_per_day)


def _largest_layout(step: TrainingStep, storage: Storage) -> StoreLayout:
    """Layout of a step that pages each tensor out once, without the places of the tensors."""
    page, block = storage.page_bytes, storage.erase_block_bytes or 0
    written_bytes = _most_written(step, page)
    frozen = list(frozen_tensors(step))
    frozen_bytes = sum(_whole_bytes(tensor, page) for tensor in frozen)
    if frozen:  # the values and their record have erase blocks of their own
        record = rounded_up(record_bytes(len(frozen)), block or page)
        frozen_bytes = rounded_up(frozen_bytes, block or page) + record
    tables = [each for each in step.tensors if each.home == "storage" and each.is_table]
    return StoreLayout(
        page_bytes=page,
        erase_block_bytes=block,
        offsets=(),
        record_offset=0,
        written_bytes=written_bytes,
        step_bytes=rounded_up(written_bytes, block or page),
        table_bytes=sum(_whole_bytes(table, page) for table in tables if table not in frozen),
        frozen_bytes=frozen_bytes,
    )


def _whole_bytes(tensor: StepTensor, page: int) -> int:
    """Bytes of a tensor in storage, in whole pages; of a table, with all its rows."""
    if not tensor.is_table:
        return rounded_up(tensor.bytes, page)
    row_bytes = tensor.bytes // tensor.stretches + ROW_CHECKSUM_BYTES
    return tensor.home_stretches * rounded_up(row_bytes, page)


def _most_written(step: TrainingStep, page: int) -> int:
    """Bytes of all tensors and of the step's record, in whole pages.

    Changed rows of tables are written twice: with the step, and to the table.
    """
    written, rows = 0, 0
    for tensor in step.tensors:
        written += rounded_up(tensor.bytes, page)
        if tensor.is_table:
            row_bytes = tensor.bytes // tensor.stretches + ROW_CHECKSUM_BYTES
            written += tensor.stretches * rounded_up(row_bytes, page)
            rows += tensor.stretches
    # A record; where tables are changed, that of the step before is wiped, too.
    records = 2 if rows else 1
    return written + records * rounded_up(record_bytes(len(step.tensors), rows), page)
