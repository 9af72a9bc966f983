"""Limits of the server: what it takes from anybody, and what a job may use."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Limits of the server.

    Attributes:
        upload_bytes: Most bytes of a request, all its files together.
        upload_s: Longest time in which a request must have arrived.
        head_s: Longest time on a connection without a request whose head has arrived, or in which
            its client takes nothing of what is sent to it.
        solve_s: Longest search, and the default of one that states no limit.
        running: Most jobs that run at once.
        waiting: Most jobs that wait, those that are being uploaded included.
        memory_bytes: Most memory of each process of a job.
        keep_s: How long a finished job is kept.
        kept: Most finished jobs that are kept; the oldest goes first.
        connections: Most connections at once.
    """

    upload_bytes: int = 64 << 20
    upload_s: float = 60.0
    head_s: float = 15.0
    solve_s: float = 300.0
    running: int = 1
    waiting: int = 8
    memory_bytes: int = 4 << 30
    keep_s: float = 3600.0
    kept: int = 100
    connections: int = 200


AROUND_S = 60.0
"""Longest time of a job beside its search: reading files, costing, addresses, pictures."""
