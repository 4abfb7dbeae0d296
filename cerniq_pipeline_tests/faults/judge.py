"""The judge of every fault test: what the provider's journal and the database show together.

The sandbox's journal says what was really sent. The database is only ever compared with it: a
send that the journal has and the database does not know of is a broken promise, not a detail.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, Literal
from zoneinfo import ZoneInfo

from sqlalchemy import Connection, Engine, text

from cerniq_pipeline.domain.calendar import Calendar
from cerniq_pipeline.domain.holds import Installation, hold_on_phone
from cerniq_pipeline.store import phones
from cerniq_pipeline.store.database import Begin
from cerniq_pipeline_tests.sandbox.running import Line, RunningSandbox, recipient_and_text

BUCHAREST = ZoneInfo("Europe/Bucharest")

Promise = Literal[
    "DUPLICATE",
    "OVER QUOTA",
    "TWO AT ONCE",
    "TOO SOON",
    "AFTER OPT-OUT",
    "AFTER REPLY",
    "STUCK",
    "DISAGREEMENT",
    "OUT OF HOURS",
    "FAILED OPEN",
    "UNRESOLVED",
    "GREW",
    "ORDER MATTERS",
    "LOST",
    "BELIEVED",
    "TOO LATE",
    "REMEMBERED",
    "SILENCED",
]
TimeOf = Callable[[Line], datetime]
Message = dict[str, Any]

BY_HAND = "by-hand/"
"""How the id of a message begins that a person found in the chat."""

MAY_HAVE_GONE_OUT = {"sending", "sent", "unconfirmed", "parked"}
LEDGER_SAYS = {
    "sending": ["reserved"],
    "unconfirmed": ["reserved"],
    "parked": ["reserved"],
    "sent": ["committed"],
}
"""What counts against the phone for a first message in each state; in the others nothing does."""


SANDBOX = Installation(live=False, providers={"timelinesai", "meta"})


class Broken(AssertionError):
    """A promise that did not hold, and the evidence."""

    def __init__(self, promise: Promise, evidence: object) -> None:
        super().__init__(f"{promise}: {evidence}")
        self.promise: Promise = promise


@dataclass(frozen=True)
class OptOut:
    """A person who asked to stop: where the journal stood when that was committed, and how many
    messages to them were already in flight."""

    recipient: str
    line: int
    in_flight: int


def journal_time(line: Line) -> datetime:
    """When the sandbox wrote the line."""
    return datetime.fromisoformat(line["at"])


def check_all(
    sandbox: RunningSandbox,
    database: Engine,
    *,
    limit: int,
    gap: timedelta,
    opt_outs: Sequence[OptOut] = (),
    now: datetime | None = None,
    time_of: TimeOf = journal_time,
    erased: Collection[str] = (),
) -> None:
    """Check every promise, once the faults are over and everything came to rest.

    `limit` is the most new contacts a phone may open on a Bucharest day, and `gap` the least time
    between two sends of a phone. `now` is the time of the system's clock, and `time_of` that of a
    line of the journal: real time, unless the test moved its clock. Of those who were `erased` the
    database knows nothing any more, and rightly so.
    """
    check_safety(
        sandbox, database, limit=limit, gap=gap, opt_outs=opt_outs, time_of=time_of, erased=erased
    )
    check_rest(sandbox, database, now=now, erased=erased)


def check_safety(
    sandbox: RunningSandbox,
    database: Engine,
    *,
    limit: int,
    gap: timedelta,
    opt_outs: Sequence[OptOut] = (),
    time_of: TimeOf = journal_time,
    erased: Collection[str] = (),
) -> None:
    """Check what must hold at every moment, also while faults are in force."""
    lines = sandbox.journal()
    with database.connect() as conn:
        _no_duplicate(conn, _about_others(lines, erased))
        _quota_kept(conn, lines, limit=limit, time_of=time_of)
    _one_at_a_time(lines)
    _gap_kept(lines, gap=gap, time_of=time_of)
    _opt_outs_honoured(lines, opt_outs)


def check_rest(
    sandbox: RunningSandbox,
    database: Engine,
    *,
    now: datetime | None = None,
    erased: Collection[str] = (),
) -> None:
    """Check what must hold once everything came to rest: nothing stuck, and one story told."""
    lines = _about_others(sandbox.journal(), erased)
    with database.connect() as conn:
        _nothing_stuck(conn, now=now or datetime.now(UTC))
        _one_story(conn, lines)


def check_hours(sandbox: RunningSandbox, calendar: Calendar, *, time_of: TimeOf) -> None:
    """Check that nothing was sent while the tenant was closed."""
    for line in sandbox.journal("request"):
        if not calendar.is_open(time_of(line)):
            raise Broken("OUT OF HOURS", f"{time_of(line)}: {line}")


def check_silence(
    sandbox: RunningSandbox,
    since: datetime,
    until: datetime,
    *,
    in_flight: int,
    sender: str | None = None,
) -> None:
    """Check that nothing was begun between these moments, from one phone or from all.

    Only what was in flight may still arrive.
    """
    lines = [
        line
        for line in sandbox.journal("request")
        if since < journal_time(line) < until and sender in (None, line["asked_sender"])
    ]
    if len(lines) > in_flight:
        raise Broken("FAILED OPEN", f"{in_flight} in flight at {since}, then {lines}")


@contextmanager
def witnessed(
    begin: Begin, sandbox: RunningSandbox, recipient: str, opt_outs: list[OptOut]
) -> Iterator[Connection]:
    """A transaction that notes, right before it commits, what was in flight to this person.

    Hand `partial(witnessed, begin, sandbox, recipient, opt_outs)` to `opt_out` as its `begin`. Its
    locks are still held when it notes, so whatever begins later begins after the commit.
    """
    with begin() as conn:
        yield conn
        in_flight = conn.execute(
            text("""
                SELECT count(*) FROM outbox_messages
                WHERE recipient = :recipient AND state = 'sending'
            """),
            {"recipient": recipient},
        ).scalar_one()
        lines = sandbox.journal()
        opt_outs.append(OptOut(recipient, lines[-1]["n"] if lines else 0, in_flight))


# ── What must hold at every moment ────────────────────────────────────────────────────────────


def _no_duplicate(conn: Connection, lines: Sequence[Line]) -> None:
    """No person got a text twice, and no outbox message was accepted twice."""
    by_person: dict[object, list[Line]] = defaultdict(list)
    by_message: dict[int, list[Line]] = defaultdict(list)
    message_of = _message_finder(conn)
    for line in _accepted(lines):
        by_person[recipient_and_text(line)].append(line)
        by_message[message_of(line)["id"]].append(line)
    for copies in (*by_person.values(), *by_message.values()):
        if len(copies) > 1:
            raise Broken("DUPLICATE", copies)


def _quota_kept(conn: Connection, lines: Sequence[Line], *, limit: int, time_of: TimeOf) -> None:
    """No phone opened more conversations on a day than it may, by the journal and the ledger."""
    known: set[tuple[str, str]] = set()
    opened: Counter[tuple[str, date]] = Counter()
    for line in _accepted(lines):
        pair = line["sender"], line["recipient"]
        if pair not in known:
            known.add(pair)
            opened[line["sender"], time_of(line).astimezone(BUCHAREST).date()] += 1
    over = {f"{phone} on {day}": count for (phone, day), count in opened.items() if count > limit}
    if over:
        raise Broken("OVER QUOTA", f"first contacts accepted: {over}, limit {limit}")
    counted = conn.execute(
        text("""
            SELECT phone_id, day, count(*) FROM quota_ledger WHERE state <> 'released'
            GROUP BY 1, 2 HAVING count(*) > :limit
        """),
        {"limit": limit},
    ).all()
    if counted:
        raise Broken("OVER QUOTA", f"counted in the ledger: {counted}, limit {limit}")


def _one_at_a_time(lines: Sequence[Line]) -> None:
    """No two requests of one phone were open at the same time."""
    open_requests: dict[str, Line] = {}
    for line in lines:
        if line["event"] == "answered":
            open_requests.pop(line["request"], None)
        elif line["event"] == "request":
            for other in open_requests.values():
                if other["sender"] == line["sender"]:
                    raise Broken("TWO AT ONCE", (other, line))
            open_requests[line["request"]] = line


def _gap_kept(lines: Sequence[Line], *, gap: timedelta, time_of: TimeOf) -> None:
    """Every send of a phone kept its distance to the one before."""
    last: dict[str, Line] = {}
    for line in lines:
        if line["event"] != "request":
            continue
        before = last.get(line["sender"])
        if before is not None and time_of(line) - time_of(before) < gap:
            raise Broken(
                "TOO SOON", f"{time_of(line) - time_of(before)} between {before} and {line}"
            )
        last[line["sender"]] = line


def _opt_outs_honoured(lines: Sequence[Line], opt_outs: Sequence[OptOut]) -> None:
    """Nothing was begun for a person after they had asked to stop."""
    for stop in opt_outs:
        later = [
            line
            for line in lines
            if line["event"] == "request"
            and line["recipient"] == stop.recipient
            and line["n"] > stop.line
        ]
        if len(later) > stop.in_flight:
            raise Broken("AFTER OPT-OUT", f"{stop}, then {later}")


# ── What must hold once everything came to rest ───────────────────────────────────────────────


def _nothing_stuck(conn: Connection, *, now: datetime) -> None:
    """Every message is final, before a person's eyes, or waits for something that has a name."""
    unsettled = conn.execute(
        text("SELECT * FROM outbox_messages WHERE state IN ('sending', 'unconfirmed')")
    ).all()
    if unsettled:
        raise Broken("STUCK", unsettled)
    nameless = conn.execute(
        text("SELECT * FROM outbox_messages WHERE state <> 'planned' AND reason IS NULL")
    ).all()
    if nameless:
        raise Broken("STUCK", f"moved without a reason: {nameless}")
    with_due = conn.execute(
        text("""
            SELECT DISTINCT phone_id FROM outbox_messages
            WHERE state IN ('planned', 'deferred') AND due_at <= :now
        """),
        {"now": now},
    ).scalars()
    for phone_id in with_due.all():
        if hold_on_phone(phones.get(conn, phone_id).facts, here=SANDBOX, now=now) is None:
            raise Broken("STUCK", f"{phone_id} has messages due and nothing holds it")
    confused = conn.execute(
        text("""
            SELECT j.lead_id, j.open_message, o.states FROM gold_lead_journey j
            CROSS JOIN LATERAL (
              SELECT array_agg(state) AS states FROM outbox_messages o
              WHERE o.lead_id = j.lead_id AND state NOT IN ('sent', 'failed', 'cancelled')
            ) o
            WHERE j.open_message <> (o.states IS NOT NULL)
        """)
    ).all()
    if confused:
        raise Broken("STUCK", f"leads whose open_message is wrong: {confused}")


def _one_story(conn: Connection, lines: Sequence[Line]) -> None:
    """Journal, outbox, attempts, audit, ledger and communication log agree."""
    message_of = _message_finder(conn)
    accepted = {line["message_uid"]: message_of(line) for line in _accepted(lines)}
    for uid, message in accepted.items():
        if message["state"] not in MAY_HAVE_GONE_OUT:
            raise Broken("DISAGREEMENT", f"{uid} was accepted, but the outbox has {message}")
    for message in _messages(conn):
        _audited(conn, message)
        _logged(conn, message, accepted)
        _counted(conn, message)


def _audited(conn: Connection, message: Message) -> None:
    """One row per move, each beginning where the one before ended, the last one ending here."""
    moves = conn.execute(
        text("""
            SELECT from_state, to_state FROM outbox_changes WHERE message_id = :id ORDER BY id
        """),
        {"id": message["id"]},
    ).all()
    states = ["planned", *(move.to_state for move in moves)]
    if [move.from_state for move in moves] != states[:-1] or states[-1] != message["state"]:
        raise Broken("DISAGREEMENT", f"the audit {moves} does not lead to {message}")
    attempts = conn.execute(
        text("""
            SELECT count(*) AS all, count(*) FILTER (WHERE outcome IS NULL) AS open,
                   (array_agg(outcome ORDER BY n DESC))[1] AS last
            FROM send_attempts WHERE message_id = :id
        """),
        {"id": message["id"]},
    ).one()
    if not attempts.all == message["attempts"] == states.count("sending"):
        raise Broken("DISAGREEMENT", f"{attempts}, audit {moves}, outbox {message}")
    if attempts.open != (message["state"] == "sending"):
        raise Broken("DISAGREEMENT", f"{attempts.open} attempts without an outcome: {message}")
    if message["state"] == "sent" and attempts.last != "sent":
        raise Broken("DISAGREEMENT", f"the last attempt was {attempts.last}: {message}")


def _logged(conn: Connection, message: Message, accepted: dict[str, Message]) -> None:
    """What is called sent was accepted under the very id we keep, and is logged once under it."""
    ids = conn.execute(
        text("SELECT external_message_id FROM gold_communication_log WHERE job_id = :id"),
        {"id": message["id"]},
    ).scalars()
    expected = [message["external_id"]] if message["state"] == "sent" else []
    if ids.all() != expected:
        raise Broken("DISAGREEMENT", f"the communication log should have {expected}: {message}")
    if not expected:
        return
    if message["external_id"].startswith(BY_HAND):
        accepted_as = [uid for uid, one in accepted.items() if one["id"] == message["id"]]
        if len(accepted_as) != 1:
            raise Broken("DISAGREEMENT", f"a person saw it, the journal did not: {message}")
    elif accepted.get(message["external_id"], {}).get("id") != message["id"]:
        raise Broken("DISAGREEMENT", f"called sent, but not in the journal: {message}")


def _counted(conn: Connection, message: Message) -> None:
    """What may have gone out counts against the phone; what certainly did not does not."""
    if message["kind"] not in {"initial", "handover"}:
        return
    states = conn.execute(
        text("SELECT state FROM quota_ledger WHERE message_id = :id AND state <> 'released'"),
        {"id": message["id"]},
    ).scalars()
    found = states.all()
    if message["state"] == "cancelled" and _was_parked(conn, message) and found == ["reserved"]:
        return  # nobody is sure that it did not go out, so it counts; unless its successor does
    if message["state"] == "sent" and not found:
        found = _counted_before(conn, message)
    if found != LEDGER_SAYS.get(message["state"], []):
        raise Broken("DISAGREEMENT", f"the ledger has {found} for {message}")


def _counted_before(conn: Connection, message: Message) -> list[str]:
    """A message in the place of another costs nothing more on a day on which that one counts."""
    counted = conn.execute(
        text("""
            SELECT 1 FROM quota_ledger l JOIN outbox_messages o ON o.id = l.message_id
            WHERE o.replaced_by = :id AND l.state IN ('reserved', 'committed')
        """),
        {"id": message["id"]},
    )
    return LEDGER_SAYS["sent"] if counted.first() else []


def _was_parked(conn: Connection, message: Message) -> bool:
    moves = conn.execute(
        text("SELECT 1 FROM outbox_changes WHERE message_id = :id AND from_state = 'parked'"),
        {"id": message["id"]},
    )
    return moves.first() is not None


# ── Reading the evidence ──────────────────────────────────────────────────────────────────────


def _accepted(lines: Sequence[Line]) -> Iterator[Line]:
    return (line for line in lines if line["event"] == "accepted")


def _about_others(lines: Sequence[Line], erased: Collection[str]) -> list[Line]:
    return [line for line in lines if line.get("recipient") not in erased]


def _messages(conn: Connection) -> list[Message]:
    """Every message, but for those whose person was erased: they are empty."""
    rows = conn.execute(
        text("SELECT * FROM outbox_messages WHERE recipient NOT LIKE 'erased:%' ORDER BY id")
    ).mappings()
    return [dict(row) for row in rows]


def _message_finder(conn: Connection) -> Callable[[Line], Message]:
    """Finds the one outbox message that an accepted line can be.

    One that a person had sent again is no longer meant: its successor has its text.
    """
    known: dict[tuple[str, str], list[Message]] = defaultdict(list)
    for message in _messages(conn):
        if message["body"] is not None:
            known[message["recipient"], message["body"]].append(message)

    def find(line: Line) -> Message:
        same = known[line["recipient"], line["text"]]
        found = [message for message in same if message["replaced_by"] is None] or same
        if len(found) != 1:
            raise Broken("DISAGREEMENT", f"{len(found)} outbox messages for {line}")
        return found[0]

    return find
