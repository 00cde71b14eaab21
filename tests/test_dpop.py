"""A proof is good for one request: its method, its URL, its token, its moment, its key."""

from datetime import UTC, datetime, timedelta

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given, settings
from hypothesis import strategies as st

from bothy_hermes.dpop import ProofSigner, target_uri, thumbprint, verify_proof
from bothy_hermes.errors import ProofRefused
from bothy_hermes.jose import public_jwk
from bothy_hermes.secret import Secret
from tests.fakes.clock import START
from tests.fakes.edge_kit import AGENT_KEY, NOW, OTHER_KEY, decoded, signed

URL = "https://chat.example.com/api/v1/runs/1/start"
TOKEN = Secret("a-token")
SIGNER = ProofSigner(AGENT_KEY)
JWK = public_jwk(AGENT_KEY.public_key())
ATH = "H2B246R7od7QgCX_4G5XryF8FPlAfzP7pQ-ZsccBk4c"  # of SHA-256, computed by other means


def make(**changes):
    options = {"token": TOKEN, "nonce": None, "now": START, "proof_id": "p1"} | changes
    method, url = options.pop("method", "POST"), options.pop("url", URL)
    return SIGNER.proof(method, url, **options)


def check(proof, **changes):
    options = {"method": "POST", "url": URL, "token": TOKEN, "now": START, "jkt": SIGNER.jkt} | changes
    return verify_proof(proof, **options)


def reason(proof, **changes):
    with pytest.raises(ProofRefused) as caught:
        check(proof, **changes)
    return caught.value.reason


def test_a_proof_has_exactly_these_parts(snapshot):
    """Header and claims as RFC 9449 asks for them, with time, ID and nonce handed in."""
    proof = make(url=f"{URL}?a=b#c", nonce="n1")
    header, claims = (decoded(part) for part in proof.split(".")[:2])
    assert claims["htu"] == URL
    assert claims["ath"] == ATH
    assert snapshot == {"header": header, "claims": claims}


def test_a_proof_without_token_and_nonce_leaves_both_out():
    """Members that would say nothing are not there."""
    claims = decoded(make(token=None).split(".")[1])
    assert sorted(claims) == ["htm", "htu", "iat", "jti"]


def test_only_the_public_key_travels():
    """The header never holds the private part."""
    assert sorted(decoded(make().split(".")[0])["jwk"]) == ["crv", "kty", "x", "y"]


def test_what_the_signer_makes_the_verifier_takes():
    """The verifier tells what the server has to remember."""
    proof = check(make(nonce="n1"))
    assert (proof.jkt, proof.jti, proof.nonce, proof.issued_at) == (SIGNER.jkt, "p1", "n1", START)
    assert SIGNER.jkt == thumbprint(JWK)


# The example proofs of RFC 9449 (sections 4.1 and 7.1), made by others than us.
RFC_HEADER = (
    "eyJ0eXAiOiJkcG9wK2p3dCIsImFsZyI6IkVTMjU2IiwiandrIjp7Imt0eSI6IkVDIiwieCI6Imw4dEZyaHgtMzR0VjNoUklDUkRZ"
    "OXpDa0RscEJoRjQyVVFVZldWQVdCRnMiLCJ5IjoiOVZFNGpmX09rX282NHpiVFRsY3VOSmFqSG10NnY5VERWclUwQ2R2R1JEQSIs"
    "ImNydiI6IlAtMjU2In19"
)
RFC_PROOF = (
    f"{RFC_HEADER}.eyJqdGkiOiItQndDM0VTYzZhY2MybFRjIiwiaHRtIjoiUE9TVCIsImh0dSI6Imh0dHBzOi8vc2VydmVyLmV4YW"
    "1wbGUuY29tL3Rva2VuIiwiaWF0IjoxNTYyMjYyNjE2fQ.2-GxA6T8lP4vfrg8v-FdWP0A0zdrj8igiMLvqRMUvwnQg4PtFLbdLXi"
    "OSsX0x7NVY-FNyJK70nfbV37xRZT3Lg"
)
RFC_TIME = datetime.fromtimestamp(1562262616, UTC)


def test_the_proof_of_the_rfc_is_taken():
    """An oracle from outside: the published proof for its own request at its own time."""
    proof = verify_proof(
        RFC_PROOF, method="POST", url="https://server.example.com/token", token=None, now=RFC_TIME
    )
    assert proof.jkt == "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I"
    assert proof.jti == "-BwC3ESc6acc2lTc"


def test_the_token_hash_of_the_rfc_comes_out():
    """The published `ath` of the published token."""
    token = Secret("Kz~8mXK1EalYznwH-LC-1fBAo.4Ljp~zsPE_NeO.gxU")
    assert decoded(make(token=token).split(".")[1])["ath"] == "fUHyO2r2Z3DZ53EsNrWBb0xWXoaNy59IiKCAqksmQEo"


def forged(header=None, claims=None, key=AGENT_KEY):
    """A proof with changed parts, signed all the same; a change to None takes a member away."""
    head = {"typ": "dpop+jwt", "alg": "ES256", "jwk": JWK} | (header or {})
    body = {"jti": "p1", "htm": "POST", "htu": URL, "iat": NOW, "ath": ATH} | (claims or {})
    parts = ({k: v for k, v in part.items() if v is not None} for part in (head, body))
    return signed(*parts, key)


def test_the_forgery_itself_is_right():
    """Without a change it is taken, so that each change below is the one thing that is wrong."""
    assert check(forged())


@pytest.mark.parametrize(
    ("header", "claims", "word"),
    [
        ({"typ": "JWT"}, {}, "typ"),
        ({"typ": "bothy-run+jwt"}, {}, "typ"),
        ({"typ": "DPOP+JWT"}, {}, "typ"),
        ({"typ": None}, {}, "typ"),
        ({"alg": "HS256"}, {}, "alg"),
        ({"alg": "none"}, {}, "alg"),
        ({"alg": None}, {}, "alg"),
        ({"crit": ["x"]}, {}, "malformed"),
        ({"jwk": None}, {}, "jwk"),
        ({"jwk": "key"}, {}, "jwk"),
        ({"jwk": [JWK]}, {}, "jwk"),
        ({"jwk": JWK | {"d": "AA"}}, {}, "jwk"),
        ({"jwk": JWK | {"crv": "P-384"}}, {}, "jwk"),
        ({"jwk": JWK | {"x": JWK["y"]}}, {}, "jwk"),
        ({"jwk": {"kty": "oct", "k": "AA"}}, {}, "jwk"),
        ({"jwk": public_jwk(OTHER_KEY.public_key())}, {}, "signature"),
        ({}, {"htm": "post"}, "htm"),
        ({}, {"htm": "GET"}, "htm"),
        ({}, {"htm": None}, "htm"),
        ({}, {"htm": ["POST"]}, "htm"),
        ({}, {"htu": None}, "htu"),
        ({}, {"htu": 5}, "htu"),
        ({}, {"htu": ""}, "htu"),
        ({}, {"htu": URL + "/"}, "htu"),
        ({}, {"htu": URL + "?a=b"}, "htu"),
        ({}, {"htu": URL + "#a"}, "htu"),
        ({}, {"htu": URL + "\n"}, "htu"),
        ({}, {"htu": URL.replace("https", "http")}, "htu"),
        ({}, {"htu": URL.replace("https", "wss")}, "htu"),
        ({}, {"htu": URL.replace(".com", ".com:8443")}, "htu"),
        ({}, {"htu": URL.replace("chat", "chat2")}, "htu"),
        ({}, {"htu": URL.replace("https://", "https://me@")}, "htu"),
        ({}, {"htu": URL.replace("/runs", "//runs")}, "htu"),
        ({}, {"htu": URL.replace("/runs", "/x/../runs")}, "htu"),
        ({}, {"htu": URL.replace(".com", ".com:99999")}, "htu"),
        ({}, {"htu": "/api/v1/runs/1/start"}, "htu"),
        ({}, {"iat": NOW - 61}, "iat"),
        ({}, {"iat": NOW + 31}, "iat"),
        ({}, {"iat": None}, "iat"),
        ({}, {"iat": str(NOW)}, "iat"),
        ({}, {"iat": True}, "iat"),
        ({}, {"iat": 1e300}, "iat"),
        ({}, {"iat": 10**300}, "iat"),
        ({}, {"ath": None}, "ath"),
        ({}, {"ath": ATH + "="}, "ath"),
        ({}, {"ath": "\ud800"}, "ath"),
        ({}, {"ath": 5}, "ath"),
        ({}, {"jti": None}, "claims"),
        ({}, {"jti": ""}, "claims"),
        ({}, {"jti": 5}, "claims"),
        ({}, {"jti": "x" * 201}, "claims"),
        ({}, {"nonce": 5}, "claims"),
        ({}, {"nonce": ["n1"]}, "claims"),
    ],
    ids=lambda part: str(part)[:60],
)
def test_exactly_one_wrong_thing_is_enough(header, claims, word):
    """Each check of RFC 9449, section 4.3, by itself."""
    assert reason(forged(header, claims)) == word


def test_a_proof_of_another_key_is_refused():
    """It is a valid proof, but not of the key that the token is bound to."""
    theirs = ProofSigner(OTHER_KEY).proof("POST", URL, token=TOKEN, nonce=None, now=START, proof_id="p")
    assert reason(theirs) == "jkt"
    assert check(theirs, jkt=None).jkt == thumbprint(public_jwk(OTHER_KEY.public_key()))


def test_a_proof_of_another_curve_is_refused():
    """Only P-256."""
    assert reason(forged({"jwk": JWK}, key=ec.derive_private_key(5, ec.SECP384R1()))) == "signature"


def test_a_proof_of_another_request_is_refused():
    """The same proof with another method, URL, token or moment proves nothing."""
    proof = make()
    assert reason(proof, method="PUT") == "htm"
    assert reason(proof, url=URL + "2") == "htu"
    assert reason(proof, token=Secret("another")) == "ath"
    assert reason(proof, now=START + timedelta(seconds=61)) == "iat"


@pytest.mark.parametrize(
    "text", ["", "x", "a.b.c", f"{make()}, {make()}", f"{make()} ", f"{make()}\n{make()}"]
)
def test_two_headers_in_one_are_malformed(text):
    """Exactly one compact JWS, nothing around it."""
    assert reason(text) == "malformed"


@pytest.mark.parametrize(("seconds", "word"), [(-31, "iat"), (-30, None), (0, None), (60, None), (61, "iat")])
def test_a_proof_is_taken_for_a_minute(seconds, word):
    """From 30 s ahead up to 60 s old, both ends included."""
    now = START + timedelta(seconds=seconds)
    if word is None:
        assert check(make(), now=now)
    else:
        assert reason(make(), now=now) == word


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("HTTPS://Chat.Example.com:443/A", "https://chat.example.com/A"),
        ("http://h:80", "http://h/"),
        ("http://h:8080/", "http://h:8080/"),
        ("https://h/a//b/", "https://h/a//b/"),
        ("https://h/%7ea%2fb%C3%a9", "https://h/~a%2Fb%C3%A9"),
        ("https://h/a?b#c", "https://h/a"),
        ("http://[::1]:9/a", "http://[::1]:9/a"),
    ],
)
def test_a_url_has_one_spelling(url, target):
    """Scheme, host, port and escapes are normalised, slashes are not."""
    assert target_uri(url) == target
    assert target_uri(target) == target
    assert check(make(url=url), url=target).jti == "p1"


@pytest.mark.parametrize("path", ["/a/../b", "/./b", "/..", "/%2e%2E/b", "/a/.%2e"])
def test_a_path_with_dot_segments_names_nothing(path):
    """Two parties may walk them differently, so neither makes nor takes such a proof."""
    with pytest.raises(ValueError, match="dot segments"):
        target_uri(f"https://chat.example.com{path}")
    with pytest.raises(ProofRefused, match="htu"):
        check(
            forged(claims={"htu": f"https://chat.example.com{path}"}), url=f"https://chat.example.com{path}"
        )


@settings(max_examples=50)
@given(st.text(max_size=80))
def test_no_text_lets_another_error_out(text):
    """Hostile proofs end as ProofRefused, nothing else."""
    with pytest.raises(ProofRefused):
        check(text)
    with pytest.raises(ProofRefused):
        check(forged(claims={"htu": text or "x"}))
