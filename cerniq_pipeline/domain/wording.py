"""The words of a reply, as a rule can compare them: folded, unquoted, and looked up by phrase.

People write "ȘTERGEȚI", "stergeti" and "ştergeţi" and mean the same; some hide a word behind
look-alike letters. Folding brings all of these to one form. Every step is linear in the length of
the text, because anybody may send us a text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Generic, TypeVar

Label = TypeVar("Label")

BREAK = "|"
"""Stands between two clauses; a folded word never holds it."""


def _pairs(look_alikes: str, letters: str) -> dict[int, str]:
    return {ord(one): letter for one, letter in zip(look_alikes, letters, strict=True)}


# Letters that look like a Latin one or, where none does, sound like one ("стоп", "στοπ").
_LATIN = {
    **_pairs("авекмнорстухіјѕԁԛԝһӏпиглдзбє", "abekmhopctyxijsdqwhlpigldzbe"),
    **_pairs("αβεζηικμνορτυχσπω", "abezhikmnoptyxspw"),
    **_pairs("ıłøđħŧ", "ilodht"),
    **_pairs("ᴀʙᴄᴅᴇꜰɢʜɪᴊᴋʟᴍɴᴏᴘʀꜱᴛᴜᴠᴡʏᴢ", "abcdefghijklmnoprstuvwyz"),
    # White letters on a black disc or square are symbols without a letter behind them.
    **{0x1F150 + n: chr(ord("a") + n) for n in range(26)},
    **{0x1F170 + n: chr(ord("a") + n) for n in range(26)},
}
_MARKS = frozenset({"Mn", "Me", "Mc", "Cf"})
_BLANK_LETTERS = frozenset("\u115f\u1160\u3164\uffa0")
_NO_LETTERS = re.compile(r"[\W_]+")
_REPEATED = re.compile(r"([^\W\d_])\1+")
_SPELLED_OUT = re.compile(r"\b(?:[^\W\d_] ){3,}[^\W\d_]\b")
_CLAUSE_END = re.compile(r"[.!?,;:…()\"„”“](?=\s|$)|[\r\n]|\s[-–—](?=\s)")
# Marks of direction and width that may stand between a comma and the space after it.
_INVISIBLE = re.compile("[\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]+")
_WORD = re.compile(r"[^ |]+")


def fold(text: str) -> str:
    """The text in its plainest form: small Latin or Hebrew letters, digits, single spaces.

    Accents, niqqud, invisible marks and punctuation go; look-alike letters become Latin ones; a
    letter that is repeated stands once ("STOOPP" is "stop", and "copii" is "copi" on both sides of
    a comparison); letters that stand apart are a word ("S.T.O.P."); "tz" is the "ț" of a chat.
    """
    if text.isascii():
        plain = text.lower()
    else:
        plain = unicodedata.normalize("NFKD", text).casefold()
        plain = unicodedata.normalize("NFKD", plain).casefold().translate(_LATIN)
        plain = "".join(
            letter
            for letter in plain
            if letter.isascii()
            or (unicodedata.category(letter) not in _MARKS and letter not in _BLANK_LETTERS)
        )
    plain = _NO_LETTERS.sub(" ", plain).strip()
    plain = _REPEATED.sub(r"\1", plain).replace("tz", "t")
    plain = _SPELLED_OUT.sub(lambda found: found[0].replace(" ", ""), plain)
    return _REPEATED.sub(r"\1", plain.replace("tz", "t"))


def words(text: str) -> list[str]:
    """The folded words of a text, in their order."""
    return fold(text).split()


def clauses(text: str) -> list[str]:
    """The folded parts of a text between its commas, stops and line ends; none is empty."""
    seen = _INVISIBLE.sub("", text)
    return [folded for part in _CLAUSE_END.split(seen) if (folded := fold(part))]


_QUOTED_LINE = re.compile(r"\s*(?:>|&gt;)")
_WROTE = re.compile(r"\b(?:wrote|a [eé]crit|a scris|כתב|כתבה)\b", re.IGNORECASE)
_WHEN = re.compile(r"\s*(?:on|le|la|in|în|pe|בתאריך|ביום)\b|\d\d:\d\d|\d{4}", re.IGNORECASE)
_RULE = re.compile(
    r"\s*(?:_{10}|-{2,20}\s*(?:original message|forwarded message|mesaj(?:ul)? original"
    r"|mesaj(?:ul)? ini[tțţ]ial|mesaj redirec[tțţ]ionat|message d.origine|message original"
    r"|message transf[eé]r[eé]|הודעה מקורית))",
    re.IGNORECASE,
)
_HEADER_FIELD = re.compile(
    r"\s*\*?(?:from|de la|expeditor|de|מאת|sent|trimis|envoy[eé]|נשלח)\s*:\*?\s", re.IGNORECASE
)
_SIGNATURE = re.compile(
    r"(?:--|__)\s*$"
    r"|\s*(?:sent from (?:my|outlook|mail)"
    r"|trimis (?:de pe|din|cu) (?:\w+ul (?:meu|mobil)|iphone|ipad|android|samsung|huawei|xiaomi"
    r"|telefon|mobil|outlook|mail|yahoo|gmail|proton|aplica|dispozitiv)"
    r"|envoy[eé] de(?:puis)? mon"
    r"|get outlook for|נשלח מה)",
    re.IGNORECASE,
)
_LONGEST_HEADER = 400


def own_words(text: str) -> str:
    """What the writer added: the text without quoted messages and without a signature.

    An answer may stand above or below what it quotes. Only a header that is not followed by marked
    lines ends the text, because then nothing tells the quoted lines from new ones.
    """
    lines = text.splitlines()
    kept: list[str] = []
    place = 0
    while place < len(lines):
        line = lines[place]
        if _QUOTED_LINE.match(line):
            place += 1
            continue
        if len(line) <= _LONGEST_HEADER:
            if _SIGNATURE.match(line):
                place = _next_quote(lines, place + 1)
                continue
            header = _header_length(lines, place)
            if header:
                place += header
                while place < len(lines) and not lines[place].strip():
                    place += 1
                if place < len(lines) and not _QUOTED_LINE.match(lines[place]):
                    break
                continue
        kept.append(line)
        place += 1
    return "\n".join(kept).strip()


def _next_quote(lines: list[str], place: int) -> int:
    """Where the first quoted line after a signature is, or the end: an answer may follow it."""
    while place < len(lines) and not _QUOTED_LINE.match(lines[place]):
        place += 1
    return place


def _header_length(lines: list[str], place: int) -> int:
    """How many lines from here are the header of a quoted message; 0 when none is."""
    line = lines[place]
    if _RULE.match(line) or _says_who_wrote(line):
        return 1
    if place + 1 < len(lines) and len(lines[place + 1]) <= _LONGEST_HEADER:
        following = lines[place + 1]
        # Mail programs break a long "On …, … <…> wrote:" into two lines.
        if _WHEN.match(line) and _says_who_wrote(f"{line} {following}"):
            return 2
        if _HEADER_FIELD.match(line) and _HEADER_FIELD.match(following):
            return 2
    return 0


def _says_who_wrote(line: str) -> bool:
    return bool(line.rstrip().endswith(":") and _WROTE.search(line) and _WHEN.search(line))


@dataclass(frozen=True)
class Found(Generic[Label]):
    """A phrase that was found: its label, its folded words, and where they stand."""

    label: Label
    words: str
    start: int
    end: int


class Phrasebook(Generic[Label]):
    """Phrases that are looked up by word and never inside one.

    A phrase is a line of elements: `word`; `stem*` for any ending and, but
    for the first word, `*ending`; `this|that` for a choice;
    `[word]` for one that may be missing; `...` for up to four words of any kind; `..` for as many
    that stay in one clause; and a last `$` for the end of a clause. But for `..`, a phrase may run
    over the end of a clause, so that a comma more or less changes nothing.
    """

    def __init__(self, phrases: Iterable[tuple[str, Label]]) -> None:
        self._by_word: dict[str, list[tuple[str, Label]]] = {}
        self._by_stem: dict[str, list[tuple[str, Label]]] = {}
        for phrase, label in phrases:
            for each in set(phrase.split()[0].split("|")):
                if each.endswith("*"):
                    self._by_stem.setdefault(_choice(each)[:3], []).append((phrase, label))
                else:
                    self._by_word.setdefault(_choice(each), []).append((phrase, label))

    def find(self, marked: str) -> Iterator[Found[Label]]:
        """Every phrase in clauses that were joined with `BREAK`, in the order of the text."""
        for word in _WORD.finditer(marked):
            opening = word[0]
            for phrase, label in (
                *self._by_word.get(opening, ()),
                *self._by_stem.get(opening[:3], ()),
            ):
                found = _pattern(phrase).match(marked, word.start())
                if found:
                    spoken = found[0].replace(f" {BREAK}", "").strip()
                    yield Found(label, spoken, found.start(), found.end())


def phrases(table: str) -> list[str]:
    """The phrases of a table, one a line; a line that ends with `|` goes on in the next."""
    return [line.strip() for line in _GOES_ON.sub("|", table).splitlines() if line.strip()]


def joined(parts: Iterable[str]) -> str:
    """Clauses as one line for `Phrasebook.find`."""
    return f" {BREAK} ".join(parts)


_GOES_ON = re.compile(r"\|\n +")
_BETWEEN = r" (?:\| )?"


def _choice(written: str) -> str:
    return fold(written.strip("*"))


def _element(written: str) -> str:
    choices = (
        (r"\w*" if each.startswith("*") else "")
        + _choice(each)
        + (r"\w*" if each.endswith("*") else "")
        for each in written.split("|")
    )
    return f"(?:{'|'.join(choices)})(?![^ ])"


@cache
def _pattern(phrase: str) -> re.Pattern[str]:
    """The compiled phrase, when a text first has its opening word.

    There are hundreds: all at once they would cost every process a good part of its start.
    """
    return re.compile(_as_regex(phrase))


def _as_regex(phrase: str) -> str:
    """The regular expression of a phrase; gaps are bounded, so that no text makes it slow."""
    regex = ""
    ending = ""
    elements = phrase.split()
    if elements[-1] == "$":
        elements.pop()
        ending = r"(?= \||$)"
    for place, element in enumerate(elements):
        last = place == len(elements) - 1
        if element == "...":
            regex += rf"(?:\w+{_BETWEEN}){{0,4}}?"
        elif element == "..":
            regex += r"(?:\w+ ){0,4}?"
        elif element.startswith("["):
            regex += f"(?:{_element(element[1:-1])}{_BETWEEN})?"
        else:
            regex += _element(element) + ("" if last else _BETWEEN)
    return regex + ending
