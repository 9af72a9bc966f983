"""What can go wrong between this computer and a board. Every message carries the operation, the
board and the remedy."""

from __future__ import annotations


class ProfilerError(Exception):
    """Base of all that the profiler raises on purpose."""


class BoardUnreachable(ProfilerError):
    """No connection to the board or to an instrument, or one that was lost and did not come back
    before its deadline."""


class BoardCommandFailed(ProfilerError):
    """A command on the board exited with something else than 0, or outlasted its time limit."""


class BuildFailed(ProfilerError):
    """The compiler is missing or refused the kernels."""


class MeasurementInvalid(ProfilerError):
    """Reached, but what it measures is not usable: windows void for good, a meter that cannot do
    what is described, …"""


class RequestRefused(ProfilerError):
    """Not to be done to this board, or not without a word more on the command line. Nothing was
    touched."""


class FirmwareMismatch(RequestRefused):
    """The firmware on a board is not the one that its description asks for."""
