"""Profiles of networks' training steps, measured op by op and then as a whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from devices.description import DeviceDescription
from devices.errors import BuildFailed, InputError, MeasurementInvalid, RequestRefused
from devices.profile import DeviceProfile, ProfiledNetwork
from networks.models import build_model, profiled_network
from networks.training.codecs import specs_in_all_forms
from networks.training.packing import packing_specs
from profiler.opening.boards import alone_with
from profiler.run.options import ProfileOptions
from profiler.run.run import ProgressEvent, choose_run_directory, profile_device
from profiler.run.trials import RunDirectory
from replay.costs.context import with_step_costs
from replay.costs.watch import watch_some, watch_step
from replay.lowering.lowering import unscheduled
from replay.running.failure import ReplayFailed

if TYPE_CHECKING:
    from devices.operation import OpSpec
    from devices.plan import ExecutionPlan
    from networks.kinds import Optimizer
    from networks.training.step import TrainingStep

_OPTIONS = ProfileOptions()

# Why a step cannot be watched, which is no reason to lose the costs of operations by themselves.
_NOT_WATCHED = (BuildFailed, InputError, MeasurementInvalid, RequestRefused, ReplayFailed)


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

    Every operation is measured by itself, then the step is watched, for the cost of each op in its
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
    """Measure operations by themselves, then watch the training step of each network.

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
        sittings = trials.begin_watching()
        profile = profile_device(description, specs, plan, options, directory, show, networks)
        profile = watched(
            description,
            networks,
            profile,
            progress,
            storage_budget_bytes=options.storage_budget_bytes,
            directory=sittings,
        )
        trials.finish(profile)
        trials.end_watching()
        return profile


def watched(
    description: DeviceDescription,
    networks: Sequence[ProfiledNetwork],
    profile: DeviceProfile,
    progress: Callable[[str], None],
    *,
    storage_budget_bytes: int,
    directory: Path,
) -> DeviceProfile:
    """Watch the training step of each network, and add the costs of its ops in their places.

    A step that cannot be watched is no reason to lose the profile: a note says why.

    Args:
        description: The board.
        networks: The networks, as the profile states them.
        profile: Costs of the operations by themselves.
        progress: Called with one line for each activity.
        storage_budget_bytes: Most bytes that may be written to storage, by all networks together,
            of which each has an equal share.
        directory: Where finished sittings are kept and found.
    """
    for network in networks:
        try:
            costs = watch_step(
                description,
                network,
                profile,
                progress,
                storage_budget_bytes=storage_budget_bytes // len(networks),
                directory=directory,
            )
        except _NOT_WATCHED as error:
            note = f"The training step of {network.model} was not watched: {error}."
            profile = profile.changed(notes=(*profile.notes, note))
        else:
            profile = with_step_costs(profile, costs)
    return profile


def watch_ahead(
    description: DeviceDescription,
    networks: Sequence[ProfiledNetwork],
    profile: DeviceProfile,
    progress: Callable[[str], None],
    *,
    share: float,
    storage_budget_bytes: int,
    directory: Path,
) -> None:
    """Run a share of the sittings that :func:`watched` will find, so that they are apart in time.

    What cannot be watched is left to :func:`watched`, which says why.

    Args:
        description: The board.
        networks: The networks, as the profile states them.
        profile: Costs of the operations by themselves; operations of the networks may not change.
        progress: Called with one line for each activity.
        share: Share of the sittings of each schedule that are finished afterwards.
        storage_budget_bytes: Most bytes that may be written to storage, as for :func:`watched`.
        directory: Where finished sittings are kept.
    """
    for network in networks:
        with suppress(*_NOT_WATCHED):
            watch_some(
                description,
                network,
                profile,
                progress,
                share=share,
                storage_budget_bytes=storage_budget_bytes // len(networks),
                directory=directory,
            )
