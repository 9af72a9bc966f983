"""The user's and the system's SSH configuration (``ssh_config(5)``), looked up as ``ssh`` does.

paramiko parses it and matches hosts. Its parser does not support ``Include``, takes unknown
``Match`` criteria as fulfilled, and names no file when it fails. The files are therefore first
joined into one text, and every line is checked where its file and number are known.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import paramiko

from devices.documents.document import DocumentError

Settings: TypeAlias = paramiko.SSHConfigDict
"""Values by keyword in lower case, in the order in which they were found."""

USER_FILE = Path("~/.ssh/config")
_SYSTEM_FILE = Path("/etc/ssh/ssh_config")
_DEEPEST_INCLUDE = 16

_WITHOUT_VALUE = {"canonical", "final"}
_WITH_VALUE = {"host", "originalhost", "user", "localuser", "exec"}
_MATCH = "Match "
_EXEC = "joulewrightexec"  # a keyword for the command of a Match exec
_LISTS_OF_FILES = {"userknownhostsfile", "globalknownhostsfile"}
_COMMANDS = {"proxycommand", "localcommand", "remotecommand", "knownhostscommand"}
_COMMENT = re.compile(r"""\s+#[^"']*$""")
_JUMP = re.compile(
    r"(?:ssh://)?(?:(?P<user>[^@\s]+)@)?"
    r"(?P<host>\[[^]\s]+\]|[^@:\s]+|[0-9A-Fa-f]*:[0-9A-Fa-f:.]+)(?::(?P<port>\d+))?/?"
)


@dataclass(frozen=True)
class Jump:
    """One entry of ``ProxyJump``; omitted parts are None."""

    host: str
    user: str | None
    port: int | None


class SshConfig:
    """Settings of hosts from the configuration files. Missing files count as empty."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines

    @classmethod
    def read(cls) -> SshConfig:
        """Read the user's file, then the system's.

        Raises :class:`~devices.documents.document.DocumentError` for a file that cannot be read, or
        has an invalid or unsupported line.
        """
        return cls([line for path in (USER_FILE, _SYSTEM_FILE) for line in _lines_of(path)])

    def lookup(self, host: str, *, user: str | None, port: int | None, limit_s: float) -> Settings:
        """Settings that apply to ``host``.

        A stated user and port take precedence over the files, and apply to their ``Match user`` and
        to the tokens ``%r`` and ``%p``. Raises :class:`~devices.documents.document.DocumentError`,
        also if a command of ``Match exec`` takes longer than ``limit_s``.
        """
        lines = [f"User {user}"] if user is not None else []
        lines += [f"Port {port}"] if port is not None else []
        for line in self._lines:
            if line.startswith(_MATCH):
                line = _without_exec(line, lines, host, limit_s)
            lines.append(line)
        return _look_up(lines, host)


def parse_jumps(value: str) -> list[Jump]:
    """The hosts of a ``ProxyJump``, in the order in which they are passed through.

    Raises :class:`ValueError`.
    """
    jumps = []
    for entry in value.split(","):
        match = _JUMP.fullmatch(entry.strip())
        port = int(match["port"]) if match and match["port"] else None
        if match is None or (port is not None and not _is_port(port)):
            raise ValueError(
                f"ProxyJump: found {value!r}; allowed: [user@]host[:port], several separated"
                " by commas, or none"
            )
        jumps.append(Jump(match["host"].strip("[]"), match["user"], port))
    return jumps


class _Config(paramiko.SSHConfig):
    """Expands tokens in the names of known_hosts files too, as ``ssh`` does, and in
    :data:`_EXEC`."""

    _TOKENS = paramiko.SSHConfig.TOKENS_BY_CONFIG_KEY["match-exec"]
    TOKENS_BY_CONFIG_KEY = paramiko.SSHConfig.TOKENS_BY_CONFIG_KEY | dict.fromkeys(
        (*_LISTS_OF_FILES, _EXEC), _TOKENS
    )


def _look_up(lines: list[str], host: str) -> Settings:
    config = _Config()
    try:
        config.parse(lines)
        return config.lookup(host)
    except (paramiko.SSHException, LookupError, ValueError) as error:
        raise DocumentError(
            f"{USER_FILE}: cannot look up {host}: {type(error).__name__}: {error}"
        ) from error


def _without_exec(line: str, before: list[str], host: str, limit_s: float) -> str:
    """Run the commands of a ``Match`` line and replace them by their results.

    Only commands that are reached by the criteria and the lines before are run. paramiko would run
    them without a time limit, and with this program's input.
    """
    criteria: list[str] = []
    words = iter(shlex.split(line.removeprefix(_MATCH)))
    for word in words:
        if word.removeprefix("!") != "exec":
            alone = word.removeprefix("!") in {"all", *_WITHOUT_VALUE}
            criteria += [word] if alone else [word, next(words)]
            continue
        reached = _look_up([*before, _match_line(criteria), f'{_EXEC} "{next(words)}"'], host)
        succeeded = _EXEC in reached and _succeeds(reached[_EXEC], limit_s)
        if _EXEC not in reached or succeeded == word.startswith("!"):
            criteria += ["!originalhost", "*"]
    return _match_line(criteria)


def _succeeds(command: str, limit_s: float) -> bool:
    nowhere = subprocess.DEVNULL
    try:
        done = subprocess.run(
            ["/bin/sh", "-c", command],
            stdin=nowhere,
            stdout=nowhere,
            stderr=nowhere,
            timeout=limit_s,
        )
    except subprocess.TimeoutExpired:
        raise DocumentError(
            f"{USER_FILE}: Match exec: {command!r} did not finish within {limit_s:g} s"
        ) from None
    return done.returncode == 0


def _lines_of(path: Path) -> list[str]:
    return [_match_line(()), *_expanded(path, path.parent, (), 0)]


def _expanded(path: Path, directory: Path, outer: tuple[str, ...], depth: int) -> Iterator[str]:
    """The lines of a file with its includes in place.

    A ``Host`` becomes the equivalent ``Match``, since criteria of ``Match`` can be joined: a file
    that is included within a block applies only where that block does (``outer``), and the block
    continues after it.
    """
    block = outer
    for number, line in enumerate(_read(path).splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        where = f"{path}: line {number}"
        found = paramiko.SSHConfig.SETTINGS_REGEX.match(line)
        if found is None:
            raise DocumentError(f"{where}: found {line!r}; allowed: a keyword and its value")
        keyword, value = found[1].lower(), found[2]
        if keyword not in _COMMANDS:
            value = _COMMENT.sub("", value)
        match keyword:
            case "host":
                block = (*outer, "originalhost", ",".join(_words(value, where)))
                yield _match_line(block)
            case "match":
                block = (*outer, *_criteria(value, where))
                yield _match_line(block)
            case "include":
                if depth == _DEEPEST_INCLUDE:
                    raise DocumentError(f"{where}: Include goes deeper than {depth} files")
                for included in _included(value, directory, where):
                    yield from _expanded(included, directory, block, depth + 1)
                    yield _match_line(block)
            case _:
                _require_valid(keyword, value, where)
                if keyword in _LISTS_OF_FILES:
                    value = f'"{value}"'  # paramiko removes one pair of quotes: this one
                yield f"{keyword} {value}"


def _read(path: Path) -> str:
    try:
        # ssh accepts any bytes in comments and file names
        return path.expanduser().read_text(encoding="utf-8", errors="surrogateescape")
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise DocumentError(f"{path}: cannot be read: {error.strerror or error}") from None


def _match_line(criteria: Sequence[str]) -> str:
    return _MATCH + shlex.join(criteria or ("all",))


def _words(value: str, where: str) -> list[str]:
    try:
        return shlex.split(value)
    except ValueError as error:
        raise DocumentError(f"{where}: found {value!r}: {error}") from None


def _criteria(value: str, where: str) -> list[str]:
    """Criteria of a ``Match`` line, without ``all``, which adds nothing to others."""
    criteria = []
    words = iter(_words(value, where))
    for word in words:
        name = word.lower().removeprefix("!")
        if word.lower() == "all":
            continue
        if name not in _WITHOUT_VALUE | _WITH_VALUE:
            raise DocumentError(
                f"{where}: Match {word} is not supported; allowed: all,"
                f" {', '.join(sorted(_WITHOUT_VALUE | _WITH_VALUE))}"
            )
        criteria.append(word.lower())
        if name in _WITH_VALUE:
            argument = next(words, None)
            if argument is None:
                raise DocumentError(f"{where}: Match {word} needs a value")
            criteria.append(argument)
    return criteria


def _included(value: str, directory: Path, where: str) -> list[Path]:
    """Files that an ``Include`` names; possibly none, as for ``ssh``."""
    paths: list[Path] = []
    for word in _words(value, where):
        try:
            pattern = directory.expanduser() / Path(word).expanduser()
        except RuntimeError:
            raise DocumentError(f"{where}: Include: the user in {word} does not exist") from None
        root = Path(pattern.anchor)
        found = sorted(root.glob(str(pattern.relative_to(root))))
        hidden = pattern.name.startswith(".")
        paths += [path for path in found if hidden or not path.name.startswith(".")]
    return paths


def _require_valid(keyword: str, value: str, where: str) -> None:
    """Check values that are not used as plain text."""
    if keyword in _LISTS_OF_FILES:
        _words(value, where)
    value = value.strip('"')
    if keyword == "port" and not (value.isdecimal() and _is_port(int(value))):
        raise DocumentError(
            f"{where}: Port: found {value!r}; allowed: a whole number from 1 to 65535"
        )
    if keyword == "proxyjump" and "%" not in value:
        try:
            parse_jumps(value)
        except ValueError as error:
            raise DocumentError(f"{where}: {error}") from None


def _is_port(number: int) -> bool:
    return 1 <= number <= 65535
