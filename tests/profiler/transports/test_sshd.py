"""The SSH servers of the tests remove what killed runs of the tests have left."""

from __future__ import annotations

import os
import pwd
import sys
from contextlib import suppress
from pathlib import Path
from subprocess import PIPE, Popen

import pytest

from tests.support.boards.processes import eventually
from tests.support.boards.sshd import running_sshd
from tests.support.paths import ROOT

PROGRAM = """
import time
from tests.support.boards.sshd import running_sshd
with running_sshd() as server:
    print(server.user, server.directory, flush=True)
    time.sleep(600)
"""


def users() -> set[str]:
    return {user.pw_name for user in pwd.getpwall()}


def is_served(directory: str) -> bool:
    """Whether a server has its configuration in the directory."""
    configuration = f"{directory}/sshd_config".encode()
    for command_line in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if configuration in command_line.read_bytes():
                return True
    return False


@pytest.mark.skipif(os.getuid() != 0, reason="only root starts servers as other users")
def test_the_server_of_a_killed_run_is_removed_with_its_user() -> None:
    with Popen([sys.executable, "-c", PROGRAM], cwd=ROOT, stdout=PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            name, directory = process.stdout.readline().split()
            with running_sshd() as beside:
                assert {name, beside.user} <= users()
                assert Path(directory).is_dir()
        finally:
            process.kill()
    assert name in users()
    assert is_served(directory)
    with running_sshd():
        assert name not in users()
        assert not Path(directory).exists()
        assert eventually(lambda: not is_served(directory))
