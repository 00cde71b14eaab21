"""What people see of the instance: its records as answers and events of the people's side.

Layer: default. Reads only. What nobody is to see (tokens, digests, sessions) is not in any of these
values, but for the login that an owner hands over.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from .local_changes import Change
from .local_core import person_principal
from .local_instance import Instance
from .local_people_wire import (
    EXCERPT_CHARS,
    AdminChannel,
    AdminView,
    AgentView,
    ChannelList,
    MeView,
    PeopleChannel,
    PeopleInteraction,
    PeopleMessage,
    PeopleThread,
    PersonView,
    ThreadList,
    ThreadPage,
)
from .local_records import ChannelRecord, InteractionRecord, Person, ThreadRecord
from .wire import Message, RunView
from .wire_words import MessageKind

PAGE_MESSAGES = 200
"""Messages of one answer: several screens, and the page asks for more when somebody scrolls up."""

PAGE_CHARS = 1_048_576
"""Characters of text in one answer, beyond which it holds fewer messages (but at least one)."""


class Views:
    """Turns what the instance holds into what people get.

    Args:
        instance: The instance.
    """

    def __init__(self, instance: Instance) -> None:
        self._instance = instance

    def me(self, person: Person) -> MeView:
        """A person and what the page has to know first."""
        return MeView(
            id=person.id,
            name=person.name,
            role=person.role,
            approve_actions=person.approve_actions,
            instance_id=self._instance.id,
            agent=self.agent(),
            max_content_bytes=self._instance.options.max_content_bytes,
            position=self._instance.changes.latest,
        )

    def agent(self) -> AgentView:
        """The agent, and how its consumers are."""
        agent = self._instance.agent
        online = [one for one in self._instance.consumers() if one.online]
        reasons = {
            reason
            for one in online
            if one.heartbeat is not None
            for reason in one.heartbeat.details.degraded_reasons or ()
        }
        return AgentView(
            id=agent.id,
            display_name=agent.name,
            owner_id=agent.owner_id,
            online=bool(online),
            connected=any(one.connected for one in online),
            degraded_reasons=tuple(sorted(reasons)),
        )

    def channels(self) -> ChannelList:
        """Every channel."""
        found = (
            PeopleChannel(id=one.id, name=one.name, served=one.served) for one in self._instance.channels()
        )
        return ChannelList(channels=tuple(found))

    def threads(self) -> ThreadList:
        """Every thread, and what is going on in them."""
        position = self._instance.changes.latest
        threads = self._instance.threads()
        return ThreadList(
            threads=tuple(self.thread(one) for one in threads),
            active_runs=tuple(
                view for one in threads for view in self._instance.runs(one.id) if not view.run.state.ended
            ),
            position=position,
        )

    def thread(self, record: ThreadRecord) -> PeopleThread:
        """A thread."""
        first = next(iter(self._instance.messages(record.id)), None)
        return PeopleThread(
            id=record.id,
            channel_id=record.channel_id,
            title=record.title,
            excerpt=None if first is None else first.content[:EXCERPT_CHARS],
            title_source=record.title_source,
            version=record.version,
            updated_at=record.updated_at,
        )

    def page(self, thread_id: UUID, before: UUID | None) -> ThreadPage:
        """A stretch of a thread that ends with its newest message, or before a message.

        Raises:
            Refused: 404 without such a thread.
        """
        position = self._instance.changes.latest
        thread = self._instance.thread(thread_id)
        shown, earlier = stretch(self._instance.messages(thread_id), before)
        return ThreadPage(
            thread=self.thread(thread),
            messages=tuple(self.message(one) for one in shown),
            runs=_runs_of(self._instance.runs(thread_id), shown),
            interactions=tuple(
                self.interaction(used)
                for one in shown
                if one.kind is MessageKind.CARD
                for used in self._instance.interactions(one.id)
            ),
            earlier=earlier,
            position=position,
        )

    def message(self, message: Message) -> PeopleMessage:
        """A message with what only people see of it."""
        own = {field.name: getattr(message, field.name) for field in dataclasses.fields(message)}
        return PeopleMessage(
            **own,
            attachments=self._instance.attachments(message.id),
            followup=self._instance.followup_state(message.id),
            late=self._instance.is_late(message.id),
        )

    def interaction(self, record: InteractionRecord) -> PeopleInteraction:
        """The use of a component, and the answer to it."""
        used = record.interaction
        return PeopleInteraction(
            id=used.id,
            thread_id=self._instance.message(used.message_id).thread_id,
            run_id=used.run_id,
            message_id=used.message_id,
            component_id=used.component_id,
            operator=person_principal(self._instance.person(used.operator_id)),
            values=used.values,
            status=record.status,
            text=record.text,
            created_at=record.created_at,
        )

    def changed(self, change: Change) -> Any:
        """The thing that changed, as it is now.

        Raises:
            Refused: It is gone.
        """
        if change.kind == "thread":
            return self.thread(self._instance.thread(change.id))
        if change.kind == "message":
            return self.message(self._instance.message(change.id))
        if change.kind == "run":
            return self._instance.run(change.id)
        return self.interaction(self._instance.interaction(change.id))

    def person(self, person: Person) -> PersonView:
        """A person without the login token."""
        return PersonView(
            id=person.id, name=person.name, role=person.role, approve_actions=person.approve_actions
        )

    def admin_channel(self, record: ChannelRecord) -> AdminChannel:
        """A channel with what the agent is told there."""
        return AdminChannel(
            id=record.id, name=record.name, served=record.served, prompt=record.prompt, skills=record.skills
        )

    def admin(self) -> AdminView:
        """Everything that an owner can change."""
        return AdminView(
            people=tuple(self.person(one) for one in self._instance.people()),
            allow_list=self._instance.agent.allow,
            channels=tuple(self.admin_channel(one) for one in self._instance.channels()),
            require_nonces=self._instance.nonces_required,
        )


def stretch(messages: Sequence[Message], before: UUID | None) -> tuple[tuple[Message, ...], bool]:
    """Cut a page out of a thread.

    Args:
        messages: All of the thread, oldest first.
        before: Where the page ends, exclusively; at the newest message when it is None or unknown.

    Returns:
        The page, oldest first, and whether more comes before it.
    """
    end = next((index for index, one in enumerate(messages) if one.id == before), len(messages))
    first, room = end, PAGE_CHARS
    while first > max(0, end - PAGE_MESSAGES):
        room -= len(messages[first - 1].content)
        if room < 0 and first < end:
            break
        first -= 1
    return tuple(messages[first:end]), first > 0


def _runs_of(runs: Sequence[RunView], shown: Sequence[Message]) -> tuple[RunView, ...]:
    """The runs that the shown messages belong to, and those that have not ended."""
    wanted = {one.run_id for one in shown}
    return tuple(view for view in runs if view.run.id in wanted or not view.run.state.ended)
