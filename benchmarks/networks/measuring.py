"""One network from PyTorch to a step that runs, beside the same step in PyTorch."""

from __future__ import annotations

import copy
import json
import math
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load_file
from torch import Tensor, nn

from benchmarks.machine import load_average
from benchmarks.networks import pytorch
from benchmarks.networks.cases import Case
from benchmarks.networks.commands import CommandFailed, Commands, Solved
from benchmarks.networks.modules import add_adapters
from benchmarks.solver.command import over_least
from devices.documents.document import write_atomically
from devices.replay import ReplayReport
from networks.kinds import Place
from networks.models import build_model
from networks.training import TrainingStep
from networks.training.initial import initial_values
from solver.problem.footprint import least_ram_bytes
from solver.problem.graph import CostedGraph

STEPS = 20

# The budget, as a share of the peak.
SHARE = 0.5

# Multiples of the smallest budget that `solve` names where the share is too small. It names a sum
# of bytes; addresses may need more.
FACTORS = (1.0, 1.02, 1.1, 1.25)


@dataclass(frozen=True)
class Origin:
    """What measured a row: the limit of each search, and release, machine and versions."""

    limit_s: float
    release: str
    machine: str
    versions: tuple[str, ...]


@dataclass(frozen=True)
class Row:
    """What is known about a network.

    ``peak_bytes`` is that of the step without a budget and with parameters in RAM, of which
    ``resident_bytes`` are parameters. ``parameters_in`` is their home in the schedule, in which
    layers are in slices if it ``is_sliced``.
    ``least_bytes`` is the least RAM that any schedule needs, whatever the order of operations:
    tensors and workspace of one operation. ``extra_energy`` is relative to the step without a
    budget. ``is_identical`` is None if there was no unscheduled step to compare values with.
    ``losses`` are this project's and PyTorch's; ``pytorch_loss_difference`` is that of PyTorch's
    from those in float64. ``load`` is the average over one minute at the end.
    """

    name: str
    operations: int
    backward_operations: int
    parameters: int
    import_s: float
    solve_s: float
    peak_bytes: int
    resident_bytes: int
    parameters_in: Place
    is_sliced: bool
    budget_bytes: int
    least_bytes: int
    scheduled_peak_bytes: int
    status: str
    gap: float | None
    extra_energy: float
    is_identical: bool | None
    difference: float
    pytorch_difference: float
    losses: tuple[tuple[float, ...], tuple[float, ...]]
    pytorch_loss_difference: float
    load: float
    backward: pytorch.Backward
    origin: Origin

    @classmethod
    def read(cls, path: Path) -> Row | None:
        """Row that :meth:`write` has written; None if it was without an origin then."""
        values = json.loads(path.read_text(encoding="utf-8"))
        if "origin" not in values:
            return None
        values["backward"] = pytorch.Backward(**values["backward"])
        origin = values["origin"]
        values["origin"] = Origin(**origin | {"versions": tuple(origin["versions"])})
        return cls(**values)

    def write(self, path: Path) -> None:
        write_atomically(path, json.dumps(asdict(self), indent=1))

    @property
    def is_budget_raised(self) -> bool:
        """True if no schedule was found for the first share of the peak."""
        return self.budget_bytes > math.ceil(SHARE * self.peak_bytes)

    @property
    def loss_difference(self) -> float:
        """That of this project's losses from PyTorch's."""
        return relative_difference(*self.losses)


def measure(case: Case, origin: Origin) -> Row:
    """Import, profile, solve and run a network, and train it in PyTorch.

    ``origin`` has the limit of each search, and goes into the row.

    Raises:
        InputError: The network cannot be imported.
        CommandFailed: A command failed, or found no schedule.
    """
    inputs = case.draw_inputs()
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        module, path = case.module(), directory / "network.pt2"
        export(module, inputs, path)
        began = time.monotonic()
        step = build_model(str(path), lora=None if case.lora is None else str(case.lora))
        import_s = time.monotonic() - began
        if case.lora is not None:
            module = _adapted(module, step, case.lora)
        commands = Commands(path, directory, case.lora)
        commands.profile()
        plain, peak_bytes, solved, parameters_in = _solve(commands, origin.limit_s)
        report, gradients = _run(commands, solved, inputs, directory)
    double = pytorch.in_double(module, inputs)
    true = pytorch.step_gradients(*double)
    losses = tuple(pytorch.losses(module, inputs, STEPS))
    schedule = solved.schedule
    assert schedule.budget is not None
    assert schedule.energy_j is not None
    assert schedule.peak_bytes is not None
    return Row(
        name=case.name,
        operations=len(step.ops),
        backward_operations=sum(op.phase == "backward" for op in step.ops),
        parameters=sum(each.numel() for each in module.parameters()),
        import_s=import_s,
        solve_s=solved.seconds,
        peak_bytes=peak_bytes,
        resident_bytes=_resident_bytes(plain),
        parameters_in=parameters_in,
        is_sliced=solved.is_sliced,
        budget_bytes=schedule.budget.ram_bytes,
        least_bytes=least_ram_bytes(solved.graph)[0],
        scheduled_peak_bytes=schedule.peak_bytes,
        status=schedule.status,
        gap=schedule.gap,
        extra_energy=over_least(schedule.energy_j, solved.graph),
        is_identical=all(each.identical for each in report.values) if report.values else None,
        difference=pytorch.largest_difference(gradients, true),
        pytorch_difference=pytorch.largest_difference(pytorch.step_gradients(module, inputs), true),
        losses=(_finite(report), losses),
        pytorch_loss_difference=relative_difference(losses, pytorch.losses(*double, STEPS)),
        load=load_average(),
        backward=pytorch.measure_backward(module, inputs),
        origin=origin,
    )


def export(module: nn.Module, inputs: Mapping[str, Tensor], path: Path) -> None:
    program = torch.export.export(module, tuple(inputs.values()), strict=False)
    torch.export.save(program, path)


def difference_from_built_in(case: Case) -> str:
    """How the operations of a module differ from those of the project's own network."""
    assert case.built_in is not None
    module = case.module() if case.with_dropout is None else case.with_dropout().train()
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "network.pt2")
        export(module, case.draw_inputs(), path)
        imported, own = build_model(str(path)), build_model(case.built_in, case.batch)
    keys = [[op.spec.key for op in step.ops] for step in (imported, own)]
    if keys[0] == keys[1]:
        return f"the same {len(keys[1])} operations in the same order"
    more, fewer = Counter(keys[0]) - Counter(keys[1]), Counter(keys[1]) - Counter(keys[0])
    if not more and not fewer:
        return f"the same {len(keys[1])} operations in another order"
    return f"only imported: {_listed(more)}; only built in: {_listed(fewer)}"


def relative_difference(found: Sequence[float], true: Sequence[float]) -> float:
    """Largest relative difference of two courses; NaN if any is."""
    return float(np.max([abs(a - b) / abs(b) for a, b in zip(found, true, strict=True)]))


def _listed(keys: Counter[str]) -> str:
    return ", ".join(f"{count} × `{key}`" for key, count in keys.items()) or "none"


def _solve(commands: Commands, limit_s: float) -> tuple[CostedGraph, int, Solved, Place]:
    """Schedule for a share of the peak, or for the smallest budget for which one is found.

    Returns the graph with parameters in RAM, the peak of the step without a budget in bytes, the
    schedule, and the parameters' home in it. They go to storage if no schedule is found with all of
    them in RAM, and layers are cut into slices if there is none with whole layers either.
    """
    solved = commands.solve(f"{SHARE:.0%}", limit_s)
    plain = solved.graph
    assert solved.schedule.budget is not None
    share_bytes = solved.schedule.budget.ram_bytes
    # The graph of the schedule may have codes in place of activations, and so a smaller peak.
    peak_bytes = round(share_bytes / SHARE)
    if solved.schedule.actions:
        return plain, peak_bytes, solved, "ram"
    share = str(share_bytes)
    solved = commands.solve(share, limit_s, "storage")
    if solved.schedule.actions:
        return plain, peak_bytes, solved, "storage"
    solved = commands.solve(share, limit_s, "storage", is_sliced=True)
    smallest_bytes = solved.schedule.smallest_ram_bytes
    budgets = ["100%"]
    if smallest_bytes is not None:
        budgets = [*(str(math.ceil(factor * smallest_bytes)) for factor in FACTORS), *budgets]
    while not solved.schedule.actions:
        if not budgets:
            raise CommandFailed("solve: found no schedule under any budget")
        solved = commands.solve(budgets.pop(0), limit_s, "storage", is_sliced=True)
    return plain, peak_bytes, solved, "storage"


def _run(
    commands: Commands, solved: Solved, inputs: Mapping[str, Tensor], directory: Path
) -> tuple[ReplayReport, pytorch.Gradients]:
    """Report of all steps, and the gradients of the first."""
    samples = directory / "samples.npz"
    arrays: dict[str, Any] = {name: each.numpy() for name, each in inputs.items()}
    np.savez(samples, **arrays)
    gradients = directory / "gradients.safetensors"
    commands.run(solved, samples, 1, gradients)
    return commands.run(solved, samples, STEPS), load_file(gradients)


def _adapted(module: nn.Module, step: TrainingStep, rank: int) -> nn.Module:
    """The module with the same adapters as the step, and their initial values."""
    adapted = copy.deepcopy(module)
    add_adapters(adapted, rank)
    initial = initial_values(step, 0)
    for name, parameter in adapted.named_parameters():
        if parameter.requires_grad:
            values = torch.from_numpy(initial[name].reshape(parameter.shape))
            parameter.data.copy_(values)
    return adapted


def _resident_bytes(graph: CostedGraph) -> int:
    kinds = {"parameter", "optimizer_state"}
    # An update writes a parameter's next value into the same bytes.
    written = {name for op in graph.ops for name in op.writes}
    return sum(
        tensor.bytes
        for tensor in graph.tensors
        if tensor.kind in kinds and tensor.name not in written
    )


def _finite(report: ReplayReport) -> tuple[float, ...]:
    return tuple(float("nan") if loss is None else loss for loss in report.losses)
