"""Threads: what people write in them, their titles, their sessions with the agent, their files.

Layer: default. A person's message starts a run, or follows up the oldest active run of its thread
(section 7); titles and sessions are changed by people and by the adapter (sections 4 and 8).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from uuid import UUID

from .local_context import replace_session, thread_view
from .local_core import Core, agent_principal, person_principal
from .local_records import FileRecord, FollowupMark, MessageRecord, Person, RunRecord, ThreadRecord
from .local_rules import Refused, conflict, forbidden, invalid, writes_as_member
from .local_runs import Runs
from .wire import (
    AgentSession,
    Attachment,
    Message,
    Principal,
    ReportAgentSession,
    ServedChannelConfig,
    SetThreadTitle,
    ThreadView,
    Transcript,
)
from .wire_words import (
    MAX_TITLE_CHARS,
    ElementKind,
    EventType,
    MessageKind,
    ProblemCode,
    RunKind,
    ScanStatus,
    SessionMode,
    TitleSource,
    TriggerKind,
    Trust,
)


@dataclass(frozen=True, slots=True)
class Posted:
    """What became of a person's message.

    Attributes:
        message: The message.
        run_id: The run that it started, None when it started none.
        followup_of: The run that it follows up, None when it does not.
        fresh: Whether it is new; False for a repetition.
    """

    message: Message
    run_id: UUID | None
    followup_of: UUID | None
    fresh: bool = True


@dataclass(frozen=True, slots=True)
class Draft:
    """What a person sends, and how the run of it is to be.

    Attributes:
        content: Markdown; may be empty beside files.
        client_msg_id: The same message as often as it is sent, per person; None for a message of its own.
        session_mode: `new`, `bind` with `bind_ref`, `resume`, or None for the usual one.
        bind_ref: The session to continue.
        trigger_kind: What the message is.
        file_ids: Files of the thread that go with it.
    """

    content: str = field(repr=False)
    client_msg_id: str | None = None
    session_mode: str | None = None
    bind_ref: str | None = None
    trigger_kind: str = TriggerKind.MESSAGE
    file_ids: tuple[UUID, ...] = ()


class Threads:
    """All threads.

    Args:
        core: Records, clock and options.
        runs: The runs that messages start.
    """

    def __init__(self, core: Core, runs: Runs) -> None:
        self._core = core
        self._state = core.state
        self._runs = runs

    # People ----------------------------------------------------------------------------------------

    def create(self, channel_id: UUID | None, title: str | None) -> ThreadRecord:
        """Make a thread, without a channel in the first one."""
        channel = self._state.channels.all()[0] if channel_id is None else self._core.channel(channel_id)
        now = self._core.now()
        if title is not None:
            _check_title(title)
        return self._core.put_thread(
            ThreadRecord(
                id=self._core.clock.new_ordered_id(),
                channel_id=channel.id,
                title=title,
                title_source=TitleSource.AUTO if title is None else TitleSource.MANUAL,
                version=1,
                session_ref=None,
                session_version=0,
                epoch=0,
                created_at=now,
                updated_at=now,
            )
        )

    def post(self, person_id: UUID, thread_id: UUID, draft: Draft) -> Posted:
        """Take a person's message: it starts a run, follows one up, or is only a message."""
        person = self._core.person(person_id)
        thread = self._core.thread(thread_id)
        known = self._known(person, thread, draft)
        if known is not None:
            return _posted(known, fresh=False)
        self._check_post(draft)
        record = self._record(person, thread, draft)
        active = self._core.active_runs(thread_id)
        if active:
            return self._follow_up(record, active[0])
        self._core.put_message(record)
        if self._calls_agent(thread, draft.content):
            self._runs.open_run(self._core.thread(thread_id), [record], draft.trigger_kind)
        return _posted(self._state.messages.need(record.message.id))

    def set_title(self, thread_id: UUID, title: str | None) -> ThreadRecord:
        """Give a thread the title that a person chose; None leaves it to the agent again."""
        thread = self._core.thread(thread_id)
        if title is not None:
            _check_title(title)
        self._forget_repeat("setThreadTitle", thread_id)
        source = TitleSource.AUTO if title is None else TitleSource.MANUAL
        return self._core.put_thread(
            dataclasses.replace(
                thread, title=title or thread.title, title_source=source, version=thread.version + 1
            )
        )

    def add_element(self, thread_id: UUID, kind: ElementKind, content: str, trust: Trust) -> MessageRecord:
        """Add something to a thread's contexts that nobody wrote: a summary, its participants, a file."""
        message = self._message(self._core.thread(thread_id), content, agent_principal(self._state.agent))
        record = MessageRecord(message=message, element=kind, trust=trust, attachments=(), transcripts=())
        return self._core.put_message(record)

    def add_file(self, thread_id: UUID, attachment: Attachment, transcript: Transcript | None) -> FileRecord:
        """Take up a file whose bytes are on the disk."""
        self._core.thread(thread_id)
        record = FileRecord(attachment=attachment, thread_id=thread_id, transcript=transcript)
        return self._state.files.put(attachment.id, record)

    # The adapter's calls ---------------------------------------------------------------------------

    def report_session(self, run: RunRecord, version: int, body: ReportAgentSession) -> AgentSession:
        """Take the session that a run's turn was in."""
        if run.run.kind is RunKind.GUEST:
            raise forbidden("a guest run reports no session")
        if body.bind_failed and (run.run.session_mode != SessionMode.BIND or not body.started):
            raise invalid("bind_failed without a bind, or without a new session")
        if not body.external_session_ref:
            raise invalid("an empty session reference")
        thread = self._core.thread(run.run.thread_id)
        if version != thread.session_version:
            raise precondition_failed(thread.session_version)
        if body.started and run.run.session_mode != SessionMode.NEW:
            replace_session(self._core, run)
            thread = self._core.thread(thread.id)
        thread = dataclasses.replace(
            thread, session_ref=body.external_session_ref, session_version=thread.session_version + 1
        )
        self._core.put_thread(thread)
        return agent_session(thread)

    def set_agent_title(self, run: RunRecord, version: int, body: SetThreadTitle) -> ThreadView:
        """Take the title that the agent gives, as long as no person gave one."""
        if run.run.kind is RunKind.GUEST:
            raise forbidden("a guest run sets no title")
        thread = self._core.thread(run.run.thread_id)
        if thread.title_source is TitleSource.MANUAL:
            raise conflict(ProblemCode.TITLE_NOT_AUTO, "a person gave the title")
        if version != thread.version:
            raise precondition_failed(thread.version)
        thread = dataclasses.replace(thread, title=body.title, version=thread.version + 1)
        return thread_view(self._core.put_thread(thread))

    def served_config(self, run: RunRecord) -> ServedChannelConfig:
        """Return what the managers of a served channel tell the agent."""
        channel = self._core.channel(run.run.channel_id)
        if run.run.kind is RunKind.GUEST:
            raise forbidden("a guest run has no channel configuration")
        return ServedChannelConfig(
            settings_version=self._state.instance.settings_version,
            prompt=channel.prompt,
            skills=channel.skills,
        )

    def file_of(self, run: RunRecord, file_id: UUID) -> Attachment:
        """Return a file that a run may read."""
        record = self._state.files.get(file_id)
        if record is None:
            raise Refused(404, ProblemCode.NOT_FOUND, "no such file", violation=True)
        if record.thread_id != run.run.thread_id:
            raise forbidden("the file is of another thread")
        if record.attachment.scan_status not in (ScanStatus.CLEAN, ScanStatus.SKIPPED):
            raise Refused(403, ProblemCode.FILE_REFUSED, "the file is not, or not yet, to be read")
        return record.attachment

    # Steps -----------------------------------------------------------------------------------------

    def _known(self, person: Person, thread: ThreadRecord, draft: Draft) -> MessageRecord | None:
        if draft.client_msg_id is None:
            return None
        found = self._state.messages.group("writer", (person.id, draft.client_msg_id))
        if not found:
            return None
        message = found[0].message
        if message.thread_id != thread.id or message.content != draft.content:
            raise Refused(422, ProblemCode.VALIDATION_FAILED, "another message has this client_msg_id")
        return found[0]

    def _check_post(self, draft: Draft) -> None:
        if not draft.content and not draft.file_ids:
            raise Refused(422, ProblemCode.VALIDATION_FAILED, "an empty message")
        if len(draft.content.encode()) > self._core.options.max_content_bytes:
            raise Refused(413, ProblemCode.CONTENT_TOO_LONG, "the content is too long")
        if draft.session_mode not in (None, *SessionMode):
            raise Refused(422, ProblemCode.VALIDATION_FAILED, "no such session mode")
        if (draft.session_mode == SessionMode.BIND) != (draft.bind_ref is not None):
            raise Refused(422, ProblemCode.VALIDATION_FAILED, "bind goes with bind_ref, and only bind")

    def _record(self, person: Person, thread: ThreadRecord, draft: Draft) -> MessageRecord:
        files = [self._own_file(thread, file_id) for file_id in draft.file_ids]
        message = self._message(thread, draft.content, person_principal(person))
        return MessageRecord(
            message=dataclasses.replace(message, client_msg_id=draft.client_msg_id),
            element=ElementKind.MESSAGE,
            trust=self._trust(person),
            attachments=tuple(file.attachment for file in files),
            transcripts=tuple(file.transcript for file in files if file.transcript is not None),
            asked_mode=draft.session_mode,
            bind_ref=draft.bind_ref,
        )

    def _message(self, thread: ThreadRecord, content: str, author: Principal) -> Message:
        return Message(
            id=self._core.clock.new_ordered_id(),
            thread_id=thread.id,
            run_id=None,
            kind=MessageKind.TEXT,
            role=None,
            content=content,
            part=None,
            reply_to=None,
            author=author,
            components=(),
            version=1,
            client_msg_id=None,
            closed=None,
            created_at=self._core.now(),
        )

    def _own_file(self, thread: ThreadRecord, file_id: UUID) -> FileRecord:
        record = self._state.files.get(file_id)
        if record is None or record.thread_id != thread.id:
            raise Refused(422, ProblemCode.VALIDATION_FAILED, "no such file in this thread")
        return record

    def _trust(self, person: Person) -> Trust:
        if not writes_as_member(person):
            return Trust.UNVERIFIED
        return Trust.TRUSTED if person.id == self._state.agent.owner_id else Trust.MEMBER

    def _follow_up(self, record: MessageRecord, run: RunRecord) -> Posted:
        record = dataclasses.replace(record, followup=FollowupMark.WAITING, followup_of=run.run.id)
        self._core.put_message(record)
        self._core.emit(EventType.FOLLOWUP, run=run, subject_id=record.message.id)
        return _posted(record)

    def _calls_agent(self, thread: ThreadRecord, content: str) -> bool:
        """Whether a message is for the agent: any in a served channel, elsewhere one that names it."""
        served = self._core.channel(thread.channel_id).served
        return served or f"@{self._state.agent.name}".casefold() in content.casefold()

    def _forget_repeat(self, operation: str, resource: UUID) -> None:
        key = f"{operation}:{resource}"
        if self._state.repeats.get(key) is not None:
            self._state.repeats.delete(key)


def agent_session(thread: ThreadRecord) -> AgentSession:
    """Return a thread's session as it is answered."""
    return AgentSession(external_session_ref=thread.session_ref, version=thread.session_version)


def precondition_failed(version: int) -> Refused:
    """412: somebody changed it in between; the answer says what is current."""
    return Refused(
        412, ProblemCode.PRECONDITION_FAILED, "the version is not current", extra={"version": version}
    )


def _posted(record: MessageRecord, *, fresh: bool = True) -> Posted:
    followup = record.followup_of
    return Posted(record.message, record.message.run_id, followup, fresh)


def _check_title(title: str) -> None:
    if not 1 <= len(title) <= MAX_TITLE_CHARS:
        raise Refused(422, ProblemCode.VALIDATION_FAILED, f"a title has 1 to {MAX_TITLE_CHARS} characters")
