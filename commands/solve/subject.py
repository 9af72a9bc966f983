"""Costed graph and budget of ``solve``, read from its options."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from commands.arguments import DEFAULT_BATCH, DEFAULT_MODEL, DEFAULT_OPTIMIZER
from commands.console import Console
from commands.solve.costs import report_costs
from commands.solve.options import BudgetWords, ProfiledModel
from devices.documents.document import read_json
from devices.documents.readable import size
from devices.library import resolve_profile
from devices.profile import DeviceProfile
from devices.results import Results
from networks.models import build_model
from networks.training.step import TrainingStep
from solver.costing.costing import Predicted, cost_graph
from solver.problem.graph import CostedGraph
from solver.problem.quantities import parse_deadline_s, parse_ram_bytes
from solver.problem.schedule import Budget
from solver.referee.referee import Replay


@dataclass(frozen=True)
class SolveSubject:
    """A costed graph, the profile that its costs are from, and those of its operations whose costs
    are predicted. A graph from a file has no profile and names no predictions."""

    graph: CostedGraph
    profile: DeviceProfile | None = None
    predicted: tuple[Predicted, ...] = ()


def read_subject(
    source: Path | ProfiledModel, results: Results, verbose: bool, console: Console
) -> SolveSubject:
    """A graph from its file, or from a profile and a network.

    Raises :class:`~devices.documents.document.DocumentError`,
    :class:`~networks.models.ModelError` and :class:`~solver.costing.costing.CostingError`.
    """
    if isinstance(source, Path):
        return SolveSubject(read_json(source, CostedGraph))
    profile = resolve_profile(source.profile, results.profiles)
    step = _training_step(source, profile, console)
    costing = cost_graph(step, profile, strict=source.strict)
    report_costs(console, costing, verbose)
    return SolveSubject(costing.graph, profile, costing.predicted)


def _training_step(source: ProfiledModel, profile: DeviceProfile, console: Console) -> TrainingStep:
    """The network that is asked for, or else the first one that the profile was measured for."""
    model, batch, optimizer = DEFAULT_MODEL, DEFAULT_BATCH, str(DEFAULT_OPTIMIZER)
    if source.model is None and profile.networks:
        network = profile.networks[0]
        model, batch, optimizer = network.model, network.batch, network.optimizer
        taken = [f"model {model}"]
        taken += [f"batch {batch}"] if source.batch is None else []
        taken += [f"optimizer {optimizer}"] if source.optimizer is None else []
        console.say(f"taken from profile {profile.name}: {', '.join(taken)}")
    return build_model(
        source.model or model,
        source.batch or batch,
        source.optimizer or optimizer,
        source.parameters_in,
    )


def read_budget(
    words: BudgetWords, profile: DeviceProfile | None, kept: Replay, console: Console
) -> Budget:
    """The budget in bytes and seconds. ``kept`` is the step with nothing recomputed or paged.

    Where no RAM is given, it is what the board of ``profile`` has to give, which is told on the
    console. Raises :class:`~solver.problem.quantities.QuantityError`.
    """
    deadline_s = None if words.deadline is None else parse_deadline_s(words.deadline, kept.time_s)
    if words.ram is not None:
        ram_bytes = parse_ram_bytes(words.ram, kept.peak_bytes)
    else:
        assert profile is not None, "of a graph alone the RAM budget is asked for"
        ram_bytes = _board_ram_bytes(profile, console)
    return Budget(
        ram_bytes=ram_bytes,
        covers=words.covers,
        deadline_s=deadline_s,
        instantaneous_paging=words.instantaneous_paging,
        paging=words.paging,
        rematerialization=words.rematerialization,
    )


def _board_ram_bytes(profile: DeviceProfile, console: Console) -> int:
    ram_bytes, board = profile.board.usable_bytes, f"the board of profile {profile.name}"
    if profile.board.available_bytes is not None:
        console.say(f"RAM budget: the {size(ram_bytes)} that {board} had to give when measured")
    else:
        console.say(
            f"RAM budget: all {size(ram_bytes)} of {board}, which does not say how much is free"
        )
    return ram_bytes
