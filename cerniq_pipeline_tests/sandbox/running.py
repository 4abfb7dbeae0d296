"""A real sandbox in its own process, and the questions that tests ask its journal."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

Line = dict[str, Any]


def recipient_and_text(line: Line) -> Hashable:
    """What makes two accepted messages the same message to the person who gets them."""
    file = line.get("attachment") or {}
    return line["recipient"], line["text_sha256"], file.get("sha256"), file.get("source_url")


class RunningSandbox:
    """Starts, stops and kills a sandbox; the journal it leaves is the judge of a test.

    A restart keeps the port and the journal, so addresses handed out before stay good.
    """

    def __init__(
        self, journal_dir: Path, *, latency_ms: str = "0-0", options: Sequence[str] = ()
    ) -> None:
        self.journal_dir = journal_dir
        self.port = 0
        self._latency_ms = latency_ms
        self._options = options
        self._process: subprocess.Popen[str] | None = None
        self._client: httpx.Client | None = None

    @property
    def base_url(self) -> str:
        """The address of the control API and of the page."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def public_url(self) -> str:
        """The base address of the vendor's public API."""
        return f"{self.base_url}/integrations/api"

    @property
    def v1_url(self) -> str:
        """The base address of the documents' dialect."""
        return f"{self.base_url}/v1"

    @property
    def meta_url(self) -> str:
        """The base address of Meta's Cloud API, with its version."""
        return f"{self.base_url}/v23.0"

    @property
    def slack_url(self) -> str:
        """An incoming webhook of Slack; anything may stand behind `services`."""
        return f"{self.base_url}/slack/services/T0/B0/sandbox"

    @property
    def client(self) -> httpx.Client:
        """A client of the whole sandbox, with a token."""
        if self._client is None:
            self._client = httpx.Client(
                base_url=self.base_url,
                headers={"authorization": "Bearer sandbox-token"},
                timeout=10,
                trust_env=False,
            )
        return self._client

    @property
    def pid(self) -> int:
        """The process to aim signals at."""
        return self._running().pid

    def start(self) -> Self:
        """Start it and return when it takes requests."""
        assert self._process is None, "already running"
        self.journal_dir.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "cerniq_pipeline.sandbox"]
        options = ["--port", str(self.port), "--journal", str(self.journal_dir)]
        with (self.journal_dir / "sandbox.log").open("a") as log:
            self._process = subprocess.Popen(
                [*command, *options, "--latency-ms", self._latency_ms, *self._options],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self._process.stdout is not None
        announced = self._process.stdout.readline()
        if not announced:
            self._forget()
            raise RuntimeError((self.journal_dir / "sandbox.log").read_text())
        self.port = json.loads(announced)["port"]
        return self

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Ask it to stop, and return its exit code."""
        return self._end(number)

    def kill(self) -> int:
        """End it without warning, as a crash would."""
        return self._end(signal.SIGKILL)

    def wait(self) -> int:
        """Wait until it has ended by itself, and return its exit code."""
        return self._forget()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process is not None:
            self.stop()

    def fault(self, kind: str, **parameters: object) -> str:
        """Put a fault in force and return its id."""
        answer = self.client.post("/_sandbox/faults", json={"kind": kind, **parameters})
        assert answer.status_code == 200, answer.text
        return answer.json()["id"]

    def lift(self, fault_id: str | None = None) -> None:
        """Lift one fault, or all of them."""
        path = "/_sandbox/faults" if fault_id is None else f"/_sandbox/faults/{fault_id}"
        self.client.delete(path).raise_for_status()

    def faults(self) -> list[dict[str, Any]]:
        """Every fault with its counters."""
        return self.client.get("/_sandbox/faults").raise_for_status().json()["faults"]

    def reset(self) -> None:
        """Forget faults, state and journal."""
        self.client.post("/_sandbox/reset").raise_for_status()

    def set_accounts(self, **status_of: str) -> None:
        """Set accounts, as set_accounts(**{"+40731000001": "disconnected"})."""
        accounts = [{"phone": phone, "status": status} for phone, status in status_of.items()]
        self.client.put("/_sandbox/accounts", json=accounts).raise_for_status()

    def inbound(
        self,
        account: str,
        contact: str,
        text: str = "",
        *,
        kind: str = "text",
        by_hand: bool = False,
        at: datetime | None = None,
        webhook: bool | str = True,
        number_hidden: bool = False,
    ) -> Line:
        """Let a person write to one of our phones and return `message_uid`, `chat_id` and more.

        With `by_hand` it is we who write, on the handset. A `kind` other than text brings a file,
        a place or a missed call. `webhook` is whether we are told of it, or "duplicate".
        """
        message = {"account": account, "from": contact, "text": text, "type": kind}
        moment = None if at is None else at.isoformat()
        how = {"by_hand": by_hand, "webhook": webhook, "number_hidden": number_hidden}
        answer = self.client.post("/_sandbox/inbound", json={**message, **how, "at": moment})
        assert answer.status_code == 200, answer.text
        return answer.json()

    def react(self, account: str, contact: str, emoji: str = "👍", **how: object) -> Line:
        """Let a person put an emoji on the chat's last message, or on the one in `reacts_to`."""
        reaction = {"account": account, "from": contact, "type": "reaction", "emoji": emoji}
        answer = self.client.post("/_sandbox/inbound", json={**reaction, **how})
        assert answer.status_code == 200, answer.text
        return answer.json()

    def webhooks_to(
        self,
        url: str,
        *,
        token: str | None = None,
        secret: str | None = None,
        app_secret: str | None = None,
        **details: object,
    ) -> None:
        """Let the vendors call a web service: TimelinesAI with a token, Meta with an app secret.

        `details` are for both: `answer_seconds`, `pauses_seconds`, `batch_seconds` and others.
        """
        wanted: dict[str, Any] = {}
        if token is not None:
            signed = {} if secret is None else {"secret": secret}
            address = f"{url}/webhooks/timelinesai"
            wanted["timelinesai"] = {"url": address, "token": token, **signed, **details}
        if app_secret is not None:
            address = f"{url}/webhooks/whatsapp"
            wanted["meta"] = {"url": address, "app_secret": app_secret, **details}
        answer = self.client.put("/_sandbox/webhooks", json=wanted)
        assert answer.status_code == 200, answer.text

    def play(self, **settings: object) -> None:
        """Let people answer, as play(seed=7, speed=100, kinds=["says_stop"])."""
        answer = self.client.put("/_sandbox/play", json=settings)
        assert answer.status_code == 200, answer.text

    def stop_playing(self) -> None:
        """Let nobody answer any more."""
        self.client.delete("/_sandbox/play").raise_for_status()

    def webhook_lines(self) -> list[Line]:
        """Every attempt to call a webhook and what came of it, in order."""
        return self.journal("webhook")

    def journal(self, kind: str | None = None, *, after: int = 0) -> list[Line]:
        """The lines of the journal, of one kind or of all; also after the sandbox has died."""
        if self._process is None or self._process.poll() is not None:
            return self._journal_on_disk(kind, after)
        query = {"after": str(after), **({"kind": kind} if kind else {})}
        answer = self.client.get("/_sandbox/journal", params=query)
        return answer.raise_for_status().json()["lines"]

    def accepted(self) -> list[Line]:
        """The messages that went out, in order."""
        return self.journal("accepted")

    def received(self) -> list[Line]:
        """The messages that came in or were typed by hand, in order."""
        return self.journal("inbound")

    def uploads(self) -> list[Line]:
        """The files that were left with a vendor, in order."""
        return self.journal("upload")

    def statuses(self) -> list[Line]:
        """What was told about messages after they had been accepted, in order."""
        return self.journal("status")

    def slack(self) -> list[Line]:
        """The notes that Slack took, in order."""
        return self.journal("slack")

    def overlaps(self) -> list[tuple[Line, Line]]:
        """Pairs of requests of one sender that were open at the same time; should be empty."""
        open_requests: dict[str, dict[str, Line]] = defaultdict(dict)
        pairs: list[tuple[Line, Line]] = []
        sender_of: dict[str, str] = {}
        for line in self.journal():
            if line["event"] == "request":
                sender_of[line["request"]] = line["sender"]
                together = open_requests[line["sender"]]
                pairs += [(earlier, line) for earlier in together.values()]
                together[line["request"]] = line
            elif line["event"] == "answered":
                del open_requests[sender_of[line["request"]]][line["request"]]
        return pairs

    def duplicates(self, key: Callable[[Line], Hashable] = recipient_and_text) -> list[list[Line]]:
        """Groups of accepted messages that share a key; should be empty."""
        groups: dict[Hashable, list[Line]] = defaultdict(list)
        for line in self.accepted():
            groups[key(line)].append(line)
        return [group for group in groups.values() if len(group) > 1]

    def _journal_on_disk(self, kind: str | None, after: int) -> list[Line]:
        raw = (self.journal_dir / "journal.jsonl").read_bytes()
        lines = [json.loads(line) for line in raw[: raw.rfind(b"\n") + 1].splitlines()]
        return [one for one in lines if one["n"] > after and kind in (None, one["event"])]

    def _running(self) -> subprocess.Popen[str]:
        assert self._process is not None, "not running"
        return self._process

    def _end(self, number: signal.Signals) -> int:
        self._running().send_signal(number)
        return self._forget()

    def _forget(self) -> int:
        """Wait for the process to be gone, and let go of all that belonged to it."""
        process = self._running()
        code = process.wait(timeout=10)
        assert process.stdout is not None
        process.stdout.close()
        self._process = None
        if self._client is not None:
            self._client.close()
            self._client = None
        return code
