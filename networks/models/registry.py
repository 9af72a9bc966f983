"""Registry of built-in networks by name."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import get_args

from pydantic import ValidationError

from devices.documents.explain import explain
from devices.documents.regular import require_regular
from devices.errors import InputError
from devices.operation import Loss, OperationError
from devices.profile import ProfiledNetwork
from devices.quantities import Slices
from networks.kinds import Place
from networks.models import mlp, resnet, tiny, transformer, vgg
from networks.training import (
    Network,
    Optimizer,
    TrainingStep,
    training_step,
    with_parameters_in_storage,
)
from networks.training.codecs import with_codecs
from networks.training.lora import Lora, add_adapters
from networks.training.selection import select_trained
from networks.training.slicing import sliced
from networks.training.step import NetworkFile


class ModelError(InputError):
    """There is no such model, optimizer or batch size; the message lists the allowed ones."""


class ModelTooLarge(ModelError):
    """A built-in network has operations that are too large at the batch size asked for."""


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

_EXPORTED, _ONNX = ".pt2", ".onnx"
_OPTIMIZERS: Mapping[str, Optimizer] = {name: name for name in get_args(Optimizer)}


def model_names() -> tuple[str, ...]:
    """Names of the built-in networks."""
    return tuple(_MODELS)


def build_model(
    name: str,
    batch: int | None = None,
    optimizer: str = "sgd",
    parameters_in: Place = "ram",
    *,
    loss: Loss | None = None,
    train: Sequence[str] | None = None,
    accumulate: int = 1,
    lora: str | None = None,
    slices: Slices | None = None,
    codecs: bool = False,
) -> TrainingStep:
    """Build one training step of a built-in network, or of one in a file.

    Args:
        name: One of :func:`model_names`, or the path of a file ``*.pt2`` that ``torch.export.save``
            wrote, or of an ONNX file ``*.onnx``.
        batch: Samples in a step, at least 1. A file ``*.pt2`` has a fixed number of samples, as an
            ONNX file may have; another one, and a built-in network, has one unless stated.
        optimizer: How parameters are updated.
        parameters_in: Home of parameters and optimizer state between steps.
        loss: Loss to add to a file's network that returns predictions.
        train: Which parameters are trained, as
            :func:`~networks.training.selection.select_trained` reads it. If None, a file states it
            itself (``requires_grad``), and built-in networks train all.
        accumulate: Number of parts of the batch, whose gradients are added up
            (:mod:`networks.training.accumulation`).
        lora: Rank of low-rank adapters, or rank and pattern (``8:*query*``), as
            :class:`~networks.training.lora.Lora` parses it. All else is frozen then, except for
            what ``train`` selects.
        slices: Most bytes of a weight, and of an activation, that an operation has in RAM: layers
            with larger ones are done in parts (:mod:`networks.training.slicing`). None: all layers
            are done whole.
        codecs: Keep bits and places for the backward pass, where it needs no more of an activation
            (:mod:`networks.training.codecs`).

    Returns:
        The training step.

    Raises:
        ModelError: There is no such network or optimizer, ``batch`` is below 1 or not that of the
            file, or ``loss`` is given for a built-in network.
        ModelTooLarge: A built-in network has an operation that is too large at this batch size.
        NetworkError: ``train`` or ``lora`` selects nothing, or the batch cannot be split.
        ExportError: The file cannot be read, or has operations that cannot be trained here.
    """
    if optimizer not in _OPTIMIZERS:
        allowed = ", ".join(_OPTIMIZERS)
        raise ModelError(f"{name}: no optimizer is named {optimizer!r}; allowed: {allowed}")
    if name.endswith((_EXPORTED, _ONNX)):
        network, file = _from_file(name, batch, loss)
    elif loss is not None:
        raise ModelError(f"{name}: has a loss already; only a file's network can be given one")
    else:
        network, file = _built_in(name, batch), None
    if train is not None or lora is not None:
        select_trained(network, train or ())
    adapters = () if lora is None else add_adapters(network, Lora.parse(lora))
    step = replace(
        training_step(network, _OPTIMIZERS[optimizer], file, accumulate),
        loss=loss,
        train=None if train is None else tuple(train),
        lora=lora,
        adapters=adapters,
    )
    if parameters_in == "storage":
        step = with_parameters_in_storage(step)
    if slices is not None:
        step = sliced(step, slices)
    return with_codecs(step) if codecs else step


def step_of(network: ProfiledNetwork, parameters_in: Place = "ram") -> TrainingStep:
    """Build the training step of a network that a profile names, as :func:`build_model` does."""
    return build_model(
        network.model,
        network.batch,
        network.optimizer,
        parameters_in,
        loss=network.loss,
        train=network.train,
        accumulate=network.accumulate or 1,
        lora=network.lora,
        slices=network.slices,
        codecs=network.codecs or False,
    )


def profiled_network(model: str, step: TrainingStep) -> ProfiledNetwork:
    """The record, in a profile, of a training step that :func:`build_model` made from ``model``.

    Raises:
        ModelError: A profile cannot state it, for example for a control character in a name.
    """
    try:
        return ProfiledNetwork(
            model=model,
            batch=step.batch,
            optimizer=step.optimizer,
            loss=step.loss,
            train=step.train,
            accumulate=step.accumulate if step.accumulate > 1 else None,
            slices=step.slices,
            codecs=True if step.codecs else None,
            lora=step.lora,
        )
    except ValidationError as error:
        raise ModelError(explain(error, ProfiledNetwork, "the network")) from None


def file_sha256(path: Path) -> str:
    """Hash of a network's file, as the training step that :func:`build_model` makes of it has it.

    The data that an ONNX file keeps in other files count, too.

    Raises:
        OSError: The file cannot be read.
        ExportError: An ONNX file is damaged, or lacks data.
    """
    if path.name.endswith(_ONNX):
        from networks.onnx.file import onnx_sha256

        return onnx_sha256(path)
    require_regular(path)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _built_in(name: str, batch: int | None) -> Network:
    if name not in _MODELS:
        near = difflib.get_close_matches(name, _MODELS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"allowed: {', '.join(_MODELS)}"
        raise ModelError(f"no model is named {name!r}; {hint}, or a file *{_EXPORTED} or *{_ONNX}")
    if batch is not None and batch < 1:
        raise ModelError(f"{name}: the batch size is {batch}; it must be at least 1")
    try:
        return _MODELS[name](batch or 1)
    except OperationError as error:
        raise ModelTooLarge(
            str(error),
            operation=f"{name} with batch {batch}",
            remedy="choose a smaller batch (--batch)",
        ) from error


def _from_file(name: str, batch: int | None, loss: Loss | None) -> tuple[Network, NetworkFile]:
    if name.endswith(_ONNX):
        from networks.onnx import read_onnx

        network, file = read_onnx(Path(name), batch, loss)
    else:
        from networks.exported import read_network

        network, file = read_network(Path(name), loss)
    if batch not in {None, network.batch}:
        raise ModelError(
            f"{name}: was exported with {network.batch} samples in a step, not {batch}; leave out"
            " the batch size, or export with inputs of that size"
        )
    return network, file
