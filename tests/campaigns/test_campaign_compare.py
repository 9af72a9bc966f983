"""``campaign compare``: shifts, intervals and verdicts, and what the sides differ in."""

from __future__ import annotations

import json
import math
import os
import random
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

import cli
from campaigns.comparing.shifts import exact_shift, paired_shift, shift_of_logs
from campaigns.design.cells import Cell
from campaigns.design.opening import open_campaign
from campaigns.keeping.directory import CampaignDirectory
from campaigns.keeping.records import (
    AskedOfCell,
    Beginning,
    Circumstances,
    Repetition,
    ReplayPlace,
    SolvedCell,
)
from devices.profile import BoardIdentity, EnergySource, MeterRecord
from devices.results import Results
from replay.expectation import expected_step
from replay.reporting.report import replay_report
from solver.baselines.scheduled import schedule_by_baseline
from solver.problem.schedule import Budget
from tests.support.graphs.graph_examples import training_chain
from tests.support.onboard.replays import (
    METER,
    SUBJECT,
    measured_replay,
    measured_step,
    plan_of,
)

positive = st.floats(1e-6, 1e3)
MARGIN = 0.02
A_COMPUTER = BoardIdentity(model="a computer", memory_bytes=1 << 30)
NOMINAL = MeterRecord(kind="nominal", detail="nominal power", sync="none")


@pytest.fixture(autouse=True)
def _in_an_empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


# --- shifts ---------------------------------------------------------------------------------------


@settings(derandomize=True)
@given(st.lists(st.tuples(positive, positive), min_size=2, max_size=9), positive)
def test_a_shift_does_not_depend_on_the_unit_and_turns_round_with_the_sides(
    pairs: list[tuple[float, float]], unit: float
) -> None:
    before, after = zip(*pairs, strict=True)
    there = paired_shift(before, after, 3, MARGIN)
    back = paired_shift(after, before, 3, MARGIN)
    scaled = paired_shift([unit * x for x in before], [unit * x for x in after], 3, MARGIN)
    assert math.isclose((1 + there.shift) * (1 + back.shift), 1, rel_tol=1e-6)
    assert math.isclose(scaled.shift, there.shift, rel_tol=1e-6, abs_tol=1e-9)
    assert there.low is not None
    assert there.high is not None
    assert there.low <= there.shift <= there.high


@settings(derandomize=True)
@given(st.lists(positive, min_size=2, max_size=9), positive, st.integers(1, 50))
def test_a_shift_without_scatter_is_decided(
    before: list[float], factor: float, comparisons: int
) -> None:
    found = paired_shift(before, [factor * x for x in before], comparisons, 0.0)
    assert math.isclose(1 + found.shift, factor, rel_tol=1e-6)
    if abs(factor - 1) > 1e-6:
        assert found.verdict == ("more" if factor > 1 else "less")


def scattered(rng: random.Random, count: int, shift: float, scatter: float) -> list[float]:
    return [rng.gauss(math.log1p(shift), scatter * math.sqrt(2)) for _ in range(count)]


def alarms(cells: Sequence[Sequence[float]], margin: float = 0.0) -> bool:
    """Whether a comparison of these cells, and of all together, says more or less."""
    comparisons = len(cells) + 1
    means = [sum(logs) / len(cells) for logs in zip(*cells, strict=True)]
    shifts = [shift_of_logs(logs, comparisons, margin) for logs in (*cells, means)]
    return any(shift.verdict in {"more", "less"} for shift in shifts)


@pytest.mark.slow
@pytest.mark.parametrize("repetitions", [3, 5, 8])
@pytest.mark.parametrize("cells", [1, 6])
def test_at_most_5_percent_of_comparisons_of_equal_things_raise_an_alarm(
    cells: int, repetitions: int
) -> None:
    rng = random.Random(cells * 100 + repetitions)
    campaigns = 600
    raised = sum(
        alarms([scattered(rng, repetitions, 0.0, 0.03) for _ in range(cells)])
        for _ in range(campaigns)
    )
    error = math.sqrt(0.05 * 0.95 / campaigns)
    assert raised / campaigns <= 0.05 + 3 * error


@pytest.mark.parametrize(("change", "scatter"), [(0.10, 0.03), (0.03, 0.005)])
def test_a_true_change_is_found_with_eight_repetitions(change: float, scatter: float) -> None:
    rng = random.Random(8)
    found = [
        shift_of_logs(scattered(rng, 8, change, scatter), 4, 0.0).verdict == "more"
        for _ in range(300)
    ]
    assert sum(found) / len(found) >= 0.9


def test_the_smallest_visible_change_is_found_nine_times_out_of_ten() -> None:
    rng = random.Random(1)
    scatter, repetitions, comparisons = 0.02, 8, 3
    visible = [
        shift_of_logs(scattered(rng, repetitions, 0.0, scatter), comparisons, 0.0).visible or 0.0
        for _ in range(300)
    ]
    change = sum(visible) / len(visible)
    found = [
        shift_of_logs(scattered(rng, repetitions, change, scatter), comparisons, 0.0).verdict
        for _ in range(300)
    ]
    assert 0.8 <= found.count("more") / len(found) <= 0.98


def test_one_pair_decides_nothing_and_computed_figures_have_no_error() -> None:
    once = paired_shift([1.0], [2.0], 1, MARGIN)
    assert (once.verdict, once.low, once.visible) == ("undecided", None, None)
    assert exact_shift(1.0, 1.01, MARGIN).verdict == "same"
    assert exact_shift(1.0, 1.1, MARGIN).verdict == "more"
    assert exact_shift(1.0, 0.9, MARGIN).verdict == "less"


# --- campaigns ------------------------------------------------------------------------------------


def measured(
    name: str,
    step_s: Callable[[Cell, int], float],
    source: EnergySource = "estimated",
    *,
    board_of: Callable[[Cell], BoardIdentity] = lambda _: A_COMPUTER,
    controls: bool = False,
    hours_of: Callable[[Cell], float] = lambda _: 0.0,
    control_hours_of: Callable[[Cell], float] = lambda _: 0.0,
    peak_bytes_of: Callable[[Cell], int] = lambda _: 10**6,
    **changes: Any,
) -> None:
    """A campaign on this computer whose replays took what ``step_s`` returns.

    Joules have the ``source``, but those of emulated boards are emulated. ``board_of`` is what the
    board reported of itself; with ``controls``, every replay has one. Replays began ``hours_of``
    their cell from now, and controls ``control_hours_of`` it later. A step that keeps everything
    has ``peak_bytes_of`` its cell.
    """
    document = {
        "schema": "campaign/1",
        "name": name,
        "boards": ["local"],
        "networks": ["linear", "dscnn"],
        "ram_budgets": ["100%"],
        "methods": ["keep-everything"],
        "repetitions": 6,
        **changes,
    }
    Path(f"{name}.yaml").write_text(yaml.safe_dump(document))
    opened = open_campaign(f"{name}.yaml", Results())
    directory = CampaignDirectory(Results().campaigns / name)
    directory.begin(opened.text, opened.design)
    graph = training_chain(2)
    schedule = schedule_by_baseline(graph, Budget(ram_bytes=10**6), "keep-everything", 10.0)
    expected = expected_step(graph, schedule)
    plan = plan_of(graph, expected)
    for cell in opened.design.cells:
        described = opened.design.setting_of(cell).description
        is_emulated = described is not None and described.emulator is not None
        source_of_cell = "emulated" if is_emulated else source
        asked = AskedOfCell(
            cell=cell,
            profile=None,
            ram_bytes=schedule.budget.ram_bytes,
            unconstrained_peak_bytes=peak_bytes_of(cell),
            unconstrained_energy_j=1.0,
            unconstrained_time_s=1.0,
            predicted_operations=0,
        )
        beginning = Beginning()
        beginning.started = hours_later(beginning.started, hours_of(cell))
        circumstances = Circumstances.since(beginning)
        of_control = circumstances.model_copy(
            update={"started": hours_later(beginning.started, control_hours_of(cell))}
        )
        solved = SolvedCell.of(asked, graph, schedule, circumstances)
        directory.keep_solved(graph, schedule, solved)
        for number in range(opened.design.repetitions_of(cell)):
            took = step_s(cell, number)
            step = measured_step(expected, factor=lambda _, took=took: took, power_w=2.0)
            replay = replace(
                measured_replay(plan, expected, [step, step]),
                board=board_of(cell),
                energy_source=source_of_cell,
                meter=METER if source_of_cell == "measured" else NOMINAL,
            )
            report = replay_report(SUBJECT, expected, plan, replay, (), steps_per_day=1000)
            for control in (False, True) if controls else (False,):
                place = ReplayPlace(repetition=number, control=control)
                began = of_control if control else circumstances
                record = Repetition.of(cell, place, report, began, attempt=1)
                directory.keep_repetition(record, report)


def hours_later(started: str, hours: float) -> str:
    later = datetime.fromisoformat(started) + timedelta(hours=hours)
    return later.isoformat(timespec="seconds")


def noisy(seed: int, factor: float = 1.0) -> Callable[[Cell, int], float]:
    rng = random.Random(seed)
    return lambda _cell, _number: factor * math.exp(rng.gauss(0.0, 0.002))


def compare(*words: str) -> int:
    return cli.main(["campaign", "compare", *words])


def test_a_slower_campaign_is_told_apart_and_ends_with_an_exit_code_of_its_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    measured("before", noisy(1))
    measured("after", noisy(2, 1.1))
    assert compare("before", "after") == 8
    said = capsys.readouterr().out
    assert "they differ in nothing that is recorded" in said
    assert "they are two campaigns, begun at 20" in said
    assert said.count("slower") == 3  # of two cells, and of all
    assert compare("after", "before") == 0
    assert "faster" in capsys.readouterr().out


@pytest.mark.slow
def test_the_exit_code_stands_where_the_reader_of_the_printout_has_gone() -> None:
    measured("before", noisy(1))
    measured("after", noisy(2, 1.1))
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, cli.__file__, "campaign", "compare", "before", "after"],
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            timeout=600,
            check=False,
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (8, "")


def test_equal_campaigns_are_the_same_within_the_margin(
    capsys: pytest.CaptureFixture[str],
) -> None:
    measured("before", noisy(1))
    measured("after", noisy(2))
    assert compare("before", "after", "--json") == 0
    comparison = json.loads(capsys.readouterr().out)
    assert {each["shift"]["verdict"] for each in comparison["cells"]} == {"same"}
    assert {each["quantity"] for each in comparison["cells"]} == {"time"}  # joules are estimated


def test_measured_joules_are_compared_too(capsys: pytest.CaptureFixture[str]) -> None:
    measured("before", noisy(1), "measured")
    measured("after", noisy(2, 1.1), "measured")
    assert compare("before", "after") == 8
    assert capsys.readouterr().out.count("more energy") == 3


@pytest.mark.parametrize("source", ["emulated", "estimated"])
def test_joules_of_different_sources_are_not_compared(
    source: EnergySource, capsys: pytest.CaptureFixture[str]
) -> None:
    measured("before", noisy(1), "measured")
    measured("after", noisy(2), source)
    assert compare("before", "after", "--json") == 0
    comparison = json.loads(capsys.readouterr().out)
    assert {each["quantity"] for each in comparison["cells"]} == {"time"}
    of_times = {each.get("energy_source") for each in comparison["cells"]}
    assert of_times == {"emulated" if source == "emulated" else None}
    assert len(comparison["left_out"]) == 2
    for sentence in comparison["left_out"]:
        assert f"energies are measured in before and {source} in after" in sentence


def test_cells_are_taken_together_by_the_source_of_their_figures(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = {"boards": ["local", "emulated-m4f"], "repetitions": 2}
    measured("before", noisy(1), "measured", **words)
    measured("after", noisy(2), "measured", **words)
    assert compare("before", "after") == 0
    rows = [re.split("  +", line)[:2] for line in capsys.readouterr().out.splitlines()]
    assert sorted(row for row in rows if row[0].startswith("all ")) == [
        ["all 2 cells", "energy (emulated)"],
        ["all 2 cells", "energy (measured)"],
        ["all 2 cells", "time"],
        ["all 2 cells", "time (emulated)"],
    ]
    assert sum(row[1:] == ["time (emulated)"] for row in rows) == 3


def test_cells_without_a_common_repetition_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    for name, lost in (("before", 1), ("after", 0)):
        measured(name, noisy(1), repetitions=2)
        directory = CampaignDirectory(Results().campaigns / name)
        cell = next(cell for cell in directory.design().cells if cell.network == "linear")
        directory.repetition_file(cell, ReplayPlace(repetition=lost, control=False)).unlink()
    assert compare("before", "after") == 0
    assert "linear, 100%" in capsys.readouterr().out.partition("not compared: ")[2]
    assert compare("before:linear", "after:linear") == 2
    assert "no repetition was run on both sides" in capsys.readouterr().err


def test_two_conditions_of_a_campaign_are_compared_and_what_they_change_is_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    conditions = [
        {"name": "o2", "flags": ["-O2"]},
        {"name": "o3", "flags": ["-O3"]},
        {"name": "both", "flags": ["-O3"], "governor": "performance"},
    ]
    factors = {"o2": 1.0, "o3": 0.9, "both": 0.8}
    rng = random.Random(3)
    measured(
        "flags",
        lambda cell, _number: factors[cell.condition] * math.exp(rng.gauss(0.0, 0.002)),
        conditions=conditions,
    )
    assert compare("flags:o2", "flags:o3") == 0
    said = capsys.readouterr().out
    assert "differ in: description of local, toolchain, flags: -O2 and -O3" in said
    assert "two campaigns" not in said
    assert said.count("faster") == 3
    assert compare("flags:o3", "flags:both") == 0
    said = capsys.readouterr().out
    assert "differ in: description of local, conditions" in said
    assert compare("flags:o2", "flags:both") == 0
    assert "they differ in 2 things" in capsys.readouterr().out


def test_shares_of_different_peaks_are_different_budgets(
    capsys: pytest.CaptureFixture[str],
) -> None:
    sliced = {"method": "joulewright", "label": "in-slices", "slices": "16KiB:16KiB"}
    measured(
        "shares",
        noisy(1),
        networks=["linear"],
        ram_budgets=["60%", "300KiB"],
        methods=["keep-everything", sliced],
        peak_bytes_of=lambda cell: 900_000 if cell.method == "in-slices" else 1_000_000,
    )
    compare("shares:keep-everything", "shares:in-slices")
    said = capsys.readouterr().out
    assert "RAM budget of linear, 60%: 600000 bytes and 540000 bytes" in said
    assert "300KiB: " not in said


def test_profiles_that_were_measured_in_other_ways_are_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    measured("before", noisy(1))
    measured("after", noisy(2), profile_blocks=9)
    assert compare("before", "after") == 0
    assert "differ in: profile_blocks: 5 and 9" in capsys.readouterr().out


def test_levels_whose_replays_ran_far_apart_are_compared_and_it_is_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    conditions = [{"name": "o2", "flags": ["-O2"]}, {"name": "o3", "flags": ["-O3"]}]
    for name, hours in (("close", 0.5), ("extended", 50.0)):
        measured(
            name,
            noisy(4),
            conditions=conditions,
            hours_of=lambda cell, hours=hours: hours if cell.condition == "o3" else 0.0,
        )
    assert compare("close:o2", "close:o3") == 0
    assert " apart: " not in capsys.readouterr().out
    assert compare("extended:o2", "extended:o3") == 0
    assert "replays of a repetition ran up to 50.0 h apart: " in capsys.readouterr().out


def test_the_plan_in_a_firmware_is_no_difference_of_its_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def firmware(cell: Cell) -> BoardIdentity:
        name = f"firmware {cell.hash}"
        return BoardIdentity(model="a board", memory_bytes=1 << 15, kernel=name)

    budgets = {"boards": ["emulated-m4f"], "ram_budgets": ["100%", "85%"]}
    measured("micro", noisy(1), board_of=firmware, **budgets)
    assert compare("micro:100%", "micro:85%") == 0
    said = capsys.readouterr().out
    assert "differ in: ram_budget: 100% and 85%" in said
    assert "firmware" not in said
    assert "things" not in said


def test_the_kernel_of_a_linux_board_is_a_difference(capsys: pytest.CaptureFixture[str]) -> None:
    def linux(version: str) -> Callable[[Cell], BoardIdentity]:
        return lambda _: BoardIdentity(model="a board", memory_bytes=1 << 30, kernel=version)

    measured("before", noisy(1), board_of=linux("Linux 6.1"))
    measured("after", noisy(1), board_of=linux("Linux 6.2"))
    assert compare("before", "after") == 0
    assert "differ in: measuring of local, kernel: Linux 6.1 and Linux" in capsys.readouterr().out


def test_the_place_of_a_networks_file_is_no_difference(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("here", "there"):
        folder = Path(f"nets-{name}")
        folder.mkdir()
        (folder / "net.pt2").write_bytes(b"one")
        measured(name, noisy(1), networks=[f"{folder}/net.pt2", "linear"])
    assert compare("here", "there") == 0
    assert "they differ in nothing that is recorded" in capsys.readouterr().out


def test_rows_of_controls_name_their_campaign(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("before", "after"):
        measured(name, noisy(1), networks=["linear"], controls=True)
    assert compare("before", "after") == 0
    rows = capsys.readouterr().out.partition("controls: ")[2].splitlines()
    assert [row.partition(":")[0] for row in rows[2:]] == ["before", "after"]
    assert compare("before", "after", "--json") == 0
    controls = json.loads(capsys.readouterr().out)["controls"]
    assert [control["campaign"] for control in controls] == ["before", "after"]
    assert compare("before:linear", "before:linear") == 0
    rows = capsys.readouterr().out.partition("controls: ")[2].splitlines()
    assert rows[2].startswith("local, as-described, linear")


def test_controls_that_ran_long_after_their_replays_are_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    hours = {"linear": 50.0, "digits": 0.5}
    measured(
        "extended",
        noisy(1),
        "measured",
        networks=list(hours),
        repetitions=2,
        controls=True,
        control_hours_of=lambda cell: hours[cell.network],
    )
    assert compare("extended:linear", "extended:linear") == 0
    lines = capsys.readouterr().out.partition("controls: ")[2].splitlines()
    assert sum("  energy (measured)  " in line for line in lines) == 2
    (said,) = (line for line in lines if " apart: " in line)
    assert said.startswith("local, as-described, linear")
    assert "a replay and its control ran up to 50.0 h apart: what changed" in said


def test_cells_that_one_side_lacks_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    measured("before", noisy(1))
    measured("after", noisy(2), networks=["linear"])
    assert compare("before", "after") == 0
    said = capsys.readouterr().out
    assert "not compared: local, as-described, dscnn" in said
    assert "only in before" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("before", "missing"), "not the directory of a campaign"),
        (("before:o2", "before"), "campaign before has no level 'o2'; allowed: as-described"),
        (("before:linear", "before:local"), "is a network and before:local a board"),
        (("before:linear", "before"), "before has several levels of network: dscnn, linear"),
        (("before", "other"), "cannot be compared: "),
    ],
)
def test_what_cannot_be_compared_is_refused_in_one_sentence(
    words: tuple[str, str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    measured("before", noisy(1))
    measured("other", noisy(1), networks=["autoencoder"])
    assert compare(*words) == 2
    (sentence,) = capsys.readouterr().err.strip().splitlines()
    assert said in sentence
