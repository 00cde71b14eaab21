"""Bringing a thread onto the session that its next turn is to run on."""

import asyncio

import pytest

from bothy_hermes.errors import SessionRefused
from bothy_hermes.hermes_control import Command
from bothy_hermes.hermes_runtime import (
    BUSY_SECONDS,
)
from bothy_hermes.runtime import (
    SessionSwitch,
    TurnOutcome,
)
from bothy_hermes.turn_facts import Asked
from bothy_hermes.wire_words import SessionMode
from tests.fakes.clock import settle
from tests.fakes.runtime_kit import MAIN, request, scenes, start

FIRST, SECOND, THIRD = (f"20261130_1{number}0000_aaaaaaaa" for number in (2, 3, 4))


@pytest.fixture
def play(monkeypatch):
    """Run a scene with a gateway of its own."""
    return scenes(monkeypatch)


class TestSessions:
    """Which session the next turn runs on."""

    def switched(self, play, mode, reference, *, current=FIRST, rows=(FIRST, SECOND), becomes=None):
        """Ask for a session; returns what became of it and the commands that Hermes was given."""

        async def scene(gateway):
            key = gateway.session_key(request())
            if current is not None:
                gateway.runner.sessions[key] = current
            gateway.runner.rows = {one: {"id": one, "source": "bothy"} for one in rows}

            async def obey(_turn, command, wanted):
                assert gateway.runtime.is_own_command(key)
                after = "20261130_190000_99999999" if command is Command.NEW else wanted
                first = len(gateway.commands) == 1
                gateway.runner.sessions[key] = becomes if becomes and first else after

            gateway.on_command = obey
            found = await gateway.fake.drive(gateway.runtime.use_session(request(), mode, reference))
            assert not gateway.runtime.is_own_command(key)
            return found, gateway.commands

        return play(scene)

    @pytest.mark.parametrize(
        ("mode", "reference", "current", "switch", "commands"),
        [
            (SessionMode.NEW, None, FIRST, SessionSwitch.NEW, [(Command.NEW, None)]),
            (SessionMode.NEW, None, None, SessionSwitch.KEPT, []),
            (SessionMode.RESUME, None, FIRST, SessionSwitch.KEPT, []),
            (SessionMode.RESUME, FIRST, FIRST, SessionSwitch.KEPT, []),
            (SessionMode.RESUME, SECOND, FIRST, SessionSwitch.BOUND, [(Command.RESUME, SECOND)]),
            (SessionMode.BIND, SECOND, None, SessionSwitch.BOUND, [(Command.RESUME, SECOND)]),
            (SessionMode.BIND, THIRD, FIRST, SessionSwitch.MISSING, [(Command.NEW, None)]),
            (SessionMode.BIND, "a title", FIRST, SessionSwitch.NO_ID, [(Command.NEW, None)]),
            (SessionMode.BIND, "a title", None, SessionSwitch.NO_ID, []),
        ],
    )
    def test_decision_10_the_thread_is_brought_onto_the_wanted_session(  # noqa: PLR0917  # the table's columns
        self, play, mode, reference, current, switch, commands
    ):
        """By Hermes' own commands, and only where they change something."""
        assert self.switched(play, mode, reference, current=current) == (switch, commands)

    def test_decision_10_a_bind_without_effect_is_a_missing_session(self, play):
        """What Hermes answered is a text; the store says what it did."""
        found, commands = self.switched(play, SessionMode.BIND, SECOND, becomes="20261130_180000_88888888")
        assert found is SessionSwitch.NOT_TAKEN
        assert commands[0] == (Command.RESUME, SECOND)

    def test_decision_10_a_session_that_must_not_go_on_ends_the_run(self, play):
        """Its history is not the new one's."""
        with pytest.raises(SessionRefused):
            self.switched(play, SessionMode.NEW, None, becomes=FIRST)

    def test_a_command_is_waited_for_until_hermes_has_freed_the_thread(self, play):
        """It is taken at once and done later; what it did is looked up then."""

        async def scene(gateway):
            key, given = gateway.session_key(request()), []
            gateway.runner.sessions[key] = FIRST

            async def command(_turn, _command, message_id, _reference=None):
                given.append(message_id)

            gateway.command = command
            using = asyncio.ensure_future(gateway.runtime.use_session(request(), SessionMode.NEW, None))
            await settle()
            assert (len(given), using.done()) == (1, False)
            gateway.busy, gateway.runner.sessions[key] = True, SECOND
            gateway.runtime.processing_complete(given[0], cancelled=False)
            await settle()
            assert not using.done()
            gateway.busy = False
            assert await gateway.fake.drive(using) is SessionSwitch.NEW
            assert gateway.fake.elapsed < 1

        play(scene)

    def test_a_thread_that_stays_busy_is_given_no_command(self, play):
        """It would enter the turn that is at work there."""

        async def scene(gateway):
            gateway.runner.sessions[gateway.session_key(request())] = FIRST
            gateway.busy = True
            with pytest.raises(SessionRefused):
                await gateway.fake.drive(gateway.runtime.use_session(request(), SessionMode.NEW, None))
            assert gateway.commands == []

        play(scene)

    def test_a_turn_waits_for_another_threads_turn_on_the_same_session(self, play):
        """However long it takes; cancelled it goes nowhere."""

        async def scene(gateway):
            for number in (1, 2, 3):
                gateway.runner.sessions[gateway.session_key(request(number))] = FIRST
            first, _ = start(gateway, request(1))
            await settle()
            gateway.runtime.threads.processing_started(str(request(1).message_id))
            gateway.say(request(1), Asked(MAIN))
            second, _ = start(gateway, request(2))
            third, _ = start(gateway, request(3))
            await gateway.fake.advance(BUSY_SECONDS * 2)
            assert [event.turn for event in gateway.handed] == [request(1)]
            await gateway.runtime.interrupt(request(3).run_id)
            assert (await gateway.fake.drive(third)).outcome is TurnOutcome.CANCELLED
            await gateway.answer(request(1))
            await gateway.fake.drive(first)
            await gateway.fake.advance(0.1)
            assert [event.turn for event in gateway.handed] == [request(1), request(2)]
            second.cancel()

        play(scene)
