"""The formats: valid examples of each, and how the program reads one."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from benchmarks.fuzz import networks, onnx_files
from benchmarks.fuzz.answers import take_answers
from benchmarks.fuzz.mutation import Dump, made_input
from benchmarks.fuzz.networks import GRAPH, WEIGHTS
from campaigns.design.opening import open_campaign, shipped_names
from devices.description import catalog_names, load_description
from devices.documents import core_yaml
from devices.documents.document import (
    StrictModel,
    dump_json,
    dump_yaml,
    read_json,
    read_yaml,
    write_atomically,
)
from devices.errors import JoulewrightError
from devices.library import resolve_profile
from devices.published import load_published, published_names
from devices.replay import ReplayReport
from devices.results import Results
from networks.models import build_model
from networks.training.step import TrainingStep
from profiler.script.records import FIRST_LINE, parse_samples
from profiler.transports.serial.frames import Decoder, Frame, Kind, encode
from replay.lowering.lowering import lower
from replay.reporting.figures import remade_report
from replay.running.records import parse_replay
from replay.runs import planned_workspace
from solver.constructed import keep_everything
from solver.costing.costing import cost_graph
from solver.files.figures import wrong_figures
from solver.options import SolverOptions
from solver.problem.graph import CostedGraph
from solver.problem.schedule import Budget, Schedule
from solver.referee.referee import replay
from solver.robustness.draws import draw_costs
from solver.robustness.robustness import DRAWS_SEED, assess_robustness
from solver.solving.solving import solve_graph
from solver.sweep.directory import SweepDirectory
from solver.sweep.record import SweepRecord, SweepRow
from tests.support.graphs.profiles import made_up_profile
from tests.support.onboard.replays import paged_chain, report_of


@dataclass(frozen=True)
class Format:
    """A format that the program reads.

    ``examples`` are valid texts. ``dump`` writes other data as such a text, None if the format is
    neither JSON nor YAML. ``take`` reads an input that is at a path, and uses it as the commands
    would; it may raise :class:`~devices.errors.JoulewrightError`, of at most ``most_lines``.
    """

    file: str
    examples: Callable[[], Sequence[str]]
    dump: Dump | None
    take: Callable[[Path], None]
    most_lines: int = 6

    def input(self, name: str, seed: int) -> bytes:
        """The input with this seed; ``name`` is the format's."""
        chance = random.Random(f"{name} {seed}")
        return made_input(chance, self.examples(), self.dump)


def _as_json(document: StrictModel) -> str:
    return document.model_dump_json(by_alias=True, exclude_none=True)


# --- files ----------------------------------------------------------------------------------------


@cache
def _step() -> TrainingStep:
    return build_model("linear")


@cache
def _graph() -> CostedGraph:
    return cost_graph(_step(), load_published("m4")).graph


@cache
def _schedule() -> Schedule:
    peak_bytes = replay(_graph(), keep_everything(_graph())).peak_bytes
    options = SolverOptions(threads=1, time_limit_s=20)
    return solve_graph(_graph(), Budget(ram_bytes=int(0.8 * peak_bytes)), options)


@cache
def _devices() -> Sequence[str]:
    return [_as_json(load_description(name)) for name in catalog_names()]


@cache
def _profiles() -> Sequence[str]:
    measured = made_up_profile(list(_step().distinct_specs), "measured")
    return [_as_json(measured), *(_as_json(load_published(name)) for name in published_names())]


@cache
def _graphs() -> Sequence[str]:
    measured = made_up_profile(list(_step().distinct_specs))
    graphs = [_graph(), cost_graph(_step(), measured).graph, paged_chain()[0]]
    return [_as_json(graph) for graph in graphs]


@cache
def _assessed() -> tuple[CostedGraph, Schedule]:
    """A schedule with addresses that pages and recomputes, and its statistics over draws."""
    graph, paged = paged_chain()
    options = SolverOptions(threads=1, time_limit_s=20)
    schedule = solve_graph(graph, paged.budget, options)
    return graph, assess_robustness(schedule, draw_costs(graph, 8, DRAWS_SEED), options, False)


@cache
def _schedules() -> Sequence[str]:
    return [_as_json(_schedule()), _as_json(_assessed()[1])]


@cache
def _reports() -> Sequence[str]:
    return [_as_json(report_of(*_assessed()))]


@cache
def _sweeps() -> Sequence[str]:
    row = {
        "graph": _graph().name,
        "graph_sha256": "0" * 64,
        "method": "dtr",
        "ram_bytes": 100,
        "covers": "all",
        "status": "feasible",
        "energy_j": 2.5,
        "time_s": 1.5,
        "unconstrained_peak_bytes": 200,
        "unconstrained_energy_j": 2.0,
        "unconstrained_time_s": 1.0,
        "asked_gap": 0.01,
    }
    solved = {**row, "method": "joulewright", "schedule": "schedules/a.json", "gap": 0.001}
    rows = [SweepRow.model_validate(each) for each in (row, solved)]
    return [_as_json(SweepRecord(points=tuple(rows)))]


@cache
def _campaigns() -> Sequence[str]:
    """The campaigns that come with the project, and one with most keys."""
    files = [open_campaign(name, Results(Path())).file for name in shipped_names()]
    return [*map(_as_json, files), json.dumps(_ALL_KEYS)]


_ALL_KEYS = {
    "schema": "campaign/1",
    "name": "all",
    "boards": [{"device": "local", "tags": ["linux"]}, {"profile": "m4"}],
    "conditions": [{"name": "as-described"}, {"name": "o2", "flags": ["-O2"]}],
    "networks": [{"model": "linear", "train": ["bias"]}, {"model": "digits", "label": "d"}],
    "batches": [1, 2],
    "ram_budgets": ["50%", "8MiB"],
    "deadlines": ["none", "1.5x"],
    "methods": [{"method": "joulewright", "slices": "64KiB", "codecs": "all"}, "dtr"],
    "exclude": [{"methods": ["dtr"], "batches": [2]}],
    "repetitions": 2,
    "steps": 3,
    "seed": 1,
}


def _dump_json(data: object) -> str:
    return json.dumps(data, ensure_ascii=False)


def _dump_yaml(data: object) -> str:
    marked = isinstance(data, dict) and str(data.get("schema")) == "device-profile/1"
    try:
        return core_yaml.dump(data, end_marked=marked)
    except UnicodeEncodeError:  # JSON is YAML too, and can have half of a surrogate pair
        return _dump_json(data) + ("\n...\n" if marked else "")


def _read_back(document: StrictModel, path: Path) -> None:
    """Check that what was accepted is written and read back as the same document."""
    is_yaml = path.suffix == ".yaml"
    write_atomically(path, dump_yaml(document) if is_yaml else dump_json(document))
    again = (read_yaml if is_yaml else read_json)(path, type(document))
    assert again == document, "the document is not read back as it was written"


def _take_device(path: Path) -> None:
    _read_back(load_description(str(path)), path)


def _take_profile(path: Path) -> None:
    profile = resolve_profile(str(path))
    _read_back(profile, path)
    graph = cost_graph(_step(), profile).graph
    _read_back(graph, path.with_suffix(".json"))


def _take_graph(path: Path) -> None:
    graph = read_json(path, CostedGraph)
    _read_back(graph, path)
    replay(graph, keep_everything(graph))


def _take_schedule(path: Path) -> None:
    schedule = read_json(path, Schedule)
    _read_back(schedule, path)
    graph, assessed = _assessed()
    # Commands stop at the first wrong figure; here the checks of all others run, too.
    list(wrong_figures(graph if schedule.graph == assessed.graph else _graph(), schedule))
    lower(_step(), _graph(), schedule, planned_workspace(_step(), _graph()))


def _take_report(path: Path) -> None:
    report = read_json(path, ReplayReport)
    _read_back(report, path)
    _, wrong = remade_report(report, *_assessed())
    list(wrong)


def _take_sweep(path: Path) -> None:
    record = SweepDirectory(path.parent, SolverOptions()).record
    record.table()
    _read_back(record, path)


def _take_campaign(path: Path) -> None:
    opened = open_campaign(str(path), Results(path.parent))
    _read_back(opened.file, path)


# --- records and frames of a board ----------------------------------------------------------------


@cache
def _records() -> Sequence[str]:
    window = "executions=5 start_ns=10 end_ns=20 tail_end_ns=20 running_ns=9 tries=1"
    rest = "frequency_before_khz=1 frequency_after_khz=1 temperature_mc=40000"
    return [
        "\n".join(
            (
                FIRST_LINE,
                "start boot_id=a clock_ns=1 steal_ms=0",
                "scratch direct=1",
                f"window id=0 {window} {rest}",
                "probes first=0 values=0f,ff",
                "spans first=0 values=3f800000:3f000000",
                "counters steps=1 bytes_in=0 bytes_out=0 erased_blocks=0 touched_bytes=64",
                "recovered step=3",
                "end boot_id=a clock_ns=30 steal_ms=0 temperature_mc=40000",
                "",
            )
        ),
        "1000 20 30\n2000 21 31\n",
    ]


@cache
def _frames() -> Sequence[str]:
    payloads = (b"", b"\0", bytes(range(256)), b"a=1 b=2")
    frames = [
        encode(Frame(kind, 7, number, 256, payload))
        for number, (kind, payload) in enumerate(
            (kind, payload) for kind in Kind for payload in payloads
        )
    ]
    return [b"".join(frames).decode("latin-1")]


def _take_records(path: Path) -> None:
    text = path.read_bytes().decode("utf-8", errors="replace")
    try:
        parse_replay(text)
    except JoulewrightError:
        parse_samples(text, 2)
    else:
        with suppress(JoulewrightError):
            parse_samples(text, 2)


def _take_frames(path: Path) -> None:
    content = path.read_bytes()
    whole, pieces = Decoder(), Decoder()
    found = whole.feed(content)
    cut = [piece for i in range(0, len(content), 7) for piece in pieces.feed(content[i : i + 7])]
    assert found == cut, "frames depend on how the bytes are cut"
    assert found == Decoder().feed(b"".join(map(encode, found))), "a frame is not read back"


def _graph_of(network: Path) -> Format:
    return Format(
        "graph.json",
        networks.member(network, GRAPH),
        _dump_json,
        networks.take_member(network, GRAPH),
        102,
    )


FORMATS: Mapping[str, Format] = {
    "device/1": Format("board.yaml", _devices, _dump_yaml, _take_device),
    "device-profile/1": Format("profile.yaml", _profiles, _dump_yaml, _take_profile),
    "costed-graph/1": Format("graph.json", _graphs, _dump_json, _take_graph),
    "schedule/2": Format("schedule.json", _schedules, _dump_json, _take_schedule),
    "replay/1": Format("replay.json", _reports, _dump_json, _take_report),
    "sweep/1": Format("sweep.json", _sweeps, _dump_json, _take_sweep),
    "campaign/1": Format("campaign.yaml", _campaigns, _dump_yaml, _take_campaign),
    "exported graph": _graph_of(networks.VIEWS),
    "exported compositions": _graph_of(networks.COMPOSITIONS),
    "exported weights": Format(
        "weights.json",
        networks.member(networks.VIEWS, WEIGHTS),
        _dump_json,
        networks.take_member(networks.VIEWS, WEIGHTS),
    ),
    "exported archive": Format("net.pt2", networks.archives, None, networks.take_bytes, 102),
    "ONNX graph": Format("net.json", onnx_files.graphs, _dump_json, onnx_files.take_graph, 102),
    "ONNX file": Format("net.onnx", onnx_files.files, None, onnx_files.take_bytes, 102),
    "serial frames": Format("frames", _frames, None, _take_frames),
    "serial answers": Format("answers", _frames, None, take_answers),
    "serial lines": Format("lines", _records, None, _take_records),
}
