"""Telling people: every alert once, in order, and what could not be told is told later."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import Engine

from cerniq_pipeline.errors import SendDeferred, SendFailed, SendRejected, SendUnconfirmed
from cerniq_pipeline.providers.slack.webhook import SlackWebhook
from cerniq_pipeline.services.notify import AT_ONCE, tell
from cerniq_pipeline.store import alerts
from cerniq_pipeline_tests.builders import NOON, a_world, rows
from cerniq_pipeline_tests.sandbox.running import RunningSandbox

LATER = NOON + timedelta(minutes=1)


class Crier:
    """A messenger that cries everything out, or fails with what a text makes it think of."""

    def __init__(self, **fails: SendFailed) -> None:
        self.cried: list[str] = []
        self.fails = fails

    def post(self, text: str) -> None:
        for word, failure in self.fails.items():
            if word in text:
                raise failure
        self.cried.append(text)


@pytest.fixture
def acme(database: Engine) -> Engine:
    with database.begin() as conn:
        a_world(conn)
    return database


def raise_alerts(engine: Engine, *subjects: str, detail: str = "not connected") -> None:
    with engine.begin() as conn:
        for n, subject in enumerate(subjects):
            alerts.open_once(
                conn,
                tenant_id="acme",
                kind="phone_offline",
                subject=subject,
                detail=detail,
                now=NOON + timedelta(seconds=n),
            )


def told(engine: Engine) -> list[object]:
    found = rows(engine, "SELECT subject FROM alerts WHERE notified_at IS NOT NULL ORDER BY id")
    return [row["subject"] for row in found]


def test_an_alert_reaches_slack_once_and_without_a_number(acme: Engine, sandbox: RunningSandbox):
    raise_alerts(acme, "acme-01", detail="+40 721 000 123 is not connected")
    slack = SlackWebhook(sandbox.slack_url)
    assert tell(acme.begin, slack, now=LATER) == 1
    assert tell(acme.begin, slack, now=LATER) == 0
    (line,) = sandbox.journal("slack")
    assert line["text"] == (
        "Phone acme-01 is offline. It sends nothing until it is linked again. "
        "(acme: +40*****123 is not connected)"
    )
    assert rows(acme, "SELECT notified_at FROM alerts") == [{"notified_at": LATER}]


def test_what_slack_did_not_take_is_told_the_next_time(acme: Engine, sandbox: RunningSandbox):
    raise_alerts(acme, "acme-01")
    slack = SlackWebhook(sandbox.slack_url)
    sandbox.fault("rate_limited", operation="slack", retry_after=30, times=1)
    assert tell(acme.begin, slack, now=LATER) == 0
    assert told(acme) == []
    assert tell(acme.begin, slack, now=LATER) == 1
    assert len(sandbox.journal("slack")) == 1


def test_the_oldest_are_told_first_and_a_few_at_a_time(acme: Engine):
    names = [f"phone-{n:02d}" for n in range(AT_ONCE + 2)]
    raise_alerts(acme, *names)
    crier = Crier()
    assert tell(acme.begin, crier, now=LATER) == AT_ONCE
    assert told(acme) == names[:AT_ONCE]
    assert tell(acme.begin, crier, now=LATER) == 2
    assert [text.split()[1] for text in crier.cried] == names


def test_one_that_is_refused_does_not_keep_the_others_waiting(acme: Engine):
    raise_alerts(acme, "poison", "fine")
    crier = Crier(poison=SendRejected("REFUSED", "Slack answered 400 invalid_payload"))
    for _ in range(2):
        tell(acme.begin, crier, now=LATER)
    assert told(acme) == ["fine"]
    assert len(crier.cried) == 1


@pytest.mark.parametrize(
    "failure", [SendDeferred("RATE_LIMITED", "429"), SendUnconfirmed("SILENCE", "ReadTimeout")]
)
def test_a_messenger_in_trouble_is_left_alone_until_the_next_time(
    acme: Engine, failure: SendFailed
):
    raise_alerts(acme, "first", "second")
    assert tell(acme.begin, Crier(first=failure), now=LATER) == 0
    assert told(acme) == []
    assert tell(acme.begin, Crier(), now=LATER) == 2


def test_an_alert_that_closed_before_it_was_told_is_not_told(acme: Engine):
    raise_alerts(acme, "acme-01", "acme-02")
    with acme.begin() as conn:
        alerts.close(conn, kinds=("phone_offline",), subjects=["acme-01"], now=NOON)
    crier = Crier()
    assert tell(acme.begin, crier, now=LATER) == 1
    assert "acme-02" in crier.cried[0]


def test_no_transaction_is_open_while_the_messenger_is_called(acme: Engine):
    raise_alerts(acme, "acme-01")

    class Watcher:
        def post(self, text: str) -> None:
            assert text
            assert (
                rows(
                    acme,
                    """
                SELECT 1 FROM pg_stat_activity WHERE datname = current_database()
                  AND state LIKE 'idle in transaction%'
                """,
                )
                == []
            )

    assert tell(acme.begin, Watcher(), now=LATER) == 1
