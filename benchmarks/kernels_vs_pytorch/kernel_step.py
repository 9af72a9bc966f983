"""Training step that calls the project's kernels one after the other."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping

import numpy as np

from benchmarks.kernels_vs_pytorch.groups import group_of_kind
from networks.training import TrainingStep
from networks.training.initial import initial_values
from replay.lowering.lowering import unscheduled
from tests.support.onboard.kernels import Array, KernelLibrary, PreparedCall, aligned


class KernelStep:
    """Operations of the step in order. Every tensor has a buffer of its own."""

    def __init__(
        self,
        library: KernelLibrary,
        step: TrainingStep,
        inputs: Mapping[str, Array],
    ) -> None:
        plan = unscheduled(step)
        buffers = {address: aligned(size) for address, size in plan.buffer_bytes.items()}
        at = {name: block.address for name, block in plan.inputs.items()}
        at |= {kept.tensor: kept.address for kept in plan.kept if kept.address is not None}
        for name, value in {**initial_values(step, 0), **inputs}.items():
            buffers[at[name]][:] = value.reshape(-1).view(np.uint8)
        self._parameters = {name: buffers[at[name]] for name in _trained(step)}
        self._loss = next(
            buffers[probe.block.address] for probe in plan.probes if probe.what == "loss"
        )
        self.workspace_bytes = max(library.workspace_bytes(op.spec) for op in plan.computes)
        workspace = aligned(self.workspace_bytes)
        self._calls: list[tuple[str, PreparedCall]] = [
            (
                group_of_kind(op.spec.kind),
                library.prepare(
                    op.spec,
                    [buffers[address] for address in op.reads],
                    [buffers[address] for address in op.writes],
                    workspace,
                    [op.scalars[name] for name in op.spec.signature.scalars],
                ),
            )
            for op in plan.computes
        ]
        self.by_group: dict[str, list[float]] = defaultdict(list)

    @property
    def parameters(self) -> dict[str, Array]:
        return {name: value.view(np.float32).copy() for name, value in self._parameters.items()}

    @property
    def loss(self) -> float:
        return float(self._loss.view(np.float32)[0])

    def run_s(self) -> float:
        """Run one step. Returns the seconds in its operations."""
        groups: dict[str, float] = defaultdict(float)
        for group, call in self._calls:
            start = time.perf_counter()
            call()
            groups[group] += time.perf_counter() - start
        for group, seconds in groups.items():
            self.by_group[group].append(seconds)
        return sum(groups.values())


def _trained(step: TrainingStep) -> list[str]:
    """Names of the parameters that an update writes, in the network's order."""
    updated = {
        name
        for op in step.ops
        for operand, name in zip(op.spec.reads, op.reads, strict=True)
        if operand.role == "parameter"
    }
    return [tensor.name for tensor in step.tensors if tensor.name in updated]
