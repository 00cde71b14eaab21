"""Compact JWS and P-256 JWKs are read in exactly one spelling."""

import base64
import json
import re

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from hypothesis import given, settings
from hypothesis import strategies as st

from bothy_hermes.jose import (
    MAX_COMPACT_CHARS,
    JoseError,
    check_signature,
    decode_segment,
    encode_segment,
    load_private_key,
    public_jwk,
    public_key,
    read_compact,
    sign_compact,
    thumbprint,
)
from tests.fakes.edge_kit import AGENT_KEY, OTHER_KEY, SERVER_KEY, pem, signed

P256_OID = bytes.fromhex("2a8648ce3d030107")  # 1.2.840.10045.3.1.7

JWK = public_jwk(SERVER_KEY.public_key())

# The example key and token of RFC 9449, sections 4.1 and 6.1, an oracle from outside.
RFC_JWK = {
    "kty": "EC",
    "x": "l8tFrhx-34tV3hRICRDY9zCkDlpBhF42UQUfWVAWBFs",
    "y": "9VE4jf_Ok_o64zbTTlcuNJajHmt6v9TDVrU0CdvGRDA",
    "crv": "P-256",
}
RFC_THUMBPRINT = "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I"


def reason(call, *args):
    """The fixed word with which something is refused."""
    with pytest.raises(JoseError) as caught:
        call(*args)
    return caught.value.reason


def test_the_thumbprint_of_the_rfc_comes_out():
    """The published thumbprint of the published key."""
    assert thumbprint(RFC_JWK) == RFC_THUMBPRINT
    assert public_key(RFC_JWK)


def test_a_thumbprint_ignores_what_does_not_define_the_key():
    """Further members and their order change nothing."""
    other_order = {"use": "sig", "kid": "k", "y": JWK["y"], "x": JWK["x"], "crv": "P-256", "kty": "EC"}
    assert thumbprint(other_order) == thumbprint(JWK)
    assert len(thumbprint(JWK)) == 43


@settings(max_examples=30)
@given(st.integers(1, 2**200))
def test_keys_survive_the_way_through_a_jwk(secret):
    """Coordinates are written with their full width, leading zeros included."""
    key = ec.derive_private_key(secret, ec.SECP256R1()).public_key()
    jwk = public_jwk(key)
    assert public_key(jwk) == key
    assert {len(jwk["x"]), len(jwk["y"])} == {43}


SHORT = encode_segment(b"\1" * 31)
LONG = encode_segment(b"\1" * 33)
P384 = ec.derive_private_key(5, ec.SECP384R1()).public_key().public_numbers()


@pytest.mark.parametrize(
    "changes",
    [
        {"kty": "RSA"},
        {"kty": "oct", "k": "AAAA"},
        {"kty": None},
        {"crv": "P-384", "x": encode_segment(P384.x.to_bytes(48)), "y": encode_segment(P384.y.to_bytes(48))},
        {"crv": "secp256k1"},
        {"crv": None},
        {"d": encode_segment(b"\1" * 32)},
        *({name: "AAAA"} for name in ("p", "q", "dp", "dq", "qi", "oth", "k")),
        {"x": SHORT},
        {"x": LONG},
        {"x": JWK["x"] + "="},
        {"x": 5},
        {"x": None},
        {"y": JWK["x"]},
        {"y": [JWK["y"]]},
        {"y": encode_segment(b"\xff" * 32)},
        {"alg": "HS256"},
        {"alg": "ES384"},
        {"use": "enc"},
    ],
    ids=str,
)
def test_any_other_jwk_is_refused(changes):
    """Another kind, another curve, a private part, a wrong width or a point off the curve."""
    assert reason(public_key, {k: v for k, v in (JWK | changes).items() if v is not None}) == "jwk"


def test_a_signed_text_is_proved_by_its_key_alone():
    """What one key signed, the other did not."""
    text = sign_compact({"typ": "x"}, {"a": 1}, SERVER_KEY)
    read = read_compact(text)
    check_signature(read, SERVER_KEY.public_key())
    assert reason(check_signature, read, OTHER_KEY.public_key()) == "signature"
    assert (read.header, read.claims) == ({"typ": "x", "alg": "ES256"}, {"a": 1})
    assert not {"signature", "signed"} & set(re.findall(r"\w+", repr(read)))


def test_a_signature_has_64_bytes():
    """r and s side by side; DER is another spelling and refused."""
    head, body, signature = sign_compact({"typ": "x"}, {}, SERVER_KEY).split(".")
    assert len(decode_segment(signature)) == 64
    der = SERVER_KEY.sign(
        f"{head}.{body}".encode(), ec.ECDSA(__import__("cryptography").hazmat.primitives.hashes.SHA256())
    )
    assert reason(prove, f"{head}.{body}.{encode_segment(der)}") == "signature"


def prove(text):
    check_signature(read_compact(text), SERVER_KEY.public_key())


def flipped(text, position):
    """The text with one character exchanged for another of the alphabet."""
    return text[:position] + ("A" if text[position] != "A" else "B") + text[position + 1 :]


@settings(max_examples=60)
@given(st.data())
def test_every_changed_character_is_noticed(data):
    """No character of a signed text can be exchanged."""
    text = signed({"alg": "ES256", "typ": "x"}, {"a": 1})
    changed = flipped(text, data.draw(st.sampled_from([i for i, char in enumerate(text) if char != "."])))
    assert reason(prove, changed) in {"malformed", "alg", "signature"}


HEAD = encode_segment(b'{"alg":"ES256"}')
BODY = encode_segment(b'{"a":1}')


def with_head(head):
    return f"{encode_segment(head)}.{BODY}.AAAA"


def with_body(body):
    return f"{HEAD}.{encode_segment(body)}.AAAA"


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "..",
        f"{HEAD}.{BODY}",
        f"{HEAD}.{BODY}.AAAA.AAAA",
        f"{HEAD}.{BODY}.",
        f"{HEAD}..AAAA",
        f"{HEAD}.{BODY}=.AAAA",
        f"{HEAD}=.{BODY}.AAAA",
        f"{HEAD}.{BODY}.AA=A",
        f" {HEAD}.{BODY}.AAAA",
        f"{HEAD}.{BODY}.AAAA\n",
        f"{HEAD}.{BODY[:-1]}\u0130.AAAA",
        f"{HEAD}.{BODY}.A",
        f"{HEAD}.{BODY}.AB",
        with_body(b"[1]"),
        with_body(b"1"),
        with_body(b"{"),
        f"{HEAD}.{encode_segment(bytes([0xFF]))}.AAAA",
        with_body(b'{"a":1,"a":2}'),
        with_head(b'{"alg":"none","alg":"ES256"}'),
        with_body(b'{"a":NaN}'),
        with_body(b"[" * 3000),
        with_body(b'{"a":' + b"9" * 5000 + b"}"),
        f"{HEAD}.{BODY}.{'A' * MAX_COMPACT_CHARS}",
        '{"protected":"x","payload":"y","signature":"z"}',
        with_head(b'{"alg":"ES256","crit":["exp"]}'),
        with_head(b'{"alg":"ES256","b64":false}'),
    ],
)
def test_any_other_shape_is_malformed(text):
    """Other serialisations, padding, stray bits, a member twice, a header that changes the rules."""
    assert reason(read_compact, text) == "malformed"


@pytest.mark.parametrize("alg", ["none", "HS256", "RS256", "ES384", "es256", "ES256K", "EdDSA", None, 5])
def test_the_algorithm_is_pinned(alg):
    """Nothing but ES256, in this spelling."""
    assert reason(read_compact, with_head(json.dumps({"alg": alg}).encode())) == "alg"


@settings(max_examples=40)
@given(st.binary(max_size=100))
def test_segments_survive_both_ways(data):
    """Encoding has one result, and decoding takes exactly that."""
    if data:
        assert decode_segment(encode_segment(data)) == data


@pytest.mark.parametrize("text", ["", "A", "AB", "AAB", "A-+_", "A/A_", "AA==", "A A", "AAA\n", "AAÄA"])
def test_no_segment_has_a_second_spelling(text):
    """Stray bits, padding, the other alphabet, what a library would skip over: all refused."""
    assert reason(decode_segment, text) == "malformed"


def test_a_header_that_was_read_once_is_not_changed_by_its_reader():
    """All tokens of a key have the same header, which is read once for them all."""
    header = read_compact(signed({"alg": "ES256", "kid": "k"}, {"a": 1})).header
    with pytest.raises(TypeError):
        header["alg"] = "none"
    assert read_compact(signed({"alg": "ES256", "kid": "k"}, {"a": 2})).header is header


@settings(max_examples=40)
@given(st.text(max_size=300))
def test_no_text_lets_another_error_out(text):
    """Whatever comes, the only error is ours."""
    try:
        read_compact(text)
    except JoseError:
        return
    raise AssertionError("a random text was taken for a JWS")


def test_a_key_file_holds_a_p256_key_without_a_password():
    """The adapter's own key is read; every other content is a ValueError that repeats nothing."""
    assert load_private_key(pem(AGENT_KEY)).public_key() == AGENT_KEY.public_key()
    locked = AGENT_KEY.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"password"),
    )
    public = AGENT_KEY.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    wrong = [
        b"",
        b"hunter2",
        pem(AGENT_KEY)[:-60],
        locked,
        public,
        pem(ec.derive_private_key(5, ec.SECP384R1())),
    ]
    wrong.append(pem(rsa.generate_private_key(65537, 2048)))
    der = base64.b64decode(b"".join(pem(AGENT_KEY).split(b"\n")[1:-2]))
    of_no_curve = base64.encodebytes(der.replace(P256_OID, P256_OID[:-1] + b"\x09"))
    wrong.append(b"-----BEGIN PRIVATE KEY-----\n" + of_no_curve + b"-----END PRIVATE KEY-----\n")
    for data in wrong:
        with pytest.raises(ValueError, match=r"^expected a (private )?key"):
            load_private_key(data)


def test_a_coordinate_without_its_leading_zero_is_another_spelling():
    """The same point, one byte shorter: it would have another thumbprint."""
    keys = (ec.derive_private_key(number, ec.SECP256R1()).public_key() for number in range(1, 5_000))
    key = next(key for key in keys if key.public_numbers().x < 2**248)
    jwk = public_jwk(key)
    assert public_key(jwk) == key
    short = encode_segment(decode_segment(jwk["x"])[1:])
    with pytest.raises(JoseError, match="jwk"):
        public_key({**jwk, "x": short})
