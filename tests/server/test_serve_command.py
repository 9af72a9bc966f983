"""The command ``serve`` where it cannot serve: one sentence that says what to do."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

import cli
from devices.program import installing_extra


@pytest.fixture(autouse=True)
def _in_an_empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_port_in_use_is_an_error_that_names_the_options(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert cli.main(["serve", "--port", str(port)]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: 127.0.0.1, port {port}: Address already in use")
    assert "--port" in error


@pytest.mark.parametrize("missing", ["fastapi", "python_multipart", "uvicorn"])
def test_a_missing_package_is_an_error_that_names_the_extra(
    missing: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.startswith("server.")]:
        if name not in {"server.limits", "server.serving"}:
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    assert cli.main(["serve", "--port", "0"]) == 2
    error = capsys.readouterr().err
    assert missing in error
    assert installing_extra("serve") in error


@pytest.mark.parametrize(
    ("option", "value", "sentence"),
    [
        ("--most-upload", "x", "error: --most-upload: 'x' is not a size such as 64MiB"),
        ("--host", "192.0.2.1", "error: 192.0.2.1, port 8000: Cannot assign requested address"),
    ],
)
def test_a_value_that_cannot_be_used_is_named(
    option: str, value: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["serve", option, value]) == 2
    assert capsys.readouterr().err.startswith(sentence)
