"""The small files of a state directory: `status.json`, and `requests/` for a running adapter.

Layer: edges. Every file is written beside its place and renamed into it, so that a reader sees all of
it or the one before, and only the owner can read any. Refuses to follow links. The functions block for
the time of a file operation; a loop calls them in a thread.

A request is a file `requests/<id>.json` that the adapter takes away and answers with
`requests/<id>.answer`. One that nobody took in `REQUEST_LIFE_SECONDS` was given up by whoever asked and
is never done late.
"""

from __future__ import annotations

import contextlib
import os
import stat
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from .clock import Clock
from .codec import JsonObject, dump_json, format_time, load_json, parse_time
from .errors import StateError, WireError

STATUS_NAME = "status.json"
REQUESTS_NAME = "requests"

MAX_FILE_BYTES = 1_048_576
"""Bytes of one of these files; a status with every run and counter takes a few thousand."""

REQUEST_LIFE_SECONDS = 5
"""How long a command waits for a running adapter (an operator at a prompt) before it gives up."""

ANSWER_LIFE_SECONDS = 60
"""How long an answer that nobody takes is kept: far longer than anybody waits for one."""


@dataclass(frozen=True, slots=True)
class StateRequest:
    """A command for the running adapter.

    Attributes:
        id: Under which it is answered.
        body: What is asked.
    """

    id: UUID
    body: JsonObject = field(repr=False)


def private_directory(path: Path) -> None:
    """Make a directory that only its owner can enter, or narrow the one that is there.

    Raises:
        StateError: It cannot be made, is no directory, or belongs to somebody else.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if stat.S_IMODE(path.stat().st_mode) != 0o700:  # noqa: PLR2004  # rwx for the owner alone
            path.chmod(0o700)
    except OSError as error:
        raise StateError(path.name, f"cannot be used as a directory of ours ({_word(error)})") from None


def write_status(directory: Path, status: JsonObject) -> None:
    """Replace `status.json`.

    Raises:
        StateError: The disk does not take it.
    """
    _write(directory / STATUS_NAME, status)


def read_status(directory: Path) -> JsonObject | None:
    """Read `status.json`; None when there is none, or none that can be read."""
    return _read(directory / STATUS_NAME)


def put_request(directory: Path, clock: Clock, body: JsonObject) -> UUID:
    """Ask the running adapter for something.

    Returns:
        The ID under which `take_answer` finds the answer.

    Raises:
        StateError: The disk does not take it.
    """
    request_id = clock.new_id()
    folder = directory / REQUESTS_NAME
    private_directory(folder)
    _write(folder / f"{request_id}.json", {"asked_at": format_time(clock.now()), "body": body})
    return request_id


def take_requests(directory: Path, now: datetime) -> list[StateRequest]:
    """Take away what was asked, oldest first; what was given up, or cannot be read, only goes."""
    folder, found = directory / REQUESTS_NAME, []
    for path in _named(folder, "*.json"):
        content = _read(path)
        try:
            path.unlink()
        except OSError:
            continue  # withdrawn just now, or not to be taken away: it would be done again and again
        asked = _asked(path, content, now)
        if asked is not None:
            found.append(asked)
    for path in _named(folder, "*.answer"):
        _drop_unread(path, now)
    return [request for _, request in sorted(found, key=lambda one: one[0])]


def answer_request(directory: Path, request_id: UUID, answer: JsonObject) -> None:
    """Answer a request that was taken.

    Raises:
        StateError: The disk does not take it.
    """
    _write(directory / REQUESTS_NAME / f"{request_id}.answer", answer)


def take_answer(directory: Path, request_id: UUID) -> JsonObject | None:
    """Take the answer to a request; None as long as there is none."""
    path = directory / REQUESTS_NAME / f"{request_id}.answer"
    answer = _read(path)
    if answer is not None:
        path.unlink(missing_ok=True)
    return answer


def withdraw_request(directory: Path, request_id: UUID) -> bool:
    """Take back a request; False when the adapter has taken it already."""
    try:
        (directory / REQUESTS_NAME / f"{request_id}.json").unlink()
    except OSError:
        return False
    return True


def _named(folder: Path, pattern: str) -> list[Path]:
    try:
        return sorted(folder.glob(pattern))
    except OSError:
        return []


def _drop_unread(path: Path, now: datetime) -> None:
    """Remove an answer whose asker died before it could take it."""
    with contextlib.suppress(OSError):
        if now.timestamp() - path.stat().st_mtime > ANSWER_LIFE_SECONDS:
            path.unlink()


def _asked(path: Path, content: JsonObject | None, now: datetime) -> tuple[datetime, StateRequest] | None:
    try:
        request_id = UUID(path.stem)
        asked_at = parse_time((content or {}).get("asked_at"), "asked_at")
    except ValueError:
        return None
    body = (content or {}).get("body")
    if abs(now - asked_at) > timedelta(seconds=REQUEST_LIFE_SECONDS) or not isinstance(body, dict):
        return None
    return asked_at, StateRequest(request_id, body)


def _write(path: Path, value: Any) -> None:
    beside = path.with_name(f".{path.name}.new")
    try:
        with contextlib.suppress(FileNotFoundError):
            beside.unlink()
        handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(dump_json(value))
        beside.replace(path)
    except OSError as error:
        raise StateError(path.name, f"cannot be written ({_word(error)})") from None


def _read(path: Path) -> JsonObject | None:
    try:
        with open(path, "rb", opener=_open_to_read) as file:  # Path's has no opener
            value = load_json(file.read(MAX_FILE_BYTES))
    except (OSError, WireError):
        return None
    return value if isinstance(value, dict) else None


def _open_to_read(path: str, _flags: int) -> int:
    # Not blocking: a FIFO in the file's place would otherwise wait for a writer forever.
    return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)


def _word(error: OSError) -> str:
    return (error.strerror or "refused by the system").lower()
