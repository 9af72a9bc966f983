"""The choice among several ways to take a step, and the slices that are offered for it."""

from __future__ import annotations

import time

import pytest

from devices.profile import Build, DeviceProfile
from devices.published import load_published
from devices.quantities import Slices
from devices.signatures.tiles import KernelBuild
from networks.kinds import Place
from networks.models import build_model
from networks.training.step import TrainingStep
from solver.constructed import keep_everything
from solver.costing.costing import cost_graph
from solver.options import SolverOptions
from solver.problem.footprint import least_ram_bytes
from solver.problem.graph import CostedGraph, Op, PageCost, Tensor
from solver.problem.schedule import Budget, EndedBy, Schedule
from solver.referee.referee import replay
from solver.requests.choice import cheapest
from solver.requests.foreseen import foreseen_slices
from solver.requests.slicing import with_slices
from solver.requests.subjects import SolveSubject
from solver.requests.summary import summary
from solver.solving.solving import solve_graph
from tests.support.graphs.profiles import made_up_profile

SMALL = KernelBuild(4, is_small=True)
QUICK = SolverOptions(threads=1, time_limit_s=5.0)


def updated_in_storage(written_bytes: int, page_j: float = 1.0) -> SolveSubject:
    """A step that reads a parameter from storage and writes it back."""
    cost = PageCost(time_s=1.0, energy_j=page_j)
    sizes = {"bytes": written_bytes, "kind": "parameter", "page_out": cost, "page_in": cost}
    graph = CostedGraph(
        name=f"{written_bytes} bytes",
        ops=(
            Op(
                name="update",
                kind="sgd.update",
                phase="update",
                reads=("weight",),
                writes=("new weight",),
                time_s=1.0,
                energy_j=1.0,
                recomputable=False,
            ),
        ),
        tensors=(
            Tensor(name="weight", home="storage", **sizes),
            Tensor(name="new weight", persist="storage", **sizes),
        ),
    )
    return SolveSubject(graph)


@pytest.mark.parametrize("sizes", [(8, 4), (4, 8)])
def test_of_two_ways_of_equal_energy_the_one_that_writes_less_is_chosen(
    sizes: tuple[int, int],
) -> None:
    first, second = sizes
    ways = (updated_in_storage(first), updated_in_storage(second, 1.0 + 1e-13))
    chosen, schedule, found = cheapest(ways, Budget(ram_bytes=100), QUICK)
    assert [each.bytes_written_to_storage for each in found] == [first, second]
    assert schedule.bytes_written_to_storage == 4
    assert chosen is ways[sizes.index(4)]
    dear = updated_in_storage(4, 1.1)
    assert cheapest((updated_in_storage(8), dear), Budget(ram_bytes=100), QUICK)[0] is not dear


def test_without_a_schedule_the_smallest_ram_budget_is_that_of_the_best_way() -> None:
    """The input gradient of a pool reads its input, or with codecs the places of its maxima."""
    board = load_published("m4")
    steps = [build_model("vgg16_cifar", codecs=codecs) for codecs in (False, True)]
    ways = [SolveSubject(cost_graph(step, board).graph, board, step=step) for step in steps]
    chosen, schedule, found = cheapest(ways, Budget(ram_bytes=100, covers="activations"), QUICK)
    needed = [each.smallest_ram_bytes or 0 for each in found]
    assert needed[1] < needed[0]
    assert (chosen, schedule) == (ways[1], found[1])
    kept = replay(chosen.graph, keep_everything(chosen.graph))
    said = [part for part in summary(schedule, kept, chosen.graph) if isinstance(part, str)]
    smallest = f"the smallest feasible RAM budget of whole layers with codecs is {needed[1]} bytes"
    assert any(part.startswith(smallest) for part in said)


def test_nothing_is_called_infeasible_while_it_is_open_for_one_of_the_ways(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def solved(graph: CostedGraph, budget: Budget, *_: object, **__: object) -> Schedule:
        schedule = solve_graph(graph, budget, QUICK)
        if graph is not ways[1].graph:
            return schedule
        return schedule.model_copy(
            update={"status": "no_solution", "smallest_ram_bytes": None, "ended_by": "time_limit"}
        )

    monkeypatch.setattr("solver.requests.choice.solve_graph", solved)
    ways = [updated_in_storage(size_bytes) for size_bytes in (8, 16, 4)]
    chosen, schedule, found = cheapest(ways, Budget(ram_bytes=1), QUICK)
    assert [each.status for each in found] == ["infeasible", "no_solution", "infeasible"]
    assert (chosen, schedule) == (ways[1], found[1])


STEP = build_model("resnet8", parameters_in="storage")


def whole_layers(profile: DeviceProfile | None = None) -> SolveSubject:
    profile = profile or load_published("m4")
    return SolveSubject(cost_graph(STEP, profile).graph, profile, step=STEP)


def measured_on_a_microcontroller(step: TrainingStep) -> DeviceProfile:
    """A profile of the step's operations in whole layers, with the workspaces of small tiles."""
    workspaces = {spec.key: spec.workspace_bytes(SMALL) for spec in step.distinct_specs}
    made_up = made_up_profile(list(step.distinct_specs))
    operations = [
        each.model_copy(update={"workspace_bytes": workspaces[each.op]})
        for each in made_up.operations
    ]
    return made_up.changed(operations=operations)


def slices_of(subjects: tuple[SolveSubject, ...]) -> list[Slices | None]:
    return [each.slices for each in subjects]


@pytest.mark.parametrize(
    ("multiple", "is_offered"), [(1, True), (2, True), (2.99, True), (3, False)]
)
def test_slices_are_solved_besides_if_an_operation_takes_a_third_of_the_budget(
    multiple: float, is_offered: bool
) -> None:
    whole, said = whole_layers(), list[str]()
    largest_bytes, name = least_ram_bytes(whole.graph)
    budget = Budget(ram_bytes=int(multiple * largest_bytes))
    offered = with_slices((whole,), budget, said.append)
    part_bytes = largest_bytes // 4
    assert slices_of(offered) == [None, *([Slices(part_bytes, part_bytes)] * is_offered)]
    assert offered[0] is whole
    assert [name in each and "besides" in each for each in said] == [True] * is_offered
    assert all(least_ram_bytes(each.graph)[0] < largest_bytes for each in offered[1:])


def test_slices_of_many_operations_are_not_solved_besides(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = whole_layers()
    budget = Budget(ram_bytes=2 * least_ram_bytes(whole.graph)[0])
    _, besides = with_slices((whole,), budget, print)
    times = len(besides.graph.ops) / len(whole.graph.ops)
    assert 1 < times < 2
    monkeypatch.setattr("solver.requests.slicing._MOST_TIMES", 0.99 * times)
    assert slices_of(with_slices((whole,), budget, print)) == [None]


def test_slices_are_left_out_where_they_cannot_pay_or_were_not_measured() -> None:
    whole = whole_layers()
    largest_bytes, _ = least_ram_bytes(whole.graph)
    barely = Budget(ram_bytes=2 * largest_bytes)
    build = Build(kernels_sha256="0" * 64, compiler="cc", flags=(), matmul="cblas", threads=1)
    profile = load_published("m4")
    assert whole.profile is not None
    with_blas = whole_layers(profile.changed(build=build))
    assert slices_of(with_slices((with_blas,), barely, print)) == [None]
    said: list[str] = []
    measured = whole_layers(measured_on_a_microcontroller(STEP))
    budget = Budget(ram_bytes=2 * least_ram_bytes(measured.graph)[0])
    assert slices_of(with_slices((measured,), budget, said.append)) == [None]
    assert "profile --slices" in said[0]
    # Nothing is recomputed or paged with all the RAM that the step takes.
    linear = build_model("linear")
    kept = SolveSubject(cost_graph(linear, profile).graph, profile, step=linear)
    peak_bytes = replay(kept.graph, keep_everything(kept.graph)).peak_bytes
    assert peak_bytes < 3 * least_ram_bytes(kept.graph)[0]
    assert slices_of(with_slices((kept,), Budget(ram_bytes=peak_bytes), print)) == [None]


def test_slices_that_cannot_need_less_energy_are_not_offered() -> None:
    """The parts of digits take more energy than whole layers that page and recompute."""
    profile, step = load_published("m4"), build_model("digits", parameters_in="storage")
    whole = SolveSubject(cost_graph(step, profile).graph, profile, step=step)
    budget = Budget(ram_bytes=2 * least_ram_bytes(whole.graph)[0])
    assert slices_of(with_slices((whole,), budget, print)) == [None]
    _, besides = with_slices((whole,), budget, print, compare_costs=False)
    least_j = replay(besides.graph, keep_everything(besides.graph)).energy_j
    found = solve_graph(whole.graph, budget, SolverOptions(threads=1, gap=0.2))
    assert found.energy_j is not None
    assert found.energy_j < least_j


@pytest.mark.slow
@pytest.mark.parametrize("multiple", [0.6, 2, 3.1])
@pytest.mark.parametrize("home", ["ram", "storage"])
def test_foreseen_slices_are_those_that_are_offered_after_measuring(
    home: Place, multiple: float
) -> None:
    step = build_model("digits", 8, parameters_in=home)
    profile = measured_on_a_microcontroller(step)
    measured = SolveSubject(cost_graph(step, profile).graph, profile, step=step)
    budget = Budget(ram_bytes=int(multiple * least_ram_bytes(measured.graph)[0]))
    said: list[str] = []
    offered = with_slices((measured,), budget, said.append, compare_costs=False)
    foreseen = foreseen_slices((step,), budget.ram_bytes)
    if multiple > 3:
        assert foreseen == (None,)
    elif multiple > 1:
        whole, *slices = foreseen
        assert whole is None
        assert any(f"profile --slices {each.stated}'" in said[0] for each in slices if each)
    else:
        assert None not in foreseen
        assert set(slices_of(offered)) <= set(foreseen)
    assert len(set(foreseen)) == len(foreseen)


def test_nothing_is_foreseen_where_no_slices_fit() -> None:
    assert foreseen_slices((STEP,), 3) == ()


@pytest.mark.parametrize(
    ("ended_by", "found", "slices_s"),
    [("time_limit", True, 30.0), ("proven", True, 1.0), ("proven", False, 30.0)],
    ids=["out of time", "early", "nothing found"],
)
def test_slices_besides_whole_layers_have_the_last_third_of_the_time(
    ended_by: EndedBy, found: bool, slices_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Searches that end at once leave the slices the least time, unless they found nothing."""
    limits_s: list[float | None] = []

    def solved(graph: CostedGraph, budget: Budget, options: SolverOptions, *_: object) -> Schedule:
        limits_s.append(options.time_limit_s)
        schedule = solve_graph(graph, budget, QUICK)
        without = {} if found else {"energy_j": None, "status": "no_solution"}
        return schedule.model_copy(update={"ended_by": ended_by, **without})

    monkeypatch.setattr("solver.requests.choice.solve_graph", lambda *a, **_: solved(*a))
    first, second = updated_in_storage(4), updated_in_storage(8)
    monkeypatch.setattr(SolveSubject, "slices", property(lambda each: None if each is first else 1))
    began = time.monotonic()
    cheapest((first, second), Budget(ram_bytes=100), SolverOptions(time_limit_s=30.0))
    taken_s = time.monotonic() - began
    whole_s, besides_s = limits_s
    assert whole_s == pytest.approx(20.0, abs=0.5 + taken_s)
    assert besides_s == pytest.approx(slices_s, abs=1.0 + taken_s)
