"""Boards of a campaign under its conditions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from campaigns.design.below import file_below
from campaigns.design.file import (
    AS_DESCRIBED,
    BoardChoice,
    CampaignFile,
    Condition,
    PlaceName,
    Slug,
    slug,
)
from devices.description import DeviceDescription, catalog_names, load_description
from devices.documents.document import DocumentError, StrictModel, validate
from devices.errors import InputError
from devices.library import resolve_profile
from devices.profile import DeviceProfile
from devices.results import Results


class Setting(StrictModel):
    """A board under a condition, or a profile in place of a board.

    ``description`` has the condition's changes in it. Schedules for a ``profile`` are not run.
    ``place`` is the labgrid place of the board.
    """

    board: Slug
    condition: Slug = AS_DESCRIBED
    tags: tuple[Slug, ...] = ()
    place: PlaceName | None = None
    description: DeviceDescription | None = None
    profile: DeviceProfile | None = None

    @property
    def name(self) -> str:
        """Name in messages and file names."""
        is_plain = self.condition == AS_DESCRIBED
        return self.board if is_plain else f"{self.board}.{self.condition}"

    @property
    def is_run(self) -> bool:
        """Whether schedules are run on the board."""
        return self.description is not None

    def measured(self, *, in_slices: bool) -> DeviceDescription:
        """The board's description as it is profiled; it must not be a profile.

        Args:
            in_slices: Whether any of its steps is in slices. Those have the values of whole layers
                only with the kernels' own matrix products, which all its steps then have if the
                description leaves the choice open.
        """
        assert self.description is not None, "a profile in place of a board is not measured"
        return self.description.with_matmul("in-tree") if in_slices else self.description


def settings_of(file: CampaignFile, directory: Path, results: Results) -> tuple[Setting, ...]:
    """Resolve every board of a campaign under each of its conditions.

    Args:
        file: The campaign.
        directory: Directory of its file, below which the files that it names are.
        results: Where measured profiles are looked up by name.

    Returns:
        The settings, in the order of the file. A profile has one, whatever the conditions.

    Raises:
        InputError: A board or profile cannot be read, a condition does not fit a board, or two
            boards have the same name.
    """
    found = [
        tuple(_settings(choice, file, directory, results, f"boards[{number}]"))
        for number, choice in enumerate(file.boards)
    ]
    for board, count in Counter(settings[0].board for settings in found).items():
        if count > 1:
            raise InputError(
                f"campaign {file.name}: two boards are named {board}",
                remedy="change the name in one of their descriptions or profiles",
            )
    return tuple(setting for settings in found for setting in settings)


def _settings(
    choice: BoardChoice, file: CampaignFile, directory: Path, results: Results, key: str
) -> Iterator[Setting]:
    key = f"campaign {file.name}: {key}"
    if choice.profile is not None:
        named = _named(choice.profile, directory, f"{key}.profile")
        profile = resolve_profile(named, results.profiles)
        yield Setting(board=slug(profile.name), tags=choice.tags, profile=profile)
        return
    assert choice.device is not None, "a board is either a device or a profile"
    word = choice.device
    in_catalogue = word in catalog_names()
    described = load_description(
        word if in_catalogue else _named(word, directory, f"{key}.device", (".yaml", ".yml"))
    )
    for condition in file.conditions or (Condition(name=AS_DESCRIBED),):
        yield Setting(
            board=slug(described.name),
            condition=condition.name,
            tags=choice.tags,
            place=choice.place,
            description=_changed(described, condition),
        )


def _named(word: str, directory: Path, key: str, suffixes: tuple[str, ...] = ()) -> str:
    """The file below the campaign's directory that a path names, or the word, which is a name.

    A path exists there, has a slash or ends with one of the suffixes.

    Raises:
        InputError: The path leads out of the directory.
    """
    path = file_below(directory, word, key)
    return str(path) if path.exists() or "/" in word or word.endswith(suffixes) else word


def _changed(described: DeviceDescription, condition: Condition) -> DeviceDescription:
    """The description with the changes of a condition.

    Raises:
        DocumentError: The description does not allow them.
    """
    data: dict[str, Any] = described.model_dump(mode="json", by_alias=True, exclude_none=True)
    stated = condition.model_dump(mode="json", by_alias=True, exclude_none=True)
    for key in ("storage", "meter"):
        if key in stated:
            data[key] = stated[key]
    for key in ("compiler", "flags"):
        if key in stated:
            data["toolchain"][key] = stated[key]
    held = {key: stated[key] for key in ("governor", "frequency_hz") if key in stated}
    if held:
        data["conditions"] = {**data.get("conditions", {}), **held}
    try:
        changed = validate(data, DeviceDescription, described.name)
    except DocumentError as error:
        raise InputError(f"condition {condition.name} does not fit the board: {error}") from None
    return changed.referred_to_by(described.reference)
