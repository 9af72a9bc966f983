"""Transfers that gain nothing beside ops are made to run alone, for which a board needs less time.

A transfer beside ops takes the processor for its share of the transfer and for being handed over to
the channel, in the model at most for as long as the transfer itself (``processor_time_s``). Where
that limit is reached and the channel is idle, the referee's clock shows the same times for both
forms: the transfer begins at once, and processor and channel end with it. A board hands over what
is asked to run beside ops, however short, and takes longer than the model for it.
"""

from __future__ import annotations

from solver.problem.graph import CostedGraph
from solver.problem.liveness import with_frees, with_late_frees
from solver.problem.schedule import Action, Free, PageIn, PageOut
from solver.referee.referee import Moment, replay


def gains_nothing(graph: CostedGraph, action: PageIn | PageOut) -> bool:
    """Whether a transfer needs the processor throughout, so that no op could run meanwhile."""
    tensor = graph.tensor[action.tensor]
    cost = tensor.page_out if isinstance(action, PageOut) else tensor.page_in
    assert cost is not None, "the referee accepts no transfer without a cost"
    return graph.processor_time_s(cost.time_s) >= cost.time_s > 0


def runs_beside_ops(actions: tuple[Action, ...]) -> bool:
    """Whether a schedule has a transfer that runs beside ops."""
    return any(isinstance(action, PageIn | PageOut) and action.asynchronous for action in actions)


def alone_where_nothing_is_gained(
    graph: CostedGraph, actions: tuple[Action, ...]
) -> tuple[Action, ...]:
    """Make the transfers synchronous that gain nothing beside ops and find the channel idle.

    Ops and transfers start and end as before, and no more RAM is needed: what such a page-out held
    until a later action is freed when it ends. Without such transfers, ``actions`` themselves are
    returned.

    Raises :class:`~solver.referee.referee.RefereeError` if ``actions`` are not valid.
    """
    if not graph.share_of_processor and not graph.handover_s:
        return actions
    if not runs_beside_ops(actions):
        return actions
    path = tuple(_alone(graph, moment) for moment in replay(graph, actions).moments)
    if path == actions:
        return actions
    plain = [action for action in path if not isinstance(action, Free)]
    return with_late_frees(graph, with_frees(graph, plain), path)


def _alone(graph: CostedGraph, moment: Moment) -> Action:
    action = moment.action
    if (
        not isinstance(action, PageIn | PageOut)
        or not action.asynchronous
        or moment.transfer_start_s != moment.start_s
        or not gains_nothing(graph, action)
    ):
        return action
    return action.model_copy(update={"asynchronous": False})
