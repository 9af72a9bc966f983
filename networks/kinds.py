"""Literals that training steps, scheduling problems and the command line share."""

from __future__ import annotations

from typing import Literal, TypeAlias

TensorKind: TypeAlias = Literal["input", "parameter", "activation", "gradient", "optimizer_state"]
Place: TypeAlias = Literal["ram", "storage"]
LEARNING_RATE, ADAM_LEARNING_RATE = 0.01, 0.001
"""Learning rates of the optimizers, the second of Adam and AdamW."""
MOMENTUM, WEIGHT_DECAY = 0.9, 0.01
"""Momentum of the optimizers that have one, and weight decay of AdamW."""
Optimizer: TypeAlias = Literal["sgd", "momentum", "nesterov", "adam", "adamw"]
