"""Raw flash of a Linux board: which partition may be overwritten, and where it is.

Partition numbers change with kernels and device trees, so that a description names the partition
and its number is read from the board. The harness compares the name once more before it erases.
"""

from __future__ import annotations

from devices.description import Storage
from devices.errors import BoardCommandFailed, RequestRefused
from profiler.boards.mtd import Partition, find_use, read_partitions
from profiler.transports.base import Transport

FLAG = "--overwrite-raw-flash"


def require_overwritable(device: str, storage: Storage, is_allowed: bool) -> None:
    """Require the user's permission to overwrite raw flash. Raises
    :class:`~devices.errors.RequestRefused` without it."""
    if storage.mtd_partition is None or is_allowed or storage.scratch_bytes is None:
        return
    raise RequestRefused(
        f"{device}: measuring storage overwrites {scratch_place(storage, storage.scratch_bytes)};"
        f" its contents are lost. Pass {FLAG} to allow it, or --no-storage to leave it out"
    )


def scratch_place(storage: Storage, scratch_bytes: int) -> str:
    """What is overwritten, for messages to users."""
    if storage.path is not None:
        return f"a scratch file in {storage.path}"
    first = storage.scratch_offset_bytes
    stretch = f"bytes {first} to {first + scratch_bytes - 1} of"
    if storage.mtd_partition is not None:
        return f"{stretch} the raw flash partition {storage.mtd_partition!r}"
    return f"{stretch} the {storage.medium} (driver {storage.driver})"


def find_partition(transport: Transport, storage: Storage, *, timeout_s: float) -> str:
    """End of a plan's ``scratch`` line for the description's ``mtd_partition``.

    Raises:
        RequestRefused: The board has no partition of this name or more than one, it or one that
            shares bytes with it is in use, or it is not as described.
    """
    name = storage.mtd_partition
    try:
        partitions = read_partitions(transport, timeout_s=timeout_s)
    except BoardCommandFailed as error:
        raise RequestRefused(
            f"{transport.name}: storage.mtd_partition is {name!r}, but the board reports no raw"
            f" flash: {error}"
        ) from error
    found = [partition for partition in partitions if partition.name == name]
    if len(found) != 1:
        there = ", ".join(repr(partition.name) for partition in partitions) or "none"
        raise RequestRefused(
            f"{transport.name}: {len(found)} raw flash partitions are named {name!r}, one is"
            f" needed; the board has: {there}"
        )
    (partition,) = found
    _require_described(transport.name, storage, partition)
    use = find_use(transport, partition, partitions, timeout_s=timeout_s)
    if use is not None:
        raise RequestRefused(
            f"{transport.name}: partition {name!r} (/dev/mtd{partition.number}) {use}; nothing was"
            " written. Name one that is not in use"
        )
    return (
        f"offset={storage.scratch_offset_bytes} page_bytes={storage.page_bytes}"
        f" erase_block_bytes={partition.erase_block_bytes} mtd=/dev/mtd{partition.number}"
        f" name={name}"
    )


def _require_described(board: str, storage: Storage, partition: Partition) -> None:
    if partition.erase_block_bytes != storage.erase_block_bytes:
        raise RequestRefused(
            f"{board}: partition {partition.name!r} has erase blocks of"
            f" {partition.erase_block_bytes} bytes",
            remedy=f"correct erase_block_bytes {storage.erase_block_bytes} of the description",
        )
    end = storage.scratch_offset_bytes + (storage.scratch_bytes or 0)
    if end > partition.bytes:
        raise RequestRefused(
            f"{board}: partition {partition.name!r} has {partition.bytes} bytes; the description's"
            f" scratch ends at {end}"
        )
