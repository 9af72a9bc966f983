"""Options of ``run``."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import dataclass
from pathlib import Path

from commands.arguments import (
    add_device,
    add_graph_beside,
    add_json,
    add_results,
    add_updates,
    count,
    positive,
    seed,
)
from devices.results import Results
from networks.rates import RateSchedule


@dataclass(frozen=True)
class RunOptions:
    """Schedule, board and training data.

    ``graph`` is None if the graph's file lies beside the schedule. ``earlier`` is a file with the
    values of an earlier run to go on with; None draws initial values from ``seed``. ``samples`` is
    a file; None generates samples from ``seed``. ``held_out`` is a file of samples to evaluate on,
    if any, ``gradients`` a file to write them to. ``learning_rate``, the highest of
    ``rate_schedule`` (None: constant), is None for the optimizer's own, as are ``momentum`` and
    ``weight_decay``.
    """

    schedule: Path
    device: str
    graph: Path | None
    steps: int
    earlier: Path | None
    samples: Path | None
    held_out: Path | None
    gradients: Path | None
    seed: int
    learning_rate: float | None
    rate_schedule: RateSchedule | None
    momentum: float | None
    weight_decay: float | None
    steps_per_day: float
    dry_run: bool
    out: Path | None
    results: Results

    @classmethod
    def of(cls, namespace: Namespace) -> RunOptions:
        """Options as read from the command line."""
        return cls(
            schedule=namespace.schedule,
            device=namespace.device,
            graph=namespace.graph,
            steps=namespace.steps,
            earlier=namespace.earlier,
            samples=namespace.batches,
            held_out=namespace.evaluate,
            gradients=namespace.save_gradients,
            seed=namespace.seed,
            learning_rate=namespace.learning_rate,
            rate_schedule=namespace.rate_schedule,
            momentum=namespace.momentum,
            weight_decay=namespace.weight_decay,
            steps_per_day=namespace.steps_per_day,
            dry_run=namespace.dry_run,
            out=namespace.out,
            results=namespace.results,
        )


def add_options(parser: ArgumentParser) -> None:
    """Add the options of ``run``."""
    add_json(parser)
    add_results(parser)
    parser.add_argument(
        "--schedule", required=True, type=Path, help="schedule file that solve has written"
    )
    add_device(parser)
    add_graph_beside(parser)
    parser.add_argument("--steps", type=count, default=10, help="training steps (10)")
    parser.add_argument(
        "--from",
        dest="earlier",
        type=Path,
        metavar="FILE",
        help="go on with what an earlier run has trained: its parameters.npz or recovered.npz",
    )
    parser.add_argument(
        "--batches",
        type=Path,
        metavar="FILE",
        help="samples to train on: .npz file with an array for each input (generated samples)",
    )
    parser.add_argument(
        "--evaluate",
        type=Path,
        metavar="FILE",
        help="samples to evaluate on, before and after training, as --batches has them",
    )
    parser.add_argument(
        "--save-gradients",
        type=Path,
        metavar="FILE",
        help="write the gradients of the last step to this file of safetensors",
    )
    parser.add_argument(
        "--seed", type=seed, default=0, help="seed of initial values and generated samples (0)"
    )
    add_updates(parser)
    parser.add_argument(
        "--steps-per-day",
        type=positive,
        default=1000.0,
        metavar="N",
        help="training steps a day, from which the life of the storage is computed (1000)",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="print what would be done, without touching a board",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIRECTORY",
        help="directory of the replay (results/replays/DEVICE-SCHEDULE)",
    )
