"""Campaigns on disk whose schedules are found and whose replays are made up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from campaigns.design.cells import Cell
from campaigns.design.opening import open_campaign
from campaigns.keeping.directory import CampaignDirectory
from campaigns.keeping.records import (
    Beginning,
    Circumstances,
    Failure,
    Repetition,
    ReplayPlace,
    SolvedCell,
)
from campaigns.running.solving import SolveJob, costed_network, record_of, solve
from devices.library import resolve_profile
from devices.replay import PowerSamples
from devices.results import Results
from replay.expectation import expected_step
from solver.problem.graph import CostedGraph
from solver.problem.schedule import Schedule
from tests.support.onboard.replays import measured_step, report_of

TRIED: Mapping[str, Any] = {
    "schema": "campaign/1",
    "name": "tried",
    "boards": ["local"],
    "networks": ["linear"],
    "ram_budgets": ["100%", "90%", "1KiB"],
    "methods": ["keep-everything", "chen-sqrt-n"],
    "repetitions": 2,
}


def campaign_with_replays(results: Results, **changes: object) -> CampaignDirectory:
    """A campaign on one board: costs of a published profile, replays that took 5 % longer."""
    path = results.root / "tried.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump({**TRIED, **changes}))
    opened = open_campaign(str(path), results)
    directory = CampaignDirectory(results.campaigns / opened.file.name)
    directory.begin(opened.text, opened.design)
    profile = resolve_profile("m4", results.profiles)
    for cell in opened.design.cells:
        level = opened.design.network_by_name[cell.network]
        method = opened.design.method_by_name[cell.method]
        costed = costed_network(level, cell.batch, profile, None, "all", method)
        job = SolveJob.of(cell, opened.design, costed)
        found = solve(job.search)
        keep(directory, job.graph(found), found.schedule, record_of(job, found))
    return directory


def keep(
    directory: CampaignDirectory, graph: CostedGraph, schedule: Schedule, solved: SolvedCell
) -> None:
    """Keep a solved cell with two replays of its schedule."""
    directory.keep_solved(graph, schedule, solved)
    if not schedule.actions:
        return
    expected = expected_step(graph, schedule)
    for number in range(2):
        took = 1.05 + 0.01 * number
        step = measured_step(expected, factor=lambda _, took=took: took, power_w=2.0)
        power = _power(step.time_s)
        report = report_of(graph, schedule, [step, replace(step)], power=power)
        repetition = Repetition.of(
            solved.cell,
            ReplayPlace(repetition=number, position=number),
            report,
            circumstances(),
            attempt=1,
        )
        directory.keep_repetition(repetition, report)


def add_failure(directory: CampaignDirectory, cell: Cell, reason: str) -> None:
    """Keep a failed attempt, the last one, at a cell."""
    directory.add_failure(
        cell,
        Failure(
            phase="solve",
            reason=reason,
            exit_code=1,
            is_last=True,
            circumstances=circumstances(),
        ),
    )


def circumstances() -> Circumstances:
    """Circumstances of this moment."""
    return Circumstances.since(Beginning())


def files_of(directory: Path) -> dict[str, bytes]:
    """All files below a directory by their relative names."""
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def _power(time_s: float) -> PowerSamples:
    return PowerSamples(
        time_s=tuple(2 * time_s * sample / 999 for sample in range(1000)),
        power_w=tuple(1.5 + sample % 7 / 10 for sample in range(1000)),
        step_starts_s=(0.0, time_s),
        step_times_s=(time_s, time_s),
    )
