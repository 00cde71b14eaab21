"""One call to the server: token, proof, attempt, and whether and when to try again.

Layer: edges. The rules are those of docs/protocol.md, section 3, as two tables: what is waited for, and
which refusals deserve one more try at once. `bothy_api` names the operations and reads their answers.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from .backoff import BASE_SECONDS, CAP_SECONDS, Backoff, parse_http_date
from .bothy_credentials import TOKEN_TEXT, TokenSource
from .bothy_http import Request, Response, Transport
from .clock import Clock
from .codec import dump, dump_json, load_json, parse
from .defaults import ADAPTER_NAME, LOGGER_NAME, VERSION
from .dpop import ProofSigner
from .errors import BothyError, ClockRefused, ProblemAnswer, TokenRefused, TransportError, WireError
from .problems import read_problem
from .secret import Secret
from .server_clock import NOTED_SKEW_SECONDS, ServerClock
from .wire_operations import GET_JWKS, Operation
from .wire_words import MAX_BODY_BYTES, ProblemCode

USER_AGENT = f"{ADAPTER_NAME}/{VERSION}"
ACCEPT = "application/json, application/problem+json"

MAX_ANSWER_BYTES = 16_777_216
"""Largest JSON answer that is read: a context of some dozen messages of the largest content."""

WAITED_STATUSES = frozenset(
    {
        HTTPStatus.TOO_MANY_REQUESTS,
        HTTPStatus.INTERNAL_SERVER_ERROR,
        HTTPStatus.BAD_GATEWAY,
        HTTPStatus.SERVICE_UNAVAILABLE,
        HTTPStatus.GATEWAY_TIMEOUT,
    }
)
"""Answers after which the same call is made again later."""

FINAL_CAUSES = frozenset({"too_large", "closed"})
"""Transport errors that another attempt would only repeat."""

TOKEN_CODES = frozenset({ProblemCode.UNAUTHORIZED, ProblemCode.TOKEN_EXPIRED})
"""Refusals that another token may mend."""

_LENGTHS = frozenset({"content-length", "transfer-encoding"})
"""Header fields by which the end of a body is known; without them it can be cut anywhere unseen."""

_NONCE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,1024}")
_log = logging.getLogger(LOGGER_NAME)


@dataclass(frozen=True, slots=True)
class Call:
    """One operation with everything that does not change between its attempts.

    Attributes:
        operation: The operation.
        ids: Values of the path's placeholders.
        auth: The token's source, None where the operation takes none.
        body: The request's wire value, None without one.
        query: Query parameters.
        headers: Further header fields.
        accept: Statuses that are answers, not errors.
        patient: Whether it is tried again until it is answered or cancelled.
        max_answer_bytes: Largest answer that is read.
        cut_answer: Whether a larger one is cut there.
    """

    operation: Operation
    auth: TokenSource | None
    ids: Mapping[str, UUID] = field(default_factory=dict)
    body: Any = field(default=None, repr=False)
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    accept: frozenset[int] = frozenset()
    patient: bool = True
    max_answer_bytes: int = MAX_ANSWER_BYTES
    cut_answer: bool = False

    @property
    def target(self) -> str:
        """Path and query below the API base."""
        path = self.operation.path.format_map(self.ids)
        return f"{path}?{urlencode(self.query)}" if self.query else path

    def encoded_body(self) -> bytes | None:
        """The body as it travels, checked against the protocol's limits.

        Raises:
            WireError: It breaks one of them; nothing is sent that the server would have to refuse.
        """
        if self.operation.body is None:
            return None
        value = dump(self.body)
        parse(self.operation.body, value)
        data = dump_json(value).encode("utf-8")
        if len(data) > MAX_BODY_BYTES:
            raise WireError("", f"has {len(data)} bytes, allowed are {MAX_BODY_BYTES}")
        return data


class Caller:
    """Makes calls.

    Args:
        server_url: The API base, also the public URL that proofs name.
        transport: Sends single attempts.
        clock: Time and chance.
        signer: Makes proofs, None without a DPoP key.
        attempt_seconds: Longest time of one attempt.

    Attributes:
        server_clock: The server's time.
    """

    def __init__(
        self,
        server_url: str,
        transport: Transport,
        clock: Clock,
        signer: ProofSigner | None,
        attempt_seconds: float,
    ) -> None:
        self._server_url = server_url
        self._transport = transport
        self._clock = clock
        self._signer = signer
        self._attempt_seconds = attempt_seconds
        self._nonce: str | None = None
        self.server_clock = ServerClock(clock)

    async def call(self, call: Call) -> Response:
        """Make a call and return its answer, one of its accepted statuses.

        Raises:
            ProblemAnswer: The server refused it for good (or at all, when it is not patient).
            TransportError: No answer came, and the call is not patient or another attempt is useless.
            ClockRefused: The clocks are too far apart, and the call is not patient.
            WireError: The body breaks a limit, or the status is none that the protocol names.
            ConfigError: The token's file cannot be read.
        """
        body = call.encoded_body()
        backoff = Backoff(BASE_SECONDS, CAP_SECONDS, self._clock.uniform)
        while True:
            try:
                response = await self._attempt_at_once(call, body)
            except (TransportError, ProblemAnswer, ClockRefused) as error:
                if not call.patient or not _is_waited_for(error):
                    raise
                await self._wait(call, backoff, error)
            else:
                _log_recovery(call, backoff)
                return response

    async def sign(
        self, method: str, url: str, auth: TokenSource | None
    ) -> tuple[dict[str, str], Secret | None]:
        """Make the header fields that prove who calls, for one attempt at this moment.

        Args:
            method: The HTTP method.
            url: The request's public URL.
            auth: The token's source, None for an operation without a token.

        Returns:
            The fields, and the token in them.

        Raises:
            ClockRefused: The clocks are too far apart to make a proof.
            TokenRefused: The token cannot stand in a header field.
        """
        if auth is None:
            return {}, None
        token = await auth.token()
        if not TOKEN_TEXT.fullmatch(token.reveal()):
            raise TokenRefused("malformed")
        if self._signer is None:
            return {"Authorization": f"Bearer {token.reveal()}"}, token
        if self.server_clock.refused:
            await self._ask_time()
        proof = self._signer.proof(
            method,
            url,
            token=token,
            nonce=self._nonce,
            now=self.server_clock.now(),
            proof_id=str(self._clock.new_id()),
        )
        return {"Authorization": f"DPoP {token.reveal()}", "DPoP": proof}, token

    def observe(self, headers: Mapping[str, str]) -> float:
        """Take the nonce and the time of any answer, errors and handshakes included.

        Args:
            headers: The answer's header fields, names in lower case.

        Returns:
            By how many seconds this moved the server's time.
        """
        nonce = headers.get("dpop-nonce")
        if nonce is not None and _NONCE.fullmatch(nonce):
            self._nonce = nonce
        moment = parse_http_date(headers.get("date"))
        return 0.0 if moment is None else self.server_clock.observe(moment)

    async def judge(
        self, operation: str, response: Response, auth: TokenSource | None, token: Secret | None
    ) -> tuple[ProblemAnswer, str | None]:
        """Judge an error answer.

        Args:
            operation: The operation's name.
            response: The answer, of a call or of a handshake.
            auth: The token's source.
            token: The token that was presented.

        Returns:
            The problem, and why one more try at once makes sense: a fixed word, good for one try, or
            None when it makes none.
        """
        shift = self.observe(response.headers)
        now = self.server_clock.estimate()
        problem = read_problem(operation, response.status, response.headers, response.body, now)
        if problem.status != HTTPStatus.UNAUTHORIZED or auth is None or token is None:
            return problem, None
        if problem.code == ProblemCode.USE_DPOP_NONCE:
            mended = self._signer is not None and "dpop-nonce" in response.headers
        elif problem.code == ProblemCode.INVALID_DPOP_PROOF:
            mended = abs(shift) > NOTED_SKEW_SECONDS
        else:
            mended = problem.code in TOKEN_CODES and await auth.refused(token, problem.code or "")
        return problem, problem.code if mended else None

    async def _attempt_at_once(self, call: Call, body: bytes | None) -> Response:
        """Try now, and again for each refusal that is mended at once; each word counts once."""
        spent: set[str] = set()
        while True:
            try:
                response, token = await self._attempt(call, body)
            except TransportError as error:
                if error.cause != "stale" or "stale" in spent:
                    raise
                spent.add("stale")
                continue
            if response.status in (call.accept or {call.operation.status}):
                _check_whole(call.operation, response)
                self.observe(response.headers)
                return response
            if response.status < HTTPStatus.BAD_REQUEST:
                raise WireError("status", f"{response.status} is no answer of {call.operation.name}")
            problem, word = await self.judge(call.operation.name, response, call.auth, token)
            if word is None or word in spent:
                raise problem
            spent.add(word)

    async def _attempt(self, call: Call, body: bytes | None) -> tuple[Response, Secret | None]:
        url = self._server_url + call.target
        proofs, token = await self.sign(call.operation.method, url, call.auth)
        headers = {
            "Accept": ACCEPT,
            "User-Agent": USER_AGENT,
            **call.headers,
            **proofs,
        }
        if body is not None:
            headers["Content-Type"] = "application/json"
        request = Request(
            operation=call.operation.name,
            method=call.operation.method,
            target=call.target,
            headers=headers,
            body=body,
            max_answer_bytes=call.max_answer_bytes,
            cut_answer=call.cut_answer,
        )
        return await self._transport.send(request, timeout=self._attempt_seconds), token

    async def _ask_time(self) -> None:
        """Hear the server's time from an answer that needs no proof: one of the clocks may be set by now."""
        try:
            response, _ = await self._attempt(Call(GET_JWKS, auth=None), None)
        except TransportError:
            return  # the call that needed the time says what is wrong
        self.observe(response.headers)

    async def _wait(self, call: Call, backoff: Backoff, error: BothyError) -> None:
        delay = backoff.next_delay(getattr(error, "retry_after", None))
        level = logging.WARNING if backoff.failures == 1 else logging.DEBUG
        _log.log(level, "%s; %s is tried again in %.1f s", error, call.operation.name, delay)
        await self._clock.sleep(delay)


def _check_whole(operation: Operation, response: Response) -> None:
    """Refuse what only looks like the server's answer: a page of somebody on the way, or half an answer.

    Raises:
        TransportError: It is none; whether the server has acted is not known.
    """
    if operation.answer is None or response.status == HTTPStatus.NOT_MODIFIED:
        return
    body = response.body.strip()
    whole = body.startswith(b"{") and body.endswith(b"}")
    if not whole or (_LENGTHS.isdisjoint(response.headers) and not _is_json(body)):
        raise TransportError(operation.name, "malformed", sent=True)


def _is_json(body: bytes) -> bool:
    try:
        load_json(body)
    except WireError:
        return False
    return True


def _is_waited_for(error: BothyError) -> bool:
    if isinstance(error, ProblemAnswer):
        return error.status in WAITED_STATUSES
    return not (isinstance(error, TransportError) and error.cause in FINAL_CAUSES)


def _log_recovery(call: Call, backoff: Backoff) -> None:
    if backoff.failures:
        _log.info("%s was answered after %d more attempts", call.operation.name, backoff.failures)
