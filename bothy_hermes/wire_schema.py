"""The protocol as documents: OpenAPI 3.1 of the operations, JSON Schema of frames and events.

Layer: rules. Prints what `wire`, `wire_events` and `wire_operations` say, in an order that never changes,
so that a frozen copy can be compared and anybody can check either side without this package. What a
schema cannot say (an order of calls, what a member means for another one) is in docs/protocol.md.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, final, get_args, get_origin
from uuid import UUID

from .codec import Known, Range, Size, Text, is_closed, members, split_annotation
from .secret import Secret
from .wire import ConsumerName, Message, RunDocument
from .wire_events import (
    ADAPTER_FRAMES,
    PAYLOADS,
    SERVER_FRAMES,
    TOKEN_EVENTS,
    Event,
    EventFrame,
)
from .wire_operations import CREATE_MESSAGE, DOWNLOAD_FILE, LIST_RUNS, OPERATIONS, Operation, TokenKind
from .wire_words import (
    MAX_BODY_BYTES,
    MAX_FILE_BYTES,
    MAX_FRAME_BYTES,
    PROTOCOL_VERSION,
    SUBPROTOCOL,
    ProblemCode,
    RunState,
)

JsonSchema = dict[str, Any]
"""A JSON Schema, or a part of an OpenAPI document that holds some."""

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_UUID: JsonSchema = {
    "type": "string",
    "format": "uuid",
    "pattern": "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$",
}
_TIME: JsonSchema = {
    "type": "string",
    "format": "date-time",
    "pattern": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?Z$",
}
_NULL: JsonSchema = {"type": "null"}

_SCALARS: Mapping[Any, JsonSchema] = {
    str: {"type": "string"},
    Secret: {"type": "string"},
    int: {"type": "integer"},
    bool: {"type": "boolean"},
    UUID: _UUID,
    datetime: _TIME,
    Any: {},
}


# From wire types to schemas -----------------------------------------------------------------------


@final
class Definitions:
    """Schemas of wire types, each made once and referred to by its name.

    Args:
        place: Where the schemas stand in the document, as the start of a reference.
    """

    def __init__(self, place: str) -> None:
        self._place = place
        self._made: dict[str, JsonSchema] = {}

    def add(self, name: str, schema: JsonSchema) -> JsonSchema:
        """Put a schema that no wire type makes; returns the reference to it."""
        self._made[name] = schema
        return {"$ref": f"{self._place}{name}"}

    def schema(self, cls: type) -> JsonSchema:
        """A wire type's schema itself, which is made when it is missing."""
        if cls.__name__ not in self._made:
            self._made[cls.__name__] = self._object(cls)
        found: JsonSchema = self._made[cls.__name__]
        return found

    def of_type(self, cls: type) -> JsonSchema:
        """A reference to a wire type's schema."""
        return self.add(cls.__name__, self.schema(cls))

    def of_annotation(self, annotation: Any) -> JsonSchema:
        """The schema of a member by its annotation."""
        bare, limits, nullable = split_annotation(annotation)
        schema = self._bare(bare, limits)
        return {"anyOf": [schema, _NULL]} if nullable else schema

    def all(self) -> JsonSchema:
        """Every schema by its name, in alphabetical order."""
        return {name: self._made[name] for name in sorted(self._made)}

    def _object(self, cls: type) -> JsonSchema:
        schema: JsonSchema = {"type": "object", "description": _summary(cls), "properties": {}}
        for member in members(cls):
            found = self.of_annotation(member.annotation)
            schema["properties"][member.name] = found["anyOf"][0] if member.omit else found
        schema["required"] = [member.name for member in members(cls) if member.required]
        if is_closed(cls):
            schema["additionalProperties"] = False
        return schema

    def _bare(self, bare: Any, limits: tuple[Any, ...]) -> JsonSchema:
        if get_origin(bare) is tuple:
            return _limited({"type": "array", "items": self.of_annotation(get_args(bare)[0])}, limits)
        if dataclasses.is_dataclass(bare) and isinstance(bare, type):
            return self.of_type(bare)
        if get_origin(bare) is not None:  # an object that is carried as it came
            return {"type": "object"}
        if isinstance(bare, type) and issubclass(bare, StrEnum):
            return _words(bare)
        return _limited(dict(_SCALARS[bare]), limits)


def _summary(cls: type) -> str:
    """The first sentence about a type."""
    return " ".join((cls.__doc__ or "").split()).split(". ", maxsplit=1)[0].removesuffix(".") + "."


def _words(words: Iterable[str]) -> JsonSchema:
    return {"type": "string", "enum": [str(word) for word in words]}


def _limited(schema: JsonSchema, limits: Iterable[Any]) -> JsonSchema:
    for limit in limits:
        schema.update(_LIMITS[type(limit)](limit))
    return schema


def _text_limits(limit: Text) -> JsonSchema:
    found: JsonSchema = {"minLength": limit.min_chars} if limit.min_chars else {}
    if limit.max_chars is not None:
        found["maxLength"] = limit.max_chars
    if limit.max_bytes is not None:  # no keyword counts bytes: so many characters are certainly too many
        found.update({"maxLength": limit.max_bytes, "x-max-bytes": limit.max_bytes})
    if limit.pattern is not None:
        found["pattern"] = f"^(?:{limit.pattern})$"
    return found


def _between(low: str, high: str, limit: Range | Size) -> JsonSchema:
    bounds = {low: limit.minimum or None if isinstance(limit, Size) else limit.minimum, high: limit.maximum}
    return {keyword: bound for keyword, bound in bounds.items() if bound is not None}


_LIMITS: Mapping[type, Callable[[Any], JsonSchema]] = {
    Text: _text_limits,
    Known: lambda limit: {"x-known-values": [str(value) for value in limit.values]},
    Range: lambda limit: _between("minimum", "maximum", limit),
    Size: lambda limit: _between("minItems", "maxItems", limit),
}


# Frames and events --------------------------------------------------------------------------------


def frames_document() -> JsonSchema:
    """The JSON Schema of the gateway's frames, with the events in them.

    `#/$defs/ServerFrame` and `#/$defs/AdapterFrame` are what each side sends; `#/$defs/Event` is one
    event, its payload by its type.
    """
    made = Definitions("#/$defs/")
    server, adapter = _one_of(made, SERVER_FRAMES), _one_of(made, ADAPTER_FRAMES)
    # For each known type its payload; an event of an unknown type is allowed and carries any.
    made.schema(Event)["allOf"] = [_event_rule(made, kind, cls) for kind, cls in PAYLOADS.items()]
    return {
        "$schema": DIALECT,
        "title": f"Frames of the Bothy agent gateway, {SUBPROTOCOL}",
        "x-max-bytes": MAX_FRAME_BYTES,
        "oneOf": [made.add("ServerFrame", server), made.add("AdapterFrame", adapter)],
        "$defs": made.all(),
    }


def _one_of(made: Definitions, frames: Mapping[str, type[Any]]) -> JsonSchema:
    return {"oneOf": [_frame(made, op, cls) for op, cls in frames.items()]}


def _frame(made: Definitions, op: str, cls: type[Any]) -> JsonSchema:
    frame = made.schema(cls)
    frame["properties"] = {"op": {"const": op}, **frame["properties"]}
    frame["required"] = ["op", *frame["required"]]
    if cls is EventFrame:
        frame["properties"]["event"] = made.of_type(Event)
    return made.of_type(cls)


def _event_rule(made: Definitions, kind: str, cls: type[Any]) -> JsonSchema:
    then: JsonSchema = {"properties": {"payload": made.of_type(cls)}}
    if kind in TOKEN_EVENTS:
        then["properties"]["token"] = {"type": "string"}
        then["required"] = ["token"]
    return {"if": {"properties": {"type": {"const": str(kind)}}}, "then": then}


# Operations ---------------------------------------------------------------------------------------

_SCHEMES: Mapping[str, JsonSchema] = {
    "agentToken": {
        "type": "http",
        "scheme": "bearer",
        "description": "The agent token (A), for an agent without a DPoP key.",
    },
    "agentTokenDPoP": {
        "type": "http",
        "scheme": "dpop",
        "description": "The agent token (A), bound to the agent's DPoP key; each request has its own proof.",
    },
    "runToken": {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "JWT",
        "description": "A run token (R), for an agent without a DPoP key.",
    },
    "runTokenDPoP": {
        "type": "http",
        "scheme": "dpop",
        "bearerFormat": "JWT",
        "description": "A run token (R), bound to the agent's DPoP key; each request has its own proof.",
    },
}

_SCHEMES_OF: Mapping[TokenKind, tuple[str, str]] = {
    TokenKind.AGENT: ("agentToken", "agentTokenDPoP"),
    TokenKind.RUN: ("runToken", "runTokenDPoP"),
}

_QUOTED_VERSION: JsonSchema = {"type": "string", "pattern": '^"(0|[1-9][0-9]*)"$'}

_STATES = "|".join(RunState)


def openapi_document() -> JsonSchema:
    """The OpenAPI 3.1 document of every operation."""
    made = Definitions("#/components/schemas/")
    problem = made.add("Problem", _problem(made))
    paths: JsonSchema = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(made, operation, problem)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Bothy agent protocol", "version": str(PROTOCOL_VERSION)},
        "jsonSchemaDialect": DIALECT,
        "servers": [
            {
                "url": "{server_url}",
                "variables": {"server_url": {"default": "https://chat.example.com/api/v1"}},
            }
        ],
        "paths": paths,
        "components": {"securitySchemes": dict(_SCHEMES), "schemas": made.all()},
    }


def _operation(made: Definitions, operation: Operation, problem: JsonSchema) -> JsonSchema:
    found: JsonSchema = {
        "operationId": operation.name,
        "security": _security(operation),
        "parameters": list(_parameters(made, operation)),
        "responses": _responses(made, operation, problem),
    }
    if operation.body is not None:
        content = _json(made.of_type(operation.body))
        found["requestBody"] = {"required": True, "content": content, "x-max-bytes": MAX_BODY_BYTES}
    return found


def _security(operation: Operation) -> list[JsonSchema]:
    kinds = [kind for kind in TokenKind if kind in operation.tokens]
    return [{scheme: []} for kind in kinds for scheme in _SCHEMES_OF[kind]]


def _parameters(made: Definitions, operation: Operation) -> Iterable[JsonSchema]:
    for name in re.findall(r"{(\w+)}", operation.path):
        yield {"name": name, "in": "path", "required": True, "schema": dict(_UUID)}
    for name in operation.query:
        required = operation is not LIST_RUNS
        yield {"name": name, "in": "query", "required": required, "schema": _query(made, name)}
    if operation.if_match:
        yield {"name": "If-Match", "in": "header", "required": True, "schema": dict(_QUOTED_VERSION)}
    if operation.if_none_match:
        yield {"name": "If-None-Match", "in": "header", "required": False, "schema": dict(_QUOTED_VERSION)}
    if operation is DOWNLOAD_FILE:
        yield {"name": "Range", "in": "header", "required": False, "schema": {"type": "string"}}


def _query(made: Definitions, name: str) -> JsonSchema:
    if name == "consumer":
        return made.of_annotation(ConsumerName)
    return {"type": "string", "pattern": f"^(?:{_STATES})(?:,(?:{_STATES}))*$"}


def _responses(made: Definitions, operation: Operation, problem: JsonSchema) -> JsonSchema:
    answers = {operation.status: _answer(made, operation)}
    if operation is CREATE_MESSAGE:
        answers[200] = {**_answer(made, operation), "description": "The message, which was there already."}
    if operation.if_none_match:
        answers[304] = {"description": "The version that the request names is the current one."}
    if operation is DOWNLOAD_FILE:
        answers[206] = {"description": "The range that the request names.", **_bytes()}
    found = {str(status): answers[status] for status in sorted(answers)}
    refused = {"description": "A problem.", "content": {"application/problem+json": {"schema": problem}}}
    return {**found, "4XX": refused, "5XX": {"description": "A failure; its body may be anything."}}


def _answer(made: Definitions, operation: Operation) -> JsonSchema:
    if operation.answer is not None:
        found = {"description": _summary(operation.answer), "content": _json(made.of_type(operation.answer))}
        tag = {"ETag": {"required": True, "schema": dict(_QUOTED_VERSION)}}
        return {**found, "headers": tag} if operation.answer is Message else found
    if operation is DOWNLOAD_FILE:
        return {"description": "The file's bytes.", **_bytes()}
    return {"description": "A WebSocket." if operation.status == 101 else "Done."}  # noqa: PLR2004  # HTTP


def _json(schema: JsonSchema) -> JsonSchema:
    return {"application/json": {"schema": schema}}


def _bytes() -> JsonSchema:
    return {"content": {"application/octet-stream": {}}, "x-max-bytes": MAX_FILE_BYTES}


def _problem(made: Definitions) -> JsonSchema:
    return {
        "type": "object",
        "description": "RFC 9457, with a stable code and what the caller needs to go on.",
        "properties": {
            "type": {"type": "string"},
            "title": {"type": "string"},
            "status": {"type": "integer"},
            "detail": {"type": "string"},
            "code": _words(ProblemCode),
            "document": made.of_type(RunDocument),
            "version": {"type": "integer", "minimum": 0},
        },
        "required": ["code"],
    }
