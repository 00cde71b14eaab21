"""DPoP: proving, request by request, that a token's bearer holds its key (RFC 9449).

Layer: values. The protocol narrows the RFC (docs/protocol.md, section 2): P-256 and ES256 only, one
proof for each attempt, and the URL is the configured public one. Signer and verifier stand side by
side so that both use one normaliser of URLs. Repeated proof IDs and nonces are the server's memory.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

from .codec import JsonObject
from .errors import ProofRefused
from .jose import (
    JoseError,
    PrivateKey,
    check_signature,
    encode_segment,
    load_private_key,
    public_jwk,
    public_key,
    read_compact,
    sign_compact,
    thumbprint,
)
from .secret import Secret

__all__ = ["Proof", "ProofSigner", "load_private_key", "target_uri", "thumbprint", "verify_proof"]

PROOF_TYPE = "dpop+jwt"
"""The `typ` header of a proof."""

MAX_PROOF_AGE = timedelta(seconds=60)
"""How old a proof may be when it arrives: longer than a slow request, too short to be worth stealing."""

MAX_PROOF_LEAD = timedelta(seconds=30)
"""How far in the server's future a proof may be made, for clocks that differ."""

MAX_PROOF_ID_CHARS = 200
"""Longest proof ID that is accepted: the server keeps each of them for a while."""

_DEFAULT_PORTS: Mapping[str, int] = {"http": 80, "https": 443}
_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})")
_UNRESERVED = re.compile(r"[A-Za-z0-9._~-]")
_URI = re.compile(r"[\x21\x22\x24-\x3e\x40-\x7e]+")
"""What `htu` may be written with: printable, no query, no fragment."""


@dataclass(frozen=True, slots=True)
class Proof:
    """What a valid proof says.

    Attributes:
        jkt: Thumbprint of the key that signed it.
        jti: Its ID, for the server's memory of used ones.
        nonce: The server's nonce in it, None without one.
        issued_at: `iat`.
    """

    jkt: str
    jti: str
    nonce: str | None
    issued_at: datetime


class ProofSigner:
    """Makes proofs with one key.

    Args:
        private_key: A P-256 key, see `load_private_key`.

    Attributes:
        jkt: Thumbprint of the public key, what tokens are bound to.
    """

    def __init__(self, private_key: PrivateKey) -> None:
        self._key = private_key
        self._jwk = public_jwk(private_key.public_key())
        self.jkt = thumbprint(self._jwk)

    def proof(
        self, method: str, url: str, *, token: Secret | None, nonce: str | None, now: datetime, proof_id: str
    ) -> str:
        """Make the proof for one attempt.

        Args:
            method: The HTTP method.
            url: The request's public URL; query and fragment do not count.
            token: The token that goes with it.
            nonce: The last nonce of the server, None while it gave none.
            now: The server's time.
            proof_id: A fresh ID with at least 96 random bits.
        """
        claims: dict[str, Any] = {
            "jti": proof_id,
            "htm": method,
            "htu": target_uri(url),
            "iat": int(now.timestamp()),
        }
        if token is not None:
            claims["ath"] = _token_hash(token)
        if nonce is not None:
            claims["nonce"] = nonce
        return sign_compact({"typ": PROOF_TYPE, "jwk": self._jwk}, claims, self._key)


def verify_proof(
    proof: str, *, method: str, url: str, token: Secret | None, now: datetime, jkt: str | None = None
) -> Proof:
    """Check one proof against the request that carried it.

    Args:
        proof: The only `DPoP` header of the request.
        method: The request's method.
        url: The public URL under which the request came.
        token: The token that came with it, None for none.
        now: The server's time.
        jkt: The thumbprint that the token or the agent is bound to, None to take any key.

    Raises:
        ProofRefused: With the first reason found. A repeated `jti` or a wrong nonce is not seen here.
    """
    claims, key_thumbprint = _read_signed(proof)
    if claims.get("htm") != method:
        raise ProofRefused("htm")
    _check_url(claims.get("htu"), url)
    issued_at = _check_age(claims.get("iat"), now)
    if token is not None and not _same(claims.get("ath"), _token_hash(token)):
        raise ProofRefused("ath")
    if jkt is not None and not _same(jkt, key_thumbprint):
        raise ProofRefused("jkt")
    return Proof(key_thumbprint, _proof_id(claims), _nonce(claims), issued_at)


def target_uri(url: str) -> str:
    """Normalise a URL for `htu` (RFC 9449, section 4.3; RFC 3986, section 6.2).

    Lower-case scheme and host, no default port, no query, no fragment, "/" for an empty path, escapes
    in upper case and only where they are needed. A trailing slash and a double one stay.

    Raises:
        ValueError: It is no absolute http or https URL, or its path has dot segments.
    """
    parts = urlsplit(url)
    scheme, host, port = parts.scheme.lower(), parts.hostname, parts.port
    if scheme not in _DEFAULT_PORTS or not host or parts.username is not None:
        raise ValueError("expected an absolute http or https URL")
    path = _ESCAPE.sub(_normal_escape, parts.path) or "/"
    if {".", ".."} & set(path.split("/")):
        raise ValueError("expected a path without dot segments")
    shown = f"[{host}]" if ":" in host else host
    suffix = "" if port in (None, _DEFAULT_PORTS[scheme]) else f":{port}"
    return f"{scheme}://{shown}{suffix}{path}"


def _normal_escape(found: re.Match[str]) -> str:
    char = chr(int(found[1], 16))
    return char if _UNRESERVED.fullmatch(char) else found[0].upper()


def _read_signed(proof: str) -> tuple[JsonObject, str]:
    try:
        read = read_compact(proof)
        if read.header.get("typ") != PROOF_TYPE:
            raise ProofRefused("typ")
        jwk = read.header.get("jwk")
        if not isinstance(jwk, Mapping):
            raise ProofRefused("jwk")
        check_signature(read, public_key(jwk))
    except JoseError as error:
        raise ProofRefused(error.reason) from None
    return read.claims, thumbprint(jwk)


def _check_url(claimed: Any, url: str) -> None:
    try:
        readable = isinstance(claimed, str) and _URI.fullmatch(claimed) is not None
        same = readable and target_uri(claimed) == target_uri(url)
    except ValueError:
        same = False
    if not same:
        raise ProofRefused("htu")


def _check_age(value: Any, now: datetime) -> datetime:
    if not isinstance(value, int):
        raise ProofRefused("iat")
    try:
        issued_at = datetime.fromtimestamp(value, UTC)
    except (OverflowError, OSError, ValueError):
        raise ProofRefused("iat") from None
    if not -MAX_PROOF_LEAD <= now - issued_at <= MAX_PROOF_AGE:
        raise ProofRefused("iat")
    return issued_at


def _proof_id(claims: JsonObject) -> str:
    value = claims.get("jti")
    if not isinstance(value, str) or not 0 < len(value) <= MAX_PROOF_ID_CHARS:
        raise ProofRefused("claims")
    return value


def _nonce(claims: JsonObject) -> str | None:
    value = claims.get("nonce")
    if value is not None and not isinstance(value, str):
        raise ProofRefused("claims")
    return value


def _token_hash(token: Secret) -> str:
    return encode_segment(hashlib.sha256(token.reveal().encode("utf-8")).digest())


def _same(left: Any, right: str) -> bool:
    return isinstance(left, str) and hmac.compare_digest(left.encode("utf-8", "replace"), right.encode())
