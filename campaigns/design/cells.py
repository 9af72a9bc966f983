"""Cells of a campaign: each combination of its factors that is not excluded, with its hash."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from campaigns.design.below import file_below
from campaigns.design.file import (
    AS_DESCRIBED,
    CampaignFile,
    Condition,
    Exclusion,
    MethodChoice,
    NetworkChoice,
    Slug,
)
from campaigns.design.settings import Setting, settings_of
from devices.documents.document import StrictModel
from devices.documents.explain import choices
from devices.documents.readable import printable
from devices.errors import InputError
from devices.quantities import Count, Label
from devices.results import Results
from networks.models import file_sha256, model_names
from profiler.building.sources import EXECUTOR, KERNELS, read_sources, sources_hash
from solver.options import Coverage

_HASH_DIGITS = 16
_FACTORS = {
    "boards": "board",
    "conditions": "condition",
    "networks": "network",
    "batches": "batch",
    "ram_budgets": "ram_budget",
    "deadlines": "deadline",
    "methods": "method",
}
"""Keys of an entry of ``exclude``, with the level of a cell that each lists names of."""


class Cell(StrictModel):
    """One combination of a campaign's factors, by the names of their levels.

    ``hash`` is of everything that the cell's result depends on: description or profile, sources of
    the kernels, network, method with its options, steps of a replay. ``batch`` is None for the
    network's own.
    """

    hash: Annotated[str, Field(pattern=rf"^[0-9a-f]{{{_HASH_DIGITS}}}$")]
    board: Slug
    condition: Slug
    network: Slug
    batch: Count | None = None
    ram_budget: Label
    deadline: Label
    method: Slug

    @property
    def levels(self) -> tuple[str | int | None, ...]:
        """The levels, by which cells of different campaigns correspond to each other."""
        return (
            *(self.board, self.condition, self.network, self.batch),
            *(self.ram_budget, self.deadline, self.method),
        )

    def __str__(self) -> str:
        parts = [self.board, self.condition, self.network]
        parts += [] if self.batch is None else [f"batch {self.batch}"]
        parts += [self.ram_budget, f"deadline {self.deadline}", self.method]
        return ", ".join(parts)


class NetworkLevel(StrictModel):
    """A network of a campaign.

    ``model`` is what builds it on this computer, wherever it is called: a name, or the absolute
    path of a file, whose hash is ``sha256``, with that of data that an ONNX file keeps in others.
    """

    choice: NetworkChoice
    model: str
    sha256: str | None = None


class Design(StrictModel):
    """All cells of a campaign, and the levels that they name (``campaign-cells/1``).

    ``kernels_sha256`` is the hash of the sources of kernels and executor, with which every cell of
    a board is measured. ``profile_blocks`` and ``watch_steps`` say how the profiles of boards are
    measured; campaigns from before they were recorded have none.
    """

    schema_: Annotated[Literal["campaign-cells/1"], Field(alias="schema")] = "campaign-cells/1"
    name: Slug
    kernels_sha256: str
    settings: tuple[Setting, ...]
    networks: tuple[NetworkLevel, ...]
    methods: tuple[MethodChoice, ...]
    budget_covers: Coverage
    repetitions: Count
    steps: Count
    profile_blocks: Count | None = None
    watch_steps: bool | None = None
    cells: tuple[Cell, ...]

    @cached_property
    def setting_by_name(self) -> Mapping[tuple[str, str], Setting]:
        """Settings by the names of board and condition."""
        return {(setting.board, setting.condition): setting for setting in self.settings}

    @cached_property
    def network_by_name(self) -> Mapping[str, NetworkLevel]:
        return {level.choice.name: level for level in self.networks}

    @cached_property
    def method_by_name(self) -> Mapping[str, MethodChoice]:
        return {method.name: method for method in self.methods}

    def setting_of(self, cell: Cell) -> Setting:
        """The board and condition of a cell."""
        return self.setting_by_name[cell.board, cell.condition]

    def repetitions_of(self, cell: Cell) -> int:
        """How often the schedule of a cell is run; 0 if its board is a profile."""
        return self.repetitions if self.setting_of(cell).is_run else 0


def design_campaign(file: CampaignFile, directory: Path, results: Results) -> Design:
    """Expand a campaign into its cells.

    Args:
        file: The campaign.
        directory: Directory of its file, below which the files that it names are.
        results: Where measured profiles are looked up, and exported networks are written.

    Returns:
        The cells, in the order of the factors' levels.

    Raises:
        InputError: A level cannot be resolved, ``exclude`` names an unknown one, or it leaves no
            cell.
    """
    settings = settings_of(file, directory, results)
    networks = tuple(
        _network(choice, directory, results, f"campaign {file.name}: networks[{number}]")
        for number, choice in enumerate(file.networks)
    )
    _check_exclusions(file, settings)
    kernels = _kernels_sha256()
    cells = tuple(_cells(file, settings, networks, kernels))
    if not cells:
        raise InputError(f"campaign {file.name}: exclude leaves no cell")
    return Design(
        name=file.name,
        kernels_sha256=kernels,
        settings=settings,
        networks=networks,
        methods=file.methods,
        budget_covers=file.budget_covers,
        repetitions=file.repetitions,
        steps=file.steps,
        profile_blocks=file.profile_blocks,
        watch_steps=file.watch_steps,
        cells=cells,
    )


def is_design_of(design: Design, file: CampaignFile) -> bool:
    """Whether a design has the levels and options of this campaign file."""
    boards = {setting.board: setting for setting in design.settings}.values()
    of_design = (
        *(design.name, design.methods, design.budget_covers, design.repetitions, design.steps),
        tuple(level.choice for level in design.networks),
        [(setting.is_run, setting.tags) for setting in boards],
    )
    of_file = (
        *(file.name, file.methods, file.budget_covers, file.repetitions, file.steps),
        file.networks,
        [(choice.profile is None, choice.tags) for choice in file.boards],
    )
    return (
        of_design == of_file
        and {cell.ram_budget for cell in design.cells} <= set(file.ram_budgets)
        and {cell.deadline for cell in design.cells} <= set(file.deadlines)
        and {setting.condition for setting in design.settings if setting.is_run}
        <= {condition.name for condition in file.conditions or (Condition(name=AS_DESCRIBED),)}
    )


def _cells(
    file: CampaignFile,
    settings: tuple[Setting, ...],
    networks: tuple[NetworkLevel, ...],
    kernels: str,
) -> Iterator[Cell]:
    asked = {method.name: _digest(method) for method in file.methods}
    trained = {each.choice.name: f"{_trained(each)} {each.sha256}" for each in networks}
    in_slices = {method.name for method in file.methods if method.slices is not None}
    for setting in settings:
        combinations = list(_combinations(file, setting, networks))
        if setting.is_run:
            has_slices = any(levels["method"] in in_slices for levels in combinations)
            what = _digest(setting.measured(in_slices=has_slices))
            ran = f"{kernels} {file.steps} {file.profile_blocks} {file.watch_steps}"
        else:
            what, ran = _digest(setting.profile), ""
        for levels in combinations:
            method = asked[levels["method"]]
            depends_on = [what, ran, trained[levels["network"]], method, file.budget_covers]
            yield Cell(hash=_hash([*depends_on, levels]), **levels)


def _combinations(
    file: CampaignFile, setting: Setting, networks: tuple[NetworkLevel, ...]
) -> Iterator[dict[str, Any]]:
    """The levels of each cell of a board under a condition, without its hash."""
    exclusions = [_named_levels(entry) for entry in file.exclude]
    boards = frozenset((setting.board, *setting.tags))
    for network in networks:
        choice = network.choice
        batches = choice.batches or file.batches or (None,)
        for batch, method, ram_budget, deadline in product(
            batches, file.methods, file.ram_budgets, file.deadlines
        ):
            levels = {
                "board": setting.board,
                "condition": setting.condition,
                "network": choice.name,
                "batch": batch,
                "ram_budget": ram_budget,
                "deadline": deadline,
                "method": method.name,
            }
            if not any(_excludes(named, levels, boards) for named in exclusions):
                yield levels


def _hash(content: object) -> str:
    text = json.dumps(content, ensure_ascii=False).encode()
    return hashlib.sha256(text).hexdigest()[:_HASH_DIGITS]


def _trained(network: NetworkLevel) -> str:
    """Digest of a network and how it is trained; of a file, not the place where it lies."""
    of_file = {} if network.sha256 is None else {"model": "", "label": None}
    return _digest(network.choice.model_copy(update=of_file))


def _digest(model: StrictModel | None) -> str:
    text = "" if model is None else model.model_dump_json(by_alias=True, exclude_none=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _kernels_sha256() -> str:
    sources = {
        f"{folder.name}/{name}": content
        for folder in (KERNELS, EXECUTOR)
        for name, content in read_sources(folder).items()
    }
    return sources_hash(sources, ())


def _network(choice: NetworkChoice, directory: Path, results: Results, key: str) -> NetworkLevel:
    if choice.model in model_names():
        return NetworkLevel(choice=choice, model=choice.model)
    from networks.exported.source import exported, source_file

    path = file_below(directory, choice.model, f"{key}.model")
    source = source_file(choice.model)
    if source is not None:
        file_below(directory, source, f"{key}.model")
        path = Path(exported(str(path), results.networks)).absolute()
    try:
        sha256 = file_sha256(path)
    except OSError as error:
        known = choices(choice.model, model_names())
        raise InputError(
            f"{printable(str(path))}: this network cannot be read ({error.strerror}), and none of"
            f" this name is built in; {known}"
        ) from None
    return NetworkLevel(choice=choice, model=str(path), sha256=sha256)


def _named_levels(entry: Exclusion) -> Mapping[str, frozenset[Any]]:
    """The levels that an entry of ``exclude`` states, by factor."""
    stated = {factor: getattr(entry, key) for key, factor in _FACTORS.items()}
    return {factor: frozenset(names) for factor, names in stated.items() if names is not None}


def _excludes(
    named: Mapping[str, frozenset[Any]], levels: Mapping[str, Any], boards: frozenset[str]
) -> bool:
    """Whether a cell has every level that is named; its board is named by tags, too."""
    return all(
        not boards.isdisjoint(names) if factor == "board" else levels[factor] in names
        for factor, names in named.items()
    )


def _check_exclusions(file: CampaignFile, settings: tuple[Setting, ...]) -> None:
    """Raise :class:`InputError` if an entry of ``exclude`` names a level that no cell has."""
    batches = [batch for network in file.networks for batch in network.batches or ()]
    known: Mapping[str, list[Any]] = {
        "boards": [name for each in settings for name in (each.board, *each.tags)],
        "conditions": [setting.condition for setting in settings],
        "networks": [network.name for network in file.networks],
        "batches": [*batches, *(file.batches or ())],
        "ram_budgets": list(file.ram_budgets),
        "deadlines": list(file.deadlines),
        "methods": [method.name for method in file.methods],
    }
    known_names = {factor: frozenset(names) for factor, names in known.items()}
    for number, entry in enumerate(file.exclude):
        for factor, names in known.items():
            for name in getattr(entry, factor) or ():
                if name not in known_names[factor]:
                    allowed = choices(name, [str(each) for each in dict.fromkeys(names)])
                    raise InputError(
                        f"campaign {file.name}: exclude[{number}].{factor}: no level is {name!r};"
                        f" {allowed}"
                    )
