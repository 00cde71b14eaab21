"""One turn in Hermes' hands: asked for, interrupted, given up."""

import asyncio
import logging
from uuid import UUID

import pytest

from bothy_hermes import run_turn
from bothy_hermes.run_turn import INTERRUPT_TRIES, NOT_ENDED, RunTurn
from bothy_hermes.runtime import TurnEnd, TurnOutcome

RUN = UUID(int=1)
DONE = TurnEnd(TurnOutcome.COMPLETED)


class Hermes:
    """A turn that ends when the test says so, or hears the interrupt of a number."""

    def __init__(self, hears=None):
        self.hears = hears
        self.release = asyncio.Event()
        self.interrupts = 0
        self.cancelled = False
        self.breaks = None

    async def start_turn(self, _turn, _events):
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0.01)  # letting go takes its time
            self.cancelled = True
            raise
        if self.breaks is not None:
            raise self.breaks
        return DONE

    async def interrupt(self, run_id):
        assert run_id == RUN
        self.interrupts += 1
        if self.interrupts == self.hears:
            self.release.set()


def play(scene, monkeypatch, **choices):
    """Run a scene with a turn under way; no try of an interrupt waits long."""
    monkeypatch.setattr(run_turn, "INTERRUPT_SECONDS", 0.001)

    async def with_turn():
        hermes = Hermes(**choices)
        turn = RunTurn(hermes, RUN)
        doing = asyncio.ensure_future(turn.do(None, None))
        await asyncio.sleep(0)
        await scene(hermes, turn, doing)

    asyncio.run(with_turn())


def test_a_turns_end_is_the_runtimes(monkeypatch):
    async def scene(hermes, turn, doing):
        hermes.release.set()
        assert await doing == DONE
        assert turn.lingering is None

    play(scene, monkeypatch)


@pytest.mark.parametrize("hears", [1, 3, INTERRUPT_TRIES])
def test_a_turn_is_interrupted_until_it_is_over(monkeypatch, hears):
    async def scene(hermes, turn, doing):
        await turn.interrupt()
        assert await doing == DONE
        assert hermes.interrupts == hears
        assert turn.lingering is None

    play(scene, monkeypatch, hears=hears)


def test_a_turn_that_hears_no_interrupt_is_given_up_and_lingers(monkeypatch, caplog):
    """The run goes on without it; whoever counts turns knows when Hermes has let go."""

    async def scene(hermes, turn, doing):
        await turn.interrupt()
        assert await doing == NOT_ENDED
        assert hermes.interrupts == INTERRUPT_TRIES
        lingering = turn.lingering
        assert not lingering.done()
        assert not hermes.cancelled
        hermes.release.set()
        assert await lingering == DONE
        assert turn.lingering is None

    with caplog.at_level(logging.ERROR):
        play(scene, monkeypatch)
    assert f"run {RUN}: Hermes does not end an interrupted turn" in caplog.text


def test_a_turn_that_nobody_waits_for_any_more_is_cancelled(monkeypatch):
    """On the way out; Hermes is told before the work is gone."""

    async def scene(hermes, turn, doing):
        doing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await doing
        assert hermes.cancelled
        assert turn.lingering is None

    play(scene, monkeypatch)


@pytest.mark.parametrize("error", [RuntimeError("xyzzy"), asyncio.CancelledError()])
def test_whatever_breaks_in_hermes_the_turn_has_an_end(monkeypatch, caplog, error):
    """A cancellation inside the runtime is none of the work's; the error's text is nobody's to read."""

    async def scene(hermes, _turn, doing):
        hermes.breaks = error
        hermes.release.set()
        end = await doing
        assert (end.outcome, end.detail) == (TurnOutcome.FAILED, type(error).__name__)

    play(scene, monkeypatch)
    assert "xyzzy" not in caplog.text


def test_before_the_turn_there_is_nothing_to_interrupt():
    async def scene():
        hermes = Hermes()
        await RunTurn(hermes, RUN).interrupt()
        assert hermes.interrupts == 0

    asyncio.run(scene())
