"""Error answers of the server, read as far as they can be read (RFC 9457).

Layer: values. The HTTP status decides; the body is asked for a code and for the two members that this
client uses. A member of the wrong type counts as missing, a body that is no JSON as empty: a proxy's
error page is an answer as well. Nothing of a body enters an error's text but a well-formed code.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from http import HTTPStatus
from typing import Any

from .backoff import parse_retry_after
from .codec import load_json
from .errors import ProblemAnswer, RunEnded, VersionConflict, WireError
from .wire_words import ProblemCode

_CODE = re.compile(r"[a-z][a-z0-9_]{0,63}")
_CHALLENGE = re.compile(r"\bDPoP\s", re.IGNORECASE)
_CHALLENGE_ERROR = re.compile(r'\berror="([a-z][a-z0-9_]{0,63})"')

_SPECIAL: Mapping[tuple[int, str], type[ProblemAnswer]] = {
    (HTTPStatus.CONFLICT, ProblemCode.RUN_ENDED): RunEnded,
    (HTTPStatus.CONFLICT, ProblemCode.VERSION_CONFLICT): VersionConflict,
}
"""Problems that a caller tells apart by their class."""


def read_problem(
    operation: str, status: int, headers: Mapping[str, str], body: bytes, now: datetime
) -> ProblemAnswer:
    """Make an error of an error answer.

    Args:
        operation: The operation's name.
        status: The HTTP status.
        headers: The answer's headers, names in lower case.
        body: The answer's body, whatever it is.
        now: The server's time, for a `Retry-After` that is a date.

    Returns:
        The error, to be raised or judged: `RunEnded`, `VersionConflict` (only with its document), or
        a plain `ProblemAnswer`.
    """
    members = _members(body)
    code = _code(members) or _challenge(status, headers)
    extra = _extra(members)
    kind = _SPECIAL.get((status, code or ""), ProblemAnswer)
    if kind is VersionConflict and "document" not in extra:
        kind = ProblemAnswer
    retry_after = parse_retry_after(headers.get("retry-after"), now)
    return kind(operation, status, code, retry_after=retry_after, extra=extra)


def _members(body: bytes) -> Mapping[str, Any]:
    try:
        value = load_json(body)
    except WireError:
        return {}
    return value if isinstance(value, Mapping) else {}


def _code(members: Mapping[str, Any]) -> str | None:
    code = members.get("code")
    return code if isinstance(code, str) and _CODE.fullmatch(code) else None


def _challenge(status: int, headers: Mapping[str, str]) -> str | None:
    """The error of a DPoP challenge, for a 401 whose body says nothing."""
    if status != HTTPStatus.UNAUTHORIZED:
        return None
    challenge = headers.get("www-authenticate", "")
    start = _CHALLENGE.search(challenge)
    found = _CHALLENGE_ERROR.search(challenge, start.end()) if start else None
    return found[1] if found else None


def _extra(members: Mapping[str, Any]) -> dict[str, Any]:
    extra: dict[str, Any] = {}
    if isinstance(members.get("document"), Mapping):
        extra["document"] = members["document"]
    version = members.get("version")
    if isinstance(version, int) and not isinstance(version, bool):
        extra["version"] = version
    return extra
