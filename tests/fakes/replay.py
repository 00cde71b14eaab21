"""Hermes as it was recorded: the calls of a cassette, made again on the platform without Hermes."""

import asyncio
import contextvars
from types import SimpleNamespace
from uuid import UUID

from tests.recording import CASSETTES, read_rows

OBJECTS = frozenset({"assistant_message", "outcome"})
"""Arguments that are objects of Hermes; everything else is plain data."""


class Registered:
    """Hermes' plugin context: keeps what the plugin registers."""

    manifest = SimpleNamespace(name="bothy")

    def __init__(self):
        self.hooks = {}
        self.factory = None

    def register_platform(self, *, adapter_factory, **_entry):
        self.factory = adapter_factory

    def register_hook(self, name, callback):
        self.hooks[name] = callback


class Replay:
    """Plays one cassette each time the platform hands a message in."""

    def __init__(self, name, state, hooks, adapter):
        self.rows = read_rows(CASSETTES / f"{name}.jsonl")
        self._state = state
        self._hooks = hooks
        self._adapter = adapter
        self._tasks = set()
        adapter.on_handle = self.handle

    async def handle(self, event):
        """Take an event as Hermes does: at once, with the turn in a task of its own."""
        assert self.rows[0]["name"] == "handle_message"
        values = Values(self.rows[0]["arguments"]["event"], event)
        task = asyncio.get_running_loop().create_task(self._play(values))
        self._tasks.add(task)
        task.add_done_callback(lambda done: (self._tasks.discard(done), done.result()))

    async def _play(self, values):
        for row in self.rows[1:]:
            arguments = values.of(row["arguments"])
            context = contextvars.copy_context()
            context.run(self._state.in_thread, values.of(row["bothy_thread"]) or "")
            target = (
                self._hooks[row["name"]]
                if row["kind"] == "hook"
                else getattr(self._adapter, row["name"], None)
            )
            if target is None:
                continue  # a call that Hermes' own base class answers
            if row["thread"] == "worker":
                await asyncio.to_thread(context.run, lambda call=target, named=arguments: call(**named))
            else:
                await asyncio.get_running_loop().create_task(target(**arguments), context=context)


class Values:
    """The recorded names of IDs, with what they stand for in this replay."""

    def __init__(self, recorded, event):
        self._event = event
        source = event.source
        self._ids = {
            recorded["message_id"]: str(event.message_id),
            recorded["source"]["chat_id"]: str(source.chat_id),
            recorded["source"]["thread_id"]: str(source.thread_id),
            recorded["source"]["user_id"]: str(source.user_id),
        }
        assert all(UUID(one) for one in self._ids.values())

    def of(self, value):
        """A recorded value as it is handed to the platform."""
        if isinstance(value, str):
            return self._ids.get(value, value)
        if isinstance(value, list):
            return [self.of(one) for one in value]
        if isinstance(value, dict):
            return {key: self._member(key, one) for key, one in value.items()}
        return value

    def _member(self, key, value):
        if key == "event":
            return self._event
        if key == "outcome":
            return SimpleNamespace(value=value)
        return as_object(value) if key == "assistant_message" else self.of(value)


def as_object(value):
    """JSON with attributes instead of members."""
    if isinstance(value, dict):
        return SimpleNamespace(**{key: as_object(one) for key, one in value.items()})
    return [as_object(one) for one in value] if isinstance(value, list) else value
