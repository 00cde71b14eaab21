"""Who is calling: the agent token, run tokens, and the proofs that go with them (section 2).

Layer: default. It answers who it is or refuses; what the caller may do with one run is judged by
`local_calls`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from .dpop import verify_proof
from .errors import ProofRefused, TokenRefused
from .local_core import Core
from .local_http import Request
from .local_nonces import Nonces
from .local_rules import Refused, forbidden
from .local_tokens import all_keys, matches
from .secret import Secret
from .tokens import KeySet, RunClaims, verify_run_token
from .wire_operations import Operation, TokenKind
from .wire_words import ProblemCode


@dataclass(frozen=True, slots=True)
class Caller:
    """Who a request is from.

    Attributes:
        kind: Which token it came with, None for operations without one.
        claims: Of a run token.
    """

    kind: TokenKind | None
    claims: RunClaims | None = None


class Gate:
    """Checks the credentials of every request.

    Args:
        core: The agent and the server's keys.
        nonces: Nonces and seen proofs.
        public_url: Returns the API base that proofs are made for.
    """

    def __init__(self, core: Core, nonces: Nonces, public_url: Callable[[], str]) -> None:
        self._core = core
        self._nonces = nonces
        self._public_url = public_url
        self._keys: tuple[tuple[str, ...], KeySet] = ((), KeySet({}))

    def check(self, request: Request, operation: Operation, path: str) -> Caller:
        """Tell who a request is from.

        Args:
            request: The request.
            operation: What it asks for.
            path: Below the API base, as sent, without the query.

        Raises:
            Refused: 401 or 403.
        """
        if not operation.tokens:
            return Caller(None)
        scheme, _, text = request.headers.get("authorization", "").partition(" ")
        token = Secret(text.strip())
        if scheme.lower() not in ("bearer", "dpop") or not text:
            raise unauthorized("no token", violation=True)
        caller = self._identify(token)
        self._check_binding(request, scheme.lower(), token, path)
        if caller.kind not in operation.tokens:
            raise forbidden("this kind of token does not serve the operation")
        return caller

    def headers(self, refused: Refused | None = None) -> dict[str, str]:
        """Return what an answer says about credentials: the nonce, and why they were refused."""
        found: dict[str, str] = {}
        bound = self._core.state.agent.dpop_jkt is not None
        challenged = refused is not None and refused.code is ProblemCode.USE_DPOP_NONCE
        if bound and (challenged or self._core.state.instance.nonces_required):
            found["DPoP-Nonce"] = self._nonces.current
        if refused is not None and refused.status == 401:  # noqa: PLR2004  # Unauthorized
            scheme = "DPoP" if bound else "Bearer"
            error = refused.code if refused.code in _OWN_ERRORS else "invalid_token"
            found["WWW-Authenticate"] = f'{scheme} error="{error}"'
        return found

    def _identify(self, token: Secret) -> Caller:
        if matches(token, self._core.state.agent.token_digest):
            return Caller(TokenKind.AGENT)
        if token.reveal().count(".") != 2:  # noqa: PLR2004  # header, payload, signature
            raise unauthorized("an unknown token")
        agent = self._core.state.agent
        try:
            claims = verify_run_token(
                token,
                self._key_set(),
                issuer=self._core.state.instance.id,
                audience=agent.id,
                jkt=agent.dpop_jkt,
                now=self._core.now(),
            )
        except TokenRefused as error:
            if error.reason == "expired":
                raise Refused(401, ProblemCode.TOKEN_EXPIRED, "the run token has expired") from None
            raise unauthorized(f"a run token that proves nothing ({error.reason})", violation=True) from None
        return Caller(TokenKind.RUN, claims)

    def _key_set(self) -> KeySet:
        records = self._core.state.keys.all()
        kids = tuple(record.kid for record in records)
        if self._keys[0] != kids:
            self._keys = (kids, KeySet.from_body(all_keys(records)))
        return self._keys[1]

    def _check_binding(self, request: Request, scheme: str, token: Secret, path: str) -> None:
        jkt = self._core.state.agent.dpop_jkt
        if (scheme == "dpop") != (jkt is not None):
            raise invalid_proof("the token came under the wrong scheme", violation=True)
        if jkt is None:
            return
        try:
            proof = verify_proof(
                request.headers.get("dpop", ""),
                method=request.method,
                url=self._public_url() + path,
                token=token,
                now=self._core.now(),
                jkt=jkt,
            )
        except ProofRefused as error:
            raise invalid_proof(
                f"a proof that proves nothing ({error.reason})", violation=error.reason != "iat"
            ) from None
        required = self._core.state.instance.nonces_required
        if not self._nonces.satisfied(proof, required=required):
            raise Refused(401, ProblemCode.USE_DPOP_NONCE, "the proof needs the server's nonce")
        if not self._nonces.first_use(proof):
            raise invalid_proof("a proof was sent twice", violation=True)


_OWN_ERRORS = frozenset({ProblemCode.USE_DPOP_NONCE, ProblemCode.INVALID_DPOP_PROOF})
"""Codes that are also the header's error; the others are `invalid_token` there."""


def unauthorized(why: str, *, violation: bool = False) -> Refused:
    """401: nobody that this server knows."""
    return Refused(401, ProblemCode.UNAUTHORIZED, why, violation=violation)


def invalid_proof(why: str, *, violation: bool) -> Refused:
    """401: whoever holds the token did not prove to hold its key."""
    return Refused(401, ProblemCode.INVALID_DPOP_PROOF, why, violation=violation)


def serves(caller: Caller, **ids: UUID) -> bool:
    """Whether a run token is of these things; the agent token is of all of them."""
    if caller.claims is None:
        return True
    return all(getattr(caller.claims, name) == value for name, value in ids.items())
