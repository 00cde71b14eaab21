"""One run's token: which one is presented, and when another is asked for."""

import asyncio
from datetime import timedelta
from uuid import UUID

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from bothy_hermes.errors import ProblemAnswer, RunEnded, TokenRefused
from bothy_hermes.jose import sign_compact
from bothy_hermes.run_tokens import RunToken, life_left
from bothy_hermes.secret import Secret
from tests.fakes.clock import START, FakeClock, settle

RUN = UUID("0192f4a0-7b1c-7000-8000-0000000000aa")
KEY = ec.generate_private_key(ec.SECP256R1())
LIFE = 900


def token(issued_after=0, life=LIFE):
    issued = int(START.timestamp()) + issued_after
    claims = {"iat": issued, "exp": issued + life, "jti": str(issued_after)}
    return Secret(sign_compact({"alg": "ES256", "typ": "bothy-run+jwt", "kid": "k"}, claims, KEY))


class Server:
    """Hands out a new token for each renewal and remembers with what it was asked."""

    def __init__(self, clock, refuse_run_token=False, over=False):
        self.clock = clock
        self.over = over
        self.refuse_run_token = refuse_run_token
        self.asked_with = []
        self.garbled = []

    def server_now(self):
        return self.clock.time

    async def renew_run_token(self, run_id, auth=None):
        assert run_id == RUN
        presented = await auth.token() if auth is not None else None
        self.asked_with.append(presented)
        await asyncio.sleep(0)
        if self.over:
            raise RunEnded("renewRunToken", 409, "run_ended")
        if presented is not None and self.refuse_run_token:
            raise ProblemAnswer("renewRunToken", 401, "token_expired")
        if self.garbled:
            return Secret(self.garbled.pop())
        return token(int(self.clock.elapsed))


def use(first, *, after=0.0, calls=1, **options):
    """Ask for a token after a time; returns what was presented and what the renewals were asked with."""
    clock = FakeClock()
    server = Server(clock, **options)

    async def run():
        source = RunToken(server, RUN, first)
        clock.move(after)
        return list(await asyncio.gather(*(source.token() for _ in range(calls))))

    return asyncio.run(run()), server.asked_with


def test_a_fresh_token_is_presented_as_it_came():
    first = token()
    assert use(first, after=599) == ([first], [])


def test_a_token_with_little_life_left_is_renewed_with_itself():
    """The renewed token keeps the person of the one it was asked with."""
    first = token()
    presented, asked_with = use(first, after=601)
    assert presented == [token(601)] or life_left(presented[0], START + timedelta(seconds=601)) == 1.0
    assert asked_with == [first]


def test_waiting_callers_share_one_renewal():
    _, asked_with = use(token(), after=700, calls=25)
    assert len(asked_with) == 1


def waiting_on_a_silent_server(steps):
    """Run `steps(ask, server)`; `ask` makes a caller, nobody is answered before `server.answer` is set."""

    async def run():
        clock = FakeClock()
        server = Server(clock)
        server.answer, usual = asyncio.Event(), server.renew_run_token

        async def slowly(run_id, auth=None):
            await server.answer.wait()
            return await usual(run_id, auth)

        server.renew_run_token = slowly
        source = RunToken(server, RUN, None)

        async def ask():
            asking = asyncio.ensure_future(source.token())
            await settle()
            return asking

        await steps(ask, server)

    asyncio.run(run())


def renewals():
    return [task for task in asyncio.all_tasks() if task.get_name() == "bothy-renew-token"]


def test_a_renewal_ends_with_those_who_wait_for_it():
    """A run that is over, or broke off, asks the server for nothing more; who comes later asks anew."""

    async def steps(ask, server):
        first, second = await ask(), await ask()
        first.cancel()
        await settle()
        assert len(renewals()) == 1, "the other one still waits"
        second.cancel()
        third = await ask()
        assert len(renewals()) == 1
        server.answer.set()
        assert life_left(await third, START) == 1.0
        assert server.asked_with == [None]

    waiting_on_a_silent_server(steps)


def test_no_renewal_is_left_of_a_run_that_is_over():
    async def steps(ask, server):
        (await ask()).cancel()
        await settle()
        assert renewals() == []
        assert server.asked_with == []

    waiting_on_a_silent_server(steps)


def test_an_expired_token_is_replaced_by_the_agents():
    _, asked_with = use(token(), after=LIFE + 1)
    assert asked_with == [None]


def test_after_a_restart_the_agents_token_buys_the_first_one():
    presented, asked_with = use(None)
    assert asked_with == [None]
    assert life_left(presented[0], START) == 1.0


def test_a_renewed_token_that_nobody_can_read_is_not_kept():
    """The call that needed it fails, and the next one asks again; without this none would ever again."""
    server = Server(FakeClock())
    server.garbled = ["no token", "header.payload.signature"]

    async def run():
        source = RunToken(server, RUN)
        for _ in range(2):
            with pytest.raises(TokenRefused, match="malformed"):
                await source.token()
        return await source.token()

    assert life_left(asyncio.run(run()), START) == 1
    assert server.asked_with == [None] * 3


def test_a_refused_renewal_falls_back_to_the_agents_token():
    first = token()
    _, asked_with = use(first, after=700, refuse_run_token=True)
    assert asked_with == [first, None]


def test_an_expired_answer_renews_once_for_the_token_it_was_about():
    """A second caller that was refused with the same old token finds the new one already there."""
    clock = FakeClock()
    server = Server(clock)
    first = token()

    async def run():
        source = RunToken(server, RUN, first)
        again = await source.refused(first, "token_expired")
        more = await source.refused(first, "token_expired")
        return again, more, await source.token()

    again, more, presented = asyncio.run(run())
    assert (again, more) == (True, True)
    assert presented != first
    assert len(server.asked_with) == 1


def test_other_refusals_are_final():
    source = RunToken(Server(FakeClock()), RUN, token())
    assert asyncio.run(source.refused(token(), "unauthorized")) is False


def test_a_newer_events_token_takes_over():
    clock = FakeClock()
    source = RunToken(Server(clock), RUN, token())
    newer = token(10)
    source.take(newer)
    assert asyncio.run(source.token()) == newer


def test_a_token_shows_its_life():
    assert life_left(token(), START) == 1.0
    assert life_left(token(), START + timedelta(seconds=LIFE)) == 0.0
    assert life_left(token(life=0), START) == 0.0


def test_after_the_end_a_token_that_lives_is_still_presented():
    """The answer to a last click needs one, and no new one is given out any more."""
    first = token()
    assert use(first, after=700, over=True) == ([first], [first])


def test_after_the_end_a_dead_token_is_not_presented():
    with pytest.raises(RunEnded):
        use(token(), after=LIFE + 1, over=True)
    with pytest.raises(RunEnded):
        use(None, over=True)
