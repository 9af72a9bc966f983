"""Cost model of a board: predicts operations that a profile did not measure.

Laws are fitted to the measured operations each time that they are needed: the profile's operations
are the model, and the same profile gives the same predictions. An operation is predicted from those
of its kind; if that gives no interval, or a very wide one, also as a layer of so many channels if
it is a part of one, from its family and from all operations, of which the narrowest is taken. Those
of several kinds must be much narrower: how a kind deviates from others, its own operations say.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

from devices.errors import InputError
from devices.operation import OpSpec
from devices.profile import CacheState, DeviceProfile, Interval, OperationCost
from solver.costing.context import Context, estimate_of, interval_of
from solver.costing.law import SHAPES, Estimate, Law, LawShape, PredictionError, fit_law
from solver.costing.several_kinds import LawOfSeveralKinds, fit_several_kinds
from solver.costing.situation import BY_ITSELF, Situation
from solver.costing.terms import sort
from solver.costing.workspaces import kernel_builds

_Quantity: TypeAlias = Literal["time", "energy"]
_AnyLaw: TypeAlias = Law | LawOfSeveralKinds

# Energies that differ from time × one power by less than this are no figures of their own.
_SAME_POWER = 1e-6

# Half width of an interval of a kind's law, on a logarithmic scale, from which on laws of several
# kinds are tried: a factor of 5, which is what these are unsure by at best.
_SURE = 1.6

# Half width of an interval of several kinds, relative to that of the kind's own, below which it is
# taken. Set on two sweeps of a computer and one of an emulated Cortex-M4F.
_SURER = 0.6


class NotPredictable(InputError):
    """The measured operations do not suffice to predict an operation."""


@dataclass(frozen=True)
class Prediction:
    """Costs of an operation that was not measured; ``basis`` names the operations they are from."""

    time_s: Interval
    energy_j: Interval
    workspace_bytes: int
    basis: str


@dataclass(frozen=True)
class CostInStep:
    """Costs of a measured operation within a step that was not watched."""

    time_s: Interval
    energy_j: Interval


class CostModel:
    """Predictions from a profile's operations.

    Args:
        profile: Costs of operations.
        shapes: Laws that are tried for operations of one kind.
    """

    def __init__(self, profile: DeviceProfile, shapes: Sequence[LawShape] = SHAPES) -> None:
        self._shapes = shapes
        self._measured: Mapping[OpSpec, OperationCost] = profile.by_spec
        self._context = Context.of(profile)
        self._laws: dict[tuple[str, _Quantity, CacheState], _AnyLaw | None] = {}
        self._builds = kernel_builds(profile)

    def predict(self, spec: OpSpec, situation: Situation = BY_ITSELF) -> Prediction:
        """Predict the costs of an operation within a step.

        Args:
            spec: the operation.
            situation: that of an op of a step.

        Raises:
            NotPredictable: no law covers it.
        """
        found = []
        for like, scope in _scopes(spec):
            if (each := self._predicted(like, scope, situation)) is not None:
                found.append(each)
                if "." in scope and each[0].half < _SURE:
                    break
        if not found:
            raise NotPredictable(f"{spec}: {len(self._measured)} operations do not suffice")
        time, energy, scope = min(
            found, key=lambda each: each[0].half * (_SURER if "." in each[2] else 1.0)
        )
        count = len(self._members(scope))
        return Prediction(
            interval_of(time),
            interval_of(energy),
            self.workspace_bytes(spec),
            f"{count} measured {scope or 'operations of all kinds'}",
        )

    def workspace_bytes(self, spec: OpSpec) -> int:
        """Workspace of an operation that is enough in every build that the profile can be of.

        It is 0 for rates that do not say which kernels they are of.
        """
        return max((spec.workspace_bytes(build) for build in self._builds), default=0)

    def _predicted(
        self, like: OpSpec, scope: str, situation: Situation
    ) -> tuple[Estimate, Estimate, str] | None:
        """Time and energy from a group of operations; None if its laws do not give them."""
        try:
            warm, cold = (self._alone(like, scope, "time", state) for state in _STATES)
            time = self._context.in_step(like.kind, warm, cold, situation)
            if self._power_w is not None:
                return time, Estimate(time.log + math.log(self._power_w), time.half), scope
            warm_j, cold_j = (self._alone(like, scope, "energy", state) for state in _STATES)
            power_w = math.exp(warm_j.log - warm.log)
            return time, self._context.in_step(like.kind, warm_j, cold_j, situation, power_w), scope
        except PredictionError:
            return None

    def doubt(self, spec: OpSpec) -> float:
        """Half width of the interval of an operation's time by itself, on a logarithmic scale.

        It is infinite if no law covers the operation.
        """
        for like, scope in _scopes(spec):
            with suppress(PredictionError):
                return self._alone(like, scope, "time", "warm").half
        return math.inf

    def carried_over(self, spec: OpSpec, situation: Situation = BY_ITSELF) -> CostInStep | None:
        """Costs within a step of a measured operation that was not watched.

        Args:
            spec: the operation.
            situation: that of an op of a step.

        Returns:
            None if no steps were watched, so that nothing is known about costs in a step.
        """
        if not self._context.is_watched:
            return None
        operation = self._measured[spec]
        warm, cold = (_estimate(operation, state, "time") for state in _STATES)
        warm_j, cold_j = (_estimate(operation, state, "energy") for state in _STATES)
        if warm is None or cold is None or warm_j is None or cold_j is None:
            return None
        time = self._context.in_step(spec.kind, warm, cold, situation)
        power_w = math.exp(warm_j.log - warm.log)
        energy = self._context.in_step(spec.kind, warm_j, cold_j, situation, power_w)
        return CostInStep(interval_of(time), interval_of(energy))

    def _alone(self, like: OpSpec, scope: str, quantity: _Quantity, state: CacheState) -> Estimate:
        key = (scope, quantity, "warm" if self._has_one_state else state)
        if key not in self._laws:
            self._laws[key] = self._fitted(*key)
        law = self._laws[key]
        if law is None:
            raise PredictionError(f"{scope}: no law")
        return law.predict(like)

    def _fitted(self, scope: str, quantity: _Quantity, state: CacheState) -> _AnyLaw | None:
        costs = {
            spec: math.exp(estimate.log)
            for spec in self._members(scope)
            if (estimate := _estimate(self._measured[spec], state, quantity)) is not None
        }
        specs = list(costs)
        try:
            if "." in scope:
                return fit_law(specs, list(costs.values()), self._shapes)
            return fit_several_kinds(specs, list(costs.values()))
        except PredictionError:
            return None

    def _members(self, scope: str) -> list[OpSpec]:
        """Measured operations of a sort or family, or all of them if ``scope`` is empty."""
        return [spec for spec in self._measured if scope in ("", spec.family, sort(spec))]

    @cached_property
    def _has_one_state(self) -> bool:
        """Whether warm and cold costs are one measurement."""
        return all(operation.warm == operation.cold for operation in self._measured.values())

    @cached_property
    def _power_w(self) -> float | None:
        """The power that all energies are from; None if each was measured."""
        powers = [
            math.exp(energy.log - time.log)
            for operation in self._measured.values()
            for state in _STATES
            if (time := _estimate(operation, state, "time")) is not None
            and (energy := _estimate(operation, state, "energy")) is not None
        ]
        if not powers or max(powers) - min(powers) > _SAME_POWER * max(powers):
            return None
        return max(powers)


_STATES: tuple[CacheState, CacheState] = ("warm", "cold")


def _estimate(operation: OperationCost, state: CacheState, quantity: _Quantity) -> Estimate | None:
    """Measured cost of an operation by itself; None if it is zero or unknown."""
    cost = operation.isolated(state)
    interval = cost.time_s if quantity == "time" else cost.energy_j
    return None if interval is None else estimate_of(interval)


def _scopes(spec: OpSpec) -> Iterator[tuple[OpSpec, str]]:
    """Groups to predict an operation from, nearest first, each with the operation that stands for
    it.

    A part does the work of a layer with fewer channels; its own operands are partly untouched.
    """
    for like in (spec, spec.as_layer):
        if like is not None:
            yield like, sort(like)
    like = spec.as_layer or spec
    yield like, like.family
    yield like, ""
