"""Columns to values and back: what every room of statements needs.

Layer: edges. IDs are stored as their text, a missing one as NULL.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any, TypeVar
from uuid import UUID

T = TypeVar("T")


def read_one(
    connection: sqlite3.Connection, query: str, values: tuple[Any, ...], read: Callable[[Any], T]
) -> T | None:
    """The first row of a query, read as a value; None without one."""
    row = connection.execute(f"{query} LIMIT 1", values).fetchone()
    return None if row is None else read(row)


def to_id(value: str | None) -> UUID | None:
    """The ID in a column, None for NULL."""
    return None if value is None else UUID(value)


def to_text(value: UUID | None) -> str | None:
    """What a column holds for an ID or for none."""
    return None if value is None else str(value)
