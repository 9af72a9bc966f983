"""Check that a graph's costs are those of a profile."""

from __future__ import annotations

from devices.errors import InputError
from devices.profile import DeviceProfile
from solver.problem.graph import CostedGraph

_SHOWN_HASH = 12


def require_profile_of(graph: CostedGraph, profile: DeviceProfile) -> None:
    """Check that a graph states the name, kernels and energy source of its profile.

    The profile may have been refined since: costs are not compared.

    Args:
        graph: A graph with an origin.
        profile: The profile that its origin names.

    Raises:
        InputError: The graph was made from another profile.
    """
    origin = graph.origin
    assert origin is not None, "a graph without an origin names no profile"
    kernels = None if profile.build is None else profile.build.kernels_sha256
    for what, stated, found in (
        ("profile", origin.profile, profile.name),
        ("energy_source", graph.energy_source, profile.energy_source),
        (
            "kernels",
            _short(origin.kernels_sha256),
            _short(kernels),
        ),
    ):
        if stated != found:
            raise InputError(
                f"graph {graph.name!r} states {what} {stated or 'none'}; profile {profile.name!r}"
                f" has {found or 'none'}: the graph is from another version of this profile",
                remedy=f"measure {origin.profile} again if its kernels have changed, and solve"
                " again",
            )


def _short(sha256: str | None) -> str | None:
    return None if sha256 is None else sha256[:_SHOWN_HASH]
