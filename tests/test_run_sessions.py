"""Which Hermes session a turn uses, and what the server is told about it."""

from types import SimpleNamespace

import pytest

from bothy_hermes.run_sessions import SESSION_SENTENCES, RunSession
from bothy_hermes.runtime import RuntimeCapabilities, SessionSwitch
from bothy_hermes.store import OutboxCall, ThreadSession
from bothy_hermes.wire import ThreadView
from bothy_hermes.wire_words import MAX_STATUS_CHARS, TitleSource
from tests.fakes.edge_kit import THREAD
from tests.fakes.flow_kit import invocation, with_rooms

OLD, NEW, CHILD = "20261130_100000_old", "20261130_120000_new", "20261130_110000_child"


def thread(title_source=TitleSource.AUTO):
    return ThreadView(id=THREAD, title="Garden", title_source=title_source, version=4)


def session(  # the server's wish, in its own words
    tmp_path,
    mode="new",
    wanted=None,
    used=NEW,
    *,
    switch=SessionSwitch.KEPT,
    completed=True,
    before=None,
    remembered=None,
    kind="operator",
    title_source=TitleSource.AUTO,
):
    """Have a turn on a session; returns what is stored at its end, and the rooms."""

    async def on_rooms(made):
        made.runtime.switch = switch
        if before is not None:
            before(made)
        if remembered is not None:
            await made.store.record(ThreadSession(THREAD, remembered))
        asked = invocation(
            {"kind": kind}, session_mode=mode, agent_session={"external_session_ref": wanted, "version": 3}
        )
        work = RunSession(made.runtime, made.store, made.fake.clock, asked, thread(title_source))
        await work.prepare(SimpleNamespace())
        changes = await made.fake.drive(work.closing_changes(used, completed=completed))
        made.changes = changes
        return changes, made

    return with_rooms(tmp_path, on_rooms)


def reported(changes):
    """The report among changes, as (reference, started, bind_failed); None without one."""
    for change in changes:
        if isinstance(change, OutboxCall) and change.operation == "reportAgentSession":
            assert (change.target_id, change.if_match) == (THREAD, 3)
            body = change.body
            return body["external_session_ref"], body["started"], body["bind_failed"]
    return None


def titled(changes):
    for change in changes:
        if isinstance(change, OutboxCall) and change.operation == "setThreadTitle":
            assert (change.target_id, change.if_match) == (THREAD, 4)
            return change.body["title"]
    return None


# The wish -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["new", "resume", "bind"])
def test_hermes_is_asked_for_what_the_server_wants(tmp_path, mode):
    _, made = session(tmp_path, mode, OLD)
    assert made.runtime.sessions_wanted == [(mode, OLD)]


def test_decision_10_a_guest_asks_for_nothing_and_reports_nothing(tmp_path):
    changes, made = session(tmp_path, "resume", OLD, kind="guest")
    assert made.runtime.sessions_wanted == []
    assert list(changes) == []


@pytest.mark.parametrize("switch", list(SessionSwitch))
def test_people_are_told_why_a_named_session_was_not_continued(tmp_path, switch):
    """A sentence of its own for each kind, short enough for the box, and nothing of what was named."""

    async def on_rooms(made):
        made.runtime.switch = switch
        asked = invocation(session_mode="bind", agent_session={"external_session_ref": OLD, "version": 3})
        work = RunSession(made.runtime, made.store, made.fake.clock, asked, thread())
        return await work.prepare(SimpleNamespace())

    said = with_rooms(tmp_path, on_rooms)
    assert (said is not None) is switch.in_vain
    assert len(set(SESSION_SENTENCES.values())) == len(SESSION_SENTENCES)
    if said is not None:
        assert said.endswith("a new one was begun.")
        assert len(said) <= MAX_STATUS_CHARS
        assert OLD not in said


# The report ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "wanted", "used", "switch", "remembered", "report"),
    [
        ("new", None, NEW, SessionSwitch.KEPT, None, (NEW, True, None)),
        ("new", OLD, NEW, SessionSwitch.NEW, OLD, (NEW, True, None)),
        ("resume", OLD, OLD, SessionSwitch.KEPT, OLD, None),
        ("resume", None, OLD, SessionSwitch.KEPT, OLD, (OLD, False, None)),
        ("resume", None, NEW, SessionSwitch.KEPT, None, (NEW, True, None)),
        ("resume", OLD, NEW, SessionSwitch.KEPT, OLD, (NEW, True, None)),
        ("bind", OLD, OLD, SessionSwitch.BOUND, None, (OLD, False, None)),
        ("bind", OLD, CHILD, SessionSwitch.BOUND, None, (CHILD, False, None)),
        ("bind", OLD, NEW, SessionSwitch.MISSING, None, (NEW, True, "session_missing")),
        ("bind", "a title", NEW, SessionSwitch.NO_ID, None, (NEW, True, "session_missing")),
        ("bind", OLD, NEW, SessionSwitch.FOREIGN, None, (NEW, True, "session_missing")),
        ("bind", OLD, NEW, SessionSwitch.NOT_TAKEN, None, (NEW, True, "session_missing")),
        ("resume", OLD, NEW, SessionSwitch.MISSING, None, (NEW, True, None)),
    ],
    ids=[
        "the first",
        "a new one was wanted",
        "nothing new",
        "the server did not know it",
        "Hermes had none",
        "Hermes began one by itself",
        "bound",
        "bound, under another ID",
        "the named one is missing",
        "what was named is no ID",
        "the named one is another platform's",
        "Hermes did not take the named one",
        "the resumed one is missing",
    ],
)
def test_decision_10_the_server_is_told_what_the_turn_ran_on(  # noqa: PLR0917  # a row of the table
    tmp_path, mode, wanted, used, switch, remembered, report
):
    changes, _ = session(tmp_path, mode, wanted, used, switch=switch, remembered=remembered)
    assert reported(changes) == report


@pytest.mark.parametrize("generations", [1, 3])
def test_a_session_that_grew_out_of_the_wanted_one_is_no_new_one(tmp_path, generations):
    """A compression goes on under another ID: the server learns the ID, not that it began anew."""

    def before(made):
        line = [OLD, *(f"{CHILD}{number}" for number in range(1, generations)), NEW]
        made.runtime.parents = dict(zip(line[1:], line, strict=False))

    changes, _ = session(tmp_path, "resume", OLD, NEW, before=before)
    assert reported(changes) == (NEW, False, None)


def test_ancestors_without_an_end_are_not_followed_for_ever(tmp_path):
    def before(made):
        made.runtime.parents = {NEW: CHILD, CHILD: NEW}

    changes, _ = session(tmp_path, "resume", OLD, NEW, before=before)
    assert reported(changes) == (NEW, True, None)


def test_decision_10_the_threads_session_is_remembered(tmp_path):
    def before(made):
        made.runtime.parents = {NEW: OLD}

    changes, _ = session(tmp_path, "resume", OLD, NEW, before=before)
    assert changes[0] == ThreadSession(THREAD, NEW, OLD)


def test_without_a_turn_there_is_nothing_to_tell(tmp_path):
    changes, _ = session(tmp_path, used=None)
    assert list(changes) == []


# The title ----------------------------------------------------------------------------------------


def with_title(title="A short talk"):
    def before(made):
        made.runtime.titles[NEW] = title

    return before


def test_a_conversation_that_began_gets_the_models_title(tmp_path):
    changes, _ = session(tmp_path, before=with_title())
    assert titled(changes) == "A short talk"


@pytest.mark.parametrize(
    "changed",
    [{"mode": "resume"}, {"completed": False}, {"title_source": TitleSource.MANUAL}],
    ids=["not the first run", "not completed", "a person gave one"],
)
def test_decision_7_no_other_run_gives_a_title(tmp_path, changed):
    changes, _ = session(tmp_path, before=with_title(), **changed)
    assert titled(changes) is None


def test_a_title_that_takes_a_moment_is_waited_for(tmp_path):
    def before(made):
        looks = []

        async def title(session_id):
            looks.append(session_id)
            return "Late" if len(looks) == 5 else None

        made.runtime.session_title = title

    changes, made = session(tmp_path, before=before)
    assert titled(changes) == "Late"
    assert 0.3 < made.fake.elapsed < 1


def test_a_title_that_does_not_come_costs_two_seconds_and_no_more(tmp_path):
    changes, made = session(tmp_path)
    assert titled(changes) is None
    assert reported(changes) is not None
    assert 1.9 < made.fake.elapsed < 2.3


def test_a_runtime_without_titles_is_not_waited_for(tmp_path):
    def before(made):
        made.runtime.capabilities = RuntimeCapabilities(
            components=True, clarify=True, approvals=True, title=False, followups=True
        )

    changes, made = session(tmp_path, before=before)
    assert titled(changes) is None
    assert made.fake.elapsed == 0


def test_a_title_is_one_line_of_the_protocols_length(tmp_path):
    changes, _ = session(tmp_path, before=with_title("A\ntitle\t" + "x" * 300))
    title = titled(changes)
    assert "\n" not in title
    assert len(title) <= 120
