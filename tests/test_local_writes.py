"""The adapter's changing calls: a handler each, and what of them is a repetition."""

from bothy_hermes.local_rules import AFTER_END
from bothy_hermes.local_writes import WRITES
from bothy_hermes.wire_operations import OPERATIONS, TokenKind
from tests.fakes.local_kit import rig


def test_every_operation_has_a_handler():
    """What the protocol lists and a run token serves is either read, written or has a rule of its own."""
    changing = {one.name for one in OPERATIONS if one.method != "GET" and TokenKind.RUN in one.tokens}
    assert changing == set(AFTER_END)
    assert set(WRITES) == changing - {"renewRunToken", "createMessage"}


def test_only_the_last_call_repeats(tmp_path):
    """An older call of the same operation is judged by the state."""
    with rig(tmp_path) as made:
        job = made.running()
        job.status(1, "one")
        made.clock.move(1)
        job.status(2, "two")
        assert job.status(2, "two").json == {"version": 3}
        assert job.status(1, "one").code == "version_conflict"


def test_a_refused_call_is_not_repeated(tmp_path):
    """What was not done is judged anew."""
    with rig(tmp_path) as made:
        job = made.offered()
        made.instance.set_options(billing_mode="personal")
        assert job.start(billing_mode="personal").status == 409
        assert job.start(billing_mode="personal").status == 409
        assert job.start().status == 200


def test_a_persons_change_ends_a_repetition(tmp_path):
    """A title that a person replaced is not confirmed again."""
    with rig(tmp_path) as made:
        job = made.running()

        def put():
            return job.call("PUT", f"/threads/{job.thread_id}/title", {"title": "T"}, If_Match='"1"')

        assert put().status == 200
        made.instance.set_title(made.ada.id, job.thread_id, "Mine")
        assert put().code == "title_not_auto"
