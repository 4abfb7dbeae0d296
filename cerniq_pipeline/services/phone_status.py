"""Keep the phones' statuses in line with what the providers say of their connections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cerniq_pipeline.domain.alerts import PHONE_ALERTS
from cerniq_pipeline.domain.outbox import Connection, Line
from cerniq_pipeline.errors import ProviderUnreadable
from cerniq_pipeline.logs import event
from cerniq_pipeline.services.reads import at_once
from cerniq_pipeline.services.sending import Desk
from cerniq_pipeline.store import alerts, phone_health
from cerniq_pipeline.store.phone_health import Change


def sync(desk: Desk) -> list[Change]:
    """Ask every provider about its phones once, and write down what changed; returns each phone.

    A phone that is gone stops at once and is told about once; one that is back goes on, and its
    alert closes by itself. What cannot be read changes no status.
    """
    with desk.begin() as conn:
        lines = phone_health.lines(conn)
    changes: list[Change] = []
    for provider, of_provider in lines.items():
        asked_at = desk.clock.now()
        links = _ask(desk, provider, of_provider)
        with desk.begin() as conn:
            now = desk.clock.now()
            changed = phone_health.apply_links(conn, links, asked_at=asked_at, now=now)
            for gone in changed:
                if (gone.before, gone.status) == ("ACTIVE", "OFFLINE"):
                    alerts.open_once(
                        conn,
                        tenant_id=gone.tenant_id,
                        kind="phone_offline",
                        subject=gone.phone_id,
                        detail=f"{provider} says: {links[gone.phone_id].detail}",
                        now=now,
                    )
            well = [one.phone_id for one in changed if one.status == "ACTIVE" and not one.error]
            alerts.close(conn, kinds=PHONE_ALERTS, subjects=well, now=now)
        changes += changed
    for one in changes:
        if one.before != one.status:
            event("status", f"phone_{one.status.lower()}", level="warning", phone=one.phone_id)
    return changes


def _ask(desk: Desk, provider: str, lines: Sequence[Line]) -> Mapping[str, Connection]:
    """What the provider says of each of these phones; unreadable is an answer of its own."""
    channel = desk.channels.get(provider)
    if channel is None:
        unknown = Connection(None, f"no channel is set up for {provider}")
        return {line.phone_id: unknown for line in lines}
    try:
        told = channel.connections(lines, turn=at_once(desk, provider))
    except ProviderUnreadable as unreadable:
        event("status", "unreadable", level="warning", provider=provider, error=str(unreadable))
        told = {line.phone_id: Connection(None, str(unreadable)) for line in lines}
    unmentioned = Connection(None, f"{provider} did not mention it")
    return {line.phone_id: told.get(line.phone_id, unmentioned) for line in lines}
