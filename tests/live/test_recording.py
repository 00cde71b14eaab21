"""The cassettes are what the real Hermes does today."""

import re

import pytest

from bothy_hermes.hermes_versions import hermes_version
from tests.record import SCENARIOS, record_all
from tests.recording import CASSETTES, drafts, read_rows, shape

UNLIKE_021 = {
    "0.19": {
        "failed",
        "first_chunk_at",
        "moa_references",
        "parent_session_id",
        "retry_count",
        "system_prompt",
    }
    | {"turn_exit_reason", "allow_gateway_control", "expect_edits", "reply_to_message_id"}
    | {"user_id", "user_name"},
    "0.22": {"context_length"},
}
"""What another version tells besides, or does not tell, by its name: the adapter needs none of it there."""


def alike(value):
    """What this Hermes tells in the same way as 0.21, of which the cassettes are."""
    left_out = UNLIKE_021.get(".".join((hermes_version() or "").split(".")[:2]), ())
    if isinstance(value, dict):
        return {name: alike(one) for name, one in value.items() if name not in left_out}
    return [alike(one) for one in value] if isinstance(value, list) else value


@pytest.fixture(scope="module")
def recorded(hermes_installed, tmp_path_factory):
    return record_all(tmp_path_factory.mktemp("recording"))


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_fresh_recording_has_the_shape_of_the_cassette(recorded, name):
    """When it has not, Hermes has changed: record anew with `python -m tests.record` and read the diff."""
    cassette = read_rows(CASSETTES / f"{name}.jsonl")
    assert shape(alike(recorded[name])) == shape(alike(cassette))
    assert drafts(alike(recorded[name])) <= drafts(alike(cassette))


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_recording_holds_no_secret_and_no_path(recorded, name):
    """What is committed tells nothing of the machine or of a credential."""
    text = str(recorded[name])
    assert not re.search(r"eyJ|Bearer|api_key|127\.0\.0\.1|/tmp|/home|/root", text)
