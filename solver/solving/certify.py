"""Second proof of what a search claims: by another engine, and without presolve."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace

from solver.engines.proofs import Proof, SecondProof, Verdict, prove_again
from solver.options import EngineName, SolverOptions
from solver.problem.claims import EVERY_SCHEDULE
from solver.problem.problem import Problem
from solver.problem.schedule import Certificate
from solver.solving.outcome import Outcome
from solver.time_limit import TimeLimit

_GRAVEST_FIRST: tuple[Verdict, ...] = ("refuted", "undecided", "confirmed")


def certify(
    problem: Problem, outcome: Outcome, options: SolverOptions, limit: TimeLimit
) -> Outcome:
    """Prove again what an engine proved: the bounds, or that no schedule exists.

    A claim that the second engine refutes is an engine's fault. It is discarded, and with it every
    other claim of the first engine that is not confirmed.

    Args:
        problem: The problem.
        outcome: What the search found and proved.
        options: Options of the search.
        limit: When to give up.

    Returns:
        The outcome with the certificate, the claims that remain, and a note on what was not
        confirmed.
    """
    proofs = _proofs_of(outcome)
    if not proofs:
        return replace(outcome, certificate=Certificate(outcome="no_engine"))
    began = time.monotonic()
    second = _second_engine(options.engine)
    results: dict[Proof, SecondProof] = {}
    with suppress(KeyboardInterrupt):
        for number, proof in enumerate(() if outcome.ending == "interrupted" else proofs):
            until = limit.part(1 / (len(proofs) - number)).end
            results[proof] = prove_again(proof, second, options.threads, until)
    why = (
        "did not begin, since the search was interrupted"
        if outcome.ending == "interrupted"
        else "was interrupted"
    )
    for proof in proofs:
        results.setdefault(proof, SecondProof("undecided", second, why))
    verdicts = {result.verdict for result in results.values()}
    engine = max((result.engine for result in results.values()), key=len)
    certificate = Certificate(
        outcome=next(verdict for verdict in _GRAVEST_FIRST if verdict in verdicts),
        engine=engine,
        seconds=time.monotonic() - began,
    )
    if certificate.outcome == "refuted":
        note = (
            f"the engine {options.engine} proved what is false: {engine} found a solution that"
            " satisfies every row, within 1e-6, and contradicts it. The proof was discarded; solve"
            f" again with the other engine (--engine {second})"
        )
        outcome = _without_refuted(problem, outcome, results)
    elif certificate.outcome == "undecided":
        reason = next(result.reason for result in results.values() if result.reason)
        note = f"not certified: {engine}, the second engine, {reason}"
    else:
        return replace(outcome, certificate=certificate)
    return replace(outcome, certificate=certificate, notes=(*outcome.notes, note))


def _second_engine(first: EngineName) -> EngineName:
    return "cbc" if first == "highs" else "highs"


def _proofs_of(outcome: Outcome) -> tuple[Proof, ...]:
    """The different proofs of engines that the claims of an outcome rest on."""
    claims = [outcome.proof]
    if outcome.actions is not None:
        claims.append(outcome.any_order_proof)
    return tuple(dict.fromkeys(proof for proof in claims if proof is not None))


def _without_refuted(
    problem: Problem, outcome: Outcome, results: dict[Proof, SecondProof]
) -> Outcome:
    """The outcome without the claims that are not confirmed."""

    def holds(proof: Proof | None) -> bool:
        return proof is None or (proof in results and results[proof].verdict == "confirmed")

    if not holds(outcome.any_order_proof):
        least_j = problem.least_energy_j + problem.unavoidable_pages.energy_j
        outcome = replace(outcome, any_order_bound_j=least_j, any_order_proof=None)
    if holds(outcome.proof):
        return outcome
    return replace(
        outcome,
        ending="spent",
        bound_j=outcome.any_order_bound_j,
        covered=EVERY_SCHEDULE,
        proof=outcome.any_order_proof,
    )
