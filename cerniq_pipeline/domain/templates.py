r"""Message templates: spintax, variables, and every check before a text may leave.

What an author may write
    {a|b{c|d}}          one of the alternatives, nested up to 20 deep; an alternative may be empty;
                        an alternative written twice is chosen twice as often
    {{name}}            a value of the lead; without it nothing is rendered (MissingVariable)
    {{name:default}}    the default stands in for a missing value; an empty default means nothing
    \{ \} \| \\         the character itself; a backslash before anything else is an error
    |                   outside of braces, plain text

`{{` opens a variable when a name and then `}}` or `:` follow; otherwise it is a group inside a
group. A group that begins with such a word ("{{Ora: 9|10}|azi}") is written in another order.

What is refused, because a lead would otherwise read our markup
    {name}, {{ name }}  a group with one alternative: always a mistyped variable
    {{name|default}}    the same; other tools write defaults so
    {{name:a|b}}        a default is plain text: braces and bars in it are escaped

A value is put in as it stands and never read as template text. Spaces and commas that an empty
value or an empty alternative leaves behind are tidied; a value itself is never changed, only
trimmed. The result is NFC with comma-below ș and ț.
"""

from __future__ import annotations

import difflib
import hashlib
import itertools
import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Literal, TypeAlias

from cerniq_pipeline.errors import MissingVariable, TemplateError

MAX_DEPTH = 20
LONGEST_MESSAGE = 2000
EXACT_UP_TO = 1000

Node: TypeAlias = "Text | Variable | Choice"
Nodes: TypeAlias = "tuple[Node, ...]"
Flat: TypeAlias = "tuple[str | Variable, ...]"  # one reading without choices; "" is a hole


@dataclass(frozen=True, slots=True)
class Text:
    """Plain text, escapes already resolved; never empty."""

    text: str
    at: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class Variable:
    """A value to fill in; a default of None means that the value is required."""

    name: str
    default: str | None
    at: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class Choice:
    """Alternatives of which one is taken."""

    alternatives: tuple[Nodes, ...]
    at: int = field(compare=False)


@dataclass(frozen=True)
class Template:
    """A template that parsed; equal and hashed by its source."""

    source: str
    nodes: Nodes = field(compare=False, repr=False)

    @cached_property
    def variables(self) -> frozenset[str]:
        """Names of all variables."""
        return frozenset(variable.name for variable in _variables(self.nodes))

    @cached_property
    def required(self) -> frozenset[str]:
        """Names of the variables that stand somewhere without a default."""
        return frozenset(v.name for v in _variables(self.nodes) if v.default is None)

    @cached_property
    def variants(self) -> int:
        """How many distinct texts the choices give, each variable taken as one value.

        Exact while there are at most EXACT_UP_TO readings; above that an upper bound (identical
        alternatives count once, but two ways to write the same sentence count twice).
        """
        readings = _readings(self.nodes)
        if readings is None:
            return _at_most(self.nodes)
        return len({_text_of(reading, _as_token) for reading in readings})


ProblemCode = Literal[
    "syntax",
    "control_character",
    "empty",
    "unknown_variable",
    "looks_unresolved",
    "url_in_first_message",
    "too_long",
    "too_few_variants",
]


@dataclass(frozen=True, slots=True)
class Problem:
    """One reason why a template may not be used, and where it is."""

    code: ProblemCode
    message: str
    line: int
    column: int


# ---------------------------------------------------------------------------------------- reading

_SPECIAL = re.compile(r"[\\{}|]")
_VARIABLE_START = re.compile(r"\{\{([^\W\d]\w*)(?=\}\}|:)")
_DEFAULT = re.compile(r":((?:[^\\{}|]|\\[\\{}|])*)")
_ESCAPED = re.compile(r"\\([\\{}|])")


def escape(text: str) -> str:
    """The template source that prints this text."""
    return _SPECIAL.sub(r"\\\g<0>", text)


@lru_cache(maxsize=512)
def parse(text: str) -> Template:
    """The template in this text, or a TemplateError that says where it is wrong."""
    source = text.replace("\r\n", "\n")
    return Template(source, _Reader(source).read())


class _Reader:
    """One pass over the source with a stack of open groups."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._sequence: list[Node] = []
        self._plain: list[str] = []
        self._plain_at = 0
        self._open: list[tuple[int, list[Nodes], list[Node]]] = []

    def read(self) -> Nodes:
        at = 0
        while found := _SPECIAL.search(self._source, at):
            self._add_plain(self._source[at : found.start()], at)
            at = self._take(found.start())
        self._add_plain(self._source[at:], at)
        if self._open:
            start = self._open[-1][0]
            hint = "; a variable is written {{name}}" if self._has("{{", start) else ""
            raise self._error(f"this '{{' is never closed{hint}", start)
        self._end_plain()
        return tuple(self._sequence)

    def _take(self, at: int) -> int:
        """Handle the special character at this place; the place after it."""
        special = self._source[at]
        if special == "\\":
            if not _ESCAPED.match(self._source, at):
                raise self._error("write \\\\ for a backslash; only { } | \\ are escaped", at)
            self._add_plain(self._source[at + 1], at)
            return at + 2
        if special == "|" and not self._open:
            self._add_plain("|", at)
            return at + 1
        if special == "{":
            if start := _VARIABLE_START.match(self._source, at):
                return self._take_variable(start)
            self._open_group(at)
        elif special == "|":
            self._end_alternative()
        else:
            self._close_group(at)
        return at + 1

    def _take_variable(self, start: re.Match[str]) -> int:
        at = start.end()
        default: str | None = None
        if matched := _DEFAULT.match(self._source, at):
            default = _ESCAPED.sub(r"\1", matched[1])
            at = matched.end()
            if not self._has("}}", at):
                raise self._bad_default(start, at)
        self._end_plain()
        self._sequence.append(Variable(start[1], default, start.start()))
        return at + 2

    def _bad_default(self, start: re.Match[str], at: int) -> TemplateError:
        if at == len(self._source):
            return self._error(f"the variable {start[1]} is never closed by '}}}}'", start.start())
        if self._source[at] == "\\":
            return self._error("write \\\\ for a backslash; only { } | \\ are escaped", at)
        found = self._source[at]
        return self._error(
            f"the default of {start[1]} is plain text: write \\{found} for '{found}'", at
        )

    def _open_group(self, at: int) -> None:
        if len(self._open) == MAX_DEPTH:
            raise self._error(f"groups are nested more than {MAX_DEPTH} deep", at)
        self._end_plain()
        self._open.append((at, [], self._sequence))
        self._sequence = []

    def _end_alternative(self) -> None:
        self._end_plain()
        self._open[-1][1].append(tuple(self._sequence))
        self._sequence = []

    def _close_group(self, at: int) -> None:
        if not self._open:
            raise self._error("this '}' closes nothing; write \\} for a plain brace", at)
        self._end_alternative()
        start, alternatives, self._sequence = self._open.pop()
        if len(alternatives) == 1:
            raise self._error(_single_alternative(self._source[start : at + 1]), start)
        self._sequence.append(Choice(tuple(alternatives), start))

    def _add_plain(self, text: str, at: int) -> None:
        if text and not self._plain:
            self._plain_at = at
        if text:
            self._plain.append(text)

    def _end_plain(self) -> None:
        if self._plain:
            self._sequence.append(Text("".join(self._plain), self._plain_at))
            self._plain = []

    def _has(self, text: str, at: int) -> bool:
        return self._source.startswith(text, at)

    def _error(self, message: str, at: int) -> TemplateError:
        line, column = _place(self._source, at)
        return TemplateError(message, line=line, column=column)


def _single_alternative(group: str) -> str:
    words = [word.strip() for word in group.strip("{}").split("|")]
    name = words[0] if words[0].isidentifier() else "name"
    if len(words) == 2 and group.startswith("{{"):
        return f"write {{{{{name}:{words[1]}}}}} for a variable with a default"
    return f"a group needs two alternatives: write {{{{{name}}}}} for a variable, \\{{ for a brace"


def _place(source: str, at: int) -> tuple[int, int]:
    """Line and column, both from 1."""
    return source.count("\n", 0, at) + 1, at - source.rfind("\n", 0, at)


# --------------------------------------------------------------------------------------- counting


def _variables(nodes: Nodes) -> Iterator[Variable]:
    for node in nodes:
        if isinstance(node, Variable):
            yield node
        elif isinstance(node, Choice):
            for alternative in node.alternatives:
                yield from _variables(alternative)


def _texts(nodes: Nodes) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, Text):
            yield node.text
        elif isinstance(node, Variable):
            yield node.default or ""
        else:
            for alternative in node.alternatives:
                yield from _texts(alternative)


def _readings(nodes: Nodes) -> set[Flat] | None:
    """Every reading of these nodes, or None when there are more than EXACT_UP_TO."""
    readings: set[Flat] = {()}
    for node in nodes:
        options = _options(node)
        if options is None or len(readings) * len(options) > EXACT_UP_TO:
            return None
        readings = {_then(left, right) for left in readings for right in options}
    return readings


def _options(node: Node) -> set[Flat] | None:
    if isinstance(node, Text):
        return {(node.text,)}
    if isinstance(node, Variable):
        return {(node,)}
    options: set[Flat] = set()
    for alternative in node.alternatives:
        readings = _readings(alternative)
        if readings is None:
            return None
        options |= {reading or ("",) for reading in readings}
    return options


def _then(left: Flat, right: Flat) -> Flat:
    """Both in a row; neighbouring texts become one, so that equal readings are equal."""
    if left and right and isinstance(left[-1], str) and isinstance(right[0], str):
        if left[-1] == right[0] == "":
            return left + right[1:]
        if left[-1] and right[0]:
            return (*left[:-1], left[-1] + right[0], *right[1:])
    return left + right


def _at_most(nodes: Nodes) -> int:
    count = 1
    for node in nodes:
        if isinstance(node, Choice):
            count *= sum(_at_most(alternative) for alternative in set(node.alternatives))
    return count


def _longest(nodes: Nodes) -> int:
    length = 0
    for node in nodes:
        if isinstance(node, Text):
            length += len(node.text)
        elif isinstance(node, Variable):
            length += len(node.default or "")
        else:
            length += max(_longest(alternative) for alternative in node.alternatives)
    return length


def _may_be_blank(nodes: Nodes) -> bool:
    for node in nodes:
        if isinstance(node, Text):
            blank = not node.text.strip()
        elif isinstance(node, Variable):
            blank = node.default is not None and _is_blank(node.default)
        else:
            blank = any(_may_be_blank(alternative) for alternative in node.alternatives)
        if not blank:
            return False
    return True


# -------------------------------------------------------------------------------------- rendering

_CEDILLA = str.maketrans("şţŞŢ", "șțȘȚ")
_BLANKS = " \t\u00a0"
_AFTER_HOLE = re.compile(r"[,.;!?)…\n]|:(?=\s|$)")


def render(template: Template, values: Mapping[str, str | None], *, seed: str) -> str:
    """The text for one lead; the same seed gives the same choices, everywhere and always.

    Raises MissingVariable with every name that the chosen branches need and the lead lacks.
    """
    chosen = tuple(_choose(template.nodes, _numbers(seed)))
    needed = (piece for piece in chosen if isinstance(piece, Variable) and piece.default is None)
    missing = dict.fromkeys(v.name for v in needed if _is_blank(values.get(v.name)))
    if missing:
        raise MissingVariable(tuple(missing))

    def fill(variable: Variable) -> tuple[str, bool]:
        value = values.get(variable.name)
        if value is None or _is_blank(value):
            return variable.default or "", True
        return value.strip(), False

    return _text_of(chosen, fill)


def _choose(nodes: Nodes, numbers: Iterator[int]) -> Iterator[str | Variable]:
    for node in nodes:
        if isinstance(node, Text):
            yield node.text
        elif isinstance(node, Variable):
            yield node
        else:
            alternative = node.alternatives[next(numbers) * len(node.alternatives) >> 64]
            yield from _choose(alternative, numbers) if alternative else ("",)


def _numbers(seed: str) -> Iterator[int]:
    """64-bit numbers that follow from the seed alone: `random` may change between versions."""
    key = seed.encode("utf-8", "surrogatepass")
    for block in itertools.count():
        digest = hashlib.sha256(block.to_bytes(8, "big") + key).digest()
        for start in range(0, len(digest), 8):
            yield int.from_bytes(digest[start : start + 8], "big")


def _is_blank(value: str | None) -> bool:
    """Nothing that a reader would see: also zero-width and control characters are nothing."""
    return value is None or not any(c.isprintable() and c != " " for c in value)


def _as_token(variable: Variable) -> tuple[str, bool]:
    """Stands for any value when texts are only compared; private-use characters keep it apart."""
    return f"\ue000{variable.name}\ue001{variable.default}\ue002", False


def _text_of(flat: Iterable[str | Variable], fill: Callable[[Variable], tuple[str, bool]]) -> str:
    """The finished text; `fill` says what stands for a variable and whether it is ours to tidy."""
    text = _join(_pieces(flat, fill))
    return unicodedata.normalize("NFC", text).translate(_CEDILLA).strip()


def _pieces(
    flat: Iterable[str | Variable], fill: Callable[[Variable], tuple[str, bool]]
) -> Iterator[tuple[str, bool]]:
    for piece in flat:
        text, ours = (piece, True) if isinstance(piece, str) else fill(piece)
        if isinstance(piece, Variable) and not text.strip():  # a default of spaces is tidied too
            yield "", True
            yield text, ours
            yield "", True
        else:
            yield text, ours


def _join(pieces: Iterable[tuple[str, bool]]) -> str:
    """All pieces in a row, without the traces that empty ones would leave in our own text."""
    done: list[tuple[str, bool]] = []
    hole = False
    for text, ours in pieces:
        kept = _close_hole(done, text) if hole and ours and text else text
        if not kept:
            hole = True
            continue
        hole = False
        if ours and done and done[-1][1]:
            done[-1] = (done[-1][0] + kept, True)
        else:
            done.append((kept, ours))
    return "".join(text for text, _ in done)


def _close_hole(done: list[tuple[str, bool]], text: str) -> str:
    """What remains of our text after a hole; may also shorten our text before it."""
    left, ours = done[-1] if done else ("\n", False)
    right = text.lstrip(_BLANKS)
    if left.endswith("\n"):
        breaks = len(right) - len(right.lstrip("\n"))
        if breaks:  # the line became empty: keep the wider of the two gaps, not their sum
            return right[min(breaks, len(left) - len(left.rstrip("\n"))) :]
        return right.lstrip(",;.!?").lstrip(_BLANKS)
    if _AFTER_HOLE.match(right):
        if ours:
            shorter = left.rstrip(_BLANKS)
            if right[0] not in ")\n":
                shorter = shorter.removesuffix(",").rstrip(_BLANKS)
            if not shorter:
                done.pop()
                return _close_hole(done, right)
            left = shorter
            done[-1] = (left, True)
        return right[1:] if left[-1] in ".!?;:" and right[0] in ",.;" else right
    return right if left[-1] in f"{_BLANKS}(„" else text


# ------------------------------------------------------------------------------------- validating

_WORD = re.compile(r"\S+|\s+")
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)


def problems(
    text: str,
    *,
    known: Collection[str],
    first_message: bool,
    max_length: int = 1000,
    min_variants: int = 1,
) -> tuple[Problem, ...]:
    """Everything that keeps this text from being used, in reading order; empty when it is fine.

    The length is that of the longest text with defaults and without values.
    """
    source = text.replace("\r\n", "\n")
    found = list(_hidden_characters(source))
    try:
        template = parse(text)
    except TemplateError as error:
        found.append(Problem("syntax", error.message, error.line, error.column))
    else:
        found += _unknown_variables(template, known)
        if first_message:
            found += _web_addresses(template)
        found += _whole_text(template, max_length=max_length, min_variants=min_variants)
    return tuple(sorted(found, key=lambda problem: (problem.line, problem.column)))


def fault(text: str | None, *, first_message: bool) -> Problem | None:
    """What makes this text unusable for every lead, or None.

    A variable that is unknown here may be a lead's own field, so it is judged lead by lead.
    """
    if text is None:
        return Problem("empty", "there is no text", 1, 1)
    found = problems(text, known=(), first_message=first_message, max_length=LONGEST_MESSAGE)
    return next((problem for problem in found if problem.code != "unknown_variable"), None)


def _hidden_characters(source: str) -> Iterator[Problem]:
    for match in _HIDDEN.finditer(source):
        message = f"an invisible character (U+{ord(match[0]):04X}) that no message needs"
        yield Problem("control_character", message, *_place(source, match.start()))


def _unknown_variables(template: Template, known: Collection[str]) -> Iterator[Problem]:
    names = {_plain_letters(name): name for name in sorted(known)}
    for variable in _variables(template.nodes):
        if variable.name in known:
            continue
        close = difflib.get_close_matches(_plain_letters(variable.name), names, n=1)
        hint = f"; did you mean {{{{{names[close[0]]}}}}}?" if close else ""
        message = f"there is no variable {variable.name}{hint}"
        yield Problem("unknown_variable", message, *_place(template.source, variable.at))


def _plain_letters(name: str) -> str:
    decomposed = unicodedata.normalize("NFD", name.lower())
    return "".join(c for c in decomposed if not unicodedata.combining(c))


def _web_addresses(template: Template) -> Iterator[Problem]:
    for at in _web_places(template.source, template.nodes):
        message = "a first message must not contain a web or e-mail address"
        yield Problem("url_in_first_message", message, *_place(template.source, at))


def _web_places(source: str, nodes: Nodes) -> Iterator[int]:
    """Where the words begin that hold an address in at least one reading.

    An address has no spaces, so only nodes that touch each other must be read together; that
    keeps the readings few, also when the whole template has millions. Where they are too many
    even so, the check of the finished text before a send remains.
    """
    for word in _touching(source, nodes):
        inside = [
            at
            for node in word
            if isinstance(node, Choice)
            for alternative in node.alternatives
            for at in _web_places(source, alternative)
        ]
        if inside:
            yield from inside
        elif any(map(mentions_url, _samples(_readings(word) or ()))):
            yield word[0].at


def _touching(source: str, nodes: Nodes) -> Iterator[Nodes]:
    word: list[Node] = []
    for node in nodes:
        for part in _parts(source, node):
            if isinstance(part, Text) and part.text.isspace():
                if word:
                    yield tuple(word)
                word = []
            else:
                word.append(part)
    if word:
        yield tuple(word)


def _parts(source: str, node: Node) -> Iterator[Node]:
    if not isinstance(node, Text):
        yield node
        return
    at = node.at
    for match in _WORD.finditer(node.text):
        yield Text(match[0], at)
        for _ in match[0]:
            at += 2 if source[at] == "\\" else 1


def _samples(readings: Iterable[Flat]) -> Iterator[str]:
    """Each reading with a value for every variable, and with every default."""
    for reading in readings:
        yield "".join(piece if isinstance(piece, str) else "xx" for piece in reading)
        yield "".join(p if isinstance(p, str) else p.default or "" for p in reading)


def _whole_text(template: Template, *, max_length: int, min_variants: int) -> Iterator[Problem]:
    length = _longest(template.nodes)
    if _may_be_blank(template.nodes):
        yield Problem("empty", "the text can come out empty", 1, 1)
    if looks_unresolved("".join(_texts(template.nodes))):
        message = "the text prints braces or [[ like an unfilled variable, which is never sent"
        yield Problem("looks_unresolved", message, 1, 1)
    if length > max_length:
        message = f"the longest text has {length} characters, {max_length} are allowed"
        yield Problem("too_long", message, 1, 1)
    if template.variants < min_variants:
        message = f"{template.variants} distinct texts, at least {min_variants} are needed"
        yield Problem("too_few_variants", message, 1, 1)


def looks_unresolved(text: str) -> bool:
    """Whether a text still shows template markup; the last check before a send."""
    if any(mark in text for mark in ("{{", "}}", "[[")):
        return True
    start, end = text.find("{"), text.rfind("}")
    return 0 <= start < end and "|" in text[start:end]


# ----------------------------------------------------------------------------------- web addresses


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Endings that count in any spelling: people write "Firma.Ro", and chat clients make it a link.
_COMMON_TLDS = frozenset({"ro", "md", "com", "net", "org", "info", "biz"})
_TLDS = _COMMON_TLDS | _words("""
    ac ad ae af ag ai al am ao aq ar as at au aw ax az ba bb bd be bf bg bh bi bj bm bn bo br bs bt
    bw by bz ca cc cd cf cg ch ci ck cl cm cn co cr cu cv cw cx cy cz de dj dk dm do dz ec ee eg er
    es et eu fi fj fk fm fo fr ga gd ge gf gg gh gi gl gm gn gp gq gr gs gt gu gw gy hk hm hn hr ht
    hu id ie il im in io iq ir is it je jm jo jp ke kg kh ki km kn kp kr kw ky kz la lb lc li lk lr
    ls lt lu lv ly ma mc me mg mh mk ml mm mn mo mp mq mr ms mt mu mv mw mx my mz na nc ne nf ng ni
    nl no np nr nu nz om pa pe pf pg ph pk pl pm pn pr ps pt pw py qa re rs ru rw sa sb sc sd se sg
    sh si sk sl sm sn so sr ss st su sv sx sy sz tc td tf tg th tj tk tl tm tn to tr tt tv tw tz ua
    ug uk us uy uz va vc ve vg vi vn vu wf ws ye yt za zm zw
    academy agency app art asia bank bar best bid bio blog business buzz cafe capital cards care
    cash center chat church city click clinic cloud club coach codes coffee community company
    computer construction consulting cool credit date deals delivery dental design dev digital
    direct directory dog earth edu education email energy engineering estate events exchange expert
    express family farm finance financial fit fun fund garden gift global gold gov group guide
    health help homes host hosting house icu industries institute insure international investments
    jobs land law legal life limited link live loan loans ltd management market marketing media
    mobi monster name network news ninja one online page partners parts photo photos pics plus
    press pro promo properties pub recipes rent rentals repair report rest restaurant review
    reviews rocks sale sales school science services shop shopping show site social software
    solar solutions space store studio style support systems team tech tel tools top tours town
    toys trade training travel university vip vision web website wiki win wine work works world
    wtf xyz zone
""")
_SHORT_HOSTS = frozenset({"t.me", "t.co", "t.ly", "m.me", "g.co", "x.ai", "v.gd", "j.mp", "s.id"})
# What stands before a dot in Romanian without a space after it: "jud.IS", "nr.tel", "etc.la".
_ABBREVIATIONS = _words("""
    al alin ap aprox art av bd bl cap cca com cod conf cpt dl dna dr dvs ec et etc ex fax ha ing
    jud lit loc max min mil mun nr op or pag pct prof sc sf str tel tlf univ
""")
_MARKED = re.compile(r"[a-z0-9]://|\bwww\d*\.", re.IGNORECASE)
_DOTTED = re.compile(r"(?<![\w-])(?:[\w-]+\.)+[\w-]+")
_DOTS = str.maketrans(
    dict.fromkeys("。｡", ".") | dict.fromkeys("\u00ad\u200b\u200c\u200d\u2060\ufeff")
)


def mentions_url(text: str) -> bool:
    """Whether a reader's phone would make a link of any part of this text.

    Marked addresses always count; bare names count when they end like a domain. A doubtful case
    counts, except for what Romanian texts are full of: S.R.L., dvs., nr.5, 10.000, a.m., jud.IS,
    and a missing space before a new sentence ("ziua.La").
    """
    text = unicodedata.normalize("NFKC", text).translate(_DOTS)
    if _MARKED.search(text):
        return True
    return any(_is_host(m[0], followed_by=text[m.end() :][:1]) for m in _DOTTED.finditer(text))


def _is_host(dotted: str, *, followed_by: str) -> bool:
    labels = dotted.split(".")
    return any(
        _ends_host(name, tld, path=followed_by == "/" and tld is labels[-1])
        for name, tld in itertools.pairwise(labels)
    )


def _ends_host(name: str, tld: str, *, path: bool) -> bool:
    ending = tld.lower()
    if ending.startswith("xn--"):
        return True
    if ending not in _TLDS:
        return False
    if path or ending in _COMMON_TLDS or f"{name}.{tld}".lower() in _SHORT_HOSTS:
        return True
    if len(name) == 1 or name.isdigit() or name.lower() in _ABBREVIATIONS:
        return False
    return tld.islower() or tld.isupper()
