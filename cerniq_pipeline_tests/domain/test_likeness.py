"""A phone that says the same all day stops; one that varies goes on."""

from __future__ import annotations

import pytest

from cerniq_pipeline.domain.likeness import ALIKE, likeness, too_alike

ONE = "Bună ziua, Agro Vest! Facem service la utilaje agricole în județul Timiș. Vă interesează?"
NAME_CHANGED = ONE.replace("Agro Vest", "Prod Sud")
OTHER = "Salut! Am văzut că aveți tractoare mai vechi. Putem trece pe la dumneavoastră luni?"


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        (ONE, ONE, True),
        (ONE, ONE.upper() + "!!", True),
        (ONE, NAME_CHANGED, True),
        (ONE, OTHER, False),
        ("Da", "da", True),
        ("Da", "Nu", False),
        ("", "", True),
        ("", ONE, False),
    ],
)
def test_two_texts_are_alike_by_their_neighbouring_words(one: str, other: str, alike: bool):
    assert (likeness(one, other) >= ALIKE) == alike
    assert likeness(one, other) == likeness(other, one)


@pytest.mark.parametrize(
    ("last", "window", "refused"),
    [
        ([ONE] * 10, 10, True),
        ([ONE] * 8 + [OTHER] * 2, 10, True),
        ([ONE] * 7 + [OTHER] * 3, 10, False),
        ([ONE] * 9, 10, False),  # too few to judge by
        ([OTHER] * 2 + [ONE] * 20, 2, False),  # only the last ones count
        ([ONE] * 10, 0, False),  # turned off
        ([], 10, False),
    ],
)
def test_a_text_is_refused_when_most_of_the_last_ones_were_the_same(
    last: list[str], window: int, refused: bool
):
    assert too_alike(ONE, last, window=window) == refused
