"""Hostile input for every file format and for the serial protocol.

    python -m benchmarks.fuzz [--inputs N] [--formats NAME,NAME] [--record FILE]
        [--write docs/benchmarks/fuzz.md]
    python -m benchmarks.fuzz --show 'FORMAT:SEED' > input

Inputs have the seeds 0 to N-1 of their format. What is done is kept in the record, from which the
same command resumes; a record of another release is begun anew.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.fuzz.formats import FORMATS
from benchmarks.fuzz.worker import LIMIT_BYTES, LIMIT_S
from benchmarks.machine import package_version, release
from benchmarks.pages import Page, Table
from benchmarks.publish import command_line, publish, report_progress
from devices.documents.document import StrictModel, dump_json, read_json, write_atomically
from devices.quantities import WholeNumber
from devices.user_cache import user_cache
from tests.support.paths import ROOT

_KEPT_EVERY_S = 5.0
_HEAD = ("format", "inputs", "accepted", "refused", "wrong", "seconds")
_TEXT = """
Every input is a mutation of a valid document (bytes cut, copied, changed or inserted; values of the
parsed document exchanged), a random document, or random bytes. It is made from its format and its
seed alone; `python -m benchmarks.fuzz --show FORMAT:SEED` prints it. The program reads the input as
its commands do; what it accepts is written and read back, and used: profiles cost a network, graphs
are replayed with everything kept, every figure of schedules and reports is checked, schedules are
lowered to execution plans. An input is *wrong* if it ends in anything but success or a refusal of
at most one short line a problem, takes more than {limit_s} s, or makes the process larger than
{limit_gib} GiB.
"""


class Wrong(StrictModel):
    """An input that ended wrongly."""

    seed: WholeNumber
    what: str


class Done(StrictModel):
    """The inputs of one format with seeds below ``following``."""

    following: WholeNumber = 0
    accepted: WholeNumber = 0
    refused: WholeNumber = 0
    wrong: tuple[Wrong, ...] = ()
    seconds: float = 0.0


class FuzzRecord(StrictModel):
    """What is done, by format, with one release."""

    release: str
    formats: dict[str, Done]


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--inputs", type=int, default=10_000, help="of each format (10000)")
    parser.add_argument("--formats", default=",".join(FORMATS), help="names, with commas (all)")
    parser.add_argument("--record", type=Path, default=user_cache() / "fuzz.json")
    parser.add_argument("--show", metavar="FORMAT:SEED", help="print one input and end")
    shown = parser.parse_known_args()[0].show
    if shown is not None:
        name, _, seed = shown.rpartition(":")
        sys.stdout.buffer.write(FORMATS[name].input(name, int(seed)))
        return
    publish("benchmarks.fuzz", parser, _measure)


def _measure(arguments: argparse.Namespace) -> Page:
    names = arguments.formats.split(",")
    record = _begun(arguments.record)
    for name in names:
        for done in _fuzz(name, record.formats.get(name, Done()), arguments.inputs):
            record = record.model_copy(update={"formats": {**record.formats, name: done}})
            write_atomically(arguments.record, dump_json(record))
    rows = [_row(name, record.formats[name]) for name in names]
    wrong = [
        (name, str(each.seed), each.what) for name in names for each in record.formats[name].wrong
    ]
    tables = [Table(_HEAD, rows)]
    if wrong:
        tables.append(Table(("format", "seed", "what is wrong"), wrong, "Wrong inputs"))
    text = _TEXT.format(limit_s=LIMIT_S, limit_gib=LIMIT_BYTES >> 30)
    versions = [package_version("pydantic"), package_version("pyyaml", "PyYAML")]
    return Page("Hostile input", text, tables, versions)


def _begun(path: Path) -> FuzzRecord:
    if path.exists():
        record = read_json(path, FuzzRecord)
        if record.release == release():
            return record
    return FuzzRecord(release=release(), formats={})


def _fuzz(name: str, done: Done, inputs: int) -> Iterator[Done]:
    """Take the inputs that are left, and yield now and then what is done."""
    before_s, began_s = done.seconds, time.monotonic()
    kept_s = began_s
    while done.following < inputs:
        command = [sys.executable, "-m", "benchmarks.fuzz.worker", name]
        with subprocess.Popen(
            [*command, str(done.following), str(inputs)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as worker:
            assert worker.stdout is not None
            for line in worker.stdout:
                _, _, what = line.rstrip("\n").partition(" ")
                done = _with(done, what, before_s + time.monotonic() - began_s)
                if time.monotonic() > kept_s + _KEPT_EVERY_S:
                    kept_s = time.monotonic()
                    report_progress(f"{name}: {done.following} of {inputs}")
                    yield done
        if done.following < inputs:
            ended = _end(worker.returncode)
            done = _with(done, f"the process ended: {ended}", before_s + time.monotonic() - began_s)
    report_progress(
        f"{name}: seeds 0 to {inputs - 1}: {done.accepted} accepted, {done.refused} refused,"
        f" {len(done.wrong)} wrong"
    )
    for each in done.wrong:
        report_progress(f"{name}:{each.seed}: {each.what}")
    yield done


def _with(done: Done, what: str, seconds: float) -> Done:
    """The record with one more input."""
    update: dict[str, object] = {"following": done.following + 1, "seconds": seconds}
    if what in {"accepted", "refused"}:
        update[what] = getattr(done, what) + 1
    else:
        update["wrong"] = (*done.wrong, Wrong(seed=done.following, what=what))
    return done.model_copy(update=update)


def _end(code: int) -> str:
    if code == -signal.SIGALRM:
        return f"more than {LIMIT_S} s"
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def _row(name: str, done: Done) -> Sequence[str]:
    figures = (done.following, done.accepted, done.refused, len(done.wrong))
    return (name, *(f"{figure:,}" for figure in figures), f"{done.seconds:.0f}")


if __name__ == "__main__":
    main()
