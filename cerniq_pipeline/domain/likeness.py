"""How alike two texts are: a phone that says the same thing all day is taken for a machine."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from itertools import pairwise

ALIKE = 0.6
"""From this share of common word pairs on, two texts count as the same text. One text with only the
names changed shares 0.7 to 0.9 of its pairs, two renderings of a varied template 0.3 to 0.5."""

MOST_ALIKE = 0.8
"""A text is too much when this share of the last ones were the same."""

WINDOW = timedelta(hours=24)

_WORD = re.compile(r"\w+")


def likeness(one: str, other: str) -> float:
    """The share of neighbouring word pairs that two texts have in common, 0 to 1."""
    pairs, others = _pairs(one), _pairs(other)
    if not pairs or not others:
        return 1.0 if one.strip().casefold() == other.strip().casefold() else 0.0
    return len(pairs & others) / len(pairs | others)


def too_alike(text: str, last: Sequence[str], *, window: int) -> bool:
    """Whether the last `window` texts of a phone leave no room for one more like them.

    With fewer texts than that there is nothing to judge by; a window of 0 turns the guard off.
    """
    if window == 0 or len(last) < window:
        return False
    same = sum(likeness(text, before) >= ALIKE for before in last[:window])
    return same >= MOST_ALIKE * window


def _pairs(text: str) -> set[tuple[str, str]]:
    words = _WORD.findall(text.casefold())
    return set(pairwise(words))
