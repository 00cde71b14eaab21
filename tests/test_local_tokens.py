"""Signing keys, run tokens, and the agent's two files."""

import dataclasses
import stat
from datetime import timedelta
from uuid import UUID

import pytest

from bothy_hermes.codec import dump, parse
from bothy_hermes.errors import StateError, TokenRefused
from bothy_hermes.jose import load_private_key, read_compact
from bothy_hermes.local_tokens import (
    Grant,
    all_keys,
    ensure_dpop_key,
    matches,
    mint_run_token,
    new_signing_key,
    new_token,
    published_keys,
    read_agent_token,
    token_digest,
    write_agent_token,
)
from bothy_hermes.secret import Secret
from bothy_hermes.tokens import KeySet, verify_run_token
from bothy_hermes.wire import Run
from tests.fakes.clock import FakeClock
from tests.fakes.wire_examples import EXAMPLES

ISSUER = UUID("00000000-0000-4000-8000-000000000001")
PERSON = UUID("00000000-0000-4000-8000-000000000002")


def mint(clock, key, jkt=None, life=900):
    run = parse(Run, EXAMPLES[Run]())
    return run, mint_run_token(run, Grant(ISSUER, PERSON, jkt, life), key, clock.clock)


def verify(run, token, keys, now, jkt=None):
    return verify_run_token(token, keys, issuer=ISSUER, audience=run.agent_id, jkt=jkt, now=now)


def test_a_minted_token_proves_its_run():
    """It is read by the adapter's own verifier, and says what the run says."""
    clock, key = FakeClock(), new_signing_key()
    run, token = mint(clock, key)
    claims = verify(run, token, KeySet.from_body(published_keys([key])), clock.time)
    assert (claims.run_id, claims.thread_id, claims.channel_id) == (run.id, run.thread_id, run.channel_id)
    assert (claims.sub, claims.run_kind) == (PERSON, run.kind)
    assert (claims.tool_class, claims.billing_mode) == (run.tool_class, run.billing_mode)
    assert claims.expires_at - claims.issued_at == timedelta(seconds=900)
    header = read_compact(token.reveal()).header
    assert (header["typ"], header["alg"], header["kid"]) == ("bothy-run+jwt", "ES256", key.kid)


def test_a_bound_token_names_its_key():
    clock, key = FakeClock(), new_signing_key()
    run, token = mint(clock, key, jkt="thumb")
    keys = KeySet.from_body(published_keys([key]))
    assert verify(run, token, keys, clock.time, jkt="thumb")
    with pytest.raises(TokenRefused):
        verify(run, token, keys, clock.time)


def test_every_token_has_its_own_id():
    clock, key = FakeClock(), new_signing_key()
    ids = {read_compact(mint(clock, key)[1].reveal()).claims["jti"] for _ in range(20)}
    assert len(ids) == 20


def test_a_hidden_key_is_taken_and_not_published():
    key = dataclasses.replace(new_signing_key(), published=False)
    assert published_keys([key]).keys == ()
    assert [one["kid"] for one in all_keys([key]).keys] == [key.kid]


def test_published_keys_have_no_private_part():
    (jwk,) = published_keys([new_signing_key()]).keys
    assert set(jwk) == {"kty", "crv", "x", "y", "kid", "alg", "use"}


def test_a_key_survives_being_stored():
    key = new_signing_key()
    assert parse(type(key), dump(key)) == key


def test_opaque_tokens_are_compared_by_hash():
    token = new_token(FakeClock().clock)
    assert matches(token, token_digest(token))
    assert not matches(Secret("other"), token_digest(token))
    assert not matches(Secret("\ud800"), token_digest(token))
    assert len(token.reveal()) == 43


def test_the_agent_token_file_is_its_users_alone(tmp_path):
    digest = write_agent_token(tmp_path, FakeClock().clock)
    path = tmp_path / "agent.token"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert token_digest(Secret(path.read_text().strip())) == digest == read_agent_token(tmp_path)
    assert [one.name for one in tmp_path.iterdir()] == ["agent.token"]


def test_no_agent_token_file(tmp_path):
    assert read_agent_token(tmp_path) is None


def test_the_dpop_key_is_made_once(tmp_path):
    jkt = ensure_dpop_key(tmp_path)
    path = tmp_path / "agent-dpop.pem"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert load_private_key(path.read_bytes())
    assert ensure_dpop_key(tmp_path) == jkt


def test_files_that_cannot_be_used_are_named(tmp_path):
    (tmp_path / "agent-dpop.pem").write_text("nonsense")
    with pytest.raises(StateError, match=r"^agent-dpop\.pem: expected a private key"):
        ensure_dpop_key(tmp_path)
    (tmp_path / "agent.token").mkdir()
    with pytest.raises(StateError, match=r"^agent\.token: cannot be read"):
        read_agent_token(tmp_path)
    with pytest.raises(StateError, match=r"^agent\.token: cannot be written"):
        write_agent_token(tmp_path, FakeClock().clock)
