"""Table of several ways to take a step: numbers of parts of the batch, slices, codecs."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

from commands.console import Console
from devices.documents.readable import NO_SOURCE, lower_bound, si, size
from solver.problem.schedule import Budget, Schedule
from solver.requests.choice import bound_of_all_j
from solver.requests.subjects import SolveSubject


def show_comparison(
    console: Console,
    subjects: Sequence[SolveSubject],
    found: Sequence[Schedule],
    budget: Budget,
) -> dict[str, Any]:
    """Print the schedules of all ways to take the step, and return them for the document.

    They are ``accumulation``, ``slicings`` or ``codecs`` there, after the first of these in which
    they differ; ``bound_of_all_j`` is what no schedule of any way undercuts.
    """
    rows = [["parts of the batch", "slices", "codecs", "status"]]
    sources = dict.fromkeys(subject.graph.energy_source or NO_SOURCE for subject in subjects)
    rows[0] += [f"energy a step ({', '.join(sources)})", "time a step", "peak RAM"]
    ways: list[dict[str, Any]] = []
    for subject, schedule in zip(subjects, found, strict=False):
        parts, slices = subject.parts, subject.slices
        energy_j, time_s, peak = schedule.energy_j, schedule.time_s, schedule.peak_bytes
        rows.append(
            [
                str(parts),
                "none" if slices is None else str(slices),
                "yes" if subject.codecs else "no",
                schedule.status,
                "–" if energy_j is None else si(energy_j, "J"),
                "–" if time_s is None else si(time_s, "s"),
                "–" if peak is None else size(peak),
            ]
        )
        energy = {"energy_j": energy_j, "energy_source": schedule.energy_source}
        of_slices = {} if slices is None else {"slices": slices.stated}
        of_codecs = {"codecs": True} if subject.codecs else {}
        ways.append(
            {
                "parts": parts,
                **of_slices,
                **of_codecs,
                "status": schedule.status,
                **energy,
                "time_s": time_s,
            }
        )
    console.table(rows, right=(0, 1, 4, 5, 6))
    bound_j = bound_of_all_j(subjects, found, budget)
    if not 0 < bound_j < inf:
        return {_difference(subjects): ways}
    least = lower_bound(bound_j, "J")
    console.result(f"proven: in none of these ways does a step need less than {least}")
    return {_difference(subjects): ways, "bound_of_all_j": bound_j}


def _difference(subjects: Sequence[SolveSubject]) -> str:
    if len({subject.parts for subject in subjects}) > 1:
        return "accumulation"
    return "codecs" if all(subject.slices is None for subject in subjects) else "slicings"
