"""bothy_hermes: work with a Hermes agent inside Bothy, a team chat.

This directory is at once the Python package and a Hermes plugin directory: Hermes imports it
under a name of its own and calls `register`. It imports nothing but the standard library here;
the rooms are loaded when they are used. docs/architecture.md has the map of the rooms.
"""

from __future__ import annotations

from typing import Any

from . import defaults

__version__ = defaults.VERSION

__all__ = ["__version__", "register"]


def register(ctx: Any) -> None:
    """Register the platform and its hooks with Hermes (Hermes calls this when it loads the plugin).

    Args:
        ctx: Hermes' plugin context.
    """
    from .entry import register as register_plugin

    register_plugin(ctx)
