"""The demo tenant's rows: what hangs on it that is not its own, and all of it gone."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from sqlalchemy import Connection, text

from cerniq_pipeline.store import retention, selection

REMOVED = "demo_removed"


def was_removed(conn: Connection) -> bool:
    """Whether somebody decided that this installation has no demo."""
    return conn.execute(
        text("SELECT EXISTS (SELECT 1 FROM decisions WHERE name = :name)"), {"name": REMOVED}
    ).scalar_one()


def note_removed(conn: Connection, *, by: str, now: datetime) -> None:
    """Remember that no start shall bring the demo back."""
    conn.execute(
        text("""
            INSERT INTO decisions (name, at, by) VALUES (:name, :now, :by)
            ON CONFLICT (name) DO NOTHING
        """),
        {"name": REMOVED, "by": by, "now": now},
    )


def note_wanted(conn: Connection) -> None:
    """Take that decision back."""
    conn.execute(text("DELETE FROM decisions WHERE name = :name"), {"name": REMOVED})


def lock(conn: Connection, tenant_id: str) -> bool:
    """Keep everybody from sending and planning for this tenant; False when there is none.

    In the order of all locks: its events, its phones, its dispatch.
    """
    found = conn.execute(
        text("SELECT 1 FROM tenants WHERE id = :tenant FOR UPDATE"), {"tenant": tenant_id}
    ).one_or_none()
    if found is None:
        return False
    values = {"tenant": tenant_id}
    conn.execute(
        text("""
            SELECT 1 FROM webhook_events WHERE account IN (
              SELECT phone_number FROM wa_phone_numbers WHERE tenant_id = :tenant)
            ORDER BY id FOR UPDATE
        """),
        values,
    )
    conn.execute(
        text("""
            SELECT 1 FROM phone_leases WHERE phone_id IN (
              SELECT id FROM wa_phone_numbers WHERE tenant_id = :tenant)
            ORDER BY phone_id FOR UPDATE
        """),
        values,
    )
    selection.lock_dispatch(conn, tenant_id)
    return True


def not_its_own(
    conn: Connection, tenant_id: str, *, phones: Collection[str], cuis: Collection[str]
) -> dict[str, int]:
    """What hangs on this tenant that nobody invented, and sends that are under way."""
    counts = conn.execute(
        text("""
            SELECT
              (SELECT count(*) FROM tenants WHERE id = :tenant AND NOT sandbox_only)
                AS "permission to send in live mode",
              (SELECT count(*) FROM wa_phone_numbers
               WHERE tenant_id = :tenant AND phone_number <> ALL(:phones)) AS "phones of others",
              (SELECT count(*) FROM gold_companies
               WHERE tenant_id = :tenant AND (cui IS NULL OR cui <> ALL(:cuis)))
                AS "leads of others",
              (SELECT count(*) FROM outbox_messages
               WHERE tenant_id = :tenant AND state = 'sending') AS "messages being sent"
        """),
        {"tenant": tenant_id, "phones": list(phones), "cuis": list(cuis)},
    )
    return {name: count for name, count in counts.mappings().one().items() if count}


_PHONES = "(SELECT id FROM wa_phone_numbers WHERE tenant_id = :tenant)"
_NUMBERS = "(SELECT phone_number FROM wa_phone_numbers WHERE tenant_id = :tenant)"
_MESSAGES = "(SELECT id FROM outbox_messages WHERE tenant_id = :tenant)"
_BATCHES = "(SELECT id FROM dispatch_batches WHERE tenant_id = :tenant)"
_EVENTS = """(SELECT id FROM webhook_events WHERE account IN (
  SELECT phone_number FROM wa_phone_numbers WHERE tenant_id = :tenant))"""

_GONE = (
    ("dead_letters", f"tenant_id = :tenant OR message_id IN {_MESSAGES} OR event_id IN {_EVENTS}"),
    ("webhook_events", f"account IN {_NUMBERS}"),
    ("unread_chats", f"account IN {_NUMBERS}"),
    ("gold_communication_log", "tenant_id = :tenant"),
    ("whatsapp_conversations", "tenant_id = :tenant"),
    ("stage_changes", "tenant_id = :tenant"),
    ("gold_lead_journey", "tenant_id = :tenant"),
    ("gold_companies", "tenant_id = :tenant"),
    ("send_attempts", f"message_id IN {_MESSAGES}"),
    ("outbox_changes", f"message_id IN {_MESSAGES}"),
    ("outbox_messages", "tenant_id = :tenant"),
    ("dispatch_items", f"batch_id IN {_BATCHES}"),
    ("dispatch_plans", f"batch_id IN {_BATCHES}"),
    ("dispatch_batches", "tenant_id = :tenant"),
    ("quota_ledger", f"phone_id IN {_PHONES}"),
    ("quota_days", f"phone_id IN {_PHONES}"),
    ("phone_leases", f"phone_id IN {_PHONES}"),
    ("phone_days", f"phone_id IN {_PHONES}"),
    ("phone_day_changes", f"phone_id IN {_PHONES}"),
    ("heartbeats", "tenant_id = :tenant"),
    ("breakers", f"scope = 'phone' AND key IN {_PHONES}"),
    ("switches", f"scope = 'tenant' AND key = :tenant OR scope = 'phone' AND key IN {_PHONES}"),
    ("alerts", "tenant_id = :tenant"),
    ("suppressions", "tenant_id = :tenant"),
    ("sequence_steps", "sequence_id IN (SELECT id FROM sequences WHERE tenant_id = :tenant)"),
    ("sequences", "tenant_id = :tenant"),
    ("templates", "tenant_id = :tenant"),
    ("media_files", "tenant_id = :tenant"),
    ("imports", "tenant_id = :tenant"),
    ("wa_phone_numbers", "tenant_id = :tenant"),
    ("tenants", "id = :tenant"),
)


def remove(conn: Connection, tenant_id: str) -> dict[str, int]:
    """Delete every row of a tenant whose locks the caller holds; returns how many, by table."""
    retention.allow_forgetting(conn)
    gone = {
        table: conn.execute(
            text(f"DELETE FROM {table} WHERE {mine}"),  # noqa: S608 - constants of this page
            {"tenant": tenant_id},
        ).rowcount
        for table, mine in _GONE
    }
    return {table: count for table, count in gone.items() if count}
