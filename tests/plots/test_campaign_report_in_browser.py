"""The report of a campaign in Chromium: nothing is requested, nothing fails, and it is usable."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from campaigns.keeping.results import read_campaign
from devices.results import Results
from plots.report.page import write_report
from tests.support.browser import PATIENCE_MS, chromium, processor_s
from tests.support.campaigns import campaign_with_replays

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PDF_TO_TEXT = shutil.which("pdftotext")

pytestmark = pytest.mark.slow

SCHEMES = ("light", "dark")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = campaign_with_replays(Results(tmp_path_factory.mktemp("results")))
    path = directory.path / "report.html"
    write_report(read_campaign(directory.path), path)
    return path


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


class Opened:
    """A page with everything that it requested and that failed in it."""

    def __init__(self, browser: Browser, path: Path, width: int = 1200, scheme: str = "light"):
        context = browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme="dark" if scheme == "dark" else "light",
        )
        self.page: Page = context.new_page()
        self.page.set_default_timeout(PATIENCE_MS)
        self.requests: list[str] = []
        self.errors: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", lambda message: self.errors.append(message.text))
        self.page.goto(path.as_uri())

    def shown(self) -> list[str]:
        """Numbers of the cells whose rows are shown, in their order."""
        rows = self.page.locator("#table tbody tr[id]:visible")
        return [
            str(row).removeprefix("cell-") for row in rows.evaluate_all("all => all.map(e => e.id)")
        ]


@pytest.mark.parametrize("width", [400, 2000])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_opens_without_requests_errors_or_sideways_scrolling(
    browser: Browser, report: Path, width: int, scheme: str
) -> None:
    opened = Opened(browser, report, width, scheme)
    for button in opened.page.locator("button.open").all():
        button.click()
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
    opened.page.emulate_media(media="print")
    assert opened.page.locator(".controls").is_hidden()
    assert opened.requests == [report.as_uri()]
    assert not opened.errors, opened.errors[0][:500]


def test_every_printed_page_of_the_table_has_its_head(
    browser: Browser, report: Path, tmp_path: Path
) -> None:
    opened = Opened(browser, report)
    opened.page.evaluate(
        "const body = document.getElementById('table').tBodies[0];"
        "const rows = [...body.rows];"
        "for (let time = 0; time < 12; ++time) body.append(...rows.map(row => row.cloneNode(true)))"
    )
    opened.page.pdf(path=tmp_path / "report.pdf")
    if PDF_TO_TEXT is None:
        pytest.fail("pdftotext is missing: sudo apt install poppler-utils")
    words = [PDF_TO_TEXT, "-layout", str(tmp_path / "report.pdf"), "-"]
    text = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    pages = [page for page in text.split("\f") if page.count("keep-") + page.count("chen-") > 4]
    assert len(pages) > 1
    assert all("RAM budget" in page for page in pages)


def test_a_click_sorts_by_number_and_says_so(browser: Browser, report: Path) -> None:
    opened = Opened(browser, report)
    head = opened.page.locator("#table th", has_text="energy predicted")
    orders = []
    for _ in range(2):
        head.locator("button").click()
        entries = opened.page.locator("#table tbody tr[id]").evaluate_all(
            "(rows, column) => rows.map(row => row.cells[column].dataset.order)",
            head.evaluate("head => head.cellIndex"),
        )
        figures = [float(entry) for entry in entries if entry is not None]
        assert entries[len(figures) :] == [None] * (len(entries) - len(figures)), "absent ones last"
        orders.append((head.get_attribute("aria-sort"), figures))
    (up, rising), (down, falling) = orders
    assert (up, rising) == ("ascending", sorted(rising))
    assert (down, falling) == ("descending", sorted(falling, reverse=True))
    assert opened.page.locator("th[aria-sort]").count() == 1


def test_filters_and_search_hide_rows_and_are_announced(browser: Browser, report: Path) -> None:
    opened = Opened(browser, report)
    every = opened.shown()
    opened.page.get_by_label("method", exact=True).select_option(label="chen-sqrt-n")
    by_method = opened.shown()
    assert 0 < len(by_method) < len(every)
    opened.page.get_by_label("search").fill("no schedule")
    assert 0 < len(opened.shown()) < len(by_method)
    words = f"{len(opened.shown())} of {len(every)} cells"
    assert opened.page.get_by_role("status").inner_text() == words
    opened.page.get_by_role("button", name="Show all").click()
    opened.page.get_by_text(f"{len(every)} of {len(every)} cells").wait_for()
    assert opened.shown() == every


def test_details_open_by_keyboard_and_stay_with_their_row(browser: Browser, report: Path) -> None:
    opened = Opened(browser, report)
    button = opened.page.get_by_role("button", name="Details of cell 1", exact=True)
    button.focus()
    opened.page.keyboard.press("Enter")
    assert button.get_attribute("aria-expanded") == "true"
    panel = opened.page.locator("tr.details")
    titles = [svg.get_attribute("aria-label") or "" for svg in panel.locator("svg").all()]
    assert [title.split(":")[0] for title in titles] == [
        "Memory over a step",
        "Power over a step, predicted",
        "Power over 2 steps, as run",
    ]
    opened.page.locator("#table th button").first.click()
    assert opened.page.locator("tr.details").evaluate("e => e.previousSibling.id") == "cell-1"
    opened.page.keyboard.press("Enter")
    opened.page.get_by_role("button", name="Details of cell 1", exact=True).click()
    assert opened.page.locator("tr.details").count() == 0


def opening_s(browser: Browser, path: Path) -> float:
    """Seconds that Chromium's processes work until the page is there.

    A browser's processes wait for each other in turn, and on a busy computer each for a processor.
    """
    before_s = processor_s()
    Opened(browser, path)
    return processor_s() - before_s


def test_500_cells_open_in_time_and_in_5_mb(browser: Browser, tmp_path: Path) -> None:
    directory = campaign_with_replays(Results(tmp_path), ram_budgets=["100%"])
    results = read_campaign(directory.path)
    cell = results.cells[0].cell
    cells = [cell.model_copy(update={"hash": f"{number:016x}"}) for number in range(500)]
    for each in cells:
        shutil.copytree(directory.of(cell), directory.of(each))
    # What read_campaign checks of each cell takes half a minute of a processor for 500 equal ones.
    copies = tuple(replace(results.cells[0], cell=each) for each in cells)
    design = results.design.model_copy(update={"cells": tuple(cells)})
    path = tmp_path / "report.html"
    write_report(replace(results, design=design, cells=copies), path)
    assert path.stat().st_size < 5_000_000
    # The fastest of three: the first one also warms up.
    assert min(opening_s(browser, path) for _ in range(3)) < 2
    opened = Opened(browser, path)
    assert len(opened.shown()) == 500
    assert not opened.errors, opened.errors[0][:500]
