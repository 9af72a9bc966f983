"""A user's request: a network with its profile, and a budget, both as they were written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from devices.operation import Loss
from devices.quantities import Slices
from networks.kinds import Optimizer, Place
from solver.options import Coverage

DEFAULT_MODEL = "resnet18_cifar"
DEFAULT_OPTIMIZER: Optimizer = "sgd"

SliceWord: TypeAlias = Literal["auto", "none"]
CodecWord: TypeAlias = Literal["auto", "none", "all"]


@dataclass(frozen=True)
class ProfiledModel:
    """A network, and the profile (name or path) with its costs.

    ``model``, ``batch``, ``optimizer`` and ``accumulate`` are None unless the user names them.
    ``slices``: limits of parts, or ``auto``: parts where no schedule of whole layers can fit, and
    besides whole layers where an operation takes more than a third of the RAM.
    ``codecs``: whether the backward pass reads codes of activations; ``auto``: if that is cheaper.
    ``strict``: an operation that was not measured is an error; no cost is predicted.
    """

    profile: str
    model: str | None
    batch: int | None
    optimizer: Optimizer | None
    parameters_in: Place
    loss: Loss | None
    train: tuple[str, ...] | None
    accumulate: int | Literal["auto"] | None
    slices: Slices | SliceWord
    codecs: CodecWord
    lora: str | None
    strict: bool


@dataclass(frozen=True)
class RequestedBudget:
    """A budget as the user wrote it, with shares and multiples still relative to the graph.

    If ``ram`` is None, the budget is the RAM available on the profile's board.
    """

    ram: str | None
    deadline: str | None
    covers: Coverage
    instantaneous_paging: bool
    paging: bool
    rematerialization: bool
