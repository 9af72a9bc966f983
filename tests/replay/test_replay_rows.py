"""Embeddings whose table is in storage: a board pages in and changes the rows of its batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pytest
from safetensors.numpy import load

from devices.operation import OpSpec
from devices.plan import ExecutionPlan, RowsIn
from networks.data import Batches, generated_batches
from networks.kinds import Optimizer
from networks.training import StepOp, training_step, with_parameters_in_storage
from networks.training.initial import initial_values
from replay.gradients import gradients_file
from replay.lowering.lowering import lower, unscheduled
from replay.running.measured import ReplayRecord
from replay.running.opening import open_replay
from replay.running.session import ReplaySession
from tests.support.boards.measuring import describe
from tests.support.graphs.schedules import by_rule, costed
from tests.support.networks.training import small_lookups

SEED = 3
STEPS = 5
BATCHES = 3
SCHEDULED, GUARDED, UNSCHEDULED, IN_RAM = range(4)


@dataclass(frozen=True)
class Lookups:
    """A session with the plans of one network, for which ``rows`` has its tables in storage."""

    optimizer: Optimizer
    session: ReplaySession
    batches: Batches

    def run(self, plan: int, *, steps: int = STEPS, gradients: bool = False) -> ReplayRecord:
        step = training_step(small_lookups(), self.optimizer)
        return self.session.run(
            plan,
            initial_values(step, SEED),
            [self.batches.batch(number) for number in range(BATCHES)],
            steps=steps,
            watched=True,
            gradients=gradients,
            expected_step_s=0.01,
        )


@pytest.fixture(scope="module", params=["sgd", "momentum"])
def lookups(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> object:
    in_ram = training_step(small_lookups(), request.param)
    step = with_parameters_in_storage(in_ram)

    def plans(workspace_bytes: Mapping[OpSpec, int]) -> list[ExecutionPlan]:
        graph = costed(step, workspace_bytes)
        schedule = by_rule(graph, 1.05)
        return [
            lower(step, graph, schedule, workspace_bytes),
            lower(step, graph, schedule, workspace_bytes, guarded=True),
            unscheduled(step, workspace_bytes),
            unscheduled(in_ram, workspace_bytes),
        ]

    storage = {"medium": "disk", "path": str(tmp_path_factory.mktemp("s")), "page_bytes": 512}
    specs = tuple(dict.fromkeys((*in_ram.distinct_specs, *step.distinct_specs)))
    session = open_replay(
        describe(storage=storage), specs, plans, lambda _what: None, poll_interval_s=0.02
    )
    with session as opened:
        batches = generated_batches(step, BATCHES * step.batch, SEED)
        yield Lookups(request.param, opened, batches)


def test_generated_indices_name_all_rows_of_the_table() -> None:
    in_ram = training_step(small_lookups(20))
    moved = with_parameters_in_storage(training_step(small_lookups()))
    tokens = generated_batches(moved, 200, SEED).samples["tokens"]
    assert tokens.max() == generated_batches(in_ram, 200, SEED).samples["tokens"].max() == 39


@pytest.mark.parametrize("optimizer", ["sgd", "momentum"])
def test_initial_values_do_not_depend_on_their_home(optimizer: Optimizer) -> None:
    step = training_step(small_lookups(), optimizer)
    here, there = (initial_values(each, SEED) for each in (step, with_parameters_in_storage(step)))
    assert here.keys() == there.keys()
    assert all(here[name].tobytes() == there[name].tobytes() for name in here)


@pytest.mark.slow
@pytest.mark.parametrize("plan", [SCHEDULED, GUARDED])
def test_a_schedule_that_pages_rows_gives_the_same_bits(lookups: Lookups, plan: int) -> None:
    assert any(isinstance(each.does, RowsIn) for each in lookups.session.plans[plan].actions)
    scheduled, reference = lookups.run(plan), lookups.run(UNSCHEDULED)
    assert observed(scheduled) == observed(reference)
    assert scheduled.values.keys() == reference.values.keys()
    for name, value in reference.values.items():
        assert value.tobytes() == scheduled.values[name].tobytes(), name


@pytest.mark.slow
def test_rows_that_no_batch_names_keep_their_initial_values(lookups: Lookups) -> None:
    before = initial_values(training_step(small_lookups(), lookups.optimizer), SEED)["embed.table"]
    after = lookups.run(SCHEDULED).values["embed.table"].reshape(before.shape)
    named = set(
        np.concatenate([lookups.batches.batch(n)["tokens"].ravel() for n in range(BATCHES)])
    )
    changed = {row for row in range(len(before)) if after[row].tobytes() != before[row].tobytes()}
    assert changed
    assert changed <= named
    assert len(named) < len(before)


@pytest.mark.slow
def test_plain_sgd_changes_the_table_as_a_step_with_the_whole_table_in_ram(
    lookups: Lookups,
) -> None:
    if lookups.optimizer == "momentum":
        pytest.skip("the velocity moves rows that no batch names; in storage, they stay")
    scheduled, whole = lookups.run(SCHEDULED), lookups.run(IN_RAM)
    for name, value in whole.values.items():
        assert value.tobytes() == scheduled.values[name].tobytes(), name
    assert scheduled.losses == whole.losses


@pytest.mark.slow
def test_gradients_of_a_table_in_storage_are_those_of_the_whole_table(lookups: Lookups) -> None:
    in_ram = training_step(small_lookups(), lookups.optimizer)
    batch = lookups.batches.batch(0)
    scheduled, whole = (lookups.run(plan, steps=1, gradients=True) for plan in (SCHEDULED, IN_RAM))
    paged = gradients_file(with_parameters_in_storage(in_ram), scheduled.gradients, batch)
    expected = load(gradients_file(in_ram, whole.gradients, batch))
    found = load(paged)
    assert found.keys() == expected.keys() == {op.reads[0] for op in in_ram.ops if is_update(op)}
    for name, gradient in expected.items():
        assert found[name].shape == gradient.shape, name
        np.testing.assert_array_equal(found[name], gradient, err_msg=name)


@pytest.mark.slow
def test_returning_gradients_changes_no_value(lookups: Lookups) -> None:
    with_gradients, without = lookups.run(SCHEDULED, gradients=True), lookups.run(SCHEDULED)
    assert observed(with_gradients) == observed(without)
    assert with_gradients.counters is not None
    assert with_gradients.counters == without.counters


def is_update(op: StepOp) -> bool:
    return op.name.endswith(".update")


def observed(record: ReplayRecord) -> list[dict[tuple[str, str], int]]:
    names = [(probe.tensor, probe.what) for probe in record.plan.probes]
    return [dict(zip(names, step.checksums, strict=True)) for step in record.steps]
