"""The gateway's loop, row by row of its table, on a fake clock and connections without sockets."""

import asyncio
import contextlib
import json
import logging
from datetime import timedelta
from uuid import UUID

import pytest

from bothy_hermes import bothy_gateway
from bothy_hermes.bothy_api import AgentToken, BothyApi
from bothy_hermes.bothy_gateway import Gateway, GatewayEvents
from bothy_hermes.codec import parse
from bothy_hermes.dpop import ProofSigner, verify_proof
from bothy_hermes.errors import ConfigError, GatewayRefused, StateError, TransportError
from bothy_hermes.reconnect import ConnectionState
from bothy_hermes.secret import Secret
from bothy_hermes.wire_events import Identify
from tests.fakes.clock import START, FakeClock, settle
from tests.fakes.edge_kit import AGENT, AGENT_KEY, SERVER_URL, private_file, settings
from tests.fakes.frozen_protocol import check_frame
from tests.fakes.links import READY, FakeConnector, FakeLink, greeted, hello
from tests.fakes.transport import FakeTransport, json_answer, problem
from tests.fakes.wire_examples import EXAMPLES

EVENT = UUID("0192f4a0-7b1c-7000-8000-00000000e001")
SIGNER = ProofSigner(AGENT_KEY)


def event(number=1, **more):
    """An event frame; what is in it is not the gateway's business."""
    return {"op": "event", "event": {"id": f"0192f4a0-7b1c-7000-8000-00000000e{number:03}"} | more}


class Story(GatewayEvents):
    """One gateway, its connector and everything it told."""

    def __init__(self, directory, *outcomes, signer=None, spread=False):
        self.fake = FakeClock(spread=spread)
        self.file = private_file(directory / "token", "agent-token")
        self.transport = FakeTransport()
        config = settings()
        self.api = BothyApi(config, self.transport, self.fake.clock, AgentToken(self.file), signer)
        self.connector = FakeConnector(self.fake.clock, *outcomes)
        self.told = []
        self.deliveries = []
        self.gateway = Gateway(
            self.api,
            config,
            self.fake.clock,
            lambda: parse(Identify, EXAMPLES[Identify]()),
            AGENT,
            self,
            self.connector,
        )

    async def on_ready(self, hello, ready):
        self.told.append(("ready", self.gateway.state, ready.pending))

    def on_delivery(self, delivery):
        self.deliveries.append(delivery)
        self.told.append(("event", delivery.event.get("id")))

    def on_lost(self):
        self.told.append(("lost", self.gateway.state))

    @contextlib.asynccontextmanager
    async def running(self):
        """The loop in a task, cancelled at the end."""
        task = asyncio.create_task(self.gateway.run())
        await settle()
        try:
            yield task
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def after(self, seconds):
        """Let the loop run that long; returns the times of its attempts."""

        async def story():
            async with self.running():
                await self.fake.advance(seconds)

        asyncio.run(story())
        return self.connector.times

    def refused(self):
        """Let the loop run until it gives up."""
        with pytest.raises(GatewayRefused) as caught:
            asyncio.run(self.fake.drive(self.gateway.run()))
        assert self.gateway.state is ConnectionState.STOPPED
        return caught.value


# The conversation


def test_a_connection_is_greeted_taken_and_used(tmp_path):
    """hello, identify, ready, event, ack: each as the frozen protocol has it."""
    link = greeted(event(1))
    story = Story(tmp_path, link)

    async def run():
        async with story.running():
            await settle()
            assert story.gateway.state is ConnectionState.READY
            await story.deliveries[0].ack(EVENT)

    asyncio.run(run())
    identify, ack = link.sent
    check_frame("adapter", identify)
    check_frame("adapter", ack)
    assert identify == {"op": "identify"} | EXAMPLES[Identify]()
    assert ack == {"op": "ack", "event_id": str(EVENT)}
    assert story.told == [
        ("ready", ConnectionState.READY, 0),
        ("event", str(EVENT)),
        ("lost", ConnectionState.READY),
    ]
    assert link.closed
    assert story.gateway.state is ConnectionState.STOPPED


def test_hello_sets_the_clock_and_the_costs(tmp_path):
    """What a connection says about its server counts at once."""
    link = greeted(server_time="2026-11-30T12:00:20.000000Z", costs_enabled=False)
    story = Story(tmp_path, link)
    story.after(1)
    assert story.api.server_now() == START + timedelta(seconds=21)
    assert story.api.costs_enabled is False


def test_another_protocol_version_in_hello_is_said_and_tried(tmp_path, caplog):
    """The server decides: it may speak more than one, or close with 4426."""
    story = Story(tmp_path, greeted(protocol_version=2))
    story.after(1)
    assert ("ready", ConnectionState.READY, 0) in story.told
    assert "version 2 of the protocol" in caplog.text


BAD_FRAMES = {
    "no json": "hunter2",
    "cut json": '{"op":"event","event":{"text":"hunter2"',
    "list": '["hunter2"]',
    "number": "5",
    "null": "null",
    "no op": '{"text":"hunter2"}',
    "unknown op": '{"op":"hunter2"}',
    "odd op": '{"op":["hunter2"]}',
    "adapter's op": '{"op":"ack","event_id":"0192f4a0-7b1c-7000-8000-00000000e001"}',
    "event without event": '{"op":"event"}',
    "event of text": '{"op":"event","event":"hunter2"}',
    "member twice": '{"op":"event","event":{},"event":{"a":"hunter2"}}',
    "broken goodbye": '{"op":"goodbye","code":"hunter2"}',
    "nan": '{"op":"ready","pending":NaN}',
    "binary": b"hunter2",
    "deep": '{"op":' + "[" * 50_000,
    "too large": json.dumps({"op": "event", "event": {"text": "hunter2" * 160_000}}),
    "too large in bytes": '{"op":"event","event":{"text":"' + "ü" * 530_000 + '"}}',
}


@pytest.mark.parametrize("name", BAD_FRAMES)
def test_a_frame_that_nobody_can_read_costs_nothing_else(tmp_path, caplog, name):
    """It is logged without its content; the connection lives, and the other events come."""
    story = Story(tmp_path, greeted(event(1), BAD_FRAMES[name], event(2)))
    with caplog.at_level(logging.DEBUG, "bothy_hermes"):
        assert story.after(600) == [0]
    assert [told[1] for told in story.told if told[0] == "event"] == [
        event(1)["event"]["id"],
        event(2)["event"]["id"],
    ]
    assert len(caplog.records) == 1
    assert "hunter2" not in caplog.text


def test_the_largest_allowed_frame_is_read(tmp_path):
    """One mebibyte, to the byte."""
    frame = json.dumps(event(1, text=""))
    frame = frame.replace('"text": ""', '"text": "' + "x" * (1_048_576 - len(frame)) + '"')
    assert len(frame) == 1_048_576
    story = Story(tmp_path, greeted(frame, frame + " "))
    story.after(1)
    assert len(story.deliveries) == 1


def test_frames_out_of_turn_are_ignored(tmp_path, caplog):
    """An event before ready, a second hello: said, and nothing more."""
    link = FakeLink(hello(), event(1), READY, hello(), event(2))
    story = Story(tmp_path, link)
    assert story.after(600) == [0]
    assert [told[0] for told in story.told] == ["ready", "event", "lost"]
    assert caplog.messages == [
        "gateway: a event frame came too early and is ignored",
        "gateway: a second hello frame is ignored",
    ]


def test_an_ack_belongs_to_its_connection(tmp_path):
    """After a loss it does nothing, and above all not on the next connection."""
    first, second = greeted(event(1)), greeted()
    story = Story(tmp_path, first, second)

    async def run():
        async with story.running():
            await settle()
            first.end()
            await story.fake.advance(1)
            assert story.gateway.state is ConnectionState.READY
            await story.deliveries[0].ack(EVENT)
            await settle()

    asyncio.run(run())
    assert [frame["op"] for frame in first.sent + second.sent] == ["identify", "identify"]


def test_a_delivery_shows_nothing(tmp_path):
    """Its repr is safe for logs."""
    story = Story(tmp_path, greeted(event(1, token="hunter2")))
    story.after(1)
    assert repr(story.deliveries[0]) == "Delivery(…)"


def test_two_thousand_events_come_without_a_single_ack(tmp_path):
    """Reading waits for nobody's work."""
    story = Story(tmp_path, greeted(*(event(number % 1000) for number in range(2000))))
    story.after(1)
    assert len(story.deliveries) == 2000


# Attempts


def test_each_attempt_has_a_fresh_token_and_proof(tmp_path):
    """The file is read again, the proof is made after the wait."""
    story = Story(tmp_path, signer=SIGNER)

    async def run():
        async with story.running():
            await story.fake.advance(2)
            private_file(story.file, "new-token")
            await story.fake.advance(2)

    asyncio.run(run())
    times = story.connector.times
    assert times == [0, 0.5, 1.5, 3.5]
    proofs = [
        verify_proof(
            headers["DPoP"],
            method="GET",
            url=f"{SERVER_URL}/agents/{AGENT}/gateway",
            token=Secret("new-token" if at > 2 else "agent-token"),
            now=START + timedelta(seconds=at),
            jkt=SIGNER.jkt,
        )
        for at, _, headers in story.connector.attempts
    ]
    assert len({proof.jti for proof in proofs}) == 4
    assert [proof.issued_at.second for proof in proofs] == [0, 0, 1, 3]


def test_a_nonce_is_tried_once_at_once(tmp_path):
    """No wait for the first refusal; a second one is a refused token's."""
    refusal = problem(401, "use_dpop_nonce", dpop_nonce="n1")
    story = Story(tmp_path, refusal, greeted(), signer=SIGNER)
    assert story.after(10) == [0, 0]
    assert ("ready", ConnectionState.READY, 0) in story.told
    story = Story(tmp_path, refusal, refusal, greeted(), signer=SIGNER)
    assert story.after(100) == [0, 0, 65]


def test_a_token_that_was_replaced_meanwhile_is_tried_at_once(tmp_path):
    """The file holds another one than the refused."""

    class Replacing(FakeConnector):
        async def __call__(self, url, headers):
            if not self.attempts:
                private_file(story.file, "new-token")
            return await super().__call__(url, headers)

    story = Story(tmp_path)
    connector = Replacing(story.fake.clock, problem(401, "unauthorized"), greeted())
    story.gateway._connector = story.connector = connector
    assert story.after(10) == [0, 0]
    assert connector.attempts[1][2]["Authorization"] == "Bearer new-token"


def test_a_clock_that_was_the_reason_is_mended_at_once(tmp_path):
    """The refusal's date moved the time by over 30 s."""
    refusal = problem(401, "invalid_dpop_proof", date="Mon, 30 Nov 2026 12:05:00 GMT")
    story = Story(tmp_path, refusal, greeted(server_time="2026-11-30T12:05:00.000000Z"), signer=SIGNER)
    assert story.after(10) == [0, 0]


def test_a_handshakes_answer_brings_nonce_and_time(tmp_path):
    """Also one that succeeds."""
    link = FakeLink(headers={"dpop-nonce": "n7", "date": "Mon, 30 Nov 2026 12:00:10 GMT"})
    story = Story(tmp_path, link, signer=SIGNER)
    story.after(1)
    assert story.api.server_now() == START + timedelta(seconds=11)
    _, headers = asyncio.run(story.api.gateway_request(AGENT, "c"))
    proof = verify_proof(
        headers["DPoP"],
        method="GET",
        url=f"{SERVER_URL}/agents/{AGENT}/gateway",
        token=None,
        now=START + timedelta(seconds=11),
    )
    assert proof.nonce == "n7"


# The rows of the table


def test_row_refused_token(tmp_path, caplog):
    """401 at the handshake or 4401: said, read again, one try a minute."""
    closing = greeted()
    closing.end(4401)
    story = Story(tmp_path, problem(401, "unauthorized"), closing, problem(401), greeted())
    assert story.after(300) == [0, 65, 130, 195]
    said = [record for record in caplog.records if "hermes_adapter.token_file" in record.getMessage()]
    assert [record.levelname for record in said] == ["ERROR"] * 3


@pytest.mark.parametrize("status", [403, 404, 422, 426])
def test_row_stop_at_the_handshake(tmp_path, status):
    """Said, and no further attempt."""
    story = Story(tmp_path, problem(status), greeted())
    error = story.refused()
    assert (error.where, error.code) == ("http", status)
    assert len(story.connector.attempts) == 1


@pytest.mark.parametrize("code", [4403, 4426])
def test_row_stop_by_close(tmp_path, code):
    """The same for a connection that was open."""
    link = greeted()
    link.end(code)
    error = Story(tmp_path, link).refused()
    assert (error.where, error.code) == ("close", code)


@pytest.mark.parametrize("status", [429, 500, 503])
def test_row_busy_server(tmp_path, status):
    """Backoff, never shorter than asked for."""
    story = Story(tmp_path, problem(status), problem(status, retry_after="20"), greeted())
    assert story.after(300) == [0, 0.5, 21.5]


@pytest.mark.parametrize("code", [1000, 1001, 1006, 1011, 1012, 1013, 4400, 4999])
def test_row_loss(tmp_path, code):
    """A connection that was taken and lost at once is one more failure."""
    links = [greeted() for _ in range(4)]
    for link in links[:3]:
        link.end(code)
    story = Story(tmp_path, *links)
    assert story.after(300) == [0, 0.5, 1.5, 3.5]


@pytest.mark.parametrize("cause", ["connect", "tls", "timeout", "malformed"])
def test_row_no_connection(tmp_path, cause):
    """Nobody there, no trust, no answer."""
    failure = TransportError("openGateway", cause, sent=False)
    assert Story(tmp_path, failure, greeted()).after(100) == [0, 0.5]


def test_row_redirect(tmp_path, caplog):
    """Refused like a loss, and said."""
    assert Story(tmp_path, problem(302, location="https://elsewhere"), greeted()).after(100) == [0, 0.5]
    assert "never followed" in caplog.text


def test_row_replaced(tmp_path, caplog):
    """Half a minute, and every ten minutes once it is a fight."""
    links = [greeted() for _ in range(6)]
    for link in links[:5]:
        link.end(4409)
    story = Story(tmp_path, *links)
    assert story.after(2500) == [0, 45, 90, 690, 1290, 1890]
    assert "hermes_adapter.consumer" in caplog.text


def test_a_useful_link_resets_the_backoff(tmp_path):
    """Thirty seconds of service, not a mere handshake."""
    useful = greeted()
    story = Story(tmp_path, *[problem(503)] * 3, useful, greeted())

    async def run():
        async with story.running():
            await story.fake.advance(3.5 + 30)
            useful.end(1012)
            await story.fake.advance(10)

    asyncio.run(run())
    assert story.connector.times == [0, 0.5, 1.5, 3.5, 34.0]


def test_a_goodbye_tells_more_than_a_lost_connection(tmp_path):
    """The announced code counts when the close frame did not come, or came without a meaning."""
    for code in (1006, 1000, 1005):
        link = greeted({"op": "goodbye", "code": 4409, "reconnect": True})
        link.end(code)
        assert Story(tmp_path, link, greeted()).after(60) == [0, 45]


def test_a_close_code_of_the_protocol_tells_more_than_a_goodbye(tmp_path):
    """What happened goes before what was announced."""
    link = greeted({"op": "goodbye", "code": 1012, "reconnect": True})
    link.end(4403)
    assert Story(tmp_path, link).refused().code == 4403


def test_events_after_a_goodbye_still_count(tmp_path):
    """The server may have sent them before it decided to go."""
    story = Story(tmp_path, greeted({"op": "goodbye", "code": 1012, "reconnect": True}, event(1)))
    story.after(0)
    assert len(story.deliveries) == 1


@pytest.mark.parametrize(
    "frames", [[], [hello()], [hello(), READY, {"op": "goodbye", "code": 1012, "reconnect": True}]]
)
def test_a_server_that_falls_silent_is_left(tmp_path, monkeypatch, frames):
    """Without hello, without ready, or after a goodbye without a close, in real time."""
    for name in ("GREETING_SECONDS", "GOODBYE_SECONDS"):
        monkeypatch.setattr(bothy_gateway, name, 0.02)
    link = FakeLink(*frames)
    story = Story(tmp_path, link, greeted())

    async def run():
        async with story.running():
            await asyncio.sleep(0.1)
            await story.fake.advance(1)

    asyncio.run(run())
    assert link.closed
    assert story.connector.times == [0, 0.5]


def test_a_ready_connection_may_be_silent(tmp_path, monkeypatch):
    """Pings are the socket's business; nobody has to say anything."""
    monkeypatch.setattr(bothy_gateway, "GREETING_SECONDS", 0.02)
    story = Story(tmp_path, greeted())

    async def run():
        async with story.running():
            await asyncio.sleep(0.1)
            assert story.gateway.state is ConnectionState.READY

    asyncio.run(run())
    assert story.connector.times == [0]


# Ends


def test_lost_is_told_once_and_only_after_ready(tmp_path):
    """Who never heard of a connection does not hear of its end."""
    early, ready = FakeLink(hello()), greeted()
    early.end()
    ready.end()
    story = Story(tmp_path, early, ready)
    story.after(1)
    assert [told[0] for told in story.told] == ["ready", "lost"]


@pytest.mark.parametrize("seconds", [0, 0.2])
def test_cancelling_ends_the_connection_in_good_order(tmp_path, seconds):
    """While it lives, and while the next attempt is waited for."""
    link = greeted()
    if seconds:
        link.end()
    story = Story(tmp_path, link)
    story.after(seconds)
    assert link.closed
    assert story.gateway.state is ConnectionState.STOPPED


def test_an_error_of_the_flows_ends_the_loop(tmp_path):
    """A disk that is full is not a reason to reconnect."""
    link = greeted()
    story = Story(tmp_path, link)

    async def fail(hello, ready):
        raise StateError("state.sqlite3", "is full")

    story.on_ready = fail
    with pytest.raises(StateError):
        asyncio.run(story.fake.drive(story.gateway.run()))
    assert link.closed
    assert story.gateway.state is ConnectionState.STOPPED


def test_a_token_that_was_never_there_ends_the_loop(tmp_path):
    """There is nothing to connect with."""
    story = Story(tmp_path)
    story.file.unlink()
    with pytest.raises(ConfigError, match=r"hermes_adapter\.token_file"):
        asyncio.run(story.fake.drive(story.gateway.run()))


def test_clocks_too_far_apart_make_no_proof(tmp_path, caplog):
    """The attempt waits until one of the clocks is set; the server's time is asked meanwhile."""
    story = Story(tmp_path, greeted(), signer=SIGNER)
    story.transport.always("getJwks", json_answer(200, {"keys": []}, date="Mon, 30 Nov 2026 14:00:00 GMT"))
    story.api.observe_server_time(START + timedelta(hours=2))

    async def run():
        async with story.running():
            await story.fake.advance(1)
            assert story.connector.times == []
            story.fake.step_wall(7200)
            await story.fake.advance(5)

    asyncio.run(run())
    assert story.connector.times == [1.5]
    assert "set this machine's clock" in caplog.text


def test_no_log_line_holds_a_token(tmp_path, caplog):
    """Neither the agent's nor a proof, whatever happens."""
    outcomes = [
        problem(401),
        problem(503),
        TransportError("openGateway", "tls", sent=False),
        greeted(event(1)),
    ]
    story = Story(tmp_path, *outcomes, signer=SIGNER)
    with caplog.at_level(logging.DEBUG):
        story.after(300)
    assert "agent-token" not in caplog.text
    assert "eyJ" not in caplog.text
