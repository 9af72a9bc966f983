"""Training steps on one thread: this project's kernels and PyTorch.

    python -m benchmarks.kernels_vs_pytorch [--only NAME …] [--repetitions N]
        [--write docs/benchmarks/kernels.md]

Needs PyTorch, torchvision and transformers; networks whose library is missing are left out.
"""

from __future__ import annotations

import argparse
import ctypes
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from benchmarks.kernels_vs_pytorch.groups import OTHERS
from benchmarks.kernels_vs_pytorch.kernel_step import KernelStep
from benchmarks.kernels_vs_pytorch.pytorch_step import PyTorchStep
from benchmarks.kernels_vs_pytorch.subjects import Subject, subjects
from benchmarks.machine import package_version, program_version
from benchmarks.networks.measuring import export
from benchmarks.pages import Page, Table
from benchmarks.publish import command_line, publish, report_progress
from networks.models import build_model
from tests.support.onboard.kernels import (
    Array,
    KernelLibrary,
    compile_library,
    openblas_on_one_thread,
)

_WARM_UP = 3
_PYTORCH = "PyTorch, eager"
_MATMULS = ("cblas", "in-tree")

# A smaller update counts as this one.
_NEGLIGIBLE = 1e-6

# A ratio above this is named in the text.
_SLOW = 1.5

_TEXT = """
Training steps (forward, backward, SGD update) of networks from torchvision and transformers, as
`torch.export` writes them. Every contestant has one thread. Repetitions are interleaved, so that a
disturbance of the machine meets all contestants: {repetitions} each, after {warm_up} steps to warm
up. All start from the same parameters and the same batch; their losses and updates are compared
after the first step.

OpenBLAS chose its {core} kernels, PyTorch its {capability} kernels.
"""

_STEPS_TEXT = """
*cblas* uses OpenBLAS for matrix products, *in-tree* the project's own. The time of the kernels is
the sum over all operations; the time of PyTorch includes that of Python between them. *Ratio* is
relative to PyTorch. *Difference of updates* is the largest relative difference of a parameter's
update from PyTorch's. A ReLU that sees a value within rounding of zero may be open in one
contestant and closed in another.
"""

_GROUPS_TEXT = """
Median time of all operations of a group in a step. PyTorch's times are those that its profiler
gives for the outermost ATen operations. *Others* are mostly sums, products and reductions; RMS
norm and rotary embedding are among them, which PyTorch composes of many operations. The gradient of
max pooling finds the maxima again, where PyTorch has kept their indices.
"""


@dataclass(frozen=True)
class Contestant:
    """A contestant's result after the first step, relative to PyTorch, and its times."""

    name: str
    loss: float
    update_difference: float
    seconds: Sequence[float]

    def cells(self, network: str, baseline_s: float) -> tuple[str, ...]:
        low, median, high = np.percentile(self.seconds, (25, 50, 75)) * 1e3
        return (
            network,
            self.name,
            f"{median:.1f} ms",
            f"{low:.1f} to {high:.1f} ms",
            f"{median / 1e3 / baseline_s:.2f}",
            f"{self.loss:.6f}",
            f"{self.update_difference:.1e}",
        )


@dataclass(frozen=True)
class Race:
    """Times of one network's step; ``by_group`` holds medians in seconds, by contestant."""

    subject: Subject
    operations: int
    contestants: Sequence[Contestant]
    by_group: Mapping[str, Mapping[str, float]]


def main() -> None:
    names = [subject.name for subject in subjects()]
    parser = command_line(__doc__)
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME")
    parser.add_argument("--repetitions", type=int, default=15)
    publish("benchmarks.kernels_vs_pytorch", parser, _measure)


def _measure(arguments: argparse.Namespace) -> Page:
    torch.set_num_threads(1)
    blas = openblas_on_one_thread()
    asked = [each for each in subjects() if each.name in arguments.only]
    races = [_race(each, arguments.repetitions) for each in asked if each.is_installed]
    text = _TEXT.format(
        repetitions=arguments.repetitions,
        warm_up=_WARM_UP,
        core=_openblas_core(blas),
        capability=torch.backends.cpu.get_cpu_capability(),
    )
    tables = [_networks(races), _steps(races)]
    texts = (_GROUPS_TEXT, *[""] * len(races))
    tables += [_groups(race, text) for race, text in zip(races, texts, strict=False)]
    missing = [(each.name, each.library) for each in asked if not each.is_installed]
    if missing:
        tables.append(Table(("network", "library that is not installed"), missing, "Not run"))
    libraries = sorted({each.library for each in asked})
    return Page(
        "Kernels and PyTorch",
        text,
        tables,
        [
            package_version("torch", "PyTorch"),
            *map(package_version, libraries),
            package_version("scipy-openblas32", "OpenBLAS (wheel)"),
            program_version("cc", "gcc"),
        ],
    )


def _race(subject: Subject, repetitions: int) -> Race:
    inputs = subject.inputs()
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "network.pt2")
        export(subject.module(), inputs, path)
        step = build_model(str(path))
        arrays = {name: _array(value) for name, value in inputs.items()}
        kernels = {
            _name(matmul): KernelStep(
                KernelLibrary(compile_library(Path(directory), matmul)), step, arrays
            )
            for matmul in _MATMULS
        }
    pytorch = PyTorchStep(subject.module(), inputs, step.learning_rate)
    start = pytorch.parameters
    runs: dict[str, Callable[[], float]] = {_PYTORCH: pytorch.run_s}
    runs |= {name: kernel.run_s for name, kernel in kernels.items()}
    for run in runs.values():
        run()
    losses = {_PYTORCH: pytorch.loss} | {name: each.loss for name, each in kernels.items()}
    differences = {_PYTORCH: 0.0} | {
        name: update_difference(start, each.parameters, pytorch.parameters)
        for name, each in kernels.items()
    }
    for _ in range(_WARM_UP - 1):
        for run in runs.values():
            run()
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for repetition in range(repetitions):
        report_progress(f"{subject.name}: repetition {repetition + 1} of {repetitions}")
        for name, run in runs.items():
            seconds[name].append(run())
        pytorch.profile()
    groups = {_PYTORCH: pytorch.by_group} | {n: each.by_group for n, each in kernels.items()}
    return Race(
        subject,
        len(step.ops),
        [Contestant(name, losses[name], differences[name], seconds[name]) for name in runs],
        {
            name: {group: float(np.median(found)) for group, found in of_group.items()}
            for name, of_group in groups.items()
        },
    )


def _name(matmul: str) -> str:
    return f"kernels, {matmul}"


def _array(value: torch.Tensor) -> Array:
    array: Array = value.numpy()
    return array if value.is_floating_point() else array.astype(np.int32)


def _networks(races: Sequence[Race]) -> Table:
    rows = [(race.subject.name, race.subject.batch, str(race.operations)) for race in races]
    return Table(("network", "batch", "operations"), rows, "Networks")


def _steps(races: Sequence[Race]) -> Table:
    head = (
        *("network", "contestant", "median", "quartiles", "ratio"),
        *("loss", "difference of updates"),
    )
    rows = [
        contestant.cells(race.subject.name, float(np.median(race.contestants[0].seconds)))
        for race in races
        for contestant in race.contestants
    ]
    return Table(head, rows, "Step", _STEPS_TEXT)


def _groups(race: Race, text: str) -> Table:
    theirs = race.by_group[_PYTORCH]
    ours = {name: race.by_group[name] for name in map(_name, _MATMULS)}
    first = next(iter(ours.values()))
    rows, slow = [], []
    for group in sorted({*theirs, *first}, key=lambda group: -theirs.get(group, 0.0)):
        base_s = theirs.get(group)
        found_s = [of_group.get(group) for of_group in ours.values()]
        ratios = [_ratio(each, base_s) for each in found_s]
        rows.append((group, _ms(base_s), *map(_ms, found_s), *ratios))
        if (
            group != OTHERS
            and base_s
            and any(s is not None and s > _SLOW * base_s for s in found_s)
        ):
            slow.append(group)
    head = ("operations", "PyTorch", *_MATMULS, *(f"ratio, {matmul}" for matmul in _MATMULS))
    note = f"Above {_SLOW}: {'; '.join(slow)}." if slow else f"None is above {_SLOW}."
    return Table(head, rows, race.subject.name, text, note)


def _ms(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds * 1e3:.2f} ms"


def _ratio(found_s: float | None, base_s: float | None) -> str:
    return "–" if found_s is None or not base_s else f"{found_s / base_s:.2f}"


def update_difference(
    start: Mapping[str, Array], ours: Mapping[str, Array], theirs: Mapping[str, Array]
) -> float:
    """Largest difference of the two updates over all tensors, relative to theirs; NaN if any is."""
    differences = [
        np.linalg.norm(ours[name].reshape(-1) - after.reshape(-1))
        / np.maximum(np.linalg.norm(after.reshape(-1) - start[name].reshape(-1)), _NEGLIGIBLE)
        for name, after in theirs.items()
    ]
    return float(np.max(differences))


def _openblas_core(library: ctypes.CDLL) -> str:
    """Processor for which OpenBLAS chose its kernels. ``OPENBLAS_CORETYPE`` overrides it."""
    name = library.scipy_openblas_get_corename
    name.restype = ctypes.c_char_p
    return str(name().decode())


if __name__ == "__main__":
    main()
