"""Governor and frequency of a Linux board, held while it is measured and restored afterwards.

A guard process on the board does both, so that they are restored whatever happens to this program:
when the session closes (the guard is then stopped), when its directory is gone, or when the session
shows no sign of life for ten minutes.
"""

from __future__ import annotations

import time

from devices.description import Conditions
from devices.errors import BoardCommandFailed, MeasurementInvalid
from profiler.transports.base import DetachedCommand, Transport
from profiler.transports.deadline import Deadline

_CPUFREQ = "/sys/devices/system/cpu/cpufreq"
_COMMAND_TIMEOUT_S = 30.0
_POLL_S = 0.1
_HELD = "held"

NOT_HELD = (
    "governor and frequency were not held until the end: this computer slept or was cut off for ten"
    " minutes, or the board's clock was set"
)
"""Why nothing that was measured counts."""

# $1 the directory of the policies, $2 the governor or nothing, $3 the frequency in kHz or nothing.
# Runs in the session's directory. A frequency is held by moving both limits to it, in an order that
# keeps the lower limit below the upper. All writes of one kind are one command, so that sudo is
# called once.
_GUARD = r"""
root=$1 governor=$2 khz=$3 session=$PWD undo=
as_root() { sh -c "$1" 2>/dev/null || sudo -n sh -c "$1" >/dev/null 2>&1; }
limits() {
  echo "echo $(cat "$1/cpuinfo_min_freq") >$1/scaling_min_freq"
  echo "echo $3 >$1/scaling_max_freq"
  echo "echo $2 >$1/scaling_min_freq"
}
restore() {
  trap "" TERM INT HUP
  as_root "$undo"
  exit "$1"
}
give_up() { echo "$1" >&2; restore 1; }
trap 'restore 0' TERM INT HUP
set -- "$root"/policy*
[ -d "$1" ] || give_up "the kernel offers no frequency scaling below $root"
do=
for policy in "$@"; do
  least=$(cat "$policy/scaling_min_freq") most=$(cat "$policy/scaling_max_freq")
  undo="$undo
$(limits "$policy" "$least" "$most")
echo $(cat "$policy/scaling_governor") >$policy/scaling_governor"
  [ -z "$governor" ] || do="$do
echo $governor >$policy/scaling_governor"
  [ -z "$khz" ] || do="$do
$(limits "$policy" "$khz" "$khz")"
done
as_root "set -e $do"
for policy in "$@"; do
  now=$(cat "$policy/scaling_governor")
  [ -z "$governor" ] || [ "$now" = "$governor" ] ||
    give_up "$policy: the governor stays $now (available: $(
      cat "$policy/scaling_available_governors"))"
  now="$(cat "$policy/scaling_min_freq") $(cat "$policy/scaling_max_freq")"
  [ -z "$khz" ] || [ "$now" = "$khz $khz" ] ||
    give_up "$policy: the frequency cannot be held at $khz kHz (possible: $(
      cat "$policy/cpuinfo_min_freq") to $(cat "$policy/cpuinfo_max_freq"))"
done
echo held
while [ "$(find "$session/.joulewright/seen" -mmin -10 2>/dev/null)" ]; do
  sleep 5 &
  wait $!
done
restore 0
"""


class Pinning:
    """Governor and frequency of a board, held until the transport is closed.

    The guard ends after ten minutes of silence, such as while this computer sleeps. What was
    measured until then and later cannot be told apart.

    Args:
        transport: Connected transport to the board.
        conditions: Conditions of the description.
    """

    def __init__(self, transport: Transport, conditions: Conditions) -> None:
        self._transport = transport
        self._conditions = conditions
        self._guard: DetachedCommand | None = None

    def hold(self) -> None:
        """Hold the described governor and frequency, unless they are held.

        Raises :class:`~devices.errors.MeasurementInvalid` if they cannot be set. Both are then as
        before.
        """
        if not self.is_held:
            self._guard = self._begin()

    @property
    def is_held(self) -> bool:
        """Whether the board is held as described, or nothing is described."""
        if self._conditions.governor is None and self._conditions.frequency_hz is None:
            return True
        if self._guard is None:
            return False
        try:
            return self._guard.poll(timeout_s=_COMMAND_TIMEOUT_S).exit_code is None
        except BoardCommandFailed:  # it was killed
            return False

    def _begin(self) -> DetachedCommand:
        governor, frequency_hz = self._conditions.governor, self._conditions.frequency_hz
        khz = "" if frequency_hz is None else str(round(frequency_hz / 1e3))
        guard = self._transport.start(
            ["sh", "-c", _GUARD, "sh", _CPUFREQ, governor or "", khz],
            timeout_s=_COMMAND_TIMEOUT_S,
        )
        deadline = Deadline(_COMMAND_TIMEOUT_S)
        while not deadline.expired:
            status = guard.poll(timeout_s=_COMMAND_TIMEOUT_S)
            output, errors = guard.output(timeout_s=_COMMAND_TIMEOUT_S)
            if output.strip() == _HELD:
                return guard
            if status.exit_code is not None:
                raise MeasurementInvalid(
                    f"{self._transport.name}:"
                    f" {errors.strip() or 'governor and frequency cannot be set'}. Setting them"
                    " needs root, or sudo without a password. Otherwise leave `conditions` out of"
                    " the description"
                )
            time.sleep(_POLL_S)
        guard.stop(timeout_s=_COMMAND_TIMEOUT_S)
        raise BoardCommandFailed(
            f"{self._transport.name}: governor and frequency were not set in time"
        )
