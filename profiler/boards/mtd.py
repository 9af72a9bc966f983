"""Raw flash of a Linux board as its kernel reports it: partitions, where they lie, what uses them.

Partitions may contain each other: on OpenWrt, ``firmware`` contains ``kernel`` and ``rootfs``, and
``rootfs`` contains ``rootfs_data``. A board may have mounted any of them.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from profiler.transports.base import Transport

_CLASS = "/sys/class/mtd"
_BLOCK_MAJOR = 31
"""Major number of ``mtdblock`` devices, which file systems on MTD devices without one have too."""

# "mtd0: 00800000 00020000 "scratch"": size and erase block, hexadecimal.
_PARTITION = re.compile(r'mtd(\d+): ([0-9a-f]+) ([0-9a-f]+) "(.*)"')
_PLACE = re.compile(r"^(\d+) (\d+|whole) (/.*/mtd(\d+))$", re.MULTILINE)

_UBI = "cat /sys/class/ubi/ubi*/mtd_num 2>/dev/null || true"
_SWAPS = "cat /proc/swaps 2>/dev/null || true"  # a kernel without swap has none

# Prints "SIZE OFFSET PATH" of each device below $1; "whole" is the offset of one that is no
# partition, or whose kernel does not tell. mtd0ro is mtd0 once more.
_PLACES = r"""
for entry in "$1"/mtd[0-9]*; do
  case $entry in *ro) continue ;; esac
  (cd -P -- "$entry" 2>/dev/null || exit
    echo "$(cat size) $(cat offset 2>/dev/null || echo whole) $(pwd -P)")
done
exit 0
"""


@dataclass(frozen=True)
class Partition:
    """An MTD device, which mostly is a partition of a flash chip: a line of ``/proc/mtd``."""

    number: int
    bytes: int
    erase_block_bytes: int
    name: str


@dataclass(frozen=True)
class _Place:
    """Bytes ``begin`` to ``end`` (exclusive) of a chip. ``path`` is the device's in sysfs, ``chip``
    that of the chip or of what its partitions have in common."""

    path: str
    chip: str
    begin: int
    end: int

    def shares_bytes(self, other: _Place) -> bool:
        is_within = self.path.startswith(f"{other.path}/") or other.path.startswith(f"{self.path}/")
        is_beside = self.chip == other.chip and self.begin < other.end and other.begin < self.end
        return is_within or is_beside


@dataclass(frozen=True)
class _Uses:
    """What the board mounts, swaps to, and has attached to UBI.

    ``devices`` are numbers ``MAJOR:MINOR`` of mounted file systems, ``sources`` the names by which
    they were mounted: a root that the kernel mounted is ``/dev/root``. ``attached`` holds numbers
    of MTD devices.
    """

    devices: frozenset[str]
    sources: frozenset[str]
    swaps: frozenset[str]
    attached: frozenset[str]

    def of(self, partition: Partition) -> str | None:
        """How a partition is used; None if it is not."""
        number, name = partition.number, partition.name
        sources = {f"mtd{number}", f"mtd:{name}", f"/dev/mtd{number}", f"/dev/mtdblock{number}"}
        if f"{_BLOCK_MAJOR}:{number}" in self.devices or self.sources & sources:
            return "is mounted"
        if f"mtdblock{number}" in self.swaps:
            return "is used for swap"
        return "belongs to UBI" if str(number) in self.attached else None


def read_partitions(transport: Transport, *, timeout_s: float) -> list[Partition]:
    """All MTD devices of a board. Raises :class:`~devices.errors.BoardCommandFailed` if its kernel
    has none."""
    table = transport.run(["cat", "/proc/mtd"], timeout_s=timeout_s).stdout
    return [
        Partition(int(number), int(size, 16), int(erase_block, 16), name)
        for number, size, erase_block, name in _PARTITION.findall(table)
    ]


def find_use(
    transport: Transport, partition: Partition, partitions: Sequence[Partition], *, timeout_s: float
) -> str | None:
    """Find out whether a board uses bytes of a partition.

    Args:
        transport: Connected transport to the board.
        partition: The partition.
        partitions: All of the board. Those that share bytes with ``partition`` count too, as far as
            sysfs tells where they lie.
        timeout_s: Time limit of each command on the board, in seconds.

    Returns:
        The end of a sentence that begins with the partition; None if nothing uses it.
    """
    uses = _read_uses(transport, timeout_s)
    own = uses.of(partition)
    if own is not None:
        return own
    places = _read_places(transport, timeout_s)
    for other in partitions:
        use = uses.of(other)
        if use is not None and _share_bytes(places, partition, other):
            return f"shares bytes with {other.name!r} (/dev/mtd{other.number}), which {use}"
    return None


def _read_uses(transport: Transport, timeout_s: float) -> _Uses:
    mounts = transport.run(["cat", "/proc/self/mountinfo"], timeout_s=timeout_s).stdout.splitlines()
    swaps = transport.run(["sh", "-c", _SWAPS], timeout_s=timeout_s).stdout.splitlines()
    attached = transport.run(["sh", "-c", _UBI], timeout_s=timeout_s).stdout.split()
    # proc_pid_mountinfo(5): ID, parent and device number; type and source follow a lone dash.
    return _Uses(
        devices=frozenset(line.split(" ")[2] for line in mounts),
        sources=frozenset(
            line.partition(" - ")[2].split(" ")[1].replace("\\040", " ") for line in mounts
        ),
        swaps=frozenset(posixpath.basename(name) for line in swaps for name in line.split()[:1]),
        attached=frozenset(attached),
    )


def _read_places(transport: Transport, timeout_s: float) -> dict[int, _Place]:
    """Where MTD devices lie, by number; empty where sysfs does not tell."""
    listing = transport.run(["sh", "-c", _PLACES, "sh", _CLASS], timeout_s=timeout_s).stdout
    found = _PLACE.findall(listing)
    offsets = {path: None if offset == "whole" else int(offset) for _, offset, path, _ in found}
    return {int(number): _place(path, int(size), offsets) for size, _, path, number in found}


def _place(path: str, size_bytes: int, offsets: Mapping[str, int | None]) -> _Place:
    """Place of the device at ``path``. ``offsets`` are those of all devices by path, each within
    the device above it in the tree, or within the chip; None for a chip."""
    begin, node = 0, path
    while (offset := offsets[node]) is not None:
        begin += offset
        above = _nearest_above(node, offsets)
        if above is None:
            return _Place(path, posixpath.dirname(node), begin, begin + size_bytes)
        node = above
    return _Place(path, node, begin, begin + size_bytes)


def _nearest_above(path: str, offsets: Mapping[str, int | None]) -> str | None:
    while (path := posixpath.dirname(path)) != "/":
        if path in offsets:
            return path
    return None


def _share_bytes(places: Mapping[int, _Place], one: Partition, other: Partition) -> bool:
    if one.number not in places or other.number not in places:
        return False
    return places[one.number].shares_bytes(places[other.number])
