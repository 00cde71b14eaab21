"""Cards: the prompts of Hermes that wait for a person, as messages with components.

Layer: rules (section 10 of docs/protocol.md). Builds a card's text and components, reads an
interaction back, and says what it stands for in Hermes. It refuses to guess: an interaction that does
not fit its card exactly stands for nothing, and a typed text never approves anything.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from .card_text import card_text, command_fits, labels, status_line
from .errors import IllegalMove
from .plain_text import one_line
from .runtime import Prompt, PromptKind
from .wire import ComponentCreate, Option
from .wire_words import (
    MAX_CONTENT_BYTES,
    MAX_RESPONSE_CHARS,
    Capability,
    ComponentKind,
    ComponentStyle,
    Restriction,
)

MAX_BUTTONS = 5
"""Answers shown as buttons; more become one select."""

MAX_KEY_CHARS = 64
"""Characters of an ID of Hermes that stands in a custom ID as it is; a longer one is hashed."""

SELECT = "select"
"""What stands for the choice in a select's custom ID; the choice is in its value."""

SELECT_LABEL = "Choose an answer"


@dataclass(frozen=True, slots=True)
class Card:
    """A prompt as a message.

    Attributes:
        text: Its Markdown.
        components: Its components; none for an open question.
        key: What stands for Hermes' ID of the prompt in the custom IDs.
        status_line: The run's status line while it waits.
    """

    text: str = field(repr=False)
    components: tuple[ComponentCreate, ...] = field(repr=False)
    key: str
    status_line: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Answer:
    """What an interaction or a text stands for.

    Attributes:
        value: What Hermes is told.
        label: What people read about it.
    """

    value: str = field(repr=False)
    label: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class CustomId:
    """A custom ID, taken apart.

    Attributes:
        kind: The kind of the card's prompt.
        key: What stands for Hermes' ID.
        choice: A number, a word of Hermes, or `SELECT`.
    """

    kind: PromptKind
    key: str
    choice: str


@dataclass(frozen=True, slots=True)
class _Button:
    """How the button of a fixed choice looks, and who may use it."""

    label: str
    style: ComponentStyle
    restricted_to: Restriction
    capability: Capability | None = None


_STARTER, _OWNER = Restriction.RUN_STARTER, Restriction.OWNER

APPROVAL_BUTTONS: Mapping[str, _Button] = {
    "once": _Button("Allow once", ComponentStyle.PRIMARY, _STARTER, Capability.APPROVE_ACTIONS),
    "session": _Button(
        "Allow for this session", ComponentStyle.SECONDARY, _STARTER, Capability.APPROVE_ACTIONS
    ),
    "always": _Button("Always allow", ComponentStyle.SECONDARY, _OWNER, Capability.APPROVE_ACTIONS),
    "deny": _Button("Deny", ComponentStyle.DANGER, _STARTER),
}
"""An approval's buttons by Hermes' word, in the order in which they are shown."""

CONFIRMATION_BUTTONS: Mapping[str, _Button] = {
    "once": _Button("Once", ComponentStyle.PRIMARY, _STARTER),
    "always": _Button("Always", ComponentStyle.SECONDARY, _OWNER),
    "cancel": _Button("Cancel", ComponentStyle.DANGER, _STARTER),
}
"""A confirmation's buttons by Hermes' word, in the order in which they are shown."""

_BUTTONS = {PromptKind.APPROVAL: APPROVAL_BUTTONS, PromptKind.CONFIRMATION: CONFIRMATION_BUTTONS}

WITHDRAWN: Mapping[PromptKind, str] = {
    PromptKind.CLARIFY: "",
    PromptKind.APPROVAL: "deny",
    PromptKind.CONFIRMATION: "cancel",
}
"""What Hermes is told when nobody can answer, or when a text came that is no approval."""

_CUSTOM_IDS = (
    (PromptKind.CLARIFY, re.compile(r"cl:(?P<key>[\w.-]+):(?P<choice>\d+|select)", re.ASCII)),
    (PromptKind.APPROVAL, re.compile(r"appr:(?P<key>[\w.-]+):(?P<choice>[a-z]+)", re.ASCII)),
    (PromptKind.CONFIRMATION, re.compile(r"sc:(?P<choice>[a-z]+):(?P<key>[\w.-]+)", re.ASCII)),
)
_PLAIN_KEY = re.compile(rf"[A-Za-z0-9_.-]{{1,{MAX_KEY_CHARS}}}")
_HASHED_KEY = re.compile(r"h-[0-9a-f]{40}")


# Building -----------------------------------------------------------------------------------------


def build_card(prompt: Prompt, *, max_content_bytes: int = MAX_CONTENT_BYTES) -> Card:
    """Build a card.

    Args:
        prompt: What Hermes waits for.
        max_content_bytes: The most bytes of UTF-8 a message may have.
    """
    key = key_of(prompt.hermes_id)
    if prompt.kind is PromptKind.CLARIFY:
        choices: Sequence[str] = ()
        components = _clarify_components(prompt, key)
    else:
        choices = offered(prompt, max_content_bytes=max_content_bytes)
        components = tuple(_fixed_component(prompt.kind, key, choice) for choice in choices)
    return Card(card_text(prompt, choices, max_content_bytes), components, key, status_line(prompt))


def key_of(hermes_id: str) -> str:
    """Return what stands for an ID of Hermes in custom IDs: itself, or a hash of a long or odd one."""
    if _PLAIN_KEY.fullmatch(hermes_id) and not _HASHED_KEY.fullmatch(hermes_id):
        return hermes_id
    return f"h-{hashlib.sha256(hermes_id.encode('utf-8', 'surrogatepass')).hexdigest()[:40]}"


def offered(prompt: Prompt, *, max_content_bytes: int = MAX_CONTENT_BYTES) -> tuple[str, ...]:
    """Return the choices of an approval or a confirmation that its card offers, in their fixed order.

    Only what Hermes offers and what is known here; a command that cannot be shown can only be denied.
    A confirmation's choices are fixed in Hermes, so that it may leave them unsaid.
    """
    buttons = _BUTTONS[prompt.kind]
    if prompt.kind is PromptKind.CONFIRMATION:
        return tuple(choice for choice in buttons if not prompt.choices or choice in prompt.choices)
    if not command_fits(prompt, max_content_bytes):
        return ("deny",)
    return tuple(choice for choice in buttons if choice in prompt.choices)


def _clarify_components(prompt: Prompt, key: str) -> tuple[ComponentCreate, ...]:
    names = labels(prompt.choices)
    if len(names) > MAX_BUTTONS:
        options = tuple(Option(value=str(index), label=name) for index, name in enumerate(names))
        return (
            ComponentCreate(
                custom_id=f"cl:{key}:{SELECT}",
                kind=ComponentKind.SELECT,
                label=SELECT_LABEL,
                options=options,
                single_use=True,
                restricted_to=_STARTER,
            ),
        )
    return tuple(
        ComponentCreate(
            custom_id=f"cl:{key}:{index}",
            kind=ComponentKind.BUTTON,
            label=name,
            style=ComponentStyle.SECONDARY,
            single_use=True,
            restricted_to=_STARTER,
        )
        for index, name in enumerate(names)
    )


def _fixed_component(kind: PromptKind, key: str, choice: str) -> ComponentCreate:
    button = _BUTTONS[kind][choice]
    return ComponentCreate(
        custom_id=f"appr:{key}:{choice}" if kind is PromptKind.APPROVAL else f"sc:{choice}:{key}",
        kind=ComponentKind.BUTTON,
        label=button.label,
        style=button.style,
        single_use=True,
        restricted_to=button.restricted_to,
        required_capability=button.capability,
    )


# Reading back -------------------------------------------------------------------------------------


def parse_custom_id(custom_id: str) -> CustomId | None:
    """Take a custom ID apart; None for one that no card of ours has."""
    for kind, form in _CUSTOM_IDS:
        match = form.fullmatch(custom_id)
        if match is not None:
            return CustomId(kind, match["key"], match["choice"])
    return None


def answer_of(
    prompt: Prompt, custom_id: str, values: Sequence[str], *, max_content_bytes: int = MAX_CONTENT_BYTES
) -> Answer | None:
    """Return what an interaction stands for.

    Args:
        prompt: The prompt whose card was used.
        custom_id: The component's.
        values: What was chosen: nothing for a button, one value for a select.
        max_content_bytes: The limit with which the card was built.

    Returns:
        The answer, None when the interaction does not belong to this card.
    """
    found = parse_custom_id(custom_id)
    if found is None or found.kind is not prompt.kind or found.key != key_of(prompt.hermes_id):
        return None
    if found.kind is PromptKind.CLARIFY:
        return _clarify_answer(prompt, found.choice, values)
    if values or found.choice not in offered(prompt, max_content_bytes=max_content_bytes):
        return None
    return Answer(found.choice, _BUTTONS[found.kind][found.choice].label)


def answer_of_text(prompt: Prompt, text: str) -> Answer:
    """Return what a typed message stands for while the card waits.

    A question takes any text; a choice's number or its words stand for the choice. An approval and a
    confirmation are refused: a text is no approval, whatever it says.
    """
    if prompt.kind is not PromptKind.CLARIFY:
        refusal = WITHDRAWN[prompt.kind]
        return Answer(refusal, _BUTTONS[prompt.kind][refusal].label)
    said = text.strip()
    by_words = next((one for one in prompt.choices if one.strip().casefold() == said.casefold()), None)
    if by_words is not None:
        return _spoken(by_words)
    number = _index(said, 1, len(prompt.choices))
    return _spoken(said if number is None else prompt.choices[number - 1])


def _clarify_answer(prompt: Prompt, choice: str, values: Sequence[str]) -> Answer | None:
    selects = len(prompt.choices) > MAX_BUTTONS
    if selects != (choice == SELECT) or len(values) != int(selects):
        return None
    index = _index(values[0] if selects else choice, 0, len(prompt.choices) - 1)
    return None if index is None else _spoken(prompt.choices[index])


def _index(text: str, least: int, most: int) -> int | None:
    """A number as we write it, within bounds."""
    if not re.fullmatch(r"0|[1-9][0-9]{0,8}", text) or not least <= int(text) <= most:
        return None
    return int(text)


def _spoken(text: str) -> Answer:
    return Answer(text, one_line(text, MAX_RESPONSE_CHARS))


# States -------------------------------------------------------------------------------------------


class CardState(StrEnum):
    """How far a card is."""

    OPEN = "open"
    """Somebody may answer it."""
    CLAIMED = "claimed"
    """One answer is taken, durably; Hermes may or may not have heard of it."""
    ANSWERED = "answered"
    """Hermes has taken the answer."""
    EXPIRED = "expired"
    """Hermes waits no longer."""
    CLOSED = "closed"
    """Withdrawn: the run ended, or the answer could not be brought to Hermes."""


CARD_MOVES: Mapping[CardState, frozenset[CardState]] = {
    CardState.OPEN: frozenset({CardState.CLAIMED, CardState.EXPIRED, CardState.CLOSED}),
    CardState.CLAIMED: frozenset({CardState.ANSWERED, CardState.CLOSED}),
    CardState.ANSWERED: frozenset(),
    CardState.EXPIRED: frozenset(),
    CardState.CLOSED: frozenset(),
}
"""Every legal move of a card: what somebody has answered is never open again, so that it is answered once.

How far the answer came is on disk, with its claim (`store_values.CLAIM_MOVES`).
"""


def move_card(state: CardState, target: CardState) -> CardState:
    """Move a card.

    Raises:
        IllegalMove: The table does not have the move.
    """
    if target not in CARD_MOVES[state]:
        raise IllegalMove("card", state, target)
    return target
