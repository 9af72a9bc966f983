"""Sittings of watched steps: what each measured, and the files that keep it.

A sitting can be measured before all costs of operations by themselves are known. It therefore holds
none of them, and is compared with them later. What was chosen to be watched is kept beside the
sittings: another search may find other schedules.
"""

from __future__ import annotations

import hashlib
import math
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from devices.documents.document import StrictModel, dump_json, read_json, write_atomically
from devices.plan import Compute, ExecutionPlan, PageIn, PageOut, RowsIn
from devices.profile import Build, DeviceProfile, ProfiledNetwork, Sitting
from devices.quantities import Count, NonNegative
from devices.replay import Counters, MeasuredStep
from networks.kinds import Place
from replay.costs.power import MeteredSteps
from replay.costs.transfers import by_themselves, middle_steps, without_transfers_beside
from replay.reporting.timing import is_asynchronous
from solver.problem.graph import CostedGraph
from solver.problem.schedule import Schedule

# Fewest pauses whose sittings count as one time each.
_FEWEST_PAUSES = 3
# Hexadecimal digits of the key of kept sittings.
_DIGITS = 8
# What the files hold; what those of other numbers hold is measured again.
_FORMAT = 6


class KeptWay(StrictModel):
    """One way to run a step, as :class:`~replay.costs.ways.Way` has it.

    Attributes:
        parameters_in: home of the step's parameters.
        schedule: the schedule; None for the step as it is.
        only_transfers: it is watched for the costs of transfers only.
    """

    parameters_in: Place
    schedule: Schedule | None = None
    only_transfers: bool = False


class Choice(StrictModel):
    """What was chosen to be watched.

    Attributes:
        ways: the ways, at least one.
        sittings: sittings of each way.
        steps: most watched steps of each sitting.
    """

    ways: tuple[KeptWay, ...]
    sittings: Count
    steps: Count


class WatchedSitting(StrictModel):
    """Measurements of one sitting.

    Attributes:
        schedule: words for the schedule.
        steps: watched steps that count.
        measured: when the sitting ended.
        pause: as in :class:`~devices.profile.Sitting`.
        op_s: seconds of one execution of each op.
        page_in: bytes of each page-in, and its seconds in a step. Transfers of packed tensors are
            left out, since they also pack, and transfers beside ops, which wait for the processor.
        page_out: the same of each page-out.
        transfers_processor_s: as in :class:`~devices.profile.Sitting`.
        only_transfers: the times of its ops do not count.
        metered: the steps that a meter measured.
    """

    schedule: str
    steps: Count
    measured: str
    pause: str | None = None
    op_s: Mapping[str, NonNegative]
    page_in: tuple[tuple[Count, NonNegative], ...] = ()
    page_out: tuple[tuple[Count, NonNegative], ...] = ()
    transfers_processor_s: NonNegative | None = None
    only_transfers: bool = False
    metered: MeteredSteps = MeteredSteps()

    @classmethod
    def of(
        cls,
        plan: ExecutionPlan,
        steps: Sequence[MeasuredStep],
        graph: CostedGraph,
        profile: DeviceProfile,
        schedule: str,
        *,
        pause: str | None = None,
        counters: Counters | None = None,
        only_transfers: bool = False,
    ) -> WatchedSitting:
        """The sitting of watched steps of a plan.

        Args:
            plan: the plan that was run.
            steps: undisturbed watched steps, at least one.
            graph: the graph of the schedule, with the tensors' sizes.
            profile: for how much of its time a transfer that runs beside an op needs the processor.
            schedule: words for the schedule.
            pause: when the pause of other measurements began in which the sitting ran, if in one.
            counters: totals of the run that the steps are of, if they are known.
            only_transfers: the times of its ops do not count.
        """
        executions: dict[str, list[int]] = {}
        for index, action in enumerate(plan.actions):
            if isinstance(action.does, Compute):
                executions.setdefault(action.does.op, []).append(index)

        working_s = graph.processor_time_s
        if profile.storage is not None:  # the graph's transfers may run alone
            working_s = profile.storage.processor_time_s
        undelayed = [without_transfers_beside(plan, step, working_s) for step in steps]

        def in_a_step(own: Sequence[int]) -> float:
            return statistics.median(
                math.fsum(step.spans[index].time_s for index in own) for step in undelayed
            )

        middle = middle_steps(plan, steps)

        def transfers(kind: type[PageIn | PageOut]) -> tuple[tuple[int, float], ...]:
            return tuple(
                (
                    graph.tensor[action.does.tensor].bytes,
                    statistics.fmean(step.spans[index].time_s for step in middle),
                )
                for index, action in enumerate(plan.actions)
                if isinstance(action.does, kind)
                and action.schedule_index is not None
                and not is_asynchronous(action)
                and graph.tensor[action.does.tensor].packed_bytes is None
            )

        return cls(
            schedule=schedule,
            steps=len(steps),
            measured=datetime.now(UTC).isoformat(timespec="seconds"),
            pause=pause,
            op_s={op: in_a_step(own) / len(own) for op, own in executions.items()},
            page_in=transfers(PageIn),
            page_out=transfers(PageOut),
            transfers_processor_s=_transfers_processor_s(plan, counters),
            only_transfers=only_transfers,
            metered=MeteredSteps.of(plan, steps),
        )

    def compared_with(self, profile: DeviceProfile) -> Sitting:
        """The sitting as a profile states it, with what transfers take by themselves."""
        storage = by_themselves(profile.storage)
        page_in: tuple[tuple[float, float], ...] = ()
        page_out = page_in
        if storage is not None:
            page_in = tuple((storage.read_cost(size)[0], own_s) for size, own_s in self.page_in)
            page_out = tuple((storage.write_cost(size)[0], own_s) for size, own_s in self.page_out)
        factors = self.metered.power_factors(profile)
        return Sitting(
            schedule=self.schedule,
            steps=self.steps,
            measured=self.measured,
            pause=self.pause,
            page_in=page_in,
            page_out=page_out,
            transfers_processor_s=self.transfers_processor_s,
            only_transfers=self.only_transfers,
            power_factor=statistics.median(factors) if factors else None,
        )


def times_of(sittings: Iterable[Sitting]) -> list[int]:
    """The number of each sitting's time: sittings of one pause have the same.

    Within seconds, a computer's speed hardly changes. Fewer than three pauses say too little of how
    times differ; each sitting is then taken to be at a time of its own.
    """
    sittings = list(sittings)
    if len({each.pause for each in sittings if each.pause is not None}) < _FEWEST_PAUSES:
        return list(range(len(sittings)))
    numbers: dict[object, int] = {}
    return [numbers.setdefault(each.pause or object(), len(numbers)) for each in sittings]


def _transfers_processor_s(plan: ExecutionPlan, counters: Counters | None) -> float | None:
    """The processor's seconds for the transfers of a step, if all are of whole tensors and none
    runs beside an op."""
    kinds = {type(action.does) for action in plan.actions}
    if counters is None or RowsIn in kinds or not kinds & {PageIn, PageOut}:
        return None
    if any(map(is_asynchronous, plan.actions)):
        return None
    return counters.transfer_ns * 1e-9 / counters.steps


@dataclass(frozen=True)
class KeptSittings:
    """Sittings of one network that are kept in a directory, with the choice of what is watched.

    Each is a file of its own, written as a whole when the sitting is over.

    Attributes:
        directory: the directory, which exists.
        key: digits that stand for the network, the program that ran its steps, and what was asked.
    """

    directory: Path
    key: str

    @classmethod
    def of(
        cls, directory: Path, network: ProfiledNetwork, build: Build | None, asked: Sequence[str]
    ) -> KeptSittings:
        """The sittings of a network in a directory.

        Args:
            directory: the directory.
            network: the network whose step is watched.
            build: how the board's programs were built.
            asked: what else distinguishes one watch from another.
        """
        question = "\n".join([str(_FORMAT), network.model_dump_json(), str(build), *asked])
        return cls(directory, hashlib.sha256(question.encode()).hexdigest()[:_DIGITS])

    def choice(self) -> Choice | None:
        """What was chosen; None if nothing was.

        Raises:
            DocumentError: its file is damaged.
        """
        file = self._choice
        return read_json(file, Choice) if file.exists() else None

    def keep_choice(self, choice: Choice) -> None:
        """Write what was chosen, in the place of an earlier choice."""
        write_atomically(self._choice, dump_json(choice))

    def find(self, way: str, number: int) -> WatchedSitting | None:
        """A finished sitting; None if there is none.

        Raises:
            DocumentError: its file is damaged.
        """
        file = self._file(way, number)
        return read_json(file, WatchedSitting) if file.exists() else None

    def keep(self, way: str, number: int, sitting: WatchedSitting) -> None:
        """Write a finished sitting."""
        write_atomically(self._file(way, number), dump_json(sitting))

    @property
    def _choice(self) -> Path:
        return self.directory / f"{self.key}.ways.json"

    def _file(self, way: str, number: int) -> Path:
        words = re.sub(r"\W+", "-", way)
        return self.directory / f"{self.key}.{words}.{number}.json"
