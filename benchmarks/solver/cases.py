"""Problems of the benchmark, each with its target."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.solver.graphs import graph_of_name
from devices.documents.document import read_json
from solver.problem.graph import CostedGraph

INSTANCES = Path(__file__).parent.parent / "instances"

# Options that count RAM as a sum of bytes, as Moccasin does, and search until the time limit.
_BYTES = ("--no-addresses", "--gap", "0.0001")
_LEAST_S, _MOST_S = 10.0, 60.0


@dataclass(frozen=True)
class Case:
    """``graph`` is a file, or the name of a generated graph. ``target`` is the relative gap to
    prove or, with ``overhead``, the excess over the least compute to reach; infinity asks for any
    schedule. ``seconds`` is the time for the whole command."""

    graph: str | Path
    budget: str
    seconds: float
    target: float
    overhead: bool = False
    deadline: str | None = None
    options: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.graph.stem if isinstance(self.graph, Path) else self.graph

    @property
    def order(self) -> str:
        if "--order" not in self.options:
            return "auto"
        return self.options[self.options.index("--order") + 1]

    @property
    def asked(self) -> str:
        if self.target == float("inf"):
            return f"a schedule in {self.seconds:g} s"
        what = "overhead" if self.overhead else "gap"
        return f"{what} ≤ {100 * self.target:g} % in {self.seconds:g} s"

    def file(self, directory: Path) -> Path:
        """File of the graph. A generated graph is written to ``directory``."""
        if isinstance(self.graph, Path):
            return self.graph
        path = directory / f"{self.graph}.json"
        if not path.exists():
            graph = graph_of_name(self.graph)
            path.write_text(graph.model_dump_json(by_alias=True, exclude_none=True))
        return path

    def read(self, directory: Path) -> CostedGraph:
        return read_json(self.file(directory), CostedGraph)


@dataclass(frozen=True)
class Published:
    """Results of Moccasin's authors for one of their graphs, by budget: overhead and seconds for
    the given order, and the overhead of a search over orders."""

    stem: str
    given: dict[str, tuple[float, float]]
    free: dict[str, float] = field(default_factory=dict)


_MOCCASIN = (
    Published(
        "moccasin-rl1-n100", {"90%": (0.008, 9), "80%": (0.023, 9)}, {"90%": 0, "80%": 0.003}
    ),
    Published(
        "moccasin-rl3-n500",
        {"90%": (0.007, 1803), "80%": (0.034, 1805)},
        {"90%": 0.0003, "80%": 0.023},
    ),
    Published(
        "moccasin-cm2-resnet50",
        {"90%": (0.001, 434), "80%": (0.003, 485)},
        {"90%": 0.002, "80%": 0.004},
    ),
)


def cases(moccasin: Path | None) -> Iterator[Case]:
    """Every case. ``moccasin`` is the folder with Moccasin's graphs, whose licence does not allow
    a copy in this repository; None leaves their cases out."""
    for path in sorted(INSTANCES.glob("poet-*.json")):
        for budget in ("80%", "50%"):
            yield Case(path, budget, 15, 0.001)
    resnet = INSTANCES / "poet-resnet18-cifar-m4.json"
    yield Case(resnet, "25%", 120, 0.01, deadline="1.5x")
    for budget in ("80%", "50%"):
        yield Case("poet-bert-m4", budget, 120, 0.001)
        yield Case("poet-resnet50-m4", budget, 120, 0.01)
    if moccasin is not None:
        for published in _MOCCASIN:
            yield from _moccasin_cases(published, moccasin / f"{published.stem}.json")
    yield Case("encoder-41-m4", "50%", 300, 0.02, options=("--gap", "0.02"))


def _moccasin_cases(published: Published, path: Path) -> Iterator[Case]:
    for budget, (overhead, seconds) in published.given.items():
        limit_s = min(_MOST_S, max(_LEAST_S, seconds / 10))
        yield Case(path, budget, limit_s, overhead, True, options=(*_BYTES, "--order", "given"))
    for budget, overhead in published.free.items():
        yield Case(path, budget, _MOST_S, overhead, True, options=(*_BYTES, "--order", "free"))
    yield Case(path, "70%", _MOST_S, float("inf"), True, options=(*_BYTES, "--order", "free"))
