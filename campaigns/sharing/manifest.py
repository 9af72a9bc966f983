"""What an archive of a campaign holds (``campaign-pack/1``), and the limits of any archive."""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import distributions
from typing import Annotated, Literal

from pydantic import Field

from campaigns.design.file import Slug
from devices.documents.document import StrictModel
from devices.program import program_version
from devices.quantities import Size

MANIFEST = "pack.json"

MOST_FILES = 500_000
MOST_BYTES = 4 << 30
MOST_NAME = 240

_PART = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_NAME = re.compile(rf"{_PART}(/{_PART}){{0,3}}")


class PackedFile(StrictModel):
    """Size and SHA-256 of a file."""

    size_bytes: Size
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Environment(StrictModel):
    """Program, Python and packages of the computer that made the archive."""

    program: str
    python: str
    system: str
    packages: Mapping[str, str]

    @classmethod
    def here(cls) -> Environment:
        """The environment of this process."""
        found = {each.metadata["Name"]: each.version for each in distributions()}
        return cls(
            program=program_version(),
            python=sys.version.split()[0],
            system=platform.platform(),
            packages=dict(sorted(found.items(), key=lambda each: each[0].lower())),
        )


class Manifest(StrictModel):
    """An archive's list of contents.

    ``files`` names every other file of the archive. ``left_out`` are sentences on what a repetition
    lacks.
    """

    schema_: Annotated[Literal["campaign-pack/1"], Field(alias="schema")] = "campaign-pack/1"
    name: Slug
    created: str = Field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    environment: Environment
    kernels_sha256: str
    files: Mapping[str, PackedFile]
    left_out: tuple[str, ...] = ()


def is_allowed(name: str) -> bool:
    """Whether an archive may hold a file of this name.

    Letters, digits, points, hyphens and underscores in at most four parts: no path that leaves its
    directory, no hidden file, and nothing that a shell reads.
    """
    return len(name) <= MOST_NAME and _NAME.fullmatch(name) is not None
