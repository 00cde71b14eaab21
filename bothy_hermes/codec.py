"""From JSON to frozen values and back, driven by the fields of the values themselves.

Layer: values. A wire type is a class decorated with `wire_type`: its annotations say what each
member is, `Annotated` limits say how large, and a default says that the member may be missing.
`parse` reads strictly and names the place of the first mistake, never the value; `dump` writes;
`wire_schema` reads the same fields to print JSON Schemas, so the three cannot disagree.

Presence of a member:

    no default                 always there, `null` only when the type has `None`
    a default                  may be missing, or `null` when the type has `None`
    `omittable()`              may be missing, never `null`; not written when `None`
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import re
import types
import typing
from collections.abc import Callable, Hashable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, NoReturn, TypeVar, dataclass_transform, get_args, get_origin
from uuid import UUID

from .errors import WireError
from .secret import Secret

T = TypeVar("T")

JsonObject = Mapping[str, Any]
"""A JSON object that is carried as it came."""

_TIME = re.compile(r"\d{4}-\d{2}-\d{2}T([01]\d|2[0-3]):\d{2}:\d{2}(\.\d{1,9})?Z", re.ASCII)
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


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


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(dataclasses.field,))
def wire_type(*, closed: bool = False) -> Callable[[type[T]], type[T]]:
    """Make a class a wire type: frozen, slotted, built by keyword.

    Args:
        closed: Whether unknown members are refused. Others ignore them: a newer server may send
            more than this version knows.
    """

    def decorate(cls: type[T]) -> type[T]:
        made = dataclasses.dataclass(frozen=True, slots=True, kw_only=True)(cls)
        made.__wire_closed__ = closed  # type: ignore[attr-defined]  # read by is_closed alone
        return made

    return decorate


def omittable() -> Any:
    """A field that may be missing and is never `null` (`None` here means missing)."""
    return dataclasses.field(default=None, metadata={"omit": True})


def content(**options: Any) -> Any:
    """A field that holds what people or Hermes wrote: it stays out of `repr`."""
    return dataclasses.field(repr=False, **options)


def is_closed(cls: type) -> bool:
    """Whether a wire type refuses unknown members."""
    return bool(getattr(cls, "__wire_closed__", False))


Reader = Callable[[Any, str], Any]
"""Reads a JSON value as what an annotation says; the text is the value's place, for the error."""


@dataclasses.dataclass(frozen=True, slots=True)
class Member:
    """One member of a wire type, resolved: what a parser or a schema needs to know of it."""

    name: str
    annotation: Any
    required: bool
    omit: bool
    read: Reader = dataclasses.field(repr=False)


@functools.cache
def members(cls: Hashable) -> tuple[Member, ...]:
    """The members of a wire type in the order of their definition."""
    hints = typing.get_type_hints(cls, include_extras=True)
    return tuple(
        Member(
            name=field.name,
            annotation=hints[field.name],
            required=field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING,
            omit=bool(field.metadata.get("omit")),
            read=_reader(hints[field.name]),
        )
        for field in dataclasses.fields(typing.cast("type[Any]", cls))
    )


def split_annotation(annotation: Any) -> tuple[Any, tuple[Any, ...], bool]:
    """Take an annotation apart: the bare type, its limits, whether `None` is allowed."""
    limits: tuple[Any, ...] = ()
    if get_origin(annotation) is typing.Annotated:
        annotation, *found = get_args(annotation)
        limits = tuple(found)
    if get_origin(annotation) in (typing.Union, types.UnionType):
        inner = [one for one in get_args(annotation) if one is not type(None)]
        bare, more, _ = split_annotation(inner[0])
        return bare, limits + more, True
    return annotation, limits, False


def load_json(text: str | bytes) -> Any:
    """Read JSON that must be well formed: UTF-8, no member twice, no number that is none.

    Raises:
        WireError: The text is not such JSON; the error does not repeat any of it.
    """
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8")  # json itself would guess UTF-16 and UTF-32 as well
        return json.loads(
            text,
            object_pairs_hook=_unique_members,
            parse_float=_finite,
            parse_constant=_refuse_constant,
        )
    except (ValueError, RecursionError) as error:
        if isinstance(error, WireError):
            raise
        raise WireError("", "expected JSON in UTF-8") from None


def dump_json(value: Any) -> str:
    """Write a JSON value compactly; lone surrogates and NaN are refused.

    Raises:
        WireError: The value cannot be written as UTF-8 JSON.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        text.encode("utf-8")
    except (ValueError, TypeError, RecursionError):
        raise WireError("", "expected a value that JSON in UTF-8 can hold") from None
    return text


def parse(cls: type[T], value: Any, path: str = "") -> T:
    """Read a JSON object as a wire type.

    Args:
        cls: The wire type.
        value: What `load_json` returned.
        path: Where the value stands in a larger one, for the error.

    Raises:
        WireError: Naming the first member that is missing, unknown (closed types) or unusable.
    """
    if not isinstance(value, Mapping):
        raise WireError(path, "expected an object")
    known = members(typing.cast("Hashable", cls))
    if is_closed(cls):
        unknown = set(value) - {member.name for member in known}
        if unknown:
            raise WireError(path, f"has {len(unknown)} unknown member(s)")
    found: dict[str, Any] = {}
    for member in known:
        where = f"{path}.{member.name}" if path else member.name
        if member.name not in value:
            if member.required:
                raise WireError(where, "is missing")
            continue
        raw = value[member.name]
        if raw is None and member.omit:
            raise WireError(where, "is never null, leave it out")
        found[member.name] = member.read(raw, where)
    return cls(**found)


def dump(value: Any) -> Any:
    """Turn a wire value into JSON values (objects, lists, strings, numbers, null)."""
    return _writer(typing.cast("Hashable", type(value)))(value)


def format_time(moment: datetime) -> str:
    """RFC 3339 in UTC with `Z` and microseconds.

    Raises:
        ValueError: The moment has no time zone.
    """
    if moment.tzinfo is None:
        raise ValueError("a time without a zone")
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse_time(value: Any, path: str) -> datetime:
    """Read RFC 3339 UTC with `Z`.

    Raises:
        WireError: It is not such a time.
    """
    if not isinstance(value, str) or not _TIME.fullmatch(value):
        raise WireError(path, "expected an RFC 3339 time in UTC with Z")
    whole, _, fraction = value[:-1].partition(".")
    try:
        moment = datetime.fromisoformat(whole).replace(tzinfo=UTC)
    except ValueError:
        raise WireError(path, "expected an RFC 3339 time in UTC with Z") from None
    return moment.replace(microsecond=int(fraction.ljust(6, "0")[:6])) if fraction else moment


# Reading: annotations are taken apart once, not for each value -------------------------------------


def _reader(annotation: Any) -> Reader:
    bare, limits, nullable = split_annotation(annotation)
    read = _bare_reader(bare, limits)
    if bare is Any:
        return read

    def read_or_null(value: Any, path: str) -> Any:
        if value is not None:
            return read(value, path)
        if nullable:
            return None
        raise WireError(path, "is null")

    return read_or_null


def _bare_reader(bare: Any, limits: tuple[Any, ...]) -> Reader:
    if get_origin(bare) is tuple:
        return functools.partial(_parse_list, _reader(get_args(bare)[0]), limits)
    if dataclasses.is_dataclass(bare):
        return functools.partial(parse, typing.cast("type[Any]", bare))
    if get_origin(bare) is not None:  # Mapping[str, Any]: an object carried as it came
        return functools.partial(_expect, Mapping, "an object")
    if bare in _SCALARS:
        return functools.partial(_SCALARS[bare], limits)
    return functools.partial(_parse_enum, bare)


def _parse_list(read: Reader, limits: tuple[Any, ...], value: Any, path: str) -> tuple[Any, ...]:
    _expect(list, "a list", value, path)
    for limit in limits:
        if len(value) < limit.minimum or (limit.maximum is not None and len(value) > limit.maximum):
            raise WireError(path, f"has {len(value)} items, allowed are {limit.minimum} to {limit.maximum}")
    return tuple(read(one, f"{path}[{index}]") for index, one in enumerate(value))


def _parse_text(limits: tuple[Any, ...], value: Any, path: str) -> str:
    _expect(str, "a string", value, path)
    try:
        size = len(value) if value.isascii() else len(value.encode("utf-8"))
    except UnicodeEncodeError:
        raise WireError(path, "holds a lone surrogate") from None
    for limit in limits:
        if isinstance(limit, Text):
            _check_text(limit, value, size, path)
    return str(value)


def _check_text(limit: Text, value: str, size: int, path: str) -> None:
    if len(value) < limit.min_chars:
        raise WireError(path, f"is shorter than {limit.min_chars} character(s)")
    if limit.max_chars is not None and len(value) > limit.max_chars:
        raise WireError(path, f"has {len(value)} characters, allowed are {limit.max_chars}")
    if limit.max_bytes is not None and size > limit.max_bytes:
        raise WireError(path, f"has {size} bytes, allowed are {limit.max_bytes}")
    if limit.pattern is not None and not re.fullmatch(limit.pattern, value):
        raise WireError(path, f"does not match {limit.pattern}")


def _parse_secret(limits: tuple[Any, ...], value: Any, path: str) -> Secret:
    return Secret(_parse_text(limits, value, path))


def _parse_int(limits: tuple[Any, ...], value: Any, path: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise WireError(path, "expected a whole number")
    for limit in limits:
        below = limit.minimum is not None and value < limit.minimum
        above = limit.maximum is not None and value > limit.maximum
        if below or above:
            raise WireError(path, f"is not within {limit.minimum} to {limit.maximum}")
    return value


def _parse_bool(_limits: tuple[Any, ...], value: Any, path: str) -> bool:
    return bool(_expect(bool, "true or false", value, path))


def _parse_uuid(_limits: tuple[Any, ...], value: Any, path: str) -> UUID:
    if not isinstance(value, str) or not _UUID.fullmatch(value):
        raise WireError(path, "expected a UUID in lower case")
    return UUID(value)


def _parse_moment(_limits: tuple[Any, ...], value: Any, path: str) -> datetime:
    return parse_time(value, path)


def _parse_any(_limits: tuple[Any, ...], value: Any, _path: str) -> Any:
    return value


def _parse_enum(bare: Any, value: Any, path: str) -> Any:
    _expect(str, "a string", value, path)
    try:
        return bare(value)
    except ValueError:
        raise WireError(path, f"is none of {', '.join(bare)}") from None


_SCALARS: Mapping[Any, Callable[[tuple[Any, ...], Any, str], Any]] = {
    str: _parse_text,
    Secret: _parse_secret,
    int: _parse_int,
    bool: _parse_bool,
    UUID: _parse_uuid,
    datetime: _parse_moment,
    Any: _parse_any,
}


def _expect(kind: type | tuple[type, ...], words: str, value: Any, path: str) -> Any:
    if not isinstance(value, kind):
        raise WireError(path, f"expected {words}")
    return value


# Writing: how a type is written is found out once --------------------------------------------------

_WRITERS: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (Mapping, lambda value: {key: dump(one) for key, one in value.items()}),
    (tuple, lambda value: [dump(one) for one in value]),
    (list, lambda value: [dump(one) for one in value]),
    (Secret, Secret.reveal),
    (UUID, str),
    (StrEnum, str),
    (datetime, format_time),
)


@functools.cache
def _writer(kind: Hashable) -> Callable[[Any], Any]:
    if dataclasses.is_dataclass(kind):
        return functools.partial(_write_members, members(kind))
    made = typing.cast("type[Any]", kind)
    return next((write for known, write in _WRITERS if issubclass(made, known)), _as_it_is)


def _write_members(known: tuple[Member, ...], value: Any) -> dict[str, Any]:
    found = ((member, getattr(value, member.name)) for member in known)
    return {member.name: dump(one) for member, one in found if not (member.omit and one is None)}


def _as_it_is(value: Any) -> Any:
    return value


def _unique_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise WireError("", "an object names a member twice")
    return found


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse_constant(text)


def _refuse_constant(_name: str) -> NoReturn:
    raise WireError("", "expected JSON in UTF-8")
