"""A pytest plugin for runs over mutants: the same verdict every time, and as soon as possible.

Hypothesis draws the same examples in every run and does not shrink what it finds. Within a module
the tests that took least time in the run before come first. A test that allocates without end
fails.
"""

from __future__ import annotations

import json
import os
import resource
from pathlib import Path

import pytest
from hypothesis import Phase, settings

MEMORY_BYTES = 8 << 30
DURATIONS = "MUTANTS_DURATIONS"
"""Names the file of durations by test, which a run without mutants writes."""
RECORDS = "MUTANTS_RECORD"
"""Set where durations are to be recorded."""

_recorded: dict[str, float] = {}


def pytest_configure() -> None:
    """Only where this is a plugin: who imports it keeps limits and profile of its own."""
    settings.register_profile(
        "mutants",
        derandomize=True,
        database=None,
        deadline=None,
        phases=(Phase.explicit, Phase.generate),
    )
    settings.load_profile("mutants")
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, resource.RLIM_INFINITY))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort tests by duration, modules staying in the order in which they were named."""
    durations = _read()
    modules = {path: rank for rank, path in enumerate(dict.fromkeys(item.path for item in items))}
    items.sort(key=lambda item: (modules[item.path], durations.get(item.nodeid, 0.0)))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Take the time of the test itself: what a module sets up once is not the first one's."""
    if report.when == "call":
        _recorded[report.nodeid] = report.duration


def pytest_sessionfinish() -> None:
    """Write the durations of a run without mutants."""
    if os.environ.get(RECORDS):
        _file().write_text(json.dumps(_read() | _recorded), encoding="utf-8")


def _read() -> dict[str, float]:
    return json.loads(_file().read_text(encoding="utf-8")) if _file().is_file() else {}


def _file() -> Path:
    return Path(os.environ[DURATIONS])
