"""Compiled objects that are kept on the machine that compiled them.

A small board compiles for a minute, and each ``profile``, ``run`` and cell of a campaign builds the
same sources. Objects are therefore kept beside the sessions' private directories::

    PARENT/session.TOKEN/       the working directory of the build
    PARENT/objects/KEY.tar      the objects of one build
    PARENT/objects/KEY.sum      output of ``cksum`` for it

The key is a hash of all that determines the objects. Files are renamed into place, and read only if
the sum agrees: after a full disk or a power cut, the sources are compiled again.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Sequence

from profiler.transports.base import Transport

_KEPT_BUILDS = 32


def objects_key(parts: Sequence[str]) -> str:
    """The key of a build, from its hashes of sources and flags and what its compiler states."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def restore_objects(
    transport: Transport, key: str, objects: Sequence[str], *, timeout_s: float
) -> bool:
    """Put the objects of a build where it would write them. False if they are not kept.

    Args:
        transport: The machine that compiles.
        key: The key of the build.
        objects: Their paths, relative to the private directory.
        timeout_s: Limit in seconds.

    Raises:
        BoardUnreachable: The machine cannot be reached.
        BoardCommandFailed: The limit has passed.
    """
    exist = " && ".join(f"[ -s {shlex.quote(path)} ]" for path in objects)
    script = f"""kept=../objects/{key}
[ -f "$kept.tar" ] && [ "$(cksum <"$kept.tar")" = "$(cat "$kept.sum")" ] &&
tar -xf "$kept.tar" && {exist} && touch "$kept.tar" "$kept.sum" """
    return transport.run(["sh", "-c", script], timeout_s=timeout_s, check=False).exit_code == 0


def keep_objects(
    transport: Transport, key: str, objects: Sequence[str], *, timeout_s: float
) -> None:
    """Keep the objects of a build, of the newest builds only; on a full disk, none.

    Arguments and errors are those of :func:`restore_objects`.
    """
    script = f"""umask 077
mkdir -p ../objects || exit
part=../objects/.{key}.$$
tar -cf "$part" {shlex.join(objects)} && cksum <"$part" >"$part.sum" &&
mv -f "$part" ../objects/{key}.tar && mv -f "$part.sum" ../objects/{key}.sum
rm -f "$part" "$part.sum"
cd ../objects && ls -At | tail -n +{2 * _KEPT_BUILDS + 1} | while read -r old; do
  rm -f -- "$old"
done"""
    transport.run(["sh", "-c", script], timeout_s=timeout_s, check=False)
