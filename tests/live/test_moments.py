"""A text at a chance moment of a turn is answered exactly once, whatever the turn is at."""

import pytest

from tests.live import moments


@pytest.fixture(scope="module")
def world(closed_world):
    """A world whose agent takes texts into a running turn."""
    closed_world.open(toolsets=("terminal",))
    closed_world.start()
    return closed_world


@pytest.mark.parametrize("count", [20, pytest.param(100, marks=[pytest.mark.slow, pytest.mark.timeout(300)])])
def test_texts_at_chance_moments_are_each_answered_once(world, count):
    """In the turn that was shown it, or in a run of its own; never in both, never in none."""
    assert set(moments.check(world, count)) == {moments.ABSORBED, moments.OWN_RUN}
