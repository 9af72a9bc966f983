"""Directory of a run: its schedule, graph and report, and the trained values."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import save_file

from devices.documents.document import dump_json, read_json, write_atomically
from devices.errors import InputError
from devices.replay import ReplayReport
from networks.training.slicing import joined
from networks.training.step import Adapter, NetworkFile, TrainingStep
from replay.earlier import values_file
from replay.reporting.figures import remade_report
from replay.running.failure import Trained
from solver.files.solved import read_solved
from solver.problem.graph import CostedGraph
from solver.problem.schedule import Schedule

REPORT, SCHEDULE, GRAPH, VALUES = "replay.json", "schedule.json", "graph.json", "parameters.npz"

WEIGHTS = "trained.safetensors"
"""Name of the file with all weights of a network that was read from a file."""

MODEL = "trained.onnx"
"""Name of the copy of a network's ONNX file with the trained weights."""

RECOVERED = "recovered.npz"
"""Name of the file with the values of the last complete step of a run that has no report: one that
failed or was interrupted."""


@dataclass(frozen=True)
class StoredRun:
    """A finished run: the contents of its ``directory``."""

    directory: Path
    report: ReplayReport
    schedule: Schedule
    graph: CostedGraph

    @classmethod
    def read(cls, path: Path) -> StoredRun:
        """Read a run, and check every figure that its schedule and its report state.

        Args:
            path: the run's directory, or the report in it.

        Raises:
            DocumentError: a file is missing or invalid.
            InputError: a file states a figure that does not follow from the others.
        """
        directory = path.parent if path.is_file() else path
        stated = read_json(directory / REPORT, ReplayReport)
        graph, schedule = read_solved(directory / SCHEDULE, directory / GRAPH)
        if not schedule.actions:
            raise InputError(f"{directory / SCHEDULE}: this file has no actions, so it was not run")
        report, wrong = remade_report(stated, graph, schedule)
        for sentence in wrong:
            raise InputError(f"{directory / REPORT}: {sentence}")
        return cls(directory, report, schedule, graph)

    def write(self, values: Mapping[str, NDArray[np.float32]], step: TrainingStep) -> None:
        """Write the run's files into ``directory``, in place of those of an earlier run there.

        The report is written last: a directory with one has all the files of one run.

        Args:
            values: the trained values by tensor, flat; parts are put together.
            step: the training step; a network that came from a file gets its weights back.

        Raises:
            OSError: a file cannot be written.
        """
        values = joined(step, values)
        (self.directory / REPORT).unlink(missing_ok=True)
        for name, document in ((SCHEDULE, self.schedule), (GRAPH, self.graph)):
            write_atomically(self.directory / name, dump_json(document))
        steps = (self.report.steps_before or 0) + self.report.all_steps
        write_atomically(self.directory / VALUES, values_file(Trained(steps, values)))
        # Only now: the run may have begun with these values.
        (self.directory / RECOVERED).unlink(missing_ok=True)
        if step.file is not None:
            weights = _weights(step.file, step.adapters, values, steps)
            write_atomically(self.directory / WEIGHTS, partial(_save, weights))
            if has_trained_model(step):
                assert step.file.save is not None, "has_trained_model has looked"
                write_atomically(self.directory / MODEL, partial(step.file.save, weights))
        write_atomically(self.directory / REPORT, dump_json(self.report))

    @property
    def costs_s(self) -> dict[str, float]:
        """Seconds of each operation, by cost key, that the schedule was solved with."""
        return {op.cost_key: op.time_s for op in self.graph.ops if op.cost_key is not None}


def has_trained_model(step: TrainingStep) -> bool:
    """Whether a run writes the network's file again; its graph has no place for adapters."""
    return step.file is not None and step.file.save is not None and not step.adapters


def read_report_of(directory: Path, graph: CostedGraph, schedule: Schedule) -> ReplayReport:
    """Read the report of a run of this schedule.

    Args:
        directory: the run's directory.
        graph: the schedule's graph.
        schedule: the schedule that the run must be of.

    Raises:
        InputError: the run is of another graph or schedule, or states a wrong figure.
    """
    run = StoredRun.read(directory)
    if run.graph.name != graph.name:
        raise InputError(f"{directory}: is a run of {run.graph.name}, not of {graph.name}")
    if run.graph != graph:
        raise InputError(f"{directory}: is a run with other costs of {graph.name}")
    if run.schedule.actions != schedule.actions:
        raise InputError(f"{directory}: is a run of another schedule of {graph.name}")
    return run.report


def keep_recovered(directory: Path, recovered: Trained, step: TrainingStep) -> None:
    """Write the values of the last complete step of a run without report. Raises
    :class:`OSError`."""
    whole = Trained(recovered.step, joined(step, recovered.values))
    write_atomically(directory / RECOVERED, values_file(whole))


def _weights(
    network: NetworkFile,
    adapters: Iterable[Adapter],
    values: Mapping[str, NDArray[np.float32]],
    steps: int,
) -> dict[str, NDArray[Any]]:
    """All parameters and buffers of a network's file after training, and those of its adapters."""
    arrays = {}
    for name, before in network.values.items():
        trained = values.get(network.tensor_of[name])
        arrays[name] = before if trained is None else trained.reshape(before.shape)
    for adapter in adapters:
        arrays[adapter.name] = values[adapter.name].reshape(adapter.shape)
    for name in network.counters:
        arrays[name] = np.asarray(arrays[name] + steps)
    return arrays if network.restored is None else network.restored(arrays)


def _save(arrays: dict[str, NDArray[Any]], path: Path) -> None:
    try:
        save_file(arrays, path)
    except SafetensorError as error:
        raise OSError(errno.EIO, str(error)) from error
