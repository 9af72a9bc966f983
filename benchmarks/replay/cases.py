"""Networks on a board: profiled, then scheduled for a share of their peak."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from devices.description import DeviceDescription
from devices.profile import DeviceProfile, ProfiledNetwork
from networks.models import build_model
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
from solver.problem.schedule import Budget, Schedule
from solver.referee.referee import replay
from solver.solving.solving import solve_graph

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Network:
    """A model of the project with a batch size."""

    model: str
    batch: int

    def __str__(self) -> str:
        return f"{self.model}, batch {self.batch}"


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
        step = build_model(self.network.model, self.network.batch)
        return _peak_bytes(cost_graph(step, self.profile).graph)

    def problem(self, share: float) -> Problem:
        budget_bytes = int(share * self.peak_bytes)
        step = build_model(self.network.model, self.network.batch)
        if _resident_bytes(step) > budget_bytes:
            step = build_model(self.network.model, self.network.batch, parameters_in="storage")
        return Problem(step, cost_graph(step, self.profile).graph, budget_bytes)


def profiled(
    description: DeviceDescription, network: Network, blocks: int, progress: Progress
) -> Profiled:
    """Profile a network on the board, by its operations and in its step.

    The files are deleted afterwards.
    """
    step = build_model(network.model, network.batch)
    progress(f"{network}: profiling {len(step.distinct_specs)} operations")
    with tempfile.TemporaryDirectory() as directory:
        profile = profile_device(
            description,
            step.distinct_specs,
            unscheduled(step),
            ProfileOptions(blocks=blocks),
            Path(directory) / "trials",
        )
    watched = ProfiledNetwork(model=network.model, batch=network.batch, optimizer="sgd")
    costs = watch_step(description, watched, profile, progress)
    return Profiled(network, with_step_costs(profile, costs))


def solved(problem: Problem, limit_s: float) -> Schedule:
    return solve_graph(
        problem.graph,
        Budget(ram_bytes=problem.budget_bytes),
        SolverOptions(time_limit_s=limit_s),
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
