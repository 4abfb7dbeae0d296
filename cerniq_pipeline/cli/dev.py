"""`cerniq dev` and `cerniq services`: the product on one machine."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from cerniq_pipeline.cli.context import AsJson, console, listing, print_json, settings
from cerniq_pipeline.errors import CerniqError

if TYPE_CHECKING:
    from cerniq_pipeline.dev.supervisor import Service
    from cerniq_pipeline.settings import Settings

FIRST_JOB = "dispatch"

services = typer.Typer(help="The embedded Postgres and Redis.", no_args_is_help=True)


def dev(
    *,
    kick: Annotated[
        bool | None,
        typer.Option(
            help="Start one dispatch at once, instead of at its next tick; in live mode only when "
            "asked for.",
            show_default="in sandbox mode",
        ),
    ] = None,
) -> None:
    """Start everything on this machine and keep it running until Ctrl-C."""
    from cerniq_pipeline.dev.environment import data_folder, embedded_servers, prepare
    from cerniq_pipeline.dev.product import child_environment, choose_ports, processes
    from cerniq_pipeline.dev.supervisor import (
        Supervisor,
        end_leftovers,
        only_supervisor,
        signals_as_interrupts,
    )

    root = Path.cwd()
    data_dir = data_folder(root)
    with only_supervisor(data_dir), signals_as_interrupts():
        if ended := end_leftovers(data_dir):
            _say(f"ended {ended} processes that a killed `cerniq dev` had left running")
        try:
            ports = choose_ports(root)
            _say("preparing servers, settings and tables …")
            environment = prepare(root, sandbox_url=ports.sandbox_url, web_url=ports.web_url)
            for note in environment.notes:
                _say(note)
            told = settings()
            table = processes(environment, ports, say=_say)

            def when_healthy() -> None:
                console.print(_addresses(table))
                _say(_mode_line(told))
                _say(f"Logs are in {data_dir / 'logs'}. Ctrl-C stops everything; the data stays.")
                if starts_a_dispatch(told.mode, kick):
                    threading.Thread(target=_kick, args=[ports.dagster_url], daemon=True).start()

            _say(f"starting {', '.join(service.name for service in table)} …")
            Supervisor(
                table,
                root=root,
                data_dir=data_dir,
                environment=child_environment(environment),
                servers=environment.servers,
                say=_say,
            ).run(when_healthy)
        finally:
            for server in embedded_servers(data_dir):  # also when we never got to the supervisor
                server.stop()
        _say("stopped; nothing is left running")


@services.command()
def up() -> None:
    """Have servers, `.env`, tables and demo data, so that `dagster dev` and the rest can run."""
    from cerniq_pipeline.dev.environment import prepare

    environment = prepare(Path.cwd())
    for note in environment.notes:
        _say(note)
    status()


@services.command()
def down() -> None:
    """Stop the embedded servers; their data stays."""
    from cerniq_pipeline.dev.environment import data_folder, embedded_servers
    from cerniq_pipeline.dev.supervisor import only_supervisor

    data_dir = data_folder(Path.cwd())
    with only_supervisor(data_dir):
        for server in embedded_servers(data_dir):
            server.stop()
    status()


@services.command()
def status(*, as_json: AsJson = False) -> None:
    """Show which embedded servers run, and where."""
    from cerniq_pipeline.dev.environment import data_folder, embedded_servers

    servers = embedded_servers(data_folder(Path.cwd()))
    if as_json:
        found = [
            {"name": each.name, "running": each.is_running(), "pid": each.pid(), "url": each.url()}
            for each in servers
        ]
        print_json(found)
        return
    table = listing("server", "state", "pid", rest="address")
    for each in servers:
        state = "running" if each.is_running() else "stopped"
        table.add_row(each.name, state, str(each.pid() or ""), each.url())
    console.print(table)


def _say(line: str) -> None:
    console.print(line, markup=False, highlight=False, soft_wrap=True)


def _addresses(table: Iterable[Service]) -> Table:
    shown = Table("process", "address", title="Cerniq is running")
    for service in table:
        shown.add_row(service.name, service.address or "healthy")
    return shown


def starts_a_dispatch(mode: str, kick: bool | None) -> bool:
    """Whether a start dispatches by itself: never to real people, unless somebody said so."""
    return mode == "sandbox" if kick is None else kick


def _mode_line(told: Settings) -> str:
    if told.mode == "sandbox":
        return (
            f"SANDBOX: pacing runs {told.speed:g}× faster than life; nothing leaves this machine."
        )
    return (
        "LIVE: messages go to real people, at real speed. The schedule dispatches every 5 minutes; "
        "`cerniq pause` holds everything."
    )


def _kick(dagster_url: str) -> None:
    import httpx

    from cerniq_pipeline.dev.dagster_api import DagsterApi

    try:
        run_id = DagsterApi(dagster_url).launch(FIRST_JOB)
        _say(f"started the first {FIRST_JOB}: {dagster_url}/runs/{run_id}")
    except (CerniqError, httpx.HTTPError) as error:
        _say(f"the first {FIRST_JOB} could not be started, its schedule will do it: {error}")
