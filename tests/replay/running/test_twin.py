"""Twins of microcontrollers on this computer: several at the same time."""

from __future__ import annotations

import fcntl
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from devices.description import load_description
from devices.operation import OpSpec
from devices.plan import ExecutionPlan
from networks.data import generated_batches
from networks.training import training_step
from replay.lowering.lowering import lower
from replay.running.opening import open_replay
from replay.running.twin import host_twin, paging_twin
from replay.runs import Subject, Training, _Runs
from tests.support.graphs.schedules import by_rule, costed
from tests.support.networks.training import small_convolutional
from tests.support.progress import ignore

BOARD = "emulated-m3-sd"
STORE = ".joulewright-store"


def test_each_twin_has_a_directory_that_ends_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    description = load_description(BOARD)
    with paging_twin(description) as one, paging_twin(description) as other:
        directories = [
            Path(twin.storage.path)
            for twin in (one, other)
            if twin.storage is not None and twin.storage.path is not None
        ]
        assert len(set(directories)) == 2
        for directory in directories:
            assert directory.parent == tmp_path / ".cache" / "joulewright"
            (directory / STORE).touch()
        assert one.toolchain == host_twin(description).toolchain
    assert not any(directory.exists() for directory in directories)


@pytest.mark.slow
def test_a_twin_pages_while_another_replay_on_this_computer_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This computer's own store is locked all the time, as by another replay."""
    monkeypatch.setenv("HOME", str(tmp_path))
    store = tmp_path / ".cache" / "joulewright" / STORE
    store.parent.mkdir(parents=True)
    step, description = training_step(small_convolutional(1)), load_description(BOARD)
    training = Training(generated_batches(step, 2, 1), steps=2, seed=1)
    found: list[_Runs] = []

    def plans(workspace_bytes: Mapping[OpSpec, int]) -> Sequence[ExecutionPlan]:
        graph = costed(step, workspace_bytes)
        subject = Subject(description, step, graph, by_rule(graph, 1.1))
        found.append(_Runs(subject, training, 0.01, ignore, lambda _: None))
        return [lower(step, graph, subject.schedule, workspace_bytes)]

    with store.open("w") as locked:
        fcntl.flock(locked, fcntl.LOCK_EX)
        with (
            paging_twin(description) as twin,
            open_replay(twin, step.distinct_specs, plans, ignore, alone=False) as session,
        ):
            assert session.plans[0].pages
            (runs,) = found
            watched = runs.run(session, 0, "the schedule", watched=True)
        checks, _ = runs.against_this_computer(watched)
    assert [check.steps for check in checks] == [2, 2]
    assert not any(check.differing for check in checks)
    assert not any(store.parent.glob("twin.*"))
