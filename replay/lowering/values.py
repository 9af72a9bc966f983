"""Values that enter a training step, outlive it, or can be compared between two executions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from devices.plan import ArenaRange, Observed, Probe
from networks.kinds import Place
from networks.training.step import StepOp, StepTensor, TrainingStep


@dataclass(frozen=True)
class KeptValue:
    """A tensor that the operation ``updated_by`` changes in place.

    ``tensor`` is its name when the step begins, ``result`` its name when the step has ended.
    """

    tensor: str
    result: str
    bytes: int
    home: Place
    what: Observed
    updated_by: str

    def probe(self, address: int) -> Probe:
        return Probe(self.tensor, self.what, ArenaRange(address, self.bytes))


def kept_values(step: TrainingStep) -> tuple[KeptValue, ...]:
    """Values that a step updates in place, in the order of the step's tensors."""
    found: dict[str, KeptValue] = {}
    for op in step.ops:
        if not op.spec.signature.mutates:
            continue
        for result, name in op.in_place.items():
            tensor = step.tensor[name]
            if tensor.home is not None:
                what = _observed(op, tensor)
                found[name] = KeptValue(name, result, tensor.bytes, tensor.home, what, op.name)
    return tuple(found[tensor.name] for tensor in step.tensors if tensor.name in found)


def _observed(update: StepOp, tensor: StepTensor) -> Observed:
    if tensor.kind == "optimizer_state":
        return "optimizer_state"
    return "statistic" if trained_parameter(update) is None else "parameter"


def input_tensors(step: TrainingStep) -> Iterator[StepTensor]:
    """Tensors that a step reads but does not keep: they are loaded before every step."""
    kept = {value.tensor for value in kept_values(step)}
    return (tensor for tensor in step.tensors if tensor.home and tensor.name not in kept)


def losses(step: TrainingStep) -> Iterator[StepTensor]:
    return (tensor for tensor in step.tensors if tensor.kind == "activation" and tensor.persist)


def trained_parameter(update: StepOp) -> tuple[str, str] | None:
    """Names of the parameter that an operation trains, and of its gradient; None for other ops."""
    read = {
        operand.role: name for operand, name in zip(update.spec.reads, update.reads, strict=True)
    }
    if not update.spec.signature.mutates or "gradient" not in read:
        return None
    return read["parameter"], read["gradient"]
