"""Registry of built-in networks by name."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import get_args

from devices.errors import InputError
from networks.kinds import Place
from networks.models import mlp, resnet, tiny, transformer, vgg
from networks.training import (
    Network,
    Optimizer,
    TrainingStep,
    training_step,
    with_parameters_in_storage,
)


class ModelError(InputError):
    """There is no such model, optimizer or batch size; the message lists the allowed ones."""


# Functions from a batch size to the forward pass and the loss.
_MODELS: Mapping[str, Callable[[int], Network]] = {
    "linear": mlp.linear,
    "vgg16": vgg.vgg16,
    "vgg16_cifar": vgg.vgg16_cifar,
    "resnet18": resnet.resnet18,
    "resnet18_cifar": resnet.resnet18_cifar,
    "resnet50": resnet.resnet50,
    "transformer": transformer.transformer,
    "bert": transformer.bert,
    "resnet8": tiny.resnet8,
    "dscnn": tiny.dscnn,
    "mobilenet": tiny.mobilenet,
    "autoencoder": tiny.autoencoder,
    "digits": tiny.digits,
}

_OPTIMIZERS: Mapping[str, Optimizer] = {name: name for name in get_args(Optimizer)}


def model_names() -> tuple[str, ...]:
    """Names of the built-in networks."""
    return tuple(_MODELS)


def build_model(
    name: str, batch: int = 1, optimizer: str = "sgd", parameters_in: Place = "ram"
) -> TrainingStep:
    """Build one training step of a built-in network.

    Args:
        name: One of :func:`model_names`.
        batch: Samples in a step, at least 1.
        optimizer: ``sgd`` or ``momentum``.
        parameters_in: Home of parameters and optimizer state between steps.

    Returns:
        The training step.

    Raises:
        ModelError: There is no such network or optimizer, or ``batch`` is below 1.
    """
    if name not in _MODELS:
        near = difflib.get_close_matches(name, _MODELS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"allowed: {', '.join(_MODELS)}"
        raise ModelError(f"no model is named {name!r}; {hint}")
    if batch < 1:
        raise ModelError(f"{name}: the batch size is {batch}; it must be at least 1")
    if optimizer not in _OPTIMIZERS:
        allowed = ", ".join(_OPTIMIZERS)
        raise ModelError(f"{name}: no optimizer is named {optimizer!r}; allowed: {allowed}")
    step = training_step(_MODELS[name](batch), _OPTIMIZERS[optimizer])
    return with_parameters_in_storage(step) if parameters_in == "storage" else step
