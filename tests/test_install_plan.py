"""The configuration of a new Hermes profile."""

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from bothy_hermes.install_plan import Entry, InstallRequest, new_config, platform_entries

REQUEST = InstallRequest(
    platform_key="bothy",
    adapter_keys={
        "hermes_adapter.server_url": "http://127.0.0.1:1/api/v1",
        "hermes_adapter.max_active_runs": 8,
    },
    toolsets=("terminal", "todo"),
    control_user="the-adapter",
)

# What YAML can hold at all; everything else is refused by its readers.
PRINTABLE = st.text(
    st.characters(exclude_categories=("Cs", "Cc", "Cn"), include_characters="\n\t\x85\u2028\u2029\ufeff\x7f")
)
VALUES = st.booleans() | st.integers() | PRINTABLE | st.lists(PRINTABLE)


def read(*entries):
    return yaml.safe_load(new_config(entries))


def test_the_text_of_a_new_profile(text_snapshot):
    assert new_config(platform_entries(REQUEST)) == text_snapshot


def test_the_adapters_keys_stand_under_extra_with_their_dots():
    block = read(*platform_entries(REQUEST))["platforms"]["bothy"]
    assert block["extra"]["hermes_adapter.server_url"] == "http://127.0.0.1:1/api/v1"
    assert block["extra"]["hermes_adapter.max_active_runs"] == 8
    assert [name for name in block if "." in name] == []


def test_off_is_a_word_and_no_boolean():
    config = read(*platform_entries(REQUEST))
    assert config["display"]["background_process_notifications"] == "off"
    assert config["display"]["platforms"]["bothy"]["tool_progress"] == "off"
    assert config["onboarding"]["profile_build"] == "off"


def test_another_platform_key_moves_every_block():
    request = InstallRequest("office", {}, ("todo",), "the-adapter")
    config = read(*platform_entries(request))
    assert config["plugins"]["enabled"] == ["office"]
    assert list(config["platforms"]) == ["office"]
    assert config["platforms"]["office"]["home_channel"]["platform"] == "office"
    assert list(config["platform_toolsets"]) == ["office"]
    assert list(config["display"]["platforms"]) == ["office"]


def test_without_toolsets_hermes_decides_them():
    request = InstallRequest("bothy", {}, None, "the-adapter")
    assert "platform_toolsets" not in read(*platform_entries(request))


@given(VALUES)
def test_every_value_is_read_as_it_was_written(value):
    assert read(Entry(("top", "key"), value)) == {"top": {"key": value}}


@given(PRINTABLE.filter(bool))
@example("off")
@example("null")
@example("hermes_adapter.server_url")
def test_every_name_of_a_key_is_read_as_it_was_written(name):
    assert read(Entry((name,), 1)) == {name: 1}


@pytest.mark.parametrize(
    "paths",
    [[("a", "b"), ("a", "b")], [("a",), ("a", "b")], [("a", "b"), ("a",)]],
    ids=["same", "under", "over"],
)
def test_two_entries_for_one_place_are_a_mistake(paths):
    with pytest.raises(ValueError, match="two entries want"):
        new_config(Entry(path, 1) for path in paths)
