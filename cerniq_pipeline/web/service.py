"""The web service: one process, one event loop, one application."""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from types import FrameType

import uvicorn
from fastapi import FastAPI

from cerniq_pipeline.errors import SetupError
from cerniq_pipeline.logs import event
from cerniq_pipeline.settings import Settings
from cerniq_pipeline.store.database import connect
from cerniq_pipeline.web.answers import (
    SECURITY,
    Message,
    Receive,
    Scope,
    Send,
    new_request_id,
    plain,
    reply,
)
from cerniq_pipeline.web.guard import close_late, guarded
from cerniq_pipeline.web.intake import Intake
from cerniq_pipeline.web.keyring import Keyring
from cerniq_pipeline.web.limits import Limits
from cerniq_pipeline.web.pages import create_pages
from cerniq_pipeline.web.spool import Spool
from cerniq_pipeline.web.watching import watch_dagster
from cerniq_pipeline.web.webhooks import PREFIX, Webhooks

BROKEN = plain(HTTPStatus.INTERNAL_SERVER_ERROR, close=True)
TOO_LARGE = plain(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, close=True)
ENV_FILE = Path(".env")


def serve(
    settings: Settings,
    *,
    host: str,
    port: int,
    load: Callable[[], Settings],
    ready: Callable[[str], None],
    limits: Limits | None = None,
) -> None:
    """Take webhooks until told to stop by SIGTERM or SIGINT; tells its address when it is ready.

    `load` reads the settings again, for when secrets are rotated.
    """
    try:
        listening = socket.create_server((host, port), backlog=1024)
    except OSError as error:
        raise SetupError(f"port {port} of {host} cannot be used: {error.strerror}") from error
    keyring = Keyring(settings, load=load, env_file=ENV_FILE, look_seconds=0.5)
    bound_host, bound_port = listening.getsockname()[:2]
    work = _serve(settings, keyring, listening, limits or Limits())
    ready(f"http://{bound_host}:{bound_port}")
    with asyncio.Runner(loop_factory=_new_loop) as runner:
        runner.run(work)


async def _serve(
    settings: Settings, keyring: Keyring, listening: socket.socket, limits: Limits
) -> None:
    spool = Spool(settings.data_dir / "spool")
    intake = Intake(settings.database_url, spool)
    webhooks = Webhooks(keyring, intake, limits)
    engine = connect(settings.database_url, pool_size=2)
    pages = create_pages(settings, engine, intake)
    server = _Server(
        uvicorn.Config(
            Application(webhooks, pages, limits),
            http=guarded(limits),
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            log_level="critical",  # requests without a form are no news, and errors we tell
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=int(limits.idle_seconds) + 1,
            timeout_graceful_shutdown=int(limits.stop_seconds),
        )
    )
    await intake.start()
    tasks = [
        asyncio.create_task(keyring.watch()),
        asyncio.create_task(_tend(server, webhooks, limits)),
        asyncio.create_task(watch_dagster(settings, engine)),
    ]
    # What is there now stays: without it the collector has nothing to walk through again.
    gc.collect()
    gc.freeze()
    event("web", "started")
    try:
        await server.serve(sockets=[listening])
    finally:
        for task in tasks:
            task.cancel()
        webhooks.tell_refusals()
        await intake.stop()
        engine.dispose()
        event("web", "stopped")


async def _tend(server: uvicorn.Server, webhooks: Webhooks, limits: Limits) -> None:
    loop = asyncio.get_running_loop()
    told_at = loop.time()
    while True:
        await asyncio.sleep(min(1.0, limits.receive_seconds / 4))
        now = loop.time()
        if closed := close_late(server.server_state.connections, now):
            event("web", "late_connections_closed", count=closed)
        if now - told_at >= 1.0:
            webhooks.tell_refusals()
            told_at = now


def _new_loop() -> asyncio.AbstractEventLoop:
    import uvloop

    return uvloop.new_event_loop()


class _Server(uvicorn.Server):
    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # Uvicorn would also send the signal to itself again at the end, and die of it.
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True


class Application:
    """Webhooks the short way, everything else through FastAPI; whatever breaks, breaks quietly."""

    def __init__(self, webhooks: Webhooks, pages: FastAPI, limits: Limits) -> None:
        self._webhooks = webhooks
        self._pages = pages
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"].startswith(PREFIX):
            await self._webhooks(scope, receive, send)
        else:
            await self._page(scope, receive, send)

    async def _page(self, scope: Scope, receive: Receive, send: Send) -> None:
        request_id = new_request_id()
        has_begun = False
        left = self._limits.body_bytes

        async def send_safely(message: Message) -> None:
            nonlocal has_begun
            if message["type"] == "http.response.start":
                has_begun = True
                said = {name for name, _ in message["headers"]}
                ours = [*SECURITY, (b"x-request-id", request_id)]
                message["headers"] = [
                    *message["headers"],
                    *(header for header in ours if header[0] not in said),
                ]
            await send(message)

        async def receive_some() -> Message:
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b""))
            if left < 0:
                raise _TooLarge
            return message

        try:
            await self._pages(scope, receive_some, send_safely)
        except _TooLarge:
            if not has_begun:
                await reply(send, TOO_LARGE, request_id)
        except Exception as error:  # noqa: BLE001 (the edge: nobody outside hears what it was)
            told = {"error": type(error).__name__, "request": request_id.decode()}
            event("web", "page_broken", level="error", **told)
            if not has_begun:
                with suppress(OSError):
                    await reply(send, BROKEN, request_id)


class _TooLarge(Exception):
    """A body that is longer than any page wants."""
