"""Gradient accumulation: one training step as several passes on parts of its batch.

A step on a batch of B samples becomes N forward and backward passes on B / N samples each, and one
update. The activations of one part are in RAM at a time, in place of those of all parts. It is one
graph: the passes follow each other in its given order, read the same parameters, and every gradient
of a parameter is added in place to the sum of those before it. Solver, referee and boards need
nothing else.

**What is exact.** Losses are means over the batch. Each part's loss and gradients have the share
1 / N (the scalar ``share``; a mean that is a sum with a factor keeps its factor), so that the sums
over the parts are the loss and the gradients of the whole batch, but for the rounding of another
order of sums. That holds only if no operation mixes samples. Batch norm in training mode does, as
its statistics are those of all samples, and so do lookups in the activations of all samples: such
networks are refused. Dropout draws other numbers than the step as a whole would, as every step
draws its own.

**Composed losses.** What is a sum or mean over samples is, of a part, its share of the whole. It
stays so through operations that are linear: sums, and products with what depends on no sample.
Whatever else is added to it, such as a penalty on weights, is added by every part, and therefore
multiplied by 1 / N. Any other operation on it, such as a root or the product of two, is refused.

**How a part is found.** Every value that depends on an input holds the samples one after the other:
an input does (samples are its first axis), and an operation on such values writes such a value if
it works on each sample by itself. For each family of operations, ``_sample_axis`` names the
attribute that counts samples, or rows or elements of samples; that attribute is divided by N. The
operands whose sizes are divided with it must be exactly those that hold samples. A copy or padding
must have the samples as its outermost axis, at the distance of one sample from each other.
A copy that repeats something for every sample repeats it less often. An operation of any other
family, or one that does not fit, is refused by its name.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from devices.operation import Operand, OpSpec
from devices.signatures.base import ELEMENTS
from networks.training.network import Layer, Network, NetworkError, Value

_SAMPLE_AXIS: Mapping[str, str] = {
    **dict.fromkeys(
        (
            *("conv2d", "dilated_conv2d", "conv_transpose2d", "max_pool2d", "average_pool2d"),
            *("global_average_pool", "upsample_nearest2d", "upsample_bilinear2d"),
            *("batch_norm_frozen", "group_norm"),
            *("attention_scores", "attention_context", "attention", "matmul"),
            *("lstm", "gru", "rnn_tanh", "rnn_relu"),
        ),
        "batch",
    ),
    **dict.fromkeys(
        (
            *("linear", "layer_norm", "rms_norm", "softmax", "embedding", "embedding_padded"),
            *("softmax_cross_entropy", "weighted_cross_entropy"),
        ),
        "rows",
    ),
    **dict.fromkeys(("concat", "cumulative_sum"), "outer"),
    "to_indices": "elements",
}
"""Attribute that is proportional to the number of samples, by family.

Of operations whose only attribute is the number of elements, it is that one; of those with a
repeated operand, the first axis that is not 1; of a single matrix product, the rows.
"""

_REPEATING = ("broadcast_add", "broadcast_multiply", "broadcast_select", "reduce", "rotary")
_COPYING = ("strided_copy", "pad")
_SUMS = ("add", "broadcast_add", "concat")
_PRODUCTS = ("multiply", "broadcast_multiply", "broadcast_select")
_LINEAR = (*_SUMS, *_COPYING, "add_number", "multiply_number", "reduce", "flatten")
_AXES = range(6)
_SEED_STRIDE = 0x85EBCA6B  # odd, and not that of steps (executor.c)


def part_of(name: str, number: int, parts: int) -> str:
    """Name of a layer or tensor in part ``number``, from 1 on, of ``parts``."""
    return name if parts == 1 else f"{name}@{number}"


def split(network: Network, parts: int) -> tuple[Network, ...]:
    """Split a network into passes on equal parts of its batch.

    Args:
        network: Forward pass with a loss.
        parts: Number of parts, of which the batch is a multiple.

    Returns:
        For each part a network with the same parameters, whose other tensors and layers have names
        of their own.

    Raises:
        NetworkError: The parts are not equal, or an operation mixes samples.
    """
    if parts == 1:
        return (network,)
    if network.batch % parts:
        raise NetworkError(
            f"{network.name}: {network.batch} samples cannot be split into {parts} equal parts"
        )
    smaller = _Split(network, parts).layers()
    return tuple(_numbered(network, smaller, number, parts) for number in range(1, parts + 1))


@dataclass
class _Split:
    """The layers of one part, under their own names."""

    network: Network
    parts: int
    _of_samples: set[str] = field(default_factory=set)
    """Values that hold the samples one after the other."""
    _shares: set[str] = field(default_factory=set)
    """Values of which those of the parts add up to that of the whole batch."""
    _made: dict[str, Layer] = field(default_factory=dict)
    """Layers of values that hold no samples, by the name of the value."""
    _repeated: dict[str, OpSpec] = field(default_factory=dict)
    """Smaller copies of these layers, by the name of the layer's result."""

    def layers(self) -> tuple[Layer, ...]:
        found = [self._smaller(layer) for layer in self.network.layers]
        assert self.network.loss is not None, "the step's derivation has looked"
        if self.network.loss.name not in self._shares:
            last = next(each for each in self.network.layers if self.network.loss in each.writes)
            raise self._mixing(last, "its result depends on no sample")
        return tuple(
            each
            for layer, spec in zip(self.network.layers, found, strict=True)
            for each in self._replaced(layer, self._repeated.get(layer.writes[0].name, spec))
        )

    def _smaller(self, layer: Layer) -> OpSpec:
        """The layer's operation on the samples of a part."""
        for value in layer.reads:
            if value.kind == "input":
                self._require_samples(value)
        if any(value.name in self._shares for value in layer.reads):
            self._require_linear(layer)
            self._shares.update(value.name for value in layer.writes)
            return layer.spec
        if not any(value.name in self._of_samples for value in layer.reads):
            self._made.update((value.name, layer) for value in layer.writes)
            return layer.spec
        if layer.spec.family in _COPYING:
            spec = self._smaller_copy(layer)
        else:
            spec = self._divided(layer, _sample_axis(layer.spec))
        self._require_apart(layer, spec)
        return spec

    def _require_samples(self, value: Value) -> None:
        if not value.shape or value.shape[0] % self.network.batch:
            raise NetworkError(
                f"{self.network.name}: the input {value.name} has shape {value.shape}; its first"
                f" axis must hold the {self.network.batch} samples"
            )
        self._of_samples.add(value.name)

    def _divided(self, layer: Layer, axis: str | None) -> OpSpec:
        if layer.spec.family == "batch_norm":
            raise self._mixing(layer, "it normalises with the statistics of all samples")
        if layer.spec.attributes.get("by_weight"):
            why = "its mean is divided by the weights of the labels of all samples"
            raise self._mixing(layer, why)
        if axis is None:
            raise self._mixing(layer, "it is not known to work on each sample by itself")
        a = layer.spec.attributes
        if a[axis] % self.network.batch:
            raise self._mixing(layer, f"its {axis} are not those of whole samples")
        if a.get("batch_first") == 0 and a["steps"] > 1:
            raise self._mixing(layer, "its sequences are not one after the other (batch_first)")
        divided = {axis: a[axis] // self.parts}
        if a.get("mask_batch", 0) > 1:
            divided["mask_batch"] = a["mask_batch"] // self.parts
        return OpSpec.of(layer.spec.kind, **{**a, **divided})

    def _smaller_copy(self, layer: Layer) -> OpSpec:
        a = layer.spec.attributes
        sample = a["source"] // self.network.batch
        outer = next((axis for axis in _AXES if a[f"size{axis}"] > 1), 0)
        size, stride = a[f"size{outer}"], a[f"stride{outer}"]
        each = size // self.network.batch
        within = a["offset"] + (each - 1) * stride
        within += sum((a[f"size{axis}"] - 1) * a[f"stride{axis}"] for axis in _AXES if axis > outer)
        if size % self.network.batch or each * stride != sample or within >= sample:
            raise self._mixing(layer, "its result does not hold the samples one after the other")
        sizes = {"source": a["source"] // self.parts, f"size{outer}": size // self.parts}
        return OpSpec.of(layer.spec.kind, **{**a, **sizes})

    def _require_apart(self, layer: Layer, spec: OpSpec) -> None:
        """Check that the operands that become smaller are those that hold samples."""
        for before, after, value in _operands(layer.spec.reads, spec.reads, layer.reads):
            if before.elements == after.elements:
                if value.name in self._of_samples:
                    raise self._mixing(layer, f"it reads {before.role} of all samples")
            elif value.name not in self._of_samples:
                self._repeat(layer, value)
        for before, after, value in _operands(layer.spec.writes, spec.writes, layer.writes):
            if before.elements != after.elements:
                self._of_samples.add(value.name)
            elif "share" in layer.scalars or layer.spec.family == "reduce":
                self._shares.add(value.name)
            else:
                raise self._mixing(layer, f"its {before.role} is one for all samples")

    def _require_linear(self, layer: Layer) -> None:
        """Check that shares of a sum over samples add up after the layer, too."""
        if any(value.name in self._of_samples for value in layer.reads):
            raise self._mixing(layer, "it takes a sum over samples to each of them")
        shares = sum(value.name in self._shares for value in layer.reads)
        family = layer.spec.family
        if family not in _LINEAR and not (family in _PRODUCTS and shares == 1):
            raise self._mixing(layer, "it is not linear, and takes a sum over samples")

    def _replaced(self, layer: Layer, spec: OpSpec) -> Iterator[Layer]:
        """The layer of a part, after those that make shares of what it adds to shares."""
        layer = self._resized(layer, spec)
        if self._shares.isdisjoint(value.name for value in layer.writes) or (
            self._shares.isdisjoint(value.name for value in layer.reads)
        ):
            yield layer
            return
        scalars = dict(layer.scalars)
        if "addend" in scalars:
            scalars["addend"] = scalars["addend"] / self.parts
        reads = list(layer.reads)
        if layer.spec.family in _SUMS:
            for number, value in enumerate(reads):
                if value.name not in self._shares:
                    share = self._share_of(layer, value)
                    reads[number] = share.writes[0]
                    yield share
        yield replace(layer, reads=tuple(reads), scalars=scalars)

    def _share_of(self, layer: Layer, value: Value) -> Layer:
        name = f"{layer.name}.share_of_{value.name}"
        spec = OpSpec.of("multiply_number.forward", elements=value.elements)
        output = Value(f"{name}.{spec.writes[0].role}", value.shape, "activation")
        return Layer(name, spec, (value,), (output,), {"factor": 1 / self.parts})

    def _repeat(self, layer: Layer, value: Value) -> None:
        """Let the layer that repeats something for every sample do so for the samples of a part."""
        made = self._made.get(value.name)
        if made is None or made.spec.family != "strided_copy":
            raise self._mixing(layer, f"it reads {value.name}, which holds no samples")
        a = made.spec.attributes
        outer = next((axis for axis in _AXES if a[f"size{axis}"] > 1), 0)
        if a[f"stride{outer}"] or a[f"size{outer}"] % self.network.batch:
            raise self._mixing(layer, f"it reads {value.name}, which holds no samples")
        size = a[f"size{outer}"] // self.parts
        self._repeated[value.name] = OpSpec.of(made.spec.kind, **{**a, f"size{outer}": size})

    def _resized(self, layer: Layer, spec: OpSpec) -> Layer:
        self._require_only_smaller(layer, spec)
        reads = (_resized(v, o) for o, v in zip(spec.reads, layer.reads, strict=True))
        writes = (_resized(v, o) for o, v in zip(spec.writes, layer.writes, strict=True))
        scalars = dict(layer.scalars)
        if "share" in scalars and layer.writes[0].name in self._shares:
            scalars["share"] = scalars["share"] / self.parts
        return replace(layer, spec=spec, reads=tuple(reads), writes=tuple(writes), scalars=scalars)

    def _require_only_smaller(self, layer: Layer, spec: OpSpec) -> None:
        """Check that no layer reads a repetition in its former size."""
        for before, after, value in _operands(layer.spec.reads, spec.reads, layer.reads):
            if value.name in self._repeated and before.elements == after.elements:
                raise self._mixing(layer, f"it reads {value.name} for all samples")

    def _mixing(self, layer: Layer, why: str) -> NetworkError:
        return NetworkError(
            f"{self.network.name}: the batch cannot be split at {layer.name}"
            f" ({layer.spec.kind}): {why}"
        )


def _sample_axis(spec: OpSpec) -> str | None:
    """Attribute that is proportional to the number of samples; None if none is known."""
    if spec.signature.attributes == ELEMENTS:
        return "elements"
    if spec.family in _REPEATING:
        return next((axis for axis, size in spec.attributes.items() if size > 1), "outer")
    a = spec.attributes
    if spec.family == "dropout_rows":  # with one row, there is a draw for all samples of a part
        return "rows" if a["rows"] > 1 else "inner"
    if spec.family == "matmul" and a["batch"] * a["heads"] == 1 and not a["left_transposed"]:
        return "rows"
    return _SAMPLE_AXIS.get(spec.family)


def _operands(
    before: tuple[Operand, ...], after: tuple[Operand, ...], values: tuple[Value, ...]
) -> Iterator[tuple[Operand, Operand, Value]]:
    return zip(before, after, values, strict=True)


def _resized(value: Value, operand: Operand) -> Value:
    if value.elements == operand.elements:
        return value
    times = value.elements // operand.elements
    first, *rest = value.shape
    whole = first % times == 0 and (first // times) * math.prod(rest) == operand.elements
    return replace(value, shape=(first // times, *rest) if whole else operand.shape)


def _numbered(network: Network, layers: tuple[Layer, ...], number: int, parts: int) -> Network:
    """The layers as part ``number``: with names and seeds of their own, but the same parameters."""

    def named(value: Value) -> Value:
        if value.kind == "parameter":
            return value
        return replace(value, name=part_of(value.name, number, parts))

    part = Network(network.name, network.batch // parts)
    for name, shape in network.inputs.items():
        of_part = (shape[0] // parts, *shape[1:]) if shape else ()
        part.inputs[part_of(name, number, parts)] = of_part
    for layer in layers:
        scalars = dict(layer.scalars)
        if "seed" in scalars:
            scalars["seed"] = float((int(scalars["seed"]) + (number - 1) * _SEED_STRIDE) % 2**32)
        part.layers.append(
            replace(
                layer,
                name=part_of(layer.name, number, parts),
                reads=tuple(map(named, layer.reads)),
                writes=tuple(map(named, layer.writes)),
                scalars=scalars,
            )
        )
    part.loss = None if network.loss is None else named(network.loss)
    part.one = network.one
    return part
