"""Compact JWS signed with ES256, and P-256 keys as JWKs: the only shapes that this package reads.

Layer: values. `tokens` (run tokens) and `dpop` (proofs) are built on it; neither talks to PyJWT itself.
Everything is read strictly before a library sees it: three canonical base64url segments, JSON without
a member twice, one algorithm, public keys of one curve. What is wrong is told by a fixed word.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from .codec import JsonObject, load_json
from .errors import WireError

ALGORITHM = "ES256"
"""ECDSA with P-256 and SHA-256 (RFC 7518, section 3.4)."""

MAX_COMPACT_CHARS = 8_192
"""Longest token or proof that is looked at: the usual limit of a whole HTTP header."""

PUBLIC_MEMBERS = ("crv", "kty", "x", "y")
"""What defines an EC key (RFC 7638, section 3.2), in the order of its thumbprint."""

PRIVATE_MEMBERS = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k"})
"""Members that only a private or a symmetric key has (RFC 7518, section 6)."""

REMEMBERED_HEADERS = 16
"""Headers that need not be read anew: all tokens of one key have the same one."""

_COORDINATE_BYTES = 32
_ES256 = ECAlgorithm(ECAlgorithm.SHA256)

_LIBRARY_ERRORS = (jwt.PyJWTError, ValueError, TypeError, OverflowError)
"""What PyJWT lets out for hostile input: up to 2.13 not only its own errors."""


class JoseError(Exception):
    """Something that is not what this module reads.

    Attributes:
        reason: A fixed word: malformed, alg, jwk, signature.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Compact:
    """A compact JWS taken apart; nothing is proved yet.

    Attributes:
        header: The protected header.
        claims: The payload.
        signed: What the signature is about.
        signature: The signature.
    """

    header: JsonObject
    claims: JsonObject
    signed: bytes = field(repr=False)
    signature: bytes = field(repr=False)


PublicKey = ec.EllipticCurvePublicKey
PrivateKey = ec.EllipticCurvePrivateKey


def read_compact(text: str) -> Compact:
    """Take a compact JWS apart and check its header's algorithm.

    Raises:
        JoseError: "malformed" for anything but three canonical segments with JSON objects, a header
            that changes how it is to be read, or "alg" for another algorithm.
    """
    segments = text.split(".") if len(text) <= MAX_COMPACT_CHARS else []
    if len(segments) != 3:  # noqa: PLR2004  # header, payload, signature
        raise JoseError("malformed")
    header, claims = _read_header(segments[0]), _read_object(segments[1])
    signature = decode_segment(segments[2])
    if "crit" in header or "b64" in header:
        raise JoseError("malformed")
    if header.get("alg") != ALGORITHM:
        raise JoseError("alg")
    return Compact(header, claims, f"{segments[0]}.{segments[1]}".encode("ascii"), signature)


def check_signature(read: Compact, key: PublicKey) -> None:
    """Prove that a key signed a compact JWS, whose algorithm `read_compact` has checked.

    Raises:
        JoseError: "signature".
    """
    try:
        # Not through `decode`, which would take the text apart a second time.
        proven = _ES256.verify(read.signed, key, read.signature)
    except _LIBRARY_ERRORS:
        proven = False
    if not proven:
        raise JoseError("signature")


def sign_compact(header: Mapping[str, Any], claims: Mapping[str, Any], key: PrivateKey) -> str:
    """Sign claims; `alg` is added to the header."""
    payload = json.dumps(claims, separators=(",", ":")).encode("utf-8")
    return jwt.PyJWS().encode(payload, key, algorithm=ALGORITHM, headers=dict(header))


def public_key(jwk: JsonObject) -> PublicKey:
    """Read a public P-256 key.

    Raises:
        JoseError: "jwk" for another kind or curve, a private member, a coordinate of another width,
            or a point that is not on the curve.
    """
    if jwk.get("kty") != "EC" or jwk.get("crv") != "P-256" or PRIVATE_MEMBERS & set(jwk):
        raise JoseError("jwk")
    if jwk.get("alg", ALGORITHM) != ALGORITHM or jwk.get("use", "sig") != "sig":
        raise JoseError("jwk")
    x, y = (_coordinate(jwk.get(name)) for name in ("x", "y"))
    try:
        return ec.EllipticCurvePublicNumbers(x, y, ec.SECP256R1()).public_key()
    except _LIBRARY_ERRORS:
        raise JoseError("jwk") from None


def public_jwk(key: PublicKey) -> dict[str, str]:
    """Write a public P-256 key with its required members only."""
    numbers = key.public_numbers()
    x, y = (encode_segment(one.to_bytes(_COORDINATE_BYTES, "big")) for one in (numbers.x, numbers.y))
    return {"kty": "EC", "crv": "P-256", "x": x, "y": y}


def thumbprint(jwk: JsonObject) -> str:
    """The SHA-256 thumbprint of an EC key (RFC 7638); members that do not define it do not count."""
    text = json.dumps({name: jwk[name] for name in PUBLIC_MEMBERS}, separators=(",", ":"))
    return encode_segment(hashlib.sha256(text.encode("utf-8")).digest())


def load_private_key(pem: bytes) -> PrivateKey:
    """Read an unencrypted P-256 key in PEM.

    Raises:
        ValueError: It is something else; the text does not repeat any of it.
    """
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise ValueError("expected a private key in PEM without a password") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
        raise ValueError("expected a key of the curve P-256")  # noqa: TRY004  # it is a bad value
    return key


def encode_segment(data: bytes) -> str:
    """Write base64url without padding (RFC 7515, section 2)."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def decode_segment(text: str) -> bytes:
    """Read base64url that has exactly one spelling: no padding, no stray bits at the end.

    Raises:
        JoseError: "malformed".
    """
    try:
        data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        raise JoseError("malformed") from None
    if not text or encode_segment(data) != text:  # the library skips over what it does not know
        raise JoseError("malformed")
    return data


@functools.lru_cache(maxsize=REMEMBERED_HEADERS)
def _read_header(segment: str) -> JsonObject:
    return MappingProxyType(_read_object(segment))


def _read_object(segment: str) -> dict[str, Any]:
    try:
        value = load_json(decode_segment(segment))
    except WireError:
        raise JoseError("malformed") from None
    if not isinstance(value, dict):
        raise JoseError("malformed")
    return value


def _coordinate(value: Any) -> int:
    try:
        data = decode_segment(value) if isinstance(value, str) else b""
    except JoseError:
        data = b""
    if len(data) != _COORDINATE_BYTES:
        raise JoseError("jwk")
    return int.from_bytes(data, "big")
