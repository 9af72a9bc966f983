"""``solve --certify``: what a second engine proves again and refutes; engines that lie or crash."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import cli
from benchmarks.claims.problems import random_problem
from devices.errors import EngineFailed, InputError
from solver.engines import processes as engines
from solver.engines.program import Program
from solver.engines.proofs import Proof, prove_again
from solver.files.solved import read_solved, write_solved
from solver.options import EngineName, FormulationName, SolverOptions
from solver.problem.claims import Claims, needs_ram
from solver.problem.graph import CostedGraph
from solver.problem.problem import Problem
from solver.problem.schedule import Budget, Certificate
from solver.solving.auto.search import AutomaticSearch
from solver.solving.certify import certify, certify_smallest
from solver.solving.outcome import Outcome
from solver.solving.solving import solve_graph
from solver.time_limit import TimeLimit
from tests.support import lying_engine
from tests.support.documents import write_json
from tests.support.graphs.graph_examples import tight, training_chain, two_layers

both_engines = pytest.mark.parametrize("name", ["highs", "cbc"])


def cover() -> Program:
    """Cover 5 with weights 2, 3 and 4 at costs 3, 4 and 6: the least cost is 7."""
    program = Program()
    columns = [program.column(cost=cost) for cost in (3.0, 4.0, 6.0)]
    program.row(zip(columns, (2.0, 3.0, 4.0), strict=True), ">", 5.0)
    return program


# --- a single proof -------------------------------------------------------------------------------


@pytest.mark.slow
@both_engines
@pytest.mark.parametrize(
    ("objective", "verdict"),
    [(7.0, "confirmed"), (3.0, "confirmed"), (7.5, "refuted"), (None, "refuted")],
)
def test_a_proof_is_confirmed_or_refuted(
    name: EngineName, objective: float | None, verdict: str
) -> None:
    proof = Proof.of(cover(), objective)
    second = prove_again(proof, name, threads=1, deadline=math.inf)
    assert second.verdict == verdict
    assert second.engine.startswith({"highs": "HiGHS 1.", "cbc": "CBC "}[name])


@pytest.mark.slow
@pytest.mark.usefixtures("_kept_engines")
@both_engines
def test_a_proof_is_about_the_program_as_it_was(name: EngineName) -> None:
    """Rows that were added later are not valid for all schedules."""
    program = cover()
    proof = Proof.of(program, 8.0)
    program.row([(0, 1.0)], "<", 0.0)
    program.row([(program.column(), 1.0)], ">", 1.0)
    assert prove_again(proof, name, threads=1, deadline=math.inf).verdict == "refuted"
    infeasible = Program()
    infeasible.row([(infeasible.column(), 1.0)], ">", 2.0)
    proof = Proof.of(infeasible, None)
    assert prove_again(proof, name, threads=1, deadline=math.inf).verdict == "confirmed"


def test_a_proof_without_time_is_undecided() -> None:
    second = prove_again(Proof.of(cover(), 7.0), "cbc", threads=1, deadline=time.monotonic())
    assert (second.verdict, second.reason) == ("undecided", "did not end within the time limit")


def test_a_second_engine_that_fails_decides_nothing() -> None:
    program = Program()
    program.column(cost=-1.0, upper=math.inf, integer=False)
    second = prove_again(Proof.of(program, None), "highs", threads=1, deadline=math.inf)
    assert second.verdict == "undecided"
    assert "UNBOUNDED" in second.reason


# --- a solve --------------------------------------------------------------------------------------


def chain() -> tuple[CostedGraph, Budget]:
    """A problem whose greedy schedule is not the best one."""
    problem = training_chain(8)
    return problem, tight(problem, 0.5)


def without_start() -> tuple[CostedGraph, Budget]:
    """A problem that has schedules, but none that needs no search."""
    problem = random_problem(20932)
    return CostedGraph.model_validate(problem.graph), Budget.model_validate(problem.budget)


@pytest.mark.slow
@pytest.mark.usefixtures("_kept_engines")
@pytest.mark.parametrize("formulation", ["auto", "compact"])
@pytest.mark.parametrize("engine", ["highs", "cbc"])
def test_the_other_engine_confirms_a_bound(
    formulation: FormulationName, engine: EngineName
) -> None:
    options = SolverOptions(threads=1, formulation=formulation, engine=engine, gap=0.0)
    plain, certified = (solve_graph(*chain(), options, certified=asked) for asked in (False, True))
    assert plain.certificate is None
    assert certified.certificate is not None
    assert certified.certificate.outcome == "confirmed"
    assert (certified.certificate.engine or "").startswith("CBC" if engine == "highs" else "HiGHS")
    assert (certified.status, certified.energy_bound_j) == ("optimal", plain.energy_bound_j)


def test_the_other_engine_confirms_that_nothing_fits() -> None:
    problem = training_chain(5, seed=2)
    options = SolverOptions(threads=1, formulation="compact")
    schedule = solve_graph(problem, tight(problem, 0.2), options, with_advice=False, certified=True)
    assert schedule.status == "exhausted"
    assert schedule.certificate is not None
    assert schedule.certificate.outcome == "confirmed"


@pytest.mark.parametrize("ram_bytes", [5, 100])
def test_sums_of_costs_need_no_engine(ram_bytes: int) -> None:
    options = SolverOptions(threads=1)
    schedule = solve_graph(two_layers(), Budget(ram_bytes=ram_bytes), options, certified=True)
    assert schedule.status in {"infeasible", "optimal"}
    assert schedule.certificate == Certificate(outcome="no_engine")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lie", "problem", "believed", "left"),
    [
        ("optimal", chain, "optimal", "feasible"),
        ("infeasible", without_start, "exhausted", "no_solution"),
    ],
)
def test_a_lie_is_not_stated_as_proven(
    lie: str,
    problem: Callable[[], tuple[CostedGraph, Budget]],
    believed: str,
    left: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    costed, budget = problem()
    options = SolverOptions(threads=1, formulation="compact", gap=0.0)
    true = solve_graph(costed, budget, options)
    assert true.status == "optimal"
    monkeypatch.setattr(engines, "module_process", lying_engine.instead_of_worker)
    monkeypatch.setenv(lying_engine.VARIABLE, lie)
    assert solve_graph(costed, budget, options, with_advice=False).status == believed
    schedule = solve_graph(costed, budget, options, with_advice=False, certified=True)
    assert (schedule.status, schedule.ended_by) == (left, None)
    assert schedule.certificate is not None
    assert schedule.certificate.outcome == "refuted"
    assert "proved what is false" in schedule.notes[-1]
    assert not schedule.restrictions
    if schedule.actions:
        assert (schedule.energy_bound_j or 0.0) < (true.energy_bound_j or 0.0)
    write_solved(tmp_path / "left.json", costed, schedule)
    assert read_solved(tmp_path / "left.json") == (costed, schedule)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("formulation", "note"),
    [
        (
            "compact",
            "the engine called a program infeasible that has a solution; that proof is not used",
        ),
        (
            "auto",
            "the engine called a problem infeasible that has a schedule; its proofs were discarded",
        ),
    ],
)
def test_a_known_schedule_refutes_a_lie(
    formulation: FormulationName, note: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search is repeated without presolve, and says so."""
    options = SolverOptions(threads=1, formulation=formulation, gap=0.0)
    true = solve_graph(*chain(), options)
    monkeypatch.setattr(engines, "module_process", lying_engine.instead_of_worker)
    monkeypatch.setenv(lying_engine.VARIABLE, "infeasible")
    schedule = solve_graph(*chain(), options)
    assert (schedule.status, schedule.energy_j) == ("optimal", true.energy_j)
    assert schedule.energy_bound_j == pytest.approx(true.energy_bound_j)
    assert schedule.notes == (note,)


@pytest.mark.slow
def test_an_engine_that_crashes_loses_no_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    options = SolverOptions(threads=1, formulation="compact", gap=0.0)
    monkeypatch.setattr(engines, "module_process", lying_engine.instead_of_worker)
    monkeypatch.setenv(lying_engine.VARIABLE, "crash")
    schedule = solve_graph(*chain(), options)
    assert schedule.status == "feasible"
    assert schedule.notes == (
        "the highs process was killed by SIGSEGV; what was found and proven before is kept",
    )
    with pytest.raises(EngineFailed, match="killed by SIGSEGV"):
        solve_graph(*without_start(), options)


@pytest.fixture(scope="module")
def searched() -> tuple[SolverOptions, Outcome]:
    problem, options = Problem(*chain()), SolverOptions(threads=1)
    outcome = AutomaticSearch(problem, options, lambda _progress: None, math.inf).run(())
    assert isinstance(outcome.stated.by, Proof)
    return options, outcome


@pytest.mark.parametrize(
    ("ending", "limit", "said"),
    [
        ("proven", TimeLimit(0.0), "did not end within the time limit"),
        ("interrupted", TimeLimit(), "did not begin, since the search was interrupted"),
    ],
)
def test_a_second_proof_that_does_not_end_changes_no_claim(
    searched: tuple[SolverOptions, Outcome], ending: Any, limit: TimeLimit, said: str
) -> None:
    options, outcome = searched
    tried = certify(replace(outcome, ending=ending), options, limit)
    assert tried.certificate is not None
    assert tried.certificate.outcome == "undecided"
    assert tried.notes[-1] == f"not certified: cbc, the second engine, {said}"
    assert (tried.claims, tried.ending) == (outcome.claims, ending)


def test_a_constraint_program_has_no_second_engine() -> None:
    options = SolverOptions(formulation="retention")
    with pytest.raises(ValueError, match="retention"):
        solve_graph(*chain(), options, certified=True)


@pytest.mark.parametrize(("rows", "least_bytes"), [([], 7), ([(0, 1.0)], None)])
def test_the_ram_that_is_needed_is_left_out_unless_confirmed(
    rows: list[tuple[int, float]], least_bytes: int | None
) -> None:
    """An engine called a program infeasible: once because of a row, once although it is not."""
    program = Program()
    program.column()
    program.row(rows, ">", 0.5)
    budget = Budget(ram_bytes=100)
    claim = needs_ram(7, budget, Proof.of(program, None))
    kept, notes = certify_smallest(claim, SolverOptions(), TimeLimit())
    assert kept.least_ram_bytes(budget) == least_bytes
    assert bool(notes) == (least_bytes is None)
    summed = needs_ram(7, budget, "costs")
    assert certify_smallest(summed, SolverOptions(), TimeLimit()) == (Claims((summed,)), ())


# --- files and the command ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"certificate": Certificate(outcome="confirmed")}, "names no engine"),
        ({"certificate": Certificate(outcome="no_engine", engine="CBC")}, "names the engine CBC"),
        ({"certificate": Certificate(outcome="refuted", engine="CBC")}, "this was refuted"),
        (
            {
                "certificate": Certificate(outcome="confirmed", engine="CBC"),
                "status": "no_solution",
            },
            "it claims nothing",
        ),
    ],
)
def test_a_certificate_that_does_not_fit_is_refused(
    tmp_path: Path, changes: dict[str, object], said: str
) -> None:
    path = tmp_path / "none.json"
    infeasible = solve_graph(two_layers(), Budget(ram_bytes=5), SolverOptions(), certified=True)
    write_solved(path, two_layers(), infeasible)
    assert read_solved(path) == (two_layers(), infeasible)
    write_json(path, infeasible.model_copy(update=changes))
    with pytest.raises(InputError, match=said):
        read_solved(path)


@pytest.mark.slow
def test_the_command_prints_what_was_certified(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    costed, budget = chain()
    write_json(tmp_path / "graph.json", costed)
    command = ["solve", "--graph", str(tmp_path / "graph.json"), "--certify"]
    command += ["--ram-budget", str(budget.ram_bytes), "--results", str(tmp_path)]
    assert cli.main(command) == 0
    assert "\ncertified: CBC (" in capsys.readouterr().out
    assert cli.main([*command, "--formulation", "retention"]) == 2
    assert "--certify cannot be used with --formulation retention" in capsys.readouterr().err
