"""``campaign run`` and ``campaign status`` as a user of the command line sees them."""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import Future, wait
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import cli
from campaigns.design.file import SOLVED
from campaigns.design.opening import open_campaign
from campaigns.keeping.directory import CampaignDirectory
from campaigns.keeping.progress import read_progress
from campaigns.keeping.records import ReplayPlace
from campaigns.keeping.results import CampaignResults, read_campaign
from campaigns.running.campaign import Workers, run_campaign
from campaigns.running.solving import CostedNetwork, costed_network
from devices.claims.claim import claim_by_name, sole_user
from devices.documents.document import dump_yaml, read_json, read_yaml
from devices.library import resolve_profile
from devices.profile import BoardIdentity, DeviceProfile
from devices.quantities import Slices
from devices.results import Results
from profiler.building.plan_memory import firmware_ram_bytes
from profiler.building.store_layout import store_layout
from replay.lowering.lowering import lower
from replay.runs import planned_workspace, training_step_of
from solver.pools import LastingPool
from solver.problem.schedule import Schedule
from solver.referee.referee import verify
from tests.support.boards.measuring import describe
from tests.support.boards.processes import eventually, marked, started_as_by_a_shell
from tests.support.campaigns import campaign_with_replays
from tests.support.cluster import local_cluster
from tests.support.networks.onnx_files import model, node, saved, tensor
from tests.support.paths import REFERENCES, ROOT

pytestmark = pytest.mark.timeout(2400)  # every replay compiles kernels

_PATIENCE_S = 1000.0
"""Most seconds for one change of a campaign: ample on a busy computer, too."""

PUBLISHED: Mapping[str, Any] = {
    "schema": "campaign/1",
    "name": "tried",
    "boards": [{"profile": "m0"}, {"profile": "m4"}],
    "networks": ["linear"],
    "batches": [1, 4],
    "ram_budgets": ["100%", "90%", "1KiB"],
    "methods": [
        {"method": "joulewright", "time_limit_s": 20},
        "keep-everything",
        "page-everything",
    ],
}
ON_BENCH: Mapping[str, Any] = {
    "schema": "campaign/1",
    "name": "tried",
    "boards": ["bench.yaml"],
    "networks": ["linear"],
    "ram_budgets": ["100%"],
    "methods": ["keep-everything", {"method": "joulewright", "time_limit_s": 10}],
    "repetitions": 2,
    "steps": 2,
    "profile_blocks": 1,
    "watch_steps": False,
}
DIRECTORY = Path("results/campaigns/tried")


@pytest.fixture(autouse=True)
def _in_an_empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(document: Mapping[str, Any], **changes: Any) -> str:
    Path("tried.yaml").write_text(yaml.safe_dump({**document, **changes}))
    return "tried.yaml"


def run(*words: str) -> int:
    return cli.main(["campaign", *words])


def states(results: CampaignResults) -> set[str]:
    return {result.state for result in results.cells}


def times_of_writing(directory: Path) -> dict[Path, int]:
    """When each file of the cells was written, in nanoseconds.

    Hidden files are left out: a running campaign still writes them, and renames them at any moment.
    """
    files = (path for path in (directory / "cells").rglob("[!.]*") if path.is_file())
    return {path: path.stat().st_mtime_ns for path in files}


# --- profiles: schedules are solved and not run ---------------------------------------------------


@pytest.mark.slow
def test_a_campaign_of_profiles_solves_every_cell_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run("run", write(PUBLISHED)) == 0
    assert "36 cells" in capsys.readouterr().out
    results = read_campaign(DIRECTORY)
    assert len(results.cells) == 36
    assert states(results) == {"done", "no schedule"}
    for result in results.cells:
        solved = result.solved
        assert solved is not None
        assert result.state == ("no schedule" if solved.energy_j is None else "done")
        graph, schedule = result.schedule()
        assert schedule.energy_j == solved.energy_j
        assert (result.cell.ram_budget == "1KiB") <= (not schedule.actions)
        if schedule.actions:
            budget = schedule.budget.model_copy(update={"ram_bytes": solved.ram_bytes})
            verify(graph, schedule.actions, budget)
            assert solved.peak_bytes is not None
            assert solved.peak_bytes <= solved.ram_bytes
    before = times_of_writing(DIRECTORY)
    assert run("run", "tried.yaml") == 0
    assert times_of_writing(DIRECTORY) == before
    table = (DIRECTORY / "tables" / "cells.csv").read_text().splitlines()
    assert len(table) == 1 + 36


@pytest.mark.slow
def test_a_larger_campaign_keeps_the_cells_of_the_smaller(
    capsys: pytest.CaptureFixture[str],
) -> None:
    fewer = {"boards": [{"profile": "m4"}], "methods": ["keep-everything"]}
    assert run("run", write(PUBLISHED, **fewer)) == 0
    before = times_of_writing(DIRECTORY)
    assert run("run", write(PUBLISHED, methods=["keep-everything", "page-everything"])) == 0
    after = times_of_writing(DIRECTORY)
    assert before.items() <= after.items()
    capsys.readouterr()
    assert run("status", "tried", "--json") == 0
    status = json.loads(capsys.readouterr().out)
    assert [(board["solved"], board["cells"]) for board in status["boards"]] == [(12, 12)] * 2
    assert status["runner"] is None


@pytest.mark.slow
def test_a_dask_cluster_finds_the_schedules(monkeypatch: pytest.MonkeyPatch) -> None:
    # Its scheduler and its worker are threads of this process, which may have to wait.
    monkeypatch.setattr("solver.pools.CLUSTER_LIMIT_S", _PATIENCE_S)
    searching = {"method": "capuchin-like", "time_limit_s": 20}
    write(PUBLISHED, methods=["keep-everything", searching], ram_budgets=["100%"])
    with local_cluster(2) as cluster:
        assert run("run", "tried.yaml", "--scheduler", cluster.scheduler_address) == 0
    assert states(read_campaign(DIRECTORY)) == {"done"}


def test_a_campaign_says_that_it_waits_for_a_cluster(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("solver.pools.CLUSTER_LIMIT_S", 0.5)
    assert run("run", write(PUBLISHED), "--scheduler", "tcp://127.0.0.1:1") == 2
    first, *_, last = capsys.readouterr().err.splitlines()
    assert first == "waiting up to 0.5 s for the Dask scheduler at tcp://127.0.0.1:1"
    assert "no Dask scheduler answers at 'tcp://127.0.0.1:1'" in last


def test_a_dry_run_says_what_is_left_and_touches_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    boards = [{"profile": "m4"}, "emulated-m3-sd"]
    assert run("run", write(PUBLISHED, boards=boards), "--dry-run", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert len(document["cells"]) == 36
    m4, m3 = document["boards"]
    assert (m4["cells"], m4["unsolved"], m4["replays"], m4["profile_s"]) == (18, 18, 0, None)
    assert (m4["replay_s"], m4["energy_j"], m4["basis"], m4["most_wear"]) == (None,) * 4
    assert (m3["cells"], m3["replays"], m3["controls"]) == (18, 95, 5)
    assert m3["profile_s"] > 0
    assert m3["profile_written_bytes"] > 0
    assert not Path("results").exists()


def previews(capsys: pytest.CaptureFixture[str], file: str, *words: str) -> list[dict[str, Any]]:
    """The JSON document of a dry run, by board."""
    capsys.readouterr()
    assert run("run", file, "--dry-run", "--json", *words) == 0
    boards: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["boards"]
    return boards


def test_a_dry_run_estimates_time_and_energy_before_anything_is_measured(
    capsys: pytest.CaptureFixture[str],
) -> None:
    slow, fast = (describe(name=name, nominal_power_w=3.0) for name in ("slow", "fast"))
    processor = {"model": "x", "cores": 1, "architecture": "armv7e-m"}
    for described, clock_hz in ((slow, 1e6), (fast, 1e9)):
        data = described.model_dump(mode="json", by_alias=True, exclude_none=True)
        data["processor"] = {**processor, "clock_hz": clock_hz}
        Path(f"{described.name}.yaml").write_text(yaml.safe_dump(data))
    Path("bench.yaml").write_text(dump_yaml(describe(processor=None)))
    boards = ["slow.yaml", "fast.yaml", "bench.yaml", "emulated-m4f"]
    words = {"boards": boards, "ram_budgets": ["100%"], "methods": ["keep-everything"]}
    file = write(PUBLISHED, **words, repetitions=1, networks=["dscnn"], batches=[8])
    slow_one, fast_one, bench, emulated = previews(capsys, file)
    # Of one replay and its control, of which each takes 10 s besides its steps.
    steps_s = [board["replay_s"] - 20.0 for board in (slow_one, fast_one)]
    # Work is a thousand times slower; bytes are moved at the same rate.
    assert 100 * steps_s[1] < steps_s[0] < 1000 * steps_s[1]
    for board, step_s in zip((slow_one, fast_one), steps_s, strict=True):
        assert board["energy_j"] == pytest.approx(3.0 * step_s)
        assert board["profile_j"] == pytest.approx(3.0 * board["profile_s"])
        assert board["energy_source"] == "estimated"
        assert board["reason"] is None
    rate = "a guess of 300 kFLOP/s of armv7e-m at 1 MHz"
    assert slow_one["basis"] == f"{rate} and its nominal_power_w of 3 W"
    assert bench["replay_s"] > 20.0
    assert bench["energy_j"] is None
    assert "no nominal_power_w" in bench["reason"]
    assert emulated["energy_source"] == "emulated"
    assert run("run", file, "--dry-run") == 0
    said = capsys.readouterr().out
    assert "bench: energy is unknown: its description states no nominal_power_w" in said
    assert "from a guess of 30 GFLOP/s (no processor is described)" in said


@pytest.mark.slow
def test_no_schedule_writes_more_than_a_dry_run_says_before_it_is_found(
    capsys: pytest.CaptureFixture[str],
) -> None:
    storage = {"medium": "sd", "path": ".", "page_bytes": 512, "capacity_bytes": 1 << 30}
    Path("results").mkdir()
    Path("results/bench.yaml").write_text(dump_yaml(describe(storage=storage)))
    for network in ("linear", "digits", "autoencoder"):
        words = {"boards": ["bench.yaml"], "networks": [network], "ram_budgets": ["100%"]}
        campaign_with_replays(Results(), **words, methods=["page-everything"])
        file = "results/tried.yaml"
        (known,) = previews(capsys, file)
        (unknown,) = previews(capsys, file, "--results", "elsewhere")
        assert known["most_wear"] is None
        assert unknown["wear"] is None
        estimated = unknown["most_wear"]["written_bytes_per_step"]
        assert 0 < known["wear"]["written_bytes_per_step"] <= estimated
        known_bytes, estimated_bytes = (
            board["most_written_bytes"] / board["replays"] for board in (known, unknown)
        )
        assert 0 < known_bytes <= estimated_bytes
        Path(file).write_text(Path(file).read_text().replace("page-everything", "griewank"))
        (never,) = previews(capsys, file, "--results", "elsewhere")
        assert (never["most_wear"], never["most_written_bytes"]) == (None, 0)


def test_a_dry_run_says_how_long_the_storage_lasts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    storage = {
        "medium": "sd",
        "path": ".",
        "page_bytes": 4096,
        "capacity_bytes": 1 << 30,
        "endurance_cycles": 1000,
    }
    Path("results").mkdir()
    Path("results/bench.yaml").write_text(dump_yaml(describe(storage=storage)))
    campaign_with_replays(
        Results(), boards=["bench.yaml"], methods=["page-everything"], ram_budgets=["100%"]
    )
    (board,) = previews(capsys, "results/tried.yaml")
    wear = board["wear"]
    a_day = wear["written_bytes_per_step"] * wear["steps_per_day"]
    assert a_day > 0
    assert wear["years"] == pytest.approx(1000 * (1 << 30) / a_day / 365.25)
    assert run("run", "results/tried.yaml", "--dry-run") == 0
    assert f"it lasts at most {wear['years']:.3g} years" in capsys.readouterr().out


def test_a_dry_run_counts_all_that_control_replays_write(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Steps with their records and copies, and in each of three runs a file that is filled."""
    storage = {"medium": "sd", "path": ".", "page_bytes": 4096, "capacity_bytes": 1 << 30}
    described = describe(storage=storage)
    Path("results").mkdir()
    Path("results/bench.yaml").write_text(dump_yaml(described))
    words = {"boards": ["bench.yaml"], "ram_budgets": ["100%"]}
    directory = campaign_with_replays(Results(), **words, methods=["page-everything"])
    (result,) = read_campaign(directory.path).cells
    graph, schedule = result.schedule()
    step = training_step_of(graph)
    plan = lower(step, graph, schedule, planned_workspace(step, graph))
    layout = store_layout(plan, described.storage)
    (board,) = previews(capsys, "results/tried.yaml")
    assert (board["replays"], board["controls"]) == (2, 2)
    took_s = [repetition.circumstances.seconds for repetition in result.repetitions]
    assert board["replay_s"] == pytest.approx(sum(took_s))
    steps = 2 * directory.design().steps + 2
    written = 2 * (steps * layout.written_bytes + 3 * layout.file_bytes)
    assert written <= board["most_written_bytes"] < 1.5 * written

    first = directory.repetition_file(result.cell, ReplayPlace(repetition=0))
    shutil.copy(
        first, directory.repetition_file(result.cell, ReplayPlace(repetition=0, control=True))
    )
    (later,) = previews(capsys, "results/tried.yaml")
    assert (later["replays"], later["controls"]) == (1, 1)
    assert later["most_written_bytes"] == board["most_written_bytes"] / 2


def test_a_dry_run_counts_the_controls_of_a_board_once_and_as_its_dearest_cell(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("bench.yaml").write_text(dump_yaml(describe(nominal_power_w=3.0)))
    conditions = [{"name": "o2", "flags": ["-O2"]}, {"name": "o3", "flags": ["-O3"]}]
    words = {"conditions": conditions, "networks": ["linear", "dscnn"]}
    file = write(ON_BENCH, **words, methods=["keep-everything"], batches=[64])
    found = previews(capsys, file)
    without, with_controls = sorted(found, key=lambda board: board["controls"])
    assert (without["replays"], without["controls"]) == (4, 0)
    assert (with_controls["replays"], with_controls["controls"]) == (6, 2)
    for key in ("replay_s", "energy_j"):
        assert with_controls[key] - without[key] > without[key] / 2, "dscnn takes more than linear"


def test_a_dry_run_counts_what_every_schedule_writes_of_parameters_in_storage(
    capsys: pytest.CaptureFixture[str],
) -> None:
    storage = {"medium": "sd", "path": ".", "page_bytes": 4096, "capacity_bytes": 1 << 30}
    Path("bench.yaml").write_text(dump_yaml(describe(storage=storage)))
    networks = [{"model": "linear", "parameters_in": "storage"}]
    (board,) = previews(capsys, write(ON_BENCH, networks=networks, methods=["griewank"]))
    assert board["most_written_bytes"] > 0


@pytest.mark.slow
def test_slices_and_codecs_are_options_of_a_method() -> None:
    solved = {"method": "joulewright", "time_limit_s": 120}
    options = [{}, {"slices": "1KiB"}, {"codecs": "all"}, {"codecs": "auto"}]
    methods = [{**solved, "label": f"way-{number}", **each} for number, each in enumerate(options)]
    words = {"batches": [1], "ram_budgets": ["100%"], "boards": [{"profile": "m4"}]}
    assert run("run", write(PUBLISHED, networks=["digits"], methods=methods, **words)) == 0
    cells = read_campaign(DIRECTORY).cells
    whole, sliced, coded, either = (result.schedule()[0] for result in cells)
    origins = [graph.origin for graph in (whole, sliced, coded)]
    assert [each and each.slices for each in origins] == [None, Slices(1024), None]
    assert [each and each.codecs for each in origins] == [None, None, True]
    energies_j = [result.solved and result.solved.energy_j for result in cells]
    assert either in (whole, coded)
    assert energies_j[3] == energies_j[0]
    assert len(sliced.ops) > len(whole.ops)


@pytest.mark.slow
def test_schedules_for_a_microcontroller_leave_room_for_its_records_of_them() -> None:
    published, usable_bytes = resolve_profile("m4"), 10_000
    board = BoardIdentity(
        model="Small", memory_bytes=1 << 14, available_bytes=usable_bytes, shares_ram=True
    )
    Path("small.yaml").write_text(dump_yaml(published.changed(name="small", board=board)))
    words = {"networks": ["digits"], "batches": [1], "ram_budgets": ["100%"]}
    methods = [{"method": "joulewright", "time_limit_s": 15}, "page-everything", "keep-everything"]
    small = {"boards": [{"profile": "small.yaml"}], **words, "methods": methods}
    assert run("run", write(PUBLISHED, **small)) == 0
    ours, paging, keeping = read_campaign(DIRECTORY).cells
    assert [cell.state for cell in (ours, paging, keeping)] == ["done", "done", "no schedule"]
    for cell in (ours, keeping):
        assert cell.solved is not None
        assert "the firmware keeps about such a schedule" in (cell.solved.note or "")
    for cell in (ours, paging):
        graph, schedule = cell.schedule()
        step = training_step_of(graph)
        plan = lower(step, graph, schedule, planned_workspace(step, graph))
        assert plan.arena_bytes + firmware_ram_bytes(plan, 1) <= usable_bytes


@pytest.mark.slow
def test_own_networks_are_solved_in_other_processes() -> None:
    shutil.copy(REFERENCES / "exported" / "classifier.pt2", "classifier.pt2")
    words = ["--profile", "m4", "--model", "classifier.pt2", "--ram-budget", "100%"]
    assert cli.main(["solve", *words]) == 0
    known = read_json(Path("results/schedules/classifier.pt2-batch-3-on-m4.json"), Schedule)
    arrays = {"w": np.ones((3, 4), np.float32), "b": np.ones(4, np.float32)}
    nodes = [node("MatMul", "x w", "z"), node("Add", "z b", "y")]
    inputs, outputs = [tensor("x", "N", 3)], [tensor("y", "N", 4)]
    saved(Path("net.onnx"), model(nodes, inputs, arrays, outputs))
    networks = ["classifier.pt2", {"model": "net.onnx", "loss": "cross-entropy", "batches": [4]}]
    own = {"boards": [{"profile": "m4"}], "networks": networks, "ram_budgets": ["100%"]}
    methods = ["keep-everything", {"method": "joulewright", "time_limit_s": 20}]
    document = {key: value for key, value in PUBLISHED.items() if key != "batches"}
    assert run("run", write(document, **own, methods=methods)) == 0
    cells = read_campaign(DIRECTORY).cells
    assert [result.state for result in cells] == ["done"] * 4
    for result in cells:
        graph, schedule = result.schedule()
        assert graph.origin is not None
        assert graph.origin.model_sha256 is not None
        verify(graph, schedule.actions, schedule.budget)
    solvers = [result.schedule()[1].solver for result in cells if result.cell.method == SOLVED]
    assert known.solver in solvers  # the schedule that solve has written is used, not found again


def test_a_running_campaign_has_its_directory_to_itself_and_status_names_its_process(
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = write(PUBLISHED, networks=["linear"], methods=["keep-everything"])
    opened = open_campaign(file, Results())
    CampaignDirectory(DIRECTORY).begin(opened.text, opened.design)
    with sole_user(DIRECTORY):
        assert run("run", file) == 2
        assert "another program uses this directory" in capsys.readouterr().err
        assert run("status", "tried") == 0
        assert f"run by process {os.getpid()}" in capsys.readouterr().out
    assert run("status", "tried") == 0
    assert "not running" in capsys.readouterr().out


def test_the_status_of_an_unknown_campaign_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("status", "tried") == 2
    assert "not the directory of a campaign" in capsys.readouterr().err


# --- failures -------------------------------------------------------------------------------------


def unreachable(name: str) -> str:
    """A description of a board at a port of this computer at which nothing listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    transport = {"kind": "ssh", "host": "127.0.0.1", "port": port, "deadline_s": 0.2}
    described = describe(name=name, transport=transport, nominal_power_w=1.0)
    Path(f"{name}.yaml").write_text(dump_yaml(described))
    return f"{name}.yaml"


@pytest.mark.slow
def test_a_board_that_is_not_reached_fails_with_its_reason_and_the_others_go_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    boards = [unreachable("lost"), {"profile": "m4"}]
    methods = ["keep-everything"]
    assert run("run", write(PUBLISHED, boards=boards, methods=methods, attempts=2)) == 3
    said = capsys.readouterr()
    assert "profile of lost failed, and is tried again" in said.err
    assert "failed: profile of lost: " in said.out
    results = read_campaign(DIRECTORY)
    by_board = {result.cell.board: result for result in results.cells}
    lost = by_board["lost"]
    assert lost.state == "failed"
    assert [failure.is_last for failure in lost.failures] == [False, True]
    assert lost.failures[-1].exit_code == 3
    assert all(each.state != "waiting" for each in results.cells if each.cell.board == "m4")
    assert run("status", "tried") == 0
    assert "failed: profile of lost" in capsys.readouterr().out


def limit_file_sizes() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))


@pytest.mark.slow
def test_a_file_that_cannot_be_written_ends_the_campaign_with_a_sentence_and_it_goes_on_later() -> (
    None
):
    write(PUBLISHED, methods=["keep-everything"], ram_budgets=["100%"])
    words = [sys.executable, cli.__file__, "campaign", "run", "tried.yaml"]
    done = subprocess.run(words, capture_output=True, text=True, preexec_fn=limit_file_sizes)
    assert done.returncode == 2
    assert done.stderr.strip().splitlines()[-1].startswith("error: ")
    assert "File too large" in done.stderr
    assert not [path for path in Path("results").rglob(".*") if path.is_file()]
    assert run("run", "tried.yaml") == 0
    assert states(read_campaign(DIRECTORY)) == {"done"}


# --- this computer as a board ---------------------------------------------------------------------


@pytest.fixture
def bench() -> None:
    Path("bench.yaml").write_text(dump_yaml(describe(nominal_power_w=10.0)))


@pytest.mark.slow
@pytest.mark.usefixtures("bench")
def test_every_schedule_is_run_once_in_each_repetition_and_one_of_them_twice(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run("run", write(ON_BENCH)) == 0
    results = read_campaign(DIRECTORY)
    assert states(results) == {"done"}
    for result in results.cells:
        assert [each.number for each in result.repetitions] == [0, 1]
        assert {each.measured_energy_source for each in result.repetitions} == {"estimated"}
        report = result.report(result.repetitions[0])
        assert report.time_s == result.repetitions[0].time_s
    replays = [each for result in results.cells for each in (*result.repetitions, *result.controls)]
    for number in (0, 1):
        places = sorted(each.position for each in replays if each.number == number)
        assert places == [0, 1, 2]
    assert sorted(len(result.controls) for result in results.cells) == [0, 2]

    # The profile of the same board is used again, and so is all that is done.
    profiles = list(Path("results/runs").iterdir())
    before = times_of_writing(DIRECTORY)
    assert run("run", write(ON_BENCH, ram_budgets=["100%", "1KiB"], repetitions=2)) == 0
    assert list(Path("results/runs").iterdir()) == profiles
    assert before.items() <= times_of_writing(DIRECTORY).items()
    capsys.readouterr()
    assert run("compare", "tried:keep-everything", "tried:joulewright", "--json") in (0, 8)
    comparison = json.loads(capsys.readouterr().out)
    assert [each["quantity"] for each in comparison["cells"]] == ["time"]
    assert comparison["controls"]


@pytest.mark.slow
@pytest.mark.usefixtures("bench")
def test_the_steps_of_a_campaign_are_watched_unless_a_run_of_profile_has_done_so() -> None:
    few = {"methods": ["keep-everything"], "repetitions": 1}
    assert run("run", write(ON_BENCH, **few)) == 0
    (unwatched,) = (DIRECTORY / "profiles").iterdir()
    assert read_yaml(unwatched, DeviceProfile).step_costs == ()

    watched = {**few, "name": "watched", "watch_steps": True}
    assert run("run", write(ON_BENCH, **watched)) == 0
    assert watched_networks("watched") == ["linear"]
    runs = set(Path("results/runs").iterdir())
    assert len(runs) == 2
    assert run("run", write(ON_BENCH, **{**watched, "name": "again"})) == 0
    assert watched_networks("again") == ["linear"]
    assert set(Path("results/runs").iterdir()) == runs

    shutil.rmtree("results/runs")
    words = ["--device", "bench.yaml", "--model", "linear", "--batch", "2", "--blocks", "1"]
    assert cli.main(["profile", *words]) == 0
    runs = set(Path("results/runs").iterdir())
    assert run("run", write(ON_BENCH, **{**watched, "name": "after", "batches": [2]})) == 0
    assert watched_networks("after") == ["linear"]
    assert set(Path("results/runs").iterdir()) == runs


def watched_networks(campaign: str) -> list[str]:
    """The networks whose steps were watched for the only profile of a campaign."""
    (file,) = (DIRECTORY.parent / campaign / "profiles").iterdir()
    return [each.network.model for each in read_yaml(file, DeviceProfile).step_costs]


@pytest.mark.slow
@pytest.mark.usefixtures("bench")
def test_a_killed_process_of_a_board_costs_one_attempt() -> None:
    opened = open_campaign(write(ON_BENCH, repetitions=1), Results())
    directory = CampaignDirectory(DIRECTORY)
    directory.begin(opened.text, opened.design)
    runs = threading.Thread(target=_kill_first_replay)
    runs.start()
    done = run_campaign(directory, opened.file, opened.design, Results(), Workers(jobs=1))
    runs.join()
    assert (done.finished, done.shortfalls) == (2 + 3, ())
    results = read_campaign(DIRECTORY)
    assert states(results) == {"done"}
    (failure,) = [failure for result in results.cells for failure in result.failures]
    assert failure.phase == "run"
    assert "it was killed" in failure.reason
    assert not failure.is_last


@pytest.mark.slow
@pytest.mark.usefixtures("bench")
def test_a_board_that_another_program_uses_is_waited_for() -> None:
    opened = open_campaign(write(ON_BENCH, repetitions=1, methods=["keep-everything"]), Results())
    directory = CampaignDirectory(DIRECTORY)
    directory.begin(opened.text, opened.design)
    claim = claim_by_name("boards", "this computer")
    waited: list[str] = []

    def release_once_waited_for() -> None:
        if eventually(_waits, within_s=_PATIENCE_S):
            waited.append("for the board")
        claim.release()

    other = threading.Thread(target=release_once_waited_for)
    other.start()
    done = run_campaign(directory, opened.file, opened.design, Results(), Workers(jobs=1))
    other.join()
    assert waited == ["for the board"]
    assert done.shortfalls == ()
    (result,) = read_campaign(DIRECTORY).cells
    assert (result.state, result.failures) == ("done", ())


@pytest.mark.slow
@pytest.mark.usefixtures("bench")
def test_a_labgrid_place_is_waited_for_and_released(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "places" / "desk"
    place.parent.mkdir()
    place.write_text("there/else")
    monkeypatch.setenv("LG_COORDINATOR", str(place.parent))
    monkeypatch.setenv("PATH", f"{ROOT / 'tests' / 'support'}:{os.environ['PATH']}")
    boards = [{"device": "bench.yaml", "place": "desk"}]
    write(ON_BENCH, boards=boards, repetitions=1, methods=["keep-everything"])
    here = str(tmp_path)
    words = ("campaign", "run", f"{here}/tried.yaml", "--results", f"{here}/results")
    with started_as_by_a_shell(cli.__file__, *words) as (process, _mark):
        assert eventually(_waits, within_s=_PATIENCE_S)
        place.write_text("")
        assert eventually(lambda: bool(place.read_text()), within_s=_PATIENCE_S)
        assert process.wait(_PATIENCE_S) == 0
    assert eventually(lambda: not place.read_text())
    (result,) = read_campaign(DIRECTORY).cells
    assert (result.state, result.failures) == ("done", ())


def _waits() -> bool:
    progress = read_progress(DIRECTORY)
    return progress is not None and progress.boards[0].waits_for is not None


def _kill_first_replay() -> None:
    """Kill the process of the board while it runs a replay."""

    assert eventually(_is_replaying, within_s=_PATIENCE_S)
    for command_line in _children(os.getpid()):
        if "popen_loky" in command_line.read_text(errors="replace"):
            os.kill(int(command_line.parent.name), signal.SIGKILL)


def _is_replaying() -> bool:
    progress = read_progress(DIRECTORY)
    activity = None if progress is None else progress.boards[0].activity
    return activity is not None and not activity.startswith("profiling")


def _children(parent: int) -> list[Path]:
    """Command lines of the living children of a process."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(stat.read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(stat.parent / "cmdline")
        except OSError:
            continue
    return found


# --- killed and interrupted -----------------------------------------------------------------------


def finished_cells() -> dict[Path, int]:
    """When the result of each finished cell was written, in nanoseconds."""
    times = times_of_writing(DIRECTORY)
    return {path: at for path, at in times.items() if path.name == "cell.json"}


def ended_once_more_is_finished(number: signal.Signals, draw: random.Random) -> None:
    """Run the campaign in another process, and signal it soon after it has finished some cells.

    It may have ended until then.
    """
    here = Path.cwd()
    words = ("campaign", "run", str(here / "tried.yaml"), "--results", str(here / "results"))
    enough = len(finished_cells()) + draw.randrange(1, 6)

    def is_time() -> bool:
        return len(finished_cells()) >= enough or process.poll() is not None

    with started_as_by_a_shell(cli.__file__, *words) as (process, mark):
        assert eventually(is_time, within_s=_PATIENCE_S)
        with suppress(subprocess.TimeoutExpired):
            process.wait(draw.uniform(0.0, 0.5))
        process.send_signal(number)
        code = process.wait(_PATIENCE_S)
        assert code in {0, -number, 128 + number}
        assert eventually(lambda: not marked(mark))


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_nothing_finished_is_lost_or_done_again_whenever_the_campaign_is_ended(
    number: signal.Signals,
) -> None:
    write(PUBLISHED, batches=[1])
    draw = random.Random(number)
    kept: dict[Path, int] = {}
    for _ in range(3):
        ended_once_more_is_finished(number, draw)
        finished = finished_cells()
        assert kept.items() <= finished.items()
        kept = finished
        assert kept
        if (DIRECTORY / "cells.json").exists():
            for result in read_campaign(DIRECTORY).cells:  # every file can be read
                assert result.solved is None or result.schedule()
    assert run("run", "tried.yaml") == 0
    assert kept.items() <= times_of_writing(DIRECTORY).items()
    assert states(read_campaign(DIRECTORY)) == {"done", "no schedule"}
    assert not [path for path in DIRECTORY.rglob(".*") if path.is_file()]


@pytest.mark.slow
def test_ctrl_c_while_a_network_is_costed_keeps_the_schedule_that_was_found_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    searches: list[Future[Any]] = []

    def submitted(pool: LastingPool, *words: Any) -> Future[Any]:
        searches.append(begun(pool, *words))
        return searches[-1]

    def interrupted_once_a_schedule_is_found(*words: Any) -> CostedNetwork:
        if searches:
            wait(searches)
            raise KeyboardInterrupt
        return costed_network(*words)

    begun = LastingPool.submit
    monkeypatch.setattr(LastingPool, "submit", submitted)
    monkeypatch.setattr(
        "campaigns.running.campaign.costed_network", interrupted_once_a_schedule_is_found
    )
    few = {"boards": [{"profile": "m4"}], "ram_budgets": ["100%"], "methods": ["keep-everything"]}
    opened = open_campaign(write(PUBLISHED, **few), Results())
    directory = CampaignDirectory(DIRECTORY)
    directory.begin(opened.text, opened.design)
    with pytest.raises(KeyboardInterrupt):
        run_campaign(directory, opened.file, opened.design, Results(), Workers(jobs=2))
    found = [result.solved is not None for result in read_campaign(DIRECTORY).cells]
    assert found == [True, False]


def ended_while_replaying(number: signal.Signals) -> None:
    """Run the campaign in another process, and signal it while a board runs a schedule."""
    here = Path.cwd()
    words = ("campaign", "run", str(here / "tried.yaml"), "--results", str(here / "results"))
    with started_as_by_a_shell(cli.__file__, *words) as (process, mark):
        assert eventually(_is_replaying, within_s=_PATIENCE_S)
        process.send_signal(number)
        process.wait(_PATIENCE_S)
        assert eventually(lambda: not marked(mark))


@pytest.mark.slow
@pytest.mark.usefixtures("bench")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_campaign_that_is_ended_while_a_board_measures_leaves_no_process_and_goes_on(
    number: signal.Signals,
) -> None:
    write(ON_BENCH, methods=["keep-everything"], repetitions=1)
    ended_while_replaying(number)
    kept = times_of_writing(DIRECTORY)
    assert run("run", "tried.yaml") == 0
    assert kept.items() <= times_of_writing(DIRECTORY).items()
    (result,) = read_campaign(DIRECTORY).cells
    assert result.state == "done"
    assert not result.failures  # to be ended with the campaign is no failure of the board


@pytest.mark.slow
def test_a_network_that_is_too_large_for_a_board_ends_no_other() -> None:
    memory = {"ram_bytes": 64 << 10}
    small = describe(nominal_power_w=10.0, memory=memory)
    Path("small.yaml").write_text(dump_yaml(small))
    networks = ["digits", "autoencoder"]
    assert run("run", write(ON_BENCH, boards=["small.yaml"], networks=networks)) == 2
    by_network = {
        (result.cell.network, result.cell.method): result
        for result in read_campaign(DIRECTORY).cells
    }
    kept, refused = (
        by_network["digits", "keep-everything"],
        by_network["autoencoder", "keep-everything"],
    )
    assert kept.state == "done"
    assert refused.state == "failed"
    (failure,) = refused.failures  # of four replays: the others would be refused, too
    assert "of RAM for training" in failure.reason


@pytest.mark.emulated
@pytest.mark.slow
def test_a_killed_campaign_of_an_emulated_board_has_the_results_of_an_undisturbed_one() -> None:
    """The board takes the same time for the same step, so that all replays must agree."""
    write(ON_BENCH, boards=["emulated-m4f"], networks=["digits"], methods=["keep-everything"])
    ended_while_replaying(signal.SIGKILL)
    assert run("run", "tried.yaml") == 0
    (result,) = read_campaign(DIRECTORY).cells
    assert result.state == "done"
    replays = (*result.repetitions, *result.controls)
    assert len(replays) == 4
    assert {each.measured_energy_source for each in replays} == {"emulated"}
    first = replays[0].time_s.measured.median
    for each in replays:
        assert each.time_s.measured.median == pytest.approx(first, rel=1e-3)
