"""Failover on the real servers: who leaves a lost phone, where to, and who never does."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, cast
from uuid import UUID

import pytest
from redis import Redis
from sqlalchemy import Engine, text

from cerniq_pipeline.domain.outbox import OutboxMessage, State
from cerniq_pipeline.services import claiming, recording, sending
from cerniq_pipeline.services.dispatch import Request
from cerniq_pipeline.services.failover import Moved, fail_over, phones_to_fail_over
from cerniq_pipeline.services.leasing import acquire, this_process
from cerniq_pipeline.services.opt_out import opt_out
from cerniq_pipeline.services.reconcile import settle_unconfirmed
from cerniq_pipeline.store.database import Begin
from cerniq_pipeline.store.outbox import plan_file
from cerniq_pipeline_tests.builders import (
    FIRST,
    NOON,
    SECOND,
    SECRET,
    THIRD,
    Office,
    a_phone,
    a_world,
    an_office,
    beginning,
    dispatch,
    rows,
    run_sql,
    some_leads,
    the_row,
    wait_until_somebody_waits_for_a_lock,
)
from cerniq_pipeline_tests.sandbox.running import RunningSandbox

MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)
OTHER = "+40790000001"
"""The number of acme-02, the phone that comes later and has room."""

TOGETHER = 30.0


def one_phone(database: Engine, *, leads: int = 1, **tenant: Any) -> list[UUID]:
    """Leads that all wait on acme-01, and then a second phone beside it."""
    quota = tenant.pop("other_quota", 200)
    company = tenant.pop("company", {})
    with database.begin() as conn:
        a_world(conn, **tenant)
        ids = some_leads(conn, count=leads, **company)
    assert dispatch(database, request=Request(batch_size=leads)) == (leads, 0)
    with database.begin() as conn:
        a_phone(conn, "acme", "acme-02", number=OTHER, quota=quota)
    return ids


def two_offices(
    database: Engine, redis: Redis, sandbox: RunningSandbox, **world: Any
) -> tuple[Office, Office]:
    """The phone at which all leads wait, and another one, both at work."""
    first = an_office(database, redis, sandbox, **world)
    with database.begin() as conn:
        a_phone(conn, "acme", "acme-02", number=OTHER)
    lease = acquire(database.begin, "acme-02", this_process("other"), now=first.clock.now())
    assert lease is not None
    return first, replace(first, lease=lease)


def lose(database: Engine, phone_id: str = "acme-01") -> None:
    run_sql(database, "UPDATE wa_phone_numbers SET status = 'BANNED' WHERE id = :id", id=phone_id)


def touch(database: Engine) -> None:
    """Let every lead know the phone it has, as after a message that went out long ago."""
    run_sql(database, "UPDATE gold_lead_journey SET chat_id = 'old'")


def move(database: Engine, *, now: datetime = NOON, phone_id: str = "acme-01") -> Moved:
    return fail_over(database.begin, phone_id, now=now, who="test")


def outbox(database: Engine) -> list[dict[str, object]]:
    return rows(database, "SELECT * FROM outbox_messages ORDER BY id")


def where(database: Engine) -> dict[tuple[object, ...], int]:
    """Messages by phone, kind and state."""
    return Counter((row["phone_id"], row["kind"], row["state"]) for row in outbox(database))


def also_waiting(database: Engine, *, kind: str = "followup", n: int = 1) -> None:
    """One more message for every lead, outside its sequence, that waits on acme-01."""
    run_sql(
        database,
        """
        INSERT INTO outbox_messages (tenant_id, channel, kind, lead_id, phone_id, recipient, due_at,
                                     planned_by, content)
        SELECT 'acme', 'WHATSAPP', :kind, lead_id, 'acme-01', telefon_principal, :due, 'by hand',
               'Mesaj ' || :n
        FROM gold_lead_journey j JOIN gold_companies c ON c.id = j.lead_id
        """,
        kind=kind,
        due=NOON + n * MINUTE,
        n=str(n),
    )


# ── Leads that the phone never wrote to ───────────────────────────────────────────────────────


def test_a_phone_banned_in_the_middle_of_its_work_leaves_the_rest_to_another(
    database: Engine, redis: Redis, sandbox: RunningSandbox
):
    lost, other = two_offices(database, redis, sandbox, leads=5)
    assert lost.send() is State.SENT
    sandbox.fault("banned", times=1)
    assert lost.send_after(5 * MINUTE) is State.DEFERRED
    now = lost.clock.now()
    assert phones_to_fail_over(database.begin, now=now) == ["acme-01"]

    assert move(database, now=now) == Moved("acme-01", given_new_phone=4)

    assert lost.held().rule == "phone_not_active"
    other.wait(timedelta())
    assert [other.send_after(5 * MINUTE) for _ in range(4)] == [State.SENT] * 4
    sent = sandbox.accepted()
    assert len({line["recipient"] for line in sent}) == len(sent) == 5
    assert Counter(line["sender"] for line in sent) == {"+40790000000": 1, OTHER: 4}
    assert phones_to_fail_over(database.begin, now=now) == []


def test_a_moved_message_keeps_its_numbers_and_leaves_a_trace(database: Engine):
    one_phone(database)
    run_sql(
        database,
        """UPDATE outbox_messages SET state = 'deferred', attempts = 2, retries = 2,
           reason = 'RATE_LIMIT'""",
    )
    (before,) = outbox(database)
    lose(database)

    assert move(database, now=NOON + MINUTE).given_new_phone == 1

    (after,) = outbox(database)
    reason = "handed over from acme-01 to acme-02: banned"
    assert after == before | {
        "phone_id": "acme-02",
        "retries": 0,
        "reason": reason,
        "updated_at": NOON + MINUTE,
    }
    trace = the_row(database, "SELECT * FROM outbox_changes WHERE why LIKE 'handed over%'")
    assert (trace["message_id"], trace["who"], trace["why"]) == (after["id"], "test", reason)
    assert (trace["from_state"], trace["to_state"]) == ("deferred", "deferred")
    lead = the_row(database, "SELECT * FROM gold_lead_journey")
    assert (lead["assigned_phone_id"], lead["assigned_at"]) == ("acme-02", NOON + MINUTE)
    assert lead["open_message"] is True


@pytest.mark.parametrize(
    ("change", "moved"),
    [
        ("status = 'BANNED'", 1),
        ("is_enabled = false", 1),
        (f"status = 'OFFLINE', status_changed_at = '{NOON - 60 * MINUTE}'", 0),
        (f"status = 'OFFLINE', status_changed_at = '{NOON - 61 * MINUTE}'", 1),
        ("status = 'ACTIVE'", 0),
    ],
)
def test_a_phone_that_is_offline_for_less_than_the_grace_time_keeps_its_leads(
    database: Engine, change: str, moved: int
):
    one_phone(database)
    run_sql(database, f"UPDATE wa_phone_numbers SET {change} WHERE id = 'acme-01'")
    assert phones_to_fail_over(database.begin, now=NOON) == ["acme-01"] * moved
    assert move(database).total == moved


def test_the_grace_time_is_the_tenants(database: Engine):
    one_phone(database, failover_after_minutes=5)
    run_sql(
        database,
        """UPDATE wa_phone_numbers SET status = 'OFFLINE', status_changed_at = :then
           WHERE id = 'acme-01'""",
        then=NOON - 6 * MINUTE,
    )
    assert move(database).total == 1


def test_a_phone_that_comes_back_gets_nobody_back(database: Engine):
    one_phone(database)
    lose(database)
    assert move(database).total == 1
    run_sql(database, "UPDATE wa_phone_numbers SET status = 'ACTIVE'")
    assert move(database) == Moved("acme-01")
    assert dispatch(database) == (0, 0)
    assert where(database) == {("acme-02", "initial", "planned"): 1}


def test_a_second_failover_finds_nothing_left_to_do(database: Engine):
    one_phone(database, leads=3)
    lose(database)
    assert move(database).total == 3
    before = outbox(database)
    assert move(database) == Moved("acme-01")
    assert outbox(database) == before


def test_leads_go_on_when_the_phone_that_took_them_over_is_lost_too(database: Engine):
    one_phone(database)
    touch(database)
    lose(database)
    assert move(database).handed_over == 1
    with database.begin() as conn:
        a_phone(conn, "acme", "acme-03", number="+40790000002")
    lose(database, "acme-02")
    assert move(database, phone_id="acme-02").handed_over == 1
    assert where(database) == {("acme-03", "handover", "planned"): 1}


# ── Leads in the middle of a conversation ─────────────────────────────────────────────────────


def test_a_follow_up_is_handed_over_on_its_day_and_opens_a_conversation_there(
    database: Engine, redis: Redis, sandbox: RunningSandbox
):
    lost, other = two_offices(database, redis, sandbox, steps=(FIRST, SECOND, THIRD), delay=DAY)
    assert lost.send() is State.SENT
    touch(database)
    lose(database)

    # Due tomorrow: until then the phone may be back, and today's room is for today's messages.
    assert phones_to_fail_over(database.begin, now=lost.clock.now()) == []
    assert move(database, now=lost.clock.now()) == Moved("acme-01")
    other.wait(DAY)
    now = other.clock.now()
    assert move(database, now=now) == Moved("acme-01", handed_over=1)

    waiting = outbox(database)[1]
    assert (waiting["phone_id"], waiting["kind"], waiting["step"]) == ("acme-02", "handover", 2)
    lead = the_row(database, "SELECT * FROM gold_lead_journey")
    assert (lead["assigned_phone_id"], lead["assigned_at"]) == ("acme-02", now)
    assert lead["chat_id"] is None

    assert other.send_after(MINUTE) is State.SENT
    assert [line["sender"] for line in sandbox.accepted()] == ["+40790000000", OTHER]
    assert len({line["recipient"] for line in sandbox.accepted()}) == 1
    opened = rows(database, "SELECT phone_id, state FROM quota_ledger ORDER BY phone_id")
    assert [tuple(row.values()) for row in opened] == [
        ("acme-01", "committed"),
        ("acme-02", "committed"),
    ]
    # The step after it is a plain follow-up, in the chat with the new phone.
    third = outbox(database)[2]
    assert (third["phone_id"], third["kind"], third["step"]) == ("acme-02", "followup", 3)
    assert other.send_after(DAY) is State.SENT
    chats = {line["sender"]: line["chat_id"] for line in sandbox.accepted()}
    assert chats["+40790000000"] != chats[OTHER]
    assert the_row(database, "SELECT chat_id FROM gold_lead_journey") == {
        "chat_id": str(chats[OTHER])
    }


def test_of_several_messages_to_a_lead_the_first_opens_and_the_others_follow(database: Engine):
    one_phone(database)
    also_waiting(database, n=2)
    also_waiting(database, n=1)
    lose(database)
    assert move(database) == Moved("acme-01", given_new_phone=1)
    found = [(row["phone_id"], row["kind"]) for row in outbox(database)]
    assert found == [("acme-02", "initial"), ("acme-02", "followup"), ("acme-02", "followup")]


@pytest.mark.parametrize("state", ["sent", "failed", "cancelled"])
def test_what_is_over_never_moves(database: Engine, state: str):
    one_phone(database)
    run_sql(database, "UPDATE outbox_messages SET state = :state", state=state)
    lose(database)
    assert move(database) == Moved("acme-01")
    assert where(database) == {("acme-01", "initial", state): 1}


@pytest.mark.parametrize(
    "change",
    [
        "requires_human_review = true",
        "engagement_stage = 'WARM_REPLY'",
        "whatsapp_opted_out = true",
        "email_opted_out = true",
    ],
)
def test_a_lead_that_no_sequence_may_write_to_stays(database: Engine, change: str):
    one_phone(database)
    run_sql(database, f"UPDATE gold_lead_journey SET {change}")
    lose(database)
    assert move(database) == Moved("acme-01", left=1)
    assert where(database) == {("acme-01", "initial", "planned"): 1}


# ── Leads in doubt ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("rule", ["hand_over", "switch_channel"])
@pytest.mark.parametrize("settled", ["sent", "cancelled"])
@pytest.mark.parametrize("doubt", ["sending", "unconfirmed", "parked"])
def test_a_lead_in_doubt_never_moves_and_follows_when_the_doubt_is_settled(
    database: Engine, doubt: str, settled: str, rule: str
):
    one_phone(
        database,
        failover=rule,
        channels=["WHATSAPP", "EMAIL"],
        basis_policy='{"WHATSAPP": ["consent"], "EMAIL": ["consent"]}',
        company={"email_principal": "a@firma.ro", "email_status": "valid"},
    )
    run_sql(database, "UPDATE outbox_messages SET state = :doubt, attempts = 1", doubt=doubt)
    run_sql(
        database,
        """INSERT INTO send_attempts (message_id, n, phone_id, fence, begun_at, outcome)
           SELECT id, 1, phone_id, 1, now(), 'unconfirmed' FROM outbox_messages""",
    )
    also_waiting(database)
    before = outbox(database)
    lose(database)

    assert phones_to_fail_over(database.begin, now=NOON) == []
    assert move(database) == Moved("acme-01", left=1)
    assert outbox(database) == before

    run_sql(database, "UPDATE outbox_messages SET state = :s WHERE state = :d", s=settled, d=doubt)
    assert phones_to_fail_over(database.begin, now=NOON) == ["acme-01"]
    assert move(database).total == 1
    began, waited = outbox(database)
    assert (began["phone_id"], began["state"], began["kind"]) == ("acme-01", settled, "initial")
    if rule == "hand_over":  # it may have been written to, so it is told who writes
        assert (waited["phone_id"], waited["kind"]) == ("acme-02", "handover")
    else:
        assert (waited["channel"], waited["phone_id"]) == ("EMAIL", None)


def test_a_doubt_on_another_phone_counts_as_well(database: Engine):
    one_phone(database)
    also_waiting(database)
    run_sql(
        database,
        """UPDATE outbox_messages SET state = 'unconfirmed', phone_id = 'acme-02'
           WHERE planned_by = 'test'""",
    )
    lose(database)
    assert move(database) == Moved("acme-01", left=1)


def test_a_send_that_went_silent_before_the_ban_is_followed_up_once_it_was_found(
    database: Engine, redis: Redis, sandbox: RunningSandbox
):
    past = datetime(2024, 11, 20, 10, 0, tzinfo=UTC)  # the sandbox's clock is real, and later
    lost, other = two_offices(database, redis, sandbox, now=past, steps=(FIRST, SECOND))
    sandbox.fault("accept_then_cut", times=1)
    assert lost.send() is State.UNCONFIRMED
    lose(database)
    assert move(database, now=lost.clock.now()) == Moved("acme-01")
    assert where(database) == {("acme-01", "initial", "unconfirmed"): 1}

    assert settle_unconfirmed(lost.desk, settle_time=15 * MINUTE, who="test") == {"sent": 1}
    follow_up = the_row(database, "SELECT due_at FROM outbox_messages WHERE step = 2")
    other.clock.set(cast(datetime, follow_up["due_at"]))
    assert move(database, now=other.clock.now()) == Moved("acme-01", handed_over=1)
    assert other.send_after(MINUTE) is State.SENT
    assert [line["sender"] for line in sandbox.accepted()] == ["+40790000000", OTHER]


# ── Room ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("known", [False, True], ids=["first messages", "handed over"])
def test_the_new_phone_takes_exactly_what_it_has_room_for(database: Engine, known: bool):
    leads = one_phone(database, leads=5, other_quota=3)
    if known:
        touch(database)
    lose(database)
    kind, field = ("handover", "handed_over") if known else ("initial", "given_new_phone")

    assert move(database) == Moved("acme-01", left=2, **{field: 3})
    assert move(database) == Moved("acme-01", left=2)
    assert phones_to_fail_over(database.begin, now=NOON) == []
    assert where(database) == {
        ("acme-02", kind, "planned"): 3,
        ("acme-01", "initial", "planned"): 2,
    }
    assert [row["phone_id"] for row in outbox(database)] == ["acme-02"] * 3 + ["acme-01"] * 2

    # Sent, they count for the day; the next day has room for the others.
    run_sql(
        database,
        """
        WITH gone AS (UPDATE outbox_messages SET state = 'sent' WHERE phone_id = 'acme-02'
                      RETURNING id, lead_id)
        INSERT INTO quota_ledger (phone_id, lead_id, day, message_id, state, at)
        SELECT 'acme-02', lead_id, '2026-11-18', id, 'committed', now() FROM gone
        """,
    )
    assert move(database) == Moved("acme-01", left=2)
    assert move(database, now=NOON + DAY) == Moved("acme-01", **{field: 2})
    assert len(leads) == 5


def test_the_leads_of_a_lost_phone_are_dealt_over_all_phones_with_room(database: Engine):
    one_phone(database, leads=6)
    with database.begin() as conn:
        a_phone(conn, "acme", "acme-03", number="+40790000002")
        a_phone(conn, "acme", "acme-04", number="+40790000003")
        a_world(conn, tenant_id="beta", phones=0)
        a_phone(conn, "beta", "beta-01", number="+40790000009", quota=9999)
    lose(database)
    run_sql(database, "UPDATE wa_phone_numbers SET status = 'OFFLINE' WHERE id = 'acme-04'")
    assert move(database).total == 6
    assert Counter(row["phone_id"] for row in outbox(database)) == {"acme-02": 3, "acme-03": 3}


def test_a_message_put_off_to_another_day_takes_no_room_of_today(database: Engine):
    one_phone(database, leads=2)
    run_sql(
        database,
        """UPDATE outbox_messages SET state = 'deferred', due_at = :tomorrow
           WHERE id = (SELECT min(id) FROM outbox_messages)""",
        tomorrow=NOON + DAY,
    )
    lose(database)
    assert move(database) == Moved("acme-01", given_new_phone=1)
    assert [row["phone_id"] for row in outbox(database)] == ["acme-01", "acme-02"]


# ── The other rules ───────────────────────────────────────────────────────────────────────────


def test_with_the_rule_to_wait_nothing_moves(database: Engine):
    one_phone(database, leads=2, failover="wait")
    before = outbox(database)
    lose(database)
    assert phones_to_fail_over(database.begin, now=NOON) == []
    assert move(database) == Moved("acme-01")
    assert outbox(database) == before


MAIL = {"email_principal": "a@firma.ro", "email_status": "valid"}
BOTH = '{"WHATSAPP": ["consent"], "EMAIL": ["consent"]}'


@pytest.mark.parametrize(
    ("company", "channels", "policy", "moved"),
    [
        (MAIL, ["WHATSAPP", "EMAIL"], BOTH, True),
        (MAIL, ["WHATSAPP"], BOTH, False),
        (MAIL | {"email_status": "invalid"}, ["WHATSAPP", "EMAIL"], BOTH, False),
        ({}, ["WHATSAPP", "EMAIL"], BOTH, False),
        (MAIL, ["WHATSAPP", "EMAIL"], '{"WHATSAPP": ["consent"]}', False),
        (MAIL, ["WHATSAPP", "EMAIL"],
         '{"WHATSAPP": ["consent"], "EMAIL": ["existing_customer"]}', False),
    ],
    ids=["by mail", "mail is off", "dead address", "no address", "no policy", "no basis"],
)  # fmt: skip
def test_a_lead_switches_to_mail_where_mail_reaches_it_lawfully_and_waits_otherwise(
    database: Engine, company: dict[str, str], channels: list[str], policy: str, moved: bool
):
    one_phone(
        database,
        failover="switch_channel",
        channels=channels,
        basis_policy=policy,
        company=company,
    )
    (before,) = outbox(database)
    lose(database)
    assert phones_to_fail_over(database.begin, now=NOON) == ["acme-01"] * moved
    assert move(database) == Moved("acme-01", switched_to_mail=int(moved), left=int(not moved))
    (after,) = outbox(database)
    if not moved:
        assert after == before
        return
    assert (after["channel"], after["phone_id"]) == ("EMAIL", None)
    assert (after["recipient"], after["state"]) == ("a@firma.ro", "planned")
    trace = the_row(database, "SELECT who, why FROM outbox_changes WHERE why LIKE 'by mail%'")
    assert trace == {"who": "test", "why": "by mail instead of from acme-01: banned"}


def test_leads_that_share_an_address_get_one_mail_between_them(database: Engine):
    one_phone(
        database,
        leads=3,
        failover="switch_channel",
        channels=["WHATSAPP", "EMAIL"],
        basis_policy=BOTH,
        company=MAIL,
    )
    lose(database)
    assert move(database) == Moved("acme-01", switched_to_mail=1, left=2)
    assert move(database) == Moved("acme-01", left=2)


# ── Files ─────────────────────────────────────────────────────────────────────────────────────


def a_file_for_everybody(database: Engine, *, minutes: int = 0) -> None:
    """A file that a person has planned into every lead's chat, as `cerniq media send` does."""
    with database.begin() as conn:
        content = b"%PDF-1.7\n1 0 obj\n<<>>\nendobj\ntrailer\n<<>>\n%%EOF\n"
        media_id = conn.execute(
            text("""
                INSERT INTO media_files
                  (tenant_id, name, kind, filename, content_type, size, sha256, content)
                VALUES ('acme', 'oferta.pdf', 'document', 'oferta.pdf', 'application/pdf', :size,
                        encode(sha256(:content), 'hex'), :content)
                RETURNING id
            """),
            {"size": len(content), "content": content},
        ).scalar_one()
        for lead_id in conn.execute(text("SELECT lead_id FROM gold_lead_journey")).scalars():
            at = NOON + minutes * MINUTE
            assert plan_file(conn, lead_id, media_id=media_id, caption="Oferta", by="ana", now=at)


def test_a_file_leaves_a_lost_phone_and_opens_the_chat_with_the_introduction(
    database: Engine, redis: Redis, sandbox: RunningSandbox
):
    lost, other = two_offices(database, redis, sandbox)
    assert lost.send() is State.SENT
    a_file_for_everybody(database)
    lose(database)

    assert phones_to_fail_over(database.begin, now=NOON) == ["acme-01"]
    assert move(database) == Moved("acme-01", handed_over=1)

    assert other.send_after(5 * MINUTE) is State.SENT
    first, second = sandbox.accepted()
    assert (first["recipient"], second["sender"]) == (second["recipient"], OTHER)
    assert "de pe alt număr" in second["text"]
    assert second["text"].endswith("\n\nOferta")
    assert second["attachment"]["filename"] == "oferta.pdf"
    opened = rows(database, "SELECT phone_id FROM quota_ledger ORDER BY phone_id")
    assert [row["phone_id"] for row in opened] == ["acme-01", "acme-02"]


def test_a_file_that_is_not_the_first_message_stays_one_within_the_chat(database: Engine):
    one_phone(database)
    a_file_for_everybody(database, minutes=5)
    lose(database)
    assert move(database) == Moved("acme-01", given_new_phone=1)
    assert where(database) == {
        ("acme-02", "initial", "planned"): 1,
        ("acme-02", "media", "planned"): 1,
    }


@pytest.mark.parametrize(
    ("change", "moved"),
    [
        ("engagement_stage = 'WARM_REPLY', in_conversation = true", 1),
        ("requires_human_review = true", 1),
        ("whatsapp_opted_out = true", 0),
    ],
)
def test_what_a_person_planned_follows_also_who_talks_to_us(
    database: Engine, change: str, moved: int
):
    one_phone(database)
    run_sql(database, "UPDATE outbox_messages SET state = 'sent'")
    touch(database)
    run_sql(database, f"UPDATE gold_lead_journey SET {change}")
    a_file_for_everybody(database)
    lose(database)
    assert move(database) == Moved("acme-01", handed_over=moved, left=1 - moved)


def test_a_file_goes_by_mail_where_that_is_the_rule(database: Engine):
    one_phone(
        database,
        failover="switch_channel",
        channels=["WHATSAPP", "EMAIL"],
        basis_policy=BOTH,
        company=MAIL,
    )
    a_file_for_everybody(database)
    lose(database)
    assert move(database) == Moved("acme-01", switched_to_mail=2)


# ── At the same time ──────────────────────────────────────────────────────────────────────────


def together(*acts: Callable[[], Any]) -> list[Any]:
    """Start all of them in the same moment; what each returned."""
    start = threading.Barrier(len(acts))

    def begin_with_the_others(act: Callable[[], Any]) -> Any:
        start.wait(TOGETHER)
        return act()

    with ThreadPoolExecutor(len(acts)) as pool:
        return list(pool.map(begin_with_the_others, acts))


def in_turn(database: Engine, first: Callable[..., Any], second: Callable[[], Any]) -> list[Any]:
    """Let the first come to its commit, and commit when the second waits for its locks."""
    arrived = threading.Event()

    def hold() -> None:
        arrived.set()
        wait_until_somebody_waits_for_a_lock(database)

    with ThreadPoolExecutor(2) as pool:
        ahead = pool.submit(first, beginning(database, hold))
        assert arrived.wait(TOGETHER)
        behind = pool.submit(second)
        return [ahead.result(), behind.result()]


def stop(begin: Begin, lead_id: UUID) -> int:
    return opt_out(begin, tenant_id="acme", lead_id=lead_id, secret=SECRET, reason="stop", now=NOON)


def test_an_opt_out_that_comes_during_a_failover_ends_what_was_moved(database: Engine):
    leads = one_phone(database, leads=2)
    lose(database)
    moved, cancelled = in_turn(
        database,
        partial(fail_over, phone_id="acme-01", now=NOON, who="test"),
        partial(stop, database.begin, leads[0]),
    )
    assert (moved.total, cancelled) == (2, 1)
    ended = {(row["lead_id"], row["phone_id"], row["state"]) for row in outbox(database)}
    assert ended == {(leads[0], "acme-02", "cancelled"), (leads[1], "acme-02", "planned")}


def test_a_failover_that_comes_during_an_opt_out_leaves_that_lead_alone(database: Engine):
    leads = one_phone(database, leads=2)
    lose(database)
    cancelled, moved = in_turn(database, partial(stop, lead_id=leads[0]), partial(move, database))
    assert (moved.total, cancelled) == (1, 1)
    ended = {(row["lead_id"], row["phone_id"], row["state"]) for row in outbox(database)}
    assert ended == {(leads[0], "acme-01", "cancelled"), (leads[1], "acme-02", "planned")}


@pytest.mark.parametrize("rule", ["hand_over", "switch_channel"])
def test_a_failover_that_comes_during_a_reply_leaves_that_lead_alone(database: Engine, rule: str):
    leads = one_phone(
        database,
        leads=2,
        failover=rule,
        channels=["WHATSAPP", "EMAIL"],
        basis_policy=BOTH,
        company={"email_status": "valid"},
    )
    run_sql(database, "UPDATE gold_companies SET email_principal = denumire || '@firma.ro'")
    lose(database)

    def reply(begin: Begin) -> None:
        with begin() as conn:
            conn.execute(
                text("""
                    UPDATE gold_lead_journey SET engagement_stage = 'WARM_REPLY'
                    WHERE lead_id = :lead
                """),
                {"lead": leads[0]},
            )

    _, moved = in_turn(database, reply, partial(move, database))
    assert (moved.total, moved.left) == (1, 1)
    (stayed,) = [row["lead_id"] for row in outbox(database) if row["phone_id"] == "acme-01"]
    assert stayed == leads[0]


def test_a_failover_waits_for_a_claim_and_leaves_the_claimed_lead_alone(
    database: Engine, redis: Redis, sandbox: RunningSandbox
):
    lost, _ = two_offices(database, redis, sandbox, leads=3)

    def claim(begin: Begin) -> object:
        return claiming.claim(replace(lost.desk, begin=begin), lost.lease)

    def lose_and_move() -> Moved:
        lose(database)
        return move(database)

    message, moved = in_turn(database, claim, lose_and_move)
    assert isinstance(message, OutboxMessage)
    assert moved.total == 2
    assert where(database) == {
        ("acme-01", "initial", "sending"): 1,
        ("acme-02", "initial", "planned"): 2,
    }


def test_a_claim_waits_for_a_failover_and_finds_nothing_to_send(
    database: Engine, redis: Redis, sandbox: RunningSandbox
):
    lost, _ = two_offices(database, redis, sandbox, leads=3)
    lose(database)
    moved, held = in_turn(
        database, partial(fail_over, phone_id="acme-01", now=NOON, who="test"), lost.held
    )
    assert moved.total == 3
    assert held.rule == "phone_not_active"
    assert where(database) == {("acme-02", "initial", "planned"): 3}


def test_failovers_and_dispatches_at_once_move_everybody_once_and_give_room_away_once(
    database: Engine,
):
    one_phone(database, leads=20, other_quota=12)
    lose(database)
    with database.begin() as conn:
        some_leads(conn, count=20, first=100)  # new ones, after the same room
    moves: list[Callable[[], Any]] = [partial(move, database) for _ in range(4)]
    plans: list[Callable[[], Any]] = [partial(dispatch, database) for _ in range(3)]
    results = together(*moves, *plans)
    moved = sum(result.total for result in results[:4])
    planned = sum(written for written, _ in results[4:])
    assert moved + planned == 12
    assert Counter(row["phone_id"] for row in outbox(database)) == {
        "acme-01": 20 - moved,
        "acme-02": 12,
    }
    traces = rows(database, "SELECT message_id FROM outbox_changes WHERE why LIKE 'handed over%'")
    assert len({row["message_id"] for row in traces}) == len(traces) == moved


RACES = 40
APART = 0.008


@pytest.mark.parametrize("stops", [False, True], ids=["claims", "claims and opt-outs"])
def test_whoever_wins_a_race_with_a_ban_each_lead_gets_one_message(
    database: Engine, redis: Redis, sandbox: RunningSandbox, stops: bool
):
    lost, other = two_offices(database, redis, sandbox, leads=RACES, quota=RACES)
    desk = replace(lost.desk, speed=1e9)  # no gap: the next race begins when this one is over
    lost, other = replace(lost, desk=desk), replace(other, desk=desk)
    run_sql(database, "UPDATE outbox_messages SET due_at = due_at + interval '1 day'")
    dice = random.Random(11)

    def after(seconds: float, act: Callable[[], Any]) -> Any:
        time.sleep(seconds)
        return act()

    def send() -> None:
        message = lost.claim()
        if isinstance(message, OutboxMessage):
            recording.record(desk, message, sending.call(desk, message), who="test")

    def ban_and_move() -> Moved:
        lose(database)
        return move(database)

    moved = 0
    for turn, row in enumerate(outbox(database)):
        run_sql(
            database, "UPDATE outbox_messages SET due_at = :now WHERE id = :id", now=NOON,
            id=row["id"],
        )  # fmt: skip
        wait = dice.uniform(-APART, APART) if turn % 2 else 0.0
        acts: list[Callable[[], Any]] = [
            partial(after, max(0.0, wait), send),
            partial(after, max(0.0, -wait), ban_and_move),
        ]
        if stops and turn % 4 < 2:
            lead_id = UUID(str(row["lead_id"]))
            acts.append(
                partial(after, dice.uniform(0, APART), partial(stop, database.begin, lead_id))
            )
        moved += together(*acts)[1].total
        run_sql(database, "UPDATE wa_phone_numbers SET status = 'ACTIVE'")
        run_sql(
            database,
            """UPDATE outbox_messages SET due_at = due_at + interval '1 day'
               WHERE state IN ('planned', 'deferred') AND due_at <= :now""",
            now=NOON,
        )

    before = sandbox.accepted()
    run_sql(database, "UPDATE outbox_messages SET due_at = :now", now=NOON)
    while isinstance(message := other.claim(), OutboxMessage):
        other.send(message)
    lose(database)
    assert 0 < len(before) < RACES, "one side won every race, so nothing was tried"
    sent = sandbox.accepted()
    assert len({line["recipient"] for line in sent}) == len(sent)
    found = Counter(str(row["state"]) for row in outbox(database))
    assert found["sent"] == len(sent)
    assert found.keys() <= ({"sent", "cancelled"} if stops else {"sent"})
    assert moved >= len(sent) - len(before)
