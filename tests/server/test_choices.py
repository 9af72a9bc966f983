"""Profiles that jobs may name, and how the page names the source of their joules."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from devices.documents.document import dump_yaml
from devices.published import load_published
from server.choices import Choices, ProfileChoice
from server.limits import Limits
from server.page.page import page


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Results with profiles of all kinds, one that is broken, and one of a published one's name."""
    directory = tmp_path / "profiles"
    directory.mkdir()
    for name, source in (("local", "estimated"), ("board", "emulated"), ("m4", "estimated")):
        profile = load_published("m4").changed(name=name, energy_source=source)
        (directory / f"{name}.yaml").write_text(dump_yaml(profile))
    (directory / "broken.yaml").write_text("name: broken\nenergy_source: guessed\n")
    return tmp_path


def test_each_profile_has_the_energy_source_that_its_file_states(results: Path) -> None:
    choices = Choices.of(results)
    assert choices.own_profiles == [
        ProfileChoice(name="board", energy_source="emulated"),
        ProfileChoice(name="broken"),
        ProfileChoice(name="local", energy_source="estimated"),
        ProfileChoice(name="m4", energy_source="estimated"),
    ]
    assert ProfileChoice(name="m0", energy_source="published") in choices.published_profiles
    assert {profile.energy_source for profile in choices.published_profiles} == {"published"}


def test_a_name_stands_for_one_profile(results: Path) -> None:
    names = Choices.of(results).profiles
    assert len(set(names)) == len(names)
    assert "m4" in names


def test_the_page_calls_no_profile_measured_that_is_not(results: Path) -> None:
    text = bytes(page(Choices.of(results), Limits()).body).decode()
    options = re.findall(r'<option value="(\w+)"( selected)?>(\w+ \([^)]*\))</option>', text)
    assert ("local", "", "local (estimated)") in options
    assert ("board", "", "board (emulated)") in options
    assert ("broken", "", "broken (source not stated)") in options
    assert ("m0", "", "m0 (published)") in options
    assert '<optgroup label="profiled here">' in text
    assert '<optgroup label="measured">' not in text


def test_without_profiles_of_its_own_the_page_selects_a_published_one(tmp_path: Path) -> None:
    text = bytes(page(Choices.of(tmp_path), Limits()).body).decode()
    assert "profiled here" not in text
    assert '<option value="m4" selected>m4 (published)</option>' in text
