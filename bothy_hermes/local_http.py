"""HTTP as the embedded server speaks it: requests and answers as values, heads read and written.

Layer: default. Sans I/O: bytes in, values out. It reads HTTP/1.1 with a `Content-Length` and refuses
everything that could be read in two ways (two lengths, chunked bodies, folded lines, bare line feeds).
Sockets, time limits and body limits are the port's.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from email.utils import format_datetime
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, unquote

from .codec import dump, dump_json, load_json
from .errors import WireError
from .local_rules import Refused
from .wire_words import ProblemCode

MAX_HEAD_BYTES = 65_536
"""Bytes of a request's line and headers: eight tokens and proofs of the largest size."""

JSON_TYPE = "application/json"
PROBLEM_TYPE = "application/problem+json"

_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"  # noqa: S105  # RFC 9110's word for a name
_REQUEST_LINE = re.compile(rf"({_TOKEN}) (/[\x21-\x7e]*) HTTP/1\.([01])")
_HEADER = re.compile(rf"({_TOKEN}):([\t\x20-\x7e\x80-\xff]*)")
_UNPRINTABLE = re.compile(r"[^\x20-\x7e]")
_LENGTH = re.compile(r"[0-9]{1,18}")
_SINGLE = frozenset({"content-length", "host", "content-type", "if-match", "range"})


@dataclass(frozen=True, slots=True)
class Request:
    """One request. The body and everything that may hold a token stays out of `repr`.

    Attributes:
        method: As sent.
        path: Decoded, without the query.
        query: The parameters; of a repeated one the last.
        headers: By lower-case name.
        body: Empty without one.
        target: Path and query as sent.
        keep_alive: Whether the connection may serve another request.
        oversize: Whether the body was over the limit; it was read and dropped.
    """

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes = field(default=b"", repr=False)
    target: str = field(default="", repr=False)
    keep_alive: bool = True
    oversize: bool = False

    @property
    def length(self) -> int:
        """Bytes of the body that the head announces."""
        return int(self.headers.get("content-length", "0"))

    @property
    def upgrade(self) -> bool:
        """Whether the client asks for a WebSocket."""
        return "websocket" in self.headers.get("upgrade", "").lower()

    def json(self) -> Any:
        """Read the body.

        Raises:
            Refused: 413 over the limit, 415 for another media type, 400 for anything but JSON.
        """
        if self.oversize:
            raise Refused(413, ProblemCode.CONTENT_TOO_LONG, "the body is too long", violation=True)
        media = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        if media != JSON_TYPE:
            raise Refused(
                415, ProblemCode.UNSUPPORTED_MEDIA_TYPE, "the body is not announced as JSON", violation=True
            )
        try:
            return load_json(self.body)
        except WireError:
            raise Refused(400, ProblemCode.VALIDATION_FAILED, "the body is no JSON", violation=True) from None


@dataclass(frozen=True, slots=True)
class Response:
    """One answer.

    Attributes:
        status: The HTTP status.
        body: The whole body, when there is no stream.
        headers: Beside those that every answer has.
        stream: Chunks that are sent as they come; the connection is closed at their end.
    """

    status: int
    body: bytes = field(default=b"", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    stream: AsyncIterator[bytes] | None = field(default=None, repr=False)


class BadRequest(Exception):
    """Bytes that are no request this server reads; the connection cannot go on.

    Attributes:
        status: What the client is told.
        why: A fixed sentence.
        cut: Whether they only break off, as a connection does that is lost.
    """

    def __init__(self, status: int, why: str, *, cut: bool = False) -> None:
        super().__init__(status, why)
        self.status = status
        self.why = why
        self.cut = cut

    @property
    def code(self) -> ProblemCode:
        """What the answer is called."""
        too_long = self.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE
        return ProblemCode.CONTENT_TOO_LONG if too_long else ProblemCode.VALIDATION_FAILED


def read_head(head: bytes) -> Request:
    """Read a request's line and headers, up to and with the empty line.

    Raises:
        BadRequest: They are not HTTP/1.1 as this server reads it.
    """
    first, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    line = _REQUEST_LINE.fullmatch(first)
    if line is None:
        raise BadRequest(400, "no request line")
    method, target, minor = line.groups()
    headers = _read_headers(lines)
    if "transfer-encoding" in headers:
        raise BadRequest(411, "a body without a length")
    if not _LENGTH.fullmatch(headers.get("content-length", "0")):
        raise BadRequest(400, "no length")
    path, _, query = target.partition("?")
    asked = headers.get("connection", "").lower()
    return Request(
        method=method,
        path=unquote(path),
        query=dict(parse_qsl(query, keep_blank_values=True)),
        headers=headers,
        target=target,
        keep_alive="close" not in asked and (minor == "1" or "keep-alive" in asked),
    )


def _read_headers(lines: list[str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in lines:
        found = _HEADER.fullmatch(line)
        if found is None:
            raise BadRequest(400, "no header line")
        # The blanks around a value are not left to the pattern, which could then read them in many ways.
        name, value = found[1].lower(), found[2].strip(" \t")
        if name in headers and name in _SINGLE:
            raise BadRequest(400, "a header that may be there once is there twice")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def write_head(response: Response, *, now: datetime, keep_alive: bool) -> bytes:
    """Write an answer's status line and headers."""
    headers = {"Date": format_datetime(now, usegmt=True), **response.headers}
    if response.stream is None and response.status not in (204, 304):
        headers.setdefault("Content-Length", str(len(response.body)))
    headers["Connection"] = "keep-alive" if keep_alive else "close"
    lines = [f"HTTP/1.1 {response.status} {_phrase(response.status)}"]
    lines += [f"{name}: {_UNPRINTABLE.sub('?', value)}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def json_response(status: int, value: Any, headers: Mapping[str, str] | None = None) -> Response:
    """Answer with JSON, made from wire values or JSON values."""
    body = dump_json(dump(value)).encode()
    return Response(status, body, {"Content-Type": JSON_TYPE, **(headers or {})})


def problem(
    error: Refused | int, code: ProblemCode | None = None, headers: Mapping[str, str] | None = None
) -> Response:
    """Answer with a problem (RFC 9457): a refusal, or a status with or without a code."""
    status = error.status if isinstance(error, Refused) else error
    known = error.code if isinstance(error, Refused) else code
    extra = dump(error.extra) if isinstance(error, Refused) else {}
    body = {"type": "about:blank", "title": _phrase(status), "status": status, **extra}
    if known is not None:
        body["code"] = str(known)
    if isinstance(error, Refused):
        body["detail"] = error.why
    return Response(status, dump_json(body).encode(), {"Content-Type": PROBLEM_TYPE, **(headers or {})})


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unknown"
