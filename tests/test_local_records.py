"""What the server keeps comes back from the disk as it was."""

import pytest

from bothy_hermes.codec import dump, dump_json, load_json, parse
from bothy_hermes.local_records import CardState, FollowupMark, Role
from tests.fakes.local_kit import rig


def busy(made):
    """Let something of everything be there."""
    thread = made.thread(title="Title")
    file = made.instance.add_file(made.ada.id, thread.id, "a", "audio/ogg", b"a", transcript="words")
    job = made.running(thread, "hello", file_ids=[file.id])
    made.beat()
    card = job.card()
    job.wait(card, "waiting")
    job.use(card)
    made.take()
    made.say(thread, "more", made.ben, session_mode="bind", bind_ref="s")
    made.take()
    made.instance.set_channel_config(thread.channel_id, "prompt", [("a", "b")])
    job.finish("failed", "runtime_error", metrics={"tokens_in": 1})


def test_every_record_survives_being_written(tmp_path):
    """Written as JSON and read strictly, it is equal; no table is left out."""
    with rig(tmp_path) as made:
        busy(made)
        for name, table in made.instance.state.tables.items():
            records = table.all()
            assert records, name
            for record in records:
                assert parse(table.kind, load_json(dump_json(dump(record)))) == record


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (("owner", "member", "guest"), Role),
        (("posted", "open", "answered", "closed"), CardState),
        (("waiting", "delivered", "absorbed"), FollowupMark),
    ],
)
def test_words_on_the_disk_stay_what_they_are(words, kind):
    """A renamed word would make old state files unreadable."""
    assert tuple(kind) == words
