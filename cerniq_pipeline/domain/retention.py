"""What is forgotten after its time.

Never forgotten, because they guard something: suppressions, the quota ledger, outbox messages (a
step goes out once), the communication log and conversations, stage changes, an event that nobody
has handled, an open dead letter, an open alert, and whatever is about a send in doubt.
"""

from __future__ import annotations

from typing import Literal

Kind = Literal[
    "webhook_bodies",
    "webhook_keys",
    "raw_calls",
    "logged_raw_calls",
    "attempts",
    "changes",
    "letters",
    "alerts",
    "heartbeats",
    "early_deliveries",
]
"""`docs/settings.md` says of each what it is, and for how long it is kept."""
