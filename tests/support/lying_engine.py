"""An engine that lies or crashes: ``python -m tests.support.lying_engine highs FD``.

It imitates faults that presolve has had, and is honest without it. The environment variable ``LIE``
names the lie: ``infeasible`` calls every program infeasible, ``optimal`` calls the first solution
optimal, ``crash`` ends the process instead of solving an integer program.
"""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from typing import Any

from devices.program import module_process
from solver.engines import worker
from solver.engines.messages import Finished, Run

VARIABLE = "LIE"


class _Liar(worker._Highs):
    def minimise(self, run: Run, report: worker._Reporter) -> Finished:
        if os.environ[VARIABLE] == "crash" and not run.relax:
            os.kill(os.getpid(), signal.SIGSEGV)
        self._lies = run.presolve
        if self._lies:
            run = replace(run, absolute_gap=1e9)
        return super().minimise(run, report)

    def _proof(self, status: Any) -> worker._Optimum | Finished:
        proof = super()._proof(status)
        if not self._lies:
            return proof
        if os.environ[VARIABLE] == "infeasible":
            return Finished("infeasible")
        return proof if isinstance(proof, Finished) else replace(proof, bound=proof.objective)


def instead_of_worker(module: str, name: str, *arguments: str) -> tuple[list[str], dict[str, str]]:
    """The process of an engine, in which HiGHS is the liar."""
    return module_process(__name__ if name == "highs" else module, name, *arguments)


if __name__ == "__main__":
    worker._ENGINES["highs"] = _Liar
    worker._SMALL_COLUMNS = -1  # a large program is not proven twice
    worker.main()
