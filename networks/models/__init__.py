"""Built-in networks, by the names used on the command line."""

from networks.models.registry import (
    ModelError,
    ModelTooLarge,
    build_model,
    file_sha256,
    model_names,
    profiled_network,
    step_of,
)

__all__ = [
    "ModelError",
    "ModelTooLarge",
    "build_model",
    "file_sha256",
    "model_names",
    "profiled_network",
    "step_of",
]
