"""What becomes of a text that comes while a run works."""

import asyncio
from uuid import UUID

from bothy_hermes.run_followups import RunFollowups
from bothy_hermes.run_tokens import RunToken
from tests.fakes.contexts import context, element, trigger
from tests.fakes.edge_kit import RUN
from tests.fakes.flow_kit import MESSAGE, with_rooms

TEXT = UUID(int=55)
SECOND = UUID(int=56)


def following(tmp_path, steps, *, takes=True):
    """Run `steps(rooms, followups, taken)`; Hermes takes every text, or none."""

    async def on_rooms(made):
        taken = []

        async def steer(_run_id, text, message_id):
            if takes:
                taken.append((message_id, text))
            return takes

        made.runtime.on_steer = steer
        made.runtime._running[RUN] = asyncio.current_task()
        followups = RunFollowups(made.services, RUN, RunToken(made.api, RUN), made.outbox())
        return await steps(made, followups, taken)

    return with_rooms(tmp_path, on_rooms)


def reports(changes):
    return [(call.target_id, call.body["state"]) for call in changes]


async def stored(made):
    return reports([one.call for one in await made.store.calls()])


def test_a_persons_words_are_read_from_the_thread(tmp_path):
    async def steps(made, followups, _taken):
        made.api.context = context(trigger("What now?", id=MESSAGE), element(55, "And this?"))
        assert "And this?" in await followups.text_of(TEXT)
        assert await followups.text_of(UUID(int=99999)) is None

    following(tmp_path, steps)


def test_a_text_that_hermes_takes_is_reported_as_delivered(tmp_path):
    async def steps(made, followups, taken):
        assert await followups.hand_in(TEXT, "and this")
        assert taken == [(TEXT, "and this")]
        assert await stored(made) == [(TEXT, "delivered")]

    following(tmp_path, steps)


def test_a_text_that_hermes_does_not_take_is_not_reported(tmp_path):
    """It stays at the server, which opens the next run from it."""

    async def steps(made, followups, _taken):
        assert not await followups.hand_in(TEXT, "and this")
        assert await stored(made) == []
        assert reports(followups.closing_changes()) == []

    following(tmp_path, steps, takes=False)


def test_decision_8_a_text_is_absorbed_when_the_model_was_shown_it(tmp_path):
    """Never because it was handed over: a turn may end without looking."""

    async def steps(_made, followups, _taken):
        await followups.hand_in(TEXT, "and this")
        await followups.hand_in(SECOND, "and that")
        followups.seen(SECOND)
        assert reports(followups.closing_changes()) == [(SECOND, "absorbed")]

    following(tmp_path, steps)


def test_each_text_is_reported_once(tmp_path):
    """With the answer that takes it up, or else with the end."""

    async def steps(_made, followups, _taken):
        await followups.hand_in(TEXT, "and this")
        followups.seen(TEXT)
        assert reports(followups.absorbed_changes()) == [(TEXT, "absorbed")]
        assert followups.absorbed_changes() == []
        followups.seen(TEXT)
        followups.seen(SECOND)
        assert reports(followups.closing_changes()) == [(SECOND, "absorbed")]

    following(tmp_path, steps)


def test_nothing_is_reported_after_the_last_word_about_a_text(tmp_path):
    """The model was so fast that its answer was stored before our report: delivered would come too late."""

    async def steps(made, followups, _taken):
        usual = made.runtime.on_steer

        async def fast(*args):
            taken = await usual(*args)
            followups.seen(TEXT)
            await made.outbox().put(*followups.absorbed_changes())
            return taken

        made.runtime.on_steer = fast
        assert await followups.hand_in(TEXT, "and this")
        assert await stored(made) == [(TEXT, "absorbed")]

    following(tmp_path, steps)
