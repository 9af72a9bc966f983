"""Measure operations of a run's schedule again, on its board, within that schedule."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from devices.errors import InputError
from replay.costs.refine import (
    Executions,
    Provenance,
    Refinement,
    measure_in_context,
    measured_build,
    refine_profile,
    require_same_board,
)
from replay.costs.transfers import without_transfers_beside
from replay.costs.watch import run_watched
from replay.directory import GRAPH, StoredRun
from replay.reporting.timing import ScheduledActions

if TYPE_CHECKING:
    from devices.description import DeviceDescription
    from devices.profile import DeviceProfile
    from devices.replay import MeasuredStep
    from solver.problem.graph import Origin

# Seed of the data and initial values of the first process; the sittings that a profile has watched,
# and the runs that its costs predict, have others: what only repeats their data confirms nothing.
_FIRST_SEED = 3001


def origin_of(run: StoredRun) -> Origin:
    """Training step and profile that a run's schedule was solved for.

    Raises:
        InputError: the run's graph does not state them.
    """
    if run.graph.origin is None:
        raise InputError(
            f"{run.directory / GRAPH}: the graph does not say which profile it is from",
            remedy="solve with --profile and --model, run that schedule, and refine that run",
        )
    return run.graph.origin


def measure_again(
    description: DeviceDescription,
    run: StoredRun,
    profile: DeviceProfile,
    chosen: Sequence[str],
    on_progress: Callable[[str], None],
) -> tuple[DeviceProfile, tuple[Refinement, ...]]:
    """Measure operations within the schedule of a run, and add their costs to a profile.

    Runs the schedule with generated samples, whatever the samples of the run were. On processors
    without a floating-point unit, times depend on the samples; those of a run are not kept.

    Args:
        description: the board.
        run: a finished run.
        profile: the profile that the run's schedule was solved with.
        chosen: cost keys of the operations to measure.
        on_progress: called with one line for each phase.

    Returns:
        The refined profile, and the cost before and after for each operation.

    Raises:
        RequestRefused: the profile is of another board or other kernels, or the board lacks the
            meter or storage that is needed.
        ReplayFailed: a step failed on the board.
        MeasurementInvalid: too few steps were undisturbed.
        JoulewrightError: opening the board or the meter failed.
    """
    from replay.expectation import expected_step
    from replay.lowering.lowering import lower
    from replay.running.opening import open_replay
    from replay.runs import training_step_of

    step = training_step_of(run.graph)
    build = measured_build(profile)
    opened = open_replay(
        description,
        step.distinct_specs,
        lambda workspace_bytes: [lower(step, run.graph, run.schedule, workspace_bytes)],
        on_progress,
        kernels_sha256=build.kernels_sha256,
        matmul=build.matmul,
    )
    with opened as session:
        require_same_board(profile, session.facts.identity, session.energy_source)
        expected = expected_step(run.graph, run.schedule).actions
        scheduled = ScheduledActions.of(session.plans[0], expected)
        executions = Executions.of(scheduled, expected, chosen)
        step_s = run.report.time_s.measured.median
        working_s = run.graph.processor_time_s
        seeds = itertools.count(_FIRST_SEED)

        def run_steps(count: int) -> Sequence[MeasuredStep]:
            quiet = run_watched(session, 0, step, count, next(seeds), step_s).quiet_steps
            return [without_transfers_beside(session.plans[0], each, working_s) for each in quiet]

        steps = measure_in_context(run_steps, executions, on_progress)
    provenance = Provenance(
        schedule=f"{run.schedule.graph}, {run.schedule.budget.ram_bytes} bytes of RAM",
        run=str(run.directory),
        measured=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    return refine_profile(profile, steps, executions, provenance)
