"""Options of ``profile``: to measure every operation by itself, or some again within a schedule."""

from __future__ import annotations

from argparse import ArgumentError, ArgumentParser, Namespace
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from commands.arguments import (
    DEFAULT_BATCH,
    DEFAULT_MODEL,
    DEFAULT_OPTIMIZER,
    add_device,
    add_json,
    add_network,
    add_results,
    count,
)
from devices.results import Results
from networks.kinds import Optimizer
from profiler.run.options import ProfileOptions


@dataclass(frozen=True)
class MeasureOptions:
    """The operations of ``models`` are measured, each by itself. With ``additivity`` the whole
    training step of the first one, too."""

    device: str
    models: tuple[str, ...]
    batch: int
    optimizer: Optimizer
    measuring: ProfileOptions
    additivity: bool
    dry_run: bool
    out: Path | None
    results: Results


@dataclass(frozen=True)
class RefineOptions:
    """``run`` is the directory of a run, or the report in it."""

    device: str
    run: Path
    dry_run: bool
    out: Path | None
    results: Results


# Defaults of the options that measure every operation by itself.
_MEASURING: Mapping[str, object] = {
    "model": None,
    "batch": DEFAULT_BATCH,
    "optimizer": DEFAULT_OPTIMIZER,
    "blocks": ProfileOptions.blocks,
    "seed": ProfileOptions.seed,
    "no_storage": False,
    "storage_budget_mib": ProfileOptions.storage_budget_bytes >> 20,
    "overwrite_raw_flash": False,
    "no_additivity": False,
}


def options_of(namespace: Namespace) -> MeasureOptions | RefineOptions:
    """Raises :class:`argparse.ArgumentError` for options of the one beside those of the other."""
    if namespace.refine is not None:
        if changed := _changed(namespace):
            raise ArgumentError(
                None,
                f"profile --refine measures the operations that RUN names, in its schedule:"
                f" {', '.join(changed)} cannot be chosen beside it",
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
        models=tuple(namespace.model or (DEFAULT_MODEL,)),
        batch=namespace.batch,
        optimizer=namespace.optimizer,
        measuring=ProfileOptions(
            blocks=namespace.blocks,
            seed=namespace.seed,
            storage=not namespace.no_storage,
            storage_budget_bytes=namespace.storage_budget_mib << 20,
            overwrite_raw_flash=namespace.overwrite_raw_flash,
        ),
        additivity=not namespace.no_additivity,
        dry_run=namespace.dry_run,
        out=namespace.out,
        results=namespace.results,
    )


def _changed(namespace: Namespace) -> list[str]:
    """Measuring options whose value differs from the default."""
    values = vars(namespace)
    changed = [name for name, default in _MEASURING.items() if values[name] != default]
    return [f"--{name.replace('_', '-')}" for name in changed]


def add_options(parser: ArgumentParser) -> None:
    """Add what ``profile`` understands."""
    add_json(parser)
    add_results(parser)
    add_device(parser)
    add_network(parser)
    parser.add_argument(
        "--model",
        action="append",
        metavar="NAME",
        help="measure the operations of this network; may be repeated; the first one's training"
        f" step is run whole as the additivity check (default: {DEFAULT_MODEL})",
    )
    parser.add_argument(
        "--refine",
        type=Path,
        metavar="RUN",
        help="measure again only the operations that a run holds responsible for being off, among"
        " the others of its schedule, and put that into the profile",
    )
    parser.add_argument(
        "--blocks", type=count, help=f"repetitions of everything ({_MEASURING['blocks']})"
    )
    parser.add_argument("--seed", type=int, help=f"of the random order ({_MEASURING['seed']})")
    parser.add_argument("--no-storage", action="store_true", help="write nothing to storage")
    parser.add_argument(
        "--storage-budget-mib",
        type=count,
        help=f"most MiB written to storage ({_MEASURING['storage_budget_mib']})",
    )
    parser.add_argument(
        "--overwrite-raw-flash",
        action="store_true",
        help="measure on the raw flash partition that the description names, losing what it holds",
    )
    parser.add_argument("--no-additivity", action="store_true", help="run no whole training step")
    parser.add_argument(
        "--dry-run", action="store_true", help="say what would be done; touch nothing"
    )
    parser.add_argument("--out", type=Path, help="default: results/profiles/DEVICE.yaml")
    parser.set_defaults(**_MEASURING)
