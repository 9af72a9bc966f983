"""Linear layers, products, norms and embeddings."""

from __future__ import annotations

from collections.abc import Mapping

from networks.exported.construction import Unsupported
from networks.exported.program import Argument, Reference
from networks.onnx.layouts import transposed
from networks.onnx.operation import OnnxOperation, Translation


def _gemm(op: OnnxOperation) -> None:
    alpha, beta = op.number("alpha", 1.0), op.number("beta", 1.0)
    left, right = op.integer("transA", 0), op.integer("transB", 0)
    bias: dict[str, Argument] = {"bias": op.tensor(2)} if op.has(2) else {}
    has_row = not bias or (len(op.shape(2)) == 1 and op.shape(2) == op.result[1:])
    if (alpha, beta, left, right) == (1.0, 1.0, 0, 1) and has_row:
        op.become("linear.default", input=op.tensor(0), weight=op.tensor(1), **bias)
        return
    if (alpha, beta, left, right) == (1.0, 1.0, 0, 0) and has_row:
        weight = op.program.laid_out(op.input(1), "", transposed)
        if weight is not None:
            op.become("linear.default", input=op.tensor(0), weight=weight, **bias)
            return
    matrices = _transposed(op, 0, left), _transposed(op, 1, right)
    if bias:
        op.become(
            "addmm.default",
            self=op.tensor(2),
            mat1=matrices[0],
            mat2=matrices[1],
            alpha=alpha,
            beta=beta,
        )
    elif alpha == 1:
        op.become("mm.default", self=matrices[0], mat2=matrices[1])
    else:
        product = op.step("product", "mm.default", op.result, self=matrices[0], mat2=matrices[1])
        op.become("mul.Tensor", self=product, other=alpha)


def _transposed(op: OnnxOperation, position: int, transpose: int) -> Reference:
    if not transpose:
        return op.tensor(position)
    shape = op.shape(position)[::-1]
    return op.step(f"transposed{position}", "t.default", shape, self=op.tensor(position))


def _matmul(op: OnnxOperation) -> None:
    """A linear layer, if the right matrix is an initializer."""
    if len(op.shape(0)) > 1 and len(op.shape(1)) == 2:
        weight = op.program.laid_out(op.input(1), "", transposed)
        if weight is not None:
            op.become("linear.default", input=op.tensor(0), weight=weight)
            return
    op.become("matmul.default", self=op.tensor(0), other=op.tensor(1))


def _batch_norm(op: OnnxOperation) -> None:
    if op.integer("training_mode", 0):
        raise Unsupported("it is in training mode", "a file that was exported for inference")
    op.require(spatial=1)
    op.become(
        "batch_norm.default",
        input=op.tensor(0),
        weight=op.tensor(1),
        bias=op.tensor(2),
        running_mean=op.tensor(3),
        running_var=op.tensor(4),
        training=False,
        eps=op.number("epsilon", 1e-5),
    )


def _layer_norm(op: OnnxOperation) -> None:
    shape = op.shape()
    first = op.axis(len(shape), -1)
    bias: dict[str, Argument] = {"bias": op.tensor(2)} if op.has(2) else {}
    op.become(
        "layer_norm.default",
        input=op.tensor(0),
        normalized_shape=shape[first:],
        weight=op.tensor(1),
        **bias,
        eps=op.number("epsilon", 1e-5),
    )


def _instance_norm(op: OnnxOperation) -> None:
    """A group norm of which each channel is a group."""
    op.become(
        "group_norm.default",
        input=op.tensor(0),
        num_groups=op.shape()[1],
        weight=op.tensor(1),
        bias=op.tensor(2),
        eps=op.number("epsilon", 1e-5),
    )


def _gather(op: OnnxOperation) -> None:
    shape, indices = op.shape(0), op.constant(1)
    axis = op.axis(len(shape), 0)
    if indices is None or indices.ndim > 1:
        if axis or len(shape) != 2:
            raise Unsupported(f"it takes entries along axis {axis} of {shape}", "rows of a table")
        if indices is None and not op.program.is_given(op.input(1)):  # negative ones count back
            op.become("index.Tensor", self=op.tensor(0), indices=(op.tensor(1),))
            return
        op.become("embedding.default", weight=op.tensor(0), indices=op.tensor(1))
        return
    found = [int(index) + (shape[axis] if index < 0 else 0) for index in indices.reshape(-1)]
    if not found or not all(0 <= index < shape[axis] for index in found):
        raise Unsupported(f"it takes the entries {indices.tolist()} along axis {axis} of {shape}")
    if indices.ndim == 0:
        op.become("select.int", self=op.tensor(0), dim=axis, index=found[0])
        return
    step = found[1] - found[0] if len(found) > 1 else 1
    if step < 1 or found != list(range(found[0], found[-1] + 1, step)):
        op.become("index_select.default", self=op.tensor(0), dim=axis, index=op.tensor(1))
        return
    end = found[-1] + 1
    op.become("slice.Tensor", self=op.tensor(0), dim=axis, start=found[0], end=end, step=step)


LAYERS: Mapping[str, Translation] = {
    "Gemm": _gemm,
    "MatMul": _matmul,
    "BatchNormalization": _batch_norm,
    "LayerNormalization": _layer_norm,
    "InstanceNormalization": _instance_norm,
    "Gather": _gather,
}
