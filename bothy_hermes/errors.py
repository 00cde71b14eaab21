"""Every error of the package, split by what the caller does next.

Layer: words. Each error carries fields and builds its text from them; no text holds a secret or
what a person wrote.

    BothyError
    ├── ConfigError          stop: the operator mends a key
    ├── StateError           stop: the state directory cannot be used
    │   ├── StateLocked      another process holds it
    │   └── StateTooNew      a newer version wrote it
    ├── StartFailed          stop: a program that was to be run is missing or does not come up
    ├── WatchLost            report: what was started and watched did not come to its end
    ├── IllegalMove          stop: a bug, a state machine was asked for a move it does not have
    ├── WireError            refuse: bytes that do not follow the protocol
    ├── TokenRefused         refuse: a run token that proves nothing
    ├── ProofRefused         refuse: a DPoP proof that proves nothing
    ├── ClockRefused         report: server and local clock are too far apart to judge any time
    ├── GatewayRefused       stop: the server takes no connection of this adapter
    ├── SessionRefused       report: Hermes left a thread on a session it must not go on with
    ├── TransportError       retry: no usable answer came
    └── ProblemAnswer        decide by code: the server answered with a problem
        ├── RunEnded         the run is over, nothing more of it is accepted
        └── VersionConflict  compute the change anew from the document that came with it
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class BothyError(Exception):
    """Base of all errors that the package raises on purpose."""


class ConfigError(BothyError, ValueError):
    """A configuration key is missing, unknown or unusable.

    Attributes:
        key: The full dotted name of the key, or of the command line option.
        problem: What is wrong, in words that never repeat the value.
    """

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(key, problem)
        self.key = key
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.key}: {self.problem}"


class StateError(BothyError):
    """The state directory or its file cannot be used.

    Attributes:
        what: The file's or directory's name, without the path above it.
        problem: What is wrong and what to do, as a sentence.
    """

    def __init__(self, what: str, problem: str) -> None:
        super().__init__(what, problem)
        self.what = what
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.what}: {self.problem}"


class StateLocked(StateError):
    """Another live process holds the state directory."""


class StateTooNew(StateError):
    """A newer version of the package wrote the state file."""


class StartFailed(BothyError):
    """A program that was to be run is missing or does not come up.

    Attributes:
        program: Its name.
        problem: What is wrong and what to do, as a sentence.
    """

    def __init__(self, program: str, problem: str) -> None:
        super().__init__(program, problem)
        self.program = program
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.program}: {self.problem}"


class WatchLost(BothyError):
    """What was started and watched did not come to its end.

    Attributes:
        problem: Why, as a sentence.
    """

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem

    def __str__(self) -> str:
        return self.problem


class IllegalMove(BothyError):
    """A state machine was asked for a move that its table does not have.

    Attributes:
        machine: What has the state (run, card, inbox entry, connection).
        source: The state it is in.
        target: The state it was to enter.
    """

    def __init__(self, machine: str, source: str, target: str) -> None:
        super().__init__(machine, source, target)
        self.machine = machine
        self.source = source
        self.target = target

    def __str__(self) -> str:
        return f"{self.machine}: no move from {self.source} to {self.target}"


class WireError(BothyError, ValueError):
    """JSON that does not follow the protocol.

    Attributes:
        path: Where, as a dotted path of member names and indexes ("" is the whole value).
        problem: What was expected there; never the value that stood there.
    """

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(path, problem)
        self.path = path
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.path or 'value'}: {self.problem}"


class TokenRefused(BothyError):
    """A run token that proves nothing.

    Attributes:
        reason: A fixed word for logs: malformed, typ, alg, kid, signature, iss, aud, expired,
            not_yet, claims, jkt, binding, replayed.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"run token refused ({self.reason})"


class ProofRefused(BothyError):
    """A DPoP proof that proves nothing.

    Attributes:
        reason: A fixed word for logs: malformed, typ, alg, jwk, signature, claims, htm, htu, iat,
            ath, jkt.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"DPoP proof refused ({self.reason})"


class ClockRefused(BothyError):
    """The server's clock and the local one are so far apart that no time can be judged.

    Attributes:
        skew: Server time minus local time, in seconds.
    """

    def __init__(self, skew: float) -> None:
        super().__init__(skew)
        self.skew = skew

    def __str__(self) -> str:
        return f"the server's clock differs by {self.skew:+.0f} s; set this machine's clock"


class GatewayRefused(BothyError):
    """The server takes no gateway connection of this adapter; trying again changes nothing.

    Attributes:
        where: "http" for an answer to the handshake, "close" for a close code.
        code: The HTTP status or the close code.
        problem: What it means and what the operator can do, as a sentence.
    """

    def __init__(self, where: str, code: int, problem: str) -> None:
        super().__init__(where, code, problem)
        self.where = where
        self.code = code
        self.problem = problem

    def __str__(self) -> str:
        return f"gateway refused ({self.where} {self.code}): {self.problem}"


class SessionRefused(BothyError):
    """Hermes left a thread on a session that its next turn must not go on with.

    Attributes:
        command: The command that had no effect.
    """

    def __init__(self, command: str) -> None:
        super().__init__(command)
        self.command = command

    def __str__(self) -> str:
        return f"the thread's session could not be changed: {self.command} had no effect"


class TransportError(BothyError):
    """No usable answer came back.

    Attributes:
        operation: The operation's name.
        cause: A fixed word: connect, tls (no trusted connection), timeout, reset, stale (a kept
            connection turned out to be dead), too_large, malformed, redirect, closed (by us).
        sent: Whether the server may have acted on the request (True when that is unknown).
    """

    def __init__(self, operation: str, cause: str, *, sent: bool) -> None:
        super().__init__(operation, cause, sent)
        self.operation = operation
        self.cause = cause
        self.sent = sent

    def __str__(self) -> str:
        doubt = "the server may have acted on it" if self.sent else "nothing was sent"
        return f"{self.operation}: {self.cause} ({doubt})"


class ProblemAnswer(BothyError):
    """The server answered with an error status.

    Attributes:
        operation: The operation's name.
        status: The HTTP status.
        code: The problem's stable code, None when the answer named none.
        retry_after: Seconds the server asked to wait, None when it did not.
        extra: Members of the problem beside code (`document`, `version`); not part of the text.
    """

    def __init__(
        self,
        operation: str,
        status: int,
        code: str | None,
        *,
        retry_after: float | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(operation, status, code)
        self.operation = operation
        self.status = status
        self.code = code
        self.retry_after = retry_after
        self.extra: Mapping[str, Any] = extra or {}

    def __str__(self) -> str:
        return f"{self.operation}: {self.status} {self.code or 'without a code'}"


class RunEnded(ProblemAnswer):
    """409 `run_ended`: the run is over on the server."""


class VersionConflict(ProblemAnswer):
    """409 `version_conflict`: `extra["document"]` is the document as it stands."""


def describe(error: BaseException) -> str:
    """An error for a log line: ours by its text, any other by its type and place alone.

    The text of a foreign error may hold what somebody wrote; where it was raised never does.

    Examples:
        >>> describe(ConfigError("hermes_adapter.proxy", "is not a URL"))
        'hermes_adapter.proxy: is not a URL'
        >>> describe(ValueError("a person's words"))
        'ValueError'
    """
    if isinstance(error, BothyError):
        return str(error)
    name = type(error).__name__
    if isinstance(error, BaseExceptionGroup):
        return f"{name}({', '.join(describe(one) for one in error.exceptions)})"
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    if place is None:
        return name
    file = place.tb_frame.f_code.co_filename.rpartition("/")[2]
    return f"{name} at {file}:{place.tb_lineno}"
