"""Watched steps on this computer by commands that are killed and called again."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from devices.description import load_description
from devices.documents.document import read_yaml
from devices.errors import RequestRefused
from devices.operation import OpSpec
from devices.profile import DeviceProfile, OperationCost
from profiler.run.trials import RunDirectory
from replay.costs.watch import Watch, watch_step
from tests.support.graphs.profiles import made_up_profile
from tests.support.progress import ignore

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3600),
    pytest.mark.usefixtures("short_searches"),
]

_PATIENCE_S = 1000

SITTING = "*.*.*.json"
"""Files of sittings, and not the one of what was chosen to be watched."""


def kept(results: Path) -> dict[Path, bytes]:
    """Files of finished sittings."""
    return {file: file.read_bytes() for file in results.glob(f"**/watch*/{SITTING}")}


def command(*words: str, results: Path) -> list[str]:
    program = (sys.executable, "-m", "tests.support.short_searches")
    return [*program, *words, "--device", "local", "--results", str(results)]


def killed_after(sittings: int, words: list[str], results: Path) -> dict[Path, bytes]:
    """Kill a command when so many sittings are finished, and return their files."""
    others = kept(results).keys()

    def new() -> dict[Path, bytes]:
        return {file: content for file, content in kept(results).items() if file not in others}

    killed = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        due_s = time.monotonic() + _PATIENCE_S
        while len(new()) < sittings and killed.poll() is None and time.monotonic() < due_s:
            time.sleep(0.01)
    finally:
        killed.kill()
        _, said = killed.communicate()
    found = new()
    assert len(found) >= sittings, said.decode()
    return found


def measured(files: Mapping[Path, bytes]) -> list[str]:
    """When the sittings were measured."""
    return sorted(json.loads(content)["measured"] for content in files.values())


WATCHED = ("profile", "--model", "digits", "--batch", "2", "--no-storage")
PROFILE = (*WATCHED, "--blocks", "1")


def trials(run: RunDirectory) -> dict[str, int]:
    """Names of the files of trials, and when they were written."""
    return {file.name: file.stat().st_mtime_ns for file in run.path.glob("block-*")}


def test_a_killed_profile_goes_on_with_the_missing_sittings(tmp_path: Path) -> None:
    """Its first sittings are between the two blocks in which operations are measured."""
    words = command(*WATCHED, "--blocks", "2", results=tmp_path)
    before = killed_after(2, words, tmp_path)
    (run,) = map(RunDirectory, (tmp_path / "runs").iterdir())
    assert not run.is_finished
    assert run.profile() is None

    first = trials(run)
    assert {name.partition(".")[0] for name in first} == {"block-00"}
    subprocess.run(words, check=True, capture_output=True, timeout=_PATIENCE_S)
    assert list((tmp_path / "runs").iterdir()) == [run.path]
    assert run.is_finished
    assert first.items() < trials(run).items()
    assert {name.partition(".")[0] for name in trials(run)} == {"block-00", "block-01"}
    after = {run.watching / file.name: content for file, content in kept(tmp_path).items()}
    assert len(after) > len(before)
    assert before.items() <= after.items()
    (costs,) = read_yaml(tmp_path / "profiles" / "local.yaml", DeviceProfile).step_costs
    assert sorted(sitting.measured for sitting in costs.sittings) == measured(after)


def test_a_killed_check_goes_on_with_the_missing_sittings(tmp_path: Path) -> None:
    words = command(*PROFILE, results=tmp_path)
    subprocess.run(words, check=True, capture_output=True, timeout=_PATIENCE_S)
    words = command("check", "--blocks", "1", results=tmp_path)
    before = killed_after(2, words, tmp_path)
    (checked,) = map(RunDirectory, {file.parent.parent for file in before})
    assert not checked.is_finished
    assert not list(checked.path.glob("block-*"))  # costs of one block have no intervals
    # On a busy computer the check may end with the exit code of intervals that do not hold.
    ended = subprocess.run(words, capture_output=True, timeout=_PATIENCE_S, check=False)
    assert ended.returncode in {0, 4}, ended.stderr.decode()
    assert checked.is_finished
    after = {checked.watching / file.name: content for file, content in kept(tmp_path).items()}
    assert before.items() <= after.items()
    (report,) = (tmp_path / "checks").glob("*.json")
    assert any(kind.startswith("in place: ") for kind in json.loads(report.read_text())["kinds"])


def slowed(operation: OperationCost) -> OperationCost:
    cold = operation.cold.model_copy(update={"time_s": operation.cold.time_s.scaled(1.01)})
    return operation.model_copy(update={"cold": cold})


@pytest.fixture(scope="module")
def unwatched(tmp_path_factory: pytest.TempPathFactory) -> DeviceProfile:
    """A profile of operations by themselves."""
    results = tmp_path_factory.mktemp("unwatched")
    words = command(*PROFILE, "--no-additivity", results=results)
    subprocess.run(words, check=True, capture_output=True, timeout=_PATIENCE_S)
    return read_yaml(results / "profiles" / "local.yaml", DeviceProfile)


def test_a_step_is_not_watched_on_another_board(unwatched: DeviceProfile) -> None:
    other = unwatched.board.model_copy(update={"serial": "of another board"})
    (network,) = unwatched.networks
    with pytest.raises(RequestRefused, match="costs of one board only"):
        watch_step(
            load_description("local"),
            network,
            unwatched.changed(board=other),
            ignore,
            storage_budget_bytes=0,
        )


def test_a_watch_has_the_sittings_that_were_run_ahead(
    unwatched: DeviceProfile, tmp_path: Path
) -> None:
    """Also those of an interrupted profile, whose costs were others then."""
    profile = unwatched
    (network,) = profile.networks
    files: list[dict[Path, bytes]] = []
    where: dict[str, Any] = {"storage_budget_bytes": 0, "directory": tmp_path}
    board = load_description("local")
    for share in (0.3, 0.6, 0.6):
        watch = Watch.of(board, network, profile, ignore, **where)
        watch.sittings(share, profile, ignore)
        files.append({file: file.read_bytes() for file in tmp_path.glob(SITTING)})
    third, two_thirds, again = files
    assert third
    assert third.items() < two_thirds.items()
    assert again == two_thirds
    others = made_up_profile([OpSpec.of("relu.forward", elements=77)]).operations
    slower = (slowed(operation) for operation in profile.operations)
    more = profile.changed(operations=(*slower, *others))
    costs = Watch.of(board, network, more, ignore, **where).costs(more, ignore)
    after = {file: file.read_bytes() for file in tmp_path.glob(SITTING)}
    assert two_thirds.items() < after.items()
    assert sorted(sitting.measured for sitting in costs.sittings) == measured(after)
    assert len({sitting.pause for sitting in costs.sittings}) == 3  # none ran in the second 0.6
    assert None not in {sitting.pause for sitting in costs.sittings}


def test_tuning_that_is_killed_in_its_first_watch_goes_on_there(tmp_path: Path) -> None:
    words = command(*PROFILE, "--no-additivity", results=tmp_path)
    subprocess.run(words, check=True, capture_output=True, timeout=_PATIENCE_S)
    network = ("--model", "digits", "--batch", "2", "--ram-budget", "100%")
    tuned = tmp_path / "tuned"
    out = ("--out", str(tuned), "--rounds", "1", "--time-limit", "60", "--steps", "3")
    words = command("tune", *network, *out, results=tmp_path)
    before = killed_after(2, words, tmp_path)
    # On a busy computer no step of the round may be undisturbed.
    ended = subprocess.run(words, capture_output=True, timeout=_PATIENCE_S, check=False)
    assert ended.returncode in {0, 4}, ended.stderr.decode()
    (costs,) = read_yaml(tuned / "start.yaml", DeviceProfile).step_costs
    assert set(measured(before)) <= {sitting.measured for sitting in costs.sittings}
    assert kept(tmp_path) == {}, "finished sittings are in the profile"


def test_a_schedule_that_pages_is_watched_where_others_fit_without(tmp_path: Path) -> None:
    """So that transfers have costs of transfers within a step."""
    words = ("profile", "--model", "digits", "--batch", "2", "--blocks", "1")
    budget = ("--storage-budget-mib", "64")
    subprocess.run(
        command(*words, *budget, results=tmp_path),
        check=True,
        capture_output=True,
        timeout=_PATIENCE_S,
    )
    profile = read_yaml(tmp_path / "profiles" / "local.yaml", DeviceProfile)
    (costs,) = profile.step_costs
    paging = [sitting for sitting in costs.sittings if "paging" in sitting.schedule]
    assert 0 < len(paging) < len(costs.sittings)
    assert all(sitting.page_in and sitting.page_out for sitting in paging)
    of_ops = [sitting for sitting in costs.sittings if not sitting.only_transfers]
    assert {s.schedule for s in costs.sittings if s not in of_ops} == {
        s.schedule for s in paging if "parameters in storage" in s.schedule
    }
    assert {len(place.sittings_s) for place in costs.places} == {len(of_ops)}
    assert profile.storage is not None
    assert profile.storage.read.in_steps is not None
    assert profile.storage.write.in_steps is not None
