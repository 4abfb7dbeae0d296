"""Dead letters: sent again as a new message, dropped, or settled by time; and never sent twice."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import TypeVar

import psycopg
import pytest
from redis import Redis
from sqlalchemy import Engine

from cerniq_pipeline.domain.alerts import BACKLOG, INBOX_DEAD, INBOX_STUCK
from cerniq_pipeline.domain.history import InboundCopy
from cerniq_pipeline.domain.outbox import State
from cerniq_pipeline.domain.replacements import Answer
from cerniq_pipeline.services.dead_letters import (
    KEPT,
    MOST_OPEN,
    NO_TENANT,
    PUT_BACK,
    WAITS_TOO_LONG,
    bury_event,
    check_backlog,
    check_inbox,
    drop,
    expire,
    retry,
)
from cerniq_pipeline.services.opt_out import opt_out
from cerniq_pipeline.store import dead_letters, inbox, leads, suppressions
from cerniq_pipeline.store.database import Begin
from cerniq_pipeline.store.dead_letters import EVENT_CODES, EventCode
from cerniq_pipeline_tests.builders import (
    FIRST,
    NOON,
    SECOND,
    SECRET,
    Office,
    a_world,
    an_office,
    beginning,
    dispatch,
    rows,
    run_sql,
    some_leads,
    states,
    the_row,
    wait_until_somebody_waits_for_a_lock,
)
from cerniq_pipeline_tests.sandbox.running import RunningSandbox

CORRECTED = "+40722999999"
SECOND_LONG = timedelta(seconds=1)
T = TypeVar("T")
Servers = tuple[Engine, Redis, RunningSandbox]


@pytest.fixture
def servers(database: Engine, redis: Redis, sandbox: RunningSandbox) -> Servers:
    """The three real servers, empty."""
    return database, redis, sandbox


def rejected(servers: Servers, *, leads: int = 1, steps: tuple[str, ...] = (FIRST,)) -> Office:
    """An office whose messages were all refused for good."""
    office = an_office(
        *servers, leads=leads, steps=steps, gap_least_seconds=0, gap_spread_seconds=0
    )
    fault = servers[2].fault("invalid_number")
    for _ in range(leads):
        assert office.send() is State.FAILED
    servers[2].lift(fault)
    return office


def failed_letters(database: Engine, count: int = 1, *, code: str = "REFUSED") -> list[int]:
    """Messages that failed, without the servers it takes to fail in truth; their letters."""
    with database.begin() as conn:
        a_world(conn)
        some_leads(conn, count=count)
    assert dispatch(database) == (count, 0)
    run_sql(database, "UPDATE outbox_messages SET state = 'failed', reason = :code", code=code)
    run_sql(database, "UPDATE gold_lead_journey SET open_message = false, hold_reason = 'failed'")
    with database.begin() as conn:
        for row in rows(database, "SELECT id FROM outbox_messages ORDER BY recipient"):
            dead_letters.bury(
                conn,
                message_id=int(str(row["id"])),
                tenant_id="acme",
                code=code,
                detail="as it was",
                now=NOON,
            )
    return letter_ids(database)


def letter_ids(database: Engine) -> list[int]:
    return [
        int(str(row["id"])) for row in rows(database, "SELECT id FROM dead_letters ORDER BY id")
    ]


def again(
    database: Engine, *ids: int, begin: Begin | None = None, reviewed: bool = False, by: str = "ana"
) -> list[Answer]:
    return retry(begin or database.begin, ids, by=by, secret=SECRET, now=NOON, reviewed=reviewed)


def everything(database: Engine) -> list[object]:
    """All that a refusal must leave as it was."""
    tables = ("outbox_messages", "outbox_changes", "gold_lead_journey", "dead_letters")
    return [rows(database, f"SELECT * FROM {table} ORDER BY 1") for table in tables]


def meeting(database: Engine, other: Callable[[], T]) -> tuple[Begin, Callable[[], T]]:
    """A transaction that the other side meets just before its commit; and what the other got."""
    crowd = ThreadPoolExecutor(1)
    came: list[Future[T]] = []

    def let_the_other_come() -> None:
        came.append(crowd.submit(other))
        wait_until_somebody_waits_for_a_lock(database)

    def outcome() -> T:
        with crowd:
            return came[0].result(timeout=30)

    return beginning(database, let_the_other_come), outcome


# ── Retry ─────────────────────────────────────────────────────────────────────────────────────


def test_a_retried_message_goes_out_once_to_the_corrected_number(servers: Servers):
    database, _, sandbox = servers
    office = rejected(servers, steps=(FIRST, SECOND))
    run_sql(database, "UPDATE gold_companies SET telefon_principal = :n", n=CORRECTED)
    (letter_id,) = letter_ids(database)

    (answer,) = again(database, letter_id)

    old, new = rows(database, "SELECT * FROM outbox_messages ORDER BY id")
    assert answer == Answer(letter_id, True, f"retried as message {new['id']}")
    assert (old["state"], old["replaced_by"]) == ("failed", new["id"])
    kept = ("tenant_id", "channel", "kind", "lead_id", "phone_id", "sequence_id", "step")
    assert [new[name] for name in kept] == [old[name] for name in kept]
    assert (new["state"], new["recipient"], new["due_at"]) == ("planned", CORRECTED, NOON)
    assert (new["template_id"], new["planned_by"]) == (old["template_id"], "ana")
    lead = the_row(database, "SELECT * FROM gold_lead_journey")
    assert (lead["open_message"], lead["hold_reason"]) == (True, None)
    letter = the_row(database, "SELECT resolved_at, resolved_by, resolution FROM dead_letters")
    assert letter == {"resolved_at": NOON, "resolved_by": "ana", "resolution": answer.said}

    assert office.send() is State.SENT
    (line,) = sandbox.accepted()
    assert line["recipient"] == CORRECTED
    assert rows(database, "SELECT state, message_id FROM quota_ledger") == [
        {"state": "committed", "message_id": new["id"]}
    ]
    assert states(database) == {"failed": 1, "sent": 1, "planned": 1}


def test_retrying_twice_makes_one_new_message(database: Engine):
    (letter_id,) = failed_letters(database)
    (first,) = again(database, letter_id, letter_id)
    (second,) = again(database, letter_id, by="dan")
    assert first.done
    assert second == Answer(letter_id, False, f"it is off the list: {first.said} by ana")
    assert states(database) == {"failed": 1, "planned": 1}


def test_two_operators_at_once_make_one_new_message(database: Engine):
    (letter_id,) = failed_letters(database)
    begin, second = meeting(database, lambda: again(database, letter_id, by="dan"))
    (first,) = again(database, letter_id, begin=begin)
    assert first.done
    assert [answer.done for answer in second()] == [False]
    assert states(database) == {"failed": 1, "planned": 1}


def test_a_crowd_of_operators_makes_one_new_message_for_each_letter(database: Engine):
    ids = failed_letters(database, 6)
    ready = threading.Barrier(4)

    def decide(turn: int) -> list[Answer]:
        ready.wait()
        mine = ids if turn % 2 else ids[::-1]
        if turn == 3:
            return drop(database.begin, mine, by="dan", reason="enough", now=NOON)
        return again(database, *mine)

    with ThreadPoolExecutor(4) as crowd:
        answers = [answer for turn in crowd.map(decide, range(4)) for answer in turn]
    assert sorted(answer.id for answer in answers if answer.done) == ids
    retried = rows(database, "SELECT 1 FROM dead_letters WHERE resolution LIKE 'retried%'")
    assert states(database).get("planned", 0) == len(retried)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("UPDATE gold_lead_journey SET whatsapp_opted_out = true", "asked not to be contacted"),
        ("UPDATE gold_lead_journey SET email_opted_out = true", "asked not to be contacted"),
        ("UPDATE gold_lead_journey SET engagement_stage = 'WARM_REPLY'", "WARM_REPLY"),
        ("UPDATE gold_companies SET telefon_principal = NULL", "no number"),
        ("UPDATE gold_companies SET telefon_principal = '0722 999 999'", "no number"),
        ("UPDATE outbox_messages SET not_after = '2026-11-18 09:00Z'", "too late"),
        ("DELETE FROM gold_companies", "its lead is gone"),
    ],
)
def test_a_lead_that_may_not_be_written_to_is_refused_and_nothing_changes(
    database: Engine, change: str, said: str
):
    (letter_id,) = failed_letters(database)
    run_sql(database, change)
    before = everything(database)
    (answer,) = again(database, letter_id)
    assert not answer.done
    assert said in answer.said
    assert everything(database) == before


@pytest.mark.parametrize("suppressed", ["+40721000000", CORRECTED])
def test_a_suppressed_person_is_refused_by_the_old_and_by_the_new_number(
    database: Engine, suppressed: str
):
    (letter_id,) = failed_letters(database)
    run_sql(database, "UPDATE gold_companies SET telefon_principal = :n", n=CORRECTED)
    run_sql(
        database,
        "INSERT INTO suppressions (tenant_id, key_hmac, reason, at) VALUES ('acme', :k, 'x', :at)",
        k=suppressions.person_key(SECRET, suppressed),
        at=NOON,
    )
    before = everything(database)
    (answer,) = again(database, letter_id)
    assert answer.said == "this person asked not to be contacted"
    assert everything(database) == before


def stop(database: Engine, begin: Begin) -> int:
    """The person says "stop"."""
    lead_id = the_row(database, "SELECT lead_id FROM gold_lead_journey")["lead_id"]
    assert isinstance(lead_id, uuid.UUID)
    return opt_out(begin, tenant_id="acme", lead_id=lead_id, secret=SECRET, reason="STOP", now=NOON)


def test_a_stop_that_comes_during_a_retry_cancels_the_new_message(database: Engine):
    (letter_id,) = failed_letters(database)
    begin, stopped = meeting(database, lambda: stop(database, database.begin))
    (answer,) = again(database, letter_id, begin=begin)
    assert answer.done
    assert stopped() == 1
    assert states(database) == {"failed": 1, "cancelled": 1}


def test_a_retry_that_comes_during_a_stop_is_refused(database: Engine):
    (letter_id,) = failed_letters(database)
    begin, retried = meeting(database, lambda: again(database, letter_id))
    stop(database, begin)
    assert retried() == [Answer(letter_id, False, "this person asked not to be contacted")]
    assert states(database) == {"failed": 1}


def test_a_retry_that_comes_during_a_drop_is_refused(database: Engine):
    (letter_id,) = failed_letters(database)
    begin, retried = meeting(database, lambda: again(database, letter_id))
    assert drop(begin, [letter_id], by="dan", reason="enough", now=NOON)[0].done
    assert retried() == [Answer(letter_id, False, "it is off the list: dropped: enough by dan")]
    assert states(database) == {"failed": 1}


def test_a_lead_with_another_message_under_way_is_refused(database: Engine):
    (letter_id,) = failed_letters(database)
    run_sql(
        database,
        """
        INSERT INTO outbox_messages (tenant_id, channel, kind, lead_id, recipient, due_at, state,
                                     dedupe_key, planned_by)
        SELECT tenant_id, channel, 'reply', lead_id, recipient, due_at, 'unconfirmed', 'r', 'test'
        FROM outbox_messages
        """,
    )
    before = everything(database)
    (answer,) = again(database, letter_id)
    assert "is under way" in answer.said
    assert everything(database) == before


def test_two_letters_of_one_lead_are_retried_one_at_a_time(database: Engine):
    failed_letters(database)
    run_sql(
        database,
        """
        INSERT INTO outbox_messages (tenant_id, channel, kind, lead_id, recipient, due_at, state,
                                     dedupe_key, content, planned_by)
        SELECT tenant_id, channel, 'reply', lead_id, recipient, due_at, 'failed', 'r', 'Da', 'test'
        FROM outbox_messages
        """,
    )
    reply = the_row(database, "SELECT id FROM outbox_messages WHERE kind = 'reply'")["id"]
    run_sql(
        database,
        """
        INSERT INTO dead_letters (tenant_id, message_id, code, detail, review_required, at)
        VALUES ('acme', :m, 'REFUSED', '', false, :now)
        """,
        m=reply,
        now=NOON,
    )
    first, second = letter_ids(database)
    assert [answer.done for answer in again(database, second, first)] == [True, False]
    new = the_row(database, "SELECT * FROM outbox_messages WHERE state = 'planned'")
    assert (new["kind"], new["content"]) == ("reply", "Da")
    assert new["dedupe_key"] == f"in place of {reply}"


def test_a_number_that_has_this_step_through_another_lead_is_refused(database: Engine):
    ids = failed_letters(database, 2)
    mine = the_row(
        database,
        """
        SELECT o.lead_id, o.id FROM outbox_messages o JOIN dead_letters d ON d.message_id = o.id
        WHERE d.id = :id
        """,
        id=ids[0],
    )
    run_sql(
        database,
        "UPDATE gold_companies SET telefon_principal = '+40721000001' WHERE id = :lead",
        lead=mine["lead_id"],
    )
    taken, fine = again(database, *ids)
    assert taken == Answer(ids[0], False, "this step has a message to that number already")
    assert fine.done
    assert states(database) == {"failed": 2, "planned": 1}
    old = the_row(database, "SELECT replaced_by FROM outbox_messages WHERE id = :id", id=mine["id"])
    assert old["replaced_by"] is None
    lead = the_row(
        database, "SELECT * FROM gold_lead_journey WHERE lead_id = :lead", lead=mine["lead_id"]
    )
    assert (lead["open_message"], lead["hold_reason"]) == (False, "failed")


def test_two_leads_that_got_the_same_number_are_written_to_once(database: Engine):
    ids = failed_letters(database, 3)
    run_sql(database, "UPDATE gold_companies SET telefon_principal = :n", n=CORRECTED)
    answers = again(database, *ids)
    refused = [answer.said for answer in answers if not answer.done]
    assert refused == ["this step has a message to that number already"] * 2
    assert states(database) == {"failed": 3, "planned": 1}
    assert len(rows(database, "SELECT 1 FROM outbox_messages WHERE replaced_by IS NOT NULL")) == 1
    assert len(rows(database, "SELECT 1 FROM gold_lead_journey WHERE open_message")) == 1
    assert len(rows(database, "SELECT 1 FROM dead_letters WHERE resolved_at IS NULL")) == 2


@pytest.mark.parametrize("code", ["PHONE_BANNED", "ACCOUNT_SUSPENDED", "INVALID_LEAD"])
def test_a_code_that_needs_a_review_is_retried_only_after_one(database: Engine, code: str):
    (letter_id,) = failed_letters(database, code=code)
    before = everything(database)
    (answer,) = again(database, letter_id)
    assert code in answer.said
    assert everything(database) == before
    assert [answer.done for answer in again(database, letter_id, reviewed=True)] == [True]
    assert states(database) == {"failed": 1, "planned": 1}


def test_of_many_letters_each_gets_its_own_answer(database: Engine):
    ids = failed_letters(database, 3)
    run_sql(
        database,
        """
        UPDATE gold_lead_journey SET whatsapp_opted_out = true WHERE lead_id =
          (SELECT lead_id FROM outbox_messages o JOIN dead_letters d ON d.message_id = o.id
           WHERE d.id = :id)
        """,
        id=ids[1],
    )
    answers = again(database, *ids, 999_999)
    assert [answer.done for answer in answers] == [True, False, True, False]
    assert answers[-1].said == "there is no such dead letter"
    assert states(database) == {"failed": 3, "planned": 2}


# ── Drop, time and number ─────────────────────────────────────────────────────────────────────


def test_a_dropped_letter_keeps_its_reason_and_its_lead_stays_closed(database: Engine):
    (letter_id,) = failed_letters(database)
    (answer,) = drop(database.begin, [letter_id], by="ana", reason="closed down", now=NOON)
    assert answer == Answer(letter_id, True, "dropped: closed down")
    letter = the_row(database, "SELECT resolved_at, resolved_by, resolution FROM dead_letters")
    assert letter == {
        "resolved_at": NOON,
        "resolved_by": "ana",
        "resolution": "dropped: closed down",
    }
    lead = the_row(database, "SELECT * FROM gold_lead_journey")
    assert (lead["open_message"], lead["hold_reason"]) == (False, "failed")
    assert lead["next_action_at"] is None
    second, unknown = drop(database.begin, [letter_id, 77], by="dan", reason="again", now=NOON)
    assert second == Answer(letter_id, False, "it is off the list: dropped: closed down by ana")
    assert unknown == Answer(77, False, "there is no such dead letter")
    assert not again(database, letter_id)[0].done
    assert states(database) == {"failed": 1}


def test_letters_expire_after_a_week(database: Engine):
    ids = failed_letters(database, 2)
    run_sql(
        database,
        "UPDATE dead_letters SET at = :at WHERE id = :id",
        at=NOON - KEPT - SECOND_LONG,
        id=ids[0],
    )
    run_sql(database, "UPDATE dead_letters SET at = :at WHERE id = :id", at=NOON - KEPT, id=ids[1])
    assert expire(database.begin, now=NOON) == 1
    gone = the_row(database, "SELECT * FROM dead_letters WHERE resolved_at IS NOT NULL")
    assert (gone["id"], gone["resolution"]) == (ids[0], "expired after 7 days")
    assert expire(database.begin, now=NOON) == 0


def test_too_many_letters_are_one_alert_that_closes_by_itself(database: Engine):
    with database.begin() as conn:
        a_world(conn)
        a_world(conn, tenant_id="beta", phones=0)

    def bury(first: int, last: int, tenant_id: str) -> None:
        run_sql(
            database,
            """
            INSERT INTO dead_letters (tenant_id, message_id, code, detail, review_required, at)
            SELECT :tenant, n, 'REFUSED', '', false, :now
            FROM generate_series(CAST(:a AS int), CAST(:b AS int)) n
            """,
            tenant=tenant_id,
            now=NOON,
            a=first,
            b=last,
        )

    bury(1, MOST_OPEN, "acme")
    bury(1001, 1000 + MOST_OPEN, "beta")
    assert check_backlog(database.begin, now=NOON) == {}
    bury(MOST_OPEN + 1, MOST_OPEN + 1, "acme")
    for _ in range(2):
        assert check_backlog(database.begin, now=NOON) == {"acme": MOST_OPEN + 1}
    alert = the_row(database, "SELECT tenant_id, kind, subject, closed_at FROM alerts")
    assert alert == {"tenant_id": "acme", "kind": BACKLOG, "subject": "acme", "closed_at": None}
    run_sql(database, "UPDATE dead_letters SET resolved_at = :now WHERE message_id = 1", now=NOON)
    assert check_backlog(database.begin, now=NOON) == {}
    assert the_row(database, "SELECT closed_at FROM alerts") == {"closed_at": NOON}


# ── The list ──────────────────────────────────────────────────────────────────────────────────


def test_the_list_has_what_it_takes_to_judge_a_letter(servers: Servers):
    database, *_ = servers
    rejected(servers)
    with database.begin() as conn:
        (letter,) = dead_letters.open_letters(conn)
        assert dead_letters.open_letters(conn, tenant_id="beta") == []
        assert dead_letters.open_letters(conn, code="REFUSED") == []
        assert dead_letters.open_letters(conn, tenant_id="acme", code=letter["code"]) == [letter]
    assert (letter["code"], letter["review_required"]) == ("INVALID_RECIPIENT_NUMBER", False)
    assert (letter["company"], letter["phone_id"], letter["step"]) == ("Firma 0", "acme-01", 1)
    assert (letter["attempts"], letter["at"]) == (1, NOON)


def test_a_letter_whose_lead_is_gone_is_still_on_the_list(database: Engine):
    failed_letters(database)
    run_sql(database, "DELETE FROM gold_companies")
    with database.begin() as conn:
        assert [letter["company"] for letter in dead_letters.open_letters(conn)] == [None]


# ── Events ────────────────────────────────────────────────────────────────────────────────────

OURS, THEIRS = "+40790000000", "+40721000000"


def a_stored_event(
    database: Engine,
    key: str = "a",
    *,
    provider: str = "timelinesai",
    contact: str | None = THEIRS,
    now: datetime = NOON,
) -> int:
    copy = InboundCopy(provider, key, "message:received:new", OURS, contact, b"{}")  # pyright: ignore[reportArgumentType]
    with database.begin() as conn:
        inbox.keep(conn, [copy], source="webhook", now=now)
    row = the_row(
        database,
        "SELECT id FROM webhook_events WHERE provider = :p AND event_key = :k",
        p=provider,
        k=key,
    )
    return int(str(row["id"]))


def die(
    database: Engine,
    event_id: int,
    *,
    code: EventCode = "UNHANDLED_EVENT",
    detail: str = "KeyError in hear:12",
    tenant_id: str | None = None,
    begin: Begin | None = None,
    now: datetime = NOON,
) -> None:
    """Give an event up as the drain does."""
    with (begin or database.begin)() as conn:
        assert inbox.give_up(conn, event_id, error=f"{code}: {detail}", now=now, source="webhook")
        bury_event(conn, event_id=event_id, tenant_id=tenant_id, code=code, detail=detail, now=now)


def a_dead_event(database: Engine, key: str = "a", *, provider: str = "timelinesai") -> int:
    """An event on the list; its letter's id."""
    event_id = a_stored_event(database, key, provider=provider)
    die(database, event_id)
    return letter_of(database, event_id)


def letter_of(database: Engine, event_id: int) -> int:
    row = the_row(database, "SELECT id FROM dead_letters WHERE event_id = :e", e=event_id)
    return int(str(row["id"]))


def open_alerts(database: Engine) -> list[tuple[object, object, object]]:
    found = rows(
        database,
        "SELECT kind, subject, tenant_id FROM alerts WHERE closed_at IS NULL ORDER BY 1, 2",
    )
    return [(row["kind"], row["subject"], row["tenant_id"]) for row in found]


DEAD_TIMELINES = (INBOX_DEAD, "timelinesai", None)


def test_a_dead_event_is_on_the_list_once_and_people_are_told(database: Engine):
    event_id = a_stored_event(database)
    die(database, event_id)
    with database.begin() as conn:
        for detail in ("again", "and again"):
            bury_event(
                conn,
                event_id=event_id,
                tenant_id=None,
                code="UNHANDLED_EVENT",
                detail=detail,
                now=NOON + SECOND_LONG,
            )
        (letter,) = dead_letters.open_letters(conn)
    assert (letter["kind"], letter["event_id"], letter["message_id"]) == ("event", event_id, None)
    assert (letter["provider"], letter["event_type"]) == ("timelinesai", "message:received:new")
    assert (letter["account"], letter["contact"], letter["attempts"]) == (OURS, THEIRS, 1)
    assert (letter["detail"], letter["at"]) == ("KeyError in hear:12", NOON)
    assert open_alerts(database) == [DEAD_TIMELINES]


@pytest.mark.parametrize("code", sorted(EVENT_CODES))
def test_an_event_is_put_back_only_after_somebody_looked(database: Engine, code: EventCode):
    event_id = a_stored_event(database)
    die(database, event_id, code=code)
    letter_id = letter_of(database, event_id)
    before = rows(database, "SELECT * FROM webhook_events")
    (refused,) = again(database, letter_id)
    assert (refused.done, code in refused.said) == (False, True)
    assert rows(database, "SELECT * FROM webhook_events") == before

    assert again(database, letter_id, reviewed=True) == [Answer(letter_id, True, PUT_BACK)]

    event = the_row(database, "SELECT * FROM webhook_events")
    assert (event["state"], event["tries"], event["next_try_at"]) == ("waiting", 0, None)
    assert (event["error"], event["handled_at"]) == (None, None)
    letter = the_row(database, "SELECT resolved_at, resolved_by, resolution FROM dead_letters")
    assert letter == {"resolved_at": NOON, "resolved_by": "ana", "resolution": PUT_BACK}
    assert open_alerts(database) == []


def test_whoever_handles_events_is_woken_when_one_is_put_back(database: Engine):
    letter_id = a_dead_event(database)
    url = database.url.set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(url, autocommit=True) as listening:
        listening.execute(f"LISTEN {inbox.BELL}")
        assert again(database, letter_id, reviewed=True)[0].done
        assert any(listening.notifies(timeout=10, stop_after=1))


def test_an_event_that_dies_again_opens_its_letter_again(database: Engine):
    event_id = a_stored_event(database)
    with database.begin() as conn:
        a_world(conn)
    die(database, event_id, tenant_id="acme")
    letter_id = letter_of(database, event_id)
    assert again(database, letter_id, reviewed=True)[0].done
    die(database, event_id, code="UNREADABLE_WEBHOOK", detail="no JSON", now=NOON + SECOND_LONG)
    letter = the_row(database, "SELECT * FROM dead_letters")
    assert (letter["id"], letter["code"], letter["detail"]) == (
        letter_id,
        "UNREADABLE_WEBHOOK",
        "no JSON",
    )
    assert (letter["resolved_at"], letter["resolved_by"], letter["resolution"]) == (
        None,
        None,
        None,
    )
    assert (letter["at"], letter["tenant_id"]) == (NOON + SECOND_LONG, "acme")
    assert open_alerts(database) == [DEAD_TIMELINES]
    assert again(database, letter_id, reviewed=True)[0].done


def test_a_dead_event_holds_its_person_back_until_it_is_dropped(database: Engine):
    with database.begin() as conn:
        a_world(conn)
        (lead_id,) = some_leads(conn)
    letter_id = a_dead_event(database)
    with database.begin() as conn:
        person = leads.person_behind(conn, "acme", lead_ids=[lead_id])
        assert inbox.has_unheard(conn, "acme", person)

    (answer,) = drop(database.begin, [letter_id], by="ana", reason="a test body", now=NOON)

    assert answer == Answer(letter_id, True, "dropped: a test body")
    with database.begin() as conn:
        assert not inbox.has_unheard(conn, "acme", person)
    event = the_row(database, "SELECT * FROM webhook_events")
    assert (event["state"], event["result"]) == ("done", "dropped by ana: a test body")
    assert open_alerts(database) == []
    (second,) = drop(database.begin, [letter_id], by="dan", reason="again", now=NOON)
    assert second.said == "it is off the list: dropped: a test body by ana"


def test_time_never_settles_an_event(database: Engine):
    (old_message,) = failed_letters(database)
    a_dead_event(database)
    run_sql(database, "UPDATE dead_letters SET at = :at", at=NOON - 10 * KEPT)
    assert expire(database.begin, now=NOON) == 1
    gone = the_row(database, "SELECT id FROM dead_letters WHERE resolved_at IS NOT NULL")
    assert gone["id"] == old_message
    assert the_row(database, "SELECT state FROM webhook_events") == {"state": "dead"}


@pytest.mark.parametrize("state", ["done", "waiting"])
def test_an_event_that_is_not_dead_any_more_is_not_put_back(database: Engine, state: str):
    letter_id = a_dead_event(database)
    run_sql(database, "UPDATE webhook_events SET state = :s, result = 'heard'", s=state)
    before = the_row(database, "SELECT * FROM webhook_events")
    (refused,) = again(database, letter_id, reviewed=True)
    assert (refused.done, f"its event is {state}" in refused.said) == (False, True)
    assert the_row(database, "SELECT * FROM webhook_events") == before
    assert drop(database.begin, [letter_id], by="ana", reason="heard", now=NOON)[0].done
    after = the_row(database, "SELECT * FROM webhook_events")
    assert after["state"] == "done"
    assert after["result"] == ("heard" if state == "done" else "dropped by ana: heard")


def test_a_letter_whose_event_is_gone_can_only_be_dropped(database: Engine):
    letter_id = a_dead_event(database)
    run_sql(database, "DELETE FROM webhook_events")
    with database.begin() as conn:
        assert [letter["provider"] for letter in dead_letters.open_letters(conn)] == [None]
    assert "is gone" in again(database, letter_id, reviewed=True)[0].said
    assert drop(database.begin, [letter_id], by="ana", reason="erased", now=NOON)[0].done


def test_messages_and_events_are_retried_together(database: Engine):
    (message,) = failed_letters(database)
    event_letter = a_dead_event(database)
    answers = again(database, event_letter, message, 999_999, reviewed=True)
    assert [answer.done for answer in answers] == [True, True, False]
    assert answers[1].said.startswith("retried as message ")
    assert states(database) == {"failed": 1, "planned": 1}
    assert the_row(database, "SELECT state FROM webhook_events") == {"state": "waiting"}


def test_two_operators_at_once_settle_an_event_once(database: Engine):
    letter_id = a_dead_event(database)
    begin, dropped = meeting(
        database, lambda: drop(database.begin, [letter_id], by="dan", reason="no", now=NOON)
    )
    assert again(database, letter_id, begin=begin, reviewed=True)[0].done
    assert dropped() == [Answer(letter_id, False, f"it is off the list: {PUT_BACK} by ana")]
    assert the_row(database, "SELECT state FROM webhook_events") == {"state": "waiting"}


def test_the_alert_stays_while_another_event_of_the_provider_waits(database: Engine):
    first, second = a_dead_event(database), a_dead_event(database, "b")
    other = a_dead_event(database, provider="meta")
    both = [(INBOX_DEAD, "meta", None), DEAD_TIMELINES]
    assert open_alerts(database) == both
    drop(database.begin, [first], by="ana", reason="x", now=NOON)
    assert open_alerts(database) == both
    again(database, second, reviewed=True)
    assert open_alerts(database) == both[:1]
    drop(database.begin, [other], by="ana", reason="x", now=NOON)
    assert open_alerts(database) == []


def test_an_event_that_dies_while_the_last_one_is_dropped_is_told_of(database: Engine):
    first = a_dead_event(database)
    second = a_stored_event(database, "b")

    def drop_the_first() -> None:
        assert drop(database.begin, [first], by="ana", reason="x", now=NOON)[0].done

    die(database, second, begin=beginning(database, drop_the_first))
    check_inbox(database.begin, now=NOON)
    assert open_alerts(database) == [DEAD_TIMELINES]


def test_an_event_that_waits_for_long_is_an_alert_that_closes_by_itself(database: Engine):
    a_stored_event(database)
    a_stored_event(database, provider="meta", now=NOON + SECOND_LONG)
    late = NOON + WAITS_TOO_LONG
    assert check_inbox(database.begin, now=late) == {}
    late += SECOND_LONG
    for _ in range(2):
        assert list(check_inbox(database.begin, now=late)) == ["timelinesai"]
    assert open_alerts(database) == [(INBOX_STUCK, "timelinesai", None)]
    run_sql(database, "UPDATE webhook_events SET state = 'done'")
    assert check_inbox(database.begin, now=late) == {}
    assert open_alerts(database) == []


def test_an_event_that_was_put_back_a_moment_ago_is_not_stuck(database: Engine):
    event_id = a_stored_event(database, now=NOON - timedelta(days=3))
    die(database, event_id)
    assert again(database, letter_of(database, event_id), reviewed=True)[0].done
    assert check_inbox(database.begin, now=NOON + WAITS_TOO_LONG) == {}
    assert list(check_inbox(database.begin, now=NOON + 2 * WAITS_TOO_LONG)) == ["timelinesai"]


def test_too_many_letters_of_no_tenant_are_an_alert_of_the_installation(database: Engine):
    run_sql(
        database,
        """
        INSERT INTO dead_letters (event_id, code, detail, review_required, at)
        SELECT n, 'UNREADABLE_WEBHOOK', '', true, :now
        FROM generate_series(CAST(1 AS int), CAST(:most AS int)) n
        """,
        now=NOON,
        most=MOST_OPEN + 1,
    )
    for _ in range(2):
        assert check_backlog(database.begin, now=NOON) == {None: MOST_OPEN + 1}
    assert open_alerts(database) == [(BACKLOG, NO_TENANT, None)]
    run_sql(database, "UPDATE dead_letters SET resolved_at = :now WHERE event_id = 1", now=NOON)
    assert check_backlog(database.begin, now=NOON) == {}
    assert open_alerts(database) == []
