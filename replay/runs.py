"""A schedule on its board: the runs that a replay is made of, and what they come to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from devices.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

    from devices.description import DeviceDescription
    from devices.operation import OpSpec
    from devices.plan import ExecutionPlan
    from devices.replay import MeasuredReplay, Reference, ValueCheck
    from networks.data import Batches
    from networks.training import TrainingStep
    from replay.running.measured import ReplayRecord
    from replay.running.session import ReplaySession
    from solver.problem.graph import CostedGraph
    from solver.problem.schedule import Schedule

_SCHEDULED, _UNSCHEDULED, _GUARDED = range(3)
"""Numbers of the plans in the program on a board."""

_GUARDED_STEPS = 2
_GENERATED_BATCHES = 8


@dataclass(frozen=True)
class Subject:
    """What is run: a schedule of ``graph``, which was made from ``step``."""

    description: DeviceDescription
    step: TrainingStep
    graph: CostedGraph
    schedule: Schedule

    @property
    def kernels_sha256(self) -> str | None:
        """Of the profile; None where costs are published figures, which are of no kernels."""
        return None if self.graph.origin is None else self.graph.origin.kernels_sha256

    @property
    def matmul(self) -> str | None:
        """What computed the profile's matrix products; None where costs are published figures."""
        return None if self.graph.origin is None else self.graph.origin.matmul


@dataclass(frozen=True)
class Training:
    """So many steps on ``batches``, from the values that follow from ``seed``."""

    batches: Batches
    steps: int
    seed: int


def training_on(step: TrainingStep, samples: Path | None, steps: int, seed: int) -> Training:
    """Training on the samples of a file (``.npz``), or on generated ones. Raises
    :class:`~devices.errors.InputError` for a file that is not of this network."""
    from networks.data import generated_batches, load_batches

    batches = (
        generated_batches(step, _GENERATED_BATCHES * step.batch, seed)
        if samples is None
        else load_batches(samples, step)
    )
    return Training(batches, steps, seed)


@dataclass(frozen=True)
class Replayed:
    """``timed`` are steps that nobody watched, ``watched`` the same ones with checksums and spans,
    ``unscheduled`` those with nothing scheduled on the same board, where they fit."""

    plan: ExecutionPlan
    measured: MeasuredReplay
    timed: ReplayRecord
    watched: ReplayRecord
    unscheduled: ReplayRecord | None
    checks: tuple[ValueCheck, ...]


def training_step_of(graph: CostedGraph) -> TrainingStep:
    """Raises :class:`InputError` for a graph that does not say what it is of."""
    from networks.models import build_model

    origin = graph.origin
    if origin is None:
        raise InputError(
            f"{graph.name}: its graph does not say which network and profile it is made from, so"
            " that nobody knows what its operations compute",
            remedy="solve with --profile and --model",
        )
    return build_model(origin.model, origin.batch, origin.optimizer, origin.parameters_in)


def replay_schedule(
    subject: Subject,
    training: Training,
    expected_step_s: float,
    progress: Callable[[str], None],
) -> Replayed:
    """Run it: the unscheduled step for reference, the debug build, the schedule watched, and the
    schedule by itself, each from the same values on.

    Where the unscheduled step does not fit into a microcontroller, this computer stands in for it:
    it runs that step and the board's own plan, with the board's arithmetic.

    Raises what :func:`~replay.running.opening.open_replay` and
    :meth:`~replay.running.session.ReplaySession.run` raise.
    """
    from replay.running.opening import open_replay

    runs = _Runs(subject, training, expected_step_s, progress)
    with ExitStack() as stack:
        session = stack.enter_context(
            open_replay(
                subject.description,
                subject.step.distinct_specs,
                runs.plans,
                progress,
                kernels_sha256=subject.kernels_sha256,
                matmul=subject.matmul,
            )
        )
        fits = [plan.arena_bytes <= session.facts.available_bytes for plan in session.plans]
        has_room = len(session.plans) > 1
        reference = None
        if has_room and fits[_UNSCHEDULED]:
            reference = runs.run(session, _UNSCHEDULED, "the unscheduled step", watched=True)
        if has_room and fits[_GUARDED]:
            runs.run(session, _GUARDED, "the debug build", watched=True, steps=_GUARDED_STEPS)
        watched = runs.run(session, _SCHEDULED, "the schedule, watched", watched=True)
        timed = runs.run(session, _SCHEDULED, "the schedule", watched=False)
        unscheduled = None
        if reference is not None:
            unscheduled = runs.run(session, _UNSCHEDULED, "the unscheduled step", watched=False)
        _require_same_values(timed, watched)
        measured = session.measured(timed, watched)
    checks: list[ValueCheck] = []
    if reference is not None:
        checks = [_check("the unscheduled step on the board", watched, reference)]
    elif subject.description.firmware is not None:
        checks = runs.against_this_computer(watched)
    return Replayed(watched.plan, measured, timed, watched, unscheduled, tuple(checks))


def _require_same_values(timed: ReplayRecord, watched: ReplayRecord) -> None:
    """Raises :class:`~devices.errors.MeasurementInvalid` where looking on makes a difference."""
    from devices.errors import MeasurementInvalid

    for name, values in timed.values.items():
        if values.tobytes() != watched.values[name].tobytes():
            raise MeasurementInvalid(
                f"{timed.plan.name}: {name} came out otherwise in the same steps when nobody"
                " watched: the board computes or stores unreliably, or this is a defect"
            )


def _check(against: Reference, watched: ReplayRecord, reference: ReplayRecord) -> ValueCheck:
    from replay.reporting.report import value_check

    return value_check(against, watched.plan, watched.steps, reference.plan, reference.steps)


def planned_workspace(step: TrainingStep, graph: CostedGraph) -> dict[OpSpec, int]:
    """What kernels need for themselves as the graph has it, where no board is asked."""
    planned = {op.name: op.workspace_bytes for op in graph.ops}
    return {op.spec: planned.get(op.name, 0) for op in step.ops}


def planned_execution(subject: Subject) -> ExecutionPlan:
    """The plan of the schedule, lowered without asking the board. Raises what
    :func:`~replay.lowering.lowering.lower` raises."""
    from replay.lowering.lowering import lower

    workspace_bytes = planned_workspace(subject.step, subject.graph)
    return lower(subject.step, subject.graph, subject.schedule, workspace_bytes)


def written_bytes_a_step(plan: ExecutionPlan, description: DeviceDescription) -> int:
    """What ``plan`` writes to the board's storage, the copies that keep it safe included."""
    from profiler.building.store_layout import store_layout

    if not plan.pages or description.storage is None:
        return 0
    return store_layout(plan, description.storage).written_bytes


@dataclass(frozen=True)
class _Runs:
    subject: Subject
    training: Training
    expected_step_s: float
    progress: Callable[[str], None]

    def plans(self, workspace_bytes: Mapping[OpSpec, int]) -> Sequence[ExecutionPlan]:
        """A microcontroller's flash holds the schedule alone: with nothing scheduled the step would
        not fit into its RAM."""
        from replay.lowering.lowering import lower, unscheduled

        s = self.subject
        scheduled = lower(s.step, s.graph, s.schedule, workspace_bytes)
        if s.description.firmware is not None:
            return [scheduled]
        guarded = lower(s.step, s.graph, s.schedule, workspace_bytes, guarded=True)
        return [scheduled, unscheduled(s.step, workspace_bytes), guarded]

    def run(
        self,
        session: ReplaySession,
        plan: int,
        what: str,
        *,
        watched: bool,
        steps: int | None = None,
    ) -> ReplayRecord:
        from networks.training.initial import initial_values

        steps = steps or self.training.steps
        batches = self.training.batches
        self.progress(f"running {steps} steps of {what}")
        return session.run(
            plan,
            initial_values(self.subject.step, self.training.seed),
            [batches.batch(index) for index in range(min(steps, batches.count))],
            steps=steps,
            watched=watched,
            expected_step_s=self.expected_step_s,
        )

    def against_this_computer(self, watched: ReplayRecord) -> list[ValueCheck]:
        from replay.lowering.lowering import lower, unscheduled
        from replay.running.opening import open_replay
        from replay.running.twin import host_twin

        s = self.subject

        def plans(workspace_bytes: Mapping[OpSpec, int]) -> Sequence[ExecutionPlan]:
            return [
                lower(s.step, s.graph, s.schedule, workspace_bytes),
                unscheduled(s.step, workspace_bytes),
            ]

        twin = host_twin(s.description)
        with open_replay(twin, s.step.distinct_specs, plans, self.progress) as session:
            same = self.run(session, _SCHEDULED, "the same plan here", watched=True)
            free = self.run(session, _UNSCHEDULED, "the unscheduled step here", watched=True)
        return [
            _check("the same plan on this computer", watched, same),
            _check("the unscheduled step on this computer", watched, free),
        ]
