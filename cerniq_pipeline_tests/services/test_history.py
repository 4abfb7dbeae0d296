"""What was said reaches us once: by the log of a lead, and by the sweep when no webhook came."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from sqlalchemy import Engine

from cerniq_pipeline.domain.history import (
    LONGEST_PAUSE,
    ChatPage,
    History,
    HistoryMessage,
    InboundCopy,
)
from cerniq_pipeline.domain.outbox import State
from cerniq_pipeline.domain.reads import LIMITS, Turn, What
from cerniq_pipeline.errors import NotFound, ProviderUnreadable, ReadsUsedUp
from cerniq_pipeline.providers.calls import open_client
from cerniq_pipeline.providers.timelinesai.history import PublicHistory
from cerniq_pipeline.services.history import (
    FAILURES_IN_A_ROW,
    FAR_BACK,
    FULL_SLICE,
    OVERLAP,
    STUCK_AFTER,
    Fetched,
    Swept,
    fetch_chat,
    full_sweep_due,
    sweep,
    sweep_all,
    sweep_fully,
)
from cerniq_pipeline.services.reads import at_once, turns
from cerniq_pipeline.services.reconcile import settle_unconfirmed
from cerniq_pipeline.services.sending import Desk
from cerniq_pipeline.store import histories, inbox
from cerniq_pipeline.store.quotas import QuotaGate
from cerniq_pipeline_tests.builders import (
    ManualClock,
    a_desk,
    an_office,
    rows,
    run_sql,
    states,
    the_row,
)
from cerniq_pipeline_tests.sandbox.running import RunningSandbox

THEN = datetime(2024, 11, 20, 10, 0, tzinfo=UTC)
"""A working noon of the past: the sandbox's own clock is real, and runs after it."""

LONG = timedelta(minutes=10)
MINUTE = timedelta(minutes=1)
FIRST_PHONE, SECOND_PHONE, THIRD_PHONE = "+40790000000", "+40790000001", "+40790000002"

Servers = tuple[Engine, Redis, RunningSandbox]


@pytest.fixture
def servers(database: Engine, redis: Redis, sandbox: RunningSandbox) -> Servers:
    """The three real servers, empty."""
    return database, redis, sandbox


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(THEN)


@pytest.fixture
def desk(servers: Servers, clock: ManualClock) -> Desk:
    """A desk over the real servers that can read the sandbox's history."""
    return reading(a_desk(*servers, clock), servers[2])


def reading(desk: Desk, sandbox: RunningSandbox) -> Desk:
    history = PublicHistory(open_client(sandbox.public_url, "sandbox-token"))
    return replace(desk, histories={"timelinesai": history})


def a_person(n: int) -> str:
    return f"+40721{n:06d}"


@dataclass
class Reads:
    """How many reads the sandbox has had since the last question."""

    sandbox: RunningSandbox
    fault: str

    def count(self) -> int:
        (mine,) = [one for one in self.sandbox.faults() if one["id"] == self.fault]
        return mine["seen"]


def counting(sandbox: RunningSandbox, operation: str = "any") -> Reads:
    """Count calls by a fault that never strikes."""
    return Reads(sandbox, sandbox.fault("server_error", operation=operation, probability=0))


# ── One lead's chat ───────────────────────────────────────────────────────────────────────────


def test_a_chat_comes_into_the_log_in_both_directions_and_once(servers: Servers):
    database, _, sandbox = servers
    office = an_office(*servers, now=THEN)
    desk = reading(office.desk, sandbox)
    assert office.send() is State.SENT
    lead = the_row(database, "SELECT lead_id, chat_id FROM gold_lead_journey")
    contact = sandbox.accepted()[0]["recipient"]
    assert lead["chat_id"] is None  # so that it must be found
    replies = [
        sandbox.inbound(FIRST_PHONE, contact, f"Răspuns {n}", at=THEN + n * MINUTE)
        for n in range(120)
    ]
    typed = sandbox.inbound(FIRST_PHONE, contact, "Sun eu", by_hand=True, at=THEN + 2 * LONG)
    sandbox.inbound(FIRST_PHONE, contact, kind="image", at=THEN + 3 * LONG)
    sandbox.inbound(SECOND_PHONE, contact, "altcuiva")

    fetched = fetch_chat(desk, lead["lead_id"])  # pyright: ignore[reportArgumentType]

    assert (fetched.chats, fetched.read, fetched.new) == (1, 123, 122)
    assert fetched.oldest == THEN
    logged = rows(database, "SELECT * FROM gold_communication_log ORDER BY sent_at, id")
    assert len(logged) == 123
    assert {row["lead_journey_id"] for row in logged} == {lead["lead_id"]}
    by_id = {row["external_message_id"]: row for row in logged}
    first = by_id[replies[0]["message_uid"]]
    assert (first["direction"], first["status"], first["content_rendered"]) == (
        "INBOUND",
        "DELIVERED",
        "Răspuns 0",
    )
    assert (first["sent_at"], first["phone_id"], first["thread_id"]) == (
        THEN,
        "acme-01",
        str(replies[0]["chat_id"]),
    )
    assert by_id[typed["message_uid"]]["direction"] == "OUTBOUND"
    assert [row["media_type"] for row in logged if row["media_type"]] == ["other"]
    ours = by_id[sandbox.accepted()[0]["message_uid"]]
    assert ours["job_id"] is not None  # the row that the send wrote, not another

    again = fetch_chat(desk, lead["lead_id"])  # pyright: ignore[reportArgumentType]
    assert (again.read, again.new) == (123, 0)
    assert len(rows(database, "SELECT 1 FROM gold_communication_log")) == 123
    assert rows(database, "SELECT 1 FROM webhook_events") == []


def test_a_send_that_is_still_in_doubt_is_not_logged_as_somebody_elses(servers: Servers):
    database, _, sandbox = servers
    office = an_office(*servers, now=THEN)
    desk = reading(office.desk, sandbox)
    fault = sandbox.fault("accept_then_cut")
    assert office.send() is State.UNCONFIRMED
    sandbox.lift(fault)
    sandbox.inbound(FIRST_PHONE, sandbox.accepted()[0]["recipient"], "Da")
    lead_id = the_row(database, "SELECT lead_id FROM outbox_messages")["lead_id"]
    run_sql(database, "UPDATE gold_lead_journey SET assigned_phone_id = 'acme-01'")

    assert fetch_chat(desk, lead_id).new == 1  # pyright: ignore[reportArgumentType]
    assert rows(database, "SELECT direction FROM gold_communication_log") == [
        {"direction": "INBOUND"}
    ]
    assert settle_unconfirmed(desk, settle_time=LONG, who="test") == {"sent": 1}
    fetch_chat(desk, lead_id)  # pyright: ignore[reportArgumentType]
    ours = the_row(
        database, "SELECT job_id FROM gold_communication_log WHERE direction = 'OUTBOUND'"
    )
    assert ours["job_id"] is not None


@pytest.mark.parametrize(
    ("before", "told", "after"),
    [
        ("SENT", "sending", "SENT"),
        ("SENT", "delivered", "DELIVERED"),
        ("SENT", "read", "READ"),
        ("READ", "delivered", "READ"),
        ("SENT", "failed", "FAILED"),
        ("FAILED", "sent", "FAILED"),
        ("FAILED", "delivered", "DELIVERED"),
        ("DELIVERED", "failed", "DELIVERED"),
    ],
)
def test_a_status_only_moves_forward(
    servers: Servers, clock: ManualClock, before: str, told: str, after: str
):
    database, _, sandbox = servers
    office = an_office(*servers, now=THEN)
    office.send()
    run_sql(database, "UPDATE gold_communication_log SET status = :s", s=before)
    lead_id = the_row(database, "SELECT lead_id FROM gold_lead_journey")["lead_id"]
    shown = a_told_message(sandbox.accepted()[0]["message_uid"], status=told)
    with database.begin() as conn:
        (chat,) = histories.chats_of(conn, lead_id)  # pyright: ignore[reportArgumentType]
        logged = histories.log(conn, chat, [shown, shown], now=THEN)
    assert (logged.new, logged.moved) == (0, int(before != after))
    assert the_row(database, "SELECT status FROM gold_communication_log")["status"] == after


def test_a_send_that_failed_later_has_its_consequences_when_its_chat_is_fetched(servers: Servers):
    database, _, sandbox = servers
    office = an_office(*servers, now=THEN, steps=("Unu", "Doi"))
    desk = reading(office.desk, sandbox)
    sandbox.fault("fails_later")
    assert office.send() is State.SENT
    lead_id = the_row(database, "SELECT lead_id FROM gold_lead_journey")["lead_id"]
    assert fetch_chat(desk, lead_id).moved == 1  # pyright: ignore[reportArgumentType]
    assert the_row(database, "SELECT status FROM gold_communication_log") == {"status": "FAILED"}
    assert len(rows(database, "SELECT 1 FROM dead_letters")) == 1
    assert states(database) == {"sent": 1, "cancelled": 1}
    assert fetch_chat(desk, lead_id).moved == 0  # pyright: ignore[reportArgumentType]


def a_told_message(external_id: str, *, status: str) -> HistoryMessage:
    event = InboundCopy("timelinesai", external_id, "message:sent:new", "", "", b"{}")
    return HistoryMessage(
        external_id, "1", True, FIRST_PHONE, a_person(0), "x", THEN, status, False, True, event
    )


def test_a_lead_without_a_phone_has_no_chat_and_an_unknown_lead_is_said_to_be_unknown(
    servers: Servers,
):
    database, *_ = servers
    office = an_office(*servers, now=THEN)
    desk = reading(office.desk, servers[2])
    run_sql(database, "UPDATE gold_lead_journey SET assigned_phone_id = NULL")
    lead_id = the_row(database, "SELECT lead_id FROM gold_lead_journey")["lead_id"]
    assert fetch_chat(desk, lead_id) == Fetched(0, 0, 0, 0, None, None)  # pyright: ignore[reportArgumentType]
    run_sql(database, "DELETE FROM gold_companies")
    with pytest.raises(NotFound):
        fetch_chat(desk, lead_id)  # pyright: ignore[reportArgumentType]


def test_the_chats_with_earlier_phones_of_a_lead_are_fetched_too(servers: Servers):
    database, _, sandbox = servers
    office = an_office(*servers, now=THEN, phones=2)
    desk = reading(office.desk, sandbox)
    office.send()
    contact = sandbox.accepted()[0]["recipient"]
    lead_id = the_row(database, "SELECT lead_id FROM gold_lead_journey")["lead_id"]
    fetch_chat(desk, lead_id)  # pyright: ignore[reportArgumentType]
    run_sql(database, "UPDATE gold_lead_journey SET assigned_phone_id = 'acme-02', chat_id = NULL")
    run_sql(database, "UPDATE gold_communication_log SET thread_id = '1000001'")
    sandbox.inbound(FIRST_PHONE, contact, "pe numărul vechi")
    sandbox.inbound(SECOND_PHONE, contact, "pe numărul nou")
    fetched = fetch_chat(desk, lead_id)  # pyright: ignore[reportArgumentType]
    assert (fetched.chats, fetched.new) == (2, 2)


# ── The limit of reads ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("what", "most"), [("history", 100), ("chats", 20)])
def test_a_read_waits_for_its_turn(desk: Desk, clock: ManualClock, what: What, most: int):
    turn = turns(desk, "timelinesai")
    for _ in range(most):
        turn(what)
    assert clock.now() == THEN
    with pytest.raises(ReadsUsedUp):
        at_once(desk, "timelinesai")(what)
    turns(desk, "another")(what)  # another account has its own limit
    (other,) = {"history", "chats"} - {what}
    at_once(desk, "timelinesai")(other)  # pyright: ignore[reportArgumentType]
    assert clock.now() == THEN
    turn(what)
    assert clock.now() == THEN + MINUTE


def test_a_sweep_leaves_reads_to_those_for_whom_somebody_waits(desk: Desk):
    sweeping = at_once(desk, "timelinesai", sweeping=True)
    for _ in range(LIMITS["history"].of_sweeps):
        sweeping("history")
    with pytest.raises(ReadsUsedUp):
        sweeping("history")
    for _ in range(LIMITS["history"].left_to_others):
        at_once(desk, "timelinesai")("history")


def test_nobody_reads_uncounted(desk: Desk, sandbox: RunningSandbox):
    sandbox.inbound(FIRST_PHONE, a_person(1), "Bună")
    unreachable = Redis(unix_socket_path="/nowhere", retry=Retry(NoBackoff(), 0))
    blind = replace(desk, gate=QuotaGate(unreachable))
    reads = counting(sandbox)
    with pytest.raises(ReadsUsedUp):
        turns(blind, "timelinesai")("history")
    swept = sweep(blind, "timelinesai", longest=LONG)
    assert (swept.unfinished is not None, swept.out_of_time) == (True, False)
    assert reads.count() == 0


# ── Sweeps ────────────────────────────────────────────────────────────────────────────────────


def kept(database: Engine) -> list[str]:
    """The provider's ids of what is in the inbox, in the order in which it will be handled."""
    found = rows(database, "SELECT body FROM webhook_events ORDER BY received_at, id")
    return [json.loads(bytes(row["body"]))["message"]["message_uid"] for row in found]  # pyright: ignore[reportArgumentType]


def heard(sandbox: RunningSandbox) -> list[str]:
    return sorted(line["message_uid"] for line in sandbox.received())


def test_what_no_webhook_told_us_is_in_the_inbox_as_if_one_had(
    servers: Servers, desk: Desk, clock: ManualClock
):
    database, _, sandbox = servers
    told = sandbox.inbound(FIRST_PHONE, a_person(1), "Sunt interesat", at=THEN - MINUTE)
    typed = sandbox.inbound(SECOND_PHONE, a_person(2), "Revin", by_hand=True, at=THEN - MINUTE)

    assert sweep(desk, "timelinesai", longest=LONG) == Swept(chats=2, read=2, new=2)

    assert sorted(kept(database)) == sorted([told["message_uid"], typed["message_uid"]])
    row = the_row(database, "SELECT * FROM webhook_events WHERE contact = :c", c=a_person(1))
    assert (row["provider"], row["event_type"], row["account"]) == (
        "timelinesai",
        "message:received:new",
        FIRST_PHONE,
    )
    assert (row["source"], row["state"], row["received_at"]) == ("sweep", "waiting", THEN)
    assert json.loads(bytes(row["body"]))["message"]["text"] == "Sunt interesat"  # pyright: ignore[reportArgumentType]
    assert sweep(desk, "timelinesai", longest=LONG).new == 0


def test_a_message_that_a_webhook_brought_is_not_kept_twice(
    servers: Servers, desk: Desk, clock: ManualClock
):
    database, _, sandbox = servers
    sandbox.inbound(FIRST_PHONE, a_person(1), "Da", at=THEN)
    sweep(desk, "timelinesai", longest=LONG)
    copy = InboundCopy(
        **the_row(
            database,
            "SELECT provider, event_key, event_type, account, contact, body FROM webhook_events",
        )  # pyright: ignore[reportArgumentType]
    )
    run_sql(database, "DELETE FROM webhook_events")
    with database.begin() as conn:
        assert inbox.keep(conn, [copy, copy], source="webhook", now=THEN) == 1
    assert sweep(desk, "timelinesai", longest=LONG) == Swept(chats=1, read=1, new=0)
    # Once, and confirmed: its provider has shown it.
    assert the_row(database, "SELECT source FROM webhook_events") == {"source": "sweep"}


def test_our_own_sends_are_no_news(servers: Servers):
    database, _, sandbox = servers
    office = an_office(*servers, now=THEN)
    office.send()
    desk = reading(office.desk, sandbox)
    for full, seen in [(False, 1), (False, 0), (True, 1)]:
        # The first sweep is a full one. The next leaves a chat with only our first message out.
        swept = sweep(desk, "timelinesai", longest=LONG, full=full)
        assert (swept.chats, swept.read, swept.new) == (seen, seen, 0)

    (first,) = sandbox.accepted()
    sandbox.inbound(first["sender"], first["recipient"], "Da")
    swept = sweep(desk, "timelinesai", longest=LONG)
    assert (swept.chats, swept.read, swept.new) == (1, 2, 1)
    assert len(rows(database, "SELECT 1 FROM webhook_events")) == 1


def test_the_first_sweep_goes_two_days_back_and_the_next_to_the_overlap(
    servers: Servers, desk: Desk, clock: ManualClock
):
    database, _, sandbox = servers
    sandbox.inbound(FIRST_PHONE, a_person(1), "prea vechi", at=THEN - FAR_BACK - MINUTE)
    old = sandbox.inbound(FIRST_PHONE, a_person(2), "vechi", at=THEN - FAR_BACK + MINUTE)
    sweep(desk, "timelinesai", longest=LONG)
    assert kept(database) == [old["message_uid"]]
    with database.begin() as conn:
        assert histories.swept_to(conn, "timelinesai") == THEN

    clock.move(2 * OVERLAP)
    sandbox.inbound(FIRST_PHONE, a_person(3), "târziu", at=THEN - OVERLAP - MINUTE)
    late = sandbox.inbound(FIRST_PHONE, a_person(4), "la limită", at=THEN - OVERLAP)
    sweep(desk, "timelinesai", longest=LONG)
    assert kept(database) == [old["message_uid"], late["message_uid"]]
    # What came later than the overlap allows is found by the full sweep of the night.
    assert sweep(desk, "timelinesai", longest=LONG, full=True).new == 1


def test_messages_of_a_chat_are_kept_in_the_order_in_which_they_were_said(
    servers: Servers, desk: Desk
):
    database, _, sandbox = servers
    said = [
        sandbox.inbound(FIRST_PHONE, a_person(1), f"{n}", at=THEN - n * MINUTE)["message_uid"]
        for n in range(130, 0, -1)
    ]
    assert sweep(desk, "timelinesai", longest=LONG).read == 130
    assert kept(database) == said


@pytest.mark.parametrize("operation", ["chats", "history"])
def test_a_failed_read_loses_nothing(
    servers: Servers, desk: Desk, clock: ManualClock, operation: str
):
    database, _, sandbox = servers
    sweep(desk, "timelinesai", longest=LONG)
    for n in range(5):
        sandbox.inbound(FIRST_PHONE, a_person(n), "Da", at=THEN + n * MINUTE)
    clock.move(3 * OVERLAP)
    fault = sandbox.fault(
        "server_error", operation=operation, after=2 if operation != "chats" else 0
    )
    swept = sweep(desk, "timelinesai", longest=LONG)
    assert swept.unfinished is not None
    sandbox.lift(fault)
    clock.move(OVERLAP)
    assert sweep(desk, "timelinesai", longest=LONG).unfinished is None
    assert sorted(kept(database)) == heard(sandbox)


# ── Chats that cannot be read ─────────────────────────────────────────────────────────────────


BAD_CHAT = ("chat_unreadable", "timelinesai", None)


def test_a_chat_that_cannot_be_read_rests_is_told_of_and_is_come_back_to(
    servers: Servers, desk: Desk, clock: ManualClock
):
    database, _, sandbox = servers
    for n in range(6):
        sandbox.inbound(FIRST_PHONE, a_person(n), "Da", at=THEN - timedelta(hours=1 + n))
    poison = sandbox.fault("server_error", operation="history", recipient=a_person(3))
    assert sweep(desk, "timelinesai", longest=LONG) == Swept(chats=5, read=5, new=5)
    bad = Reads(sandbox, poison)
    tries = []
    for n in range(12):
        clock.move(20 * MINUTE)
        sandbox.inbound(FIRST_PHONE, a_person(100 + n), "Și eu", at=clock.now())
        # Everybody else is heard at once, and the watermark goes on.
        swept = sweep(desk, "timelinesai", longest=LONG)
        assert (swept.new, swept.unfinished) == (1, None)
        tries.append(bad.count())
    assert tries == [2, 3, 4, 5, 5, 6, 6, 6, 6, 7, 7, 7]  # less and less often
    assert open_alerts(database) == [BAD_CHAT]
    assert "1 chats" in str(the_row(database, "SELECT detail FROM alerts")["detail"])

    sandbox.lift(poison)
    clock.move(LONGEST_PAUSE)
    swept = sweep(desk, "timelinesai", longest=LONG)
    assert (swept.new, swept.unfinished) == (1, None)
    assert sorted(kept(database)) == heard(sandbox)
    assert open_alerts(database) == []
    assert rows(database, "SELECT 1 FROM unread_chats") == []


def test_many_bad_chats_cost_the_good_ones_nothing(
    servers: Servers, desk: Desk, clock: ManualClock
):
    database, _, sandbox = servers
    for n in range(30):
        sandbox.inbound(FIRST_PHONE, a_person(n), "Da", at=THEN - n * MINUTE)
        if n % 5:
            sandbox.fault("server_error", operation="history", recipient=a_person(n))
    assert sweep(desk, "timelinesai", longest=LONG) == Swept(chats=6, read=6, new=6)
    sandbox.lift()
    clock.move(LONGEST_PAUSE)
    sweep(desk, "timelinesai", longest=LONG)
    assert sorted(kept(database)) == heard(sandbox)


def test_a_bad_day_of_the_provider_is_no_chats_fault(
    servers: Servers, desk: Desk, clock: ManualClock
):
    database, _, sandbox = servers
    sandbox.inbound(FIRST_PHONE, a_person(0), "Da", at=THEN - MINUTE)
    sweep(desk, "timelinesai", longest=LONG)
    for n in range(2):
        sandbox.inbound(FIRST_PHONE, a_person(1 + n), "Da", at=THEN)
    fault = sandbox.fault("server_error", operation="history")
    for _ in range(10):
        clock.move(2 * MINUTE)
        assert sweep(desk, "timelinesai", longest=LONG).unfinished is not None
    assert {row["failures"] for row in rows(database, "SELECT failures FROM unread_chats")} == {0}
    sandbox.lift(fault)
    assert sweep(desk, "timelinesai", longest=LONG).new == 2  # at once: none of them must rest


class Twisted:
    """A history in which some rows of lists and of chats have a form that nobody knows."""

    def __init__(self, sandbox: RunningSandbox, twist: Callable[[dict[str, Any]], None]) -> None:
        self._twist = twist
        self._url = sandbox.public_url
        self._client = open_client(self._url, "sandbox-token")

    def history(self) -> History:
        transport = httpx.MockTransport(self._answer)
        return PublicHistory(httpx.Client(base_url=self._url, transport=transport))

    def _answer(self, request: httpx.Request) -> httpx.Response:
        body = self._client.get(request.url).json()
        self._twist(body["data"])
        return httpx.Response(200, json=body)


def without_ends(data: dict[str, Any]) -> None:
    for chat in data.get("chats", []):
        if chat["phone"] == a_person(1):
            del chat["phone"], chat["is_group"]
            chat["last_message_timestamp"] = "ieri"


def with_an_odd_message(data: dict[str, Any]) -> None:
    for message in data.get("messages", []):
        if message["text"] == "ciudat":
            message["timestamp"] = "ieri"


def test_a_row_of_the_list_that_cannot_be_read_costs_nobody_a_message(servers: Servers, desk: Desk):
    database, _, sandbox = servers
    for n in range(3):
        sandbox.inbound(FIRST_PHONE, a_person(n), "Da", at=THEN - MINUTE)
    odd = replace(desk, histories={"timelinesai": Twisted(sandbox, without_ends).history()})
    assert sweep(odd, "timelinesai", longest=LONG) == Swept(chats=3, read=3, new=3)
    contacts = rows(database, "SELECT account, contact FROM webhook_events ORDER BY contact")
    assert contacts == [{"account": FIRST_PHONE, "contact": a_person(n)} for n in range(3)]


def test_a_message_that_cannot_be_read_costs_its_chat_no_other(
    servers: Servers, desk: Desk, clock: ManualClock
):
    database, _, sandbox = servers
    for text in ("unu", "ciudat", "doi"):
        sandbox.inbound(FIRST_PHONE, a_person(1), text, at=THEN - MINUTE)
    odd = replace(desk, histories={"timelinesai": Twisted(sandbox, with_an_odd_message).history()})
    assert sweep(odd, "timelinesai", longest=LONG).new == 2
    clock.move(LONGEST_PAUSE)
    assert sweep(desk, "timelinesai", longest=LONG).new == 1
    assert sorted(kept(database)) == heard(sandbox)


def test_any_number_of_chats_comes_to_be_read_and_the_newest_first(
    servers: Servers, desk: Desk, clock: ManualClock
):
    database, _, sandbox = servers
    many = 90
    for n in range(many):
        sandbox.inbound(FIRST_PHONE, a_person(n), "Da", at=THEN - (many - n) * MINUTE)
    for minute in range(30):
        sandbox.inbound(FIRST_PHONE, a_person(1000 + minute), "Nou", at=clock.now())
        swept = sweep(desk, "timelinesai", longest=timedelta(seconds=20))
        new = the_row(
            database,
            "SELECT count(*) AS n FROM webhook_events WHERE contact = :c",
            c=a_person(1000 + minute),
        )
        assert new == {"n": 1}  # never behind those that wait for longer
        if swept.unfinished is None and len(kept(database)) > many:
            break
        clock.move(MINUTE)
    assert sorted(kept(database)) == heard(sandbox)


def test_a_provider_that_is_down_is_not_asked_about_every_chat(desk: Desk, sandbox: RunningSandbox):
    for n in range(10):
        sandbox.inbound(FIRST_PHONE, a_person(n), "Da", at=THEN - n * MINUTE)
    sandbox.fault("server_error", operation="history")
    reads = counting(sandbox, "history")
    assert sweep(desk, "timelinesai", longest=LONG).unfinished is not None
    assert reads.count() == FAILURES_IN_A_ROW


def open_alerts(database: Engine) -> list[tuple[object, object, object]]:
    found = rows(database, "SELECT kind, subject, tenant_id FROM alerts WHERE closed_at IS NULL")
    return [(row["kind"], row["subject"], row["tenant_id"]) for row in found]


STUCK = ("sweep_stuck", "timelinesai", None)


@pytest.mark.parametrize("operation", ["chats", "history"])
@pytest.mark.parametrize("swept_before", [True, False])
def test_a_watermark_that_stands_still_is_an_alert_that_closes_when_it_moves(
    servers: Servers, desk: Desk, clock: ManualClock, operation: str, swept_before: bool
):
    database, _, sandbox = servers
    if swept_before:
        sweep(desk, "timelinesai", longest=LONG)
    sandbox.inbound(FIRST_PHONE, a_person(1), "Da", at=THEN)
    fault = sandbox.fault("server_error", operation=operation)
    for minutes, alerts in [(0, []), (29, []), (30, [STUCK]), (90, [STUCK])]:
        clock.set(THEN + minutes * MINUTE)
        assert sweep(desk, "timelinesai", longest=LONG).unfinished is not None
        assert open_alerts(database) == alerts
    alert = the_row(database, "SELECT detail, opened_at FROM alerts")
    assert alert["opened_at"] == THEN + STUCK_AFTER
    assert "2024-11-20 10:00 UTC" in str(alert["detail"])

    sandbox.lift(fault)
    assert sweep(desk, "timelinesai", longest=LONG, full=True).unfinished is None
    assert open_alerts(database) == [STUCK]  # a full sweep moves another watermark
    assert sweep(desk, "timelinesai", longest=LONG).unfinished is None
    assert open_alerts(database) == []
    assert sorted(kept(database)) == heard(sandbox)


def test_what_was_said_while_the_very_first_sweeps_failed_is_found(
    servers: Servers, desk: Desk, clock: ManualClock
):
    database, _, sandbox = servers
    sandbox.inbound(FIRST_PHONE, a_person(1), "demult", at=THEN - FAR_BACK + MINUTE)
    fault = sandbox.fault("server_error", operation="chats")
    for hours in range(0, 72, 6):
        clock.set(THEN + timedelta(hours=hours))
        sweep(desk, "timelinesai", longest=LONG)
        sandbox.inbound(FIRST_PHONE, a_person(hours + 2), "Da", at=clock.now())
    sandbox.lift(fault)
    for _ in range(2):
        assert sweep(desk, "timelinesai", longest=LONG).unfinished is None
    assert sorted(kept(database)) == heard(sandbox)


def test_a_sweep_that_only_runs_out_of_time_is_not_stuck(
    servers: Servers, desk: Desk, clock: ManualClock
):
    sweep(desk, "timelinesai", longest=LONG)
    clock.move(2 * STUCK_AFTER)
    assert sweep(desk, "timelinesai", longest=timedelta(0)).out_of_time
    assert open_alerts(servers[0]) == []


def test_a_watermark_never_goes_back(database: Engine):
    with database.begin() as conn:
        histories.finish_list(conn, "timelinesai", to=THEN, now=THEN)
        histories.finish_list(conn, "timelinesai", to=THEN - MINUTE, now=THEN)
        assert histories.swept_to(conn, "timelinesai") == THEN


def test_a_sweep_that_runs_out_of_time_goes_on_where_it_stopped(
    servers: Servers, desk: Desk, clock: ManualClock
):
    database, _, sandbox = servers
    for n in range(10):
        sandbox.inbound(FIRST_PHONE, a_person(n), "Da", at=THEN - (20 - n) * MINUTE)
    turn = turns(desk, "timelinesai")
    for _ in range(LIMITS["history"].of_sweeps - 4):
        turn("history")
    first = sweep(desk, "timelinesai", longest=MINUTE / 2)
    assert (first.chats, first.out_of_time) == (4, True)
    # A chat that was read already gets another message before the sweep goes on.
    sandbox.inbound(FIRST_PHONE, a_person(0), "Încă ceva", at=THEN)
    clock.move(2 * MINUTE)
    reads = counting(sandbox, "history")
    second = sweep(desk, "timelinesai", longest=LONG)
    assert second.unfinished is None
    assert reads.count() == 9  # six that were left, the one with news, and two of the overlap
    assert sorted(kept(database)) == heard(sandbox)


def test_a_list_that_is_left_goes_on_from_its_page(
    servers: Servers, desk: Desk, clock: ManualClock
):
    database, _, sandbox = servers
    sandbox.inbound(FIRST_PHONE, a_person(999), "Da", at=THEN)
    sweep(desk, "timelinesai", longest=LONG)
    for n in range(170):
        sandbox.inbound(FIRST_PHONE, a_person(n), "Da", at=THEN + n * MINUTE)
    clock.move(timedelta(hours=4))
    turn = turns(desk, "timelinesai")
    for _ in range(LIMITS["chats"].of_sweeps - 2):
        turn("chats")
    listed = counting(sandbox, "chats")
    assert sweep(desk, "timelinesai", longest=MINUTE / 2).out_of_time
    assert listed.count() == 2
    assert the_row(
        database, "SELECT page, swept_to FROM sweeps WHERE provider = 'timelinesai'"
    ) == {
        "page": 2,
        "swept_to": THEN,
    }
    clock.move(2 * MINUTE)
    sandbox.inbound(FIRST_PHONE, a_person(0), "Alo?", at=clock.now())
    while sweep(desk, "timelinesai", longest=LONG).unfinished is not None:
        clock.move(MINUTE)
    # The first, the second again, the two that were left, and what changed meanwhile.
    assert listed.count() == 2 + 1 + 3 + 1
    assert sorted(kept(database)) == heard(sandbox)


class Disturbed:
    """A history in which something happens after the first page of a list was read."""

    def __init__(self, history: History, disturb: Callable[[], object]) -> None:
        self._history = history
        self._disturb = disturb

    def recent_chats(self, *, since: datetime, turn: Turn, page: int = 1) -> ChatPage:
        listed = self._history.recent_chats(since=since, turn=turn, page=page)
        self._disturb()
        self._disturb = lambda: None
        return listed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._history, name)


def test_a_chat_that_moves_while_the_list_is_read_is_not_missed(
    servers: Servers, desk: Desk, clock: ManualClock
):
    database, _, sandbox = servers
    sweep(desk, "timelinesai", longest=LONG)
    for n in range(60):
        sandbox.inbound(FIRST_PHONE, a_person(n), "Da", at=THEN + n * MINUTE)
    clock.set(THEN + timedelta(hours=2))

    def moves() -> None:
        sandbox.inbound(FIRST_PHONE, a_person(0), "Alo?", at=clock.now())

    real = desk.histories["timelinesai"]
    sweep(
        replace(desk, histories={"timelinesai": Disturbed(real, moves)}),
        "timelinesai",
        longest=LONG,
    )
    assert sorted(kept(database)) == heard(sandbox)


@pytest.mark.parametrize("seed", range(4))
def test_without_any_webhook_every_message_ends_in_the_inbox_exactly_once(
    servers: Servers, desk: Desk, clock: ManualClock, seed: int
):
    """Several phones, chats of several pages, histories that lag, and reads that fail."""
    database, _, sandbox = servers
    dice = random.Random(seed)
    phones = (FIRST_PHONE, SECOND_PHONE, THIRD_PHONE)
    late: list[tuple[datetime, str, str, datetime]] = []
    people = [a_person(n) for n in range(6)]
    for n in range(70):
        sandbox.inbound(FIRST_PHONE, people[0], f"{n}", at=THEN - n * timedelta(seconds=20))
    for _ in range(12):
        for _ in range(dice.randint(0, 4)):
            at = clock.now() - timedelta(seconds=dice.randint(0, 100))
            shows = at + timedelta(seconds=dice.randint(0, 850))
            late.append((shows, dice.choice(phones), dice.choice(people), at))
        for one in [one for one in late if one[0] <= clock.now()]:
            late.remove(one)
            sandbox.inbound(one[1], one[2], "Mesaj", at=one[3])
        sandbox.lift()
        if dice.random() < 0.5:
            sandbox.fault("server_error", probability=0.3, seed=seed)
        sweep_all(desk, longest=LONG)
        clock.move(timedelta(seconds=dice.randint(110, 400)))
    sandbox.lift()
    for _, phone, person, at in late:
        sandbox.inbound(phone, person, "Mesaj", at=at)
    assert sweep_all(desk, longest=LONG)["timelinesai"].unfinished is None
    clock.move(LONGEST_PAUSE)  # a chat that failed may still rest
    assert sweep_all(desk, longest=LONG)["timelinesai"].unfinished is None
    assert sorted(kept(database)) == heard(sandbox)


# ── The full sweep ────────────────────────────────────────────────────────────────────────────


def test_a_full_sweep_is_due_once_a_night(servers: Servers, desk: Desk, clock: ManualClock):
    assert full_sweep_due(desk)
    sweep(desk, "timelinesai", longest=LONG)  # the first one goes as far back as a full one
    assert not full_sweep_due(desk)
    clock.set(datetime(2024, 11, 21, 0, 59, tzinfo=UTC))
    assert not full_sweep_due(desk)
    clock.set(datetime(2024, 11, 21, 1, 0, tzinfo=UTC))
    assert full_sweep_due(desk)
    sweep_fully(desk, longest=LONG)
    assert not full_sweep_due(desk)


def test_a_full_sweep_lets_new_messages_through_between_its_slices(
    servers: Servers, desk: Desk, clock: ManualClock
):
    database, _, sandbox = servers
    sweep(desk, "timelinesai", longest=LONG)
    clock.move(timedelta(days=1))
    turn = turns(desk, "timelinesai")
    for n in range(80):
        sandbox.inbound(FIRST_PHONE, a_person(n), "Da", at=THEN + n * MINUTE)
    started = clock.now()
    for _ in range(LIMITS["history"].most):
        turn("history")
    swept = sweep_fully(desk, longest=timedelta(hours=1))["timelinesai"]
    assert clock.now() - started > FULL_SLICE
    assert swept.unfinished is None
    with database.begin() as conn:
        usual = histories.swept_to(conn, "timelinesai")
    assert usual is not None
    assert started < usual < clock.now()
    assert sorted(kept(database)) == heard(sandbox)


def test_a_full_sweep_gives_up_when_nothing_can_be_read(servers: Servers, desk: Desk):
    sandbox = servers[2]
    sandbox.fault("server_error", operation="chats")
    swept = sweep_fully(desk, longest=LONG)["timelinesai"]
    assert swept.unfinished is not None
    assert not swept.out_of_time
    with pytest.raises(ProviderUnreadable):
        desk.histories["timelinesai"].recent_chats(since=THEN, turn=turns(desk, "timelinesai"))
