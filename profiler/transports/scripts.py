"""Shell scripts that keep a session on a board.

They use only POSIX sh and tools of both busybox and Debian (``setsid``, ``mkdir``, ``mv``, ``cat``,
``head``, ``wc``, ``cut``, ``df``, ``find``), so that they run on any board.

A session's private directory, without the caller's own files::

    PARENT/session.TOKEN/            mode 0700; the client made up the token
        .joulewright/
            boot.BOOT                the board's boot id when the session began
            seen                     touched by every call: the client's last sign of life
            JOB.PID.BORN.BOOT.STATE  a note of a command: the leader of its process group, when that
                                     began and in which boot, and running, exit-CODE or timed-out
            JOB.stdout JOB.stderr    output of a detached command

All but the outputs are empty files, whose names can be written and changed even on a full disk.

Sessions that use the board alone tell those of other users and other computers so::

    TMPDIR/joulewright-boards/       mode 1777
        TOKEN                        the process that uses the board, its session, and `held` once
                                     no other claim counted; touched by every call while it counts

A directory is renamed to ``PARENT/closing.TOKEN`` before its jobs are ended. A job that is being
started meanwhile then cannot write its note, and gives up.
"""

from __future__ import annotations

import math
import posixpath
import shlex
from collections.abc import Mapping, Sequence

CONTROL = ".joulewright"

DIRECTORY_GONE = 97
"""Exit code of a script whose session directory no longer exists."""

SETUP_MISSING = 96
"""Exit code of a script that lacks a program or a directory; it prints a sentence about it."""

LEASE_MINUTES = 10
"""Silence after which a claim to the board no longer counts, unless a program of its session still
runs there. Longer than a board is left alone while it measures, and while a program is compiled for
it."""

_CLAIMS = '"${TMPDIR:-/tmp}/joulewright-boards"'

_PACKAGES = {
    "coreutils": (
        *("cat", "cut", "df", "head", "id", "mkdir", "mv", "rm", "sleep", "tail", "touch", "wc"),
    ),
    "findutils": ("find",),
    "util-linux": ("setsid",),
}
"""Programs that the scripts need, by Debian's packages."""

STALE_AFTER_MINUTES = 7 * 24 * 60
"""Silence after which a session of another computer is removed."""

_FUNCTIONS = r"""
boot_id() { cat /proc/sys/kernel/random/boot_id 2>/dev/null; }

pause() { sleep 0.1 2>/dev/null || sleep 1; }

# Whether the leader of the process group is still the one in the note. Sets leader.
lives() {
  words=${1##*/}
  words=${words#*.}
  leader=${words%%.*}
  words=${words#*.}
  born=${words%%.*}
  words=${words#*.}
  [ "${words%%.*}" = "$(boot_id)" ] || return 1
  [ "$(cut -d' ' -f22 "/proc/$leader/stat" 2>/dev/null)" = "$born" ] || return 1
  [ "$(cut -d' ' -f3 "/proc/$leader/stat" 2>/dev/null)" != Z ]
}

# Whether the claim $1 of the session in directory $2 counts: its owner gave a sign of life lately,
# or a program that it started still runs, as far as this user may see that.
counts() {
  [ "$(find "$1" -prune -mmin +LEASE 2>/dev/null)" ] || return 0
  for note in "$2/.joulewright"/*.[0-9]*.*; do lives "$note" && return; done
  return 1
}

# End the groups in these notes: with SIGTERM, and 20 pauses later with SIGKILL. A process that is
# writing to a slow disk ends after that, and keeps its locks until then: wait for it, 50 pauses at
# most.
end_jobs() {
  for note in "$@"; do lives "$note" && kill -TERM "-$leader" 2>/dev/null; done
  tries=0
  for note in "$@"; do
    while [ "$tries" -lt 20 ] && lives "$note"; do pause; tries=$((tries + 1)); done
  done
  killed=
  for note in "$@"; do
    lives "$note" && kill -KILL "-$leader" 2>/dev/null && killed="$killed $leader"
  done
  tries=0
  for leader in $killed; do
    while [ "$tries" -lt 50 ] && kill -0 "-$leader" 2>/dev/null; do
      pause
      tries=$((tries + 1))
    done
  done
}

# Remove a session, alive or dead: $1 is its parent, $2 its token.
remove_session() {
  rm -f -- CLAIMS/"$2" 2>/dev/null
  mv -- "$1/session.$2" "$1/closing.$2" 2>/dev/null
  end_jobs "$1/closing.$2/.joulewright"/*.[0-9]*.*
  for again in 1 2 3 4 5; do
    rm -rf -- "$1/closing.$2" 2>/dev/null && return
    pause
  done
  rm -rf -- "$1/closing.$2"
}
""".replace("CLAIMS", _CLAIMS).replace("LEASE", str(LEASE_MINUTES))

# $1 path of the job's notes, $2 time limit in seconds or nothing if detached, $3 the limit in whole
# seconds, then the command. Leads a session of its own, to which its timer belongs as well.
_SUPERVISE = r"""
job=$1 limit=$2 whole=$3
shift 3
trap : TERM
note=$job.$$.$(cut -d' ' -f22 "/proc/$$/stat").$(cat /proc/sys/kernel/random/boot_id)
: >"$note.running" || exit 1
if [ "$limit" ]; then
  (
    sleep "$limit" || sleep "$whole"
    mv "$note.running" "$note.timed-out" || exit
    trap "" TERM
    kill -TERM 0
    sleep 2
    kill -KILL 0
  ) >/dev/null 2>&1 &
else
  exec >"$job.stdout" 2>"$job.stderr"
fi
(exec "$@")
mv "$note.running" "$note.exit-$?" 2>/dev/null
kill -KILL 0
"""


# For scripts that may take longer than a claim or a guard waits for a sign of life: one now and
# then, if `moved` prints something else than before. It ends with the script, however that ends.
_SIGNS_OF_LIFE = f"""
(
  seconds=0 before=
  while sleep 1 && kill -0 "$$" 2>/dev/null; do
    seconds=$((seconds + 1))
    [ $((seconds % {30 * LEASE_MINUTES})) -eq 0 ] || continue
    now=$(moved 2>/dev/null)
    [ "$now" = "$before" ] || sign_of_life
    before=$now
  done
) </dev/null >/dev/null 2>&1 &
keeper=$!
trap 'kill "$keeper" 2>/dev/null' EXIT
"""


def quote_path(path: str) -> str:
    """Quote a path as a word of a script. A leading dash is protected from being taken for an
    option."""
    return shlex.quote(path if path.startswith("/") else f"./{path}")


def _require_programs() -> str:
    """Shell commands that name all missing programs and the packages that have them."""
    checks = "\n".join(
        f"for tool in {' '.join(tools)}; do\n"
        '  command -v "$tool" >/dev/null || { missing="$missing $tool"; has=no; }\n'
        "done\n"
        f'[ "$has" ] && packages="$packages {package}" has='
        for package, tools in _PACKAGES.items()
    )
    return f"""missing= packages= has=
{checks}
[ -z "$missing" ] || {{
  echo "these programs are not installed:$missing; install$packages, or a busybox with them" >&2
  exit {SETUP_MISSING}
}}"""


def open_session(token: str) -> str:
    """Make the private directory and print it. Can be repeated.

    Then a line ``TOKEN young|old`` is printed for each other session in the parent directory.
    """
    return f"""{_FUNCTIONS}
umask 077
{_require_programs()}
parent=
for candidate in "${{XDG_CACHE_HOME:-${{HOME:-/nonexistent}}/.cache}}/joulewright" \\
                 "${{TMPDIR:-/tmp}}/joulewright-$(id -u)"; do
  mkdir -p -- "$candidate" 2>/dev/null
  if [ -O "$candidate" ] && [ -w "$candidate" ]; then parent=$candidate; break; fi
done
[ "$parent" ] || {{
  echo "neither ~/.cache nor TMPDIR can be written; make one of them writable" >&2
  exit {SETUP_MISSING}
}}
cd -- "$parent" && parent=$(pwd) || exit
mkdir -p session.{token}/{CONTROL} &&
: >session.{token}/{CONTROL}/seen &&
: >"session.{token}/{CONTROL}/boot.$(boot_id)" || {{
  rm -rf session.{token}
  df -Pk . | tail -n 1 >&2
  exit 1
}}
printf '%s\\n' "$parent/session.{token}"
read -r uptime rest </proc/uptime
for other in session.* closing.*; do
  [ "$other" != session.{token} ] && [ -d "$other" ] || continue
  age=young
  seen=$other/{CONTROL}/seen
  [ -e "$seen" ] || seen=$other
  if [ "$(find "$seen" -prune -mmin +{STALE_AFTER_MINUTES} 2>/dev/null)" ]; then age=old; fi
  # A clock that was set since does not make a session of this boot older than the boot.
  if [ -e "$other/{CONTROL}/boot.$(boot_id)" ] &&
     [ "${{uptime%%.*}}" -lt {STALE_AFTER_MINUTES * 60} ]; then age=young; fi
  for note in "$other/{CONTROL}"/*.[0-9]*.*; do if lives "$note"; then age=young; fi; done
  echo "${{other#*.}} $age"
done
"""


def claim(directory: str, process: str, owner: str) -> str:
    """Claim the board for a session. Can be repeated, and changes nothing while the claim counts.

    Prints nothing, or the owner of another claim if that is not of the same process; there is none
    of this session then. Where claims cannot be kept, nothing is printed either. The claim of a
    session that is gone does not count: whoever removed what a killed process had left has not seen
    its claim if ``TMPDIR`` was another directory there.
    """
    token = posixpath.basename(directory).partition(".")[2]
    return f"""{_enter(directory)}
claims={_CLAIMS}
mkdir -m 1777 "$claims" 2>/dev/null
[ -d "$claims" ] && [ ! -L "$claims" ] && cd -- "$claims" || exit 0
umask 022
if [ -O {token} ] && counts {token} {shlex.quote(directory)} &&
   [ "$(tail -n 1 {token})" = held ]; then exit 0; fi
{{ printf '%s\\n' {shlex.quote(process)} {shlex.quote(owner)} {shlex.quote(directory)} >.{token} &&
  mv -f .{token} {token}; }} 2>/dev/null || exit 0
for other in *; do
  [ "$other" != {token} ] && [ -f "$other" ] && [ ! -L "$other" ] || continue
  {{ read -r process && read -r owner && {{ read -r session || session=/; }}; }} \
    <"$other" 2>/dev/null || continue
  if [ -O "$other" ] && [ ! -d "$session" ]; then rm -f "$other"; continue; fi
  [ "$process" != {shlex.quote(process)} ] || continue
  counts "$other" "$session" || continue
  rm -f {token}
  printf '%s\\n' "$owner" | head -c 300
  exit 0
done
{{ echo held >>{token}; }} 2>/dev/null || exit 0
"""


def remove_sessions(parent: str, tokens: Sequence[str]) -> str:
    """End every job of these sessions and remove their directories. Can be repeated."""
    words = " ".join(shlex.quote(token) for token in tokens)
    return f"""{_FUNCTIONS}
cd /
for token in {words}; do remove_session {shlex.quote(parent)} "$token"; done
"""


def put(directory: str, remote: str, *, token: str, size_bytes: int, executable: bool) -> str:
    """Write standard input to a file. On failure, print ``free KIBIBYTES`` on standard error."""
    target = quote_path(remote)
    part = quote_path(posixpath.join(posixpath.dirname(remote), f".{token}.part"))
    return f"""{_enter(directory)}
moved() {{ wc -c <{part}; }}
{_SIGNS_OF_LIFE}
umask 077
if [ -d {target} ]; then echo "it is a directory" >&2; exit 1; fi
cat >{part} && [ "$(wc -c <{part})" -eq {size_bytes} ] &&
chmod {"700" if executable else "600"} {part} && mv -f {part} {target} && exit
rm -f {part}
df -Pk . | {{ read -r header; read -r device size used free rest; echo "free $free" >&2; }}
exit 1
"""


def get(directory: str, remote: str) -> str:
    """Print a file on standard output, and ``size BYTES`` on standard error. A file that grows
    meanwhile is cut to its size at the start."""
    source = quote_path(remote)
    return f"""{_enter(directory)}
moved() {{ echo "$seconds"; }}
{_SIGNS_OF_LIFE}
size=$(wc -c <{source}) && head -c "$((size))" {source} && echo "size $((size))" >&2
"""


def run(
    directory: str,
    job: str,
    argv: Sequence[str],
    environment: Mapping[str, str],
    *,
    time_limit_s: float,
) -> str:
    """Run a command. The last line of standard error is ``JOB exit-CODE``, ``JOB timed-out`` or
    ``JOB vanished``."""
    notes = f"{directory}/{CONTROL}/{job}"
    words = [notes, f"{time_limit_s:.3f}", str(math.ceil(time_limit_s)), *argv]
    return f"""{_enter(directory)}
exec 3>&2 2>/dev/null
{_export(environment)}
setsid sh -c {shlex.quote(_SUPERVISE)} sh {shlex.join(words)} </dev/null 2>&3 3>&- &
wait $!
state=vanished
for note in {shlex.quote(notes)}.*.exit-* {shlex.quote(notes)}.*.timed-out; do
  if [ -e "$note" ]; then state=${{note##*.}}; fi
done
[ -d {shlex.quote(directory)} ] || exit {DIRECTORY_GONE}
printf '\\n%s %s\\n' {job} "$state" >&3
rm -f {shlex.quote(notes)}.*
"""


def start(directory: str, job: str, argv: Sequence[str], environment: Mapping[str, str]) -> str:
    """Start a detached command. Repeated with the same job, it starts nothing."""
    notes = f"{directory}/{CONTROL}/{job}"
    words = [notes, "", "", *argv]
    # The pipe closes once the supervisor has written its note and opened its output files.
    return f"""{_enter(directory)}
if (set -C; : >{shlex.quote(notes)}.stdout); then
  {_export(environment)}
  (setsid sh -c {shlex.quote(_SUPERVISE)} sh {shlex.join(words)} </dev/null &) | cat
fi
for again in 1 2 3 4 5; do
  for note in {shlex.quote(notes)}.[0-9]*.*; do if [ -e "$note" ]; then exit 0; fi; done
  pause
done
exit 1
"""


def poll(directory: str, job: str) -> str:
    """Print ``running``, ``exit-CODE`` or ``vanished``."""
    notes = shlex.quote(f"{directory}/{CONTROL}/{job}")
    return f"""{_enter(directory)}
state=vanished
for note in {notes}.[0-9]*.*; do if lives "$note"; then state=running; fi; done
for note in {notes}.*.exit-*; do
  if [ -e "$note" ]; then state=${{note##*.}}; fi
done
echo "$state"
"""


def output(directory: str, job: str) -> str:
    """Print both streams of a detached command as far as they have been written."""
    notes = shlex.quote(f"{directory}/{CONTROL}/{job}")
    return f"""{_enter(directory)}
cat {notes}.stdout && cat {notes}.stderr >&2
"""


def stop(directory: str, job: str) -> str:
    """End a command. One that had to be killed has exit code 137, as in a shell."""
    notes = shlex.quote(f"{directory}/{CONTROL}/{job}")
    return f"""{_enter(directory)}
end_jobs {notes}.[0-9]*.*
for note in {notes}.*.running; do
  mv "$note" "${{note%.running}}.exit-137" 2>/dev/null
done
exit 0
"""


def _enter(directory: str) -> str:
    return f"""{_FUNCTIONS}
cd -- {shlex.quote(directory)} || exit {DIRECTORY_GONE}
claim={_CLAIMS}/{posixpath.basename(directory).partition(".")[2]}
sign_of_life() {{
  : >{CONTROL}/seen
  if [ -O "$claim" ] && counts "$claim" .; then touch "$claim"; fi
}}
sign_of_life"""


def _export(environment: Mapping[str, str]) -> str:
    return "\n".join(f"export {name}={shlex.quote(text)}" for name, text in environment.items())
