"""What the real Hermes resolves for each thing that a profile can hold."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import bothy_hermes
from bothy_hermes.clock import system_clock
from bothy_hermes.demo_profile import TOOLSETS
from bothy_hermes.tool_class import TOOLSET_CLASSES
from tests.live.kit import in_019

ROOT = Path(bothy_hermes.__file__).parents[1]
KEY, LOGIN = "sk-ant-api03-" + "b" * 40, "sk-ant-oat01-" + "a" * 40
OPENROUTER = "sk-or-v1-" + "c" * 30

ANTHROPIC = {"model": {"provider": "anthropic", "default": "claude-sonnet-4-5"}}
SERVER = {"provider": "custom", "default": "m", "base_url": "http://127.0.0.1:9/v1"}
POOL_LOGIN = {
    "id": "a1",
    "label": "x",
    "auth_type": "oauth",
    "priority": 5,
    "source": "manual:hermes_pkce",
    "access_token": LOGIN,
    "refresh_token": "r",
}

PROBE = """
import json, sys
from bothy_hermes.actual_mode import determine
from bothy_hermes.hermes_config import load_toolsets
from bothy_hermes.hermes_credential import UNKNOWN_CREDENTIAL, resolve_credential
try:
    found = resolve_credential()
    credential, problem = found.credential, found.problem
except Exception as error:
    credential, problem = UNKNOWN_CREDENTIAL, type(error).__name__
actual = determine(credential)
print(json.dumps({"mode": actual.mode, "key_type": actual.key_type, "provider": actual.provider,
                  "problem": problem, "toolsets": sorted(load_toolsets("bothy"))}))
"""


class Profile:
    """A throwaway profile; `ask` has its Hermes resolve."""

    def __init__(self, root):
        self.root = root
        self.home, self.user = root / "home", root / "user"
        for path in (self.home, self.user, root / "managed"):
            path.mkdir()
        self.login_file = self.user / ".claude" / ".credentials.json"

    def login(self, *, expired=False):
        """Put another tool's login file in the user's home."""
        now = system_clock().now().timestamp()
        until = int((now + (-60 if expired else 3600)) * 1000)
        record = {"accessToken": LOGIN, "refreshToken": "r", "expiresAt": until, "scopes": ["user:inference"]}
        self.login_file.parent.mkdir()
        self.login_file.write_text(json.dumps({"claudeAiOauth": record}), "utf-8")

    def ask(self, config, variables=()):
        (self.home / "config.yaml").write_text(json.dumps(config), "utf-8")
        (self.home / ".env").write_text("".join(f"{line}\n" for line in variables), "utf-8")
        environment = {
            "PATH": "/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "HOME": str(self.user),
            "HERMES_HOME": str(self.home),
            "HERMES_MANAGED_DIR": str(self.root / "managed"),
            "HERMES_DISABLE_LAZY_INSTALLS": "1",
            "PYTHONPATH": str(ROOT),
        }
        done = subprocess.run(
            [sys.executable, "-c", PROBE],
            env=environment,
            cwd=self.root,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        assert KEY not in done.stdout + done.stderr
        assert LOGIN not in done.stdout + done.stderr
        return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture
def profile(hermes_installed, tmp_path):
    """A profile without anything in it."""
    return Profile(tmp_path)


def with_(**more):
    """Anthropic's profile with more keys."""
    return ANTHROPIC | more


WITHOUT_LOGINS = with_(auth={"adopt_external_logins": False})


@pytest.mark.parametrize(
    ("config", "variables", "login", "mode"),
    [
        (ANTHROPIC, [f"ANTHROPIC_API_KEY={KEY}"], False, "organization"),
        (ANTHROPIC, [f"ANTHROPIC_API_KEY={KEY}"], True, "organization"),
        (
            {"model": {"provider": "openrouter", "default": "m"}},
            [f"OPENROUTER_API_KEY={OPENROUTER}"],
            False,
            "organization",
        ),
        ({"model": SERVER | {"api_key": "some-key-1234"}}, [], False, "organization"),
        (ANTHROPIC, [f"ANTHROPIC_TOKEN={LOGIN}"], False, "personal"),
        pytest.param(
            ANTHROPIC, [f"CLAUDE_CODE_OAUTH_TOKEN={LOGIN}"], False, "personal", marks=pytest.mark.slow
        ),
        (ANTHROPIC, [f"ANTHROPIC_API_KEY={LOGIN}"], False, "personal"),
        (ANTHROPIC, [f"ANTHROPIC_API_KEY={KEY}", f"ANTHROPIC_TOKEN={LOGIN}"], False, "personal"),
        (ANTHROPIC, [], True, "personal"),
        (WITHOUT_LOGINS, [], True, None),
        (ANTHROPIC, [], False, None),
        pytest.param(ANTHROPIC, ["ANTHROPIC_API_KEY="], False, None, marks=pytest.mark.slow),
        pytest.param(ANTHROPIC, ["ANTHROPIC_API_KEY=your_api_key_here"], False, None, marks=pytest.mark.slow),
        ({"model": SERVER}, [], False, None),
        pytest.param(
            {"model": {"provider": "bedrock", "default": "m"}},
            ["AWS_ACCESS_KEY_ID=abcdefgh", "AWS_SECRET_ACCESS_KEY=abcdefgh"],
            False,
            None,
            marks=pytest.mark.slow,
        ),
        pytest.param(
            {"model": {"provider": "copilot", "default": "m"}},
            ["GITHUB_TOKEN=gho_abcdefgh"],
            False,
            None,
            marks=pytest.mark.slow,
        ),
        pytest.param(
            {"model": {"provider": "copilot-acp", "default": "m"}}, [], False, None, marks=pytest.mark.slow
        ),
        pytest.param(
            {"model": {"provider": "nous", "default": "m"}}, [], False, None, marks=pytest.mark.slow
        ),
        pytest.param(
            {
                "model": {"provider": "mine", "default": "m"},
                "providers": {"mine": {"base_url": "http://127.0.0.1:9/v1", "key_cmd": "echo abcdefgh"}},
            },
            [],
            False,
            None,
            marks=pytest.mark.slow,
        ),
        pytest.param(
            with_(fallback_model={"provider": "openrouter", "model": "m"}),
            [f"ANTHROPIC_API_KEY={KEY}"],
            False,
            None,
            marks=pytest.mark.slow,
        ),
        (
            with_(fallback_providers=[{"provider": "openrouter", "model": "m"}]),
            [f"ANTHROPIC_API_KEY={KEY}", f"OPENROUTER_API_KEY={OPENROUTER}"],
            False,
            "organization",
        ),
        (
            with_(fallback_providers=[{"provider": "openrouter", "model": "m"}]),
            [f"ANTHROPIC_TOKEN={LOGIN}", f"OPENROUTER_API_KEY={OPENROUTER}"],
            False,
            None,
        ),
        (
            with_(auxiliary={"title_generation": {"provider": "nous"}}),
            [f"ANTHROPIC_API_KEY={KEY}"],
            False,
            None,
        ),
    ],
)
def test_decision_4_what_a_profile_holds_proves_a_mode_or_none(profile, config, variables, login, mode):
    """The whole table, as the installed Hermes resolves it."""
    if login:
        profile.login()
    if config is WITHOUT_LOGINS and in_019():
        mode = "personal"  # it has no such key, and takes the login
    assert profile.ask(config, variables)["mode"] == mode


def test_a_login_that_is_old_is_judged_without_being_renewed(profile):
    """Renewing would write to another tool's file, and ask its server."""
    profile.login(expired=True)
    before = profile.login_file.read_bytes()
    assert profile.ask(ANTHROPIC)["mode"] == "personal"
    assert profile.login_file.read_bytes() == before
    assert list(profile.login_file.parent.iterdir()) == [profile.login_file]


def test_a_pool_with_both_kinds_is_unknown_and_named(profile):
    """Hermes changes to the other one when the first is refused, in the middle of a turn."""
    pool = {"version": 1, "credential_pool": {"anthropic": [POOL_LOGIN]}}
    (profile.home / "auth.json").write_text(json.dumps(pool), "utf-8")
    answer = profile.ask(ANTHROPIC, [f"ANTHROPIC_API_KEY={KEY}"])
    assert answer["mode"] is None
    assert answer["problem"].startswith("credential_pool.anthropic:")


@pytest.mark.parametrize(
    ("config", "there", "gone"),
    [
        ({"platform_toolsets": {"bothy": ["clarify", "todo"]}}, {"clarify", "todo"}, {"terminal", "tracker"}),
        pytest.param(
            {"platform_toolsets": {"bothy": []}}, set(), {"clarify", "terminal"}, marks=pytest.mark.slow
        ),
        pytest.param({}, {"hermes-bothy"}, {"tracker"}, marks=pytest.mark.slow),
        (
            {
                "platform_toolsets": {"bothy": ["clarify"]},
                "mcp_servers": {"tracker": {"url": "http://127.0.0.1:9/mcp"}},
            },
            {"clarify", "tracker"},
            {"terminal"},
        ),
        (
            {
                "platform_toolsets": {"bothy": ["clarify", "no_mcp"]},
                "mcp_servers": {"tracker": {"url": "http://127.0.0.1:9/mcp"}},
            },
            {"clarify"},
            {"tracker", "no_mcp"},
        ),
        pytest.param(
            {
                "platform_toolsets": {"bothy": ["clarify", "terminal"]},
                "agent": {"disabled_toolsets": ["terminal"]},
            },
            {"clarify"},
            {"terminal"},
            marks=pytest.mark.slow,
        ),
    ],
)
def test_decision_5_the_toolsets_are_those_that_hermes_enables(profile, config, there, gone):
    """The operator's list, MCP servers unless they are shut out, less what is disabled everywhere."""
    toolsets = set(profile.ask(ANTHROPIC | config, [f"ANTHROPIC_API_KEY={KEY}"])["toolsets"])
    assert there <= toolsets
    assert not gone & toolsets


def test_the_demo_names_toolsets_that_exist():
    """Every toolset that the demo's profile enables is one of the table."""
    assert set(TOOLSETS) - {"no_mcp"} <= set(TOOLSET_CLASSES)
