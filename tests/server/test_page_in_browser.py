"""The page of the server in Chromium: a job from the form to its pictures, by keyboard."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.support.browser import PATIENCE_MS, chromium
from tests.support.serving import LARGE, SMALL, Server, serving

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("server"), "--time-limit", "300") as started:
        yield started


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


class Opened:
    """A page with everything that it requested elsewhere and that failed in it."""

    def __init__(
        self, browser: Browser, server: Server, width: int = 1200, scheme: str = "light"
    ) -> None:
        context = browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme="dark" if scheme == "dark" else "light",
        )
        self.page: Page = context.new_page()
        self.page.set_default_timeout(PATIENCE_MS)
        self.home = str(server.client.base_url)
        self.requests: list[str] = []
        self.errors: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", lambda message: self.errors.append(message.text))
        self.page.goto(self.home)

    @property
    def elsewhere(self) -> list[str]:
        return [url for url in self.requests if not url.startswith((self.home, "data:"))]


def test_a_job_from_the_form_to_its_pictures_by_keyboard(browser: Browser, server: Server) -> None:
    opened = Opened(browser, server)
    page = opened.page
    page.get_by_label("network", exact=True).select_option(label="a costed graph *.json")
    assert page.get_by_label("profile", exact=True).is_hidden()
    page.get_by_label("file of the costed graph").set_input_files(SMALL)
    page.get_by_label("RAM budget", exact=True).fill("80%")
    page.keyboard.press("Enter")
    page.locator("#state.done").wait_for()
    assert "linear_m0: optimal" in page.locator("#answer p").first.inner_text()
    rows = page.get_by_role("row").all_inner_texts()
    assert any(row.startswith("energy a step") for row in rows)
    pictures = page.locator("#pictures img")
    assert pictures.count() >= 3
    for picture in pictures.all():
        assert picture.get_attribute("alt")
        assert picture.evaluate("image => image.decode().then(() => image.naturalWidth)") > 100
    with page.expect_download() as started:
        page.get_by_role("link", name="schedule", exact=True).click()
    assert started.value.suggested_filename == "schedule.json"

    # Whoever has the address sees the same answer again, at any width.
    for width, scheme in ((400, "light"), (400, "dark"), (2000, "light"), (2000, "dark")):
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        page.reload()
        page.locator("#state.done").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.get_by_role("button", name="Remove").click()
    page.get_by_text("The answer and all its files were removed.").wait_for()
    assert "#" not in page.url
    assert (opened.elsewhere, opened.errors) == ([], [])


def test_progress_is_shown_and_a_search_is_stopped(browser: Browser, server: Server) -> None:
    opened = Opened(browser, server, width=400, scheme="dark")
    page = opened.page
    page.get_by_label("network", exact=True).select_option(label="a costed graph *.json")
    page.get_by_label("file of the costed graph").set_input_files(LARGE)
    page.get_by_label("RAM budget", exact=True).fill("50%")
    page.get_by_text("More options").click()
    page.get_by_label("proven gap").fill("0")
    page.get_by_role("button", name="Solve").click()
    page.locator("#progress dd", has_text=" mJ (source not stated)").first.wait_for()
    assert page.get_by_role("status").inner_text()
    page.get_by_role("button", name="Stop with the best so far").click()
    page.locator("#state.done").wait_for()
    assert "interrupted" in page.locator("#answer").inner_text()
    assert not opened.errors


def test_mistakes_are_said_in_the_sentence_of_the_command(browser: Browser, server: Server) -> None:
    page = Opened(browser, server).page
    page.get_by_label("network", exact=True).select_option(label="a file *.pt2 or *.onnx")
    page.get_by_role("button", name="Solve").click()
    alert = page.locator("#refusal")
    assert alert.inner_text() == "Choose the file of the network first."
    page.get_by_label("network", exact=True).select_option(label="linear")
    page.get_by_label("samples in a step").fill("many")
    page.get_by_role("button", name="Solve").click()
    page.get_by_text("batch").and_(alert).wait_for()
    page.get_by_label("samples in a step").fill("1")
    page.get_by_label("RAM budget", exact=True).fill("lots")
    page.get_by_role("button", name="Solve").click()
    page.locator("#state.failed").wait_for()
    assert "lots" in page.locator("#failure").inner_text()
