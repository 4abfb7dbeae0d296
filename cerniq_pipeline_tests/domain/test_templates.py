from __future__ import annotations

import itertools
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cerniq_pipeline.domain.templates import (
    EXACT_UP_TO,
    MAX_DEPTH,
    Problem,
    escape,
    looks_unresolved,
    mentions_url,
    parse,
    problems,
    render,
)
from cerniq_pipeline.errors import MissingVariable, TemplateError

SEEDS = [f"lead-{n}" for n in range(60)]

# Payloads of other template languages and of ours; as lead data, all of them are only letters.
HOSTILE = [
    "{a|b}",
    "{{x}}",
    "{{companie}}",
    "{{7*7}}",
    "{% for a in b %}",
    "${x}",
    "\\{",
    "\\",
    "a|b",
    "}",
    "{",
    "<%= 1 %>",
    "%s %(x)s",
    "\\1\\g<0>",
]


def every_text(source: str, **values: str | None) -> set[str]:
    return {render(parse(source), values, seed=seed) for seed in SEEDS}


def codes(found: tuple[Problem, ...]) -> list[str]:
    return [problem.code for problem in found]


# ------------------------------------------------------------------------------ spintax and escapes


@pytest.mark.parametrize(
    ("source", "texts"),
    [
        ("Salut", {"Salut"}),
        ("{a|b}", {"a", "b"}),
        ("{a|b{c|d}}", {"a", "bc", "bd"}),
        ("{a|b|c} {d|e}", {"a d", "a e", "b d", "b e", "c d", "c e"}),
        ("{{a|b}|c}", {"a", "b", "c"}),
        (r"\{a\|b\}", {"{a|b}"}),
        (r"C:\\temp", {r"C:\temp"}),
        ("da | nu", {"da | nu"}),
        ("{a|}b", {"ab", "b"}),
        ("{|}x", {"x"}),
        ("", {""}),
        ("prima\r\na doua", {"prima\na doua"}),
    ],
)
def test_a_template_gives_exactly_the_texts_it_describes(source, texts):
    assert every_text(source) == texts


@pytest.mark.parametrize(
    ("source", "line", "column", "says"),
    [
        ("{a|b", 1, 1, "never closed"),
        ("ab\nc {a|{b|c}", 2, 3, "never closed"),
        ("a}", 1, 2, "closes nothing"),
        ("{a|b}}", 1, 6, "closes nothing"),
        ("{companie}", 1, 1, "{{companie}}"),
        ("x {{ companie }}", 1, 4, "{{companie}}"),
        ("{{nume|client}}", 1, 1, "{{nume:client}}"),
        ("{}", 1, 1, "two alternatives"),
        ("{{7*7}}", 1, 2, "two alternatives"),
        ("{{x:a|b}}", 1, 6, r"\|"),
        ("{{x:a{b}}", 1, 6, r"\{"),
        ("{{x:a}b}}", 1, 6, r"\}"),
        ("{{x:abc", 1, 1, "never closed"),
        ("{{Ora: 9|10}|azi}", 1, 9, "plain text"),  # a name and a colon make it a variable
        ("{{x", 1, 2, "never closed"),
        ("rând\\nou", 1, 5, "backslash"),
        ("{{x:a\\n}}", 1, 6, "backslash"),
        ("final\\", 1, 6, "backslash"),
        ("{" * (MAX_DEPTH + 1), 1, MAX_DEPTH + 1, "nested"),
    ],
)
def test_an_error_says_what_is_wrong_and_where(source, line, column, says):
    with pytest.raises(TemplateError) as caught:
        parse(source)
    assert (caught.value.line, caught.value.column) == (line, column)
    assert says in caught.value.message


def test_groups_may_nest_to_the_limit():
    source = "{a|" * MAX_DEPTH + "b" + "}" * MAX_DEPTH
    assert parse(source).variants == 2


def test_a_template_is_equal_and_hashed_by_its_source():
    assert parse("{a|b}") == parse("{a|b}")
    assert len({parse("{a|b}"), parse("{a|b}"), parse("{a|c}")}) == 2


# --------------------------------------------------------------------------------- variables


def test_variables_and_required_ones_are_known_before_rendering():
    template = parse("{{salut}} {x {{nume:}}|{{companie:firma}}} {{nume}}")
    assert template.variables == {"salut", "nume", "companie"}
    assert template.required == {"salut", "nume"}


@pytest.mark.parametrize("blank", [None, "", "  ", "\n\t", "\u200b", "\u00a0", "\x00"])
def test_a_blank_value_is_a_missing_value(blank):
    assert render(parse("La {{companie:firma}}"), {"companie": blank}, seed="s") == "La firma"
    with pytest.raises(MissingVariable):
        render(parse("La {{companie}}"), {"companie": blank}, seed="s")


def test_all_missing_variables_are_named_once_and_in_order():
    template = parse("{{c}} {{a}} {{b:}} {{c}} {{d}}")
    with pytest.raises(MissingVariable) as caught:
        render(template, {"d": "da"}, seed="s")
    assert caught.value.names == ("c", "a")


def test_a_variable_matters_only_in_the_branch_that_is_taken():
    template = parse("{da|{{nume}}}")
    outcomes = set()
    for seed in SEEDS:
        try:
            outcomes.add(render(template, {}, seed=seed))
        except MissingVariable as error:
            outcomes.add(error.names)
    assert outcomes == {"da", ("nume",)}


@pytest.mark.parametrize("value", HOSTILE)
def test_lead_data_is_never_read_as_a_template(value):
    text = render(parse("a {{x}} b"), {"x": value, "companie": "secret", "y": "z"}, seed="s")
    assert text == f"a {value} b"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("Bună ziua, {{e:}}!", "Bună ziua!"),
        ("Bună ziua {{e:}}!", "Bună ziua!"),
        ("Bună ziua, {{e:}}, vă scriu", "Bună ziua, vă scriu"),
        ("Bună ziua{{e:}}, vă scriu", "Bună ziua, vă scriu"),
        ("unu {{e:}} doi", "unu doi"),
        ("unu {{e:}} {{e:}} doi", "unu doi"),
        ("unu {{e:}} {{v}} doi", "unu V doi"),
        ("{{v}} {{e:}} {{v}}", "V V"),
        ("{{v}} {{e:}}!", "V!"),
        ("{{v}} {{e:}} {{e:}} , doi", "V, doi"),
        ("{{e:}}, bună ziua", "bună ziua"),
        (" {{e:}}, bună ziua", "bună ziua"),
        ("{{e:}} unu", "unu"),
        ("unu {{e:}}", "unu"),
        ("Salut. {{e:}}. Vă scriu", "Salut. Vă scriu"),
        ("unu ({{e:}} doi)", "unu (doi)"),
        ("unu (doi {{e:}})", "unu (doi)"),
        ("unu\n{{e:}}\ndoi", "unu\ndoi"),
        ("unu\n\n{{e:}}\n\ndoi", "unu\n\ndoi"),
        ("unu {{e:}}\ndoi", "unu\ndoi"),
        ("Bună ziua, {{e:}}\nVă scriu", "Bună ziua,\nVă scriu"),
        ("unu {{e:}}: doi", "unu: doi"),
        ("unu {{e:}} :)", "unu :)"),
        ("unu {{e: }}doi", "unu doi"),
        ("unu{{e: }}doi", "unu doi"),
        ("unu{{e: }}, doi", "unu, doi"),
        ("unu  doi !", "unu  doi !"),  # what the author wrote stays
    ],
)
def test_an_empty_default_leaves_no_trace(source, expected):
    assert render(parse(source), {"v": "V"}, seed="s") == expected


def test_an_empty_alternative_leaves_no_trace():
    assert every_text("unu {foarte|} bun {azi|}.") == {
        "unu foarte bun azi.",
        "unu foarte bun.",
        "unu bun azi.",
        "unu bun.",
    }


def test_tidying_never_touches_a_value():
    values = {"v": "A ,  B,", "w": ", C"}
    assert render(parse("{{v}} {{e:}}! {{e:}}{{w}}"), values, seed="s") == "A ,  B,! , C"


def test_the_text_is_composed_and_has_comma_below_letters():
    decomposed = "s\u0327i t\u0327ara a\u0306"
    text = render(parse("Bunã şi ţară {{x}}"), {"x": decomposed}, seed="s")
    assert text == "Bunã și țară și țara ă"


# ------------------------------------------------------------------------------------ the choice


def test_the_choice_never_changes_between_runs_machines_and_versions():
    template = parse("{a|b|c|d|e|f|g} {h|i|j|k|l} {m|n{o|p|q|r}} {s|t|u}{v|w}")
    texts = [render(template, {}, seed=f"lead-{n}") for n in range(4)]
    assert texts == ["g i np sv", "e k np sv", "g i nr tv", "d j np tw"]


def test_every_alternative_is_taken_about_equally_often():
    template = parse("{a|b|c|d}")
    taken = [render(template, {}, seed=f"lead-{n}") for n in range(4000)]
    assert all(900 < taken.count(letter) < 1100 for letter in "abcd")


# ------------------------------------------------------------------------------------- variants


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("", 1),
        ("a", 1),
        ("{a|b}", 2),
        ("{a|a}", 1),
        ("{a|b|a}{c|c}", 2),
        ("{a|{a|b}}", 2),
        ("{a|b{c|d}}", 3),
        ("{ab|a}{c|bc}", 3),  # "abc" can be written in two ways
        ("{|a}{|a}", 3),
        ("a {|b} {|b} c", 3),  # equal once the double space is tidied
        ("{{{x}}|{{y}}}", 2),
        ("{{{x}}|{{x:}}}", 2),
        ("{{{x}}|{{x}}}", 1),
        (r"{\||b}", 2),
        ("{ş|ș}", 1),
    ],
)
def test_equal_texts_count_once(source, count):
    assert parse(source).variants == count


def test_the_count_is_exact_up_to_a_limit_and_an_upper_bound_above():
    assert parse("{a|b}{a|b}{a|b}").variants == 2**3
    assert EXACT_UP_TO < parse("{a|b|b}" * 30).variants == 2**30


def test_a_huge_template_is_counted_without_being_expanded():
    assert parse("{a|b|c}" * 5000).variants == 3**5000


# ------------------------------------------------------------------------------------- problems


def found_in(source: str, *, first_message: bool = True, **options: int) -> tuple[Problem, ...]:
    return problems(source, known={"companie", "judet"}, first_message=first_message, **options)


@pytest.mark.parametrize(
    ("source", "code", "line", "column"),
    [
        ("", "empty", 1, 1),
        ("  \n", "empty", 1, 1),
        ("{{companie:}}", "empty", 1, 1),
        ("{Bună ziua|}", "empty", 1, 1),
        ("a {b|c", "syntax", 1, 3),
        ("a\n{{companei}}", "unknown_variable", 2, 1),
        ("{a|b {{necunoscut:x}}}", "unknown_variable", 1, 6),
        ("a\x07b", "control_character", 1, 2),
        ("a\u202eb", "control_character", 1, 2),
        ("a\u200bb", "control_character", 1, 2),
        ("a\ud800b", "control_character", 1, 2),
        ("a\rb", "control_character", 1, 2),
        ("vedeți firma.ro", "url_in_first_message", 1, 8),
        (r"\{\} firma.ro", "url_in_first_message", 1, 6),
        ("{da|vedeți\nwww.x.y}", "url_in_first_message", 2, 1),
        ("{{companie:firma.ro}}", "url_in_first_message", 1, 1),
        ("a {{companie}}.ro", "url_in_first_message", 1, 3),
        ("a firma{.ro|.com} b", "url_in_first_message", 1, 3),
        ("a {firma|ferma}.{{judet:ro}}", "url_in_first_message", 1, 3),
        ("{a {b|c {d|wa.me/40}}|e}", "url_in_first_message", 1, 12),
        ("{a|b} " * 40 + "firma{.ro|!}", "url_in_first_message", 1, 241),
        ("Bună [[nume]]", "looks_unresolved", 1, 1),
        (r"Bună \{a\|b\}", "looks_unresolved", 1, 1),
    ],
)
def test_a_problem_has_a_code_and_a_place(source, code, line, column):
    assert [(p.code, p.line, p.column) for p in found_in(source)] == [(code, line, column)]


@pytest.mark.parametrize(
    ("name", "meant"),
    [("companei", "companie"), ("Companie", "companie"), ("județ", "judet"), ("JUDET", "judet")],
)
def test_an_unknown_variable_comes_with_a_suggestion(name, meant):
    (problem,) = found_in(f"a {{{{{name}}}}}")
    assert f"did you mean {{{{{meant}}}}}?" in problem.message


def test_no_suggestion_is_better_than_a_silly_one():
    (problem,) = found_in("a {{qqqq}}")
    assert "did you mean" not in problem.message


def test_a_follow_up_may_carry_an_address():
    assert found_in("vedeți https://firma.ro", first_message=False) == ()


def test_the_longest_text_counts_with_defaults_and_without_values():
    source = "{a|bb{c|ddd}} {{companie}}{{judet:1234}}"
    assert found_in(source, max_length=10) == ()
    assert codes(found_in(source, max_length=9)) == ["too_long"]
    assert "10 characters" in found_in(source, max_length=9)[0].message


def test_too_few_distinct_texts_are_a_problem():
    assert found_in("{a|b}", min_variants=2) == ()
    assert codes(found_in("{a|b|b}", min_variants=3)) == ["too_few_variants"]


def test_all_problems_are_reported_in_reading_order():
    source = "{{unu}}\nfirma.ro\x00\n{{doi}}"
    assert [(p.code, p.line) for p in found_in(source)] == [
        ("unknown_variable", 1),
        ("url_in_first_message", 2),
        ("control_character", 2),
        ("unknown_variable", 3),
    ]


# --------------------------------------------------------------------------------- web addresses


@pytest.mark.parametrize(
    "text",
    [
        "http://x",
        "vedeți HTTPS://firma.ro/oferta",
        "ftp://x",
        "www.firma",
        "WWW.FIRMA.RO",
        "firma.ro",
        "Firma.Ro",
        "FIRMA.RO",
        "Ionescu.ro SRL",
        "SC IONESCU.RO SRL",
        "(firma.ro)",
        "„firma.ro”",
        "la firma.ro.",
        "firma.ro/oferta?x=1",
        "sub.firma-mea.com.ro",
        "wa.me/40722123456",
        "WA.ME/40722",
        "t.me/agro",
        "bit.ly/abc",
        "agro.eu",
        "AGRO.EU",
        "Agro.Eu/oferta",
        "agro.shop",
        "ion@firma.ro",
        "știri.ro",
        "firma。ro",
        "firma.\u200bro",
        "ｆｉｒｍａ．ｒｏ",
        "firma.xn--p1ai",
        "a,firma.ro;b",
        "art.ro",
        "PROD.COM",
    ],
)
def test_what_a_phone_would_make_a_link_is_an_address(text):
    assert mentions_url(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "S.R.L.",
        "Exemplu S.R.L. și Altul S.A.",
        "P.F.A. Ion I.I. Vasile",
        "dvs.",
        "dvs. și d-voastră...",
        "nr.5",
        "str.Mihai nr.10 bl.A2 sc.B et.3 ap.14",
        "com.Voinești, jud.IS",
        "JUD.IS",
        "nr.tel 0722",
        "etc.la",
        "10.000",
        "1.250.000,50 lei",
        "10.30",
        "12.03.2024",
        "9 a.m. - 5 p.m.",
        "9 a.m.la sediu",
        "ora 10.la sediu",
        "Bună ziua.Sunt Ion",
        "Bună ziua.La revedere",
        "Mulțumesc.Eu sunt Ion",
        "dr.ing.Popescu",
        "ş.a.m.d.",
        "E.ON",
        "oferta.pdf",
        "ceva...altceva",
        "și/sau",
        "a . ro",
        "v2.0",
        "romania",
        "comunicare",
    ],
)
def test_ordinary_romanian_text_is_no_address(text):
    assert not mentions_url(text)


def test_an_address_in_a_value_is_seen_in_the_finished_text():
    template = parse("Bună ziua, {{companie}}!")
    assert problems(template.source, known={"companie"}, first_message=True) == ()
    assert mentions_url(render(template, {"companie": "Ionescu.ro SRL"}, seed="s"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Bună ziua", False),
        ("a | b", False),
        ("{a}", False),
        ("} a | b {", False),
        ("[a]", False),
        ("{{x", True),
        ("x}}", True),
        ("[[nume]]", True),
        ("{a|b}", True),
        ("{a\n|b}", True),
        ("{a {b} | c}", True),
    ],
)
def test_left_over_markup_is_noticed(text, expected):
    assert looks_unresolved(text) is expected


# ------------------------------------------------------------------------------------ properties

Tree = str | list["Tree"] | tuple["Tree", ...]  # a text, a sequence, a choice

anything = st.text(max_size=30)
seen = anything.filter(lambda text: any(c.isprintable() and not c.isspace() for c in text))
letters = st.text(alphabet="ab", max_size=2)
sentences = st.text(alphabet="abcșț ,.!?-()\\\n", max_size=6)
variables = st.sampled_from(["{{x}}", "{{y}}", "{{x:}}", "{{y:gol}}", "{{z: , }}"])
markup = st.text(alphabet="{}|\\:ax \n[.", max_size=40)


def trees(leaves: st.SearchStrategy[str]) -> st.SearchStrategy[Tree]:
    def branch(inner: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
        sequences = st.lists(inner, max_size=3)
        return sequences | st.lists(sequences, min_size=2, max_size=3).map(tuple)

    return st.recursive(leaves, branch, max_leaves=8)


def source_of(tree: Tree) -> str:
    if isinstance(tree, str):
        return tree
    inner = map(source_of, tree)
    return "".join(inner) if isinstance(tree, list) else "{" + "|".join(inner) + "}"


def brute_force(tree: Tree) -> list[str]:
    if isinstance(tree, str):
        return [tree]
    if isinstance(tree, tuple):
        return [text for alternative in tree for text in brute_force(alternative)]
    return ["".join(texts) for texts in itertools.product(*map(brute_force, tree))]


def finished(text: str) -> str:
    composed = unicodedata.normalize("NFC", text)
    return composed.translate(str.maketrans("şţŞŢ", "șțȘȚ")).strip()


def syntax_error(text: str) -> TemplateError | None:
    try:
        parse(text)
    except TemplateError as error:
        return error
    return None


@given(tree=trees(letters), seed=anything)
def test_a_tree_has_as_many_variants_as_brute_force_finds(tree, seed):
    texts = set(brute_force(tree))
    template = parse(source_of(tree))
    assert template.variants == len(texts)
    assert render(template, {}, seed=seed) in texts


@given(tree=trees(sentences.map(escape) | variables), x=seen, y=seen, z=anything, seed=anything)
def test_rendering_is_deterministic_per_seed(tree, x, y, z, seed):
    values = {"x": x, "y": y, "z": z}
    first = render(parse(source_of(tree)), values, seed=seed)
    parse.cache_clear()
    assert render(parse(source_of(tree)), values, seed=seed) == first


@given(
    tree=trees(sentences.map(escape) | variables),
    value=seen.filter(lambda text: not set(text) & set("{}[]")),
    seed=anything,
)
def test_a_rendered_text_never_looks_unresolved(tree, value, seed):
    text = render(parse(source_of(tree)), {"x": value, "y": value}, seed=seed)
    assert not looks_unresolved(text)


@given(text=anything | markup)
def test_an_escaped_text_prints_as_it_was(text):
    template = parse(escape(text))
    assert template.variants == 1
    assert render(template, {}, seed="s") == finished(text.replace("\r\n", "\n"))


@given(value=(seen | markup.filter(str.strip)))
def test_a_value_is_never_interpreted(value):
    text = render(parse("a {{x}} b"), {"x": value, "a": "secret"}, seed="s")
    assert text == finished(f"a {value.strip()} b")


@given(text=anything | markup)
def test_looking_for_problems_never_fails_and_agrees_with_the_parser(text):
    reported = [(p.line, p.column) for p in found_in(text) if p.code == "syntax"]
    error = syntax_error(text)
    assert reported == ([(error.line, error.column)] if error else [])
