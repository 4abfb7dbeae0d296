"""The server: takes connections, hands requests to the desk, and stops at once when told."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

from cerniq_pipeline.sandbox.cast import PlaySettings
from cerniq_pipeline.sandbox.control import control, link_new_accounts
from cerniq_pipeline.sandbox.desk import Latency, body_limit, door_for
from cerniq_pipeline.sandbox.house import House
from cerniq_pipeline.sandbox.journal import Journal, JournalBroken
from cerniq_pipeline.sandbox.wire import Connection, Reply, Request, UnreadableRequest

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Options:
    """How to start a sandbox."""

    host: str
    port: int
    journal: Path
    latency: Latency
    accounts: Path | None = None
    webhooks: Path | None = None
    play: PlaySettings | None = None


async def run(options: Options) -> None:
    """Serve until SIGTERM or SIGINT; JournalBroken when the journal stops taking lines."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    journal = Journal(options.journal)
    try:
        house = House(journal, options.latency, options.webhooks)
        if options.accounts is not None:
            link_new_accounts(house.desk, json.loads(options.accounts.read_text()))
        await journal.durable()
        if options.play is not None:
            house.players.play(options.play)
        await _serve_until(stop, house, options)
    finally:
        await journal.close()
    if journal.failure is not None:
        raise journal.failure


async def _serve_until(stop: asyncio.Event, house: House, options: Options) -> None:
    reception = _Reception(house)
    server = await asyncio.start_server(reception.receive, options.host, options.port)
    try:
        _announce(server.sockets[0].getsockname()[1])
        # Webhooks that are not told by the end stay untold, as after a crash.
        life = asyncio.create_task(house.run())
        life.add_done_callback(lambda _: stop.set())
        await _first_of(stop, house.desk.journal.failed)
        life.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await life
    finally:
        server.close()
        await reception.close()


class _Reception:
    """Keeps track of the open connections, so that stopping need not wait for any of them."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._desk = house.desk
        self._open: set[asyncio.Task[None]] = set()

    async def receive(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection to its end."""
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        connection = Connection(reader, writer)
        try:
            await self._converse(connection)
        except asyncio.CancelledError:
            writer.transport.abort()
        except JournalBroken:
            writer.transport.abort()  # no line, no answer
        except Exception:
            log.exception("a connection failed")
        finally:
            self._open.discard(task)
            connection.close()

    async def close(self) -> None:
        """Cut every connection; requests in flight are recorded as cut."""
        tasks = list(self._open)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _converse(self, connection: Connection) -> None:
        while True:
            try:
                request = await connection.next_request(body_limit)
            except UnreadableRequest as error:
                await connection.refuse(error.answer)
                return
            if request is None:
                return
            reply = await self._reply(request)
            if not await connection.deliver(reply, ready=self._desk.journal.durable):
                return

    async def _reply(self, request: Request) -> Reply:
        if door := door_for(request.path):
            return await self._desk.serve(door, request)
        return Reply(await control(self._house, request))


def _announce(port: int) -> None:
    """Tell whoever started the sandbox that it is ready, and where."""
    sys.stdout.write(json.dumps({"port": port}) + "\n")
    sys.stdout.flush()


async def _first_of(*events: asyncio.Event) -> None:
    waits = [asyncio.create_task(event.wait()) for event in events]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await wait
