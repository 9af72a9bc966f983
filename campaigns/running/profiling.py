"""Profiles of a campaign's boards: known ones are used, others are measured."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from campaigns.design.cells import Design, NetworkLevel
from campaigns.design.file import CampaignFile
from campaigns.design.settings import Setting
from campaigns.keeping.directory import CampaignDirectory
from campaigns.running.places import at_place
from devices.description import DeviceDescription
from devices.documents.document import DocumentError, dump_yaml, read_yaml, write_atomically
from devices.operation import OpSpec
from devices.profile import DeviceProfile, ProfiledNetwork
from devices.quantities import Slices
from devices.results import Results
from networks.kinds import Place
from networks.models import build_model, profiled_network
from networks.training.codecs import specs_in_all_forms
from networks.training.step import TrainingStep
from profiler.building.sources import KERNELS, read_sources, sources_hash
from profiler.run.options import ProfileOptions
from profiler.run.preview import guessed_execution_s, plan_profile
from profiler.run.run import choose_run_directory, profile_device
from profiler.run.trials import RunDirectory
from replay.costs.measuring import measure_networks, packing_specs_for
from replay.costs.watch import watching_s
from replay.lowering.lowering import unscheduled

_DIGITS = 8


@dataclass(frozen=True)
class ProfiledLevel:
    """A network whose operations are measured, in slices or with whole layers.

    ``codecs``: those of the step with codecs are measured, too.
    """

    level: NetworkLevel
    batch: int | None
    slices: Slices | None
    codecs: bool

    def step(self) -> TrainingStep:
        """The training step, without codecs. Raises :class:`InputError`."""
        return step_of(self.level, self.batch, "ram", self.slices)

    def specs(self, step: TrainingStep) -> tuple[OpSpec, ...]:
        """The operations of its step that are measured."""
        return specs_in_all_forms(step) if self.codecs else step.costed_specs


@dataclass(frozen=True)
class ProfileJob:
    """The profile of a board under a condition, for all networks that run there.

    ``watches``: the step of each network is watched, too, as :mod:`replay.costs.watch` does.
    """

    setting: Setting
    networks: tuple[ProfiledLevel, ...]
    options: ProfileOptions
    watches: bool

    @classmethod
    def of(cls, setting: Setting, design: Design, file: CampaignFile) -> ProfileJob:
        """The profile that a setting's cells need."""
        levels: dict[tuple[str, int | None, Slices | None], bool] = {}
        for cell in design.cells:
            if design.setting_of(cell) is setting:
                method = design.method_by_name[cell.method]
                level = cell.network, cell.batch, method.slices
                levels[level] = levels.get(level, False) or method.has_codecs
        storage = None if setting.description is None else setting.description.storage
        return cls(
            setting=setting,
            networks=tuple(
                ProfiledLevel(design.network_by_name[name], batch, slices, codecs)
                for (name, batch, slices), codecs in levels.items()
            ),
            # Raw flash is overwritten on a person's order only: profile --overwrite-raw-flash.
            options=ProfileOptions(
                blocks=file.profile_blocks,
                seed=file.seed,
                storage=storage is not None and storage.mtd_partition is None,
                leave_out=True,  # one network that is too large must not end all others
            ),
            watches=file.watch_steps,
        )

    @property
    def description(self) -> DeviceDescription:
        """The description with which the board is profiled, and its schedules are run."""
        in_slices = any(network.slices is not None for network in self.networks)
        return self.setting.measured(in_slices=in_slices)

    def steps(self) -> list[TrainingStep]:
        """The training steps whose operations are measured."""
        return [network.step() for network in self.networks]

    def profiled(self, steps: Sequence[TrainingStep]) -> list[ProfiledNetwork]:
        """The networks, whose ``steps`` these are, as the profile states them."""
        return [
            profiled_network(network.level.model, step)
            for network, step in zip(self.networks, steps, strict=True)
        ]

    def specs(self, steps: Sequence[TrainingStep]) -> tuple[OpSpec, ...]:
        """The operations of its ``steps`` that are measured, each once.

        Those of packing are of use only if watched steps tell how many zeros there are.
        """
        specs = [
            spec for own, step in zip(self.networks, steps, strict=True) for spec in own.specs(step)
        ]
        if self.watches:
            specs += packing_specs_for(steps, self.description, self.options)
        return tuple(dict.fromkeys(specs))


def step_of(
    level: NetworkLevel,
    batch: int | None,
    parameters_in: Place,
    slices: Slices | None,
    *,
    codecs: bool = False,
) -> TrainingStep:
    """Build the training step of a network of a campaign, whose parameters have a home of choice.

    Raises:
        InputError: The network cannot be built.
    """
    choice = level.choice
    return build_model(
        level.model,
        batch,
        choice.optimizer,
        parameters_in,
        loss=choice.loss,
        train=choice.train,
        accumulate=choice.accumulate,
        lora=choice.lora,
        slices=slices,
        codecs=codecs,
    )


def known_profile(
    job: ProfileJob, directory: CampaignDirectory, results: Results
) -> DeviceProfile | None:
    """A profile of the same board, kernels and operations that was measured before.

    It is looked for in the campaign, where one that was measured for this very job may lack
    operations that are too large; then among the runs of the profiler, the last one first, whose
    steps must have been watched if the job's are. None if there is none.
    """
    file = _file(job, directory)
    if file.is_file():
        return read_yaml(file, DeviceProfile)
    steps = job.steps()
    specs = set(job.specs(steps))
    watched = set(job.profiled(steps)) if job.watches else set()
    kept = directory.profiles.glob(f"{job.setting.name}.{_digest_of_measuring(job)}-*.yaml")
    for path in sorted(kept):
        in_campaign = read_yaml(path, DeviceProfile)
        if in_campaign.by_spec.keys() >= specs:
            return in_campaign
    runs = results.runs.glob(f"{job.description.name}.*")
    for path in sorted(runs, key=_time_of, reverse=True):
        with suppress(DocumentError):  # a damaged run is no reason to stop
            profile = _usable(job, RunDirectory(path))
            if (
                profile is not None
                and profile.by_spec.keys() >= specs
                and {each.network for each in profile.step_costs} >= watched
            ):
                return profile
    return None


def _time_of(run: Path) -> str:
    """When a run began, which is in the name of its directory after device and question."""
    return run.name.split(".", 2)[-1]


def _usable(job: ProfileJob, run: RunDirectory) -> DeviceProfile | None:
    """The profile of a finished run of the same board with the same kernels; None otherwise."""
    begun = run.metadata()
    asked = job.description.model_dump(mode="json", by_alias=True, exclude_none=True)
    if begun is None or begun.description != asked or begun.storage != job.options.storage:
        return None
    kernels = sources_hash(read_sources(KERNELS), begun.build.flags)
    profile = run.profile() if begun.build.kernels_sha256 == kernels else None
    if profile is None:
        return None
    tried = min(op.warm.trials + op.warm.void_trials for op in profile.operations)
    return profile if tried >= job.options.blocks else None


@dataclass(frozen=True)
class ProfileEstimate:
    """What measuring a profile takes: time, and the most bytes that are written to storage."""

    time_s: float
    written_bytes: int


def estimate_profile(job: ProfileJob) -> ProfileEstimate:
    """What measuring the profile takes, without reaching the board."""
    description, steps = job.description, job.steps()
    plan = plan_profile(description, job.specs(steps), unscheduled(steps[0]), job.options)
    time_s = plan.estimated_s
    written_bytes = 0 if plan.storage is None else plan.storage.written_bytes
    if job.watches:
        for step in steps:
            step_s = math.fsum(guessed_execution_s(op.spec, description) for op in step.ops)
            time_s += watching_s(step_s)
        if plan.storage is not None:
            written_bytes += job.options.storage_budget_bytes
    return ProfileEstimate(time_s, written_bytes)


def make_profile(job: ProfileJob, directory: CampaignDirectory, results: Results) -> str:
    """Find or measure a profile, and keep it in the campaign.

    Args:
        job: What to measure.
        directory: The campaign.
        results: Where the runs of the profiler are kept.

    Returns:
        The profile's file, relative to the campaign's directory.

    Raises:
        JoulewrightError: The board cannot be measured.
    """
    profile = known_profile(job, directory, results)
    if profile is None:
        with at_place(job.setting.place):
            profile = _measured(job, results)
    file = _file(job, directory)
    if not file.is_file():
        write_atomically(file, dump_yaml(profile))
    return str(file.relative_to(directory.path))


def _file(job: ProfileJob, directory: CampaignDirectory) -> Path:
    return directory.profiles / f"{job.setting.name}.{_digest(job)}.yaml"


def _measured(job: ProfileJob, results: Results) -> DeviceProfile:
    places, description, options = [results.runs], job.description, job.options
    steps = job.steps()
    specs, networks, plan = job.specs(steps), job.profiled(steps), unscheduled(steps[0])
    if job.watches:
        return measure_networks(description, networks, specs, plan, places=places, options=options)
    trials = choose_run_directory(places, description, specs, plan, options)
    return profile_device(description, specs, plan, options, trials, networks=networks)


def _digest(job: ProfileJob) -> str:
    keys = sorted(spec.key for spec in job.specs(job.steps()))
    of_operations = hashlib.sha256("\n".join(keys).encode()).hexdigest()[:_DIGITS]
    return f"{_digest_of_measuring(job)}-{of_operations}"


def _digest_of_measuring(job: ProfileJob) -> str:
    """Digest of the board, the kernels and how they are measured: of all but the operations."""
    kernels = sources_hash(read_sources(KERNELS), job.description.toolchain.flags)
    content = f"{job.description.model_dump_json()} {kernels} {job.options.blocks} {job.watches}"
    return hashlib.sha256(content.encode()).hexdigest()[:_DIGITS]
