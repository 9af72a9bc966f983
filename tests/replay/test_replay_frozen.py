"""Values in storage that no step changes, on this computer: written once, only read by steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from devices.operation import OpSpec
from devices.plan import ExecutionPlan, PageIn, RowsIn
from networks.data import Batches, generated_batches
from networks.training import (
    Network,
    TrainingStep,
    training_step,
    with_parameters_in_storage,
)
from networks.training.initial import initial_values
from networks.training.selection import select_trained
from profiler.boards.posix import PosixBoard
from profiler.building.store_layout import StoreLayout, store_layout
from replay.expectation import expected_step
from replay.lowering.lowering import lower, unscheduled
from replay.reporting.figures import remade_report
from replay.reporting.report import ReportHead, replay_report
from replay.running.measured import ReplayRecord
from replay.running.opening import open_replay
from replay.running.session import ReplaySession
from tests.support.boards.measuring import describe
from tests.support.boards.sshd import Network as SshNetwork
from tests.support.graphs.schedules import by_rule, costed
from tests.support.networks.training import small_gated, small_lookups

SEED = 3
STEPS = 4
SCHEDULED, GUARDED, UNSCHEDULED = range(3)
STORE = ".joulewright-store"


def lookups_with_a_trained_head() -> Network:
    network = small_lookups()
    select_trained(network, ["head"])
    return network


@dataclass(frozen=True)
class Case:
    step: TrainingStep
    session: ReplaySession
    batches: Batches
    directory: Path

    def run(self, plan: int, seed: int = SEED) -> ReplayRecord:
        return self.session.run(
            plan,
            initial_values(self.step, seed),
            [self.batches.batch(number) for number in range(2)],
            steps=STEPS,
            watched=True,
            expected_step_s=0.01,
        )

    @property
    def layout(self) -> StoreLayout:
        return store_layout(self.session.plans[SCHEDULED], self.session.description.storage)

    def frozen_bytes(self) -> bytes:
        return (self.directory / STORE).read_bytes()[: self.layout.frozen_bytes]


@pytest.fixture(
    scope="module",
    params=[lookups_with_a_trained_head, small_gated],
    ids=["frozen tables", "frozen statistics"],
)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> object:
    step = with_parameters_in_storage(training_step(request.param()))
    directory = tmp_path_factory.mktemp("s")
    with opened(step, directory) as case:
        yield case
    assert not (directory / STORE).exists()


@contextmanager
def opened(step: TrainingStep, directory: Path, **changes: Any) -> Iterator[Case]:
    def plans(workspace_bytes: Mapping[OpSpec, int]) -> list[ExecutionPlan]:
        graph = costed(step, workspace_bytes)
        schedule = by_rule(graph, 1.05)
        return [
            lower(step, graph, schedule, workspace_bytes),
            lower(step, graph, schedule, workspace_bytes, guarded=True),
            unscheduled(step, workspace_bytes),
        ]

    storage = {"medium": "disk", "path": str(directory), "page_bytes": 512}
    description = describe(storage=storage, **changes)
    session = open_replay(
        description, step.distinct_specs, plans, lambda _what: None, poll_interval_s=0.02
    )
    with session as board:
        batches = generated_batches(step, 2 * step.batch, SEED)
        yield Case(step, board, batches, directory)


def observed(record: ReplayRecord) -> list[dict[tuple[str, str], int]]:
    names = [(probe.tensor, probe.what) for probe in record.plan.probes]
    return [dict(zip(names, step.checksums, strict=True)) for step in record.steps]


@pytest.mark.slow
@pytest.mark.parametrize("plan", [SCHEDULED, GUARDED])
def test_a_schedule_that_pages_in_frozen_values_gives_the_same_bits(case: Case, plan: int) -> None:
    paged_in = [each.does for each in case.session.plans[plan].actions]
    assert any(
        isinstance(each, RowsIn) or (isinstance(each, PageIn) and each.of == "frozen")
        for each in paged_in
    )
    scheduled, reference = case.run(plan), case.run(UNSCHEDULED)
    assert observed(scheduled) == observed(reference)
    assert scheduled.values.keys() == reference.values.keys()
    for name, value in reference.values.items():
        assert value.tobytes() == scheduled.values[name].tobytes(), name


@pytest.mark.slow
def test_steps_do_not_write_frozen_values_and_the_next_run_finds_them(case: Case) -> None:
    first = case.run(SCHEDULED)
    assert first.counters is not None
    assert first.counters.bytes_out == STEPS * case.layout.written_bytes
    frozen = case.frozen_bytes()
    again = case.run(SCHEDULED)
    assert again.counters == first.counters
    assert case.frozen_bytes() == frozen
    other = case.run(SCHEDULED, SEED + 1)
    assert other.counters == first.counters
    assert observed(other) == observed(case.run(UNSCHEDULED, SEED + 1))


@pytest.mark.slow
def test_a_run_writes_frozen_values_again_that_something_has_overwritten(case: Case) -> None:
    first = case.run(SCHEDULED)
    frozen, layout = case.frozen_bytes(), case.layout
    places = [*layout.frozen_offsets, *layout.table_offsets]
    assert places
    for place in places:
        with (case.directory / STORE).open("r+b") as store:
            store.seek(place)
            store.write(bytes([frozen[place] ^ 1]))
        assert observed(case.run(SCHEDULED)) == observed(first)
        assert case.frozen_bytes() == frozen


@pytest.mark.slow
def test_values_reach_the_board_once_for_all_plans(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = case.session.board
    assert isinstance(board, PosixBoard)
    case.run(SCHEDULED)
    put, names = board.transport.put, []

    def counted(local: Path, remote: str, **options: Any) -> None:
        names.append(remote)
        put(local, remote, **options)

    monkeypatch.setattr(board.transport, "put", counted)
    for plan in (SCHEDULED, GUARDED, UNSCHEDULED):
        case.run(plan)
    assert "data" not in names
    case.run(SCHEDULED, SEED + 2)
    assert names.count("data") == 1


@pytest.mark.slow
def test_a_board_reached_over_ssh_gives_the_same_bits(
    network: SshNetwork, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    step = with_parameters_in_storage(training_step(lookups_with_a_trained_head()))
    reached = network.description().model_dump(mode="json")
    with opened(step, Path("~/joulewright-storage"), transport=reached) as case:
        scheduled, reference = case.run(SCHEDULED), case.run(UNSCHEDULED)
        assert observed(scheduled) == observed(reference)
        again = case.run(SCHEDULED)
        assert again.counters == scheduled.counters


@pytest.mark.slow
@pytest.mark.parametrize("network", [small_lookups, lookups_with_a_trained_head])
def test_the_traffic_of_rows_follows_from_the_report_and_its_schedule(
    network: Callable[[], Network], tmp_path: Path
) -> None:
    step = with_parameters_in_storage(training_step(network()))
    with opened(step, tmp_path) as case:
        record, plan = case.run(SCHEDULED), case.session.plans[SCHEDULED]
        measured = case.session.measured(record)
        workspace_bytes = case.session.board.workspace_bytes(step.distinct_specs)
        storage = case.session.description.storage
    graph = costed(step, workspace_bytes)
    schedule = by_rule(graph, 1.05)
    head = ReportHead(device="bench", schedule="s.json", origin={}, storage=storage)
    expected = expected_step(graph, schedule)
    report = replay_report(head, expected, plan, measured, (), steps_per_day=1000)
    assert report.storage is not None
    assert report.storage.row_bytes == {"embed.table": 10 * 512}
    assert report.storage.read_bytes.measured <= report.storage.read_bytes.predicted
    _, wrong = remade_report(report, graph, schedule)
    assert not [sentence for sentence in wrong if "storage" in sentence]
