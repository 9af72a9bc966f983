"""The same training step in PyTorch: gradients, losses, memory and kernels of the backward pass."""

from __future__ import annotations

import copy
import json
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

_LEARNING_RATE = 0.01

# A gradient that is almost zero is compared with the largest one.
_NEGLIGIBLE = 1e-6

_NODE = "autograd::engine::evaluate_function"
_ATEN = "aten::"

# These allocate, or look at the same numbers in another way; they compute and copy nothing.
_WITHOUT_WORK = frozenset(
    _ATEN + name
    for name in (
        *("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "resize_"),
        *("view", "_unsafe_view", "reshape", "_reshape_alias", "view_as", "as_strided", "alias"),
        *("t", "transpose", "permute", "expand", "unsqueeze", "squeeze", "slice", "select"),
        *("detach", "detach_", "narrow", "unbind", "split", "split_with_sizes", "unfold"),
        *("result_type", "lift_fresh", "to", "contiguous", "conj", "resolve_conj", "chunk"),
        *("flatten", "unflatten", "movedim", "is_nonzero", "item", "_local_scalar_dense"),
    )
)

Gradients = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Backward:
    """Memory and work of one step in PyTorch.

    ``saved_bytes`` are the distinct storages that autograd keeps for the backward pass, without
    parameters and buffers, and ``gradient_bytes`` the parameters' gradients. ``peak_bytes`` is the
    most that the step allocated at a time. ``kernels`` are the ATen operations of the backward
    pass that call no other and compute or copy numbers.
    """

    saved_bytes: int
    gradient_bytes: int
    peak_bytes: int
    kernels: int


def step_gradients(module: nn.Module, inputs: Mapping[str, Tensor]) -> Gradients:
    """Gradients of the first step, by parameter. The module stays as it is."""
    module = copy.deepcopy(module)
    module(*inputs.values()).backward()
    return {name: _array(each.grad) for name, each in module.named_parameters() if _has(each)}


def in_double(
    module: nn.Module, inputs: Mapping[str, Tensor]
) -> tuple[nn.Module, Mapping[str, Tensor]]:
    """The module and its inputs in float64."""
    doubled = {k: v.double() if v.is_floating_point() else v for k, v in inputs.items()}
    return copy.deepcopy(module).double(), doubled


def largest_difference(found: Gradients, true: Gradients) -> float:
    """Largest relative norm of a parameter's difference from its true gradient; NaN if any is."""
    largest = np.max([np.linalg.norm(each) for each in true.values()])
    differences = [
        np.linalg.norm(found[name].reshape(each.shape) - each)
        / (np.linalg.norm(each) + _NEGLIGIBLE * largest)
        for name, each in true.items()
    ]
    return float(np.max(differences))


def losses(module: nn.Module, inputs: Mapping[str, Tensor], steps: int) -> list[float]:
    """Losses of training with SGD on the same inputs. The module stays as it is."""
    module = copy.deepcopy(module)
    trained = [each for each in module.parameters() if each.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=_LEARNING_RATE)
    found = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = module(*inputs.values())
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


def measure_backward(module: nn.Module, inputs: Mapping[str, Tensor]) -> Backward:
    """Memory and work of one step. The module stays as it is."""
    module = copy.deepcopy(module)
    saved_bytes = _saved_bytes(module, inputs)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        module(*inputs.values()).backward()
    gradients = [each.grad for each in module.parameters() if each.grad is not None]
    return Backward(
        saved_bytes,
        sum(each.untyped_storage().nbytes() for each in gradients),
        _peak_bytes(profiled),
        sum(_is_kernel(event) for event in profiled.events() if _is_in_backward(event)),
    )


def _saved_bytes(module: nn.Module, inputs: Mapping[str, Tensor]) -> int:
    own = {each.untyped_storage().data_ptr() for each in (*module.parameters(), *module.buffers())}
    storages: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        # The loss keeps the storages alive, so that no address is used twice.
        loss = module(*inputs.values())
    del loss
    return sum(storages.values())


def _peak_bytes(profiled: profile) -> int:
    """Largest sum of the allocations minus the releases."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "trace.json")
        profiled.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    changes = [event for event in events if event["name"] == "[memory]"]
    held = peak = 0
    for event in sorted(changes, key=lambda event: event["ts"]):
        held += event["args"]["Bytes"]
        peak = max(peak, held)
    return peak


def _is_in_backward(event: Any) -> bool:
    return any(each.name.startswith(_NODE) for each in _ancestors(event))


def _ancestors(event: Any) -> Iterator[Any]:
    while event is not None:
        yield event
        event = event.cpu_parent


def _is_kernel(event: Any) -> bool:
    calls = (child.name for child in event.cpu_children)
    return (
        event.name.startswith(_ATEN)
        and event.name not in _WITHOUT_WORK
        and all(not name.startswith(_ATEN) or name in _WITHOUT_WORK for name in calls)
    )


def _has(parameter: nn.Parameter) -> bool:
    return parameter.requires_grad and parameter.grad is not None


def _array(gradient: Tensor | None) -> NDArray[Any]:
    assert gradient is not None
    return gradient.numpy().copy()
