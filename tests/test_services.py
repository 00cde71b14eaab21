"""What the server asks for, before and after it said so."""

import pytest

from bothy_hermes.codec import parse
from bothy_hermes.message_split import LEAST_LIMIT
from bothy_hermes.services import Terms
from bothy_hermes.wire_events import Hello, HelloSettings
from tests.fakes.wire_examples import EXAMPLES


def hello(**changes):
    return parse(Hello, EXAMPLES[Hello]() | changes)


def test_before_the_first_hello_the_protocols_own_values_hold():
    """Costs are left out as long as nobody said that they are booked."""
    terms = Terms()
    assert terms.heartbeat_seconds() == 30.0
    limits = terms.limits()
    assert (limits.run_update_min_interval_ms, limits.max_content_bytes) == (1000, 262144)
    assert limits.costs_enabled is False


@pytest.mark.parametrize(("said", "kept"), [(1, 0.1), (99, 0.1), (101, 0.101)])
def test_heartbeats_are_no_flood(said, kept):
    terms = Terms()
    terms.take(hello(heartbeat_interval_ms=said))
    assert terms.heartbeat_seconds() == kept


def test_a_limit_that_no_character_fits_into_is_not_kept():
    terms = Terms()
    terms.take(hello(settings=EXAMPLES[HelloSettings]() | {"max_content_bytes": 1}))
    assert terms.limits().max_content_bytes == LEAST_LIMIT


def test_the_last_hello_holds():
    """A new connection may come with other limits."""
    terms = Terms()
    settings = {"run_update_min_interval_ms": 50, "max_content_bytes": 2000, "costs_enabled": True}
    terms.take(hello())
    terms.take(hello(heartbeat_interval_ms=5000, settings=settings))
    assert terms.heartbeat_seconds() == 5.0
    assert terms.limits().max_content_bytes == 2000
    assert terms.limits().costs_enabled is True
