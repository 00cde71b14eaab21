"""Requests from the event loop: total deadlines, cancellation at any moment, threads that hold nobody up."""

import asyncio
import contextlib
import random
import socket
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest
import vcr

from bothy_hermes.bothy_http import HttpTransport, Request
from bothy_hermes.clock import system_clock
from bothy_hermes.errors import TransportError
from tests.fakes.http_peer import HttpPeer, answer

SOON = 3.0
"""Real seconds within which something that is given up is over, also on a machine that stands still now and
then; the other side would go on for longer."""

LONG = 60
"""Seconds that nothing here takes."""


def request(target="/", **more):
    return Request(**({"operation": "op", "method": "GET", "target": target, "headers": {}} | more))


@contextlib.asynccontextmanager
async def transport_to(url, **options):
    transport = HttpTransport(url, clock=system_clock(), **options)
    try:
        yield transport
    finally:
        await transport.close()


@contextlib.contextmanager
def silent_listener():
    """A port that accepts connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def trickle(arrived):
    """Send a byte now and then, each well within the time of one read."""
    arrived.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
    for _ in range(1000):
        time.sleep(0.02)
        arrived.send(b"x")


def hold_head(arrived):
    arrived.hold()


def hold_body(arrived):
    arrived.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nhalf")
    arrived.hold()


async def fails(awaitable):
    with pytest.raises(TransportError) as caught:
        await awaitable
    return caught.value.cause, caught.value.sent


def test_targets_are_below_the_base():
    """The API base's path is put in front."""

    async def story(peer):
        async with transport_to(peer.url + "/api/v1") as transport:
            await transport.send(request("/me?x=1"), timeout=LONG)
        assert peer.targets() == ["/api/v1/me?x=1"]

    with HttpPeer() as peer:
        asyncio.run(story(peer))


def test_requests_run_side_by_side():
    """As many as there are workers, and the connections are kept."""
    gate = threading.Barrier(4)

    def route(_):
        gate.wait(LONG)
        return answer()

    async def story(peer):
        async with transport_to(peer.url, workers=4) as transport:
            answers = await asyncio.gather(*(transport.send(request("/g"), timeout=LONG) for _ in range(4)))
            assert [one.status for one in answers] == [200] * 4
            assert transport._pool.idle == 4

    with HttpPeer() as peer:
        peer.routes["/g"] = route
        asyncio.run(story(peer))


def test_the_deadline_is_total():
    """A body that trickles fast enough for each read is cut at the deadline all the same."""

    async def story(peer):
        async with transport_to(peer.url) as transport:
            begin = time.monotonic()
            assert await fails(transport.send(request(), timeout=0.15)) == ("timeout", True)
            assert time.monotonic() - begin < 0.15 + SOON
            assert transport._pool.idle == 0

    with HttpPeer() as peer:
        peer.routes["/"] = trickle
        asyncio.run(story(peer))


def test_waiting_for_a_turn_counts_and_sends_nothing():
    """With every worker busy the deadline passes before anything was sent."""

    async def story(peer):
        async with transport_to(peer.url, workers=1) as transport:
            busy = asyncio.create_task(transport.send(request("/hold"), timeout=LONG))
            await peer.wait_for()
            assert await fails(transport.send(request("/late"), timeout=0.05)) == ("timeout", False)
            busy.cancel()
            assert peer.targets() == ["/hold"]

    with HttpPeer() as peer:
        peer.routes["/hold"] = hold_head
        asyncio.run(story(peer))


def hold_last_body(arrived):
    arrived.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1000\r\n\r\nhalf")
    arrived.hold()


PHASES = {"head": hold_head, "body": hold_body, "last body": hold_last_body}


@pytest.mark.parametrize("phase", PHASES)
def test_a_cancelled_exchange_ends_at_once(phase):
    """The server sees its connection end, nothing half-used is kept, and the next request works."""

    async def story(peer):
        async with transport_to(peer.url, workers=1) as transport:
            task = asyncio.create_task(transport.send(request("/hold"), timeout=LONG))
            await peer.wait_for()
            await asyncio.sleep(0.02)
            begin = time.monotonic()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert time.monotonic() - begin < SOON
            assert await asyncio.to_thread(peer.arrived[0].gone.wait, SOON)
            assert (await transport.send(request(), timeout=LONG)).body == b"{}"
            assert [one.connection for one in peer.arrived] == [0, 1]

    with HttpPeer() as peer:
        peer.routes["/hold"] = PHASES[phase]
        asyncio.run(story(peer))


def test_a_cancelled_request_that_waited_was_never_sent():
    """Its turn goes to the next one."""

    async def story(peer):
        async with transport_to(peer.url, workers=1) as transport:
            busy = asyncio.create_task(transport.send(request("/hold"), timeout=LONG))
            await peer.wait_for()
            waiting = asyncio.create_task(transport.send(request("/never"), timeout=LONG))
            await asyncio.sleep(0)
            waiting.cancel()
            busy.cancel()
            assert (await transport.send(request("/next"), timeout=LONG)).status == 200
            assert "/never" not in peer.targets()

    with HttpPeer() as peer:
        peer.routes["/hold"] = hold_head
        asyncio.run(story(peer))


def test_nobody_waits_for_a_thread_that_hangs():
    """A handshake without an answer: the caller is free at once, and so is the only turn."""

    async def story(port):
        async with transport_to(f"https://localhost:{port}", workers=1) as transport:
            for _ in range(3):
                begin = time.monotonic()
                assert await fails(transport.send(request(), timeout=0.05)) == ("timeout", False)
                assert time.monotonic() - begin < SOON
            begin = time.monotonic()
            task = asyncio.create_task(transport.send(request(), timeout=LONG))
            await asyncio.sleep(0.02)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert time.monotonic() - begin < SOON

    with silent_listener() as port:
        asyncio.run(story(port))


def test_the_interpreter_does_not_wait_either():
    """A thread that hangs in a handshake does not keep the process alive."""
    program = """
        import asyncio, sys
        from bothy_hermes.bothy_http import HttpTransport, Request
        from bothy_hermes.clock import system_clock

        async def story():
            transport = HttpTransport(sys.argv[1], clock=system_clock())
            task = asyncio.create_task(transport.send(Request("op", "GET", "/", {}), timeout=60))
            await asyncio.sleep(0.1)
            task.cancel()

        asyncio.run(story())
        print("out")
    """
    with silent_listener() as port:
        command = [sys.executable, "-c", textwrap.dedent(program), f"https://localhost:{port}"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[1]) as process:
            assert process.stdout.readline() == b"out\n"
            process.wait(timeout=SOON)  # a handshake would be given up after five
            assert process.returncode == 0


def test_closing_gives_up_what_is_under_way():
    """Who waits hears that we closed; so does who comes later."""

    async def story(peer):
        transport = HttpTransport(peer.url, clock=system_clock(), workers=1)
        await transport.send(request(), timeout=LONG)
        under_way = asyncio.create_task(transport.send(request("/hold"), timeout=LONG))
        await peer.wait_for(2)
        waiting = asyncio.create_task(transport.send(request("/waiting"), timeout=LONG))
        await asyncio.sleep(0)
        begin = time.monotonic()
        await transport.close()
        assert await fails(under_way) == ("closed", True)
        assert (await fails(waiting))[0] == "closed"
        assert await fails(transport.send(request(), timeout=1)) == ("closed", False)
        assert time.monotonic() - begin < SOON
        assert transport._pool.idle == 0
        assert "/waiting" not in peer.targets()

    with HttpPeer() as peer:
        peer.routes["/hold"] = hold_head
        asyncio.run(story(peer))


def test_an_error_of_another_kind_reaches_the_caller():
    """Only network errors become TransportError: a recorder's refusal must be seen by its test."""

    async def story(peer):
        async with transport_to(peer.url) as transport:
            with pytest.raises(ValueError, match="Invalid header"):
                await transport.send(request(headers={"X": "a\r\nb"}), timeout=LONG)
            assert transport._pool.idle == 0
            assert (await transport.send(request(), timeout=LONG)).status == 200

    with HttpPeer() as peer:
        asyncio.run(story(peer))


def test_threads_come_and_go():
    """Never more idle ones than workers, none after closing."""
    gate = threading.Barrier(3)

    def mine():
        return [thread for thread in threading.enumerate() if thread.name == "bothy-http"]

    async def story(peer):
        before = len(mine())
        async with transport_to(peer.url, workers=3) as transport:
            for _ in range(3):
                await asyncio.gather(*(transport.send(request("/g"), timeout=LONG) for _ in range(3)))
            assert len(mine()) - before <= 3
        for _ in range(200):
            if len(mine()) <= before:
                return
            await asyncio.sleep(0.01)
        raise AssertionError("threads are left")

    with HttpPeer() as peer:
        peer.routes["/g"] = lambda _: (gate.wait(LONG), answer())[1]
        asyncio.run(story(peer))


def test_cancelling_at_any_moment_leaks_nothing():
    """Hundreds of exchanges, cancelled at random: each kept connection still works, no other is open."""
    chance = random.Random(5)

    async def one(transport, number):
        task = asyncio.create_task(transport.send(request(f"/{number}"), timeout=LONG))
        await asyncio.sleep(chance.random() * 0.004)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            assert (await task).body == f"/{number}".encode()

    async def story(peer):
        async with transport_to(peer.url, workers=4) as transport:
            for base in range(0, 200, 20):
                await asyncio.gather(*(one(transport, number) for number in range(base, base + 20)))
            for _ in range(200):
                if peer.open == transport._pool.idle:
                    break
                await asyncio.sleep(0.01)
            assert peer.open == transport._pool.idle <= 4
            for number in range(8):
                assert (
                    await transport.send(request(f"/{number}"), timeout=LONG)
                ).body == f"/{number}".encode()

    with HttpPeer() as peer:
        for number in range(200):
            peer.routes[f"/{number}"] = lambda arrived: answer(arrived.target.encode())
        asyncio.run(story(peer))


def test_recordings_are_played_back_from_many_threads(tmp_path):
    """Connections are constructed under one lock, so no request slips past a recorder to the network."""
    recorder = vcr.VCR(cassette_library_dir=str(tmp_path), match_on=["method", "path"])

    async def ask(url, workers, count):
        async with transport_to(url, workers=workers) as transport:
            return await asyncio.gather(
                *(transport.send(request(f"/{number}"), timeout=60) for number in range(count))
            )

    with HttpPeer() as peer:
        peer.routes = {f"/{number}": lambda arrived: answer(arrived.target.encode()) for number in range(60)}
        with recorder.use_cassette("c.yaml", record_mode="all"):
            asyncio.run(ask(peer.url, 1, 60))
    with recorder.use_cassette("c.yaml", record_mode="none") as cassette:
        answers = asyncio.run(ask(peer.url, 8, 60))
        assert [one.body for one in answers] == [f"/{number}".encode() for number in range(60)]
        assert cassette.all_played


def test_a_missing_recording_is_not_taken_for_a_network_error(tmp_path):
    """It would be retried for ever."""

    async def story():
        async with transport_to("http://localhost:9") as transport:
            await transport.send(request(), timeout=LONG)

    (tmp_path / "empty.yaml").write_text("interactions: []\nversion: 1\n")
    cassette = vcr.use_cassette(str(tmp_path / "empty.yaml"), record_mode="none")
    with cassette, pytest.raises(vcr.errors.CannotOverwriteExistingCassetteException):
        asyncio.run(story())
