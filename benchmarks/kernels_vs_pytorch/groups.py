"""Groups of operations that both sides compute, though they divide a step differently."""

from __future__ import annotations

from collections.abc import Mapping

OTHERS = "others"
_GRADIENTS = ", gradients"

_FAMILIES: Mapping[str, str] = {
    "conv2d": "convolution",
    "linear": "linear",
    "batch_norm": "batch norm",
    "attention": "attention",
    "max_pool2d": "pooling",
    "average_pool2d": "pooling",
    "global_average_pool": "pooling",
    "relu": "activation",
    "clamp": "activation",
    "silu": "activation",
    "embedding": "embedding",
    "softmax_cross_entropy": "loss",
    "sgd": "update",
}
"""Group by family of our kinds."""

_ATEN: Mapping[str, str] = {
    "conv2d": "convolution",
    "convolution_backward": "convolution",
    "linear": "linear",
    "batch_norm": "batch norm",
    "native_batch_norm_backward": "batch norm",
    "scaled_dot_product_attention": "attention",
    "_scaled_dot_product_flash_attention_for_cpu_backward": "attention",
    "max_pool2d": "pooling",
    "max_pool2d_with_indices_backward": "pooling",
    "adaptive_avg_pool2d": "pooling",
    "relu": "activation",
    "relu_": "activation",
    "threshold_backward": "activation",
    "hardtanh_": "activation",
    "hardtanh_backward": "activation",
    "silu": "activation",
    "silu_backward": "activation",
    "embedding": "embedding",
    "embedding_backward": "embedding",
    "cross_entropy_loss": "loss",
    "nll_loss_backward": "loss",
    "_log_softmax_backward_data": "loss",
}
"""Group by ATen operation, as a module or the backward pass calls it."""

_NODES: Mapping[str, str] = {
    "AddmmBackward0": "linear",
    "MmBackward0": "linear",
    "update": "update",
}
"""Group by node of PyTorch's backward pass, for operations of many uses; of the optimizer."""


def group_of_kind(kind: str) -> str:
    """Group of one of our kinds of operations."""
    family, _, entry = kind.partition(".")
    return _named(_FAMILIES.get(family, OTHERS), is_gradient=entry.endswith("_gradient"))


def group_of_aten(name: str, node: str) -> str:
    """Group of an ATen operation that ``node`` calls; it is empty in the forward pass."""
    group = _ATEN.get(name) or _NODES.get(node, OTHERS)
    return _named(group, is_gradient=bool(node))


def _named(group: str, *, is_gradient: bool) -> str:
    return group + _GRADIENTS if is_gradient and group not in (OTHERS, "update") else group
