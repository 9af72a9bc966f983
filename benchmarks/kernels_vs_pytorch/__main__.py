"""Training step of ResNet-18 (CIFAR), batch 8, on one thread: this project's kernels and PyTorch.

    python -m benchmarks.kernels_vs_pytorch [--repetitions N] [--write docs/benchmarks/kernels.md]

Needs PyTorch.
"""

from __future__ import annotations

import argparse
import ctypes
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from benchmarks.kernels_vs_pytorch.kernel_step import KernelStep
from benchmarks.kernels_vs_pytorch.pytorch_step import PyTorchStep
from benchmarks.machine import package_version, program_version
from benchmarks.pages import Page, Table
from benchmarks.publish import command_line, publish, report_progress
from networks.models import build_model
from networks.training import TrainingStep
from tests.support.onboard.kernels import (
    Array,
    KernelLibrary,
    compile_library,
    openblas_on_one_thread,
)

_BATCH = 8
_WARM_UP = 3
_PYTORCH = "PyTorch, eager"

# The images decide whether a ReLU sees a value within rounding of zero. Such a ReLU may be open in
# one contestant and closed in another, and then gradients differ by about 1e-3 instead of 1e-5.
_IMAGES_SEED = 1

_TEXT = """
One training step (forward, backward, SGD update) of `resnet18_cifar`, batch {batch}: {operations}
operations, {gflop:.1f} GFLOP. Every contestant has one thread. Repetitions are interleaved, so that
a disturbance of the machine meets all contestants: {repetitions} each, after {warm_up} steps to
warm up. All start from the same parameters and the same batch; their losses and updates are
compared after the first step.

OpenBLAS chose its {core} kernels, PyTorch its {capability} kernels.
"""


@dataclass(frozen=True)
class Contestant:
    """A contestant's result after the first step, relative to PyTorch, and its times."""

    name: str
    loss: float
    update_difference: float
    seconds: Sequence[float]

    def cells(self, baseline_s: float) -> tuple[str, ...]:
        low, median, high = np.percentile(self.seconds, (25, 50, 75)) * 1e3
        return (
            self.name,
            f"{median:.1f} ms",
            f"{low:.1f} to {high:.1f} ms",
            f"{median / 1e3 / baseline_s:.2f}",
            f"{self.loss:.6f}",
            f"{self.update_difference:.1e}",
        )


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--repetitions", type=int, default=15)
    publish("benchmarks.kernels_vs_pytorch", parser, _measure)


def _measure(arguments: argparse.Namespace) -> Page:
    torch.set_num_threads(1)
    blas = openblas_on_one_thread()
    step = build_model("resnet18_cifar", batch=_BATCH)
    pytorch, kernels = _contestants(step)
    text = _TEXT.format(
        batch=_BATCH,
        operations=len(step.ops),
        gflop=sum(op.spec.work_flop for op in step.ops) / 1e9,
        repetitions=arguments.repetitions,
        warm_up=_WARM_UP,
        core=_openblas_core(blas),
        capability=torch.backends.cpu.get_cpu_capability(),
    )
    return Page(
        "Kernels and PyTorch",
        text,
        [_times(_race(pytorch, kernels, arguments.repetitions)), _times_by_kind(kernels)],
        [
            package_version("torch", "PyTorch"),
            package_version("scipy-openblas32", "OpenBLAS (wheel)"),
            program_version("cc", "gcc"),
        ],
    )


def _contestants(step: TrainingStep) -> tuple[PyTorchStep, dict[str, KernelStep]]:
    """PyTorch, and the kernels by their matrix product."""
    generator = np.random.default_rng(_IMAGES_SEED)
    images = generator.standard_normal((_BATCH, 3, 32, 32), np.float32)
    labels = generator.integers(0, 10, _BATCH, np.int32)
    rate = next(op.scalars["learning_rate"] for op in step.ops if op.spec.kind == "sgd.update")
    pytorch = PyTorchStep(images, labels, rate)
    inputs = {"image": images, "labels": labels}
    with tempfile.TemporaryDirectory() as directory:
        kernels = {
            matmul: KernelStep(
                KernelLibrary(compile_library(Path(directory), matmul)),
                step,
                pytorch.parameters,
                inputs,
            )
            for matmul in ("cblas", "in-tree")
        }
    return pytorch, kernels


def _race(
    pytorch: PyTorchStep, kernels: Mapping[str, KernelStep], repetitions: int
) -> Iterator[Contestant]:
    start = pytorch.parameters
    runs: dict[str, Callable[[], float]] = {_PYTORCH: pytorch.run_s}
    runs |= {_name(matmul): step.run_s for matmul, step in kernels.items()}
    for run in runs.values():
        run()
    losses = {_PYTORCH: pytorch.loss} | {_name(m): step.loss for m, step in kernels.items()}
    differences = {_PYTORCH: 0.0} | {
        _name(m): _update_difference(start, step.parameters, pytorch.parameters)
        for m, step in kernels.items()
    }
    for _ in range(_WARM_UP - 1):
        for run in runs.values():
            run()
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for repetition in range(repetitions):
        report_progress(f"repetition {repetition + 1} of {repetitions}")
        for name, run in runs.items():
            seconds[name].append(run())
    for name in runs:
        yield Contestant(name, losses[name], differences[name], seconds[name])


def _name(matmul: str) -> str:
    return f"kernels, {matmul}"


def _times(contestants: Iterator[Contestant]) -> Table:
    found = list(contestants)
    baseline_s = float(np.median(found[0].seconds))
    head = ("contestant", "median", "quartiles", "ratio", "loss", "difference of updates")
    text = (
        "*cblas* uses OpenBLAS for matrix products, *in-tree* the project's own. The time of the"
        " kernels is the sum over all operations. *Ratio* is relative to PyTorch. *Difference of"
        " updates* is the largest relative difference from PyTorch over all parameters."
    )
    return Table(head, [contestant.cells(baseline_s) for contestant in found], "Step", text)


def _times_by_kind(kernels: Mapping[str, KernelStep]) -> Table:
    medians = {
        matmul: {kind: float(np.median(seconds)) for kind, seconds in step.by_kind.items()}
        for matmul, step in kernels.items()
    }
    first = next(iter(medians.values()))
    rows = [
        (kind, *(f"{of_kind[kind] * 1e3:.2f} ms" for of_kind in medians.values()))
        for kind in sorted(first, key=first.__getitem__, reverse=True)
    ]
    spaces = (f"{step.workspace_bytes / 1024:.0f} KiB ({m})" for m, step in kernels.items())
    note = f"Largest workspace of an operation: {', '.join(spaces)}."
    text = "Median time of all operations of a kind in a step."
    return Table(("kind", *medians), rows, "Kernels by kind", text, note)


def _update_difference(start: list[Array], ours: list[Array], theirs: list[Array]) -> float:
    """Largest difference of the two updates over all tensors, relative to theirs."""
    return max(
        float(
            np.linalg.norm(a - b.reshape(-1)) / np.linalg.norm(b.reshape(-1) - before.reshape(-1))
        )
        for before, a, b in zip(start, ours, theirs, strict=True)
    )


def _openblas_core(library: ctypes.CDLL) -> str:
    """Processor for which OpenBLAS chose its kernels. ``OPENBLAS_CORETYPE`` overrides it."""
    name = library.scipy_openblas_get_corename
    name.restype = ctypes.c_char_p
    return str(name().decode())


if __name__ == "__main__":
    main()
