"""The server's memory of proofs."""

from datetime import timedelta

from bothy_hermes.dpop import Proof
from bothy_hermes.local_nonces import Nonces
from tests.fakes.clock import FakeClock


def proof(clock, jti="1", jkt="k", nonce=None, age=0):
    return Proof(jkt, jti, nonce, clock.time - timedelta(seconds=age))


def test_a_proof_counts_by_its_key_and_id():
    clock = FakeClock()
    nonces = Nonces(clock.clock)
    assert nonces.first_use(proof(clock))
    assert not nonces.first_use(proof(clock))
    assert nonces.first_use(proof(clock, jkt="other"))
    assert nonces.first_use(proof(clock, jti="2"))


def test_an_id_of_lone_surrogates_is_an_id():
    """JSON can hold them; such a proof is counted like any other and breaks nothing."""
    clock = FakeClock()
    nonces = Nonces(clock.clock)
    assert nonces.first_use(proof(clock, "\ud800"))
    assert not nonces.first_use(proof(clock, "\ud800"))
    assert nonces.first_use(proof(clock, "\udfff"))


def test_proofs_are_remembered_for_their_window_only():
    """60 s back and 30 s ahead; after that the window itself refuses them."""
    clock = FakeClock()
    nonces = Nonces(clock.clock)
    for number in range(100):
        assert nonces.first_use(proof(clock, str(number)))
    clock.move(90)
    assert not nonces.first_use(proof(clock, "1"))
    clock.move(2)
    assert nonces.first_use(proof(clock, "new"))
    assert len(nonces._seen) == 1


def test_a_nonce_is_needed_when_demanded_or_older_than_the_start():
    clock = FakeClock()
    nonces = Nonces(clock.clock)
    assert nonces.satisfied(proof(clock), required=False)
    assert not nonces.satisfied(proof(clock, age=2), required=False)
    assert not nonces.satisfied(proof(clock), required=True)
    assert not nonces.satisfied(proof(clock, nonce="other"), required=True)
    assert nonces.satisfied(proof(clock, nonce=nonces.current), required=True)


def test_nonces_are_unguessable_and_new():
    clock = FakeClock()
    nonces = Nonces(clock.clock)
    found = set()
    for _ in range(10):
        found.add(nonces.current)
        nonces.renew()
    assert len(found) == 10
    assert all(len(one) >= 20 for one in found)
