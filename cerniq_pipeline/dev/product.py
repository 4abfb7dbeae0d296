"""The processes of the product, as a table: adding one is adding a row."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from cerniq_pipeline.dev import envfile
from cerniq_pipeline.dev.dagster_api import LOCATION, DagsterApi, code_server_answers
from cerniq_pipeline.dev.environment import (
    META_SECRET,
    PUBLIC,
    SANDBOX,
    TIMELINESAI_SECRET,
    TIMELINESAI_TOKEN,
    Environment,
    given_values,
)
from cerniq_pipeline.dev.listening import LOOPBACK, free_port, is_free, make_socket_folder
from cerniq_pipeline.dev.supervisor import Service
from cerniq_pipeline.errors import CerniqError, SetupError
from cerniq_pipeline.settings import is_loopback

DAGSTER_PORT = 3000
SANDBOX_PORT = 8900
WEB_PORT = 8000
DEFINITIONS = "cerniq_pipeline.definitions"


@dataclass(frozen=True)
class Ports:
    """Where the product listens this time."""

    dagster: int
    sandbox: int
    web: int

    @property
    def dagster_url(self) -> str:
        return f"http://{LOOPBACK}:{self.dagster}"

    @property
    def sandbox_url(self) -> str:
        return f"http://{LOOPBACK}:{self.sandbox}"

    @property
    def web_url(self) -> str:
        return f"http://{LOOPBACK}:{self.web}"


def choose_ports(root: Path) -> Ports:
    """The usual ports, or the next free ones; an address of this machine that was set is kept."""
    given = given_values(root)
    sandbox = _port_in(given, SANDBOX) or free_port(SANDBOX_PORT)
    # A public address elsewhere is that of a proxy, and says nothing about our port.
    is_ours = is_loopback(given.get(PUBLIC, ""))
    web = _port_in(given, PUBLIC) if is_ours else None
    web = web or free_port(WEB_PORT, taken=frozenset({sandbox}))
    return Ports(free_port(DAGSTER_PORT, taken=frozenset({sandbox, web})), sandbox, web)


def _port_in(given: Mapping[str, str], name: str) -> int | None:
    said = given.get(name)
    if said is None:
        return None
    port = urlsplit(said).port or 80
    if not is_free(port):
        raise SetupError(f"{name} says port {port}, which is busy: free it or unset it")
    return port


def processes(
    environment: Environment, ports: Ports, *, say: Callable[[str], None]
) -> tuple[Service, ...]:
    """Every process of the product, in the order in which they start."""
    python = sys.executable
    api = DagsterApi(ports.dagster_url)
    code_socket = make_socket_folder(environment.data_dir) / "code.sock"
    workspace = ("-w", str(_workspace_file(environment.data_dir, code_socket)))
    accounts = environment.data_dir / "sandbox" / "accounts.json"
    webhooks = environment.data_dir / "sandbox" / "webhooks.json"

    def prepare_sandbox() -> None:
        _write_accounts(environment, accounts)
        _write_webhooks(environment, ports, webhooks)

    sandbox = Service(
        "sandbox",
        (
            *(python, "-m", "cerniq_pipeline.sandbox", "--port", str(ports.sandbox)),
            *("--journal", str(environment.data_dir / "sandbox")),
            *("--accounts", str(accounts), "--webhooks", str(webhooks), "--play"),
        ),
        lambda _: _is_ok(f"{ports.sandbox_url}/_sandbox/health"),
        address=ports.sandbox_url,
        stop_turn=3,
        before_first_start=prepare_sandbox,
    )
    web = Service(
        "web",
        (
            str(Path(python).with_name("cerniq")),
            "web",
            "--host",
            LOOPBACK,
            "--port",
            str(ports.web),
        ),
        lambda _: _is_ok(f"{ports.web_url}/health"),
        address=ports.web_url,
        stop_turn=3,
    )
    # `code-server` and not `api grpc`: it can reload the code from the UI while runs go on. Both
    # Dagster processes use this one, so the code is loaded once.
    code_server = Service(
        "dagster-code",
        (
            *(python, "-m", "dagster", "code-server", "start", "-m", DEFINITIONS),
            *("-s", str(code_socket), "--location-name", LOCATION),
            *("--working-directory", str(environment.root), "--log-level", "warning"),
            "--use-python-environment-entry-point",
        ),
        lambda _: code_server_answers(code_socket),
        patience_seconds=30,
        # After the daemon, which would take a run that it cannot start for failed.
        stop_turn=2,
        killed_at_stop=True,
        before_first_start=lambda: code_socket.unlink(missing_ok=True),
    )
    webserver = Service(
        "dagster-webserver",
        (
            *(python, "-m", "dagster_webserver", "-h", LOOPBACK, "-p", str(ports.dagster)),
            *workspace,
        ),
        lambda _: api.answers(),
        address=ports.dagster_url,
        needs=("dagster-code",),
    )
    daemon = Service(
        "dagster-daemon",
        (python, "-m", "dagster._daemon", "run", *workspace),
        lambda started: api.daemon_beats_since(max(started, time.time() - 120)),
        # Whoever sends must be able to hear the answer.
        needs=("dagster-webserver", web.name),
        # It beats every 30 s, later when a full queue keeps every processor busy.
        patience_seconds=300,
        before_first_start=lambda: _end_interrupted_runs(environment, api, say),
    )
    in_sandbox = (sandbox,) if environment.is_sandbox else ()
    return (*in_sandbox, web, code_server, webserver, daemon)


def child_environment(environment: Environment) -> dict[str, str]:
    """What every process of the product is told."""
    return {
        **environment.values,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
        "PYTHONUNBUFFERED": "1",
        # A run's start holds one worker for seconds; sensors must not wait behind twenty of them.
        "DAGSTER_GRPC_MAX_WORKERS": "24",
        "DAGSTER_CODE_SERVER_MAX_WORKERS": "24",
        # Dagster would give open calls up to a minute at the end; we promise 15 s.
        "DAGSTER_GRPC_SHUTDOWN_GRACE_PERIOD": "1",
    }


def _workspace_file(data_dir: Path, code_socket: Path) -> Path:
    import yaml

    server = {"socket": str(code_socket), "location_name": LOCATION}
    path = data_dir / "workspace.yaml"
    path.write_text(yaml.safe_dump({"load_from": [{"grpc_server": server}]}))
    return path


def _end_interrupted_runs(
    environment: Environment, api: DagsterApi, say: Callable[[str], None]
) -> None:
    if not environment.owns_dagster_storage:
        return  # a shared server may have runs of other machines
    try:
        if ended := api.end_interrupted_runs():
            say(f"{ended} runs of the last session were cut off; marked as cancelled")
    except (CerniqError, httpx.HTTPError) as error:
        say(f"runs of the last session could not be checked: {error}")


def _write_accounts(environment: Environment, path: Path) -> None:
    """Tell the sandbox every phone there is: a vendor lists those that are linked to it.

    In a file and not in the command line, where everybody on the machine could read numbers.
    """
    numbers = environment.phone_numbers()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.write_text(json.dumps([{"phone": n, "provider": p} for n, p in numbers]))


def _write_webhooks(environment: Environment, ports: Ports, path: Path) -> None:
    """Tell the sandbox whom to call and by what we shall believe it; only its owner may read it."""
    secrets = environment.webhook_secrets
    signed = _first(secrets.get(TIMELINESAI_SECRET, ""))
    listeners = {
        "timelinesai": {
            "url": f"{ports.web_url}/webhooks/timelinesai",
            "token": _first(secrets[TIMELINESAI_TOKEN]),
            **({"secret": signed} if signed else {}),
        },
        "meta": {
            "url": f"{ports.web_url}/webhooks/whatsapp",
            "app_secret": _first(secrets[META_SECRET]),
        },
    }
    envfile.write(path, json.dumps(listeners))


def _first(secrets: str) -> str:
    """One of several secrets: any of them is believed."""
    return secrets.partition(",")[0].strip()


def _is_ok(url: str) -> bool:
    try:
        return httpx.get(url, timeout=2, trust_env=False).status_code == httpx.codes.OK
    except httpx.HTTPError:
        return False
