"""What tests of the client's edge share: settings, private files, keys and signed tokens."""

import base64
import json
from uuid import UUID

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from bothy_hermes.config import load_settings
from bothy_hermes.jose import encode_segment, public_jwk
from bothy_hermes.secret import Secret
from tests.fakes.clock import START

INSTANCE = UUID("0192f4a0-7b1c-7000-8000-000000000001")
AGENT = UUID("0192f4a0-7b1c-7000-8000-0000000000a1")
RUN = UUID("0192f4a0-7b1c-7000-8000-0000000000b1")
THREAD = UUID("0192f4a0-7b1c-7000-8000-0000000000c1")
CHANNEL = UUID("0192f4a0-7b1c-7000-8000-0000000000d1")
PERSON = UUID("0192f4a0-7b1c-7000-8000-0000000000e1")
SERVER_URL = "https://chat.example.com/api/v1"
NOW = int(START.timestamp())

SERVER_KEY = ec.derive_private_key(1001, ec.SECP256R1())
OTHER_KEY = ec.derive_private_key(2002, ec.SECP256R1())
AGENT_KEY = ec.derive_private_key(3003, ec.SECP256R1())


def settings(server_url=SERVER_URL, **more):
    """Valid settings; further keys are given by their last names."""
    keys = {"server_url": server_url, "instance_id": str(INSTANCE), "token_file": "/etc/bothy/token"}
    return load_settings({"hermes_adapter": keys | more})


def private_file(path, content):
    """Write a file that only its owner can read."""
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
    path.chmod(0o600)
    return path


def pem(key):
    """A private key as its file holds it."""
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def signed(header, claims, key=SERVER_KEY):
    """A compact JWS with exactly these parts, made without any library for tokens."""
    head, body = (part if isinstance(part, str) else json.dumps(part) for part in (header, claims))
    text = f"{encode_segment(head.encode())}.{encode_segment(body.encode())}"
    r, s = decode_dss_signature(key.sign(text.encode(), ec.ECDSA(hashes.SHA256())))
    size = (key.curve.key_size + 7) // 8
    return f"{text}.{encode_segment(r.to_bytes(size, 'big') + s.to_bytes(size, 'big'))}"


def run_header(**changes):
    """The header of a run token; a change to None takes a member away."""
    return _changed({"alg": "ES256", "kid": "k1", "typ": "bothy-run+jwt"}, changes)


def run_claims(**changes):
    """The claims of a run token that is valid at `START`; a change to None takes one away."""
    claims = {
        "iss": str(INSTANCE),
        "aud": str(AGENT),
        "sub": str(PERSON),
        "iat": NOW,
        "nbf": NOW,
        "exp": NOW + 900,
        "jti": "t1",
        "run_id": str(RUN),
        "thread_id": str(THREAD),
        "channel_id": str(CHANNEL),
        "run_kind": "operator",
        "tool_class": "host",
        "billing_mode": "organization",
    }
    return _changed(claims, changes)


def run_token(header=None, claims=None, key=SERVER_KEY):
    """A signed run token with changed parts."""
    return Secret(signed(run_header(**(header or {})), run_claims(**(claims or {})), key))


def key_set(*keys, kid="k1"):
    """The members of a JWK set with public keys."""
    return [public_jwk(key.public_key()) | {"kid": kid} for key in keys or (SERVER_KEY,)]


def decoded(segment):
    """A segment of a JWS as JSON."""
    return json.loads(base64.urlsafe_b64decode(segment + "=" * (-len(segment) % 4)))


def _changed(members, changes):
    merged = members | changes
    return {name: value for name, value in merged.items() if value is not None}
