"""Whom a thread pays beside the main model."""

from types import SimpleNamespace

import pytest

from bothy_hermes.hermes_route import bound_payee
from bothy_hermes.turn_facts import Payee
from tests.fakes import hermes

SOURCE = SimpleNamespace(platform="bothy", chat_id="c", thread_id="t")


def runner(chosen=None, stored=None):
    """A runner with what /model chose in this process, and what it left for the next one."""
    store = SimpleNamespace(get_model_override={"key": stored}.get)
    return SimpleNamespace(
        _session_model_overrides={"key": chosen} if chosen else {}, session_store=store, config="config"
    )


@pytest.fixture
def overrides(monkeypatch):
    """What the configuration says of channels; filled by the test."""
    state, found = hermes.installed(monkeypatch), {}

    def find(config, platform, chat_id, *, thread_id=None, parent_id=None):
        assert (config, platform, parent_id) == ("config", "bothy", None)
        return found.get(chat_id) or found.get(thread_id)

    state.modules["gateway.run"]._get_channel_override = find
    return found


def test_a_thread_like_every_other_pays_the_main_model(overrides):
    assert bound_payee(runner(), "key", SOURCE) is None
    assert bound_payee(runner({"model": "m2"}), "key", SOURCE) is None


@pytest.mark.parametrize("where", ["chosen", "stored"])
def test_a_session_that_is_locked_pays_whom_the_lock_names(overrides, where):
    """Before the last start as well: then it stands in the session store alone."""
    overrides["c"] = SimpleNamespace(provider="nous")
    lock = {"model": "m2", "provider": "openrouter", "base_url": "https://openrouter.ai/api/v1"}
    found = bound_payee(runner(**{where: lock}), "key", SOURCE)
    assert found == Payee("openrouter", "https://openrouter.ai/api/v1")
    assert bound_payee(runner(**{where: lock}), "other", SOURCE) == Payee("nous")


def test_what_was_chosen_in_this_process_goes_before_what_was_stored(overrides):
    """The store may still hold the choice of the last one."""
    assert overrides == {}
    found = bound_payee(runner({"provider": "nous"}, {"provider": "openrouter"}), "key", SOURCE)
    assert found == Payee("nous")


@pytest.mark.parametrize("key", ["c", "t"])
def test_a_channel_of_its_own_pays_whom_the_configuration_names(overrides, key):
    overrides[key] = SimpleNamespace(provider="openrouter")
    assert bound_payee(runner(), "key", SOURCE) == Payee("openrouter")


def test_a_channel_with_another_model_of_the_same_provider_is_like_every_other(overrides):
    overrides["c"] = SimpleNamespace(provider=None)
    assert bound_payee(runner(), "key", SOURCE) is None


def test_a_hermes_without_these_ways_binds_nothing(monkeypatch):
    """Nothing that is not there is asked."""
    hermes.installed(monkeypatch)
    assert bound_payee(SimpleNamespace(), "key", SOURCE) is None
