"""Pictures; their texts are read from the SVG, which repeats each as a comment."""

from __future__ import annotations

import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given

from devices.operation import OpSpec, Phase
from devices.profile import EnergySource
from devices.published import load_published
from devices.signatures import SIGNATURES
from plots.arena import arena
from plots.memory_timeline import memory_timeline
from plots.operation_costs import group_of, operation_costs
from plots.residency import phase_spans, stages
from plots.schedule_matrix import schedule_matrix
from plots.storage_costs import storage_costs
from plots.style import GREEN, SKY, engineering, size_text
from plots.tradeoff import tradeoff
from solver.baselines.names import BASELINE_NAMES
from solver.constructed import keep_everything
from solver.options import SolverOptions
from solver.problem.graph import CostedGraph, Op, PageCost, Tensor
from solver.problem.liveness import with_frees
from solver.problem.schedule import Action, Budget, Compute, PageIn, PageOut, Schedule
from solver.referee.referee import replay
from solver.solving.solving import solve_graph
from solver.sweep.record import SOLVED, SweepRow
from tests.support.graphs.graph_examples import graph as graph_of
from tests.support.graphs.graph_examples import op as made_of
from tests.support.graphs.graph_strategies import small_graphs
from tests.support.graphs.profiles import in_context, made_up_profile, on_flash
from tests.support.graphs.schedules import addressed_schedule, schedule_of
from tests.support.paths import ROOT
from tests.support.pictures import pixels_like, texts_of

SPECS = [
    OpSpec.of("relu.forward", elements=4096),
    OpSpec.of("linear.forward", rows=8, in_features=64, out_features=10, bias=1),
    OpSpec.of("sgd.update", elements=650),
]


def chain() -> CostedGraph:
    """Two layers forward, their gradients, and one update in place; sizes in KiB."""
    page = PageCost(time_s=2e-3, energy_j=1e-3)

    def op(name: str, phase: Phase, reads: str, writes: str, **more: object) -> Op:
        return Op.model_validate(
            {
                "name": name,
                "kind": "test",
                "phase": phase,
                "reads": tuple(reads.split()),
                "writes": tuple(writes.split()),
                "time_s": 1e-3,
                "energy_j": 3e-3,
                **more,
            }
        )

    return CostedGraph(
        name="chain",
        ops=(
            op("layer1", "forward", "x w", "a"),
            op("layer2", "forward", "a", "b", workspace_bytes=512),
            op("loss", "forward", "b", "c"),
            op("layer2.back", "backward", "b c", "db"),
            op("layer1.back", "backward", "a x db", "dw"),
            op("update", "update", "w dw", "v", in_place={"v": "w"}, recomputable=False),
        ),
        tensors=(
            Tensor(name="x", bytes=4096, kind="input", home="ram"),
            Tensor(name="w", bytes=2048, kind="parameter", home="ram"),
            *(
                Tensor(name=name, bytes=8192, kind="activation", page_out=page, page_in=page)
                for name in "abc"
            ),
            Tensor(name="db", bytes=8192, kind="gradient"),
            Tensor(name="dw", bytes=2048, kind="gradient"),
            Tensor(name="v", bytes=2048, kind="parameter", persist="ram"),
        ),
    )


def paged_and_recomputed() -> tuple[CostedGraph, Schedule]:
    graph = chain()
    actions: list[Action] = [
        Compute(op="layer1"),
        PageOut(tensor="a"),
        Compute(op="layer2"),
        Compute(op="loss"),
        PageIn(tensor="a"),
        Compute(op="layer2"),
        Compute(op="layer2.back"),
        Compute(op="layer1.back"),
        Compute(op="update"),
    ]
    return graph, schedule_of(
        graph, with_frees(graph, actions), energy_source="estimated", status="optimal"
    )


# --- memory over the step ---------------------------------------------------------------------


def test_timeline_states_budget_peak_phases_and_extra_costs(tmp_path: Path) -> None:
    graph, schedule = paged_and_recomputed()
    memory_timeline(graph, schedule, tmp_path / "m.svg")
    text = texts_of(tmp_path / "m.svg")
    assert "chain: memory over one training step" in text
    assert f"budget {size_text(schedule.budget.ram_bytes)} = " in text
    assert re.search(r"^peak [\d.]+ KiB during layer", text, re.MULTILINE)
    assert "of the energy: 1 × recompute 13 %, 1 × page out 4.3 %, 1 × page in 4.3 %" in text
    assert "energy ESTIMATED (nominal power × time), not measured" in text
    for label in ("forward", "backward", "update", "recompute", "page out", "page in"):
        assert f"\n{label}\n" in text


def test_a_timeline_without_extras_has_no_lanes_for_them(tmp_path: Path) -> None:
    graph = chain()
    memory_timeline(graph, schedule_of(graph, keep_everything(graph)), tmp_path / "m.svg")
    text = texts_of(tmp_path / "m.svg")
    assert "recompute" not in text
    assert "page " not in text
    assert "energy source not stated" in text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("measured", "energy measured"),
        ("estimated", "ESTIMATED"),
        ("emulated", "EMULATED"),
        ("published", "PUBLISHED"),
    ],
)
def test_both_pictures_of_a_schedule_state_its_energy_source(
    tmp_path: Path, source: EnergySource, words: str
) -> None:
    graph = chain()
    schedule = schedule_of(graph, keep_everything(graph), energy_source=source)
    for picture in (memory_timeline, schedule_matrix):
        picture(graph, schedule, tmp_path / "p.svg")
        assert words in texts_of(tmp_path / "p.svg")


def test_a_step_that_takes_no_time_can_be_drawn(tmp_path: Path) -> None:
    graph = CostedGraph(
        name="instant",
        ops=(
            Op(name="o", kind="k", phase="forward", reads=(), writes=("t",), time_s=0, energy_j=0),
        ),
        tensors=(Tensor(name="t", bytes=0, kind="activation"),),
    )
    memory_timeline(graph, schedule_of(graph, keep_everything(graph)), tmp_path / "m.png")
    assert (tmp_path / "m.png").stat().st_size > 1000


# --- stages × tensors -------------------------------------------------------------------------


def test_stage_contains_transfers_and_recomputations_before_its_op() -> None:
    graph, schedule = paged_and_recomputed()
    found = {stage.op.name: stage for stage in stages(graph, schedule)}
    assert found["layer2"].events.paged_out == {"a"}
    assert found["loss"].resident == {"x", "w", "b", "c"}
    assert found["loss"].stored == {"a"}
    assert found["layer2.back"].events.paged_in == {"a"}
    assert found["layer2.back"].events.recomputed == {"b"}
    assert found["update"].resident == {"w", "dw", "v"}


@given(small_graphs())
def test_stages_hold_the_bytes_that_the_referee_counts(graph: CostedGraph) -> None:
    actions = with_frees(
        graph,
        [
            *(
                PageIn(tensor=tensor.name)
                for tensor in graph.tensors
                if tensor.home == "storage"
                and (graph.readers[tensor.name] or tensor.persist == "ram")
            ),
            *(Compute(op=op.name) for op in graph.ops),
            *(
                PageOut(tensor=tensor.name)
                for tensor in graph.tensors
                if tensor.home != "storage" and tensor.persist == "storage"
            ),
        ],
    )
    moments = [m for m in replay(graph, actions).moments if isinstance(m.action, Compute)]
    size = {tensor.name: tensor.bytes for tensor in graph.tensors}
    for stage, moment in zip(stages(graph, schedule_of(graph, actions)), moments, strict=True):
        shared = sum(min(size[a], size[b]) for a, b in stage.op.in_place.items())
        held = sum(size[name] for name in stage.resident)
        assert held - shared + stage.op.workspace_bytes == moment.bytes_during


def test_updates_between_backward_ops_start_no_phase() -> None:
    phases = ["forward", "update", "forward", "backward", "update", "backward", "update", "update"]
    assert phase_spans(phases) == [("forward", 0, 3), ("backward", 3, 6), ("update", 6, 8)]
    assert phase_spans(["forward", "forward"]) == [("forward", 0, 2)]


def test_the_matrix_names_stages_and_tensors_and_only_states_that_occur(tmp_path: Path) -> None:
    graph, schedule = paged_and_recomputed()
    schedule_matrix(graph, schedule, tmp_path / "s.svg")
    text = texts_of(tmp_path / "s.svg").splitlines()
    assert {op.name for op in graph.ops} <= set(text)
    assert {tensor.name for tensor in graph.tensors} <= set(text)
    assert {"activations (3)", "gradients (2)", "parameters (2)", "inputs (1)"} <= set(text)
    assert {"in RAM", "in storage only", "recomputed", "paged out", "paged in"} <= set(text)
    schedule_matrix(graph, schedule_of(graph, keep_everything(graph)), tmp_path / "kept.svg")
    assert "recomputed" not in texts_of(tmp_path / "kept.svg")


@pytest.mark.slow
def test_page_ins_of_thousands_of_stages_are_visible(tmp_path: Path) -> None:
    names = [f"a{number}" for number in range(1300)]
    forward = [made_of(f"make {name}", reads, name) for reads, name in pairwise(["", *names])]
    backward = [made_of(f"use {name}", name, f"d{name}") for name in names]
    page = PageCost(time_s=1, energy_j=1)
    problem = graph_of(
        [*forward, *backward],
        [
            Tensor(name=op.writes[0], bytes=64, kind="activation", page_out=page, page_in=page)
            for op in (*forward, *backward)
        ],
    )
    actions: list[Action] = []
    for op in forward:
        actions += [Compute(op=op.name), PageOut(tensor=op.writes[0])]
    for op in backward:
        actions += [PageIn(tensor=op.reads[0]), Compute(op=op.name)]
    schedule = schedule_of(problem, with_frees(problem, actions))
    schedule_matrix(problem, schedule, tmp_path / "s.png")
    visible = pixels_like(tmp_path / "s.png", GREEN)
    assert visible.any(axis=0).sum() > 400


def test_tensors_too_thin_for_a_name_are_counted(tmp_path: Path) -> None:
    thin = [f"t{number}" for number in range(30)]
    problem = graph_of(
        [made_of("make", "", " ".join(["thick", *thin])), made_of("use", " ".join(thin), "result")],
        [
            Tensor(name=name, bytes=100_000 if name == "thick" else 8, kind="activation")
            for name in ("thick", "result", *thin)
        ],
    )
    schedule = solve_graph(problem, Budget(ram_bytes=10**6), SolverOptions(threads=1))
    arena(problem, schedule, tmp_path / "p.svg")
    text = texts_of(tmp_path / "p.svg")
    assert re.search(r"3[01] of ≤ 8 B", text)  # the result may lie between them
    assert "thick" in text


@pytest.mark.slow
def test_rectangles_that_are_narrow_in_time_hide_no_occupied_ram(tmp_path: Path) -> None:
    """Two thousand tensors that live for a pixel at most fill the arena at all times."""
    names = [f"t{number}" for number in range(2000)]
    problem = graph_of(
        [made_of(f"make {name}", reads, name) for reads, name in pairwise(["", *names])],
        [Tensor(name=name, bytes=2**16, kind="activation") for name in names],
    )
    actions = with_frees(
        problem,
        [
            Compute(op=op.name, address={op.writes[0]: 2**16 * (number % 2)})
            for number, op in enumerate(problem.ops)
        ],
    )
    arena(problem, addressed_schedule(problem, actions, None, 2**17), tmp_path / "p.png")
    assert pixels_like(tmp_path / "p.png", SKY, opacity=0.85).mean() > 0.5


def test_a_schedule_without_steps_cannot_be_drawn(tmp_path: Path) -> None:
    graph, schedule = paged_and_recomputed()
    empty = schedule.model_copy(update={"actions": (), "status": "infeasible"})
    for picture in (memory_timeline, schedule_matrix):
        with pytest.raises(ValueError, match="the schedule of chain has no actions: infeasible"):
            picture(graph, empty, tmp_path / "p.png")
    assert not list(tmp_path.iterdir())


# --- profiles ---------------------------------------------------------------------------------


def test_every_operation_is_named_with_its_median_and_interval(tmp_path: Path) -> None:
    operation_costs(made_up_profile(SPECS), tmp_path / "o.svg")
    text = texts_of(tmp_path / "o.svg")
    assert "relu.forward  4096" in text
    assert "linear.forward  8×64 → 8×10" in text
    assert "sgd.update  650" in text
    assert len(re.findall(r"^[\d.]+ µs  −[\d.]+ \+[\d.]+ %$", text, re.MULTILINE)) == len(SPECS)


def test_every_kind_of_operation_has_a_colour_in_the_legend(tmp_path: Path) -> None:
    assert all(group_of(kind) for kind in SIGNATURES)
    specs = [
        OpSpec.of("packing.page_out", elements=4096),
        OpSpec.of("weighted_cross_entropy_block.loss", rows=8, classes=10, by_weight=1),
    ]
    operation_costs(made_up_profile(specs), tmp_path / "o.svg")
    assert {"arithmetic, copies", "softmax, loss"} <= set(texts_of(tmp_path / "o.svg").splitlines())


def test_pictures_show_the_costs_in_use_and_mark_costs_in_context(tmp_path: Path) -> None:
    profile = made_up_profile(SPECS)
    operation_costs(profile, tmp_path / "before.svg")
    assert "in context: within a schedule" not in texts_of(tmp_path / "before.svg")
    key = profile.operations[0].op
    refined = in_context(profile, key, 1000.0)
    operation_costs(refined, tmp_path / "after.svg")
    text = texts_of(tmp_path / "after.svg")
    assert "in context: within a schedule" in text
    assert "intervals (numbers: cold, in context for 1)" in text
    used = engineering(refined.operations[0].cost("cold").time_s.median, "s")
    assert used == engineering(1000 * profile.operations[0].cold.time_s.median, "s")
    assert used in text


def test_estimated_energy_has_a_labelled_second_axis(tmp_path: Path) -> None:
    operation_costs(made_up_profile(SPECS, "estimated", 3.0), tmp_path / "o.svg")
    text = texts_of(tmp_path / "o.svg")
    assert "energy ESTIMATED: 3.00 W nominal × time, not measured" in text
    assert "energy, estimated (J)" in text


def test_measured_energy_has_a_separate_panel(tmp_path: Path) -> None:
    operation_costs(made_up_profile(SPECS, "measured", 3.0), tmp_path / "o.svg")
    text = texts_of(tmp_path / "o.svg")
    assert "energy measured" in text
    assert "\nenergy (J)\n" in text
    assert "estimated" not in text


def test_picture_of_a_profile_without_joules_says_so(tmp_path: Path) -> None:
    operation_costs(made_up_profile(SPECS, "measured", None), tmp_path / "o.svg")
    assert "no energy" in texts_of(tmp_path / "o.svg")


def test_emulated_board_is_labelled_even_without_joules(tmp_path: Path) -> None:
    operation_costs(made_up_profile(SPECS, "emulated", None), tmp_path / "o.svg")
    assert "EMULATED board" in texts_of(tmp_path / "o.svg")


@pytest.mark.slow
def test_three_hundred_operations_keep_their_names(tmp_path: Path) -> None:
    specs = [OpSpec.of("relu.forward", elements=elements) for elements in range(100, 400)]
    operation_costs(made_up_profile(specs), tmp_path / "o.svg")
    assert texts_of(tmp_path / "o.svg").count("relu.forward") == 300
    assert "left out" not in texts_of(tmp_path / "o.svg")


@pytest.mark.slow
def test_a_picture_of_more_operations_has_the_costliest_and_counts_the_others(
    tmp_path: Path,
) -> None:
    specs = [OpSpec.of("relu.forward", elements=2**20 + elements) for elements in range(298)]
    more = [OpSpec.of("relu.forward", elements=elements) for elements in (7, 8, 2**22, 2**23)]
    operation_costs(made_up_profile([*specs, *more]), tmp_path / "o.svg")
    text = texts_of(tmp_path / "o.svg")
    assert "300 distinct operations, most expensive first (2 cheaper ones are left out)" in text
    assert text.count("relu.forward") == 300
    assert not re.search(r"^relu\.forward  [78]$", text, re.MULTILINE)


def test_published_rates_have_no_single_costs_to_draw(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="m4 has rates"):
        operation_costs(load_published("m4"), tmp_path / "o.png")


def test_paging_costs_state_their_fit_and_its_error(tmp_path: Path) -> None:
    storage_costs(made_up_profile(SPECS), tmp_path / "p.svg")
    text = texts_of(tmp_path / "p.svg")
    assert "page-in (read): 210 µs + 91.0 µs per 4 KiB (45.0 MB/s)\nRMS fit error 4.3 %" in text
    assert "page-out (write): 3.90 mJ + 570 µJ per 4 KiB" in text
    assert "ESTIMATED" in text
    assert "in a step" not in text


def test_paging_costs_show_what_a_schedule_is_charged(tmp_path: Path) -> None:
    """On flash that is erased, a page-out is charged its share of erasing, too."""
    storage_costs(on_flash(made_up_profile(SPECS)), tmp_path / "p.svg")
    text = texts_of(tmp_path / "p.svg")
    for words in ("page-in in a step", "page-out in a step, with erasing", "erase of whole blocks"):
        assert words in text
    assert "of one transfer" in text


def test_published_paging_costs_are_lines_without_a_fit(tmp_path: Path) -> None:
    storage_costs(load_published("m4"), tmp_path / "p.svg")
    text = texts_of(tmp_path / "p.svg")
    assert "page-in (read): 109 µs + 217 ns per byte (4.62 MB/s)" in text
    assert "fit error" not in text
    assert "PUBLISHED figures, not measured here" in text


def test_paging_whose_pages_take_no_time_has_no_rate(tmp_path: Path) -> None:
    published = load_published("m4")
    assert published.storage is not None
    read = published.storage.read.model_copy(update={"per_page_s": 5e-324})
    profile = published.changed(storage=published.storage.model_copy(update={"read": read}))
    storage_costs(profile, tmp_path / "p.svg")
    text = texts_of(tmp_path / "p.svg")
    assert text.count("MB/s") == 1  # of writing only


def test_a_profile_without_storage_has_no_paging_to_draw(tmp_path: Path) -> None:
    profile = made_up_profile(SPECS).model_copy(update={"storage": None})
    with pytest.raises(ValueError, match="bench has no storage costs"):
        storage_costs(profile, tmp_path / "p.png")


# --- sweeps -----------------------------------------------------------------------------------


def test_curves_and_baselines_of_a_tradeoff_can_be_told_apart(tmp_path: Path) -> None:
    first = SweepRow(
        graph="made up",
        graph_sha256="0",
        method=SOLVED,
        ram_bytes=50,
        covers="all",
        status="feasible",
        energy_j=3.0,
        peak_bytes=50,
        unconstrained_peak_bytes=100,
        unconstrained_energy_j=2.0,
        unconstrained_time_s=1.0,
        asked_gap=0.01,
    )
    curves = [{"deadline_s": deadline_s} for deadline_s in (None, *(1 + 0.1 * n for n in range(6)))]
    baselines = [{"method": name} for name in BASELINE_NAMES if name != "keep-everything"]
    rows = [first.model_copy(update=changes) for changes in (*curves, *baselines)]
    tradeoff(rows, tmp_path / "t.svg")
    legend = (tmp_path / "t.svg").read_text().partition('id="legend_1"')[2]
    styles = [
        dict(re.findall(r"([\w-]+): ([^;]+)", s)) for s in re.findall('style="(.*?)"', legend)
    ]
    lines = [style for style in styles if style.get("fill") == "none" and "stroke-width" in style]
    drawn, others = lines[: len(curves)], lines[len(curves) :]
    assert len({(line["stroke"], line.get("stroke-dasharray")) for line in drawn}) == len(curves)
    assert max(float(line["stroke-width"]) for line in lines) < 5
    colors = {line["stroke"] for line in others}
    assert len(colors) == len(others) == len(baselines)
    assert not colors & {line["stroke"] for line in drawn}


# --- files ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_suffix_chooses_the_format_and_others_are_refused(tmp_path: Path) -> None:
    profile = load_published("m4")
    storage_costs(profile, tmp_path / "p.png")
    storage_costs(profile, tmp_path / "p.svg")
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "p.svg").read_text().startswith("<?xml")
    with pytest.raises(ValueError, match=r"must end with \.png or \.svg"):
        storage_costs(profile, tmp_path / "p.jpeg")


def test_the_same_data_give_the_same_file(tmp_path: Path) -> None:
    graph, schedule = paged_and_recomputed()
    for name in ("one.svg", "two.svg"):
        memory_timeline(graph, schedule, tmp_path / name)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()


@pytest.mark.slow
def test_pictures_need_no_display_and_no_global_state() -> None:
    modules = "memory_timeline", "schedule_matrix", "operation_costs", "storage_costs"
    imports = "; ".join(f"import plots.{module}" for module in modules)
    check = f"{imports}; import sys; sys.exit('matplotlib.pyplot' in sys.modules)"
    root = ROOT
    assert subprocess.run([sys.executable, "-c", check], cwd=root, check=False).returncode == 0


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0123, "12.3 ms"), (1234, "1.23 ks"), (5, "5.00 s"), (1e-7, "100 ns"), (0, "0 s")],
)
def test_quantities_have_three_digits_and_a_prefix(value: float, text: str) -> None:
    assert engineering(value, "s") == text


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [(512, "512 B"), (4096, "4 KiB"), (737_719, "720 KiB"), (1.5 * 2**30, "1.5 GiB")],
)
def test_sizes_have_binary_units(size_bytes: float, text: str) -> None:
    assert size_text(size_bytes) == text
