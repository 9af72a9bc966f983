"""The page in Chromium, with answers of a fake server: addresses, refusals, lost connections."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from server.choices import Choices
from server.jobs import JobState, Progress
from server.limits import Limits
from server.page.page import page as page_response
from tests.support.browser import PATIENCE_MS, chromium

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

pytestmark = pytest.mark.slow

HOME = "http://server.test/"
SKIP = "Skip to the answer"
RUNNING = JobState(
    state="running",
    energy_source="estimated",
    progress=Progress(seconds=1.0, phase="searching", value=0.0412, bound=0.04),
    kept_s=60.0,
)
DONE = JobState(state="done", answer=["the answer"], exit_code=0, kept_s=60.0)


class FakeServer:
    """Answers a page's requests as ``statuses`` say: 200 unless stated, None for no answer.

    A request is known by its method, or by the last part of its address: ``events``, ``stop``.
    """

    def __init__(self, page: Page) -> None:
        choices = Choices.of(Path("absent"))
        self.page = bytes(page_response(choices, Limits()).body).decode()
        self.states: dict[str, JobState] = {}
        self.statuses: dict[str, int | None] = {}
        page.route("**", self._answer)

    def _answer(self, route: Route) -> None:
        path = route.request.url.removeprefix(HOME)
        if not path:
            route.fulfill(content_type="text/html", body=self.page)
            return
        _api, _jobs, name, *parts = path.split("/")
        request = parts[0] if parts else route.request.method
        status = self.statuses.get(request, 200) if name in self.states else 404
        if status is None:
            route.abort("connectionrefused")
        elif request == "events" and status == 200:
            data = self.states[name].model_dump_json()
            body = f"event: state\ndata: {data}\n\n"
            route.fulfill(content_type="text/event-stream", body=body)
        else:
            route.fulfill(status=status, content_type="text/html", body="<p>a proxy</p>")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """An empty tab, in which nothing may fail but requests."""
    context = browser.new_context()
    opened = context.new_page()
    opened.set_default_timeout(PATIENCE_MS)
    errors: list[str] = []
    opened.on("pageerror", lambda error: errors.append(str(error)))
    yield opened
    context.close()
    assert not errors


@pytest.fixture
def server(page: Page) -> FakeServer:
    return FakeServer(page)


def test_the_skip_link_leads_to_the_answer_and_keeps_its_address(
    page: Page, server: FakeServer
) -> None:
    server.states["KEY"] = DONE
    page.goto(HOME)
    assert page.get_by_role("link", name=SKIP).count() == 0, "no answer to skip to"
    page.goto("about:blank")
    page.goto(f"{HOME}#KEY")
    page.get_by_text("the answer", exact=True).wait_for()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == SKIP
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "job-heading"
    assert page.url == f"{HOME}#KEY"
    page.reload()
    page.get_by_text("the answer", exact=True).wait_for()


def test_an_address_that_is_pasted_into_an_open_page_is_followed(
    page: Page, server: FakeServer
) -> None:
    server.states |= {"ONE": DONE, "TWO": DONE.model_copy(update={"answer": ["another"]})}
    page.goto(HOME)
    page.goto(f"{HOME}#ONE")
    page.get_by_text("the answer", exact=True).wait_for()
    page.goto(f"{HOME}#TWO")
    page.get_by_text("another", exact=True).wait_for()
    assert page.get_by_text("the answer", exact=True).count() == 0
    page.goto(f"{HOME}#THREE")
    page.get_by_text("There is no such answer any more.").wait_for()
    page.goto(f"{HOME}#")
    page.get_by_role("heading", name="Answer").wait_for(state="hidden")


def test_progress_has_the_source_of_its_joules(page: Page, server: FakeServer) -> None:
    server.states["KEY"] = RUNNING
    page.goto(f"{HOME}#KEY")
    page.get_by_text("41.2 mJ (estimated)", exact=True).wait_for()
    page.get_by_text("40 mJ (estimated)", exact=True).wait_for()


def test_an_answer_that_was_not_removed_stays(page: Page, server: FakeServer) -> None:
    server.states["KEY"] = DONE
    page.goto(f"{HOME}#KEY")
    remove = page.get_by_role("button", name="Remove")
    for status, cause in ((502, "the server or a proxy refused"), (None, "the server does not")):
        server.statuses["DELETE"] = status
        remove.click()
        page.locator("#remove-failure", has_text=f"Removing failed: {cause}").wait_for()
        page.get_by_text("the answer", exact=True).wait_for()
        assert page.url == f"{HOME}#KEY"
    server.statuses["DELETE"] = 404
    remove.click()
    page.get_by_text("The answer and all its files were removed.").wait_for()
    assert page.url == HOME
    assert page.locator("#remove-failure").inner_text() == ""


def test_a_search_that_was_not_stopped_says_so(page: Page, server: FakeServer) -> None:
    server.states["KEY"] = RUNNING
    page.goto(f"{HOME}#KEY")
    stop = page.get_by_role("button", name="Stop with the best so far")
    for status, cause in ((401, "with status 401"), (None, "the server does not answer")):
        server.statuses["stop"] = status
        stop.click()
        page.locator("#stop-failure", has_text=cause).wait_for()
    server.statuses["stop"] = 202
    stop.click()
    page.locator("#stop-failure:empty").wait_for(state="attached")


def test_a_lost_connection_is_said_until_there_is_one_again(page: Page, server: FakeServer) -> None:
    server.states["KEY"] = RUNNING
    server.statuses["GET"] = None
    page.goto(f"{HOME}#KEY")
    page.locator("#connection", has_text="No connection: the server does not").wait_for()
    assert page.locator("#state.running").is_visible()
    server.statuses |= {"events": 401, "GET": 401}
    page.locator("#connection", has_text="refused with status 401.").wait_for()
    assert page.get_by_text("There is no such answer any more.").count() == 0
    server.states["KEY"] = DONE
    server.statuses.clear()
    page.locator("#state.done").wait_for()
    assert page.locator("#connection").inner_text() == ""


def test_a_job_that_is_removed_meanwhile_is_gone(page: Page, server: FakeServer) -> None:
    server.states["KEY"] = RUNNING
    server.statuses["GET"] = 404
    page.goto(f"{HOME}#KEY")
    page.get_by_text("There is no such answer any more.").wait_for()
    assert page.locator("#actions").is_hidden()
