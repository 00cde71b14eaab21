"""A throwaway Hermes profile with the platform installed in it.

Layer: doors. It writes a new configuration from `install_plan` and copies this package into the
profile's plugins, as an installation does. The profile spends nobody's money and asks nobody: its
model is the one it is given, and what Hermes would fetch or install by itself is switched off.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from .defaults import CONTROL_SENDER, DEFAULT_PLATFORM_KEY
from .gateway_process import GatewayPlace
from .install_plan import Entry, InstallRequest, Value, new_config, platform_entries

TOOLSETS = ("terminal", "todo", "clarify", "delegation")
"""What the demo's agent can do."""

LEFT_OUT = ("local_", "demo", "gateway_process")
"""Beginnings of the names of modules that an installed plugin has no use for."""


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """The model that the profile uses, a chat-completions server with a key of its own.

    Attributes:
        base_url: The server's base URL.
        name: The model's name there.
        context_tokens: How much it reads; told, so that Hermes need not find out.
    """

    base_url: str
    name: str
    context_tokens: int


def make_profile(
    place: GatewayPlace,
    model: ModelChoice,
    adapter_keys: Mapping[str, Value],
    *,
    toolsets: tuple[str, ...] = TOOLSETS,
    more: Iterable[Entry] = (),
) -> None:
    """Write the profile's configuration and copy the plugin.

    Args:
        place: Where; its directories are made.
        model: The model.
        adapter_keys: The adapter's keys by their full names.
        toolsets: What the agent can use.
        more: Further keys of the configuration; one that is there already is replaced.
    """
    place.make()
    request = InstallRequest(DEFAULT_PLATFORM_KEY, adapter_keys, toolsets, CONTROL_SENDER)
    entries = {one.path: one for one in (*model_entries(model), *platform_entries(request))}
    entries |= {one.path: one for one in (*_quiet_entries(place.workspace), *more)}
    config = place.hermes_home / "config.yaml"
    config.write_text(new_config(entries.values()), encoding="utf-8")
    config.chmod(0o600)
    copy_plugin(place.hermes_home / "plugins" / DEFAULT_PLATFORM_KEY)


def model_entries(model: ModelChoice) -> tuple[Entry, ...]:
    """The profile's model. It has a key, which proves whose money a turn spends: the organization's."""
    return (
        Entry(("model", "provider"), "custom"),
        Entry(("model", "base_url"), model.base_url),
        Entry(("model", "default"), model.name),
        Entry(("model", "api_key"), "no-secret-the-script-takes-any-key"),
        Entry(("model", "context_length"), model.context_tokens),
    )


def _quiet_entries(workspace: Path) -> tuple[Entry, ...]:
    """What keeps a throwaway profile short of breath, cheap and off the network."""
    return (
        Entry(("agent", "api_max_retries"), 1, "A failing model is shown at once, not after minutes."),
        Entry(("agent", "auto_recovery_cycles"), 0),
        Entry(
            ("agent", "gateway_startup_warmup_timeout"),
            0,
            "No preparation of all the tools that this agent does not have.",
        ),
        Entry(("approvals", "timeout"), 30, "Nobody may be there to answer (seconds)."),
        Entry(("terminal", "cwd"), str(workspace)),
        Entry(("security", "allow_lazy_installs"), False, "Hermes installs nothing while it runs."),
        Entry(("security", "tirith_enabled"), False, "Hermes would download a scanner for commands."),
        Entry(("updates", "check"), False, "Nothing is asked of the internet."),
        Entry(("model_catalog", "enabled"), False),
        Entry(("auth", "adopt_external_logins"), False, "No other tool's login is used."),
    )


def copy_plugin(target: Path) -> None:
    """Copy this package as an installed plugin: everything but the rooms that a plugin does not use."""
    source = Path(__file__).parent
    target.mkdir(mode=0o700, parents=True)
    for path in sorted(source.iterdir()):
        if path.is_file() and not path.name.startswith(LEFT_OUT):
            shutil.copyfile(path, target / path.name)
