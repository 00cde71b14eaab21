"""Where each callback of Hermes goes, and what becomes of those that belong to no run."""

import asyncio
import threading
from dataclasses import replace
from uuid import UUID

import pytest

from bothy_hermes.runtime import Prompt, PromptEnd, PromptKind, Spending, TurnOutcome
from bothy_hermes.turn_facts import Asked, Payee, Replied, Requested, RequestFailed
from bothy_hermes.wire_words import BillingMode
from tests.fakes.clock import settle
from tests.fakes.runtime_kit import ENDED, MAIN, Gateway, request, scenes, start


@pytest.fixture
def play(monkeypatch):
    """Run a scene with a gateway of its own."""
    return scenes(monkeypatch)


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
            ({"reply_to": "a-message"}, False, "no_turn"),
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

    def test_a_text_is_judged_by_all_that_hooks_told_before_it(self, play):
        """Hermes' threads tell it to the loop, which may be at the text already; an answer would be lost."""

        async def scene(gateway):
            task, told = start(gateway, request())
            await settle()
            gateway.say(request(), Asked(MAIN), Requested(MAIN), Replied(MAIN, 0, "Five."), ENDED)
            message, refused = await gateway.send(request(), "Five.", notify=True)
            assert (told.of("answer"), refused) == (["Five."], False)
            assert message is not None
            gateway.done(request())
            assert (await gateway.fake.drive(task)).outcome is TurnOutcome.COMPLETED

        play(scene)

    def test_an_edit_is_judged_by_all_that_hooks_told_before_it(self, play):
        async def scene(gateway):
            task, told = start(gateway, request())
            await settle()
            gateway.say(request(), Asked(MAIN))
            message, _ = await gateway.send(request(), "Fi", expect_edits=True)
            gateway.say(request(), Requested(MAIN), Replied(MAIN, 0, "Five."), ENDED)
            marks = {"thread_id": str(request().thread_id)}
            channel = str(request().channel_id)
            await gateway.runtime.threads.edited(channel, message, "Five.", marks, finalize=True)
            assert told.of("answer") == ["Five."]
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
            assert threads.dropped == {"file": 1}
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
            message, refused = await gateway.send(
                request(), "It failed.", notify=not edits, expect_edits=edits
            )
            assert not refused
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

    def test_a_request_that_pays_whom_the_evidence_names_leaves(self, play):
        """And nobody is told anything."""

        async def scene(gateway):
            payee = Payee("custom", "http://127.0.0.1:9/v1")
            turn = replace(request(), spends=Spending(BillingMode.ORGANIZATION, "custom", payee.base_url))
            task, told = start(gateway, turn)
            await settle()
            assert await asyncio.to_thread(gateway.runtime.admit, turn.thread_id, payee, "s") is True
            await settle()
            assert (told.heard, gateway.halted) == ([], [])
            task.cancel()

        play(scene)

    def test_an_expired_card_is_its_turns_also_without_the_thread(self, play):
        """Its message alone says whose it is."""

        async def scene(gateway):
            (first, told), (second, of_card) = (start(gateway, request(number)) for number in (1, 2))
            await settle()
            threads, prompt = gateway.runtime.threads, Prompt(PromptKind.CLARIFY, "c-1", "k", "Which?")
            active = threads.of_run(request(2).run_id)
            active.prompts.add(prompt)
            active.prompts.shown(prompt, "m-1")
            assert not await threads.edited("c", "m-2", "Expired.", None, finalize=True)
            assert await threads.edited("c", "m-1", "Expired.", None, finalize=True)
            assert of_card.of("prompt_over") == [(prompt, PromptEnd.EXPIRED)]
            assert told.heard == []
            first.cancel()
            second.cancel()

        play(scene)

    def test_a_refused_request_is_told_on_the_loop(self, play):
        """The thread that is about to send it is Hermes' own."""

        async def scene(gateway):
            turn, heard_on = request(), []
            task, told = start(gateway, turn)
            await settle()
            active = gateway.runtime.threads.of_run(turn.run_id)
            tell = active.money_refused
            active.money_refused = lambda: (heard_on.append(threading.current_thread()), tell())
            payee = Payee("openrouter")
            assert not await asyncio.to_thread(gateway.runtime.admit, turn.thread_id, payee, "s")
            await settle()
            assert heard_on == [threading.main_thread()]
            assert told.of("money_refused") == [None]
            assert gateway.halted == [turn.run_id]
            assert gateway.runtime.admit(request(2).thread_id, payee, "s")  # no run: nobody's to refuse
            task.cancel()

        play(scene)

    def test_a_word_after_its_runs_end_is_counted(self, play):
        """Hermes goes on with a turn that nobody waits for any more."""

        async def scene(gateway):
            task, _ = start(gateway, request())
            await settle()
            gateway.say(request(), Asked(MAIN), Replied(MAIN, 0, "Five."))
            await settle()
            gateway.runtime.threads.of_run(request().run_id).silence()
            assert await gateway.send(request(), "Five.", notify=True) == (None, False)
            assert gateway.runtime.threads.dropped == {"turn_over": 1}
            task.cancel()

        play(scene)

    def test_a_hook_after_the_loops_end_is_nothing(self, monkeypatch):
        """Hermes' threads outlive the platform."""

        async def opened():
            return Gateway(monkeypatch)

        gateway = asyncio.run(opened())
        gateway.say(request(), Asked(MAIN))
        gateway.runtime.threads.hear_status(request().thread_id, "is running ls…")
