"""The runs of a replay: unscheduled step, debug build, schedule watched, schedule timed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from devices.errors import InputError, RequestRefused

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from devices.description import DeviceDescription
    from devices.operation import OpSpec
    from devices.plan import ExecutionPlan
    from devices.profile import BoardIdentity
    from devices.replay import MeasuredReplay, Reference, ValueCheck
    from devices.wear import StorageMedium, Wear
    from networks.data import Batches
    from networks.rates import RateSchedule
    from networks.training import TrainingStep
    from profiler.building.store_layout import StoreLayout
    from replay.running.failure import Trained
    from replay.running.measured import ReplayRecord
    from replay.running.session import ReplaySession
    from solver.problem.graph import CostedGraph
    from solver.problem.schedule import Schedule

STEPS_PER_DAY = 1000.0
"""For the wear of the storage, unless the user says otherwise."""

_SCHEDULED, _REFERENCE, _GUARDED, _UNSCHEDULED = range(4)
"""Numbers of the plans in the board's program."""

_GUARDED_STEPS = 2
_GENERATED_BATCHES = 8


@dataclass(frozen=True)
class Subject:
    """Schedule to run, with its board, training step and graph.

    Attributes:
        description: the board.
        step: the training step.
        graph: ``step`` with the costs that the schedule was solved for.
        schedule: a schedule of ``graph``.
    """

    description: DeviceDescription
    step: TrainingStep
    graph: CostedGraph
    schedule: Schedule

    @property
    def specs(self) -> Sequence[OpSpec]:
        """Distinct operations of the step and of its reference."""
        return list(dict.fromkeys((*self.step.distinct_specs, *self.reference.distinct_specs)))

    @property
    def kernels_sha256(self) -> str | None:
        """Hash of the profiled kernels; None where costs are published figures."""
        return None if self.graph.origin is None else self.graph.origin.kernels_sha256

    @property
    def matmul(self) -> str | None:
        """How the kernels compute matrix products: as profiled; None leaves it to the board.

        Slices have the values of whole layers only with the kernels' own products.
        """
        profiled = None if self.graph.origin is None else self.graph.origin.matmul
        return profiled or (None if self.step.slices is None else "in-tree")

    @property
    def reference(self) -> TrainingStep:
        """The step that must have the same values: without codecs, and without slices.

        If a BLAS computes slices, it is the step itself: a BLAS promises no order of its sums.
        """
        toolchain = self.description.with_matmul(self.matmul).toolchain
        has_blas = getattr(toolchain, "matmul", None) == "cblas"
        if has_blas and self.step.slices is not None:
            return self.step
        return self.step.whole or self.step


@dataclass(frozen=True)
class Training:
    """Training to run: ``steps`` steps on ``batches``, which repeat.

    Attributes:
        batches: the samples, in batches of the training step's size.
        steps: number of steps.
        seed: seed of the initial values.
        gradients: whether the gradients of the last step are wanted.
        rates: learning rate of each step; None for that of the training step.
        earlier: what earlier runs have trained, by whole tensor, with which this one goes on; None
            to begin with initial values.
    """

    batches: Batches
    steps: int
    seed: int
    gradients: bool = False
    rates: Sequence[float] | None = None
    earlier: Trained | None = None

    @property
    def steps_before(self) -> int:
        """Steps of earlier runs, after which the samples and the seeds of dropout go on."""
        return 0 if self.earlier is None else self.earlier.step

    def batch(self, number: int) -> dict[str, NDArray[Any]]:
        """The inputs of this training's step ``number``, from 0."""
        return self.batches.batch(self.steps_before + number)

    def first_values(self, step: TrainingStep) -> dict[str, NDArray[np.float32]]:
        """The values that the training begins with, by tensor of ``step``."""
        from networks.training.initial import initial_values
        from networks.training.slicing import parted

        values = initial_values(step, self.seed)
        return values if self.earlier is None else values | parted(step, self.earlier.values)


def training_on(
    step: TrainingStep,
    samples: Path | None,
    steps: int,
    seed: int,
    *,
    gradients: bool = False,
    rate_schedule: RateSchedule | None = None,
    earlier: Path | None = None,
) -> Training:
    """Training on a file's samples, or on generated ones.

    Args:
        step: the training step.
        samples: an ``.npz`` file; None for generated samples.
        steps: number of steps.
        seed: seed of the initial values and of generated samples.
        gradients: whether the gradients of the last step are wanted.
        rate_schedule: course of the learning rate, of which that of ``step`` is the highest; None
            for the same rate in every step.
        earlier: file with the values of an earlier run, to go on with; None to begin with initial
            values.

    Raises:
        InputError: a file does not fit the network.
        OSError: a file cannot be opened.
    """
    from networks.data import generated_batches, load_batches
    from replay.earlier import read_earlier

    batches = (
        generated_batches(step, _GENERATED_BATCHES * step.batch, seed)
        if samples is None
        else load_batches(samples, step)
    )
    rates = None
    if rate_schedule is not None:
        rates = rate_schedule.rates(step.learning_rate, steps)
    found = None if earlier is None else read_earlier(earlier, step)
    return Training(batches, steps, seed, gradients, rates, found)


@dataclass(frozen=True)
class Replayed:
    """Records of a replay's runs.

    Attributes:
        plan: the schedule's execution plan.
        gradients: those of the last step, flat, by parameter, if they were asked for. This computer
            computes those of a microcontroller, with the same bits.
        measured: the undisturbed steps of both runs, for the report.
        timed: the scheduled steps, not watched.
        watched: the same steps, watched: with checksums and spans.
        unscheduled: the same steps with nothing scheduled on the same board, in the schedule's
            slices and with its codecs; None where they do not fit.
        checks: comparisons of the watched steps' values with reference steps.
        notes: what the debug build did not guard.
    """

    plan: ExecutionPlan
    gradients: Mapping[str, NDArray[np.float32]]
    measured: MeasuredReplay
    timed: ReplayRecord
    watched: ReplayRecord
    unscheduled: ReplayRecord | None
    checks: tuple[ValueCheck, ...]
    notes: tuple[str, ...]


def training_step_of(graph: CostedGraph, *, plain: bool = False) -> TrainingStep:
    """Build the training step that a graph was made from.

    Args:
        graph: the graph.
        plain: leave the parameters in RAM, batch and weights whole, and activations without codes,
            whatever the graph does.

    Raises:
        InputError: the graph has no origin, or its network's file is missing or has changed.
    """
    from networks.models import build_model

    origin = graph.origin
    if origin is None:
        raise InputError(
            f"{graph.name}: the graph does not say which network and profile it is made from, so"
            " that its operations cannot be built",
            remedy="solve with --profile and --model",
        )
    step = build_model(
        origin.model,
        origin.batch,
        origin.optimizer,
        "ram" if plain else origin.parameters_in,
        loss=origin.loss,
        train=origin.train,
        accumulate=1 if plain else origin.accumulate or 1,
        lora=origin.lora,
        slices=None if plain else origin.slices,
        codecs=False if plain else origin.codecs or False,
    )
    if step.file is not None and step.file.sha256 != origin.model_sha256:
        raise InputError(
            f"{origin.model}: the file has changed since {graph.name} was made from it",
            remedy="solve again",
        )
    return step


def replay_schedule(
    subject: Subject,
    training: Training,
    expected_step_s: float,
    progress: Callable[[str], None],
    keep: Callable[[Trained], None] = lambda _trained: None,
    require_board: Callable[[BoardIdentity], None] = lambda _board: None,
) -> Replayed:
    """Run a schedule on its board.

    The runs are: the unscheduled step for reference, the debug build, the schedule watched, and the
    schedule timed, each from the same first values. A microcontroller's reference is computed
    on this computer, which runs the unscheduled step and the board's own plan with the board's
    arithmetic.

    Args:
        subject: the schedule and its board.
        training: the samples, the number of steps and the seed.
        expected_step_s: predicted time of one step, for time limits.
        progress: called with one line for each phase.
        keep: called with the trained values as soon as there are some, also those that Ctrl-C has
            left in the board's storage: what comes later may fail.
        require_board: called with the identity of the board before anything runs on it; raises if
            it is the wrong one.

    Returns:
        The records of all runs.

    Raises:
        RequestRefused: the board's kernels are not the profiled ones, or the plan pages and the
            board has no storage for it.
        ReplayFailed: a step failed on the board.
        MeasurementInvalid: no step was undisturbed, or watched and timed steps differ in values.
        JoulewrightError: opening the board or the meter failed.
    """
    from replay.running.opening import open_replay

    runs = _Runs(subject, training, expected_step_s, progress, keep)
    with ExitStack() as stack:
        session = stack.enter_context(
            open_replay(
                subject.description,
                subject.specs,
                runs.plans,
                progress,
                kernels_sha256=subject.kernels_sha256,
                matmul=subject.matmul,
            )
        )
        require_board(session.facts.identity)
        fits = [plan.arena_bytes <= session.facts.available_bytes for plan in session.plans]
        has_room = len(session.plans) > 1
        reference = None
        if has_room and fits[_REFERENCE]:
            reference = runs.run(session, _REFERENCE, "the unscheduled step", watched=True)
        notes = list(_limits_of_guards(session.plans[_GUARDED], fits[_GUARDED])) if has_room else []
        if has_room and fits[_GUARDED]:
            runs.run(session, _GUARDED, "the debug build", watched=True, steps=_GUARDED_STEPS)
        # The serial link returns values between steps only; the twin returns the gradients.
        is_firmware = subject.description.firmware is not None
        gradients = training.gradients and not is_firmware
        what = "the schedule, watched"
        watched = runs.run(session, _SCHEDULED, what, watched=True, gradients=gradients)
        timed = runs.run(session, _SCHEDULED, "the schedule", watched=False)
        unscheduled = None
        # A reference in whole layers has other operations, and copies parts to compare them.
        alone = _REFERENCE if subject.reference is subject.step else _UNSCHEDULED
        if has_room and fits[alone]:
            unscheduled = runs.run(session, alone, "the unscheduled step", watched=False)
        _require_same_values(timed, watched)
        measured = session.measured(timed, watched)
    checks: list[ValueCheck] = []
    found = watched.gradients
    if reference is not None:
        checks = [_check("the unscheduled step on the board", watched, reference)]
    elif is_firmware:
        checks, found = runs.against_this_computer(watched)
    return Replayed(
        watched.plan, found, measured, timed, watched, unscheduled, tuple(checks), tuple(notes)
    )


def _limits_of_guards(plan: ExecutionPlan, fits: bool) -> Iterator[str]:
    """A sentence if the debug build, which is ``plan``, guards less than every place in RAM."""
    from devices.documents.readable import size
    from devices.plan import MOST_ACTIONS, Guard

    if not fits:
        yield (
            f"the debug build, which guards every tensor, did not run: its arena of"
            f" {size(plan.arena_bytes)} does not fit into the board's free memory"
        )
    elif plan.unguarded:
        guarded = sum(isinstance(action.does, Guard) for action in plan.actions)
        yield (
            f"the debug build guards the first {guarded} of {guarded + plan.unguarded} tensors and"
            f" workspaces of the step: boards run plans of at most {MOST_ACTIONS} actions"
        )


def _require_same_values(timed: ReplayRecord, watched: ReplayRecord) -> None:
    """Raise :class:`~devices.errors.MeasurementInvalid` if timed and watched values differ."""
    from devices.errors import MeasurementInvalid

    for name, values in timed.values.items():
        if values.tobytes() != watched.values[name].tobytes():
            raise MeasurementInvalid(
                f"{timed.plan.name}: {name} differs between watched and unwatched runs of the same"
                " steps: the board computes or stores unreliably, or this is a defect"
            )


def _check(against: Reference, watched: ReplayRecord, reference: ReplayRecord) -> ValueCheck:
    from replay.reporting.report import value_check

    return value_check(against, watched.plan, watched.steps, reference.plan, reference.steps)


def planned_workspace(step: TrainingStep, graph: CostedGraph) -> dict[OpSpec, int]:
    """Workspace of each operation in bytes, as the graph states it, without asking a board.

    Args:
        step: the training step.
        graph: a graph of ``step``.
    """
    planned = {op.name: op.workspace_bytes for op in graph.ops}
    return {op.spec: planned.get(op.name, 0) for op in step.ops}


def planned_execution(subject: Subject) -> ExecutionPlan:
    """Lower a schedule without asking its board.

    Raises:
        LoweringError: the schedule is invalid, has no addresses, or cannot be run on a board.
        RequestRefused: its arena is larger than the RAM that the description states.
    """
    from replay.lowering.lowering import lower

    workspace_bytes = planned_workspace(subject.step, subject.graph)
    plan = lower(subject.step, subject.graph, subject.schedule, workspace_bytes)
    _require_ram(subject.description, plan)
    return plan


def _require_ram(description: DeviceDescription, plan: ExecutionPlan) -> None:
    """Raise :class:`~devices.errors.RequestRefused` if the plan needs more RAM than a board has."""
    from profiler.building.plan_memory import firmware_ram_bytes

    memory, firmware, storage = description.memory, description.firmware, description.storage
    if memory is None:
        return
    records_bytes, beside = 0, ""
    if firmware is not None and firmware.data_address is None:
        records_bytes = firmware_ram_bytes(plan, 1 if storage is None else storage.page_bytes)
        beside = f" and {records_bytes} bytes for checksums and buffers"
    if plan.arena_bytes + records_bytes > memory.usable_bytes:
        raise RequestRefused(
            f"{description.name}: {plan.name}, takes an arena of {plan.arena_bytes} bytes{beside},"
            f" but the description leaves {memory.usable_bytes} bytes of RAM for training",
            remedy=f"solve with --ram-budget {memory.usable_bytes - records_bytes} or less",
        )


def written_bytes_a_step(plan: ExecutionPlan, description: DeviceDescription) -> int:
    """Most bytes that a step of ``plan`` writes to storage, with the copies made after the step."""
    from profiler.building.store_layout import store_layout

    if not plan.pages or description.storage is None:
        return 0
    return store_layout(plan, description.storage).written_bytes


def written_bytes_of_replay(layout: StoreLayout, description: DeviceDescription, steps: int) -> int:
    """Most bytes that a replay writes to storage, if nothing fails.

    Three runs page: the debug build, which a microcontroller has no room for, and two of the
    schedule. Each writes the values that it begins with; a Linux board fills a new file before.

    Args:
        layout: that of the schedule's plan, or a larger one.
        description: the board.
        steps: number of steps.
    """
    if not layout.step_bytes:
        return 0
    is_linux = description.firmware is None
    before = layout.initial_bytes + (layout.most_filled_bytes if is_linux else 0)
    steps_of_runs = [_GUARDED_STEPS, steps, steps] if is_linux else [steps, steps]
    return sum(before + count * layout.written_bytes for count in steps_of_runs)


def expected_wear(plan: ExecutionPlan, storage: StorageMedium, steps_per_day: float) -> Wear | None:
    """How long a storage medium lasts with steps of ``plan``; None if they write nothing."""
    from devices.wear import wear
    from profiler.building.store_layout import expected_written_bytes, store_layout

    if not plan.pages:
        return None
    layout = store_layout(plan, storage)
    blocks = layout.step_bytes / layout.erase_block_bytes if layout.erase_block_bytes else 0.0
    written = expected_written_bytes(plan, layout)
    return wear(storage, written, blocks, layout.step_bytes, steps_per_day)


def plan_of_schedule(
    step: TrainingStep, graph: CostedGraph, schedule: Schedule
) -> ExecutionPlan | None:
    """Lower a schedule of ``graph`` without asking a board; None if no board can run it."""
    from replay.lowering.lowering import LoweringError, lower

    try:
        return lower(step, graph, schedule, planned_workspace(step, graph))
    except LoweringError:
        return None


@dataclass(frozen=True)
class _Runs:
    subject: Subject
    training: Training
    expected_step_s: float
    progress: Callable[[str], None]
    keep: Callable[[Trained], None]

    def plans(self, workspace_bytes: Mapping[OpSpec, int]) -> Sequence[ExecutionPlan]:
        """Plans for the board; for a microcontroller only the scheduled one.

        Its RAM has no room for the unscheduled step.
        """
        from replay.lowering.lowering import lower, reference, unscheduled

        s = self.subject
        scheduled = lower(s.step, s.graph, s.schedule, workspace_bytes)
        if s.description.firmware is not None:
            return [scheduled]
        guarded = lower(s.step, s.graph, s.schedule, workspace_bytes, guarded=True)
        plans = [scheduled, reference(s.step, s.reference, workspace_bytes), guarded]
        if s.reference is not s.step:
            plans.append(unscheduled(s.step, workspace_bytes))
        return plans

    def run(
        self,
        session: ReplaySession,
        plan: int,
        what: str,
        *,
        watched: bool,
        steps: int | None = None,
        gradients: bool = False,
    ) -> ReplayRecord:
        training = self.training
        steps = steps or training.steps
        self.progress(f"running {steps} steps of {what}")
        return session.run(
            plan,
            self._initial,
            [training.batch(index) for index in range(min(training.steps, training.batches.count))],
            steps=steps,
            watched=watched,
            expected_step_s=self.expected_step_s,
            gradients=gradients,
            rates=training.rates,
            steps_before=training.steps_before,
            # Values of other plans are for comparison, and may have other names.
            keep=self.keep if plan == _SCHEDULED else lambda _trained: None,
        )

    @cached_property
    def _initial(self) -> Mapping[str, NDArray[np.float32]]:
        """First values of the scheduled step, and of the one in whole layers."""
        from networks.training.slicing import joined

        values = self.training.first_values(self.subject.step)
        return {**values, **joined(self.subject.step, values)}

    def against_this_computer(
        self, watched: ReplayRecord
    ) -> tuple[list[ValueCheck], Mapping[str, NDArray[np.float32]]]:
        """Compare a microcontroller's values with those of this computer; also its gradients."""
        from replay.lowering.lowering import lower, reference
        from replay.running.opening import open_replay
        from replay.running.twin import paging_twin

        s = self.subject

        def plans(workspace_bytes: Mapping[OpSpec, int]) -> Sequence[ExecutionPlan]:
            return [
                lower(s.step, s.graph, s.schedule, workspace_bytes),
                reference(s.step, s.reference, workspace_bytes),
            ]

        with (
            paging_twin(s.description) as twin,
            open_replay(twin, s.specs, plans, self.progress, alone=False) as session,
        ):
            what, gradients = "the same plan here", self.training.gradients
            same = self.run(session, _SCHEDULED, what, watched=True, gradients=gradients)
            free = self.run(session, _REFERENCE, "the unscheduled step here", watched=True)
        checks = [
            _check("the same plan on this computer", watched, same),
            _check("the unscheduled step on this computer", watched, free),
        ]
        return checks, same.gradients
