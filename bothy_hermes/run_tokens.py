"""One run's token: which one to present now, and when to ask for another.

Layer: flows. A token is renewed just before a call when less than a third of its life is left, once
for all callers that wait and no longer than one does; a run that makes no calls renews nothing. Tokens
live in memory only: after a restart the agent's own token buys the first one.
"""

from __future__ import annotations

import asyncio
from datetime import datetime
from http import HTTPStatus
from uuid import UUID

from .bothy_api import BothyApi
from .bothy_credentials import TokenSource
from .errors import ProblemAnswer, RunEnded
from .secret import Secret
from .tokens import token_times
from .wire_words import ProblemCode

RENEWAL_SHARE = 1 / 3
"""Share of a token's life below which it is renewed before a call."""


class RunToken(TokenSource):
    """The token source of one run.

    Args:
        api: The server.
        run_id: The run.
        first: The token that came with the run's event; None after a restart.
    """

    def __init__(self, api: BothyApi, run_id: UUID, first: Secret | None = None) -> None:
        self._api = api
        self._run_id = run_id
        self._token = first
        self._renewing: asyncio.Task[Secret] | None = None
        self._waiters = 0

    @property
    def current(self) -> Secret | None:
        """The token at hand, None without one."""
        return self._token

    def take(self, token: Secret) -> None:
        """Use the token of a newer event of the run from now on."""
        self._token = token

    async def token(self) -> Secret:
        """Return a token that still lives, renewed when little of its life is left."""
        now = self._api.server_now()
        if self._token is not None and life_left(self._token, now) >= RENEWAL_SHARE:
            return self._token
        try:
            return await self._renew()
        except RunEnded:
            # Over by our own word: no more tokens are given out, but one that lives is still taken.
            if self._token is None or life_left(self._token, self._api.server_now()) <= 0:
                raise
            return self._token

    async def refused(self, token: Secret, code: str) -> bool:
        """A call was refused with this token; tell whether another try makes sense."""
        if code != ProblemCode.TOKEN_EXPIRED:
            return False
        if self._token == token:
            self._token = None
            await self._renew()
        return True

    async def _renew(self) -> Secret:
        """Ask once for all who wait, and no longer than one does: a run that is over asks for nothing."""
        if self._renewing is None:
            self._renewing = asyncio.create_task(self._ask(), name="bothy-renew-token")
            self._renewing.add_done_callback(self._renewed)
        asking, self._waiters = self._renewing, self._waiters + 1
        try:
            return await asyncio.shield(asking)
        finally:
            self._waiters -= 1
            if self._waiters == 0 and not asking.done():
                asking.cancel()
                self._renewing = None

    def _renewed(self, task: asyncio.Task[Secret]) -> None:
        if self._renewing is task:
            self._renewing = None
        if not task.cancelled() and task.exception() is None:
            self._token = task.result()

    async def _ask(self) -> Secret:
        renewed = await self._asked()
        token_times(renewed)  # a token that nobody can read is not kept: no call would ever ask for another
        return renewed

    async def _asked(self) -> Secret:
        current = self._token
        if current is not None and life_left(current, self._api.server_now()) > 0:
            try:
                return await self._api.renew_run_token(self._run_id, _Fixed(current))
            except ProblemAnswer as problem:
                if problem.status != HTTPStatus.UNAUTHORIZED:
                    raise
        return await self._api.renew_run_token(self._run_id)


class _Fixed(TokenSource):
    """Presents one token as it is: what a renewal is asked with must not be renewed first."""

    def __init__(self, token: Secret) -> None:
        self._token = token

    async def token(self) -> Secret:
        return self._token

    async def refused(self, token: Secret, code: str) -> bool:  # noqa: ARG002  # the protocol's form
        return False


def life_left(token: Secret, now: datetime) -> float:
    """The share of a token's life that is left, from 1 (just minted) down to 0 and below."""
    issued_at, expires_at = token_times(token)
    life = (expires_at - issued_at).total_seconds()
    return (expires_at - now).total_seconds() / life if life > 0 else 0.0
