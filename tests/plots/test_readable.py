"""All texts of a picture can be read at the width of a page, whatever the size of the network."""

from __future__ import annotations

import itertools
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from devices.operation import OpSpec
from devices.profile import EnergySource, Interval
from devices.published import load_published
from devices.replay import (
    ActivityEnergies,
    ActivityEnergy,
    MeasuredStep,
    PowerSamples,
    ReplayReport,
)
from networks.models import build_model
from plots.arena import arena
from plots.cell_names import cell_names
from plots.layout import LINE_INCHES, SMALLEST_POINTS, name_within, shortened, spread, text_inches
from plots.memory_timeline import memory_timeline
from plots.operation_costs import operation_costs
from plots.replay.energies import energies_of_activities
from plots.replay.memory import replayed_memory
from plots.replay.power import replayed_power
from plots.replay.times import predicted_against_measured
from plots.robustness import robustness
from plots.schedule_matrix import schedule_matrix
from plots.storage_costs import storage_costs
from plots.tradeoff import tradeoff
from replay.expectation import expected_step
from solver.baselines.registry import BASELINES
from solver.costing.costing import cost_graph
from solver.problem.graph import CostedGraph
from solver.problem.schedule import DrawStatistics, Robustness, Schedule
from solver.sweep.record import SOLVED, SweepRow
from tests.support.graphs.graph_examples import training_chain
from tests.support.graphs.profiles import made_up_profile, on_flash
from tests.support.graphs.schedules import by_rule
from tests.support.onboard.replays import measured_step, report_of
from tests.support.pictures import require_readable

LONG = "a_part_of_the_network_whose_name_somebody_has_chosen_without_a_thought_for_pictures"
SIZES = (
    "chain",
    pytest.param("digits", marks=pytest.mark.slow),
    pytest.param("dscnn", marks=pytest.mark.slow),
    pytest.param("resnet18_cifar", marks=pytest.mark.slow),
    pytest.param("long names", marks=pytest.mark.slow),
)


@cache
def example(name: str) -> tuple[CostedGraph, Schedule]:
    """A graph and a schedule of it that recomputes and pages."""
    if name == "long names":
        graph = with_long_names(example("digits")[0])
    elif name == "chain":
        graph = training_chain(3)
    else:
        graph = cost_graph(build_model(name, 1), load_published("m4")).graph
    return graph, by_rule(graph, 2.0 if name == "chain" else 1.1)


def with_long_names(graph: CostedGraph) -> CostedGraph:
    def long(name: str) -> str:
        return f"{LONG}.{name}"

    return CostedGraph(
        name=f"{LONG}, {LONG}",
        energy_source="published",
        ops=tuple(
            op.model_copy(
                update={
                    "name": long(op.name),
                    "reads": tuple(map(long, op.reads)),
                    "writes": tuple(map(long, op.writes)),
                    "in_place": {long(a): long(b) for a, b in op.in_place.items()},
                }
            )
            for op in graph.ops
        ),
        tensors=tuple(t.model_copy(update={"name": long(t.name)}) for t in graph.tensors),
    )


@cache
def replayed(name: str, source: EnergySource = "measured") -> ReplayReport:
    """A report in which the actions took between a third of the predicted time and three times."""
    graph, schedule = example(name)
    graph = graph.model_copy(update={"energy_source": source})
    expected = expected_step(graph, schedule)
    factor = dict(
        zip(
            (action.schedule_index for action in expected.actions),
            np.geomspace(1 / 3, 3, len(expected.actions)),
            strict=True,
        )
    )

    def step(scatter: float) -> MeasuredStep:
        return measured_step(
            expected,
            factor=lambda action: scatter * float(factor[action.schedule_index]),
            gap_s=1e-4,
            power_w=2.0,
        )

    steps = [step(scatter) for scatter in (0.99, 1.0, 1.0, 1.01)]
    return report_of(graph, schedule, steps, power=power(2))


def power(steps: int) -> PowerSamples:
    return PowerSamples(
        time_s=tuple(np.linspace(-1.0, 30.0 * steps + 1, 100)),
        power_w=tuple(1 + np.sin(np.arange(100)) ** 2),
        step_starts_s=tuple(30.0 * step for step in range(steps)),
        step_times_s=(30.0,) * steps,
    )


# --- schedules ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SIZES)
def test_texts_of_memory_can_be_read(tmp_path: Path, name: str) -> None:
    require_readable(lambda path: memory_timeline(*example(name), path), tmp_path / "m.png")


@pytest.mark.parametrize("name", SIZES)
def test_texts_of_stages_can_be_read(tmp_path: Path, name: str) -> None:
    require_readable(lambda path: schedule_matrix(*example(name), path), tmp_path / "s.png")


@pytest.mark.parametrize("name", SIZES)
def test_texts_of_addresses_can_be_read(tmp_path: Path, name: str) -> None:
    require_readable(lambda path: arena(*example(name), path), tmp_path / "a.png")


@pytest.mark.slow
@pytest.mark.parametrize("late", [0, 3])
def test_texts_of_robustness_can_be_read(tmp_path: Path, late: int) -> None:
    _, schedule = example("chain")
    regrets = (*(0.4 * share**3 for share in np.linspace(0, 1, 40)), *(None,) * late)

    def statistics(energy_j: float) -> DrawStatistics:
        share = {"value": 0.5, "low": 0.4, "high": 0.6}
        return DrawStatistics.model_validate(
            {
                "energy_j": energy_j,
                "mean_energy_j": energy_j,
                "within": share,
                "provably_within": share,
                "regrets": regrets,
            }
        )

    report = Robustness(
        draws=len(regrets),
        seed=0,
        tolerance=0.01,
        least_energy=statistics(1.0),
        best_on_average=statistics(2.0),
        mean_bound_j=1.0,
        solved_draws=3,
        schedules=2,
        seconds=1.0,
    )
    drawn = schedule.model_copy(update={"robustness": report, "graph": f"{LONG} {LONG}"})
    require_readable(lambda path: robustness(drawn, path), tmp_path / "r.png")


# --- replays ------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("source", ["measured", "emulated"])
@pytest.mark.parametrize("name", SIZES)
def test_texts_of_replayed_times_can_be_read(
    tmp_path: Path, name: str, source: EnergySource
) -> None:
    report = replayed(name, source)
    require_readable(lambda path: predicted_against_measured(report, path), tmp_path / "t.png")


def test_texts_can_be_read_where_every_action_took_its_predicted_time(tmp_path: Path) -> None:
    report = report_of(*example("chain"))
    require_readable(lambda path: predicted_against_measured(report, path), tmp_path / "t.png")


@pytest.mark.parametrize("name", SIZES)
def test_texts_of_replayed_memory_can_be_read(tmp_path: Path, name: str) -> None:
    report = replayed(name)
    require_readable(lambda path: replayed_memory(*example(name), report, path), tmp_path / "m.png")


@pytest.mark.slow
@pytest.mark.parametrize("steps", [1, 2, 12, 60])
def test_texts_of_power_can_be_read(tmp_path: Path, steps: int) -> None:
    report = replayed("chain").model_copy(update={"power": power(steps)})
    require_readable(lambda path: replayed_power(report, path), tmp_path / "w.png")


def test_texts_of_power_are_beside_their_steps_where_samples_begin_later(tmp_path: Path) -> None:
    samples = power(12)
    late = samples.model_copy(
        update={"time_s": samples.time_s[-40:-30], "power_w": samples.power_w[-40:-30]}
    )
    report = replayed("chain").model_copy(update={"power": late})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        require_readable(lambda path: replayed_power(report, path), tmp_path / "w.png")


def told_apart(report: ReplayReport, together: int) -> ActivityEnergies:
    """Made-up energies in which so many operations each were not told apart."""
    keys = list(dict.fromkeys(action.cost_key for action in report.actions))
    activities = [*keys, "between", "outside"]
    power_w = Interval(median=2.0, low=0.5, high=3.5)
    return ActivityEnergies(
        energy_source="measured",
        steps=20,
        blocks=20,
        readings=500,
        shift_s=1e-4,
        condition=3.0,
        activities=tuple(
            ActivityEnergy(
                activities=tuple(activities[first : first + together]),
                time_s=(first + 1) * 1e-3,
                power_w=power_w,
                energy_j=power_w.scaled((first + 1) * 1e-3),
            )
            for first in range(0, len(activities), together)
        ),
    )


@pytest.mark.parametrize(
    ("name", "together"),
    [
        ("chain", 1),
        ("digits", 3),
        pytest.param("long names", 1, marks=pytest.mark.slow),
        ("long names", 1000),
    ],
)
def test_texts_of_energies_can_be_read(tmp_path: Path, name: str, together: int) -> None:
    plain = replayed(name)
    report = plain.model_copy(update={"activity_energies": told_apart(plain, together)})
    require_readable(lambda path: energies_of_activities(report, path), tmp_path / "e.png")


# --- profiles and sweeps ------------------------------------------------------------------------


def specs_of(model: str) -> list[OpSpec]:
    return list(dict.fromkeys(op.spec for op in build_model(model, 1).ops))


@pytest.mark.slow
@pytest.mark.parametrize("model", ["digits", "resnet18", "transformer"])
@pytest.mark.parametrize("source", ["estimated", "measured"])
def test_texts_of_operation_costs_can_be_read(
    tmp_path: Path, model: str, source: EnergySource
) -> None:
    profile = made_up_profile(specs_of(model), source)
    require_readable(lambda path: operation_costs(profile, path), tmp_path / "o.png")


@pytest.mark.slow
@pytest.mark.parametrize("power_w", [None, 3.0])
def test_texts_of_measured_paging_can_be_read(tmp_path: Path, power_w: float | None) -> None:
    profile = made_up_profile([OpSpec.of("relu.forward", elements=8)], "measured", power_w)
    require_readable(lambda path: storage_costs(profile, path), tmp_path / "p.png")
    require_readable(lambda path: storage_costs(on_flash(profile), path), tmp_path / "p.png")


def test_texts_of_published_paging_can_be_read(tmp_path: Path) -> None:
    require_readable(lambda path: storage_costs(load_published("m4"), path), tmp_path / "p.png")


def point(**fields: Any) -> SweepRow:
    return SweepRow(
        **{
            "graph": "digits, batch 1, on m4",
            "graph_sha256": "0",
            "method": SOLVED,
            "covers": "all",
            "status": "feasible",
            "peak_bytes": fields["ram_bytes"],
            "unconstrained_peak_bytes": 60_000_000,
            "unconstrained_energy_j": 2.0,
            "unconstrained_time_s": 1.0,
            "asked_gap": 0.01,
            **fields,
        }
    )


@pytest.mark.parametrize("graph", ["digits, batch 1, on m4", f"{LONG}, {LONG}"])
@pytest.mark.parametrize(
    "overhead", [30.0, *(pytest.param(share, marks=pytest.mark.slow) for share in (0, 0.002, 0.1))]
)
def test_texts_of_a_tradeoff_can_be_read(tmp_path: Path, overhead: float, graph: str) -> None:
    shares = np.linspace(1, 0, 8)
    rows = [
        point(
            graph=graph,
            method=method,
            ram_bytes=int(6e7 - 5e7 * share),
            energy_j=2 * (1 + overhead * share),
            gap=0.01,
            deadline_s=deadline_s,
        )
        for share in shares
        for method, deadline_s in (
            (SOLVED, None),
            (SOLVED, 1.01),
            (SOLVED, 1.5),
            *((name, None) for name in BASELINES),
        )
    ]
    rows.append(
        point(graph=graph, ram_bytes=5_000_000, status="infeasible", smallest_ram_bytes=8_000_000)
    )
    require_readable(lambda path: tradeoff(rows, path), tmp_path / "c.png")


# --- room for labels ----------------------------------------------------------------------------


@settings(derandomize=True)
@given(
    st.lists(st.floats(0, 10), min_size=1, max_size=12).map(sorted),
    st.floats(0.01, 0.8),
)
def test_labels_are_spread_without_overlap_and_those_apart_stay(
    centres: list[float], pitch: float
) -> None:
    placed = spread(centres, pitch, 0, 10)
    assert all(b - a >= pitch - 1e-9 for a, b in itertools.pairwise(placed))
    assert min(placed) >= 0
    assert max(placed) <= 10 + 1e-9
    if all(b - a >= pitch for a, b in itertools.pairwise(centres)):
        assert placed == pytest.approx(centres)


NAMES = st.lists(
    st.lists(st.sampled_from(["a", "bb", "conv", "block1"]), min_size=1, max_size=4).map(".".join),
    min_size=1,
    max_size=40,
)


@given(NAMES, st.lists(st.booleans(), min_size=1).map(sorted), st.floats(0.001, 0.3))
def test_names_have_room_and_belong_to_their_cells(
    names: list[str], groups: list[bool], pitch: float
) -> None:
    groups = [groups[min(i, len(groups) - 1)] for i in range(len(names))]
    found = cell_names(names, groups, pitch)
    for name in found:
        assert names[(name.first + name.end - 1) // 2].startswith(name.text)
        assert groups[name.first] == groups[name.end - 1]
    for one, next_one in itertools.pairwise(found):
        assert (next_one.middle - one.middle) * pitch >= LINE_INCHES * (1 - 1e-9)
        assert one.end <= next_one.first
    if pitch >= LINE_INCHES:
        assert [name.text for name in found] == names


def test_runs_of_a_layer_are_named_by_as_many_parts_as_they_share() -> None:
    names = [*["a.b.w"] * 10, *["a.c.w"] * 10]
    found = cell_names(names, [None] * 20, LINE_INCHES / 5)
    assert [(name.text, name.first, name.end) for name in found] == [
        ("a.b.w", 0, 10),
        ("a.c.w", 10, 20),
    ]


def test_layers_that_alternate_or_are_narrow_are_named_at_their_middle() -> None:
    alternating = ["a.x", "a.y", "b.x", "a.z"] * 3 + ["b.y", "a.w", "b.z", "b.w"] * 3
    found = cell_names(alternating, [None] * 24, LINE_INCHES / 8)
    assert [name.text for name in found] == ["a", "b"]
    narrow = [f"block{number // 4}.w" for number in range(40)]
    found = cell_names(narrow, [None] * 40, LINE_INCHES / 6)
    assert len(found) >= 4


@given(st.text(alphabet="abc.w_", max_size=60), st.floats(0.3, 3))
def test_shortened_text_fits_and_keeps_its_ends(text: str, room: float) -> None:
    short = shortened(text, room, SMALLEST_POINTS)
    assert text_inches(short, SMALLEST_POINTS) <= room
    if short != text:
        before, after = short.split("…")
        assert text.startswith(before)
        assert text.endswith(after)


@given(st.floats(0.2, 3), st.floats(0.05, 1))
def test_a_name_is_drawn_whole_or_not_at_all(width: float, height: float) -> None:
    name = "block2.pointwise.conv.weight_gradient"
    drawn = name_within(name, width, height)
    if drawn is not None:
        lines = drawn.split("\n")
        assert "".join(lines) == name
        assert len(lines) * LINE_INCHES <= height
        assert all(text_inches(line, SMALLEST_POINTS) <= width for line in lines)
