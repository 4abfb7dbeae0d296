"""Rows 34 to 36: a stop is honoured whatever is down, in whatever moment, however it is spelt."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from itertools import zip_longest
from typing import Any, Literal, get_args
from uuid import UUID

from sqlalchemy import Connection, Engine, text

from cerniq_pipeline.domain.outbox import OutboxMessage
from cerniq_pipeline.services import claiming, leasing, recording, sending
from cerniq_pipeline.services.drain import handle_waiting
from cerniq_pipeline.services.leasing import Lease, this_process
from cerniq_pipeline.services.opt_out import opt_out
from cerniq_pipeline.services.sending import Desk
from cerniq_pipeline.store.database import Begin
from cerniq_pipeline_tests.builders import SECRET, dispatch, run_sql, some_leads
from cerniq_pipeline_tests.faults import sabotage
from cerniq_pipeline_tests.faults.campaign import TOGETHER, wait_for
from cerniq_pipeline_tests.faults.judge import Broken
from cerniq_pipeline_tests.faults.matrix.listening import (
    Door,
    door_open,
    drains_open,
    hearing_desk,
    wait_until_heard,
)
from cerniq_pipeline_tests.faults.matrix.scenario import Recovery
from cerniq_pipeline_tests.faults.matrix.stage import Stage, frozen
from cerniq_pipeline_tests.faults.said import (
    READERS,
    a_message,
    instantly_stop,
    keep,
    meta_message,
    resend_complaint,
    twilio_stop,
)

TWO_DAYS = timedelta(days=2)

# ── Everything else is down ───────────────────────────────────────────────────────────────────

EFFECTIVE_WITHIN = 5.0
"""Seconds from the webhook to the moment from which nothing more leaves for the person."""

AHEAD = 3
"""Replies that lie in the inbox before each stop, and that nobody can be asked about."""


@contextmanager
def _provider_in_trouble(stage: Stage) -> Iterator[None]:
    stage.sandbox.fault("server_error", status=503, operation="any")
    yield
    stage.sandbox.lift()


@contextmanager
def _provider_silent(stage: Stage) -> Iterator[None]:
    with frozen(stage.sandbox.pid):
        yield


@contextmanager
def _redis_down(stage: Stage) -> Iterator[None]:
    mend = sabotage.down(stage.redis)
    yield
    mend()


TROUBLES: dict[str, Callable[[Stage], AbstractContextManager[None]]] = {
    "provider in trouble": _provider_in_trouble,
    "provider silent": _provider_silent,
    "Redis down": _redis_down,
}


def stop_while_all_is_down(stage: Stage, dice: random.Random) -> Recovery:
    """Have people ask to stop while the provider, or Redis, cannot be asked for anything.

    Nothing here understands a text but the fixed words; the replies of others, which must be
    confirmed first, lie before each stop.
    """
    each = stage.scale.pick(1, 3)
    leads = len(TROUBLES) * each * (1 + AHEAD) + 1
    stage.plan(leads=leads, limit=leads, follow_up=True, delay=TWO_DAYS)
    stage.come_to_rest()
    people = [str(line["recipient"]) for line in stage.sandbox.accepted()]
    dice.shuffle(people)
    quiet, people = people[:1], people[1:]
    slowest: dict[str, float] = {}
    troubles = list(TROUBLES)
    dice.shuffle(troubles)
    with door_open(stage) as door, drains_open(stage, hearing_desk(stage)):
        for trouble in troubles:
            rounds = [_round(stage, people) for _ in range(each)]
            with TROUBLES[trouble](stage):
                waits = [one.play(stage, door) for one in rounds]
            stage.fault_over()
            slowest[trouble] = max(waits)
        wait_until_heard(stage)
    note = ", ".join(f"{name} {took:.1f} s" for name, took in slowest.items())
    if not stage.scale.brief and max(slowest.values()) > EFFECTIVE_WITHIN:
        raise Broken("TOO LATE", note)
    stage.move_time(TWO_DAYS + timedelta(hours=1))
    stage.come_to_rest()
    twice = Counter(str(line["recipient"]) for line in stage.sandbox.accepted())
    if again := [person for person, count in twice.items() if count > 1 and person not in quiet]:
        raise Broken("AFTER OPT-OUT", f"{again} wrote, and got another message")
    return stage.recovery(note)


@dataclass(frozen=True)
class _Round:
    """A person who says stop, and what lies in the inbox before it."""

    person: str
    others: Sequence[bytes]
    stop: bytes

    def play(self, stage: Stage, door: Door) -> float:
        """Tell all of it; returns how long the stop took to have its effect."""
        for body in self.others:
            door.tell(body).raise_for_status()
        told = time.monotonic()
        door.tell(self.stop).raise_for_status()
        wait_for(lambda: _is_stopped(stage, self.person), seconds=120)
        return time.monotonic() - told


def _round(stage: Stage, people: list[str]) -> _Round:
    others = [_said_by(stage, people.pop(), "Da") for _ in range(AHEAD)]
    person = people.pop()
    return _Round(person, others, _said_by(stage, person, "Stop, nu mai vreau mesaje"))


def _said_by(stage: Stage, person: str, text: str) -> bytes:
    """Let a person really write something; returns its webhook."""
    (ours,) = stage.senders()
    line = stage.sandbox.inbound(ours, person, text, webhook=False)
    chat_id = int(line["chat_id"])
    return a_message(text, uid=str(line["message_uid"]), theirs=person, chat_id=chat_id)


def _is_stopped(stage: Stage, person: str) -> bool:
    return bool(
        stage.ask(
            """
            SELECT 1 FROM gold_lead_journey j JOIN gold_companies c ON c.id = j.lead_id
            WHERE c.telefon_principal = :person AND j.whatsapp_opted_out
            """,
            person=person,
        )
    )


# ── In the same moment ────────────────────────────────────────────────────────────────────────

RACES, BRIEF_RACES = 10_000, 240
APART = 0.02
"""Seconds by which one side of a race is held back at most: about as long as either takes."""

PER_PHONE = 500
LEAST_PHONES = 4
"""Races go round the phones, so that the gap after a send is over when its phone is next."""

Way = Literal["asked", "told", "unheard"]
"""How the stop comes: somebody enters it; its webhook is stored and handled at once; or it lies in
the inbox already, and is handled while the claim begins."""


@dataclass
class Race:
    """One stop and one claim, and what is known of their transactions."""

    way: Way
    lead_id: UUID
    sender: str
    recipient: str
    claimed: bool = False
    claim: list[str] = field(default_factory=list)
    """The transactions of this side that wrote something."""
    stop: list[str] = field(default_factory=list)
    begun: float = 0.0
    told: float = float("inf")
    """When the claim began, and when the stop's webhook had been stored."""


def stop_races_claim(stage: Stage, dice: random.Random) -> Recovery:
    """Let people ask to stop in the very moment in which a message to them is claimed."""
    races = stage.scale.pick(BRIEF_RACES, RACES)
    phones = max(LEAST_PHONES, races // PER_PHONE)
    stage.plan(leads=races, limit=races, phones=phones, follow_up=True, weekly_per_person=9)
    run_sql(stage.crew.engine, "UPDATE outbox_messages SET due_at = due_at + interval '1 day'")
    desk = stage.crew.desk
    leases = {
        phone_id: leasing.acquire(desk.begin, phone_id, this_process("races"), now=stage.now())
        for phone_id in stage.phones()
    }
    run = _planned(stage)
    with ThreadPoolExecutor(2) as pool:
        for turn, (phone_id, race) in enumerate(run):
            lease = leases[phone_id]
            assert lease is not None
            _let_race(stage, pool, lease, race, dice.uniform(-APART, APART) if turn % 2 else 0.0)
    for lease in leases.values():
        assert lease is not None
        leasing.give_back(desk.begin, lease)
    stage.fault_over()
    check_races(stage.crew.engine, [race for _, race in run])
    stage.come_to_rest()
    return stage.recovery(_judge_ends(stage, [race for _, race in run]))


def _planned(stage: Stage) -> list[tuple[str, Race]]:
    """A race for every message, phone after phone in turn."""
    found = stage.ask("""
        SELECT o.phone_id, o.lead_id, p.phone_number AS sender, o.recipient
        FROM outbox_messages o JOIN wa_phone_numbers p ON p.id = o.phone_id ORDER BY o.id
    """)
    by_phone: dict[str, list[dict[str, Any]]] = {}
    for row in found:
        by_phone.setdefault(str(row.pop("phone_id")), []).append(row)
    rounds = zip_longest(*([(phone, row) for row in rows] for phone, rows in by_phone.items()))
    turns = [turn for one in rounds for turn in one if turn is not None]
    ways = get_args(Way)
    return [(phone, Race(ways[n % len(ways)], **row)) for n, (phone, row) in enumerate(turns)]


def _let_race(
    stage: Stage, pool: ThreadPoolExecutor, lease: Lease, race: Race, wait: float
) -> None:
    desk = stage.crew.desk
    run_sql(
        stage.crew.engine,
        "UPDATE outbox_messages SET due_at = due_at - interval '1 day' WHERE lead_id = :lead",
        lead=race.lead_id,
    )
    if race.way == "unheard":
        _store_stop(desk, race)
    start = threading.Barrier(2)
    racers = [
        pool.submit(_after, start, max(0.0, wait), partial(_send_next, desk, lease, race)),
        pool.submit(_after, start, max(0.0, -wait), partial(_stop, desk, race)),
    ]
    for racer in racers:
        racer.result()


def _after(start: threading.Barrier, seconds: float, act: Callable[[], None]) -> None:
    start.wait(TOGETHER)
    time.sleep(seconds)
    act()


def _send_next(desk: Desk, lease: Lease, race: Race) -> None:
    race.begun = time.monotonic()
    claimed = claiming.claim(replace(desk, begin=partial(_noted, desk.begin, race.claim)), lease)
    if isinstance(claimed, OutboxMessage):
        race.claimed = True
        recording.record(desk, claimed, sending.call(desk, claimed), who="races")


def _stop(desk: Desk, race: Race) -> None:
    begin = partial(_noted, desk.begin, race.stop)
    if race.way == "asked":
        opt_out(
            begin,
            tenant_id="acme",
            lead_id=race.lead_id,
            secret=SECRET,
            reason="asked to stop",
            now=desk.clock.now(),
        )
        return
    if race.way == "told":
        _store_stop(desk, race)
    outcomes = handle_waiting(replace(desk, begin=begin), READERS)
    assert outcomes["done"] == 1, outcomes


def _store_stop(desk: Desk, race: Race) -> None:
    now = desk.clock.now()
    with desk.begin() as conn:
        keep(conn, [a_message("STOP", at=now, ours=race.sender, theirs=race.recipient)], now=now)
    race.told = time.monotonic()


@contextmanager
def _noted(begin: Begin, transactions: list[str]) -> Iterator[Connection]:
    """A transaction that leaves its number behind, when it has written something."""
    with begin() as conn:
        yield conn
        number = conn.execute(text("SELECT pg_current_xact_id_if_assigned()::text")).scalar_one()
        transactions += [number] if number is not None else []


def check_races(database: Engine, races: Sequence[Race]) -> None:
    """Check that no claim was committed after the stop of its race.

    Postgres itself says when each was committed. A number drawn within the transactions would say
    it only as long as both hold the person's lock up to their commit, and whether they do is the
    very question.
    """
    committed = _commit_times(database, {number for race in races for number in race.claim})
    stopped = _commit_times(database, {number for race in races for number in race.stop})
    for race in races:
        if not race.claimed:
            continue
        if committed[race.claim[-1]] > stopped[race.stop[-1]]:
            late = committed[race.claim[-1]] - stopped[race.stop[-1]]
            raise Broken("AFTER OPT-OUT", f"claimed {late} s after it: {race}")
        if race.begun > race.told:
            raise Broken("AFTER OPT-OUT", f"claimed though its stop lay in the inbox: {race}")


def _commit_times(database: Engine, transactions: Collection[str]) -> dict[str, float]:
    with database.connect() as conn:
        rows = conn.execute(
            text("""
                SELECT number, extract(epoch FROM pg_xact_commit_timestamp(number::xid8::xid))
                FROM unnest(CAST(:numbers AS text[])) number
            """),
            {"numbers": list(transactions)},
        )
        return {row[0]: row[1] for row in rows}


def _judge_ends(stage: Stage, races: Sequence[Race]) -> str:
    claims = sum(race.claimed for race in races)
    if not 0 < claims < 2 * len(races) // 3:
        raise AssertionError(f"{claims} of {len(races)} were claimed: nothing was tried")
    sent = len(stage.sandbox.accepted())
    found = stage.states()
    # The first message only: whatever was planned to follow it was cancelled, or never planned.
    if sent != claims or found.get("sent") != claims or not found.keys() <= {"sent", "cancelled"}:
        raise Broken("AFTER OPT-OUT", f"{claims} claims, {sent} accepted, {found}")
    return f"{len(races)} races, {claims} claimed before the stop"


# ── However it is spelt ───────────────────────────────────────────────────────────────────────

SPELLINGS = (
    "+40{0}{1}{2}",
    "0040 {0} {1} {2}",
    "0{0}.{1}.{2}",
    "{0}{1}{2}",
    "(0{0}) {1} {2}",
    "40{0}-{1}-{2}",
    "Tel. 0{0}/{1}{2}",
)


@dataclass(frozen=True)
class Person:
    """Somebody whom we have three times: twice by one number, and once by the address alone."""

    n: int
    spelling: str

    @property
    def number(self) -> str:
        return self.spelt(SPELLINGS[0])

    def spelt(self, spelling: str) -> str:
        digits = f"{722_000_000 + self.n}"
        return spelling.format(digits[:3], digits[3:6], digits[6:])

    @property
    def other_number(self) -> str:
        return f"+40{733_000_000 + self.n}"

    @property
    def email(self) -> str:
        return f"ana.{self.n}@firma.example"

    @property
    def numbers(self) -> tuple[str, str]:
        return self.number, self.other_number


Told = Callable[[Person, str], tuple[str, bytes]]
BY_WEBHOOK: dict[str, Told] = {
    "WhatsApp": lambda who, ours: (
        "timelinesai",
        a_message("STOP", ours=ours, theirs=who.spelt("+40{0}{1}{2}")),
    ),
    "WhatsApp by Meta": lambda who, ours: (
        "meta",
        meta_message("Dezabonare", ours=ours, theirs=who.number),
    ),
    "SMS": lambda who, _: ("twilio", twilio_stop(who.number)),
    "a link in a mail": lambda who, _: ("instantly", instantly_stop(who.email.upper())),
    "a complaint": lambda who, _: ("resend", resend_complaint(who.email.title())),
}
BY_HAND = "a person of ours"


def stop_in_every_spelling(stage: Stage, dice: random.Random) -> Recovery:
    """Have people ask to stop on one channel, whom we know several times and spelt differently.

    Afterwards they come in once more, as new leads in yet another spelling.
    """
    channels = [*BY_WEBHOOK, BY_HAND]
    each = dice.sample(SPELLINGS, stage.scale.pick(1, len(SPELLINGS)))
    variants = [(channel, spelling) for channel in channels for spelling in each]
    people = [Person(n, spelling) for n, (_, spelling) in enumerate(variants)]
    control = 2
    most = control + 4 * len(people)
    stage.plan(leads=control, limit=most)
    run_sql(stage.crew.engine, "UPDATE wa_phone_numbers SET daily_quota = :most", most=most)
    for person in people:
        _known_thrice(stage, person, dice)
    dispatch(stage.crew.engine, now=stage.now())
    for person, (channel, _) in zip(people, variants, strict=True):
        _stop_by(stage, person, channel)
    not_stopped = stage.ask("""
        SELECT c.telefon_principal, c.email_principal FROM gold_lead_journey j
        JOIN gold_companies c ON c.id = j.lead_id
        WHERE email_principal IS NOT NULL AND NOT (whatsapp_opted_out AND email_opted_out)
    """)
    if not_stopped:
        raise Broken("AFTER OPT-OUT", f"copies that go on: {not_stopped}")
    for person in people:
        _add_lead(stage, person.spelt(dice.choice(SPELLINGS)), email=None)
    dispatch(stage.crew.engine, now=stage.now())
    stage.fault_over()
    stage.come_to_rest()
    wanted_none = {number for person in people for number in person.numbers}
    reached = wanted_none & {str(line["recipient"]) for line in stage.sandbox.accepted()}
    if reached or len(stage.sandbox.accepted()) != control:
        raise Broken("AFTER OPT-OUT", f"{reached} got messages; {stage.states()}")
    return stage.recovery(f"{len(people)} people, {len(channels)} channels")


def _known_thrice(stage: Stage, person: Person, dice: random.Random) -> None:
    _add_lead(stage, person.spelt(person.spelling), email=person.email)
    other = dice.choice([one for one in SPELLINGS if one != person.spelling])
    _add_lead(stage, person.spelt(other), email=person.email.capitalize())
    _add_lead(stage, person.other_number, email=person.email.upper())


def _add_lead(stage: Stage, number: str, *, email: str | None) -> UUID:
    with stage.crew.engine.begin() as conn:
        known = conn.execute(text("SELECT count(*) FROM gold_companies")).scalar_one()
        due = stage.now() - timedelta(hours=1)
        (lead_id,) = some_leads(conn, first=known, at=due, email_principal=email)
        conn.execute(
            text("UPDATE gold_companies SET telefon_principal = :number WHERE id = :id"),
            {"id": lead_id, "number": number},
        )
        return lead_id


def _stop_by(stage: Stage, person: Person, channel: str) -> None:
    desk = stage.crew.desk
    if channel == BY_HAND:
        (lead,) = stage.ask(
            "SELECT id FROM gold_companies WHERE telefon_principal = :number LIMIT 1",
            number=person.spelt(person.spelling),
        )
        opt_out(
            desk.begin,
            tenant_id="acme",
            lead_id=UUID(str(lead["id"])),
            secret=SECRET,
            reason="asked to stop",
            now=stage.now(),
        )
        return
    provider, body = BY_WEBHOOK[channel](person, stage.senders()[0])
    with desk.begin() as conn:
        keep(conn, [body], now=stage.now(), provider=provider)
    outcomes = handle_waiting(desk, READERS)
    assert outcomes == {"done": 1}, f"{channel}: {outcomes}"
