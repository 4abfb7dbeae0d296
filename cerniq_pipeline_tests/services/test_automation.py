"""What of Dagster does not run: noted by those parts that do, missed by the web service."""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import Engine

from cerniq_pipeline.services.automation import note, speak_for_dagster
from cerniq_pipeline_tests.builders import NOON, rows, run_sql

ALL = ("dead_runs", "dispatch_every_5_minutes", "open_shifts", "untold_alerts")
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)


class Told:
    """A messenger that keeps what it was given."""

    def __init__(self) -> None:
        self.posts: list[str] = []

    def post(self, text: str) -> None:
        self.posts.append(text)


def noted(database: Engine, *, stopped: str = "", after: timedelta = timedelta()) -> list[str]:
    seen = [(name, "sensor", name != stopped) for name in ALL]
    return note(database.begin, seen, now=NOON + after)


def alerts_open(database: Engine) -> list[str]:
    found = rows(database, "SELECT subject FROM alerts WHERE closed_at IS NULL ORDER BY subject")
    return [str(row["subject"]) for row in found]


def test_what_is_stopped_for_a_minute_is_an_alert_until_it_runs_again(database: Engine):
    assert noted(database) == []
    assert noted(database, stopped="open_shifts", after=SECOND) == ["open_shifts"]
    assert alerts_open(database) == []
    noted(database, stopped="open_shifts", after=2 * MINUTE)
    assert alerts_open(database) == ["open_shifts"]
    assert noted(database, after=3 * MINUTE) == []
    assert alerts_open(database) == []


def test_the_web_service_speaks_up_when_dagster_is_silent(database: Engine):
    told = Told()
    assert not speak_for_dagster(database.begin, told, now=NOON)  # it never ran here
    noted(database)
    assert not speak_for_dagster(database.begin, told, now=NOON + 3 * MINUTE)
    assert told.posts == []
    for _ in range(2):
        assert speak_for_dagster(database.begin, told, now=NOON + 4 * MINUTE)
    (said,) = told.posts
    assert said.startswith("Dagster gives no sign of life")
    noted(database, after=5 * MINUTE)
    assert alerts_open(database) == []


def test_the_web_service_tells_what_a_stopped_sensor_cannot_tell(database: Engine):
    told = Told()
    for minutes in (0, 2):
        noted(database, stopped="untold_alerts", after=minutes * MINUTE)
    assert not speak_for_dagster(database.begin, told, now=NOON + 2 * MINUTE)
    assert [post.partition(" (")[0] for post in told.posts] == [
        "untold_alerts is stopped in Dagster."
    ]


def test_what_dagster_does_not_have_any_more_is_forgotten(database: Engine):
    noted(database, stopped="open_shifts")
    run_sql(database, "UPDATE automations SET name = 'of_an_old_release' WHERE NOT is_running")
    assert noted(database, after=2 * MINUTE) == []
    assert len(rows(database, "SELECT 1 FROM automations")) == len(ALL)
