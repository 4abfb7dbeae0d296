"""Rows 24, 27 to 30 and 38: what is sent to the door of the web service, and how it bears it."""

from __future__ import annotations

import gzip
import json
import random
import socket
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from statistics import quantiles

import httpx

from cerniq_pipeline_tests.builders import run_sql
from cerniq_pipeline_tests.faults.campaign import running, wait_for
from cerniq_pipeline_tests.faults.judge import Broken
from cerniq_pipeline_tests.faults.matrix.listening import (
    Door,
    door_open,
    drains_open,
    hear_all,
    hearing_desk,
    wait_until_heard,
)
from cerniq_pipeline_tests.faults.matrix.scenario import Recovery
from cerniq_pipeline_tests.faults.matrix.stage import Stage, pause
from cerniq_pipeline_tests.faults.said import (
    RESEND_SECRET,
    SIGNED,
    TOKEN,
    a_message,
    a_status,
    resend_complaint,
)
from cerniq_pipeline_tests.providers.test_webhooks_resend import TestResend
from cerniq_pipeline_tests.web.running import everything_from
from cerniq_pipeline_tests.web.senders import ALL_SECRETS, SENDERS, Post, Sender

MIB = 1024 * 1024
SENDERS_AT_ONCE = 8
DAY = timedelta(days=1)


# ── Again and again ───────────────────────────────────────────────────────────────────────────


def replayed(stage: Stage, dice: random.Random) -> Recovery:
    """Tell the same event a thousand times, and once more after a month: it counts once."""
    copies = stage.scale.pick(100, 1_000)
    person, body = _somebody_writes(stage, dice)
    with door_open(stage, {"resend_webhook_secret": RESEND_SECRET}) as door:
        with drains_open(stage, hearing_desk(stage)):
            answers, waits = _tell_all(door, [body] * copies)
            wait_until_heard(stage)
        stage.fault_over()
        if answers != {200: copies}:
            raise Broken("LOST", f"{copies} copies were answered {answers}")
        stage.move_time(30 * DAY)
        run_sql(
            stage.crew.engine,
            "UPDATE webhook_events SET received_at = received_at - interval '30 days'",
        )
        door.tell(body).raise_for_status()
        hear_all(stage, hearing_desk(stage))
        _heard_once(stage, person)
        _refuses_what_is_old(stage, door)
    stage.come_to_rest()
    return stage.recovery(f"{copies} copies, {_p99(waits)}")


def _somebody_writes(stage: Stage, dice: random.Random) -> tuple[str, bytes]:
    """Let one of those whom we wrote to answer; returns who, and the webhook nobody got yet."""
    stage.plan(leads=3, limit=3)
    stage.come_to_rest()
    (ours,) = stage.senders()
    person = str(dice.choice(stage.sandbox.accepted())["recipient"])
    line = stage.sandbox.inbound(ours, person, "Da, mă interesează", webhook=False)
    uid, chat_id = str(line["message_uid"]), int(line["chat_id"])
    return person, a_message("Da, mă interesează", uid=uid, theirs=person, chat_id=chat_id)


def _heard_once(stage: Stage, person: str) -> None:
    (lead,) = stage.ask(
        """
        SELECT j.reply_count, j.engagement_stage,
               (SELECT count(*) FROM gold_communication_log l
                WHERE l.contact = :person AND l.direction = 'INBOUND') AS logged,
               (SELECT count(*) FROM webhook_events) AS kept
        FROM gold_lead_journey j JOIN gold_companies c ON c.id = j.lead_id
        WHERE c.telefon_principal = :person
        """,
        person=person,
    )
    if tuple(lead.values()) != (1, "WARM_REPLY", 1, 1):
        raise Broken("DUPLICATE", f"one event left {lead}")


def _refuses_what_is_old(stage: Stage, door: Door) -> None:
    """A signature is good for minutes: whoever recorded a request cannot send it again later."""
    body = resend_complaint("somebody@firma.example")
    for age, expected in ((timedelta(hours=1), 401), (timedelta(), 200)):
        signed = TestResend().signed(body, RESEND_SECRET, datetime.now(UTC) - age)
        answer = door.web.client.post(
            "/webhooks/resend", content=signed.body, headers=dict(signed.headers)
        )
        if answer.status_code != expected:
            raise Broken("BELIEVED", f"signed {age} ago: {answer.status_code}")


def _tell_all(door: Door, bodies: Sequence[bytes]) -> tuple[Counter[int], list[float]]:
    """Post all of them, several at once; returns the answers and how long each took."""

    def tell(body: bytes) -> tuple[int, float]:
        began = time.monotonic()
        answer = door.tell(body)
        return answer.status_code, time.monotonic() - began

    with ThreadPoolExecutor(SENDERS_AT_ONCE) as pool:
        told = list(pool.map(tell, bodies))
    return Counter(code for code, _ in told), [took for _, took in told]


def _p99(waits: Sequence[float]) -> str:
    return f"p99 {quantiles(waits, n=100)[-1] * 1000:.0f} ms"


# ── Garbage ───────────────────────────────────────────────────────────────────────────────────

MOST_MEMORY = 300 * MIB


def _spoilt(dice: random.Random) -> bytes:
    """A good event with something wrong in it: cut, twisted, or with bytes of another kind."""
    good = bytearray(a_message("Bună ziua, 👋 de la Ana", theirs="+40733999999"))
    match dice.randrange(4):
        case 0:
            return bytes(good[: dice.randrange(len(good))])
        case 1:
            for _ in range(dice.randint(1, 20)):
                good[dice.randrange(len(good))] = dice.randrange(256)
            return bytes(good)
        case 2:
            place = dice.randrange(len(good))
            return bytes(good[:place]) + dice.choice(GRAINS) + bytes(good[place:])
        case _:
            told = json.loads(good)
            part = dice.choice([told, told["message"], told["chat"], told["whatsapp_account"]])
            part[dice.choice(list(part))] = dice.choice(ODD_VALUES)
            return json.dumps(told).encode()


GRAINS = [
    b"\x00",
    b"\xff\xfe",
    b"\xed\xa0\x80",
    b"\\ud800",
    b"\\u0000",
    "\u202e".encode(),
    "😀".encode(),
    b"NaN",
    b"1e999",
    b'"',
    b"}",
    b"[[[[",
]
ODD_VALUES = [None, True, [], {}, -1, 10**400, 1e308, "", "\0", "\ud800", "x" * 10_000, [[[]]]]
WHOLE: list[Callable[[random.Random], bytes]] = [
    lambda _: b" ",
    lambda _: b"null",
    lambda _: b"[]",
    lambda _: b"NaN",
    lambda _: b"[" * 10_000,
    lambda _: b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
    lambda dice: b"{" + b",".join(b'"%d":1' % n for n in range(dice.randint(1, 50_000))) + b"}",
    lambda dice: dice.randbytes(dice.randint(1, 4_000)),
    lambda _: b'{"event_type":"message:received:new","event_type":"x","event_type":[]}',
    lambda dice: "ă\u200f😀".encode("utf-16" if dice.random() < 0.5 else "utf-8"),
]


def fed_garbage(stage: Stage, dice: random.Random) -> Recovery:
    """Send bodies of every bad kind with the right token; then one that is good."""
    count = stage.scale.pick(300, max(20_000, stage.scale.most_sends))
    person, good = _somebody_writes(stage, dice)
    # Odd wholes are dear to make and to read, so most bodies are good ones that were spoilt.
    bodies = (
        dice.choice(WHOLE)(dice) if dice.random() < 0.1 else _spoilt(dice) for _ in range(count)
    )
    answers: Counter[int] = Counter()
    with door_open(stage) as door, drains_open(stage, hearing_desk(stage)):
        while batch := list(islice(bodies, 1_000)):
            told, _ = _tell_all(door, batch)
            answers += told
        stage.fault_over()
        if not set(answers) <= {200, 400, 413}:
            raise Broken("LOST", f"garbage was answered {answers}: {door.web.log[-500:]}")
        held = door.memory()
        if held > MOST_MEMORY:
            raise Broken("GREW", f"{held // MIB} MiB after {count} bodies")
        door.tell(good).raise_for_status()
        wait_for(lambda: _has_replied(stage, person), seconds=stage.scale.pick(60, 900))
    stage.come_to_rest()
    return stage.recovery(f"{dict(answers)}, {held // MIB} MiB")


def _has_replied(stage: Stage, person: str) -> bool:
    return bool(
        stage.ask(
            """
            SELECT 1 FROM gold_lead_journey j JOIN gold_companies c ON c.id = j.lead_id
            WHERE c.telefon_principal = :person AND j.reply_count = 1
            """,
            person=person,
        )
    )


# ── Too much, too slowly ──────────────────────────────────────────────────────────────────────

MOST_GROWTH = 20 * MIB
BRIEF_SECONDS = 1.0
"""How long a request may take to come in, where a test does not wait for the product's ten."""

HEAD = f"POST {Door.with_token(TOKEN)} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n".encode()
PIECE = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"


def _huge(line: socket.socket) -> None:
    line.sendall(HEAD + b"Content-Length: 104857600\r\n\r\n")
    for _ in range(1_600):
        line.sendall(b"x" * 0x10000)


def _endless(line: socket.socket) -> None:
    line.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
    for _ in range(1_600):
        line.sendall(PIECE)


def _says_too_little(line: socket.socket) -> None:
    line.sendall(HEAD + b"Content-Length: 2\r\n\r\n" + b"x" * 100_000)


def _says_too_much(line: socket.socket) -> None:
    line.sendall(HEAD + b"Content-Length: 1000\r\n\r\n{}")


def _bomb(line: socket.socket) -> None:
    packed = gzip.compress(b"0" * 100 * MIB)
    head = f"Content-Encoding: gzip\r\nContent-Length: {len(packed)}\r\n\r\n"
    line.sendall(HEAD + head.encode() + packed)


ATTACKS: dict[str, tuple[Callable[[socket.socket], None], tuple[bytes, ...]]] = {
    "100 MB": (_huge, (b"413",)),
    "endless": (_endless, (b"413",)),
    "more than it says": (_says_too_little, (b"200", b"400")),
    "less than it says": (_says_too_much, (b"408",)),
    "a gzip bomb": (_bomb, (b"415", b"413")),
}


def sent_too_much(stage: Stage, dice: random.Random) -> Recovery:
    """Send bodies that are too large, lie about their size, or are packed; others go on."""
    times = stage.scale.pick(1, 5)
    person, good = _somebody_writes(stage, dice)
    attacks = times * list(ATTACKS)
    dice.shuffle(attacks)
    with door_open(stage, limits=_limits(stage)) as door, _others_go_on(door) as others:
        pause(0.5)
        before = door.memory()
        most = before
        for name in attacks:
            attack, expected = ATTACKS[name]
            said = _attack(door, attack)
            most = max(most, door.memory())
            if not said.startswith(tuple(b"HTTP/1.1 " + code for code in expected)):
                raise Broken("BELIEVED", f"{name} was answered {said[:60]!r}")
        stage.fault_over()
        if most - before > MOST_GROWTH:
            raise Broken("GREW", f"by {(most - before) // MIB} MiB")
        door.tell(good).raise_for_status()
    hear_all(stage, hearing_desk(stage))
    assert _has_replied(stage, person), "the good one was lost"
    stage.come_to_rest()
    grown = (most - before) / MIB
    return stage.recovery(f"{len(attacks)} attacks, +{grown:.1f} MiB, others {_p99(others)}")


def _limits(stage: Stage) -> dict[str, float]:
    return {"receive_seconds": BRIEF_SECONDS} if stage.scale.brief else {}


def _attack(door: Door, attack: Callable[[socket.socket], None]) -> bytes:
    """What the service says to it, until it hangs up."""
    with door.web.socket() as line:
        line.settimeout(30)
        with suppress(ConnectionError):  # it may hang up while we are still sending
            attack(line)
        return everything_from(line)


@contextmanager
def _others_go_on(door: Door) -> Iterator[list[float]]:
    """Have a real event sent every few milliseconds; collects how long each answer took."""
    waits: list[float] = []
    over = threading.Event()
    refused: list[int] = []

    def tell() -> None:
        with httpx.Client(base_url=door.web.base_url, timeout=10, trust_env=False) as client:
            while not over.wait(0.02):
                began = time.monotonic()
                body = a_status("delivered", str(uuid.uuid4()))
                answer = client.post(door.path, content=body)
                waits.append(time.monotonic() - began)
                refused.extend([answer.status_code] if answer.is_error else [])

    with running(tell, over):
        yield waits
    if refused:
        raise Broken("LOST", f"real events were refused: {Counter(refused)}")
    assert len(waits) > 1, "nobody else was there"


def slow_senders(stage: Stage, dice: random.Random) -> Recovery:
    """Open hundreds of connections on which a byte comes now and then; real ones are answered."""
    sockets = stage.scale.pick(60, 500)
    person, good = _somebody_writes(stage, dice)
    limits = _limits(stage)
    patience = limits.get("receive_seconds", 10.0)
    with ExitStack() as lines, door_open(stage, limits=limits) as door:
        slow = [lines.enter_context(door.web.socket()) for _ in range(sockets)]
        with _others_go_on(door) as others:
            began = time.monotonic()
            for line in slow:
                line.sendall(dice.choice([b"P", HEAD, HEAD + b"Content-Length: 50\r\n\r\n{"]))
            closed = _trickle(slow, until=began + 3 * patience + 10)
            took = time.monotonic() - began
            door.tell(good).raise_for_status()
        stage.fault_over()
        if closed < sockets:
            raise Broken("STUCK", f"{sockets - closed} slow connections are still open")
    hear_all(stage, hearing_desk(stage))
    assert _has_replied(stage, person), "the good one was lost"
    stage.come_to_rest()
    return stage.recovery(f"{sockets} slow ones closed in {took:.1f} s, others {_p99(others)}")


def _trickle(lines: Sequence[socket.socket], *, until: float) -> int:
    """Send a byte on each now and then until they are closed; returns how many were."""
    left = list(lines)
    while left and time.monotonic() < until:
        pause(0.2)
        for line in list(left):
            line.settimeout(0.001)
            try:
                line.sendall(b"x" if time.monotonic() % 10 < 0.2 else b"")
                if line.recv(1024) == b"":
                    left.remove(line)
            except TimeoutError:
                continue
            except OSError:
                left.remove(line)
    return len(lines) - len(left)


# ── Forged ────────────────────────────────────────────────────────────────────────────────────


def forged(stage: Stage, dice: random.Random) -> Recovery:
    """Send events without proof, with half of one, or with all of it about what never happened."""
    stage.plan(leads=3, limit=3, follow_up=True, delay=2 * DAY)
    stage.come_to_rest()
    before = _all_leads(stage)
    forgeries = [forgery for sender in SENDERS for forgery in _without_proof(sender)]
    with door_open(stage, ALL_SECRETS) as door:
        for forgery in forgeries:
            answer = forgery.to(door.web.client)
            if answer.status_code not in (401, 404):
                raise Broken("BELIEVED", f"{answer.status_code} for {forgery}")
        if kept := stage.ask("SELECT provider FROM webhook_events"):
            raise Broken("BELIEVED", f"kept without proof: {kept}")
        never = _tell_what_never_was(stage, door, dice)
    outcomes = hear_all(stage, hearing_desk(stage))
    stage.fault_over()
    if _all_leads(stage) != before or outcomes.get("dead") != 2:
        raise Broken("BELIEVED", f"{outcomes}: {_all_leads(stage)} instead of {before}")
    stage.come_to_rest()
    return stage.recovery(f"{len(forgeries)} without proof, {never} about nothing")


PROOFS = ("signature", "token", "authorization")


def _without_proof(sender: Sender) -> Iterator[Post]:
    """A body of this provider with no proof, another's, half of it, and a little too much."""
    yield Post(sender.path, sender.body)
    yield sender.post(secret=sender.next_secret)
    good = sender.post()
    spoils: list[Callable[[str], str]] = [
        lambda proof: proof[: len(proof) // 2],
        lambda proof: proof[:-1],
        lambda proof: f"{proof}x",
        lambda _: "",
    ]
    for spoil in spoils:
        proofs = {name: spoil(good.headers[name]) for name in good.headers if _proves(name)}
        if proofs:
            yield replace(good, headers=good.headers | proofs)
        else:
            path, name, token = good.path.partition("token=")
            yield replace(good, path=f"{path}{name}{spoil(token)}")


def _proves(header: str) -> bool:
    return any(word in header.lower() for word in PROOFS)


def _tell_what_never_was(stage: Stage, door: Door, dice: random.Random) -> int:
    """The right token, and messages that the provider knows nothing of."""
    person = str(dice.choice(stage.sandbox.accepted())["recipient"])
    bodies = [
        a_message("Da, trimiteți oferta", theirs=person),
        a_message("Vă sun eu", theirs=person, from_us=True),
        a_status("read", str(uuid.uuid4()), theirs=person),
        a_status("failed", str(uuid.uuid4()), theirs=person),
    ]
    for body in bodies:
        door.tell(body).raise_for_status()
    return len(bodies)


def _all_leads(stage: Stage) -> list[dict[str, object]]:
    return stage.ask("""
        SELECT j.lead_id, engagement_stage, reply_count, held_by, hold_reason, open_message,
               whatsapp_opted_out, requires_human_review,
               (SELECT array_agg(state ORDER BY id) FROM outbox_messages o
                WHERE o.lead_id = j.lead_id) AS states,
               (SELECT array_agg(status ORDER BY id) FROM gold_communication_log l
                WHERE l.lead_journey_id = j.lead_id) AS logged
        FROM gold_lead_journey j ORDER BY lead_id
    """)


# ── Another secret ────────────────────────────────────────────────────────────────────────────

REFUSED_WITHIN = 5.0
NEXT_TOKEN = "another-token-of-the-faults"


def token_rotated(stage: Stage, dice: random.Random) -> Recovery:
    """Change the token while events come: both are good for a while, then only the new one."""
    stage.plan(leads=1, limit=1)
    stage.come_to_rest()
    old, new = (Door.with_token(token) for token in (TOKEN, NEXT_TOKEN))
    with door_open(stage) as door:
        flow = _Flow(door, [old])
        with running(flow.go, flow.over):
            pause(dice.uniform(0.2, 0.6))
            door.web.tell(timelinesai_webhook_token=f"{TOKEN},{NEXT_TOKEN}")
            wait_for(lambda: flow.is_taken(new))
            flow.paths = [old, new]
            pause(dice.uniform(0.5, 1.5))
            flow.paths = [new]
            pause(0.3)
            door.web.tell(timelinesai_webhook_token=NEXT_TOKEN)
            changed = time.monotonic()
            wait_for(lambda: not flow.is_taken(old))
            took = time.monotonic() - changed
            pause(dice.uniform(0.2, 0.6))
        stage.fault_over()
    if flow.answers.keys() != {200}:
        raise Broken("LOST", f"real events were answered {flow.answers}")
    (kept,) = stage.ask("SELECT count(*) AS n FROM webhook_events WHERE event_key LIKE '%flow-%'")
    if kept["n"] != flow.answers[200]:
        raise Broken("LOST", f"{kept['n']} kept of {flow.answers[200]}")
    if not stage.scale.brief and took > REFUSED_WITHIN:
        raise Broken("BELIEVED", f"the old token was good for {took:.1f} s more")
    outcomes = hear_all(stage, stage.crew.desk, SIGNED)
    if outcomes.get("dead"):
        raise Broken("LOST", f"{outcomes}")
    stage.come_to_rest()
    return stage.recovery(f"{flow.answers[200]} events, old refused after {took:.1f} s")


class _Flow:
    """Real events, one after the other, each to one of the addresses that hold just now."""

    def __init__(self, door: Door, paths: list[str]) -> None:
        self.paths = paths
        self.over = threading.Event()
        self.answers: Counter[int] = Counter()
        self._door = door

    def go(self) -> None:
        """Send until it is over."""
        n = 0
        while not self.over.wait(0.01):
            paths = self.paths
            body = a_message("Bună", uid=f"flow-{uuid.uuid4()}", theirs=f"+4073{n % 100:07d}")
            self.answers[self._post(paths[n % len(paths)], body)] += 1
            n += 1

    def is_taken(self, path: str) -> bool:
        """Whether an event to this address is believed now."""
        return self._post(path, a_status("read", str(uuid.uuid4()))) == 200

    def _post(self, path: str, body: bytes) -> int:
        return self._door.web.client.post(path, content=body).status_code
