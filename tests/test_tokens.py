"""A run token proves something only when every part of it is right."""

import json
from datetime import timedelta

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given, settings
from hypothesis import strategies as st

from bothy_hermes import jose
from bothy_hermes.errors import TokenRefused
from bothy_hermes.secret import Secret
from bothy_hermes.tokens import KeySet, open_token, token_times, verify_run_token
from bothy_hermes.wire import KeySetBody
from bothy_hermes.wire_words import BillingMode, RunKind
from tests.fakes.clock import START
from tests.fakes.edge_kit import (
    AGENT,
    CHANNEL,
    INSTANCE,
    NOW,
    OTHER_KEY,
    PERSON,
    RUN,
    SERVER_KEY,
    THREAD,
    key_set,
    run_claims,
    run_header,
    run_token,
    signed,
)

KEYS = KeySet.from_body(KeySetBody(keys=tuple(key_set())))
JKT = "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I"


def verify(token, *, keys=KEYS, jkt=None, now=START):
    return verify_run_token(token, keys, issuer=INSTANCE, audience=AGENT, jkt=jkt, now=now)


def reason(token, **options):
    with pytest.raises(TokenRefused) as caught:
        verify(token, **options)
    return caught.value.reason


def test_a_right_token_says_what_it_says():
    """All claims come out, typed."""
    claims = verify(run_token())
    assert (claims.jti, claims.sub, claims.run_id) == ("t1", PERSON, RUN)
    assert (claims.thread_id, claims.channel_id) == (THREAD, CHANNEL)
    assert (claims.run_kind, claims.tool_class) == (RunKind.OPERATOR, "host")
    assert claims.billing_mode is BillingMode.ORGANIZATION
    assert (claims.issued_at, claims.expires_at) == (START, START + timedelta(seconds=900))


def test_an_unknown_tool_class_is_a_valid_claim():
    """What an unknown class is worth is a rule of its own."""
    assert verify(run_token(claims={"tool_class": "cosmic"})).tool_class == "cosmic"


WRONG_CLAIMS = [
    ("iss", "iss", [None, "", str(AGENT), str(INSTANCE).upper(), [str(INSTANCE)], 5, f" {INSTANCE}"]),
    ("aud", "aud", [None, "", str(INSTANCE), [str(AGENT)], [str(AGENT), "x"], True, {"a": 1}]),
    ("sub", "claims", [None, "", "me", 5, str(PERSON).upper(), [str(PERSON)]]),
    ("jti", "claims", [None, "", 5, "x" * 201, ["t1"]]),
    ("run_id", "claims", [None, "x", 5, str(RUN)[:-1]]),
    ("thread_id", "claims", [None, "x", []]),
    ("channel_id", "claims", [None, "x", {}]),
    ("run_kind", "claims", [None, "visitor", 5]),
    ("tool_class", "claims", [None, "", 5, "x" * 201]),
    ("billing_mode", "claims", [None, "free", 5]),
    ("iat", "claims", [None, str(NOW), True, 1.5, [], {}, 10**400, -(10**18), 10**12]),
    ("nbf", "claims", [None, str(NOW), True, [], 10**12, NOW + 901]),
    ("exp", "claims", [None, str(NOW + 900), True, [], {}, 10**400, NOW + 901, NOW, NOW - 1, 253402300800]),
]


@pytest.mark.parametrize(
    ("name", "word", "value"),
    [(name, word, value) for name, word, values in WRONG_CLAIMS for value in values],
    ids=lambda value: str(value)[:40],
)
def test_one_wrong_claim_is_enough(name, word, value):
    """Each claim that is missing, of another type or of another value is refused by a fixed word."""
    assert reason(run_token(claims={name: value})) == word


@pytest.mark.parametrize("value", ["Infinity", "-Infinity", "NaN", "1e400"])
@pytest.mark.parametrize("name", ["exp", "iat", "nbf"])
def test_numbers_outside_json_are_refused(name, value):
    """Python reads them, JSON does not have them; 1e400 reads as infinity."""
    text = json.dumps(run_claims()).replace(f'"{name}": {run_claims()[name]}', f'"{name}": {value}')
    assert value in text
    assert reason(Secret(signed(run_header(), text))) in {"malformed", "claims"}


@pytest.mark.parametrize(
    ("header", "word"),
    [
        ({"alg": "none"}, "alg"),
        ({"alg": "HS256"}, "alg"),
        ({"alg": "es256"}, "alg"),
        ({"alg": None}, "alg"),
        ({"typ": "JWT"}, "typ"),
        ({"typ": "dpop+jwt"}, "typ"),
        ({"typ": "Bothy-Run+JWT"}, "typ"),
        ({"typ": "application/bothy-run+jwt"}, "typ"),
        ({"typ": None}, "typ"),
        ({"kid": None}, "kid"),
        ({"kid": ""}, "kid"),
        ({"kid": 1}, "kid"),
        ({"kid": ["k1"]}, "kid"),
        ({"kid": "x" * 201}, "kid"),
        ({"kid": "k2"}, "kid"),
        ({"crit": ["exp"]}, "malformed"),
        ({"b64": False}, "malformed"),
    ],
)
def test_one_wrong_header_is_enough(header, word):
    """The algorithm is pinned, the kind is exact, the key is known."""
    assert reason(run_token(header)) == word


def test_a_foreign_signature_is_refused():
    """Another key under the known ID proves nothing."""
    assert reason(run_token(key=OTHER_KEY)) == "signature"
    curve = ec.derive_private_key(9, ec.SECP384R1())
    assert reason(Secret(signed(run_header(), run_claims(), curve))) == "signature"


def test_members_twice_are_refused():
    """No reader may take the first where another takes the last."""
    twice = json.dumps(run_claims())[:-1] + f', "sub": "{PERSON}"}}'
    assert reason(Secret(signed(run_header(), twice))) == "malformed"
    head = json.dumps(run_header())[:-1] + ', "typ": "bothy-run+jwt"}'
    assert reason(Secret(signed(head, run_claims()))) == "malformed"


@pytest.mark.parametrize(
    ("seconds", "word"),
    [(-31, "not_yet"), (-30, None), (0, None), (900, None), (929, None), (930, "expired"), (931, "expired")],
)
def test_leeway_is_thirty_seconds_on_both_sides(seconds, word):
    """From 30 s before `iat` up to, but not at, 30 s after `exp`."""
    now = START + timedelta(seconds=seconds)
    if word is None:
        assert verify(run_token(), now=now)
    else:
        assert reason(run_token(), now=now) == word


def test_nbf_counts_like_iat():
    """A token that is valid later is not valid now."""
    assert verify(run_token(claims={"nbf": NOW + 30}))
    assert reason(run_token(claims={"nbf": NOW + 31})) == "not_yet"


def test_a_life_is_fifteen_minutes_at_most():
    """One second more and the token was not made by the rules."""
    assert verify(run_token(claims={"exp": NOW + 900}))
    assert reason(run_token(claims={"exp": NOW + 901})) == "claims"


def test_the_last_second_of_the_calendar_is_no_trap():
    """Adding leeway to the largest time overflows nothing."""
    last = 253402300799
    claims = {"exp": last, "iat": last - 900, "nbf": last - 900}
    assert reason(run_token(claims=claims)) == "not_yet"


@pytest.mark.parametrize(
    ("cnf", "jkt", "right"),
    [
        (None, None, True),
        ({"jkt": JKT}, JKT, True),
        ({"jkt": JKT, "other": 1}, JKT, True),
        (None, JKT, False),
        ({"jkt": JKT}, None, False),
        ({"jkt": JKT[:-1] + "A"}, JKT, False),
        ({"jkt": None}, JKT, False),
        ({}, JKT, False),
        ({}, None, False),
        ({"jkt": None}, None, False),
        (JKT, JKT, False),
        ([JKT], JKT, False),
        ("", None, False),
        (False, None, False),
    ],
    ids=str,
)
def test_the_binding_is_exact(cnf, jkt, right):
    """Bound to our key when we have one, and not bound at all when we have none."""
    token = run_token(claims={"cnf": cnf} if cnf is not None else {})
    if right:
        assert verify(token, jkt=jkt)
    else:
        assert reason(token, jkt=jkt) == "jkt"


def test_a_null_binding_is_a_binding():
    """A member that is there and null is not a member that is missing."""
    text = json.dumps(run_claims())[:-1] + ', "cnf": null}'
    assert reason(Secret(signed(run_header(), text))) == "jkt"


@settings(max_examples=40)
@given(st.text(max_size=200))
def test_no_text_lets_another_error_out(text):
    """Hostile tokens end as TokenRefused, nothing else."""
    for read in (open_token, token_times, verify):
        with pytest.raises(TokenRefused):
            read(Secret(text))


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=50)
@given(st.sampled_from(sorted(run_claims() | {"cnf": 1})), JSON)
def test_no_signed_claim_lets_another_error_out(name, value):
    """Even a server gone mad can only cause a TokenRefused."""
    try:
        claims = verify(run_token(claims={name: value}))
    except TokenRefused:
        return
    assert claims.run_id == RUN


def test_library_errors_never_escape(monkeypatch):
    """What PyJWT lets out for hostile input differs by version; none of it gets past us."""
    for error in (ValueError, TypeError, OverflowError):

        def fail(*_args, error=error, **_options):
            raise error

        monkeypatch.setattr(jose.ECAlgorithm, "verify", fail)
        assert reason(run_token()) == "signature"


def test_a_refusal_repeats_nothing_of_the_token():
    """The text of the error is a fixed word."""
    token = run_token(claims={"iss": "hunter2"})
    with pytest.raises(TokenRefused) as caught:
        verify(token)
    assert str(caught.value) == "run token refused (iss)"
    assert "hunter2" not in repr(caught.value)


def test_the_key_is_named_before_anything_is_proved():
    """Enough to fetch the right key set."""
    opened = open_token(run_token({"kid": "k9"}, key=OTHER_KEY))
    assert opened.key_id == "k9"
    assert "eyJ" not in repr(opened)


def test_times_are_told_before_anything_is_proved():
    """Enough to know when a renewed token has to be renewed again."""
    token = run_token(key=OTHER_KEY)
    assert token_times(token) == (START, START + timedelta(seconds=900))
    with pytest.raises(TokenRefused):
        token_times(run_token(claims={"exp": "soon"}))


def test_a_key_set_takes_only_usable_keys():
    """Foreign kinds, private keys and keys without an ID are left out, the others stay."""
    good, other = key_set(SERVER_KEY), key_set(OTHER_KEY, kid="k2")
    foreign = [
        {"kty": "RSA", "kid": "r", "n": "AQAB", "e": "AQAB"},
        other[0] | {"kid": "private", "d": "AA"},
        other[0] | {"kid": "enc", "use": "enc"},
        other[0] | {"kid": "sign", "key_ops": ["sign"]},
        other[0] | {"kid": "odd", "key_ops": "verify"},
        other[0] | {"kid": 5},
        other[0] | {"kid": ""},
        other[0] | {"kid": "x" * 201},
        {k: v for k, v in other[0].items() if k != "kid"},
        {},
    ]
    keys = KeySet.from_body(KeySetBody(keys=tuple(good + foreign + other)))
    assert len(keys) == 2
    assert keys.has("k1")
    assert keys.has("k2")
    assert not keys.has("private")


def test_an_id_of_two_keys_names_none():
    """Whoever adds a second key under an ID gains nothing; the same key twice is harmless."""
    both = KeySet.from_body(KeySetBody(keys=tuple(key_set(SERVER_KEY) + key_set(OTHER_KEY))))
    assert not both.has("k1")
    assert reason(run_token(), keys=both) == "kid"
    assert KeySet.from_body(KeySetBody(keys=tuple(key_set(SERVER_KEY, SERVER_KEY)))).has("k1")
