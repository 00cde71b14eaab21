"""The plugin entry: light, quick, and the same as what plugin.yaml declares."""

import ast
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from bothy_hermes import defaults, entry

PACKAGE = Path(entry.__file__).parent

ALLOWED = {
    "__future__",
    "collections",
    "collections.abc",
    "importlib",
    "importlib.util",
    "logging",
    "pathlib",
    "typing",
}
"""Every module that the entry may name in an import; what these load themselves is Python's own."""

PROBE = """
import json, sys
import __future__, collections.abc, importlib.util, logging, pathlib, typing
before = set(sys.modules)
import bothy_hermes.entry
print(json.dumps(sorted(set(sys.modules) - before)))
"""


class Context:
    """Hermes' plugin context; the one of its admission check has no manifest."""

    def __init__(self, name=None):
        self.platforms = []
        self.hooks = {}
        if name is not None:
            self.manifest = SimpleNamespace(name=name)

    def register_platform(self, **entry_fields):
        self.platforms.append(entry_fields)

    def register_hook(self, name, callback):
        self.hooks[name] = callback


def registered(name=None):
    """The context after registration."""
    ctx = Context(name)
    entry.register(ctx)
    return ctx


def declared():
    """The hooks and keys of plugin.yaml, read without a YAML library."""
    lines = (PACKAGE / "plugin.yaml").read_text("utf-8").splitlines()
    start = lines.index("provides_hooks:") + 1
    hooks = []
    for line in lines[start:]:
        if not line.startswith("  - "):
            break
        hooks.append(line.removeprefix("  - "))
    keys = dict(line.split(": ", 1) for line in lines if ": " in line and not line.startswith(("#", " ")))
    return hooks, keys


def test_decision_13_loading_the_entry_loads_a_short_fixed_list():
    """Hermes loads it while its main thread imports the gateway: no asyncio, no library, no room of ours."""
    loaded = subprocess.run(
        [sys.executable, "-c", PROBE], check=True, capture_output=True, text=True, cwd=PACKAGE.parent
    )
    assert set(json.loads(loaded.stdout)) == {
        "bothy_hermes",
        "bothy_hermes.defaults",
        "bothy_hermes.entry",
    }


def test_decision_13_the_entry_names_no_other_module():
    """Also inside of its functions, but for the room that is loaded when Hermes builds the adapter."""
    named = set()
    for node in ast.walk(ast.parse((PACKAGE / "entry.py").read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom):
            named.add(f".{node.module}" if node.level else node.module)
        elif isinstance(node, ast.Import):
            named.update(alias.name for alias in node.names)
    assert named - ALLOWED == {".defaults", ".hermes_plugin"}


def test_decision_13_registration_imports_no_room():
    """The platform's module is imported when Hermes asks for the adapter, not before."""
    script = (
        "import sys, types, bothy_hermes\n"
        "ctx = types.SimpleNamespace(register_platform=lambda **_: None, register_hook=lambda *_: None)\n"
        "bothy_hermes.register(ctx)\n"
        "rooms = [name for name in sys.modules if name.startswith('bothy_hermes.')]\n"
        "assert sorted(rooms) == ['bothy_hermes.defaults', 'bothy_hermes.entry'], rooms\n"
        "assert 'asyncio' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, cwd=PACKAGE.parent)


def test_declared_hooks_are_the_registered_ones():
    """Hermes' doctor makes a difference an error."""
    hooks, _ = declared()
    assert hooks == list(entry.HOOKS)
    assert list(registered().hooks) == hooks


def test_the_manifest_tells_the_packages_own_version():
    """One version, in two places that cannot import each other."""
    _, keys = declared()
    assert keys["version"] == defaults.VERSION
    assert keys["kind"] == "platform"


@pytest.mark.parametrize("name", ["bothy", "bothy-two"])
def test_the_platform_key_is_the_manifests_name(name):
    """The operator can install the plugin under another name."""
    ctx = registered(name)
    assert ctx.platforms[0]["name"] == name
    assert ctx.platforms[0]["allowed_users_env"] == f"{name.upper().replace('-', '_')}_ALLOWED_USERS"


@pytest.mark.parametrize("ctx", [Context(), Context("")])
def test_without_a_manifest_the_key_is_that_of_plugin_yaml(ctx):
    """Hermes' admission check registers without one."""
    entry.register(ctx)
    assert ctx.platforms[0]["name"] == "bothy"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("name: other\n", "other"),
        ("# name: no\nlabel: x\nname: 'quoted'  # here\n", "quoted"),
        ('name: "bothy-2"\n', "bothy-2"),
        ("label: x\n", "bothy"),
        ("name:\n", "bothy"),
        (None, "bothy"),
    ],
)
def test_the_name_is_read_without_a_yaml_library(tmp_path, text, name):
    """One plain line; a file that is not there leaves the default."""
    path = tmp_path / "plugin.yaml"
    if text is not None:
        path.write_text(text, "utf-8")
    assert entry._name_in_manifest(path) == name


@pytest.mark.parametrize(
    ("extra", "configured"),
    [
        ({"hermes_adapter.server_url": "https://x"}, True),
        ({"hermes_adapter": {"server_url": "https://x"}}, True),
        ({"hermes_adapter.server_url": ""}, False),
        ({"hermes_adapter": "x"}, False),
        ({}, False),
        (None, False),
    ],
)
def test_whether_it_is_configured_is_told_from_the_block_alone(extra, configured):
    """Hermes asks on every turn."""
    is_connected = registered().platforms[0]["is_connected"]
    assert is_connected(SimpleNamespace(extra=extra)) is configured


def test_hooks_before_the_platform_exists_are_nothing():
    """Hermes fires them for its command line as well."""
    for callback in registered().hooks.values():
        assert callback(platform="bothy", session_id="s") is None


def test_a_hook_reaches_the_platform_that_its_own_registration_built(monkeypatch):
    """Two copies in one process have two links and nothing in common."""
    heard = []

    class Platform:
        def __init__(self, config, key):
            self.key = key

        def hear(self, name, payload):
            heard.append((self.key, name, payload))

    module = SimpleNamespace(ServerPlatform=Platform)
    monkeypatch.setitem(sys.modules, "bothy_hermes.hermes_plugin", module)
    one, two = registered("one"), registered("two")
    for ctx in (one, two):
        ctx.platforms[0]["adapter_factory"](SimpleNamespace())
    one.hooks["pre_llm_call"](session_id="s")
    assert heard == [("one", "pre_llm_call", {"session_id": "s"})]
    one.platforms[0]["adapter_factory"](SimpleNamespace())
    one.hooks["on_session_end"]()
    assert [key for key, _, _ in heard] == ["one", "one"]


def test_missing_packages_are_named_and_keep_the_platform_from_starting(monkeypatch, caplog):
    """An updated Hermes environment may have lost them."""
    monkeypatch.setattr(entry, "REQUIRED_PACKAGES", ("json", "no_such_package_of_ours"))
    ctx = registered()
    assert ctx.platforms[0]["check_fn"]() is False
    assert "no_such_package_of_ours" in caplog.text
    assert "json" not in caplog.text


def test_with_its_packages_the_platform_starts(caplog):
    """And nothing is said."""
    assert registered().platforms[0]["check_fn"]() is True
    assert caplog.text == ""


def test_every_argument_of_the_registration_is_one_that_hermes_knows():
    """An unknown one raises there; the oldest supported version has these."""
    known = {
        "name",
        "label",
        "adapter_factory",
        "check_fn",
        "validate_config",
        "required_env",
        "install_hint",
        "is_connected",
        "allowed_users_env",
        "allow_all_env",
        "max_message_length",
        "pii_safe",
        "emoji",
        "allow_update_command",
        "platform_hint",
    }
    assert set(registered().platforms[0]) <= known
    assert registered().platforms[0]["allow_update_command"] is False


def test_a_half_imported_gateway_does_not_keep_the_plugin_from_loading():
    """Hermes' main thread may be in the middle of its imports; whoever touches them then breaks."""
    script = (
        "import sys, types\n"
        "class Half(types.ModuleType):\n"
        "    def __getattr__(self, name):\n"
        "        raise ImportError(f'{self.__name__} is being imported')\n"
        "for name in ('gateway', 'gateway.run', 'gateway.config', 'gateway.platforms.base', 'hermes_cli'):\n"
        "    sys.modules[name] = Half(name)\n"
        "import bothy_hermes\n"
        "told = []\n"
        "ctx = types.SimpleNamespace(register_platform=lambda **one: told.append(one['name']),\n"
        "                            register_hook=lambda name, _: told.append(name))\n"
        "bothy_hermes.register(ctx)\n"
        "from bothy_hermes.entry import HOOKS\n"
        "assert told == ['bothy', *HOOKS], told\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, cwd=PACKAGE.parent)


def test_all_rooms_are_loaded_well_within_the_time_of_a_start():
    """Hermes drops a plugin that takes ten seconds to load, and a platform that takes long to connect.

    Measured is the processor's time, which other programs do not lengthen.
    """
    script = "import time, bothy_hermes.bothy_loop, bothy_hermes.hermes_turn; print(time.process_time())"
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, cwd=PACKAGE.parent
    )
    assert float(done.stdout) < 1.5
