"""Selection over thousands of leads in a handful of statements.

A batch is read off the left end of one index, grouped into profiles for the decisions of
`domain/selection.py`, and turned into outbox rows. The cost depends on the batch, not on how many
leads there are.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, text

from cerniq_pipeline.domain.contacts import is_landline
from cerniq_pipeline.domain.selection import Desk, Group, Profile, Verdict
from cerniq_pipeline.store import failover, phones, suppressions

FILL_LOCK = 0x0CE2_1003
PRIORITY_RANKS = {"HIGH": 1, "NORMAL": 2, "LOW": 3}

# All that a decision about a lead depends on, as `domain.selection.Profile` reads it.
_PROFILE = r"""
           j.engagement_stage
             || CASE WHEN c.hlr_reachable AND c.telefon_principal ~ '^\+[1-9][0-9]{7,14}$'
                     THEN '|t' ELSE '|f' END
             || CASE WHEN c.email_principal IS NOT NULL AND c.email_status = 'valid'
                     THEN '|t' ELSE '|f' END
             || CASE WHEN j.whatsapp_opted_out THEN '|t' ELSE '|f' END
             || CASE WHEN j.email_opted_out THEN '|t|' ELSE '|f|' END
             || CASE WHEN j.last_channel_used IN ('WHATSAPP', 'EMAIL') THEN j.last_channel_used
                     ELSE '' END
             || '|' || translate(coalesce(j.lawful_basis, ''), '|', '')
"""

# One index range per priority: each is read in order and only as far as it is due.
_SELECT = """
    INSERT INTO dispatch_items (batch_id, position, lead_id, profile, recipient, sequence_id, step,
                                sticky_phone_id)
    SELECT :batch, row_number() OVER (ORDER BY j.priority_rank, j.next_action_at, j.lead_id),
           j.lead_id,
           {profile},
           CASE WHEN s.channel = 'EMAIL' THEN c.email_principal ELSE c.telefon_principal END,
           coalesce(j.current_sequence_id, :default_sequence),
           j.sequence_step + 1, j.assigned_phone_id
    FROM (
      SELECT due.* FROM unnest(CAST(:ranks AS smallint[])) AS rank
      CROSS JOIN LATERAL (
        SELECT * FROM gold_lead_journey
        WHERE tenant_id = :tenant AND priority_rank = rank AND next_action_at <= :now
          AND NOT open_message AND NOT requires_human_review AND next_action_at IS NOT NULL
          AND engagement_stage IN ('COLD', 'CONTACTED_WA', 'CONTACTED_EMAIL')
          AND (CAST(:sequence AS bigint) IS NULL
               OR coalesce(current_sequence_id, :default_sequence) = :sequence)
        ORDER BY next_action_at, lead_id LIMIT :considered
      ) due
      ORDER BY due.priority_rank, due.next_action_at, due.lead_id LIMIT :considered
    ) j JOIN gold_companies c ON c.id = j.lead_id
    LEFT JOIN sequence_steps s ON s.sequence_id = coalesce(j.current_sequence_id, :default_sequence)
                              AND s.step = j.sequence_step + 1
"""
_GROUP = """
    SELECT {profile}, coalesce(j.current_sequence_id, :default_sequence), j.sequence_step + 1,
           c.telefon_principal
    FROM gold_lead_journey j JOIN gold_companies c ON c.id = j.lead_id WHERE j.lead_id = :lead
"""

# Lay the decisions over a batch, in its order: `place` counts the leads that may be planned, `turn`
# those that want the same phone. One pass: the decisions are the only join, and phones are looked
# up in arrays by their seat.
_PLAN = text("""
    WITH judged AS (
      SELECT i.*, d.medium, d.template_id, d.skip,
             count(*) FILTER (WHERE d.skip IS NULL) OVER (ORDER BY i.position) AS place
      FROM dispatch_items i
      JOIN unnest(CAST(:profiles AS text[]), CAST(:sequences AS bigint[]), CAST(:steps AS int[]),
                  CAST(:media AS text[]), CAST(:templates AS bigint[]), CAST(:skips AS text[]))
        AS d (profile, sequence_id, step, medium, template_id, skip)
        ON d.profile = i.profile AND d.step = i.step
       AND d.sequence_id = coalesce(i.sequence_id, 0)
      WHERE i.batch_id = :batch
    ), lined AS (
      SELECT *, skip IS NULL AND place <= :batch_size AS chosen,
             count(*) FILTER (WHERE skip IS NULL AND place <= :batch_size AND medium = 'WHATSAPP')
               OVER (PARTITION BY sticky_phone_id, step = 1 ORDER BY position) AS turn
      FROM judged
    ), seated AS (
      SELECT *, CASE WHEN NOT chosen OR medium <> 'WHATSAPP' THEN NULL
                     WHEN sticky_phone_id IS NULL THEN (CAST(:hand AS int[]))[turn]
                     ELSE array_position(CAST(:phones AS text[]), sticky_phone_id) END AS seat
      FROM lined
    ), ruled AS (
      SELECT *, CASE WHEN NOT chosen OR medium <> 'WHATSAPP' THEN skip
                     WHEN seat IS NULL AND sticky_phone_id IS NULL
                       THEN CAST(:nobody_left AS text)
                     WHEN seat IS NULL THEN 'phone_not_active'
                     WHEN sticky_phone_id IS NOT NULL AND (CAST(:refusals AS text[]))[seat]
                       IS NOT NULL THEN (CAST(:refusals AS text[]))[seat]
                     WHEN sticky_phone_id IS NOT NULL AND step = 1
                       AND turn > (CAST(:rooms AS int[]))[seat] THEN 'quota_exceeded'
                END AS verdict
      FROM seated
    )
    INSERT INTO dispatch_plans (batch_id, position, lead_id, recipient, sequence_id, step,
                                template_id, medium, phone_id, skip)
    SELECT batch_id, position, lead_id, recipient, sequence_id, step, template_id,
           CASE WHEN chosen AND verdict IS NULL THEN medium END,
           CASE WHEN verdict IS NULL THEN (CAST(:phones AS text[]))[seat] END, verdict
    FROM ruled
""")
# Take the leads first, under their row locks and in the order in which everybody locks leads; only
# who could be taken gets a message. The conditions repeat what the plan was made on: a lead that
# replied, opted out or was planned by another dispatch in the meantime is left alone.
_FILL = text("""
    WITH taken AS (
      UPDATE gold_lead_journey j
      SET open_message = true, next_action_at = NULL, hold_reason = NULL, updated_at = :now,
          assigned_phone_id = coalesce(p.phone_id, j.assigned_phone_id),
          assigned_at = CASE WHEN p.phone_id <> j.assigned_phone_id THEN :now
                             ELSE coalesce(j.assigned_at, :now) END
      FROM (
        SELECT * FROM (
          SELECT *, row_number() OVER (PARTITION BY phone_id, step = 1 ORDER BY position) AS turn
          FROM dispatch_plans WHERE batch_id = :batch AND medium IS NOT NULL
        ) planned
        WHERE step > 1 OR phone_id IS NULL
           OR turn <= (CAST(:rooms AS int[]))[array_position(CAST(:phones AS text[]), phone_id)]
        ORDER BY lead_id
      ) p
      WHERE j.lead_id = p.lead_id AND NOT j.open_message AND NOT j.requires_human_review
        AND j.next_action_at IS NOT NULL AND NOT j.whatsapp_opted_out AND NOT j.email_opted_out
        AND j.sequence_step + 1 = p.step
        AND j.engagement_stage IN ('COLD', 'CONTACTED_WA', 'CONTACTED_EMAIL')
      RETURNING p.*
    ), made AS (
      INSERT INTO outbox_messages (tenant_id, channel, kind, lead_id, phone_id, recipient,
                                   sequence_id, step, template_id, due_at, planned_by)
      SELECT :tenant, CASE medium WHEN 'WHATSAPP' THEN 'WHATSAPP' ELSE 'EMAIL' END,
             CASE WHEN step = 1 THEN 'initial' ELSE 'followup' END, lead_id,
             phone_id, recipient, sequence_id, step, template_id, :now, :by
      FROM taken ORDER BY position
      ON CONFLICT DO NOTHING
      RETURNING 1
    )
    SELECT (SELECT count(*) FROM taken) AS taken, (SELECT count(*) FROM made) AS made
""")
# Leads that were taken but whose step stands in the outbox already, for them or for their number.
_LET_GO = text("""
    UPDATE gold_lead_journey j
    SET open_message = false, hold_reason = 'already_planned'
    FROM dispatch_plans p
    WHERE p.batch_id = :batch AND p.medium IS NOT NULL AND j.lead_id = p.lead_id AND j.open_message
      AND NOT EXISTS (SELECT 1 FROM outbox_messages o WHERE o.lead_id = p.lead_id
                        AND o.sequence_id = p.sequence_id AND o.step = p.step
                        AND o.replaced_by IS NULL
                        AND o.state NOT IN ('sent', 'failed', 'cancelled'))
""")


def open_batch(conn: Connection, *, tenant_id: str, asked: Mapping[str, Any], by: str) -> int:
    """Begin a batch, and forget those of yesterday."""
    conn.execute(
        text("""
            WITH old AS (DELETE FROM dispatch_batches
                         WHERE tenant_id = :tenant AND created_at < now() - interval '1 day'
                         RETURNING id)
               , items AS (DELETE FROM dispatch_items USING old WHERE batch_id = old.id)
            DELETE FROM dispatch_plans USING old WHERE batch_id = old.id
        """),
        {"tenant": tenant_id},
    )
    return conn.execute(
        text("""
            INSERT INTO dispatch_batches (tenant_id, asked, made_by)
            VALUES (:tenant, CAST(:asked AS jsonb), :by) RETURNING id
        """),
        {"tenant": tenant_id, "asked": json.dumps(asked), "by": by},
    ).scalar_one()


@dataclass(frozen=True)
class Batch:
    """The leads that one dispatch looks at for one tenant."""

    id: int
    tenant_id: str
    asked: dict[str, Any]
    made_by: str
    is_filled: bool


_BATCH = (
    "SELECT b.id, b.tenant_id, b.asked, b.made_by, b.filled_at IS NOT NULL FROM dispatch_batches b"
)


def lock_batch(conn: Connection, batch_id: int) -> Batch:
    """One batch, in the hands of this transaction: it is planned, and filled, by one at a time."""
    row = conn.execute(text(f"{_BATCH} WHERE b.id = :id FOR UPDATE"), {"id": batch_id}).one()
    return Batch(*row)


def batches_of(conn: Connection, by: str, *, planned: bool = False) -> list[Batch]:
    """The batches that this run opened, or planned."""
    rows = conn.execute(
        text(f"""
            {_BATCH} WHERE b.made_by = :by AND (NOT :planned OR b.planned_at IS NOT NULL)
            ORDER BY b.tenant_id, b.id
        """),
        {"by": by, "planned": planned},
    )
    return [Batch(*row) for row in rows]


def last_run(conn: Connection, *, planned: bool = False) -> str | None:
    """The newest run that opened a batch, or planned one, for a tenant that is active."""
    return conn.execute(
        text("""
            SELECT b.made_by FROM dispatch_batches b
            JOIN tenants t ON t.id = b.tenant_id AND t.status = 'active'
            WHERE NOT :planned OR b.planned_at IS NOT NULL
            ORDER BY b.id DESC LIMIT 1
        """),
        {"planned": planned},
    ).scalar_one_or_none()


def begin_plan(conn: Connection, batch_id: int, *, now: datetime) -> None:
    """Forget the plan that a batch may have, and note when it got its new one."""
    conn.execute(text("DELETE FROM dispatch_plans WHERE batch_id = :id"), {"id": batch_id})
    conn.execute(
        text("UPDATE dispatch_batches SET planned_at = :now WHERE id = :id"),
        {"id": batch_id, "now": now},
    )


def note_filled(conn: Connection, batch_id: int, *, now: datetime) -> None:
    """Note that a batch stands in the outbox: a second time would put leads off once more."""
    conn.execute(
        text("UPDATE dispatch_batches SET filled_at = :now WHERE id = :id"),
        {"id": batch_id, "now": now},
    )


def sequence_named(conn: Connection, tenant_id: str, name: str) -> int | None:
    """The id of a sequence given by name or id."""
    return conn.execute(
        text("""
            SELECT id FROM sequences
            WHERE tenant_id = :tenant AND (name = :name OR id::text = :name)
            ORDER BY name = :name DESC LIMIT 1
        """),
        {"tenant": tenant_id, "name": name},
    ).scalar_one_or_none()


def select_due(
    conn: Connection,
    batch_id: int,
    *,
    tenant_id: str,
    considered: int,
    priority: str | None,
    sequence_id: int | None,
    default_sequence_id: int | None,
    now: datetime,
) -> int:
    """Read the leads that are due, most urgent first, into the batch; returns how many."""
    ranks = [PRIORITY_RANKS[priority]] if priority else list(PRIORITY_RANKS.values())
    selected = conn.execute(
        text(_SELECT.format(profile=_PROFILE)),
        {
            "batch": batch_id,
            "tenant": tenant_id,
            "considered": considered,
            "ranks": ranks,
            "sequence": sequence_id,
            "default_sequence": default_sequence_id,
            "now": now,
        },
    ).rowcount
    _mark_landlines(conn, batch_id)
    lost = failover.handing_over(conn, tenant_id, now=now)
    if lost:
        _forget_lost_phones(conn, batch_id, lost)
    return selected


def _mark_landlines(conn: Connection, batch_id: int) -> None:
    """Note in the profiles which numbers are landlines: SQL does not know the plans of numbers."""
    numbers = conn.execute(
        text("""
            SELECT DISTINCT c.telefon_principal
            FROM dispatch_items i JOIN gold_companies c ON c.id = i.lead_id
            WHERE i.batch_id = :batch AND split_part(i.profile, '|', 2) = 't'
              AND c.telefon_principal NOT LIKE '+407%'
        """),
        {"batch": batch_id},
    ).scalars()
    landlines = [number for number in numbers if is_landline(number)]
    if landlines:
        conn.execute(
            text(r"""
                UPDATE dispatch_items i
                SET profile = regexp_replace(i.profile, '^([^|]*)\|t', '\1|l')
                FROM gold_companies c
                WHERE i.batch_id = :batch AND c.id = i.lead_id
                  AND c.telefon_principal = ANY(:landlines)
                  AND split_part(i.profile, '|', 2) = 't'
            """),
            {"batch": batch_id, "landlines": landlines},
        )


def _forget_lost_phones(conn: Connection, batch_id: int, lost: Sequence[str]) -> None:
    """Let leads that a lost phone never wrote to be dealt another one, like new leads."""
    values = {"batch": batch_id, "lost": list(lost)}
    waiting = conn.execute(
        text("""
            SELECT lead_id FROM dispatch_items
            WHERE batch_id = :batch AND step = 1 AND sticky_phone_id = ANY(:lost)
        """),
        values,
    ).scalars()
    conn.execute(
        text("""
            UPDATE dispatch_items SET sticky_phone_id = NULL
            WHERE batch_id = :batch AND step = 1 AND sticky_phone_id = ANY(:lost)
              AND lead_id = ANY(:strangers)
        """),
        {**values, "strangers": list(failover.strangers(conn, list(waiting)))},
    )


def mark_stopped(conn: Connection, batch_id: int, tenant_id: str, *, secret: bytes) -> None:
    """Let the plan see who asked to stop before their lead was there.

    Whoever writes a lead into the tables cannot know it: only a hash is left of them.
    """
    if not suppressions.anybody(conn, tenant_id):
        return
    selected = conn.execute(
        text("""
            SELECT i.lead_id, i.profile, c.telefon_principal, c.email_principal, c.cui
            FROM dispatch_items i JOIN gold_companies c ON c.id = i.lead_id
            WHERE i.batch_id = :batch
        """),
        {"batch": batch_id},
    )
    keys = {
        (row.lead_id, row.profile): suppressions.keys_of(
            secret, addresses=(row.telefon_principal, row.email_principal), cui=row.cui
        )
        for row in selected
    }
    everybody = {key for theirs in keys.values() for key in theirs}
    stopped = suppressions.stopped_among(conn, tenant_id, everybody)
    theirs = [who for who, known_by in keys.items() if not stopped.isdisjoint(known_by)]
    if theirs:
        conn.execute(
            text("""
                UPDATE dispatch_items i SET profile = s.profile
                FROM unnest(CAST(:leads AS uuid[]), CAST(:profiles AS text[]))
                  AS s (lead_id, profile)
                WHERE i.batch_id = :batch AND i.lead_id = s.lead_id
            """),
            {
                "batch": batch_id,
                "leads": [lead_id for lead_id, _ in theirs],
                "profiles": [Profile.stopped(profile) for _, profile in theirs],
            },
        )


def groups(conn: Connection, batch_id: int) -> list[Group]:
    """The distinct groups of a batch: what has to be decided, and nothing twice."""
    rows = conn.execute(
        text("""
            SELECT profile, sequence_id, step FROM dispatch_items WHERE batch_id = :batch
            GROUP BY 1, 2, 3
        """),
        {"batch": batch_id},
    )
    return [Group(*row) for row in rows]


def group_of(conn: Connection, lead_id: UUID, *, default_sequence_id: int | None) -> Group:
    """The group that one lead would be decided in."""
    profile, sequence_id, step, number = conn.execute(
        text(_GROUP.format(profile=_PROFILE)),
        {"lead": lead_id, "default_sequence": default_sequence_id},
    ).one()
    if number and is_landline(number):
        profile = Profile.with_landline(profile)
    return Group(profile, sequence_id, step)


def known_phones(conn: Connection, batch_id: int) -> list[tuple[str, Group, int]]:
    """How many leads wait for a first message from a phone they were given before, by group."""
    rows = conn.execute(
        text("""
            SELECT sticky_phone_id, profile, sequence_id, step, count(*) FROM dispatch_items
            WHERE batch_id = :batch AND sticky_phone_id IS NOT NULL AND step = 1
            GROUP BY 1, 2, 3, 4
        """),
        {"batch": batch_id},
    )
    return [(row[0], Group(row[1], row[2], row[3]), row[4]) for row in rows]


def write_plan(
    conn: Connection,
    batch_id: int,
    *,
    batch_size: int,
    verdicts: Sequence[Verdict],
    hand: Sequence[str],
    desks: Sequence[Desk],
    refusals: Mapping[str, str],
    nobody_left: str,
) -> None:
    """Lay the decisions over the batch: a medium and a phone, or a reason, for every lead.

    `hand` deals phones to the leads that know none, in their order; who comes after its end is
    passed over because of `nobody_left`.
    """
    seats = {desk.phone_id: seat for seat, desk in enumerate(desks, start=1)}
    # Without statistics on rows that were written a moment ago, the planner would compare every
    # lead with every decision.
    conn.execute(text("SET LOCAL enable_nestloop = off"))
    conn.execute(
        _PLAN,
        {
            "batch": batch_id,
            "batch_size": batch_size,
            "profiles": [verdict.group.profile for verdict in verdicts],
            "sequences": [verdict.group.sequence_id or 0 for verdict in verdicts],
            "steps": [verdict.group.step for verdict in verdicts],
            "media": [verdict.medium for verdict in verdicts],
            "templates": [verdict.template_id for verdict in verdicts],
            "skips": [verdict.skip for verdict in verdicts],
            # Numbers, not names: Postgres finds the n-th of a fixed width at once.
            "hand": [seats[phone_id] for phone_id in hand],
            "phones": [desk.phone_id for desk in desks],
            "rooms": [desk.remaining for desk in desks],
            "refusals": [refusals.get(desk.phone_id) for desk in desks],
            "nobody_left": nobody_left,
        },
    )
    conn.execute(text("SET LOCAL enable_nestloop = on"))


def pass_over_all(conn: Connection, batch_id: int, reason: str) -> None:
    """Write a plan that passes the whole batch over for one reason."""
    conn.execute(
        text("""
            INSERT INTO dispatch_plans (batch_id, position, lead_id, recipient, sequence_id, step,
                                        skip)
            SELECT batch_id, position, lead_id, recipient, sequence_id, step, :reason
            FROM dispatch_items WHERE batch_id = :batch
        """),
        {"batch": batch_id, "reason": reason},
    )


def lock_dispatch(conn: Connection, tenant_id: str) -> None:
    """Let one dispatcher of a tenant fill the outbox at a time."""
    conn.execute(
        text("SELECT pg_advisory_xact_lock(:lock, hashtext(:tenant))"),
        {"lock": FILL_LOCK, "tenant": tenant_id},
    )


def fill_outbox(
    conn: Connection,
    batch_id: int,
    *,
    tenant_id: str,
    desks: Sequence[Desk],
    by: str,
    now: datetime,
) -> tuple[int, int]:
    """Write the planned messages and mark their leads: (written, planned before by somebody else).

    Looks again at everything that may have changed since the plan was made.
    """
    values = {
        "batch": batch_id,
        "tenant": tenant_id,
        "phones": [desk.phone_id for desk in desks],
        "rooms": [desk.remaining for desk in desks],
        "by": by,
        "now": now,
    }
    row = conn.execute(_FILL, values).one()
    if row.made < row.taken:
        conn.execute(_LET_GO, {"batch": batch_id})
    return row.made, row.taken - row.made


def put_off(
    conn: Connection, batch_id: int, until: Mapping[str, datetime | None], *, now: datetime
) -> int:
    """Move the passed-over leads of a batch out of the way until their reason may have gone."""
    return conn.execute(
        text("""
            UPDATE gold_lead_journey j
            SET hold_reason = i.skip, next_action_at = u.at, updated_at = :now
            FROM dispatch_plans i
            JOIN unnest(CAST(:reasons AS text[]), CAST(:ats AS timestamptz[])) AS u (skip, at)
              ON u.skip = i.skip
            WHERE i.batch_id = :batch AND j.lead_id = i.lead_id AND NOT j.open_message
        """),
        {"batch": batch_id, "reasons": list(until), "ats": list(until.values()), "now": now},
    ).rowcount


def counts(conn: Connection, batch_id: int) -> list[tuple[str | None, str | None, int]]:
    """Leads of a batch by medium and reason."""
    rows = conn.execute(
        text("""
            SELECT medium, skip, count(*) FROM dispatch_plans WHERE batch_id = :batch
            GROUP BY 1, 2 ORDER BY 1, 2
        """),
        {"batch": batch_id},
    )
    return [(row[0], row[1], row[2]) for row in rows]


def phones_used(conn: Connection, batch_id: int) -> dict[str, int]:
    """Planned leads of a batch by phone."""
    rows = conn.execute(
        text("""
            SELECT phone_id, count(*) FROM dispatch_plans
            WHERE batch_id = :batch AND phone_id IS NOT NULL GROUP BY 1 ORDER BY 1
        """),
        {"batch": batch_id},
    )
    return {row[0]: row[1] for row in rows}


def preview(conn: Connection, batch_id: int, *, limit: int = 20) -> list[dict[str, Any]]:
    """The first leads of a batch, by id and company; no number, no address."""
    rows = conn.execute(
        text("""
            SELECT i.position, i.lead_id::text AS lead_id, c.denumire AS company,
                   split_part(i.profile, '|', 1) AS stage, i.step, p.medium, p.phone_id, p.skip
            FROM dispatch_items i
            JOIN gold_companies c ON c.id = i.lead_id
            LEFT JOIN dispatch_plans p ON p.batch_id = i.batch_id AND p.position = i.position
            WHERE i.batch_id = :batch ORDER BY i.position LIMIT :limit
        """),
        {"batch": batch_id, "limit": limit},
    ).mappings()
    return [dict(row) for row in rows]


def awaiting_review(conn: Connection, tenant_id: str) -> int:
    """Leads that selection leaves out because a person must look first."""
    return conn.execute(
        text("""
            SELECT count(*) FROM gold_lead_journey
            WHERE tenant_id = :tenant AND requires_human_review
        """),
        {"tenant": tenant_id},
    ).scalar_one()


# ── What must never be in a plan, asked independently of how the plan was made ────────────────


def planned_though_opted_out(conn: Connection, batch_id: int) -> list[UUID]:
    """Planned leads that opted out on any channel."""
    return _leads(
        conn,
        """
            SELECT i.lead_id FROM dispatch_plans i
            JOIN gold_lead_journey j ON j.lead_id = i.lead_id
            WHERE i.batch_id = :batch AND i.medium IS NOT NULL
              AND (j.whatsapp_opted_out OR j.email_opted_out)
        """,
        batch_id,
    )


def planned_without_basis(conn: Connection, batch_id: int) -> list[UUID]:
    """Planned leads whose lawful basis the tenant's policy does not accept for the channel."""
    return _leads(
        conn,
        """
            SELECT i.lead_id FROM dispatch_plans i
            JOIN gold_lead_journey j ON j.lead_id = i.lead_id
            JOIN tenants t ON t.id = j.tenant_id
            WHERE i.batch_id = :batch AND i.medium IS NOT NULL
              AND (j.lawful_basis IS NULL OR NOT coalesce((t.basis_policy ->
                CASE i.medium WHEN 'WHATSAPP' THEN 'WHATSAPP' ELSE 'EMAIL' END)
                ? j.lawful_basis, false))
        """,
        batch_id,
    )


def planned_twice(conn: Connection, batch_id: int) -> list[UUID]:
    """Leads that stand in the plan more than once, or whose step stands in the outbox already."""
    return _leads(
        conn,
        """
            SELECT i.lead_id FROM dispatch_plans i
            WHERE i.batch_id = :batch AND i.medium IS NOT NULL
            GROUP BY i.lead_id HAVING count(*) > 1
            UNION
            SELECT i.lead_id FROM dispatch_plans i
            JOIN gold_lead_journey j ON j.lead_id = i.lead_id AND NOT j.open_message
            JOIN outbox_messages o ON o.lead_id = i.lead_id AND o.sequence_id = i.sequence_id
              AND o.step = i.step AND o.replaced_by IS NULL
              AND o.state IN ('planned', 'deferred', 'sending', 'sent')
            WHERE i.batch_id = :batch AND i.medium IS NOT NULL
        """,
        batch_id,
    )


def planned_over_quota(conn: Connection, batch_id: int, *, tenant_id: str, day: date) -> list[UUID]:
    """The last leads of each phone whose sent, waiting and planned contacts exceed its day."""
    desks = phones.desks(conn, tenant_id, day=day)
    rows = conn.execute(
        text("""
            SELECT lead_id FROM (
              SELECT lead_id, phone_id, row_number() OVER (PARTITION BY phone_id ORDER BY position)
                AS turn
              FROM dispatch_plans i
              WHERE batch_id = :batch AND medium = 'WHATSAPP' AND step = 1
                AND NOT EXISTS (SELECT 1 FROM outbox_messages o WHERE o.lead_id = i.lead_id
                                AND o.sequence_id = i.sequence_id AND o.step = 1
                                AND o.replaced_by IS NULL)
            ) planned
            JOIN unnest(CAST(:phones AS text[]), CAST(:rooms AS int[])) AS d (phone_id, room)
              USING (phone_id)
            WHERE turn > room
        """),
        {
            "batch": batch_id,
            "phones": [desk.phone_id for desk in desks],
            "rooms": [max(0, desk.limit - desk.used) for desk in desks],
        },
    )
    return list(rows.scalars())


def _leads(conn: Connection, query: str, batch_id: int) -> list[UUID]:
    return list(conn.execute(text(query), {"batch": batch_id}).scalars())


def leave_out(conn: Connection, batch_id: int, lead_ids: Collection[UUID], reason: str) -> None:
    """Take these leads out of a plan, for a reason."""
    conn.execute(
        text("""
            UPDATE dispatch_plans SET medium = NULL, phone_id = NULL, skip = :reason
            WHERE batch_id = :batch AND lead_id = ANY(:leads)
        """),
        {"batch": batch_id, "leads": list(lead_ids), "reason": reason},
    )


def has_leads_held(conn: Connection, tenant_id: str, reason: str) -> bool:
    """Whether a lead of this tenant was passed over for this reason and still waits."""
    return conn.execute(
        text("""
            SELECT EXISTS (SELECT 1 FROM gold_lead_journey
                           WHERE tenant_id = :tenant AND hold_reason = :reason
                             AND next_action_at IS NOT NULL AND NOT open_message)
        """),
        {"tenant": tenant_id, "reason": reason},
    ).scalar_one()
