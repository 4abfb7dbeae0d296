"""Each protection of the sending core is needed: without it, one short story breaks a promise.

Every story is told twice, with the real code and with the mutant, and judged the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID

import pytest
from redis import Redis
from sqlalchemy import Engine, text

from cerniq_pipeline.domain.deliveries import Delivery, Told
from cerniq_pipeline.services.deliveries import take_in
from cerniq_pipeline.services.leasing import LEASE
from cerniq_pipeline.services.reconcile import settle_unconfirmed
from cerniq_pipeline_tests.builders import a_world, dispatch, some_leads
from cerniq_pipeline_tests.faults import mutants
from cerniq_pipeline_tests.faults.judge import Broken, Promise
from cerniq_pipeline_tests.faults.mutants import Mutant
from cerniq_pipeline_tests.faults.puppets import GAP, Stage, Worker
from cerniq_pipeline_tests.sandbox.running import RunningSandbox

PHONE = "acme-01"
SECOND = timedelta(seconds=1)
SETTLE_TIME = timedelta(minutes=15)
LATE_MS = 1500
"""How long the provider keeps a request open for a second one to come in beside it."""


@dataclass
class Play(Stage):
    """A stage with one phone, some leads whose first message is planned, and hired workers."""

    leads: list[UUID] = field(default_factory=list)
    workers: list[Worker] = field(default_factory=list)

    def hire(self, name: str) -> Worker:
        worker = Worker(self, name)
        self.workers.append(worker)
        return worker

    def quota(self, limit: int) -> None:
        """Lower what the phone may open today, after more was planned."""
        self.limit = limit
        with self.database.begin() as conn:
            conn.execute(text("UPDATE wa_phone_numbers SET daily_quota = :n"), {"n": limit})

    def settle(self) -> None:
        """Let the settle time pass, and look up what nobody is sure of."""
        self.clock.move(SETTLE_TIME)
        settle_unconfirmed(self.desk(), settle_time=SETTLE_TIME, who="test")


@pytest.fixture
def play(database: Engine, redis: Redis, sandbox: RunningSandbox) -> Iterator[Play]:
    play = Play(database, redis, sandbox)
    with database.begin() as conn:
        a_world(conn)
        play.leads = some_leads(conn, count=2)
    dispatch(database)
    yield play
    for worker in play.workers:
        worker.crash()


# ── The stories ───────────────────────────────────────────────────────────────────────────────


def the_answer_gets_lost(play: Play) -> None:
    """The provider accepts and the line goes dead; the shift goes on for a while."""
    ana = play.hire("ana")
    ana.acquire(PHONE)
    play.sandbox.fault("accept_then_cut", times=1)
    for _ in range(6):
        ana.send_next()
        play.clock.move(GAP)
        ana.confirm()


def a_shift_dies_before_it_records(play: Play) -> None:
    """The message is out, and who sent it dies before writing that down."""
    ana, ion = play.hire("ana"), play.hire("ion")
    ana.acquire(PHONE)
    ana.claim()
    ana.call()
    ana.crash()
    ion.acquire(PHONE)
    for _ in range(2):
        play.clock.move(GAP)
        ion.send_next()
    ion.give_back()


def a_shift_dies_before_it_calls(play: Play) -> None:
    """The only message is claimed, and nobody is left to send it."""
    play.opt_out(play.leads[1])
    ana, ion = play.hire("ana"), play.hire("ion")
    ana.acquire(PHONE)
    ana.claim()
    ana.crash()
    ion.acquire(PHONE)
    ion.give_back()


def a_shift_wakes_up_in_mid_call(play: Play) -> None:
    """A shift stands still in the middle of a call until another one took its phone over."""
    ana, ion = play.hire("ana"), play.hire("ion")
    ana.acquire(PHONE)
    ana.claim()
    ana.take_off()
    play.clock.move(LEASE + SECOND)
    assert ion.acquire(PHONE)
    play.clock.move(GAP)
    ion.claim()
    _both_call(play, ana, ion)


def two_shifts_of_one_phone(play: Play) -> None:
    """Two shifts of one phone are started; the first one's call takes longer than the gap."""
    ana, ion = play.hire("ana"), play.hire("ion")
    ana.acquire(PHONE)
    both = ion.acquire(PHONE)
    ana.claim()
    ana.take_off()
    play.clock.move(GAP)
    if both:
        ion.claim()
    _both_call(play, ana, ion)
    ana.confirm()
    play.clock.move(GAP)
    ana.send_next()


def a_slow_shift_dies_before_it_records(play: Play) -> None:
    """A shift takes its time before it calls, and dies right after; the next one is quick."""
    ana, ion = play.hire("ana"), play.hire("ion")
    ana.acquire(PHONE)
    ana.claim()
    play.clock.move(GAP)
    ana.call()
    ana.crash()
    ion.acquire(PHONE)
    ion.send_next()
    play.clock.move(GAP)
    ion.send_next()
    ion.give_back()


def silence_on_a_full_day(play: Play) -> None:
    """The day's last new contact may have gone out, and one more is planned."""
    play.quota(1)
    ana = play.hire("ana")
    ana.acquire(PHONE)
    play.sandbox.fault("accept_then_cut", times=1)
    ana.send_next()
    play.clock.move(GAP)
    ana.send_next()


def a_message_fails_later_on_a_full_day(play: Play) -> None:
    """The provider took the day's last new contact, says later that it failed, and then not."""
    play.quota(1)
    ana = play.hire("ana")
    ana.acquire(PHONE)
    ana.send_next()
    (line,) = play.sandbox.accepted()
    for status in ("failed", "delivered"):
        told = Delivery(
            external_id=str(line["message_uid"]),
            status=status,
            at=play.clock.now(),
            code=None,
            title="",
            meaning=None,
            callback=None,
        )
        with play.database.begin() as conn:
            take_in(conn, [Told("WHATSAPP", told)], now=play.clock.now())
        play.clock.move(GAP)
        ana.send_next()


def redis_forgets_a_full_day(play: Play) -> None:
    """The day's new contacts are used up, one more is planned, and Redis is flushed."""
    play.quota(1)
    ana = play.hire("ana")
    ana.acquire(PHONE)
    ana.send_next()
    play.redis.flushall()
    play.clock.move(GAP)
    ana.send_next()
    ana.give_back()


def a_person_asks_to_stop(play: Play) -> None:
    """Both leads ask to stop while their first message is planned."""
    for lead_id in play.leads:
        play.opt_out(lead_id)
    ana = play.hire("ana")
    ana.acquire(PHONE)
    ana.send_next()
    ana.give_back()


def a_person_is_imported_again(play: Play) -> None:
    """Somebody asks to stop before anything was planned, and comes in again with a later file."""
    with play.database.begin() as conn:
        known = some_leads(conn, count=1, first=len(play.leads))
    play.opt_out(known[0])
    with play.database.begin() as conn:
        some_leads(conn, count=1, first=len(play.leads))
    dispatch(play.database)
    ana = play.hire("ana")
    ana.acquire(PHONE)
    for _ in range(3):
        ana.send_next()
        play.clock.move(GAP)
    ana.give_back()


def the_history_lags(play: Play) -> None:
    """The answer got lost, and long after the message is still missing from the history."""
    ana = play.hire("ana")
    ana.acquire(PHONE)
    play.sandbox.fault("accept_then_cut", times=1)
    ana.send_next()
    hidden = play.sandbox.fault("history_hidden")
    play.settle()
    play.sandbox.lift(hidden)
    ion = play.hire("ion")
    ion.acquire(PHONE)
    ion.send_next()
    play.clock.move(GAP)
    ion.send_next()
    ion.give_back()


def _both_call(play: Play, ana: Worker, ion: Worker) -> None:
    """Let whoever lives and has a message call, both at once if both do."""
    play.sandbox.fault("late", delay_ms=LATE_MS)
    if ion.message is not None:
        ion.take_off()
    calling = [worker for worker in (ana, ion) if worker.alive and worker.in_the_air]
    for worker in calling:
        worker.body.go_on()
    for worker in calling:
        worker.wait()
        worker.record()
    play.sandbox.lift()


# ── The judgement ─────────────────────────────────────────────────────────────────────────────

Story = Callable[[Play], None]
MUTANTS: list[tuple[Mutant, Story, Promise]] = [
    (mutants.retry_on_silence, the_answer_gets_lost, "DUPLICATE"),
    (mutants.rescue_sends_again, a_shift_dies_before_it_records, "DUPLICATE"),
    (mutants.absent_is_sent_again, the_history_lags, "DUPLICATE"),
    (mutants.takeover_spares_the_holder, a_shift_wakes_up_in_mid_call, "TWO AT ONCE"),
    (mutants.no_lease, two_shifts_of_one_phone, "TWO AT ONCE"),
    (mutants.crash_forgets_the_gap, a_slow_shift_dies_before_it_records, "TOO SOON"),
    (mutants.silence_costs_no_quota, silence_on_a_full_day, "OVER QUOTA"),
    (mutants.a_late_failure_frees_its_place, a_message_fails_later_on_a_full_day, "OVER QUOTA"),
    (mutants.redis_is_the_truth, redis_forgets_a_full_day, "OVER QUOTA"),
    (mutants.opt_out_stops_planning_only, a_person_asks_to_stop, "AFTER OPT-OUT"),
    (mutants.opt_out_cancels_only, a_person_is_imported_again, "AFTER OPT-OUT"),
    (mutants.nobody_rescues, a_shift_dies_before_it_calls, "STUCK"),
]
NAMES = [mutant.__name__ for mutant, _, _ in MUTANTS]


@pytest.mark.parametrize("story", [story for _, story, _ in MUTANTS], ids=NAMES)
def test_the_real_code_keeps_every_promise(play: Play, story: Story):
    story(play)
    play.settle()
    play.check_all()


@pytest.mark.parametrize(("mutant", "story", "promise"), MUTANTS, ids=NAMES)
def test_without_the_protection_the_promise_breaks(
    play: Play, monkeypatch: pytest.MonkeyPatch, mutant: Mutant, story: Story, promise: Promise
):
    mutant(monkeypatch, play.database)
    story(play)
    play.settle()
    with pytest.raises(Broken) as broken:
        play.check_all()
    assert broken.value.promise == promise
