"""What people type to say whom or what they mean."""

from __future__ import annotations

from uuid import UUID

import pytest

from cerniq_pipeline.domain.names import nearest, no_such, read_name, short_id

LEAD = UUID("3fa85f64-5717-4562-b3fc-2c963f66afa6")


@pytest.mark.parametrize(
    "typed",
    [
        "+40722123456",
        "0722123456",
        "0722 123 456",
        "0040722123456",
        " +40 722-123.456 ",
        "(0722) 123456",
    ],
)
def test_a_number_is_read_in_every_spelling(typed: str):
    assert read_name(typed).reaches == "+40722123456"


@pytest.mark.parametrize(
    "typed",
    ["072212345", "0722123456, 0733123456", "0722123456/0733123456", "nobody", "", "12345678"],
)
def test_what_is_not_exactly_one_number_reaches_nobody(typed: str):
    """Half of two numbers, or a number with a digit too few, would be blocked in vain."""
    assert read_name(typed).reaches is None


def test_an_address_is_read_in_any_case_and_a_cui_with_or_without_ro():
    assert read_name(" Ana.Pop@Firma.RO ").reaches == "ana.pop@firma.ro"
    assert {read_name(typed).company for typed in ("18547290", "RO18547290", "RO 18547290")} == {
        "18547290"
    }
    assert read_name("18547291").company is None  # its check digit is wrong
    assert read_name("18547291").cui == "18547291"


@pytest.mark.parametrize("typed", ["3fa8", "3fa85f64", "3FA85F64-5717", str(LEAD)[:-1]])
def test_an_id_is_read_from_its_beginning(typed: str):
    first, last = read_name(typed).id_range or (None, None)
    assert first is not None
    assert last is not None
    assert first <= LEAD <= last


@pytest.mark.parametrize("typed", ["3fa", "10000008", "3fa85f645717", "ana", "3fa85f64-57171"])
def test_too_little_digits_alone_and_other_shapes_are_no_beginning(typed: str):
    assert read_name(typed).id_range is None


def test_an_id_that_is_shown_short_can_be_typed_back():
    for lead_id in (LEAD, UUID("12345678-5717-4562-b3fc-2c963f66afa6")):
        first, last = read_name(short_id(lead_id)).id_range or (None, None)
        assert first is not None
        assert last is not None
        assert first <= lead_id <= last


def test_a_wrong_name_is_answered_with_the_nearest_ones():
    phones = [f"demo-{n:02d}" for n in range(1, 21)]
    assert nearest("demo-7", phones)[0] == "demo-07"
    assert nearest("PIGEON", ["WHATSAPP", "EMAIL"]) == []
    assert nearest("whatsap", ["WHATSAPP", "EMAIL"]) == ["WHATSAPP"]
    assert "did you mean demo-07" in str(no_such("phone", "demo-7", phones, see="look"))
    assert str(no_such("phone", "x", phones, see="look there")) == "no phone 'x'; look there"
