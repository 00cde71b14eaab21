"""JSON Patch (RFC 6902): applying operations to a JSON value, all or none.

Layer: values. Pure: the given document is never changed. JSON Pointers (RFC 6901) are read here; patches
are made in `live_box`.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .codec import JsonObject
from .errors import BothyError

MAX_COPIED_VALUES = 100_000
"""Values that the copies of one patch may add up to: fifty run documents of the largest size. A list that is
copied into itself doubles, and a hundred operations would fill any memory."""

_INDEX = re.compile(r"0|[1-9][0-9]{0,9}")
_BAD_ESCAPE = re.compile(r"~(?![01])")


class PatchError(BothyError, ValueError):
    """A patch that cannot be applied.

    Attributes:
        index: Which operation, counted from 0.
        problem: A fixed sentence; never what the patch or the document holds.
    """

    def __init__(self, index: int, problem: str) -> None:
        super().__init__(index, problem)
        self.index = index
        self.problem = problem

    def __str__(self) -> str:
        return f"patch operation {self.index}: {self.problem}"


class _Unfit(Exception):
    """One operation does not fit; `apply_patch` adds which."""


def apply_patch(document: Any, operations: Sequence[JsonObject]) -> Any:
    """Apply operations in order and return the new document.

    Args:
        document: A JSON value; it stays as it is.
        operations: RFC 6902 operations; unknown members are ignored.

    Raises:
        PatchError: An operation is malformed, does not fit the document, or is a `test` that fails; or
            the patch copies too much.
    """
    result = copy.deepcopy(document)
    left = MAX_COPIED_VALUES
    for index, operation in enumerate(operations):
        try:
            left -= _copied_values(result, operation, left)
            result = _apply(result, operation)
        except _Unfit as error:
            raise PatchError(index, str(error)) from None
        except RecursionError:
            raise PatchError(index, "is nested too deeply") from None
    return result


def _apply(document: Any, operation: Any) -> Any:
    if not isinstance(operation, Mapping):
        raise _Unfit("is no object")
    name = operation.get("op")
    apply = _OPERATIONS.get(name) if isinstance(name, str) else None
    if apply is None:
        raise _Unfit("has no known op")
    return apply(document, operation, _pointer(operation, "path"))


def _copied_values(document: Any, operation: Any, most: int) -> int:
    """How many values an operation copies within the document."""
    if not isinstance(operation, Mapping) or operation.get("op") != "copy":
        return 0
    found = 0
    waiting = [_find(document, _pointer(operation, "from"))]
    while waiting:
        value = waiting.pop()
        found += 1
        if found > most:
            raise _Unfit("copies too much")
        if isinstance(value, dict | list):
            waiting.extend(value.values() if isinstance(value, dict) else value)
    return found


def _add(document: Any, operation: JsonObject, path: list[str]) -> Any:
    return _put(document, path, copy.deepcopy(_value(operation)))


def _remove(document: Any, _operation: JsonObject, path: list[str]) -> Any:
    return _take(document, path)[0]


def _replace(document: Any, operation: JsonObject, path: list[str]) -> Any:
    value = copy.deepcopy(_value(operation))
    if not path:
        return value
    parent, key = _find_parent(document, path)
    _child(parent, key)
    parent[_key_in(parent, key)] = value
    return document


def _move(document: Any, operation: JsonObject, path: list[str]) -> Any:
    source = _pointer(operation, "from")
    if len(source) < len(path) and path[: len(source)] == source:
        raise _Unfit("moves a value into itself")
    rest, value = _take(document, source)
    return _put(rest, path, value)


def _copy(document: Any, operation: JsonObject, path: list[str]) -> Any:
    return _put(document, path, copy.deepcopy(_find(document, _pointer(operation, "from"))))


def _test(document: Any, operation: JsonObject, path: list[str]) -> Any:
    if not _equal(_find(document, path), _value(operation)):
        raise _Unfit("tests for another value")
    return document


_OPERATIONS: Mapping[str, Callable[[Any, JsonObject, list[str]], Any]] = {
    "add": _add,
    "remove": _remove,
    "replace": _replace,
    "move": _move,
    "copy": _copy,
    "test": _test,
}


def _value(operation: JsonObject) -> Any:
    if "value" not in operation:
        raise _Unfit("has no value")
    return operation["value"]


def _pointer(operation: JsonObject, member: str) -> list[str]:
    text = operation.get(member)
    if not isinstance(text, str) or (text and not text.startswith("/")) or _BAD_ESCAPE.search(text):
        raise _Unfit(f"has no usable {member}")
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _find(document: Any, path: Sequence[str]) -> Any:
    for key in path:
        document = _child(document, key)
    return document


def _find_parent(document: Any, path: Sequence[str]) -> tuple[Any, str]:
    return _find(document, path[:-1]), path[-1]


def _child(parent: Any, key: str) -> Any:
    found = _key_in(parent, key)
    if isinstance(parent, dict):
        if found not in parent:
            raise _Unfit("points to a member that is not there")
    elif found >= len(parent):
        raise _Unfit("points behind the end of a list")
    return parent[found]


def _key_in(parent: Any, key: str) -> Any:
    if isinstance(parent, dict):
        return key
    if not isinstance(parent, list):
        raise _Unfit("points into a value that has no members")
    if not _INDEX.fullmatch(key):
        raise _Unfit("points to a list with something that is no index")
    return int(key)


def _put(document: Any, path: Sequence[str], value: Any) -> Any:
    if not path:
        return value
    parent, key = _find_parent(document, path)
    if isinstance(parent, list):
        index = len(parent) if key == "-" else _key_in(parent, key)
        if index > len(parent):
            raise _Unfit("points behind the end of a list")
        parent.insert(index, value)
    else:
        parent[_key_in(parent, key)] = value
    return document


def _take(document: Any, path: Sequence[str]) -> tuple[Any, Any]:
    if not path:
        return None, document
    parent, key = _find_parent(document, path)
    value = _child(parent, key)
    del parent[_key_in(parent, key)]
    return document, value


def _equal(left: Any, right: Any) -> bool:
    """Compare as JSON does: true is not 1, 1 is 1.0, the order of members does not count."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_equal(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_equal, left, right))
    return bool(left == right)
