"""One call as a value: its version, its consumer, and whose run it is about."""

import pytest

from bothy_hermes.local_call import consumer_of
from bothy_hermes.local_http import Request
from bothy_hermes.local_rules import Refused
from tests.fakes.local_kit import rig

NOBODY = "00000000-0000-4000-8000-000000000001"


def edit(job, message, content, version):
    headers = {} if version is None else {"If_Match": version}
    return job.call("PATCH", f"/messages/{message}", {"content": content}, **headers)


@pytest.mark.parametrize(
    ("version", "status"),
    [(None, 428), ("1", 422), ('W/"1"', 422), ("*", 422), ('"01"', 422), ('""', 422), ('"1", "2"', 422)],
)
def test_if_match_is_a_quoted_version(tmp_path, version, status):
    with rig(tmp_path, clean=False) as made:
        job = made.running()
        message = job.write("hi").json["id"]
        assert edit(job, message, "hello", version).status == status
        assert len(made.violations) == 1


@pytest.mark.parametrize("path", ["/runs/{run}", "/runs/{run}/context"])
def test_a_token_serves_its_own_run(tmp_path, path):
    with rig(tmp_path, clean=False) as made:
        job, other = made.running(), made.running()
        answer = job.call("GET", path.format(run=other.id))
        assert (answer.status, answer.code) == (403, "forbidden")
        assert made.violations[0].endswith(": the token is of another run")


def test_a_token_serves_its_own_thread_and_channel(tmp_path):
    with rig(tmp_path, clean=False) as made:
        job = made.running()
        body = {"external_session_ref": "s", "started": True}
        assert job.call("PUT", f"/threads/{NOBODY}/agent-session", body, If_Match='"0"').status == 403
        assert job.call("PUT", f"/threads/{NOBODY}/title", {"title": "T"}, If_Match='"0"').status == 403
        assert job.call("GET", f"/channels/{NOBODY}/served-config").status == 403
        assert len(made.violations) == 3


def test_another_runs_interaction_is_forbidden(tmp_path):
    with rig(tmp_path, clean=False) as made:
        job, other = made.running(), made.running()
        card = job.card()
        used = job.use(card)
        made.take()
        assert other.respond(used.interaction.id).status == 403
        assert other.respond(NOBODY).status == 404


@pytest.mark.parametrize("name", ["", "a b", "x" * 101, "a/b", "ä"])
def test_a_consumer_has_its_form(name):
    assert consumer_of(Request("GET", "/", {"consumer": "A.b_c-9"})) == "A.b_c-9"
    with pytest.raises(Refused) as caught:
        consumer_of(Request("GET", "/", {"consumer": name} if name else {}))
    assert (caught.value.status, caught.value.violation) == (422, True)
