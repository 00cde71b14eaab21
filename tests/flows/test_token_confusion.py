"""Every kind of token and proof, and each with one thing wrong, before every verifier.

A run token is no proof, a proof is no run token, and what is right for one is right for nobody else.
"""

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from bothy_hermes.dpop import ProofSigner, verify_proof
from bothy_hermes.errors import ProofRefused, TokenRefused
from bothy_hermes.jose import public_jwk, sign_compact
from bothy_hermes.secret import Secret
from bothy_hermes.tokens import KeySet, open_token, verify_run_token
from bothy_hermes.wire import KeySetBody
from tests.fakes.clock import START
from tests.fakes.edge_kit import (
    AGENT,
    AGENT_KEY,
    INSTANCE,
    NOW,
    OTHER_KEY,
    PERSON,
    SERVER_KEY,
    key_set,
    run_claims,
    run_header,
    signed,
)

URL = "https://chat.example.com/api/v1/runs/1/start"
TOKEN = Secret("an-opaque-agent-token")
OWN, FOREIGN = ProofSigner(AGENT_KEY), ProofSigner(OTHER_KEY)
P384 = ec.derive_private_key(7, ec.SECP384R1())

# The set holds the agent's own key as well: a proof must not pass for a run token even then.
KEYS = KeySet.from_body(
    KeySetBody(
        keys=(*key_set(SERVER_KEY), *key_set(AGENT_KEY, kid="agent"), *key_set(OTHER_KEY, kid="other"))
    )
)


def proof(**changes):
    options = {"token": TOKEN, "nonce": None, "now": START, "proof_id": "p1"}
    return OWN.proof(changes.pop("method", "POST"), changes.pop("url", URL), **(options | changes))


def run(header=None, claims=None, key=SERVER_KEY):
    return signed(run_header(**(header or {})), run_claims(**(claims or {})), key)


def forged(header, claims=None, key=AGENT_KEY):
    """A proof by hand."""
    head = {"typ": "dpop+jwt", "alg": "ES256", "jwk": public_jwk(AGENT_KEY.public_key())} | header
    right = {"jti": "p1", "htm": "POST", "htu": URL, "iat": NOW, "ath": ATH}
    return signed({k: v for k, v in head.items() if v is not None}, right | (claims or {}), key)


ATH = "Y16JVfCUPJ52glM8yiOjqwZ0xXNC4DaMLarjcwQc0ls"  # of SHA-256, computed by other means
BOTH = run_claims() | {"htm": "POST", "htu": URL, "ath": ATH}
DUAL_JWK = {"jwk": public_jwk(SERVER_KEY.public_key()), "kid": "k1"}

VERIFIERS = {
    "bearer run token": lambda text: verify_run_token(
        Secret(text), KEYS, issuer=INSTANCE, audience=AGENT, jkt=None, now=START
    ),
    "bound run token": lambda text: verify_run_token(
        Secret(text), KEYS, issuer=INSTANCE, audience=AGENT, jkt=OWN.jkt, now=START
    ),
    "another bound run token": lambda text: verify_run_token(
        Secret(text), KEYS, issuer=INSTANCE, audience=AGENT, jkt=FOREIGN.jkt, now=START
    ),
    "run token of another agent": lambda text: verify_run_token(
        Secret(text), KEYS, issuer=INSTANCE, audience=PERSON, jkt=None, now=START
    ),
    "run token of another instance": lambda text: verify_run_token(
        Secret(text), KEYS, issuer=PERSON, audience=AGENT, jkt=None, now=START
    ),
    "run token without keys": lambda text: verify_run_token(
        Secret(text), KeySet({}), issuer=INSTANCE, audience=AGENT, jkt=None, now=START
    ),
    "proof": lambda text: verify_proof(text, method="POST", url=URL, token=TOKEN, now=START, jkt=OWN.jkt),
    "proof of any key": lambda text: verify_proof(text, method="POST", url=URL, token=TOKEN, now=START),
    "proof without a token": lambda text: verify_proof(text, method="POST", url=URL, token=None, now=START),
    "proof of another method": lambda text: verify_proof(
        text, method="GET", url=URL, token=TOKEN, now=START, jkt=OWN.jkt
    ),
    "proof of another address": lambda text: verify_proof(
        text, method="POST", url=URL + "x", token=TOKEN, now=START, jkt=OWN.jkt
    ),
    "proof with another token": lambda text: verify_proof(
        text, method="POST", url=URL, token=Secret("another"), now=START, jkt=OWN.jkt
    ),
}

# What stands before the verifiers, and who alone takes it.
SUBJECTS = {
    "run token": (run(), {"bearer run token"}),
    "bound run token": (run(claims={"cnf": {"jkt": OWN.jkt}}), {"bound run token"}),
    "proof": (proof(), {"proof", "proof of any key", "proof without a token"}),
    "proof without ath": (proof(token=None), {"proof without a token"}),
    "foreign proof": (
        FOREIGN.proof("POST", URL, token=TOKEN, nonce=None, now=START, proof_id="p"),
        {"proof of any key", "proof without a token"},
    ),
    # One thing wrong with a run token
    "run token typed JWT": (run({"typ": "JWT"}), set()),
    "run token typed as an access token": (run({"typ": "at+jwt"}), set()),
    "run token typed as a proof": (run({"typ": "dpop+jwt"}), set()),
    "run token without a type": (run({"typ": None}), set()),
    "run token without a key ID": (run({"kid": None}), set()),
    "run token under an unknown key ID": (run({"kid": "k9"}), set()),
    "run token under another key's ID": (run({"kid": "other"}), set()),
    "run token signed by another": (run(key=OTHER_KEY), set()),
    "run token signed by the agent itself": (run(key=AGENT_KEY), set()),
    "run token of the agent's own making": (run({"kid": "agent"}, {"iss": str(AGENT)}, AGENT_KEY), set()),
    "run token of another curve": (run(key=P384), set()),
    "run token with another algorithm": (run({"alg": "ES384"}, key=P384), set()),
    "run token with a MAC": (run({"alg": "HS256"}), set()),
    "run token with its key inside": (run({"kid": None, "jwk": DUAL_JWK["jwk"]}), set()),
    "expired run token": (run(claims={"iat": NOW - 940, "nbf": NOW - 940, "exp": NOW - 40}), set()),
    "run token for later": (run(claims={"nbf": NOW + 40}), set()),
    "run token of another kind of life": (run(claims={"exp": NOW + 86_400}), set()),
    "run token without a subject": (run(claims={"sub": None}), set()),
    "run token without an ID": (run(claims={"jti": None}), set()),
    "run token for two": (run(claims={"aud": [str(AGENT), str(PERSON)]}), set()),
    "run token of nobody": (run(claims={"iss": None}), set()),
    # One thing wrong with a proof
    "proof typed JWT": (forged({"typ": "JWT"}), set()),
    "proof typed as a run token": (forged({"typ": "bothy-run+jwt", "kid": "agent"}), set()),
    "proof without its key": (forged({"jwk": None}), set()),
    "proof with a key ID instead of its key": (forged({"jwk": None, "kid": "agent"}), set()),
    "proof with a private key": (
        forged({"jwk": public_jwk(AGENT_KEY.public_key()) | {"d": "AA"}}),
        set(),
    ),
    "proof with somebody else's key": (forged({"jwk": public_jwk(OTHER_KEY.public_key())}), set()),
    "proof with a MAC": (forged({"alg": "HS256"}), set()),
    "old proof": (forged({}, {"iat": NOW - 61}), set()),
    "early proof": (forged({}, {"iat": NOW + 31}), set()),
    "proof without an ID": (forged({}, {"jti": ""}), set()),
    # Two in one: the claims of both, the header of one
    "run token with a proof's claims": (signed(run_header(), BOTH), {"bearer run token"}),
    "run token with a proof's claims and key": (
        signed(run_header(jwk=DUAL_JWK["jwk"]), BOTH),
        {"bearer run token"},
    ),
    "proof with a run token's claims": (
        signed({"typ": "dpop+jwt", "alg": "ES256"} | DUAL_JWK, BOTH),
        {"proof of any key", "proof without a token"},
    ),
    # Other things that look alike
    "opaque token": (TOKEN.reveal(), set()),
    "something else of the server's": (
        sign_compact({"typ": "JWT", "kid": "k1"}, {"iss": str(INSTANCE), "aud": str(AGENT)}, SERVER_KEY),
        set(),
    ),
    "two of a kind": (f"{run()},{proof()}", set()),
    "nothing": ("", set()),
}


@pytest.mark.parametrize("subject", SUBJECTS)
def test_only_the_right_verifiers_take_it(subject):
    """A row of the matrix: taken by whom it is for, refused with our own error by all others."""
    text, takers = SUBJECTS[subject]
    assert {name for name, verify in VERIFIERS.items() if taken(verify, text)} == takers


def taken(verify, text):
    try:
        return bool(verify(text))
    except (TokenRefused, ProofRefused):
        return False


def test_a_proofs_key_is_never_asked_for_as_a_run_tokens():
    """A proof sent as an event's token does not even name a key to fetch."""
    with pytest.raises(TokenRefused) as caught:
        open_token(Secret(proof()))
    assert caught.value.reason == "typ"
