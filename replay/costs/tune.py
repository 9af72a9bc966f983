"""Solve, run, correct the costs, and solve again, until nothing changes by more than the noise.

Each round solves with the costs that the rounds before it have measured, and runs the schedule. The
run is watched; it is one more sitting of the ops in their places (:mod:`replay.costs.context`), in
the context that counts: that of the schedule. The rounds end when the schedule of the round before
is as good as the best under the corrected costs, within the interval of its energy, keeps the
deadline under them, and its time was predicted within its interval. The last round that is allowed
is judged so, too: by a search whose schedule is not run. All rounds are kept::

    request.json            what was asked; the rounds answer nothing else
    watching/               finished sittings of the step, until start.yaml is written
    start.yaml              the profile that the first round solves with
    round-1/                the files of a run: schedule, graph, report, trained values
    round-1/corrected.yaml  the profile after it; written last, so that its round is finished
    best.json               the schedule that took the least energy when it was run, of those that
                            kept the deadline then, and whose joules can be compared; its graph.
                            Written anew after each round
"""

from __future__ import annotations

import itertools
import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from devices.documents.document import dump_yaml, read_yaml, write_atomically
from devices.documents.readable import si, size
from devices.errors import (
    Infeasible,
    InputError,
    JoulewrightError,
    MeasurementInvalid,
    NoScheduleFound,
    OrdersExhausted,
)
from devices.profile import DeviceProfile, EnergySource, StepCosts
from devices.replay import ReplayReport
from replay.costs.context import counting_steps, step_costs, with_step_costs
from replay.costs.refine import require_same_board
from replay.costs.request import ANOTHER_DIRECTORY, Request, keep_request, require_same_request
from replay.costs.sittings import WatchedSitting
from replay.directory import SCHEDULE, StoredRun

if TYPE_CHECKING:
    from solver.problem.graph import CostedGraph
    from solver.problem.schedule import Budget, Schedule

_START, _CORRECTED, _BEST = "start.yaml", "corrected.yaml", "best.json"
_WATCHING = "watching"

# Added to a round's number for the seed of its data and initial values. No sitting of the profile
# has these: a round that repeats the data of one that predicted it is no independent sitting.
_SEEDS = 2000

# Sources of joules, the best first: estimated ones are times.
_SOURCES: tuple[EnergySource | None, ...] = ("measured", "emulated", "published", "estimated", None)

_FAILURES: Mapping[str, type[JoulewrightError]] = {
    "infeasible": Infeasible,
    "exhausted": OrdersExhausted,
}
"""Error after a search that found no schedule, by the status of its result."""


@dataclass(frozen=True)
class Round:
    """A finished round: its number from 1, its run, and the profile with the corrected costs."""

    number: int
    run: StoredRun
    corrected: DeviceProfile

    @property
    def report(self) -> ReplayReport:
        return self.run.report

    @property
    def corrected_file(self) -> Path:
        """File of the profile with the corrected costs."""
        return self.run.directory / _CORRECTED

    @property
    def measured_j(self) -> float | None:
        """Joules of a step on the board; None if no step of the run has an energy."""
        energy_j = self.report.energy_j
        return None if energy_j is None else energy_j.measured.median

    @property
    def energy_source(self) -> EnergySource | None:
        """Where these joules come from; None without any."""
        return None if self.measured_j is None else self.report.measured_energy_source

    @property
    def measured_s(self) -> float:
        """Measured seconds of a step."""
        return self.report.time_s.measured.median

    @property
    def kept_deadline(self) -> bool:
        """Whether a step took no longer than its deadline when it was run."""
        deadline_s = self.run.schedule.budget.deadline_s
        return deadline_s is None or self.measured_s <= deadline_s

    def is_as_good_as(self, graph: CostedGraph, schedule: Schedule) -> bool:
        """Whether this round was predicted, and a schedule improves on its own by noise at most.

        Energies are compared under the corrected costs of ``graph``, under which its own schedule
        must keep its deadline, too. An error of the power that all ops have in common is no noise
        between two schedules.
        """
        from replay.expectation import expected_step
        from solver.referee.referee import replay

        own = self.run.schedule
        played = replay(graph, own.actions, own.budget.covers)
        deadline_s = own.budget.deadline_s
        is_late = deadline_s is not None and played.time_due_s(own.budget) > deadline_s
        if is_late or not self.report.time_s.is_held:
            return False
        apart = graph.model_copy(update={"energy_error_correlation": None})
        energy_j = expected_step(apart, schedule).energy_j
        return played.energy_j - energy_j.median <= energy_j.high - energy_j.median


@dataclass(frozen=True)
class Tuned:
    """Result of tuning: all rounds, and why there are no more.

    ``converged``: nothing changes any more. ``unsolved``: no schedule was found under the costs
    that these rounds have measured.
    """

    rounds: tuple[Round, ...]
    converged: bool
    unsolved: JoulewrightError | None = None

    @cached_property
    def compared_j(self) -> Mapping[int, float]:
        """Joules of the rounds that compete for the best one, by number; all of one source.

        These are the rounds that kept the deadline and have joules of the best source that any of
        them has: a metered one if there is one. Empty if none kept it, or none has joules.
        """
        rounds = [each for each in self.rounds if each.kept_deadline]
        joules = {
            source: {
                each.number: each.measured_j
                for each in rounds
                if each.measured_j is not None and each.energy_source == source
            }
            for source in _SOURCES
        }
        return next(filter(None, joules.values()), {})

    @property
    def best(self) -> Round:
        """The round whose schedule took the least energy when it was run, within its deadline.

        Rounds without joules of the same source do not compete. If no round has joules, it is the
        one that took the least time, and so it is if none kept the deadline.
        """
        joules = self.compared_j
        if not joules:
            return min(self.rounds, key=lambda each: (not each.kept_deadline, each.measured_s))
        number = min(joules, key=joules.__getitem__)
        return next(each for each in self.rounds if each.number == number)


def tune(
    request: Request,
    profile: DeviceProfile,
    directory: Path,
    progress: Callable[[str], None],
    on_round: Callable[[Round], None],
) -> Tuned:
    """Solve and run in rounds; finished rounds in ``directory`` are taken from there.

    The best schedule is written after each round. A search follows each round, the last one too,
    and says whether it settled. If no schedule is found after the first round, the rounds end
    there.

    Args:
        request: what to tune.
        profile: costs to begin with. The step is watched first if the profile has not watched it.
        directory: directory of the rounds, new or from an interrupted call.
        progress: called with one line for each phase.
        on_round: called with each finished round.

    Raises:
        InputError: ``directory`` was begun with another profile or for another request.
        Infeasible: no schedule fits in the first round.
        OrdersExhausted: none fits in the orders that were searched in it.
        NoScheduleFound: none was found in time in it.
        MeasurementInvalid: no watched step was undisturbed.
        JoulewrightError: solving or running failed.
        KeyboardInterrupt: Ctrl-C ended a search or a run.
    """
    profile = _start(request, profile, directory, progress)
    rounds = list(_finished(directory))  # also more than are asked for now
    for each in rounds:
        on_round(each)
    if rounds:
        _write_best(directory, rounds)
    while True:
        if rounds:
            profile = rounds[-1].corrected
        try:
            graph, schedule = _solved(request, profile, directory / _START, rounds, progress)
        except (Infeasible, OrdersExhausted, NoScheduleFound) as error:
            if not rounds:
                raise
            return Tuned(tuple(rounds), converged=False, unsolved=error)
        if rounds and rounds[-1].is_as_good_as(graph, schedule):
            return Tuned(tuple(rounds), converged=True)
        if len(rounds) >= request.rounds:
            return Tuned(tuple(rounds), converged=False)
        number = len(rounds) + 1
        rounds.append(_round(request, profile, graph, schedule, directory, number, progress))
        _write_best(directory, rounds)
        on_round(rounds[-1])


def _write_best(directory: Path, rounds: list[Round]) -> None:
    from solver.files.solved import write_solved

    best = Tuned(tuple(rounds), converged=False).best
    write_solved(directory / _BEST, best.run.graph, best.run.schedule)


def best_file(directory: Path) -> Path:
    """File of the best schedule, beside its graph."""
    return directory / _BEST


def watches_first(request: Request, profile: DeviceProfile, directory: Path) -> bool:
    """Whether the step will be watched before the next round."""
    return not (directory / _START).exists() and not _is_watched(request, profile)


def _is_watched(request: Request, profile: DeviceProfile) -> bool:
    return any(costs.network == request.network for costs in profile.step_costs)


def _start(
    request: Request, profile: DeviceProfile, directory: Path, progress: Callable[[str], None]
) -> DeviceProfile:
    """The profile to begin with, with costs in places; that of an interrupted call if there is one.

    Raises:
        InputError: the interrupted call began with another profile, or for another request.
    """
    from replay.costs.watch import watch_step

    file = directory / _START
    if file.exists():
        require_same_request(directory, request)
        begun = read_yaml(file, DeviceProfile)
        if begun.created != profile.created or begun.operations != profile.operations:
            raise InputError(
                f"{directory}: was begun with another profile of {begun.name},"
                f" created {begun.created}",
                remedy=ANOTHER_DIRECTORY,
            )
        return begun
    keep_request(directory, request)
    if not _is_watched(request, profile):
        kept = directory / _WATCHING
        kept.mkdir(parents=True, exist_ok=True)
        costs = watch_step(
            request.description,
            request.network,
            profile,
            progress,
            storage_budget_bytes=request.storage_budget_bytes,
            directory=kept,
        )
        profile = with_step_costs(profile, costs)
    write_atomically(file, dump_yaml(profile))
    shutil.rmtree(directory / _WATCHING, ignore_errors=True)
    return profile


def _finished(directory: Path) -> Iterator[Round]:
    """All finished rounds in a directory, in their order."""
    for number in itertools.count(1):
        own = _directory(directory, number)
        if not (own / _CORRECTED).exists():
            return
        yield Round(number, StoredRun.read(own), read_yaml(own / _CORRECTED, DeviceProfile))


def _directory(directory: Path, number: int) -> Path:
    return directory / f"round-{number}"


def _solved(
    request: Request,
    profile: DeviceProfile,
    start: Path,
    rounds: list[Round],
    progress: Callable[[str], None],
) -> tuple[CostedGraph, Schedule]:
    """Solve with the costs known by now, from the schedules of all rounds.

    ``start`` is the file of the profile that the first round solves with.
    """
    from replay.board_ram import BoardRam
    from solver.costing.costing import cost_graph
    from solver.requests.subjects import SolveSubject
    from solver.solving.shared_ram import solve_in_shared_ram
    from solver.solving.solving import require_uninterrupted, solve_graph

    graph = cost_graph(request.step, profile).graph
    progress(f"solving after round {len(rounds)}" if rounds else "round 1: solving")

    def find(within: Budget, seconds: float | None) -> Schedule:
        return solve_graph(
            graph,
            within,
            replace(request.solver, time_limit_s=seconds),
            starts=[each.run.schedule.actions for each in rounds],
        )

    ram = BoardRam.of(SolveSubject(graph, profile, step=request.step))
    *_, schedule = solve_in_shared_ram(find, request.budget, request.solver.time_limit_s, ram)
    require_uninterrupted(schedule)
    if not schedule.actions:
        raise _not_found(graph, schedule, rounds[-1].corrected_file if rounds else start)
    return graph, schedule


def _not_found(graph: CostedGraph, schedule: Schedule, costs: Path) -> JoulewrightError:
    """The error after a search without a schedule, under the costs of a file."""
    asked, within = schedule.asked_ram_bytes, schedule.budget
    left = "" if asked is None else f" (which the firmware's records leave of {asked})"
    pace = "" if within.deadline_s is None else f" and {si(within.deadline_s, 's')} a step"
    return _FAILURES.get(schedule.status, NoScheduleFound)(
        f"{graph.name}: {schedule.status.replace('_', ' ')} within {within.ram_bytes} bytes of RAM"
        f"{left}{pace}, with the costs of {costs}",
        remedy=f"solve with --profile {shlex.quote(str(costs))} says what would do",
    )


def _round(
    request: Request,
    profile: DeviceProfile,
    graph: CostedGraph,
    schedule: Schedule,
    directory: Path,
    number: int,
    progress: Callable[[str], None],
) -> Round:
    """Run a schedule, correct the costs, and keep everything."""
    from replay.expectation import expected_step
    from replay.run_report import run_report
    from replay.runs import (
        STEPS_PER_DAY,
        Subject,
        planned_execution,
        replay_schedule,
        training_on,
        written_bytes_a_step,
    )

    own = _directory(directory, number)
    subject = Subject(request.description, request.step, graph, schedule)
    expected = expected_step(graph, schedule)
    seed = _SEEDS + number
    training = training_on(request.step, None, request.steps, seed)
    written_bytes = written_bytes_a_step(planned_execution(subject), request.description)
    if written_bytes:
        progress(f"round {number}: each step writes {size(written_bytes)} to storage")
    replayed = replay_schedule(
        subject,
        training,
        expected.time_s.median,
        lambda what: progress(f"round {number}: {what}"),
        require_board=lambda board: require_same_board(profile, board, profile.energy_source),
    )
    require_same_board(profile, replayed.measured.board, replayed.measured.energy_source)
    report = run_report(subject, str(own / SCHEDULE), replayed, expected, training, STEPS_PER_DAY)
    steps = counting_steps(replayed.watched)
    if not steps:
        raise MeasurementInvalid(
            f"{request.description.name}: no watched step of round {number} was undisturbed. End"
            " other programs, and start the same command again: finished rounds are kept"
        )
    words = f"{schedule.budget.ram_bytes} bytes of RAM, round {number}"
    counters = replayed.watched.counters
    sitting = WatchedSitting.of(replayed.plan, steps, graph, profile, words, counters=counters)
    before = next(each for each in profile.step_costs if each.network == request.network)
    keys = request.step.cost_keys
    costs: StepCosts = step_costs(profile, request.network, keys, [sitting], before)
    corrected = with_step_costs(profile, costs)
    run = StoredRun(own, report, schedule, graph)
    run.write(replayed.timed.values, request.step)
    write_atomically(own / _CORRECTED, dump_yaml(corrected))
    return Round(number, run, corrected)
