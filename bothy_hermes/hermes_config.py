"""What Hermes' own configuration says: toolsets, busy mode, the stream's cursor.

Layer: hermes. Blocking calls into Hermes; the runtime asks them on a thread, in a copy of the context
that `connect` had, because the profile's home is a context variable. Credentials are the subject of
`hermes_credential`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import hermes_versions
from .runtime import BusyMode

_DEFAULT_CURSOR = " \u2589"
"""What Hermes puts behind an unfinished text unless the operator chose another sign."""


def load_toolsets(platform_key: str) -> frozenset[str]:
    """Ask Hermes which toolsets and MCP servers a turn of the platform can use."""
    from hermes_cli.tools_config import _get_platform_tools

    config = hermes_versions.read_config()
    return frozenset(_get_platform_tools(config, platform_key, include_default_mcp_servers=True))


def stream_cursor() -> str:
    """Return what Hermes puts behind an unfinished text."""
    streaming = hermes_versions.read_config().get("streaming")
    cursor = streaming.get("cursor", _DEFAULT_CURSOR) if isinstance(streaming, Mapping) else _DEFAULT_CURSOR
    return cursor if isinstance(cursor, str) else _DEFAULT_CURSOR


def busy_mode(runner: Any, source: Any) -> BusyMode | None:
    """Return what Hermes does with a text during a turn of this profile, None for an unknown value."""
    per_profile = getattr(runner, "_effective_busy_input_mode", None)
    value = per_profile(source) if callable(per_profile) else getattr(runner, "_busy_input_mode", None)
    try:
        return BusyMode(str(value))
    except ValueError:
        return None
