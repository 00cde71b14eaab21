"""JSON Patch against the public vectors, and what the vectors leave open."""

import contextlib
import copy
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bothy_hermes.json_patch import PatchError, apply_patch

VECTORS = json.loads((Path(__file__).parent / "data" / "json_patch_tests.json").read_text("utf-8"))

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=8,
)
POINTER = st.lists(st.sampled_from(["", "a", "0", "1", "-", "~0", "~1"]), max_size=3).map(
    lambda parts: "".join(f"/{part}" for part in parts)
)
OPERATION = st.fixed_dictionaries(
    {"op": st.sampled_from(["add", "remove", "replace", "move", "copy", "test"]), "path": POINTER},
    optional={"value": JSON, "from": POINTER},
)


@pytest.mark.parametrize("record", VECTORS, ids=lambda record: record.get("comment", "plain"))
def test_public_vectors(record):
    if "error" in record:
        with pytest.raises(PatchError):
            apply_patch(record["doc"], record["patch"])
    else:
        result = apply_patch(record["doc"], record["patch"])
        assert result == record.get("expected", result)


def test_the_vectors_are_all_there():
    assert len(VECTORS) == 86


@pytest.mark.parametrize(
    ("document", "patch", "problem"),
    [
        ({}, [3], "is no object"),
        ({}, [{"op": ["add"], "path": ""}], "has no known op"),
        ({}, [{"op": "add", "path": "a", "value": 1}], "has no usable path"),
        ({}, [{"op": "add", "path": "/~2", "value": 1}], "has no usable path"),
        ({}, [{"op": "add", "path": "/a/b", "value": 1}], "points to a member that is not there"),
        ({"a": 1}, [{"op": "add", "path": "/a/b", "value": 1}], "points into a value that has no members"),
        ({"a": {"b": 1}}, [{"op": "move", "from": "/a", "path": "/a/b"}], "moves a value into itself"),
        ([1], [{"op": "remove", "path": "/-"}], "points to a list with something that is no index"),
        ([1], [{"op": "test", "path": "/0", "value": True}], "tests for another value"),
        ([0], [{"op": "test", "path": "/0", "value": False}], "tests for another value"),
    ],
)
def test_what_does_not_fit_is_named(document, patch, problem):
    """The error says which operation and why, without repeating anything of it."""
    with pytest.raises(PatchError) as caught:
        apply_patch(document, [{"op": "test", "path": "", "value": document}, *patch])
    assert (caught.value.index, caught.value.problem) == (1, problem)
    assert str(caught.value) == f"patch operation 1: {problem}"


def test_numbers_are_equal_by_value():
    assert apply_patch([1], [{"op": "test", "path": "/0", "value": 1.0}]) == [1]


def test_a_value_nested_too_deeply_is_refused():
    """A hostile patch costs an error, not the server's stack."""
    deep = []
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(PatchError, match="too deeply"):
        apply_patch({}, [{"op": "add", "path": "/a", "value": deep}])


@given(JSON, st.lists(OPERATION, max_size=4))
def test_the_document_is_never_changed(document, patch):
    """A patch that fails leaves nothing behind, one that applies leaves the old document as it was."""
    before = copy.deepcopy(document)
    with contextlib.suppress(PatchError):
        apply_patch(document, patch)
    assert document == before


@given(JSON, JSON)
def test_add_and_remove_are_inverse(document, value):
    """Adding a new member and removing it again gives the document."""
    whole = {"x": document}
    patch = [{"op": "add", "path": "/y", "value": value}, {"op": "remove", "path": "/y"}]
    assert apply_patch(whole, patch) == whole


@given(JSON)
def test_results_share_nothing_with_the_patch(value):
    """Changing a result later changes no patch and no other result."""
    patch = [
        {"op": "add", "path": "/a", "value": {"inner": value}},
        {"op": "copy", "from": "/a", "path": "/b"},
    ]
    result = apply_patch({}, patch)
    result["a"]["inner"] = "changed"
    assert result["b"] == {"inner": value}
    assert patch[0]["value"] == {"inner": value}


def test_a_patch_that_doubles_a_list_again_and_again_is_refused():
    """A hundred copies of a list into itself would be more than any memory holds."""
    doubling = [{"op": "copy", "from": "/x", "path": "/x/-"}] * 100
    with pytest.raises(PatchError) as caught:
        apply_patch({"x": [0]}, doubling)
    assert caught.value.problem == "copies too much"
    assert caught.value.index == 15


def test_a_hundred_copies_of_a_large_document_are_taken():
    document = {"steps": [{str(member): 0 for member in range(8)} for _ in range(100)]}
    copies = [{"op": "copy", "from": "/steps", "path": f"/copy-{number}"} for number in range(100)]
    assert len(apply_patch(document, copies)) == 101
