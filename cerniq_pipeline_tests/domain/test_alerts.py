"""Alerts in words for people."""

from __future__ import annotations

import pytest

from cerniq_pipeline.domain.alerts import SENTENCES, Alert, sentence
from cerniq_pipeline_tests.builders import NOON


def an_alert(kind: str) -> Alert:
    return Alert(
        id=1,
        tenant_id="acme",
        kind=kind,
        subject="acme-01",
        detail="the provider's words",
        opened_at=NOON,
        notified_at=None,
        acknowledged_at=None,
        acknowledged_by=None,
    )


@pytest.mark.parametrize("kind", SENTENCES)
def test_every_kind_is_a_sentence_about_its_subject(kind: str):
    said = sentence(an_alert(kind))
    assert "acme-01" in said
    assert said.endswith("(acme: the provider's words)")
    assert "{" not in said


def test_a_kind_without_a_sentence_is_named():
    said = sentence(an_alert("phone_on_fire"))
    assert said == "Phone on fire: acme-01. (acme: the provider's words)"
