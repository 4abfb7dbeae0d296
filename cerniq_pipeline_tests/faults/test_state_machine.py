"""Any order of work and faults, over the real code and the real servers, judged by the journal.

Hypothesis plays the operators, the workers, the provider and bad luck. After every step nothing
forbidden may have happened, and at the end, once the faults are over, everything must come to
rest. `CERNIQ_TEST_EXAMPLES` sets how many plays are tried; a failure prints its steps and how to
repeat them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from typing import Any, Literal, TypeVar
from uuid import UUID

import pytest
from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from redis import Redis
from sqlalchemy import Connection, Engine, Row, text

from cerniq_pipeline.domain.holds import Hold
from cerniq_pipeline.domain.quotas import DAY_END_MARGIN
from cerniq_pipeline.errors import LeaseLost
from cerniq_pipeline.services.leasing import FOREIGN_GRACE, LEASE, this_process
from cerniq_pipeline.services.reconcile import compare_gate, settle_unconfirmed
from cerniq_pipeline.services.work_shift import NAP, work_shift
from cerniq_pipeline.store import phones, tenants
from cerniq_pipeline.store.database import Unavailable
from cerniq_pipeline_tests.builders import (
    FIRST,
    NOON,
    SECOND,
    World,
    a_world,
    dispatch,
    some_leads,
)
from cerniq_pipeline_tests.faults.judge import Broken
from cerniq_pipeline_tests.faults.puppets import GAP, Stage, Worker
from cerniq_pipeline_tests.sandbox.running import RunningSandbox

T = TypeVar("T")

EXAMPLES = int(os.environ.get("CERNIQ_TEST_EXAMPLES", "20"))
ROUND = 10
"""Plays per round. Later ones of a longer round would mostly be variations of the ones before,
which are worth less here than a play that nobody has seen."""

STEPS = 50
PHONES, LEADS, DAILY_LIMIT, WORKERS, MOST_COPIES = 2, 9, 2, 3, 3
DAYS_TO_REST = 10
A_SHIFT = timedelta(hours=2)
SETTLE_TIME = timedelta(minutes=15)

MOST_IN_MID_CALL = timedelta(minutes=4)
"""How long a process may stand still between its last look at the clock and its first byte, and
live. Nothing but its death stops a byte that comes even later, and a day of quota ends with a
margin of five minutes."""

HOURS: dict[str, dict[str, Any]] = {
    "office": {},
    "round the clock": {"opens": 0, "closes": 24 * 60, "working_days": [1, 2, 3, 4, 5, 6, 7]},
}
STARTS = {
    "a Wednesday": NOON,
    "a day before summer time": datetime(2027, 3, 27, 10, 0, tzinfo=UTC),
    "a day before winter time": datetime(2027, 10, 30, 10, 0, tzinfo=UTC),
}

ANSWERS: dict[str, tuple[str, dict[str, object]] | None] = {
    "accepted": None,
    "accepted, then cut": ("accept_then_cut", {}),
    "accepted, then reset": ("accept_then_cut", {"reset": True}),
    "accepted, then cut after the headers": ("accept_then_cut_after_headers", {}),
    "accepted, half the answer": ("accept_then_truncate", {}),
    "accepted, then 500": ("server_error", {"accepted": True}),
    "accepted, then an error page": ("html_error", {"accepted": True}),
    "accepted, 200 with an error inside": ("error_in_ok", {"accepted": True}),
    "cut before it was accepted": ("cut_before_accept", {}),
    "500": ("server_error", {}),
    "an error page": ("html_error", {}),
    "429": ("rate_limited", {}),
    "429, come back later": ("rate_limited", {"retry_after": 90}),
    "invalid number": ("invalid_number", {}),
    "banned": ("banned", {}),
    "unauthorized": ("unauthorized", {}),
}
MOMENTS = {
    "a second": timedelta(seconds=1),
    "half the gap": timedelta(seconds=15),
    "the gap": timedelta(seconds=30),
    "past the call's deadline": timedelta(seconds=36),
    "past the lease": LEASE + timedelta(seconds=1),
    "past the grace for other machines": LEASE + FOREIGN_GRACE + timedelta(seconds=1),
    "past the settle time": SETTLE_TIME + timedelta(minutes=1),
}

Beat = Literal["whatever", "acquire", "claim", "call", "take off", "record"]
BEATS: list[Beat] = ["acquire", "claim", "call", "record"]

rarely = st.integers(0, 4).map(lambda n: n == 4)
some_answer = st.sampled_from(list(ANSWERS))
some_trouble = st.sampled_from(list(ANSWERS)[1:])
some_beat = st.sampled_from(BEATS)
some_commit = st.sampled_from(["claim", "record"])
some_pause = st.sampled_from([timedelta(), timedelta(), timedelta(seconds=10)])
some_phone = st.integers(0, PHONES - 1)
some_lead = st.integers(0, LEADS - 1)
some_seat = st.integers(0, WORKERS - 1)


class Outreach(RuleBasedStateMachine):
    """Two phones, nine leads, a sequence of two steps, and up to three workers at a time."""

    def __init__(self, stage: Stage) -> None:
        super().__init__()
        self.stage = stage
        self.world: World | None = None
        self.seats: list[Worker | None] = [None] * WORKERS
        self.copies = 0
        self.names = (f"worker {n}" for n in count(1))

    @initialize(
        hours=st.sampled_from(list(HOURS)),
        start=st.sampled_from(list(STARTS)),
        generous=st.booleans(),
    )
    def open_the_business(self, hours: str, start: str, generous: bool) -> None:
        now = STARTS[start]
        self.stage.start_again(now)
        with self.stage.database.begin() as conn:
            self.world = a_world(
                conn, phones=PHONES, quota=DAILY_LIMIT, steps=(FIRST, SECOND), **HOURS[hours]
            )
            self.leads = some_leads(conn, count=LEADS, at=now)
            _number(conn, self.leads)
            self.calendar = tenants.get(conn, self.world.tenant_id).calendar
        self.desk = self.stage.desk()
        self._wait_until(self.calendar.next_open(now))
        self._dispatch(generous=generous)

    # ── Ordinary work ─────────────────────────────────────────────────────────────────────────

    @rule(generous=st.booleans(), known=st.none() | some_lead)
    def leads_come(self, generous: bool, known: int | None) -> None:
        """Plan what is due; sometimes a number comes in again, as a lead nobody has heard of."""
        if known is not None and self.copies < MOST_COPIES:
            self.copies += 1
            with self.stage.database.begin() as conn:
                copy = some_leads(conn, count=1, first=known, at=self._now())
                _number(conn, copy, first=LEADS + self.copies)
        self._dispatch(generous=generous)

    @rule(
        seat=some_seat, phone=some_phone, elsewhere=rarely, beats=st.sampled_from([1, 2, 3, 6, 12])
    )
    def work(self, seat: int, phone: int, elsewhere: bool, beats: int) -> None:
        """Let one worker go on undisturbed, as it does most of the time."""
        anything: list[Beat] = ["whatever"] * beats
        self._work(seat, phone, elsewhere, anything)

    @rule(seat=some_seat, phone=some_phone, elsewhere=rarely)
    def send_one(self, seat: int, phone: int, elsewhere: bool) -> None:
        """Let one worker bring one message to its end."""
        self._work(seat, phone, elsewhere, ["claim", "call", "record"])

    @rule(seat=some_seat, phone=some_phone, elsewhere=rarely, answer=some_trouble)
    def meet_trouble(self, seat: int, phone: int, elsewhere: bool, answer: str) -> None:
        """Let one worker work up to its next call, which does not go well, and write that down."""
        self._work(seat, phone, elsewhere, ["claim", "call", "record"], answer=answer)

    @rule(seat=some_seat, phone=some_phone, last=some_beat, answer=some_answer, pause=some_pause)
    def crash(self, seat: int, phone: int, last: Beat, answer: str, pause: timedelta) -> None:
        """Let one worker work up to some beat, at its own pace, and die."""
        for beat in BEATS[: BEATS.index(last) + 1]:
            self._work(seat, phone, False, [beat], answer=answer)
            self.stage.clock.move(pause)
        if (worker := self._on(seat)) is not None:
            self._drop(seat, worker)

    @rule(seat=some_seat, phone=some_phone, last=some_commit, answer=some_answer)
    def a_commit_goes_unheard(self, seat: int, phone: int, last: Beat, answer: str) -> None:
        """Let one worker work up to a commit whose answer gets lost; it will try again."""
        self._work(seat, phone, False, BEATS[: BEATS.index(last)], answer=answer)
        worker = self._on(seat)
        if worker is None or worker.in_the_air or self._due(worker) != last:
            return
        act = worker.claim if last == "claim" else worker.record
        with suppress(*Unavailable):
            self._unless_replaced(seat, partial(act, heard=False))

    @rule(seat=some_seat, phone=some_phone, answer=some_answer)
    def stand_still_in_mid_call(self, seat: int, phone: int, answer: str) -> None:
        """Let one worker stop between its last look at the clock and its first byte, or wake up."""
        worker = self._on(seat)
        if worker is not None and worker.in_the_air:
            self._touch_down(seat, worker, answer)
        else:
            self._work(seat, phone, False, ["claim", "take off"])

    @rule(seat=some_seat, ends=st.booleans())
    def rest(self, seat: int, ends: bool) -> None:
        """End a shift, or wait a little as shifts do between two messages, and keep the lease."""
        worker = self._on(seat)
        if worker is None or worker.message is not None:
            return
        if ends:
            worker.give_back()
            self.seats[seat] = None
        else:
            self.stage.clock.move(NAP)
            self._unless_replaced(seat, worker.confirm)

    @rule(hidden=st.booleans(), settled=st.booleans())
    def keep_house(self, hidden: bool, settled: bool) -> None:
        """Compare Redis with the ledger, and look up what nobody is sure of: soon or late, in a
        history that may lag behind."""
        compare_gate(self.desk)
        if settled:
            self.stage.clock.move(SETTLE_TIME)
        fault = self.stage.sandbox.fault("history_hidden") if hidden else None
        note(str(settle_unconfirmed(self.desk, settle_time=SETTLE_TIME, who="reconcile")))
        if fault is not None:
            self.stage.sandbox.lift(fault)

    # ── What happens to it ────────────────────────────────────────────────────────────────────

    @rule(by=st.sampled_from(list(MOMENTS)))
    def time_passes(self, by: str) -> None:
        self.stage.clock.move(MOMENTS[by])

    @rule(days=st.integers(0, 2), hour=st.sampled_from(["open", "open", "closed", "near midnight"]))
    def another_day_comes(self, days: int, hour: str) -> None:
        """Go to a morning that begins in good order, to a closed hour, or to where a new contact
        may still be opened, but after one more gap no longer."""
        self.stage.clock.move(timedelta(days=days))
        tomorrow = self.calendar.day_starts(self.calendar.day_of(self._now()) + timedelta(days=1))
        match hour:
            case "open":
                self._wait_until(self.calendar.next_working_day(self._now()))
                self._bring_everything_back()
                self._dispatch(generous=False)
            case "closed":
                self._wait_until(tomorrow)
            case _:
                self._wait_until(tomorrow - DAY_END_MARGIN - GAP)

    @rule()
    def redis_is_flushed(self) -> None:
        self.stage.redis.flushall()

    @rule(lead=some_lead)
    def a_person_opts_out(self, lead: int) -> None:
        self.stage.opt_out(self.leads[lead])

    @rule(phone=some_phone, off=st.sampled_from([None, None, "phone", "account", "global"]))
    def an_operator_acts(
        self, phone: int, off: Literal["phone", "account", "global"] | None
    ) -> None:
        """Switch a phone, an account or everything off, or bring one phone and all else back."""
        keys = {"phone": self._phone(phone), "account": "timelinesai", "global": ""}
        now = self._now()
        with self.stage.database.begin() as conn:
            if off is not None:
                phones.switch_off(conn, scope=off, key=keys[off], reason="test", by="me", now=now)
                return
            for scope, key in keys.items():
                phones.switch_on(conn, scope=scope, key=key)
            phones.set_status(conn, keys["phone"], status="ACTIVE", reason="linked again", now=now)

    # ── What must hold ────────────────────────────────────────────────────────────────────────

    @invariant()
    def nothing_forbidden_happened(self) -> None:
        self.stage.check_safety()

    @invariant()
    def a_phone_has_one_living_holder(self) -> None:
        held = [
            worker.lease.phone_id
            for worker in self.seats
            if worker and worker.lease and worker.alive and not worker.elsewhere
        ]
        if len(held) > len(set(held)):
            raise Broken("TWO AT ONCE", held)

    def teardown(self) -> None:
        try:
            if self.world is not None:
                self._end_all_faults()
                self._work_until_nothing_waits()
                self.stage.check_all()
        finally:
            for seat, worker in enumerate(self.seats):
                if worker is not None:
                    self._drop(seat, worker)

    def _end_all_faults(self) -> None:
        """Bring back what can be brought back; workers die, because that is the harder case."""
        for seat, worker in enumerate(self.seats):
            if worker is not None:
                self._drop(seat, worker)
        self.stage.sandbox.lift()
        self._bring_everything_back()

    def _bring_everything_back(self) -> None:
        for phone in range(PHONES):
            self.an_operator_acts(phone, off=None)

    def _work_until_nothing_waits(self) -> None:
        """Run the product as its schedules would, day after day."""
        waiting: list[Row[Any]] = []
        for _ in range(DAYS_TO_REST):
            self._wait_until(self.calendar.next_working_day(self._now()))
            self._dispatch(generous=False)
            for phone in range(PHONES):
                work_shift(self.desk, self._phone(phone), this_process("heal"), longest=A_SHIFT)
            self.keep_house(hidden=False, settled=True)
            waiting = self._waiting()
            if not waiting:
                return
        raise Broken("STUCK", f"still waiting after {DAYS_TO_REST} good days: {waiting}")

    def _waiting(self) -> list[Row[Any]]:
        with self.stage.database.connect() as conn:
            return list(
                conn.execute(
                    text("""
                        SELECT lead_id, state, reason, due_at FROM outbox_messages
                        WHERE state IN ('planned', 'deferred', 'sending', 'unconfirmed')
                        UNION ALL
                        SELECT lead_id, 'to be planned', hold_reason, next_action_at
                        FROM gold_lead_journey WHERE next_action_at IS NOT NULL
                    """)
                )
            )

    # ── The beats ─────────────────────────────────────────────────────────────────────────────

    def _work(
        self,
        seat: int,
        phone: int,
        elsewhere: bool,
        beats: Sequence[Beat],
        *,
        answer: str = "accepted",
    ) -> None:
        """Do these beats, as far as they are what comes next."""
        worker = self._on(seat) or self._hire(seat, phone, elsewhere=elsewhere)
        for beat in beats:
            if worker is None or not worker.alive:
                return
            if worker.in_the_air:
                self._touch_down(seat, worker, answer)
                continue
            due = self._due(worker)
            if beat == "take off" and due == "call" and not worker.elsewhere:
                worker.take_off()
            elif beat not in ("whatever", due):
                continue
            elif due == "claim":
                self._claim(seat, worker)
            elif due == "call":
                with self._answering(worker, answer):
                    worker.call()
            else:
                self._record(worker)

    def _due(self, worker: Worker) -> Beat:
        if worker.message is None:
            return "claim"
        return "call" if worker.outcome is None else "record"

    def _hire(self, seat: int, phone: int, *, elsewhere: bool = False) -> Worker | None:
        """Take this phone, or the next one that can be had."""
        worker = Worker(self.stage, next(self.names), elsewhere=elsewhere)
        for phone_id in (self._phone(phone), self._phone(phone - 1)):
            if worker.acquire(phone_id):
                note(f"{worker.name} takes {phone_id}")
                self.seats[seat] = worker
                return worker
        worker.crash()
        return None

    def _claim(self, seat: int, worker: Worker) -> None:
        """Claim; when only the gap stands against it, wait for its end as a shift does."""
        claimed = self._unless_replaced(seat, worker.claim)
        if isinstance(claimed, Hold) and claimed.rule == "pacing":
            self._wait_until(claimed.until)
            claimed = self._unless_replaced(seat, worker.claim)
        note(f"{worker.name} claims {claimed}")

    def _touch_down(self, seat: int, worker: Worker, answer: str) -> None:
        assert worker.message is not None
        if self._now() - worker.message.begun_at > MOST_IN_MID_CALL:
            self._drop(seat, worker)
            return
        with self._answering(worker, answer):
            worker.touch_down()

    def _record(self, worker: Worker) -> None:
        note(f"{worker.name} records {worker.outcome!r}: {worker.record()}")

    def _drop(self, seat: int, worker: Worker) -> None:
        worker.crash()
        self.seats[seat] = None

    def _on(self, seat: int) -> Worker | None:
        """The worker on this seat; one that was killed by another has left it."""
        worker = self.seats[seat]
        if worker is not None and not worker.alive:
            note(f"{worker.name} was killed")
            self._drop(seat, worker)
        return self.seats[seat]

    def _unless_replaced(self, seat: int, act: Callable[[], T]) -> T | None:
        """A shift that lost its phone ends."""
        try:
            return act()
        except LeaseLost as lost:
            note(str(lost))
            worker = self.seats[seat]
            assert worker is not None
            self._drop(seat, worker)
            return None

    @contextmanager
    def _answering(self, worker: Worker, answer: str) -> Iterator[None]:
        """Have the provider answer this worker's next send like that."""
        assert worker.message is not None
        fault = ANSWERS[answer]
        if fault is None:
            yield
            return
        kind, parameters = fault
        fault_id = self.stage.sandbox.fault(
            kind, phone=worker.message.sender, times=1, **parameters
        )
        yield
        self.stage.sandbox.lift(fault_id)

    def _phone(self, number: int) -> str:
        assert self.world is not None
        return self.world.phones[number]

    def _dispatch(self, *, generous: bool) -> None:
        """Plan; generously means more than may be sent, for the quota is lowered right after."""
        if generous:
            self._set_quota(LEADS)
        note(f"written, planned before: {dispatch(self.stage.database, now=self._now())}")
        self._set_quota(DAILY_LIMIT)

    def _set_quota(self, quota: int) -> None:
        with self.stage.database.begin() as conn:
            conn.execute(text("UPDATE wa_phone_numbers SET daily_quota = :quota"), {"quota": quota})

    def _now(self) -> datetime:
        return self.stage.clock.now()

    def _wait_until(self, then: datetime | None) -> None:
        """Time never runs backwards."""
        if then is not None and then > self._now():
            self.stage.clock.set(then)


def _number(conn: Connection, leads: Sequence[UUID], *, first: int = 1) -> None:
    """Give leads an order that is the same in every play: they are taken in the order of ids."""
    conn.execute(
        text("UPDATE gold_lead_journey SET id = :id WHERE lead_id = :lead"),
        [{"id": UUID(int=n), "lead": lead} for n, lead in enumerate(leads, start=first)],
    )


@pytest.mark.timeout(0 if "CERNIQ_TEST_EXAMPLES" in os.environ else 600)
def test_no_order_of_work_and_faults_breaks_a_promise(
    database: Engine, redis: Redis, sandbox: RunningSandbox
):
    class Here(Outreach):
        def __init__(self) -> None:
            super().__init__(Stage(database, redis, sandbox, limit=DAILY_LIMIT))

    for left in range(EXAMPLES, 0, -ROUND):
        run_state_machine_as_test(
            Here,
            settings=settings(
                max_examples=min(left, ROUND),
                stateful_step_count=STEPS,
                deadline=None,
                print_blob=True,
                suppress_health_check=[HealthCheck.too_slow],
            ),
        )
