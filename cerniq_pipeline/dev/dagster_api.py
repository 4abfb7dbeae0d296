"""The few questions and orders for a running Dagster, over its own web interfaces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx

from cerniq_pipeline.errors import SetupError

LOCATION = "cerniq"
_REPOSITORY = "__repository__"

_HEARTBEATS = """
query { instance { daemonHealth { allDaemonStatuses { required lastHeartbeatTime } } } }
"""
_RUNNING = """
query { runsOrError(filter: {statuses: [STARTING, STARTED, CANCELING]}) {
  __typename ... on Runs { results { runId } } ... on Error { message } } }
"""
_END_RUNS = """
mutation ($ids: [String!]!) {
  terminateRuns(runIds: $ids, terminatePolicy: MARK_AS_CANCELED_IMMEDIATELY) {
    __typename ... on Error { message } } }
"""
_LAUNCH = """
mutation ($selector: JobOrPipelineSelector!) {
  launchRun(executionParams: {selector: $selector, runConfigData: "{}"}) {
    __typename ... on LaunchRunSuccess { run { runId } } ... on Error { message } } }
"""


class DagsterApi:
    """A client of one Dagster webserver on this machine."""

    def __init__(self, address: str) -> None:
        self.address = address
        # Proxies of the environment are for the outside; this never leaves the machine.
        self._client = httpx.Client(base_url=address, trust_env=False, timeout=2.0)

    def answers(self) -> bool:
        """Whether the webserver is up."""
        try:
            return self._client.get("/server_info").status_code == httpx.codes.OK
        except httpx.HTTPError:
            return False

    def daemon_beats_since(self, moment: float) -> bool:
        """Whether every daemon that is needed has given a sign of life after this moment."""
        try:
            health = self._ask(_HEARTBEATS)["instance"]["daemonHealth"]
        except (SetupError, httpx.HTTPError):
            return False
        needed = [status for status in health["allDaemonStatuses"] if status["required"]]
        return all((status["lastHeartbeatTime"] or 0) >= moment for status in needed)

    def end_interrupted_runs(self) -> int:
        """Mark every run as cancelled that Dagster still believes to be running.

        Only for a moment when none can be: a run that was killed together with its code server
        would otherwise stay STARTED and keep its phone's place in the queue.
        """
        runs = _unless_error(self._ask(_RUNNING, seconds=20)["runsOrError"])["results"]
        ids = [run["runId"] for run in runs]
        if ids:
            answer = self._ask(_END_RUNS, {"ids": ids}, seconds=60)
            _unless_error(answer["terminateRuns"])
        return len(ids)

    def launch(self, job: str) -> str:
        """Ask for a run of this job and return its id."""
        selector = {
            "repositoryLocationName": LOCATION,
            "repositoryName": _REPOSITORY,
            "jobName": job,
        }
        answer = self._ask(_LAUNCH, {"selector": selector}, seconds=60)
        return str(_unless_error(answer["launchRun"])["run"]["runId"])

    def _ask(
        self, query: str, variables: dict[str, Any] | None = None, *, seconds: float = 2.0
    ) -> dict[str, Any]:
        body = {"query": query, "variables": variables or {}}
        answer = self._client.post("/graphql", json=body, timeout=seconds)
        content = answer.json()
        if content.get("errors"):
            raise SetupError(f"Dagster refused a query: {content['errors'][0]['message']}")
        return content["data"]


def code_server_answers(socket: Path) -> bool:
    """Whether the code server and the process behind it, which holds the code, are both up."""
    import grpc

    with grpc.insecure_channel(f"unix:{socket}") as channel:
        # The bytes of a PingRequest, so that the supervisor need not import Dagster (2 s, 150 MB).
        ping = channel.unary_unary("/api.DagsterApi/Ping")
        try:
            ping(b"\x0a\x04ping", timeout=2)
        except grpc.RpcError:
            return False
    return True


def _unless_error(answer: dict[str, Any]) -> dict[str, Any]:
    if "message" in answer:
        raise SetupError(f"Dagster refused: {answer['message']}")
    if answer["__typename"].endswith(("Error", "Invalid")):
        raise SetupError(f"Dagster refused: {answer['__typename']}")
    return answer
