"""The demo tenant: 2,000 Romanian companies, 20 phones and a three-step sequence."""

from __future__ import annotations

import json
from datetime import datetime, timedelta

from sqlalchemy import Engine, text

from cerniq_pipeline import demo_content
from cerniq_pipeline.errors import NotFound, SetupError
from cerniq_pipeline.services.crossing import insist
from cerniq_pipeline.store import demo
from cerniq_pipeline.store.database import Begin

TENANT_ID = "demo"
COMPANIES = 2000
FIRST_FOLLOW_UP = timedelta(minutes=10)
"""Shorter than any real sequence would have it, so that a follow-up is seen within a sitting."""

# Out of every hundred companies: who may be contacted, and a few of every kind who may not.
_BASES = ["existing_customer"] * 70 + ["consent"] * 20 + ["legitimate_interest"] * 7 + [None] * 3


def seed_demo(engine: Engine) -> bool:
    """Create the demo tenant unless it is there or was removed; False when nothing was to do.

    Open around the clock, every day: a demo must also work at night. Everything else follows the
    defaults of a real tenant, so most of the rules can be seen at work.
    """
    with engine.begin() as conn:
        if demo.was_removed(conn):
            return False
        created = conn.execute(
            text("""
                INSERT INTO tenants (id, name, opens, closes, working_days, holiday_country,
                                     sandbox_only)
                VALUES (:id, :name, 0, 1440, '{1,2,3,4,5,6,7}', NULL, true)
                ON CONFLICT (id) DO NOTHING
            """),
            {"id": TENANT_ID, "name": demo_content.TENANT_NAME},
        ).rowcount
        if not created:
            return False
        _seed_phones(conn)
        _seed_sequence(conn)
        _seed_companies(conn)
        return True


def add_demo(engine: Engine) -> bool:
    """Bring the demo tenant back after it was removed; False when it is there."""
    with engine.begin() as conn:
        demo.note_wanted(conn)
    return seed_demo(engine)


def remove_demo(begin: Begin, *, by: str, now: datetime) -> dict[str, int]:
    """Delete the demo tenant and all that is its own; returns how many rows, by table.

    Refuses when anything hangs on it that nobody invented, or a message is just being sent. No
    start brings it back: that was decided here.
    """
    cuis = [company["cui"] or "" for company in map(demo_content.company, range(COMPANIES))]

    def remove() -> dict[str, int]:
        with begin() as conn:
            if not demo.lock(conn, TENANT_ID):
                raise NotFound("there is no demo")
            found = demo.not_its_own(conn, TENANT_ID, phones=demo_content.PHONES, cuis=cuis)
            if found:
                said = ", ".join(f"{name}: {count}" for name, count in found.items())
                raise SetupError(
                    f"the demo stays, nothing was changed; it has {said}. Leads and phones of your "
                    "own would go with it; what is being sent is over within a minute after "
                    f"`cerniq pause tenant:{TENANT_ID}`"
                )
            gone = demo.remove(conn, TENANT_ID)
            demo.note_removed(conn, by=by, now=now)
        return gone

    return insist(remove, worker="demo")


def _seed_phones(conn) -> None:
    conn.execute(
        text("""
            INSERT INTO wa_phone_numbers
              (id, tenant_id, phone_number, timelinesai_account_id, warm_up_from)
            VALUES (:id, :tenant, :number, :account,
                    CASE WHEN CAST(:age AS int) IS NULL THEN NULL ELSE current_date - :age END)
        """),
        [
            {
                "id": f"{TENANT_ID}-{n:02d}",
                "tenant": TENANT_ID,
                "number": number,
                "account": f"{number.lstrip('+')}@s.whatsapp.net",
                # The last four are young numbers on their warm-up ramp.
                "age": 3 * (n - 17) if n > 16 else None,
            }
            for n, number in enumerate(demo_content.PHONES, start=1)
        ],
    )


def _seed_sequence(conn) -> None:
    sequence_id = conn.execute(
        text("INSERT INTO sequences (tenant_id, name) VALUES (:tenant, :name) RETURNING id"),
        {"tenant": TENANT_ID, "name": "Service utilaje agricole"},
    ).scalar_one()
    for step in demo_content.STEPS:
        delay = FIRST_FOLLOW_UP if step.number == 2 else step.after
        conn.execute(
            text("""
                WITH template AS (
                  INSERT INTO templates (tenant_id, name, channel, content)
                  VALUES (:tenant, :name, 'WHATSAPP', :content) RETURNING id
                )
                INSERT INTO sequence_steps (sequence_id, step, channel, template_id, delay_minutes)
                SELECT :sequence, :step, 'WHATSAPP', id, :delay FROM template
            """),
            {
                "tenant": TENANT_ID,
                "name": step.name,
                "content": step.text,
                "sequence": sequence_id,
                "step": step.number,
                "delay": delay // timedelta(minutes=1),
            },
        )
    conn.execute(
        text("UPDATE tenants SET default_sequence_id = :sequence WHERE id = :tenant"),
        {"sequence": sequence_id, "tenant": TENANT_ID},
    )


def _seed_companies(conn) -> None:
    companies = [demo_content.company(n) for n in range(COMPANIES)]
    conn.execute(
        text("""
            INSERT INTO gold_companies
              (tenant_id, denumire, cui, telefon_principal, hlr_reachable, email_principal,
               email_status, contact_principal_nume, judet, localitate)
            SELECT :tenant, denumire, cui, telefon_principal, n % 50 <> 7, email_principal, 'valid',
                   contact_principal_nume, judet, localitate
            FROM ROWS FROM (json_to_recordset(CAST(:companies AS json)) AS
              (denumire text, cui text, telefon_principal text, email_principal text,
               contact_principal_nume text, judet text, localitate text)) WITH ORDINALITY
              AS c (denumire, cui, telefon_principal, email_principal, contact_principal_nume,
                    judet, localitate, n)
        """),
        {"tenant": TENANT_ID, "companies": json.dumps(companies)},
    )
    conn.execute(
        text("""
            UPDATE gold_lead_journey j
            SET lawful_basis = b.basis, priority = b.priority, email_opted_out = b.stopped,
                lawful_basis_source = CASE WHEN b.basis IS NOT NULL THEN 'demo data' END,
                lawful_basis_at = CASE WHEN b.basis IS NOT NULL THEN now() END
            FROM (
              SELECT c.id, (CAST(:bases AS text[]))[1 + mod(n * 37, 100)] AS basis,
                     CASE mod(n, 10) WHEN 0 THEN 'HIGH' WHEN 9 THEN 'LOW' ELSE 'NORMAL' END
                       AS priority, mod(n, 100) = 42 AS stopped
              FROM (SELECT id, row_number() OVER (ORDER BY cui) AS n FROM gold_companies
                    WHERE tenant_id = :tenant) c
            ) b WHERE j.lead_id = b.id
        """),
        {"tenant": TENANT_ID, "bases": _BASES},
    )
