"""What jobs may name: built-in networks, and profiles that the server has."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Self

from pydantic import BaseModel

from devices.documents.document import DocumentError
from devices.documents.explain import choices, shown
from devices.library import stated_energy_source
from devices.profile import EnergySource
from devices.published import PUBLISHED
from devices.results import Results
from networks.models import model_names
from server.form import JobForm


class ProfileChoice(BaseModel):
    """A profile that jobs may name. ``energy_source`` is absent where its file states none."""

    name: str
    energy_source: EnergySource | None = None


class Choices(BaseModel):
    """Names that a job may use: any other name would be the path of a file.

    Attributes:
        networks: Built-in networks.
        own_profiles: Profiles among the results of the server, whatever the source of their joules.
        published_profiles: Published profiles, without those whose name an own profile has: a job
            that names it gets the own one.
    """

    networks: list[str]
    own_profiles: list[ProfileChoice]
    published_profiles: list[ProfileChoice]

    @classmethod
    def of(cls, results: Path) -> Self:
        """The names at present."""
        own = _profile_choices(Results(results).profiles.glob("*.yaml"))
        taken = {profile.name for profile in own}
        published = _profile_choices(PUBLISHED.glob("*.yaml"))
        return cls(
            networks=list(model_names()),
            own_profiles=own,
            published_profiles=[each for each in published if each.name not in taken],
        )

    @property
    def profiles(self) -> list[str]:
        """Names of all profiles."""
        return [profile.name for profile in (*self.own_profiles, *self.published_profiles)]

    def require(self, form: JobForm) -> None:
        """Refuse a form that names something else.

        Raises:
            DocumentError: There is no such network or profile.
        """
        if form.network is not None and form.network not in self.networks:
            raise DocumentError(
                f"no model is named {shown(form.network)}; {choices(form.network, self.networks)}"
            )
        if form.profile is not None and form.profile not in self.profiles:
            raise DocumentError(
                f"no profile {shown(form.profile)}; {choices(form.profile, self.profiles)}"
            )


def _profile_choices(files: Iterable[Path]) -> list[ProfileChoice]:
    """Choices for the files of profiles, sorted by name."""
    return [
        ProfileChoice(name=path.stem, energy_source=stated_energy_source(path))
        for path in sorted(files, key=lambda path: path.stem)
    ]
