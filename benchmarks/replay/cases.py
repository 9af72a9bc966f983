"""Networks on a board: profiled, then scheduled for a share of their peak."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from devices.description import DeviceDescription
from devices.profile import DeviceProfile
from devices.quantities import Slices
from networks.kinds import Place
from networks.models import build_model, profiled_network
from networks.training import TrainingStep
from profiler.run.options import ProfileOptions
from profiler.run.run import profile_device
from replay.costs.context import with_step_costs
from replay.costs.watch import watch_step
from replay.lowering.lowering import unscheduled
from solver.constructed import keep_everything
from solver.costing.costing import cost_graph
from solver.options import SolverOptions
from solver.problem.graph import CostedGraph
from solver.problem.schedule import Action, Budget, Schedule
from solver.referee.referee import replay
from solver.solving.solving import solve_graph

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Network:
    """A model of the project with a batch size, its layers whole or in slices."""

    model: str
    batch: int
    slices: Slices | None = None

    def __str__(self) -> str:
        of_slices = "" if self.slices is None else f", slices of {self.slices}"
        return f"{self.model}, batch {self.batch}{of_slices}"

    def step(self, parameters_in: Place = "ram") -> TrainingStep:
        return build_model(self.model, self.batch, "sgd", parameters_in, slices=self.slices)


@dataclass(frozen=True)
class Cases:
    """What to run: every network under every share of its peak."""

    description: DeviceDescription
    networks: Sequence[Network]
    shares: Sequence[float]
    steps: int
    profiling: ProfileOptions
    limit_s: float


@dataclass(frozen=True)
class Problem:
    """A step under a budget. ``budget_bytes`` is a share of the unscheduled peak with parameters
    in RAM. Parameters are in storage if they alone exceed the budget."""

    step: TrainingStep
    graph: CostedGraph
    budget_bytes: int


@dataclass(frozen=True)
class Profiled:
    """A network and its profile."""

    network: Network
    profile: DeviceProfile

    @property
    def peak_bytes(self) -> int:
        return _peak_bytes(cost_graph(self.network.step(), self.profile).graph)

    def problem(self, share: float) -> Problem:
        budget_bytes = int(share * self.peak_bytes)
        step = self.network.step()
        if _resident_bytes(step) > budget_bytes:
            step = self.network.step("storage")
        return Problem(step, cost_graph(step, self.profile).graph, budget_bytes)


def profiled(
    description: DeviceDescription, network: Network, options: ProfileOptions, progress: Progress
) -> Profiled:
    """Profile a network on the board, by its operations and in its step.

    The files are deleted afterwards.
    """
    step = network.step()
    progress(f"{network}: profiling {len(step.costed_specs)} operations")
    with tempfile.TemporaryDirectory() as directory:
        profile = profile_device(
            description,
            step.costed_specs,
            unscheduled(step),
            options,
            Path(directory) / "trials",
        )
    watched = profiled_network(network.model, step)
    costs = watch_step(
        description,
        watched,
        profile,
        progress,
        storage_budget_bytes=options.storage_budget_bytes,
    )
    return Profiled(network, with_step_costs(profile, costs))


def solved(problem: Problem, limit_s: float, starts: Iterable[tuple[Action, ...]] = ()) -> Schedule:
    """Solve a problem, from other schedules of its step if there are any."""
    return solve_graph(
        problem.graph,
        Budget(ram_bytes=problem.budget_bytes),
        SolverOptions(time_limit_s=limit_s),
        starts=starts,
    )


def _peak_bytes(graph: CostedGraph) -> int:
    return replay(graph, keep_everything(graph)).peak_bytes


def _resident_bytes(step: TrainingStep) -> int:
    """Size of the tensors that stay in RAM from one step to the next."""
    return sum(
        tensor.bytes
        for tensor in step.tensors
        if tensor.home == "ram" and tensor.kind in {"parameter", "optimizer_state"}
    )
