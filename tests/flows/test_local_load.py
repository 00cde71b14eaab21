"""Fifty adapters on one server: they all get their runs, and the server stays small."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest
from websockets.asyncio.client import connect

ROOT = Path(__file__).parents[2]
GATEWAYS = 50
MAX_BYTES = 200_000_000


def memory(pid):
    """The most memory that a process ever had."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (line,) = [one for one in lines if one.startswith("VmHWM")]
    return int(line.split()[1]) * 1024


async def adapter(ready, token, number, go, runs):
    """Connect, then take one run."""
    base = ready["api_url"].replace("http", "ws", 1)
    url = f"{base}/agents/{ready['agent']['id']}/gateway?consumer=c{number}"
    headers = {"Authorization": f"Bearer {token}"}
    async with connect(url, additional_headers=headers, subprotocols=["bothy.agent.v1"]) as socket:
        await socket.recv()
        frame = {
            "op": "identify",
            "consumer": f"c{number}",
            "adapter_id": str(uuid4()),
            "protocol_version": 1,
            "adapter": {"name": "bothy-hermes", "version": "1"},
            "runtime": {"name": "hermes-agent", "version": "1"},
            "max_active_runs": 1,
        }
        await socket.send(json.dumps(frame))
        await socket.recv()
        go.release()
        event = json.loads(await socket.recv())["event"]
        await socket.send(json.dumps({"op": "ack", "event_id": event["id"]}))
        runs.append(event["payload"]["run"]["consumer"])


async def post(ready, path, body):
    """Make one call of a person."""
    host, _, port = ready["page_url"].removeprefix("http://").rstrip("/").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    data = json.dumps(body).encode()
    head = (
        f"POST /people/v1{path} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {ready['people'][0]['token']}\r\nContent-Length: {len(data)}\r\n"
        "Connection: close\r\n\r\n"
    )
    writer.write(head.encode() + data)
    answer = await reader.read()
    writer.close()
    return json.loads(answer.partition(b"\r\n\r\n")[2])


async def fifty(ready, token):
    go, runs = asyncio.Semaphore(0), []
    adapters = [asyncio.create_task(adapter(ready, token, number, go, runs)) for number in range(GATEWAYS)]
    for _ in range(GATEWAYS):
        await go.acquire()
    for number in range(GATEWAYS):
        thread = await post(ready, "/threads", {})
        await post(
            ready,
            f"/threads/{thread['id']}/messages",
            {"client_msg_id": str(number), "content": "x" * 10_000},
        )
    await asyncio.gather(*adapters)
    return runs


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_fifty_gateways_on_one_server(tmp_path):
    """Each has room for one run and gets exactly one; the process stays below 200 MB."""
    with subprocess.Popen(
        [sys.executable, "-m", "bothy_hermes", "local-server", "--state", str(tmp_path), "--json"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as process:
        try:
            ready = json.loads(process.stdout.readline())
            token = Path(ready["agent"]["token_file"]).read_text().strip()
            runs = asyncio.run(fifty(ready, token))
            assert sorted(runs) == sorted(f"c{number}" for number in range(GATEWAYS))
            assert memory(process.pid) < MAX_BYTES
        finally:
            process.terminate()
