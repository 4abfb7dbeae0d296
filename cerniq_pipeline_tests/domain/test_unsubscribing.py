"""The token of the unsubscribe link: ours or nobody's, and silent about the person."""

from __future__ import annotations

import base64
import re
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cerniq_pipeline.domain.unsubscribing import (
    LONGEST,
    Subscription,
    list_unsubscribe_headers,
    read_token,
    token_of,
    unsubscribe_address,
)

SECRET = b"a secret of the tests"
LEAD = UUID("0b0f9a52-7d1c-4a57-9d3c-6a3f4f9f3d11")
ACME = Subscription("acme", LEAD)

subscriptions = st.builds(Subscription, st.text(min_size=1, max_size=40), st.uuids())


@given(subscriptions)
def test_a_token_names_its_tenant_and_its_lead_and_is_safe_in_an_address(who: Subscription):
    try:
        token = token_of(SECRET, who)
    except UnicodeEncodeError:  # no tenant is called by half a character
        return
    assert re.fullmatch(r"[A-Za-z0-9_-]+", token)
    assert read_token(SECRET, token) == who
    assert token_of(SECRET, who) == token  # the same link in every message


@given(st.text(max_size=100))
def test_what_we_did_not_make_is_nobodys(text: str):
    assert read_token(SECRET, text) is None


@given(st.data())
def test_a_token_with_one_letter_changed_is_nobodys(data: st.DataObject):
    token = token_of(SECRET, ACME)
    place = data.draw(st.integers(0, len(token) - 1))
    letter = data.draw(st.sampled_from("ABCxyz019_-=+/ "))
    changed = token[:place] + letter + token[place + 1 :]
    assert (read_token(SECRET, changed) is None) == (changed != token)


@pytest.mark.parametrize(
    "changed",
    [
        *("{}=", "{}==", " {}", "{}\n", "{}A", "A{}", "{}/"),
        "",
        "{}" * 20,
    ],
)
def test_a_token_has_one_spelling(changed: str):
    assert read_token(SECRET, changed.format(*[token_of(SECRET, ACME)] * 20)) is None


def test_another_key_makes_another_token():
    assert read_token(b"another", token_of(SECRET, ACME)) is None


def test_a_lead_of_one_tenant_cannot_be_made_anothers():
    said = base64.urlsafe_b64decode(token_of(SECRET, ACME) + "==")
    forged = said[:20] + LEAD.bytes + b"beta"
    assert read_token(SECRET, base64.urlsafe_b64encode(forged).rstrip(b"=").decode()) is None


def test_a_long_text_is_not_even_looked_at():
    long = token_of(SECRET, Subscription("a" * LONGEST, LEAD))
    assert read_token(SECRET, long) is None


def test_the_address_leads_to_the_page():
    token = token_of(SECRET, ACME)
    for public_url in ("https://cerniq.example", "https://cerniq.example/"):
        address = unsubscribe_address(public_url, SECRET, "acme", LEAD)
        assert address == f"https://cerniq.example/u/{token}"


def test_a_mail_carries_the_headers_of_rfc_8058():
    headers = list_unsubscribe_headers("https://cerniq.example", SECRET, "acme", LEAD)
    assert headers == {
        "List-Unsubscribe": f"<https://cerniq.example/u/{token_of(SECRET, ACME)}>",
        "List-Unsubscribe-Post": "List-Unsubscribe=One-Click",
    }
