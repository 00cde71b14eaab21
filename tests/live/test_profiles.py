"""Two profiles in one gateway: each has its own agent, its own money and its own state."""

import json
import shutil
import time

import pytest
import yaml

from bothy_hermes.clock import system_clock
from bothy_hermes.demo_world import adapter_keys_of
from bothy_hermes.local_options import ServerOptions
from bothy_hermes.local_port import LocalServer

LOGIN = "sk-ant-oat01-" + "a" * 40
KEY = "sk-ant-api03-" + "b" * 40
PATIENCE_SECONDS = 60.0


def until(wanted, what):
    """Wait until something is there and return it."""
    clock = system_clock()
    end = clock.monotonic() + PATIENCE_SECONDS
    while not (found := wanted()):
        assert clock.monotonic() < end, f"still waiting for {what}"
        time.sleep(0.1)
    return found


def heartbeat_in(home):
    """The last heartbeat of a profile's adapter, as its status file tells it."""
    path = home / "bothy" / "status.json"
    return json.loads(path.read_text("utf-8")).get("heartbeat") if path.exists() else None


@pytest.fixture(scope="module")
def second(closed_world, tmp_path_factory):
    """A second profile in the world's gateway, with a server of its own and a person's login."""
    options = ServerOptions(heartbeat_interval_ms=1000)
    closed_world.open(options=options)
    server = LocalServer.start(
        tmp_path_factory.mktemp("second"),
        clock=system_clock(),
        options=ServerOptions(heartbeat_interval_ms=1000, billing_mode="personal", dpop=closed_world.dpop),
    )
    home = closed_world.gateway.place.hermes_home
    profile = home / "profiles" / "work"
    (profile / "plugins").mkdir(parents=True)
    shutil.copytree(home / "plugins" / "bothy", profile / "plugins" / "bothy")
    config = yaml.safe_load((home / "config.yaml").read_text("utf-8"))
    config["platforms"]["bothy"]["extra"].update(adapter_keys_of(server))
    config["model"] = {"provider": "anthropic", "default": "claude-sonnet-4-5"}
    (profile / "config.yaml").write_text(yaml.safe_dump(config), "utf-8")
    (profile / ".env").write_text(f"ANTHROPIC_TOKEN={LOGIN}\n", "utf-8")
    try:
        closed_world.start()
        until(lambda: server.connected, "the second profile's connection")
        yield profile
        assert server.violations == []
    finally:
        server.stop()


def test_each_profile_proves_its_own_credential(closed_world, second):
    """The home is a context variable: asked without it, one profile would prove the other's money."""
    first = closed_world.gateway.place.hermes_home
    beats = [until(lambda home=home: heartbeat_in(home), "a heartbeat") for home in (first, second)]
    assert [beat["reported_billing_mode"] for beat in beats] == ["organization", "personal"]
    assert [beat["billing_evidence"]["key_type"] for beat in beats] == ["api_key", "oauth"]
    assert [beat["billing_evidence"]["provider"] for beat in beats] == ["custom", "anthropic"]


def test_a_turn_belongs_to_the_profile_that_was_asked(closed_world, second):
    """Both copies of the plugin hear every hook of the process; one of them tells it on."""
    said = closed_world.say("repeat mine alone")
    assert said.state == "completed"
    assert said.answer.endswith("mine alone")
    assert heartbeat_in(second)["details"]["active_runs"] == 0


def test_a_credential_that_is_exchanged_is_seen_at_the_next_heartbeat(second):
    """A profile's variables are read anew for each question."""
    (second / ".env").write_text(f"ANTHROPIC_API_KEY={KEY}\n", "utf-8")
    until(lambda: heartbeat_in(second)["reported_billing_mode"] == "organization", "the new key's mode")
    assert heartbeat_in(second)["billing_evidence"]["key_type"] == "api_key"
