"""The drain: every stored event is handled once, in order, or stands on the dead-letter list."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from redis import Redis
from sqlalchemy import Connection, Engine, text

from cerniq_pipeline.domain.events import WebhookReader
from cerniq_pipeline.domain.history import InboundCopy, Shown
from cerniq_pipeline.domain.outbox import Receipt, State
from cerniq_pipeline.providers.meta.webhooks import MetaWebhooks
from cerniq_pipeline.providers.timelinesai.webhooks import TimelinesAIWebhooks
from cerniq_pipeline.services import drain as drain_module
from cerniq_pipeline.services import hearing, recording
from cerniq_pipeline.services.claiming import Nothing
from cerniq_pipeline.services.drain import AT_ONCE, drain, handle_waiting
from cerniq_pipeline.services.sending import Desk
from cerniq_pipeline.store import inbox
from cerniq_pipeline.store.inbox import Bell
from cerniq_pipeline_tests.builders import (
    FIRST,
    NOON,
    SECOND,
    ManualClock,
    Office,
    an_office,
    rows,
    run_sql,
    some_leads,
    states,
    the_row,
)
from cerniq_pipeline_tests.sandbox.running import RunningSandbox

OURS = "+40790000000"
THEIRS = "+40721000000"
MINUTE = timedelta(minutes=1)
A_SECOND = timedelta(seconds=1)
Servers = tuple[Engine, Redis, RunningSandbox]

READERS: dict[str, WebhookReader] = {
    "timelinesai": TimelinesAIWebhooks(("token",)),
    "meta": MetaWebhooks(("secret",)),
}


@pytest.fixture
def servers(database: Engine, redis: Redis, sandbox: RunningSandbox) -> Servers:
    """The three real servers, empty."""
    return database, redis, sandbox


@pytest.fixture
def office(servers: Servers) -> Office:
    """A lead that got its first message; the second one waits."""
    office = an_office(*servers, steps=(FIRST, SECOND))
    assert office.send() is State.SENT
    return office


class NoBell:
    """Never rings; a sleep moves the clock."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.closed = False

    def wait(self, seconds: float) -> bool:
        self._clock.sleep(seconds)
        return False

    def close(self) -> None:
        self.closed = True


def a_webhook(
    text: str = "Bună", *, uid: str = "", account: str = OURS, contact: str = THEIRS
) -> dict[str, Any]:
    """What TimelinesAI tells of a message that came in."""
    return {
        "event_type": "message:received:new",
        "chat": {"full_name": "Ana Pop", "chat_id": 1000001, "is_group": False, "phone": contact},
        "whatsapp_account": {"full_name": "Vânzări", "phone": account},
        "message": {
            "text": text,
            "direction": "received",
            "origin": "WhatsApp",
            "timestamp": "2026-11-18 12:01:00 +0200",
            "message_uid": uid or str(uuid.uuid4()),
            "reply_to_uid": None,
            "sender": {"full_name": "Ana Pop", "phone": contact},
            "recipient": {"full_name": "Vânzări", "phone": account},
            "attachments": [],
        },
    }


def an_echo(
    text: str, *, uid: str, at: str = "2026-11-18 12:00:00 +0200", **changes: str
) -> dict[str, Any]:
    """What TimelinesAI tells of a message that a program sent from our number."""
    echo = a_webhook(text, uid=uid, **changes)
    echo["event_type"] = "message:sent:new"
    message = echo["message"]
    message |= {"direction": "sent", "origin": "Public API", "timestamp": at}
    message["sender"], message["recipient"] = message["recipient"], message["sender"]
    return echo


def store(
    database: Engine,
    body: dict[str, Any] | bytes,
    *,
    provider: str = "timelinesai",
    at: datetime = NOON,
    source: inbox.Source = "webhook",
) -> None:
    """Keep a body as the web service would."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    try:
        envelope = READERS[provider].envelope(raw)
        what = (envelope.event_key, envelope.event_type, envelope.account, envelope.contact)
    except Exception:  # noqa: BLE001 - what nobody can read is kept too
        what = (uuid.uuid4().hex, "unreadable", None, None)
    key, event_type, account, contact = what
    copy = InboundCopy(provider, key, event_type, account or "", contact or "", raw)
    with database.begin() as conn:
        inbox.keep(conn, [copy], source=source, now=at)


def said(sandbox: RunningSandbox, text: str, **where: str) -> dict[str, Any]:
    """Let the lead really write, so that the provider shows it; returns its webhook."""
    line = sandbox.inbound(where.get("account", OURS), where.get("contact", THEIRS), text)
    return a_webhook(text, uid=str(line["message_uid"]), **where)


def the_events(database: Engine) -> list[dict[str, object]]:
    return rows(database, "SELECT * FROM webhook_events ORDER BY received_at, id")


def the_lead(database: Engine) -> dict[str, object]:
    return the_row(database, "SELECT * FROM gold_lead_journey")


# ── Handling ──────────────────────────────────────────────────────────────────────────────────


def test_a_stored_reply_becomes_a_fact(servers: Servers, office: Office):
    database, _, sandbox = servers
    store(database, said(sandbox, "Da, mă interesează"))
    assert handle_waiting(office.desk, READERS) == {"done": 1}
    (event,) = the_events(database)
    assert (event["state"], event["tries"], event["error"]) == ("done", 0, None)
    assert "now WARM_REPLY" in str(event["result"])
    assert the_lead(database)["engagement_stage"] == "WARM_REPLY"
    assert handle_waiting(office.desk, READERS) == {}


def test_a_stored_reply_holds_the_next_message_until_it_is_read(servers: Servers, office: Office):
    database, _, sandbox = servers
    store(database, said(sandbox, "Da, mă interesează"))
    office.wait(timedelta(days=2))
    assert office.claim() == Nothing(office.clock.now() + timedelta(seconds=30))
    waiting = the_row(database, "SELECT * FROM outbox_messages WHERE step = 2")
    assert waiting["state"] == "deferred"
    assert str(waiting["reason"]).startswith("unheard_reply")
    handle_waiting(office.desk, READERS)
    office.wait(MINUTE)
    assert office.claim() == Nothing(None)
    assert len(sandbox.accepted()) == 1


def test_events_of_a_person_are_heard_in_the_order_they_came(servers: Servers, office: Office):
    database, _, sandbox = servers
    for n in range(5):
        store(database, said(sandbox, f"mesajul {n}"), at=NOON + n * MINUTE)
    handle_waiting(office.desk, READERS)
    heard = rows(
        database,
        "SELECT content FROM gold_communication_log WHERE direction = 'INBOUND' ORDER BY heard_at,"
        " ctid",
    )
    assert [one["content"] for one in heard] == [f"mesajul {n}" for n in range(5)]


def test_what_nobody_can_read_is_a_dead_letter_at_once(database: Engine, office: Office):
    store(database, b"\xff\x00 not json")
    assert handle_waiting(office.desk, READERS) == {"dead": 1}
    (event,) = the_events(database)
    assert (event["state"], event["tries"]) == ("dead", 1)
    letter = the_row(database, "SELECT * FROM dead_letters")
    assert (letter["event_id"], letter["code"]) == (event["id"], "UNREADABLE_WEBHOOK")


def test_a_poisoned_event_is_given_up_after_five_tries_and_holds_no_other_up(
    servers: Servers, office: Office, monkeypatch: pytest.MonkeyPatch
):
    database, _, sandbox = servers
    poison, good = said(sandbox, "otravă"), said(sandbox, "bună")
    store(database, poison, at=NOON)
    store(database, good, at=NOON + MINUTE)
    real = hearing.meaning_of

    def choke(event: Any) -> Any:
        if event.text == "otravă":
            raise RuntimeError("a fault of ours")
        return real(event)

    monkeypatch.setattr(hearing, "meaning_of", choke)
    assert handle_waiting(office.desk, READERS) == {"put off": 1, "done": 1}
    assert handle_waiting(office.desk, READERS) == {}  # it waits a little
    outcomes: Counter[str] = Counter()
    for _ in range(4):
        office.clock.move(timedelta(hours=1))
        outcomes += handle_waiting(office.desk, READERS)
    assert outcomes == {"put off": 3, "dead": 1}
    event = the_events(database)[0]
    assert (event["state"], event["tries"]) == ("dead", 5)
    assert "RuntimeError in choke" in str(event["error"])
    assert "otravă" not in str(event["error"])
    letter = the_row(database, "SELECT * FROM dead_letters")
    assert (letter["code"], letter["tenant_id"]) == ("UNHANDLED_EVENT", "acme")
    assert the_row(database, "SELECT count(*) AS n FROM gold_communication_log")["n"] == 2


@pytest.mark.parametrize("where", ["read", "words"])
def test_a_fault_in_reading_one_event_holds_no_other_up(
    servers: Servers, office: Office, monkeypatch: pytest.MonkeyPatch, where: str
):
    database, _, sandbox = servers
    store(database, said(sandbox, "otravă"), at=NOON)
    store(database, said(sandbox, "STOP"), at=NOON + MINUTE)
    readers = dict(READERS)
    if where == "read":
        real_read = READERS["timelinesai"].read

        class Choking(TimelinesAIWebhooks):
            def read(self, body: bytes, *, received_at: datetime) -> Any:
                if b"otrav" in body:
                    raise ZeroDivisionError
                return real_read(body, received_at=received_at)

        readers["timelinesai"] = Choking(("token",))
    else:
        real = drain_module.meaning_of

        def choke(event: Any) -> Any:
            if event.text == "otravă":
                raise ZeroDivisionError
            return real(event)

        monkeypatch.setattr(drain_module, "meaning_of", choke)
    assert handle_waiting(office.desk, readers) == {"put off": 1, "done": 1}
    assert the_lead(database)["whatsapp_opted_out"] is True
    for _ in range(4):
        office.clock.move(timedelta(hours=1))
        handle_waiting(office.desk, readers)
    assert the_row(database, "SELECT code FROM dead_letters") == {"code": "UNHANDLED_EVENT"}


def test_a_lead_that_somebody_keeps_locked_holds_nobody_elses_stop_up(
    servers: Servers, office: Office
):
    database, *_ = servers
    with database.begin() as conn:
        some_leads(conn, first=7)

    @contextmanager
    def impatient() -> Iterator[Connection]:
        with database.begin() as conn:
            conn.execute(text("SET LOCAL lock_timeout = '300ms'"))
            yield conn

    desk = replace(office.desk, begin=impatient)
    store(database, a_webhook("STOP"), at=NOON)
    store(database, a_webhook("STOP", contact="+40721000007"), at=NOON + MINUTE)
    with database.begin() as conn:
        conn.execute(
            text("""
                SELECT 1 FROM gold_lead_journey j JOIN gold_companies c ON c.id = j.lead_id
                WHERE telefon_principal = :theirs FOR UPDATE OF j
            """),
            {"theirs": THEIRS},
        )
        assert handle_waiting(desk, READERS) == {"put off": 1, "done": 1}
    office.wait(MINUTE)
    assert handle_waiting(desk, READERS) == {"done": 1}
    assert [event["tries"] for event in the_events(database)] == [0, 0]
    stopped = rows(database, "SELECT 1 FROM gold_lead_journey WHERE whatsapp_opted_out")
    assert len(stopped) == 2


def test_an_unsigned_event_is_asked_for_before_anything_follows(servers: Servers, office: Office):
    database, *_ = servers
    store(database, a_webhook("Da, vreau oferta"))  # right token, but nobody said this
    outcomes: Counter[str] = Counter()
    for _ in range(7):
        outcomes += handle_waiting(office.desk, READERS)
        office.clock.move(timedelta(hours=1))
    assert outcomes == {"put off": 6, "dead": 1}
    assert the_row(database, "SELECT code FROM dead_letters") == {"code": "UNCONFIRMED_SENDER"}
    assert the_lead(database)["reply_count"] == 0
    assert states(database) == {"sent": 1, "planned": 1}


def a_told_status(word: str, uid: str, **failure: Any) -> dict[str, Any]:
    """What TimelinesAI tells of a message of ours, or whoever knows the token."""
    return {
        "event_type": f"waba:message:{word}",
        "whatsapp_account": {"phone": OURS},
        "chat": {"chat_id": 1000001, "phone": THEIRS, "is_group": False},
        "message": {
            "message_uid": uid,
            "timestamp": "2026-11-18 12:01:00 +0200",
            "recipient": {"phone": THEIRS},
            **({"failure_reason": failure} if failure else {}),
        },
    }


def everything_that_matters(database: Engine) -> list[list[dict[str, object]]]:
    """All that follows from a status, wherever it stands."""
    return [
        rows(database, f"SELECT * FROM {table} ORDER BY 1")
        for table in (
            *("outbox_messages", "gold_lead_journey", "gold_communication_log", "quota_ledger"),
            *("dead_letters", "early_deliveries", "suppressions", "wa_phone_numbers", "switches"),
        )
    ]


FORGED: list[tuple[str, dict[str, Any]]] = [
    ("failed", {"code": 131026, "title": "Undeliverable"}),
    ("failed", {"code": 131047, "title": "Re-engagement message"}),
    ("failed", {"code": 131048, "title": "Spam rate limit hit"}),
    ("failed", {}),
    ("delivered", {}),
    ("read", {}),
]


@pytest.mark.parametrize("whose", ["ours", "unknown"])
@pytest.mark.parametrize(("word", "failure"), FORGED)
def test_a_status_that_its_provider_does_not_confirm_changes_nothing(
    servers: Servers, office: Office, word: str, failure: dict[str, Any], whose: str
):
    database, _, sandbox = servers
    run_sql(database, "UPDATE templates SET approved_name = 'intro_ro'")
    sandbox.fault("not_delivered")
    assert office.send_after(timedelta(days=1)) is State.SENT
    sent = sandbox.accepted()[-1]["message_uid"] if whose == "ours" else "unknown"
    before = everything_that_matters(database)
    store(database, a_told_status(word, str(sent), **failure), at=office.clock.now())
    outcomes: Counter[str] = Counter()
    for _ in range(7):  # what a provider shows may come hours later
        outcomes += handle_waiting(office.desk, READERS)
        office.clock.move(timedelta(hours=1))
    assert outcomes == {"put off": 6, "done": 1}
    assert everything_that_matters(database) == before
    assert str(the_events(database)[0]["result"]).startswith("not confirmed")


def test_a_failure_is_believed_when_its_provider_shows_it_and_its_code_decides_nothing(
    servers: Servers, office: Office
):
    database, _, sandbox = servers
    run_sql(database, "UPDATE templates SET approved_name = 'intro_ro'")
    sandbox.fault("fails_later")
    assert office.send_after(timedelta(days=1)) is State.SENT
    uid = str(sandbox.accepted()[-1]["message_uid"])
    # Nothing goes out again, and no phone stops, because of a code that anybody may have written.
    store(database, a_told_status("failed", uid, code=131047, title="Re-engagement message"))
    assert handle_waiting(office.desk, READERS) == {"done": 1}
    letter = the_row(database, "SELECT code, detail FROM dead_letters")
    assert letter == {"code": "FAILED_LATER", "detail": "131047: Re-engagement message"}
    assert states(database) == {"sent": 2}


def test_an_echo_that_its_provider_does_not_confirm_settles_nothing(servers: Servers):
    database, _, sandbox = servers
    office = an_office(*servers, steps=(FIRST, SECOND))
    sandbox.fault("cut_before_accept", times=1)
    assert office.send() is State.UNCONFIRMED
    text = str(the_row(database, "SELECT body FROM outbox_messages")["body"])
    store(database, an_echo(text, uid="unknown"))
    assert handle_waiting(office.desk, READERS) == {"done": 1}
    assert states(database) == {"unconfirmed": 1}


def test_an_echo_with_the_words_of_another_message_settles_nothing(
    servers: Servers, office: Office
):
    database, _, sandbox = servers
    (line,) = sandbox.accepted()
    office.wait(timedelta(days=1))
    sandbox.fault("cut_before_accept", times=1)
    assert office.send() is State.UNCONFIRMED
    asked = "SELECT body FROM outbox_messages WHERE state = 'unconfirmed'"
    text = str(the_row(database, asked)["body"])
    store(database, an_echo(text, uid=str(line["message_uid"]), at="2026-11-19 12:00:00 +0200"))
    handle_waiting(office.desk, READERS)
    assert states(database) == {"sent": 1, "unconfirmed": 1}


def test_a_stop_is_honoured_without_asking(servers: Servers, office: Office):
    database, _, sandbox = servers
    sandbox.fault("server_error", status=503, operation="any")
    store(database, a_webhook("STOP"))
    assert handle_waiting(office.desk, READERS) == {"done": 1}
    assert the_lead(database)["whatsapp_opted_out"] is True


def test_a_provider_that_cannot_be_asked_costs_no_try(servers: Servers, office: Office):
    database, _, sandbox = servers
    store(database, said(sandbox, "Da"))
    sandbox.fault("server_error", status=503, operation="any")
    for _ in range(7):
        assert handle_waiting(office.desk, READERS) == {"put off": 1}
        office.clock.move(timedelta(hours=1))
    assert the_events(database)[0]["tries"] == 0
    sandbox.lift()
    assert handle_waiting(office.desk, READERS) == {"done": 1}


def test_a_signed_event_needs_no_asking(servers: Servers, office: Office):
    database, *_ = servers
    signed = {**READERS, "timelinesai": TimelinesAIWebhooks(("t",), signing_secrets=("s",))}
    store(database, a_webhook("Da"))
    assert handle_waiting(office.desk, signed) == {"done": 1}


def test_two_drains_at_once_hear_everything_once(servers: Servers, office: Office):
    database, _, sandbox = servers
    for n in range(30):
        store(database, said(sandbox, f"mesajul {n}"), at=NOON + n * MINUTE)
    threads = [
        threading.Thread(target=handle_waiting, args=[office.desk, READERS]) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    office.clock.move(MINUTE)
    handle_waiting(office.desk, READERS)  # an account has only so many reads in a minute
    assert the_lead(database)["reply_count"] == 30
    assert {event["state"] for event in the_events(database)} == {"done"}


def test_a_drain_that_dies_before_its_commit_is_made_up_for(
    servers: Servers, office: Office, monkeypatch: pytest.MonkeyPatch
):
    database, _, sandbox = servers
    store(database, said(sandbox, "Da"))

    class Died(BaseException):
        pass

    def die(*_: object, **__: object) -> None:
        raise Died

    monkeypatch.setattr(inbox, "finish", die)
    with pytest.raises(Died):
        handle_waiting(office.desk, READERS)
    assert the_lead(database)["reply_count"] == 0
    monkeypatch.undo()
    assert handle_waiting(office.desk, READERS) == {"done": 1}
    assert the_lead(database)["reply_count"] == 1


def test_a_stop_never_waits_behind_a_provider_that_does_not_answer(
    servers: Servers, office: Office
):
    database, _, sandbox = servers
    for n in range(AT_ONCE + 10):
        other = said(sandbox, f"mesajul {n}", contact="+40733000000")
        store(database, other, at=NOON + n * A_SECOND)
    store(database, a_webhook("STOP"), at=NOON + timedelta(hours=1))
    asked = sandbox.fault("server_error", status=503, operation="any")
    first = handle_waiting(office.desk, READERS)
    assert first == {"put off": AT_ONCE, "done": 1}
    assert the_lead(database)["whatsapp_opted_out"] is True
    assert handle_waiting(office.desk, READERS) == {"put off": 10}
    # Once a round is enough to know that nobody answers.
    (fault,) = [one for one in sandbox.faults() if one["id"] == asked]
    assert fault["seen"] == 2


class Watching:
    """A history that knows every message, and says what was known when it was first asked."""

    lists_chats = True

    def __init__(self, look: Callable[[], object]) -> None:
        self.look = look
        self.seen: list[object] = []

    def shown(self, *_: Any, **__: Any) -> Shown:
        if not self.seen:
            self.seen.append(self.look())
        return Shown(from_us=False, text="", status="delivered")


@pytest.mark.parametrize("words", ["STOP", "dragă Ion, lasă-ne în pace te rog"])
def test_what_may_be_a_stop_goes_before_all_that_must_be_asked_for(
    servers: Servers, office: Office, words: str
):
    database, _, sandbox = servers
    for n in range(2 * AT_ONCE + 10):
        other = a_webhook(f"mesajul {n}", contact="+40733000000")
        store(database, other, at=NOON + n * A_SECOND)
    store(database, said(sandbox, words), at=NOON + timedelta(hours=1))
    ended = "SELECT hold_reason, whatsapp_opted_out FROM gold_lead_journey"
    history = Watching(lambda: the_row(database, ended))
    rounds = iter(range(60))
    desk = replace(office.desk, histories={"timelinesai": history})  # pyright: ignore
    handle_waiting(desk, READERS, go_on=lambda: next(rounds, None) is not None)
    if words == "STOP":
        assert history.seen == [{"hold_reason": "opted_out", "whatsapp_opted_out": True}]
    assert the_lead(database)["hold_reason"] in ("opted_out", "reply")


def test_a_stop_that_comes_while_a_provider_is_asked_does_not_wait_for_its_answer(
    servers: Servers, office: Office
):
    database, *_ = servers

    def stop_and_wait() -> object:
        store(database, a_webhook("STOP"), at=NOON)
        for _ in range(100):
            if the_lead(database)["whatsapp_opted_out"]:
                return "opted out"
            time.sleep(0.1)
        return "still waiting"

    history = Watching(stop_and_wait)
    store(database, a_webhook("Da, vreau oferta", contact="+40733000000"))
    desk = replace(office.desk, histories={"timelinesai": history})  # pyright: ignore
    assert handle_waiting(desk, READERS) == {"done": 2}
    assert history.seen == ["opted out"]


def test_replies_that_come_while_statuses_are_asked_for_go_before_the_other_statuses(
    servers: Servers, office: Office, monkeypatch: pytest.MonkeyPatch
):
    database, *_ = servers
    monkeypatch.setattr(drain_module, "AT_ONCE", 6)
    replies = [a_webhook(f"Da {n}", contact="+40733000000") for n in range(3)]
    for n in range(5):
        store(database, a_told_status("delivered", f"status-{n}"), at=NOON + n * A_SECOND)
    asked: list[str] = []

    class Asked(Watching):
        def shown(self, external_id: str, **_: Any) -> Shown:
            if not asked:
                for told in replies:
                    store(database, told, at=NOON + MINUTE)
                time.sleep(1)  # long enough for a look at what came in
            is_status = external_id.startswith("status")
            asked.append("status" if is_status else "reply")
            return Shown(from_us=is_status, text="", status="delivered")

    desk = replace(office.desk, histories={"timelinesai": Asked(lambda: None)})  # pyright: ignore
    while handle_waiting(desk, READERS):
        pass
    assert asked == ["status", *["reply"] * 3, *["status"] * 4]


def test_a_long_round_keeps_its_lease_and_ends_in_time(servers: Servers, office: Office):
    database, _, sandbox = servers
    for n in range(20):
        store(database, said(sandbox, f"mesajul {n}"), at=NOON + n * A_SECOND)
    history = office.desk.histories["timelinesai"]

    class Slow:
        lists_chats = True

        def shown(self, *args: Any, **how: Any) -> Any:
            office.clock.move(timedelta(seconds=4))
            lease = the_row(database, "SELECT until FROM run_leases")["until"]
            assert isinstance(lease, datetime)
            assert lease > office.clock.now()
            return history.shown(*args, **how)

    desk = replace(office.desk, histories={"timelinesai": Slow()})  # pyright: ignore
    result = drained(desk, office.clock, longest=timedelta(seconds=30))
    assert result.ended == "its time was up"
    assert 7 <= result.outcomes["done"] <= 9


# ── The run ───────────────────────────────────────────────────────────────────────────────────


def drained(desk: Desk, clock: ManualClock, **changes: Any) -> Any:
    values: dict[str, Any] = {"who": "run-1", "longest": timedelta(minutes=10), **changes}
    return drain(desk, READERS, NoBell(clock), **values)


def test_a_drain_lingers_and_ends_when_nothing_comes(servers: Servers, office: Office):
    database, _, sandbox = servers
    store(database, said(sandbox, "Da"))
    result = drained(office.desk, office.clock)
    assert (result.outcomes, result.ended) == ({"done": 1}, "nothing came for a while")
    assert office.clock.now() >= NOON + timedelta(minutes=5)
    assert rows(database, "SELECT 1 FROM run_leases") == []


def test_a_drain_ends_when_its_time_is_up(database: Engine, office: Office):
    result = drained(office.desk, office.clock, longest=MINUTE)
    assert result.ended == "its time was up"


def test_a_second_drain_leaves_the_first_alone(database: Engine, office: Office):
    run_sql(
        database,
        "INSERT INTO run_leases VALUES ('inbox', 'run-0', :until)",
        until=NOON + MINUTE,
    )
    assert drained(office.desk, office.clock).ended == "another run drains the inbox"
    assert the_row(database, "SELECT holder FROM run_leases") == {"holder": "run-0"}
    office.clock.move(2 * MINUTE)
    assert drained(office.desk, office.clock).ended == "nothing came for a while"


def test_a_run_that_starts_during_a_tick_waits_for_its_turn(servers: Servers, office: Office):
    database, _, sandbox = servers
    run_sql(
        database,
        "INSERT INTO run_leases VALUES ('inbox', 'the sensor', :until)",
        until=NOON + timedelta(seconds=8),
    )
    store(database, said(sandbox, "Da"))
    assert drained(office.desk, office.clock).outcomes == {"done": 1}


@pytest.fixture
def bell(database: Engine) -> Iterator[Bell]:
    bell = Bell(database)
    yield bell
    bell.close()


def test_the_bell_rings_when_an_event_is_kept(database: Engine, bell: Bell):
    assert bell.wait(0.05) is False
    timer = threading.Timer(0.2, store, args=[database, a_webhook()])
    timer.start()
    assert bell.wait(10) is True
    timer.join()


def test_a_bell_survives_its_connection(database: Engine, bell: Bell):
    bell.wait(0.01)
    run_sql(
        database,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'",
    )
    assert bell.wait(0.05) is False
    timer = threading.Timer(0.2, store, args=[database, a_webhook()])
    timer.start()
    assert bell.wait(10) is True
    timer.join()


# ── What the providers say of our own sends ───────────────────────────────────────────────────


def test_the_echo_of_an_unconfirmed_send_settles_it_at_once(servers: Servers):
    database, _, sandbox = servers
    office = an_office(*servers, steps=(FIRST, SECOND))
    sandbox.fault("accept_then_cut", times=1)
    assert office.send() is State.UNCONFIRMED
    (line,) = sandbox.accepted()
    store(database, an_echo(str(line["text"]), uid=str(line["message_uid"])))
    assert handle_waiting(office.desk, READERS) == {"done": 1}
    assert states(database) == {"sent": 1, "planned": 1}
    assert the_events(database)[0]["result"] == "the echo of a message of ours"


def test_a_phone_that_is_said_to_be_gone_is_asked_for(servers: Servers, office: Office):
    database, _, sandbox = servers
    gone = {
        "event_type": "whatsapp:account:disconnected",
        "whatsapp_account": {"id": f"{OURS[1:]}@s.whatsapp.net", "phone": OURS},
    }
    store(database, gone)
    assert handle_waiting(office.desk, READERS) == {"done": 1}
    status = "SELECT status FROM wa_phone_numbers"
    assert the_row(database, status) == {"status": "ACTIVE"}  # the provider says that it is there
    sandbox.set_accounts(**{OURS: "disconnected"})
    store(database, {**gone, "n": 2})
    handle_waiting(office.desk, READERS)
    assert the_row(database, status) == {"status": "OFFLINE"}


def test_statuses_of_a_batch_are_taken_in_together(servers: Servers, office: Office):
    database, *_ = servers
    external = the_row(database, "SELECT external_id FROM outbox_messages WHERE state = 'sent'")
    for n, status in enumerate(("read", "delivered", "sent")):
        told = {"id": external["external_id"], "status": status, "timestamp": f"176347690{n}"}
        value = {
            "messaging_product": "whatsapp",
            "metadata": {"display_phone_number": OURS[1:], "phone_number_id": "1"},
            "statuses": [{**told, "recipient_id": THEIRS[1:]}],
        }
        change = {"field": "messages", "value": value}
        body = {"object": "whatsapp_business_account", "entry": [{"id": "1", "changes": [change]}]}
        store(database, body, provider="meta", at=NOON + n * MINUTE)
    assert handle_waiting(office.desk, READERS) == {"done": 3}
    assert the_row(database, "SELECT status FROM gold_communication_log") == {"status": "READ"}
    assert all("of 3 events together" in str(one["result"]) for one in the_events(database))


# ── What an event causes ──────────────────────────────────────────────────────────────────────


def name(database: Engine, correlation_id: str) -> None:
    """Let the last event have come under this name."""
    run_sql(
        database,
        """UPDATE webhook_events SET correlation_id = :name
           WHERE id = (SELECT max(id) FROM webhook_events)""",
        name=correlation_id,
    )


def caused(database: Engine, table: str, what: str) -> set[object]:
    """The events that caused these rows."""
    found = rows(database, f"SELECT correlation_id FROM {table} WHERE {what}")
    return {row["correlation_id"] for row in found}


def test_everything_that_an_event_causes_carries_its_name(
    database: Engine, office: Office, caplog: pytest.LogCaptureFixture
):
    caplog.set_level("INFO", logger="cerniq")
    store(database, a_webhook("Vreau să vorbesc cu un avocat"), source="sweep")
    name(database, "call-17")
    assert handle_waiting(office.desk, READERS)["done"] == 1
    for table, what in (
        ("outbox_changes", "to_state = 'cancelled'"),
        ("gold_communication_log", "direction = 'INBOUND'"),
        ("stage_changes", "to_stage = 'WARM_REPLY'"),
    ):
        assert caused(database, table, what) == {"call-17"}, table
    review = the_row(database, "SELECT human_review_correlation_id AS of FROM gold_lead_journey")
    assert review["of"] == "call-17"
    handled = [line for line in caplog.messages if "event handled" in line]
    assert all("correlation=call-17" in line for line in handled)
    assert handled

    store(database, a_webhook("Stop"), source="sweep")
    name(database, "call-18")
    handle_waiting(office.desk, READERS)
    assert caused(database, "suppressions", "true") == {"call-18"}
    # What comes after it, in the same process and on the same connections, is not its doing.
    run_sql(
        database,
        "INSERT INTO alerts (kind, subject, detail, opened_at) VALUES ('x', '', '', now())",
    )
    assert caused(database, "alerts", "kind = 'x'") == {None}
    assert caused(database, "outbox_changes", "to_state = 'sending'") == {None}


def test_a_letter_and_its_alert_carry_the_name_of_the_event_that_nobody_can_read(
    database: Engine, office: Office
):
    store(database, b"nobody can read this")
    name(database, "call-19")
    assert handle_waiting(office.desk, READERS)["dead"] == 1
    assert caused(database, "dead_letters", "true") == {"call-19"}
    assert caused(database, "alerts", "kind = 'inbox_dead'") == {"call-19"}


def test_statuses_of_one_batch_carry_each_its_own_name(servers: Servers):
    database, *_ = servers
    office = an_office(*servers, leads=3, steps=(FIRST, SECOND))
    for _ in range(2):
        assert office.send_after(5 * MINUTE) is State.SENT
    told = rows(database, "SELECT id, external_id FROM outbox_messages WHERE state = 'sent'")
    for row in told:
        store(database, failed_at_meta(str(row["external_id"])), provider="meta")
        name(database, f"call-{row['id']}")
    store(database, failed_at_meta("not-here-yet"), provider="meta")
    name(database, "call-early")
    assert handle_waiting(office.desk, READERS)["done"] == 3
    letters = rows(database, "SELECT message_id, correlation_id FROM dead_letters")
    assert {(row["message_id"], row["correlation_id"]) for row in letters} == {
        (row["id"], f"call-{row['id']}") for row in told
    }
    cancelled = "to_state = 'cancelled'"
    assert caused(database, "outbox_changes", cancelled) == {f"call-{row['id']}" for row in told}
    # What was told too early keeps its name until its message is there.
    office.wait(5 * MINUTE)
    last = office.claimed()
    recording.record(office.desk, last, Receipt("not-here-yet"), who="test")
    late = the_row(database, "SELECT * FROM dead_letters WHERE message_id = :id", id=last.id)
    assert late["correlation_id"] == "call-early"
    assert caused(database, "outbox_changes", f"message_id = {last.id}") == {None}


def failed_at_meta(external_id: str) -> dict[str, Any]:
    """What Meta tells of a message that never reached its person."""
    status = {
        "id": external_id,
        "status": "failed",
        "timestamp": "1795000000",
        "recipient_id": THEIRS.lstrip("+"),
        "errors": [{"code": 131026, "title": "Message undeliverable"}],
    }
    value = {
        "messaging_product": "whatsapp",
        "metadata": {"display_phone_number": OURS.lstrip("+"), "phone_number_id": "1"},
        "statuses": [status],
    }
    return {
        "object": "whatsapp_business_account",
        "entry": [{"id": "1", "changes": [{"field": "messages", "value": value}]}],
    }
