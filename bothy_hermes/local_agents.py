"""The adapter's HTTP side: from a request to an operation, its body, its answer, and what it did wrong.

Layer: default. Every violation is counted and logged here, by operation and reason; so is every failure
of the server itself, so that no test that looks at the list stays green over one. Nothing that a request
holds is ever logged.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar
from uuid import UUID

from .codec import parse
from .defaults import LOGGER_NAME
from .errors import StateError, WireError
from .local_auth import Gate
from .local_call import Call, consumer_of
from .local_calls import Calls
from .local_files import file_response
from .local_http import Request, Response, problem
from .local_instance import Instance
from .local_messages import check_content_size
from .local_options import ACK_GRACE_SECONDS
from .local_reads import agent_of, file_of
from .local_rules import Refused, Violation, conflict, not_found
from .wire_operations import OPEN_GATEWAY, OPERATIONS, Operation
from .wire_words import SUBPROTOCOL, ProblemCode

API_BASE = "/api/v1"
"""Where the agent API lies below the server's origin."""

ACK_POLL_SECONDS = 0.02
"""How often a call that came before its ack looks again."""

MAX_VIOLATIONS = 1_000
"""Violations that are kept; whoever sends more of them is logged all the same."""

_LOGGER = logging.getLogger(LOGGER_NAME)


class AnswerLostError(Exception):
    """The connection is to be closed without an answer."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A disturbance that a test or a rehearsal asks for.

    Attributes:
        status: Answer this instead of doing the call, None to do it.
        code: The problem's code.
        retry_after: Seconds, for the header.
        wait: Seconds before anything is done.
        lose: "before" the call is done or "after" it, the connection ends without an answer.
    """

    status: int | None = None
    code: ProblemCode | None = None
    retry_after: int | None = None
    wait: float = 0.0
    lose: str | None = None

    LOSE_BEFORE: ClassVar[Fault]
    LOSE_AFTER: ClassVar[Fault]

    @classmethod
    def answer(cls, status: int, code: str | None = None, retry_after: int | None = None) -> Fault:
        """Make the fault of an answer that the call does not get."""
        return cls(status, None if code is None else ProblemCode(code), retry_after)

    @classmethod
    def delay(cls, seconds: float) -> Fault:
        """Make the fault of a slow server."""
        return cls(wait=seconds)


Fault.LOSE_BEFORE = Fault(lose="before")
Fault.LOSE_AFTER = Fault(lose="after")


class _OtherMethod(Refused):
    """A path that is there, asked for with a method that it does not have.

    Attributes:
        allowed: The methods that it has.
    """

    def __init__(self, allowed: Iterable[str]) -> None:
        super().__init__(405, ProblemCode.NOT_FOUND, "another method", violation=True)
        self.allowed = sorted(allowed)


@dataclass(frozen=True, slots=True)
class _Route:
    operation: Operation
    pattern: re.Pattern[str]


def _route(operation: Operation) -> _Route:
    pattern = re.sub(r"\{(\w+)\}", r"(?P<\1>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})", operation.path)
    return _Route(operation, re.compile(pattern))


_ROUTES = tuple(_route(operation) for operation in OPERATIONS)


class AgentSide:
    """Answers the adapter's requests.

    Args:
        instance: The domain.
        public_url: Returns the API base that proofs are made for.
        ack_grace: Seconds that a call waits for the ack it depends on.

    Attributes:
        violations: The first violations, as `operation: reason`.
        fault: Asked before each operation; None asks nothing.
    """

    def __init__(
        self, instance: Instance, public_url: Callable[[], str], *, ack_grace: float = ACK_GRACE_SECONDS
    ) -> None:
        self._instance = instance
        self._ack_grace = ack_grace
        self._gate = Gate(instance.core, instance.nonces, public_url)
        self._calls = Calls(instance, self.report)
        self.violations: list[str] = []
        self.fault: Callable[[str, Request], Fault | None] | None = None

    def report(self, violation: Violation) -> None:
        """Count and log a violation."""
        self._keep(str(violation))
        _LOGGER.warning("violation of the protocol: %s", violation)

    async def answer(self, request: Request) -> Response:
        """Answer one request; whatever goes wrong is an answer as well.

        Raises:
            AnswerLostError: A fault asks for it.
        """
        name = "http"
        try:
            operation, ids = self._match(request)
            name = operation.name
            return await self._disturbed(operation, ids, request)
        except (Refused, WireError, RecursionError) as error:
            return self.refuse(name, _refusal(error))
        except AnswerLostError:
            raise
        except Exception as error:  # noqa: BLE001  # one bad call must not take the server down
            return self.failed(name, error)

    def admit(self, request: Request) -> tuple[str, Mapping[str, str]] | Response:
        """Decide whether a WebSocket is opened.

        Returns:
            The consumer and what the handshake's answer says beside the usual, or the refusal.
        """
        try:
            operation, ids = self._match(request)
            caller = self._gate.check(request, operation, self._path(request))
            agent_of(self._instance, Call(operation, caller, ids, None, request))
            consumer = consumer_of(request)
            offered = request.headers.get("sec-websocket-protocol", "")
            if not request.upgrade or SUBPROTOCOL not in {one.strip() for one in offered.split(",")}:
                self.report(Violation(operation.name, "no WebSocket of the known subprotocol"))
                return problem(426, ProblemCode.VALIDATION_FAILED, {"Upgrade": "websocket"})
        except Refused as refused:
            return self.refuse(OPEN_GATEWAY.name, refused)
        return consumer, self._gate.headers()

    def refuse(self, name: str, refused: Refused) -> Response:
        """Answer a refusal, and count it where the protocol forbids the call."""
        if refused.violation:
            self.report(Violation(name, refused.why))
        headers = self._gate.headers(refused)
        if refused.code is ProblemCode.RATE_LIMITED:
            headers["Retry-After"] = "1"
        if isinstance(refused, _OtherMethod):
            headers["Allow"] = ", ".join(refused.allowed)
        return problem(refused, headers=headers)

    def is_gateway(self, request: Request) -> bool:
        """Whether a request is for the gateway."""
        try:
            return self._match(request)[0] is OPEN_GATEWAY
        except Refused:
            return False

    async def gateway_fault(self, request: Request) -> Response | None:
        """Ask for a fault of the handshake and wait or answer as it says."""
        fault = self._fault(OPEN_GATEWAY.name, request)
        await asyncio.sleep(fault.wait)
        if fault.lose is not None:
            raise AnswerLostError
        return self._faulty(fault)

    # Steps -----------------------------------------------------------------------------------------

    def _path(self, request: Request) -> str:
        return request.target.partition("?")[0].removeprefix(API_BASE)

    def _match(self, request: Request) -> tuple[Operation, Mapping[str, UUID]]:
        path = request.path.removeprefix(API_BASE)
        allowed: set[str] = set()
        for route in _ROUTES:
            found = route.pattern.fullmatch(path)
            if found is None:
                continue
            if request.method == route.operation.method:
                return route.operation, {name: UUID(text) for name, text in found.groupdict().items()}
            allowed.add(route.operation.method)
        if allowed:
            raise _OtherMethod(allowed)
        raise not_found("no such operation")

    async def _disturbed(self, operation: Operation, ids: Mapping[str, UUID], request: Request) -> Response:
        fault = self._fault(operation.name, request)
        await asyncio.sleep(fault.wait)
        if fault.lose == "before":
            raise AnswerLostError
        response = self._faulty(fault) or await self._carry_out(operation, ids, request)
        if fault.lose == "after":
            raise AnswerLostError
        return dataclasses.replace(response, headers={**response.headers, **self._gate.headers()})

    def _fault(self, name: str, request: Request) -> Fault:
        found = self.fault(name, request) if self.fault is not None else None
        return found or Fault()

    def _faulty(self, fault: Fault) -> Response | None:
        if fault.status is None:
            return None
        headers = {} if fault.retry_after is None else {"Retry-After": str(fault.retry_after)}
        return problem(fault.status, fault.code, headers)

    async def _carry_out(self, operation: Operation, ids: Mapping[str, UUID], request: Request) -> Response:
        caller = self._gate.check(request, operation, self._path(request))
        call = Call(operation, caller, ids, self._read_body(operation, request), request)
        if operation.name == "downloadFile":
            return self._download(call)
        await self._await_ack(call)
        return self._calls.run(call)

    def _read_body(self, operation: Operation, request: Request) -> Any:
        if operation.body is None:
            return None
        value = request.json()
        if isinstance(value, Mapping):
            check_content_size(value.get("content"), self._instance.options.max_content_bytes)
        return parse(operation.body, value)

    async def _await_ack(self, call: Call) -> None:
        for _ in range(int(self._ack_grace / ACK_POLL_SECONDS)):
            if not self._calls.too_early(call):
                return
            await asyncio.sleep(ACK_POLL_SECONDS)
        if self._calls.too_early(call):
            raise conflict(
                ProblemCode.RUN_NOT_STARTABLE, "the call came before the ack of its event", violation=True
            )

    def _download(self, call: Call) -> Response:
        attachment = file_of(self._instance, call)
        path = self._instance.store.file_path(attachment.id)
        if not path.is_file() or path.stat().st_size != attachment.size_bytes:
            # Somebody was in the state directory. A 5xx would be asked for again until the run's end.
            self._keep("server: the bytes of a file are gone")
            _LOGGER.error("file %s: its bytes are not what they were", attachment.id)
            raise Refused(404, ProblemCode.NOT_FOUND, "the bytes of the file are gone")
        return file_response(
            path, attachment.size_bytes, attachment.media_type, call.request.headers.get("range")
        )

    def failed(self, name: str, error: Exception) -> Response:
        """Note that the server itself failed, without what it was about, and answer that."""
        kind = type(error).__name__
        self._keep(f"server: {name} failed ({kind})")
        if isinstance(error, StateError):
            _LOGGER.error("%s: not written: %s", name, error)
            return problem(503)
        _LOGGER.error("%s: the server failed (%s)", name, kind)
        return problem(500)

    def _keep(self, text: str) -> None:
        if len(self.violations) < MAX_VIOLATIONS:
            self.violations.append(text)


def _refusal(error: Refused | WireError | RecursionError) -> Refused:
    if isinstance(error, Refused):
        return error
    if isinstance(error, RecursionError):
        return Refused(400, ProblemCode.VALIDATION_FAILED, "the body is nested too deeply", violation=True)
    card = error.path.startswith("components")
    code = ProblemCode.COMPONENT_INVALID if card else ProblemCode.VALIDATION_FAILED
    return Refused(422, code, str(error), violation=True)
