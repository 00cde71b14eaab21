"""Which key set judges a token."""

import asyncio

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from bothy_hermes.bothy_keys import KeyRing
from bothy_hermes.errors import ProblemAnswer
from bothy_hermes.jose import public_jwk
from bothy_hermes.wire import KeySetBody
from tests.fakes.clock import FakeClock


def jwk(kid):
    key = ec.generate_private_key(ec.SECP256R1()).public_key()
    return {**public_jwk(key), "kid": kid, "use": "sig", "alg": "ES256"}


class Source:
    """A server that shows the key sets it was given, the last one for ever."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = 0

    async def get_jwks(self):
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return KeySetBody(keys=tuple(jwk(kid) for kid in answer))


def ask(source, *questions, clock=None):
    """Ask for keys; a question is (kid, arrived_at) or seconds to wait before the next."""
    clock = clock or FakeClock()

    async def run():
        ring = KeyRing(source, clock.clock)
        answers = []
        for question in questions:
            if isinstance(question, tuple):
                answers.append(await ring.keys_for(*question))
            else:
                clock.move(question)
        return answers

    return asyncio.run(run())


def test_a_known_key_is_not_fetched_again():
    source = Source(["a"])
    first, second = ask(source, ("a", 0.0), ("a", 0.0))
    assert first.has("a")
    assert second is first
    assert source.asked == 1


def test_without_any_set_there_is_no_answer():
    """An event is left for redelivery rather than judged without keys."""
    assert ask(Source(ProblemAnswer("getJwks", 404, None)), ("a", 0.0)) == [None]


def test_an_unknown_key_fetches_the_rotated_set():
    source = Source(["a"], ["a", "b"])
    _, _, rotated = ask(source, ("a", 0.0), 60.0, ("a", 0.0), ("b", 60.0))
    assert rotated.has("b")


def test_a_set_fetched_after_the_arrival_decides_against_the_token():
    """The set that lacks the key is handed out: the token is bad, not the moment."""
    source = Source(["a"])
    (answer,) = ask(source, ("made-up", 0.0))
    assert answer is not None
    assert not answer.has("made-up")


def test_made_up_keys_ask_the_server_once_a_minute():
    """Whoever writes tokens decides how many key IDs there are, but not how often we ask."""
    source = Source(["a"])
    answers = ask(source, ("x1", 0.0), 1.0, ("x2", 1.0), 1.0, ("x3", 2.0), 58.0, ("x4", 60.0))
    assert source.asked == 2
    assert answers[1] is None
    assert answers[2] is None
    assert answers[3] is not None


def test_a_failed_fetch_leaves_the_question_open():
    source = Source(["a"], ProblemAnswer("getJwks", 400, None))
    _, answer = ask(source, ("a", 0.0), 60.0, ("b", 60.0))
    assert answer is None


def test_one_fetch_serves_all_who_wait():
    source = Source(["a"])

    async def run():
        ring = KeyRing(source, FakeClock().clock)
        return await asyncio.gather(*(ring.keys_for("a", 0.0) for _ in range(20)))

    assert all(keys.has("a") for keys in asyncio.run(run()))
    assert source.asked == 1


def test_a_set_that_was_asked_for_before_the_arrival_decides_nothing_against_the_token():
    """The server may have made its answer before it made the key that signed the event."""

    class Slow(Source):
        async def get_jwks(self):
            body = await super().get_jwks()
            clock.move(5)  # the answer travels
            return body

    clock = FakeClock()
    source = Slow(["a"])
    answers = ask(source, ("a", 0.0), ("b", 2.0), 55.0, ("b", 60.0), clock=clock)
    assert answers[1] is None
    assert source.asked == 2
    assert answers[2] is not None


@pytest.mark.parametrize("kid", ["", "a" * 200])
def test_strange_key_ids_are_only_unknown(kid):
    (answer,) = ask(Source(["a"]), (kid, 0.0))
    assert not answer.has(kid)
