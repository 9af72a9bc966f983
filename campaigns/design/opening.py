"""A campaign's file by name or path, and its cells."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from campaigns.design.cells import Design, design_campaign
from campaigns.design.file import CampaignFile
from devices.documents.document import DocumentError, read_text, read_yaml
from devices.documents.explain import choices
from devices.results import Results

SHIPPED = Path(__file__).parents[1]
"""Directory of the campaigns that come with the project."""


@dataclass(frozen=True)
class OpenedCampaign:
    """A campaign's file, its text as given, and its cells."""

    file: CampaignFile
    text: str
    design: Design


def shipped_names() -> list[str]:
    """Names of the campaigns that come with the project, sorted."""
    return sorted(path.stem for path in SHIPPED.glob("*.yaml"))


def open_campaign(name_or_path: str, results: Results) -> OpenedCampaign:
    """Read a campaign's file and expand it into cells.

    Args:
        name_or_path: Path of a file, or the name of a campaign that comes with the project.
        results: Where measured profiles are looked up, and exported networks are written.

    Raises:
        InputError: There is no such file, or what it asks for is not possible.
    """
    path = Path(name_or_path)
    if not path.is_file() and len(path.parts) == 1 and path.suffix == "":
        if name_or_path not in shipped_names():
            raise DocumentError(
                f"no campaign {name_or_path!r} comes with the project;"
                f" {choices(name_or_path, shipped_names())}, or a path"
            )
        path = SHIPPED / f"{name_or_path}.yaml"
    file = read_yaml(path, CampaignFile)
    return OpenedCampaign(file, read_text(path), design_campaign(file, path.parent, results))
