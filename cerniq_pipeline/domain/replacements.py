"""One message in the place of another: when a person may send again what did not go out."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from cerniq_pipeline.domain.leads import AUTOMATED, Stage
from cerniq_pipeline.domain.outbox import State

STEP_TAKEN = "this step has a message to that number already"
NUMBER = re.compile(r"\+[1-9][0-9]{7,14}")


@dataclass(frozen=True)
class LeadNow:
    """A lead as it is now; `under_way` is another message that has not come to its end.

    `step_taken` says that another message brings the same step to its number.
    """

    stage: Stage | None
    opted_out: bool
    in_conversation: bool
    under_way: int | None
    number: str | None
    step_taken: bool


@dataclass(frozen=True)
class Original:
    """A message that a person wants to send again; its lead is None when it is gone."""

    id: int
    lead_id: UUID
    state: State
    replaced_by: int | None
    not_after: datetime | None
    lead: LeadNow | None


@dataclass(frozen=True)
class Answer:
    """What became of one thing that a person asked for, in a sentence."""

    id: int
    done: bool
    said: str


def refusal(original: Original, *, now: datetime) -> str | None:
    """Why this message may not be sent again, or None when it may."""
    lead = original.lead
    if original.replaced_by is not None:
        return f"message {original.replaced_by} was sent in its place"
    if lead is None:
        return "its lead is gone"
    if lead.opted_out:
        return "this person asked not to be contacted"
    if lead.stage is None:
        return "the lead is in a stage that there is not; correct it first"
    if lead.stage not in AUTOMATED:
        return f"the lead is in {lead.stage}: people talk to it"
    if lead.in_conversation:
        return "people talk to this person; hand the lead back first"
    if lead.under_way is not None:
        return f"message {lead.under_way} to this lead is under way"
    if lead.number is None or not NUMBER.fullmatch(lead.number):
        return "the company has no number in international form; correct it first"
    if lead.step_taken:
        return STEP_TAKEN
    if original.not_after is not None and now > original.not_after:
        return f"too late: it was due before {original.not_after:%F %R} UTC"
    return None
