from __future__ import annotations

from collections import Counter

import phonenumbers
import pytest

from cerniq_pipeline.demo_content import PHONES, STEPS, company
from cerniq_pipeline.domain.address import COUNTIES, KNOWN_VARIABLES, values_for
from cerniq_pipeline.domain.templates import (
    looks_unresolved,
    mentions_url,
    parse,
    problems,
    render,
)

COMPANIES = [company(n) for n in range(2000)]
FAR_AWAY = [company(n) for n in (123_456, 4_000_000, 59_999_999)]


def is_romanian_mobile(number: str) -> bool:
    parsed = phonenumbers.parse(number)
    return (
        phonenumbers.format_number(parsed, phonenumbers.PhoneNumberFormat.E164) == number
        and phonenumbers.region_code_for_number(parsed) == "RO"
        and phonenumbers.is_valid_number(parsed)
        and phonenumbers.number_type(parsed) == phonenumbers.PhoneNumberType.MOBILE
    )


def has_valid_check_digit(cui: str) -> bool:
    body, check = cui[:-1], int(cui[-1])
    key = [7, 5, 3, 2, 1, 7, 5, 3, 2][-len(body) :]
    total = 10 * sum(weight * int(digit) for weight, digit in zip(key, body, strict=True))
    return total % 11 % 10 == check


def values_of(row: dict[str, str | None]) -> dict[str, str | None]:
    return values_for(
        company_name=row["denumire"],
        contact_name=row["contact_principal_nume"],
        county=row["judet"],
        city=row["localitate"],
    )


# ----------------------------------------------------------------------------------------- texts


def test_the_sequence_is_one_first_message_and_two_follow_ups():
    assert [(step.number, step.kind) for step in STEPS] == [
        (1, "initial"),
        (2, "followup"),
        (3, "followup"),
    ]
    assert [step.is_first_message for step in STEPS] == [True, False, False]
    assert STEPS[0].after.total_seconds() == 0
    assert all(step.after.days >= 1 for step in STEPS[1:])


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_a_demo_text_passes_its_own_validation(step):
    found = problems(step.text, known=KNOWN_VARIABLES, first_message=True, min_variants=200)
    assert found == ()


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_a_demo_text_really_has_two_hundred_readings(step):
    values = values_of(COMPANIES[1])
    template = parse(step.text)
    assert len({render(template, values, seed=str(n)) for n in range(400)}) >= 200


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_every_demo_company_gets_a_clean_text_that_names_the_sender_and_the_way_out(step):
    template = parse(step.text)
    for row in COMPANIES[:400]:
        text = render(template, values_of(row), seed=f"{row['cui']}:{step.number}")
        assert text.startswith("Bună ziua")
        assert "Andrei Munteanu" in text
        assert "Agro Demo" in text
        assert "răspundeți STOP" in text
        assert not looks_unresolved(text)
        assert not mentions_url(text)
        assert len(text) <= 1000
        assert not any(flaw in text for flaw in ("  ", " ,", " .", " !", ",,", "..", " \n"))


def test_a_lead_of_which_nothing_is_known_gets_a_text_too():
    nothing = values_for(company_name=None, contact_name=None, county=None, city=None)
    for step in STEPS:
        for seed in map(str, range(50)):
            assert render(parse(step.text), nothing, seed=seed).startswith("Bună ziua!")


# ------------------------------------------------------------------------------------- companies


def test_a_company_is_the_same_every_time():
    assert company(1) == company(1)
    assert company(1) == {
        "denumire": "Agrofam Păun Grup S.R.L.",
        "cui": "22345671",
        "telefon_principal": "+40721120856",
        "email_principal": "agrofam-paun-grup.1@example.test",
        "contact_principal_nume": "LUPU LAURENȚIU",
        "judet": "Vaslui",
        "localitate": "Bârlad",
    }


@pytest.mark.parametrize("key", ["denumire", "cui", "telefon_principal", "email_principal"])
def test_no_two_demo_companies_share(key):
    assert len({row[key] for row in COMPANIES}) == len(COMPANIES)


@pytest.mark.parametrize("key", ["cui", "telefon_principal", "email_principal"])
def test_what_identifies_a_company_stays_unique_in_a_large_import(key):
    assert len({company(n)[key] for n in range(20_000)}) == 20_000


def test_phone_numbers_are_romanian_mobiles_over_many_prefixes():
    numbers = [str(row["telefon_principal"]) for row in COMPANIES + FAR_AWAY]
    assert all(map(is_romanian_mobile, numbers))
    prefixes = Counter(number[:6] for number in numbers)
    assert len(prefixes) == 60
    assert max(prefixes.values()) < 40


@pytest.mark.parametrize("cui", ["14399840", "1590082", "361757"])
def test_the_check_digit_rule_accepts_known_tax_numbers(cui):
    assert has_valid_check_digit(cui)


def test_tax_numbers_have_a_valid_check_digit():
    assert all(has_valid_check_digit(str(row["cui"])) for row in COMPANIES + FAR_AWAY)


def test_addresses_lead_nowhere_and_places_lie_in_real_counties():
    for row in COMPANIES:
        email = str(row["email_principal"])
        assert email.isascii()
        assert email.endswith("@example.test")
        assert row["judet"] in COUNTIES.values()
    counties_of = {row["localitate"]: set() for row in COMPANIES}
    for row in COMPANIES:
        counties_of[row["localitate"]].add(row["judet"])
    assert all(len(counties) == 1 for counties in counties_of.values())
    assert len({row["judet"] for row in COMPANIES}) == 41


def test_almost_every_contact_gets_a_form_of_address():
    named = [row for row in COMPANIES if row["contact_principal_nume"]]
    assert 0.9 < len(named) / len(COMPANIES) < 1
    assert all(values_of(row)["adresare"] for row in named)


@pytest.mark.parametrize("n", [-1, 60_000_000])
def test_a_number_without_a_company_is_refused(n):
    with pytest.raises(ValueError, match="numbered from 0"):
        company(n)


# ---------------------------------------------------------------------------------------- senders


def test_the_twenty_senders_are_romanian_mobiles_and_no_company_has_one():
    assert len(set(PHONES)) == len(PHONES) == 20
    assert all(map(is_romanian_mobile, PHONES))
    prefixes = {str(row["telefon_principal"])[:6] for row in COMPANIES + FAR_AWAY}
    assert not prefixes & {number[:6] for number in PHONES}
