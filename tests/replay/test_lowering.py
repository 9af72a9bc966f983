"""Lowered plans give the results of the training step, whatever the schedule."""

from __future__ import annotations

import itertools
import operator
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from devices.operation import OpSpec
from devices.plan import (
    ArenaRange,
    Compute,
    ExecutionPlan,
    Guard,
    Move,
    PageIn,
    PageOut,
    Probe,
    RowsIn,
)
from devices.quantities import Slices
from networks.training import Network, TrainingStep, training_step, with_parameters_in_storage
from networks.training.network import Value
from networks.training.packing import packable
from networks.training.selection import select_trained
from networks.training.slicing import sliced
from replay.lowering.lowering import LoweringError, lower, reference, unscheduled
from replay.lowering.moves import Mover, ordered_moves, with_targets
from replay.lowering.values import frozen_tensors
from solver.addresses.plan import plan_addresses, with_addresses
from solver.constructed import page_everything
from solver.problem.graph import CostedGraph
from solver.problem.liveness import with_frees
from solver.problem.problem import Problem
from solver.problem.schedule import Action, Budget, Free, Schedule
from solver.problem.schedule import Compute as ScheduledCompute
from solver.problem.schedule import PageIn as ScheduledPageIn
from solver.problem.schedule import PageOut as ScheduledPageOut
from tests.support.failures import sentence_of
from tests.support.graphs.graph_strategies import action_lists
from tests.support.graphs.schedules import addressed_schedule, by_rule, costed
from tests.support.networks.training import (
    small_convolutional,
    small_gated,
    small_lookups,
    small_mixture,
    small_positions,
    small_transformer,
)
from tests.support.onboard.plan_interpreter import ByName, CanaryError, InterpretedBoard, Probes

STEPS_IN_A_ROW = 3


def two_layers(batch: int = 1) -> Network:
    net = Network("two layers", batch)
    x = net.linear("first", net.input("vector", batch, 3), 5)
    x = net.linear("second", net.relu("relu", x), 2)
    net.softmax_cross_entropy("loss", x, net.input("labels", batch))
    return net


IN_RAM = [
    training_step(network, optimizer)
    for network in (
        two_layers(),
        small_convolutional(1),
        small_mixture(1),
        small_transformer(2),
        small_lookups(),
    )
    for optimizer in ("sgd", "momentum")
]


def frozen_but(network: Network, *trained: str) -> TrainingStep:
    """A step that trains only these parameters."""
    select_trained(network, trained)
    return training_step(network, "momentum")


FROZEN = [
    training_step(small_gated(1)),  # frozen statistics
    frozen_but(small_transformer(2), "head"),
    frozen_but(small_lookups(), "linear.*"),
    frozen_but(small_lookups(), "place.table"),
    frozen_but(small_convolutional(1), "norm"),
]


def norm_twice() -> Network:
    """A batch norm that is called twice, so that its statistics change twice a step."""
    net = Network("norm twice", 3)
    x = net.batch_norm("norm", net.linear("linear", net.input("vector", 3, 4), 4))
    norm, update = net.layers[-2:]
    x = net.append("again", norm.spec, (x, *norm.reads[1:]), shape=x.shape, scalars=norm.scalars)
    batch = net.layers[-1].writes[1:]
    net.append("again", update.spec, (*batch, *update.writes), scalars=update.scalars)
    net.softmax_cross_entropy("loss", x, net.input("labels", 3))
    return net


def loss_with_a_reader() -> Network:
    """A loss that is composed, and that the gradient of its last operation reads."""
    net = two_layers()
    assert net.loss is not None
    net.loss = net.sigmoid("composed", net.loss)
    net.one = Value("constants.one", (1,), "parameter")
    return net


EITHER = [*IN_RAM, *FROZEN, training_step(norm_twice()), training_step(loss_with_a_reader())]
STEPS = [*EITHER, *map(with_parameters_in_storage, EITHER)]


def no_workspace(step: TrainingStep) -> dict[OpSpec, int]:
    return dict.fromkeys(step.distinct_specs, 0)


# --- random schedules at random addresses ---------------------------------------------------------


class _Arena:
    """An arena with drawn gaps: the same tensor gets different addresses over a step."""

    def __init__(self, draw: st.DrawFn, graph: CostedGraph) -> None:
        self._draw = draw
        self._bytes = {tensor.name: tensor.bytes for tensor in graph.tensors}
        self.at: dict[str, ArenaRange] = {}
        self.end = 0

    def take(self, name: str, size_bytes: int | None = None) -> int:
        size_bytes = size_bytes or self._bytes[name]
        starts, address = [], 0
        for block in sorted(self.at.values(), key=lambda block: block.address):
            if block.address - address >= size_bytes:
                starts.append(address)
            address = max(address, block.end)
        # No gap, or a small one that only fragments the arena.
        starts += [address, address + 4]
        start = starts[self._draw(st.integers(0, len(starts) - 1))]
        self.at[name] = ArenaRange(start, size_bytes)
        self.end = max(self.end, start + size_bytes)
        return start


def _somewhere(draw: st.DrawFn, graph: CostedGraph, actions: Sequence[Action]) -> Schedule:
    arena = _Arena(draw, graph)
    ops = {op.name: op for op in graph.ops}
    begin = {
        tensor.name: arena.take(tensor.name) for tensor in graph.tensors if tensor.home == "ram"
    }
    placed: list[Action] = []
    for action in actions:
        match action:
            case ScheduledCompute(op=name):
                op = ops[name]
                for written, read in op.in_place.items():
                    arena.at[written] = arena.at[read]
                address = {
                    written: arena.at[written].address
                    if written in op.in_place
                    else arena.take(written)
                    for written in op.writes
                }
                update: dict[str, object] = {"address": address}
                if op.workspace_bytes:
                    update["workspace_address"] = arena.take("workspace", op.workspace_bytes)
                    del arena.at["workspace"]
                for read in op.in_place.values():
                    del arena.at[read]
                placed.append(action.model_copy(update=update))
            case ScheduledPageIn(tensor=name):
                placed.append(action.model_copy(update={"address": arena.take(name)}))
            case Free(tensor=name):
                del arena.at[name]
                placed.append(action)
            case _:
                placed.append(action)
    kept_bytes = sum(tensor.bytes for tensor in graph.tensors if tensor.home)
    return addressed_schedule(graph, placed, begin, arena.end + kept_bytes)


def _beside_compute(draw: st.DrawFn, graph: CostedGraph, actions: Sequence[Action]) -> list[Action]:
    """Make some transfers asynchronous, and free some of the tensors they page out later."""
    found: list[Action] = []
    for action in actions:
        if isinstance(action, ScheduledPageIn | ScheduledPageOut):
            found.append(action.model_copy(update={"asynchronous": draw(st.booleans())}))
        else:
            found.append(action)
    for free in [action for action in found if isinstance(action, Free)]:
        index = next(i for i, action in enumerate(found) if action is free)
        if not _is_leaving(graph, found[:index], free.tensor):
            continue
        latest = index + 1
        while latest < len(found) and free.tensor not in _made_by(graph, found[latest]):
            latest += 1
        found.insert(draw(st.integers(index + 1, latest)), free)
        del found[index]
    return found


def _is_leaving(graph: CostedGraph, before: Sequence[Action], tensor: str) -> bool:
    """Whether the last action that computes or transfers it is an asynchronous page-out."""
    for action in reversed(before):
        if isinstance(action, ScheduledPageOut) and action.tensor == tensor:
            return action.asynchronous
        if tensor in _made_by(graph, action):
            return False
    return False


def _made_by(graph: CostedGraph, action: Action) -> Sequence[str]:
    """Tensors that ``action`` brings into RAM."""
    if isinstance(action, ScheduledCompute):
        return graph.ops[[op.name for op in graph.ops].index(action.op)].writes
    return [action.tensor] if isinstance(action, ScheduledPageIn) else []


@st.composite
def scheduled_steps(
    draw: st.DrawFn,
) -> tuple[TrainingStep, CostedGraph, Schedule, dict[OpSpec, int]]:
    """A step, its graph, a valid schedule of it, sensible or not, and workspace bytes by kernel."""
    step = draw(st.sampled_from(STEPS))
    sizes = st.sampled_from([0, 0, 4, 32])
    planned = {spec: draw(sizes) for spec in step.distinct_specs}
    dma = draw(st.booleans())
    graph = costed(step, planned, dma=dma)
    actions: Sequence[Action] = with_frees(graph, draw(action_lists(graph)))
    if dma:
        actions = _beside_compute(draw, graph, actions)
    needed = {spec: draw(st.sampled_from([0, size])) for spec, size in planned.items()}
    return step, graph, _somewhere(draw, graph, actions), needed


PROPERTIES = settings(
    max_examples=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def run(plan: ExecutionPlan, step: TrainingStep) -> list[Probes]:
    """Values of the probes in a few steps.

    Checks too that kept values are where the next step reads them.
    """
    frozen = frozenset(tensor.name for tensor in frozen_tensors(step))
    board = InterpretedBoard(plan, frozen)
    seen = []
    for number in range(STEPS_IN_A_ROW):
        seen.append(board.step(number))
        for kept in plan.kept:
            (value,) = [
                value
                for (tensor, what), value in seen[-1].items()
                if tensor == kept.tensor and what != "gradient"
            ]
            if kept.address is not None:
                assert board.read(ArenaRange(kept.address, kept.bytes)) == value
            if kept.slot is not None:
                assert board.last_step[kept.slot] == value
        loss = next(probe for probe in plan.probes if probe.what == "loss")
        assert board.read(loss.block) == seen[-1][loss.tensor, loss.what]
    return seen


def expected(step: TrainingStep) -> list[Probes]:
    by_name = ByName(step)
    return [by_name.step(number) for number in range(STEPS_IN_A_ROW)]


@pytest.mark.parametrize("step", STEPS, ids=lambda step: f"{step.title}, {len(step.ops)} ops")
def test_an_unscheduled_step_gives_the_results_of_its_ops(step: TrainingStep) -> None:
    plan = unscheduled(step)
    assert run(plan, step) == expected(step)
    assert [compute.spec for compute in plan.computes] == [op.spec for op in step.ops]
    assert len(plan.buffer_bytes) == len(step.tensors) - sum(len(op.in_place) for op in step.ops)
    assert all(address % 64 == 0 for address in plan.buffer_bytes)


@pytest.mark.parametrize("step", STEPS, ids=lambda step: f"{step.title}, {len(step.ops)} ops")
def test_the_networks_loss_is_observed_as_the_loss_whatever_reads_it(step: TrainingStep) -> None:
    graph = costed(step)
    scheduled = lower(step, graph, by_rule(graph, 1.1), no_workspace(step))
    assert step.network.loss is not None
    for plan in (unscheduled(step), scheduled):
        losses = [probe.tensor for probe in plan.probes if probe.what == "loss"]
        assert losses == [step.network.loss.name]
        assert not any(probe.what == "prediction" for probe in plan.probes)


@pytest.mark.slow
@PROPERTIES
@given(scheduled_steps())
def test_a_scheduled_step_gives_the_same_results_with_and_without_guards(
    case: tuple[TrainingStep, CostedGraph, Schedule, dict[OpSpec, int]],
) -> None:
    step, graph, schedule, workspace_bytes = case
    plan = lower(step, graph, schedule, workspace_bytes)
    event(f"moves: {any(isinstance(action.does, Move) for action in plan.actions)}")
    assert plan.arena_bytes == schedule.arena_bytes
    assert run(plan, step) == expected(step)
    guarded = lower(step, graph, schedule, workspace_bytes, guarded=True)
    assert guarded.arena_bytes == 2 * plan.arena_bytes
    assert run(guarded, step) == expected(step)
    in_schedule = [action for action in plan.actions if action.schedule_index is not None]
    assert [action.schedule_index for action in in_schedule] == [
        index for index, each in enumerate(schedule.actions) if not isinstance(each, Free)
    ]
    assert {(p.tensor, p.what) for p in plan.probes} == {
        (p.tensor, p.what) for p in unscheduled(step).probes
    }


@pytest.mark.slow
@settings(PROPERTIES, max_examples=20)
@given(scheduled_steps(), st.data())
def test_a_debug_build_of_limited_length_guards_the_first_places(
    case: tuple[TrainingStep, CostedGraph, Schedule, dict[OpSpec, int]], data: st.DataObject
) -> None:
    step, graph, schedule, workspace_bytes = case

    def debug_build(most: int) -> ExecutionPlan:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("replay.lowering.guards.MOST_ACTIONS", most)
            return lower(step, graph, schedule, workspace_bytes, guarded=True)

    def length(plan: ExecutionPlan) -> int:
        return len(plan.actions) + len(plan.afterwards)

    def guards(plan: ExecutionPlan) -> list[Guard]:
        return [action.does for action in plan.actions if isinstance(action.does, Guard)]

    none, every = debug_build(0), debug_build(10**6)
    most = data.draw(st.integers(length(none), length(every)))
    some = debug_build(most)
    assert length(some) <= most
    assert guards(none) == []
    assert guards(some) == guards(every)[: len(guards(some))]
    assert len(guards(some)) + some.unguarded == len(guards(every)) == none.unguarded
    assert run(some, step) == run(none, step) == expected(step)


@pytest.mark.slow
@settings(PROPERTIES, max_examples=20)
@given(scheduled_steps(), st.data())
def test_an_overrun_is_reported_with_the_tensor_whose_bounds_it_leaves(
    case: tuple[TrainingStep, CostedGraph, Schedule, dict[OpSpec, int]], data: st.DataObject
) -> None:
    step, graph, schedule, workspace_bytes = case
    plan = lower(step, graph, schedule, workspace_bytes, guarded=True)
    op = data.draw(st.sampled_from(step.ops))
    results = list(range(len(op.writes))) + ([-1] if workspace_bytes[op.spec] else [])
    which = data.draw(st.sampled_from(results))
    left = op.writes[which] if which >= 0 else f"the workspace of {op.name}"
    with pytest.raises(CanaryError) as found:
        InterpretedBoard(plan, overrun=(op.name, which)).step(0)
    assert found.value.args == (left,)


@pytest.mark.parametrize("step", STEPS, ids=lambda step: f"{step.title}, {len(step.ops)} ops")
def test_a_tensor_is_not_overwritten_while_it_is_transferred(step: TrainingStep) -> None:
    """Each tensor overwritten in place is paged out, in and out again right before that."""
    graph = costed(step, dma=True)
    actions: list[Action] = [
        ScheduledPageIn(tensor=tensor.name) for tensor in step.tensors if tensor.home == "storage"
    ]
    for op in step.ops:
        for name in op.in_place.values():
            out = ScheduledPageOut(tensor=name, asynchronous=True)
            actions += [out, ScheduledPageIn(tensor=name, asynchronous=True), out]
        actions.append(ScheduledCompute(op=op.name))
    actions += [
        ScheduledPageOut(tensor=tensor.name)
        for tensor in step.tensors
        if tensor.persist == "storage"
    ]
    scheduled = with_frees(graph, actions)
    plan = plan_addresses(graph, scheduled, "all", 0, time.monotonic())
    addressed = with_addresses(scheduled, plan)
    schedule = addressed_schedule(graph, addressed, plan.resident_address, plan.arena_bytes)
    assert run(lower(step, graph, schedule, no_workspace(step)), step) == expected(step)


@pytest.mark.slow
@pytest.mark.parametrize("dma", [False, True], ids=["one at a time", "beside ops"])
@pytest.mark.parametrize("step", STEPS, ids=lambda step: f"{step.title}, {len(step.ops)} ops")
def test_the_solvers_schedule_for_little_ram_gives_the_same_results(
    step: TrainingStep, dma: bool
) -> None:
    graph = costed(step, dma=dma)
    schedule = by_rule(graph, 1.1)
    plan = lower(step, graph, schedule, no_workspace(step))
    assert run(plan, step) == expected(step)
    assert plan.arena_bytes < unscheduled(step).arena_bytes


# --- the end of a step ----------------------------------------------------------------------------


@st.composite
def _left_and_wanted(draw: st.DrawFn) -> tuple[list[Mover], int]:
    """Tensors in one order and their targets in another, with small gaps between them in both.

    One of them may have no target.
    """
    sizes = [4 * size for size in draw(st.lists(st.integers(1, 6), min_size=1, max_size=6))]
    names = [f"t{number}" for number in range(len(sizes))]
    places = []
    for _ in range(2):
        place, end = {}, 0
        for number in draw(st.permutations(range(len(sizes)))):
            place[names[number]] = end = end + 4 * draw(st.sampled_from([0, 0, 0, 1, 3]))
            end += sizes[number]
        places.append((place, end))
    (here, here_end), (there, there_end) = places
    movers = [
        Mover(name, ArenaRange(here[name], size), there[name])
        for name, size in zip(names, sizes, strict=True)
    ]
    anywhere = draw(st.integers(0, len(sizes)))
    if anywhere < len(sizes):
        movers[anywhere] = replace(movers[anywhere], target=None)
    # Inputs are dead when a step ends, which leaves some room.
    return movers, max(here_end, there_end) + draw(st.sampled_from([4, 8, 24]))


@given(_left_and_wanted())
def test_moves_bring_tensors_from_any_layout_to_any_other(case: tuple[list[Mover], int]) -> None:
    movers, arena_bytes = case
    memory: list[tuple[str, int] | None] = [None] * (arena_bytes // 4)
    for mover in movers:
        for word in range(mover.block.bytes // 4):
            memory[mover.block.address // 4 + word] = mover.tensor, word
    found = with_targets(movers, arena_bytes)
    for move in ordered_moves(found, arena_bytes):
        assert move.to + move.block.bytes <= arena_bytes
        words = memory[move.block.address // 4 : move.block.end // 4]
        memory[move.to // 4 : move.to // 4 + len(words)] = words
    for asked, mover in zip(movers, found, strict=True):
        assert asked.target in (None, mover.target)
        place = mover.destination
        assert memory[place.address // 4 : place.end // 4] == [
            (mover.tensor, word) for word in range(place.bytes // 4)
        ]


def test_tensors_change_places_through_free_bytes() -> None:
    movers = [Mover("a", ArenaRange(0, 40), 40), Mover("b", ArenaRange(40, 40), 0)]
    assert ordered_moves(movers, 120) == (
        Move("a", ArenaRange(0, 40), 80),
        Move("b", ArenaRange(40, 40), 0),
        Move("a", ArenaRange(80, 40), 40),
    )


def test_tensors_change_places_in_pieces_if_free_bytes_are_few() -> None:
    movers = [Mover("a", ArenaRange(0, 40), 40), Mover("b", ArenaRange(40, 40), 0)]
    moves = ordered_moves(movers, 104)
    assert moves[:3] == (
        Move("a", ArenaRange(0, 24), 80),
        Move("b", ArenaRange(40, 24), 0),
        Move("a", ArenaRange(80, 24), 40),
    )
    assert [move.block.bytes for move in moves] == [24, 24, 24, 16, 16, 16]


def test_tensors_that_fill_the_arena_cannot_change_places() -> None:
    movers = [Mover("a", ArenaRange(0, 40), 40), Mover("b", ArenaRange(40, 40), 0)]
    with pytest.raises(
        LoweringError, match="a step ends with a, b at other addresses than the next"
    ):
        ordered_moves(movers, 80)
    many = [
        Mover("a", ArenaRange(0, 1 << 20), 1 << 20),
        Mover("b", ArenaRange(1 << 20, 1 << 20), 0),
    ]
    with pytest.raises(LoweringError, match="gap of 4 free bytes is too small"):
        ordered_moves(many, (1 << 21) + 4)


# --- plans that are refused -----------------------------------------------------------------------

STEP = IN_RAM[0]
GRAPH = costed(STEP)


def _refused(
    schedule: Schedule,
    graph: CostedGraph = GRAPH,
    step: TrainingStep = STEP,
    workspace_bytes: Mapping[OpSpec, int] | None = None,
) -> str:
    workspace = workspace_bytes or no_workspace(step)
    return sentence_of(LoweringError, lambda: lower(step, graph, schedule, workspace))


def test_a_schedule_without_addresses_is_refused() -> None:
    schedule = by_rule(GRAPH, 1.1)
    none = schedule.model_copy(update={"resident_address": None, "arena_bytes": None})
    assert _refused(none) == "the schedule has no addresses; solve without --no-addresses"
    budget = schedule.budget.model_copy(update={"covers": "activations"})
    activations = schedule.model_copy(update={"budget": budget})
    assert "solve with --budget-covers all" in _refused(activations)
    infeasible = schedule.model_copy(update={"actions": (), "status": "infeasible"})
    assert _refused(infeasible).endswith("has no actions: it is infeasible")


def test_a_schedule_of_another_graph_is_refused() -> None:
    schedule = by_rule(GRAPH, 1.1)
    other = schedule.model_copy(update={"graph": "another"})
    assert _refused(other) == f"the schedule is of 'another', not of {GRAPH.name!r}"


def test_a_graph_of_another_step_is_refused() -> None:
    schedule = by_rule(GRAPH, 1.1)
    (momentum,) = (s for s in IN_RAM if s.name == STEP.name and s is not STEP)
    assert "only the training step has tensor" in _refused(schedule, step=momentum)
    wider = training_step(two_layers(batch=2))
    assert "bytes of tensor vector differ" in _refused(schedule, step=wider)
    op = GRAPH.ops[0].model_copy(update={"kind": "relu.forward"})
    kinds = GRAPH.model_copy(update={"ops": (op, *GRAPH.ops[1:])})
    assert "kind of op first.forward differ" in _refused(schedule, graph=kinds)


def test_a_kernel_that_needs_more_workspace_than_planned_is_refused() -> None:
    graph = costed(STEP, dict.fromkeys(STEP.distinct_specs, 8))
    schedule = by_rule(graph, 1.1)
    needed = dict.fromkeys(STEP.distinct_specs, 8)
    assert run(lower(STEP, graph, schedule, needed), STEP) == expected(STEP)
    needed[STEP.ops[0].spec] = 12
    assert _refused(schedule, graph, workspace_bytes=needed).startswith(
        f"the kernel of op first.forward ({STEP.ops[0].spec}) needs 12 bytes of workspace, the"
        " schedule has 8; solve again"
    )


def packing_graph(step: TrainingStep, name: str, *, dma: bool = False) -> CostedGraph:
    graph = costed(step, dma=dma)
    packed = graph.tensor[name].model_copy(update={"packed_bytes": 4})
    tensors = tuple(packed if each.name == name else each for each in graph.tensors)
    return graph.model_copy(update={"tensors": tensors})


def test_page_outs_of_packed_tensors_are_marked() -> None:
    step = training_step(small_convolutional(8))
    name = max(packable(step), key=lambda tensor: tensor.bytes).name
    graph = packing_graph(step, name)
    actions = page_everything(Problem(graph, Budget(ram_bytes=1 << 30)))
    placed = plan_addresses(graph, actions, "all", 0, time.monotonic())
    schedule = addressed_schedule(
        graph,
        with_addresses(actions, placed),
        placed.resident_address,
        placed.arena_bytes,
    )
    plan = lower(step, graph, schedule, no_workspace(step))
    outs = [each.does for each in plan.actions if isinstance(each.does, PageOut)]
    assert {each.tensor for each in outs if each.packed_bytes is not None} == {name}
    assert set(plan.packed_bytes) == {each.slot for each in outs if each.tensor == name}
    assert set(plan.packed_bytes.values()) == {4}


def test_a_graph_that_packs_what_cannot_be_packed_is_refused() -> None:
    schedule = by_rule(GRAPH, 1.1)
    said = _refused(schedule, packing_graph(STEP, "first.weight"))
    assert "tensor first.weight has packed_bytes, but only the larger activations" in said
    said = _refused(schedule, packing_graph(STEP, "first.weight", dma=True))
    assert "ops that run beside its transfer may read it meanwhile" in said


def test_a_schedule_that_a_referee_rejects_is_refused() -> None:
    schedule = by_rule(GRAPH, 1.1)
    short = schedule.model_copy(update={"actions": schedule.actions[:-1]})
    assert "is not valid: action" in _refused(short)
    assert schedule.arena_bytes is not None
    tight = schedule.model_copy(update={"arena_bytes": schedule.arena_bytes - 4})
    assert "leaves the arena" in _refused(tight)
    late = schedule.budget.model_copy(update={"deadline_s": 1.0})
    assert "the deadline is 1 s" in _refused(schedule.model_copy(update={"budget": late}))


def test_operands_that_are_not_aligned_are_refused() -> None:
    schedule = by_rule(GRAPH, 1.1)
    assert schedule.resident_address is not None
    assert schedule.arena_bytes is not None
    begin = {name: address + 2 for name, address in schedule.resident_address.items()}
    moved: list[Action] = []
    for action in schedule.actions:
        match action:
            case ScheduledCompute(address=dict(address)):
                address = {name: at + 2 for name, at in address.items()}
                moved.append(action.model_copy(update={"address": address}))
            case ScheduledPageIn(address=int(at)):
                moved.append(action.model_copy(update={"address": at + 2}))
            case _:
                moved.append(action)
    unaligned = addressed_schedule(GRAPH, moved, begin, schedule.arena_bytes + 2)
    assert "which is not a multiple of 4" in _refused(unaligned)


def test_an_input_in_storage_is_refused() -> None:
    tensors = tuple(
        replace(tensor, home="storage") if tensor.name == "vector" else tensor
        for tensor in STEP.tensors
    )
    stored = replace(STEP, tensors=tensors)
    graph = costed(stored)
    assert "input vector has its home in storage" in _refused(by_rule(graph, 1.1), graph, stored)


@pytest.mark.parametrize("step", [*map(with_parameters_in_storage, FROZEN)], ids=lambda s: s.title)
def test_what_no_step_changes_is_read_from_storage_and_never_written(step: TrainingStep) -> None:
    graph = costed(step)
    plan = lower(step, graph, by_rule(graph, 1.1), no_workspace(step))
    frozen = {tensor.name for tensor in frozen_tensors(step)}
    assert frozen == {each.tensor for each in (*plan.frozen, *plan.frozen_tables)}
    assert not frozen & set(plan.inputs)
    moved = [action.does for action in (*plan.actions, *plan.afterwards)]
    assert not frozen & {each.tensor for each in moved if isinstance(each, PageOut)}
    assert frozen == frozen & {each.tensor for each in moved if isinstance(each, PageIn | RowsIn)}


# --- what a scheduled step is compared with -------------------------------------------------------


def copied(spec: OpSpec) -> list[int]:
    """Numbers of the elements that a copy reads, in the order in which it writes them."""
    a = spec.attributes
    axes = [range(a[f"size{axis}"]) for axis in range(6)]
    strides = [a[f"stride{axis}"] for axis in range(6)]
    return [a["offset"] + sum(map(operator.mul, at, strides)) for at in itertools.product(*axes)]


@pytest.mark.parametrize("slices", [Slices(1 << 20, 768), Slices(600, 768), Slices(600)])
def test_parts_are_compared_with_their_elements_of_the_whole(slices: Slices) -> None:
    """A table of positions, of which features are cut, is one of the tensors."""
    whole = training_step(small_positions())
    step = sliced(whole, slices)
    plan = reference(step, whole, no_workspace(whole))
    wholes = {
        (each.does.tensor, each.does.what): each.does.block
        for each in reference(whole, whole, no_workspace(whole)).actions
        if isinstance(each.does, Probe)
    }
    compared = 0
    for before, action in itertools.pairwise(plan.actions):
        probe, tensor = action.does, None
        if isinstance(probe, Probe):
            tensor = step.tensor.get(probe.tensor)
        if not isinstance(probe, Probe) or tensor is None or tensor.part is None:
            continue
        compared += 1
        block = wholes[tensor.part.whole, probe.what]
        elements = tensor.part.of(np.arange(block.bytes // 4)).reshape(-1).tolist()
        if isinstance(before.does, Compute) and before.does.op.startswith("copy of"):
            assert before.does.reads == (block.address,)
            assert before.does.writes == (probe.block.address,)
            assert copied(before.does.spec) == elements
        else:
            first = (probe.block.address - block.address) // 4
            assert elements == list(range(first, first + probe.block.bytes // 4))
    assert compared > 2
