"""The frozen documents of the protocol as judges of what both sides say, without the package's own code.

`check_request`, `check_answer` and `check_frame` raise `jsonschema.ValidationError`; they read
`snapshots/test_wire_schema/`, which a person reviewed against the protocol's page.
"""

import functools
import json
from pathlib import Path

from jsonschema import Draft202012Validator

FROZEN = Path(__file__).parents[2] / "snapshots" / "test_wire_schema"


@functools.cache
def _document(name):
    return json.loads((FROZEN / f"test_the_{name}_document_is_the_frozen_one.json").read_text("utf-8"))


@functools.cache
def validator(name, pointer):
    """A validator of one schema of a document, by its JSON pointer."""
    return validator_of(_document(name), f"#{pointer}")


def validator_of(document, reference):
    """A validator of the schema that a reference names, with the document's other schemas beside it."""
    others = {key: document[key] for key in ("$defs", "components") if key in document}
    return Draft202012Validator({"$ref": reference, **others})


@functools.cache
def _operations():
    paths = _document("openapi")["paths"].values()
    return {one["operationId"]: one for methods in paths for one in methods.values()}


def check_request(operation, body):
    """A request's body (None without one) is what the operation takes."""
    wanted = _operations()[operation].get("requestBody")
    assert (body is None) == (wanted is None), f"{operation}: a body where none is, or none where one is"
    if wanted is not None:
        validator("openapi", wanted["content"]["application/json"]["schema"]["$ref"][1:]).validate(body)


def check_answer(operation, status, body):
    """An answer's JSON (None when it has none) is what the operation gives with this status."""
    responses = _operations()[operation]["responses"]
    found = responses.get(str(status)) or responses[f"{status // 100}XX"]
    for media_type, content in found.get("content", {}).items():
        if media_type.endswith("json"):
            validator("openapi", content["schema"]["$ref"][1:]).validate(body)
            return
    assert body is None or status >= 500, f"{operation}: {status} has no JSON"


def check_frame(side, frame):
    """A frame (as JSON) is one that the "server" or the "adapter" may send."""
    validator("frames", f"/$defs/{side.capitalize()}Frame").validate(frame)
