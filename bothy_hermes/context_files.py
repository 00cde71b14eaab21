"""Which attachments a turn reads as text, and how their bytes become text.

Layer: rules. Only what calls itself text and what the server's scanner did not hold back is fetched,
and only its first bytes. It refuses to believe a media type: bytes that are no text are not passed on,
whatever they are called.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from dataclasses import dataclass, field
from uuid import UUID

from .wire import Attachment, ContextElement, RunContext
from .wire_words import ScanStatus

MAX_FETCHED_FILES = 50
"""Files of one turn, the youngest first: each is a request before the turn can start."""

GARBAGE_SHARE = 10
"""One unreadable character in that many makes a file no text: a text in an old encoding with a few
broken letters is still worth reading, an image that calls itself text is not."""

_READABLE_SCANS = frozenset({ScanStatus.CLEAN, ScanStatus.SKIPPED})
_UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


@dataclass(frozen=True, slots=True)
class FileText:
    """What was read of one attachment.

    Attributes:
        text: Its first bytes as text.
        cut: Whether the file goes on behind them.
        readable: Whether the bytes were text at all; `text` is empty when they were not.
    """

    text: str = field(repr=False)
    cut: bool
    readable: bool = True


def files_to_fetch(ctx: RunContext, trigger_id: UUID, *, limit_bytes: int) -> tuple[UUID, ...]:
    """Name the attachments whose text a turn should read, in the order of the thread.

    Args:
        ctx: The run's context.
        trigger_id: The message that triggered the run.
        limit_bytes: Bytes of one file that enter a turn; 0 fetches none.
    """
    if limit_bytes <= 0:
        return ()
    attachments = [one for element in new_elements(ctx, trigger_id) for one in element.attachments]
    wanted = dict.fromkeys(one.id for one in reversed(attachments) if _is_wanted(one))
    return tuple(reversed(list(wanted)[:MAX_FETCHED_FILES]))


def new_elements(ctx: RunContext, trigger_id: UUID) -> Iterator[ContextElement]:
    """Go through the elements that a turn has to read: none twice, none behind the trigger.

    What stands behind the trigger are follow-ups, which reach the turn by their own events.

    Args:
        ctx: The run's context.
        trigger_id: The message that triggered the run.
    """
    for element in ctx.elements:
        if element.id == trigger_id:
            yield element
            return
        if not element.already_delivered:
            yield element


def decode_file(data: bytes, limit: int) -> FileText:
    """Read bytes as text.

    Args:
        data: The file's first bytes. One more than the limit tells that the file goes on.
        limit: How many bytes count; a character that crosses the limit is left out.
    """
    cut = len(data) > limit
    encoding = "utf-16" if data.startswith(_UTF16_MARKS) else "utf-8-sig"
    text = codecs.getincrementaldecoder(encoding)("replace").decode(data[:limit], not cut)
    garbage = text.count("\ufffd") + text.count("\x00")
    if garbage * GARBAGE_SHARE > len(text):
        return FileText("", cut, readable=False)
    return FileText(text, cut)


def _is_wanted(attachment: Attachment) -> bool:
    media_type = attachment.media_type.partition(";")[0].strip().lower()
    is_text = media_type.startswith("text/") or media_type == "application/json"
    return is_text and attachment.scan_status in _READABLE_SCANS and attachment.size_bytes > 0
