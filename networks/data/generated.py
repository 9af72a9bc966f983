"""Generated, learnable data sets for any network, identical everywhere for the same seed.

Every class has smooth patterns, one for each real-valued input; a sample is the pattern of its
class, slightly shifted, plus noise. The first input of labels states the classes; labels of another
input are the same numbers, modulo its own number of classes. In a network without labels, a sample
is a mixture of patterns instead, and the target is a mixture with the same shares, so that samples
lie on a surface of a few dimensions. About half of a sample's tokens are arbitrary, the others are
preferred by its class.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from devices.errors import Defect
from networks.data.batches import Batches
from networks.data.inputs import SampleInput, as_addend, constant_inputs, sample_inputs
from networks.training import TrainingStep
from networks.training.draws import below, permutation, uniform

_FACTORS = 4
"""Dimensions of the surface that samples without a class lie on."""

_KNOTS = 4
"""Knots along an axis; a pattern has no finer detail."""

_NOISE = 0.5
"""Amplitude of the noise, as a fraction of the largest value at a knot."""

_LARGEST_SHIFT = 1 / 16
"""Largest shift of a pattern, as a fraction of the axis."""


def generated_batches(step: TrainingStep, samples: int, seed: int) -> Batches:
    """Generate labelled samples for a training step.

    Each real-valued input has mean 0 and variance 1 over all samples, or is from 0 to 1 if its
    numbers are probabilities.

    Args:
        step: Training step whose inputs are generated.
        samples: Number of samples.
        seed: Seed of all random numbers.

    Returns:
        The samples, in batches of ``step.batch``.

    Raises:
        DataError: An input does not divide into samples.
    """
    inputs = sample_inputs(step)
    classes = next((each.bound for each in inputs if each.use == "labels"), None)
    labels = None if classes is None else _labels(samples, classes, seed)
    arrays: dict[str, NDArray[Any]] = {}
    for each in inputs:
        if each.use == "truth":
            arrays[each.name] = as_addend(_truths(each, samples, seed))
        elif each.use in {"mask", "shown"}:
            arrays[each.name] = np.zeros((samples, *each.shape), np.float32)
        elif each.bound is None:
            shares = [_shares(labels, sample, seed) for sample in range(samples)]
            arrays[each.name] = _real_numbers(each, shares, seed)
        else:
            arrays[each.name] = _whole_numbers(each, each.bound, samples, classes, labels, seed)
    return Batches(step.batch, arrays, constant_inputs(step), step.accumulate)


def _labels(samples: int, classes: int, seed: int) -> NDArray[np.int64]:
    """Draw labels: every class once, in random order, then every class once again, and so on."""
    rounds = range(-(-samples // classes))
    return np.concatenate([permutation(classes, "labels", seed, each) for each in rounds])[:samples]


_Shares = dict[int, float]
"""Weight of each pattern in a sample, by the pattern's number."""


def _shares(labels: NDArray[np.int64] | None, sample: int, seed: int) -> _Shares:
    if labels is not None:
        return {int(labels[sample]): 1.0}
    return dict(enumerate(map(float, uniform((_FACTORS,), "shares", seed, sample))))


# --- real numbers -------------------------------------------------------------------------------


def _real_numbers(each: SampleInput, shares: list[_Shares], seed: int) -> NDArray[np.float32]:
    values = np.empty((len(shares), *each.shape), np.float32)
    for sample, of_patterns in enumerate(shares):
        value = np.zeros(each.shape)
        for number, share in of_patterns.items():
            value += share * _pattern(each.shape, each.name, number, seed)
        if each.use == "features":
            value = _noisy_sample(value, each.name, sample, seed)
        values[sample] = value
    if each.are_probabilities:
        values -= values.min()
        largest = values.max()
        return values / largest if largest > 0 else values
    values -= np.float32(values.mean(dtype=np.float64))
    deviation = np.float32(values.std(dtype=np.float64))
    return values / deviation if deviation > 0 else values


def _pattern(shape: tuple[int, ...], name: str, number: int, seed: int) -> NDArray[np.float64]:
    """Draw a pattern: random numbers at knots, interpolated smoothly between them.

    It is periodic along the last two axes, and independent along the others.
    """
    smooth = len(shape[-2:])
    leading = shape[: len(shape) - smooth]
    knots = tuple(min(_KNOTS, size) for size in shape[-2:])
    values = uniform((*leading, *knots), "pattern", seed, name, number).astype(np.float64)
    for axis in range(len(leading), len(shape)):
        values = _interpolated(values, shape[axis], axis)
    return values


def _interpolated(values: NDArray[np.float64], size: int, axis: int) -> NDArray[np.float64]:
    knots = values.shape[axis]
    position: NDArray[np.float64] = np.arange(size) * knots / size
    before = position.astype(np.int64)
    way = position - before
    weight = way * way * (3.0 - 2.0 * way)
    along_axis = weight.reshape((-1,) + (1,) * (values.ndim - axis - 1))
    low = np.take(values, before, axis)
    high = np.take(values, (before + 1) % knots, axis)
    result: NDArray[np.float64] = low + along_axis * (high - low)
    return result


def _noisy_sample(
    value: NDArray[np.float64], name: str, sample: int, seed: int
) -> NDArray[np.float64]:
    """Shift a pattern by a random amount and add noise, to make a sample of it."""
    axes = range(max(0, value.ndim - 2), value.ndim)
    for axis in axes:
        largest = int(value.shape[axis] * _LARGEST_SHIFT)
        (shift,) = below(2 * largest + 1, 1, "shift", seed, name, sample, axis)
        value = np.roll(value, int(shift) - largest, axis)
    noise = uniform(value.shape, "noise", seed, name, sample).astype(np.float64)
    return value + _NOISE * noise


def _truths(each: SampleInput, samples: int, seed: int) -> NDArray[np.bool_]:
    """Draw what is true from a random place on along the last axis that has several, as padding is.

    Neither all is true nor all is false along it.
    """
    shape = (samples, *each.shape)
    axis = max((axis for axis, size in enumerate(shape) if axis and size > 1), default=0)
    found: NDArray[np.bool_]
    if axis == 0:
        found = below(2, samples, "truth", seed, each.name) == 1
    else:
        length, rows = shape[axis], math.prod(shape[:axis])
        found = np.arange(length) >= 1 + below(length - 1, rows, "truth", seed, each.name)[:, None]
    return found.reshape(shape)


# --- whole numbers ------------------------------------------------------------------------------


def _whole_numbers(
    each: SampleInput,
    bound: int,
    samples: int,
    classes: int | None,
    labels: NDArray[np.int64] | None,
    seed: int,
) -> NDArray[np.int32]:
    values = np.empty((samples, *each.shape), np.int32)
    for sample in range(samples):
        label = 0 if labels is None else int(labels[sample])
        match each.use:
            case "labels":
                values[sample] = label % bound
            case "positions":
                values[sample] = np.arange(math.prod(each.shape)).reshape(each.shape)
            case "numbers":
                values[sample] = 1
            case _:
                key = (seed, each.name, sample)
                values[sample] = _tokens(each.shape, bound, label, classes or 1, key)
    if values.max(initial=0) >= bound:  # a kernel would write out of bounds
        raise Defect(f"a number generated for {each.name} is {values.max()}, not below {bound}")
    return values


def _tokens(
    shape: tuple[int, ...], vocabulary: int, label: int, classes: int, key: tuple[str | int, ...]
) -> NDArray[np.int64]:
    count = math.prod(shape)
    preferred = max(1, vocabulary // classes)
    first = label * vocabulary // classes
    of_class = first + below(preferred, count, "preferred tokens", *key)
    anything = below(vocabulary, count, "tokens", *key)
    from_class = below(2, count, "from class", *key) == 1
    return np.where(from_class, of_class, anything).reshape(shape)
