"""The benchmark of users' networks. It needs PyTorch, which is not declared.

PyTorch is imported by the tests: listing them takes no time of processes that do not run them.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from torch import nn

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")

FEATURES = 16
MLPERF_TINY = ("tiny autoencoder", "tiny dscnn", "tiny resnet8", "tiny mobilenet")


def squares() -> nn.Module:
    """A linear layer, and the mean of the squares of what it gives."""
    import torch
    from torch import nn

    class Squares(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(FEATURES, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(x).square().mean()

    return Squares()


@pytest.mark.slow
@pytest.mark.parametrize("name", MLPERF_TINY)
def test_networks_of_mlperf_tiny_are_imported_as_the_built_in_ones(name: str) -> None:
    from benchmarks.networks.cases import cases
    from benchmarks.networks.measuring import difference_from_built_in

    assert difference_from_built_in(cases()[name]).endswith("operations in the same order")


def test_all_networks_with_a_built_in_one_are_compared_with_it() -> None:
    from benchmarks.networks.cases import cases

    assert {case.name for case in cases().values() if case.built_in} == set(MLPERF_TINY)


def test_memory_and_work_of_pytorch_are_counted() -> None:
    import torch

    from benchmarks.networks.pytorch import measure_backward

    found = measure_backward(squares(), {"x": torch.ones(1, FEATURES)})
    assert found.gradient_bytes == 4 * (FEATURES + 1)
    # The input for the weight's gradient, and the squares' operand.
    assert found.saved_bytes == 4 * (FEATURES + 1)
    assert found.peak_bytes >= found.gradient_bytes
    assert 2 <= found.kernels <= 20


def test_differences_of_gradients_are_relative() -> None:
    import torch

    from benchmarks.networks.pytorch import in_double, largest_difference, step_gradients

    true = step_gradients(*in_double(squares(), {"x": torch.ones(1, FEATURES)}))
    assert largest_difference(true, true) == 0
    doubled = {name: 2 * gradient for name, gradient in true.items()}
    assert largest_difference(doubled, true) == pytest.approx(1, rel=1e-4)


def test_a_difference_that_is_not_a_number_is_not_lost() -> None:
    import numpy as np

    from benchmarks.kernels_vs_pytorch.__main__ import update_difference
    from benchmarks.networks.measuring import relative_difference
    from benchmarks.networks.pytorch import largest_difference

    one, unknown = np.ones(2, np.float32), np.full(2, np.nan, np.float32)
    for order in (("a", "b"), ("b", "a")):
        true = dict.fromkeys(order, one)
        found = {"a": 1.001 * one, "b": unknown}
        assert np.isnan(largest_difference(found, true))
        assert np.isnan(update_difference({"a": 0 * one, "b": 0 * one}, found, true))
    assert np.isnan(relative_difference([2.0, 1.9, np.nan], [2.0, 1.8, 1.7]))
    assert np.isnan(relative_difference([np.nan, 1.9, 1.8], [2.0, 1.8, 1.7]))


def test_losses_leave_the_module_as_it_is() -> None:
    import torch

    from benchmarks.networks.pytorch import losses

    inputs = {"x": torch.ones(1, FEATURES)}
    module = squares()
    first = losses(module, inputs, 3)
    assert first[-1] < first[0]
    assert losses(module, inputs, 3) == first


@pytest.mark.slow
def test_a_network_goes_all_the_way(tmp_path: Path) -> None:
    from benchmarks.networks.cases import cases
    from benchmarks.networks.measuring import Row, measure

    row = measure(cases()["autoencoder"], limit_s=2)
    assert row.is_identical
    assert row.scheduled_peak_bytes <= row.budget_bytes
    assert row.difference < 1e-4
    assert row.loss_difference < 1e-4
    row.write(tmp_path / "row.json")
    assert Row.read(tmp_path / "row.json").backward == row.backward
