"""What is solved for a microcontroller runs on it: its records of a schedule take RAM, too."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devices.description import load_description
from devices.errors import RequestRefused
from devices.plan import ExecutionPlan
from devices.profile import BoardIdentity, ComputeRates, DeviceProfile
from networks.models import build_model
from profiler.building.plan_memory import ALIGNMENT_BYTES, WATCHED_ACTIONS, firmware_ram_bytes
from profiler.building.plan_source import plans_source
from replay.board_ram import BoardRam
from replay.lowering.lowering import lower
from replay.runs import Subject, planned_execution
from solver.constructed import keep_everything
from solver.options import SolverOptions
from solver.pools import Pool
from solver.problem.footprint import least_ram_bytes
from solver.problem.schedule import Budget, Schedule
from solver.referee.referee import replay, verify
from solver.requests.choice import cheapest
from solver.requests.subjects import SolveSubject
from solver.requests.summary import summary
from solver.sweep.sweep import Event, PointSolved, Study, sweep
from tests.support.graphs.schedules import by_rule, costed
from tests.support.onboard.executor import card, keeping

STEP = build_model("digits", 2, "sgd", "storage")
GRAPH = costed(STEP)
LEAST_BYTES = least_ram_bytes(GRAPH)[0]
BY_RULE = by_rule(GRAPH, 1.2)
NO_WORKSPACE = dict.fromkeys(STEP.distinct_specs, 0)


def board(usable_bytes: int, *, shares_ram: bool | None = True) -> DeviceProfile:
    """A profile of a board with so much RAM for training."""
    return DeviceProfile(
        name="small",
        energy_source="emulated",
        board=BoardIdentity(
            model="Small",
            memory_bytes=1 << 20,
            available_bytes=usable_bytes,
            shares_ram=shares_ram,
        ),
        rates=ComputeRates(flop_per_s=1e9, flop_per_j=1e9),
    )


def solved(profile: DeviceProfile, budget_bytes: int) -> Schedule:
    subject = SolveSubject(GRAPH, profile, step=STEP)
    options = SolverOptions(gap=1.0, time_limit_s=200.0, threads=1)
    budget = Budget(ram_bytes=budget_bytes)
    _, schedule, _ = cheapest([subject], budget, options, ram_of=BoardRam.of)
    return schedule


def plan_of(schedule: Schedule) -> ExecutionPlan:
    return lower(STEP, GRAPH, schedule, NO_WORKSPACE)


def test_a_schedule_leaves_room_for_the_boards_records_of_it() -> None:
    usable_bytes = 2 * LEAST_BYTES
    schedule = solved(board(usable_bytes), usable_bytes)
    taken = plan_of(schedule).arena_bytes + firmware_ram_bytes(plan_of(schedule), 1)
    assert taken <= usable_bytes
    assert schedule.budget.ram_bytes < schedule.asked_ram_bytes == usable_bytes
    assert f"({schedule.budget.ram_bytes} bytes) of RAM" in schedule.notes[-1]


@pytest.mark.slow
def test_points_of_a_sweep_leave_room_for_the_records_of_their_schedules() -> None:
    usable_bytes = 2 * LEAST_BYTES
    profile = board(usable_bytes)
    budgets = [Budget(ram_bytes=n * LEAST_BYTES // 4) for n in (6, 8, 9)]
    ram = BoardRam.of(SolveSubject(GRAPH, profile, step=STEP))
    study = Study("small", GRAPH, budgets, ram=ram)
    options = SolverOptions(gap=1.0, time_limit_s=200.0, threads=1)
    found: dict[Budget, Schedule] = {}

    def keep(event: Event) -> None:
        assert isinstance(event, PointSolved)
        found.update({schedule.budget: schedule for schedule in event.schedules})

    with ThreadPoolExecutor(1) as executor:
        sweep([study], options, Pool(executor, lambda: 1), keep)
    assert list(found) == budgets
    for schedule in found.values():
        plan = plan_of(schedule)
        assert plan.arena_bytes + firmware_ram_bytes(plan, 1) <= usable_bytes
        verify(GRAPH, schedule.actions, schedule.budget)
    energies_j = [schedule.energy_j for schedule in found.values()]
    assert energies_j == sorted(energies_j, reverse=True)


def test_a_budget_with_room_for_the_records_stays() -> None:
    schedule = solved(board(2 * LEAST_BYTES), LEAST_BYTES * 3 // 2)
    assert (schedule.budget.ram_bytes, schedule.asked_ram_bytes) == (LEAST_BYTES * 3 // 2, None)


def test_records_of_a_linux_board_do_not_count() -> None:
    usable_bytes = 2 * LEAST_BYTES
    schedule = solved(board(usable_bytes, shares_ram=None), usable_bytes)
    assert (schedule.budget.ram_bytes, schedule.asked_ram_bytes) == (usable_bytes, None)


def test_a_board_without_room_for_the_records_of_any_schedule_has_none() -> None:
    asked_bytes = LEAST_BYTES + 64
    schedule = solved(board(asked_bytes), asked_bytes)
    assert schedule.status == "infeasible"
    left_bytes = schedule.budget.ram_bytes
    assert left_bytes < LEAST_BYTES
    kept = replay(GRAPH, keep_everything(GRAPH))
    text = "\n".join(line for line in summary(schedule, kept, GRAPH) if isinstance(line, str))
    both = f"the {left_bytes} bytes that the firmware's records leave of the {asked_bytes} bytes"
    assert f"no schedule fits into {both} asked for, in whatever order" in text


def test_no_plan_of_a_step_has_fewer_records_than_the_fewest() -> None:
    ram = BoardRam(STEP, GRAPH, board(2 * LEAST_BYTES))
    fewest_bytes = 2 * LEAST_BYTES - ram.largest_arena_bytes
    assert 0 < fewest_bytes <= firmware_ram_bytes(plan_of(BY_RULE), 1)


@pytest.mark.parametrize("lacking", [0, 1])
def test_run_refuses_what_solve_would(lacking: int) -> None:
    """Before anything is built; the error names the largest budget."""
    description = load_description("emulated-m3-sd")
    memory = description.memory
    assert memory is not None
    records_bytes = firmware_ram_bytes(plan_of(BY_RULE), 512)
    ram_bytes = plan_of(BY_RULE).arena_bytes + records_bytes - lacking
    tight = memory.model_copy(update={"ram_bytes": ram_bytes + memory.reserved_bytes})
    described = description.model_copy(update={"memory": tight})
    assert described.memory is not None
    subject = Subject(described, STEP, GRAPH, BY_RULE)
    if not lacking:
        assert planned_execution(subject).arena_bytes == BY_RULE.arena_bytes
        return
    with pytest.raises(RequestRefused, match=f"{records_bytes} bytes for checksums") as refused:
        planned_execution(subject)
    assert f"--ram-budget {ram_bytes - records_bytes} or less" in str(refused.value)


@given(st.lists(st.integers(1, 40), max_size=6), st.integers(0, 60), st.sampled_from([64, 512]))
def test_the_stated_ram_is_that_of_the_generated_tables(
    words: list[int], moving: int, page_bytes: int
) -> None:
    plan = keeping(sizes=tuple(4 * each for each in words), moving=4 * moving)
    source = plans_source([plan], card(page_bytes), watched_actions=WATCHED_ACTIONS)
    declared = re.findall(r"^static ([\w ]+?) \w+\[(\d+)\]", source, re.MULTILINE)
    sizes = {"uint32_t": 4, "jw_span": 8, "unsigned char": 1}
    taken = sum(sizes[kind] * int(count) for kind, count in declared if kind in sizes)
    assert taken <= firmware_ram_bytes(plan, page_bytes) <= taken + 4 * ALIGNMENT_BYTES
