"""Which costs of a graph were not measured, in words and as data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from devices.documents.readable import si
from devices.profile import Interval
from solver.costing.costing import CostingResult, Predicted

# More would scroll what matters off the screen.
SHOWN_PREDICTIONS = 5


def report_costs(say: Callable[[str], None], costing: CostingResult, verbose: bool) -> None:
    """Say which operations were not measured by themselves, with ``verbose`` all of them."""
    if costing.predicted:
        _report_predicted(say, costing, verbose)
    if costing.in_context:
        say(
            f"{len(costing.in_context)} of {_distinct(costing)} distinct operations have costs"
            " measured within a training step"
        )


def predicted_document(predicted: Sequence[Predicted]) -> list[dict[str, Any]]:
    """All predicted operations for ``--json``, those that may take most of the step first."""
    return [
        {
            "op": prediction.spec.key,
            "occurrences": prediction.occurrences,
            "time_s": prediction.time_s.model_dump(),
            "energy_j": prediction.energy_j.model_dump(),
            "workspace_bytes": prediction.workspace_bytes,
            "basis": prediction.basis,
        }
        for prediction in _most_important_first(predicted)
    ]


def _report_predicted(say: Callable[[str], None], costing: CostingResult, verbose: bool) -> None:
    predicted = _most_important_first(costing.predicted)
    step = costing.step_time_s
    step_s = step.median
    predicted_s = sum(prediction.step_time_s.median for prediction in predicted)
    share = predicted_s / step_s if step_s else 0.0
    say(
        f"{len(predicted)} of {_distinct(costing)} distinct operations were not measured; their"
        f" costs are predicted: {100 * share:.1f} % of the time of a step"
        f" ({si(predicted_s, 's')} of {si(step_s, 's')})"
    )
    say(
        f"how sure: a step with nothing recomputed or paged takes {_with_ends(step)} with 95 %"
        " probability"
    )
    shown = predicted if verbose else predicted[:SHOWN_PREDICTIONS]
    if len(shown) < len(predicted):
        say(f"the {len(shown)} that may take most of it (--verbose lists all):")
    for prediction in shown:
        say(
            f"  {_ops(costing, prediction)}: {_with_ends(prediction.time_s)},"
            f" from {prediction.basis}" + (f"; {prediction.spec.key}" if verbose else "")
        )


def _ops(costing: CostingResult, prediction: Predicted) -> str:
    """The ops of the step that the operation costs, as many as fit on a line."""
    key = prediction.spec.key
    first = next(op.name for op in costing.graph.ops if op.cost_key == key)
    more = prediction.occurrences - 1
    return f"{first} and {more} more of the same, each" if more else first


def _most_important_first(predicted: Sequence[Predicted]) -> list[Predicted]:
    """By the upper end of what each may add to the step's time."""
    return sorted(predicted, key=lambda prediction: -prediction.step_time_s.high)


def _distinct(costing: CostingResult) -> int:
    return len({op.cost_key for op in costing.graph.ops})


def _with_ends(interval: Interval) -> str:
    return f"{si(interval.median, 's')} ({si(interval.low, 's')} to {si(interval.high, 's')})"
