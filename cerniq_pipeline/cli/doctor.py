"""`cerniq doctor`: is everything there, and what to do about what is not."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace

import typer
from rich.markup import escape

from cerniq_pipeline.cli.context import (
    AsJson,
    clock,
    console,
    engine,
    listing,
    print_json,
    settings,
)
from cerniq_pipeline.cli.failures import explained
from cerniq_pipeline.errors import CerniqError

MOST_SKEW_SECONDS = 5.0
MARKS = {True: "[green]ok[/]", False: "[bold red]no[/]", None: "[dim]?[/]"}
NEEDS = {"migrations": "database", "clock": "database", "dagster": "database"}
"""What cannot be looked at without something else: its cause is said once."""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    what: str
    ok: bool | None
    """None: nobody could look, because something else that it needs is not there."""
    found: str
    do: str = ""


def doctor(as_json: AsJson = False) -> None:
    """Check settings, database, Redis, keys and clock, and say what to do."""
    findings = list(_examine())
    if as_json:
        print_json([asdict(finding) for finding in findings])
    else:
        table = listing("", "checked", rest="found, and what to do")
        for finding in findings:
            do = f"\n[bold]{escape(finding.do)}[/]" if finding.do and not finding.ok else ""
            table.add_row(MARKS[finding.ok], finding.what, escape(finding.found) + do)
        console.print(table)
    if any(finding.ok is False for finding in findings):
        raise typer.Exit(1)


def _examine() -> Iterator[Finding]:
    version = sys.version.split()[0]
    yield Finding("python", (3, 11) <= sys.version_info < (3, 13), version, "use 3.11 or 3.12")
    try:
        told = settings()
    except CerniqError as error:
        yield Finding("settings", False, str(error), "run `cerniq services up`, or set them")
        return
    weak = [f"CERNIQ_{name.upper()}" for name in told.weak_secrets]
    guessable = f"; can be guessed: {', '.join(weak)}" if weak else ""
    yield Finding("settings", True, f"mode {told.mode}, pacing {told.speed:g}×{guessable}")
    checks: list[tuple[str, Callable[[], Finding], str]] = [
        ("database", _database, "run `cerniq services up`, or check CERNIQ_DATABASE_URL"),
        ("migrations", _migrations, "run `cerniq migrate`"),
        ("dagster", _dagster, "start `cerniq dev`"),
        ("redis", _redis, "run `cerniq services up`, or check CERNIQ_REDIS_URL"),
        ("clock", _clock, "set this machine's clock (NTP)"),
        ("provider", _provider, "start `cerniq dev`, or check CERNIQ_TIMELINESAI_*"),
    ]
    missing: set[str] = set()
    for what, look, do in checks:
        if (needed := NEEDS.get(what)) in missing:
            yield Finding(what, None, f"not looked at: it needs the {needed}")
            continue
        try:
            finding = look()
        except Exception as error:  # noqa: BLE001 (whatever is wrong is the finding)
            finding = _wrong(what, error, do)
        if not finding.ok:
            missing.add(what)
        yield finding if finding.ok else replace(finding, do=finding.do or do)


def _wrong(what: str, error: Exception, do: str) -> Finding:
    failure = explained(error)
    if failure is not None:
        return Finding(what, False, failure.why, failure.do)
    first = str(error).strip().splitlines()[0] if str(error).strip() else ""
    return Finding(what, False, f"{type(error).__name__}: {first}"[:120], do)


def _database() -> Finding:
    from sqlalchemy import text

    with engine().connect() as conn:
        version = conn.execute(text("SHOW server_version")).scalar_one()
    return Finding("database", True, f"PostgreSQL {version}")


def _migrations() -> Finding:
    from cerniq_pipeline.store.migrations import missing

    behind = missing(engine())
    return Finding("migrations", not behind, f"missing: {behind}" if behind else "up to date")


def _dagster() -> Finding:
    from cerniq_pipeline.services.automation import what_stands_still
    from cerniq_pipeline.store import automations

    now = clock().now()
    found = what_stands_still(engine().begin, now=now)
    with engine().begin() as conn:
        there = automations.seen(conn)
    if found.silent_since is not None or not there:
        since = f"{found.silent_since:%F %R} UTC" if found.silent_since else "ever"
        return Finding("dagster", False, f"no sign of life since {since}: nothing starts by itself")
    if found.stopped:
        said = "; ".join(f"{name} is stopped: {why}" for name, why in found.stopped.items())
        return Finding("dagster", False, said, "switch it on in Dagster's UI, under Automation")
    return Finding("dagster", True, f"{len(there)} sensors, schedules and daemons run")


def _redis() -> Finding:
    from redis import Redis

    client = Redis.from_url(settings().redis_url, socket_timeout=3)
    policy = client.config_get("maxmemory-policy")["maxmemory-policy"]  # pyright: ignore
    aof = client.config_get("appendonly")["appendonly"]  # pyright: ignore
    version = client.info("server")["redis_version"]  # pyright: ignore
    good = policy == "noeviction" and aof == "yes"
    do = "set maxmemory-policy noeviction and appendonly yes: evicted or lost counters stop sending"
    return Finding(
        "redis", good, f"Redis {version}, {policy}, appendonly {aof}", "" if good else do
    )


def _clock() -> Finding:
    from sqlalchemy import text

    with engine().connect() as conn:
        theirs = conn.execute(text("SELECT extract(epoch FROM clock_timestamp())")).scalar_one()
    skew = abs(time.time() - float(theirs))
    found = f"{skew:.1f} s apart from the database, whose clock counts"
    return Finding("clock", skew < MOST_SKEW_SECONDS, found)


def _provider() -> Finding:
    import httpx

    url = settings().timelinesai_url
    key = settings().timelinesai_api_key
    headers = {"Authorization": f"Bearer {key.get_secret_value() if key else 'sandbox'}"}
    path = "/whatsapp_accounts" if settings().timelinesai_dialect == "public" else "/"
    answer = httpx.get(url + path, headers=headers, timeout=5, trust_env=False)
    good = answer.status_code == 200 or (path == "/" and answer.status_code < 500)
    return Finding("provider", good, f"timelinesai answers {answer.status_code}")
