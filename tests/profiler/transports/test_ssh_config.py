"""Settings of a host from the SSH config: the same that ``ssh`` finds in it."""

from __future__ import annotations

import getpass
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from devices.description import SshTransport
from devices.documents.document import DocumentError
from profiler.transports import ssh_config
from profiler.transports.route import Host, find_route
from tests.support.failures import sentence_of


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty home directory; neither user nor system have an SSH config."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(ssh_config, "_SYSTEM_FILE", tmp_path / "system_config")
    (tmp_path / ".ssh").mkdir()
    return tmp_path


def write(home: Path, config: str) -> Path:
    path = home / ".ssh" / "config"
    path.write_text(config)
    return path


def route(host: str = "pi4", **described: Any) -> Host:
    return find_route(
        SshTransport.model_validate(
            {"kind": "ssh", "host": host, "connect_timeout_s": 2.0} | described
        )
    )


def refused(host: str = "pi4", **described: Any) -> str:
    return sentence_of(DocumentError, lambda: route(host, **described))


def names(board: Host) -> list[str]:
    return [str(hop) for hop in board.hops]


# --- described, configured and default values ---------------------------------------------------


def test_without_a_config_the_defaults_of_ssh_apply(home: Path) -> None:
    board = route("raspberrypi.local")
    assert str(board) == f"{getpass.getuser()}@raspberrypi.local:22"
    assert not board.is_user_stated
    assert board.known_hosts[0] == home / ".ssh" / "known_hosts"
    assert (board.key, board.identities, board.hops) == (None, (), [board])


def test_values_not_described_come_from_the_config(home: Path) -> None:
    write(
        home,
        "Host pi4\n  HostName 10.0.0.7\n  User pi\n  Port 2222\n  IdentityFile ~/keys/pi\n"
        "  UserKnownHostsFile ~/known\n",
    )
    board = route()
    assert str(board) == "pi@10.0.0.7:2222 (pi4 in the SSH config)"
    assert board.identities == (home / "keys" / "pi",)
    assert board.known_hosts[0] == home / "known"


def test_described_values_override_the_config(home: Path) -> None:
    write(
        home,
        "Host pi4\n  HostName 10.0.0.7\n  User pi\n  Port 2222\n  IdentityFile ~/keys/pi\n"
        "  UserKnownHostsFile ~/known\n  ProxyJump bastion\n",
    )
    board = route(
        user="admin", port=22, key="~/mine", known_hosts="~/described", jump={"host": "gate"}
    )
    assert names(board) == [
        f"{getpass.getuser()}@gate:22",
        "admin@10.0.0.7:22 (pi4 in the SSH config)",
    ]
    assert (board.key, board.identities) == (home / "mine", ())
    assert board.known_hosts == (home / "described",)


def test_a_described_jump_host_is_looked_up_too(home: Path) -> None:
    write(home, "Host gate\n  HostName 10.0.0.1\n  User guard\n  Port 99\n  IdentityFile ~/gate\n")
    board = route("10.0.0.7", user="pi", key="~/mine", jump={"host": "gate", "port": 98})
    assert names(board) == ["guard@10.0.0.1:98 (gate in the SSH config)", "pi@10.0.0.7:22"]
    assert board.jump is not None
    assert (board.jump.key, board.jump.identities) == (home / "mine", (home / "gate",))


def test_the_system_config_has_the_lowest_priority(home: Path) -> None:
    write(home, "Host pi4\n  User pi\n")
    (home / "system_config").write_text("Host *\n  User nobody\n  Port 2222\n")
    assert str(route()) == "pi@pi4:2222"


# --- syntax of the config -----------------------------------------------------------------------

_AS_SSH_DOES = """\
# comments, = and quotes, as ssh_config(5) has them
Port=2200
Include {include}/*.conf

Host pi4 PI5  # the lab
  HostName "%h.lab.example"   # a token
  User=pi
  IdentityFile "{home}/key of the lab"
  IdentityFile {home}/%h-%r
Host !pi4 *
  User other
Match host *.lab.example user pi
  IdentityFile {home}/matched
Match originalhost pi4 exec "test %h = pi4.lab.example"
  HostKeyAlias lab
Match !user pi host included-*
  ProxyJump a@one:23,two
Match final all
  IdentitiesOnly yes
Host *.wild
  HostName 10.0.0.%h
Host included-nested
  Include {include}/nested
  IdentityFile {home}/after
"""


@pytest.mark.parametrize(
    "host", ["pi4", "PI5", "plain", "a.wild", "included-x", "included-nested", "!pi4"]
)
def test_a_config_is_read_as_ssh_reads_it(home: Path, host: str) -> None:
    include = home / "included"
    include.mkdir()
    (include / "20.conf").write_text("Host included-*\n  User twenty\n  Port 20\n")
    (include / "10.conf").write_text("Host included-x\n  User ten\nMatch all\n  Compression yes\n")
    (include / ".hidden.conf").write_text("User hidden\n")
    (include / "nested").write_text(
        f"IdentityFile {home}/nested\nHost pi4\n  Port 1\nHost *-nested\n  HostName deep\n"
    )
    path = write(home, _AS_SSH_DOES.format(home=home, include=include))
    shown = subprocess.run(
        ["ssh", "-F", str(path), "-G", host], capture_output=True, text=True, check=True
    ).stdout
    expected: dict[str, list[str]] = {}
    for line in shown.splitlines():
        keyword, _, value = line.partition(" ")
        expected.setdefault(keyword, []).append(value)

    board = find_route(SshTransport.model_construct(kind="ssh", host=host))
    assert [board.host] == expected["hostname"]
    assert [board.user] == expected["user"]
    assert [str(board.port)] == expected["port"]
    tokens = {"%h": board.host, "%r": board.user}  # ssh prints tokens unexpanded
    configured = [name for name in expected["identityfile"] if name.startswith(str(home))]
    for token, value in tokens.items():
        configured = [name.replace(token, value) for name in configured]
    assert [str(path).lower() for path in board.identities] == [name.lower() for name in configured]
    assert board.identities_only == (expected["identitiesonly"] == ["yes"])
    assert (board.known_as == "lab") == (expected.get("hostkeyalias") == ["lab"])
    jumps = [f"{hop.user}@{hop.host}:{hop.port}" for hop in board.hops[:-1]]
    assert bool(jumps) == ("proxyjump" in expected)


def test_relative_includes_start_at_the_config_and_may_be_missing(home: Path) -> None:
    write(home, "Include config.d/* missing ~/elsewhere\nUser last\n")
    (home / ".ssh" / "config.d").mkdir()
    (home / ".ssh" / "config.d" / "pi").write_text("Host pi4\n  User pi\n")
    (home / "elsewhere").write_text("Host pi5\n  User five\n")
    assert [route(host).user for host in ("pi4", "pi5", "pi6")] == ["pi", "five", "last"]


def test_conditions_and_tokens_of_the_config_see_the_described_user(home: Path) -> None:
    write(home, "Match user admin\n  HostName %h.admins\nHost *\n  IdentityFile ~/%r\n")
    assert route(user="admin").host == "pi4.admins"
    assert route(user="pi").identities == (home / "pi",)


def test_several_known_hosts_files_with_tokens_and_spaces_are_searched(home: Path) -> None:
    write(home, 'Host pi4\n  UserKnownHostsFile "~/two words" ~/%n\n  GlobalKnownHostsFile none\n')
    assert route().known_hosts[:2] == (home / "two words", home / "pi4")


@pytest.mark.parametrize("nowhere", ["none", "/dev/null"])
def test_host_keys_are_checked_even_if_the_config_stores_none(home: Path, nowhere: str) -> None:
    write(home, f"StrictHostKeyChecking no\nUserKnownHostsFile {nowhere}\n")
    assert route().known_hosts[0] == home / ".ssh" / "known_hosts"


def test_an_ipv6_jump_host_may_have_a_port(home: Path) -> None:
    write(home, "Host pi4\n  ProxyJump a@[fe80::1]:23,fe80::2\n")
    assert names(route(user="pi"))[0] == "a@fe80::1:23"
    assert [hop.port for hop in route().hops] == [23, 22, 22]


# --- jump hosts and proxy commands --------------------------------------------------------------


def test_jump_hosts_are_passed_in_order_and_have_settings_of_their_own(home: Path) -> None:
    write(
        home,
        "Host pi4\n  ProxyJump one,me@two:23\nHost one\n  HostName 10.0.0.1\n  ProxyJump zero\n"
        "Host two\n  Port 99\n  User you\n  ProxyJump nowhere\nHost *\n  User pi\n",
    )
    assert names(route()) == [
        "pi@zero:22",
        "pi@10.0.0.1:22 (one in the SSH config)",
        "me@two:23",
        "pi@pi4:22",
    ]


def test_a_jump_host_does_not_jump_through_itself(home: Path) -> None:
    write(home, "Host *\n  ProxyJump gate\n  User pi\n")
    assert names(route()) == ["pi@gate:22", "pi@pi4:22"]


def test_the_first_of_proxy_jump_and_proxy_command_applies(home: Path) -> None:
    write(home, "Host pi4\n  ProxyJump none\nHost *\n  ProxyCommand nc %h %p\n")
    assert route().proxy_command is None
    assert route("pi5", port=23).proxy_command == "nc pi5 23"
    write(home, "ProxyCommand none\nProxyJump gate\n")
    assert (route().proxy_command, route().jump) == (None, None)


# --- errors of a config ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (
            "Host pi4\n  HostName\n",
            "~/.ssh/config: line 2: found 'HostName'; allowed: a keyword and its value",
        ),
        (
            "Port ssh\n",
            "~/.ssh/config: line 1: Port: found 'ssh'; allowed: a whole number from 1 to 65535",
        ),
        ('Host "pi4\n', "~/.ssh/config: line 1: found '\"pi4': No closing quotation"),
        (
            "\nMatch tagged lab\n",
            "~/.ssh/config: line 2: Match tagged is not supported; allowed: all, canonical, exec,"
            " final, host, localuser, originalhost, user",
        ),
        ("Match user\n", "~/.ssh/config: line 1: Match user needs a value"),
        (
            "ProxyJump a@b@c:d\n",
            "~/.ssh/config: line 1: ProxyJump: found 'a@b@c:d'; allowed: [user@]host[:port],"
            " several separated by commas, or none",
        ),
        (
            "Host a\n  ProxyJump pi4\nHost pi4\n  ProxyJump a\n",
            "~/.ssh/config: ProxyJump leads in a circle: pi4 → a → pi4",
        ),
        (
            "ProxyCommand connect %h\nProxyUseFdpass yes\n",
            "~/.ssh/config: ProxyUseFdpass of pi4 is not supported; use a ProxyCommand that passes"
            " the data on",
        ),
        (
            "CanonicalizeHostname yes\n",
            "~/.ssh/config: cannot look up pi4: KeyError: 'canonicaldomains'",
        ),
        ("Include config\n", "~/.ssh/config: line 1: Include goes deeper than 16 files"),
    ],
)
def test_an_invalid_config_is_an_error_of_one_sentence(home: Path, config: str, said: str) -> None:
    write(home, config)
    assert refused().replace(str(home), "~") == said


def test_the_error_names_an_invalid_included_file(home: Path) -> None:
    write(home, "Include lab\n")
    (home / ".ssh" / "lab").write_text("Host pi4\n\n  Port 0\n")
    assert refused().startswith(f"{home}/.ssh/lab: line 3: Port: found '0'")


def test_an_unreadable_config_is_an_error(home: Path) -> None:
    (home / ".ssh" / "config").mkdir()
    assert refused() == "~/.ssh/config: cannot be read: Is a directory"


def test_comments_of_a_config_may_be_invalid_utf_8(home: Path) -> None:
    (home / ".ssh" / "config").write_bytes(b"# gr\xfc\xdfe\nHost pi4\n  User pi\n")
    assert route().user == "pi"


def test_a_match_exec_command_that_hangs_is_an_error(home: Path) -> None:
    write(home, 'Match exec "sleep 5"\n  User pi\n')
    said = "~/.ssh/config: Match exec: 'sleep 5' did not finish within 0.3 s"
    assert refused(connect_timeout_s=0.3) == said


def test_a_match_exec_command_runs_only_if_other_conditions_hold(home: Path) -> None:
    write(home, 'Match user pi !exec "touch ~/ran; echo; exit 1"\n  Port 2222\n')
    assert route(user="other").port == 22
    assert not (home / "ran").exists()
    assert route(user="pi").port == 2222
    assert (home / "ran").exists()


@pytest.mark.skipif(os.getuid() == 0, reason="root may read everything")
def test_a_config_without_read_permission_is_an_error(home: Path) -> None:
    write(home, "").chmod(0)
    assert refused() == "~/.ssh/config: cannot be read: Permission denied"
