"""What Hermes said about one turn, judged: did it run, how did it end, whose words is this text.

Layer: rules. The Hermes room feeds hooks and callbacks in the order in which it heard them; the judge
holds no lock, no clock and no connection. Two rules carry it. Hermes tells how the *delivery* of a
turn went, not how the model did, so only the end hook with its exit reason proves an answer. And
Hermes sends text between tools, answers, error explanations and excuses in the same way, so a text is
the model's only if a reply of the model holds it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from .runtime import TurnEnd, TurnOutcome
from .turn_facts import ApprovalOver, Asked, Ended, Fact, Ids, Replied, Requested, RequestFailed, word_of


class TextKind(StrEnum):
    """What a text that Hermes sends is."""

    ANSWER = "answer"
    INTERIM = "interim"
    PREVIEW = "preview"
    NOTICE = "notice"


class Notice(StrEnum):
    """Kinds of texts that are no words of the model for this run; they are dropped and counted."""

    CONTROL_REPLY = "control_reply"
    """Hermes' reply to a command of ours."""
    UNMARKED = "unmarked"
    """A text without Hermes' mark of a reply (busy, lease, shutdown and retry notices), or one with it that
    no reply holds yet: Hermes is told, and sends it again if it was a reply's."""
    FOREIGN_REPLY = "foreign_reply"
    """A reply to a message that is not this turn's."""
    MODEL_ERROR = "model_error"
    """Hermes explains why the model failed."""
    EMPTY_ANSWER = "empty_answer"
    """Hermes speaks because the model did not."""
    NO_MODEL = "no_model"
    """A reply although no model was asked: a limit, a refusal, a command."""
    NO_TURN = "no_turn"
    """A text for a thread in which no run is at work: synthetic turns, late words."""
    UNKNOWN_CHAT = "unknown_chat"
    """A text without a thread: home channel, cron, a tool's own address."""
    OTHER_THREAD = "other_thread"
    """A text that a turn sends into another thread than its own."""
    SCHEDULED = "scheduled"
    """What a schedule delivers; no run has asked for it."""
    FILE = "file"
    """A file; version 1 of the protocol carries none out."""
    UNFINISHED = "unfinished"
    """What an interrupted model had written so far."""
    TURN_OVER = "turn_over"
    """A word about a turn whose run is over."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a text is; `notice` names the kind of a notice."""

    kind: TextKind
    notice: Notice | None = None


class Owner(StrEnum):
    """Whose work a hook speaks of."""

    MAIN = "main"
    CHILD = "child"
    STRANGER = "stranger"


class _Last(StrEnum):
    """The last thing that happened to the turn's own model requests."""

    NOTHING = "nothing"
    ASKED = "asked"
    REQUESTED = "requested"
    TOOL_REPLY = "tool_reply"
    FINAL_REPLY = "final_reply"
    ERROR = "error"
    ENDED = "ended"


@dataclass(slots=True)
class _Reply:
    skeleton: str = field(repr=False)
    final: bool
    claimed: bool = False


def _skeleton(text: str) -> str:
    """Letters and digits only: Hermes strips, joins and trims what the model wrote."""
    return "".join(char for char in text if char.isalnum())


class TurnJudge:
    """Judges one turn of one run.

    Args:
        own_ids: The message IDs that a reply of this turn may answer.
        session_id: The session that the thread has before the turn, None when the turn makes one.

    Attributes:
        cancelled: Whether the turn was interrupted, by us or by Hermes; whoever saw it sets it.
    """

    def __init__(self, own_ids: frozenset[str], session_id: str | None = None) -> None:
        self._own_ids = set(own_ids)
        self._own_tasks = {session_id} if session_id else set()
        self._control_ids: set[str] = set()
        self._main_session = ""
        self._main_turns: set[str] = set()
        self._child_sessions: set[str] = set()
        self._child_turns: set[str] = set()
        self._replies: list[_Reply] = []
        self._last = _Last.NOTHING
        self._error: RequestFailed | None = None
        self._end: Ended | None = None
        self._answered = False
        self.cancelled = False

    @property
    def session_id(self) -> str | None:
        """The Hermes session of the turn, None before the model was asked."""
        return self._main_session or None

    @property
    def asked(self) -> bool:
        """Whether a model was asked: without that no turn ran."""
        return self._last is not _Last.NOTHING

    @property
    def over(self) -> bool:
        """Whether Hermes has nothing more to say about the model's part.

        A turn that a model error ended gets no end hook, so a failed request stands for one once the
        delivery is over as well.
        """
        return self._last in {_Last.NOTHING, _Last.ERROR, _Last.ENDED}

    @property
    def takes_text(self) -> bool:
        """Whether a person's text may enter the turn now.

        Hermes drains texts with the next tool batch. After a reply without tools none comes, and a
        text would become a turn of its own that no run covers. Before the first request Hermes would
        put it behind the newest tool result that it has, which may be one of an earlier turn.
        """
        return self._last in {_Last.REQUESTED, _Last.TOOL_REPLY}

    @property
    def will_take_text(self) -> bool:
        """Whether the gate is still to open: the turn has begun, and nothing was requested yet."""
        return self._last is _Last.ASKED

    def add_control(self, message_id: str) -> None:
        """Remember a command of ours, so that Hermes' reply to it is known."""
        self._control_ids.add(message_id)

    def add_message(self, message_id: str) -> None:
        """Remember a person's message that was handed into the turn; answers may reply to it."""
        self._own_ids.add(message_id)

    def owner(self, ids: Ids) -> Owner:
        """Tell whose work a hook speaks of: this turn's, a subagent's of it, or somebody else's."""
        if ids.turn_id and ids.turn_id in self._main_turns:
            return Owner.MAIN
        if ids.turn_id and ids.turn_id in self._child_turns:
            return Owner.CHILD
        if ids.session_id and ids.session_id == self._main_session:
            return Owner.MAIN if ids.task_id in self._own_tasks else Owner.STRANGER
        return Owner.CHILD if ids.session_id in self._child_sessions else Owner.STRANGER

    def take(self, fact: Fact) -> Owner:
        """Take one hook in; returns whose it was. What is not this turn's own changes nothing."""
        if isinstance(fact, Asked):
            return self._take_asked(fact)
        if isinstance(fact, ApprovalOver):
            return Owner.MAIN
        owner = self.owner(fact.ids)
        if owner is not Owner.MAIN:
            return owner
        # A compression may move a turn that is at work to another session.
        self._main_session = fact.ids.session_id or self._main_session
        if isinstance(fact, Replied):
            self._take_reply(fact)
        elif isinstance(fact, Requested):
            self._last = _Last.REQUESTED if self._last is _Last.ASKED else self._last
        elif isinstance(fact, RequestFailed):
            self._last, self._error = _Last.ERROR, fact
        elif isinstance(fact, Ended):
            self._last, self._end = _Last.ENDED, fact
        return owner

    def _take_asked(self, fact: Asked) -> Owner:
        ids = fact.ids
        if fact.subagent:
            if not self.asked:
                return Owner.STRANGER
            self._child_sessions.add(ids.session_id)
            self._child_turns.add(ids.turn_id)
            return Owner.CHILD
        # A session that is compressed before the model is asked is a new one; the task is still the old.
        if ids.task_id != ids.session_id and ids.task_id not in self._own_tasks:
            return Owner.STRANGER
        self._own_tasks |= {ids.task_id, ids.session_id}
        self._main_session = ids.session_id
        self._main_turns.add(ids.turn_id)
        self._last, self._error, self._end = _Last.ASKED, None, None
        return Owner.MAIN

    def _take_reply(self, fact: Replied) -> None:
        final = not fact.tool_calls
        self._last = _Last.FINAL_REPLY if final else _Last.TOOL_REPLY
        self._error = None
        skeleton = _skeleton(fact.text)
        if skeleton:
            self._replies.append(_Reply(skeleton, final))

    def judge_text(
        self, text: str, *, notify: bool, reply_to: str | None, expect_edits: bool = False
    ) -> Verdict:
        """Say what a text is that Hermes sends into the thread.

        Args:
            text: The text.
            notify: Hermes' mark of a reply.
            reply_to: The message it replies to, None for none.
            expect_edits: Hermes will go on editing it.
        """
        if reply_to in self._control_ids:
            return Verdict(TextKind.NOTICE, Notice.CONTROL_REPLY)
        if reply_to is not None and reply_to not in self._own_ids:
            return Verdict(TextKind.NOTICE, Notice.FOREIGN_REPLY)
        if notify:
            return self.judge_whole(text)
        if expect_edits:
            return Verdict(TextKind.PREVIEW)
        return self._judge_unmarked(text)

    def _judge_unmarked(self, text: str) -> Verdict:
        """Judge a text without the mark: Hermes' own words, but for one case.

        Without streaming Hermes sends what the model wrote before a tool call without the mark.
        """
        sent = _skeleton(text)
        for reply in self._replies:
            if sent and not reply.final and not reply.claimed and sent == reply.skeleton:
                reply.claimed = True
                return Verdict(TextKind.INTERIM)
        return Verdict(TextKind.NOTICE, Notice.UNMARKED)

    def take_file(self) -> bool:
        """Hermes sends a file of the answer; returns whether there is an answer that it can belong to."""
        self._answered = self._answered or (self.asked and not self.cancelled)
        return self._answered

    def judge_whole(self, text: str) -> Verdict:
        """Say what a text is that Hermes has finished: a marked reply, or a preview's last edit."""
        if not self.asked:
            return Verdict(TextKind.NOTICE, Notice.NO_MODEL)
        reply = self._claim(_skeleton(text))
        if reply is None and (self.cancelled or (self._end is not None and self._end.interrupted)):
            return Verdict(TextKind.NOTICE, Notice.UNFINISHED)
        if reply is None:
            return self._judge_unknown()
        if not reply.final:
            return Verdict(TextKind.INTERIM)
        self._answered = True
        return Verdict(TextKind.ANSWER)

    def _claim(self, sent: str) -> _Reply | None:
        """Find the reply whose text this is; texts come in the order of their replies."""
        if not sent:
            return None
        for same in (_equal, _part_of):
            for index, reply in enumerate(self._replies):
                if not reply.claimed and same(sent, reply):
                    # What was written before it and not sent is never sent: Hermes keeps the order.
                    for earlier in self._replies[: index + 1]:
                        earlier.claimed = True
                    return reply
        return None

    def _judge_unknown(self) -> Verdict:
        """Judge a finished text that no reply holds: Hermes' own words, or words it has rewritten."""
        if self._last is _Last.ERROR:
            return Verdict(TextKind.NOTICE, Notice.MODEL_ERROR)
        if self._last is _Last.ENDED and not self._ended_with_text():
            empty = self._end is not None and self._end.completed
            return Verdict(TextKind.NOTICE, Notice.EMPTY_ANSWER if empty else Notice.MODEL_ERROR)
        if self._last is _Last.ENDED:
            self._answered = True
            return Verdict(TextKind.ANSWER)
        if self._last is _Last.TOOL_REPLY:
            return Verdict(TextKind.INTERIM)
        # Words that Hermes has rewritten come after the end: these are early, or it has given the answer up.
        return Verdict(TextKind.NOTICE, Notice.UNMARKED)

    def _ended_with_text(self) -> bool:
        end = self._end
        if end is None or not end.completed or end.failed or end.interrupted:
            return False
        if end.exit_reason is None:
            return bool(self._replies)
        return end.exit_reason.startswith("text_response")

    def end(self, not_taken: str = "no_model_request") -> TurnEnd:
        """Say how the turn ended, once nothing more of it comes.

        Args:
            not_taken: The word for a message that started no turn.
        """
        end = self._end
        reason = word_of(end.exit_reason) if end is not None else None
        if not self.asked:
            return TurnEnd(TurnOutcome.CANCELLED if self.cancelled else TurnOutcome.NOT_RUN, not_taken)
        if self._answered and self._ended_with_text():
            return TurnEnd(TurnOutcome.COMPLETED, reason)
        if self.cancelled or (end is not None and end.interrupted):
            return TurnEnd(TurnOutcome.CANCELLED, reason or "no_end")
        if self._error is not None:
            status = self._error.status
            return TurnEnd(TurnOutcome.FAILED, f"status_{status}" if status else self._error.reason)
        if end is not None and end.completed and not end.failed:
            # Also a model that said no more than a mark for silence, which Hermes keeps to itself.
            return TurnEnd(TurnOutcome.EMPTY, reason)
        return TurnEnd(TurnOutcome.FAILED, reason or "no_end")


def _equal(sent: str, reply: _Reply) -> bool:
    return sent == reply.skeleton


def _part_of(sent: str, reply: _Reply) -> bool:
    """Hermes cuts out of a reply (file paths), and joins replies before the last one to it."""
    return sent in reply.skeleton or (reply.final and reply.skeleton in sent)
