"""Replays as a board would tell of them, made up from what was expected: each action takes exactly
as long as predicted, but for what a test changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from devices.description import Storage
from devices.operation import OpSpec
from devices.plan import Action, Block, Compute, ExecutionPlan, PageIn, PageOut, Probe
from devices.profile import Board, Build, MeterRecord
from devices.replay import (
    Counters,
    ExpectedAction,
    ExpectedStep,
    MeasuredReplay,
    MeasuredStep,
    ReplayReport,
    Span,
    ValueCheck,
)
from profiler.replay.report import Subject, replay_report
from profiler.replay.store_layout import store_layout
from solver.expectation import expected_step
from solver.graph import CostedGraph
from solver.schedule import Schedule

SD_CARD = Storage(
    medium="sd", path="~/scratch", page_bytes=4096, capacity_bytes=32 << 30, endurance_cycles=3000
)
SUBJECT = Subject("bench", "made-up.json", {"model": "chain", "batch": 1}, SD_CARD)
METER = MeterRecord(kind="ina", detail="ina226, channel 1", rate_hz=500, sync="sampled")

Factor = Callable[[ExpectedAction], float]


def plan_of(graph: CostedGraph, expected: ExpectedStep) -> ExecutionPlan:
    """A plan with the schedule's actions; kernels and addresses are of no meaning. One loss is
    observed."""
    spec = OpSpec.of("relu.forward", elements=1)
    actions: list[Action] = []
    slots: list[int] = []
    slot_of: dict[str, int] = {}
    for action in expected.actions:
        size = 0 if action.what in ("compute", "recompute") else graph.tensor[action.label].bytes
        block = Block(0, size)
        if action.what == "page_out":
            slot_of[action.label] = len(slots)
            slots.append(size)
            does = PageOut(action.label, block, slot_of[action.label], action.asynchronous)
        elif action.what == "page_in":
            slot = slot_of.get(action.label, 0)
            does = PageIn(action.label, block, slot, asynchronous=action.asynchronous)
        else:
            does = Compute(action.label, spec, (0,), (0,), None, {})
        actions.append(Action(does, step=action.step))
    actions.append(Action(Probe("loss", "loss", Block(0, 4))))
    return ExecutionPlan(
        name=graph.name,
        arena_bytes=expected.peak_bytes,
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
    """Each action takes ``factor`` times as long as expected, with ``gap_s`` in front of it. Beside
    others nothing moves, even where the schedule has it so: see tests of timing."""
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
    """``steps``, with traffic as the plan has it."""
    layout = store_layout(plan, SD_CARD)
    pages_in = sum(
        -(-action.does.block.bytes // 4096) for action in plan.actions if is_page_in(action)
    )
    return MeasuredReplay(
        board=Board(model="a computer under test", memory_bytes=1 << 30),
        build=Build(kernels_sha256="0", compiler="cc", flags=("-O3",), matmul="in-tree", threads=1),
        energy_source="measured",
        meter=METER,
        steps=tuple(steps),
        counters=Counters(
            steps=len(steps),
            bytes_in=len(steps) * pages_in * 4096,
            bytes_out=len(steps) * layout.written_bytes,
            erased_blocks=0,
            touched_bytes=plan.arena_bytes,
        ),
    )


def is_page_in(action: Action) -> bool:
    return isinstance(action.does, PageIn)


def report_of(
    graph: CostedGraph,
    schedule: Schedule,
    steps: Sequence[MeasuredStep] | None = None,
    *,
    values: Sequence[ValueCheck] = (),
    changes: Mapping[str, object] | None = None,
) -> ReplayReport:
    """Of a replay that went exactly as expected, if no ``steps`` say otherwise. ``changes`` are
    made to what was measured."""
    expected = expected_step(graph, schedule)
    plan = plan_of(graph, expected)
    measured = measured_replay(plan, expected, steps or [measured_step(expected)])
    measured = replace(measured, **(changes or {}))
    return replay_report(SUBJECT, expected, plan, measured, values, steps_per_day=1000)
