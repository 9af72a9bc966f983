"""Networks whose curves are drawn, with the slices in which each of them is solved."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from devices.documents.document import read_yaml
from devices.profile import DeviceProfile
from devices.published import load_published
from devices.quantities import Slices
from networks.models import build_model
from solver.constructed import keep_everything
from solver.costing.costing import cost_graph
from solver.problem.footprint import least_ram_bytes
from solver.problem.graph import CostedGraph
from solver.problem.schedule import Budget
from solver.referee.referee import Replay, replay

_KIB, _MIB = 1 << 10, 1 << 20


@dataclass(frozen=True)
class Case:
    """A network with its parameters in storage, batch 1 and SGD; from whole layers to the smallest
    slices."""

    name: str
    model: str
    slices: tuple[Slices | None, ...]
    profile: DeviceProfile
    lora: str | None = None

    @cached_property
    def forms(self) -> tuple[Form, ...]:
        """The step in each of the slices."""
        return tuple(Form.of(self, slices) for slices in self.slices)

    def budgets(self, count: int) -> tuple[Budget, ...]:
        """Budgets at equal ratios, from what the smallest slices need to the largest peak."""
        least = min(form.least_bytes for form in self.forms)
        most = max(form.kept.peak_bytes for form in self.forms)
        return tuple(Budget(ram_bytes=int(size)) for size in np.geomspace(least, most, count))


@dataclass(frozen=True)
class Form:
    """A network's step in some slices. No schedule needs less RAM than ``least_bytes``, and
    ``kept`` is the step that keeps everything."""

    slices: Slices | None
    graph: CostedGraph
    least_bytes: int
    kept: Replay

    @classmethod
    def of(cls, case: Case, slices: Slices | None) -> Form:
        step = build_model(
            case.model, parameters_in="storage", lora=case.lora, slices=slices, optimizer="sgd"
        )
        graph = cost_graph(step, case.profile).graph
        kept = replay(graph, keep_everything(graph), "all")
        return cls(slices, graph, least_ram_bytes(graph)[0], kept)


def built_in_cases() -> tuple[Case, ...]:
    """The built-in networks, with published costs."""
    m4 = load_published("m4")
    slices = {
        "resnet8": (Slices(16 * _KIB, 16 * _KIB), Slices(8 * _KIB, 8 * _KIB)),
        "mobilenet": (Slices(64 * _KIB, 64 * _KIB), Slices(16 * _KIB, 16 * _KIB)),
        "resnet18_cifar": (Slices(256 * _KIB), Slices(128 * _KIB, 64 * _KIB)),
        "vgg16_cifar": (Slices(512 * _KIB, 256 * _KIB), Slices(128 * _KIB, 64 * _KIB)),
        "bert": (Slices(4 * _MIB, 4 * _MIB), Slices(_MIB, _MIB)),
    }
    return tuple(Case(name, name, (None, *smaller), m4) for name, smaller in slices.items())


def llama_case(model: Path, profile: Path) -> Case:
    """The Llama of 100 million parameters with LoRA, from its file, with measured times."""
    slices = (Slices(_MIB), Slices(4 * _MIB, 4 * _MIB), Slices(_MIB, _MIB))
    measured = read_yaml(profile, DeviceProfile)
    return Case("Llama, 100 M, LoRA", str(model), slices, measured, lora="8")
