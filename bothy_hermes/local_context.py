"""The context of a run: what a turn may know of its thread, and what an earlier turn already had (section 9).

Layer: default. It reads records; the one thing it writes is which session's turns have had a message.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from .local_core import Core
from .local_options import MAX_CONTEXT_BYTES, MAX_CONTEXT_ELEMENTS
from .local_records import FollowupMark, MessageRecord, RunRecord, ThreadRecord
from .wire import ChannelView, ContextElement, RunContext, Starter, ThreadView
from .wire_words import ElementKind, PrincipalKind, RunKind, SessionMode


def context_of(core: Core, record: RunRecord) -> RunContext:
    """Return a run's context: its thread up to the trigger, then its follow-ups and the agent's messages."""
    before, after = _parts(core, record)
    kept = _newest(before)
    channel = core.channel(record.run.channel_id)
    starter = core.person(record.run.run_starter)
    return RunContext(
        run=record.run,
        thread=thread_view(core.thread(record.run.thread_id)),
        channel=ChannelView(id=channel.id, name=channel.name),
        starter=Starter(id=starter.id, display_name=starter.name),
        elements=tuple(_element(core, record, one) for one in (*kept, *after)),
        truncated=len(kept) < len(before),
    )


def thread_view(thread: ThreadRecord) -> ThreadView:
    """Return a thread as it is answered."""
    return ThreadView(
        id=thread.id, title=thread.title, title_source=thread.title_source, version=thread.version
    )


def enter_session(core: Core, record: RunRecord) -> RunRecord:
    """Note, when a run starts, which session its turn is in and what that session now has.

    Returns:
        The run with its session's number.
    """
    if record.run.kind is RunKind.GUEST:
        return record
    thread = core.thread(record.run.thread_id)
    fresh = record.run.session_mode != SessionMode.RESUME or thread.epoch == 0
    if fresh:
        thread = core.put_thread(dataclasses.replace(thread, epoch=thread.epoch + 1))
    # What follows the trigger is not the turn's yet: a follow-up counts as had once it is absorbed.
    before, _ = _parts(core, record)
    for one in before:
        if not _delivered(core, record, one):
            _mark(core, one, thread.epoch, record)
    return core.put_run(dataclasses.replace(record, epoch=thread.epoch))


def replace_session(core: Core, record: RunRecord) -> None:
    """Note that a run's turn went into a new session although it was to continue one."""
    thread = core.thread(record.run.thread_id)
    thread = core.put_thread(dataclasses.replace(thread, epoch=thread.epoch + 1))
    for one in core.state.messages.group("thread", thread.id):
        if one.session_run == record.run.id:
            _mark(core, one, thread.epoch, record)
    core.put_run(dataclasses.replace(core.run(record.run.id), epoch=thread.epoch))


def _mark(core: Core, one: MessageRecord, epoch: int, record: RunRecord) -> None:
    marked = dataclasses.replace(one, session_epoch=epoch, session_run=record.run.id)
    core.state.messages.put(one.message.id, marked)


def _parts(core: Core, record: RunRecord) -> tuple[list[MessageRecord], list[MessageRecord]]:
    messages = core.state.messages.group("thread", record.run.thread_id)
    ids = [one.message.id for one in messages]
    assert record.run.trigger_message_id is not None, "every run here has a trigger"
    trigger = ids.index(record.run.trigger_message_id)
    later = [one for one in messages[trigger + 1 :] if _belongs(record, one)]
    return list(messages[: trigger + 1]), later


def _belongs(record: RunRecord, one: MessageRecord) -> bool:
    """Whether something after the trigger is the run's business."""
    own = one.message.author.kind is PrincipalKind.AGENT and one.element is ElementKind.MESSAGE
    return own or one.followup_of == record.run.id


def _newest(before: Sequence[MessageRecord]) -> list[MessageRecord]:
    """Leave out the oldest elements of a context that is too large; the trigger is never left out."""
    kept: list[MessageRecord] = []
    size = 0
    for one in reversed(before[-MAX_CONTEXT_ELEMENTS:]):
        size += len(one.message.content.encode())
        if kept and size > MAX_CONTEXT_BYTES:
            break
        kept.append(one)
    return kept[::-1]


def _element(core: Core, record: RunRecord, one: MessageRecord) -> ContextElement:
    files = (core.state.files.get(attachment.id) for attachment in one.attachments)
    return ContextElement(
        id=one.message.id,
        kind=one.element,
        author=one.message.author if one.element is ElementKind.MESSAGE else None,
        trust=one.trust,
        created_at=one.message.created_at,
        already_delivered=_delivered(core, record, one),
        content=one.message.content,
        attachments=tuple(file.attachment for file in files if file is not None),
        transcripts=one.transcripts,
    )


def _delivered(core: Core, record: RunRecord, one: MessageRecord) -> bool:
    if one.message.author.kind is PrincipalKind.AGENT or one.followup is FollowupMark.ABSORBED:
        return True
    epoch = _session_epoch(core, record)
    return epoch != 0 and one.session_epoch == epoch and one.session_run != record.run.id


def _session_epoch(core: Core, record: RunRecord) -> int:
    """Tell which session a run works in, or will when it starts; 0 for one that has had nothing yet."""
    if record.run.kind is RunKind.GUEST:
        return 0
    if record.epoch:
        return record.epoch
    resumes = record.run.session_mode == SessionMode.RESUME
    return core.thread(record.run.thread_id).epoch if resumes else 0
