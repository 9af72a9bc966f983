"""Costed graphs as files: one sentence reports each contradiction to the format."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from devices.documents.document import DocumentError, read_json
from solver.problem.graph import CostedGraph
from tests.support.documents import write_json
from tests.support.graphs.graph_examples import training_chain, two_layers
from tests.support.graphs.graph_strategies import small_graphs

MADE_BY_NONE = (
    ": list it in the writes of an op, or state its home (ram or storage) if it exists when the"
    " step begins"
)
_VALID: dict[str, Any] = {
    "schema": "costed-graph/1",
    "name": "tiny",
    "ops": [
        {
            "name": "double",
            "kind": "scale.forward",
            "phase": "forward",
            "reads": ["x"],
            "writes": ["y"],
            "time_s": 0.5,
            "energy_j": 2.0,
        },
        {
            "name": "halve",
            "kind": "scale.forward",
            "phase": "forward",
            "reads": ["x", "y"],
            "writes": ["z"],
            "time_s": 0.5,
            "energy_j": 2.0,
            "in_place": {"z": "y"},
        },
    ],
    "tensors": [
        {"name": "x", "bytes": 8, "kind": "input", "home": "ram"},
        {"name": "y", "bytes": 8, "kind": "activation"},
        {"name": "z", "bytes": 8, "kind": "activation", "persist": "ram"},
    ],
}


def _changed(path: str, value: object) -> dict[str, Any]:
    """The valid document with the value at ``path`` (as ``ops.0.reads``) replaced; None removes."""
    document = copy.deepcopy(_VALID)
    *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    place: Any = document
    for part in parents:
        place = place[part]
    if value is None:
        del place[last]
    elif isinstance(place, list) and last == len(place):
        place.append(value)
    else:
        place[last] = value
    return document


def _sentence(tmp_path: Path, document: object) -> str:
    path = tmp_path / "graph.json"
    path.write_text(json.dumps(document))
    with pytest.raises(DocumentError) as refused:
        read_json(path, CostedGraph)
    sentence = str(refused.value)
    assert sentence.startswith(f"{path}: ")
    return sentence.removeprefix(f"{path}: ")


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        pytest.param(
            "ops.0.writes",
            [],
            "tensor 'y' is an activation that no op writes, but op 'halve' reads it" + MADE_BY_NONE,
            id="read but not written",
        ),
        pytest.param(
            "tensors.3",
            {"name": "g", "bytes": 8, "kind": "gradient"},
            "tensor 'g' is a gradient that no op writes" + MADE_BY_NONE,
            id="neither read nor written",
        ),
        pytest.param(
            "ops.1.writes",
            ["z", "y"],
            "tensor 'y' is written by both 'double' and 'halve'",
            id="a tensor is written twice",
        ),
        pytest.param(
            "ops.0.reads",
            ["z"],
            "op 'double' reads 'z' before op 'halve' writes it",
            id="an op reads what is written later",
        ),
        pytest.param(
            "ops.0.reads",
            ["y"],
            "op 'double' reads 'y' before op 'double' writes it",
            id="an op reads what it writes",
        ),
        pytest.param(
            "ops.0.reads",
            ["w"],
            "op 'double' names tensor 'w', which is not listed",
            id="an op reads an unknown tensor",
        ),
        pytest.param(
            "ops.1.writes",
            ["z", "w"],
            "op 'halve' names tensor 'w', which is not listed",
            id="an op writes an unknown tensor",
        ),
        pytest.param(
            "ops.1.in_place",
            {"z": "w"},
            "op 'halve': in_place 'z': 'w' is not a tensor that it writes and one that it reads",
            id="in_place takes over what the op does not read",
        ),
        pytest.param(
            "ops.0.in_place",
            {"z": "x"},
            "op 'double': in_place 'z': 'x' is not a tensor that it writes and one that it reads",
            id="in_place gives to what the op does not write",
        ),
        pytest.param(
            "ops.0.in_place",
            {"y": "x"},
            "op 'halve' reads 'x' after op 'double' wrote over it in place",
            id="an op reads what was written over",
        ),
        pytest.param(
            "tensors.1.persist",
            "ram",
            "tensor 'y' must persist in RAM but op 'halve' writes over it in place",
            id="what is written over must persist",
        ),
        pytest.param(
            "tensors.2.persist",
            "storage",
            "tensor 'z' must persist in storage but has no page_out cost",
            id="what cannot be paged out must persist in storage",
        ),
        pytest.param(
            "tensors.1.home",
            "ram",
            "tensor 'y' has a home but is written by op 'double'",
            id="a written tensor has a home",
        ),
        pytest.param(
            "tensors.0.home",
            "storage",
            "tensor 'x' has its home in storage but has no page_in cost",
            id="what cannot be paged in lives in storage",
        ),
        pytest.param(
            "tensors.3",
            {"name": "y", "bytes": 1, "kind": "activation"},
            "tensor 'y' is listed twice",
            id="two tensors of one name",
        ),
        pytest.param(
            "tensors.0.packed_bytes",
            1 << 20,
            "its 1048576 packed_bytes are more",
            id="a packed tensor is longer",
        ),
        pytest.param(
            "ops.1.name", "double", "op 'double' is listed twice", id="two ops of one name"
        ),
    ],
)
def test_contradiction_in_a_graph_is_reported_in_one_sentence(
    tmp_path: Path, path: str, value: object, sentence: str
) -> None:
    assert sentence in _sentence(tmp_path, _changed(path, value)).split("; ")


def test_tensor_is_overwritten_in_place_at_most_once(tmp_path: Path) -> None:
    document = _changed("ops.1.in_place", {"z": "y", "s": "y"})
    document["ops"][1]["writes"] = ["z", "s"]
    document["tensors"].append({"name": "s", "bytes": 4, "kind": "activation"})
    expected = "op 'halve': in_place reuses the bytes of 'y' twice"
    assert _sentence(tmp_path, document) == expected


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        ("ops.0.colour", "red", "ops[0].colour: unknown key; "),
        ("tensors.2.byte", 8, "tensors[2].byte: unknown key; did you mean bytes? "),
        ("nmae", "tiny", "nmae: unknown key; did you mean name? "),
        ("tensors.0.bytes", -1, "tensors[0].bytes: found -1; allowed: at least 0"),
        ("tensors.0.bytes", 1.5, "tensors[0].bytes: found 1.5; allowed: a whole number"),
        ("tensors.0.bytes", "8", 'tensors[0].bytes: found "8"; allowed: a whole number'),
        ("ops.0.time_s", -0.5, "ops[0].time_s: found -0.5; allowed: at least 0"),
        ("ops.0.energy_j", None, "ops[0].energy_j: missing; this key is required"),
        ("ops.1.workspace_bytes", -4, "ops[1].workspace_bytes: found -4; allowed: at least 0"),
        ("ops", [], "ops: found a list; allowed: a list with at least one item"),
        ("ops.0.phase", "forwards", "ops[0].phase: found 'forwards'; did you mean forward? "),
        ("tensors.0.home", "flash", "tensors[0].home: found 'flash'; allowed: ram, storage"),
        ("tensors.0.page_in", {"time_s": 1.0}, "tensors[0].page_in.energy_j: missing; "),
        ("schema", "costed-graph/2", "schema: found 'costed-graph/2'; "),
    ],
)
def test_a_wrong_key_or_value_is_named_with_its_path(
    tmp_path: Path, path: str, value: object, sentence: str
) -> None:
    told = _sentence(tmp_path, _changed(path, value))
    assert told.startswith(sentence.replace('"', "'"))
    assert "\n" not in told


def test_up_to_five_contradictions_are_reported(tmp_path: Path) -> None:
    document = _changed("ops.0.reads", [f"unknown{k}" for k in range(9)])
    told = _sentence(tmp_path, document).split("; ")
    assert told == [f"op 'double' names tensor 'unknown{k}', which is not listed" for k in range(5)]


def test_missing_optional_fields_have_their_defaults(tmp_path: Path) -> None:
    path = tmp_path / "graph.json"
    path.write_text(json.dumps(_VALID))
    graph = read_json(path, CostedGraph)
    double, halve = graph.ops
    assert double.recomputable
    assert double.workspace_bytes == 0
    assert double.in_place == {}
    assert graph.tensor["x"].page_in is None
    assert graph.energy_source is None
    assert graph.producer == {"y": 0, "z": 1}
    assert graph.readers == {"x": (0, 1), "y": (1,), "z": ()}
    assert halve.in_place == {"z": "y"}


@given(graph=small_graphs())
@settings(max_examples=40, deadline=None, derandomize=True)
def test_graph_is_read_back_unchanged(graph: CostedGraph) -> None:
    text = graph.model_dump_json(by_alias=True, exclude_none=True)
    assert CostedGraph.model_validate_json(text, strict=True) == graph


@pytest.mark.parametrize("graph", [two_layers(), training_chain(6, energy_unit_j=1e-9)])
def test_figures_are_read_back_exactly(tmp_path: Path, graph: CostedGraph) -> None:
    path = write_json(tmp_path / "graph.json", graph)
    assert read_json(path, CostedGraph) == graph


@pytest.mark.parametrize("kind", ["input", "parameter", "optimizer_state"])
def test_a_tensor_that_exists_when_the_step_begins_needs_no_home(tmp_path: Path, kind: str) -> None:
    document = _changed("tensors.0", {"name": "x", "bytes": 8, "kind": kind})
    path = tmp_path / "graph.json"
    path.write_text(json.dumps(document))
    assert read_json(path, CostedGraph).tensor["x"].home is None


@pytest.mark.parametrize("kind", ["activation", "gradient"])
def test_any_tensor_with_a_home_exists_when_the_step_begins(tmp_path: Path, kind: str) -> None:
    document = _changed("tensors.0", {"name": "x", "bytes": 8, "kind": kind, "home": "ram"})
    path = tmp_path / "graph.json"
    path.write_text(json.dumps(document))
    assert read_json(path, CostedGraph).tensor["x"].kind == kind
