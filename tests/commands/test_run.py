"""``run``: a schedule on this computer, as a user of the command line sees it."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import yaml
from safetensors.numpy import load_file

import cli
from commands.console import Console
from commands.run.summary import summarise
from devices.documents.document import dump_yaml, read_json, write_atomically
from devices.profile import Interval
from devices.replay import Comparison, DifferingValue, ReplayReport, ValueCheck
from networks.training.initial import initial_values
from profiler.boards.posix import PosixBoard
from replay.directory import StoredRun
from replay.expectation import expected_step
from replay.running.failure import Trained
from replay.running.measured import ReplayRecord
from replay.running.session import ReplaySession
from replay.runs import Replayed, replay_schedule
from solver.problem.graph import CostedGraph
from solver.problem.schedule import Action, Compute, PageIn, Schedule
from tests.support.boards.measuring import describe
from tests.support.documents import write_json
from tests.support.graphs.solved import FLAGS, Solved, solved
from tests.support.onboard.kernels import KernelLibrary, compile_library
from tests.support.onboard.replays import measured_step, paged_chain, report_of

pytestmark = pytest.mark.slow  # most need a solved and replayed step

STEPS = 4
ENDURANCE = 3000
CAPACITY_BYTES = 1 << 30


@dataclass(frozen=True)
class Bench:
    """A schedule for a device, and the results of running it."""

    case: Solved
    printed: dict[str, Any]
    replayed: Replayed

    @property
    def directory(self) -> Path:
        return self.case.directory / "replay"

    @property
    def report(self) -> ReplayReport:
        return read_json(self.directory / "replay.json", ReplayReport)


def run(case: Solved, *options: str) -> int:
    with contextlib.chdir(case.directory):
        return cli.main(["run", "--schedule", case.path.name, "--device", "bench.yaml", *options])


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Solved:
    directory = tmp_path_factory.mktemp("run")
    library = KernelLibrary(compile_library(directory, "in-tree", FLAGS))
    case = solved(directory, library, "digits", 0.58)
    device = describe(
        nominal_power_w=3.0,
        toolchain={"kind": "native", "compiler": "cc", "flags": FLAGS, "matmul": "in-tree"},
        storage={
            "medium": "sd",
            "path": str(directory / "pages"),
            "page_bytes": 512,
            "capacity_bytes": CAPACITY_BYTES,
            "endurance_cycles": ENDURANCE,
        },
    )
    (directory / "bench.yaml").write_text(dump_yaml(device))
    return case


@pytest.fixture(scope="module")
def bench(case: Solved) -> Bench:
    printed, replays = [], []

    def replayed(*arguments: Any) -> Replayed:
        replays.append(replay_schedule(*arguments))
        return replays[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("replay.runs.replay_schedule", replayed)
        patch.setattr("commands.console.Console.document", lambda _, data: printed.append(data))
        assert run(case, "--json", "--steps", str(STEPS), "--out", "replay") == 0
    return Bench(case, printed[0], replays[0])


def test_values_equal_those_of_the_unscheduled_step(bench: Bench) -> None:
    (check,) = bench.report.values
    assert check.against == "the unscheduled step on the board"
    assert check.steps == STEPS
    assert check.values == len(bench.case.plan.probes)
    assert check.identical


def test_ram_and_traffic_are_as_predicted(bench: Bench) -> None:
    report = bench.report
    assert report.memory.arena_bytes == bench.case.schedule.arena_bytes
    assert report.memory.as_predicted
    assert report.storage is not None
    assert report.storage.read_bytes.measured == report.storage.read_bytes.predicted > 0
    assert report.storage.written_bytes.measured == report.storage.written_bytes.predicted > 0
    process = report.memory.process
    assert process is not None
    assert process.limit_bytes - process.overhead_bytes >= report.memory.arena_bytes


def test_storage_lifetime_follows_from_its_endurance(bench: Bench) -> None:
    storage = bench.report.storage
    assert storage is not None
    written = storage.wear.written_bytes_per_step * 1000 * 365.25
    assert storage.wear.years == pytest.approx(ENDURANCE * CAPACITY_BYTES / written)
    assert storage.wear.at_most


def test_joules_of_a_computer_without_a_meter_are_estimated(bench: Bench) -> None:
    report = bench.report
    assert report.measured_energy_source == "estimated"
    assert report.energy_j is not None
    ratio = report.energy_j.measured.median / report.time_s.measured.median
    assert ratio == pytest.approx(3.0, rel=0.01)


def test_run_directory_has_all_files_that_other_commands_need(bench: Bench) -> None:
    directory = bench.directory
    assert bench.printed["schema"] == "replay/1"
    assert read_json(directory / "schedule.json", Schedule) == bench.case.schedule
    assert read_json(directory / "graph.json", CostedGraph) == bench.case.graph
    assert {path.name for path in directory.glob("*.png")} == {"times.png", "memory.png"}
    with contextlib.chdir(bench.case.directory):
        trace = ["export", "--schedule", bench.case.path.name, "--format", "perfetto"]
        assert cli.main([*trace, "--run", "replay", "--out", "trace"]) == 0
    events = json.loads((bench.case.directory / "trace" / "small.trace.json").read_text())
    names = {e["args"]["name"] for e in events["traceEvents"] if e["name"] == "process_name"}
    assert len(names) == 2


def test_trained_parameters_are_kept(bench: Bench) -> None:
    trained = np.load(bench.directory / "parameters.npz")
    initial = initial_values(bench.case.step, 0)
    assert set(trained.files) == {*initial, "joulewright.steps"}
    assert all(trained[name].size == values.size for name, values in initial.items())
    assert any((trained[name] != values.ravel()).any() for name, values in initial.items())
    assert len(bench.report.losses) == STEPS
    assert all(loss is not None and loss > 0 for loss in bench.report.losses)


def test_no_file_is_left_in_the_paging_directory(bench: Bench) -> None:
    assert list((bench.case.directory / "pages").iterdir()) == []


@pytest.mark.parametrize(("spread", "words"), [(0.1, 4), (1e-4, 5), (1e-7, 8)])
def test_a_median_is_printed_between_the_ends_of_its_interval(
    spread: float, words: int, capsys: pytest.CaptureFixture[str]
) -> None:
    graph, schedule = paged_chain()
    report = report_of(graph, schedule, [measured_step(expected_step(graph, schedule))])
    median_s = 1.23526789
    ends = {"low": median_s * (1 - spread), "high": median_s * (1 + spread)}
    figure = Comparison.of(Interval.exact(1.0), Interval(median=median_s, **ends))
    summarise(Console(), report.model_copy(update={"time_s": figure}))
    shown = capsys.readouterr().out
    found = re.search(r"time a step +1 s +([0-9.]+) s \(([0-9.]+) s to ([0-9.]+) s\)", shown)
    assert found is not None
    middle, low, high = found.groups()
    assert float(low) < float(high)
    assert float(low) <= float(middle) <= float(high)
    assert len(middle.replace(".", "")) <= words


def test_the_first_step_is_step_1(capsys: pytest.CaptureFixture[str]) -> None:
    """Step 0 are the initial values, as where a failed run's values are kept."""
    graph, schedule = paged_chain()
    report = report_of(graph, schedule, [measured_step(expected_step(graph, schedule))])
    check = ValueCheck(
        against="the unscheduled step on the board",
        values=1,
        steps=3,
        differing=(DifferingValue(tensor="loss", what="loss", steps=(0, 2)),),
    )
    summarise(Console(), report.model_copy(update={"values": (check,)}))
    assert "first loss loss after step 1" in capsys.readouterr().out


@pytest.fixture
def no_board(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("profiler.opening.boards.open_transport", pytest.fail)


@pytest.mark.usefixtures("no_board")
def test_dry_run_reports_arena_and_bytes_to_write(
    case: Solved, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(case, "--dry-run", "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert said["arena_bytes"] == case.schedule.arena_bytes
    assert said["written_bytes_a_step"] > 0
    assert not said["flashes_firmware"]


@pytest.mark.usefixtures("no_board")
def test_a_graph_of_unknown_origin_is_refused(
    case: Solved, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(case, "--schedule", str(case.with_origin(tmp_path, None))) == 2
    assert "does not say which network and profile" in capsys.readouterr().err


def changed(case: Solved, name: str, **changes: object) -> str:
    """Write the schedule with these changes; returns the file's name."""
    schedule = case.schedule.model_copy(update=changes)
    write_json(case.directory / name, schedule)
    return name


def without_actions(case: Solved) -> Schedule:
    return Schedule(
        graph=case.graph.name,
        energy_source=case.graph.energy_source,
        status="infeasible",
        budget=case.schedule.budget,
        solver=case.schedule.solver,
        bound_covers=case.schedule.bound_covers,
    )


def without_addresses(case: Solved) -> Schedule:
    def bare(action: Action) -> Action:
        match action:
            case Compute():
                nothing: dict[str, object] = {"address": None, "workspace_address": None}
                return action.model_copy(update=nothing)
            case PageIn():
                return action.model_copy(update={"address": None})
        return action

    return case.schedule.model_copy(
        update={
            "actions": tuple(map(bare, case.schedule.actions)),
            "resident_address": None,
            "arena_bytes": None,
            "arena_bound_bytes": None,
        }
    )


@pytest.mark.usefixtures("no_board")
@pytest.mark.parametrize(
    ("unrunnable", "said"),
    [
        (without_actions, "has no actions: it is infeasible"),
        (without_addresses, "has no addresses"),
    ],
)
def test_unrunnable_schedule_is_refused_before_a_build(
    case: Solved,
    unrunnable: Callable[[Solved], Schedule],
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_json(case.directory / "changed.json", unrunnable(case))
    assert run(case, "--schedule", "changed.json", "--graph", "small.graph.json") == 2
    assert said in capsys.readouterr().err


@pytest.mark.usefixtures("no_board")
def test_a_schedule_that_the_referee_rejects_is_refused(
    case: Solved, capsys: pytest.CaptureFixture[str]
) -> None:
    actions = case.schedule.actions
    first = next(number for number, each in enumerate(actions) if each.do == "compute")
    name = changed(case, "changed.json", actions=(*actions[:first], *actions[first + 1 :]))
    for command in (["run", "--device", "bench.yaml"], ["export", "--format", "perfetto"]):
        with contextlib.chdir(case.directory):
            code = cli.main([*command, "--schedule", name, "--graph", "small.graph.json"])
        assert code == 2
        said = capsys.readouterr().err
        assert re.search("not a valid schedule of digits, .*: action [0-9]+: ", said)


@pytest.mark.usefixtures("no_board")
def test_output_directory_that_cannot_be_made_is_reported_before_the_run(
    case: Solved, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(case, "--out", "bench.yaml") == 2
    assert "bench.yaml" in capsys.readouterr().err


def test_measured_report_is_printed_if_it_cannot_be_written(
    case: Solved, bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "replay.json")
    monkeypatch.setattr("replay.directory.write_atomically", Mock(side_effect=full))
    monkeypatch.setattr("replay.runs.replay_schedule", lambda *_: bench.replayed)
    assert run(case, "--json", "--steps", str(STEPS)) == 2
    said = capsys.readouterr()
    assert json.loads(said.out)["schema"] == "replay/1"
    assert "replay.json: No space left" in said.err


def test_a_picture_that_cannot_be_written_costs_nothing_else(
    case: Solved, capsys: pytest.CaptureFixture[str]
) -> None:
    (case.directory / "undrawn" / "times.png").mkdir(parents=True)
    words = ("--out", "undrawn", "--save-gradients", "undrawn.safetensors")
    assert run(case, "--steps", "1", *words) == 2
    said = capsys.readouterr()
    assert "times.png" in said.err
    assert "values    undrawn" in said.out
    assert "gradients undrawn.safetensors" in said.out
    assert "classifier.weight" in load_file(case.directory / "undrawn.safetensors")


def test_gradients_are_kept_if_the_values_cannot_be_written(
    case: Solved, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "replay.json")
    monkeypatch.setattr("replay.directory.write_atomically", Mock(side_effect=full))
    words = ("--out", "unwritten", "--save-gradients", "unwritten.safetensors")
    assert run(case, "--steps", "1", *words) == 2
    assert "classifier.weight" in load_file(case.directory / "unwritten.safetensors")


def test_ctrl_c_while_the_summary_is_printed_loses_nothing(
    case: Solved, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("replay.runs.replay_schedule", lambda *_: bench.replayed)
    monkeypatch.setattr("commands.run.summary.summarise", Mock(side_effect=KeyboardInterrupt))
    assert run(case, "--steps", str(STEPS), "--out", "unread") == 130
    directory = case.directory / "unread"
    assert (directory / "parameters.npz").exists()
    assert StoredRun.read(directory).report.values[0].identical


def test_what_was_trained_is_kept_if_its_report_cannot_be_computed(
    case: Solved, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def replayed(*arguments: Any) -> Replayed:
        *_, keep = arguments
        keep(Trained(STEPS, bench.replayed.timed.values))
        return bench.replayed

    monkeypatch.setattr("replay.runs.replay_schedule", replayed)
    monkeypatch.setattr("replay.run_report.run_report", Mock(side_effect=KeyboardInterrupt))
    assert run(case, "--steps", str(STEPS), "--out", "unreported") == 130
    with np.load(case.directory / "unreported" / "recovered.npz") as kept:
        assert kept["joulewright.steps"] == STEPS


def test_ctrl_c_after_the_watched_steps_keeps_what_they_have_trained(
    case: Solved, bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_steps = ReplaySession.run

    def cut(session: ReplaySession, *arguments: Any, watched: bool, **rest: Any) -> Any:
        if not watched:
            raise KeyboardInterrupt
        return run_steps(session, *arguments, watched=watched, **rest)

    monkeypatch.setattr(ReplaySession, "run", cut)
    assert run(case, "--steps", str(STEPS), "--out", "cut") == 130
    assert f"values after step {STEPS}: cut/recovered.npz" in capsys.readouterr().err
    with np.load(case.directory / "cut" / "recovered.npz") as kept:
        trained = bench.replayed.timed.values
        assert set(kept) == {*trained, "joulewright.steps"}
        assert kept["joulewright.steps"] == STEPS
        assert all(np.array_equal(kept[name].ravel(), trained[name]) for name in trained)


def test_a_report_of_a_run_with_a_disturbed_step_can_be_read(
    case: Solved, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    disturbed = {1: "the frequency went from 1500000 to 600000 kHz"}
    replayed = replace(
        bench.replayed,
        timed=replace(bench.replayed.timed, disturbed=disturbed),
        measured=replace(
            bench.replayed.measured,
            steps=(*bench.replayed.measured.steps[:1], *bench.replayed.measured.steps[2:]),
        ),
    )
    monkeypatch.setattr("replay.runs.replay_schedule", lambda *_: replayed)
    assert run(case, "--steps", str(STEPS), "--out", "disturbed") == 0
    report = StoredRun.read(case.directory / "disturbed").report
    assert (report.steps, report.all_steps, report.values[0].steps) == (STEPS - 1, STEPS, STEPS)


def test_values_that_were_trained_while_every_step_was_disturbed_are_kept(
    case: Solved,
    bench: Bench,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(PosixBoard, "throttled", lambda _board: 0b1)
    assert run(case, "--steps", str(STEPS), "--out", "throttled") == 4
    said = capsys.readouterr().err
    assert "was measured undisturbed: the board reports under-voltage" in said
    assert f"values after step {STEPS}: throttled/recovered.npz" in said
    with np.load(case.directory / "throttled" / "recovered.npz") as kept:
        trained = bench.replayed.timed.values
        assert set(kept) == {*trained, "joulewright.steps"}
        assert kept["joulewright.steps"] == STEPS
        assert all(np.array_equal(kept[name].ravel(), trained[name]) for name in trained)


def test_a_report_lies_beside_the_values_of_its_own_run(
    case: Solved, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second run in a directory meets a full disk; the first one leaves no report beside it."""
    monkeypatch.setattr("replay.runs.replay_schedule", lambda *_: bench.replayed)
    out = case.directory / "again"
    out.mkdir()
    (out / "recovered.npz").touch()
    assert run(case, "--steps", str(STEPS), "--out", "again") == 0
    assert (out / "replay.json").exists()
    assert not (out / "recovered.npz").exists()

    def full(path: Path, content: Any) -> None:
        if path.name == "parameters.npz":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        write_atomically(path, content)

    monkeypatch.setattr("replay.directory.write_atomically", full)
    (out / "recovered.npz").touch()
    assert run(case, "--steps", str(STEPS), "--out", "again") == 2
    assert not (out / "replay.json").exists()
    assert (out / "recovered.npz").exists()  # this run may have begun with them


def test_costs_of_another_board_are_reported(
    case: Solved, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = "costs are those of bench, but the schedule ran on other"
    assert told not in bench.report.limits
    device = (case.directory / "bench.yaml").read_text().replace("name: bench", "name: other")
    (case.directory / "other.yaml").write_text(device)
    monkeypatch.setattr("replay.runs.replay_schedule", lambda *_: bench.replayed)
    assert run(case, "--device", "other.yaml", "--steps", str(STEPS), "--out", "other") == 0
    assert told in read_json(case.directory / "other" / "replay.json", ReplayReport).limits


def test_summary_of_an_emulated_board_does_not_say_measured(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    emulated = bench.report.model_copy(update={"measured_energy_source": "emulated"})
    summarise(Console(json_output=False), emulated)
    heads = [line for line in capsys.readouterr().out.splitlines() if "  predicted  " in line]
    assert len(heads) == 2
    assert all("emulated" in head and "measured" not in head for head in heads)


def test_summary_of_a_board_without_a_meter_does_not_say_that_its_joules_are_measured(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    summarise(Console(json_output=False), bench.report)
    lines = capsys.readouterr().out.splitlines()
    head = next(line for line in lines if "  predicted  " in line)
    assert "on the board" in head
    assert "measured" not in head
    assert any(line.startswith("energy a step (") and "/ estimated)" in line for line in lines)


@pytest.mark.usefixtures("no_board")
def test_an_arena_larger_than_the_boards_ram_is_refused_before_a_build(
    case: Solved, capsys: pytest.CaptureFixture[str]
) -> None:
    arena_bytes = case.plan.arena_bytes
    device = yaml.safe_load((case.directory / "bench.yaml").read_text())
    for ram_bytes in (arena_bytes, arena_bytes - 1):
        memory = {"memory": {"ram_bytes": ram_bytes + 1000, "reserved_bytes": 1000}}
        (case.directory / "small.yaml").write_text(yaml.safe_dump(device | memory))
        code = run(case, "--device", "small.yaml", "--dry-run")
        assert code == (0 if ram_bytes == arena_bytes else 2)
    said = capsys.readouterr().err
    assert f"takes an arena of {arena_bytes} bytes, but the description leaves" in said
    assert f"solve with --ram-budget {arena_bytes - 1} or less" in said


def test_copies_for_safety_are_timed_separately(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    storage = bench.report.storage
    assert storage is not None
    actions = len(bench.case.plan.actions)
    watched = [sum(s.time_s for s in step.spans[actions:]) for step in bench.replayed.watched.steps]
    assert 0 < min(watched) <= storage.copies_s.median <= max(watched)
    summarise(Console(json_output=False), bench.report)
    assert "made after the step" in capsys.readouterr().out


def test_run_of_another_schedule_is_not_drawn(
    case: Solved, bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench.directory.is_dir()
    write_json(case.directory / "changed.json", without_addresses(case))
    options = ["--schedule", "changed.json", "--graph", "small.graph.json", "--run", "replay"]
    with contextlib.chdir(case.directory):
        assert cli.main(["export", "--format", "perfetto", *options]) == 2
    assert "is a run of another schedule" in capsys.readouterr().err


@pytest.mark.usefixtures("no_board")
def test_samples_of_another_shape_are_refused(
    case: Solved, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(case.directory / "samples.npz", image=np.zeros((4, 3, 3), np.float32))
    assert run(case, "--batches", "samples.npz") == 2
    assert "samples.npz" in capsys.readouterr().err


def test_kernels_that_differ_from_the_profiled_ones_are_refused(
    case: Solved, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = case.with_changed_origin(tmp_path, kernels_sha256="0" * 64)
    assert run(case, "--schedule", str(path)) == 2
    assert "sources or flags have changed" in capsys.readouterr().err


def test_values_that_differ_in_unwatched_runs_are_reported(
    case: Solved, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trained = ReplaySession.run

    def unreliable(*arguments: Any, watched: bool, **rest: Any) -> ReplayRecord:
        record = trained(*arguments, watched=watched, **rest)
        if watched:
            return record
        return replace(record, values={name: v + 1 for name, v in record.values.items()})

    monkeypatch.setattr(ReplaySession, "run", unreliable)
    assert run(case, "--steps", "1", "--out", "unreliable") == 4
    assert "differs between watched and unwatched runs" in capsys.readouterr().err
