"""A campaign's file and the cells that it asks for."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from campaigns.design.cells import Cell, Design, design_campaign
from campaigns.design.file import SOLVED, CampaignFile
from campaigns.design.opening import open_campaign, shipped_names
from campaigns.running.order import control_of, replays_in_order
from devices.description import load_description
from devices.documents.document import dump_yaml, read_yaml, validate
from devices.errors import InputError
from devices.results import Results
from tests.support.boards.measuring import describe
from tests.support.networks.onnx_files import classifier_apart
from tests.support.paths import ROOT

BOARDS = ("m0", "m4", "a72")
NETWORKS = ("linear", "dscnn", "autoencoder")
BUDGETS = ("100%", "50%", "64KiB")
LARGEST = [f"{size}KiB" for size in range(1, 1001)]
METHODS = (SOLVED, "chen-sqrt-n", "griewank")


def document(**changes: Any) -> dict[str, Any]:
    return {
        "schema": "campaign/1",
        "name": "tried",
        "boards": [{"profile": "m4"}],
        "networks": ["linear"],
        "ram_budgets": ["100%"],
        **changes,
    }


def designed(directory: Path = Path(), **changes: Any) -> Design:
    file = validate(document(**changes), CampaignFile, "tried.yaml")
    return design_campaign(file, directory, Results(directory / "results"))


def hashes(cells: Sequence[Cell]) -> dict[tuple[str | int | None, ...], str]:
    return {cell.levels: cell.hash for cell in cells}


def levels(known: Sequence[str]) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(known), min_size=1, unique=True)


# --- cells ----------------------------------------------------------------------------------------


@settings(max_examples=12)
@given(levels(BOARDS), levels(NETWORKS), levels(BUDGETS), levels(METHODS), st.data())
def test_cells_are_all_combinations_but_the_excluded(
    boards: list[str],
    networks: list[str],
    budgets: list[str],
    methods: list[str],
    data: st.DataObject,
) -> None:
    excluded = {
        "boards": data.draw(levels(boards)),
        "networks": data.draw(levels(networks)),
        "ram_budgets": data.draw(levels(budgets)),
    }
    wanted = {
        (board, network, budget, method)
        for board, network, budget, method in product(boards, networks, budgets, methods)
        if board not in excluded["boards"]
        or network not in excluded["networks"]
        or budget not in excluded["ram_budgets"]
    }
    asked = {
        "boards": [{"profile": board} for board in boards],
        "networks": networks,
        "ram_budgets": budgets,
        "methods": methods,
        "exclude": [excluded],
    }
    if not wanted:
        with pytest.raises(InputError, match="exclude leaves no cell"):
            designed(**asked)
        return
    cells = designed(**asked).cells
    found = [(cell.board, cell.network, cell.ram_budget, cell.method) for cell in cells]
    assert set(found) == wanted
    assert len(found) == len(wanted)
    assert len({cell.hash for cell in cells}) == len(cells)


@settings(max_examples=12)
@given(levels(BOARDS), levels(NETWORKS), levels(BUDGETS), levels(METHODS), st.data())
def test_more_levels_and_repetitions_leave_the_hashes_of_cells_as_they_are(
    boards: list[str],
    networks: list[str],
    budgets: list[str],
    methods: list[str],
    data: st.DataObject,
) -> None:
    def cells(known: dict[str, list[str]], **changes: Any) -> Sequence[Cell]:
        named = [{"profile": board, "tags": changes.pop("tags", [])} for board in known["boards"]]
        return designed(**{**known, "boards": named, **changes}).cells

    every = {"boards": boards, "networks": networks, "ram_budgets": budgets, "methods": methods}
    some = {factor: data.draw(levels(known)) for factor, known in every.items()}
    fewer = hashes(cells(some))
    more = hashes(cells(every, repetitions=9, seed=5, attempts=1, profile_blocks=2, tags=["x"]))
    assert fewer.items() <= more.items()


@pytest.mark.parametrize(
    "changes",
    [
        {"methods": [{"method": SOLVED, "gap": 0.01}]},
        {"methods": [{"method": SOLVED, "paging": False}]},
        {"methods": [{"method": SOLVED, "time_limit_s": 5}]},
        {"networks": [{"model": "linear", "optimizer": "adam"}]},
        {"networks": [{"model": "dscnn", "label": "linear"}]},
        {"budget_covers": "activations"},
    ],
)
def test_a_cell_has_another_hash_if_its_result_may_be_another(changes: dict[str, Any]) -> None:
    (before,), (after,) = designed().cells, designed(**changes).cells
    assert before.levels == after.levels
    assert before.hash != after.hash


def test_a_cell_of_a_board_depends_on_how_it_is_measured_and_on_the_description() -> None:
    on_board = {"boards": ["local"]}
    (before,) = designed(**on_board).cells
    (longer,) = designed(**on_board, steps=20).cells
    (flagged,) = designed(**on_board, conditions=[{"name": "o2", "flags": ["-O2"]}]).cells
    (surer,) = designed(**on_board, profile_blocks=9).cells
    (unwatched,) = designed(**on_board, watch_steps=False).cells
    cells = (before, longer, flagged, surer, unwatched)
    assert len({cell.hash for cell in cells}) == len(cells)
    # Nothing is run with a profile.
    assert designed(steps=20, profile_blocks=9, watch_steps=False).cells == designed().cells


def test_a_cell_depends_on_the_content_of_its_networks_file(tmp_path: Path) -> None:
    (tmp_path / "net.pt2").write_bytes(b"one")
    (before,) = designed(tmp_path, networks=["net.pt2"]).cells
    (tmp_path / "net.pt2").write_bytes(b"two")
    (after,) = designed(tmp_path, networks=["net.pt2"]).cells
    assert before.network == after.network == "net.pt2"
    assert before.hash != after.hash


def test_a_cell_depends_on_data_that_its_network_keeps_in_other_files(tmp_path: Path) -> None:
    classifier_apart(tmp_path / "net.onnx")
    found = set()
    for number in (1.0, 2.0, 1.0):
        (tmp_path / "weights.bin").write_bytes(np.full(12, number, np.float32).tobytes())
        found.update(cell.hash for cell in designed(tmp_path, networks=["net.onnx"]).cells)
    assert len(found) == 2


def test_a_cell_does_not_depend_on_the_place_of_its_networks_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("here", "there/nets"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "net.pt2").write_bytes(b"one")
    monkeypatch.chdir(tmp_path)
    before = designed(Path("here"), networks=["net.pt2"])
    labelled = {"model": "nets/net.pt2", "label": "net.pt2"}
    after = designed(Path("there"), networks=[labelled])
    assert before.cells == after.cells
    assert before.networks[0].model == str(tmp_path / "here" / "net.pt2")


def test_slices_decide_on_the_matrix_products_of_all_cells_of_a_board(tmp_path: Path) -> None:
    """Only where its description does not. All cells are measured with the same profile."""

    def describes(board: str, matmul: str) -> None:
        toolchain = {"kind": "native", "compiler": "cc", "matmul": matmul}
        (tmp_path / f"{board}.yaml").write_text(
            dump_yaml(describe(name=board, toolchain=toolchain))
        )

    describes("open", "auto")
    describes("decided", "in-tree")
    boards = ["open.yaml", "decided.yaml", {"profile": "m4"}]
    whole, parts = {"method": SOLVED}, {"method": SOLVED, "label": "parts", "slices": "64KiB"}
    both = {"boards": boards, "methods": [whole, parts]}
    before = hashes(designed(tmp_path, boards=boards, methods=[whole]).cells)
    after = hashes(designed(tmp_path, **both).cells)
    assert {each[0] for each, known in before.items() if after[each] != known} == {"open"}

    exclude = [{"boards": ["open"], "methods": ["parts"]}]
    assert before.items() <= hashes(designed(tmp_path, **both, exclude=exclude).cells).items()

    describes("open", "in-tree")
    assert hashes(designed(tmp_path, **both).cells) == after


def test_plain_words_are_devices_models_and_methods() -> None:
    words = designed(boards=["local"], networks=["dscnn"], methods=["dtr"])
    mappings = designed(
        boards=[{"device": "local"}], networks=[{"model": "dscnn"}], methods=[{"method": "dtr"}]
    )
    assert words == mappings


def test_a_network_may_have_batches_of_its_own() -> None:
    networks = ["dscnn", {"model": "linear", "batches": [4]}]
    cells = designed(networks=networks, batches=[1, 8]).cells
    assert [(cell.network, cell.batch) for cell in cells] == [
        ("dscnn", 1),
        ("dscnn", 8),
        ("linear", 4),
    ]


# --- boards and conditions ------------------------------------------------------------------------


def test_a_condition_changes_what_it_states_of_a_description() -> None:
    condition = {
        "name": "fast",
        "flags": ["-O2"],
        "governor": "performance",
        "storage": {"medium": "ssd", "path": "/elsewhere"},
    }
    design = designed(boards=["local", {"profile": "m4"}], conditions=[condition])
    local, m4 = design.settings
    described = load_description("local")
    assert local.description is not None
    assert local.description.toolchain.flags == ("-O2",)
    assert local.description.toolchain.compiler == described.toolchain.compiler
    assert local.description.conditions is not None
    assert local.description.conditions.governor == "performance"
    assert local.description.storage is not None
    assert local.description.storage.path == "/elsewhere"
    assert (m4.condition, m4.is_run) == ("as-described", False)


def test_descriptions_and_profiles_below_the_files_directory_are_found(tmp_path: Path) -> None:
    described = (
        Path(load_description.__code__.co_filename).parent / "catalog" / "pi4.yaml"
    ).read_text()
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab" / "mine.yaml").write_text(
        described.replace("name: pi4", "name: pi-on-the-shelf")
    )
    design = designed(tmp_path, boards=["lab/mine.yaml"])
    assert [setting.board for setting in design.settings] == ["pi-on-the-shelf"]


def test_a_description_is_looked_for_beside_the_campaigns_file_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text(dump_yaml(load_description("pi4")))
    Path("campaigns").mkdir()
    with pytest.raises(InputError, match=r"campaigns/mine\.yaml: cannot be read"):
        designed(Path("campaigns"), boards=["mine.yaml"])


@pytest.mark.parametrize("name", shipped_names())
def test_campaigns_that_come_with_the_project_are_valid(name: str, tmp_path: Path) -> None:
    opened = open_campaign(name, Results(tmp_path))
    assert opened.file.name == name
    assert opened.design.cells


def test_the_example_of_the_documentation_is_valid(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "campaigns.md").read_text()
    (example,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "nets").mkdir()
    (tmp_path / "nets" / "mine.pt2").write_bytes(b"a network")
    (tmp_path / "example.yaml").write_text(example)
    opened = open_campaign(str(tmp_path / "example.yaml"), Results(tmp_path))
    assert {cell.network for cell in opened.design.cells} == {"dscnn", "mine"}


# --- the order of replays -------------------------------------------------------------------------


@given(st.integers(1, 20), st.integers(1, 6), st.integers(0, 1000))
@settings(max_examples=30)
def test_each_repetition_runs_every_cell_once_and_the_same_one_twice(
    count: int, repetitions: int, seed: int
) -> None:
    (cell,) = designed().cells
    cells = [cell.model_copy(update={"hash": f"{number:016x}"}) for number in range(count)]
    control = control_of(cells, repetitions, seed, {})
    assert control == control_of(reversed(cells), repetitions, seed, {})
    planned = list(replays_in_order(cells, control, repetitions, seed))
    assert planned == list(replays_in_order(reversed(cells), control, repetitions, seed))
    controls = {cell.hash for cell, place in planned if place.control}
    assert len(controls) == 1
    for repetition in range(repetitions):
        block = [(cell, place) for cell, place in planned if place.repetition == repetition]
        assert [place.position for _, place in block] == list(range(count + 1))
        once = [cell.hash for cell, place in block if not place.control]
        assert sorted(once) == sorted(cell.hash for cell in cells)
    numbers = [place.repetition for _, place in planned]
    assert numbers == sorted(numbers)


@given(st.integers(1, 20), st.integers(1, 20), st.integers(0, 1000))
@settings(max_examples=30)
def test_a_campaign_with_more_cells_keeps_its_control(few: int, more: int, seed: int) -> None:
    """Also where two cells have controls, as of an extension that drew another one."""
    (cell,) = designed().cells
    drawn = Random(seed).sample(range(1000), few + more)
    cells = [cell.model_copy(update={"hash": f"{number:016x}"}) for number in drawn]
    control = control_of(cells[:few], 5, seed, {})
    files = {
        cells[-1].hash: frozenset({"control-4.json", "repetition-0.json", "repetition-1.json"}),
        control.hash: frozenset({"control-0.json", "control-3.json"}),
    }
    assert control_of(cells, 5, seed, files) == control


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"repetitons": 3}, "tried.yaml: repetitons: unknown key; did you mean repetitions?"),
        ({"name": "a; rm -rf"}, "tried.yaml: name: found 'a; rm -rf'; allowed: text of the form"),
        ({"name": "../up"}, "tried.yaml: name: found '../up'; allowed: text of the form"),
        ({"boards": ["../../board.yaml"]}, "stays below its directory"),
        ({"boards": ["/etc/passwd"]}, "stays below its directory"),
        ({"networks": ["~/net.onnx"]}, "stays below its directory"),
        ({"networks": ["net\0.onnx"]}, "allowed: text without control characters"),
        ({"boards": ["\x1b[2J.yaml"]}, "allowed: text without control characters"),
        ({"boards": ["locl"]}, "no device 'locl' in the catalogue; did you mean local?"),
        ({"boards": [{"profile": "m44"}]}, "no profile 'm44'; did you mean m4?"),
        ({"boards": [{"tags": ["x"]}]}, "a board needs either device or profile"),
        ({"boards": []}, "boards: found a list; allowed: a list with at least one item"),
        ({"boards": ["local", "local"]}, "two boards are named local"),
        (
            {
                "boards": [{"profile": "m4"}, {"profile": "m4"}],
                "conditions": [{"name": "o2", "flags": ["-O2"]}],
            },
            "two boards are named m4",
        ),
        ({"networks": ["liner"]}, "none of this name is built in; did you mean linear?"),
        (
            {"networks": ["linear", "linear"]},
            "networks: linear is there twice; give one of them a label",
        ),
        ({"ram_budgets": ["lots"]}, "'lots' is not a RAM budget"),
        ({"deadlines": ["soon"]}, "'soon' is not a deadline"),
        ({"methods": ["chen-sqr"]}, "no method 'chen-sqr'; did you mean chen-sqrt-n?"),
        ({"methods": [{"method": "dtr", "gap": 0.1}]}, "only joulewright has these options, dtr"),
        (
            {"exclude": [{"boards": ["m44"]}]},
            "exclude[0].boards: no level is 'm44'; did you mean m4?",
        ),
        (
            {"repetitions": 10**12},
            "tried.yaml: repetitions: found 1000000000000; allowed: at most 10000",
        ),
        (
            {"ram_budgets": LARGEST[:317], "batches": [*range(1, 318)]},
            "tried.yaml: the levels have 100,489 combinations before exclude, at most 100,000 are"
            " allowed; make several campaigns of it",
        ),
        (
            {"ram_budgets": LARGEST[:100], "batches": [*range(1, 101)], "repetitions": 101},
            "tried.yaml: 10,000 combinations of levels before exclude are run 101 times each, at"
            " most 1,000,000 replays are allowed; make several campaigns of it",
        ),
        ({"steps": 10**12}, "steps: found 1000000000000; allowed: at most 1e+06"),
        ({"profile_blocks": 10**12}, "profile_blocks: found 1000000000000; allowed: at most 10000"),
        (
            {"exclude": [{"boards": ["m4"]}] * 1001},
            "exclude: found a list; allowed: at most 1000 items",
        ),
        ({"exclude": [{}]}, "an entry without keys would exclude everything"),
        ({"exclude": [{"boards": ["m4"]}]}, "exclude leaves no cell"),
        (
            {"boards": ["emulated-m4f"], "conditions": [{"name": "c", "governor": "performance"}]},
            "condition c does not fit the board: emulated-m4f: conditions: governor and",
        ),
    ],
)
def test_a_wrong_file_is_refused_in_one_sentence(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as refused:
        designed(**changes)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"networks": ["net.onnx"]}, "networks[0].model: net.onnx resolves to {out}/secret,"),
        ({"networks": ["linear", "out/secret"]}, "networks[1].model: out/secret resolves to"),
        ({"networks": ["net.py:build"]}, "networks[0].model: net.py resolves to {out}/secret,"),
        ({"boards": ["out/secret"]}, "boards[0].device: out/secret resolves to {out}/secret,"),
        ({"boards": ["board.yaml"]}, "boards[0].device: board.yaml resolves to {out}/secret,"),
        ({"boards": [{"profile": "board.yaml"}]}, "boards[0].profile: board.yaml resolves to"),
    ],
)
def test_a_link_that_leads_out_of_the_directory_is_refused(
    tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    inside.mkdir()
    outside.mkdir()
    (outside / "secret").write_text("root:x:0:0")
    (inside / "out").symlink_to(outside)
    for name in ("net.onnx", "net.py", "board.yaml"):
        (inside / name).symlink_to(outside / "secret")
    with pytest.raises(InputError) as refused:
        designed(inside, **changes)
    message = str(refused.value)
    assert message.startswith(f"campaign tried: {said.format(out=outside)}")
    assert message.endswith("; copy the file into this directory")
    assert "root:x" not in message


def test_a_link_within_the_directory_is_followed(tmp_path: Path) -> None:
    (tmp_path / "lab" / "nets").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "lab")
    (tmp_path / "lab" / "nets" / "first.pt2").write_bytes(b"one")
    (tmp_path / "lab" / "net.pt2").symlink_to("nets/first.pt2")
    (level,) = designed(tmp_path / "link", networks=["net.pt2"]).networks
    assert level.model == str(tmp_path / "lab" / "net.pt2")


def test_links_in_a_circle_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").symlink_to("net.onnx")
    with pytest.raises(InputError, match="cannot be read"):
        designed(tmp_path, networks=["net.onnx"])


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"boards": ["=" * 300]}, "boards[0].device"),
        ({"boards": [{"profile": "=" * 300}]}, "boards[0].profile"),
        ({"networks": ["=" * 300]}, "networks[0].model"),
    ],
)
def test_a_name_that_no_file_can_have_is_refused(
    tmp_path: Path, changes: dict[str, Any], where: str
) -> None:
    with pytest.raises(InputError) as refused:
        designed(tmp_path, **changes)
    said = f"campaign tried: {where}: {'=' * 300}: File name too long"
    assert str(refused.value) == said


def test_a_refusal_has_no_character_that_cannot_be_seen(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"did you mean dscnn\?") as refused:
        designed(tmp_path, networks=["dsc\ufeffnn"])
    assert str(refused.value).isprintable()


@pytest.mark.timeout(600)
def test_what_is_no_regular_file_is_refused_unopened(tmp_path: Path) -> None:
    for name in ("net.onnx", "campaign.yaml", "board.yaml"):
        os.mkfifo(tmp_path / name)
    with pytest.raises(InputError, match=r"net\.onnx: this network cannot be read \(it is a named"):
        designed(tmp_path, networks=["net.onnx"])
    with pytest.raises(InputError, match=r"board\.yaml: cannot be read: it is a named pipe"):
        designed(tmp_path, boards=["board.yaml"])
    with pytest.raises(InputError, match=r"campaign\.yaml: cannot be read: it is a named pipe"):
        open_campaign(str(tmp_path / "campaign.yaml"), Results(tmp_path))


def test_combinations_are_counted_without_being_made() -> None:
    file = validate(
        document(
            boards=["local", {"profile": "m4"}],
            conditions=[{"name": "o2"}, {"name": "o3"}],
            networks=["dscnn", {"model": "linear", "batches": [1, 2, 3]}],
            batches=[1, 8],
            ram_budgets=["100%", "50%"],
            deadlines=["none", "2x"],
            methods=["dtr", "coop"],
        ),
        CampaignFile,
        "tried.yaml",
    )
    assert file.combinations == 3 * 5 * 2 * 2 * 2
    assert len(design_campaign(file, Path(), Results(Path("results"))).cells) == file.combinations


def test_a_bomb_of_aliases_is_refused(tmp_path: Path) -> None:
    layers = [
        "a0: &a0 [x]",
        *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 20)),
    ]
    (tmp_path / "bomb.yaml").write_text("\n".join(["schema: campaign/1", *layers]))
    with pytest.raises(InputError, match="more than 1,000,000 values"):
        read_yaml(tmp_path / "bomb.yaml", CampaignFile)


def test_a_file_of_another_format_is_named(tmp_path: Path) -> None:
    path = tmp_path / "board.yaml"
    path.write_text(yaml.safe_dump({"schema": "device/1", "name": "x"}))
    with pytest.raises(InputError, match="this is a device description"):
        open_campaign(str(path), Results(tmp_path))


def test_an_unknown_name_lists_the_campaigns_that_come_with_the_project(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="did you mean published"):
        open_campaign("publishes", Results(tmp_path))
