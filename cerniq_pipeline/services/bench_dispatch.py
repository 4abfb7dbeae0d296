"""How fast dispatch plans, measured on a scratch database beside the limit of the machine.

The limit is one plain `INSERT … SELECT` of the same rows into a table of the same shape: what
Postgres itself can do with them when nothing is checked or decided.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import Engine, text

from cerniq_pipeline.domain.leads import Stage
from cerniq_pipeline.services.dispatch import Request, fill_outbox, plan_batch, select_leads
from cerniq_pipeline.store.scratch import scratch_database

SCRATCH = "cerniq_bench"
TENANT = "bench"
NOW = datetime(2026, 11, 18, 10, 0, tzinfo=UTC)


@dataclass(frozen=True)
class Bench:
    """Figures of one benchmark: the median of its rounds, and how far they spread."""

    leads: int
    leads_in_table: int
    rounds: int
    leads_per_second: int
    slowest_leads_per_second: int
    fastest_leads_per_second: int
    limit_rows_per_second: int
    share_of_limit: float
    milliseconds: float


def bench_dispatch(
    database_url: str,
    *,
    leads: int,
    table: int,
    rounds: int,
    progress: Callable[[str], None],
) -> Bench:
    """Plan `leads` leads in one go out of a table of `table`, several times over."""
    with scratch_database(database_url, SCRATCH) as engine:
        progress(f"filling a scratch table with {table:,} leads")
        _fill(engine, table)
        seconds, limit = [], []
        for n in range(rounds):
            progress(f"round {n + 1} of {rounds}")
            _forget_plans(engine)
            limit.append(_plain_insert(engine, leads))
            seconds.append(_plan(engine, leads))
        took = statistics.median(seconds)
        rows = leads / statistics.median(limit)
        return Bench(
            leads=leads,
            leads_in_table=table,
            rounds=rounds,
            leads_per_second=round(leads / took),
            slowest_leads_per_second=round(leads / max(seconds)),
            fastest_leads_per_second=round(leads / min(seconds)),
            limit_rows_per_second=round(rows),
            share_of_limit=round(leads / took / rows, 3),
            milliseconds=round(took * 1000, 1),
        )


def _fill(engine: Engine, table: int) -> None:
    with engine.begin() as conn:
        conn.execute(
            text("""
                INSERT INTO tenants (id, name, opens, closes, working_days, holiday_country)
                VALUES (:t, :t, 0, 1440, '{1,2,3,4,5,6,7}', NULL)
            """),
            {"t": TENANT},
        )
        conn.execute(
            text("""
                WITH template AS (
                  INSERT INTO templates (tenant_id, name, channel, content)
                  VALUES (:t, 'first', 'WHATSAPP', 'Bună ziua!') RETURNING id
                ), sequence AS (
                  INSERT INTO sequences (tenant_id, name) VALUES (:t, 'bench') RETURNING id
                ), chosen AS (
                  INSERT INTO sequence_steps
                    (sequence_id, step, channel, template_id, delay_minutes)
                  SELECT sequence.id, 1, 'WHATSAPP', template.id, 0 FROM template, sequence
                  RETURNING sequence_id
                )
                UPDATE tenants SET default_sequence_id = (SELECT sequence_id FROM chosen)
                WHERE id = :t
            """),
            {"t": TENANT},
        )
        # Quotas far above what is planned: the benchmark is about the work, not about refusing it.
        conn.execute(
            text("""
                INSERT INTO wa_phone_numbers (id, tenant_id, phone_number, timelinesai_account_id,
                                              daily_quota)
                SELECT 'bench-' || n, :t, '+4079' || lpad(n::text, 7, '0'), n::text, 1000000
                FROM generate_series(1, 20) n
            """),
            {"t": TENANT},
        )
        conn.execute(
            text("""
                INSERT INTO gold_companies (tenant_id, denumire, telefon_principal, email_principal,
                                            email_status)
                SELECT :t, 'Firma ' || n, '+4072' || lpad(n::text, 7, '0'),
                       'firma' || n || '@example.test', 'valid'
                FROM generate_series(1, :table) n
            """),
            {"t": TENANT, "table": table},
        )
        conn.execute(
            text("""
                UPDATE gold_lead_journey
                SET next_action_at = CAST(:now AS timestamptz) - random() * interval '30 days',
                    lawful_basis = 'consent', lawful_basis_source = 'bench', lawful_basis_at = :now
            """),
            {"now": NOW},
        )
    _vacuum(engine)


def _forget_plans(engine: Engine) -> None:
    with engine.begin() as conn:
        conn.execute(text("TRUNCATE outbox_messages, dispatch_items, dispatch_plans CASCADE"))
        conn.execute(
            text("""
                UPDATE gold_lead_journey
                SET open_message = false, assigned_phone_id = NULL, assigned_at = NULL,
                    next_action_at = CAST(:now AS timestamptz) - random() * interval '30 days'
                WHERE open_message AND engagement_stage = :cold
            """),
            {"now": NOW, "cold": Stage.COLD},
        )
    _vacuum(engine)


def _vacuum(engine: Engine) -> None:
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as conn:
        conn.execute(text("VACUUM ANALYZE gold_companies, gold_lead_journey"))


def _plain_insert(engine: Engine, leads: int) -> float:
    with engine.begin() as conn:
        conn.execute(text("CREATE TABLE plain (LIKE outbox_messages INCLUDING ALL)"))
    started = time.perf_counter()
    with engine.begin() as conn:
        conn.execute(
            text("""
                INSERT INTO plain (tenant_id, channel, kind, lead_id, phone_id, recipient,
                                   sequence_id, step, template_id, due_at, planned_by)
                SELECT tenant_id, 'WHATSAPP', 'initial', id, 'bench-1', telefon_principal, 1, 1, 1,
                       now(), 'bench'
                FROM gold_companies LIMIT :leads
            """),
            {"leads": leads},
        )
    took = time.perf_counter() - started
    with engine.begin() as conn:
        conn.execute(text("DROP TABLE plain"))
    return took


def _plan(engine: Engine, leads: int) -> float:
    started = time.perf_counter()
    request = Request(batch_size=leads)
    batch_id, _ = select_leads(engine.begin, TENANT, request, by="bench", secret=b"bench", now=NOW)
    plan_batch(engine.begin, batch_id, now=NOW)
    written, _ = fill_outbox(engine.begin, batch_id, by="bench", now=NOW)
    took = time.perf_counter() - started
    if written != leads:
        raise RuntimeError(f"planned {written} of {leads} leads")
    return took
