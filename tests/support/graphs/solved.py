"""A network solved with made-up costs, in files as the commands write them.

The schedule both pages and recomputes, for kernels that this computer can build.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from devices.documents.document import dump_yaml
from devices.operation import OpSpec
from devices.plan import ExecutionPlan
from devices.profile import (
    AffinePageCost,
    BoardIdentity,
    Build,
    Cost,
    DeviceProfile,
    Interval,
    OperationCost,
    StorageCosts,
)
from devices.quantities import Slices
from networks.kinds import Place
from networks.models import build_model
from networks.training import TrainingStep
from profiler.building.sources import KERNELS, read_sources, sources_hash
from profiler.building.toolchain import KERNEL_FLAGS
from replay.lowering.lowering import lower
from solver.constructed import keep_everything
from solver.costing.costing import cost_graph
from solver.options import SolverOptions
from solver.problem.graph import CostedGraph, Origin
from solver.problem.schedule import Budget, Schedule
from solver.referee.referee import replay
from solver.solving.solving import solve_graph
from tests.support.documents import write_json
from tests.support.onboard.kernels import KernelLibrary

FLAGS = ("-O1", "-DJW_SMALL_MEMORY=0")


def profile_of(
    step: TrainingStep,
    library: KernelLibrary,
    compiler: str = "cc 1.0",
    own_flags: tuple[str, ...] = FLAGS,
) -> DeviceProfile:
    """A profile as if measured with the library's compiler and flags.

    Its made-up costs lead to a schedule that both pages and recomputes.
    """

    def cost(spec: OpSpec) -> Cost:
        time_s = 1e-6 + spec.work_flop / 1e8
        return Cost(time_s=Interval.exact(time_s), energy_j=Interval.exact(3 * time_s), trials=5)

    def paging(per_page_s: float) -> AffinePageCost:
        return AffinePageCost(
            fixed_s=5e-5, per_page_s=per_page_s, fixed_j=1.5e-4, per_page_j=3 * per_page_s
        )

    flags = (*KERNEL_FLAGS, *own_flags)
    return DeviceProfile(
        name="bench",
        energy_source="estimated",
        board=BoardIdentity(model="made up", memory_bytes=1 << 20),
        build=Build(
            kernels_sha256=sources_hash(read_sources(KERNELS), flags),
            compiler=compiler,
            flags=flags,
            matmul="in-tree",
            threads=1,
        ),
        operations=tuple(
            OperationCost(
                op=spec.key,
                workspace_bytes=library.workspace_bytes(spec),
                warm=cost(spec),
                cold=cost(spec),
            )
            for spec in step.distinct_specs
        ),
        storage=StorageCosts(
            medium="sd",
            path=".",
            page_bytes=512,
            method="made up",
            read=paging(2.5e-5),
            write=paging(5e-5),
        ),
    )


@dataclass(frozen=True)
class Solved:
    """A solved case; ``directory`` holds the schedule, its graph and, in results, the profile."""

    directory: Path
    step: TrainingStep
    graph: CostedGraph
    schedule: Schedule

    @property
    def path(self) -> Path:
        return self.directory / "small.json"

    @property
    def plan(self) -> ExecutionPlan:
        """The schedule's execution plan."""
        planned = {op.name: op.workspace_bytes for op in self.graph.ops}
        workspaces = {op.spec: planned[op.name] for op in self.step.ops}
        return lower(self.step, self.graph, self.schedule, workspaces)

    def with_origin(self, directory: Path, origin: Origin | None) -> Path:
        """Write the case with another origin of its graph; returns the schedule's path."""
        graph = self.graph.model_copy(update={"origin": origin})
        schedule = self.schedule.model_copy(update={"graph_sha256": graph.sha256})
        write_json(directory / "changed.graph.json", graph)
        return write_json(directory / "changed.json", schedule)

    def with_changed_origin(self, directory: Path, **changes: object) -> Path:
        """Write the case with other keys in the origin; returns the schedule's path."""
        assert self.graph.origin is not None
        return self.with_origin(directory, self.graph.origin.model_copy(update=changes))


def solved(
    directory: Path,
    library: KernelLibrary,
    model: str,
    share: float,
    *,
    batch: int = 2,
    parameters_in: Place = "ram",
    slices: Slices | None = None,
    paging: bool = True,
    compiler: str = "cc 1.0",
    flags: tuple[str, ...] = FLAGS,
) -> Solved:
    """Solve a model for ``share`` of the RAM of keeping everything, and write the files."""
    step = build_model(model, batch, parameters_in=parameters_in, slices=slices)
    profile = profile_of(step, library, compiler, flags)
    graph = cost_graph(step, profile).graph
    peak = replay(graph, keep_everything(graph), "all").peak_bytes
    budget = Budget(ram_bytes=int(share * peak), paging=paging)
    options = SolverOptions(threads=1, gap=0.5, time_limit_s=30.0)
    schedule = solve_graph(graph, budget, options, lambda _: None)
    case = Solved(directory, step, graph, schedule)
    (directory / "results" / "profiles").mkdir(parents=True)
    (directory / "results" / "profiles" / "bench.yaml").write_text(dump_yaml(profile))
    for path, document in (
        (case.path, schedule),
        (directory / "small.graph.json", graph),
    ):
        write_json(path, document)
    return case
