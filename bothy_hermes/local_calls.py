"""Carrying out the adapter's calls: the rules that all changing operations share (sections 3 and 7).

Layer: default. One unit per call; what the end of a run refuses; repetitions before `If-Match`; a call
that depends on an ack. The operations themselves are in `local_reads` and `local_writes`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from .codec import dump
from .local_auth import Caller
from .local_call import Call, run_of
from .local_core import digest
from .local_http import Response, json_response
from .local_instance import Instance
from .local_reads import READS
from .local_records import RepeatRecord, RunRecord
from .local_rules import AFTER_END, UNREPEATED, AfterEnd, Violation, run_ended
from .local_writes import WRITES
from .wire import Message, TokenAnswer
from .wire_operations import Operation, TokenKind
from .wire_words import EventType, ResumeCause, RunState


class Calls:
    """Carries out the adapter's calls.

    Args:
        instance: The domain.
        report: Takes violations of calls that are done all the same.
    """

    def __init__(self, instance: Instance, report: Callable[[Violation], None]) -> None:
        self._instance = instance
        self._core = instance.core
        self._state = instance.state
        self._report = report

    def run(self, call: Call) -> Response:
        """Carry out one call; what it changed is durable when this returns.

        Raises:
            Refused: It is not done, and nothing has changed.
        """
        with self._state.unit():
            read = READS.get(call.operation.name)
            if read is not None:
                return read(self._instance, call)
            return self._change(run_of(self._core, call), call)

    def too_early(self, call: Call) -> bool:
        """Whether the event that a call answers is still on its way to be acked."""
        with self._state.lock:
            needed = self._needed_ack(call)
            return needed is not None and self._instance.events.awaits_ack(*needed)

    def _change(self, run: RunRecord, call: Call) -> Response:
        name = call.operation.name
        if run.run.state.ended and AFTER_END[name] is AfterEnd.RUN_ENDED:
            raise run_ended()
        if call.operation.if_match:
            _ = call.version
        if name in UNREPEATED:
            return self._plain(run, call)
        key, body = f"{name}:{_resource(call)}", digest(call.body)
        known = self._state.repeats.get(key)
        if known is not None and known.digest == body:
            return _answer(call.operation, 200, known.answer)
        done = WRITES[name](self._instance, run, call)
        answer = dump(done.value)
        if done.late is not None:
            self._report(Violation(name, done.late))
        if done.kept:
            repeat = RepeatRecord(key=key, digest=body, run_id=run.run.id, at=self._core.now(), answer=answer)
            self._state.repeats.put(key, repeat)
        return _answer(call.operation, 200, answer)

    def _plain(self, run: RunRecord, call: Call) -> Response:
        if call.operation.name == "renewRunToken":
            return json_response(200, self._renew(run, call.caller))
        message, fresh = self._instance.messages_side.create(run, call.body)
        return _answer(call.operation, 201 if fresh else 200, dump(message))

    def _renew(self, run: RunRecord, caller: Caller) -> TokenAnswer:
        if run.run.state.ended:
            by_agent = caller.kind is TokenKind.AGENT
            if not by_agent or not self._instance.runs_side.serves_after_end(run):
                raise run_ended()
        subject = caller.claims.sub if caller.claims is not None else run.run.run_starter
        return TokenAnswer(token=self._instance.payloads.mint(run, subject))

    def _needed_ack(self, call: Call) -> tuple[EventType, UUID] | None:
        name, ids = call.operation.name, call.ids
        if name in ("startRun", "finishRun"):
            run = self._state.runs.get(ids["run_id"])
            queued = run is not None and run.run.state is RunState.QUEUED
            return (EventType.INVOCATION, ids["run_id"]) if queued else None
        if name == "reportFollowup":
            return EventType.FOLLOWUP, ids["message_id"]
        if name == "respondToInteraction":
            return EventType.INTERACTION, ids["interaction_id"]
        return self._cause(call) if name == "resumeRun" else None

    def _cause(self, call: Call) -> tuple[EventType, UUID] | None:
        if call.body.cause is ResumeCause.FOLLOWUP and call.body.followup_message_id is not None:
            return EventType.FOLLOWUP, call.body.followup_message_id
        card = self._state.cards.get(call.body.message_id)
        if call.body.cause is ResumeCause.INTERACTION and card is not None and card.claim is not None:
            return EventType.INTERACTION, card.claim
        return None


def _resource(call: Call) -> UUID:
    """Tell what a call changes, to find its repetition: the last ID of its path, or the card it names."""
    if call.operation.name in ("awaitRunInput", "resumeRun"):
        card: UUID = call.body.message_id
        return card
    return list(call.ids.values())[-1]


def _answer(operation: Operation, status: int, value: Any) -> Response:
    headers = {"ETag": f'"{value["version"]}"'} if operation.answer is Message else {}
    return json_response(status, value, headers)
