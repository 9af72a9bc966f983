"""Pytest plugin for runs over mutants: reproducible verdicts, as early as possible.

Hypothesis draws the same examples in every run and does not shrink failures. Within a module, the
tests that were fastest in the previous run come first. A test that allocates too much memory fails.
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
"""Environment variable with the file of durations by test, which a run without mutants writes."""
RECORDS = "MUTANTS_RECORD"
"""Environment variable that is set to record durations."""

_recorded: dict[str, float] = {}


def pytest_configure() -> None:
    """Set memory limit and Hypothesis profile, only if loaded as a plugin and not if imported."""
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
    """Sort tests by duration within each module, keeping the order of the modules."""
    durations = _read()
    modules = {path: rank for rank, path in enumerate(dict.fromkeys(item.path for item in items))}
    items.sort(key=lambda item: (modules[item.path], durations.get(item.nodeid, 0.0)))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Record the duration of the test itself, without the setup of its module."""
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
