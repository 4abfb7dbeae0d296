"""The page a person looks at: what was accepted and received, and what is set to fail."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape

from cerniq_pipeline.sandbox.faults import Fault
from cerniq_pipeline.sandbox.numbers import masked
from cerniq_pipeline.sandbox.public_api import vendor_time
from cerniq_pipeline.sandbox.room import Message, Provider, Room

MESSAGES_SHOWN = 20
NOTES_SHOWN = 10
TALKS_SHOWN = 8
LINES_SHOWN = 4
TEXT_SHOWN = 160
REFRESH_SECONDS = 2

_PHONE_HEADS = ("Vendor", "Phone", "Status", "Accepted", "Received")
_MESSAGE_HEADS = ("At", "Vendor", "Way", "From", "To", "Text")
_TALK_HEADS = ("Person", "Phone", "At", "Way", "Kind", "Text", "Webhook")
_VENDORS: Mapping[Provider, str] = {"timelinesai": "TimelinesAI", "meta": "Meta", "slack": "Slack"}

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1c2430; background: #f7f8fa;
  margin: 0 auto; max-width: 70rem; padding: 0 1.5rem 3rem }
.banner { background: #8a4b00; color: #fff; font-weight: 600;
  margin: 0 -1.5rem; padding: .6rem 1.5rem }
h2 { font-size: 1.1rem; margin: 2rem 0 .5rem }
table { border-collapse: collapse; width: 100%; background: #fff }
th, td { text-align: left; vertical-align: top; padding: .3rem .7rem;
  border-bottom: 1px solid #e3e6eb }
th { font-weight: 600; color: #55606f }
td.number { text-align: right; font-variant-numeric: tabular-nums }
.empty { color: #55606f }
"""


def overview(room: Room, faults: Iterable[Fault]) -> str:
    """The whole page, complete in itself."""
    active = [fault for fault in faults if fault.active]
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="refresh" content="{REFRESH_SECONDS}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Sandbox: {room.message_count()} accepted</title>
<style>{_STYLE}</style>
</head>
<body>
<p class="banner">SANDBOX — nothing leaves this machine</p>
<h1>Accepted messages: {room.message_count()}</h1>
<h2>Per phone</h2>
{_table(_PHONE_HEADS, _phone_rows(room), empty="No phone has been seen yet.")}
<h2>Last {TALKS_SHOWN} conversations</h2>
{_table(_TALK_HEADS, _talk_rows(room), empty="Nobody has written yet.")}
<h2>Last {MESSAGES_SHOWN} messages</h2>
{_table(_MESSAGE_HEADS, _message_rows(room), empty="No message yet.")}
<h2>Last {NOTES_SHOWN} notes to Slack</h2>
{_table(("At", "Text"), _note_rows(room), empty="None yet.")}
<h2>Faults in force</h2>
{_table(("Kind", "Aimed at", "Seen", "Struck"), _fault_rows(active), empty="None: all is well.")}
</body>
</html>
"""


def _phone_rows(room: Room) -> list[tuple[str | int, ...]]:
    sent, received = room.accepted_per_phone(), room.received_per_phone()
    return [
        (
            ", ".join(_VENDORS[provider] for provider in one.providers),
            one.phone,
            one.status,
            sent.get(one.phone, 0),
            received.get(one.phone, 0),
        )
        for one in sorted(room.accounts(), key=lambda account: account.phone)
    ]


def _message_rows(room: Room) -> list[tuple[str | int, ...]]:
    return [_message_row(message) for message in room.latest(MESSAGES_SHOWN)]


def _message_row(message: Message) -> tuple[str | int, ...]:
    """One message; our own number in full, the other end's masked."""
    ends = (message.account, masked(message.contact))
    sender, recipient = ends if message.from_me else reversed(ends)
    return (
        vendor_time(message.at),
        _VENDORS[message.provider],
        _way(message),
        sender,
        recipient,
        _words(message),
    )


def _talk_rows(room: Room) -> list[tuple[str | int, ...]]:
    """The end of each conversation in which the other side was heard, oldest line first."""
    rows: list[tuple[str | int, ...]] = []
    for chat in room.talks(TALKS_SHOWN):
        ends = masked(chat.recipient), chat.account
        for message in room.history(chat.id)[-LINES_SHOWN:]:
            rows.append((*ends, *_talk_row(room, message)))
            ends = "", ""  # named once, at the top of their lines
    return rows


def _talk_row(room: Room, message: Message) -> tuple[str, ...]:
    emoji = room.reaction_to(message.uid)
    told = room.told(message.uid)
    return (
        vendor_time(message.at),
        _way(message),
        (message.persona or "").replace("_", " "),
        f"{_words(message)} ({emoji})" if emoji else _words(message),
        "" if told is None else told.replace("_", " "),
    )


def _words(message: Message) -> str:
    """What a message says, and the name of its file."""
    text = _shortened(message.text)
    if message.form == "call":
        return "[missed call]"
    if message.attachment is None:
        return text
    return f"[{message.attachment.filename}] {text}".rstrip()


def _way(message: Message) -> str:
    """How a message came here, in one word or two."""
    if not message.from_me:
        return "received"
    if message.origin == "WhatsApp":
        return "by hand"
    if message.failed_at is not None:
        return "failed"
    return "accepted" if message.delivered else "stuck"


def _note_rows(room: Room) -> list[tuple[str | int, ...]]:
    return [(vendor_time(note.at), _shortened(note.text)) for note in room.notes(NOTES_SHOWN)]


def _shortened(text: str) -> str:
    return f"{text[:TEXT_SHOWN]}…" if len(text) > TEXT_SHOWN else text


def _fault_rows(faults: Iterable[Fault]) -> list[tuple[str | int, ...]]:
    return [(fault.kind, _aim(fault), fault.seen, fault.fired) for fault in faults]


def _aim(fault: Fault) -> str:
    aim = f"{fault.operation} of {fault.phone or 'every phone'}"
    return f"{aim} to {masked(fault.recipient)}" if fault.recipient else aim


def _table(heads: tuple[str, ...], rows: list[tuple[str | int, ...]], *, empty: str) -> str:
    if not rows:
        return f'<p class="empty">{escape(empty)}</p>'
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    body = "\n".join(f"<tr>{''.join(_cell(value) for value in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table>"


def _cell(value: str | int) -> str:
    if isinstance(value, int):
        return f'<td class="number">{value}</td>'
    return f"<td>{escape(value)}</td>"
