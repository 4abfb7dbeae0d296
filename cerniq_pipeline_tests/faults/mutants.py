"""Broken copies of the sending core: each takes one protection away, as a hasty change would.

A mutant is a patch of the real code. It exists to show that the protection is needed, and that
the judge notices when it is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import datetime
from types import ModuleType, SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Connection, Engine, text

from cerniq_pipeline.domain.deliveries import Delivery
from cerniq_pipeline.domain.holds import MessageFacts
from cerniq_pipeline.domain.leads import Stage
from cerniq_pipeline.domain.outbox import OutboxMessage, State
from cerniq_pipeline.domain.quotas import Standing
from cerniq_pipeline.errors import SendDeferred, SendFailed, SendUnconfirmed
from cerniq_pipeline.services import (
    claiming,
    deliveries,
    drain,
    facts,
    hearing,
    history,
    leasing,
    reconcile,
    recording,
)
from cerniq_pipeline.services.sending import Desk
from cerniq_pipeline.store import (
    conversations,
    leads,
    outbox,
    phones,
    quotas,
    selection,
    suppressions,
)
from cerniq_pipeline.store.deliveries import Sent
from cerniq_pipeline.store.phones import Phone
from cerniq_pipeline.store.quotas import QuotaGate

Mutant = Callable[[pytest.MonkeyPatch, Engine], None]


def retry_on_silence(patch: pytest.MonkeyPatch, _: Engine) -> None:
    """No answer counts as "not sent", so the message is tried again."""
    real = recording._record_failure

    def record(
        desk: Desk, conn: Connection, message: OutboxMessage, outcome: SendFailed, **rest: Any
    ) -> State:
        if isinstance(outcome, SendUnconfirmed):
            outcome = SendDeferred("UNREACHABLE", outcome.why)
        return real(desk, conn, message, outcome, **rest)

    patch.setattr(recording, "_record_failure", record)


def rescue_sends_again(patch: pytest.MonkeyPatch, _: Engine) -> None:
    """What a dead shift left in flight goes back into the queue."""

    def move(conn: Connection, message_id: int, *, target: State, **rest: Any) -> bool:
        if target is State.UNCONFIRMED:
            target = State.DEFERRED
        return outbox.move(conn, message_id, target=target, **rest)

    patch.setattr(leasing, "outbox", _variant(outbox, move=move))


def nobody_rescues(patch: pytest.MonkeyPatch, _: Engine) -> None:
    """What a dead shift left in flight stays there."""
    patch.setattr(leasing, "outbox", _variant(outbox, abandoned=lambda *_, **__: []))


def takeover_spares_the_holder(patch: pytest.MonkeyPatch, _: Engine) -> None:
    """Who overstayed its lease loses the phone, but lives on; the fence is kept."""
    patch.setattr(leasing, "_end", lambda _: True)


def no_lease(patch: pytest.MonkeyPatch, database: Engine) -> None:
    """Everybody gets the phone, and the database does not object to a second send in flight."""
    patch.setattr(leasing, "_may_take_over", lambda *_, **__: True)
    patch.setattr(leasing, "check", lambda *_, **__: None)
    with database.begin() as conn:
        conn.execute(text("DROP INDEX outbox_messages_one_sending_idx"))


def crash_forgets_the_gap(patch: pytest.MonkeyPatch, _: Engine) -> None:
    """After a crash the gap counts from the claim, though the call may have come much later."""
    patch.setattr(leasing, "phones", _variant(phones, restart_gap=lambda *_, **__: None))


def silence_costs_no_quota(patch: pytest.MonkeyPatch, _: Engine) -> None:
    """What may have gone out is taken off the phone's count."""
    real_record, real_settle = recording._record_failure, recording._settle_gate

    def record(
        desk: Desk, conn: Connection, message: OutboxMessage, outcome: SendFailed, **rest: Any
    ) -> State:
        state = real_record(desk, conn, message, outcome, **rest)
        quotas.settle(conn, message_id=message.id, state="released", now=rest["now"])
        return state

    def settle(gate: QuotaGate, message: OutboxMessage, day: Any, state: State) -> None:
        if state is State.UNCONFIRMED:
            state = State.DEFERRED
        real_settle(gate, message, day, state)

    patch.setattr(recording, "_record_failure", record)
    patch.setattr(recording, "_settle_gate", settle)


def a_late_failure_frees_its_place(patch: pytest.MonkeyPatch, _: Engine) -> None:
    """What the provider took and could not deliver is taken off the phone's count."""
    real = deliveries._consequence

    def consequence(conn: Connection, sent: Sent, delivery: Delivery, **rest: Any) -> str:
        conn.execute(
            text("UPDATE quota_ledger SET state = 'released' WHERE message_id = :id"),
            {"id": sent.message_id},
        )
        return real(conn, sent, delivery, **rest)

    patch.setattr(deliveries, "_consequence", consequence)


def redis_is_the_truth(patch: pytest.MonkeyPatch, _: Engine) -> None:
    """Only Redis counts; when it has forgotten, it is believed to know of no contact at all."""
    real = facts.standing_of

    def standing_of(conn: Connection, phone: Phone, *, now: datetime) -> Standing:
        return replace(real(conn, phone, now=now), used=0)

    def rebuild(conn: Connection, gate: QuotaGate, *, now: datetime) -> int:
        epoch = quotas.epoch(conn)
        gate.show_epoch(epoch)
        return epoch

    patch.setattr(facts, "standing_of", standing_of)
    patch.setattr(quotas, "rebuild", rebuild)


def opt_out_stops_planning_only(patch: pytest.MonkeyPatch, _: Engine) -> None:
    """Who asked to stop is not planned again, but what is planned already goes out."""
    patch.setattr(outbox, "cancel_pending", lambda *_, **__: 0)
    _facts_as_if(patch, opted_out=False, suppressed=False, stage=Stage.COLD)


def opt_out_cancels_only(patch: pytest.MonkeyPatch, _: Engine) -> None:
    """An opt-out cancels what it finds, and dispatch and claim trust that it found everything."""
    real = claiming.message_facts

    def message_facts(*args: Any, **rest: Any) -> MessageFacts:
        return replace(real(*args, **rest), opted_out=False, suppressed=False)

    patch.setattr(claiming, "message_facts", message_facts)
    patch.setattr(selection, "mark_stopped", lambda *_, **__: None)


def a_told_stop_needs_a_record(patch: pytest.MonkeyPatch, _: Engine) -> None:
    """A stop that is told of a message counts only when that message is recorded already."""
    patch.setattr(hearing, "_receiving", lambda *_: [])
    patch.setattr(hearing, "keep_stop", lambda *_, **__: True)


def claim_asks_nobody(patch: pytest.MonkeyPatch, _: Engine) -> None:
    """A stop cancels nothing, and a claim does not look who asked to stop or wrote just now."""
    patch.setattr(outbox, "cancel_pending", lambda *_, **__: 0)
    _facts_as_if(patch, opted_out=False, suppressed=False, unheard=False, stage=Stage.COLD)


def claim_does_not_wait_for_the_inbox(patch: pytest.MonkeyPatch, _: Engine) -> None:
    """What a person wrote counts once it was handled, and not as soon as it is stored."""
    _facts_as_if(patch, unheard=False)


def _facts_as_if(patch: pytest.MonkeyPatch, **changes: Any) -> None:
    real = claiming.message_facts

    def message_facts(*args: Any, **rest: Any) -> MessageFacts:
        return replace(real(*args, **rest), **changes)

    patch.setattr(claiming, "message_facts", message_facts)


def claim_takes_no_lock(patch: pytest.MonkeyPatch, _: Engine) -> None:
    """A claim reads the lead and the message without locking them."""
    patch.setattr(claiming, "outbox", _variant(outbox, lock_candidate=outbox.see_candidate))


def the_last_message_has_the_window(patch: pytest.MonkeyPatch, _: Engine) -> None:
    """The window opens with the message that is handled last, not with the one said last."""

    def open_window(conn: Connection, conversation_id: UUID, *, at: datetime, **_: Any) -> None:
        conn.execute(
            text("UPDATE whatsapp_conversations SET window_opened_at = :at WHERE id = :id"),
            {"id": conversation_id, "at": at},
        )

    patch.setattr(conversations, "open_window", open_window)


def the_sweep_skips_the_handset(patch: pytest.MonkeyPatch, _: Engine) -> None:
    """A sweep brings in what people wrote, and not what one of us typed to them."""
    patch.setattr(history, "_is_news", lambda message: not message.from_us)


def a_token_is_proof_enough(patch: pytest.MonkeyPatch, _: Engine) -> None:
    """What came with the right token is believed, whatever the provider says of it."""
    patch.setattr(drain, "_confirmed", lambda _, one: one)


def one_spelling_only(patch: pytest.MonkeyPatch, _: Engine) -> None:
    """A person is found by the number exactly as it was told."""
    patch.setattr(leads, "same_number", lambda one, other: one == other)


def a_reply_leaves_no_mark(patch: pytest.MonkeyPatch, _: Engine) -> None:
    """A reply cancels what waits for the person's other leads, and no row remembers it."""
    real = leads.end_automation

    def end_automation(conn: Connection, lead_ids: Collection[UUID], **rest: Any) -> None:
        real(conn, lead_ids, **rest)
        conn.execute(
            text("UPDATE gold_lead_journey SET in_conversation = false WHERE lead_id = ANY(:ids)"),
            {"ids": list(lead_ids)},
        )

    patch.setattr(leads, "end_automation", end_automation)


def bad_data_is_not_seen(patch: pytest.MonkeyPatch, _: Engine) -> None:
    """A claim looks at what stands in a lead's rows, and not whether anybody can read it."""
    patch.setattr(facts, "unreadable", lambda **_: None)


def every_phone_believes_it_is_lost(patch: pytest.MonkeyPatch, _: Engine) -> None:
    """Whichever phone a message is refused by stops, though another one met the same."""
    patch.setattr(recording, "is_the_messages_fault", lambda *_, **__: False)


def no_hash_is_kept(patch: pytest.MonkeyPatch, _: Engine) -> None:
    """A stop is remembered by the lead alone."""
    patch.setattr(suppressions, "suppress", lambda *_, **__: None)


def absent_is_sent_again(patch: pytest.MonkeyPatch, _: Engine) -> None:
    """A message that the provider's history does not show was not sent, so it is sent again."""

    def move(conn: Connection, message_id: int, *, target: State, **rest: Any) -> bool:
        if target is not State.PARKED:
            return outbox.move(conn, message_id, target=target, **rest)
        conn.execute(
            text("UPDATE outbox_messages SET state = 'deferred', due_at = :now WHERE id = :id"),
            {"id": message_id, "now": rest["now"]},
        )
        outbox.trace(conn, [message_id], target=State.DEFERRED, **rest)
        return True

    patch.setattr(reconcile, "outbox", _variant(outbox, move=move))


def _variant(module: ModuleType, **changes: object) -> SimpleNamespace:
    """A module as one of its users sees it, with some of its functions exchanged."""
    return SimpleNamespace(**{**vars(module), **changes})
