"""Profiles of a campaign's boards: known ones are used, others are measured."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from campaigns.design.cells import Design, NetworkLevel
from campaigns.design.file import CampaignFile
from campaigns.design.settings import Setting
from campaigns.keeping.directory import CampaignDirectory
from devices.description import DeviceDescription
from devices.documents.document import DocumentError, dump_yaml, read_yaml, write_atomically
from devices.operation import OpSpec
from devices.profile import DeviceProfile, ProfiledNetwork
from devices.results import Results
from networks.kinds import Place
from networks.models import build_model
from networks.training.step import TrainingStep
from profiler.building.toolchain import KERNELS, read_sources, sources_hash
from profiler.run.options import ProfileOptions
from profiler.run.preview import ProfilePlan, plan_profile
from profiler.run.run import choose_run_directory, profile_device
from profiler.run.trials import RunDirectory
from replay.lowering.lowering import unscheduled

_DIGITS = 8


@dataclass(frozen=True)
class ProfileJob:
    """The profile of a board under a condition, for all networks that run there."""

    setting: Setting
    networks: tuple[tuple[NetworkLevel, int | None], ...]
    options: ProfileOptions

    @classmethod
    def of(cls, setting: Setting, design: Design, file: CampaignFile) -> ProfileJob:
        """The profile that a setting's cells need."""
        pairs = dict.fromkeys(
            (cell.network, cell.batch)
            for cell in design.cells
            if design.setting_of(cell) is setting
        )
        storage = None if setting.description is None else setting.description.storage
        return cls(
            setting=setting,
            networks=tuple((design.network_by_name[name], batch) for name, batch in pairs),
            # Raw flash is overwritten on a person's order only: profile --overwrite-raw-flash.
            options=ProfileOptions(
                blocks=file.profile_blocks,
                seed=file.seed,
                storage=storage is not None and storage.mtd_partition is None,
            ),
        )

    @property
    def description(self) -> DeviceDescription:
        """The board's description."""
        assert self.setting.description is not None, "a profile in place of a board is measured"
        return self.setting.description

    def steps(self) -> list[TrainingStep]:
        """The training steps whose operations are measured."""
        return [step_of(level, batch, "ram") for level, batch in self.networks]


def step_of(level: NetworkLevel, batch: int | None, parameters_in: Place) -> TrainingStep:
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
    )


def known_profile(
    job: ProfileJob, directory: CampaignDirectory, results: Results
) -> DeviceProfile | None:
    """A profile of the same board, kernels and operations that was measured before.

    It is looked for in the campaign, then among the runs of the profiler, the last one first. None
    if there is none.
    """
    specs = _specs(job.steps()).keys()
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
    steps = job.steps()
    return plan_profile(job.description, list(_specs(steps)), unscheduled(steps[0]), job.options)


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
    profile = known_profile(job, directory, results) or _measured(job, results)
    file = directory.profiles / f"{job.setting.name}.{_digest(job)}.yaml"
    if not file.is_file():
        write_atomically(file, dump_yaml(profile))
    return str(file.relative_to(directory.path))


def _measured(job: ProfileJob, results: Results) -> DeviceProfile:
    steps = job.steps()
    specs = list(_specs(steps))
    plan = unscheduled(steps[0])
    networks = [
        ProfiledNetwork(
            model=level.model,
            batch=step.batch,
            optimizer=step.optimizer,
            loss=step.loss,
            train=step.train,
            accumulate=step.accumulate if step.accumulate > 1 else None,
            lora=step.lora,
        )
        for (level, _), step in zip(job.networks, steps, strict=True)
    ]
    trials = choose_run_directory([results.runs], job.description, specs, plan, job.options)
    return profile_device(job.description, specs, plan, job.options, trials, networks=networks)


def _digest(job: ProfileJob) -> str:
    keys = sorted(spec.key for spec in _specs(job.steps()))
    of_operations = hashlib.sha256("\n".join(keys).encode()).hexdigest()[:_DIGITS]
    return f"{_board_digest(job.description)}-{of_operations}"


def _board_digest(description: DeviceDescription) -> str:
    kernels = sources_hash(read_sources(KERNELS), description.toolchain.flags)
    content = f"{description.model_dump_json()} {kernels}"
    return hashlib.sha256(content.encode()).hexdigest()[:_DIGITS]


def _specs(steps: Iterable[TrainingStep]) -> dict[OpSpec, None]:
    return dict.fromkeys(_each_spec(steps))


def _each_spec(steps: Iterable[TrainingStep]) -> Iterator[OpSpec]:
    for step in steps:
        yield from step.distinct_specs
