"""What the adapter does after a gateway connection ended or did not come about.

Layer: values. The table of docs/protocol.md, section 5, as data (`RULES`), the states of a connection,
and the wait before the next attempt. No socket and no clock: endings go in, seconds come out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from .backoff import BASE_SECONDS, CAP_SECONDS, MAX_RETRY_AFTER_SECONDS, Backoff
from .errors import GatewayRefused, IllegalMove
from .wire_words import ProblemCode

USEFUL_SECONDS = 30.0
"""A link that lived this long did its work; a shorter one counts as one more failure."""

AUTH_RETRY_SECONDS = 60.0
"""Between two tries with a refused token: somebody has to put another one into the file."""

AUTH_JITTER_SECONDS = 5.0
"""On top, so that agents of one server do not come in step."""

REPLACED_WAIT_SECONDS = (30.0, 45.0)
"""After being replaced: two adapters under one name must not fight, and a restart must find its place."""

REPLACED_LIMIT = 3
REPLACED_WINDOW_SECONDS = 600.0
"""Replaced that often within this time is a second adapter, not a restart; also its slow interval."""

LOST = 1006
"""The code of a connection that ended without a close frame (RFC 6455, section 7.4.1)."""

FIRST_OWN_CODE = 4000
"""From here on close codes have the meaning that this protocol gives them."""


class ConnectionState(StrEnum):
    """How far the one connection to the gateway is."""

    WAITING = "waiting"
    """None; the next attempt comes after a wait."""
    CONNECTING = "connecting"
    """The handshake is under way."""
    IDENTIFYING = "identifying"
    """The socket is open, the server has not taken the adapter yet."""
    READY = "ready"
    """Events come."""
    STOPPED = "stopped"
    """No further attempt."""


CONNECTION_MOVES: Mapping[ConnectionState, frozenset[ConnectionState]] = {
    ConnectionState.WAITING: frozenset({ConnectionState.CONNECTING, ConnectionState.STOPPED}),
    ConnectionState.CONNECTING: frozenset(
        {ConnectionState.IDENTIFYING, ConnectionState.WAITING, ConnectionState.STOPPED}
    ),
    ConnectionState.IDENTIFYING: frozenset(
        {ConnectionState.READY, ConnectionState.WAITING, ConnectionState.STOPPED}
    ),
    ConnectionState.READY: frozenset({ConnectionState.WAITING, ConnectionState.STOPPED}),
    ConnectionState.STOPPED: frozenset(),
}
"""Every legal move of the connection."""


def check_move(source: ConnectionState, target: ConnectionState) -> ConnectionState:
    """Return the target of a legal move.

    Raises:
        IllegalMove: The table does not have it.
    """
    if target not in CONNECTION_MOVES[source]:
        raise IllegalMove("connection", source, target)
    return target


class Where(StrEnum):
    """What a code belongs to."""

    HTTP = "http"
    """The status of an answer that refused the handshake."""
    CLOSE = "close"
    """The code of a WebSocket close frame."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a connection ended, or why it did not come about.

    Attributes:
        where: What the code belongs to.
        code: The HTTP status or close code; `LOST` when there was none.
        retry_after: Seconds the server asked to wait, None when it did not.
        detail: What is known beside the code, for the log.
    """

    where: Where
    code: int
    retry_after: float | None = None
    detail: str = ""

    def __str__(self) -> str:
        name = "lost" if (self.where, self.code) == (Where.CLOSE, LOST) else f"{self.where} {self.code}"
        return f"{name} ({self.detail})" if self.detail else name


def no_answer(detail: str = "") -> Ending:
    """The ending of an attempt that brought no connection, or one that broke off."""
    return Ending(Where.CLOSE, LOST, detail=detail)


class Action(StrEnum):
    """What comes after an ending."""

    BACKOFF = "backoff"
    LOGIN = "login"
    REPLACED = "replaced"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of the connection table.

    Attributes:
        where: What the codes belong to.
        first: Lowest code.
        last: Highest code.
        action: What comes after it.
        say: What the operator is told, empty for an ordinary loss.
    """

    where: Where
    first: int
    last: int
    action: Action
    say: str = ""


def _http(first: int, action: Action, say: str = "", last: int | None = None) -> Rule:
    return Rule(Where.HTTP, first, last or first, action, say)


def _close(first: int, action: Action, say: str = "", last: int | None = None) -> Rule:
    return Rule(Where.CLOSE, first, last or first, action, say)


_TOKEN = "the server refuses the agent's token; put a valid one into hermes_adapter.token_file"  # noqa: S105  # a sentence
_PROOF = (
    "the server refuses the proof of the agent's key; put the key that it knows into"
    " hermes_adapter.dpop_key_file and start the gateway again"
)
_FORBIDDEN = "this agent may not connect; ask the server's administrator"
_VERSION = "the server does not speak this version of the protocol; update the adapter or the server"

RULES: tuple[Rule, ...] = (
    _http(300, Action.BACKOFF, "the server redirects, which is never followed; check server_url", last=399),
    _http(401, Action.LOGIN, _TOKEN),
    _http(403, Action.STOP, _FORBIDDEN),
    _http(404, Action.STOP, "the server does not know this agent or path; check hermes_adapter.server_url"),
    _http(422, Action.STOP, "the server refuses the name in hermes_adapter.consumer"),
    _http(426, Action.STOP, _VERSION),
    _http(429, Action.BACKOFF),
    _http(500, Action.BACKOFF, last=599),
    _close(4400, Action.BACKOFF, "the server did not understand a frame of this adapter; this is a bug"),
    _close(4401, Action.LOGIN, _TOKEN),
    _close(4403, Action.STOP, _FORBIDDEN),
    _close(4409, Action.REPLACED),
    _close(4426, Action.STOP, _VERSION),
    _close(1000, Action.BACKOFF, last=4999),
)
"""The connection table; the first row that holds a code counts, the last one is every loss."""

_ODD_ANSWER = _http(0, Action.BACKOFF, "the server answered the handshake in an unknown way", last=999)


def rule_for(ending: Ending) -> Rule:
    """The row of an ending; a code that the table lacks is a loss."""
    fallback = _ODD_ANSWER if ending.where is Where.HTTP else RULES[-1]
    return next(
        (row for row in RULES if row.where is ending.where and row.first <= ending.code <= row.last), fallback
    )


@dataclass(frozen=True, slots=True)
class Wait:
    """The time until the next attempt.

    Attributes:
        seconds: How long.
        say: What the operator is told, empty for nothing.
    """

    seconds: float
    say: str = ""


class Reconnector:
    """Decides after each ending when the next attempt is made.

    Args:
        monotonic: Seconds of a clock that never goes back.
        uniform: Draws a float between two bounds.
    """

    def __init__(self, monotonic: Callable[[], float], uniform: Callable[[float, float], float]) -> None:
        self._monotonic = monotonic
        self._uniform = uniform
        self._backoff = Backoff(BASE_SECONDS, CAP_SECONDS, uniform)
        self._ready_at: float | None = None
        self._replaced_at: deque[float] = deque(maxlen=REPLACED_LIMIT)
        self._contested = False

    def ready(self) -> None:
        """The server took the connection."""
        self._ready_at = self._monotonic()

    def after(self, ending: Ending) -> Wait:
        """Tell how long to wait after an ending.

        Raises:
            GatewayRefused: No attempt makes sense any more.
        """
        lived = 0.0 if self._ready_at is None else self._monotonic() - self._ready_at
        self._ready_at = None
        if lived >= USEFUL_SECONDS:
            self._backoff.reset()
        if lived >= REPLACED_WINDOW_SECONDS:
            self._contested = False
        rule = rule_for(ending)
        if rule.action is Action.STOP:
            raise GatewayRefused(ending.where, ending.code, rule.say)
        if rule.action is Action.LOGIN:
            say = _PROOF if ending.detail == ProblemCode.INVALID_DPOP_PROOF else rule.say
            return Wait(self._at_least(ending, AUTH_RETRY_SECONDS, AUTH_JITTER_SECONDS), say)
        if rule.action is Action.REPLACED:
            return self._after_replacement()
        return Wait(self._backoff.next_delay(ending.retry_after), rule.say)

    def _at_least(self, ending: Ending, seconds: float, jitter: float) -> float:
        asked = min(ending.retry_after or 0.0, MAX_RETRY_AFTER_SECONDS)
        return max(seconds, asked) + self._uniform(0.0, jitter)

    def _after_replacement(self) -> Wait:
        now = self._monotonic()
        self._replaced_at.append(now)
        often = len(self._replaced_at) == REPLACED_LIMIT
        if often and now - self._replaced_at[0] <= REPLACED_WINDOW_SECONDS:
            self._contested = True
        if not self._contested:
            return Wait(self._uniform(*REPLACED_WAIT_SECONDS))
        return Wait(
            REPLACED_WINDOW_SECONDS,
            "another adapter connects under this name; give each its own hermes_adapter.consumer",
        )
