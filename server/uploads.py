"""Reading of a form whose size and time are limited while it arrives."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

from devices.documents.readable import size
from server.form import FILES, GRAPH, PROFILE, JobForm, read_form
from server.limits import Limits

_LONGEST_TEXT = 64 << 10
_MOST_FIELDS = 200


class Refused(Exception):
    """A request that is not read to its end; ``status`` is the one of HTTP."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


async def read_request(request: Request, directory: Path, limits: Limits) -> JobForm:
    """Read the form of a request, and keep its files in a directory.

    Args:
        request: The request, of which nothing has been read.
        directory: Directory of the job.
        limits: Limits on size and time.

    Raises:
        Refused: The request is too large, too slow or no form.
        DocumentError: A field is unknown, or has a value that is not allowed.
    """
    stated = request.headers.get("content-length", "")
    if stated.isdigit() and int(stated) > limits.upload_bytes:
        raise _too_large(limits)
    if not request.headers.get("content-type", "").startswith(
        ("multipart/form-data", "application/x-www-form-urlencoded")
    ):
        raise Refused(415, "a request is a form: multipart/form-data, as curl -F sends it")
    left = limits.upload_bytes

    async def receive() -> MutableMapping[str, Any]:
        nonlocal left
        message = await request.receive()
        left -= len(message.get("body", b""))
        if left < 0:
            raise _too_large(limits)
        return message

    try:
        async with asyncio.timeout(limits.upload_s):
            limited = Request(request.scope, receive)
            async with limited.form(
                max_files=len(FILES), max_fields=_MOST_FIELDS, max_part_size=_LONGEST_TEXT
            ) as form:
                texts: dict[str, list[str]] = {}
                files: dict[str, UploadFile] = {}
                for name, value in form.multi_items():
                    if isinstance(value, str):
                        texts.setdefault(name, []).append(value)
                    elif value.size:  # a browser sends an empty file where none was chosen
                        files[name] = value
                read = read_form(texts, {name: file.filename or "" for name, file in files.items()})
                for name, file in files.items():
                    await asyncio.to_thread(_keep, file, directory / _name_in_job(name, read))
                return read
    except TimeoutError:
        raise Refused(408, f"the request took more than {limits.upload_s:g} s to arrive") from None
    except ClientDisconnect:
        raise Refused(400, "the request was cut off") from None
    except HTTPException as error:
        raise Refused(400, f"the form cannot be read: {error.detail}") from None


def _too_large(limits: Limits) -> Refused:
    return Refused(413, f"the request is larger than {size(limits.upload_bytes)}, the most here")


def _name_in_job(field: str, form: JobForm) -> str:
    if field == "network_file":
        assert form.network_file is not None, "read_form takes it from the file"
        return form.network_file
    return GRAPH if field == "graph_file" else PROFILE


def _keep(upload: UploadFile, path: Path) -> None:
    upload.file.seek(0)
    with path.open("xb") as file:
        while part := upload.file.read(1 << 20):
            file.write(part)
