"""JSON of every wire type, written by hand from the protocol's page, every member present and not null.

`EXAMPLES[cls]()` is a fresh copy. Nothing here is made by the code that it tests.
"""

import copy

from bothy_hermes import wire, wire_events

AT = "2026-11-30T12:00:00.000000Z"
LATER = "2026-11-30T12:00:05.250000Z"


def an_id(number):
    """The test's n-th UUID."""
    return f"00000000-0000-7000-8000-{number:012d}"


RUN_ID, THREAD_ID, CHANNEL_ID, AGENT_ID, PERSON_ID, MESSAGE_ID = (an_id(number) for number in range(1, 7))

_PERSON = {"id": PERSON_ID, "kind": "person", "display_name": "Dana"}
_EVIDENCE = {"provider": "anthropic", "key_type": "api_key", "method": "resolved_credentials"}
_SESSION = {"external_session_ref": "20261130_120000_ab12cd", "version": 3}
_RUN = {
    "id": RUN_ID,
    "thread_id": THREAD_ID,
    "channel_id": CHANNEL_ID,
    "agent_id": AGENT_ID,
    "run_starter": PERSON_ID,
    "kind": "operator",
    "trigger_kind": "message",
    "trigger_message_id": MESSAGE_ID,
    "state": "failed",
    "reason": "runtime_error",
    "session_mode": "resume",
    "tool_class": "host",
    "billing_mode": "organization",
    "consumer": "default",
    "created_at": AT,
    "started_at": AT,
    "finished_at": LATER,
}
_STEP = {
    "id": "step-1",
    "kind": "tool_call",
    "title": "reading notes.md",
    "state": "completed",
    "started_at": AT,
    "finished_at": LATER,
    "detail": {"preview": "cat notes.md"},
}
_DOCUMENT = {"version": 4, "status_line": "is reading", "steps": [_STEP], "last_text_excerpt": "I found"}
_VIEW = {"run": _RUN, "document": _DOCUMENT, "open_cards": [MESSAGE_ID]}
_OPTION = {"value": "blue", "label": "Blue"}
_WANTED = {
    "custom_id": "choice-1",
    "kind": "select",
    "label": "Which one?",
    "style": "primary",
    "options": [_OPTION],
    "single_use": True,
    "restricted_to": "run_starter",
    "required_capability": "approve_actions",
    "disabled": False,
}
_COMPONENT = {"id": an_id(20), **_WANTED}
_PART = {"index": 0, "last": True}
_MESSAGE = {
    "id": MESSAGE_ID,
    "thread_id": THREAD_ID,
    "run_id": RUN_ID,
    "kind": "card",
    "role": "interim",
    "content": "Which one?",
    "part": _PART,
    "reply_to": an_id(21),
    "author": _PERSON,
    "components": [_COMPONENT],
    "version": 1,
    "client_msg_id": "c-1",
    "closed": "answered",
    "created_at": AT,
}
_ALLOW_ENTRY = {"principal_id": PERSON_ID, "run_kinds": ["operator", "guest"]}
_SKILL = {"name": "style", "text": "Write short."}
_THREAD = {"id": THREAD_ID, "title": "Colours", "title_source": "auto", "version": 2}
_CHANNEL = {"id": CHANNEL_ID, "name": "design"}
_STARTER = {"id": PERSON_ID, "display_name": "Dana"}
_ATTACHMENT = {
    "id": an_id(22),
    "name": "notes.md",
    "media_type": "text/markdown",
    "size_bytes": 17,
    "scan_status": "clean",
}
_TRANSCRIPT = {"attachment_id": an_id(22), "text": "hello", "trust": "member"}
_ELEMENT = {
    "id": MESSAGE_ID,
    "kind": "message",
    "author": _PERSON,
    "trust": "trusted",
    "created_at": AT,
    "already_delivered": False,
    "content": "What is in notes.md?",
    "attachments": [_ATTACHMENT],
    "transcripts": [_TRANSCRIPT],
}
_METRICS = {
    "duration_ms": 5250,
    "model_requests": 2,
    "tokens_in": 100,
    "tokens_out": 20,
    "tokens_cache_read": 5,
    "tokens_cache_write": 0,
}
_COST = {
    "provider": "anthropic",
    "model": "claude",
    "currency": "USD",
    "tokens_in": 100,
    "tokens_out": 20,
    "tokens_cache_read": 5,
    "tokens_cache_write": 0,
    "amount_micros": 1500,
    "estimated": True,
}
_CAPABILITIES = {"components": True, "clarify": True, "approvals": True, "title": True, "followups": False}
_ADAPTER = {"name": "bothy-hermes", "version": "0.1.0"}
_RUNTIME = {"name": "hermes-agent", "version": "0.21.5"}
_DETAILS = {
    "degraded_reasons": ["restore_pending"],
    "capabilities": _CAPABILITIES,
    "active_runs": 1,
    "adapter": _ADAPTER,
    "runtime": _RUNTIME,
    "protocol_version": 1,
}
_INVOCATION = {
    "run": _RUN,
    "message_id": MESSAGE_ID,
    "content_excerpt": "What is in notes.md?",
    "trigger_kind": "message",
    "session_mode": "resume",
    "agent_session": _SESSION,
    "settings_version": 5,
}
_INTERACTION = {
    "id": an_id(30),
    "run_id": RUN_ID,
    "message_id": MESSAGE_ID,
    "component_id": an_id(20),
    "custom_id": "choice-1",
    "values": ["blue"],
    "operator_id": PERSON_ID,
}
_SETTINGS = {"run_update_min_interval_ms": 1000, "max_content_bytes": 262144, "costs_enabled": True}
_SPENDING = {"billing_mode": "organization", "billing_evidence": _EVIDENCE, "tool_class": "host"}

_EVENT = {
    "id": an_id(40),
    "type": "agent.invocation",
    "created_at": AT,
    "attempt": 1,
    "agent_id": AGENT_ID,
    "token": "header.payload.signature",
    "payload": _INVOCATION,
}

_ALL = {
    wire.Principal: _PERSON,
    wire.Evidence: _EVIDENCE,
    wire.AgentSession: _SESSION,
    wire.Run: _RUN,
    wire.StepDetail: _STEP["detail"],
    wire.Step: _STEP,
    wire.RunDocument: _DOCUMENT,
    wire.RunView: _VIEW,
    wire.Option: _OPTION,
    wire.ComponentCreate: _WANTED,
    wire.Component: _COMPONENT,
    wire.Part: _PART,
    wire.Message: _MESSAGE,
    wire.Me: {
        "id": AGENT_ID,
        "kind": "agent",
        "display_name": "Helper",
        "owner_id": PERSON_ID,
        "instance_id": an_id(50),
        "dpop_jkt": "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I",
        "settings_version": 5,
    },
    wire.KeySetBody: {"keys": [{"kty": "EC", "crv": "P-256", "kid": "k1"}]},
    wire.AllowEntry: _ALLOW_ENTRY,
    wire.AllowList: {"version": 9, "entries": [_ALLOW_ENTRY]},
    wire.Skill: _SKILL,
    wire.ServedChannelConfig: {"settings_version": 5, "prompt": "Be kind.", "skills": [_SKILL]},
    wire.ThreadView: _THREAD,
    wire.ChannelView: _CHANNEL,
    wire.Starter: _STARTER,
    wire.Attachment: _ATTACHMENT,
    wire.Transcript: _TRANSCRIPT,
    wire.ContextElement: _ELEMENT,
    wire.RunContext: {
        "run": _RUN,
        "thread": _THREAD,
        "channel": _CHANNEL,
        "starter": _STARTER,
        "elements": [_ELEMENT],
        "truncated": False,
    },
    wire.StartRun: _SPENDING,
    wire.ResumeRun: {
        "cause": "followup",
        "message_id": MESSAGE_ID,
        "followup_message_id": an_id(23),
        **_SPENDING,
    },
    wire.TokenAnswer: {"token": "header.payload.signature"},
    wire.UpdateRun: {
        "base_version": 4,
        "patch": [{"op": "replace", "path": "/status_line", "value": "is writing"}],
    },
    wire.DocumentVersion: {"version": 5},
    wire.CreateMessage: {
        "client_msg_id": "c-1",
        "kind": "card",
        "role": "interim",
        "content": "Which one?",
        "reply_to": an_id(21),
        "part": _PART,
        "components": [_WANTED],
    },
    wire.UpdateMessage: {"content": "Blue."},
    wire.AwaitRunInput: {"message_id": MESSAGE_ID, "status_line": "is waiting"},
    wire.CloseCard: {"reason": "expired"},
    wire.Followup: {"state": "absorbed"},
    wire.InteractionResponse: {"status": "failed", "text": "no longer waiting", "reopen": True},
    wire.InteractionView: {"id": an_id(30), "status": "acknowledged", "text": "done"},
    wire.Metrics: _METRICS,
    wire.Cost: _COST,
    wire.FinishRun: {
        "outcome": "failed",
        "reason": "runtime_error",
        "metrics": _METRICS,
        "costs": [_COST],
    },
    wire.ReportAgentSession: {
        "external_session_ref": "20261130_120000_ab12cd",
        "started": True,
        "bind_failed": "session_missing",
    },
    wire.SetThreadTitle: {"title": "Colours"},
    wire.Capabilities: _CAPABILITIES,
    wire.Release: _ADAPTER,
    wire.Software: _RUNTIME,
    wire.HeartbeatEvidence: _EVIDENCE,
    wire.HeartbeatDetails: _DETAILS,
    wire.Heartbeat: {
        "state": "degraded",
        "runtime_version": "0.21.5",
        "reported_billing_mode": "organization",
        "billing_modes_supported": ["organization", "personal"],
        "billing_evidence": _EVIDENCE,
        "reported_tool_class": "host",
        "details": _DETAILS,
    },
    wire_events.Event: _EVENT,
    wire_events.Invocation: _INVOCATION,
    wire_events.FollowupEvent: {
        "run_id": RUN_ID,
        "thread_id": THREAD_ID,
        "message_id": MESSAGE_ID,
        "author_id": PERSON_ID,
        "run_state": "running",
    },
    wire_events.Interaction: _INTERACTION,
    wire_events.InteractionEvent: {"interaction": _INTERACTION},
    wire_events.RunEndedEvent: {
        "run_id": RUN_ID,
        "thread_id": THREAD_ID,
        "state": "cancelled",
        "reason": "cancelled_by_person",
        "by": PERSON_ID,
    },
    wire_events.ConfigChangedEvent: {"settings_version": 6},
    wire_events.ListedRun: {
        "run": _RUN,
        "invocation": _INVOCATION,
        "open_cards": [MESSAGE_ID],
        "adapter_id": an_id(51),
        "adapter_seen_at": AT,
    },
    wire_events.RunList: {
        "runs": [
            {
                "run": _RUN,
                "invocation": _INVOCATION,
                "open_cards": [],
                "adapter_id": None,
                "adapter_seen_at": None,
            }
        ]
    },
    wire_events.HelloSettings: _SETTINGS,
    wire_events.Hello: {
        "server_time": AT,
        "protocol_version": 1,
        "ack_timeout_ms": 30000,
        "heartbeat_interval_ms": 30000,
        "max_in_flight": 64,
        "settings": _SETTINGS,
    },
    wire_events.Identify: {
        "consumer": "default",
        "adapter_id": an_id(51),
        "protocol_version": 1,
        "adapter": _ADAPTER,
        "runtime": _RUNTIME,
        "max_active_runs": 8,
    },
    wire_events.Ready: {"pending": 2},
    wire_events.EventFrame: {"event": _EVENT},
    wire_events.Ack: {"event_id": an_id(40)},
    wire_events.Goodbye: {"code": 1012, "reconnect": True},
}

EXAMPLES = {cls: (lambda value=value: copy.deepcopy(value)) for cls, value in _ALL.items()}

EVENT_EXAMPLES = {
    "agent.invocation": _INVOCATION,
    "agent.followup": _ALL[wire_events.FollowupEvent],
    "interaction.created": _ALL[wire_events.InteractionEvent],
    "run.ended": _ALL[wire_events.RunEndedEvent],
    "agent.config_changed": _ALL[wire_events.ConfigChangedEvent],
}


def event(kind):
    """An event of a type; with a token where the page has one."""
    tokenless = kind in {"run.ended", "agent.config_changed"}
    found = {**_EVENT, "type": kind, "payload": EVENT_EXAMPLES[kind]}
    if tokenless:
        del found["token"]
    return copy.deepcopy(found)
