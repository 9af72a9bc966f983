"""Training step in PyTorch, with its time by group of operations."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from benchmarks.kernels_vs_pytorch.groups import group_of_aten
from tests.support.onboard.kernels import Array

_ATEN = "aten::"
_NODE = "autograd::engine::evaluate_function: "
_OPTIMIZER = "Optimizer"


class PyTorchStep:
    """Forward, backward and SGD update, eager."""

    def __init__(
        self, module: nn.Module, inputs: Mapping[str, Tensor], learning_rate: float
    ) -> None:
        self._module = module
        self._inputs = tuple(inputs.values())
        self._optimizer = torch.optim.SGD(module.parameters(), lr=learning_rate)
        self.loss = 0.0
        self.by_group: dict[str, list[float]] = defaultdict(list)

    @property
    def parameters(self) -> dict[str, Array]:
        return {name: p.detach().numpy().copy() for name, p in self._module.named_parameters()}

    def run_s(self) -> float:
        """Run one step. Returns its seconds."""
        start = time.perf_counter()
        self._optimizer.zero_grad()
        loss = self._module(*self._inputs)
        torch.autograd.backward(loss)
        self._optimizer.step()
        elapsed = time.perf_counter() - start
        self.loss = loss.item()
        return elapsed

    def profile(self) -> None:
        """Run one step, and add the seconds of its operations by group."""
        with profile(activities=[ProfilerActivity.CPU]) as profiled:
            self.run_s()
        seconds: dict[str, float] = defaultdict(float)
        for event in profiled.events():
            callers = [each.name for each in _callers(event)]
            if event.name.startswith(_ATEN) and not any(n.startswith(_ATEN) for n in callers):
                group = group_of_aten(event.name.removeprefix(_ATEN), _node(callers))
                seconds[group] += event.time_range.elapsed_us() / 1e6
        for group, found in seconds.items():
            self.by_group[group].append(found)


def _callers(event: Any) -> Iterator[Any]:
    while (event := event.cpu_parent) is not None:
        yield event


def _node(callers: list[str]) -> str:
    """Node of the backward pass that calls an operation; ``update``, or nothing in forward."""
    for name in callers:
        if name.startswith(_NODE):
            return name.removeprefix(_NODE)
        if name.startswith(_OPTIMIZER):
            return "update"
    return ""
