"""The benchmark of users' networks. It needs PyTorch, which is not declared."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from benchmarks.networks.cases import cases
from benchmarks.networks.measuring import Row, difference_from_built_in, measure
from benchmarks.networks.pytorch import (
    in_double,
    largest_difference,
    measure_backward,
    step_gradients,
)
from benchmarks.networks.pytorch import losses as pytorch_losses

FEATURES = 16


class Squares(nn.Module):
    """A linear layer, and the mean of the squares of what it gives."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(FEATURES, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x).square().mean()


@pytest.mark.parametrize("name", [case.name for case in cases().values() if case.built_in])
def test_networks_of_mlperf_tiny_are_imported_as_the_built_in_ones(name: str) -> None:
    assert difference_from_built_in(cases()[name]).endswith("operations in the same order")


def test_memory_and_work_of_pytorch_are_counted() -> None:
    inputs = {"x": torch.ones(1, FEATURES)}
    found = measure_backward(Squares(), inputs)
    assert found.gradient_bytes == 4 * (FEATURES + 1)
    # The input for the weight's gradient, and the squares' operand.
    assert found.saved_bytes == 4 * (FEATURES + 1)
    assert found.peak_bytes >= found.gradient_bytes
    assert 2 <= found.kernels <= 20


def test_differences_of_gradients_are_relative() -> None:
    inputs = {"x": torch.ones(1, FEATURES)}
    module = Squares()
    true = step_gradients(*in_double(module, inputs))
    assert largest_difference(true, true) == 0
    doubled = {name: 2 * gradient for name, gradient in true.items()}
    assert largest_difference(doubled, true) == pytest.approx(1, rel=1e-4)


def test_losses_leave_the_module_as_it_is() -> None:
    inputs = {"x": torch.ones(1, FEATURES)}
    module = Squares()
    first = pytorch_losses(module, inputs, 3)
    assert first[-1] < first[0]
    assert pytorch_losses(module, inputs, 3) == first


@pytest.mark.slow
def test_a_network_goes_all_the_way(tmp_path: Path) -> None:
    row = measure(cases()["autoencoder"], limit_s=2)
    assert row.is_identical
    assert row.scheduled_peak_bytes <= row.budget_bytes
    assert row.difference < 1e-4
    assert row.loss_difference < 1e-4
    row.write(tmp_path / "row.json")
    assert Row.read(tmp_path / "row.json").backward == row.backward
