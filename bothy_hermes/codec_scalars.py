"""Single JSON values: the limits that a wire type may set, and a reader for each kind of value.

Layer: values. `codec` builds the readers of objects and lists from these; a reader is made once for an
annotation and then only reads. It names the place of a mistake within its value, never the value itself.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from .errors import WireError
from .secret import Secret

REMEMBERED_IDS = 1024
"""IDs that need not be read anew: one event names its run three times, and all name the same agent."""

_TIME = re.compile(r"\d{4}-\d{2}-\d{2}T([01]\d|2[0-3]):\d{2}:\d{2}(\.\d{1,9})?Z", re.ASCII)
_NO_TIME = "expected an RFC 3339 time in UTC with Z"
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")

Reader = Callable[[Any], Any]
"""Reads a JSON value as what an annotation says; a mistake is named by its place within that value."""


@dataclasses.dataclass(frozen=True, slots=True)
class Text:
    """Limits of a string: Unicode code points, bytes of UTF-8, and a pattern of the whole."""

    min_chars: int = 0
    max_chars: int | None = None
    max_bytes: int | None = None
    pattern: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Known:
    """The known values of an open enumeration: others are accepted and judged by a rule."""

    values: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Range:
    """Limits of a whole number, both inclusive."""

    minimum: int | None = None
    maximum: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Size:
    """Limits of a list's length, both inclusive."""

    minimum: int = 0
    maximum: int | None = None


def format_time(moment: datetime) -> str:
    """RFC 3339 in UTC with `Z` and microseconds.

    Raises:
        ValueError: The moment has no time zone.
    """
    if moment.tzinfo is None:
        raise ValueError("a time without a zone")
    # Not strftime, which writes the years before 1000 with fewer digits.
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def parse_time(value: Any, path: str) -> datetime:
    """Read RFC 3339 UTC with `Z`; what is finer than a microsecond is cut.

    Raises:
        WireError: It is not such a time.
    """
    moment = _moment(value)
    if moment is None:
        raise WireError(path, _NO_TIME)
    return moment


# Readers ------------------------------------------------------------------------------------------


def wrong(value: Any, problem: str) -> WireError:
    """The mistake of a value of another kind; null is always called that."""
    return WireError("", "is null" if value is None else problem)


def _text_reader(limits: tuple[Any, ...]) -> Reader:
    checked = tuple(limit for limit in limits if isinstance(limit, Text))

    def read_text(value: Any) -> str:
        if not isinstance(value, str):
            raise wrong(value, "expected a string")
        try:
            size = len(value) if value.isascii() else len(value.encode("utf-8"))
        except UnicodeEncodeError:
            raise WireError("", "holds a lone surrogate") from None
        for limit in checked:
            _check_text(limit, value, size)
        return value

    return read_text


def _check_text(limit: Text, value: str, size: int) -> None:
    if len(value) < limit.min_chars:
        raise WireError("", f"is shorter than {limit.min_chars} character(s)")
    if limit.max_chars is not None and len(value) > limit.max_chars:
        raise WireError("", f"has {len(value)} characters, allowed are {limit.max_chars}")
    if limit.max_bytes is not None and size > limit.max_bytes:
        raise WireError("", f"has {size} bytes, allowed are {limit.max_bytes}")
    if limit.pattern is not None and not re.fullmatch(limit.pattern, value):
        raise WireError("", f"does not match {limit.pattern}")


def _secret_reader(limits: tuple[Any, ...]) -> Reader:
    read_text = _text_reader(limits)
    return lambda value: Secret(read_text(value))


def _int_reader(limits: tuple[Any, ...]) -> Reader:
    def read_int(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise wrong(value, "expected a whole number")
        for limit in limits:
            below = limit.minimum is not None and value < limit.minimum
            above = limit.maximum is not None and value > limit.maximum
            if below or above:
                raise WireError("", f"is not within {limit.minimum} to {limit.maximum}")
        return value

    return read_int


def _bool_reader(_limits: tuple[Any, ...]) -> Reader:
    return functools.partial(expect, bool, "expected true or false")


def _uuid_reader(_limits: tuple[Any, ...]) -> Reader:
    def read_uuid(value: Any) -> UUID:
        try:
            return _uuid(value)
        except (ValueError, TypeError):
            raise wrong(value, "expected a UUID in lower case") from None

    return read_uuid


@functools.lru_cache(maxsize=REMEMBERED_IDS)
def _uuid(text: Any) -> UUID:
    # What is refused is not remembered: it could be of any size, and anybody's words.
    if not _UUID.fullmatch(text):
        raise ValueError("no UUID in lower case")
    return UUID(text)


def _moment_reader(_limits: tuple[Any, ...]) -> Reader:
    def read_moment(value: Any) -> datetime:
        found = _moment(value)
        if found is None:
            raise wrong(value, _NO_TIME)
        return found

    return read_moment


def _moment(value: Any) -> datetime | None:
    if not isinstance(value, str) or not _TIME.fullmatch(value):
        return None
    try:
        return datetime.fromisoformat(value)
    except ValueError:
        return None


def enum_reader(kind: type[StrEnum]) -> Reader:
    """A reader of a closed enumeration."""
    by_value = {str(one): one for one in kind}

    def read_enum(value: Any) -> StrEnum:
        found = by_value.get(expect(str, "expected a string", value))
        if found is None:
            raise WireError("", f"is none of {', '.join(by_value)}")
        return found

    return read_enum


def _any_reader(_limits: tuple[Any, ...]) -> Reader:
    return lambda value: value


SCALARS: Mapping[Any, Callable[[tuple[Any, ...]], Reader]] = {
    Any: _any_reader,
    str: _text_reader,
    Secret: _secret_reader,
    int: _int_reader,
    bool: _bool_reader,
    UUID: _uuid_reader,
    datetime: _moment_reader,
}
"""What makes the reader of each bare type from its limits."""


def expect(kind: type | tuple[type, ...], problem: str, value: Any) -> Any:
    """Return a value of a kind.

    Raises:
        WireError: It is of another kind.
    """
    if not isinstance(value, kind):
        raise wrong(value, problem)
    return value
