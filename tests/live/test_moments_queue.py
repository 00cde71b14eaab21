"""The same where Hermes would queue what comes during a turn: nothing enters it."""

import pytest

from bothy_hermes.install_plan import Entry
from tests.live import moments


@pytest.fixture(scope="module")
def world(closed_world):
    """A world whose agent takes no text into a running turn."""
    closed_world.open(toolsets=("terminal",), more=[Entry(("display", "busy_input_mode"), "queue")])
    closed_world.start()
    return closed_world


@pytest.mark.parametrize("count", [10, pytest.param(100, marks=[pytest.mark.slow, pytest.mark.timeout(300)])])
def test_texts_at_chance_moments_are_each_answered_in_a_run_of_their_own(world, count):
    """Each once, in the order in which the thread's people wrote."""
    assert set(moments.check(world, count)) == {moments.OWN_RUN}
