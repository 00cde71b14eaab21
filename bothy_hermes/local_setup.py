"""The first state of an instance: one agent, one channel, an owner and a member.

Layer: default. It runs once per state directory; what people change later is never set back.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from .clock import Clock
from .local_core import Core
from .local_records import AgentRecord, ChannelRecord, InstanceRecord, Person, Role
from .local_tokens import ensure_dpop_key, new_signing_key, new_token, read_agent_token, write_agent_token
from .wire import AllowEntry
from .wire_words import RunKind

AGENT_NAME = "Hermes"
CHANNEL_NAME = "general"
OWNER_NAME = "Ada"
MEMBER_NAME = "Ben"


def ensure_first_state(core: Core, directory: Path) -> None:
    """Make the first state where there is none, and the agent's files where they are missing.

    Raises:
        StateError: A file cannot be read or written.
    """
    with core.state.unit():
        if not core.state.instances.all():
            _make(core, directory)
            return
        agent = core.state.agent
        digest = read_agent_token(directory) or write_agent_token(directory, core.clock)
        jkt = ensure_dpop_key(directory) if agent.dpop_jkt is not None else None
        if (digest, jkt) != (agent.token_digest, agent.dpop_jkt):
            changed = dataclasses.replace(agent, token_digest=digest, dpop_jkt=jkt)
            core.state.agents.put(agent.id, changed)


def _make(core: Core, directory: Path) -> None:
    state, clock = core.state, core.clock
    instance = InstanceRecord(id=clock.new_ordered_id(), settings_version=1, created_at=core.now())
    state.instances.put(instance.id, instance)
    key = new_signing_key()
    state.keys.put(key.kid, key)
    owner = new_person(clock, OWNER_NAME, Role.OWNER, approve_actions=True)
    member = new_person(clock, MEMBER_NAME, Role.MEMBER, approve_actions=False)
    for person in (owner, member):
        state.people.put(person.id, person)
    channel = ChannelRecord(id=clock.new_ordered_id(), name=CHANNEL_NAME, served=True, prompt=None, skills=())
    state.channels.put(channel.id, channel)
    agent = AgentRecord(
        id=clock.new_ordered_id(),
        name=AGENT_NAME,
        owner_id=owner.id,
        token_digest=write_agent_token(directory, clock),
        dpop_jkt=ensure_dpop_key(directory) if core.options.dpop else None,
        allow_version=1,
        allow=tuple(
            AllowEntry(principal_id=person.id, run_kinds=(RunKind.OPERATOR,)) for person in (owner, member)
        ),
    )
    state.agents.put(agent.id, agent)


def new_person(clock: Clock, name: str, role: Role, *, approve_actions: bool) -> Person:
    """Make a person with a login token of their own."""
    return Person(
        id=clock.new_ordered_id(),
        name=name,
        role=role,
        approve_actions=approve_actions,
        token=new_token(clock),
    )
