"""The adapter's calls that change something of a run and may be repeated, one handler each.

Layer: default. What they share (the end of a run, repetitions, `If-Match`) is in `local_calls`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .local_call import Call
from .local_instance import Instance
from .local_records import RunRecord
from .local_threads import precondition_failed
from .wire import DocumentVersion, InteractionView, Message


@dataclass(frozen=True, slots=True)
class Done:
    """What a call answers.

    Attributes:
        value: The answer's body.
        kept: Whether the same call again is a repetition.
        late: A violation that shows only now, by its reason.
    """

    value: Any
    kept: bool = True
    late: str | None = None


def _start_run(instance: Instance, run: RunRecord, call: Call) -> Done:
    return Done(instance.core.view(instance.runs_side.start(run, call.body)))


def _update_run(instance: Instance, run: RunRecord, call: Call) -> Done:
    pace, run_id = instance.pace, run.run.id
    if call.body.base_version == run.document.version:
        pace.check(run_id)
    else:
        pace.conflicted(run_id)
    run = instance.runs_side.update(run, call.body)
    return Done(DocumentVersion(version=run.document.version), late=pace.patched(run_id))


def _update_message(instance: Instance, run: RunRecord, call: Call) -> Done:
    record = instance.messages_side.own(run, call.ids["message_id"])
    if call.version != record.message.version:
        raise precondition_failed(record.message.version)
    return Done(instance.messages_side.update(record, call.body))


def _await_run_input(instance: Instance, run: RunRecord, call: Call) -> Done:
    run = instance.cards.await_input(run, call.body)
    instance.pace.flushed(run.run.id)
    return Done(instance.core.view(run))


def _resume_run(instance: Instance, run: RunRecord, call: Call) -> Done:
    run = instance.cards.resume(run, call.body)
    instance.pace.flushed(run.run.id)
    return Done(instance.core.view(run))


def _close_card(instance: Instance, run: RunRecord, call: Call) -> Done:
    message: Message
    message, closed = instance.cards.close(run, call.ids["message_id"], call.body.reason)
    return Done(message, kept=closed)


def _report_followup(instance: Instance, run: RunRecord, call: Call) -> Done:
    return Done(instance.messages_side.report_followup(run, call.ids["message_id"], call.body))


def _respond_to_interaction(instance: Instance, run: RunRecord, call: Call) -> Done:
    record = instance.cards.respond(run, call.ids["interaction_id"], call.body)
    return Done(InteractionView(id=record.interaction.id, status=call.body.status, text=record.text))


def _finish_run(instance: Instance, run: RunRecord, call: Call) -> Done:
    costs_off = instance.presence.costs_off(run.run.consumer)
    run = instance.runs_side.finish(run, call.body, costs_known_off=costs_off)
    instance.pace.forget(run.run.id)
    return Done(instance.core.view(run))


def _report_agent_session(instance: Instance, run: RunRecord, call: Call) -> Done:
    return Done(instance.threads_side.report_session(run, call.version, call.body))


def _set_thread_title(instance: Instance, run: RunRecord, call: Call) -> Done:
    return Done(instance.threads_side.set_agent_title(run, call.version, call.body))


WRITES: Mapping[str, Callable[[Instance, RunRecord, Call], Done]] = {
    "startRun": _start_run,
    "updateRun": _update_run,
    "updateMessage": _update_message,
    "awaitRunInput": _await_run_input,
    "resumeRun": _resume_run,
    "closeCard": _close_card,
    "reportFollowup": _report_followup,
    "respondToInteraction": _respond_to_interaction,
    "finishRun": _finish_run,
    "reportAgentSession": _report_agent_session,
    "setThreadTitle": _set_thread_title,
}
"""Every one of them by its operation."""
