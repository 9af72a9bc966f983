"""Made-up replays: each action takes exactly its predicted time, except for a test's changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from devices import plan as executed
from devices.description import Storage
from devices.operation import OpSpec
from devices.plan import Action, ArenaRange, ExecutionPlan, Probe
from devices.profile import BoardIdentity, Build, EnergySource, MeterRecord
from devices.replay import (
    Counters,
    ExpectedAction,
    ExpectedStep,
    MeasuredReplay,
    MeasuredStep,
    PowerSamples,
    ProcessMemory,
    ReplayReport,
    Span,
    ValueCheck,
)
from profiler.building.store_layout import store_layout
from replay.expectation import expected_step
from replay.reporting.report import ReportHead, replay_report
from solver.problem.graph import CostedGraph
from solver.problem.liveness import with_frees
from solver.problem.schedule import Action as ScheduleAction
from solver.problem.schedule import (
    Compute,
    PageIn,
    PageOut,
    Schedule,
)
from tests.support.graphs.graph_examples import training_chain
from tests.support.graphs.schedules import schedule_of

SD_CARD = Storage(
    medium="sd", path="~/scratch", page_bytes=4096, capacity_bytes=32 << 30, endurance_cycles=3000
)
SUBJECT = ReportHead("bench", "made-up.json", {}, SD_CARD)
METER = MeterRecord(kind="ina", detail="ina226, channel 1", rate_hz=500, sync="sampled")

Factor = Callable[[ExpectedAction], float]


def plan_of(graph: CostedGraph, expected: ExpectedStep) -> ExecutionPlan:
    """A plan with the schedule's actions and one probe of the loss.

    Kernels and addresses are arbitrary.
    """
    spec = OpSpec.of("relu.forward", elements=1)
    actions: list[Action] = []
    slots: list[int] = []
    slot_of: dict[str, int] = {}
    for action in expected.actions:
        size = 0 if action.what in ("compute", "recompute") else graph.tensor[action.label].bytes
        block = ArenaRange(0, size)
        if action.what == "page_out":
            slot_of[action.label] = len(slots)
            slots.append(size)
            does: executed.Operation = executed.PageOut(
                action.label, block, slot_of[action.label], action.asynchronous
            )
        elif action.what == "page_in":
            slot = slot_of.get(action.label, 0)
            does = executed.PageIn(action.label, block, slot, asynchronous=action.asynchronous)
        else:
            does = executed.Compute(action.label, spec, (0,), (0,), None, {})
        actions.append(Action(does, schedule_index=action.schedule_index))
    transfers = sum(action.kind is None for action in expected.actions)
    actions.append(Action(Probe("loss", "loss", ArenaRange(0, 4)), waits_for=transfers))
    return ExecutionPlan(
        name=graph.name,
        arena_bytes=expected.arena_bytes or expected.peak_bytes,
        inputs={},
        kept=(),
        actions=tuple(actions),
        slot_bytes=tuple(slots),
    )


def measured_step(
    expected: ExpectedStep,
    *,
    factor: Factor = lambda _: 1.0,
    gap_s: float = 0.0,
    probe_s: float = 0.0,
    power_w: float | None = None,
    checksum: int = 7,
) -> MeasuredStep:
    """A measured step: each action takes ``factor`` × its expected time, ``gap_s`` after another.

    Actions do not overlap, even where the schedule has transfers beside ops: see the tests of
    timing.
    """
    now_s = 0.0
    spans = []
    for action in expected.actions:
        time_s = factor(action) * action.time_s.median
        spans.append(Span(now_s + gap_s, time_s))
        now_s += gap_s + time_s
    spans.append(Span(now_s, probe_s))
    now_s += probe_s
    energy_j = None if power_w is None else power_w * now_s
    return MeasuredStep(now_s, energy_j, tuple(spans), (checksum,))


def measured_replay(
    plan: ExecutionPlan, expected: ExpectedStep, steps: Sequence[MeasuredStep]
) -> MeasuredReplay:
    """A replay of these steps, with the traffic of the plan."""
    layout = store_layout(plan, SD_CARD)
    operations = [action.does for action in plan.actions]
    pages_in = sum(
        -(-operation.block.bytes // SD_CARD.page_bytes)
        for operation in operations
        if isinstance(operation, executed.PageIn)
    )
    return MeasuredReplay(
        board=BoardIdentity(model="a computer under test", memory_bytes=1 << 30),
        build=Build(kernels_sha256="0", compiler="cc", flags=("-O3",), matmul="in-tree", threads=1),
        energy_source="measured",
        meter=METER,
        steps=tuple(steps),
        counters=Counters(
            steps=len(steps),
            bytes_in=len(steps) * pages_in * SD_CARD.page_bytes,
            bytes_out=len(steps) * layout.written_bytes,
            erased_blocks=0,
            touched_bytes=plan.arena_bytes,
        ),
    )


def scheduled(graph: CostedGraph, actions: Sequence[ScheduleAction]) -> Schedule:
    """A schedule of computing and paging actions, with frees; its budget is its peak."""
    made = schedule_of(graph, with_frees(graph, actions))
    return made.model_copy(update={"arena_bytes": made.peak_bytes})


def paged_chain(*, energy_source: EnergySource = "estimated") -> tuple[CostedGraph, Schedule]:
    """A schedule of six layers forward and back, which pages and recomputes.

    Each layer's ops have their own key and an interval of ±5 %. Every activation is paged out when
    it is written and paged in for the backward pass, except for one that is recomputed.
    """
    chain = training_chain(6)
    ops = [
        op.model_copy(
            update={
                "cost_key": OpSpec.of("relu.forward", elements=1 + index % 6).key,
                "time_s_interval": (0.95 * op.time_s, 1.05 * op.time_s),
                "energy_j_interval": (0.95 * op.energy_j, 1.05 * op.energy_j),
            }
        )
        for index, op in enumerate(chain.ops)
    ]
    graph = CostedGraph(
        name="a chain", energy_source=energy_source, ops=tuple(ops), tensors=chain.tensors
    )
    names = [op.name for op in graph.ops]
    actions: list[ScheduleAction] = []
    for name in names[:6]:
        actions.append(Compute(op=name))
        if name not in ("f2", "f6"):
            actions.append(PageOut(tensor=f"a{name[1:]}"))
    in_ram = {"a0", "a6", "a5"}
    stored = {"a1", "a3", "a4"}
    for name in names[6:]:
        for needed in graph.ops[names.index(name)].reads:
            if needed in stored and needed not in in_ram:
                actions.append(PageIn(tensor=needed))
                in_ram.add(needed)
            elif needed == "a2" and needed not in in_ram:
                actions += [] if "a1" in in_ram else [PageIn(tensor="a1")]
                in_ram.add("a1")
                actions.append(Compute(op="f2"))
                in_ram.add("a2")
        actions.append(Compute(op=name))
    return graph, scheduled(graph, actions)


def report_of(
    graph: CostedGraph,
    schedule: Schedule,
    steps: Sequence[MeasuredStep] | None = None,
    *,
    values: Sequence[ValueCheck] = (),
    memory: ProcessMemory | None = None,
    power: PowerSamples | None = None,
) -> ReplayReport:
    """Report of a replay that took exactly its expected time, unless ``steps`` are given."""
    expected = expected_step(graph, schedule)
    plan = plan_of(graph, expected)
    measured = measured_replay(plan, expected, steps or [measured_step(expected)])
    measured = replace(measured, memory=memory, power=power)
    origin = {} if graph.origin is None else graph.origin.stated
    subject = replace(SUBJECT, origin=origin)
    return replay_report(subject, expected, plan, measured, values, steps_per_day=1000)
