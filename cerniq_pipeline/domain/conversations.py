"""What an event means for the conversation with a lead: one table, and the words of a reply."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Literal, get_args

from cerniq_pipeline.domain.events import InboundEvent, Kind
from cerniq_pipeline.domain.keywords import Reason, wants_a_person
from cerniq_pipeline.domain.stop_words import asks_to_stop

WINDOW = timedelta(hours=24)
"""How long after a person's message free text may be written to them."""

HANDSET = "handset"
"""Who holds a lead to whom somebody typed on the phone itself."""

LIKELY_STOP: Reason = "opt_out"
WROTE_AGAIN = "wrote after opting out"
BAD_DATA = "bad data"
"""Something in the lead's rows that nobody can read, or a fault of ours that came with it."""

REVIEWS = (*get_args(Reason), "call", WROTE_AGAIN, BAD_DATA)
"""Why a person should look at a lead, gravest first."""


@dataclass(frozen=True)
class Meaning:
    """What follows from an event, whoever it is about."""

    logged: Literal["INBOUND", "OUTBOUND"] | None = None
    is_reply: bool = False
    """The lead spoke: it is warm now, and its answers are counted."""
    opens_window: bool = False
    ends: str | None = None
    """Why nothing automatic is sent to this person from now on."""
    stop: str | None = None
    """The words or the deed by which this person asked to hear no more from us."""
    takes_over: bool = False
    """One of us talks to the lead by hand."""
    bounced: bool = False
    review: str | None = None
    """Why a person should look at it soon."""

    @property
    def may_be_a_stop(self) -> bool:
        """Whether the person asks to hear no more from us, for certain or likely."""
        return self.stop is not None or self.review == LIKELY_STOP


_REPLY = Meaning(logged="INBOUND", is_reply=True, opens_window=True, ends="reply")

MEANINGS: dict[Kind, Meaning] = {
    Kind.MESSAGE_RECEIVED: _REPLY,
    Kind.MESSAGE_SENT_ELSEWHERE: Meaning(logged="OUTBOUND", ends="human_takeover", takes_over=True),
    Kind.REACTION: _REPLY,
    Kind.CALL: Meaning(logged="INBOUND", is_reply=True, ends="reply", review="call"),
    Kind.AUTO_REPLY: Meaning(logged="INBOUND"),
    Kind.UNSUBSCRIBE: Meaning(stop="unsubscribed"),
    Kind.COMPLAINT: Meaning(stop="complained", review="complaint"),
    Kind.BOUNCE: Meaning(bounced=True),
}
"""What is not here changes nothing for a lead: a status is about a message, an account about a
phone, and an unknown word is kept as it came."""

NOTHING = Meaning()


def meaning_of(event: InboundEvent) -> Meaning:
    """What follows from this event; a request to stop in its words beats everything else."""
    meaning = MEANINGS.get(event.kind, NOTHING)
    match event.kind:
        case Kind.MESSAGE_RECEIVED:
            return _with_words(meaning, event.text or "")
        case Kind.REACTION if event.detail != "set":
            return NOTHING  # it was taken back
        case Kind.CALL if event.detail.startswith("outgoing"):
            return MEANINGS[Kind.MESSAGE_SENT_ELSEWHERE]
        case _:
            return meaning


def _with_words(meaning: Meaning, text: str) -> Meaning:
    stop = asks_to_stop(text)
    if stop is not None and stop.certainty == "certain":
        return replace(meaning, stop=f"asked to stop ({stop.language})")
    if stop is not None:
        return replace(meaning, review=LIKELY_STOP)
    return replace(meaning, review=wants_a_person(text))
