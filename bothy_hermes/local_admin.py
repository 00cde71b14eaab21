"""What an instance's administrators change: people, channels, the allow list, keys, options.

Layer: default. The half of `local_instance.Instance` that is not about conversations. The adapter hears
of changed settings by `agent.config_changed`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from .local_core import Core
from .local_nonces import Nonces
from .local_options import KEPT_SECONDS
from .local_records import ChannelRecord, Person, Role
from .local_rules import run_ended
from .local_runs import Runs
from .local_setup import new_person
from .local_store import LocalStore
from .local_threads import Threads
from .local_tokens import new_signing_key, write_agent_token
from .wire import AllowEntry, RunView, Skill
from .wire_words import ElementKind, EventType, RunKind, RunState, ScanStatus, ServerReason, Trust


class Administration:
    """What administrators change.

    Args:
        core: Records, clock and options.
        store: The state directory.
        threads: All threads.
        runs: All runs.
        nonces: The nonces of proofs.
    """

    def __init__(self, core: Core, store: LocalStore, threads: Threads, runs: Runs, nonces: Nonces) -> None:
        self.core = core
        self.state = core.state
        self.store = store
        self.threads_side = threads
        self.runs_side = runs
        self.nonces = nonces

    def add_person(
        self,
        name: str,
        role: str = Role.MEMBER,
        approve_actions: bool = False,
        *,
        run_kinds: Iterable[str] = (RunKind.OPERATOR,),
    ) -> Person:
        """Add a person and, unless there are no `run_kinds`, let them address the agent."""
        with self.state.unit():
            person = new_person(self.core.clock, name, Role(role), approve_actions=approve_actions)
            self.state.people.put(person.id, person)
            self._allow(person.id, run_kinds)
            return person

    def change_person(
        self, person_id: UUID, *, role: str | None = None, approve_actions: bool | None = None
    ) -> Person:
        """Change what a person is to the instance."""
        with self.state.unit():
            person = self.core.person(person_id)
            changed = dataclasses.replace(
                person,
                role=person.role if role is None else Role(role),
                approve_actions=person.approve_actions if approve_actions is None else approve_actions,
            )
            return self.state.people.put(person_id, changed)

    def set_allowed(self, person_id: UUID, run_kinds: Iterable[str]) -> None:
        """Set for which kinds of runs a person may address the agent."""
        with self.state.unit():
            self.core.person(person_id)
            self._allow(person_id, run_kinds)

    def add_channel(self, name: str, *, served: bool = True) -> ChannelRecord:
        """Add a channel; where the agent does not serve it, a message calls it in by `@` and its name."""
        with self.state.unit():
            record = ChannelRecord(
                id=self.core.clock.new_ordered_id(), name=name, served=served, prompt=None, skills=()
            )
            return self.state.channels.put(record.id, record)

    def set_channel_config(
        self, channel_id: UUID, prompt: str | None, skills: Iterable[tuple[str, str]] = ()
    ) -> ChannelRecord:
        """Set what a channel's managers tell the agent; the adapter hears of it."""
        with self.state.unit():
            record = dataclasses.replace(
                self.core.channel(channel_id),
                prompt=prompt,
                skills=tuple(Skill(name=name, text=text) for name, text in skills),
            )
            self.state.channels.put(channel_id, record)
            self._settings_changed()
            return record

    def set_scan_status(self, file_id: UUID, status: str) -> None:
        """Set what the scanner says of a file."""
        with self.state.unit():
            record = self.state.files.need(file_id)
            attachment = dataclasses.replace(record.attachment, scan_status=ScanStatus(status))
            self.state.files.put(file_id, dataclasses.replace(record, attachment=attachment))

    def add_element(self, thread_id: UUID, kind: str, content: str, trust: str = Trust.UNVERIFIED) -> UUID:
        """Add a summary, the participants or a file's text to the contexts of a thread."""
        with self.state.unit():
            record = self.threads_side.add_element(thread_id, ElementKind(kind), content, Trust(trust))
            return record.message.id

    def rotate_signing_key(self, *, keep_old: bool = True) -> str:
        """Sign with a new key from now on.

        Args:
            keep_old: Whether the old key stays in the published set. The server takes it in any case
                until the tokens it signed are gone.

        Returns:
            The new key's ID.
        """
        with self.state.unit():
            for key in self.state.keys.all():
                published = key.published and keep_old
                self.state.keys.put(key.kid, dataclasses.replace(key, active=False, published=published))
            fresh = new_signing_key()
            self.state.keys.put(fresh.kid, fresh)
            return fresh.kid

    def rotate_agent_token(self) -> None:
        """Replace the agent token in its file; the old one is refused from now on."""
        with self.state.unit():
            agent = self.state.agent
            digest = write_agent_token(self.store.directory, self.core.clock)
            self.state.agents.put(agent.id, dataclasses.replace(agent, token_digest=digest))

    @property
    def nonces_required(self) -> bool:
        """Whether the agent's proofs need a nonce of the server."""
        return self.state.instance.nonces_required

    def require_nonces(self, required: bool = True) -> None:
        """Demand a nonce in every proof, or stop demanding it."""
        with self.state.unit():
            changed = dataclasses.replace(self.state.instance, nonces_required=required)
            self.state.instances.put(changed.id, changed)

    def new_nonce(self) -> None:
        """Give out another nonce from now on; the one before is still taken."""
        self.nonces.renew()

    def set_options(self, **options: Any) -> None:
        """Change options while the server runs; the adapter hears of it."""
        with self.state.unit():
            self.core.options = dataclasses.replace(self.core.options, **options)
            self._settings_changed()

    def end_run(self, run_id: UUID, reason: str = ServerReason.EXPIRED) -> RunView:
        """End a run as the server does it."""
        with self.state.unit():
            record = self.core.run(run_id)
            if record.run.state.ended:
                raise run_ended()
            return self.core.view(self.runs_side.end_by_server(record, RunState.FAILED, ServerReason(reason)))

    # Steps -----------------------------------------------------------------------------------------

    def _allow(self, person_id: UUID, run_kinds: Iterable[str]) -> None:
        agent = self.state.agent
        kinds = tuple(RunKind(kind) for kind in run_kinds)
        others = tuple(entry for entry in agent.allow if entry.principal_id != person_id)
        allow = (*others, AllowEntry(principal_id=person_id, run_kinds=kinds)) if kinds else others
        changed = dataclasses.replace(agent, allow=allow, allow_version=agent.allow_version + 1)
        self.state.agents.put(agent.id, changed)

    def _settings_changed(self) -> None:
        instance = self.state.instance
        changed = dataclasses.replace(instance, settings_version=instance.settings_version + 1)
        self.state.instances.put(instance.id, changed)
        for consumer in self.state.consumers.all():
            if not self.core.passed(consumer.seen_at, KEPT_SECONDS):
                self.core.emit(EventType.CONFIG_CHANGED, consumer=consumer.name)
