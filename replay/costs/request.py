"""What ``tune`` is asked, and the record of it beside its rounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from devices.documents.document import StrictModel, dump_json, read_json, write_atomically
from devices.errors import InputError
from devices.profile import ProfiledNetwork
from networks.kinds import Place
from solver.problem.schedule import Budget

if TYPE_CHECKING:
    from pathlib import Path

    from devices.description import DeviceDescription
    from networks.training.step import TrainingStep
    from solver.options import SolverOptions

ANOTHER_DIRECTORY = "remove that directory, or name another one with --out"
"""Remedy where the rounds in a directory answer something else."""

_REQUEST = "request.json"


@dataclass(frozen=True)
class Request:
    """What to tune: a training step on a board under a budget, in at most ``rounds`` rounds.

    Attributes:
        description: the board.
        network: the network of ``step``, as a profile states it.
        step: its training step.
        budget: limits of the schedules.
        solver: options of each search.
        rounds: most rounds.
        steps: steps of each run.
        storage_budget_bytes: most bytes that watching the step, before the first round, may write
            to storage.
    """

    description: DeviceDescription
    network: ProfiledNetwork
    step: TrainingStep
    budget: Budget
    solver: SolverOptions
    rounds: int
    steps: int
    storage_budget_bytes: int


class StoredRequest(StrictModel):
    """What the rounds in a directory answer (``tune-request/1``).

    ``model_sha256`` is that of the network's file; absent for a built-in network, and where an
    earlier release has kept the request.
    """

    schema_: Annotated[Literal["tune-request/1"], Field(alias="schema")] = "tune-request/1"
    network: ProfiledNetwork
    parameters_in: Place
    budget: Budget
    model_sha256: str | None = None

    @classmethod
    def of(cls, request: Request) -> StoredRequest:
        """The part of a request that decides on its answer."""
        return cls(
            network=request.network,
            parameters_in=request.step.parameters_in,
            budget=request.budget,
            model_sha256=None if request.step.file is None else request.step.file.sha256,
        )

    def differences(self, other: StoredRequest) -> list[str]:
        """Words for each figure that another request states differently."""
        own, others = self._figures, other._figures
        if self.model_sha256 is not None:
            own["model_sha256"], others["model_sha256"] = self.model_sha256, other.model_sha256
        return [
            f"{name} was {own.get(name, 'none')} and is {others.get(name, 'none')}"
            for name in {**own, **others}
            if own.get(name) != others.get(name)
        ]

    @property
    def _figures(self) -> dict[str, object]:
        network, budget = (
            part.model_dump(mode="json", exclude_none=True) for part in (self.network, self.budget)
        )
        return {**network, "parameters_in": self.parameters_in, **budget}


def keep_request(directory: Path, request: Request) -> None:
    """Record in a directory, which is made, what its rounds are to answer."""
    directory.mkdir(parents=True, exist_ok=True)
    write_atomically(directory / _REQUEST, dump_json(StoredRequest.of(request)))


def require_same_request(directory: Path, request: Request) -> None:
    """Check that the rounds in a directory answer this request.

    Raises:
        InputError: they answer another one, or it is not known which.
    """
    file = directory / _REQUEST
    if not file.exists():
        raise InputError(
            f"{directory}: was begun by an earlier release, which did not keep what was asked",
            remedy=ANOTHER_DIRECTORY,
        )
    if different := read_json(file, StoredRequest).differences(StoredRequest.of(request)):
        raise InputError(
            f"{directory}: was begun for another request: {'; '.join(different)}",
            remedy=ANOTHER_DIRECTORY,
        )
