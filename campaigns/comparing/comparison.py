"""``compare_campaigns``: the shift of every cell and over all cells, with verdicts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import fmean
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from campaigns.comparing.differences import differences
from campaigns.comparing.shifts import CONFIDENCE, Shift, exact_shift, paired_shift, shift_of_logs
from campaigns.comparing.sides import Factor, Side, common_factor
from campaigns.design.cells import Cell
from campaigns.keeping.records import Repetition
from campaigns.keeping.results import CellResult
from devices.documents.document import StrictModel
from devices.errors import InputError
from devices.profile import EnergySource
from devices.quantities import NonNegative

Quantity: TypeAlias = Literal["time", "energy", "predicted energy"]


class ComparedCell(StrictModel):
    """The shift of one quantity of a cell, from the first side to the second.

    ``energy_source`` is that of energies. Of times it is ``emulated`` if those of a side are, else
    None.
    """

    first: Cell
    second: Cell
    quantity: Quantity
    energy_source: EnergySource | None = None
    shift: Shift


class Overall(StrictModel):
    """The shift of one quantity over several cells: of the mean logarithm in a repetition.

    The cells have the same ``energy_source``, that of a :class:`ComparedCell`.
    """

    quantity: Quantity
    energy_source: EnergySource | None = None
    cells: int
    shift: Shift


class Control(StrictModel):
    """The shift between the replays of a cell and its controls, between which nothing differs.

    ``campaign`` is the one that the cell is of, in the user's words. ``furthest_apart_s`` is the
    longest time between a replay and its control, ``energy_source`` that of a
    :class:`ComparedCell`.
    """

    campaign: str
    cell: Cell
    quantity: Quantity
    energy_source: EnergySource | None = None
    furthest_apart_s: NonNegative
    shift: Shift


class CampaignComparison(StrictModel):
    """Comparison of two campaigns, or of two levels (``campaign-comparison/1``).

    ``differences`` says in what the sides differ. ``left_out`` are cells of either side that could
    not be compared, with the reason. All intervals of ``cells`` and ``overall`` hold together with
    the ``confidence``, and so do those of ``controls``. Where the sides are of two campaigns,
    ``began`` is when the first replay of each did; where they are levels of one campaign,
    ``furthest_apart_s`` is the longest time between the two replays of a pair. What changed on a
    board in between is in no interval.
    """

    schema_: Annotated[Literal["campaign-comparison/1"], Field(alias="schema")] = (
        "campaign-comparison/1"
    )
    first: str
    second: str
    confidence: float = CONFIDENCE
    margin: float
    differences: tuple[str, ...]
    began: tuple[str, str] | None = None
    furthest_apart_s: NonNegative | None = None
    cells: tuple[ComparedCell, ...]
    overall: tuple[Overall, ...]
    controls: tuple[Control, ...]
    left_out: tuple[str, ...]

    @property
    def is_worse(self) -> bool:
        """Whether the second side takes more time or energy, in a cell or over all."""
        shifts = [*(each.shift for each in self.cells), *(each.shift for each in self.overall)]
        return any(shift.verdict == "more" for shift in shifts)


def compare_campaigns(first: Side, second: Side, margin: float) -> CampaignComparison:
    """Compare the measurements of two sides, cell by cell and over all.

    Args:
        first: What is compared with.
        second: What is compared.
        margin: Largest shift at which two count as the same, such as 0.02.

    Returns:
        The comparison. Estimated joules are not compared, since they are times, nor are joules of
        different sources.

    Raises:
        InputError: The sides have no cell in common that was measured on both.
    """
    factor = common_factor(first, second)
    pairs, left_out = _pairs(first, second, factor)
    samples = [sample for pair in pairs for sample in _samples(*pair)]
    words = first.words, second.words
    left_out += [sentence for pair in pairs for sentence in _unpaired(pair, words)]
    if not samples:
        reasons = "; ".join(left_out[:3]) or "they have no cell in common"
        raise InputError(
            f"{first.words} and {second.words} cannot be compared: {reasons}",
            remedy="compare campaigns, or levels of one, whose other levels are the same",
        )
    groups = [group for group in _alike(samples).values() if len(group) > 1]
    comparisons = sum(not sample.is_exact for sample in samples) + len(groups)
    is_one = _is_one_campaign(first, second)
    overall = [_overall(group, comparisons, margin) for group in groups]
    return CampaignComparison(
        first=first.words,
        second=second.words,
        margin=margin,
        differences=tuple(differences(pairs, (first, second))),
        began=None if is_one else _began(first, second),
        furthest_apart_s=_furthest_apart_s(pairs) if is_one else None,
        cells=tuple(sample.compared(comparisons, margin) for sample in samples),
        overall=tuple(each for each in overall if each is not None),
        controls=tuple(_controls((first, second), margin)),
        left_out=tuple(left_out),
    )


def _is_one_campaign(first: Side, second: Side) -> bool:
    return first.results.directory.path.resolve() == second.results.directory.path.resolve()


def _began(first: Side, second: Side) -> tuple[str, str] | None:
    """When the replays of two campaigns began; None without replays."""
    before, after = (
        [replay.circumstances.started for result in side.cells for replay in result.repetitions]
        for side in (first, second)
    )
    return (min(before), min(after)) if before and after else None


def _furthest_apart_s(pairs: Sequence[tuple[CellResult, CellResult]]) -> float | None:
    """Longest time between the beginnings of two replays that are paired; None without any.

    A campaign that was interrupted, extended or repaired has pairs that ran days apart.
    """
    apart_s = [
        _apart_s(old[number], new[number])
        for old, new in (
            (_by_number(first.repetitions), _by_number(second.repetitions))
            for first, second in pairs
        )
        for number in old.keys() & new.keys()
    ]
    return max(apart_s, default=None)


def _apart_s(first: Repetition, second: Repetition) -> float:
    """Seconds between the beginnings of two replays."""
    before, after = (
        datetime.fromisoformat(replay.circumstances.started) for replay in (first, second)
    )
    return abs((after - before).total_seconds())


@dataclass(frozen=True)
class _Sample:
    """Paired figures of one quantity of corresponding cells, by repetition."""

    first: CellResult
    second: CellResult
    quantity: Quantity
    pairs: Mapping[int, tuple[float, float]]
    source: EnergySource | None = None
    is_exact: bool = False

    def compared(self, comparisons: int, margin: float) -> ComparedCell:
        before, after = zip(*self.pairs.values(), strict=True)
        shift = (
            exact_shift(before[0], after[0], margin)
            if self.is_exact
            else paired_shift(before, after, comparisons, margin)
        )
        return ComparedCell(
            first=self.first.cell,
            second=self.second.cell,
            quantity=self.quantity,
            energy_source=self.source,
            shift=shift,
        )

    @property
    def logs(self) -> dict[int, float]:
        return {number: math.log(new / old) for number, (old, new) in self.pairs.items()}


def _pairs(
    first: Side, second: Side, factor: Factor | None
) -> tuple[list[tuple[CellResult, CellResult]], list[str]]:
    """Corresponding cells that both have results, and why others are left out."""
    before, after = first.by_levels(factor), second.by_levels(factor)
    left_out = [
        f"{result.cell}: only in {first.words}"
        for key, result in before.items()
        if key not in after
    ]
    left_out += [
        f"{result.cell}: only in {second.words}"
        for key, result in after.items()
        if key not in before
    ]
    pairs = []
    for key in before:
        if key not in after:
            continue
        pair = before[key], after[key]
        reasons = [
            f"{result.cell}: {_missing(result)} in {side.words}"
            for result, side in zip(pair, (first, second), strict=True)
            if _missing(result)
        ]
        left_out += dict.fromkeys(reasons)
        if not reasons:
            pairs.append(pair)
    return pairs, left_out


def _missing(result: CellResult) -> str:
    """Why a cell cannot be compared; empty if it can."""
    if result.solved is None or not result.solved.has_schedule:
        return result.state
    return "" if result.repetitions or not result.wanted_repetitions else "not run yet"


def _samples(first: CellResult, second: CellResult) -> Iterator[_Sample]:
    if not first.wanted_repetitions or not second.wanted_repetitions:
        assert first.solved is not None, "cells without schedules are left out"
        assert second.solved is not None, "cells without schedules are left out"
        before, after = first.solved, second.solved
        if (
            before.energy_j is not None
            and after.energy_j is not None
            and before.energy_source == after.energy_source
        ):
            energies = {0: (before.energy_j, after.energy_j)}
            source = before.energy_source
            yield _Sample(first, second, "predicted energy", energies, source, is_exact=True)
        return
    old, new = _by_number(first.repetitions), _by_number(second.repetitions)
    for quantity, source, pairs in _quantities(old, new):
        yield _Sample(first, second, quantity, pairs, source)


def _unpaired(pair: tuple[CellResult, CellResult], words: tuple[str, str]) -> Iterator[str]:
    """Say which figures of two corresponding cells are not compared, and why."""
    cell = pair[0].cell
    if all(result.wanted_repetitions for result in pair):
        old, new = (_by_number(result.repetitions) for result in pair)
        if not old.keys() & new.keys():
            yield f"{cell}: no repetition was run on both sides"
            return
        what, sources = "energies", [_sources(result.repetitions) for result in pair]
    else:
        what = "predicted energies"
        sources = [
            {result.solved.energy_source or "of no stated source"}
            if result.solved is not None and result.solved.energy_j is not None
            else set()
            for result in pair
        ]
    # Estimated joules of runs are times, which are compared.
    are_times = what == "energies" and all(each <= {"estimated"} for each in sources)
    if not are_times and not sources[0] & sources[1]:
        stated = [" and ".join(sorted(each)) or "absent" for each in sources]
        yield f"{cell}: {what} are {stated[0]} in {words[0]} and {stated[1]} in {words[1]}"


def _sources(repetitions: Sequence[Repetition]) -> set[str]:
    """Sources of the joules of replays."""
    return {
        repetition.measured_energy_source or "of no stated source"
        for repetition in repetitions
        if repetition.energy_j is not None
    }


def _quantities(
    before: Mapping[int, Repetition], after: Mapping[int, Repetition]
) -> Iterator[tuple[Quantity, EnergySource | None, dict[int, tuple[float, float]]]]:
    """Paired figures by quantity and source, of the repetitions that both sides have.

    Joules of different sources are not paired. Seconds are measured, or emulated.
    """
    times: dict[int, tuple[float, float]] = {}
    joules: dict[EnergySource | None, dict[int, tuple[float, float]]] = {}
    for number in sorted(before.keys() & after.keys()):
        old, new = before[number], after[number]
        times[number] = old.time_s.measured.median, new.time_s.measured.median
        energies = _joules(old), _joules(new)
        source = old.measured_energy_source
        if energies[0] and energies[1] and source == new.measured_energy_source:
            joules.setdefault(source, {})[number] = energies[0], energies[1]
    if times:
        replays = [side[number] for number in times for side in (before, after)]
        is_emulated = any(replay.measured_energy_source == "emulated" for replay in replays)
        yield "time", "emulated" if is_emulated else None, times
    for source, pairs in joules.items():
        yield "energy", source, pairs


def _joules(repetition: Repetition) -> float | None:
    """Joules of a step; None if they were not measured: estimated ones are times."""
    if repetition.measured_energy_source == "estimated" or repetition.energy_j is None:
        return None
    return repetition.energy_j.measured.median


def _by_number(repetitions: Sequence[Repetition]) -> dict[int, Repetition]:
    return {repetition.number: repetition for repetition in repetitions}


def _alike(
    samples: Sequence[_Sample],
) -> Mapping[tuple[Quantity, EnergySource | None], list[_Sample]]:
    """The measured samples by quantity and source: joules of different sources have no mean."""
    found: dict[tuple[Quantity, EnergySource | None], list[_Sample]] = {}
    for sample in samples:
        if not sample.is_exact:
            found.setdefault((sample.quantity, sample.source), []).append(sample)
    return found


def _overall(samples: Sequence[_Sample], comparisons: int, margin: float) -> Overall | None:
    """The shift over samples of one quantity and source; None if no repetition is complete."""
    logs = [sample.logs for sample in samples]
    complete = set.intersection(*(set(each) for each in logs))
    if not complete:
        return None
    means = [fmean(each[number] for each in logs) for number in sorted(complete)]
    shift = shift_of_logs(means, comparisons, margin)
    return Overall(
        quantity=samples[0].quantity,
        energy_source=samples[0].source,
        cells=len(logs),
        shift=shift,
    )


def _controls(sides: tuple[Side, Side], margin: float) -> Iterator[Control]:
    found: dict[str, tuple[str, _Sample, float]] = {}
    for side in sides:
        for result in side.results.cells:
            old, new = _by_number(result.repetitions), _by_number(result.controls)
            for quantity, source, pairs in _quantities(old, new):
                sample = _Sample(result, result, quantity, pairs, source)
                apart_s = max(_apart_s(old[number], new[number]) for number in pairs)
                key = f"{result.directory.path} {result.cell.hash} {quantity} {source}"
                found[key] = side.campaign, sample, apart_s
    for campaign, sample, apart_s in found.values():
        compared = sample.compared(len(found), margin)
        yield Control(
            campaign=campaign,
            cell=compared.first,
            quantity=compared.quantity,
            energy_source=compared.energy_source,
            furthest_apart_s=apart_s,
            shift=compared.shift,
        )
