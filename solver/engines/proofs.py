"""``Proof``: a claim of an engine about a program, which another engine can prove again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Self, TypeAlias

from devices.errors import EngineFailed
from solver.engines.engine import Engine
from solver.engines.messages import Finished, Incumbent
from solver.engines.program import Program
from solver.options import EngineName

Verdict: TypeAlias = Literal["confirmed", "refuted", "undecided"]

# Difference of two bounds on an objective, relative, that the tolerances of engines explain.
_TOLERANCE = 1e-5


@dataclass(frozen=True, eq=False)
class Proof:
    """What an engine proved of a program, which may have grown since.

    Attributes:
        program: The program.
        columns: Number of its columns when this was proven.
        rows: Number of its rows then.
        objective: Proven lower bound on the objective; None if no solution exists.
    """

    program: Program
    columns: int
    rows: int
    objective: float | None

    @classmethod
    def of(cls, program: Program, objective: float | None) -> Self:
        """A proof about a program as it is now."""
        return cls(program, len(program.cost), len(program.rows), objective)

    def counterexamples(self) -> Program:
        """The program whose solutions contradict this proof.

        It is the program with a further row for its objective: less than the bound by more than
        tolerances explain.
        """
        whole = self.program
        columns = slice(self.columns)
        program = Program(
            whole.lower[columns],
            whole.upper[columns],
            whole.cost[columns],
            whole.integer[columns],
            whole.rows[: self.rows],
        )
        if self.objective is not None:
            slack = _TOLERANCE * (1.0 + abs(self.objective))
            program.row(enumerate(program.cost), "<", self.objective - slack)
        return program


@dataclass(frozen=True)
class SecondProof:
    """Result of proving a claim again.

    Attributes:
        verdict: ``confirmed``: the second engine proves that no solution contradicts the claim.
            ``refuted``: it found one, and the solution satisfies every row.
            ``undecided``: neither.
        engine: Name and version of the second engine.
        reason: Why it is undecided.
    """

    verdict: Verdict
    engine: str
    reason: str = ""


def prove_again(proof: Proof, engine: EngineName, threads: int, deadline: float) -> SecondProof:
    """Prove a claim with another engine, without presolve.

    Args:
        proof: The claim.
        engine: The second engine.
        threads: Number of threads.
        deadline: When to give up, on ``time.monotonic``.

    Returns:
        The verdict. A failure of the engine is a reason, not an error.
    """
    program = proof.counterexamples()
    version: str = engine
    try:
        with Engine(engine) as process:
            for message in process.minimise(
                program,
                absolute_gap=0.0,
                threads=threads,
                start=None,
                deadline=deadline,
                presolve=False,
            ):
                version = process.version
                match message:
                    case Incumbent() if program.satisfied_by(message.values):
                        return SecondProof("refuted", version)
                    case Finished(outcome="infeasible"):
                        return SecondProof("confirmed", version)
                    case Finished(outcome="optimal"):
                        reason = "found a solution that does not satisfy the program"
                        return SecondProof("undecided", version, reason)
    except EngineFailed as error:
        return SecondProof("undecided", version, f"failed: {error}")
    return SecondProof("undecided", version, "did not end within the time limit")
