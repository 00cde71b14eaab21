"""A platform that hands texts to Hermes and logs what comes: the least that a turn needs.

A line of JSON on its port is a text in a thread; the line that comes back holds what Hermes said, once
Hermes is done with it.
"""

import asyncio
import json
import logging
from pathlib import Path

PORT_FILE = "bare.port"
CHAT = "00000000-0000-0000-0000-0000000000aa"

_log = logging.getLogger("bare")


def register(ctx):
    """Hermes calls this."""
    ctx.register_platform(
        name="bare",
        label="Bare",
        adapter_factory=build,
        check_fn=lambda: True,
        is_connected=lambda _config: True,
        install_hint="",
        allowed_users_env="BARE_ALLOWED_USERS",
        allow_all_env="BARE_ALLOW_ALL_USERS",
        allow_update_command=False,
        max_message_length=0,
        platform_hint="",
        emoji="",
    )


def build(config):
    """Make the platform; Hermes' classes exist only now."""
    from gateway.platforms.base import BasePlatformAdapter

    return type("Bare", (_Bare, BasePlatformAdapter), {})(config)


class _Bare:
    supports_status_text = True
    supports_async_delivery = False
    MAX_MESSAGE_LENGTH = 1_000_000_000
    enforces_own_access_policy = True

    def __init__(self, config):
        from gateway.config import Platform

        super().__init__(config=config, platform=Platform("bare"))
        self.said = []
        self.done = {}
        self.server = None

    async def connect(self, *, is_reconnect=False):
        self.server = await asyncio.start_server(self.take, "127.0.0.1", 0)
        await asyncio.to_thread(_publish, self.server.sockets[0].getsockname()[1])
        self._mark_connected()
        return True

    async def disconnect(self):
        if self.server is not None:
            self.server.close()
        self._mark_disconnected()

    async def take(self, reader, writer):
        """Do one turn for each line."""
        while line := await reader.readline():
            asked = json.loads(line)
            done = self.done[asked["id"]] = asyncio.get_running_loop().create_future()
            self.said.clear()
            await self.handle_message(self.event(asked))
            await done
            writer.write(json.dumps(self.said).encode() + b"\n")
            await writer.drain()
        writer.close()

    def event(self, asked):
        """Hermes' event of a line."""
        from gateway.platforms.base import MessageEvent, MessageType

        source = self.build_source(
            chat_id=CHAT,
            chat_type="dm",
            user_id="u1",
            user_name="Ada",
            thread_id=asked["thread"],
            message_id=asked["id"],
        )
        return MessageEvent(
            text=asked["text"],
            source=source,
            message_id=asked["id"],
            message_type=MessageType.TEXT,
            channel_prompt="",
            allow_gateway_control=False,
        )

    async def on_processing_complete(self, event, outcome):
        done = self.done.pop(event.message_id, None)
        if done is not None:
            done.set_result(None)

    async def send(self, chat_id, content, reply_to=None, metadata=None):
        _log.info("send %d", len(content))
        self.said.append(content)
        return _success(str(len(self.said)))

    async def edit_message(self, chat_id, message_id, content, *, finalize=False, metadata=None):
        _log.info("edit %d", len(content))
        return _success(message_id)

    def supports_draft_streaming(self, chat_type=None, metadata=None, chat_id=None):
        return True

    async def send_draft(self, chat_id, draft_id, content, metadata=None):
        _log.info("draft %d", len(content))
        return _success()

    def set_status_text(self, chat_id, text):
        _log.info("status")

    async def send_typing(self, chat_id, metadata=None):
        pass

    async def get_chat_info(self, chat_id):
        return {"name": chat_id, "type": "dm"}


def _publish(port):
    from hermes_constants import get_hermes_home

    Path(get_hermes_home(), PORT_FILE).write_text(str(port))


def _success(message_id=None):
    from gateway.platforms.base import SendResult

    return SendResult(success=True, message_id=message_id)
