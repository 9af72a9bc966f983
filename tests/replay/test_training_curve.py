"""Training in 40 % of its peak memory follows the loss curve of PyTorch."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from devices.operation import OpSpec
from devices.plan import ExecutionPlan, PageIn
from devices.published import load_published
from networks.data import generated_batches
from networks.models import build_model
from networks.training.initial import initial_values
from replay.lowering.lowering import lower
from replay.running.measured import ReplayRecord
from replay.running.opening import open_replay
from solver.constructed import keep_everything
from solver.constructed.greedy import greedy_schedule
from solver.costing.costing import cost_graph
from solver.options import SolverOptions
from solver.problem.graph import CostedGraph
from solver.problem.problem import Problem
from solver.problem.schedule import Budget
from solver.referee.referee import replay
from solver.solving.solving import solve_graph
from tests.support.boards.measuring import describe
from tests.support.networks.references import CURVE, CURVE_STEPS, SAMPLES, recorded_curve

STEP = build_model(*CURVE)

BUDGET, SOUGHT = 0.4, 0.36
"""Shares of the peak with everything kept: the budget, and the smaller one of the search, which
leaves room for packing."""

TOLERANCE = 0.005
"""Relative tolerance of the loss. Our curve differs from PyTorch's by 0.0007, PyTorch's in float32
from that in float64 by 0.0019; a learning rate that is 1 % off causes 0.012."""


def scheduled(workspace_bytes: Mapping[OpSpec, int]) -> ExecutionPlan:
    """The plan of a step scheduled at published rates of a board where paging and recomputing pay.

    The solver's first schedule, by rule, is accepted, so that every run of this test has the same
    one; its cost does not matter here.
    """
    graph = with_workspace(cost_graph(STEP, load_published("jetsontx2")).graph, workspace_bytes)
    peak_bytes = replay(graph, keep_everything(graph)).peak_bytes
    sought = Problem(graph, Budget(ram_bytes=int(SOUGHT * peak_bytes)))
    first = greedy_schedule(sought, thorough=False)
    assert first is not None
    schedule = solve_graph(
        graph, Budget(ram_bytes=int(BUDGET * peak_bytes)), SolverOptions(gap=1.0), starts=[first]
    )
    plan = lower(STEP, graph, schedule, workspace_bytes)
    assert plan.arena_bytes <= BUDGET * peak_bytes
    return plan


def with_workspace(graph: CostedGraph, workspace_bytes: Mapping[OpSpec, int]) -> CostedGraph:
    """The graph with the workspace of this computer's kernels, not of the published profile."""
    ops = tuple(
        op.model_copy(update={"workspace_bytes": workspace_bytes[each.spec]})
        for op, each in zip(graph.ops, STEP.ops, strict=True)
    )
    return graph.model_copy(update={"ops": ops})


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> ReplayRecord:
    batches = generated_batches(STEP, SAMPLES, seed=0)
    description = describe(
        toolchain={
            "kind": "native",
            "compiler": "cc",
            "flags": ["-O3", "-march=native"],
            "matmul": "in-tree",
        },
        storage={"medium": "disk", "path": str(tmp_path_factory.mktemp("storage"))},
    )
    with open_replay(
        description, STEP.distinct_specs, lambda needed: [scheduled(needed)], lambda _what: None
    ) as session:
        return session.run(
            0,
            initial_values(STEP, seed=0),
            [batches.batch(index) for index in range(SAMPLES // STEP.batch)],
            steps=CURVE_STEPS,
            watched=False,
            expected_step_s=0.1,
        )


@pytest.mark.slow
def test_the_loss_curve_matches_pytorchs(record: ReplayRecord) -> None:
    np.testing.assert_allclose(record.losses, recorded_curve(), rtol=TOLERANCE)
    assert np.mean(record.losses[-20:]) < 0.4 * np.mean(record.losses[:5])


@pytest.mark.slow
def test_the_trained_plan_recomputes_and_pages(record: ReplayRecord) -> None:
    computed = [compute.op for compute in record.plan.computes]
    assert len(computed) > len(STEP.ops) == len(set(computed))
    assert any(isinstance(action.does, PageIn) for action in record.plan.actions)
    assert record.counters is not None
    assert record.counters.steps == CURVE_STEPS
    assert record.counters.touched_bytes <= record.plan.arena_bytes
