"""Files on their way in: rows wait in `import_rows`, and one transaction turns them into leads.

Who is the same lead. Two companies with one CUI are one; where at least one side has no CUI, the
same telephone number or the same address makes them one. Two different CUIs stay two leads, even
when they share a number. Leads that are already in the table are never joined to each other.

What a merge may change. A value that a lead has is kept, an empty one is filled, and the first row
of a file wins over later ones. A lawful basis is given only to a lead that has none. Stage,
opt-outs, sequence, priority and history of a known lead are never touched; only a lead that was
passed over, and now gained a contact or a basis, is looked at again.

Who asked to stop stays stopped. A lead that a file brings, or to which it adds a number, an address
or a CUI, is compared with the suppressions before anybody can see it, and comes in opted out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, delete, func, select, text, update
from sqlalchemy.dialects.postgresql import insert as upsert

from cerniq_pipeline.domain.contacts import Contact
from cerniq_pipeline.store import leads, outbox, suppressions
from cerniq_pipeline.store.schema import import_rows, imports

AT_ONCE = 5_000
"""Leads that are compared with the suppressions, or marked, at a time."""


@dataclass(frozen=True)
class Progress:
    """How far the import of one file has come."""

    import_id: int
    done: bool
    rows_read: int
    rows_bad: int


@dataclass(frozen=True)
class Merged:
    """What one merge did: leads that are new, rows that joined a lead, leads that were stopped."""

    leads_new: int
    rows_merged: int
    leads_suppressed: int
    """Leads of this file, new or not, that were opted out because somebody asked to stop."""
    leads_without_basis: int
    """Leads of this file, new or not, that have no lawful basis after the merge."""


def open_import(
    conn: Connection,
    *,
    tenant_id: str,
    file_key: str,
    file_name: str,
    options: Mapping[str, Any],
    now: datetime,
) -> Progress:
    """Begin this import, or find it where it stopped.

    The same file with other options is begun again from its first row.
    """
    asked = dict(options)
    key = {"tenant_id": tenant_id, "file_sha256": file_key}
    fresh = {"file_name": file_name, "state": "reading", "options": asked, "updated_at": now}
    conn.execute(upsert(imports).values(**key, **fresh, created_at=now).on_conflict_do_nothing())
    mine = (imports.c.tenant_id == tenant_id) & (imports.c.file_sha256 == file_key)
    found = conn.execute(select(imports).where(mine).with_for_update()).one()
    if found.options != asked:
        conn.execute(delete(import_rows).where(import_rows.c.import_id == found.id))
        counters = dict.fromkeys(("rows_read", "rows_bad", "leads_new", "leads_merged"), 0)
        again = update(imports).where(imports.c.id == found.id).values(**fresh, **counters)
        found = conn.execute(again.returning(*imports.c)).one()
    return Progress(
        import_id=found.id,
        done=found.state == "done",
        rows_read=found.rows_read,
        rows_bad=found.rows_bad,
    )


def advance(
    conn: Connection, import_id: int, *, before: int, read: int, bad: int, now: datetime
) -> bool:
    """Move the import from `before` rows to `read`; False when another run has moved it."""
    step = (
        update(imports)
        .where(
            imports.c.id == import_id, imports.c.rows_read == before, imports.c.state == "reading"
        )
        .values(rows_read=read, rows_bad=bad, updated_at=now)
    )
    return conn.execute(step).rowcount == 1


def add_rows(conn: Connection, import_id: int, rows: Sequence[tuple[int, Contact]]) -> None:
    """Put good rows, each with its line, where the merge will find them."""
    driver: Any = conn.connection.driver_connection
    columns = ", ".join(("import_id", "line", *Contact._fields))
    with (
        driver.cursor() as cursor,
        cursor.copy(f"COPY import_rows ({columns}) FROM STDIN") as copy,
    ):
        for line, contact in rows:
            *plain, custom = contact
            copy.write_row((import_id, line, *plain, json.dumps(custom, ensure_ascii=False)))


def discard(conn: Connection, import_id: int, *, rows_read: int) -> None:
    """Forget an import and its waiting rows, unless another run has moved it on."""
    mine = (imports.c.rows_read == rows_read) & (imports.c.state == "reading")
    conn.execute(delete(imports).where(imports.c.id == import_id, mine))


def merge(
    conn: Connection, import_id: int, *, tenant_id: str, secret: bytes, now: datetime
) -> Merged | None:
    """Turn the waiting rows into leads and finish the import; None when another run did.

    All statements are set-based, and the caller's transaction makes them all or nothing. `secret`
    is the key of the suppression hashes; it never goes to the database.
    """
    # Waiting for another import to end is normal, however long a lock may take elsewhere.
    settings = {"work_mem": "64MB", "lock_timeout": "10min"}
    conn.execute(select(*(func.set_config(name, to, True) for name, to in settings.items())))
    # Two files of one tenant may hold the same company: one merge sees what the other inserted.
    lock = func.pg_advisory_xact_lock(func.hashtextextended(f"import {tenant_id}", 0))
    conn.execute(select(lock))
    open_still = select(imports.c.id).where(imports.c.id == import_id, imports.c.state == "reading")
    if conn.execute(open_still.with_for_update()).one_or_none() is None:
        return None
    values = {"import_id": import_id, "tenant_id": tenant_id, "now": now}
    for statement in _ARRIVALS:
        conn.execute(text(statement), values)
    _link_rows_without_cui(conn)
    for statement in _WHO_IS_WHO + _WHAT_IS_NEW + _WRITE:
        conn.execute(text(statement), values)
    counts = conn.execute(text(_COUNT)).one()
    merged = Merged(
        leads_new=counts.new,
        rows_merged=counts.rows - counts.new,
        leads_without_basis=conn.execute(text(_WITHOUT_BASIS)).scalar_one(),
        leads_suppressed=_opt_out_suppressed(conn, tenant_id, secret=secret, now=now),
    )
    conn.execute(delete(import_rows).where(import_rows.c.import_id == import_id))
    conn.execute(
        update(imports)
        .where(imports.c.id == import_id)
        .values(
            state="done",
            leads_new=merged.leads_new,
            leads_merged=merged.rows_merged,
            updated_at=now,
        )
    )
    return merged


def _link_rows_without_cui(conn: Connection) -> None:
    """Give rows that hang together by numbers and addresses one entity: their first line.

    Each round hooks every group onto a smaller neighbour and then flattens the chains, so even a
    file that is one long chain takes a number of rounds that grows with its logarithm.
    """
    while conn.execute(text(_HOOK)).rowcount:
        while conn.execute(text(_FLATTEN)).rowcount:
            pass
    conn.execute(
        text("UPDATE arriving SET entity = l.root FROM linked l WHERE arriving.line = l.line")
    )


def _opt_out_suppressed(conn: Connection, tenant_id: str, *, secret: bytes, now: datetime) -> int:
    """Opt out every lead of this merge whose person or company asked to stop; returns how many."""
    asked = conn.execute(
        text("SELECT key_hmac FROM suppressions WHERE tenant_id = :tenant"), {"tenant": tenant_id}
    )
    stopped = frozenset(map(bytes, asked.scalars()))
    if not stopped:
        return 0
    arrived = conn.execute(text(_NOT_OPTED_OUT).execution_options(yield_per=AT_ONCE))
    suppressed = sorted(
        row.id
        for row in arrived
        if not stopped.isdisjoint(
            suppressions.keys_of(
                secret, addresses=(row.telefon_principal, row.email_principal), cui=row.cui
            )
        )
    )
    for start in range(0, len(suppressed), AT_ONCE):
        some = suppressed[start : start + AT_ONCE]
        leads.lock(conn, tenant_id, some)
        outbox.cancel_pending(conn, some, why="asked to stop before", who="import", now=now)
        leads.opt_out(conn, some, at=now, now=now)
    return len(suppressed)


# An entity is a set of rows that are one lead; its number is its first line.
_ARRIVALS = (
    """
    CREATE TEMP TABLE arriving ON COMMIT DROP AS
    SELECT r.*, CASE WHEN cui IS NULL THEN line ELSE min(line) OVER (PARTITION BY cui) END AS entity
    FROM import_rows r WHERE import_id = :import_id
    """,
    "CREATE INDEX ON arriving (line)",
    "ANALYZE arriving",
    """
    CREATE TEMP TABLE linked ON COMMIT DROP AS
    SELECT line, phone, email, line AS root
    FROM (
      SELECT line, telefon_principal AS phone, email_principal AS email,
             count(telefon_principal) OVER (PARTITION BY telefon_principal) AS same_phone,
             count(email_principal) OVER (PARTITION BY email_principal) AS same_email
      FROM arriving WHERE cui IS NULL
    ) shared
    WHERE same_phone > 1 OR same_email > 1
    """,
    "CREATE INDEX ON linked (line)",
    "ANALYZE linked",
)

_HOOK = """
    UPDATE linked SET root = hook.onto
    FROM (
      SELECT root AS line, min(least) AS onto
      FROM (
        SELECT root, min(root) OVER (PARTITION BY phone) AS least
        FROM linked WHERE phone IS NOT NULL
        UNION ALL
        SELECT root, min(root) OVER (PARTITION BY email)
        FROM linked WHERE email IS NOT NULL
      ) neighbours
      WHERE least < root GROUP BY root
    ) hook
    WHERE linked.line = hook.line AND hook.onto < linked.root
    """

_FLATTEN = """
    UPDATE linked SET root = above.root FROM linked above
    WHERE above.line = linked.root AND above.root < linked.root
    """

# Leads in the table that share a number or an address with the file, the oldest for each key.
_KNOWN = """
    CREATE TEMP TABLE {name} ON COMMIT DROP AS
    SELECT DISTINCT ON (key) key, id FROM (
      SELECT {key} AS key, id, created_at FROM gold_companies
      WHERE tenant_id = :tenant_id AND {where}
        AND {key} IN (SELECT {column} FROM arriving)
    ) candidates
    ORDER BY key, created_at, id
    """

_PHONE = {"key": "telefon_principal", "column": "telefon_principal"}
_EMAIL = {"key": "lower(email_principal)", "column": "email_principal"}

# A company with a CUI takes over a lead without one; the first company that asks gets it.
_ADOPT = """
    UPDATE entities SET lead_id = taken.id
    FROM (
      SELECT DISTINCT ON (entity) entity, id
      FROM (
        SELECT DISTINCT ON (known.id) known.id, e.entity
        FROM entities e
        JOIN arriving a ON a.entity = e.entity
        JOIN {known} known ON known.key = a.{column}
        WHERE e.cui IS NOT NULL AND e.lead_id IS NULL
          AND NOT EXISTS (SELECT FROM entities other WHERE other.lead_id = known.id)
        ORDER BY known.id, e.entity
      ) first_asker
      ORDER BY entity, id
    ) taken
    WHERE entities.entity = taken.entity
    """

_WITHOUT_BASIS = """
    SELECT count(*) FROM incoming i JOIN gold_lead_journey j ON j.lead_id = i.lead_id
    WHERE j.lawful_basis IS NULL
    """

_WHO_IS_WHO = (
    """
    CREATE TEMP TABLE entities ON COMMIT DROP AS
    SELECT entity, max(cui) AS cui, NULL::uuid AS lead_id, NULL::int AS host, false AS is_new
    FROM arriving GROUP BY entity
    """,
    "CREATE INDEX ON entities (entity)",
    "ANALYZE entities",
    """
    UPDATE entities SET lead_id = g.id FROM gold_companies g
    WHERE g.tenant_id = :tenant_id AND g.cui = entities.cui
    """,
    _KNOWN.format(name="unnumbered_by_phone", where="cui IS NULL", **_PHONE),
    _KNOWN.format(name="unnumbered_by_email", where="cui IS NULL", **_EMAIL),
    _KNOWN.format(name="known_by_phone", where="true", **_PHONE),
    _KNOWN.format(name="known_by_email", where="true", **_EMAIL),
    _ADOPT.format(known="unnumbered_by_phone", column="telefon_principal"),
    _ADOPT.format(known="unnumbered_by_email", column="email_principal"),
    # Rows without a CUI join a known lead, by number before address …
    """
    UPDATE entities SET lead_id = found.id
    FROM (
      SELECT DISTINCT ON (a.entity) a.entity, coalesce(p.id, m.id) AS id
      FROM arriving a
      LEFT JOIN known_by_phone p ON p.key = a.telefon_principal
      LEFT JOIN known_by_email m ON m.key = a.email_principal
      WHERE a.cui IS NULL AND coalesce(p.id, m.id) IS NOT NULL
      ORDER BY a.entity, p.id IS NULL, a.line
    ) found
    WHERE entities.entity = found.entity
    """,
    # … else a company with a CUI from the same file …
    """
    UPDATE entities SET host = found.host
    FROM (
      SELECT DISTINCT ON (a.entity) a.entity, coalesce(p.host, m.host) AS host
      FROM arriving a
      LEFT JOIN (
        SELECT telefon_principal AS key, min(entity) AS host
        FROM arriving WHERE cui IS NOT NULL GROUP BY 1
      ) p ON p.key = a.telefon_principal
      LEFT JOIN (
        SELECT email_principal AS key, min(entity) AS host
        FROM arriving WHERE cui IS NOT NULL GROUP BY 1
      ) m ON m.key = a.email_principal
      WHERE a.cui IS NULL AND coalesce(p.host, m.host) IS NOT NULL
      ORDER BY a.entity, p.host IS NULL, a.line
    ) found
    WHERE entities.entity = found.entity AND entities.lead_id IS NULL
    """,
    # … else they are a new lead.
    """
    UPDATE entities SET lead_id = gen_random_uuid(), is_new = true
    WHERE lead_id IS NULL AND host IS NULL
    """,
    """
    UPDATE entities SET lead_id = h.lead_id, is_new = h.is_new FROM entities h
    WHERE entities.host = h.entity
    """,
)

# The first row of a file that has a value wins.
_WHAT_IS_NEW = (
    """
    CREATE TEMP TABLE incoming ON COMMIT DROP AS
    SELECT
      e.lead_id, bool_or(e.is_new) AS is_new, count(*) AS rows, false AS reachable_now,
      (array_agg(denumire ORDER BY line))[1] AS denumire,
      max(a.cui) AS cui,
      (array_agg(telefon_principal ORDER BY line) FILTER (WHERE telefon_principal IS NOT NULL))[1]
        AS telefon_principal,
      (array_agg(email_principal ORDER BY line) FILTER (WHERE email_principal IS NOT NULL))[1]
        AS email_principal,
      (array_agg(contact_principal_nume ORDER BY line)
        FILTER (WHERE contact_principal_nume IS NOT NULL))[1] AS contact_principal_nume,
      (array_agg(judet ORDER BY line) FILTER (WHERE judet IS NOT NULL))[1] AS judet,
      (array_agg(localitate ORDER BY line) FILTER (WHERE localitate IS NOT NULL))[1] AS localitate,
      (array_agg(priority ORDER BY line) FILTER (WHERE priority IS NOT NULL))[1] AS priority,
      (array_agg(custom ORDER BY line))[1] AS custom,
      min(line) FILTER (WHERE lawful_basis IS NOT NULL) AS basis_line
    FROM arriving a JOIN entities e ON e.entity = a.entity
    GROUP BY e.lead_id
    """,
    "CREATE INDEX ON incoming (lead_id)",
    "ANALYZE incoming",
    """
    UPDATE incoming SET custom = together.custom
    FROM (
      SELECT e.lead_id, jsonb_object_agg(cell.key, cell.value ORDER BY a.line DESC) AS custom
      FROM incoming i
      JOIN entities e ON e.lead_id = i.lead_id
      JOIN arriving a ON a.entity = e.entity
      CROSS JOIN LATERAL jsonb_each(a.custom) cell
      WHERE i.rows > 1 GROUP BY e.lead_id
    ) together
    WHERE incoming.lead_id = together.lead_id
    """,
    """
    UPDATE incoming SET reachable_now = true FROM gold_companies g
    WHERE g.id = incoming.lead_id AND (
      coalesce(g.telefon_principal, '') = '' AND incoming.telefon_principal IS NOT NULL
      OR coalesce(g.email_principal, '') = '' AND incoming.email_principal IS NOT NULL)
    """,
)

_WRITE = (
    # The trigger on companies would enrol the new leads anyway; enrolling them in the same
    # statement, with their basis and priority, saves writing every journey twice.
    """
    WITH companies AS (
      INSERT INTO gold_companies
        (id, tenant_id, denumire, cui, telefon_principal, email_principal, contact_principal_nume,
         judet, localitate, custom, created_at, updated_at)
      SELECT lead_id, :tenant_id, denumire, cui, telefon_principal, email_principal,
             contact_principal_nume, judet, localitate, custom, :now, :now
      FROM incoming WHERE is_new
    )
    INSERT INTO gold_lead_journey
      (tenant_id, lead_id, priority, lawful_basis, lawful_basis_source, lawful_basis_at,
       next_action_at, created_at, updated_at)
    SELECT :tenant_id, i.lead_id, coalesce(i.priority, 'NORMAL'), a.lawful_basis,
           a.lawful_basis_source, a.lawful_basis_at, :now, :now, :now
    FROM incoming i LEFT JOIN arriving a ON a.line = i.basis_line
    WHERE i.is_new
    """,
    """
    UPDATE gold_companies g
    SET cui = f.cui, telefon_principal = f.telefon_principal, email_principal = f.email_principal,
        contact_principal_nume = f.contact_principal_nume, judet = f.judet,
        localitate = f.localitate, custom = f.custom, updated_at = :now
    FROM (
      SELECT k.id, coalesce(nullif(k.cui, ''), i.cui) AS cui,
             coalesce(nullif(k.telefon_principal, ''), i.telefon_principal) AS telefon_principal,
             coalesce(nullif(k.email_principal, ''), i.email_principal) AS email_principal,
             coalesce(nullif(k.contact_principal_nume, ''), i.contact_principal_nume)
               AS contact_principal_nume,
             coalesce(nullif(k.judet, ''), i.judet) AS judet,
             coalesce(nullif(k.localitate, ''), i.localitate) AS localitate,
             i.custom || k.custom AS custom
      FROM incoming i JOIN gold_companies k ON k.id = i.lead_id
      WHERE NOT i.is_new
      ORDER BY k.id FOR UPDATE OF k
    ) f
    WHERE g.id = f.id
      AND (g.cui, g.telefon_principal, g.email_principal, g.contact_principal_nume, g.judet,
           g.localitate, g.custom)
        IS DISTINCT FROM (f.cui, f.telefon_principal, f.email_principal, f.contact_principal_nume,
                          f.judet, f.localitate, f.custom)
    """,
    # Last, because a shift that is about to send waits for these rows.
    """
    UPDATE gold_lead_journey j
    SET lawful_basis = coalesce(j.lawful_basis, a.lawful_basis),
        lawful_basis_source = CASE WHEN j.lawful_basis IS NULL THEN a.lawful_basis_source
                                   ELSE j.lawful_basis_source END,
        lawful_basis_at = CASE WHEN j.lawful_basis IS NULL THEN a.lawful_basis_at
                               ELSE j.lawful_basis_at END,
        next_action_at = CASE WHEN j.hold_reason IS NULL OR j.whatsapp_opted_out
                                OR j.email_opted_out OR j.in_conversation
                              THEN j.next_action_at ELSE :now END,
        updated_at = :now
    FROM incoming i LEFT JOIN arriving a ON a.line = i.basis_line
    WHERE j.lead_id = i.lead_id AND NOT i.is_new
      AND (j.lawful_basis IS NULL AND a.lawful_basis IS NOT NULL
           OR i.reachable_now AND j.hold_reason IS NOT NULL)
    """,
)

_COUNT = """
    SELECT coalesce(sum(rows), 0)::int AS rows, count(*) FILTER (WHERE is_new) AS new FROM incoming
    """

_NOT_OPTED_OUT = """
    SELECT c.id, c.telefon_principal, c.email_principal, c.cui
    FROM incoming i JOIN gold_companies c ON c.id = i.lead_id
    JOIN gold_lead_journey j ON j.lead_id = i.lead_id
    WHERE NOT (j.whatsapp_opted_out AND j.email_opted_out)
    """
