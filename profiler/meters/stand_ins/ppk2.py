"""Stand-in for a PPK2 on a pseudo-terminal.

It runs in a process of its own, so that it does not share an interpreter with its client::

    with Ppk2StandIn(Scenario(steps=(Step(0.1, 0.005), Step(0.2, 0.020, inputs=1)))) as stand_in:
        open_ppk2(Ppk2Meter(kind="ppk2", port=stand_in.port, …))
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import asdict, dataclass, field
from types import TracebackType
from typing import Final, Self

from devices.program import module_process


@dataclass(frozen=True)
class Step:
    """A stretch of time in which the board draws this current and its lines have these levels."""

    length_s: float
    current_a: float
    inputs: int = 0


@dataclass(frozen=True)
class Loss:
    """Loss of ``bytes`` in the stream, from byte ``offset`` of a sample's word on."""

    sample: int
    bytes: int
    offset: int = 0


@dataclass(frozen=True)
class Scenario:
    """What the stand-in plays.

    ``steps`` begin with the start command and are repeated. ``clock_error`` raises the rate of
    samples by this share. ``settling`` samples after a change of range are wrong.
    ``still_streaming``: an earlier client has left it streaming. ``mute``: it answers nothing.
    """

    steps: tuple[Step, ...] = (Step(1.0, 0.010),)
    losses: tuple[Loss, ...] = ()
    clock_error: float = 0.0
    settling: int = 0
    still_streaming: bool = False
    mute: bool = False


@dataclass(frozen=True)
class Status:
    """State of the stand-in.

    ``overflowed`` counts samples that it dropped because nobody read. ``started_s`` is when the
    first sample was taken, on ``time.monotonic()``.
    """

    samples: int
    overflowed: int
    started_s: float
    streaming: bool
    powered: bool
    mode: int
    millivolts: int
    commands: tuple[str, ...] = field(default=())


class Ppk2StandIn:
    """Process of the stand-in. Leaving ends it; so does the end of this process."""

    port: str

    def __init__(self, scenario: Scenario) -> None:
        self.scenario: Final = scenario

    def __enter__(self) -> Self:
        command, environment = module_process("profiler.meters.stand_ins.ppk2_process")
        self._process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.port = self._ask(json.dumps(asdict(self.scenario)))
        return self

    def status(self) -> Status:
        answer = json.loads(self._ask("status"))
        return Status(**{**answer, "commands": tuple(answer["commands"])})

    def vanish(self) -> None:
        """Simulate an unplugged cable."""
        self._process.kill()
        self._process.wait()

    def _ask(self, line: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().rstrip("\n")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._process as process:  # the process ends when its input closes
            if process.stdin is not None:
                process.stdin.close()
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()
