"""What a card says: every choice in full, the command as it would run, labels that can be told apart.

Layer: rules. A person decides on what stands here, so nothing of a command is left out, hidden or
reordered, but for secrets, which everybody in the channel would read. What the components do is
`cards`' subject.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from .plain_text import ELLIPSIS, cut, one_line, repair, reveal_hidden, reveal_order
from .redaction import redact
from .runtime import Prompt, PromptKind
from .wire_words import MAX_STATUS_CHARS

LABEL_CHARS = 40
"""Characters of a button's label: what a phone shows in one line. The text has the rest."""

REASON_CHARS = 500
"""Characters of the reason that an approval is asked for."""

APPROVAL_TITLE = "**The agent asks for your approval.**"
NO_QUESTION = "The agent waits for an answer."
OPEN_HINT = "Write your answer as a message."
CHOICE_HINT = "Choose one, or write another answer as a message."
EMPTY = "(empty)"
TOO_LONG = "The command is too long to be shown in full, so it can only be denied."

APPROVAL_TEXTS = {
    "once": "Allow once",
    "session": "Allow for this session",
    "always": "Always allow (the owner alone; kept in Hermes' permanent list)",
    "deny": "Deny",
}
"""An approval's choices in full, by Hermes' word."""

CONFIRMATION_TEXTS = {
    "once": "Once",
    "always": "Always (the owner alone; Hermes will not ask again)",
    "cancel": "Cancel",
}
"""A confirmation's choices in full, by Hermes' word."""

_BACKTICKS = re.compile("`+")


def card_text(prompt: Prompt, choices: Sequence[str], max_bytes: int) -> str:
    """Return the Markdown of a card.

    Args:
        prompt: What Hermes waits for.
        choices: The words of an approval's or a confirmation's choices that the card offers.
        max_bytes: The most bytes of UTF-8 a message may have.
    """
    if prompt.kind is PromptKind.CLARIFY:
        head, tail = _shown(prompt.question) or NO_QUESTION, _clarify_tail(prompt.choices)
    elif prompt.kind is PromptKind.APPROVAL:
        head, tail = APPROVAL_TITLE, _approval_tail(prompt, choices, max_bytes)
    else:
        head = "\n\n".join(part for part in (_title(prompt), _shown(prompt.question)) if part)
        tail = numbered([CONFIRMATION_TEXTS[one] for one in choices])
    return _joined(head, tail, max_bytes)


def command_fits(prompt: Prompt, max_bytes: int) -> bool:
    """Whether the whole command can be shown, with room for what is said about it."""
    return len(code_block(prompt.command or "").encode()) <= max_bytes // 2


def status_line(prompt: Prompt) -> str:
    """The run's status line while the card waits: one line of what is asked."""
    subject = prompt.command if prompt.kind is PromptKind.APPROVAL else prompt.title or prompt.question
    return one_line(f"Waiting for an answer: {redact(subject or NO_QUESTION)}", MAX_STATUS_CHARS)


def numbered(choices: Sequence[str]) -> str:
    """Return a numbered list; further lines of a choice are indented, so that none looks like one."""
    lines = []
    for number, choice in enumerate(choices, 1):
        mark = f"{number}. "
        lines.append(mark + (_shown(choice) or EMPTY).replace("\n", "\n" + " " * len(mark)))
    return "\n".join(lines)


def code_block(command: str) -> str:
    """Return a command as a block of code that nothing in it can close; nothing for no command."""
    if not command:
        return ""
    shown = _visible(redact(command))
    ticks = max((len(run) for run in _BACKTICKS.findall(shown)), default=0)
    fence = "`" * max(3, ticks + 1)
    return f"{fence}\n{shown}\n{fence}"


def labels(choices: Sequence[str]) -> list[str]:
    """Return a label for each choice: short, not empty, each unlike the others.

    Choices that are short and distinct are their own labels; else all carry their number.
    """
    lines = [one_line(choice, MAX_STATUS_CHARS) for choice in choices]
    distinct = len({line.casefold() for line in lines}) == len(lines)
    if distinct and all(0 < len(line) <= LABEL_CHARS for line in lines):
        return lines
    return [cut(f"{number}. {line}".strip(), LABEL_CHARS) for number, line in enumerate(lines, 1)]


def _clarify_tail(choices: Sequence[str]) -> str:
    return f"{numbered(choices)}\n\n{CHOICE_HINT}" if choices else OPEN_HINT


def _approval_tail(prompt: Prompt, choices: Sequence[str], max_bytes: int) -> str:
    """The command, why it is asked about, and the choices.

    The reason may be a model's words: on a line of its own behind the command, it cannot pass for one.
    """
    reason = one_line(redact(prompt.question), REASON_CHARS)
    parts = [
        code_block(prompt.command or "") if command_fits(prompt, max_bytes) else TOO_LONG,
        f"Reason: {reason}" if reason else "",
        numbered([APPROVAL_TEXTS[one] for one in choices]),
    ]
    return "\n\n".join(part for part in parts if part)


def _title(prompt: Prompt) -> str:
    title = one_line(prompt.title or "", MAX_STATUS_CHARS)
    return f"**{title.replace('*', '')}**" if title.strip("* ") else ""


def _shown(text: str) -> str:
    """A text of Hermes with its lines, and with everything in it visible."""
    return _visible(text.replace("\r\n", "\n").strip("\n"))


def _visible(text: str) -> str:
    return reveal_order(reveal_hidden(repair(text)))


def _joined(head: str, tail: str, max_bytes: int) -> str:
    """Both parts within the limit: the question is cut, what can be chosen is not."""
    whole = f"{head}\n\n{tail}" if head else tail
    if len(whole.encode()) <= max_bytes:
        return whole
    room = max_bytes - len(f"\n\n{tail}".encode())
    return f"{_cut_bytes(head, room)}\n\n{tail}" if room > 0 else _cut_bytes(whole, max_bytes)


def _cut_bytes(text: str, max_bytes: int) -> str:
    room = max_bytes - len(ELLIPSIS.encode())
    kept = text.encode()[: max(0, room)].decode("utf-8", "ignore")
    return kept + ELLIPSIS
