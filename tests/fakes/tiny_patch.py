"""The four JSON Patch operations that the live box uses, applied as RFC 6902 words them.

A second, independent reading of the RFC, so that a mistake in the product's own applier cannot hide
one in the operations that it is given.
"""

import copy


def apply_tiny(document, operations):
    """Apply add, remove, replace and move; anything that does not apply is an error."""
    document = copy.deepcopy(document)
    for operation in operations:
        _OPERATIONS[operation["op"]](document, operation)
    return document


def _place(document, pointer):
    *parents, last = pointer.removeprefix("/").split("/")
    for name in parents:
        document = document[name]
    return document, int(last) if isinstance(document, list) else last


def _add(document, operation, value=None):
    parent, key = _place(document, operation["path"])
    value = operation["value"] if value is None else value
    if isinstance(parent, list):
        assert 0 <= key <= len(parent)
        parent.insert(key, value)
    else:
        parent[key] = value


def _remove(document, operation):
    parent, key = _place(document, operation["path"])
    return parent.pop(key)


def _replace(document, operation):
    parent, key = _place(document, operation["path"])
    parent[key]  # the target must exist
    parent[key] = operation["value"]


def _move(document, operation):
    _add(document, operation, _remove(document, {"path": operation["from"]}))


_OPERATIONS = {"add": _add, "remove": _remove, "replace": _replace, "move": _move}
