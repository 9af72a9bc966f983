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


@pytest.mark.slow
def test_all_networks_with_a_built_in_one_are_compared_with_it() -> None:
    from benchmarks.networks.cases import cases

    assert {case.name for case in cases().values() if case.built_in} == set(MLPERF_TINY)


@pytest.mark.slow
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


def test_a_row_of_another_limit_is_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The page names what measured each row."""
    from benchmarks.networks import __main__ as networks
    from benchmarks.networks import pytorch
    from benchmarks.networks.cases import Case
    from benchmarks.networks.measuring import Origin, Row

    measured: list[tuple[str, float]] = []

    def measure(case: Case, origin: Origin) -> Row:
        measured.append((case.name, origin.limit_s))
        return Row(
            name=case.name,
            operations=1,
            backward_operations=1,
            parameters=1,
            import_s=0.1,
            solve_s=0.1,
            peak_bytes=1000,
            resident_bytes=1,
            parameters_in="ram",
            is_sliced=False,
            budget_bytes=500,
            least_bytes=400,
            scheduled_peak_bytes=450,
            status="optimal",
            gap=0.0,
            extra_energy=0.1,
            is_identical=None,
            difference=0.0,
            pytorch_difference=0.0,
            losses=((1.0,), (1.0,)),
            pytorch_loss_difference=0.0,
            load=0.1,
            backward=pytorch.Backward(1, 1, 1, 1),
            origin=origin,
        )

    monkeypatch.setattr(networks, "measure", measure)
    calls = (("one", "5", "lstm"), ("two", "20", "gru"), ("three", "20", "lstm"))
    for release, limit, *names in (*calls, ("four", "20", "lstm", "gru")):
        monkeypatch.setattr(networks, "release", lambda release=release: release)
        words = ["--only", *names, "--limit", limit, "--record", str(tmp_path)]
        monkeypatch.setattr("sys.argv", ["networks", *words])
        networks.main()
    assert measured == [("lstm", 5.0), ("gru", 20.0), ("lstm", 20.0)]
    page = capsys.readouterr().out.rpartition("# Networks from PyTorch")[2]
    assert page.count("not compared") == 3  # both rows, and the text
    origins = [line.split()[1:4] for line in page.partition("## Origins")[2].splitlines()[4:6]]
    assert origins == [["lstm", "|", "three"], ["gru", "|", "two"]]


@pytest.mark.slow
def test_a_network_goes_all_the_way(tmp_path: Path) -> None:
    from benchmarks.networks.cases import cases
    from benchmarks.networks.measuring import Origin, Row, measure

    row = measure(cases()["autoencoder"], Origin(2.0, "a release", "a machine", ("PyTorch 2",)))
    assert row.is_identical
    assert row.scheduled_peak_bytes <= row.budget_bytes
    assert row.difference < 1e-4
    assert row.loss_difference < 1e-4
    row.write(tmp_path / "row.json")
    found = Row.read(tmp_path / "row.json")
    assert found is not None
    assert (found.backward, found.origin) == (row.backward, row.origin)
