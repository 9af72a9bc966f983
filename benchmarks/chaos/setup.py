"""The campaign of the chaos benchmark: its boards, its files and the processes that run it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cli
from devices.description import DeviceDescription, load_description
from devices.documents.document import dump_yaml
from devices.user_cache import user_cache
from tests.support.boards.processes import VARIABLE, new_mark

LOCAL, LINUX, MICRO = "here", "linux", "micro"
COST_FREE = ("keep-everything", "chen-sqrt-n", "griewank")
"""Methods whose schedules do not depend on measured costs."""

_NAME = "chaos"
_BUDGETS = ("100%", "75%", "60%", "50%")
_LAB_S = 400.0
_LAST_WORDS_S = 5.0


@dataclass(frozen=True)
class Size:
    """How large the campaign is: its boards, the cells of this computer, and those of the others.

    Emulated boards have the first of the networks.
    """

    boards: tuple[str, ...] = (LOCAL, LINUX, MICRO)
    networks: tuple[str, ...] = ("digits", "linear")
    budgets: tuple[str, ...] = _BUDGETS
    methods: tuple[str, ...] = ("joulewright", *COST_FREE, "page-everything")
    micro_methods: tuple[str, ...] = ("joulewright", *COST_FREE)
    linux_methods: tuple[str, ...] = ("joulewright", "chen-sqrt-n", "griewank")
    linux_budgets: tuple[str, ...] = ("100%", "60%")


class Place:
    """Directory of the benchmark with a cache, locks and scratch files of its own.

    The images of emulated boards are shared with the user's cache. Claims and sessions are not, so
    that what is left in the end is the campaign's.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.cache = self.root / "cache" / "joulewright"
        self.runtime = self.root / "run"
        self.scratch = self.root / "tmp"
        self.storage = self.root / "storage"
        for directory in (self.cache, self.runtime, self.scratch, self.storage):
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        images = user_cache() / "lab"
        images.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not (self.cache / "lab").exists():
            (self.cache / "lab").symlink_to(images.resolve())

    @property
    def kept_board(self) -> Path:
        """Files of the emulated Linux board."""
        return self.cache / "boards" / "kept" / LINUX

    @property
    def has_kept_board(self) -> bool:
        """Whether the emulated Linux board was started."""
        return (self.kept_board / "board.json").is_file()

    @property
    def started_boards(self) -> Path:
        """Directories of the boards that commands start for themselves."""
        return self.cache / "boards" / "runs"

    def environment(self, mark: str | None = None) -> dict[str, str]:
        """Environment of the processes; those of a campaign carry its ``mark``."""
        own = {
            "XDG_CACHE_HOME": str(self.cache.parent),
            "XDG_RUNTIME_DIR": str(self.runtime),
            "TMPDIR": str(self.scratch),
        }
        return {**os.environ, **own, **({} if mark is None else {VARIABLE: mark})}

    def lab(self, action: str) -> None:
        """Start or end the emulated Linux board, which runs as long as the benchmark."""
        words = ["--device", f"{LINUX}.yaml"] if action == "up" else []
        subprocess.run(
            [sys.executable, cli.__file__, "lab", action, *words],
            cwd=self.root,
            env=self.environment(),
            check=True,
            capture_output=True,
            timeout=_LAB_S,
        )

    @property
    def board_pid(self) -> int:
        """Process of the emulated Linux board."""
        return int(self._board_record()["pid"])

    @property
    def board_port(self) -> int:
        """Port of this computer at which the emulated Linux board is reached."""
        return int(self._board_record()["port"])

    def _board_record(self) -> Mapping[str, Any]:
        record: Mapping[str, Any] = json.loads((self.kept_board / "board.json").read_text())
        return record

    def write(self, size: Size, seed: int) -> None:
        """Write the campaign's file and the descriptions of its boards."""
        descriptions = {LOCAL: _local(self.storage), LINUX: _linux(), MICRO: _micro()}
        for name in size.boards:
            (self.root / f"{name}.yaml").write_text(dump_yaml(descriptions[name]))
        (self.root / f"{_NAME}.yaml").write_text(json.dumps(_campaign(size, seed)))

    def campaign(self, results: str) -> Path:
        """Directory of the campaign in one of the results' directories."""
        return self.root / results / "campaigns" / _NAME


class CampaignProcess:
    """``campaign run`` in a process group of its own; ``mark`` is in all that it starts."""

    def __init__(self, place: Place, results: str) -> None:
        self.mark = new_mark()
        self._lines: list[str] = []
        self._process = subprocess.Popen(
            [
                *(sys.executable, cli.__file__, "campaign", "run", f"{_NAME}.yaml"),
                *("--results", results, "--jobs", "2"),
            ],
            cwd=place.root,
            env=place.environment(self.mark),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        log = place.root / f"{results}.log"
        self._reader = threading.Thread(target=self._read, args=(log,), daemon=True)
        self._reader.start()

    def _read(self, log: Path) -> None:
        """Keep what is printed, in a file too: files of the campaign itself may be limited."""
        assert self._process.stdout is not None, "it is a pipe"
        with self._process.stdout as printed, log.open("a") as kept:
            for line in printed:
                self._lines.append(line.rstrip())
                kept.write(line)
                kept.flush()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def wait(self, timeout_s: float) -> int:
        """Wait for its end. Raises :class:`subprocess.TimeoutExpired`."""
        return self._process.wait(timeout_s)

    def last_words(self) -> str:
        """Its last line that says why it ended, or its last line."""
        self._reader.join(_LAST_WORDS_S)  # processes that outlive it hold the pipe open
        lines = [line for line in self._lines if line]
        said = [line for line in lines if line.startswith(("error:", "failed:", "interrupted"))]
        return (said or lines or ["nothing"])[-1]


def _campaign(size: Size, seed: int) -> Mapping[str, Any]:
    def excluded(board: str, **kept: tuple[str, ...]) -> list[Mapping[str, Any]]:
        if board not in size.boards:
            return []
        known = {"networks": size.networks, "methods": size.methods, "ram_budgets": size.budgets}
        left_out = {
            factor: [level for level in known[factor] if level not in levels]
            for factor, levels in kept.items()
        }
        return [
            {"boards": [board], factor: levels} for factor, levels in left_out.items() if levels
        ]

    return {
        "schema": "campaign/1",
        "name": _NAME,
        "boards": [f"{name}.yaml" for name in size.boards],
        "networks": list(size.networks),
        "ram_budgets": list(size.budgets),
        "methods": [{"method": method, "time_limit_s": 60} for method in size.methods],
        "repetitions": 1,
        "steps": 3,  # the median leaves out a step with an interrupt more, one in hundreds
        "profile_blocks": 1,
        "watch_steps": False,
        "attempts": 5,
        "seed": seed,
        "exclude": [
            *excluded(
                LINUX,
                networks=size.networks[:1],
                methods=size.linux_methods,
                ram_budgets=size.linux_budgets,
            ),
            *excluded(MICRO, networks=size.networks[:1], methods=size.micro_methods),
        ],
    }


def _local(storage: Path) -> DeviceDescription:
    here = load_description("local").model_dump(mode="json", by_alias=True, exclude_none=True)
    here["storage"]["path"] = str(storage)
    return _described(here, LOCAL, ["-O0"])


def _linux() -> DeviceDescription:
    """The emulated Linux board, without its card, which takes minutes to emulate."""
    board = load_description("emulated-a72").model_dump(
        mode="json", by_alias=True, exclude_none=True
    )
    del board["storage"], board["emulator"]["card"]
    return _described(board, LINUX, ["-O1", "-mcpu=cortex-a72"])


def _micro() -> DeviceDescription:
    board = load_description("emulated-m4f").model_dump(
        mode="json", by_alias=True, exclude_none=True
    )
    return _described(board, MICRO, ["-O1", *board["toolchain"]["flags"][1:]])


def _described(data: dict[str, Any], name: str, flags: list[str]) -> DeviceDescription:
    data["name"] = name
    data["toolchain"]["flags"] = flags
    return DeviceDescription.model_validate(data)
