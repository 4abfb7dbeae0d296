"""Count every read of a provider's account: the one way to be allowed to ask it anything."""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from cerniq_pipeline.domain.reads import LIMITS, WINDOW, Turn, What
from cerniq_pipeline.errors import QuotaUnknown, ReadsUsedUp

if TYPE_CHECKING:
    from cerniq_pipeline.services.sending import Desk


def turns(
    desk: Desk, provider: str, *, until: datetime | None = None, sweeping: bool = False
) -> Turn:
    """A function that waits until one more read of this account is allowed.

    Raises ReadsUsedUp when that is not before `until`. Redis counts for all processes; when it
    cannot be asked, nobody reads: what is looked up can wait, a "stop" is never asked for, and
    nothing is sent then anyway. An account that is closed for too many reads is worse than a late
    answer. Who is `sweeping` leaves a part of the reads to those for whom somebody waits.
    """

    def turn(what: What) -> None:
        limit = LIMITS[what]
        most = limit.of_sweeps if sweeping else limit.most
        while True:
            now = desk.clock.now()
            try:
                free_at = desk.gate.rate(
                    f"{what}:{provider}",
                    most=max(1, round(most * desk.speed)),
                    window=WINDOW,
                    now=now,
                    token=uuid.uuid4().hex,
                )
            except QuotaUnknown as unknown:
                raise ReadsUsedUp(f"reads cannot be counted: {unknown}") from unknown
            if free_at is None:
                return
            if until is not None and free_at >= until:
                raise ReadsUsedUp(f"{most} reads of {what} a minute are out", free_at=free_at)
            # A little longer, for no clock is as fine as the count.
            desk.clock.sleep(max((free_at - now).total_seconds(), 0.001))

    return turn


def at_once(
    desk: Desk, provider: str, *, patience: timedelta = timedelta(), sweeping: bool = False
) -> Turn:
    """Turns for which nobody waits for longer than this."""
    return turns(desk, provider, until=desk.clock.now() + patience, sweeping=sweeping)
