"""Every order of events that the sending core can meet, tried one by one.

The model is a small picture of the core: workers that send, a phone that one of them may hold,
messages that move through the outbox, the quota ledger in Postgres, the Redis gate beside it, and
a provider that sometimes lies. `explore` starts with everything planned, takes every step that
is possible, then every step possible after that, breadth first, until no new state appears. The
first state that breaks a promise ends the search, and because the search is breadth first, the
steps that led there are the shortest that could.

One message, step by step. A worker *claims* the phone (a lease with a fence), *asks Redis*
whether a new conversation may be opened, *begins* (one transaction: the lease is still mine, no
other row of this phone is being sent, the row still waits, the person did not opt out, the ledger
has room), *calls* the provider with no transaction open, and *records* the answer. A worker that
died or slept past its lease is *killed* by the reaper, then the phone is freed and what was in
the air becomes unconfirmed. Reconciliation finds an unconfirmed message in the provider's
history, or parks it for a person.

What goes wrong, each as often as `Faults` allows: a worker crashes; a worker sleeps past its
lease and wakes up in the middle of what it was doing; Redis loses everything; the provider stays
silent (having accepted the message, or not); the provider refuses (429, or for good). Besides, a
person may opt out at any time. With `Faults.replies` all messages are to leads of one person, who
may answer as any of them. With `Faults.late` the provider may say of a message that it took that it
failed, and then that it arrived after all.

The promises:

* DUPLICATE: no message is accepted twice by the provider.
* OVER QUOTA: neither the provider nor the ledger counts more new conversations than the cap.
* TWO AT ONCE: one phone never has two requests in flight.
* AFTER OPT-OUT: no begin commits after the person's opt-out committed.
* AFTER REPLY: once the person answered as one lead, nothing is begun for any of their leads, and no
  message that turns out to be sent brings its next step.
* STUCK: from every state that can be reached, if nothing more goes wrong, some order of ordinary
  steps brings each message to rest: sent, failed, cancelled, parked, or waiting for quota.

`Rules()` is the form that the product uses. Each switch takes one protection away, so that a test
can show what that protection is for.

Three shortcuts keep the model small without hiding a behaviour. A fence is only ever compared for
equality, so the model keeps who owns the newest fence, not its number. A crashed worker is
restarted at once with a new identity; what it held belongs to `GHOST`. Workers are alike and
messages are alike, so states that differ only in their numbering are visited once.

What the model does not know: more than one phone or one day, clocks, pacing and hours, follow-ups
(every message here opens a conversation with another person), the inbox, what a person decides
about a parked message, and SQL itself: a transaction is one step, and a commit is never lost. A
dead process takes its request with it: the provider has accepted it by then or never will. (Were
it accepted a little later, the outbox could not tell that from a history that lags, which the
model has.) A settle time is not modelled either: "absent" may be concluded at any moment, which
is harsher than the product. "Nothing stuck" says that a way out exists, not how soon it is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise, permutations
from typing import Literal, NamedTuple

MessageState = Literal[
    "planned", "sending", "sent", "deferred", "unconfirmed", "parked", "cancelled", "failed"
]
Phase = Literal["idle", "holding", "looked", "granted", "begun", "calling", "answered"]
Answer = Literal["none", "accepted", "silence", "later", "never"]
Promise = Literal["DUPLICATE", "OVER QUOTA", "TWO AT ONCE", "AFTER OPT-OUT", "AFTER REPLY", "STUCK"]

SETTLED: frozenset[MessageState] = frozenset({"sent", "failed", "cancelled", "parked"})
EVERY_PROMISE: frozenset[Promise] = frozenset(
    {"DUPLICATE", "OVER QUOTA", "TWO AT ONCE", "AFTER OPT-OUT", "AFTER REPLY", "STUCK"}
)

# Who holds the phone, or whose attempt a row is: a worker's index, or one of these two.
NOBODY = -1
GHOST = -2  # a process that no longer lives

NO_MESSAGE = -1


@dataclass(frozen=True)
class Rules:
    """How the core behaves; every default is what the product does, every switch a mutant."""

    retry_on_timeout: bool = False
    """Silence is answered with another call, as many HTTP libraries do."""
    rescue_to_ready: bool = False
    """The reaper plans the dead holder's message again, as many job queues do."""
    takeover_without_kill: bool = False
    """The reaper frees the phone while the sleeping holder still lives."""
    no_fence: bool = False
    """Begin, record and release do not check whose lease and whose attempt it is."""
    no_lease: bool = False
    """Nobody holds the phone; the database still refuses two rows in `sending`."""
    no_sending_index: bool = False
    """The database allows two rows of one phone in `sending`."""
    release_quota_on_unknown: bool = False
    """A send with unknown outcome gives its place in the quota back."""
    release_quota_on_late_failure: bool = False
    """A message that was taken and failed later gives its place back until it arrives after all."""
    redis_is_truth: bool = False
    """Only the Redis set limits; the ledger is written but never asked."""
    redis_gate_not_atomic: bool = False
    """Redis is asked in one step and told in another."""
    opt_out_at_enqueue_only: bool = False
    """An opt-out neither cancels what is planned nor stops a begin."""
    opt_out_cancels_only: bool = False
    """An opt-out cancels what waits, and begin trusts that."""
    reply_cancels_only: bool = False
    """A reply cancels what waits for the person's other leads, and leaves no mark on them."""
    absent_requeues: bool = False
    """A message that is not in the history is planned again."""
    exact_history: bool = False
    """The provider's history never lags: absent means never accepted."""
    no_reaper: bool = False
    """A dead or sleeping holder keeps the phone."""
    no_gate_sweep: bool = False
    """The Redis set is never compared with the ledger."""


class Faults(NamedTuple):
    """How many times each thing may still go wrong."""

    crashes: int = 2
    pauses: int = 1
    flushes: int = 1
    silences: int = 1
    refusals: int = 1
    replies: int = 0
    late: int = 0


USUAL_FAULTS = Faults()


class Message(NamedTuple):
    """One outbox row, with what the ledger, Redis and the provider know about it."""

    state: MessageState = "planned"
    attempt_by: int = NOBODY  # stands for the row's fence while it is `sending`
    in_ledger: bool = False
    in_gate: bool = False
    opted_out: bool = False
    accepted: int = 0  # the provider's journal: the judge
    begun_after_opt_out: bool = False
    answered: bool = False  # the person spoke, as this lead or as another: the judge
    in_conversation: bool = False  # what this lead's own row says of it
    went_on_after_reply: bool = False
    failed_late: bool = False  # what the provider said last of a message that it took


class Worker(NamedTuple):
    """One sending process and how far it is with its message."""

    phase: Phase = "idle"
    message: int = NO_MESSAGE
    answer: Answer = "none"
    late: bool = False  # it slept, and its lease (or its attempt's deadline) has run out


class State(NamedTuple):
    """Everything at one moment."""

    messages: tuple[Message, ...]
    workers: tuple[Worker, ...]
    holder: int
    gate_known: bool  # Redis carries the epoch that Postgres expects
    left: Faults


class World(NamedTuple):
    """What stays the same during one exploration."""

    rules: Rules
    cap: int


Who = tuple[tuple[Message, ...], tuple[Worker, ...], int]  # the first three parts of a state
Step = tuple[str, State]
Transition = Callable[[World, State], Iterator[Step]]


@dataclass(frozen=True)
class Violation:
    """A broken promise and the fewest steps that break it."""

    promise: Promise
    steps: tuple[str, ...]

    def __str__(self) -> str:
        lines = (f"{number:>3}. {step}" for number, step in enumerate(self.steps, start=1))
        return "\n".join((f"{self.promise} in {len(self.steps)} steps", *lines))


@dataclass(frozen=True)
class Result:
    """What an exploration saw: how many states, what happened in them, and what broke."""

    states: int
    violation: Violation | None
    reached: frozenset[MessageState]
    taken: frozenset[str]
    """The names of the transitions that were taken at least once."""


# --- Small words that the transitions are written in ---------------------------------------------


def worker_name(w: int) -> str:
    """The worker's name in a trace: A, B, ..."""
    return f"worker {chr(ord('A') + w)}"


def message_name(m: int) -> str:
    """The message's name in a trace: 1, 2, ..."""
    return f"message {m + 1}"


def change_message(state: State, m: int, /, **changes: object) -> State:
    """The state with one message changed."""
    messages = state.messages
    changed = messages[m]._replace(**changes)
    return state._replace(messages=(*messages[:m], changed, *messages[m + 1 :]))


def change_worker(state: State, w: int, worker: Worker) -> State:
    """The state with one worker put in place of what it was."""
    workers = state.workers
    return state._replace(workers=(*workers[:w], worker, *workers[w + 1 :]))


def put_down(state: State, w: int) -> State:
    """The worker is done with its message; it goes on only if the phone is still its own."""
    if state.holder == w:
        return change_worker(state, w, Worker("holding", late=state.workers[w].late))
    return change_worker(state, w, Worker())


def let_go(world: World, state: State, w: int) -> State:
    """The worker ends its shift; without a fence it frees the phone whoever holds it."""
    idle = change_worker(state, w, Worker())
    return idle._replace(holder=NOBODY) if state.holder == w or world.rules.no_fence else idle


def bury(state: State, w: int) -> State:
    """The process is gone; its lease and its attempt stay behind and belong to nobody alive."""
    orphaned = tuple(
        message._replace(attempt_by=GHOST) if message.attempt_by == w else message
        for message in state.messages
    )
    return change_worker(state, w, Worker())._replace(
        messages=orphaned, holder=GHOST if state.holder == w else state.holder
    )


def in_ledger(state: State) -> int:
    """How many conversations the ledger counts today."""
    return sum(message.in_ledger for message in state.messages)


def in_gate(state: State) -> int:
    """How many conversations the Redis set holds."""
    return sum(message.in_gate for message in state.messages)


def outcome_unknown(world: World, state: State, m: int) -> State:
    """The message may have gone out: it waits for reconciliation and stays counted."""
    state = change_message(state, m, state="unconfirmed", attempt_by=NOBODY)
    if world.rules.release_quota_on_unknown:
        return change_message(state, m, in_ledger=False, in_gate=False)
    return state


def rescue(world: World, state: State, m: int) -> State:
    """What becomes of a message whose worker is gone in the middle of sending it."""
    if world.rules.rescue_to_ready:
        return change_message(state, m, state="planned", attempt_by=NOBODY)
    return outcome_unknown(world, state, m)


# --- The worker's steps --------------------------------------------------------------------------


def claim_phone(world: World, state: State) -> Iterator[Step]:
    """An idle worker takes the free phone; only the reaper may free what another one held."""
    if world.rules.no_lease or state.holder != NOBODY:
        return
    for w, worker in enumerate(state.workers):
        if worker.phase == "idle":
            claimed = change_worker(state, w, Worker("holding"))
            yield f"{worker_name(w)} claims the phone", claimed._replace(holder=w)


def end_shift(world: World, state: State) -> Iterator[Step]:
    """A worker between two messages gives the phone back."""
    for w, worker in enumerate(state.workers):
        if worker.phase == "holding":
            yield f"{worker_name(w)} ends its shift", let_go(world, state, w)


def ask_gate(world: World, state: State) -> Iterator[Step]:
    """A worker asks Redis for a place for a planned message; an unknown gate grants nothing."""
    rules = world.rules
    if not state.gate_known and not rules.redis_is_truth:
        return
    ready: Phase = "idle" if rules.no_lease else "holding"
    room = in_gate(state) < world.cap
    for w, worker in enumerate(state.workers):
        if worker.phase != ready:
            continue
        for m, message in enumerate(state.messages):
            if message.state != "planned":
                continue
            asks = f"{worker_name(w)} asks Redis about {message_name(m)}"
            if not room and not message.in_gate:
                yield f"{asks}: full", change_message(state, m, state="deferred")
            elif rules.redis_gate_not_atomic:
                looked = Worker("looked", m, late=worker.late)
                yield f"{asks}: there is room", change_worker(state, w, looked)
            else:
                granted = Worker("granted", m, late=worker.late)
                taken = change_message(state, m, in_gate=True)
                yield f"{asks}: granted", change_worker(taken, w, granted)


def tell_gate(_world: World, state: State) -> Iterator[Step]:
    """The second half of a gate that is not atomic: take the place without looking again."""
    for w, worker in enumerate(state.workers):
        if worker.phase == "looked":
            taken = change_message(state, worker.message, in_gate=True)
            told = change_worker(taken, w, worker._replace(phase="granted"))
            yield f"{worker_name(w)} adds {message_name(worker.message)} to Redis", told


def begin(world: World, state: State) -> Iterator[Step]:
    """One transaction checks every guard, counts the conversation and marks the row `sending`."""
    for w, worker in enumerate(state.workers):
        if worker.phase != "granted":
            continue
        m = worker.message
        begins = f"{worker_name(w)} begins {message_name(m)}"
        refusal = why_not_begin(world, state, w)
        if refusal == "lease lost":
            next_state = let_go(world, change_message(state, m, in_gate=False), w)
        elif refusal in ("opted out", "in conversation"):
            cancelled = change_message(state, m, state="cancelled", in_gate=False)
            next_state = put_down(cancelled, w)
        elif refusal == "quota used up":
            deferred = change_message(state, m, state="deferred", in_gate=False)
            next_state = put_down(deferred, w)
        elif refusal is not None:
            next_state = put_down(state, w)
        else:
            sending = change_message(
                state,
                m,
                state="sending",
                attempt_by=w,
                in_ledger=True,
                begun_after_opt_out=state.messages[m].opted_out,
                went_on_after_reply=state.messages[m].answered,
            )
            next_state = change_worker(sending, w, worker._replace(phase="begun"))
        yield (f"{begins}: {refusal}" if refusal else begins), next_state


def why_not_begin(world: World, state: State, w: int) -> str | None:
    """The first guard that refuses this worker's begin, or None when it may commit."""
    rules = world.rules
    message = state.messages[state.workers[w].message]
    if not (rules.no_fence or rules.no_lease) and (state.holder != w or state.workers[w].late):
        return "lease lost"
    if message.state != "planned":
        return "no longer planned"
    if not rules.no_sending_index and any(other.state == "sending" for other in state.messages):
        return "another one is being sent"
    asks_opt_out = not (rules.opt_out_at_enqueue_only or rules.opt_out_cancels_only)
    if asks_opt_out and message.opted_out:
        return "opted out"
    if message.in_conversation:
        return "in conversation"
    if not (rules.redis_is_truth or message.in_ledger) and in_ledger(state) >= world.cap:
        return "quota used up"
    return None


def call(_world: World, state: State) -> Iterator[Step]:
    """The first byte leaves; nothing is checked again, because nothing could be in time."""
    for w, worker in enumerate(state.workers):
        if worker.phase == "begun":
            calling = change_worker(state, w, worker._replace(phase="calling"))
            yield (
                f"{worker_name(w)} calls the provider with {message_name(worker.message)}",
                calling,
            )


def retry_call(world: World, state: State) -> Iterator[Step]:
    """Only a mutant does this: silence is followed by the same call again."""
    if not world.rules.retry_on_timeout:
        return
    for w, worker in enumerate(state.workers):
        if worker.answer == "silence":
            again = worker._replace(phase="calling", answer="none")
            retried = change_worker(state, w, again)
            yield f"{worker_name(w)} calls again with {message_name(worker.message)}", retried


def record(world: World, state: State) -> Iterator[Step]:
    """The answer is written down, if the attempt is still this worker's own."""
    for w, worker in enumerate(state.workers):
        if worker.phase != "answered":
            continue
        m, message = worker.message, state.messages[worker.message]
        records = f"{worker_name(w)} records {message_name(m)}"
        own = message.state == "sending" and message.attempt_by == w
        if own or world.rules.no_fence:
            recorded = written_down(world, state, m, worker.answer)
            yield f"{records}: {recorded.messages[m].state}", put_down(recorded, w)
        else:
            yield f"{records}: too late, changes nothing", put_down(state, w)


def written_down(world: World, state: State, m: int, answer: Answer) -> State:
    """The row after an answer; only a certain "not sent" gives the quota back."""
    if answer == "accepted":
        return gone_out(state, m)
    if answer == "silence":
        return outcome_unknown(world, state, m)
    now: MessageState = "deferred" if answer == "later" else "failed"
    return change_message(state, m, state=now, attempt_by=NOBODY, in_ledger=False, in_gate=False)


def gone_out(state: State, m: int) -> State:
    """The row of a message that was sent; its next step is planned, unless people talk now."""
    message = state.messages[m]
    wrong = message.went_on_after_reply or (message.answered and not message.in_conversation)
    return change_message(state, m, state="sent", attempt_by=NOBODY, went_on_after_reply=wrong)


# --- The provider's steps ------------------------------------------------------------------------


def accept(_world: World, state: State) -> Iterator[Step]:
    """The provider takes the message and says so."""
    for w, worker in enumerate(state.workers):
        if worker.phase == "calling":
            name = f"the provider accepts {message_name(worker.message)} from {worker_name(w)}"
            yield name, answered(state, w, "accepted", accepted=True)


def stay_silent(_world: World, state: State) -> Iterator[Step]:
    """The call times out; the message was accepted, or it was not."""
    if not state.left.silences:
        return
    spent = state._replace(left=state.left._replace(silences=state.left.silences - 1))
    for w, worker in enumerate(state.workers):
        if worker.phase == "calling":
            name = f"{message_name(worker.message)} from {worker_name(w)}"
            accepted = answered(spent, w, "silence", accepted=True)
            yield f"the provider accepts {name}, but the answer is lost", accepted
            lost = answered(spent, w, "silence", accepted=False)
            yield f"the provider never sees {name}, and the call times out", lost


def refuse(_world: World, state: State) -> Iterator[Step]:
    """The provider says no: try later (429), or never."""
    if not state.left.refusals:
        return
    spent = state._replace(left=state.left._replace(refusals=state.left.refusals - 1))
    for w, worker in enumerate(state.workers):
        if worker.phase == "calling":
            name = f"{message_name(worker.message)} from {worker_name(w)}"
            yield f"the provider answers 429 to {name}", answered(spent, w, "later", accepted=False)
            yield f"the provider rejects {name}", answered(spent, w, "never", accepted=False)


def answered(state: State, w: int, answer: Answer, *, accepted: bool) -> State:
    """The call is over; the provider's journal has the message if it accepted it."""
    worker = state.workers[w]
    if accepted:
        before = state.messages[worker.message].accepted
        state = change_message(state, worker.message, accepted=before + 1)
    return change_worker(state, w, worker._replace(phase="answered", answer=answer))


def change_its_mind(world: World, state: State) -> Iterator[Step]:
    """The provider says that what it took has failed, and then that it arrived after all."""
    if not state.left.late:
        return
    spent = state._replace(left=state.left._replace(late=state.left.late - 1))
    for m, message in enumerate(state.messages):
        if message.state != "sent":
            continue
        fails = not message.failed_late
        told = change_message(spent, m, failed_late=fails)
        if world.rules.release_quota_on_late_failure:
            told = change_message(told, m, in_ledger=not fails, in_gate=not fails)
        says = "has failed" if fails else "arrived after all"
        yield f"the provider says that {message_name(m)} {says}", told


# --- What tidies up ------------------------------------------------------------------------------


def kill_late_holder(world: World, state: State) -> Iterator[Step]:
    """The reaper ends the process whose lease ran out, before anything else."""
    rules = world.rules
    if rules.no_reaper or rules.takeover_without_kill or state.holder < 0:
        return
    if state.workers[state.holder].late:
        yield f"the reaper kills {worker_name(state.holder)}", bury(state, state.holder)


def free_phone(world: World, state: State) -> Iterator[Step]:
    """The reaper raises the fence, and what was being sent gets its verdict."""
    rules = world.rules
    if rules.no_reaper or state.holder == NOBODY:
        return
    sleeping = state.holder != GHOST and state.workers[state.holder].late
    if state.holder == GHOST or (rules.takeover_without_kill and sleeping):
        freed = state._replace(holder=NOBODY)
        for m, message in enumerate(state.messages):
            if message.state == "sending":
                freed = rescue(world, freed, m)
        yield "the reaper raises the fence and frees the phone", freed


def sweep_overdue(world: World, state: State) -> Iterator[Step]:
    """Without a lease only a row's age says that its worker may be gone."""
    if not world.rules.no_lease or world.rules.no_reaper:
        return
    for m, message in enumerate(state.messages):
        if message.state == "sending":
            by = message.attempt_by
            if by == GHOST or state.workers[by].late:
                yield f"a sweep gives up on {message_name(m)}", rescue(world, state, m)


def reconcile(world: World, state: State) -> Iterator[Step]:
    """An unconfirmed message is looked up in the provider's history, which may lag."""
    rules = world.rules
    for m, message in enumerate(state.messages):
        if message.state != "unconfirmed":
            continue
        name = message_name(m)
        if message.accepted:
            yield f"the history shows {name}", gone_out(state, m)
        if not message.accepted or not rules.exact_history:
            then: MessageState = "planned" if rules.absent_requeues else "parked"
            absent = change_message(state, m, state=then)
            yield f"the history does not show {name}: {then}", absent


def become_due(_world: World, state: State) -> Iterator[Step]:
    """A deferred message has waited long enough."""
    for m, message in enumerate(state.messages):
        if message.state == "deferred":
            yield f"{message_name(m)} is due again", change_message(state, m, state="planned")


def sweep_gate(world: World, state: State) -> Iterator[Step]:
    """The Redis set is made equal to the ledger: after a loss, and against leaks."""
    if world.rules.redis_is_truth or world.rules.no_gate_sweep:
        return
    equal = tuple(message._replace(in_gate=message.in_ledger) for message in state.messages)
    if not state.gate_known or equal != state.messages:
        swept = state._replace(messages=equal, gate_known=True)
        yield "the Redis set is rebuilt from the ledger", swept


# --- What goes wrong, and people -----------------------------------------------------------------


def crash(_world: World, state: State) -> Iterator[Step]:
    """A worker that was doing something dies where it stands."""
    if not state.left.crashes:
        return
    spent = state._replace(left=state.left._replace(crashes=state.left.crashes - 1))
    for w, worker in enumerate(state.workers):
        if worker.phase != "idle":
            yield f"{worker_name(w)} crashes ({worker.phase})", bury(spent, w)


def pause(_world: World, state: State) -> Iterator[Step]:
    """A worker sleeps past its lease; it lives, and will go on where it was."""
    if not state.left.pauses:
        return
    spent = state._replace(left=state.left._replace(pauses=state.left.pauses - 1))
    for w, worker in enumerate(state.workers):
        if worker.phase != "idle" and not worker.late:
            paused = change_worker(spent, w, worker._replace(late=True))
            yield f"{worker_name(w)} sleeps past its lease ({worker.phase})", paused


def flush_redis(_world: World, state: State) -> Iterator[Step]:
    """Redis loses everything it had."""
    if not state.left.flushes:
        return
    emptied = tuple(message._replace(in_gate=False) for message in state.messages)
    left = state.left._replace(flushes=state.left.flushes - 1)
    yield "Redis is flushed", state._replace(messages=emptied, gate_known=False, left=left)


def opt_out(world: World, state: State) -> Iterator[Step]:
    """A person says stop; the same transaction cancels what still waits for them."""
    for m, message in enumerate(state.messages):
        if message.opted_out or message.state in SETTLED:
            continue
        stopped = change_message(state, m, opted_out=True)
        waits = message.state in ("planned", "deferred")
        if waits and not world.rules.opt_out_at_enqueue_only:
            stopped = change_message(stopped, m, state="cancelled")
        yield f"the person of {message_name(m)} opts out", stopped


def reply(world: World, state: State) -> Iterator[Step]:
    """The one person of all these messages answers one; the same transaction ends the others."""
    if not state.left.replies:
        return
    left = state.left._replace(replies=state.left.replies - 1)
    for m in range(len(state.messages)):
        heard = tuple(
            message._replace(
                answered=True,
                in_conversation=not world.rules.reply_cancels_only or other == m,
                state="cancelled" if message.state in ("planned", "deferred") else message.state,
            )
            for other, message in enumerate(state.messages)
        )
        yield f"the person answers {message_name(m)}", state._replace(messages=heard, left=left)


ORDINARY: tuple[Transition, ...] = (
    claim_phone,
    end_shift,
    ask_gate,
    tell_gate,
    begin,
    call,
    retry_call,
    accept,
    record,
    kill_late_holder,
    free_phone,
    sweep_overdue,
    reconcile,
    become_due,
    sweep_gate,
)
TROUBLE: tuple[Transition, ...] = (
    stay_silent,
    refuse,
    crash,
    pause,
    flush_redis,
    opt_out,
    reply,
    change_its_mind,
)
MOVES = tuple((move, move in ORDINARY) for move in ORDINARY + TROUBLE)


# --- The promises --------------------------------------------------------------------------------


def broken_promise(world: World, state: State, watched: frozenset[Promise]) -> Promise | None:
    """The promise that this state breaks, or None; being stuck shows only in the whole picture."""
    broken: dict[Promise, bool] = {
        "DUPLICATE": any(message.accepted > 1 for message in state.messages),
        "OVER QUOTA": in_ledger(state) > world.cap
        or sum(message.accepted > 0 for message in state.messages) > world.cap,
        "TWO AT ONCE": sum(worker.phase == "calling" for worker in state.workers) > 1,
        "AFTER OPT-OUT": any(message.begun_after_opt_out for message in state.messages),
        "AFTER REPLY": any(message.went_on_after_reply for message in state.messages),
    }
    return next((name for name, is_broken in broken.items() if is_broken and name in watched), None)


def at_rest(world: World, state: State) -> bool:
    """Whether every message is settled, or waits for a quota that is really used up."""
    full = in_ledger(state) >= world.cap
    return all(
        message.state in SETTLED or (message.state == "deferred" and full and not message.in_ledger)
        for message in state.messages
    )


# --- The search ----------------------------------------------------------------------------------


def canonical(world: World, state: State) -> State:
    """The one state that stands for this one and all that behave alike."""
    messages, workers, holder = state.messages, state.workers, state.holder
    if not world.rules.no_fence:
        messages = forget_old_opt_outs(messages)
    return State(*one_numbering(messages, workers, holder), state.gate_known, state.left)


def forget_old_opt_outs(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """The messages without the opt-outs of settled ones, about which nobody will ask again.

    Not for rules without a fence, where a late worker may write over a settled row.
    """
    if not any(message.opted_out and message.state in SETTLED for message in messages):
        return messages
    return tuple(
        message._replace(opted_out=False) if message.state in SETTLED else message
        for message in messages
    )


@lru_cache(maxsize=100_000)  # the same people and rows come back with other faults left
def one_numbering(messages: tuple[Message, ...], workers: tuple[Worker, ...], holder: int) -> Who:
    """Workers and messages in one fixed order, whatever order they come in."""
    ranks = [
        (worker.phase, worker.answer, worker.late, holder == w) for w, worker in enumerate(workers)
    ]
    order = sorted(range(len(ranks)), key=ranks.__getitem__)
    # Idle workers point at nothing, so it does not matter which of them comes first.
    if all(ranks[a] != ranks[b] or ranks[a][0] == "idle" for a, b in pairwise(order)):
        return renumbered(messages, workers, holder, order)
    return min(
        renumbered(messages, workers, holder, order)
        for order in permutations(order)
        if all(ranks[a] <= ranks[b] for a, b in pairwise(order))
    )


def renumbered(
    messages: tuple[Message, ...], workers: tuple[Worker, ...], holder: int, order: Sequence[int]
) -> Who:
    """The workers in this order, and the messages sorted by all that is known about them."""
    place = {NOBODY: NOBODY, GHOST: GHOST} | {w: new for new, w in enumerate(order)}
    ordered = [workers[w] for w in order]
    placed = [message._replace(attempt_by=place[message.attempt_by]) for message in messages]
    keys = [
        (message, [worker.message == m for worker in ordered]) for m, message in enumerate(placed)
    ]
    by_key = sorted(range(len(keys)), key=keys.__getitem__)
    moved = {NO_MESSAGE: NO_MESSAGE} | {m: new for new, m in enumerate(by_key)}
    return (
        tuple(placed[m] for m in by_key),
        tuple(worker._replace(message=moved[worker.message]) for worker in ordered),
        place[holder],
    )


def explore(
    rules: Rules,
    *,
    messages: int,
    workers: int,
    cap: int,
    faults: Faults = USUAL_FAULTS,
    watched: frozenset[Promise] = EVERY_PROMISE,
) -> Result:
    """Visit every reachable state and say which promise breaks first, and how."""
    world = World(rules, cap)
    start = State((Message(),) * messages, (Worker(),) * workers, NOBODY, True, faults)
    first = canonical(world, start)
    seen: dict[State, int] = {first: 0}
    found: list[State] = [first]
    parents: list[int] = [0]
    healed_from: list[list[int]] = [[]]  # for each state, those that an ordinary step leads from
    reached: set[MessageState] = {"planned"}
    taken: set[str] = set()

    def result(broken: Promise | None = None, last: int = 0) -> Result:
        steps = trace(world, start, path(found, parents, last))
        violation = Violation(broken, steps) if broken else None
        return Result(len(found), violation, frozenset(reached), frozenset(taken))

    here = 0
    while here < len(found):
        for transition, heals in MOVES:
            for _, raw in transition(world, found[here]):
                taken.add(transition.__name__)
                state = canonical(world, raw)
                there = seen.setdefault(state, len(found))
                if there == len(found):
                    found.append(state)
                    parents.append(here)
                    healed_from.append([])
                    reached.update(message.state for message in state.messages)
                    promise = broken_promise(world, state, watched)
                    if promise:
                        return result(promise, there)
                if heals:
                    healed_from[there].append(here)
        here += 1

    stuck = first_stuck(world, found, healed_from) if "STUCK" in watched else None
    return result() if stuck is None else result("STUCK", stuck)


def first_stuck(world: World, found: list[State], healed_from: list[list[int]]) -> int | None:
    """The nearest state from which no order of ordinary steps brings everything to rest."""
    to_visit = [i for i, state in enumerate(found) if at_rest(world, state)]
    can_rest = set(to_visit)
    while to_visit:
        fresh = [i for i in healed_from[to_visit.pop()] if i not in can_rest]
        can_rest.update(fresh)
        to_visit.extend(fresh)
    return next((i for i in range(len(found)) if i not in can_rest), None)


def path(found: list[State], parents: list[int], last: int) -> list[State]:
    """The states after the first one, up to the last."""
    states: list[State] = []
    while last:
        states.append(found[last])
        last = parents[last]
    return states[::-1]


def trace(world: World, start: State, states: list[State]) -> tuple[str, ...]:
    """The steps along a path, retold so that a worker and a message keep their names throughout."""
    steps: list[str] = []
    now = start
    for wanted in states:
        name, now = next(
            (name, state)
            for transition, _ in MOVES
            for name, state in transition(world, now)
            if canonical(world, state) == wanted
        )
        steps.append(name)
    return tuple(steps)
