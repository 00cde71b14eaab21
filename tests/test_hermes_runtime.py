"""The runtime inside a gateway, on a platform that does what a test says."""

import asyncio
import threading
from concurrent.futures import Future
from dataclasses import replace
from types import SimpleNamespace
from uuid import UUID

import pytest

from bothy_hermes.hermes_runtime import (
    BUSY_SECONDS,
    END_SECONDS,
    LATE_SECONDS,
    POLL_SECONDS,
    START_SECONDS,
)
from bothy_hermes.runtime import (
    BusyMode,
    Prompt,
    PromptEnd,
    PromptKind,
    ResolvedCredential,
    Spending,
    TurnEnd,
    TurnOutcome,
)
from bothy_hermes.turn_facts import Asked, Payee, Replied, Requested, RequestFailed
from bothy_hermes.wire_words import BillingMode, KeyType
from tests.fakes.clock import settle
from tests.fakes.runtime_kit import ENDED, MAIN, STOPPED, request, scenes, start

CLARIFY = Prompt(PromptKind.CLARIFY, "c-1", "k", "Which?")
TEXT = UUID(int=700)


@pytest.fixture
def play(monkeypatch):
    """Run a scene with a gateway of its own."""
    return scenes(monkeypatch)


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

    def test_whom_a_bound_thread_pays_is_found_out_beside_the_loop(self, play):
        """Every other run goes on while Hermes thinks about it."""

        async def scene(gateway):
            turn = replace(request(), spends=Spending(BillingMode.ORGANIZATION, "custom"))
            gateway.bound[turn.run_id] = Payee("nous")
            answer, asked_on = Future(), []

            def ask(_payee):
                asked_on.append(threading.current_thread())
                answer.set_result(ResolvedCredential("nous", KeyType.OAUTH))
                return answer

            gateway.runtime._questions.credential_of = ask
            task, told = start(gateway, turn)
            assert (await task).detail == "other_money"
            assert asked_on
            assert threading.main_thread() not in asked_on
            assert (told.heard, gateway.handed) == ([("money_refused", None)], [])

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

    @pytest.mark.parametrize(
        ("cancelled", "seconds", "outcome"),
        [(True, END_SECONDS, TurnOutcome.CANCELLED), (False, LATE_SECONDS, TurnOutcome.FAILED)],
    )
    def test_an_agent_that_never_ends_is_not_awaited_for_ever(self, play, cancelled, seconds, outcome):
        """A bounded wait, then the turn is over for the run; a short one when nobody has interrupted it."""

        async def scene(gateway):
            task, _ = start(gateway, request())
            await settle()
            gateway.runtime.threads.processing_started(str(request().message_id))
            gateway.say(request(), Asked(MAIN))
            await settle()
            gateway.done(request(), cancelled=cancelled)
            await gateway.fake.advance(seconds - 0.1)
            assert not task.done()
            await gateway.fake.advance(0.2)
            assert await task == TurnEnd(outcome, "no_end")

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

    def test_a_message_that_was_processed_without_a_model_is_no_turn(self, play, caplog):
        """Denied, queued by the startup restore, a command: a success to Hermes. The log says so."""

        async def scene(gateway):
            task, told = start(gateway, request())
            await settle()
            gateway.runtime.threads.processing_started(str(request().message_id))
            await gateway.send(request(), "You are not allowed.", notify=True)
            gateway.done(request())
            end = await gateway.fake.drive(task)
            assert (end.outcome, end.detail) == (TurnOutcome.NOT_RUN, "no_model_request")
            assert told.of("answer") == []
            assert f"run {request().run_id}: Hermes did no turn" in caplog.text
            assert "dm_policy" in caplog.text

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

    def test_a_thread_has_one_turn_after_the_other(self, play):
        """Of a turn that is over nothing is left that the next one would wait for."""

        async def scene(gateway):
            for _ in range(2):
                task, _ = start(gateway, request())
                await settle()
                await gateway.answer(request())
                assert (await gateway.fake.drive(task)).outcome is TurnOutcome.COMPLETED
                assert (list(gateway.runtime.threads), gateway.runtime._waiting) == ([], set())
            assert gateway.fake.elapsed < BUSY_SECONDS

        play(scene)

    def test_the_turn_of_another_thread_on_the_same_session_is_waited_for_however_long_it_takes(self, play):
        """Hermes would give the second one up after some seconds."""

        async def scene(gateway):
            sessions = {
                f"key-{request(number).thread_id}": name for number, name in ((1, "s"), (2, "s"), (3, "t"))
            }
            gateway.sessions = SimpleNamespace(of_thread=sessions.get)
            first, _ = start(gateway, request(1))
            beside, _ = start(gateway, request(3))
            await settle()
            for number in (1, 3):
                gateway.runtime.threads.processing_started(str(request(number).message_id))
            second, _ = start(gateway, request(2))
            await gateway.fake.advance(3 * BUSY_SECONDS)
            assert [event.turn for event in gateway.handed] == [request(1), request(3)]
            await gateway.answer(request(1))
            await gateway.fake.drive(first)
            await gateway.fake.advance(2 * POLL_SECONDS)
            assert [event.turn for event in gateway.handed][2:] == [request(2)]
            for task, number in ((second, 2), (beside, 3)):
                await gateway.answer(request(number))
                assert (await gateway.fake.drive(task)).outcome is TurnOutcome.COMPLETED

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
            assert gateway.fake.elapsed <= 2 * POLL_SECONDS

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

    def test_decision_8_what_the_turn_did_not_take_is_taken_back_at_its_end(self, play):
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

    def test_version_and_busy_mode_are_hermes_own(self, play):
        """As they are now."""

        async def scene(gateway):
            assert gateway.runtime.version == "0.21.5.post2"
            gateway.busy_mode = BusyMode.QUEUE
            assert gateway.runtime.busy_mode is BusyMode.QUEUE

        play(scene)
