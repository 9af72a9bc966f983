"""The referee: figures of valid schedules, and messages about invalid ones."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solver.constructed import keep_everything, page_everything
from solver.options import Coverage
from solver.problem.footprint import least_ram_bytes
from solver.problem.graph import CostedGraph
from solver.problem.liveness import with_frees
from solver.problem.problem import Problem
from solver.problem.schedule import Action, Budget, Compute, Free, PageIn, PageOut
from solver.referee.referee import Late, RefereeError, Replay, replay, verify
from tests.support.graphs.graph_examples import actions, graph, op, tensor, two_layers
from tests.support.graphs.graph_strategies import action_lists, small_graphs

# --- right schedules ------------------------------------------------------------------------------

_KEEP = actions(
    "compute conv; free x; compute relu; compute linear;"
    "compute grad; free y; free r; compute update; free g"
)
# r is paged out after its last forward reader and paged in for the backward op.
_PAGED = actions(
    "compute conv; free x; compute relu; page_out r; compute linear; free r;"
    "page_in r; compute grad; free y; free r; compute update; free g"
)


def test_figures_of_a_step_by_pencil_and_paper() -> None:
    result = replay(two_layers(), _KEEP)
    assert result.energy_j == 10 + 1 + 20 + 30 + 5
    assert result.time_s == 1 + 0.5 + 2 + 3 + 1
    # x 10, w 4, a 6 and 5 of workspace, while conv runs.
    assert (result.peak_bytes, result.peak_action) == (25, 0)
    assert result.bytes_written_to_storage == 0


def test_the_moments_of_a_step_by_pencil_and_paper() -> None:
    result = replay(two_layers(), _PAGED)
    assert [
        (m.start_s, m.time_s, m.energy_j, m.bytes_during, m.bytes_after) for m in result.moments
    ] == [
        (0.0, 1.0, 10.0, 25, 20),  # conv: x 10, w 4, a 6, workspace 5
        (1.0, 0.0, 0.0, 20, 10),  # free x
        (1.0, 0.5, 1.0, 10, 10),  # relu: w 4, and r over a, 6 once
        (1.5, 0.25, 2.0, 10, 10),  # page_out r leaves it in RAM
        (1.75, 2.0, 20.0, 18, 18),  # linear: w 4, r 6, y 8
        (3.75, 0.0, 0.0, 18, 12),  # free r
        (3.75, 0.5, 3.0, 18, 18),  # page_in r
        (4.25, 3.0, 30.0, 24, 22),  # grad: w 4, r 6, y 8, g 4, workspace 2
        (7.25, 0.0, 0.0, 22, 14),  # free y
        (7.25, 0.0, 0.0, 14, 8),  # free r
        (7.25, 1.0, 5.0, 8, 8),  # update: g 4, and w1 over w, 4 once
        (8.25, 0.0, 0.0, 8, 4),  # free g
    ]
    assert [m.action for m in result.moments] == list(_PAGED)
    assert not any(m.recomputation for m in result.moments)
    assert result.energy_j == 71.0
    assert result.time_s == 8.25
    assert result.bytes_written_to_storage == 6


def test_a_replay_is_found_again_for_the_same_objects_only() -> None:
    first, steps = two_layers(), _KEEP
    dearer = [one.model_copy(update={"energy_j": one.energy_j + 1}) for one in first.ops]
    second = first.model_copy(update={"ops": tuple(dearer)})
    assert replay(first, steps) is replay(first, steps)
    assert replay(second, steps).energy_j == replay(first, steps).energy_j + len(dearer)
    assert replay(first, steps, "activations").peak_bytes < replay(first, steps).peak_bytes
    changed = list(steps)
    replay(first, changed)
    del changed[-1]
    with pytest.raises(RefereeError, match="'g' is still in RAM"):
        replay(first, changed)


def test_a_recomputation_is_marked_and_costs_again() -> None:
    schedule = actions(
        "compute conv; compute relu; compute linear; free r; compute conv; free x; compute relu;"
        "compute grad; free y; free r; compute update; free g"
    )
    result = replay(two_layers(), schedule)
    again = [m.action for m in result.moments if m.recomputation]
    assert again == list(actions("compute conv; compute relu"))
    assert result.energy_j == 66 + 11
    assert result.time_s == 7.5 + 1.5
    # x 10, w 4, y 8, a 6 and 5 of workspace, when conv runs again.
    assert (result.peak_bytes, result.peak_action) == (33, 4)


def test_the_first_of_several_equal_peaks_is_named() -> None:
    two = graph([op("first", "", "a"), op("second", "", "b")], [tensor("a", 4), tensor("b", 4)])
    result = replay(two, actions("compute first; free a; compute second; free b"))
    assert (result.peak_bytes, result.peak_action) == (4, 0)


def test_unread_tensors_in_ram_at_the_start_count() -> None:
    idle = graph([op("only", "", "a")], [tensor("x", 9, home="ram"), tensor("a", 4)])
    assert replay(idle, actions("free x; compute only; free a")).peak_bytes == 9


def test_in_place_counts_the_smaller_of_the_two_once() -> None:
    shrinking = graph(
        [op("only", "x", "y", in_place={"y": "x"})],
        [tensor("x", 10, home="ram"), tensor("y", 3)],
    )
    growing = graph(
        [op("only", "x", "y", in_place={"y": "x"})],
        [tensor("x", 3, home="ram"), tensor("y", 10)],
    )
    for problem, during, after in ((shrinking, 10, 3), (growing, 10, 10)):
        first = replay(problem, actions("compute only; free y")).moments[0]
        assert (first.bytes_during, first.bytes_after) == (during, after)


def test_recomputed_tensor_keeps_its_copy_in_storage() -> None:
    problem = graph(
        [op("make", "", "a"), op("use", "a", "b"), op("last", "a b", "c")],
        [tensor("a", 4, page_out=(1.0, 1.0), page_in=(1.0, 1.0)), tensor("b", 4), tensor("c", 4)],
    )
    result = replay(
        problem,
        actions(
            "compute make; page_out a; free a; compute make; compute use; free a;"
            "page_in a; compute last; free a; free b; free c"
        ),
    )
    assert result.bytes_written_to_storage == 4
    assert result.energy_j == 4 + 2


def test_tensor_with_home_in_storage_needs_no_page_out_before_page_in() -> None:
    problem = graph(
        [op("first", "w", "a"), op("second", "w a", "b")],
        [tensor("w", 4, home="storage", page_in=(1.0, 1.0)), tensor("a", 4), tensor("b", 4)],
    )
    result = replay(
        problem,
        actions(
            "page_in w; compute first; free w; page_in w; compute second; free w; free a; free b"
        ),
    )
    assert result.energy_j == 4.0
    assert result.bytes_written_to_storage == 0


def test_ops_may_run_in_any_order_that_their_reads_allow() -> None:
    two = graph([op("first", "", "a"), op("second", "", "b")], [tensor("a", 4), tensor("b", 4)])
    assert replay(two, actions("compute second; free b; compute first; free a")).energy_j == 2.0


_STEP_OF_ALL_KINDS = graph(
    [
        op("forward", "x w", "a", workspace_bytes=32),
        op("backward", "a", "da dw", phase="backward"),
        op("update", "w m dw", "w1 m1", phase="update", in_place={"w1": "w", "m1": "m"}),
    ],
    [
        tensor("x", 1, kind="input", home="ram"),
        tensor("w", 100, kind="parameter", home="ram"),
        tensor("m", 200, kind="optimizer_state", home="ram"),
        tensor("a", 2),
        tensor("da", 4, kind="gradient"),
        tensor("dw", 1000, kind="gradient"),
        tensor("w1", 100, kind="parameter", persist="ram"),
        tensor("m1", 200, kind="optimizer_state", persist="ram"),
    ],
)


@pytest.mark.parametrize(
    ("covers", "bytes_during"),
    [
        ("all", [335, 1306, 1300]),
        # x, a and the gradient of the activation count, and workspace always does.
        ("activations", [35, 6, 0]),
    ],
)
def test_budget_counts_only_the_tensors_that_it_covers(
    covers: Coverage, bytes_during: list[int]
) -> None:
    schedule = keep_everything(_STEP_OF_ALL_KINDS)
    moments = replay(_STEP_OF_ALL_KINDS, schedule, covers).moments
    computing = [m.bytes_during for m in moments if isinstance(m.action, Compute)]
    assert computing == bytes_during
    verify(_STEP_OF_ALL_KINDS, schedule, Budget(ram_bytes=max(bytes_during), covers=covers))


def test_partial_gradients_of_parameters_are_no_activations() -> None:
    """The parameter's gradient is the sum of two; that of an activation is one, too."""
    accumulate = "gradient.accumulate"
    step = graph(
        [
            op("first", "x w", "dw1 da1", phase="backward"),
            op("second", "x w", "dw2 da2", phase="backward"),
            op("sum", "dw1 dw2", "dw", kind=accumulate, phase="backward", in_place={"dw": "dw1"}),
            op("other_sum", "da1 da2", "da", kind=accumulate, phase="backward"),
            op("last", "da", "db", phase="backward"),
            op("update", "w dw", "w1", phase="update", in_place={"w1": "w"}),
        ],
        [
            tensor("x", 1, kind="input", home="ram"),
            tensor("w", 100, kind="parameter", home="ram"),
            *(tensor(name, 1000, kind="gradient") for name in ("dw1", "dw2", "dw")),
            *(tensor(name, 4, kind="gradient") for name in ("da1", "da2", "da", "db")),
            tensor("w1", 100, kind="parameter", persist="ram"),
        ],
    )
    moments = replay(step, keep_everything(step), "activations").moments
    computing = [m.bytes_during for m in moments if isinstance(m.action, Compute)]
    assert computing == [5, 9, 8, 12, 8, 0]
    assert least_ram_bytes(step, "activations") == (12, "other_sum")


# --- wrong schedules ------------------------------------------------------------------------------


def _refused(problem: CostedGraph, text: str, budget: Budget | None = None) -> RefereeError:
    with pytest.raises(RefereeError) as refused:
        verify(problem, actions(text), budget or Budget(ram_bytes=1000))
    return refused.value


@pytest.mark.parametrize(
    ("text", "action", "reason"),
    [
        pytest.param(
            "compute relu",
            0,
            "op 'relu' reads 'a', which is not in RAM",
            id="reads what was never computed",
        ),
        pytest.param(
            "compute conv; free x; free a; compute relu",
            3,
            "op 'relu' reads 'a', which is not in RAM",
            id="reads what was freed",
        ),
        pytest.param(
            "compute conv; free x; compute relu; compute relu",
            3,
            "op 'relu' reads 'a', which is not in RAM",
            id="reads what was written over in place",
        ),
        pytest.param(
            "compute conv; free x; compute relu; page_out r; free r; compute linear",
            5,
            "op 'linear' reads 'r', which is not in RAM",
            id="reads what is in storage only",
        ),
        pytest.param(
            "compute pool",
            0,
            "computes 'pool', an op that the graph does not have",
            id="computes an unknown op",
        ),
        pytest.param(
            "compute conv; free z",
            1,
            "names 'z', a tensor that the graph does not have",
            id="frees an unknown tensor",
        ),
        pytest.param(
            "page_in z",
            0,
            "names 'z', a tensor that the graph does not have",
            id="pages in an unknown tensor",
        ),
        pytest.param(
            "page_out z",
            0,
            "names 'z', a tensor that the graph does not have",
            id="pages out an unknown tensor",
        ),
        pytest.param(
            "page_out r", 0, "pages out 'r', which is not in RAM", id="pages out what is not in RAM"
        ),
        pytest.param(
            "page_out x",
            0,
            "pages out 'x', which has no page-out cost",
            id="pages out what cannot be",
        ),
        pytest.param(
            "compute conv; free x; compute relu; page_out r; page_in r",
            4,
            "pages in 'r', which is in RAM",
            id="pages in what is in RAM",
        ),
        pytest.param(
            "page_in r",
            0,
            "pages in 'r', of which storage has no valid copy",
            id="pages in what was never paged out",
        ),
        pytest.param("free r", 0, "frees 'r', which is not in RAM", id="frees what is not in RAM"),
        pytest.param(
            "compute conv; free x; free x",
            2,
            "frees 'x', which is not in RAM",
            id="frees what was freed",
        ),
        pytest.param(
            "compute conv; free x; compute relu; free a",
            3,
            "frees 'a', which is not in RAM",
            id="frees what was written over in place",
        ),
        pytest.param(
            "compute conv; compute relu; free x",
            2,
            "frees 'x' late: nothing needed it after action 0, and action 1 ran with it in RAM",
            id="frees late",
        ),
        pytest.param(
            "compute conv; free x; compute relu; page_out r; compute linear; page_out r; free r;"
            "page_in r; free y",
            8,
            "frees 'y' late: nothing needed it after action 4, and action 7 ran with it in RAM",
            id="frees late, after a page came in",
        ),
        pytest.param(
            "compute conv; compute conv",
            1,
            "op 'conv' recomputes 'a', which is still in RAM though nothing needed it after"
            " action 0",
            id="recomputes a tensor in RAM",
        ),
        pytest.param(
            "compute conv; free x; compute relu; compute linear; compute grad; free y; free r;"
            "compute update; compute update",
            8,
            "op 'update' is not recomputable but was computed before",
            id="recomputes what must not be",
        ),
        pytest.param(
            "compute conv; free x; compute relu; compute linear; free w; compute grad; free y;"
            "free r; free g",
            9,
            "op 'update' is never computed",
            id="leaves an op out",
        ),
        pytest.param("", 0, "op 'conv' is never computed", id="does nothing"),
        pytest.param(
            "compute conv; free x; compute relu; compute linear; compute grad; free y; free r;"
            "compute update",
            8,
            "'g' is still in RAM though nothing needs it",
            id="leaves a dead tensor",
        ),
        pytest.param(
            "compute conv; free x; compute relu; compute linear; compute grad; free y; free r;"
            "compute update; free g; free w1",
            10,
            "'w1' must persist in RAM but is not there",
            id="loses what must persist in RAM",
        ),
    ],
)
def test_wrong_schedule_is_refused_with_action_and_reason(
    text: str, action: int, reason: str
) -> None:
    refused = _refused(two_layers(), text)
    assert (refused.action, refused.reason) == (action, reason)
    assert str(refused) == f"action {action}: {reason}"


def test_stored_tensor_without_page_in_cost_cannot_be_paged_in() -> None:
    problem = graph(
        [op("make", "", "a"), op("use", "a", "b")],
        [tensor("a", 4, page_out=(1.0, 1.0)), tensor("b", 4)],
    )
    refused = _refused(problem, "compute make; page_out a; free a; page_in a")
    assert (refused.action, refused.reason) == (3, "pages in 'a', which has no page-in cost")


def test_tensor_that_persists_in_storage_needs_a_copy_there() -> None:
    problem = graph([op("make", "", "a")], [tensor("a", 4, persist="storage", page_out=(1.0, 1.0))])
    refused = _refused(problem, "compute make; free a")
    expected = "'a' must persist in storage but has no valid copy there"
    assert (refused.action, refused.reason) == (2, expected)
    assert replay(problem, actions("compute make; page_out a; free a")).energy_j == 2.0


# --- budgets --------------------------------------------------------------------------------------


def test_schedule_may_use_every_byte_of_its_budget_and_no_more() -> None:
    assert verify(two_layers(), _KEEP, Budget(ram_bytes=25)).peak_bytes == 25
    with pytest.raises(RefereeError, match="25 bytes in RAM, the budget is 24") as refused:
        verify(two_layers(), _KEEP, Budget(ram_bytes=24))
    assert refused.value.action == 0


def test_workspace_counts_against_the_budget() -> None:
    problem = graph([op("only", "", "a", workspace_bytes=7)], [tensor("a", 4)])
    text = "compute only; free a"
    assert verify(problem, actions(text), Budget(ram_bytes=11)).peak_bytes == 11
    assert _refused(problem, text, Budget(ram_bytes=10)).action == 0


def test_bytes_overwritten_in_place_count_once() -> None:
    ops = [op("make", "", "a"), op("over", "a", "b", in_place={"b": "a"})]
    problem = graph(ops, [tensor("a", 4), tensor("b", 4)])
    result = verify(problem, actions("compute make; compute over; free b"), Budget(ram_bytes=4))
    assert result.peak_bytes == 4


def test_a_schedule_may_end_at_its_deadline_and_not_later() -> None:
    assert verify(two_layers(), _KEEP, Budget(ram_bytes=25, deadline_s=7.5)).time_s == 7.5
    with pytest.raises(RefereeError, match=r"takes 7\.5 s, the deadline is 7\.49 s") as refused:
        verify(two_layers(), _KEEP, Budget(ram_bytes=25, deadline_s=7.49))
    assert refused.value.action == len(_KEEP)


def test_paging_counts_against_the_deadline() -> None:
    budget = Budget(ram_bytes=25, deadline_s=8.25)
    assert verify(two_layers(), _PAGED, budget).time_s == 8.25
    with pytest.raises(RefereeError, match="deadline"):
        verify(two_layers(), _PAGED, budget.model_copy(update={"deadline_s": 8.0}))


def test_paging_is_refused_if_the_budget_excludes_it() -> None:
    with pytest.raises(RefereeError, match="pages, which this budget excludes") as refused:
        verify(two_layers(), _PAGED, Budget(ram_bytes=25, paging=False))
    assert _PAGED[refused.value.action] == PageOut(tensor="r")


def test_budget_without_paging_permits_transfers_of_home_and_persistence() -> None:
    problem = graph(
        [op("update", "w", "w1", in_place={"w1": "w"})],
        [
            tensor("w", 4, home="storage", page_in=(1.0, 1.0)),
            tensor("w1", 4, persist="storage", page_out=(1.0, 1.0), page_in=(1.0, 1.0)),
        ],
    )
    budget = Budget(ram_bytes=4, paging=False)
    necessary = "page_in w; compute update; page_out w1; free w1"
    assert verify(problem, actions(necessary), budget).energy_j == 3.0
    # Paging in a tensor that only had to be stored is optional.
    refused = _refused(problem, f"{necessary}; page_in w1; free w1", budget)
    assert (refused.action, refused.reason) == (4, "pages, which this budget excludes")


def test_recomputing_is_refused_if_the_budget_excludes_it() -> None:
    problem = graph(
        [op("make", "", "a"), op("use", "a", "b"), op("last", "a b", "c")],
        [tensor("a", 4), tensor("b", 4), tensor("c", 4)],
    )
    text = "compute make; compute use; free a; compute make; compute last; free a; free b; free c"
    verify(problem, actions(text), Budget(ram_bytes=12))
    refused = _refused(problem, text, Budget(ram_bytes=12, rematerialization=False))
    assert (refused.action, refused.reason) == (3, "recomputes, which this budget excludes")


# --- laws -----------------------------------------------------------------------------------------


@given(data=st.data(), problem=small_graphs())
@settings(max_examples=60, deadline=None, derandomize=True)
def test_valid_actions_stay_valid_with_frees_added(
    data: st.DataObject, problem: CostedGraph
) -> None:
    actions = data.draw(action_lists(problem))
    schedule = with_frees(problem, actions)
    result = replay(problem, schedule)
    assert [action for action in schedule if not isinstance(action, Free)] == actions
    assert result.energy_j == pytest.approx(sum(_energy_j(problem, action) for action in actions))
    assert result.time_s == pytest.approx(sum(_time_s(problem, action) for action in actions))
    _assert_memory_is_what_was_made_and_not_freed(problem, result)


@pytest.mark.slow
@given(data=st.data(), problem=small_graphs())
@settings(max_examples=60, deadline=None, derandomize=True)
def test_free_at_any_other_position_is_refused(data: st.DataObject, problem: CostedGraph) -> None:
    schedule = list(with_frees(problem, data.draw(action_lists(problem))))
    frees = [index for index, action in enumerate(schedule) if isinstance(action, Free)]
    if not frees:
        return
    index = data.draw(st.sampled_from(frees))
    before, after = _actions_around(schedule, index)
    freed = schedule.pop(index)
    for place in range(len(schedule) + 1):
        moved = [*schedule[:place], freed, *schedule[place:]]
        if before < place <= after:
            replay(problem, moved)
        else:
            with pytest.raises(RefereeError):
                replay(problem, moved)
    with pytest.raises(RefereeError):
        replay(problem, schedule)


@given(problem=small_graphs())
@settings(max_examples=60, deadline=None, derandomize=True)
def test_keeping_everything_costs_all_ops_and_forced_transfers(problem: CostedGraph) -> None:
    schedule = keep_everything(problem)
    moved_j = sum(_energy_j(problem, action) for action in _forced_paging(problem))
    computed_j = sum(op.energy_j for op in problem.ops)
    assert replay(problem, schedule).energy_j == pytest.approx(computed_j + moved_j)
    peak = replay(problem, schedule).peak_bytes
    verify(problem, schedule, Budget(ram_bytes=peak, paging=False, rematerialization=False))


@given(problem=small_graphs(), covers=st.sampled_from(["all", "activations"]))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_no_schedule_needs_less_than_the_least_ram(problem: CostedGraph, covers: Coverage) -> None:
    least, _ = least_ram_bytes(problem, covers)
    paging = page_everything(Problem(problem, Budget(ram_bytes=0, covers=covers)))
    keeping = replay(problem, keep_everything(problem), covers)
    assert keeping.peak_bytes >= replay(problem, paging, covers).peak_bytes >= least


@pytest.mark.parametrize("overwritten", [False, True])
@pytest.mark.parametrize("page_in", [None, (1.0, 1.0)])
@pytest.mark.parametrize("paging", [False, True])
def test_paging_everything_frees_what_must_persist_and_is_read_no_more(
    overwritten: bool, page_in: tuple[float, float] | None, paging: bool
) -> None:
    """``w`` has 10 bytes and leaves RAM before the last op, which takes 12."""
    reads = "x w" if overwritten else "x"
    problem = graph(
        [
            op("f", reads, "a", in_place={"a": "w"} if overwritten else {}),
            op("g", "a", "b"),
            op("h", "b", "c"),
        ],
        [
            tensor("x", 1, home="ram"),
            tensor("w", 10, persist="storage", page_out=(1.0, 1.0), page_in=page_in),
            tensor("a", 10 if overwritten else 5),
            tensor("b", 1),
            tensor("c", 11),
        ],
    )
    budget = Budget(ram_bytes=12, paging=paging)
    paged = page_everything(Problem(problem, budget))
    assert verify(problem, paged, budget).energy_j == 4.0


def _energy_j(problem: CostedGraph, action: Action) -> float:
    return _cost(problem, action)[1]


def _time_s(problem: CostedGraph, action: Action) -> float:
    return _cost(problem, action)[0]


def _cost(problem: CostedGraph, action: Action) -> tuple[float, float]:
    match action:
        case Compute():
            done = next(op for op in problem.ops if op.name == action.op)
            return done.time_s, done.energy_j
        case PageIn() | PageOut():
            moved = problem.tensor[action.tensor]
            cost = moved.page_in if isinstance(action, PageIn) else moved.page_out
            assert cost is not None
            return cost.time_s, cost.energy_j
    return 0.0, 0.0


def _forced_paging(problem: CostedGraph) -> list[Action]:
    read = {name for op in problem.ops for name in op.reads}
    page_ins: list[Action] = [
        PageIn(tensor=t.name)
        for t in problem.tensors
        if t.home == "storage" and (t.name in read or t.persist == "ram")
    ]
    page_outs: list[Action] = [
        PageOut(tensor=t.name)
        for t in problem.tensors
        if t.persist == "storage" and t.home != "storage"
    ]
    return page_ins + page_outs


def _assert_memory_is_what_was_made_and_not_freed(problem: CostedGraph, result: Replay) -> None:
    """Compare RAM contents by tensor names; the referee counts bytes."""
    ops = {op.name: op for op in problem.ops}
    resident = {
        t.name for t in problem.tensors if t.name not in problem.producer and t.home != "storage"
    }
    for moment in result.moments:
        workspace = shared = 0
        match moment.action:
            case Compute():
                done = ops[moment.action.op]
                workspace = done.workspace_bytes
                shared = sum(
                    min(problem.tensor[w].bytes, problem.tensor[r].bytes)
                    for w, r in done.in_place.items()
                )
                resident |= set(done.writes)
            case PageIn():
                resident.add(moment.action.tensor)
        assert moment.bytes_during == _bytes(problem, resident) + workspace - shared
        match moment.action:
            case Compute():
                resident -= set(ops[moment.action.op].in_place.values())
            case Free():
                resident.discard(moment.action.tensor)
        assert moment.bytes_after == _bytes(problem, resident)
    assert resident == {t.name for t in problem.tensors if t.persist == "ram"}
    assert result.peak_bytes == max(m.bytes_during for m in result.moments)


def _bytes(problem: CostedGraph, names: set[str]) -> int:
    return sum(problem.tensor[name].bytes for name in names)


def _actions_around(schedule: list[Action], index: int) -> tuple[int, int]:
    """Indices, without the free action at ``index``, of the nearest actions that are no frees.

    They are -1 and the length of the schedule where there is none.
    """
    actions = [i for i, action in enumerate(schedule) if not isinstance(action, Free)]
    before = max((i for i in actions if i < index), default=-1)
    after = min((i for i in actions if i > index), default=len(schedule))
    return before, after - 1


@pytest.mark.parametrize("kind", [RefereeError, Late])
def test_referee_error_survives_pickling(kind: type[RefereeError]) -> None:
    copy = pickle.loads(pickle.dumps(kind(3, "it is too late")))
    assert (type(copy), copy.action, copy.reason, str(copy)) == (
        kind,
        3,
        "it is too late",
        "action 3: it is too late",
    )
