"""Graphs of the benchmarks: POET's agree with the published instances, others with their names."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.solver.graphs import (
    FAMILIES,
    POET_MODELS,
    graph_of_name,
    own_resnet,
)
from benchmarks.solver.layered_graphs import layered
from devices.documents.document import read_json
from solver.constructed import keep_everything
from solver.problem.graph import CostedGraph, Op, PageCost, Tensor
from solver.referee.referee import replay
from tests.support.paths import ROOT

INSTANCES = {
    "poet-linear-m0": "poet-linear-m0",
    "poet-transformer-m4": "poet-transformer-m4",
    "poet-resnet18_cifar-m4": "poet-resnet18-cifar-m4",
    "poet-vgg16_cifar-m4": "poet-vgg16-cifar-m4",
    "poet-vgg16_cifar-a72": "poet-vgg16-cifar-a72",
}


def page_costs(tensor: Tensor) -> list[float]:
    costs = (tensor.page_out, tensor.page_in)
    assert all(isinstance(cost, PageCost) for cost in costs)
    return [value for cost in costs if cost for value in (cost.time_s, cost.energy_j)]


def same_op(mine: Op, published: Op) -> bool:
    return (
        (mine.kind, mine.phase, set(mine.reads), mine.writes, mine.workspace_bytes)
        == (
            published.kind,
            published.phase,
            set(published.reads),
            published.writes,
            published.workspace_bytes,
        )
        and mine.time_s == pytest.approx(published.time_s, rel=1e-12)
        and mine.energy_j == pytest.approx(published.energy_j, rel=1e-12)
    )


@pytest.mark.parametrize("name", INSTANCES)
def test_poet_graphs_agree_with_the_published_instances(name: str) -> None:
    mine = graph_of_name(name)
    path = ROOT / "benchmarks" / "instances" / f"{INSTANCES[name]}.json"
    published = read_json(path, CostedGraph)
    published_ops = {op.name: op for op in published.ops}
    assert {op.name for op in mine.ops} == published_ops.keys()
    for op in mine.ops:
        assert same_op(op, published_ops[op.name]), op.name
    for tensor in mine.tensors:
        other = published.tensor[tensor.name]
        assert (tensor.bytes, tensor.kind) == (other.bytes, other.kind), tensor.name
        assert page_costs(tensor) == pytest.approx(page_costs(other), rel=1e-12), tensor.name


@pytest.mark.parametrize("name", INSTANCES)
def test_poet_graphs_keep_the_published_order_but_for_ties(name: str) -> None:
    """Ops at the same distance from the end have no defined order in the published instances."""
    path = ROOT / "benchmarks" / "instances" / f"{INSTANCES[name]}.json"
    mine, published = graph_of_name(name), read_json(path, CostedGraph)
    distance = _distances_to_the_end(mine)
    assert [distance[op.name] for op in mine.ops] == [distance[op.name] for op in published.ops]


def _distances_to_the_end(graph: CostedGraph) -> dict[str, int]:
    distance = {op.name: 0 for op in graph.ops}
    for op in reversed(graph.ops):
        for name in op.reads:
            producer = graph.ops[graph.producer[name]].name
            distance[producer] = max(distance[producer], distance[op.name] + 1)
    return distance


def test_bert_is_twelve_published_transformer_blocks() -> None:
    one, twelve = graph_of_name("poet-transformer-m4"), graph_of_name("poet-bert-m4")
    assert len(twelve.ops) == 195

    def forward_j(graph: CostedGraph) -> list[float]:
        return [op.energy_j for op in graph.ops if op.phase == "forward"]

    source, *block, loss = forward_j(one)
    assert forward_j(twelve) == [source, *block * 12, loss]
    bytes_of = [one.tensor[op.writes[0]].bytes for op in one.ops if op.phase == "forward"]
    bytes_twelve = [twelve.tensor[op.writes[0]].bytes for op in twelve.ops if op.phase == "forward"]
    assert bytes_twelve == [bytes_of[0], *bytes_of[1:-1] * 12, bytes_of[-1]]


def test_resnet50_has_the_published_layers() -> None:
    graph = graph_of_name("poet-resnet50-a72")
    kinds = Counter(op.kind for op in graph.ops)
    assert len(graph.ops) == 335
    assert kinds["GradientLayer"] == 167
    assert kinds["SkipAddLayer"] == 16
    assert kinds["Conv2dLayer"] == kinds["BatchNorm2d"] == 49
    last_block = [graph.tensor[op.writes[0]].bytes for op in graph.ops if op.kind == "SkipAddLayer"]
    assert last_block[0] == 4 * 256 * 55 * 55
    assert last_block[-1] == 4 * 2048 * 7 * 7


@pytest.mark.parametrize("board", ["m0", "m4", "a72"])
@pytest.mark.parametrize("model", POET_MODELS)
def test_every_published_graph_has_a_step_on_every_published_board(model: str, board: str) -> None:
    graph = graph_of_name(f"poet-{model}-{board}")
    kept = replay(graph, keep_everything(graph))
    assert kept.energy_j == pytest.approx(math.fsum(op.energy_j for op in graph.ops))
    assert all(tensor.page_out and tensor.page_in for tensor in graph.tensors)


def test_own_graphs_have_positive_costs_and_the_largest_encoder_has_about_2500_ops() -> None:
    graph = graph_of_name(FAMILIES["encoder"][-1])
    assert 2450 <= len(graph.ops) <= 2550
    assert all(op.energy_j > 0 for op in graph.ops)
    assert all(tensor.page_out and tensor.page_in for tensor in graph.tensors)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_graphs_of_a_family_grow(family: str) -> None:
    sizes = [len(graph_of_name(name).ops) for name in FAMILIES[family]]
    assert all(larger > 1.2 * smaller for smaller, larger in pairwise(sizes))


def test_residual_networks_have_the_layers_of_their_name() -> None:
    graph = own_resnet(20, "m4")
    convolutions = [op for op in graph.ops if op.kind == "conv2d.forward"]
    projections = [op for op in convolutions if op.name.endswith("shortcut.forward")]
    assert len(convolutions) - len(projections) + 1 == 20
    with pytest.raises(ValueError, match="21 layers"):
        own_resnet(21, "m4")


@settings(max_examples=60, deadline=None)
@given(ops=st.integers(4, 400), seed=st.integers(0, 10**6))
def test_layered_graphs_are_connected_from_source_to_sink(ops: int, seed: int) -> None:
    graph = layered(ops, seed)
    assert len(graph.ops) == ops
    assert [op.name for op in graph.ops if not op.reads] == ["op0"]
    unread = [tensor.name for tensor in graph.tensors if not graph.readers[tensor.name]]
    assert unread == [f"t{ops - 1}"]
    assert all(op.time_s == int(op.time_s) == op.energy_j for op in graph.ops)
    assert all(tensor.bytes >= 10 and tensor.page_out is None for tensor in graph.tensors)


def test_layered_graphs_follow_from_their_seed() -> None:
    assert layered(100, 3) == layered(100, 3)
    assert layered(100, 3).ops != layered(100, 4).ops


@pytest.mark.parametrize("ops", [100, 500])
def test_layered_graphs_are_as_irregular_as_the_published_ones(ops: int) -> None:
    """Published graphs have 2.4 reads per op at 100 ops and 4.9 at 500.

    Their longest read spans more than half of all ops.
    """
    graphs = [layered(ops, seed) for seed in range(10)]
    reads = sum(len(op.reads) for graph in graphs for op in graph.ops) / (10 * ops)
    assert {100: 2.0, 500: 4.0}[ops] < reads < {100: 3.5, 500: 6.0}[ops]
    for graph in graphs:
        spans = [k - graph.producer[name] for k, op in enumerate(graph.ops) for name in op.reads]
        assert max(spans) > ops / 2


@pytest.mark.parametrize(
    "name", ["poet-bert-m5", "bert-m4", "encoder-0-m4", "layered-100", "resnet-x-m4", ""]
)
def test_unknown_graph_name_is_refused_with_the_list(name: str) -> None:
    with pytest.raises(ValueError, match=r"no graph is named .*layered-OPS-SEED"):
        graph_of_name(name)


def test_a_graph_is_exported_by_name(tmp_path: Path) -> None:
    out = tmp_path / "graph.json"
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.solver.graphs", "layered-100-0", "--out", str(out)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "100 ops" in done.stdout
    assert json.loads(out.read_text())["name"] == "layered/100-0"
    assert read_json(out, CostedGraph) == layered(100, 0)
