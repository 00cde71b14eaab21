"""The plugin entry."""

from typing import Any


def register(ctx: Any) -> None:
    """Register."""
