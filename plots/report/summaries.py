"""Summaries of a campaign: failures, settings, methods side by side, predictions held to runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from campaigns.keeping.records import Circumstances, Repetition, SolvedCell
from campaigns.keeping.results import CampaignResults
from devices.documents.readable import NO_SOURCE, si, size
from devices.profile import BoardIdentity, Build, DeviceProfile, MeterRecord
from plots.report.figures import CellFigures
from plots.report.table import NOTHING, Entry
from plots.report.words import geometric_mean, group_words, percent

Rows = tuple[tuple[Entry, ...], ...]
Facts = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Problem:
    """Something that failed, or that differs from what must be; ``number`` is that of its cell."""

    what: str
    phase: str
    reason: str
    attempts: int
    given_up: bool
    number: int | None = None


@dataclass(frozen=True)
class Table:
    """A table: the first column heads its rows, numbers are in the columns after it."""

    caption: str
    head: tuple[str, ...]
    rows: Rows


# --- failures ---------------------------------------------------------------------------------


def problems_of(cells: Sequence[CellFigures]) -> tuple[Problem, ...]:
    """Failed attempts and differing values, those that the campaign gave up on first."""
    found: dict[tuple[str, str, str], Problem] = {}
    for each in cells:
        for problem in _problems(each):
            # The cells of a board share the failures of its profile.
            key = problem.what, problem.phase, problem.reason
            if key not in found or problem.given_up:
                found[key] = problem
    return tuple(sorted(found.values(), key=lambda problem: not problem.given_up))


def _problems(cell: CellFigures) -> Iterable[Problem]:
    result = cell.result
    name = f"cell {cell.number}: {result.cell}"
    if cell.differs:
        reason = "values differ from those of the unscheduled step"
        yield Problem(name, "run", reason, 1, given_up=True, number=cell.number)
    by_reason: dict[tuple[str, str], int] = {}
    for failure in result.failures:
        key = failure.phase, failure.reason
        by_reason[key] = by_reason.get(key, 0) + 1
    for (phase, reason), attempts in by_reason.items():
        of_board = phase == "profile"
        final = result.final_failure
        yield Problem(
            what=f"profile of {result.setting.name}" if of_board else name,
            phase=phase,
            reason=reason,
            attempts=attempts,
            given_up=result.state == "failed"
            and final is not None
            and (final.phase, final.reason) == (phase, reason),
            number=None if of_board else cell.number,
        )


# --- boards and circumstances -----------------------------------------------------------------


def settings_table(cells: Sequence[CellFigures]) -> Table:
    """Boards with the circumstances under which their cells were solved and run."""
    by_setting: dict[str, list[CellFigures]] = {}
    for each in cells:
        by_setting.setdefault(each.result.setting.name, []).append(each)
    facts = {name: dict(_facts(of_setting)) for name, of_setting in by_setting.items()}
    known = dict.fromkeys(what for each in facts.values() for what in each)
    rows = tuple(
        (Entry(what), *(Entry(each.get(what, "–")) for each in facts.values())) for what in known
    )
    return Table("Each column is a board under a condition.", ("", *facts), rows)


def _facts(cells: Sequence[CellFigures]) -> Iterable[tuple[str, str]]:
    first = cells[0].result
    profile = next((each.result.profile() for each in cells if each.result.solved), None)
    replays = [repetition for each in cells for repetition in each.result.repetitions]
    yield "cells", str(len(cells))
    if first.setting.tags:
        yield "tags", ", ".join(first.setting.tags)
    if first.setting.description is None:
        yield "runs", "none: a profile stands for the board, schedules are solved only"
    if profile is not None:
        yield from _profile_facts(profile)
    yield from _replay_facts(replays)
    solved = [each.result.solved for each in cells if each.result.solved is not None]
    yield from _circumstances("solved", [each.circumstances for each in solved])
    yield from _circumstances("run", [each.circumstances for each in replays])


def _profile_facts(profile: DeviceProfile) -> Iterable[tuple[str, str]]:
    yield "energy source, predicted", profile.energy_source
    if profile.created is not None:
        yield "profile of", profile.created
    yield from _board_facts(profile.board)
    if profile.build is not None:
        yield from _build_facts(profile.build)
    if profile.meter is not None:
        yield "meter of the profile", _meter_words(profile.meter)


def _board_facts(board: BoardIdentity) -> Iterable[tuple[str, str]]:
    yield "board", board.model
    yield "memory", size(board.memory_bytes)
    for what, found in (
        ("serial number", board.serial),
        ("operating system", board.kernel),
        ("processor", board.cpu),
        ("governor", board.governor),
        ("storage card", board.storage_card),
    ):
        if found is not None:
            yield what, found
    if board.cpu_frequency_hz is not None:
        yield "frequency", si(board.cpu_frequency_hz, "Hz")


def _build_facts(build: Build) -> Iterable[tuple[str, str]]:
    yield "compiler", build.compiler
    yield "flags", " ".join(build.flags)
    yield "matrix product", build.blas or build.matmul
    yield "threads", str(build.threads)


def _meter_words(meter: MeterRecord) -> str:
    rate = "" if meter.rate_hz is None else f", {si(meter.rate_hz, 'Sa/s')}"
    return f"{meter.kind}, {meter.detail}{rate}, {meter.sync}"


def _replay_facts(replays: Sequence[Repetition]) -> Iterable[tuple[str, str]]:
    if not replays:
        return
    sources = (repetition.measured_energy_source or NO_SOURCE for repetition in replays)
    yield "energy source, as run", _distinct(sources)
    meters = [_meter_words(each.meter) for each in replays if each.meter is not None]
    if meters:
        yield "meter of the replays", _distinct(meters)
    yield "training steps of a replay", _distinct(str(each.steps) for each in replays)
    limits = [limit for each in replays for limit in each.limits]
    if limits:
        yield "limits of the replays", _distinct(limits)


def _circumstances(what: str, found: Sequence[Circumstances]) -> Iterable[tuple[str, str]]:
    if not found:
        return
    times = sorted(each.started for each in found)
    yield f"{what}, first and last start", f"{times[0]} to {times[-1]}"
    yield f"{what} by", _distinct(f"{each.host}, {each.program}" for each in found)
    loads = [each.load for each in found]
    yield f"load average, {what}", f"{min(loads):.2g} to {max(loads):.2g}"


def _distinct(words: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(words))


# --- methods ----------------------------------------------------------------------------------


def methods_summary(cells: Sequence[CellFigures], methods: Sequence[str]) -> Table:
    """How many cells each method solved, and how far it is from the best of all methods."""
    problems = _by_problem(cells)
    best = {
        key: min(_energy_j(each) for each in of_problem.values())
        for key, of_problem in problems.items()
        if of_problem
    }
    rows = []
    for method in methods:
        asked = [each for each in cells if each.result.cell.method == method]
        found = {key: each[method] for key, each in problems.items() if method in each}
        ratios = [_energy_j(each) / best[key] for key, each in found.items() if best[key] > 0]
        seconds = [
            each.result.solved.circumstances.seconds
            for each in asked
            if each.result.solved is not None
        ]
        sources = _distinct(
            each.predicted_energy.source or ""
            for each in found.values()
            if each.predicted_energy is not None
        )
        rows.append(
            (
                Entry(method),
                Entry(f"{len(found)} of {len(asked)}"),
                _ratio(geometric_mean(ratios) if ratios else None, sources),
                _ratio(max(ratios, default=None), sources),
                Entry(str(sum(ratio <= 1 + 1e-9 for ratio in ratios))),
                Entry(si(median(seconds), "s")) if seconds else NOTHING,
            )
        )
    head = (
        "method",
        "schedules found",
        "energy over the best, geometric mean",
        "energy over the best, worst cell",
        "best or equal, cells",
        "time of a search, median",
    )
    return Table("Methods over all cells", head, tuple(rows))


def methods_side_by_side(cells: Sequence[CellFigures], methods: Sequence[str]) -> Table:
    """Predicted energy by problem and method, with the excess over the best."""
    rows = []
    for problem, of_problem in _by_problem(cells).items():
        best = min((_energy_j(each) for each in of_problem.values()), default=0.0)
        entries = [
            _beside_best(of_problem[method], best) if method in of_problem else NOTHING
            for method in methods
        ]
        rows.append((Entry(problem), *entries))
    return Table("Predicted energy of a step, by method", ("problem", *methods), tuple(rows))


def _by_problem(cells: Sequence[CellFigures]) -> dict[str, dict[str, CellFigures]]:
    """Cells with a schedule by method, for each problem: all factors but the method.

    The same share of RAM is another problem where methods take the step in ways with other peaks.
    """
    problems: dict[str, dict[str, CellFigures]] = {}
    for each in cells:
        solved = each.result.solved
        if solved is None:
            continue
        problem = f"{group_words(solved.cell)}, {_budget_words(solved)}"
        of_problem = problems.setdefault(problem, {})
        if each.predicted_energy is not None:
            of_problem[solved.cell.method] = each
    return problems


def _budget_words(solved: SolvedCell) -> str:
    word, ram_bytes = solved.cell.ram_budget, solved.asked_ram_bytes
    return f"{word} = {ram_bytes:,} bytes" if word.endswith("%") else word


def _energy_j(cell: CellFigures) -> float:
    assert cell.predicted_energy is not None, "only cells with a schedule are compared"
    return cell.predicted_energy.interval.median


def _beside_best(cell: CellFigures, best_j: float) -> Entry:
    energy_j = _energy_j(cell)
    words = si(energy_j, "J")
    if best_j > 0 and energy_j > best_j:
        words += f" ({percent(energy_j / best_j - 1)})"
    assert cell.predicted_energy is not None, "it has an energy"
    return Entry(words, energy_j, cell.predicted_energy.source)


def _ratio(ratio: float | None, source: str) -> Entry:
    return NOTHING if ratio is None else Entry(percent(ratio - 1), ratio, source or None)


# --- predicted and measured -------------------------------------------------------------------


def prediction_table(cells: Sequence[CellFigures]) -> Table | None:
    """Differences of runs from predictions by board; None if no cell ran."""
    by_setting: dict[str, list[CellFigures]] = {}
    for each in cells:
        if each.time_difference is not None:
            by_setting.setdefault(each.result.setting.name, []).append(each)
    if not by_setting:
        return None
    rows = []
    for name, ran in by_setting.items():
        times = [each.time_difference for each in ran if each.time_difference is not None]
        energies = [each.energy_difference for each in ran if each.energy_difference is not None]
        replays = [repetition for each in ran for repetition in each.result.repetitions]
        beyond = sum(repetition.time_s.beyond for repetition in replays)
        memory = sum(repetition.memory.as_predicted for repetition in replays)
        compared = [r for each in ran for r in each.result.replays if r.values_compared]
        same = sum(replay.values_identical for replay in compared)
        source = _distinct(
            each.measured_energy.source or "" for each in ran if each.measured_energy is not None
        )
        rows.append(
            (
                Entry(name),
                Entry(str(len(ran))),
                Entry(percent(median(times))),
                Entry(percent(max(times, key=abs))),
                Entry(f"{len(replays) - beyond} of {len(replays)}"),
                Entry(percent(median(energies)), source=source) if energies else NOTHING,
                Entry(f"{memory} of {len(replays)}"),
                Entry(f"{same} of {len(compared)}"),
            )
        )
    head = (
        "board",
        "cells",
        "time, median difference",
        "time, largest difference",
        "replays within the intervals",
        "energy, median difference",
        "replays with exactly the predicted RAM",
        "replays with identical values, controls included",
    )
    return Table("Runs held against predictions", head, tuple(rows))


# --- what was asked ---------------------------------------------------------------------------


def asked(results: CampaignResults) -> Facts:
    """The levels of each factor, and how often cells are run."""
    design, file = results.design, results.file
    boards = dict.fromkeys(setting.board for setting in design.settings)
    conditions = dict.fromkeys(setting.condition for setting in design.settings)
    batches = dict.fromkeys(cell.batch for cell in design.cells)
    return (
        ("boards", ", ".join(boards)),
        ("conditions", ", ".join(conditions)),
        ("networks", ", ".join(network.name for network in file.networks)),
        ("batches", ", ".join(str(batch or "the network's own") for batch in batches)),
        ("RAM budgets", f"{', '.join(file.ram_budgets)} (they cover {file.budget_covers})"),
        ("deadlines", ", ".join(file.deadlines)),
        ("methods", ", ".join(method.name for method in file.methods)),
        ("repetitions", f"{file.repetitions} of {file.steps} training steps"),
        ("seed", str(file.seed)),
        ("left out", f"{len(file.exclude)} entries of exclude" if file.exclude else "nothing"),
    )
