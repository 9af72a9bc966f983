"""A campaign's file with everything that it names, for a repetition on another computer."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from campaigns.design.cells import NetworkLevel
from campaigns.design.file import BoardChoice, CampaignFile, Condition, NetworkChoice
from campaigns.design.settings import Setting
from campaigns.keeping.results import CampaignResults
from devices.description import catalog_names
from devices.documents.document import dump_yaml
from devices.documents.regular import require_regular
from devices.errors import InputError
from networks.models import file_sha256

DIRECTORY = "repeat"


@dataclass(frozen=True)
class Repetition:
    """Files for a repetition, by their name in the archive; ``left_out`` says what is missing."""

    files: Mapping[str, bytes]
    left_out: tuple[str, ...]


def repetition_of(results: CampaignResults) -> Repetition:
    """Write a campaign's file anew, so that it names only files beside it.

    Boards of the catalogue keep their names, so that each lab reaches its own. Places of this lab
    are left out.
    """
    files: dict[str, bytes] = {}
    left_out: list[str] = []
    networks = [_network(level, files, left_out) for level in results.design.networks]
    boards = list(_boards(results, files, left_out))
    file = results.file.model_copy(update={"boards": tuple(boards), "networks": tuple(networks)})
    files["campaign.yaml"] = dump_yaml(file).encode()
    named = {f"{DIRECTORY}/{name}": content for name, content in files.items()}
    return Repetition(named, tuple(left_out))


def _network(level: NetworkLevel, files: dict[str, bytes], left_out: list[str]) -> NetworkChoice:
    choice = level.choice
    if level.sha256 is None:
        return choice
    path = Path(level.model)
    name = f"networks/{choice.name}{path.suffix}"
    try:
        require_regular(path)
        content = path.read_bytes()
    except OSError as error:
        left_out.append(f"network {choice.name}: {path} cannot be read ({error.strerror})")
    else:
        if hashlib.sha256(content).hexdigest() == level.sha256:
            files[name] = content
        elif _is_unchanged(path, level):
            files[name] = content
            left_out.append(
                f"network {choice.name}: data that {path} keeps in other files are not packed;"
                f" copy them beside {DIRECTORY}/{name}"
            )
        else:
            left_out.append(f"network {choice.name}: {path} has changed since the campaign ran")
    return choice.model_copy(update={"model": name, "label": choice.name})


def _is_unchanged(path: Path, level: NetworkLevel) -> bool:
    """Whether a network's file, with the data that it keeps in others, is that of the campaign."""
    with suppress(InputError):  # an ONNX file that is damaged, or lacks data
        return file_sha256(path) == level.sha256
    return False


def _boards(
    results: CampaignResults, files: dict[str, bytes], left_out: list[str]
) -> Iterator[BoardChoice]:
    by_board: dict[str, Setting] = {}
    for setting in results.design.settings:
        by_board.setdefault(setting.board, setting)
    for choice, setting in zip(results.file.boards, by_board.values(), strict=True):
        if setting.profile is not None:
            name = f"profiles/{setting.board}.yaml"
            files[name] = dump_yaml(setting.profile).encode()
            yield BoardChoice(profile=name, tags=choice.tags)
        elif choice.device in catalog_names():
            yield choice.model_copy(update={"place": None})
        else:
            assert setting.description is not None, "a board has a profile or a description"
            name = f"boards/{setting.board}.yaml"
            if _replace_the_same(results.file):
                files[name] = dump_yaml(setting.description).encode()
            else:
                left_out.append(
                    f"board {setting.board}: its description without conditions is not known; with"
                    " each condition it is in cells.json"
                )
            yield BoardChoice(device=name, tags=choice.tags)


def _replace_the_same(file: CampaignFile) -> bool:
    """Whether all conditions change the same keys, so that one overrides another completely."""
    changed = {frozenset(_changed(condition)) for condition in file.conditions}
    return len(changed) <= 1


def _changed(condition: Condition) -> set[str]:
    return set(condition.model_dump(exclude_none=True)) - {"name"}
