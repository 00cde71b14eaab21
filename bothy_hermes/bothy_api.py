"""The server's operations, one method each.

Layer: edges. A method takes and gives wire values and raises what `bothy_call` raises, so a caller sees
nothing of HTTP. Which token an operation takes is the caller's to know: agent-wide operations use the
agent's token, those of a run the source that the caller hands in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from http import HTTPStatus
from typing import TypeVar
from urllib.parse import urlencode
from uuid import UUID

from . import wire_operations as ops
from .bothy_call import Call, Caller
from .bothy_credentials import AgentToken, TokenSource
from .bothy_http import Response, Transport
from .clock import Clock
from .codec import load_json, parse
from .config import Settings
from .dpop import ProofSigner
from .errors import ConfigError, ProblemAnswer
from .secret import Secret
from .wire import (
    AgentSession,
    AllowList,
    AwaitRunInput,
    CloseCard,
    CreateMessage,
    DocumentVersion,
    FinishRun,
    Followup,
    Heartbeat,
    InteractionResponse,
    InteractionView,
    KeySetBody,
    Me,
    Message,
    ReportAgentSession,
    ResumeRun,
    RunContext,
    RunView,
    ServedChannelConfig,
    SetThreadTitle,
    StartRun,
    ThreadView,
    TokenAnswer,
    UpdateMessage,
    UpdateRun,
)
from .wire_events import Hello, RunList
from .wire_words import MAX_FILE_BYTES, PrincipalKind, ProblemCode, RunState

__all__ = ["AgentToken", "BothyApi", "TokenSource"]

T = TypeVar("T")


class BothyApi:
    """The client of one server for one agent.

    Args:
        settings: The configuration.
        transport: Sends single attempts.
        clock: Time and chance.
        agent_token: The agent's token.
        signer: Makes proofs, None without a DPoP key.

    Attributes:
        costs_enabled: Whether the server books costs; `finish_run` leaves them out otherwise.
    """

    def __init__(
        self,
        settings: Settings,
        transport: Transport,
        clock: Clock,
        agent_token: AgentToken,
        signer: ProofSigner | None = None,
    ) -> None:
        self._settings = settings
        self._agent = agent_token
        self._signer = signer
        self._caller = Caller(settings.server_url, transport, clock, signer, settings.request_timeout_seconds)
        self.costs_enabled = True

    @property
    def jkt(self) -> str | None:
        """The thumbprint that run tokens must be bound to, None without a DPoP key."""
        return None if self._signer is None else self._signer.jkt

    def server_now(self) -> datetime:
        """Return the server's time.

        Raises:
            ClockRefused: Server and local clock are more than ten minutes apart.
        """
        return self._caller.server_clock.now()

    def observe_server_time(self, moment: datetime) -> None:
        """Take the time that the server stated just now."""
        self._caller.server_clock.observe(moment)

    def observe_hello(self, hello: Hello) -> None:
        """Take what a new gateway connection says about the server."""
        self.observe_server_time(hello.server_time)
        self.costs_enabled = hello.settings.costs_enabled

    # The agent's own operations

    async def get_me(self) -> Me:
        """Ask who the token belongs to.

        Raises:
            ConfigError: Not an agent, another instance than configured, or bound to another key.
        """
        me = await self._ask(Call(ops.GET_ME, self._agent), Me)
        if me.kind is not PrincipalKind.AGENT:
            raise ConfigError("hermes_adapter.token_file", "the token is a person's, not an agent's")
        if me.instance_id != self._settings.instance_id:
            raise ConfigError("hermes_adapter.instance_id", "the server is another instance")
        if me.dpop_jkt != self.jkt:
            raise ConfigError("hermes_adapter.dpop_key_file", "the server knows another key or none")
        return me

    async def get_jwks(self) -> KeySetBody:
        """Fetch the server's public keys; its answer sets the clock."""
        return await self._ask(Call(ops.GET_JWKS, None), KeySetBody)

    async def get_allow_list(self, agent_id: UUID, known_version: int | None) -> AllowList | None:
        """Ask who may address the agent, once: the event that needs the answer is delivered again.

        Args:
            agent_id: The agent.
            known_version: The version at hand, None without one.

        Returns:
            The list; None when the known version still holds.
        """
        headers = {} if known_version is None else {"If-None-Match": f'"{known_version}"'}
        statuses = {HTTPStatus.OK} if known_version is None else {HTTPStatus.OK, HTTPStatus.NOT_MODIFIED}
        call = Call(
            ops.GET_ALLOW_LIST,
            self._agent,
            {"agent_id": agent_id},
            headers=headers,
            accept=frozenset(statuses),
            patient=False,
        )
        response = await self._caller.call(call)
        return None if response.status == HTTPStatus.NOT_MODIFIED else _read(AllowList, response)

    async def put_heartbeat(self, agent_id: UUID, heartbeat: Heartbeat) -> None:
        """Tell how the adapter is."""
        query = {"consumer": self._settings.consumer}
        call = Call(ops.PUT_HEARTBEAT, self._agent, {"agent_id": agent_id}, heartbeat, query)
        await self._caller.call(call)

    async def list_runs(self, agent_id: UUID, states: Iterable[RunState] = ()) -> RunList:
        """List this consumer's runs, oldest first; without states those that have not ended."""
        query = {"consumer": self._settings.consumer}
        if chosen := ",".join(states):
            query["state"] = chosen
        return await self._ask(Call(ops.LIST_RUNS, self._agent, {"agent_id": agent_id}, query=query), RunList)

    async def gateway_request(self, agent_id: UUID, consumer: str) -> tuple[str, dict[str, str]]:
        """Make the URL and header fields of one handshake, with a fresh token and proof.

        Raises:
            ConfigError: The token's file cannot be read.
            ClockRefused: The clocks are too far apart to make a proof.
        """
        self._agent.reread()
        path = ops.OPEN_GATEWAY.path.format(agent_id=agent_id)
        url = f"{self._settings.server_url}{path}?{urlencode({'consumer': consumer})}"
        headers, _ = await self._caller.sign(ops.OPEN_GATEWAY.method, url, self._agent)
        return "ws" + url.removeprefix("http"), headers

    async def gateway_refused(self, response: Response) -> tuple[ProblemAnswer, str | None]:
        """Judge an answer that refused a handshake, see `Caller.judge`."""
        token = await self._agent.token()
        return await self._caller.judge(ops.OPEN_GATEWAY.name, response, self._agent, token)

    def observe_headers(self, headers: Mapping[str, str]) -> None:
        """Take nonce and time of an answer that did not come through a call (names in lower case)."""
        self._caller.observe(headers)

    # A run's operations

    async def get_served_channel_config(self, channel_id: UUID, auth: TokenSource) -> ServedChannelConfig:
        """Fetch what the managers of a served channel tell the agent."""
        call = Call(ops.GET_SERVED_CHANNEL_CONFIG, auth, {"channel_id": channel_id})
        return await self._ask(call, ServedChannelConfig)

    async def start_run(self, run_id: UUID, auth: TokenSource, body: StartRun) -> RunView:
        """Start a queued run with the evidence of this moment."""
        return await self._ask(Call(ops.START_RUN, auth, {"run_id": run_id}, body), RunView)

    async def get_run(self, run_id: UUID, auth: TokenSource | None = None) -> RunView:
        """Fetch a run, with the agent's token when no other is given."""
        return await self._ask(Call(ops.GET_RUN, auth or self._agent, {"run_id": run_id}), RunView)

    async def get_run_context(self, run_id: UUID, auth: TokenSource) -> RunContext:
        """Fetch everything a turn may know of its thread."""
        return await self._ask(Call(ops.GET_RUN_CONTEXT, auth, {"run_id": run_id}), RunContext)

    async def renew_run_token(self, run_id: UUID, auth: TokenSource | None = None) -> Secret:
        """Ask for a new run token, with the agent's token when no other is given."""
        call = Call(ops.RENEW_RUN_TOKEN, auth or self._agent, {"run_id": run_id})
        return (await self._ask(call, TokenAnswer)).token

    async def update_run(self, run_id: UUID, auth: TokenSource, body: UpdateRun) -> int:
        """Patch the run document; returns its new version.

        Raises:
            VersionConflict: The patch was computed from another version; the document came with it.
        """
        call = Call(ops.UPDATE_RUN, auth, {"run_id": run_id}, body)
        return (await self._ask(call, DocumentVersion)).version

    async def create_message(self, run_id: UUID, auth: TokenSource, body: CreateMessage) -> Message:
        """Create a message, or get the one that its `client_msg_id` made before."""
        accept = frozenset({HTTPStatus.CREATED, HTTPStatus.OK})
        return await self._ask(
            Call(ops.CREATE_MESSAGE, auth, {"run_id": run_id}, body, accept=accept), Message
        )

    async def update_message(
        self, message_id: UUID, auth: TokenSource, version: int, body: UpdateMessage
    ) -> Message:
        """Replace an own message's content."""
        call = Call(ops.UPDATE_MESSAGE, auth, {"message_id": message_id}, body, headers=_if_match(version))
        return await self._ask(call, Message)

    async def await_run_input(self, run_id: UUID, auth: TokenSource, body: AwaitRunInput) -> RunView:
        """Open a card: the run waits for its answer."""
        return await self._ask(Call(ops.AWAIT_RUN_INPUT, auth, {"run_id": run_id}, body), RunView)

    async def resume_run(self, run_id: UUID, auth: TokenSource, body: ResumeRun) -> RunView:
        """End the wait of a card, with the evidence of this moment."""
        return await self._ask(Call(ops.RESUME_RUN, auth, {"run_id": run_id}, body), RunView)

    async def close_card(self, message_id: UUID, auth: TokenSource, body: CloseCard) -> Message:
        """Close a card that the run does not wait on."""
        return await self._ask(Call(ops.CLOSE_CARD, auth, {"message_id": message_id}, body), Message)

    async def report_followup(
        self, run_id: UUID, message_id: UUID, auth: TokenSource, body: Followup
    ) -> Followup:
        """Tell how far a follow-up came."""
        call = Call(ops.REPORT_FOLLOWUP, auth, {"run_id": run_id, "message_id": message_id}, body)
        return await self._ask(call, Followup)

    async def respond_to_interaction(
        self, interaction_id: UUID, auth: TokenSource, body: InteractionResponse
    ) -> InteractionView:
        """Answer an interaction."""
        call = Call(ops.RESPOND_TO_INTERACTION, auth, {"interaction_id": interaction_id}, body)
        return await self._ask(call, InteractionView)

    async def finish_run(self, run_id: UUID, auth: TokenSource, body: FinishRun) -> RunView:
        """End a run, without its costs where the server books none."""
        if not self.costs_enabled and body.costs:
            body = _without_costs(body)
        try:
            return await self._ask(Call(ops.FINISH_RUN, auth, {"run_id": run_id}, body), RunView)
        except ProblemAnswer as error:
            if error.code != ProblemCode.COSTS_NOT_ENABLED or not body.costs:
                raise
        self.costs_enabled = False
        return await self._ask(Call(ops.FINISH_RUN, auth, {"run_id": run_id}, _without_costs(body)), RunView)

    async def report_agent_session(
        self, thread_id: UUID, auth: TokenSource, version: int, body: ReportAgentSession
    ) -> AgentSession:
        """Tell which Hermes session the thread's turn ran on."""
        call = Call(
            ops.REPORT_AGENT_SESSION, auth, {"thread_id": thread_id}, body, headers=_if_match(version)
        )
        return await self._ask(call, AgentSession)

    async def set_thread_title(
        self, thread_id: UUID, auth: TokenSource, version: int, body: SetThreadTitle
    ) -> ThreadView:
        """Give the thread the title that Hermes found."""
        call = Call(ops.SET_THREAD_TITLE, auth, {"thread_id": thread_id}, body, headers=_if_match(version))
        return await self._ask(call, ThreadView)

    async def download_file(self, file_id: UUID, auth: TokenSource, first_bytes: int | None = None) -> bytes:
        """Fetch a file or its beginning.

        Args:
            file_id: The file.
            auth: The run's token.
            first_bytes: How many bytes are wanted at most, None for all of it.
        """
        if first_bytes == 0:
            return b""
        limit = MAX_FILE_BYTES if first_bytes is None else first_bytes
        call = Call(
            ops.DOWNLOAD_FILE,
            auth,
            {"file_id": file_id},
            headers={"Accept": "*/*"} | ({} if first_bytes is None else {"Range": f"bytes=0-{limit - 1}"}),
            accept=frozenset(
                {HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT, HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE}
            ),
            max_answer_bytes=limit,
            cut_answer=first_bytes is not None,
        )
        response = await self._caller.call(call)
        # No byte satisfies a range of an empty file.
        return b"" if response.status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE else response.body

    async def _ask(self, call: Call, answer: type[T]) -> T:
        return _read(answer, await self._caller.call(call))


def _read(answer: type[T], response: Response) -> T:
    return parse(answer, load_json(response.body))


def _if_match(version: int) -> dict[str, str]:
    return {"If-Match": f'"{version}"'}


def _without_costs(body: FinishRun) -> FinishRun:
    return FinishRun(outcome=body.outcome, reason=body.reason, metrics=body.metrics)
