"""Reports as files: a figure that does not follow from the measurements is refused."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import cli
from devices.documents.document import dump_json, write_atomically
from devices.errors import InputError
from devices.replay import ValueCheck
from replay.directory import GRAPH, REPORT, SCHEDULE, StoredRun
from replay.expectation import expected_step
from solver.addresses.plan import plan_addresses, with_addresses
from tests.support.graphs.graph_strategies import examples
from tests.support.graphs.schedules import addressed_schedule
from tests.support.onboard.replays import measured_step, paged_chain, report_of

# What a board measured or said, what the user asked for, and names: no file states these twice.
BELIEVED = re.compile(
    r"(schema|device|schedule|created|steps|watched_steps|losses.*|limits.*|power.*|unscheduled_s.*)"
    r"|(board|build|meter|values|memory\.process)\..*|values\[.*"
    r"|memory\.touched_bytes|storage\.(page_bytes|copies_s.*)|storage\.erased_blocks\.predicted"
    r"|storage\.wear\.(endurance_cycles|spread_bytes|steps_per_day|reason|years|at_most)"
    r"|storage\.written_bytes\.predicted"
    r"|storage\.read_bytes\.measured|.*measured\.(low|high)"
    r"|.*\.(start_s|run_s)|other\[\d+\]\.(what|count)|diagnosis\.sentences.*"
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that took longer than predicted, with a transfer and an op that are responsible."""
    directory = tmp_path_factory.mktemp("run")
    graph, paged = paged_chain()
    plan = plan_addresses(graph, paged.actions, "all", 0, time.monotonic() + 1)
    schedule = addressed_schedule(
        graph, with_addresses(paged.actions, plan), plan.resident_address, plan.arena_bytes
    )
    expected = expected_step(graph, schedule)
    slow = {"f3", "a1"}
    steps = [measured_step(expected, factor=lambda a: 9.0 if a.label in slow else 1.0, power_w=3.0)]
    values = (ValueCheck(against="the unscheduled step on the board", values=1, steps=1),)
    report = report_of(graph, schedule, steps, values=values)
    assert report.diagnosis.responsible
    for name, document in ((REPORT, report), (SCHEDULE, schedule), (GRAPH, graph)):
        write_atomically(directory / name, dump_json(document))
    return directory


def leaves(value: object, path: str = "") -> Iterator[tuple[str, list[str | int], Any]]:
    """Every text, number and truth value of a document, with its path."""
    if isinstance(value, dict):
        for key, inner in value.items():
            for below, keys, leaf in leaves(inner, f"{path}.{key}" if path else key):
                yield below, [key, *keys], leaf
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            for below, keys, leaf in leaves(inner, f"{path}[{index}]"):
                yield below, [index, *keys], leaf
    else:
        yield path, [], value


def changed(value: Any) -> Any:
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case float():
            return 2 * value + 1e-3
    return {"compute": "recompute", "recompute": "compute", "page_in": "page_out"}.get(
        value, {"estimated": "published", "measured": "estimated"}.get(value, "other")
    )


def with_value(run: Path, directory: Path, keys: list[str | int], value: Any) -> Path:
    """A copy of the run whose report has another value."""
    for name in (SCHEDULE, GRAPH):
        (directory / name).write_bytes((run / name).read_bytes())
    document = json.loads((run / REPORT).read_text())
    inner = document
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = value
    (directory / REPORT).write_text(json.dumps(document))
    return directory


def test_a_run_reads_as_it_was_written(run: Path) -> None:
    stored = StoredRun.read(run)
    assert dump_json(stored.report) == (run / REPORT).read_text()


def test_measurements_whose_shares_are_beyond_any_quantity_are_refused(
    run: Path, tmp_path: Path
) -> None:
    endless = {"median": 1e18, "low": 1e18, "high": 1e18}
    with_value(run, tmp_path, ["actions", 1, "time_s", "measured"], endless)
    with_value(tmp_path, tmp_path, ["actions", 0, "share"], 1e6)  # of a very short step
    with pytest.raises(InputError, match=r"sums, products or shares are more than 1e\+18"):
        StoredRun.read(tmp_path)


@pytest.mark.slow
@examples(100)
@given(data=st.data())
def test_any_other_value_of_a_figure_that_follows_from_others_is_refused(
    run: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    document = json.loads((run / REPORT).read_text())
    stated = [leaf for leaf in leaves(document) if not BELIEVED.fullmatch(leaf[0])]
    _, keys, value = data.draw(st.sampled_from(stated))
    directory = with_value(run, tmp_path_factory.mktemp("changed"), keys, changed(value))
    with pytest.raises(InputError, match=re.escape(str(directory / REPORT))):
        StoredRun.read(directory)


@pytest.mark.parametrize(
    ("keys", "value", "said"),
    [
        (["energy_j", "predicted", "low"], 0.1, "states energy_j.predicted.low 0.1; its schedule"),
        (["measured_energy_source"], "estimated", "estimated; it states the meter ina"),
        (["predicted_energy_source"], "measured", "states predicted_energy_source measured; its"),
        (["meter"], None, "states measured_energy_source measured; it states no meter"),
        (["values", 0, "values"], 10**6, "states values[0].values 1000000; its graph has"),
        (["values", 0, "steps"], 10**6, "states values[0].steps 1000000; it states 1 steps"),
        (["actions"], [], "states 0 actions; its schedule has"),
        (["diagnosis", "refine"], [], "states diagnosis.refine 0 entries"),
    ],
)
def test_every_reader_refuses_a_report_with_a_wrong_figure(
    run: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    keys: list[str | int],
    value: object,
    said: str,
) -> None:
    directory = tmp_path / "run"
    directory.mkdir()
    with_value(run, directory, keys, value)
    trace = ("export", "--format", "perfetto", "--run", str(directory), "--out", str(tmp_path))
    schedule = ("--schedule", str(directory / SCHEDULE), "--graph", str(directory / GRAPH))
    for command in (
        (*trace, *schedule),
        ("profile", "--device", "local", "--refine", str(directory)),
    ):
        assert cli.main(command) == 2
        error = capsys.readouterr().err
        assert f"error: {directory / REPORT}: " in error
        assert said in error
