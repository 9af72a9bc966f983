"""Details of a cell that the page shows on demand: provenance, and commands that repeat it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from campaigns.design.file import AS_DESCRIBED, SOLVED, CampaignFile, MethodChoice
from campaigns.keeping.directory import FILE
from campaigns.keeping.results import CampaignResults, CellResult
from campaigns.sharing.repeating import DIRECTORY
from devices.description import catalog_names
from devices.documents.readable import NO_SOURCE, si
from devices.program import command_line
from devices.published import published_names
from devices.results import Results
from networks.models import model_names
from plots.report.figures import CellFigures
from plots.report.words import interval_words
from solver.files.solved import graph_path

_REPEATED = Results().root / "repeated"


def facts_of(cell: CellFigures) -> list[tuple[str, str]]:
    """Provenance of a cell and its figures, as labels and texts."""
    return [*_solved_facts(cell), *_replay_facts(cell.result)]


def _solved_facts(cell: CellFigures) -> Iterable[tuple[str, str]]:
    result, solved = cell.result, cell.result.solved
    yield "cell", result.cell.hash
    if solved is None:
        return
    yield "status", solved.status.replace("_", " ")
    if solved.note is not None:
        yield "note", solved.note
    if cell.bound_covers is not None and solved.energy_bound_j is not None:
        yield "the bound holds for", cell.bound_covers
    yield "graph", f"{solved.graph}, SHA-256 {solved.graph_sha256}"
    yield "profile", solved.profile or _profile_words(result)
    if solved.predicted_operations:
        yield "operations with predicted costs", str(solved.predicted_operations)
    if cell.solver is not None:
        yield "solver", cell.solver
    made = solved.circumstances
    took = si(made.seconds, "s", 3)
    yield "solved", f"{made.started}, {took}, {made.host}, {made.program}, Python {made.python}"


def _profile_words(result: CellResult) -> str:
    """Words for a profile that stands in place of a board."""
    profile = result.setting.profile
    if profile is None:
        return NO_SOURCE
    return f"{profile.energy_source}, in full in cells.json: {result.cell.board}"


def _replay_facts(result: CellResult) -> Iterable[tuple[str, str]]:
    for replay in result.replays:
        words = [
            replay.circumstances.started,
            f"place {replay.position}",
            f"attempt {replay.attempt}",
            interval_words(replay.time_s.measured, "s"),
        ]
        if replay.energy_j is not None:
            source = replay.measured_energy_source
            words.append(f"{interval_words(replay.energy_j.measured, 'J')} {source or ''}".rstrip())
        if replay.values_compared:
            words.append("values identical" if replay.values_identical else "values DIFFER")
        words.append(f"kernels {replay.build.kernels_sha256[:16]}")
        name = "control" if replay.control else "repetition"
        yield f"{name} {replay.number}", ", ".join(words)


def commands_that_repeat(results: CampaignResults) -> list[str]:
    """Commands that repeat a campaign, for the directory in which its report is asked for.

    They write to results of their own, where nothing counts as done. The place of the original file
    is not known, so that files that it names come from an archive.
    """
    directory = results.directory.path
    commands: list[str] = []
    if (directory / DIRECTORY / FILE).is_file():
        file = directory / DIRECTORY / FILE
    elif not _names_files(results.file):
        file = directory / FILE
    else:
        unpacked = _REPEATED / results.name
        archive = unpacked.with_name(f"{results.name}.campaign.zip")
        commands = [
            command_line("campaign", "pack", directory, "--out", archive),
            command_line("campaign", "unpack", archive, "--out", unpacked),
        ]
        file = unpacked / DIRECTORY / FILE
    return [*commands, command_line("campaign", "run", file, "--results", _REPEATED)]


def _names_files(file: CampaignFile) -> bool:
    """Whether a campaign needs files of its user: networks, boards or profiles."""
    own = (
        *(network.model not in model_names() for network in file.networks),
        *(board.device not in catalog_names() for board in file.boards if board.device),
        *(board.profile not in published_names() for board in file.boards if board.profile),
    )
    return any(own)


def commands_of(
    result: CellResult,
    method: MethodChoice,
    steps: int,
    catalogued: Collection[str],
    campaign: Sequence[str],
) -> list[str]:
    """Commands that repeat a cell, for the directory in which the report is asked for.

    Args:
        result: The cell.
        method: Its method.
        steps: Training steps of a replay.
        catalogued: The campaign's boards that are from the catalogue, not from a file.
        campaign: Commands that repeat all cells, where none repeats this one by itself.
    """
    solved, cell = result.solved, result.cell
    if solved is None:
        return [*campaign]
    schedule = result.directory.schedule_file(cell)
    words = ["solve", "--graph", str(graph_path(schedule)), "--ram-budget", str(solved.ram_bytes)]
    if solved.deadline_s is not None:
        words += ["--deadline", repr(solved.deadline_s)]
    if solved.covers != "all":
        words += ["--budget-covers", solved.covers]
    words += _method_words(method)
    commands = [command_line(*words)]
    if result.setting.is_run and solved.has_schedule:
        runs_alone = cell.condition == AS_DESCRIBED and cell.board in catalogued
        run = ("run", "--schedule", schedule, "--device", cell.board, "--steps", steps)
        commands += [command_line(*run)] if runs_alone else campaign
    return commands


def _method_words(method: MethodChoice) -> list[str]:
    words = ["--time-limit", f"{method.time_limit_s:g}"]
    if method.method != SOLVED:
        return [*words, "--baselines"]
    words += ["--threads", "1", "--gap", f"{method.gap:g}", "--formulation", method.formulation]
    words += ["--order", method.order]
    words += [] if method.paging else ["--no-paging"]
    words += [] if method.rematerialization else ["--no-remat"]
    return words
