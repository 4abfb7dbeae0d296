"""WhatsApp through TimelinesAI, in the vendor's public dialect or the documents' `v1` addresses.

The vendor has no idempotency key and answers before it sends, so one `send` is one request on a
connection of its own, never repeated here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial

import httpx

from cerniq_pipeline.domain.outbox import Connection, Line, OutboxMessage, Receipt, Sighting
from cerniq_pipeline.domain.reads import Turn
from cerniq_pipeline.errors import ProviderUnreadable, SendDeferred
from cerniq_pipeline.providers.calls import accepted, open_client, post
from cerniq_pipeline.providers.outcomes import json_of
from cerniq_pipeline.providers.timelinesai.dialects import DIALECTS, Dialect, PublicDialect
from cerniq_pipeline.providers.timelinesai.meanings import meaning
from cerniq_pipeline.providers.timelinesai.reading import odd_answers_are_unreadable
from cerniq_pipeline.providers.timelinesai.webhooks import read_sent

__all__ = ["DIALECTS", "PublicDialect", "TimelinesAI", "open_client"]

CLOCK_SLACK = timedelta(minutes=2)
"""How far the vendor's clock may lag behind ours when a send is looked up."""


class TimelinesAI:
    """A Channel over one TimelinesAI account."""

    def __init__(self, client: httpx.Client, dialect: Dialect) -> None:
        self._client = client
        self._dialect = dialect

    def send(self, message: OutboxMessage, *, attachment: str | None = None) -> Receipt:
        """Hand over one message and return the vendor's id for it."""
        if message.media is not None and attachment is None:
            raise SendDeferred("UPLOAD_FAILED", "the file was not handed over before its message")
        path, body = self._dialect.request(message, attachment)
        said = partial(meaning, unsaid=message.body)
        answer = post(self._client, path, meaning=said, json=body)
        return accepted(answer, self._dialect.receipt(json_of(answer)))

    def upload(self, message: OutboxMessage, content: bytes) -> str:
        """What `send` must be told of the message's file: its id, or in `v1` its address."""
        return self._dialect.upload(self._client, message, content)

    def find_chat(self, message: OutboxMessage, *, turn: Turn) -> str | None:
        """The chat between these two numbers."""
        with odd_answers_are_unreadable():
            chats = self._dialect.chats(self._client, message.sender, message.to, turn)
            return next(chats, None)

    def sightings(self, message: OutboxMessage, *, turn: Turn) -> tuple[Sighting, ...]:
        """Messages in the history with this sender and exactly this text, since it was begun.

        One that is there was sent, whatever stands beside it. But where a row cannot be read, it is
        not known that nothing is there.
        """
        chat_id = message.chat_id or self.find_chat(message, turn=turn)
        if chat_id is None:
            return ()
        since = message.begun_at - CLOCK_SLACK
        with odd_answers_are_unreadable():
            shown = list(self._dialect.history(self._client, chat_id, since, turn))
            found = tuple(
                Sighting(entry.external_id, chat_id, entry.sent_at)
                for entry in shown
                if entry is not None
                and entry.sender == message.sender
                and entry.text.strip() == message.body.strip()
                and entry.has_media == (message.media is not None)
                and entry.sent_at >= since
            )
        if not found and None in shown:
            raise ProviderUnreadable("timelinesai shows a message in an unknown form")
        return found

    def recognise(self, message: OutboxMessage, events: Sequence[bytes]) -> tuple[Sighting, ...]:
        """Events about a sent message with both of its ends and exactly its text."""
        since = message.begun_at - CLOCK_SLACK
        told = [sent for event in events if (sent := read_sent(event)) is not None]
        same = {
            sent.external_id: Sighting(sent.external_id, sent.chat_id, sent.at)
            for sent in told
            if (sent.sender, sent.recipient) == (message.sender, message.to)
            and sent.text.strip() == message.body.strip()
            and sent.has_media == (message.media is not None)
            and sent.at >= since
        }
        return tuple(same.values())

    def sender_of(self, message: OutboxMessage, receipt: Receipt, *, turn: Turn) -> str | None:
        """The number that the vendor shows for it; a failed check is no proof of a wrong one."""
        try:
            with odd_answers_are_unreadable():
                return self._dialect.sender_of(self._client, message, receipt, turn)
        except ProviderUnreadable:
            return None

    def connections(self, lines: Sequence[Line], *, turn: Turn) -> Mapping[str, Connection]:
        """What the vendor says of each phone."""
        with odd_answers_are_unreadable():
            return self._dialect.connections(self._client, lines, turn)
