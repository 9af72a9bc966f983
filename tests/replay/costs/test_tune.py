"""Rounds of tuning: which one is the best, which one ends them, and what they answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from inspect import signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from devices.description import load_description
from devices.documents.document import dump_yaml, read_json
from devices.errors import (
    Infeasible,
    InputError,
    JoulewrightError,
    NoScheduleFound,
    OrdersExhausted,
    RequestRefused,
)
from devices.operation import OpSpec
from devices.profile import BoardIdentity, EnergySource, ProfiledNetwork
from networks.models import build_model
from networks.training.step import NetworkFile
from replay.board_ram import BoardRam
from replay.costs.request import Request, StoredRequest, keep_request
from replay.costs.tune import Round, Tuned, tune
from replay.costs.watch import SITTINGS, watch_step
from replay.directory import StoredRun
from replay.expectation import expected_step
from solver.constructed import keep_everything
from solver.options import SolverOptions
from solver.problem.graph import CostedGraph
from solver.problem.schedule import Budget, Schedule
from tests.support.graphs.profiles import made_up_profile
from tests.support.onboard.replays import measured_step, paged_chain, report_of

GRAPH, SCHEDULE = paged_chain()
EXPECTED = expected_step(GRAPH, SCHEDULE)
STEP_S = EXPECTED.time_s.median
PROFILE = made_up_profile([OpSpec.of("relu.forward", elements=64)])


def within(deadline_s: float | None) -> Schedule:
    budget = SCHEDULE.budget.model_copy(update={"deadline_s": deadline_s})
    return SCHEDULE.model_copy(update={"budget": budget})


def a_round(
    number: int,
    deadline_s: float | None,
    *,
    slower: float = 1.0,
    joules: float | None,
    source: EnergySource = "measured",
) -> Round:
    """A round whose step took ``slower`` times its predicted time."""
    step = measured_step(EXPECTED, factor=lambda _: slower)
    report = report_of(GRAPH, within(deadline_s), [replace(step, energy_j=joules)])
    report = report.model_copy(update={"measured_energy_source": source})
    run = StoredRun(Path(f"round-{number}"), report, within(deadline_s), GRAPH)
    return Round(number, run, PROFILE)


def test_the_best_round_took_the_least_energy() -> None:
    rounds = (a_round(1, None, joules=3.0), a_round(2, None, slower=2.0, joules=2.0))
    assert Tuned(rounds, converged=True).best.number == 2


def test_a_round_without_joules_is_not_the_best_one_because_its_seconds_are_fewer() -> None:
    joules = 100 * STEP_S
    rounds = (
        a_round(1, None, joules=1.1 * joules),
        a_round(2, None, joules=None),
        a_round(3, None, joules=joules),
    )
    assert Tuned(rounds, converged=True).best.number == 3


def test_estimated_joules_do_not_compete_with_metered_ones() -> None:
    rounds = (a_round(1, None, joules=2.0, source="estimated"), a_round(2, None, joules=3.0))
    tuned = Tuned(rounds, converged=True)
    assert (tuned.best.number, dict(tuned.compared_j)) == (2, {2: 3.0})


def test_where_no_round_has_joules_the_best_one_took_the_least_time() -> None:
    rounds = (a_round(1, None, slower=2.0, joules=None), a_round(2, None, joules=None))
    assert Tuned(rounds, converged=True).best.number == 2


def test_the_best_round_kept_the_deadline() -> None:
    deadline_s = 1.5 * STEP_S
    late, in_time = (
        a_round(1, deadline_s, slower=2.0, joules=2.0),
        a_round(2, deadline_s, joules=3.0),
    )
    assert (late.kept_deadline, in_time.kept_deadline) == (False, True)
    assert Tuned((late, in_time), converged=True).best.number == 2


def test_where_none_kept_the_deadline_the_best_round_was_nearest_to_it() -> None:
    later = a_round(1, STEP_S, slower=2.0, joules=2.0)
    nearer = a_round(2, STEP_S, slower=1.2, joules=3.0)
    assert Tuned((later, nearer), converged=False).best.number == 2


def costlier(factor: float) -> CostedGraph:
    """The graph with corrected costs: each op takes ``factor`` of its time and energy."""
    ops = tuple(
        op.model_copy(
            update={
                "time_s": factor * op.time_s,
                "energy_j": factor * op.energy_j,
                "time_s_interval": None,
                "energy_j_interval": None,
            }
        )
        for op in GRAPH.ops
    )
    return CostedGraph(name=GRAPH.name, ops=ops, tensors=GRAPH.tensors)


@pytest.mark.parametrize(("factor", "ends"), [(1.0, True), (1.01, False)])
def test_rounds_go_on_while_the_last_schedule_misses_its_deadline(
    factor: float, ends: bool
) -> None:
    """Under the corrected costs, the same schedule is too late, whatever else is dearer."""
    last = a_round(1, STEP_S * 1.001, joules=3.0)
    assert last.is_as_good_as(costlier(factor), SCHEDULE) == ends


def test_rounds_go_on_while_the_last_one_took_longer_than_predicted() -> None:
    assert not a_round(1, None, slower=2.0, joules=3.0).is_as_good_as(GRAPH, SCHEDULE)


def test_an_error_of_the_power_that_all_ops_share_does_not_end_the_rounds() -> None:
    """It moves the joules of both schedules alike, and hides no difference between them."""
    cheaper = SCHEDULE.model_copy(update={"actions": keep_everything(GRAPH)})
    share = 1.05 * (EXPECTED.energy_j.median / expected_step(GRAPH, cheaper).energy_j.median - 1)
    ops = tuple(
        op.model_copy(
            update={"energy_j_interval": ((1 - share) * op.energy_j, (1 + share) * op.energy_j)}
        )
        for op in GRAPH.ops
    )
    graph = CostedGraph(
        name=GRAPH.name,
        ops=ops,
        tensors=GRAPH.tensors,
        error_correlation=0.0,
        energy_error_correlation=1.0,
    )
    assert expected_step(graph, cheaper).energy_j.high > EXPECTED.energy_j.median
    assert not a_round(1, None, joules=3.0).is_as_good_as(graph, cheaper)
    assert a_round(1, None, joules=3.0).is_as_good_as(graph, SCHEDULE)


def request(**changes: Any) -> Request:
    asked = Request(
        description=load_description("local"),
        network=ProfiledNetwork(model="digits", batch=1, optimizer="sgd"),
        step=build_model("digits", 1, "sgd", "ram"),
        budget=Budget(ram_bytes=65536),
        solver=SolverOptions(time_limit_s=1.0),
        rounds=2,
        steps=3,
        storage_budget_bytes=1 << 20,
    )
    return replace(asked, **changes)


def test_a_profile_of_no_kernels_is_refused_before_a_schedule_to_watch_is_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def search(*_: object) -> None:
        raise AssertionError("schedules were searched")

    monkeypatch.setattr("replay.costs.watch.ways_to_run", search)
    with pytest.raises(RequestRefused, match="does not say which kernels were measured"):
        tune(request(), PROFILE, tmp_path / "tuned", lambda _: None, lambda _: None)


def begun(directory: Path, first: Request | None = None) -> Callable[[Request], Tuned]:
    """A directory in which rounds were begun; the function tunes there."""
    keep_request(directory, first or request())
    (directory / "start.yaml").write_text(dump_yaml(PROFILE))
    return lambda asked: tune(asked, PROFILE, directory, lambda _: None, lambda _: None)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"budget": Budget(ram_bytes=65536, deadline_s=0.5)}, "deadline_s was none and is 0.5"),
        ({"budget": Budget(ram_bytes=65536, paging=False)}, "paging was True and is False"),
        ({"step": build_model("digits", 1, "sgd", "storage")}, "parameters_in was ram"),
        (
            {"network": ProfiledNetwork(model="digits", batch=1, optimizer="adam")},
            "optimizer was sgd and is adam",
        ),
    ],
)
def test_rounds_of_another_request_are_not_taken_for_an_answer(
    tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError, match=words) as error:
        begun(tmp_path / "tuned")(request(**changes))
    assert "--out" in (error.value.remedy or "")


def test_rounds_of_an_earlier_version_of_a_file_are_not_taken_for_an_answer(
    tmp_path: Path,
) -> None:
    step = request().step

    def of(sha256: str) -> Request:
        return request(
            step=replace(step, file=NetworkFile(Path("net.onnx"), sha256, {}, {}, (), {}))
        )

    resume = begun(tmp_path, of("a" * 64))
    with pytest.raises(InputError, match=r"model_sha256 was a{64} and is b{64}"):
        resume(of("b" * 64))
    # An earlier release did not keep the sum.
    kept = read_json(tmp_path / "request.json", StoredRequest)
    older = kept.model_copy(update={"model_sha256": None})
    assert older.differences(StoredRequest.of(of("b" * 64))) == []


def test_rounds_of_an_unknown_request_are_refused(tmp_path: Path) -> None:
    resume = begun(tmp_path / "tuned")
    (tmp_path / "tuned" / "request.json").unlink()
    with pytest.raises(InputError, match="earlier release"):
        resume(request())


def test_a_schedule_whose_search_was_interrupted_is_neither_run_nor_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rounds end there as with Ctrl-C at any other moment, and are settled by nothing."""

    def interrupted(*_: object, **__: object) -> Schedule:
        return SCHEDULE.model_copy(update={"ended_by": "interrupted"})

    def run(*_: object) -> Round:
        raise AssertionError("the schedule was run")

    monkeypatch.setattr(
        "solver.costing.costing.cost_graph", lambda *_: SimpleNamespace(graph=GRAPH)
    )
    monkeypatch.setattr("solver.solving.solving.solve_graph", interrupted)
    monkeypatch.setattr(BoardRam, "of", lambda _: None)
    monkeypatch.setattr("replay.costs.tune._round", run)
    with pytest.raises(KeyboardInterrupt):
        begun(tmp_path / "tuned")(request())
    assert not (tmp_path / "tuned" / "best.json").exists()


def finished(directory: Path, number: int = 1, joules: float = 3.0) -> Round:
    """A round that ``begun`` finds in its directory."""
    own = a_round(number, None, joules=joules)
    run = replace(own.run, directory=directory / f"round-{number}")
    run.directory.mkdir()
    (run.directory / "corrected.yaml").write_text(dump_yaml(PROFILE))
    return replace(own, run=run)


@pytest.mark.parametrize(
    ("status", "error"),
    [("infeasible", Infeasible), ("exhausted", OrdersExhausted), ("no_solution", NoScheduleFound)],
)
def test_finished_rounds_remain_where_the_next_one_finds_no_schedule(
    status: str, error: type[JoulewrightError], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under the measured costs, no schedule may keep the deadline."""
    directory = tmp_path / "tuned"
    late = within(0.011).model_copy(update={"status": status, "actions": ()})
    resume = begun(directory)
    monkeypatch.setattr(
        "solver.costing.costing.cost_graph", lambda *_: SimpleNamespace(graph=GRAPH)
    )
    monkeypatch.setattr("solver.solving.solving.solve_graph", lambda *_, **__: late)
    monkeypatch.setattr(BoardRam, "of", lambda _: None)
    with pytest.raises(error, match=r"11 ms a step, with the costs of .*/start\.yaml; solve"):
        resume(request())
    first = finished(directory)
    monkeypatch.setattr("replay.costs.tune.StoredRun.read", lambda _: first.run)
    tuned = resume(request())
    assert not tuned.converged
    assert [each.number for each in tuned.rounds] == [first.number]
    assert isinstance(tuned.unsolved, error)
    assert f"--profile {first.corrected_file}" in str(tuned.unsolved)
    assert read_json(directory / "best.json", Schedule) == first.run.schedule


def test_a_call_that_asks_for_fewer_rounds_has_all_that_are_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "tuned"
    resume = begun(directory)
    runs = {
        each.run.directory: each.run for each in (finished(directory), finished(directory, 2, 1.0))
    }
    monkeypatch.setattr("replay.costs.tune.StoredRun.read", runs.__getitem__)
    monkeypatch.setattr("replay.costs.tune._solved", lambda *_: (GRAPH, SCHEDULE))
    tuned = resume(request(rounds=1))
    assert [each.number for each in tuned.rounds] == [1, 2]
    assert tuned.best.number == 2


@pytest.mark.parametrize("settles", [True, False])
def test_the_last_round_is_judged_by_a_search_of_which_nothing_is_run(
    settles: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a finished round says does not depend on how many rounds are allowed."""

    def run(*_: object) -> Round:
        raise AssertionError("another round was run")

    directory = tmp_path / "tuned"
    resume = begun(directory)
    first = finished(directory)
    cheaper = SCHEDULE.model_copy(update={"actions": keep_everything(GRAPH)})
    found = (GRAPH, SCHEDULE if settles else cheaper)
    monkeypatch.setattr("replay.costs.tune.StoredRun.read", lambda _: first.run)
    monkeypatch.setattr("replay.costs.tune._solved", lambda *_: found)
    monkeypatch.setattr("replay.costs.tune._round", run)
    tuned = resume(request(rounds=1))
    assert [each.number for each in tuned.rounds] == [1]
    assert tuned.converged == settles


def test_the_best_schedule_is_written_when_a_later_round_is_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    directory = tmp_path / "tuned"
    resume = begun(directory)
    first = finished(directory)
    monkeypatch.setattr("replay.costs.tune.StoredRun.read", lambda _: first.run)
    monkeypatch.setattr("replay.costs.tune._solved", interrupted)
    with pytest.raises(KeyboardInterrupt):
        resume(request())
    assert (directory / "best.json").exists()


def test_nothing_of_a_round_runs_on_another_board(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = PROFILE.board.model_copy(update={"serial": "of another board"})

    def connected(*_: object, require_board: Callable[[BoardIdentity], None]) -> None:
        require_board(other)
        pytest.fail("the other board would run the schedule")

    monkeypatch.setattr("replay.costs.tune._solved", lambda *_: (GRAPH, SCHEDULE))
    monkeypatch.setattr("replay.runs.planned_execution", lambda _: None)
    monkeypatch.setattr("replay.runs.written_bytes_a_step", lambda *_: 0)
    monkeypatch.setattr("replay.runs.training_on", lambda *_: None)
    monkeypatch.setattr("replay.runs.replay_schedule", connected)
    directory = tmp_path / "tuned"
    with pytest.raises(RequestRefused, match="costs of one board only"):
        begun(directory)(request())
    assert not list(directory.glob("round-*/*"))


def test_a_round_has_data_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It confirms nothing if it repeats a sitting from which its prediction is."""
    seeds: list[int] = []

    def training(_step: object, _samples: None, _steps: int, seed: int) -> None:
        seeds.append(seed)
        raise KeyboardInterrupt

    monkeypatch.setattr("replay.costs.tune._solved", lambda *_: (GRAPH, SCHEDULE))
    monkeypatch.setattr("replay.runs.training_on", training)
    directory = tmp_path / "tuned"
    resume = begun(directory)
    with pytest.raises(KeyboardInterrupt):
        resume(request())
    first = finished(directory)
    monkeypatch.setattr("replay.costs.tune.StoredRun.read", lambda _: first.run)
    monkeypatch.setattr("replay.costs.tune.Round.is_as_good_as", lambda *_: False)
    with pytest.raises(KeyboardInterrupt):
        resume(request())
    first_seed = signature(watch_step).parameters["first_seed"].default
    assert seeds[0] != seeds[1]
    assert not set(seeds) & set(range(first_seed, first_seed + 10 * SITTINGS))
