"""Watch a network's training step on its board, in several sittings, for the costs in its places.

Each sitting runs the step in one of several ways (:mod:`replay.costs.ways`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from devices.documents.readable import size
from devices.errors import BuildFailed, MeasurementInvalid, RequestRefused
from devices.profile import Build, DeviceProfile, PackedTensor, ProfiledNetwork, StepCosts
from profiler.run.options import ProfileOptions
from replay.costs.context import FEWEST_SITTINGS, counting_steps, step_costs
from replay.costs.refine import measured_build, require_same_board
from replay.costs.sittings import Choice, KeptSittings, WatchedSitting
from replay.costs.ways import (
    Way,
    can_page,
    kept_ways,
    may_page_besides,
    ways_that_page,
    ways_to_run,
)
from replay.costs.zeros import RUNS, STEPS_A_RUN, packed_tensors
from solver.costing.situation import situations

if TYPE_CHECKING:
    from pathlib import Path

    from devices.description import DeviceDescription
    from networks.training.step import TrainingStep
    from replay.running.measured import ReplayRecord
    from replay.running.session import ReplaySession

Progress = Callable[[str], None]

SITTINGS, STEPS = 9, 10
"""Sittings, and watched steps of each, of a step that is short enough."""

FEWEST_STEPS = 3
"""Steps of a sitting of a long step: the fewest whose median leaves out a disturbed one."""

LIMIT_S = 120.0
"""Predicted seconds of all watched steps, beyond which there are fewer steps, then sittings."""


@dataclass(frozen=True)
class _Extent:
    """Sittings of each way, steps of each sitting, and bytes that a way may write to storage."""

    sittings: int
    steps: int
    written_bytes: int

    def steps_of(self, written_bytes_a_step: int) -> int:
        """Steps of a sitting of a way that writes so much: fewer than of others, or none."""
        if written_bytes_a_step == 0:
            return self.steps
        allowed = self.written_bytes // (self.sittings * written_bytes_a_step)
        return 0 if allowed < FEWEST_STEPS else min(self.steps, allowed)


@dataclass(frozen=True)
class Watch:
    """Sittings of one training step in several ways.

    Sittings that are apart in time show how much a board differs from one time to another. Some can
    therefore be run before the profile has all costs (:meth:`sittings`), and the others when it has
    (:meth:`costs`).

    Attributes:
        description: the board.
        network: the network, as a profile states it.
        build: how the board's programs were built.
        ways: at least one.
        extent: how much is watched.
        kept: where finished sittings are kept and found; None keeps nothing.
        first_seed: seed of the data and initial values of the first sitting.
        counts_zeros: whether zeros are counted too, where tensors may be packed.
        _disturbed: way and number of sittings of which no step counts. They are not repeated, since
            that would write more to storage than was allowed.
    """

    description: DeviceDescription
    network: ProfiledNetwork
    build: Build
    ways: Sequence[Way]
    extent: _Extent
    kept: KeptSittings | None
    first_seed: int
    counts_zeros: bool
    _disturbed: set[tuple[str, int]] = field(default_factory=set, init=False)

    @classmethod
    def of(
        cls,
        description: DeviceDescription,
        network: ProfiledNetwork,
        profile: DeviceProfile,
        progress: Progress,
        *,
        storage_budget_bytes: int,
        first_seed: int = 1,
        directory: Path | None,
        counts_zeros: bool = True,
    ) -> Watch:
        """Choose ways and extent from the costs that are known by now.

        A choice that an interrupted watch has kept in the directory is taken again, so that its
        sittings are found. Arguments and errors are those of :func:`watch_step`.
        """
        build = measured_build(profile)
        kept = None
        if directory is not None:
            asked = (f"{first_seed} {storage_budget_bytes}",)
            kept = KeptSittings.of(directory, network, build, asked)
        choice = None if kept is None else kept.choice()
        ways = [] if choice is None else kept_ways(network, profile, choice.ways)
        if choice is None or not ways:
            ways = _chosen(description, network, profile, storage_budget_bytes, progress)
            choice = _choice(ways)
            if kept is not None:
                kept.keep_choice(choice)
        # Where counting zeros writes to storage, too, it has a share of its own.
        counting_pages = counts_zeros and ways[0].written_bytes > 0
        share_bytes = storage_budget_bytes // (len(ways) + counting_pages)
        extent = _Extent(choice.sittings, choice.steps, share_bytes)
        if all(extent.steps_of(way.written_bytes_a_step(description)) == 0 for way in ways):
            raise MeasurementInvalid(
                f"{description.name}: {FEWEST_STEPS} steps of {network.model} in each of"
                f" {extent.sittings * len(ways)} sittings would write more than"
                f" {size(storage_budget_bytes)} to storage",
                remedy="allow more with --storage-budget-mib",
            )
        return cls(description, network, build, ways, extent, kept, first_seed, counts_zeros)

    def costs(self, profile: DeviceProfile, progress: Progress) -> StepCosts:
        """Run the sittings that are not kept, and find the costs of ops in their places.

        Args:
            profile: costs of the operations by themselves, all of them.
            progress: called with one line for each phase.

        Raises:
            JoulewrightError: as for :func:`watch_step`.
        """
        sittings = self.sittings(1.0, profile, progress)
        of_ops = _count_of_ops(sittings)
        if of_ops < FEWEST_SITTINGS:
            raise MeasurementInvalid(
                f"{self.description.name}: {of_ops} sittings of {self.network.model} were"
                f" undisturbed, {FEWEST_SITTINGS} are needed"
            )
        step = self.ways[0].step
        packed = self._packed(profile, progress) if self.counts_zeros else ()
        found = situations(step, profile.board.last_level_cache_bytes)
        own = {op.name: each for op, each in zip(step.ops, found, strict=True)}
        return step_costs(
            profile, self.network, step.cost_keys, sittings, packed=packed, situations=own
        )

    def sittings(
        self, share: float, profile: DeviceProfile, progress: Progress
    ) -> list[WatchedSitting]:
        """The first sittings, ``share`` of all; those that are kept are not repeated.

        Args:
            share: share of the sittings. Where the board has room for several plans, ways take
                turns; else it is the share of the sittings of each.
            profile: costs that are known by now.
            progress: called with one line for each phase.

        Raises:
            RequestRefused: no plan can run, or the board has other kernels now.
            ReplayFailed: a step failed on the board.
            JoulewrightError: opening the board or the meter failed.
        """
        # A microcontroller has room for one plan.
        has_room = self.description.firmware is None
        groups = [self.ways] if has_room else [[way] for way in self.ways]
        found: list[WatchedSitting] = []
        refused: RequestRefused | None = None
        seed = self.first_seed
        for group in groups:
            try:
                found += self._of_group(group, share, seed, profile, progress)
            except RequestRefused as refusal:
                refused = refusal  # a plan is too large; others may be smaller
            seed += self.extent.sittings * len(group)
        if refused is not None and _count_of_ops(found) < FEWEST_SITTINGS:
            raise refused
        return found

    def _of_group(
        self,
        ways: Sequence[Way],
        share: float,
        first_seed: int,
        profile: DeviceProfile,
        progress: Progress,
    ) -> list[WatchedSitting]:
        from replay.running.opening import open_replay
        from replay.runs import written_bytes_a_step

        found: list[WatchedSitting] = []
        missing: list[tuple[int, int]] = []
        turns = list(itertools.product(range(self.extent.sittings), range(len(ways))))
        for number, index in turns[: round(share * len(turns))]:
            before = None if self.kept is None else self.kept.find(ways[index].words, number)
            if before is not None:
                found.append(before)
            elif (ways[index].words, number) not in self._disturbed:
                missing.append((number, index))
        if not missing:
            return found
        # A microcontroller's speed does not change with time.
        has_system = self.description.firmware is None
        pause = datetime.now(UTC).isoformat(timespec="milliseconds") if has_system else None
        opened = open_replay(
            self.description,
            ways[0].step.distinct_specs,
            lambda workspace_bytes: [way.plan(workspace_bytes) for way in ways],
            progress,
            kernels_sha256=self.build.kernels_sha256,
            matmul=self.build.matmul,
        )
        with opened as session:
            require_same_board(profile, session.facts.identity, session.energy_source)
            for number, index in missing:
                way, plan = ways[index], session.plans[index]
                steps = self.extent.steps_of(written_bytes_a_step(plan, self.description))
                if steps == 0:
                    progress(f"not watched, since it would write too much: {way.words}")
                    continue
                progress(f"watching {steps} steps, {way.words}")
                # Also where an interrupted watch goes on, each sitting has a seed of its own.
                seed = first_seed + number * len(ways) + index
                record = run_watched(session, index, way.step, steps, seed, way.time_s)
                steps_run = counting_steps(record)
                if not steps_run:
                    self._disturbed.add((way.words, number))
                    continue
                sitting = WatchedSitting.of(
                    plan,
                    steps_run,
                    way.graph,
                    profile,
                    way.words,
                    pause=pause,
                    counters=record.counters,
                    only_transfers=way.only_transfers,
                )
                if self.kept is not None:
                    self.kept.keep(way.words, number, sitting)
                found.append(sitting)
        return found

    def _packed(self, profile: DeviceProfile, progress: Progress) -> tuple[PackedTensor, ...]:
        """Count zeros of the tensors that replays can pack.

        None are counted if that would write too much to storage. If counting fails, what was
        watched is worth keeping: the reason is reported.
        """
        from networks.training.packing import packable
        from replay.lowering.zeros import counting
        from replay.running.opening import open_replay
        from replay.runs import written_bytes_a_step

        way, storage = self.ways[0], self.description.storage
        tensors = tuple(packable(way.step))
        if not tensors or storage is None or not (self.description.packs and profile.storage):
            return ()
        progress(f"counting zeros of {len(tensors)} tensors in {RUNS} runs")
        opened = open_replay(
            self.description,
            way.step.distinct_specs,
            lambda workspace_bytes: [
                counting(way.plan(workspace_bytes), way.step, tensors, storage.page_bytes)
            ],
            progress,
            kernels_sha256=self.build.kernels_sha256,
            matmul=self.build.matmul,
        )
        first_seed = self.first_seed + self.extent.sittings * len(self.ways)
        try:
            with opened as session:
                plan = session.plans[0]
                written_bytes = RUNS * STEPS_A_RUN * written_bytes_a_step(plan, self.description)
                if written_bytes > self.extent.written_bytes:
                    progress("zeros were not counted: steps would write too much to the storage")
                    return ()
                # Zeros do not depend on what else the board did: every step counts.
                runs = [
                    run_watched(session, 0, way.step, STEPS_A_RUN, first_seed + k, way.time_s).steps
                    for k in range(RUNS)
                ]
                return tuple(packed_tensors(plan, runs))
        except (BuildFailed, MeasurementInvalid, RequestRefused) as refusal:
            progress(f"zeros were not counted: {refusal}")
            return ()


def watch_step(
    description: DeviceDescription,
    network: ProfiledNetwork,
    profile: DeviceProfile,
    progress: Progress,
    *,
    storage_budget_bytes: int = ProfileOptions.storage_budget_bytes,
    first_seed: int = 1,
    directory: Path | None = None,
    counts_zeros: bool = True,
) -> StepCosts:
    """Watch a network's training step.

    Args:
        description: the board.
        network: the network, as a profile states it.
        profile: costs of the operations by themselves.
        progress: called with one line for each phase.
        storage_budget_bytes: most bytes that may be written to storage. A schedule whose sittings
            would write more than its share is not run.
        first_seed: seed of the data and initial values of the first sitting; each sitting has its
            own.
        directory: where finished sittings are kept; those that an interrupted watch has left there
            are not repeated. None keeps nothing.
        counts_zeros: whether zeros are counted too, where tensors may be packed.

    Returns:
        Costs of the ops in their places of the step.

    Raises:
        RequestRefused: the profile does not say which kernels were measured, the board has others
            now, or it pages in a way that replays do not.
        CostingError: the profile has no energies, so that no schedule can be found.
        MeasurementInvalid: no schedule fits, or too few sittings were undisturbed.
        ReplayFailed: a step failed on the board.
        JoulewrightError: opening the board or the meter failed.
    """
    watch = Watch.of(
        description,
        network,
        profile,
        progress,
        storage_budget_bytes=storage_budget_bytes,
        first_seed=first_seed,
        directory=directory,
        counts_zeros=counts_zeros,
    )
    return watch.costs(profile, progress)


def _chosen(
    description: DeviceDescription,
    network: ProfiledNetwork,
    profile: DeviceProfile,
    storage_budget_bytes: int,
    progress: Progress,
) -> list[Way]:
    """Ways to watch; raises :class:`MeasurementInvalid` if there is none."""
    pages = can_page(description, profile)
    ways = ways_to_run(network, profile, pages, progress)
    if not ways:
        raise MeasurementInvalid(
            f"{description.name}: no schedule of {network.model} that can run was found within"
            f" {profile.board.usable_bytes} bytes of RAM"
        )
    if pages and may_page_besides(description):
        count = len(ways) + 2
        steps = FEWEST_STEPS * -(-SITTINGS // count)
        # Half: what a step writes is copied after it, in part.
        most_bytes = storage_budget_bytes // count // steps // 2
        ways += ways_that_page(network, profile, tuple(ways), most_bytes, progress)
    return ways


def _choice(ways: Sequence[Way]) -> Choice:
    """The ways, and how often each is watched."""
    count, steps = _count_and_steps(max(way.time_s for way in ways))
    # As many for each schedule, so that none counts more.
    of_ops = sum(not way.only_transfers for way in ways)
    rounds = max(-(-count // len(ways)), -(-FEWEST_SITTINGS // of_ops))
    return Choice(ways=tuple(way.kept for way in ways), sittings=rounds, steps=steps)


def _count_of_ops(sittings: Sequence[WatchedSitting]) -> int:
    """Sittings that count for ops, and not for transfers only."""
    return sum(not sitting.only_transfers for sitting in sittings)


def watching_s(step_s: float) -> float:
    """Seconds for which the steps of a network are watched, if each takes ``step_s``."""
    count, steps = _count_and_steps(step_s)
    return count * steps * step_s


def _count_and_steps(step_s: float) -> tuple[int, int]:
    """Sittings of all ways together, and steps of each, for a step that takes so long."""
    count = max(FEWEST_SITTINGS, min(SITTINGS, int(LIMIT_S / (FEWEST_STEPS * step_s))))
    return count, max(FEWEST_STEPS, min(STEPS, int(LIMIT_S / (count * step_s))))


def run_watched(
    session: ReplaySession,
    index: int,
    step: TrainingStep,
    steps: int,
    seed: int,
    expected_step_s: float,
) -> ReplayRecord:
    """Run watched steps in a process of their own, each on a batch of its own.

    Args:
        session: the board with its plans.
        index: the plan to run, one of ``step``.
        step: the training step.
        steps: number of steps.
        seed: seed of the data and initial values.
        expected_step_s: predicted seconds of a step.
    """
    from networks.data import generated_batches
    from networks.training.initial import initial_values

    batches = generated_batches(step, steps * step.batch, seed)
    return session.run(
        index,
        initial_values(step, seed),
        [batches.batch(number) for number in range(steps)],
        steps=steps,
        watched=True,
        expected_step_s=expected_step_s,
    )
