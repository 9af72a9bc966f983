"""Search for profiles: measured ones by file or name, published ones by name."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import get_args

from devices.description import catalog_names
from devices.documents.document import DocumentError, read_yaml, schema_of, stated_in_yaml
from devices.documents.explain import choices
from devices.profile import DeviceProfile, EnergySource
from devices.program import command_line
from devices.published import load_published, published_names
from devices.results import Results

MEASURED = Results().profiles


class NoProfile(DocumentError):
    """There is no profile of this name."""


def resolve_profile(name_or_path: str, measured: Path = MEASURED) -> DeviceProfile:
    """Load a profile by path or name.

    Args:
        name_or_path: Path of a file; else the name of a file in ``measured``, with or without
            ``.yaml``; else the name of a published profile.
        measured: Directory of measured profiles.

    Returns:
        The validated profile.

    Raises:
        NoProfile: There is no such profile; the message lists the known ones, or says how to
            measure a board of the catalogue.
        DocumentError: The file is not a valid profile.
    """
    path = Path(name_or_path)
    name = path.stem if path.suffix in {".yaml", ".yml"} else path.name
    for candidate in (path, measured / path, measured / f"{name_or_path}.yaml"):
        if candidate.is_file():
            return _read_profile(candidate, measured)
    if len(path.parts) > 1:
        if path.exists():  # a directory or a pipe: reading says so
            return _read_profile(path, measured)
        raise NoProfile(f"{name_or_path}: no such file")
    if name in published_names():
        return load_published(name)
    if name in catalog_names():
        raise not_measured(name_or_path, name)
    known = [*(file.stem for file in sorted(measured.glob("*.yaml"))), *published_names()]
    raise NoProfile(f"no profile {name_or_path!r}; {choices(name, known)}")


def stated_energy_source(path: Path) -> EnergySource | None:
    """The energy source that the file of a profile states; None if it states none.

    This takes little time for a profile of any size: the file is parsed as far as the statement.
    """
    stated = stated_in_yaml(path, "energy_source")
    return next((source for source in get_args(EnergySource) if source == stated), None)


def not_measured(profile: str, device: str) -> NoProfile:
    """Error for a profile that is missing, of the board that ``--device`` names by ``device``."""
    return NoProfile(
        f"no profile {profile!r} yet",
        remedy=f"measure the board first: {command_line('profile', '--device', device)}",
    )


def _read_profile(path: Path, measured: Path) -> DeviceProfile:
    """Read a profile; for a device description, the error names the profile of that device."""
    try:
        return read_yaml(path, DeviceProfile)
    except DocumentError as error:
        if schema_of(path) != "device/1":
            raise
        profile = measured / f"{path.stem}.yaml"
        known = profile.is_file() and profile.resolve() != path.resolve()
        raise DocumentError(
            str(error),
            remedy=f"its profile is {profile}: use --profile {shlex.quote(str(profile))}"
            if known
            else f"measure the board first: {command_line('profile', '--device', path)}",
        ) from None
