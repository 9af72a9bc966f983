"""Exported networks: their graph, their table of weights, and the archive as a whole."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path

from networks.models import build_model
from networks.training.initial import initial_values
from tests.support.paths import REFERENCES

VIEWS, COMPOSITIONS = (
    REFERENCES / "exported" / f"{name}.pt2" for name in ("views", "compositions")
)
GRAPH, WEIGHTS = "models/model.json", "data/weights/model_weights_config.json"


@cache
def _members(network: Path) -> Mapping[str, bytes]:
    with zipfile.ZipFile(network) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _name(network: Path, ending: str) -> str:
    return next(name for name in _members(network) if name.endswith(ending))


def member(network: Path, ending: str) -> Callable[[], Sequence[str]]:
    """Return a function that reads a JSON document of the archive."""
    return lambda: [_members(network)[_name(network, ending)].decode()]


def take_member(network: Path, ending: str) -> Callable[[Path], None]:
    """Return a function that reads a network of which one document is at a path."""

    def take(path: Path) -> None:
        changed = path.with_suffix(".pt2")
        with zipfile.ZipFile(changed, "w") as archive:
            own = {_name(network, ending): path.read_bytes()}
            for name, content in {**_members(network), **own}.items():
                archive.writestr(name, content)
        take_archive(changed)

    return take


def archives() -> Sequence[str]:
    """The archive, a character for each byte."""
    return [VIEWS.read_bytes().decode("latin-1")]


def take_archive(path: Path) -> None:
    """Read a network, and the values that it starts from."""
    initial_values(build_model(str(path)), seed=0)


def take_bytes(path: Path) -> None:
    """Read a network from an input that has a character for each byte."""
    content = path.read_bytes().decode("utf-8", errors="replace")
    path.write_bytes(content.encode("latin-1", errors="replace"))
    take_archive(path)
