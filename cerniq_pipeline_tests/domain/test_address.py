from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cerniq_pipeline.domain import address
from cerniq_pipeline.domain.address import (
    COUNTIES,
    ENGLISH_NAMES,
    KNOWN_VARIABLES,
    FormOfAddress,
    county_name,
    form_of_address,
    place_name,
    short_company_name,
    values_for,
)


@pytest.mark.parametrize(
    ("written", "first", "last", "salutation"),
    [
        ("Ion Popescu", "Ion", "Popescu", "domnule Popescu"),
        ("POPESCU Ion", "Ion", "Popescu", "domnule Popescu"),
        ("Ion POPESCU", "Ion", "Popescu", "domnule Popescu"),
        ("POPESCU ION", "Ion", "Popescu", "domnule Popescu"),
        ("popescu ion", "Ion", "Popescu", "domnule Popescu"),
        ("Popescu, Ion", "Ion", "Popescu", "domnule Popescu"),
        ("MARIN, RADU", "Radu", "Marin", "domnule Marin"),
        ("Ion-Andrei Popescu", "Ion-Andrei", "Popescu", "domnule Popescu"),
        ("Ion Andrei Popescu", "Ion Andrei", "Popescu", "domnule Popescu"),
        ("Popescu Ion Marin", "Ion Marin", "Popescu", "domnule Popescu"),
        ("ing. Maria Ionescu", "Maria", "Ionescu", "doamnă Ionescu"),
        ("Dr.ing. Maria Ionescu", "Maria", "Ionescu", "doamnă Ionescu"),
        ("ec. IONESCU MARIA-ELENA", "Maria-Elena", "Ionescu", "doamnă Ionescu"),
        ("dna. Maria Ionescu", "Maria", "Ionescu", "doamnă Ionescu"),
        ("ȘTEFĂNESCU ELENA", "Elena", "Ștefănescu", "doamnă Ștefănescu"),
        ("ŞTEFĂNESCU ELENA", "Elena", "Ștefănescu", "doamnă Ștefănescu"),
        ("STEFANESCU STEFAN", "Stefan", "Stefanescu", "domnule Stefanescu"),
        ("Ion Popescu-Tăriceanu", "Ion", "Popescu-Tăriceanu", "domnule Popescu-Tăriceanu"),
        ("ION POPESCU-TĂRICEANU", "Ion", "Popescu-Tăriceanu", "domnule Popescu-Tăriceanu"),
        ("Ion P. Popescu", "Ion", "Popescu", "domnule Popescu"),
        ("Popescu I. Ion", "Ion", "Popescu", "domnule Popescu"),
        ("Ion Popescu, administrator", "Ion", "Popescu", "domnule Popescu"),
        ("Ion Popescu - director general", "Ion", "Popescu", "domnule Popescu"),
        ("Ion Popescu (contabil)", "Ion", "Popescu", "domnule Popescu"),
        ("administrator Ion Popescu", "Ion", "Popescu", "domnule Popescu"),
        ("Radu Elena", "Elena", "Radu", "doamnă Radu"),
        ("Elena Radu", "Elena", "Radu", "doamnă Radu"),
        ("Stan Ioana Mihaela", "Ioana Mihaela", "Stan", "doamnă Stan"),
        ("Cristian Radu", "Cristian", "Radu", "domnule Radu"),
        ("Luca Popescu", "Luca", "Popescu", "domnule Popescu"),
        ("Mihnea Popa", "Mihnea", "Popa", "domnule Popa"),
        ("Horia Rusu", "Horia", "Rusu", "domnule Rusu"),
        ("Toma Ionescu", "Toma", "Ionescu", "domnule Ionescu"),
        ("Mircea Costea", "Mircea", "Costea", "domnule Costea"),
        ("Raluca Popa", "Raluca", "Popa", "doamnă Popa"),
        ("Xenofina Popescu", "Xenofina", "Popescu", "doamnă Popescu"),
        ("Szabó Zsolt", "Zsolt", "Szabó", "domnule Szabó"),
        ("Kovács Ildikó", "Ildikó", "Kovács", "doamnă Kovács"),
        ("Ion McDonald", "Ion", "McDonald", "domnule McDonald"),
        ("O'BRIEN John", "John", "O'Brien", "domnule O'Brien"),
    ],
)
def test_a_name_in_any_order_and_spelling_gives_the_polite_address(
    written, first, last, salutation
):
    person = form_of_address(written)
    assert (person.first_name, person.last_name) == (first, last)
    assert person.full_name == f"{first} {last}"
    assert person.salutation == salutation
    assert person.gender == ("m" if salutation.startswith("domnule") else "f")
    assert person.greeting == f"Bună ziua, {salutation}"


@pytest.mark.parametrize(
    ("written", "salutation"),
    [
        ("dl Popescu", "domnule Popescu"),
        ("D-na Ionescu", "doamnă Ionescu"),
        ("domnul Gigel", "domnule Gigel"),
        ("doamna Maria", "doamnă Maria"),
        ("dl. Zyx Abc", "domnule Zyx Abc"),
        ("dna Andrea Rossi", "doamnă Rossi"),
    ],
)
def test_a_title_tells_the_gender_where_the_name_does_not(written, salutation):
    assert form_of_address(written).salutation == salutation


def test_when_only_the_order_is_in_doubt_the_whole_name_is_used():
    person = form_of_address("Marin Radu")
    assert person.salutation == "domnule Marin Radu"
    assert (person.first_name, person.last_name, person.gender) == (None, None, "m")


@pytest.mark.parametrize(
    ("written", "first", "last"),
    [
        ("Andrea Rossi", "Andrea", "Rossi"),  # a man in Italy, a woman in Hungary
        ("Nicola Popescu", "Nicola", "Popescu"),
        ("Vasilica Pop", "Vasilica", "Pop"),
        ("Gigel Popescu", "Gigel", "Popescu"),
        ("Costea Popescu", None, None),
        ("Iona Popescu", "Iona", "Popescu"),
        ("Mina Popescu", "Mina", "Popescu"),
        ("Ion-Maria Popescu", "Ion-Maria", "Popescu"),
        ("domnul Maria Ionescu", "Maria", "Ionescu"),
        ("Elena Claudiu", None, None),
        ("Zyx Abc", None, None),
        ("Qwerta Popa", "Qwerta", "Popa"),
        ("Maria", "Maria", None),
        ("Ana Maria", "Ana Maria", None),
        ("Radu", None, None),
        ("Popescu", None, "Popescu"),
    ],
)
def test_in_doubt_the_greeting_stays_neutral(written, first, last):
    person = form_of_address(written)
    assert (person.first_name, person.last_name) == (first, last)
    assert person.salutation is None
    assert person.greeting == "Bună ziua"


@pytest.mark.parametrize(
    "written",
    [
        None,
        "",
        "  ",
        "-",
        "N/A",
        "null",
        "Administrator",
        "Director general",
        "ing.",
        "0722 123 456",
        "ion@firma.ro",
        "SC AGRO SRL",
        "Popescu Ion PFA",
        "Ion Popescu și Maria Popescu",
        "Ion si Maria Popescu",
        "Ion Popescu / Maria Pop",
        "Ion Popescu & Maria Pop",
        "unu doi trei patru cinci șase",
        "{{nume}}",
        "<script>",
        "😀",
    ],
)
def test_what_is_not_one_persons_name_is_nobody(written):
    assert form_of_address(written) == FormOfAddress()


def test_no_first_name_stands_in_two_lists():
    lists = [address._MEN, address._WOMEN, address._EITHER, address._SURNAMES]  # pyright: ignore[reportPrivateUsage]
    assert sum(map(len, lists)) == len(frozenset().union(*lists))


@given(st.text(max_size=40) | st.text(alphabet="IonPpescuMria ,.-/()'șŞ", max_size=40))
def test_any_text_gets_some_greeting(text):
    person = form_of_address(text)
    assert person.greeting.startswith("Bună ziua")
    assert person.salutation is None or person.gender is not None
    assert "\n" not in person.greeting


@pytest.mark.parametrize(
    ("registered", "short"),
    [
        ("SC EXEMPLU PROD SRL", "Exemplu Prod"),
        ("S.C. EXEMPLU PROD S.R.L.", "Exemplu Prod"),
        ("S.C.EXEMPLU S.R.L", "Exemplu"),
        ("SC. DELTA SRL", "Delta"),
        ("EXEMPLU,SRL", "Exemplu"),
        ("Exemplu Prod SRL", "Exemplu Prod"),
        ("eXemplu SRL", "eXemplu"),
        ("agro moldova s.r.l.", "Agro Moldova"),
        ("EXEMPLU SA", "Exemplu"),
        ("EXEMPLU SRL-D", "Exemplu"),
        ("POPESCU ION PFA", "Popescu Ion"),
        ("P.F.A. POPESCU ION", "Popescu Ion"),
        ("POPESCU ION PERSOANĂ FIZICĂ AUTORIZATĂ", "Popescu Ion"),
        ("II POPESCU ION", "Popescu Ion"),
        ("POPESCU ION I.I.", "Popescu Ion"),
        ("POPESCU ION ÎNTREPRINDERE INDIVIDUALĂ", "Popescu Ion"),
        ("AGRO II SRL", "Agro II"),
        ("If Only SRL", "If Only"),
        ("SCORPION SRL", "Scorpion"),
        ("SANDU SRL BUCUREȘTI", "Sandu București"),
        ('SC "EXEMPLU" SRL', "Exemplu"),
        ("„EXEMPLU” S.R.L.", "Exemplu"),
        ("EXEMPLU SRL - ÎN INSOLVENȚĂ", "Exemplu"),
        ("EXEMPLU SRL (in faliment)", "Exemplu"),
        ("MĂRU ŞI PĂRU SRL", "Măru și Păru"),
        ("CASA DE PIATRĂ SRL", "Casa de Piatră"),
        ("IMPORT-EXPORT VEST SRL", "Import-Export Vest"),
        ("BCR LEASING SA", "BCR Leasing"),
        ("ABC IT GRUP SRL", "ABC IT Grup"),
        ("E.ON ENERGIE SA", "E.ON Energie"),
        ("3 BRAZI SRL", "3 Brazi"),
        ("AGRO PROD.COM. SRL", "Agro Prod Com"),
        ("IONESCU.RO SRL", "Ionescu.ro"),  # stays an address, so that the send is refused
        ("Agro\r\nDemo\x00 SRL", "Agro Demo"),
        ("SRL", "SRL"),
        ("S.R.L.", "S.R.L."),
        ("", None),
        (" \n", None),
        (None, None),
    ],
)
def test_a_company_gets_the_name_that_people_use(registered, short):
    assert short_company_name(registered) == short


@given(st.text(max_size=40))
def test_a_company_with_a_visible_name_never_loses_it(name):
    short = short_company_name(name)
    if any(c.isalnum() for c in name):
        assert short
        assert short == short.strip()


@pytest.mark.parametrize(
    ("written", "spelled"),
    [
        ("CJ", "Cluj"),
        ("cluj", "Cluj"),
        ("JUD. CLUJ", "Cluj"),
        ("jud.Iasi", "Iași"),
        ("Județul TIMIS", "Timiș"),
        ("BISTRITA-NASAUD", "Bistrița-Năsăud"),
        ("Municipiul Bucuresti", "București"),
        ("B", "București"),
        ("Transilvania", "Transilvania"),
        ("jud.", None),
        (None, None),
    ],
)
def test_a_county_is_spelled_as_it_should_be(written, spelled):
    assert county_name(written) == spelled


def test_there_are_42_counties_with_the_capital():
    assert len(COUNTIES) == len(set(COUNTIES.values())) == 42


@pytest.mark.parametrize(
    ("written", "spelled"),
    [
        ("MUN. ALBA IULIA", "Alba Iulia"),
        ("Cluj-napoca", "Cluj-Napoca"),
        ("ROȘIORII DE VEDE", "Roșiorii de Vede"),
        ("ORAȘ OVIDIU", "Ovidiu"),
        ("Orăștie", "Orăștie"),
        ("sat Floreşti", "Florești"),
        ("sector 3", "Sector 3"),
        ("", None),
    ],
)
def test_a_place_is_spelled_as_it_should_be(written, spelled):
    assert place_name(written) == spelled


def test_a_lead_gives_every_known_variable():
    values = values_for(
        company_name="SC EXEMPLU PROD SRL",
        contact_name="POPESCU Ion",
        county="CJ",
        city="CLUJ-NAPOCA",
        custom={"cultura": " grâu \n"},
    )
    assert values == {
        "companie": "Exemplu Prod",
        "companie_completa": "SC EXEMPLU PROD SRL",
        "contact": "Ion Popescu",
        "prenume": "Ion",
        "nume": "Popescu",
        "adresare": "domnule Popescu",
        "salut": "Bună ziua, domnule Popescu",
        "judet": "Cluj",
        "localitate": "Cluj-Napoca",
        "company_name": "Exemplu Prod",
        "contact_name": "Ion Popescu",
        "county": "Cluj",
        "city": "Cluj-Napoca",
        "cultura": "grâu",
    }
    assert values.keys() - {"cultura"} == KNOWN_VARIABLES


def test_a_lead_without_data_has_only_a_greeting():
    values = values_for(company_name=None, contact_name=None, county=None, city=None)
    assert values.keys() == KNOWN_VARIABLES
    assert {name for name, value in values.items() if value} == {"salut"}


@pytest.mark.parametrize("payload", ["{{nume}}", "{a|b}", "${x}", "{% if %}", "=1+1", "<b>x</b>"])
def test_lead_data_that_looks_like_markup_is_passed_on_unchanged(payload):
    values = values_for(
        company_name=payload, contact_name=None, county=None, city=None, custom={"nota": payload}
    )
    assert values["companie_completa"] == values["nota"] == payload


def test_a_custom_field_fills_a_gap_but_replaces_nothing():
    values = values_for(
        company_name="Exemplu SRL",
        contact_name=None,
        county=None,
        city=None,
        custom={"companie": "Alta", "prenume": "Ion", "city": "Arad", "salut": "Salut"},
    )
    assert values["companie"] == "Exemplu"
    assert values["prenume"] == "Ion"
    assert values["city"] == values["localitate"] == "Arad"
    assert values["salut"] == "Bună ziua"


def test_every_english_name_stands_for_a_known_variable():
    assert set(ENGLISH_NAMES.values()) < KNOWN_VARIABLES
