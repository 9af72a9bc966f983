"""Slices: a training step of which weights, or activations too, are in parts.

An operation of a layer has its whole weight in RAM, and an update has the weight, its gradient and
the optimizer's state. That is more than a small board has, whatever is recomputed or paged. A step
in slices has *parts* of such a weight: tensors of their own, each with some output and input
channels (or features) and with their own part of the gradient and of the state. Every operation on
them becomes a chain of operations, one for each part. Solver, referee and boards see tensors and
operations, and need nothing else. Parts of activations come first
(:mod:`networks.training.channels.partition`), then those of weights that are still whole and larger
than the limit (:mod:`networks.training.channels.weights`).

**What a chain is.** Each part of a forward operation adds to its channels of the layer's one
result, in place of that result as the parts before have left it. The parts of an input gradient are
terms of one sum, added in place in the order of the output channels. That of a convolution may be
summed for every tap apart (the *columns*), for the input channels of the same parts, and is folded
when the sum is whole. Each part of a parameter gradient is a tensor of its own, which its own
update reads, so that the whole gradient never exists. A sum over parts is made in the order in
which the whole operation makes it: all values are the same, bit for bit, as those of the step
without slices.

**Which layers.** Those with a weight that is larger than the limit, if nothing but convolutions of
one group, linear layers, embeddings, sums of gradients and updates touches it. An embedding's
weight is its table, in parts of some rows; a table of which a step brings only the rows that it
reads (:mod:`networks.training.home`) stays whole. A layer stays whole as well if none of its
operations is larger than the largest one outside of such layers, which no slice makes smaller.

**Recurrent layers** are cut along another axis: where activations are limited, those with larger
gates are unrolled (:mod:`networks.training.unrolling`) before anything else is cut. The promise of
equal bits is then that of the step with unrolled layers.

**The order** given to the solver is, in the backward pass, part by part: input gradient, parameter
gradient, update. A part of the weight is then read from storage once in that pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from devices.quantities import Slices
from networks.training.channels.partition import Partition
from networks.training.channels.rewriting import in_layouts
from networks.training.channels.weights import weight_layouts
from networks.training.derive import training_step
from networks.training.home import with_parameters_in_storage
from networks.training.order import OperationCount
from networks.training.step import TrainingStep
from networks.training.unrolling import unrolled


def sliced(whole: TrainingStep, slices: Slices) -> TrainingStep:
    """Put what is large of a step into parts.

    Args:
        whole: Training step.
        slices: Most bytes of a weight in a part, and of an activation; a part has at least one row
            or channel. Layers between parts of activations are cut together with these.

    Returns:
        The step in parts, of which ``whole`` is the given step, with its recurrent layers unrolled.

    Raises:
        NetworkError: The parts take too many operations.
    """
    whole = step = _unrolled(whole, slices)
    if slices.activations is not None:
        layouts = Partition(step, slices.activations, slices.weights).layouts
        step = in_layouts(step, layouts, OperationCount(whole, slices))
    layouts = weight_layouts(step, slices.weights)
    step = in_layouts(step, layouts, OperationCount(whole, slices))
    return replace(step, slices=slices, whole=whole)


def _unrolled(step: TrainingStep, slices: Slices) -> TrainingStep:
    if slices.activations is None:
        return step
    network = unrolled(step.network, slices.activations)
    if network is step.network:
        return step
    derived = training_step(network, step.optimizer, step.file, step.accumulate)
    if step.parameters_in == "storage":
        derived = with_parameters_in_storage(derived)
    ops = tuple(OperationCount(step, slices).of(derived.ops))
    return replace(step, ops=ops, tensors=derived.tensors, network=network, unrolled=True)


def parted(
    step: TrainingStep, values: Mapping[str, NDArray[np.float32]]
) -> dict[str, NDArray[np.float32]]:
    """Values by the names of the step's own tensors, flat: the inverse of :func:`joined`.

    Args:
        step: Training step.
        values: Flat values by whole tensor, of any of the step's tensors.
    """
    found: dict[str, NDArray[np.float32]] = {}
    for name, tensor in step.tensor.items():
        part = tensor.part
        whole = values.get(name if part is None else part.whole)
        if whole is not None:
            found[name] = whole if part is None else part.of(whole).ravel()
    return found


def joined(
    step: TrainingStep, values: Mapping[str, NDArray[np.float32]]
) -> dict[str, NDArray[np.float32]]:
    """Values by the names of whole tensors: those that are in parts are put together, flat.

    Args:
        step: Training step.
        values: Values by tensor, with all parts or none of each whole tensor.
    """
    found: dict[str, NDArray[np.float32]] = {}
    for name, value in values.items():
        part = None if (tensor := step.tensor.get(name)) is None else tensor.part
        if part is None:
            found[name] = value
            continue
        if part.whole not in found:
            share, whole = part.share
            found[part.whole] = np.empty(value.size // share * whole, value.dtype)
        place = part.of(found[part.whole])
        place[:] = value.reshape(place.shape)
    return found
