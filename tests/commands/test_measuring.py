"""What ``profile``, ``check`` and ``tune`` announce, write and print; measurements are made up."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import cli
from devices.documents.document import dump_yaml, read_yaml
from devices.errors import (
    BoardUnreachable,
    ExitCode,
    Infeasible,
    InputError,
    JoulewrightError,
    MeasurementInvalid,
    TooFewTrials,
)
from devices.library import resolve_profile
from devices.operation import OpSpec
from devices.profile import Build, Cost, DeviceProfile, Interval, ProfiledNetwork, StepCosts
from replay.costs.coverage import CheckedFigure, CheckedGroup
from replay.costs.tune import Round, Tuned
from replay.directory import StoredRun
from replay.expectation import expected_step
from tests.support.graphs.profiles import made_up_profile
from tests.support.onboard.replays import measured_step, paged_chain, report_of

MIB = 1 << 20
GRAPH, SCHEDULE = paged_chain()
RELU, ADD = OpSpec.of("relu.forward", elements=64), OpSpec.of("add.forward", elements=64)
PART, WHOLE = made_up_profile([RELU]), made_up_profile([RELU, ADD])
BUILD = Build(kernels_sha256="0", compiler="cc", flags=(), matmul="in-tree", threads=1)


# --- profile --------------------------------------------------------------------------------------


@pytest.fixture
def profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run the command; the operations of networks are measured at once."""
    for room in ("profiler.run.run", "replay.costs.measuring"):
        monkeypatch.setattr(f"{room}.profile_device", lambda *_, **__: PART)
    device = ("--device", "local", "--results", str(tmp_path))
    return lambda *words: cli.main(["profile", *device, *words])


def test_the_steps_of_all_networks_share_the_bytes_that_may_be_written(
    profile: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shares: list[int] = []

    def of(*_: Any, storage_budget_bytes: int, **__: Any) -> None:
        shares.append(storage_budget_bytes)
        raise InputError("nothing was watched")

    monkeypatch.setattr("replay.costs.watch.Watch.of", of)
    words = ("--model", "linear", "--model", "dscnn", "--storage-budget-mib", "64", "--blocks", "1")
    assert profile(*words) == 0
    assert len(shares) == 2
    assert "write at most 64.00 MiB more" in capsys.readouterr().err
    assert sum(shares) <= 64 * MIB


def test_a_whole_profile_is_not_replaced_by_a_part_of_the_next_one(
    profile: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "profiles" / "local.yaml"
    out.parent.mkdir()
    out.write_text(dump_yaml(WHOLE))

    def lost(*_: Any, **__: Any) -> DeviceProfile:
        raise BoardUnreachable("local: does not answer")

    monkeypatch.setattr("replay.costs.general.Sweep.measure", lost)
    words = ("--model", "linear", "--no-additivity", "--general", "1")
    assert profile(*words) == 3
    assert read_yaml(out, DeviceProfile) == WHOLE
    assert f"{out}: unchanged; what was measured is kept in " in capsys.readouterr().err
    out.unlink()
    assert profile(*words) == 3
    assert read_yaml(out, DeviceProfile) == PART


@dataclass
class Watched:
    """Stand-in for a watch, which writes down when its sittings are run."""

    done: list[str]

    def sittings(self, share: float, *_: Any) -> None:
        self.done.append(f"sittings up to {share:.2f}")

    def costs(self, *_: Any) -> StepCosts:
        self.done.append("all sittings")
        return watched("linear")


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Searches, blocks and sittings in their order, written down while the command runs."""
    found: list[str] = []

    def of(*_: Any, **__: Any) -> Watched:
        found.append("schedules to watch")
        return Watched(found)

    monkeypatch.setattr("replay.costs.watch.Watch.of", of)
    return found


FIRST, SECOND = "sittings up to 0.33", "sittings up to 0.67"


def test_sittings_of_a_step_are_before_between_and_after_the_shapes_of_a_sweep(
    profile: Any, done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(_: Any, first: DeviceProfile, __: Any, between: Callable[[float], None]) -> Any:
        for share in (0.3, 0.6):
            done.append(f"{share} of the shapes")
            between(share)
        done.append("all shapes")
        return first.changed(operations=WHOLE.operations)

    monkeypatch.setattr("replay.costs.general.Sweep.measure", measure)
    assert profile("--model", "linear", "--general", "1") == 0
    watch, *order = done
    assert watch == "schedules to watch"
    assert order == [
        *("sittings up to 0.14", "0.3 of the shapes", "sittings up to 0.36"),
        *("0.6 of the shapes", "sittings up to 0.57", "all shapes", "all sittings"),
    ]


def test_a_microcontroller_runs_all_sittings_after_the_shapes(
    profile: Any, done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would have to be programmed for each pause."""

    def measure(_: Any, first: DeviceProfile, __: Any, between: Callable[[float], None]) -> Any:
        between(0.5)
        return first.changed(operations=WHOLE.operations)

    monkeypatch.setattr("replay.costs.general.Sweep.measure", measure)
    device = ("--device", "emulated-m4f", "--no-storage")
    assert profile(*device, "--model", "linear", "--general", "1") == 0
    assert done == ["schedules to watch", "all sittings"]


@pytest.mark.parametrize(
    ("blocks", "order"),
    [
        (1, ["range(0, 1)"]),
        (2, ["range(0, 1)", "sittings up to 0.50", "range(1, 2)"]),
        (3, ["range(0, 1)", FIRST, "range(1, 2)", SECOND, "range(2, 3)"]),
    ],
)
def test_sittings_of_a_step_are_between_the_blocks_of_a_profile(
    blocks: int, order: list[str], profile: Any, done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(*arguments: Any) -> DeviceProfile:
        done.append(str(arguments[-1]))
        return PART

    monkeypatch.setattr("replay.costs.measuring.profile_device", measure)
    assert profile("--model", "linear", "--blocks", str(blocks)) == 0
    assert [each for each in done if each != "schedules to watch"] == [*order, "all sittings"]
    assert done.count("schedules to watch") == 1


def test_blocks_whose_trials_do_not_suffice_are_followed_by_others(
    profile: Any, done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(*arguments: Any) -> DeviceProfile:
        if arguments[-1] == range(1):
            raise TooFewTrials("relu.forward has no valid trial")
        return PART

    monkeypatch.setattr("replay.costs.measuring.profile_device", measure)
    assert profile("--model", "linear", "--blocks", "3") == 0
    assert done == ["schedules to watch", SECOND, "all sittings"]


def test_a_step_that_cannot_be_watched_between_blocks_is_watched_after_them(
    profile: Any,
    done: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Schedules are searched twice, and the profile has all operations in any case."""

    def measure(*arguments: Any) -> DeviceProfile:
        done.append(str(arguments[-1]))
        return PART

    def of(*_: Any, **__: Any) -> None:
        done.append("schedules to watch")
        raise MeasurementInvalid("no schedule can run")

    monkeypatch.setattr("replay.costs.measuring.profile_device", measure)
    monkeypatch.setattr("replay.costs.watch.Watch.of", of)
    assert profile("--model", "linear", "--blocks", "3") == 0
    searched = "schedules to watch"
    assert done == ["range(0, 1)", searched, "range(1, 2)", "range(2, 3)", searched]
    assert "linear was not watched: no schedule can run" in capsys.readouterr().out


def test_a_microcontroller_runs_all_sittings_after_the_blocks(
    profile: Any, done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has room for one program, which would have to be flashed again for each."""

    def measure(*arguments: Any) -> DeviceProfile:
        done.append(str(arguments[-1]))
        return PART

    monkeypatch.setattr("replay.costs.measuring.profile_device", measure)
    assert profile("--device", "emulated-m3-sd", "--model", "digits") == 0
    assert done == ["range(0, 5)", "schedules to watch", "all sittings"]


# --- check ----------------------------------------------------------------------------------------

CHECK = ("check", "--device", "local", "--profile", "measured.yaml")


def watched(model: str) -> StepCosts:
    network = ProfiledNetwork(model=model, batch=1, optimizer="sgd")
    return StepCosts(network=network, sittings=(), correlation=0.0, places=())


@pytest.fixture
def twice_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A profile of which the steps of two networks were watched, in the current directory."""
    monkeypatch.chdir(tmp_path)
    profile = WHOLE.changed(step_costs=[watched("one"), watched("two")], build=BUILD)
    Path("measured.yaml").write_text(dump_yaml(profile))


@pytest.mark.usefixtures("twice_watched")
def test_check_shares_the_bytes_that_may_be_written_and_announces_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shares: list[int] = []

    def watch_step(*_: Any, storage_budget_bytes: int, **__: Any) -> StepCosts:
        shares.append(storage_budget_bytes)
        if len(shares) == 2:
            raise BoardUnreachable("both were watched")
        return watched("one")

    monkeypatch.setattr("commands.check._operations", lambda *_: None)
    monkeypatch.setattr("replay.costs.check.place_figures", lambda *_: CheckedGroup((a_figure(),)))
    monkeypatch.setattr("replay.costs.watch.watch_step", watch_step)
    assert cli.main([*CHECK, "--storage-budget-mib", "64"]) == 3
    said = capsys.readouterr().err
    assert (
        "the step of one and of two is watched again; its steps write at most 64.00 MiB to" in said
    )
    assert sum(shares) <= 64 * MIB


@pytest.mark.usefixtures("twice_watched")
@pytest.mark.parametrize(("words", "most"), [((), 256 * MIB), (("--time-limit", "10"), 0)])
def test_a_dry_check_only_says_what_it_would_measure_and_write(
    words: Sequence[str], most: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*CHECK, "--dry-run", "--json", *words]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["most_bytes_written_by_steps"] == most
    assert set(document["operations"]) == {RELU.key, ADD.key}
    assert not Path("results").exists()


def a_figure() -> CheckedFigure:
    interval = PART.operations[0].cold.time_s
    sittings_s = (interval.median, interval.median)
    return CheckedFigure(what="a", kind="a", profile=interval, sittings_s=sittings_s)


@pytest.mark.usefixtures("twice_watched")
def test_a_step_that_cannot_be_watched_again_does_not_end_the_check(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def watch_step(_: Any, network: ProfiledNetwork, *__: Any, **___: Any) -> StepCosts:
        if network.model == "two":
            raise MeasurementInvalid("its steps would write too much")
        return watched("one")

    monkeypatch.setattr("commands.check._operations", lambda *_: CheckedGroup((a_figure(),)))
    monkeypatch.setattr("replay.costs.check.place_figures", lambda *_: CheckedGroup((a_figure(),)))
    monkeypatch.setattr("replay.costs.watch.watch_step", watch_step)
    assert cli.main([*CHECK, "--json"]) == 0
    said = capsys.readouterr()
    assert "the step of two was not watched again: its steps would write too much" in said.err
    assert len(json.loads(said.out)["figures"]) == 2


@pytest.mark.usefixtures("twice_watched")
def test_a_check_of_nothing_but_steps_that_cannot_be_watched_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def watch_step(*_: Any, **__: Any) -> StepCosts:
        raise MeasurementInvalid("its steps would write too much")

    Path("measured.yaml").write_text(dump_yaml(in_one_block()))
    monkeypatch.setattr("replay.costs.watch.watch_step", watch_step)
    assert cli.main([*CHECK]) == 4
    assert "error: its steps would write too much" in capsys.readouterr().err


@pytest.mark.usefixtures("twice_watched")
def test_a_check_fails_if_nothing_that_the_profile_watched_is_in_the_network_any_longer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("measured.yaml").write_text(dump_yaml(in_one_block()))
    monkeypatch.setattr("replay.costs.watch.watch_step", lambda *_, **__: watched("one"))
    assert cli.main([*CHECK]) == 2
    said = capsys.readouterr().err
    assert "no op of one has an operation that was watched in the profile" in said


def test_a_profile_that_was_not_measured_cannot_be_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["check", "--device", "local", "--profile", "m4", "--dry-run"]) == 2
    assert "states rates" in capsys.readouterr().err
    Path("measured.yaml").write_text(dump_yaml(WHOLE))  # it does not name its kernels
    assert cli.main([*CHECK, "--dry-run"]) == 2
    assert "does not say which kernels were measured" in capsys.readouterr().err


def in_one_block() -> DeviceProfile:
    """A profile whose costs have no intervals."""

    def exact(cost: Cost) -> Cost:
        return cost.model_copy(update={"time_s": Interval.exact(cost.time_s.median)})

    operations = [
        operation.model_copy(update={"warm": exact(operation.warm), "cold": exact(operation.cold)})
        for operation in WHOLE.operations
    ]
    return read_yaml(Path("measured.yaml"), DeviceProfile).changed(operations=operations)


@pytest.mark.usefixtures("twice_watched")
def test_costs_of_one_block_are_not_held_against_intervals_that_they_do_not_have(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    profile = in_one_block()
    Path("measured.yaml").write_text(dump_yaml(profile))
    assert cli.main([*CHECK, "--time-limit", "10"]) == 2
    assert "have no intervals that could be checked" in capsys.readouterr().err

    monkeypatch.setattr("replay.costs.check.place_figures", lambda *_: CheckedGroup((a_figure(),)))
    monkeypatch.setattr("replay.costs.watch.watch_step", lambda *_, **__: watched("one"))
    assert cli.main([*CHECK, "--json"]) == 0
    said = capsys.readouterr()
    assert "2 operations were measured in one block" in said.err
    document = json.loads(said.out)
    assert (document["unchecked"], len(document["figures"])) == (2, 2)


@pytest.mark.usefixtures("twice_watched")
@pytest.mark.parametrize(
    ("cpu", "kernels", "said"),
    [
        ("another", "0", "this board's is 'another': a profile holds costs of one board only"),
        (None, "1", "is of kernels 0, the board's are 1 now"),
    ],
)
def test_another_board_or_other_kernels_are_refused_before_anything_is_measured(
    cpu: str | None,
    kernels: str,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The stand-in for the board can be prepared, and measures nothing."""
    profile = read_yaml(Path("measured.yaml"), DeviceProfile)

    @contextmanager
    def opened(*_: Any) -> Iterator[SimpleNamespace]:
        yield SimpleNamespace(
            prepare=lambda _progress: None,
            facts=SimpleNamespace(identity=profile.board.model_copy(update={"cpu": cpu})),
            build=BUILD.model_copy(update={"kernels_sha256": kernels}),
        )

    monkeypatch.setattr("profiler.run.run.open_board", opened)
    assert cli.main([*CHECK]) == 2
    assert said in capsys.readouterr().err
    assert not list(Path("results/runs").glob("*/run.json"))


@pytest.mark.usefixtures("twice_watched")
def test_a_check_of_another_profile_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupted one may be older than the profile that is checked now."""
    places: list[Path] = []

    def interrupted(*words: Any) -> CheckedGroup:
        places.append(words[4].path)
        raise KeyboardInterrupt

    monkeypatch.setattr("commands.check._operations", interrupted)
    for created in ("2026-01-31", "2026-01-31", "2026-02-28"):
        profile = read_yaml(Path("measured.yaml"), DeviceProfile).changed(created=created)
        Path("measured.yaml").write_text(dump_yaml(profile))
        assert cli.main([*CHECK]) == 130
    assert places[0] == places[1] != places[2]


@pytest.mark.usefixtures("twice_watched")
def test_measured_seconds_are_not_called_estimated(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The joules of the profile are estimated; a check measures times."""
    interval = PART.operations[0].cold.time_s
    seconds = (interval.median, interval.median)
    figure = CheckedFigure(what="relu", kind="relu", profile=interval, sittings_s=seconds)
    monkeypatch.setattr("commands.check._operations", lambda *_: CheckedGroup((figure,)))
    assert cli.main([*CHECK, "--time-limit", "10"]) == 0
    shown = capsys.readouterr().out
    assert "in the median of 1 times; joules are not measured again" in shown
    assert "estimated" not in shown


# --- tune -----------------------------------------------------------------------------------------

WORDS = ("tune", "--device", "local", "--model", "linear")


def a_round(number: int, power_w: float | None, source: str) -> Round:
    step = measured_step(expected_step(GRAPH, SCHEDULE), power_w=power_w)
    report = report_of(GRAPH, SCHEDULE, [step])
    report = report.model_copy(update={"measured_energy_source": source})
    return Round(number, StoredRun(Path(f"round-{number}"), report, SCHEDULE, GRAPH), PART)


@pytest.fixture
def any_network(tmp_path: Path) -> tuple[str, ...]:
    """Words for a profile from which any network has costs, as of measured kernels."""
    file = tmp_path / "rates" / "local.yaml"
    file.parent.mkdir()
    profile = resolve_profile("m4", tmp_path)
    file.write_text(dump_yaml(profile.changed(build=BUILD)))
    return ("--profile", str(file), "--results", str(tmp_path / "results"))


@pytest.fixture
def tune(any_network: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run the command with these rounds."""

    def run(
        rounds: Sequence[Round],
        *words: str,
        settled: bool = True,
        unsolved: JoulewrightError | None = None,
    ) -> int:
        found = Tuned(tuple(rounds), settled and unsolved is None, unsolved)
        monkeypatch.setattr("replay.costs.tune.tune", lambda *_: found)
        return cli.main([*WORDS, *any_network, *words])

    return run


@pytest.mark.parametrize("words", [(), ("--dry-run",)])
def test_a_profile_of_no_kernels_is_refused_before_anything_is_solved(
    words: Sequence[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A published one: its costs are not those of this project's kernels."""

    def solve(*_: Any, **__: Any) -> None:
        raise AssertionError("a schedule was searched")

    monkeypatch.setattr("solver.solving.solving.solve_graph", solve)
    published = ("--profile", "m4", "--results", str(tmp_path))
    assert cli.main([*WORDS, *published, *words]) == 2
    assert "profile 'm4' does not say which kernels were measured" in capsys.readouterr().err
    assert not list(tmp_path.glob("**/*.*"))


def test_joules_of_rounds_state_their_source(tune: Any, capsys: pytest.CaptureFixture[str]) -> None:
    rounds = (
        a_round(1, 3.0, "estimated"),
        a_round(2, 4.0, "measured"),
        a_round(3, None, "measured"),
    )
    assert tune(rounds) == 0
    printed = capsys.readouterr()
    first, second, third = printed.out.splitlines()[1:4]
    assert first.endswith("J (estimated)")
    assert second.startswith("2 (best)")
    assert second.endswith("J (measured)")
    assert third.endswith("–")
    assert "least energy (measured); rounds that have no such joules" in printed.err
    assert "compared: 1, 3" in printed.err
    assert tune(rounds, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    sources = [each["measured_energy_source"] for each in document["rounds"]]
    assert sources == ["estimated", "measured", "measured"]


def test_rounds_that_end_without_a_schedule_are_shown(
    tune: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    rounds = (a_round(1, 3.0, "measured"),)
    error = Infeasible("digits: infeasible", remedy="solve says what would do")
    assert tune(rounds, unsolved=error) == ExitCode.INFEASIBLE
    printed = capsys.readouterr()
    assert "1 (best)" in printed.out
    assert "best.json" in printed.out
    words = "the search after round 1 found no schedule: digits: infeasible; solve"
    assert f"not settled: {words}" in printed.err
    assert tune(rounds, "--json", unsolved=error) == ExitCode.INFEASIBLE
    document = json.loads(capsys.readouterr().out)
    assert (document["settled"], document["best"]) == (False, 1)
    assert document["unsolved"] == str(error)


def test_rounds_that_did_not_settle_are_named_by_their_last(
    tune: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tune((a_round(1, 3.0, "measured"),), "--rounds", "1", settled=False) == 0
    printed = capsys.readouterr()
    assert "not settled after round 1; the same command with more --rounds goes on" in printed.out
    assert "1 rounds" not in printed.out + printed.err


def test_a_dry_tune_only_says_what_it_would_write(
    tune: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tune((), "--dry-run", "--json", "--rounds", "3", "--storage-budget-mib", "64") == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["watches"], document["rounds"]) == (True, 3)
    assert document["most_bytes_written_by_watched_steps"] == 64 * MIB
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize("share_mib", [1, 64])
def test_watching_before_the_rounds_writes_no_more_than_was_announced(
    share_mib: int, any_network: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    shares: list[int] = []

    def watch_step(*_: Any, storage_budget_bytes: int, **__: Any) -> StepCosts:
        shares.append(storage_budget_bytes)
        raise InputError("it was watched")

    monkeypatch.setattr("replay.costs.watch.watch_step", watch_step)
    words = ("--storage-budget-mib", str(share_mib))
    assert cli.main([*WORDS, *any_network, *words]) == 2
    assert shares == [share_mib * MIB]
