"""Links, images and commands of the Markdown pages lead somewhere."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from commands.command_line import parse
from tests.support.paths import ROOT

_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_CODE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
_COMMAND = re.compile(r"^(?:\.venv/bin/python )?(?:cli\.py|joulewright) (.+)$")


def _pages() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [ROOT / name for name in listed.stdout.split()]


PAGES = _pages()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_images_lead_to_files_and_headings(page: Path) -> None:
    for target in _LINK.findall(_CODE.sub("", page.read_text())):
        if re.match(r"https?://", target):
            continue
        path, _, anchor = target.partition("#")
        linked = page.parent / path if path else page
        assert linked.exists(), f"{target} does not exist"
        if anchor:
            assert anchor in _anchors(linked), f"{target}: no such heading"


def _anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", _CODE.sub("", page.read_text()), re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings
    }


def _commands() -> Iterator[tuple[str, str]]:
    for page in PAGES:
        for block in _CODE.findall(page.read_text()):
            for line in block.splitlines():
                found = _COMMAND.match(line.strip())
                if found:
                    yield str(page.relative_to(ROOT)), found[1]


@pytest.mark.parametrize(("page", "words"), [*_commands()])
def test_commands_of_the_pages_are_understood(page: str, words: str) -> None:
    parse(shlex.split(words, comments=True))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_schedules_of_a_page_are_files_that_it_has_written(page: Path) -> None:
    """The name that ``solve`` gives by itself depends on the form of the step that wins."""
    written: set[str] = set()
    for name, line in _commands():
        if name != str(page.relative_to(ROOT)):
            continue
        words = shlex.split(line, comments=True)
        if words[0] == "solve" and "--out" in words:
            written.add(words[words.index("--out") + 1])
        if words[0] in ("run", "export"):
            schedule = words[words.index("--schedule") + 1]
            assert schedule in written or schedule.endswith("/SCHEDULE.json"), line


def test_the_readme_is_read_in_one_sitting() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


def test_every_page_of_the_documentation_is_listed() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    linked = {
        (ROOT / "docs" / target.partition("#")[0]).resolve() for target in _LINK.findall(index)
    }
    for page in sorted((ROOT / "docs").glob("*.md")):
        if page.name != "README.md":
            assert page.resolve() in linked, f"docs/README.md does not list {page.name}"
