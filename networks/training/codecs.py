"""Codecs: what the backward pass needs of some activations, as a bit or a byte for each element.

The gradient of ReLU needs only the signs of the output, and that of max pooling only the places of
the maxima. An activation that the backward pass reads for nothing else need not be kept for it: the
forward operation writes these bits or places (the *code*) beside its output, and the gradient
operation reads them. All values stay the same, bit for bit.

**Which activations.** Those that the backward pass reads only for gradients of these kinds. One
that another gradient reads as well (that of a convolution's weight) must be kept or recomputed in
any case.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from devices.operation import OperationError, OpSpec
from networks.training.in_place import with_in_place
from networks.training.step import StepOp, StepTensor, TrainingStep

_CODED: Mapping[str, tuple[str, str]] = {
    "relu.input_gradient": ("output", "relu_bits"),
    "leaky_relu.input_gradient": ("output", "leaky_relu_bits"),
    "clamp.input_gradient": ("output", "clamp_bits"),
    "max_pool2d.input_gradient": ("input", "max_pool2d_places"),
}
"""Role of the activation that a gradient reads, and the family whose gradient reads its code."""


def with_codecs(step: TrainingStep) -> TrainingStep:
    """Keep codes for the backward pass in place of activations that it needs for nothing else.

    Args:
        step: Training step, in slices or not.

    Returns:
        The step with codes, of which ``whole`` is the step with neither slices nor codes; the given
        step itself if there is nothing to code.
    """
    ops: dict[str, StepOp] = {op.name: op for op in step.ops}
    codes: dict[str, StepTensor] = {}
    for forward, gradient in _pairs(step):
        role, family = _CODED[gradient.spec.kind]
        coded = OpSpec.of(f"{family}.forward", **forward.spec.attributes)
        operand = coded.writes[-1]
        result = forward.writes[0]
        code = StepTensor(f"{result}.{operand.role}", operand.bytes, "activation")
        codes[result] = code
        ops[forward.name] = replace(forward, spec=coded, writes=(result, code.name))
        spec = OpSpec.of(f"{family}.input_gradient", **gradient.spec.attributes)
        ops[gradient.name] = replace(
            gradient,
            spec=spec,
            reads=(code.name, *(name for read, name in _reads(gradient) if read != role)),
            scalars={name: gradient.scalars[name] for name in spec.signature.scalars},
        )
    if not codes:
        return step
    tensors = {each.name: each for each in _with_codes(step.tensors, codes)}
    # What was read for a gradient may now be overwritten.
    decided = with_in_place(tuple(ops.values()), tensors)
    return replace(
        step,
        ops=tuple(
            op if op.in_place else again for op, again in zip(ops.values(), decided, strict=True)
        ),
        tensors=tuple(tensors.values()),
        codecs=True,
        whole=step.whole or step,
    )


def specs_in_all_forms(step: TrainingStep) -> tuple[OpSpec, ...]:
    """Operations that a profile measures: those of the step, and those of it with codecs."""
    return tuple(dict.fromkeys((*step.costed_specs, *with_codecs(step).costed_specs)))


def kept_bytes(step: TrainingStep) -> int:
    """Bytes of the activations that the backward pass reads."""
    read = {name for op in step.ops if op.phase == "backward" for name in op.reads}
    return sum(
        each.bytes for each in step.tensors if each.kind == "activation" and each.name in read
    )


def _pairs(step: TrainingStep) -> Iterator[tuple[StepOp, StepOp]]:
    """Each forward operation that writes a code, with the gradient operation that reads it."""
    readers: dict[str, list[StepOp]] = {}
    forwards: dict[tuple[str, str, str], StepOp] = {}
    for op in step.ops:
        if op.phase == "forward":
            for name in (*op.reads, *op.writes):
                forwards[op.layer, op.spec.kind, name] = op
        else:
            for name in dict.fromkeys(op.reads):
                readers.setdefault(name, []).append(op)
    for name, gradients in readers.items():
        is_kept = step.tensor[name].persist is not None
        if not is_kept and all(_is_coded(gradient, name) for gradient in gradients):
            for gradient in gradients:
                kind = f"{gradient.spec.family}.forward"
                yield forwards[gradient.layer, kind, name], gradient


def _is_coded(gradient: StepOp, activation: str) -> bool:
    """Whether a code can replace the activation in a gradient operation."""
    role, family = _CODED.get(gradient.spec.kind, ("", ""))
    if [read for read, name in _reads(gradient) if name == activation] != [role]:
        return False
    try:
        OpSpec.of(f"{family}.input_gradient", **gradient.spec.attributes)
    except OperationError:
        return False  # a window of more places than a byte can number
    return True


def _reads(op: StepOp) -> Iterator[tuple[str, str]]:
    """Roles and tensors that an operation reads."""
    return ((operand.role, name) for operand, name in zip(op.spec.reads, op.reads, strict=True))


def _with_codes(
    tensors: Iterable[StepTensor], codes: Mapping[str, StepTensor]
) -> Iterator[StepTensor]:
    for tensor in tensors:
        yield tensor
        if tensor.name in codes:
            yield codes[tensor.name]
