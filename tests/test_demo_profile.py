"""The throwaway profile on disk."""

import ast
import stat
import subprocess
import sys

import pytest
import yaml

from bothy_hermes.demo_profile import ModelChoice, copy_plugin, make_profile
from bothy_hermes.gateway_process import GatewayPlace
from bothy_hermes.install_plan import Entry

MODEL = ModelChoice("http://127.0.0.1:1/v1", "scripted-model", 131_072)
KEYS = {"hermes_adapter.server_url": "http://127.0.0.1:2/api/v1"}


@pytest.fixture
def place(tmp_path):
    return GatewayPlace(tmp_path / "gateway")


def config_of(place):
    return yaml.safe_load((place.hermes_home / "config.yaml").read_text("utf-8"))


def test_the_profile_uses_the_model_it_is_given_with_a_key_of_its_own(place):
    make_profile(place, MODEL, KEYS)
    model = config_of(place)["model"]
    assert model["provider"] == "custom"
    assert model["base_url"] == "http://127.0.0.1:1/v1"
    assert model["default"] == "scripted-model"
    assert model["api_key"]


def test_the_platform_is_installed_with_its_keys_and_toolsets(place):
    make_profile(place, MODEL, KEYS, toolsets=("todo",))
    config = config_of(place)
    assert config["plugins"]["enabled"] == ["bothy"]
    assert config["platforms"]["bothy"]["extra"].items() >= KEYS.items()
    assert config["platform_toolsets"]["bothy"] == ["todo"]
    assert (place.hermes_home / "plugins" / "bothy" / "plugin.yaml").is_file()


def test_a_failing_model_and_an_unanswered_question_end_soon(place):
    make_profile(place, MODEL, KEYS)
    config = config_of(place)
    assert config["agent"]["api_max_retries"] == 1
    assert config["agent"]["auto_recovery_cycles"] == 0
    assert config["approvals"]["timeout"] == 30


def test_hermes_neither_installs_nor_fetches_nor_borrows_anything(place):
    make_profile(place, MODEL, KEYS)
    config = config_of(place)
    assert config["security"] == {"allow_lazy_installs": False, "tirith_enabled": False}
    assert config["updates"]["check"] is False
    assert config["auth"]["adopt_external_logins"] is False


def test_a_further_entry_replaces_one_of_the_same_path(place):
    make_profile(
        place, MODEL, KEYS, more=[Entry(("approvals", "timeout"), 5), Entry(("approvals", "mode"), "manual")]
    )
    assert config_of(place)["approvals"] == {"timeout": 5, "mode": "manual"}


def test_nobody_else_can_read_the_profile(place):
    make_profile(place, MODEL, KEYS)
    assert stat.S_IMODE(place.root.stat().st_mode) == 0o700
    assert stat.S_IMODE((place.hermes_home / "config.yaml").stat().st_mode) == 0o600


def test_the_plugin_is_the_package_without_the_rooms_of_the_demo(tmp_path):
    copy_plugin(tmp_path / "plugin")
    names = {path.name for path in (tmp_path / "plugin").iterdir()}
    assert {"__init__.py", "__main__.py", "plugin.yaml", "entry.py", "hermes_plugin.py"} <= names
    assert [name for name in names if name.startswith(("local_", "demo", "gateway_process"))] == []
    assert "__pycache__" not in names


def test_no_room_of_the_plugin_imports_one_that_is_left_out_at_load_time(tmp_path):
    """A left-out room may be named inside a function only: that function is one of the demo's."""
    copy_plugin(tmp_path / "plugin")
    there = {path.stem for path in (tmp_path / "plugin").glob("*.py")}
    broken = [
        f"{path.name} -> {node.module}"
        for path in sorted((tmp_path / "plugin").glob("*.py"))
        for node in ast.parse(path.read_text("utf-8")).body
        if isinstance(node, ast.ImportFrom) and node.level and node.module and node.module not in there
    ]
    assert broken == []


def test_the_plugin_directory_runs_as_a_program_and_offers_no_demo(tmp_path):
    copy_plugin(tmp_path / "bothy")
    command = [sys.executable, "-W", "error", str(tmp_path / "bothy")]
    version = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True, timeout=30)
    usage = subprocess.run([*command, "--help"], capture_output=True, text=True, check=True, timeout=30)
    assert version.stdout.startswith("bothy-hermes ")
    assert "protocol" in usage.stdout
    assert "demo" not in usage.stdout


def test_no_file_of_the_plugin_directory_hides_another_module(tmp_path):
    """The directory is where Python would look first, and Hermes or a person may put a file there."""
    copy_plugin(tmp_path / "bothy")
    (tmp_path / "bothy" / "dataclasses.py").write_text("raise ImportError('the wrong module')\n")
    command = [sys.executable, str(tmp_path / "bothy"), "protocol"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 0, done.stderr
