"""The table of keys is complete, in words that documentation can print."""

from bothy_hermes import defaults, wire_words
from bothy_hermes.config_keys import KEYS, MIN_MESSAGE_BYTES

BY_NAME = {key.name: key for key in KEYS}


def test_the_names_are_those_of_the_architecture():
    """Every key of the architecture's list, under its prefix, once."""
    adapter = (
        "platform_key consumer server_url instance_id token_file dpop_key_file max_message_bytes "
        "attachment_text_max_bytes max_active_runs restore_wait_seconds ca_file proxy"
    )
    api = (
        "url key_file profile_home python model deadline_seconds stop_timeout_seconds "
        "approval_timeout_seconds"
    )
    expected = [f"hermes_adapter.{name}" for name in adapter.split()]
    expected += ["adapter.run_update_min_interval", "adapter.request_timeout_seconds"]
    expected += [f"hermes_api.{name}" for name in api.split()]
    assert [key.name for key in KEYS] == expected


def test_each_key_says_why_and_within_what():
    """A reason, and a range in words; numbers have a unit and a default within their range."""
    for key in KEYS:
        assert key.reason.endswith("."), key.name
        assert key.range, key.name
        if key.minimum is not None:
            assert key.unit, key.name
            assert key.minimum <= key.default <= key.maximum, key.name


def test_ranges_read_well():
    """What documentation prints of a range."""
    assert BY_NAME["hermes_adapter.max_message_bytes"].range == "1024 to 262144"
    assert BY_NAME["hermes_api.stop_timeout_seconds"].range == "0.1 to 60"
    assert BY_NAME["hermes_adapter.token_file"].range == "an absolute path"


def test_defaults_are_those_of_the_entry_and_the_protocol():
    """The plugin entry and the protocol must not disagree with the table."""
    assert BY_NAME["hermes_adapter.max_message_bytes"].default == defaults.DEFAULT_MAX_MESSAGE_BYTES
    assert BY_NAME["hermes_adapter.max_message_bytes"].maximum == wire_words.MAX_CONTENT_BYTES
    assert BY_NAME["hermes_adapter.max_message_bytes"].minimum == MIN_MESSAGE_BYTES == 1024
    assert BY_NAME["hermes_adapter.platform_key"].default == defaults.DEFAULT_PLATFORM_KEY
