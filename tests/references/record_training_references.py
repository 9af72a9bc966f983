"""Record how PyTorch trains, so that the training tests need no PyTorch.

Run ``python -m tests.references.record_training_references`` in the project's root, with PyTorch.
Gradients are computed in float64; only their norms and their products with a few random directions
are kept. The curve is computed in float32, like the curve that is compared with it.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as functional
from torch import Tensor
from torch.overrides import TorchFunctionMode

from networks.data import generated_batches
from networks.kinds import LEARNING_RATE
from networks.models import build_model
from networks.training import TrainingStep
from networks.training.initial import initial_values
from tests.support.networks import pytorch
from tests.support.networks.references import (
    CURVE,
    CURVE_STEPS,
    GRADIENT_CASES,
    REFERENCES,
    SAMPLES,
    projections,
    trained,
)
from tests.support.networks.training import dropout_mask
from tests.support.onboard.kernels import Array, KernelLibrary, compile_library

_SEEDS = range(40)
_Loss = Callable[[pytorch.Tensors], Tensor]


class _Margin(TorchFunctionMode):
    """Smallest absolute input of any ReLU.

    Near zero, rounding decides whether an input passes, and gradients in float32 and float64
    differ.
    """

    nearest = float("inf")

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func is functional.relu:
            self.nearest = min(self.nearest, float(args[0].detach().abs().min()))
        return func(*args, **(kwargs or {}))


def _gradients(model: str, batch: int, library: KernelLibrary) -> tuple[dict[str, Any], Array]:
    """Loss and gradients for the seed with the largest margin: a record, and projections."""
    step = build_model(model, batch)
    loss: _Loss = getattr(pytorch, model)
    margin, seed = max((_margin(step, loss, seed, library), seed) for seed in _SEEDS)
    value, gradients = pytorch.loss_and_gradients(
        loss, _start(step, seed, library), set(trained(step))
    )
    numbers = np.array([projections(gradients[name]) for name in trained(step)])
    about = {"model": model, "batch": batch, "seed": seed, "loss": value, "margin": margin}
    print(about)
    return about, numbers


def _margin(step: TrainingStep, loss: _Loss, seed: int, library: KernelLibrary) -> float:
    start = _start(step, seed, library)
    with _Margin() as margin, torch.no_grad():
        loss({name: _tensor(value, torch.float64) for name, value in start.items()})
    return margin.nearest


def _start(step: TrainingStep, seed: int, library: KernelLibrary) -> dict[str, Array]:
    masks = {
        op.layer: dropout_mask(step, library, op.layer)
        for op in step.ops
        if op.spec.kind == "dropout.forward"
    }
    batches = generated_batches(step, SAMPLES, seed)
    return {**initial_values(step, seed), **batches.batch(0), **masks}


def _curve(dtype: torch.dtype) -> Array:
    """Losses before each update by plain SGD."""
    model, batch = CURVE
    step = build_model(model, batch)
    batches = generated_batches(step, SAMPLES, 0)
    values = initial_values(step, 0)
    tensors = {name: _tensor(value, dtype) for name, value in values.items()}
    parameters = [tensors[name].requires_grad_() for name in trained(step)]
    optimizer = torch.optim.SGD(parameters, lr=LEARNING_RATE)
    losses = []
    for number in range(CURVE_STEPS):
        inputs = {name: _tensor(v, dtype) for name, v in batches.batch(number).items()}
        optimizer.zero_grad()
        loss = getattr(pytorch, model)({**tensors, **inputs})
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return np.array(losses)


def _tensor(value: Array, dtype: torch.dtype) -> Tensor:
    tensor = torch.from_numpy(value.copy())
    return tensor.long() if value.dtype.kind == "i" else tensor.to(dtype)


def main() -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as directory:
        library = KernelLibrary(compile_library(Path(directory), "in-tree", ["-O3"]))
        cases = [_gradients(model, batch, library) for model, batch in GRADIENT_CASES]
    curve, exact = _curve(torch.float32), _curve(torch.float64)
    print(f"float32 and float64 differ by {np.max(np.abs(curve / exact - 1)):.2e} of the loss")
    np.savez_compressed(
        REFERENCES,
        cases=np.array(json.dumps([about for about, _ in cases])),
        curve=curve,
        **{f"gradients{number}": numbers for number, (_, numbers) in enumerate(cases)},
    )


if __name__ == "__main__":
    main()
