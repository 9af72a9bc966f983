"""Engines in separate processes: their messages, and how they end."""

from __future__ import annotations

import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from devices.errors import EngineFailed
from solver.engines import processes
from solver.engines.engine import Engine
from solver.engines.messages import Bound, EngineMessage, Finished, Incumbent, Silence
from solver.engines.processes import kept_processes
from solver.engines.program import Program
from solver.engines.proofs import Proof, prove_again
from solver.options import EngineName
from tests.support import patient_engine
from tests.support.boards.processes import VARIABLE, marked, new_mark, wait_until
from tests.support.paths import ROOT

both_engines = pytest.mark.parametrize("name", ["highs", "cbc"])


def _messages(
    engine: Engine,
    program: Program,
    *,
    relax: bool = False,
    within_s: float = 60.0,
    threads: int = 1,
) -> list[EngineMessage]:
    messages = engine.minimise(
        program,
        absolute_gap=0.0,
        threads=threads,
        start=None,
        deadline=time.monotonic() + within_s,
        relax=relax,
    )
    return [message for message in messages if not isinstance(message, Silence)]


def _best(messages: list[EngineMessage]) -> Incumbent:
    return [message for message in messages if isinstance(message, Incumbent)][-1]


def _two_of_weight_two() -> Program:
    """Maximise 3 a + 2 b subject to 2 a + 2 b ≤ 3."""
    program = Program()
    a, b = program.column(cost=-3.0), program.column(cost=-2.0)
    program.row([(a, 2.0), (b, 2.0)], "<", 3.0)
    return program


def _market_split() -> Program:
    """Market split problem: six rows of fifty numbers, each to be halved as well as possible.

    Solutions are easy, the optimum is far beyond branch and bound (Cornuéjols and Dawande, IPCO
    1998).
    """
    chance = random.Random(4)
    program = Program()
    columns = [program.column() for _ in range(50)]
    for _ in range(6):
        numbers = [float(chance.randrange(1, 100)) for _ in columns]
        over = program.column(cost=1.0, upper=1e4, integer=False)
        under = program.column(cost=1.0, upper=1e4, integer=False)
        terms = [*zip(columns, numbers, strict=True), (over, -1.0), (under, 1.0)]
        program.row(terms, "=", sum(numbers) // 2)
    return program


@both_engines
def test_engine_reports_the_optimum_and_its_bound(name: EngineName) -> None:
    with Engine(name) as engine:
        messages = _messages(engine, _two_of_weight_two())
    assert _best(messages).objective == pytest.approx(-3.0)
    assert _best(messages).values == pytest.approx([1.0, 0.0])
    bounds = [message.objective for message in messages if isinstance(message, Bound)]
    assert bounds[-1] == pytest.approx(-3.0)
    assert messages[-1] == Finished("optimal")


@both_engines
def test_engine_reports_its_version(name: EngineName) -> None:
    with Engine(name) as engine:
        _messages(engine, _two_of_weight_two())
        version = engine.version
    assert version.startswith({"highs": "HiGHS 1.", "cbc": "CBC "}[name])


@both_engines
def test_relaxed_engine_reports_the_optimum_without_integrality(name: EngineName) -> None:
    with Engine(name) as engine:
        relaxed = _best(_messages(engine, _two_of_weight_two(), relax=True))
        assert relaxed.objective == pytest.approx(-4.0)
        assert relaxed.values == pytest.approx([1.0, 0.5])
        assert _best(_messages(engine, _two_of_weight_two())).objective == pytest.approx(-3.0)


@pytest.mark.slow
@both_engines
def test_a_program_grows_between_runs(name: EngineName) -> None:
    program = _two_of_weight_two()
    with Engine(name) as engine:
        assert _best(_messages(engine, program)).objective == pytest.approx(-3.0)
        program.row([(0, 1.0)], "<", 0.0)
        assert _best(_messages(engine, program)).objective == pytest.approx(-2.0)
        program.row([(program.column(cost=-5.0), 1.0), (1, 1.0)], "<", 1.0)
        assert _best(_messages(engine, program)).values == pytest.approx([0.0, 0.0, 1.0])
        program.row([(1, 1.0)], ">", 2.0)
        assert _messages(engine, program) == [Finished("infeasible")]


def test_highs_begins_with_the_start() -> None:
    program = _market_split()
    start = [float(k % 2) for k in range(50)]
    for row in program.rows:
        weighed = zip(row.coefficients[:50], start[:50], strict=True)
        excess = sum(c * x for c, x in weighed) - row.right_side
        start += [max(excess, 0.0), max(-excess, 0.0)]
    with Engine("highs") as engine:
        messages = engine.minimise(
            program, absolute_gap=0.0, threads=1, start=start, deadline=time.monotonic() + 60.0
        )
        first = next(message for message in messages if isinstance(message, Incumbent))
    assert first.objective == pytest.approx(program.objective(start))


@pytest.mark.slow
@both_engines
def test_incumbents_improve_and_never_fall_below_the_bound(
    name: EngineName,
) -> None:
    chance = random.Random(2)
    program = Program()
    columns = [program.column(cost=-chance.uniform(1, 9)) for _ in range(30)]
    for _ in range(6):
        program.row([(c, chance.uniform(1, 9)) for c in columns], "<", 40.0)
    with Engine(name) as engine:
        messages = _messages(engine, program)
    values = [message.objective for message in messages if isinstance(message, Incumbent)]
    bounds = [message.objective for message in messages if isinstance(message, Bound)]
    assert values == sorted(values, reverse=True)
    assert bounds == sorted(bounds)
    assert bounds[-1] == pytest.approx(values[-1])
    for message in messages:
        if isinstance(message, Incumbent):
            assert message.objective == pytest.approx(program.objective(message.values))


@pytest.mark.slow
@both_engines
def test_the_deadline_ends_a_run_in_the_middle(name: EngineName) -> None:
    began = time.monotonic()
    with Engine(name) as engine:
        messages = _messages(engine, _market_split(), within_s=1.0)
    assert messages[-1] == Finished("stopped")
    assert time.monotonic() - began < 15.0


@both_engines
def test_a_program_of_empty_rows_has_its_optimum(name: EngineName) -> None:
    program = Program()
    program.column(cost=2.0)
    program.row([], "<", 7.0)
    with Engine(name) as engine:
        assert _best(_messages(engine, program)).objective == pytest.approx(0.0)


@both_engines
def test_a_program_without_an_optimum_is_an_error(name: EngineName) -> None:
    program = Program()
    program.column(cost=-1.0, upper=float("inf"), integer=False)
    with Engine(name) as engine, pytest.raises(EngineFailed, match=f"{name}: .*UNBOUNDED"):
        _messages(engine, program)


@both_engines
def test_closing_the_engine_ends_its_process_during_a_run(
    name: EngineName, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = new_mark()
    monkeypatch.setenv(VARIABLE, mark)
    with Engine(name) as engine:
        _messages(engine, _market_split(), within_s=0.5)
        assert len(marked(mark)) == 1
    assert not marked(mark)


@both_engines
def test_killed_engine_is_an_error_that_names_the_signal(
    name: EngineName, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = new_mark()
    monkeypatch.setenv(VARIABLE, mark)
    with Engine(name) as engine:
        _messages(engine, _market_split(), within_s=0.5)
        (process,) = marked(mark)
        os.kill(process, signal.SIGKILL)
        with pytest.raises(EngineFailed, match=f"the {name} process was killed by SIGKILL"):
            _messages(engine, _market_split())


@pytest.mark.slow
@both_engines
def test_engine_ends_when_its_parent_is_killed(name: EngineName) -> None:
    driver = (
        "import sys, time\n"
        "from solver.engines.engine import Engine\n"
        "from tests.solver.test_engine import _market_split\n"
        "with Engine(sys.argv[1]) as engine:\n"
        "    run = engine.minimise(_market_split(), absolute_gap=0.0, threads=1, start=None,\n"
        "                          deadline=time.monotonic() + 600)\n"
        "    next(run)\n"
        "    print('running', flush=True)\n"
        "    for _ in run: pass\n"
    )
    mark = new_mark()
    with subprocess.Popen(
        [sys.executable, "-c", driver, name],
        cwd=ROOT,
        env={**os.environ, VARIABLE: mark},
        stdout=subprocess.PIPE,
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"running\n"
        assert len(marked(mark)) == 2
        parent.kill()
    wait_until(lambda: not marked(mark))


# --- false proofs ---------------------------------------------------------------------------------

# Cover 5 with weights 2, 3 and 4 at costs 3, 4 and 6: the least cost is 7. The first run claims
# what is false; the run without presolve finds a solution.
_LIAR = """
import json, sys
from solver.engines import worker
from solver.engines.messages import Bound, Finished, Growth, Run
from solver.engines.program import Program
from solver.engines.proofs import Proof, prove_again

program = Program()
columns = [program.column(cost=cost) for cost in (3.0, 4.0, 6.0)]
program.row(zip(columns, (2.0, 3.0, 4.0)), ">", 5.0)
growth = Growth(program.lower, program.upper, program.cost, program.integer, program.rows)
engine, messages = worker._Highs(), []
engine.grow(growth)
truth = engine._proof

def lie(status):
    engine._proof = truth
    truth(status)
    if sys.argv[1] == "infeasible":
        return Finished("infeasible")
    return worker._Optimum(10.0, 8.0, [0.0, 1.0, 1.0])

engine._proof = lie
report = worker._Reporter(messages.append, quiet_s=2.0)
finished = engine.minimise(Run(growth, False, 0.0, 1, None), report)
bounds = [message.objective for message in messages if isinstance(message, Bound)]
print(json.dumps([finished.outcome, finished.reason, bounds]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("claimed", ["infeasible", "a bound of 8"])
def test_false_proof_of_a_small_program_is_refuted(claimed: str) -> None:
    """In a process of its own, as an engine is: its library does not share one with others."""
    command = [sys.executable, "-c", _LIAR, claimed]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    outcome, reason, bounds = json.loads(ran.stdout)
    assert outcome == "optimal"
    assert "with presolve" in reason
    assert bounds == [pytest.approx(7.0)]


@pytest.mark.slow
@pytest.mark.parametrize("second", ["finds a solution", "does not end"])
def test_that_a_small_program_is_infeasible_counts_only_if_it_is_proven_twice(second: str) -> None:
    """The first proof takes longer than an optimum that is proven twice."""
    slow = "worker._LONGEST_PROVEN_TWICE_S = 0.0\n"
    lost = 'truth = lambda status: Finished("failed", "the engine ended")\n'
    script = _LIAR.replace("def lie", slow + (lost if second == "does not end" else "") + "def lie")
    command = [sys.executable, "-c", script, "infeasible"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    outcome, reason, bounds = json.loads(ran.stdout)
    assert "infeasible with presolve" in reason
    if second == "does not end":
        assert (outcome, bounds) == ("stopped", [])
    else:
        assert (outcome, bounds) == ("optimal", [pytest.approx(7.0)])


@dataclass(frozen=True)
class FaultOfHighs:
    """A program about which HiGHS 1.15.1 with presolve proves what is false.

    ``solution`` has the columns that are not 0, ``least`` its objective; ``fault`` is what the
    engine's process says of the first proof.
    """

    file: str
    solution: Mapping[int, float]
    least: float
    claimed: float | None
    fault: str

    @property
    def program(self) -> Program:
        return _read(ROOT / "tests" / "references" / self.file)


FAULTS = {
    "infeasible": FaultOfHighs(
        "highs-presolve-infeasible.lp",
        {3: 7.0, 4: 7.0},
        0.0,
        None,
        "called a program infeasible with presolve that has a solution",
    ),
    "suboptimal": FaultOfHighs(
        "highs-presolve-suboptimal.lp",
        {1: 1.0, 5: 1.0, 6: 1.0, 7: 1.0, 8: 1.0, 11: 1.0, 19: 13.0},
        1.6,
        2.0815,
        "proved a bound with presolve that a solution refutes",
    ),
}


_READER = """
import json, sys
import highspy

highs = highspy.Highs()
highs.setOptionValue("output_flag", False)
highs.readModel(sys.argv[1])
read = highs.getLp()
start, index, value = (list(part) for part in (
    read.a_matrix_.start_, read.a_matrix_.index_, read.a_matrix_.value_
))
print(json.dumps({
    "lower": list(read.col_lower_),
    "upper": list(read.col_upper_),
    "cost": list(read.col_cost_),
    "integer": [kind == highspy.HighsVarType.kInteger for kind in read.integrality_],
    "terms": [
        [index[k], column, value[k]]
        for column in range(read.num_col_)
        for k in range(start[column], start[column + 1])
    ],
    "rows": [[low == high, high] for low, high in zip(read.row_lower_, read.row_upper_)],
}))
"""


def _read(path: Path) -> Program:
    """The program of a file, as HiGHS reads it in a process of its own."""
    command = [sys.executable, "-c", _READER, str(path)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    read = json.loads(ran.stdout)
    program = Program(read["lower"], read["upper"], read["cost"], read["integer"])
    for number, (is_equality, right_side) in enumerate(read["rows"]):
        terms = [(column, value) for row, column, value in read["terms"] if row == number]
        program.row(terms, "=" if is_equality else "<", right_side)
    return program


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_a_false_proof_that_highs_has_made_is_caught(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "module_process", patient_engine.instead_of_worker)
    known = FAULTS[name]
    program = known.program
    solution = [known.solution.get(column, 0.0) for column in range(len(program.cost))]
    assert program.satisfied_by(solution)
    assert program.objective(solution) == pytest.approx(known.least)
    with Engine("highs") as engine:
        messages = _messages(engine, program, within_s=600.0)
        version, faults = engine.version, engine.faults
    assert _best(messages).objective == pytest.approx(known.least)
    bounds = [message.objective for message in messages if isinstance(message, Bound)]
    assert bounds[-1] == pytest.approx(known.least)
    assert isinstance(messages[-1], Finished)
    assert messages[-1].outcome == "optimal"
    if version == "HiGHS 1.15.1":
        assert faults == [known.fault]


@pytest.mark.slow
@both_engines
@pytest.mark.parametrize("fault", FAULTS)
def test_an_engine_without_presolve_refutes_the_false_proof(name: EngineName, fault: str) -> None:
    claim = Proof.of(FAULTS[fault].program, FAULTS[fault].claimed)
    assert prove_again(claim, name, threads=1, deadline=math.inf).verdict == "refuted"


# --- solutions ------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_a_solution_satisfies_rows_of_every_scale_up_to_rounding(scale: float) -> None:
    program = Program()
    a, b = program.column(), program.column(upper=5.0, integer=False)
    program.row([(a, 0.1 * scale), (b, 0.2 * scale)], "=", 0.3 * scale)
    assert program.satisfied_by([1.0, 1.0])
    assert program.satisfied_by([1.0 - 1e-7, 1.0])
    assert not program.satisfied_by([1.0, 1.0 + 1e-7])
    assert not program.satisfied_by([0.0, 1.5 + 1e-7])
    assert not program.satisfied_by([0.5, 1.25])
    assert program.satisfied_by([0.5, 1.25], relaxed=True)


# --- kept processes -------------------------------------------------------------------------------


def _is_zombie(process: int) -> bool:
    """Whether the process has ended with all of its threads, and its exit status waits."""
    files = Path(f"/proc/{process}")
    state = (files / "stat").read_text().rpartition(")")[2].split()[0]
    return state == "Z" and len(list((files / "task").iterdir())) == 1


@pytest.mark.slow
@both_engines
def test_a_kept_process_solves_the_next_program_too(
    name: EngineName, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It remembers nothing of the first one; a killed one is replaced, a busy one is ended."""
    mark = new_mark()
    monkeypatch.setenv(VARIABLE, mark)
    smaller = Program()
    smaller.column(cost=-1.0)
    with kept_processes():
        with Engine(name) as engine:
            assert _best(_messages(engine, _two_of_weight_two())).objective == -3.0
        first = marked(mark)
        with Engine(name) as engine:
            assert _best(_messages(engine, smaller)).objective == -1.0
        assert len(first) == 1
        assert marked(mark) == first
        with Engine(name) as engine:  # HiGHS has one number of threads a process
            best = _best(_messages(engine, _two_of_weight_two(), threads=2))
            assert best.objective == -3.0
        os.kill(*first, signal.SIGKILL)
        wait_until(lambda: all(map(_is_zombie, first)))
        with Engine(name) as engine:
            assert _best(_messages(engine, smaller)).objective == -1.0
        with Engine(name) as engine:
            _messages(engine, _market_split(), within_s=0.3)
        assert not marked(mark)
        with Engine(name) as engine:
            _messages(engine, smaller)
    assert not marked(mark)


@pytest.mark.slow
@both_engines
@pytest.mark.parametrize(("moment_s", "is_kept"), [(60.0, True), (0.0, False)])
def test_a_process_is_kept_if_its_run_ends_in_a_moment(
    name: EngineName, moment_s: float, is_kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search reads no further than to the result that it needs."""
    monkeypatch.setattr("solver.engines.engine._MOMENT_S", moment_s)
    mark = new_mark()
    monkeypatch.setenv(VARIABLE, mark)

    def searched() -> Iterator[EngineMessage]:
        with Engine(name) as engine:
            yield from engine.minimise(
                _two_of_weight_two(), absolute_gap=0.0, threads=1, start=None, deadline=math.inf
            )

    with kept_processes():
        messages = searched()
        assert any(isinstance(message, Incumbent) for message in messages)
        first = marked(mark)
        messages.close()
        assert marked(mark) == (first if is_kept else set())
    assert not marked(mark)
