"""The live rig: one real Hermes gateway for each module of live tests, and what holds for all of them."""

import os
from pathlib import Path

import pytest

from bothy_hermes import local_model_script
from bothy_hermes.errors import StartFailed
from bothy_hermes.gateway_process import find_hermes
from bothy_hermes.local_model_words import Call, Word, _with_calls
from tests.live.kit import LiveWorld, coverage_environment

HERE = Path(__file__).parent
RESTARTS = pytest.StashKey[list]()


def pytest_collection_modifyitems(items):
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.live)


def pytest_configure(config):
    config.stash[RESTARTS] = []


def pytest_terminal_summary(terminalreporter, config):
    for module, why in config.stash[RESTARTS]:
        terminalreporter.write_line(f"{module}: the gateway was started again: {why}")


@pytest.fixture(scope="session")
def hermes_installed():
    """Without Hermes live tests are skipped, but never where they are the proof."""
    try:
        find_hermes()
    except StartFailed as fault:
        if os.environ.get("CI") == "true":
            pytest.fail(str(fault))
        pytest.skip(str(fault))


@pytest.fixture(scope="module")
def closed_world(hermes_installed, tmp_path_factory, request):
    """A world that its test opens and starts itself; at the end nobody may have broken a rule."""
    root = tmp_path_factory.mktemp("live")
    dpop = request.config.getoption("--dpop") or getattr(request.module, "DPOP", False)
    live = LiveWorld(root, coverage_environment(root), dpop=dpop)
    try:
        yield live
    finally:
        live.close()
        request.config.stash[RESTARTS].extend((request.module.__name__, why) for why in live.gateway.restarts)
    assert live.server.violations == []
    assert live.faults_of_home() == []


@pytest.fixture(scope="module")
def world(closed_world):
    """A world with a connected gateway."""
    closed_world.open()
    closed_world.start()
    return closed_world


@pytest.fixture
def script(monkeypatch):
    """Have a word of the scripted model call a tool once."""

    def add(name, tool, **arguments):
        word = Word(name, "", _with_calls(Call(tool, arguments)))
        monkeypatch.setitem(local_model_script._BY_NAME, name, word)

    return add
