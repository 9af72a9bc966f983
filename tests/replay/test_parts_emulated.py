"""Networks that emulated microcontrollers train in slices, or with their tables in storage.

Values are those of the unscheduled step on this computer.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from devices.description import load_description
from devices.operation import OpSpec
from devices.plan import ExecutionPlan, RowsIn
from devices.quantities import Slices
from networks.data import generated_batches
from networks.models import build_model
from networks.training import (
    TrainingStep,
    training_step,
    with_parameters_in_storage,
)
from networks.training.initial import initial_values
from networks.training.selection import select_trained
from networks.training.slicing import joined, sliced
from profiler.building.plan_memory import firmware_ram_bytes
from profiler.building.store_layout import store_layout
from replay.lowering.lowering import lower, reference, unscheduled
from replay.running.measured import ReplayRecord
from replay.running.opening import open_replay
from replay.running.session import ReplaySession
from replay.running.twin import host_twin
from tests.support.graphs.schedules import by_rule, costed
from tests.support.networks.training import small_lookups
from tests.support.progress import ignore

pytestmark = [
    pytest.mark.emulated,
    pytest.mark.slow,
    pytest.mark.usefixtures("own_boards"),
]

SEED = 7


# --- slices ---------------------------------------------------------------------------------------


@pytest.mark.timeout(2400)
def test_a_published_network_trains_in_slices_on_a_board_of_64_kib() -> None:
    """Every value is that of the unscheduled step of whole layers, which takes 14 times the RAM."""
    whole = build_model("resnet8", parameters_in="storage")
    step = sliced(whole, Slices(8 << 10, 8 << 10))
    specs = list(dict.fromkeys((*step.distinct_specs, *whole.distinct_specs)))
    data = generated_batches(step, samples=1, seed=SEED)
    parts = initial_values(step, SEED)
    initial = {**parts, **joined(step, parts)}

    def plans(workspace_bytes: Mapping[OpSpec, int]) -> list[ExecutionPlan]:
        graph = costed(step, workspace_bytes)
        return [lower(step, graph, by_rule(graph, 1.1), workspace_bytes)]

    def free(workspace_bytes: Mapping[OpSpec, int]) -> list[ExecutionPlan]:
        return [reference(step, whole, workspace_bytes)]

    def run(session: ReplaySession) -> ReplayRecord:
        return session.run(0, initial, [data.batch(0)], steps=1, watched=True, expected_step_s=60.0)

    description = load_description("emulated-m3-sd")
    memory = description.memory
    assert memory is not None
    assert memory.ram_bytes == 64 << 10
    with open_replay(description, specs, plans, ignore) as session:
        plan = session.plans[0]
        records_bytes = firmware_ram_bytes(plan, 512)
        assert plan.arena_bytes + records_bytes <= memory.usable_bytes
        assert session.facts.available_bytes >= memory.usable_bytes - records_bytes
        on_board = run(session)
    with open_replay(host_twin(description), specs, free, ignore) as session:
        here = run(session)
        assert session.plans[0].arena_bytes > 14 * memory.ram_bytes
    values = [
        {
            (probe.what, probe.tensor): sum_
            for probe, sum_ in zip(record.plan.probes, record.steps[0].checksums, strict=True)
        }
        for record in (on_board, here)
    ]
    assert len(values[0]) == len(on_board.plan.probes)
    assert values[0] == values[1]


# --- tables in storage ----------------------------------------------------------------------------


def trained_head() -> TrainingStep:
    """The last layer is trained; the tables and their rows stay as they are."""
    network = small_lookups()
    select_trained(network, ["head"])
    return training_step(network)


@pytest.mark.parametrize(
    ("device", "in_ram"),
    [
        ("emulated-m3-sd", training_step(small_lookups(), "momentum")),
        ("emulated-m4f-psram", training_step(small_lookups(), "momentum")),
        ("emulated-m4f-sd", training_step(small_lookups(), "momentum")),
        ("emulated-m3-sd", trained_head()),
        ("emulated-m0-flash", trained_head()),
    ],
    ids=[
        "changed rows on a card",
        "changed rows in external RAM",
        "changed rows on a card wired to a board without a slot",
        "frozen rows on a card",
        "frozen rows in flash",
    ],
)
def test_a_microcontroller_pages_the_rows_of_its_batch(device: str, in_ram: TrainingStep) -> None:
    """A second run uses the frozen values that the first one has left in storage."""
    step = with_parameters_in_storage(in_ram)

    def plans(workspace_bytes: Mapping[OpSpec, int]) -> list[ExecutionPlan]:
        graph = costed(step, workspace_bytes)
        return [lower(step, graph, by_rule(graph, 1.05), workspace_bytes)]

    def both(workspace_bytes: Mapping[OpSpec, int]) -> list[ExecutionPlan]:
        return [*plans(workspace_bytes), unscheduled(step, workspace_bytes)]

    def run(session: ReplaySession, plan: int) -> ReplayRecord:
        data = generated_batches(step, samples=2 * step.batch, seed=SEED)
        return session.run(
            plan,
            initial_values(step, SEED),
            [data.batch(0), data.batch(1)],
            steps=3,
            watched=True,
            expected_step_s=10.0,
        )

    description = load_description(device)
    with open_replay(description, step.distinct_specs, plans, ignore) as session:
        on_board, again = run(session, 0), run(session, 0)
    with open_replay(host_twin(description), step.distinct_specs, both, ignore) as session:
        here, free = run(session, 0), run(session, 1)
    assert any(isinstance(action.does, RowsIn) for action in on_board.plan.actions)
    for record in (on_board, again):
        assert [each.checksums for each in record.steps] == [each.checksums for each in here.steps]
        layout = store_layout(record.plan, description.storage)
        assert record.counters is not None
        assert record.counters.bytes_out <= 3 * layout.written_bytes
    for name, value in free.values.items():
        assert value.tobytes() == on_board.values[name].tobytes(), name
