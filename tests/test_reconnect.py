"""Each row of the connection table, the states of a connection, and the waits between attempts."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bothy_hermes.errors import GatewayRefused, IllegalMove
from bothy_hermes.reconnect import (
    LOST,
    RULES,
    Action,
    ConnectionState,
    Ending,
    Reconnector,
    Where,
    check_move,
    no_answer,
    rule_for,
)
from tests.fakes.clock import FakeClock

ROWS = [
    (Where.HTTP, 401, Action.LOGIN, True),
    (Where.CLOSE, 4401, Action.LOGIN, True),
    (Where.HTTP, 403, Action.STOP, True),
    (Where.HTTP, 404, Action.STOP, True),
    (Where.HTTP, 422, Action.STOP, True),
    (Where.HTTP, 426, Action.STOP, True),
    (Where.CLOSE, 4403, Action.STOP, True),
    (Where.CLOSE, 4426, Action.STOP, True),
    (Where.HTTP, 429, Action.BACKOFF, False),
    (Where.HTTP, 500, Action.BACKOFF, False),
    (Where.HTTP, 502, Action.BACKOFF, False),
    (Where.HTTP, 503, Action.BACKOFF, False),
    (Where.HTTP, 599, Action.BACKOFF, False),
    (Where.CLOSE, LOST, Action.BACKOFF, False),
    (Where.CLOSE, 1000, Action.BACKOFF, False),
    (Where.CLOSE, 1001, Action.BACKOFF, False),
    (Where.CLOSE, 1009, Action.BACKOFF, False),
    (Where.CLOSE, 1011, Action.BACKOFF, False),
    (Where.CLOSE, 1012, Action.BACKOFF, False),
    (Where.CLOSE, 1013, Action.BACKOFF, False),
    (Where.CLOSE, 3000, Action.BACKOFF, False),
    (Where.CLOSE, 4400, Action.BACKOFF, True),
    (Where.CLOSE, 4499, Action.BACKOFF, False),
    (Where.CLOSE, 4409, Action.REPLACED, False),
    (Where.HTTP, 302, Action.BACKOFF, True),
    (Where.HTTP, 200, Action.BACKOFF, True),
    (Where.HTTP, 400, Action.BACKOFF, True),
    (Where.HTTP, 101, Action.BACKOFF, True),
]


@pytest.mark.parametrize(("where", "code", "action", "said"), ROWS)
def test_each_row_of_the_table(where, code, action, said):
    """What comes after an ending, and whether the operator is told why."""
    rule = rule_for(Ending(where, code))
    assert (rule.action, bool(rule.say)) == (action, said)


def test_every_row_is_tried():
    """No row of the data is left out above."""
    tried = {rule_for(Ending(where, code)) for where, code, _, _ in ROWS}
    assert set(RULES) <= tried


def test_the_table_stays_as_it_is(snapshot):
    """Row by row, as somebody would review a change."""
    rows = [f"{row.where} {row.first}-{row.last}: {row.action}; {row.say}" for row in RULES]
    assert [row.rstrip("; ") for row in rows] == snapshot


@given(st.sampled_from(Where), st.integers(-5, 70_000))
def test_every_code_has_a_rule(where, code):
    """A code that nobody thought of is a loss, never an exception."""
    rule = rule_for(Ending(where, code))
    assert (rule.where is where and rule.first <= code <= rule.last) or rule.action is Action.BACKOFF


def made(fake=None, uniform=None):
    fake = fake or FakeClock()
    return fake, Reconnector(fake.clock.monotonic, uniform or fake.clock.uniform)


@pytest.mark.parametrize(
    ("where", "code"), [(where, code) for where, code, action, _ in ROWS if action is Action.STOP]
)
def test_a_stop_row_raises(where, code):
    """The error says what was answered and what the operator can do."""
    _, reconnector = made()
    with pytest.raises(GatewayRefused) as caught:
        reconnector.after(Ending(where, code))
    assert (caught.value.where, caught.value.code) == (where, code)
    assert caught.value.problem


def test_losses_are_waited_for_longer_and_longer():
    """Ceilings from half a second to half a minute."""
    _, reconnector = made()
    waits = [reconnector.after(no_answer()).seconds for _ in range(8)]
    assert waits == [0.5, 1, 2, 4, 8, 16, 30, 30]


def test_the_wait_shrinks_only_after_a_useful_link():
    """A connection that was taken and dies at once is one more failure; after 30 s it did its work."""
    fake, reconnector = made()
    for _ in range(4):
        reconnector.after(no_answer())
    reconnector.ready()
    fake.move(29.9)
    assert reconnector.after(Ending(Where.CLOSE, 1012)).seconds == 8.0
    reconnector.ready()
    fake.move(30)
    assert reconnector.after(Ending(Where.CLOSE, 1012)).seconds == 0.5


def test_time_without_a_connection_is_not_useful():
    """Waiting for the next attempt, however long, resets nothing."""
    fake, reconnector = made()
    reconnector.after(no_answer())
    fake.move(3600)
    assert reconnector.after(no_answer()).seconds == 1.0


def test_retry_after_is_honoured():
    """A busy server names the time itself."""
    _, reconnector = made()
    assert reconnector.after(Ending(Where.HTTP, 429, retry_after=120.0)).seconds == 120.5
    assert reconnector.after(Ending(Where.HTTP, 503, retry_after=7.0)).seconds == 8.0
    assert reconnector.after(Ending(Where.HTTP, 401, retry_after=120.0)).seconds == 125.0
    assert reconnector.after(Ending(Where.HTTP, 401, retry_after=9_999_999_999.0)).seconds == 905.0


@settings(derandomize=True)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([(where, code) for where, code, action, _ in ROWS if action is not Action.STOP]),
            st.one_of(st.none(), st.floats(0, 1e12)),
            st.sampled_from([0.0, 0.0, 1.0, 40.0]),
        ),
        min_size=10,
        max_size=30,
    )
)
def test_no_server_makes_an_adapter_spin_or_silences_it(endings):
    """However connections end and whatever is asked for: ten attempts take a while, and none is far away."""
    fake, reconnector = made(uniform=random.Random(1).uniform)
    times = []
    for (where, code), retry_after, lived in endings:
        reconnector.ready()
        fake.move(lived)
        wait = reconnector.after(Ending(where, code, retry_after=retry_after)).seconds
        assert 0 <= wait <= 935
        fake.move(wait)
        times.append(fake.elapsed)
    assert all(later - earlier > 1 for earlier, later in zip(times, times[9:], strict=False))


@pytest.mark.parametrize("ending", [Ending(Where.HTTP, 401), Ending(Where.CLOSE, 4401)])
def test_a_refused_token_is_tried_once_a_minute(ending):
    """Not faster, however often, and not ever slower."""
    _, reconnector = made(uniform=random.Random(1).uniform)
    waits = [reconnector.after(ending) for _ in range(20)]
    assert all(60 <= wait.seconds <= 65 for wait in waits)
    assert all("token_file" in wait.say for wait in waits)


def test_a_refused_key_is_not_said_to_be_a_refused_token():
    """Another token would mend nothing: the agent has another key at the server."""
    refused = Ending(Where.HTTP, 401, detail="invalid_dpop_proof")
    _, reconnector = made()
    wait = reconnector.after(refused)
    assert "dpop_key_file" in wait.say
    assert "token_file" not in wait.say
    assert wait.seconds >= 60


def test_a_replaced_adapter_waits_half_a_minute():
    """Between 30 and 45 s, twice without a word."""
    _, reconnector = made(uniform=random.Random(2).uniform)
    waits = [reconnector.after(Ending(Where.CLOSE, 4409)) for _ in range(2)]
    assert all(30 <= wait.seconds <= 45 and not wait.say for wait in waits)
    assert len({wait.seconds for wait in waits}) == 2


def replaced_after(fake, reconnector, lived):
    reconnector.ready()
    fake.move(lived)
    wait = reconnector.after(Ending(Where.CLOSE, 4409))
    fake.move(wait.seconds)
    return wait


def test_three_times_in_ten_minutes_is_a_second_adapter():
    """Then it is said, and only one try is made every ten minutes, as long as the fight lasts."""
    fake, reconnector = made()
    waits = [replaced_after(fake, reconnector, 5) for _ in range(6)]
    assert [wait.seconds for wait in waits] == [45, 45, 600, 600, 600, 600]
    assert "hermes_adapter.consumer" in waits[2].say


def test_the_fight_is_over_after_ten_quiet_minutes():
    """A link that lived ten minutes was not contested any more."""
    fake, reconnector = made()
    for _ in range(3):
        replaced_after(fake, reconnector, 5)
    assert replaced_after(fake, reconnector, 599).seconds == 600
    assert replaced_after(fake, reconnector, 600).seconds == 45


def test_being_replaced_now_and_then_is_no_fight():
    """Restarts that lie apart are restarts."""
    fake, reconnector = made()
    for _ in range(10):
        assert replaced_after(fake, reconnector, 400).seconds == 45


def test_a_fight_is_seen_however_often_restarts_came_before():
    """The last three count."""
    fake, reconnector = made()
    waits = [replaced_after(fake, reconnector, lived).seconds for lived in (400, 400, 400, 400, 5)]
    assert waits == [45, 45, 45, 45, 600]


LEGAL = {
    "waiting": {"connecting", "stopped"},
    "connecting": {"identifying", "waiting", "stopped"},
    "identifying": {"ready", "waiting", "stopped"},
    "ready": {"waiting", "stopped"},
    "stopped": set(),
}


def test_the_moves_of_a_connection():
    """These and no others; any other raises."""
    assert set(LEGAL) == set(ConnectionState)
    for source in ConnectionState:
        for target in ConnectionState:
            if target in LEGAL[source]:
                assert check_move(source, target) is target
            else:
                with pytest.raises(IllegalMove):
                    check_move(source, target)


def test_endings_read_well():
    """What a log line calls them."""
    assert str(no_answer()) == "lost"
    assert str(no_answer("openGateway: connect")) == "lost (openGateway: connect)"
    assert str(Ending(Where.CLOSE, 4409)) == "close 4409"
    assert str(Ending(Where.HTTP, 503, retry_after=5)) == "http 503"
