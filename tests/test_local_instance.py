"""What people do and see, and what administrators change."""

import threading
from uuid import UUID

import pytest

from bothy_hermes.local_rules import Refused
from bothy_hermes.wire_words import MAX_FILE_BYTES
from tests.fakes.local_kit import rig

NOBODY = UUID("00000000-0000-4000-8000-000000000001")


def refusal(call, *args, **options):
    with pytest.raises(Refused) as caught:
        call(*args, **options)
    return caught.value.code


def test_people_are_known_by_their_tokens(tmp_path):
    with rig(tmp_path) as made:
        assert made.instance.person_of_token(made.ada.token.reveal()) == made.ada
        assert made.instance.person_of_token("") is None
        assert made.instance.person_of_token(made.agent_token) is None


def test_what_is_not_there_is_refused(tmp_path):
    with rig(tmp_path) as made:
        instance, thread = made.instance, made.thread()
        for call, *args in [
            (instance.create_thread, NOBODY),
            (instance.create_thread, made.ada.id, NOBODY),
            (instance.post_message, NOBODY, thread.id, "x"),
            (instance.post_message, made.ada.id, NOBODY, "x"),
            (instance.cancel_run, made.ada.id, NOBODY),
            (instance.use_component, made.ada.id, NOBODY, NOBODY),
            (instance.set_title, made.ada.id, NOBODY, "x"),
            (instance.add_file, made.ada.id, NOBODY, "a", "text/plain", b""),
            (instance.messages, NOBODY),
            (instance.runs, NOBODY),
            (instance.interaction, NOBODY),
            (instance.change_person, NOBODY),
            (instance.set_channel_config, NOBODY, "x"),
            (instance.end_run, NOBODY),
        ]:
            assert refusal(call, *args) == "not_found"


def test_a_file_has_its_limit(tmp_path):
    class Huge(bytes):
        def __len__(self):
            return MAX_FILE_BYTES + 1

    with rig(tmp_path) as made:
        thread = made.thread()
        code = refusal(made.instance.add_file, made.ada.id, thread.id, "a", "text/plain", Huge())
        assert code == "content_too_long"


def test_the_bytes_of_a_file_are_on_the_disk_before_anybody_sees_it(tmp_path):
    with rig(tmp_path) as made:
        thread = made.thread()
        file = made.instance.add_file(made.ada.id, thread.id, "a", "text/plain", b"abc")
        made.restart()
        assert made.instance.store.file_path(file.id).read_bytes() == b"abc"
        posted = made.say(thread, file_ids=[file.id])
        assert made.instance.attachments(posted.message.id) == (file,)


def test_what_changed_is_told_in_order(tmp_path):
    """Threads, messages, runs and interactions, each after it is durable."""
    with rig(tmp_path) as made:
        changes = made.instance.changes
        start = changes.latest
        job = made.running()
        card = job.card()
        job.use(card)
        kinds = [change.kind for change in changes.since(start)]
        assert {"thread", "message", "run", "interaction"} == set(kinds)
        posted = made.say(made.instance.thread(job.thread_id), "more")
        start = changes.latest
        made.take()
        made.take()
        job.followup(posted.message.id)
        assert ("message", posted.message.id) in [(one.kind, one.id) for one in changes.since(start)]


def test_sequence_numbers_go_on_after_a_restart(tmp_path):
    with rig(tmp_path) as made:
        made.thread()
        latest = made.instance.changes.latest
        made.clock.move(1)
        made.restart()
        assert made.instance.changes.latest > latest
        assert made.instance.changes.since(latest) is None


def test_people_may_act_from_many_threads(tmp_path):
    """Each message becomes exactly one run or follow-up, whoever was faster."""
    with rig(tmp_path) as made:
        thread = made.thread()
        workers = [
            threading.Thread(target=lambda: [made.say(thread, "x") for _ in range(20)]) for _ in range(5)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert len(made.instance.messages(thread.id)) == 100
        assert len(made.instance.runs(thread.id)) == 1


def test_names_and_titles_are_in_no_repr(tmp_path):
    with rig(tmp_path) as made:
        thread = made.thread(title="a confidential title")
        job = made.running(thread, "confidential words")
        job.write("a confidential answer", client_msg_id="1")
        made.instance.set_channel_config(
            thread.channel_id, "a confidential prompt", [("confidential", "skill")]
        )
        text = repr([table.all() for table in made.instance.state.tables.values()])
        assert "confidential" not in text
