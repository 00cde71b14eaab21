"""The seam between the adapter and Hermes.

Layer: values. `Runtime` is what the adapter asks of Hermes, `TurnEvents` what Hermes tells about one
turn while it runs. Two rooms implement `Runtime` (`hermes_plugin` inside a gateway, `hermes_api` over
HTTP), `runs` implements `TurnEvents`, and both sides are tested against fakes of the other.

Threads: everything here is called on the adapter's event loop. A runtime that hears from Hermes on
another thread hops to the loop first, in the order in which it heard.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol
from uuid import UUID

from .wire_words import BillingMode, KeyType, SessionMode


class BusyMode(StrEnum):
    """What Hermes does with a text that comes while a turn runs."""

    STEER = "steer"
    QUEUE = "queue"
    INTERRUPT = "interrupt"


class TurnOutcome(StrEnum):
    """How a turn ended."""

    COMPLETED = "completed"
    """The model finished its answer."""
    EMPTY = "empty"
    """The model finished and said nothing."""
    FAILED = "failed"
    """The model or Hermes failed."""
    CANCELLED = "cancelled"
    """The turn was interrupted."""
    NOT_RUN = "not_run"
    """Hermes took the message and ran no turn for it."""


@dataclass(frozen=True, slots=True)
class Spending:
    """Whose money a turn is proven to spend, and through whom.

    Attributes:
        mode: The billing mode.
        provider: Hermes' name of the provider whose credential proves it.
        base_url: That provider's server; None when Hermes did not say.
    """

    mode: BillingMode
    provider: str
    base_url: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """One turn that Hermes is to do.

    Attributes:
        run_id: The run.
        thread_id: What Hermes gets as its thread: the Bothy thread, or the run's ID for guests.
        channel_id: The channel, Hermes' chat.
        user_id: The person the turn is for.
        user_name: That person's display name.
        message_id: The message that triggered the run.
        user_text: What the model reads as the person's words.
        system_part: What the model reads as part of its instructions, for this turn only.
        spends: What the run's evidence says of its money; without it no model request may leave.
    """

    run_id: UUID
    thread_id: UUID
    channel_id: UUID
    user_id: UUID
    user_name: str = field(repr=False)
    message_id: UUID
    user_text: str = field(repr=False)
    system_part: str = field(repr=False)
    spends: Spending | None = None


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """How a turn ended.

    Attributes:
        outcome: The outcome.
        detail: A fixed word or number for logs and for the live box (an exit reason of Hermes, a
            status of the model's server); never a text that a model or a person wrote.
    """

    outcome: TurnOutcome
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class ResolvedCredential:
    """The kind of credential that Hermes resolves for the next turn; never its value.

    Attributes:
        provider: Hermes' name of the provider, None when unknown.
        key_type: What kind of key it is.
        base_url: The provider's server; None when Hermes did not say.
    """

    provider: str | None
    key_type: KeyType
    base_url: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one model request of a turn; None is unknown.

    Attributes:
        provider: Who was asked.
        model: Which model answered.
        tokens_in: Input tokens that no cache held.
        tokens_out: Output tokens.
        tokens_cache_read: Tokens read from the provider's cache.
        tokens_cache_write: Tokens written to it.
        currency: ISO 4217 code when Hermes states one.
        amount_micros: Hermes' estimate in millionths of the currency.
    """

    provider: str
    model: str
    tokens_in: int | None
    tokens_out: int | None
    tokens_cache_read: int | None
    tokens_cache_write: int | None
    currency: str | None = None
    amount_micros: int | None = None


@dataclass(frozen=True, slots=True)
class ToolEnd:
    """The end of one tool call.

    Attributes:
        title: The sentence the step was opened with, or the tool's name.
        failed: Whether the tool reported an error.
    """

    title: str | None = field(repr=False)
    failed: bool


class PromptKind(StrEnum):
    """What Hermes waits for."""

    CLARIFY = "clarify"
    """A question, with answers to choose from or open."""
    APPROVAL = "approval"
    """Leave to run one command."""
    CONFIRMATION = "confirmation"
    """A yes to a slash command of Hermes that destroys something."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """Something that Hermes waits for a person to answer.

    Attributes:
        kind: What it is.
        hermes_id: Hermes' own ID of it, the only thing by which it is resolved.
        session_key: Under which key Hermes keeps it waiting; empty where it needs none.
        question: The question, the reason an approval is asked for, or the confirmation's text.
        choices: A clarify's answers in full, in Hermes' order (none: an open question), or the words
            of the choices that Hermes offers for an approval or a confirmation (`once`, `deny`, …).
        title: A confirmation's heading.
        command: The command that an approval is about, whole.
    """

    kind: PromptKind
    hermes_id: str
    session_key: str = ""
    question: str = field(repr=False, default="")
    choices: tuple[str, ...] = field(repr=False, default=())
    title: str | None = field(repr=False, default=None)
    command: str | None = field(repr=False, default=None)


class PromptEnd(StrEnum):
    """Why Hermes stopped waiting by itself."""

    EXPIRED = "expired"
    """Nobody answered in Hermes' time."""
    CANCELLED = "cancelled"
    """The turn was interrupted, or Hermes has given the prompt up."""


MAX_ANCESTORS = 20
"""How far a session's ancestors are followed: each is one compression."""


class SessionSwitch(StrEnum):
    """What became of the wish for a session."""

    KEPT = "kept"
    """The thread goes on with the session it has (or has none yet, and the next turn makes one)."""
    NEW = "new"
    """A new Hermes session serves the thread."""
    BOUND = "bound"
    """The thread goes on with the named session."""
    MISSING = "missing"
    """There is no session with the named ID (any more); a new one serves the thread."""
    NO_ID = "no_id"
    """What was named is no session's ID: a title, a number, a command; a new one serves the thread."""
    FOREIGN = "foreign"
    """The named session was made on another platform; a new one serves the thread."""
    NOT_TAKEN = "not_taken"
    """Hermes did not go on with the named session although it has it; a new one serves the thread."""

    @property
    def in_vain(self) -> bool:
        """Whether the named session could not be continued."""
        return self not in {SessionSwitch.KEPT, SessionSwitch.NEW, SessionSwitch.BOUND}


@dataclass(frozen=True, slots=True)
class RuntimeCapabilities:
    """What a runtime can show and take, as the heartbeat reports it."""

    components: bool
    clarify: bool
    approvals: bool
    title: bool
    followups: bool


class TurnEvents(Protocol):
    """What Hermes tells about one turn.

    A method that returns an awaitable resolves once the call is durable on this side, never once the
    server has it: Hermes would repeat what it thinks failed.
    """

    def on_status(self, text: str | None) -> None:
        """A tool started (a sentence about it), or the sentence was cleared (None)."""

    def on_tool_end(self, end: ToolEnd) -> None:
        """A tool call ended."""

    def on_draft(self, text: str) -> None:
        """The text of the current segment so far; cumulative."""

    async def on_interim(self, text: str) -> UUID:
        """Text that the model wrote before a tool call; returns the message's `client_msg_id`."""

    async def on_answer(self, text: str) -> UUID:
        """A part of the answer; returns the message's `client_msg_id`."""

    def on_edit(self, message: UUID, text: str) -> None:
        """Hermes rewrote a message it had sent; `message` is what `on_answer` returned."""

    def on_notice(self, kind: str) -> None:
        """Hermes posted something that is no answer; it was dropped. `kind` is a fixed word."""

    async def on_card(self, prompt: Prompt) -> UUID:
        """Hermes waits for a person; returns the card's `client_msg_id`.

        The prompt is answered by `Runtime.answer_prompt`, now or while this call has not returned yet.
        """

    def on_prompt_over(self, prompt: Prompt, end: PromptEnd) -> None:
        """Hermes waits no longer for a prompt that was not answered through `answer_prompt`."""

    def on_prompt(self, title: str) -> None:
        """Hermes asked for something that nobody can be asked; shown as a step that failed."""

    def on_text_seen(self, message_id: UUID) -> None:
        """A text that `Runtime.steer` handed in is part of a request to the model."""

    def on_usage(self, usage: Usage) -> None:
        """One model request of this turn was paid."""

    def on_session(self, session_id: str) -> None:
        """The Hermes session that the turn runs on."""

    def on_money_refused(self) -> None:
        """A model request would have paid somebody whom the run's evidence does not cover.

        It was stopped, and the turn has been interrupted.
        """


class Runtime(Protocol):
    """What the adapter asks of Hermes."""

    @property
    def version(self) -> str | None:
        """Hermes' version, None when it cannot be told."""

    @property
    def busy_mode(self) -> BusyMode | None:
        """What Hermes does with a text during a turn, None for a value nobody knows."""

    @property
    def capabilities(self) -> RuntimeCapabilities:
        """What this runtime can show and take."""

    @property
    def dropped(self) -> Mapping[str, int]:
        """What Hermes said and no run has posted, by kind, since the runtime began."""

    async def resolved_credential(self) -> ResolvedCredential:
        """Tell which kind of credential the next turn spends with.

        Never raises and never takes longer than its own deadline: what cannot be told in time is
        `KeyType.UNKNOWN`.
        """

    async def loaded_toolsets(self) -> frozenset[str] | None:
        """Tell which toolsets and MCP servers the next turn can use; None when it cannot be told."""

    async def start_turn(self, turn: TurnRequest, events: TurnEvents) -> TurnEnd:
        """Have Hermes do one turn and wait for its end.

        No model request leaves that spends otherwise than `turn.spends` says. At the end nothing of the
        turn is still to be told. Cancelling the call interrupts the turn.
        """

    async def interrupt(self, run_id: UUID) -> None:
        """Interrupt a run's turn; `start_turn` returns soon after. Does nothing when none runs.

        Every prompt that the turn waits on is released.
        """

    async def steer(self, run_id: UUID, text: str, message_id: UUID) -> bool:
        """Hand a person's text into a run's turn.

        Returns:
            Whether Hermes took it. False when no turn runs, when the turn's last reply was given and
            a text would become a turn that no run covers, or when the busy mode hands nothing in.
        """

    async def answer_prompt(self, prompt: Prompt, answer: str) -> bool:
        """Resolve what Hermes waits for.

        Args:
            prompt: The prompt, by its kind and Hermes' own ID alone.
            answer: A clarify's answer in full (`""` is no answer), or the word of a choice (`once`,
                `session`, `always`, `deny`; for a confirmation `once`, `always`, `cancel`).

        Returns:
            Whether this call resolved it; False when nothing waits under that ID any more.
        """

    async def use_session(self, turn: TurnRequest, mode: SessionMode, reference: str | None) -> SessionSwitch:
        """Have the next turn of the request's thread run on the wanted session.

        Args:
            turn: The turn about to start.
            mode: `new`: a session without history. `resume`: the referenced one, the thread's own
                without a reference. `bind`: the referenced one.
            reference: Hermes' ID of a session, never a title.
        """

    async def session_parent(self, session_id: str) -> str | None:
        """The session out of which a session grew (a compression), None when it did not."""

    async def session_title(self, session_id: str) -> str | None:
        """The title that the model gave a session; None without one, or while it has a derived one."""
