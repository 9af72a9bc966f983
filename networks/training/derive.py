"""Derivation of a network's training step: the backward pass and the updates.

The signatures of :mod:`devices.operation` state which gradient operations a layer has, and what
each reads and writes: an operand named like one of the forward operation is that tensor, and
``<operand>_gradient`` is its gradient. The gradient of an operand of a sum *is* the gradient of the
sum: it needs no operation. The gradient operation of a loss takes the loss as the network's; where
it is a part of a composed one, the result is multiplied by its gradient. A gradient operation may
read what another one of its layer writes, and then follows it. A tensor that was detached is the
same tensor without a gradient, and needs no operation.

The layers are executed in the order of the network, then backwards. Among the gradient operations
of one layer, those of its parameters come first, then those with the smaller result. No other order
has a smaller peak: a layer's input can be freed once the parameter gradient is computed, but the
parameter gradient is in RAM together with the input gradient in any order, because the update must
wait until the input gradient has read the parameter. An update follows directly after the last
operation that reads its parameter.

With gradient accumulation (:mod:`networks.training.accumulation`) this is done for one part of the
batch after the other; the updates follow in the pass of the last part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from devices.errors import Defect
from devices.operation import ELEMENT_BYTES, Operand, OpSpec, Phase
from networks.kinds import (
    ADAM_LEARNING_RATE,
    LEARNING_RATE,
    MOMENTUM,
    WEIGHT_DECAY,
    Optimizer,
    Place,
    TensorKind,
)
from networks.training.accumulation import split
from networks.training.in_place import with_in_place
from networks.training.network import Layer, Network, NetworkError, Value
from networks.training.step import NetworkFile, StepOp, StepTensor, TrainingStep

# PyTorch's defaults: beta1 = 0.9, beta2 = 0.999.
_ADAM = {
    "learning_rate": ADAM_LEARNING_RATE,
    "first_rate": 0.1,
    "second_rate": 0.001,
    "epsilon": 1e-8,
    "weight_decay": 0.0,
    "gradient_decay": 0.0,
}
_WITH_MOMENTUM = {"learning_rate": LEARNING_RATE, "momentum": MOMENTUM, "weight_decay": 0.0}
_MOMENTS = ("first_moment", "second_moment", "corrections")
_UPDATES: Mapping[Optimizer, tuple[str, Mapping[str, float], tuple[str, ...]]] = {
    "sgd": ("sgd.update", {"learning_rate": LEARNING_RATE, "weight_decay": 0.0}, ()),
    "momentum": ("sgd_momentum.update", _WITH_MOMENTUM, ("velocity",)),
    "nesterov": ("sgd_nesterov.update", _WITH_MOMENTUM, ("velocity",)),
    "adam": ("adam.update", _ADAM, _MOMENTS),
    "adamw": ("adam.update", {**_ADAM, "weight_decay": WEIGHT_DECAY}, _MOMENTS),
}
"""Kind, scalars and state of each optimizer's update."""


def training_step(
    network: Network,
    optimizer: Optimizer = "sgd",
    file: NetworkFile | None = None,
    accumulate: int = 1,
) -> TrainingStep:
    """Derive the training step of a network.

    Args:
        network: Forward pass with a loss.
        optimizer: How parameters are updated.
        file: File that the network was read from.
        accumulate: Number of parts of the batch, whose gradients are added up.

    Returns:
        The step, with parameters in RAM.

    Raises:
        NetworkError: The network has no loss, a parameter that the loss does not depend on, or an
            operation that mixes samples, so that its batch cannot be split.
    """
    if network.loss is None:
        raise NetworkError(f"{network.name}: the network has no loss")
    draft = _Draft()
    backward = _Backward(draft)
    sums = [f"{network.loss.name}.sum{number}" for number in range(2, accumulate)]
    sums.append(network.loss.name)
    loss = None
    for part in split(network, accumulate):
        for layer in part.layers:
            _forward(draft, layer, part.inputs)
        assert part.loss is not None
        loss = part.loss.name if loss is None else _add_loss(draft, loss, part.loss, sums.pop(0))
        backward.append(part)
    draft.persist(network.loss.name)
    _add_updates(draft, network, backward.gradients, optimizer)
    draft.persist_unchanged_parameters()
    return TrainingStep(
        name=network.name,
        batch=network.batch,
        optimizer=optimizer,
        ops=with_in_place(draft.ops, draft.tensors),
        tensors=tuple(draft.tensors.values()),
        network=network,
        file=file,
        accumulate=accumulate,
    )


class _Draft:
    """A step under construction: operations in order, tensors in the order of first use."""

    def __init__(self) -> None:
        self.ops: list[StepOp] = []
        self.tensors: dict[str, StepTensor] = {}
        self._same: dict[str, str] = {}

    def detach(self, name: str, same: str) -> None:
        """State that ``name`` is the tensor ``same``."""
        self._same[name] = self.stored(same)

    def stored(self, name: str) -> str:
        """Name of the tensor, which may have been detached."""
        return self._same.get(name, name)

    def tensor(
        self,
        name: str,
        elements: int,
        kind: TensorKind,
        *,
        home: Place | None = None,
        persist: Place | None = None,
        shape: tuple[int, ...] | None = None,
    ) -> str:
        size_bytes = elements * ELEMENT_BYTES
        self.tensors[name] = StepTensor(name, size_bytes, kind, home, persist, shape=shape)
        return name

    def persist(self, name: str) -> None:
        """Require that ``name`` is in RAM when the step ends."""
        self.tensors[name] = replace(self.tensors[name], persist="ram")

    def persist_unchanged_parameters(self) -> None:
        """Require that frozen parameters are in RAM when the step ends: the next one reads them."""
        mutating = (op for op in self.ops if op.spec.signature.mutates)
        changed = {name for op in mutating for name in op.reads}
        for name, tensor in self.tensors.items():
            if tensor.kind == "parameter" and tensor.home is not None and name not in changed:
                self.persist(name)

    def op(
        self,
        layer: str,
        spec: OpSpec,
        phase: Phase,
        reads: tuple[str, ...],
        writes: tuple[str, ...],
        scalars: Mapping[str, float],
    ) -> None:
        entry = spec.kind.partition(".")[2]
        self.ops.append(
            StepOp(f"{layer}.{entry}", layer, spec, phase, reads, writes, scalars, in_place={})
        )


def _forward(draft: _Draft, layer: Layer, inputs: Mapping[str, tuple[int, ...]]) -> None:
    mutates = layer.spec.signature.mutates
    for value in layer.reads:
        if draft.stored(value.name) not in draft.tensors:
            if value.kind == "activation":
                raise Defect(f"{layer.name} reads {value.name}, which no layer before it makes")
            shape = inputs.get(value.name)
            draft.tensor(value.name, value.elements, value.kind, home="ram", shape=shape)
    if layer.detaches:
        draft.detach(layer.writes[0].name, layer.reads[0].name)
        return
    for value in layer.writes:
        draft.tensor(value.name, value.elements, value.kind, persist="ram" if mutates else None)
    for value in layer.reads:
        if mutates and draft.tensors[value.name].persist is not None:
            draft.tensor(value.name, value.elements, value.kind)  # it changes once more
    draft.op(
        layer.name,
        layer.spec,
        "update" if mutates else "forward",
        tuple(draft.stored(value.name) for value in layer.reads),
        tuple(value.name for value in layer.writes),
        layer.scalars,
    )


def _add_loss(draft: _Draft, before: str, loss: Value, total: str) -> str:
    """Add the loss of a part to the sum of those before it."""
    draft.tensor(total, loss.elements, "activation")
    spec = OpSpec.of("add.forward", elements=loss.elements)
    draft.op(total, spec, "forward", (before, loss.name), (total,), {})
    return total


class _Backward:
    """The backward passes over a network, or over one part of its batch after the other.

    ``gradients`` holds, for each tensor of the forward passes, the name of the sum of its
    gradient's contributions so far.
    """

    def __init__(self, draft: _Draft) -> None:
        self._draft = draft
        self.gradients: dict[str, str] = {}
        self._sums: dict[str, int] = {}
        self._needed: set[str] = set()
        self._network = Network("", 1)

    def append(self, network: Network) -> None:
        """Append the backward pass of a network or part."""
        self._network, self._needed = network, network.needing_gradients()
        loss, one = network.loss, network.one
        if loss is not None and one is not None:
            self.gradients[loss.name] = one.name
            self._draft.tensor(one.name, one.elements, one.kind, home="ram")
        for layer in reversed(network.layers):
            output = layer.writes[0]
            reached = output == loss or any(value.name in self.gradients for value in layer.writes)
            if not reached or output.name not in self._needed:
                continue
            self._require_gradients(layer)
            self._differentiate(layer)
            for operand, value in zip(layer.spec.reads, layer.reads, strict=True):
                if operand.role in layer.spec.signature.passes:
                    self._contribute(value, self.gradients[output.name])
        if one is not None and not any(one.name in op.reads for op in self._draft.ops):
            del self._draft.tensors[one.name]  # a plain sum of losses, whose gradients are theirs

    def _differentiate(self, layer: Layer) -> None:
        read = {o.role: value for o, value in zip(layer.spec.reads, layer.reads, strict=True)}
        tensor = {role: self._draft.stored(value.name) for role, value in read.items()}
        for operand, value in zip(layer.spec.writes, layer.writes, strict=True):
            tensor[operand.role] = value.name
            if value.name in self.gradients:
                tensor[f"{operand.role}_gradient"] = self.gradients[value.name]
        for spec in self._gradient_specs(layer, read):
            for operand in spec.reads:
                if operand.role not in tensor:
                    result = operand.role.removesuffix("_gradient")
                    raise NetworkError(
                        f"{self._network.name}: the loss depends on other results of {layer.name},"
                        f" but not on its {result}; let it depend on all that are read"
                    )
            for operand in spec.writes:
                tensor[operand.role] = self._draft.tensor(
                    f"{layer.name}.{operand.role}", operand.elements, "gradient"
                )
            self._draft.op(
                layer.name,
                spec,
                "backward",
                tuple(tensor[operand.role] for operand in spec.reads),
                tuple(tensor[operand.role] for operand in spec.writes),
                {name: layer.scalars[name] for name in spec.signature.scalars},
            )
            for operand in spec.writes:
                target = _target(read, operand.role)
                if target is not None:
                    gradient = self._of_whole(layer, operand, tensor[operand.role])
                    self._contribute(target, gradient)

    def _of_whole(self, layer: Layer, operand: Operand, gradient: str) -> str:
        """A gradient of this layer's loss as one of the loss of which that is a part."""
        output = layer.writes[0]
        whole = self.gradients.get(output.name)
        one = self._network.one
        if whole is None or one is None or whole == one.name or not is_loss(layer):
            return gradient
        product = OpSpec.of(
            "broadcast_multiply.forward", outer=1, middle=1, between=operand.elements, inner=1
        )
        name = f"{layer.name}.part_of_{operand.role}"
        self._draft.tensor(name, operand.elements, "gradient")
        self._draft.op(name, product, "backward", (gradient, whole), (name,), {})
        return name

    def _require_gradients(self, layer: Layer) -> None:
        """Refuse a layer with an operand that needs a gradient and has none."""
        for operand, value in zip(layer.spec.reads, layer.reads, strict=True):
            if value.name in self._needed and operand.role not in layer.spec.differentiated:
                raise NetworkError(
                    f"{self._network.name}: {layer.name} has no gradient of its {operand.role}"
                    f" {value.name}, which depends on trained parameters"
                )

    def _gradient_specs(self, layer: Layer, read: Mapping[str, Value]) -> list[OpSpec]:
        """Gradient operations of a layer with a result that is needed, in their order."""

        def rank(spec: OpSpec) -> tuple[bool, int]:
            targets = [_target(read, operand.role) for operand in spec.writes]
            of_parameters = all(each is not None and each.kind == "parameter" for each in targets)
            return not of_parameters, sum(operand.bytes for operand in spec.writes)

        def is_needed(spec: OpSpec) -> bool:
            targets = (_target(read, operand.role) for operand in spec.writes)
            return any(each is not None and each.name in self._needed for each in targets)

        specs = layer.spec.gradients
        needed = [spec for spec in specs if is_needed(spec)]
        # A batch norm's input gradient reads its parameter gradients, even those of frozen ones.
        wanted = {operand.role for spec in needed for operand in spec.reads}
        needed += [spec for spec in specs if spec not in needed and _written(spec) & wanted]
        return _in_order(sorted(needed, key=rank))

    def _contribute(self, value: Value, gradient: str) -> None:
        """Add ``gradient`` as a contribution to the gradient of ``value``.

        A contribution is added to the earlier ones at once, so that none waits in RAM for another.
        """
        if value.name not in self._needed:
            return
        before = self.gradients.get(value.name)
        if before is None:
            self.gradients[value.name] = gradient
            return
        self._sums[value.name] = self._sums.get(value.name, 0) + 1
        layer = f"{value.name}.gradient_sum{self._sums[value.name]}"
        self.gradients[value.name] = self._draft.tensor(layer, value.elements, "gradient")
        spec = OpSpec.of("gradient.accumulate", elements=value.elements)
        self._draft.op(layer, spec, "backward", (before, gradient), (layer,), {})


def is_loss(layer: Layer) -> bool:
    """Whether the layer's gradient operations take its result as the network's loss."""
    gradients = layer.spec.gradients
    needed = f"{layer.spec.writes[0].role}_gradient"
    return bool(gradients) and not any(
        operand.role == needed for spec in gradients for operand in spec.reads
    )


def _in_order(specs: list[OpSpec]) -> list[OpSpec]:
    """Move operations after those of which they read a result."""
    ordered: list[OpSpec] = []
    waiting = list(specs)
    while waiting:
        to_come = {role for spec in waiting for role in _written(spec)}
        first = next(s for s in waiting if to_come.isdisjoint(operand.role for operand in s.reads))
        waiting.remove(first)
        ordered.append(first)
    return ordered


def _written(spec: OpSpec) -> set[str]:
    return {operand.role for operand in spec.writes}


def _target(read: Mapping[str, Value], gradient_role: str) -> Value | None:
    """The value of which ``gradient_role`` is the gradient; None for the gradient of a result."""
    return read.get(gradient_role.removesuffix("_gradient"))


def _add_updates(
    draft: _Draft, network: Network, gradients: Mapping[str, str], optimizer: Optimizer
) -> None:
    """Insert each update after the last use of its parameter and after its gradient is written."""
    backward = draft.ops
    last_use = {name: i for i, op in enumerate(backward) for name in (*op.reads, *op.writes)}
    made_at = {name: i for i, op in enumerate(backward) for name in op.writes}
    due: dict[int, list[Value]] = {}
    parameters = {
        value.name: value for layer in network.layers for value in layer.reads if value.trained
    }
    if parameters and gradients.keys().isdisjoint(parameters):
        raise NetworkError(f"{network.name}: no gradient of the loss reaches what is trained")
    for name, parameter in parameters.items():
        if name not in gradients:
            assert network.loss is not None, "training_step has looked"
            if network.loss.name in network.depending_on(name):
                continue  # a stopped gradient: the parameter stays as it is
            raise NetworkError(f"{network.name}: the loss does not depend on {name}")
        due.setdefault(max(last_use[name], made_at[gradients[name]]), []).append(parameter)
    draft.ops = []
    for index, op in enumerate(backward):
        draft.ops.append(op)
        for parameter in due.get(index, ()):
            _update(draft, parameter, gradients[parameter.name], optimizer)


def _update(draft: _Draft, parameter: Value, gradient: str, optimizer: Optimizer) -> None:
    name, elements = parameter.name, parameter.elements
    kind, scalars, states = _UPDATES[optimizer]
    spec = OpSpec.of(kind, elements=elements)
    size = {operand.role: operand.elements for operand in spec.reads}
    reads = [name, gradient]
    writes = [draft.tensor(f"{name}.next", elements, "parameter", persist="ram")]
    for state in states:
        reads.append(draft.tensor(f"{name}.{state}", size[state], "optimizer_state", home="ram"))
        writes.append(
            draft.tensor(f"{name}.next_{state}", size[state], "optimizer_state", persist="ram")
        )
    draft.op(name, spec, "update", tuple(reads), tuple(writes), scalars)
