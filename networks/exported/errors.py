"""Error of a network's file that cannot be used."""

from __future__ import annotations

from devices.errors import InputError


class ExportError(InputError):
    """A network's file cannot be read, or has operations that cannot be trained here."""
