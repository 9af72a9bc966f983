"""One training step of ResNet-18 (CIFAR), batch 8: the sum of our kernels beside PyTorch's eager
step, both on one thread, in one run.

``python -m benchmarks.kernels_vs_pytorch [--repetitions N]``, where PyTorch is installed. All
contestants start from the same parameters and the same batch; after the first step their losses
and updates are compared, so that the times are known to be of the same work. Repetitions are
interleaved, so that a disturbance of the machine meets all of them; medians and quartiles are
shown. OpenBLAS chooses its kernels by processor and falls back to older ones where it does not know
it; ``OPENBLAS_CORETYPE`` overrules it.
"""

from __future__ import annotations

import argparse
import ctypes
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as functional
from torch import Tensor, nn

from benchmarks.machine import machine_line
from networks.models import build_model
from networks.training import TrainingStep
from replay.lowering.lowering import unscheduled
from tests.support.onboard.kernels import (
    Array,
    KernelLibrary,
    PreparedCall,
    aligned,
    compile_library,
    openblas_on_one_thread,
)

BATCH = 8
WARM_UP = 3

# A ReLU that sees a value within rounding of zero may be open in one contestant and closed in
# another; gradients before it then differ by about 1e-3, and otherwise by about 1e-5. It depends on
# the images.
IMAGES_SEED = 1


class _Block(nn.Module):
    """Two 3 × 3 convolutions and a shortcut."""

    def __init__(self, inner: int, outer: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inner, outer, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outer)
        self.conv2 = nn.Conv2d(outer, outer, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outer)
        self.shortcut = nn.Sequential()
        if stride != 1 or inner != outer:
            self.shortcut.append(nn.Conv2d(inner, outer, 1, stride, bias=False))
            self.shortcut.append(nn.BatchNorm2d(outer))

    def forward(self, x: Tensor) -> Tensor:
        y = functional.relu(self.norm1(self.conv1(x)), inplace=True)
        return functional.relu(self.norm2(self.conv2(y)) + self.shortcut(x), inplace=True)


def _resnet18_cifar() -> nn.Sequential:
    """Its parameters come in the same order as those of the model of that name in
    :mod:`networks.models`."""
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 3, 1, 1, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(inplace=True),
    ]
    inner = 64
    for outer, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [_Block(inner, outer, stride), _Block(outer, outer, 1)]
        inner = outer
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


class _PyTorchStep:
    def __init__(self, images: Array, labels: Array, learning_rate: float) -> None:
        torch.manual_seed(1)
        self.model = _resnet18_cifar()
        self._images = torch.from_numpy(images)
        self._labels = torch.from_numpy(labels.astype(np.int64))
        self._optimizer = torch.optim.SGD(self.model.parameters(), lr=learning_rate)
        self.loss = 0.0

    @property
    def parameters(self) -> list[Array]:
        return [p.detach().numpy().copy() for p in self.model.parameters()]

    def run_s(self) -> float:
        """Seconds of one step."""
        start = time.perf_counter()
        self._optimizer.zero_grad()
        loss = functional.cross_entropy(self.model(self._images), self._labels)
        torch.autograd.backward(loss)
        self._optimizer.step()
        elapsed = time.perf_counter() - start
        self.loss = loss.item()
        return elapsed


class _KernelStep:
    """The operations of the step, each in its own buffers, called one after the other."""

    def __init__(
        self,
        library: KernelLibrary,
        step: TrainingStep,
        parameters: Iterable[Array],
        inputs: Mapping[str, Array],
    ) -> None:
        plan = unscheduled(step)
        buffers = {address: aligned(size) for address, size in plan.buffer_bytes.items()}
        at = {name: block.address for name, block in plan.inputs.items()}
        at |= {kept.tensor: kept.address for kept in plan.kept if kept.address is not None}
        for name, value in {**inputs, **dict(zip(_trained(step), parameters, strict=True))}.items():
            buffers[at[name]][:] = value.reshape(-1).view(np.uint8)
        self._parameters = [buffers[at[name]] for name in _trained(step)]
        self._loss = next(
            buffers[probe.block.address] for probe in plan.probes if probe.what == "loss"
        )
        self.workspace_bytes = max(library.workspace_bytes(op.spec) for op in plan.computes)
        workspace = aligned(self.workspace_bytes)
        self._calls: list[tuple[str, PreparedCall]] = [
            (
                op.spec.kind,
                library.prepare(
                    op.spec,
                    [buffers[address] for address in op.reads],
                    [buffers[address] for address in op.writes],
                    workspace,
                    [op.scalars[name] for name in op.spec.signature.scalars],
                ),
            )
            for op in plan.computes
        ]
        self.by_kind: dict[str, list[float]] = defaultdict(list)

    @property
    def parameters(self) -> list[Array]:
        return [parameter.view(np.float32).copy() for parameter in self._parameters]

    @property
    def loss(self) -> float:
        return float(self._loss.view(np.float32)[0])

    def run_s(self) -> float:
        """Seconds of one step: the sum over its operations."""
        kinds: dict[str, float] = defaultdict(float)
        for kind, call in self._calls:
            start = time.perf_counter()
            call()
            kinds[kind] += time.perf_counter() - start
        for kind, seconds in kinds.items():
            self.by_kind[kind].append(seconds)
        return sum(kinds.values())


def _trained(step: TrainingStep) -> list[str]:
    """Names of the parameters that an update writes, in the order of the network."""
    updated = {
        name
        for op in step.ops
        for operand, name in zip(op.spec.reads, op.reads, strict=True)
        if operand.role == "parameter"
    }
    return [tensor.name for tensor in step.tensors if tensor.name in updated]


def _difference(start: list[Array], ours: list[Array], theirs: list[Array]) -> float:
    """Of the two updates, relative to theirs: the largest over all tensors."""
    return max(
        float(
            np.linalg.norm(a - b.reshape(-1)) / np.linalg.norm(b.reshape(-1) - before.reshape(-1))
        )
        for before, a, b in zip(start, ours, theirs, strict=True)
    )


def _compiler() -> str:
    command = ["cc", "--version"]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return output.splitlines()[0]


def _openblas_core(library: ctypes.CDLL) -> str:
    """The processor whose kernels OpenBLAS chose at start-up."""
    name = library.scipy_openblas_get_corename
    name.restype = ctypes.c_char_p
    return str(name().decode())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--repetitions", type=int, default=15)
    repetitions = parser.parse_args().repetitions
    torch.set_num_threads(1)
    blas = openblas_on_one_thread()

    step = build_model("resnet18_cifar", batch=BATCH)
    generator = np.random.default_rng(IMAGES_SEED)
    images = generator.standard_normal((BATCH, 3, 32, 32), np.float32)
    labels = generator.integers(0, 10, BATCH, np.int32)
    rate = next(op.scalars["learning_rate"] for op in step.ops if op.spec.kind == "sgd.update")

    pytorch = _PyTorchStep(images, labels, rate)
    start = pytorch.parameters
    inputs = {"image": images, "labels": labels}
    with tempfile.TemporaryDirectory() as directory:
        ours = {
            matmul: _KernelStep(
                KernelLibrary(compile_library(Path(directory), matmul)), step, start, inputs
            )
            for matmul in ("cblas", "in-tree")
        }
    contestants: dict[str, Callable[[], float]] = {"PyTorch, eager": pytorch.run_s}
    contestants |= {f"kernels, {matmul}": run.run_s for matmul, run in ours.items()}

    print(machine_line())
    print(f"PyTorch {torch.__version__} ({torch.backends.cpu.get_cpu_capability()}), 1 thread")
    print(f"OpenBLAS {_openblas_core(blas)} kernels, 1 thread; {_compiler()}")
    print(f"resnet18_cifar, batch {BATCH}: {len(step.ops)} operations,", end=" ")
    print(f"{sum(op.spec.work_flop for op in step.ops) / 1e9:.1f} GFLOP, {repetitions} repetitions")
    for run in contestants.values():
        run()
    for matmul, kernels in ours.items():
        difference = _difference(start, kernels.parameters, pytorch.parameters)
        print(
            f"after one step, {matmul}: loss {kernels.loss:.6f} (PyTorch {pytorch.loss:.6f}),"
            f" updates differ by at most {difference:.1e}"
        )
    for _ in range(WARM_UP - 1):
        for run in contestants.values():
            run()
    seconds: dict[str, list[float]] = defaultdict(list)
    for _ in range(repetitions):
        for name, run in contestants.items():
            seconds[name].append(run())

    print(f"\n{'':24}{'median':>10}{'quartiles':>22}{'ratio':>8}")
    baseline = float(np.median(seconds["PyTorch, eager"]))
    for name, values in seconds.items():
        low, median, high = np.percentile(values, (25, 50, 75)) * 1e3
        ratio = median / 1e3 / baseline
        print(f"{name:24}{median:7.1f} ms{low:9.1f} to {high:6.1f} ms{ratio:8.2f}")
    print(f"\n{'by kind, median ms':36}{'cblas':>10}{'in-tree':>10}")
    medians = {
        matmul: {kind: float(np.median(v)) * 1e3 for kind, v in kernels.by_kind.items()}
        for matmul, kernels in ours.items()
    }
    for kind in sorted(medians["cblas"], key=medians["cblas"].__getitem__, reverse=True):
        print(f"{kind:36}{medians['cblas'][kind]:10.2f}{medians['in-tree'][kind]:10.2f}")
    for matmul, kernels in ours.items():
        print(f"largest workspace, {matmul}: {kernels.workspace_bytes / 1024:.0f} KiB")


if __name__ == "__main__":
    main()
