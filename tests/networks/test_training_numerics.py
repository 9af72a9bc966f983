"""Training steps executed with the C kernels: gradients agree with the loss and with PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from devices.errors import InputError
from networks.data import generated_batches
from networks.kinds import Optimizer
from networks.models import build_model
from networks.training import Network, TrainingStep, training_step
from networks.training.initial import initial_values
from tests.support.networks.references import (
    SAMPLES,
    GradientCase,
    gradient_cases,
    projections,
    trained,
)
from tests.support.networks.training import (
    dropout_mask,
    execute,
    gradients,
    op,
    small_convolutional,
    small_gated,
    small_hourglass,
    small_mixture,
    small_recurrent,
    small_transformer,
    start_values,
)
from tests.support.onboard.kernels import Array, KernelLibrary, compile_library, uniform

NETWORKS = [
    *(small_convolutional, small_transformer, small_mixture, small_gated, small_hourglass),
    small_recurrent,
]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> KernelLibrary:
    return KernelLibrary(compile_library(tmp_path_factory.mktemp("kernels"), "in-tree", ["-O1"]))


@pytest.fixture(scope="module")
def fast_library(tmp_path_factory: pytest.TempPathFactory) -> KernelLibrary:
    return KernelLibrary(compile_library(tmp_path_factory.mktemp("fast"), "in-tree"))


@pytest.mark.parametrize("network", NETWORKS)
def test_gradients_are_the_slopes_of_the_loss(
    network: Callable[[], Network], library: KernelLibrary
) -> None:
    """Central differences along the gradient and along a random direction, for each parameter."""
    step = training_step(network())
    start = start_values(step)

    def loss_at(parameter: str, shift: Array) -> float:
        moved = {**start, parameter: (start[parameter] + shift).astype(np.float32)}
        return float(execute(step, library, moved)["loss.loss"][0])

    found = gradients(step, execute(step, library, start))
    assert found
    for number, (parameter, gradient) in enumerate(found.items()):
        for direction in (gradient, uniform(gradient.shape, number)):
            length = float(np.linalg.norm(direction))
            if length < 1e-6:  # a bias before a batch norm changes nothing
                continue
            # Small enough that few inputs of a ReLU or maximum change sides, and large enough for a
            # loss in float32.
            shift = 5e-4 * direction / length
            slope = (loss_at(parameter, shift) - loss_at(parameter, -shift)) / 1e-3
            expected = float(np.vdot(gradient, direction)) / length
            assert slope == pytest.approx(expected, rel=0.02, abs=5e-4), parameter


@pytest.mark.parametrize(
    "step",
    [*(training_step(network(), "momentum") for network in NETWORKS), build_model("resnet8")],
    ids=lambda step: step.name,
)
def test_working_in_place_changes_no_bit(step: TrainingStep, library: KernelLibrary) -> None:
    assert any(op.in_place for op in step.ops if op.recomputable)
    start = start_values(step)
    shared = execute(step, library, start, in_place=True)
    apart = execute(step, library, start, in_place=False)
    assert shared.keys() == apart.keys()
    for name, value in shared.items():
        assert value.tobytes() == apart[name].tobytes(), name


@pytest.mark.slow
@pytest.mark.parametrize("case", gradient_cases(), ids=str)
def test_gradients_of_known_networks_agree_with_pytorch(
    case: GradientCase, fast_library: KernelLibrary
) -> None:
    """Gradients agree to the precision of float32.

    The error is relative to the largest gradient where a parameter's own gradient is zero but for
    rounding, as for a bias before a batch norm.
    """
    step = build_model(case.model, case.batch)
    inputs = generated_batches(step, SAMPLES, case.seed).batch(0)
    made = execute(step, fast_library, {**initial_values(step, case.seed), **inputs})
    assert float(made["loss.loss"][0]) == pytest.approx(case.loss, rel=1e-6)
    found = gradients(step, made)
    assert sorted(found) == trained(step)
    largest = float(case.projections[:, 0].max())
    for name, expected in zip(trained(step), case.projections, strict=True):
        error = np.abs(projections(found[name]) - expected)
        assert np.all(error <= 5e-5 * expected[0] + 1e-6 * largest), name


def test_updates_move_parameters_and_velocities(library: KernelLibrary) -> None:
    step = training_step(small_convolutional(), "momentum")
    start = start_values(step)
    made = execute(step, library, start)
    gradient = gradients(step, made)["classifier.weight"]
    velocity = 0.9 * start["classifier.weight.velocity"] + gradient.reshape(-1)
    expected = start["classifier.weight"].reshape(-1) - 0.01 * velocity
    np.testing.assert_allclose(made["classifier.weight.next_velocity"], velocity, rtol=1e-6)
    np.testing.assert_allclose(made["classifier.weight.next"], expected, rtol=1e-6)


def test_the_first_step_of_adam_has_the_length_of_its_rate(library: KernelLibrary) -> None:
    step = training_step(small_convolutional(), "adam")
    start = start_values(step)
    start |= {name: np.zeros_like(values) for name, values in start.items() if _is_state(name)}
    made = execute(step, library, start)
    gradient = gradients(step, made)["classifier.weight"].reshape(-1)
    moved = made["classifier.weight.next"] - start["classifier.weight"].reshape(-1)
    np.testing.assert_allclose(moved, -0.001 * gradient / (abs(gradient) + 1e-8), rtol=1e-3)
    corrections = made["classifier.weight.next_corrections"]
    np.testing.assert_allclose(corrections, [0.1, 0.001], rtol=1e-6)


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "nesterov", "adam"])
def test_weight_decay_is_a_part_of_the_gradient(
    optimizer: Optimizer, library: KernelLibrary
) -> None:
    """A decay d is the gradient d · parameter, as PyTorch has it for all but AdamW."""
    plain = training_step(small_convolutional(), optimizer)
    decaying = plain.updating_with(weight_decay=0.25)
    update, name = op(plain, "stem.weight.update"), "stem.weight"
    start = start_values(plain)
    gradient = execute(plain, library, start)[update.reads[1]]
    states = [start[state].reshape(-1) for state in update.reads[2:]]
    parameter = start[name].reshape(-1)
    found, expected = (
        library.run(update.spec, [parameter, g.reshape(-1), *states], list(each.scalars.values()))
        for each, g in (
            (op(decaying, update.name), gradient),
            (update, gradient.reshape(-1) + 0.25 * parameter),
        )
    )
    for values, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(values, wanted, rtol=1e-5, atol=1e-6)


def test_an_optimizer_without_momentum_takes_none() -> None:
    with pytest.raises(InputError, match="the optimizer adam has no momentum"):
        training_step(small_convolutional(), "adam").updating_with(momentum=0.5)


def _is_state(name: str) -> bool:
    return name.endswith(("_moment", ".corrections"))


needs_pytorch = pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")


@needs_pytorch
@pytest.mark.parametrize(
    ("network", "loss"),
    [
        (small_convolutional, "convolutional"),
        (small_transformer, "transformer"),
        (small_mixture, "mixture"),
        (small_gated, "gated"),
        (small_hourglass, "hourglass"),
        (small_recurrent, "recurrent"),
    ],
)
def test_loss_and_gradients_agree_with_pytorch(
    network: Callable[[], Network],
    loss: str,
    library: KernelLibrary,
) -> None:
    from tests.support.networks import pytorch

    step = training_step(network())
    start = start_values(step)
    made = execute(step, library, start)
    found = gradients(step, made)
    masks = {
        op.layer: dropout_mask(step, library, op.layer)
        for op in step.ops
        if op.spec.kind == "dropout.forward"
    }
    expected_loss, expected = pytorch.loss_and_gradients(
        getattr(pytorch, loss), {**start, **masks}, set(found)
    )
    assert float(made["loss.loss"][0]) == pytest.approx(expected_loss, rel=1e-5)
    for name, gradient in found.items():
        np.testing.assert_allclose(
            gradient, expected[name].reshape(gradient.shape), rtol=1e-3, atol=1e-6, err_msg=name
        )


@needs_pytorch
@given(
    size=st.integers(1, 40),
    kernel=st.integers(1, 6),
    stride=st.integers(1, 7),
    padding=st.integers(0, 3),
)
def test_windows_of_ceil_mode_are_those_of_pytorch(
    size: int, kernel: int, stride: int, padding: int
) -> None:
    import torch

    assume(2 * padding <= kernel <= size + 2 * padding)
    net = Network("pool", 1)
    pooled = net.max_pool2d(
        "pool",
        net.input("image", 1, 1, size, size),
        kernel,
        stride=stride,
        padding=padding,
        ceil_mode=True,
    )
    expected = torch.nn.functional.max_pool2d(
        torch.zeros(1, 1, size, size), kernel, stride, padding, ceil_mode=True
    )
    assert pooled.shape == tuple(expected.shape)
