"""Mutation testing: small faults in the code, which the tests must detect.

``python -m tools.mutants --out mutants.jsonl`` draws a sample of mutants for each target, applies
each in a copy of the tree, and runs the target's tests: first the tests of the code, then wider
ones for mutants that survive. Verdicts are appended to the file one by one, and a mutant with a
verdict is not tried again, so that an interrupted run can be resumed. The checkout is not changed.
Prints a table of targets and every survivor as a one-line difference.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from tools import mutants_plugin
from tools.mutators import Edit, edits_of

ROOT = Path(__file__).resolve().parents[1]

Verdict: TypeAlias = Literal["killed", "timed out", "survived"]


@dataclass(frozen=True)
class Target:
    """Code to mutate, and its tests.

    ``tests`` run first; mutants that survive also run ``wider``. Both are arguments of pytest.
    """

    name: str
    files: tuple[str, ...]
    tests: tuple[str, ...]
    wider: tuple[str, ...] = ()
    count: int = 20


TARGETS = (
    Target(
        "referee",
        ("solver/referee/referee.py",),
        ("tests/solver/test_referee.py",),
        ("tests/solver/test_overlap.py",),
        32,
    ),
    Target(
        "addresses",
        ("solver/referee/addresses.py",),
        (
            "tests/solver/addresses/test_address_limits.py",
            "tests/solver/addresses/test_addresses.py",
        ),
        ("tests/replay/test_lowering.py",),
        16,
    ),
    Target(
        "clock",
        ("solver/referee/clock.py",),
        ("tests/solver/test_referee.py",),
        ("tests/solver/test_overlap.py",),
        18,
    ),
    Target(
        "crossing",
        ("solver/formulations/crossing.py",),
        (
            "tests/solver/formulations/test_crossing_memory_rows.py",
            "tests/solver/formulations/test_crossing_deadline.py",
            "tests/solver/formulations/test_crossing.py",
        ),
        ("tests/solver/test_search_parts.py",),
        26,
    ),
    Target(
        "evaluate",
        ("profiler/run/evaluate.py",),
        ("tests/profiler/run/test_hindrances.py", "tests/profiler/run/test_measuring.py"),
        ("tests/profiler/boards/test_health.py",),
        22,
    ),
    Target(
        "statistics",
        ("profiler/statistics.py",),
        ("tests/profiler/run/test_fits.py", "tests/profiler/run/test_measuring.py"),
        ("tests/replay/test_replay_report.py",),
        10,
    ),
    Target(
        "storage fit",
        ("profiler/run/storage_fit.py",),
        ("tests/profiler/run/test_fits.py", "tests/profiler/run/test_measuring.py"),
        ("tests/profiler/run/test_storage_windows.py",),
        14,
    ),
    Target(
        "lowering",
        ("replay/lowering/*.py",),
        ("tests/replay/test_lowering_limits.py", "tests/replay/test_lowering.py"),
        (
            *("tests/replay/test_replay.py", "-k"),
            "same_bits or dropout or kept_values or bytes_stored or guarded",
        ),
        44,
    ),
    Target(
        "store",
        (
            "onboard/executor/store.c",
            "onboard/executor/store_pages.c",
            "onboard/executor/store_record.c",
            "onboard/executor/store_rows.c",
        ),
        (
            "tests/onboard/executor/test_store_limits.py",
            "tests/onboard/executor/test_executor.py",
            "tests/onboard/executor/test_rows.py",
        ),
        ("tests/onboard/test_linux_replay.py",),
        36,
    ),
    Target(
        "executor",
        ("onboard/executor/executor.c", "onboard/executor/checksum.c"),
        ("tests/onboard/executor/test_limits.py", "tests/onboard/executor/test_executor.py"),
        ("tests/onboard/test_linux_replay.py",),
        26,
    ),
)


@dataclass(frozen=True)
class Mutant:
    """One edit of one file; ``digest`` is the hash of the file without it."""

    path: str
    digest: str
    edit: Edit
    line: int
    before: str
    after: str

    @classmethod
    def of(cls, path: str, source: str, edit: Edit) -> Mutant:
        begin = source.rfind("\n", 0, edit.start) + 1
        end = source.find("\n", edit.end)
        stop = len(source) if end < 0 else end
        after = source[begin : edit.start] + edit.replacement + source[edit.end : stop]
        return cls(
            path,
            hashlib.sha256(source.encode()).hexdigest()[:12],
            edit,
            source.count("\n", 0, edit.start) + 1,
            " ".join(source[begin:stop].split()),
            " ".join(after.split()),
        )

    @property
    def key(self) -> tuple[str, str, int, int, str]:
        return self.path, self.digest, self.edit.start, self.edit.end, self.edit.replacement

    @property
    def title(self) -> str:
        return f"{self.path}:{self.line}: {self.before}  →  {self.after}"


# --- choosing ---------------------------------------------------------------------------------


def mutants_of(root: Path, target: Target) -> list[Mutant]:
    """All mutants of a target, including those of C that do not compile."""
    found = []
    for pattern in target.files:
        for path in sorted(root.glob(pattern)):
            source = path.read_text(encoding="utf-8")
            name = str(path.relative_to(root))
            found += [Mutant.of(name, source, edit) for edit in edits_of(source, path.suffix)]
    return found


def shuffled(mutants: Sequence[Mutant], seed: int) -> list[Mutant]:
    """Shuffle mutants so that every line comes once before any line comes twice."""

    def drawn(mutant: Mutant) -> str:
        """Random rank of a mutant, independent of the other mutants."""
        return hashlib.sha256(f"{seed} {mutant.key}".encode()).hexdigest()

    met: Counter[tuple[str, int]] = Counter()
    rounds = {}
    order = sorted(mutants, key=drawn)
    for mutant in order:
        rounds[mutant.key] = met[mutant.path, mutant.line]
        met[mutant.path, mutant.line] += 1
    return sorted(order, key=lambda mutant: rounds[mutant.key])


# --- trying -----------------------------------------------------------------------------------


class Copy:
    """Copy of a checkout, without ignored files, in which tests run."""

    def __init__(self, root: Path, directory: Path) -> None:
        directory.chmod(0o755)  # servers under other users read files of tests
        self._root = directory / "tree"
        self._directory = directory
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=root,
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for name in filter(None, listed.split("\0")):
            if (root / name).is_file():
                (self._root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(root / name, self._root / name)
        plugins = directory / "plugins"
        plugins.mkdir()
        shutil.copy(mutants_plugin.__file__, plugins / "mutants_plugin.py")
        # Checked by content: a mutant may have the size and the time stamp of the original.
        subprocess.run(
            [sys.executable, "-m", "compileall", "-q", "--invalidation-mode", "checked-hash", "."],
            cwd=self._root,
            check=False,
            stdout=subprocess.DEVNULL,
        )

    @contextlib.contextmanager
    def mutated(self, mutant: Mutant) -> Iterator[None]:
        """Apply a mutant within the context."""
        path = self._root / mutant.path
        source = path.read_text(encoding="utf-8")
        path.write_text(mutant.edit.applied_to(source), encoding="utf-8")
        try:
            yield
        finally:
            path.write_text(source, encoding="utf-8")

    def compiles(self, mutant: Mutant) -> bool:
        """True if the compiler accepts a mutant of C without a warning; always true for Python."""
        path = self._root / mutant.path
        if path.suffix != ".c":
            return True
        words = ["cc", "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-c", "-o", os.devnull]
        folders = sorted({header.parent for header in path.parent.parent.glob("*/*.h")})
        words += [*(f"-I{folder}" for folder in folders), str(path)]
        with self.mutated(mutant):
            return subprocess.run(words, capture_output=True, check=False).returncode == 0

    def test(self, tests: Sequence[str], timeout_s: float | None = None) -> int | None:
        """Run pytest and return its exit status; None if it exceeds ``timeout_s``.

        Durations are recorded if there is no timeout.
        """
        environment = os.environ | {
            "PYTHONPATH": str(self._directory / "plugins"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "TMPDIR": str(self._directory),
            mutants_plugin.DURATIONS: str(self._directory / "durations.json"),
            mutants_plugin.RECORDS: "" if timeout_s else "1",
        }
        words = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "--tb=short"]
        words += ["-p", "no:cacheprovider", "-p", "mutants_plugin"]
        words += [f"--basetemp={self._directory / 'pytest'}", *tests]
        process = subprocess.Popen(
            words,
            cwd=self._root,
            env=environment,
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        try:
            self.output, _ = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            return None
        finally:
            # End all processes that the tests have started, also after Ctrl-C.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
        return process.returncode


class Trial:
    """Trial of mutants of one target in a copy of the tree."""

    def __init__(self, copy: Copy, target: Target) -> None:
        self._copy = copy
        self._target = target

    def verdict(self, mutant: Mutant) -> Verdict:
        """Run the tests on a mutant; raises ``RuntimeError`` if they fail without it."""
        for tests in filter(None, (self._target.tests, self._target.wider)):
            timeout_s = self._timeout_s(tests)
            with self._copy.mutated(mutant):
                status = self._copy.test(tests, timeout_s)
            if status != 0:
                return "timed out" if status is None else "killed"
        return "survived"

    @functools.cache  # noqa: B019 - lives as long as the program
    def _timeout_s(self, tests: tuple[str, ...]) -> float:
        """Time limit of the tests, far above their time without a mutant."""
        start_s = time.monotonic()
        if self._copy.test(tests):
            output = self._copy.output.decode(errors="replace")
            raise RuntimeError(f"{self._target.name}: tests fail without a mutant\n{output}")
        return 60.0 + 4.0 * (time.monotonic() - start_s)


def try_target(
    root: Path, target: Target, out: Path, *, count: int, seed: int, survivors: bool = False
) -> None:
    """Append verdicts to ``out`` until it has ``count`` of the target.

    With ``survivors``, try the mutants that survived again instead.
    """
    found = {mutant.key: mutant for mutant in mutants_of(root, target)}
    known = {key: record for key, record in _records(out).items() if key in found}
    if survivors:
        chosen = [found[key] for key, each in known.items() if each["verdict"] == "survived"]
    else:
        chosen = [m for m in shuffled([*found.values()], seed) if m.key not in known]
    left = len(chosen) if survivors else count - len(known)
    if left <= 0:
        return
    with tempfile.TemporaryDirectory(prefix="mutants-") as directory:
        copy = Copy(root, Path(directory))
        trial = Trial(copy, target)
        for mutant in chosen:
            if not copy.compiles(mutant):
                continue
            start_s = time.monotonic()
            verdict = trial.verdict(mutant)
            _append(out, target, mutant, verdict, seed, time.monotonic() - start_s)
            print(f"{verdict:9} {mutant.title}", flush=True)
            left -= 1
            if not left:
                break


# --- records ----------------------------------------------------------------------------------


def _append(
    out: Path, target: Target, mutant: Mutant, verdict: Verdict, seed: int, time_s: float
) -> None:
    record = {
        "target": target.name,
        "path": mutant.path,
        "digest": mutant.digest,
        "start": mutant.edit.start,
        "end": mutant.edit.end,
        "replacement": mutant.edit.replacement,
        "operator": mutant.edit.operator,
        "title": mutant.title,
        "seed": seed,
        "verdict": verdict,
        "time_s": round(time_s, 1),
    }
    with out.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record, ensure_ascii=False) + "\n")


def _records(out: Path) -> dict[tuple[str, str, int, int, str], Mapping[str, Any]]:
    """Last record of each mutant."""
    if not out.is_file():
        return {}
    records = map(json.loads, out.read_text(encoding="utf-8").splitlines())
    return {(r["path"], r["digest"], r["start"], r["end"], r["replacement"]): r for r in records}


def table(targets: Iterable[Target], out: Path) -> str:
    """Format a table of verdicts by target, and a list of the survivors."""
    records = _records(out).values()
    lines = [f"{'target':12} {'tried':>6} {'killed':>7} {'timed out':>10} {'survived':>9}"]
    total: Counter[str] = Counter()
    for target in targets:
        verdicts = Counter(r["verdict"] for r in records if r["target"] == target.name)
        lines.append(_row(target.name, verdicts))
        total += verdicts
    lines.append(_row("all", total))
    names = {target.name for target in targets}
    lines += [
        f"survived  {record['title']}"
        for record in records
        if record["verdict"] == "survived" and record["target"] in names
    ]
    return "\n".join(lines)


def _row(name: str, verdicts: Counter[str]) -> str:
    killed, late, survived = (verdicts[v] for v in ("killed", "timed out", "survived"))
    return f"{name:12} {verdicts.total():6} {killed:7} {late:10} {survived:9}"


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line and return 0, or 1 if the tests fail without a mutant."""
    parser = argparse.ArgumentParser(prog="python -m tools.mutants", description=__doc__)
    names = [target.name for target in TARGETS]
    parser.add_argument(
        "--target", action="append", choices=names, help="target to mutate; may be repeated (all)"
    )
    parser.add_argument("--count", type=int, help="mutants of each target (by its size)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the sample (0)")
    parser.add_argument(
        "--out", type=Path, default=Path("mutants.jsonl"), help="file of verdicts (mutants.jsonl)"
    )
    parser.add_argument(
        "--survivors", action="store_true", help="try the mutants that survived again"
    )
    parser.add_argument("--list", action="store_true", help="print the targets and exit")
    options = parser.parse_args(words)
    for stop in (signal.SIGINT, signal.SIGTERM):  # also where the shell runs it in the background
        signal.signal(stop, signal.default_int_handler)
    targets = [t for t in TARGETS if not options.target or t.name in options.target]
    if options.list:
        for target in targets:
            possible = len(mutants_of(ROOT, target))
            print(f"{target.name:12} {target.count:3} of {possible:4}  {' '.join(target.tests)}")
        return 0
    try:
        for target in targets:
            try_target(
                ROOT,
                target,
                options.out,
                count=target.count if options.count is None else options.count,
                seed=options.seed,
                survivors=options.survivors,
            )
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; run the same command again to resume", file=sys.stderr)
    print(table(targets, options.out))
    return 0


if __name__ == "__main__":
    sys.exit(main())
