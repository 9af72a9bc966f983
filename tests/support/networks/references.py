"""Recorded results of PyTorch (``record_training_references``), and their inputs."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np

from networks.training import TrainingStep
from tests.support import paths
from tests.support.onboard.kernels import Array, uniform

REFERENCES = paths.REFERENCES / "training_references.npz"

SAMPLES = 64
"""Number of samples that ``cli.py run`` generates for batches of 8."""

CURVE = ("resnet8", 8)
"""Model and batch size; samples and initial values use seed 0."""

CURVE_STEPS = 200

# Of eight images in resnet18_cifar, some input of a ReLU is always nearer to zero than rounding is.
GRADIENT_CASES = (
    *((model, batch) for model in ("resnet8", "dscnn") for batch in (1, 8)),
    *(("resnet18_cifar", batch) for batch in (1, 2)),
)

_DIRECTIONS = 4


@dataclass(frozen=True)
class GradientCase:
    """Recorded gradients of a network; ``projections`` has a row per name in ``trained(step)``."""

    model: str
    batch: int
    seed: int
    loss: float
    margin: float
    projections: Array

    def __str__(self) -> str:
        return f"{self.model}-{self.batch}"


def gradient_cases() -> list[GradientCase]:
    """The recorded gradients."""
    with np.load(REFERENCES) as archive:
        return [
            GradientCase(**about, projections=archive[f"gradients{number}"])
            for number, about in enumerate(json.loads(str(archive["cases"])))
        ]


def recorded_curve() -> Array:
    """Recorded losses before each update; shape [CURVE_STEPS]."""
    with np.load(REFERENCES) as archive:
        return archive["curve"]


def trained(step: TrainingStep) -> list[str]:
    """Names of the parameters that have an update."""
    return sorted(op.reads[0] for op in step.ops if op.name.endswith(".update"))


def projections(gradient: Array) -> list[float]:
    """Norm of a gradient, and its products with random directions.

    Two gradients for which these agree are equal, unless they were constructed against the
    directions.
    """
    flat = gradient.reshape(-1).astype(np.float64)
    directions = (uniform(flat.shape, seed).astype(np.float64) for seed in range(_DIRECTIONS))
    return [float(np.linalg.norm(flat)), *(float(flat @ each) for each in directions)]
