"""What ``run_campaign`` does with its boards: their work is made up, and done in this process."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from campaigns.design.opening import open_campaign
from campaigns.keeping.directory import CampaignDirectory
from campaigns.keeping.records import ReplayPlace
from campaigns.keeping.results import read_campaign
from campaigns.keeping.status import read_status
from campaigns.keeping.tables import cell_table
from campaigns.running.campaign import RunResult, Workers, run_campaign
from campaigns.running.profiling import ProfileJob
from campaigns.running.replaying import ReplayJob
from campaigns.running.solving import costed_network
from devices.documents.document import dump_yaml, write_atomically
from devices.errors import BoardUnreachable, InputError, JoulewrightError, MeasurementInvalid
from devices.library import resolve_profile
from devices.results import Results
from solver.pools import LastingPool
from tests.support.campaigns import TRIED, add_failure, campaign_with_replays


@dataclass
class Bench:
    """Boards that measure nothing: what was run, and how often places were released by then."""

    results: Results
    replayed: list[str] = field(default_factory=list)
    released: int = 0
    fails: Callable[[ProfileJob | ReplayJob], None] = lambda _job: None

    def make_profile(self, job: ProfileJob, directory: CampaignDirectory, _: Results) -> str:
        self.fails(job)
        file = directory.profiles / f"{job.setting.name}.known.yaml"
        write_atomically(file, dump_yaml(resolve_profile("m4", self.results.profiles)))
        return str(file.relative_to(directory.path))

    def run_replay(self, job: ReplayJob, _directory: CampaignDirectory, _attempt: int) -> float:
        self.fails(job)
        self.replayed.append(job.cell.method)
        return 1.0

    def release_places(self) -> None:
        self.released += 1

    def run(self, **changes: object) -> RunResult:
        """Run a campaign."""
        path = self.results.root / "tried.yaml"
        path.write_text(yaml.safe_dump({**TRIED, "ram_budgets": ["100%"], **changes}))
        opened = open_campaign(str(path), self.results)
        directory = CampaignDirectory(self.results.campaigns / opened.file.name)
        directory.begin(opened.text, opened.design)
        return run_campaign(directory, opened.file, opened.design, self.results, Workers(jobs=1))


def done_here(_pool: LastingPool, task: Callable[..., Any], *arguments: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(task(*arguments))
    return future


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    made = Bench(Results(tmp_path))
    monkeypatch.setattr(LastingPool, "submit", done_here)
    for name in ("make_profile", "run_replay", "release_places"):
        monkeypatch.setattr(f"campaigns.running.campaign.{name}", getattr(made, name))
    return made


def test_cells_are_run_although_the_last_of_their_board_cannot_be_solved(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def costed(level: Any, batch: Any, *others: Any) -> Any:
        if batch == 2:
            raise InputError("the profile states no costs of storage")
        return costed_network(level, batch, *others)

    monkeypatch.setattr("campaigns.running.campaign.costed_network", costed)
    only = {"methods": ["keep-everything"]}
    bench.run(**only, batches=[1])
    bench.replayed.clear()
    done = bench.run(**only, batches=[1, 2])
    assert [shortfall.reason for shortfall in done.shortfalls] == [
        "the profile states no costs of storage"
    ]
    assert bench.replayed == ["keep-everything"] * 4  # two repetitions, with a control in each


def test_a_profile_that_fails_is_told_although_the_campaign_has_an_older_one(bench: Bench) -> None:
    only = {"methods": ["keep-everything"], "attempts": 1}
    bench.run(**only, batches=[1])

    def fail(job: ProfileJob | ReplayJob) -> None:
        if isinstance(job, ProfileJob):
            raise MeasurementInvalid("windows stay void")

    bench.fails = fail
    bench.run(**only, batches=[1, 2])
    path = bench.results.campaigns / "tried"
    ((what, failure),) = read_status(path).failures
    assert (what, failure.reason) == ("profile of local", "windows stay void")
    small, large = read_campaign(path).cells
    assert (small.solved is not None, small.failures) == (True, ())
    assert (large.state, large.failures) == ("failed", (failure,))

    bench.fails = lambda _job: None
    bench.run(**only, batches=[1, 2, 4])
    assert read_status(path).failures == ()
    assert [result.failures for result in read_campaign(path).cells] == [()] * 3
    assert CampaignDirectory(path).failures("local") == (failure,)


def test_a_replay_that_failed_for_good_is_told_although_a_later_one_was_tried_again(
    bench: Bench,
) -> None:
    tried: list[ReplayPlace] = []

    def fail(job: ProfileJob | ReplayJob) -> None:
        if isinstance(job, ReplayJob):
            tried.append(job.place)
            if job.place.repetition == 0 and not job.place.control:
                raise MeasurementInvalid("windows stay void")
            if job.place.repetition == 1 and tried.count(job.place) == 1:
                raise BoardUnreachable("the link is down")

    bench.fails = fail
    bench.run(methods=["keep-everything"], attempts=2, repetitions=2)
    path = bench.results.campaigns / "tried"
    ((_, told),) = read_status(path).failures
    (result,) = read_campaign(path).cells
    assert result.state == "failed"
    assert result.final_failure == told
    assert told.reason == "windows stay void"
    assert not result.failures[-1].is_last
    (row,) = cell_table(read_campaign(path)).to_dict("records")
    assert (row["state"], row["failure"]) == ("failed", "windows stay void")


def test_a_search_that_failed_for_good_and_succeeds_later_leaves_no_failed_cell(
    bench: Bench,
) -> None:
    directory = campaign_with_replays(
        bench.results, ram_budgets=["100%"], methods=["keep-everything"]
    )
    (result,) = read_campaign(directory.path).cells
    add_failure(directory, result.cell, "killed")
    directory.repetition_file(result.cell, ReplayPlace(repetition=1)).unlink()
    (result,) = read_campaign(directory.path).cells
    assert (result.state, result.final_failure) == ("waiting", None)
    assert [failure.reason for failure in result.failures] == ["killed"]
    assert read_status(directory.path).failures == ()


@pytest.mark.parametrize("error", [BoardUnreachable("gone"), InputError("it does not fit")])
def test_the_place_of_a_board_is_released_when_nothing_more_is_done_with_it(
    bench: Bench, error: JoulewrightError
) -> None:
    only = {"methods": ["keep-everything"], "boards": [{"device": "local", "place": "desk"}]}

    def fail(job: ProfileJob | ReplayJob) -> None:
        if isinstance(job, ReplayJob):
            bench.released = 0
            raise error

    bench.fails = fail
    done = bench.run(**only, attempts=1)
    assert [shortfall.reason for shortfall in done.shortfalls] == [str(error)]
    assert bench.released == 1
