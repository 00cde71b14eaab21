"""Sending a file's bytes, whole or a range of them (RFC 9110, section 14).

Layer: default. One range per request; anything else in the header is ignored, as the RFC has it, unless
nothing of the file is in the range.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

from .local_http import Response, problem
from .wire_words import ProblemCode

CHUNK_BYTES = 65_536
"""Bytes that are read from the disk at once."""

_RANGE = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})")


def file_response(path: Path, size: int, media_type: str, wanted: str | None) -> Response:
    """Answer with a file.

    Args:
        path: Where its bytes lie.
        size: How many they are.
        media_type: What they are.
        wanted: The `Range` header, None without one.
    """
    headers = {"Content-Type": media_type, "Accept-Ranges": "bytes"}
    first, last, status = 0, size - 1, 200
    found = _RANGE.fullmatch(wanted or "")
    if found is not None and _is_range(*found.groups()):
        first, last = _bounds(found[1], found[2], size)
        if not 0 <= first <= last:
            return problem(416, ProblemCode.VALIDATION_FAILED, {"Content-Range": f"bytes */{size}"})
        status = 206
        headers["Content-Range"] = f"bytes {first}-{last}/{size}"
    length = last - first + 1
    headers["Content-Length"] = str(length)
    return Response(status, headers=headers, stream=_chunks(path, first, length))


def _is_range(start: str, end: str) -> bool:
    """Whether the two numbers make a range at all; one that ends before it begins is none."""
    return bool(start or end) and not (start and end and int(end) < int(start))


def _bounds(start: str, end: str, size: int) -> tuple[int, int]:
    if not start:
        return max(0, size - int(end)), size - 1 if int(end) else -1
    return int(start), min(size - 1, int(end)) if end else size - 1


async def _chunks(path: Path, first: int, length: int) -> AsyncIterator[bytes]:
    with path.open("rb") as file:
        file.seek(first)
        while length and (chunk := file.read(min(length, CHUNK_BYTES))):
            length -= len(chunk)
            yield chunk
