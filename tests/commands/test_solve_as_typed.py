"""``solve --profile FILE`` without further options."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import cli
from devices.comparison import compare
from devices.documents.document import dump_yaml, read_json, read_yaml, write_atomically
from devices.errors import EngineFailed
from devices.profile import DeviceProfile, ProfiledNetwork
from devices.published import load_published
from networks.models import build_model
from solver.constructed import keep_everything
from solver.costing.costing import cost_graph
from solver.options import SolverOptions
from solver.problem.graph import CostedGraph
from solver.problem.schedule import Budget, Schedule
from solver.referee.referee import replay
from solver.solving.solving import solve_graph
from solver.sweep import less_ram
from solver.sweep.less_ram import keeps_everything, solve_with_less_ram

LINEAR = ProfiledNetwork(model="linear", batch=4, optimizer="momentum")
DIGITS = ProfiledNetwork(model="digits", batch=2, optimizer="sgd")
MIB = 1 << 20
ANY_GAP = ("--gap", "0.99")
"""Ends the search of each smaller budget with its first schedule."""


@pytest.fixture(autouse=True)
def _in_an_empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(*argv: str) -> int:
    return cli.main(argv)


def bench(
    *networks: ProfiledNetwork, memory_bytes: int = 64 * MIB, available_bytes: int | None = 16 * MIB
) -> DeviceProfile:
    """A profile with a published board's rates."""
    published = load_published("m4")
    board = published.board.model_copy(
        update={"memory_bytes": memory_bytes, "available_bytes": available_bytes}
    )
    return published.model_copy(update={"name": "bench", "networks": networks, "board": board})


def written(profile: DeviceProfile, path: str = "results/profiles/bench.yaml") -> DeviceProfile:
    write_atomically(Path(path), dump_yaml(profile))
    return profile


def graph_of(network: ProfiledNetwork, profile: DeviceProfile) -> CostedGraph:
    step = build_model(network.model, network.batch, network.optimizer)
    return cost_graph(step, profile).graph


def schedule_of(stem: str) -> Schedule:
    return read_json(Path(f"results/schedules/{stem}.json"), Schedule)


def test_if_everything_fits_smaller_budgets_are_solved_too(
    capsys: pytest.CaptureFixture[str],
) -> None:
    profile = written(bench(LINEAR, DIGITS))
    assert run("solve", "--profile", "bench.yaml", *ANY_GAP) == 0
    printed = capsys.readouterr()
    taken = "from profile bench: model linear, batch 4, optimizer momentum\n"
    assert printed.err.count(taken) == 1
    assert (
        "everything fits into the 16.00 MiB of RAM that are available:"
        " nothing is recomputed or paged\n" in printed.out
    )
    table = printed.out.partition("everything fits")[2].splitlines()[1:]
    assert "energy a step (published)" in table[0]
    assert [row.split(" %")[0].split()[-1] for row in table[1:4]] == ["80", "60", "40"]
    schedule = schedule_of("linear-batch-4-on-bench")
    kept = replay(graph_of(LINEAR, profile), keep_everything(graph_of(LINEAR, profile)))
    assert schedule.budget == Budget(ram_bytes=16 * MIB)
    assert schedule.status == "optimal"
    assert schedule.energy_j == kept.energy_j
    assert schedule.peak_bytes == kept.peak_bytes


@pytest.mark.slow
def test_document_has_the_table_of_smaller_budgets(capsys: pytest.CaptureFixture[str]) -> None:
    profile = written(bench(DIGITS))
    graph = graph_of(DIGITS, profile)
    kept = replay(graph, keep_everything(graph))
    limits = (*ANY_GAP, "--time-limit", "120")
    assert run("solve", "--profile", "bench.yaml", *limits, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "schedule/2"
    rows: list[dict[str, Any]] = document["less_ram"]
    assert [row["percent_of_peak"] for row in rows] == [80, 60, 40]
    for row in rows:
        assert row["ram_bytes"] == kept.peak_bytes * row["percent_of_peak"] // 100
        assert row["energy_source"] == "published"
        assert row["peak_bytes"] <= row["ram_bytes"]
        assert row["more_energy"] == pytest.approx(row["energy_j"] / kept.energy_j - 1)
        assert row["gap"] <= 1
        assert row["time_s"] > 0


def test_infeasible_smaller_budget_has_no_figures(capsys: pytest.CaptureFixture[str]) -> None:
    # One layer takes most of this network's memory.
    written(bench(LINEAR))
    assert run("solve", "--profile", "bench.yaml", "--json", *ANY_GAP) == 0
    last = json.loads(capsys.readouterr().out)["less_ram"][-1]
    assert last["percent_of_peak"] == 40
    assert last["status"] == "infeasible"
    assert not {"energy_j", "more_energy", "gap"} & last.keys()


@pytest.mark.slow
def test_default_budget_is_the_ram_of_the_board(
    capsys: pytest.CaptureFixture[str],
) -> None:
    kept = replay(graph_of(DIGITS, bench()), keep_everything(graph_of(DIGITS, bench())))
    ram_bytes = kept.peak_bytes * 7 // 10  # too little with codecs, too
    written(bench(DIGITS, available_bytes=ram_bytes))
    limits = (*ANY_GAP, "--time-limit", "120")
    assert run("solve", "--profile", "bench.yaml", *limits, "--json") == 0
    printed = capsys.readouterr()
    assert "available on the board of profile bench when it was measured\n" in printed.err
    document = json.loads(printed.out)
    assert document["budget"]["ram_bytes"] == ram_bytes
    assert document["peak_bytes"] <= ram_bytes
    assert document["energy_j"] > kept.energy_j
    assert "less_ram" not in document


@pytest.mark.slow
def test_board_too_small_for_any_schedule_exits_with_5(capsys: pytest.CaptureFixture[str]) -> None:
    written(bench(LINEAR, available_bytes=100))
    assert run("solve", "--profile", "bench.yaml") == 5
    printed = capsys.readouterr().out
    assert "no schedule of whole layers fits" in printed
    assert "smallest feasible RAM budget of whole layers is" in printed
    assert "; layers in slices may need less (--slices)" in printed


@pytest.mark.slow
def test_a_profile_that_names_no_network_and_no_free_memory_still_solves(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("solver.requests.subjects.DEFAULT_MODEL", "linear")
    old = dump_yaml(bench(available_bytes=None))
    assert "available_bytes" not in old
    write_atomically(Path("results/profiles/bench.yaml"), old)
    assert run("solve", "--profile", "bench.yaml") == 0
    printed = capsys.readouterr()
    assert "from profile" not in printed.err
    assert "RAM budget: 64.00 MiB, all of the board of profile bench" in printed.err
    assert "everything fits into the 64.00 MiB" in printed.out
    schedule = schedule_of("linear-batch-1-on-bench")
    assert schedule.budget.ram_bytes == 64 * MIB


def test_a_published_profile_is_solved_for_the_default_network() -> None:
    graph = "resnet18_cifar-batch-1-on-a72"
    assert run("solve", "--profile", "a72", "--time-limit", "3") == 0
    assert schedule_of(graph).budget.ram_bytes == load_published("a72").board.memory_bytes


@pytest.mark.parametrize(
    ("argv", "stem", "optimizer", "told"),
    [
        (("--batch", "2"), "linear-batch-2", "momentum", "model linear, optimizer momentum"),
        (("--optimizer", "sgd"), "linear-batch-4", "sgd", "model linear, batch 4"),
        (("--model", "linear"), "linear-batch-1", "sgd", None),
    ],
)
def test_command_line_overrides_the_network_of_the_profile(
    argv: tuple[str, ...],
    stem: str,
    optimizer: str,
    told: str | None,
    capsys: pytest.CaptureFixture[str],
) -> None:
    written(bench(LINEAR))
    assert run("solve", "--profile", "bench.yaml", "--ram-budget", "100%", *argv) == 0
    said = capsys.readouterr().err.splitlines()
    taken = [line for line in said if line.startswith("from profile")]
    assert taken == ([] if told is None else [f"from profile bench: {told}"])
    graph = read_json(Path(f"results/schedules/{stem}-on-bench.graph.json"), CostedGraph)
    assert graph.origin is not None
    assert graph.origin.optimizer == optimizer


def test_unknown_optimizer_in_profile_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    written(bench(LINEAR.model_copy(update={"optimizer": "adagrad"})))
    assert run("solve", "--profile", "bench.yaml") == 2
    assert "no optimizer is named 'adagrad'" in capsys.readouterr().err


def test_file_in_working_directory_precedes_profile_in_results() -> None:
    written(bench(DIGITS))
    written(bench(LINEAR), "bench.yaml")
    assert run("solve", "--profile", "bench.yaml", "--ram-budget", "100%") == 0
    assert schedule_of("linear-batch-4-on-bench").actions
    assert run("solve", "--profile", "bench", "--ram-budget", "100%") == 0
    assert schedule_of("digits-batch-2-on-bench").actions


def test_exporting_the_graph_needs_no_budget_and_says_that_nothing_was_solved(
    capsys: pytest.CaptureFixture[str],
) -> None:
    written(bench(LINEAR))
    assert run("solve", "--profile", "bench.yaml", "--export-graph", "graph.json") == 0
    assert "only the graph was exported; add --ram-budget" in capsys.readouterr().err
    assert read_json(Path("graph.json"), CostedGraph).name == "linear, batch 4, on bench"
    assert not Path("results/schedules").exists()


@pytest.mark.slow
def test_profile_that_was_measured_here_is_solved(capsys: pytest.CaptureFixture[str]) -> None:
    network = ("--model", "linear", "--batch", "2")
    quick = ("--blocks", "1", "--no-storage", "--no-additivity")
    assert run("profile", "--device", "local", *network, *quick) == 0
    profile = read_yaml(Path("results/profiles/local.yaml"), DeviceProfile)
    assert profile.networks == (ProfiledNetwork(model="linear", batch=2, optimizer="sgd"),)
    assert profile.board.available_bytes is not None
    assert profile.board.usable_bytes == profile.board.available_bytes < profile.board.memory_bytes
    capsys.readouterr()
    assert run("solve", "--profile", "local.yaml") == 0
    printed = capsys.readouterr()
    assert "from profile local: model linear, batch 2, optimizer sgd\n" in printed.err
    assert "everything fits into the" in printed.out
    assert schedule_of("linear-batch-2-on-local").status == "optimal"


def test_free_memory_does_not_count_as_a_difference() -> None:
    assert not compare(bench(), bench(available_bytes=MIB)).circumstances


# --- less RAM ---------------------------------------------------------------------------------


def roomy_schedule(network: ProfiledNetwork) -> tuple[CostedGraph, Schedule, int]:
    graph = graph_of(network, bench())
    schedule = solve_graph(graph, Budget(ram_bytes=16 * MIB), SolverOptions())
    kept = replay(graph, keep_everything(graph))
    assert keeps_everything(schedule, kept)
    return graph, schedule, kept.peak_bytes


def ended_by(error: BaseException, call: int) -> Callable[..., Schedule]:
    """``solve_graph`` with an error, such as Ctrl-C, at the start of call number ``call``."""
    calls = 0

    def solve(*arguments: Any, **more: Any) -> Schedule:
        nonlocal calls
        calls += 1
        if calls == call:
            raise error
        return solve_graph(*arguments, **more)

    return solve


@pytest.mark.slow
def test_interruption_keeps_schedules_found_before(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(less_ram, "solve_graph", ended_by(KeyboardInterrupt(), 2))
    written(bench(DIGITS))
    assert run("solve", "--profile", "bench.yaml", "--time-limit", "6") == 0
    assert "stopped after 1 of 3 budgets\n" in capsys.readouterr().out
    assert schedule_of("digits-batch-2-on-bench").status == "optimal"


@pytest.mark.slow
def test_a_failed_engine_ends_smaller_budgets_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    killed = EngineFailed("the highs process was killed by SIGKILL")
    monkeypatch.setattr(less_ram, "solve_graph", ended_by(killed, 2))
    written(bench(DIGITS))
    assert run("solve", "--profile", "bench.yaml", "--time-limit", "6", "--json") == 0
    printed = capsys.readouterr()
    document = json.loads(printed.out)
    assert [row["percent_of_peak"] for row in document["less_ram"]] == [80]
    assert f"solving with less RAM failed: {killed}\n" in printed.err


def test_no_search_follows_an_interrupted_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: Any, **more: Any) -> Schedule:
        return solve_graph(*arguments, **more).model_copy(update={"ended_by": "interrupted"})

    monkeypatch.setattr(less_ram, "solve_graph", interrupted)
    graph, schedule, peak_bytes = roomy_schedule(DIGITS)
    options = SolverOptions(time_limit_s=180.0, gap=0.99)
    (only,) = solve_with_less_ram(graph, schedule, peak_bytes, options).rows
    assert only.percent == 80
    assert only.schedule.actions


def test_smaller_budgets_share_the_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[float] = []

    def unsearched(graph: CostedGraph, budget: Budget, options: SolverOptions, *_: Any) -> Schedule:
        assert options.time_limit_s is not None
        limits.append(options.time_limit_s)
        return roomy.model_copy(
            update={"status": "no_solution", "actions": (), "energy_j": None, "budget": budget}
        )

    graph, roomy, peak_bytes = roomy_schedule(DIGITS)
    taking_6_s = roomy.solver.model_copy(update={"seconds": 6.0})
    roomy = roomy.model_copy(update={"solver": taking_6_s})
    monkeypatch.setattr(less_ram, "solve_graph", lambda *given, **_: unsearched(*given))
    # Each search leaves its unused time to the next. A limit is for them alone; without one, they
    # have what the first search has left of a minute.
    for options, shared_s in [
        (SolverOptions(time_limit_s=9.0), [3.0, 4.5, 9.0]),
        (SolverOptions(), [18.0, 27.0, 54.0]),
    ]:
        limits.clear()
        began = time.monotonic()
        solve_with_less_ram(graph, roomy, peak_bytes, options)
        taken_s = time.monotonic() - began
        assert limits == pytest.approx(shared_s, abs=1.0 + taken_s)


@pytest.mark.parametrize("share", [None, 1.0, 0.99])
def test_a_schedule_that_its_boards_storage_has_no_room_for_is_told(
    share: float | None, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--profile", "bench", "--parameters-in", "storage", "--ram-budget", "100%", *ANY_GAP)
    profile = bench(LINEAR)
    written(profile)
    assert run("solve", *words, "--json") == 0
    needed_bytes = json.loads(capsys.readouterr().out)["storage_bytes"]
    assert profile.storage is not None
    scratch_bytes = None if share is None else int(share * needed_bytes)
    storage = profile.storage.model_copy(update={"scratch_bytes": scratch_bytes})
    written(profile.changed(storage=storage))
    assert run("solve", *words, "--json") == 0
    assert ("it cannot run there" in capsys.readouterr().err) == (share == 0.99)


@pytest.mark.parametrize(("shares_ram", "erases"), [(None, True), (None, False), (False, True)])
def test_a_schedule_that_pages_to_raw_flash_of_a_linux_board_is_told(
    shares_ram: bool | None, erases: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    profile = bench(LINEAR)
    assert profile.storage is not None
    erased = {"erase": profile.storage.write, "erase_block_bytes": 1 << 17} if erases else {}
    storage = profile.storage.model_copy(update=erased)
    board = profile.board.model_copy(update={"shares_ram": shares_ram})
    written(profile.changed(storage=storage, board=board))
    words = ("--profile", "bench", "--ram-budget", "100%", *ANY_GAP)
    assert run("solve", *words) == 0
    assert "raw flash" not in capsys.readouterr().err
    assert run("solve", *words, "--parameters-in", "storage") == 0
    assert ("raw flash" in capsys.readouterr().err) == (erases and shares_ram is None)


@pytest.mark.parametrize("states_endurance", [True, False])
def test_the_life_of_the_storage_is_stated_if_its_endurance_is_known(
    states_endurance: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    profile = bench(LINEAR)
    assert profile.storage is not None
    life = {"capacity_bytes": 10**9, "endurance_cycles": 3000} if states_endurance else {}
    written(profile.changed(storage=profile.storage.model_copy(update=life)))
    words = ("--profile", "bench", "--parameters-in", "storage", "--ram-budget", "100%", *ANY_GAP)
    assert run("solve", *words, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    wear = document["wear"]
    assert wear["written_bytes_per_step"] >= document["bytes_written_to_storage"] > 0
    assert ("years" in wear) == states_endurance
    assert run("solve", *words) == 0
    (line,) = [each for each in capsys.readouterr().out.splitlines() if "storage:" in each]
    if states_endurance:
        years = 3000 * 10**9 / wear["written_bytes_per_step"] / 1000 / 365.25
        assert wear["years"] == pytest.approx(years)
        assert f"; at 1000 steps a day it lasts at most {years:.3g} years" in line


@pytest.mark.slow
def test_tables_beside_the_summary_state_the_source_of_their_joules(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = (
        "solve",
        "--profile",
        "m4",
        "--model",
        "linear",
        "--batch",
        "2",
        "--ram-budget",
        "100%",
    )
    assert run(*words, *ANY_GAP, "--accumulate", "auto", "--baselines", "--time-limit", "20") == 0
    shown = capsys.readouterr().out
    assert "energy a step (published)  time a step" in shown
    assert re.search(r"method +energy \(published\)", shown)
