"""Values that are nearly right: what a careless or a hostile other side sends.

`mutant(draw, value)` changes a copy of a JSON value in a few places, `garbled(draw, data)` breaks the bytes
of one; `draw` is a `random.Random`, so that the same seed makes the same ones.
"""

import copy

WORD = "Hunter-2"
"""Stands in many of them: a log or a refusal that repeats what was sent shows it. No code looks like it."""

ODD = [
    None,
    True,
    0,
    -1,
    1.5,
    -0.0,
    1e308,
    2**53,
    2**63,
    10**400,
    "",
    WORD,
    WORD * 40,
    "é" * 5000,
    "\x00",
    "\ud800",
    "\r\nX: y",
    "00000000-0000-0000-0000-000000000000",
    "2026-02-31T12:00:00Z",
    "9999-12-31T23:59:59.999999999Z",
    "0001-01-01T00:00:00Z",
    "completed",
    "queued",
    [],
    {},
    [None],
    {WORD: WORD},
]


def places(value, path=()):
    """The paths to a value and to everything in it."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inner:
        yield from places(one, (*path, key))


def at(value, path):
    """What stands at a path."""
    for key in path:
        value = value[key]
    return value


def mutant(draw, value):
    """A copy with one to three changes: odd values, members too many or too few, values in other places."""
    value = copy.deepcopy(value)
    for _ in range(draw.choice([1, 1, 1, 2, 3])):
        path = draw.choice(list(places(value)))
        if path:
            _change(draw, at(value, path[:-1]), path[-1], at(value, draw.choice(list(places(value)))))
        elif draw.random() < 0.2 or not isinstance(value, dict):
            return copy.deepcopy(draw.choice(ODD))
        else:
            value[draw.choice(["id", "version", WORD, "", "\x00"])] = copy.deepcopy(draw.choice(ODD))
    return value


def _change(draw, parent, key, other):
    how = draw.randrange(6)
    if how == 0:
        del parent[key]
    elif how == 1 and isinstance(parent, dict):
        parent[f"{key}_"] = parent.pop(key)
    elif how == 2 and isinstance(parent, list):
        parent.extend(copy.deepcopy(parent))
    elif how == 3:
        parent[key] = copy.deepcopy(other)
    else:
        parent[key] = copy.deepcopy(draw.choice(ODD))


def garbled(draw, data):
    """The bytes of a JSON object, broken."""
    place = draw.randrange(len(data))
    return draw.choice(
        [
            data[:place],
            data[:place] + bytes([draw.randrange(256)]) + data[place + 1 :],
            b"\xef\xbb\xbf" + data,
            data + b"x",
            data.decode("utf-8", "replace").encode("utf-16"),
            data.replace(b"{", b'{"a":1,"a":2,', 1),
            data.replace(b"{", b'{"a":NaN,', 1),
            data.replace(b"{", b'{"a":-Infinity,', 1),
            data.replace(b"{", b'{"a":1e400,', 1),
            data.replace(b"{", b'{"a":' + b"9" * 5000 + b",", 1),
            b"[" * 50_000 + b"]" * 50_000,
            b'{"a":' * 20_000 + b"1" + b"}" * 20_000,
        ]
    )
