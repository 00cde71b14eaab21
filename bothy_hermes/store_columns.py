"""Columns to values and back: what every room of statements needs.

Layer: edges. IDs are stored as their text, a missing one as NULL.
"""

from __future__ import annotations

import functools
import sqlite3
from collections.abc import Callable
from typing import Any, TypeVar
from uuid import UUID

from .errors import StateError
from .store_file import DAMAGED
from .store_schema import FILE_NAME

T = TypeVar("T")


def read_one(
    connection: sqlite3.Connection, query: str, values: tuple[Any, ...], read: Callable[[Any], T]
) -> T | None:
    """The first row of a query, read as a value; None without one."""
    row = connection.execute(f"{query} LIMIT 1", values).fetchone()
    return None if row is None else read(row)


def of_rows(read: Callable[[Any], T]) -> Callable[[Any], T]:
    """Make a reader of rows say that the file is damaged where it finds what nobody wrote.

    SQLite sees no fault in a changed letter. The reader raises `StateError` then, without the value.
    """

    @functools.wraps(read)
    def reading(row: Any) -> T:
        try:
            return read(row)
        except (ValueError, TypeError, AttributeError):
            raise StateError(FILE_NAME, DAMAGED) from None

    return reading


def to_id(value: str | None) -> UUID | None:
    """The ID in a column, None for NULL."""
    return None if value is None else UUID(value)


def to_text(value: UUID | None) -> str | None:
    """What a column holds for an ID or for none."""
    return None if value is None else str(value)
