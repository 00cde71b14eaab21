"""The rooms import downwards only, and each dangerous import has its room."""

import ast
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "bothy_hermes"

LAYERS = {
    "words": ("defaults", "errors", "clock", "secret"),
    "values": (
        "codec",
        "codec_scalars",
        "wire_words",
        "wire",
        "wire_events",
        "wire_operations",
        "json_patch",
        "jose",
        "tokens",
        "dpop",
        "config_keys",
        "config",
        "backoff",
        "problems",
        "reconnect",
        "server_clock",
        "runtime",
        "turn_facts",
        "store_values",
    ),
    "rules": (
        "graphemes",
        "plain_text",
        "redaction",
        "actual_mode",
        "tool_class",
        "intake",
        "context",
        "turn",
        "box_diff",
        "live_box",
        "context_render",
        "context_files",
        "cards",
        "card_text",
        "message_split",
        "heartbeat",
        "run_stages",
        "install_plan",
        "wire_schema",
    ),
    "edges": (
        "state_files",
        "store",
        "store_cards",
        "store_columns",
        "store_file",
        "store_health",
        "store_lock",
        "store_rows",
        "store_schema",
        "store_writer",
        "bothy_credentials",
        "bothy_connections",
        "bothy_exchange",
        "bothy_http",
        "bothy_call",
        "bothy_api",
        "bothy_socket",
        "bothy_gateway",
        "bothy_keys",
    ),
    "flows": (
        "services",
        "proof",
        "run_tokens",
        "run_calls",
        "run_outbox",
        "run_sessions",
        "run_followups",
        "run_beside",
        "open_cards",
        "run_cards",
        "run_wait",
        "run_patches",
        "run_context",
        "run_turn",
        "turn_view",
        "runs",
        "handler",
        "inquiry",
        "admission",
        "recovery",
        "pulse",
        "status_desk",
        "bothy_loop",
    ),
    "hermes": (
        "hermes_plugin",
        "hermes_runtime",
        "hermes_turn",
        "hermes_hooks",
        "hermes_contract",
        "hermes_control",
        "hermes_config",
        "hermes_credential",
        "hermes_lock",
        "hermes_platform",
        "hermes_prompts",
        "hermes_agents",
        "hermes_asks",
        "hermes_files",
        "hermes_gate",
        "hermes_held",
        "hermes_questions",
        "hermes_route",
        "hermes_sessions",
        "hermes_switch",
        "hermes_threads",
        "hermes_versions",
    ),
    "default": (
        "local_port",
        "local_rules",
        "local_store",
        "local_people",
        "local_people_wire",
        "local_people_views",
        "local_feed",
        "local_web",
        "local_model",
        "local_model_script",
        "local_model_words",
        "local_tokens",
        "local_options",
        "local_changes",
        "local_records",
        "local_state",
        "local_http",
        "local_core",
        "local_cards",
        "local_runs",
        "local_messages",
        "local_threads",
        "local_context",
        "local_events",
        "local_instance",
        "local_admin",
        "local_nonces",
        "local_payloads",
        "local_presence",
        "local_setup",
        "local_auth",
        "local_agents",
        "local_files",
        "local_call",
        "local_calls",
        "local_reads",
        "local_writes",
        "local_gateway",
        "local_sockets",
        "local_server",
    ),
    "doors": (
        "entry",
        "gateway_process",
        "demo_profile",
        "demo_world",
        "demo_acts",
        "demo_person",
        "demo_show",
        "demo",
        "__main__",
        "__init__",
    ),
}

MAY_IMPORT = {
    "words": {"words"},
    "values": {"words", "values"},
    "rules": {"words", "values", "rules"},
    "edges": {"words", "values", "edges"},
    "flows": {"words", "values", "rules", "edges", "flows"},
    "hermes": {"words", "values", "rules", "edges", "flows", "hermes"},
    "default": {"words", "values", "default"},
    "doors": set(LAYERS),
}

LAYER_OF = {module: layer for layer, modules in LAYERS.items() for module in modules}

# Who may import what from outside. A room that is not named may not.
GUARDED = {
    "http": {
        "bothy_connections",
        "bothy_exchange",
        "local_model",
        "demo_person",
    },
    "websockets": {"bothy_socket", "local_gateway"},
    "socket": {"bothy_exchange", "demo_person"},
    "ssl": {"bothy_connections", "bothy_exchange", "bothy_socket"},
    "sqlite3": {
        "store",
        "store_cards",
        "store_columns",
        "store_file",
        "store_rows",
        "store_schema",
        "store_writer",
        "local_store",
    },
    "fcntl": {"store_lock", "local_store"},
    "jwt": {"jose"},
    "cryptography": {"jose", "local_tokens"},
    "subprocess": {"gateway_process"},
    "random": {"clock"},
    "time": {"clock"},
    "gateway": {"hermes_plugin", "hermes_asks", "hermes_files", "hermes_hooks", "hermes_lock"},
    "hermes_cli": {"hermes_config", "hermes_credential", "hermes_versions"},
    "hermes_constants": {"hermes_hooks"},
    "tools": {"hermes_control", "hermes_prompts"},
    "agent": {"hermes_versions"},
}

THIRD_PARTY = {"websockets", "jwt", "cryptography"}
HERMES = {"gateway", "hermes_cli", "hermes_constants", "tools", "agent"}
MODULES = sorted(path.stem for path in PACKAGE.glob("*.py"))


def imports_of(module):
    """Every import of a module: own modules, and top-level packages from outside."""
    own, outside = set(), set()
    for node in ast.walk(ast.parse((PACKAGE / f"{module}.py").read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            own.update([node.module] if node.module else [alias.name for alias in node.names])
        elif isinstance(node, ast.ImportFrom) and node.module == "http":
            # The package itself holds names of numbers only; client and server are its submodules.
            outside.update("http" for alias in node.names if alias.name not in {"HTTPStatus", "HTTPMethod"})
        elif isinstance(node, ast.ImportFrom):
            outside.add(str(node.module).split(".")[0])
        elif isinstance(node, ast.Import):
            outside.update(alias.name.split(".")[0] for alias in node.names)
    return own, outside


def test_every_module_has_a_layer():
    assert [module for module in MODULES if module not in LAYER_OF] == []


def test_no_table_names_a_module_that_does_not_exist():
    """A leave that nobody uses would be taken by whoever comes by that name."""
    named = set(LAYER_OF) | {module for modules in GUARDED.values() for module in modules}
    assert sorted(named - set(MODULES)) == []


@pytest.mark.parametrize("package", sorted(GUARDED))
def test_no_room_has_a_leave_that_it_does_not_use(package):
    """What a room may import from outside, it does import, or names where it imports by name."""
    for module in GUARDED[package]:
        source = (PACKAGE / f"{module}.py").read_text("utf-8")
        assert package in imports_of(module)[1] or f'"{package}.' in source, module


@pytest.mark.parametrize("module", MODULES)
def test_decision_1_imports_point_downwards(module):
    own, _ = imports_of(module)
    layer = LAYER_OF[module]
    broken = [
        f"{module} ({layer}) -> {other} ({LAYER_OF[other]})"
        for other in sorted(own)
        if LAYER_OF[other] not in MAY_IMPORT[layer]
    ]
    assert broken == []


@pytest.mark.parametrize("module", MODULES)
def test_decision_1_outside_imports_have_their_room(module):
    _, outside = imports_of(module)
    broken = [f"{module} -> {name}" for name in sorted(outside) if module not in GUARDED.get(name, {module})]
    assert broken == []


@pytest.mark.parametrize("module", MODULES)
def test_nothing_else_is_imported_from_outside(module):
    _, outside = imports_of(module)
    known = set(sys.stdlib_module_names) | THIRD_PARTY | HERMES
    assert sorted(outside - known) == []


@pytest.mark.parametrize("module", MODULES)
def test_own_imports_are_relative(module):
    _, outside = imports_of(module)
    assert "bothy_hermes" not in outside


@pytest.mark.parametrize("module", MODULES)
def test_decision_2_no_module_reads_the_process_environment(module):
    """It is nobody's configuration; what a library would read of it is that library's test."""
    tree = ast.walk(ast.parse((PACKAGE / f"{module}.py").read_text("utf-8")))
    names = {getattr(node, "attr", getattr(node, "id", None)) for node in tree}
    assert names.isdisjoint({"environ", "environb", "getenv", "getenvb"})
