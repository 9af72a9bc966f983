"""Ways to run a training step in the RAM of a board: searches that Ctrl-C ends."""

from __future__ import annotations

from typing import Any

import pytest

from devices.profile import ProfiledNetwork
from devices.published import load_published
from replay.costs.ways import ways_to_run
from solver.problem.schedule import Schedule
from solver.solving import solving

DIGITS = ProfiledNetwork(model="digits", batch=2, optimizer="sgd")


def test_no_search_follows_one_that_was_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    solve_graph = solving.solve_graph
    searches = 0

    def interrupted(*arguments: Any, **more: Any) -> Schedule:
        nonlocal searches
        searches += 1
        return solve_graph(*arguments, **more).model_copy(update={"ended_by": "interrupted"})

    monkeypatch.setattr(solving, "solve_graph", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ways_to_run(DIGITS, load_published("m4"), False, lambda _: None)
    assert searches == 1
