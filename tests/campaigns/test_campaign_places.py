"""Places of a labgrid laboratory, through a stand-in for labgrid's client."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from campaigns.running.places import at_place, hold_place, release_places
from devices.errors import BoardInUse, BoardUnreachable, InputError, JoulewrightError, SetupMissing
from solver.pools import lasting_pools
from tests.support.boards.processes import eventually
from tests.support.paths import ROOT

THIS_USER, OTHER = "here/somebody", "there/else"
HOLD = "from campaigns.running.places import hold_place; hold_place('bench'); print(); input()"


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A place that nobody has acquired: the file says who has."""
    place = tmp_path / "places" / "bench"
    place.parent.mkdir()
    place.touch()
    for name, value in (
        ("PATH", f"{ROOT / 'tests' / 'support'}:/usr/bin:/bin"),
        ("LG_COORDINATOR", str(place.parent)),
        ("LG_HOSTNAME", THIS_USER.partition("/")[0]),
        ("LG_USERNAME", THIS_USER.partition("/")[2]),
    ):
        monkeypatch.setenv(name, value)
    yield place
    release_places()


def test_a_place_is_held_until_it_is_released(bench: Path) -> None:
    for _ in range(2):
        with at_place("bench"):
            assert bench.read_text().strip() == THIS_USER
    assert bench.read_text().strip() == THIS_USER  # for what is done next
    release_places()
    assert bench.read_text() == ""


def test_a_killed_process_leaves_no_place_acquired(bench: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        assert bench.read_text().strip() == THIS_USER
        holder.send_signal(signal.SIGKILL)
    assert eventually(lambda: bench.read_text() == "")


def test_processes_that_are_killed_with_their_children_leave_no_place_acquired(
    bench: Path,
) -> None:
    with lasting_pools() as open_pool:
        pool = open_pool(1)
        pool.submit(hold_place, "bench").result()
        assert bench.read_text().strip() == THIS_USER
        pool.close()
        assert eventually(lambda: bench.read_text() == "")


@pytest.mark.slow
def test_a_place_that_its_user_has_acquired_stays_acquired(bench: Path) -> None:
    bench.write_text(THIS_USER)
    with at_place("bench"):
        pass
    release_places()
    assert bench.read_text() == THIS_USER


def test_what_was_measured_while_the_place_was_taken_away_fails(bench: Path) -> None:
    with pytest.raises(BoardUnreachable, match=r"was taken away .*: there/else has it now"):  # noqa: SIM117
        with at_place("bench"):
            bench.write_text(OTHER)
    release_places()
    assert bench.read_text() == OTHER
    with pytest.raises(BoardInUse, match="the labgrid place bench is acquired by there/else"):
        hold_place("bench")


@pytest.mark.parametrize(
    ("place", "variable", "value", "kind", "said"),
    [
        ("bank", "LG_USERNAME", "somebody", InputError, "labgrid has no place bank"),
        (
            "bench",
            "LG_COORDINATOR",
            "nowhere",
            BoardUnreachable,
            "Could not connect to coordinator",
        ),
        ("bench", "PATH", "/bin", SetupMissing, "labgrid-client is not installed"),
    ],
)
def test_a_place_that_cannot_be_acquired_is_one_sentence(
    bench: Path,
    monkeypatch: pytest.MonkeyPatch,
    place: str,
    variable: str,
    value: str,
    kind: type[JoulewrightError],
    said: str,
) -> None:
    with monkeypatch.context() as changed:
        changed.setenv(variable, value)
        with pytest.raises(kind, match=said) as raised:
            hold_place(place)
    assert "\n" not in str(raised.value)
