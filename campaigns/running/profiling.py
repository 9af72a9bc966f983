"""Profiles of a campaign's boards: known ones are used, others are measured."""

from __future__ import annotations

import hashlib
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
from devices.profile import DeviceProfile
from devices.quantities import Slices
from devices.results import Results
from networks.kinds import Place
from networks.models import build_model, profiled_network
from networks.training.codecs import specs_in_all_forms
from networks.training.step import TrainingStep
from profiler.building.sources import KERNELS, read_sources, sources_hash
from profiler.run.options import ProfileOptions
from profiler.run.preview import ProfilePlan, plan_profile
from profiler.run.run import choose_run_directory, profile_device
from profiler.run.trials import RunDirectory
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
    """The profile of a board under a condition, for all networks that run there."""

    setting: Setting
    networks: tuple[ProfiledLevel, ...]
    options: ProfileOptions

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
        )

    @property
    def description(self) -> DeviceDescription:
        """The board's description. Slices have the values of whole layers only with the kernels'
        own matrix products, which are then measured."""
        description = self.setting.description
        assert description is not None, "a profile in place of a board is measured"
        has_slices = any(network.slices is not None for network in self.networks)
        return description.with_matmul("in-tree") if has_slices else description

    def steps(self) -> list[TrainingStep]:
        """The training steps whose operations are measured."""
        return [network.step() for network in self.networks]

    def specs(self) -> tuple[OpSpec, ...]:
        """The operations that are measured, each once."""
        steps = zip(self.networks, self.steps(), strict=True)
        return tuple(dict.fromkeys(spec for own, step in steps for spec in own.specs(step)))


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
    operations that are too large; then among the runs of the profiler, the last one first. None if
    there is none.
    """
    file = _file(job, directory)
    if file.is_file():
        return read_yaml(file, DeviceProfile)
    specs = set(job.specs())
    kept = directory.profiles.glob(f"{job.setting.name}.{_board_digest(job.description)}-*.yaml")
    for path in sorted(kept):
        in_campaign = read_yaml(path, DeviceProfile)
        if in_campaign.by_spec.keys() >= specs:
            return in_campaign
    runs = results.runs.glob(f"{job.description.name}.*")
    for path in sorted(runs, key=_time_of, reverse=True):
        with suppress(DocumentError):  # a damaged run is no reason to stop
            profile = _usable(job, RunDirectory(path))
            if profile is not None and profile.by_spec.keys() >= specs:
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


def preview(job: ProfileJob) -> ProfilePlan:
    """What measuring the profile takes, without reaching the board."""
    plan = unscheduled(job.networks[0].step())
    return plan_profile(job.description, job.specs(), plan, job.options)


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
    steps = job.steps()
    specs = job.specs()
    plan = unscheduled(steps[0])
    networks = [
        profiled_network(network.level.model, step)
        for network, step in zip(job.networks, steps, strict=True)
    ]
    trials = choose_run_directory([results.runs], job.description, specs, plan, job.options)
    return profile_device(job.description, specs, plan, job.options, trials, networks=networks)


def _digest(job: ProfileJob) -> str:
    keys = sorted(spec.key for spec in job.specs())
    of_operations = hashlib.sha256("\n".join(keys).encode()).hexdigest()[:_DIGITS]
    return f"{_board_digest(job.description)}-{of_operations}"


def _board_digest(description: DeviceDescription) -> str:
    kernels = sources_hash(read_sources(KERNELS), description.toolchain.flags)
    content = f"{description.model_dump_json()} {kernels}"
    return hashlib.sha256(content.encode()).hexdigest()[:_DIGITS]
