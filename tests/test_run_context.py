"""What a turn is told: fetched from the server once, in the form that Hermes gets."""

import logging
from uuid import UUID

import pytest

from bothy_hermes.context import TriggerMissing
from bothy_hermes.errors import ProblemAnswer
from bothy_hermes.run_context import ContextReader
from bothy_hermes.wire import ServedChannelConfig, Skill
from tests.fakes.contexts import attachment, context, element, trigger
from tests.fakes.edge_kit import CHANNEL, PERSON, RUN, THREAD
from tests.fakes.flow_kit import MESSAGE, invocation, refusal, with_rooms

GUEST = {"kind": "guest"}


def reading(tmp_path, before=None, run=None, *, times=1, **keys):
    """Read for a run; returns what was read last, and the rooms."""

    async def on_rooms(made):
        if before is not None:
            before(made)
        for _ in range(times):
            made.read = await made.services.context.read(invocation(run), None)
        return made.read, made

    return with_rooms(tmp_path, on_rooms, **keys)


def having(*elements, **files):
    """A context with these elements before the trigger, and files by their numbers."""

    def before(made):
        made.api.context = context(*elements, trigger("What now?", id=MESSAGE))
        made.api.files = {UUID(int=int(name[1:])): data for name, data in files.items()}

    return before


def test_the_request_says_who_asks_where_and_what(tmp_path):
    prepared, _ = reading(tmp_path)
    turn = prepared.turn
    assert (turn.run_id, turn.thread_id, turn.channel_id) == (RUN, THREAD, CHANNEL)
    assert (turn.user_id, turn.message_id) == (PERSON, MESSAGE)
    assert turn.user_name == "Ann"
    assert "What now?" in turn.user_text
    assert prepared.thread.title == "Garden"


def test_a_guests_turn_has_a_thread_of_its_own(tmp_path):
    """Hermes' session is the run's own: the operator's conversation survives a guest."""
    prepared, made = reading(tmp_path, run=GUEST)
    assert prepared.turn.thread_id == RUN
    assert made.api.named("get_served_channel_config") == []


def test_what_was_said_before_is_background_and_not_the_persons_words(tmp_path):
    prepared, _ = reading(tmp_path, having(element(5, "The gate is open.")))
    assert "The gate is open." in prepared.turn.system_part
    assert "The gate is open." not in prepared.turn.user_text


# The channel's configuration ----------------------------------------------------------------------


def served(version, prompt):
    return ServedChannelConfig(
        settings_version=version, prompt=prompt, skills=(Skill(name="style", text="Write short."),)
    )


def test_a_channels_instructions_are_part_of_the_turn(tmp_path):
    def before(made):
        made.api.channel = served(5, "Be kind.")

    prepared, _ = reading(tmp_path, before)
    assert "Be kind." in prepared.turn.system_part
    assert "Write short." in prepared.turn.system_part


def test_a_channels_instructions_are_read_once_for_their_version(tmp_path):
    _, made = reading(tmp_path, times=3)
    assert made.api.named("get_served_channel_config") == [(CHANNEL,)]


def test_an_invocation_of_a_newer_version_reads_them_again(tmp_path):
    async def on_rooms(made):
        await made.services.context.read(invocation(), None)
        made.api.channel = served(6, "Be strict.")
        found = await made.services.context.read(invocation(settings_version=6), None)
        await made.services.context.read(invocation(settings_version=5), None)
        return found.turn.system_part, made.api.named("get_served_channel_config")

    system_part, asked = with_rooms(tmp_path, on_rooms)
    assert "Be strict." in system_part
    assert len(asked) == 2


def test_changed_settings_forget_them(tmp_path):
    async def on_rooms(made):
        await made.services.context.read(invocation(), None)
        made.services.context.forget_channels()
        await made.services.context.read(invocation(), None)
        return len(made.api.named("get_served_channel_config"))

    assert with_rooms(tmp_path, on_rooms) == 2


# Files --------------------------------------------------------------------------------------------


def test_a_small_text_file_is_inlined(tmp_path):
    message = element(5, "See this.", attachments=(attachment(7, size_bytes=11),))
    prepared, made = reading(tmp_path, having(message, f7=b"hello world"))
    assert "hello world" in prepared.turn.system_part
    assert "hello world" not in prepared.turn.user_text
    assert made.api.named("download_file") == [(UUID(int=7), 32769)]


def test_a_file_is_read_one_byte_beyond_its_limit(tmp_path):
    """So much tells whether there is more; more is not fetched."""
    message = element(5, "See this.", attachments=(attachment(7, size_bytes=900),))
    prepared, made = reading(tmp_path, having(message, f7=b"x" * 900), attachment_text_max_bytes=100)
    assert made.api.named("download_file") == [(UUID(int=7), 101)]
    assert "x" * 100 in prepared.turn.system_part
    assert "x" * 101 not in prepared.turn.system_part


def test_a_file_that_may_not_be_read_does_not_stop_the_turn(tmp_path, caplog):
    def before(made):
        having(element(5, "See this.", attachments=(attachment(7, name="xyzzy.txt"),)), f7=b"")(made)
        made.api.on["download_file"] = refusal(403, "file_refused")

    with caplog.at_level(logging.INFO):
        prepared, _ = reading(tmp_path, before)
    assert "What now?" in prepared.turn.user_text
    assert "file_refused" in caplog.text
    assert "xyzzy" not in caplog.text


# Trouble ------------------------------------------------------------------------------------------


def test_without_its_trigger_there_is_no_turn(tmp_path):
    def before(made):
        made.api.context = context(trigger("What now?"))

    with pytest.raises(TriggerMissing):
        reading(tmp_path, before)


@pytest.mark.parametrize("operation", ["get_run_context", "get_served_channel_config"])
def test_a_refusal_is_the_callers_to_judge(tmp_path, operation):
    def before(made):
        made.api.on[operation] = refusal(403, "forbidden")

    with pytest.raises(ProblemAnswer, match="403 forbidden"):
        reading(tmp_path, before)


def test_each_process_marks_with_a_secret_of_its_own(tmp_path):
    """What the last turn's text was marked with marks the same text in this one, and nothing elsewhere."""

    async def on_rooms(made):
        made.api.context = context(element(5, "Something."), trigger("What now?", id=MESSAGE))
        reader = made.services.context
        again = ContextReader(made.api, made.services.settings, made.services.clock)
        return [(await one.read(invocation(), None)).turn.system_part for one in (reader, reader, again)]

    first, second, another = with_rooms(tmp_path, on_rooms)
    assert first == second != another


def test_the_words_of_one_message_are_read(tmp_path):
    """They are a follow-up's; a message that the thread does not show has none."""

    async def on_rooms(made):
        made.api.context = context(trigger("What now?", id=MESSAGE), element(55, "And this?"))
        reader = made.services.context
        return [await reader.message(RUN, UUID(int=number), None) for number in (55, 56)]

    assert with_rooms(tmp_path, on_rooms) == ["And this?", None]
