"""The plugin entry: what Hermes calls when it loads the plugin.

Layer: doors. Hermes loads plugins on a thread of its own while its main thread still imports the
gateway, and it waits only so long. So this module loads a short fixed list of standard modules and
nothing of Hermes; the rooms are imported when Hermes asks for the adapter. One `register` makes one
link, the only way from a hook to its platform: several copies of the plugin live in one process.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from .defaults import DEFAULT_PLATFORM_KEY, LOGGER_NAME

HOOKS = (
    "pre_llm_call",
    "pre_api_request",
    "post_api_request",
    "api_request_error",
    "post_tool_call",
    "on_session_end",
    "post_approval_response",
)
"""The hooks that all supported versions of Hermes know; plugin.yaml declares the same."""

REQUIRED_PACKAGES = ("websockets", "jwt", "cryptography")
"""What the adapter needs beside the standard library, by import name."""

PLATFORM_HINT = (
    "You are talking in a thread of Bothy, a team chat. Markdown is rendered. "
    "Files cannot be sent; write what matters into the answer."
)
"""Hermes puts it into the system prompt of the platform's turns."""

_log = logging.getLogger(LOGGER_NAME)


class PlatformLink:
    """The one way from what was registered to the platform that Hermes builds later.

    Args:
        platform_key: The platform's name in Hermes.
    """

    def __init__(self, platform_key: str) -> None:
        self.platform_key = platform_key
        self.platform: Any = None
        self._missing = tuple(name for name in REQUIRED_PACKAGES if find_spec(name) is None)

    def build(self, config: Any) -> Any:
        """Build the platform; after a fatal error Hermes asks again, and the new one takes over.

        Args:
            config: Hermes' `PlatformConfig`.
        """
        from .hermes_plugin import ServerPlatform

        self.platform = ServerPlatform(config, self.platform_key)
        return self.platform

    def dependencies_present(self) -> bool:
        """Tell whether the needed packages were there at load time; Hermes asks often."""
        return not self._missing

    def report_missing(self) -> None:
        """Log which packages are missing, once, where the operator looks first."""
        if self._missing:
            _log.error("%s: not started, packages missing: %s", self.platform_key, ", ".join(self._missing))

    def hook(self, name: str) -> Callable[..., None]:
        """Return the callback of one hook; it tells Hermes nothing and never raises.

        Args:
            name: The hook's name.
        """

        def callback(**payload: Any) -> None:
            platform = self.platform
            if platform is not None:
                platform.hear(name, payload)

        callback.__name__ = f"{self.platform_key}_{name}"
        return callback


def register(ctx: Any) -> None:
    """Register the platform and its hooks.

    Args:
        ctx: Hermes' plugin context; the one of its admission check has no `manifest`.
    """
    key = _platform_key(ctx)
    link = PlatformLink(key)
    link.report_missing()
    variable = key.upper().replace("-", "_")
    ctx.register_platform(
        name=key,
        label="Bothy",
        adapter_factory=link.build,
        check_fn=link.dependencies_present,
        is_connected=_is_configured,
        install_hint="pip install websockets PyJWT cryptography, with the Python that runs Hermes",
        allowed_users_env=f"{variable}_ALLOWED_USERS",
        allow_all_env=f"{variable}_ALLOW_ALL_USERS",
        allow_update_command=False,
        max_message_length=0,
        platform_hint=PLATFORM_HINT,
        emoji="💬",
    )
    for name in HOOKS:
        ctx.register_hook(name, link.hook(name))


def _is_configured(config: Any) -> bool:
    """Tell whether the platform block names a server; called on every turn, so nothing is opened."""
    extra = getattr(config, "extra", None)
    if not isinstance(extra, Mapping):
        return False
    nested = extra.get("hermes_adapter")
    return bool(
        extra.get("hermes_adapter.server_url") or (isinstance(nested, Mapping) and nested.get("server_url"))
    )


def _platform_key(ctx: Any) -> str:
    """Return the platform's key: the manifest's name, else the one that plugin.yaml states."""
    name = getattr(getattr(ctx, "manifest", None), "name", None)
    return (
        name if isinstance(name, str) and name else _name_in_manifest(Path(__file__).with_name("plugin.yaml"))
    )


def _name_in_manifest(path: Path) -> str:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return DEFAULT_PLATFORM_KEY
    for line in lines:
        if line.startswith("name:"):
            return line.removeprefix("name:").partition("#")[0].strip().strip("\"'") or DEFAULT_PLATFORM_KEY
    return DEFAULT_PLATFORM_KEY
