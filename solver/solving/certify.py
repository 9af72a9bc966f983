"""Second proof of what a search claims: by another engine, and without presolve.

It covers every claim that rests on a mixed-integer program: the bounds on energy, that no schedule
exists, the RAM that every schedule needs, and the bounds at drawn costs. The shortest deadline is
bounded by sums of costs or by a search of all schedules, which need no engine.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace

from solver.engines.proofs import Proof, SecondProof, Verdict, prove_again
from solver.options import EngineName, SolverOptions
from solver.problem.claims import Claim, Claims, Evidence
from solver.problem.schedule import Certificate
from solver.solving.outcome import Outcome
from solver.time_limit import TimeLimit

_GRAVEST_FIRST: tuple[Verdict, ...] = ("refuted", "undecided", "confirmed")


def certify(outcome: Outcome, options: SolverOptions, limit: TimeLimit) -> Outcome:
    """Prove again what an engine proved: the bounds, or that no schedule exists.

    A claim that the second engine refutes is an engine's fault. It is discarded, and with it every
    other claim of the first engine that is not confirmed.

    Args:
        outcome: What the search found and proved.
        options: Options of the search.
        limit: When to give up.

    Returns:
        The outcome with the certificate, the claims that remain, and a note on what was not
        confirmed.
    """
    proofs = _engines_proofs(outcome)
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
            " satisfies every row and contradicts it. The proof was discarded; solve again with the"
            f" other engine (--engine {second})"
        )
        outcome = _without_refuted(outcome, results)
    elif certificate.outcome == "undecided":
        reason = next(result.reason for result in results.values() if result.reason)
        note = f"not certified: {engine}, the second engine, {reason}"
    else:
        return replace(outcome, certificate=certificate)
    return replace(outcome, certificate=certificate, notes=(*outcome.notes, note))


def certify_smallest(
    claim: Claim, options: SolverOptions, limit: TimeLimit
) -> tuple[Claims, tuple[str, ...]]:
    """Prove again what RAM every schedule needs, if an engine proved it.

    Returns the claim, or none if it is not confirmed, and a note in that case.
    """
    if not isinstance(claim.by, Proof):
        return Claims((claim,)), ()
    second = prove_again(claim.by, _second_engine(options.engine), options.threads, limit.end)
    if second.verdict == "confirmed":
        return Claims((claim,)), ()
    why = second.reason or "found a solution that contradicts it"
    least_bytes = claim.budget.ram_bytes + 1
    return Claims(), (
        f"that every schedule needs {least_bytes} bytes of RAM is not certified and left out:"
        f" {second.engine}, the second engine, {why}",
    )


def _second_engine(first: EngineName) -> EngineName:
    return "cbc" if first == "highs" else "highs"


def _engines_proofs(outcome: Outcome) -> tuple[Proof, ...]:
    """The different proofs of engines that the stated claims of an outcome rest on."""
    claims = [outcome.stated]
    if outcome.actions is not None:
        claims.append(outcome.claims.finite.about(outcome.budget))
    return tuple(dict.fromkeys(claim.by for claim in claims if isinstance(claim.by, Proof)))


def _without_refuted(outcome: Outcome, results: dict[Proof, SecondProof]) -> Outcome:
    """The outcome without the claims of engines that are not confirmed."""

    def holds(by: Evidence) -> bool:
        if isinstance(by, Proof):
            return by in results and results[by].verdict == "confirmed"
        return True

    ending = outcome.ending if holds(outcome.stated.by) else "spent"
    return replace(outcome, ending=ending, claims=outcome.claims.resting_on(holds))
