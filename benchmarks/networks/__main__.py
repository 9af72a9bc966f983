"""Networks of PyTorch: imported, profiled, scheduled and run on this computer.

    python -m benchmarks.networks [--only NAME …] [--limit SECONDS] [--record FOLDER]
        [--write docs/benchmarks/networks.md]

Needs PyTorch. Networks of torchvision, timm and transformers are left out if the library is
missing. Ctrl-C ends the run; the page then has the networks that were measured before. With
``--record``, another run with the same limit measures only the others.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import torch

from benchmarks.machine import machine, package_version, release, solver_versions
from benchmarks.networks.cases import BATCH, Case, cases
from benchmarks.networks.commands import CommandFailed
from benchmarks.networks.measuring import (
    FACTORS,
    SHARE,
    STEPS,
    Origin,
    Row,
    difference_from_built_in,
    measure,
)
from benchmarks.pages import Page, Table
from benchmarks.publish import command_line, publish, report_progress
from devices.documents.readable import size
from devices.errors import JoulewrightError

_LIBRARIES = ("torchvision", "timm", "transformers")
_VALUES = {True: "identical", False: "NOT IDENTICAL", None: "not compared"}
_INTERRUPTED = "the run was ended before"

_TEXT = f"""
Each network is a PyTorch module, batch {BATCH} (MLPerf Tiny's autoencoder: 8), written by
`torch.export`. The commands `profile` (one block, on this computer), `solve` (at most
{{limit:g}} s) and `run` take it from there. Images have 64 × 64 pixels unless the network fixes
another size.
Dropout is 0, so that both sides compute the same; parameters and inputs are random.{{earlier}}
"""

_EARLIER = """

{count} of the {rows} networks were measured by earlier runs of this command; `--record` has kept
their rows. Under *Origins* is what measured which; the last section is of the last run."""

_SCHEDULE_TEXT = f"""
The budget is {100 * SHARE:.0f} % of the peak of the step without a budget and with parameters in
RAM. Where all parameters in RAM leave no schedule for it, they are in storage, and where whole
layers leave none either, layers are in slices, as `solve` may cut them by itself. The budget is
marked with a star if there was none then: it is the first of {", ".join(map(str, FACTORS))} times
the smallest budget that `solve` names, and the peak, for which one was found.
*In* is where parameters are between steps. *Least* is the sum of what is in RAM when the step
begins, or that of the largest operation; no schedule of these operations needs less. *Extra
energy* is relative to computing every operation once; energy is estimated, nominal power × time,
and never measured here.
*Gap* is the distance from the energy that is proven to be the least. *Import* is reading the file
and deriving the backward pass; *solve* is the whole command. *Load* is the machine's load average
over one minute.
"""

_VALUES_TEXT = f"""
The scheduled step is run {STEPS} times on the same samples with SGD. *Values* are identical if the
checksums of loss, gradients and parameters equal those of the unscheduled step, after each step
(of the GRU in slices: those of the unscheduled step whose recurrent layer is unrolled likewise),
and not compared if that step does not fit.
*Gradients* is the largest relative norm, over all parameters, of the first step's difference from
PyTorch in float64; beside it the same of PyTorch in float32. *Losses* is the largest relative
difference of a loss from PyTorch's (float32, eager) over all steps; beside it the same of
PyTorch in float32 from PyTorch in float64. Batch norm of few numbers enlarges rounding errors, step
by step. The gradient of a bias before batch norm is zero; with such
biases, as in MLPerf Tiny, *gradients* is their rounding error on both sides.
"""

_WORK_TEXT = """
*Peak* is that of our step without a budget, without parameters. *Saved* are the distinct tensors
that PyTorch keeps for its backward pass, without parameters and buffers; *gradients* are those of
the parameters, which all are in RAM before PyTorch's optimizer starts. *Allocated* is the most that
PyTorch's step had allocated at a time. *Operations* are those of our backward pass; *kernels* are
the ATen operations of PyTorch's that compute or copy numbers. One ATen operation computes up to
three gradients of a convolution or a norm.
"""

_BUILT_IN_TEXT = """
The networks of MLPerf Tiny are built in as well. The operations of the imported training step are
compared with those of the built-in one, by their keys.
"""


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--only", nargs="+", choices=cases(), default=list(cases()), metavar="NAME")
    parser.add_argument("--limit", type=float, default=20.0, help="seconds of each search (20)")
    parser.add_argument(
        "--record", type=Path, metavar="FOLDER", help="keep rows here; those of earlier runs count"
    )
    publish("benchmarks.networks", parser, _measure)


def _measure(arguments: argparse.Namespace) -> Page:
    torch.set_num_threads(1)
    asked = [case for name, case in cases().items() if name in arguments.only]
    libraries = [name for name in _LIBRARIES if any(case.library == name for case in asked)]
    versions = [package_version("torch", "PyTorch"), *map(package_version, libraries)]
    versions += solver_versions()
    origin = Origin(arguments.limit, release(), machine(), tuple(versions))
    kept: dict[str, Row] = {}
    if arguments.record is not None:
        arguments.record.mkdir(parents=True, exist_ok=True)
        kept = dict(_recorded(asked, arguments.limit, arguments.record))
    rows, missing = _rows(asked, origin, kept, arguments.record)
    tables = [_schedules(rows), _values(rows), _work(rows)]
    if built_in := [case for case in asked if case.built_in is not None]:
        tables.append(_built_in(built_in))
    if missing:
        tables.append(Table(("network", "why"), list(missing.items()), "Not run"))
    if kept:
        tables.append(_origins(rows))
    return Page(
        "Networks from PyTorch",
        _TEXT.format(
            limit=arguments.limit,
            earlier=_EARLIER.format(count=len(kept), rows=len(rows)) if kept else "",
        ),
        tables,
        versions,
    )


def _rows(
    asked: Sequence[Case], origin: Origin, kept: Mapping[str, Row], record: Path | None
) -> tuple[list[Row], Mapping[str, str]]:
    """Rows, and why networks have none. Those that the record has kept are not measured again."""
    rows = dict(kept)
    missing: dict[str, str] = {}
    try:
        for case in asked:
            if case.name in rows:
                continue
            if not case.is_installed:
                missing[case.name] = f"{case.library} is not installed"
                continue
            report_progress(f"{case.name}: …")
            try:
                row = rows[case.name] = measure(case, origin)
            except (CommandFailed, JoulewrightError) as error:
                missing[case.name] = str(error)
                report_progress(f"{case.name}: {error}")
                continue
            if record is not None:
                row.write(_record_of(case, record))
            for cells in (_schedule_cells(row), _value_cells(row), _work_cells(row)):
                report_progress("  ".join(cells))
    except KeyboardInterrupt:
        found = {*rows, *missing}
        missing |= {case.name: _INTERRUPTED for case in asked if case.name not in found}
    return [rows[case.name] for case in asked if case.name in rows], missing


def _recorded(asked: Sequence[Case], limit_s: float, record: Path) -> Iterator[tuple[str, Row]]:
    """Rows of the record that were measured with this limit, by network."""
    for case in asked:
        path = _record_of(case, record)
        row = Row.read(path) if path.exists() else None
        if row is not None and row.origin.limit_s == limit_s:
            yield case.name, row


def _record_of(case: Case, record: Path) -> Path:
    return record / f"{case.name}.json"


def _schedules(rows: Sequence[Row]) -> Table:
    head = (
        *("network", "operations", "parameters", "peak", "budget", "in", "least"),
        *("peak, scheduled", "extra energy", "gap", "status", "import", "solve", "load"),
    )
    return Table(head, [_schedule_cells(row) for row in rows], "Schedules", _SCHEDULE_TEXT)


def _home(row: Row) -> str:
    home = "RAM" if row.parameters_in == "ram" else row.parameters_in
    return f"{home}, slices" if row.is_sliced else home


def _schedule_cells(row: Row) -> tuple[str, ...]:
    return (
        row.name,
        str(row.operations),
        str(row.parameters),
        size(row.peak_bytes),
        size(row.budget_bytes) + (" *" if row.is_budget_raised else ""),
        _home(row),
        size(row.least_bytes),
        size(row.scheduled_peak_bytes),
        _percent(row.extra_energy),
        "–" if row.gap is None else _percent(row.gap),
        row.status,
        f"{row.import_s:.2f} s",
        f"{row.solve_s:.1f} s",
        f"{row.load:.1f}",
    )


def _values(rows: Sequence[Row]) -> Table:
    head = (
        *("network", "values", "gradients", "gradients, PyTorch"),
        *("first loss", "last loss", "last loss, PyTorch", "losses", "losses, PyTorch"),
    )
    return Table(head, [_value_cells(row) for row in rows], "Values", _VALUES_TEXT)


def _value_cells(row: Row) -> tuple[str, ...]:
    ours, theirs = row.losses
    return (
        row.name,
        _VALUES[row.is_identical],
        f"{row.difference:.1e}",
        f"{row.pytorch_difference:.1e}",
        f"{ours[0]:.6f}",
        f"{ours[-1]:.6f}",
        f"{theirs[-1]:.6f}",
        f"{row.loss_difference:.1e}",
        f"{row.pytorch_loss_difference:.1e}",
    )


def _work(rows: Sequence[Row]) -> Table:
    head = (
        *("network", "peak", "saved, PyTorch", "gradients, PyTorch", "allocated, PyTorch"),
        *("operations", "kernels, PyTorch"),
    )
    return Table(head, [_work_cells(row) for row in rows], "Memory and backward pass", _WORK_TEXT)


def _work_cells(row: Row) -> tuple[str, ...]:
    return (
        row.name,
        size(row.peak_bytes - row.resident_bytes),
        size(row.backward.saved_bytes),
        size(row.backward.gradient_bytes),
        size(row.backward.peak_bytes),
        str(row.backward_operations),
        str(row.backward.kernels),
    )


def _built_in(asked: Sequence[Case]) -> Table:
    rows = [(case.name, difference_from_built_in(case)) for case in asked]
    return Table(("network", "imported and built in"), rows, "MLPerf Tiny", _BUILT_IN_TEXT)


def _origins(rows: Sequence[Row]) -> Table:
    """Networks by what measured them."""
    found: dict[Origin, list[str]] = {}
    for row in rows:
        found.setdefault(row.origin, []).append(row.name)
    cells = [
        (", ".join(names), origin.release, origin.machine, ", ".join(origin.versions))
        for origin, names in found.items()
    ]
    return Table(("networks", "release", "machine", "versions"), cells, "Origins")


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"


if __name__ == "__main__":
    main()
