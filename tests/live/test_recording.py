"""The cassettes are what the real Hermes does today."""

import re

import pytest

from tests.record import SCENARIOS, record_all
from tests.recording import CASSETTES, drafts, read_rows, shape


@pytest.fixture(scope="module")
def recorded(hermes_installed, tmp_path_factory):
    return record_all(tmp_path_factory.mktemp("recording"))


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_fresh_recording_has_the_shape_of_the_cassette(recorded, name):
    """When it has not, Hermes has changed: record anew with `python -m tests.record` and read the diff."""
    cassette = read_rows(CASSETTES / f"{name}.jsonl")
    assert shape(recorded[name]) == shape(cassette)
    assert drafts(recorded[name]) <= drafts(cassette)


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_recording_holds_no_secret_and_no_path(recorded, name):
    """What is committed tells nothing of the machine or of a credential."""
    text = str(recorded[name])
    assert not re.search(r"eyJ|Bearer|api_key|127\.0\.0\.1|/tmp|/home|/root", text)
