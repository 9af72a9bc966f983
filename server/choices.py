"""What jobs may name: built-in networks, and profiles that the server has."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from pydantic import BaseModel

from devices.documents.document import DocumentError
from devices.documents.explain import choices, shown
from devices.published import published_names
from devices.results import Results
from networks.models import model_names
from server.form import JobForm


class Choices(BaseModel):
    """Names that a job may use: any other name would be the path of a file."""

    networks: list[str]
    measured_profiles: list[str]
    published_profiles: list[str]

    @classmethod
    def of(cls, results: Path) -> Self:
        """The names at present."""
        measured = sorted(path.stem for path in Results(results).profiles.glob("*.yaml"))
        return cls(
            networks=list(model_names()),
            measured_profiles=measured,
            published_profiles=list(published_names()),
        )

    @property
    def profiles(self) -> list[str]:
        """Names of all profiles."""
        return [*self.measured_profiles, *self.published_profiles]

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
