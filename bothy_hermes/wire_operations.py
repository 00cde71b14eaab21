"""The protocol's operations: which call, with which token, takes and gives what (section 4).

Layer: values.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from .wire import (
    AgentSession,
    AllowList,
    AwaitRunInput,
    CloseCard,
    CreateMessage,
    DocumentVersion,
    FinishRun,
    Followup,
    Heartbeat,
    InteractionResponse,
    InteractionView,
    KeySetBody,
    Me,
    Message,
    ReportAgentSession,
    ResumeRun,
    RunContext,
    RunView,
    ServedChannelConfig,
    SetThreadTitle,
    StartRun,
    ThreadView,
    TokenAnswer,
    UpdateMessage,
    UpdateRun,
)
from .wire_events import RunList


class TokenKind(StrEnum):
    """Which token an operation takes."""

    AGENT = "agent"
    RUN = "run"


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of the API.

    Attributes:
        name: The operation ID.
        method: The HTTP method.
        path: Below the API base; `{…}` are UUIDs.
        tokens: The kinds of token it takes; empty for none.
        body: The request's wire type, None without a body.
        answer: The answer's wire type, None where the body is not JSON or empty.
        status: The status of success; a repetition of createMessage answers 200 instead of 201.
        query: Names of query parameters.
        if_match: Whether the request must carry `If-Match`.
        if_none_match: Whether the request may carry `If-None-Match`.
        changes: Whether it changes something (and may therefore be repeated only as section 3 says).
    """

    name: str
    method: str
    path: str
    tokens: frozenset[TokenKind]
    body: type[Any] | None = None
    answer: type[Any] | None = None
    status: int = 200
    query: tuple[str, ...] = ()
    if_match: bool = False
    if_none_match: bool = False

    @property
    def changes(self) -> bool:
        """Whether a request of it changes something on the server."""
        return self.method != "GET"


_A = frozenset({TokenKind.AGENT})
_R = frozenset({TokenKind.RUN})

GET_ME = Operation("getMe", "GET", "/me", _A, answer=Me)
GET_JWKS = Operation("getJwks", "GET", "/jwks.json", frozenset(), answer=KeySetBody)
OPEN_GATEWAY = Operation(
    "openGateway", "GET", "/agents/{agent_id}/gateway", _A, status=101, query=("consumer",)
)
GET_ALLOW_LIST = Operation(
    "getAllowList", "GET", "/agents/{agent_id}/allow-list", _A, answer=AllowList, if_none_match=True
)
PUT_HEARTBEAT = Operation(
    "putHeartbeat", "PUT", "/agents/{agent_id}/heartbeat", _A, body=Heartbeat, status=204, query=("consumer",)
)
LIST_RUNS = Operation(
    "listRuns", "GET", "/agents/{agent_id}/runs", _A, answer=RunList, query=("state", "consumer")
)
GET_SERVED_CHANNEL_CONFIG = Operation(
    "getServedChannelConfig", "GET", "/channels/{channel_id}/served-config", _R, answer=ServedChannelConfig
)
START_RUN = Operation("startRun", "POST", "/runs/{run_id}/start", _R, body=StartRun, answer=RunView)
GET_RUN = Operation("getRun", "GET", "/runs/{run_id}", _A | _R, answer=RunView)
GET_RUN_CONTEXT = Operation("getRunContext", "GET", "/runs/{run_id}/context", _R, answer=RunContext)
RENEW_RUN_TOKEN = Operation("renewRunToken", "POST", "/runs/{run_id}/token", _A | _R, answer=TokenAnswer)
UPDATE_RUN = Operation(
    "updateRun", "PATCH", "/runs/{run_id}/document", _R, body=UpdateRun, answer=DocumentVersion
)
CREATE_MESSAGE = Operation(
    "createMessage", "POST", "/runs/{run_id}/messages", _R, body=CreateMessage, answer=Message, status=201
)
UPDATE_MESSAGE = Operation(
    "updateMessage", "PATCH", "/messages/{message_id}", _R, body=UpdateMessage, answer=Message, if_match=True
)
AWAIT_RUN_INPUT = Operation(
    "awaitRunInput", "POST", "/runs/{run_id}/await-input", _R, body=AwaitRunInput, answer=RunView
)
RESUME_RUN = Operation("resumeRun", "POST", "/runs/{run_id}/resume", _R, body=ResumeRun, answer=RunView)
CLOSE_CARD = Operation(
    "closeCard", "POST", "/messages/{message_id}/close", _R, body=CloseCard, answer=Message
)
REPORT_FOLLOWUP = Operation(
    "reportFollowup", "PUT", "/runs/{run_id}/followups/{message_id}", _R, body=Followup, answer=Followup
)
RESPOND_TO_INTERACTION = Operation(
    "respondToInteraction",
    "POST",
    "/interactions/{interaction_id}/response",
    _R,
    body=InteractionResponse,
    answer=InteractionView,
)
FINISH_RUN = Operation("finishRun", "POST", "/runs/{run_id}/finish", _R, body=FinishRun, answer=RunView)
REPORT_AGENT_SESSION = Operation(
    "reportAgentSession",
    "PUT",
    "/threads/{thread_id}/agent-session",
    _R,
    body=ReportAgentSession,
    answer=AgentSession,
    if_match=True,
)
SET_THREAD_TITLE = Operation(
    "setThreadTitle",
    "PUT",
    "/threads/{thread_id}/title",
    _R,
    body=SetThreadTitle,
    answer=ThreadView,
    if_match=True,
)
DOWNLOAD_FILE = Operation("downloadFile", "GET", "/files/{file_id}", _R)

OPERATIONS: tuple[Operation, ...] = (
    GET_ME,
    GET_JWKS,
    OPEN_GATEWAY,
    GET_ALLOW_LIST,
    PUT_HEARTBEAT,
    LIST_RUNS,
    GET_SERVED_CHANNEL_CONFIG,
    START_RUN,
    GET_RUN,
    GET_RUN_CONTEXT,
    RENEW_RUN_TOKEN,
    UPDATE_RUN,
    CREATE_MESSAGE,
    UPDATE_MESSAGE,
    AWAIT_RUN_INPUT,
    RESUME_RUN,
    CLOSE_CARD,
    REPORT_FOLLOWUP,
    RESPOND_TO_INTERACTION,
    FINISH_RUN,
    REPORT_AGENT_SESSION,
    SET_THREAD_TITLE,
    DOWNLOAD_FILE,
)
"""Every operation of the protocol, in the order of section 4."""
