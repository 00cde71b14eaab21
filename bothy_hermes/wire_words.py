"""The protocol's enumerations and limits.

Layer: values. Section numbers are those of docs/protocol.md. Enumerations are closed unless they say
that the wire carries a string; those are read as they come and judged by a rule.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

PROTOCOL_VERSION = 1
"""The integer that both sides name in their first frames (section 5)."""

SUBPROTOCOL = "bothy.agent.v1"
"""The WebSocket subprotocol of the gateway."""

RUN_TOKEN_TYPE = "bothy-run+jwt"  # noqa: S105  # a header value, not a password
"""The `typ` header of a run token."""

MAX_CONTENT_BYTES = 262_144
"""Bytes of UTF-8 in one message; `hello.settings` can lower it."""

MAX_BODY_BYTES = 1_048_576
"""Bytes of one request body: a message of the largest content fits in, unless more than a half of it are
control characters, each of which JSON writes with six bytes."""

MAX_FRAME_BYTES = 1_048_576
"""Bytes of one gateway frame; a larger one is answered with close code 1009."""

MAX_COMPONENTS = 10
"""Components of one card."""

MAX_CUSTOM_ID_CHARS = 100
MAX_LABEL_CHARS = 80
MAX_OPTION_VALUE_CHARS = 100
MAX_STATUS_CHARS = 200
"""Characters of a status line."""

MAX_STEP_TITLE_CHARS = 200
MAX_EXCERPT_CHARS = 4_000
"""Characters of the live box's last text excerpt."""

MAX_TITLE_CHARS = 120
MAX_RESPONSE_CHARS = 200
MAX_CLIENT_MSG_ID_CHARS = 100
MAX_PATCH_OPERATIONS = 100
MAX_STEPS = 200
MAX_LISTED_RUNS = 200
MAX_FILE_BYTES = 104_857_600
"""Bytes of a file that downloadFile serves."""

MAX_TOKEN_LIFE_SECONDS = 900
"""Longest life of a run token, from `iat` to `exp`."""

TOKEN_LEEWAY_SECONDS = 30
"""Tolerance on both sides when a token's times are judged."""

CONTENT_EXCERPT_CHARS = 200
"""Characters of the message in an invocation; the turn never uses them."""


class RunKind(StrEnum):
    """Why the agent is in the channel."""

    OPERATOR = "operator"
    GUEST = "guest"


class RunState(StrEnum):
    """The states of a run; `RUN_MOVES` holds the legal moves."""

    QUEUED = "queued"
    RUNNING = "running"
    WAITING_INPUT = "waiting_input"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        """Whether nothing follows this state."""
        return self in ENDED_STATES


ENDED_STATES = frozenset({RunState.COMPLETED, RunState.FAILED, RunState.CANCELLED})

RUN_MOVES: Mapping[RunState, frozenset[RunState]] = {
    RunState.QUEUED: frozenset({RunState.RUNNING, RunState.FAILED, RunState.CANCELLED}),
    RunState.RUNNING: frozenset(
        {RunState.WAITING_INPUT, RunState.COMPLETED, RunState.FAILED, RunState.CANCELLED}
    ),
    RunState.WAITING_INPUT: frozenset({RunState.RUNNING, RunState.FAILED, RunState.CANCELLED}),
    RunState.COMPLETED: frozenset(),
    RunState.FAILED: frozenset(),
    RunState.CANCELLED: frozenset(),
}
"""Every legal move of a run (section 7)."""


class Outcome(StrEnum):
    """How the adapter ends a run."""

    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Reason(StrEnum):
    """Reasons that an adapter gives for a failed run."""

    ADAPTER_ERROR = "adapter_error"
    NOT_ALLOWED = "not_allowed"
    BILLING_MODE_MISMATCH = "billing_mode_mismatch"
    TOOL_CLASS_EXCEEDED = "tool_class_exceeded"
    RUNTIME_ERROR = "runtime_error"
    RUNTIME_BUSY = "runtime_busy"
    ADAPTER_RESTARTED = "adapter_restarted"
    INTERRUPTED = "interrupted"


class ServerReason(StrEnum):
    """Reasons that only the server gives."""

    EXPIRED = "expired"
    AGENT_OFFLINE = "agent_offline"
    CANCELLED_BY_PERSON = "cancelled_by_person"


class TriggerKind(StrEnum):
    """The known trigger kinds; the wire carries a string, an unknown one counts as a command."""

    MESSAGE = "message"
    COMMAND = "command"
    INTERACTION = "interaction"


class SessionMode(StrEnum):
    """The known session modes; the wire carries a string, an unknown one is refused."""

    NEW = "new"
    RESUME = "resume"
    BIND = "bind"


class ToolClass(StrEnum):
    """The known tool classes, weakest first."""

    CHAT = "chat"
    SCOPED = "scoped"
    HOST = "host"


class BillingMode(StrEnum):
    """Whose money a turn spends."""

    ORGANIZATION = "organization"
    PERSONAL = "personal"


class KeyType(StrEnum):
    """The kind of credential that Hermes resolves."""

    API_KEY = "api_key"
    OAUTH = "oauth"
    UNKNOWN = "unknown"


class EvidenceMethod(StrEnum):
    """How the evidence was obtained."""

    RESOLVED_CREDENTIALS = "resolved_credentials"


class Trust(StrEnum):
    """How far a text may be believed."""

    TRUSTED = "trusted"
    MEMBER = "member"
    UNVERIFIED = "unverified"


class TitleSource(StrEnum):
    """Who gave a thread its title."""

    AUTO = "auto"
    MANUAL = "manual"


class PrincipalKind(StrEnum):
    """What a principal is."""

    PERSON = "person"
    AGENT = "agent"


class MessageKind(StrEnum):
    """What a message is."""

    TEXT = "text"
    CARD = "card"


class MessageRole(StrEnum):
    """What a text message is in its run."""

    ANSWER = "answer"
    INTERIM = "interim"


class StepKind(StrEnum):
    """What a step of the live box stands for."""

    TOOL_CALL = "tool_call"
    SUBAGENT = "subagent"


class StepState(StrEnum):
    """How far a step is."""

    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"


class ElementKind(StrEnum):
    """What an element of the context is."""

    MESSAGE = "message"
    SUMMARY = "summary"
    PARTICIPANTS = "participants"
    FILE = "file"


class ScanStatus(StrEnum):
    """What the server's scanner said of a file."""

    CLEAN = "clean"
    SKIPPED = "skipped"
    PENDING = "pending"
    INFECTED = "infected"


class ComponentKind(StrEnum):
    """What a component of a card is."""

    BUTTON = "button"
    SELECT = "select"


class ComponentStyle(StrEnum):
    """How a button looks."""

    PRIMARY = "primary"
    SECONDARY = "secondary"
    DANGER = "danger"


class Restriction(StrEnum):
    """Who may use a component."""

    RUN_STARTER = "run_starter"
    OWNER = "owner"
    ANYONE = "anyone"


class Capability(StrEnum):
    """What a person must be allowed to do to use a component."""

    APPROVE_ACTIONS = "approve_actions"


class CloseReason(StrEnum):
    """Why a card was closed."""

    EXPIRED = "expired"
    ANSWERED = "answered"
    CANCELLED = "cancelled"


class ResumeCause(StrEnum):
    """What ended the wait of a card."""

    INTERACTION = "interaction"
    FOLLOWUP = "followup"
    PROMPT_EXPIRED = "prompt_expired"


class FollowupState(StrEnum):
    """How far a follow-up came."""

    DELIVERED = "delivered"
    ABSORBED = "absorbed"


class BindFailure(StrEnum):
    """Why a session that was asked for could not be continued."""

    SESSION_MISSING = "session_missing"


class InteractionStatus(StrEnum):
    """How the adapter answered an interaction."""

    ACKNOWLEDGED = "acknowledged"
    FAILED = "failed"


class HeartbeatState(StrEnum):
    """How the adapter is."""

    ONLINE = "online"
    DEGRADED = "degraded"


class DegradedReason(StrEnum):
    """Why the adapter is degraded."""

    BUSY_MODE_INVALID = "busy_mode_invalid"
    BILLING_EVIDENCE_UNKNOWN = "billing_evidence_unknown"
    RESTORE_PENDING = "restore_pending"
    RUNTIME_UNSUPPORTED = "runtime_unsupported"
    RUNTIME_CONTRACT_MISSING = "runtime_contract_missing"
    STATE_UNWRITABLE = "state_unwritable"


class EventType(StrEnum):
    """The event types of this version; others are acked and ignored."""

    INVOCATION = "agent.invocation"
    FOLLOWUP = "agent.followup"
    INTERACTION = "interaction.created"
    RUN_ENDED = "run.ended"
    CONFIG_CHANGED = "agent.config_changed"


class ProblemCode(StrEnum):
    """The stable codes of problem answers (section 13)."""

    UNAUTHORIZED = "unauthorized"
    TOKEN_EXPIRED = "token_expired"  # noqa: S105  # a code, not a password
    USE_DPOP_NONCE = "use_dpop_nonce"
    INVALID_DPOP_PROOF = "invalid_dpop_proof"
    FORBIDDEN = "forbidden"
    NOT_FOUND = "not_found"
    RUN_ENDED = "run_ended"
    RUN_NOT_STARTABLE = "run_not_startable"
    RUN_NOT_RUNNING = "run_not_running"
    RUN_NOT_WAITING = "run_not_waiting"
    CARD_OPEN = "card_open"
    CARD_CLOSED = "card_closed"
    BILLING_MODE_MISMATCH = "billing_mode_mismatch"
    TOOL_CLASS_EXCEEDED = "tool_class_exceeded"
    VERSION_CONFLICT = "version_conflict"
    PRECONDITION_REQUIRED = "precondition_required"
    PRECONDITION_FAILED = "precondition_failed"
    TITLE_NOT_AUTO = "title_not_auto"
    COSTS_NOT_ENABLED = "costs_not_enabled"
    FILE_REFUSED = "file_refused"
    FOLLOWUP_ABSORBED = "followup_absorbed"
    INTERACTION_ANSWERED = "interaction_answered"
    CONTENT_TOO_LONG = "content_too_long"
    COMPONENT_INVALID = "component_invalid"
    VALIDATION_FAILED = "validation_failed"
    UNSUPPORTED_MEDIA_TYPE = "unsupported_media_type"
    RATE_LIMITED = "rate_limited"
