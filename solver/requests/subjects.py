"""Costed graphs and the budget of a request."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from devices.documents.document import read_json
from devices.documents.readable import size
from devices.library import resolve_profile
from devices.profile import DeviceProfile
from devices.quantities import Slices
from devices.results import Results
from networks.exported import exported
from networks.models import build_model
from networks.training.network import NetworkError
from networks.training.step import TrainingStep
from solver.costing.costing import Predicted, cost_graph
from solver.costing.model import CostModel
from solver.problem.graph import CostedGraph
from solver.problem.quantities import parse_deadline_s, parse_ram_bytes
from solver.problem.schedule import Budget
from solver.referee.referee import Replay
from solver.requests.costs import report_costs
from solver.requests.request import (
    DEFAULT_MODEL,
    DEFAULT_OPTIMIZER,
    ProfiledModel,
    RequestedBudget,
)
from solver.time_limit import NO_LIMIT, OutOfTime, TimeLimit

SHARE_FOR_WAYS = 0.25
"""Share of a time limit in which ways to take a step are prepared; the search has the rest."""

_UNTRIED = "were not tried: the time limit leaves no time to prepare them"


@dataclass(frozen=True)
class SolveSubject:
    """A costed graph, the profile that its costs are from, and those of its operations whose costs
    are predicted. ``step`` is what the graph was made from, ``strict`` allows no predictions.
    ``cost_model`` is that of the profile, which forms of the step share. A graph from a file has
    neither profile nor step, and names no predictions."""

    graph: CostedGraph
    profile: DeviceProfile | None = None
    predicted: tuple[Predicted, ...] = ()
    step: TrainingStep | None = None
    strict: bool = False
    cost_model: CostModel | None = field(default=None, compare=False, repr=False)

    @property
    def parts(self) -> int:
        """Number of parts of the batch."""
        return (self.graph.origin and self.graph.origin.accumulate) or 1

    @property
    def slices(self) -> Slices | None:
        """Limits of parts of weights and activations; None if all layers are whole."""
        return None if self.graph.origin is None else self.graph.origin.slices

    @property
    def codecs(self) -> bool:
        """Whether the backward pass reads codes of activations."""
        return self.step is not None and self.step.codecs

    def with_step(self, step: TrainingStep) -> SolveSubject:
        """The same request with another form of the step.

        Raises:
            CostingError: The profile does not cover the step's operations.
            OutOfTime: The enforced time limit has passed.
        """
        assert self.profile is not None, "only a graph from a file has no profile, and no step"
        costing = cost_graph(step, self.profile, self.strict, self.cost_model)
        return replace(self, graph=costing.graph, predicted=costing.predicted, step=step)


def say_untried(say: Callable[[str], None], what: str, subjects: Iterable[SolveSubject]) -> None:
    """Say of which of several ways to take a step the time limit left out codecs or slices."""
    ways = ", ".join(
        (f"the batch in {each.parts} parts" if each.parts > 1 else "the whole batch")
        + (" with codecs" if each.codecs else "")
        for each in subjects
    )
    if ways:
        say(f"{what} {_UNTRIED} (for {ways})")


def read_subjects(
    source: Path | ProfiledModel,
    results: Results,
    verbose: bool,
    say: Callable[[str], None],
    limit: TimeLimit = NO_LIMIT,
) -> tuple[SolveSubject, ...]:
    """Read a graph from its file, or make one from a profile and a network.

    With ``accumulate="auto"``, make one for every number of parts of the batch, the first of which
    is one. Further ones are left out if the limit passes before they are ready, which is said.

    Raises:
        DocumentError: A file cannot be used, or there is no such profile.
        ModelError: There is no such model, batch or optimizer.
        CostingError: The profile does not cover the network's operations.
        NetworkError: The batch cannot be split.
    """
    if isinstance(source, Path):
        return (SolveSubject(read_json(source, CostedGraph)),)
    profile = resolve_profile(source.profile, results.profiles)
    model = CostModel(profile)

    def subject(step: TrainingStep) -> SolveSubject:
        costing = cost_graph(step, profile, source.strict, model)
        report_costs(say, costing, verbose)
        graph, predicted = costing.graph, costing.predicted
        return SolveSubject(graph, profile, predicted, step, source.strict, model)

    steps = _training_steps(source, profile, results, say)
    found = [subject(next(steps))]
    try:
        with limit.enforced():
            for step in steps:
                further = subject(step)
                found.append(further)
    except OutOfTime:
        say(f"numbers of parts of the batch above {found[-1].parts} {_UNTRIED}")
    return tuple(found)


def _training_steps(
    source: ProfiledModel, profile: DeviceProfile, results: Results, say: Callable[[str], None]
) -> Iterator[TrainingStep]:
    """Build the step of the named network, or of the first one in the profile.

    With ``accumulate="auto"``, build it for each divisor of its batch.
    """
    model, optimizer = DEFAULT_MODEL, str(DEFAULT_OPTIMIZER)
    batch: int | None = None
    loss, train, lora = source.loss, source.train, source.lora
    parts = source.accumulate
    slices = None if isinstance(source.slices, str) else source.slices
    if source.model is None and profile.networks:
        network = profile.networks[0]
        model, batch, optimizer = network.model, network.batch, network.optimizer
        taken = [f"model {model}"]
        taken += [f"batch {batch}"] if source.batch is None else []
        taken += [f"optimizer {optimizer}"] if source.optimizer is None else []
        if loss is None and network.loss is not None:
            loss = network.loss
            taken.append(f"loss {loss}")
        if train is None and network.train is not None:
            train = network.train
            taken.append(f"trained {' and '.join(train)}")
        if parts is None and network.accumulate is not None:
            parts = network.accumulate
            taken.append(f"in {parts} parts")
        if source.slices == "auto" and network.slices is not None:
            slices = network.slices
            taken.append(f"slices of {slices}")
        if lora is None and network.lora is not None:
            lora = network.lora
            taken.append(f"LoRA {lora}")
        say(f"from profile {profile.name}: {', '.join(taken)}")
    if source.model is not None:
        model = exported(source.model, results.networks)

    def step(number: int) -> TrainingStep:
        return build_model(
            model,
            source.batch or batch,
            source.optimizer or optimizer,
            source.parameters_in,
            loss=loss,
            train=train,
            lora=lora,
            accumulate=number,
            slices=slices,
            codecs=source.codecs == "all",
        )

    first = step(parts if isinstance(parts, int) else 1)
    for remark in first.remarks:
        say(remark)
    yield first
    if parts == "auto":
        divisors = (each for each in range(2, first.batch + 1) if first.batch % each == 0)
        try:
            yield from map(step, divisors)
        except NetworkError as error:
            say(f"{error}; the batch is solved as a whole")


def read_budget(
    words: RequestedBudget, profile: DeviceProfile | None, kept: Replay, say: Callable[[str], None]
) -> Budget:
    """Convert the budget to bytes and seconds.

    ``kept`` is the step with nothing recomputed or paged. If no RAM budget is given, it is the RAM
    available on the profile's board, which is said. So is what a share is a share of: the schedule
    may be one of a step in slices or with codecs, whose peak differs.

    Raises:
        QuantityError: A budget or deadline cannot be parsed.
    """
    deadline_s = None if words.deadline is None else parse_deadline_s(words.deadline, kept.time_s)
    if words.ram is not None:
        ram_bytes = parse_ram_bytes(words.ram, kept.peak_bytes)
        if words.ram.strip().endswith("%"):
            say(
                f"RAM budget: {size(ram_bytes)}, {words.ram.strip()} of the {size(kept.peak_bytes)}"
                " of the step with nothing recomputed, paged, sliced or packed by solve"
            )
    else:
        assert profile is not None, "a graph without a profile needs a RAM budget"
        ram_bytes = _board_ram_bytes(profile, say)
    return Budget(
        ram_bytes=ram_bytes,
        covers=words.covers,
        deadline_s=deadline_s,
        instantaneous_paging=words.instantaneous_paging,
        paging=words.paging,
        rematerialization=words.rematerialization,
    )


def _board_ram_bytes(profile: DeviceProfile, say: Callable[[str], None]) -> int:
    ram_bytes, board = profile.board.usable_bytes, f"the board of profile {profile.name}"
    if profile.board.available_bytes is not None:
        say(f"RAM budget: {size(ram_bytes)}, available on {board} when it was measured")
    else:
        say(
            f"RAM budget: {size(ram_bytes)}, all of {board}; the profile does not state how much is"
            " available"
        )
    return ram_bytes
