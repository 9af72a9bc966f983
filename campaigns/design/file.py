"""CampaignFile (``campaign/1``): everything that a campaign measures, in one file.

A campaign crosses its factors: boards, conditions, networks, batches, RAM budgets, deadlines and
methods. Each combination that ``exclude`` does not name is a *cell*.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from devices.description import Storage
from devices.documents.document import StrictModel
from devices.documents.explain import choices
from devices.meters import Meter
from devices.operation import Loss
from devices.quantities import Count, Line, Name, Positive, Seed, StatedSlices
from networks.kinds import Optimizer, Place
from solver.baselines.names import BASELINE_NAMES
from solver.options import Coverage, FormulationName, Order
from solver.problem.quantities import parse_deadline_s, parse_ram_bytes, parse_slices
from solver.requests.request import CodecWord

AS_DESCRIBED = "as-described"
"""Name of the condition that changes nothing of a board's description."""

NO_DEADLINE = "none"
"""Word for no deadline, among ``deadlines``."""

SOLVED = "joulewright"
"""Name of this project's solver as a method; every other method is a baseline."""

MOST_CELLS = 100_000
"""Most combinations of a campaign's levels, those that ``exclude`` leaves out included."""

MOST_REPLAYS = 1_000_000
"""Most replays of a campaign: combinations × repetitions."""

_MOST_REPETITIONS = 10_000
_MOST_STEPS = 1_000_000
_MOST_BLOCKS = 10_000
_MOST_EXCLUSIONS = 1000
_LONGEST_SEARCH_S = 1e7  # four months
_KEY_OF_WORD = {"boards": "device", "networks": "model", "methods": "method"}
_OF_EVERY_METHOD = frozenset({"method", "label", "time_limit_s"})
_LONGEST_SLUG = 60
_ANY_BYTES, _ANY_S = 1 << 30, 1.0


def _checked_budget(word: str) -> str:
    parse_ram_bytes(word, _ANY_BYTES)
    return word


def _checked_deadline(word: str) -> str:
    if word != NO_DEADLINE:
        parse_deadline_s(word, _ANY_S)
    return word


def _slices(word: object) -> object:
    return parse_slices(word) if isinstance(word, str) else word


def _below_the_file(word: str) -> str:
    path = PurePosixPath(word)
    if path.is_absolute() or ".." in path.parts or word.startswith("~") or "\\" in word:
        raise ValueError(
            f"found {word!r}; allowed: a name, or a path that is relative to the campaign's file"
            " and stays below its directory"
        )
    return word


Slug: TypeAlias = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]*$", max_length=_LONGEST_SLUG)]
"""Name that is also part of file names."""
Word: TypeAlias = Annotated[Name, AfterValidator(_below_the_file)]
"""Name of something, or the path of a file below the directory of the campaign's file."""
PlaceName: TypeAlias = Annotated[
    str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$", max_length=100)
]
"""Name of a labgrid place; neither an option of a program nor a pattern of several places."""
RamWord: TypeAlias = Annotated[Name, AfterValidator(_checked_budget)]
DeadlineWord: TypeAlias = Annotated[Name, AfterValidator(_checked_deadline)]


SlicesWord: TypeAlias = Annotated[StatedSlices, BeforeValidator(_slices)]
"""Limits of parts: bytes, a size such as ``64KiB``, or two (``64KiB:16KiB``)."""


class BoardChoice(StrictModel):
    """A board, by its description or by its profile; a plain word is a description.

    ``device`` is a name of the catalogue or the path of a description. ``profile`` is the name of a
    published or measured profile, or the path of one: its schedules are solved and not run.
    ``exclude`` may name boards by their ``tags``. ``place`` is the labgrid place that is acquired
    while the board is used.
    """

    device: Word | None = None
    profile: Word | None = None
    tags: tuple[Slug, ...] = ()
    place: PlaceName | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> BoardChoice:
        if (self.device is None) == (self.profile is None):
            raise ValueError("a board needs either device or profile")
        if self.place is not None and self.profile is not None:
            raise ValueError("place: a profile is not run, and needs no place")
        return self


class Condition(StrictModel):
    """Changes of every board's description; what is absent stays as described.

    ``flags`` are those of the board's compiler.
    """

    name: Slug
    governor: Name | None = None
    frequency_hz: Positive | None = None
    compiler: Name | None = None
    flags: tuple[Line, ...] | None = None
    storage: Storage | None = None
    meter: Meter | None = None


class NetworkChoice(StrictModel):
    """A network and how it is trained; a plain word is its model.

    ``model`` is built in, or a file ``*.pt2`` or ``*.onnx``, or ``net.py:FUNCTION``. ``label``
    names it in tables, as ``batches`` replace those of the campaign.
    """

    model: Word
    label: Slug | None = None
    batches: Annotated[tuple[Count, ...], Field(min_length=1)] | None = None
    optimizer: Optimizer = "sgd"
    parameters_in: Place = "ram"
    loss: Loss | None = None
    train: tuple[Name, ...] | None = None
    accumulate: Count = 1
    lora: Name | None = None

    @property
    def name(self) -> str:
        """Name of the network in cells and tables."""
        return self.label or slug(PurePosixPath(self.model).name)


class MethodChoice(StrictModel):
    """A method of finding schedules: ``joulewright`` with its options, or a baseline by name.

    ``time_limit_s`` holds for each schedule. ``label`` tells methods of the same name apart.
    ``slices`` limit the parts of weights and activations; without it, all layers are whole.
    ``codecs``: whether the backward pass reads codes of activations, as in ``solve``; absent:
    ``none``.
    """

    method: Name
    label: Slug | None = None
    time_limit_s: Annotated[float, Field(gt=0, le=_LONGEST_SEARCH_S)] = 60.0
    gap: Annotated[float, Field(ge=0, lt=1)] = 0.001
    formulation: FormulationName = "auto"
    order: Order = "auto"
    paging: bool = True
    rematerialization: bool = True
    slices: SlicesWord | None = None
    codecs: CodecWord | None = None

    @model_validator(mode="after")
    def _known(self) -> MethodChoice:
        if self.method != SOLVED and self.method not in BASELINE_NAMES:
            known = [SOLVED, *BASELINE_NAMES]
            raise ValueError(f"no method {self.method!r}; {choices(self.method, known)}")
        own = {
            name
            for name, field in type(self).model_fields.items()
            if name not in _OF_EVERY_METHOD and getattr(self, name) != field.default
        }
        if self.method != SOLVED and own:
            raise ValueError(
                f"{', '.join(sorted(own))}: only {SOLVED} has these options, {self.method} does not"
            )
        return self

    @property
    def has_codecs(self) -> bool:
        """Whether steps with codecs are solved."""
        return self.codecs not in (None, "none")

    @property
    def name(self) -> str:
        """Name of the method in cells and tables."""
        return self.label or self.method


class Exclusion(StrictModel):
    """Cells that are left out: those that every stated key fits.

    Each key lists names of levels. A board is also named by its tags.
    """

    boards: tuple[Name, ...] | None = None
    conditions: tuple[Name, ...] | None = None
    networks: tuple[Name, ...] | None = None
    batches: tuple[Count, ...] | None = None
    ram_budgets: tuple[Name, ...] | None = None
    deadlines: tuple[Name, ...] | None = None
    methods: tuple[Name, ...] | None = None

    @model_validator(mode="after")
    def _states_something(self) -> Exclusion:
        if not self.model_fields_set:
            raise ValueError("an entry without keys would exclude everything; name some level")
        return self


class CampaignFile(StrictModel):
    """What a campaign measures.

    Attributes:
        name: Name of the campaign, and of its directory.
        boards: Boards and profiles.
        conditions: Conditions under which each board with a description is measured.
        networks: Networks to train.
        batches: Samples in a step of the networks that state none themselves; if absent, one, or as
            many as a network's file has.
        ram_budgets: RAM budgets: sizes, or shares of the unconstrained peak.
        budget_covers: Tensors that count against the RAM budgets.
        deadlines: Deadlines: seconds, multiples of the unconstrained time, or ``none``.
        methods: Methods that find the schedules.
        repetitions: How often each schedule is run.
        steps: Training steps of one replay.
        profile_blocks: Blocks of a profile that must be measured.
        watch_steps: Whether a profile that is measured also watches the step of each network, for
            the cost of each operation in its place.
        attempts: How often a solve, a profile or a replay that fails is tried.
        seed: Seed of the order of replays and of the choice of control replays.
        exclude: Cells to leave out.
    """

    schema_: Annotated[Literal["campaign/1"], Field(alias="schema")]
    name: Slug
    boards: Annotated[tuple[BoardChoice, ...], Field(min_length=1)]
    conditions: tuple[Condition, ...] = ()
    networks: Annotated[tuple[NetworkChoice, ...], Field(min_length=1)]
    batches: Annotated[tuple[Count, ...], Field(min_length=1)] | None = None
    ram_budgets: Annotated[tuple[RamWord, ...], Field(min_length=1)]
    budget_covers: Coverage = "all"
    deadlines: Annotated[tuple[DeadlineWord, ...], Field(min_length=1)] = (NO_DEADLINE,)
    methods: Annotated[tuple[MethodChoice, ...], Field(min_length=1)] = (
        MethodChoice(method=SOLVED),
    )
    repetitions: Annotated[int, Field(ge=1, le=_MOST_REPETITIONS)] = 5
    steps: Annotated[int, Field(ge=1, le=_MOST_STEPS)] = 10
    profile_blocks: Annotated[int, Field(ge=1, le=_MOST_BLOCKS)] = 5
    watch_steps: bool = True
    attempts: Annotated[int, Field(ge=1, le=100)] = 3
    seed: Seed = 0
    exclude: Annotated[tuple[Exclusion, ...], Field(max_length=_MOST_EXCLUSIONS)] = ()

    @property
    def combinations(self) -> int:
        """Number of combinations of the levels, before any is excluded."""
        settings = sum(
            1 if board.device is None else max(1, len(self.conditions)) for board in self.boards
        )
        batches = sum(len(each.batches or self.batches or (None,)) for each in self.networks)
        schedules = len(self.ram_budgets) * len(self.deadlines) * len(self.methods)
        return settings * batches * schedules

    @classmethod
    def converted(cls, data: object) -> object:
        """Convert plain words among the levels to the mappings for which they stand."""
        if not isinstance(data, dict):
            return data
        levels = {
            factor: [{key: level} if isinstance(level, str) else level for level in data[factor]]
            for factor, key in _KEY_OF_WORD.items()
            if isinstance(data.get(factor), list)
        }
        return {**data, **levels}

    @model_validator(mode="after")
    def _can_be_enumerated(self) -> CampaignFile:
        cells = self.combinations
        if cells > MOST_CELLS:
            raise ValueError(
                f"the levels have {cells:,} combinations before exclude, at most {MOST_CELLS:,} are"
                " allowed; make several campaigns of it"
            )
        if cells * self.repetitions > MOST_REPLAYS:
            raise ValueError(
                f"{cells:,} combinations of levels before exclude are run {self.repetitions:,}"
                f" times each, at most {MOST_REPLAYS:,} replays are allowed; make several campaigns"
                " of it"
            )
        return self

    @model_validator(mode="after")
    def _distinct(self) -> CampaignFile:
        for factor, names in (
            ("conditions", [condition.name for condition in self.conditions]),
            ("networks", [network.name for network in self.networks]),
            ("methods", [method.name for method in self.methods]),
            ("batches", self.batches or ()),
            ("ram_budgets", self.ram_budgets),
            ("deadlines", self.deadlines),
        ):
            for name in _repeated(names):
                raise ValueError(f"{factor}: {name} is there twice; give one of them a label")
        return self


def slug(name: str) -> str:
    """A name as it may stand in file names: nothing else of it, and not too long."""
    kept = re.sub(r"[^a-z0-9._-]+", "-", name.lower()).lstrip("._-")
    return kept[:_LONGEST_SLUG] or "unnamed"


def _repeated(names: Iterable[object]) -> list[object]:
    return [name for name, count in Counter(names).items() if count > 1]
