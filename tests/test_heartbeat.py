"""Heartbeats: each state as the server reads it, in its closed form."""

import itertools

import pytest

from bothy_hermes.actual_mode import UNKNOWN, ActualMode
from bothy_hermes.codec import dump, parse
from bothy_hermes.errors import WireError
from bothy_hermes.heartbeat import build_heartbeat
from bothy_hermes.runtime import RuntimeCapabilities
from bothy_hermes.wire import Heartbeat
from bothy_hermes.wire_words import BillingMode, DegradedReason, HeartbeatState, KeyType

ORGANIZATION = ActualMode(BillingMode.ORGANIZATION, "anthropic", KeyType.API_KEY)
PERSONAL = ActualMode(BillingMode.PERSONAL, "anthropic", KeyType.OAUTH)
ALL = RuntimeCapabilities(components=True, clarify=True, approvals=True, title=True, followups=True)


def beat(actual=ORGANIZATION, version="0.21.5", capabilities=ALL, reasons=()):
    return build_heartbeat(
        actual=actual,
        tool_class="host",
        capabilities=capabilities,
        active_runs=2,
        runtime_version=version,
        reasons=reasons,
    )


@pytest.mark.parametrize("mode", [ORGANIZATION, PERSONAL], ids=["organization", "personal"])
def test_online(mode, snapshot):
    """Everything is known and nothing is wrong."""
    found = beat(mode)

    assert found.state is HeartbeatState.ONLINE
    assert dump(found) == snapshot


@pytest.mark.parametrize("reason", list(DegradedReason), ids=str)
def test_degraded(reason, snapshot):
    """One reason is enough, and it is named."""
    found = beat(UNKNOWN if reason is DegradedReason.BILLING_EVIDENCE_UNKNOWN else PERSONAL, reasons=[reason])

    assert (found.state, found.details.degraded_reasons) == (HeartbeatState.DEGRADED, (reason,))
    assert dump(found) == snapshot


def test_what_is_unknown_is_left_out(snapshot):
    """No mode, no version, no provider: their members are missing, never null."""
    found = dump(beat(UNKNOWN, version=None, reasons=iter(())))

    assert "null" not in str(found).replace("None", "null")
    assert found == snapshot


def test_decision_11_a_mode_that_nothing_proves_is_not_reported():
    """An unknown mode makes the adapter degraded, whatever the caller said of it."""
    found = beat(UNKNOWN)

    assert found.state == "degraded"
    assert found.details.degraded_reasons == (DegradedReason.BILLING_EVIDENCE_UNKNOWN,)
    assert (found.reported_billing_mode, found.billing_modes_supported) == (None, None)
    assert found.billing_evidence.key_type is KeyType.UNKNOWN


def test_decision_11_one_mode_is_proven_and_one_is_supported():
    """A profile has one kind of credential: the other mode is not offered."""
    assert beat(PERSONAL).billing_modes_supported == (BillingMode.PERSONAL,)
    assert beat(PERSONAL).reported_billing_mode is BillingMode.PERSONAL


def test_decision_11_no_follow_ups_where_a_text_interrupts():
    """With that busy mode a person's text would end the turn it was meant for."""
    found = beat(reasons=[DegradedReason.BUSY_MODE_INVALID])

    assert not found.details.capabilities.followups
    assert beat().details.capabilities.followups


def test_reasons_are_named_once_and_in_one_order():
    """The order in which rooms report does not make two heartbeats differ."""
    for reasons in itertools.permutations(DegradedReason, 3):
        found = beat(reasons=[*reasons, *reasons])
        assert found.details.degraded_reasons == tuple(one for one in DegradedReason if one in reasons)


@pytest.mark.parametrize("flags", list(itertools.product([True, False], repeat=5)))
def test_capabilities_are_reported_as_they_are(flags):
    """Each of the five stands under its own name."""
    names = ("components", "clarify", "approvals", "title", "followups")
    capabilities = RuntimeCapabilities(**dict(zip(names, flags, strict=True)))

    assert dump(beat(capabilities=capabilities))["details"]["capabilities"] == dict(
        zip(names, flags, strict=True)
    )


def test_the_form_is_closed():
    """A server that knows this version takes exactly these members."""
    form = dump(beat())

    assert parse(Heartbeat, form) == beat()
    with pytest.raises(WireError):
        parse(Heartbeat, {**form, "rate_limit": 1})
