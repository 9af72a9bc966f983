"""Literals that training steps, scheduling problems and the command line share."""

from __future__ import annotations

from typing import Literal, TypeAlias

TensorKind: TypeAlias = Literal["input", "parameter", "activation", "gradient", "optimizer_state"]
Place: TypeAlias = Literal["ram", "storage"]
Optimizer: TypeAlias = Literal["sgd", "momentum"]
