"""What the adapter writes: messages, cards, new contents, and how far follow-ups came (sections 4 and 7).

Layer: default. A message is the same message as often as its `client_msg_id` is sent; that is looked up
before anything else is judged.
"""

from __future__ import annotations

import dataclasses
from typing import Any
from uuid import UUID

from .local_core import Core, agent_principal, digest
from .local_records import CardRecord, CardState, FollowupMark, MessageRecord, RunRecord
from .local_rules import (
    FOLLOWUP_MOVES,
    Refused,
    check_components,
    check_part,
    conflict,
    forbidden,
    invalid,
    run_ended,
)
from .local_runs import Runs
from .wire import Component, ComponentCreate, CreateMessage, Followup, Message, Part, UpdateMessage
from .wire_words import (
    ElementKind,
    FollowupState,
    MessageKind,
    MessageRole,
    ProblemCode,
    RunState,
    Trust,
)


class Messages:
    """The agent's messages.

    Args:
        core: Records, clock and options.
        runs: For what may come after the end.
    """

    def __init__(self, core: Core, runs: Runs) -> None:
        self._core = core
        self._state = core.state
        self._runs = runs

    def create(self, run: RunRecord, body: CreateMessage) -> tuple[Message, bool]:
        """Take a message of a run.

        Returns:
            The message, and whether it is new.
        """
        known = self._known(run, body)
        if known is not None:
            return known.message, False
        late = self._check_time(run, body)
        self._check_body(run, body)
        message = self._message(run, body)
        self._core.put_message(
            MessageRecord(
                message=message,
                element=ElementKind.MESSAGE,
                trust=Trust.TRUSTED,
                attachments=(),
                transcripts=(),
                body_digest=digest(body),
                late=late,
            )
        )
        if message.kind is MessageKind.CARD:
            disabled = tuple(one.id for one in message.components if one.disabled)
            card = CardRecord(
                message_id=message.id, run_id=run.run.id, state=CardState.POSTED, born_disabled=disabled
            )
            self._state.cards.put(message.id, card)
        return message, True

    def update(self, record: MessageRecord, body: UpdateMessage) -> Message:
        """Give an own text message of the run a new content."""
        if record.message.kind is not MessageKind.TEXT:
            raise invalid("a card has no new content")
        if not body.content:
            raise invalid("an empty text message")
        message = dataclasses.replace(
            record.message, content=body.content, version=record.message.version + 1
        )
        self._core.put_message(dataclasses.replace(record, message=message))
        return message

    def own(self, run: RunRecord, message_id: UUID) -> MessageRecord:
        """Return a message that the agent wrote in this run."""
        record = self._core.message(message_id)
        agent = self._state.agent.id
        if record.message.run_id != run.run.id or record.message.author.id != agent:
            raise forbidden("the message is not of this run")
        return record

    def report_followup(self, run: RunRecord, message_id: UUID, body: Followup) -> Followup:
        """Take how far a follow-up came; absorbed is final."""
        record = self._core.message(message_id)
        if record.followup is None or record.followup_of != run.run.id:
            raise forbidden("the message is no follow-up of this run")
        mark = FollowupMark(body.state)
        if mark not in FOLLOWUP_MOVES[record.followup]:
            raise conflict(ProblemCode.FOLLOWUP_ABSORBED, "the follow-up came further before", violation=True)
        absorbed = body.state is FollowupState.ABSORBED
        changes: dict[str, Any] = {"followup": mark}
        if absorbed:
            changes["message"] = dataclasses.replace(record.message, run_id=run.run.id)
        self._core.put_message(dataclasses.replace(record, **changes))
        return body

    def _known(self, run: RunRecord, body: CreateMessage) -> MessageRecord | None:
        key = (run.run.id, self._state.agent.id, body.client_msg_id)
        found = next(iter(self._state.messages.group("call", key)), None)
        if found is not None and found.body_digest != digest(body):
            raise invalid("another message has this client_msg_id")
        return found

    def _check_time(self, run: RunRecord, body: CreateMessage) -> bool:
        """Refuse a message that comes too early or too late; say whether it comes late and is taken."""
        if run.run.state is RunState.QUEUED:
            raise conflict(ProblemCode.RUN_NOT_RUNNING, "the run was not started", violation=True)
        if not run.run.state.ended:
            return False
        if body.kind is MessageKind.TEXT and self._runs.takes_late_messages(run):
            return True
        raise run_ended()

    def _check_body(self, run: RunRecord, body: CreateMessage) -> None:
        if body.kind is MessageKind.TEXT:
            if not body.content:
                raise invalid("an empty text message")
            if body.components:
                raise invalid("a text message with components", ProblemCode.COMPONENT_INVALID)
        elif body.role is not MessageRole.INTERIM or body.part is not None:
            raise invalid("a card is interim and has no parts")
        check_components(body.components or ())
        check_part(body.part, self._part_before(run))
        if body.reply_to is not None:
            target = self._state.messages.get(body.reply_to)
            if target is None or target.message.thread_id != run.run.thread_id:
                raise invalid("reply_to is no message of this thread")

    def _part_before(self, run: RunRecord) -> Part | None:
        parts = [one.message.part for one in self._state.messages.group("run", run.run.id)]
        return next((part for part in reversed(parts) if part is not None), None)

    def _message(self, run: RunRecord, body: CreateMessage) -> Message:
        return Message(
            id=self._core.clock.new_ordered_id(),
            thread_id=run.run.thread_id,
            run_id=run.run.id,
            kind=body.kind,
            role=body.role,
            content=body.content,
            part=body.part,
            reply_to=body.reply_to,
            author=agent_principal(self._state.agent),
            components=tuple(self._component(one) for one in body.components or ()),
            version=1,
            client_msg_id=body.client_msg_id,
            closed=None,
            created_at=self._core.now(),
        )

    def _component(self, asked: ComponentCreate) -> Component:
        members = {field.name: getattr(asked, field.name) for field in dataclasses.fields(asked)}
        return Component(id=self._core.clock.new_ordered_id(), **members)


def check_content_size(content: Any, limit: int) -> None:
    """Refuse a content that is longer than this server takes, before its schema is looked at.

    Raises:
        Refused: 413 `content_too_long`.
    """
    if isinstance(content, str) and len(content.encode("utf-8", "replace")) > limit:
        raise Refused(413, ProblemCode.CONTENT_TOO_LONG, "the content is too long", violation=True)
