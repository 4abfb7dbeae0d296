"""A preview is what is sent afterwards, word for word, and changes nothing itself."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

import pytest
from redis import Redis
from sqlalchemy import Engine

from cerniq_pipeline.domain.holds import Installation
from cerniq_pipeline.domain.outbox import State
from cerniq_pipeline.errors import NotFound
from cerniq_pipeline.services.preview import Preview, preview
from cerniq_pipeline_tests.builders import (
    NOON,
    SECRET,
    a_world,
    an_office,
    dispatch,
    rows,
    run_sql,
    some_leads,
)
from cerniq_pipeline_tests.sandbox.running import RunningSandbox

HERE = Installation(live=False, providers={"timelinesai"})
VARIED = "{Bună ziua|Salut|Bine v-am găsit}, {{companie}}! {Unu|Doi|Trei|Patru|Cinci|Șase}."
AGAIN = "{Revin|Scriu din nou|Mai întreb o dată}, {{companie}}: {a|b|c|d|e|f|g|h}."
DAY = timedelta(days=1)


def look(database: Engine, lead: UUID, *, step: int | None = None, now: datetime = NOON) -> Preview:
    return preview(
        database.begin,
        str(lead),
        step=step,
        tenant_id=None,
        secret=SECRET,
        here=HERE,
        now=now,
    )


def everything(database: Engine) -> list[object]:
    """Every row of every table that a preview could change."""
    tables = (
        "gold_lead_journey",
        "outbox_messages",
        "dispatch_items",
        "dispatch_plans",
        "alerts",
        "quota_ledger",
        "wa_phone_numbers",
    )
    return [rows(database, f"SELECT * FROM {table} ORDER BY 1") for table in tables]


def test_what_is_shown_is_what_is_sent_before_and_after_planning(
    database: Engine, redis: Redis, sandbox: RunningSandbox
):
    office = an_office(database, redis, sandbox, leads=4, phones=2, steps=(VARIED, AGAIN))
    leads = [
        UUID(str(row["id"])) for row in rows(database, "SELECT id FROM gold_companies ORDER BY id")
    ]
    planned = {lead: look(database, lead) for lead in leads}
    later = {lead: look(database, lead, step=2) for lead in leads}
    run_sql(database, "DELETE FROM outbox_messages")
    run_sql(
        database, "UPDATE gold_lead_journey SET open_message = false, next_action_at = :n", n=NOON
    )
    before = everything(database)
    unplanned = {lead: look(database, lead) for lead in leads}
    assert everything(database) == before
    assert {lead: seen.text for lead, seen in unplanned.items()} == {
        lead: seen.text for lead, seen in planned.items()
    }
    assert len({seen.text for seen in planned.values()}) > 1
    assert dispatch(database) == (4, 0)
    mine = [lead for lead in leads if look(database, lead).phone_id == "acme-01"]
    for _ in mine:
        assert office.send() is State.SENT
        office.wait(timedelta(minutes=5))
    texts = {line["recipient"]: line["text"] for line in sandbox.accepted()}
    assert texts == {planned[lead].to: planned[lead].text for lead in mine}
    assert all(planned[lead].sender == "+40790000000" for lead in mine)
    for lead in mine:
        gone = look(database, lead, step=1)
        assert (gone.rule, gone.text) == ("sent", planned[lead].text)
        follows = look(database, lead, now=office.clock.now())
        assert (follows.step, follows.text) == (2, later[lead].text)
        assert follows.goes_at is not None
        assert follows.goes_at > NOON + DAY - timedelta(hours=1)


def test_a_step_to_come_is_counted_from_the_one_before(database: Engine):
    with database.begin() as conn:
        a_world(conn, steps=(VARIED, AGAIN, AGAIN))
        (lead,) = some_leads(conn)
    first, third = look(database, lead), look(database, lead, step=3)
    assert (first.rule, first.kind, third.rule, third.kind) == (
        "next_dispatch",
        "initial",
        "not_due",
        "followup",
    )
    assert first.goes_at is not None
    assert third.goes_at is not None
    assert third.goes_at - first.goes_at == 2 * DAY  # Wednesday to Friday
    with pytest.raises(NotFound, match="no step 4; it has 3"):
        look(database, lead, step=4)


@pytest.mark.parametrize(
    ("change", "rule", "goes"),
    [
        ("UPDATE gold_lead_journey SET whatsapp_opted_out = true", "opted_out", False),
        ("UPDATE gold_lead_journey SET lawful_basis = NULL", "no_lawful_basis", False),
        ("UPDATE wa_phone_numbers SET status = 'BANNED'", "phone_not_active", False),
        ("UPDATE wa_phone_numbers SET daily_quota = 0", "quota_exceeded", True),
        ("UPDATE sequences SET status = 'paused'", "sequence_paused", False),
        ("UPDATE templates SET content = 'Bună, {Unu|Doi'", "template_broken", False),
        ("UPDATE tenants SET default_sequence_id = NULL", "no_sequence", False),
        ("INSERT INTO switches VALUES ('phone', 'acme-01', 'x', 'me', now())", "phone_not_active",
         False),
        ("UPDATE templates SET content = 'Bună, {{nimic}}!'", "failed", False),
    ],
)  # fmt: skip
def test_why_it_does_not_go_is_said_in_the_words_of_the_rules(
    database: Engine, change: str, rule: str, goes: bool
):
    with database.begin() as conn:
        a_world(conn)
        (lead,) = some_leads(conn)
    run_sql(database, change)
    seen = look(database, lead)
    assert seen.rule == rule
    assert (seen.goes_at is not None) is goes


def test_a_lead_at_the_end_of_its_sequence_gets_nothing_more(database: Engine):
    with database.begin() as conn:
        a_world(conn)
        (lead,) = some_leads(conn)
    run_sql(database, "UPDATE gold_lead_journey SET sequence_step = 1")
    assert look(database, lead).rule == "sequence_finished"
    with pytest.raises(NotFound, match="text is not kept"):
        look(database, lead, step=1)
