"""The heartbeat: how the adapter is, as the server reads it.

Layer: rules (section 12 of docs/protocol.md). A closed form: an optional member that has no value is
left out. Whose money the next turn spends is reported as it was proven, one mode or none, and a reason
that follows from the other values is added here, so that no caller can forget it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from .actual_mode import ActualMode
from .defaults import ADAPTER_NAME, RUNTIME_NAME, VERSION
from .runtime import RuntimeCapabilities
from .wire import Capabilities, Heartbeat, HeartbeatDetails, HeartbeatEvidence, Release, Software
from .wire_words import PROTOCOL_VERSION, DegradedReason, HeartbeatState


def build_heartbeat(
    *,
    actual: ActualMode,
    tool_class: str,
    capabilities: RuntimeCapabilities,
    active_runs: int,
    runtime_version: str | None,
    reasons: Iterable[DegradedReason],
) -> Heartbeat:
    """Build a heartbeat.

    Args:
        actual: Whose money the next turn would spend, determined for this heartbeat.
        tool_class: What the next turn could do, determined for this heartbeat.
        capabilities: What the runtime can show and take.
        active_runs: Runs that have been taken and have not ended.
        runtime_version: Hermes' version, None when it cannot be told.
        reasons: Why the adapter is degraded, as far as the caller knows.
    """
    found = set(reasons)
    if actual.mode is None:
        found.add(DegradedReason.BILLING_EVIDENCE_UNKNOWN)
    modes = None if actual.mode is None else (actual.mode,)
    return Heartbeat(
        state=HeartbeatState.DEGRADED if found else HeartbeatState.ONLINE,
        runtime_version=runtime_version,
        reported_billing_mode=actual.mode,
        billing_modes_supported=modes,
        billing_evidence=_evidence(actual),
        reported_tool_class=tool_class,
        details=HeartbeatDetails(
            degraded_reasons=tuple(reason for reason in DegradedReason if reason in found) or None,
            capabilities=_usable(capabilities, found),
            active_runs=active_runs,
            adapter=Release(name=ADAPTER_NAME, version=VERSION),
            runtime=Software(name=RUNTIME_NAME, version=runtime_version),
            protocol_version=PROTOCOL_VERSION,
        ),
    )


def _evidence(actual: ActualMode) -> HeartbeatEvidence:
    found = actual.evidence
    return HeartbeatEvidence(provider=found.provider, key_type=found.key_type, method=found.method)


def _usable(capabilities: RuntimeCapabilities, reasons: set[DegradedReason]) -> Capabilities:
    """What people can rely on: where a text would interrupt the turn, it is no follow-up."""
    if DegradedReason.BUSY_MODE_INVALID in reasons:
        capabilities = replace(capabilities, followups=False)
    return Capabilities(
        components=capabilities.components,
        clarify=capabilities.clarify,
        approvals=capabilities.approvals,
        title=capabilities.title,
        followups=capabilities.followups,
    )
