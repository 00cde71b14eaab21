"""Run contexts for tests: a thread with the people, files and texts that a test names."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

from bothy_hermes.wire import (
    Attachment,
    ChannelView,
    ContextElement,
    Principal,
    Run,
    RunContext,
    Starter,
    ThreadView,
    Transcript,
)
from bothy_hermes.wire_words import (
    BillingMode,
    ElementKind,
    PrincipalKind,
    RunKind,
    RunState,
    ScanStatus,
    TitleSource,
    Trust,
)

START = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)


def new_id(number):
    """A readable ID of a test."""
    return UUID(int=number)


ANN, BOB, AGENT, TRIGGER = new_id(1), new_id(2), new_id(3), new_id(99)
PEOPLE = {ANN: "Ann", BOB: "Bob", AGENT: "Helper"}


def person(person_id=ANN, name=None):
    kind = PrincipalKind.AGENT if person_id == AGENT else PrincipalKind.PERSON
    return Principal(
        id=person_id, kind=kind, display_name=PEOPLE.get(person_id, "?") if name is None else name
    )


def element(number, content="", **changes):
    """A member's message; the number makes its ID and its time."""
    fields = {
        "id": new_id(number),
        "kind": ElementKind.MESSAGE,
        "author": person(BOB),
        "trust": Trust.MEMBER,
        "created_at": START + timedelta(minutes=number),
        "already_delivered": False,
        "content": content,
        "attachments": (),
        "transcripts": (),
    }
    return ContextElement(**(fields | changes))


def trigger(content="What now?", **changes):
    """The starter's message that triggered the run."""
    return element(99, content, **({"author": person(ANN)} | changes))


def attachment(number, name="notes.txt", media_type="text/plain", size_bytes=12, scan=ScanStatus.CLEAN):
    return Attachment(
        id=new_id(number), name=name, media_type=media_type, size_bytes=size_bytes, scan_status=scan
    )


def transcript(number, text, trust=Trust.MEMBER):
    return Transcript(attachment_id=new_id(number), text=text, trust=trust)


def context(
    *elements, kind=RunKind.OPERATOR, truncated=False, title="Garden", channel="general", mode="resume"
):
    """A run's context; its elements are as they are given."""
    return RunContext(
        run=Run(
            id=new_id(100),
            thread_id=new_id(101),
            channel_id=new_id(102),
            agent_id=AGENT,
            run_starter=ANN,
            kind=kind,
            trigger_kind="message",
            trigger_message_id=TRIGGER,
            state=RunState.QUEUED,
            reason=None,
            session_mode=mode,
            tool_class="host",
            billing_mode=BillingMode.ORGANIZATION,
            consumer="default",
            created_at=START,
            started_at=None,
            finished_at=None,
        ),
        thread=ThreadView(id=new_id(101), title=title, title_source=TitleSource.AUTO, version=1),
        channel=ChannelView(id=new_id(102), name=channel),
        starter=Starter(id=ANN, display_name="Ann"),
        elements=elements,
        truncated=truncated,
    )
