"""Which Hermes session a run uses, and what the server is told about it."""

import asyncio

import pytest

from bothy_hermes.errors import SessionRefused
from bothy_hermes.local_options import ServerOptions
from bothy_hermes.run_sessions import REFUSED_SENTENCE, SESSION_SENTENCES
from bothy_hermes.runtime import SessionSwitch, TurnEnd, TurnOutcome
from bothy_hermes.wire_words import TitleSource
from tests.fakes.adapter_kit import world
from tests.fakes.runtime import FakeRuntime

FIRST = "20261130_120000_aaaaaaaa"
SECOND = "20261130_130000_bbbbbbbb"
CHILD = "20261130_140000_cccccccc"


class Sessions:
    """A Hermes whose thread runs on one session after the other."""

    def __init__(self, *session_ids):
        self.session_ids = list(session_ids)
        self.outcome = TurnOutcome.COMPLETED

    async def script(self, turn, events):
        events.on_session(self.session_ids.pop(0))
        if self.outcome is not TurnOutcome.COMPLETED:
            return TurnEnd(self.outcome)
        await events.on_answer(turn.user_text)
        return None


def flow(tmp_path, steps, hermes):
    async def scenario():
        options = ServerOptions(run_update_min_interval_ms=50)
        async with world(tmp_path, FakeRuntime(hermes.script), options=options) as made:
            return await steps(made)

    return asyncio.run(scenario())


def session_of(made, thread):
    """The reference and version that the server holds for a thread."""
    record = made.instance.thread(thread)
    return record.session_ref, record.session_version


def test_decision_10_a_first_run_reports_its_session_and_the_next_goes_on_with_it(tmp_path):
    hermes = Sessions(FIRST, FIRST)

    async def steps(made):
        thread = made.thread()
        await made.ended(made.say(thread, "one"))
        assert session_of(made, thread) == (FIRST, 1)
        await made.ended(made.say(thread, "two"))
        assert session_of(made, thread) == (FIRST, 1), "what the server knows is not reported again"
        assert made.runtime.sessions_wanted == [("new", None), ("resume", FIRST)]

    flow(tmp_path, steps, hermes)


def test_decision_10_a_changed_session_is_reported_after_the_turn(tmp_path):
    hermes = Sessions(FIRST, CHILD)

    async def steps(made):
        made.runtime.parents[CHILD] = FIRST
        thread = made.thread()
        await made.ended(made.say(thread, "one"))
        await made.ended(made.say(thread, "two"))
        assert session_of(made, thread) == (CHILD, 2)

    flow(tmp_path, steps, hermes)


def test_decision_10_a_missing_session_is_said_to_be_missing(tmp_path):
    hermes = Sessions(FIRST, SECOND)

    async def steps(made):
        thread = made.thread()
        await made.ended(made.say(thread, "one"))
        made.runtime.switch = SessionSwitch.MISSING
        run_id = made.say(thread, "go on there", session_mode="bind", bind_ref="20200101_000000_00000000")
        await made.ended(run_id)
        assert made.runtime.sessions_wanted[-1] == ("bind", "20200101_000000_00000000")
        assert session_of(made, thread) == (SECOND, 2)
        said = SESSION_SENTENCES[SessionSwitch.MISSING]
        assert made.instance.run(run_id).document.status_line == said

    flow(tmp_path, steps, hermes)


def test_a_session_that_must_not_go_on_ends_the_run_with_a_sentence(tmp_path):
    """Nothing is asked of the model, and people read why."""
    hermes = Sessions()

    async def refuse(*_args):
        raise SessionRefused("new")

    async def steps(made):
        made.runtime.use_session = refuse
        view = await made.ended(made.say(made.thread(), "anew", session_mode="new"))
        assert (view.run.state, view.run.reason) == ("failed", "adapter_error")
        assert view.document.status_line == REFUSED_SENTENCE
        assert made.runtime.turns == []

    flow(tmp_path, steps, hermes)


def test_decision_10_a_bound_session_is_the_threads_from_then_on(tmp_path):
    """The server learns it from the report, although it has named the session itself."""
    hermes = Sessions(FIRST, SECOND, SECOND)

    async def steps(made):
        thread = made.thread()
        await made.ended(made.say(thread, "one"))
        made.runtime.switch = SessionSwitch.BOUND
        await made.ended(made.say(thread, "go on there", session_mode="bind", bind_ref=SECOND))
        assert session_of(made, thread) == (SECOND, 2)
        made.runtime.switch = SessionSwitch.KEPT
        await made.ended(made.say(thread, "and on"))
        assert made.runtime.sessions_wanted[-1] == ("resume", SECOND)

    flow(tmp_path, steps, hermes)


@pytest.mark.parametrize(
    ("outcome", "title"), [(TurnOutcome.COMPLETED, "On colours"), (TurnOutcome.FAILED, None)]
)
def test_decision_7_a_title_follows_a_completed_first_run(tmp_path, outcome, title):
    hermes = Sessions(FIRST)
    hermes.outcome = outcome

    async def steps(made):
        made.runtime.titles[FIRST] = "On colours"
        thread = made.thread()
        await made.ended(made.say(thread, "which colours?"))
        record = made.instance.thread(thread)
        assert record.title_source is TitleSource.AUTO
        assert record.title == title

    flow(tmp_path, steps, hermes)


def test_a_person_keeps_the_title_they_gave(tmp_path):
    hermes = Sessions(FIRST)

    async def steps(made):
        made.runtime.titles[FIRST] = "From the model"
        thread = made.thread()
        made.instance.set_title(made.ada, thread, "From Ada")
        await made.ended(made.say(thread, "hello"))
        assert made.instance.thread(thread).title == "From Ada"

    flow(tmp_path, steps, hermes)
