"""The command line as a user sees it: output, its place, and exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import cli
from commands.profile.summary import matmul_sentence
from devices.documents.document import dump_yaml, write_atomically
from devices.errors import Defect, InputError, JoulewrightError
from devices.profile import ComputeRates, Interval, MatmulComparison
from devices.program import setup_words
from devices.published import load_published
from networks.models import build_model
from solver.costing.costing import cost_graph
from solver.problem.graph import CostedGraph
from solver.problem.schedule import Budget, Schedule
from tests.support.documents import write_json
from tests.support.graphs.graph_examples import hard_problem
from tests.support.graphs.schedules import UNSEARCHED
from tests.support.paths import ROOT
from tests.support.said import sentences


@pytest.fixture(autouse=True)
def _in_an_empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(*argv: str) -> int:
    return cli.main(argv)


@pytest.fixture
def graph_file(tmp_path: Path) -> Path:
    graph = cost_graph(build_model("linear"), load_published("m4")).graph
    return write_json(tmp_path / "linear.json", graph)


def test_help_imports_no_heavy_library() -> None:
    program = (
        "import sys, contextlib, cli\n"
        "with contextlib.suppress(SystemExit): cli.main(['--help'])\n"
        "heavy = {'numpy', 'scipy', 'pandas', 'matplotlib', 'mip', 'fabric', 'paramiko',"
        " 'pydantic', 'yaml', 'rich'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stderr.strip() == "[]"


@pytest.mark.slow
def test_solve_writes_schedule_and_graph_and_prints_the_proof(
    graph_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("solve", "--graph", str(graph_file), "--ram-budget", "80%") == 0
    printed = capsys.readouterr().out
    assert "optimal" in printed
    assert "(published)" in printed
    assert "no schedule needs less than" in printed
    schedules = list(Path("results/schedules").glob("*.json"))
    assert len(schedules) == 2


@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        ("--deadline", "1e-300", "'1e-300' is not a plausible deadline: allowed are 1e-12 to"),
        ("--deadline", "9" * 400 + "x", "is not a plausible deadline"),
        ("--deadline", "0x", "'0x' is not a deadline"),
        ("--ram-budget", "9" * 400, "is too large a RAM budget: at most 256 TiB are allowed"),
        ("--ram-budget", "9" * 400 + "%", "is too large a RAM budget"),
    ],
)
def test_implausible_budgets_are_refused_with_a_sentence(
    graph_file: Path, capsys: pytest.CaptureFixture[str], option: str, value: str, told: str
) -> None:
    asked = {"--ram-budget": "80%", option: value}
    words = [word for pair in asked.items() for word in pair]
    assert run("solve", "--graph", str(graph_file), *words) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("figure", "told"),
    [
        ({"time_s": 1e308}, "ops[0].time_s: found 1e+308; allowed: at most 1e+09 seconds"),
        ({"energy_j": 1e308}, "ops[0].energy_j: found 1e+308; allowed: at most 1e+09 joules"),
        ({"workspace_bytes": 2**60}, "workspace_bytes; allowed: 281474976710656"),
        ({"workspace_bytes": 10**40}, "allowed: at most 9.22337e+18 bytes"),
    ],
)
def test_implausible_costs_of_a_graph_are_refused_with_a_sentence(
    graph_file: Path, capsys: pytest.CaptureFixture[str], figure: dict[str, float], told: str
) -> None:
    graph = json.loads(graph_file.read_text())
    graph["ops"][0].update(figure)
    graph_file.write_text(json.dumps(graph))
    assert run("solve", "--graph", str(graph_file), "--ram-budget", "80%") == 2
    assert told in capsys.readouterr().err


def test_names_that_would_fill_the_screen_are_refused(
    graph_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = json.loads(graph_file.read_text())
    graph["ops"][0]["name"] = "x" * 5000
    graph_file.write_text(json.dumps(graph))
    assert run("solve", "--graph", str(graph_file), "--ram-budget", "80%") == 2
    told = capsys.readouterr().err
    assert "ops[0].name: found 'xxx" in told
    assert told.endswith("allowed: at most 400 characters\n")


@pytest.mark.slow
def test_largest_costs_are_solved(graph_file: Path) -> None:
    graph = json.loads(graph_file.read_text())
    for op in graph["ops"]:
        op.update(time_s=1e9, energy_j=1e9, time_s_interval=None, energy_j_interval=None)
    graph_file.write_text(json.dumps(graph))
    loose = ("--ram-budget", "80%", "--gap", "0.5")
    assert run("solve", "--graph", str(graph_file), *loose) == 0
    too_short = ("--ram-budget", "80%", "--deadline", "1e-12")
    assert run("solve", "--graph", str(graph_file), *too_short) == 5


def test_network_with_implausible_costs_is_refused_with_a_sentence(
    capsys: pytest.CaptureFixture[str],
) -> None:
    slow = load_published("m4").model_copy(
        update={"rates": ComputeRates(flop_per_s=1e-9, flop_per_j=1.0)}
    )
    write_atomically(Path("slow.yaml"), dump_yaml(slow))
    assert run("solve", "--profile", "slow.yaml", "--model", "linear", "--ram-budget", "80%") == 2
    assert "allowed: at most 1e+09 seconds" in capsys.readouterr().err


@pytest.mark.parametrize("command", [("plot",), ("export", "--format", "perfetto")])
def test_a_file_without_a_schedule_is_refused_with_a_sentence(
    graph_file: Path, capsys: pytest.CaptureFixture[str], command: tuple[str, ...]
) -> None:
    solve = ("solve", "--graph", str(graph_file), "--ram-budget", "1B", "--out", "s.json")
    assert run(*solve) == 5
    capsys.readouterr()
    assert run(*command, "--schedule", "s.json") == 2
    assert "this file has no actions to" in capsys.readouterr().err


@pytest.mark.parametrize("command", [("plot",), ("export", "--format", "perfetto")])
def test_a_schedule_that_somebody_broke_is_refused_with_a_sentence(
    graph_file: Path, capsys: pytest.CaptureFixture[str], command: tuple[str, ...]
) -> None:
    solve = ("solve", "--graph", str(graph_file), "--ram-budget", "100%", "--out", "s.json")
    assert run(*solve) == 0
    schedule = json.loads(Path("s.json").read_text())
    schedule["actions"].reverse()
    Path("s.json").write_text(json.dumps(schedule))
    capsys.readouterr()
    assert run(*command, "--schedule", "s.json") == 2
    told = capsys.readouterr().err
    assert told.startswith("error: s.json: not a valid schedule of ")


def test_results_option_sets_directory_for_reading_and_writing() -> None:
    bench = load_published("m4").model_copy(update={"name": "bench"})
    write_atomically(Path("kept/profiles/bench.yaml"), dump_yaml(bench))
    model = ("--model", "linear", "--ram-budget", "100%")
    assert run("solve", "--profile", "bench", *model) == 2
    assert run("solve", "--profile", "bench", *model, "--results", "kept") == 0
    assert Path("kept/schedules/linear-batch-1-on-bench.json").is_file()
    assert run("plot", "--profile", "bench", "--results", "kept") == 0
    assert Path("kept/bench-storage.png").is_file()
    assert not Path("results").exists()


def test_json_is_one_document_on_standard_output_and_nothing_else(
    graph_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("solve", "--graph", str(graph_file), "--ram-budget", "100%", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "schedule/2"
    assert document["ended_by"] == "proven"
    assert document["energy_source"] == "published"


def test_solve_reports_that_the_time_limit_ended_the_search(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    problem, budget = hard_problem()
    path = write_json(tmp_path / "hard.json", problem)
    limit = ("--gap", "0", "--time-limit", "0.2", "--no-addresses")
    ram = ("--ram-budget", str(budget.ram_bytes))
    assert run("solve", "--graph", str(path), *ram, *limit) in (0, 6)
    assert "; stopped by the time limit" in capsys.readouterr().out
    assert run("solve", "--graph", str(path), "--ram-budget", "100%") == 0
    assert "stopped" not in capsys.readouterr().out


@pytest.mark.slow
def test_budget_too_small_is_refused_with_smallest_budget(
    graph_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("solve", "--graph", str(graph_file), "--ram-budget", "1KiB") == 5
    printed = capsys.readouterr().out
    smallest = printed.partition("smallest feasible RAM budget of whole layers is ")[2].split()[0]
    assert run("solve", "--graph", str(graph_file), "--ram-budget", smallest) == 0
    assert run("solve", "--graph", str(graph_file), "--ram-budget", str(int(smallest) - 1)) == 5


def test_a_time_limit_without_a_solution_exits_with_6(capsys: pytest.CaptureFixture[str]) -> None:
    code = run(
        *("solve", "--profile", "m4", "--model", "resnet18_cifar", "--ram-budget", "30%"),
        *("--budget-covers", "activations", "--no-paging", "--no-remat", "--time-limit", "0.001"),
    )
    assert code == 6
    assert "stopped by the time limit" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("status", "code"), [("infeasible", 5), ("exhausted", 7), ("no_solution", 6)]
)
def test_the_exit_code_says_why_there_is_no_schedule(
    status: str, code: int, graph_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsolved(graph: CostedGraph, budget: Budget, *_: object, **__: object) -> Schedule:
        nothing = {"graph": graph.name, "solver": UNSEARCHED, "bound_covers": "schedules in"}
        return Schedule.model_validate({"status": status, "budget": budget, **nothing})

    monkeypatch.setattr("solver.requests.choice.solve_graph", unsolved)
    assert run("solve", "--graph", str(graph_file), "--ram-budget", "80%") == code


def test_export_graph_round_trips(graph_file: Path) -> None:
    exported = Path("out/graph.json")
    assert run("solve", "--graph", str(graph_file), "--export-graph", str(exported)) == 0
    assert json.loads(exported.read_text()) == json.loads(graph_file.read_text())


@pytest.mark.slow
def test_pictures_are_drawn(graph_file: Path) -> None:
    arguments = ("--graph", str(graph_file), "--ram-budget", "80%", "--pictures", "pictures")
    assert run("solve", *arguments) == 0
    assert {path.suffix for path in Path("pictures").iterdir()} == {".png"}


@pytest.mark.slow
def test_a_sweep_of_a_graph_without_energies_has_tables_and_no_picture(
    graph_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = json.loads(graph_file.read_text())
    costs = [*graph["ops"], *(t[way] for t in graph["tensors"] for way in t if "page" in way)]
    for cost in costs:
        cost["energy_j"] = 0.0
    graph_file.write_text(json.dumps(graph))
    budget = ("--ram-budgets", "100%", "--no-baselines")
    assert run("sweep", "--graph", str(graph_file), *budget, "--json") == 0
    (point,) = json.loads(capsys.readouterr().out)["points"]
    assert point["energy_j"] == 0
    assert Path("results/sweep/sweep.csv").exists()
    assert not list(Path("results/sweep").glob("*.png"))


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (("--model", "resnet8x"), "did you mean resnet8?"),
        (("--model", "resnet8", "--profile", "a72nocash"), "did you mean"),
        (("--model", "resnet8", "--profile", "missing/m4.yaml"), "missing/m4.yaml"),
        (("--ram-budget", "12 parsecs"), "512KiB"),
        (("--deadline", "soon"), "1.5x"),
    ],
)
def test_bad_options_get_one_sentence_and_exit_with_2(
    argv: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {"--profile": "m4", "--model": "linear", "--ram-budget": "50%"}
    options.update(zip(argv[::2], argv[1::2], strict=True))
    assert run("solve", *(word for pair in options.items() for word in pair)) == 2
    captured = capsys.readouterr()
    assert told in captured.err
    assert len(sentences(captured.err)) == 1
    assert captured.out == ""


def test_a_graph_without_a_ram_budget_is_refused(
    graph_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("solve", "--graph", str(graph_file)) == 2
    captured = capsys.readouterr()
    assert "--ram-budget" in captured.err
    assert len(sentences(captured.err)) == 1
    assert captured.out == ""


def test_a_truncated_profile_is_bad_input(capsys: pytest.CaptureFixture[str]) -> None:
    whole = (ROOT / "devices" / "published" / "m4.yaml").read_text()
    Path("cut.yaml").write_text(whole[: len(whole) // 2])
    assert run("solve", "--profile", "cut.yaml", "--model", "linear", "--ram-budget", "50%") == 2
    assert "cut.yaml" in capsys.readouterr().err


def test_a_network_that_does_not_learn_in_this_batch_is_remarked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ("solve", "--profile", "m4", "--model", "autoencoder", "--export-graph", "graph.json")
    assert run(*words, "--batch", "1") == 0
    assert capsys.readouterr().err.count("choose --batch 2 or more") == 1


@pytest.mark.slow
def test_strict_refuses_to_predict(capsys: pytest.CaptureFixture[str]) -> None:
    run("profile", "--device", "local", "--model", "linear", *QUICK)
    common = ("solve", "--profile", "local", "--model", "autoencoder", "--ram-budget", "100%")
    assert run(*common, "--strict") == 2
    assert "not measured" in capsys.readouterr().err
    assert run(*common) == 0
    captured = capsys.readouterr()
    assert "were not measured; their costs are predicted" in captured.err
    assert captured.err.count(", from ") == 5
    run(*common, "--verbose", "--json")
    captured = capsys.readouterr()
    listed = json.loads(captured.out)["predicted_operations"]
    assert captured.err.count(", from ") == len(listed) > 5
    at_most_s = [entry["occurrences"] * entry["time_s"]["high"] for entry in listed]
    assert at_most_s == sorted(at_most_s, reverse=True)


QUICK = ("--blocks", "2", "--no-storage", "--no-additivity")


@pytest.mark.slow
def test_profile_of_this_computer_is_marked_as_estimated(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run("profile", "--device", "local", "--model", "linear", *QUICK) == 0
    assert "(estimated)" in capsys.readouterr().out
    profile = Path("results/profiles/local.yaml").read_text()
    assert "energy_source: estimated" in profile
    (table,) = Path("results/runs").glob("*/trials.csv")
    head, *rows = table.read_text().splitlines()
    assert head.startswith("block,sitting,window,executions,time_s")
    assert any("warm linear.forward" in row for row in rows)


def test_dry_run_reaches_no_board_and_reports_the_work_and_file(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run("profile", "--device", "pi4", "--model", "resnet8", "--dry-run") == 0
    said = capsys.readouterr().err
    assert "68 distinct operations" in said
    assert "written" in said
    assert not Path("results").exists()


def test_an_unreachable_board_exits_with_3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))  # the user's SSH config may change the host
    description = (ROOT / "devices" / "catalog" / "pi4.yaml").read_text()
    known_hosts = Path("known_hosts")
    known_hosts.write_text("")
    Path("board.yaml").write_text(
        description.replace("host: raspberrypi.local", "host: 127.0.0.1").replace(
            "# port: 2222", f"port: 1\n  known_hosts: {known_hosts.absolute()}\n  deadline_s: 2"
        )
    )
    assert run("profile", "--device", "board.yaml", "--model", "linear") == 3
    assert "127.0.0.1" in capsys.readouterr().err


def test_file_in_place_of_the_output_directory_is_named(
    graph_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("taken").write_text("a file where a directory should be")
    out = ("--ram-budget", "90%", "--out", "taken/schedule.json")
    assert run("solve", "--graph", str(graph_file), *out) == 2
    assert "taken" in capsys.readouterr().err


@pytest.mark.slow
def test_missing_engine_is_reported_without_traceback(
    graph_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--ram-budget", "70%", "--engine", "gurobi")
    assert run("solve", "--graph", str(graph_file), *options) == 1
    assert "gurobi" in capsys.readouterr().err.splitlines()[-1]


def fail_with(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the command ``models`` raise ``error``."""

    def fail(*_: object) -> int:
        raise error

    monkeypatch.setattr("networks.models.build_model", fail)


@pytest.mark.parametrize(
    "kind", [kind for kind in JoulewrightError.__subclasses__() if kind is not Defect]
)
def test_an_error_is_one_sentence_and_ends_with_the_exit_code_of_its_class(
    kind: type[JoulewrightError],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    fail_with(kind("it broke", operation="trying", remedy="try again"), monkeypatch)
    assert run("models") == kind.exit_code
    captured = capsys.readouterr()
    assert captured.err == "error: trying: it broke; try again\n"
    assert captured.out == ""


def test_subclass_of_an_error_has_the_exit_code_of_its_parent(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Odd(InputError):
        """An error of a module that the command line does not know."""

    fail_with(Odd("it is odd"), monkeypatch)
    assert run("models") == 2
    assert capsys.readouterr().err == "error: it is odd\n"


def test_an_operating_system_error_that_names_a_file_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fail_with(OSError(28, "No space left on device", "results/x.json"), monkeypatch)
    assert run("models") == 2
    assert capsys.readouterr().err == "error: results/x.json: No space left on device\n"


@pytest.mark.parametrize(
    "error",
    [
        OSError(28, "No space left on device"),
        OSError(122, "Disk quota exceeded"),
        FileNotFoundError(2, "No usable temporary directory found"),
    ],
)
def test_a_full_disk_is_a_sentence_even_if_the_error_names_no_file(
    error: OSError, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/the/temporary")
    fail_with(error, monkeypatch)
    assert run("models") == 2
    assert (
        capsys.readouterr().err
        == f"error: {error.strerror}; temporary files are in /the/temporary\n"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "error",
    [
        "Defect('wrong')",
        "RefereeError(3, 'wrong')",
        "ValueError('x')",
        "OSError('x')",
        "ModuleNotFoundError('x', name='networks.models.gone')",
        "ModuleNotFoundError('x', name='pydantic.gone')",
    ],
)
def test_a_defect_keeps_its_traceback_and_exits_with_1(error: str) -> None:
    program = (
        "import sys, cli, networks.models\n"
        "from devices.errors import Defect\n"
        "from solver.referee.referee import RefereeError\n"
        f"def fail(*_): raise {error}\n"
        "networks.models.build_model = fail\n"
        "sys.exit(cli.main(['models']))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("Traceback")


def test_without_its_packages_the_program_says_how_to_get_them() -> None:
    words = [sys.executable, "-S", "cli.py", "devices"]  # no site, and so no packages
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == f"error: {sys.executable} lacks the package pydantic: {setup_words()}\n"


def test_the_published_call_works_with_its_published_parameters() -> None:
    from solver import solve

    schedule = solve(
        model="linear", platform="m4", ram_budget=40_000, runtime_budget=1.5, solve_threads=2
    )
    assert schedule.status == "optimal"
    assert schedule.budget.covers == "activations"


def test_devices_and_models_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("devices") == 0
    assert "pizero2w" in capsys.readouterr().out
    assert run("models", "--json") == 0
    models = json.loads(capsys.readouterr().out)["models"]
    assert {"bert", "dscnn", "resnet18_cifar"} <= {model["model"] for model in models}


def test_networks_that_a_batch_makes_too_large_are_listed_as_such(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run("models", "--batch", "1000") == 0
    said = capsys.readouterr().out.splitlines()
    (vgg16,) = [line for line in said if line.split()[:1] == ["vgg16"]]
    assert "too large" in vgg16
    (linear,) = [line for line in said if line.split()[:1] == ["linear"]]
    assert "too large" not in linear


def test_a_batch_that_makes_a_network_too_large_is_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    large = ("--model", "vgg16", "--batch", "1000")
    assert run("solve", "--profile", "m4", *large, "--ram-budget", "50%") == 2
    captured = capsys.readouterr()
    assert "vgg16 with batch 1000: relu.forward: elements is 3211264000" in captured.err
    assert "choose a smaller batch (--batch)" in captured.err
    assert len(sentences(captured.err)) == 1


@pytest.mark.parametrize(
    ("ratio", "said"),
    [
        (
            Interval(median=0.75, low=0.74, high=0.76),
            "OpenBLAS 0.3.30, which is faster on this board than in-tree: 750 µs against 1 ms",
        ),
        (
            Interval(median=1.5, low=1.4, high=1.6),
            "in-tree, which is faster on this board than OpenBLAS 0.3.30: 1 ms against 1.5 ms",
        ),
        (
            Interval(median=0.99, low=0.97, high=1.01),
            "in-tree, which is not measurably slower on this board than OpenBLAS 0.3.30: 1 ms",
        ),
    ],
)
def test_profile_reports_which_library_computes_matrix_products_and_why(
    ratio: Interval, said: str
) -> None:
    comparison = MatmulComparison(
        library="OpenBLAS 0.3.30 DYNAMIC_ARCH NO_AFFINITY Haswell",
        rounds=99,
        in_tree_s=Interval.exact(1e-3),
        cblas_s=ratio.scaled(1e-3),
        ratio=ratio,
    )
    assert matmul_sentence(comparison).startswith(f"matrix products: {said}")
