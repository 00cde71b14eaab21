"""The printed protocol: frozen, well formed, and of one opinion with the code that reads and writes."""

import copy
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator, ValidationError

from bothy_hermes import wire_events
from bothy_hermes.codec import dump, parse
from bothy_hermes.errors import WireError
from bothy_hermes.wire_schema import frames_document, openapi_document
from tests.fakes.frozen_protocol import check_answer, check_frame, check_request, validator_of
from tests.fakes.wire_examples import EVENT_EXAMPLES, EXAMPLES, event
from tests.test_wire import CASES, LIMITS, SHAPES, accepted
from tests.test_wire_operations import ROWS

ROOT = Path(__file__).parents[1]
OPENAPI, FRAMES = openapi_document(), frames_document()
SCHEMAS = {
    **{name: (OPENAPI, f"#/components/schemas/{name}") for name in OPENAPI["components"]["schemas"]},
    **{name: (FRAMES, f"#/$defs/{name}") for name in FRAMES["$defs"]},
}
FRAME_TYPES = {"Hello", "Identify", "Ready", "EventFrame", "Ack", "Goodbye"}
"""Types that have an `op` in the document, which the code adds when it writes the frame."""


def fits(name, value):
    """Whether a value fits the schema of a type."""
    document, reference = SCHEMAS[name]
    if name in FRAME_TYPES:
        value = {"op": OP_OF[name], **value}
    return validator_of(document, reference).is_valid(value)


OP_OF = {
    "Hello": "hello",
    "Identify": "identify",
    "Ready": "ready",
    "EventFrame": "event",
    "Ack": "ack",
    "Goodbye": "goodbye",
}


# The documents themselves -------------------------------------------------------------------------


def test_the_openapi_document_is_the_frozen_one(snapshot):
    """A change of the protocol is a change that somebody reviews."""
    assert openapi_document() == snapshot
    assert [one["operationId"] for one in operations()] == [
        name
        for path in dict.fromkeys(row[1].split()[1] for row in ROWS)
        for name, call in ((row[0], row[1]) for row in ROWS)
        if call.split()[1] == path
    ]


def test_the_frames_document_is_the_frozen_one(snapshot):
    """The same for frames and events."""
    assert frames_document() == snapshot
    assert set(FRAMES["$defs"]) >= FRAME_TYPES


def test_the_documents_do_not_depend_on_the_process():
    """Printed by processes of different hash seeds they are equal to the byte."""
    script = (
        "import json; from bothy_hermes.wire_schema import frames_document, openapi_document; "
        "print(json.dumps([openapi_document(), frames_document()]))"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", script],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(printed) == 1
    assert json.loads(printed.pop()) == [OPENAPI, FRAMES]


def operations():
    """Every operation object of the document."""
    return [one for methods in OPENAPI["paths"].values() for one in methods.values()]


def references(node):
    """Every reference inside of a document."""
    if isinstance(node, dict):
        yield from (value for key, value in node.items() if key == "$ref")
        for value in node.values():
            yield from references(value)
    elif isinstance(node, list):
        for value in node:
            yield from references(value)


@pytest.mark.parametrize(
    ("document", "place", "names"),
    [
        (OPENAPI, "#/components/schemas/", set(OPENAPI["components"]["schemas"])),
        (FRAMES, "#/$defs/", set(FRAMES["$defs"])),
    ],
    ids=["openapi", "frames"],
)
def test_every_reference_leads_somewhere_and_every_schema_is_used(document, place, names):
    """Nothing dangles and nothing lies about."""
    assert {one.removeprefix(place) for one in references(document)} == names


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_is_one(name):
    """Each passes the meta-schema of the dialect, and is explained."""
    document, reference = SCHEMAS[name]
    schema = document
    for step in reference.removeprefix("#/").split("/"):
        schema = schema[step]
    Draft202012Validator.check_schema(schema)
    assert name in {"ServerFrame", "AdapterFrame"} or schema["description"].endswith(".")


def test_every_wire_type_is_printed():
    """What the page knows is in one of the two documents."""
    assert set(SHAPES) == {name for name in SCHEMAS if not name.endswith("Frame")} - {"Problem"} | {
        "EventFrame"
    }


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_an_operation_is_printed_as_the_page_has_it(row):
    """Call, token, parameters, preconditions, body and answers, from the page's table."""
    name, call, tokens, bodies, status, query, conditional = row
    method, path = call.split()
    found = OPENAPI["paths"][path][method.lower()]
    assert found["operationId"] == name
    schemes = {scheme.removesuffix("DPoP") for one in found["security"] for scheme in one}
    assert schemes == {{"A": "agentToken", "R": "runToken"}[letter] for letter in tokens}
    parameters = {(one["in"], one["name"]): one["required"] for one in found["parameters"]}
    wanted = {("path", part[1:-1]): True for part in path.split("/") if part.startswith("{")}
    wanted |= {("query", one): name != "listRuns" for one in query.split()}
    wanted |= {
        "if_match": {("header", "If-Match"): True},
        "if_none_match": {("header", "If-None-Match"): False},
    }.get(conditional, {})
    if name == "downloadFile":
        wanted[("header", "Range")] = False
    assert parameters == wanted
    body, answer = bodies.split(" -> ")
    assert reference_of(found.get("requestBody"), "application/json") == body
    assert reference_of(found["responses"][status], "application/json") == answer
    assert reference_of(found["responses"]["4XX"], "application/problem+json") == "Problem"


def reference_of(part, media_type):
    """The type that a body or an answer holds; "-" for none."""
    content = (part or {}).get("content", {}).get(media_type)
    return content["schema"]["$ref"].rpartition("/")[2] if content else "-"


@pytest.mark.parametrize(
    ("operation", "statuses"),
    [
        ("createMessage", {"200", "201", "4XX", "5XX"}),
        ("getAllowList", {"200", "304", "4XX", "5XX"}),
        ("downloadFile", {"200", "206", "4XX", "5XX"}),
        ("putHeartbeat", {"204", "4XX", "5XX"}),
        ("openGateway", {"101", "4XX", "5XX"}),
        ("startRun", {"200", "4XX", "5XX"}),
    ],
)
def test_the_statuses_are_the_pages(operation, statuses):
    """Those that the page names beside the errors."""
    (found,) = [one for one in operations() if one["operationId"] == operation]
    assert set(found["responses"]) == statuses


ADAPTER_REASONS = [
    "adapter_error",
    "not_allowed",
    "billing_mode_mismatch",
    "tool_class_exceeded",
    "runtime_error",
    "runtime_busy",
    "adapter_restarted",
    "interrupted",
]
SERVER_REASONS = ["expired", "agent_offline", "cancelled_by_person"]


def test_the_reasons_of_an_end_are_printed():
    """Those that an adapter gives, and where a run is shown also those of the server alone."""
    schemas, shown = OPENAPI["components"]["schemas"], [*ADAPTER_REASONS, *SERVER_REASONS]
    for properties, words in (
        (schemas["FinishRun"], ADAPTER_REASONS),
        (schemas["Run"], shown),
        (FRAMES["$defs"]["RunEndedEvent"], shown),
    ):
        assert properties["properties"]["reason"]["anyOf"][0]["x-known-values"] == words


def test_limits_in_bytes_are_printed():
    """Bodies and frames of 1 MiB, files of 100 MiB; no keyword counts bytes."""
    bodies = [one["requestBody"] for one in operations() if "requestBody" in one]
    assert {body["x-max-bytes"] for body in bodies} == {2**20}
    assert FRAMES["x-max-bytes"] == 2**20
    (file,) = [one for one in operations() if one["operationId"] == "downloadFile"]
    assert {file["responses"][status]["x-max-bytes"] for status in ("200", "206")} == {100 * 2**20}


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("state", ["queued", "running,waiting_input"], ["", "asleep", "queued,", "queued, running"]),
        ("consumer", ["default", "A.b_c-1"], ["", "a b", "a" * 101]),
        ("If-Match", ['"0"', '"17"'], ["17", 'W/"17"', '"01"', "*", '""']),
    ],
)
def test_a_parameter_has_its_form(name, good, bad):
    """States separated by commas, plain consumer names, quoted versions."""
    (schema,) = {
        json.dumps(one["schema"])
        for found in operations()
        for one in found["parameters"]
        if one["name"] == name
    }
    judge = Draft202012Validator(json.loads(schema))
    assert [one for one in good if not judge.is_valid(one)] == []
    assert [one for one in bad if judge.is_valid(one)] == []


# One opinion --------------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", EXAMPLES, ids=lambda cls: cls.__name__)
def test_what_is_written_fits(cls):
    """The page's example, and what the code writes for it."""
    example = EXAMPLES[cls]()
    assert fits(cls.__name__, example)
    assert fits(cls.__name__, dump(parse(cls, example)))


@pytest.mark.parametrize(("cls", "name", "presence"), CASES)
def test_presence_is_judged_alike(cls, name, presence):
    """Left out, null, or of another kind: the schema takes what the page takes."""
    without = EXAMPLES[cls]()
    value = without.pop(name)
    token_of_an_event = cls is wire_events.Event and name == "token"  # by the event's type, tested apart
    if not token_of_an_event:
        assert fits(cls.__name__, without) == (presence in "?-")
        assert fits(cls.__name__, {**without, name: None}) == (presence in "|?")
    for item in (7.5, "no such word", [], {}, True):
        if type(item) is not type(value):
            assert not fits(cls.__name__, {**without, name: item})


@pytest.mark.parametrize("cls", EXAMPLES, ids=lambda cls: cls.__name__)
def test_unknown_members_are_judged_alike(cls):
    """Closed types are closed in print."""
    more = {**EXAMPLES[cls](), "of_a_newer_version": 1}
    assert fits(cls.__name__, more) == accepted(cls, more)


@pytest.mark.parametrize(
    ("cls", "name", "least", "most", "beyond"),
    LIMITS,
    ids=[f"{row[0].__name__}-{row[1]}-{number}" for number, row in enumerate(LIMITS)],
)
def test_limits_are_judged_alike(cls, name, least, most, beyond):
    """No keyword counts bytes: there the document names the limit beside the keyword."""
    for value in (least, most):
        assert fits(cls.__name__, {**EXAMPLES[cls](), name: value})
    if len(beyond.encode()) == len(beyond):
        assert not fits(cls.__name__, {**EXAMPLES[cls](), name: beyond})
    else:
        document, reference = SCHEMAS[cls.__name__]
        schema = document["components"]["schemas"][reference.rpartition("/")[2]]
        assert schema["properties"][name]["x-max-bytes"] == 262144


def places(value, path=()):
    """Every place inside of a JSON value."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


def replaced(value, path, item):
    """A copy of a JSON value with another one at a place."""
    if not path:
        return item
    made = copy.deepcopy(value)
    inner = made
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = item
    return made


ITEMS = st.sampled_from(
    [None, True, 0, 1, -1, 10**12, 2**53, 1.5, "", "x", "x" * 201, [], {}, ["x"], [None], [[]]]
) | st.sampled_from(
    ["answer", "running", "card", "2026-11-30T12:00:00Z", "00000000-0000-4000-8000-000000000009"]
)


@given(cls=st.sampled_from(list(EXAMPLES)), item=ITEMS, data=st.data())
def test_schema_and_code_are_of_one_opinion(cls, item, data):
    """Whatever stands anywhere in a value, both take it or both refuse it."""
    example = EXAMPLES[cls]()
    path = data.draw(st.sampled_from([one for one in places(example) if one] or [()]))
    value = replaced(example, path, item)
    if cls in (wire_events.Event, wire_events.EventFrame) or not path:
        return  # read in two steps, see the test below
    assert fits(cls.__name__, value) == accepted(cls, value)


def readable(value):
    """Whether the code reads an event with its payload."""
    try:
        wire_events.parse_payload(parse(wire_events.Event, value))
    except WireError:
        return False
    return True


@given(kind=st.sampled_from([*EVENT_EXAMPLES, "agent.of_tomorrow"]), item=ITEMS, data=st.data())
def test_schema_and_code_are_of_one_opinion_about_events(kind, item, data):
    """Envelope, payload by type, and the token where the type has one."""
    example = {**event(kind if kind in EVENT_EXAMPLES else "run.ended"), "type": kind}
    path = data.draw(st.sampled_from([one for one in places(example) if one]))
    value = replaced(example, path, item)
    assert fits("Event", value) == readable(value)


@pytest.mark.parametrize("kind", [*EVENT_EXAMPLES, "agent.of_tomorrow"])
def test_a_token_is_judged_alike(kind):
    """Missing or null it is refused for the three types that need one, by both."""
    whole = {**event(kind if kind in EVENT_EXAMPLES else "run.ended"), "type": kind, "token": "t"}
    without = {name: value for name, value in whole.items() if name != "token"}
    needed = kind in {"agent.invocation", "agent.followup", "interaction.created"}
    for value in (without, {**without, "token": None}):
        assert fits("Event", value) == readable(value) == (not needed)
    assert fits("Event", whole)


# The judges that other tests use ------------------------------------------------------------------


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_the_frozen_documents_judge_requests_and_answers(row):
    """The page's examples pass; an empty object, or a body where none is, does not."""
    name, _, _, bodies, status, *_ = row
    body, answer = (by_name(one) for one in bodies.split(" -> "))
    check_request(name, body)
    check_answer(name, int(status), answer)
    check_answer(name, 409, {"code": "run_ended", "title": "The run is over"})
    check_answer(name, 502, None)
    with pytest.raises((ValidationError, AssertionError)):
        check_request(name, {})
    with pytest.raises((ValidationError, AssertionError)):
        check_answer(name, int(status), {})
    with pytest.raises(ValidationError):
        check_answer(name, 409, {"code": "no_such_code"})


def by_name(name):
    """The example of a type by its name; None for none."""
    return next((EXAMPLES[cls]() for cls in EXAMPLES if cls.__name__ == name), None)


@pytest.mark.parametrize(
    ("side", "other", "name"),
    [("server", "adapter", name) for name in ("Hello", "Ready", "EventFrame", "Goodbye")]
    + [("adapter", "server", name) for name in ("Identify", "Ack")],
)
def test_the_frozen_documents_judge_frames_by_side(side, other, name):
    """A frame passes on its own side only, and only under its op."""
    frame = {"op": OP_OF[name], **by_name(name)}
    check_frame(side, frame)
    with pytest.raises(ValidationError):
        check_frame(other, frame)
    with pytest.raises(ValidationError):
        check_frame(side, by_name(name))


@pytest.mark.parametrize("kind", EVENT_EXAMPLES)
def test_the_frozen_documents_judge_events_by_type(kind):
    """Another type's payload, or a missing token, does not pass inside of a frame."""
    check_frame("server", {"op": "event", "event": event(kind)})
    with pytest.raises(ValidationError):
        check_frame("server", {"op": "event", "event": {**event(kind), "payload": {}}})
    if "token" in event(kind):
        with pytest.raises(ValidationError):
            check_frame("server", {"op": "event", "event": {**event(kind), "token": None}})
