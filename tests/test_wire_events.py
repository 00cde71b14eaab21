"""Events and frames: the envelope first, the payload by its type, and what the other side may send."""

import json

import pytest

from bothy_hermes.codec import parse
from bothy_hermes.errors import WireError
from bothy_hermes.wire_events import (
    ADAPTER_FRAMES,
    SERVER_FRAMES,
    Ack,
    ConfigChangedEvent,
    Event,
    EventFrame,
    FollowupEvent,
    Goodbye,
    Hello,
    Identify,
    InteractionEvent,
    Invocation,
    Ready,
    RunEndedEvent,
    dump_frame,
    parse_frame,
    parse_payload,
)
from tests.fakes.wire_examples import EXAMPLES, event

PAYLOAD_TYPES = {
    "agent.invocation": Invocation,
    "agent.followup": FollowupEvent,
    "interaction.created": InteractionEvent,
    "run.ended": RunEndedEvent,
    "agent.config_changed": ConfigChangedEvent,
}

SERVER = {"hello": Hello, "ready": Ready, "event": EventFrame, "goodbye": Goodbye}
ADAPTER = {"identify": Identify, "ack": Ack}


@pytest.mark.parametrize("kind", PAYLOAD_TYPES)
def test_a_payload_is_read_by_its_type(kind):
    """Every event type of the page, with the payload of the page."""
    assert type(parse_payload(parse(Event, event(kind)))) is PAYLOAD_TYPES[kind]


@pytest.mark.parametrize("kind", PAYLOAD_TYPES)
@pytest.mark.parametrize("missing", ["left out", "null"])
def test_a_token_is_there_where_the_page_has_one(kind, missing):
    """Three types need one; the other two are read without."""
    found = {**event(kind), "token": None}
    if missing == "left out":
        del found["token"]
    envelope = parse(Event, found)
    if kind in {"agent.invocation", "agent.followup", "interaction.created"}:
        with pytest.raises(WireError, match=r"^token: is missing$"):
            parse_payload(envelope)
    else:
        assert type(parse_payload(envelope)) is PAYLOAD_TYPES[kind]


def test_an_unknown_type_has_no_payload_to_read():
    """It is acked and ignored, whatever it carries."""
    assert parse_payload(parse(Event, {**event("run.ended"), "type": "agent.of_tomorrow"})) is None


@pytest.mark.parametrize("kind", PAYLOAD_TYPES)
def test_a_malformed_payload_leaves_the_envelope_readable(kind):
    """The event can still be settled by its ID, and the error says where in the payload."""
    found = {**event(kind), "payload": {}}
    assert str(parse(Event, found).id) == found["id"]
    with pytest.raises(WireError, match=r"^payload\.\w+: is missing$"):
        parse_payload(parse(Event, found))


@pytest.mark.parametrize(
    ("op", "cls", "table", "other"),
    [(op, cls, SERVER_FRAMES, ADAPTER_FRAMES) for op, cls in SERVER.items()]
    + [(op, cls, ADAPTER_FRAMES, SERVER_FRAMES) for op, cls in ADAPTER.items()],
    ids=[*SERVER, *ADAPTER],
)
def test_a_frame_travels_under_its_op_in_its_direction(op, cls, table, other):
    """Written and read it is the same; what only the other side sends is refused."""
    frame = {"op": op, **EXAMPLES[cls]()}
    read = parse_frame(json.dumps(frame), table)
    assert type(read) is cls
    assert json.loads(dump_frame(read)) == frame
    with pytest.raises(WireError, match=r"^op: is none of the known frames$"):
        parse_frame(json.dumps(frame), other)


def test_there_are_no_other_frames():
    """The page's table, both directions."""
    assert (dict(SERVER_FRAMES), dict(ADAPTER_FRAMES)) == (SERVER, ADAPTER)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '"hello"',
        "{}",
        '{"op": 7}',
        '{"op": null}',
        '{"op": "pong"}',
        '{"op": "ready"}',
    ],
)
def test_what_is_no_frame_is_refused(text):
    """Broken JSON, no object, no op, an unknown one, or one without its members."""
    with pytest.raises(WireError):
        parse_frame(text, SERVER_FRAMES)


def test_a_malformed_event_is_still_a_frame():
    """The event is read apart, so that its ID can be acked."""
    found = parse_frame('{"op": "event", "event": {"id": "x"}}', SERVER_FRAMES)
    assert found.event == {"id": "x"}
