"""Words, limits and the run's moves against the page, typed out here and read from nowhere."""

from enum import StrEnum

import pytest

from bothy_hermes import wire_words
from bothy_hermes.wire_words import ENDED_STATES, RUN_MOVES, RunState

WORDS = {
    "RunKind": "operator guest",
    "RunState": "queued running waiting_input completed failed cancelled",
    "Outcome": "completed failed cancelled",
    "Reason": "adapter_error not_allowed billing_mode_mismatch tool_class_exceeded runtime_error "
    "runtime_busy adapter_restarted interrupted",
    "ServerReason": "expired agent_offline cancelled_by_person",
    "TriggerKind": "message command interaction",
    "SessionMode": "new resume bind",
    "ToolClass": "chat scoped host",
    "BillingMode": "organization personal",
    "KeyType": "api_key oauth unknown",
    "EvidenceMethod": "resolved_credentials",
    "Trust": "trusted member unverified",
    "TitleSource": "auto manual",
    "PrincipalKind": "person agent",
    "MessageKind": "text card",
    "MessageRole": "answer interim",
    "StepKind": "tool_call subagent",
    "StepState": "running completed failed",
    "ElementKind": "message summary participants file",
    "ScanStatus": "clean skipped pending infected",
    "ComponentKind": "button select",
    "ComponentStyle": "primary secondary danger",
    "Restriction": "run_starter owner anyone",
    "Capability": "approve_actions",
    "CloseReason": "expired answered cancelled",
    "ResumeCause": "interaction followup prompt_expired",
    "FollowupState": "delivered absorbed",
    "BindFailure": "session_missing",
    "InteractionStatus": "acknowledged failed",
    "HeartbeatState": "online degraded",
    "DegradedReason": "busy_mode_invalid billing_evidence_unknown restore_pending runtime_unsupported "
    "runtime_contract_missing state_unwritable",
    "EventType": "agent.invocation agent.followup interaction.created run.ended agent.config_changed",
    "ProblemCode": "unauthorized token_expired use_dpop_nonce invalid_dpop_proof forbidden not_found "
    "run_ended run_not_startable run_not_running run_not_waiting card_open card_closed billing_mode_mismatch "
    "tool_class_exceeded version_conflict precondition_required precondition_failed title_not_auto "
    "costs_not_enabled file_refused followup_absorbed interaction_answered content_too_long "
    "component_invalid validation_failed unsupported_media_type rate_limited",
}

LIMITS = {
    "PROTOCOL_VERSION": 1,
    "SUBPROTOCOL": "bothy.agent.v1",
    "RUN_TOKEN_TYPE": "bothy-run+jwt",
    "MAX_CONTENT_BYTES": 262144,
    "MAX_BODY_BYTES": 1024 * 1024,
    "MAX_FRAME_BYTES": 1024 * 1024,
    "MAX_COMPONENTS": 10,
    "MAX_CUSTOM_ID_CHARS": 100,
    "MAX_LABEL_CHARS": 80,
    "MAX_OPTION_VALUE_CHARS": 100,
    "MAX_STATUS_CHARS": 200,
    "MAX_STEP_TITLE_CHARS": 200,
    "MAX_EXCERPT_CHARS": 4000,
    "MAX_TITLE_CHARS": 120,
    "MAX_RESPONSE_CHARS": 200,
    "MAX_CLIENT_MSG_ID_CHARS": 100,
    "MAX_PATCH_OPERATIONS": 100,
    "MAX_STEPS": 200,
    "MAX_LISTED_RUNS": 200,
    "MAX_FILE_BYTES": 100 * 1024 * 1024,
    "MAX_TOKEN_LIFE_SECONDS": 15 * 60,
    "TOKEN_LEEWAY_SECONDS": 30,
    "CONTENT_EXCERPT_CHARS": 200,
}

RUN_TABLE = {
    "queued": "running failed cancelled",
    "running": "waiting_input completed failed cancelled",
    "waiting_input": "running failed cancelled",
    "completed": "",
    "failed": "",
    "cancelled": "",
}


def test_every_enumeration_has_the_pages_words():
    """None more, none less, in the page's order (tool classes are ordered by it)."""
    found = {
        name: " ".join(value)
        for name, value in vars(wire_words).items()
        if isinstance(value, type) and issubclass(value, StrEnum) and value is not StrEnum
    }
    assert found == WORDS


def test_every_limit_has_the_pages_number():
    """A limit that this table does not know is a limit that the page does not have."""
    found = {name: value for name, value in vars(wire_words).items() if isinstance(value, int | str)}
    assert {name: value for name, value in found.items() if name.isupper() and name[0] != "_"} == LIMITS


def test_a_run_moves_as_the_page_says():
    """The table of section 7."""
    assert {str(source): set(targets) for source, targets in RUN_MOVES.items()} == {
        source: set(targets.split()) for source, targets in RUN_TABLE.items()
    }


@pytest.mark.parametrize("state", RunState)
def test_a_run_has_ended_when_nothing_follows(state):
    """Three ends, and none of them moves."""
    assert state.ended == (state in {"completed", "failed", "cancelled"})
    assert state.ended == (not RUN_MOVES[state])
    assert (state in ENDED_STATES) == state.ended
