"""Stop: once it is stored, nothing more leaves for that person, whoever raced whom."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from redis import Redis
from sqlalchemy import Engine, text

from cerniq_pipeline.domain.outbox import OutboxMessage, State
from cerniq_pipeline.errors import NotFound
from cerniq_pipeline.services import checkpoints
from cerniq_pipeline.services.claiming import Nothing
from cerniq_pipeline.services.leasing import give_back, this_process
from cerniq_pipeline.services.opt_out import Stop, honour, opt_out
from cerniq_pipeline.services.work_shift import work_shift
from cerniq_pipeline.store import leads, suppressions
from cerniq_pipeline.store.database import Begin
from cerniq_pipeline_tests.builders import (
    FIRST,
    NOON,
    SECOND,
    SECRET,
    a_world,
    always_open,
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

DAY = timedelta(days=1)
TO_META = """
    UPDATE wa_phone_numbers SET provider = 'meta', timelinesai_account_id = NULL,
           meta_phone_number_id = '1' || ltrim(phone_number, '+')
"""
NUMBER = "+40721000000"
Servers = tuple[Engine, Redis, RunningSandbox]


@pytest.fixture
def servers(database: Engine, redis: Redis, sandbox: RunningSandbox) -> Servers:
    """The three real servers, empty."""
    return database, redis, sandbox


def stop(database: Engine, lead_id: object, *, begin: Begin | None = None, **whose: str) -> int:
    """What the person said."""
    assert isinstance(lead_id, uuid.UUID)
    return opt_out(
        begin or database.begin,
        tenant_id=whose.get("tenant_id", "acme"),
        lead_id=lead_id,
        secret=SECRET,
        reason="a reply: STOP",
        now=NOON,
    )


def the_lead(database: Engine) -> uuid.UUID:
    lead_id = the_row(database, "SELECT id FROM gold_companies")["id"]
    assert isinstance(lead_id, uuid.UUID)
    return lead_id


def opted_out(database: Engine) -> set[object]:
    """The companies whose lead has opted out on every channel."""
    found = rows(
        database,
        """
        SELECT c.denumire FROM gold_lead_journey j JOIN gold_companies c ON c.id = j.lead_id
        WHERE whatsapp_opted_out AND email_opted_out AND opted_out_at IS NOT NULL
        """,
    )
    return {row["denumire"] for row in found}


# ── What it does ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("state", ["planned", "deferred"])
def test_what_waits_is_cancelled_and_never_goes(servers: Servers, state: str):
    database, _, sandbox = servers
    office = an_office(*servers)
    run_sql(database, "UPDATE outbox_messages SET state = :state", state=state)
    assert stop(database, the_lead(database)) == 1
    message = the_row(database, "SELECT state, reason FROM outbox_messages")
    assert message == {"state": "cancelled", "reason": "a reply: STOP"}
    trace = the_row(database, "SELECT from_state, to_state, who, why, at FROM outbox_changes")
    assert trace == {
        "from_state": state,
        "to_state": "cancelled",
        "who": "opt_out",
        "why": "a reply: STOP",
        "at": NOON,
    }
    lead = the_row(database, "SELECT * FROM gold_lead_journey")
    assert (lead["whatsapp_opted_out"], lead["email_opted_out"]) == (True, True)
    assert (lead["opted_out_at"], lead["hold_reason"]) == (NOON, "opted_out")
    assert (lead["open_message"], lead["next_action_at"]) == (False, None)
    assert office.claim() == Nothing(None)
    assert dispatch(database, now=NOON + DAY) == (0, 0)
    assert sandbox.journal("request") == []


def test_stopping_twice_changes_nothing_more(servers: Servers):
    database, *_ = servers
    an_office(*servers)
    lead_id = the_lead(database)
    assert [stop(database, lead_id), stop(database, lead_id)] == [1, 0]
    assert len(rows(database, "SELECT 1 FROM suppressions")) == 1
    assert the_row(database, "SELECT opted_out_at FROM gold_lead_journey") == {"opted_out_at": NOON}


def test_every_copy_of_the_person_stops(database: Engine):
    with database.begin() as conn:
        a_world(conn, phones=2)
        (me,) = some_leads(conn, email_principal="ana@firma.ro")
        some_leads(conn, first=1, email_principal="ANA@Firma.ro")  # the same mail, spelt otherwise
        some_leads(conn, first=2, email_principal="ion@alta.ro")
        (same_number,) = some_leads(conn, first=3)
        conn.execute(
            text("UPDATE gold_companies SET telefon_principal = :n WHERE id = :id"),
            {"n": NUMBER, "id": same_number},
        )
    dispatch(database)
    stop(database, me)
    assert opted_out(database) == {"Firma 0", "Firma 1", "Firma 3"}
    assert states(database) == {"cancelled": 2, "planned": 1}  # one number had one message


def test_a_message_in_flight_is_recorded_and_is_the_last_one(servers: Servers):
    database, _, sandbox = servers
    office = an_office(*servers, steps=(FIRST, SECOND))
    message = office.claimed()
    assert stop(database, the_lead(database)) == 0
    assert the_row(database, "SELECT open_message FROM gold_lead_journey") == {"open_message": True}
    assert office.send(message) is State.SENT
    for _ in range(2):
        office.wait(DAY)
        assert office.claim() == Nothing(None)
    assert len(sandbox.accepted()) == 1
    lead = the_row(database, "SELECT * FROM gold_lead_journey")
    assert (lead["open_message"], lead["whatsapp_opted_out"]) == (False, True)
    assert states(database)["sent"] == 1
    assert not {"planned", "deferred"} & states(database).keys()


def test_a_shift_sends_to_the_others_and_not_to_the_one_who_said_stop(servers: Servers):
    database, _, sandbox = servers
    office = an_office(*servers, leads=4)
    gone = the_row(database, "SELECT id FROM gold_companies WHERE telefon_principal LIKE '%2'")
    stop(database, gone["id"])
    run_sql(database, "UPDATE phone_leases SET holder = NULL, lease_until = NULL")
    work_shift(office.desk, "acme-01", office.lease.holder, longest=timedelta(hours=1))
    assert {line["recipient"][-1] for line in sandbox.accepted()} == {"0", "1", "3"}


# ── What outlives the lead ────────────────────────────────────────────────────────────────────


def erase_and_import_again(database: Engine, **company: Any) -> None:
    """The company is deleted and comes back from another file, due at once."""
    run_sql(database, "DELETE FROM gold_companies")
    with database.begin() as conn:
        some_leads(conn, first=0, **company)


@pytest.mark.parametrize(
    "company",
    [
        {},  # the same number
        {"email_principal": " Ana@FIRMA.ro "},
    ],
)
def test_a_person_who_was_erased_and_imported_again_is_still_not_written_to(
    servers: Servers, company: dict[str, object]
):
    database, _, sandbox = servers
    office = an_office(*servers)
    run_sql(database, "UPDATE gold_companies SET email_principal = 'ana@firma.ro'")
    stop(database, the_lead(database))
    erase_and_import_again(database, **company)
    if company:  # a new number, and the old mail
        run_sql(database, "UPDATE gold_companies SET telefon_principal = '+40729999999'")
    run_sql(database, "DELETE FROM outbox_messages")
    assert dispatch(database) == (0, 0)
    hold = the_row(database, "SELECT hold_reason FROM gold_lead_journey")
    assert hold == {"hold_reason": "opted_out"}
    run_sql(database, "UPDATE gold_lead_journey SET next_action_at = :then", then=NOON - DAY)
    # Whoever planned it without knowing: the claim has the last word.
    assert dispatch(database, secret=b"another") == (1, 0)
    assert office.claim() == Nothing(None)
    message = the_row(database, "SELECT state, reason FROM outbox_messages")
    assert message["state"] == "cancelled"
    assert str(message["reason"]).startswith("opted_out")
    assert sandbox.journal("request") == []


def test_only_a_keyed_hash_of_the_address_is_kept(servers: Servers):
    database, *_ = servers
    an_office(*servers)
    run_sql(database, "UPDATE gold_companies SET email_principal = 'ana@firma.ro'")
    stop(database, the_lead(database))
    kept = rows(database, "SELECT * FROM suppressions")
    assert len(kept) == 2
    assert {row["key_hmac"] for row in kept} == {
        suppressions.person_key(SECRET, NUMBER),
        suppressions.person_key(SECRET, "ana@firma.ro"),
    }
    shown = " ".join(str(row) for row in kept)
    assert "721000000" not in shown
    assert "ana@" not in shown
    assert suppressions.person_key(b"another secret", NUMBER) not in {r["key_hmac"] for r in kept}


@pytest.mark.parametrize("spelling", ["ana@firma.ro", "ANA@FIRMA.RO", "  Ana@Firma.ro\n"])
def test_an_address_has_one_key_in_every_spelling(spelling: str):
    assert suppressions.person_key(SECRET, spelling) == suppressions.person_key(
        SECRET, "ana@firma.ro"
    )


# ── Every spelling ────────────────────────────────────────────────────────────────────────────

EMAIL, CUI = "ana@firma.ro", "18547290"
SPELLINGS = [
    *(
        ("telefon_principal", number)
        for number in (
            "0721000000",
            "0721 000 000",
            "0721.000.000",
            "0721-000-000",
            "0721/000.000",
            "(0721) 000000",
            "40721000000",
            "+40 721 000 000",
            "0040721000000",
            "0040 721 000 000",
            "+400721000000",
            "721000000",
            " +40721000000 ",
            "tel. 0721 000 000",
            "0721000000, 0213101234",
        )
    ),
    *(
        ("email_principal", email)
        for email in (
            "ana@firma.ro",
            "ANA@FIRMA.RO",
            " Ana@Firma.ro ",
            "mailto:ana@firma.ro",
            "Ana <ana@firma.ro>",
        )
    ),
    *(
        ("cui", cui)
        for cui in (
            "RO18547290",
            "ro18547290",
            "RO 18547290",
            "18 547 290",
            "CUI: RO18547290",
            "018547290",
        )
    ),
]


def a_copy(database: Engine, column: str, spelling: str, *, of: str, to: str) -> None:
    """Make the lead of this company share one thing with the other one, spelt in its own way.

    Others write the table too, so any spelling may stand there, and in a message to it.
    """
    columns = {
        "telefon_principal": "UPDATE gold_companies SET telefon_principal = :s WHERE denumire = :n",
        "email_principal": "UPDATE gold_companies SET email_principal = :s WHERE denumire = :n",
        "cui": "UPDATE gold_companies SET cui = :s WHERE denumire = :n",
    }
    run_sql(database, columns[column], s=spelling, n=of)
    if column == "telefon_principal":
        run_sql(
            database,
            "UPDATE outbox_messages SET recipient = :s WHERE recipient = :to",
            s=spelling,
            to=to,
        )


@pytest.mark.parametrize(("column", "spelling"), SPELLINGS)
@pytest.mark.parametrize("who_stops", ["the plain one", "the odd one"])
def test_a_stop_counts_for_every_copy_however_it_is_spelt(
    servers: Servers, column: str, spelling: str, who_stops: str
):
    database, _, sandbox = servers
    office = an_office(*servers, leads=2)
    run_sql(
        database,
        "UPDATE gold_companies SET email_principal = :e, cui = :c WHERE denumire = 'Firma 0'",
        e=EMAIL,
        c=CUI,
    )
    a_copy(database, column, spelling, of="Firma 1", to="+40721000001")
    stopping = "Firma 0" if who_stops == "the plain one" else "Firma 1"
    stop(
        database,
        the_row(database, "SELECT id FROM gold_companies WHERE denumire = :n", n=stopping)["id"],
    )
    assert office.claim() == Nothing(None)
    assert states(database) == {"cancelled": 2}
    assert sandbox.journal("request") == []
    assert dispatch(database, now=NOON + DAY) == (0, 0)


@pytest.mark.parametrize(
    ("column", "spelling"), [("email_principal", "ana@alta.ro"), ("cui", "RO1590082")]
)
def test_who_shares_nothing_is_still_written_to(servers: Servers, column: str, spelling: str):
    database, *_ = servers
    office = an_office(*servers, leads=2)
    run_sql(
        database,
        "UPDATE gold_companies SET email_principal = :e, cui = :c WHERE denumire = 'Firma 0'",
        e=EMAIL,
        c=CUI,
    )
    a_copy(database, column, spelling, of="Firma 1", to="+40721000001")
    stop(
        database,
        the_row(database, "SELECT id FROM gold_companies WHERE denumire = 'Firma 0'")["id"],
    )
    assert office.claimed().to == "+40721000001"


def test_a_stop_ends_every_channel(database: Engine):
    with database.begin() as conn:
        a_world(conn)
        (me,) = some_leads(conn, email_principal=EMAIL)
    dispatch(database)
    run_sql(
        database,
        """
        INSERT INTO outbox_messages
          (tenant_id, channel, kind, lead_id, recipient, due_at, planned_by)
        SELECT 'acme', channel, 'followup', :lead, :to, :now, 'test'
        FROM unnest(ARRAY['EMAIL', 'SMS', 'VOICE']) AS channel
        """,
        lead=me,
        to=EMAIL,
        now=NOON,
    )
    assert stop(database, me) == 4
    assert states(database) == {"cancelled": 4}


def test_a_company_that_comes_back_under_another_number_and_spelling_is_not_written_to(
    servers: Servers,
):
    """Written by others, so nothing marks it; planned without knowing, the claim knows better."""
    database, _, sandbox = servers
    office = an_office(*servers)
    run_sql(database, "UPDATE gold_companies SET cui = :c", c=CUI)
    stop(database, the_lead(database))
    run_sql(database, "DELETE FROM gold_companies")
    with database.begin() as conn:
        some_leads(conn, first=5, cui=f"RO {CUI}", email_principal="nou@firma.ro")
    assert dispatch(database, secret=b"another") == (1, 0)
    assert office.claim() == Nothing(None)
    lead = the_row(database, "SELECT hold_reason, next_action_at FROM gold_lead_journey")
    assert lead == {"hold_reason": "opted_out", "next_action_at": None}
    assert dispatch(database, now=NOON + DAY) == (0, 0)
    assert sandbox.journal("request") == []


# ── Whose lead it is ──────────────────────────────────────────────────────────────────────────


def test_another_tenants_leads_and_messages_are_not_touched(database: Engine):
    with database.begin() as conn:
        a_world(conn)
        (mine,) = some_leads(conn)
        a_world(conn, tenant_id="beta", phones=0)
        conn.execute(
            text("""
                INSERT INTO wa_phone_numbers (id, tenant_id, phone_number, timelinesai_account_id)
                VALUES ('beta-01', 'beta', '+40791000001', '40791000001@s.whatsapp.net')
            """)
        )
        some_leads(conn, "beta")  # the same number
    assert dispatch(database) == dispatch(database, tenant_id="beta") == (1, 0)
    stop(database, mine)
    found = rows(database, "SELECT tenant_id, state FROM outbox_messages ORDER BY 1")
    assert found == [
        {"tenant_id": "acme", "state": "cancelled"},
        {"tenant_id": "beta", "state": "planned"},
    ]
    with database.connect() as conn:
        key = suppressions.person_key(SECRET, NUMBER)
        assert suppressions.is_suppressed(conn, "acme", [key])
        assert not suppressions.is_suppressed(conn, "beta", [key])


def test_a_lead_of_another_tenant_or_of_nobody_is_not_found(database: Engine):
    with database.begin() as conn:
        a_world(conn)
        (mine,) = some_leads(conn)
        a_world(conn, tenant_id="beta", phones=0)
    for lead_id, tenant_id in [(mine, "beta"), (uuid.uuid4(), "acme")]:
        with pytest.raises(NotFound):
            stop(database, lead_id, tenant_id=tenant_id)
    assert opted_out(database) == set()
    assert rows(database, "SELECT 1 FROM suppressions") == []


# ── Told by the provider ──────────────────────────────────────────────────────────────────────


class Scene:
    """What happens at one point of a shift."""

    def __init__(self, at: str, act: Callable[[], object]) -> None:
        self.at, self.act = at, act

    def reach(self, name: str) -> None:
        if name == self.at:
            self.act()


@pytest.mark.parametrize("erased", [False, True])
@pytest.mark.parametrize("moved", [False, True], ids=["same number", "new number"])
def test_a_provider_that_knows_of_a_stop_is_heard_for_the_very_address(
    servers: Servers, monkeypatch: pytest.MonkeyPatch, erased: bool, moved: bool
):
    database, _, sandbox = servers
    now = datetime.now(UTC)  # the sandbox counts Meta's windows in real time
    office = an_office(*servers, now=now, leads=2, **always_open(now))
    run_sql(database, TO_META)
    run_sql(database, "UPDATE templates SET approved_name = 'intro', approved_parameters = '{}'")
    sandbox.fault("refuse", status=400, meta_code=131050, times=1)
    first = the_row(
        database,
        """
        SELECT o.recipient, o.lead_id, c.denumire
        FROM outbox_messages o JOIN gold_companies c ON c.id = o.lead_id ORDER BY o.id LIMIT 1
        """,
    )
    changes = [
        "UPDATE gold_companies SET telefon_principal = '+40721999999' WHERE id = :lead",
        "DELETE FROM gold_companies WHERE id = :lead",
    ]

    def change() -> None:
        for sql in changes[not moved : 1 + erased]:
            run_sql(database, sql, lead=first["lead_id"])

    monkeypatch.setattr(checkpoints, "reach", Scene("call_before_first_byte", change).reach)
    give_back(database.begin, office.lease)
    shift = work_shift(office.desk, office.lease.phone_id, this_process("t"), longest=DAY)

    assert shift.outcomes == {"failed": 1, "sent": 1}
    with database.connect() as conn:
        key = suppressions.person_key(SECRET, str(first["recipient"]))
        assert suppressions.is_suppressed(conn, "acme", [key])
    assert opted_out(database) == (set() if erased else {first["denumire"]})


# ── Races with a claim ────────────────────────────────────────────────────────────────────────


def test_a_claim_that_meets_an_opt_out_waits_for_it_and_sends_nothing(servers: Servers):
    database, _, sandbox = servers
    office = an_office(*servers)
    claimed: list[object] = []
    claiming = threading.Thread(target=lambda: claimed.append(office.claim()))

    def let_the_claim_come() -> None:
        claiming.start()
        wait_until_somebody_waits_for_a_lock(database)

    begin = beginning(database, let_the_claim_come)
    assert stop(database, the_lead(database), begin=begin) == 1
    claiming.join()
    assert claimed == [Nothing(None)]
    assert states(database) == {"cancelled": 1}
    assert sandbox.journal("request") == []


def test_an_opt_out_that_meets_a_claim_waits_for_it_and_allows_that_one_message(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
):
    database, _, sandbox = servers
    office = an_office(*servers, steps=(FIRST, SECOND))
    lead_id = the_lead(database)
    cancelled: list[int] = []
    stopping = threading.Thread(target=lambda: cancelled.append(stop(database, lead_id)))

    def let_the_opt_out_come(name: str) -> None:
        if name == "claim_before_commit":
            stopping.start()
            wait_until_somebody_waits_for_a_lock(database)

    monkeypatch.setattr(checkpoints, "reach", let_the_opt_out_come)
    message = office.claimed()
    stopping.join()
    monkeypatch.undo()
    assert cancelled == [0]
    assert office.send(message) is State.SENT
    office.wait(DAY)
    assert office.claim() == Nothing(None)
    assert len(sandbox.accepted()) == 1


def test_a_claim_of_another_lead_with_the_same_number_waits_too(servers: Servers):
    """The number arrives with a lead that did not exist when the opt-out took its locks."""
    database, _, sandbox = servers
    office = an_office(*servers)
    run_sql(database, "UPDATE outbox_messages SET due_at = due_at + interval '1 hour'")
    me = the_lead(database)
    with database.begin() as conn:
        (copy,) = some_leads(conn, first=9)
    run_sql(
        database,
        """
        INSERT INTO outbox_messages (tenant_id, channel, kind, lead_id, phone_id, recipient,
                                     sequence_id, step, template_id, due_at, planned_by)
        SELECT tenant_id, channel, kind, :copy, phone_id, recipient, sequence_id, 7, template_id,
               :now, 'by hand'
        FROM outbox_messages
        """,
        copy=copy,
        now=NOON,
    )
    claimed: list[object] = []
    claiming = threading.Thread(target=lambda: claimed.append(office.claim()))

    def let_the_claim_come() -> None:
        claiming.start()
        wait_until_somebody_waits_for_a_lock(database)

    stop(database, me, begin=beginning(database, let_the_claim_come))
    claiming.join()
    assert not isinstance(claimed[0], OutboxMessage)
    assert states(database) == {"cancelled": 2}
    assert sandbox.journal("request") == []


def test_a_claim_waits_for_a_stop_by_mail(servers: Servers):
    """The address comes to the lead when the stop has looked for its leads already."""
    database, _, sandbox = servers
    office = an_office(*servers)
    mail = "ana@firma.example"
    claimed: list[object] = []
    claiming = threading.Thread(target=lambda: claimed.append(office.claim()))
    with database.begin() as conn:
        copies = leads.lock_person(conn, "acme", emails=[mail])
        assert copies == []
        honour(
            conn, Stop("acme", "STOP", at=NOON), copies, addresses=[mail], secret=SECRET, now=NOON
        )
        run_sql(database, "UPDATE gold_companies SET email_principal = :mail", mail=mail.upper())
        claiming.start()
        wait_until_somebody_waits_for_a_lock(database)
    claiming.join()
    assert claimed == [Nothing(None)]
    assert states(database) == {"cancelled": 1}
    assert sandbox.journal("request") == []


def test_claim_and_opt_out_at_once_never_both_win(servers: Servers):
    database, *_ = servers
    office = an_office(*servers, leads=12, gap_least_seconds=0, gap_spread_seconds=0)
    with ThreadPoolExecutor(2) as both:
        for _ in range(12):
            due = the_row(
                database,
                """
                SELECT id, lead_id FROM outbox_messages WHERE state = 'planned'
                ORDER BY due_at, id LIMIT 1
                """,
            )
            run_sql(
                database,
                "UPDATE outbox_messages SET due_at = :later WHERE state = 'planned' AND id <> :id",
                later=NOON + DAY,
                id=due["id"],
            )
            ready = threading.Barrier(2)

            def claim(ready: threading.Barrier = ready) -> object:
                ready.wait()
                return office.claim()

            def say_stop(ready: threading.Barrier = ready, lead: object = due["lead_id"]) -> int:
                ready.wait()
                return stop(database, lead)

            claiming, stopping = both.submit(claim), both.submit(say_stop)
            claimed, cancelled = claiming.result(timeout=30), stopping.result(timeout=30)
            if isinstance(claimed, OutboxMessage):
                assert cancelled == 0  # it was in flight before the opt-out
                assert office.send(claimed) is State.SENT
            else:
                assert isinstance(claimed, Nothing)
            run_sql(database, "UPDATE outbox_messages SET due_at = :now", now=NOON)
    assert opted_out(database) == {f"Firma {n}" for n in range(12)}
    assert not {"planned", "deferred", "sending"} & states(database).keys()
