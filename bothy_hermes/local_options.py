"""The embedded server's options and the times it works with.

Layer: default. Options are what an operator may choose for one start; the times below are fixed by the
protocol (docs/protocol.md, the sections are named) and have no option.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from .wire_words import MAX_CONTENT_BYTES, MAX_TOKEN_LIFE_SECONDS, BillingMode, ToolClass

MAX_IN_FLIGHT = 64
"""Events of thread order that one connection may leave unacked (section 5)."""

IDENTIFY_SECONDS = 10.0
"""How long a new connection may take to identify itself (section 5)."""

PING_SECONDS = 20.0
"""Interval of pings, and how long a pong may take (section 5)."""

EVENT_LIFE_SECONDS = 86_400.0
"""An older event is not delivered any more (section 5)."""

QUEUED_MAX_AGE_SECONDS = 600.0
"""How long a run may wait although it could be started, `run.queued_max_age` (section 7)."""

QUEUED_HARD_AGE_SECONDS = 86_400.0
"""How long a run may wait in any case (section 7)."""

CONSUMER_GONE_SECONDS = 60.0
"""How long a run that was offered and not taken keeps a consumer that is gone (section 5)."""

OFFLINE_SECONDS = 90.0
"""A consumer without a heartbeat for so long is shown offline (section 7)."""

AGENT_OFFLINE_SECONDS = 600.0
"""The started runs of a consumer without a heartbeat for so long end (section 7)."""

AFTER_END_SECONDS = 86_400.0
"""How long the adapter may still report on a run that the server ended (section 7)."""

KEPT_SECONDS = 172_800.0
"""How long settled events and answers for repetitions are kept: the adapter's 48 h (section 5)."""

AGE_STEP_SECONDS = 5.0
"""How often the age of waiting runs is written down; a crash forgets at most so much of it."""

ACK_GRACE_SECONDS = 2.0
"""How long a call waits for the ack it depends on: the two travel on different connections."""

MAX_CONTEXT_ELEMENTS = 200
"""Elements of one context; older ones are left out and `truncated` says so."""

MAX_CONTEXT_BYTES = 1_048_576
"""Bytes of text in one context; older elements are left out (the trigger and what follows never)."""


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """What an operator may choose when the server starts.

    Attributes:
        tool_class: The tool class that new runs grant.
        billing_mode: Whose money new runs spend.
        dpop: Whether the agent's tokens are bound to a DPoP key (decided when the state is made).
        run_update_min_interval_ms: Shortest time between two patches of a run document.
        ack_timeout_ms: An event not acked for so long is delivered again.
        heartbeat_interval_ms: How often the adapter is asked to send a heartbeat.
        costs_enabled: Whether costs are booked.
        max_content_bytes: Bytes of UTF-8 in one message.
        token_life_seconds: Life of a run token, at most 900.
        public_url: The API base that proofs are made for, None for the address that is listened on.
    """

    tool_class: ToolClass = ToolClass.HOST
    billing_mode: BillingMode = BillingMode.ORGANIZATION
    dpop: bool = False
    run_update_min_interval_ms: int = 1_000
    ack_timeout_ms: int = 30_000
    heartbeat_interval_ms: int = 30_000
    costs_enabled: bool = True
    max_content_bytes: int = MAX_CONTENT_BYTES
    token_life_seconds: int = MAX_TOKEN_LIFE_SECONDS
    public_url: str | None = None

    @property
    def public_origin(self) -> str | None:
        """What a browser calls the server behind its proxy, in lower case; None without a public URL."""
        if self.public_url is None:
            return None
        parts = urlsplit(self.public_url.lower())
        usual = {"http": ":80", "https": ":443"}.get(parts.scheme, "")
        return f"{parts.scheme}://{parts.netloc.removesuffix(usual)}"

    def __post_init__(self) -> None:
        object.__setattr__(self, "tool_class", ToolClass(self.tool_class))
        object.__setattr__(self, "billing_mode", BillingMode(self.billing_mode))
        if not 1 <= self.token_life_seconds <= MAX_TOKEN_LIFE_SECONDS:
            raise ValueError(f"token_life_seconds is not within 1 to {MAX_TOKEN_LIFE_SECONDS}")
        if not 1 <= self.max_content_bytes <= MAX_CONTENT_BYTES:
            raise ValueError(f"max_content_bytes is not within 1 to {MAX_CONTENT_BYTES}")
