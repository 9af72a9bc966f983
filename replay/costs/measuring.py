"""Profiles of networks' training steps, measured op by op and as a whole.

A board that keeps several plans runs some sittings of a step between the blocks in which operations
are measured, and the others afterwards, so that they are as far apart in time as the blocks are. A
microcontroller runs all of them afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from devices.description import DeviceDescription
from devices.errors import (
    BuildFailed,
    InputError,
    JoulewrightError,
    MeasurementInvalid,
    RequestRefused,
    TooFewTrials,
)
from devices.profile import DeviceProfile, ProfiledNetwork
from networks.models import build_model, profiled_network
from networks.training.codecs import specs_in_all_forms
from networks.training.packing import packing_specs
from profiler.opening.boards import alone_with
from profiler.run.options import ProfileOptions
from profiler.run.run import OnProgress, ProgressEvent, choose_run_directory, profile_device
from profiler.run.trials import RunDirectory
from replay.costs.context import with_step_costs
from replay.costs.watch import Watch
from replay.lowering.lowering import unscheduled
from replay.running.failure import ReplayFailed

if TYPE_CHECKING:
    from devices.operation import OpSpec
    from devices.plan import ExecutionPlan
    from networks.kinds import Optimizer
    from networks.training.step import TrainingStep

_OPTIONS = ProfileOptions()

NOT_WATCHED = (BuildFailed, InputError, MeasurementInvalid, RequestRefused, ReplayFailed)
"""Why a step cannot be watched, which is no reason to lose what else was measured."""


def profile_network(
    description: DeviceDescription,
    model: str,
    batch: int | None = None,
    optimizer: Optimizer = "sgd",
    *,
    runs: Path = Path("results/runs"),
    options: ProfileOptions = _OPTIONS,
    progress: Callable[[str], None] = lambda _activity: None,
) -> DeviceProfile:
    """Measure what the training step of a network costs on a board.

    Every operation is measured by itself, and the step is watched, for the cost of each op in its
    place. After an interruption, the same call continues from the finished trials and sittings in
    ``runs``.

    Args:
        description: The board.
        model: Name of a built-in network, or a file ``*.pt2`` or ``*.onnx``.
        batch: Samples in a step; None for one, or for those of the file.
        optimizer: How parameters are updated.
        runs: Directory in which the raw trials are kept, in a directory of their own.
        options: How to measure.
        progress: Called with one line for each activity.

    Returns:
        The profile. Its ``energy_source`` says where its joules come from.

    Raises:
        InputError: The network cannot be built.
        JoulewrightError: The board cannot be measured.
    """
    step = build_model(model, batch, optimizer)
    return measure_networks(
        description,
        [profiled_network(model, step)],
        specs_to_measure([step], description, options),
        unscheduled(step),
        places=[runs],
        options=options,
        progress=progress,
    )


def specs_to_measure(
    steps: Sequence[TrainingStep], description: DeviceDescription, options: ProfileOptions
) -> tuple[OpSpec, ...]:
    """Operations that a profile for any schedule of the steps needs, each once: with codecs and
    without, and those of packing on a board that packs what it pages."""
    specs = [spec for step in steps for spec in specs_in_all_forms(step)]
    return tuple(dict.fromkeys((*specs, *packing_specs_for(steps, description, options))))


def packing_specs_for(
    steps: Sequence[TrainingStep], description: DeviceDescription, options: ProfileOptions
) -> list[OpSpec]:
    """Operations of packing, where storage is measured on a board that packs what it pages."""
    if not (options.storage and description.packs):
        return []
    return [spec for step in steps for spec in packing_specs(step)]


def measure_networks(
    description: DeviceDescription,
    networks: Sequence[ProfiledNetwork],
    specs: Sequence[OpSpec],
    plan: ExecutionPlan,
    *,
    places: Sequence[Path],
    options: ProfileOptions = _OPTIONS,
    progress: Callable[[str], None] = lambda _activity: None,
) -> DeviceProfile:
    """Measure operations by themselves, and watch the training step of each network.

    After an interruption, the same call continues from the finished trials and sittings.

    Args:
        description: The board.
        networks: The networks, as the profile states them.
        specs: The operations.
        plan: The step of the additivity check.
        places: Directories that hold raw trials, in a directory of their own; a new one is made in
            the first.
        options: How to measure.
        progress: Called with one line for each activity.

    Returns:
        The profile, which is also kept beside the trials.

    Raises:
        JoulewrightError: The board cannot be measured.
    """

    def show(event: ProgressEvent) -> None:
        progress(event.activity)

    with alone_with(description):
        directory = choose_run_directory(places, description, specs, plan, options)
        trials = RunDirectory(directory)
        watching = Watching(
            description, networks, options.storage_budget_bytes, trials.begin_watching()
        )
        profile = measure_and_watch(watching, specs, plan, options, directory, show)
        profile = watching.finished(profile, progress)
        trials.finish(profile)
        trials.end_watching()
        return profile


@dataclass(frozen=True)
class Watching:
    """Watches of the training steps of all networks of a profile.

    Attributes:
        description: The board.
        networks: The networks, as the profile states them.
        storage_budget_bytes: Most bytes that may be written to storage, by all networks together,
            of which each has an equal share.
        directory: Where finished sittings are kept and found.
    """

    description: DeviceDescription
    networks: Sequence[ProfiledNetwork]
    storage_budget_bytes: int
    directory: Path
    _begun: dict[ProfiledNetwork, Watch] = field(default_factory=dict, init=False)
    _failed: set[ProfiledNetwork] = field(default_factory=set, init=False)

    @property
    def can_run_ahead(self) -> bool:
        """Whether sittings can run between other measurements: a microcontroller has room for one
        program, which would be written for each of them."""
        return self.description.firmware is None

    def ahead(self, profile: DeviceProfile, share: float, progress: Callable[[str], None]) -> None:
        """Run the first sittings of every network.

        What cannot be watched is left to :meth:`finished`, which says why.

        Args:
            profile: Costs of the operations by themselves that are known by now.
            share: Share of the sittings that are finished afterwards.
            progress: Called with one line for each activity.
        """
        for network in self.networks:
            if network in self._failed:
                continue
            try:
                self._watch(network, profile, progress).sittings(share, profile, progress)
            except JoulewrightError:
                self._failed.add(network)

    def finished(self, profile: DeviceProfile, progress: Callable[[str], None]) -> DeviceProfile:
        """Run the other sittings, and return the profile with the costs of ops in their places.

        A step that cannot be watched is no reason to lose the profile: a note says why.

        Args:
            profile: Costs of the operations by themselves, all of them.
            progress: Called with one line for each activity.
        """
        for network in self.networks:
            try:
                costs = self._watch(network, profile, progress).costs(profile, progress)
            except NOT_WATCHED as error:
                note = f"The training step of {network.model} was not watched: {error}."
                profile = profile.changed(notes=(*profile.notes, note))
            else:
                profile = with_step_costs(profile, costs)
        return profile

    def _watch(
        self, network: ProfiledNetwork, profile: DeviceProfile, progress: Callable[[str], None]
    ) -> Watch:
        if network not in self._begun:
            self._begun[network] = Watch.of(
                self.description,
                network,
                profile,
                progress,
                storage_budget_bytes=self.storage_budget_bytes // len(self.networks),
                directory=self.directory,
            )
        return self._begun[network]


def measure_and_watch(
    watching: Watching,
    specs: Sequence[OpSpec],
    plan: ExecutionPlan | None,
    options: ProfileOptions,
    directory: Path,
    on_progress: OnProgress,
) -> DeviceProfile:
    """Measure operations by themselves, with sittings of the networks' steps after each block.

    Those after the last block are left to :meth:`Watching.finished`, and on a microcontroller all.

    Args:
        watching: The board, the networks and their watches.
        specs: The operations.
        plan: The step of the additivity check; None for none.
        options: How to measure.
        directory: Directory of the raw trials.
        on_progress: Called with every progress event.

    Returns:
        Costs of the operations by themselves.

    Raises:
        JoulewrightError: The board cannot be measured.
    """
    description = watching.description
    last = ProgressEvent("", 0.0, None)

    def show(event: ProgressEvent) -> None:
        nonlocal last
        last = replace(event, fraction=max(last.fraction, event.fraction))
        on_progress(last)

    def measure(blocks: range) -> DeviceProfile:
        return profile_device(
            description, specs, plan, options, directory, show, watching.networks, blocks
        )

    if not watching.can_run_ahead:
        return measure(range(options.blocks))
    for measured in range(1, options.blocks):
        try:
            profile = measure(range(measured - 1, measured))
        except TooFewTrials:
            continue  # later blocks may have what is lacking
        if options.storage and description.storage is not None and profile.storage is None:
            continue  # which schedules are watched depends on what transfers cost
        share = measured / options.blocks
        watching.ahead(profile, share, lambda what: show(replace(last, activity=what)))
    return measure(range(options.blocks - 1, options.blocks))
