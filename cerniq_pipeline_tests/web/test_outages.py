"""Postgres goes away and comes back; the disk fills; the service is killed. No event is lost."""

from __future__ import annotations

import resource
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import psutil
import pytest
from sqlalchemy import Engine, text

from cerniq_pipeline.dev.embedded import EmbeddedPostgres
from cerniq_pipeline.store.database import connect
from cerniq_pipeline.store.migrations import upgrade
from cerniq_pipeline_tests.builders import rows, run_sql
from cerniq_pipeline_tests.web.running import RunningWeb, wait_until
from cerniq_pipeline_tests.web.senders import ALL_SECRETS, TIMELINESAI, a_message


@pytest.fixture(scope="module")
def own_postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    """A server that a test may stop."""
    server = EmbeddedPostgres(tmp_path_factory.mktemp("own"), durable=False)
    server.start()
    server.create_database("inbox")
    upgrade(server.url("inbox"))
    yield server
    server.stop()


@pytest.fixture
def server(own_postgres: EmbeddedPostgres) -> Iterator[EmbeddedPostgres]:
    yield own_postgres
    own_postgres.start()


@pytest.fixture
def own_inbox(server: EmbeddedPostgres) -> Iterator[Engine]:
    engine = connect(server.url("inbox"))
    run_sql(engine, "TRUNCATE webhook_events")
    yield engine
    engine.dispose()


@pytest.fixture(scope="module")
def own_service(
    own_postgres: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningWeb]:
    web = RunningWeb(tmp_path_factory.mktemp("web"), own_postgres.url("inbox"))
    with web.tell(**ALL_SECRETS):
        yield web


@pytest.fixture
def service(server: EmbeddedPostgres, own_inbox: Engine, own_service: RunningWeb) -> RunningWeb:
    """The service of that server, with nothing on the disk."""
    if own_service.spool.is_file():
        own_service.spool.unlink()
    wait_until(lambda: is_replayed(own_service))
    run_sql(own_inbox, "TRUNCATE webhook_events")
    return own_service


def tell(web: RunningWeb, uid: str) -> int:
    return TIMELINESAI.post(a_message(uid)).to(web.client).status_code


def kept(inbox: Engine) -> list[str]:
    found = rows(inbox, "SELECT event_key FROM webhook_events ORDER BY received_at, id")
    return [str(row["event_key"]).removeprefix("message:received:new:") for row in found]


def block(spool: Path) -> None:
    """Put a file where the folder should be."""
    spool.parent.mkdir(exist_ok=True)
    if spool.is_dir():
        spool.rmdir()
    spool.write_text("in the way")


def is_replayed(web: RunningWeb) -> bool:
    return web.health() == {"status": "ok", "database": True, "spool_bytes": 0}


class Load:
    """Events that never stop, and what was promised for each."""

    def __init__(self, web: RunningWeb, *, tellers: int = 4) -> None:
        self.promised: set[str] = set()
        self.refused: set[str] = set()
        self._web = web
        self._stop = threading.Event()
        self._tellers = [threading.Thread(target=self._tell, args=[n]) for n in range(tellers)]

    def __enter__(self) -> Load:
        for teller in self._tellers:
            teller.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for teller in self._tellers:
            teller.join()

    def _tell(self, teller: int) -> None:
        with httpx.Client(base_url=self._web.base_url, timeout=10, trust_env=False) as client:
            number = 0
            while not self._stop.is_set():
                uid = f"{teller}-{number}"
                number += 1
                try:
                    status = TIMELINESAI.post(a_message(uid)).to(client).status_code
                except httpx.TransportError:
                    return  # the service was killed
                (self.promised if status == 200 else self.refused).add(uid)

    def has_gone_on(self, count: int) -> None:
        goal = len(self.promised) + count
        wait_until(lambda: len(self.promised) >= goal)


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_events_come_in_while_postgres_is_away_and_each_is_there_once_afterwards(
    server: EmbeddedPostgres, own_inbox: Engine, service: RunningWeb, how: str
):
    with Load(service) as load:
        load.has_gone_on(50)
        getattr(server, how)()
        load.has_gone_on(100)
        away = service.health()
        server.start()
        wait_until(lambda: is_replayed(service))
        load.has_gone_on(50)
    wait_until(lambda: is_replayed(service))
    assert (away["status"], away["database"]) == ("spooling", False)
    assert away["spool_bytes"] > 0
    assert load.refused == set()
    found = kept(own_inbox)
    assert len(found) == len(set(found))
    assert set(found) == load.promised
    assert list(service.spool.iterdir()) == []


def test_the_order_in_which_they_came_outlives_the_outage(
    server: EmbeddedPostgres, own_inbox: Engine, service: RunningWeb
):
    assert tell(service, "z") == 200
    server.stop()
    assert [tell(service, uid) for uid in "yxw"] == [200, 200, 200]
    server.start()
    wait_until(lambda: is_replayed(service))
    assert tell(service, "a") == 200
    assert kept(own_inbox) == list("zyxwa")


def test_what_a_killed_service_had_on_the_disk_is_taken_over_by_the_next(
    server: EmbeddedPostgres, own_inbox: Engine, tmp_path: Path
):
    web = RunningWeb(tmp_path / "web", server.url("inbox")).tell(**ALL_SECRETS).start()
    assert tell(web, "before") == 200
    server.stop()
    with Load(web) as load:
        load.has_gone_on(30)
        web.kill()
    (left,) = web.spool.iterdir()
    with left.open("ab") as file:  # the line that it was writing when it died
        file.write(b'1234abcd {"provider": "timelinesai", "event_k')
    with web:  # Postgres is still away
        assert tell(web, "after") == 200
        assert len(list(web.spool.iterdir())) == 2
        server.start()
        wait_until(lambda: is_replayed(web))
        found = kept(own_inbox)
        assert len(found) == len(set(found))
        assert load.promised | {"before", "after"} <= set(found)
        assert list(web.spool.iterdir()) == []


def test_two_services_leave_each_others_spool_alone_until_one_is_dead(
    server: EmbeddedPostgres, own_inbox: Engine, service: RunningWeb, tmp_path: Path
):
    other = RunningWeb(tmp_path / "other", server.url("inbox")).tell(
        **ALL_SECRETS, data_dir=str(service.folder / "data")
    )
    with other:
        server.stop()
        assert [tell(service, "a"), tell(other, "b")] == [200, 200]
        assert len(list(service.spool.iterdir())) == 2
        other.process.send_signal(signal.SIGSTOP)  # alive, so its file is its own
        server.start()
        wait_until(lambda: kept(own_inbox) == ["a"])
        service.health()
        assert len(list(service.spool.iterdir())) == 1
        other.kill()
        wait_until(lambda: is_replayed(service))
        assert sorted(kept(own_inbox)) == ["a", "b"]


def test_killed_in_the_middle_of_a_replay_nothing_is_lost_and_nothing_is_there_twice(
    server: EmbeddedPostgres, own_inbox: Engine, service: RunningWeb
):
    server.stop()
    with Load(service) as load:
        load.has_gone_on(1200)  # more than fits into one commit
    server.start()
    wait_until(lambda: bool(kept(own_inbox)))
    service.kill()
    service.start()
    wait_until(lambda: is_replayed(service))
    found = kept(own_inbox)
    assert len(found) == len(set(found))
    assert set(found) == load.promised


# ── The disk ──────────────────────────────────────────────────────────────────────────────────


def test_without_postgres_and_without_a_disk_nothing_is_promised(
    server: EmbeddedPostgres, own_inbox: Engine, service: RunningWeb
):
    block(service.spool)
    server.stop()
    assert [tell(service, "a"), tell(service, "b")] == [503, 503]
    assert service.client.get("/health").status_code == 503
    server.start()
    wait_until(lambda: tell(service, "c") == 200)
    assert kept(own_inbox) == ["c"]


def test_a_disk_that_fills_up_refuses_the_rest_and_keeps_what_it_has(
    server: EmbeddedPostgres, own_inbox: Engine, service: RunningWeb
):
    server.stop()
    tell(service, "first")
    service.process.rlimit(resource.RLIMIT_FSIZE, (20_000, -1))
    told = {f"e{n}": tell(service, f"e{n}") for n in range(40)}
    assert set(told.values()) == {200, 503}
    service.process.rlimit(resource.RLIMIT_FSIZE, (-1, -1))
    assert tell(service, "last") == 200
    server.start()
    wait_until(lambda: is_replayed(service))
    promised = {uid for uid, status in told.items() if status == 200}
    assert set(kept(own_inbox)) == promised | {"first", "last"}


# ── A commit that fails ───────────────────────────────────────────────────────────────────────

REFUSE_AT_COMMIT = """
    CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
      $$ BEGIN RAISE EXCEPTION 'not today'; END $$;
    CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON webhook_events
      DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
      WHEN (NEW.event_key LIKE '%a') EXECUTE FUNCTION refuse()
"""
ALLOW = "DROP FUNCTION IF EXISTS refuse CASCADE"


@pytest.fixture
def refusing(own_inbox: Engine) -> Iterator[None]:
    with own_inbox.begin() as conn:
        conn.execute(text(REFUSE_AT_COMMIT))
    yield
    run_sql(own_inbox, ALLOW)


@pytest.mark.usefixtures("refusing")
def test_a_commit_that_fails_is_no_promise(own_inbox: Engine, service: RunningWeb):
    block(service.spool)
    assert [tell(service, "a"), tell(service, "a")] == [503, 503]
    assert kept(own_inbox) == []
    run_sql(own_inbox, ALLOW)
    assert tell(service, "a") == 200
    assert kept(own_inbox) == ["a"]


@pytest.mark.usefixtures("refusing")
def test_what_a_commit_refused_waits_on_the_disk_and_what_comes_later_waits_behind_it(
    own_inbox: Engine, service: RunningWeb
):
    assert [tell(service, "a"), tell(service, "b")] == [200, 200]
    assert kept(own_inbox) == []
    run_sql(own_inbox, ALLOW)
    wait_until(lambda: kept(own_inbox) == ["a", "b"])


def freeze_backends(server: EmbeddedPostgres) -> list[psutil.Process]:
    """Stop every process of the server that serves the inbox; some are about to end anyway."""
    pid = server.pid()
    assert pid is not None
    frozen = []
    for one in psutil.Process(pid).children():
        with suppress(psutil.NoSuchProcess):
            if "inbox" in " ".join(one.cmdline()):
                one.suspend()
                frozen.append(one)
    return frozen


def test_a_database_that_does_not_answer_is_not_waited_for(
    server: EmbeddedPostgres, own_inbox: Engine, service: RunningWeb
):
    assert tell(service, "a") == 200
    own_inbox.dispose()
    frozen = freeze_backends(server)
    assert frozen
    assert tell(service, "b") == 200
    wait_until(lambda: "b" in kept(own_inbox))  # by another connection
    for one in frozen:
        one.resume()
    wait_until(lambda: is_replayed(service))
    assert kept(own_inbox) == ["a", "b"]
