"""Phones: what decides whether one may send, where each stands today, and their kill switches."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import date, datetime

from sqlalchemy import Connection, text

from cerniq_pipeline.domain.holds import PhoneFacts, Switch
from cerniq_pipeline.domain.names import no_such
from cerniq_pipeline.domain.quotas import Budget, limit_on
from cerniq_pipeline.domain.selection import Desk
from cerniq_pipeline.store import breakers, tenants
from cerniq_pipeline.store.tenants import Tenant


@dataclass(frozen=True)
class Phone:
    """One phone with its tenant's rules and the facts that decide whether it may send."""

    id: str
    number: str
    provider: str
    account_id: str
    tenant: Tenant
    facts: PhoneFacts
    daily_quota: int
    warm_up_from: date | None
    budget: Budget

    def limit_on(self, day: date) -> int:
        """New contacts it may open on this day."""
        return limit_on(
            day, quota=self.daily_quota, warm_up_from=self.warm_up_from, budget=self.budget
        )


def get(conn: Connection, phone_id: str, *, channel: str = "WHATSAPP") -> Phone:
    """One phone, with every switch that is off for it."""
    row = (
        conn.execute(text("SELECT * FROM wa_phone_numbers WHERE id = :id"), {"id": phone_id})
        .mappings()
        .one_or_none()
    )
    if row is None:
        raise no_such("phone", phone_id, ids(conn), see="`cerniq status` lists them")
    tenant_row = (
        conn.execute(text("SELECT * FROM tenants WHERE id = :id"), {"id": row["tenant_id"]})
        .mappings()
        .one()
    )
    tenant = Tenant.of(tenant_row)
    return Phone(
        id=phone_id,
        number=row["phone_number"],
        provider=row["provider"],
        account_id=row["meta_phone_number_id"] or row["timelinesai_account_id"],
        tenant=tenant,
        daily_quota=row["daily_quota"],
        warm_up_from=row["warm_up_from"],
        budget=Budget(tenant.unanswered_per_month, row["unanswered_this_month"]),
        facts=PhoneFacts(
            phone_id=phone_id,
            status=row["status"],
            status_reason=row["status_reason"],
            enabled=row["is_enabled"],
            tenant_active=tenant.active,
            tenant_fault=tenant.fault,
            sandbox_only=tenant.sandbox_only,
            switches=switches_off(
                conn, tenant.id, channel=channel, account=row["provider"], phone_id=phone_id
            ),
            calendar=tenant.calendar,
            next_send_at=row["next_send_at"],
            provider=row["provider"],
            breakers=breakers.not_closed(conn, provider=row["provider"], phone_id=phone_id),
        ),
    )


def switches_off(
    conn: Connection, tenant_id: str, *, channel: str, account: str = "", phone_id: str = ""
) -> list[Switch]:
    """Every kill switch that is off for this tenant, channel, account and phone."""
    rows = conn.execute(
        text("""
            SELECT scope, key, reason FROM switches
            WHERE scope = 'global' OR (scope, key) IN
              (('tenant', :tenant), ('channel', :channel), ('account', :account),
               ('phone', :phone))
            ORDER BY scope
        """),
        {"tenant": tenant_id, "channel": channel, "account": account, "phone": phone_id},
    )
    return [Switch(*row) for row in rows]


def switch_off(
    conn: Connection, *, scope: str, key: str, reason: str, by: str, now: datetime
) -> None:
    """Stop sending in this scope; the next claim of every shift sees it."""
    conn.execute(
        text("""
            INSERT INTO switches (scope, key, reason, off_by, off_since)
            VALUES (:scope, :key, :reason, :by, :now)
            ON CONFLICT (scope, key) DO UPDATE SET reason = excluded.reason
        """),
        {"scope": scope, "key": key, "reason": reason, "by": by, "now": now},
    )


def switch_on(conn: Connection, *, scope: str, key: str) -> bool:
    """Let sending go on in this scope; False when it was not off."""
    deleted = conn.execute(
        text("DELETE FROM switches WHERE scope = :scope AND key = :key"),
        {"scope": scope, "key": key},
    )
    return deleted.rowcount > 0


def desks(conn: Connection, tenant_id: str, *, day: date) -> list[Desk]:
    """Every phone of a tenant as the allocator sees it.

    What is planned and not yet sent counts as used: the room of a phone is given away once.
    """
    most = tenants.get(conn, tenant_id).unanswered_per_month
    rows = conn.execute(
        text("""
            SELECT p.id, p.daily_quota, p.warm_up_from, p.unanswered_this_month,
                   p.status = 'ACTIVE' AND p.is_enabled AND NOT EXISTS (
                     SELECT 1 FROM switches off WHERE (off.scope, off.key) IN
                       (('phone', p.id), ('account', p.provider))) AS active,
                   (SELECT count(*) FROM quota_ledger q
                    WHERE q.phone_id = p.id AND q.day = :day AND q.state <> 'released')
                 + (SELECT count(*) FROM outbox_messages o
                    WHERE o.phone_id = p.id AND o.state IN ('planned', 'deferred')
                      AND o.kind IN ('initial', 'handover')) AS used
            FROM wa_phone_numbers p WHERE p.tenant_id = :tenant ORDER BY p.id
        """),
        {"tenant": tenant_id, "day": day},
    ).mappings()
    return [
        Desk(
            phone_id=row["id"],
            active=row["active"],
            used=row["used"],
            limit=limit_on(
                day,
                quota=row["daily_quota"],
                warm_up_from=row["warm_up_from"],
                budget=Budget(most, row["unanswered_this_month"]),
            ),
        )
        for row in rows
    ]


def ids(conn: Connection) -> list[str]:
    """Every phone there is; these are the partitions."""
    return list(conn.execute(text("SELECT id FROM wa_phone_numbers ORDER BY id")).scalars())


def numbers(conn: Connection) -> list[tuple[str, str]]:
    """Every phone's number and provider."""
    rows = conn.execute(text("SELECT phone_number, provider FROM wa_phone_numbers ORDER BY id"))
    return [(row.phone_number, row.provider) for row in rows]


def by_number(conn: Connection, number: str) -> tuple[str, str] | None:
    """The tenant and the id of the phone with this number; None when it is none of ours."""
    row = conn.execute(
        text("SELECT tenant_id, id FROM wa_phone_numbers WHERE phone_number = :number"),
        {"number": number},
    ).one_or_none()
    return (row[0], row[1]) if row else None


def of_the_same_provider(conn: Connection, phone_id: str) -> set[str]:
    """The other phones of the provider that this one belongs to."""
    rows = conn.execute(
        text("""
            SELECT p.id FROM wa_phone_numbers me JOIN wa_phone_numbers p USING (provider)
            WHERE me.id = :id AND p.id <> :id
        """),
        {"id": phone_id},
    )
    return set(rows.scalars())


def with_work(conn: Connection, *, now: datetime) -> list[tuple[str, bool]]:
    """Phones that nobody holds and that have something to do: (phone, left in flight).

    Work is a due message, or a message that a dead shift left in flight: the next holder of the
    lease marks that one as unconfirmed.
    """
    rows = conn.execute(
        text("""
            SELECT p.id, left_behind FROM wa_phone_numbers p
            JOIN phone_leases l ON l.phone_id = p.id
            CROSS JOIN LATERAL (SELECT EXISTS (
              SELECT 1 FROM outbox_messages o WHERE o.phone_id = p.id AND o.state = 'sending'
            )) AS s (left_behind)
            WHERE (l.holder IS NULL OR l.lease_until < :now)
              AND (left_behind OR EXISTS (
                SELECT 1 FROM outbox_messages o
                WHERE o.phone_id = p.id AND o.due_at <= :now
                  AND o.state IN ('planned', 'deferred')))
            ORDER BY p.id
        """),
        {"now": now},
    )
    return [(row.id, row.left_behind) for row in rows]


def set_status(conn: Connection, phone_id: str, *, status: str, reason: str, now: datetime) -> None:
    """Record that a phone came online, went offline or was banned."""
    conn.execute(
        text("""
            UPDATE wa_phone_numbers
            SET status_changed_at = CASE WHEN status = :status
                                         THEN coalesce(status_changed_at, :now) ELSE :now END,
                status = :status, status_reason = :reason,
                is_online = :status = 'ACTIVE', updated_at = :now
            WHERE id = :id
        """),
        {"id": phone_id, "status": status, "reason": reason, "now": now},
    )


def set_status_since(
    conn: Connection, phone_id: str, *, status: str, reason: str, at: datetime, now: datetime
) -> bool:
    """The same for what was so at an earlier instant; False when the phone has changed since.

    A banned phone stays banned.
    """
    stale = conn.execute(
        text("""
            SELECT status_changed_at >= :at OR status IN ('BANNED', :status)
            FROM wa_phone_numbers WHERE id = :id FOR UPDATE
        """),
        {"id": phone_id, "status": status, "at": at},
    ).scalar_one()
    if not stale:
        set_status(conn, phone_id, status=status, reason=reason, now=now)
    return not stale


def senders(
    conn: Connection, message_ids: Collection[int], *, providers: Collection[str]
) -> list[tuple[int, str]]:
    """The messages among these that left from phones of these providers, by phone."""
    rows = conn.execute(
        text("""
            SELECT o.id, p.id FROM outbox_messages o JOIN wa_phone_numbers p ON p.id = o.phone_id
            WHERE o.id = ANY(:ids) AND p.provider = ANY(:providers) ORDER BY p.id, o.id
        """),
        {"ids": list(message_ids), "providers": list(providers)},
    )
    return [(row[0], row[1]) for row in rows]


def set_enabled(conn: Connection, phone_id: str, *, enabled: bool, now: datetime) -> None:
    """Take a phone into use, or out of it."""
    conn.execute(
        text("UPDATE wa_phone_numbers SET is_enabled = :enabled, updated_at = :now WHERE id = :id"),
        {"id": phone_id, "enabled": enabled, "now": now},
    )


def set_next_send(conn: Connection, phone_id: str, *, at: datetime) -> None:
    """Hold this phone back until the end of its gap."""
    conn.execute(
        text("UPDATE wa_phone_numbers SET next_send_at = :at WHERE id = :id"),
        {"id": phone_id, "at": at},
    )


def restart_gap(conn: Connection, message_id: int, *, now: datetime) -> None:
    """Count the gap that this message's claim drew from now on.

    For a message that was left in flight: its call may have gone out at any moment until now.
    """
    conn.execute(
        text("""
            UPDATE wa_phone_numbers p SET next_send_at = :now + (p.next_send_at - o.begun_at)
            FROM outbox_messages o WHERE o.id = :message AND p.id = o.phone_id
        """),
        {"message": message_id, "now": now},
    )


def count_sent(conn: Connection, phone_id: str, *, now: datetime) -> None:
    """Count one more message that went out from this phone."""
    conn.execute(
        text("""
            UPDATE wa_phone_numbers
            SET total_messages_sent = total_messages_sent + 1,
                last_message_sent_at = greatest(last_message_sent_at, :now), updated_at = :now
            WHERE id = :id
        """),
        {"id": phone_id, "now": now},
    )
