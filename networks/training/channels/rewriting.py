"""A training step with tensors in parts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from devices.operation import OpSpec
from networks.kinds import TensorKind
from networks.training.channels.axes import Axes, axes_of
from networks.training.channels.blocks import INPUT_GRADIENT, PARAMETER_GRADIENT, Blocks
from networks.training.channels.lookups import lookups
from networks.training.channels.losses import gradient_in_parts, loss_in_parts
from networks.training.channels.norms import norm_in_parts
from networks.training.channels.partition import Layout, operands
from networks.training.channels.parts import Parts
from networks.training.order import OperationCount, placed
from networks.training.step import Part, StepOp, StepTensor, TrainingStep


def in_layouts(
    step: TrainingStep, layouts: Mapping[str, Layout], count: OperationCount
) -> TrainingStep:
    """Put tensors of a step into parts.

    Args:
        step: Training step.
        layouts: How each of its tensors is cut, by name.
        count: Counts the operations that are made.

    Returns:
        The step in parts; the step itself if nothing is cut.

    Raises:
        NetworkError: The parts take too many operations.
    """
    if not any(layout.is_cut for layout in layouts.values()):
        return step
    ops = _Rewriting(step, layouts).ops(count)
    return replace(step, ops=tuple(ops), tensors=tuple(_tensors(step, ops, layouts)))


_ACTIVATIONS = frozenset({"input", "output", "input_gradient", "output_gradient"})


class _Rewriting:
    def __init__(self, step: TrainingStep, layouts: Mapping[str, Layout]) -> None:
        self._step = step
        self._layouts = layouts
        self._gradients: dict[str, list[StepOp]] = {}
        for op in step.ops:
            if op.phase == "backward":
                self._gradients.setdefault(op.layer, []).append(op)

    def ops(self, count: OperationCount) -> list[StepOp]:
        """The operations, in an order in which channels that are alike follow each other.

        Raises:
            NetworkError: There are too many.
        """
        fixed: list[StepOp] = []
        floating: list[StepOp] = []
        late: set[str] = set()
        products: set[str] = set()
        in_tables: set[str] = set()
        for op in self._step.ops:
            axes = axes_of(op.spec)
            if axes is None or not any(self._layouts[name].is_cut for _, name in operands(op)):
                (floating if op.phase == "update" else fixed).extend(count.of((op,)))
            elif axes.handling == "alike":
                floating.extend(count.of(_alike(op, axes, self._layouts)))
            elif axes.handling == "norm":
                floating.extend(count.of(norm_in_parts(op, self._layouts)))
            elif axes.handling == "loss" and op.phase == "forward":
                floating.extend(count.of(loss_in_parts(op, self._layouts)))
            elif axes.handling == "loss":
                parts = tuple(count.of(gradient_in_parts(op, self._layouts)))
                floating.extend(parts)
                late.update(part.name for part in parts)
            else:
                (in_tables if axes.handling == "lookup" else products).add(op.name)
                fixed.append(op)
        done: set[str] = set()
        ordered: list[StepOp] = []
        for op in fixed:
            if op.name in in_tables:
                ordered.extend(count.of(lookups(op, self._layouts)))
            elif op.name not in products:
                ordered.append(op)
            elif op.phase == "forward":
                ordered.extend(count.of(self._product(op).forward()))
            elif op.layer not in done:
                done.add(op.layer)
                ordered.extend(count.of(self._backward(self._gradients[op.layer])))
        return placed(*_before_readers(ordered, floating, late))

    def _backward(self, gradients: Sequence[StepOp]) -> Iterator[StepOp]:
        """The gradients of a product: all blocks with a part of its input before the next part."""
        blocks = {op.spec.kind.partition(".")[2]: self._product(op) for op in gradients}
        of_input = blocks.get(INPUT_GRADIENT)
        of_weight = blocks.get(PARAMETER_GRADIENT)
        any_blocks = of_input or of_weight
        assert any_blocks is not None
        for column in range(len(any_blocks.columns)):
            for row in range(len(any_blocks.rows)):
                if of_input is not None:
                    yield of_input.input_gradient(row, column)
                if of_weight is not None:
                    yield of_weight.parameter_gradient(row, column)
            if of_input is not None and of_input.has_columns:
                yield of_input.fold(column)

    def _product(self, op: StepOp) -> Blocks:
        """The operations of a product, in blocks if an activation is cut."""
        activations = (name for role, name in operands(op) if role in _ACTIVATIONS)
        is_cut = any(self._layouts[name].is_cut for name in activations)
        return (Blocks if is_cut else Parts)(op, self._layouts)


def _before_readers(
    ops: Iterable[StepOp], floating: Sequence[StepOp], late: Collection[str]
) -> tuple[list[StepOp], list[StepOp]]:
    """Insert those of ``floating`` that are ``late`` before the first of ``ops`` that reads them.

    The second result is the rest of ``floating``.
    """
    waiting = {name: op for op in floating if op.name in late for name in op.writes}
    ordered: list[StepOp] = []
    for op in ops:
        ordered.extend(waiting.pop(name) for name in op.reads if name in waiting)
        ordered.append(op)
    done = {op.name for op in ordered}
    return ordered, [op for op in floating if op.name not in done]


def _alike(op: StepOp, axes: Axes, layouts: Mapping[str, Layout]) -> Iterator[StepOp]:
    """An operation for each part of the operands of ``op``."""
    main = _main(op, axes)
    cut = {name for role, name in operands(op) if role in axes.places}
    copied = {name for role, name in operands(op) if role in axes.copied}
    for row, column in layouts[main].numbers:
        suffix = layouts[main].suffix(row, column)
        names = {
            **{name: name for name in (*op.reads, *op.writes)},
            **{name: layouts[name].part(row, column) for name in cut},
            **{name: name + suffix for name in copied},
        }
        yield replace(
            op,
            name=op.name + suffix,
            spec=_part_of(op.spec, axes, layouts[main], row, column),
            reads=tuple(names[name] for name in op.reads),
            writes=tuple(names[name] for name in op.writes),
            in_place={names[written]: names[read] for written, read in op.in_place.items()},
        )


def _part_of(spec: OpSpec, axes: Axes, layout: Layout, row: int, column: int) -> OpSpec:
    share, whole = layout.share(row, column)
    a = spec.attributes
    if spec.family == "dropout":  # its mask depends on the places of elements in the whole tensor
        distance = a["elements"] // layout.outer
        place = layout.place(row, column)
        return OpSpec.of(
            spec.kind.replace("dropout", "dropout_part"),
            outer=layout.outer,
            inner=distance * share // whole,
            distance=distance,
            first=distance * place.first // place.whole_rows,
        )
    counts = {name: a[name] * share // whole for name in axes.counts}
    kind = spec.kind.replace("conv2d.", "depthwise_part.")  # even of a single channel
    return OpSpec.of(kind, **{**a, **counts})


def _main(op: StepOp, axes: Axes) -> str:
    """An operand of which each part of an operation has a part."""
    return next(name for role, name in operands(op) if role in axes.places)


def _tensors(
    step: TrainingStep, ops: Iterable[StepOp], layouts: Mapping[str, Layout]
) -> Iterator[StepTensor]:
    """The tensors of a step in parts, then the unfinished results of chains."""
    copies = {
        name: layouts[_main(op, axes)]
        for op in step.ops
        if (axes := axes_of(op.spec)) is not None
        for role, name in operands(op)
        if role in axes.copied
    }
    found: set[str] = set()
    for tensor in step.tensors:
        layout = copies.get(tensor.name, layouts[tensor.name])
        if not layout.is_cut:
            found.add(tensor.name)
            yield tensor
            continue
        for row, column in layout.numbers:
            name = tensor.name + layout.suffix(row, column)
            found.add(name)
            if tensor.name in copies:
                yield replace(tensor, name=name, part=Part(tensor.name, 0, 1, 1))
                continue
            share, whole = layout.share(row, column)
            part = layout.place(row, column)
            yield replace(tensor, name=name, bytes=tensor.bytes // whole * share, part=part)
    for op in ops:
        for operand, name in zip(op.spec.writes, op.writes, strict=True):
            if name not in found:
                found.add(name)
                kind: TensorKind = "activation" if op.phase == "forward" else "gradient"
                yield StepTensor(name, operand.bytes, kind)
