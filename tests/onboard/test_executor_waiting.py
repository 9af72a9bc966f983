"""How long a step waits for the storage without a processor, as the executor counts it."""

from __future__ import annotations

import ctypes

import pytest

from tests.support.onboard.executor import (
    Clock,
    Replay,
    begun,
    build_executor,
    card,
    keeping,
    medium_for,
)

LOOK_NS = 1_000_000
"""By which each look at the stand-in's clock moves it on; every transfer takes one look."""
TRANSFERS = 4
"""Of a step of ``keeping``: two tensors in, two out. Those behind the step are not counted."""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return build_executor(tmp_path_factory.mktemp("executor"))


@pytest.fixture
def replay(library: ctypes.CDLL) -> Replay:
    plan, storage = keeping(), card(64)
    return begun(library, plan, storage, medium_for(plan, storage, 3))


def test_every_step_counts_its_own_transfers_and_none_behind_it(replay: Replay) -> None:
    for _ in range(3):
        replay.step()
        assert replay.executor.blocked_ns == TRANSFERS * LOOK_NS


@pytest.mark.parametrize(
    ("share", "blocked_ns"),
    [(0.25, TRANSFERS * LOOK_NS * 3 // 4), (1.0, 0), (1.5, 0)],
)
def test_the_processors_share_of_a_transfer_is_no_waiting(
    replay: Replay, share: float, blocked_ns: int
) -> None:
    """A thread that ran for longer than the clock says, which differs in its last digits, waited
    for nothing."""
    looks = iter(range(1, 1000))
    running = Clock(lambda: int(next(looks) * share * LOOK_NS))
    replay.executor.running_ns = running
    replay.step()
    assert replay.executor.blocked_ns == blocked_ns


@pytest.mark.parametrize("missing", ["clock_ns", "running_ns"])
def test_without_a_clock_nothing_is_counted(replay: Replay, missing: str) -> None:
    setattr(replay.executor, missing, Clock())
    replay.step()
    assert replay.executor.blocked_ns == 0
