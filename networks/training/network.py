"""Network: a forward pass described layer by layer.

Each method appends one operation (``attention`` several) and returns its output, which later layers
read. Nothing is computed: a :class:`Value` is a name with a shape.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from devices.errors import InputError
from devices.operation import OpSpec
from networks.kinds import TensorKind

Pair: TypeAlias = int | tuple[int, int]
Padding: TypeAlias = Pair | Literal["same"]
Cell: TypeAlias = Literal["lstm", "gru", "rnn_tanh", "rnn_relu"]
GATES: Mapping[Cell, int] = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
"""Gates of each cell of a recurrent layer."""

# Added to variances before the square root (PyTorch's default for both norms).
NORM_EPSILON = 1e-5
# Share of the new batch in the running statistics (Ioffe and Szegedy 2015; PyTorch's default).
STATISTICS_MOMENTUM = 0.1
# Scalars of a loss whose batch is not split.
WHOLE_LOSS = {"share": 1.0}


class NetworkError(InputError):
    """The inputs of a layer do not fit it; the message names layer and shapes."""


@dataclass(frozen=True)
class Value:
    """A tensor of the forward pass. ``trained`` marks the parameters that get an update."""

    name: str
    shape: tuple[int, ...]
    kind: TensorKind
    trained: bool = False

    @property
    def elements(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class Layer:
    """One operation of the forward pass, with its operands in the signature's order.

    ``stops_gradient``: the results count as constants in the backward pass.
    """

    name: str
    spec: OpSpec
    reads: tuple[Value, ...]
    writes: tuple[Value, ...]
    scalars: Mapping[str, float]
    stops_gradient: bool = False

    @property
    def detaches(self) -> bool:
        """Whether the result is the operand itself, through which no gradient flows."""
        return self.stops_gradient and self.spec.family == "flatten"


class Network:
    """A forward pass on ``batch`` samples.

    Names of layers and inputs must be distinct; tensors are named after the layer and the operand
    (``stem.conv.weight``, ``stem.conv.output``). A method raises :class:`NetworkError` for a name
    that is taken, or inputs that do not fit.
    """

    def __init__(self, name: str, batch: int) -> None:
        self.name = name
        self.batch = batch
        self.layers: list[Layer] = []
        self.inputs: dict[str, tuple[int, ...]] = {}
        """Shapes of inputs as samples have them; a layer may read them in another shape."""
        self.truths: set[str] = set()
        """Inputs that are true or false in samples. The step has 0 where they are true, else
        -infinity, as a mask of attention."""
        self.loss: Value | None = None
        self.one: Value | None = None
        """The number 1, the gradient of a loss that is composed; not needed for a single one."""
        self.trainable: Set[str] | None = None
        """Names of the parameters that can be trained; None if all can be. Others are buffers and
        constants."""
        self._names: set[str] = set()
        self._tensors: set[str] = set()
        self._dropouts = 0

    def input(self, name: str, *shape: int) -> Value:
        """Add an input of the step: samples, labels or indices."""
        self._claim(name)
        self.inputs[name] = shape
        return Value(name, shape, "input")

    # --- layers with parameters ---------------------------------------------------------------

    def conv2d(
        self,
        name: str,
        x: Value,
        out_channels: int,
        kernel: Pair,
        *,
        stride: Pair = 1,
        padding: Padding = 0,
        groups: int = 1,
        bias: bool = False,
    ) -> Value:
        """Append a 2-D convolution of an image [batch, channels, height, width].

        ``padding`` is symmetric, or ``"same"``: output size = ⌈input size / stride⌉, with the odd
        row or column at the bottom or right, as in TensorFlow.
        """
        batch, channels, height, width = self._image(name, x)
        spec = OpSpec.of(
            "conv2d.forward",
            batch=batch,
            in_channels=channels,
            in_height=height,
            in_width=width,
            out_channels=out_channels,
            **_window(height, width, kernel, stride, padding),
            groups=groups,
            bias=int(bias),
        )
        return self._layer(name, spec, x)

    def conv_transpose2d(
        self,
        name: str,
        x: Value,
        out_channels: int,
        kernel: Pair,
        *,
        stride: Pair = 1,
        padding: Pair = 0,
        output_padding: Pair = 0,
        groups: int = 1,
        bias: bool = False,
    ) -> Value:
        """Append a transposed 2-D convolution of an image [batch, channels, height, width].

        Output size = (input size - 1) · stride - 2 · padding + kernel + ``output_padding``, which
        is smaller than the stride. The weight is [in channels, out channels / groups, kernel].
        """
        batch, channels, height, width = self._image(name, x)
        kernel_height, kernel_width = _pair(kernel)
        stride_height, stride_width = _pair(stride)
        pad_top, pad_left = _pair(padding)
        more_rows, more_columns = _pair(output_padding)
        if not (0 <= more_rows < stride_height and 0 <= more_columns < stride_width):
            raise NetworkError(
                f"{name}: output_padding is {output_padding}, it must be smaller than the stride"
                f" {stride}"
            )
        spec = OpSpec.of(
            "conv_transpose2d.forward",
            batch=batch,
            in_channels=channels,
            in_height=height,
            in_width=width,
            out_channels=out_channels,
            out_height=(height - 1) * stride_height - 2 * pad_top + kernel_height + more_rows,
            out_width=(width - 1) * stride_width - 2 * pad_left + kernel_width + more_columns,
            kernel_height=kernel_height,
            kernel_width=kernel_width,
            stride_height=stride_height,
            stride_width=stride_width,
            pad_top=pad_top,
            pad_left=pad_left,
            groups=groups,
            bias=int(bias),
        )
        return self._layer(name, spec, x)

    def linear(self, name: str, x: Value, out_features: int, *, bias: bool = True) -> Value:
        """Append a linear layer over the last axis."""
        *leading, in_features = x.shape
        spec = OpSpec.of(
            "linear.forward",
            rows=math.prod(leading),
            in_features=in_features,
            out_features=out_features,
            bias=int(bias),
        )
        return self._layer(name, spec, x, shape=(*leading, out_features))

    def batch_norm(
        self,
        name: str,
        x: Value,
        *,
        epsilon: float = NORM_EPSILON,
        momentum: float = STATISTICS_MOMENTUM,
    ) -> Value:
        """Append a batch norm over all axes but the second, in training mode.

        It normalises with the batch's statistics, and updates the running ones once a step;
        ``momentum`` is the share of the batch in them.
        """
        sizes = _channels(x)
        channels = sizes["channels"]
        spec = OpSpec.of("batch_norm.forward", **sizes)
        output = self._layer(name, spec, x, shape=x.shape, scalars={"epsilon": epsilon})
        _, mean, variance = self.layers[-1].writes
        running_mean = Value(f"{name}.running_mean", (channels,), "parameter")
        running_variance = Value(f"{name}.running_variance", (channels,), "parameter")
        self.append(
            name,
            OpSpec.of("batch_norm.statistics_update", **sizes),
            (mean, variance, running_mean, running_variance),
            scalars={"momentum": momentum},
        )
        return output

    def batch_norm_frozen(self, name: str, x: Value, *, epsilon: float = NORM_EPSILON) -> Value:
        """Append a batch norm over all axes but the second, with frozen statistics.

        It normalises with a mean and a variance that no step changes, as PyTorch's does in eval
        mode. Scale and shift are trained.
        """
        self._claim(name)
        spec = OpSpec.of("batch_norm_frozen.forward", **_channels(x))
        parameters = tuple(
            Value(
                f"{name}.{operand.role}",
                operand.shape,
                "parameter",
                trained=operand.role in ("scale", "shift"),
            )
            for operand in spec.reads[1:]
        )
        scalars = {"epsilon": epsilon}
        return self.append(name, spec, (x, *parameters), shape=x.shape, scalars=scalars)

    def layer_norm(self, name: str, x: Value, *, epsilon: float = NORM_EPSILON) -> Value:
        """Append a layer norm over the last axis."""
        *leading, features = x.shape
        spec = OpSpec.of("layer_norm.forward", rows=math.prod(leading), features=features)
        return self._layer(name, spec, x, shape=x.shape, scalars={"epsilon": epsilon})

    def rms_norm(self, name: str, x: Value, *, epsilon: float = NORM_EPSILON) -> Value:
        """Append an RMS norm over the last axis."""
        *leading, features = x.shape
        spec = OpSpec.of("rms_norm.forward", rows=math.prod(leading), features=features)
        return self._layer(name, spec, x, shape=x.shape, scalars={"epsilon": epsilon})

    def group_norm(
        self, name: str, x: Value, groups: int, *, epsilon: float = NORM_EPSILON
    ) -> Value:
        """Append a group norm: channels, the second axis, are normalised in ``groups`` groups."""
        spec = OpSpec.of("group_norm.forward", **_channels(x), groups=groups)
        return self._layer(name, spec, x, shape=x.shape, scalars={"epsilon": epsilon})

    def embedding(self, name: str, indices: Value, vocabulary: int, features: int) -> Value:
        spec = OpSpec.of(
            "embedding.forward", rows=indices.elements, vocabulary=vocabulary, features=features
        )
        return self._layer(name, spec, indices, shape=(*indices.shape, features))

    def recurrent(
        self, name: str, cell: Cell, x: Value, hidden: int, *, reverse: bool = False
    ) -> Value:
        """Append a recurrent layer over a sequence [batch, steps, features].

        It begins with states of zeros, with ``reverse`` at the end of the sequence. Gates are in
        PyTorch's order; input and hidden state have a bias each.
        """
        batch, steps, _ = x.shape
        spec = OpSpec.of(
            f"{cell}.forward",
            **{"steps": steps, "batch": batch, "hidden": hidden, "bias": 1, "batch_first": 1},
            **{"reverse": int(reverse), "initial_hidden": 0},
            **({"initial_cell": 0, "final_cell": 0} if cell == "lstm" else {}),
        )
        return self._layer(name, spec, self.linear(f"{name}.input", x, GATES[cell] * hidden))

    # --- layers without parameters ------------------------------------------------------------

    def gather(self, name: str, indices: Value, x: Value) -> Value:
        """Append a lookup of rows (last axis) of ``x``: an embedding in an activation."""
        *leading, features = x.shape
        spec = OpSpec.of(
            "embedding.forward",
            rows=indices.elements,
            vocabulary=math.prod(leading),
            features=features,
        )
        return self._layer(name, spec, indices, x, shape=(*indices.shape, features))

    def relu(self, name: str, x: Value) -> Value:
        return self._elementwise(name, "relu", x)

    def gelu(self, name: str, x: Value) -> Value:
        return self._elementwise(name, "gelu", x)

    def tanh(self, name: str, x: Value) -> Value:
        return self._elementwise(name, "tanh", x)

    def sigmoid(self, name: str, x: Value) -> Value:
        return self._elementwise(name, "sigmoid", x)

    def silu(self, name: str, x: Value) -> Value:
        """Append x · sigmoid(x), also called swish."""
        return self._elementwise(name, "silu", x)

    def hard_sigmoid(self, name: str, x: Value) -> Value:
        """Append (x + 3) / 6, but at least 0 and at most 1."""
        return self._elementwise(name, "hard_sigmoid", x)

    def hard_swish(self, name: str, x: Value) -> Value:
        """Append x · hard_sigmoid(x)."""
        return self._elementwise(name, "hard_swish", x)

    def clamp(self, name: str, x: Value, lowest: float, highest: float) -> Value:
        """Append x, but at least ``lowest`` and at most ``highest``; ReLU6 is (0, 6).

        At a bound the gradient is zero, as that of PyTorch's hardtanh.
        """
        if not -math.inf < lowest < highest < math.inf:
            raise NetworkError(
                f"{name}: bounds are {lowest:g} and {highest:g}, they must be finite and in order"
            )
        scalars = {"lowest": lowest, "highest": highest}
        return self._elementwise(name, "clamp", x, scalars=scalars)

    def leaky_relu(self, name: str, x: Value, slope: float) -> Value:
        """Append x where it is positive, and ``slope`` · x elsewhere."""
        if not 0 <= slope < math.inf:
            raise NetworkError(f"{name}: slope is {slope:g}, it must be finite and at least 0")
        return self._elementwise(name, "leaky_relu", x, scalars={"slope": slope})

    def add(self, name: str, left: Value, right: Value) -> Value:
        self._same_shape(name, left, right)
        return self._elementwise(name, "add", left, right)

    def multiply(self, name: str, left: Value, right: Value) -> Value:
        """Append the product of two values of the same shape, element by element."""
        self._same_shape(name, left, right)
        return self._elementwise(name, "multiply", left, right)

    def dropout(self, name: str, x: Value, probability: float) -> Value:
        """Append a dropout; each dropout of a network has its own seed."""
        self._dropouts += 1
        spec = OpSpec.of("dropout.forward", elements=x.elements)
        scalars = {"probability": probability, "seed": float(self._dropouts)}
        return self._layer(name, spec, x, shape=x.shape, scalars=scalars)

    def max_pool2d(
        self,
        name: str,
        x: Value,
        kernel: Pair,
        *,
        stride: Pair,
        padding: Padding = 0,
        ceil_mode: bool = False,
    ) -> Value:
        """Append the maxima of windows.

        With ``ceil_mode``, windows at the bottom and right may begin inside and end outside of the
        image and its padding, as in PyTorch.
        """
        _, _, height, width = self._image(name, x)
        window = _window(height, width, kernel, stride, padding)
        if ceil_mode:
            for size, side, before, after in (
                (height, "height", "pad_top", "pad_bottom"),
                (width, "width", "pad_left", "pad_right"),
            ):
                window[after] = _padding_to_whole_windows(
                    size,
                    window[f"kernel_{side}"],
                    window[f"stride_{side}"],
                    window[before],
                    window[after],
                )
        return self._pool("max_pool2d", name, x, window)

    def average_pool2d(
        self, name: str, x: Value, kernel: Pair, *, stride: Pair, padding: Padding = 0
    ) -> Value:
        """Append the means of windows; padding counts as zeros."""
        _, _, height, width = self._image(name, x)
        return self._pool(
            "average_pool2d", name, x, _window(height, width, kernel, stride, padding)
        )

    def upsample_nearest2d(self, name: str, x: Value, factor: Pair) -> Value:
        """Append an image enlarged by whole factors, in which every element is repeated."""
        batch, channels, height, width = self._image(name, x)
        factor_height, factor_width = _pair(factor)
        spec = OpSpec.of(
            "upsample_nearest2d.forward",
            batch=batch,
            channels=channels,
            in_height=height,
            in_width=width,
            factor_height=factor_height,
            factor_width=factor_width,
        )
        return self._layer(name, spec, x)

    def global_average_pool(self, name: str, x: Value) -> Value:
        batch, channels, height, width = self._image(name, x)
        spec = OpSpec.of(
            "global_average_pool.forward", batch=batch, channels=channels, plane=height * width
        )
        return self._layer(name, spec, x)

    def flatten(self, name: str, x: Value) -> Value:
        spec = OpSpec.of("flatten.forward", elements=x.elements)
        return self._layer(name, spec, x, shape=(x.shape[0], math.prod(x.shape[1:])))

    def detach(self, name: str, x: Value) -> Value:
        """Append the value itself, through which no gradient flows."""
        spec = OpSpec.of("flatten.forward", elements=x.elements)
        output = self._layer(name, spec, x, shape=x.shape)
        self.stop_gradient()
        return output

    def stop_gradient(self) -> None:
        """Let no gradient flow through the last layer."""
        self.layers[-1] = replace(self.layers[-1], stops_gradient=True)

    def concat(self, name: str, left: Value, right: Value) -> Value:
        """Append a concatenation along the second axis."""
        if left.shape[0] != right.shape[0] or left.shape[2:] != right.shape[2:]:
            raise NetworkError(f"{name}: shapes {left.shape} and {right.shape} do not concatenate")
        outer = left.shape[0]
        spec = OpSpec.of(
            "concat.forward",
            outer=outer,
            left_inner=left.elements // outer,
            right_inner=right.elements // outer,
        )
        shape = (outer, left.shape[1] + right.shape[1], *left.shape[2:])
        return self._layer(name, spec, left, right, shape=shape)

    def attention(
        self, name: str, query: Value, key: Value, value: Value, *, heads: int, dropout: float
    ) -> Value:
        """Append scaled dot-product attention of all heads, with dropout on the weights.

        See Vaswani et al. 2017, section 3.2. There is no mask: every sequence has full length.
        """
        self._same_shape(name, query, key)
        self._same_shape(name, query, value)
        batch, sequence, features = query.shape
        if features % heads:
            raise NetworkError(f"{name}: {heads} heads do not divide {features} features")
        sizes = {
            "batch": batch,
            "sequence": sequence,
            "heads": heads,
            "head_features": features // heads,
        }
        scores = self._layer(
            f"{name}.scores", OpSpec.of("attention_scores.forward", **sizes), query, key
        )
        rows = batch * heads * sequence
        weights = self._layer(
            f"{name}.softmax",
            OpSpec.of("softmax.forward", rows=rows, columns=sequence),
            scores,
            shape=scores.shape,
        )
        weights = self.dropout(f"{name}.dropout", weights, dropout)
        return self._layer(
            f"{name}.context", OpSpec.of("attention_context.forward", **sizes), weights, value
        )

    # --- losses -------------------------------------------------------------------------------

    def softmax_cross_entropy(self, name: str, logits: Value, labels: Value) -> Value:
        """Append the loss, a mean over rows, which ends the network."""
        *leading, classes = logits.shape
        rows = math.prod(leading)
        spec = OpSpec.of("softmax_cross_entropy.forward", rows=rows, classes=classes)
        self.loss = self._layer(name, spec, logits, labels, scalars=WHOLE_LOSS)
        return self.loss

    def mean_squared_error(self, name: str, prediction: Value, target: Value) -> Value:
        """Append the loss, a mean over elements, which ends the network."""
        self._same_shape(name, prediction, target)
        spec = OpSpec.of("mean_squared_error.forward", elements=prediction.elements)
        self.loss = self._layer(name, spec, prediction, target, scalars=WHOLE_LOSS)
        return self.loss

    # --- appending a layer --------------------------------------------------------------------

    def _elementwise(
        self, name: str, family: str, *inputs: Value, scalars: Mapping[str, float] | None = None
    ) -> Value:
        spec = OpSpec.of(f"{family}.forward", elements=inputs[0].elements)
        return self._layer(name, spec, *inputs, shape=inputs[0].shape, scalars=scalars)

    def _pool(self, family: str, name: str, x: Value, window: Mapping[str, int]) -> Value:
        batch, channels, height, width = self._image(name, x)
        spec = OpSpec.of(
            f"{family}.forward",
            batch=batch,
            channels=channels,
            in_height=height,
            in_width=width,
            **window,
        )
        return self._layer(name, spec, x)

    def _layer(
        self,
        name: str,
        spec: OpSpec,
        *inputs: Value,
        shape: tuple[int, ...] | None = None,
        scalars: Mapping[str, float] | None = None,
    ) -> Value:
        """Append ``spec`` and return its first output.

        Operands after ``inputs`` are parameters of the layer. ``shape`` replaces the output's shape
        if the model's has more axes than the kernel's.
        """
        self._claim(name)
        parameters = tuple(
            Value(f"{name}.{operand.role}", operand.shape, "parameter", trained=True)
            for operand in spec.reads[len(inputs) :]
        )
        return self.append(name, spec, (*inputs, *parameters), shape=shape, scalars=scalars)

    def append(
        self,
        name: str,
        spec: OpSpec,
        reads: tuple[Value, ...],
        *,
        shape: tuple[int, ...] | None = None,
        scalars: Mapping[str, float] | None = None,
    ) -> Value:
        """Append an operation and return its first output.

        Args:
            name: Name of the layer; several operations may share it.
            spec: The operation.
            reads: Its operands, in the order of its signature.
            shape: Shape of the output, if it has other axes than the kernel's.
            scalars: The operation's scalars.

        Raises:
            NetworkError: An operand or the output has a wrong number of elements, or a result the
                name of another tensor.
        """
        for operand, value in zip(spec.reads, reads, strict=True):
            if operand.elements != value.elements:
                raise NetworkError(
                    f"{name}: {operand.role} has {value.elements} elements, shape {value.shape};"
                    f" {spec.key} takes {operand.shape}"
                )
        kind: TensorKind = "parameter" if spec.signature.mutates else "activation"
        first, *rest = spec.writes
        if shape is not None and math.prod(shape) != first.elements:
            raise NetworkError(
                f"{name}: its result has shape {shape}; {spec.key} makes {first.shape}"
            )
        writes = (
            Value(f"{name}.{first.role}", first.shape if shape is None else shape, kind),
            *(Value(f"{name}.{operand.role}", operand.shape, kind) for operand in rest),
        )
        if taken := sorted(self._tensors.intersection(value.name for value in writes)):
            raise NetworkError(f"{self.name}: two tensors are named {taken[0]!r}")
        self._tensors.update(value.name for value in (*reads, *writes))
        self.layers.append(Layer(name, spec, reads, writes, dict(scalars or {})))
        return writes[0]

    def can_train(self, value: Value) -> bool:
        """Whether a tensor is a parameter, and neither a buffer nor a constant."""
        return value.kind == "parameter" and (
            self.trainable is None or value.name in self.trainable
        )

    def needing_gradients(self) -> set[str]:
        """Tensors that depend on a trained parameter, and therefore need a gradient."""
        found = {value.name for layer in self.layers for value in layer.reads if value.trained}
        for layer in self.layers:
            if not layer.stops_gradient and any(value.name in found for value in layer.reads):
                found.update(value.name for value in layer.writes)
        return found

    def reached_by_gradients(self) -> set[str]:
        """Tensors to which a gradient of the loss flows back, if something there is trained."""
        found = set() if self.loss is None else {self.loss.name}
        for layer in reversed(self.layers):
            if not layer.stops_gradient and any(value.name in found for value in layer.writes):
                found.update(value.name for value in layer.reads)
        return found

    def depending_on(self, name: str) -> set[str]:
        """A tensor, and those that depend on it, whether or not a gradient flows back."""
        found = {name}
        for layer in self.layers:
            if any(value.name in found for value in layer.reads):
                found.update(value.name for value in layer.writes)
        return found

    def _claim(self, name: str) -> None:
        if name in self._names:
            raise NetworkError(f"{self.name}: two layers or inputs are named {name!r}")
        self._names.add(name)

    @staticmethod
    def _image(name: str, x: Value) -> tuple[int, int, int, int]:
        if len(x.shape) != 4:
            raise NetworkError(f"{name}: takes an image of 4 axes, {x.name} has shape {x.shape}")
        batch, channels, height, width = x.shape
        return batch, channels, height, width

    @staticmethod
    def _same_shape(name: str, left: Value, right: Value) -> None:
        if left.shape != right.shape:
            raise NetworkError(
                f"{name}: {left.name} has shape {left.shape}, {right.name} {right.shape}"
            )


def _channels(x: Value) -> dict[str, int]:
    """Attributes of an operation on channels, which are the second axis."""
    batch, channels, *plane = x.shape
    return {"batch": batch, "channels": channels, "plane": math.prod(plane)}


def _pair(value: Pair) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else value


def _window(
    height: int, width: int, kernel: Pair, stride: Pair, padding: Padding
) -> dict[str, int]:
    """Attributes of a sliding window."""
    kernel_height, kernel_width = _pair(kernel)
    stride_height, stride_width = _pair(stride)
    if padding == "same":
        top, bottom = _same_padding(height, kernel_height, stride_height)
        left, right = _same_padding(width, kernel_width, stride_width)
    else:
        top, left = _pair(padding)
        bottom, right = top, left
    return {
        "kernel_height": kernel_height,
        "kernel_width": kernel_width,
        "stride_height": stride_height,
        "stride_width": stride_width,
        "pad_top": top,
        "pad_bottom": bottom,
        "pad_left": left,
        "pad_right": right,
    }


def _same_padding(size: int, kernel: int, stride: int) -> tuple[int, int]:
    total = max((math.ceil(size / stride) - 1) * stride + kernel - size, 0)
    return total // 2, total - total // 2


def _padding_to_whole_windows(size: int, kernel: int, stride: int, before: int, after: int) -> int:
    """Padding after the last element that completes all windows that begin before it."""
    positions = math.ceil((size + before + after - kernel) / stride) + 1
    if (positions - 1) * stride >= size + before:
        positions -= 1
    return max(after, (positions - 1) * stride + kernel - size - before)
