"""What the server answers where its files cannot be written."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from server.app import Service, application
from server.jobs import Jobs
from server.limits import Limits
from tests.support.serving import graph_file

_WAITING = Limits(running=0)


@pytest.fixture
def jobs(tmp_path: Path) -> Jobs:
    """Jobs that wait."""
    (tmp_path / "jobs").mkdir()
    return Jobs(tmp_path / "jobs", tmp_path, _WAITING)


Client = Callable[..., httpx.Response]


@pytest.fixture
def client(jobs: Jobs, tmp_path: Path) -> Client:
    """A function that sends a request to the server."""
    app: Any = application(Service(jobs, _WAITING, tmp_path, None, lambda: False))

    async def answer(method: str, path: str, **words: Any) -> httpx.Response:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as sender:
            return await sender.request(method, path, **words)

    return lambda *words, **named: asyncio.run(answer(*words, **named))


def submitted(client: Client) -> httpx.Response:
    return client("POST", "/api/jobs", files=graph_file(), data={"ram_budget": "80%"})


@pytest.mark.parametrize(
    ("number", "status"),
    [(errno.ENOSPC, 507), (errno.EDQUOT, 507), (errno.EACCES, 500), (errno.ENOENT, 500)],
)
def test_a_file_that_cannot_be_written_is_one_sentence_without_its_name(
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    number: int,
    status: int,
) -> None:
    """The server's own log has it, but not the directory, which is the job's key."""

    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number), "/tmp/secret/graph.json")

    monkeypatch.setattr("server.uploads._keep", fail)
    answer = submitted(client)
    assert answer.status_code == status
    said = f"a file of the server cannot be read or written: {os.strerror(number)}"
    assert answer.json() == {"error": said, "exit_code": 2}
    assert caplog.messages == [f"graph.json: {os.strerror(number)}"]


def test_a_directory_that_was_removed_is_not_made_again(client: Client, tmp_path: Path) -> None:
    """Somebody else may have made another one under its name, in which uploads are not private."""
    shutil.rmtree(tmp_path / "jobs")
    answer = submitted(client)
    assert answer.status_code == 500
    assert answer.json()["error"].endswith("read or written: No such file or directory")


def test_an_answer_whose_files_were_removed_is_one_sentence(
    client: Client, jobs: Jobs, tmp_path: Path
) -> None:
    name = submitted(client).json()["job"]
    job = jobs.find(name)
    assert job is not None
    job.change(state="done", answer=["found"], pictures=["memory.png"])
    shutil.rmtree(tmp_path / "jobs")
    for file in ("schedule", "graph", "pictures/memory.png"):
        answer = client("GET", f"/api/jobs/{name}/{file}")
        assert answer.status_code == 500
        assert answer.json()["error"].endswith("read or written: No such file or directory")
