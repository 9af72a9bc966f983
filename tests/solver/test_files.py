"""Schedules as files: no reader believes a figure that their actions do not have."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import cli
from devices.errors import InputError
from solver.files.solved import read_solved, write_solved
from solver.options import SolverOptions
from solver.problem.graph import CostedGraph
from solver.problem.schedule import Budget, Schedule
from solver.robustness.draws import draw_costs
from solver.robustness.robustness import DRAWS_SEED, assess_robustness
from solver.solving.solving import solve_graph
from tests.support.documents import write_json
from tests.support.graphs.graph_examples import training_chain, two_layers
from tests.support.graphs.graph_strategies import examples, tight_problems
from tests.support.paths import ROOT

REFERENCES = ROOT / "tests" / "references"

READERS: Mapping[str, tuple[str, ...]] = {
    "run": ("run", "--device", "local", "--dry-run"),
    "plot": ("plot",),
    "c": ("export", "--format", "c"),
    "perfetto": ("export", "--format", "perfetto"),
}


@dataclass(frozen=True)
class Files:
    """A schedule that pages and recomputes, and its graph, as ``solve`` writes them."""

    directory: Path

    @property
    def schedule(self) -> Path:
        return self.directory / "demo.json"

    @property
    def document(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.schedule.read_text())
        return document

    def changed(self, **changes: object) -> Path:
        """The schedule with other values, beside the same graph; None removes a key."""
        path = self.directory / "changed.json"
        document = {**self.document, **changes}
        path.write_text(json.dumps({k: v for k, v in document.items() if v is not None}))
        graph = self.directory / "demo.graph.json"
        (self.directory / "changed.graph.json").write_bytes(graph.read_bytes())
        return path


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    found = Files(tmp_path_factory.mktemp("files"))
    graph = training_chain(6).model_copy(update={"energy_source": "emulated"})
    kept = solve_graph(graph, Budget(ram_bytes=10**9), SolverOptions(threads=1)).peak_bytes
    assert kept is not None
    budget = Budget(ram_bytes=int(0.75 * kept))
    schedule = solve_graph(graph, budget, SolverOptions(gap=0.05, threads=1))
    assert schedule.status == "optimal"
    write_solved(found.schedule, graph, schedule)
    return found


@pytest.mark.slow
@examples(10)
@given(problem=tight_problems(), gap=st.sampled_from((0.0, 0.05, 0.5)), addresses=st.booleans())
def test_every_schedule_of_the_solver_states_true_figures(
    tmp_path_factory: pytest.TempPathFactory,
    problem: tuple[CostedGraph, Budget],
    gap: float,
    addresses: bool,
) -> None:
    graph, budget = problem
    schedule = solve_graph(graph, budget, SolverOptions(gap=gap, threads=1, addresses=addresses))
    path = tmp_path_factory.mktemp("solved") / "found.json"
    write_solved(path, graph, schedule)
    assert read_solved(path) == (graph, schedule)


# --- a single figure ------------------------------------------------------------------------------


def halved(value: Any) -> Any:
    return value // 2 if isinstance(value, int) else value / 2


def doubled(value: Any) -> Any:
    return 2 * value


CHANGES: Mapping[str, tuple[str, Callable[[Any], Any], str]] = {
    "energy, less": ("energy_j", halved, "states energy_j"),
    "energy, more": ("energy_j", doubled, "states energy_j"),
    "energy, slightly more": ("energy_j", lambda j: 1.00001 * j, "states energy_j"),
    "time": ("time_s", halved, "states time_s"),
    "peak": ("peak_bytes", halved, "states peak_bytes"),
    "arena, less": ("arena_bytes", halved, "leaves the arena"),
    "arena, more": ("arena_bytes", lambda size: size + 1, "its addresses end at"),
    "bound on the arena, less": ("arena_bound_bytes", halved, "its actions need"),
    "bound on the arena, more": ("arena_bound_bytes", doubled, "it is no lower bound"),
    "written bytes": ("bytes_written_to_storage", lambda size: size + 4, "its actions write"),
    "bound above the energy": ("energy_bound_j", doubled, "it is no lower bound"),
    "bound": ("energy_bound_j", halved, "states gap"),
    "bound for any order": ("any_order_bound_j", doubled, "it is no lower bound"),
    "gap": ("gap", lambda gap: gap + 0.01, "the distance of its energy from its bound"),
    "no gap": ("gap", lambda _: None, "it states no gap"),
    "asked gap": ("asked_gap", lambda _: 0.0, "exceeds the asked gap"),
    "not optimal": ("status", lambda _: "feasible", "it is optimal"),
    "infeasible": ("status", lambda _: "infeasible", "it has actions"),
    "energy source": ("energy_source", lambda _: "measured", "states energy_source measured"),
    "no energy source": ("energy_source", lambda _: None, "states energy_source nothing"),
    "graph": ("graph", lambda name: f"{name} 2", "the costed graph is"),
    "hash": ("graph_sha256", lambda text: text[::-1], "was changed or replaced"),
    "budget": (
        "budget", lambda budget: budget | {"ram_bytes": budget["ram_bytes"] // 2},
        "the budget is",
    ),
    "address": (
        "resident_address", lambda places: dict.fromkeys(places, 0) | {"more": 0}, "action 0"
    ),
    "addresses without an arena": ("arena_bytes", lambda _: None, "states addresses"),
    "what the bound covers": (
        "bound_covers", lambda _: "every schedule on earth", "its bound holds for every schedule"
    ),
    "restrictions": ("restrictions", lambda _: ["none at all"], "with 1 restrictions its bound"),
    "time to build": (
        "solver", lambda solver: solver | {"build_seconds": 1e6}, "the whole search took"
    ),
    "no actions": ("actions", lambda _: [], "it has no actions"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("name", CHANGES)
def test_every_reader_refuses_a_schedule_with_a_wrong_figure(
    files: Files, name: str, reader: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key, change, said = CHANGES[name]
    path = files.changed(**{key: change(files.document[key])})
    results = ("--results", str(tmp_path))
    assert cli.main([*READERS[reader], "--schedule", str(path), *results]) == 2
    error = capsys.readouterr().err
    assert f"error: {path}: " in error
    assert said in error
    assert not list(tmp_path.iterdir())


@examples(100)
@given(data=st.data())
def test_any_other_value_of_a_recomputed_figure_is_refused(
    files: Files, data: st.DataObject
) -> None:
    key = data.draw(
        st.sampled_from(
            (
                "energy_j", "time_s", "peak_bytes", "arena_bytes", "arena_bound_bytes",
                "bytes_written_to_storage", "gap", "energy_bound_j",
            )
        )
    )  # fmt: skip
    stated = files.document[key]
    if isinstance(stated, int):
        value: float = data.draw(st.integers(0, 2**40).filter(lambda other: other != stated))
    else:
        value = data.draw(
            st.floats(0, 1e9, allow_subnormal=False).filter(
                lambda other: abs(other - stated) > 1e-5 * max(stated, 1.0)
            )
        )
    with pytest.raises(InputError, match=r"changed\.json: "):
        read_solved(files.changed(**{key: value}))


@examples(100)
@given(factor=st.floats(1 - 5e-7, 1 + 5e-7), key=st.sampled_from(("energy_j", "time_s")))
def test_rounding_is_accepted(files: Files, factor: float, key: str) -> None:
    read_solved(files.changed(**{key: factor * files.document[key]}))


def test_the_error_states_both_figures(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    path = files.changed(energy_j=0.1)
    assert cli.main(["plot", "--schedule", str(path)]) == 2
    cost = files.document["energy_j"]
    said = capsys.readouterr().err
    assert said == f"error: {path}: states energy_j 100 mJ; its actions cost {cost:.4g} J\n"


def test_another_cost_in_the_graph_is_refused(files: Files) -> None:
    path = files.changed()
    beside = path.with_name("changed.graph.json")
    document = json.loads(beside.read_text())
    document["ops"][0]["energy_j"] *= 2
    beside.write_text(json.dumps(document))
    with pytest.raises(InputError, match="states graph_sha256"):
        read_solved(path)


def test_overlapping_addresses_are_refused(files: Files) -> None:
    actions = files.document["actions"]
    for action in actions:
        if action["do"] == "compute" and "address" in action:
            action["address"] = dict.fromkeys(action["address"], 0)
    with pytest.raises(InputError, match="overlaps"):
        read_solved(files.changed(actions=actions))


def test_addresses_of_unknown_tensors_are_refused(files: Files) -> None:
    path = files.changed(
        arena_bytes=None, arena_bound_bytes=None, resident_address={"no such tensor": 0}
    )
    with pytest.raises(InputError, match="states addresses; it states no arena_bytes"):
        read_solved(path)


# --- other files ----------------------------------------------------------------------------------


def test_files_from_before_the_hash_and_the_asked_gap_load(files: Files) -> None:
    read_solved(files.changed(graph_sha256=None, asked_gap=None))


def test_a_schedule_of_the_first_format_loads() -> None:
    graph, schedule = read_solved(REFERENCES / "schedule-1.json")
    assert schedule.graph == graph.name


def test_a_schedule_of_the_first_format_with_a_wrong_figure_is_refused(tmp_path: Path) -> None:
    document = json.loads((REFERENCES / "schedule-1.json").read_text())
    path = tmp_path / "first.json"
    path.write_text(json.dumps(document | {"time_s": 1.0}))
    with pytest.raises(InputError, match="states time_s"):
        read_solved(path, REFERENCES / "schedule-1.graph.json")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"energy_j": 3.0}, "states energy_j; it has no actions"),
        ({"status": "optimal"}, "states status optimal; it has no actions"),
        ({"smallest_ram_bytes": 6}, "states smallest_ram_bytes 6"),
        ({"smallest_ram_bound_bytes": 10**6}, "states smallest_ram_bound_bytes 1e.06; it is no"),
        ({"asked_ram_bytes": 4}, "states asked_ram_bytes 4; its budget is 5 bytes"),
    ],
)
def test_wrong_figures_of_an_infeasible_problem_are_refused(
    tmp_path: Path, changes: dict[str, object], said: str
) -> None:
    graph = two_layers()
    infeasible = solve_graph(graph, Budget(ram_bytes=5), SolverOptions(threads=1))
    path = tmp_path / "none.json"
    write_solved(path, graph, infeasible)
    read_solved(path)
    write_json(path, infeasible.model_copy(update=changes))
    with pytest.raises(InputError, match=said):
        read_solved(path)


# --- statistics over draws ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def assessed() -> tuple[CostedGraph, Schedule]:
    plain = two_layers()
    ops = tuple(
        op.model_copy(update={"energy_j_interval": (0.9 * op.energy_j, 1.2 * op.energy_j)})
        for op in plain.ops
    )
    graph = CostedGraph(name=plain.name, ops=ops, tensors=plain.tensors)
    options = SolverOptions(threads=1)
    schedule = solve_graph(graph, Budget(ram_bytes=100), options)
    return graph, assess_robustness(schedule, draw_costs(graph, 20, DRAWS_SEED), options, False)


def test_more_draws_than_fit_in_memory_are_refused(
    assessed: tuple[CostedGraph, Schedule], tmp_path: Path
) -> None:
    graph, schedule = assessed
    assert schedule.robustness is not None
    many = schedule.robustness.model_copy(update={"draws": 10**15})
    write_solved(tmp_path / "many.json", graph, schedule.model_copy(update={"robustness": many}))
    with pytest.raises(InputError, match=r"many\.json: .* need too much memory; at most"):
        read_solved(tmp_path / "many.json")


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        (("energy_j",), 0.5),
        (("mean_energy_j",), 9.0),
        (("within", "value"), 0.5),
        (("within", "low"), 0.99),
        (("regret_95",), 0.2),
        (("regrets",), [0.0]),
    ],
)
def test_wrong_statistics_are_refused(
    assessed: tuple[CostedGraph, Schedule], tmp_path: Path, keys: tuple[str, ...], value: object
) -> None:
    graph, schedule = assessed
    path = tmp_path / "assessed.json"
    write_solved(path, graph, schedule)
    read_solved(path)
    document = json.loads(path.read_text())
    held = document["robustness"]["least_energy"]
    for key in keys[:-1]:
        held = held[key]
    held[keys[-1]] = value
    path.write_text(json.dumps(document))
    with pytest.raises(InputError, match=r"assessed\.json: .*robustness\.least_energy"):
        read_solved(path)
