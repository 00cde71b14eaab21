"""The values of the protocol against a table that was written from the page, not from the code."""

import uuid

import pytest

from bothy_hermes import wire, wire_events
from bothy_hermes.codec import dump, is_closed, members, parse, split_annotation
from bothy_hermes.errors import WireError
from bothy_hermes.wire import AllowList, RunDocument
from tests.fakes.wire_examples import AGENT_ID, EXAMPLES, PERSON_ID

# Per type the members of the page: `name` is always there and never null, `name|` always there and null
# where it has no value, `name?` may be missing or null, `name-` may be missing and is never null.
SHAPES = {
    "Principal": "id kind display_name",
    "Evidence": "provider? key_type method",
    "AgentSession": "external_session_ref| version",
    "Run": "id thread_id channel_id agent_id run_starter kind trigger_kind trigger_message_id| state reason| "
    "session_mode tool_class billing_mode consumer| created_at started_at| finished_at|",
    "StepDetail": "preview",
    "Step": "id kind title state started_at? finished_at? detail?",
    "RunDocument": "version status_line? steps last_text_excerpt?",
    "RunView": "run document open_cards",
    "Option": "value label",
    "ComponentCreate": "custom_id kind label style? options? single_use restricted_to required_capability? "
    "disabled?",
    "Component": "id custom_id kind label style? options? single_use restricted_to required_capability? "
    "disabled?",
    "Part": "index last",
    "Message": "id thread_id run_id| kind role| content part| reply_to| author components version "
    "client_msg_id| closed| created_at",
    "Me": "id kind display_name owner_id| instance_id dpop_jkt| settings_version",
    "KeySetBody": "keys",
    "AllowEntry": "principal_id run_kinds",
    "AllowList": "version entries",
    "Skill": "name text",
    "ServedChannelConfig": "settings_version prompt| skills",
    "ThreadView": "id title| title_source version",
    "ChannelView": "id name",
    "Starter": "id display_name",
    "Attachment": "id name media_type size_bytes scan_status",
    "Transcript": "attachment_id text trust",
    "ContextElement": "id kind author| trust created_at already_delivered content attachments transcripts",
    "RunContext": "run thread channel starter elements truncated",
    "StartRun": "billing_mode billing_evidence tool_class",
    "ResumeRun": "cause message_id followup_message_id? billing_mode billing_evidence tool_class",
    "TokenAnswer": "token",
    "UpdateRun": "base_version patch",
    "DocumentVersion": "version",
    "CreateMessage": "client_msg_id kind role content reply_to? part? components?",
    "UpdateMessage": "content",
    "AwaitRunInput": "message_id status_line?",
    "CloseCard": "reason",
    "Followup": "state",
    "InteractionResponse": "status text? reopen?",
    "InteractionView": "id status text|",
    "Metrics": "duration_ms? model_requests? tokens_in? tokens_out? tokens_cache_read? tokens_cache_write?",
    "Cost": "provider model currency tokens_in? tokens_out? tokens_cache_read? tokens_cache_write? "
    "amount_micros? estimated",
    "FinishRun": "outcome reason? metrics costs?",
    "ReportAgentSession": "external_session_ref started bind_failed?",
    "SetThreadTitle": "title",
    "Capabilities": "components clarify approvals title followups",
    "Release": "name version",
    "Software": "name version-",
    "HeartbeatEvidence": "provider- key_type method",
    "HeartbeatDetails": "degraded_reasons- capabilities active_runs adapter runtime protocol_version",
    "Heartbeat": "state runtime_version- reported_billing_mode- billing_modes_supported- billing_evidence "
    "reported_tool_class details",
    "Event": "id type created_at attempt agent_id token? payload",
    "Invocation": "run message_id content_excerpt trigger_kind session_mode agent_session settings_version",
    "FollowupEvent": "run_id thread_id message_id author_id run_state",
    "Interaction": "id run_id message_id component_id custom_id values operator_id",
    "InteractionEvent": "interaction",
    "RunEndedEvent": "run_id thread_id state reason| by|",
    "ConfigChangedEvent": "settings_version",
    "ListedRun": "run invocation open_cards adapter_id| adapter_seen_at|",
    "RunList": "runs",
    "HelloSettings": "run_update_min_interval_ms max_content_bytes costs_enabled",
    "Hello": "server_time protocol_version ack_timeout_ms heartbeat_interval_ms max_in_flight settings",
    "Identify": "consumer adapter_id protocol_version adapter runtime max_active_runs",
    "Ready": "pending",
    "EventFrame": "event",
    "Ack": "event_id",
    "Goodbye": "code reconnect",
}

CLOSED = {
    "StepDetail",
    "Step",
    "RunDocument",
    "Capabilities",
    "Release",
    "Software",
    "HeartbeatEvidence",
    "HeartbeatDetails",
    "Heartbeat",
}
"""The types of which the page says that other fields are refused."""

TYPES = sorted(EXAMPLES, key=lambda cls: cls.__name__)
CASES = [
    pytest.param(cls, word.rstrip("|?-"), word[-1] if word[-1] in "|?-" else "!", id=f"{cls.__name__}-{word}")
    for cls in TYPES
    for word in SHAPES[cls.__name__].split()
]


def accepted(cls, value):
    """Whether a value is read; a refusal names a place and never a value."""
    try:
        parse(cls, value)
    except WireError:
        return False
    return True


def test_the_tables_have_every_type():
    """No wire type is forgotten by the examples or by the shapes."""
    defined = {
        cls
        for module in (wire, wire_events)
        for cls in vars(module).values()
        if isinstance(cls, type) and hasattr(cls, "__wire_closed__")
    }
    assert defined == set(EXAMPLES)
    assert {cls.__name__ for cls in defined} == set(SHAPES)


@pytest.mark.parametrize("cls", TYPES, ids=lambda cls: cls.__name__)
def test_an_example_comes_back_as_it_was(cls):
    """Reading and writing lose and add nothing, and the page's members are all there are."""
    example = EXAMPLES[cls]()
    assert dump(parse(cls, example)) == example
    assert {word.rstrip("|?-") for word in SHAPES[cls.__name__].split()} == set(example)


@pytest.mark.parametrize(("cls", "name", "presence"), CASES)
def test_a_member_is_there_as_the_page_says(cls, name, presence):
    """Each member left out, and each set to null, is accepted exactly where the page allows it."""
    without = EXAMPLES[cls]()
    del without[name]
    assert accepted(cls, without) == (presence in "?-")
    assert accepted(cls, {**without, name: None}) == (presence in "|?")


@pytest.mark.parametrize(("cls", "name", "presence"), CASES)
def test_a_member_of_another_kind_is_refused_by_its_place(cls, name, presence):
    """Nothing takes every JSON value, and the error names the member without repeating its value."""
    value = EXAMPLES[cls]()[name]
    wrong = [item for item in (7.5, "no such word", [], {}, True) if type(item) is not type(value)]
    for item in wrong:
        with pytest.raises(WireError) as caught:
            parse(cls, {**EXAMPLES[cls](), name: item})
        assert caught.value.path.split(".")[0].split("[")[0] == name
        assert "no such word" not in str(caught.value)


@pytest.mark.parametrize("cls", TYPES, ids=lambda cls: cls.__name__)
def test_unknown_members_are_ignored_unless_the_type_is_closed(cls):
    """A newer server may say more; the run document and the heartbeat take nothing else on any level."""
    assert is_closed(cls) == (cls.__name__ in CLOSED)
    more = {**EXAMPLES[cls](), "of_a_newer_version": 1}
    assert accepted(cls, more) == (cls.__name__ not in CLOSED)


def test_a_missing_nullable_member_of_the_document_is_null():
    """A patch may remove what may be null."""
    bare = {"id": "s1", "kind": "subagent", "title": "", "state": "running"}
    found = dump(parse(RunDocument, {"version": 1, "steps": [bare]}))
    assert found == {
        "version": 1,
        "status_line": None,
        "steps": [{**bare, "started_at": None, "finished_at": None, "detail": None}],
        "last_text_excerpt": None,
    }


# Limits: the last value that is taken and the first that is not, in the page's units ----------------

LIMITS = [
    (wire.CreateMessage, "content", "", "x" * 262_144, "x" * 262_145),
    (wire.CreateMessage, "content", "", "\u05d0" * 131_072, "\u05d0" * 131_072 + "x"),
    (wire.UpdateMessage, "content", "", "\U0001f600" * 65_536, "\U0001f600" * 65_536 + "x"),
    (wire.CreateMessage, "client_msg_id", "c", "\U0001f600" * 100, "c" * 101),
    (wire.ComponentCreate, "custom_id", "c", "c" * 100, "c" * 101),
    (wire.ComponentCreate, "label", "l", "\u05d0" * 80, "l" * 81),
    (wire.Option, "value", "v", "v" * 100, "v" * 101),
    (wire.RunDocument, "status_line", "", "\u05d0" * 200, "s" * 201),
    (wire.AwaitRunInput, "status_line", "", "s" * 200, "s" * 201),
    (wire.Step, "title", "", "\U0001f600" * 200, "t" * 201),
    (wire.RunDocument, "last_text_excerpt", "", "\u05d0" * 4000, "e" * 4001),
    (wire.SetThreadTitle, "title", "t", "\u05d0" * 120, "t" * 121),
    (wire.InteractionResponse, "text", "", "\u05d0" * 200, "t" * 201),
    (wire_events.Invocation, "content_excerpt", "", "\u05d0" * 200, "e" * 201),
    (wire_events.Interaction, "custom_id", "c", "c" * 100, "c" * 101),
    (wire_events.Identify, "consumer", "c", "aZ09._-" * 14 + "ab", "c" * 101),
    (wire.Cost, "currency", "EUR", "USD", "EURO"),
]


@pytest.mark.parametrize(
    ("cls", "name", "least", "most", "beyond"),
    LIMITS,
    ids=[f"{row[0].__name__}-{row[1]}-{number}" for number, row in enumerate(LIMITS)],
)
def test_a_text_is_taken_up_to_its_limit(cls, name, least, most, beyond):
    """Characters are code points and bytes are UTF-8; one more is too many."""
    assert accepted(cls, {**EXAMPLES[cls](), name: least})
    assert accepted(cls, {**EXAMPLES[cls](), name: most})
    assert not accepted(cls, {**EXAMPLES[cls](), name: beyond})


@pytest.mark.parametrize(
    ("cls", "name", "item", "least", "most"),
    [
        (wire.CreateMessage, "components", EXAMPLES[wire.ComponentCreate](), 0, 10),
        (wire.RunDocument, "steps", EXAMPLES[wire.Step](), 0, 200),
        (wire.UpdateRun, "patch", {"op": "remove", "path": "/status_line"}, 0, 100),
        (wire_events.RunList, "runs", EXAMPLES[wire_events.ListedRun](), 0, 200),
        (wire.ComponentCreate, "options", EXAMPLES[wire.Option](), 1, None),
    ],
    ids=["components", "steps", "patch", "runs", "options"],
)
def test_a_list_is_taken_within_its_limits(cls, name, item, least, most):
    """The page's counts, both ends."""
    sizes = {least: True, least - 1: False} | ({most: True, most + 1: False} if most else {1000: True})
    for size, expected in sizes.items():
        if size >= 0:
            assert accepted(cls, {**EXAMPLES[cls](), name: [item] * size}) == expected


@pytest.mark.parametrize(
    ("cls", "name", "least"),
    [
        (wire.RunDocument, "version", 1),
        (wire.UpdateRun, "base_version", 1),
        (wire.DocumentVersion, "version", 1),
        (wire.Part, "index", 0),
        (wire.AgentSession, "version", 0),
        (wire.Attachment, "size_bytes", 0),
        (wire.Metrics, "tokens_in", 0),
        (wire.Cost, "amount_micros", 0),
        (wire.HeartbeatDetails, "active_runs", 0),
        (wire_events.Event, "attempt", 1),
        (wire_events.Ready, "pending", 0),
        (wire_events.Hello, "max_in_flight", 1),
        (wire_events.Identify, "max_active_runs", 1),
    ],
)
def test_a_number_starts_where_the_page_starts_it(cls, name, least):
    """Versions of a document and attempts count from 1, parts and amounts from 0."""
    assert accepted(cls, {**EXAMPLES[cls](), name: least})
    assert not accepted(cls, {**EXAMPLES[cls](), name: least - 1})


@pytest.mark.parametrize(
    ("cls", "name"),
    [
        (cls, member.name)
        for cls in EXAMPLES
        for member in members(cls)
        if split_annotation(member.annotation)[0] is int and member.name not in {"protocol_version", "code"}
    ],
)
def test_a_number_ends_where_json_readers_agree_no_more(cls, name):
    """A larger one would fit neither the state file nor a float of seconds (RFC 8259, section 6)."""
    assert accepted(cls, {**EXAMPLES[cls](), name: 2**53 - 1})
    assert not accepted(cls, {**EXAMPLES[cls](), name: 2**53})


@pytest.mark.parametrize("consumer", ["", "a b", "\u05d0", "a/b", "a\n", "a" * 101])
def test_a_consumer_is_a_plain_name(consumer):
    """1 to 100 of letters, digits, dot, underscore and hyphen."""
    assert not accepted(wire_events.Identify, {**EXAMPLES[wire_events.Identify](), "consumer": consumer})


# Enumerations -------------------------------------------------------------------------------------

CHOICES = [
    (wire.Principal, "kind", "person agent"),
    (wire.Run, "kind", "operator guest"),
    (wire.Run, "state", "queued running waiting_input completed failed cancelled"),
    (wire.Run, "billing_mode", "organization personal"),
    (wire.Evidence, "key_type", "api_key oauth unknown"),
    (wire.Evidence, "method", "resolved_credentials"),
    (wire.Step, "kind", "tool_call subagent"),
    (wire.Step, "state", "running completed failed"),
    (wire.ComponentCreate, "kind", "button select"),
    (wire.ComponentCreate, "style", "primary secondary danger"),
    (wire.ComponentCreate, "restricted_to", "run_starter owner anyone"),
    (wire.ComponentCreate, "required_capability", "approve_actions"),
    (wire.Message, "kind", "text card"),
    (wire.Message, "role", "answer interim"),
    (wire.Message, "closed", "expired answered cancelled"),
    (wire.ThreadView, "title_source", "auto manual"),
    (wire.ContextElement, "kind", "message summary participants file"),
    (wire.ContextElement, "trust", "trusted member unverified"),
    (wire.Attachment, "scan_status", "clean skipped pending infected"),
    (wire.ResumeRun, "cause", "interaction followup prompt_expired"),
    (wire.CloseCard, "reason", "expired answered cancelled"),
    (wire.Followup, "state", "delivered absorbed"),
    (wire.InteractionResponse, "status", "acknowledged failed"),
    (wire.FinishRun, "outcome", "completed failed cancelled"),
    (wire.ReportAgentSession, "bind_failed", "session_missing"),
    (wire.Heartbeat, "state", "online degraded"),
]


@pytest.mark.parametrize(
    ("cls", "name", "words"), CHOICES, ids=[f"{row[0].__name__}-{row[1]}" for row in CHOICES]
)
def test_a_choice_is_one_of_the_pages_words(cls, name, words):
    """Each word of the page is taken, and neither another nor another spelling is."""
    for word in words.split():
        assert dump(parse(cls, {**EXAMPLES[cls](), name: word}))[name] == word
        assert not accepted(cls, {**EXAMPLES[cls](), name: word.upper()})
    assert not accepted(cls, {**EXAMPLES[cls](), name: "another"})
    assert not accepted(cls, {**EXAMPLES[cls](), name: ""})


DEGRADED = (
    "busy_mode_invalid billing_evidence_unknown restore_pending runtime_unsupported "
    "runtime_contract_missing state_unwritable"
)


@pytest.mark.parametrize(
    ("cls", "name", "words"),
    [
        (wire.Heartbeat, "billing_modes_supported", "organization personal"),
        (wire.AllowEntry, "run_kinds", "operator guest"),
        (wire.HeartbeatDetails, "degraded_reasons", DEGRADED),
    ],
)
def test_a_list_of_choices_holds_only_the_pages_words(cls, name, words):
    """All of them together are taken, one more is not, and the error names its place in the list."""
    found = words.split()
    assert dump(parse(cls, {**EXAMPLES[cls](), name: found}))[name] == found
    with pytest.raises(WireError, match=rf"^{name}\[{len(found)}\]: is none of"):
        parse(cls, {**EXAMPLES[cls](), name: [*found, "another"]})


@pytest.mark.parametrize(
    ("cls", "name"),
    [
        (wire.Run, "trigger_kind"),
        (wire.Run, "session_mode"),
        (wire.Run, "tool_class"),
        (wire_events.Invocation, "trigger_kind"),
        (wire_events.Invocation, "session_mode"),
        (wire.Heartbeat, "reported_tool_class"),
    ],
)
def test_an_unknown_word_that_a_rule_judges_is_carried(cls, name):
    """What the page has a rule for is no malformed event."""
    assert dump(parse(cls, {**EXAMPLES[cls](), name: "of_a_newer_version"}))[name] == "of_a_newer_version"


# Rules and secrecy --------------------------------------------------------------------------------


def test_the_allow_list_alone_decides():
    """A person is allowed for the kinds beside the name, and nobody else for any."""
    listed = parse(
        AllowList, {"version": 1, "entries": [{"principal_id": PERSON_ID, "run_kinds": ["guest"]}]}
    )
    person, agent = uuid.UUID(PERSON_ID), uuid.UUID(AGENT_ID)
    assert listed.allows(person, wire.RunKind.GUEST)
    assert not listed.allows(person, wire.RunKind.OPERATOR)
    assert not listed.allows(agent, wire.RunKind.GUEST)


CONTENT = "what a person wrote"

CONTENT_MEMBERS = [
    (wire.CreateMessage, "content"),
    (wire.UpdateMessage, "content"),
    (wire.Message, "content"),
    (wire.ContextElement, "content"),
    (wire.Transcript, "text"),
    (wire.Attachment, "name"),
    (wire.Attachment, "media_type"),
    (wire.ServedChannelConfig, "prompt"),
    (wire.Skill, "name"),
    (wire.Skill, "text"),
    (wire.ThreadView, "title"),
    (wire.ChannelView, "name"),
    (wire.Starter, "display_name"),
    (wire.Principal, "display_name"),
    (wire.Me, "display_name"),
    (wire.Option, "label"),
    (wire.Component, "label"),
    (wire.ComponentCreate, "label"),
    (wire.Step, "title"),
    (wire.StepDetail, "preview"),
    (wire.RunDocument, "status_line"),
    (wire.RunDocument, "last_text_excerpt"),
    (wire.AwaitRunInput, "status_line"),
    (wire.InteractionResponse, "text"),
    (wire.InteractionView, "text"),
    (wire.SetThreadTitle, "title"),
    (wire.TokenAnswer, "token"),
    (wire_events.Event, "token"),
    (wire_events.Invocation, "content_excerpt"),
]


@pytest.mark.parametrize(("cls", "name"), CONTENT_MEMBERS)
def test_what_people_wrote_is_in_no_repr(cls, name):
    """Neither contents nor tokens can reach a log through a value."""
    assert CONTENT not in repr(parse(cls, {**EXAMPLES[cls](), name: CONTENT}))


@pytest.mark.parametrize(
    ("cls", "name", "value"),
    [
        (wire.UpdateRun, "patch", [{"op": "add", "path": "/x", "value": CONTENT}]),
        (wire_events.Event, "payload", {"content_excerpt": CONTENT}),
        (wire_events.EventFrame, "event", {"payload": CONTENT}),
        (wire_events.Interaction, "values", [CONTENT]),
    ],
)
def test_what_is_carried_unread_is_in_no_repr(cls, name, value):
    """Patches, payloads and chosen values stay out as well."""
    assert CONTENT not in repr(parse(cls, {**EXAMPLES[cls](), name: value}))
