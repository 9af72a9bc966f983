"""The root of the project's errors: each class has an exit code and a unique name."""

from __future__ import annotations

import importlib
import pickle
import pkgutil
from collections import Counter
from collections.abc import Iterator
from functools import cache

import pytest

from devices.errors import (
    BoardCommandFailed,
    BoardUnreachable,
    BuildFailed,
    Defect,
    EngineFailed,
    ExitCode,
    FirmwareMismatch,
    InputError,
    JoulewrightError,
    MeasurementInvalid,
    RequestRefused,
)

PACKAGES = (
    "campaigns",
    "commands",
    "devices",
    "networks",
    "plots",
    "profiler",
    "replay",
    "server",
    "solver",
)

NEVER_LEAVE = {
    "ConnectionLostError": "a link's network failure: a Shell tries again, then BoardUnreachable",
    "Full": "a queue without a place: the server answers 503 with a sentence",
    "Incomplete": "a node without a tensor is mapped as it is, and refused with a sentence",
    "NotSeparable": "energies that readings do not determine: the run's report says why",
    "OutOfTime": "the enforced time limit has passed: each phase of a solve returns what it has",
    "NoAnswerError": "a ConnectionLostError",
    "LineDownError": "a serial port's failure: a Wire opens it again, then BoardUnreachable",
    "MonitorError": "an OSError of an emulator's monitor: only the lab and its tests use it",
    "OutputLimitError": "raised by a sink in the middle of a transfer: then BoardCommandFailed",
    "MetadataError": "a PPK2's calibration that cannot be read: then BoardUnreachable",
    "SyncLost": "one block cannot be placed on the board's clock: its windows are void",
    "Unavailable": "a checkpointing baseline fails: the baseline's result reports it",
    "Refused": "a request to the server: it answers with the status and the sentence",
}
"""Exceptions that every caller of their module catches, and how."""


@cache
def exceptions() -> tuple[type[BaseException], ...]:
    """Every public exception class that a module of the project defines."""
    return tuple(_exceptions())


def _exceptions() -> Iterator[type[BaseException]]:
    for name in PACKAGES:
        package = importlib.import_module(name)
        modules = [m.name for m in pkgutil.walk_packages(package.__path__, f"{name}.")]
        for module in map(importlib.import_module, [name, *modules]):
            for found in vars(module).values():
                if (
                    isinstance(found, type)
                    and issubclass(found, BaseException)
                    and found.__module__ == module.__name__
                    and not found.__name__.startswith("_")
                ):
                    yield found


def test_every_exception_that_may_leave_its_module_has_an_exit_code() -> None:
    assert len(exceptions()) > 25
    for error in exceptions():
        if error is JoulewrightError or error.__name__ in NEVER_LEAVE:
            continue
        assert issubclass(error, JoulewrightError), error
        assert isinstance(error.exit_code, ExitCode), error


def test_exceptions_that_never_leave_exist_and_have_no_exit_code() -> None:
    found = {error.__name__: error for error in exceptions()}
    for name in NEVER_LEAVE:
        assert not issubclass(found[name], JoulewrightError), name


def test_no_two_exceptions_share_a_name() -> None:
    names = Counter(error.__name__ for error in exceptions())
    assert [name for name, count in names.items() if count > 1] == []


def test_only_children_of_the_root_declare_an_exit_code() -> None:
    declaring = {error for error in exceptions() if "exit_code" in vars(error)}
    assert declaring == set(JoulewrightError.__subclasses__())


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InputError, 2),
        (RequestRefused, 2),
        (FirmwareMismatch, 2),
        (BuildFailed, 2),
        (BoardUnreachable, 3),
        (MeasurementInvalid, 4),
        (BoardCommandFailed, 4),
        (EngineFailed, 1),
        (Defect, 1),
    ],
)
def test_exit_codes_are_those_of_the_design(error: type[JoulewrightError], code: int) -> None:
    assert error.exit_code == code


def test_bad_input_is_a_value_error_too() -> None:
    assert {
        error for error in JoulewrightError.__subclasses__() if issubclass(error, ValueError)
    } == {InputError}


@pytest.mark.parametrize(
    ("operation", "remedy", "sentence"),
    [
        (None, None, "no answer"),
        ("pi4: putting a file", None, "pi4: putting a file: no answer"),
        (None, "check its power", "no answer; check its power"),
        ("putting a file", "check its power", "putting a file: no answer; check its power"),
    ],
)
def test_a_sentence_is_made_of_operation_message_and_remedy(
    operation: str | None, remedy: str | None, sentence: str
) -> None:
    error = BoardUnreachable("no answer", operation=operation, remedy=remedy)
    assert str(error) == sentence
    assert (error.operation, error.remedy) == (operation, remedy)


def test_error_survives_pickling() -> None:
    error = InputError("no such file", operation="reading", remedy="name another one")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is InputError
    assert str(copy) == "reading: no such file; name another one"
    assert (copy.operation, copy.remedy) == ("reading", "name another one")
