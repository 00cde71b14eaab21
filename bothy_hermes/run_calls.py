"""The calls that a run may still owe the server: how each is stored, and how it is made.

Layer: flows. One table from operation to sender. A stored call holds everything that its request needs
but for what only the server can tell (the message that became of a card); that is looked up in the
state file when the call is made, so that a call survives the process that stored it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus
from uuid import UUID

from .bothy_api import BothyApi
from .bothy_credentials import TokenSource
from .codec import dump, parse
from .config_keys import MIN_MESSAGE_BYTES
from .errors import ProblemAnswer, WireError
from .message_split import split_message
from .store import CardGone, Change, ClaimMove, ClaimState, OpenCard, OutboxCall, Store
from .store_values import CLAIM_MOVES
from .wire import (
    AwaitRunInput,
    CloseCard,
    CreateMessage,
    FinishRun,
    Followup,
    InteractionResponse,
    Metrics,
    Part,
    ReportAgentSession,
    SetThreadTitle,
    UpdateMessage,
)
from .wire_operations import (
    AWAIT_RUN_INPUT,
    CLOSE_CARD,
    CREATE_MESSAGE,
    FINISH_RUN,
    REPORT_AGENT_SESSION,
    REPORT_FOLLOWUP,
    RESPOND_TO_INTERACTION,
    SET_THREAD_TITLE,
    UPDATE_MESSAGE,
)
from .wire_words import CloseReason, FollowupState, MessageKind, Outcome, ProblemCode, Reason

CARD_KEY = "card_id"
"""The member of a stored call's body that names the card whose message only the server can name."""

NO_NUMBERS = "no_numbers"
"""The word for an end whose numbers cannot travel, beside the server's own words."""

NO_NUMBERS_STATUSES = frozenset(
    {HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNPROCESSABLE_ENTITY}
)
"""Refusals of an end that only its numbers can be the reason of."""

MESSAGE_KEY = "client_msg_id"
"""The member of a stored call's body that names a message of ours."""

SIDE_CALLS = frozenset(
    {
        REPORT_AGENT_SESSION.name,
        SET_THREAD_TITLE.name,
        REPORT_FOLLOWUP.name,
        RESPOND_TO_INTERACTION.name,
        CLOSE_CARD.name,
        AWAIT_RUN_INPUT.name,
        UPDATE_MESSAGE.name,
    }
)
"""Calls whose refusal is no loss of what was said: the run goes on."""


@dataclass(frozen=True, slots=True)
class Sending:
    """What a sender works with.

    Attributes:
        api: The server.
        store: Where cards are looked up.
        token: The run's token.
        lost_messages: How many messages of the run the server has refused for good.
        posted: The server's ID and version of the messages this process has posted, by our ID.
    """

    api: BothyApi
    store: Store
    token: TokenSource
    lost_messages: int
    posted: MutableMapping[str, tuple[UUID, int]]


Sender = Callable[[Sending, OutboxCall], Awaitable[Sequence[Change]]]
"""Makes a call; returns what is to be written in the commit that removes it."""


def message_call(run_id: UUID, message: CreateMessage) -> OutboxCall:
    """A message that must reach the server."""
    return OutboxCall(
        key=f"{run_id}:{message.client_msg_id}",
        run_id=run_id,
        operation=CREATE_MESSAGE.name,
        body=dump(message),
    )


def finish_call(run_id: UUID, end: FinishRun) -> OutboxCall:
    """A run's end; the first one stored for a run is its end."""
    return OutboxCall(
        key=f"{run_id}:{FINISH_RUN.name}", run_id=run_id, operation=FINISH_RUN.name, body=dump(end)
    )


def await_call(run_id: UUID, card_id: str, status_line: str | None) -> OutboxCall:
    """The wait on a card that was stored before."""
    return OutboxCall(
        key=f"{run_id}:{AWAIT_RUN_INPUT.name}:{card_id}",
        run_id=run_id,
        operation=AWAIT_RUN_INPUT.name,
        body={CARD_KEY: card_id, "status_line": status_line},
    )


def update_call(run_id: UUID, client_msg_id: str, content: str) -> OutboxCall:
    """A new text of a message that was stored before; the first one stored is the one that is sent."""
    return OutboxCall(
        key=f"{run_id}:{UPDATE_MESSAGE.name}:{client_msg_id}",
        run_id=run_id,
        operation=UPDATE_MESSAGE.name,
        body={MESSAGE_KEY: client_msg_id, "content": content},
    )


def close_call(run_id: UUID, message_id: UUID, reason: CloseReason) -> OutboxCall:
    """The closing of a card that the run does not wait on."""
    return OutboxCall(
        key=f"{run_id}:{CLOSE_CARD.name}:{message_id}",
        run_id=run_id,
        operation=CLOSE_CARD.name,
        target_id=message_id,
        body=dump(CloseCard(reason=reason)),
    )


def followup_call(run_id: UUID, message_id: UUID, state: FollowupState) -> OutboxCall:
    """How far a follow-up came."""
    return OutboxCall(
        key=f"{run_id}:{REPORT_FOLLOWUP.name}:{message_id}:{state}",
        run_id=run_id,
        operation=REPORT_FOLLOWUP.name,
        target_id=message_id,
        body=dump(Followup(state=state)),
    )


def response_call(run_id: UUID, interaction_id: UUID, response: InteractionResponse) -> OutboxCall:
    """The answer to an interaction; the first one stored is the answer."""
    return OutboxCall(
        key=f"{run_id}:{RESPOND_TO_INTERACTION.name}:{interaction_id}",
        run_id=run_id,
        operation=RESPOND_TO_INTERACTION.name,
        target_id=interaction_id,
        body=dump(response),
    )


def session_call(run_id: UUID, thread_id: UUID, version: int, report: ReportAgentSession) -> OutboxCall:
    """The report of the session that a run's turn used."""
    return OutboxCall(
        key=f"{run_id}:{REPORT_AGENT_SESSION.name}",
        run_id=run_id,
        operation=REPORT_AGENT_SESSION.name,
        target_id=thread_id,
        if_match=version,
        body=dump(report),
    )


def title_call(run_id: UUID, thread_id: UUID, version: int, title: str) -> OutboxCall:
    """The title that a run's conversation got."""
    return OutboxCall(
        key=f"{run_id}:{SET_THREAD_TITLE.name}",
        run_id=run_id,
        operation=SET_THREAD_TITLE.name,
        target_id=thread_id,
        if_match=version,
        body=dump(SetThreadTitle(title=title)),
    )


def is_loss(call: OutboxCall) -> bool:
    """Whether the refusal of a call loses something that was said, or the run's end."""
    card = call.operation == CREATE_MESSAGE.name and call.body.get("kind") == MessageKind.CARD
    return call.operation not in SIDE_CALLS and not card


async def send(sending: Sending, call: OutboxCall) -> Sequence[Change]:
    """Make a stored call.

    Raises:
        ProblemAnswer: The server refuses it.
        WireError: The stored body is none of this version's.
    """
    sender = _SENDERS.get(call.operation)
    if sender is None:
        raise WireError("operation", "is none of this version's")
    return await sender(sending, call)


async def _send_message(sending: Sending, call: OutboxCall) -> Sequence[Change]:
    message = parse(CreateMessage, call.body)
    card = await sending.store.card(message.client_msg_id) if message.kind is MessageKind.CARD else None
    if message.kind is MessageKind.CARD and card is None:
        return ()  # withdrawn before it was sent: nobody waits behind it
    try:
        answer = await sending.api.create_message(call.run_id, sending.token, message)
    except ProblemAnswer as problem:
        if problem.status != HTTPStatus.REQUEST_ENTITY_TOO_LARGE or message.kind is not MessageKind.TEXT:
            raise
        await _send_in_pieces(sending, call.run_id, message, problem)
        return ()
    sending.posted[message.client_msg_id] = (answer.id, answer.version)
    if card is None:
        return ()
    if await sending.store.card(card.card_id) is None:
        return (close_call(call.run_id, answer.id, CloseReason.EXPIRED),)
    return (replace(card, message_id=answer.id),)


async def _send_in_pieces(
    sending: Sending, run_id: UUID, message: CreateMessage, problem: ProblemAnswer
) -> None:
    """Post a text that is longer than what the server takes by now, in pieces half as long, or shorter still.

    It was cut by the limit of its own time. The pieces and their IDs follow from the text alone, so that a
    repetition posts the same.

    Raises:
        ProblemAnswer: The server takes none of them.
    """
    limit = len(message.content.encode()) // 2
    while limit >= MIN_MESSAGE_BYTES:
        pieces = split_message(message.content, limit)
        try:
            for number, piece in enumerate(pieces):
                whole = message.part or Part(index=0, last=True)
                part = Part(index=whole.index + number, last=whole.last and number == len(pieces) - 1)
                key = f"{message.client_msg_id}.{len(pieces)}.{number}"
                body = replace(message, client_msg_id=key, content=piece, part=part)
                await sending.api.create_message(run_id, sending.token, body)
        except ProblemAnswer as error:
            if error.status != HTTPStatus.REQUEST_ENTITY_TOO_LARGE or number:
                raise
        else:
            return
        limit //= 2
    raise problem


async def _send_update(sending: Sending, call: OutboxCall) -> Sequence[Change]:
    """Rewrite a message; what another process posted keeps the text it had when that one ended."""
    posted = sending.posted.get(str(call.body.get(MESSAGE_KEY)))
    if posted is not None:
        body = UpdateMessage(content=str(call.body.get("content")))
        await sending.api.update_message(posted[0], sending.token, posted[1], body)
    return ()


async def _send_await(sending: Sending, call: OutboxCall) -> Sequence[Change]:
    card = await _card(sending, call)
    if card is None or card.message_id is None:
        return ()  # withdrawn, or refused: there is nothing to wait on
    body = AwaitRunInput(message_id=card.message_id, status_line=call.body.get("status_line"))
    await sending.api.await_run_input(call.run_id, sending.token, body)
    return ()


async def _card(sending: Sending, call: OutboxCall) -> OpenCard | None:
    return await sending.store.card(str(call.body.get(CARD_KEY)))


async def _send_close(sending: Sending, call: OutboxCall) -> Sequence[Change]:
    body = parse(CloseCard, call.body)
    await sending.api.close_card(_target(call), sending.token, body)
    return ()


async def _send_followup(sending: Sending, call: OutboxCall) -> Sequence[Change]:
    body = parse(Followup, call.body)
    await sending.api.report_followup(call.run_id, _target(call), sending.token, body)
    return ()


async def _send_response(sending: Sending, call: OutboxCall) -> Sequence[Change]:
    body = parse(InteractionResponse, call.body)
    await sending.api.respond_to_interaction(_target(call), sending.token, body)
    claim = await sending.store.claim_of(_target(call))
    if claim is None or not CLAIM_MOVES[claim.state]:
        return ()
    return (ClaimMove(claim.callback_id, ClaimState.ANSWERED),)


async def _send_session(sending: Sending, call: OutboxCall) -> Sequence[Change]:
    body = parse(ReportAgentSession, call.body)
    await sending.api.report_agent_session(_target(call), sending.token, call.if_match or 0, body)
    return ()


async def _send_title(sending: Sending, call: OutboxCall) -> Sequence[Change]:
    body = parse(SetThreadTitle, call.body)
    await sending.api.set_thread_title(_target(call), sending.token, call.if_match or 0, body)
    return ()


async def _send_finish(sending: Sending, call: OutboxCall) -> Sequence[Change]:
    end = _stored_end(call)
    if sending.lost_messages:
        end = _without_its_message(end)
    refusals: set[str] = set()
    while True:
        try:
            await sending.api.finish_run(call.run_id, sending.token, end)
        except (ProblemAnswer, WireError) as error:
            word = (error.code or "") if isinstance(error, ProblemAnswer) else NO_NUMBERS
            if word in refusals:
                raise
            refusals.add(word)
            end = await _other_end(sending, call, end, error)
        else:
            return tuple(CardGone(card.card_id) for card in await sending.store.cards(call.run_id))


def failed_end(call: OutboxCall) -> OutboxCall:
    """The end of a run of which a message never reached its people: that is no completed run."""
    return finish_call(call.run_id, _without_its_message(_stored_end(call)))


def _without_its_message(end: FinishRun) -> FinishRun:
    if end.outcome is not Outcome.COMPLETED:
        return end
    return replace(end, outcome=Outcome.FAILED, reason=Reason.ADAPTER_ERROR)


def _stored_end(call: OutboxCall) -> FinishRun:
    """The end as it was stored; without its numbers when one of them cannot travel."""
    try:
        return parse(FinishRun, call.body)
    except WireError:
        return parse(FinishRun, {**call.body, "metrics": {}, "costs": None})


async def _other_end(
    sending: Sending, call: OutboxCall, end: FinishRun, error: ProblemAnswer | WireError
) -> FinishRun:
    """The end that the server takes instead of one it refused.

    Raises:
        ProblemAnswer: There is none.
    """
    if isinstance(error, WireError) or error.status in NO_NUMBERS_STATUSES:
        # What a turn took is no reason for a run without an end.
        return replace(end, metrics=Metrics(), costs=None)
    if error.code == ProblemCode.CARD_OPEN:
        # A card of a process that is gone: nobody can answer it, and the end of the run closes it.
        return replace(end, outcome=Outcome.FAILED, reason=Reason.ADAPTER_RESTARTED)
    if error.code != ProblemCode.RUN_ENDED:
        raise error
    # The server ended it first; metrics and costs are still taken, with its own outcome.
    state = (await sending.api.get_run(call.run_id)).run.state
    if not state.ended or state.value == end.outcome.value:
        raise error
    outcome = Outcome(state.value)
    return replace(end, outcome=outcome, reason=Reason.INTERRUPTED if outcome is Outcome.FAILED else None)


def _target(call: OutboxCall) -> UUID:
    assert call.target_id is not None  # every call with a target is stored with it
    return call.target_id


_SENDERS: Mapping[str, Sender] = {
    CREATE_MESSAGE.name: _send_message,
    UPDATE_MESSAGE.name: _send_update,
    AWAIT_RUN_INPUT.name: _send_await,
    CLOSE_CARD.name: _send_close,
    REPORT_FOLLOWUP.name: _send_followup,
    RESPOND_TO_INTERACTION.name: _send_response,
    REPORT_AGENT_SESSION.name: _send_session,
    SET_THREAD_TITLE.name: _send_title,
    FINISH_RUN.name: _send_finish,
}
