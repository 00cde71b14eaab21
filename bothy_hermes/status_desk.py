"""What an operator at this machine sees of a running adapter, and may ask of it.

Layer: flows. Keeps `status.json` up to date and answers the requests that commands leave in `requests/`
(`state_files` has their form). It tells identifiers, words and numbers; nothing that was said, and no
secret, ever stands in these files.

A request's body is `{"command": ..., ...}`, its answer `{"ok": true, ...}` or `{"ok": false, "problem":
...}`:

* `status`: the status as it is now, under `status`.
* `end_run` with `run_id`: interrupt a run's turn and end the run as failed, `interrupted`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

from .clock import Clock
from .codec import JsonObject, format_time
from .defaults import LOGGER_NAME, VERSION
from .errors import StateError
from .handler import Handler
from .state_files import StateRequest, answer_request, take_requests, write_status
from .store import Store
from .wire_words import Outcome, Reason

_log = logging.getLogger(LOGGER_NAME)

LOOK_SECONDS = 1.0
"""Between two looks for requests; whoever asks waits five seconds at most."""

REQUEST_TROUBLE = {"ok": False, "problem": "there is no such command"}


class StatusDesk:
    """The files beside the state file.

    Args:
        directory: The state directory.
        clock: Time and waiting.
        store: Its trouble and counters are part of the status.
        handler: The runs.
        dropped: Tells what Hermes said and no run has posted, by kind.
        connection: Tells how far the gateway's connection is, in a word.
        unwritable: Told whether the status could be written.
    """

    def __init__(
        self,
        directory: Path,
        clock: Clock,
        store: Store,
        handler: Handler,
        *,
        dropped: Callable[[], Mapping[str, int]],
        connection: Callable[[], str],
        unwritable: Callable[[bool], None],
    ) -> None:
        self._directory = directory
        self._clock = clock
        self._store = store
        self._handler = handler
        self._dropped = dropped
        self._connection = connection
        self._unwritable = unwritable
        self._heartbeat: Mapping[str, Any] | None = None
        self._trouble: str | None = None
        self._shown: tuple[str, int] | None = None
        self._writing = asyncio.Lock()
        self._commands: Mapping[str, Callable[[JsonObject], Awaitable[JsonObject]]] = {
            "status": self._tell_status,
            "end_run": self._end_run,
        }

    async def publish(self, heartbeat: Mapping[str, Any] | None = None) -> None:
        """Write the status; a heartbeat stays part of it until the next one.

        While the state file is in trouble this also tries whether it is over: nothing else may be written
        for a long time. Else each heartbeat looks whether the file is still this adapter's.
        """
        self._heartbeat = heartbeat or self._heartbeat
        if self._store.trouble is not None:
            await self._quietly(self._store.probe())
        elif heartbeat is not None:
            await self._quietly(self._store.check())
        async with self._writing:
            await self._write(await self._status())

    async def run(self) -> None:
        """Answer requests, and write the status when connection or runs changed, until cancelled."""
        while True:
            if self._seen() != self._shown:
                await self.publish()
            for request in await self._requests():
                await self._serve(request)
            await self._clock.sleep(LOOK_SECONDS)

    async def _requests(self) -> list[StateRequest]:
        try:
            return await asyncio.to_thread(take_requests, self._directory, self._clock.now())
        except OSError as error:
            _log.debug("requests cannot be taken: %s", error.strerror)  # a disk that is read-only now
            return []

    async def _quietly(self, asked: Awaitable[None]) -> None:
        try:
            await asked
        except StateError as error:
            _log.debug("%s", error)  # said when it began

    async def _write(self, status: JsonObject) -> None:
        trouble = None
        try:
            await asyncio.to_thread(write_status, self._directory, status)
        except StateError as error:
            trouble = str(error)
        if trouble is not None and trouble != self._trouble:
            _log.error("%s", trouble)
        self._trouble = trouble
        self._unwritable(trouble is not None)

    async def _status(self) -> JsonObject:
        trouble = self._store.trouble
        self._shown = self._seen()
        return {
            "written_at": format_time(self._clock.now()),
            "adapter": {"version": VERSION},
            "connection": self._connection(),
            "heartbeat": self._heartbeat,
            "trouble": None if trouble is None else str(trouble),
            "runs": self._handler.overview(),
            "dropped": dict(self._dropped()),
            "counters": await self._counters(),
        }

    def _seen(self) -> tuple[str, int]:
        """What a change of is worth a new status by itself."""
        return self._connection(), self._handler.active_runs

    async def _counters(self) -> JsonObject:
        try:
            return dict(await self._store.counters())
        except StateError:
            return {}  # the trouble says why

    # Requests -------------------------------------------------------------------------------------

    async def _serve(self, request: StateRequest) -> None:
        command = request.body.get("command")
        serve = self._commands.get(command) if isinstance(command, str) else None
        answer = REQUEST_TROUBLE if serve is None else await serve(request.body)
        _log.info("a command of the operator was answered (%s)", command if serve is not None else "unknown")
        try:
            await asyncio.to_thread(answer_request, self._directory, request.id, answer)
        except StateError as error:
            _log.error("%s", error)

    async def _tell_status(self, _body: JsonObject) -> JsonObject:
        return {"ok": True, "status": await self._status()}

    async def _end_run(self, body: JsonObject) -> JsonObject:
        try:
            run_id = UUID(str(body.get("run_id")))
        except ValueError:
            return {"ok": False, "problem": "run_id is no ID"}
        if not self._handler.works_on(run_id):
            return {"ok": False, "problem": "nothing is being done for this run"}
        self._handler.end_run(run_id, Outcome.FAILED, Reason.INTERRUPTED)
        return {"ok": True}
