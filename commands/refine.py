"""``profile --refine RUN``: operations that a replay holds responsible are measured again, in the
context in which they run."""

from __future__ import annotations

import math
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from commands.console import Console, si, size
from commands.profile import short_key
from commands.run import GRAPH, REPORT, SCHEDULE
from devices.errors import ExitCode, InputError

if TYPE_CHECKING:
    from devices.description import DeviceDescription
    from devices.profile import DeviceProfile, Interval
    from devices.replay import MeasuredStep, ReplayReport
    from replay.refine import Refinement
    from solver.problem.graph import CostedGraph, Origin
    from solver.problem.schedule import Schedule

_SEED = 0
_TRANSFERS = {"storage.read", "storage.write"}


@dataclass(frozen=True)
class _Run:
    """A replay's directory."""

    directory: Path
    report: ReplayReport
    schedule: Schedule
    graph: CostedGraph

    @classmethod
    def read(cls, path: Path) -> _Run:
        """``path``: the directory, or the report in it."""
        from devices.documents.document import read_json
        from devices.replay import ReplayReport
        from solver.problem.graph import CostedGraph
        from solver.problem.schedule import Schedule

        directory = path.parent if path.is_file() else path
        return cls(
            directory,
            read_json(directory / REPORT, ReplayReport),
            read_json(directory / SCHEDULE, Schedule),
            read_json(directory / GRAPH, CostedGraph),
        )

    @property
    def costs_s(self) -> dict[str, float]:
        return {op.cost_key: op.time_s for op in self.graph.ops if op.cost_key is not None}

    @property
    def transfers_are_responsible(self) -> bool:
        return any(part.what in _TRANSFERS for part in self.report.diagnosis.responsible)


def refine(arguments: Namespace, console: Console) -> int:
    """Exit code 0 also where nothing is to be refined."""
    from devices.description import load_description
    from devices.documents.document import dump_yaml, write_atomically
    from devices.library import resolve_profile
    from replay.refine import refinable

    description = load_description(arguments.device)
    run = _Run.read(arguments.refine)
    if run.report.device != description.name:
        raise InputError(
            f"{run.directory}: this was run on {run.report.device!r}, not on {description.name!r}",
            remedy=f"--device {run.report.device} refines its profile",
        )
    keys = run.report.diagnosis.refine
    if not keys:
        _tell_that_nothing_is_refined(console, run)
        return ExitCode.DONE
    measured = arguments.results.profiles
    profile = resolve_profile(_origin(run).profile, measured)
    chosen, unmeasured = refinable(profile, run.costs_s, keys, str(run.directory / GRAPH))
    _tell_what_else(console, run, unmeasured)
    if not chosen:
        console.document(_document(None, (), unmeasured))
        return ExitCode.DONE
    out = arguments.out or measured / f"{profile.name}.yaml"
    _announce(console, run, chosen)
    if arguments.dry_run:
        console.document(_plan_document(run, out, chosen, unmeasured))
        return ExitCode.DONE
    refined, refinements = _measured_again(console, description, run, profile, chosen)
    write_atomically(out, dump_yaml(refined))
    console.document(_document(out, refinements, unmeasured))
    _summarise(console, profile, refinements)
    console.result(f"\nprofile  {out}\nnext     solve again with --profile {out}, and run")
    return ExitCode.DONE


def _origin(run: _Run) -> Origin:
    """Which training step and profile the schedule is for."""
    if run.graph.origin is None:
        raise InputError(
            f"{run.directory / GRAPH}: the graph does not say which profile it is from",
            remedy="solve with --profile and --model, run that schedule, and refine that run",
        )
    return run.graph.origin


def _measured_again(
    console: Console,
    description: DeviceDescription,
    run: _Run,
    profile: DeviceProfile,
    chosen: Sequence[str],
) -> tuple[DeviceProfile, tuple[Refinement, ...]]:
    """Runs the schedule with the project's own samples, however those of the run were: what a
    kernel takes does not depend on them."""
    from networks.data import generated_batches
    from networks.training.initial import initial_values
    from replay.expectation import expected_step
    from replay.lowering.lowering import lower
    from replay.refine import (
        Executions,
        Provenance,
        measure_in_context,
        measured_build,
        refine_profile,
        require_same_board,
        undisturbed_steps,
    )
    from replay.reporting.timing import ScheduledActions
    from replay.running.opening import open_replay
    from replay.runs import training_step_of

    step = training_step_of(run.graph)
    batch = generated_batches(step, step.batch, _SEED).batch(0)
    initial = initial_values(step, _SEED)
    build = measured_build(profile)
    opened = open_replay(
        description,
        step.distinct_specs,
        lambda workspace_bytes: [lower(step, run.graph, run.schedule, workspace_bytes)],
        console.say,
        kernels_sha256=build.kernels_sha256,
        matmul=build.matmul,
    )
    with opened as session:
        require_same_board(profile, session.facts.identity, session.energy_source)
        expected = expected_step(run.graph, run.schedule).actions
        scheduled = ScheduledActions.of(session.plans[0], expected)
        executions = Executions.of(scheduled, expected, chosen)

        def run_steps(count: int) -> Sequence[MeasuredStep]:
            record = session.run(
                0,
                initial,
                [batch],
                steps=count,
                watched=True,
                expected_step_s=run.report.time_s.measured.median,
            )
            return undisturbed_steps(record)

        steps = measure_in_context(run_steps, executions, console.say)
    provenance = Provenance(
        schedule=f"{run.schedule.graph}, {run.schedule.budget.ram_bytes} bytes of RAM",
        run=str(run.directory),
        measured=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    return refine_profile(profile, steps, executions, provenance)


# --- what is told -----------------------------------------------------------------------------


def _tell_that_nothing_is_refined(console: Console, run: _Run) -> None:
    for sentence in run.report.diagnosis.sentences:
        console.result(sentence)
    console.result(f"{run.directory}: no operation is responsible, nothing is measured again")
    _tell_what_else(console, run, ())
    console.document(_document(None, (), ()))


def _tell_what_else(console: Console, run: _Run, unmeasured: Sequence[str]) -> None:
    """Responsible, and not for this command."""
    device = run.report.device
    if run.transfers_are_responsible:
        console.say(
            "transfers are responsible, too: costs of storage are no matter of context; measure"
            f" them again with profile --device {device}"
        )
    if unmeasured:
        origin = _origin(run)
        console.say(
            f"responsible and never measured by itself, only predicted from others:"
            f" {'; '.join(unmeasured)}. profile --device {device} --model {origin.model}"
            f" --batch {origin.batch} --optimizer {origin.optimizer} measures that"
        )


def _announce(console: Console, run: _Run, chosen: Sequence[str]) -> None:
    from replay.refine import FEWEST_STEPS, MOST_STEPS

    console.say(
        f"{run.report.device}: {FEWEST_STEPS} to {MOST_STEPS} steps of {run.schedule.graph}, to"
        f" measure {_operations(len(chosen))} in context"
    )
    for key in chosen:
        console.say(f"  {key}")
    if run.report.storage is not None:
        written = run.report.storage.written_bytes.predicted
        console.say(
            f"storage: {size(written)} are written a step, {size(MOST_STEPS * written)} at most"
        )


def _summarise(console: Console, profile: DeviceProfile, refinements: Sequence[Refinement]) -> None:
    label = profile.energy_source
    rows = [
        ["operation", "used before", "in context", "95 % interval", "ratio", f"energy ({label})"]
    ]
    for refinement in refinements:
        before, now = refinement.before, refinement.now
        rows.append(
            [
                short_key(refinement.op),
                si(before.time_s.median, "s"),
                si(now.time_s.median, "s"),
                _half(now.time_s),
                f"{refinement.ratio:.3g}",
                si(now.energy_j.median, "J") if now.energy_j else "–",
            ]
        )
    steps = refinements[0].now.trials
    console.result(f"{_operations(len(refinements))}, measured again in {steps} steps")
    console.table(rows, right=(1, 2, 3, 4, 5))


def _operations(count: int) -> str:
    return "1 operation" if count == 1 else f"{count} operations"


def _half(interval: Interval) -> str:
    half = (interval.high - interval.low) / 2 / interval.median if interval.median else 0.0
    return f"±{100 * half:.1f} %"


def _plan_document(
    run: _Run, out: Path, chosen: Sequence[str], unmeasured: Sequence[str]
) -> dict[str, object]:
    from replay.refine import FEWEST_STEPS, MOST_STEPS

    storage = run.report.storage
    return {
        "device": run.report.device,
        "profile": str(out),
        "operations": list(chosen),
        "never_measured": list(unmeasured),
        "steps": [FEWEST_STEPS, MOST_STEPS],
        "written_bytes_per_step": 0 if storage is None else storage.written_bytes.predicted,
    }


def _document(
    out: Path | None, refinements: Sequence[Refinement], unmeasured: Sequence[str]
) -> dict[str, object]:
    """``profile`` is None where none was written."""
    return {
        "profile": None if out is None else str(out),
        "refined": [
            {
                "op": refinement.op,
                "before": refinement.before.model_dump(mode="json", exclude_none=True),
                "in_context": refinement.now.model_dump(mode="json", exclude_none=True),
                "ratio": refinement.ratio if math.isfinite(refinement.ratio) else None,
            }
            for refinement in refinements
        ],
        "never_measured": list(unmeasured),
    }
