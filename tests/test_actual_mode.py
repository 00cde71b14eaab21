"""Whose money a turn spends."""

import pytest

from bothy_hermes.actual_mode import UNKNOWN, determine
from bothy_hermes.runtime import ResolvedCredential, Spending
from bothy_hermes.wire_words import BillingMode, KeyType

ORGANIZATION, PERSONAL = BillingMode.ORGANIZATION, BillingMode.PERSONAL


@pytest.mark.parametrize(
    ("provider", "key_type", "mode"),
    [
        ("anthropic", KeyType.API_KEY, ORGANIZATION),
        ("openrouter", KeyType.API_KEY, ORGANIZATION),
        ("custom", KeyType.API_KEY, ORGANIZATION),
        ("anthropic", KeyType.OAUTH, PERSONAL),
        ("nous", KeyType.OAUTH, None),
        ("openai-codex", KeyType.OAUTH, None),
        ("anthropic", KeyType.UNKNOWN, None),
        (None, KeyType.API_KEY, None),
        ("", KeyType.API_KEY, None),
        (None, KeyType.OAUTH, None),
        (None, KeyType.UNKNOWN, None),
    ],
)
def test_the_kind_of_credential_decides_the_mode(provider, key_type, mode):
    """A key is the organization's, Anthropic's login a person's, everything else proves nothing."""
    actual = determine(ResolvedCredential(provider, key_type))
    assert actual.mode is mode
    assert (actual == UNKNOWN) is (mode is None)


@pytest.mark.parametrize("mode", list(BillingMode))
def test_what_is_unknown_equals_no_mode(mode):
    """A run may ask for either mode and gets neither."""
    assert not UNKNOWN.matches(mode)


def test_a_mode_matches_itself_only():
    """The organization's key does not prove a personal turn."""
    actual = determine(ResolvedCredential("anthropic", KeyType.API_KEY))
    assert actual.matches(ORGANIZATION)
    assert not actual.matches(PERSONAL)


def test_the_evidence_names_kinds_only():
    """Provider, kind of key and method, and nothing for what is unknown."""
    evidence = determine(ResolvedCredential("anthropic", KeyType.OAUTH)).evidence
    assert (evidence.provider, evidence.key_type, evidence.method) == (
        "anthropic",
        "oauth",
        "resolved_credentials",
    )
    assert UNKNOWN.evidence.provider is None
    assert UNKNOWN.evidence.key_type == "unknown"


@pytest.mark.parametrize(
    ("credential", "spending"),
    [
        (
            ResolvedCredential("custom", KeyType.API_KEY, "http://127.0.0.1:9/v1"),
            Spending(ORGANIZATION, "custom", "http://127.0.0.1:9/v1"),
        ),
        (ResolvedCredential("anthropic", KeyType.OAUTH), Spending(PERSONAL, "anthropic")),
        (ResolvedCredential("custom", KeyType.OAUTH, "http://127.0.0.1:9/v1"), None),
    ],
)
def test_what_a_turn_is_held_to_is_what_was_proven(credential, spending):
    """The mode, the provider and its server, which no log shows; nothing where nothing is proven."""
    actual = determine(credential)
    assert actual.spending == spending
    assert "127.0.0.1" not in repr(actual)
