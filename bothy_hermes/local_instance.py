"""The domain of one server in one hand: what people do and see, and what its administrators change.

Layer: default. Every method may be called from any thread; a change is durable before the method
returns, and a call that is refused raises `Refused` and changes nothing. The adapter's side of the same
domain is `local_calls` (HTTP) and `local_gateway` (WebSocket).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from .clock import Clock
from .local_admin import Administration
from .local_cards import Cards
from .local_changes import ChangeLog
from .local_core import Core
from .local_events import Events
from .local_messages import Messages
from .local_nonces import Nonces
from .local_options import ServerOptions
from .local_payloads import Payloads
from .local_presence import Presence
from .local_records import (
    AgentRecord,
    ChannelRecord,
    FollowupMark,
    InteractionRecord,
    MessageRecord,
    Person,
    ThreadRecord,
)
from .local_rules import Refused, run_ended
from .local_runs import PatchPace, Runs
from .local_setup import ensure_first_state
from .local_state import State
from .local_store import LocalStore
from .local_threads import Draft, Posted, Threads
from .secret import Secret
from .wire import Attachment, Heartbeat, Message, RunView, Transcript
from .wire_words import (
    MAX_FILE_BYTES,
    ElementKind,
    ProblemCode,
    RunState,
    ScanStatus,
    ServerReason,
    Trust,
)


@dataclass(frozen=True, slots=True)
class ConsumerView:
    """A consumer as people see it.

    Attributes:
        name: Under which its adapter reads events.
        connected: Whether it has a connection.
        fresh: Whether a heartbeat came since it has this connection.
        online: Whether a heartbeat came within 90 s.
        heartbeat: The last one, None before the first.
    """

    name: str
    connected: bool
    fresh: bool
    online: bool
    heartbeat: Heartbeat | None


class Instance(Administration):
    """One instance and everything in it.

    Args:
        store: The open state directory; `close` closes it.
        clock: Time, chance and IDs.
        options: Of this start.

    Raises:
        StateError: Something in the state directory cannot be used.
    """

    def __init__(self, store: LocalStore, clock: Clock, options: ServerOptions) -> None:
        state = State(clock, store.commit)
        state.load(store.load(state.tables))
        core = Core(state, clock, options)
        self.cards = Cards(core)
        runs = Runs(core, self.cards)
        super().__init__(core, store, Threads(core, runs), runs, Nonces(clock))
        self.messages_side = Messages(core, runs)
        ensure_first_state(core, store.directory)
        self.presence = Presence(core)
        self.events = Events(core, runs, self.presence)
        self.payloads = Payloads(core, self.presence)
        self.pace = PatchPace(core)

    @property
    def id(self) -> UUID:
        """The instance's ID."""
        return self.state.instance.id

    @property
    def agent(self) -> AgentRecord:
        """The agent."""
        return self.state.agent

    @property
    def changes(self) -> ChangeLog:
        """What changed, in order."""
        return self.state.changes

    @property
    def options(self) -> ServerOptions:
        """The options as they are now."""
        return self.core.options

    def close(self) -> None:
        """Close the state directory."""
        with self.state.lock:
            self.store.close()

    # What people see -------------------------------------------------------------------------------

    def people(self) -> tuple[Person, ...]:
        """Return every person."""
        return self.state.people.all()

    def person(self, person_id: UUID) -> Person:
        """Return a person."""
        return self.core.person(person_id)

    def person_of_token(self, text: str) -> Person | None:
        """Return whose login token this is, None for nobody's."""
        return next((one for one in self.people() if one.token == Secret(text)), None)

    def channels(self) -> tuple[ChannelRecord, ...]:
        """Return every channel."""
        return self.state.channels.all()

    def threads(self) -> tuple[ThreadRecord, ...]:
        """Return every thread, oldest first."""
        with self.state.lock:
            return self.state.threads.all()

    def thread(self, thread_id: UUID) -> ThreadRecord:
        """Return a thread."""
        return self.core.thread(thread_id)

    def messages(self, thread_id: UUID) -> tuple[Message, ...]:
        """Return a thread's messages, oldest first."""
        with self.state.lock:
            rows = self.state.messages.group("thread", self.core.thread(thread_id).id)
        return tuple(row.message for row in rows if row.element is ElementKind.MESSAGE)

    def message(self, message_id: UUID) -> Message:
        """Return a message."""
        return self._message(message_id).message

    def attachments(self, message_id: UUID) -> tuple[Attachment, ...]:
        """Return a message's files, as the scanner sees them now."""
        with self.state.lock:
            rows = (self.state.files.get(one.id) for one in self._message(message_id).attachments)
            return tuple(row.attachment for row in rows if row is not None)

    def followup_state(self, message_id: UUID) -> FollowupMark | None:
        """Tell how far a follow-up came; None for a message that is none."""
        return self._message(message_id).followup

    def is_late(self, message_id: UUID) -> bool:
        """Whether a message came after its run had ended without the agent."""
        return self._message(message_id).late

    def runs(self, thread_id: UUID) -> tuple[RunView, ...]:
        """Return a thread's runs, oldest first."""
        with self.state.lock:
            rows = self.state.runs.group("thread", self.core.thread(thread_id).id)
            return tuple(self.core.view(row) for row in rows)

    def run(self, run_id: UUID) -> RunView:
        """Return a run."""
        with self.state.lock:
            return self.core.view(self.core.run(run_id))

    def interaction(self, interaction_id: UUID) -> InteractionRecord:
        """Return an interaction and its answer."""
        record = self.state.interactions.get(interaction_id)
        if record is None:
            raise Refused(404, ProblemCode.NOT_FOUND, "no such interaction")
        return record

    def interactions(self, message_id: UUID) -> tuple[InteractionRecord, ...]:
        """Return what people did with a card, oldest first."""
        with self.state.lock:
            return self.state.interactions.group("message", message_id)

    def consumers(self) -> tuple[ConsumerView, ...]:
        """Return every consumer that was ever seen."""
        with self.state.lock:
            return tuple(
                ConsumerView(
                    name=one.name,
                    connected=self.presence.connected(one.name),
                    fresh=self.presence.fresh(one.name),
                    online=self.presence.online(one.name),
                    heartbeat=one.heartbeat,
                )
                for one in self.state.consumers.all()
            )

    # What people do --------------------------------------------------------------------------------

    def create_thread(
        self, person_id: UUID, channel_id: UUID | None = None, title: str | None = None
    ) -> ThreadRecord:
        """Make a thread, in the first channel unless another is named."""
        with self.state.unit():
            self.core.person(person_id)
            return self.threads_side.create(channel_id, title)

    def post_message(
        self,
        person_id: UUID,
        thread_id: UUID,
        content: str,
        *,
        client_msg_id: str | None = None,
        session_mode: str | None = None,
        bind_ref: str | None = None,
        file_ids: Sequence[UUID] = (),
        trigger_kind: str = "message",
    ) -> Posted:
        """Write a message: it starts a run, follows one up, or (in a channel not served) is only there."""
        draft = Draft(content, client_msg_id, session_mode, bind_ref, trigger_kind, tuple(file_ids))
        with self.state.unit():
            return self.threads_side.post(person_id, thread_id, draft)

    def use_component(
        self, person_id: UUID, message_id: UUID, component_id: UUID, values: Sequence[str] = ()
    ) -> InteractionRecord:
        """Use a component of a card."""
        with self.state.unit():
            return self.cards.use(person_id, message_id, component_id, values)

    def cancel_run(self, person_id: UUID, run_id: UUID) -> RunView:
        """Cancel a run that has not ended."""
        with self.state.unit():
            person = self.core.person(person_id)
            record = self.core.run(run_id)
            if record.run.state.ended:
                raise run_ended()
            reason = ServerReason.CANCELLED_BY_PERSON
            return self.core.view(self.runs_side.end_by_server(record, RunState.CANCELLED, reason, person.id))

    def set_title(self, person_id: UUID, thread_id: UUID, title: str | None) -> ThreadRecord:
        """Give a thread a title, or with None leave it to the agent again."""
        with self.state.unit():
            self.core.person(person_id)
            return self.threads_side.set_title(thread_id, title)

    def add_file(  # noqa: PLR0917  # a person's file has so many parts
        self,
        person_id: UUID,
        thread_id: UUID,
        name: str,
        media_type: str,
        data: bytes,
        scan_status: str = ScanStatus.CLEAN,
        transcript: str | None = None,
    ) -> Attachment:
        """Put a file into a thread; `post_message` names it. Its transcript is of a voice message."""
        if len(data) > MAX_FILE_BYTES:
            raise Refused(413, ProblemCode.CONTENT_TOO_LONG, "the file is too large")
        file_id = self.core.clock.new_ordered_id()
        attachment = Attachment(
            id=file_id,
            name=name,
            media_type=media_type,
            size_bytes=len(data),
            scan_status=ScanStatus(scan_status),
        )
        spoken = Transcript(attachment_id=file_id, text=transcript or "", trust=Trust.MEMBER)
        self.core.person(person_id)
        self.core.thread(thread_id)
        self.store.put_file(file_id, data)
        with self.state.unit():
            self.threads_side.add_file(thread_id, attachment, None if transcript is None else spoken)
        return attachment

    def _message(self, message_id: UUID) -> MessageRecord:
        return self.core.message(message_id)
