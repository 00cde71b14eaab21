"""Reads a rendered context as the model is told to read it, without the code that wrote it."""

import json
import re

QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')


def read_marked(text, mark):
    """Return the adapter's lines as (fields, block content or None); the note before them is dropped.

    A field that is quoted comes back as the name that was quoted.
    """
    found, block = [], []
    for line in text[text.index(f"\n{mark} channel") + 1 :].split("\n"):
        if not line.startswith(mark):
            block.append(line)
        elif line == f"{mark} end":
            fields, _ = found[-1]
            found[-1] = (fields, "\n".join(block))
            block = []
        else:
            assert block == [], "a text outside of every block"
            found.append((fields_of(line.removeprefix(f"{mark} ")), None))
    assert block == []
    return found


def fields_of(line):
    """Split a line of the adapter at the bars that stand outside of quotes."""
    names = []

    def keep(match):
        names.append(json.loads(match.group()))
        return f"\0{len(names) - 1}\0"

    fields = QUOTED.sub(keep, line).split(" | ")
    return [re.sub("\0(\\d+)\0", lambda match: names[int(match[1])], field) for field in fields]
