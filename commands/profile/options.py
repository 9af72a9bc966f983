"""Options of ``profile``: measure every operation by itself, or some again within a schedule."""

from __future__ import annotations

from argparse import ArgumentError, ArgumentParser, Namespace
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from commands.arguments import (
    add_device,
    add_json,
    add_network,
    add_results,
    add_storage_budget,
    count,
    positive,
    seed,
    selection,
    slices,
)
from devices.operation import Loss
from devices.results import Results
from networks.kinds import Optimizer
from profiler.run.options import ProfileOptions
from solver.requests.request import DEFAULT_MODEL, DEFAULT_OPTIMIZER

if TYPE_CHECKING:
    from devices.quantities import Slices


@dataclass(frozen=True)
class MeasureOptions:
    """Measure each operation of ``models`` by itself.

    ``slices`` are limits of parts, None those of whole layers; without any, layers of a
    microcontroller are in the slices that ``solve`` will offer, and all others are whole.
    ``additivity``: measure the whole training step of the first model too, and watch those of all.
    ``general_s``: seconds of measuring shapes for a model of any network's costs; None for none.
    """

    device: str
    models: tuple[str, ...]
    batch: int | None
    optimizer: Optimizer
    loss: Loss | None
    train: tuple[str, ...] | None
    accumulate: int
    lora: str | None
    slices: tuple[Slices | None, ...]
    measuring: ProfileOptions
    additivity: bool
    general_s: float | None
    dry_run: bool
    out: Path | None
    results: Results


@dataclass(frozen=True)
class RefineOptions:
    """Measure operations again in context; ``run`` is a run's directory, or the report in it."""

    device: str
    run: Path
    dry_run: bool
    out: Path | None
    results: Results


# Defaults of the options for measuring every operation by itself.
_MEASURING: Mapping[str, object] = {
    "model": None,
    "batch": None,
    "loss": None,
    "train": None,
    "accumulate": None,
    "lora": None,
    "slices": None,
    "optimizer": DEFAULT_OPTIMIZER,
    "blocks": ProfileOptions.blocks,
    "seed": ProfileOptions.seed,
    "no_storage": False,
    "storage_budget_mib": ProfileOptions.storage_budget_bytes >> 20,
    "overwrite_raw_flash": False,
    "no_additivity": False,
    "general": None,
}

_GENERAL_MODEL = "resnet8"
"""Network that is measured beside general shapes, unless another is named."""

_GENERAL_MINUTES = 10.0


def options_of(namespace: Namespace) -> MeasureOptions | RefineOptions:
    """Read the options.

    Raises:
        argparse.ArgumentError: ``--refine`` is given with an option that it excludes.
    """
    if namespace.refine is not None:
        if changed := _changed(namespace):
            raise ArgumentError(
                None,
                f"{', '.join(changed)} cannot be used with --refine, which measures the operations"
                " that RUN names, in its schedule; leave out one or the other",
            )
        return RefineOptions(
            device=namespace.device,
            run=namespace.refine,
            dry_run=namespace.dry_run,
            out=namespace.out,
            results=namespace.results,
        )
    return MeasureOptions(
        device=namespace.device,
        models=tuple(
            namespace.model or (DEFAULT_MODEL if namespace.general is None else _GENERAL_MODEL,)
        ),
        batch=namespace.batch,
        optimizer=namespace.optimizer,
        loss=namespace.loss,
        train=selection(namespace),
        accumulate=namespace.accumulate or 1,
        lora=namespace.lora,
        slices=tuple(namespace.slices or ()),
        measuring=ProfileOptions(
            blocks=namespace.blocks,
            seed=namespace.seed,
            storage=not namespace.no_storage,
            storage_budget_bytes=namespace.storage_budget_mib << 20,
            overwrite_raw_flash=namespace.overwrite_raw_flash,
        ),
        additivity=not namespace.no_additivity,
        general_s=None if namespace.general is None else 60.0 * namespace.general,
        dry_run=namespace.dry_run,
        out=namespace.out,
        results=namespace.results,
    )


def _changed(namespace: Namespace) -> list[str]:
    """List the measuring options whose values differ from the defaults."""
    values = vars(namespace)
    changed = [name for name, default in _MEASURING.items() if values[name] != default]
    return [f"--{name.replace('_', '-')}" for name in changed]


def _slices(text: str) -> Slices | None:
    return None if text == "none" else slices(text)


def add_options(parser: ArgumentParser) -> None:
    """Add the options of ``profile``."""
    add_json(parser)
    add_results(parser)
    add_device(parser)
    add_network(parser)
    parser.add_argument(
        "--model",
        action="append",
        metavar="NAME|FILE",
        help="measure the operations of this network: built in, a file *.pt2 or *.onnx, or"
        " net.py:FUNCTION; may be repeated; the additivity check runs the whole training step of"
        f" the first one ({DEFAULT_MODEL})",
    )
    parser.add_argument(
        "--accumulate",
        type=count,
        metavar="N",
        help="take the batch in N equal parts, one after the other, and add their gradients up (1)",
    )
    parser.add_argument(
        "--slices",
        type=_slices,
        action="append",
        metavar="BYTES[:BYTES]|none",
        help="measure the operations on parts of at most so many bytes of a weight, such as 64KiB,"
        " and of an activation (64KiB:16KiB), in place of those on larger weights; none: whole"
        " layers; may be repeated (a microcontroller: whole layers and parts, as solve will use"
        " them in its RAM; others: none)",
    )
    parser.add_argument(
        "--refine",
        type=Path,
        metavar="RUN",
        help="measure again, within the schedule of this run, only the operations that its report"
        " holds responsible for the difference, and update the profile",
    )
    parser.add_argument(
        "--general",
        type=positive,
        nargs="?",
        const=_GENERAL_MINUTES,
        metavar="MINUTES",
        help="also measure shapes of every kind that networks use, so that solve predicts the costs"
        f" of any network; takes so many minutes more ({_GENERAL_MINUTES:g}); an interrupted sweep"
        f" goes on; the network is {_GENERAL_MODEL} unless named",
    )
    parser.add_argument(
        "--blocks",
        type=count,
        help=f"blocks; each measures everything once ({_MEASURING['blocks']})",
    )
    parser.add_argument(
        "--seed", type=seed, help=f"seed of the random order ({_MEASURING['seed']})"
    )
    parser.add_argument(
        "--no-storage", action="store_true", help="do not measure storage; write nothing to it"
    )
    add_storage_budget(parser, "transfers, and as many again by watched steps")
    parser.add_argument(
        "--overwrite-raw-flash",
        action="store_true",
        help="measure on the raw flash partition that the description names; erases its contents",
    )
    parser.add_argument(
        "--no-additivity",
        action="store_true",
        help="run no whole training step: neither check that costs add up, nor measure them in"
        " their places of the step",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="print what would be measured, without touching the board",
    )
    parser.add_argument("--out", type=Path, help="profile to write (results/profiles/DEVICE.yaml)")
    parser.set_defaults(**_MEASURING)
