"""A server in a process of its own, and requests to it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.support.paths import ROOT

GRAPHS = ROOT / "benchmarks" / "instances"
SMALL, LARGE = GRAPHS / "poet-linear-m0.json", GRAPHS / "poet-resnet18-cifar-m4.json"

_WITH_LIMITS = """
import json, sys
from pathlib import Path
from server.limits import Limits
from server.serving import serve
serve("127.0.0.1", 0, Path("results"), Limits(**json.loads(sys.argv[1])),
      lambda address: print(json.dumps({"address": address}), flush=True))
"""


@dataclass(frozen=True)
class Server:
    """A running server; its files lie in ``directory``, its results in ``results`` below it."""

    process: subprocess.Popen[str]
    directory: Path
    client: httpx.Client

    @property
    def port(self) -> int:
        port = self.client.base_url.port
        assert port is not None
        return port

    @property
    def workers(self) -> list[int]:
        """Processes of jobs."""
        children = f"/proc/{self.process.pid}/task/{self.process.pid}/children"
        return [int(word) for word in Path(children).read_text().split()]

    def send(self, files: Mapping[str, tuple[str, bytes]] | None = None, **fields: str) -> Any:
        """Submit a job."""
        # A form of files has parts; text fields become parts without a file name.
        parts: list[tuple[str, Any]] = [(name, (None, value)) for name, value in fields.items()]
        parts += (files or {}).items()
        return self.client.post("/api/jobs", files=parts)

    def submit(self, files: Mapping[str, tuple[str, bytes]] | None = None, **fields: str) -> str:
        """Submit a job that is taken, and return its name."""
        answer = self.send(files, **fields)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["job"])

    def states(self, job: str) -> Iterator[dict[str, Any]]:
        """Follow a job."""
        with self.client.stream("GET", f"/api/jobs/{job}/events") as events:
            assert events.status_code == 200
            for line in events.iter_lines():
                if line.startswith("data:"):
                    yield json.loads(line.removeprefix("data:"))

    def ended(self, job: str) -> dict[str, Any]:
        """Follow a job to its end, and return its last state."""
        *_, last = self.states(job)
        assert last["exit_code"] is not None, last
        return last


def graph_file(path: Path = SMALL) -> dict[str, tuple[str, bytes]]:
    """The part of a form that is a costed graph."""
    return {"graph_file": (path.name, path.read_bytes())}


@contextmanager
def serving(directory: Path, *words: str, **limits: float) -> Iterator[Server]:
    """A server at a free port: the command with options, or the function with other limits."""
    directory.mkdir(parents=True, exist_ok=True)
    command = [str(ROOT / "cli.py"), "serve", "--port", "0", *words]
    if limits:
        command = ["-c", _WITH_LIMITS, json.dumps(limits)]
    temporary = directory / "tmp"
    temporary.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(temporary)}
    process = subprocess.Popen(
        [sys.executable, *command],
        cwd=directory,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            assert process.stdout is not None
            address = next(
                word for line in process.stdout for word in line.split('"') if "http:" in word
            )
            address = next(word for word in address.split() if word.startswith("http:"))
            with httpx.Client(base_url=address, timeout=120, trust_env=False) as client:
                yield Server(process, directory, client)
        finally:
            process.kill()
