"""The problems of the benchmark, each with what is asked of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

INSTANCES = Path(__file__).parent.parent / "instances"


@dataclass(frozen=True)
class Case:
    """``graph`` is a file, or the name of a graph that is generated. ``target`` is the relative gap
    that is to be proven, or, with ``overhead``, what may be spent over the least computing;
    ``seconds`` the time for it, start-up included."""

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
            return f"a solution in {self.seconds:g} s"
        what = "overhead" if self.overhead else "gap"
        return f"{what} ≤ {100 * self.target:g} % in {self.seconds:g} s"


@dataclass(frozen=True)
class Published:
    """What Moccasin's authors report for one of their graphs, by budget: overhead and seconds; and
    the overhead that is asked of a search over orders."""

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


# RAM as a sum of bytes, as they count it, and no end before the time is up.
_BYTES = ("--no-addresses", "--gap", "0.0001")
_MOST_S = 60.0


def cases(moccasin: Path | None) -> Iterator[Case]:
    """``moccasin`` is the folder with its graphs, whose licence forbids to have them here."""
    for path in sorted(INSTANCES.glob("poet-*.json")):
        for budget in ("80%", "50%"):
            yield Case(path, budget, 15, 0.001)
    resnet = INSTANCES / "poet-resnet18-cifar-m4.json"
    yield Case(resnet, "25%", 120, 0.01, deadline="1.5x")
    for budget in ("80%", "50%"):
        yield Case("poet-bert-m4", budget, 120, 0.001)
        yield Case("poet-resnet50-m4", budget, 120, 0.01)
    for published in _MOCCASIN if moccasin is not None else ():
        assert moccasin is not None
        path = moccasin / f"{published.stem}.json"
        for budget, (overhead, seconds) in published.given.items():
            limit_s = min(_MOST_S, max(10.0, seconds / 10))
            yield Case(path, budget, limit_s, overhead, True, options=(*_BYTES, "--order", "given"))
        for budget, overhead in published.free.items():
            yield Case(path, budget, _MOST_S, overhead, True, options=(*_BYTES, "--order", "free"))
        # A solution at all is asked for.
        yield Case(path, "70%", _MOST_S, float("inf"), True, options=(*_BYTES, "--order", "free"))
    yield Case("encoder-41-m4", "50%", 300, 0.02, options=("--gap", "0.02"))
