"""What the embedded server's tokens are made of: its signing keys, run tokens, and the agent's two files.

Layer: default. Keys are made here and nowhere else; the key's PEM is kept with the other records. The
agent token lies in a file that only its user can read, the server keeps its hash. How a run token is
checked is `tokens`' part, how a proof is, `dpop`'s.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from .clock import Clock
from .errors import StateError
from .jose import (
    ALGORITHM,
    PrivateKey,
    load_private_key,
    public_jwk,
    sign_compact,
    thumbprint,
)
from .local_records import KeyRecord
from .local_store import write_private
from .secret import Secret
from .wire import KeySetBody, Run
from .wire_words import RUN_TOKEN_TYPE

TOKEN_FILE = "agent.token"  # noqa: S105  # a file's name
DPOP_KEY_FILE = "agent-dpop.pem"
TOKEN_BYTES = 32
"""Random bytes of an opaque token: nobody guesses 256 bits."""


def new_token(clock: Clock) -> Secret:
    """Make an opaque token."""
    return Secret(base64.urlsafe_b64encode(clock.random_bytes(TOKEN_BYTES)).rstrip(b"=").decode())


def token_digest(token: Secret) -> str:
    """Hash an opaque token for keeping."""
    return hashlib.sha256(token.reveal().encode("utf-8", "surrogatepass")).hexdigest()


def matches(token: Secret, digest: str) -> bool:
    """Compare a token with a kept hash, in the same time for every token."""
    return hmac.compare_digest(token_digest(token), digest)


def new_signing_key() -> KeyRecord:
    """Make a signing key; its ID is its thumbprint."""
    private = ec.generate_private_key(ec.SECP256R1())
    kid = thumbprint(public_jwk(private.public_key()))
    return KeyRecord(kid=kid, private_pem=Secret(_pem(private).decode()), active=True, published=True)


def published_keys(records: Iterable[KeyRecord]) -> KeySetBody:
    """Return the published keys as a JWK set."""
    return KeySetBody(
        keys=tuple(
            {**public_jwk(_private(record).public_key()), "kid": record.kid, "alg": ALGORITHM, "use": "sig"}
            for record in records
            if record.published
        )
    )


def all_keys(records: Iterable[KeyRecord]) -> KeySetBody:
    """Return the keys that the server itself still takes, hidden ones included, as a JWK set."""
    keys = ({**public_jwk(_private(record).public_key()), "kid": record.kid} for record in records)
    return KeySetBody(keys=tuple(keys))


@dataclass(frozen=True, slots=True)
class Grant:
    """What a run token says beside its run.

    Attributes:
        issuer: The instance.
        subject: The person the event is from.
        jkt: Thumbprint of the agent's DPoP key, None without one.
        life_seconds: From `iat` to `exp`.
    """

    issuer: UUID
    subject: UUID
    jkt: str | None
    life_seconds: int


def mint_run_token(run: Run, grant: Grant, key: KeyRecord, clock: Clock) -> Secret:
    """Make a run token with a new `jti`."""
    issued = int(clock.now().timestamp())
    claims: dict[str, Any] = {
        "iss": str(grant.issuer),
        "aud": str(run.agent_id),
        "sub": str(grant.subject),
        "iat": issued,
        "nbf": issued,
        "exp": issued + grant.life_seconds,
        "jti": str(clock.new_id()),
        "run_id": str(run.id),
        "thread_id": str(run.thread_id),
        "channel_id": str(run.channel_id),
        "run_kind": str(run.kind),
        "tool_class": run.tool_class,
        "billing_mode": str(run.billing_mode),
    }
    if grant.jkt is not None:
        claims["cnf"] = {"jkt": grant.jkt}
    header = {"typ": RUN_TOKEN_TYPE, "kid": key.kid}
    return Secret(sign_compact(header, claims, _private(key)))


def write_agent_token(directory: Path, clock: Clock) -> str:
    """Write a new agent token and return its hash.

    Raises:
        StateError: The file cannot be written.
    """
    token = new_token(clock)
    _write(directory / TOKEN_FILE, token.reveal().encode() + b"\n")
    return token_digest(token)


def read_agent_token(directory: Path) -> str | None:
    """Return the hash of the agent token in the file, None when there is no file.

    Raises:
        StateError: The file cannot be read.
    """
    data = _read(directory / TOKEN_FILE)
    return None if data is None else token_digest(Secret(data.decode("utf-8", "surrogateescape").strip()))


def ensure_dpop_key(directory: Path) -> str:
    """Write the agent's DPoP key unless it is there, and return its thumbprint.

    Raises:
        StateError: The file cannot be read or written, or holds something else.
    """
    path = directory / DPOP_KEY_FILE
    data = _read(path)
    if data is None:
        data = _pem(ec.generate_private_key(ec.SECP256R1()))
        _write(path, data)
    try:
        return thumbprint(public_jwk(load_private_key(data).public_key()))
    except ValueError as error:
        raise StateError(DPOP_KEY_FILE, str(error)) from None


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StateError(path.name, f"cannot be read ({error.strerror})") from None


def _write(path: Path, data: bytes) -> None:
    try:
        write_private(path, data)
    except OSError as error:
        raise StateError(path.name, f"cannot be written ({error.strerror})") from None


def _pem(key: PrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _private(record: KeyRecord) -> PrivateKey:
    return load_private_key(record.private_pem.reveal().encode())
