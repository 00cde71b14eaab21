"""One run's cards without a server: what is stored, what Hermes hears, what people could still use."""

import asyncio
import dataclasses
import threading
from dataclasses import dataclass, field
from types import SimpleNamespace
from uuid import UUID

import pytest

from bothy_hermes.actual_mode import determine
from bothy_hermes.errors import ProblemAnswer, RunEnded, StateError, WireError
from bothy_hermes.live_box import LiveBox
from bothy_hermes.proof import Proof
from bothy_hermes.run_cards import (
    DELIVERY_SECONDS,
    NOT_WAITING,
    NOT_YOURS,
    SHOW_SECONDS,
    TAKEN_ALREADY,
    RunCards,
)
from bothy_hermes.run_outbox import RunOutbox
from bothy_hermes.runtime import Prompt, PromptEnd, PromptKind, ResolvedCredential
from bothy_hermes.store import CardGone, OutboxCall, Store
from bothy_hermes.wire_words import BillingMode, KeyType, ToolClass
from tests.fakes.clock import FakeClock
from tests.fakes.runtime import FakeRuntime

RUN = UUID("0192f4a0-7b1c-7000-8000-0000000000aa")
CLICK = UUID("0192f4a0-7b1c-7000-8000-0000000000ab")
QUESTION = Prompt(PromptKind.CLARIFY, "c1", "k", "Which colour?", ("red", "blue"))
LATER_QUESTION = Prompt(PromptKind.CLARIFY, "c2", "k", "Which size?", ("small", "large"))
APPROVAL = Prompt(PromptKind.APPROVAL, "a1", "k", "danger", ("once", "deny"), command="rm -rf build")
PROMPT_SECONDS = 15
"""What Hermes gives a prompt to be shown (its own number)."""


@dataclass
class Server:
    """Takes a card's calls; operations in `refusals` are refused, in `silent` never answered."""

    taken: list = field(default_factory=list)
    refusals: dict = field(default_factory=dict)
    silent: set = field(default_factory=set)

    async def _take(self, operation):
        if operation in self.silent:
            await asyncio.get_running_loop().create_future()
        if operation in self.refusals:
            raise self.refusals[operation]
        self.taken.append(operation)

    async def create_message(self, _run_id, _auth, _body):
        await self._take("createMessage")
        return SimpleNamespace(id=UUID(int=len(self.taken)), version=1, components=())

    async def await_run_input(self, _run_id, _auth, _body):
        await self._take("awaitRunInput")

    async def resume_run(self, _run_id, _auth, body):
        await self._take(f"resumeRun {body.cause}")

    async def close_card(self, _message_id, _auth, body):
        await self._take(f"closeCard {body.reason}")


class Prover:
    async def now(self):
        return Proof(determine(ResolvedCredential("anthropic", KeyType.API_KEY)), ToolClass.CHAT)


class Ground:
    """A run's cards on a real store, with everything else in hand."""

    def __init__(self, store, clock, server):
        self.clock, self.server, self.store = clock, server, store
        self.runtime = FakeRuntime()
        self.tasks = []
        self.ended = []
        self.pokes = []
        services = SimpleNamespace(
            store=store,
            api=server,
            runtime=self.runtime,
            prover=Prover(),
            clock=clock.clock,
            limits=lambda: SimpleNamespace(max_content_bytes=262_144),
        )
        run = SimpleNamespace(id=RUN, billing_mode=BillingMode.ORGANIZATION, tool_class=ToolClass.HOST)
        self.outbox = RunOutbox(server, store, RUN, None, entry_id=None, events=self, clock=clock.clock)
        self.usual_put = self.outbox.put
        self.box = LiveBox(clock.clock.now, lambda: "s")
        self.cards = RunCards(
            services,
            run,
            None,
            self.outbox,
            box=self.box,
            patcher=SimpleNamespace(poke=lambda: self.pokes.append(None)),
            spawn=lambda what: self.tasks.append(asyncio.ensure_future(what)),
            end_run=self.ended.append,
        )

    async def before(self, _call):
        return None

    def done(self, call):
        self.cards.done(call)

    def refused(self, call, word):
        self.cards.refused(call, word)

    async def wait(self, prompt):
        """Hermes waits for a prompt."""
        self.runtime.waiting[prompt.hermes_id] = asyncio.get_running_loop().create_future()
        return await self.cards.show(prompt)

    async def read_only(self, on=True):
        """Have the disk take nothing, or something again."""
        flag = "ON" if on else "OFF"
        await self.store._writer.run(lambda disk: disk.execute(f"PRAGMA query_only = {flag}"))


def scenario(tmp_path, steps, **server):
    async def run():
        clock = FakeClock()
        store = (await Store.open(tmp_path, clock.clock)).patient()
        ground = Ground(store, clock, Server(**server))
        sending = asyncio.ensure_future(ground.outbox.run())
        try:
            await steps(ground)
        finally:
            for task in (*ground.tasks, sending):
                task.cancel()
            await asyncio.gather(*ground.tasks, sending, return_exceptions=True)
            await store.close()

    asyncio.run(run())


async def until(condition):
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110  # the store's thread answers when it answers
            await asyncio.sleep(0.001)


def test_a_card_is_posted_and_then_waited_on(tmp_path):
    async def steps(ground):
        await ground.wait(QUESTION)
        await until(lambda: ground.server.taken == ["createMessage", "awaitRunInput"])
        assert "Which colour?" in ground.box.content.status_line
        assert len(ground.pokes) == 1

    scenario(tmp_path, steps)


def test_a_full_disk_is_not_waited_for_with_a_card(tmp_path):
    """Hermes would post the prompt as a text before that; nothing is left of the card once there is room."""

    async def steps(ground):
        await ground.read_only()
        with pytest.raises(StateError, match="10 s"):
            await ground.clock.drive(ground.wait(QUESTION))
        assert SHOW_SECONDS <= ground.clock.elapsed < PROMPT_SECONDS
        await ground.read_only(False)
        await ground.clock.advance(DELIVERY_SECONDS)
        assert await ground.store.cards() == []
        assert ground.server.taken == []
        assert ground.box.content.status_line is None
        assert ground.cards.for_text() is None
        await ground.wait(LATER_QUESTION)
        await until(lambda: ground.cards.for_text() is not None)

    scenario(tmp_path, steps)


def test_a_card_that_the_disk_refuses_for_good_waits_for_nobody(tmp_path):
    """A file that is closed on the way out; whoever shows the prompt is told at once."""

    async def steps(ground):
        async def refuse(*_changes):
            raise StateError("state.sqlite3", "is closed")

        ground.outbox.put = refuse
        with pytest.raises(StateError, match="is closed"):
            await ground.wait(QUESTION)
        assert ground.clock.elapsed == 0
        assert ground.box.content.status_line is None
        await until(lambda: not list(ground.cards._cards))

    scenario(tmp_path, steps)


def test_a_card_that_is_stored_too_late_is_closed(tmp_path):
    """Hermes was told that nobody is asked: whoever sees the card can no longer use it."""

    async def steps(ground):
        free = threading.Event()
        slow = asyncio.ensure_future(ground.store._writer.run(lambda _disk: free.wait(5)))
        showing = asyncio.ensure_future(ground.wait(QUESTION))
        await ground.clock.advance(SHOW_SECONDS)
        free.set()
        await slow
        with pytest.raises(StateError):
            await showing
        await until(lambda: "resumeRun prompt_expired" in ground.server.taken)
        await asyncio.wait_for(ground.tasks[0], 5)
        assert await ground.store.cards() == []
        assert ground.cards.for_text() is None

    scenario(tmp_path, steps)


def test_a_card_that_somebody_answers_in_its_last_moment_is_shown(tmp_path):
    """It is stored, or nobody could have used it: who answered is not told that nobody was asked."""

    async def steps(ground):
        put = ground.outbox.put

        async def slowly(*changes):
            await put(*changes)
            await ground.clock.clock.sleep(SHOW_SECONDS * 2)

        ground.outbox.put = slowly
        showing = asyncio.ensure_future(ground.wait(QUESTION))
        await until(lambda: "awaitRunInput" in ground.server.taken)
        ground.outbox.put, asked = put, ground.runtime.waiting["c1"]
        await until(lambda: ground.cards.for_text() is not None)
        await ground.cards.text(QUESTION, UUID(int=7), "blue")
        assert asked.result() == "blue"
        await ground.clock.advance(SHOW_SECONDS)
        await asyncio.wait_for(showing, 5)
        assert "resumeRun prompt_expired" not in ground.server.taken

    scenario(tmp_path, steps)


def test_a_wait_that_the_server_refuses_leaves_nothing_usable(tmp_path):
    """Nobody would resume a run for its click: the card is closed and Hermes hears that nobody answered."""

    async def steps(ground):
        await ground.wait(QUESTION)
        future = ground.runtime.waiting["c1"]
        await until(lambda: "closeCard expired" in ground.server.taken)
        assert await asyncio.wait_for(future, 5) == ""
        assert await ground.store.cards(RUN) == []

    scenario(tmp_path, steps, refusals={"awaitRunInput": ProblemAnswer("awaitRunInput", 409, "card_closed")})


@pytest.mark.parametrize(
    ("error", "heard", "ended"),
    [
        (ProblemAnswer("resumeRun", 409, "run_not_waiting"), [""], []),
        (WireError("run", "is missing"), [""], []),
        (RunEnded("resumeRun", 409, "run_ended"), [], []),
        (ProblemAnswer("resumeRun", 409, "billing_mode_mismatch"), [], ["billing_mode_mismatch"]),
    ],
)
def test_an_answer_that_cannot_be_used_leaves_hermes_waiting_for_nobody(tmp_path, error, heard, ended):
    """It hears that nobody answered, unless the run is over: then it is interrupted first."""

    async def steps(ground):
        await ground.wait(QUESTION)
        future = ground.runtime.waiting["c1"]
        await until(lambda: "awaitRunInput" in ground.server.taken)
        await until(lambda: ground.cards.for_text() is not None)
        await ground.cards.text(QUESTION, UUID(int=7), "blue")
        assert ([future.result()] if future.done() else []) == heard
        assert ground.ended == ended
        assert ground.cards.for_text() is None

    scenario(tmp_path, steps, refusals={"resumeRun followup": error})


def test_a_card_that_the_server_refuses_is_no_approval(tmp_path):
    async def steps(ground):
        await ground.wait(APPROVAL)
        assert await asyncio.wait_for(ground.runtime.waiting["a1"], 5) == "deny"
        assert ground.server.taken == []
        await until(lambda: len(ground.pokes) == 3)
        assert "was not shown (the server refused it: component_invalid)" in ground.box.content.status_line

    scenario(
        tmp_path, steps, refusals={"createMessage": ProblemAnswer("createMessage", 422, "component_invalid")}
    )


def test_a_card_that_does_not_arrive_in_time_is_withdrawn_and_not_before(tmp_path):
    async def steps(ground):
        await ground.wait(APPROVAL)
        future = ground.runtime.waiting["a1"]
        await ground.clock.advance(DELIVERY_SECONDS - 1)
        await asyncio.sleep(0.05)
        assert not future.done()
        await ground.clock.advance(1)
        assert await asyncio.wait_for(future, 5) == "deny"

    scenario(tmp_path, steps, silent={"createMessage"})


def test_decision_9_an_expired_prompt_ends_its_wait(tmp_path):
    async def steps(ground):
        await ground.wait(QUESTION)
        await until(lambda: "awaitRunInput" in ground.server.taken)
        ground.cards.over(QUESTION, PromptEnd.EXPIRED)
        await asyncio.wait_for(ground.tasks[-1], 5)
        assert "resumeRun prompt_expired" in ground.server.taken
        assert await ground.store.cards(RUN) == []
        assert ground.box.content.status_line is None

    scenario(tmp_path, steps)


def test_decision_9_a_click_on_a_card_whose_prompt_is_gone_is_told_so(tmp_path):
    """Also before the server has closed the card; Hermes hears nothing of it, and nothing breaks."""

    async def steps(ground):
        card = await ground.wait(QUESTION)
        await until(lambda: ground.cards.for_text() is not None)
        ground.cards.over(QUESTION, PromptEnd.EXPIRED)
        stored, said = await ground.store.card(str(card)), []

        async def put(*changes):
            said.extend(change.body for change in changes if isinstance(change, OutboxCall))

        ground.outbox.put = put
        await ground.cards.interaction(
            SimpleNamespace(id=CLICK, message_id=stored.message_id, custom_id="cl:c1:0", values=()),
            UUID(int=9),
        )
        assert [(body["status"], body["text"]) for body in said] == [("failed", NOT_WAITING)]
        assert await ground.store.claim_of(CLICK) is None
        assert not ground.runtime.waiting["c1"].done()

    scenario(tmp_path, steps, silent={"resumeRun prompt_expired"})


def click(stored, custom_id="cl:c1:0"):
    return SimpleNamespace(id=CLICK, message_id=stored.message_id, custom_id=custom_id, values=())


async def shown(ground, prompt):
    """Show a prompt and wait until its people can answer it; returns the stored card."""
    card = await ground.wait(prompt)
    await until(lambda: all(one.settled.is_set() for one in ground.cards._cards))
    return await ground.store.card(str(card))


def responses(ground):
    """What people are told from now on, as it is stored."""
    said, usual = [], ground.usual_put

    async def put(*changes):
        said.extend(one.body for one in changes if isinstance(one, OutboxCall) and "status" in one.body)
        await usual(*(one for one in changes if isinstance(one, CardGone)))

    ground.outbox.put = put
    return said


@pytest.mark.parametrize(("first", "told"), [("expiry", NOT_WAITING), ("text", TAKEN_ALREADY)])
def test_decision_9_what_comes_first_while_a_click_is_claimed_leaves_the_click_with_words(
    tmp_path, first, told
):
    """A prompt can end meanwhile, or a text answer it: nothing is answered twice."""

    async def steps(ground):
        stored = await shown(ground, QUESTION)
        asked, said, claim = ground.runtime.waiting["c1"], responses(ground), ground.store.claim

        async def slowly(*claimed):
            found = await claim(*claimed)
            if first == "expiry":
                ground.cards.over(QUESTION, PromptEnd.EXPIRED)
            else:
                await ground.cards.text(QUESTION, UUID(int=7), "blue")
            return found

        ground.store.claim = slowly
        await ground.cards.interaction(click(stored), UUID(int=9))
        assert [(body["status"], body["text"]) for body in said if "text" in body] == [("failed", told)]
        assert (asked.result() if asked.done() else None) == (None if first == "expiry" else "blue")

    scenario(tmp_path, steps)


@pytest.mark.parametrize("late", [False, True])
def test_a_click_on_a_card_whose_post_is_not_confirmed_uses_nothing_up(tmp_path, monkeypatch, late):
    """The answer to our call is lost, its people see the card: a click waits for it, or is given back."""
    monkeypatch.setattr("bothy_hermes.open_cards.FINDING_SECONDS", 0.05 if late else 5)

    async def steps(ground):
        confirmed, usual = asyncio.Event(), ground.server.create_message

        async def slowly(*call):
            await confirmed.wait()
            return await usual(*call)

        ground.server.create_message = slowly
        await ground.wait(QUESTION)
        asked = ground.runtime.waiting["c1"]
        said = responses(ground)
        pressed = SimpleNamespace(message_id=UUID(int=1))
        using = asyncio.ensure_future(ground.cards.interaction(click(pressed), UUID(int=9)))
        if late:
            await using
            confirmed.set()
            assert [(body["status"], body["reopen"]) for body in said] == [("failed", True)]
            assert not asked.done()
        else:
            await asyncio.sleep(0.01)
            confirmed.set()
            await using
            assert asked.result() == "red"
            assert [body["status"] for body in said] == ["acknowledged"]

    scenario(tmp_path, steps)


def test_a_click_that_is_none_of_the_choices_gives_the_card_back(tmp_path):
    """Nothing was claimed: the next click is the first one."""

    async def steps(ground):
        stored = await shown(ground, QUESTION)
        said = responses(ground)
        await ground.cards.interaction(click(stored, "cl:c1:9"), UUID(int=9))
        assert [(body["status"], body["text"], body["reopen"]) for body in said] == [
            ("failed", NOT_YOURS, True)
        ]
        assert await ground.store.claim_of(CLICK) is None
        assert not ground.runtime.waiting["c1"].done()

    scenario(tmp_path, steps)


def test_a_card_offers_to_the_end_what_it_showed(tmp_path):
    """The server's limit may shrink meanwhile: the command was shown in full, so it can be allowed."""
    long_one = dataclasses.replace(APPROVAL, command="c" * 3000)

    async def steps(ground):
        stored = await shown(ground, long_one)
        ground.cards._services.limits = lambda: SimpleNamespace(max_content_bytes=2000)
        asked, _ = ground.runtime.waiting["a1"], responses(ground)
        await ground.cards.interaction(click(stored, "appr:a1:once"), UUID(int=9))
        assert asked.result() == "once"

    scenario(tmp_path, steps)


@pytest.mark.parametrize("by", ["expiry", "click"])
def test_a_completed_run_waits_for_a_card_that_is_just_being_ended(tmp_path, by):
    """Its end would overtake that call, and the server completes no run that waits."""

    async def steps(ground):
        stored = await shown(ground, QUESTION)
        resumed = asyncio.Event()

        async def slowly(_run_id, _auth, body):
            await resumed.wait()
            ground.server.taken.append(f"resumeRun {body.cause}")

        ground.server.resume_run = slowly
        responses(ground)
        if by == "expiry":
            ground.cards.over(QUESTION, PromptEnd.EXPIRED)
        else:
            using = asyncio.ensure_future(ground.cards.interaction(click(stored), UUID(int=9)))
            ground.tasks.append(using)
            await until(lambda: ground.cards.for_text() is None)
        closing = asyncio.ensure_future(ground.cards.close_open())
        await asyncio.sleep(0.02)
        assert not closing.done()
        resumed.set()
        await asyncio.wait_for(closing, 5)
        assert ground.server.taken[-1].startswith("resumeRun")

    scenario(tmp_path, steps)


def test_a_text_answers_what_was_asked_when_it_came(tmp_path):
    """Its card is answered by a click meanwhile, and another question is asked: the text is none of it."""

    async def steps(ground):
        stored = await shown(ground, QUESTION)
        read, _ = ground.cards.open_prompts(), responses(ground)
        assert await ground.cards.asked(read) is QUESTION
        await ground.cards.interaction(click(stored), UUID(int=9))
        ground.outbox.put = ground.usual_put
        await shown(ground, LATER_QUESTION)
        later = ground.runtime.waiting["c2"]
        assert await ground.cards.asked(read) is None
        await ground.cards.text(QUESTION, UUID(int=7), "large")
        assert not later.done()
        assert ground.cards.for_text() is LATER_QUESTION

    scenario(tmp_path, steps)


def test_a_text_answers_a_card_whose_wait_is_not_confirmed_yet(tmp_path):
    """The server's answer is on its way, its people see the run wait: the text is not left out."""

    async def steps(ground):
        confirmed, usual = asyncio.Event(), ground.server.await_run_input

        async def slowly(*call):
            await confirmed.wait()
            return await usual(*call)

        ground.server.await_run_input = slowly
        await ground.wait(QUESTION)
        asking = asyncio.ensure_future(ground.cards.asked(ground.cards.open_prompts()))
        await asyncio.sleep(0.01)
        assert not asking.done()
        confirmed.set()
        assert await asyncio.wait_for(asking, 5) is QUESTION

    scenario(tmp_path, steps)


def test_a_text_means_the_only_card_or_the_oldest_question(tmp_path):
    async def steps(ground):
        assert ground.cards.for_text() is None
        await ground.wait(APPROVAL)
        assert ground.cards.for_text() is None, "nobody could have seen it yet"
        await until(lambda: ground.cards.for_text() is APPROVAL)
        await ground.wait(QUESTION)
        await until(lambda: ground.cards.for_text() is QUESTION)
        await ground.wait(LATER_QUESTION)
        await until(lambda: ground.server.taken.count("awaitRunInput") == 3)
        assert ground.cards.for_text() is QUESTION

    scenario(tmp_path, steps)


def test_two_approvals_take_no_text(tmp_path):
    other = Prompt(PromptKind.APPROVAL, "a2", "k", "danger", ("once", "deny"), command="make")

    async def steps(ground):
        await ground.wait(APPROVAL)
        await ground.wait(other)
        await until(lambda: all(card.settled.is_set() for card in ground.cards._cards))
        assert ground.cards.for_text() is None

    scenario(tmp_path, steps)


def test_the_end_of_a_turn_closes_what_still_waits(tmp_path):
    async def steps(ground):
        await ground.wait(QUESTION)
        await until(lambda: "awaitRunInput" in ground.server.taken)
        await asyncio.wait_for(ground.cards.close_open(), 5)
        assert "resumeRun prompt_expired" in ground.server.taken
        begun = len(ground.tasks)
        ground.cards.over(QUESTION, PromptEnd.EXPIRED)  # a late word about it changes nothing
        assert len(ground.tasks) == begun
        assert ground.server.taken.count("resumeRun prompt_expired") == 1

    scenario(tmp_path, steps)
