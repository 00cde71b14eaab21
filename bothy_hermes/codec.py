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
import types
import typing
from collections.abc import Callable, Hashable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, NoReturn, TypeVar, dataclass_transform, get_args, get_origin
from uuid import UUID

from .codec_scalars import (
    SCALARS,
    Known,
    Range,
    Reader,
    Size,
    Text,
    enum_reader,
    expect,
    format_time,
    parse_time,
    wrong,
)
from .errors import WireError
from .secret import Secret

__all__ = [
    "JsonObject",
    "Known",
    "Member",
    "Range",
    "Size",
    "Text",
    "content",
    "dump",
    "dump_json",
    "format_time",
    "is_closed",
    "load_json",
    "members",
    "omittable",
    "parse",
    "parse_time",
    "split_annotation",
    "wire_type",
]

T = TypeVar("T")

JsonObject = Mapping[str, Any]
"""A JSON object that is carried as it came."""

_OBJECT = (dict, Mapping)  # what JSON is read as comes first: that is found out without asking the class


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
            omit=_may_be_left_out(field),
            read=_member_reader(hints[field.name], omit=_may_be_left_out(field)),
        )
        for field in dataclasses.fields(typing.cast("type[Any]", cls))
    )


def _may_be_left_out(field: dataclasses.Field[Any]) -> bool:
    return bool(field.metadata.get("omit"))


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
        return _DECODER.decode(text)
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
        text = _ENCODER.encode(value)
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
    if not isinstance(value, _OBJECT):
        raise WireError(path, "expected an object")
    read = _object_reader(typing.cast("Hashable", cls))
    try:
        made: T = read(value)
    except WireError as error:
        raise (_inside(path, error) if path else error) from None
    return made


def dump(value: Any) -> Any:
    """Turn a wire value into JSON values (objects, lists, strings, numbers, null)."""
    return _writer(typing.cast("Hashable", type(value)))(value)


# Reading: one reader for each annotation, made once; places are put together only for an error -------


def _inside(place: str, error: WireError) -> WireError:
    """The same mistake, seen from around the value."""
    joint = "." if error.path and not error.path.startswith("[") else ""
    return WireError(f"{place}{joint}{error.path}", error.problem)


@functools.cache
def _object_reader(cls: Hashable) -> Reader:
    steps = tuple((member.name, member.read, member.required) for member in members(cls))
    make = typing.cast("type[Any]", cls)
    known = frozenset(name for name, _, _ in steps) if is_closed(make) else None

    def read(value: Any) -> Any:
        if not isinstance(value, _OBJECT):
            raise wrong(value, "expected an object")
        if known is not None and not known.issuperset(value):
            raise WireError("", f"has {len(set(value) - known)} unknown member(s)")
        found = {}
        name = ""
        try:
            for name, read_member, required in steps:
                if name in value:
                    found[name] = read_member(value[name])
                elif required:
                    _refuse_missing()
        except WireError as error:
            raise _inside(name, error) from None
        return make(**found)

    return read


def _refuse_missing() -> NoReturn:
    raise WireError("", "is missing")


def _member_reader(annotation: Any, *, omit: bool) -> Reader:
    read = _reader(annotation)
    if not omit:
        return read

    def read_unless_null(value: Any) -> Any:
        if value is None:
            raise WireError("", "is never null, leave it out")
        return read(value)

    return read_unless_null


def _reader(annotation: Any) -> Reader:
    bare, limits, nullable = split_annotation(annotation)
    read = _bare_reader(bare, limits)
    if not nullable:
        return read
    return lambda value: None if value is None else read(value)


def _bare_reader(bare: Any, limits: tuple[Any, ...]) -> Reader:
    if get_origin(bare) is tuple:
        return _list_reader(_reader(get_args(bare)[0]), limits)
    if dataclasses.is_dataclass(bare):
        return _object_reader(typing.cast("Hashable", bare))
    if get_origin(bare) is not None:  # Mapping[str, Any]: an object carried as it came
        return functools.partial(expect, _OBJECT, "expected an object")
    if bare in SCALARS:
        return SCALARS[bare](limits)
    return enum_reader(bare)


def _list_reader(read: Reader, limits: tuple[Any, ...]) -> Reader:
    def read_list(value: Any) -> tuple[Any, ...]:
        size = len(expect(list, "expected a list", value))
        for limit in limits:
            if size < limit.minimum or (limit.maximum is not None and size > limit.maximum):
                raise WireError("", f"has {size} items, allowed are {limit.minimum} to {limit.maximum}")
        index = 0
        found = []
        try:
            for index, one in enumerate(value):  # noqa: B007  # the place of the mistake
                found.append(read(one))
        except WireError as error:
            raise _inside(f"[{index}]", error) from None
        return tuple(found)

    return read_list


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


_DECODER = json.JSONDecoder(
    object_pairs_hook=_unique_members, parse_float=_finite, parse_constant=_refuse_constant
)
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
