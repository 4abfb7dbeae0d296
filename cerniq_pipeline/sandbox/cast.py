"""Who plays what: every number is one person, drawn from a seed, and the journal is their memory.

The same seed and number always give the same person, who says the same things after the same
pauses. What a person has already done is read back from the journal, so that a restart repeats
nothing and whoever said stop has said it for good.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any, Literal, get_args

from cerniq_pipeline.sandbox import voices
from cerniq_pipeline.sandbox.faults import TOLD_ONCE, Telling
from cerniq_pipeline.sandbox.journal import Line
from cerniq_pipeline.sandbox.room import Form
from cerniq_pipeline.sandbox.voices import LINES, Mood

Gesture = Literal[
    "photo_with_caption",
    "photo",
    "voice_note",
    "document",
    "sticker",
    "location",
    "reaction",
    "missed_call",
]
Passive = Literal["silent", "reads_only"]
Kind = Mood | Gesture | Passive
Manner = Literal["plainly", "in_pieces", "twice", "unheard", "out_of_order", "long_after"]

MOODS: tuple[Mood, ...] = get_args(Mood)
KINDS: tuple[Kind, ...] = (*MOODS, *get_args(Gesture), *get_args(Passive))
MANNERS: tuple[Manner, ...] = get_args(Manner)
MOST_TURNS = 3
STRANGER, COLLEAGUE = "stranger", "colleague"

# How often each kind comes among those who answer at all.
_WEIGHTS: Mapping[Kind, int] = {
    "interested": 18,
    "asks_price": 12,
    "asks_info": 12,
    "wants_meeting": 8,
    "refuses": 12,
    "says_stop": 10,
    "wrong_person": 5,
    "out_of_office": 5,
    "complains": 2,
    "customer": 4,
    "photo_with_caption": 2,
    "photo": 1,
    "voice_note": 3,
    "document": 1,
    "sticker": 1,
    "location": 1,
    "reaction": 3,
    "missed_call": 2,
}
_MANNER_WEIGHTS: Mapping[Manner, int] = {
    "plainly": 70,
    "in_pieces": 10,
    "twice": 6,
    "unheard": 5,
    "out_of_order": 5,
    "long_after": 4,
}
# What a person goes on to when we write again; nothing follows what is not here.
_FOLLOW_UPS: Mapping[Kind, tuple[Kind, ...]] = {
    "interested": ("asks_price", "asks_info", "wants_meeting", "thanks"),
    "asks_price": ("interested", "refuses", "wants_meeting", "thanks", "says_stop"),
    "asks_info": ("interested", "asks_price", "refuses", "says_stop"),
    "wants_meeting": ("thanks", "asks_price"),
    "customer": ("thanks",),
    "out_of_office": ("interested", "refuses", "asks_info"),
    "complains": ("says_stop",),
    "photo_with_caption": ("asks_price", "wants_meeting"),
    "photo": ("asks_price", "asks_info"),
    "voice_note": ("interested", "asks_info", "refuses"),
    "document": ("asks_price", "wants_meeting"),
    "sticker": ("interested", "refuses"),
    "location": ("wants_meeting",),
    "reaction": ("interested", "asks_info", "refuses"),
    "missed_call": ("asks_info", "wants_meeting"),
}
_WITH_COLLEAGUE: frozenset[Kind] = frozenset(
    {"interested", "asks_price", "asks_info", "wants_meeting", "customer"}
)
_COLLEAGUE_SHARE = 0.1
_HIDDEN_SHARE = 0.05
_SHORTEST, _LONGEST, _SPREAD = 2.0, 900.0, 1.0
_HOLD = timedelta(seconds=30)
_PLACES = (
    {"latitude": 44.4323, "longitude": 26.1063, "name": "Birou", "address": "București"},
    {"latitude": 46.7712, "longitude": 23.6236, "name": "Hala 2", "address": "Cluj-Napoca"},
    {"latitude": 45.7489, "longitude": 21.2087, "name": "Atelier", "address": "Timișoara"},
)
_FORMS: Mapping[str, Form] = {
    "photo_with_caption": "image",
    "photo": "image",
    "voice_note": "audio",
    "document": "document",
    "sticker": "sticker",
    "location": "location",
    "missed_call": "call",
}


class BadPlay(Exception):
    """Settings for the players that make no sense, and why."""


@dataclass(frozen=True)
class PlaySettings:
    """How people are played; times are in seconds of life and run `speed` times as fast."""

    seed: int = 7
    speed: float = 1.0
    answering: float = 0.4
    """The share of people who do more than read."""
    median_seconds: float = 20.0
    """How long half of them take to answer."""
    strangers_per_hour: float = 6.0
    """How many people write who were not written to."""
    most_per_second: float = 3.0
    """The most that all of them do in a second of ours."""
    kinds: tuple[Kind, ...] | None = None
    """Only these kinds of people, or None for the usual mix."""
    manners: tuple[Manner, ...] | None = None
    """Only these ways to be told, or None for the usual mix."""

    def described(self) -> dict[str, Any]:
        """The settings as the control API shows and takes them."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    @classmethod
    def from_json(cls, content: object) -> PlaySettings:
        """The settings in a JSON object, the usual ones where it is silent; raises BadPlay."""
        if not isinstance(content, dict):
            raise BadPlay("play is a JSON object")
        unknown = content.keys() - {one.name for one in fields(cls)}
        if unknown:
            raise BadPlay(f"play has no {', '.join(sorted(map(str, unknown)))}")
        return cls(**{key: _setting(key, value) for key, value in content.items()})


def _setting(key: str, value: Any) -> Any:
    if key in _CHOICES:
        allowed = _CHOICES[key]
        if value is None:
            return None
        if not isinstance(value, list) or not value or not set(map(str, value)) <= set(allowed):
            raise BadPlay(f"{key} must be a list of {', '.join(allowed)}")
        return tuple(value)
    number = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e9
    if key == "seed":
        if not number or not isinstance(value, int):
            raise BadPlay("seed must be a whole number, 0 or more")
    elif key == "answering":
        if not number or value > 1:
            raise BadPlay("answering must be a number from 0 to 1")
    elif not number or (value == 0 and key != "strangers_per_hour"):
        raise BadPlay(f"{key} must be a number above 0")
    return value


_CHOICES: Mapping[str, tuple[str, ...]] = {"kinds": KINDS, "manners": MANNERS}


@dataclass(frozen=True)
class Act:
    """One thing that a person does, so long after the one before."""

    pause: timedelta
    form: Form | Literal["reaction"] = "text"
    text: str = ""
    filename: str | None = None
    place: Mapping[str, Any] | None = None
    telling: Telling = TOLD_ONCE
    by_hand: bool = False


@dataclass(frozen=True)
class Scene:
    """What a person does about one message of ours."""

    kind: Kind | Literal["stranger"]
    manner: Manner
    acts: tuple[Act, ...]
    number_hidden: bool = False


@dataclass(frozen=True)
class Persona:
    """One person: what they do first, how many times they answer, and what is odd about them."""

    kind: Kind
    turns: int
    number_hidden: bool


def persona_of(settings: PlaySettings, phone: str) -> Persona:
    """The person behind a number."""
    dice = random.Random(f"{settings.seed}:{phone}")
    answers = dice.random() < settings.answering
    kind = _drawn(dice, _WEIGHTS, settings.kinds)
    passive: Kind = dice.choice(("silent", "reads_only"))
    if settings.kinds is None and not answers:
        kind = passive
    return Persona(kind, dice.randint(1, MOST_TURNS), dice.random() < _HIDDEN_SHARE)


def scene_of(settings: PlaySettings, phone: str, turn: int) -> Scene | None:
    """What a person does the n-th time, counted from 0; None when they do nothing."""
    persona = persona_of(settings, phone)
    if turn >= persona.turns:
        return None
    kind: Kind | None = persona.kind
    for step in range(1, turn + 1):
        kind = _next_kind(settings, phone, step, kind)
    if kind is None or kind in get_args(Passive):
        return None
    dice = random.Random(f"{settings.seed}:{phone}:{turn}")
    manner = _manner(dice, settings, kind)
    first = _delay(dice, settings, kind, manner)
    acts = _acts(dice, settings, kind, manner, first)
    if turn == 0 and kind in _WITH_COLLEAGUE and dice.random() < _COLLEAGUE_SHARE:
        pause = _seconds(settings, dice.uniform(5, 20))
        acts = (*acts, Act(pause, text=dice.choice(voices.BY_HAND), by_hand=True))
    return Scene(kind, manner, acts, persona.number_hidden)


def stranger(settings: PlaySettings, index: int) -> tuple[str, Scene]:
    """The n-th person who writes first: their number, and what they write."""
    dice = random.Random(f"{settings.seed}:stranger:{index}")
    phone = f"+40{dice.choice((729, 747, 758, 769))}{dice.randrange(10**6):06}"
    rate = settings.strangers_per_hour / 3600
    pause = _seconds(settings, dice.expovariate(rate) if rate else math.inf)
    scene = Scene(STRANGER, "plainly", (Act(pause, text=dice.choice(voices.STRANGERS)),))
    return phone, scene


def _next_kind(settings: PlaySettings, phone: str, step: int, before: Kind | None) -> Kind | None:
    following = _FOLLOW_UPS.get(before, ()) if before is not None else ()
    dice = random.Random(f"{settings.seed}:{phone}:kind:{step}")
    return dice.choice(following) if following else None


def _drawn(
    dice: random.Random, weights: Mapping[Kind, int], wanted: tuple[Kind, ...] | None
) -> Kind:
    choice = tuple(weights) if wanted is None else wanted
    return dice.choices(choice, [weights.get(one, 1) for one in choice])[0]


def _manner(dice: random.Random, settings: PlaySettings, kind: Kind) -> Manner:
    choice = settings.manners or MANNERS
    drawn = dice.choices(choice, [_MANNER_WEIGHTS[one] for one in choice])[0]
    if kind in ("reaction", "missed_call"):
        return "plainly"  # history tells of neither, so one that is not told is lost for good
    if kind not in MOODS and drawn in ("in_pieces", "out_of_order"):
        return "plainly"
    return drawn


def _delay(dice: random.Random, settings: PlaySettings, kind: Kind, manner: Manner) -> timedelta:
    """Mostly soon, sometimes long after: the tail is long, as it is with people."""
    drawn = settings.median_seconds * math.exp(dice.gauss(0, _SPREAD))
    if kind == "out_of_office":
        drawn = dice.uniform(1, 3)  # a machine does not think
    elif manner == "long_after":
        drawn = dice.uniform(1200, 3600)
    else:
        drawn = min(max(drawn, _SHORTEST), _LONGEST)
    return _seconds(settings, drawn)


def _acts(
    dice: random.Random, settings: PlaySettings, kind: Kind, manner: Manner, first: timedelta
) -> tuple[Act, ...]:
    telling = _TELLINGS.get(manner, TOLD_ONCE)
    if kind == "reaction":
        return (Act(first, "reaction", dice.choice(voices.REACTIONS)),)
    if kind in LINES:
        return _said(dice, settings, dice.choice(LINES[kind]), manner, first, telling)
    text, filename, place = "", None, None
    if kind == "photo_with_caption":
        text = dice.choice(voices.CAPTIONS)
    elif kind == "document":
        filename = dice.choice(voices.DOCUMENTS)
    elif kind == "location":
        place = dice.choice(_PLACES)
        text = f"https://maps.google.com/?q={place['latitude']},{place['longitude']}"
    return (Act(first, _FORMS[kind], text, filename, place, telling),)


def _said(
    dice: random.Random,
    settings: PlaySettings,
    line: str,
    manner: Manner,
    first: timedelta,
    telling: Telling,
) -> tuple[Act, ...]:
    greeting, ending = dice.choice(voices.GREETINGS), dice.choice(voices.ENDINGS)
    pauses = [_seconds(settings, dice.uniform(1, 4)) for _ in range(2)]
    if manner == "in_pieces":
        pieces = (Act(first, text=greeting), Act(pauses[0], text=line))
        return (*pieces, Act(pauses[1], text=ending)) if dice.random() < 0.5 else pieces
    if manner == "out_of_order":
        held = Act(first, text=greeting, telling=Telling(held=_HOLD))
        return (held, Act(pauses[0], text=line))
    return (Act(first, text=line, telling=telling),)


_TELLINGS: Mapping[Manner, Telling] = {"twice": Telling(times=2), "unheard": Telling(times=0)}


def _seconds(settings: PlaySettings, seconds: float) -> timedelta:
    return timedelta(seconds=min(seconds / settings.speed, 1e8))


class Cast:
    """What people have done so far, as the journal tells it, and how they are played now."""

    def __init__(self) -> None:
        self.settings: PlaySettings | None = None
        self.played: Counter[str] = Counter()
        self._turns: dict[str, int] = {}
        self._stopped: set[str] = set()

    def apply(self, line: Line) -> None:
        """Take in one line of the journal; what no player did is passed over."""
        persona = line.get("persona")
        if persona is None:
            return
        if line["act"] == 0:
            self.played[persona] += 1
        if persona in (STRANGER, COLLEAGUE):
            return
        contact = line["contact"]
        self._turns[contact] = max(self._turns.get(contact, 0), line["turn"] + 1)
        if persona == "says_stop":
            self._stopped.add(contact)

    def reads(self, phone: str) -> bool:
        """Whether this person opens what we write."""
        return self.settings is None or persona_of(self.settings, phone).kind != "silent"

    def turn_of(self, phone: str) -> int:
        """How many of our messages this person has answered."""
        return self._turns.get(phone, 0)

    def next_scene(self, phone: str) -> Scene | None:
        """What this person does about a message that we write now; None for nothing."""
        if self.settings is None or phone in self._stopped:
            return None
        return scene_of(self.settings, phone, self.turn_of(phone))

    def next_stranger(self) -> tuple[str, Scene] | None:
        """The next person who writes first, if anybody does."""
        if self.settings is None or not self.settings.strangers_per_hour:
            return None
        return stranger(self.settings, self.played[STRANGER])
