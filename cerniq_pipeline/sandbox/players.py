"""The players: they read what our phones write, think for a while, and answer."""

from __future__ import annotations

import asyncio
import itertools
import zlib
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from typing import Any

from cerniq_pipeline.sandbox.cast import COLLEAGUE, STRANGER, Act, PlaySettings, Scene
from cerniq_pipeline.sandbox.desk import Desk, Heard, Reaction
from cerniq_pipeline.sandbox.files import sample_file
from cerniq_pipeline.sandbox.journal import Line
from cerniq_pipeline.sandbox.numbers import is_group
from cerniq_pipeline.sandbox.room import Account

_UNTIL_CONNECTED = 1.0


@dataclass(order=True)
class _Cue:
    """The next act of somebody's scene, due by the loop's clock."""

    due: float
    number: int
    account: str | None = field(compare=False)
    contact: str = field(compare=False)
    scene: Scene = field(compare=False)
    turn: int = field(compare=False)
    answers: str | None = field(compare=False)
    """The message of ours that this is about."""
    act: int = field(default=0, compare=False)


class Players:
    """Play every person that our phones write to, a few acts a second at the most.

    What is not played by the time the sandbox stops is never played: the journal has what was.
    """

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._cues: list[_Cue] = []
        self._busy: set[str] = set()
        self._numbers = itertools.count()
        self._changed = asyncio.Event()

    def play(self, settings: PlaySettings) -> None:
        """Begin to play, or go on in another way; scenes that are under way end here."""
        self._drop_scenes()
        self._desk.cast.settings = settings
        self._await_stranger()

    def stop(self) -> None:
        """Play no more."""
        self._drop_scenes()
        self._desk.cast.settings = None

    def described(self) -> dict[str, Any]:
        """Whether and how people are played, and what they did so far."""
        settings = self._desk.cast.settings
        return {
            "on": settings is not None,
            **({} if settings is None else settings.described()),
            "waiting": len(self._cues),
            "played": dict(self._desk.cast.played),
        }

    def heed(self, line: Line) -> None:
        """Let the person whom a message of ours has reached think about it."""
        if line["event"] != "accepted" or not line["delivered"]:
            return
        contact = line["recipient"]
        if contact in self._busy or is_group(contact) or self._desk.room.account(contact):
            return
        cast = self._desk.cast
        scene = cast.next_scene(contact)
        if scene is not None:
            turn, uid = cast.turn_of(contact), line["message_uid"]
            self._busy.add(contact)
            self._cue(_Cue(0, 0, line["sender"], contact, scene, turn, uid))

    async def run(self) -> None:
        """Play until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            self._changed.clear()
            wait = self._cues[0].due - loop.time() if self._cues else None
            if wait is None or wait > 0:
                try:
                    async with asyncio.timeout(wait):
                        await self._changed.wait()
                except TimeoutError:
                    pass
                continue
            self._perform(heappop(self._cues))
            settings = self._desk.cast.settings
            if settings is not None:
                await asyncio.sleep(1 / settings.most_per_second)

    def _perform(self, cue: _Cue) -> None:
        account = self._account_for(cue)
        if account is None or account.status != "active":
            # WhatsApp keeps what people write until the phone is back.
            later = asyncio.get_running_loop().time() + _UNTIL_CONNECTED
            heappush(self._cues, replace(cue, due=later))
            return
        self._do(cue, cue.scene.acts[cue.act], account)
        if cue.act + 1 < len(cue.scene.acts):
            self._cue(replace(cue, act=cue.act + 1))
            return
        self._busy.discard(cue.contact)
        if cue.scene.kind == STRANGER:
            self._await_stranger()

    def _account_for(self, cue: _Cue) -> Account | None:
        """The phone that somebody writes to; a stranger finds one that is there by then."""
        if cue.account is not None:
            return self._desk.room.account(cue.account)
        there = [one for one in self._desk.room.accounts() if one.status == "active"]
        there.sort(key=lambda one: one.phone)
        return there[zlib.crc32(cue.contact.encode()) % len(there)] if there else None

    def _do(self, cue: _Cue, act: Act, account: Account) -> None:
        persona = COLLEAGUE if act.by_hand else cue.scene.kind
        role: dict[str, Any] = {
            "persona": persona,
            "manner": cue.scene.manner,
            "turn": cue.turn,
            "act": 0 if act.by_hand else cue.act,
            "answers": cue.answers,
        }
        if act.form == "reaction":
            message = self._desk.room.message(cue.answers or "")
            assert message is not None, "only an answer can be a reaction"
            self._desk.see_reaction(Reaction(message, act.text, act.telling, role))
            return
        self._desk.hear(
            Heard(
                account=account.phone,
                contact=cue.contact,
                text=act.text,
                by_hand=act.by_hand,
                form=act.form,
                attachment=sample_file(act.form, filename=act.filename),
                place=act.place,
                number_hidden=cue.scene.number_hidden and account.home == "meta",
                telling=act.telling,
                role=role,
            )
        )

    def _await_stranger(self) -> None:
        found = self._desk.cast.next_stranger()
        if found is None:
            return
        contact, scene = found
        self._cue(_Cue(0, 0, None, contact, scene, 0, None))

    def _cue(self, cue: _Cue) -> None:
        pause = cue.scene.acts[cue.act].pause.total_seconds()
        due = asyncio.get_running_loop().time() + pause
        heappush(self._cues, replace(cue, due=due, number=next(self._numbers)))
        self._changed.set()

    def _drop_scenes(self) -> None:
        self._cues.clear()
        self._busy.clear()
        self._changed.set()
