"""Secrets taken out of commands before people read them.

Layer: rules. A command that waits for an approval, or that a step of the live box names, is shown to
everybody in the channel. Values that are secret by their place (a variable, a member, an option, a
header, a URL's user) or by their shape are replaced.

It refuses to hide what could be run, because whoever wrote the command may want a part of it to go
unseen. So only runs of characters without white space, quotes and operators are replaced, a quoted text
as a whole only where the quote opens beyond doubt and holds plain words, and never the value of a
variable that is itself run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

REDACTED = "[redacted]"
"""What stands in a secret's place."""

_RUN = re.compile(r"[^\s\"'`$;&|<>(){}\\]+")
"""Characters that cannot end a word, open a quote or start a substitution in a shell."""

_NAME = (
    r"(?:KEY|(?:(?<=\w)|(?<=\w-))[Kk]ey|(?i:TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|[_-]PWD|[_-]PASS)"
    r")(?i:[_-]?[0-9]{1,4}|[_-](?!(?:FILE|PATH|DIR|URL|NAME|TYPE)(?![A-Z0-9]))[A-Z0-9]{1,20}){0,3}"
)
"""How the name of a secret ends, with what may follow (`API_KEY`, `SECRET_KEY_BASE`, `TOKEN_2`)."""

_NARROW = (
    r"(?i:(?:API|ACCESS|SECRET|PRIVATE|AUTH|SIGNING|ENCRYPTION)[_-]?KEY|TOKEN|SECRET|PASSWORD|PASSPHRASE)"
)
"""The names that count before a colon, where `key` alone is an ordinary member."""

_HEADER_VALUE = r"[\"']?[ \t]{0,8}[:=][ \t]{0,8}[\"']?(?i:(?:bearer|basic|dpop|digest|token)[ \t]{1,8})?"

_PLACES = tuple(
    re.compile(place)
    for place in (
        rf"{_NAME}(?:=(?![=~])| = )",
        rf"{_NARROW}[\"']?[ \t]{{0,8}}:(?!/)[ \t]{{0,8}}",
        rf"(?<![\w-])--?(?!no-|use-|ask-)[A-Za-z0-9-]{{0,40}}{_NAME}[ \t]{{1,8}}(?!-)",
        rf"(?i:authorization|x-api-key|x-auth-token|private-token|cookie){_HEADER_VALUE}",
        r"(?<![\w-])(?:-u|--user|--proxy-user)[ =]?[\"']?[^\s\"'`$;&|<>(){}\\:]{1,100}:(?!\d+(?!\S))",
    )
)
"""What stands before a secret: an assignment, a member, an option, a header, `-u name:`."""

_URL_USER = re.compile(r"(?<=://)(?!git@)[^\s\"'`$;&|<>(){}\\/?#]+(?=@)")

_SHAPES = re.compile(
    r"(?<![\w-])(?:"
    r"(?:sk|pk|rk)[-_][\w-]{16,}"
    r"|gh[oprsu]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}"
    r"|xox[a-z]-[\w-]{10,}|xapp-[\w-]{10,}"
    r"|A[KS]IA[A-Z0-9]{16}"
    r"|AIza[\w-]{30,}|ya29\.[\w-]{20,}"
    r"|eyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?"
    r"|hf_\w{20,}|npm_\w{20,}|pypi-[\w-]{20,}|SG\.[\w-]{16,}\.[\w-]{16,}"
    r"|\d{8,10}:[\w-]{35}"
    r")"
)
"""Tokens that well-known services issue, by the shapes they publish for secret scanners."""

_KEY_LINES = re.compile(
    r"(?<=KEY-----)(\s+)(?:[A-Za-z0-9+/]{40,}(?:={1,2}|\s+))+(?:[A-Za-z0-9+/]{1,39}={1,2})?(?=\s*[A-Za-z0-9+/]{0,39}\s*-----END)"
)
"""The lines of a private key in PEM. A short last line without padding stays: it could be a command."""

_QUOTE = re.compile(r"[\"'\\#`]|<<|\$[\"'({]")
_DOUBTFUL = re.compile(r"[\"'`$;&|<>(){}\[\]\\\n]")
"""What a quoted text must not hold to be hidden whole."""

_RUN_VARIABLE = re.compile(
    r"(?:^|[;&|(`\n{!]"
    r"|(?<![\w-])(?:then|do|else|sudo|exec|eval|env|command|nohup|time|xargs|source|sh|bash|-c)(?!\w))"
    r"[^\S\n]*[\"']?\$\{?(\w{1,80})"
)
"""A variable where a shell expects a command."""

_HINT = re.compile("key|token|secret|pass|pwd|credential|auth|cookie|://|-u")
_LONG_WORD = re.compile(r"[\w-]{16}")
"""Something that any of the rules could be about; most sentences hold nothing of it."""


def redact(text: str) -> str:
    """Replace the secrets of a command.

    Args:
        text: A shell command, code, or a sentence that names one.

    Returns:
        The text with `REDACTED` for each secret. Redacting it again changes nothing.
    """
    if not _HINT.search(text.lower()) and not _LONG_WORD.search(text):
        return text
    text = _KEY_LINES.sub(rf"\1{REDACTED}\n", text)
    for place in _PLACES:
        text = "".join(_hidden(text, place))
    text = _URL_USER.sub(REDACTED, text)
    return _SHAPES.sub(REDACTED, text)


def _hidden(text: str, place: re.Pattern[str]) -> Iterator[str]:
    """The pieces of a text in which the values behind a place are replaced."""
    quotes: Mapping[int, int] | None = None
    run_names: frozenset[str] | None = None
    position = 0
    for match in place.finditer(text):
        if match.start() < position:
            continue
        if quotes is None or run_names is None:
            quotes, run_names = _plain_quotes(text), frozenset(_RUN_VARIABLE.findall(text))
        start = match.end()
        if start not in quotes and text[start : start + 1] in ("'", '"'):
            start += 1
        end = _value_end(text, start, quotes)
        if end > start and _name_before(text, match) not in run_names:
            yield text[position:start]
            yield REDACTED
            position = end
    yield text[position:]


def _value_end(text: str, start: int, quotes: Mapping[int, int]) -> int:
    """The end of a word that begins at a place: plain runs, and quotes that open in it."""
    if text.startswith(REDACTED, start):
        return start
    end = start
    while True:
        run = _RUN.match(text, end)
        if run is not None:
            end = run.end()
        elif end in quotes:
            end = quotes[end]
            if text[end : end + 1] == ",":
                return end  # a member of an object: the comma is not part of it
        else:
            return end


def _plain_quotes(text: str) -> dict[int, int]:
    """Where quotes with plain words open, and where they end; nothing behind the first doubt."""
    found: dict[int, int] = {}
    position = 0
    while mark := _QUOTE.search(text, position):
        if mark[0] not in ("'", '"'):
            break
        end = text.find(mark[0], mark.end())
        if end < 0:
            break
        inner = _DOUBTFUL.search(text, mark.end(), end)
        if inner is None:
            found[mark.start()] = end + 1
        elif mark[0] == '"' and inner[0] in "\\`$":
            break
        position = end + 1
    return found


def _name_before(text: str, match: re.Match[str]) -> str:
    """The whole name of the variable that a match ends."""
    start = match.start()
    while start and (text[start - 1].isalnum() or text[start - 1] == "_"):
        start -= 1
    name = re.match(r"\w*", text[start : match.end()])
    return name[0] if name else ""
