"""An engine that takes its time for second proofs: ``python -m tests.support.patient_engine``.

An optimum that took long is not proven again, and a second proof may take so long only. Both happen
to small programs on a busy computer.
"""

from __future__ import annotations

from devices.program import module_process
from solver.engines import worker

_AMPLE_S = 600.0


def instead_of_worker(_module: str, *arguments: str) -> tuple[list[str], dict[str, str]]:
    """The process of an engine that is patient."""
    return module_process(__name__, *arguments)


if __name__ == "__main__":
    worker._LONGEST_PROVEN_TWICE_S = worker._LEAST_SECOND_PROOF_S = _AMPLE_S
    worker.main()
