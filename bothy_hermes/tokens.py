"""Run tokens: which proves what, and for whom.

Layer: values. A run token is a JWT of the server's, bound to one run (docs/protocol.md, section 2).
`verify_run_token` is the only way from a token to claims; whether they fit the event that carried it
is judged by the intake. Making tokens is the server's part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any
from uuid import UUID

from .codec import JsonObject, Text, parse, wire_type
from .errors import TokenRefused, WireError
from .jose import Compact, JoseError, PublicKey, check_signature, public_key, read_compact
from .secret import Secret
from .wire import KeySetBody
from .wire_words import (
    MAX_TOKEN_LIFE_SECONDS,
    RUN_TOKEN_TYPE,
    TOKEN_LEEWAY_SECONDS,
    BillingMode,
    RunKind,
)

_LEEWAY = timedelta(seconds=TOKEN_LEEWAY_SECONDS)
_MAX_LIFE = timedelta(seconds=MAX_TOKEN_LIFE_SECONDS)

MAX_ID_CHARS = 200
"""Longest key ID or token ID: both are kept, so neither may be of any size."""


@dataclass(frozen=True, slots=True)
class RunClaims:
    """What a valid run token says.

    Attributes:
        jti: The token's own ID.
        sub: The person the event is from.
        run_id: The run.
        thread_id: Its thread.
        channel_id: Its channel.
        run_kind: Why the agent is there.
        tool_class: The strongest tools that the run may use; an unknown word is below them all.
        billing_mode: Whose money the run may spend.
        issued_at: `iat`.
        expires_at: `exp`.
    """

    jti: str
    sub: UUID
    run_id: UUID
    thread_id: UUID
    channel_id: UUID
    run_kind: RunKind
    tool_class: str
    billing_mode: BillingMode
    issued_at: datetime
    expires_at: datetime


class KeySet:
    """The server's public keys by their IDs.

    Args:
        keys: The keys.
    """

    __slots__ = ("_keys",)

    def __init__(self, keys: Mapping[str, PublicKey]) -> None:
        self._keys = dict(keys)

    @classmethod
    def from_body(cls, body: KeySetBody) -> KeySet:
        """Take the usable keys of a JWK set.

        A key without an ID, of another curve, for another use, or with private parts is left out, as
        is an ID that two different keys claim: whatever names it is refused.
        """
        found: dict[str, PublicKey] = {}
        ambiguous: set[str] = set()
        for jwk in body.keys:
            kid, key = jwk.get("kid"), _usable(jwk)
            if not isinstance(kid, str) or not 0 < len(kid) <= MAX_ID_CHARS or key is None:
                continue
            if kid in found and found[kid] != key:
                ambiguous.add(kid)
            found[kid] = key
        return cls({kid: key for kid, key in found.items() if kid not in ambiguous})

    def __len__(self) -> int:
        return len(self._keys)

    def has(self, kid: str) -> bool:
        """Whether a key of that ID is in the set."""
        return kid in self._keys

    def key(self, kid: str) -> PublicKey | None:
        """The key of that ID, None when the set lacks it."""
        return self._keys.get(kid)


def _usable(jwk: JsonObject) -> PublicKey | None:
    operations = jwk.get("key_ops", ["verify"])
    if not isinstance(operations, list) or "verify" not in operations:
        return None
    try:
        return public_key(jwk)
    except JoseError:
        return None


@dataclass(frozen=True, slots=True)
class OpenToken:
    """A run token taken apart; nothing is proved yet.

    Attributes:
        key_id: The key that it names.
    """

    key_id: str
    _read: Compact = field(repr=False)

    def verify(
        self, keys: KeySet, *, issuer: UUID, audience: UUID, jkt: str | None, now: datetime
    ) -> RunClaims:
        """Prove the token and return what it says, see `verify_run_token`."""
        key = keys.key(self.key_id)
        if key is None:
            raise TokenRefused("kid")
        try:
            check_signature(self._read, key)
        except JoseError as error:
            raise TokenRefused(error.reason) from None
        said = self._read.claims
        _check_party(said, "iss", issuer)
        _check_party(said, "aud", audience)
        claims = _read_claims(said)
        _check_times(claims, _moment(said, "nbf"), now)
        _check_binding(said, jkt)
        return claims


def open_token(token: Secret) -> OpenToken:
    """Take a run token apart, to find the key set that judges it.

    Raises:
        TokenRefused: "malformed", "alg", "typ", or "kid" when it names none.
    """
    read = _read(token)
    return OpenToken(_kid(read), read)


def token_times(token: Secret) -> tuple[datetime, datetime]:
    """Tell when a token was issued and when it expires, before anything is proved.

    Raises:
        TokenRefused: "malformed", "alg", "typ" or "claims".
    """
    claims = _read(token).claims
    return _moment(claims, "iat"), _moment(claims, "exp")


def verify_run_token(
    token: Secret, keys: KeySet, *, issuer: UUID, audience: UUID, jkt: str | None, now: datetime
) -> RunClaims:
    """Prove a run token and return what it says.

    Args:
        token: The token.
        keys: The server's keys.
        issuer: The instance it must come from.
        audience: The agent it must be for.
        jkt: Thumbprint of this adapter's DPoP key, None without one. A token bound to another key, or
            bound although there is none, is refused, and so is an unbound one with a key.
        now: The server's time.

    Raises:
        TokenRefused: With the first reason found: malformed, alg, typ, kid, signature, iss, aud,
            claims, expired, not_yet, jkt.
    """
    return open_token(token).verify(keys, issuer=issuer, audience=audience, jkt=jkt, now=now)


def _read(token: Secret) -> Compact:
    try:
        read = read_compact(token.reveal())
    except JoseError as error:
        raise TokenRefused(error.reason) from None
    if read.header.get("typ") != RUN_TOKEN_TYPE:
        raise TokenRefused("typ")
    return read


def _kid(read: Compact) -> str:
    kid = read.header.get("kid")
    if not isinstance(kid, str) or not 0 < len(kid) <= MAX_ID_CHARS:
        raise TokenRefused("kid")
    return kid


def _check_party(claims: JsonObject, name: str, expected: UUID) -> None:
    if claims.get(name) != str(expected):
        raise TokenRefused(name)


@wire_type()
class _Claims:
    """The claims that are read by type; times are read apart."""

    jti: Annotated[str, Text(1, MAX_ID_CHARS)]
    sub: UUID
    run_id: UUID
    thread_id: UUID
    channel_id: UUID
    run_kind: RunKind
    tool_class: Annotated[str, Text(1, MAX_ID_CHARS)]
    billing_mode: BillingMode


def _read_claims(raw: JsonObject) -> RunClaims:
    try:
        read = parse(_Claims, raw)
    except WireError:
        raise TokenRefused("claims") from None
    return RunClaims(
        jti=read.jti,
        sub=read.sub,
        run_id=read.run_id,
        thread_id=read.thread_id,
        channel_id=read.channel_id,
        run_kind=read.run_kind,
        tool_class=read.tool_class,
        billing_mode=read.billing_mode,
        issued_at=_moment(raw, "iat"),
        expires_at=_moment(raw, "exp"),
    )


def _moment(claims: JsonObject, name: str) -> datetime:
    """A time in whole seconds since 1970; the protocol's servers write no fractions."""
    value: Any = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int):
        raise TokenRefused("claims")
    try:
        return datetime.fromtimestamp(value, UTC)
    except (OverflowError, OSError, ValueError):
        raise TokenRefused("claims") from None


def _check_times(claims: RunClaims, not_before: datetime, now: datetime) -> None:
    life = claims.expires_at - claims.issued_at
    if not timedelta(0) < life <= _MAX_LIFE or not_before > claims.expires_at:
        raise TokenRefused("claims")
    if claims.expires_at <= now - _LEEWAY:
        raise TokenRefused("expired")
    if max(claims.issued_at, not_before) > now + _LEEWAY:
        raise TokenRefused("not_yet")


def _check_binding(claims: JsonObject, jkt: str | None) -> None:
    if "cnf" not in claims:
        fits = jkt is None
    else:
        bound = claims["cnf"]
        fits = jkt is not None and isinstance(bound, Mapping) and bound.get("jkt") == jkt
    if not fits:
        raise TokenRefused("jkt")
