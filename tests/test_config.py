"""Configuration is read strictly, and what is wrong is named by its key alone."""

import os
import tomllib
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bothy_hermes import config
from bothy_hermes.config import KEYS, load_document, load_settings
from bothy_hermes.errors import ConfigError

INSTANCE = "0192f4a0-7b1c-7000-8000-000000000001"
LEAST = {
    "hermes_adapter.server_url": "https://chat.example.com/api/v1",
    "hermes_adapter.instance_id": INSTANCE,
    "hermes_adapter.token_file": "/srv/hermes/bothy/token",
}
NESTED = {name.removeprefix("hermes_adapter."): value for name, value in LEAST.items()}


def refused(extra):
    """The error of a section that is refused."""
    with pytest.raises(ConfigError) as caught:
        load_settings(extra)
    return caught.value


def test_the_least_section_gives_the_documented_defaults():
    """Three keys are enough; the rest has the defaults of the architecture's list."""
    settings = load_settings(LEAST)
    assert settings.platform_key == "bothy"
    assert settings.consumer == "default"
    assert settings.server_url == "https://chat.example.com/api/v1"
    assert settings.instance_id == UUID(INSTANCE)
    assert settings.token_file == Path("/srv/hermes/bothy/token")
    assert settings.dpop_key_file is None
    assert settings.max_message_bytes == 262_144
    assert settings.attachment_text_max_bytes == 32_768
    assert settings.max_active_runs == 8
    assert settings.restore_wait_seconds == 120.0
    assert settings.ca_file is None
    assert settings.proxy is None
    assert settings.run_update_min_interval == 1.0
    assert settings.request_timeout_seconds == 30.0
    assert settings.hermes_api.url is None
    assert settings.hermes_api.deadline_seconds == 1800.0
    assert settings.hermes_api.stop_timeout_seconds == 5.0
    assert settings.hermes_api.approval_timeout_seconds == 300.0


def test_flat_and_nested_mean_the_same():
    """The mapping `hermes_adapter` holds the same keys without their prefix."""
    more = {"consumer": "two", "max_active_runs": 3}
    flat = load_settings(LEAST | {f"hermes_adapter.{name}": value for name, value in more.items()})
    assert load_settings({"hermes_adapter": NESTED | more}) == flat


def test_decision_2_an_unknown_dotted_key_is_refused_and_a_plain_one_is_hermes_own():
    """A typing error never falls back to a default, and Hermes' own keys are none of ours."""
    assert load_settings(LEAST | {"dm_policy": "allowlist", "home_channel": {"chat_id": 1}, 7: "x"})
    for name in (
        "hermes_adapter.server_ulr",
        "adapter.nothing",
        "hermes_api.ur",
        "other.key",
        "hermes_adapter.a.b",
    ):
        assert refused(LEAST | {name: "x"}).key == name
    assert refused({"hermes_adapter": NESTED | {"server_ulr": "x"}}).key == "hermes_adapter.server_ulr"


def test_a_near_miss_is_told_the_right_name():
    """The error of an unknown key proposes the key that was probably meant."""
    assert "did you mean hermes_adapter.server_url" in str(
        refused(LEAST | {"hermes_adapter.server_ulr": "x"})
    )


@pytest.mark.parametrize("name", sorted(LEAST))
def test_a_required_key_is_missed_by_name(name):
    """Each required key that is missing is named."""
    error = refused({key: value for key, value in LEAST.items() if key != name})
    assert (error.key, error.problem) == (name, "is missing")


def test_the_same_key_twice_is_an_error():
    """Flat and nested at once is refused even with equal values."""
    error = refused(LEAST | {"hermes_adapter": {"server_url": LEAST["hermes_adapter.server_url"]}})
    assert error.key == "hermes_adapter.server_url"
    assert "twice" in error.problem


def test_the_nested_section_must_be_a_mapping():
    """A text or a list in place of the mapping is refused."""
    assert refused(LEAST | {"hermes_adapter": ["server_url"]}).key == "hermes_adapter"
    assert refused(LEAST | {"hermes_adapter": None}).key == "hermes_adapter"


WRONG = {
    "hermes_adapter.platform_key": ["", "Bothy", "../x", "a/b", 5, "a" * 33, "bothy\n"],
    "hermes_adapter.consumer": ["", "a b", "x" * 101, "ü", 1],
    "hermes_adapter.server_url": [
        "chat.example.com/api/v1",
        "ftp://chat.example.com",
        "http://chat.example.com/api/v1",
        "http://127.0.0.1.example.com/",
        "http://localhost.example.com/",
        "http://10.0.0.1/api",
        "https:///api",
        "https://user:hunter2@chat.example.com/",
        "https://chat.example.com/?a=b",
        "https://chat.example.com/?",
        "https://chat.example.com/#top",
        "https://chat.example.com/api/../v1",
        "https://chat.example.com/./v1",
        "https://chat.example.com/%2e%2E/v1",
        "https://chat..example.com/",
        "https://.example.com/",
        "https://./",
        f"https://{'a' * 64}.example.com/",
        "https://chat.example.com:port/",
        "https://chat.example.com:70000/",
        "https://chat.exa mple.com/",
        "https://chät.example.com/",
        "https://chat.example.com/\n",
        "https://[::1/",
        7,
    ],
    "hermes_adapter.instance_id": ["", "not-a-uuid", 5, INSTANCE[:-1]],
    "hermes_adapter.token_file": ["", "here", "~/here", 5, True, "/a\0b"],
    "hermes_adapter.dpop_key_file": ["key.pem", 5],
    "hermes_adapter.max_message_bytes": [1023, 262_145, 0, -1, "4096", 4096.0, True],
    "hermes_adapter.attachment_text_max_bytes": [-1, 1_048_577, "1"],
    "hermes_adapter.max_active_runs": [0, 101, 1.5, True],
    "hermes_adapter.restore_wait_seconds": [-1, 3601, "120", True, float("nan"), float("inf")],
    "hermes_adapter.ca_file": ["ca.pem", 1],
    "hermes_adapter.proxy": [
        "proxy:3128",
        "https://proxy.example.com:3128",
        "socks5://proxy.example.com:1080",
        "http://proxy.example.com",
        "http://proxy.example.com:3128/path",
        "http://proxy.example.com:3128?x=1",
        8080,
    ],
    "adapter.run_update_min_interval": [-0.1, 61, "1"],
    "adapter.request_timeout_seconds": [0, 0.5, 601, None],
    "hermes_api.url": ["http://hermes.example.com:8642", "example.com", 1],
    "hermes_api.key_file": ["key", 1],
    "hermes_api.profile_home": ["home"],
    "hermes_api.python": ["python3"],
    "hermes_api.model": ["", " x", 1],
    "hermes_api.deadline_seconds": [0, "1800"],
    "hermes_api.stop_timeout_seconds": [0],
    "hermes_api.approval_timeout_seconds": [0],
}


def test_every_key_has_wrong_values_to_try():
    """The table of wrong values keeps up with the table of keys."""
    assert set(WRONG) == {key.name for key in KEYS}


@pytest.mark.parametrize("name", sorted(WRONG))
def test_a_wrong_value_is_refused_by_its_key(name):
    """Each unusable value is refused, and the text names the key and never repeats the value."""
    for value in WRONG[name]:
        error = refused(LEAST | {name: value})
        assert error.key == name, value
        assert str(error).startswith(name)
        if isinstance(value, str) and len(value) > 4:
            assert value not in str(error)
            assert value.strip() not in repr(error)


@given(st.text(min_size=12, max_size=60), st.sampled_from([key.name for key in KEYS]))
def test_no_value_ever_reaches_an_error(value, name):
    """Whatever stands under a key, an error about it does not repeat it."""
    said = ""
    try:
        load_settings(LEAST | {name: value})
    except ConfigError as error:
        said = f"{error} {error!r}"
    assert value not in said


ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([10**400, -(10**400), b"bytes", "/\ud800", "/x\0", "http://[::1", "http://h:99999"]),
    st.floats(),
    st.text(st.characters(codec=None)),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)


@settings(derandomize=True)
@given(st.dictionaries(st.sampled_from([key.name for key in KEYS]), ODD, min_size=1, max_size=3))
def test_any_values_are_settings_or_a_sentence(values):
    """Whatever YAML can hold is read, or refused by the name of its key; and a path can be opened."""
    named = next(iter(values))
    try:
        os.fsencode(load_settings(LEAST | values).token_file)
    except ConfigError as error:
        named = error.key
    assert named in values


@pytest.mark.parametrize(
    ("given_url", "read"),
    [
        ("https://Chat.Example.COM/api/v1/", "https://chat.example.com/api/v1"),
        ("HTTPS://chat.example.com:443/api", "https://chat.example.com/api"),
        ("https://chat.example.com:8443", "https://chat.example.com:8443"),
        ("http://localhost:8080/api/v1", "http://localhost:8080/api/v1"),
        ("http://127.8.9.1/api", "http://127.8.9.1/api"),
        ("https://chat.example.com./api", "https://chat.example.com./api"),
        (f"https://{'a' * 63}.example.com/api", f"https://{'a' * 63}.example.com/api"),
        ("http://[::1]:9000/api//", "http://[::1]:9000/api"),
    ],
)
def test_a_server_url_is_normalised(given_url, read):
    """Proofs name the URL, so it has one spelling; plain http is taken for this machine."""
    assert load_settings(LEAST | {"hermes_adapter.server_url": given_url}).server_url == read


def test_a_proxy_with_a_password_stays_out_of_repr():
    """The proxy's credentials are a secret."""
    settings = load_settings(LEAST | {"hermes_adapter.proxy": "http://me:hunter2@proxy.example.com:3128/"})
    assert settings.proxy == "http://me:hunter2@proxy.example.com:3128"
    assert "hunter2" not in repr(settings)


def test_limits_themselves_are_taken():
    """Both ends of each number's range are valid."""
    for key in KEYS:
        if key.minimum is not None:
            for value in (key.minimum, key.maximum):
                number = int(value) if key.type is config.KeyType.INTEGER else value
                assert load_settings(LEAST | {key.name: number})


def test_a_key_without_a_value_counts_as_left_out_only_where_that_means_something():
    """An empty line of YAML is no proxy, but no message limit either."""
    assert load_settings(LEAST | {"hermes_adapter.proxy": None}).proxy is None
    assert refused(LEAST | {"hermes_adapter.max_message_bytes": None}).problem == "has no value"
    assert refused(LEAST | {"hermes_adapter.token_file": None}).problem == "has no value"


def test_the_runs_api_has_its_own_default_of_active_runs():
    """Four runs with Hermes' API server, unless the operator says otherwise."""
    api = LEAST | {"hermes_api.url": "http://127.0.0.1:8642/"}
    assert load_settings(api).max_active_runs == 4
    assert load_settings(api).hermes_api.url == "http://127.0.0.1:8642"
    assert load_settings(api | {"hermes_adapter.max_active_runs": 8}).max_active_runs == 8


def test_paths_may_come_as_paths():
    """A caller in Python hands in what it has."""
    assert load_settings(LEAST | {"hermes_adapter.token_file": Path("/x/token")}).token_file == Path(
        "/x/token"
    )


def test_the_process_environment_is_not_read(monkeypatch):
    """Proxy variables change nothing."""
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "http_proxy"):
        monkeypatch.setenv(name, "http://elsewhere.example.com:1")
    assert load_settings(LEAST).proxy is None


DOCUMENT = f"""
[hermes_adapter]
server_url = "https://chat.example.com/api/v1"
instance_id = "{INSTANCE}"
token_file = "/srv/hermes/bothy/token"
[adapter]
request_timeout_seconds = 10
[hermes_api]
url = "http://127.0.0.1:8642"
model = "hermes-4"
"""


def test_a_document_of_serve_means_the_same_as_a_section():
    """Tables by prefix, or dotted names in quotes: both are the keys of the section."""
    flat = LEAST | {
        "adapter.request_timeout_seconds": 10,
        "hermes_api.url": "http://127.0.0.1:8642",
        "hermes_api.model": "hermes-4",
    }
    assert load_document(tomllib.loads(DOCUMENT)) == load_settings(flat)
    assert load_document(flat) == load_settings(flat)


@pytest.mark.parametrize("line", ["servr_url = 1", "[hermes]\nurl = 1", '"hermes_adapter.x" = 1'])
def test_a_document_of_serve_has_no_foreign_names(line):
    """Every name of that file is ours, so one without a dot is a typing error as well."""
    with pytest.raises(ConfigError, match="not a known key"):
        load_document(tomllib.loads(line + "\n" + DOCUMENT if "[" not in line else DOCUMENT + line))


def test_a_document_of_serve_with_a_key_twice_is_refused():
    """A table and a quoted name for the same key are a contradiction waiting to happen."""
    document = tomllib.loads('"adapter.request_timeout_seconds" = 5\n' + DOCUMENT)
    with pytest.raises(ConfigError, match=r"adapter.request_timeout_seconds: is there twice"):
        load_document(document)
