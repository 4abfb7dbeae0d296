"""Rows 3 to 6: the whole product with its daemon, its code server and real runs."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import mkdtemp
from types import TracebackType
from typing import Any, Self

import httpx
import psutil
from dotenv import dotenv_values
from sqlalchemy import text

from cerniq_pipeline.dev.environment import embedded_servers
from cerniq_pipeline.dev.listening import LOOPBACK, free_port
from cerniq_pipeline.dev.processes import end, marked
from cerniq_pipeline.dev.supervisor import end_leftovers
from cerniq_pipeline.store.database import connect
from cerniq_pipeline_tests.builders import FIRST, a_world, always_open, rows, run_sql, some_leads
from cerniq_pipeline_tests.faults.campaign import wait_for
from cerniq_pipeline_tests.faults.judge import Broken, check_all
from cerniq_pipeline_tests.faults.matrix.scenario import Recovery
from cerniq_pipeline_tests.faults.matrix.stage import House, Stopwatch, keep_evidence, pause
from cerniq_pipeline_tests.sandbox.running import RunningSandbox

PROJECT = Path(__file__).parents[3]
TENANT = "faults"
PHONES = 3
LIMIT = 200
SPEED = 200.0
GAP = timedelta(seconds=30) / SPEED / 2
START_SECONDS = 180.0
REST_SECONDS = 420.0
"""A run that lost its process is noticed after two minutes; then its phone must still work."""

ENDED_WITHIN = 60.0
"""Seconds for which a run without a process may be shown as started."""

_RUNS = """
query ($filter: RunsFilter!) { runsOrError(filter: $filter) {
  ... on Runs { results { runId jobName status tags { key value } } } ... on Error { message } } }
"""
_LAUNCH = """
mutation ($selector: JobOrPipelineSelector!) {
  launchRun(executionParams: {selector: $selector, runConfigData: "{}"}) {
    __typename ... on LaunchRunSuccess { run { runId } } ... on Error { message } } }
"""
_AGAIN = """
mutation ($run: String!) {
  launchRunReexecution(reexecutionParams: {parentRunId: $run, strategy: ALL_STEPS}) {
    __typename ... on LaunchRunSuccess { run { runId } } ... on Error { message } } }
"""
DISPATCH = {
    "repositoryLocationName": "cerniq",
    "repositoryName": "__repository__",
    "jobName": "dispatch",
}


class Product:
    """`cerniq dev` in a folder of its own, with one tenant that is open at every hour."""

    def __init__(self, folder: Path) -> None:
        self.root = folder
        self.data_dir = folder / "data"
        self.sandbox = RunningSandbox(self.data_dir / "sandbox")
        self._said = folder / "said.log"
        self._commands: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        for name in ("dagster.yaml", "workspace.yaml"):
            shutil.copy(PROJECT / name, self.root)
        self.sandbox.port = free_port(20_000 + os.getpid() % 20_000)
        try:
            self._cerniq("services", "up").wait(START_SECONDS)
            self.database_url = str(dotenv_values(self.root / ".env")["CERNIQ_DATABASE_URL"])
            self.engine = connect(self.database_url)
            self._settle_in()
            self._dev = self._cerniq("dev", "--no-kick")
            wait_for(self._is_up, seconds=START_SECONDS, every=0.2)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    @property
    def said(self) -> str:
        """What `cerniq dev` has told so far."""
        return self._said.read_text()

    def ask_dagster(self, query: str, **variables: Any) -> Any:
        """The one answer to a question or an order."""
        found = re.search(r"dagster-webserver\W+(http://[\d.:]+)", self.said)
        assert found is not None, "Dagster's address is not known"
        body = {"query": query, "variables": variables}
        told = httpx.post(f"{found[1]}/graphql", json=body, timeout=60, trust_env=False).json()
        assert not told.get("errors"), told
        (answer,) = told["data"].values()
        return answer

    def processes(self, *words: str) -> list[psutil.Process]:
        """The product's processes whose command has one of these words."""
        found = []
        for process in marked(self.data_dir):
            with suppress(psutil.NoSuchProcess):  # it ended between the two looks
                command = " ".join(process.cmdline())
                if any(word in command for word in words):
                    found.append(process)
        return found

    def _cerniq(self, *command: str) -> subprocess.Popen[bytes]:
        told = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("CERNIQ_", "DAGSTER_"))
        }
        told |= {
            "CERNIQ_DATA_DIR": str(self.data_dir),
            "CERNIQ_SANDBOX_URL": f"http://{LOOPBACK}:{self.sandbox.port}",
            "CERNIQ_PACING_SPEED": str(SPEED),
            "CERNIQ_SETTLE_MINUTES": "1",
        }
        with self._said.open("ab") as said:
            under_way = subprocess.Popen(
                [Path(sys.executable).with_name("cerniq"), *command],
                cwd=self.root,
                env=told,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
            )
        self._commands.append(under_way)
        return under_way

    def _settle_in(self) -> None:
        """Our tenant instead of the demo's."""
        run_sql(self.engine, "UPDATE tenants SET status = 'paused'")
        with self.engine.begin() as conn:
            a_world(
                conn,
                tenant_id=TENANT,
                phones=PHONES,
                quota=LIMIT,
                steps=(FIRST,),
                alike_texts=0,
                **always_open(datetime.now(UTC)),
            )

    def _is_up(self) -> bool:
        assert self._dev.poll() is None, self.said
        return "Cerniq is running" in self.said

    def _end(self) -> None:
        """Leave nothing behind, however far the start has come."""
        for command in self._commands:
            end([psutil.Process(command.pid)] if command.poll() is None else [], seconds=60)
            command.wait()
        end_leftovers(self.data_dir)
        for server in embedded_servers(self.data_dir):
            server.stop()


class ProductStage:
    """One repeat on the running product: more leads, and the same judge over all that was sent."""

    def __init__(self, product: Product) -> None:
        self.product = product
        self.sandbox = product.sandbox
        self._watch = Stopwatch()
        self.fault_over = self._watch.fault_over

    def plan(self, leads: int) -> None:
        """Have so many new leads, due at once; a dispatch will find them."""
        now = datetime.now(UTC)
        with self.product.engine.begin() as conn:
            known = conn.execute(
                text("SELECT count(*) FROM gold_companies WHERE tenant_id = :id"), {"id": TENANT}
            ).scalar_one()
            some_leads(conn, TENANT, count=leads, at=now - timedelta(hours=1), first=known)

    def launch(self, job: str) -> str:
        """Launch a job, as a click does; returns its run."""
        selector = DISPATCH | {"jobName": job}
        return self._launched(self.product.ask_dagster(_LAUNCH, selector=selector))

    def dispatch(self) -> str:
        """Launch a dispatch; returns its run."""
        return self.launch("dispatch")

    def dispatch_again(self, run_id: str) -> str:
        """Execute a finished run once more, as a click does."""
        return self._launched(self.product.ask_dagster(_AGAIN, run=run_id))

    def runs(self, **filter: Any) -> list[dict[str, Any]]:
        """Runs that match."""
        return self.product.ask_dagster(_RUNS, filter=filter)["results"]

    def finished(self, run_ids: Sequence[str]) -> bool:
        """Whether all these runs have come to an end."""
        ended = {"SUCCESS", "FAILURE", "CANCELED"}
        return all(run["status"] in ended for run in self.runs(runIds=list(run_ids)))

    def has_begun(self, run_id: str) -> bool:
        """Whether this run is at work, or was."""
        (run,) = self.runs(runIds=[run_id])
        return run["status"] not in ("QUEUED", "NOT_STARTED", "STARTING")

    def wait_for_sends(self, more: int) -> None:
        """Wait until so many more have gone out."""
        wanted = len(self.sandbox.accepted()) + more
        _wait_for(lambda: len(self.sandbox.accepted()) >= wanted)

    def come_to_rest(self) -> None:
        """Wait until every lead has been written to, or is before a person, and phones are free."""
        _wait_for(self._at_rest)
        self._watch.at_rest()

    def recovery(self, note: str = "") -> Recovery:
        """How long it took at worst from the end of a fault to the next send, or to rest."""
        return Recovery(self._watch.longest(self.sandbox), note=note)

    def check(self) -> None:
        """Every promise, and no tick of the schedule ran twice."""
        check_all(self.sandbox, self.product.engine, limit=LIMIT, gap=GAP)
        tag = {"key": "dagster/schedule_name", "value": "dispatch_every_5_minutes"}
        ticks = Counter(
            tag["value"]
            for run in self.runs(tags=[tag])
            for tag in run["tags"]
            if tag["key"] == "dagster/scheduled_execution_time"
        )
        doubled = [tick for tick, count in ticks.items() if count > 1]
        if doubled:
            raise Broken("DUPLICATE", f"ticks that ran twice: {doubled}")

    def keep(self, folder: Path) -> None:
        """Put the journal, a dump and all logs into a folder."""
        keep_evidence(
            folder,
            journal=self.sandbox.journal_dir / "journal.jsonl",
            database_url=self.product.database_url,
            logs=[self.product.root / "said.log", *(self.product.data_dir / "logs").glob("*.log")],
        )

    def _launched(self, answer: dict[str, Any]) -> str:
        assert answer["__typename"] == "LaunchRunSuccess", answer
        return answer["run"]["runId"]

    def _at_rest(self) -> bool:
        unsettled = """
            SELECT 1 FROM outbox_messages WHERE state NOT IN ('sent', 'parked')
            UNION ALL SELECT 1 FROM gold_lead_journey
            WHERE tenant_id = :tenant AND next_action_at IS NOT NULL
            UNION ALL SELECT 1 FROM phone_leases WHERE holder IS NOT NULL
        """
        return not rows(self.product.engine, unsettled, tenant=TENANT)


@contextmanager
def on_the_product(house: House) -> Iterator[ProductStage]:
    """The running product; started for the first scenario that needs it."""
    yield ProductStage(house.guest(Product, lambda: Product(Path(mkdtemp(dir=house.folder)))))


def run_and_code_server_killed(stage: ProductStage, dice: random.Random) -> Recovery:
    """Kill every run's process and the code server at once: nobody is left to tell.

    Shifts are at work, and a dispatch and a drain are somewhere between their launch and their
    end. Their runs must be ended soon, and the next ones of their jobs must run.
    """
    stage.plan(90)
    stage.dispatch()
    stage.wait_for_sends(dice.randint(6, 20))
    for job in dice.sample(["dispatch", "drain_inbox"], dice.randint(1, 2)):
        stage.launch(job)
    pause(dice.uniform(0.0, 12.0))
    doomed = stage.runs(statuses=["STARTED"])
    servers = stage.product.processes("code-server", "api grpc")
    runs = {child for server in servers for child in _children(server)} - set(servers)
    holders = rows(stage.product.engine, "SELECT pid FROM phone_leases WHERE pid IS NOT NULL")
    pids = {process.pid for process in runs} | {int(str(row["pid"])) for row in holders}
    for process in servers:
        process.kill()
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    killed = time.monotonic()
    stage.fault_over()
    _wait_for(lambda: stage.finished([run["runId"] for run in doomed]))
    took = time.monotonic() - killed
    if took > ENDED_WITHIN:
        raise Broken("STUCK", f"runs without a process were shown as started for {took:.0f} s")
    dispatch, drain = stage.dispatch(), stage.launch("drain_inbox")
    _wait_for(lambda: stage.finished([dispatch]) and stage.has_begun(drain))
    stage.come_to_rest()
    jobs = Counter(run["jobName"] for run in doomed)
    return stage.recovery(f"{dict(jobs)} ended after {took:.0f} s")


def _children(server: psutil.Process) -> list[psutil.Process]:
    try:
        return server.children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def daemon_killed(stage: ProductStage, dice: random.Random) -> Recovery:
    """Kill the daemon while there is work to schedule; the supervisor brings it back."""
    stage.plan(30)
    stage.dispatch()
    pause(dice.uniform(0.0, 5.0))
    for process in stage.product.processes("dagster._daemon"):
        process.kill()
    stage.fault_over()
    stage.dispatch()
    stage.come_to_rest()
    return stage.recovery()


def everything_twice(stage: ProductStage, dice: random.Random) -> Recovery:
    """Run a second daemon beside the first, and two dispatches at the same time."""
    stage.plan(60)
    with _second_daemon(stage.product) as second:
        with ThreadPoolExecutor(2) as pool:
            runs = list(pool.map(lambda _: stage.dispatch(), range(2)))
        _wait_for(lambda: stage.finished(runs))
        stage.fault_over()
        stage.come_to_rest()
        assert second.is_running(), "the second daemon did not stay"
    return stage.recovery(f"{len(runs)} dispatches")


def clicked_ten_times(stage: ProductStage, dice: random.Random) -> Recovery:
    """Launch the same dispatch ten times at once, and execute one of them again."""
    leads = dice.randint(20, 40)
    before = len(stage.sandbox.accepted())
    stage.plan(leads)
    with ThreadPoolExecutor(10) as pool:
        runs = list(pool.map(lambda _: stage.dispatch(), range(10)))
    _wait_for(lambda: stage.finished(runs))
    again = stage.dispatch_again(dice.choice(runs))
    stage.fault_over()
    _wait_for(lambda: stage.finished([again]))
    stage.come_to_rest()
    sent = len(stage.sandbox.accepted()) - before
    if sent != leads:
        raise Broken("DUPLICATE", f"{sent} messages for {leads} leads")
    return stage.recovery(f"{len(set(runs))} runs, 1 again")


def _wait_for(condition: Callable[[], bool]) -> None:
    """The product needs seconds for what a shift alone does in milliseconds; ask it gently."""
    wait_for(condition, seconds=REST_SECONDS, every=0.3)


@contextmanager
def _second_daemon(product: Product) -> Iterator[psutil.Process]:
    """Another daemon on the same storage, started just as the first was."""
    first = product.processes("dagster._daemon")[0]
    with (product.data_dir / "logs" / "second-daemon.log").open("ab") as log:
        daemon = subprocess.Popen(
            first.cmdline(),
            cwd=product.root,
            env=first.environ(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield psutil.Process(daemon.pid)
    finally:
        end([psutil.Process(daemon.pid)], seconds=10)
        daemon.wait()
