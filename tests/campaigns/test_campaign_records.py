"""Records of a campaign: a reader refuses one that states what its schedule or replay does not."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import cli
from campaigns.keeping.directory import CampaignDirectory
from campaigns.keeping.results import read_campaign
from devices.errors import InputError
from devices.results import Results
from tests.support.campaigns import campaign_with_replays

# What follows from no other file: circumstances, the place of the profile, the step that keeps
# everything (of whole layers, whatever the schedule is of), and how many costs were predicted.
BELIEVED = {
    "circumstances",
    "predicted_operations",
    "profile",
    "unconstrained_energy_j",
    "unconstrained_peak_bytes",
    "unconstrained_time_s",
    "attempt",
    "position",
}


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> CampaignDirectory:
    results = Results(tmp_path_factory.mktemp("results"))
    return campaign_with_replays(results, ram_budgets=["100%"], methods=["keep-everything"])


@pytest.fixture
def campaign(kept: CampaignDirectory, tmp_path: Path) -> CampaignDirectory:
    """A campaign of one cell with two replays, which may be changed."""
    shutil.copytree(kept.path, tmp_path / "campaigns" / "tried")
    return CampaignDirectory(tmp_path / "campaigns" / "tried")


def change(file: Path, path: tuple[str, ...], value: object) -> None:
    document = json.loads(file.read_text())
    held = document
    for key in path[:-1]:
        held = held[key]
    held[path[-1]] = value
    file.write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("name", "path", "value", "said"),
    [
        ("cell.json", ("energy_source",), "measured", "energy_source measured; its schedule has"),
        ("cell.json", ("energy_j",), 1e-9, "states energy_j 1e-09; its schedule has"),
        ("cell.json", ("cell", "method"), "dtr", "states cell.method dtr; its schedule has"),
        ("repetition-1.json", ("values_identical",), False, "values_identical False; its report"),
        ("repetition-1.json", ("measured_energy_source",), "emulated", "its report has measured"),
        ("repetition-0.replay.json", ("time_s", "difference"), 0.0, "states time_s.difference 0"),
        ("schedule.json", ("energy_source",), "measured", "states energy_source measured"),
    ],
)
@pytest.mark.parametrize("command", ["report", "compare"])
def test_readers_refuse_a_record_that_states_something_else(
    campaign: CampaignDirectory,
    command: str,
    name: str,
    path: tuple[str, ...],
    value: object,
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (cell,) = campaign.design().cells
    file = campaign.of(cell) / name
    change(file, path, value)
    out = tmp_path / "report.html"
    words = {
        "report": ["campaign", "report", str(campaign.path), "--out", str(out)],
        "compare": ["campaign", "compare", str(campaign.path), str(campaign.path)],
    }
    assert cli.main(words[command]) == 2
    error = capsys.readouterr().err
    assert f"error: {file}: " in error
    assert said in error
    assert not out.exists()


def figures(document: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Paths of all numbers and truth values of a document."""
    for key, value in document.items():
        if isinstance(value, dict):
            yield from figures(value, (*path, key))
        elif isinstance(value, bool | int | float):
            yield (*path, key)


@pytest.mark.parametrize("name", ["cell.json", "repetition-0.json"])
def test_every_figure_of_a_record_is_compared(campaign: CampaignDirectory, name: str) -> None:
    (cell,) = campaign.design().cells
    file = campaign.of(cell) / name
    text = file.read_text()
    document = json.loads(text)
    changed = [path for path in figures(document) if path[0] not in BELIEVED]
    assert len(changed) >= 8
    read_campaign(campaign.path)
    for path in changed:
        value = document
        for key in path:
            value = value[key]
        change(file, path, not value if isinstance(value, bool) else 2 * value + 1)
        with pytest.raises(InputError, match=f"{name}: "):
            read_campaign(campaign.path)
        file.write_text(text)
