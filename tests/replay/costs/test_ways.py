"""Ways to run a training step in the RAM of a board, which a profile watches."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from devices.errors import MeasurementInvalid
from devices.operation import OpSpec
from devices.profile import Build, DeviceProfile, ProfiledNetwork
from devices.published import load_published
from networks.models import build_model, step_of
from replay.costs.context import FEWEST_SITTINGS
from replay.costs.sittings import KeptSittings, WatchedSitting
from replay.costs.watch import Watch, watch_step
from replay.costs.ways import Way, ways_that_page, ways_to_run
from replay.lowering.checks import ArenaTooTight
from solver.problem.schedule import PageIn, PageOut, Schedule
from solver.solving import solving
from tests.support.boards.measuring import describe
from tests.support.graphs.profiles import made_up_profile
from tests.support.onboard.replays import paged_chain

pytestmark = pytest.mark.usefixtures("short_searches")

GRAPH, SCHEDULE = paged_chain()
NETWORK = ProfiledNetwork(model="digits", batch=1, optimizer="sgd")
BUILD = Build(kernels_sha256="0", compiler="cc", flags=(), matmul="in-tree", threads=1)


def way(schedule: Schedule) -> Way:
    paging = schedule.model_copy(update={"bytes_written_to_storage": 4096})
    return Way(build_model("digits", 1, "sgd", "ram"), GRAPH, paging)


def test_schedules_that_page_in_the_same_ram_keep_their_own_sittings(tmp_path: Path) -> None:
    """One may also recompute, and writes too much; the other is watched for its transfers."""
    budget = SCHEDULE.budget.model_copy(update={"rematerialization": False})
    first, second = way(SCHEDULE), way(SCHEDULE.model_copy(update={"budget": budget}))
    kept = KeptSittings.of(tmp_path, NETWORK, None, [])
    when = "2026-01-31T12:00:00+00:00"
    own = WatchedSitting(schedule=first.words, steps=3, measured=when, op_s={"conv": 1.0})
    kept.keep(first.words, 0, own)
    assert kept.find(first.words, 0) is not None
    assert kept.find(second.words, 0) is None


DIGITS = ProfiledNetwork(model="digits", batch=2, optimizer="sgd")


@pytest.mark.slow
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


def test_a_write_budget_that_allows_no_sitting_is_named_before_the_board_is_reached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("replay.costs.watch.ways_to_run", lambda *_: [way(SCHEDULE)] * 3)
    monkeypatch.setattr("replay.costs.ways.Way.written_bytes_a_step", lambda *_: 4096)
    profile = made_up_profile([OpSpec.of("relu.forward", elements=64)]).changed(build=BUILD)
    with pytest.raises(MeasurementInvalid, match="would write more than 100 B to storage; allow"):
        watch_step(describe(), NETWORK, profile, lambda _: None, storage_budget_bytes=100)


@pytest.mark.parametrize("step_s", [1e-3, 30.0])
def test_schedules_that_count_for_ops_have_enough_sittings(
    step_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where steps are long, and one of three schedules is watched for its transfers."""
    step = build_model("digits", 1, "sgd", "ram")
    slow = Way(step, GRAPH, SCHEDULE.model_copy(update={"time_s": step_s}))
    paging = replace(slow, only_transfers=True)
    monkeypatch.setattr("replay.costs.watch.ways_to_run", lambda *_: [slow, slow])
    monkeypatch.setattr("replay.costs.watch.can_page", lambda *_: True)
    monkeypatch.setattr("replay.costs.watch.ways_that_page", lambda *_: [paging])
    profile = made_up_profile([OpSpec.of("relu.forward", elements=64)]).changed(build=BUILD)
    watch = Watch.of(
        describe(), NETWORK, profile, lambda _: None, storage_budget_bytes=0, directory=None
    )
    assert 2 * watch.extent.sittings >= FEWEST_SITTINGS


def quiet(_activity: str) -> None:
    pass


def with_ram(profile: DeviceProfile, available_bytes: int) -> DeviceProfile:
    ram = {"memory_bytes": 1 << 20, "available_bytes": available_bytes, "shares_ram": True}
    return profile.changed(board=profile.board.model_copy(update=ram))


def test_an_interrupted_watch_goes_on_with_what_it_chose(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another search may find other schedules, of which no sitting is kept."""
    searches: list[str] = []
    board = with_ram(load_published("m4").changed(build=BUILD), 64_000)
    where: dict[str, Any] = {"storage_budget_bytes": 0, "directory": tmp_path}

    def begun(profile: DeviceProfile) -> Watch:
        return Watch.of(describe(), DIGITS, profile, searches.append, **where)

    first = begun(board)
    assert len(first.ways) > 1
    assert searches
    searches.clear()
    monkeypatch.setattr("replay.costs.watch.SITTINGS", 2)
    again = begun(board)
    assert searches == []
    assert [way.schedule for way in again.ways] == [way.schedule for way in first.ways]
    assert (again.extent, again.kept) == (first.extent, first.kept)
    smaller = with_ram(board, 30_000)
    assert max(way.ram_bytes(smaller) for way in begun(smaller).ways) <= 30_000
    assert searches


@pytest.mark.slow
def test_a_schedule_whose_arena_is_too_tight_to_run_is_not_watched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not every arena has room for the moves after a step; a profile does without this schedule."""

    def too_tight(*_: object) -> None:
        raise ArenaTooTight("the largest gap of 0 free bytes is too small to exchange them")

    monkeypatch.setattr("replay.lowering.lowering.lower", too_tight)
    (only,) = ways_to_run(DIGITS, load_published("m4"), True, quiet)
    assert only.schedule is None
    assert list(ways_that_page(DIGITS, load_published("m4"), [only], 1 << 30, quiet)) == []


@pytest.mark.slow
def test_no_transfer_is_watched_beside_an_op() -> None:
    """Its span has waits for the processor, and those of ops have what it took of them."""
    profile = load_published("m4")
    assert profile.storage is not None
    storage = profile.storage.model_copy(update={"dma": True})
    with_dma = profile.changed(storage=storage)
    ways = ways_to_run(DIGITS, with_dma, True, quiet)
    ways += ways_that_page(DIGITS, with_dma, ways, 1 << 30, quiet)
    actions = [action for each in ways if each.schedule for action in each.schedule.actions]
    transfers = [each for each in actions if isinstance(each, PageIn | PageOut)]
    assert transfers
    assert not any(each.asynchronous for each in transfers)


@pytest.mark.slow
def test_one_way_pages_every_trained_parameter_in_and_out() -> None:
    profile = load_published("m4")
    ways = ways_to_run(DIGITS, profile, True, quiet)
    with_parameters, *_ = found = list(ways_that_page(DIGITS, profile, ways, 1 << 30, quiet))
    assert with_parameters.schedule is not None
    actions = with_parameters.schedule.actions
    parameters = {t.name for t in with_parameters.step.tensors if t.home == "storage"}
    assert {each.tensor for each in actions if isinstance(each, PageIn)} == parameters
    assert sum(isinstance(each, PageOut) for each in actions) == len(parameters)
    assert len({each.words for each in (*ways, *found)}) == len(ways) + len(found)
    assert list(ways_that_page(DIGITS, profile, ways, 1, quiet)) == []


def test_parameters_stay_in_ram_where_other_operations_read_them_from_storage() -> None:
    """A step reads only those rows of an embedding's table in storage that its batch names."""
    network = ProfiledNetwork(model="bert", batch=1, optimizer="sgd")
    known = Way(step_of(network, "ram"), GRAPH, None)
    profile = load_published("m4")
    searched: list[str] = []
    found = ways_that_page(network, profile, [known, way(SCHEDULE)], 1 << 30, searched.append)
    assert (list(found), searched) == ([], [])


@pytest.mark.slow
def test_schedules_that_are_watched_leave_room_for_the_firmwares_records_of_them() -> None:
    """Nearly all of the board's RAM would do for the arena alone, but not for its records too."""
    board = with_ram(load_published("m4"), 12_000)
    ways = ways_to_run(DIGITS, board, True, quiet)
    schedules = [way.schedule for way in ways if way.schedule is not None]
    assert 11_400 in [schedule.asked_ram_bytes for schedule in schedules]
    assert len({way.words for way in ways}) == len(ways) == len(schedules)
    assert max(way.ram_bytes(board) for way in ways) <= 12_000
