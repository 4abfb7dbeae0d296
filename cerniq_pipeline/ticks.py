"""How much time went by on this machine: nobody can set it, and it counts while the machine sleeps.

`time.monotonic` stands still on Linux while a machine is suspended, and a lease does not.
"""

from __future__ import annotations

import time

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""On macOS, which has no such clock, the monotonic one of the system counts sleep itself."""


def seconds() -> float:
    """Seconds since some moment of the past; only differences mean something."""
    return time.clock_gettime(_CLOCK)
