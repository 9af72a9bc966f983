"""Raw trials on disk: one file for each run of the harness on the board.

An undisturbed block has one harness run. A block that was cut off, or that had void windows, has
more, each with the windows that were still missing. A file is written as a whole at the end of its
harness run and never changed::

    run.json                    what was measured, where, with which code
    block-00.sitting-0.jsonl    a header, a line for each window, a closing line
    block-00.sitting-0.samples  the meter's samples, as they came from the board
    watching                    sittings of watched steps, as long as some are missing
    profile.yaml                the resulting profile, once the run is finished
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from devices.claims.claim import sole_user
from devices.documents.document import (
    DocumentError,
    StrictModel,
    dump_yaml,
    parse_json,
    read_json,
    read_text,
    read_yaml,
    validate,
    write_atomically,
)
from devices.errors import MeasurementInvalid
from devices.profile import BoardIdentity, Build, DeviceProfile, EnergySource, MatmulComparison
from devices.quantities import Count, NonNegative, Seed, WholeNumber

_NS_PER_S = 1e9


class Trial(StrictModel):
    """One window as measured.

    ``energy_j`` is all that the meter saw from ``start_ns`` to ``tail_end_ns``; absent without a
    meter or where the meter has too few samples. ``void`` is the reason why the trial must not be
    used, ``energy_void`` the reason why only its energy is unknown. ``temperature_mc``,
    ``throttled`` and ``cooling`` are as the board reported them at the end of the window.
    """

    window: str
    executions: Count
    start_ns: WholeNumber
    end_ns: WholeNumber
    tail_end_ns: WholeNumber
    running_ns: WholeNumber
    frequency_before_khz: WholeNumber = 0
    frequency_after_khz: WholeNumber = 0
    temperature_mc: int = 0
    throttled: int | None = None
    cooling: int | None = None
    tries: Count = 1
    energy_j: float | None = None
    energy_void: str | None = None
    void: str | None = None

    @property
    def time_s(self) -> float:
        """Processor time of one execution, without preemption."""
        return self.running_ns / self.executions / _NS_PER_S

    @property
    def length_s(self) -> float:
        """Length of the window by the clock."""
        return (self.end_ns - self.start_ns) / _NS_PER_S

    @property
    def tail_s(self) -> float:
        return (self.tail_end_ns - self.end_ns) / _NS_PER_S

    def execution_energy_j(self, idle_power_w: float = 0.0) -> float | None:
        """Energy of one execution; None if it is not known.

        While a medium settles, the board does nothing else, so that of the tail only the energy
        above idle belongs to the transfer. Preemption is left out in proportion to time.
        """
        if self.energy_j is None:
            return None
        energy_j = max(0.0, self.energy_j - idle_power_w * self.tail_s)
        return energy_j * (1.0 - self.preempted_share) / self.executions

    @property
    def preempted_share(self) -> float:
        length_ns = self.end_ns - self.start_ns
        return max(0.0, 1.0 - self.running_ns / length_ns) if length_ns else 0.0


class HarnessRunHeader(StrictModel):
    """Circumstances of one run of the harness.

    Attributes:
        sitting: Number of the run in its block; the name of the key in existing files.
        steal_share: Share of the time that a hypervisor took.
        throttled: Raspberry Pi's throttling bits before and after the run.
        cooled_s: Time that the board was given to cool down before the run.
        temperature_mc: Temperature at the start and at the end, in thousandths of a degree Celsius.
        is_direct: Whether transfers bypassed the page cache.
        written_bytes: Most bytes that can have been written to storage.
        erase_cycles: Most erasures of any one erase block.
        energy_source: Origin of the energies of its trials; absent without energies.
        interrupted: Whether windows are missing at the end.
    """

    schema_: Annotated[Literal["trials/1"], Field(alias="schema")] = "trials/1"
    block: WholeNumber
    sitting: WholeNumber
    started: str
    duration_s: NonNegative
    boot_id: str
    steal_share: NonNegative = 0.0
    throttled: tuple[int, int] | None = None
    cooled_s: NonNegative = 0.0
    temperature_mc: tuple[int, int] | None = None
    is_direct: bool | None = None
    written_bytes: WholeNumber = 0
    erase_cycles: WholeNumber = 0
    energy_source: EnergySource | None = None
    interrupted: bool = False


class Closing(StrictModel):
    """The last line of a harness run's file."""

    trials: WholeNumber


class HarnessRun(StrictModel):
    """One run of the harness with its trials."""

    header: HarnessRunHeader
    trials: tuple[Trial, ...]


class RunMetadata(StrictModel):
    """What all trials of a run have in common.

    Trials that differ in any of it are not mixed. ``transfers`` says how transfers are measured, if
    any are; earlier releases moved aligned memory without checksums, and state nothing.
    ``matmul_comparison`` is the comparison that decided on the build when the run began.
    """

    schema_: Annotated[Literal["profile-run/1"], Field(alias="schema")] = "profile-run/1"
    description: Mapping[str, Any]
    board: BoardIdentity
    build: Build
    operations: tuple[str, ...]
    step: str | None = None
    storage: bool
    transfers: Literal["as replays"] | None = None
    min_window_s: float
    seed: Seed
    matmul_comparison: MatmulComparison | None = None


_MEANINGS = {
    "description": "with another device description",
    "board": "on another board, or on this one with another kernel or governor",
    "build": "with another kernel library or compiler",
    "operations": "for another list of operations",
    "step": "for another training step",
    "storage": "with another choice of measuring storage",
    "transfers": "with transfers measured in another way, by another release",
    "min_window_s": "with another window length",
    "seed": "with another seed",
}


_PROFILE = "profile.yaml"
_CHOICE_S = 30.0


def next_run_directory(places: Sequence[Path], device: str, question: str) -> Path:
    """Directory for a run that asks ``question`` of a device: the last such run in the first of the
    ``places`` that has one, if it is unfinished, or else a new one in the first place. Programs
    that ask at the same time get the same one.

    Raises:
        JoulewrightError: No directory can be made there.
    """
    digest = hashlib.sha256(question.encode()).hexdigest()[:8]
    with sole_user(places[0], patience_s=_CHOICE_S):
        for place in places:
            runs = sorted(place.glob(f"{device}.{digest}.*"))
            if runs and not RunDirectory(runs[-1]).is_finished:
                return runs[-1]
            if runs:
                break
        new = places[0] / f"{device}.{digest}.{datetime.now(UTC):%Y%m%dT%H%M%S.%f}"
        new.mkdir()
        return new


class RunDirectory:
    """The trials of one run, in a directory of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def metadata(self) -> RunMetadata | None:
        """Metadata of the run that was begun here; None before that."""
        return read_json(self._metadata_file, RunMetadata) if self._metadata_file.exists() else None

    def claim(self, metadata: RunMetadata) -> RunMetadata:
        """Begin a run here or continue one, and return its metadata. Raises
        :class:`~devices.errors.MeasurementInvalid` if the existing trials were measured under other
        circumstances."""
        before = self.metadata()
        if before is None:
            write_atomically(self._metadata_file, _json(metadata, indent=1) + "\n")
            return metadata
        for name, meaning in _MEANINGS.items():
            if getattr(before, name) != getattr(metadata, name):
                raise MeasurementInvalid(
                    f"{self.path}: its trials were measured {meaning}"
                    f" ({_first_difference(getattr(before, name), getattr(metadata, name))});"
                    " they cannot be continued. Remove that directory, or name another one"
                )
        return before

    @property
    def _metadata_file(self) -> Path:
        return self.path / "run.json"

    @property
    def is_finished(self) -> bool:
        """Whether there is a profile, or nothing was to be profiled, and nothing left to watch."""
        is_done = (self.path / _PROFILE).exists() or self._watched.exists()
        return is_done and not self.watching.exists()

    @property
    def watching(self) -> Path:
        """Directory for the sittings of watched steps, while some are missing."""
        return self.path / "watching"

    def begin_watching(self) -> Path:
        """State that steps are to be watched before the run is finished, and return where."""
        if self._watched.exists():
            self._watched.replace(self.watching)
        self.watching.mkdir(exist_ok=True)
        return self.watching

    def end_watching(self) -> None:
        """State that all steps have been watched."""
        self.watching.replace(self._watched)

    @property
    def _watched(self) -> Path:
        return self.path / "watched"

    def harness_runs(self) -> list[HarnessRun]:
        """Harness runs in the order in which they were measured. Raises
        :class:`~devices.documents.document.DocumentError` for a damaged file."""
        found = sorted(self.path.glob("block-*.sitting-*.jsonl"), key=_natural)
        return [_read_harness_run(file) for file in found]

    def profile(self) -> DeviceProfile | None:
        """The profile that was made from the trials; None if the run is unfinished."""
        file = self.path / _PROFILE
        return read_yaml(file, DeviceProfile) if file.exists() else None

    def finish(self, profile: DeviceProfile) -> None:
        """Save the profile beside the trials that it was made from."""
        write_atomically(self.path / _PROFILE, dump_yaml(profile))

    def add(self, harness_run: HarnessRun, samples: str) -> None:
        """Save a harness run. Raises :class:`OSError` and then changes nothing."""
        name = f"block-{harness_run.header.block:02d}.sitting-{harness_run.header.sitting}"
        if samples:
            write_atomically(self.path / f"{name}.samples", samples)
        lines = [_json(harness_run.header), *map(_json, harness_run.trials)]
        lines.append(_json(Closing(trials=len(harness_run.trials))))
        write_atomically(self.path / f"{name}.jsonl", "\n".join(lines) + "\n")


def _json(model: StrictModel, indent: int | None = None) -> str:
    return model.model_dump_json(by_alias=True, exclude_none=True, indent=indent)


def _natural(path: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", path.name)]


def _read_harness_run(file: Path) -> HarnessRun:
    lines = read_text(file).splitlines()
    documents = list(_documents(file, lines))
    if not documents or set(documents[-1][1]) != {"trials"}:
        raise _damaged(file, "it is cut off")
    header = validate(documents[0][1], HarnessRunHeader, f"{file}: line 1")
    trials = tuple(
        validate(document, Trial, f"{file}: line {number}") for number, document in documents[1:-1]
    )
    closing = validate(documents[-1][1], Closing, f"{file}: last line")
    if closing.trials != len(trials):
        raise _damaged(file, f"it holds {len(trials)} of {closing.trials} trials")
    return HarnessRun(header=header, trials=trials)


def _documents(file: Path, lines: Sequence[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(lines, start=1):
        try:
            document = parse_json(line, f"line {number}")
        except DocumentError as error:
            raise _damaged(file, str(error)) from None
        if not isinstance(document, dict):
            raise _damaged(file, f"line {number} is not a JSON object")
        yield number, document


def _damaged(file: Path, what: str) -> DocumentError:
    return DocumentError(
        f"{file}: the file of trials is damaged: {what}. Remove it; its windows are then measured"
        " again"
    )


def _first_difference(before: object, now: object) -> str:
    if isinstance(before, StrictModel) and isinstance(now, StrictModel):
        return _first_difference(before.model_dump(mode="json"), now.model_dump(mode="json"))
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in [*before, *now]:
            if before.get(key) != now.get(key):
                return f"{key}: {_first_difference(before.get(key), now.get(key))}"
    if isinstance(before, tuple) and isinstance(now, tuple):
        return f"{len(set(before) ^ set(now))} of them differ"
    return f"{before} before, {now} now"
