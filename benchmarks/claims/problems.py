"""Random small scheduling problems of every structure that ``costed-graph/1`` knows, by seed.

The same seed always gives the same problem, so that a long comparison can be resumed and a single
case repeated.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, Literal, get_args

Kind = Literal["chain", "training", "branches", "in_place", "homes", "beside_ops", "wide_costs"]
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True)
class RandomProblem:
    """A ``costed-graph/1`` document and the ``budget`` of a ``schedule/2`` document."""

    seed: int
    kind: Kind
    graph: dict[str, Any]
    budget: dict[str, Any]


def random_problem(seed: int) -> RandomProblem:
    """The problem of ``seed``; kinds take turns.

    The RAM budget lies between what the largest op takes and what the step takes unconstrained.
    Half of the problems have a deadline.
    """
    draw = random.Random(seed)
    kind = KINDS[seed % len(KINDS)]
    builder = _Builder(draw, kind)
    # Transfers beside ops have clocks that make states many.
    ops = draw.randint(3, 4 if builder.beside_ops else 6)
    match kind:
        case "chain":
            builder.chain(ops)
        case "training":
            builder.training(1 if builder.beside_ops else draw.randint(1, 2))
        case _:
            builder.branches(ops)
    graph = builder.document(f"random {kind} {seed}")
    return RandomProblem(seed, kind, graph, _budget(draw, graph))


class _Builder:
    """A graph under construction: ops in a valid order, and the tensors that they name."""

    def __init__(self, draw: random.Random, kind: Kind) -> None:
        self._draw = draw
        self._kind = kind
        self._ops: list[dict[str, Any]] = []
        self._tensors: list[dict[str, Any]] = []
        self.beside_ops = kind == "beside_ops" or draw.random() < 0.1

    def chain(self, length: int) -> None:
        """Each op reads what the one before wrote; some also read an earlier tensor."""
        names: list[str] = []
        for _ in range(length):
            reads = names[-1:]
            if len(names) > 2 and self._draw.random() < 0.4:
                reads = [*reads, self._draw.choice(names[:-1])]
            names.append(self._add_op(reads)[0])

    def training(self, layers: int) -> None:
        """Forward, backward and update of ``layers`` layers with a parameter each."""
        activations = [self._source("input", "input")]
        parameters = [self._source(f"w{layer}", "parameter") for layer in range(layers)]
        for layer in range(layers):
            activations += self._add_op([activations[-1], parameters[layer]])
        gradient = self._add_op(activations[-1:])[0]
        for layer in reversed(range(layers)):
            slope = self._add_op([gradient, activations[layer]], "backward", "gradient")[0]
            if layer:
                gradient = self._add_op([gradient, parameters[layer]], "backward", "gradient")[0]
            if self._draw.random() < 0.6:
                self._add_op([parameters[layer], slope], "update", "parameter", in_place=True)

    def branches(self, length: int) -> None:
        """Ops that read any earlier tensors; some have two outputs."""
        sources = self._draw.randint(1 if self._kind == "homes" else 0, 2)
        names = [self._source(f"s{number}", "parameter") for number in range(sources)]
        for _ in range(length):
            reads = self._draw.sample(names, min(len(names), self._draw.randint(0, 2)))
            wants = self._kind == "in_place" or self._draw.random() < 0.15
            names += self._add_op(reads, in_place=wants, outputs=self._draw.choice([1, 1, 1, 2]))
            consumed = {read for op in self._ops for read in op["in_place"].values()}
            names = [name for name in names if name not in consumed]

    def document(self, name: str) -> dict[str, Any]:
        share = self._draw.choice([None, 0.25, 1.0]) if self.beside_ops else None
        handover_s = self._draw.choice([None, 0.2, 5.0]) if self.beside_ops else None
        return {
            "schema": "costed-graph/1",
            "name": name,
            "asynchronous_transfers": self.beside_ops,
            "processor_share": share,
            "handover_s": handover_s,
            "ops": self._ops,
            "tensors": self._tensors,
        }

    def _source(self, name: str, kind: str) -> str:
        often = 0.6 if self._kind == "homes" else 0.2
        home = "storage" if self._draw.random() < often else "ram"
        return self._add_tensor(name, kind, home)

    def _add_op(
        self,
        reads: list[str],
        phase: str = "forward",
        kind: str = "activation",
        *,
        in_place: bool = False,
        outputs: int = 1,
    ) -> list[str]:
        draw = self._draw
        number = len(self._ops)
        writes = [
            self._add_tensor(f"t{number}{'abc'[output]}", kind, None) for output in range(outputs)
        ]
        consumable = [
            name
            for name in reads
            if not self._tensor(name).get("persist") and self._is_read_by_none_later(name)
        ]
        consumes = in_place and consumable
        self._ops.append(
            {
                "name": f"op{number}",
                "kind": "test",
                "phase": phase,
                "reads": reads,
                "writes": writes,
                "time_s": self._cost(),
                "energy_j": self._cost(),
                "workspace_bytes": draw.choice([0, 0, 0, 3]),
                "recomputable": not (phase == "update" and consumes) and draw.random() < 0.85,
                "in_place": {writes[0]: draw.choice(consumable)} if consumes else {},
            }
        )
        return writes

    def _is_read_by_none_later(self, name: str) -> bool:
        """True for builders that read a consumed tensor no more; ``chain`` never consumes."""
        return all(name not in op["in_place"].values() for op in self._ops)

    def _tensor(self, name: str) -> dict[str, Any]:
        return next(tensor for tensor in self._tensors if tensor["name"] == name)

    def _add_tensor(self, name: str, kind: str, home: str | None) -> str:
        draw = self._draw
        tensor: dict[str, Any] = {"name": name, "bytes": draw.randint(1, 9), "kind": kind}
        if home is not None:
            tensor["home"] = home
        pageable = draw.random() < (0.4 if self.beside_ops else 0.6)
        if pageable:
            tensor["page_out"] = {"time_s": self._cost(), "energy_j": self._cost()}
        if pageable or home == "storage":
            tensor["page_in"] = {"time_s": self._cost(), "energy_j": self._cost()}
        if draw.random() < 0.2:
            tensor["persist"] = "storage" if pageable and draw.random() < 0.5 else "ram"
        self._tensors.append(tensor)
        return name

    def _cost(self) -> float:
        draw = self._draw
        if self._kind == "wide_costs":
            return draw.choice([1e-4, 1.0, 1e4]) * draw.random()
        return float(draw.choice([0, 1, 1, 2, 3, 5])) if draw.random() < 0.7 else 9 * draw.random()


def _budget(draw: random.Random, graph: dict[str, Any]) -> dict[str, Any]:
    size = {tensor["name"]: tensor["bytes"] for tensor in graph["tensors"]}
    total = sum(size.values()) + max(op["workspace_bytes"] for op in graph["ops"])
    least = max(
        sum(size[name] for name in {*op["reads"], *op["writes"]}) + op["workspace_bytes"]
        for op in graph["ops"]
    )
    budget: dict[str, Any] = {
        "ram_bytes": draw.randint(min(least, total), total),
        "covers": draw.choice(["all", "all", "all", "activations"]),
        "paging": draw.random() < 0.8,
        "rematerialization": draw.random() < 0.8,
        "instantaneous_paging": draw.random() < 0.05,
    }
    if draw.random() < 0.5:
        alone_s = sum(op["time_s"] for op in graph["ops"])
        budget["deadline_s"] = alone_s * draw.choice([1.0, 1.2, 1.5, 2.0])
    return budget
