"""Scheduling problems written by hand, and short functions to write them."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from devices.operation import Phase
from networks.kinds import Place, TensorKind
from solver.constructed import keep_everything
from solver.problem.footprint import least_ram_bytes
from solver.problem.graph import CostedGraph, Op, PageCost, Tensor
from solver.problem.problem import Problem
from solver.problem.schedule import Action, Budget, Compute, Free, PageIn, PageOut
from solver.referee.referee import replay


def op(
    name: str,
    reads: str,
    writes: str,
    *,
    kind: str = "test",
    time_s: float = 1.0,
    energy_j: float = 1.0,
    workspace_bytes: int = 0,
    recomputable: bool = True,
    in_place: Mapping[str, str] | None = None,
    phase: Phase = "forward",
) -> Op:
    """An op; ``reads`` and ``writes`` are tensor names separated by spaces."""
    return Op(
        name=name,
        kind=kind,
        phase=phase,
        reads=tuple(reads.split()),
        writes=tuple(writes.split()),
        time_s=time_s,
        energy_j=energy_j,
        workspace_bytes=workspace_bytes,
        recomputable=recomputable,
        in_place=in_place or {},
    )


def tensor(
    name: str,
    size: int,
    *,
    kind: TensorKind = "activation",
    home: Place | None = None,
    persist: Place | None = None,
    page_out: tuple[float, float] | None = None,
    page_in: tuple[float, float] | None = None,
) -> Tensor:
    """A tensor; page costs are pairs of seconds and joules."""

    def cost(pair: tuple[float, float] | None) -> PageCost | None:
        return None if pair is None else PageCost(time_s=pair[0], energy_j=pair[1])

    return Tensor(
        name=name,
        bytes=size,
        kind=kind,
        home=home,
        persist=persist,
        page_out=cost(page_out),
        page_in=cost(page_in),
    )


def graph(ops: Sequence[Op], tensors: Sequence[Tensor], name: str = "example") -> CostedGraph:
    """A costed graph, in which tensors that no op writes are in RAM when the step begins."""
    written = {name for op in ops for name in op.writes}
    placed = (
        t if t.name in written or t.home else t.model_copy(update={"home": "ram"}) for t in tensors
    )
    return CostedGraph(name=name, ops=tuple(ops), tensors=tuple(placed))


def actions(text: str) -> tuple[Action, ...]:
    """Actions from text such as ``"compute f; page_out a; free a"``."""
    make: dict[str, Callable[[str], Action]] = {
        "compute": lambda name: Compute(op=name),
        "page_out": lambda name: PageOut(tensor=name),
        "page_in": lambda name: PageIn(tensor=name),
        "free": lambda name: Free(tensor=name),
    }
    pairs = [action.split() for action in text.split(";") if action.strip()]
    return tuple(make[do](name) for do, name in pairs)


def two_layers() -> CostedGraph:
    """A training step small enough for pencil and paper.

    It has an op with workspace, an op in place, and an update in place of a parameter. ``r`` can be
    paged.

    ========  ==========  ======  =====  =======  =========
    op        reads       writes  s      J        workspace
    ========  ==========  ======  =====  =======  =========
    conv      x           a       1      10       5
    relu      a           r       0.5    1        (in place)
    linear    r w         y       2      20
    grad      y r         g       3      30       2
    update    w g         w1      1      5        (in place)
    ========  ==========  ======  =====  =======  =========
    """
    return graph(
        [
            op("conv", "x", "a", time_s=1.0, energy_j=10.0, workspace_bytes=5),
            op("relu", "a", "r", time_s=0.5, energy_j=1.0, in_place={"r": "a"}),
            op("linear", "r w", "y", time_s=2.0, energy_j=20.0),
            op("grad", "y r", "g", time_s=3.0, energy_j=30.0, workspace_bytes=2, phase="backward"),
            op(
                "update",
                "w g",
                "w1",
                time_s=1.0,
                energy_j=5.0,
                recomputable=False,
                in_place={"w1": "w"},
                phase="update",
            ),
        ],
        [
            tensor("x", 10, kind="input", home="ram"),
            tensor("w", 4, kind="parameter", home="ram"),
            tensor("a", 6),
            tensor("r", 6, page_out=(0.25, 2.0), page_in=(0.5, 3.0)),
            tensor("y", 8),
            tensor("g", 4, kind="gradient"),
            tensor("w1", 4, kind="parameter", persist="ram"),
        ],
        name="two layers",
    )


def training_chain(layers: int, *, seed: int = 1, energy_unit_j: float = 1.0) -> CostedGraph:
    """A training step of ``layers`` forward ops and their backward ops.

    Some ops also read the result of a layer a few steps earlier. Sizes and costs are random, so
    that no two sums are equal.
    """
    chance = random.Random(seed)  # the same graph for the same seed
    ops: list[Op] = []
    tensors = [tensor("a0", 64, kind="input", home="ram")]
    skips = {k: k - chance.choice([2, 3, 5]) for k in range(3, layers + 1, 3)}
    reads_of = {
        k: [f"a{k - 1}"] + ([f"a{skips[k]}"] if skips.get(k, -1) > 0 else [])
        for k in range(1, layers + 1)
    }

    def add(name: str, reads: Sequence[str], written: str, kind: TensorKind, phase: Phase) -> None:
        size = chance.randrange(16, 200)
        page = (size * 0.02, size * chance.uniform(0.005, 0.03) * energy_unit_j)
        tensors.append(tensor(written, size, kind=kind, page_out=page, page_in=page))
        ops.append(
            op(
                name,
                " ".join(reads),
                written,
                time_s=chance.uniform(0.5, 2.0),
                energy_j=chance.uniform(1.0, 9.0) * energy_unit_j,
                workspace_bytes=chance.choice([0, 0, 24]),
                phase=phase,
            )
        )

    for k in range(1, layers + 1):
        add(f"f{k}", reads_of[k], f"a{k}", "activation", "forward")
    gradient = f"a{layers}"
    for k in range(layers, 0, -1):
        add(f"b{k}", [gradient, *reads_of[k]], f"g{k}", "gradient", "backward")
        gradient = f"g{k}"
    return graph(ops, tensors, name=f"chain of {layers} layers")


def hard_problem() -> tuple[CostedGraph, Budget]:
    """A problem of 120 ops, too hard for its optimum to be proven within a test."""
    problem = training_chain(60)
    return problem, tight(problem, 0.05)


def unconstrained_peak(problem: CostedGraph) -> int:
    """RAM in bytes that keeping everything needs."""
    return replay(problem, keep_everything(problem)).peak_bytes


def tight(problem: CostedGraph, share: float, **others: object) -> Budget:
    """A budget between the least RAM of any schedule (0) and that of keeping everything (1).

    ``share`` is the position between the two; ``others`` are further fields of the budget.
    """
    least, _ = least_ram_bytes(problem)
    ram_bytes = least + int(share * (unconstrained_peak(problem) - least))
    return Budget.model_validate({"ram_bytes": ram_bytes, **others})


def crossed_chain() -> CostedGraph:
    """A chain whose ``a`` (6 bytes) is read before and after ``loss`` and ``gb`` (7 bytes)."""
    return graph(
        [
            op("f", "x", "a", energy_j=9.0),
            op("g", "a", "b", energy_j=4.0),
            op("loss", "b", "c"),
            op("gb", "b c", "d"),
            op("ga", "a d", "e"),
        ],
        [
            tensor("x", 1, home="ram"),
            tensor("a", 6, page_out=(1.0, 2.0), page_in=(1.0, 3.0)),
            tensor("b", 3),
            tensor("c", 2),
            tensor("d", 2),
            tensor("e", 1, persist="ram"),
        ],
    )


class Unlucky(NamedTuple):
    """A problem, and a schedule that satisfies it as a sum of bytes but gets no addresses."""

    problem: Problem
    schedule: tuple[Action, ...]


@cache
def unlucky(*, paging: bool = True, rematerialization: bool = True) -> Unlucky:
    """Seven ops, each writing one tensor; never more than 7 bytes in RAM.

    No addresses within 7 bytes exist.
    """
    last_reader = [3, 1, 4, 5, 5, 6, 6]
    sizes = [3, 3, 2, 2, 2, 3, 3]

    def reads(k: int) -> str:
        return " ".join(f"t{j}" for j in range(k) if last_reader[j] == k)

    problem = graph(
        [op(f"o{k}", reads(k), f"t{k}", energy_j=5.0) for k in range(7)],
        [tensor(f"t{k}", sizes[k], page_out=(1, 1), page_in=(1, 1)) for k in range(7)],
        name="unlucky",
    )
    budget = Budget(ram_bytes=7, paging=paging, rematerialization=rematerialization)
    return Unlucky(Problem(problem, budget), keep_everything(problem))
