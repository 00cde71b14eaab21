"""Somebody who is told about a turn and keeps everything in order."""

import itertools
from uuid import UUID


class RecordedEvents:
    """`TurnEvents`; `heard` holds (what, value) pairs. `failing` makes storing fail."""

    def __init__(self, *, failing=False):
        self.heard = []
        self.failing = failing
        self._ids = itertools.count(1)

    def of(self, *whats):
        """The values of some kinds, in order."""
        return [value for what, value in self.heard if what in whats]

    def on_status(self, text):
        self.heard.append(("status", text))

    def on_tool_end(self, end):
        self.heard.append(("tool_end", (end.title, end.failed)))

    def on_draft(self, text):
        self.heard.append(("draft", text))

    async def on_interim(self, text):
        return self._stored("interim", text)

    async def on_answer(self, text):
        return self._stored("answer", text)

    def _stored(self, what, text):
        if self.failing:
            raise OSError("the disk is full")
        self.heard.append((what, text))
        return UUID(int=next(self._ids))

    def on_edit(self, message, text):
        self.heard.append(("edit", (message, text)))

    def on_notice(self, kind):
        self.heard.append(("notice", kind))

    async def on_card(self, prompt):
        return self._stored("card", prompt)

    def on_prompt_over(self, prompt, end):
        self.heard.append(("prompt_over", (prompt, end)))

    def on_text_seen(self, message_id):
        self.heard.append(("text_seen", message_id))

    def on_prompt(self, title):
        self.heard.append(("prompt", title))

    def on_usage(self, usage):
        self.heard.append(("usage", usage))

    def on_session(self, session_id):
        self.heard.append(("session", session_id))

    def on_money_refused(self):
        self.heard.append(("money_refused", None))
