"""The cassettes are what the real Hermes does today."""

import re

import pytest

from bothy_hermes.hermes_versions import hermes_version
from tests.record import SCENARIOS, record_all
from tests.recording import CASSETTES, drafts, read_rows, shape

ADDED_IN_022 = frozenset({"context_length"})
"""What Hermes 0.22 tells its hooks beside what the cassettes of 0.21 have; the plugin reads none of it."""


def as_in_the_cassettes(rows):
    """The rows without what a newer Hermes adds to its hooks."""
    if (hermes_version() or "") < "0.22":
        return rows
    return [
        row | {"arguments": {name: one for name, one in row["arguments"].items() if name not in ADDED_IN_022}}
        if row["kind"] == "hook"
        else row
        for row in rows
    ]


@pytest.fixture(scope="module")
def recorded(hermes_installed, tmp_path_factory):
    return record_all(tmp_path_factory.mktemp("recording"))


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_fresh_recording_has_the_shape_of_the_cassette(recorded, name):
    """When it has not, Hermes has changed: record anew with `python -m tests.record` and read the diff."""
    cassette = read_rows(CASSETTES / f"{name}.jsonl")
    assert shape(as_in_the_cassettes(recorded[name])) == shape(cassette)
    assert drafts(recorded[name]) <= drafts(cassette)


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_recording_holds_no_secret_and_no_path(recorded, name):
    """What is committed tells nothing of the machine or of a credential."""
    text = str(recorded[name])
    assert not re.search(r"eyJ|Bearer|api_key|127\.0\.0\.1|/tmp|/home|/root", text)
