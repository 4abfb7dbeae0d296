"""Alerts: opened once, told once, taken by the first who says so, and closed with their cause."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import Engine

from cerniq_pipeline.store import alerts
from cerniq_pipeline_tests.builders import NOON, a_world, rows

MINUTE = timedelta(minutes=1)


@pytest.fixture
def acme(database: Engine) -> Engine:
    """A database with two tenants."""
    with database.begin() as conn:
        a_world(conn)
        a_world(conn, tenant_id="beta", phones=0)
    return database


def raise_alert(
    engine: Engine, subject: str = "acme-01", *, tenant_id: str = "acme", minutes: int = 0
) -> bool:
    with engine.begin() as conn:
        return alerts.open_once(
            conn,
            tenant_id=tenant_id,
            kind="phone_offline",
            subject=subject,
            detail="not connected",
            now=NOON + minutes * MINUTE,
        )


def close(engine: Engine, subject: str = "acme-01") -> int:
    with engine.begin() as conn:
        return alerts.close(conn, kinds=("phone_offline",), subjects=[subject], now=NOON)


def subjects(engine: Engine, **chosen: str) -> list[str]:
    with engine.begin() as conn:
        return [alert.subject for alert in alerts.open_alerts(conn, **chosen)]


def untold(engine: Engine, limit: int = 10) -> list[str]:
    with engine.begin() as conn:
        return [alert.subject for alert in alerts.untold(conn, limit=limit)]


def test_an_alert_is_open_once_and_opens_anew_after_it_closed(acme: Engine):
    assert [raise_alert(acme), raise_alert(acme)] == [True, False]
    assert close(acme) == 1
    assert subjects(acme) == []
    assert raise_alert(acme)
    assert subjects(acme) == ["acme-01"]


def test_open_alerts_come_oldest_first_and_by_tenant_and_kind(acme: Engine):
    raise_alert(acme, "late", minutes=1)
    raise_alert(acme, "early")
    raise_alert(acme, "theirs", tenant_id="beta", minutes=2)
    assert subjects(acme) == ["early", "late", "theirs"]
    assert subjects(acme, tenant_id="beta") == ["theirs"]
    assert subjects(acme, kind="phone_banned") == []


def test_untold_are_the_oldest_open_ones_that_nobody_knows(acme: Engine):
    for minute, subject in enumerate(("told", "taken", "closed", "first", "second")):
        raise_alert(acme, subject, minutes=minute)
    with acme.begin() as conn:
        told, taken, *_ = alerts.open_alerts(conn)
        alerts.told(conn, told.id, now=NOON)
        alerts.acknowledge(conn, taken.id, by="ana", now=NOON)
    close(acme, "closed")
    assert untold(acme) == ["first", "second"]
    assert untold(acme, limit=1) == ["first"]


def test_an_alert_belongs_to_the_first_who_takes_it(acme: Engine):
    raise_alert(acme)
    with acme.begin() as conn:
        (alert,) = alerts.open_alerts(conn)
        assert alerts.acknowledge(conn, alert.id, by="ana", now=NOON) == "ana"
        assert alerts.acknowledge(conn, alert.id, by="dan", now=NOON + MINUTE) == "ana"
        assert alerts.acknowledge(conn, alert.id + 1, by="dan", now=NOON) is None
    (row,) = rows(acme, "SELECT acknowledged_by, acknowledged_at FROM alerts")
    assert row == {"acknowledged_by": "ana", "acknowledged_at": NOON}
    close(acme)
    with acme.begin() as conn:
        assert alerts.acknowledge(conn, alert.id, by="dan", now=NOON) is None
