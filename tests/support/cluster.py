"""A Dask cluster on loopback: its scheduler and its worker are threads of this process."""

from __future__ import annotations

from typing import Any


def local_cluster(threads: int) -> Any:
    """A cluster of one worker with so many threads; entering it starts it."""
    from distributed import LocalCluster

    return LocalCluster(
        n_workers=1,
        threads_per_worker=threads,
        processes=False,
        host="127.0.0.1",
        protocol="tcp",
        dashboard_address=None,
        memory_limit=None,
    )
