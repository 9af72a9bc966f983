"""Boards described by an alias of ``~/.ssh/config``, on real SSH servers."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from devices.description import SshTransport as Description
from devices.errors import BoardUnreachable
from profiler.transports.route import find_route
from profiler.transports.ssh import SshTransport
from profiler.transports.ssh_login import Credentials
from tests.support.boards.processes import eventually
from tests.support.boards.sshd import Sshd, make_key, running_sshd
from tests.support.failures import sentence_of


@pytest.fixture(autouse=True)
def home(own_client: None, tmp_path: Path) -> Path:
    (tmp_path / ".ssh").mkdir()
    return tmp_path


def write(home: Path, *blocks: str) -> Path:
    path = home / ".ssh" / "config"
    path.write_text("\n".join(blocks))
    return path


def describe(host: str = "pi4", **stated: Any) -> Description:
    """Description with time limits for a busy computer."""
    limits = {"connect_timeout_s": 60.0, "deadline_s": 120.0}
    return Description.model_validate({"kind": "ssh", "host": host} | limits | stated)


def greet(host: str = "pi4", **stated: Any) -> str:
    with SshTransport(describe(host, **stated)) as transport:
        return transport.run(["id", "-un"], timeout_s=10).stdout.strip()


def refused(host: str = "pi4", **stated: Any) -> str:
    """Message of the error that reports the board as unreachable."""
    return sentence_of(BoardUnreachable, SshTransport(describe(host, **stated)).connect)


def accept(command: str, config: Path) -> None:
    """Run the command that an error suggests, and answer ssh's questions with yes."""
    says_yes = config.parent / "askpass"
    says_yes.write_text("#!/bin/sh\necho yes\n")
    says_yes.chmod(0o700)
    asking = {"SSH_ASKPASS": str(says_yes), "SSH_ASKPASS_REQUIRE": "force"}
    # ssh takes the home directory from the user database, not from the environment.
    command = re.sub(r"^ssh ", f"ssh -F {shlex.quote(str(config))} ", command)
    subprocess.run(
        ["sh", "-c", command], check=True, capture_output=True, env=os.environ | asking, timeout=30
    )


# --- one host -----------------------------------------------------------------------------------


def test_an_alias_is_enough_for_a_description(sshd: Sshd, home: Path) -> None:
    write(home, sshd.config("pi4"))
    with SshTransport(describe()) as transport:
        assert transport.name == f"{sshd.user}@127.0.0.1:{sshd.port} (pi4 in the SSH config)"
    assert greet() == sshd.user


def test_described_values_override_the_ssh_config(sshd: Sshd, home: Path) -> None:
    wrong = {"User": "nobody", "Port": "1", "IdentityFile": "~/none", "UserKnownHostsFile": "~/no"}
    write(home, sshd.config("pi4", **wrong))
    right: dict[str, Any] = {
        "user": sshd.user,
        "port": sshd.port,
        "key": sshd.key,
        "known_hosts": sshd.known_hosts,
    }
    assert greet(**right) == sshd.user
    assert "nothing listens on port 1" in refused(**{**right, "port": None})
    assert "SSH login of nobody with the key" in refused(**{**right, "user": None})
    assert f"is not in {home}/no" in refused(**{**right, "known_hosts": None})
    assert f"cannot read the key {home}/none: No such file" in refused(**{**right, "key": None})


def test_keys_are_tried_in_turn_and_may_be_missing(sshd: Sshd, home: Path) -> None:
    strange = make_key(home / "strange")
    (home / "text").write_text("no key\n")
    files = (home / "missing", home / "text", strange)
    keys = "".join(f"  IdentityFile {path}\n" for path in files)
    write(home, "Host pi4\n" + keys, sshd.config("pi4"))
    assert greet() == sshd.user

    write(home, "Host pi4\n" + keys, sshd.config("pi4", IdentityFile=str(make_key(home / "other"))))
    message = refused()
    assert f"with the keys {strange}, {home / 'other'} of the SSH config" in message
    assert f"cannot read the key {home}/missing: No such file" in message
    assert f"{home}/text is not a private key" in message


def test_a_refused_default_user_is_pointed_out(sshd: Sshd, home: Path) -> None:
    block = "".join(line for line in sshd.config("pi4").splitlines(True) if "User " not in line)
    write(home, block.replace(str(sshd.key), str(make_key(home / "key"))))
    assert "neither the description nor the SSH config states one" in refused()


def test_a_host_key_is_found_under_its_alias(sshd: Sshd, home: Path) -> None:
    public = sshd.host_key.with_suffix(".pub").read_text()
    (home / "first").write_text("")
    (home / "second").write_text(f"lab {public}")
    files = f"{home}/first {home}/second"
    write(home, sshd.config("pi4", HostKeyAlias="lab", UserKnownHostsFile=files))
    assert greet() == sshd.user

    changed = make_key(home / "changed").with_suffix(".pub").read_text()
    (home / "second").write_text(f"lab {changed}")
    message = refused()
    assert f"THE HOST KEY HAS CHANGED: {home}/second has" in message
    subprocess.run(
        message.partition("remove the old key with: ")[2],
        shell=True,
        check=True,
        capture_output=True,
    )
    message = refused()
    assert f"is not in {home}/first" in message
    accept(message.partition("accept it with: ")[2], home / ".ssh" / "config")
    assert (home / "first").read_text().startswith("lab ")
    assert greet() == sshd.user


@contextlib.contextmanager
def agent_with(home: Path, *keys: Path) -> Iterator[str]:
    path = home / "agent"
    with subprocess.Popen(["ssh-agent", "-D", "-a", str(path)], stdout=subprocess.DEVNULL) as agent:
        try:
            assert eventually(path.exists)
            environment = os.environ | {"SSH_AUTH_SOCK": str(path)}
            subprocess.run(
                ["ssh-add", "-q", *map(str, keys)], check=True, capture_output=True, env=environment
            )
            yield str(path)
        finally:
            agent.terminate()


def test_identities_only_limits_the_keys_of_the_agent(
    sshd: Sshd, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    public = home / "board.pub"
    public.write_bytes(sshd.key.with_suffix(".pub").read_bytes())
    strange = make_key(home / "strange")
    with agent_with(home, strange, sshd.key) as agent:
        monkeypatch.setenv("SSH_AUTH_SOCK", agent)
        write(home, sshd.config("pi4", IdentityFile=str(strange)))
        assert greet() == sshd.user
        write(home, sshd.config("pi4", IdentityFile=str(strange), IdentitiesOnly="yes"))
        assert f"with the key {strange} of the SSH config" in refused()
        for name in (public, home / "board"):  # the public key alone, which ssh accepts too
            write(home, sshd.config("pi4", IdentityFile=str(name), IdentitiesOnly="yes"))
            assert greet() == sshd.user


def test_a_passphrase_is_not_sent_as_a_password(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_key(home / "locked", passphrase="open sesame")
    make_key(home / "open")
    monkeypatch.setenv("JOULEWRIGHT_SSH_PASSWORD", "open sesame")
    write(home, f"Host a\n  IdentityFile {home}/locked\nHost b\n  IdentityFile {home}/open\n")
    a, b = (
        Credentials.of(find_route(describe(host, user="pi")), is_board=True) for host in ("a", "b")
    )
    assert (len(a.named[0].keys), a.password) == (1, None)
    assert (len(b.named[0].keys), b.password) == (1, "open sesame")
    assert Credentials.of(find_route(describe("b", user="pi")), is_board=False).password is None


def test_a_certificate_next_to_its_key_is_used(home: Path) -> None:
    authority, key = make_key(home / "authority"), make_key(home / "key")
    with running_sshd() as server:
        trusted = authority.with_suffix(".pub").read_text()
        (server.directory / "authorized_keys").write_text(f"cert-authority {trusted}")
        write(home, server.config("pi4", IdentityFile=str(key)))
        assert "refused (" in refused()
        sign = ["ssh-keygen", "-q", "-s", str(authority), "-I", "test", "-n", server.user]
        subprocess.run([*sign, f"{key}.pub"], check=True, capture_output=True)
        assert greet() == server.user


def test_an_address_that_does_not_accept_is_an_error_in_time(sshd: Sshd) -> None:
    with contextlib.ExitStack() as stack:
        full = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(3):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        time.sleep(0.1)
        began = time.monotonic()
        description = sshd.description(
            port=full.getsockname()[1], connect_timeout_s=0.5, deadline_s=1.0
        )
        with pytest.raises(BoardUnreachable, match="no answer in time"):
            SshTransport(description).connect()
        assert time.monotonic() - began < 9.0


# --- jump hosts and proxy commands --------------------------------------------------------------


def test_a_board_is_reached_through_the_configs_jump_host(
    sshd: Sshd, jump_sshd: Sshd, home: Path
) -> None:
    write(home, sshd.config("pi4", ProxyJump="gate"), jump_sshd.config("gate"))
    before = len(jump_sshd.log)
    assert greet() == sshd.user
    passed_on = re.compile(rf"direct-tcpip.*\n?.*target 127\.0\.0\.1 port {sshd.port}")
    assert eventually(lambda: passed_on.search(jump_sshd.log[before:]) is not None)
    assert eventually(lambda: jump_sshd.user in jump_sshd.log[before:])


def test_a_described_jump_host_may_be_an_alias(sshd: Sshd, jump_sshd: Sshd, home: Path) -> None:
    write(home, jump_sshd.config("gate"))
    (home / "both").write_text(jump_sshd.known_hosts.read_text() + sshd.known_hosts.read_text())
    before = len(jump_sshd.log)
    stated = sshd.description(known_hosts=home / "both", jump={"host": "gate"})
    with SshTransport(stated) as transport:
        assert transport.run(["id", "-un"], timeout_s=10).stdout.strip() == sshd.user
    assert eventually(lambda: f"target 127.0.0.1 port {sshd.port}" in jump_sshd.log[before:])


def test_a_chain_of_jump_hosts_is_passed_in_order(sshd: Sshd, jump_sshd: Sshd, home: Path) -> None:
    with running_sshd(
        settings=f"LogLevel DEBUG1\nPermitOpen 127.0.0.1:{jump_sshd.port}\n"
    ) as outer:
        write(
            home,
            sshd.config("pi4", ProxyJump="outer,gate"),
            jump_sshd.config("gate"),
            outer.config("outer"),
        )
        assert greet() == sshd.user
        assert eventually(lambda: f"target 127.0.0.1 port {jump_sshd.port}" in outer.log)
        assert f"target 127.0.0.1 port {sshd.port}" not in outer.log


def test_a_connection_that_a_jump_host_prohibits_is_an_error(
    sshd: Sshd, jump_sshd: Sshd, home: Path
) -> None:
    write(home, sshd.config("pi4", ProxyJump="gate"), jump_sshd.config("gate"))
    message = refused(port=jump_sshd.port)  # directly it can be reached
    assert message.startswith(
        f"{sshd.user}@127.0.0.1:{jump_sshd.port} (pi4 in the SSH config): its"
    )
    assert "jump host cannot reach it (Administratively prohibited)" in message


def test_an_unknown_key_beyond_a_jump_host_is_refused_and_can_be_accepted(
    sshd: Sshd, jump_sshd: Sshd, home: Path
) -> None:
    known = home / "known hosts"
    config = write(
        home,
        sshd.config("pi4", ProxyJump="gate", UserKnownHostsFile=f'"{known}"'),
        jump_sshd.config("gate", UserKnownHostsFile=f'"{known}"'),
    )
    for host in ("gate", "pi4"):
        message = refused()
        assert f"({host} in the SSH config): its host key" in message
        assert f"is not in {known}" in message
        accept(message.partition("accept it with: ")[2], config)
    assert greet() == sshd.user


def test_a_jump_host_with_an_unknown_key_gets_no_credentials(
    sshd: Sshd, jump_sshd: Sshd, home: Path
) -> None:
    write(
        home,
        sshd.config("pi4", ProxyJump="gate"),
        jump_sshd.config("gate", UserKnownHostsFile="/dev/null"),
    )
    before = len(jump_sshd.log)
    assert f"is not in {home}/.ssh/known_hosts" in refused()
    assert "userauth-request for user" not in jump_sshd.log[before:]


def test_a_proxy_command_carries_the_connection_and_ends_with_it(
    sshd: Sshd, jump_sshd: Sshd, home: Path
) -> None:
    options = f"-F none -i {jump_sshd.key} -o UserKnownHostsFile={jump_sshd.known_hosts}"
    command = f"ssh {options} -p {jump_sshd.port} -W %h:%p {jump_sshd.user}@127.0.0.1"
    write(home, sshd.config("pi4", ProxyCommand=command))

    def runs() -> bool:
        expanded = command.replace("%h", "127.0.0.1").replace("%p", str(sshd.port)).split()
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                if path.read_bytes().decode(errors="replace").split("\0")[:-1] == expanded:
                    return True
        return False

    before = len(jump_sshd.log)
    with SshTransport(describe()) as transport:
        assert transport.run(["id", "-un"], timeout_s=10).stdout.strip() == sshd.user
        assert runs()
    assert eventually(lambda: f"target 127.0.0.1 port {sshd.port}" in jump_sshd.log[before:])
    assert not runs()


def test_the_error_quotes_a_proxy_command_that_fails(
    sshd: Sshd, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Every attempt has the time to hear the command, also the last one before the deadline.
    monkeypatch.setattr("profiler.transports.ssh._SHORTEST_LIMIT_S", 60.0)
    command = "sh -c 'echo starting >&2; echo no lab today >&2; exit 1'"
    write(home, sshd.config("pi4", ProxyCommand=command))
    message = refused(deadline_s=0.5)
    assert f"it is reached by ProxyCommand {command}, which reported: no lab today" in message
