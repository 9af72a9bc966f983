"""The application: JSON for scripts, a page for people.

Nothing is listed. A job is known by a name that nobody can guess, and whoever has the name may see,
stop and remove the job; for everybody else it does not exist.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, HTTPException, Request, Response
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse
from fastapi.sse import EventSourceResponse, ServerSentEvent
from pydantic import BaseModel
from starlette.exceptions import HTTPException as StatusError

from devices.errors import ExitCode, InputError
from devices.program import program_version
from server.choices import Choices
from server.form import SCHEDULE, request_body
from server.guard import Guard
from server.jobs import Full, Job, Jobs, JobState
from server.limits import Limits
from server.page.page import page
from server.uploads import Refused, read_request
from solver.files.solved import graph_path

_GRAPH_OF_ANSWER = graph_path(Path(SCHEDULE)).name
_RETRY_S = "30"
_LOG = logging.getLogger("uvicorn.error")
_NO_SPACE = {errno.ENOSPC, errno.EDQUOT}


class Submitted(BaseModel):
    """A job that was taken. ``job`` is its name, which belongs to whoever submitted it."""

    job: str


class Failure(BaseModel):
    """Why a request failed: one sentence, and the exit code that the command line would have."""

    error: str
    exit_code: int = ExitCode.USAGE


@dataclass(frozen=True)
class Service:
    """What the application is made of.

    ``hosts`` are the names by which it may be called, None for all; ``is_closing`` says that the
    server is about to end.
    """

    jobs: Jobs
    limits: Limits
    results: Path
    hosts: Collection[str] | None
    is_closing: Callable[[], bool]


def service_of(request: Request) -> Service:
    """The service that a request is for."""
    service: Service = request.app.state.service
    return service


Served = Annotated[Service, Depends(service_of)]


def found(job: str, service: Served) -> Job:
    """The job that the address of a request names."""
    known = service.jobs.find(job)
    if known is None:
        raise HTTPException(404, "there is no such job; jobs are kept for a limited time")
    return known


Found = Annotated[Job, Depends(found)]
_pages = APIRouter()


@_pages.get("/", response_class=HTMLResponse, include_in_schema=False)
async def show_page(service: Served) -> Response:
    """The page for people."""
    return page(await asyncio.to_thread(Choices.of, service.results), service.limits)


@_pages.get("/api/choices")
async def list_choices(service: Served) -> Choices:
    """List the built-in networks and the profiles that jobs may name."""
    return await asyncio.to_thread(Choices.of, service.results)


@_pages.post(
    "/api/jobs",
    status_code=201,
    openapi_extra={"requestBody": request_body()},
    responses={
        status: {"model": Failure, "description": what}
        for status, what in (
            (408, "The request took too long to arrive"),
            (413, "The request is too large"),
            (415, "The request is no form"),
            (422, "A field is not allowed"),
            (500, "A file of the server cannot be written"),
            (503, "As many jobs wait as may"),
            (507, "The server has no space left for the request"),
        )
    },
)
async def submit(request: Request, response: Response, service: Served) -> Submitted:
    """Submit a network or a costed graph, a profile and a budget."""
    with service.jobs.place() as directory:
        form = await read_request(request, directory, service.limits)
        choices = await asyncio.to_thread(Choices.of, service.results)
        choices.require(form)
        job = service.jobs.submit(form, directory)
    response.headers["location"] = f"/api/jobs/{job.id}"
    return Submitted(job=job.id)


@_pages.get("/api/jobs/{job}")
async def show_job(job: Found) -> JobState:
    """State of a job, with its answer once there is one."""
    return job.seen


@_pages.get("/api/jobs/{job}/events", response_class=EventSourceResponse)
async def follow_job(job: Found, service: Served) -> AsyncIterator[ServerSentEvent]:
    """Follow a job: an event ``state`` now and after each change, until it has ended."""
    async for state in service.jobs.watch(job, service.is_closing):
        yield ServerSentEvent(data=state, event="state")


@_pages.post("/api/jobs/{job}/stop", status_code=202)
async def stop_job(job: Found, service: Served) -> JobState:
    """End the search; the best schedule that it has found so far becomes the answer."""
    service.jobs.stop(job)
    return job.seen


@_pages.delete("/api/jobs/{job}", status_code=204)
async def remove_job(job: Found, service: Served) -> None:
    """End a job and forget it with all its files."""
    service.jobs.remove(job)


_ANSWERS: dict[int | str, dict[str, Any]] = {
    409: {"model": Failure, "description": "The search has not ended"},
    422: {"model": Failure, "description": "The job failed: what was uploaded cannot be used"},
    500: {"model": Failure, "description": "The job failed for a reason of the server"},
}


@_pages.get("/api/jobs/{job}/schedule", response_class=FileResponse, responses=_ANSWERS)
async def get_schedule(job: Found) -> Response:
    """The schedule (``schedule/2``), also if its status says that nothing fits."""
    return _answer(job, SCHEDULE)


@_pages.get("/api/jobs/{job}/graph", response_class=FileResponse, responses=_ANSWERS)
async def get_graph(job: Found) -> Response:
    """The costed graph of the schedule (``costed-graph/1``)."""
    return _answer(job, _GRAPH_OF_ANSWER)


@_pages.get("/api/jobs/{job}/pictures/{name}", response_class=FileResponse)
async def get_picture(job: Found, name: str) -> Response:
    """A picture (PNG) that the state of the job names."""
    path = job.file(name) if name in job.seen.pictures else None
    if path is None:
        raise HTTPException(404, "the job has no such picture")
    return _file(path, "image/png")


async def _explain_status(_request: Request, error: Exception) -> Response:
    assert isinstance(error, StatusError)
    return _failure(error.status_code, str(error.detail))


async def _explain_refused(_request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    # What is left of the request is not read.
    return _failure(error.status, str(error), {"connection": "close"})


async def _explain_input(_request: Request, error: Exception) -> Response:
    return _failure(422, str(error))


async def _explain_file(_request: Request, error: Exception) -> Response:
    assert isinstance(error, OSError)
    status = 507 if error.errno in _NO_SPACE else 500
    # Without its directory: the name of a job is its key.
    _LOG.error("%s: %s", Path(str(error.filename or "a file")).name, error.strerror)
    # Its name would tell where the files of other jobs are.
    sentence = f"a file of the server cannot be read or written: {error.strerror or 'unknown'}"
    return _failure(status, sentence, {"connection": "close"})


async def _explain_full(_request: Request, _error: Exception) -> Response:
    sentence = "the server is busy: as many jobs wait as may; try again later"
    headers = {"connection": "close", "retry-after": _RETRY_S}
    return _failure(503, sentence, headers, ExitCode.NO_SOLUTION)


def application(service: Service) -> Guard:
    """The application of a service."""

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        cleaning = asyncio.create_task(service.jobs.clean())
        try:
            yield
        finally:
            cleaning.cancel()
            await service.jobs.close()

    app = FastAPI(
        title="Joulewright",
        summary="Schedules of least energy for training steps on small boards",
        version=program_version(),
        docs_url=None,  # these pages load scripts from elsewhere; /openapi.json is ours
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
        responses={404: {"model": Failure, "description": "There is no such job"}},
        exception_handlers={
            StatusError: _explain_status,
            Refused: _explain_refused,
            InputError: _explain_input,
            OSError: _explain_file,
            Full: _explain_full,
        },
    )
    app.state.service = service
    app.include_router(_pages)
    return Guard(app, service.hosts)


def _failure(
    status: int,
    sentence: str,
    headers: dict[str, str] | None = None,
    code: int = ExitCode.USAGE,
) -> Response:
    return JSONResponse(Failure(error=sentence, exit_code=code).model_dump(), status, headers)


def _file(path: Path, media_type: str) -> Response:
    """A file as response. Raises :class:`OSError` if it was removed."""
    return FileResponse(path, media_type=media_type, stat_result=path.stat())


def _answer(job: Job, name: str) -> Response:
    path, state = job.file(name), job.seen
    if path is not None:
        return _file(path, "application/json")
    if state.error is None:
        return _failure(409, "the search has not ended")
    code = ExitCode.USAGE if state.exit_code is None else state.exit_code
    return _failure(422 if code == ExitCode.USAGE else 500, state.error, code=code)
