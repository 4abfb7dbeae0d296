"""What would be sent to a lead: the very text, phone, file and time, or why not. Sends nothing.

The rules and the rendering are those of the dispatch and of the claim, asked in a transaction that
Postgres keeps from changing anything. The choices of a text hang on the lead and its step alone, so
what is shown is what goes out, as long as nobody changes the template or the lead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection

from cerniq_pipeline.domain.holds import Hold, Installation, hold_on_message, hold_on_phone
from cerniq_pipeline.domain.names import read_name
from cerniq_pipeline.domain.outbox import OPEN
from cerniq_pipeline.domain.selection import Skip, Verdict, allocate
from cerniq_pipeline.domain.sequences import next_step
from cerniq_pipeline.errors import CerniqError, NotFound
from cerniq_pipeline.services.claiming import render, too_alike
from cerniq_pipeline.services.dispatch import judge_all
from cerniq_pipeline.services.explain import SELECTION_SAID, hold_on_lead
from cerniq_pipeline.services.facts import message_facts
from cerniq_pipeline.services.people import the_lead
from cerniq_pipeline.store import failover, outbox, overview, phones, selection, sequences, tenants
from cerniq_pipeline.store.database import Begin, only_read
from cerniq_pipeline.store.outbox import Candidate, Due
from cerniq_pipeline.store.phones import Phone
from cerniq_pipeline.store.tenants import Tenant


@dataclass(frozen=True)
class Preview:
    """One message as it would go, or as it went."""

    tenant_id: str
    lead_id: UUID
    company: str
    rule: str
    """What decides about it now: the words of `cerniq why`, or `sent`."""
    detail: str
    goes_at: datetime | None
    """Not before then; None when it does not go by itself. When it went, if it did."""
    step: int | None = None
    kind: str | None = None
    phone_id: str | None = None
    sender: str | None = None
    to: str | None = None
    text: str | None = None
    """What the person reads; the caption, if there is a file."""
    approved: dict[str, Any] | None = None
    """The name, language and values that the provider is given in place of the text."""
    file: str | None = None


def preview(
    begin: Begin,
    subject: str,
    *,
    step: int | None,
    tenant_id: str | None,
    secret: bytes,
    here: Installation,
    now: datetime,
) -> Preview:
    """Show what a lead would be sent next, or at one step of its sequence.

    Raises NotFound when there is no such lead, or no such step.
    """
    with begin() as conn:
        only_read(conn)
        _, lead_id = the_lead(conn, read_name(subject), tenant_id=tenant_id)
        asked = _Asked(conn, lead_id, secret, here, now)
        return asked.at(asked.next if step is None else step)


class _Asked:
    """One lead, and all that is asked about it within one transaction."""

    def __init__(
        self, conn: Connection, lead_id: UUID, secret: bytes, here: Installation, now: datetime
    ) -> None:
        self._conn, self._secret, self._here, self._now = conn, secret, here, now
        self._lead = overview.lead(conn, lead_id)
        self._tenant: Tenant = tenants.get(conn, self._lead["tenant_id"])
        self._message = overview.last_message(conn, lead_id)
        self._sequence_id: int | None = (
            self._lead["current_sequence_id"] or self._tenant.default_sequence_id
        )
        self._steps = sequences.steps(conn, self._sequence_id) if self._sequence_id else {}

    @property
    def next(self) -> int | None:
        """The step that is under way or comes next; None for a message outside of a sequence."""
        if self._message is not None and self._message["state"] in OPEN:
            return self._message["step"]
        return self._lead["sequence_step"] + 1

    def at(self, step: int | None) -> Preview:
        """What goes at this step, or went."""
        under_way = self._message is not None and self._message["state"] in OPEN
        if self._message is not None and under_way and step == self._message["step"]:
            return self._under_way(self._message)
        if step is None or step <= self._lead["sequence_step"]:
            return self._gone(step)
        if step not in self._steps:
            return self._without(step)
        return self._to_come(step)

    # ── A message that stands in the outbox ───────────────────────────────────────────────────

    def _under_way(self, message: dict[str, Any]) -> Preview:
        binding = hold_on_lead(
            self._conn,
            self._lead,
            message,
            secret=self._secret,
            here=self._here,
            now=self._now,
        )
        candidate = outbox.see_candidate(self._conn, Due(message["id"], message["lead_id"]))
        if candidate is None:  # it is on its way: what it says is written down
            shown = self._gone(message["step"])
            return replace(shown, rule=binding.rule, detail=binding.detail, goes_at=None)
        if message["phone_id"] is None:
            by_mail = Hold(Skip.NO_CHANNEL, "it goes by mail, which nothing sends yet", None)
            return self._shown(candidate, None, [by_mail])
        return self._shown(candidate, phones.get(self._conn, message["phone_id"]), [binding])

    def _gone(self, step: int | None) -> Preview:
        message = (
            overview.message_of_step(self._conn, self._lead["lead_id"], step) if step else None
        )
        if message is None:
            raise NotFound(f"step {step} of this lead is over, and its text is not kept")
        phone = phones.get(self._conn, message["phone_id"]) if message["phone_id"] else None
        return Preview(
            **self._whose(),
            rule=message["state"],
            detail=message["reason"] or "",
            goes_at=message["begun_at"],
            step=message["step"],
            kind=message["kind"],
            phone_id=message["phone_id"],
            sender=phone.number if phone else None,
            to=message["recipient"],
            text=message["body"],
            file=message["filename"],
        )

    # ── A message that nobody has planned yet ─────────────────────────────────────────────────

    def _without(self, step: int) -> Preview:
        if self._steps and step != self.next:
            raise NotFound(
                f"the sequence of this lead has no step {step}; it has {len(self._steps)}"
            )
        rule = Skip.SEQUENCE_FINISHED if self._steps else Skip.NO_SEQUENCE
        return Preview(
            **self._whose(), rule=rule, detail=SELECTION_SAID[rule], goes_at=None, step=step
        )

    def _to_come(self, step: int) -> Preview:
        comes_next = step == self.next
        holds = [self._until_planned()] if comes_next else [self._after(step)]
        group = selection.group_of(
            self._conn,
            self._lead["lead_id"],
            default_sequence_id=self._tenant.default_sequence_id,
        )
        (verdict,) = judge_all(
            self._conn, [replace(group, step=step)], self._tenant, preference="AUTO"
        )
        if verdict.skip is not None:
            holds.append(self._passed_over(verdict))
        phone_id, no_phone = self._phone(step)
        if no_phone is not None:
            holds.append(no_phone)
        candidate = outbox.imagine_candidate(
            self._conn,
            self._lead["lead_id"],
            template_id=self._steps[step].template_id,
            sequence_id=self._sequence_id or 0,
            step=step,
            kind="initial" if step == 1 else "followup",
            phone_id=phone_id,
        )
        if candidate is None:
            raise NotFound(f"the lead of step {step} is gone")
        if self._steps[step].channel != "WHATSAPP":
            holds.append(Hold(Skip.NO_CHANNEL, "it goes by mail, which nothing sends yet", None))
            return self._shown(candidate, None, holds)
        return self._shown(candidate, phones.get(self._conn, phone_id) if phone_id else None, holds)

    def _until_planned(self) -> Hold:
        return hold_on_lead(
            self._conn,
            self._lead,
            self._message,
            secret=self._secret,
            here=self._here,
            now=self._now,
        )

    def _after(self, step: int) -> Hold:
        """When a later step goes: counted from the one that comes next, and its pauses."""
        first = self.at(self.next)
        at = first.goes_at
        for done in range(first.step or 0, step):
            if at is None:
                return Hold(first.rule, f"the step before it does not go: {first.detail}", None)
            planned = next_step(self._steps, done=done, sent_at=at, calendar=self._tenant.calendar)
            if planned is None:
                break
            at = planned[1]
        return Hold("not_due", f"after step {step - 1}, if nobody answers until then", at)

    def _passed_over(self, verdict: Verdict) -> Hold:
        rule = verdict.skip or Skip.NO_CHANNEL
        return Hold(rule, SELECTION_SAID.get(rule, rule), None)

    def _phone(self, step: int) -> tuple[str | None, Hold | None]:
        """The phone that a dispatch would take now, or why it finds none."""
        day = self._tenant.calendar.day_of(self._now)
        desks = phones.desks(self._conn, self._tenant.id, day=day)
        sticky = self._lead["assigned_phone_id"]
        if step == 1 and sticky in failover.handing_over(
            self._conn, self._tenant.id, now=self._now
        ):
            strangers = failover.strangers(self._conn, [self._lead["lead_id"]])
            sticky = None if strangers else sticky
        chosen = allocate(sticky, desks, new_contact=step == 1)
        if chosen.phone_id is not None:
            return chosen.phone_id, None
        active = any(desk.active for desk in desks if sticky in (None, desk.phone_id))
        rule = Skip.QUOTA_EXCEEDED if active else Skip.PHONE_NOT_ACTIVE
        until = self._tenant.calendar.next_working_day(self._now) if active else None
        return sticky, Hold(rule, chosen.reason, until)

    # ── Both ──────────────────────────────────────────────────────────────────────────────────

    def _shown(self, candidate: Candidate, phone: Phone | None, holds: Sequence[Hold]) -> Preview:
        holds = list(holds)
        window_open = True
        if phone is not None:
            facts = message_facts(self._conn, phone, candidate, secret=self._secret, now=self._now)
            window_open = facts.window_open
            of_phone = hold_on_phone(phone.facts, here=self._here, now=self._now)
            of_message = hold_on_message(facts, calendar=self._tenant.calendar, now=self._now)
            holds += [hold for hold in (of_phone, of_message) if hold is not None]
        text, approved = None, None
        try:
            text, approved = render(
                candidate, introduction=self._tenant.introduction, as_approved=not window_open
            )
        except CerniqError as unusable:
            holds.append(Hold("failed", f"its text cannot be made: {unusable}", None))
        if phone is not None and text is not None:
            alike = too_alike(self._conn, phone, text, now=self._now)
            holds += [alike] if alike else []
        binding = _binding(holds)
        return Preview(
            **self._whose(),
            rule=binding.rule,
            detail=binding.detail,
            goes_at=self._opening(binding.until),
            step=candidate.step,
            kind=candidate.kind,
            phone_id=phone.id if phone else None,
            sender=phone.number if phone else None,
            to=candidate.recipient,
            text=text,
            approved=asdict(approved) if approved else None,
            file=candidate.media.filename if candidate.media else None,
        )

    def _opening(self, at: datetime | None) -> datetime | None:
        return self._tenant.calendar.next_open(at) if at is not None else None

    def _whose(self) -> dict[str, Any]:
        return {
            "tenant_id": self._tenant.id,
            "lead_id": self._lead["lead_id"],
            "company": self._lead["denumire"],
        }


def _binding(holds: Sequence[Hold]) -> Hold:
    """The hold that decides: one that does not lift by itself, else the one that lifts last.

    Of several that lift at the same time the first one counts.
    """
    for hold in holds:
        if hold.until is None:
            return hold
    latest = max(hold.until for hold in holds if hold.until is not None)
    return next(hold for hold in holds if hold.until is not None and hold.until == latest)
