"""What people see of the instance's records."""

import dataclasses
from datetime import UTC, datetime
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bothy_hermes.clock import system_clock
from bothy_hermes.local_changes import Change
from bothy_hermes.local_instance import Instance
from bothy_hermes.local_options import ServerOptions
from bothy_hermes.local_people_views import PAGE_CHARS, PAGE_MESSAGES, Views, stretch
from bothy_hermes.local_rules import Refused
from bothy_hermes.local_store import LocalStore
from bothy_hermes.wire import Message, Principal
from bothy_hermes.wire_words import MessageKind, PrincipalKind


@pytest.fixture
def instance(tmp_path):
    made = Instance(LocalStore(tmp_path / "server"), system_clock(), ServerOptions())
    yield made
    made.close()


def message(number, content=""):
    return Message(
        id=UUID(int=number),
        thread_id=UUID(int=1),
        run_id=None,
        kind=MessageKind.TEXT,
        role=None,
        content=content,
        part=None,
        reply_to=None,
        author=Principal(id=UUID(int=2), kind=PrincipalKind.PERSON, display_name="Ada"),
        components=(),
        version=1,
        client_msg_id=None,
        closed=None,
        created_at=datetime(2026, 11, 30, tzinfo=UTC),
    )


def pages(messages):
    """Read a thread from its end to its beginning, page by page."""
    shown, earlier = stretch(messages, None)
    yield shown
    while earlier:
        shown, earlier = stretch(messages, shown[0].id)
        yield shown


@given(st.lists(st.sampled_from([0, 1, PAGE_CHARS // 2, PAGE_CHARS, PAGE_CHARS + 1]), max_size=12))
def test_pages_together_are_the_thread_and_none_is_too_large(sizes):
    """Texts stand in for themselves by their length: one string is shared by all of one size."""
    texts = {size: "x" * size for size in set(sizes)}
    messages = [message(number, texts[size]) for number, size in enumerate(sizes)]
    found = list(pages(messages))
    assert [one for page in reversed(found) for one in page] == messages
    for page in found:
        assert len(page) <= 1 or sum(len(one.content) for one in page) <= PAGE_CHARS


def test_a_page_holds_at_most_so_many_messages():
    messages = [message(number) for number in range(PAGE_MESSAGES * 2 + 1)]
    assert [len(page) for page in pages(messages)] == [PAGE_MESSAGES, PAGE_MESSAGES, 1]


def test_a_page_before_an_unknown_message_is_the_newest():
    messages = [message(number) for number in range(3)]
    assert stretch(messages, UUID(int=99)) == (tuple(messages), False)


def test_a_thread_shows_how_it_begins(instance):
    ada = instance.people()[0]
    thread = instance.create_thread(ada.id)
    assert Views(instance).thread(thread).excerpt is None
    instance.post_message(ada.id, thread.id, "Why is the build red? " * 10)
    instance.post_message(ada.id, thread.id, "Second")
    assert Views(instance).thread(thread).excerpt == ("Why is the build red? " * 10)[:80]


def test_a_message_keeps_everything_of_the_protocols_message(instance):
    ada = instance.people()[0]
    thread = instance.create_thread(ada.id)
    posted = instance.post_message(ada.id, thread.id, "Hello").message
    shown = Views(instance).message(posted)
    assert {field.name: getattr(shown, field.name) for field in dataclasses.fields(posted)} == {
        field.name: getattr(posted, field.name) for field in dataclasses.fields(posted)
    }
    assert (shown.attachments, shown.followup, shown.late) == ((), None, False)


@pytest.mark.parametrize("kind", ["thread", "message", "run", "interaction"])
def test_a_change_of_something_that_is_gone_is_refused(instance, kind):
    with pytest.raises(Refused):
        Views(instance).changed(Change(1, kind, UUID(int=5)))


def test_a_change_is_the_thing_as_it_is_now(instance):
    ada = instance.people()[0]
    views = Views(instance)
    thread = instance.create_thread(ada.id)
    posted = instance.post_message(ada.id, thread.id, "Hello")
    assert views.changed(Change(1, "thread", thread.id)).id == thread.id
    assert views.changed(Change(2, "message", posted.message.id)).content == "Hello"
    assert views.changed(Change(3, "run", posted.run_id)).run.id == posted.run_id
