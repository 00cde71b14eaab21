"""The runtime inside a gateway, on a platform that does what a test says."""

import asyncio
import contextlib
import contextvars
import threading
from types import SimpleNamespace
from uuid import UUID

import pytest

from bothy_hermes import hermes_credential
from bothy_hermes.errors import SessionRefused
from bothy_hermes.hermes_control import Command
from bothy_hermes.hermes_questions import ANSWER_SECONDS
from bothy_hermes.hermes_runtime import (
    BUSY_SECONDS,
    END_SECONDS,
    POLL_SECONDS,
    START_SECONDS,
    HermesRuntime,
)
from bothy_hermes.hermes_sessions import HermesSessions
from bothy_hermes.runtime import (
    BusyMode,
    Prompt,
    PromptEnd,
    PromptKind,
    ResolvedCredential,
    SessionSwitch,
    TurnOutcome,
    TurnRequest,
)
from bothy_hermes.turn_facts import Asked, Ended, Ids, Replied, Requested, RequestFailed
from bothy_hermes.wire_words import KeyType, SessionMode
from tests.fakes import hermes
from tests.fakes.clock import FakeClock, settle
from tests.fakes.turn_events import RecordedEvents

MAIN = Ids("s", "s", "t")
ENDED = Ended(MAIN, True, False, False, "text_response(finish_reason=stop)")
STOPPED = Ended(MAIN, False, False, True, "interrupted_by_user")


def request(number=1):
    """A turn of a thread of its own."""
    ids = [UUID(int=number * 10 + offset) for offset in range(5)]
    return TurnRequest(ids[0], ids[1], ids[2], ids[3], "Ada", ids[4], "What time is it?", "In a channel.")


class Gateway:
    """A platform whose Hermes says what the test has it say."""

    def __init__(self, monkeypatch):
        self.state = hermes.installed(monkeypatch)
        self.fake = FakeClock()
        self.handed = []
        self.texts = []
        self.commands = []
        self.stopped = []
        self.released = []
        self.halted = []
        self.bound = {}
        self.subagents = {}
        self.dropped = []
        self.accepts = True
        self.busy = False
        self.busy_mode = BusyMode.STEER
        self.agents = {}
        self.on_hand_in = None
        self.on_stop = None
        self.on_command = None
        self.runner = hermes.Runner()
        self.sessions = HermesSessions(self.runner, "bothy")
        self.runtime = HermesRuntime(self, "bothy", hermes.HOME, self.fake.clock)

    def turn_event(self, turn):
        return SimpleNamespace(message_id=str(turn.message_id), turn=turn)

    def text_event(self, turn, text, message_id):
        return SimpleNamespace(message_id=str(message_id), turn=turn, text=text)

    async def hand_in(self, event):
        (self.texts if hasattr(event, "text") else self.handed).append(event)
        if self.on_hand_in is not None:
            await self.on_hand_in(event)
        return self.accepts

    def is_busy(self, _turn):
        return self.busy

    def session_key(self, turn):
        return f"key-{turn.thread_id}"

    def agent(self, turn):
        return self.agents.get(turn.run_id)

    def bound_payee(self, turn):
        return self.bound.get(turn.run_id)

    def has_subagent(self, turn, session_id):
        return session_id in self.subagents.get(turn.run_id, ())

    def halt(self, turn):
        self.halted.append(turn.run_id)

    def release_prompts(self, turn):
        self.released.append(turn.run_id)

    def drop_held(self, turn, agent, message_ids):
        self.dropped.append((turn.run_id, agent, message_ids))

    async def command(self, turn, command, message_id, reference=None):
        if command is Command.STOP:
            self.stopped.append((turn.run_id, message_id))
            if self.on_stop is not None:
                await self.on_stop(turn)
            return
        self.commands.append((command, reference))
        if self.on_command is not None:
            await self.on_command(turn, command, reference)
        self.runtime.processing_complete(message_id, cancelled=False)

    def say(self, turn, *facts):
        """Have hooks come, as from Hermes' threads."""
        for fact in facts:
            self.runtime.threads.hear(turn.thread_id, fact)

    async def send(self, turn, text, *, chat_id=None, thread_id=None, reply_to=None, speaker=None, **marks):
        metadata = {"thread_id": str(thread_id or turn.thread_id), **marks}
        return await self.runtime.threads.sent(
            str(chat_id or turn.channel_id), text, reply_to, metadata, speaker=speaker
        )

    def done(self, turn, *, cancelled=False):
        self.runtime.processing_complete(str(turn.message_id), cancelled=cancelled)

    async def answer(self, turn, text="Five."):
        """A whole plain turn."""
        self.runtime.threads.processing_started(str(turn.message_id))
        self.say(turn, Asked(MAIN), Replied(MAIN, 0, text), ENDED)
        await settle()
        await self.send(turn, text, reply_to=str(turn.message_id), notify=True)
        self.done(turn)


@pytest.fixture
def play(monkeypatch):
    """Run a scene with a gateway of its own."""

    def run(scene):
        async def opened():
            return await scene(Gateway(monkeypatch))

        return asyncio.run(opened())

    return run


def start(gateway, turn, events=None):
    """Begin a turn; returns its task and who is told."""
    told = events or RecordedEvents()
    return asyncio.ensure_future(gateway.runtime.start_turn(turn, told)), told


class TestTurn:
    """From the message that Hermes takes to the end of the turn."""

    def test_a_plain_turn(self, play):
        """One answer, one session, completed."""

        async def scene(gateway):
            task, told = start(gateway, request())
            await settle()
            await gateway.answer(request())
            end = await gateway.fake.drive(task)
            assert (end.outcome, end.detail) == (TurnOutcome.COMPLETED, "text_response")
            assert told.heard == [("session", "s"), ("answer", "Five.")]
            assert len(gateway.handed) == 1

        play(scene)

    def test_the_end_that_hermes_reports_waits_for_the_agent(self, play):
        """A cancelled delivery comes before the agent is gone."""

        async def scene(gateway):
            task, _ = start(gateway, request())
            await settle()
            gateway.runtime.threads.processing_started(str(request().message_id))
            gateway.say(request(), Asked(MAIN))
            await settle()
            gateway.done(request(), cancelled=True)
            await gateway.fake.advance(2.0)
            assert not task.done()
            gateway.say(request(), STOPPED)
            end = await gateway.fake.drive(task)
            assert (end.outcome, end.detail) == (TurnOutcome.CANCELLED, "interrupted_by_user")

        play(scene)

    def test_an_agent_that_never_ends_is_not_awaited_for_ever(self, play):
        """A bounded wait, then the turn is over for the run."""

        async def scene(gateway):
            task, _ = start(gateway, request())
            await settle()
            gateway.runtime.threads.processing_started(str(request().message_id))
            gateway.say(request(), Asked(MAIN))
            await settle()
            gateway.done(request())
            await gateway.fake.advance(END_SECONDS - 0.1)
            assert not task.done()
            await gateway.fake.advance(0.2)
            assert (await task).detail == "no_end"

        play(scene)

    def test_a_model_error_needs_no_end_hook(self, play):
        """Hermes sends an explanation and reports success."""

        async def scene(gateway):
            task, told = start(gateway, request())
            await settle()
            gateway.runtime.threads.processing_started(str(request().message_id))
            gateway.say(request(), Asked(MAIN), RequestFailed(MAIN, 401, "auth"))
            await settle()
            await gateway.send(request(), "The key was not accepted.", notify=True)
            gateway.done(request())
            end = await gateway.fake.drive(task)
            assert (end.outcome, end.detail) == (TurnOutcome.FAILED, "status_401")
            assert told.of("answer") == []

        play(scene)

    @pytest.mark.parametrize(
        ("accepts", "started", "detail"),
        [(False, False, "not_accepted"), (True, False, "not_started"), (None, False, "not_started")],
    )
    def test_a_message_that_hermes_does_not_begin_with_is_no_turn(self, play, accepts, started, detail):
        """Said at once, or after a bounded wait where Hermes does not say."""

        async def scene(gateway):
            gateway.accepts = accepts
            task, _ = start(gateway, request())
            if accepts is not False:
                await gateway.fake.advance(START_SECONDS + 0.1)
            end = await gateway.fake.drive(task)
            assert (end.outcome, end.detail) == (TurnOutcome.NOT_RUN, detail)

        play(scene)

    def test_a_message_that_was_processed_without_a_model_is_no_turn(self, play):
        """Denied, queued by the startup restore, a command: all of them are a success to Hermes."""

        async def scene(gateway):
            task, told = start(gateway, request())
            await settle()
            gateway.runtime.threads.processing_started(str(request().message_id))
            await gateway.send(request(), "You are not allowed.", notify=True)
            gateway.done(request())
            end = await gateway.fake.drive(task)
            assert (end.outcome, end.detail) == (TurnOutcome.NOT_RUN, "no_model_request")
            assert told.of("answer") == []

        play(scene)

    def test_another_messages_processing_is_not_the_turns(self, play):
        """Hermes' own turns carry no message or an old one."""

        async def scene(gateway):
            task, _ = start(gateway, request())
            await settle()
            gateway.runtime.threads.processing_started(None)
            gateway.runtime.threads.processing_started("other")
            gateway.runtime.processing_complete("other", cancelled=True)
            await gateway.answer(request())
            assert (await gateway.fake.drive(task)).outcome is TurnOutcome.COMPLETED

        play(scene)

    def test_threads_do_not_mix(self, play):
        """Two turns at once, each with its own words."""

        async def scene(gateway):
            turns = [request(1), request(2)]
            begun = [start(gateway, turn) for turn in turns]
            await settle()
            for turn, text in zip(turns, ("One.", "Two."), strict=True):
                await gateway.answer(turn, text)
            for task, _ in begun:
                await gateway.fake.drive(task)
            assert [told.of("answer") for _, told in begun] == [["One."], ["Two."]]

        play(scene)


class TestSameThread:
    """One turn of a thread at a time; a text before its end would enter it."""

    def test_the_next_turn_waits_until_hermes_has_freed_the_thread(self, play):
        """Hermes tidies up after the end that it reports."""

        async def scene(gateway):
            gateway.busy = True
            task, _ = start(gateway, request())
            await gateway.fake.advance(1.0)
            assert gateway.handed == []
            gateway.busy = False
            await gateway.fake.advance(0.1)
            assert len(gateway.handed) == 1
            await gateway.answer(request())
            await gateway.fake.drive(task)

        play(scene)

    def test_a_thread_that_stays_busy_is_no_turn(self, play):
        """The text is not handed into somebody else's turn."""

        async def scene(gateway):
            gateway.busy = True
            task, _ = start(gateway, request())
            await gateway.fake.advance(BUSY_SECONDS + 1)
            end = await task
            assert (end.outcome, end.detail) == (TurnOutcome.NOT_RUN, "thread_busy")
            assert gateway.handed == []

        play(scene)

    def test_the_next_turn_waits_for_the_agent_of_an_abandoned_one(self, play):
        """The run is over; the agent in Hermes is not."""

        async def scene(gateway):
            first, _ = start(gateway, request())
            await settle()
            gateway.runtime.threads.processing_started(str(request().message_id))
            gateway.say(request(), Asked(MAIN))
            await settle()
            first.cancel()
            await settle()
            second, told = start(gateway, request())
            await gateway.fake.advance(1.0)
            assert len(gateway.handed) == 1
            gateway.say(request(), STOPPED)
            await gateway.fake.advance(0.1)
            assert len(gateway.handed) == 2
            await gateway.answer(request())
            assert (await gateway.fake.drive(second)).outcome is TurnOutcome.COMPLETED
            assert told.of("answer") == ["Five."]

        play(scene)


class TestInterrupt:
    """A turn is over when its agent is, and an agent can be reached when it exists."""

    def test_an_interrupt_stops_the_turn_and_its_reply_is_not_shown(self, play):
        """By a command of ours, known by its message."""

        async def scene(gateway):
            async def stopped(turn):
                assert gateway.released == []
                reply_to = gateway.stopped[-1][1]
                await gateway.send(turn, "Stopped.", reply_to=reply_to, notify=True)
                gateway.done(turn, cancelled=True)
                gateway.say(turn, STOPPED)

            gateway.on_stop = stopped
            task, told = start(gateway, request())
            await settle()
            gateway.runtime.threads.processing_started(str(request().message_id))
            gateway.say(request(), Asked(MAIN))
            await settle()
            await gateway.runtime.interrupt(request().run_id)
            end = await gateway.fake.drive(task)
            assert (end.outcome, end.detail) == (TurnOutcome.CANCELLED, "interrupted_by_user")
            assert told.of("answer", "notice") == ["control_reply"]
            assert gateway.released == [request().run_id]

        play(scene)

    def test_an_agent_that_does_not_exist_yet_is_waited_for(self, play):
        """Stopped earlier, Hermes only stops waiting, and the model is asked all the same."""

        async def scene(gateway):
            task, _ = start(gateway, request())
            await settle()
            gateway.runtime.threads.processing_started(str(request().message_id))
            stop = asyncio.ensure_future(gateway.runtime.interrupt(request().run_id))
            await gateway.fake.advance(1.0)
            assert gateway.stopped == []
            gateway.say(request(), Asked(MAIN))
            await gateway.fake.drive(stop)
            assert len(gateway.stopped) == 1
            gateway.say(request(), STOPPED)
            gateway.done(request(), cancelled=True)
            assert (await gateway.fake.drive(task)).outcome is TurnOutcome.CANCELLED

        play(scene)

    def test_a_turn_that_waits_for_its_thread_is_never_handed_in(self, play):
        """Nothing of it has reached Hermes."""

        async def scene(gateway):
            gateway.busy = True
            task, _ = start(gateway, request())
            await gateway.fake.advance(0.5)
            await gateway.runtime.interrupt(request().run_id)
            gateway.busy = False
            end = await gateway.fake.drive(task)
            assert (end.outcome, end.detail) == (TurnOutcome.CANCELLED, "interrupted_early")
            assert gateway.handed == []

        play(scene)

    def test_a_turn_that_has_ended_is_not_stopped(self, play):
        """The command would hit the thread's next turn."""

        async def scene(gateway):
            task, _ = start(gateway, request())
            await settle()
            gateway.runtime.threads.processing_started(str(request().message_id))
            stop = asyncio.ensure_future(gateway.runtime.interrupt(request().run_id))
            await settle()
            gateway.done(request())
            await gateway.fake.drive(stop)
            await gateway.fake.drive(task)
            assert gateway.stopped == []

        play(scene)

    def test_an_unknown_run_is_nobodys_turn(self, play):
        """Nothing happens."""

        async def scene(gateway):
            await gateway.runtime.interrupt(UUID(int=99))
            assert gateway.stopped == []

        play(scene)

    def test_a_cancelled_call_interrupts_the_turn_and_tells_nobody(self, play):
        """What the agent still says belongs to no run."""

        async def scene(gateway):
            task, told = start(gateway, request())
            await settle()
            gateway.runtime.threads.processing_started(str(request().message_id))
            gateway.say(request(), Asked(MAIN))
            await settle()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await settle()
            assert len(gateway.stopped) == 1
            told.heard.clear()
            gateway.say(request(), Replied(MAIN, 0, "Five."))
            await settle()
            await gateway.send(request(), "Five.", notify=True)
            assert told.heard == []
            assert gateway.runtime.threads.dropped["turn_over"] == 1

        play(scene)

    def test_an_agent_that_is_in_sight_is_reached_before_the_model_is_asked(self, play):
        """It waits for its session, perhaps for long."""

        async def scene(gateway):
            task, _ = start(gateway, request())
            await settle()
            gateway.runtime.threads.processing_started(str(request().message_id))
            stop = asyncio.ensure_future(gateway.runtime.interrupt(request().run_id))
            await gateway.fake.advance(0.5)
            assert gateway.stopped == []
            gateway.agents[request().run_id] = "agent"
            await gateway.fake.drive(stop)
            assert len(gateway.stopped) == 1
            gateway.done(request(), cancelled=True)
            assert (await gateway.fake.drive(task)).outcome is TurnOutcome.CANCELLED

        play(scene)

    def test_a_gateway_that_stops_releases_every_turn(self, play):
        """Each prompt blocks a thread of it."""

        async def scene(gateway):
            task, told = start(gateway, request())
            await settle()
            gateway.say(request(), Asked(MAIN))
            await settle()
            gateway.runtime.release_all()
            assert gateway.released == [request().run_id]
            (active,) = gateway.runtime.threads
            assert await active.ask(CLARIFY) is None
            assert told.of("card") == []
            task.cancel()

        play(scene)


CLARIFY = Prompt(PromptKind.CLARIFY, "c-1", "k", "Which?")
TEXT = UUID(int=700)


class TestSteer:
    """A text into the running turn, only where it is certain to be taken."""

    async def begun(self, gateway):
        task, told = start(gateway, request())
        await settle()
        gateway.runtime.threads.processing_started(str(request().message_id))
        gateway.say(request(), Asked(MAIN), Requested(MAIN))
        gateway.agents[request().run_id] = "agent"
        await settle()
        return task, told

    def test_decision_8_a_text_enters_the_turn_and_is_taken_when_the_model_is_shown_it(self, play):
        """As a person's text, by its own message."""

        async def scene(gateway):
            task, told = await self.begun(gateway)
            assert await gateway.runtime.steer(request().run_id, "turn left", TEXT) is True
            (event,) = gateway.texts
            assert (event.text, event.message_id) == ("turn left", str(TEXT))
            assert dict(gateway.runtime.threads.held(request().thread_id)) == {TEXT: "turn left"}
            gateway.say(request(), Requested(MAIN, seen=(TEXT,)))
            await settle()
            assert told.of("text_seen") == [TEXT]
            await gateway.answer(request())
            assert (await gateway.fake.drive(task)).outcome is TurnOutcome.COMPLETED
            assert gateway.dropped == []

        play(scene)

    @pytest.mark.parametrize("mode", [BusyMode.QUEUE, BusyMode.INTERRUPT, None])
    def test_decision_8_in_another_mode_nothing_is_handed_in(self, play, mode):
        """Hermes would make a turn of it, or abort this one."""

        async def scene(gateway):
            task, _ = await self.begun(gateway)
            gateway.busy_mode = mode
            assert await gateway.runtime.steer(request().run_id, "turn left", TEXT) is False
            assert gateway.texts == []
            assert gateway.runtime.capabilities.followups is False
            task.cancel()

        play(scene)

    def test_a_text_waits_for_the_first_request_of_the_turn(self, play):
        """Before it Hermes would put it behind a tool's result of an earlier turn, where nobody looks."""

        async def scene(gateway):
            task, _ = start(gateway, request())
            await settle()
            gateway.runtime.threads.processing_started(str(request().message_id))
            gateway.say(request(), Asked(MAIN))
            gateway.agents[request().run_id] = "agent"
            await settle()
            steering = asyncio.ensure_future(gateway.runtime.steer(request().run_id, "turn left", TEXT))
            await gateway.fake.advance(POLL_SECONDS)
            assert gateway.texts == []
            gateway.say(request(), Requested(MAIN))
            assert await gateway.fake.drive(steering) is True
            assert [event.text for event in gateway.texts] == ["turn left"]
            task.cancel()

        play(scene)

    @pytest.mark.parametrize("how", ["final", "stopped", "processed", "no_run", "no_agent"])
    def test_decision_8_a_turn_that_cannot_take_it_gets_none(self, play, how):
        """After the last reply, after a stop, without an agent: it opens the next run."""

        async def scene(gateway):
            task, _ = await self.begun(gateway)
            if how == "final":
                gateway.say(request(), Replied(MAIN, 0, "Five."))
                await settle()
            elif how == "stopped":
                (active,) = gateway.runtime.threads
                active.cancel()
            elif how == "processed":
                gateway.done(request())
            elif how == "no_agent":
                gateway.agents.clear()
            run_id = UUID(int=999) if how == "no_run" else request().run_id
            asked = gateway.runtime.steer(run_id, "turn left", TEXT)
            assert await gateway.fake.drive(asked) is False
            assert gateway.texts == []
            task.cancel()

        play(scene)

    def test_what_the_turn_did_not_take_is_taken_back_at_its_end(self, play):
        """In the call itself: just after it Hermes looks for the thread's next message."""

        async def scene(gateway):
            task, _ = await self.begun(gateway)
            await gateway.runtime.steer(request().run_id, "turn left", TEXT)
            gateway.say(request(), Replied(MAIN, 0, "Five."), ENDED)
            await settle()
            gateway.runtime.processing_complete(str(request().message_id), cancelled=False)
            assert gateway.dropped[0] == (request().run_id, "agent", {str(TEXT)})
            await gateway.fake.drive(task)

        play(scene)


class TestPrompts:
    """Answers of people."""

    def test_an_answer_resolves_the_prompt_and_it_is_not_over_by_itself_then(self, play):
        """Hermes retires it as well."""

        async def scene(gateway):
            task, told = start(gateway, request())
            await settle()
            gateway.say(request(), Asked(MAIN))
            await settle()
            (active,) = gateway.runtime.threads
            await active.ask(CLARIFY)
            gateway.state.clarifies = [SimpleNamespace(clarify_id="c-1", session_key="k", multi_select=False)]
            assert await gateway.runtime.answer_prompt(CLARIFY, "Red") is True
            assert await gateway.runtime.answer_prompt(CLARIFY, "Blue") is False
            active.prompt_over(active.prompts.find(PromptKind.CLARIFY, "c-1"), PromptEnd.EXPIRED)
            assert told.of("prompt_over") == []
            assert gateway.state.resolved[0] == ("clarify", "c-1", "Red")
            task.cancel()

        play(scene)

    def test_everything_can_be_asked(self, play):
        """What the heartbeat says."""

        async def scene(gateway):
            found = gateway.runtime.capabilities
            assert (found.components, found.clarify, found.approvals, found.title) == (True, True, True, True)
            assert found.followups is True

        play(scene)


FIRST, SECOND, THIRD = (f"20261130_1{number}0000_aaaaaaaa" for number in (2, 3, 4))


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

    def test_a_session_that_must_not_go_on_ends_the_run(self, play):
        """Its history is not the new one's."""
        with pytest.raises(SessionRefused):
            self.switched(play, SessionMode.NEW, None, becomes=FIRST)

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


class TestRefusals:
    """A text that somebody counts on was not delivered, and Hermes is told so."""

    @pytest.mark.parametrize(
        ("marks", "refused", "kind"),
        [
            ({}, True, "no_turn"),
            ({"job_id": "j"}, True, "scheduled"),
            ({"job_id": "j", "notify": True}, True, "scheduled"),
            ({"notify": True}, False, "no_turn"),
            ({"expect_edits": True}, False, "no_turn"),
        ],
    )
    def test_a_text_without_a_run_is_refused_unless_a_turn_of_hermes_own_says_it(
        self, play, marks, refused, kind
    ):
        """A schedule's text, a tool's; not the words of a turn that Hermes began by itself."""

        async def scene(gateway):
            assert await gateway.send(request(), "It is five.", **marks) == (None, refused)
            assert gateway.runtime.threads.dropped == {kind: 1}

        play(scene)

    @pytest.mark.parametrize(
        ("marks", "kind"),
        [({"job_id": "j", "notify": True}, "scheduled"), ({"job_id": "j"}, "scheduled"), ({}, "unmarked")],
    )
    def test_a_text_from_outside_is_refused_although_a_run_is_at_work_there(self, play, marks, kind):
        """What a schedule says, in its own words or the model's, is no message of the run."""

        async def scene(gateway):
            task, told = start(gateway, request())
            await settle()
            gateway.say(request(), Asked(MAIN), Replied(MAIN, 0, "Five."))
            await settle()
            for speaker in (None, request().thread_id):
                sent = await gateway.send(request(), "The schedule says: six.", speaker=speaker, **marks)
                assert sent == (None, True)
            assert told.of("answer", "interim", "draft") == []
            assert gateway.runtime.threads.dropped == {kind: 2}
            assert (await gateway.send(request(), "Five.", notify=True))[0]
            task.cancel()

        play(scene)

    @pytest.mark.parametrize(("speaker", "taken"), [(None, False), (2, False), (1, True)])
    def test_a_file_from_outside_is_refused_and_named_in_no_answer(self, play, speaker, taken):
        """Only the turn's own is a line of its answer."""

        async def scene(gateway):
            task, told = start(gateway, request())
            await settle()
            gateway.say(request(), Asked(MAIN), Replied(MAIN, 0, "Five."))
            await settle()
            threads, metadata = gateway.runtime.threads, {"thread_id": str(request().thread_id)}
            thread = request(speaker).thread_id if speaker else None
            chat = str(request().channel_id)
            assert await threads.file(chat, "x.pdf", metadata, speaker=thread) is taken
            assert told.of("answer") == (["not sent: x.pdf"] if taken else [])
            task.cancel()

        play(scene)

    def test_a_turns_text_for_another_thread_is_refused_although_a_run_is_at_work_there(self, play):
        """It would stand under somebody else's run."""

        async def scene(gateway):
            task, told = start(gateway, request())
            await settle()
            gateway.say(request(), Asked(MAIN), Replied(MAIN, 0, "Five."))
            await settle()
            sent = await gateway.send(request(), "Five.", speaker=request(2).thread_id, notify=True)
            assert sent == (None, True)
            assert told.of("answer", "notice") == []
            assert gateway.runtime.threads.dropped == {"other_thread": 1}
            assert (await gateway.send(request(), "Five.", speaker=request().thread_id, notify=True))[0]
            task.cancel()

        play(scene)


class TestCounted:
    """What a turn does not post is counted once, for the whole adapter."""

    @pytest.mark.parametrize("edits", [False, True])
    def test_a_notice_of_a_turn_is_counted_once(self, play, edits):
        """However Hermes brings it: as a text, or as the last edit of a preview."""

        async def scene(gateway):
            task, told = start(gateway, request())
            await settle()
            gateway.say(request(), Asked(MAIN), RequestFailed(MAIN, 500, "server_error"))
            await settle()
            message, _ = await gateway.send(request(), "It failed.", notify=not edits, expect_edits=edits)
            if edits:
                metadata = {"thread_id": str(request().thread_id)}
                threads, chat = gateway.runtime.threads, str(request().channel_id)
                assert await threads.edited(chat, message, "It failed.", metadata, finalize=True)
            assert told.of("notice") == ["model_error"]
            assert gateway.runtime.dropped == {"model_error": 1}
            task.cancel()

        play(scene)


class TestWithoutATurn:
    """What comes for no run is counted and posted nowhere."""

    @pytest.mark.parametrize(
        ("chat", "thread", "kind"),
        [
            (None, UUID(int=500), "no_turn"),
            (UUID(int=501), None, "no_turn"),
            ("unassigned", None, "no_turn"),
        ],
    )
    def test_a_text_for_another_place_is_dropped(self, play, chat, thread, kind):
        """Another thread, another chat, the home channel with a thread of ours."""

        async def scene(gateway):
            task, told = start(gateway, request())
            await settle()
            gateway.runtime.threads.processing_started(str(request().message_id))
            gateway.say(request(), Asked(MAIN), Replied(MAIN, 0, "Five."))
            await settle()
            sent = await gateway.send(request(), "Five.", chat_id=chat, thread_id=thread, notify=True)
            assert sent == (None, False)
            assert told.of("answer", "notice") == []
            assert gateway.runtime.threads.dropped == {kind: 1}
            task.cancel()

        play(scene)

    @pytest.mark.parametrize("metadata", [None, {}, {"thread_id": None}, {"thread_id": "general"}])
    def test_a_text_without_a_thread_of_ours_is_dropped(self, play, metadata):
        """Home channel, cron, whatever a tool addresses by itself."""

        async def scene(gateway):
            sent = await gateway.runtime.threads.sent("unassigned", "Shutting down.", None, metadata)
            assert sent == (None, True)
            assert gateway.runtime.threads.dropped == {"unknown_chat": 1}

        play(scene)

    def test_a_synthetic_turn_of_a_thread_is_dropped(self, play):
        """A resumed session speaks although no run asked it to."""

        async def scene(gateway):
            gateway.say(request(), Asked(MAIN), Replied(MAIN, 0, "I am back."), ENDED)
            await settle()
            assert await gateway.send(request(), "I am back.", notify=True) == (None, False)
            assert gateway.runtime.threads.dropped == {"no_turn": 1}

        play(scene)

    def test_edits_drafts_and_sentences_without_a_turn_are_nothing(self, play):
        """Late ones, of turns that are over."""

        async def scene(gateway):
            turn = request()
            metadata = {"thread_id": str(turn.thread_id)}
            assert not await gateway.runtime.threads.edited(
                str(turn.channel_id), "m", "x", metadata, finalize=True
            )
            assert gateway.runtime.threads.at(str(turn.channel_id), metadata) is None
            gateway.runtime.threads.hear_status(turn.thread_id, "is running ls…")
            gateway.runtime.threads.hear_status(None, "is running ls…")
            await settle()
            assert gateway.runtime.threads.dropped == {}

        play(scene)

    def test_no_text_is_in_the_log(self, play, caplog):
        """Kinds and IDs only."""
        caplog.set_level("DEBUG")

        async def scene(gateway):
            await gateway.runtime.threads.sent("unassigned", "secret words", None, None)

        play(scene)
        assert "unknown_chat" in caplog.text
        assert "secret" not in caplog.text


class TestThreads:
    """Hooks and sentences come on Hermes' threads."""

    def test_they_are_heard_in_the_order_in_which_hermes_spoke(self, play):
        """Each hop takes its place in one queue."""

        async def scene(gateway):
            turn = request()
            task, told = start(gateway, turn)
            await settle()
            gateway.runtime.threads.processing_started(str(turn.message_id))

            def worker():
                gateway.say(turn, Asked(MAIN))
                for number in range(50):
                    gateway.runtime.threads.hear_status(turn.thread_id, f"is running {number}…")
                    gateway.runtime.threads.hear_status(turn.thread_id, None)

            await asyncio.to_thread(worker)
            await settle()
            sentences = [text for text in told.of("status") if text]
            assert sentences == [f"is running {number}…" for number in range(50)]
            task.cancel()

        play(scene)

    def test_a_hook_after_the_loops_end_is_nothing(self, monkeypatch):
        """Hermes' threads outlive the platform."""

        async def opened():
            return Gateway(monkeypatch)

        gateway = asyncio.run(opened())
        gateway.say(request(), Asked(MAIN))
        gateway.runtime.threads.hear_status(request().thread_id, "is running ls…")


class TestQuestions:
    """What Hermes is asked on a thread, in the profile's own context."""

    def test_decision_4_the_question_is_asked_in_the_context_of_connect(self, play, monkeypatch):
        """The home is a context variable; another one proves somebody else's credential."""
        profile = contextvars.ContextVar("profile", default="default")
        seen = []

        async def scene(monkeypatch_gateway):
            gateway = monkeypatch_gateway

            def ask():
                seen.append((profile.get(), threading.current_thread() is threading.main_thread()))
                return hermes_credential.Finding(ResolvedCredential("anthropic", KeyType.API_KEY))

            monkeypatch.setattr(hermes_credential, "resolve_credential", ask)
            profile.set("somebody else")
            assert (await gateway.runtime.resolved_credential()).provider == "anthropic"

        profile.set("mine")
        play(scene)
        assert seen == [("mine", False)]

    def test_decision_4_with_several_profiles_each_question_reads_the_profiles_variables_anew(self, play):
        """Hermes refuses secrets outside of a profile's scope, and a scope is a copy of its moment."""
        entered = []

        @contextlib.contextmanager
        def scope(home):
            entered.append(str(home))
            yield

        async def scene(gateway):
            gateway.state.modules["agent.secret_scope"].is_multiplex_active = lambda: True
            gateway.state.modules["gateway.run"]._profile_runtime_scope = scope
            await gateway.runtime.loaded_toolsets()
            await gateway.runtime.resolved_credential()
            assert entered == [hermes.HOME, hermes.HOME]

        play(scene)

    def test_one_question_serves_all_who_ask_at_the_moment(self, play, monkeypatch):
        """Asking writes to the home."""
        release = threading.Event()
        asked = []

        async def scene(gateway):
            def ask():
                asked.append(1)
                release.wait(5)
                return hermes_credential.Finding(ResolvedCredential("anthropic", KeyType.API_KEY))

            monkeypatch.setattr(hermes_credential, "resolve_credential", ask)
            waiting = [asyncio.ensure_future(gateway.runtime.resolved_credential()) for _ in range(3)]
            await settle()
            release.set()
            found = [await one for one in waiting]
            assert [one.key_type for one in found] == [KeyType.API_KEY] * 3
            assert len(asked) == 1
            await gateway.runtime.resolved_credential()
            assert len(asked) == 2

        play(scene)

    def test_decision_4_a_late_answer_is_unknown(self, play, monkeypatch):
        """The deadline passes; the question goes on and nobody waits for it."""
        release = threading.Event()

        async def scene(gateway):
            def ask():
                release.wait(5)
                return hermes_credential.Finding(ResolvedCredential("anthropic", KeyType.API_KEY))

            monkeypatch.setattr(hermes_credential, "resolve_credential", ask)
            asking = asyncio.ensure_future(gateway.runtime.resolved_credential())
            await gateway.fake.advance(ANSWER_SECONDS + 0.1)
            assert await asking == hermes_credential.UNKNOWN_CREDENTIAL
            release.set()

        play(scene)

    def test_an_error_is_unknown_and_named_once(self, play, monkeypatch, caplog):
        """At every heartbeat the same; the log says it when it begins and when it changes."""

        async def scene(gateway):
            def ask():
                raise LookupError("sk-secret")

            monkeypatch.setattr(hermes_credential, "resolve_credential", ask)
            for _ in range(3):
                found = await gateway.runtime.resolved_credential()
                assert found == hermes_credential.UNKNOWN_CREDENTIAL

        play(scene)
        assert caplog.text.count("LookupError") == 1
        assert "sk-secret" not in caplog.text

    def test_a_problem_is_named(self, play, monkeypatch, caplog):
        """Which key of the configuration makes the mode unknown."""

        async def scene(gateway):
            finding = hermes_credential.Finding(
                hermes_credential.UNKNOWN_CREDENTIAL, "fallback_model: spends elsewhere"
            )
            monkeypatch.setattr(hermes_credential, "resolve_credential", lambda: finding)
            for _ in range(2):
                await gateway.runtime.resolved_credential()

        play(scene)
        assert caplog.text.count("fallback_model: spends elsewhere") == 1

    def test_decision_5_toolsets_that_cannot_be_told_are_none(self, play):
        """Which classifies as host."""

        async def scene(gateway):
            assert await gateway.runtime.loaded_toolsets() == {"todo"}
            gateway.state.toolsets = LookupError("broken")
            assert await gateway.runtime.loaded_toolsets() is None

        play(scene)

    def test_version_and_busy_mode_are_hermes_own(self, play):
        """As they are now."""

        async def scene(gateway):
            assert gateway.runtime.version == "0.21.5.post2"
            gateway.busy_mode = BusyMode.QUEUE
            assert gateway.runtime.busy_mode is BusyMode.QUEUE

        play(scene)
